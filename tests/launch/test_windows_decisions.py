"""What Windows needs, decided by pure functions that can be asked on any platform."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claude_transport.errors import ConfigurationError
from claude_transport.launch import windows


def test_every_spawn_on_windows_is_without_a_console_window_and_in_its_own_group() -> None:
    assert windows.creation_flags("win32") == 0x0800_0000 | 0x0000_0200
    assert windows.creation_flags("linux") == windows.creation_flags("darwin") == 0


@pytest.mark.skipif(sys.platform != "win32", reason="the standard library has these names on Windows only")
def test_the_flags_are_those_of_the_standard_library() -> None:
    names = ("CREATE_NO_WINDOW", "CREATE_NEW_PROCESS_GROUP")
    assert [getattr(windows, name) for name in names] == [getattr(subprocess, name) for name in names]


@pytest.mark.parametrize(("platform", "expected"), [("win32", True), ("linux", False), ("darwin", False), ("cygwin", False)])
def test_only_windows_is_windows_and_only_there_a_job_object_is_needed(platform: str, expected: bool) -> None:
    assert windows.is_windows(platform) is expected
    assert windows.needs_job_object(platform) is expected


def test_a_native_program_is_preferred_and_an_npm_script_is_never_looked_for() -> None:
    assert windows.program_names("win32") == ("claude.exe", "claude.cmd", "claude.bat")
    assert windows.program_names("linux") == ("claude",)


def test_the_selector_loop_is_refused_on_windows_with_the_remedy() -> None:
    refusal = windows.event_loop_refusal("_WindowsSelectorEventLoop", platform="win32")
    assert refusal is not None
    assert "ProactorEventLoop" in refusal
    assert "trio" in refusal


@pytest.mark.parametrize(
    ("loop", "platform"),
    [("ProactorEventLoop", "win32"), ("_UnixSelectorEventLoop", "linux"), ("Loop", "win32"), ("SelectorEventLoop", "darwin")],
)
def test_every_other_loop_is_accepted(loop: str, platform: str) -> None:
    assert windows.event_loop_refusal(loop, platform=platform) is None


@settings(deadline=None)
@given(argv=st.lists(st.text(max_size=30), max_size=8))
def test_the_length_of_a_command_line_is_at_least_what_its_arguments_need(argv: list[str]) -> None:
    assert windows.command_line_length(argv) >= sum(map(len, argv)) + max(0, len(argv) - 1)


def test_the_length_of_a_command_line_counts_quotes_and_backslashes() -> None:
    assert windows.command_line_length(["claude", "--name=a b"]) == len('claude "--name=a b"')
    assert windows.command_line_length(["claude", 'a"b']) == len('claude a\\"b')


def test_the_budget_fits_the_smallest_limit_a_command_line_may_meet() -> None:
    assert windows.COMMAND_LINE_BUDGET < 8191


@pytest.mark.parametrize("program", ["C:\\npm\\claude.cmd", "C:/npm/CLAUDE.CMD", "claude.bat", "C:\\a b\\claude.Bat"])
@pytest.mark.parametrize("character", [*'&|<>^%!"()', "\n", "\r", "\t", "'", ";", "*", "?", "$", "`", "{", "é"])
def test_a_batch_file_is_refused_what_its_shell_could_interpret(program: str, character: str) -> None:
    with pytest.raises(ConfigurationError, match=r"claude\.exe") as caught:
        windows.check_batch_file([program, "--verbose", f"--name=a{character}b"], platform="win32")
    assert caught.value.option == "cli_path"
    assert "argument 2" in str(caught.value)
    assert "'--name'" in str(caught.value)


def test_the_refusal_names_the_flag_and_not_the_value() -> None:
    with pytest.raises(ConfigurationError) as caught:
        windows.check_batch_file(["claude.cmd", "--name=private&more"], platform="win32")
    assert "private" not in str(caught.value)


def test_a_batch_file_may_have_plain_arguments() -> None:
    plain = [
        "claude.cmd",
        "--verbose",
        "--model=claude-haiku-4-5",
        "--settings=C:\\Users\\RUNNER~1\\Temp\\s_1.json",
        "--tools=A,B",
        "--x=a b",
    ]
    windows.check_batch_file(plain, platform="win32")


@pytest.mark.parametrize(("program", "platform"), [("claude.exe", "win32"), ("claude.cmd", "linux"), ("claude", "win32")])
def test_what_is_no_batch_file_may_have_any_arguments(program: str, platform: str) -> None:
    windows.check_batch_file([program, '--name=&|<>^%!"\n'], platform=platform)


def test_no_arguments_are_no_danger() -> None:
    windows.check_batch_file([], platform="win32")
