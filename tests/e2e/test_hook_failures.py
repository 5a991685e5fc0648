"""Hooks of the host that are late, raise, or are interrupted, on the real CLI: the tool is refused unless the host says otherwise."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from live_session import Live, bash, from_subagent

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies


class Pondering:
    """A hook that never answers, and knows when it was asked and when it was given up."""

    def __init__(self) -> None:
        self.asked, self.withdrawn = anyio.Event(), anyio.Event()

    async def __call__(self, _given: Any, _tool_use_id: str | None, context: ct.client.CallbackContext) -> None:
        self.asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            assert context.cancel_scope.cancel_called
            self.withdrawn.set()


async def broken(*_: object) -> None:
    raise ValueError("broken")


async def misspelt(*_: object) -> dict[str, Any]:
    return {"hookSpecificOutput": {"permissionDecison": "deny"}}


async def unwritable(*_: object) -> dict[str, Any]:
    return {"systemMessage": object()}


async def gives_up(_given: Any, _tool_use_id: str | None, context: ct.client.CallbackContext) -> None:
    context.cancel_scope.cancel()
    await anyio.sleep_forever()


async def stubborn(*_: object) -> ct.hooks.PreToolUseDecision:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(0.5)  # beyond its time of 0.1 s
    return ct.hooks.PreToolUseDecision.allow()


@pytest.mark.parametrize("hook", [broken, misspelt, unwritable, gives_up, stubborn])
async def test_a_hook_that_fails_refuses_its_tool(live: Live, hook: Any) -> None:
    """Also by a CLI that does not know `onFailure`, and although the tool is allowed without asking."""
    hooks = {"PreToolUse": [ct.HookMatcher(hooks=[hook], timeout=0.1 if hook is stubborn else None)]}
    async with live([bash("touch made"), "Done."], hooks=hooks, allowed_tools=["Bash"]) as session:
        result = await session.ask("Make it")
        assert not (session.project / "made").exists()
        assert session.query.failed_callbacks == 1
        (told,) = session.told()
    assert "The PreToolUse hook of this program failed" in told
    assert result.result == "Done."


async def test_a_hook_that_fails_refuses_the_prompt(live: Live) -> None:
    async with live(["Never said."], hooks={"UserPromptSubmit": [ct.HookMatcher(hooks=[broken])]}) as session:
        result = await session.ask("Let me in")
        assert len(session.api.conversation) == 0
    assert result.num_turns == 0


async def test_a_hook_that_fails_at_the_end_of_a_turn_ends_it_and_says_so(live: Live) -> None:
    async with live(["Done.", "Never said."], hooks={"Stop": [ct.HookMatcher(hooks=[broken])]}) as session:
        result = await session.ask("Hello")
        assert len(session.api.conversation) == 1
    assert (result.terminal_reason, result.result) == ("stop_hook_prevented", "Done.")


async def test_a_hook_that_fails_after_a_tool_is_told_to_the_model(live: Live) -> None:
    hooks = {"PostToolUse": [ct.HookMatcher(hooks=[broken])]}
    async with live([bash("touch made"), "Done."], hooks=hooks, allowed_tools=["Bash"]) as session:
        await session.ask("Make it")
        assert (session.project / "made").exists()
        assert "The PostToolUse hook of this program failed" in str(session.api.conversation[-1].body)


async def test_a_permission_that_a_failed_hook_was_asked_for_is_not_given(live: Live) -> None:
    """The permission callback is asked beside the hook, and never answers: only the hook's no can end the turn."""

    async def ponder(*_: object) -> ct.Allow:
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    hooks = {"PermissionRequest": [ct.HookMatcher(hooks=[broken])]}
    async with live([bash("touch made"), "Done."], hooks=hooks, can_use_tool=ponder) as session:
        result = await session.ask("Make it")
        assert not (session.project / "made").exists()
        assert session.query.failed_callbacks == 1
    assert result.result == "Done."


async def test_closing_under_a_hook_that_is_asked_does_not_let_its_tool_run(live: Live) -> None:
    stuck = Pondering()
    hooks = {"PreToolUse": [ct.HookMatcher(hooks=[stuck])]}
    async with live([bash("touch made"), "Done."], hooks=hooks, allowed_tools=["Bash"]) as session:
        await session.query.send("Make it")
        await stuck.asked.wait()
        await session.query.aclose()
        assert not (session.project / "made").exists()


async def test_the_input_is_not_ended_where_that_would_let_a_tool_run_unasked(live: Live) -> None:
    """CLI 2.1.92 and 2.1.191 run the tool when they cannot ask its hook; one that blocks on failure refuses it."""
    stuck = Pondering()
    hooks = {"PreToolUse": [ct.HookMatcher(hooks=[stuck])]}
    async with live([bash("touch made"), "Done."], hooks=hooks, allowed_tools=["Bash"]) as session:
        turn = await session.query.send("Make it")
        await stuck.asked.wait()
        if session.query.initialization.hook_on_failure_supported:
            await session.query.end_input()
        else:
            with pytest.raises(ct.UsageError) as refused:
                await session.query.end_input()
            assert refused.value.code == "usage.guards_need_input"
            await session.query.interrupt()
        await turn.result()
        assert not (session.project / "made").exists()


@pytest.mark.needs("questions of background agents")
@pytest.mark.parametrize("is_asked", [True, False])
async def test_closing_while_a_background_agent_works_does_not_let_its_tools_run_unasked(live: Live, is_asked: bool) -> None:
    """CLI 2.1.191 goes on with its agents when the input ends, and no longer asks."""
    asked: list[str] = []
    waits = anyio.Event()

    async def guard(event: Any, *_: object) -> None:
        if event["tool_name"] == "Bash":
            asked.append(event["tool_input"]["command"])
            if is_asked:
                waits.set()
                await anyio.sleep_forever()

    def answer(request: Any) -> Any:
        if from_subagent(request):
            return [bash(session.report_for_work + "; sleep 0.3"), bash("touch made"), "Sub done."][len(request.tool_results)]
        return launch if len(api.conversation) == 1 else "Main says."

    launch = replies.tool_use("Agent", {"description": "d", "prompt": "SUB work", "subagent_type": "helper", "run_in_background": True})
    agents = {"helper": {"description": "helps", "prompt": "You help.", "tools": ["Bash"]}}
    hooks = {"PreToolUse": [ct.HookMatcher(hooks=[guard])]}
    async with FakeMessagesAPI(answer) as api, live(api=api, hooks=hooks, agents=agents, allowed_tools=["Bash", "Agent"]) as session:
        await session.ask("MAIN")
        await (waits.wait() if is_asked else session.at_work())
        assert not session.query.is_quiet
        await session.query.aclose(timeout=2)
        assert len(asked) == 1
        assert not (session.project / "made").exists()


async def test_a_hook_that_is_late_is_cancelled_and_its_tool_refused(live: Live) -> None:
    late = Pondering()
    hooks = {"PreToolUse": [ct.HookMatcher(hooks=[late], timeout=0.2)]}
    async with live([bash("touch made"), "Done."], hooks=hooks, allowed_tools=["Bash"]) as session:
        result = await session.ask("Make it")
        await late.withdrawn.wait()
        assert not (session.project / "made").exists()
        assert session.query.pending_questions == ()
    assert result.result == "Done."


async def test_an_interrupt_ends_a_turn_whose_hook_never_answers(live: Live) -> None:
    stuck = Pondering()
    async with live(
        [bash("touch made"), "Next."], hooks={"PreToolUse": [ct.HookMatcher(hooks=[stuck])]}, allowed_tools=["Bash"]
    ) as session:
        turn = await session.query.send("Make it")
        await stuck.asked.wait()
        assert await session.query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
        assert (await turn.result()).subtype == "error_during_execution"
        await stuck.withdrawn.wait()
        assert not (session.project / "made").exists()


async def test_a_host_that_prefers_it_lets_tools_run_when_a_hook_fails(live: Live) -> None:
    hooks = {"PreToolUse": [ct.HookMatcher("Bash", [broken])]}
    script = [bash("touch made"), "Done."]
    async with live(script, hooks=hooks, allowed_tools=["Bash"], on_callback_error="allow") as session:
        await session.ask("Make it")
        assert (session.project / "made").exists()


async def test_a_hook_that_works_on_by_itself_holds_nothing_up(live: Live) -> None:
    async def later(*_: object) -> ct.hooks.AsyncHookOutput:
        return ct.hooks.AsyncHookOutput(timeout=60)

    async with live(
        [bash("touch made"), "Done."], hooks={"PreToolUse": [ct.HookMatcher("Bash", [later])]}, allowed_tools=["Bash"]
    ) as session:
        assert (await session.ask("Make it")).result == "Done."
        assert (session.project / "made").exists()


async def test_only_the_tools_that_a_matcher_names_reach_its_hook(live: Live) -> None:
    heard: list[str] = []

    async def note(given: Any, _tool_use_id: str | None, _context: ct.client.CallbackContext) -> None:
        heard.append(f"{given.tool_name}: {given.tool_input['command']}")

    async def never(*_: object) -> None:
        heard.append("never")

    hooks = {"PreToolUse": [ct.HookMatcher("Bash|Read", [note]), ct.HookMatcher("Write", [never])]}
    async with live([bash("echo hi"), "Done."], hooks=hooks, allowed_tools=["Bash"]) as session:
        await session.ask("Say hi")
    assert heard == ["Bash: echo hi"]
