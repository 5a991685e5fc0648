"""The tables of the program's page that are written by hand: exit codes, and the fields of what `--json` prints, are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from claude_transport import errors
from claude_transport.agents.registry import LIBRARY_AGENTS
from claude_transport.app import failures
from claude_transport.app.arguments import MANUAL, NO_READER
from claude_transport.app.bench import BenchReport, BenchRow
from claude_transport.app.doctor import AgentFinding, CLIFinding, DoctorReport, EnvironmentFinding, Failure, PathFinding, Step, TestRun
from claude_transport.app.failures import exit_code_of
from claude_transport.launch.credentials import CredentialReport

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "program.md").read_text("utf-8")


def rows_below(head: str) -> list[tuple[str, str]]:
    """The two cells of each row of the table with this head."""
    table = re.search(rf"^{re.escape(head)}\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    return [(one, other) for one, other in (row.strip("| ").split(" | ", 1) for row in table[1].splitlines())]


def coded(text: str) -> list[str]:
    """The words that stand as code in a text."""
    return re.findall(r"`([^`]+)`", text)


def test_the_exit_codes_of_the_page_are_those_of_the_program_and_of_its_help() -> None:
    shown = [int(code) for code, _meaning in rows_below("| exit code | meaning |")]
    constants = {value for name, value in vars(failures).items() if name.startswith("EXIT_")}
    assert shown == sorted(constants)
    assert shown == [int(code) for code, _meaning in (*MANUAL["ask"].exit_codes, NO_READER)]


@pytest.mark.parametrize("name", [name for name in errors.__all__ if not name.endswith("Warning")])
def test_every_error_ends_the_program_with_an_exit_code_of_the_page(name: str) -> None:
    shown = {int(code) for code, _meaning in rows_below("| exit code | meaning |")}
    assert exit_code_of(getattr(errors, name)("x")) in shown - {0, 130, 141}


def test_the_doctor_prints_the_fields_that_the_page_says() -> None:
    told = {field: text for fields, text in rows_below("| field | content |") for field in coded(fields)}
    others = [name for name in LIBRARY_AGENTS if name != "claude-code"]
    assert sorted(told) == sorted({*DoctorReport.__struct_fields__, *others} - {"others"})
    parts = {"cli": CLIFinding, "credential": CredentialReport, "paths": PathFinding, "environment": EnvironmentFinding}
    parts |= dict.fromkeys(others, AgentFinding)
    for field, struct in parts.items():
        assert [name for name in struct.__struct_fields__ if name not in coded(told[field])] == []
    named = coded(told["test_run"])
    assert [name for struct in (TestRun, Step) for name in struct.__struct_fields__ if name not in named] == []


def test_the_page_says_what_is_in_an_error_of_the_doctor_and_in_the_figures_of_bench() -> None:
    places: tuple[tuple[str, tuple[type[msgspec.Struct], ...]], ...] = (
        (r"^An `error` has (.*)$", (Failure,)),
        (r"^`--json` gives one object: (`version`(?:.*\n)+?)\n", (BenchReport, BenchRow)),
    )
    for pattern, structs in places:
        found = re.search(pattern, PAGE, re.MULTILINE)
        assert found is not None
        fields = [name for struct in structs for name in struct.__struct_fields__]
        assert sorted(coded(found[1])) == sorted(fields)
