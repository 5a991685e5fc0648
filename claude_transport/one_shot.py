"""`query()`: one prompt, or a few, and everything Claude says to them. Safe to break out of."""

from __future__ import annotations

import math
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Any, Self

import anyio

from claude_transport.errors import MissingResult, UsageError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.messages import Message, ResultMessage
from claude_transport.query.query import Query
from claude_transport.query.turns import Turn
from claude_transport.transport import TransportLike
from claude_transport.transports.subprocess import SubprocessTransport

__all__ = ["OneShot", "query"]

Prompt = str | Sequence[Mapping[str, Any]]

_EXIT_GRACE = 5.0
"""Seconds of silence after the last result and the end of input, before a peer that does not end is ended."""


def query(
    prompt: Prompt | AsyncIterable[Prompt],
    *,
    options: ClaudeOptions | None = None,
    transport: TransportLike | None = None,
    **query_options: Any,
) -> OneShot:
    """Every message of a conversation that consists of `prompt`: `async for message in query("Hello"): ...`.

    Args:
        prompt: text, content blocks, or an async iterable of them: each is sent when the one before has its result.
        options: how to run the CLI.
        transport: anything else to talk through, instead of a CLI run as `options` say.
        query_options: callbacks and the like, as `Query` takes them.

    The conversation is over when every prompt has its result and nothing is under way that could still ask for something.
    Leaving the loop early, by `break`, an exception or a cancellation, closes everything.

    Raises:
        MissingResult: the conversation ended without a result; its `messages` hold what came.
        ClaudeTransportError: everything `Query.start()` and `Query.messages()` raise.
    """
    if transport is not None and options is not None:
        raise UsageError("give options or a transport: a transport has options of its own")
    return OneShot(prompt, transport if transport is not None else SubprocessTransport(options), query_options)


class OneShot:
    """The iteration behind `query()`. `aclose()` ends it early; so does dropping it."""

    def __init__(self, prompt: Prompt | AsyncIterable[Prompt], transport: TransportLike, query_options: Mapping[str, Any]) -> None:
        self._query = Query(transport, **query_options)
        self._prompts = aiter(prompt) if isinstance(prompt, AsyncIterable) else _Once(prompt)
        self._more_prompts = True
        self._turn: Turn | None = None
        self._messages: AsyncIterator[Message] | None = None
        self._last_result: ResultMessage | None = None
        self._input_ended = False
        # An object, not a generator: dropping a generator makes the event loop warn, and finish it where it likes.
        weakref.finalize(self, self._query.abandon).atexit = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._next()
        except BaseException:
            await self._query.aclose()
            raise

    async def aclose(self) -> None:
        """End the conversation now."""
        await self._query.aclose()

    async def _next(self) -> Message:
        if self._messages is None:
            await self._query.start()
            self._messages = self._query.messages()
        await self._go_on()
        message = None
        with anyio.move_on_after(_EXIT_GRACE if self._input_ended else math.inf):
            message = await anext(self._messages, None)
        if message is None:
            if self._last_result is None:
                raise MissingResult("the conversation ended without a result")
            raise StopAsyncIteration
        if isinstance(message, ResultMessage):
            self._last_result = message
        return message

    async def _go_on(self) -> None:
        """Send the next prompt when the last one is done; end the input when there is none, and nobody can ask any more."""
        if self._input_ended or self._query.has_ended or (self._turn is not None and not self._turn.is_settled):
            return
        if self._more_prompts:
            prompt = await anext(self._prompts, None)
            if prompt is not None:
                self._turn = await self._query.send(prompt)
                return
            self._more_prompts = False
        if self._query.is_quiet:
            await self._query.end_input()
            self._input_ended = True


class _Once:
    """An async iterator of one prompt."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt: Prompt | None = prompt

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Prompt:
        prompt, self._prompt = self._prompt, None
        if prompt is None:
            raise StopAsyncIteration
        return prompt
