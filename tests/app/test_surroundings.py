"""Every command where something is missing: a reader, a stream, room on the disk, a home, an encoding, columns on the screen."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from program_process import PATIENCE, Program
from redis_server import redis_server

from claude_transport.app.arguments import COMMANDS as ALL_COMMANDS
from claude_transport.app.main import main
from claude_transport.protocol.tape import Tape
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario

Play = Callable[..., FakeClaude]
COMMANDS = {
    "ask": ("ask", "--offline", "hi"),
    "ask as JSON": ("ask", "--offline", "--json", "hi"),
    "doctor": ("doctor", "--offline"),
    "doctor as JSON": ("doctor", "--offline", "--json"),
    "record": ("record", "--force", "-o", "new.ndjson", "--offline", "hi"),
    "replay": ("replay", "tape.ndjson"),
    "inspect": ("inspect", "tape.ndjson"),
    "inspect as a page": ("inspect", "tape.ndjson", "--html", "-"),
    "bench": ("bench", "--messages", "100"),
    "completion": ("completion", "zsh"),
    "help": ("--help",),
    "version": ("--version",),
}
# `bench` takes as long as all others together, and writes by the same way
EVERY_COMMAND = pytest.mark.parametrize(
    "command", [pytest.param(command, marks=pytest.mark.nightly) if command == "bench" else command for command in COMMANDS]
)


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tape, made once."""
    home = tmp_path_factory.mktemp("home")
    path = tmp_path_factory.mktemp("tapes") / "tape.ndjson"
    assert Program(home).run("record", "-o", str(path), "--offline", "hi").returncode == 0
    return path


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a broker."""
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


class Place:
    """A directory with a tape, in which commands are run with their streams changed by a shell: `>&-`, `2>/dev/full`."""

    def __init__(self, program: Program, path: Path, tape: Path) -> None:
        self._program, self._path = program, path
        self._said_by_the_host = b"".join(line + b"\n" for line in Tape.read(tape).lines("in"))
        (path / "tape.ndjson").write_bytes(tape.read_bytes())

    def run(
        self, command: str, streams: str = "", *, env: Mapping[str, str] | None = None, stdout: int = subprocess.PIPE
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {streams}', "sh", *self._program.argv(*COMMANDS[command])],
            input=self._said_by_the_host if command == "replay" else b"",
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd=self._path,
            env={**self._program.env, **(env or {})},
            timeout=PATIENCE,
            check=False,
        )


@pytest.fixture
def place(program: Program, tmp_path: Path, tape: Path) -> Place:
    path = tmp_path / "place"
    path.mkdir()
    return Place(program, path, tape)


# ------------------------------------------------------------------------------------------------------------------- streams


@EVERY_COMMAND
@pytest.mark.parametrize(("streams", "why"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")])
def test_what_cannot_be_written_to_stdout_is_a_failure_with_its_reason(place: Place, command: str, streams: str, why: str) -> None:
    ran = place.run(command, streams)
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.decode().splitlines()[-1] == f"claude-transport: cannot write to stdout: {why} [output.failed]"


@EVERY_COMMAND
def test_a_reader_that_has_gone_is_the_exit_code_of_sigpipe_and_no_complaint(place: Place, command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = place.run(command, stdout=writer)
    os.close(writer)
    assert ran.returncode == 128 + signal.SIGPIPE
    assert b"claude-transport:" not in ran.stderr
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--offline", "--listen", "tcp://127.0.0.1:0"),
        ("worker", "--offline", "--broker", "BROKER"),
        ("sessions", "--broker", "BROKER"),
        ("doctor", "--broker", "BROKER"),
    ],
    ids=lambda command: str(command[0]),
)
@pytest.mark.parametrize(("streams", "code"), [("gone", 128 + signal.SIGPIPE), (">/dev/full", 1)])
def test_what_runs_for_long_ends_too_where_it_cannot_print(
    program: Program, command: tuple[str, ...], streams: str, code: int, redis: str
) -> None:
    argv = [word.replace("BROKER", redis) for word in program.argv(*command)]
    reader, writer = os.pipe()
    os.close(reader)
    shell = ["/bin/sh", "-c", f'exec "$@" {"" if streams == "gone" else streams}', "sh", *argv]
    ran = subprocess.run(
        shell, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, env=program.env, timeout=PATIENCE, check=False
    )
    os.close(writer)
    complaint = [] if streams == "gone" else ["claude-transport: cannot write to stdout: No space left on device [output.failed]"]
    said = [line for line in ran.stderr.decode().splitlines() if "INFO" not in line]
    assert (ran.returncode, said) == (code, complaint)


@EVERY_COMMAND
@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&-"])
def test_what_is_not_needed_may_be_missing(place: Place, command: str, streams: str) -> None:
    ran = place.run(command, streams)
    if command == "replay" and streams == "<&-":
        assert ran.returncode == 2
        assert b"got the end of the input [testing.expectation_failed]" in ran.stderr
        return
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout) > 10
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize(("streams", "why"), [("<&-", "the prompt is empty"), ("0>/dev/null", "stdin cannot be read: ")])
def test_a_prompt_from_a_stdin_that_cannot_be_read_is_refused(program: Program, streams: str, why: str) -> None:
    argv = ["/bin/sh", "-c", f'exec "$@" {streams}', "sh", *program.argv("ask", "--offline", "-")]
    ran = subprocess.run(argv, capture_output=True, env=program.env, timeout=PATIENCE, check=False)
    assert ran.returncode == 2
    assert ran.stderr.decode().startswith(f"claude-transport: {why}")
    assert ran.stderr.splitlines()[0].endswith(b"[config.invalid]")


def test_a_file_that_is_opened_does_not_take_the_place_of_a_stream_that_was_closed(program: Program, play: Play, tmp_path: Path) -> None:
    fake = play(Scenario.text("Hi."))
    tape = tmp_path / "tape.ndjson"
    command = program.argv("record", "--quiet", "-o", str(tape), "--cli-path", str(fake.path), "hi")
    argv = ["/bin/sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command]
    ran = subprocess.run(argv, capture_output=True, env=program.env, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout) == (0, b"Hi.\n")
    assert all(re.fullmatch(rb"\{.*\}", line) for line in tape.read_bytes().splitlines())


def test_serve_that_cannot_say_where_it_is_does_not_stay(program: Program) -> None:
    command = program.argv("serve", "--offline", "--listen", "tcp://127.0.0.1:0", "--token-env", "TOKEN")
    argv = ["/bin/sh", "-c", 'exec "$@" >/dev/full', "sh", *command]
    env = {**program.env, "TOKEN": "a-token-that-is-long-enough-for-anybody"}
    ran = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=PATIENCE, check=False)
    assert ran.returncode == 1
    assert ran.stderr.endswith(b"cannot write to stdout: No space left on device [output.failed]\n")


# --------------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("inspect", "tape.ndjson", "--html", "no/such/folder/page.html"), "config.invalid"),
        (("inspect", "tape.ndjson", "--html", "/dev/full/page.html"), "config.invalid"),
        (("record", "-o", "no/such/folder/tape", "--offline", "hi"), "config.invalid"),
        (("record", "-o", ".", "--force", "--offline", "hi"), "config.invalid"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_run(
    program: Program, tmp_path: Path, tape: Path, arguments: tuple[str, ...], code: str
) -> None:
    (tmp_path / "tape.ndjson").write_bytes(tape.read_bytes())
    ran = program.run(*arguments, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert f"[{code}]" in ran.stderr.decode()


def test_a_full_disk_costs_the_tape_and_not_the_answer(program: Program) -> None:
    ran = program.run("record", "--force", "-o", "/dev/full", "--quiet", "--offline", "hi")
    assert ran.returncode == 1
    assert ran.stdout.startswith(b"[simulated]")
    assert re.search(rb"the tape /dev/full is not complete: .*No space left on device.* \[tape.incomplete\]\n$", ran.stderr)


# --------------------------------------------------------------------------------------------------- locale, home and columns


ASCII = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@EVERY_COMMAND
def test_where_the_locale_has_only_ascii_everything_works(place: Place, command: str) -> None:
    ran = place.run(command, env=ASCII)
    assert ran.returncode == 0, ran.stderr
    ran.stderr.decode("ascii")
    if command not in {"ask as JSON", "doctor as JSON", "inspect as a page", "replay"}:  # whose encoding is no matter of taste
        ran.stdout.decode("ascii")


def test_a_prompt_is_utf_8_whatever_the_locale_is(program: Program, play: Play) -> None:
    fake = play(Scenario.echo())
    assert program.run("ask", "--cli-path", str(fake.path), "Grüße", env=ASCII).returncode == 0
    assert fake.calls()[0].prompts == ["Grüße"]


@pytest.mark.parametrize("command", ["ask", "doctor", "record", "replay"])
def test_without_home_everything_works(place: Place, program: Program, command: str) -> None:
    del program.env["HOME"]
    assert place.run(command).returncode == 0


@pytest.mark.parametrize("arguments", [("ask", "--offline", "hi"), ("doctor", "--offline")])
def test_a_user_whom_the_system_does_not_know_is_told_to_set_home(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert main(list(arguments)) == 2
    assert "set HOME, or CLAUDE_CONFIG_DIR [config.invalid]" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ask", "doctor", "inspect", "bench"])
def test_twenty_columns_are_enough_to_work_in(place: Place, command: str) -> None:
    assert place.run(command, env={"COLUMNS": "20"}).returncode == 0


@pytest.mark.parametrize("command", ["", *(command.name for command in ALL_COMMANDS)])
def test_help_fits_into_few_columns_but_for_words_that_are_longer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main([*([command] if command else []), "--help"]) == 0
    too_long = [line.strip() for line in capsys.readouterr().out.splitlines() if len(line) > 40]
    assert [line for line in too_long if " " in line] == []
