"""Requests of the host: answered in any order, refused, late, given up; and nothing of them is left behind."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from textwrap import dedent

import anyio
import pytest
from peers import ForeignTransport, Frame, answer_to, in_time, result, soon
from virtual_time import virtual_time

from claude_transport import ConnectionLost, InterruptOutcome, MockTransport, ProcessError, Query, SubprocessTransport, TransportInfo
from claude_transport.errors import ControlRequestFailed, ControlTimeout, InputClosed, TransportClosed, UsageError
from claude_transport.transport import AtOnce, Client, SessionTerms, Transport


def refusal(request: Frame, error: str, **fields: str) -> Frame:
    return {"type": "control_response", "response": {"subtype": "error", "request_id": request["request_id"], "error": error, **fields}}


class Answering(ForeignTransport):
    """Answers `initialize`; what else it says to requests is up to the test."""

    async def write(self, data: str) -> None:
        self.answers = '"initialize"' in data
        await super().write(data)


async def test_answers_come_in_any_order() -> None:
    transport = Answering()
    async with Query(transport) as query:
        got: dict[str, object] = {}

        async def ask(subtype: str) -> None:
            got[subtype] = await query.request(subtype)

        async with anyio.create_task_group() as tasks:
            for subtype in ("first", "second", "third"):
                tasks.start_soon(ask, subtype)
            await soon(lambda: len(transport.written) == 4)
            assert sorted(query.pending_requests.values()) == ["first", "second", "third"]
            for request in reversed(transport.written[1:]):
                transport.say(answer_to(request, about=request["request"]["subtype"]))
        assert got == {name: {"about": name} for name in ("first", "second", "third")}
        assert query.pending_requests == {}


async def test_a_success_without_a_payload_is_an_empty_one() -> None:
    transport = Answering(
        on_write=lambda frame: transport.say(
            {"type": "control_response", "response": {"subtype": "success", "request_id": frame.get("request_id")}}
        )
    )
    async with Query(transport) as query:
        assert await query.request("set_color", color="red") == {}
        assert transport.written[-1]["request"] == {"subtype": "set_color", "color": "red"}


async def test_a_refusal_says_why() -> None:
    def refuse(frame: Frame) -> None:
        if frame["request"]["subtype"] == "set_permission_mode":
            transport.say(refusal(frame, "no such mode", error_code="invalid_mode"))

    transport = Answering(on_write=refuse)
    async with Query(transport) as query:
        with pytest.raises(ControlRequestFailed, match="no such mode") as caught:
            await query.set_permission_mode("dance")
        error = caught.value
        assert (error.error_code, error.subtype, error.__cause__) == ("invalid_mode", "set_permission_mode", None)


async def test_typed_requests_send_what_they_say() -> None:
    transport = MockTransport()
    async with Query(transport) as query:
        await query.set_model("haiku")
        await query.set_model(None)
        await query.set_permission_mode("plan")
    assert [message["request"] for message in transport.written[1:4]] == [
        {"subtype": "set_model", "model": "haiku"},
        {"subtype": "set_model", "model": None},
        {"subtype": "set_permission_mode", "mode": "plan"},
    ]


class Muttering(Answering):
    """Says something on standard error."""

    info = TransportInfo(kind="muttering", stderr_tail="the last words\n")


@pytest.mark.parametrize("timeout", [0.01, 0])
async def test_a_request_without_an_answer_times_out_and_a_late_answer_is_only_counted(timeout: float) -> None:
    transport = Muttering()
    async with Query(transport) as query:
        with pytest.raises(ControlTimeout) as caught:
            await query.request("mcp_status", timeout=timeout)
        timed_out = caught.value
        assert (timed_out.code, timed_out.subtype, timed_out.waited) == ("control.timeout", "mcp_status", timeout)
        await soon(lambda: transport.requests("mcp_status"))
        assert timed_out.request_id == transport.written[-1]["request_id"]
        assert timed_out.stderr_tail == "the last words\n"
        assert query.pending_requests == {}
        transport.say(answer_to(transport.written[-1]))
        await soon(lambda: query.late_responses)
        assert query.late_responses == 1


async def test_ten_thousand_abandoned_requests_leave_nothing_behind() -> None:
    transport = Answering()
    async with Query(transport) as query:
        async with anyio.create_task_group() as tasks:
            for _ in range(10_000):
                tasks.start_soon(query.request, "mcp_status")
            await soon(lambda: len(query.pending_requests) == 10_000)
            tasks.cancel_scope.cancel()
        assert query.pending_requests == {}


async def test_a_request_that_cannot_be_written_as_json_leaves_nothing_behind() -> None:
    async with Query(MockTransport()) as query:
        with pytest.raises(UsageError):
            await query.request("rename_session", title=object())
        assert query.pending_requests == {}


async def test_an_answer_just_before_the_end_counts() -> None:
    def answer_and_end(frame: Frame) -> None:
        if frame["type"] == "control_request" and frame["request"]["subtype"] == "end_session":
            transport.say(answer_to(frame, bye=True))
            transport.finish(ConnectionResetError("gone"))

    transport = Answering(on_write=answer_and_end)
    async with Query(transport) as query:
        assert await in_time(query.request("end_session")) == {"bye": True}


@pytest.mark.parametrize("timeout", [60.0, math.inf])
async def test_a_request_ends_with_the_conversation(timeout: float) -> None:
    transport = Answering()
    async with Query(transport) as query, anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(ConnectionLost):
                await query.request("mcp_status", timeout=timeout)

        tasks.start_soon(ask)
        await soon(lambda: transport.requests("mcp_status"))
        transport.finish()


class Deaf(Answering):
    """Cannot be written to after `initialize`, and does not end."""

    async def write(self, data: str) -> None:
        if self.written:
            raise BrokenPipeError("nobody listens")
        await super().write(data)


async def test_a_request_that_cannot_be_written_fails_with_the_cause_that_reading_finds() -> None:
    transport = Deaf()
    async with Query(transport) as query, anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(ProcessError):
                await query.request("mcp_status")

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        transport.finish(ProcessError("exit code 3", exit_code=3))


async def test_a_request_that_cannot_be_written_does_not_wait_for_its_timeout() -> None:
    async with Query(Deaf()) as query:
        with pytest.raises(ConnectionLost, match="nobody listens"):
            await in_time(query.request("mcp_status", timeout=math.inf))


# ----------------------------------------------------------------------------------------------------------------- interrupt


async def test_an_interrupt_of_a_running_turn_is_acknowledged() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        turn = await query.send("a")
        assert await query.interrupt() is InterruptOutcome.ACKNOWLEDGED
        transport.say(result(None, subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming"))
        assert (await turn.result()).outcome.code == "result.interrupted"


async def test_an_interrupt_with_nothing_to_stop_says_so() -> None:
    async with Query(ForeignTransport()) as query:
        assert await query.interrupt() is InterruptOutcome.NOT_RUNNING


class Refusing(Answering):
    """Refuses to be interrupted; `before` happens first."""

    def __init__(self, *before: Frame) -> None:
        super().__init__(on_write=self.refuse)
        self.before = before

    def refuse(self, frame: Frame) -> None:
        if frame["type"] == "control_request" and frame["request"]["subtype"] == "interrupt":
            self.say(*self.before, refusal(frame, "not now", error_code="busy"))


async def test_an_interrupt_that_is_refused_while_the_turn_goes_on_does_not_say_that_nothing_runs() -> None:
    async with Query(Refusing()) as query:
        turn = await query.send("a")
        assert await query.interrupt() is InterruptOutcome.DEAD
        assert turn.is_open()


async def test_an_interrupt_that_is_refused_when_nothing_runs_any_more_says_so() -> None:
    async with Query(Refusing(result())) as query:
        assert await query.interrupt() is InterruptOutcome.NOT_RUNNING
        await query.send("a")
        assert await query.interrupt() is InterruptOutcome.NOT_RUNNING


async def test_an_interrupt_that_is_refused_with_the_last_word_finds_nobody_alive() -> None:
    class Leaving(Refusing):
        def refuse(self, frame: Frame) -> None:
            super().refuse(frame)
            if frame["type"] == "control_request" and frame["request"]["subtype"] == "interrupt":
                self.finish()

    async with Query(Leaving()) as query:
        await query.send("a")
        assert await query.interrupt() is InterruptOutcome.DEAD


async def test_an_interrupt_after_the_end_of_the_input_cannot_reach_the_turn() -> None:
    transport = ForeignTransport(ends=False)
    async with Query(transport) as query:
        turn = await query.send("a")
        await query.end_input()
        assert await query.interrupt() is InterruptOutcome.DEAD
        assert turn.is_open()
        transport.say(result())
        await turn.result()
        assert await query.interrupt() is InterruptOutcome.NOT_RUNNING
        transport.finish()


async def test_an_interrupt_that_cannot_be_written_finds_nobody_alive() -> None:
    async with Query(Deaf()) as query:
        assert await in_time(query.interrupt()) is InterruptOutcome.DEAD


async def test_an_interrupt_before_the_start_has_nothing_to_stop() -> None:
    assert await Query(ForeignTransport()).interrupt() is InterruptOutcome.NOT_RUNNING


async def test_an_interrupt_that_nobody_answers_is_timed_out() -> None:
    async with Query(Answering()) as query:
        await query.send("a")
        assert await query.interrupt(timeout=0.01) is InterruptOutcome.TIMED_OUT


@pytest.mark.parametrize("moment", ["before", "while waiting", "closed"])
async def test_an_interrupt_of_the_dead_says_so(moment: str) -> None:
    transport = Answering()
    query = Query(transport)
    await query.start()
    await query.send("a")
    outcomes: list[InterruptOutcome] = []

    async def interrupt() -> None:
        outcomes.append(await query.interrupt())

    if moment == "before":
        transport.finish(ProcessError("died", exit_code=3))
        await soon(lambda: query.has_ended)
    if moment == "closed":
        await query.aclose()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(interrupt)
        if moment == "while waiting":
            await soon(lambda: transport.requests("interrupt"))
            transport.finish(ProcessError("died", exit_code=3))
    assert outcomes == [InterruptOutcome.DEAD]
    await query.aclose()


async def test_requests_after_the_close_are_refused_at_once() -> None:
    query = Query(MockTransport())
    await query.start()
    await query.aclose()
    with pytest.raises(TransportClosed):
        await query.request("mcp_status")


@virtual_time
async def test_of_many_requests_each_has_its_own_time() -> None:
    over: dict[float, float] = {}

    async def ask(timeout: float) -> None:
        began = anyio.current_time()
        with pytest.raises(ControlTimeout) as caught:
            await query.request("mcp_status", timeout=timeout)
        assert caught.value.waited == timeout
        over[timeout] = round(anyio.current_time() - began, 6)

    async with Query(Answering()) as query:
        async with anyio.create_task_group() as tasks:
            for timeout in (60.0, 5.0, 30.0, 5.5, -1.0):
                tasks.start_soon(ask, timeout)
                await anyio.wait_all_tasks_blocked()
            with anyio.move_on_after(7) as cancelled:
                await query.request("mcp_status", timeout=1e6)
            assert cancelled.cancelled_caught
            tasks.start_soon(ask, 1.0)
        assert over == {-1.0: 0.0, 1.0: 1.0, 5.0: 5.0, 5.5: 5.5, 30.0: 30.0, 60.0: 60.0}
        await anyio.sleep(3600)  # nothing is left that would wake up and fail
        assert query.pending_requests == {}


class WritingNow(ForeignTransport, Transport):
    """Takes requests without waiting, and a prompt only after `gate` is set."""

    def attach(self, client: Client) -> SessionTerms:
        return SessionTerms(at_once=AtOnce(connect=bool, write=self.write_now, end_input=bool, close=bool))

    def __init__(self) -> None:
        super().__init__(ends=False)
        self.gate = anyio.Event()
        self.now: list[Frame] = []

    async def write(self, data: str | bytes) -> None:
        for line in (data if isinstance(data, str) else data.decode()).splitlines():
            if '"user"' in line:
                await self.gate.wait()
            await super().write(line + "\n")

    def write_now(self, line: bytes) -> bool:
        frame = json.loads(line)
        if frame["type"] == "user":
            return False
        self.now.append(frame)
        self.written.append(frame)
        self.say(answer_to(frame))
        return True


async def test_a_request_passes_a_prompt_that_waits_and_is_written_at_once_when_there_is_none() -> None:
    transport = WritingNow()
    async with Query(transport) as query:
        assert [frame["request"]["subtype"] for frame in transport.now] == ["initialize"]
        transport.now.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.send, "first")
            await soon(lambda: query.open_turns)
            tasks.start_soon(query.request, "mcp_status")
            await anyio.wait_all_tasks_blocked()
            assert transport.now == []
            assert transport.requests("mcp_status")
            transport.gate.set()
        assert [frame["type"] for frame in transport.written] == ["control_request", "control_request", "user"]
        await in_time(query.request("get_status"))
        assert [frame["request"]["subtype"] for frame in transport.now] == ["get_status"]
        await query.end_input()
        with pytest.raises(InputClosed):
            await in_time(query.request("get_status"))
        assert len(transport.now) == 1
        await query.aclose(timeout=0)


_SLOW_READER = """
    import json, os, sys, time
    seen = []
    def answer(frame):
        said = {"subtype": "success", "request_id": frame["request_id"], "response": {"seen": seen}}
        print(json.dumps({"type": "control_response", "response": said}), flush=True)
    answer(json.loads(sys.stdin.readline()))
    while not os.path.exists(GATE):
        time.sleep(0.01)
    for line in sys.stdin:
        frame = json.loads(line)
        seen.append(frame["type"])
        if frame["type"] == "control_request":
            answer(frame)
"""


async def test_a_request_does_not_overtake_a_prompt_that_is_being_written(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    child = [sys.executable, "-ISc", dedent(_SLOW_READER).replace("GATE", repr(str(gate)))]
    answers: list[dict[str, list[str]]] = []

    async def ask() -> None:
        answers.append(await query.request("mcp_status"))

    with anyio.fail_after(30):
        async with Query(SubprocessTransport(command=child)) as query, anyio.create_task_group() as tasks:
            tasks.start_soon(query.send, "x" * 1_000_000)
            await anyio.wait_all_tasks_blocked()
            for _ in range(2):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            gate.touch()
    assert sorted(len(answer["seen"]) for answer in answers) == [2, 3]
    assert all(answer["seen"][0] == "user" for answer in answers)
