"""Tapes made of the recordings of Codex, and lines for tapes of one's own."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from codex_recordings import NAMES, entries_of

from claude_transport.protocol.tape import INPUT_ENDED, OUTPUT_ENDED, Tape, TapeRecord

_NOTES = {"standard input closed by the driver": INPUT_ENDED}
"""The words of the lab for what a recorder writes in its own."""

CONVERSATIONS = tuple(
    name for name in NAMES if name.startswith("app_") and any(entry["dir"] == "out" for entry in entries_of(name)) and "nobody" not in name
)
"""The recordings of the app server. (The one in which the host reads nothing is cut by the lab.)"""


@cache
def tape_of(name: str) -> Tape:
    """The recording as a tape: without what Codex asked the model, and with the recorder's own words for the end of the input."""
    records = []
    for entry in entries_of(name):
        line: bytes = entry["line"].encode()
        if entry["dir"] == "note":
            line = _NOTES.get(entry["line"]) or line
        if entry["dir"] == "note" and line.startswith(b"exit code"):
            records.append(TapeRecord(entry["t"], "note", OUTPUT_ENDED))
        if entry["dir"] in ("in", "out", "err", "note"):
            records.append(TapeRecord(entry["t"], entry["dir"], line))
    return Tape(sorted(records, key=lambda record: record.t))


def with_own_id(line: bytes, *, before: str = "live-") -> bytes:
    """A request of the host as another host would write it: other words, another id. Other lines stay as they are."""
    try:
        message: dict[str, Any] = json.loads(line)
    except ValueError:
        return line
    if isinstance(message, dict) and "method" in message and "id" in message:
        return json.dumps({**message, "id": f"{before}{message['id']}"}).encode()
    return line
