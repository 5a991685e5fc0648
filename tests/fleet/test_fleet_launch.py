"""Programs that a worker cannot start: the client learns the cause at once, and the worker tries no second time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from broker_server import BrokerServer
from polling import a_moment
from programs import ECHO, numbered, serving

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.launch.options import ClaudeOptions
from claude_transport.transport import Transport
from claude_transport.transports.subprocess import SubprocessTransport


class Unknown(Exception):
    """An error that no library knows."""


class NotThere(SubprocessTransport):
    """Fails to connect with an error that is not ours, and fails to close, too."""

    async def connect(self) -> None:
        await anyio.lowlevel.checkpoint()
        raise Unknown("the password is hunter-two")

    async def close(self) -> None:
        await super().close()
        raise Unknown("it cannot be closed either")


def raises(error: Exception) -> Callable[[ClaudeOptions], Transport]:
    def launch(options: ClaudeOptions) -> Transport:
        raise error

    return launch


def returns(value: Any) -> Callable[[ClaudeOptions], Transport]:
    return lambda options: value


FAILURES: dict[str, tuple[Callable[[ClaudeOptions], Transport], str]] = {
    "foreign": (raises(Unknown("the password is hunter-two")), "Unknown"),
    "group": (raises(ExceptionGroup("several", [Unknown("the password is hunter-two")])), "Unknown"),
    "ours": (raises(errors.CLINotFoundError("claude is not there: hunter-two")), "CLINotFoundError, exec.cli.binary_not_found"),
    "a time-out of its own": (raises(TimeoutError("hunter-two")), "TimeoutError"),
    "a mistake of the program": (raises(errors.UsageError("hunter-two")), "UsageError, usage.error"),
    "no transport": (returns(None), "ConfigurationError, config.invalid"),
    "does not connect": (lambda options: NotThere(options, command=ECHO), "Unknown"),
    "no such program": (
        lambda options: SubprocessTransport(options, command=["/no/such/program/hunter-two"]),
        "CLINotFoundError, exec.cli.binary_not_found",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_program_that_cannot_be_started_is_told_to_the_client_at_once_and_not_tried_again(
    broker: BrokerServer, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    launch, cause = FAILURES[failure]
    tried: list[ClaudeOptions] = []

    def counted(options: ClaudeOptions) -> Transport:
        tried.append(options)
        return launch(options)

    worker = FleetWorker(broker.url, launch=counted, name="broken")
    async with serving(worker), FleetRegistry(broker.url) as registry:
        for times in (1, 2):  # the place of the first session is free again
            with pytest.raises(errors.CLIConnectionError) as caught, anyio.fail_after(20):
                await FleetTransport(broker.url, start_timeout=600).connect()
            text = f"the process could not be started on the worker broken ({cause}); its log says more"
            assert (type(caught.value), caught.value.code, str(caught.value)) == (errors.CLIConnectionError, "fleet.start", text)
            assert not caught.value.retryable
            assert len(tried) == times
        with anyio.fail_after(10):
            while worker.sessions or await registry.queue_length():
                await a_moment()
    assert "hunter-two" in caplog.text or failure == "no transport"


class Breaks(SubprocessTransport):
    """Connects, and then raises an error that is not ours at one of its methods."""

    def __init__(self, options: ClaudeOptions, at: str) -> None:
        super().__init__(options, command=ECHO)
        self.at = at

    def fail(self, at: str) -> None:
        if at == self.at:
            raise Unknown("the password is hunter-two\nand this is no line of its own")

    def read_lines(self) -> Any:
        self.fail("read")
        return super().read_lines()

    async def write(self, data: Any) -> None:
        self.fail("write")
        await super().write(data)

    async def end_input(self) -> None:
        self.fail("end of the input")
        await super().end_input()

    async def close(self) -> None:
        await super().close()
        self.fail("close")


@pytest.mark.parametrize("at", ["read", "write", "end of the input"])
async def test_a_program_that_breaks_after_its_start_ends_its_session_with_the_cause_and_is_not_started_again(
    broker: BrokerServer, at: str, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[ClaudeOptions] = []

    def launch(options: ClaudeOptions) -> Transport:
        tried.append(options)
        return Breaks(options, at)

    worker = FleetWorker(broker.url, launch=launch, lease=2)
    async with serving(worker), FleetRegistry(broker.url) as registry:
        transport = FleetTransport(broker.url, close_timeout=0.2)
        with anyio.fail_after(20), pytest.raises(errors.ConnectionLost) as caught:
            await transport.connect()
            with contextlib.suppress(errors.TransportClosed):  # the read says why
                await transport.write('{"n":0}')
                await transport.end_input()
            async for message in transport.read_messages():
                assert message == {"n": 0}
        assert (caught.value.code, caught.value.retryable) == ("fleet.failed", False)
        assert "using the process failed on the worker (Unknown); its log says more" in str(caught.value)
        await transport.close()
        with anyio.fail_after(10):
            while worker.sessions or await registry.queue_length() or await registry.sessions():
                await a_moment()
        assert (len(tried), worker.metrics.ended["failed"]) == (1, 1)
    assert "hunter-two" in caplog.text


async def test_a_program_that_cannot_be_closed_ends_its_session_well_all_the_same(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="claude_transport")
    tried: list[ClaudeOptions] = []

    def launch(options: ClaudeOptions) -> Transport:
        tried.append(options)
        return Breaks(options, "close")

    worker = FleetWorker(broker.url, launch=launch, lease=2)
    async with serving(worker), FleetTransport(broker.url) as transport:
        await transport.write('{"n":0}')
        await transport.end_input()
        with anyio.fail_after(20):
            assert [message async for message in transport.read_messages()] == numbered([0])
        while worker.sessions:
            await a_moment()
    assert len(tried) == 1
    said = {record.getMessage() for record in caplog.records if "could not be closed" in record.getMessage()}
    assert said == {r"the transport of a session could not be closed: the password is hunter-two\nand this is no line of its own"}
