"""`LineLog`: the last lines of a running session, in both directions and in bounded memory, for those who watch it.

The session appends blocks of lines as they are. An observer takes `Excerpt`s. Only then are the lines divided, redacted and encoded, once
for all observers that follow. So the session pays for one append, however many watch. `observing` waits for new lines; `gateway` sends them
over HTTP.

Observers that may not see everything read a second log, `ScrubbedLog`. Lines come into it in their order, and when they can be shown: a
fragment of a streamed text waits for the end of its word, or an observer would see a key in pieces.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Any, Final, Literal, Self

from claude_transport.errors import ConfigurationError, ReplayGap
from claude_transport.protocol.fragments import FragmentRedactor
from claude_transport.protocol.framing import LineBlock
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.server_sent_events import encode_event
from claude_transport.protocol.tape import CLOSED, OUTPUT_ENDED, Direction, TapeRecord, note_of_exit

DEFAULT_KEPT_BYTES: Final = 4 * 2**20
"""Bytes of lines that a `LineLog` keeps."""

SCRUBBED_HEADER: Final = "claude-transport-scrubbed"
"""The header of a gateway's answer that says whether secrets are removed from its events: `true` or `false`."""

_BESIDE_BYTES: Final = 400
"""Bytes of memory of a kept block besides its lines."""

_MAX_LINES: Final = 512
_MAX_BLOCK_BYTES: Final = 64 * 2**10
"""A block with more than this is divided before it is made for observers: of tiny lines they are a hundred times as large."""

_OBJECT_BYTES: Final = 300
"""Bytes of memory of a line that was made for observers, besides its own."""

_MAX_POSITION: Final = 2**53
"""Positions fit into a number of JavaScript."""

_SKIPPED = re.compile(rb"(\d{1,16}) lines? (?:was|were) skipped")


class ObservedLine(bytes):
    """A line of an observed session, without its newline.

    * `position`: its number, from 1. Give the last one as `since` to go on behind it.
    * `t`: seconds since the session, or its observation, began.
    * `direction`: `in` (to the agent), `out` (from it), or `note`: what happened besides, such as the end of the output.
    * `skipped`: on a note, the number of lines that the observer has missed, because it was too slow; else 0.
    """

    position: int
    t: float
    direction: Direction

    def __new__(cls, line: bytes, *, position: int, t: float, direction: Direction) -> Self:
        """Make a line with its place in the session."""
        self = super().__new__(cls, line)
        self.position = position
        self.t = t
        self.direction = direction
        return self

    @property
    def skipped(self) -> int:
        """The number of lines that were missed before this note; 0 for every other line."""
        found = _SKIPPED.fullmatch(self) if self.direction == "note" else None
        return 0 if found is None else int(found[1])

    @property
    def record(self) -> TapeRecord:
        """The line as the record of a tape."""
        return TapeRecord(self.t, self.direction, bytes(self))

    def __repr__(self) -> str:
        return f"ObservedLine({bytes(self)[:40]!r}, position={self.position}, direction={self.direction!r})"


def note_of_skip(count: int) -> bytes:
    """Make the note for an observer that has missed `count` lines."""
    return b"%d line was skipped" % count if count == 1 else b"%d lines were skipped" % count


def check_since(since: object) -> int | None:
    """Return a position, or None. Raises `ConfigurationError` for what is neither."""
    if since is None:
        return None
    if isinstance(since, bool) or not isinstance(since, int) or not 0 <= since <= _MAX_POSITION:
        raise ConfigurationError("since must be the position of a line, 0 for the first one, or None", option="since")
    return since


Form = Literal["lines", "events"]
"""What is made of lines for observers: `ObservedLine`s, or server-sent events."""


class _Entry:
    """A block of lines in one direction."""

    __slots__ = ("block", "count", "direction", "first", "size", "t")

    def __init__(self, block: LineBlock, *, first: int, t: float, direction: Direction) -> None:
        self.block: LineBlock = block
        self.first: int = first
        self.t: float = t
        self.direction: Direction = direction
        self.count: int = block.count
        self.size: int = len(block.head) + len(block.chunk) + _BESIDE_BYTES

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def made_size(self) -> int:
        """About the memory of its lines when they are made for observers."""
        return self.size + _OBJECT_BYTES * self.count

    @property
    def lines(self) -> list[bytes]:
        return bytes(self.block).split(b"\n")[: self.count]

    @property
    def is_long(self) -> bool:
        return self.count > _MAX_LINES or (self.size > _MAX_BLOCK_BYTES and self.count > 1)

    def divide(self) -> list[_Entry]:
        """Return the same lines in blocks that are not long."""
        parts: list[_Entry] = []
        first = self.first
        for data in _parts(bytes(self.block)):
            block = LineBlock(b"", data, len(data), data.count(b"\n"))
            parts.append(_Entry(block, first=first, t=self.t, direction=self.direction))
            first += block.count
        return parts


_SOME_LINES: Final = re.compile(rb"(?:[^\n]*+\n){1,%d}+" % _MAX_LINES)


def _parts(data: bytes) -> Iterator[bytes]:
    for found in _SOME_LINES.finditer(data):
        begin, end = found.span()
        while end - begin > _MAX_BLOCK_BYTES:
            cut = (data.rfind(b"\n", begin, begin + _MAX_BLOCK_BYTES) + 1) or (data.index(b"\n", begin) + 1)
            yield data[begin:cut]
            begin = cut
        if begin < end:
            yield data[begin:end]


class _Made:
    """Keeps blocks in the forms that observers get: the newest ones, in at most `max_bytes`, and always the last one. Threads may read
    it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[int, bool, Form], tuple[Sequence[Any], int]] = OrderedDict()
        self._size = 0

    def find(self, entry: _Entry, scrubs: bool, form: Form) -> Sequence[Any] | None:
        found = self._kept.get((entry.first, scrubs, form))
        return None if found is None else found[0]

    def keep(self, entry: _Entry, scrubs: bool, form: Form, made: Sequence[bytes]) -> None:
        key: tuple[int, bool, Form] = (entry.first, scrubs, form)
        if key not in self._kept:
            size = sum(map(len, made)) + _OBJECT_BYTES * len(made) + _BESIDE_BYTES
            self._kept[key] = made, size
            self._size += size
        while self._size > self._max_bytes and len(self._kept) > 1:
            self._size -= self._kept.popitem(last=False)[1][1]


class Excerpt:
    """Some lines that were taken from a `LineLog`, from the line behind `after` on.

    `lines()` and `events()` make what no observer has asked for before. That takes time: much of it (`unmade()`) belongs into
    a thread. `share()` then keeps it for other observers.
    """

    def __init__(self, entries: Sequence[_Entry], *, after: int, skipped: int, scrubs: bool, made: _Made) -> None:
        self._entries = entries
        self._after = after
        self._skipped = skipped
        self._scrubs = scrubs
        self._made = made
        self._fresh: dict[tuple[int, Form], tuple[_Entry, Sequence[Any]]] = {}
        self.last: int = entries[-1].last if entries else after
        """The position of its last line."""

    def unmade(self, form: Form) -> int:
        """Return the bytes of lines that are not made yet in this form."""
        return sum(entry.size for entry in self._entries if self._find(entry, form) is None)

    def share(self) -> None:
        """Keep what was made for the next observers. For the thread that owns the log."""
        for (_, form), (entry, made) in self._fresh.items():
            self._made.keep(entry, self._scrubs, form, made)
        self._fresh.clear()

    def lines(self) -> list[ObservedLine]:
        """Return the lines. A note about missed lines comes first."""
        found = [self._note()] if self._skipped else []
        for entry in self._entries:
            found += self._lines_of(entry)[max(0, self._after + 1 - entry.first) :]
        return found

    def events(self) -> list[bytes]:
        """Return the lines as server-sent events: the id is the position, the data a record of a tape."""
        found = [_event_of(self._note())] if self._skipped else []
        for entry in self._entries:
            made = self._find(entry, "events")
            if made is None:
                made = [_event_of(line) for line in self._lines_of(entry)]
                self._fresh[entry.first, "events"] = entry, made
            found += made[max(0, self._after + 1 - entry.first) :]
        return found

    def _note(self) -> ObservedLine:
        t = self._entries[0].t if self._entries else 0.0
        return ObservedLine(note_of_skip(self._skipped), position=self._after, t=t, direction="note")

    def _lines_of(self, entry: _Entry) -> Sequence[ObservedLine]:
        found = self._find(entry, "lines")
        if found is not None:
            return found
        made = [
            ObservedLine(line, position=entry.first + place, t=entry.t, direction=entry.direction) for place, line in enumerate(entry.lines)
        ]
        self._fresh[entry.first, "lines"] = entry, made
        return made

    def _find(self, entry: _Entry, form: Form) -> Sequence[Any] | None:
        fresh = self._fresh.get((entry.first, form))
        return self._made.find(entry, self._scrubs, form) if fresh is None else fresh[1]


def _event_of(line: ObservedLine) -> bytes:
    return encode_event(line.record.encode()[:-1], id=str(line.position))


class LineLog:
    """The last lines of one session. It waits for nothing and knows no event loop.

    Args:
        clock: returns seconds.
        redactor: makes the `Redactor` of observers that may not see everything, at the first use of one.
        max_bytes: the memory for lines. Older ones are forgotten. What is made of them for observers takes up to
            twice as much again, and redacted lines that differ up to once.
    """

    _scrubs = False

    def __init__(self, *, clock: Callable[[], float], redactor: Callable[[], Redactor], max_bytes: int = DEFAULT_KEPT_BYTES) -> None:
        self._clock = clock
        self._make_redactor = redactor
        self._scrubbed: ScrubbedLog | None = None
        self._max_bytes = max_bytes
        self._start = clock()
        self._entries: list[_Entry] = []
        self._made = _Made(2 * max_bytes)
        self._forgotten = 0  # entries at the beginning of the list that are gone
        self._size = 0
        self._waiting: list[Callable[[], object]] = []
        self.last: int = 0
        """The position of the last line; 0 before the first."""
        self.ended: bool = False
        """True when no line can follow."""

    @property
    def oldest(self) -> int:
        """The position of the oldest line that is kept; one more than `last` when none is."""
        return self._entries[self._forgotten].first if self._forgotten < len(self._entries) else self.last + 1

    @property
    def kept_bytes(self) -> int:
        """The memory of the lines, without what was made of them for observers."""
        return self._size

    def append(self, direction: Direction, block: LineBlock) -> None:
        """Add lines. They are not copied."""
        if self.ended:
            return
        self._add(_Entry(block, first=self.last + 1, t=self._clock() - self._start, direction=direction))
        if self._waiting:
            self._wake()

    def _add(self, entry: _Entry) -> None:
        self.last = entry.last
        self._entries.append(entry)
        self._size += entry.size
        if self._size > self._max_bytes:
            self._forget()

    def append_lines(self, direction: Direction, lines: Sequence[bytes]) -> None:
        """Add lines that have no newlines. Of an `OversizedLine` only the beginning is there."""
        if lines:
            self.append(direction, LineBlock.of(lines))

    def end(self, *, exit_code: int | None = None, signal: int | None = None, notes: Sequence[bytes] = (OUTPUT_ENDED,)) -> None:
        """End the session: observers get notes about its end and then nothing more."""
        if self.ended:
            return
        known = exit_code is not None or signal is not None
        self.append_lines("note", [*notes, *([note_of_exit(exit_code=exit_code, signal=signal)] if known else []), CLOSED])
        self.ended = True
        self._wake()

    def start(self, since: int | None) -> int:
        """Return the position behind which an observer begins that has read up to `since`; None begins with the oldest line kept.

        Raises:
            ReplayGap: lines behind `since` are not kept any more, or there is no such line yet.
        """
        if since is None:
            return self.oldest - 1
        if since > self.last:
            raise ReplayGap(f"the session has no line {since} yet: its last one is {self.last}")
        self._refuse_gap(since)
        return since

    def _refuse_gap(self, since: int) -> None:
        if since < self.oldest - 1:
            raise ReplayGap(f"the lines behind {since} are not kept any more: the oldest one is {self.oldest}. since=None begins there")

    def scrubbed(self) -> ScrubbedLog:
        """Return the same lines for observers that may not see everything: one log for all of them."""
        if self._scrubbed is None:
            self._scrubbed = ScrubbedLog(self, self._make_redactor(), made=self._made, max_bytes=self._max_bytes)
        return self._scrubbed

    def take(self, after: int, *, max_bytes: int) -> Excerpt:
        """Return the lines behind `after`: those of at least one block, and for an observer not many more than `max_bytes`; or none.

        Lines that an observer has missed are told by a note.
        """
        skipped = max(0, self.oldest - 1 - after)
        after += skipped
        return Excerpt(self.blocks(after, max_bytes), after=after, skipped=skipped, scrubs=self._scrubs, made=self._made)

    def blocks(self, after: int, max_bytes: int) -> list[_Entry]:
        """Return the kept blocks from the line behind `after` on: at least one, and not many more than `max_bytes`; or none."""
        self._divide(self._find(after))
        at = self._find(after)
        taken: list[_Entry] = []
        size = 0
        while at < len(self._entries) and size < max_bytes:
            self._divide(at)
            taken.append(self._entries[at])
            size += self._entries[at].made_size
            at += 1
        return taken

    def _find(self, after: int) -> int:
        """Return the index of the block with the line behind `after`."""
        at = max(self._forgotten, bisect_right(self._entries, after, key=_first_of) - 1)
        return at + 1 if at < len(self._entries) and self._entries[at].last <= after else at

    def _divide(self, at: int) -> None:
        """Divide the block at this index, when it is long. The session does not pay for this: it is done for an observer."""
        if at < len(self._entries) and self._entries[at].is_long:
            parts = self._entries[at].divide()
            self._size += sum(part.size for part in parts) - self._entries[at].size
            self._entries[at : at + 1] = parts

    def call_at_change(self, wake: Callable[[], object]) -> None:
        """Call `wake()` once, at the next line or at the end. It must not wait."""
        self._waiting.append(wake)

    def forget_call(self, wake: Callable[[], object]) -> None:
        """Take back `call_at_change(wake)`."""
        if wake in self._waiting:
            self._waiting.remove(wake)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def _forget(self) -> None:
        entries, at = self._entries, self._forgotten
        while self._size > self._max_bytes and at < len(entries):
            self._size -= entries[at].size
            entries[at] = _GONE
            at += 1
        self._forgotten = at
        if at > len(entries) // 2:  # each entry is moved at most once on average
            del entries[:at]
            self._forgotten = 0


_Place = tuple[_Entry, int, bytes]
"""A block, the place of one of its lines, and that line as it is."""

_Released = tuple[_Place, bytes]
"""A line that can be shown, redacted."""


class ScrubbedLog(LineLog):
    """The lines of another log, redacted, with their positions and times. A line is here as soon as it can be shown.

    An observer that wants to read runs what `unread()` returns, and then calls `share()`. A fragment of a text whose beginning is not kept,
    or was said before the first line, is hidden.
    """

    _scrubs = True

    def __init__(self, source: LineLog, redactor: Redactor, *, made: _Made, max_bytes: int) -> None:
        super().__init__(clock=lambda: 0.0, redactor=lambda: redactor, max_bytes=max_bytes)
        self._source = source
        self._made = made
        self._redactor = redactor
        self._fragments = self._behind_gap()
        self._ready: deque[_Entry] = deque()
        self.last: int = source.oldest - 1
        self._read = self.last
        self._has_read_end = False

    @property
    def lags(self) -> bool:
        """True when `unread()` has something to do."""
        return self._read < self._source.last or bool(self._ready) or self._source.ended != self.ended

    def start(self, since: int | None) -> int:
        """Return the position behind which an observer begins, as `LineLog.start()`."""
        if self._read < self._source.oldest - 1:
            return self._source.start(since)  # what was redacted stands before a gap, and will be forgotten
        if since is not None and since > self.last:
            return self._source.start(since)
        return super().start(since)

    def unread(self, max_bytes: int) -> Unread:
        """Return the next lines that were not redacted: those of at least one block, and not many more than `max_bytes`; or none."""
        blocks = self._source.blocks(max(self._read, self._source.oldest - 1), max_bytes)
        is_last = self._source.ended and (blocks[-1].last if blocks else self._read) == self._source.last
        return Unread(self, blocks, is_last=is_last)

    def size_of(self, blocks: Sequence[_Entry]) -> int:
        """Return the bytes of lines in `blocks` that were not redacted, and of those that wait for them."""
        size = sum(entry.size for entry in blocks if entry.first > self._read)
        return size and size + self._fragments.held_bytes

    def read(self, blocks: Sequence[_Entry], *, is_last: bool) -> None:
        """Redact lines, in any thread, but one call at a time. What another call has redacted is left out."""
        for entry in blocks:
            if entry.first > self._read:
                self._read_block(entry)
        if is_last and not self._has_read_end:
            self._put(self._fragments.rest())
            self._has_read_end = True

    def _read_block(self, entry: _Entry) -> None:
        if entry.first > self._read + 1:
            self._fragments = self._behind_gap()
        feed = partial(self._fragments.feed, received=entry.direction == "out")
        self._put(chain.from_iterable(feed((entry, place, line), line) for place, line in enumerate(entry.lines)))
        self._read = entry.last

    def _put(self, released: Iterable[_Released]) -> None:
        self._ready.extend(_shown(entry, list(lines)) for entry, lines in groupby(released, key=_block_of))

    def _behind_gap(self) -> FragmentRedactor[_Place]:
        fragments: FragmentRedactor[_Place] = FragmentRedactor(self._redactor)
        fragments.miss()
        return fragments

    def share(self) -> None:
        """Let observers see what was redacted. For the thread that owns the log."""
        ends = self._has_read_end
        while self._ready:
            entry = self._ready.popleft()
            if entry.first != self.last + 1:  # what came before was too old when somebody looked: for observers it is missing, too
                self._entries.clear()
                self._forgotten = self._size = 0
            self._add(entry)
        self.ended: bool = ends


_GONE: Final[Any] = _Entry(LineBlock(b"", b"", 0, 0), first=0, t=0.0, direction="note")
"""Stands where a forgotten block was."""


class Unread:
    """Lines that a `ScrubbedLog` has not redacted yet. `run()` does that, in any thread, but one at a time.

    What another has redacted meanwhile is left out.
    """

    def __init__(self, log: ScrubbedLog, blocks: Sequence[_Entry], *, is_last: bool) -> None:
        self._log = log
        self._blocks = blocks
        self._is_last = is_last

    @property
    def size(self) -> int:
        """The bytes of lines that are to be redacted at this moment."""
        return self._log.size_of(self._blocks)

    def run(self) -> None:
        """Redact the lines."""
        self._log.read(self._blocks, is_last=self._is_last)


def _block_of(released: _Released) -> _Entry:
    return released[0][0]


def _shown(entry: _Entry, released: Sequence[_Released]) -> _Entry:
    """Return lines of a block as observers see them: the block itself when that is the same."""
    shown = [line if entry.direction == "note" else redacted for (_, _, line), redacted in released]
    if len(shown) == entry.count and all(redacted is line for redacted, ((_, _, line), _) in zip(shown, released, strict=True)):
        return entry
    return _Entry(LineBlock.of(shown), first=entry.first + released[0][0][1], t=entry.t, direction=entry.direction)


def _first_of(entry: _Entry) -> int:
    return entry.first
