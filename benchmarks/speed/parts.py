"""The parts of a run, by name. A part is measured table by table, and each table is kept at once."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from speed import carrying, conversing, curve, idle, importing, memory, mixed, proxying, reading, sessions, waking
from speed.bench import Bench, Table, Tables
from speed.worker import run_worker

__all__ = ["PARTS", "PART_SECONDS", "measure_apart", "measure_part", "work"]

PART_SECONDS = 900
"""Seconds for one part. The longest takes four minutes on two quiet cores."""

PARTS: dict[str, Callable[[Bench], Tables]] = {
    "reading": reading.tables,
    "carrying": carrying.tables,
    "conversing": conversing.tables,
    "waking": waking.tables,
    "sessions": sessions.tables,
    "gateway": proxying.tables,
    "mixed": mixed.tables,
    "importing": importing.tables,
    "memory": memory.tables,
    "idle": idle.tables,
    "curve": curve.tables,
}


def measure_part(
    name: str, *, backend: str, rounds: int, scale: float, kept: dict[str, Table], wanted: Collection[str] = ()
) -> dict[str, Table]:
    """Measure the tables of a part, or the wanted ones, into `kept`. Tables that are there already are not measured again."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for table, measure in PARTS[name](Bench(Path(folder), backend, rounds, scale)).items():
            if table in kept or (wanted and table not in wanted):
                continue
            started = time.monotonic()
            kept[table] = measure()
            print(f"    {backend}: {name}: {table} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)
    return kept


class _Kept(dict[str, Table]):
    """Tables that are also written to a file, so that they survive the process."""

    def __init__(self, path: Path) -> None:
        super().__init__(json.loads(path.read_text("utf-8")) if path.exists() else {})
        self._path, self._parent = path, os.getppid()

    def __setitem__(self, name: str, table: Table) -> None:
        if os.getppid() != self._parent:
            raise SystemExit("the run this belongs to is gone, and another one may be writing here")
        super().__setitem__(name, table)
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self), "utf-8")
        beside.replace(self._path)


def measure_apart(name: str, *, backend: str, rounds: int, scale: float, wanted: Collection[str]) -> dict[str, Table]:
    """Return the wanted tables of a part, measured in a process of its own, as for the page.

    Sessions take a quarter more time in a process that has measured everything else before.
    """
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder:
        path = Path(folder, "tables.json")
        amounts = {"backend": backend, "rounds": rounds, "scale": scale}
        run_worker("part", timeout=PART_SECONDS, in_group=False, part=name, path=str(path), wanted=sorted(wanted), **amounts)
        found: dict[str, Table] = json.loads(path.read_text("utf-8"))
    return found


def work(*, part: str, backend: str, rounds: int, scale: float, path: str, wanted: Collection[str] = ()) -> dict[str, Any]:
    """Measure a part, or its wanted tables, in a process of its own, table by table, into the file `path`."""
    measure_part(part, backend=backend, rounds=rounds, scale=scale, kept=_Kept(Path(path)), wanted=wanted)
    return {}
