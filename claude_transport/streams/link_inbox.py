"""`LinkInbox`: the lines of a link that wait for their reader, as bytes again."""

from __future__ import annotations

from collections import deque

from claude_transport.protocol.oversized import OversizedLine

__all__ = ["LinkInbox"]

_FILLER = b"." * 2**16
"""What stands for the lost rest of a line over the limit: whoever cuts the bytes into lines again finds the line too long, as it was."""


class LinkInbox:
    """Pieces of bytes in the order of their numbers. What is taken is told by the number up to which all has been taken."""

    def __init__(self) -> None:
        # (the number that is done with when the piece is taken, or 0; the bytes, or how many bytes of filler)
        self._pieces: deque[tuple[int, bytes | memoryview | int]] = deque()
        self.taken: int = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def put_lines(self, lines: list[bytes], *, last: int) -> None:
        """Add `lines`, the last of which has number `last`."""
        if len(lines) == 1 and isinstance(line := lines[0], OversizedLine):
            self._pieces.append((0, bytes(line)))
            self._pieces.append((0, line.size - len(line)))
            self._pieces.append((last, b"\n"))
        else:
            self._pieces.append((last, b"\n".join([*lines, b""])))

    def put_bytes(self, data: bytes, *, number: int) -> None:
        """Add `data` as it is: the torn end of a stream."""
        self._pieces.append((number, data))

    def take(self, max_bytes: int) -> bytes:
        """The next bytes, at most `max_bytes`, at least one; only to be called when there are any."""
        number, data = self._pieces.popleft()
        if isinstance(data, int):
            chunk = _FILLER[: min(data, max_bytes)]
            if data > len(chunk):
                self._pieces.appendleft((number, data - len(chunk)))
                number = 0
        elif len(data) > max_bytes:
            chunk = bytes(data[:max_bytes])
            self._pieces.appendleft((number, memoryview(data)[max_bytes:]))
            number = 0
        else:
            chunk = bytes(data)
        self.taken = number or self.taken
        return chunk

    def clear(self) -> None:
        """Forget everything."""
        self._pieces.clear()
