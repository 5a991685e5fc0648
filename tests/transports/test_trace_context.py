"""The trace a session is part of reaches the process that is started for it, through any number of wrappers."""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import pytest

from claude_transport.launch.options import ClaudeOptions
from claude_transport.transport import Client
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.base import LineWrapper, TransportWrapper
from claude_transport.wrappers.retrying import RetryingTransport

SHOW = """
import json, os
print(json.dumps({name: os.environ.get(name) for name in ("TRACEPARENT", "TRACESTATE")}), flush=True)
"""
CHILD = [sys.executable, "-c", SHOW]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"


async def seen_by(transport: Any) -> dict[str, Any]:
    with anyio.fail_after(30):
        async with transport:
            return await anext(transport.read_messages())


async def test_the_child_finds_the_trace_in_its_environment() -> None:
    transport = TransportWrapper(LineWrapper(SubprocessTransport(command=CHILD)))
    transport.attach(Client(trace={"traceparent": PARENT, "tracestate": "vendor=1"}))
    assert await seen_by(transport) == {"TRACEPARENT": PARENT, "TRACESTATE": "vendor=1"}


async def test_the_trace_takes_the_place_of_an_inherited_one_with_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", OTHER)
    monkeypatch.setenv("TRACESTATE", "of=another")
    transport = SubprocessTransport(command=CHILD)
    transport.attach(Client(trace={"traceparent": PARENT}))
    assert await seen_by(transport) == {"TRACEPARENT": PARENT, "TRACESTATE": None}
    assert await seen_by(SubprocessTransport(command=CHILD)) == {"TRACEPARENT": OTHER, "TRACESTATE": "of=another"}


async def test_what_the_options_say_wins() -> None:
    transport = SubprocessTransport(ClaudeOptions(env={"TRACEPARENT": OTHER, "TRACESTATE": "of=options"}), command=CHILD)
    transport.attach(Client(trace={"traceparent": PARENT}))
    assert await seen_by(transport) == {"TRACEPARENT": OTHER, "TRACESTATE": "of=options"}


async def test_the_process_of_a_reconnect_is_part_of_the_same_trace() -> None:
    def make() -> SubprocessTransport:
        return SubprocessTransport(command=CHILD)

    first = RetryingTransport(make(), make_transport=make)
    first.attach(Client(trace={"traceparent": PARENT}))
    assert (await seen_by(first))["TRACEPARENT"] == PARENT
    with anyio.fail_after(30):
        second = await first.reconnect()
    assert (await seen_by(second))["TRACEPARENT"] == PARENT


def test_a_transport_with_nowhere_to_put_it_does_without() -> None:
    mock = MockTransport()
    mock.attach(Client(trace={"traceparent": PARENT}))
    assert json.dumps(mock.written) == "[]"
