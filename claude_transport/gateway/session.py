"""`Session`: one process of the gateway, with the limits between it and its client; and `PlainSession`, the session of plain mode.

`link_session.py` holds the session of link mode. `gateway.py` starts sessions and ends them.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Final

import anyio
import msgspec
from anyio.abc import ByteStream

from claude_transport.agents.agent import HeldOptions
from claude_transport.agents.registry import AgentFinder
from claude_transport.errors import ClaudeTransportError, ConnectionLost, ProcessError, TransportClosed, TruncatedStream
from claude_transport.gateway.metrics import GatewayMetrics
from claude_transport.loggers import logger_for
from claude_transport.protocol.codec import is_torn
from claude_transport.protocol.framing import LineBlock, LineFramer, OversizedLine
from claude_transport.protocol.observation import LineLog
from claude_transport.serving.door import Allowance, GatewayLimits
from claude_transport.serving.hosted import HostedProcess, close_quietly, torn_tail, wait_for_turns
from claude_transport.serving.turned_away import TurnedAway, stalled_for
from claude_transport.streams.sockets import SocketStream
from claude_transport.text.printable import printable
from claude_transport.transport import Transport

logger: logging.Logger = logger_for(__name__)

GONE: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ConnectionLost)
"""The exceptions of a connection to a client that has ended, for whatever reason."""

_ID_BYTES: Final = 4

_LAST_TURN: Final = 5.0
"""Seconds for an interrupted turn to end before the input of its process ends. 0.04 were measured."""


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may see of a session. `id` appears in logs only; a client cannot resume a session with it."""

    id: str
    owner: str
    mode: str
    started_at: dt.datetime
    pid: int | None
    attached: bool
    busy: bool
    bytes_in: int
    bytes_out: int


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway gives to a session: its owner, limits, counters, and the fields laid over requests of the client."""

    owner: str
    limits: GatewayLimits
    allowance: Allowance
    metrics: GatewayMetrics
    fields: HeldOptions


class Session(HostedProcess, ABC):
    """A process behind the gateway, and the limits between it and its client.

    `transport` is connected to the process. `on_end` is called once, when the session is over; `ended` is then the reason.
    """

    mode: ClassVar[str]

    def __init__(self, transport: Transport, *, surroundings: Surroundings, on_end: Callable[[Session], object]) -> None:
        super().__init__(transport, limits=surroundings.limits, allowance=surroundings.allowance, fields=surroundings.fields)
        self._on_end = on_end
        self.surroundings = surroundings
        self.id: str = secrets.token_hex(_ID_BYTES)
        self.started_at: dt.datetime = dt.datetime.now(dt.UTC)
        self.activity: Activity = Activity()
        self.ended: str | None = None
        self.log_of_lines: LineLog | None = None
        """Where the lines are kept for observers; None while the session has none."""
        self._input = LineFramer(max_line_bytes=surroundings.limits.line_bytes)

    @property
    def owner(self) -> str:
        """The owner of the token that started it."""
        return self.surroundings.owner

    @property
    @abstractmethod
    def attached(self) -> bool:
        """True while a client is connected."""

    @abstractmethod
    async def close(self, reason: str) -> None:
        """End the process, tell the client, and wait for both. Bounded by the transport's close. `reason` becomes `ended`."""

    @property
    def info(self) -> SessionInfo:
        """The state of the session at this moment."""
        return SessionInfo(
            id=self.id,
            owner=self.owner,
            mode=self.mode,
            started_at=self.started_at,
            pid=self.transport.info.pid,
            attached=self.attached,
            busy=self.activity.busy,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
        )

    async def drain(self) -> None:
        """Wait for the running turn to finish, then close. The caller bounds the wait."""
        await self.activity.idle()
        await self.close("drained")

    async def take_input(self, chunk: bytes) -> None:
        """Write the lines that `chunk` completes to the process, and keep the rest.

        Waits while the process does not read, and while the client is over its rate.

        Raises:
            TurnedAway: a line is too long, or the session has carried too many bytes. The session has to end.
            TransportClosed: the process is gone.
        """
        if lines := self._input.feed(chunk):
            await self._to_process(lines)

    async def end_turns(self) -> None:
        """Interrupt the turns that the end of the input would drop, and wait until they are over, at most 5 seconds.

        Does nothing for an agent that finishes its turn first, as Claude does. Another one would drop it, without a result for the client.
        """
        if not self.activity.drops_turns:
            return
        with anyio.move_on_after(_LAST_TURN):
            while self.activity.drops_turns:
                for line in self.activity.interrupts():
                    await self.transport.write(line)
                if self.activity.drops_turns:
                    await self.activity.changed()

    async def end_turns_quietly(self) -> None:
        """Do as `end_turns()` for a session that is being closed: a process that takes no input any more has no turn to end."""
        try:
            await self.end_turns()
        except ClaudeTransportError:
            return

    async def end_input(self) -> bool:
        """End the input of the process, after its turns. Returns False when an unfinished line was left out.

        Raises as `take_input()` does.
        """
        await self.end_turns()
        tail = self._input.finish()
        # a broken connection leaves an unfinished object, and the CLI would exit because of it
        is_whole = not tail or isinstance(tail, OversizedLine) or not is_torn(tail)
        if tail and is_whole:
            await self._to_process([tail])
        with self._faults_told("writing to"):
            await self.transport.end_input()
        return is_whole

    async def _to_process(self, lines: Sequence[bytes]) -> None:
        await self.admit_lines(lines, size=sum(map(len, lines)) + len(lines))
        self.activity.said(lines)
        if self.log_of_lines is not None:
            self.log_of_lines.append_lines("in", lines)
        with self._faults_told("writing to"):
            await self.transport.write(b"\n".join(self.fields.merged(lines)) + b"\n")

    def count_input(self, *, lines: int, size: int) -> None:
        """Count input of the session and of the gateway. Raises `TurnedAway` when the session has carried too many bytes."""
        super().count_input(lines=lines, size=size)
        self.surroundings.metrics.carried("in", lines=lines, size=size)

    def note_output(self, block: LineBlock) -> None:
        """Count lines of the process, after they were sent. Raises `TurnedAway` when the session has carried too many bytes."""
        self.surroundings.metrics.carried("out", lines=block.count, size=block.size)
        self.activity.heard(block)
        if self.log_of_lines is not None:
            self.log_of_lines.append("out", block)
        self.count_output(block.size)

    async def hand_output(self, hand_on: Callable[[LineBlock], bool]) -> bool:
        """Do as that of `HostedProcess`. What a transport of the operator raises becomes a `ConnectionLost`."""
        with self._faults_told("reading from"):
            return await super().hand_output(hand_on)

    @contextlib.contextmanager
    def _faults_told(self, doing: str) -> Iterator[None]:
        """Raise `ConnectionLost` for an exception that a transport of the operator raises, and log it. The client learns its type only."""
        try:
            yield
        except ClaudeTransportError:
            raise
        except Exception as exc:
            logger.exception("session %s of %s: %s its process failed", self.id, printable(self.owner), doing)
            raise ConnectionLost(f"{doing} the process failed on the gateway ({type(exc).__name__})", code="transport.failed") from exc

    def log(self, level: int, event: str, text: str, **details: object) -> None:
        """Write a log record about this session. `text` and `details` are made `printable()`, because they may quote the client.

        `event` and `details` become fields `gateway_<name>` of the record.
        """
        fields: dict[str, object] = {"event": event, "session": self.id, "owner": self.owner, "mode": self.mode, **details}
        extra = {f"gateway_{name}": printable(value) if isinstance(value, str) else value for name, value in fields.items()}
        logger.log(level, "session %s of %s: %s", self.id, printable(self.owner), printable(text), extra=extra)

    def _note_end(self, reason: str) -> None:
        """Set `ended`, unless it has a reason already."""
        if self.ended is None:
            self.ended = reason
            self.activity.rest()


_CHUNK_BYTES: Final = 64 * 2**10
_LINGER: Final = 2.0
"""Seconds for the client to read the last lines and close: closing a socket over unread input would destroy them."""


class PlainSession(Session):
    """A session in plain mode: bare lines in both directions, as the CLI speaks them. The process ends with its connection."""

    mode: ClassVar[str] = "plain"

    def __init__(self, transport: Transport, *, surroundings: Surroundings, on_end: Callable[[Session], object]) -> None:
        super().__init__(transport, surroundings=surroundings, on_end=on_end)
        self._attached = False
        self._over = anyio.Event()
        self._reported = False
        self._scope = anyio.CancelScope()

    @property
    def attached(self) -> bool:
        """True while its connection is there. The session ends soon after the connection."""
        return self._attached

    async def close(self, reason: str) -> None:
        """End the process, then the connection after its last lines."""
        await self.end_turns_quietly()
        self._note_end(reason)
        await close_quietly(self.transport)
        with anyio.move_on_after(_LINGER):
            await self._over.wait()
        self._scope.cancel()  # the client does not read them
        await self._over.wait()

    async def attend(self, stream: ByteStream, unread: bytes) -> None:
        """Serve the connection until the process or the client ends, then close the process. `unread` was read from the client already.

        Raises:
            TurnedAway: the client passed a limit. It was told, and the process has ended.
        """
        self._attached = True
        refused: list[TurnedAway] = []
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen, stream, unread, refused)
                    await self._speak(stream, refused)
                    tasks.cancel_scope.cancel()
                await self._process_over()
                with anyio.move_on_after(_LINGER):
                    await _end_politely(stream, refused)
        finally:
            self._attached = False
            await self._process_over()
            self._over.set()
        if refused:
            raise refused[0]

    async def _process_over(self) -> None:
        await close_quietly(self.transport)
        if not self._reported:
            self._reported = True
            self._note_end("ended")
            self._on_end(self)  # before the last lines are read: a client that does not close must not keep a place

    async def _listen(self, stream: ByteStream, unread: bytes, refused: list[TurnedAway]) -> None:
        """Carry the client's bytes to the process until the client ends its input."""
        try:
            if unread:
                await self.take_input(unread)
            while True:
                try:
                    chunk = await stream.receive(_CHUNK_BYTES)
                except anyio.EndOfStream:
                    await self.end_input()
                    return
                await self.take_input(chunk)
        except TurnedAway as exc:
            refused.append(exc)
            self._note_end(exc.reason)
            await close_quietly(self.transport)
        except TransportClosed:
            return  # the process has ended; _speak() finds out how
        except (*GONE, ClaudeTransportError) as exc:
            self._note_end("failed" if getattr(exc, "code", None) == "transport.failed" else "client")
            await close_quietly(self.transport)

    async def _speak(self, stream: ByteStream, refused: list[TurnedAway]) -> None:
        """Carry the lines of the process to the client until the process has ended, or the client takes no more."""
        try:
            await self._say_all(_Voice(self, stream))
        except TurnedAway as exc:
            refused.append(exc)
            self._note_end(exc.reason)
        except ClaudeTransportError as exc:
            self._note_end("failed")
            self.log(logging.WARNING, "process_failed", f"reading from its process failed ({type(exc).__name__})")

    async def _say_all(self, voice: _Voice) -> None:
        try:
            await self.carry_output(voice.say, make_room=voice.finish)
        except (TruncatedStream, ProcessError) as exc:
            await voice.send(torn_tail(exc))
            if isinstance(exc, ProcessError):
                self._note_end("failed")
                self.log(logging.WARNING, "process_failed", f"{exc}", exit_code=exc.exit_code, signal=exc.signal)
        if voice.is_unheard:
            self._note_end("client")


class _Voice:
    """Sends what the process of a session says to the client: at once what the socket takes, and the rest in `finish()`."""

    def __init__(self, session: Session, stream: ByteStream) -> None:
        self._session = session
        self._stream = stream
        # a layer above a socket cannot send without waiting
        self._send_now = stream.send_now if isinstance(stream, SocketStream) else None
        self._unfinished: tuple[LineBlock, int] | None = None  # a block, and how many of its bytes were sent
        self.is_unheard: bool = False
        """True once the connection takes no more."""

    def say(self, block: LineBlock) -> bool:
        """Send what can be sent without waiting. Return True when `finish()` has to be called before the next block."""
        sent = 0
        if self._send_now is not None:
            try:
                sent = self._send_now(block.pieces)
            except GONE:
                pass  # `finish()` gets the same error
        if sent < block.size:
            self._unfinished = block, sent
            return True
        self._session.note_output(block)
        return False

    async def finish(self) -> bool:
        """Send the rest of the last block, and count it. Returns False when the connection takes no more. Raises as `send()`."""
        if self._unfinished is not None:
            (block, sent), self._unfinished = self._unfinished, None
            await self.send(bytes(block)[sent:])
            if self.is_unheard:
                return False
            self._session.note_output(block)
        return True

    async def send(self, data: bytes) -> None:
        """Send `data`. Sets `is_unheard` when the connection takes no more. Raises `TurnedAway` when the client takes it not in time."""
        patience = self._session.limits.stall
        with anyio.move_on_after(patience):
            try:
                await self._stream.send(data)
            except GONE:
                self.is_unheard = True
            return
        raise stalled_for(patience)


async def _end_politely(stream: ByteStream, refused: list[TurnedAway]) -> None:
    try:
        if refused and refused[0].audible:
            await stream.send(refused[0].encode())
        await stream.send_eof()
        while True:
            await stream.receive(_CHUNK_BYTES)  # nothing takes this input any more
    except (*GONE, ClaudeTransportError):
        return  # the client has closed, in whatever way


class Activity:
    """Knows whether a session is in a turn. Its first lines tell the agent, whose tracker follows the turns."""

    def __init__(self) -> None:
        self._agents = AgentFinder()
        self._turns = self._agents.agent.follow_turns()
        self._change = anyio.Event()
        self._waiting = 0  # tasks in `changed()`

    @property
    def busy(self) -> bool:
        """True while a turn runs."""
        return self._turns.busy

    @property
    def drops_turns(self) -> bool:
        """True while a turn runs that the end of the input would drop."""
        return self._turns.drops_turns

    def interrupts(self) -> list[bytes]:
        """Return the lines that interrupt the turns that the end of the input would drop, each turn once; see
        `TurnTracker.interrupts()`.
        """
        return self._turns.interrupts()

    def said(self, lines: Sequence[bytes]) -> None:
        """Look for the beginning of a turn in `lines` from the client."""
        if not self._agents.is_decided:
            self._find_agent(lines)
        self._turns.said(lines)

    def heard(self, block: LineBlock) -> None:
        """Look for the end of a turn in lines from the process."""
        if not self._agents.is_decided:
            self._find_agent(bytes(block).split(b"\n"))
        self._turns.heard(block, exactly=self._waiting > 0)
        if self._waiting:
            self._tell()

    def rest(self) -> None:
        """Set the session idle: the turn is over, or will not go on."""
        self._turns.rest()
        self._tell()

    async def idle(self) -> None:
        """Wait until no turn runs, and none follows from a prompt that the agent has got. The caller bounds the wait."""
        await wait_for_turns(run=lambda: self.busy, may_follow=lambda: self._turns.turn_may_follow, changed=self.changed)

    async def changed(self) -> None:
        """Wait until the process has said something, or the session rests. The caller bounds the wait."""
        self._waiting += 1
        try:
            await self._change.wait()
        finally:
            self._waiting -= 1

    def _find_agent(self, lines: Sequence[bytes]) -> None:
        before = self._agents.agent
        if (agent := self._agents.look(lines)) is not before:
            self._turns = agent.follow_turns()

    def _tell(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()
