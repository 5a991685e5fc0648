"""Completion scripts: what a shell offers once it has read one. Each shell itself is asked; all three are also held to the parser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from completing_shells import OFFERED_BY, Offers, explained_by_fish, explained_by_zsh, offered_by_bash

from claude_transport.app.arguments import PERMISSION_MODES, SHELLS, build_parser
from claude_transport.app.main import main
from claude_transport.app.shell_completion import render_fish, render_zsh

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
    assert OFFERED_BY[shell]("claude-transport ", place) == set(build_parser().commands)


@SHELL
def test_a_shell_offers_every_option_of_a_command(shell: str, place: Path) -> None:
    flags = {flag for argument in build_parser().commands["record"].arguments() for flag in argument.flags}
    assert OFFERED_BY[shell]("claude-transport record -", place) == flags


def test_bash_offers_every_option_of_every_command(place: Path) -> None:
    for name, command in build_parser().commands.items():
        assert offered_by_bash(f"claude-transport {name} -", place) == {flag for argument in command.arguments() for flag in argument.flags}


@pytest.mark.parametrize("explained", [explained_by_zsh, explained_by_fish])
def test_every_option_and_command_is_explained_in_the_words_of_the_help(explained: Explained, place: Path) -> None:
    commands = build_parser().commands
    options = {
        f"claude-transport {name} {flag}": (flag, argument.help)
        for name, command in commands.items()
        for argument in command.arguments()
        for flag in argument.flags
        if flag.startswith("--")
    }
    of_commands, *of_options = explained(["claude-transport ", *options], place)
    assert of_commands == {name: command.summary for name, command in commands.items()}
    assert [offers.get(flag) for offers, (flag, _) in zip(of_options, options.values(), strict=True)] == [
        told for _, told in options.values()
    ]


def test_zsh_finds_the_script_as_a_file_on_its_path(place: Path) -> None:
    first, second = explained_by_zsh(["claude-transport do", "claude-transport doctor --of"], place, on_fpath=True)
    assert (set(first), set(second)) == ({"doctor"}, {"--offline"})


def test_zsh_is_told_of_every_option_with_its_values() -> None:
    parser = build_parser()
    script = render_zsh(parser)
    for name, command in parser.commands.items():
        (block,) = re.findall(rf"^        {name}\)\n(.*?)\n            ;;$", script, re.MULTILINE | re.DOTALL)
        told = [spec for line in block.splitlines()[1:] for spec in shlex.split(line.removesuffix(" \\"))]
        specs = {matched[1]: spec for spec in told if (matched := re.match(r"(?:\*|\([^)]*\))?(-[\w-]+)[=+]?\[", spec))}
        arguments = command.arguments()
        assert set(specs) == {flag for argument in arguments for flag in argument.flags}
        for argument in arguments:
            for flag in argument.flags:
                assert specs[flag].endswith("]") is (argument.kind == "switch")
                assert specs[flag].endswith("]" if not argument.choices else f"({' '.join(argument.choices)})") or argument.kind != "choice"
                assert specs[flag].endswith(":_files -/") is (argument.kind == "directory")
                assert specs[flag].endswith(":_files") is (argument.kind == "file")
        assert len(told) - len(specs) == sum(not argument.flags for argument in arguments)


def test_fish_is_told_of_every_option_with_its_values() -> None:
    parser = build_parser()
    lines = [shlex.split(line.replace("\\'", "")) for line in render_fish(parser).splitlines() if "-n '__claude_transport_is" in line]
    for name, command in parser.commands.items():
        mine = [words[4:] for words in lines if words[4] == f'__claude_transport_is "{name}"']
        for argument in command.arguments():
            wanted = [word for flag in argument.flags for word in (("-l", flag[2:]) if flag.startswith("--") else ("-s", flag[1:]))]
            if not wanted:
                continue
            (words,) = [words for words in mine if words[1 : 1 + len(wanted)] == wanted]
            assert ("-r" in words) is (argument.kind != "switch")
            assert ("-F" in words) is (argument.kind == "file")
            assert (" ".join(argument.choices) in words) is (argument.kind == "choice")


@SHELL
def test_the_program_prints_the_script_of_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"made by: claude-transport completion {shell}\n" in capsys.readouterr().out


def test_a_shell_that_is_not_known_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "[usage.error]" in capsys.readouterr().err
