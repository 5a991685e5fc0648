"""Background work and subagents on the real CLI: who said what, which result belongs to whom, and how work is stopped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from live_session import Live, LiveSession, bash, from_subagent, next_of, of_type

import claude_transport as ct
from claude_transport.testing import replies

HELPER = {"helper": {"description": "helps", "prompt": "You help.", "tools": ["Bash"]}}
WAIT = "until [ -e go ]; do sleep 0.01; done"


def agent(**more: Any) -> replies.MessageReply:
    """The model calls a subagent, which runs in the background unless told otherwise [15a]."""
    return replies.tool_use("Agent", {"description": "do it", "prompt": "SUB", "subagent_type": "helper", **more}, id="toolu_agent")


def by_speaker(main: Iterable[Any], sub: Iterable[Any]) -> Any:
    """A script with one line of replies for the main conversation and one for the subagent; whoever is asked more says little."""
    in_main, in_sub = iter(main), iter(sub)
    return lambda request: next(in_sub if from_subagent(request) else in_main, "More.")


async def rest_until_woken(session: LiveSession, everything: Any) -> tuple[list[ct.Message], ct.ResultMessage]:
    """All messages up to the result of the turn that nobody asked for, and that result."""
    seen: list[ct.Message] = []
    async for message in everything:
        seen.append(message)
        if isinstance(message, ct.ResultMessage) and message.is_unsolicited:
            return seen, message
    raise AssertionError("the session was not woken")


# ------------------------------------------------------------------------------------------------------------------ subagents


@pytest.mark.needs("--forward-subagent-text")
async def test_what_a_subagent_says_names_the_tool_call_it_works_for(live: Live) -> None:
    script = by_speaker([agent(run_in_background=False), replies.text("Main done.")], [bash("echo hi"), replies.text("Sub done.")])
    async with live(script, agents=HELPER, allowed_tools=["Agent", "Bash"], forward_subagent_text=True) as session:
        messages = await session.hear("MAIN")
    inside = [message for message in messages if getattr(message, "parent_tool_use_id", None) == "toolu_agent"]
    said = of_type(inside, ct.AssistantMessage)
    assert [use.name for message in said for use in message.tool_uses] == ["Bash"]
    assert "Sub done." in [message.text for message in said]
    assert {message.subagent_type for message in said} == {"helper"}
    results = [message.tool_results[0].tool_use_id for message in of_type(messages, ct.UserMessage) if message.parent_tool_use_id is None]
    assert results == ["toolu_agent"]
    assert [message.result for message in of_type(messages, ct.ResultMessage)] == ["Main done."]


@pytest.mark.version_sensitive
async def test_a_tool_of_a_subagent_is_asked_for_in_its_name(live: Live) -> None:
    asked: list[tuple[str, bool]] = []

    async def allow(tool: str, _given: dict[str, Any], context: ct.client.CallbackContext) -> ct.Allow:
        asked.append((tool, context.agent_id is not None))
        return ct.Allow()

    script = by_speaker([agent(run_in_background=False), replies.text("Main done.")], [bash("touch made"), replies.text("Sub done.")])
    async with live(script, agents=HELPER, can_use_tool=allow) as session:
        await session.ask("MAIN")
        assert (session.project / "made").exists()
    assert ("Bash", True) in asked


@pytest.mark.needs("agents are in the background by default")
async def test_a_background_agent_outlives_the_result_and_wakes_the_session(live: Live) -> None:
    sub = [replies.gated("Sub done.", gate="sub")]
    script = by_speaker([agent(), replies.text("Started."), replies.text("It is done.")], sub)
    async with live(script, agents=HELPER, allowed_tools=["Agent"]) as session:
        everything = session.query.messages()
        turn = await session.query.send("MAIN")
        await session.api.wait_at_gate("sub")
        result = await turn.result()
        assert (result.result, turn.state, result.is_unsolicited) == ("Started.", ct.TurnState.DONE, False)
        assert list(session.query.background_tasks.values()) == ["do it"]
        assert not session.query.is_quiet
        session.api.open_gate("sub")
        seen, woken = await rest_until_woken(session, everything)
        own = [message async for message in turn]
    assert woken.result == "It is done."
    assert woken not in own
    assert own[-1] is result
    (started,) = of_type(seen, ct.messages.TaskStarted)
    (ended,) = of_type(seen, ct.messages.TaskNotification)
    assert (started.task_type, started.subagent_type, started.tool_use_id) == ("local_agent", "helper", "toolu_agent")
    assert (ended.task_id, ended.status) == (started.task_id, "completed")
    assert [[task.task_type for task in change.tasks] for change in of_type(seen, ct.messages.BackgroundTasksChanged)] == [
        ["local_agent"],
        [],
    ]


@pytest.mark.needs("user_message_uuids")
async def test_a_prompt_beside_a_background_agent_gets_its_own_result(live: Live) -> None:
    def script(request: Any) -> Any:
        if from_subagent(request):
            return replies.gated("Sub done.", gate="sub")
        if "SECOND" in request.prompt:
            return "The second answer."
        return agent() if len(session.api.conversation) == 1 else "Another answer."

    async with live(script, agents=HELPER, allowed_tools=["Agent"]) as session:
        everything = session.query.messages()
        assert (await session.ask("MAIN")).result == "Another answer."
        await session.api.wait_at_gate("sub")
        second = await session.query.send("SECOND")
        result = await second.result()
        assert (result.result, result.user_message_uuids) == ("The second answer.", (second.uuid,))
        session.api.open_gate("sub")
        _seen, woken = await rest_until_woken(session, everything)
    assert woken.user_message_uuids == ()


@pytest.mark.needs("agents are in the background by default")
async def test_a_background_agent_can_be_stopped(live: Live) -> None:
    script = by_speaker([agent(), replies.text("Started."), replies.text("It was stopped.")], [replies.gated("never", gate="sub")])
    async with live(script, agents=HELPER, allowed_tools=["Agent"]) as session:
        everything = session.query.messages()
        await session.ask("MAIN")
        await session.api.wait_at_gate("sub")
        (task_id,) = session.query.background_tasks
        await session.query.stop_task(task_id)
        notification = await next_of(everything, ct.messages.TaskNotification)
        assert (notification.task_id, notification.status) == (task_id, "stopped")
        assert (await session.ask("And now?")).outcome.ok
        assert session.query.background_tasks == {}


@pytest.mark.needs("agents are in the background by default")
async def test_closing_with_patience_waits_for_a_background_agent(live: Live) -> None:
    script = by_speaker([agent(), replies.text("Started."), replies.text("It is done.")], [replies.gated("Sub done.", gate="sub")])
    async with live(script, agents=HELPER, allowed_tools=["Agent"]) as session:
        everything = session.query.messages()
        await session.ask("MAIN")
        await session.api.wait_at_gate("sub")
        session.api.open_gate("sub")
        report = await session.query.aclose(wait_for_background=True)
        _seen, woken = await rest_until_woken(session, everything)
    assert (report.ended_by_itself, report.dropped_tasks, woken.result) == (True, {}, "It is done.")


@pytest.mark.needs("agents are in the background by default")
async def test_closing_at_once_says_which_background_agent_was_dropped(live: Live) -> None:
    script = by_speaker([agent(), replies.text("Started.")], [replies.gated("never", gate="sub")])
    async with live(script, agents=HELPER, allowed_tools=["Agent"], close_timeout=0.1) as session:
        await session.ask("MAIN")
        await session.api.wait_at_gate("sub")
        report = await session.query.aclose(timeout=0)
    assert list(report.dropped_tasks.values()) == ["do it"]


# --------------------------------------------------------------------------------------------------------------------- shells


@pytest.mark.needs("results of background shells")
async def test_a_background_shell_that_ends_wakes_the_session(live: Live) -> None:
    script = [bash(f"{WAIT}; echo over", run_in_background=True), "Started.", "It ended."]
    async with live(script, allowed_tools=["Bash"]) as session:
        everything = session.query.messages()
        turn = await session.query.send("Start it")
        result = await turn.result()
        assert (result.result, session.query.background_tasks) == ("Started.", {})  # a shell may never end: nobody waits for it
        (session.project / "go").touch()
        seen, woken = await rest_until_woken(session, everything)
        own = [message async for message in turn]
    (started,) = of_type(seen, ct.messages.TaskStarted)
    (ended,) = of_type(seen, ct.messages.TaskNotification)
    assert (started.task_type, ended.task_id, ended.status) == ("local_bash", started.task_id, "completed")
    assert (woken.result, woken in own, started in own) == ("It ended.", False, True)


@pytest.mark.needs("results of background shells")
async def test_a_background_shell_that_fails_says_so(live: Live) -> None:
    script = [bash(f"{WAIT}; exit 3", run_in_background=True), "Started.", "It failed."]
    async with live(script, allowed_tools=["Bash"]) as session:
        everything = session.query.messages()
        await session.ask("Start it")
        (session.project / "go").touch()
        seen, _woken = await rest_until_woken(session, everything)
    assert [(ended.status, "3" in ended.summary) for ended in of_type(seen, ct.messages.TaskNotification)] == [("failed", True)]
