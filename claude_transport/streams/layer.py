"""`Layer`: a byte stream inside another one, that sends in pieces of its own and ends with a farewell of its own.

What TLS and compression have in common. A piece that is out by half (a record, a block) would make all that follows unreadable, so nothing
does follow it; and the farewell is what tells an end from a cut, so it is said whenever that takes no waiting.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import ConnectionLost

_FAREWELL = 0.5
"""Seconds that a farewell may take when closing: a peer that does not read will not read it either."""


class Opener(Protocol):
    """What gives the stream inside."""

    async def connect(self) -> ByteStream:
        """A new, open stream."""
        ...


class Layer(ByteStream):
    """One end of what travels inside `stream`. A send that is cancelled breaks it for sending; several tasks may send, one after the other.

    A layer says what a piece is (`_send_piece`), what its farewell is (`_say_farewell`), and how to receive.
    """

    _PIECE: ClassVar[str]
    """What a piece is called, for people."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._sending = anyio.Lock(fast_acquire=True)
        self._torn = False  # a piece may be out by half
        self._eof_sent = False
        self._closed = False

    @abstractmethod
    async def _send_piece(self, rest: memoryview) -> int:
        """Pass on the beginning of `rest`; returns how many bytes of it."""

    @abstractmethod
    async def _say_farewell(self) -> None:
        """Pass on what tells the peer that this was all."""

    async def _end_sending(self) -> None:
        """Say the farewell, and whatever the end of input needs besides."""
        await self._say_farewell()

    async def send(self, item: bytes) -> None:
        """Hand over all of `item`, so that the peer can read all of it.

        Raises:
            anyio.BrokenResourceError: the peer is gone, or an earlier send was cancelled.
            anyio.ClosedResourceError: this end is closed, or `send_eof()` was called.
        """
        async with self._sending:
            rest = memoryview(item)
            while rest:
                self._refuse_if_unwritable()
                rest = rest[await self._send_piece(rest) :]

    async def send_eof(self) -> None:
        """Say the farewell; receiving goes on until the peer says its own."""
        async with self._sending:
            if self._closed or self._eof_sent:
                return
            self._refuse_if_unwritable()
            self._eof_sent = True
            await self._end_sending()

    async def _pass_on(self, data: bytes) -> None:
        """Send a piece to the stream inside; whoever calls this holds the lock, or is alone."""
        try:
            await self._stream.send(data)
        except BaseException:
            self._torn = True
            raise

    def _refuse_if_unwritable(self) -> None:
        if self._closed or self._eof_sent:
            raise anyio.ClosedResourceError
        if self._torn:
            raise anyio.BrokenResourceError from ConnectionLost(f"an earlier send was cut short, in the middle of a {self._PIECE}")

    async def aclose(self) -> None:
        """Say the farewell if that takes no waiting, and close the stream inside."""
        was_closed, self._closed = self._closed, True
        try:
            if not (was_closed or self._eof_sent or self._torn or self._sending.locked()):
                with anyio.move_on_after(_FAREWELL), contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async with self._sending:
                        self._eof_sent = True
                        await self._say_farewell()
        finally:
            await self._stream.aclose()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """What the stream inside knows."""
        return self._stream.extra_attributes
