"""Texts that no connection takes: each argument of a fleet that is one is refused before anything is sent, with its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker_server import BrokerServer
from programs import ECHO, numbered, read, serving

import claude_transport as ct
from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.observing import observe
from claude_transport.transport import Client
from claude_transport.transports.network import NetworkTransport

HALF = "\ud800"
URL = "redis://127.0.0.1:1/0"
URLS = [
    f"redis://u{HALF}:p@h/0",
    f"redis://u:p{HALF}@h/0",
    f"redis://h{HALF}/0",
    f"redis://h/0?prefix={HALF}",
    "redis://h\0/0",
    "redis://h h/0",
]

CLIENT: dict[str, Any] = {
    "session": HALF,
    "token": HALF,
    "workspace": HALF,
    "labels": ["gpu", HALF],
    "since": HALF,
    "options": {"system_prompt": HALF},
}
WORKER: dict[str, Any] = {
    "name": HALF,
    "labels": ["gpu", HALF],
    "secrets": {"API_KEY": HALF},
    "tokens": {HALF: "a-token-that-is-long-enough"},
    "choices": [HALF],
    "command": ["echo", HALF],
    "metrics_host": HALF,
}


def refused_as(option: str, make: Callable[[], object]) -> str:
    with pytest.raises(errors.ConfigurationError) as caught:
        make()
    assert type(caught.value) is errors.ConfigurationError
    assert caught.value.option == option
    assert option in str(caught.value) or option in ("url", "tokens", "since")
    return str(caught.value)


@pytest.mark.parametrize("option", CLIENT)
def test_half_a_surrogate_pair_is_refused_with_the_name_of_the_clients_argument(option: str) -> None:
    refused_as(option, lambda: FleetTransport(URL, **{option: CLIENT[option]}))


@pytest.mark.parametrize("option", WORKER)
def test_half_a_surrogate_pair_is_refused_with_the_name_of_the_workers_argument(option: str) -> None:
    refused_as(option, lambda: FleetWorker(URL, **{option: WORKER[option]}))


@pytest.mark.parametrize("labels", ["gpu", 7])
@pytest.mark.parametrize("make", [FleetTransport, FleetWorker])
def test_labels_that_are_no_list_are_refused(make: Any, labels: Any) -> None:
    assert "list of texts" in refused_as("labels", lambda: make(URL, labels=labels))


@pytest.mark.parametrize("url", URLS)
def test_a_url_of_a_broker_that_cannot_be_sent_is_refused_and_not_repeated(url: str) -> None:
    for make in (FleetTransport, FleetWorker, FleetRegistry):
        assert HALF not in refused_as("url", lambda make=make: make(url))  # type: ignore[misc]
    refused_as("url", lambda: observe(url, session="s"))


@pytest.mark.parametrize("url", [f"unix:///tmp/{HALF}", f"ws://h/{HALF}", f"ws://h/?a={HALF}", f"tcp://h{HALF}:1"])
def test_a_url_of_a_gateway_that_cannot_be_sent_is_refused(url: str) -> None:
    refused_as("url", lambda: NetworkTransport(url))


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("url", ["tcp://h:1", "ws://h/"])
def test_half_a_surrogate_pair_is_refused_as_an_argument_for_a_gateway(url: str, *, resume: bool) -> None:
    refused_as("token", lambda: NetworkTransport(url, token=HALF, resume=resume))
    refused_as("options", lambda: NetworkTransport(url, options=ct.ClaudeOptions(model=HALF), resume=resume))


def test_what_is_no_text_or_too_long_for_the_table_of_workers_is_refused() -> None:
    refused_as("name", lambda: FleetWorker(URL, name=5))  # type: ignore[arg-type]
    refused_as("session", lambda: FleetTransport(URL, session=5))  # type: ignore[arg-type]
    refused_as("labels", lambda: FleetWorker(URL, labels=["x" * 4096]))
    refused_as("workspace", lambda: FleetTransport(URL, workspace="x" * 1025))
    refused_as("secrets", lambda: FleetWorker(URL, secrets={"A": "a\0b"}))


def test_bytes_that_are_no_utf_8_reach_a_process_as_they_are() -> None:
    FleetWorker(URL, secrets={"PATH_OF_IT": "/tmp/\udcff"}, command=["echo", "/tmp/\udcff"])


async def test_a_trace_that_cannot_be_sent_is_left_out_and_a_session_of_that_name_cannot_be_stopped(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)), FleetRegistry(broker.url) as registry:
        transport = FleetTransport(broker.url)
        transport.attach(Client(trace={"traceparent": HALF, HALF: "x"}))
        async with transport:
            await transport.write('{"n":0}')
            assert await read(transport.read_messages(), 1) == numbered([0])
        with pytest.raises(errors.ConfigurationError) as caught:
            await registry.stop(HALF)
        assert caught.value.option == "session"
