"""What the sessions of noxfile.py run: with which words, from where, and when they are skipped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from session_steps import Quiet, Sessions, SkipIf, declared, play

NOXFILE = (Path(__file__).parent.parent / "noxfile.py").read_text("utf-8")


class SkippedSession(Exception):
    """What nox does with a session that is skipped."""


class RecordedSession:
    """A session that runs nothing, and remembers what it would have run."""

    def __init__(self, cache_dir: Path, *posargs: str, said: str = "") -> None:
        self.posargs = list(posargs)
        self.cache_dir = cache_dir
        self.said = said
        self.ran: list[tuple[str, ...]] = []
        self.options: list[Mapping[str, Any]] = []
        self.installed: list[str] = []
        self.followed_by: list[str] = []

    def run(self, *command: str, **options: Any) -> str:
        self.ran.append(command)
        self.options.append(options)
        return self.said

    def install(self, *packages: str) -> None:
        self.installed += packages

    def notify(self, session: str, *, posargs: Iterable[str]) -> None:
        self.followed_by += [session, *posargs]

    def skip(self, *why: object) -> NoReturn:
        raise SkippedSession(*why)


def recorded(registered: dict[str, Any], *, packages: Iterable[str] = ()) -> Sessions:
    def register(run: Callable[..., object], *, name: str, **options: Any) -> None:
        registered[name] = (run, options)

    return Sessions(register=register, groups=lambda *names: [*names, *packages])


@pytest.mark.parametrize(
    ("step", "given", "ran"),
    [
        ("ruff check {args} .", ["--fix", "a b"], ["ruff", "check", "--fix", "a b", "."]),
        ("ruff check {args} .", [], ["ruff", "check", "."]),
        ("pytest -m 'not e2e'", ["-x"], ["pytest", "-m", "not e2e"]),
        ("mutants '{args or --least 92}'", [], ["mutants", "--least", "92"]),
        ("mutants '{args or --least 92}'", ["a.py"], ["mutants", "a.py"]),
        ("{nox} -m nox", [], [sys.executable, "-m", "nox"]),
    ],
)
def test_the_words_in_braces_are_filled_in(step: str, given: list[str], ran: list[str], tmp_path: Path) -> None:
    session = RecordedSession(tmp_path, *given)
    play(session, [step], env={})
    assert session.ran == [tuple(ran)]


def test_the_folder_is_empty_and_outside_and_gone_afterwards(tmp_path: Path) -> None:
    session = RecordedSession(tmp_path / "cache")
    play(session, ["prog {folder} {cache}/ports"], env={})
    ((_, folder, ports),) = session.ran
    assert ports == str(tmp_path.resolve() / "cache" / "ports")
    assert Path(folder).is_absolute()
    assert not Path(folder).exists()


def test_a_shared_session_finds_every_program_in_the_environment_of_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    registered: dict[str, Any] = {}
    recorded(registered).shared("lint", "Style.", then=["more"])("ruff check", "{nox} -V")
    run, options = registered["lint"]
    session = RecordedSession(tmp_path / ".cache", "--fix")
    run(session)
    (ruff, check), (python, _) = session.ran
    assert Path(ruff).parent.parent == tmp_path.resolve() / "checks"
    assert (check, python) == ("check", sys.executable)
    assert session.options[0]["external"] is True
    assert session.options[0]["env"]["PATH"].split(":")[:2] == [str(Path(ruff).parent), "/usr/bin"]
    assert session.installed == []
    assert session.followed_by == ["more"]  # without the arguments of this one
    assert (run.__doc__, options) == ("Style.", {"venv_backend": "none", "requires": ["checks"]})


def test_a_session_apart_installs_its_groups_and_has_its_variables(tmp_path: Path) -> None:
    registered: dict[str, Any] = {}
    recorded(registered).apart("lowest", "Old.", install="-e . uv", groups="test docs", env={"CI": ""}, python="3.11")("uv lock")
    run, options = registered["lowest"]
    session = RecordedSession(tmp_path)
    run(session)
    assert session.installed == ["-e", ".", "uv", "test", "docs"]
    assert session.ran == [("uv", "lock")]
    assert session.options == [{"env": {"PYTEST_ADDOPTS": "", "PYTHONDONTWRITEBYTECODE": "", "CI": ""}, "silent": False}]
    assert options == {"python": "3.11"}


def test_only_a_quiet_command_keeps_its_output_to_itself(tmp_path: Path) -> None:
    session = RecordedSession(tmp_path)
    play(session, [Quiet("a"), "b"], env={})
    assert [options["silent"] for options in session.options] == [True, False]


def test_the_rest_is_skipped_when_a_command_says_why(tmp_path: Path) -> None:
    session = RecordedSession(tmp_path, said="no wine\n")
    with pytest.raises(SkippedSession, match=r"^no wine$"):
        play(session, ["first", SkipIf("look"), "second"], env={})
    assert session.ran == [("first",), ("look",)]


def test_nothing_is_skipped_when_it_says_nothing(tmp_path: Path) -> None:
    session = RecordedSession(tmp_path, said="\n")
    play(session, [SkipIf("look"), "second"], env={})
    assert session.ran == [("look",), ("second",)]


def test_every_script_that_a_session_runs_is_there() -> None:
    words = NOXFILE.replace('"', " ").replace("'", " ").split()
    scripts = {word for word in words if word.startswith(("tests/", "benchmarks/")) and word.endswith(".py")}
    assert len(scripts) > 15
    assert [script for script in scripts if not (Path(__file__).parent.parent / script).exists()] == []


def test_every_session_has_a_declaration() -> None:
    assert {"checks", "lint", "tests", "wine"} <= declared(NOXFILE).keys()
    assert NOXFILE.count("\nshared(") + NOXFILE.count("\napart(") == len(declared(NOXFILE))
