"""A turn that stands still is told of, and one that works, waits for somebody, or is not there, never is. On clocks that jump."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from peers import ForeignTransport, Frame, answer_to, partial, permission, result, said, soon
from virtual_time import Backend, jumping_backends

from claude_transport import (
    Allow,
    CloseReport,
    ConfigurationError,
    ConnectionLost,
    InterruptOutcome,
    Query,
    SubprocessTransport,
    decode_message,
)
from claude_transport.client import CallbackContext, StallEvent, Watchdog
from claude_transport.client.watchdog import MAX_TOOL_ID_CHARS, MAX_TOOLS, NO_PROGRESS, StallDetector
from claude_transport.protocol.envelope import DecodeFailure, Message, encode_line
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn, steps

HOUR = 3600.0


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Run every test of this module on both event loops, with clocks that jump."""
    backend: Backend = request.param
    return backend


def tool_use(tool_id: str = "t1", **fields: Any) -> Frame:
    block = {"type": "tool_use", "id": tool_id, "name": "Bash", "input": {}}
    return {"type": "assistant", "message": {"role": "assistant", "content": [block]}, **fields}


def tool_result(tool_id: str = "t1") -> Frame:
    return {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": tool_id, "content": "ok"}]}}


KEEP_ALIVE: Frame = {"type": "keep_alive"}
PING: Frame = {"type": "stream_event", "event": {"type": "ping"}}
HEARTBEAT: Frame = {
    "type": "tool_progress",
    "tool_use_id": "t1-heartbeat-0",
    "tool_name": "Bash",
    "parent_tool_use_id": "t1",
    "heartbeat": True,
}


def message(frame: Frame) -> Message:
    return decode_message(encode_line(frame))


# --------------------------------------------------------------------------------------------------------- deciding, by table

Look = tuple[float, str | None]
"""When it is looked, and which clock is told then."""

DECISIONS: dict[str, Sequence[tuple[float, Frame | str] | Look]] = {
    "silence": [(0, "begin"), (9, "look"), (10, "no_bytes"), (11, "look"), (1000, "look")],
    "a message in between": [(0, "begin"), (5, said()), (10, "look"), (14, "look"), (15, "no_bytes")],
    "once for each stall": [(0, "begin"), (10, "no_bytes"), (20, "look"), (21, said()), (30, "look"), (31, "no_bytes")],
    "signs of life": [(0, "begin"), (9, KEEP_ALIVE), (18, PING), (19, "look"), (20, "no_progress"), (27, HEARTBEAT), (28, "look")],
    "signs of life that cease": [(0, "begin"), (9, PING), (18, PING), (20, "no_progress"), (28, "no_bytes"), (99, "look")],
    "signs of life after silence": [(0, "begin"), (10, "no_bytes"), (25, "look"), (26, PING), (27, "no_progress")],
    "progress after signs of life": [(0, "begin"), (9, PING), (18, PING), (20, "no_progress"), (21, partial("x")), (30, "look")],
    "a tool at work": [(0, "begin"), (1, tool_use()), (5 * HOUR, "look"), (5 * HOUR, tool_result()), (5 * HOUR + 10, "no_bytes")],
    "two tools at work": [
        (0, tool_use("a")),
        (0, tool_use("b")),
        (1, tool_result("a")),
        (99, "look"),
        (99, tool_result("b")),
        (109, "no_bytes"),
    ],
    "a tool that an interrupt ended": [(0, tool_use()), (1, result()), (2, "begin"), (12, "no_bytes")],
    "a background agent's tool": [(0, "begin"), (0, tool_use("s", parent_tool_use_id="agent")), (10, "no_bytes")],
    "a background agent talks": [(0, "begin"), *[(n, said(parent_tool_use_id="agent")) for n in range(1, 20)], (20, "no_progress")],
    "it waits for the host": [(0, "begin"), (5 * HOUR, "suspended"), (5 * HOUR, "begin"), (5 * HOUR + 10, "no_bytes")],
    "a long line trickles in": [(0, "begin"), (3, "+100"), (6, "+100"), (9, "+100"), (12, "look"), (18, "look"), (19, "no_bytes")],
    "bytes that were lines": [(0, "begin"), (3, said()), (6, "+100"), (13, "no_bytes")],
    "a new kind of message": [(0, "begin"), (9, {"type": "novelty"}), (18, {"type": "novelty"}), (27, {"type": "novelty"}), (30, "look")],
    "a retry of the API": [
        (0, "begin"),
        *[(n, {"type": "system", "subtype": "api_retry"}) for n in range(1, 40)],
        (40, "look"),
    ],
}


@pytest.mark.parametrize("steps", DECISIONS.values(), ids=DECISIONS)
def test_a_stall_is_told_when_it_is_one(steps: Sequence[tuple[float, Frame | str]]) -> None:
    detector = StallDetector(Watchdog(no_bytes=10, no_progress=20))
    bytes_read = 0
    for at, step in steps:
        if isinstance(step, dict):
            detector.saw([message(step)], at=at)
        elif step == "begin":
            detector.restart(at=at)
        else:
            bytes_read += int(step) if step.startswith("+") else 0
            stall = detector.look(at=at, bytes_read=bytes_read, suspended=step == "suspended")
            assert (stall and stall.clock) == (step if step in ("no_bytes", "no_progress") else None), at


SIGNS_OF_LIFE: list[Frame] = [
    KEEP_ALIVE,
    HEARTBEAT,
    PING,
    {"type": "system", "subtype": "task_progress", "task_id": "b"},
    {"type": "system", "subtype": "task_updated", "task_id": "b"},
    {"type": "system", "subtype": "background_tasks_changed", "tasks": []},
    {"type": "system", "subtype": "hook_progress"},
    {"type": "system", "subtype": "control_request_progress", "request_id": "r"},
    {"type": "control_response", "response": {"subtype": "success", "request_id": "r"}},
    {"type": "rate_limit_event"},
    {"type": "transcript_mirror"},
]


def test_every_sign_of_life_in_the_table_is_tried_below() -> None:
    assert {type(message(frame)) for frame in SIGNS_OF_LIFE} | {DecodeFailure} == {*NO_PROGRESS, type(message(PING))}


@pytest.mark.parametrize("sign", [*map(message, SIGNS_OF_LIFE), DecodeFailure(raw=b"log")], ids=lambda sign: str(sign.type))
def test_a_sign_of_life_is_no_progress(sign: Message) -> None:
    detector = StallDetector(Watchdog(no_bytes=10, no_progress=20))
    detector.restart(at=0)
    detector.saw([sign, sign], at=15)
    stall = detector.look(at=20, suspended=False)
    assert stall == StallEvent(clock="no_progress", seconds=20, last=sign.type)


def test_one_message_that_is_progress_is_enough_for_a_batch() -> None:
    detector = StallDetector(Watchdog(no_bytes=10, no_progress=20))
    detector.saw([message(said()), message(PING)], at=15)
    assert detector.look(at=24, suspended=False) is None


def test_of_tools_that_a_peer_reports_without_end_only_the_latest_are_remembered() -> None:
    detector = StallDetector(Watchdog(no_bytes=10, no_progress=20))
    long = "x" * MAX_TOOL_ID_CHARS
    detector.saw([message(tool_use(name)) for name in ("first", long + "y", *(f"t{n}" for n in range(MAX_TOOLS - 1)))], at=0)
    detector.saw([message(tool_result(f"t{n}")) for n in range(MAX_TOOLS - 1)], at=0)
    assert detector.look(at=10, suspended=False) is None, "the tool with the long id is still at work"
    detector.saw([message(tool_result(long + "z"))], at=10)  # the same id, as far as it is kept
    stall = detector.look(at=20, suspended=False)
    assert stall is not None
    assert stall.clock == "no_bytes"


def test_an_empty_batch_is_no_progress_and_still_bytes() -> None:
    detector = StallDetector(Watchdog(no_bytes=10, no_progress=20))
    detector.saw([], at=15)
    assert detector.look(at=16, suspended=False) is None


@pytest.mark.parametrize("limits", [(10.0, 20.0), (10.0, None), (None, 10.0), (10.0, math.inf)])
def test_no_stall_is_looked_for_later_than_it_is_due(limits: tuple[float | None, float | None]) -> None:
    detector = StallDetector(Watchdog(no_bytes=limits[0], no_progress=limits[1]))
    detector.saw([message(said())], at=3)
    at = 0.0
    for _ in range(100):
        at, before = detector.next_look(at=at), at
        assert at > before
        if stall := detector.look(at=at, suspended=False):
            assert (at, stall.seconds) == (13, 10)
            return
    pytest.fail("never looked")


@pytest.mark.parametrize("fields", [{"no_bytes": 0}, {"no_progress": -1}, {"no_bytes": "60"}, {"action": "shoot"}])
def test_a_watchdog_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Watchdog(**fields)


def test_a_query_refuses_a_watchdog_that_is_none_of_ours() -> None:
    with pytest.raises(ConfigurationError, match="watchdog"):
        Query(ForeignTransport(), watchdog=60)  # type: ignore[arg-type]


def test_a_stall_can_be_logged_as_a_dict() -> None:
    stall = StallEvent(clock="no_progress", seconds=20, last="keep_alive")
    assert stall.to_dict() == {"type": "stall_event", "clock": "no_progress", "seconds": 20, "last": "keep_alive", "killed": False}


# ----------------------------------------------------------------------------------------------------------------- end to end


async def every(seconds: float, do: Callable[[], object]) -> None:
    while True:
        await anyio.sleep(seconds)
        do()


async def test_a_silent_turn_says_so_once_to_its_reader_and_to_the_reader_of_everything() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        everything = query.messages()
        turn = await query.send("a")
        transport.say(said())
        assert [(await anext(turn)).type, (await anext(turn)).type] == ["assistant", "stall_event"]
        await anyio.sleep(24 * HOUR)
        transport.say(result())
        assert [message.type async for message in turn] == ["result"]
        stall = [await anext(everything), await anext(everything)][1]
        assert stall == StallEvent(clock="no_bytes", seconds=900, last="assistant")


async def test_a_prompt_that_nothing_is_said_to_stalls_too() -> None:
    async with Query(ForeignTransport(), watchdog=Watchdog(no_bytes=30)) as query:
        await anyio.sleep(HOUR)  # nothing runs
        first, second = await query.send("a"), await query.send("b")
        assert await anext(first) == StallEvent(clock="no_bytes", seconds=30, last="control_response")
        assert query.buffered_bytes == 0
        assert second.is_open()


async def test_keep_alives_do_not_hide_that_there_is_no_progress() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query, anyio.create_task_group() as tasks:
        turn = await query.send("a")
        tasks.start_soon(every, 30, lambda: transport.say(KEEP_ALIVE))
        assert await anext(turn) == StallEvent(clock="no_progress", seconds=1800, last="keep_alive")
        tasks.cancel_scope.cancel()


async def test_a_stall_after_a_stall_is_another_one() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        turn = await query.send("a")
        kinds = []
        for _ in range(3):
            kinds.append((await anext(turn)).type)
            transport.say(partial("x"))
            kinds.append((await anext(turn)).type)
        assert kinds == ["stall_event", "stream_event"] * 3


async def test_a_tool_may_take_hours_and_what_comes_after_it_may_not() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        turn = await query.send("a")
        transport.say(tool_use())
        await anyio.sleep(5 * HOUR)
        transport.say(tool_result())
        await anyio.sleep(800)
        transport.say(said())
        kinds = [(await anext(turn)).type for _ in range(4)]
        assert kinds == ["assistant", "user", "assistant", "stall_event"]


async def test_a_permission_may_take_five_hours_while_everything_else_goes_on() -> None:
    asked, answer = anyio.Event(), anyio.Event()

    async def ask_a_human(_name: str, _input: dict[str, Any], _context: CallbackContext) -> Allow:
        asked.set()
        await answer.wait()
        return Allow()

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=ask_a_human, watchdog=Watchdog(no_bytes=60, no_progress=60, action="kill")) as query:
        turn = await query.send("a")
        transport.say(permission("q1"))
        await asked.wait()
        for _ in range(5):
            await anyio.sleep(HOUR)
            assert query.pending_questions == ("q1",)
            assert await query.request("mcp_status") == {}
            assert await query.interrupt() is InterruptOutcome.ACKNOWLEDGED
        answer.set()
        await soon(transport.responses)
        assert transport.responses()["q1"]["response"]["behavior"] == "allow"
        transport.say(result("at last"))
        assert (await turn.result()).result == "at last"
        assert [message.type async for message in turn] == ["result"]


async def test_the_clocks_run_again_once_the_question_is_answered() -> None:
    async def ask_a_human(_name: str, _input: dict[str, Any], _context: CallbackContext) -> Allow:
        await anyio.sleep(5 * HOUR)
        return Allow()

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=ask_a_human, watchdog=Watchdog(no_bytes=60)) as query:
        begun = anyio.current_time()
        turn = await query.send("a")
        transport.say(permission("q1"))
        assert isinstance(await anext(turn), StallEvent)
        assert anyio.current_time() - begun == pytest.approx(5 * HOUR + 60)


async def test_a_consumer_that_does_not_read_is_no_stall_of_the_turn() -> None:
    transport = ForeignTransport()
    async with Query(transport, max_buffered_bytes=1, watchdog=Watchdog(no_bytes=60, action="kill")) as query:
        turn = await query.send("a")
        transport.say(said("one"))
        await soon(lambda: query.buffered_bytes)
        await anyio.sleep(5 * HOUR)
        transport.say(said("two"), result())
        assert [message.type async for message in turn] == ["assistant", "assistant", "result"]


async def test_the_clocks_run_again_once_the_host_reads_again() -> None:
    transport = ForeignTransport()
    async with Query(transport, max_buffered_bytes=1, watchdog=Watchdog(no_bytes=60)) as query:
        turn = await query.send("a")
        transport.say(said("one"))
        await soon(lambda: query.buffered_bytes)
        await anyio.sleep(5 * HOUR)
        resumed = anyio.current_time()
        assert [(await anext(turn)).type, (await anext(turn)).type] == ["assistant", "stall_event"]
        assert anyio.current_time() - resumed == pytest.approx(60)


async def test_nothing_is_told_when_no_turn_runs_or_nobody_watches() -> None:
    transport = ForeignTransport()
    async with Query(transport, watchdog=None) as query:
        turn = await query.send("a")
        await anyio.sleep(24 * HOUR)
        transport.say(result())
        assert [message.type async for message in turn] == ["result"]
    async with Query(ForeignTransport(), watchdog=Watchdog(no_bytes=600, action="kill")) as query:
        await anyio.sleep(24 * HOUR)
        assert await query.request("mcp_status") == {}


async def test_killing_ends_the_turn_and_all_requests_with_a_cause_that_says_so() -> None:
    transport = ForeignTransport(ends=False)
    causes: dict[str, object] = {}

    async def wait(name: str, what: Callable[[], Any]) -> None:
        with pytest.raises(ConnectionLost, match="no byte for 60 s") as caught:
            await what()
        causes[name] = caught.value.code

    query = Query(transport, watchdog=Watchdog(no_bytes=60, action="kill"))
    await query.start()
    turn, everything = await query.send("a"), query.messages()
    transport.answers = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "result", turn.result)
        tasks.start_soon(wait, "request", lambda: query.request("mcp_status", timeout=math.inf))
        assert await anext(turn) == StallEvent(clock="no_bytes", seconds=60, last="control_response", killed=True)
        await wait("turn", lambda: anext(turn))
    assert isinstance(await anext(everything), StallEvent)
    await wait("everything", lambda: anext(everything))
    assert causes == dict.fromkeys(["result", "request", "turn", "everything"], "transport.stalled")
    await soon(lambda: transport.calls[-1] == "close")
    assert await query.aclose() == CloseReport(ended_by_itself=False, lost_turns=(turn.uuid,))


async def test_an_answer_that_comes_in_time_keeps_a_watchdog_that_kills_quiet() -> None:
    def answer(frame: Frame) -> None:
        if frame["type"] == "user":
            transport.say(said(), result())

    transport = ForeignTransport(on_write=answer)
    async with Query(transport, watchdog=Watchdog(no_bytes=60, action="kill")) as query:
        for _ in range(5):
            assert (await (await query.send("a")).result()).result == "done"
            await anyio.sleep(HOUR)
        transport.say(answer_to({"request_id": "nobody's"}))
        assert not query.has_ended


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_process_that_hangs_is_killed_when_that_was_asked_for() -> None:
    with FakeClaude(Scenario(replies=[ScriptedTurn([steps.Text("so far"), steps.Hang()])])) as fake:
        query = Query(SubprocessTransport(command=fake.command, close_timeout=1), watchdog=Watchdog(no_bytes=0.2, action="kill"))
        with anyio.fail_after(30):
            await query.start()
            with pytest.raises(ConnectionLost) as caught:
                await (await query.send("a")).result()
            report = await query.aclose()
    assert caught.value.code == "transport.stalled"
    assert not report.ended_by_itself
