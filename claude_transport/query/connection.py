"""`Connection`: the transport of one conversation: connected once, read by one task, closed once, whatever it does itself."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel

from claude_transport.errors import ClaudeTransportError, CLIConnectionError, ConnectTimeout, TransportClosed
from claude_transport.protocol.messages import DecodeFailure, Message, OversizedMessage
from claude_transport.query.cancellation import guarded, refuse_stray
from claude_transport.transport import PouredLines, SessionTerms, Transport, TransportInfo, TransportLike, read_lines_of

__all__ = ["Batches", "Connection"]

logger: logging.Logger = logging.getLogger(__name__)

_FAIRNESS = 128
"""Messages read in a row before others get their turn, the one first for whom they are: while they are still in the processor's cache."""

_BATCH_IS_WORTH = 8
"""Messages that a batch counts for, however small it is: a transport that never waits may say one at a time."""

_UNREADABLE: frozenset[type[Message]] = frozenset({DecodeFailure, OversizedMessage})

_READER_CLOSE_TIMEOUT = 1.0
"""Seconds for the reading side of a transport to be closed."""


class Connection:
    """What a conversation needs of its transport, whoever wrote it.

    Args:
        transport: connected if it is not yet, and closed in the end.
        close_timeout: seconds for the transport's own `close()`, before it is given up.
    """

    def __init__(self, transport: TransportLike, *, close_timeout: float) -> None:
        self._transport = transport
        self._close_timeout = close_timeout
        self._connecting: anyio.CancelScope | None = None
        self._given_up = False
        self._closed = False
        self.terms: SessionTerms = SessionTerms()
        """What the transport's options ask of the conversation; known once it was announced."""

    @property
    def info(self) -> TransportInfo:
        """What is known of the connection."""
        info = getattr(self._transport, "info", None)
        return info if isinstance(info, TransportInfo) else TransportInfo(kind=type(self._transport).__name__)

    @property
    def is_strict(self) -> bool:
        """True when a bad line is to end the conversation."""
        return bool(getattr(self._transport, "strict", False))

    def announce(self, *, answers: frozenset[str]) -> None:
        """Tell the transport what will be answered, and learn its terms."""
        if isinstance(self._transport, Transport):
            self.terms = self._transport.announce(answers=answers)

    async def connect(self, *, timeout: float) -> None:
        """Connect, if it is not connected yet; every failure that is not the transport's own word is a `CLIConnectionError`."""
        if self._transport.is_ready():
            return
        with anyio.CancelScope(deadline=anyio.current_time() + timeout) as self._connecting:
            if self._given_up:
                self._connecting.cancel()
            try:
                await guarded(self._transport.connect())
            except ClaudeTransportError:
                raise
            except Exception as exc:
                raise CLIConnectionError(f"the transport could not connect: {exc!r}") from exc
        if self._connecting.cancelled_caught:
            if self._given_up:
                raise TransportClosed("the query was closed while it was connecting")
            raise ConnectTimeout(f"not connected in {timeout:g} s", waited=timeout)

    def give_up(self) -> None:
        """Do not connect any more; what is connected stays so."""
        self._given_up = True
        if self._connecting is not None:
            self._connecting.cancel()

    def batches(self) -> Batches:
        """The lines that come, in batches: iterate inside `async with`."""
        return Batches(read_lines_of(self._transport))

    def note_prompt(self, uuid: str) -> None:
        """Tell the transport that whoever runs now sends the prompt `uuid`."""
        if isinstance(self._transport, Transport):
            self._transport.note_prompt(uuid)

    async def find_cli_version(self, *, said: str | None) -> str | None:
        """The version of the CLI, of which it `said` this in its answer to `initialize`; None when nothing tells."""
        return await self._transport.find_cli_version(said=said) if isinstance(self._transport, Transport) else said

    def count_failures(self, messages: Sequence[Message], kinds: AbstractSet[object]) -> None:
        """Tell the transport of the lines that held no message, for its `info`. `kinds`: the types of the messages."""
        if not _UNREADABLE.isdisjoint(kinds) and isinstance(self._transport, Transport):
            for message in messages:
                if isinstance(message, DecodeFailure | OversizedMessage):
                    self._transport.count_failure(message)

    async def close(self) -> None:
        """Close the transport, once, in bounded time; never raises."""
        if self._closed:
            return
        self._closed = True
        try:
            with anyio.move_on_after(self._close_timeout, shield=True) as limit:
                await self._transport.close()
        except (Exception, anyio.get_cancelled_exc_class()) as exc:
            # a cancellation that comes through the shield is the end of the event loop, and nobody's fault
            logger.log(logging.ERROR if isinstance(exc, Exception) else logging.DEBUG, "closing the transport failed", exc_info=True)
        else:
            if limit.cancelled_caught:
                logger.warning("the transport did not close in %g s and was given up", self._close_timeout)


class Batches:
    """An iteration over batches of lines that ends the transport's own iterator, if that can be ended.

    A generator that is only dropped is finished by nobody knows whom.
    """

    def __init__(self, lines: AsyncIterator[Sequence[bytes]]) -> None:
        self._lines = lines
        self._next: Callable[[], Awaitable[Sequence[bytes]]] = lines.__anext__
        self._read_in_a_row = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        if self._read_in_a_row >= _FAIRNESS:
            self._read_in_a_row = 0
            await anyio.lowlevel.checkpoint()
        try:
            lines = await self._next()
        except anyio.get_cancelled_exc_class() as exc:
            refuse_stray(exc)
            raise
        self._read_in_a_row += _BATCH_IS_WORTH + len(lines)
        return lines

    async def pour(self, hand_on: Callable[[Sequence[bytes]], bool]) -> bool:
        """Hand each batch to `hand_on` until that returns True; False when the transport has ended well.

        Where the transport can, it is called where the bytes are noticed, and not in the caller's task.
        """
        if not isinstance(self._lines, PouredLines):
            async for lines in self:
                if hand_on(lines):
                    return True
            return False
        try:
            return await self._lines.pour(hand_on)
        except anyio.get_cancelled_exc_class() as exc:
            refuse_stray(exc)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        aclose = getattr(self._lines, "aclose", None)
        if aclose is not None:
            try:
                with anyio.move_on_after(_READER_CLOSE_TIMEOUT, shield=True):
                    await aclose()
            except Exception:
                # nothing is read from it any more: that it does not end well changes nothing
                logger.debug("closing the reading side of the transport failed", exc_info=True)
