"""`LinkInbox`: bytes of a link that have arrived and wait for their reader."""

from __future__ import annotations

from collections import deque

__all__ = ["LinkInbox"]

_CRUMB_BYTES = 1024
"""A piece smaller than this is joined to the one before: as an object of its own it could cost many times its size."""


class LinkInbox:
    """Pieces of a stream, in order. `taken` is the position up to which it was taken."""

    def __init__(self) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self.taken: int = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def put(self, data: bytes) -> None:
        """Add `data`, which is not empty."""
        pieces = self._pieces
        if len(data) < _CRUMB_BYTES and pieces and len(pieces[-1]) < _CRUMB_BYTES:
            pieces[-1] = b"".join((pieces[-1], data))
        else:
            pieces.append(data)

    def take(self, max_bytes: int) -> bytes:
        """The next bytes, at most `max_bytes`, at least one; only to be called when there are any. Joined as far as pieces fit whole."""
        pieces = self._pieces
        data = pieces.popleft()
        if len(data) > max_bytes:
            whole = memoryview(data)
            data = whole[:max_bytes]
            pieces.appendleft(whole[max_bytes:])
        elif pieces and len(data) + len(pieces[0]) <= max_bytes:
            size = len(data)
            joined = [data]
            while pieces and size + len(pieces[0]) <= max_bytes:
                size += len(pieces[0])
                joined.append(pieces.popleft())
            data = b"".join(joined)
        self.taken += len(data)
        return bytes(data)

    def clear(self) -> None:
        """Forget everything."""
        self._pieces.clear()
