"""`Flow`: the lines that travel, and the first line by which a reader says what it wants of the other side."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec
from speed.workload import delta

__all__ = ["BATCHES", "CHUNK_BYTES", "ECHO", "SINGLE", "Flow"]

BATCHES, SINGLE, ECHO = (b'{"type":"user","go":"%s"}\n' % kind for kind in (b"batches", b"single", b"echo"))
"""What a reader says first: all lines, in chunks; all lines, each in a message of its own (WebSocket); or: give back whatever comes."""

CHUNK_BYTES = 64 * 2**10
"""Bytes that one reading of a pipe gives: what a gateway has at hand when it sends, some 250 small lines."""

_DISTINCT = 10_000
"""Lines until they repeat: 2.6 MB, which is more than zstd looks back over (2 MiB at level 3), so that compression has to work."""

_WORDS = ("the", "reader", "was", "woken", "for", "one", "chunk", "and", "had", "nothing", "to", "read", "then", "it", "waits", "again")


@dataclass(frozen=True)
class Flow:
    """The lines of `file`, `times` over: partial messages of about 263 bytes, each with words and an id of its own."""

    file: Path
    times: int
    count: int

    @classmethod
    def write(cls, folder: Path, *, count: int) -> Flow:
        """Make the file; `count` is rounded down to a multiple of 10,000 when it is more."""
        chance = random.Random(263)
        distinct = min(count, _DISTINCT)
        file = folder / "flow.ndjson"
        file.write_bytes(b"".join(_line(chance) for _ in range(distinct)))
        return cls(file, count // distinct, distinct * (count // distinct))

    def chunks(self) -> list[bytes]:
        """The lines of the file in pieces of at most `CHUNK_BYTES`, each of whole lines."""
        pieces, data, start = [], self.file.read_bytes(), 0
        while start < len(data):
            end = data.rfind(b"\n", start, start + CHUNK_BYTES) + 1
            pieces.append(data[start:end])
            start = end
        return pieces

    def lines(self) -> list[bytes]:
        """The lines of the file, one by one."""
        return self.file.read_bytes().splitlines(keepends=True)


def _line(chance: random.Random) -> bytes:
    message = delta(" ".join(chance.choices(_WORDS, k=6))[:26].ljust(26))
    return msgspec.json.encode({**message, "uuid": str(uuid.UUID(int=chance.getrandbits(128)))}) + b"\n"
