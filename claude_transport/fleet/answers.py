"""What a broker gives back, checked: the one place at which its bytes become names, numbers, entries, answers and records.

A client has rights on keys of the broker, and can write anything there. So nothing that was read is trusted. Each function returns a
value of the right type and size, or raises `ProtocolError` with the code `fleet.malformed`. Rows of the tables that all share are
skipped instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from claude_transport.errors import ProtocolError
from claude_transport.fleet.messages import (
    FLEET_VERSIONS,
    Append,
    Appended,
    Call,
    Entry,
    Fenced,
    Gap,
    Gone,
    Renew,
    Renewed,
    Reply,
    Sync,
    Synced,
    Take,
    Taken,
)
from claude_transport.fleet.placement import MAX_NODE_BYTES, Node, Wanted
from claude_transport.fleet.scripts import PUSHED_BYTES

MALFORMED: Final = "fleet.malformed"

_MAX_WANTED_BYTES: Final = 256 * 2**10
"""The most bytes of what a client asks for."""

_MAX_WAKE_BYTES: Final = 64 * 2**10
"""The most bytes of a wake-up. A larger one is about no session in particular."""

_MAX_PUSHED_BYTES: Final = 2 * PUSHED_BYTES
"""The most bytes of a message with entries. Of a larger one the stream is read instead."""

_MOST: Final = 10**15 - 1
"""The largest number that any end writes: more entries, or milliseconds since 1970, do not occur."""

_COUNT: Final = re.compile(r"\d{1,15}", re.ASCII)
_NUMBER: Final = re.compile(rb"\A(\d{1,15})-0\Z")
_PUSHED: Final = re.compile(rb"(\d{1,15}) (\d{1,15}\.[\w-]{0,64})((?: [a-z]:\d{1,6})*)", re.ASCII)
_SESSION: Final = re.compile(r"[\w.:-]{1,128}", re.ASCII)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Turn what a value of another shape raises into `ProtocolError`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise ProtocolError(f"{what} cannot be read: no end of a fleet has written it", code=MALFORMED) from exc


# Values.


def text_of(value: Any) -> str:
    """Return what the broker gave as text."""
    if type(value) is bytes and value.isascii():  # most are, and to enter the block below costs more than all the rest
        return value.decode()
    with _reading("a text in the broker"):
        return value.decode() if isinstance(value, bytes) else str(value)


def bytes_of(value: Any) -> bytes:
    """Return what the broker gave as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def count_of(value: Any) -> int:
    """Return a number from 0 to 10^15."""
    if type(value) is int and 0 <= value <= _MOST:
        return value
    with _reading("a number in the broker"):
        if isinstance(value, int) and not isinstance(value, bool):
            if not 0 <= value <= _MOST:
                raise ValueError
            return value
        text = str(value.decode() if isinstance(value, bytes) else value)
        if not _COUNT.fullmatch(text):
            raise ValueError
        return int(text)


def _milliseconds_of(value: Any) -> int:
    """Return a difference of two times, which may be below 0."""
    return count_of(value) if value >= 0 else -count_of(-value)


def fields_of(answer: Any) -> dict[str, str]:
    """Return a hash: a mapping, or a list of names and values by turns."""
    with _reading("a hash in the broker"):
        pairs = answer.items() if isinstance(answer, Mapping) else zip(answer[::2], answer[1::2], strict=True)
        return {text_of(name): text_of(value) for name, value in pairs}


def session_name(value: Any) -> str | None:
    """Return the id of a session out of a table; None for what is the id of none."""
    try:
        name = text_of(value)
    except ProtocolError:
        return None
    return name if _SESSION.fullmatch(name) else None


def woken_about(message: bytes) -> list[str]:
    """Return the sessions of a wake-up. Without any, it is about all that wait."""
    names = message.split() if len(message) <= _MAX_WAKE_BYTES else ()
    return [name for each in names if (name := session_name(each)) is not None]


# Entries and answers.


def entries_of(found: Any) -> list[Entry]:
    """Return the entries of the one stream that was read."""
    with _reading("what a stream holds"):
        return [entry_of(row[0], row[1]) for row in found[1]] if found else []


def entry_of(identifier: Any, fields: Any) -> Entry:
    """Return an entry of a session. `fields` is a mapping, or a list of names and values by turns."""
    with _reading("an entry of the session"):
        (number,) = _NUMBER.findall(bytes_of(identifier))
        named = fields if isinstance(fields, Mapping) else dict(zip(fields[::2], fields[1::2], strict=True))
        return Entry(int(number), text_of(named[b"e"]), text_of(named[b"k"]), bytes_of(named[b"d"]))


def pushed_entries(message: bytes) -> list[Entry]:
    """Return the entries in a message on the channel of a stream; none when it says only that there are some, or is anything else."""
    head, _, body = message.partition(b"\n") if len(message) <= _MAX_PUSHED_BYTES else (b"", b"", b"")
    found = _PUSHED.fullmatch(head)
    if found is None:
        return []
    token, entries, at = found[2].decode(), [], 0
    for number, part in enumerate(found[3].split(), int(found[1])):
        size = int(part[2:])
        entries.append(Entry(number, token, chr(part[0]), body[at : at + size]))
        at += size
    return entries if at == len(body) else []


def reply_of(call: Call, answer: list[Any]) -> Reply:
    """Return what the answer of a script to the call of an end means."""
    with _reading("the answer of a script"):
        word, rest = text_of(answer[0]), answer[1:]
        if word == "GONE":
            return Gone()
        if word == "FENCED":
            return Fenced(text_of(rest[0]))
        if word == "GAP":
            return Gap(count_of(rest[0]), count_of(rest[1]))
        match call:
            case Append():
                return Appended(count_of(rest[0]), count_of(rest[1]), count_of(rest[2]))
            case Take():
                return Taken(count_of(rest[0]))
            case Sync():
                return Synced(text_of(rest[0]), *map(count_of, rest[1:5]))
            case Renew():
                return Renewed(_milliseconds_of(rest[0]) / 1000, stop=bool(rest[1]), more=bool(rest[2]))


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """The place that a client has got in a session: its token, and what both ends have said and taken.

    `others_lease` is True when the client before, or this one when it came a moment ago, has a lease.
    """

    token: str
    last: int
    taken: int
    read: int
    worker_last: int
    worker: str
    state: str
    worker_base: int
    others_lease: bool

    @classmethod
    def of(cls, answer: list[Any]) -> Attached:
        """Read the answer of the script."""
        with _reading("the answer of a script"):
            token, last, taken, read, worker_last, worker, state, base, others_lease = answer[1:10]
            return cls(
                token=text_of(token),
                last=count_of(last),
                taken=count_of(taken),
                read=count_of(read),
                worker_last=count_of(worker_last),
                worker=text_of(worker),
                state=text_of(state),
                worker_base=count_of(base),
                others_lease=bool(count_of(others_lease)),
            )


# Records.


_NODES: Final = msgspec.json.Decoder(Node)


def _decoded(decode: Callable[[], Any]) -> Any:
    try:
        return decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def decode_node(data: bytes) -> Node | None:
    """Return the worker of a record; None for a record that no worker has written."""
    if len(data) > MAX_NODE_BYTES:
        return None
    found: Node | None = _decoded(lambda: _NODES.decode(data))
    return found


def looked_of(answer: Any) -> tuple[float, int, int, int, list[Any]]:
    """Return what the script `LOOK` gives: seconds of the broker's clock, three counts, and rows."""
    with _reading("a look at the queue"):
        _, now, moved, junk, waiting, rows = answer
        return count_of(now) / 1000, count_of(moved), count_of(junk), count_of(waiting), list(rows)


def nodes_of(rows: Any) -> list[Node]:
    """Return the workers of the table, without rows that no worker has written."""
    with _reading("the table of workers"):
        records: Iterable[Any] = rows.values()
    return [node for record in records if (node := decode_node(bytes_of(record))) is not None]


class _Versioned(msgspec.Struct):
    version: int = 1


def decode_wanted(data: bytes) -> Wanted | None:
    """Return what a session needs; None for what no client has written. Of a version that is not known, it has the version only."""
    if len(data) > _MAX_WANTED_BYTES:
        return None
    version = _decoded(lambda: msgspec.json.decode(data, type=_Versioned).version)
    if version is None or version not in FLEET_VERSIONS:
        return None if version is None else Wanted(version=version)
    wanted: Wanted | None = _decoded(lambda: msgspec.json.decode(data, type=Wanted))
    return wanted
