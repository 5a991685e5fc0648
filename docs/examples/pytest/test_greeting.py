"""Two tests of one program: with a scripted mock, and with a tape, recorded once from the real claude and replayed from then on."""

from __future__ import annotations

import pytest

import claude_transport as ct
from claude_transport.testing import MockClaude, TapeShelf, result

pytestmark = pytest.mark.anyio


async def greet(transport: ct.Transport) -> str | None:
    """The program under test."""
    async with ct.Query(transport) as query:
        turn = await query.send("Hello")
        return (await turn.result()).result


async def test_greeting(mock_claude: MockClaude) -> None:
    claude = mock_claude.script().expect(type="user").reply(result("Hi!"))
    assert await greet(claude) == "Hi!"


async def test_greeting_of_the_real_claude(claude_tape: TapeShelf) -> None:
    greeting = await greet(claude_tape(lambda: ct.SubprocessTransport(ct.ClaudeOptions(model="haiku"))))
    assert greeting is not None
    assert "Hello" in greeting
