"""The program as a whole: its arguments, its start, and its last line of defence."""

from __future__ import annotations

import json
import logging
import subprocess
import typing

import pytest
from program_process import PATIENCE, Program

from claude_transport.app import arguments, ask, failures
from claude_transport.app.arguments import PERMISSION_MODES
from claude_transport.app.main import main
from claude_transport.errors import (
    AuthenticationError,
    CLINotFoundError,
    ConnectTimeout,
    ProcessError,
    Refused,
    ResultError,
    TransportClosed,
    UsageError,
)
from claude_transport.launch.options import PermissionMode

OPTIONAL = {"anthropic", "claude_agent_sdk", "mcp", "opentelemetry", "rich", "trio", "websockets", "claude_transport.testing"}


def loaded_by(program: Program, *line: str) -> set[str]:
    """Every module that a run of the program has loaded at its end."""
    code = f"import json, sys; from claude_transport.app.main import main; main({list(line)!r}); print(json.dumps(list(sys.modules)))"
    ran = subprocess.run([program.argv()[0], "-c", code], capture_output=True, env=program.env, timeout=PATIENCE, check=True)
    return set(json.loads(ran.stdout.splitlines()[-1]))


@pytest.mark.parametrize("line", [("--help",), ("ask", "--help"), ("doctor", "--help"), ("--version",)])
def test_help_and_version_load_nothing_optional(program: Program, line: tuple[str, ...]) -> None:
    loaded = loaded_by(program, *line)
    assert {"click", "claude_transport.app.arguments"} <= loaded
    assert loaded & OPTIONAL == set()
    assert "claude_transport.app.ask" not in loaded


def test_asking_a_real_claude_loads_nothing_of_the_simulated_one(program: Program) -> None:
    loaded = loaded_by(program, "ask", "--cli-path", "/no/such/claude", "hi")
    assert "claude_transport.app.ask" in loaded
    assert loaded & OPTIONAL == set()


def test_the_bridge_is_started_without_click(program: Program) -> None:
    loaded = loaded_by(program, "mcp-bridge", "--server", "tools")
    assert "claude_transport.app.mcp_bridge" in loaded
    assert loaded & (OPTIONAL | {"click", "argparse", "claude_transport.app.arguments", "claude_transport.app.terminal"}) == set()


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (("--url=unix:///no/such.sock", "--server", "tools"), "config.invalid", "needs CLAUDE_TRANSPORT_BRIDGE_TOKEN in its environment"),
        (("--sever", "tools"), "usage.error", "'--sever'"),
        (("--server",), "usage.error", "--server needs a value"),
    ],
)
def test_the_bridge_reads_its_arguments_without_click(program: Program, line: tuple[str, ...], code: str, said: str) -> None:
    ran = program.run("mcp-bridge", *line, without=["click"])
    assert (ran.returncode, ran.stdout) == (2, b"")
    told, *remedy = ran.stderr.decode().splitlines()
    assert said in told
    assert remedy in ([], ["  It takes --url URL and --server NAME."])
    assert told.endswith(f"[{code}]")


@pytest.mark.parametrize("line", [(), ("--help",), ("ask", "--offline", "hi"), ("doctor",), ("mcp-bridge", "--help")])
def test_without_click_every_other_command_says_what_to_install(program: Program, line: tuple[str, ...]) -> None:
    ran = program.run(*line, without=["click"])
    assert (ran.returncode, ran.stdout) == (2, b"")
    (told,) = ran.stderr.decode().splitlines()
    assert "pip install 'claude-transport[cli]'" in told


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("ask", "doctor", "Exit codes", "130  interrupted"))


def test_version_is_printed_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("claude-transport ")


@pytest.mark.parametrize("argv", [[], ["sing"], ["ask", "a", "b"]])
def test_arguments_that_mean_nothing_are_exit_code_2(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "claude-transport" in captured.err


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["sing"], "'sing'"),
        (["ask", "a", "b"], "2 words"),
        (["ask", "--lou\x1bd"], "--lou"),
        (["ask", "--backend", "curio", "hi"], "'curio'"),
        (["ask", "--max-turns", "0", "hi"], "'0'"),
        (["ask", "--timeout", "inf", "hi"], "'inf'"),
        (["replay", "--speed", "fast", "tape"], "'fast'"),
        (["inspect"], "TAPE"),
        (["serve"], "--listen"),
        (["ask", "-v", "-q", "hi"], "--quiet"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_value_and_a_hint(capsys: pytest.CaptureFixture[str], argv: list[str], value: str) -> None:
    assert main(argv) == 2
    mistake, *suggestion, hint = capsys.readouterr().err.splitlines()
    assert len(suggestion) == (argv in (["sing"], ["ask", "a", "b"]))
    assert mistake.startswith("claude-transport: ")
    assert mistake.endswith(" [usage.error]")
    assert value in mistake
    assert mistake.isprintable()
    assert hint.endswith("--help`.")


@pytest.mark.parametrize("where", ["parse", "run"])
def test_ctrl_c_outside_of_the_event_loop_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(arguments if where == "parse" else ask, where, interrupt)
    assert main(["ask", "hi"]) == 130


def test_permission_modes_are_those_of_the_options() -> None:
    assert typing.get_args(PermissionMode) == PERMISSION_MODES


def test_a_bug_is_reported_in_one_line_with_the_way_to_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise ZeroDivisionError("three\nlines\nof text")

    monkeypatch.setattr(ask, "run", fail)
    assert main(["ask", "hi"]) == 1
    first, hint = capsys.readouterr().err.splitlines()
    assert first == "claude-transport: unexpected ZeroDivisionError: three [internal]"
    assert "CLAUDE_TRANSPORT_TRACEBACK=1" in hint


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (CLINotFoundError("x"), 2),
        (UsageError("x"), 2),
        (ResultError("x", category="configuration"), 2),
        (AuthenticationError("x"), 3),
        (Refused("x"), 1),
        (ConnectTimeout("x"), 1),
        (ValueError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, exit_code: int) -> None:
    assert failures.exit_code_of(error) == exit_code


def test_writing_to_a_claude_that_has_just_died_is_told_as_its_death(capsys: pytest.CaptureFixture[str]) -> None:
    assert failures.report_failure(TransportClosed("the peer is gone", exit_code=127, stderr_tail="no such library")) == 1
    assert capsys.readouterr().err.splitlines() == [
        "claude-transport: claude ended with exit code 127 before it had answered [exec.cli.exited]",
        "  Its last words:",
        "    no such library",
        "  `claude-transport doctor` tests claude without your settings, against an API on this machine.",
    ]


def test_the_last_words_of_claude_are_shown_without_secrets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-route: Bramble-Curlew-1137")
    assert failures.report_failure(ProcessError("it ended", exit_code=1, stderr_tail="refused: Bramble-Curlew-1137")) == 1
    assert capsys.readouterr().err.splitlines()[-2] == "    refused: [secret]"


def test_an_error_without_words_is_still_named() -> None:
    assert failures.describe_failure(ConnectTimeout()) == "ConnectTimeout"


def test_asking_leaves_the_logging_of_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("claude_transport")
    monkeypatch.setattr(logger, "level", logging.ERROR)
    before = (logger.level, logger.propagate, list(logger.handlers))
    assert main(["ask", "-v", "--offline", "hi"]) == 0
    assert capsys.readouterr().out.startswith("[simulated]")
    assert (logger.level, logger.propagate, logger.handlers) == before
