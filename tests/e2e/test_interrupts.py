"""Interrupts and priorities on the real CLI: wherever the turn is, it ends, is told apart from a failure, and the session goes on."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from live_session import PATIENCE, Live, bash, from_subagent

import claude_transport as ct
from claude_transport import errors
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.both_loops


async def interrupted(turn: ct.Turn) -> str | None:
    """Why the turn ended, when it ended as an interrupted one does."""
    result = await turn.result()
    with pytest.raises(errors.RunInterrupted):
        result.raise_for_error()
    return result.terminal_reason


@pytest.mark.needs("interrupted messages are marked")
async def test_an_interrupt_in_the_stream_keeps_what_was_said(live: Live) -> None:
    script = [replies.gated("uno due", chunks=["uno ", "due"]), "Next."]
    async with live(script, include_partial_messages=True) as session:
        turn = await session.query.send("Count")
        await session.api.wait_at_gate()
        async for message in turn:
            if isinstance(message, ct.StreamEvent) and message.text:
                break
        assert await session.query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
        messages = [message async for message in turn]
        assert await interrupted(turn) == "aborted_streaming"
        assert [(message.text, message.aborted) for message in messages if isinstance(message, ct.AssistantMessage)] == [("uno ", True)]
        assert (await session.ask("And now?")).result == "Next."
        assert "uno " in str(session.api.conversation[-1].body["messages"])


@pytest.mark.needs("aborted_tools")
async def test_an_interrupt_ends_a_tool_that_runs(live: Live) -> None:
    async with live(allowed_tools=["Bash"]) as session:
        session.api.replace([bash(f"{session.report_for_work}; tail -f /dev/null"), "Next."])
        turn = await session.query.send("Run it")
        await session.at_work()
        assert await session.query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
        assert await interrupted(turn) == "aborted_tools"
        assert (await session.ask("And now?")).result == "Next."


@pytest.mark.version_sensitive
async def test_an_interrupt_withdraws_a_permission_question(live: Live) -> None:
    asked, cancelled = anyio.Event(), anyio.Event()

    async def ponder(_tool: str, _given: dict[str, Any], context: ct.client.CallbackContext) -> ct.Allow:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            assert context.cancel_scope.cancel_called
            cancelled.set()
        return ct.Allow()

    async with live([bash("touch made"), "Next."], can_use_tool=ponder, include_partial_messages=True) as session:
        turn = await session.query.send("Make it")
        await asked.wait()
        async for message in turn:  # the CLI asks when the tool call is complete, which may be before the end of the model's stream
            if isinstance(message, ct.StreamEvent) and message.event_type == "message_stop":
                break
        assert session.query.pending_questions
        assert await session.query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
        assert await interrupted(turn) == "aborted_tools"
        await cancelled.wait()
        assert session.query.pending_questions == ()
        assert not (session.project / "made").exists()
        assert (await session.ask("And now?")).result == "Next."


async def test_an_interrupt_leaves_a_queued_prompt_for_the_next_turn(live: Live) -> None:
    async with live([replies.gated("one two"), "Second."]) as session:
        running = await session.query.send("Count")
        await session.api.wait_at_gate()
        queued = await session.query.send("Then this")
        await session.query.mcp_status()  # answered after the CLI has read the prompt
        assert (running.state, queued.state) == (ct.TurnState.STARTED, ct.TurnState.QUEUED)
        assert await session.query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
        assert await interrupted(running) == "aborted_streaming"
        assert (await queued.result()).result == "Second."
        assert queued.state is ct.TurnState.DONE


async def test_an_interrupt_in_a_subagent_ends_the_whole_turn(live: Live) -> None:
    start = replies.tool_use("Agent", {"description": "do it", "prompt": "SUB", "subagent_type": "helper", "run_in_background": False})
    agents = {"helper": {"description": "helps", "prompt": "You help."}}
    in_main = iter([start, replies.text("Next.")])
    script = lambda request: replies.gated("sub answer") if from_subagent(request) else next(in_main)  # noqa: E731
    async with live(script, agents=agents, allowed_tools=["Agent"]) as session:
        turn = await session.query.send("MAIN")
        await session.api.wait_at_gate()
        assert await session.query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
        assert await interrupted(turn) == "aborted_tools"
        assert (await session.ask("And now?")).result == "Next."


async def test_nothing_to_interrupt_is_no_error_and_harms_nobody(live: Live) -> None:
    async with live(["Hello."]) as session:
        assert await session.query.interrupt() is ct.InterruptOutcome.NOT_RUNNING
        assert (await session.ask("Hello")).result == "Hello."


# ---------------------------------------------------------------------------------------------------------------- priorities


async def test_an_interrupt_before_the_cli_is_ready_stops_the_prompt_that_waits_for_it(live: Live) -> None:
    turns: list[ct.Turn] = []
    outcomes: list[ct.InterruptOutcome] = []

    async with FakeMessagesAPI([replies.gated("Never said.", chunks=["Never ", "said."])]) as api:
        environment = live.environment(api, CLAUDE_CODE_MAX_RETRIES="0")
        options = ct.ClaudeOptions(cli_path=live.cli, cwd=live.home.project, env=environment, env_mode="exact")
        query = ct.Query(ct.SubprocessTransport(options))

        async def send() -> None:
            turns.append(await query.send("Wait"))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(query.start)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(send)
                await anyio.wait_all_tasks_blocked()
                outcomes.append(await query.interrupt(timeout=PATIENCE))
            assert outcomes == [ct.InterruptOutcome.ACKNOWLEDGED]
            assert await interrupted(turns[0]) in {"aborted_streaming", None}
            await query.aclose()


async def test_a_prompt_of_priority_now_aborts_the_running_turn(live: Live) -> None:
    async with live([replies.gated("one two"), "At once."]) as session:
        running = await session.query.send("Count")
        await session.api.wait_at_gate()
        urgent = await session.query.send("Look here", priority="now")
        assert (await urgent.result()).result == "At once."
        aborted = await running.result()
        assert aborted.terminal_reason == "aborted_streaming"
        assert (running.state, urgent.state) == (ct.TurnState.DONE, ct.TurnState.DONE)


@pytest.mark.parametrize(("priority", "state"), [(None, "folded"), ("next", "folded"), ("later", "done")])
async def test_a_prompt_sent_while_a_tool_runs_is_folded_into_its_turn_unless_it_is_for_later(
    live: Live, priority: Any, state: str
) -> None:
    async with live(allowed_tools=["Bash"]) as session:
        session.api.replace([bash(f"{session.report_for_work}; until [ -e go ]; do sleep 0.01; done"), "First.", "Second."])
        running = await session.query.send("Run it")
        await session.at_work()
        other = await session.query.send("And this", priority=priority)
        await session.query.mcp_status()  # answered after the CLI has read the prompt
        (session.project / "go").touch()
        first, second = await running.result(), await other.result()
    assert (running.state, other.state) == (ct.TurnState.DONE, ct.TurnState(state))
    assert (second is first) == (state == "folded")
    assert [first.result, second.result] == (["First.", "First."] if state == "folded" else ["First.", "Second."])
