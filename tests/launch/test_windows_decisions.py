"""What Windows needs, decided by pure functions that can be asked on any platform."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import claude_transport
from claude_transport.errors import ConfigurationError, SpawnError
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


@pytest.mark.parametrize(
    "program",
    [
        *("claude.cmd", "claude.cmd.", "claude.CMD ", "claude.cmd . .", "claude.cmd:stream", "claude.cmd::$DATA", "claude.exe:evil.cmd"),
        *("x.cmd\\x\\..", "x.cmd/x/..", "C:\\a\\x.bat\\", "C:x.cmd", "\\\\server\\share\\x.cmd", "\\\\?\\C:\\x.cmd", "claude.cmd\t"),
    ],
)
def test_a_batch_file_is_known_however_its_name_is_written(program: str) -> None:
    assert windows.is_batch_file(program)
    with pytest.raises(ConfigurationError, match=r"claude\.exe"):
        windows.check_batch_file([program, '"&calc.exe'], platform="win32")


@pytest.mark.parametrize("program", ["claude.exe", "C:\\npm\\claude.exe", "claude", "claude.cmd.exe", "C:\\x.cmd.d\\claude.exe", ""])
def test_a_native_program_is_no_batch_file(program: str) -> None:
    assert not windows.is_batch_file(program)


@pytest.mark.parametrize("folder", ["C:\\a&b", "C:\\%TEMP%", "C:\\a^b", "C:\\a!b", "C:\\a;b"])
def test_a_batch_file_is_refused_in_a_folder_whose_name_its_shell_could_interpret(folder: str) -> None:
    with pytest.raises(ConfigurationError, match="its path") as caught:
        windows.check_batch_file([f"{folder}\\claude.cmd"], platform="win32")
    assert caught.value.option == "cli_path"


@pytest.mark.parametrize("folder", ["C:\\Program Files (x86)\\npm", "C:\\Users\\José", "C:\\Users\\O'Brien", "C:\\Users\\RUNNER~1"])
def test_a_batch_file_may_be_in_a_folder_of_any_user(folder: str) -> None:
    windows.check_batch_file([f"{folder}\\claude.cmd", "--verbose"], platform="win32")


@pytest.mark.parametrize(("text", "windows_takes", "others_take"), [("é", True, True), ("a\ud83d", False, False), ("a\udc80", False, True)])
def test_a_lone_surrogate_is_text_only_where_it_stands_for_a_byte_of_a_name(text: str, windows_takes: bool, others_take: bool) -> None:
    assert windows.is_encodable(text, platform="win32") is windows_takes
    if sys.platform != "win32":
        assert windows.is_encodable(text, platform=sys.platform) is others_take


@pytest.mark.parametrize(
    ("env", "on_windows", "elsewhere"),
    [
        ({"HOME": "/h", "UserProfile": "C:\\u"}, "C:\\u", "/h"),
        ({"HOME": "/h"}, "/h", "/h"),
        ({"USERPROFILE": "C:\\u", "HOME": ""}, "C:\\u", None),
        ({}, None, None),
    ],
)
def test_the_home_of_the_cli_is_the_profile_of_the_user_on_windows(
    env: dict[str, str], on_windows: str | None, elsewhere: str | None
) -> None:
    assert windows.home_folder(env, platform="win32") == on_windows
    assert windows.home_folder(env, platform="linux") == windows.home_folder(env, platform="darwin") == elsewhere


def test_a_command_line_longer_than_windows_takes_is_refused_before_it_is_started() -> None:
    windows.check_length(["claude.exe", "x" * (32_766 - len("claude.exe "))])
    with pytest.raises(SpawnError, match="32767 characters") as caught:
        windows.check_length(["claude.exe", "x" * (32_767 - len("claude.exe "))])
    assert not caught.value.retryable


def test_of_names_that_differ_in_case_the_child_gets_the_last_and_what_every_program_needs_is_added() -> None:
    inherited = {"SystemRoot": "C:\\Windows", "PATH": "ignored", "ComSpec": "C:\\Windows\\cmd.exe"}
    found = windows.environment_of({"Path": "a", "PATH": "b", "name": "c", "comspec": "mine"}, inherited=inherited)
    assert found == {"PATH": "b", "name": "c", "comspec": "mine", "SYSTEMROOT": "C:\\Windows"}


PROGRAMS = {
    "C:\\here\\tool.cmd",
    "C:\\bin\\tool.exe",
    "C:\\bin\\tool.cmd",
    "C:\\npm\\claude.cmd",
    "C:\\npm\\claude",
    "C:\\bin\\my.tool.exe",
}


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("tool", "C:\\bin\\tool.exe"),
        ("tool.cmd", "C:\\bin\\tool.cmd"),
        ("claude", "C:\\npm\\claude.cmd"),
        ("my.tool", "C:\\bin\\my.tool.exe"),
        ("C:\\npm\\claude", "C:\\npm\\claude.cmd"),
        (".\\tool.cmd", "C:\\here\\tool.cmd"),
        ("..\\bin\\tool", "C:\\bin\\tool.exe"),
        ("C:\\npm\\x\\..\\claude.cmd", "C:\\npm\\claude.cmd"),
    ],
)
def test_a_program_is_found_on_the_path_of_the_child_or_below_its_working_directory(program: str, found: str) -> None:
    env = {"Path": '"C:\\bin";.;relative;C:\\npm;C:\\missing'}
    assert windows.program_path(program, cwd="C:\\here", env=env, is_file=PROGRAMS.__contains__) == found


@pytest.mark.parametrize("program", ["missing", "C:\\missing.exe", ".\\claude"])
def test_a_program_that_is_nowhere_is_not_looked_for_in_the_folders_of_the_host(program: str) -> None:
    with pytest.raises(FileNotFoundError):
        windows.program_path(program, cwd="C:\\here", env={"PATH": "C:\\bin"}, is_file=PROGRAMS.__contains__)


def test_git_bash_is_the_chosen_one_or_beside_git_and_never_that_of_wsl() -> None:
    there = {"D:\\Git\\cmd\\git.exe", "D:\\Git\\bin\\bash.exe", "C:\\Windows\\System32\\bash.exe", "C:\\Program Files\\Git\\bin\\bash.exe"}
    env = {"Path": "C:\\Windows\\System32;D:\\Git\\cmd", "ProgramFiles": "C:\\Program Files"}
    assert windows.git_bash(env, is_file=there.__contains__) == "D:\\Git\\bin\\bash.exe"
    assert windows.git_bash({"ProgramFiles": "C:\\Program Files"}, is_file=there.__contains__) == "C:\\Program Files\\Git\\bin\\bash.exe"
    assert windows.git_bash({"PATH": "C:\\Windows\\System32"}, is_file=there.__contains__) is None
    chosen = {**env, "claude_code_git_bash_path": "E:\\bash.exe"}
    assert windows.git_bash(chosen, is_file={*there, "E:\\bash.exe"}.__contains__) == "E:\\bash.exe"
    assert windows.git_bash(chosen, is_file=there.__contains__) is None


@pytest.mark.parametrize(
    ("executable", "is_frozen", "is_usable"),
    [
        ("C:\\Python313\\python.exe", False, True),
        ("C:\\venv\\Scripts\\pythonw.exe", False, True),
        ("C:\\app\\python.exe", True, False),
        ("C:\\app\\host.exe", False, False),
        ("", False, False),
        (None, False, False),
    ],
)
def test_a_helper_runs_in_a_python_and_never_in_a_frozen_program(executable: str | None, is_frozen: bool, is_usable: bool) -> None:
    assert windows.helper_python(executable, is_frozen=is_frozen) == (executable if is_usable else None)


STARTS = {"subprocess.Popen", "subprocess.run", "subprocess.check_output", "anyio.open_process", "anyio.run_process"}
POSIX_ONLY = {"streams/guard.py", "streams/libproc.py", "streams/process.py"}  # Windows has its own: streams/windows.py
IN_A_TERMINAL = {"app/bench.py", "app/doctor.py"}  # programs that a user starts in a console


def starts_of(path: Path) -> Iterator[ast.Call]:
    """Yield each call in the file that starts a process."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS:
            yield node


def test_every_process_that_is_started_on_windows_is_hidden() -> None:
    package = Path(claude_transport.__file__).parent
    shown, seen = [], 0
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        if place not in POSIX_ONLY | IN_A_TERMINAL and not place.startswith("testing/"):
            calls = list(starts_of(path))
            seen += len(calls)
            shown += [f"{place}:{call.lineno}" for call in calls if "creationflags" not in {word.arg for word in call.keywords}]
    assert shown == []
    assert seen >= 4  # the session, CTRL_BREAK, the version, the login
