"""What type checkers know of the fixtures of the pytest plugin: read by mypy and pyright, run by nobody."""

from __future__ import annotations

from typing import Any, assert_type

import claude_transport as ct
from claude_transport.testing import (
    CodexScenario,
    FakeClaude,
    FakeCodex,
    FakeMessagesAPI,
    FakeResponsesAPI,
    MakeFakeClaude,
    MakeFakeCodex,
    MockClaude,
    RecordedRequest,
    Scenario,
    TapeShelf,
    result,
)


async def test_all(
    mock_claude: MockClaude,
    fake_claude: MakeFakeClaude,
    fake_messages_api: FakeMessagesAPI,
    fake_codex: MakeFakeCodex,
    fake_responses_api: FakeResponsesAPI,
    claude_tape: TapeShelf,
) -> None:
    assert_type(mock_claude([result("Hi!")]), ct.MockTransport)
    assert_type(mock_claude.script().expect(type="user"), ct.MockTransport)
    assert_type(fake_claude(), FakeClaude)
    assert_type(fake_claude(Scenario.text("Hi!"), record_env=["HOME"], strict=False), FakeClaude)
    assert_type(fake_claude([Scenario.crash(), Scenario.text("Hi!")]).calls()[0].prompts, list[Any])
    assert_type(fake_codex(), FakeCodex)
    assert_type(fake_codex(CodexScenario.text("Hi!"), record_env=["HOME"]), FakeCodex)
    assert_type(fake_messages_api.requests, list[RecordedRequest])
    assert_type(fake_responses_api.url, str)
    assert_type(claude_tape(lambda: ct.SubprocessTransport(ct.ClaudeOptions())), ct.Transport)
    fake_claude("Hi!")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    fake_codex(Scenario.echo())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
