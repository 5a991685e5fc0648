"""Replaying tapes: whose ids count, what fails and how it is named, how the stream ends, and in what time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from claude_transport.client.query import Query
from claude_transport.errors import (
    Busy,
    ConfigurationError,
    ConnectionLost,
    InputClosed,
    NotConnected,
    ProcessError,
    TransportClosed,
    TruncatedStream,
)
from claude_transport.protocol.envelope import encode_line
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.tape import CLOSED, INPUT_ENDED, OUTPUT_ENDED, Tape, TapeHeader, TapeRecord
from claude_transport.testing.conformance import run_conformance
from claude_transport.testing.conformance.medium import Medium
from claude_transport.testing.conformance.subject import Play, Subject
from claude_transport.transports.replay import ReplayTransport

OLD, OLD_2 = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "é done"}


def line(**frame: Any) -> bytes:
    return json.dumps(frame, ensure_ascii=False).encode()


def user(text: str = "Hi", **more: Any) -> bytes:
    return line(type="user", message={"role": "user", "content": text}, **more)


def request(subtype: str, request_id: str = "r") -> bytes:
    return line(type="control_request", request_id=request_id, request={"subtype": subtype})


def answer(request_id: str, **more: Any) -> bytes:
    return line(type="control_response", response={"subtype": "success", "request_id": request_id, **more})


def tape(*steps: tuple[str, bytes], spacing: float = 1.0) -> Tape:
    return Tape([TapeRecord(spacing * index, way, text) for index, (way, text) in enumerate(steps)])  # type: ignore[arg-type]


async def frames(transport: ReplayTransport, count: int) -> list[dict[str, Any]]:
    messages = transport.read_messages()
    return [await anext(messages) for _ in range(count)]


# ------------------------------------------------------------------------------------------------------------------------ ids


async def test_answers_carry_the_ids_of_the_live_host_in_whatever_order_they_come() -> None:
    played = tape(
        ("in", request("mcp_status", "old-1")),
        ("in", request("get_usage", "old-2")),
        ("out", answer("old-2", response={"x": "old-1"})),
        ("out", line(type="system", subtype="control_request_progress", request_id="old-1", status="started")),
        ("out", answer("old-1")),
    )
    async with ReplayTransport(played) as claude:
        await claude.write(request("get_usage", "new-b") + b"\n" + request("mcp_status", "new-a"))
        second, progress, first = await frames(claude, 3)
    assert second["response"] == {"subtype": "success", "request_id": "new-b", "response": {"x": "old-1"}}
    assert (progress["request_id"], first["response"]["request_id"]) == ("new-a", "new-a")


async def test_the_bytes_of_a_tape_are_counted_with_their_newlines_as_those_of_a_process() -> None:
    async with ReplayTransport(tape(("in", user()), ("out", line(**RESULT)), ("in", user()))) as claude:
        await claude.write(user())
        assert await frames(claude, 1) == [RESULT]
        await claude.write(user() + b"\n")
        assert (claude.info.bytes_read, claude.info.bytes_written) == (len(line(**RESULT)) + 1, 2 * (len(user()) + 1))


async def test_an_id_that_was_used_twice_is_answered_to_both() -> None:
    """[08e]"""
    played = tape(
        ("in", request("mcp_status", "dup")), ("in", request("mcp_status", "dup")), ("out", answer("dup")), ("out", answer("dup"))
    )
    async with ReplayTransport(played) as claude:
        await claude.write(request("mcp_status", "a") + b"\n" + request("mcp_status", "b"))
        assert [frame["response"]["request_id"] for frame in await frames(claude, 2)] == ["a", "b"]


async def test_a_request_without_an_id_is_answered_with_the_one_the_live_host_gave_it() -> None:
    """[18l]"""
    bare = line(type="control_request", request={"subtype": "mcp_status"})
    played = tape(("in", bare), ("out", line(type="control_response", response={"subtype": "success", "response": {}})))
    async with ReplayTransport(played) as claude:
        await claude.write(request("mcp_status", "mine"))
        assert (await frames(claude, 1))[0]["response"] == {"subtype": "success", "response": {}, "request_id": "mine"}
    async with ReplayTransport(tape(("in", request("mcp_status", "old")), ("out", answer("old")))) as claude:
        await claude.write(bare)
        assert (await frames(claude, 1))[0]["response"] == {"subtype": "success"}


async def test_frames_about_prompts_name_them_as_the_live_host_does_even_when_names_are_swapped() -> None:
    lifecycle = line(type="command_lifecycle", command_uuid=OLD, state="started", note="é")
    played = tape(
        ("in", user("1", uuid=OLD)),
        ("in", user("2", uuid=OLD_2)),
        ("out", lifecycle),
        ("out", line(type="result", user_message_uuids=[OLD, OLD_2], text=f"about {OLD}")),
    )
    async with ReplayTransport(played) as claude:
        await claude.write(user("1", uuid=OLD_2))
        await claude.write(user("2", uuid=OLD))
        started, result = await frames(claude, 2)
    assert (started["command_uuid"], started["note"]) == (OLD_2, "é")
    assert result["user_message_uuids"] == [OLD_2, OLD]
    assert result["text"] == f"about {OLD}", "only whole strings are ids"


async def test_a_query_with_ids_of_its_own_gets_its_turn_and_its_answers() -> None:
    played = tape(
        ("in", request("initialize", "init-1")),
        ("out", answer("init-1", response={"output_style": "recorded"})),
        ("in", user(uuid=OLD)),
        ("out", line(type="command_lifecycle", command_uuid=OLD, state="started")),
        ("out", line(**RESULT, user_message_uuid=OLD, user_message_uuids=[OLD])),
        ("in", request("interrupt", "i-1")),
        ("out", answer("i-1", response={"still_queued": [OLD]})),
        ("note", INPUT_ENDED),
        ("note", OUTPUT_ENDED),
        ("note", b"exit code 0"),
    )
    claude = ReplayTransport(played)
    with anyio.fail_after(30):
        async with Query(claude) as query:
            assert query.initialization.output_style == "recorded"
            turn = await query.send("something else")
            assert turn.uuid != OLD
            assert (await turn.result()).result == "é done"
            assert (await query.request("interrupt"))["still_queued"] == [turn.uuid]
    claude.assert_played()


async def test_a_host_may_introduce_itself_to_a_tape_whose_host_did_not() -> None:
    """[01]"""
    claude = ReplayTransport(tape(("in", user()), ("out", line(**RESULT)), ("note", INPUT_ENDED), ("note", OUTPUT_ENDED)))
    with anyio.fail_after(30):
        async with Query(claude) as query:
            assert (await (await query.send("Hi")).result()).result == "é done"
    claude.assert_played()


# --------------------------------------------------------------------------------------------------------- leaving the tape


async def test_a_line_that_is_not_on_the_tape_names_the_record_that_was_expected() -> None:
    played = tape(("in", user("Hello")), ("out", line(**RESULT)), ("in", request("set_model")), ("out", answer("r")))
    async with ReplayTransport(played) as claude:
        await claude.write(user())
        with pytest.raises(ExpectationFailed) as failed:
            await claude.write(request("interrupt", "x"))
        assert failed.value.step == "record 3 of 4"
        assert failed.value.expected.startswith("control_request set_model")
        assert failed.value.actual.startswith("control_request interrupt")
        messages = claude.read_messages()
        with pytest.raises(ExpectationFailed, match="record 3 of 4"):
            await anext(messages)
        assert not claude.is_ready()


async def test_a_query_that_leaves_the_tape_fails_at_once_with_the_same_error() -> None:
    played = tape(("in", user()), ("out", line(**RESULT)))
    with anyio.fail_after(30):
        async with Query(ReplayTransport(played)) as query:
            await (await query.send("1")).result()
            with pytest.raises(ExpectationFailed, match="record 2 of 2: expected no further line from the host, got user"):
                await (await query.send("2")).result()


async def test_a_reader_that_waits_hears_of_it_too() -> None:
    async with ReplayTransport(tape(("in", user()), ("out", line(**RESULT)))) as claude, anyio.create_task_group() as tasks:
        heard: list[str] = []

        async def read() -> None:
            try:
                await frames(claude, 1)
            except ExpectationFailed as failed:
                heard.append(failed.step)

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ExpectationFailed):
            await claude.write(request("interrupt"))
        with anyio.fail_after(30):
            while not heard:
                await anyio.wait_all_tasks_blocked()
        assert heard == ["record 1 of 2"]


async def test_input_that_ends_too_early_names_what_was_still_to_be_said() -> None:
    async with ReplayTransport(tape(("out", line(**RESULT)), ("in", user("Go on")))) as claude:
        await claude.end_input()
        assert len(await frames(claude, 1)) == 1
        with pytest.raises(ExpectationFailed, match=r"record 2 of 2: expected user .*Go on.*, got the end of the input"):
            await frames(claude, 1)


async def test_an_answer_to_the_wrong_question_is_not_on_the_tape() -> None:
    played = tape(("out", request("can_use_tool", "q-1")), ("in", answer("q-1")), ("out", line(**RESULT)))
    async with ReplayTransport(played) as claude:
        assert (await frames(claude, 1))[0]["request_id"] == "q-1"
        with pytest.raises(ExpectationFailed, match=r"expected control_response .*q-1.* got control_response .*q-2"):
            await claude.write(answer("q-2"))


async def test_what_the_cli_ignores_is_neither_waited_for_nor_missed() -> None:
    """[18d, 18e, 18f, 18g, 18o, 18p]"""
    ignored = [b"[1]", b"5", b"  ", b'{"a":1}', b'{"type":"keep_alive"}', answer("never-asked"), b'{"type":"control_cancel_request"}']
    played = tape(*(("in", one) for one in ignored), ("in", user()), ("out", line(**RESULT)))
    async with ReplayTransport(played) as claude:
        await claude.write(user())
        with anyio.fail_after(30):
            assert len(await frames(claude, 1)) == 1
        for one in ignored:
            await claude.write(one)
        assert claude.is_ready()


async def test_a_line_that_kills_the_cli_must_be_the_one_that_killed_it_then() -> None:
    """[18a]"""
    played = tape(("in", b'{"type":"user", broken'), ("note", OUTPUT_ENDED), ("note", b"exit code 1"))
    async with ReplayTransport(played) as claude:
        await claude.write(b"{also broken")
        with pytest.raises(ProcessError):
            await frames(claude, 1)
    async with ReplayTransport(tape(("in", user()))) as claude:
        with pytest.raises(ExpectationFailed, match=r"expected user .* got a line that is not a JSON object: '{broken'"):
            await claude.write(b"{broken")


async def test_a_host_may_be_ahead_of_the_tape() -> None:
    played = tape(("in", user("1")), ("out", line(**RESULT)), ("in", request("mcp_status", "m")), ("out", answer("m")), ("in", user("2")))
    async with ReplayTransport(played) as claude:
        await claude.write(request("mcp_status", "m") + b"\n" + user("1") + b"\n" + user("2"))
        assert [frame["type"] for frame in await frames(claude, 2)] == ["result", "control_response"]


async def test_where_it_stands_is_said_in_words() -> None:
    async with ReplayTransport(tape(("in", user("Hello")), ("out", line(**RESULT)), ("note", INPUT_ENDED))) as claude:
        assert claude.whereabouts.startswith("record 1 of 3: waiting for user {")
        with pytest.raises(ExpectationFailed, match="record 1 of 3"):
            claude.assert_played()
        await claude.write(user())
        await frames(claude, 1)
        assert claude.whereabouts == "record 3 of 3: waiting for the end of the input"


async def test_a_tape_that_only_waits_for_the_end_of_the_input_says_so() -> None:
    async with ReplayTransport(tape(("in", user("Hello")), ("out", line(**RESULT)))) as claude:
        await claude.write(user())
        await frames(claude, 1)
        assert claude.whereabouts == "record 2 of 2: everything has been played; waiting for the end of the input"
        await claude.end_input()
        assert claude.whereabouts == "record 2 of 2: everything has been played"


# ------------------------------------------------------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("ending", "kind", "exit_code", "signal"),
    [
        ([("note", b"exit code 0")], None, 0, None),
        ([("note", b"exit code 143")], ProcessError, 143, None),
        ([("note", b"exit code -9")], ProcessError, None, 9),
        ([("note", b'{"failure":"read","error":"ConnectionLost","message":"gone"}')], ConnectionLost, None, None),
        ([("note", b'{"failure":"read","error":"TruncatedStream","message":"torn"}')], TruncatedStream, None, None),
    ],
)
async def test_the_stream_ends_as_the_tape_says(
    ending: list[tuple[str, bytes]], kind: type[Exception] | None, exit_code: int | None, signal: int | None
) -> None:
    played = tape(("out", line(**RESULT)), ("err", b"last \xff"), ("note", OUTPUT_ENDED), ("err", b"words"), *ending, ("in", user()))
    async with ReplayTransport(played) as claude:
        messages = claude.read_messages()
        assert await anext(messages) == RESULT
        with pytest.raises(kind or StopAsyncIteration) as ended:
            await anext(messages)
        if isinstance(ended.value, ProcessError):
            assert ended.value.stderr_tail == "last \ufffd\nwords"
        assert not claude.is_ready()
        info = claude.info
        assert (info.exit_code, info.signal, info.stderr_tail) == (exit_code, signal, "last \ufffd\nwords")
        with pytest.raises(TransportClosed) as closed:
            await claude.write(user())
        assert (closed.value.exit_code, closed.value.signal) == (exit_code, signal)
        with pytest.raises(kind or StopAsyncIteration):
            await anext(claude.read_lines())


@pytest.mark.parametrize("rest", [[], [("note", CLOSED), ("note", b"exit code -15")]])
async def test_a_tape_whose_host_left_first_goes_on_until_the_live_host_leaves(rest: list[tuple[str, bytes]]) -> None:
    async with ReplayTransport(tape(("out", line(**RESULT)), *rest)) as claude:
        messages = claude.read_messages()
        await anext(messages)
        assert claude.is_ready()
        await claude.end_input()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)


async def test_what_came_after_the_end_of_the_input_waits_for_it() -> None:
    async with ReplayTransport(tape(("note", INPUT_ENDED), ("out", line(**RESULT)))) as claude:
        heard: list[Any] = []
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                heard.extend(await frames(claude, 1))

            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert heard == []
            await claude.end_input()
        assert heard == [RESULT]
        with pytest.raises(InputClosed):
            await claude.write(user())


# ---------------------------------------------------------------------------------------------------------------- in what time


async def test_a_speed_spreads_the_lines_as_they_were_and_waits_for_nothing_while_the_host_is_due() -> None:
    played = Tape([TapeRecord(t, way, text) for t, way, text in RECORDED])  # type: ignore[arg-type]
    naps: list[float] = []

    async def sleep(seconds: float) -> None:
        naps.append(seconds)

    async with ReplayTransport(played, speed=2, sleep=sleep) as claude:
        lines = claude.read_lines()
        assert await anext(lines) == [b'{"type":"a"}']
        await claude.write(user())
        assert await anext(lines) == [b'{"type":"b"}']
        assert await anext(lines) == [b'{"type":"c"}']
    assert [round(nap) for nap in naps] == [5, 1000, 1500]


RECORDED = [(10.0, "out", b'{"type":"a"}'), (500.0, "in", user()), (2500.0, "out", b'{"type":"b"}'), (3500.0, "out", b'{"type":"c"}')]


async def test_closing_ends_the_wait_for_a_line_whose_time_has_not_come() -> None:
    async with ReplayTransport(Tape([TapeRecord(9000.0, "out", line(**RESULT))]), speed=1) as claude:
        heard: list[Any] = []
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    heard.extend([message async for message in claude.read_messages()])

                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                await claude.close()
        assert heard == []


async def test_a_cancelled_reader_loses_no_line_whose_time_had_not_come() -> None:
    naps: list[float] = []

    async def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 1:
            await anyio.sleep_forever()

    async with ReplayTransport(Tape([TapeRecord(5.0, "out", line(**RESULT))]), speed=1, sleep=sleep) as claude:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(frames, claude, 1)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert await frames(claude, 1) == [RESULT]


# ------------------------------------------------------------------------------------------------------------------ the rest


@pytest.mark.parametrize("speed", [-1, float("inf"), float("nan")])
def test_an_impossible_speed_is_refused(speed: float) -> None:
    with pytest.raises(ConfigurationError, match="speed"):
        ReplayTransport(Tape(), speed=speed)


async def test_a_tape_is_played_from_its_file_and_its_version_shown(tmp_path: Path) -> None:
    Tape([TapeRecord(0.0, "out", b"noise"), TapeRecord(0.0, "out", line(**RESULT))], header=TapeHeader(cli_version="9.9")).write(
        tmp_path / "t"
    )
    async with ReplayTransport(tmp_path / "t") as claude:
        assert await frames(claude, 1) == [RESULT]
        assert (claude.info.cli_version, claude.info.noise_lines, claude.info.lines_read) == ("9.9", 1, 2)
    with pytest.raises(ConfigurationError, match="cannot read the tape"):
        ReplayTransport(tmp_path / "none")


async def test_the_order_of_calls_is_that_of_every_transport() -> None:
    claude = ReplayTransport(tape(("in", user())))
    with pytest.raises(NotConnected):
        await claude.write(user())
    await claude.connect()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(frames_or_end, claude)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(Busy):
            await frames(claude, 1)
        await claude.close()
    with pytest.raises(TransportClosed):
        await claude.connect()


async def frames_or_end(claude: ReplayTransport) -> None:
    assert [message async for message in claude.read_messages()] == []


class Replayed(Medium):
    """The kit's plays, put on tape."""

    name = "replay"

    @asynccontextmanager
    async def open(self, play: Play) -> AsyncIterator[Subject]:
        said = [("out", text) for text in b"".join(play.says).split(b"\n")[:-1]]
        end = {"finish": [("note", OUTPUT_ENDED), ("note", b"exit code 0")], "fail": [("note", OUTPUT_ENDED), ("note", b"exit code 3")]}
        yield Subject(transport=ReplayTransport(tape(*said, *end.get(play.then or "", []))))


def test_it_keeps_every_clause_of_the_contract_that_a_tape_can_express() -> None:
    report = run_conformance(Replayed())
    report.raise_for_failures()
    assert len(report.passed) >= 20


# ------------------------------------------------------------------------------------------------------------------ strict


def _tape_with_a_hook(answer: dict[str, Any]) -> Tape:
    registered = {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["hook_0"]}]}
    lines: list[tuple[Any, dict[str, Any]]] = [
        ("in", {"type": "control_request", "request_id": "r-1", "request": {"subtype": "initialize", "hooks": registered}}),
        ("out", {"type": "control_response", "response": {"subtype": "success", "request_id": "r-1", "response": {}}}),
        ("out", {"type": "control_request", "request_id": "q-1", "request": {"subtype": "hook_callback", "callback_id": "hook_0"}}),
        ("in", {"type": "control_response", "response": {"request_id": "q-1", **answer}}),
    ]
    return Tape([TapeRecord(0.0, kind, encode_line(line)[:-1]) for kind, line in lines])


async def _replay_to_a_host_that_answers(tape: Tape, *, strict: bool, hooks: bool, answer: dict[str, Any]) -> ReplayTransport:
    replay = ReplayTransport(tape, strict=strict)
    await replay.connect()
    registered = {"Stop": [{"hookCallbackIds": ["hook_0"]}]} if hooks else {}
    initialize = {"type": "control_request", "request_id": "x-1", "request": {"subtype": "initialize", "hooks": registered}}
    try:
        await replay.write(encode_line(initialize))
        await replay.write(encode_line({"type": "control_response", "response": {"request_id": "q-1", **answer}}))
    finally:
        await replay.close()
    return replay


SUCCESS, ERROR = {"subtype": "success", "response": {}}, {"subtype": "error", "error": "no such hook"}


async def test_a_strict_tape_takes_no_error_where_the_recorded_host_had_an_answer() -> None:
    with pytest.raises(ExpectationFailed, match="got the error 'no such hook' in control_response"):
        await _replay_to_a_host_that_answers(_tape_with_a_hook(SUCCESS), strict=True, hooks=True, answer=ERROR)
    for tape, strict, answer in ((SUCCESS, False, ERROR), (ERROR, True, ERROR), (SUCCESS, True, SUCCESS)):
        replay = await _replay_to_a_host_that_answers(_tape_with_a_hook(tape), strict=strict, hooks=True, answer=answer)
        assert replay.failure is None
        assert replay.received_last.startswith("control_response")


async def test_a_strict_tape_misses_the_hooks_that_it_calls_at_once() -> None:
    with pytest.raises(ExpectationFailed, match="the tape calls hooks for PreToolUse, and this program registers no hooks") as failed:
        await _replay_to_a_host_that_answers(_tape_with_a_hook(SUCCESS), strict=True, hooks=False, answer=SUCCESS)
    assert (failed.value.step, failed.value.expected, failed.value.actual) == ("record 1 of 4", "hooks for PreToolUse", "no hooks")
    replay = await _replay_to_a_host_that_answers(_tape_with_a_hook(SUCCESS), strict=False, hooks=False, answer=SUCCESS)
    assert replay.failure is None


async def test_lines_go_on_where_messages_were_left() -> None:
    recorded = [line(type="assistant", n=number) for number in range(5)]
    async with ReplayTransport(tape(*(("out", each) for each in recorded), ("note", OUTPUT_ENDED))) as claude:
        with anyio.fail_after(30):
            assert (await anext(claude.read_messages()))["n"] == 0
            lines = claude.read_lines()
            assert await anext(lines) == recorded[1:]
            with pytest.raises(StopAsyncIteration):
                await anext(lines)


async def test_the_lines_of_a_long_tape_come_in_batches_of_a_bounded_size() -> None:
    recorded = [line(type="assistant", n=number) for number in range(1000)]
    batches: list[Sequence[bytes]] = []
    async with ReplayTransport(tape(*(("out", each) for each in recorded))) as claude:
        lines = claude.read_lines()
        with anyio.fail_after(30):
            while sum(map(len, batches)) < len(recorded):
                batches.append(await anext(lines))
    assert [each for batch in batches for each in batch] == recorded
    assert max(map(len, batches)) <= 256
