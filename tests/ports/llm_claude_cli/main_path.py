"""The main path of llm-claude-cli on the real CLI: an answer, a stream, a conversation, data by a schema, an answer that is too late."""

import json
import os
from pathlib import Path

import llm
import pytest
from llm_claude_cli import ClaudeCode
from main_paths import world

from claude_transport.testing import replies

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ANSWERS = ["The first answer.", "The second answer.", "The third answer.", "The fourth answer."]
LATE = replies.gated("The fifth answer.")

with world(*ANSWERS, replies.tool_use("StructuredOutput", {"name": "Rex"}), LATE) as claude:
    os.environ["PATH"] = os.pathsep.join([str(Path(claude).parent), os.environ["PATH"]])
    model = ClaudeCode("claude-cli-haiku", "haiku")
    whole = model.prompt("one", stream=False)
    assert whole.text() == "The first answer."
    assert whole.usage().output
    assert "".join(model.prompt("two")) == "The second answer."
    conversation = model.conversation()
    assert conversation.prompt("three").text() == "The third answer."
    assert conversation.prompt("four").text() == "The fourth answer."
    assert json.loads(model.prompt("a dog", schema=SCHEMA).text()) == {"name": "Rex"}
    with pytest.raises(llm.ModelError, match="timed out"):
        model.prompt("five", timeout=3).text()
