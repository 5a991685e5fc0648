"""The recordings of Codex: each line with its direction, as the lab wrote it down."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parent.parent / "recordings" / "codex"
NAMES = tuple(sorted(path.stem for path in RECORDINGS.glob("*.ndjson")))


@cache
def entries_of(name: str) -> tuple[dict[str, Any], ...]:
    """Everything in the recording `name`, in order: `dir` is `in` for the host, `out` for Codex."""
    return tuple(json.loads(text) for text in (RECORDINGS / f"{name}.ndjson").read_text("utf-8").splitlines())


@cache
def lines_of(name: str, *, direction: str = "out") -> tuple[bytes, ...]:
    """The lines that went in one direction."""
    return tuple(entry["line"].encode() for entry in entries_of(name) if entry["dir"] == direction)


def object_on(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line; None when there is none, because the recording cut the line or the lab sent rubbish."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
