"""Break the package in small ways and see whether a test notices: `python tests/mutants/run_mutants.py --folder FOLDER [PATH…]`.

A seed draws a sample of the mutants of each room. Each is put into a copy of the repository in FOLDER, never into the working tree. There
the tests run that run its line, and when none of them fails, all tests of the room. What survives is printed as a diff. `rooms.toml` says
which tests belong to which files, and where they run on one system alone; `known.toml` which survivors nobody can notice, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import coverage
import pytest
from mutations import Mutant, mutants_of

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ROOMS: dict[str, dict[str, list[str]]] = tomllib.loads((HERE / "rooms.toml").read_text("utf-8"))
KNOWN: dict[str, str] = tomllib.loads((HERE / "known.toml").read_text("utf-8"))["known"]
OF_EVERY_ROOM = ["tests/test_sizes_of_bounds.py", "tests/test_facts_of_errors.py"]
MOST_TESTS = 40  # test functions of the first look; more of them while all together take so many seconds
MOST_SECONDS = 10.0
WITHOUT_A_FAILURE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
STAMPS = itertools.count(10**9)  # times of change of mutants: Python tells by the second and the size whether it must compile a file anew


@dataclass
class Room:
    """The files of a room, its tests, and what was measured of them: seconds, those that fail without a mutant, and who runs which line."""

    name: str
    files: list[str]
    tests: list[str]
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    lines: coverage.CoverageData = field(default_factory=lambda: coverage.CoverageData(no_disk=True))

    def tests_of(self, mutant: Mutant, measured_in: Path) -> list[str]:
        """Return the tests that run the line of a mutant, those of its file first.

        When it was not measured, as a constant of a module is not, these are the files named like its own, and those of every room.
        """
        by_line = self.lines.contexts_by_lineno(str(measured_in / mutant.path))
        run = range(mutant.line, mutant.line + mutant.before.count("\n") + 1)
        names = {name for line in run for name in by_line.get(line, ()) if name} - set(self.failed)
        stem = Path(mutant.path).stem
        ranked = sorted(names, key=lambda name: (stem not in name, self.seconds.get(name, 0), name))
        seconds = itertools.accumulate(self.seconds.get(name, 0) for name in ranked)
        taken = zip(itertools.count(), ranked, seconds)
        first = [name for place, name, so_far in taken if place < MOST_TESTS or so_far < MOST_SECONDS]
        return first or [path for path in self.tests if stem in path or path in OF_EVERY_ROOM]


def main() -> int:
    """Run the mutants that the command line asks for. Return 1 when too many of a room survive that are not known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", help="folders of the package, or files, of which only the tests run that import them")
    parser.add_argument("--folder", type=Path, required=True, help="where the copies are made")
    parser.add_argument("--seed", default="1", help="another seed draws another sample")
    parser.add_argument("--sample", type=int, default=400, help="mutants, as many in each room")
    parser.add_argument("--changed", action="store_true", help="only the three files that commits of the last two days changed last")
    parser.add_argument("--seconds", type=float, default=1e9, help="when to stop")
    parser.add_argument("--narrow", action="store_true", help="only the tests that run the line: quick, but a survivor may be none")
    parser.add_argument("--least", type=float, default=0.0, help="percent of each room that must be killed, or known")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    wanted = [path.rstrip("/") for path in (changed_files() if arguments.changed else arguments.paths or ["claude_transport"])]
    is_narrow = arguments.changed or all(path.endswith(".py") for path in wanted)
    names = [name for name, room in ROOMS.items() if sys.platform in room.get("systems", [sys.platform])]
    rooms = [room for room in (room_of(name, wanted, is_narrow=is_narrow) for name in names) if room.files]
    copies = [copy_of(arguments.folder.resolve() / f"copy{number}") for number in range(arguments.jobs)]
    table, is_enough = ["| room | mutants | killed | known | alive |", "| --- | --- | --- | --- | --- |"], True
    for number, room in enumerate(rooms):
        measure(room, copies[0], (deadline - time.monotonic()) / 2 / (len(rooms) - number))
        if arguments.changed and not room.seconds:  # its mutants would live for want of a test
            print(f"{room.name}: left out, no test was measured in time", flush=True)
            continue
        pool = sorted((mutant for path in room.files for mutant in mutants_of(ROOT, path)), key=lambda each: each.key)
        if arguments.changed:  # nothing but tests that run the line is quick enough
            pool = [mutant for mutant in pool if room.tests_of(mutant, copies[0])]
        chosen = drawn(pool, max(1, arguments.sample // len(rooms)), f"{arguments.seed} {room.name}")
        ends = deadline if number == len(rooms) - 1 else time.monotonic() + (deadline - time.monotonic()) / (len(rooms) - number)
        verdicts = run_all(room, chosen, copies, ends, narrow=arguments.narrow or arguments.changed)
        survivors = [mutant for mutant, killer in verdicts.items() if killer is None]
        unknown = [mutant for mutant in survivors if mutant.key not in KNOWN]
        print(*map(diff_of, unknown), sep="\n")
        numbers = (len(verdicts), len(verdicts) - len(survivors), len(survivors) - len(unknown), len(unknown))
        table.append(f"| {room.name} | {' | '.join(map(str, numbers))} |")
        is_enough &= 100 * len(unknown) <= (100 - arguments.least) * len(verdicts)
    print("", *table, sep="\n")
    return 0 if is_enough else 1


def changed_files() -> list[str]:
    """Return the three files of the package that were changed last: there is no time for more."""
    git = ["git", "log", "--since=2 days ago", "--name-only", "--format=", "--", "claude_transport"]
    names = dict.fromkeys(subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())
    return [name for name in names if name.endswith(".py") and (ROOT / name).exists()][:3]


def files_of(name: str) -> list[str]:
    """Return the files of a room. One that another room names in full is not among them: its tests are there."""
    elsewhere = {pattern for other, room in ROOMS.items() if other != name for pattern in room["files"]}
    found = {str(path.relative_to(ROOT)) for pattern in ROOMS[name]["files"] for path in ROOT.glob(pattern)}
    return sorted(found - elsewhere)


def room_of(name: str, wanted: list[str], *, is_narrow: bool) -> Room:
    """Return a room with those of its files that are wanted, and all its tests; when it is narrow, with the tests that import the files."""
    files = [path for path in files_of(name) if any(path == each or path.startswith(f"{each}/") for each in wanted)]
    modules = [path.removesuffix(".py").replace("/", ".") for path in files]
    folders = [ROOT / each for each in ROOMS[name]["tests"]]
    found = [path for folder in folders for path in ([folder] if folder.is_file() else sorted(folder.rglob("test_*.py")))]
    tests = [path for path in found if str(path.relative_to(ROOT)) not in ROOMS[name].get("without", [])]
    importing = [path for path in tests if is_narrow and any(f"{each} " in path.read_text("utf-8") for each in modules)]
    chosen = [str(path.relative_to(ROOT)) for path in importing or tests]
    return Room(name, files, list(dict.fromkeys([*OF_EVERY_ROOM, *chosen])))


def copy_of(folder: Path) -> Path:
    """Copy the files that git knows or would add, as they are in the working tree."""
    shutil.rmtree(folder, ignore_errors=True)
    git = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    for name in subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def measure(room: Room, copy: Path, seconds: float) -> None:
    """Run the tests of a room once, for so long at most, and note which of them runs which line."""
    base, notes, settings = (copy.parent / f"{room.name}.{ending}" for ending in ("coverage", "json", "ini"))
    for path in (base, notes):
        path.unlink(missing_ok=True)
    settings.write_text(f"[run]\nsource = {copy / 'claude_transport'}\ndata_file = {base}\n", "utf-8")
    command = ["coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-p", "contexts", "-o", "faulthandler_timeout=0"]
    run_tests(copy, [*command, *room.tests], seconds=seconds, notes=notes)
    if notes.exists() and base.exists():
        noted = json.loads(notes.read_text("utf-8"))
        room.seconds, room.failed = noted["seconds"], noted["failed"]
        room.lines = coverage.CoverageData(str(base))
        room.lines.read()
    print(f"{room.name}: {len(room.seconds)} tests, {sum(room.seconds.values()):.0f} s, failing by themselves: {room.failed}", flush=True)


def drawn(pool: list[Mutant], count: int, seed: str) -> list[Mutant]:
    """Draw a sample that has each kind as often as the others, as long as there are enough of it."""
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in pool:
        by_kind.setdefault(mutant.kind, []).append(mutant)
    for name, mutants in by_kind.items():
        random.Random(f"{seed} {name}").shuffle(mutants)
    return [mutants[number] for number in range(len(pool)) for mutants in by_kind.values() if number < len(mutants)][:count]


def run_all(room: Room, mutants: list[Mutant], copies: list[Path], deadline: float, *, narrow: bool) -> dict[Mutant, str | None]:
    """Run mutants in all copies at once, until the deadline. Return what killed each; None when it survived."""
    waiting = iter(mutants)  # all threads take from it
    verdicts: dict[Mutant, str | None] = {}

    def work(copy: Path) -> None:
        for mutant in waiting:
            verdict = run_one(room, mutant, copy, measured_in=copies[0], narrow=narrow, deadline=deadline)
            if time.monotonic() > deadline:
                return  # it was stopped, and says nothing
            verdicts[mutant] = verdict
            print(f"  {room.name} {mutant.path}:{mutant.line} {mutant.kind}: {verdict or 'SURVIVED'}", flush=True)

    with ThreadPoolExecutor(len(copies)) as workers:
        list(workers.map(work, copies))
    return verdicts


def run_one(room: Room, mutant: Mutant, copy: Path, *, measured_in: Path, narrow: bool, deadline: float) -> str | None:
    """Put a mutant into a copy, run its tests, and put the file right again. Return what killed it."""
    target, source = copy / mutant.path, (copy / mutant.path).read_bytes()
    target.write_bytes(mutant.applied(source))
    os.utime(target, (stamp := next(STAMPS), stamp))
    try:
        near = room.tests_of(mutant, measured_in)
        for tests in filter(None, [near] if narrow and near else [near, room.tests]):
            usual = sum(seconds for name, seconds in room.seconds.items() if name.startswith(tuple(tests)))
            verdict = verdict_of(copy, tests, without=room.failed, seconds=min(30 + 4 * usual, deadline - time.monotonic()))
            if verdict is not None:
                return verdict
        return None
    finally:
        target.write_bytes(source)


def verdict_of(copy: Path, tests: list[str], *, without: list[str], seconds: float) -> str | None:
    """Run tests in a copy. Return how they noticed its mutant; None when they did not.

    Pytest ends with 4 when a test that was named is not found: the mutant broke the import of its file, or the name is no test any more.
    The first is noticed. After the second nothing has run, so the files of the tests run. That no test was chosen (5) is not noticed.
    """
    options = [word for name in without for word in ("--deselect", name)]
    code = run_tests(copy, ["pytest", "-x", *tests, *options], seconds=seconds)
    if code == pytest.ExitCode.USAGE_ERROR:
        files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
        if run_tests(copy, ["pytest", "--collect-only", *files], seconds=seconds) not in WITHOUT_A_FAILURE:
            return "import"
        print(f"  not all of these are tests, so their files run: {' '.join(tests)}", flush=True)
        code = run_tests(copy, ["pytest", "-x", *files, *options], seconds=seconds)
    if code in WITHOUT_A_FAILURE:
        return None
    return "time" if code < 0 else "failed" if code == pytest.ExitCode.TESTS_FAILED else f"pytest ended with {code}"


def run_tests(copy: Path, command: list[str], *, seconds: float, notes: Path | None = None) -> int:
    """Run pytest in a copy. Return its exit code; a negative one when the time was over."""
    options = ["-q", "-p", "no:cacheprovider", "-m", "not e2e and not nightly", "--hypothesis-profile=quick"]
    cache = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(copy / ".pyc")}  # to compile all tests takes longer than most runs
    env = {**os.environ, **cache, "PYTHONPATH": f"{copy}:{copy / 'tests' / 'mutants'}", "MUTANTS_NOTES": str(notes or "")}
    words, quiet = [sys.executable, "-m", *command, *options], subprocess.DEVNULL
    with subprocess.Popen(words, cwd=copy, env=env, start_new_session=True, stdin=quiet, stdout=quiet, stderr=quiet) as run:
        try:
            return run.wait(seconds)
        except BaseException as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.send_signal(signal.SIGINT)  # so that it writes down what it has measured
                run.wait(2.0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return -1


def diff_of(mutant: Mutant) -> str:
    """Return a mutant as a unified diff, with its key for `known.toml`."""
    source = (ROOT / mutant.path).read_bytes()
    old, new = (text.decode().splitlines(keepends=True) for text in (source, mutant.applied(source)))
    return f"# {mutant.key}\n" + "".join(difflib.unified_diff(old, new, mutant.path, mutant.path, n=2))


if __name__ == "__main__":
    sys.exit(main())
