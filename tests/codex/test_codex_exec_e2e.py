"""`codex exec --json` behind a transport: typed lines, an exit code that says how the turn ended, and an input that has to end first."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from claude_transport import SubprocessTransport, errors
from claude_transport.codex import CodexOptions, ExecEvent, decode_message, error_of
from claude_transport.testing import FakeResponsesAPI, replies

pytestmark = pytest.mark.e2e

PATIENCE = 60.0  # seconds; a hang fails instead of hanging the suite


def executing(options: CodexOptions, prompt: str, **arguments: Any) -> SubprocessTransport:
    command = [str(options.codex_path), "exec", "--json", "--skip-git-repo-check", prompt]
    return SubprocessTransport(options, command=command, **arguments)


async def events_of(transport: SubprocessTransport, kept: list[ExecEvent]) -> None:
    async for batch in transport.read_lines():
        for line in batch:
            event = decode_message(line)
            assert isinstance(event, ExecEvent), line
            kept.append(event)


async def test_a_good_turn_exits_with_0(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.text("Hello, world")])
    events: list[ExecEvent] = []
    with anyio.fail_after(PATIENCE):
        async with executing(codex_options, "Say hello") as transport:
            await transport.end_input()
            await events_of(transport, events)
            assert transport.info.exit_code == 0
    assert [event.type for event in events] == ["thread.started", "turn.started", "item.completed", "turn.completed"]
    assert events[2].item is not None
    assert events[2].item.text == "Hello, world"
    assert events[3].usage is not None


async def test_a_failed_turn_exits_with_1_and_says_why_in_words(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.error(401)])
    events: list[ExecEvent] = []
    with anyio.fail_after(PATIENCE):
        async with executing(codex_options, "Say hello") as transport:
            await transport.end_input()
            with pytest.raises(errors.ProcessError) as caught:
                await events_of(transport, events)
    assert caught.value.exit_code == 1
    assert events[-1].type == "turn.failed"
    assert events[-1].error is not None
    assert isinstance(error_of(events[-1].error), errors.AuthFailed)


async def test_it_does_nothing_until_its_input_ends(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.text("Hello, world")])
    waits = anyio.Event()

    def on_stderr(line: str) -> None:
        if "Reading additional input" in line:
            waits.set()

    events: list[ExecEvent] = []
    with anyio.fail_after(PATIENCE):
        async with executing(codex_options, "Say hello", on_stderr=on_stderr) as transport:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(events_of, transport, events)
                await waits.wait()
                assert responses_api.conversation == []
                assert events == []
                await transport.end_input()
            assert events[-1].type == "turn.completed"
