"""Chunks of bytes in, whole lines out: the only place that knows where a message ends.

Only the byte 0x0A ends a line. U+2028, U+2029, U+0085, VT and FF inside a JSON string are data (`str.splitlines` would
cut there), and a chunk may end anywhere, also inside a UTF-8 sequence. Nothing here looks at JSON.
"""

from __future__ import annotations

from claude_transport.protocol.oversized import OversizedLine

__all__ = ["DEFAULT_MAX_LINE_BYTES", "LineFramer"]

DEFAULT_MAX_LINE_BYTES = 256 * 2**20
"""Bytes one line may have. The CLI has no limit of its own: it repeats a whole answer in one line, and images come inline."""

_HEAD_BYTES = 1024
"""Bytes kept of a line that is too long: enough to recognise it in a log."""


class LineFramer:
    """Splits a stream of chunks into lines of at most `max_line_bytes` bytes, terminators removed, blank lines left out.

    Memory is bounded by one chunk plus `max_line_bytes`, whatever the peer sends: of a longer line only the head and the
    size are kept, it is delivered in its place as an `OversizedLine`, and the next line is not affected.
    The work is linear in the bytes fed, also when one line arrives in many small chunks.
    """

    __slots__ = ("_held", "_held_size", "_skipping", "max_line_bytes")

    def __init__(self, *, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        if max_line_bytes < 1:
            msg = f"max_line_bytes must be at least 1, not {max_line_bytes}"
            raise ValueError(msg)
        self.max_line_bytes = max_line_bytes
        self._held: list[bytes] = []  # pieces of the unfinished line; only its head while skipping
        self._held_size = 0  # true size of the unfinished line so far
        self._skipping = False  # the unfinished line is already known to be too long

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the unfinished line that are held in memory."""
        return sum(map(len, self._held))

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, in order; an empty list when it completes none."""
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines:
            if self._held_size:
                lines[0] = self._finish(lines[0])
            if len(chunk) > self.max_line_bytes:
                lines = [self._bounded(line) for line in lines]
            if b"" in lines:
                lines = [line for line in lines if line]
        if tail:
            self._hold(tail)
        return lines

    def finish(self) -> bytes:
        """What was left without a terminator at the end of the stream (b"" when nothing was), forgetting it."""
        return self._finish(b"")

    def _hold(self, piece: bytes) -> None:
        self._held_size += len(piece)
        if self._skipping:
            return
        self._held.append(piece)
        if self._held_size > self.max_line_bytes:
            self._held = [b"".join(self._held)[:_HEAD_BYTES]]
            self._skipping = True

    def _finish(self, last: bytes) -> bytes:
        if last:
            self._hold(last)
        line = b"".join(self._held)
        if self._skipping:
            line = OversizedLine(line, size=self._held_size, limit=self.max_line_bytes)
        self._held = []
        self._held_size = 0
        self._skipping = False
        return line

    def _bounded(self, line: bytes) -> bytes:
        if len(line) <= self.max_line_bytes or isinstance(line, OversizedLine):
            return line
        return OversizedLine(line[:_HEAD_BYTES], size=len(line), limit=self.max_line_bytes)
