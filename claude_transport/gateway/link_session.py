"""`LinkSession`: a session in link mode. Its process survives a lost connection, and the client receives each byte exactly once.

The base class is in `session.py`, and the connections are those of `link/session.py`. `gateway.py` accepts them and finds the session of
each.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import ClassVar, Final

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import ClaudeTransportError, ProcessError, ProtocolError, ReplayGap, TruncatedStream
from claude_transport.gateway.session import Session, Surroundings
from claude_transport.link.machine import (
    CLOSED_BY_SERVER,
    Hello,
)
from claude_transport.link.session import LinkServer
from claude_transport.loops.background import LoopTask
from claude_transport.protocol.framing import LineBlock
from claude_transport.serving.hosted import close_quietly, torn_tail
from claude_transport.serving.turned_away import TurnedAway, stalled_for
from claude_transport.text.printable import redacted_tail
from claude_transport.transport import Transport
from claude_transport.wrappers.redactor import redactor_for

_TAIL_CHARS: Final = 2**15
"""Characters of standard error that a client is told at most: fewer than are kept, so that a key at the cut is seen whole."""

_FAREWELL: Final = 2.0
"""Seconds to wait, at the end of a session, for the client to receive what is left: output, the exit status, the goodbye frame."""

_GATEWAY_ENDS: Final = {"closed", "drained"}
"""The reasons of sessions that end because the gateway does, and not their process."""

_GATEWAY_ENDED: Final = "the gateway has closed the session, because it ends"

_LAST_WRITE: Final = 1.0
"""Seconds for input that the client sent before its goodbye to reach the process. The process may have stopped reading."""


def digest_of(key: str) -> bytes:
    """Return the SHA-256 digest of a session's key. The time that a look-up by digest takes tells nothing about the key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class LinkSession(Session):
    """A process, and the server's end of a link. At most one connection is attached; a newer one replaces the older."""

    mode: ClassVar[str] = "link"

    def __init__(self, transport: Transport, *, surroundings: Surroundings, on_end: Callable[[Session], object]) -> None:
        super().__init__(transport, surroundings=surroundings, on_end=on_end)
        limits = surroundings.limits
        self._link = LinkServer(
            replay_bytes=limits.replay_bytes,
            heartbeat=limits.heartbeat,
            lease=limits.lease,
            on_goodbye=lambda: LoopTask.spawn(self._obey_farewell, name=f"farewell to session {self.id}"),
            on_connection_over=self._connection_over,
        )
        self._unwritten: str | None = None  # why the transport takes no input, although it has not ended by itself
        self._unfinished: tuple[LineBlock, bytes, int] | None = None  # a block for the client, its bytes, and where their rest begins
        self._scope = anyio.CancelScope()
        self._task: LoopTask | None = None

    @property
    def key(self) -> str:
        """The secret with which the client resumes the session."""
        return self._link.key

    @property
    def attached(self) -> bool:
        """True while a client is connected."""
        return self._link.attached

    def begin(self) -> None:
        """Start the task of the session. The end of the process, the client's goodbye, the end of the lease, or `close()` ends it."""
        self._task = LoopTask.spawn(self._live, name=f"session {self.id}", at_end=lambda: self._on_end(self))

    async def close(self, reason: str) -> None:
        """End the process, and tell a connected client how it ended. Bounded by the close of the transport plus a few seconds."""
        if self.ended is None:
            await self.end_turns_quietly()
        self._note_end(reason)
        await close_quietly(self.transport)
        if self._task is not None:
            with anyio.move_on_after(_FAREWELL):
                while self._link.attached and not self._task.finished:
                    await self._link.changed.wait()  # the client disconnects when it knows how the process ended
            self._scope.cancel()
            await self._task.wait()

    async def _live(self) -> None:
        """Run the session: carry bytes in both directions until the process ends or the session is closed, then tell the client."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._feed)
                    tasks.start_soon(self._keep_lease)
                    await self._pump()
                    await self._wait_for_the_client()
                    tasks.cancel_scope.cancel()
        finally:
            await close_quietly(self.transport)
            self._note_end("ended")
            await self._say_goodbye()

    async def _wait_for_the_client(self) -> None:
        """Wait until the client has acknowledged all output.

        After a normal end of the process, a connected client has `stall` seconds for each acknowledgement, and an absent client has until
        its lease runs out. When the gateway or the client has ended the session, the wait is over after 2 seconds without progress.
        """
        try:
            while self.ended is None and self._link.has_unacknowledged:
                await self._wait_for_progress()
        except TurnedAway as exc:
            self._turn_away(exc)
        await self._link.wait_for_acknowledgement(patience=_FAREWELL)

    async def _wait_for_progress(self) -> None:
        patience = self.limits.stall
        if not await self._link.wait_for_progress(patience=patience):
            raise stalled_for(patience)

    async def _pump(self) -> None:
        """Send the output of the process to the client until the process ends, then send how it ended."""
        error, tail = None, b""
        try:
            await self.carry_output(self._say, make_room=self._finish_saying)
        except TurnedAway as exc:
            self._turn_away(exc)
            error = str(exc)
        except (TruncatedStream, ProcessError) as exc:
            tail = torn_tail(exc)
        except ClaudeTransportError as exc:
            error = self._unwritten or f"reading from the process failed on the gateway ({type(exc).__name__})"
            if self.ended not in _GATEWAY_ENDS:
                self.log(logging.WARNING, "process_failed", f"reading from its process failed ({type(exc).__name__})")
        closed = self.ended in _GATEWAY_ENDS
        self.activity.rest()
        await close_quietly(self.transport)
        info = self.transport.info
        self._link.end_process(
            tail=tail,
            exit_code=info.exit_code,
            signal=info.signal,
            killed=info.killed,
            stderr_tail=redacted_tail(info.stderr_tail, redactor_for(self.transport).text, at_most=_TAIL_CHARS) if info.stderr_tail else "",
            error=_GATEWAY_ENDED if closed else error or self._unwritten,
            code=CLOSED_BY_SERVER if closed else "",
        )

    def _say(self, block: LineBlock) -> bool:
        """Queue a block for the client. Return True when the replay buffer is full: call `_finish_saying()` before the next block."""
        data = bytes(block)
        start = self._link.queue(data)
        if start < len(data) or not self._link.has_room:
            self._unfinished = block, data, start
            return True
        self.note_output(block)
        return False

    async def _finish_saying(self) -> bool:
        """Queue the rest of the last block. Waits while the replay buffer is full.

        The wait ends when the client acknowledges, or when the lease of an absent client runs out. A connected client may stop the process,
        as a reader of a pipe may, until it has acknowledged nothing for `stall` seconds: then `TurnedAway` is raised.
        """
        if self._unfinished is not None:
            (block, data, start), self._unfinished = self._unfinished, None
            while start < len(data) or not self._link.has_room:
                await self._wait_for_progress()
                start = self._link.queue(data, start)
            self.note_output(block)
        return True

    async def _feed(self) -> None:
        """Write the client's bytes to the process, in order, and acknowledge them."""
        try:
            await self._link.feed(self.take_input, self.end_input)
        except TurnedAway as exc:
            self._turn_away(exc)
            await close_quietly(self.transport)
        except ClaudeTransportError as exc:  # input that did not reach the process stays unacknowledged
            if exc.code == "transport.failed":  # otherwise the process has ended, and _pump() finds out how
                self._unwritten = exc.args[0]
                await close_quietly(self.transport)

    def _turn_away(self, exc: TurnedAway) -> None:
        """Tell the client, before the end of the process, which limit it or its process has passed. The first reason to end counts."""
        if self.ended is not None:
            return
        self.log(logging.WARNING, "turned_away", str(exc), reason=exc.reason)
        self.surroundings.metrics.refused[exc.reason] += 1
        self._link.bye(code=exc.reason, reason=str(exc))
        self._note_end(exc.reason)

    async def _keep_lease(self) -> None:
        """End the session when no client has been connected for `lease` seconds, or when a client has said goodbye and disconnected."""
        if await self._link.wait_left():
            while self.ended is None:  # until _obey_farewell() has delivered the last input and ended the turns; it is bounded
                await self._link.changed.wait()
        else:
            self._note_end("lease")
        self._scope.cancel()

    async def _say_goodbye(self) -> None:
        """Tell a connected client that the session is over. Wait at most 2 seconds until it disconnects, then end the connection."""
        if self.ended in _GATEWAY_ENDS:
            code, reason = CLOSED_BY_SERVER, _GATEWAY_ENDED
        else:
            code, reason = self.ended or "", f"the session has ended ({self.ended})"
        await self._link.leave(code=code, reason=reason, within=_FAREWELL)

    async def attend(self, stream: ByteStream, hello: Hello, unread: bytes, *, medium: str, peer: str) -> None:
        """Serve one connection until it ends, a newer one replaces it, or the session is over.

        Args:
            stream: the connection. The caller closes it.
            hello: the client's first frame, with the positions from which it resumes.
            unread: bytes that were received after the hello.
            medium: how the client is connected, for the log.
            peer: the address of the client, for the log.

        Raises:
            TurnedAway: the client cannot resume from its position (`replay_gap`), or it broke the protocol (`malformed`). The session goes
                on, so the client can come back before its lease runs out.
        """

        def resumed() -> None:
            self.surroundings.metrics.resumed += 1
            self.log(logging.INFO, "session_resumed", f"resumed over {medium}", peer=peer)

        version = self.transport.info.cli_version
        details = {} if version is None else {"cli_version": version}
        try:
            await self._link.attend(stream, hello, unread, details=details, on_resumed=resumed)
        except ReplayGap as exc:
            raise TurnedAway("replay_gap", str(exc)) from exc
        except ProtocolError as exc:
            raise TurnedAway("malformed", str(exc), audible=self._link.is_audible) from exc

    def _connection_over(self, cause: object) -> None:
        if self.ended is None:
            self.log(logging.INFO, "connection_over", f"its connection has ended ({cause or 'closed by the client'})")

    async def _obey_farewell(self) -> None:
        """End the process after the client's goodbye. Before that, wait at most a second for the client's earlier input to reach it, and at
        most five for the end of turns that the end of the input would drop.
        """
        with anyio.move_on_after(_LAST_WRITE):
            await self._link.wait_consumed()
        await self.end_turns_quietly()
        self._note_end("client")
        self._link.changed.fire()
        await close_quietly(self.transport)
