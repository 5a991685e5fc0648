"""Chunks of bytes in, whole lines out: the only place that knows where a message ends.

Only the byte 0x0A ends a line. U+2028, U+2029, U+0085, VT and FF inside a JSON string are data (`str.splitlines` would
cut there), and a chunk may end anywhere, also inside a UTF-8 sequence. Nothing here looks at JSON.
"""

from __future__ import annotations

from typing import Self

# --- A line that was too long to keep: its head, its true size, and the limit it broke.


class OversizedLine(bytes):
    """The first bytes of a line longer than the limit; `size` and `limit` are in bytes.

    It travels through `read_lines()` like any other line, so that readers that only look at bytes need no special
    case, and becomes an `OversizedMessage` (or `LineTooLong`) where lines are decoded.
    """

    size: int
    limit: int

    def __new__(cls, head: bytes, *, size: int, limit: int) -> Self:
        """A line of `size` bytes of which only `head` was kept."""
        self = super().__new__(cls, head)
        self.size = size
        self.limit = limit
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (bytes(self), self.size, self.limit))

    def __repr__(self) -> str:
        return f"OversizedLine({bytes(self)[:40]!r}…, size={self.size}, limit={self.limit})"


def _rebuild(head: bytes, size: int, limit: int) -> OversizedLine:
    return OversizedLine(head, size=size, limit=limit)


DEFAULT_MAX_LINE_BYTES = 256 * 2**20
"""Bytes one line may have. The CLI has no limit of its own: it repeats a whole answer in one line, and images come inline."""

_HEAD_BYTES = 1024
"""Bytes kept of a line that is too long: enough to recognise it in a log."""

_CRUMB_BYTES = 1024
"""A piece smaller than this is copied together with its neighbours: as an object of its own it could cost forty times its size."""

_SHORT_BYTES = 512
"""A line of fewer bytes is better split off together with its neighbours (see `_split`)."""

_GATHERED_BYTES = 64 * 2**10
"""Crumbs gathered into one piece: buffers that grow for ever are moved for ever (measured: a quarter of the speed)."""


class LineFramer:
    """Splits a stream of chunks into lines of at most `max_line_bytes` bytes, terminators removed, blank lines left out.

    What is held of the unfinished line is never more than `max_line_bytes`, however small the chunks it came in (a line is copied
    once more when it is handed out). Of a longer line only the head and the size are kept, it is delivered in its place as an
    `OversizedLine`, and the next line is not affected. The work is linear in the bytes fed.
    """

    __slots__ = ("_crumbs", "_head_bytes", "_pieces", "_size", "max_line_bytes")

    def __init__(self, *, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        if max_line_bytes < 1:
            msg = f"max_line_bytes must be at least 1, not {max_line_bytes}"
            raise ValueError(msg)
        self.max_line_bytes: int = max_line_bytes
        self._head_bytes = min(_HEAD_BYTES, max_line_bytes)
        self._pieces: list[bytes] = []  # the unfinished line …
        self._crumbs = bytearray()  # … and its end; only its head once it is too long
        self._size = 0  # its true size so far

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the unfinished line that are held in memory."""
        return sum(map(len, self._pieces)) + len(self._crumbs)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, in order; an empty list when it completes none."""
        lines = _split(chunk)
        tail = lines.pop()
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

    def finish(self) -> bytes:
        """What was left without a terminator at the end of the stream (b"" when nothing was), forgetting it."""
        line = b"".join([*self._pieces, self._crumbs])
        if self._size > self.max_line_bytes:
            line = OversizedLine(line, size=self._size, limit=self.max_line_bytes)
        self._pieces = []
        self._crumbs = bytearray()
        self._size = 0
        return line

    def _hold(self, piece: bytes) -> None:
        was_oversized = self._size > self.max_line_bytes
        self._size += len(piece)
        if self._size > self.max_line_bytes:
            if not was_oversized:
                self._keep_only_the_head()
            # The head is the same wherever the chunks were cut.
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
        parts: list[bytes | bytearray] = [*self._pieces, self._crumbs]
        for part in parts:
            head += part[: self._head_bytes - len(head)]
        self._pieces = []
        self._crumbs = head

    def _bounded(self, line: bytes) -> bytes:
        if len(line) <= self.max_line_bytes or isinstance(line, OversizedLine):
            return line
        return OversizedLine(line[: self._head_bytes], size=len(line), limit=self.max_line_bytes)


def _split(chunk: bytes) -> list[bytes]:
    """What is between the newlines of `chunk`, as `chunk.split(b"\\n")` gives it.

    `split()` looks at one byte after the other, `find()` at many at once: for long lines that is ten times as fast, for short ones the
    steps of the interpreter cost more. The first line tells nothing, since it may be the end of a long one.
    """
    lines: list[bytes] = []
    start = 0
    while (end := chunk.find(b"\n", start)) >= 0:
        if start and end - start < _SHORT_BYTES:
            return chunk.split(b"\n")
        lines.append(chunk[start:end])
        start = end + 1
    lines.append(chunk[start:])
    return lines
