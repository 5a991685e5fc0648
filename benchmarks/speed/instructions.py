"""Count the instructions that a small typed message takes, with valgrind: nearly the same number on a busy machine as on a quiet one.

A process reads some messages, and another one reads more of them. The difference is what the messages take, without all that happens once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio

from speed import limit, ours
from speed.peers import handshake_peer, line_peer
from speed.workload import SHAPES, Workload

__all__ = ["FEW", "MANY", "UNKNOWN", "compared"]

UNKNOWN: dict[str, Any] = {"median": 0.0}
"""What is returned where there is no valgrind."""

FEW, MANY = 1_200, 7_200
"""Messages. A process that valgrind runs takes fifty times as long."""

_SHAPE = "delta, 263 B"
_SECONDS = 300
_COLLECTED = re.compile(r"Collected : (\d+)")


def compared(folder: Path, backend: str) -> dict[str, Any]:
    """Return the instructions for a message of the limit and of ours, and their ratio in `median`; or `UNKNOWN`."""
    if shutil.which("valgrind") is None:
        return UNKNOWN
    found = {subject: _for_a_message(folder, subject, backend) for subject in ("limit", "ours")}
    return {**found, "median": found["limit"] / found["ours"]}


def _for_a_message(folder: Path, subject: str, backend: str) -> float:
    counts = [_count(folder, subject, backend, messages) for messages in (FEW, MANY)]
    return (counts[1] - counts[0]) / (MANY - FEW)


def _count(folder: Path, subject: str, backend: str, messages: int) -> int:
    work = Workload.of_shape(folder, _SHAPE, scale=messages / SHAPES[_SHAPE][0])
    assert work.count == messages, work.count
    peer = line_peer(folder, work.files) if subject == "limit" else handshake_peer(folder, work.files)
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-m", __name__]
    ran = subprocess.run(
        [*command, subject, backend, peer, str(messages)],
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    (collected,) = _COLLECTED.findall(ran.stderr)
    return int(collected)


def main(subject: str, backend: str, peer: str, messages: str) -> None:
    """Read the messages of a peer."""
    work = Workload(_SHAPE, b"", int(messages), 0, ())
    if subject == "limit":
        limit.read_typed(peer, work)
    else:
        anyio.run(ours.query_typed, peer, work, backend=backend)


if __name__ == "__main__":
    main(*sys.argv[1:])
