"""`record`, `replay`, `inspect` and `serve` with Codex, run as processes on a fake codex."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from program_process import PATIENCE, Program

from claude_transport import NetworkTransport, SubprocessTransport
from claude_transport.codex import CodexSession
from claude_transport.codex.testing.scenario import Fail, RunCommand, Say
from claude_transport.protocol.tape import Tape
from claude_transport.testing import CodexScenario, FakeCodex

STEPS = [RunCommand(command="ls -l", output="a file", ask=False), Say(text="one file")]


@pytest.fixture
def codex() -> Iterator[FakeCodex]:
    with FakeCodex(CodexScenario.turns([STEPS, "again"])) as fake:
        yield fake


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_conversation_with_codex_is_recorded_inspected_and_replayed(
    program: Program, codex: FakeCodex, tmp_path: Path, backend: str
) -> None:
    tape = tmp_path / "tape.ndjson"
    arguments = ("-o", str(tape), "--backend", backend, "--agent", "codex", "--codex-path", str(codex.path))
    recorded = await anyio.to_thread.run_sync(lambda: program.run("record", *arguments, "What is here?", "And now?"))
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout.split() == [b"one", b"file", b"again"]
    assert b"commandExecution" in recorded.stderr
    assert [json.loads(line)["method"] for line in Tape.read(tape).lines("in")].count("turn/start") == 2

    inspected = await anyio.to_thread.run_sync(lambda: program.run("inspect", str(tape)))
    assert inspected.returncode == 0, inspected.stderr
    assert b"2 turns, all ok" in inspected.stdout
    assert b"commandExecution" in inspected.stdout
    paged = await anyio.to_thread.run_sync(lambda: program.run("inspect", str(tape), "--html", str(tmp_path / "page.html")))
    assert paged.returncode == 0, paged.stderr
    assert "What is here?" in (tmp_path / "page.html").read_text("utf-8")

    with anyio.fail_after(PATIENCE):
        async with CodexSession(SubprocessTransport(command=program.argv("replay", str(tape), "--backend", backend))) as session:
            said = [(await (await session.send(prompt)).result()).text for prompt in ("What is here?", "And now?")]
    assert said == ["one file", "again"]


def test_every_message_of_a_recording_may_be_printed(program: Program, codex: FakeCodex, tmp_path: Path) -> None:
    ran = program.run("record", "--json", "-o", str(tmp_path / "t"), "--agent", "codex", "--codex-path", str(codex.path), "go")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1])["method"] == "turn/completed"


def test_a_turn_that_fails_is_the_exit_code_of_a_recording(program: Program, tmp_path: Path) -> None:
    with FakeCodex(CodexScenario.turns([[Fail(message="no", info="unauthorized")]])) as fake:
        ran = program.run("record", "-o", str(tmp_path / "t"), "--agent", "codex", "--codex-path", str(fake.path), "go")
    assert ran.returncode != 0
    assert b"exec.cli.auth_failed" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("record", "-o", "t", "--agent", "codex", "--permission-mode", "plan", "x"), "--permission-mode is for claude"),
        (("record", "-o", "t", "--codex-path", "/x", "x"), "--codex-path is for codex"),
        (("record", "-o", "t", "--agent", "codex", "--system-prompt", "", "x"), "--system-prompt is for claude"),
        (("record", "-o", "t", "--agent", "codex", "--model", "", "x"), "--model: '' is no name of a model"),
        (("serve", "--listen", "unix:///tmp/never", "--agent", "codex", "--allowed-tools", "Read"), "--allowed-tools is for claude"),
        (("serve", "--listen", "unix:///tmp/never", "--agent", "codex", "--offline"), "--offline is for claude"),
        (("serve", "--listen", "unix:///tmp/never", "--sandbox", "read-only"), "--sandbox is for codex"),
    ],
)
def test_an_option_of_the_other_agent_is_refused(program: Program, arguments: tuple[str, ...], words: str) -> None:
    ran = program.run(*arguments)
    assert ran.returncode == 2
    assert words in ran.stderr.decode()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_codex_is_served_and_its_limits_hold_for_every_thread(program: Program, codex: FakeCodex, backend: str) -> None:
    arguments = ("--agent", "codex", "--codex-path", str(codex.path), "--sandbox", "read-only", "--approval-policy", "untrusted")
    with program.start("serve", "--listen", "tcp://127.0.0.1:0", "--backend", backend, *arguments) as process:
        assert process.stdout is not None
        url = (await anyio.to_thread.run_sync(process.stdout.readline)).decode().strip()
        with anyio.fail_after(PATIENCE):
            async with CodexSession(NetworkTransport(url), thread={"sandbox": "danger-full-access"}) as session:
                assert (await (await session.send("What is here?")).result()).text == "one file"
        process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(process.wait) == 0
    (asked,) = codex.calls()[0].requests("thread/start")
    assert (asked["sandbox"], asked["approvalPolicy"]) == ("read-only", "untrusted")
