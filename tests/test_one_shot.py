"""`query()`: everything is yielded, it ends by itself, and leaving it early leaves nothing behind."""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hostile_words import HOSTILE, assert_records_are_safe
from virtual_time import virtual_time

from claude_transport import (
    Allow,
    AssistantMessage,
    ClaudeOptions,
    CLINotFoundError,
    ConnectionLost,
    HookMatcher,
    Message,
    MissingResult,
    MockTransport,
    ProcessError,
    ResultMessage,
    SubprocessTransport,
    query,
)
from claude_transport.completion.one_shot import OneShot
from claude_transport.errors import ClaudeTransportError, UsageError
from claude_transport.hooks import PreToolUseDecision
from claude_transport.messages import SessionStateChanged
from claude_transport.testing import Answer, FakeClaude, Scenario, ScriptedTurn, steps

LONG_GRACE = 3.0  # seconds; 0.3 were measured
PATIENCE = 30.0  # seconds; a hang fails instead of hanging the suite

Frame = dict[str, Any]


def said(text: str) -> Frame:
    return {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}


def result(text: str = "", **fields: Any) -> Frame:
    return {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": text, **fields}


def state(name: str) -> Frame:
    return {"type": "system", "subtype": "session_state_changed", "state": name}


async def read(conversation: OneShot) -> list[Message]:
    with anyio.fail_after(PATIENCE):
        return [message async for message in conversation]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_everything_is_yielded_and_it_ends_by_itself() -> None:
    transport = MockTransport([said("one"), said("two"), result("two")])
    messages = await read(query("Hello", transport=transport))
    assert [message.type for message in messages] == ["assistant", "assistant", "result"]
    assert not transport.is_ready()
    assert [frame["message"]["content"] for frame in transport.written if frame["type"] == "user"] == ["Hello"]


async def test_content_blocks_are_a_prompt() -> None:
    transport = MockTransport([result()])
    await read(query([{"type": "text", "text": "Hello"}], transport=transport))
    assert transport.written[1]["message"]["content"] == [{"type": "text", "text": "Hello"}]


async def test_each_prompt_of_several_waits_for_the_result_before_it_to_be_read() -> None:
    transport = MockTransport([said("1"), result("1"), said("2"), result("2")])
    seen: list[str] = []

    async def prompts() -> AsyncIterator[str]:
        yield "first"
        assert seen == ["assistant", "result"]
        yield "second"

    async for message in query(prompts(), transport=transport):
        seen.append(message.type)  # noqa: PERF401 - the prompts look at it meanwhile
    assert seen == ["assistant", "result"] * 2


async def test_no_prompt_at_all_is_a_short_conversation() -> None:
    async def none() -> AsyncIterator[str]:
        return
        yield

    assert await read(query(none(), transport=MockTransport())) == []


async def test_an_error_among_the_prompts_closes_everything() -> None:
    async def prompts() -> AsyncIterator[str]:
        yield "first"
        raise KeyError("second")

    transport = MockTransport([result()])
    with pytest.raises(KeyError):
        await read(query(prompts(), transport=transport))
    assert not transport.is_ready()


async def test_the_iterator_of_prompts_is_closed_with_the_rest() -> None:
    closed = []

    async def prompts() -> AsyncIterator[str]:
        try:
            yield "first"
            yield "second"
        finally:
            closed.append(True)

    conversation = query(prompts(), transport=MockTransport([result(), result()]))
    async for _ in conversation:
        break
    await conversation.aclose()
    assert closed == [True]


class SilentPrompts:
    """One prompt, and then none for ever. It knows whether it was closed."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = False
        self.silent = anyio.Event()

    def __aiter__(self) -> SilentPrompts:
        return self

    async def __anext__(self) -> str:
        self.asked += 1
        if self.asked > 1:
            self.silent.set()
            await anyio.sleep_forever()
        return "first"

    async def aclose(self) -> None:
        self.closed = True


async def test_messages_and_the_end_come_while_the_next_prompt_is_awaited() -> None:
    prompts, peer = SilentPrompts(), Peer([result()])
    types: list[str] = []

    async def converse() -> None:
        async for message in query(prompts, transport=peer):
            types.append(message.type)
            if message.type == "assistant":
                peer.over = True
                peer.news.set()

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(converse)
            await prompts.silent.wait()
            peer.said.append(said("woken"))
            peer.news.set()
    assert types == ["result", "assistant"]
    assert prompts.closed


async def test_closing_from_another_task_ends_the_wait_for_a_prompt() -> None:
    waits = anyio.Event()
    closed: list[bool] = []

    async def prompts() -> AsyncIterator[str]:
        try:
            yield "first"
            waits.set()
            await anyio.sleep_forever()
        finally:
            closed.append(True)

    conversation = query(prompts(), transport=Peer([result()]))
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, conversation)
            await waits.wait()
            await conversation.aclose()
    assert closed == [True]


async def test_a_cancelled_wait_for_a_prompt_closes_the_iterable() -> None:
    prompts = SilentPrompts()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, query(prompts, transport=Peer([result()])))
            await prompts.silent.wait()
            tasks.cancel_scope.cancel()
    assert prompts.closed


# ----------------------------------------------------------------------------------------------------------- when it is over


async def test_input_stays_open_while_something_can_still_ask() -> None:
    """As in recording 15c: the background agent outlives the first result and wakes the session."""
    tasks = {"type": "system", "subtype": "background_tasks_changed"}
    agent = {"task_id": "t1", "task_type": "local_agent", "description": "dig"}
    question = {"type": "control_request", "request_id": "q", "request": {"subtype": "can_use_tool", "tool_name": "Bash"}}
    turn: list[Any] = [
        steps.Emit({**tasks, "tasks": [agent]}),
        steps.Text("main"),
        steps.Result(),
        steps.Emit({**tasks, "tasks": []}),
        steps.Delay(0.05),  # nothing but the state of the session tells that a turn will come
        steps.Request(question["request"]),
        steps.Result(extra={"origin": {"kind": "task-notification"}, "user_message_uuids": []}),
    ]
    asked = []

    async def allow(*_: object) -> Allow:
        asked.append(True)
        return Allow()

    with FakeClaude(Scenario(replies=[ScriptedTurn(turn)])) as fake:
        messages = await read(query("x", transport=SubprocessTransport(command=fake.command), can_use_tool=allow))
        assert fake.calls()[0].exit_code == 0
    assert asked == [True]
    told = [message.state if isinstance(message, SessionStateChanged) else message.type for message in messages]
    assert [word for word in told if word in {"running", "result", "idle"}] == ["running", "result", "result", "idle"]


class Peer:
    """The six methods by hand: answers requests, says `frames` to the first prompt, ends with its input unless `ends` is off."""

    def __init__(self, frames: list[Frame], *, ends: bool = True) -> None:
        self.frames = frames
        self.ends = ends
        self.said: list[Frame] = []
        self.log: list[str] = []
        self.over = False
        self.news = anyio.Event()

    async def connect(self) -> None:
        pass

    def is_ready(self) -> bool:
        return False

    async def write(self, data: str) -> None:
        frame = json.loads(data)
        self.log.append(frame["type"])
        if frame["type"] == "control_request":
            self.said.append({"type": "control_response", "response": {"subtype": "success", "request_id": frame["request_id"]}})
        if frame["type"] == "user":
            self.said += self.frames
            self.frames = []
        self.news.set()

    async def read_messages(self) -> AsyncIterator[Frame]:
        while not self.over:
            while self.said:
                yield self.said.pop(0)
            self.news = anyio.Event()
            await self.news.wait()

    async def end_input(self) -> None:
        self.log.append("end_input")
        self.over = self.ends
        self.news.set()

    async def close(self) -> None:
        self.log.append("close")
        self.over = True
        self.news.set()


async def test_a_callback_that_ends_after_the_result_lets_the_conversation_end() -> None:
    """The answer to the last question brings no message: nothing but the answer itself says that all is quiet now."""
    let_go = anyio.Event()

    async def slow(_subtype: str, _fields: Frame) -> Frame:
        await let_go.wait()
        return {}

    question = {"type": "control_request", "request_id": "q", "request": {"subtype": "from_the_future"}}
    peer = Peer([question, said("one"), result()])
    types: list[str] = []

    async def converse() -> None:
        types.extend([message.type async for message in query("x", transport=peer, on_request=slow)])

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(converse)
            await anyio.wait_all_tasks_blocked()
            assert "end_input" not in peer.log
            let_go.set()
    assert types == ["assistant", "result"]
    assert peer.log == ["control_request", "user", "control_response", "end_input", "close"]


async def test_a_session_that_never_says_it_is_idle_is_not_waited_for_for_ever() -> None:
    peer = Peer([state("running"), said("one"), result()])
    messages = await read(query("x", transport=peer, exit_timeout=0.01))
    assert [message.type for message in messages] == ["system", "assistant", "result"]
    assert peer.log[-2:] == ["end_input", "close"]


async def test_a_peer_that_does_not_end_after_its_result_is_ended() -> None:
    peer = Peer([said("one"), result()], ends=False)
    messages = await read(query("x", transport=peer, exit_timeout=0.01))
    assert [message.type for message in messages] == ["assistant", "result"]
    assert peer.log[-2:] == ["end_input", "close"]


@virtual_time
@pytest.mark.parametrize(("given", "grace"), [({}, 5.0), ({"exit_timeout": 0.5}, 0.5), ({"exit_timeout": 0}, 0.0)])
async def test_a_peer_that_does_not_end_gets_the_exit_timeout_after_its_result_and_no_more(given: dict[str, float], grace: float) -> None:
    peer = Peer([said("one"), result()], ends=False)
    since = math.inf
    async for message in query("x", transport=peer, **given):  # type: ignore[arg-type]
        since = anyio.current_time() if message.type == "result" else since
    assert anyio.current_time() - since == pytest.approx(grace)
    assert peer.log[-2:] == ["end_input", "close"]


async def test_a_process_that_does_not_end_after_its_result_is_ended_in_time() -> None:
    """In `exit_timeout`, and the `close_timeout` of its transport, which ends it by force: 0.3 s in all."""
    with FakeClaude(Scenario(at_eof=[steps.IgnoreSignal("SIGTERM"), steps.Hang()])) as fake:
        transport = SubprocessTransport(command=fake.command, close_timeout=0.3)
        since = math.inf
        async for message in query("x", transport=transport, exit_timeout=0.01):
            since = anyio.current_time() if message.type == "result" else since
        assert anyio.current_time() - since < LONG_GRACE
        assert not is_alive(fake.calls()[0].pid)


@virtual_time
@pytest.mark.parametrize("kind", HOSTILE)
async def test_the_names_of_agents_that_are_cut_off_are_harmless_in_the_log(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    agent = {"task_id": "t1", "task_type": "local_agent", "description": HOSTILE[kind]}
    peer = Peer([{"type": "system", "subtype": "background_tasks_changed", "tasks": [agent]}, state("running"), said("one"), result()])
    began = anyio.current_time()
    messages = await read(query("x", transport=peer, background_timeout=7.0))
    assert (len(messages), round(anyio.current_time() - began, 6)) == (4, 7.0)
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert record.getMessage().startswith("background agents are cut off after 7 s of silence: ")
    assert_records_are_safe([record])


async def test_more_than_the_buffer_holds_is_yielded_whole() -> None:
    transport = MockTransport([said("x" * 1000)] * 200 + [result()])
    assert len(await read(query("x", transport=transport, max_buffered_bytes=4096))) == 201


# -------------------------------------------------------------------------------------------------------------- what is wrong


async def test_an_end_without_a_result_is_a_missing_result_with_what_came() -> None:
    seen = []
    with pytest.raises(MissingResult) as caught:
        async for message in query("x", transport=MockTransport([said("one")])):
            seen.append(message)  # noqa: PERF401 - what was yielded before the error counts
    assert list(caught.value.messages) == seen
    assert isinstance(seen[0], AssistantMessage)


async def test_a_missing_result_holds_the_last_messages_only() -> None:
    with pytest.raises(MissingResult) as caught:
        await read(query("x", transport=MockTransport([said(str(number)) for number in range(200)])))
    assert [message.text for message in caught.value.messages] == [str(number) for number in range(136, 200)]


async def test_the_last_prompt_needs_its_own_result() -> None:
    async def prompts() -> AsyncIterator[str]:
        yield "first"
        yield "second"

    with pytest.raises(MissingResult):
        await read(query(prompts(), transport=MockTransport([result("1"), said("2")])))


async def test_a_prompt_folded_into_a_turn_that_nobody_asked_for_has_its_result() -> None:
    tool_result = {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": ""}]}}
    woken = MockTransport.script().emit({"type": "system", "subtype": "init", "claude_code_version": "1.0.50"})
    woken.expect_control("initialize").reply({})
    woken.expect(type="user").reply(tool_result, said("both"), result("both", origin={"kind": "task-notification"}))
    messages = await read(query("Hello", transport=woken))
    assert [message.result for message in messages if isinstance(message, ResultMessage)] == ["both"]


async def test_the_result_of_a_turn_that_a_resumed_session_begins_by_itself_is_not_that_of_the_prompt() -> None:
    names = {"type": "command_lifecycle", "command_uuid": "of somebody else", "state": "queued"}
    resumed = MockTransport.script().emit(names).expect_control("initialize").reply({})
    resumed.expect(type="user").reply({"type": "system", "subtype": "init", "session_id": "s"}, said("made"), result("It is made.")).end()
    results = []
    with pytest.raises(MissingResult):
        async for message in query("And now?", transport=resumed):
            results += [message.result] if isinstance(message, ResultMessage) else []
    assert results == ["It is made."]


async def test_a_failed_result_is_yielded_and_not_raised() -> None:
    messages = await read(query("x", transport=MockTransport([result("no", is_error=True, api_error_status=429)])))
    assert isinstance(messages[-1], ResultMessage)
    assert messages[-1].outcome.code == "result.rate_limited"


async def test_a_process_that_dies_raises_how_after_what_it_said() -> None:
    seen: list[str] = []
    with FakeClaude(Scenario(otherwise=ScriptedTurn([steps.Text("one"), steps.Stderr("ouch"), steps.Exit(3)]))) as fake:
        with pytest.raises(ProcessError) as caught:
            async for message in query("x", transport=SubprocessTransport(command=fake.command)):
                seen.append(message.type)  # noqa: PERF401 - as above
        assert not is_alive(fake.calls()[0].pid)
    assert (caught.value.exit_code, caught.value.stderr_tail) == (3, "ouch")
    assert "assistant" in seen


async def test_a_process_that_dies_before_the_prompt_raises_how() -> None:
    with FakeClaude(Scenario(answers={"initialize": Answer(after=[steps.Exit(4)])})) as fake, pytest.raises(ProcessError) as caught:
        await read(query("x", transport=SubprocessTransport(command=fake.command)))
    assert caught.value.exit_code == 4


class Deaf(Peer):
    """Cannot be told the prompt; what reading says then is `cause`."""

    def __init__(self, cause: Exception | None) -> None:
        super().__init__([])
        self.cause = cause

    async def write(self, data: str) -> None:
        if '"user"' in data:
            self.over = True
            self.news.set()
            raise BrokenPipeError
        await super().write(data)

    async def read_messages(self) -> AsyncIterator[Frame]:
        async for frame in super().read_messages():
            yield frame
        if self.cause is not None:
            raise self.cause


async def test_a_prompt_that_cannot_be_sent_raises_what_reading_says_about_it() -> None:
    with pytest.raises(ProcessError) as caught:
        await read(query("x", transport=Deaf(ProcessError("died", exit_code=5))))
    assert caught.value.exit_code == 5


async def test_a_prompt_that_cannot_be_sent_is_a_missing_result_when_reading_says_nothing() -> None:
    with pytest.raises(MissingResult) as caught:
        await read(query("x", transport=Deaf(None)))
    assert isinstance(caught.value.__cause__, ConnectionLost)


async def test_a_start_that_fails_raises_why(tmp_path: Path) -> None:
    with pytest.raises(CLINotFoundError):
        await read(query("x", options=ClaudeOptions(cli_path=tmp_path / "missing")))


def test_options_and_a_transport_at_once_are_refused() -> None:
    with pytest.raises(UsageError):
        query("x", options=ClaudeOptions(), transport=MockTransport())


# ---------------------------------------------------------------------------------------------------------------- left early


async def gone(pid: int) -> None:
    """Wait for the end of a process that is being closed in the background."""
    with anyio.fail_after(PATIENCE):
        while is_alive(pid):
            await anyio.sleep(0.01)


async def test_a_break_ends_the_process() -> None:
    with FakeClaude(Scenario(otherwise=ScriptedTurn([steps.Text("one"), steps.Hang()]))) as fake:
        async for message in query("x", transport=SubprocessTransport(command=fake.command, close_timeout=0.3), exit_timeout=0.01):
            if isinstance(message, AssistantMessage):
                break
        gc.collect()
        await gone(fake.calls()[0].pid)


async def test_an_exception_in_the_loop_ends_the_process() -> None:
    with FakeClaude(Scenario(otherwise=ScriptedTurn([steps.Text("one"), steps.Delay(60)]))) as fake:
        with pytest.raises(KeyError):
            async for _ in query("x", transport=SubprocessTransport(command=fake.command)):
                raise KeyError
        gc.collect()
        await gone(fake.calls()[0].pid)


async def test_a_cancellation_ends_the_process_before_it_is_delivered() -> None:
    with FakeClaude(Scenario(otherwise=ScriptedTurn([steps.Text("one"), steps.Delay(60)]))) as fake:
        with anyio.CancelScope() as scope:
            async for message in query("x", transport=SubprocessTransport(command=fake.command)):
                if isinstance(message, AssistantMessage):
                    scope.cancel()
        assert scope.cancelled_caught
        assert not is_alive(fake.calls()[0].pid)


async def test_closing_it_from_another_task_ends_the_loop() -> None:
    peer = Peer([said("one")])
    conversation = query("x", transport=peer)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            async for message in conversation:
                assert message.type == "assistant"
                tasks.start_soon(conversation.aclose)
    assert peer.log[-1] == "close"


async def test_one_that_is_never_read_starts_nothing() -> None:
    peer = Peer([])
    conversation = query("x", transport=peer)
    del conversation
    gc.collect()
    await anyio.lowlevel.checkpoint()
    assert peer.log == []


LEAVING = """
import sys, anyio
import claude_transport as ct

async def main():
    how, command = sys.argv[2], sys.argv[3:]
    transport = ct.SubprocessTransport(command=command)
    if how == "never read":
        ct.query("x", transport=transport)
        return
    async for message in ct.query("x", transport=transport):
        if isinstance(message, ct.AssistantMessage):
            if how == "break":
                break
            if how == "raise":
                raise KeyError("on purpose")
            if how == "exit":
                raise SystemExit(0)

try:
    anyio.run(main, backend=sys.argv[1])
except KeyError:
    pass
"""


@pytest.mark.parametrize("how", ["break", "raise", "exit", "to the end", "never read"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_that_leaves_and_ends_leaves_no_process_and_no_warning(how: str, backend: str) -> None:
    turn = [steps.Text("one"), *([steps.Result()] if how == "to the end" else [steps.Delay(60)])]
    with FakeClaude(Scenario(otherwise=ScriptedTurn(turn))) as fake:
        program = [sys.executable, "-W", "error", "-c", LEAVING, backend, how, *fake.command]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert [call.pid for call in fake.calls() if is_alive(call.pid)] == []


async def test_a_one_shot_shows_where_it_stands_and_nothing_of_what_is_said() -> None:
    shot = query("A secret prompt", transport=MockTransport())
    assert repr(shot) == "<OneShot over MockTransport, not started>"
    await shot.aclose()
    assert repr(shot) == "<OneShot over MockTransport, closed>"


class Unending(Peer):
    """Its input cannot be ended, because of `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__([said("one"), result()])
        self.cause = cause

    async def end_input(self) -> None:
        await super().end_input()
        raise self.cause


async def test_an_input_that_cannot_be_ended_because_the_peer_is_gone_is_no_error() -> None:
    messages = await read(query("x", transport=Unending(BrokenPipeError())))
    assert [message.type for message in messages] == ["assistant", "result"]


async def test_an_input_that_cannot_be_ended_for_another_reason_raises_it() -> None:
    got: list[str] = []
    with pytest.raises(ClaudeTransportError) as caught:
        got.extend([message.type async for message in query("x", transport=Unending(LookupError("no end")))])
    assert (caught.value.code, type(caught.value.__cause__), got) == ("transport.failed", LookupError, [])


async def test_a_one_shot_is_open_until_its_input_has_ended() -> None:
    peer = Peer([said("one"), result(), said("late")], ends=False)
    shot = query("x", transport=peer, exit_timeout=0.01)
    await anext(shot)
    assert repr(shot) == "<OneShot over Peer, open>"
    rest = [message.type async for message in shot]
    assert (rest, repr(shot)) == (["result", "assistant"], "<OneShot over Peer, closed>")


class OldPeer(Peer):
    """A CLI that goes on unasked when it cannot ask a hook."""

    async def write(self, data: str) -> None:
        await super().write(data)
        if '"initialize"' in data:
            self.said[-1]["response"]["response"] = {"claude_code_version": "2.1.191"}


@virtual_time
async def test_agents_that_hooks_guard_are_cut_off_by_closing_where_they_would_go_on_unasked() -> None:
    """Such a query cannot end its input. That is no error of a conversation whose prompts have their results."""

    async def denies(*_: object) -> PreToolUseDecision:
        return PreToolUseDecision.deny("no")

    agent = {"task_id": "t1", "task_type": "local_agent", "description": "dig"}
    peer = OldPeer([{"type": "system", "subtype": "background_tasks_changed", "tasks": [agent]}, state("running"), said("one"), result()])
    began = anyio.current_time()
    hooks = {"PreToolUse": [HookMatcher(hooks=[denies])]}
    messages = await read(query("x", transport=peer, background_timeout=7.0, hooks=hooks))
    assert [message.type for message in messages] == ["system", "system", "assistant", "result"]
    assert (round(anyio.current_time() - began, 6), peer.log[-1]) == (7.0, "close")
