"""With which programs of others, how often and in how many processes the sessions of nox run pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_programs import ACP_AGENT_VERSION, CLI_WHEELS, PROGRAMS
from run_pytest import main


def runs(*arguments: str, cores: int = 1) -> list[list[str]]:
    return main([*arguments], fetch=lambda program, version: Path(f"/{program}/{version}"), cores=cores)


def test_what_is_for_pytest_keeps_its_order() -> None:
    given = ["-q", "-m", "not e2e and not nightly", "--hypothesis-profile=quick", "tests/protocol", "-k", "a or b", "-n", "2"]
    assert runs(*given) == [["-n", "3", "--dist", "worksteal", *given]]


@pytest.mark.parametrize(("given", "cores", "workers"), [([], 1, "3"), (["--per-core", "2"], 2, "4"), ([], 64, "8")])
def test_there_are_some_workers_for_each_core_and_never_more_than_eight(given: list[str], cores: int, workers: str) -> None:
    assert runs(*given, cores=cores)[0][:2] == ["-n", workers]


def test_programs_are_named_with_the_path_of_their_newest_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROGRAMS, "codex", (PROGRAMS["codex"][0], ()))  # as where there is none for the system
    (run,) = runs("--with", "codex,acp-agent", "-x")
    assert run[4:] == [f"--acp-agent=/acp-agent/{ACP_AGENT_VERSION}", "-x"]


def test_every_version_has_a_run_of_its_own_the_oldest_first() -> None:
    found = runs("--every", "claude", "tests/e2e")
    assert [run[4:] for run in found] == [["tests/e2e", f"--claude-binary=/claude/{version}"] for version in CLI_WHEELS]


def test_the_oldest_version_runs_alone_and_without_one_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [run[-1] for run in runs("--oldest", "claude")] == [f"--claude-binary=/claude/{next(iter(CLI_WHEELS))}"]
    monkeypatch.setitem(PROGRAMS, "codex", (PROGRAMS["codex"][0], ()))
    assert runs("--oldest", "codex") == []
