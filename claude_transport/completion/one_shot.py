"""`query()`: one prompt, or a few, and all messages that answer them. Leaving the loop early closes everything.

It chooses the `SubprocessTransport` when none is given, and so stands above `client`, whose `Query` it runs.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Any, Self, Unpack

import anyio

from claude_transport.client.query import Query, QueryOptions
from claude_transport.client.storage import AllMessages, RecentMessages
from claude_transport.errors import ClaudeTransportError, ConnectionLost, MissingResult, TransportClosed, UsageError
from claude_transport.exchange.arguments import check_seconds
from claude_transport.exchange.failures import tells_of_the_end
from claude_transport.launch.options import ClaudeOptions
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop, Wakeup
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import ResultMessage, StreamEvent
from claude_transport.text.printable import printable
from claude_transport.transport import TransportLike
from claude_transport.transports.subprocess import SubprocessTransport

logger: logging.Logger = logger_for(__name__)

Prompt = str | Sequence[Mapping[str, Any]]

_CLOSE_GRACE = 1.0
"""Seconds that an async iterable of prompts gets to end once it is cancelled, and again to close."""

_REMEMBERED = 64
"""Whole messages kept for `MissingResult.messages`."""


def query(
    prompt: Prompt | AsyncIterable[Prompt],
    *,
    options: ClaudeOptions | None = None,
    transport: TransportLike | None = None,
    exit_timeout: float = 5.0,
    background_timeout: float = 600.0,
    **query_options: Unpack[QueryOptions],
) -> OneShot:
    """Run one conversation and iterate over its messages: `async for message in query("Hello"): ...`.

    Args:
        prompt: text, content blocks, or an async iterable of them: each is sent when the one before has its result.
        options: how to run the CLI.
        transport: a transport to talk through, instead of a CLI that runs as `options` say.
        exit_timeout: seconds of silence that a peer with nothing left to do has to end by itself; then it is closed. After the last result,
            the iteration takes at most these seconds and the `close_timeout` of the transport.
        background_timeout: seconds of silence that background agents get once every prompt has its result. Then the input ends and they are
            cut off, with a warning that names them. `math.inf` waits for as long as they take.
        query_options: callbacks and other arguments of `Query`.

    The CLI starts with the first step of the iteration. The input ends when every prompt has its result and no turn, callback or background
    agent is at work. It does not wait for background shells, which may never end. Leaving the loop early, by `break`, an exception or a
    cancellation, closes everything. After a failure and a cancellation it does so in haste: `close_timeout` says in how many seconds.

    Raises:
        UsageError: both `options` and `transport` are given.
        ConfigurationError: the CLI would refuse an option, as for `SubprocessTransport`.
        MissingResult: the conversation ended without the result of a prompt; its `messages` hold the last messages.
        ClaudeTransportError: everything that `Query.start()` and `Query.messages()` raise.
    """
    if transport is not None and options is not None:
        raise UsageError("give options or a transport: a transport has options of its own")
    through = transport if transport is not None else SubprocessTransport(options)
    return OneShot(prompt, through, query_options, exit_timeout=exit_timeout, background_timeout=background_timeout)


class OneShot:
    """The conversation that `query()` returns: iterate over it with `async for`, once, to get its messages.

    The CLI starts with the first step. `aclose()` ends the conversation early. When the last reference to the object is dropped, as after
    `break`, closing begins without a wait. `query()` explains the arguments and the errors; do not create it yourself.
    """

    def __init__(
        self,
        prompt: Prompt | AsyncIterable[Prompt],
        transport: TransportLike,
        query_options: QueryOptions,
        *,
        exit_timeout: float,
        background_timeout: float,
    ) -> None:
        check_seconds("exit_timeout", exit_timeout)
        check_seconds("background_timeout", background_timeout)
        self._query = Query(transport, **query_options)
        self._prompts = _FetchedPrompts(aiter(prompt)) if isinstance(prompt, AsyncIterable) else _OnePrompt(prompt)
        self._more_prompts = True
        # Only the uuid of the last prompt: while its Turn is held, the messages are kept a second time for that handle.
        self._turn: str | None = None
        self._unsent: ClaudeTransportError | None = None  # why the last prompt could not be sent
        self._owed_result = False  # a prompt was sent whose result has not been handed on
        self._messages: AllMessages | None = None
        self._recent = RecentMessages(at_most=_REMEMBERED)
        self._input_ended = False
        self._closed = False
        self._exit_timeout = exit_timeout
        self._background_timeout = background_timeout
        # An object, not a generator: dropping a generator makes the event loop warn, and finish it where it likes.
        weakref.finalize(self, self._query.abandon, timeout=exit_timeout).atexit = False
        weakref.finalize(self, self._prompts.abandon).atexit = False

    def __repr__(self) -> str:
        """Return its state; nothing of the messages."""
        state = "closed" if self._closed else "not started" if self._messages is None else "ending" if self._input_ended else "open"
        return f"<OneShot over {self._query.info.kind}, {state}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            message = await self._next()
        except BaseException:
            await self.aclose(hurry=True)
            raise
        if message is None:
            missing = self._owed_result and not self._closed
            await self.aclose()
            if missing:
                raise MissingResult("the conversation ended without a result", messages=self._recent.messages()) from self._unsent
            raise StopAsyncIteration
        if isinstance(message, ResultMessage) and message.answers_a_prompt:
            self._owed_result = False
        if not isinstance(message, StreamEvent):
            self._recent.add((message,))
        return message

    async def aclose(self, *, hurry: bool = False) -> None:
        """End the conversation now: a running turn is interrupted, and the CLI is closed. Returns when everything is closed.

        The CLI gets `exit_timeout` seconds to end by itself, or none if its input has ended before. Then the transport is closed. An async
        iterable of prompts is closed as well. A second call does no harm. With `hurry`, and when it is cancelled, it takes `close_timeout`
        seconds in all, or 1 by default.
        """
        self._closed = True
        # a peer whose input has ended has had its time already
        try:
            await self._query.aclose(timeout=0.0 if self._input_ended else self._exit_timeout, hurry=hurry)
        finally:
            await self._prompts.aclose()

    async def _next(self) -> Message | None:
        """Return the next message; None when there will be none."""
        if self._messages is None:
            await self._query.start()
            self._messages = self._query.messages()
        while True:
            message = self._messages.take()
            if message is not None:
                return message
            if self._messages.has_ended:
                return await anext(self._messages, None)  # raises the cause of a bad end
            if await self._go_on():
                continue
            with anyio.move_on_after(self._patience()) as silence:
                self._prompts.wait = silence  # the next prompt ends the wait, too
                await self._query.changed()
            if silence.cancelled_caught and not self._prompts.is_asked:
                if self._input_ended:
                    return None
                if cut := self._query.background_tasks:
                    logger.warning(
                        "background agents are cut off after %g s of silence: %s",
                        self._background_timeout,
                        printable(", ".join(cut.values())),
                    )
                if not await self._end_input():
                    return None

    async def _go_on(self) -> bool:
        """Send the next prompt when the last one is done; without one, end the input when nothing is under way. Return True if so."""
        if self._input_ended or self._turn in self._query.open_turns:
            return False
        if self._more_prompts and not self._closed:
            if not self._prompts.ask():
                return False
            prompt = self._prompts.take()
            if prompt is None:
                self._more_prompts = False
            else:
                await self._send(prompt)
            return True
        if self._query.is_quiet:
            await self._end_input()
            return True
        return False

    async def _send(self, prompt: Prompt) -> None:
        self._owed_result = True
        try:
            self._turn = (await self._query.send(prompt)).uuid
        except (TransportClosed, ConnectionLost) as exc:
            if not tells_of_the_end(exc):
                raise
            self._unsent = exc  # reading tells the reason soon
            self._input_ended = True

    async def _end_input(self) -> bool:
        """End the input. Returns False when hooks guard what still runs, and the CLI would go on without asking them: closing ends it."""
        self._input_ended = True
        try:
            await self._query.end_input()
        except UsageError:
            return False
        except ClaudeTransportError:
            pass  # reading raises it, unless the peer is just gone
        return True

    def _patience(self) -> float:
        """Return the seconds to wait in silence: without limit while a turn or a callback is at work."""
        if self._prompts.is_asked or self._query.is_running or self._query.pending_questions:
            return math.inf
        return self._background_timeout if self._query.background_tasks and not self._input_ended else self._exit_timeout


class _OnePrompt:
    """One prompt, which is there at once. It has the methods of `_FetchedPrompts`."""

    is_asked = False

    def __init__(self, prompt: Prompt) -> None:
        self._prompt: Prompt | None = prompt
        self.wait: anyio.CancelScope | None = None

    def ask(self) -> bool:
        return True

    def take(self) -> Prompt | None:
        prompt, self._prompt = self._prompt, None
        return prompt

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    def abandon(self) -> None:
        """Do nothing: no task runs."""


class _FetchedPrompts:
    """The prompts of an async iterable, each fetched when it is asked for. Its reader can listen to the conversation meanwhile.

    One task fetches all of them and closes the iterable, so a generator may hold a task group or a timeout across its `yield`.
    """

    def __init__(self, source: AsyncIterator[Prompt]) -> None:
        self._source = source
        self._asked = Wakeup()
        self._task: LoopTask | None = None
        self._loop: HostLoop | None = None
        self._has_come = False
        self._prompt: Prompt | None = None
        self._error: BaseException | None = None
        self._is_closed = False
        self.is_asked = False
        """True from `ask()` until `take()`."""
        self.wait: anyio.CancelScope | None = None
        """The wait of the reader, which the next prompt ends."""

    def ask(self) -> bool:
        """Ask for the next prompt, unless that was done. Return True when `take()` has an answer."""
        if not self.is_asked:
            self.is_asked = True
            if self._task is None:
                self._loop = HostLoop()
                self._task = LoopTask.spawn(self._run, name="claude prompts", at_end=self._tell)
            self._asked.fire()
        return self._has_come

    def take(self) -> Prompt | None:
        """Return the prompt that was asked for, or None after the last one. Raises what the iterable raised."""
        self.is_asked = self._has_come = False
        prompt, self._prompt = self._prompt, None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return prompt

    async def aclose(self) -> None:
        """Cancel the task and close the iterable. One that resists is given up after a time. Raises what closing raised."""
        if self._task is None:
            await self._close()
        else:
            self._task.cancel()
            with anyio.move_on_after(2 * _CLOSE_GRACE, shield=True):
                await self._task.wait()
            if not self._task.finished:
                logger.warning("the iterable of prompts did not end in %g s and was given up", 2 * _CLOSE_GRACE)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def abandon(self) -> None:
        """Cancel the task without waiting for it. Safe from any thread."""
        if self._task is not None and self._loop is not None and not self._task.finished:
            self._loop.call_soon(self._task.cancel)

    async def _run(self) -> None:
        try:
            while True:
                while not self.is_asked or self._has_come:
                    await self._asked.wait()
                try:
                    self._prompt = await anext(self._source, None)
                except (Exception, KeyboardInterrupt, SystemExit) as exc:  # noqa: BLE001 - the reader gets it, whatever it is
                    self._error = exc
                self._tell()
        finally:
            await self._close()

    async def _close(self) -> None:
        """Close the iterable, if it can be closed. Does nothing the second time."""
        aclose = getattr(self._source, "aclose", None)
        if aclose is None or self._is_closed:
            return
        self._is_closed = True
        try:
            with anyio.move_on_after(_CLOSE_GRACE, shield=True):
                await aclose()
        except Exception as exc:  # noqa: BLE001 - `aclose()` raises it
            self._error = exc

    def _tell(self) -> None:
        self._has_come = True
        if self.wait is not None:
            self.wait.cancel()
