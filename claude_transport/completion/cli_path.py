"""`CLIPath`: one attempt at a call through a `claude` of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import anyio

from claude_transport.completion.classification import classify_cli_exception
from claude_transport.completion.preflight import preflight
from claude_transport.completion.request import CompletionRequest
from claude_transport.completion.resolution import TransportKind
from claude_transport.errors import ClaudeTransportError
from claude_transport.launch.credentials import Payer
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import InitMessage
from claude_transport.query.query import Query
from claude_transport.query.storage import AllMessages
from claude_transport.query.turns import Turn
from claude_transport.transports.subprocess import SubprocessTransport

__all__ = ["NO_EXIT_CODE", "CLIPath", "find_payer"]

NO_EXIT_CODE: Final = -1
"""The exit code of a run that has none: the CLI was never started, or was ended by a signal or by the timeout."""

_SETTLE: Final = 2.0
"""Seconds that a CLI gets to say that it is idle, once there is a result. It says so within milliseconds; an older one never does."""


class CLIPath:
    """One attempt: `run()` it once. The process is started for it, and gone when it is over, however that comes about."""

    kind: TransportKind = "cli"

    def __init__(self, request: CompletionRequest, *, payer: Payer = "unknown") -> None:
        self._request = request
        self.dispatched: bool = False
        """Whether the prompt may have reached the CLI."""
        self.payer: Payer = payer
        self.api_key_source: str | None = None
        self.exit_code: int | None = NO_EXIT_CODE

    async def run(self, hear: Callable[[Message], object]) -> None:
        """Ask, and tell `hear` every message, until there is a result and nothing is left at work that will add to it.

        Returns also when the CLI ends well without a result. Raises `ClaudeTransportError` with a fixed sentence (see `classification`);
        a result that reports a failure is not raised.
        """
        transport = SubprocessTransport(self._request.cli_options())
        try:
            async with Query(transport) as query:
                everything = query.messages()
                self.dispatched = True
                turn = await query.send(self._request.prompt)
                while (message := await _next(everything, query=query, turn=turn)) is not None:
                    self._note(message)
                    hear(message)
        except ClaudeTransportError as exc:
            classified = classify_cli_exception(exc)
            if classified is exc:
                raise
            raise classified from exc
        finally:
            if transport.info.exit_code is not None:
                self.exit_code = transport.info.exit_code

    def _note(self, message: Message) -> None:
        if isinstance(message, InitMessage) and message.api_key_source and self.api_key_source is None:
            self.api_key_source = message.api_key_source
            if message.api_key_source != "none" and self.payer != "cloud account":
                self.payer = "api account"  # the CLI knows better than we what it has found


async def _next(everything: AllMessages, *, query: Query, turn: Turn) -> Message | None:
    """The next message of the run; None when it is over: the prompt has its end, and no agent is at work whose words are still to come."""
    message = everything.take()
    if message is not None:
        return message
    if turn.is_open():
        return await anext(everything, None)
    if query.is_quiet:
        return None  # never so after a bad end, which the next line raises
    with anyio.move_on_after(math.inf if query.background_tasks else _SETTLE):
        return await anext(everything, None)
    return None


def find_payer(options: ClaudeOptions) -> Payer:
    """Who would pay for a call to the CLI, as far as can be told before anything runs; looks at the disk."""
    found = preflight("cli", options=options).cli_credential
    return "unknown" if found is None else found.payer
