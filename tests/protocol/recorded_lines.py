"""The recorded lines: those of this repository, or of the folder that `CLAUDE_TRANSPORT_RECORDINGS` names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_TESTS = Path(__file__).parent.parent
BUNDLED = _TESTS / "recordings"


def recordings_folder() -> Path:
    """The folder of the recordings: another one shows how this library reads another version of the CLI."""
    named = os.environ.get("CLAUDE_TRANSPORT_RECORDINGS")
    return Path(named) if named else BUNDLED


def lines_of(path: Path, *, direction: str) -> Iterator[bytes]:
    """The whole lines of one recording; those that were cut while recording are left out."""
    for text in path.read_text("utf-8").splitlines():
        entry = json.loads(text)
        if entry["dir"] == direction and "trimmed_from_chars" not in entry:
            yield entry["line"].encode()


@cache
def recordings() -> tuple[Path, ...]:
    """Every recording at hand."""
    return tuple(sorted(recordings_folder().glob("*.ndjson")))


@cache
def sample_lines() -> tuple[bytes, ...]:
    """One line from the CLI for each set of keys that occurs in the bundled recordings: small, yet everything is in it."""
    samples: dict[str, bytes] = {}
    for path in sorted(BUNDLED.glob("*.ndjson")):
        for line in lines_of(path, direction="out"):
            message = json.loads(line)
            samples.setdefault(f"{message['type']}/{message.get('subtype')}/{sorted(message)}", line)
    return tuple(samples.values())
