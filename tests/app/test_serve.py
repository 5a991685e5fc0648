"""`claude-transport serve`: a gateway of its own process, reached from outside and ended by a signal."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from program_process import PATIENCE, Program

import claude_transport as ct
from claude_transport.app.main import main
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario, ScriptedTurn
from claude_transport.testing.steps import Init, Result, Text, WaitForFile

TOKEN = "a-token-for-the-program-to-serve"


def token_file(folder: Path) -> str:
    path = folder / "tokens"
    path.touch(mode=0o600)
    path.write_text(f"alice {TOKEN}\n")
    return str(path)


def first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def end_of(process: subprocess.Popen[bytes]) -> list[dict[str, object]]:
    """The log of the process, when it has ended well."""
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, log.decode()
    return [json.loads(line) for line in log.splitlines()]


async def refused(url: str) -> None:
    """Return when the gateway takes no new sessions."""
    with pytest.raises(ct.CLIConnectionError) as caught:
        while True:
            async with ct.NetworkTransport(url, token=TOKEN):
                pass
    assert caught.value.retryable


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_client_elsewhere_is_served_and_sigterm_ends_it_well(program: Program, tmp_path: Path, backend: str) -> None:
    arguments = ("--listen", "tcp://127.0.0.1:0", "--token-file", token_file(tmp_path), "--json", "--backend", backend)
    with program.start("serve", "--offline", *arguments) as process:
        url = await anyio.to_thread.run_sync(first_line, process)
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.NetworkTransport(url, token=TOKEN)) as query:
                assert (await (await query.send("Hello")).result()).outcome.ok
            with pytest.raises(ct.AuthenticationError):
                await ct.NetworkTransport(url, token=TOKEN[:-1]).connect()
        process.send_signal(signal.SIGTERM)
        log = await anyio.to_thread.run_sync(end_of, process)
    events = [line.get("event") for line in log]
    told = {"listening", "session_begun", "session_ended", "turned_away", "draining"}
    assert sorted(str(event) for event in events if event in told) == sorted(told)
    assert TOKEN not in json.dumps(log)


async def test_a_token_from_the_environment_is_not_in_that_of_the_sessions(
    program: Program, tmp_path: Path, play: Callable[..., FakeClaude]
) -> None:
    fake = play(Scenario(replies=[ScriptedTurn((Init(), Result()), init=False)]))
    claude, seen = tmp_path / "claude", tmp_path / "environment"
    claude.write_text(f'#!/bin/sh\nenv >{seen}\nexec {fake.path} "$@"\n')
    claude.chmod(0o755)
    arguments = ("--listen", "tcp://127.0.0.1:0", "--token-env", "OUR_TOKEN", "--json", "--cli-path", str(claude))
    program.env["OUR_TOKEN"] = TOKEN
    with program.start("serve", *arguments) as process:
        url = await anyio.to_thread.run_sync(first_line, process)
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.NetworkTransport(url, token=TOKEN)) as query:
                assert (await (await query.send("Hello")).result()).outcome.ok
        process.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(end_of, process)
    assert "PATH=" in seen.read_text()
    assert "OUR_TOKEN" not in seen.read_text()
    assert TOKEN not in seen.read_text()


async def test_a_turn_that_runs_when_sigterm_comes_is_finished(program: Program, tmp_path: Path, play: Callable[..., FakeClaude]) -> None:
    fake = play(Scenario(replies=[ScriptedTurn((Init(), Text("half"), WaitForFile("go on"), Text("done"), Result()), init=False)]))
    arguments = ("--listen", "tcp://127.0.0.1:0", "--token-file", token_file(tmp_path), "--json", "--cli-path", str(fake.path))
    with program.start("serve", *arguments) as process:
        url = await anyio.to_thread.run_sync(first_line, process)
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.NetworkTransport(url, token=TOKEN)) as query:
                turn = await query.send("work")
                async for message in turn:
                    if isinstance(message, ct.AssistantMessage):
                        break
                process.send_signal(signal.SIGTERM)
                await refused(url)
                fake.open_gate("go on")
                assert (await turn.result()).outcome.ok
        log = await anyio.to_thread.run_sync(end_of, process)
    assert [line["running"] for line in log if line.get("event") == "draining"] == [1]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_second_signal_does_not_wait_for_the_turn(
    program: Program, tmp_path: Path, play: Callable[..., FakeClaude], backend: str
) -> None:
    fake = play(Scenario(replies=[ScriptedTurn((Init(), Text("half"), WaitForFile("never")), init=False)]))
    arguments = ("--listen", "tcp://127.0.0.1:0", "--token-file", token_file(tmp_path), "--json", "--cli-path", str(fake.path))
    with program.start("serve", *arguments, "--backend", backend, "--drain-timeout", "3600") as process:
        url = await anyio.to_thread.run_sync(first_line, process)
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.NetworkTransport(url, token=TOKEN)) as query:
                turn = await query.send("work")
                async for message in turn:
                    if isinstance(message, ct.AssistantMessage):
                        break
                process.send_signal(signal.SIGTERM)
                await refused(url)
                process.send_signal(signal.SIGINT)
                log = await anyio.to_thread.run_sync(end_of, process)
    assert [line["reason"] for line in log if line.get("event") == "session_ended"] == ["closed"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), b"--listen"),
        (("--listen", "tcp://0.0.0.0:0"), b"Give --token-file or --token-env"),
        (("--listen", "tcp://127.0.0.1:0", "--token-env", "NOT_SET_ANYWHERE"), b"NOT_SET_ANYWHERE is not set"),
        (("--listen", "tls://127.0.0.1:0"), b"needs a certificate"),
        (("--listen", "tls://127.0.0.1:0", "--certificate", "/nowhere"), b"--certificate /nowhere cannot be read"),
        (("--listen", "tcp://127.0.0.1:0", "--client-ca", "/nowhere"), b"need --certificate"),
        (("--listen", "tcp://127.0.0.1:0", "--choice", "moddel"), b"has no option moddel"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(program: Program, arguments: tuple[str, ...], said: bytes) -> None:
    ran = program.run("serve", "--offline", *arguments)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert b"Traceback" not in ran.stderr


WRONG = {
    "an empty model": (("--model", ""), "--model: is empty; leave it out [config.invalid]"),
    "a rule that is two": (("--allowed-tools", "Bash(x"), "'Bash(x' is not one permission rule: give each rule as a separate item"),
    "no directory": (("--cwd", "/no/such/place"), "the working directory '/no/such/place' does not exist or is not a directory"),
}
"""Options that no session could be started with, and what is said about them."""


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("command", [("serve", "--listen", "tcp://127.0.0.1:0"), ("worker", "--broker", "redis://127.0.0.1:1")])
def test_what_no_session_could_be_started_with_is_refused_at_the_start(
    program: Program, command: tuple[str, ...], arguments: tuple[str, ...], said: str
) -> None:
    done = program.run(*command, "--offline", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith("claude-transport: ")
    assert said in done.stderr.decode()


def test_each_bound_of_the_command_line_reaches_the_gateway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, Any] = {}

    async def serve(_options: object, **settings: Any) -> None:
        given.update(settings)

    monkeypatch.setattr("claude_transport.app.serve.serve", serve)
    bounds = ("--close-timeout", "0.25", "--drain-timeout", "7", "--lease", "11", "--max-sessions", "3", "--max-total-sessions", "5")
    assert main(["serve", "--listen", f"unix://{tmp_path}/socket", *bounds]) == 0
    limits = given["limits"]
    assert (given["close_timeout"], given["drain_timeout"]) == (0.25, 7.0)
    assert (limits.lease, limits.sessions, limits.total_sessions) == (11.0, 3, 5)
