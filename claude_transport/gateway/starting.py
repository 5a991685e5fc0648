"""`Starter`: makes the process of a session, from the gateway's options and what its client chose."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import anyio

from claude_transport.errors import ClaudeTransportError, ConfigurationError
from claude_transport.gateway.choices import Choices, check_answers, thinking_ceiling
from claude_transport.gateway.door import Allowance, GatewayLimits
from claude_transport.gateway.health import GatewayMetrics
from claude_transport.gateway.reception import Guest
from claude_transport.gateway.session import ServerFields, Surroundings, close_quietly
from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.launch.options import ClaudeOptions
from claude_transport.printable import printable
from claude_transport.protocol.link import Hello
from claude_transport.transport import Client, Transport
from claude_transport.transports.subprocess import SubprocessTransport

logger: logging.Logger = logging.getLogger(__name__)

Launch: TypeAlias = Callable[[ClaudeOptions], Transport]
"""What makes the transport of a session: any, not connected yet."""

_START_TIMEOUT: Final = 60.0
"""Seconds until a process is there. Starting one takes milliseconds; a file system that does not answer must not hold a place for ever."""

_ANSWERS: Final = "answers"
"""Stands among the options of a hello, and is none: what the client will answer, as `Client.answers` names it."""

_TRACE_FIELDS: Final = ("traceparent", "tracestate")
_TRACE_VALUE: Final = re.compile(r"[\x20-\x7e]{1,512}")
"""What W3C Trace Context lets a value be, and how much of it everybody has to hand on."""


class Starter:
    """Starts processes; who may have one is decided before."""

    def __init__(
        self,
        options: ClaudeOptions,
        *,
        command: Sequence[str] | None,
        launch: Launch | None,
        choices: Choices,
        limits: GatewayLimits,
        metrics: GatewayMetrics,
    ) -> None:
        if command is not None and launch is not None:
            raise ConfigurationError("command and launch both say what to run; give one", option="launch")
        self._options = options
        self._launch = launch or partial(SubprocessTransport, command=command)
        self._choices = choices
        self._limits = limits
        self._metrics = metrics
        if launch is None:
            SubprocessTransport(options, command=command)  # what is wrong for every client is said now, to whoever runs the gateway

    async def start(self, guest: Guest, *, allowance: Allowance) -> tuple[Transport, Surroundings]:
        """A connected transport, and what its session is given.

        Raises:
            TurnedAway: the client chose what it cannot have, or there is no process; the details are in the log, not in the message.
        """
        chosen = dict(guest.chosen)
        answers = check_answers(chosen.pop(_ANSWERS, ()))
        if guest.authentication is not None:
            answers |= guest.authentication.answers
        options = self._choices.apply(self._options, chosen)
        try:
            transport = self._launch(options)
            trace = _trace_of(guest.hello) if guest.hello is not None else {}
            terms = transport.attach(Client(answers=answers, trace=trace))
            try:
                with anyio.fail_after(_START_TIMEOUT):
                    await transport.connect()
            except BaseException:
                await close_quietly(transport)
                raise
        except ConfigurationError as exc:
            if exc.option in chosen:
                raise TurnedAway("options", str(exc)) from exc
            raise self._failed(exc, guest.owner) from exc
        except (ClaudeTransportError, TimeoutError) as exc:
            raise self._failed(exc, guest.owner) from exc
        fields = ServerFields(terms.initialize, max_thinking_tokens=thinking_ceiling(self._options))
        surroundings = Surroundings(owner=guest.owner, limits=self._limits, allowance=allowance, metrics=self._metrics, fields=fields)
        return transport, surroundings

    def _failed(self, exc: Exception, owner: str) -> TurnedAway:
        """What the client is told; paths and names of this machine are for the log."""
        extra = {"gateway_event": "start_failed", "gateway_owner": printable(owner)}
        logger.error("claude could not be started for %s: %s", printable(owner), printable(exc), extra=extra)
        code = getattr(exc, "code", "timeout")
        return TurnedAway("start", f"claude could not be started ({code})", retryable=bool(getattr(exc, "retryable", True)))


def _trace_of(hello: Hello) -> dict[str, str]:
    """The trace that the client is part of. Nothing else: it becomes variables of the process, where any other name would be an order."""
    return {name: value for name in _TRACE_FIELDS if _TRACE_VALUE.fullmatch(value := hello.trace.get(name, ""))}
