"""`Layer`: a byte stream inside another one. TLS (`streams.tls`) and compression (`streams.compression`) are layers.

A layer sends in pieces: TLS records, compressed blocks. After half a piece the peer can read nothing more, so nothing is sent after
one. A closing message tells the peer that the stream ended and was not cut.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import ConnectionLost

_CLOSING_SECONDS = 0.5
"""Seconds for sending the closing message in `aclose()`: a peer that does not read does not need it."""


class Layer(ByteStream):
    """One end of the stream inside `stream`. Several tasks may send, one after the other.

    After a cancelled send nothing more can be sent. A subclass sends one piece (`_send_piece`), sends the closing message
    (`_send_closing`), and receives.
    """

    _PIECE: ClassVar[str]
    """What a piece is called in error messages."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._sending = anyio.Lock(fast_acquire=True)
        self._torn = False  # half a piece may have been sent
        self._eof_sent = False
        self._closed = False

    @abstractmethod
    async def _send_piece(self, rest: memoryview) -> int:
        """Send the beginning of `rest`, and return how many of its bytes were sent."""

    @abstractmethod
    async def _send_closing(self) -> None:
        """Send the closing message."""

    async def _end_sending(self) -> None:
        await self._send_closing()

    async def send(self, item: bytes) -> None:
        """Send all of `item`; the peer can read all of it without anything sent later.

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
        """Tell the peer that nothing more will be sent. Receiving goes on until the peer does the same."""
        async with self._sending:
            if self._closed or self._eof_sent:
                return
            self._refuse_if_unwritable()
            self._eof_sent = True
            await self._end_sending()

    async def _pass_on(self, data: bytes) -> None:
        """Send `data` on the inner stream. The caller holds the lock, or is the only user."""
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
        """Send the closing message, for half a second at most and only between pieces; then close the inner stream."""
        was_closed, self._closed = self._closed, True
        try:
            if not (was_closed or self._eof_sent or self._torn or self._sending.locked()):
                with anyio.move_on_after(_CLOSING_SECONDS), contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async with self._sending:
                        self._eof_sent = True
                        await self._send_closing()
        finally:
            await self._stream.aclose()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """The attributes of the inner stream."""
        return self._stream.extra_attributes
