"""What the CLI asks of its host: every question is answered, whatever the callbacks do."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.to_thread
import pytest
from peers import ForeignTransport, Frame, in_time, permission, result, soon

from claude_transport import Allow, Deny, HookMatcher, MockTransport, Query
from claude_transport.client import CallbackContext
from claude_transport.errors import ConfigurationError
from claude_transport.protocol.control import PermissionUpdate

CANCEL = {"type": "control_cancel_request", "request_id": "q1"}


def hook_call(callback_id: str, request_id: str = "q1", **event: Any) -> Frame:
    body = {
        "subtype": "hook_callback",
        "callback_id": callback_id,
        "input": {"hook_event_name": "PreToolUse", **event},
        "tool_use_id": "t1",
    }
    return {"type": "control_request", "request_id": request_id, "request": body}


async def answer(transport: ForeignTransport, request_id: str = "q1") -> Frame:
    await soon(lambda: request_id in transport.responses())
    return transport.responses()[request_id]


# --------------------------------------------------------------------------------------------------------------- permissions


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (Allow(), {"behavior": "allow", "updatedInput": {"command": "ls"}}),
        (Allow(updated_input={"command": "pwd"}), {"behavior": "allow", "updatedInput": {"command": "pwd"}}),
        (Allow(updated_input={}), {"behavior": "allow", "updatedInput": {}}),
        (
            Allow(updated_permissions=[PermissionUpdate(type="setMode", mode="acceptEdits", destination="session")]),
            {
                "behavior": "allow",
                "updatedInput": {"command": "ls"},
                "updatedPermissions": [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}],
            },
        ),
        (Deny("not today"), {"behavior": "deny", "message": "not today"}),
        (Deny("stop", interrupt=True), {"behavior": "deny", "message": "stop", "interrupt": True}),
    ],
)
async def test_a_decision_is_sent_as_the_cli_wants_it(decision: Allow | Deny, expected: Frame) -> None:
    seen: list[Any] = []

    async def decide(tool: str, given: dict[str, Any], context: CallbackContext) -> Allow | Deny:
        seen.append((tool, given, context.tool_use_id, context.agent_id, context.request_id))
        return decision

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide):
        transport.say(permission(agent_id="a1"))
        reply = await answer(transport)
    assert (reply["subtype"], reply["response"]) == ("success", expected)
    assert seen == [("Bash", {"command": "ls"}, "t1", "a1", "q1")]


async def fails(*_: object) -> Any:
    raise ValueError("broken")


async def decides_nothing(*_: object) -> Any:
    return {"behavior": "allow"}


async def cancels_itself(_tool: str, _input: dict[str, Any], context: CallbackContext) -> Any:
    context.cancel_scope.cancel()
    await anyio.sleep_forever()


async def overruns(_tool: str, _input: dict[str, Any], context: CallbackContext) -> Any:
    context.cancel_scope.deadline = anyio.current_time() + 0.01
    await anyio.sleep_forever()


async def is_cancelled_by_its_own(*_: object) -> Any:
    raise asyncio.CancelledError


FAILING = [fails, decides_nothing, cancels_itself, overruns]


@pytest.mark.parametrize("callback", FAILING)
@pytest.mark.parametrize(("policy", "behavior"), [("deny", "deny"), ("allow", "allow")])
async def test_a_failing_permission_callback_answers_by_policy(callback: Any, policy: Any, behavior: str) -> None:
    transport = ForeignTransport()
    async with Query(transport, can_use_tool=callback, on_callback_error=policy) as query:
        transport.say(permission())
        assert (await answer(transport))["response"]["behavior"] == behavior
        assert await query.request("still_there") == {}
        assert query.pending_questions == ()
        assert query.is_quiet


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_callback_that_ends_in_a_cancellation_of_its_own_is_a_failing_one() -> None:
    transport = ForeignTransport()
    async with Query(transport, can_use_tool=is_cancelled_by_its_own) as query:
        transport.say(permission())
        assert (await answer(transport))["response"]["behavior"] == "deny"
        assert await query.request("still_there") == {}


async def test_without_a_callback_the_answer_is_no() -> None:
    transport = ForeignTransport()
    async with Query(transport):
        transport.say(permission())
        assert (await answer(transport))["response"]["behavior"] == "deny"


async def test_a_withdrawn_question_cancels_its_callback_and_is_not_answered() -> None:
    asked, cancelled = anyio.Event(), anyio.Event()

    async def decide(*_: object) -> Allow:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return Allow()

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide) as query:
        transport.say(permission())
        await in_time(asked.wait())
        assert query.pending_questions == ("q1",)
        transport.say(CANCEL)
        await in_time(cancelled.wait())
        await query.request("after")
        assert (transport.responses(), query.pending_questions) == ({}, ())


async def test_a_question_withdrawn_in_the_same_breath_is_not_even_put() -> None:
    called = []

    async def decide(*_: object) -> Allow:
        called.append(True)
        return Allow()

    transport = BatchTransport()
    async with Query(transport, can_use_tool=decide) as query:
        transport.say_together(permission(), CANCEL)
        await query.request("after")
        await anyio.wait_all_tasks_blocked()
        assert (called, transport.responses()) == ([], {})


class BatchTransport(ForeignTransport):
    """Third parties may know the seventh method as well."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[bytes]] = []

    def say_together(self, *frames: Frame) -> None:
        import json

        self.batches.append([json.dumps(frame).encode() for frame in frames])
        self.say({"type": "keep_alive"})

    async def read_lines(self) -> Any:
        import json

        async for frame in self.read_messages():
            if self.batches:
                yield self.batches.pop(0)
            yield [json.dumps(frame).encode()]


async def test_questions_are_worked_on_at_the_same_time_and_reading_goes_on() -> None:
    both = anyio.Event()
    working: list[str] = []

    async def decide(_tool: str, _input: dict[str, Any], context: CallbackContext) -> Allow:
        working.append(context.request_id)
        if len(working) == 2:
            both.set()
        await both.wait()
        return Allow()

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide) as query:
        turn = await query.send("a")
        transport.say(permission("q1"))
        await soon(lambda: working)
        transport.say(result())
        await in_time(turn.result())
        transport.say(permission("q2"))
        await answer(transport, "q1")
        await answer(transport, "q2")


async def test_a_callback_may_use_the_query_it_belongs_to() -> None:
    async def decide(*_: object) -> Allow:
        await query.set_model("haiku")
        return Allow()

    transport = ForeignTransport()
    query = Query(transport, can_use_tool=decide)
    async with query:
        transport.say(permission())
        assert (await answer(transport))["response"]["behavior"] == "allow"


# --------------------------------------------------------------------------------------------------------------------- hooks


async def test_hooks_are_announced_called_and_answered() -> None:
    seen: list[Any] = []

    async def before(given: dict[str, Any], tool_use_id: str | None, _context: CallbackContext) -> dict[str, Any]:
        seen.append((given["hook_event_name"], tool_use_id))
        return {"decision": "block", "reason": "no"}

    async def silent(*_: object) -> None:
        return None

    transport = ForeignTransport()
    hooks = {"PreToolUse": [HookMatcher("Bash", [before, silent], timeout=3)], "Stop": [HookMatcher(hooks=[silent])]}
    async with Query(transport, hooks=hooks):
        announced = transport.written[0]["request"]["hooks"]
        ids = ["hook_0", "hook_1"]
        assert announced["PreToolUse"] == [{"matcher": "Bash", "hookCallbackIds": ids, "timeout": 3 + 86_400, "onFailure": "block"}]
        assert announced["Stop"][0]["hookCallbackIds"] == ["hook_2"]
        transport.say(hook_call("hook_0"), hook_call("hook_1", "q2"), hook_call("hook_9", "q3"))
        assert (await answer(transport))["response"] == {"decision": "block", "reason": "no"}
        assert (await answer(transport, "q2"))["response"] == {}
        assert (await answer(transport, "q3"))["response"]["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert seen == [("PreToolUse", "t1")]


@pytest.mark.parametrize("policy", ["deny", "allow"])
@pytest.mark.parametrize("callback", [fails, cancels_itself])
async def test_a_failing_hook_answers_by_policy(callback: Any, policy: Any) -> None:
    transport = ForeignTransport()
    async with Query(transport, hooks={"PreToolUse": [HookMatcher(hooks=[callback])]}, on_callback_error=policy):
        assert ("onFailure" in transport.written[0]["request"]["hooks"]["PreToolUse"][0]) is (policy == "deny")
        transport.say(hook_call("hook_0"))
        response = (await answer(transport))["response"]
        assert response.get("hookSpecificOutput", {}).get("permissionDecision") == ("deny" if policy == "deny" else None)


async def test_a_hook_output_that_is_no_json_is_a_failure_that_the_cli_hears_of() -> None:
    async def odd(*_: object) -> dict[str, Any]:
        return {"reason": object()}

    transport = ForeignTransport()
    async with Query(transport, hooks={"Stop": [HookMatcher(hooks=[odd])]}):
        transport.say(hook_call("hook_0"))
        assert (await answer(transport))["response"]["continue"] is False


@pytest.mark.parametrize("hooks", [{"Stop": HookMatcher(hooks=[fails])}, {"Stop": [HookMatcher()]}])
def test_hooks_of_the_wrong_shape_are_refused_at_once(hooks: Any) -> None:
    with pytest.raises(ConfigurationError, match="Stop"):
        Query(MockTransport(), hooks=hooks)


# ------------------------------------------------------------------------------------------------------------ everything else


def strange(request_id: str = "q1", **fields: Any) -> Frame:
    return {"type": "control_request", "request_id": request_id, "request": {"subtype": "from_the_future", **fields}}


async def test_an_unknown_request_gets_an_error_that_names_it() -> None:
    transport = ForeignTransport()
    async with Query(transport):
        transport.say(strange())
        reply = await answer(transport)
    assert (reply["subtype"], reply["error_code"]) == ("error", "unsupported_request")
    assert "from_the_future" in reply["error"]


async def test_other_requests_can_be_claimed() -> None:
    seen: list[Any] = []

    async def claim(subtype: str, fields: dict[str, Any]) -> dict[str, Any] | None:
        seen.append((subtype, fields))
        return {"ok": 1} if subtype == "from_the_future" else None

    transport = ForeignTransport()
    async with Query(transport, on_request=claim):
        transport.say(strange(wish="x"), permission("q2"), hook_call("hook_9", "q3"))
        assert (await answer(transport))["response"] == {"ok": 1}
        assert (await answer(transport, "q2"))["response"]["behavior"] == "deny"
        assert (await answer(transport, "q3"))["response"]["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert sorted(subtype for subtype, _ in seen) == ["can_use_tool", "from_the_future", "hook_callback"]
    assert ("from_the_future", {"wish": "x"}) in seen


@pytest.mark.parametrize("claim", [fails, decides_nothing])
async def test_a_claim_always_gives_an_answer(claim: Any) -> None:
    transport = ForeignTransport()
    async with Query(transport, on_request=claim):
        transport.say(strange())
        assert (await answer(transport))["subtype"] == ("error" if claim is fails else "success")


async def test_a_request_without_an_id_is_left_alone() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        transport.say({"type": "control_request", "request": {"subtype": "can_use_tool", "tool_name": "Bash"}})
        assert await query.request("still_there") == {}
        assert transport.responses() == {}


async def test_what_the_callbacks_can_answer_is_announced_to_our_own_transports() -> None:
    transport = MockTransport()
    async with Query(transport, can_use_tool=fails, hooks={"Stop": [HookMatcher(hooks=[fails])]}):
        assert transport.client is not None
        assert transport.client.answers == {"can_use_tool", "hooks"}
    other = MockTransport()
    async with Query(other):
        assert other.client is not None
        assert other.client.answers == frozenset()


# ------------------------------------------------------------------------------------------------------------------- closing


async def test_callbacks_are_cancelled_when_the_peer_dies() -> None:
    asked, cancelled = anyio.Event(), anyio.Event()

    async def decide(*_: object) -> Allow:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return Allow()

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide):
        transport.say(permission())
        await in_time(asked.wait())
        transport.finish()
        await in_time(cancelled.wait())


async def test_a_callback_may_close_its_query() -> None:
    async def decide(*_: object) -> Deny:
        await query.aclose()
        return Deny("closing")

    transport = ForeignTransport()
    query = Query(transport, can_use_tool=decide)
    await query.start()
    transport.say(permission())
    await soon(lambda: "close" in transport.calls)
    await in_time(query.aclose())


async def test_a_task_that_a_callback_started_waits_for_the_close_once_the_callback_is_over() -> None:
    over = anyio.Event()
    was_closed: list[bool] = []

    async def close_later() -> None:
        await over.wait()
        await query.aclose()
        was_closed.append("close" in transport.calls)

    async def decide(*_: object) -> Allow:
        tasks.start_soon(close_later)
        return Allow()

    transport = ForeignTransport()
    query = Query(transport, can_use_tool=decide)
    await query.start()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            transport.say(permission())
            await answer(transport)
            over.set()
        await query.aclose()
    assert was_closed == [True]


async def test_a_callback_that_resists_its_cancellation_does_not_keep_the_transport_open() -> None:
    asked, let_go = anyio.Event(), anyio.Event()

    async def stubborn(*_: object) -> Allow:
        asked.set()
        with anyio.CancelScope(shield=True):
            await let_go.wait()
        return Allow()

    transport = ForeignTransport()
    query = Query(transport, can_use_tool=stubborn)
    await query.start()
    transport.say(permission())
    await in_time(asked.wait())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(query.aclose)
        await soon(lambda: "close" in transport.calls)
        assert query.has_ended
        let_go.set()
