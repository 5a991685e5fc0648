"""Tools that a hook puts off: the turn ends, and a later process that resumes the session decides and goes on by itself."""

from __future__ import annotations

import pytest
from live_session import Live, bash

import claude_transport as ct

MADE = {"command": "touch made", "description": "d"}


def deciding(decision: ct.hooks.PreToolUseDecision) -> dict[str, list[ct.HookMatcher]]:
    async def decide(*_: object) -> ct.hooks.PreToolUseDecision:
        return decision

    return {"PreToolUse": [ct.HookMatcher("Bash", [decide])]}


async def put_off(live: Live) -> ct.ResultMessage:
    """The result of a turn whose tool was put off, and the process is gone."""
    async with live([bash("touch made"), "never"], hooks=deciding(ct.hooks.PreToolUseDecision.defer()), allowed_tools=["Bash"]) as session:
        result = await session.ask("Make it")
        assert not (session.project / "made").exists()
        assert len(session.api.conversation) == 1
    return result


async def test_a_tool_that_is_put_off_ends_the_turn_and_is_named_by_its_result(live: Live) -> None:
    result = await put_off(live)
    assert (result.terminal_reason, result.outcome.ok, result.result) == ("tool_deferred", True, "")
    assert result.deferred_tool_use is not None
    assert (result.deferred_tool_use["name"], result.deferred_tool_use["input"]) == ("Bash", MADE)


@pytest.mark.needs("a resumed session decides about the tool that was put off")
async def test_a_resumed_session_runs_the_tool_that_was_put_off_before_it_takes_a_prompt(live: Live) -> None:
    waiting = await put_off(live)
    script, hooks = ["It is made.", "Something else."], deciding(ct.hooks.PreToolUseDecision.allow())
    async with live(script, resume=waiting.session_id, hooks=hooks, allowed_tools=["Bash"]) as session:
        everything = session.query.messages()
        turn = await session.query.send("And now?")
        asked = await turn.result()
        own = [message async for message in turn]
        await session.query.end_input()
        results = [message async for message in everything if isinstance(message, ct.ResultMessage)]
        assert (session.project / "made").exists()
    assert (asked.result, asked.user_message_uuids) == ("Something else.", (turn.uuid,))
    assert [result.result for result in results] == ["It is made.", "Something else."]
    assert results[0] not in own
    assert results[0].prompt_uuids == ()
    assert session.told(0) == ["(Bash completed with no output)"]


@pytest.mark.needs("a resumed session decides about the tool that was put off")
async def test_a_tool_that_was_put_off_can_still_be_refused(live: Live) -> None:
    waiting = await put_off(live)
    hooks = deciding(ct.hooks.PreToolUseDecision.deny("Not today."))
    async with live(["A pity.", "Something else."], resume=waiting.session_id, hooks=hooks, allowed_tools=["Bash"]) as session:
        assert (await session.ask("And now?")).result == "Something else."
        assert not (session.project / "made").exists()
    assert "Not today." in session.told(0)[0]
