"""The script that fetches programs of others knows the versions that the library supports, and asks for none that is not tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from foreign_programs import CLI_WHEELS, CODEX_VERSIONS, PROGRAMS

from claude_transport.codex.features import CODEX_RANGE, OBSERVED
from claude_transport.launch.features import CLAUDE_RANGE

SCRIPT = Path(__file__).with_name("foreign_programs.py")


def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)


def test_the_oldest_of_each_agent_is_the_oldest_supported_one() -> None:
    assert next(iter(CLI_WHEELS)) == CLAUDE_RANGE.oldest
    assert CODEX_VERSIONS[0] == CODEX_RANGE.oldest
    assert CODEX_VERSIONS == OBSERVED


def test_it_prints_the_versions_that_are_tested_the_oldest_first() -> None:
    assert asked("--versions", "claude").stdout.split() == [*CLI_WHEELS]


def test_it_prints_the_path_of_what_was_fetched_before(tmp_path: Path) -> None:
    (tmp_path / "ajv" / PROGRAMS["ajv"][1][-1]).mkdir(parents=True)
    ran = asked("ajv", "--cache", str(tmp_path))
    assert Path(ran.stdout.strip()).parent == tmp_path.resolve() / "ajv"
    assert ran.stderr == ""


@pytest.mark.parametrize(("program", "version"), [("ajv", "1.0"), ("claude", "2.0.0"), ("codex", "0.1.0")])
def test_a_version_that_is_not_tested_is_refused(program: str, version: str, tmp_path: Path) -> None:
    ran = asked(program, version, "--cache", str(tmp_path))
    assert ran.returncode == 2
    assert f"the versions of {program} for this system are" in ran.stderr
    assert [*tmp_path.iterdir()] == []
