"""A session of a fleet as a byte stream: `FleetConnectable` begins one or comes back to one, and `FleetStream` is the client's end of it.

The rules are in `claude_transport.fleet.ends`, the connection is in `fleet/broker.py`. The worker's end is in `fleet/`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import hmac
import logging
import random
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    ProcessError,
    ProtocolError,
    ReplayGap,
    UsageError,
)
from claude_transport.fleet.answers import Attached, entry_of, text_of
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.fleet.carrier import Carrier
from claude_transport.fleet.ends import ClientEnd, decode_struct
from claude_transport.fleet.feed import StreamFeed
from claude_transport.fleet.messages import (
    DEFAULT_WINDOW_BYTES,
    FLEET_VERSIONS,
    Entry,
    Kind,
    Owner,
    Renew,
    SessionEnd,
    Side,
    StreamArrival,
    raise_refusal,
)
from claude_transport.fleet.placement import Node, Wanted, agree_version, rank_nodes
from claude_transport.fleet.roster import ask_table, broker_time, find_nodes, read_home, read_node, wake_node
from claude_transport.fleet.scripts import ATTACH, CREATE, DISCARD
from claude_transport.fleet.takeover import OpenRequests
from claude_transport.link.carrier import LinkInbox
from claude_transport.loggers import logger_for
from claude_transport.loops.alarm import Alarm
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import Wakeup, clock_here
from claude_transport.streams.address import StreamAttribute
from claude_transport.text.printable import printable

logger: logging.Logger = logger_for(__name__)

DEFAULT_START_TIMEOUT: Final = 60.0
"""Seconds for a worker to take a session and start its process, waiting in the queue included."""

CLIENT_LEASE: Final = 60.0
"""Seconds after which a client that is silent counts as gone. Its session then ends, unless another client has come."""

TAKEOVER_SECONDS: Final = 60.0
"""Seconds for which a session without a worker is waited for."""

_UNCLAIMED_SECONDS: Final = 24 * 3600
"""Seconds for which the broker keeps a session that no worker has taken."""

_MEND_PAUSE: Final = 0.5
"""Seconds between two attempts to begin a session in a queue that a worker has to mend."""

_TELLING_SECONDS: Final = 0.05
"""The broker is told in steps of so many seconds what was read. All sessions of a program tell it at the same moments, so their calls go
out together."""

_HANDOVER_PAUSE: Final = 0.01
"""Seconds between two questions of a new client whether the one before has told what it has read."""

HANDOVER_SECONDS: Final = 0.3
"""Seconds for which a new client waits for the one before to tell what it has read, while there are lines that it may have read."""

_CLOSE_SHARE: Final = 0.25
"""The part of the closing time in which input that the broker has not got may still go out."""


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which session is wanted: a new one as `wanted` says, or the running one with the id `session`, behind the entry `since`.

    `said_by` is the token of the worker that said the entry `since`; an empty text when that is not known.

    `keep` is how many entries of the output stay in the broker after they were read.

    `token` proves who asks. Neither it nor anything that it can be found from gets into the broker.
    """

    session: str | None = None
    since: int | None = None
    said_by: str = ""
    token: str | None = None
    wanted: Wanted = Wanted()
    keep: int = 0


def prove(token: str, message: str) -> str:
    """Return a signature of `message`, as hexadecimal text: a proof that its sender knows `token`. The key is the token's SHA-256, which
    workers know.
    """
    return prove_with(hashlib.sha256(token.encode()).digest(), message)


def prove_with(digest: bytes, message: str) -> str:
    """Return the same from the SHA-256 of the token."""
    return hmac.new(digest, message.encode(), hashlib.sha256).hexdigest()


class FleetConnectable(ByteStreamConnectable):
    """Opens a `FleetStream` through the broker at `address`.

    Args:
        address: the broker.
        request: which session.
        window: bytes of input that may wait in the broker.
        start_timeout: seconds for a worker to take the session and start the process.
        close_timeout: seconds that `aclose()` waits for the end of the process.
        patience: seconds for which a lost broker is waited for.
    """

    def __init__(
        self,
        address: BrokerAddress,
        request: SessionRequest,
        *,
        window: int = DEFAULT_WINDOW_BYTES,
        start_timeout: float = DEFAULT_START_TIMEOUT,
        close_timeout: float,
        patience: float = CLIENT_LEASE / 2,
    ) -> None:
        self._address = address
        self.request: SessionRequest = request
        self._window = window
        self._start_timeout = start_timeout
        self._close_timeout = close_timeout
        self._patience = patience

    async def connect(self) -> FleetStream:
        """Begin the session, or come back to it. The process runs when this returns.

        Raises:
            AuthenticationError: the token is missing or not accepted.
            ConfigurationError: the workers refuse an option.
            ConnectTimeout: no worker took the session in time. It was taken out of the queue.
            CLIConnectionError: the broker cannot be reached, a worker could not start the process, or the workers read no version of the
                format that this library knows (`fleet.version`).
            ReplayGap: entries behind `since` are not kept any more.
        """
        broker = Broker.shared(self._address)
        deadline = anyio.current_time() + self._start_timeout
        await broker.start(timeout=self._start_timeout)
        stream: FleetStream | None = None
        try:
            with anyio.move_on_at(deadline):
                name = self.request.session or self._new_name()
                nodes, now = await self._agreed(broker, name)
                session, end, is_new = await self._admitted(broker, name)
                stream = FleetStream(broker, session, end, window=self._window, close_timeout=self._close_timeout, patience=self._patience)
                if is_new:
                    await self._enqueue(broker, session, nodes, now=now)
                    await stream.started()
                return stream
            self._too_late()
        except BaseException as exc:
            with anyio.CancelScope(shield=True):
                await (broker.aclose() if stream is None else stream.abandon())
            if isinstance(exc, BrokerCut | ConnectionLost | ProtocolError) and not isinstance(exc, ReplayGap):
                raise CLIConnectionError(f"{self._address}: {exc}", code=getattr(exc, "code", "fleet.broker_lost")) from exc
            raise

    def _new_name(self) -> str:
        owner = self._address.owner
        return f"{owner}.{secrets.token_hex(8)}" if owner else secrets.token_hex(8)

    async def _agreed(self, broker: Broker, session: str) -> tuple[list[Node], float]:
        """Choose the version of a new session, or check that of a running one. Returns the workers, and the broker's time."""
        if self.request.session is not None:
            await check_version(broker, self.request.session)
            return [], 0.0
        now, wanted = await broker_time(broker), self.request.wanted
        nodes = (await find_nodes(broker, wanted.labels, near=[session], now=now)).nodes
        version = agree_version(nodes, wanted, now=now)
        if version is None:
            theirs = {read for node in nodes for read in node.versions}
            raise _other_version(f"the workers of {self._address} read version {_listed(theirs)} of the format of a fleet")
        self.request = msgspec.structs.replace(self.request, wanted=msgspec.structs.replace(wanted, version=version))
        return nodes, now

    def _too_late(self) -> NoReturn:
        raise ConnectTimeout(f"{self._address}: no worker took the session in {self._start_timeout:g} s", waited=self._start_timeout)

    async def _admitted(self, broker: Broker, session: str) -> tuple[str, ClientEnd, bool]:
        request, nonce = self.request, secrets.token_hex(4)
        lease = int(CLIENT_LEASE * 1000)
        if request.session is None:
            wanted = msgspec.json.encode(request.wanted)
            fields: list[Any] = ["v", request.wanted.version, "q", wanted, "cw", self._window]
            if request.keep:
                fields += ["kp", request.keep]
            if request.token is not None:
                shown = prove(request.token, f"attach {session}")
                fields += ["k", hashlib.sha1(shown.encode(), usedforsecurity=False).hexdigest()]
                fields += ["p", prove(request.token, f"begin {session} {wanted.decode()}")]
            await broker.script(CREATE, [broker.keys.meta(session)], [f"1.{nonce}", lease, _UNCLAIMED_SECONDS * 1000, *fields])
            return session, ClientEnd(f"1.{nonce}", window=self._window), True
        shown = "" if request.token is None else prove(request.token, f"attach {session}")
        answer = await self._attached(broker, session, [nonce, lease, shown, self._window])
        match text_of(answer[0]):
            case "GONE":
                raise UsageError(
                    f"the fleet has no session {printable(session, at_most=64)}: it has ended, or never began", code="fleet.no_session"
                )
            case "DENIED":
                raise AuthenticationError("this token did not begin the session")
        place = Attached.of(answer)
        cursor = place.read if request.since is None else request.since
        others = place.worker != request.said_by and cursor > place.worker_base
        await self._check_said_by(broker, session, cursor, others=others)
        await self._check_kept(broker, session, cursor, token=place.token, read=place.read, last=place.worker_last)
        end = ClientEnd(place.token, last=place.last, taken=place.taken, cursor=cursor, told=place.read, window=self._window)
        return session, end, place.state == "new"

    async def _attached(self, broker: Broker, session: str, args: list[Any]) -> list[Any]:
        """Take the place of the client before. Without `since`, give it a moment to tell the last that it has read, if it lives."""
        keys = [broker.keys.meta(session)]
        if self.request.since is not None:
            return await broker.script(ATTACH, keys, args)
        answer = await broker.script(ATTACH, keys, [*args, 1])
        until = anyio.current_time() + HANDOVER_SECONDS
        while text_of(answer[0]) == "OK" and (place := Attached.of(answer)).others_lease and place.read < place.worker_last:
            if anyio.current_time() > until:
                break
            await anyio.sleep(_HANDOVER_PAUSE)
            answer = await broker.script(ATTACH, keys, [*args, 1])
        return await broker.script(ATTACH, keys, args)

    async def _check_said_by(self, broker: Broker, session: str, cursor: int, *, others: bool) -> None:
        """Raise `ReplayGap` when another worker has said the entry `cursor` than the one that this client has heard.

        Args:
            broker: the connection.
            session: the id of the session.
            cursor: the number of the entry.
            others: another worker has it now, which began before this entry.
        """
        said_by = self.request.said_by
        if not said_by:
            return
        key = broker.keys.outgoing(session)
        found = await broker.command("xrange", key, f"{cursor}-0", f"{cursor}-0")
        if others or any(entry_of(row[0], row[1]).token != said_by for row in found):
            raise ReplayGap(f"the broker has lost what the session said up to the position {cursor}, and has other lines there now")

    async def _check_kept(self, broker: Broker, session: str, cursor: int, *, token: str, read: int, last: int) -> None:
        """Raise `ReplayGap` when entries behind `cursor` are not kept any more, or never were; `ConnectionLost` when `token` is old."""
        if cursor > last:
            raise ReplayGap(f"since is {cursor}, but the last position of the session is {last}")
        if cursor < read:
            found = await broker.command("xrange", broker.keys.outgoing(session), f"{cursor + 1}-0", f"{cursor + 1}-0")
            if not found:
                raise_refusal(await broker.call(session, Renew(Side.CLIENT, token, CLIENT_LEASE)), token=token)
                raise ReplayGap(f"what the session said behind the position {cursor} is not kept any more; {read} is the oldest")

    async def _queue_up(self, broker: Broker, session: str) -> None:
        """Put the session into the queue. The next worker that looks makes a queue of another type anew; the caller bounds the wait."""
        while await ask_table(broker, "zadd", broker.keys.part_of(session).queue, {session: 0}, default=None) is None:
            logger.info("the session waits for a worker that mends the queue")
            await anyio.sleep(_MEND_PAUSE)

    async def _enqueue(self, broker: Broker, session: str, nodes: list[Node], *, now: float) -> None:
        """Put the session where workers look, and wake the best one."""
        await self._queue_up(broker, session)
        wanted = self.request.wanted
        home = await read_home(broker, wanted.workspace) if wanted.workspace else None
        if home is not None and (node := await read_node(broker, home)) is not None:
            nodes = [*(each for each in nodes if each.id != home), node]
        ranked = rank_nodes(nodes, wanted, now=now, session=session, home=home)
        if ranked:
            await wake_node(broker, ranked[0].id, about=(session,))


async def check_version(broker: Broker, session: str) -> None:
    """Raise `CLIConnectionError` (`fleet.version`) when this library does not know the version of a session."""
    said = await broker.command("hget", broker.keys.meta(session), "v")
    version = "1" if said is None else text_of(said)
    if version not in map(str, FLEET_VERSIONS):
        shown = printable(version, at_most=16)
        raise _other_version(f"the session {printable(session, at_most=64)} has version {shown} of the format of a fleet")


def _other_version(what: str) -> CLIConnectionError:
    message = f"{what}, and this library knows version {_listed(FLEET_VERSIONS)}: update the older of the two"
    return CLIConnectionError(message, code="fleet.version", retryable=False)


def _listed(versions: Iterable[int]) -> str:
    return ", ".join(str(each) for each in sorted(versions)[:8]) or "none"


def _code_of(end: SessionEnd) -> str | None:
    """Return the code of an error for the word of a worker; None when it is no word: programs write codes into logs and tables."""
    return f"fleet.{end.code}" if end.code.isidentifier() else None


class FleetStream(ByteStream):
    """Bytes to and from the process of a session.

    After the last byte, `receive()` raises `EndOfStream` when the process ended well, and `ProcessError` when it did not. It raises
    `ConnectionLost` when this end was replaced (`fleet.fenced`), the broker has lost the session (`fleet.gone`), or it or a worker
    was not there again in time (`fleet.broker_lost`, `fleet.no_worker`).
    """

    def __init__(self, broker: Broker, session: str, end: ClientEnd, *, window: int, close_timeout: float, patience: float) -> None:
        self.session: str = session
        self._broker = broker
        self._end = end
        self._window = window
        self._close_timeout = close_timeout
        self._inbox = LinkInbox()
        self._open = OpenRequests()
        self._numbers: list[tuple[int, int]] = []  # (position in the inbox, number of the entry that ends there)
        self._put = 0
        self._over: Exception | None = None
        self._session_end: SessionEnd | None = None
        self._owner: Owner | None = None
        self._closing = False
        self._input_ended = False
        self._started_at = dt.datetime.now(dt.UTC)
        self._readable = Wakeup()
        self._changed = Wakeup()
        self._clock = clock_here()
        self._telling = Alarm(self._tell_now)
        self._taken_at_alarm = 0  # what the inbox had given when the alarm was set
        self._should_tell = False
        self._tell_woken = Wakeup()
        self._sending = anyio.ResourceGuard("writing to")
        self._receiving = anyio.ResourceGuard("reading from")
        self._carrier = Carrier(broker, session, end, patience=patience, on_change=self._answered)
        self._feed = StreamFeed(
            broker,
            broker.keys.outgoing(session),
            self._carrier,
            take=self._take_all,
            has_room=lambda: self._closing or self._put - self._inbox.taken < self._window,
            patience=CLIENT_LEASE,
        )
        self._task = LoopTask.spawn(self._run, name=f"fleet session {session}", at_end=self._task_over)

    # What users of the stream see.

    @property
    def position(self) -> int:
        """The number of the last entry of which everything was received. A client elsewhere goes on behind it."""
        return self._end.consumed_number

    @property
    def said_by(self) -> str:
        """The token of the worker that said the entry at `position`; an empty text when that is not known."""
        return self._end.reader.writer_of(self.position)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Wait for at least one byte of the process's output, and return at most `max_bytes`."""
        with self._receiving:
            if self._inbox:
                await anyio.lowlevel.checkpoint()
            while True:
                if self._closing:
                    raise anyio.ClosedResourceError
                if self._inbox:
                    # no await between taking and returning: a cancellation finds the bytes either here or with the caller
                    data = self._inbox.take(max_bytes)
                    self._note_taken()
                    return data
                if self._over is not None:
                    await anyio.lowlevel.checkpoint()
                    raise self._over
                await self._readable.wait()

    def _note_taken(self) -> None:
        done = 0
        while done < len(self._numbers) and self._numbers[done][0] <= self._inbox.taken:
            done += 1
        if done:
            self._consumed(self._numbers[done - 1][1])
            del self._numbers[:done]
            self._changed.fire()
            self._feed.wake()

    def _consumed(self, number: int) -> None:
        """Note that the program has everything up to this entry, and tell the broker soon: now after a quarter of the window."""
        self._end.consumed(number)
        self._tell_soon()

    def _answered(self) -> None:
        """The broker has answered. It may not know what it was told before: it can have lost that."""
        self._changed.fire()
        if self._end.owes_take:
            self._tell_soon()

    def _tell_soon(self) -> None:
        if not self._telling.is_set:
            self._taken_at_alarm = self._inbox.taken
            with contextlib.suppress(RuntimeError):  # the event loop is ending, and this session with it
                self._telling.set((round(self._clock() / _TELLING_SECONDS) + 1) * _TELLING_SECONDS)
        elif self._inbox.taken - self._taken_at_alarm >= self._window // 4:
            self._telling.cancel()
            self._tell_now()

    def _tell_now(self) -> None:
        self._should_tell = True
        self._tell_woken.fire()

    async def send(self, item: bytes) -> None:
        """Queue all of `item`. Waits while the window is full: the process, or the broker, does not take it."""
        with self._sending:
            await anyio.lowlevel.checkpoint_if_cancelled()
            self._refuse_if_unwritable()
            self._end.writer.put(bytes(item))
            self._open.said(item, number=self._end.writer.last)
            self._carrier.wake()
            while not self._end.writer.has_room:
                await self._changed.wait()
                self._refuse_if_unwritable()

    async def send_eof(self) -> None:
        """End the process's input after all that was sent."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        if not self._closing:
            self._say(Kind.EOF)

    def _say(self, kind: Kind) -> None:
        if kind == Kind.EOF:
            if self._input_ended:
                return
            self._input_ended = True
        self._end.writer.put_control(kind)
        self._carrier.wake()

    def _refuse_if_unwritable(self) -> None:
        if self._closing:
            raise anyio.ClosedResourceError
        if self._over is not None:
            raise anyio.BrokenResourceError from self._over

    async def aclose(self) -> None:
        """End the process and wait for its exit status, at most `close_timeout` seconds, also when cancelled meanwhile."""
        self._closing = True
        self._notify()
        self._feed.wake()
        try:
            with anyio.move_on_after(self._close_timeout):
                if self._over is None:
                    with anyio.move_on_after(self._close_timeout * _CLOSE_SHARE):
                        while self._end.writer.has_unsaid and not self._task.finished:
                            await self._changed.wait()
                    self._say(Kind.BYE)
                while self._over is None:
                    await self._changed.wait()
        finally:
            await self._end_task()

    async def abandon(self) -> None:
        """Give up a session that did not begin: out of the queue, or ended by its worker. Bounded by a call of the broker."""
        if self._over is None:
            try:
                keys = self._broker.keys
                where = [keys.meta(self.session), keys.incoming(self.session), keys.outgoing(self.session)]
                answer = await self._broker.script(DISCARD, where, [self._end.token])
                if text_of(answer[0]) == "LIVE":
                    self._say(Kind.BYE)
                    with anyio.move_on_after(1.0):
                        await self._carrier.drain()
                else:
                    await self._broker.command("zrem", keys.part_of(self.session).queue, self.session)
            except (BrokerCut, ClaudeTransportError):
                logger.info("a session that did not begin stays in the broker until its time is over")
        await self._end_task()

    async def detach(self) -> None:
        """Leave the session without ending it, after all that was sent. Another client may come back to it within the lease."""
        with anyio.move_on_after(self._close_timeout):
            while self._end.writer.has_unsaid and self._over is None:
                await self._changed.wait()
            while (call := self._end.take_call()) is not None and self._over is None:
                await self._carrier.carry_out(call)
        self._closing = True
        self._notify()
        await self._end_task()

    async def _end_task(self) -> None:
        self._task.cancel()
        await self._task.join()
        await self._broker.aclose()

    # What runs in the background.

    async def started(self) -> None:
        """Wait until the process runs. The caller bounds the wait. Raises what kept it from starting."""
        while self._owner is None:
            if self._over is not None:
                raise self._start_error(self._over)
            await self._changed.wait()

    def _start_error(self, over: Exception) -> Exception:
        end = self._session_end
        if end is not None and end.code:
            reason = "" if end.error is None else end.error
            said = reason or end.code
            match end.code:
                case "auth":
                    return AuthenticationError(said, reason=reason)
                case "options":
                    return ConfigurationError(said, option="options", reason=reason)
                case _:
                    return CLIConnectionError(said, code=_code_of(end), retryable=end.retryable, reason=reason)
        return ConnectionLost("the session has ended") if isinstance(over, anyio.EndOfStream) else over

    async def _run(self) -> None:
        failure: list[ClaudeTransportError] = []

        async def part(work: Callable[[], Any]) -> None:
            try:
                await work()
            except ClaudeTransportError as exc:
                failure.append(exc)
                if exc.code == "fleet.fenced":
                    self._inbox.clear()  # the client that has taken this one's place gets these lines
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                for work in (self._carrier.append_all, self._read, self._tell, self._renew):
                    tasks.start_soon(part, work)
        finally:
            self._telling.cancel()
        if failure:
            if failure[0].code == "fleet.fenced":
                await self._tell_last()
            self._finish(failure[0])

    async def _tell_last(self) -> None:
        """Tell what was read until another client took this one's place, which waits for it a moment."""
        if (call := self._end.take_call()) is not None:
            with contextlib.suppress(BrokerCut, ClaudeTransportError):
                await self._broker.call(self.session, call)

    async def _read(self) -> None:
        """Take the output, until the end of the session."""
        try:
            await self._feed.run(until=lambda: self._over is not None)
        except ReplayGap:
            # a client that has taken this one's place lets the broker forget what it has read: then this raises `fleet.fenced`
            await self._carrier.carry_out(self._end.renew_call(CLIENT_LEASE))
            raise

    def _take_all(self, entries: Sequence[Entry]) -> None:
        for arrival in self._end.arrived(entries):
            self._take(arrival)
        self._notify()

    def _take(self, arrival: StreamArrival) -> None:
        match arrival.kind:
            case Kind.DATA:
                self._open.heard(arrival.data)
                self._put_in(arrival.data, arrival.number)
                return
            case Kind.OWNER:
                self._owner = owner = decode_struct(arrival.data, Owner)
                for line in self._open.answers_after(owner.taken):  # the first worker has taken nothing
                    self._put_in(line, arrival.number)
            case Kind.END:
                self._session_end = end = decode_struct(arrival.data, SessionEnd)
                self._finish(self._how_it_ended(end))
        if not self._numbers:
            self._consumed(arrival.number)
        else:
            self._numbers[-1] = (self._numbers[-1][0], arrival.number)

    def _put_in(self, data: bytes, number: int) -> None:
        if self._closing:
            self._consumed(number)
            return
        self._inbox.put(data)
        self._put += len(data)
        self._numbers.append((self._put, number))

    def _how_it_ended(self, end: SessionEnd) -> Exception:
        if end.exit_code or end.signal is not None:
            how = f"exit code {end.exit_code}" if end.signal is None else f"signal {end.signal}"
            return ProcessError(
                f"the far process ended with {how}", exit_code=end.exit_code, signal=end.signal, stderr_tail=end.stderr_tail
            )
        if end.error is not None or end.code:
            reason = "" if end.error is None else end.error
            return ConnectionLost(reason or f"the session has ended ({end.code})", code=_code_of(end), reason=reason)
        if end.taken < self._end.writer.last:
            message = f"the far process ended well, but was not given the end of its input ({self._end.writer.last - end.taken} entries)"
            return ConnectionLost(message, code="connection.input_lost")
        return anyio.EndOfStream()

    async def _tell(self) -> None:
        """Tell the broker what was read, whenever it is time. A client that comes back may know more than the broker at once."""
        if self._end.owes_take:
            self._tell_soon()
        while True:
            while not self._should_tell:
                await self._tell_woken.wait()
            self._should_tell = False
            call = self._end.take_call()
            if call is not None:
                await self._carrier.carry_out(call)

    async def _renew(self) -> None:
        """Keep the session, and notice when no worker has it."""
        missed_since: float | None = None
        while True:
            await anyio.sleep(CLIENT_LEASE / random.uniform(6, 12))  # noqa: S311 - clients that began together do not renew together
            if await self._carrier.carry_out(self._end.renew_call(CLIENT_LEASE)) and self._end.has_more_to_read:
                self._feed.read_on()
            if self._owner is None or self._end.others_lease > 0:
                missed_since = None
                continue
            missed_since = anyio.current_time() if missed_since is None else missed_since
            if anyio.current_time() - missed_since > TAKEOVER_SECONDS:
                raise ConnectionLost(f"no worker has had the session for {TAKEOVER_SECONDS:g} s", code="fleet.no_worker")

    def _finish(self, over: Exception) -> None:
        if self._over is None:
            self._over = over
        self._notify()

    def _task_over(self) -> None:
        self._finish(ConnectionLost("the session was given up"))

    def _notify(self) -> None:
        self._readable.fire()
        self._changed.fire()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        end = self._session_end or SessionEnd()
        return {
            StreamAttribute.address: lambda: str(self._broker.address),
            StreamAttribute.exit_code: lambda: end.exit_code,
            StreamAttribute.signal: lambda: end.signal,
            StreamAttribute.killed: lambda: end.killed,
            StreamAttribute.stderr_tail: lambda: end.stderr_tail,
            StreamAttribute.started_at: lambda: self._started_at,
            StreamAttribute.ended: lambda: self._over is not None,
        }
