"""RESP3, the protocol of Redis and Valkey, without I/O: `encode_command()`, and `RespParser`, which bounds what a server may say.

An answer that is too large is read to its end and not kept: it becomes a `RespError`, and the answers behind it are as good as before.
What breaks the protocol itself raises `ValueError`, and the connection is of no more use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

MAX_REPLY_BYTES: Final = 64 * 2**20
"""The most bytes of one answer that are kept."""

_MAX_ELEMENTS: Final = 2**20
_MAX_LINE_BYTES: Final = 2**16
_MAX_NESTING: Final = 16
_LARGEST: Final = 2**62

_AGGREGATES: Final = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2}
_STRINGS: Final = b"$!="


class RespError(Exception):
    """The server has answered with an error. `code` is its first word, such as `WRONGTYPE`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code: str = text.partition(" ")[0]


class RespPush:
    """What a server has said without being asked: a kind, such as `message`, and what belongs to it."""

    __slots__ = ("items",)

    def __init__(self, items: list[Any]) -> None:
        self.items: list[Any] = items


def encode_command(words: Iterable[bytes | str | int | float]) -> bytes:
    """Return a command as a server reads it. Numbers are written in decimal."""
    parts = [b""]
    for word in words:
        data = word if type(word) is bytes else word.encode() if type(word) is str else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    parts[0] = b"*%d\r\n" % (len(parts) - 1)
    return b"".join(parts)


class _Aggregate:
    """A list that is being read."""

    __slots__ = ("is_push", "items", "left")

    def __init__(self, left: int, *, is_push: bool) -> None:
        self.left = left
        self.items: list[Any] = []
        self.is_push = is_push


class RespParser:
    """Makes answers of bytes, in whatever pieces they come.

    A string is `bytes`, a number an `int` or `float`, nothing is None, and a list, a set or a map (names and values by turns) is a `list`.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._open: list[_Aggregate] = []
        self._string: tuple[int, int] | None = None  # the kind and the length of a string whose bytes have not come
        self._skip = 0  # bytes of a string that is not kept
        self._bytes = self._elements = 0  # of this answer

    def feed(self, data: bytes) -> list[Any]:
        """Return the answers that are complete now. Raises `ValueError` for bytes that are no RESP3."""
        data = self._buffer + data if self._buffer else data
        at, size = 0, len(data)
        done: list[Any] = []
        while at < size:
            if self._skip:
                skipped = min(self._skip, size - at)
                self._skip -= skipped
                at += skipped
                if not self._skip:
                    self._add(None, done)
                continue
            if self._string is not None:
                kind, length = self._string
                if size - at < length + 2:
                    break
                if data[at + length : at + length + 2] != b"\r\n":
                    raise ValueError("a string does not end where it said")
                self._string = None
                self._add(_string_of(kind, data[at : at + length]), done)
                at += length + 2
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                if size - at > _MAX_LINE_BYTES:
                    raise ValueError("a line does not end")
                break
            self._line(data[at], data[at + 1 : end], done)
            at = end + 2
        self._buffer = data[at:] if at else data
        return done

    def _line(self, kind: int, rest: bytes, done: list[Any]) -> None:
        if kind in _STRINGS:
            length = _count_of(rest)
            if length is None:
                self._add(None, done)
                return
            self._bytes += length
            if self._bytes > MAX_REPLY_BYTES:
                self._skip = length + 2
            else:
                self._string = kind, length
        elif kind in _AGGREGATES:
            count = _count_of(rest)
            if count is None:
                self._add(None, done)
                return
            if len(self._open) >= _MAX_NESTING:
                raise ValueError("an answer has too many levels")
            self._open.append(_Aggregate(count * _AGGREGATES[kind], is_push=kind == ord(">")))
            if not count:
                self._close(done)
        else:
            self._add(_scalar_of(kind, rest), done)

    def _add(self, value: Any, done: list[Any]) -> None:
        """Add a value to the list that is open, or to the answers."""
        if not self._open:
            self._finish(value, done)
            return
        inner = self._open[-1]
        self._elements += 1
        if self._elements <= _MAX_ELEMENTS:
            inner.items.append(value)
        inner.left -= 1
        if not inner.left:
            self._close(done)

    def _close(self, done: list[Any]) -> None:
        closed = self._open.pop()
        self._add(RespPush(closed.items) if closed.is_push else closed.items, done)

    def _finish(self, value: Any, done: list[Any]) -> None:
        if self._bytes > MAX_REPLY_BYTES or self._elements > _MAX_ELEMENTS:
            value = (
                RespPush([]) if isinstance(value, RespPush) else RespError("TOOLARGE the answer has more than any end of a fleet writes")
            )
        self._bytes = self._elements = 0
        done.append(value)


def _count_of(rest: bytes) -> int | None:
    """Return a length; None for what is nothing. Raises `ValueError` for a length that no server says."""
    if rest == b"-1":
        return None
    if not rest.isdigit() or int(rest) > _LARGEST:
        raise ValueError("a length is no number")
    return int(rest)


def _string_of(kind: int, data: bytes) -> Any:
    if kind == ord("!"):
        return RespError(data.decode("utf-8", "replace"))
    return data[4:] if kind == ord("=") else data


def _scalar_of(kind: int, rest: bytes) -> Any:
    match kind:
        case 43:  # +
            return rest
        case 45:  # -
            return RespError(rest.decode("utf-8", "replace"))
        case 58:  # :
            return int(rest)
        case 95:  # _
            return None
        case 35:  # hash sign
            return rest == b"t"
        case 44:  # ,
            return float(rest)
        case 40:  # (
            return rest
    raise ValueError("an answer begins with no known sign")
