"""How much the lines and their writer change a ratio: typed messages, the official SDK against ours, with one thing changed at a time.

python benchmarks/bench_lines.py                     a table for docs/benchmarks/speed.md, on asyncio
python benchmarks/bench_lines.py --backend trio --rounds 3 --scale 0.1
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from speed import official, ours
from speed.bench import Bench
from speed.peers import handshake_peer
from speed.workload import SHAPES, Workload, message_of

QUOTED = 'lorem "ipsum" dolor sit amet — é\n'
"""Of 32 letters, five need an escape in ASCII, and three in UTF-8."""

Encode = Callable[[dict[str, Any]], bytes]


def compact(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def spaced(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def ascii_only(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


CASES: dict[str, tuple[int, str | None, Encode, int]] = {
    "as on this page": (1000, None, compact, 0),
    "all lines equal": (1, None, compact, 0),
    "spaces after commas and colons": (1000, None, spaced, 0),
    "text with many quotes": (1000, QUOTED, compact, 0),
    "the same text, ASCII only": (1000, QUOTED, ascii_only, 0),
    "written in pieces of 64 KiB": (1000, None, compact, 65536),
    "all but the first, lines not equal": (1000, QUOTED, ascii_only, 65536),
}
"""By name: lines that differ, their text, their encoding, and the bytes of each write (0: as `cat` does)."""

SHOWN = ("delta, 263 B", "assistant, 2.3 KB", "tool result, 1.3 MB")


def measure(bench: Bench, shape: str, case: str) -> dict[str, Any]:
    """Return the ratio of a shape in a case."""
    variants, text, encode, piece = CASES[case]
    size = len(SHAPES[shape][1])
    lines = [encode(message_of(shape, number, text=text)) for number in range(max(min(variants, 8_000_000 // size), 1))]
    folder = bench.folder / f"{list(CASES).index(case)}-{size}"
    folder.mkdir()
    work = Workload.write(folder, shape, line=lines[0], count=max(round(SHAPES[shape][0] * bench.scale), 60), variants=lines)
    peer = handshake_peer(folder, work.files, piece_bytes=piece)
    runs = {"ours": bench.run(ours.query_typed, peer, work), "official": bench.run(official.query_typed, peer, work)}
    found: dict[str, Any] = bench.compare(runs, ratios={"ratio": ("official", "ours")}, unit="message")["ratios"]["ratio"]
    return found


def rows(bench: Bench) -> Sequence[str]:
    """Return the table, a line for each case: processor time, and time by the clock in brackets."""
    table = [f"| {bench.backend} | {' | '.join(SHOWN)} |", "|---" * (len(SHOWN) + 1) + "|"]
    for case in CASES:
        found = [measure(bench, shape, case) for shape in SHOWN]
        cells = [f"{ratio['median']:.2f} ({ratio['wall']['median']:.2f})" for ratio in found]
        table.append(f"| {case} | {' | '.join(cells)} |")
        print(table[-1], flush=True)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", choices=["asyncio", "trio"], default="asyncio")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=0.3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        rows(Bench(Path(folder), options.backend, options.rounds, options.scale))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
