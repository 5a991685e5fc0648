"""When input may end: not while anything can still ask the host for something, and not a moment after it cannot."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from peers import ForeignTransport, Frame, in_time, permission, result, said, soon
from virtual_time import virtual_time

from claude_transport import Allow, AssistantMessage, HookMatcher, Message, Query, ResultMessage, query
from claude_transport.completion.one_shot import OneShot

PATIENCE = 30.0
TASKS: Frame = {"type": "system", "subtype": "background_tasks_changed"}
AGENT: Frame = {**TASKS, "tasks": [{"task_id": "a1", "task_type": "local_agent", "description": "dig"}]}
SHELL: Frame = {**TASKS, "tasks": [{"task_id": "b1", "task_type": "local_bash", "description": "tail -f"}]}
NOTHING: Frame = {**TASKS, "tasks": []}
INIT: Frame = {"type": "system", "subtype": "init", "session_id": "s1", "claude_code_version": "2.1.329"}
WOKEN: Frame = {"origin": {"kind": "task-notification"}}


def state(name: str) -> Frame:
    return {"type": "system", "subtype": "session_state_changed", "state": name}


def hook_call(request_id: str) -> Frame:
    body = {"subtype": "hook_callback", "callback_id": "hook_0", "input": {"hook_event_name": "PreToolUse"}, "tool_use_id": "t1"}
    return {"type": "control_request", "request_id": request_id, "request": body}


def mcp_call(request_id: str) -> Frame:
    message = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
    return {
        "type": "control_request",
        "request_id": request_id,
        "request": {"subtype": "mcp_message", "server_name": "s", "message": message},
    }


async def allow(*_: object) -> Allow:
    return Allow()


async def passive(*_: object) -> None:
    return None


def hooks() -> dict[str, Any]:
    return {"hooks": {"PreToolUse": [HookMatcher(None, [passive])]}}


def mcp() -> dict[str, Any]:
    from mcp.server import Server

    return {"mcp_servers": {"s": Server("s")}}


REGISTERED: list[tuple[Callable[[], dict[str, Any]], Callable[[str], Frame]]] = [
    (lambda: {"can_use_tool": allow}, permission),
    (hooks, hook_call),
    (mcp, mcp_call),
    (lambda: {"on_request": lambda *_: allowed()}, permission),
]


async def allowed() -> dict[str, Any]:
    return {"behavior": "allow"}


async def read(conversation: OneShot) -> list[Message]:
    with anyio.fail_after(PATIENCE):
        return [message async for message in conversation]


# --------------------------------------------------------------------------------------------- a Query ends its input when told


@pytest.mark.parametrize(("registered", "ask"), REGISTERED, ids=["can_use_tool", "hook", "mcp", "on_request"])
async def test_a_question_after_many_results_is_answered(registered: Any, ask: Callable[[str], Frame]) -> None:
    transport = ForeignTransport(on_write=lambda frame: transport.say(result()) if frame["type"] == "user" else None)
    async with Query(transport, **registered()) as talk:
        for number in range(5):
            await in_time((await talk.send(f"prompt {number}")).result())
        assert talk.is_quiet
        await anyio.wait_all_tasks_blocked()
        transport.say(ask("late"))
        await soon(lambda: "late" in transport.responses())
        assert "end_input" not in transport.calls
    assert transport.responses()["late"]["subtype"] == "success"


@virtual_time
async def test_a_question_a_minute_after_the_first_result_is_answered() -> None:
    transport = ForeignTransport(on_write=lambda frame: transport.say(result()) if frame["type"] == "user" else None)
    async with Query(transport, can_use_tool=allow) as talk:
        await (await talk.send("x")).result()
        await anyio.sleep(60)
        transport.say(permission("late"))
        await anyio.sleep(60)
        assert transport.responses()["late"]["response"]["behavior"] == "allow"
        assert "end_input" not in transport.calls


# --------------------------------------------------------------------------------- a one-shot ends it itself, when nothing can ask


class Script(ForeignTransport):
    """Says `frames` to the first prompt; what follows is up to the test."""

    def __init__(self, *frames: Frame) -> None:
        super().__init__(on_write=self.react)
        self.frames = frames

    def react(self, frame: Frame) -> None:
        if frame["type"] == "user":
            self.say(*self.frames)
            self.frames = ()


@virtual_time
async def test_an_agent_that_asks_a_minute_after_the_result_is_answered_and_its_turn_is_waited_for() -> None:
    transport = Script(AGENT, said("main"), result())
    messages: list[Message] = []

    async def converse() -> None:
        messages.extend([message async for message in query("x", transport=transport, can_use_tool=allow)])
        assert anyio.current_time() - began == pytest.approx(180)

    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(converse)
        await anyio.sleep(60)
        transport.say(permission("late", agent_id="a1"))
        await anyio.sleep(60)
        assert transport.responses()["late"]["response"]["behavior"] == "allow"
        transport.say(NOTHING, INIT)
        await anyio.sleep(60)
        assert "end_input" not in transport.calls
        transport.say(said("woken"), result(**WOKEN))
    assert [message.text for message in messages if isinstance(message, AssistantMessage)] == ["main", "woken"]


@virtual_time
@pytest.mark.parametrize("bound", [600.0, 30.0])
async def test_agents_that_say_nothing_hold_the_input_for_a_stated_time_and_are_named(
    bound: float, caplog: pytest.LogCaptureFixture
) -> None:
    transport = Script(AGENT, said("main"), result())
    transport.ends = False
    began = anyio.current_time()
    options = {} if bound == 600.0 else {"background_timeout": bound}
    messages = [message async for message in query("x", transport=transport, **options)]  # type: ignore[arg-type]
    assert anyio.current_time() - began == pytest.approx(bound + 5)  # and the peer, which does not end, its exit_timeout
    assert [message.type for message in messages] == ["system", "assistant", "result"]
    assert "dig" in caplog.text


@virtual_time
async def test_agents_may_be_given_all_the_time_they_take() -> None:
    transport = Script(AGENT, result())
    ended = anyio.Event()

    async def converse() -> None:
        async for _ in query("x", transport=transport, background_timeout=math.inf):
            pass
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(converse)
        await anyio.sleep(80_000)
        assert not ended.is_set()
        transport.say(NOTHING, INIT, result(**WOKEN))
        await ended.wait()


@pytest.mark.parametrize("reports_state", [True, False])
async def test_input_stays_open_between_the_end_of_an_agent_and_the_turn_that_it_wakes(reports_state: bool) -> None:
    """Some 10 ms in recording 15c, in which nothing runs; a CLI that reports no session state says nothing of what is to come."""
    running, idle = ([state("running")], [state("idle")]) if reports_state else ([], [])
    transport = Script(*running, AGENT, result())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, query("x", transport=transport, can_use_tool=allow))
        await soon(transport.prompts)
        await anyio.wait_all_tasks_blocked()
        transport.say(NOTHING)
        await anyio.wait_all_tasks_blocked()
        assert "end_input" not in transport.calls
        transport.say(INIT, permission("woken"))
        await soon(lambda: "woken" in transport.responses())
        assert "end_input" not in transport.calls
        transport.say(result(**WOKEN), *idle)
    assert transport.calls.count("end_input") == 1


@virtual_time
async def test_a_turn_that_an_agent_does_not_wake_is_not_waited_for_for_ever() -> None:
    transport = Script(AGENT, result(), NOTHING)
    began = anyio.current_time()
    assert [message.type async for message in query("x", transport=transport)] == ["system", "result", "system"]
    assert anyio.current_time() - began == pytest.approx(5)


@virtual_time
async def test_a_background_shell_holds_nothing() -> None:
    transport = Script(SHELL, said("main"), result(), state("idle"))
    began = anyio.current_time()
    messages = [message async for message in query("x", transport=transport, can_use_tool=allow)]
    assert anyio.current_time() == began
    assert messages[-2].type == "result"


@virtual_time
async def test_a_peer_whose_shell_never_ends_is_closed_after_the_exit_timeout() -> None:
    """The CLI lives until its background shells end, whatever its input does. [24c]"""
    transport = Script(SHELL, result(), state("idle"))
    transport.ends = False
    began = anyio.current_time()
    messages = [message async for message in query("x", transport=transport, exit_timeout=3)]
    assert anyio.current_time() - began == pytest.approx(3)
    assert [message.type for message in messages] == ["system", "result", "system"]


async def test_several_prompts_are_sent_past_an_agent_and_input_ends_after_the_last_of_everything() -> None:
    async def prompts() -> AsyncIterator[str]:
        for number in range(4):
            yield f"prompt {number}"

    def react(frame: Frame) -> None:
        if frame["type"] != "user":
            return
        uuids: Frame = {"user_message_uuids": [frame["uuid"]]}
        transport.say(*([AGENT] if len(transport.prompts()) == 1 else []), {**INIT, **uuids}, said("x"), result(**uuids))
        if len(transport.prompts()) == 4:
            transport.say(NOTHING, {**INIT, "user_message_uuids": []}, permission("woken"))
        assert "end_input" not in transport.calls

    transport = ForeignTransport(on_write=react)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, query(prompts(), transport=transport, can_use_tool=allow))
        await soon(lambda: "woken" in transport.responses())
        assert "end_input" not in transport.calls
        transport.say(result(user_message_uuids=[], **WOKEN))
    assert (len(transport.prompts()), transport.calls.count("end_input")) == (4, 1)


# ---------------------------------------------------------------------------------------------------- closing reports what it cut


@virtual_time
async def test_closing_waits_for_agents_for_as_long_as_it_is_told_and_names_what_it_cut() -> None:
    transport = ForeignTransport(ends=False)
    talk = Query(transport)
    await talk.start()
    turn = await talk.send("x")
    transport.say(AGENT)
    await soon(lambda: talk.background_tasks)
    began = anyio.current_time()
    report = await talk.aclose(wait_for_background=True, timeout=30)
    assert anyio.current_time() - began == pytest.approx(30)
    assert (report.ended_by_itself, report.dropped_tasks, report.lost_turns) == (False, {"a1": "dig"}, (turn.uuid,))


@virtual_time
async def test_closing_that_waits_answers_what_the_agent_asks_and_hears_the_turn_it_wakes() -> None:
    transport = ForeignTransport()
    talk = Query(transport, can_use_tool=allow)
    await talk.start()
    everything = talk.messages()
    transport.say(AGENT)
    await soon(lambda: talk.background_tasks)
    reports = []

    async def close() -> None:
        reports.append(await talk.aclose(wait_for_background=True, timeout=300))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close)
        await anyio.sleep(60)
        transport.say(permission("late"))
        await anyio.sleep(60)
        assert "late" in transport.responses()
        transport.say(NOTHING, INIT)
        await anyio.sleep(60)
        assert "end_input" not in transport.calls
        transport.say(result("woken", **WOKEN))
    assert (reports[0].ended_by_itself, reports[0].dropped_tasks) == (True, {})
    assert [message.result async for message in everything if isinstance(message, ResultMessage)] == ["woken"]


async def test_closing_without_waiting_names_the_agents_it_cut() -> None:
    transport = ForeignTransport()
    talk = Query(transport)
    await talk.start()
    transport.say(AGENT, SHELL, AGENT)
    await soon(lambda: talk.background_tasks)
    report = await in_time(talk.aclose())
    assert report.dropped_tasks == {"a1": "dig"}


# ------------------------------------------------------------------------------------------------------ a string prompt and hooks


class Thousand(ForeignTransport):
    """Calls a hook a thousand times, one after the other, with a message in between, and then has a result."""

    def __init__(self, calls: int = 1000) -> None:
        super().__init__(on_write=self.react)
        self.left = calls

    def react(self, frame: Frame) -> None:
        if frame["type"] not in ("user", "control_response"):
            return
        if self.left:
            self.left -= 1
            self.say(said(f"before {self.left}"), hook_call(f"q{self.left}"))
        else:
            self.say(result())


@pytest.mark.parametrize("room", [1, 64 * 2**20])
async def test_a_thousand_hooks_finish_with_a_string_prompt_and_a_reader_with_one_slot(room: int) -> None:
    transport = Thousand()
    messages: list[Message] = []
    slot, taken = anyio.create_memory_object_stream[Message](1)

    async def hand_over() -> None:
        async with slot:
            async for message in query("x", transport=transport, max_buffered_bytes=room, **hooks()):
                await slot.send(message)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks, taken:
            tasks.start_soon(hand_over)
            async for message in taken:
                messages.append(message)
                await anyio.lowlevel.checkpoint()
    assert len(transport.responses()) == 1000
    assert messages[-1].type == "result"
    if room > 1:
        assert len(messages) == 1001


async def test_a_thousand_hooks_finish_while_nobody_reads() -> None:
    transport = Thousand()
    async with Query(transport, max_buffered_bytes=1, **hooks()) as talk:
        turn = await talk.send("x")
        assert (await in_time(turn.result())).result == "done"
    assert len(transport.responses()) == 1000
