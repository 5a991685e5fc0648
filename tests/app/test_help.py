"""`--help`: every command's is a manual page, and none is wider than a terminal."""

from __future__ import annotations

import re
import shlex

import pytest
from click.exceptions import Exit

from claude_transport.app.arguments import MANUAL, parse, program
from claude_transport.app.main import main

SECTIONS = ("Usage:", "Options:", "Examples:", "Exit codes:", "Environment:", "Files:")
COMMANDS = ("", *program.commands)
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*([command] if command else []), "--help"]) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def wide_terminal_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("PYTHON_COLORS", raising=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_every_section_in_order_and_each_says_something(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_of(command, capsys).splitlines()
    starts = [next(index for index, line in enumerate(lines) if line.startswith(section)) for section in SECTIONS]
    assert starts == sorted(starts)
    assert all(lines[start + 1].startswith("  ") for start in starts[1:])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_however_wide_the_terminal_is(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [line for line in help_of(command, capsys).splitlines() if len(line) > 80] == []


def test_help_has_no_colours_when_none_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(ESCAPE.search(help_of(command, capsys)) is None for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_in_the_help_can_be_read_by_the_program(command: str) -> None:
    read = 0
    for example in MANUAL[command].examples:
        (words,) = re.findall(r"claude-transport ([^|<)#]*)", example)
        arguments = shlex.split(words)
        if "--help" in arguments:
            continue
        if "--" in arguments:
            arguments = arguments[: arguments.index("--")]
        if command == "help":
            with pytest.raises(Exit) as stopped:
                parse(arguments)
            assert stopped.value.exit_code == 0
            read += 1
            continue
        values = parse(arguments)
        assert values is not None
        assert values.command == command or not command
        read += 1
    assert read > 0


def test_every_command_has_a_manual_and_every_manual_a_command() -> None:
    assert set(MANUAL) == {"", *program.commands}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_variable_that_its_options_name(command: str) -> None:
    params = program.commands[command].params if command else program.params
    named = {name for param in params for name in re.findall(r"\b(?:CLAUDE|ANTHROPIC|NO)_[A-Z_]+", getattr(param, "help", ""))}
    explained = {name for names, _ in MANUAL[command].environment for name in names.split(", ")}
    assert named - explained == set()
