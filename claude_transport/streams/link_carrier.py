"""`LinkCarrier`: carries a `LinkEnd` over one connection after the other. Both ends of a link use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import ConnectionLost
from claude_transport.protocol.heartbeat import DEFAULT_HEARTBEAT, Heartbeat, Pulse
from claude_transport.protocol.link import LinkEnd, LinkEvent
from claude_transport.streams.wakeup import Wakeup

__all__ = ["LinkCarrier"]

_CUTS = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ConnectionLost)
"""What ends a connection without anybody having broken the protocol."""

_CHUNK_BYTES = 64 * 2**10
"""Bytes asked for per read."""

_ACK_DELAY = 0.01
"""Seconds that an acknowledgement which nobody waits for yet is put off: so a reader who keeps up with the peer tells it a
hundred times in a second, instead of after every chunk."""


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
        self._output = Wakeup()
        self._idle = Wakeup()
        self._ack_wanted = False
        self._finishing = False
        self._interrupted = False

    @property
    def interrupted(self) -> bool:
        """True when the last connection ended while something was being written: whatever is said on it now may be taken for data."""
        return self._interrupted

    def wake(self) -> None:
        """Tell that the end may have something to say."""
        self._output.fire()

    def acknowledge_soon(self) -> None:
        """Tell that what has come was dealt with, and nothing else is to be done: the moment to say so, if it is the last for a while."""
        if self._end.owes_acknowledgement:
            self._ack_wanted = True
            self._idle.fire()

    def finish(self) -> None:
        """Let `carry()` return as soon as the end has nothing more to say; also every later one."""
        self._finishing = True
        self._output.fire()

    async def carry(self, stream: ByteStream, *, unread: bytes = b"") -> Exception | None:
        """Carry until the connection is over; returns why: the error of the stream, a `ConnectionLost` for silence, None after `finish()`
        and when the peer has closed it. The stream is left to the caller, and the end is told that it is disconnected.

        `unread` is what a handshake on this stream has left over.

        Raises:
            ProtocolError: the peer broke the protocol.
            ReplayGap: this end was outrun (`LinkEnd(may_outrun=True)`).
        """
        heart = Heartbeat(interval=self._heartbeat, now=anyio.current_time())
        causes: list[Exception | None] = []
        self._interrupted = False

        async def part(work: Callable[[], Awaitable[None]]) -> None:
            # what ends one of the four ends all; it is kept, not raised, so that nobody gets an exception group
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
                tasks.start_soon(part, self._acknowledge)
                await part(partial(self._read, stream, unread, heart))
        finally:
            self._end.disconnected()
        cause = causes[0] if causes else None
        if isinstance(cause, _CUTS) or cause is None:
            return cause
        raise cause

    async def _read(self, stream: ByteStream, chunk: bytes, heart: Heartbeat) -> None:
        end, on_event, on_chunk = self._end, self._on_event, self._on_chunk
        while True:
            for event in end.receive(chunk):
                on_event(event)
            if end.has_output:
                self._output.fire()
            if on_chunk is not None:
                on_chunk()
            chunk = await stream.receive(_CHUNK_BYTES)
            heart.heard(anyio.current_time())

    async def _write(self, stream: ByteStream) -> None:
        end = self._end
        while True:
            while data := end.data_to_send():
                self._interrupted = True
                await stream.send(data)
                self._interrupted = False
                if self._on_chunk is not None:
                    self._on_chunk()
            if self._finishing:
                return
            await self._output.wait()

    async def _acknowledge(self) -> None:
        while True:
            while not self._ack_wanted:
                await self._idle.wait()
            await anyio.sleep(_ACK_DELAY)
            self._ack_wanted = False
            self._end.acknowledge()
            self._output.fire()

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
