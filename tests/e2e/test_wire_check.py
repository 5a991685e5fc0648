"""The real CLI says nothing that the schemas of its range do not know, in a conversation that makes it say most of the wire.

`nox -s e2e` shows it on the newest CLI, `e2e_old` on the oldest one, and `nightly` on those between.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from claude_transport.app.main import main
from claude_transport.app.wire_conversation import WireConversation

PATIENCE = 240.0

SAID = {
    *("assistant", "control_request/can_use_tool", "control_request/hook_callback", "control_request/mcp_message", "control_response"),
    *("result/error_during_execution", "result/error_max_turns", "result/success", "stream_event", "user"),
    *("system/api_retry", "system/hook_response", "system/hook_started", "system/init", "system/status", "system/task_started"),
}
"""What every supported CLI says in the conversation, so that the check is worth something."""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_cli_says_nothing_that_its_schemas_do_not_know(
    claude_cli: str, cli_version: str, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["wire", "check", "--claude-binary", claude_cli, "--backend", backend, "--json", "--timeout", str(PATIENCE)])
    report = json.loads(capsys.readouterr().out)
    assert (code, report["findings"], report["left"]) == (0, [], [])
    assert report["cli_version"] == cli_version


async def test_the_conversation_makes_the_cli_say_most_kinds_of_messages(claude_cli: str, cli_version: str) -> None:
    conversation = WireConversation(claude_cli, version=cli_version)
    await conversation.hold(timeout=PATIENCE)
    said = Counter(name_of(json.loads(line)) for direction, line in conversation.lines if direction == "out")
    assert SAID - set(said) == set()
    assert said["control_response"] > 30


def name_of(message: dict[str, object]) -> str:
    request = message.get("request")
    subtype = request.get("subtype") if isinstance(request, dict) else message.get("subtype")
    return f"{message['type']}/{subtype}" if subtype else str(message["type"])
