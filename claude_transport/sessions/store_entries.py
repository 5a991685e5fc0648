"""Entries of transcripts as bytes and back, for stores: whatever the CLI has written can be kept, and a damaged line costs itself only.

Summaries have a check sum, so a damaged one is noticed, and made again from the entries.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from claude_transport.protocol.envelope import JSONTextError, encode_json, parse_json

LONGEST_CLAIM: Final = 86_400.0
"""Seconds for which a session can be claimed at once. What a store holds for longer is damaged, and counts for nothing."""

_CHECK: Final = b'"check":'


def uuid_of(entry: Any) -> str | None:
    """Return the uuid of an entry, if it has one that a database can compare."""
    uuid = entry.get("uuid") if isinstance(entry, dict) else None
    return uuid if isinstance(uuid, str) and uuid.isprintable() and uuid else None


def encode_entry(entry: Any) -> bytes:
    """Return an entry as JSON on one line. Half of a surrogate pair, which the CLI may write, is escaped.

    Raises:
        UsageError: JSON cannot express it.
    """
    try:
        return msgspec.json.encode(entry)
    except (TypeError, ValueError, RecursionError):
        return encode_json(entry)


def encode_summary(summary: Mapping[str, Any]) -> bytes:
    """Return a summary as JSON, with a check sum as its last member, `check`.

    Half of a surrogate pair becomes a question mark: a summary is for people, and databases read it, too.
    """
    try:
        text = msgspec.json.encode(summary)
    except UnicodeEncodeError:
        text = json.dumps(summary, ensure_ascii=False).encode("utf-8", "replace")
    body = text[:-1] + b"," * bool(summary)
    return body + _CHECK + b"%d}" % zlib.crc32(body)


def decode_summary(text: object) -> dict[str, Any] | None:
    """Return the summary that `encode_summary` has written; None for one that is missing or damaged."""
    if not isinstance(text, bytes):
        return None
    body, _, check = text.rpartition(_CHECK)
    if check != b"%d}" % zlib.crc32(body):
        return None
    summary: dict[str, Any] = msgspec.json.decode(text)
    del summary["check"]
    return summary


def decode_entries(lines: Iterable[bytes]) -> Iterator[Any]:
    """Yield the entry of each line. What is no JSON, after a crash of the system for example, is left out."""
    for line in lines:
        try:
            yield parse_json(line)[0]
        except JSONTextError:
            continue


def not_stored(entries: Sequence[Any], stored: Sequence[Any]) -> list[Any]:
    """Return those of `entries` that a call which failed has not added to a transcript, which has `stored` now.

    A call adds its entries in their order, so what it has added is their beginning. An entry with a uuid tells itself. Those without one
    are there when the last ones of the transcript are the first ones of the call.
    """
    known = {uuid for entry in stored if (uuid := uuid_of(entry)) is not None}
    reached = itertools.takewhile(lambda entry: uuid_of(entry) is None or uuid_of(entry) in known, entries)
    plain = [entry for entry in reached if uuid_of(entry) is None]
    last = [entry for entry in stored if uuid_of(entry) is None][-len(plain) :] if plain else []
    there = next(count for count in range(len(last), -1, -1) if last[len(last) - count :] == plain[:count])
    numbers = itertools.count()
    return [entry for entry in entries if (next(numbers) >= there if uuid_of(entry) is None else uuid_of(entry) not in known)]
