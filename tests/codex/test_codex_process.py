"""The real `codex app-server` behind a plain `SubprocessTransport`: it starts, answers, ends, and leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from codex_world import CodexHome
from polling import a_moment

from claude_transport import SubprocessTransport
from claude_transport.codex import CodexOptions, build_codex_environment
from claude_transport.errors import CLIVersionMismatch, ProcessError
from claude_transport.testing import FakeResponsesAPI, replies

pytestmark = pytest.mark.e2e

HELLO = {"clientInfo": {"name": "test", "title": "Test", "version": "0"}}


class Talk:
    """Writes requests, and waits for what answers them."""

    def __init__(self, transport: SubprocessTransport) -> None:
        self.transport = transport
        self._messages = transport.read_messages()

    async def send(self, **message: Any) -> None:
        await self.transport.write(json.dumps(message) + "\n")

    async def result_of(self, number: int) -> dict[str, Any]:
        """The answer to the request with this id."""
        while True:
            message = await anext(self._messages)
            if message.get("id") == number and "method" not in message:
                return message["result"]

    async def wait_for(self, method: str) -> dict[str, Any]:
        """The parameters of the next notification or request with this method."""
        while True:
            message = await anext(self._messages)
            if message.get("method") == method:
                return message["params"]

    async def begin(self) -> dict[str, Any]:
        await self.send(id=0, method="initialize", params=HELLO)
        answer = await self.result_of(0)
        await self.send(method="initialized")
        return answer

    async def start_turn(self, prompt: str, **thread: Any) -> str:
        """Start a thread with one turn, and return the id of the thread."""
        await self.send(id=1, method="thread/start", params=thread)
        thread_id: str = (await self.result_of(1))["thread"]["id"]
        text = {"type": "text", "text": prompt, "text_elements": []}
        await self.send(id=2, method="turn/start", params={"threadId": thread_id, "input": [text]})
        return thread_id


def processes_with(mark: str) -> list[int]:
    """The processes whose environment has this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


async def written(path: Path) -> int:
    """The number that a process writes into this file."""
    with anyio.fail_after(30):
        while not (path.exists() and path.read_text("utf-8").endswith("\n")):
            await a_moment()
    return int(path.read_text("utf-8"))


def is_alive(pid: int) -> bool:
    """Whether the process runs. One that has ended, and that init has not collected yet, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


async def test_it_says_who_it_is_and_ends_with_its_input(codex_options: CodexOptions) -> None:
    transport = SubprocessTransport(codex_options)
    await transport.connect()
    answer = await Talk(transport).begin()
    assert answer["codexHome"] == os.fspath(codex_options.codex_home or "")
    info = transport.info
    assert (info.cli_path, info.kind) == (codex_options.codex_path, "SubprocessTransport")
    assert f"/{info.cli_version} " in answer["userAgent"]
    await transport.close()
    assert (transport.info.exit_code, transport.info.killed) == (0, False)


async def test_closing_in_a_turn_ends_the_process_and_everything_it_started(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, codex_home: CodexHome
) -> None:
    responses_api.replace([replies.exec_command("echo $$ > pid; exec sleep 1000", yield_time_ms=60_000)])
    transport = SubprocessTransport(codex_options.replace(sandbox="danger-full-access", approval_policy="never"))
    await transport.connect()
    talk = Talk(transport)
    await talk.begin()
    await talk.start_turn("sleep")
    command = await written(codex_home.project / "pid")
    await transport.close()
    assert not is_alive(command)
    assert not is_alive(transport.info.pid or 0)
    assert processes_with(os.fspath(codex_home.codex)) == []


async def test_a_killed_codex_is_a_lost_connection_and_leaves_nothing(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, codex_home: CodexHome
) -> None:
    responses_api.replace(replies.gated("never said"))
    transport = SubprocessTransport(codex_options)
    await transport.connect()
    talk = Talk(transport)
    await talk.begin()
    await talk.start_turn("Say hello")
    await talk.wait_for("item/agentMessage/delta")
    os.kill(transport.info.pid or 0, signal.SIGKILL)
    with pytest.raises(ProcessError) as caught:
        await talk.wait_for("turn/completed")
    assert caught.value.signal == signal.SIGKILL
    await transport.close()
    assert processes_with(os.fspath(codex_home.codex)) == []


@pytest.mark.codex_needs("SIGTERM ends with code 0", when="15")
@pytest.mark.parametrize(("number", "ended"), [(signal.SIGTERM, (0, None)), (signal.SIGINT, (None, 2)), (signal.SIGHUP, (None, 1))])
async def test_a_signal_ends_codex_as_it_ends_the_fake(
    codex_options: CodexOptions, number: signal.Signals, ended: tuple[int | None, int | None]
) -> None:
    transport = SubprocessTransport(codex_options)
    await transport.connect()
    talk = Talk(transport)
    await talk.begin()
    os.kill(transport.info.pid or 0, number)
    with contextlib.suppress(ProcessError, StopAsyncIteration):
        await talk.wait_for("never")
    await transport.close()
    assert (transport.info.exit_code, transport.info.signal) == ended


async def test_a_full_pipe_loses_nothing(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    pieces = [f"{number:05} " for number in range(20_000)]
    responses_api.replace(replies.text("".join(pieces), chunks=pieces))
    async with SubprocessTransport(codex_options) as transport:
        talk = Talk(transport)
        await talk.begin()
        thread = await talk.start_turn("Count")
        (asked,) = await responses_api.wait_for_requests(1)
        await responses_api.wait_until(lambda: asked.outcome == "answered", what="the end of the answer")
        said = [(await talk.wait_for("item/agentMessage/delta"))["delta"] for _ in pieces]
        assert said == pieces
        assert (await talk.wait_for("turn/completed"))["threadId"] == thread


async def test_an_option_that_this_codex_does_not_know_is_named(codex_options: CodexOptions) -> None:
    transport = SubprocessTransport(codex_options.replace(extra_args=("--from-the-future",)))
    await transport.connect()
    with pytest.raises(CLIVersionMismatch) as caught:
        await anext(transport.read_messages())
    assert (caught.value.flag, caught.value.version) == ("--from-the-future", transport.info.cli_version)
    await transport.close()


async def test_settings_of_the_options_reach_codex_with_their_types(codex_options: CodexOptions) -> None:
    header = {'quo"ted': 'a "text"\n\x7f\\ é'}
    config = {
        "model_providers.lab": {"http_headers": header},
        "project_doc_max_bytes": 7,
        "history.persistence": "none",
    }
    options = codex_options.replace(model="gpt-5.5", sandbox="workspace-write", approval_policy="never", config=config)
    async with SubprocessTransport(options) as transport:
        talk = Talk(transport)
        await talk.begin()
        await talk.send(id=1, method="config/read", params={})
        read = (await talk.result_of(1))["config"]
    provider = read["model_providers"]["lab"]
    assert (provider["http_headers"], provider["env_key"]) == (header, "LAB_KEY")
    assert (read["project_doc_max_bytes"], read["history"]["persistence"]) == (7, "none")
    assert (read["model"], read["sandbox_mode"], read["approval_policy"]) == ("gpt-5.5", "workspace-write", "never")


async def test_the_first_error_of_codex_is_in_the_tail_of_its_standard_error(codex_options: CodexOptions) -> None:
    transport = SubprocessTransport(codex_options.replace(config={"model_providers": "no table"}))
    await transport.connect()
    with pytest.raises(ProcessError) as caught:
        await anext(transport.read_messages())
    assert caught.value.exit_code == 1
    assert "model_providers" in caught.value.stderr_tail
    await transport.close()


async def test_every_variable_that_codex_sets_for_a_command_is_kept_from_another_session(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI
) -> None:
    responses_api.replace([replies.exec_command("env"), "done"])
    options = codex_options.replace(sandbox="danger-full-access", approval_policy="never")
    async with SubprocessTransport(options) as transport:
        talk = Talk(transport)
        await talk.begin()
        await talk.start_turn("env")
        _, asked = await responses_api.wait_for_requests(2)
    inside = dict(line.split("=", 1) for line in asked.tool_results[0]["output"].splitlines() if "=" in line)
    marks = {name for name in inside if name.startswith("CODEX")} - {"CODEX_HOME"}
    assert marks
    assert not marks & set(build_codex_environment(CodexOptions(), inside))
