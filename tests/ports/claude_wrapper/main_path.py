"""The main path of claude-wrapper on the real CLI: an answer, a stream, a CLI that is not there."""

import asyncio

import pytest
from claude_wrapper.core import ClaudeClient
from claude_wrapper.core.exceptions import ClaudeNotFoundError
from main_paths import world


async def talk(claude: str) -> None:
    client = ClaudeClient(claude, timeout=60.0)
    assert await client.check_auth()
    assert await client.chat("one") == "The first answer."
    assert "".join([piece async for piece in client.stream_chat("two")]) == "The second answer."
    with pytest.raises(ClaudeNotFoundError, match="/nowhere/claude"):
        await ClaudeClient("/nowhere/claude").chat("three")


with world("The first answer.", "The second answer.") as claude:
    asyncio.run(talk(claude))
