"""The maps of the requirements' rows: which tests prove which row, and what pytest makes of those tests.

A row map is `proofs.toml`, or a module-level `PROOFS` in a test file. Any text in one of the form `folder/test_file.py::test_name` is a
proof, also as a key.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
LOOPS = ("asyncio", "trio")
ANY_LOOP = re.compile(r"\b(asyncio|trio)\b")
PROOF = re.compile(r"[\w/]+\.py::test_\w+")


@dataclass
class Collected:
    """What pytest collected for one proof."""

    ids: int = 0
    backends: set[str] = field(default_factory=set)
    """The event loops that the ids of its cases name: `asyncio`, `trio`."""
    is_async: bool = False
    is_left_out: bool = False
    """True when a mark on the test, its class or its module skips a case on this machine, expects it to fail or leaves it out of CI."""
    runs_a_loop: bool = False
    """True for a plain function that starts an event loop itself."""


def texts_in(value: object) -> Iterator[str]:
    """Return every text in `value`, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from texts_in(key)
            yield from texts_in(inner)
    elif isinstance(value, Iterable):
        for inner in value:
            yield from texts_in(inner)


@cache
def proofs() -> frozenset[str]:
    """Return the proofs of all row maps, as `path::name` with paths relative to `tests`."""
    found: set[str] = set()
    for path in TESTS.glob("proofs.toml"):
        found.update(text for text in texts_in(tomllib.loads(path.read_text("utf-8"))) if PROOF.fullmatch(text))
    for path in TESTS.rglob("test_*.py"):
        if not re.search(r"^PROOFS\b", path.read_text("utf-8"), re.MULTILINE):
            continue
        spec = importlib.util.spec_from_file_location(f"row_map_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        found.update(text for text in texts_in(module.PROOFS) if PROOF.fullmatch(text))
    return frozenset(found)


def proof_of(nodeid: str) -> str:
    """Return the proof that a node id, with its parameters and relative to the root or to `tests`, is a case of."""
    return nodeid.partition("[")[0].removeprefix("tests/")


def left_to_the_night(nodeids: Collection[str]) -> Iterator[str]:
    """Yield one of each two node ids that differ in the event loop only, unless they are proofs. Half of the pairs lose each loop."""
    for nodeid in nodeids:
        name, bracket, parameters = nodeid.partition("[")
        pair = [f"{name}{bracket}{re.sub(ANY_LOOP, loop, parameters, count=1)}" for loop in LOOPS]
        is_pair = pair[0] != pair[1] and all(each in nodeids for each in pair)
        if is_pair and nodeid == pair[zlib.crc32(pair[0].encode()) % len(LOOPS)] and proof_of(nodeid) not in proofs():
            yield nodeid


class Collector:
    """A pytest plugin that writes down what was collected for each proof."""

    def __init__(self, wanted: Iterable[str], journal: Path) -> None:
        self.wanted = frozenset(wanted)
        self.journal = journal

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        found: dict[str, Collected] = {}
        for item in session.items:
            if (proof := proof_of(item.nodeid)) in self.wanted and isinstance(item, pytest.Function):
                note(found.setdefault(proof, Collected()), item)
        rows = {proof: {**vars(collected), "backends": sorted(collected.backends)} for proof, collected in found.items()}
        self.journal.write_text(json.dumps(rows))


def note(collected: Collected, item: pytest.Function) -> None:
    """Add one case to what is known of its proof."""
    code = item.function.__code__
    collected.ids += 1
    collected.backends |= set(re.findall(ANY_LOOP, item.nodeid.partition("[")[2]))
    collected.is_async |= bool(code.co_flags & 0x80)  # a coroutine function
    collected.runs_a_loop |= "run" in code.co_names and bool({"anyio", "asyncio", "trio"} & {*code.co_names})
    # a condition in words is not evaluated here, so it counts as true
    skips = [mark for mark in item.iter_markers("skipif") if any(mark.args)]
    collected.is_left_out |= bool(skips) or any(item.get_closest_marker(name) for name in ("skip", "xfail", "nightly"))


def collect(wanted: Iterable[str], journal: Path, *, tests: Path = TESTS) -> dict[str, Collected]:
    """Let a pytest of its own collect the files of these proofs, and return what it found. A proof that is missing was not collected."""
    done = subprocess.run(
        [sys.executable, __file__, tests, journal],
        input="\n".join(sorted(wanted)),
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        check=False,
    )
    assert done.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout[-4000:] + done.stderr[-4000:]
    rows: dict[str, dict[str, Any]] = json.loads(journal.read_text())
    return {proof: Collected(**{**row, "backends": set(row["backends"])}) for proof, row in rows.items()}


def main(tests: Path, journal: Path) -> int:
    """Collect the files of the proofs that are named on standard input, and write to `journal` what was found."""
    wanted = sys.stdin.read().split()
    files = sorted({str(tests / proof.partition("::")[0]) for proof in wanted})
    options = ["--collect-only", "-qqq", "-p", "no:cacheprovider", f"--rootdir={tests.parent}"]
    return pytest.main([*options, *files], plugins=[Collector(wanted, journal)])


def complaints(wanted: Iterable[str], found: Mapping[str, Collected]) -> Iterator[str]:
    """Say of each proof why it does not run on both event loops, or not at all. A pure test runs on none, and that is well."""
    for proof in sorted(wanted):
        collected = found.get(proof)
        if collected is None:
            yield f"{proof} is not collected: it does not exist, or its module is skipped"
        elif collected.is_left_out:
            yield f"{proof} is skipped here, expected to fail, or left to the nightly run"
        elif (collected.backends or collected.is_async or collected.runs_a_loop) and collected.backends != {*LOOPS}:
            yield f"{proof} runs on {sorted(collected.backends)} only"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
