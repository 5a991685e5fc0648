"""The main path of claude-sdk-lite's queries on the real CLI: blocking and not, a schema, a query that is left, no binary."""

import asyncio

import pytest
from claude_sdk_lite import ClaudeOptions, CLINotFoundError, async_query, query, query_text
from claude_sdk_lite.types import AssistantMessage, ResultMessage, SystemMessage
from main_paths import world

from claude_transport.testing import replies

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
DATA = replies.tool_use("StructuredOutput", {"name": "Rex"})


async def ask(prompt: str, options: ClaudeOptions) -> list[object]:
    return [message async for message in async_query(prompt=prompt, options=options)]


with world("The first answer.", "The second answer.", DATA, replies.gated("Too late.")) as claude:
    options = ClaudeOptions(cli_path=claude, model="haiku", tools=[])
    assert query_text(prompt="one", options=options) == "The first answer."
    kinds = [type(message) for message in asyncio.run(ask("two", options))]
    assert kinds[-1] is ResultMessage
    assert {SystemMessage, AssistantMessage} < {*kinds}
    *_, result = query(prompt="a dog", options=options.model_copy(update={"json_schema": SCHEMA}))
    assert result.structured_output == {"name": "Rex"}
    for message in query(prompt="four", options=options):
        assert isinstance(message, SystemMessage)
        break
    with pytest.raises(CLINotFoundError, match="nowhere"):
        query_text(prompt="five", options=ClaudeOptions(cli_path="/nowhere/claude"))
