"""Completion scripts: what a shell offers once it has read one. Each shell itself is asked; all three are also held to the parser."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from program_process import PATIENCE

from claude_transport.app.arguments import PERMISSION_MODES, SHELLS, build_parser
from claude_transport.app.main import main
from claude_transport.app.shell_completion import render_bash, render_fish, render_zsh

ENVIRONMENT = {"PATH": "/usr/bin:/bin:/usr/local/bin", "LANG": "C.UTF-8"}


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


def run_in(shell: list[str], script: str, *, cwd: Path) -> list[str]:
    """The lines that a shell prints when it is given this script."""
    ran = subprocess.run([*shell, script], capture_output=True, cwd=cwd, env=ENVIRONMENT, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout.decode().splitlines()


def offered_by_bash(line: str, cwd: Path) -> list[str]:
    """What bash offers at the end of this line; it takes words apart at blanks and at `=`."""
    words = [word for word in re.split(r"(=)| +", line) if word is not None]
    words = [word for index, word in enumerate(words) if word or index == len(words) - 1]
    words = words[:-1] if words[-2:] == ["=", ""] else words
    ask = f"""
COMP_WORDS=({" ".join(shlex.quote(word) for word in words)})
COMP_CWORD={len(words) - 1}
_claude_transport
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    found = run_in(["bash", "--norc", "--noprofile", "-c"], render_bash(build_parser()) + ask, cwd=cwd)
    return sorted(word for word in found if word)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a file whose name has a blank and a star, and a directory."""
    (tmp_path / "my * tape.ndjson").touch()
    (tmp_path / "folder").mkdir()
    return tmp_path


@needs("bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("claude-transport do", ["doctor"]),
        ("claude-transport --v", ["--version"]),
        ("claude-transport ask --tr", ["--transport"]),
        ("claude-transport ask --transport ", ["api", "auto", "cli"]),
        ("claude-transport ask --transport=", ["api", "auto", "cli"]),
        ("claude-transport ask --transport=a", ["api", "auto"]),
        ("claude-transport ask --permission-mode ", sorted(PERMISSION_MODES)),
        ("claude-transport ask --cwd ", ["folder"]),
        ("claude-transport ask --model ", []),
        ("claude-transport ask ", []),
        ("claude-transport record -o ", ["folder", "my * tape.ndjson"]),
        ("claude-transport inspect my", ["my * tape.ndjson"]),
        ("claude-transport replay x -- --sp", []),
        ("claude-transport completion ", ["bash", "fish", "zsh"]),
    ],
)
def test_bash_offers_what_may_stand_there(line: str, offered: list[str], place: Path) -> None:
    assert offered_by_bash(line, place) == offered


@needs("bash")
def test_bash_offers_every_command_first(place: Path) -> None:
    assert offered_by_bash("claude-transport ", place) == sorted(build_parser().commands)


@needs("bash")
def test_bash_offers_every_option_of_every_command(place: Path) -> None:
    for name, command in build_parser().commands.items():
        flags = sorted(flag for argument in command.arguments() for flag in argument.flags)
        assert offered_by_bash(f"claude-transport {name} -", place) == flags


@needs("zsh")
def test_zsh_reads_its_script_and_knows_the_function(tmp_path: Path) -> None:
    script = f"autoload -Uz compinit; compinit -u -d {tmp_path / 'dump'}\n{render_zsh(build_parser())}\necho ${{_comps[claude-transport]}}"
    assert run_in(["zsh", "-f", "-c"], script, cwd=tmp_path) == ["_claude-transport"]


@needs("fish")
def test_fish_offers_commands_and_the_values_of_options(tmp_path: Path) -> None:
    script = render_fish(build_parser())
    commands = run_in(["fish", "--no-config", "-c"], f"{script}\ncomplete -C 'claude-transport '", cwd=tmp_path)
    assert {line.partition("\t")[0] for line in commands} == set(build_parser().commands)
    values = run_in(["fish", "--no-config", "-c"], f"{script}\ncomplete -C 'claude-transport ask --backend '", cwd=tmp_path)
    assert {line.partition("\t")[0] for line in values} == {"asyncio", "trio"}


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


@pytest.mark.parametrize("shell", SHELLS)
def test_the_program_prints_the_script_of_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"made by: claude-transport completion {shell}\n" in capsys.readouterr().out


def test_a_shell_that_is_not_known_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "[usage.error]" in capsys.readouterr().err
