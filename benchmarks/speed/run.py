"""A whole run: every part on every event loop, each in a process of its own. Finished parts are kept, so a run can be resumed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speed import parts
from speed.worker import run_worker

__all__ = ["NotResumable", "run_parts"]

_TRIES = 2
"""Attempts for a part that fails. The second one continues where the first stopped."""

_SAME = ("python", "system", "cpus", "rounds", "scale", "source", "versions")
"""Facts that all figures of one report must share."""

Conditions = dict[str, Any]


class NotResumable(Exception):
    """Raised when the stopped run was made with other sources or amounts."""


def run_parts(
    folder: Path, *, about: Conditions, backends: Sequence[str], names: Sequence[str], resume: bool, apart: bool = True
) -> dict[str, Any]:
    """Measure, and return the report: `about`, the tables by event loop and part, how each part went, and which parts failed twice.

    With `apart=False` all parts run in this process. That is faster, but a crash of one ends all.
    """
    known = _open(folder, about, resume=resume)
    started = time.monotonic()
    pairs = [(backend, name) for backend in backends for name in names]
    found: dict[str, dict[str, Any]] = {backend: {} for backend in backends}
    failed = []
    for number, (backend, name) in enumerate(pairs, 1):
        passed = time.strftime("%H:%M:%S", time.gmtime(time.monotonic() - started))
        print(f"[{number}/{len(pairs)} after {passed}] {backend}: {name}", file=sys.stderr, flush=True)
        if not _run_part(folder, known, backend, name, apart=apart):
            failed.append(f"{backend}: {name}")
        path = _path(folder, backend, name)
        if path.exists():
            found[backend][name] = json.loads(path.read_text("utf-8"))
    spent = round(sum(part["seconds"] for part in known["parts"].values()))
    return {
        "about": {**known["about"], "seconds": spent, "sittings": known["sittings"], "parts": known["parts"]},
        "failed": failed,
        "backends": found,
    }


def _run_part(folder: Path, known: dict[str, Any], backend: str, name: str, *, apart: bool) -> bool:
    about, key = known["about"], f"{backend}: {name}"
    asked = {
        "part": name,
        "backend": backend,
        "rounds": about["rounds"],
        "scale": about["scale"],
        "path": str(_path(folder, backend, name)),
    }
    if key in known["parts"]:
        return True
    load, started = os.getloadavg()[0], time.monotonic()
    for _ in range(_TRIES):
        try:
            if apart:
                run_worker("part", timeout=parts.PART_SECONDS, in_group=False, **asked)
            else:
                parts.work(**asked)
        except Exception as exc:  # noqa: BLE001 - whatever one part has come to, the others are still worth measuring
            print(f"    {key} failed: {type(exc).__name__}: {str(exc)[:200]}", file=sys.stderr, flush=True)
        else:
            known["parts"][key] = {"seconds": round(time.monotonic() - started, 1), "load_before": round(load, 1)}
            _write(folder, known)
            return True
    return False


def _open(folder: Path, about: Conditions, *, resume: bool) -> dict[str, Any]:
    """Return the state of the run in `folder`: of the stopped one, or of a new one."""
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    path = folder / "run.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        known = {"about": about, "sittings": 0, "parts": {}}
    else:
        known = json.loads(path.read_text("utf-8"))
        changed = [key for key in _SAME if known["about"][key] != about[key]]
        if changed:
            raise NotResumable(f"the run that was left in {folder} differs in {', '.join(changed)}: run without --resume to begin anew")
    known["sittings"] += 1
    _write(folder, known)
    return known


def _write(folder: Path, known: dict[str, Any]) -> None:
    (folder / "run.json").write_text(json.dumps(known, indent=1), "utf-8")


def _path(folder: Path, backend: str, name: str) -> Path:
    return folder / f"{backend}-{name}.json"
