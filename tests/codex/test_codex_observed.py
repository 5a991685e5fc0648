"""What watches the lines of a transport watches those of Codex, too: metrics, traces and the log, on the recordings."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from codex_recordings import object_on
from codex_tapes import CONVERSATIONS, tape_of
from hypothesis import given, settings
from hypothesis import strategies as st
from span_recorder import MeterRecorder, RecordedSpan, SpanRecorder

from claude_transport import ReplayTransport
from claude_transport.codex.errors import error_of, interrupted
from claude_transport.codex.messages import CodexTurnError, TurnData, decode_message
from claude_transport.codex.watch import CodexWatch, RunningTurn, TurnEnded, result_of
from claude_transport.errors import ProcessError
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.messages import ResultMessage
from claude_transport.protocol.tape import INPUT_ENDED, Tape, TapeRecord
from claude_transport.protocol.token_counts import TokenCounts
from claude_transport.transport import Transport
from claude_transport.wrappers.logging import LoggingTransport
from claude_transport.wrappers.metrics import Metrics, MetricsRegistry, MetricsTransport
from claude_transport.wrappers.tracing import TracingTransport


async def play(tape: Tape, transport: Transport) -> None:
    """Play the recorded host over `transport`, a wrapper around the replay of `tape`."""
    await transport.connect()
    lines = (line async for message in transport.read_messages() for line in [message])
    for record in tape:
        if record.dir == "in":
            await transport.write(record.line + b"\n")
        elif record.dir == "out" and object_on(record.line) is not None:
            await anext(lines)
        elif record.line == INPUT_ENDED:
            await transport.end_input()
    await transport.end_input()
    async for _ in lines:
        pass
    await transport.close()


def metrics_of(ways: Iterable[tuple[str, bytes]]) -> Metrics:
    metrics = Metrics(clock=lambda: 0.0)
    for way, line in ways:
        if way == "in":
            metrics.writing(line)
            metrics.written(line)
        else:
            metrics.read([line])
    metrics.ended()
    return metrics


def ways_of(tape: Tape) -> list[tuple[str, bytes]]:
    return [(record.dir, record.line) for record in tape if record.dir in ("in", "out")]


OUTCOMES = {
    "app_text": {"ok": 2},
    "app_two_threads_at_once": {"ok": 2},
    "app_steer": {"ok": 1},
    "app_401": {"exec.cli.auth_failed": 1},
    "app_429": {"result.rate_limited": 1},
    "app_500": {"result.server_error": 1},
    "app_response_failed_context": {"result.prompt_too_long": 1},
    "app_interrupt": {"result.interrupted": 1, "ok": 1},
    "app_command_cancel": {"result.interrupted": 1},
    "app_eof_during_turn": {},
}


@pytest.mark.parametrize("name", OUTCOMES)
async def test_results_are_counted_by_the_codes_of_the_errors(name: str) -> None:
    transport = MetricsTransport(ReplayTransport(tape_of(name)))
    await play(tape_of(name), transport)
    snapshot = transport.metrics.snapshot()
    assert snapshot.results == OUTCOMES[name]
    assert snapshot.unreadable_lines == 0
    assert snapshot.result.count == sum(OUTCOMES[name].values()) + 2 * (name == "app_steer")


async def test_tokens_are_counted_once_and_none_in_two_kinds() -> None:
    transport = MetricsTransport(ReplayTransport(tape_of("app_command_accept")))
    await play(tape_of("app_command_accept"), transport)
    snapshot = transport.metrics.snapshot()
    assert snapshot.tokens == TokenCounts(input_tokens=120, output_tokens=14, cache_read_input_tokens=80)
    assert snapshot.models["gpt-5.5"].tokens == snapshot.tokens
    assert (snapshot.api_messages, snapshot.prompts, snapshot.cost_usd) == (2, 1, 0.0)
    assert snapshot.tokens_in_progress == TokenCounts()
    assert (snapshot.first_message.count, snapshot.result.count) == (1, 1)


async def test_what_a_resumed_thread_has_used_before_is_not_counted_again() -> None:
    transport = MetricsTransport(ReplayTransport(tape_of("app_resume_2")))
    await play(tape_of("app_resume_2"), transport)
    assert transport.metrics.snapshot().tokens == TokenCounts(input_tokens=60, output_tokens=7, cache_read_input_tokens=40)


def test_messages_are_counted_by_their_method() -> None:
    snapshot = metrics_of(ways_of(tape_of("app_dynamic_tool"))).snapshot()
    assert snapshot.messages_written == {"initialize": 1, "initialized": 1, "thread/start": 1, "turn/start": 1, "answer": 1}
    assert snapshot.messages_read["item/tool/call"] == 1
    assert snapshot.messages_read["answer"] == 3
    assert 'type="turn/completed"' in metrics_of(ways_of(tape_of("app_text"))).prometheus_text()


def test_a_method_that_is_no_name_and_a_flood_of_methods_do_not_grow_the_labels() -> None:
    ways = [("in", b'{"id":1,"method":"initialize"}')]
    ways += [("out", b'{"method":"%s"}' % name) for name in (b"a b", b"x" * 500, b"\\u001b[31m", b"a/b/c/d/e/f")]
    ways += [("out", b'{"method":"made/up%d"}' % number) for number in range(500)]
    ways += [("out", b"{"), ("out", b'{"method":7}'), ("out", b'{"method":"turn/completed","params":7}')]
    snapshot = metrics_of(ways).snapshot()
    assert len(snapshot.messages_read) <= 101
    assert snapshot.messages_read["other"] >= 400
    assert snapshot.unreadable_lines == 1
    assert snapshot.results == {}


def test_pieces_of_a_message_are_counted_without_being_decoded() -> None:
    delta = b'{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"1","itemId":"m","delta":"word"},"emittedAtMs":1}'
    metrics = metrics_of([("in", b'{"id":1,"method":"initialize"}'), *[("out", delta)] * 50])
    assert metrics.snapshot().messages_read == {"item/agentMessage/delta": 50}


@pytest.mark.parametrize("head", [b'{"method":"turn/completed","params":{"turn":{"id":"one"', b'{"method":"turn/completed"}  '])
def test_a_line_of_which_only_the_head_was_kept_has_no_kind(head: bytes) -> None:
    line = OversizedLine(head, size=10**8, limit=len(head))
    snapshot = metrics_of([("in", b'{"id":1,"method":"initialize"}'), ("out", line)]).snapshot()
    assert (snapshot.messages_read, snapshot.unreadable_lines, snapshot.results) == ({}, 1, {})


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_however_the_lines_are_cut_into_batches_the_counts_are_the_same(data: st.DataObject) -> None:
    tape = tape_of(data.draw(st.sampled_from(sorted(OUTCOMES))))
    ways, batched, at = ways_of(tape), Metrics(clock=lambda: 0.0), 0
    while at < len(ways):
        way = ways[at][0]
        run = next((end for end in range(at, len(ways)) if ways[end][0] != way), len(ways))
        size = data.draw(st.integers(1, run - at))
        lines = [line for _, line in ways[at : at + size]]
        if way == "in":
            written = b"\n".join(lines)
            batched.writing(written)
            batched.written(written)
        else:
            batched.read(lines)
        at += size
    batched.ended()
    assert batched.snapshot() == metrics_of(ways).snapshot()


def test_a_refused_write_is_no_prompt() -> None:
    metrics = Metrics(clock=lambda: 0.0)
    line = b'{"id":1,"method":"turn/start","params":{"threadId":"t","input":[]}}'
    metrics.writing(line)
    metrics.not_written(line)
    metrics.read(
        [b'{"id":1,"result":{"turn":{"id":"one"}}}', b'{"method":"turn/completed","params":{"turn":{"id":"one","status":"completed"}}}']
    )
    snapshot = metrics.snapshot()
    assert (snapshot.prompts, snapshot.result.count, snapshot.results) == (0, 0, {"ok": 1})


async def test_an_exported_duration_names_the_provider_and_the_model() -> None:
    recorder, registry = MeterRecorder(), MetricsRegistry()
    registry.instrument(meter_provider=recorder)
    await play(tape_of("app_401"), MetricsTransport(ReplayTransport(tape_of("app_401")), registry=registry))
    ((name, _, attributes),) = recorder.recorded
    assert name == "gen_ai.client.operation.duration"
    assert attributes["gen_ai.provider.name"] == "openai"
    assert attributes["gen_ai.request.model"] == "gpt-5.5"
    assert attributes["error.type"] == "exec.cli.auth_failed"


async def test_a_codex_that_is_killed_is_a_failure_and_loses_its_prompt() -> None:
    recorder, registry = MeterRecorder(), MetricsRegistry()
    registry.instrument(meter_provider=recorder)
    tape = tape_of("app_killed_while_a_command_runs")
    with pytest.raises(ProcessError):
        async with MetricsTransport(ReplayTransport(tape), registry=registry) as transport:
            await play(tape, transport)
    counted = registry.snapshot()
    code = {"exec.cli.exited": 1}
    assert (counted.prompts, counted.connects, counted.failures, counted.lost_prompts) == (1, {"ok": 1}, code, code)
    assert [(name, attributes) for name, _, attributes in recorder.recorded] == [
        (
            "gen_ai.client.operation.duration",
            {
                "gen_ai.provider.name": "openai",
                "gen_ai.system": "openai",
                "gen_ai.operation.name": "invoke_agent",
                "error.type": "exec.cli.exited",
            },
        )
    ]


NAMES = ("contextWindowExceeded", "usageLimitExceeded", "serverOverloaded", "modelNotFound", "cyberPolicy", "internalServerError")
INFOS: tuple[Any, ...] = (
    *NAMES,
    *("sessionBudgetExceeded", "rateLimitExceeded", "unauthorized", "badRequest", "other", "sandboxError", "new", None, 7, {}),
    *(
        {kind: {"httpStatusCode": status}}
        for kind in ("httpConnectionFailed", "responseTooManyFailedAttempts")
        for status in (401, 402, 429, 500, 529, None)
    ),
)


@pytest.mark.parametrize("info", INFOS, ids=str)
def test_the_result_of_a_failed_turn_has_the_code_of_its_error(info: Any) -> None:
    failure = CodexTurnError(message="rate limit, overloaded, 401", codex_error_info=info)
    result = result_of(TurnData(id="one", status="failed", error=failure), RunningTurn(id="one", thread_id="t"))
    assert (result.outcome.code, result.outcome.ok) == (error_of(failure).code, False)
    assert result.outcome.retryable == error_of(failure).retryable


def test_the_result_of_an_interrupted_turn_says_so() -> None:
    result = result_of(TurnData(id="one", status="interrupted"), RunningTurn(id="one", thread_id="t", text="half"))
    assert (result.outcome.code, result.result) == (interrupted().code, None)


@pytest.mark.parametrize(("told", "shown"), [(304, 304), (None, 0)])
def test_the_result_of_a_turn_says_how_long_it_took(told: int | None, shown: int) -> None:
    assert result_of(TurnData(id="one", status="completed", duration_ms=told), RunningTurn(id="one", thread_id="t")).duration_ms == shown


def test_a_turn_that_is_ended_twice_counts_once() -> None:
    watch, ended = CodexWatch(), b'{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"one","status":"completed"}}}'
    events = [event for _ in range(3) for event in watch.heard(decode_message(ended))]
    assert [type(event) for event in events] == [TurnEnded]


def test_of_turns_that_are_over_the_last_thousand_are_remembered() -> None:
    watch = CodexWatch()

    def end(number: int) -> int:
        params = {"threadId": "t", "turn": {"id": str(number), "status": "completed"}}
        return len(watch.heard(decode_message(json.dumps({"method": "turn/completed", "params": params}).encode())))

    assert sum(end(number) for number in range(1001)) == 1001
    assert (end(1000), end(1), end(0)) == (0, 0, 1)


def test_the_last_thread_is_that_of_the_last_message_that_has_one() -> None:
    watch, seen = CodexWatch(), []
    for params in (b'{"threadId":"one"}', b"{}", b'{"threadId":"two"}', b'{"threadId":""}'):
        watch.heard(decode_message(b'{"method":"brand/new","params":%s}' % params))
        seen.append(watch.last_thread)
    assert seen == ["one", "one", "two", "two"]


def test_a_flood_of_prompts_and_turns_costs_bounded_memory() -> None:
    watch = CodexWatch()
    for number in range(3000):
        watch.said(decode_message(b'{"id":%d,"method":"turn/start","params":{"threadId":"t%d"}}' % (number, number)))
        watch.heard(decode_message(b'{"method":"turn/started","params":{"threadId":"t","turn":{"id":"%d"}}}' % number))
    turns, prompts = watch.ended()
    assert (len(turns), len(prompts)) == (1000, 1000)


async def spans_of(name: str, **options: Any) -> SpanRecorder:
    recorder = SpanRecorder()
    await play(tape_of(name), TracingTransport(ReplayTransport(tape_of(name)), tracer_provider=recorder, **options))
    assert all(span.ends == 1 for span in recorder.spans)
    return recorder


def named(recorder: SpanRecorder, name: str) -> list[RecordedSpan]:
    return [span for span in recorder.spans if span.name == name]


async def test_a_turn_is_a_span_and_its_command_a_span_below_it() -> None:
    recorder = await spans_of("app_command_accept")
    (turn,), (command,) = named(recorder, "invoke_agent codex"), named(recorder, "execute_tool commandExecution")
    assert command.parent == turn.get_span_context()
    thread = next(json.loads(line)["params"]["threadId"] for line in tape_of("app_command_accept").lines("in") if b"turn/start" in line)
    assert turn.attributes["gen_ai.conversation.id"] == thread
    expected = {
        "gen_ai.provider.name": "openai",
        "gen_ai.agent.name": "codex",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.request.model": "gpt-5.5",
        "gen_ai.response.model": "gpt-5.5",
        "gen_ai.usage.input_tokens": 200,
        "gen_ai.usage.output_tokens": 14,
        "gen_ai.usage.cache_read.input_tokens": 80,
        "claude_transport.num_turns": 2,
        "claude_transport.turn.state": "done",
    }
    assert {key: turn.attributes.get(key) for key in expected} == expected
    assert not turn.failed
    assert "Make a file" not in str([span.attributes for span in recorder.spans])


@pytest.mark.parametrize(("name", "failed"), [("app_command_accept", False), ("app_command_decline", True), ("app_command_cancel", True)])
async def test_a_tool_call_that_was_declined_is_a_failed_span(name: str, failed: bool) -> None:
    (command,) = named(await spans_of(name), "execute_tool commandExecution")
    assert command.failed is failed


@pytest.mark.parametrize(("name", "tool"), [("app_file_accept", "fileChange"), ("app_dynamic_tool", "add")])
async def test_other_tools_have_spans_too(name: str, tool: str) -> None:
    (span,) = named(await spans_of(name), f"execute_tool {tool}")
    assert not span.failed


@pytest.mark.parametrize(
    ("name", "code"), [("app_401", "exec.cli.auth_failed"), ("app_interrupt_while_a_command_runs", "result.interrupted")]
)
async def test_a_turn_that_failed_has_the_code_of_its_error(name: str, code: str) -> None:
    (turn,) = named(await spans_of(name), "invoke_agent codex")
    assert turn.failed
    assert turn.attributes["error.type"] == code


async def test_a_turn_without_an_end_is_lost() -> None:
    (turn,) = named(await spans_of("app_eof_during_turn"), "invoke_agent codex")
    assert turn.failed
    assert turn.attributes["claude_transport.turn.state"] == "lost"


async def test_prompts_that_join_a_turn_have_spans_without_its_tokens() -> None:
    turns = named(await spans_of("app_steer"), "invoke_agent codex")
    states = [turn.attributes["claude_transport.turn.state"] for turn in turns]
    assert sorted(states) == ["done", "dropped", "folded", "folded"]
    assert sum("gen_ai.usage.input_tokens" in turn.attributes for turn in turns) == 1
    (refused,) = (turn for turn in turns if turn.attributes["claude_transport.turn.state"] == "dropped")
    assert refused.attributes["error.type"] == "control.jsonrpc"


async def test_texts_are_in_the_spans_when_they_are_asked_for() -> None:
    recorder = await spans_of("app_command_accept", content=True)
    (turn,), (command,) = named(recorder, "invoke_agent codex"), named(recorder, "execute_tool commandExecution")
    assert "Make a file" in turn.attributes["gen_ai.input.messages"]
    assert "Hello, world" in turn.attributes["gen_ai.output.messages"]
    assert "touch made-by-command" in command.attributes["gen_ai.tool.call.arguments"]


async def test_turns_of_two_threads_are_two_spans_side_by_side() -> None:
    turns = named(await spans_of("app_two_threads_at_once"), "invoke_agent codex")
    assert len({turn.attributes["gen_ai.conversation.id"] for turn in turns}) == 2
    assert [turn.attributes["gen_ai.usage.output_tokens"] for turn in turns] == [7, 7]
    assert [turn.attributes["gen_ai.response.model"] for turn in turns] == ["gpt-5.5", "gpt-5.5"]


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_every_recording_is_traced_to_its_end(name: str) -> None:
    if name != "app_killed_while_a_command_runs":
        await spans_of(name)


async def test_a_review_that_no_prompt_began_is_an_unasked_turn() -> None:
    tape = Tape(
        [
            TapeRecord(0, "in", b'{"id":1,"method":"review/start","params":{"threadId":"t"}}'),
            TapeRecord(0, "out", b'{"method":"turn/started","params":{"threadId":"t","turn":{"id":"one"}}}'),
            TapeRecord(0, "out", b'{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"one","status":"completed"}}}'),
        ]
    )
    recorder = SpanRecorder()
    await play(tape, TracingTransport(ReplayTransport(tape), tracer_provider=recorder))
    (turn,) = recorder.spans
    assert turn.attributes["claude_transport.turn.unasked"] is True
    assert (turn.ends, turn.failed) == (1, False)


async def test_the_log_names_methods_and_ids(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="claude_transport.wire"):
        replay = ReplayTransport(tape_of("app_dynamic_tool"))
        await play(tape_of("app_dynamic_tool"), LoggingTransport(replay, logger="claude_transport.wire"))
    lines = [record for record in caplog.records if getattr(record, "claude_event", "") == "line"]
    kinds = {(record.claude_direction, record.claude_type) for record in lines}  # type: ignore[attr-defined]
    assert {("sent", "turn/start"), ("received", "answer"), ("received", "item/tool/call"), ("sent", "answer")} <= kinds
    question = next(record for record in lines if record.claude_type == "item/tool/call")  # type: ignore[attr-defined]
    assert question.claude_request_id == "0"  # type: ignore[attr-defined]
    assert question.getMessage().startswith("received item/tool/call 0 (")


async def test_the_log_names_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="claude_transport.wire"):
        await play(tape_of("app_before_initialize"), LoggingTransport(ReplayTransport(tape_of("app_before_initialize"))))
    assert any(record.getMessage().startswith("received error ") for record in caplog.records)


def test_a_listener_gets_a_result_message_for_a_turn_of_codex() -> None:
    told: list[ResultMessage] = []
    metrics = Metrics(clock=lambda: 0.0)
    metrics.on_result(lambda _, result: told.append(result))
    for way, line in ways_of(tape_of("app_text")):
        if way == "in":
            metrics.writing(line)
            metrics.written(line)
        else:
            metrics.read([line])
    assert [(result.result, result.outcome.code) for result in told] == [("Hello, world", "ok")] * 2


def test_who_watches_claude_loads_nothing_of_codex() -> None:
    code = """
import sys
import claude_transport.gateway.gateway, claude_transport.inspection.timeline, claude_transport.pool.pool
from claude_transport.wrappers.metrics import Metrics
metrics = Metrics(clock=lambda: 0.0)
metrics.writing(b'{"type":"user","message":{"role":"user","content":"x"}}')
metrics.read([b'{"type":"result","subtype":"success","is_error":false}'])
loaded = [name for name in sys.modules if name.startswith("claude_transport.codex.") or ".codex_" in name]
assert set(loaded) <= {"claude_transport.codex.options", "claude_transport.codex.turns"}, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
