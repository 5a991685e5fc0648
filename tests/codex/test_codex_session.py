"""`CodexSession` over a connection in memory: with the Codex of the recordings, and with one that misbehaves."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest
import trio
from codex_player import PATIENCE, Codex, acting, connected, playing, sent
from codex_recordings import entries_of
from virtual_time import virtual_time

from claude_transport import LoggingTransport, MockTransport, StreamTransport, SubprocessTransport, complete, errors
from claude_transport.bridge import HostTool
from claude_transport.client import InterruptOutcome
from claude_transport.codex import (
    AgentMessageDelta,
    ApprovalRequest,
    CodexNotification,
    CodexOptions,
    CodexSession,
    CodexTurn,
    CommandApproval,
    FileChangeApproval,
    SyncCodexSession,
    TurnCompleted,
)
from claude_transport.codex.testing.scenario import Say
from claude_transport.streams.memory import MemoryConnectable
from claude_transport.testing import CodexScenario, FakeCodex
from claude_transport.testing.steps import DieBySignal, Exit, Stderr

# The recordings


async def test_a_recorded_conversation_is_played_again() -> None:
    async with playing("app_text") as (session, codex):
        for prompt in ("Say hello", "And again"):
            turn = await session.send(prompt)
            deltas = [message.delta async for message in turn if isinstance(message, AgentMessageDelta)]
            assert (deltas, (await turn.result()).text) == (["Hello", ", ", "world"], "Hello, world")
    recorded = [json.loads(entry["line"]) for entry in entries_of("app_text") if entry["dir"] == "in"]
    for heard, wrote in zip(codex.heard[3:], recorded[3:], strict=True):  # the prompts, as the recorded host wrote them
        assert heard["params"] == wrote["params"]
    assert all("jsonrpc" not in message for message in codex.heard)


@pytest.mark.parametrize("name", ["app_401", "app_429", "app_500", "app_response_failed_context"])
async def test_a_recorded_failure_is_a_result_and_not_raised(name: str) -> None:
    async with playing(name) as (session, _):
        result = await (await session.send("Say hello")).result()
    assert result.status == "failed"
    assert isinstance(result.error, errors.ResultError)


RECORDED_DECISIONS = {"app_command_accept": "accept", "app_command_decline": "decline", "app_command_cancel": "cancel"}


@pytest.mark.parametrize("name", RECORDED_DECISIONS)
async def test_a_recorded_question_is_answered_as_the_recorded_host_did(name: str) -> None:
    asked: list[ApprovalRequest] = []

    async def on_approval(request: ApprovalRequest) -> Any:
        asked.append(request)
        return RECORDED_DECISIONS[name]

    async with playing(name, on_approval=on_approval) as (session, codex):
        await (await session.send("Make a file")).result()
    assert isinstance(asked[0], CommandApproval)
    assert {"id": 0, "result": {"decision": RECORDED_DECISIONS[name]}} in codex.heard


async def test_a_recorded_file_change_is_accepted() -> None:
    asked: list[ApprovalRequest] = []

    async def on_approval(request: ApprovalRequest) -> Any:
        asked.append(request)
        return "accept"

    async with playing("app_file_accept", on_approval=on_approval) as (session, _):
        assert (await (await session.send("Make a file")).result()).ok
    assert isinstance(asked[0], FileChangeApproval)
    assert [change.path for change in asked[0].changes] == ["/home/user/work/made.txt"]
    assert "changes" not in str(asked[0].to_dict())


NUMBERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}


def tool(call: Callable[[dict[str, Any], Any], Awaitable[Any]], name: str = "add") -> HostTool:
    return HostTool(name=name, call=call, description="Adds two numbers", input_schema=NUMBERS)


async def add(arguments: dict[str, Any], _: Any) -> str:
    return str(arguments["a"] + arguments["b"])


async def test_a_recorded_tool_call_is_answered_as_the_recorded_host_did() -> None:
    async with playing("app_dynamic_tool", tools=[tool(add)]) as (session, codex):
        assert (await (await session.send("Add")).result()).text == "Hello, world"
    assert {"id": 0, "result": {"success": True, "contentItems": [{"type": "inputText", "text": "3"}]}} in codex.heard
    assert codex.heard[0]["params"]["capabilities"] == {"experimentalApi": True}
    (told,) = codex.heard[2]["params"]["dynamicTools"]
    assert told == {"type": "function", "name": "add", "description": "Adds two numbers", "inputSchema": NUMBERS}


UNREACHABLE = {
    "message": "Reconnecting... waiting for network",
    "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": None}},
    "additionalDetails": "Connection failed: error sending request",
}


async def test_a_turn_ends_as_failed_as_soon_as_codex_waits_for_the_network_and_the_session_goes_on() -> None:
    """Codex would ask again without an end. The turn is interrupted, once, and the next one is like any other."""
    async with connected() as (session, codex):
        turn = await sent(session, codex, "Hello")
        for _ in range(2):
            await codex.tell("error", turnId="U", willRetry=True, error=UNREACHABLE)
        asked = await codex.answer({}, method="turn/interrupt")
        assert asked["params"] == {"threadId": "T", "turnId": "U"}
        await codex.complete(status="interrupted")
        methods = [message.method async for message in turn]
        result = await turn.result()
        assert methods == ["turn/started", "error", "error", "turn/completed"]
        assert (result.status, result.retries, turn.status) == ("failed", 2, "failed")
        with pytest.raises(errors.APIFailed) as caught:
            result.raise_for_error()
        assert (caught.value.code, caught.value.category) == ("result.connection_failed", "transport")
        assert caught.value.reason == "Connection failed: error sending request"
        second = await sent(session, codex, "And now?", turn="V")
        await codex.complete("V")
        assert (await second.result()).ok


def background_tasks(name: str) -> int:
    """How many tasks of this name run in the background."""
    if not trio.lowlevel.in_trio_run():
        return sum(task.get_name() == name for task in asyncio.all_tasks())
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return sum(task.name == name for nursery in root.child_nurseries for task in nursery.child_tasks)


async def test_nothing_waits_for_such_a_turn_any_more_when_it_has_ended() -> None:
    waiting = "end a turn of codex that cannot reach its API"
    async with connected() as (session, codex):
        turn = await sent(session, codex, "Hello")
        await codex.tell("error", turnId="U", willRetry=True, error=UNREACHABLE)
        await codex.answer({}, method="turn/interrupt")
        await anyio.wait_all_tasks_blocked()
        assert background_tasks(waiting) == 1
        await codex.complete(status="interrupted")
        assert (await turn.result()).status == "failed"
        await anyio.wait_all_tasks_blocked()
        assert background_tasks(waiting) == 0


@virtual_time
@pytest.mark.parametrize("answers", [True, False])
async def test_a_codex_that_does_not_end_such_a_turn_when_it_is_told_to_is_not_waited_for_any_longer(answers: bool) -> None:
    async with connected() as (session, codex):
        turn = await sent(session, codex, "Hello")
        await codex.tell("error", turnId="U", willRetry=True, error=UNREACHABLE)
        request = await codex.hear()
        if answers:
            await codex.say({"id": request["id"], "result": {}})
        with anyio.fail_after(11), pytest.raises(errors.APIFailed) as caught:
            await turn.result()
        assert (caught.value.code, caught.value.category) == ("result.connection_failed", "transport")
        await codex.complete(status="interrupted")


async def test_a_turn_that_ends_by_itself_before_its_interrupt_is_what_codex_says() -> None:
    async with connected() as (session, codex):
        turn = await sent(session, codex, "Hello")
        await codex.tell("error", turnId="U", willRetry=True, error=UNREACHABLE)
        request = await codex.hear()
        await codex.complete()
        await codex.say({"id": request["id"], "error": {"code": -32600, "message": "no active turn to interrupt"}})
        assert (request["method"], (await turn.result()).status) == ("turn/interrupt", "completed")


async def test_a_recorded_interrupt_and_one_without_a_turn() -> None:
    async with playing("app_interrupt") as (session, codex):
        turn = await session.send("Count")
        async for message in turn:
            if isinstance(message, AgentMessageDelta):
                assert await session.interrupt() is InterruptOutcome.ACKNOWLEDGED
        assert (await turn.result()).status == "interrupted"
        assert await session.interrupt() is InterruptOutcome.NOT_RUNNING  # not even asked
        stale = {"threadId": session.thread_id, "turnId": turn.turn_id}
        with pytest.raises(errors.JSONRPCError, match="no active turn to interrupt") as caught:
            await session.request("turn/interrupt", stale)
        assert caught.value.rpc_code == -32600
        assert (await (await session.send("And now?")).result()).text == "Hello, world"
    assert codex.heard[4]["params"] == stale


async def test_two_recorded_threads_run_at_once() -> None:
    turns: dict[str, CodexTurn] = {}
    async with playing("app_two_threads_at_once") as (session, codex):

        async def first() -> None:
            turns["One"] = await session.send("One")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            while len(codex.heard) < 4:  # the recorded host asked for the second thread before its prompt was answered
                await anyio.lowlevel.checkpoint()
            other = await session.start_thread(cwd="/home/user/work")
            assert other.thread_id != session.thread_id
            turns["Two"] = await other.send("Two")
        results = [await turns[name].result() for name in ("One", "Two")]
    assert [result.thread_id for result in results] == [session.thread_id, turns["Two"].thread_id]
    assert [result.text for result in results] == ["slow slow slow slow slow "] * 2


async def test_a_recorded_thread_is_resumed_read_listed_and_forked() -> None:
    asked = next(entry["line"] for entry in entries_of("app_resume_2") if "thread/resume" in entry["line"])
    resume = json.loads(asked)["params"]["threadId"]
    async with playing("app_resume_2", resume=resume) as (session, codex):
        assert session.thread_id == resume
        result = await (await session.send("Second")).result()
        assert (result.text, result.usage.total_tokens, result.thread_usage.total_tokens) == ("again", 107, 214)
        await session.request("thread/read", {"threadId": resume, "includeTurns": True})
        await session.request("thread/list")
        with pytest.raises(errors.ConfigurationError, match="there is no thread"):
            await session.resume_thread("00000000-0000-7000-8000-000000000000")
        branch = await session.fork()
        assert branch.data.forked_from_id == resume
    assert codex.heard[2]["params"] == {"threadId": resume, "excludeTurns": True}


async def test_a_recorded_prompt_over_the_limit_is_refused_with_the_same_error_on_both_sides() -> None:
    async with playing("app_large_lines") as (session, codex):
        with pytest.raises(errors.PromptTooLong, match="3,000,000") as here:
            await session.send("x" * 3_000_000)
        with pytest.raises(errors.PromptTooLong, match="3,000,000") as there:
            await session.request("turn/start", {"threadId": session.thread_id, "input": []})
        assert here.value.code == there.value.code == "result.prompt_too_long"
        assert isinstance(there.value.__cause__, errors.JSONRPCError)
        assert (await (await session.send("x" * 900_000)).result()).ok
    assert len(codex.heard) == 5  # initialize, initialized, thread/start, and two prompts


@pytest.mark.parametrize("name", ["app_eof_during_turn", "app_sigterm_during_turn"])
async def test_a_turn_that_codex_drops_raises_and_does_not_hang(name: str) -> None:
    async with playing(name, to_the_end=False) as (session, _):
        turn = await session.send("Count")
        with pytest.raises(errors.ConnectionLost, match="codex ended"):
            await turn.result()
        with pytest.raises(errors.ConnectionLost):
            [message async for message in turn]
        assert turn.text == "slow "
        assert await session.interrupt() is InterruptOutcome.DEAD
        report = await session.aclose()
    assert (report.interrupted_turns, report.lost_turns) == ((), (turn.turn_id,))


# Messages


async def test_messages_has_what_came_before_it_and_everything_after() -> None:
    async with connected() as (session, codex):
        await codex.say({"method": "configWarning", "params": {"summary": "early"}})
        turn_of: list[CodexTurn] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep, session.send, "Hi", turn_of)
            await codex.turn()
        messages = session.messages()
        await codex.complete()
        await codex.say({"method": "brand/new", "params": {"x": 1}})
        seen = [await anext(messages) for _ in range(4)]
        late = session.messages()  # a second reader has only what comes after it
        await codex.say({"method": "brand/new", "params": {"x": 2}})
        assert (await anext(late)).to_dict()["params"] == {"x": 2}
        await session.aclose(timeout=0.1)
        assert [message.type async for message in messages] == ["brand/new"]
    assert [message.type for message in seen] == ["configWarning", "turn/started", "turn/completed", "brand/new"]
    assert seen[3].to_dict() == {"method": "brand/new", "params": {"x": 1}}


async def keep(call: Callable[..., Awaitable[Any]], argument: Any, kept: list[Any]) -> None:
    kept.append(await call(argument))


async def begun(session: CodexSession, codex: Codex, prompt: Any = "Hi", turn: str = "U") -> CodexTurn:
    """Send a prompt, and have Codex take it."""
    kept: list[CodexTurn] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep, session.send, prompt, kept)
        await codex.turn(turn)
    return kept[0]


async def test_a_turn_that_comes_with_the_answer_to_its_prompt_has_its_messages_and_its_result() -> None:
    async with connected() as (session, codex):
        kept: list[CodexTurn] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep, session.send, "Hi", kept)
            request = await codex.hear()
            end = {"threadId": "T", "turn": {"id": "U", "status": "completed", "items": []}}
            begin = {"threadId": "T", "turn": {"id": "U", "status": "inProgress"}}
            text = {"threadId": "T", "turnId": "U", "itemId": "m", "delta": "Hello"}
            await codex.say(
                {"id": request["id"], "result": {"turn": {"id": "U"}}},
                {"method": "turn/started", "params": begin},
                {"method": "item/agentMessage/delta", "params": text},
                {"method": "turn/completed", "params": end},
            )
        result = await kept[0].result()
        assert (result.status, result.text) == ("completed", "Hello")
        seen = [message.type async for message in kept[0]]
        assert seen == ["turn/started", "item/agentMessage/delta", "turn/completed"]


async def test_a_turn_that_codex_begins_by_itself_in_an_open_thread_runs() -> None:
    async with connected() as (session, codex):
        await codex.tell("turn/started", turn={"id": "U", "status": "inProgress"})
        await anyio.wait_all_tasks_blocked()
        assert session.running_turns == ("U",)
        await codex.tell("turn/started", thread="of another", turn={"id": "V", "status": "inProgress"})
        await codex.complete()
        await anyio.wait_all_tasks_blocked()
        assert session.running_turns == ()


INPUTS = [{"type": "text", "text": "Look", "text_elements": []}, {"type": "localImage", "path": "/x.png"}]


async def test_the_fields_of_the_session_are_those_of_each_thread_and_its_own_win() -> None:
    async with connected(thread={"cwd": "/here", "model": "one"}) as (session, codex):
        assert codex.heard[-1]["params"] == {"cwd": "/here", "model": "one"}
        for method, call, params in (
            ("thread/start", functools.partial(session.start_thread, model="two"), {"cwd": "/here", "model": "two"}),
            (
                "thread/resume",
                functools.partial(session.resume_thread, "old", model="two"),
                {"threadId": "old", "excludeTurns": True, "cwd": "/here", "model": "two"},
            ),
            ("thread/fork", functools.partial(session.fork, model="two"), {"threadId": "T", "excludeTurns": True, "model": "two"}),
        ):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                assert (await codex.answer({"thread": {"id": "N"}}, method=method))["params"] == params


async def test_a_prompt_may_be_a_list_of_inputs_and_have_more_fields() -> None:
    async with connected() as (session, codex):
        kept: list[CodexTurn] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep, lambda inputs: session.send(inputs, effort="low"), INPUTS, kept)
            request = await codex.turn()
            assert request["params"] == {"threadId": "T", "input": INPUTS, "effort": "low"}


@pytest.mark.parametrize("content", [None, 7, b"bytes", ["text"], {"type": "text"}])
async def test_a_prompt_that_is_none_is_refused(content: Any) -> None:
    async with connected() as (session, _):
        with pytest.raises(errors.UsageError, match="a prompt is a text or a list of inputs"):
            await session.send(content)


# Approvals and tools

ASKED = {"threadId": "T", "turnId": "U", "itemId": "call_1", "command": "rm -r /", "cwd": "/"}
APPROVAL = {"id": 0, "method": "item/commandExecution/requestApproval", "params": ASKED}


async def a_cancellation() -> BaseException:
    """What a cancel scope has raised that is over."""
    caught: list[BaseException] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except BaseException as exc:
            caught.append(exc)
            raise
    return caught[0]


async def cancels_itself(_: ApprovalRequest) -> Any:
    raise await a_cancellation()


async def raises(_: ApprovalRequest) -> Any:
    raise ValueError("broken")


async def raises_a_group(_: ApprovalRequest) -> Any:
    async with anyio.create_task_group():
        raise ValueError("broken")


async def raises_a_group_with_a_cancellation(*_: Any) -> Any:
    raise BaseExceptionGroup("several", [ValueError("broken"), await a_cancellation()])


def answers_without_waiting(_: ApprovalRequest) -> Any:
    return "accept"


def returning(value: Any) -> Callable[[ApprovalRequest], Awaitable[Any]]:
    async def on_approval(_: ApprovalRequest) -> Any:
        return value

    return on_approval


WORDS = "not one of accept, accept_for_session, decline, cancel"
FAILING: dict[str, tuple[Any, str]] = {
    "it raises": (raises, "on_approval failed (ValueError)"),
    "it raises a group": (raises_a_group, "on_approval failed (ExceptionGroup)"),
    "it raises a group with a cancellation": (raises_a_group_with_a_cancellation, "on_approval failed (ExceptionGroup)"),
    "it cancels itself": (cancels_itself, "on_approval failed (StrayCancellation)"),
    "it is not async": (answers_without_waiting, "on_approval failed (TypeError)"),
    "it returns nothing": (returning(None), f"on_approval failed: it returned None, {WORDS}"),
    "it returns True": (returning(True), f"on_approval failed: it returned True, {WORDS}"),
    "it returns an unknown word": (returning("yes"), f"on_approval failed: it returned 'yes', {WORDS}"),
    "it returns the word of the wire": (returning("acceptForSession"), f"on_approval failed: it returned 'acceptForSession', {WORDS}"),
    "it returns a list": (returning(["accept"]), f"on_approval failed: it returned ['accept'], {WORDS}"),
}


@pytest.mark.parametrize("name", FAILING)
async def test_a_callback_that_fails_declines(name: str, caplog: pytest.LogCaptureFixture) -> None:
    on_approval, told = FAILING[name]
    async with connected(on_approval=on_approval) as (session, codex):
        await codex.say(APPROVAL)
        assert await codex.hear() == {"id": 0, "result": {"decision": "decline"}}
        assert session.failed_callbacks == 1
    assert [record.getMessage().partition("\n")[0] for record in caplog.records] == [told]


async def test_without_a_callback_everything_is_declined() -> None:
    async with connected() as (session, codex):
        await codex.say(APPROVAL)
        assert await codex.hear() == {"id": 0, "result": {"decision": "decline"}}
        assert session.failed_callbacks == 0


@pytest.mark.parametrize(
    ("decision", "wire"),
    [("accept", "accept"), ("accept_for_session", "acceptForSession"), ("decline", "decline"), ("cancel", "cancel")],
)
async def test_each_decision_has_its_word_on_the_wire(decision: str, wire: str) -> None:
    async with connected(on_approval=returning(decision)) as (_, codex):
        await codex.say(APPROVAL)
        assert await codex.hear() == {"id": 0, "result": {"decision": wire}}


async def test_a_question_that_became_moot_cancels_its_callback() -> None:
    asked, cancelled = anyio.Event(), anyio.Event()

    async def on_approval(_: ApprovalRequest) -> Any:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with connected(on_approval=on_approval) as (session, codex):
        await codex.say(APPROVAL)
        await asked.wait()
        assert [request.item_id for request in session.pending_approvals] == ["call_1"]
        await codex.tell("serverRequest/resolved", requestId=0)
        await cancelled.wait()
        assert await codex.hear() == {"id": 0, "result": {"decision": "decline"}}
        assert session.pending_approvals == ()


async def test_a_callback_may_close_the_session() -> None:
    sessions: list[CodexSession] = []

    async def on_approval(_: ApprovalRequest) -> Any:
        await sessions[0].aclose(timeout=0.05)
        return "accept"

    async with connected(on_approval=on_approval) as (session, codex):
        sessions.append(session)
        await codex.say(APPROVAL)
        await session.aclose(timeout=0.05)


OTHERS = [
    "item/permissions/requestApproval",
    "item/tool/requestUserInput",
    "mcpServer/elicitation/request",
    "account/chatgptAuthTokens/refresh",
    "item/tool/call",
    "brand/new",
]


@pytest.mark.parametrize("method", OTHERS)
async def test_other_requests_are_refused_and_logged_once(method: str, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(on_approval=returning("accept")) as (_, codex):
        for number in (0, 1):
            await codex.say({"id": number, "method": method, "params": {"threadId": "T"}})
            refusal = await codex.hear()
            assert refusal["id"] == number
            assert refusal["error"]["code"] == -32601
    assert caplog.text.count(method) == 1


async def test_a_method_that_would_write_on_the_terminal_is_shown_harmless_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    method = "brand/new\x1b[2J\nand a line of its own"
    async with connected() as (_, codex):
        await codex.say({"id": 0, "method": method, "params": {}})
        assert (await codex.hear())["error"]["code"] == -32601
    (record,) = caplog.records
    shown = r"brand/new\x1b[2J\nand a line of its own"
    assert record.getMessage() == f"codex asked for {shown}, which this program does not answer: refused"


async def fails(_: dict[str, Any], __: Any) -> Any:
    raise ValueError("no such number")


def giving(value: Any) -> Callable[[dict[str, Any], Any], Awaitable[Any]]:
    async def call(_: dict[str, Any], __: Any) -> Any:
        return value

    return call


PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
TOOL_RESULTS: dict[str, tuple[Any, bool, list[dict[str, Any]]]] = {
    "text": (giving("3"), True, [{"type": "inputText", "text": "3"}]),
    "nothing": (giving(None), True, []),
    "a mapping": (giving({"sum": 3}), True, [{"type": "inputText", "text": '{"sum": 3}'}]),
    "blocks of MCP": (
        giving([{"type": "text", "text": "3"}, PICTURE]),
        True,
        [{"type": "inputText", "text": "3"}, {"type": "inputImage", "imageUrl": "data:image/png;base64,AAAA"}],
    ),
    "blocks of Codex": (giving([{"type": "inputText", "text": "3"}]), True, [{"type": "inputText", "text": "3"}]),
    "it raises": (fails, False, [{"type": "inputText", "text": "no such number"}]),
}


@pytest.mark.parametrize("name", TOOL_RESULTS)
async def test_what_a_tool_returns_is_given_to_the_model(name: str) -> None:
    call, success, content = TOOL_RESULTS[name]
    async with connected(tools=[tool(call)]) as (_, codex):
        await codex.say({"id": 0, "method": "item/tool/call", "params": called()})
        assert await codex.hear() == {"id": 0, "result": {"success": success, "contentItems": content}}


def called(**fields: Any) -> dict[str, Any]:
    return {"threadId": "T", "turnId": "U", "callId": "c", "namespace": None, "tool": "add", "arguments": {"a": 1, "b": 2}} | fields


WRONG_CALLS = [
    (called(tool="subtract"), "there is no tool 'subtract'"),
    (called(namespace="other"), "there is no tool"),
    (called(arguments={"a": 1}), "add needs b"),
    (called(arguments=[1, 2]), "must be an object"),
]


@pytest.mark.parametrize(("params", "why"), WRONG_CALLS)
async def test_a_wrong_call_of_a_tool_fails_and_says_why(params: dict[str, Any], why: str) -> None:
    async with connected(tools=[tool(add)]) as (_, codex):
        await codex.say({"id": 0, "method": "item/tool/call", "params": params})
        result = (await codex.hear())["result"]
        assert result["success"] is False
        assert why in result["contentItems"][0]["text"]


async def test_a_tool_that_raises_a_group_with_a_cancellation_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    async with connected(tools=[tool(raises_a_group_with_a_cancellation)]) as (session, codex):
        await codex.say({"id": 0, "method": "item/tool/call", "params": called()})
        why = [{"type": "inputText", "text": "several (1 sub-exception)"}]
        assert await codex.hear() == {"id": 0, "result": {"success": False, "contentItems": why}}
        assert session.failed_callbacks == 1
    assert [record.getMessage().partition("\n")[0] for record in caplog.records] == ["the tool 'add' failed (ExceptionGroup)"]


ANYTHING_ELSE = "return a text, a mapping, content blocks or None"
UNSENDABLE: list[tuple[Any, str]] = [
    (7, f"a tool returned int: {ANYTHING_ELSE}"),
    (object(), f"a tool returned object: {ANYTHING_ELSE}"),
    ([1], f"a tool returned list: {ANYTHING_ELSE}"),
    ([{"type": "resource"}], "a tool returned a content block of type 'resource': Codex takes text, image and audio"),
]


@pytest.mark.parametrize(("value", "why"), UNSENDABLE)
async def test_a_tool_that_returns_what_codex_cannot_take_has_failed(value: Any, why: str, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(tools=[tool(giving(value))]) as (session, codex):
        await codex.say({"id": 0, "method": "item/tool/call", "params": called()})
        assert await codex.hear() == {"id": 0, "result": {"success": False, "contentItems": [{"type": "inputText", "text": why}]}}
        assert session.failed_callbacks == 1
    assert caplog.records[0].getMessage().startswith("the tool 'add' failed (TypeError)\n")


async def test_the_name_of_a_tool_and_of_a_method_that_are_too_long_are_cut_in_the_answer() -> None:
    async with connected(tools=[tool(add)]) as (_, codex):
        await codex.say({"id": 0, "method": "item/tool/call", "params": called(tool="x" * 5000)})
        assert (await codex.hear())["result"]["contentItems"][0]["text"] == f"there is no tool '{'x' * 128}'"
        await codex.say({"id": 1, "method": "y" * 5000, "params": {}})
        assert await codex.hear() == {"id": 1, "error": {"code": -32601, "message": f"this host does not answer {'y' * 200}"}}


async def test_questions_that_are_answered_leave_nothing_behind() -> None:
    def scopes() -> int:
        gc.collect()
        return sum(isinstance(each, anyio.CancelScope) for each in gc.get_objects())

    async with connected(tools=[tool(add)]) as (_, codex):
        before = scopes()
        for number in range(50):
            await codex.say({"id": number, "method": "item/tool/call", "params": called()})
            assert (await codex.hear())["result"]["success"] is True
        assert scopes() < before + 10


# Interrupts that come before the turn has begun


async def send_one(session: CodexSession, codex: Codex) -> CodexTurn:
    """Send a prompt to a Codex that has named its turn and not begun it. It refuses an interrupt then."""
    turns: list[CodexTurn] = []

    async def send() -> None:
        turns.append(await session.send("hello"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await codex.answer({"turn": {"id": "U"}}, method="turn/start")
    return turns[0]


async def refuse_an_interrupt(codex: Codex) -> None:
    request = await codex.hear()
    assert request["method"] == "turn/interrupt"
    await codex.say({"id": request["id"], "error": {"code": -32600, "message": "no active turn to interrupt"}})


async def test_an_interrupt_that_comes_before_the_turn_has_begun_is_asked_for_again() -> None:
    async with connected() as (session, codex):
        turn = await send_one(session, codex)

        async def play() -> None:
            await refuse_an_interrupt(codex)
            await codex.tell("turn/started", turn={"id": "U", "status": "inProgress"})
            await codex.until_the_end_of_input()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            assert await session.interrupt() is InterruptOutcome.ACKNOWLEDGED
            assert (await turn.result()).status == "interrupted"
            await session.aclose()


async def test_an_interrupt_of_a_turn_that_never_begins_gives_up_in_time() -> None:
    async with connected() as (session, codex):
        await send_one(session, codex)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refuse_an_interrupt, codex)
            assert await session.interrupt(timeout=0.05) is InterruptOutcome.TIMED_OUT


async def test_an_interrupt_that_is_refused_while_the_turn_runs_is_not_asked_for_again() -> None:
    async with connected() as (session, codex):
        await begun(session, codex)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refuse_an_interrupt, codex)
            assert await session.interrupt() is InterruptOutcome.NOT_RUNNING


@virtual_time
@pytest.mark.parametrize(("answers", "outcome"), [(True, InterruptOutcome.ACKNOWLEDGED), (False, InterruptOutcome.TIMED_OUT)])
async def test_an_interrupt_waits_as_long_as_its_own_timeout_says_and_not_as_other_requests(
    answers: bool, outcome: InterruptOutcome
) -> None:
    async with connected(timeout=1.0) as (session, codex):
        await begun(session, codex)
        began = anyio.current_time()

        async def play() -> None:
            request = await codex.hear()
            await anyio.sleep(10)
            if answers:
                await codex.say({"id": request["id"], "result": {}})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            found = await session.interrupt(timeout=20)
            assert (found, round(anyio.current_time() - began, 3)) == (outcome, 10 if answers else 20)


async def die(codex: Codex) -> None:
    await codex.stream.aclose()


async def die_when_asked(codex: Codex) -> None:
    assert (await codex.hear())["method"] == "turn/interrupt"
    await codex.stream.aclose()


async def refuse_and_die(codex: Codex) -> None:
    """Die after the refusal of an interrupt that comes too early, when the session waits for the first message of the turn."""
    await refuse_an_interrupt(codex)
    await anyio.wait_all_tasks_blocked()
    await codex.stream.aclose()


@virtual_time
@pytest.mark.parametrize("death", [die, die_when_asked, refuse_and_die])
async def test_an_interrupt_of_a_dead_codex_says_so_at_once(death: Callable[[Codex], Coroutine[Any, Any, None]]) -> None:
    async with connected() as (session, codex):
        turn = await send_one(session, codex)
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(death, codex)
            assert await session.interrupt(timeout=20) is InterruptOutcome.DEAD
        with pytest.raises(errors.ConnectionLost):
            await turn.result()
        assert await session.interrupt(timeout=20) is InterruptOutcome.DEAD
        assert anyio.current_time() - began < 0.5


async def test_an_interrupt_of_a_dead_codex_without_a_turn_says_that_it_is_dead() -> None:
    async with connected() as (session, codex):
        assert await session.interrupt() is InterruptOutcome.NOT_RUNNING
        await codex.stream.aclose()
        await anyio.wait_all_tasks_blocked()
        assert await session.interrupt() is InterruptOutcome.DEAD


# Closing


async def test_closing_interrupts_the_running_turn_before_the_input_ends() -> None:
    async with connected() as (session, codex):
        turn = await begun(session, codex)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(codex.until_the_end_of_input)
            report = await session.aclose()
            assert (report.interrupted_turns, report.lost_turns, report.ended_by_itself) == (("U",), (), True)
        result = await turn.result()
    assert codex.heard[-1] == {"id": 4, "method": "turn/interrupt", "params": {"threadId": "T", "turnId": "U"}}
    assert result.status == "interrupted"


async def test_closing_lets_an_interrupted_turn_end_before_the_input_ends() -> None:
    """Codex drops a running turn when its input ends."""
    order: list[str] = []

    async def listen() -> None:
        await codex.until_the_end_of_input()
        order.append("end of input")

    async with connected() as (session, codex):
        turn = await begun(session, codex)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.aclose)
            await codex.answer({}, method="turn/interrupt")
            tasks.start_soon(listen)
            await anyio.wait_all_tasks_blocked()
            order.append("end of turn")
            await codex.complete(status="interrupted")
        assert (order, (await turn.result()).status) == (["end of turn", "end of input"], "interrupted")


async def test_closing_does_not_wait_for_a_codex_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (session, codex):
        turn = await begun(session, codex)
        report = await session.aclose(timeout=0.05)
        with pytest.raises(errors.MissingResult, match="closed"):
            await turn.result()
        with pytest.raises(errors.MissingResult):
            [message async for message in turn if message.type == "turn/completed"]
    assert (report.interrupted_turns, report.lost_turns, report.ended_by_itself) == (("U",), ("U",), False)
    assert "while a turn was running: U" in caplog.text


@virtual_time
@pytest.mark.parametrize(("error", "level"), [(errors.ConnectionLost("it is gone"), "DEBUG"), (OSError("it is broken"), "ERROR")])
async def test_an_input_that_cannot_be_ended_is_logged_and_the_transport_is_closed_at_once(
    error: Exception, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(StreamTransport):
        async def end_input(self) -> None:
            raise error

    connectable = MemoryConnectable(capacity=2**20)
    transport = Refusing(connectable)
    session = CodexSession(transport)
    with anyio.fail_after(PATIENCE), caplog.at_level("DEBUG", "claude_transport.codex.session"):
        async with anyio.create_task_group() as tasks:

            async def part() -> None:
                await Codex(await connectable.accept()).begin()

            tasks.start_soon(part)
            await session.start()
        began = anyio.current_time()
        report = await session.aclose()
        took = anyio.current_time() - began
    assert (report.ended_by_itself, transport.is_ready(), round(took, 3)) == (False, False, 0)
    logged = [(record.levelname, record.getMessage(), record.exc_info and record.exc_info[1]) for record in caplog.records]
    assert logged == [(level, "the input of codex could not be ended", error)]


async def test_a_cancelled_close_still_closes() -> None:
    connectable = MemoryConnectable(capacity=2**20)
    transport = StreamTransport(connectable)
    session = CodexSession(transport)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:

            async def part() -> None:
                await Codex(await connectable.accept()).begin()

            tasks.start_soon(part)
            await session.start()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.aclose(timeout=0.05)
    assert not transport.is_ready()


async def test_a_closed_session_says_so() -> None:
    async with connected() as (session, codex):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(codex.until_the_end_of_input)
            report = await session.aclose()
            assert report == await session.aclose()
        for call in (lambda: session.send("Hi"), lambda: session.request("model/list"), session.start_thread, session.fork):
            with pytest.raises(errors.TransportClosed):
                await call()
        assert await session.interrupt() is InterruptOutcome.DEAD
        with pytest.raises(errors.UsageError):
            await session.start()


async def test_a_session_that_was_not_started_says_so() -> None:
    session = CodexSession(MockTransport())
    with pytest.raises(errors.NotConnected):
        await session.send("Hi")
    with pytest.raises(errors.NotConnected):
        assert session.thread_id
    assert (await session.aclose()).interrupted_turns == ()


WRONG_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"on_approval": "accept"}, "on_approval"),
    ({"tools": "add"}, "tools"),
    ({"tools": [add]}, "tools"),
    ({"tools": [tool(add), tool(add)]}, "tools"),
    ({"resume": 7}, "resume"),
    ({"resume": ""}, "resume"),
    ({"thread": [1]}, "thread"),
    ({"timeout": 0}, "timeout"),
    ({"initialize_timeout": "soon"}, "initialize_timeout"),
    ({"close_timeout": -1}, "close_timeout"),
    ({"max_buffered_bytes": -1}, "max_buffered_bytes"),
]


@pytest.mark.parametrize("kind", [CodexSession, SyncCodexSession])
@pytest.mark.parametrize(("arguments", "option"), WRONG_ARGUMENTS)
def test_an_argument_that_cannot_work_is_refused_at_once(kind: Any, arguments: dict[str, Any], option: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        kind(MockTransport(), **arguments)
    assert caught.value.option == option


# A Codex that misbehaves


async def start_with(part: Callable[[Codex], Awaitable[None]], **arguments: Any) -> errors.ClaudeTransportError:
    """Start a session with a Codex that plays a part, which must fail. Returns the error; nothing is left open."""
    connectable = MemoryConnectable(capacity=2**16)
    transport = StreamTransport(connectable)

    async def act() -> None:
        await part(Codex(await connectable.accept()))

    failures: list[errors.ClaudeTransportError] = []
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(act)
            try:
                await CodexSession(transport, **arguments).start()
            except errors.ClaudeTransportError as exc:
                failures.append(exc)
            tasks.cancel_scope.cancel()
    assert not transport.is_ready()
    return failures[0]


async def hangs_up(codex: Codex) -> None:
    await codex.hear()
    await codex.stream.aclose()


async def opens_no_thread(codex: Codex) -> None:
    await codex.answer({}, method="initialize")
    await anyio.sleep_forever()


async def says_nothing(_: Codex) -> None:
    await anyio.sleep_forever()


async def refuses(codex: Codex) -> None:
    request = await codex.hear()
    await codex.say({"id": request["id"], "error": {"code": -32600, "message": "Not today"}})


async def names_no_thread(codex: Codex) -> None:
    await codex.answer({}, method="initialize")
    await codex.hear()
    await codex.answer({"thread": {"id": 7}}, method="thread/start")


async def describes_a_thread_that_cannot_be_read(codex: Codex) -> None:
    await codex.answer({}, method="initialize")
    await codex.hear()
    await codex.answer({"thread": {"id": "T", "turns": [{"id": 7, "status": 3}] * 2000}}, method="thread/start")


async def says_a_lone_line(codex: Codex) -> None:
    await codex.say(b"hello")
    await codex.hear()
    await codex.stream.aclose()


MISBEHAVING: dict[str, tuple[Callable[[Codex], Awaitable[None]], type[Exception]]] = {
    "it hangs up": (hangs_up, errors.ConnectionLost),
    "it says nothing": (says_nothing, errors.ConnectTimeout),
    "it refuses": (refuses, errors.JSONRPCError),
    "it names no thread": (names_no_thread, errors.ProtocolError),
    "it describes a thread that cannot be read": (describes_a_thread_that_cannot_be_read, errors.ProtocolError),
    "it says a lone line": (says_a_lone_line, errors.ConnectionLost),
}


@pytest.mark.parametrize("name", MISBEHAVING)
async def test_a_codex_that_cannot_be_started_is_a_typed_error_and_nothing_is_left(name: str) -> None:
    part, kind = MISBEHAVING[name]
    patience = 0.2 if part is says_nothing else PATIENCE
    assert isinstance(await start_with(part, initialize_timeout=patience), kind)


@virtual_time
@pytest.mark.parametrize(
    ("part", "method"), [(says_nothing, "initialize"), (opens_no_thread, "thread/start"), (opens_no_thread, "thread/resume")]
)
async def test_each_answer_of_the_start_has_to_come_in_time(part: Any, method: str) -> None:
    began = anyio.current_time()
    resume = "T" if method == "thread/resume" else None
    error = await start_with(part, initialize_timeout=3.0, timeout=20.0, resume=resume)
    assert isinstance(error, errors.ConnectTimeout)
    assert (str(error.args[0]).split(" in ")[0], error.waited) == (f"codex did not answer {method}", 3.0)
    assert round(anyio.current_time() - began, 3) == 3.0


SCRIPTS = {
    "a lone line": ("print('hello')", errors.ConnectionLost),
    "a failure": ("import sys; print('it broke', file=sys.stderr); sys.exit(3)", errors.ProcessError),
    "a half line": ("print('{', end='')", errors.TruncatedStream),
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_program_that_is_no_codex_is_a_typed_error(name: str) -> None:
    script, kind = SCRIPTS[name]
    transport = SubprocessTransport(command=[sys.executable, "-c", script])
    with anyio.fail_after(PATIENCE), pytest.raises(kind) as caught:
        await CodexSession(transport).start()
    assert not transport.is_ready()
    if isinstance(caught.value, errors.ProcessError):
        assert caught.value.exit_code == transport.info.exit_code
        assert caught.value.stderr_tail == transport.info.stderr_tail


async def test_lines_that_hold_no_message_cost_nothing_but_themselves() -> None:
    async with connected() as (session, codex):
        turn = await begun(session, codex)
        await codex.say(b"a lone line", b"[1, 2]", b"", b'{"id": 99, "result": {}}', b'{"method": 7}')
        await codex.tell("item/agentMessage/delta", turnId="U", itemId="m", delta="Hello")
        await codex.say(b'{"method": "item/agentMessage/delta", "params": [1]}', b'{"method": "turn/completed"}')
        await codex.complete()
        assert (await turn.result()).text == "Hello"


async def test_a_prompt_into_a_full_pipe_times_out_and_the_session_closes() -> None:
    async with acting(Codex.begin, capacity=2**14, timeout=0.2) as (session, _):
        with pytest.raises(errors.ControlTimeout, match="turn/start"):
            await session.send("x" * 1_000_000)
        report = await session.aclose(timeout=0.05)
    assert not report.ended_by_itself


DIES_WHEN_ASKED = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "model/list":
        sys.exit("it broke")
    if "id" in message:
        print(json.dumps({"id": message["id"], "result": {"thread": {"id": "T"}}}), flush=True)
"""


async def test_a_request_that_a_process_dies_of_says_how_it_ended() -> None:
    transport = SubprocessTransport(command=[sys.executable, "-c", DIES_WHEN_ASKED])
    with anyio.fail_after(PATIENCE):
        async with CodexSession(transport) as session:
            with pytest.raises(errors.ProcessError) as caught:
                await session.request("model/list")
    assert (caught.value.exit_code, caught.value.signal, caught.value.stderr_tail.strip()) == (1, None, "it broke")


@virtual_time
async def test_a_request_that_cannot_be_written_fails_at_once_with_the_cause() -> None:
    """The peer is not gone, so nothing is waited for that would say how it ended."""

    class Refusing(StreamTransport):
        async def write(self, data: str | bytes) -> None:
            if "model/list" in str(data):
                raise ValueError("it is broken")
            await super().write(data)

    connectable = MemoryConnectable(capacity=2**20)
    session = CodexSession(Refusing(connectable))
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:

            async def part() -> None:
                await Codex(await connectable.accept()).begin()

            tasks.start_soon(part)
            await session.start()
        began = anyio.current_time()
        with pytest.raises(errors.ConnectionLost) as caught:
            await session.request("model/list")
        took = round(anyio.current_time() - began, 3)
        await session.aclose(timeout=0.05)
    assert (caught.value.code, type(caught.value.__cause__), took) == ("transport.failed", ValueError, 0)


@virtual_time
@pytest.mark.parametrize(("own", "seconds"), [(None, 7.0), (3.0, 3.0), (20.0, 20.0)])
async def test_a_request_has_the_time_of_the_session_or_its_own(own: float | None, seconds: float) -> None:
    async with connected(timeout=7.0) as (session, _):
        began = anyio.current_time()
        with pytest.raises(errors.ControlTimeout) as caught:
            await session.request("model/list", timeout=own)
        took = round(anyio.current_time() - began, 3)
    assert (caught.value.subtype, caught.value.waited, took) == ("model/list", seconds, seconds)


async def test_a_prompt_that_is_refused_leaves_the_thread_as_it_was() -> None:
    async with connected() as (session, codex):
        kept: list[errors.JSONRPCError] = []

        async def send() -> None:
            with pytest.raises(errors.JSONRPCError, match="not now") as caught:
                await session.send("Hi")
            kept.append(caught.value)
            assert caught.value.__cause__ is None

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            request = await codex.hear()
            await codex.say({"id": request["id"], "error": {"code": -32600, "message": "not now"}})
        assert session.running_turns == ()
        turn = await begun(session, codex)
        await codex.complete()
        assert (await turn.result()).ok


# Messages that nothing reads


async def flood(codex: Codex, count: int, sent: list[int] | None = None) -> None:
    for number in range(count):
        await codex.tell("item/agentMessage/delta", turnId="U", itemId="m", delta=f"{number} ")
        if sent is not None:
            sent.append(number)
    await codex.complete()


async def test_a_slow_reader_slows_codex_down_and_gets_everything() -> None:
    async with acting(Codex.begin, capacity=2**12, max_buffered_bytes=100_000) as (session, codex):
        turn = await begun(session, codex)
        async with anyio.create_task_group() as tasks:
            sent: list[int] = []
            tasks.start_soon(flood, codex, 5000, sent)
            await anyio.wait_all_tasks_blocked()
            assert 0 < len(sent) < 1000  # nothing is taken, so Codex has to wait
            deltas = [message.delta async for message in turn if isinstance(message, AgentMessageDelta)]
            assert deltas == [f"{number} " for number in range(5000)]
        assert session.dropped_messages == 0
        await session.aclose(timeout=0.05)


@pytest.mark.parametrize("wait", ["result", "message", "two results"])
async def test_a_wait_that_has_timed_out_lets_reading_pause_again_and_nothing_is_dropped(wait: str) -> None:
    """While a result is waited for, unread messages are given up. A wait that is over does not count any more."""
    async with acting(Codex.begin, capacity=2**12, max_buffered_bytes=100_000) as (session, codex):
        turn = await begun(session, codex)
        if wait == "message":  # what has come already
            assert (await anext(turn)).type == "turn/started"
        for _ in range(2 if wait == "two results" else 1):
            with pytest.raises(TimeoutError), anyio.fail_after(0.01):
                await (anext(turn) if wait == "message" else turn.result())
        async with anyio.create_task_group() as tasks:
            sent: list[int] = []
            tasks.start_soon(flood, codex, 5000, sent)
            await anyio.wait_all_tasks_blocked()
            assert 0 < len(sent) < 1000  # nothing is waited for, so Codex has to wait
            deltas = [message.delta async for message in turn if isinstance(message, AgentMessageDelta)]
            assert (deltas, session.dropped_messages) == ([f"{number} " for number in range(5000)], 0)
        await session.aclose(timeout=0.05)


async def test_what_nothing_reads_is_bounded_while_the_result_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async with acting(Codex.begin, capacity=2**12, max_buffered_bytes=100_000) as (session, codex):
        turn = await begun(session, codex)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood, codex, 5000)
            result = await turn.result()
            assert result.text == "".join(f"{number} " for number in range(5000))
        assert session.buffered_bytes <= 100_000
        rest: list[CodexNotification] = [message async for message in turn]
        assert isinstance(rest[-1], TurnCompleted)
        assert session.dropped_messages + len(rest) == 5002
        await session.aclose(timeout=0.05)
    assert "dropped_messages" in caplog.text


async def test_a_handle_that_is_dropped_keeps_nothing() -> None:
    async with acting(Codex.begin, max_buffered_bytes=50_000) as (session, codex):
        await begun(session, codex)
        await flood(codex, 1000)
        turn = await begun(session, codex, turn="V")
        await codex.complete("V")
        assert (await turn.result()).ok
        assert session.dropped_messages == 0
        await session.aclose(timeout=0.05)


@pytest.mark.parametrize("level", [logging.WARNING])
async def test_the_log_of_a_good_conversation_is_empty(level: int, caplog: pytest.LogCaptureFixture) -> None:
    async with playing("app_text") as (session, _):
        for prompt in ("Say hello", "And again"):
            await (await session.send(prompt)).result()
    assert [record for record in caplog.records if record.levelno >= level] == []


# Other transports


async def test_a_session_runs_over_a_mock() -> None:
    mock = MockTransport.script()
    mock.expect(method="initialize").reply({"id": 1, "result": {"userAgent": "mock"}})
    mock.expect(method="initialized")
    mock.expect(method="thread/start").reply({"id": 2, "result": {"thread": {"id": "T"}}})
    begin = {"method": "turn/started", "params": {"threadId": "T", "turn": {"id": "U", "status": "inProgress"}}}
    item = {"type": "agentMessage", "id": "m", "text": "Hello"}
    said = {"method": "item/completed", "params": {"threadId": "T", "turnId": "U", "item": item}}
    end = {"method": "turn/completed", "params": {"threadId": "T", "turn": {"id": "U", "status": "completed", "items": []}}}
    mock.expect(method="turn/start").reply({"id": 3, "result": {"turn": {"id": "U"}}}, begin, said, end)
    with anyio.fail_after(PATIENCE):
        async with CodexSession(mock) as session:
            result = await (await session.send("Hi")).result()
    assert (result.status, result.text) == ("completed", "Hello")
    mock.assert_exhausted()


# Cancellation


async def test_a_cancelled_prompt_leaves_a_session_that_works() -> None:
    async with connected() as (session, codex):
        asked: list[dict[str, Any]] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.send, "Never mind")
            asked.append(await codex.hear())
            tasks.cancel_scope.cancel()
        await codex.say({"id": asked[0]["id"], "result": {"turn": {"id": "lost"}}})  # too late
        await codex.tell("turn/started", turn={"id": "lost", "status": "inProgress"})
        await codex.complete("lost")
        turn = await begun(session, codex)
        await codex.complete()
        assert (await turn.result()).ok
        assert session.running_turns == ()
        assert session.buffered_bytes < 10_000


async def test_a_cancelled_wait_for_a_result_leaves_the_turn_as_it_was() -> None:
    async with connected() as (session, codex):
        turn = await begun(session, codex)
        for wait in (turn.result, turn.__anext__, turn.__anext__):
            with anyio.move_on_after(0):
                await wait()
        await codex.tell("item/agentMessage/delta", turnId="U", itemId="m", delta="Hello")
        await codex.complete()
        assert (await turn.result()).text == "Hello"
        assert [message.type async for message in turn][-1] == "turn/completed"


async def test_a_cancelled_start_leaves_nothing_open() -> None:
    connectable = MemoryConnectable(capacity=2**16)
    transport = StreamTransport(connectable)
    stage: list[Codex] = []
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(CodexSession(transport).start)
            stage.append(Codex(await connectable.accept()))
            await stage[0].hear()
            tasks.cancel_scope.cancel()
    assert not transport.is_ready()
    with pytest.raises(anyio.EndOfStream):
        await stage[0].hear()


# A process


async def test_a_policy_that_only_a_thread_may_have_reaches_it_through_wrappers() -> None:
    with FakeCodex(CodexScenario.text("Hello")) as fake:
        options = CodexOptions(codex_path=fake.path, approval_policy="untrusted")
        with anyio.fail_after(PATIENCE):
            async with CodexSession(LoggingTransport(SubprocessTransport(options))) as session:
                assert (await (await session.send("Hi")).result()).text == "Hello"
                await session.fork()
            async with CodexSession(SubprocessTransport(options), resume=session.thread_id, thread={"approvalPolicy": "never"}):
                pass
        first, second = fake.calls()
    assert first.requests("thread/start") == [{"approvalPolicy": "untrusted"}]
    assert first.requests("thread/fork") == [{"threadId": session.thread_id, "excludeTurns": True, "approvalPolicy": "untrusted"}]
    assert second.requests("thread/resume") == [{"threadId": session.thread_id, "excludeTurns": True, "approvalPolicy": "never"}]
    assert not any("approval_policy" in argument for argument in first.argv)


@pytest.mark.parametrize("how", ["exit", "signal"])
async def test_a_process_that_dies_in_a_turn_is_told_with_its_last_words(how: str) -> None:
    end = Exit(3) if how == "exit" else DieBySignal("SIGKILL")
    scenario = CodexScenario.turns([[Say("Hello"), Stderr("it broke"), end]])
    with FakeCodex(scenario) as fake, anyio.fail_after(PATIENCE):
        async with CodexSession(SubprocessTransport(CodexOptions(codex_path=fake.path))) as session:
            turn = await session.send("Hi")
            with pytest.raises(errors.ProcessError) as caught:
                await turn.result()
            assert turn.text == "Hello"
    assert (caught.value.exit_code, caught.value.signal) == ((3, None) if how == "exit" else (None, signal.SIGKILL))
    assert "it broke" in caught.value.stderr_tail


@virtual_time
@pytest.mark.parametrize(("close_timeout", "seconds"), [(None, 0.6), (3.0, 1.8)])
async def test_a_close_in_haste_gives_a_codex_that_never_ends_a_part_of_the_time_for_closing(
    close_timeout: float | None, seconds: float
) -> None:
    """60 %, half of it for the interrupt; the rest is for its process. Without haste it has 5 seconds for each."""
    async with acting(Codex.begin, close_timeout=close_timeout) as (session, codex):
        await begun(session, codex)
        began = anyio.current_time()
        report = await session.aclose(hurry=True)
        took = round(anyio.current_time() - began, 3)
    assert (took, report.interrupted_turns, report.lost_turns, report.ended_by_itself) == (seconds, ("U",), ("U",), False)


@virtual_time
async def test_a_close_in_haste_with_less_time_than_haste_takes_that_time() -> None:
    async with acting(Codex.begin) as (session, codex):
        await begun(session, codex)
        began = anyio.current_time()
        await session.aclose(timeout=0.2, hurry=True)
        assert round(anyio.current_time() - began, 3) == 0.2


@virtual_time
@pytest.mark.parametrize(("timeout", "seconds"), [(0.5, 1.0), (0.6, 1.2), (1.0, 1.2), (5.0, 1.2)])
async def test_each_step_of_a_close_takes_its_timeout_and_all_of_them_a_part_of_the_time_for_closing(
    timeout: float, seconds: float
) -> None:
    async with acting(Codex.begin, close_timeout=2.0) as (session, codex):
        await begun(session, codex)
        began = anyio.current_time()
        await session.aclose(timeout=timeout)
        assert round(anyio.current_time() - began, 3) == seconds


@virtual_time
async def test_a_codex_that_answers_no_interrupt_has_time_to_end_with_its_input_in_haste() -> None:
    async def part(codex: Codex) -> None:
        await codex.begin()
        await codex.turn()
        with pytest.raises(anyio.EndOfStream):
            while True:
                await codex.hear()
        await anyio.sleep(0.2)
        await codex.stream.aclose()

    async with acting(part) as (session, _):
        await session.send("Hello")
        began = anyio.current_time()
        report = await session.aclose(hurry=True)
        assert (report.ended_by_itself, round(anyio.current_time() - began, 3)) == (True, 0.5)


@virtual_time
async def test_a_second_close_in_haste_does_not_give_more_time_than_the_first() -> None:
    async with acting(Codex.begin) as (session, codex):
        await begun(session, codex)
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(functools.partial(session.aclose, hurry=True))
                await anyio.sleep(0.2)
        assert round(anyio.current_time() - began, 3) == 0.6


@virtual_time
@pytest.mark.parametrize(("close_timeout", "seconds"), [(None, 10.0), (2.0, 1.2)])
async def test_leaving_the_block_gives_a_codex_that_never_ends_five_seconds_for_each_step(
    close_timeout: float | None, seconds: float
) -> None:
    began: list[float] = []

    async def turn(codex: Codex) -> None:
        await codex.begin()
        await codex.turn()
        await anyio.sleep_forever()

    connectable = MemoryConnectable(capacity=2**20)

    async def act() -> None:
        await turn(Codex(await connectable.accept()))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(act)
            async with CodexSession(StreamTransport(connectable), close_timeout=close_timeout) as session:
                await session.send("Hello")
                began.append(anyio.current_time())
            assert round(anyio.current_time() - began[0], 3) == seconds
            tasks.cancel_scope.cancel()


@virtual_time
@pytest.mark.parametrize(("after", "seconds"), [(1.0, 0.6), (6.0, 0.6), (9.9, 0.1)])
async def test_a_close_that_is_hurried_on_its_way_takes_no_longer_from_there_than_one_in_haste(after: float, seconds: float) -> None:
    """Without haste the interrupt has 5 seconds, and the end of the input 5 more."""
    async with acting(Codex.begin) as (session, codex):
        await begun(session, codex)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.aclose)
            await anyio.sleep(after)
            began = anyio.current_time()
            await session.aclose(hurry=True)
            assert round(anyio.current_time() - began, 3) == seconds


@virtual_time
@pytest.mark.parametrize(("close_timeout", "seconds"), [(None, 0.6), (3.0, 1.8)])
async def test_a_call_of_codex_that_is_cancelled_takes_as_long_as_its_close_timeout_says(
    close_timeout: float | None, seconds: float
) -> None:
    """Codex answers no interrupt, and does not end with its input."""
    connectable, began = MemoryConnectable(), anyio.current_time()
    with anyio.CancelScope() as scope:

        async def play() -> None:
            codex = Codex(await connectable.accept())
            await codex.begin()
            await codex.turn()
            scope.cancel()
            await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            await complete("Hi", agent="codex", make_transport=lambda _: StreamTransport(connectable), close_timeout=close_timeout)
    assert scope.cancelled_caught
    assert round(anyio.current_time() - began, 3) == seconds
