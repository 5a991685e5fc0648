"""`ask --transport` and the doctor's matrix: which path is taken, what is said about it, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from program_process import Program

from claude_transport.app.arguments import TRANSPORTS
from claude_transport.completion.resolution import CHOICES
from claude_transport.testing import FakeMessagesAPI, replies
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario, Turn
from claude_transport.testing.steps import Result

Play = Callable[..., FakeClaude]
SECRET = "sk-ant-nobody-may-see-this"
NO_CLAUDE = {"CLAUDE_CLI_PATH": "/no/such/claude"}


@pytest.fixture
def backend(anyio_backend_name: str) -> str:
    """The event loop of the program: that of the test."""
    return anyio_backend_name


async def run(program: Program, *arguments: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return await anyio.to_thread.run_sync(partial(program.run, *arguments, env=env))


async def ask(program: Program, api: FakeMessagesAPI, *arguments: str, backend: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """`ask` with a key, an API, and no claude unless one is named."""
    given = {**NO_CLAUDE, "ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": SECRET, **env}
    return await run(program, "ask", "--backend", backend, *arguments, **given)


def test_the_choices_of_the_program_are_those_of_the_library() -> None:
    assert TRANSPORTS == CHOICES


# -------------------------------------------------------------------------------------------------------------- the API


@pytest.mark.parametrize("arguments", [(), ("--transport", "auto"), ("--transport", "api")])
async def test_without_a_claude_the_api_answers(program: Program, backend: str, arguments: tuple[str, ...]) -> None:
    async with FakeMessagesAPI([replies.text("Hello from the API.", chunks=["Hello ", "from ", "the API."])]) as api:
        ran = await ask(program, api, *arguments, "--model", "haiku", "Hello", backend=backend)
        (request,) = api.conversation
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"Hello from the API.\n", b"")
    assert "haiku" in request.model
    assert request.prompt == "Hello"


async def test_the_variable_chooses_and_the_argument_wins_over_it(program: Program, play: Play, backend: str) -> None:
    claude = str(play(Scenario.echo()).path)
    async with FakeMessagesAPI(replies.text("The API.", times=None)) as api:
        by_variable = await ask(program, api, "hi", backend=backend, CLAUDE_CLI_PATH=claude, CLAUDE_TRANSPORT="api")
        by_argument = await ask(program, api, "--transport", "cli", "hi", backend=backend, CLAUDE_CLI_PATH=claude, CLAUDE_TRANSPORT="api")
    assert (by_variable.stdout, by_argument.stdout) == (b"The API.\n", b"hi\n")
    assert (by_variable.stderr, by_argument.stderr) == (b"", b"")


async def test_json_of_the_api_ends_with_a_result_too(program: Program, backend: str) -> None:
    async with FakeMessagesAPI([replies.text("Yes.")]) as api:
        ran = await ask(program, api, "--json", "Well?", backend=backend)
    messages = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [message["type"] for message in messages][-2:] == ["assistant", "result"], ran.stderr
    assert messages[0]["type"] == "stream_event"  # as with a claude, which is asked for its partial messages, too
    assert messages[-1]["result"] == "Yes."
    assert SECRET not in ran.stdout.decode()


@pytest.mark.parametrize(
    ("script", "exit_code", "code", "reported"),
    [
        (replies.error(400, message="Not like this."), 3, "result.invalid_request", "Not like this."),
        (
            replies.refusal("No."),
            1,
            "result.refusal",
            "The model refused to answer. Change the prompt. (transport=api, category=api)",
        ),
    ],
)
async def test_json_of_an_api_that_fails_ends_with_a_result_that_reports_it(
    program: Program, backend: str, script: Any, exit_code: int, code: str, reported: str
) -> None:
    async with FakeMessagesAPI(script) as api:
        ran = await ask(program, api, "--json", "Well?", backend=backend)
    last = json.loads(ran.stdout.splitlines()[-1])
    assert ran.returncode == exit_code
    assert f"[{code}]" in ran.stderr.decode()
    assert (last["type"], last["subtype"], last["is_error"], last["result"]) == ("result", "success", True, reported)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (401, "exec.cli.auth_failed", "The credential is missing or was refused"),
        (404, "result.model_not_found", "The model does not exist"),
    ],
)
async def test_a_refusal_of_the_api_is_the_models_side_on_this_path_too(
    program: Program, backend: str, status: int, code: str, said: str
) -> None:
    async with FakeMessagesAPI(replies.error(status)) as api:
        ran = await ask(program, api, "Hello", backend=backend)
    assert ran.returncode == 3
    assert f"[{code}]" in ran.stderr.decode()
    assert said in ran.stderr.decode()
    assert ran.stdout == b""


async def test_the_api_without_a_key_is_not_asked(program: Program, backend: str, play: Play) -> None:
    async with FakeMessagesAPI() as api:
        claude = str(play(Scenario.echo()).path)
        ran = await ask(program, api, "--transport", "api", "-v", "hi", backend=backend, ANTHROPIC_API_KEY="", CLAUDE_CLI_PATH=claude)
        assert api.requests == []
    assert ran.returncode == 3
    assert "[exec.cli.auth_failed]" in ran.stderr.decode()
    assert "the call will fail: the API is not asked without a key" in ran.stderr.decode()


async def test_what_only_a_claude_can_keep_to_is_refused_on_the_api(program: Program, backend: str) -> None:
    async with FakeMessagesAPI() as api:
        ran = await ask(program, api, "--allowed-tools", "Bash", "hi", backend=backend)
        assert api.requests == []
    assert ran.returncode == 2
    assert b"--allowed-tools: only the CLI can do this" in ran.stderr


# -------------------------------------------------------------------------------------------------------------- the CLI


def test_s1_4_an_auto_that_comes_to_a_claude_is_one_line_on_stderr(program: Program, play: Play) -> None:
    env = {"CLAUDE_CLI_PATH": str(play(Scenario.echo()).path), "ANTHROPIC_API_KEY": SECRET}
    ran = program.run("ask", "hi", env=env)
    assert (ran.returncode, ran.stdout) == (0, b"hi\n")
    assert ran.stderr.decode() == (
        "claude-transport: using the Claude CLI (an API account pays, because its key wins over the login); "
        "--transport api or CLAUDE_TRANSPORT=api chooses the API instead\n"
    )


@pytest.mark.parametrize("arguments", [("--transport", "cli"), ("--offline",)])
def test_s1_4_an_explicit_choice_says_nothing(program: Program, play: Play, arguments: tuple[str, ...]) -> None:
    ran = program.run("ask", *arguments, "hi", env={"CLAUDE_CLI_PATH": str(play(Scenario.echo()).path)})
    assert b"using the Claude CLI" not in ran.stderr


def test_s4_5_a_run_that_the_permissions_stopped_says_so(program: Program, play: Play) -> None:
    stopped = Result(
        is_error=True,
        subtype="error_during_execution",
        terminal_reason="aborted_tools",
        extra={"permission_denials": [{"tool_name": "Bash"}]},
    )
    ran = program.run("ask", "--cli-path", str(play(Scenario(otherwise=Turn((stopped,)))).path), "hi")
    assert ran.returncode == 1
    assert b"The permissions did not allow what the run needed. [exec.cli.permission_denied]" in ran.stderr


def test_row_2_a_claude_that_was_insisted_on_and_is_not_there_is_exit_code_2(program: Program) -> None:
    ran = program.run("ask", "--transport", "cli", "hi", env={**NO_CLAUDE, "ANTHROPIC_API_KEY": SECRET})
    assert ran.returncode == 2
    assert b"CLAUDE_CLI_PATH names '/no/such/claude', which does not exist. [exec.cli.binary_not_found]" in ran.stderr


@pytest.mark.parametrize("arguments", [(), ("--transport", "auto"), ("--transport", "cli"), ("--transport", "api")])
def test_row_4_neither_path_is_exit_code_2_with_every_place_and_the_remedy(program: Program, arguments: tuple[str, ...]) -> None:
    ran = program.run("ask", *arguments, "hi", env=NO_CLAUDE)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert b"[config.no_auth_path]" in ran.stderr
    assert (b"/no/such/claude (not there)" in ran.stderr) == ("api" not in arguments)  # where a claude would not help, none is named
    remedies = {"cli": b"Install Claude Code (https://", "api": b"Set ANTHROPIC_API_KEY, or install Claude Code and choose the CLI."}
    assert remedies.get("".join(arguments[1:]), b"Install Claude Code and log in, or set ANTHROPIC_API_KEY.") in ran.stderr


@pytest.mark.parametrize("named", [("--offline",), ("--cli-path", "x")])
def test_a_named_claude_and_the_api_contradict_each_other(program: Program, named: tuple[str, ...]) -> None:
    ran = program.run("ask", *named, "--transport", "api", "hi", env={"ANTHROPIC_API_KEY": SECRET})
    assert ran.returncode == 2
    assert f"{named[0]} runs a claude, and --transport api runs none".encode() in ran.stderr


def test_a_variable_that_is_no_choice_is_exit_code_2(program: Program) -> None:
    ran = program.run("ask", "hi", env={"CLAUDE_TRANSPORT": "ssh", "ANTHROPIC_API_KEY": SECRET})
    assert ran.returncode == 2
    assert b"CLAUDE_TRANSPORT says 'ssh', which is not one of auto, cli, api" in ran.stderr


# ----------------------------------------------------------------------------------------------------------- the doctor


def examine(program: Program, *arguments: str, **env: str) -> dict[str, Any]:
    ran = program.run("doctor", "--json", "--offline", *arguments, env=env)
    assert SECRET not in ran.stdout.decode()
    found: dict[str, Any] = json.loads(ran.stdout)["paths"]
    return found


def test_the_doctor_shows_the_row_of_the_matrix_and_who_pays(program: Program, play: Play) -> None:
    claude = str(play(Scenario.echo()).path)
    found = examine(program, CLAUDE_CLI_PATH=claude, ANTHROPIC_API_KEY=SECRET)
    assert (found["api_key"], found["cli"], found["kind"], found["layer"]) == (True, True, "cli", "default")
    assert (found["credential"], found["payer"]) == ("ANTHROPIC_API_KEY", "api account")
    assert found["cells"] == {"auto": ["cli", None], "cli": ["cli", None], "api": ["api", None]}
    by_api = examine(program, "--transport", "api", CLAUDE_CLI_PATH=claude)
    assert (by_api["ok"], by_api["kind"], by_api["payer"]) == (True, "api", "nobody")
    assert by_api["cells"]["api"] == ["api", "exec.cli.auth_failed"]
    neither = examine(program, **NO_CLAUDE)
    assert (neither["ok"], neither["kind"], neither["reason"]) == (False, None, neither["problem"])


def test_the_doctor_tells_it_in_words_too(program: Program) -> None:
    ran = program.run("doctor", "--offline", env={**NO_CLAUDE, "ANTHROPIC_API_KEY": SECRET})
    text = " ".join(ran.stdout.decode().split())
    assert "path through the API: the default says auto, no claude was found, and there is an API key" in text
    assert "ANTHROPIC_API_KEY; the API account pays" in text
    assert (
        "`--transport auto` goes through the API "
        "`--transport cli` fails, because no claude was found [exec.cli.binary_not_found] `--transport api` goes through the API"
    ) in text
    nothing = " ".join(program.run("doctor", "--offline", env=NO_CLAUDE).stdout.decode().split())
    assert "`--transport auto` fails, because there is neither a claude nor an API key [config.no_auth_path]" in nothing


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")
@pytest.mark.parametrize(("says", "known"), [("true", True), ("false", False)])
def test_the_doctor_asks_claude_itself_when_it_is_told_to(program: Program, tmp_path: Path, says: str, known: bool) -> None:
    claude = tmp_path / "claude"
    claude.write_text(f"""#!/bin/sh\necho '{{"loggedIn": {says}, "authMethod": "claude.ai", "subscriptionType": "max"}}'\n""")
    claude.chmod(0o755)
    assert examine(program, CLAUDE_CLI_PATH=str(claude))["logged_in"] is None
    found = examine(program, "--login-status", CLAUDE_CLI_PATH=str(claude))
    assert (found["logged_in"], found["ok"]) == (known, known)
    assert found["payer"] == ("subscription" if known else "nobody")


async def test_the_timeout_ends_an_api_that_never_answers_and_says_so(program: Program, backend: str) -> None:
    async with FakeMessagesAPI([replies.gated("Half an answer", times=None)]) as api:
        ran = await ask(program, api, "--timeout", "1.5", "--model", "haiku", "hi", backend=backend)
    assert ran.returncode == 1
    assert ran.stderr == (
        b"claude-transport: There was no complete answer within 1.5 s. [exec.cli.timeout]\n"
        b"  Allow more time with timeout, or ask for less.\n"
    )
