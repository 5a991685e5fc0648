"""The real CLI with prompts and names one would not think of, and with a model that falls silent."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from live_session import Live

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 60.0  # seconds


@pytest.mark.needs("user_message_uuids")
@pytest.mark.parametrize("name", ["not-a-uuid", " ", "AAAAAAAA-2222-4222-8222-333333333333", uuid.UUID(int=7)], ids=repr)
async def test_any_text_names_a_prompt(live: Live, name: str | uuid.UUID) -> None:
    async with live(["hello"]) as session:
        result = await session.ask("hi", uuid=name)
        assert (result.result, result.user_message_uuids) == ("hello", (str(name),))


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]], ids=repr)
async def test_empty_content_runs_a_turn(live: Live, content: Any) -> None:
    async with live(["hello", "again"]) as session:
        assert (await session.ask(content)).result == "hello"
        assert (await session.ask("hi")).result == "again"


@pytest.mark.needs("blanks are answered by the CLI itself")
async def test_blanks_are_answered_by_the_cli_itself(live: Live) -> None:
    async with live(["never before", "never"]) as session:
        result = await session.ask("  ")
        assert (result.is_error, result.num_turns) == (False, 0)
        assert session.api.conversation == []


Watched = Callable[[FakeMessagesAPI, ct.client.Watchdog], ct.Query]


@pytest.fixture
def watched(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Watched:
    """A query to the real CLI under a watchdog."""

    def query(api: FakeMessagesAPI, watchdog: ct.client.Watchdog) -> ct.Query:
        options = ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api), env_mode="exact")
        return ct.Query(ct.SubprocessTransport(options), watchdog=watchdog)

    return query


async def test_a_model_that_falls_silent_is_told_of_and_can_be_interrupted(watched: Watched) -> None:
    async with FakeMessagesAPI([replies.gated("one two"), "hello"]) as api, watched(api, ct.client.Watchdog(no_bytes=0.5)) as query:
        stalls: list[ct.client.StallEvent] = []
        with anyio.fail_after(PATIENCE):
            turn = await query.send("Count")
            await api.wait_at_gate()
            async for message in turn:
                if isinstance(message, ct.client.StallEvent):
                    stalls.append(message)
                    assert await query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
            assert {(stall.clock, stall.killed) for stall in stalls} == {("no_bytes", False)}
            assert (await turn.result()).outcome.code == "result.interrupted"
            assert (await (await query.send("hi")).result()).result == "hello"


async def test_a_model_that_falls_silent_is_left_when_that_was_asked_for(watched: Watched) -> None:
    async with FakeMessagesAPI([replies.gated("one two")]) as api, watched(api, ct.client.Watchdog(no_bytes=2, action="kill")) as query:
        with anyio.fail_after(PATIENCE):
            turn = await query.send("Count")
            with pytest.raises(ct.ConnectionLost) as caught:
                await turn.result()
            report = await query.aclose()
        assert caught.value.code == "transport.stalled"
        assert (report.ended_by_itself, report.lost_turns) == (False, (turn.uuid,))
