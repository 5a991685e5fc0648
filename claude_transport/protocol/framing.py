"""Chunks of bytes in, whole lines out. Only this module knows where a message ends.

Only the byte 0x0A ends a line. U+2028, U+2029, U+0085, VT and FF inside a JSON string are data (`str.splitlines` would split there). A
chunk may end anywhere, even inside a UTF-8 sequence. JSON is read in `codec`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import Self


class OversizedLine(bytes):
    """The first bytes of a line that is longer than the limit; `size` and `limit` are in bytes.

    `read_lines()` returns it like any other line. The decoder makes an `OversizedMessage` of it, or raises `LineTooLong` when strict.
    """

    size: int
    limit: int

    def __new__(cls, head: bytes, *, size: int, limit: int) -> Self:
        """Make a line of `size` bytes of which only `head` was kept."""
        self = super().__new__(cls, head)
        self.size = size
        self.limit = limit
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(OversizedLine, bytes(self), size=self.size, limit=self.limit), ())

    def __repr__(self) -> str:
        return f"OversizedLine({bytes(self)[:40]!r}…, size={self.size}, limit={self.limit})"


class LineBlock:
    """Whole lines in one piece, each with its newline: `head`, which may be empty, and the first `end` bytes of `chunk`.

    There are `count` lines, of `size` bytes with their newlines. `oversized` is the first line that was longer than the
    limit, after its index: the block holds only the beginning of such a line.
    """

    __slots__ = ("chunk", "count", "end", "head", "oversized", "size")

    def __init__(self, head: bytes, chunk: bytes, end: int, count: int) -> None:
        """Make a block. A `head` is the beginning of its first line."""
        self.head: bytes = head
        self.chunk: bytes = chunk
        self.end: int = end
        self.count: int = count
        self.size: int = len(head) + end
        self.oversized: tuple[int, OversizedLine] | None = None

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> Self:
        """Make a block of lines without their newlines."""
        joined = b"\n".join([*lines, b""])
        block = cls(b"", joined, len(joined), len(lines))
        if OversizedLine in set(map(type, lines)):
            block.oversized = next((index, line) for index, line in enumerate(lines) if isinstance(line, OversizedLine))
        return block

    def __bytes__(self) -> bytes:
        if not self.head:
            return self.chunk if self.end == len(self.chunk) else self.chunk[: self.end]
        return b"".join(self.pieces)

    def has(self, needle: bytes, *, tail: int | None = None) -> bool:
        """Return True when a line holds `needle`, in which there is no newline. A `tail` limits the search to the last bytes."""
        start = 0 if tail is None else max(self.end - tail, 0)
        if self.chunk.find(needle, start, self.end) >= 0:
            return True
        return not start and bool(self.head) and needle in self.head + self.chunk[: self.chunk.index(b"\n")]

    @property
    def pieces(self) -> Sequence[bytes | memoryview]:
        """The bytes, without a copy."""
        kept: bytes | memoryview = self.chunk if self.end == len(self.chunk) else memoryview(self.chunk)[: self.end]
        return (self.head, kept) if self.head else (kept,)


DEFAULT_MAX_LINE_BYTES = 256 * 2**20
"""Default limit of a line in bytes. The CLI has no limit: a whole answer is one line, and images are inline."""

_HEAD_BYTES = 1024
"""Bytes that are kept of a line that is too long, to identify it in a log."""

_CRUMB_BYTES = 1024
"""A smaller piece is copied together with its neighbours: as an object of its own it could use forty times its size."""

_FEW_BYTES = 1024
"""A smaller chunk is split by `bytes.split()`, which needs no object of its own."""

_SHORT_BYTES = 4096
"""Shorter lines are faster to cut all at once (see `_split`)."""

_without_newline = operator.itemgetter(slice(None, -1))

_VIEWED_BYTES = 16 * 2**10
"""Size from which an end of a chunk is not copied before it is joined to its line. A view of it keeps the whole chunk in memory."""

_GATHERED_BYTES = 64 * 2**10
"""Size at which collected crumbs become a piece. A buffer that grows without end is moved again and again, which cost a quarter of the
speed.
"""


class LineFramer:
    """Splits a stream of chunks into lines of at most `max_line_bytes` bytes, without terminators and blank lines.

    At most `max_line_bytes` of an unfinished line are kept, and one chunk, however small its chunks. A line that spans chunks is copied
    once, when it is returned. Of a line that is too long only the beginning and the size are kept. It is returned in its place as an
    `OversizedLine`, and the next line is not affected. The work is linear in the bytes fed.
    """

    __slots__ = ("_crumbs", "_head_bytes", "_pieces", "_size", "max_line_bytes")

    def __init__(self, *, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        if max_line_bytes < 1:
            msg = f"max_line_bytes must be at least 1, not {max_line_bytes}"
            raise ValueError(msg)
        self.max_line_bytes: int = max_line_bytes
        self._head_bytes = min(_HEAD_BYTES, max_line_bytes)
        self._pieces: list[bytes | memoryview] = []  # the unfinished line …
        self._crumbs = bytearray()  # … and its end; only its head once it is too long
        self._size = 0  # its true size so far

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the unfinished line that are kept in memory."""
        return sum(map(len, self._pieces)) + len(self._crumbs)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, in order; an empty list when it completes none."""
        tail: bytes | memoryview
        if len(chunk) < _FEW_BYTES:
            lines = chunk.split(b"\n")
            tail = lines.pop()
        elif self._size and (end := chunk.find(b"\n")) >= _VIEWED_BYTES:
            self._hold(memoryview(chunk)[:end])
            lines, tail = _split(chunk, end + 1)
            lines.insert(0, b"")  # the place of the line that ends here
        else:
            lines, tail = _split(chunk)
        if lines:
            if self._size:
                self._hold(lines[0])
                lines[0] = self.finish()
            if len(chunk) > self.max_line_bytes:
                lines = [self._bounded(line) for line in lines]
            if b"" in lines:
                lines = [line for line in lines if line]
        if tail:
            self._hold(tail)
        return lines

    def feed_block(self, chunk: bytes) -> LineBlock | None:
        """Return the lines that `chunk` completes as one block; None when it completes none. The lines are those of `feed()`.

        For a proxy, which hands the lines on as they are: it takes a fifth of the time of `feed()`, and does not copy them.
        """
        begun, end = self._size, len(chunk)
        if begun + end > self.max_line_bytes:
            return LineBlock.of(found) if (found := self.feed(chunk)) else None
        count, cut, blank = _count_lines(chunk)
        head = self.finish() if begun and count else b""
        if cut < end:
            self._hold(_tail(chunk, cut))
        if blank:
            lines = [line for line in (head + chunk[:cut]).split(b"\n") if line]
            return LineBlock.of(lines) if lines else None
        return LineBlock(head, chunk, cut, count) if count else None

    def finish(self) -> bytes:
        """Return the unfinished line at the end of the stream and forget it; b"" when there is none."""
        line = b"".join([*self._pieces, self._crumbs])
        if self._size > self.max_line_bytes:
            line = OversizedLine(line, size=self._size, limit=self.max_line_bytes)
        self._pieces = []
        self._crumbs = bytearray()
        self._size = 0
        return line

    def _hold(self, piece: bytes | memoryview) -> None:
        was_oversized = self._size > self.max_line_bytes
        self._size += len(piece)
        if self._size > self.max_line_bytes:
            if not was_oversized:
                self._keep_only_the_head()
            # this makes the head the same for every way to cut the chunks
            self._crumbs += piece[: self._head_bytes - len(self._crumbs)]
        elif len(piece) < _CRUMB_BYTES:
            self._crumbs += piece
            if len(self._crumbs) >= _GATHERED_BYTES:
                self._gather()
        else:
            if self._crumbs:
                self._gather()
            self._pieces.append(piece)

    def _gather(self) -> None:
        self._pieces.append(bytes(self._crumbs))
        self._crumbs = bytearray()

    def _keep_only_the_head(self) -> None:
        head = bytearray()
        parts: list[bytes | memoryview | bytearray] = [*self._pieces, self._crumbs]
        for part in parts:
            head += part[: self._head_bytes - len(head)]
        self._pieces = []
        self._crumbs = head

    def _bounded(self, line: bytes) -> bytes:
        if len(line) <= self.max_line_bytes or isinstance(line, OversizedLine):
            return line
        return OversizedLine(line[: self._head_bytes], size=len(line), limit=self.max_line_bytes)


def _split(chunk: bytes, start: int = 0) -> tuple[list[bytes], bytes | memoryview]:
    """Split `chunk` at newlines, from `start` on. Returns the lines that end, and the beginning of the next one.

    A `BytesIO` finds the ends of short lines four times as fast as `bytes.split()`, but it copies them once more. So long lines are cut
    out one by one. The length of the first line says nothing: it may be the end of a long one.
    """
    lines: list[bytes] = []
    begin = start
    while (end := chunk.find(b"\n", begin)) >= 0:
        if lines and end - begin < _SHORT_BYTES:
            rest = BytesIO(chunk)
            rest.seek(begin)
            pieces = rest.readlines()
            tail = b"" if chunk.endswith(b"\n") else pieces.pop()
            lines += map(_without_newline, pieces)
            return lines, tail
        lines.append(chunk[begin:end])
        begin = end + 1
    return lines, _tail(chunk, begin)


def _count_lines(chunk: bytes) -> tuple[int, int, int]:
    """Return how many lines end in `chunk`, where the last one ends, and how many of them are blank. As fast as `_split()`, and no copy."""
    count = begin = blank = 0
    while (end := chunk.find(b"\n", begin)) >= 0:
        if count and end - begin < _SHORT_BYTES:
            rest = BytesIO(chunk)
            rest.seek(begin)
            pieces = rest.readlines()
            tail = 0 if chunk.endswith(b"\n") else len(pieces.pop())
            return count + len(pieces), len(chunk) - tail, blank + pieces.count(b"\n")
        blank += end == begin
        count += 1
        begin = end + 1
    return count, begin, blank


def _tail(chunk: bytes, begin: int) -> bytes | memoryview:
    """Return `chunk` from `begin` on: a large part of it as a view, which is not copied before it is joined to its line."""
    return memoryview(chunk)[begin:] if begin and len(chunk) - begin >= _VIEWED_BYTES else chunk[begin:]
