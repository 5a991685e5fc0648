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

    What is held of the unfinished line is never more than `max_line_bytes`, however small the chunks it came in (a line is copied
    once more when it is handed out). Of a longer line only the head and the size are kept, it is delivered in its place as an
    `OversizedLine`, and the next line is not affected. The work is linear in the bytes fed.
    """

    __slots__ = ("_head_bytes", "_held", "_size", "max_line_bytes")

    def __init__(self, *, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        if max_line_bytes < 1:
            msg = f"max_line_bytes must be at least 1, not {max_line_bytes}"
            raise ValueError(msg)
        self.max_line_bytes = max_line_bytes
        self._head_bytes = min(_HEAD_BYTES, max_line_bytes)
        # One growing buffer and no list of pieces: a line that dribbles in by the byte would cost forty times its size in objects.
        self._held = bytearray()  # the unfinished line; only its head once it is too long
        self._size = 0  # its true size so far

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the unfinished line that are held in memory."""
        return len(self._held)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, in order; an empty list when it completes none."""
        lines = chunk.split(b"\n")
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
        line = bytes(self._held)
        if self._size > self.max_line_bytes:
            line = OversizedLine(line, size=self._size, limit=self.max_line_bytes)
        self._held = bytearray()  # a new one: clear() would keep the memory of the longest line
        self._size = 0
        return line

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self.max_line_bytes:
            self._held += piece
            return
        # The head is the same wherever the chunks were cut.
        missing = self._head_bytes - len(self._held)
        if missing > 0:
            self._held += piece[:missing]
        elif missing < 0:
            self._held = self._held[: self._head_bytes]

    def _bounded(self, line: bytes) -> bytes:
        if len(line) <= self.max_line_bytes or isinstance(line, OversizedLine):
            return line
        return OversizedLine(line[: self._head_bytes], size=len(line), limit=self.max_line_bytes)
