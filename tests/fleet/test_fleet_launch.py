"""Programs that a worker cannot start: the client learns the cause at once, and the worker tries no second time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from broker_server import BrokerServer
from programs import ECHO, serving

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
                await anyio.lowlevel.checkpoint()
    assert "hunter-two" in caplog.text or failure == "no transport"
