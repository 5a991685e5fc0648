"""Tracing: one span for each turn, one for each tool call below it, all of them ended, and nothing secret in any."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.context import get_current
from span_recorder import MeterRecorder, RecordedSpan, SpanRecorder

from claude_transport.agents.registry import find_agent
from claude_transport.client.query import Query
from claude_transport.errors import ConfigurationError, ConnectionLost, TransportClosed
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.messages import ResultMessage, UserMessage
from claude_transport.protocol.redaction import Redactor
from claude_transport.testing.conformance import run_conformance
from claude_transport.testing.conformance.media import memory, wrapped
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.faults import Cut, FailWrite
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.metrics import MetricsRegistry, MetricsTransport
from claude_transport.wrappers.spans import SessionSpans
from claude_transport.wrappers.tracing import TracingTransport

BUNDLED = Path(__file__).parent.parent / "recordings"
SENTINEL = "hunter2-sentinel-Zx7Qw9"
KEY = "sk-ant-api03-" + "Ab1-" * 12
PROMPT = json.dumps({"type": "user", "message": {"role": "user", "content": SENTINEL}})
RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "stop_reason": "end_turn"}
FAILED = {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 529, "result": SENTINEL}


def said(*blocks: dict[str, Any], parent: str | None = None, model: str = "claude-x") -> dict[str, Any]:
    return {"type": "assistant", "parent_tool_use_id": parent, "message": {"id": "m", "model": model, "content": list(blocks)}}


def call(call_id: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"command": f"echo {SENTINEL}", "key": KEY}}


def answer(call_id: str, *, is_error: bool = False, parent: str | None = None) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": f"{SENTINEL} {KEY}", "is_error": is_error}
    return {"type": "user", "parent_tool_use_id": parent, "message": {"role": "user", "content": [block]}}


def entries(name: str) -> Iterator[tuple[str, bytes]]:
    for text in (BUNDLED / f"{name}.ndjson").read_text("utf-8").splitlines():
        entry = json.loads(text)
        if "trimmed_from_chars" not in entry and isinstance(entry["line"], str):
            yield entry["dir"], entry["line"].encode()


def spans_of(name: str) -> SpanRecorder:
    """The spans of a recorded session. A `TracingTransport` has loaded the agent, whose provider they name."""
    find_agent("claude-code")
    recorder = SpanRecorder()
    spans = SessionSpans(recorder)
    for way, line in entries(name):
        if way == "in":
            spans.writing(line)
            spans.written(line)
        elif way == "out":
            spans.received(decode_message(line))
    spans.ended(None)
    return recorder


async def trace_of(*messages: dict[str, Any], prompts: int = 1, **options: Any) -> SpanRecorder:
    """The spans of a session in which each prompt is written, and then all of this is read."""
    recorder = SpanRecorder()
    transport = TracingTransport(MockTransport(messages), tracer_provider=recorder, **options)
    with anyio.fail_after(30):
        async with transport:
            for _ in range(prompts):
                await transport.write(PROMPT)
            await transport.end_input()
            async for _ in transport.read_lines():
                pass
    return recorder


# ------------------------------------------------------------------------------------------------------- the recorded sessions


RECORDED = [path.stem for path in sorted(BUNDLED.glob("*.ndjson"))]


@pytest.mark.parametrize("name", RECORDED)
def test_every_prompt_of_a_recording_has_one_span_and_every_span_one_end(name: str) -> None:
    recorder = spans_of(name)
    prompts, seen = 0, set()
    for way, line in entries(name):
        message = decode_message(line) if way == "in" else None
        if isinstance(message, UserMessage) and (message.uuid is None or message.uuid not in seen):
            prompts += 1
            seen.add(message.uuid)
    assert len([span for span in recorder.turns if "claude_transport.turn.unasked" not in span.attributes]) == prompts
    assert {span.ends for span in recorder.spans} <= {1}


@pytest.mark.parametrize("name", RECORDED)
def test_the_tokens_of_all_spans_are_those_of_all_results(name: str) -> None:
    results = [message for way, line in entries(name) if way == "out" and isinstance(message := decode_message(line), ResultMessage)]
    used = sum(span.attributes.get("gen_ai.usage.output_tokens", 0) for span in spans_of(name).turns)
    if name in {"16g_resume_missing", "16h_resume_not_uuid"}:
        return  # there was no turn
    assert used == sum(result.usage.output_tokens for result in results)


def test_a_turn_says_what_it_was_and_came_to() -> None:
    (turn,) = spans_of("04a_permission_allow").turns
    assert turn.name == "invoke_agent claude"
    assert turn.kind is trace.SpanKind.CLIENT
    assert not turn.failed
    assert turn.attributes.pop("gen_ai.conversation.id")
    assert turn.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.system": "anthropic",
        "gen_ai.agent.name": "claude",
        "gen_ai.request.model": "claude-opus-5-5",
        "gen_ai.response.model": "claude-opus-5-5",
        "gen_ai.usage.input_tokens": 24,
        "gen_ai.usage.output_tokens": 14,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.response.finish_reasons": ("end_turn",),
        "claude_transport.num_turns": 2,
        "claude_transport.turn.state": "done",
    }


def test_a_tool_call_is_below_its_turn() -> None:
    recorder = spans_of("04a_permission_allow")
    (tool,) = recorder.tools
    assert recorder.parent_of(tool) is recorder.turns[0]
    assert tool.name == "execute_tool Bash"
    assert tool.attributes["gen_ai.tool.name"] == "Bash"
    assert tool.attributes["gen_ai.tool.call.id"].startswith("toolu_")
    assert not tool.failed


def test_what_a_subagent_calls_is_below_the_call_that_started_it() -> None:
    recorder = spans_of("15a_subagent_foreground")
    agent = recorder.named("execute_tool Agent")[0]
    inner = [span for span in recorder.tools if recorder.parent_of(span) is agent]
    assert [span.name for span in inner] == ["execute_tool Bash"]
    assert recorder.parent_of(agent) is recorder.turns[0]


def test_a_turn_that_a_background_task_began_has_a_span_of_its_own() -> None:
    asked, unasked = spans_of("24a_background_bash_open_stdin").turns
    assert "claude_transport.turn.unasked" not in asked.attributes
    assert unasked.attributes["claude_transport.turn.unasked"] is True
    assert unasked.attributes["gen_ai.usage.output_tokens"] == 7


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("11_529_retries2", "result.overloaded"),
        ("11_401_noretry", "exec.cli.auth_failed"),
        ("12_max_turns", "result.max_turns"),
        ("07b_interrupt_then_close", "result.interrupted"),
    ],
)
def test_a_failed_turn_says_why(name: str, code: str) -> None:
    turn = spans_of(name).turns[0]
    assert turn.failed
    assert turn.attributes["error.type"] == code
    assert turn.status.description


def test_a_folded_prompt_shares_the_result_and_not_the_tokens() -> None:
    first, second = spans_of("10f_message_folded_into_running_turn").turns
    assert second.attributes["claude_transport.turn.state"] == "folded"
    assert "gen_ai.usage.output_tokens" in first.attributes
    assert "gen_ai.usage.output_tokens" not in second.attributes


# --------------------------------------------------------------------------------------------------------------------- tools


async def test_a_call_that_failed_is_an_error_and_its_turn_is_not() -> None:
    recorder = await trace_of(said(call("t1")), answer("t1", is_error=True), RESULT)
    assert recorder.tools[0].failed
    assert recorder.tools[0].attributes["error.type"] == "tool_error"
    assert not recorder.turns[0].failed


async def test_a_call_that_never_returned_ends_with_its_turn() -> None:
    recorder = await trace_of(said(call("t1")), RESULT)
    assert (recorder.tools[0].ends, recorder.tools[0].attributes["error.type"]) == (1, "unfinished")


async def test_a_subagent_works_while_the_call_that_started_it_waits() -> None:
    inner = (said(call("t2", "Read"), parent="t1"), answer("t2", parent="t1"))
    recorder = await trace_of(said(call("t1", "Agent")), *inner, answer("t1"), RESULT)
    agent, read = recorder.tools
    assert recorder.parent_of(read) is agent


async def test_a_subagent_in_the_background_works_on_after_the_turn() -> None:
    inner = (said(call("t2", "Read"), parent="t1"), answer("t2", parent="t1"))
    recorder = await trace_of(
        said(call("t1", "Agent")), answer("t1"), said(call("t3"), parent="t1"), RESULT, *inner, answer("t3", parent="t1")
    )
    agent, early, late = recorder.tools
    assert recorder.parent_of(early) is recorder.parent_of(late) is agent
    assert not any(span.failed for span in recorder.spans)
    assert len(recorder.turns) == 1


async def test_of_the_calls_in_the_background_that_never_return_only_the_last_thousand_stay_open() -> None:
    recorder = SpanRecorder()
    spans = SessionSpans(recorder)
    messages = [said(call("t", "Agent")), answer("t"), *(said(call(f"b{number}"), parent="t") for number in range(1500)), RESULT]
    for message in messages:
        spans.received(decode_message(json.dumps(message).encode()))
    _, *background = recorder.tools
    assert [tool.ends for tool in background] == [1] * 500 + [0] * 1000
    assert background[0].attributes["error.type"] == "unfinished"
    assert background[0].failed
    assert "More than 1000 tool calls were open" in str(background[0].status.description)
    for late in (answer("b0", parent="t"), said(call("c"), parent="b499"), answer("b1499", parent="t")):
        spans.received(decode_message(json.dumps(late).encode()))
    assert recorder.parent_of(recorder.tools[-1]) is background[499]
    assert not background[-1].failed
    spans.ended(None)
    assert {tool.ends for tool in recorder.tools} == {1}


def test_of_the_calls_that_have_returned_the_last_thousand_are_remembered() -> None:
    recorder = SpanRecorder()
    spans = SessionSpans(recorder)
    for number in range(1001):
        for message in (said(call(f"b{number}", "Agent")), answer(f"b{number}")):
            spans.received(decode_message(json.dumps(message).encode()))
    for late in (said(call("of the first"), parent="b0"), said(call("of the last"), parent="b1000")):
        spans.received(decode_message(json.dumps(late).encode()))
    *agents, of_the_first, of_the_last = recorder.tools
    assert recorder.parent_of(of_the_first) is not agents[0]
    assert recorder.parent_of(of_the_last) is agents[1000]


# ------------------------------------------------------------------------------------------------------------------ endings


async def test_a_turn_that_was_cut_off_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    recorder = SpanRecorder()
    inside = FaultyTransport(MockTransport([said(call("t1")), RESULT]), [Cut(after_lines=1)])
    async with TracingTransport(inside, tracer_provider=recorder) as transport:
        await transport.write(PROMPT)
        with pytest.raises(ConnectionLost):
            async for _ in transport.read_lines():
                pass
    turn, tool = recorder.spans
    assert turn.attributes["claude_transport.turn.state"] == "lost"
    assert turn.attributes["error.type"] == tool.attributes["error.type"] == "connection.lost"
    assert (turn.ends, tool.ends) == (1, 1)
    assert (turn.failed, tool.failed) == (True, True)
    assert caplog.records == []  # of the close, which ends nothing again


async def test_a_redactor_of_the_program_is_the_one_that_content_goes_through() -> None:
    recorder = await trace_of(said(call("t1")), answer("t1"), RESULT, content=True, redactor=Redactor(secrets=[SENTINEL]))
    told = json.dumps([span.attributes for span in recorder.spans])
    assert SENTINEL not in told
    assert "[secret]" in told


async def test_what_the_cli_says_itself_names_no_model_of_the_answer() -> None:
    (turn,) = (await trace_of(said(), said(model="<synthetic>"), RESULT)).turns
    assert turn.attributes["gen_ai.response.model"] == "claude-x"


async def test_a_turn_that_nobody_waited_for_ends_with_the_session() -> None:
    recorder = SpanRecorder()
    async with TracingTransport(MockTransport([]), tracer_provider=recorder) as transport:
        await transport.write(PROMPT)
    assert (recorder.turns[0].ends, recorder.turns[0].attributes["error.type"]) == (1, "session_ended")


async def test_a_tracer_that_fails_on_one_line_of_a_batch_is_still_told_of_the_others() -> None:
    class Picky(SpanRecorder):
        def start_span(self, name: str, *args: Any, **kwargs: Any) -> Any:
            if name.startswith("execute_tool"):
                raise RuntimeError("not this one")
            return super().start_span(name, *args, **kwargs)

    class OneBatch(MockTransport):
        async def _batch(self) -> AsyncIterator[Sequence[bytes]]:
            yield [json.dumps(message).encode() for message in (said(call("t1")), RESULT)]

        def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
            return self._batch()

    recorder = Picky()
    async with TracingTransport(OneBatch(), tracer_provider=recorder) as transport:
        await transport.write(PROMPT)
        async for _ in transport.read_lines():
            pass
    assert [span.attributes["claude_transport.turn.state"] for span in recorder.turns] == ["done"]


async def test_a_prompt_that_could_not_be_written_is_an_error() -> None:
    recorder = SpanRecorder()
    async with TracingTransport(FaultyTransport(MockTransport([]), [FailWrite()]), tracer_provider=recorder) as transport:
        with pytest.raises(TransportClosed):
            await transport.write(PROMPT)
        assert (recorder.turns[0].ends, recorder.turns[0].attributes["error.type"]) == (1, "usage.closed")


# ------------------------------------------------------------------------------------------------------------------ context


async def test_a_turn_is_below_the_span_that_was_current_when_it_was_written() -> None:
    recorder = SpanRecorder()
    transport = TracingTransport(MockTransport([RESULT]), tracer_provider=recorder)
    with recorder.start_as_current_span("connecting"):
        await transport.connect()
    await transport.write(PROMPT)
    with recorder.start_as_current_span("job"):
        await transport.write(PROMPT)
    await transport.close()
    above = [recorder.parent_of(turn) for turn in recorder.turns]
    assert [span.name for span in above if span] == ["connecting", "job"]


async def test_a_turn_of_a_query_is_below_the_span_that_was_current_where_it_was_sent() -> None:
    recorder = SpanRecorder()
    transport = MetricsTransport(TracingTransport(MockTransport([RESULT] * 4), tracer_provider=recorder))

    async def ask(name: str) -> None:
        with recorder.start_as_current_span(name):
            await (await query.send(name)).result()

    with anyio.fail_after(30):
        with recorder.start_as_current_span("starting"):
            query = Query(transport)
            await query.start()
        async with anyio.create_task_group() as tasks:
            for name in ("job 1", "job 2", "job 3"):
                tasks.start_soon(ask, name)
        await (await query.send("outside of all of them")).result()
        await query.aclose()
    above = [recorder.parent_of(turn) for turn in recorder.turns]
    assert sorted(span.name for span in above[:3] if span) == ["job 1", "job 2", "job 3"]
    assert [span.name for span in above[3:] if span] == ["starting"]


async def test_a_query_through_a_tracer_of_somebody_who_keeps_quiet_is_not_disturbed() -> None:
    async with Query(TracingTransport(MockTransport([RESULT]))) as query:
        with trace.use_span(trace.NonRecordingSpan(trace.SpanContext(1, 1, is_remote=False))):
            assert (await (await query.send("Hello")).result()).result == "done"


def test_prompts_that_are_never_written_are_forgotten_one_day() -> None:
    recorder = SpanRecorder()
    spans = SessionSpans(recorder)
    with recorder.start_as_current_span("job"):
        for number in range(1001):
            spans.noted(str(number), context=get_current())
    for uuid in ("0", "1000"):
        spans.writing(json.dumps({"type": "user", "uuid": uuid, "message": {"role": "user", "content": ""}}))
    assert [recorder.parent_of(turn) is not None for turn in recorder.turns] == [False, True]


SHOW = """
import json, os
print(json.dumps({name: os.environ.get(name) for name in ("TRACEPARENT", "TRACESTATE", "BAGGAGE")}), flush=True)
"""


async def test_a_child_process_sees_the_span_that_was_current_at_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", "00-11111111111111111111111111111111-2222222222222222-01")
    recorder = SpanRecorder()
    transport = MetricsTransport(TracingTransport(SubprocessTransport(command=[sys.executable, "-c", SHOW]), tracer_provider=recorder))
    with recorder.start_as_current_span("job") as job, anyio.fail_after(30):
        async with transport:
            seen = await anext(transport.read_messages())
    own = job.get_span_context()
    assert seen == {"TRACEPARENT": f"00-{own.trace_id:032x}-{own.span_id:016x}-01", "TRACESTATE": None, "BAGGAGE": None}


async def test_a_child_keeps_the_inherited_trace_when_there_is_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    inherited = "00-11111111111111111111111111111111-2222222222222222-01"
    monkeypatch.setenv("TRACEPARENT", inherited)
    transport = TracingTransport(SubprocessTransport(command=[sys.executable, "-c", SHOW]), tracer_provider=SpanRecorder())
    with anyio.fail_after(30):
        async with transport:
            assert (await anext(transport.read_messages()))["TRACEPARENT"] == inherited


async def test_fifty_sessions_at_once_share_no_span() -> None:
    recorder = SpanRecorder()
    roots: dict[int, RecordedSpan] = {}

    async def converse(number: int) -> None:
        with recorder.start_as_current_span(f"job {number}") as job:
            roots[number] = job
            messages = [
                {**said(call(f"t{number}")), "session_id": f"s{number}"},
                answer(f"t{number}"),
                {**RESULT, "session_id": f"s{number}"},
            ]
            async with Query(TracingTransport(MockTransport(messages), tracer_provider=recorder)) as query:
                await (await query.send(f"prompt {number}")).result()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(converse, number)
    for number, job in roots.items():
        (turn,) = [span for span in recorder.turns if recorder.parent_of(span) is job]
        (tool,) = [span for span in recorder.tools if recorder.parent_of(span) is turn]
        assert tool.attributes["gen_ai.tool.call.id"] == f"t{number}"
        assert turn.attributes["gen_ai.conversation.id"] == f"s{number}"
    assert len(recorder.spans) == 150


# ------------------------------------------------------------------------------------------------------------------ content


async def test_nothing_that_was_said_is_in_a_span() -> None:
    text = {"type": "text", "text": SENTINEL}
    recorder = await trace_of(said(text), said(call("t1")), answer("t1", is_error=True), FAILED)
    assert len(recorder.spans) == 2
    assert SENTINEL not in recorder.text
    assert KEY not in recorder.text


async def test_what_was_said_is_there_for_those_who_ask_without_its_secrets() -> None:
    recorder = await trace_of(said(call("t1")), answer("t1"), RESULT, content=True)
    turn, tool = recorder.spans
    assert json.loads(turn.attributes["gen_ai.input.messages"])[0]["parts"][0]["content"] == SENTINEL
    assert json.loads(turn.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"] == "done"
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"])["command"] == f"echo {SENTINEL}"
    assert SENTINEL in tool.attributes["gen_ai.tool.call.result"]
    assert KEY not in recorder.text


async def test_what_looks_like_a_secret_is_in_no_name_either() -> None:
    named = {**said(call(KEY, name=f"mcp__{KEY}"), call("x" * 390 + KEY)), "session_id": KEY}
    recorder = await trace_of(named, {**RESULT, "session_id": KEY, "stop_reason": KEY})
    assert len(recorder.tools) == 2
    assert "sk-ant" not in recorder.text


async def test_what_was_said_is_cut() -> None:
    recorder = await trace_of(said(call("t1")), RESULT, content=True, max_content_chars=10)
    assert len(recorder.tools[0].attributes["gen_ai.tool.call.arguments"]) == 11
    recorder = await trace_of(said({**call("t1"), "input": {"text": "x" * 10_000}}), RESULT, content=True)
    assert len(recorder.tools[0].attributes["gen_ai.tool.call.arguments"]) == 4001


@pytest.mark.parametrize("limit", [0, -1, True, "10"])
def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        TracingTransport(MockTransport(), content=True, max_content_chars=limit)
    assert caught.value.option == "max_content_chars"


# --------------------------------------------------------------------------------------------------------------------- idle


class Inner(MockTransport):
    """A transport whose iterators can be recognised."""

    def __init__(self) -> None:
        super().__init__([RESULT])
        self.given: list[object] = []

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        self.given.append(iterator := super().read_messages())
        return iterator


async def converse_with(inner: Inner) -> None:
    async with TracingTransport(inner) as transport:
        await transport.write(PROMPT)
        assert transport.read_messages() is inner.given[-1]
        assert [message async for message in transport.read_messages()] == [RESULT]


async def test_without_opentelemetry_reading_is_that_of_the_transport_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("opentelemetry", "opentelemetry.trace", "opentelemetry.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    await converse_with(Inner())
    with pytest.raises(ConfigurationError, match="claude-transport\\[otel\\]"):
        MetricsRegistry().instrument()


async def test_without_an_sdk_reading_is_that_of_the_transport_inside() -> None:
    await converse_with(Inner())


def test_it_keeps_every_clause_of_the_contract() -> None:
    run_conformance(wrapped(memory(), lambda inside: TracingTransport(inside, tracer_provider=SpanRecorder()))).raise_for_failures()


# ------------------------------------------------------------------------------------------------------------------- meters


async def test_instruments_say_what_the_registry_says() -> None:
    registry, meter = MetricsRegistry(), MeterRecorder()
    registry.instrument(meter_provider=meter)
    result = {
        **RESULT,
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "total_cost_usd": 0.5,
        "modelUsage": {"claude-x": {"outputTokens": 9}},
    }
    async with Query(MetricsTransport(MockTransport([result]), registry=registry)) as query:
        await (await query.send(SENTINEL)).result()
        running = meter.collect()["claude_transport.sessions.running"]
    collected = meter.collect()
    assert [each.value for each in (*running, *collected["claude_transport.sessions.running"])] == [1, 0]
    assert [(each.value, each.attributes) for each in collected["claude_transport.results"]] == [(1, {"outcome": "ok"})]
    tokens = {str((each.attributes or {})["kind"]): each.value for each in collected["claude_transport.tokens"]}
    assert tokens == {"input": 3, "output": 4, "cache_creation": 0, "cache_read": 0}
    assert collected["claude_transport.cost_usd"][0].value == 0.5
    total = registry.snapshot()
    assert [each.value for each in collected["claude_transport.bytes"]] == [total.bytes_read, total.bytes_written]
    ((name, seconds, attributes),) = meter.recorded
    assert (name, seconds >= 0, attributes["gen_ai.request.model"]) == ("gen_ai.client.operation.duration", True, "claude-x")
    assert len(set(meter.created)) == len(meter.created)
    assert SENTINEL not in repr((collected, meter.recorded))
