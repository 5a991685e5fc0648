"""`LinkSession`: a process that outlives its connections, each byte of it exactly once, for as long as the lease says."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import secrets
from collections.abc import Callable
from typing import ClassVar, Final

import anyio
from anyio.abc import ByteStream

from claude_transport.background import BackgroundTask
from claude_transport.errors import (
    ClaudeTransportError,
    ProcessError,
    ProtocolError,
    ReplayGap,
    TruncatedStream,
)
from claude_transport.gateway.session import GONE, Session, Surroundings, close_quietly
from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.protocol.link import (
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
from claude_transport.streams.inflow import Wakeup
from claude_transport.streams.link import LinkCarrier, LinkInbox
from claude_transport.transport import Transport
from claude_transport.wrappers.redactor import redactor_for

_FAREWELL: Final = 2.0
"""Seconds for a client to take the news that its process has ended, when the gateway has ended it."""

_LAST_WRITE: Final = 1.0
"""Seconds for what was said before a farewell to reach the process, should it have stopped reading."""


_PIECE_BYTES: Final = 64 * 2**10
"""Bytes that are handed on at once, in either direction."""


def digest_of(key: str) -> bytes:
    """What a session is looked up by: nothing that is compared byte by byte tells how nearly a guess was right."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class LinkSession(Session):
    """The server's end of a link, attached to at most one connection at a time; a newer one takes the place of an older.

    `key` is what its client comes back with.
    """

    mode: ClassVar[str] = "link"

    def __init__(self, transport: Transport, *, surroundings: Surroundings, on_end: Callable[[Session], object]) -> None:
        super().__init__(transport, surroundings=surroundings, on_end=on_end)
        self.key: str = secrets.token_urlsafe(32)
        self._end = LinkEnd(replay_bytes=surroundings.limits.replay_bytes)
        self._inbox = LinkInbox()  # bounded by the window of the link
        self._input_over = False  # nothing comes behind what is in it
        self._accepted = 0  # the position up to which the process was given its input
        self._received = Wakeup()
        self._changed = Wakeup()  # room to keep more, something acknowledged, a connection that came or went
        self._carrier = LinkCarrier(self._end, on_event=self._take, on_chunk=self._changed.fire, heartbeat=surroundings.limits.heartbeat)
        self._connection: anyio.CancelScope | None = None
        self._one_at_a_time = anyio.Lock()
        self._newest = 0  # the number of the connection that came last
        self._farewell = False  # the client has said goodbye
        self._told = False  # everything has been said, the goodbye too
        self._scope = anyio.CancelScope()
        self._task: BackgroundTask | None = None

    @property
    def attached(self) -> bool:
        """Whether a client is there."""
        return self._connection is not None

    def begin(self) -> None:
        """Start carrying; from now on it ends by itself: with its process, its client's goodbye, its lease, or `close()`."""
        self._task = BackgroundTask.spawn(self._live, name=f"session {self.id}", at_end=lambda: self._on_end(self))

    async def close(self, reason: str) -> None:
        """End the process, let the client know how it ended if it listens, and return when both are done."""
        self._note_end(reason)
        await self.transport.close()
        if self._task is not None:
            with anyio.move_on_after(_FAREWELL):
                while self._connection is not None and not self._task.finished:
                    await self._changed.wait()  # until the client knows how it ended; one that is away would not come back for that
            self._scope.cancel()
            await self._task.wait()

    # ------------------------------------------------------------------------------------------------------------ its life

    async def _live(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._feed)
                    tasks.start_soon(self._keep_lease)
                    await self._pump()
                    await self._told_everything()
                    tasks.cancel_scope.cancel()
        finally:
            await close_quietly(self.transport)
            self._note_end("ended")
            await self._say_goodbye()

    async def _told_everything(self) -> None:
        """Wait until the client has all of it, as long as its reader likes; a moment, if it is to blame. One that is away has its lease."""
        patience = math.inf if self.ended is None else _FAREWELL
        progress = -1
        while progress < self._end.acknowledged < self._end.sent:
            progress = self._end.acknowledged
            with anyio.move_on_after(patience):
                while self._end.acknowledged == progress:
                    await self._changed.wait()

    async def _pump(self) -> None:
        """What the process says goes into the link, until it has ended and its end is there, too."""
        error: str | None = None
        try:
            async for batch in self.transport.read_lines():
                await self._say(b"\n".join([*batch, b""]))
                self.count_output(batch)
        except TurnedAway as exc:
            self._note_end(exc.reason)
            error = str(exc)
        except (TruncatedStream, ProcessError) as exc:
            torn = exc if isinstance(exc, TruncatedStream) else exc.__cause__
            if isinstance(torn, TruncatedStream):
                self._end.send(torn.bytes_tail)
        except ClaudeTransportError as exc:
            error = f"{type(exc).__name__} on the gateway"
            self.log(logging.WARNING, "process_failed", f"{type(exc).__name__} while reading from it")
        self.activity.rest()
        await self.transport.close()
        info = self.transport.info
        self._end.end_process(
            accepted=self._accepted,
            exit_code=info.exit_code,
            signal=info.signal,
            killed=info.killed,
            stderr_tail=redactor_for(self.transport).text(info.stderr_tail) if info.stderr_tail else "",
            error=error,
        )
        self._carrier.wake()

    async def _say(self, data: bytes) -> None:
        """Send to the client. As for a full pipe, the process waits until the client has read on; the lease ends this wait, too."""
        for start in range(0, len(data), _PIECE_BYTES):
            self._end.send(data[start : start + _PIECE_BYTES])
            self._carrier.wake()
            while not self._end.has_room:
                await self._changed.wait()

    async def _feed(self) -> None:
        """What the client says goes to the process, in order; it is acknowledged once it is there, or held as the beginning of a line."""
        end, inbox = self._end, self._inbox
        try:
            while True:
                while not inbox and not self._input_over:
                    self._carrier.acknowledge_soon()
                    self._changed.fire()
                    await self._received.wait()
                if not inbox:
                    break
                start, data = inbox.taken, inbox.take(_PIECE_BYTES)
                await self.take_input(data)
                # what is left behind the last newline is held here, and would be lost with the process
                self._accepted = start + data.rfind(b"\n") + 1 if b"\n" in data else self._accepted
                end.consume(inbox.taken)
                if end.has_output:
                    self._carrier.wake()
            if await self.end_input():
                self._accepted = end.received
            end.consume(end.received)
            self._carrier.acknowledge_soon()
            self._changed.fire()
        except TurnedAway as exc:
            self.log(logging.WARNING, "turned_away", str(exc), reason=exc.reason)
            self.surroundings.metrics.refused[exc.reason] += 1
            self._end.bye(code=exc.reason, reason=str(exc))
            self._carrier.wake()  # before the process's end can overtake it
            self._note_end(exc.reason)
            await self.transport.close()
        except ClaudeTransportError:
            return  # the process has ended; what did not reach it is not acknowledged

    async def _keep_lease(self) -> None:
        """End the session when no client has been there for as long as the lease is."""
        while True:
            while self._connection is not None:
                await self._changed.wait()
            if self._farewell:
                break
            with anyio.move_on_after(self.surroundings.limits.lease):
                while self._connection is None:
                    await self._changed.wait()
            if self._connection is None:
                self._note_end("lease")
                break
        self._scope.cancel()

    async def _say_goodbye(self) -> None:
        """Let whoever is attached know that this is over, and wait a moment until it is out."""
        self._end.bye(code=self.ended or "", reason=f"the session has ended ({self.ended})")
        self._told = True
        self._carrier.finish()
        with anyio.move_on_after(_FAREWELL, shield=True):
            while self._connection is not None:
                await self._changed.wait()
        if self._connection is not None:
            self._connection.cancel()

    # --------------------------------------------------------------------------------------------------------- connections

    async def attend(self, stream: ByteStream, hello: Hello, unread: bytes, *, medium: str, peer: str) -> None:
        """Serve one connection until it ends, another takes its place, or the session is over. `medium` and `peer` are for the log.

        Raises:
            TurnedAway: it cannot be resumed from where its client is (`replay_gap`), or the client broke the protocol (`malformed`);
                the session stays, until its lease ends.
        """
        self._newest += 1
        number = self._newest
        if self._connection is not None:
            self._connection.cancel()  # which lets go of the lock without waiting for anybody
        async with self._one_at_a_time:
            if number != self._newest:
                return  # a newer one came while this one waited, when there was nothing of it to cancel yet
            try:
                self._end.resume(received=hello.received, replay_from=hello.replay_from, window=hello.window)
            except ReplayGap as exc:
                raise TurnedAway("replay_gap", str(exc)) from exc
            except ProtocolError as exc:
                raise TurnedAway("malformed", str(exc)) from exc
            self._connection = anyio.CancelScope()
            self._changed.fire()
            try:
                with self._connection:
                    await stream.send(self._welcome())
                    if hello.session is not None:
                        self.surroundings.metrics.resumed += 1
                        self.log(logging.INFO, "session_resumed", f"taken up again over {medium}", peer=peer)
                    await self._carry(stream, unread)
            except GONE:
                return  # before it was told that it is welcome
            except ProtocolError as exc:
                raise TurnedAway("malformed", str(exc), audible=not self._carrier.interrupted) from exc
            finally:
                self._connection = None
                self._end.disconnected()
                self._changed.fire()

    async def _carry(self, stream: ByteStream, unread: bytes) -> None:
        cause = await self._carrier.carry(stream, unread=unread)
        if self.ended is None:
            self.log(logging.INFO, "connection_over", f"its connection is over ({cause or 'closed by the client'})")
        elif self._told:
            with contextlib.suppress(*GONE):
                await stream.send_eof()

    def _welcome(self) -> bytes:
        end = self._end
        version = self.transport.info.cli_version
        welcome = Welcome(
            version=LINK_VERSION,
            session=self.key,
            lease=self.surroundings.limits.lease,
            received=end.received,
            replay_from=end.replay_from,
            window=end.window,
            details={} if version is None else {"cli_version": version},
        )
        return encode_frame(welcome)

    def _take(self, event: LinkEvent) -> None:
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
                    BackgroundTask.spawn(self._obey_farewell, name=f"farewell to session {self.id}")
            case ProcessEnd() | Refusal():
                raise ProtocolError("what only a server says came from a client", code="link.malformed")

    async def _obey_farewell(self) -> None:
        """The client wants it to end: what it said before still gets to the process, if that reads."""
        with anyio.move_on_after(_LAST_WRITE):
            while self._end.consumed < self._end.received:
                await self._changed.wait()
        self._note_end("client")
        await self.transport.close()
