"""Permissions on the real CLI: rules, modes and the callback together decide whether a tool runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import Doorkeeper, Live, bash, of_type
from polling import a_moment

import claude_transport as ct
from claude_transport import errors
from claude_transport.testing import replies

pytestmark = pytest.mark.filterwarnings("ignore:can_use_tool is not asked:UserWarning")


def rules(**lists: list[str]) -> dict[str, Any]:
    return {"permissions": lists}


async def until_said_in(path: Path, text: str) -> None:
    """The CLI writes its settings beside its turn, perhaps after it."""
    with anyio.fail_after(30):
        while not (path.exists() and text in path.read_text()):
            await a_moment()


@pytest.mark.needs("permission rules with wildcards")
async def test_an_allow_rule_lets_the_tool_run_and_nobody_is_asked(live: Live) -> None:
    door = Doorkeeper([ct.Deny("never")])
    async with live([bash("touch made"), "Done."], can_use_tool=door, settings=rules(allow=["Bash(touch made)"])) as session:
        assert (await session.ask("Make it")).permission_denials == ()
        assert (session.project / "made").exists()
    assert door.asked == []


@pytest.mark.version_sensitive
async def test_a_deny_rule_refuses_the_tool_and_nobody_is_asked(live: Live) -> None:
    door = Doorkeeper()
    async with live([bash("touch made"), "Done."], can_use_tool=door, settings=rules(deny=["Bash(touch *)"])) as session:
        messages = await session.hear("Make it")
        assert not (session.project / "made").exists()
        assert "denied" in session.told()[0]
    (result,) = of_type(messages, ct.ResultMessage)
    assert [denial.tool_name for denial in result.permission_denials] == ["Bash"]
    assert door.asked == []


async def test_an_ask_rule_asks_although_another_rule_allows(live: Live) -> None:
    door = Doorkeeper([ct.Deny("Not that one.")])
    both = rules(allow=["Bash"], ask=["Bash(touch *)"])
    async with live([bash("touch made"), bash("echo fine"), "Done."], can_use_tool=door, settings=both) as session:
        await session.ask("Make it")
        assert not (session.project / "made").exists()
        assert "Not that one." in session.told(1)[0]
        assert "fine" in session.told(2)[0]
    assert door.commands == ["touch made"]


@pytest.mark.version_sensitive
async def test_the_callback_may_change_the_input(live: Live) -> None:
    door = Doorkeeper([ct.Allow(updated_input={"command": "echo changed > changed", "description": "d"})])
    async with live([bash("echo made > made"), "Done."], can_use_tool=door) as session:
        await session.ask("Make it")
        assert sorted(path.name for path in session.project.glob("*ed")) == ["changed"]


@pytest.mark.needs("permission rules with wildcards")
@pytest.mark.needs("list_permission_rules")
async def test_updated_permissions_are_in_force_for_the_second_call(live: Live) -> None:
    rule = ct.control.PermissionRule(tool_name="Bash", rule_content="touch *")
    update = ct.control.PermissionUpdate(type="addRules", rules=(rule,), behavior="allow", destination="session")
    door = Doorkeeper([ct.Allow(updated_permissions=[update]), ct.Deny("asked again")])
    async with live([bash("touch one"), bash("touch two"), "Done."], can_use_tool=door) as session:
        await session.ask("Make both")
        assert (session.project / "two").exists()
        known = await session.query.permission_rules()
    assert door.commands == ["touch one"]
    assert ("Bash(touch *)", "allow", "session") in {(rule.rule, rule.behavior, rule.source) for rule in known.rules}


@pytest.mark.needs("permission rules with wildcards")
async def test_a_suggestion_of_the_cli_can_be_given_back_and_is_kept_in_the_local_settings(live: Live) -> None:
    async def as_suggested(_tool: str, _given: dict[str, Any], context: ct.client.CallbackContext) -> ct.Allow:
        return ct.Allow(updated_permissions=[update for update in context.suggestions if update.type == "addRules"])

    async with live([bash("touch one"), "Done."], can_use_tool=as_suggested) as session:
        await session.ask("Make it")
        await until_said_in(session.project / ".claude" / "settings.local.json", "touch one")
    door = Doorkeeper([ct.Deny("asked again")])
    async with live([bash("touch one"), "Done."], can_use_tool=door) as session:
        (session.project / "one").unlink()
        await session.ask("Make it once more")
        assert (session.project / "one").exists()
    assert door.asked == []


async def test_a_mode_among_the_updated_permissions_is_the_sessions_mode(live: Live) -> None:
    update = ct.control.PermissionUpdate(type="setMode", mode="acceptEdits", destination="session")
    door = Doorkeeper([ct.Allow(updated_permissions=[update]), ct.Deny("asked again")])
    async with live(can_use_tool=door) as session:
        write = replies.tool_use("Write", {"file_path": str(session.project / "w.txt"), "content": "data\n"})
        session.api.replace([bash("touch one"), write, "Done."])
        messages = await session.hear("Make it")
        assert (session.project / "w.txt").exists()
    assert [status.permission_mode for status in of_type(messages, ct.messages.StatusMessage) if status.permission_mode] == ["acceptEdits"]


async def test_a_refusal_with_interrupt_ends_the_turn_and_not_the_session(live: Live) -> None:
    door = Doorkeeper([ct.Deny("Stop it.", interrupt=True)])
    async with live([bash("touch made"), "The next turn."], can_use_tool=door) as session:
        result = await session.ask("Make it")
        with pytest.raises(errors.RunInterrupted):
            result.raise_for_error()
        assert not (session.project / "made").exists()
        assert (await session.ask("And now?")).result == "The next turn."


async def test_two_tools_at_once_are_asked_for_one_by_one_and_answered_each(live: Live) -> None:
    door = Doorkeeper([ct.Allow(), ct.Deny("Only one.")])
    both = replies.message(
        replies.tool_use_block("Bash", input={"command": "touch one"}), replies.tool_use_block("Bash", input={"command": "touch two"})
    )
    async with live([both, "Done."], can_use_tool=door) as session:
        result = await session.ask("Make both")
        assert sorted(path.name for path in session.project.iterdir()) == ["one"]
    assert door.commands == ["touch one", "touch two"]
    assert [denial.tool_input["command"] for denial in result.permission_denials] == ["touch two"]


@pytest.mark.needs("permission_denied messages")
async def test_without_a_callback_the_tool_is_denied_and_the_host_is_told(live: Live) -> None:
    async with live([bash("touch made"), "Done."]) as session:
        messages = await session.hear("Make it")
        assert not (session.project / "made").exists()
    assert [denied.tool_name for denied in of_type(messages, ct.messages.PermissionDeniedMessage)] == ["Bash"]


@pytest.mark.needs("requires_user_interaction")
async def test_a_question_to_the_user_is_answered_by_the_callback(live: Live) -> None:
    question = {"question": "Which?", "header": "H", "options": [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]}
    asks = replies.tool_use("AskUserQuestion", {"questions": [{**question, "multiSelect": False}]})
    seen: list[bool] = []

    async def choose(_tool: str, given: dict[str, Any], context: ct.client.CallbackContext) -> ct.Allow:
        seen.append(context.requires_user_interaction)
        return ct.Allow(updated_input={**given, "answers": {"Which?": "B"}})

    async with live([asks, "Done."], can_use_tool=choose) as session:
        await session.ask("Ask me")
        assert "B" in session.told()[0]
    assert seen == [True]


@pytest.mark.needs("requires_user_interaction")
async def test_leaving_plan_mode_needs_permission(live: Live) -> None:
    door = Doorkeeper([ct.Allow()])
    script = [replies.tool_use("ExitPlanMode", {"plan": "1. make it"}), "Go."]
    async with live(script, can_use_tool=door, permission_mode="plan") as session:
        await session.ask("Plan it")
    assert [(tool, context.requires_user_interaction) for tool, _given, context in door.asked] == [("ExitPlanMode", True)]
