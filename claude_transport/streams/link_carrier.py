"""`LinkCarrier`: carries a `LinkEnd` over one connection after the other. Both ends of a link use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import ConnectionLost
from claude_transport.protocol.framing import DEFAULT_MAX_LINE_BYTES, LineFramer
from claude_transport.protocol.heartbeat import DEFAULT_HEARTBEAT, Heartbeat, Pulse
from claude_transport.protocol.link import LinkEnd, LinkEvent

__all__ = ["LINK_OVERHEAD_BYTES", "LinkCarrier"]

LINK_OVERHEAD_BYTES = 32
"""Bytes that a frame is longer than the line in it: a letter, two spaces and a number of up to 18 digits, and some air."""

_CUTS = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ConnectionLost)
"""What ends a connection without anybody having broken the protocol."""

_CHUNK_BYTES = 64 * 2**10
"""Bytes asked for per read."""


class LinkCarrier:
    """Moves what an end has to say to the peer, and what the peer says to `on_event`, which must not wait.

    `on_chunk` is called after each chunk that has come or gone: acknowledgements, which are no events, may have made room.
    `heartbeat` is in seconds: after so much silence the peer is asked, after twice as much the connection counts as lost.
    """

    def __init__(
        self,
        end: LinkEnd,
        *,
        on_event: Callable[[LinkEvent], object],
        on_chunk: Callable[[], object] | None = None,
        heartbeat: float = DEFAULT_HEARTBEAT,
    ) -> None:
        self._end = end
        self._on_event = on_event
        self._on_chunk = on_chunk
        self._heartbeat = heartbeat
        self._output = anyio.Event()
        self._finishing = False

    def wake(self) -> None:
        """Tell that the end may have something to say."""
        self._output.set()

    def finish(self) -> None:
        """Let `carry()` return as soon as the end has nothing more to say; also every later one."""
        self._finishing = True
        self._output.set()

    async def carry(self, stream: ByteStream, *, framer: LineFramer | None = None, arrived: Sequence[bytes] = ()) -> Exception | None:
        """Carry until the connection is over; returns why: the error of the stream, a `ConnectionLost` for silence, None after `finish()`
        and when the peer has closed it. The stream is left to the caller, and the end is told that it is disconnected.

        `framer` and the lines that have `arrived` are what a handshake on this stream has left over.

        Raises:
            ProtocolError: the peer broke the protocol.
            ReplayGap: this end was outrun (`LinkEnd(may_outrun=True)`).
        """
        framer = framer or LineFramer(max_line_bytes=DEFAULT_MAX_LINE_BYTES + LINK_OVERHEAD_BYTES)
        heart = Heartbeat(interval=self._heartbeat, now=anyio.current_time())
        causes: list[Exception | None] = []

        async def part(work: Callable[[], Awaitable[None]]) -> None:
            # what ends one of the three ends all; it is kept, not raised, so that nobody gets an exception group
            try:
                await work()
                causes.append(None)
            except anyio.EndOfStream:
                causes.append(None)
            except Exception as exc:  # noqa: BLE001 - raised again below, outside of the task group
                causes.append(exc)
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(part, partial(self._write, stream))
                tasks.start_soon(part, partial(self._watch, heart))
                await part(partial(self._read, stream, framer, arrived, heart))
        finally:
            self._end.disconnected()
        cause = causes[0] if causes else None
        if isinstance(cause, _CUTS) or cause is None:
            return cause
        raise cause

    async def _read(self, stream: ByteStream, framer: LineFramer, lines: Sequence[bytes], heart: Heartbeat) -> None:
        end = self._end
        while True:
            if lines:
                for event in end.receive_lines(lines):
                    self._on_event(event)
                if end.has_output:
                    self.wake()
                if self._on_chunk is not None:
                    self._on_chunk()
            chunk = await stream.receive(_CHUNK_BYTES)
            heart.heard(anyio.current_time())
            lines = framer.feed(chunk)

    async def _write(self, stream: ByteStream) -> None:
        end = self._end
        while True:
            while data := end.data_to_send():
                await stream.send(data)
                if self._on_chunk is not None:
                    self._on_chunk()
            if self._finishing:
                return
            self._output = anyio.Event()
            await self._output.wait()

    async def _watch(self, heart: Heartbeat) -> None:
        while True:
            await anyio.sleep_until(heart.next_check)
            match heart.check(anyio.current_time()):
                case Pulse.lost:
                    raise ConnectionLost(f"nothing was heard for {2 * heart.interval:g} s, not even the answer to a ping")
                case Pulse.ping:
                    self._end.ping()
                    self._end.acknowledge()
                    self.wake()
                case Pulse.fine:
                    pass  # something was heard meanwhile
