"""The mutants are what they say, and every file that is guarded belongs to one room."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
import run_mutants
from mutations import mutants_of
from run_mutants import files_of, room_of, verdict_of

ROOT = Path(__file__).parent.parent.parent
ROOMS = tomllib.loads((Path(__file__).parent / "rooms.toml").read_text("utf-8"))

SOURCE = """
LONGEST_BYTES = 2**20
def f(x, y):
    \"\"\"A docstring.\"\"\"
    if x and y:
        x.go()
    try:
        x.seen = redact(y)[:9]
    except OSError:
        x.stop()
    finally:
        y.close()
    logger.info("not one")
    wait(timeout=x)
    raise ValueError("no")
"""

MADE = [
    ("bound", "2**20", "10**9"),
    ("bound", "9", "10**9"),
    ("bound", "x", "10**9"),
    ("condition", "x", "True"),
    ("condition", "x and y", "(not (x and y))"),
    ("condition", "y", "True"),
    ("error", "ValueError", "(lambda *a, **k: Exception(*a))"),
    ("except", "x.stop()", "pass"),
    ("finally", "y.close()", "pass"),
    ("mask", "redact(y)", "(y)"),
    ("statement", 'raise ValueError("no")', "pass"),
    ("statement", "wait(timeout=x)", "pass"),
    ("statement", "x.go()", "pass"),
    ("statement", "x.seen = redact(y)[:9]", "pass"),
]


def test_a_handler_that_returns_false_returns_true_instead(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("def f(x):\n    try:\n        return x.y\n    except OSError:\n        return False\n", "utf-8")
    (only,) = mutants_of(tmp_path, "module.py")
    assert (only.kind, only.before, only.after) == ("except", "return False", "return True")


def test_each_kind_of_mistake_is_made_where_it_can_be(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(SOURCE, "utf-8")
    made = {(each.kind, each.before, each.after) for each in mutants_of(tmp_path, "module.py")}
    assert sorted(made) == MADE


@pytest.mark.parametrize(("end", "made"), [("", 0), ("    return 1\n", 1)], ids=["at the end", "before the end"])
def test_a_handler_that_returns_as_the_end_of_its_function_does_is_no_mistake(tmp_path: Path, end: str, made: int) -> None:
    source = "def f():\n    try:\n        return 7\n    except OSError:\n        return None\n"
    (tmp_path / "module.py").write_text(source + end, "utf-8")
    assert [each.kind for each in mutants_of(tmp_path, "module.py")] == ["except"] * made


def test_a_mutant_changes_its_text_and_nothing_else(tmp_path: Path) -> None:
    """Also after characters of several bytes."""
    source = 'TEXT = "äöü"; MOST = 5\nprint(TEXT)\n'
    (tmp_path / "module.py").write_text(source, "utf-8")
    bound, statement = mutants_of(tmp_path, "module.py")
    assert bound.applied(source.encode()).decode() == 'TEXT = "äöü"; MOST = 10**9\nprint(TEXT)\n'
    assert statement.applied(source.encode()).decode() == 'TEXT = "äöü"; MOST = 5\npass\n'
    assert statement.key == "module.py | statement | print(TEXT) -> pass"


ENDS = [  # how each run of pytest ends, what it ran, and whether that is noticed
    ([0], "named", None),
    ([1], "named", "failed"),
    ([-1], "named", "time"),
    ([3], "named", "pytest ended with 3"),
    ([5], "named", None),
    ([4, 2], "collected", "import"),
    ([4, 4], "collected", "import"),
    ([4, 0, 0], "files", None),
    ([4, 5, 5], "files", None),
    ([4, 0, 1], "files", "failed"),
]


@pytest.mark.parametrize(("codes", "last", "verdict"), ENDS)
def test_a_missing_test_is_not_taken_for_one_that_noticed(
    codes: list[int], last: str, verdict: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[list[str]] = []

    def run_tests(copy: Path, command: list[str], *, seconds: float) -> int:
        assert (copy, seconds) == (tmp_path, 7.0)
        ran.append(command)
        return codes[len(ran) - 1]

    monkeypatch.setattr(run_mutants, "run_tests", run_tests)
    assert verdict_of(tmp_path, ["test_a.py::test_1", "test_a.py::test_2"], without=["test_a.py::test_3"], seconds=7.0) == verdict
    commands = {
        "named": ["pytest", "-x", "test_a.py::test_1", "test_a.py::test_2", "--deselect", "test_a.py::test_3"],
        "collected": ["pytest", "--collect-only", "test_a.py"],
        "files": ["pytest", "-x", "test_a.py", "--deselect", "test_a.py::test_3"],
    }
    assert ran == [*commands.values()][: len(codes)]
    assert ran[-1] == commands[last]


@pytest.mark.parametrize("seconds", [{}, {"tests/protocol/test_peek.py::test_one": 0.1}], ids=["none", "one"])
def test_a_room_in_which_no_test_was_measured_is_left_out_and_nothing_of_it_is_alive(
    seconds: dict[str, float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["run_mutants.py", "--folder", str(tmp_path), "--changed", "--sample", "1", "--jobs", "1", "--least", "100"]
    )
    monkeypatch.setattr(run_mutants, "changed_files", lambda: ["claude_transport/protocol/peek.py"])
    monkeypatch.setattr(run_mutants, "copy_of", lambda folder: folder)
    monkeypatch.setattr(run_mutants, "measure", lambda room, *_: room.seconds.update(seconds))
    monkeypatch.setattr(run_mutants, "run_one", lambda *_, **__: None)
    assert run_mutants.main() == len(seconds)
    said = capsys.readouterr().out
    assert ("protocol: left out, no test was measured in time" in said) is not bool(seconds)
    assert ("| protocol | 1 | 0 | 0 | 1 |" in said) is bool(seconds)


@pytest.mark.parametrize("name", ROOMS)
def test_the_files_and_the_tests_of_a_room_are_there(name: str) -> None:
    assert [pattern for pattern in ROOMS[name]["files"] if not [*ROOT.glob(pattern)]] == []
    assert [path for path in ROOMS[name]["tests"] if not (ROOT / path).exists()] == []


def test_a_slow_test_that_another_room_has_is_not_run_for_each_mutant_of_this_one() -> None:
    slow = "tests/fleet/test_fleet_cluster.py"
    tests = {name: room_of(name, ["claude_transport"], is_narrow=False).tests for name in ("fleet", "cluster")}
    assert {name: slow in tests[name] for name in tests} == {"fleet": False, "cluster": True}
    assert "tests/fleet/test_fleet_workers.py" in tests["fleet"]
    without = {path for room in ROOMS.values() for path in room.get("without", [])}
    assert without <= {path for room in ROOMS.values() for path in room["tests"]}


def test_no_file_is_in_two_rooms() -> None:
    found = [path for name in ROOMS for path in files_of(name)]
    assert sorted(set(found)) == sorted(found)
    assert "claude_transport/fleet/observing.py" in files_of("fleet")


def test_contributing_shows_the_rooms() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| ")}
    for name, room in ROOMS.items():
        texts = [
            *(path.removeprefix("claude_transport/") for path in room["files"]),
            *(each for each in room["tests"] if each[-3:] != ".py"),
        ]
        assert [text for text in texts if f"`{text}`" not in rows[name]] == []
