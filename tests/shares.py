"""Two ways to save time in CI: a part of a long sweep is left to `nox -s nightly`, and what all workers need is made by one of them.

A proof of a row is never shared with the nightly run: all its cases run in CI.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Collection, Iterable

import pytest
from _pytest.mark import ParameterSet


def share(cases: Iterable[object], *, ci: Collection[object]) -> list[ParameterSet]:
    """Return every case as a parameter of a test; the nightly run has those that are not in `ci`.

    Raises:
        ValueError: `ci` names something that is no case, or nothing.
    """
    every = list(cases)
    if not ci or not all(each in every for each in ci):
        raise ValueError(f"{list(ci)} are not all among the cases, {every}")
    return [pytest.param(case, marks=() if case in ci else pytest.mark.nightly) for case in every]


def once_in_a_run(folders: pytest.TempPathFactory, name: str, make: Callable[[], str]) -> str:
    """Return what `make()` returns. Of the workers of one run, the first that asks for `name` makes it; the others wait for that."""
    base = folders.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"{name}.made"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_text(make(), "utf-8")
    return path.read_text("utf-8")
