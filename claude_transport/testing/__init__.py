"""For people who test programs that talk to Claude: what stands in for the CLI, for the API, and what proves a transport right."""

from __future__ import annotations

from claude_transport.testing import replies, steps
from claude_transport.testing.api_requests import RecordedRequest
from claude_transport.testing.fake_claude import FakeClaude, FakeClaudeCall
from claude_transport.testing.fake_messages_api import FakeMessagesAPI
from claude_transport.testing.scenario import Answer, Rule, Scenario, Turn

__all__ = [
    "Answer",
    "FakeClaude",
    "FakeClaudeCall",
    "FakeMessagesAPI",
    "RecordedRequest",
    "Rule",
    "Scenario",
    "Turn",
    "replies",
    "steps",
]
