"""`claude-transport ask --agent`: which agent answers, how its answer looks, and the exit codes, which are those of Claude."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from claude_transport.app.arguments import AGENTS
from claude_transport.codex import CodexOptions
from claude_transport.codex.testing.scenario import RunCommand, Say
from claude_transport.completion.resolution import AGENTS as OF_THE_LIBRARY
from claude_transport.testing import CodexScenario, FakeClaude, FakeCodex, FakeResponsesAPI, Scenario, replies

BARE = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "xterm-256color", "CLAUDE_CLI_PATH": "/no/such/claude"}


def run(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """The program as its users run it, with every warning an error, and nothing of the tests' environment."""
    argv = [sys.executable, "-W", "error", "-m", "claude_transport", *arguments]
    path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if os.environ.get("PYTHONPATH") else {}
    return subprocess.run(argv, input=b"", capture_output=True, env={**BARE, **path, **env}, timeout=120, check=False)


@pytest.fixture
def backend(anyio_backend_name: str) -> str:
    """The event loop of the program: that of the test."""
    return anyio_backend_name


async def ask(codex: CodexOptions, *arguments: str, backend: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """`ask` in the world of these options."""
    world = {**codex.env, "CODEX_HOME": str(codex.codex_home), "CODEX_CLI_PATH": str(codex.codex_path), **env}
    command = ("ask", "--backend", backend, "--cwd", str(codex.cwd), *arguments)
    return await anyio.to_thread.run_sync(partial(run, *command, env={"PATH": BARE["PATH"], **world}))


def test_the_choices_of_the_program_are_those_of_the_library() -> None:
    assert OF_THE_LIBRARY == AGENTS


# ------------------------------------------------------------------------------------------------------------ the real codex


@pytest.mark.codex_needs("the system prompt is the first instruction")
@pytest.mark.e2e
@pytest.mark.parametrize(("arguments", "env"), [(("--agent", "codex"), {}), ((), {"CLAUDE_TRANSPORT_AGENT": "codex"})])
async def test_s1_10_codex_answers_where_it_is_asked(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, backend: str, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    responses_api.replace([replies.text("Hello from Codex.", chunks=["Hello ", "from Codex."])])
    ran = await ask(codex_options, *arguments, "--system-prompt", "Be brief.", "--model", "gpt-5.4", "Hello", backend=backend, **env)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"Hello from Codex.\n", b"")
    (request,) = responses_api.conversation
    assert (request.prompt, request.model) == ("Hello", "gpt-5.4")
    assert request.body["input"][0]["content"][0]["text"] == "Be brief."


@pytest.mark.e2e
async def test_auto_takes_codex_without_a_claude_and_says_so_once(codex_options: CodexOptions, backend: str) -> None:
    ran = await ask(codex_options, "--agent", "auto", "Hello", backend=backend, LAB_KEY="sk-lab")
    assert (ran.returncode, ran.stdout) == (0, b"Hello from the fake Responses API.\n")
    assert ran.stderr.decode() == (
        "claude-transport: using the agent Codex (paid by: api account); --agent claude-code or CLAUDE_TRANSPORT_AGENT=claude-code "
        "chooses the other one\n"
    )


@pytest.mark.e2e
async def test_json_has_the_messages_that_claude_would_send(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, backend: str
) -> None:
    responses_api.replace([replies.exec_command("true"), "Done."])
    ran = await ask(codex_options, "--agent", "codex", "--json", "Go", backend=backend)
    messages = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [message["type"] for message in messages][-2:] == ["assistant", "result"]
    assert (messages[0]["type"], messages[-1]["result"], messages[-1]["is_error"]) == ("system", "Done.", False)


@pytest.mark.e2e
async def test_a_summary_says_which_model_answered_and_no_price(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, backend: str
) -> None:
    responses_api.replace(["Done."])
    ran = await ask(codex_options, "--agent", "codex", "-v", "Go", backend=backend)
    assert b"gpt-5.5" in ran.stderr.splitlines()[-1]
    assert b"cost" not in ran.stderr.splitlines()[-1]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (401, "exec.cli.auth_failed", "codex login"),
        (404, "result.model_not_found", "--model"),
        (500, "result.server_error", "Try again in a few minutes."),
    ],
)
async def test_s1_10_a_failure_of_the_models_side_has_its_exit_code_and_the_words_of_codex(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, backend: str, status: int, code: str, hint: str
) -> None:
    responses_api.replace(replies.error(status))
    ran = await ask(codex_options, "--agent", "codex", "Hello", backend=backend)
    said = ran.stderr.decode()
    assert (ran.returncode, ran.stdout) == (3, b"")
    assert f"[{code}]" in said
    assert "codex says: " in said
    assert hint in said


@pytest.mark.e2e
async def test_a_timeout_ends_codex_with_exit_code_1(codex_options: CodexOptions, responses_api: FakeResponsesAPI, backend: str) -> None:
    responses_api.replace(replies.gated("never", times=None))
    ran = await ask(codex_options, "--agent", "codex", "--timeout", "3", "Hello", backend=backend)
    assert ran.returncode == 1
    assert b"[exec.cli.timeout]" in ran.stderr


# ------------------------------------------------------------------------------------------------------ without any codex


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "a tool rule": (("--agent", "codex", "--allowed-tools", "Bash"), "--allowed-tools: Codex cannot do this"),
    "a limit of turns": (("--agent", "codex", "--max-turns", "3"), "--max-turns: Codex cannot do this"),
    "a mode": (("--agent", "codex", "--permission-mode", "plan"), "--permission-mode: Codex cannot do this"),
    "the API": (("--agent", "codex", "--transport", "api"), "--transport: the call says codex and api, and Codex has no API path."),
    "a model of Claude": (("--agent", "codex", "--model", "haiku"), "is a model of Claude"),
    "a model of Codex": (("--agent", "claude-code", "--model", "gpt-5.5"), "is a model of Codex"),
    "the simulated Claude": (("--agent", "codex", "--offline"), "--offline runs a claude, and --agent codex a codex"),
    "two programs": (("--codex-path", "/x", "--cli-path", "/y"), "--cli-path runs a claude, and --codex-path a codex"),
    "no such agent": (("--agent", "gemini"), "gemini"),
}


@pytest.mark.parametrize(("arguments", "said"), REFUSED.values(), ids=REFUSED)
def test_what_codex_cannot_do_is_exit_code_2_and_names_the_option(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    for program in ("claude", "codex"):
        (tmp_path / program).write_text("#!/bin/sh\nexit 99\n")
        (tmp_path / program).chmod(0o755)
    env = {"HOME": str(tmp_path), "CLAUDE_CLI_PATH": str(tmp_path / "claude"), "CODEX_CLI_PATH": str(tmp_path / "codex")}
    ran = run("ask", *arguments, "Hello", env=env)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert said in ran.stderr.decode()


def test_a_codex_that_is_not_there_is_exit_code_2_and_what_to_correct(tmp_path: Path) -> None:
    ran = run("ask", "--agent", "codex", "--codex-path", "/no/such/codex", "Hello", env={"HOME": str(tmp_path)})
    said = ran.stderr.decode()
    assert ran.returncode == 2
    assert said == (
        "claude-transport: --codex-path names '/no/such/codex', which does not exist. [exec.cli.binary_not_found]\n"
        "  Correct --codex-path, or leave it out, so that the program is searched for.\n"
    )


def test_auto_without_any_agent_is_exit_code_2(tmp_path: Path) -> None:
    ran = run("ask", "--agent", "auto", "Hello", env={"HOME": str(tmp_path), "CODEX_CLI_PATH": "/no/such/codex"})
    assert ran.returncode == 2
    assert b"[config.no_agent]" in ran.stderr


def test_a_claude_that_is_named_answers_whatever_the_environment_says(tmp_path: Path) -> None:
    with FakeClaude(Scenario.echo()) as fake:
        env = {"HOME": str(tmp_path), "CLAUDE_TRANSPORT_AGENT": "codex"}
        by_path = run("ask", "--cli-path", str(fake.path), "hi", env=env)
        offline = run("ask", "--offline", "hi", env=env)
    assert (by_path.returncode, by_path.stdout) == (0, b"hi\n")
    assert offline.returncode == 0


def test_auto_with_a_claude_says_that_claude_answers(tmp_path: Path) -> None:
    with FakeClaude(Scenario.echo()) as fake:
        env = {"HOME": str(tmp_path), "CLAUDE_CLI_PATH": str(fake.path), "CODEX_CLI_PATH": "/no/such/codex"}
        ran = run("ask", "--agent", "auto", "--transport", "cli", "hi", env=env)
    assert (ran.returncode, ran.stdout) == (0, b"hi\n")
    assert "using the agent Claude Code; --agent codex or CLAUDE_TRANSPORT_AGENT=codex chooses the other one" in ran.stderr.decode()


def test_a_call_of_a_tool_is_one_line_on_stderr(tmp_path: Path) -> None:
    scenario = CodexScenario(otherwise=(RunCommand("git log", output="one commit", ask=False), Say("There is one commit.")))
    with FakeCodex(scenario) as fake:
        ran = run("ask", "--agent", "codex", "--codex-path", str(fake.path), "How many commits?", env={"HOME": str(tmp_path)})
        (call,) = fake.calls()
    assert (ran.returncode, ran.stdout) == (0, b"There is one commit.\n")
    (line,) = ran.stderr.decode().splitlines()
    assert "commandExecution: " in line
    assert "git log" in line
    assert call.prompts == ["How many commits?"]
