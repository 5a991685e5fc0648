"""A hook that fails says no by itself, on every CLI: older ones do not know `onFailure`, and let things go on when a hook fails.

The clocks jump: a time limit of minutes takes no time here.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio
from peers import ForeignTransport, Frame, answer_to, in_time, said, soon
from virtual_time import Backend, jumping_backends

from claude_transport import HookMatcher, Query
from claude_transport.client import CallbackContext
from claude_transport.errors import CLIVersionMismatch, ConfigurationError, ControlRequestFailed, UsageError
from claude_transport.hooks import PreToolUseDecision
from claude_transport.protocol.hooks import HookEvent

Hook = Callable[[Any, str | None, CallbackContext], Awaitable[Any]]


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Run every test of this module on both event loops, with clocks that jump."""
    backend: Backend = request.param
    return backend


def jump(seconds: float) -> None:
    """Let time pass while the event loop stands still, as a callback does that computes or sleeps without awaiting."""
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        clock: Any = trio.lowlevel.current_clock()
        clock.jump(seconds)
    else:
        loop.jumping.now += seconds


class Peer(ForeignTransport):
    """A CLI that answers `initialize` with `fields`. `ask()` calls the first hook."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(answers=False)
        self.on_write = self._answer
        self.answered = anyio.Event()
        self._fields = fields

    def _answer(self, frame: Frame) -> None:
        if frame["type"] == "control_request":
            self.say(answer_to(frame, **(self._fields if frame["request"]["subtype"] == "initialize" else {})))
        elif frame["type"] == "control_response":
            self.answered.set()

    async def ask(self, event: str = "PreToolUse", *, request_id: str = "q1", callback_id: str = "hook_0") -> Frame:
        self.say(question(event, request_id=request_id, callback_id=callback_id))
        await soon(lambda: request_id in self.responses())
        return self.responses()[request_id]

    @property
    def registered(self) -> Frame:
        """The first matcher of the first event, as the CLI was told of it."""
        hooks: Frame = self.requests("initialize")[0]["request"]["hooks"]
        matcher: Frame = next(iter(hooks.values()))[0]
        return matcher


def question(event: str = "PreToolUse", *, request_id: str = "q1", callback_id: str = "hook_0") -> Frame:
    body = {"subtype": "hook_callback", "callback_id": callback_id, "input": {"hook_event_name": event}, "tool_use_id": "t"}
    return {"type": "control_request", "request_id": request_id, "request": body}


def denial(event: str, what: str) -> Frame | None:
    """The answer by which `event` says no; None for an event that has no way to say it."""
    reason = f"The {event} hook of this program failed ({what}), so the answer is no."
    permission = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    if event in {"PreToolUse", "PreModelSwitch"}:
        return {"hookSpecificOutput": {"hookEventName": event, **permission}}
    if event == "PermissionRequest":
        return {"hookSpecificOutput": {"hookEventName": event, "decision": {"behavior": "deny", "message": reason}}}
    if event in {"Stop", "SubagentStop", "TaskCreated", "TaskCompleted", "TeammateIdle"}:
        return {"continue": False, "stopReason": reason}
    if event in BLOCKABLE:
        return {"decision": "block", "reason": reason}
    return None


BLOCKABLE = {
    "ConfigChange",
    "Elicitation",
    "ElicitationResult",
    "PostToolBatch",
    "PostToolUse",
    "PostToolUseFailure",
    "PreCompact",
    "UserPromptExpansion",
    "UserPromptSubmit",
}
SUPPORTED = {"hook_on_failure_supported": True, "hooks_applied": True}


async def broken(*_: object) -> Any:
    raise OSError("no such rule file")


async def never(*_: object) -> Any:
    await anyio.sleep_forever()


# ------------------------------------------------------------------------------------------------------------- what is answered


@pytest.mark.parametrize("event", [*HookEvent])
async def test_a_failed_hook_denies_in_the_form_that_its_event_understands(event: HookEvent) -> None:
    peer = Peer(**SUPPORTED)
    async with Query(peer, hooks={event: [HookMatcher(hooks=[broken])]}) as query:
        reply = await peer.ask(event)
        assert query.failed_callbacks == 1
    expected = denial(event, "OSError")
    if expected is None:
        assert reply == {"subtype": "error", "request_id": "q1", "error": "the host's callback failed (OSError)"}
    else:
        assert reply == {"subtype": "success", "request_id": "q1", "response": expected}


@pytest.mark.parametrize("event", [*HookEvent])
async def test_a_failed_hook_has_no_say_where_the_program_prefers_that(event: HookEvent) -> None:
    peer = Peer()
    async with Query(peer, hooks={event: [HookMatcher(hooks=[broken])]}, on_callback_error="allow"):
        assert await peer.ask(event) == {"subtype": "success", "request_id": "q1", "response": {}}


async def misspelt(*_: object) -> Any:
    return {"hookSpecificOutput": {"permissionDecison": "deny"}}


async def unwritable(*_: object) -> Any:
    return {"systemMessage": object()}


async def gives_up(_given: object, _tool: object, context: CallbackContext) -> Any:
    context.cancel_scope.cancel()
    await anyio.sleep_forever()


async def raises_what_refuses(*_: object) -> Any:
    raise ControlRequestFailed("not now")


@pytest.mark.parametrize(
    ("hook", "what"),
    [
        (broken, "OSError"),
        (misspelt, "UsageError"),
        (unwritable, "UsageError"),
        (gives_up, "cancelled"),
        (raises_what_refuses, "ControlRequestFailed"),
    ],
)
async def test_every_way_to_fail_is_answered_with_a_denial(hook: Hook, what: str) -> None:
    peer = Peer()
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[hook])]}) as query:
        assert (await peer.ask())["response"] == denial("PreToolUse", what)
        assert (query.failed_callbacks, query.pending_questions, query.is_quiet) == (1, (), True)


async def test_a_hook_that_the_program_does_not_know_is_denied() -> None:
    peer = Peer()
    async with Query(peer) as query:
        assert (await peer.ask(callback_id="unheard of"))["response"] == denial("PreToolUse", "ControlRequestFailed")
        assert query.failed_callbacks == 1


async def test_a_hook_that_on_request_answers_is_denied_when_on_request_fails() -> None:
    peer = Peer()
    async with Query(peer, on_request=broken):
        assert (await peer.ask("UserPromptSubmit", callback_id="own"))["response"] == denial("UserPromptSubmit", "OSError")


# -------------------------------------------------------------------------------------------------------------- when it is late


async def test_a_hook_that_overruns_its_time_is_denied_then_and_cancelled() -> None:
    cancelled: list[float] = []

    async def late(*_: object) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(anyio.current_time())

    peer = Peer()
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[late], timeout=5)]}) as query:
        begun = anyio.current_time()
        reply = await asked_in_time(peer)
        assert anyio.current_time() - begun == pytest.approx(5)
        await soon(lambda: cancelled)
        assert (query.failed_callbacks, query.late_answers, query.pending_questions) == (1, 0, ())
    assert reply["response"] == denial("PreToolUse", "no answer in 5 s")
    assert [at - begun for at in cancelled] == [pytest.approx(5)]


async def asked_in_time(peer: Peer, event: str = "PreToolUse") -> Frame:
    """Return the answer to one question; unlike `ask()`, it waits so that the clock jumps."""
    peer.answered = anyio.Event()
    peer.say(question(event))
    with anyio.fail_after(10_000):
        await peer.answered.wait()
    return peer.responses()["q1"]


async def test_without_a_time_of_its_own_a_guard_has_ten_minutes() -> None:
    peer = Peer()
    async with Query(peer, hooks={"Stop": [HookMatcher(hooks=[never])]}):
        begun = anyio.current_time()
        reply = await asked_in_time(peer, "Stop")
        assert anyio.current_time() - begun == pytest.approx(600)
    assert reply["response"] == denial("Stop", "no answer in 600 s")


async def test_a_hook_that_resists_its_cancellation_is_denied_in_time_all_the_same() -> None:
    let_go = anyio.Event()

    async def stubborn(*_: object) -> PreToolUseDecision:
        with anyio.move_on_after(20_000, shield=True):
            await let_go.wait()
        return PreToolUseDecision.allow()

    peer = Peer()
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[stubborn], timeout=5)]}) as query:
        begun = anyio.current_time()
        reply = await asked_in_time(peer)
        assert anyio.current_time() - begun == pytest.approx(5)
        let_go.set()
        await soon(lambda: query.late_answers)
        assert (query.failed_callbacks, query.late_answers) == (1, 1)
    assert reply["response"] == denial("PreToolUse", "no answer in 5 s")
    assert len([frame for frame in peer.written if frame["type"] == "control_response"]) == 1


async def test_a_hook_that_blocks_the_event_loop_beyond_its_time_is_denied() -> None:
    async def computes(*_: object) -> PreToolUseDecision:
        jump(6)
        return PreToolUseDecision.allow()

    peer = Peer()
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[computes], timeout=5)]}) as query:
        assert (await peer.ask())["response"] == denial("PreToolUse", "no answer in 5 s")
        assert query.failed_callbacks == 1


async def test_a_hook_that_fails_beyond_its_time_has_failed_once() -> None:
    async def computes_and_fails(*_: object) -> PreToolUseDecision:
        jump(6)
        raise OSError("no such rule file")

    peer = Peer()
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[computes_and_fails], timeout=5)]}) as query:
        assert (await peer.ask())["response"] == denial("PreToolUse", "OSError")
        assert query.failed_callbacks == 1


async def test_a_late_hook_has_no_say_where_the_program_prefers_that() -> None:
    peer = Peer()
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[never], timeout=5)]}, on_callback_error="allow"):
        assert (await asked_in_time(peer))["response"] == {}


@pytest.mark.parametrize(("timeout", "told"), [(None, 600 + 86_400), (0.2, 0.2 + 86_400), (30, 30 + 86_400)])
async def test_the_cli_waits_longer_for_a_guard_than_the_program_does(timeout: float | None, told: float) -> None:
    """A CLI that ends the waiting itself would let the tool run, if it is old; and this program may be busy when the time is over."""
    peer = Peer()
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[never], timeout=timeout)]}):
        assert peer.registered["timeout"] == pytest.approx(told)


@pytest.mark.parametrize(("timeout", "told"), [(None, None), (7, 7)])
async def test_the_cli_itself_ends_the_waiting_for_a_hook_that_has_nothing_to_deny(timeout: float | None, told: float | None) -> None:
    peer = Peer()
    async with Query(peer, hooks={"Notification": [HookMatcher(hooks=[never], timeout=timeout)]}):
        assert peer.registered.get("timeout") == told


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, 2_000_001, "5", True])
async def test_a_time_that_is_none_is_refused(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"HookMatcher for PreToolUse.*timeout"):
        Query(Peer(), hooks={"PreToolUse": [HookMatcher(hooks=[never], timeout=timeout)]})


# ------------------------------------------------------------------------------------------------------- what cannot be promised


@pytest.mark.parametrize(
    "arguments",
    [
        {"hooks": {"PreToolUse": [HookMatcher(hooks=[never])]}},
        {"hooks": {"PreToolUse": [HookMatcher(hooks=[never])]}, "on_callback_error": "allow"},
        {"initialize": {"hooks": {"Newer": [{"hookCallbackIds": ["own"]}]}}, "on_request": never},
    ],
)
async def test_hooks_that_the_cli_did_not_register_fail_the_start(arguments: Any) -> None:
    peer = Peer(hooks_applied=False, hook_on_failure_supported=True)
    with pytest.raises(ConfigurationError, match="did not register the hooks") as caught:
        await Query(peer, **arguments).start()
    assert (caught.value.option, caught.value.code) == ("hooks", "config.invalid")


async def test_a_cli_that_was_told_of_no_hooks_need_not_register_any() -> None:
    async with Query(Peer(hooks_applied=False)):
        pass


@pytest.mark.parametrize("event", ["PreModelSwitch", "PreCompact", "PostToolBatch", "UserPromptExpansion"])
@pytest.mark.parametrize("version", [None, "2.1.92", "2.1.190", "rubbish"])
async def test_a_guard_that_this_cli_would_never_ask_fails_the_start(event: str, version: str | None) -> None:
    peer = Peer(**({} if version is None else {"claude_code_version": version}))
    with pytest.raises(ConfigurationError if version in (None, "rubbish") else CLIVersionMismatch) as caught:
        await Query(peer, hooks={event: [HookMatcher(hooks=[never])]}).start()
    error = caught.value
    if isinstance(error, CLIVersionMismatch):
        assert error.flag in (f"hook.{event}", f"hook.{event}.denial")
        assert (error.code, error.version) == ("exec.cli.version_mismatch", version)
    else:
        assert (error.code, error.option) == ("config.invalid", "hooks")
        assert f"hooks['{event}']" in str(error)
        assert 'on_callback_error="allow"' in str(error)


@pytest.mark.parametrize(
    ("event", "fields", "policy"),
    [
        ("PreModelSwitch", {"claude_code_version": "2.1.257"}, "deny"),
        ("PreCompact", {"claude_code_version": "2.1.191"}, "deny"),
        ("PreCompact", {"claude_code_version": "2.2.0"}, "deny"),
        ("PreCompact", SUPPORTED, "deny"),
        ("PreCompact", {}, "allow"),
        ("PreToolUse", {}, "deny"),
        ("Notification", {}, "deny"),
    ],
)
async def test_a_guard_that_this_cli_will_ask_does_not(event: str, fields: Frame, policy: Any) -> None:
    async with Query(Peer(**fields), hooks={event: [HookMatcher(hooks=[never])]}, on_callback_error=policy):
        pass


async def puts_off(*_: object) -> PreToolUseDecision:
    return PreToolUseDecision.defer()


async def says_so(*_: object) -> Frame:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}}


@pytest.mark.parametrize("hook", [puts_off, says_so])
@pytest.mark.parametrize("policy", ["deny", "allow"])
@pytest.mark.parametrize(
    ("version", "named"), [("2.1.92", "claude 2.1.92"), ("2.1.256", "claude 2.1.256"), (None, "a claude of unknown version")]
)
async def test_a_call_is_denied_and_not_put_off_where_a_resumed_session_would_run_it(
    hook: Hook, policy: Any, version: str | None, named: str
) -> None:
    """CLI 2.1.191 and older run a call that the hook of a resumed session puts off again."""
    peer = Peer(**({} if version is None else {"claude_code_version": version}))
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[hook])]}, on_callback_error=policy) as query:
        decided = (await peer.ask())["response"]["hookSpecificOutput"]
        assert query.failed_callbacks == 1
    assert decided["permissionDecision"] == "deny"
    assert named in decided["permissionDecisionReason"]
    assert "2.1.257" in decided["permissionDecisionReason"]


@pytest.mark.parametrize("fields", [{"claude_code_version": "2.1.257"}, {"claude_code_version": "0.0.0-mock"}, SUPPORTED])
async def test_a_call_is_put_off_where_it_stays_put_off(fields: Frame) -> None:
    peer = Peer(**fields)
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[puts_off])]}) as query:
        reply = await peer.ask()
        assert query.failed_callbacks == 0
    assert reply["response"] == {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}}


class Resumed(Peer):
    """A CLI that asks about a call in the same moment as it answers `initialize`."""

    def _answer(self, frame: Frame) -> None:
        super()._answer(frame)
        if frame.get("request", {}).get("subtype") == "initialize":
            self.say(question())


@pytest.mark.parametrize(("fields", "decided"), [(SUPPORTED, "defer"), ({"claude_code_version": "2.1.191"}, "deny")])
async def test_a_call_that_a_resumed_cli_asks_about_at_once_waits_for_the_version(fields: Frame, decided: str) -> None:
    peer = Resumed(**fields)
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[puts_off])]}):
        await soon(lambda: "q1" in peer.responses())
    assert peer.responses()["q1"]["response"]["hookSpecificOutput"]["permissionDecision"] == decided


async def test_the_input_is_not_ended_under_a_guard_where_that_would_switch_it_off() -> None:
    """CLI 2.1.92 and 2.1.191 run a tool unasked when they can no longer ask about it."""
    peer = Peer(claude_code_version="2.1.191")
    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[never])]}) as query:
        await query.send("Hello")
        with pytest.raises(UsageError, match=r"hooks.*PreToolUse.*2\.1\.191") as caught:
            await query.end_input()
        assert caught.value.code == "usage.guards_need_input"
        assert "end_input" not in peer.calls


@pytest.mark.parametrize("case", ["nothing runs", "the CLI blocks", "the program allows", "no guard", "no hook"])
async def test_the_input_is_ended_where_no_guard_depends_on_it(case: str) -> None:
    peer = Peer(**(SUPPORTED if case == "the CLI blocks" else {}))
    hooks = {"Notification" if case == "no guard" else "PreToolUse": [HookMatcher(hooks=[never])]}
    policy: Any = "allow" if case == "the program allows" else "deny"
    async with Query(peer, hooks=None if case == "no hook" else hooks, on_callback_error=policy) as query:
        if case != "nothing runs":
            await query.send("Hello")
        await query.end_input()
        assert "end_input" in peer.calls


async def test_a_conversation_that_breaks_under_a_guard_interrupts_the_turn_before_the_input_ends() -> None:
    peer = Peer()
    query = Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[never])]})
    await query.start()
    await query.send("Hello")
    peer.finish(ValueError("the line broke"))
    await soon(lambda: query.has_ended)
    await in_time(query.aclose())
    assert [json.dumps(frame) for frame in peer.requests("interrupt")] != []
    assert peer.calls[-1] == "close"


STARTED = {"type": "system", "subtype": "task_started", "task_id": "a1", "task_type": "local_agent", "tool_use_id": "t1"}


class Noting(Peer):
    """A CLI that notes an interrupt among its calls."""

    def _answer(self, frame: Frame) -> None:
        if frame.get("request", {}).get("subtype") == "interrupt":
            self.calls.append("interrupt")
        super()._answer(frame)


@pytest.mark.parametrize("case", ["an old CLI", "the CLI blocks", "no guard", "nothing runs"])
async def test_closing_interrupts_background_agents_that_would_go_on_unasked(case: str) -> None:
    peer = Noting(**(SUPPORTED if case == "the CLI blocks" else {}))
    async with Query(peer, hooks={"Notification" if case == "no guard" else "PreToolUse": [HookMatcher(hooks=[never])]}) as query:
        if case != "nothing runs":
            peer.say(STARTED)
            await soon(lambda: not query.is_quiet)
    ending = [call for call in peer.calls if call in {"interrupt", "end_input"}]
    assert ending[:2] == (["interrupt", "end_input"] if case == "an old CLI" else ["end_input"])  # it may be told again after the end


async def test_a_conversation_that_breaks_while_a_guarded_agent_works_interrupts_it() -> None:
    peer = Peer()
    query = Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[never])]})
    await query.start()
    peer.say(STARTED)
    await soon(lambda: not query.is_quiet)
    peer.finish(ValueError("the line broke"))
    await soon(lambda: query.has_ended)
    await in_time(query.aclose())
    assert len(peer.requests("interrupt")) == 1


async def test_what_it_says_is_not_put_into_the_answers_of_others() -> None:
    peer = Peer()

    async def polite(*_: object) -> PreToolUseDecision:
        return PreToolUseDecision.allow("fine")

    async with Query(peer, hooks={"PreToolUse": [HookMatcher(hooks=[polite], timeout=5)]}) as query:
        reply = await peer.ask()
        peer.say(said())
        assert query.failed_callbacks == 0
    decision = {"hookEventName": "PreToolUse", "permissionDecision": "allow", "permissionDecisionReason": "fine"}
    assert reply["response"] == {"hookSpecificOutput": decision}
