"""A line that was too long to keep: its head, its true size, and the limit it broke."""

from __future__ import annotations

from typing import Self

__all__ = ["OversizedLine"]


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
