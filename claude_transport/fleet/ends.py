"""The two ends of a session of a fleet: `ClientEnd`, beside the program that talks, and `WorkerEnd`, beside the process.

An end is asked for its next calls (`append_call()`, `take_call()`, `renew_call()`, `sync_call()`). The caller lets the broker carry them
out, one of each kind at a time, and gives the answer to `answered()`. After a lost connection it gives the call to `unanswered()`, and
carries out a `sync_call()` before anything else. Entries that were read go to `arrived()`. Nothing here waits or looks at a clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from claude_transport.errors import ProtocolError
from claude_transport.fleet.answers import count_of
from claude_transport.fleet.messages import (
    DEFAULT_KEEP_BYTES,
    DEFAULT_WINDOW_BYTES,
    MAX_HELD_BYTES,
    Append,
    Appended,
    Call,
    Entry,
    FleetReader,
    FleetWriter,
    Gap,
    Kind,
    Lease,
    Owner,
    Renew,
    Renewed,
    Reply,
    SessionEnd,
    Side,
    StreamArrival,
    Sync,
    Synced,
    Take,
    Taken,
    raise_refusal,
)
from claude_transport.protocol.claude_turns import ClaudeTurns, is_prompt
from claude_transport.protocol.framing import LineBlock

FEED_BYTES: Final = 64 * 2**10
"""Bytes that a worker takes at once. It takes more when the process has received them."""

LEASE_SECONDS: Final = 15.0
"""Seconds after which another worker may take a session whose worker is silent."""

LEASE_MARGIN: Final = 3.0
"""Seconds before the end of its lease at which a worker stops to feed its process, at most a quarter of the lease.

A write that has begun is cut after half of this time, unless the lease is renewed meanwhile. So it needs no longest time of its own, and a
lease may be short. The clock of the worker may go too slow by the other half.
"""

_FOR_EACH_PROCESS: Final = (Kind.EOF, Kind.BYE)
"""Entries that the process of each worker gets, also when an earlier one had them."""


def _prompt_lines(arrival: StreamArrival) -> list[bytes]:
    """Return the lines of what has arrived with which a turn begins."""
    return [line for line in arrival.data.split(b"\n") if is_prompt(line)] if arrival.kind == Kind.DATA else []


def _prompts_in(arrival: StreamArrival) -> int:
    """Return how many turns begin with what has arrived."""
    return len(_prompt_lines(arrival))


class FleetEnd(ABC):
    """What both ends have in common: a writer, a reader, and a token with which the broker lets them write."""

    side: Side

    def __init__(self, token: str, *, writer: FleetWriter, reader: FleetReader) -> None:
        self.token: str = token
        self.writer: FleetWriter = writer
        self.reader: FleetReader = reader
        self.others_lease: float = 0.0
        """Seconds until the lease of the other end ends, when it was last renewed; below 0 it has ended. It is 0 before the first time."""
        self.should_stop: bool = False
        """True when the session was asked to stop."""
        self.has_more_to_read: bool = False
        """True when the stream of the other end had more entries than were read, when the lease was last renewed."""

    def append_call(self) -> Append | None:
        """Return the next append; None when there is nothing to say, or one has no answer yet."""
        first, entries = self.writer.next_entries()
        return Append(self.side, self.token, first, entries) if entries else None

    def sync_call(self, *, polls: bool = False) -> Sync:
        """Return the question that finds out what a lost connection, or a broker that started again, has changed.

        With `polls`, the connection was not lost, and the question is whether there is room again.
        """
        reader = self.reader
        return Sync(self.side, self.token, reader.cursor, reader.token, self._taken, said=self.writer.said, polls=polls)

    @property
    @abstractmethod
    def _taken(self) -> int:
        """The number up to which the broker has acknowledged that this end takes entries."""

    def renew_call(self, seconds: float) -> Renew:
        """Return the call that renews the lease for `seconds`."""
        return Renew(self.side, self.token, seconds, self.reader.cursor)

    def answered(self, call: Call, reply: Reply, *, asked_at: float, now: float) -> None:
        """Note the answer to `call`, which was made at `asked_at`.

        Raises:
            ConnectionLost: this end is over (`fleet.fenced`, `fleet.gone`).
            ReplayGap: the broker has lost more than this end keeps.
            ProtocolError: the answer is not one to this call.
        """
        raise_refusal(reply, token=self.token)
        match reply:
            case Appended() if isinstance(call, Append):
                self.writer.appended(reply.last, reply.taken, now=now, asked_at=asked_at, used=reply.used)
            case Gap() if isinstance(call, Append):
                self.writer.lost(reply.last)
            case Synced() if isinstance(call, Sync):
                if not call.polls:
                    self.writer.keep_again(now=now)
                self._synced(reply, asked_at=asked_at, now=now)
            case Renewed() if isinstance(call, Renew):
                self.others_lease, self.should_stop, self.has_more_to_read = reply.other, reply.stop, reply.more
                self._renewed(asked_at)
            case Taken() if isinstance(call, Take):
                self._took(call, reply)
            case _:
                raise ProtocolError("the broker has answered another question", code="fleet.malformed")

    def unanswered(self, call: Call) -> None:
        """Note that the connection was lost before the answer to `call`, which may or may not have been carried out."""
        if isinstance(call, Append):
            self.writer.unanswered()

    def _synced(self, reply: Synced, *, asked_at: float, now: float) -> None:
        self.reader.synced(reply)
        if reply.last < self.writer.said:
            self.writer.lost(reply.last)
        self.writer.appended(reply.last, reply.taken, now=now, asked_at=asked_at, used=reply.used)

    def _renewed(self, asked_at: float) -> None:  # noqa: B027 - not each end does something then
        """Note when the lease was asked for."""

    @abstractmethod
    def _took(self, call: Take, reply: Taken) -> None:
        """Note that the broker knows what this end has taken."""


class ClientEnd(FleetEnd):
    """The end of the program that talks to the process.

    Args:
        token: its token.
        last: the last number of its stream.
        taken: how many of them the worker has taken.
        cursor: the number of the last entry that the program has got.
        told: the last number of which the broker knows that it was consumed; None is the same as `cursor`.
        window: bytes that it may be ahead of what the process has received.
        keep_bytes: bytes that are kept for a broker that loses its last second.
        max_held_bytes: the most bytes of an unfinished line.
    """

    side = Side.CLIENT

    def __init__(
        self,
        token: str,
        *,
        last: int = 0,
        taken: int = 0,
        cursor: int = 0,
        told: int | None = None,
        window: int = DEFAULT_WINDOW_BYTES,
        keep_bytes: int = DEFAULT_KEEP_BYTES,
        max_held_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        super().__init__(
            token,
            writer=FleetWriter(last=last, taken=taken, window=window, keep_bytes=keep_bytes),
            reader=FleetReader(cursor=cursor, max_held_bytes=max_held_bytes, passes_on=True),
        )
        self._consumed = cursor
        self._told = cursor if told is None else min(told, cursor)

    @property
    def consumed_number(self) -> int:
        """The number of the last entry of which the program has got everything."""
        return self._consumed

    @property
    def owes_take(self) -> bool:
        """True while the broker does not know what was consumed."""
        return self._consumed > self._told

    def arrived(self, entries: Iterable[Entry]) -> list[StreamArrival]:
        """Return what is new. Raises as `FleetReader.take()` does."""
        return self.reader.take(entries)

    def consumed(self, number: int) -> None:
        """Note that the program has got everything up to the entry `number`."""
        self._consumed = max(self._consumed, number)

    def take_call(self) -> Take | None:
        """Return the call that tells what was consumed; None when the broker knows it."""
        return Take(self.side, self.token, self._consumed) if self.owes_take else None

    @property
    def _taken(self) -> int:
        return self._told

    def _synced(self, reply: Synced, *, asked_at: float, now: float) -> None:
        super()._synced(reply, asked_at=asked_at, now=now)
        self._consumed = min(self._consumed, self.reader.cursor)
        self._told = min(self._told, self._consumed)

    def _took(self, call: Take, reply: Taken) -> None:
        self._told = max(self._told, call.upto)


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker knew of a session when a worker took it. `token` is the new one; `turns_begun` and `turns_over` are counts."""

    token: str
    in_taken: int = 0
    in_token: str = ""
    out_last: int = 0
    out_taken: int = 0
    turns_begun: int = 0
    turns_over: int = 0
    turns_stored: int = 0

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Claimed:
        """Read the hash of a session. Raises `ProtocolError` for fields that no script writes."""
        return cls(
            token=str(fields.get("we", "")),
            in_taken=count_of(fields.get("wi")),
            in_token=str(fields.get("ce", "")),
            out_last=count_of(fields.get("wo")),
            out_taken=count_of(fields.get("co")),
            turns_begun=count_of(fields.get("tt", 0)),
            turns_over=count_of(fields.get("td", 0)),
            turns_stored=count_of(fields.get("ts", 0)),
        )

    @property
    def is_takeover(self) -> bool:
        """True when another worker had the session before, and has said or taken anything. Before that there is nothing to take over."""
        return not self.token.startswith("1.") and bool(self.out_last or self.in_taken or self.turns_begun)

    @property
    def uncertain(self) -> int:
        """How many turns had begun and were not over."""
        return max(self.turns_begun - self.turns_over, 0)

    @property
    def unstored(self) -> int:
        """How many turns were over, but not in the session store."""
        return max(self.turns_over - self.turns_stored, 0)


class WorkerEnd(FleetEnd):
    """The end of the process. Input is written down as taken before the process gets it, so no worker ever repeats it."""

    side = Side.WORKER

    def __init__(
        self,
        claimed: Claimed,
        *,
        asked_at: float,
        lease: float = LEASE_SECONDS,
        window: int = DEFAULT_WINDOW_BYTES,
        keep_bytes: int = DEFAULT_KEEP_BYTES,
        max_line_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        super().__init__(
            claimed.token,
            writer=FleetWriter(last=claimed.out_last, taken=claimed.out_taken, window=window, keep_bytes=keep_bytes),
            reader=FleetReader(cursor=claimed.in_taken, max_held_bytes=max_line_bytes),
        )
        self.lease: Lease = Lease(seconds=lease, margin=min(LEASE_MARGIN, lease / 4))
        self.lease.granted(asked_at=asked_at)
        self._waiting: deque[StreamArrival] = deque()
        self._batch: list[StreamArrival] = []  # asked for
        self._feeding: list[StreamArrival] = []  # written down, and not fed yet
        self._fed = claimed.in_taken
        self._fed_told = claimed.in_taken
        self._fed_bytes = 0  # that the broker does not know of
        self._others_window = 0
        self._taken_to = claimed.in_taken
        self._ends_at: int | None = None  # the first entry that the process of each worker gets
        self._begun = claimed.turns_begun
        self._turns = ClaudeTurns(begun=claimed.turns_begun, over=claimed.turns_over)
        self._is_over = False
        self._stored = claimed.turns_stored
        self._told = (claimed.turns_over, claimed.turns_stored)
        self._takes = True
        self._unstored = False
        self.waiting_bytes: int = 0
        """Bytes of input that have arrived and were not fed."""

    # Input.

    def arrived(self, entries: Iterable[Entry]) -> list[StreamArrival]:
        """Queue what is new for the process, and return it. Raises as `FleetReader.take()` does."""
        new = self.reader.take(entries)
        if self._ends_at is None:
            self._ends_at = next((each.number for each in new if each.kind in _FOR_EACH_PROCESS), None)
        self._waiting.extend(new)
        self.waiting_bytes += sum(len(each.data) for each in new)
        return new

    def take_call(self) -> Take | None:
        """Return the call that writes the next input down as taken; None when there is none, or the process has not got the last.

        The end of the input is not taken: the process of the next worker needs it, too.
        """
        if not self._takes or self._feeding or self._batch or not self._waiting:
            return None
        if self._waiting[0].kind in _FOR_EACH_PROCESS:
            self._feeding.append(self._waiting.popleft())
            return None
        size, begun = 0, 0
        while self._waiting and size < FEED_BYTES and self._waiting[0].kind not in _FOR_EACH_PROCESS:
            each = self._waiting.popleft()
            size += len(each.data)
            begun += _prompts_in(each)
            self._batch.append(each)
        self._begun += begun
        return Take(self.side, self.token, self._batch[-1].number, self._begun if begun else None, self._fed)

    def stop_taking(self) -> None:
        """Leave all input that is not taken yet to the next worker: the process of this one is about to end."""
        self._takes = False

    @property
    def owes_feeding(self) -> bool:
        """True while input is taken, or asked for, that the process has not received. No other worker feeds it."""
        return bool(self._batch or self._feeding)

    @property
    def _taken(self) -> int:
        return self._taken_to

    def sync_call(self, *, polls: bool = False) -> Sync:
        """Return the question of `FleetEnd.sync_call()`.

        What the broker has lost, the client says again for the next worker: the end of the input, and all that is not taken when this
        worker takes no more. So it counts as not read.
        """
        over, stored = self._told  # with the results that the broker has acknowledged
        heard = self._begun + (sum(map(_prompts_in, self._waiting)) if self._takes else 0)
        known = {"begun": self._turns.begun, "over": over, "stored": stored, "fed": self._fed, "heard": heard}
        call = super().sync_call(polls=polls)
        read = call.cursor if self._ends_at is None else self._ends_at - 1
        return msgspec.structs.replace(call, cursor=read if self._takes else self._taken_to, **known)

    def _took(self, call: Take, reply: Taken) -> None:
        self._taken_to = max(self._taken_to, call.upto)
        self._others_window = reply.window
        self._told_fed(call.fed)
        if self._batch and call.upto == self._batch[-1].number:
            self._feeding, self._batch = self._batch, []
            for each in self._feeding:
                self._turns.said(_prompt_lines(each))

    def unanswered(self, call: Call) -> None:
        """Note that the connection was lost. Input of an unanswered `take_call()` waits again."""
        super().unanswered(call)
        if isinstance(call, Take):
            self._waiting.extendleft(reversed(self._batch))
            self._batch = []
            self._begun = self._turns.begun

    def to_feed(self, now: float) -> list[StreamArrival]:
        """Return the input that the process gets now; nothing while the lease does not hold."""
        return self._feeding if self.lease.holds(now) else []

    def fed(self) -> None:
        """Note that the process has received the input of `to_feed()`."""
        for each in self._feeding:
            self.waiting_bytes -= len(each.data)
            self._fed_bytes += len(each.data)
            self._fed = min(each.number, self.reader.cursor)
        self._feeding = []

    def _told_fed(self, fed: int | None) -> None:
        """Note that the broker knows that the process has received the entries up to `fed`."""
        if fed is not None and fed > self._fed_told:
            self._fed_told = fed
            if fed == self._fed:
                self._fed_bytes = 0

    @property
    def _owes_fed(self) -> bool:
        """True while the client may wait for room that the process has made."""
        return self._fed > self._fed_told and 0 < self._others_window <= 4 * self._fed_bytes

    @property
    def fed_number(self) -> int:
        """The number of the last entry that the process has received."""
        return self._fed

    @property
    def unfed(self) -> list[StreamArrival]:
        """What has arrived and the process has not received."""
        return [*self._feeding, *self._batch, *self._waiting]

    @property
    def has_input(self) -> bool:
        """True while input has arrived that the process has not received."""
        return bool(self._waiting or self._batch or self._feeding)

    # Output.

    def begin(self, owner: Owner) -> None:
        """Say first that this worker has the session. Turns of an earlier worker are over: they are told as uncertain, never repeated."""
        self.writer.put_control(Kind.OWNER, msgspec.json.encode(owner))
        self._turns.rest()

    def say(self, data: bytes) -> None:
        """Queue whole lines of the process, or the rest after its last newline. Notes the turns that they end."""
        self._turns.heard(LineBlock(b"", data, len(data), data.count(b"\n")), exactly=True)
        self.writer.put(data)

    @property
    def _over(self) -> int:
        """How many turns are over. Those of input whose taking is not acknowledged are, too, once the process has ended."""
        return self._begun if self._is_over else self._turns.over

    def say_end(self, end: SessionEnd) -> None:
        """Say how the session ended, after everything else."""
        self.writer.put_control(Kind.END, msgspec.json.encode(end))
        self._is_over = True

    def hold_turns(self, *, unstored: bool) -> None:
        """Say whether a part of the transcript waits to be stored. A worker that takes the session reports the turns before it."""
        self._unstored = unstored
        if not unstored:
            self._stored = self._over

    @property
    def busy(self) -> bool:
        """True while a turn runs, or input waits."""
        return (self._turns.busy and not self._is_over) or self.has_input

    @property
    def turn_may_follow(self) -> bool:
        """True when no turn is known to run, but the process may not have read all prompts yet."""
        return not self._is_over and self._turns.turn_may_follow

    def append_call(self) -> Append | None:
        """Return the next append, with the turns that are over once everything before is said; None when there is nothing to say."""
        call = super().append_call()
        if not self._unstored:
            self._stored = self._over
        is_news = (self._over, self._stored) != self._told
        if call is None:
            if self.writer.is_appending or not (is_news or self._owes_fed):
                return None
            call = Append(self.side, self.token, self.writer.said + 1, ())
        if self._fed > self._fed_told:
            call = msgspec.structs.replace(call, fed=self._fed)
        if is_news and call.first + len(call.entries) - 1 == self.writer.last:
            call = msgspec.structs.replace(call, turns=self._over, stored=self._stored)
        return call

    def answered(self, call: Call, reply: Reply, *, asked_at: float, now: float) -> None:
        """Note the answer to `call`. Raises as `FleetEnd.answered()` does."""
        said = self.writer.said
        super().answered(call, reply, asked_at=asked_at, now=now)
        if self.writer.said < said:  # the results are lost, and with them that their turns are over
            self._told = (0, 0)
        if isinstance(call, Append) and not isinstance(reply, Gap):
            self._told_fed(call.fed)
            if call.turns is not None:
                assert call.stored is not None  # noqa: S101 - for the type checkers: both are told together
                self._told = (call.turns, call.stored)

    def _synced(self, reply: Synced, *, asked_at: float, now: float) -> None:
        before = self.reader.cursor
        super()._synced(reply, asked_at=asked_at, now=now)
        self._taken_to = min(self._taken_to, self.reader.cursor)
        self._fed = min(self._fed, self.reader.cursor)
        self._fed_told = min(self._fed_told, self._fed)
        if self._ends_at is not None and self._ends_at > self.reader.cursor:
            self._ends_at = None
        if self.reader.cursor < before:  # what an older client said, and nothing has taken, is forgotten
            self._waiting = deque(each for each in self._waiting if each.number <= self.reader.cursor)
            self.waiting_bytes = sum(len(each.data) for each in (*self._waiting, *self._feeding))

    def _renewed(self, asked_at: float) -> None:
        self.lease.granted(asked_at=asked_at)


_Said = TypeVar("_Said", Owner, SessionEnd)


def decode_struct(data: bytes, kind: type[_Said]) -> _Said:
    """Return what a worker said about itself or the end. Raises `ProtocolError` for what no worker says."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ProtocolError(f"what the worker said cannot be read: {exc}", code="fleet.malformed") from exc
