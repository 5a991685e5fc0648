"""Hooks of the host that are late, raise, or are interrupted, on the real CLI: the tool is refused unless the host says otherwise."""

from __future__ import annotations

from typing import Any

import anyio
from live_session import Live, bash

import claude_transport as ct


class Pondering:
    """A hook that never answers, and knows when it was asked and when it was given up."""

    def __init__(self) -> None:
        self.asked, self.withdrawn = anyio.Event(), anyio.Event()

    async def __call__(self, _given: Any, _tool_use_id: str | None, context: ct.CallbackContext) -> None:
        self.asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            assert context.cancel_scope.cancel_called
            self.withdrawn.set()


async def broken(*_: object) -> None:
    raise ValueError("broken")


async def test_a_hook_that_is_late_is_withdrawn_and_its_tool_refused(live: Live) -> None:
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
        assert await session.query.interrupt() is ct.InterruptOutcome.acknowledged
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
    async def later(*_: object) -> ct.AsyncHookOutput:
        return ct.AsyncHookOutput(timeout=60)

    async with live(
        [bash("touch made"), "Done."], hooks={"PreToolUse": [ct.HookMatcher("Bash", [later])]}, allowed_tools=["Bash"]
    ) as session:
        assert (await session.ask("Make it")).result == "Done."
        assert (session.project / "made").exists()


async def test_only_the_tools_that_a_matcher_names_reach_its_hook(live: Live) -> None:
    heard: list[str] = []

    async def note(given: Any, _tool_use_id: str | None, _context: ct.CallbackContext) -> None:
        heard.append(f"{given.tool_name}: {given.tool_input['command']}")

    async def never(*_: object) -> None:
        heard.append("never")

    hooks = {"PreToolUse": [ct.HookMatcher("Bash|Read", [note]), ct.HookMatcher("Write", [never])]}
    async with live([bash("echo hi"), "Done."], hooks=hooks, allowed_tools=["Bash"]) as session:
        await session.ask("Say hi")
    assert heard == ["Bash: echo hi"]
