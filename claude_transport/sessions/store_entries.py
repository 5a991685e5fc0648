"""Entries of transcripts as bytes and back, for stores: whatever the CLI has written can be kept, and a damaged line costs itself only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from claude_transport.protocol.envelope import JSONTextError, encode_json, parse_json


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
    """Return a summary as JSON. Half of a surrogate pair becomes a question mark: a summary is for people, and databases read it, too."""
    try:
        return msgspec.json.encode(summary)
    except UnicodeEncodeError:
        return json.dumps(summary, ensure_ascii=False).encode("utf-8", "replace")


def decode_entries(lines: Iterable[bytes]) -> Iterator[Any]:
    """Yield the entry of each line. What is no JSON, after a crash of the system for example, is left out."""
    for line in lines:
        try:
            yield parse_json(line)[0]
        except JSONTextError:
            continue
