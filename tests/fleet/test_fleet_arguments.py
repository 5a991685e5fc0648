"""Arguments of a worker that make no sense are refused before anything is opened; and a worker serves once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.gateway import GatewayLimits
from claude_transport.transport import Client
from claude_transport.transports.mock import MockTransport

URL = "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("capacity", value) for value in (0, -1, 501, True, 1.5, "8")),
        *(("lease", value) for value in (0, 0.9, True, "60", float("nan"))),
        *(("metrics_port", value) for value in (-1, 2**16, True, 80.0, "80")),
        *(("labels", value) for value in ("gpu", 7, [7], ["x" * 100_000])),
        *(("secrets", value) for value in ({"A": "a\0b"}, {"A\0": "b"}, {"A": 7}, 7)),
        *(("command", value) for value in (["a\0b"], [7], 7)),
    ],
)
def test_an_argument_of_a_worker_that_makes_no_sense_is_refused_by_its_name(option: str, value: Any) -> None:
    arguments: dict[str, Any] = {option: value}
    with pytest.raises(errors.ConfigurationError) as caught:
        FleetWorker(URL, **arguments)
    assert caught.value.option == option


def test_a_worker_takes_its_bounds() -> None:
    names: list[dict[str, Any]] = [{"labels": ["x" * 512]}, {"name": "x" * 500, "labels": ["y" * 12]}]
    for arguments in (*names, {"capacity": 1}, {"capacity": 500}, {"lease": 1}, {"metrics_port": 0}, {"metrics_port": 2**16 - 1}):
        values: dict[str, Any] = arguments
        assert FleetWorker(URL, **values).sessions == ()


@pytest.mark.parametrize("arguments", [{"labels": ["x" * 513]}, {"name": "x" * 513}, {"name": "x" * 500, "labels": ["y" * 13]}])
def test_a_worker_with_more_words_than_its_row_may_have_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigurationError, match="the labels and the name may have up to 512 bytes in all"):
        FleetWorker(URL, **arguments)


def test_limits_of_a_worker_that_make_no_sense_are_refused() -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        FleetWorker(URL, limits=GatewayLimits(sessions=-1))
    assert caught.value.option == "sessions"


def test_a_worker_is_told_once_what_to_run() -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        FleetWorker(URL, command=["true"], launch=lambda _options: MockTransport())
    assert caught.value.option == "launch"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("keep", value) for value in (-1, 100_001, True, 1.5)),
        *(("since", value) for value in (-1, True, "x", "1@", 1.5, 3, "3@1.w")),
        *((name, value) for name in ("window", "start_timeout", "close_timeout") for value in (-1, "1", float("nan"), True)),
        *(("window", value) for value in (0, 1.5)),
        *(("token", value) for value in ("", "  ", 7)),
        ("workspace", "x" * 1025),
        ("labels", "gpu"),
    ],
)
def test_an_argument_of_a_transport_that_makes_no_sense_is_refused_by_its_name(option: str, value: Any) -> None:
    arguments: dict[str, Any] = {option: value}
    with pytest.raises(errors.ConfigurationError) as caught:
        FleetTransport(URL, **arguments)
    assert caught.value.option == option


async def test_a_worker_serves_once() -> None:
    worker = FleetWorker(URL, command=["true"])
    with anyio.move_on_after(0):
        await worker.serve()
    with pytest.raises(errors.UsageError, match="serves already, or has served"):
        await worker.serve()


@pytest.mark.parametrize("arguments", [{"options": {"model": "haiku"}}, {"labels": ["gpu"]}, {"workspace": "project"}])
def test_what_a_new_session_wants_cannot_be_asked_of_a_running_one(arguments: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigurationError, match="are for a new session, and session names a running one") as caught:
        FleetTransport(URL, session="S", **arguments)
    assert caught.value.option == "session"
    assert FleetTransport(URL, **arguments).session is None


def test_a_session_that_has_not_begun_is_at_its_beginning() -> None:
    transport = FleetTransport(URL, session="S")
    assert (transport.session, transport.position, transport.bookmark) == ("S", 0, "0@")
    assert FleetTransport(URL, session="S", since="7@1.w").bookmark == "7@1.w"


@pytest.mark.parametrize(("options", "structured"), [({}, False), ({"output_format": {"type": "json_schema", "schema": {}}}, True)])
def test_a_session_with_a_format_of_its_output_says_so(options: dict[str, Any], structured: bool) -> None:
    assert FleetTransport(URL, options=options).attach(Client()).structured_output is structured


@pytest.mark.parametrize("where", ["prefix=a%20b", f"prefix={'x' * 65}", "prefix=", "owner=a.b", f"owner={'x' * 33}"])
def test_a_part_of_the_url_of_a_broker_that_no_key_can_have_is_refused(where: str) -> None:
    for make in (FleetTransport, FleetWorker, FleetRegistry):
        with pytest.raises(errors.ConfigurationError) as caught:
            make(f"{URL}?{where}")
        assert caught.value.option == where.partition("=")[0]
