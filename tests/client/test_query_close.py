"""Closing: from anywhere, under anything, in bounded time, with a report of what was cut off."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from peers import ForeignTransport, Frame, in_time, result, said, soon
from virtual_time import virtual_time

from claude_transport import ConnectionLost, MissingResult, MockTransport, Query, SubprocessTransport, TransportClosed, TurnState
from claude_transport.testing import FakeClaude, Scenario, steps

AGENT = {
    "type": "system",
    "subtype": "background_tasks_changed",
    "tasks": [{"task_id": "t1", "task_type": "local_agent", "description": "dig"}],
}
NO_AGENTS = {**AGENT, "tasks": []}


async def test_a_quiet_conversation_ends_by_itself() -> None:
    transport = ForeignTransport()
    query = Query(transport)
    await query.start()
    report = await query.aclose()
    assert (report.ended_by_itself, report.lost_turns, report.dropped_tasks) == (True, (), {})
    assert transport.calls == ["connect", "end_input", "reader closed", "close"]
    assert await query.aclose() == report


async def test_a_running_turn_is_interrupted_and_its_end_awaited() -> None:
    def obey(frame: Frame) -> None:
        if frame["type"] == "control_request" and frame["request"]["subtype"] == "interrupt":
            transport.say(result(None, subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming"))

    transport = ForeignTransport(on_write=obey)
    query = Query(transport)
    await query.start()
    turn = await query.send("a")
    report = await query.aclose()
    assert (report.ended_by_itself, report.lost_turns) == (True, ())
    assert (await turn.result()).outcome.code == "result.interrupted"


async def test_the_report_names_what_was_lost() -> None:
    transport = ForeignTransport()
    query = Query(transport)
    await query.start()
    turn = await query.send("a")
    transport.say(AGENT)
    await soon(lambda: query.background_tasks)
    report = await query.aclose()
    assert (report.ended_by_itself, report.lost_turns, report.dropped_tasks) == (True, (turn.uuid,), {"t1": "dig"})
    assert turn.state is TurnState.LOST


async def test_a_peer_that_does_not_end_is_closed_after_the_timeout() -> None:
    transport = ForeignTransport(ends=False)
    query = Query(transport)
    await query.start()
    turn = await query.send("a")
    report = await in_time(query.aclose(timeout=0.01))
    assert (report.ended_by_itself, report.lost_turns) == (False, (turn.uuid,))
    with pytest.raises(MissingResult):
        await turn.result()


async def test_closing_can_wait_for_background_agents() -> None:
    transport = ForeignTransport()
    query = Query(transport)
    await query.start()
    transport.say(AGENT)
    await soon(lambda: query.background_tasks)

    async def close() -> None:
        report = await query.aclose(wait_for_background=True, timeout=3600)
        assert (report.ended_by_itself, report.dropped_tasks) == (True, {})

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close)
            await anyio.wait_all_tasks_blocked()
            transport.say(NO_AGENTS)
            await anyio.wait_all_tasks_blocked()
            assert "end_input" not in transport.calls  # the turn that the agent wakes the session for has not begun
            transport.say({"type": "system", "subtype": "init"}, result(origin={"kind": "task-notification"}))


async def test_closing_that_waits_for_background_sees_the_last_callback_end() -> None:
    asked, let_go = anyio.Event(), anyio.Event()

    async def claim(_subtype: str, _fields: Frame) -> Frame:
        asked.set()
        await let_go.wait()
        return {}

    transport = ForeignTransport()
    query = Query(transport, on_request=claim)
    await query.start()
    transport.say({"type": "control_request", "request_id": "q", "request": {"subtype": "x"}})
    await in_time(asked.wait())
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: query.aclose(wait_for_background=True, timeout=60))
            await anyio.wait_all_tasks_blocked()
            let_go.set()
    assert "q" in transport.responses()


async def test_many_tasks_may_close_at_once() -> None:
    transport = ForeignTransport()
    query = Query(transport)
    await query.start()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(query.aclose)
    assert transport.calls.count("close") == 1


async def test_everybody_who_waits_is_woken_by_a_close() -> None:
    transport = ForeignTransport(ends=False)
    query = Query(transport)
    await query.start()
    turn = await query.send("a")
    everything = query.messages()
    transport.answers = False
    ends: list[str] = []

    async def wait(name: str, what: object) -> None:
        try:
            await what  # type: ignore[misc]
        except (MissingResult, StopAsyncIteration, Exception) as exc:  # noqa: BLE001 - the kind is looked at below
            ends.append(f"{name} {type(exc).__name__}")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "result", turn.result())
        tasks.start_soon(wait, "message", anext(turn))
        tasks.start_soon(wait, "everything", anext(everything, None))
        tasks.start_soon(wait, "request", query.request("mcp_status"))
        await soon(lambda: transport.requests("mcp_status"))
        await query.aclose(timeout=0)
    assert sorted(ends) == ["message MissingResult", "request ConnectionLost", "result MissingResult"]


async def test_a_cancelled_close_still_closes() -> None:
    transport = ForeignTransport(ends=False)
    query = Query(transport)
    await query.start()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await query.aclose(timeout=0.01)
    assert transport.calls[-1] == "close"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_close_cancelled_by_asyncio_itself_still_closes() -> None:
    transport = ForeignTransport(ends=False)
    query = Query(transport)
    await query.start()
    task = asyncio.create_task(query.aclose(timeout=0.05))
    await soon(lambda: "end_input" in transport.calls)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert transport.calls[-1] == "close"


async def test_a_cancelled_close_waits_for_no_background_agents() -> None:
    transport = ForeignTransport()
    query = Query(transport)
    await query.start()
    transport.say(AGENT)
    await soon(lambda: query.background_tasks)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: query.aclose(wait_for_background=True, timeout=3600))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert transport.calls[-3:] == ["end_input", "reader closed", "close"]


async def test_of_several_who_close_at_once_the_least_patient_decides() -> None:
    transport = ForeignTransport(ends=False)
    query = Query(transport)
    await query.start()
    await query.send("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: query.aclose(wait_for_background=True, timeout=3600))
        await anyio.wait_all_tasks_blocked()
        await in_time(query.aclose(timeout=0.01))
        await in_time(query.aclose(wait_for_background=True, timeout=3600))  # more patience changes nothing
    assert transport.calls[-1] == "close"


async def test_an_exception_in_the_block_closes() -> None:
    transport = ForeignTransport()
    with pytest.raises(KeyError):
        async with Query(transport):
            raise KeyError
    assert transport.calls[-1] == "close"


async def test_a_cancelled_block_closes() -> None:
    transport = ForeignTransport()
    with anyio.CancelScope() as scope:
        async with Query(transport):
            scope.cancel()
            await anyio.sleep_forever()
    assert transport.calls[-1] == "close"


async def test_a_query_that_was_never_started_closes_its_transport_too() -> None:
    transport = ForeignTransport()
    await transport.connect()
    query = Query(transport)
    await query.aclose()
    assert transport.calls == ["connect", "close"]
    with pytest.raises(TransportClosed):
        await query.start()
    with pytest.raises(TransportClosed):
        await query.send("a")


async def test_a_transport_whose_close_never_returns_is_given_up() -> None:
    class Endless(ForeignTransport):
        async def close(self) -> None:
            await super().close()
            await anyio.sleep_forever()

    async with Query(Endless(), transport_close_timeout=0.01):
        pass


async def test_a_transport_whose_reader_never_ends_is_given_up() -> None:
    class Endless(ForeignTransport):
        async def close(self) -> None:
            self.calls.append("close")

    transport = Endless(ends=False)
    query = Query(transport)
    await query.start()
    await in_time(query.aclose(timeout=0))
    assert transport.calls[-1] == "close"


async def test_nothing_is_left_of_messages_that_were_not_read() -> None:
    transport = ForeignTransport()
    query = Query(transport)
    await query.start()
    turn = await query.send("a")
    transport.say(said("one"), result())
    await turn.result()
    await query.aclose()
    assert [message.type async for message in turn] == ["assistant", "result"]


async def test_the_report_has_the_exit_code_of_a_process() -> None:
    with FakeClaude(Scenario.echo()) as fake:
        query = Query(SubprocessTransport(command=fake.command))
        await query.start()
        await (await query.send("hello")).result()
        report = await query.aclose()
    assert (report.exit_code, report.signal, report.killed, report.ended_by_itself) == (0, None, False, True)


async def test_a_process_that_ignores_everything_is_killed() -> None:
    with FakeClaude(Scenario(at_eof=[steps.IgnoreSignal("SIGTERM"), steps.Hang()])) as fake:
        query = Query(SubprocessTransport(command=fake.command, close_timeout=0.5))
        await query.start()
        report = await in_time(query.aclose(timeout=0.01))
    assert (report.ended_by_itself, report.killed) == (False, True)


async def test_abandoning_closes_in_the_background() -> None:
    transport = ForeignTransport()
    query = Query(transport)
    await query.start()
    query.abandon()
    assert query.has_ended
    await soon(lambda: "close" in transport.calls)


async def test_a_mock_may_be_looked_at_after_the_close() -> None:
    transport = MockTransport([result()])
    async with Query(transport) as query:
        await (await query.send("a")).result()
    assert not transport.is_ready()
    assert [message["type"] for message in transport.written] == ["control_request", "user"]


FORGETFUL = """
import sys, anyio
from peers import ForeignTransport, said, soon
from claude_transport import Query

async def main():
    transport = ForeignTransport()
    query = Query(transport, max_buffered_bytes=1)
    await query.start()
    transport.say(*[said("never read")] * 5)
    await soon(lambda: query.buffered_bytes)

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_that_forgets_to_close_ends_without_a_word_about_generators(backend: str) -> None:
    program = [sys.executable, "-W", "error", "-c", FORGETFUL, backend]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parent)
    assert (done.returncode, done.stderr) == (0, "")


class LeavesAtTheEnd(MockTransport):
    """A peer that is gone before `end_input()` returns."""

    async def end_input(self) -> None:
        await super().end_input()
        await anyio.wait_all_tasks_blocked()


async def test_the_end_of_the_input_is_no_error_when_the_peer_leaves_at_once() -> None:
    query = Query(LeavesAtTheEnd([{"type": "result", "subtype": "success", "is_error": False, "result": "ok"}]))
    with anyio.fail_after(30):
        async with query:
            await (await query.send("hello")).result()
            await query.end_input()
            assert [message.type async for message in query.messages()] == []


class RefusesPrompts(MockTransport):
    """Takes every line but a prompt, and says whether it has been told of the end of its input."""

    told_of_the_end = False

    def __init__(self) -> None:
        super().__init__()
        self.refusing, self.refuse = anyio.Event(), anyio.Event()

    async def write(self, data: str | bytes) -> None:
        if b'"user"' in (data.encode() if isinstance(data, str) else data):
            self.refusing.set()
            await self.refuse.wait()
            raise OSError("not this one")
        await super().write(data)

    async def end_input(self) -> None:
        self.told_of_the_end = True
        await super().end_input()


async def test_an_end_of_input_behind_a_line_that_fails_still_reaches_the_transport() -> None:
    transport = RefusesPrompts()
    query = Query(transport)

    async def send() -> None:
        with pytest.raises((ConnectionLost, TransportClosed)):
            await query.send("Hello")

    with anyio.fail_after(30):
        await query.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await transport.refusing.wait()
            tasks.start_soon(query.end_input)
            await anyio.wait_all_tasks_blocked()
            transport.refuse.set()
        assert transport.told_of_the_end
        assert (await query.aclose()).ended_by_itself


class NeverClosed:
    """Iterates over the messages of a transport, and cannot be closed."""

    def __init__(self, messages: AsyncIterator[Frame]) -> None:
        self.messages = messages

    def __aiter__(self) -> NeverClosed:
        return self

    async def __anext__(self) -> Frame:
        return await anext(self.messages)

    async def aclose(self) -> None:
        await anyio.sleep_forever()


class Unreleased(ForeignTransport):
    def read_messages(self) -> AsyncIterator[Frame]:
        return NeverClosed(super().read_messages())


@virtual_time
async def test_the_reading_side_of_a_transport_that_cannot_be_closed_is_given_up() -> None:
    transport = Unreleased()
    begun = anyio.current_time()
    async with Query(transport) as talk:
        transport.say(said("one"))
        await anext(talk.messages())
    assert anyio.current_time() - begun <= 10
    assert transport.calls[-1] == "close"
