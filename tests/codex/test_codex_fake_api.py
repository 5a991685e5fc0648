"""The real `codex` takes `FakeResponsesAPI` for a Responses API, in whatever it says."""

from __future__ import annotations

from typing import Any

import pytest
from codex_world import CodexHome

from claude_transport import SubprocessTransport
from claude_transport.codex import CodexOptions, CodexSession, ItemCompleted
from claude_transport.testing import FakeResponsesAPI, replies

pytestmark = pytest.mark.e2e


async def test_settings_of_the_fake_take_the_place_of_a_configuration_file(codex_binary: str, codex_home: CodexHome) -> None:
    usage = replies.Usage(input_tokens=100, output_tokens=7, cache_read_input_tokens=40, reasoning_output_tokens=2)
    async with FakeResponsesAPI(replies.text("Hello, world", usage=usage)) as api:
        options = CodexOptions(
            codex_path=codex_binary,
            codex_home=codex_home.codex,
            cwd=codex_home.project,
            config=api.configuration(),
            env={"HOME": str(codex_home.home), "PATH": "/usr/bin:/bin", **api.environment()},
            env_mode="exact",
        )
        async with CodexSession(SubprocessTransport(options)) as session:
            turn = await session.send("Say hello")
            result = await turn.result()
        (asked,) = api.requests
    assert (result.status, result.text) == ("completed", "Hello, world")
    assert result.usage is not None
    counted = result.usage
    assert (counted.input_tokens, counted.cached_input_tokens, counted.output_tokens, counted.reasoning_output_tokens) == (100, 40, 7, 2)
    assert (asked.prompt, asked.credential) == ("Say hello", "authorization")


PATCH = "*** Begin Patch\n*** Add File: made.txt\n+first line\n*** End Patch"


async def test_a_scripted_model_thinks_runs_commands_and_changes_files(
    codex_options: CodexOptions, codex_home: CodexHome, responses_api: FakeResponsesAPI
) -> None:
    responses_api.replace([replies.exec_command("echo out; exit 3", thought="I look."), replies.apply_patch(PATCH), replies.text("Done.")])
    items: list[Any] = []
    options = codex_options.replace(sandbox="danger-full-access", approval_policy="never")
    async with CodexSession(SubprocessTransport(options)) as session:
        turn = await session.send("Work")
        async for message in turn:
            items += [message.item] if isinstance(message, ItemCompleted) else []
    assert [item.type for item in items] == ["userMessage", "reasoning", "commandExecution", "fileChange", "agentMessage"]
    assert (items[1].summary, items[2].exit_code) == (("I look.",), 3)
    assert (codex_home.project / "made.txt").read_text("utf-8") == "first line\n"
    ran, patched = (request.tool_results[0] for request in responses_api.conversation[1:])
    assert "out" in ran["output"]
    assert patched["type"] == "custom_tool_call_output"


async def test_the_usage_limit_has_its_own_error(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace(replies.usage_limit(resets_at=1_900_000_000))
    async with CodexSession(SubprocessTransport(codex_options)) as session:
        turn = await session.send("Say hello")
        result = await turn.result()
    assert result.status == "failed"
    assert len(responses_api.conversation) == 1
    assert "usage limit" in str(result.error)
