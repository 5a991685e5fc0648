"""`LinkServer`: the server's end of a session that outlives its connections. The client receives each byte exactly once, and sends it once.

`machine.py` decides about frames and positions, and `carrier.py` carries them over one connection. What is at the other side of the
session, and why it ends, is known to the gateway alone.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import ConnectionLost, ProtocolError
from claude_transport.link.carrier import LinkCarrier, LinkInbox
from claude_transport.link.machine import (
    LINK_VERSION,
    Bye,
    Data,
    End,
    Hello,
    LinkEnd,
    LinkEvent,
    ProcessEnd,
    Refusal,
    Welcome,
    encode_frame,
)
from claude_transport.loops.current import Wakeup

_GONE: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ConnectionLost)

_PIECE_BYTES: Final = 64 * 2**10
"""The most bytes passed on at a time, in both directions."""


class LinkServer:
    """The connections of one session, one after the other, and the bytes that they carry. A newer connection replaces the older.

    Args:
        replay_bytes: output that is kept for a client that is away.
        heartbeat: seconds of silence after which a ping is sent.
        lease: seconds that the session lives without a client.
        on_goodbye: called once, when the client has said goodbye.
        on_connection_over: called at the end of each connection, with why it has ended; None when the client has closed it.
    """

    def __init__(
        self,
        *,
        replay_bytes: int,
        heartbeat: float,
        lease: float,
        on_goodbye: Callable[[], object],
        on_connection_over: Callable[[object], object],
    ) -> None:
        self.key: str = secrets.token_urlsafe(32)
        """The secret with which the client resumes the session."""
        self.changed: Wakeup = Wakeup()
        """Acknowledgements, room in a buffer, a connection that began or ended, progress of the input."""
        self.is_audible: bool = True
        """False when the last connection broke the protocol inside of a frame: what is said to its client would be a part of it."""
        self._lease = lease
        self._on_goodbye = on_goodbye
        self._on_connection_over = on_connection_over
        self._end = LinkEnd(replay_bytes=replay_bytes)
        self._inbox = LinkInbox()  # its size is bounded by the window of the link
        self._input_over = False  # the client has ended its input; the inbox holds the rest
        self._accepted = 0  # the process has received the input up to this position
        self._received = Wakeup()
        self._carrier = LinkCarrier(self._end, on_event=self._take, on_chunk=self.changed.fire, heartbeat=heartbeat)
        self._connection: anyio.CancelScope | None = None
        self._one_at_a_time = anyio.Lock()
        self._newest = 0  # the number of the newest connection
        self._farewell = False  # the client has sent its goodbye frame
        self._said_goodbye = False  # the goodbye frame is queued, behind all output

    @property
    def attached(self) -> bool:
        """True while a client is connected."""
        return self._connection is not None

    # Output

    @property
    def has_room(self) -> bool:
        """True while `queue()` takes more."""
        return self._end.has_room

    def queue(self, data: bytes, start: int = 0) -> int:
        """Queue `data` from `start` on for the client, while there is room. Return where it stopped."""
        while start < len(data) and self._end.has_room:
            self._end.send(data[start : start + _PIECE_BYTES])
            start += _PIECE_BYTES
        self._carrier.wake()
        return start

    def end_process(self, *, tail: bytes, **how: Any) -> None:
        """Say how the process has ended, after `tail`, the bytes after its last newline. `how` is what `LinkEnd.end_process()` takes."""
        if tail:
            self._end.send(tail)
        self._end.end_process(accepted=self._accepted, **how)
        self._carrier.wake()

    async def wait_for_acknowledgement(self, *, patience: float) -> None:
        """Wait until the client has acknowledged all output, or nothing more for `patience` seconds."""
        progress = -1
        while progress < self._end.acknowledged < self._end.sent:
            progress = self._end.acknowledged
            with anyio.move_on_after(patience):
                while self._end.acknowledged == progress:
                    await self.changed.wait()

    async def wait_for_progress(self, *, patience: float) -> bool:
        """Wait until the client acknowledges more.

        Returns False when it has not, although it was connected for `patience` seconds in sum.
        """
        before, left = self._end.acknowledged, patience
        while self._end.acknowledged == before and left > 0:
            if not self.attached:
                await self.changed.wait()
                continue
            began = anyio.current_time()
            with anyio.move_on_after(left):
                while self._end.acknowledged == before and self.attached:
                    await self.changed.wait()
            left -= anyio.current_time() - began
        return self._end.acknowledged > before

    @property
    def has_unacknowledged(self) -> bool:
        """True while the client has not acknowledged all output."""
        return self._end.acknowledged < self._end.sent

    def bye(self, *, code: str, reason: str) -> None:
        """Say goodbye. Of two goodbyes, the client gets the first."""
        self._end.bye(code=code, reason=reason)
        self._carrier.wake()

    async def leave(self, *, code: str, reason: str, within: float) -> None:
        """Say goodbye after all output. Wait until the client disconnects, at most `within` seconds, then end its connection."""
        self._end.bye(code=code, reason=reason)
        self._said_goodbye = True
        self._carrier.finish()
        with anyio.move_on_after(within, shield=True):
            while self._connection is not None:
                await self.changed.wait()
        if self._connection is not None:
            self._connection.cancel()

    # Input

    async def feed(self, take: Callable[[bytes], Awaitable[object]], finish: Callable[[], Awaitable[bool]]) -> None:
        """Give the client's bytes to `take`, in order, and acknowledge them. At their end call `finish`, which returns False when an
        unfinished line was left out.

        Whole lines are acknowledged when the process has received them. The beginning of a line is kept by `take`, and acknowledged at
        once. Raises what the two raise.
        """
        end, inbox = self._end, self._inbox
        while True:
            while not inbox and not self._input_over:
                self._carrier.acknowledge_soon()
                self.changed.fire()
                await self._received.wait()
            if not inbox:
                break
            start, data = inbox.taken, inbox.take(_PIECE_BYTES)
            await take(data)
            if b"\n" in data:  # only whole lines have reached the process
                self._accepted = start + data.rfind(b"\n") + 1
            end.consume(inbox.taken)
            if end.has_output:
                self._carrier.wake()
        if await finish():
            self._accepted = end.received
        end.consume(end.received)
        self._carrier.acknowledge_soon()
        self.changed.fire()

    async def wait_consumed(self) -> None:
        """Wait until all input that has arrived is fed. The caller bounds the wait."""
        while self._end.consumed < self._end.received:
            await self.changed.wait()

    # Connections

    async def wait_left(self) -> bool:
        """Wait until the client has said goodbye and disconnected: then return True. Returns False when it was away for the lease."""
        while True:
            while self._connection is not None:
                await self.changed.wait()
            if self._farewell:
                return True
            with anyio.move_on_after(self._lease):
                while self._connection is None:
                    await self.changed.wait()
            if self._connection is None:
                return False

    async def attend(
        self, stream: ByteStream, hello: Hello, unread: bytes, *, details: Mapping[str, str], on_resumed: Callable[[], object]
    ) -> None:
        """Serve one connection until it ends, a newer one replaces it, or the session is over. The caller closes it.

        Args:
            stream: the connection.
            hello: the client's first frame, with the positions from which it resumes.
            unread: bytes that were received after the hello.
            details: what the client is told of the process.
            on_resumed: called when a client that was here before is welcome again.

        Raises:
            ReplayGap: the client cannot resume from its position. The session goes on, so it can come back before its lease runs out.
            ProtocolError: the client broke the protocol; see `is_audible`.
        """
        self._newest += 1
        number = self._newest
        if self._connection is not None:
            self._connection.cancel()  # the older connection then releases the lock
        async with self._one_at_a_time:
            if number != self._newest:
                return  # an even newer connection came while this one waited for the lock
            self.is_audible = True
            self._end.resume(received=hello.received, replay_from=hello.replay_from, window=hello.window)
            self._connection = anyio.CancelScope()
            self.changed.fire()
            try:
                with self._connection:
                    await stream.send(self._welcome(details))
                    if hello.session is not None:
                        on_resumed()
                    await self._carry(stream, unread)
            except _GONE:
                pass  # the connection ended before the welcome was sent
            except ProtocolError:
                self.is_audible = not self._carrier.interrupted
                raise
            finally:
                self._connection = None
                self._end.disconnected()
                self.changed.fire()

    async def _carry(self, stream: ByteStream, unread: bytes) -> None:
        """Carry the link over one connection until it ends. After the goodbye frame, end the sending side in good order."""
        cause = await self._carrier.carry(stream, unread=unread)
        self._on_connection_over(cause)
        if self._said_goodbye:
            with contextlib.suppress(*_GONE):
                await stream.send_eof()

    def _welcome(self, details: Mapping[str, str]) -> bytes:
        end = self._end
        return encode_frame(
            Welcome(
                version=LINK_VERSION,
                session=self.key,
                lease=self._lease,
                received=end.received,
                replay_from=end.replay_from,
                window=end.window,
                details=dict(details),
            )
        )

    def _take(self, event: LinkEvent) -> None:
        """Handle one event of the link. Raises `ProtocolError` for frames that a client must not send."""
        match event:
            case Data(_, data):
                self._inbox.put(data)
                self._received.fire()
            case End():
                self._input_over = True
                self._received.fire()
            case Bye():
                if not self._farewell:
                    self._farewell = True
                    self._on_goodbye()
            case ProcessEnd() | Refusal():
                raise ProtocolError("the client sent a frame that only a server may send", code="link.malformed")
