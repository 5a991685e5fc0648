"""`Flow`: the lines that are sent, and the first line of a reader, which asks for them."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec
from speed.workload import delta

__all__ = ["BATCHES", "CHUNK_BYTES", "ECHO", "SINGLE", "Flow"]

BATCHES, SINGLE, ECHO = (b'{"type":"user","go":"%s"}\n' % kind for kind in (b"batches", b"single", b"echo"))
"""The first line of a reader: all lines in chunks; all lines, each in a WebSocket message of its own; or send back what comes."""

CHUNK_BYTES = 64 * 2**10
"""Bytes of one read of a pipe, some 250 small lines: as much as a gateway sends at once."""

_DISTINCT = 10_000
"""Lines until they repeat: 2.6 MB, more than the window of zstd (2 MiB at level 3), so that compression has real work."""

_WORDS = ("the", "reader", "was", "woken", "for", "one", "chunk", "and", "had", "nothing", "to", "read", "then", "it", "waits", "again")


@dataclass(frozen=True)
class Flow:
    """The lines of `file`, `times` over: partial messages of about 263 bytes, each with words and an id of its own."""

    file: Path
    times: int
    count: int

    @classmethod
    def write(cls, folder: Path, *, count: int) -> Flow:
        """Write the file; `count` is rounded down to a multiple of 10,000 when it is more."""
        chance = random.Random(263)
        distinct = min(count, _DISTINCT)
        file = folder / "flow.ndjson"
        file.write_bytes(b"".join(_line(chance) for _ in range(distinct)))
        return cls(file, count // distinct, distinct * (count // distinct))

    def chunks(self) -> list[bytes]:
        """Return the lines of the file in pieces of whole lines, of at most `CHUNK_BYTES`."""
        pieces, data, start = [], self.file.read_bytes(), 0
        while start < len(data):
            end = data.rfind(b"\n", start, start + CHUNK_BYTES) + 1
            pieces.append(data[start:end])
            start = end
        return pieces

    def lines(self) -> list[bytes]:
        """Return the lines of the file, one by one."""
        return self.file.read_bytes().splitlines(keepends=True)


def _line(chance: random.Random) -> bytes:
    message = delta(" ".join(chance.choices(_WORDS, k=6))[:26].ljust(26))
    return msgspec.json.encode({**message, "uuid": str(uuid.UUID(int=chance.getrandbits(128)))}) + b"\n"
