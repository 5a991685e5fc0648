"""`HostedSession`: one session of a fleet on this worker, from the claim to the end of its process, or of its lease.

`worker.py` claims sessions and reads their streams. The rules are in `claude_transport.fleet.ends`.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import msgspec

from claude_transport.agents.agent import HeldOptions
from claude_transport.errors import (
    ClaudeTransportError,
    ConnectionLost,
    ProcessError,
    ProtocolError,
    ReplayGap,
    TransportClosed,
    TruncatedStream,
)
from claude_transport.fleet.answers import MALFORMED, text_of
from claude_transport.fleet.broker import Broker, BrokerCut
from claude_transport.fleet.carrier import Carrier
from claude_transport.fleet.ends import WorkerEnd
from claude_transport.fleet.feed import StreamFeed
from claude_transport.fleet.messages import Entry, Kind, Owner, SessionEnd, StreamArrival
from claude_transport.fleet.scripts import RELEASE
from claude_transport.fleet.tables import Tables
from claude_transport.fleet.takeover import find_setup, without_setup_answers
from claude_transport.loggers import logger_for
from claude_transport.loops.current import Wakeup, clock_here
from claude_transport.protocol.framing import LineBlock
from claude_transport.redis.client import first_of
from claude_transport.serving.door import Allowance, GatewayLimits
from claude_transport.serving.hosted import HostedProcess, close_quietly, torn_tail, wait_for_turns
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.text.printable import printable
from claude_transport.transport import SessionTerms, Transport
from claude_transport.wrappers.redactor import redactor_for

logger: logging.Logger = logger_for(__name__)

LAST_WRITE: Final = 1.0
"""Seconds for input to reach a process that the client ends."""

LAST_WORDS: Final = 20.0
"""Seconds for the last output to reach the broker."""

KEPT_SECONDS: Final = 3600
"""Seconds for which the broker keeps what an ended session has said."""


async def release_session(broker: Broker, session: str, token: str, *, ended: bool) -> None:
    """Give a session back: it has ended, or waits for another worker. A worker that was replaced changes nothing.

    Raises:
        BrokerCut: the connection was lost.
        ProtocolError: the broker refused it.
    """
    keys = broker.keys
    where = [keys.meta(session), keys.incoming(session), keys.outgoing(session), keys.setup(session)]
    answer = await broker.script(RELEASE, where, [token, "ended" if ended else "live", KEPT_SECONDS * 1000])
    if text_of(answer[0]) != "OK":
        return  # its rows in the tables are those of the worker that has it now, or `_forget()` removes them
    if ended:
        await Tables(broker).remove(session)
    else:
        await Tables(broker).hold({session: 0})


def failed_end(exc: Exception, *, doing: str) -> SessionEnd:
    """Return what a client is told of an error that is not ours. Its text stays in the log of the worker: it may hold a secret."""
    return SessionEnd(code="failed", error=f"{doing} failed on the worker ({type(first_of(exc)).__name__}); its log says more")


class HostedSession(HostedProcess):
    """A session that this worker has claimed.

    Args:
        broker: the connection to the broker.
        session: its id.
        end: the worker's end.
        transport: connected to the process.
        carrier: carries out the calls of the end.
        fields: changes the client's requests so that the worker's options hold.
        allowance: what the owner of the session has used of the limits.
        limits: the limits of the worker.
        terms: what the transport has said of itself.
    """

    def __init__(
        self,
        broker: Broker,
        session: str,
        end: WorkerEnd,
        transport: Transport,
        *,
        carrier: Carrier,
        fields: HeldOptions,
        allowance: Allowance,
        limits: GatewayLimits,
        terms: SessionTerms,
    ) -> None:
        super().__init__(transport, limits=limits, allowance=allowance, fields=fields)
        self.id: str = session
        self.end: WorkerEnd = end
        self._broker = broker
        self._carrier = carrier
        self._storage = terms.storage
        self._at_once = terms.at_once
        self._clock = clock_here()
        self._changed = Wakeup()
        self._stored = Wakeup()
        self._reason: SessionEnd | None = None
        self._leaving = False
        self._said_end = False
        self._renew_soon = Wakeup()
        self._bye = anyio.Event()
        self._lost: ClaudeTransportError | None = None
        self._setup: list[bytes] = []
        self._gap: ReplayGap | None = None
        self.is_deaf: bool = False
        """True once something that the client said has ended the session: it takes no more."""
        self._is_over = False
        self._input = StreamFeed(
            broker, broker.keys.incoming(session), carrier, take=self.hear, has_room=lambda: not self.is_deaf, patience=math.inf
        )
        self._writing = anyio.CancelScope()

    # What the worker calls.

    @property
    def ended(self) -> str:
        """Why the session ended on this worker: the code of a refusal, `moved`, or `ended` with its process."""
        return "moved" if not self._said_end else (self._reason.code if self._reason is not None else "") or "ended"

    @property
    def lost_code(self) -> str | None:
        """The code of the error with which this worker gave the session up; None when it did not."""
        return None if self._lost is None else self._lost.code

    def refuse(self, exc: ClaudeTransportError) -> None:
        """End the session because of what the client sent."""
        is_long = exc.code == "fleet.line_too_long"
        reason = exc.reason if isinstance(exc, TurnedAway) else "line_too_long" if is_long else "malformed"
        logger.warning("session %s: %s", self.id, exc)
        self.is_deaf = True
        self.stop(SessionEnd(code=reason, error=printable(exc, at_most=500)))

    def renew_soon(self) -> None:
        """Renew the lease now: the answer may say that the session should stop."""
        self._renew_soon.fire()

    def stop(self, reason: SessionEnd) -> None:
        """End the process, and tell the client `reason`. It does not wait."""
        self._reason = self._reason or reason
        self._bye.set()

    async def move_away(self) -> None:
        """Wait until no turn runs or follows and no input waits, then let another worker have the session. The caller bounds the wait."""
        end = self.end
        await wait_for_turns(
            run=lambda: end.busy and not self._is_over,
            may_follow=lambda: end.turn_may_follow and not self._is_over,
            changed=self._changed.wait,
        )
        self.leave()

    def leave(self) -> None:
        """Let another worker have the session now, with all input that is not taken yet. It does not wait."""
        self._leaving = True
        self.end.stop_taking()
        self._bye.set()

    # Its input.

    async def _read(self) -> None:
        """Take the input of the client. A stream that cannot be read ends this session alone."""
        while not self.is_deaf:
            try:
                await self._input.run()
            except ProtocolError as exc:
                self.refuse(exc)

    def hear(self, entries: Sequence[Entry]) -> None:
        """Queue entries of the client for the process."""
        if self.is_deaf:
            return
        try:
            for arrival in self.end.arrived(entries):
                if arrival.kind == Kind.BYE:
                    self._bye.set()
            if self.end.waiting_bytes > 4 * self.limits.line_bytes:
                self.refuse(TurnedAway("line_too_long", "the client has not waited for the process to take its input"))
        except ReplayGap as exc:  # a worker that has taken this one's place lets the broker forget what it has taken: ask first
            self._gap, self.is_deaf = exc, True
            self.renew_soon()
        except ClaudeTransportError as exc:
            self.refuse(exc)
        except Exception:  # an unknown fault of one session must not end the others
            logger.exception("reading for session %s failed", self.id)
            self.refuse(ProtocolError("the input of the session cannot be read", code=MALFORMED))
        self._changed.fire()

    # Its life.

    async def run(self, owner: Owner, *, notice: Sequence[bytes] = (), setup: Sequence[bytes] = ()) -> None:
        """Carry lines in both directions until the process has ended, and the broker knows how; or until another end has the session.

        Args:
            owner: what this worker says first.
            notice: lines for the client that another worker had the session.
            setup: requests that the process gets first.
        """
        self.end.begin(owner)
        for line in notice:
            self.end.say(line)
        self._setup = list(setup)
        self._carrier.on_change = self._changed.fire
        try:
            async with anyio.create_task_group() as tasks:
                for work in (self._carrier.append_all, self._read, self._feed, self._renew, self._obey_bye, self._follow_store):
                    tasks.start_soon(self._part, work, tasks.cancel_scope)
                await self._pump()
                tasks.cancel_scope.cancel()
        except Exception as exc:  # noqa: BLE001 - a program's own transport may raise anything
            self._fail(exc)
        finally:
            self._is_over = True
            self._changed.fire()
            with anyio.CancelScope(shield=True):
                await close_quietly(self.transport)
                await self._leave()

    def _fail(self, exc: Exception) -> None:
        """End the session because of an error that is not ours: another process would meet it, too."""
        logger.error("session %s: its process cannot be used any more", self.id, exc_info=exc)
        if not self._said_end:
            self._said_end = True
            self._reason = self._reason or failed_end(exc, doing="using the process")
            self.end.say_end(msgspec.structs.replace(self._reason, taken=self.end.fed_number))

    async def _part(self, work: Callable[[], Any], scope: anyio.CancelScope) -> None:
        try:
            await work()
        except TurnedAway as exc:
            self.refuse(exc)
        except ClaudeTransportError as exc:
            self._lost = exc
            logger.warning("session %s is given up by this worker: %s", self.id, exc)
            scope.cancel()

    async def _feed(self) -> None:
        """Give the process the client's input, once it is written down that it was taken."""
        try:
            for line in self._setup:
                await self._lease_holds()
                await self._write(line)
            while True:
                call = self.end.take_call()
                if call is not None:
                    await self._carrier.carry_out(call)
                    continue
                batch = self.end.to_feed(self._clock())
                if not batch:
                    await self._changed.wait()
                    continue
                for arrival in batch:
                    await self._feed_one(arrival)
                self.end.fed()
                self._carrier.wake()
                self._changed.fire()
        except TransportClosed:
            return  # the process has ended, and `_pump()` finds out how

    async def _lease_holds(self) -> None:
        """Wait until the process may get input. A renewal wakes this, and the loss of the session ends it."""
        while not self.end.lease.holds(self._clock()):
            await self._changed.wait()

    async def _feed_one(self, arrival: StreamArrival) -> None:
        if arrival.kind == Kind.EOF:
            await self.transport.end_input()
        elif arrival.kind == Kind.DATA:
            data = arrival.data
            lines = data[:-1].split(b"\n") if data.endswith(b"\n") else data.split(b"\n")
            await self.admit_lines(lines, size=len(data))
            await self._remember_setup(data)
            merged = self.fields.merged(lines)
            await self._lease_holds()  # the allowance and the broker may have taken long
            await self._write(data if merged is lines else b"\n".join(merged) + b"\n")

    async def _write(self, data: bytes) -> None:
        """Write to the process, as long as the lease goes on. Raises `ConnectionLost` when it ends and the process has not taken all."""
        if self._at_once is not None and data.find(b"\n") == len(data) - 1 and self._at_once.write(data):
            return
        with anyio.CancelScope(deadline=self.end.lease.write_until) as self._writing:
            await self.transport.write(data)
        if self._writing.cancelled_caught:
            message = "the lease was not renewed, and the process did not take its input in the rest of it"
            raise ConnectionLost(message, code="fleet.broker_lost")

    async def _remember_setup(self, data: bytes) -> None:
        """Keep the requests that set the session up, for the worker that comes after this one."""
        if kept := find_setup(data):
            try:
                await self._broker.command("hset", self._broker.keys.setup(self.id), kept)
            except BrokerCut as exc:
                logger.warning("session %s: a request is not kept for the next worker (%s)", self.id, exc)

    async def _follow_store(self) -> None:
        """Let turns be over for the next worker when their transcript is stored, and not before."""
        while self._storage is not None:
            while not self._storage.is_storing():
                self._hold_turns(unstored=False)
                await self._stored.wait()
            await self._storage.wait_stored()

    def _hold_turns(self, *, unstored: bool) -> None:
        self.end.hold_turns(unstored=unstored)
        self._carrier.wake()

    async def _renew(self) -> None:
        """Renew the lease in time. Ends the session when its client is gone for good, or when it was asked to stop."""
        lease = self.end.lease
        while True:
            if self._gap is None:
                # sessions that began together do not renew together
                with anyio.CancelScope(deadline=lease.renew_at - random.uniform(0, lease.seconds / 6)):  # noqa: S311
                    await self._renew_soon.wait()
            if not await self._carrier.carry_out(self.end.renew_call(lease.seconds)):
                continue
            self._writing.deadline = lease.write_until
            if self.end.has_more_to_read:
                self._input.read_on()
            if self._gap is not None:
                self.refuse(self._gap)
                self._gap = None
            if self.end.should_stop:
                self.stop(SessionEnd(code="stopped", error="the session was stopped"))
            elif self.end.others_lease < 0:
                self.stop(SessionEnd(code="lease", error="no client has come back"))

    async def _obey_bye(self) -> None:
        """End the process when the client, the worker or another worker wants it. Input that is for it gets a second to reach it."""
        await self._bye.wait()
        if self._reason is None:
            with anyio.move_on_after(LAST_WRITE):
                while self._awaits_input:
                    await self._changed.wait()
        await close_quietly(self.transport)

    @property
    def _awaits_input(self) -> bool:
        """True while input waits for this process: all that has arrived, but of a session that moves only what is taken."""
        return self.end.owes_feeding if self._leaving else any(each.kind != Kind.BYE for each in self.end.unfed)

    async def _pump(self) -> None:
        """Say the output of the process, until its end."""
        end = SessionEnd()
        try:
            await self.carry_output(self._say, make_room=self._writer_has_room)
        except TurnedAway as exc:
            self.refuse(exc)
        except (TruncatedStream, ProcessError) as exc:
            if tail := torn_tail(exc):
                self.end.say(tail)
        except ClaudeTransportError as exc:
            if not self._bye.is_set():
                end = SessionEnd(code="failed", error=f"reading from the process failed on the worker ({type(exc).__name__})")
        await close_quietly(self.transport)
        if self._leaving:
            return
        info = self.transport.info
        self._said_end = True
        self.end.say_end(
            self._reason
            or msgspec.structs.replace(
                end,
                exit_code=info.exit_code,
                signal=info.signal,
                killed=info.killed,
                stderr_tail=redactor_for(self.transport).text(info.stderr_tail) if info.stderr_tail else "",
                taken=self.end.fed_number,
            )
        )

    async def _writer_has_room(self) -> bool:
        """Wait until the broker takes more, or the session is to end: then its last lines are said all the same."""
        while not self.end.writer.has_room and not self._bye.is_set():
            await self._changed.wait()
        return True

    def _say(self, block: LineBlock) -> bool:
        data = bytes(block) if not self._setup else without_setup_answers(bytes(block))
        self.count_output(len(data))
        if self._storage is not None and self._storage.is_storing():
            self.end.hold_turns(unstored=True)
            self._stored.fire()
        if data:
            self.end.say(data)
        self._carrier.wake()
        return not self.end.writer.has_room

    async def _leave(self) -> None:
        """Say what is left, and give the session back, or end it. A worker that was replaced, or has no broker, does nothing."""
        if self._lost is not None:
            return
        try:
            with anyio.move_on_after(LAST_WORDS):
                await self._carrier.drain()
                await release_session(self._broker, self.id, self.end.token, ended=self._said_end)
        except (BrokerCut, ClaudeTransportError) as exc:
            self._lost = exc if isinstance(exc, ClaudeTransportError) else ConnectionLost(str(exc), code="fleet.broker_lost")
            logger.warning("session %s could not be given back: its lease ends by itself (%s)", self.id, exc)
