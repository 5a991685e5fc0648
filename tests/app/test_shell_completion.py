"""Completion scripts: what a shell offers once it has read one. Each shell itself is asked; all three are also held to the commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest
from completing_shells import OFFERED_BY, Offers, explained_by_fish, explained_by_zsh, offered_by_bash

from claude_transport.app.arguments import PERMISSION_MODES, SHELLS, program
from claude_transport.app.main import main

Explained = Callable[[Sequence[str], Path], list[Offers]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a file whose name has a blank and a star, and a directory."""
    (tmp_path / "my * tape.ndjson").touch()
    (tmp_path / "folder").mkdir()
    return tmp_path


SHELL = pytest.mark.parametrize("shell", SHELLS)


@SHELL
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("claude-transport do", {"doctor"}),
        ("claude-transport --v", {"--version"}),
        ("claude-transport ask --tr", {"--transport"}),
        ("claude-transport ask --transport ", {"api", "auto", "cli"}),
        ("claude-transport ask --transport=", {"api", "auto", "cli"}),
        ("claude-transport ask --transport=a", {"api", "auto"}),
        ("claude-transport ask --permission-mode ", set(PERMISSION_MODES)),
        ("claude-transport ask --cwd ", {"folder"}),
        ("claude-transport ask --model ", set()),
        ("claude-transport ask ", set()),
        ("claude-transport ask --system-prompt doctor --tr", {"--transport"}),
        ("claude-transport record -o ", {"folder", "my * tape.ndjson"}),
        ("claude-transport record one two --forc", {"--force"}),
        ("claude-transport inspect my", {"my * tape.ndjson"}),
        ("claude-transport serve --listen tcp://127.0.0.1:0 --li", {"--listen"}),
        ("claude-transport replay x -- --sp", set()),
        ("claude-transport completion ", {"bash", "fish", "zsh"}),
    ],
)
def test_a_shell_offers_what_may_stand_there_and_nothing_else(shell: str, line: str, offered: set[str], place: Path) -> None:
    assert OFFERED_BY[shell](line, place) == offered


@SHELL
def test_a_shell_offers_every_command_first(shell: str, place: Path) -> None:
    assert OFFERED_BY[shell]("claude-transport ", place) == set(program.commands)


@SHELL
def test_a_shell_offers_every_option_of_a_command(shell: str, place: Path) -> None:
    flags = {flag for param in program.commands["record"].params for flag in param.opts if flag.startswith("-")}
    assert OFFERED_BY[shell]("claude-transport record -", place) == flags


def test_bash_offers_a_file_whose_name_is_a_pattern(tmp_path: Path) -> None:
    place = tmp_path / "patterns"
    place.mkdir()
    for name in ("[t]ape", "tape"):
        (place / name).touch()
    assert offered_by_bash("claude-transport inspect ", place) == {"[t]ape", "tape"}


def test_bash_offers_every_option_of_every_command(place: Path) -> None:
    for name, command in program.commands.items():
        flags = {flag for param in command.params for flag in param.opts if flag.startswith("-")}
        assert offered_by_bash(f"claude-transport {name} -", place) == flags


@pytest.mark.parametrize("explained", [explained_by_zsh, explained_by_fish])
def test_every_option_and_command_is_explained_in_the_words_of_the_help(explained: Explained, place: Path) -> None:
    commands = program.commands
    of_commands, *of_options = explained(["claude-transport ", *(f"claude-transport {name} --" for name in commands)], place)
    assert of_commands == {name: command.short_help for name, command in commands.items()}
    for offers, command in zip(of_options, commands.values(), strict=True):
        options = [param for param in command.params if isinstance(param, click.Option)]
        assert offers == {flag: option.help for option in options for flag in option.opts if flag.startswith("--")}


def test_zsh_finds_the_script_as_a_file_on_its_path(place: Path) -> None:
    first, second = explained_by_zsh(["claude-transport do", "claude-transport doctor --of"], place, on_fpath=True)
    assert (set(first), set(second)) == ({"doctor"}, {"--offline"})


@SHELL
@pytest.mark.parametrize("before", ["claude-transport inspect --html=", "claude-transport record --output="])
def test_a_value_that_is_joined_to_its_option_is_completed_with_files(shell: str, before: str, place: Path) -> None:
    assert OFFERED_BY[shell](f"{before}fo", place) == {"folder"}


@SHELL
def test_a_shell_is_told_the_values_of_every_option_of_every_command(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the program answers to a script at the end of `claude-transport COMMAND OPTION `: values, or that a file may stand there."""

    def answers(*words: str) -> set[str]:
        monkeypatch.setenv("_CLAUDE_TRANSPORT_COMPLETE", f"{shell}_complete")
        monkeypatch.setenv("COMP_WORDS", f"claude-transport {' '.join(words)} ")
        monkeypatch.setenv("COMP_CWORD", "" if shell == "fish" else str(1 + len(words)))
        assert main([]) == 0
        lines = [] if (said := capsys.readouterr().out) == "\n" else said.splitlines()
        pairs = zip(lines[::3], lines[1::3], strict=True) if shell == "zsh" else (line.split(",", 1) for line in lines)
        return {value if kind == "plain" else kind for kind, value in pairs}

    for name, command in program.commands.items():
        for option in command.params:
            if not isinstance(option, click.Option):
                continue
            for flag in option.opts:
                if option.is_flag:
                    assert answers(name, flag) == answers(name)
                elif isinstance(option.type, click.Choice):
                    assert answers(name, flag) == set(option.type.choices)
                else:
                    kind = {"FILE": {"file"}, "TAPE": {"file"}, "PATH": {"file"}, "DIR": {"dir"}}
                    assert answers(name, flag) == kind.get(str(option.metavar), set())


@SHELL
def test_the_program_prints_the_script_of_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"made by: claude-transport completion {shell}\n" in capsys.readouterr().out


def test_a_shell_that_is_not_known_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "[usage.error]" in capsys.readouterr().err
