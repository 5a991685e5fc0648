"""A callback that raises, overruns or returns nonsense denies by default, and `on_callback_error` decides otherwise."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import anyio
import pytest
from peers import ForeignTransport, Frame, permission, soon

from claude_transport import Allow, Deny, HookMatcher, Query
from claude_transport.errors import ConfigurationError, ControlRequestFailed, UsageError
from claude_transport.exchange.failures import watching_callbacks

Policy = Literal["deny", "allow"]
HOOK = {"subtype": "hook_callback", "callback_id": "hook_0", "input": {"hook_event_name": "PreToolUse"}, "tool_use_id": "t"}


def kind_of(failure: object) -> str:
    return getattr(failure, "__name__", type(failure).__name__)


async def reply_to(transport: ForeignTransport, question: Frame) -> Frame:
    transport.say(question)
    await soon(lambda: question["request_id"] in transport.responses())
    return transport.responses()[question["request_id"]]


def hook_question(request_id: str = "q1") -> Frame:
    return {"type": "control_request", "request_id": request_id, "request": HOOK}


def decision_of(reply: Frame) -> str | None:
    """What a PreToolUse hook has decided."""
    decision: str | None = reply["response"].get("hookSpecificOutput", {}).get("permissionDecision")
    return decision


async def raises() -> Any:
    raise OSError("no such rule file")


async def raises_a_group() -> Any:
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


async def fails_by_a_time_limit() -> Any:
    with anyio.fail_after(0):
        await anyio.sleep_forever()


NONSENSE: list[Any] = [None, True, "allow", {"behavior": "allow"}, Allow, Exception("no")]
UNWRITABLE: list[Any] = [
    Allow(updated_input={"what": object()}),
    Allow(updated_input="ls"),  # type: ignore[arg-type]
    Allow(updated_input=[1]),  # type: ignore[arg-type]
    Allow(updated_permissions=["everything"]),  # type: ignore[list-item]
    Allow(updated_input={"number": float("nan")}),
]


@pytest.mark.parametrize("policy", ["deny", "allow"])
@pytest.mark.parametrize("failure", [raises, raises_a_group, fails_by_a_time_limit, *NONSENSE, *UNWRITABLE], ids=kind_of)
async def test_a_failed_permission_callback_denies_unless_the_policy_allows(failure: Any, policy: Policy) -> None:
    async def decide(*_: object) -> Any:
        return await failure() if inspect.iscoroutinefunction(failure) else failure

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide, on_callback_error=policy) as query:
        reply = await reply_to(transport, permission())
        assert (reply["subtype"], reply["response"]["behavior"]) == ("success", policy)
        if policy == "allow":
            assert reply["response"]["updatedInput"] == {"command": "ls"}
        assert (await reply_to(transport, permission("q2")))["response"]["behavior"] == policy
        assert (query.pending_questions, query.is_quiet) == ((), True)


async def test_a_watcher_hears_of_each_failure_until_it_has_watched_enough() -> None:
    heard: list[tuple[str, BaseException | None, str]] = []

    async def decide(*_: object) -> Any:
        raise OSError("no such rule file")

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide):
        with watching_callbacks(lambda name, error, what: heard.append((name, error, what))):
            await reply_to(transport, permission())
        await reply_to(transport, permission("q2"))
    ((name, error, what),) = heard
    assert ("can_use_tool" in name, type(error), what) == (True, OSError, "")


@pytest.mark.parametrize("decision", [*NONSENSE, *UNWRITABLE[1:3]], ids=kind_of)
async def test_what_is_no_decision_is_told_as_a_wrong_use_of_this_library(decision: Any) -> None:
    heard: list[BaseException | None] = []

    async def decide(*_: object) -> Any:
        return decision

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide):
        with watching_callbacks(lambda _name, error, _what: heard.append(error)):
            message = (await reply_to(transport, permission()))["response"]["message"]
    assert ([type(error) for error in heard], "UsageError" in message) == ([UsageError], True)


async def test_what_is_told_of_a_failure_names_its_kind_and_not_what_was_in_it() -> None:
    async def decide(*_: object) -> Any:
        raise OSError("/home/user/secret-rules")

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide):
        message = (await reply_to(transport, permission()))["response"]["message"]
    assert "OSError" in message
    assert "secret" not in message


@pytest.mark.parametrize("policy", ["deny", "allow"])
@pytest.mark.parametrize("failure", [raises, raises_a_group, fails_by_a_time_limit, 5, "block", {"reason": object()}], ids=kind_of)
async def test_a_failed_hook_denies_unless_the_policy_allows(failure: Any, policy: Policy) -> None:
    """Its registration says `onFailure: block` as well, for when this program cannot answer (recordings 05g, 05h)."""

    async def before(*_: object) -> Any:
        return await failure() if inspect.iscoroutinefunction(failure) else failure

    transport = ForeignTransport()
    async with Query(transport, hooks={"PreToolUse": [HookMatcher(hooks=[before])]}, on_callback_error=policy) as query:
        registered = transport.written[0]["request"]["hooks"]["PreToolUse"][0]
        assert registered.get("onFailure") == ("block" if policy == "deny" else None)
        reply = await reply_to(transport, hook_question())
        assert decision_of(reply) == ("deny" if policy == "deny" else None)
        assert policy == "deny" or reply["response"] == {}
        assert (await reply_to(transport, hook_question("q2")))["response"] == reply["response"]
        assert (query.pending_questions, query.is_quiet) == ((), True)


@pytest.mark.parametrize("policy", ["deny", "allow"])
async def test_a_hook_that_cancels_itself_is_a_failed_one(policy: Policy) -> None:
    async def before(_given: object, _tool: object, context: Any) -> Any:
        context.cancel_scope.deadline = -1
        await anyio.sleep_forever()

    transport = ForeignTransport()
    async with Query(transport, hooks={"PreToolUse": [HookMatcher(hooks=[before])]}, on_callback_error=policy):
        assert decision_of(await reply_to(transport, hook_question())) == ("deny" if policy == "deny" else None)


async def test_every_failure_is_counted_and_logged_without_its_secrets_and_the_session_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "Walnut-Kestrel-4471")

    async def fail(*_: object) -> Any:
        raise OSError("Walnut-Kestrel-4471 and sk-ant-api03-Yarrow-Falcon-9926")

    async def give_up(_given: object, _tool: object, context: Any) -> Any:
        context.cancel_scope.cancel()
        await anyio.sleep_forever()

    transport = ForeignTransport()
    hooks = {"PreToolUse": [HookMatcher(hooks=[fail])], "Stop": [HookMatcher(hooks=[give_up])]}
    async with Query(transport, can_use_tool=fail, hooks=hooks, on_request=fail) as query:
        assert query.failed_callbacks == 0
        await reply_to(transport, permission("q1"))
        await reply_to(transport, hook_question("q2"))
        await reply_to(transport, {**hook_question("q3"), "request": {**HOOK, "callback_id": "hook_1"}})
        await reply_to(transport, {"type": "control_request", "request_id": "q4", "request": {"subtype": "odd"}})
        assert (query.failed_callbacks, query.late_answers) == (4, 0)
        assert "4 failed callbacks" in repr(query)
        assert (await query.request("still_there")) == {}
    failed = [record for record in caplog.records if record.name == "claude_transport.exchange.failures"]
    assert [record.getMessage().partition("\n")[0] for record in failed] == [
        "can_use_tool, asked about 'Bash', failed (OSError)",
        "the PreToolUse hook failed (OSError)",
        "the Stop hook failed: cancelled",
        "on_request, asked 'odd', failed (OSError)",
    ]
    assert "in fail" in failed[0].getMessage(), "the traceback says where"
    assert "OSError: [secret] and [secret]" in failed[0].getMessage()
    assert not any(record.exc_info for record in failed)


@pytest.mark.parametrize("guard", ["can_use_tool", "hook"])
async def test_a_guard_that_fails_with_a_refused_request_of_its_own_is_a_failed_guard(guard: str) -> None:
    async def ask(*_: object) -> Any:
        raise ControlRequestFailed("no such file")

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=ask, hooks={"PreToolUse": [HookMatcher(hooks=[ask])]}) as query:
        reply = await reply_to(transport, permission() if guard == "can_use_tool" else hook_question())
        assert query.failed_callbacks == 1
    assert "no such file" not in str(reply)
    assert (reply["response"]["behavior"] if guard == "can_use_tool" else decision_of(reply)) == "deny"


async def test_a_refusal_by_on_request_is_no_failure() -> None:
    async def refuse(*_: object) -> Any:
        raise ControlRequestFailed("not here", error_code="elsewhere")

    transport = ForeignTransport()
    async with Query(transport, on_request=refuse) as query:
        reply = await reply_to(transport, {"type": "control_request", "request_id": "q1", "request": {"subtype": "odd"}})
        assert (reply["error"], reply["error_code"], query.failed_callbacks) == ("not here", "elsewhere", 0)


async def test_an_answer_that_comes_after_the_question_was_withdrawn_is_counted_as_late() -> None:
    asked, go_on = anyio.Event(), anyio.Event()

    async def stubborn(*_: object) -> Allow:
        asked.set()
        with anyio.CancelScope(shield=True):
            await go_on.wait()
        return Allow()

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=stubborn) as query:
        transport.say(permission("q1"))
        await asked.wait()
        transport.say({"type": "control_cancel_request", "request_id": "q1"})
        assert (await query.request("still_there")) == {}
        go_on.set()
        await soon(lambda: query.late_answers == 1)
        assert (query.failed_callbacks, transport.responses()) == (0, {})


@pytest.mark.parametrize("message", [5, None, object()])
async def test_a_denial_is_one_whatever_its_message(message: Any) -> None:
    async def decide(*_: object) -> Deny:
        return Deny(message)

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide):
        reply = await reply_to(transport, permission())
        assert (reply["response"]["behavior"], type(reply["response"]["message"])) == ("deny", str)


@pytest.mark.parametrize("policy", ["", "ask", None, 1])
def test_a_policy_that_is_none_is_refused(policy: Any) -> None:
    with pytest.raises(ConfigurationError, match="on_callback_error"):
        Query(ForeignTransport(), on_callback_error=policy)
