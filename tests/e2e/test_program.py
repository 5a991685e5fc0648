"""The program with the real `claude`: asked over a loopback Messages API, and examined by the doctor."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from subprocess import CompletedProcess
from typing import Any

import anyio
import msgspec
import pytest
from live_session import beyond_probes

from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.messages import ResultMessage
from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 90.0  # seconds, on a machine with much else to do

Ask = Callable[..., Any]


@pytest.fixture
def run(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], anyio_backend: str) -> Callable[..., Any]:
    """`await run(api, "ask", …)`: the program's exit code and output, with the real CLI, on the event loop that the test runs on."""

    async def program(api: FakeMessagesAPI, command: str, *arguments: str, env: Mapping[str, str] | None = None) -> CompletedProcess[bytes]:
        named = () if "api" in arguments else ("--cli-path", claude_cli)
        argv = [sys.executable, "-W", "error", "-m", "claude_transport", command, *named, "--backend", anyio_backend]
        with anyio.fail_after(PATIENCE):
            return await anyio.run_process([*argv, *arguments], check=False, cwd=cli_home.project, env=cli_env(api, **(env or {})))

    return program


def besides_a_newer_version(stderr: bytes) -> str:
    """What the program said, without its warning of a claude that came out after the newest that was tested."""
    return "".join(line for line in stderr.decode().splitlines(keepends=True) if " newer than " not in line)


async def test_ask_prints_the_answer_of_the_real_claude(run: Ask) -> None:
    async with FakeMessagesAPI([replies.text("Hello from the API.", chunks=["Hello ", "from ", "the API."])]) as api:
        ran = await run(api, "ask", "Hello", "--model", "haiku")
        (request,) = api.conversation
    assert (ran.returncode, ran.stdout) == (0, b"Hello from the API.\n"), ran.stderr
    assert "haiku" in request.model
    assert besides_a_newer_version(ran.stderr) == ""


async def test_json_is_what_the_real_claude_said_and_ends_with_its_result(run: Ask) -> None:
    async with FakeMessagesAPI([replies.text("Yes.")]) as api:
        ran = await run(api, "ask", "--json", "Well?")
    messages = [msgspec.json.decode(line) for line in ran.stdout.splitlines()]
    assert messages[-1]["type"] == "result"
    assert messages[-1]["result"] == "Yes."
    assert {"system", "stream_event", "assistant"} <= {message["type"] for message in messages}


@pytest.mark.parametrize(
    ("script", "exit_code", "code"),
    [
        (replies.refusal("No."), 1, "result.refusal"),
        (replies.max_tokens("Cut text"), 3, "result.max_output_tokens"),
    ],
    ids=["refusal", "max-tokens"],
)
async def test_json_of_a_failure_ends_with_the_same_report_through_both_paths(run: Ask, script: Any, exit_code: int, code: str) -> None:
    """The text of the failed attempt is in lines before it, and not in the result."""
    found = []
    for transport in ("cli", "api"):
        async with FakeMessagesAPI(script) as api:
            arguments = ("ask", "--json", "Well?", "--transport", transport)
            ran = await run(api, *arguments, env={"CLAUDE_CODE_MAX_RETRIES": "0"})
        last = decode_message(ran.stdout.splitlines()[-1])
        assert isinstance(last, ResultMessage), ran.stderr
        words = [word for word in ("No.", "Cut text") if word in str(last.result)]
        found.append((ran.returncode, last.subtype, last.is_error, last.outcome.code, words, f"[{code}]" in ran.stderr.decode()))
    assert found == [(exit_code, "success", True, code, [], True)] * 2


async def test_without_a_terminal_the_real_claude_is_denied_its_tool_and_goes_on(run: Ask) -> None:
    script = [replies.tool_use("Bash", {"command": "touch made-it"}, text_before="Let me."), replies.text("Then not.")]
    async with FakeMessagesAPI(script) as api:
        ran = await run(api, "ask", "Make it")
    assert (ran.returncode, ran.stdout) == (0, b"Let me.\n\nThen not.\n"), ran.stderr
    assert "● Bash: touch made-it" in ran.stderr.decode()
    assert "denied: Bash (touch made-it)" in ran.stderr.decode()


@pytest.mark.parametrize(("status", "exit_code", "code"), [(401, 3, "exec.cli.auth_failed"), (429, 3, "result.rate_limited")])
async def test_a_refusal_of_the_api_is_the_models_side(run: Ask, status: int, exit_code: int, code: str) -> None:
    async with FakeMessagesAPI(replies.error(status)) as api:
        ran = await run(api, "ask", "Hello", env={"CLAUDE_CODE_MAX_RETRIES": "0"})
    assert ran.returncode == exit_code
    assert f"[{code}]" in ran.stderr.decode()
    assert ran.stdout == b""


async def test_ctrl_c_ends_the_real_claude(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], anyio_backend: str
) -> None:
    argv = [sys.executable, "-m", "claude_transport", "ask", "--cli-path", claude_cli, "--backend", anyio_backend, "Hello"]
    reply = replies.gated("Never whole", after_chunks=1, chunks=["Never ", "whole"])
    with anyio.fail_after(PATIENCE):  # also for the end of the process, which is waited for when something is not as it should be
        async with FakeMessagesAPI(reply) as api, await anyio.open_process(argv, cwd=cli_home.project, env=cli_env(api)) as process:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"Never "
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130


async def test_the_doctor_tries_the_real_claude_without_the_users_world(run: Ask) -> None:
    async with FakeMessagesAPI() as api:
        ran = await run(api, "doctor", "--json")
        assert api.requests == []  # the doctor brings its own API, whatever the user's environment says
    report = msgspec.json.decode(ran.stdout)
    assert ran.returncode == 0, report
    assert report["test_run"]["against"] == "claude"
    assert [step["name"] for step in report["test_run"]["steps"]] == ["spawn", "initialize", "first message", "result", "close"]
    assert report["cli"]["version"] == report["test_run"]["version"]
    assert report["credential"]["name"] == "ANTHROPIC_API_KEY"


async def test_the_doctor_says_in_words_that_everything_works(run: Ask) -> None:
    async with FakeMessagesAPI() as api:
        ran = await run(api, "doctor")
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.endswith(b"Everything works.\n")
    assert b"sk-ant-fake" not in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "agent", "said"),
    [
        (("--transport", "auto"), "claude-cli/", "claude-transport: using the Claude CLI (an API account pays"),
        (("--transport", "cli"), "claude-cli/", ""),
        (("--transport", "api"), "AsyncAnthropic/", ""),
    ],
    ids=["auto", "cli", "api"],
)
async def test_each_choice_reaches_the_api_through_whom_it_says(
    arguments: tuple[str, ...],
    agent: str,
    said: str,
    claude_cli: str,
    cli_home: Any,
    cli_env: Callable[..., dict[str, str]],
    anyio_backend: str,
) -> None:
    argv = [sys.executable, "-W", "error", "-m", "claude_transport", "ask", "--backend", anyio_backend, *arguments, "Who?"]
    async with FakeMessagesAPI([replies.text("You.")]) as api:
        with anyio.fail_after(PATIENCE):
            env = cli_env(api, CLAUDE_CLI_PATH=claude_cli)
            ran = await anyio.run_process(argv, check=False, cwd=cli_home.project, env=env)
        (request,) = api.conversation
    assert (ran.returncode, ran.stdout) == (0, b"You.\n"), ran.stderr
    assert request.headers["user-agent"].startswith(agent)
    told = besides_a_newer_version(ran.stderr)
    assert told.startswith(said)
    assert bool(told) == bool(said)


async def test_the_doctor_asks_the_real_claude_whether_it_is_logged_in(run: Ask) -> None:
    async with FakeMessagesAPI() as api:
        with_a_key = await run(api, "doctor", "--json", "--login-status")
        without = await run(api, "doctor", "--json", "--login-status", env={"ANTHROPIC_API_KEY": ""})
        assert beyond_probes(api) == []
    found = [msgspec.json.decode(ran.stdout)["paths"] for ran in (with_a_key, without)]
    assert [each["logged_in"] for each in found] == [True, False]
    assert [each["credential"] for each in found] == ["ANTHROPIC_API_KEY", None]
    assert "not logged in" in found[1]["problem"]
