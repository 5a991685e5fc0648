"""The lines of a fleet: how one end writes numbered entries into a stream of a broker, and how the other end reads each of them once.

A session has two streams, `in` (client to process) and `out`. The number of an entry is its id in the broker. `FleetWriter` keeps what the
broker may still lose, `FleetReader` takes each entry once, and both stop when their token is no longer the newest. `Lease` says how long a
worker may feed its process. What is asked of the broker is in the structs of `Call`; the scripts in `scripts.py` answer them.

There is no I/O and no clock here: the caller brings entries, answers and the time. The two ends made of these parts are in `ends.py`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from claude_transport.errors import ConnectionLost, ProtocolError, ReplayGap

FLEET_VERSION: Final = 1
"""The newest version of keys, scripts and entries that this library can use. A session has one version from its beginning to its end."""

OLDEST_FLEET_VERSION: Final = 1
"""The oldest version that it can use, too: workers leave all other sessions alone, and clients are refused."""

FLEET_VERSIONS: Final = tuple(range(OLDEST_FLEET_VERSION, FLEET_VERSION + 1))
"""All of them. A client begins a session with the newest one that the workers have in common with it."""

MAX_ENTRY_BYTES: Final = 256 * 2**10
"""The most bytes of one entry. Longer lines are cut into several. A stranger's larger entry is refused."""

JOIN_BYTES: Final = 16 * 2**10
"""Lines that wait to be sent are joined into one entry up to this size: some dozen lines."""

MAX_CALL_BYTES: Final = 512 * 2**10
"""The most bytes of the entries of one append; a single entry is always sent."""

MAX_CALL_ENTRIES: Final = 64

DEFAULT_WINDOW_BYTES: Final = 2**20
"""Bytes that the writer may be ahead of the reader."""

DEFAULT_KEEP_BYTES: Final = 16 * 2**20
"""Bytes that a writer keeps because the broker may not have written them to its disk yet."""

KEEP_SECONDS: Final = 2.0
"""Seconds for which an appended entry is kept. A broker writes to its disk each second, and may be late by one more."""

MAX_HELD_BYTES: Final = 64 * 2**20
"""The most bytes of an unfinished line that a reader holds."""


_MOST_WRITERS: Final = 64
"""Writers of one stream that a reader remembers, the newest."""


class Side(StrEnum):
    """An end of a session. The client writes `in` and reads `out`, the worker the reverse."""

    CLIENT = "c"
    WORKER = "w"


class Kind(StrEnum):
    """What an entry is."""

    DATA = "d"
    """Bytes that end with the end of a line, or are the rest of one."""
    PART = "p"
    """Bytes in the middle of a line: a later entry has the rest."""
    EOF = "f"
    """The client has ended the input."""
    BYE = "b"
    """The client wants the process to end."""
    OWNER = "o"
    """A worker has taken the session; the data is an `Owner`."""
    END = "e"
    """The session is over; the data is a `SessionEnd`."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a stream: its number, the token of its writer, its kind and its bytes. An unknown kind is kept as text."""

    number: int
    token: str
    kind: str
    data: bytes = b""


class Owner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says first: its name, the entries of the client that were taken before it, and the turns that are uncertain.

    `unstored` counts turns that are over, but of which the transcript was not stored.
    """

    node: str = ""
    taken: int = 0
    takeover: bool = False
    uncertain: int = 0
    unstored: int = 0
    pid: int | None = None
    cli_version: str | None = None
    library: str = ""


class SessionEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a session ended: the status of its process, or the `code` and the `error` of what ended it.

    `taken` is the number of the last entry of the client that the process was given.
    """

    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False
    stderr_tail: str = ""
    code: str = ""
    error: str | None = None
    taken: int = 0
    retryable: bool = False


# Tokens.

_TOKEN: Final = re.compile(r"(\d{1,15})\.([\w-]{0,64})", re.ASCII)


def epoch_of(token: str) -> int:
    """Return the number of a fencing token, such as 3 of `"3.ab12"`; 0 for text that is none.

    The number grows with each holder. The part behind it tells apart two holders with one number, which a broker grants after it has lost
    its last second.
    """
    match = _TOKEN.fullmatch(token)
    return int(match[1]) if match else 0


def replaced_by(token: str) -> str:
    """Return the end of the token that `token` replaces, because the broker has lost a newer one; an empty text when it replaces none."""
    nonce = token.partition(".")[2]
    return nonce.removeprefix("lost-") if nonce.startswith("lost-") else ""


# What is asked of the broker, and its answers.


class Append(msgspec.Struct, frozen=True, tag=True):
    """Add `entries` to the stream that `side` writes, the first with the number `first`.

    `turns` says how many turns are over after them, `stored` of how many the transcript is stored, and `fed` which entry of the client was
    the last that the process has received; None changes nothing.
    """

    side: Side
    token: str
    first: int
    entries: Sequence[tuple[str, bytes]]
    turns: int | None = None
    stored: int | None = None
    fed: int | None = None


class Take(msgspec.Struct, frozen=True, tag=True):
    """Say that `side` takes the entries up to `upto` of the stream that it reads, and that `turns` turns have begun, or None.

    A worker also says `fed`: its process has received the entries up to this one.
    """

    side: Side
    token: str
    upto: int
    turns: int | None = None
    fed: int | None = None


class Sync(msgspec.Struct, frozen=True, tag=True):
    """Compare both streams after a lost connection: `side` has read up to `cursor`, from a writer with the token `seen`.

    What was acknowledged is said again, because the broker may have lost it: `side` has taken the entries up to `taken`, and of its turns
    `begun` have begun, `over` are over and `stored` are stored. A worker also says `fed`, as with `Take`. Turns are over only while the
    broker has all that this end has `said`: the entries up to that number.

    When the broker has lost entries that were read, they count as taken, because nothing can bring them back under their numbers. Then
    `heard` turns have begun: all those of which the prompt was read.

    `polls` is True for a question without a lost connection, which waits for room. It is not sent.
    """

    side: Side
    token: str
    cursor: int
    seen: str
    taken: int = 0
    begun: int = 0
    over: int = 0
    stored: int = 0
    fed: int | None = None
    heard: int = 0
    said: int = 0
    polls: bool = False


class Renew(msgspec.Struct, frozen=True, tag=True):
    """Renew the lease of `side`, which has read up to `cursor`, for `seconds`, from now on by the clock of the broker."""

    side: Side
    token: str
    seconds: float
    cursor: int = 0


Call: TypeAlias = Append | Take | Sync | Renew


class Appended(msgspec.Struct, frozen=True, tag=True):
    """The stream ends with `last`. Its reader has taken the entries up to `taken`, and used those up to `used`.

    A process uses input when it receives it, which may be long after its worker has taken it. A client uses what it takes at once, and so
    does a worker that does not tell what its process has received: then `used` is None.
    """

    last: int
    taken: int
    used: int | None = None


class Taken(msgspec.Struct, frozen=True, tag=True):
    """The take is written down. The client waits when the process has not received `window` bytes; 0 when this is not known."""

    window: int = 0


class Synced(msgspec.Struct, frozen=True, tag=True):
    """The other end has `token`, and began behind the number `base`.

    Our own stream ends with `last`, of which `taken` are taken and `used` are used, as in `Appended`.
    """

    token: str
    base: int
    last: int
    taken: int
    used: int | None = None


class Renewed(msgspec.Struct, frozen=True, tag=True):
    """The lease is renewed. The lease of the other end ends in `other` seconds; `stop` is True when the session should end.

    `more` is True when the stream that is read has more entries, or cannot be read.
    """

    other: float
    stop: bool = False
    more: bool = False


class Fenced(msgspec.Struct, frozen=True, tag=True):
    """The token of the call is not the newest; `token` is."""

    token: str


class Gap(msgspec.Struct, frozen=True, tag=True):
    """The stream ends with `last`: entries before the first of the append are missing."""

    last: int
    taken: int


class Gone(msgspec.Struct, frozen=True, tag=True):
    """The broker does not know the session."""


Reply: TypeAlias = Appended | Taken | Synced | Renewed | Fenced | Gap | Gone


def raise_refusal(reply: Reply, *, token: str) -> None:
    """Raise the error for an answer that ends this end of the session; return for every other answer.

    Raises:
        ConnectionLost: another holder has the session (`fleet.fenced`), or the broker has lost it (`fleet.gone`).
    """
    if isinstance(reply, Fenced):
        newer = epoch_of(reply.token) > epoch_of(token)
        why = "another end has taken its place" if newer else "the broker has forgotten that it was admitted"
        raise ConnectionLost(f"this end of the session may not write any more: {why}", code="fleet.fenced")
    if isinstance(reply, Gone):
        raise ConnectionLost(
            "the broker does not know the session: it has ended, or the broker has started again without its data", code="fleet.gone"
        )


# The writer.


class _Kept(msgspec.Struct):
    """An entry that may be needed again; `appended_at` is None until the broker has it."""

    number: int
    kind: str
    data: bytes
    appended_at: float | None = None


class FleetWriter:
    """Numbers what one end says, keeps it as long as the broker may lose it, and tells what to append next.

    Args:
        last: the last number of the stream.
        taken: how many of them the reader has taken.
        window: bytes that the writer may be ahead of what the reader has used.
        keep_bytes: bytes that are kept for a broker that loses its last second.
        keep_seconds: seconds for which an appended entry is kept.
    """

    def __init__(
        self,
        *,
        last: int = 0,
        taken: int = 0,
        window: int = DEFAULT_WINDOW_BYTES,
        keep_bytes: int = DEFAULT_KEEP_BYTES,
        keep_seconds: float = KEEP_SECONDS,
    ) -> None:
        self._kept: deque[_Kept] = deque()
        self._unused: deque[tuple[int, int]] = deque()  # (number, bytes) of the entries that the reader has not used
        self._last = last  # of what was put
        self._said = last  # of what the broker has
        self._first = last + 1  # of what is kept
        self._taken = taken
        self._window = window
        self._keep_bytes = keep_bytes
        self._keep_seconds = keep_seconds
        self._kept_bytes = 0
        self._ahead = 0  # bytes that the reader has not used
        self._in_flight = 0  # number of the last entry of an append without an answer
        self._sent = last  # of what was in an append: the broker may have it, so nothing may be joined to it

    @property
    def last(self) -> int:
        """The number of the last entry."""
        return self._last

    @property
    def said(self) -> int:
        """The number of the last entry that the broker has."""
        return self._said

    @property
    def taken(self) -> int:
        """The number of the last entry that the reader has taken."""
        return self._taken

    @property
    def has_unsaid(self) -> bool:
        """True while entries wait for the broker's answer."""
        return self._said < self._last

    @property
    def is_appending(self) -> bool:
        """True while an append has no answer."""
        return bool(self._in_flight)

    @property
    def has_room(self) -> bool:
        """True while more may be put: neither the use of it nor the disk of the broker is too far behind."""
        return self._ahead < self._window and self._kept_bytes < self._keep_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept, because the reader has not taken them, or the broker may lose them."""
        return self._kept_bytes

    @property
    def waits_for_reader(self) -> bool:
        """True when everything is said, and only the reader or time can make room: ask again with `Sync`."""
        return not self.has_room and not self.has_unsaid

    def put(self, data: bytes) -> None:
        """Queue bytes. A long piece is cut behind a line where one ends, else inside a line."""
        tail = self._kept[-1] if self._kept else None
        if tail is not None and tail.number > self._sent and tail.kind == Kind.DATA and len(tail.data) + len(data) <= JOIN_BYTES:
            tail.data += data
            self._count(len(data))
            self._unused[-1] = (tail.number, len(tail.data))
            return
        while len(data) > MAX_ENTRY_BYTES:
            end = data.rfind(b"\n", 0, MAX_ENTRY_BYTES) + 1
            self._add(Kind.DATA if end else Kind.PART, data[: end or MAX_ENTRY_BYTES])
            data = data[end or MAX_ENTRY_BYTES :]
        self._add(Kind.DATA, data)

    def put_control(self, kind: Kind, data: bytes = b"") -> None:
        """Queue an entry that is no data. It needs no room."""
        self._add(kind, data)

    def _add(self, kind: Kind, data: bytes) -> None:
        self._last += 1
        self._kept.append(_Kept(self._last, kind, data))
        self._unused.append((self._last, len(data)))
        self._count(len(data))

    def _count(self, size: int) -> None:
        self._kept_bytes += size
        self._ahead += size

    def next_entries(self) -> tuple[int, list[tuple[str, bytes]]]:
        """Return the first number and the entries of the next append. Without entries, there is none.

        The entries count as in flight until `appended()`, `lost()` or `unanswered()`.
        """
        entries: list[tuple[str, bytes]] = []
        size = 0
        if self._in_flight:
            return self._said + 1, entries
        for at in range(self._said + 1 - self._first, len(self._kept)):
            kept = self._kept[at]
            if size + len(kept.data) > MAX_CALL_BYTES or len(entries) >= MAX_CALL_ENTRIES:  # each entry alone is smaller
                break
            entries.append((kept.kind, kept.data))
            size += len(kept.data)
        if entries:
            self._in_flight = self._said + len(entries)
            self._sent = max(self._sent, self._in_flight)
        return self._said + 1, entries

    def appended(self, last: int, taken: int, *, now: float, asked_at: float | None = None, used: int | None = None) -> None:
        """Note the broker's answer: it has the entries up to `last`, of which the reader has taken and used some: see `note_taken()`.

        `asked_at` is when the broker was asked; None is the same as `now`. A late answer says nothing of what was lost after it.
        """
        for at in range(max(self._said + 1 - self._first, 0), min(last + 1 - self._first, len(self._kept))):
            self._kept[at].appended_at = now
        self._said = max(self._said, min(last, self._last))
        self._sent = max(self._sent, self._said)  # a broker may say that it has what was not sent yet
        self._in_flight = 0
        self.note_taken(taken, now=now if asked_at is None else asked_at, used=used)

    def unanswered(self) -> None:
        """Note that the connection was lost: the entries in flight are said again, under their numbers."""
        self._in_flight = 0

    def lost(self, last: int) -> None:
        """Go back to `last`, behind which the broker has lost entries.

        Raises:
            ReplayGap: some of them are not kept any more.
        """
        self._in_flight = 0
        if last + 1 < self._first:
            raise ReplayGap(f"the broker has lost entries from {last + 1} on, and those before {self._first} are not kept any more")
        for at in range(last + 1 - self._first, len(self._kept)):
            self._kept[at].appended_at = None
        self._said = min(self._said, last)

    def keep_again(self, *, now: float) -> None:
        """Note that the connection was lost, and what the broker has was just found out: it may lose that again.

        The reader may have said that it has entries which were lost. Only this writer could say them once more.
        """
        for kept in self._kept:
            if kept.appended_at is not None:
                kept.appended_at = now

    def note_taken(self, taken: int, *, now: float, used: int | None = None) -> None:
        """Note how far the reader is, and forget what neither the reader nor the broker's disk can need any more.

        Args:
            taken: the last number that the reader has taken: no reader takes the entries up to it again.
            now: when the broker was asked.
            used: the last number that it has used: the window is free of the entries up to it. None is the same as `taken`.
        """
        used = min(taken if used is None else used, self._said)
        while self._unused and self._unused[0][0] <= used:
            self._ahead -= self._unused.popleft()[1]
        self._taken = max(self._taken, min(taken, self._last))
        while self._kept:
            oldest = self._kept[0]
            is_safe = oldest.appended_at is not None and now - oldest.appended_at >= self._keep_seconds
            if oldest.number > self._taken or not is_safe:
                break
            self._kept.popleft()
            self._first += 1
            self._kept_bytes -= len(oldest.data)


# The reader.


class StreamArrival(msgspec.Struct, frozen=True, gc=False):
    """What has arrived, up to the entry `number`: whole lines as `Kind.DATA`, or another entry."""

    number: int
    kind: str
    data: bytes = b""


class FleetReader:
    """Takes each entry of a stream once and in order, and puts cut lines together again.

    Args:
        cursor: the number of the last entry that is known.
        token: the token of the writer, if entries of it were read before.
        max_held_bytes: the most bytes of an unfinished line.
        passes_on: hand out a longer line in pieces; otherwise it is an error.
    """

    def __init__(self, *, cursor: int = 0, token: str = "", max_held_bytes: int = MAX_HELD_BYTES, passes_on: bool = False) -> None:
        self.cursor: int = cursor
        self.token: str = token
        self._held: list[bytes] = []
        self._held_bytes: int = 0
        self._max_held_bytes = max_held_bytes
        self._passes_on = passes_on
        self._in_line = False  # a part of an unfinished line was handed out
        self._writers: deque[tuple[int, str]] = deque(maxlen=_MOST_WRITERS)  # (number of its first entry that was read, token)

    def writer_of(self, number: int) -> str:
        """Return the token of the writer of an entry that was read; an empty text when it is not known."""
        return next((token for first, token in reversed(self._writers) if first <= number), "")

    @property
    def held_bytes(self) -> int:
        """Bytes of the unfinished line."""
        return self._held_bytes

    def take(self, entries: Iterable[Entry]) -> list[StreamArrival]:
        """Return what is new in `entries`.

        Raises:
            ReplayGap: entries behind the cursor are missing.
            ProtocolError: an entry is larger than any writer makes, its line does not end, or its writer is not the newest.
        """
        arrived: list[StreamArrival] = []
        for entry in entries:
            if entry.number <= self.cursor:
                continue
            if entry.number != self.cursor + 1:
                raise ReplayGap(f"the entries from {self.cursor + 1} to {entry.number - 1} are not kept any more")
            if len(entry.data) > MAX_ENTRY_BYTES:
                raise ProtocolError(f"an entry has {len(entry.data)} bytes, and no writer makes such", code="fleet.malformed")
            if entry.token != self.token:
                self._change_writer(entry, arrived)
            self.cursor = entry.number
            self._take_one(entry, arrived)
        return arrived

    def _change_writer(self, entry: Entry, arrived: list[StreamArrival]) -> None:
        if epoch_of(entry.token) < epoch_of(self.token) or not epoch_of(entry.token):
            raise ProtocolError("an entry of an older writer follows a newer one: the broker has lost a change", code="fleet.stale")
        self.token = entry.token
        self._writers.append((entry.number, entry.token))
        self._drop_line(self.cursor, arrived)

    def _drop_line(self, number: int, arrived: list[StreamArrival]) -> None:
        """Forget the unfinished line: its writer is gone."""
        if self._in_line:
            arrived.append(StreamArrival(number, Kind.DATA, b"\n"))
        self._held.clear()
        self._held_bytes, self._in_line = 0, False

    def _take_one(self, entry: Entry, arrived: list[StreamArrival]) -> None:
        if entry.kind not in (Kind.PART, Kind.DATA):
            if self._held:  # the end of a stream may follow a line without an end
                arrived.append(StreamArrival(entry.number, Kind.DATA, self._release()))
            arrived.append(StreamArrival(entry.number, entry.kind, entry.data))
            return
        if entry.kind == Kind.PART:
            self._held.append(entry.data)
            self._held_bytes += len(entry.data)
            if self._held_bytes > self._max_held_bytes:
                if not self._passes_on:
                    raise ProtocolError(f"a line has more than {self._max_held_bytes} bytes", code="fleet.line_too_long")
                arrived.append(StreamArrival(entry.number, Kind.DATA, self._release()))
                self._in_line = True
            return
        data = self._release() + entry.data if self._held else entry.data
        self._in_line = False
        if data:
            arrived.append(StreamArrival(entry.number, Kind.DATA, data))

    def _release(self) -> bytes:
        data = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        return data

    def synced(self, reply: Synced) -> None:
        """Go back to where a newer writer began, when that is before the cursor: the broker has lost what the older one said after it.

        When the broker has lost that a writer was admitted, go back to the end of the one before it, of which entries were read, too.
        """
        if not self.token or reply.token == self.token or epoch_of(reply.token) < epoch_of(self.token):
            return
        replaced = replaced_by(reply.token)
        read = self._read_of(replaced)
        base = max(reply.base, read)
        if base < self.cursor:
            self.cursor = base
            while self._writers and self._writers[-1][0] > base:
                self._writers.pop()
            # the entries there are of a writer that is older than the lost one
            self.token = f"0.{replaced}" if replaced and not read else self.writer_of(base)

    def _read_of(self, nonce: str) -> int:
        """Return the number of the last entry that was read of a writer; 0 when there was none."""
        until = self.cursor
        for first, token in reversed(self._writers):
            if token.partition(".")[2] == nonce:
                return until
            until = first - 1
        return 0


# The lease.


class Lease:
    """How long a worker may feed its process: the time it was granted, counted from before it asked, minus a margin.

    The broker counts from when it answers, which is later. So another worker never has the session while this one feeds its process.
    """

    def __init__(self, *, seconds: float, margin: float) -> None:
        self.seconds: float = seconds
        self._margin = margin
        self._until = float("-inf")
        self._asked_at = float("-inf")

    def granted(self, *, asked_at: float) -> None:
        """Note that the broker has granted the lease to a call that was made at `asked_at`, by the clock of this machine."""
        if asked_at > self._asked_at:
            self._asked_at = asked_at
            self._until = asked_at + self.seconds - self._margin

    def holds(self, now: float) -> bool:
        """Return True while the process may be fed."""
        return now < self._until

    @property
    def write_until(self) -> float:
        """When a write that has begun has to be over: after half of the margin. The other half is for a clock that goes too slow."""
        return self._until + self._margin / 2

    @property
    def renew_at(self) -> float:
        """When to renew it: after a third of its time."""
        return self._asked_at + self.seconds / 3
