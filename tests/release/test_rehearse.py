"""What a rehearsal of the release runs, with which variables, and what it tells when something fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from rehearse import AFTERWARDS, NOT_RUN, PASSED, Step, commands, environment, run_all
from session_steps import declared

ROOT = Path(__file__).parents[2]


def test_a_rehearsal_runs_what_the_workflow_runs_to_build_a_release() -> None:
    found = commands(yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8")))
    assert found == [
        "python -m pip install nox",
        'python -m nox -s release_check -- --tag "$GITHUB_REF_NAME"',
        "python -m nox -s supply_chain -- sbom",
    ]


@pytest.mark.parametrize("command", AFTERWARDS)
def test_what_it_runs_afterwards_are_sessions_and_tests_that_there_are(command: str) -> None:
    session, *arguments = command.removeprefix("python -m nox -s ").split()
    assert session in declared((ROOT / "noxfile.py").read_text("utf-8"))
    assert [each for each in arguments if each.startswith("tests/") and not (ROOT / each).exists()] == []


def test_it_has_the_variables_of_the_workflow_and_nothing_of_this_checkout() -> None:
    of = {"PATH": "/bin", "PYTHONPATH": "/src", "VIRTUAL_ENV": "/v", "NOX_CURRENT_SESSION": "x", "GIT_DIR": "/g", "HOME": "/me"}
    env = environment(of, programs=Path("/programs"), version="1.2.3")
    assert env == {
        "CLAUDE_TRANSPORT_REPOSITORY": "https://example.org/owner/name",
        "GITHUB_REF_NAME": "v1.2.3",
        "HOME": "/me",
        "PATH": f"/programs{os.pathsep}/bin",
    }


def test_the_address_of_the_real_repository_wins() -> None:
    env = environment({"CLAUDE_TRANSPORT_REPOSITORY": "https://host/a/b"}, programs=Path("/programs"), version="1")
    assert env["CLAUDE_TRANSPORT_REPOSITORY"] == "https://host/a/b"


def test_the_first_failure_ends_it_and_the_rest_is_named(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        done = run_all(["echo $GITHUB_REF_NAME", "false; true", "echo later"], clone=tmp_path, env={"GITHUB_REF_NAME": "v1"}, log=log)
    assert [(step.command, step.result) for step in done] == [
        ("echo $GITHUB_REF_NAME", PASSED),
        ("false; true", "exit code 1"),
        ("echo later", NOT_RUN),
    ]
    assert (tmp_path / "log").read_text("utf-8") == "\n$ echo $GITHUB_REF_NAME\nv1\n\n$ false; true\n"


def test_a_line_of_the_table_has_the_seconds_when_it_ran() -> None:
    assert [str(Step("a", 1.6, PASSED)), str(Step("b", None, NOT_RUN))] == ["| `a` | 2 | passed |", f"| `b` |  | {NOT_RUN} |"]
