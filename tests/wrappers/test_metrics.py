"""Metrics: exact counts, each token once, and nothing of one session in another."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.client.query import Query
from claude_transport.errors import ConfigurationError, ConnectionLost, TransportClosed
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.messages import ResultMessage
from claude_transport.protocol.token_counts import TokenCounts
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.testing.conformance import run_conformance
from claude_transport.testing.conformance.media import memory, wrapped
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.base import TransportWrapper
from claude_transport.wrappers.faults import FailWrite
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.metrics import Metrics, MetricsRegistry, MetricsTransport
from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot, prometheus_text
from claude_transport.wrappers.prompt_watch import size_of, without_deltas

BUNDLED = Path(__file__).parent.parent / "recordings"
SENTINEL = "hunter2-sentinel-Zx7Qw9"
PROMPT = {"type": "user", "message": {"role": "user", "content": f"my password is {SENTINEL}"}}

# Turns whose result says otherwise than the messages of the turn, and what it is about them.
UNEQUAL = {
    "07a_interrupt_during_stream": "the result of an interrupted turn says 0",
    "07b_interrupt_then_close": "the result of an interrupted turn says 0",
    "07f_interrupt_cancel_queued": "the result of an interrupted turn says 0",
    "10c_message_during_turn_priority_now": "the result of an interrupted turn says 0",
    "20b_sigint_mid_stream": "the result of an interrupted turn says 0",
    "11_empty_content": "the CLI asked again when it got nothing, and shows no message of that",
    "12b_max_budget": "the message that broke the budget is shown, and not in the usage",
}
# Sessions that go on with another one's count.
RESUMED = {"16b_resume", "16j_continue", "16m_resume_fork_and_session_id"}


def entries(path: Path) -> Iterator[tuple[float, str, bytes]]:
    for text in path.read_text("utf-8").splitlines():
        entry = json.loads(text)
        if "trimmed_from_chars" not in entry:
            yield entry["t"], entry["dir"], entry["line"].encode() if isinstance(entry["line"], str) else b""


class Recording:
    """A recorded session, counted in its own time."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.metrics = Metrics(clock=lambda: self.now)
        self.results: list[ResultMessage] = []
        self.before_results: list[MetricsSnapshot] = []
        self.partial = False
        for self.now, way, line in entries(path):
            if way == "in":
                self.metrics.writing(line)
                self.metrics.written(line)
            elif way == "out":
                self._hear(line)
        self.snapshot = self.metrics.snapshot()

    def _hear(self, line: bytes) -> None:
        message = decode_message(line)
        self.partial = self.partial or message.type == "stream_event"
        if isinstance(message, ResultMessage):
            self.before_results.append(self.metrics.snapshot())
            self.results.append(message)
        self.metrics.read([line])


RECORDED = [path for path in sorted(BUNDLED.glob("*.ndjson")) if '\\"result\\"' in path.read_text("utf-8")]
EACH = pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)


# ------------------------------------------------------------------------------------------------------------------- tokens


def test_the_recordings_hold_results() -> None:
    assert sum(len(Recording(path).results) for path in RECORDED) > 150


@EACH
def test_the_tokens_of_a_recording_are_those_of_its_results(path: Path) -> None:
    recording = Recording(path)
    for name in TokenCounts.__struct_fields__:
        assert getattr(recording.snapshot.tokens, name) == sum(getattr(result.usage, name) for result in recording.results)


@EACH
def test_each_message_counts_once_while_the_turn_runs(path: Path) -> None:
    recording = Recording(path)
    for before, result in zip(recording.before_results, recording.results, strict=True):
        if path.stem in UNEQUAL and before.tokens_in_progress.input_tokens != result.usage.input_tokens:
            continue
        assert before.tokens_in_progress.input_tokens == result.usage.input_tokens
        assert before.tokens_in_progress.cache_read_input_tokens == result.usage.cache_read_input_tokens
        if recording.partial:
            assert before.tokens_in_progress.output_tokens == result.usage.output_tokens


@EACH
def test_cost_and_models_of_a_recording_are_what_its_process_used(path: Path) -> None:
    recording = Recording(path)
    if not recording.results or path.stem in RESUMED or path.stem == "18za_compact_and_clear":
        return
    last = recording.results[-1]
    assert recording.snapshot.cost_usd == pytest.approx(last.total_cost_usd)
    assert {model: used.tokens.output_tokens for model, used in recording.snapshot.models.items()} == {
        model: used.output_tokens for model, used in last.model_usage.items()
    }


@pytest.mark.parametrize("name", sorted(RESUMED))
def test_a_resumed_session_does_not_count_what_came_before_it(name: str) -> None:
    recording = Recording(BUNDLED / f"{name}.ndjson")
    assert recording.snapshot.cost_usd == pytest.approx(0.000188)
    assert recording.results[-1].total_cost_usd > 0.0003


def test_a_cleared_conversation_keeps_the_count_of_the_process() -> None:
    recording = Recording(BUNDLED / "18za_compact_and_clear.ndjson")
    assert recording.results[-1].total_cost_usd == pytest.approx(0.000188)
    assert recording.snapshot.cost_usd == pytest.approx(0.00094)


def test_subagents_are_in_the_cost_and_not_in_the_tokens_of_the_conversation() -> None:
    snapshot = Recording(BUNDLED / "15a_subagent_foreground.ndjson").snapshot
    assert (snapshot.tokens.input_tokens, snapshot.models["claude-opus-5-5"].tokens.input_tokens) == (36, 60)
    assert snapshot.api_messages == 5


def test_a_message_of_several_lines_is_one_message() -> None:
    assert Recording(BUNDLED / "04a_permission_allow.ndjson").snapshot.api_messages == 2


def test_a_result_that_is_said_twice_counts_once() -> None:
    metrics = Metrics(clock=lambda: 0.0)
    line = json.dumps({"type": "result", "uuid": "r1", "usage": {"input_tokens": 5}}).encode()
    metrics.read([line, line])
    assert (metrics.snapshot().tokens.input_tokens, metrics.snapshot().results) == (5, {"ok": 1})


def test_a_cli_that_only_says_cumulative_numbers_is_counted_by_their_growth() -> None:
    metrics = Metrics(clock=lambda: 0.0)
    for cost, tokens in ((0.25, 10), (0.75, 30), (0.125, 5)):  # the last one after a /clear
        usage = {"inputTokens": tokens, "outputTokens": 1, "costUSD": cost}
        metrics.read([json.dumps({"type": "result", "total_cost_usd": cost, "modelUsage": {"m": usage}}).encode()])
    snapshot = metrics.snapshot()
    assert snapshot.cost_usd == snapshot.models["m"].cost_usd == 0.875
    assert snapshot.models["m"].tokens.input_tokens == 35


async def test_the_counts_of_a_session_go_on_with_its_next_process_whose_own_numbers_begin_at_zero() -> None:
    metrics, registry = Metrics(), MetricsRegistry()
    for costs in ((0.25, 0.5), (0.75,)):
        replies = [{"type": "result", "total_cost_usd": cost, "modelUsage": {"m": {"costUSD": cost}}} for cost in costs]
        transport = MetricsTransport(MockTransport(replies), metrics=metrics, registry=registry)
        async with Query(transport) as query:
            for _ in costs:
                await (await query.send("x")).result()
            assert registry.running == 1
        assert registry.running == 0
        del transport  # its end must not retire the next one
        gc.collect()
    snapshot = metrics.snapshot()
    assert (snapshot.prompts, snapshot.results, snapshot.cost_usd, snapshot.models["m"].cost_usd) == (3, {"ok": 3}, 1.25, 1.25)
    assert registry.snapshot() == snapshot
    del metrics
    gc.collect()
    assert registry.snapshot() == snapshot, "what is gone stays in the sum"


def test_what_is_no_metrics_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="metrics must be a Metrics, not dict") as caught:
        MetricsTransport(MockTransport(), metrics={})  # type: ignore[arg-type]
    assert caught.value.option == "metrics"


# --------------------------------------------------------------------------------------------------------------------- lines


SAMPLES = sorted({line for path in RECORDED for _, way, line in entries(path) if way == "out"}, key=len)[::9]


@given(st.lists(st.sampled_from(SAMPLES), max_size=40), st.randoms())
def test_types_bytes_and_lines_are_exact_however_lines_are_batched(lines: list[bytes], random: Any) -> None:
    metrics = Metrics(clock=lambda: 0.0)
    at = 0
    while at < len(lines):
        size = random.randint(1, 10)
        metrics.read(lines[at : at + size])
        at += size
    snapshot = metrics.snapshot()
    expected: dict[str, int] = {}
    for line in lines:
        kind = json.loads(line)["type"]
        expected[kind] = expected.get(kind, 0) + 1
    assert snapshot.messages_read == expected
    assert snapshot.bytes_read == sum(len(line) + 1 for line in lines)
    assert snapshot.lines_read == len(lines)


DELTA = b'{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}},"uuid":"u"}'


@pytest.mark.parametrize(
    "line",
    [
        DELTA.replace(b'","index', b'-2","index'),
        DELTA.replace(b"content_block_delta", b"content_block_stop"),
        DELTA.replace(b'{"type":"stream_event",', b'{"type":"stream_event" ,'),
        b'{"event":{"type":"content_block_delta"},"type":"stream_event"}',
        DELTA[:40],
        b"",
        b"\xff",
    ],
)
def test_only_what_surely_is_a_piece_of_an_answer_is_passed_over(line: bytes) -> None:
    assert without_deltas([DELTA, line, DELTA]) == [line]


def test_the_true_size_of_a_line_over_the_limit_counts_though_only_its_head_was_kept() -> None:
    metrics = Metrics(clock=lambda: 0.0)
    metrics.read([DELTA, OversizedLine(b'{"type":"assistant"', size=5000, limit=100), b"noise"])
    snapshot = metrics.snapshot()
    assert snapshot.bytes_read == size_of([DELTA]) + 5001 + 6
    assert (snapshot.lines_read, snapshot.unreadable_lines, snapshot.messages_read) == (3, 2, {"stream_event": 1})


def test_a_peer_that_makes_up_types_does_not_grow_the_memory() -> None:
    metrics = Metrics(clock=lambda: 0.0)
    metrics.read([b'{"type":"t%d"}' % number for number in range(5000)])
    read = metrics.snapshot().messages_read
    assert len(read) == 101
    assert read["other"] == 4900


def test_a_type_that_is_no_name_is_counted_and_not_shown() -> None:
    metrics = Metrics(clock=lambda: 0.0)
    metrics.read([b'{"type":"hunter2 and more"}', b'{"type":"%s"}' % (b"x" * 51), b'{"type":"Hunter2"}', b'{"type":"keep_alive"}'])
    assert metrics.snapshot().messages_read == {"other": 3, "keep_alive": 1}


async def test_bytes_are_those_that_the_transport_inside_carried() -> None:
    with FakeClaude(Scenario.text("Hello")) as fake, anyio.fail_after(30):
        transport = MetricsTransport(SubprocessTransport(command=fake.command))
        async with Query(TransportWrapper(transport)) as query:
            await (await query.send("Hi")).result()
    snapshot = transport.metrics.snapshot()
    assert (snapshot.bytes_read, snapshot.lines_read) == (transport.info.bytes_read, transport.info.lines_read)
    assert snapshot.bytes_written == transport.info.bytes_written
    assert snapshot.messages_written["user"] == snapshot.prompts == 1
    assert snapshot.results == {"ok": 1}


async def test_a_write_that_failed_is_not_counted_and_its_prompt_not_waited_for() -> None:
    transport = MetricsTransport(FaultyTransport(MockTransport([{"type": "result"}]), [FailWrite()]))
    async with transport:
        with pytest.raises((ConnectionLost, TransportClosed)):
            await transport.write(json.dumps(PROMPT))
    snapshot = transport.metrics.snapshot()
    assert (snapshot.bytes_written, snapshot.lines_written, snapshot.prompts, snapshot.messages_written) == (0, 0, 0, {})


async def test_text_bytes_and_a_missing_newline_count_alike() -> None:
    transport = MetricsTransport(MockTransport())
    line = json.dumps({"type": "user", "message": {"role": "user", "content": "Grüße"}}, ensure_ascii=False)
    async with transport:
        for data in (line, f"{line}\n", line.encode(), f"{line}\n{line}\n".encode()):
            await transport.write(data)
    snapshot = transport.metrics.snapshot()
    assert snapshot.bytes_written == 5 * (len(line.encode()) + 1)
    assert (snapshot.lines_written, snapshot.prompts, snapshot.messages_written) == (5, 5, {"user": 5})


# --------------------------------------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("name", "first", "result"),
    [
        ("07a_interrupt_during_stream", 2, 2),  # the second prompt has no uuid
        ("10a_multi_turn_sequential", 2, 2),
        ("10e_cancel_async_message", 1, 1),
        ("15a_subagent_foreground", 1, 1),
    ],
)
def test_every_prompt_that_was_answered_is_timed_and_no_other(name: str, first: int, result: int) -> None:
    snapshot = Recording(BUNDLED / f"{name}.ndjson").snapshot
    assert (snapshot.first_message.count, snapshot.result.count) == (first, result)


def test_times_are_those_between_the_lines() -> None:
    now = 0.0
    metrics = Metrics(clock=lambda: now)
    for start, spoke, done in ((10.0, 12.0, 15.0), (20.0, 21.0, 30.0)):
        now = start
        prompt = json.dumps(PROMPT)
        metrics.writing(prompt)
        metrics.written(prompt)
        now = spoke
        metrics.read([b'{"type":"assistant","message":{"id":"a"}}'])
        now = done
        metrics.read([b'{"type":"result"}'])
    snapshot = metrics.snapshot()
    assert (snapshot.first_message.count, snapshot.first_message.total, snapshot.first_message.longest) == (2, 3.0, 2.0)
    assert (snapshot.result.total, snapshot.result.last, snapshot.result.mean) == (15.0, 10.0, 7.5)


async def test_connecting_is_timed_once_and_not_at_all_when_it_was_done_before() -> None:
    inside = MockTransport()
    transport = MetricsTransport(inside)
    await transport.connect()
    await transport.connect()
    assert transport.metrics.snapshot().connect.count == 1
    late = MetricsTransport(inside)
    await late.connect()
    assert late.metrics.snapshot().connect.count == 0
    await transport.close()


def test_names_of_models_are_labels_however_many_and_whatever_the_peer_makes_up() -> None:
    metrics = Metrics(clock=lambda: 0.0)
    made_up = [
        "claude-opus-5-5[1m]",
        "arn:aws:bedrock:us-east-1:1:inference-profile/x.y-v1:0",
        "sk-ant-api03-Yarrow",
        "bad\ud800",
        "x" * 201,
        "",
    ]
    used = {"inputTokens": 1, "costUSD": 0.5}
    metrics.read([json.dumps({"type": "result", "modelUsage": dict.fromkeys(made_up, used)}).encode()])
    models = metrics.snapshot().models
    assert set(models) == {*made_up[:2], "other"}
    assert (models["other"].tokens.input_tokens, models["other"].cost_usd) == (4, 2.0)
    metrics.read([json.dumps({"type": "result", "modelUsage": {f"m{number}": used for number in range(5000)}}).encode()])
    models = metrics.snapshot().models
    assert (len(models), sum(model.tokens.input_tokens for model in models.values())) == (100, 5006)


@pytest.mark.parametrize("nonsense", [-5, "NaN", "Infinity", "-Infinity"])
def test_nonsense_from_the_peer_never_makes_a_counter_fall_or_end(nonsense: object) -> None:
    metrics = Metrics(clock=lambda: 0.0)
    honest = (
        b'{"type":"result","uuid":"r1","total_cost_usd":1.5,"usage":{"input_tokens":5},"modelUsage":{"m":{"inputTokens":5,"costUSD":1.5}}}'
    )
    wild = honest.replace(b"1.5", f"{nonsense}".encode()).replace(b":5", b":-5").replace(b"r1", b"r2")
    since = wild.replace(b'"modelUsage"', b'"modelUsageSinceLastResult"').replace(b"r2", b"r3")
    metrics.read([honest, wild, since])
    snapshot = metrics.snapshot()
    assert (snapshot.tokens.input_tokens, snapshot.cost_usd) == (5, 1.5)
    assert (snapshot.models["m"].tokens.input_tokens, snapshot.models["m"].cost_usd) == (5, 1.5)


async def test_a_listener_that_fails_costs_nothing_of_the_count() -> None:
    def fail(_seconds: float, _result: ResultMessage) -> None:
        raise RuntimeError(SENTINEL)

    registry = MetricsRegistry()
    told: list[float] = []
    registry.on_result(fail)
    registry.on_result(lambda seconds, _result: told.append(seconds))
    metrics = Metrics(clock=lambda: 0.0)
    registry.add(metrics)
    for _ in range(2):
        metrics.writing(json.dumps(PROMPT))
    metrics.read([b'{"type":"result"}', b'{"type":"keep_alive"}', b'{"type":"result"}'])
    snapshot = metrics.snapshot()
    assert snapshot.messages_read == {"result": 2, "keep_alive": 1}
    assert (snapshot.result.count, told) == (2, [0.0, 0.0])


def test_a_session_and_its_registry_tell_each_listener_once_for_each_result() -> None:
    registry, metrics = MetricsRegistry(), Metrics(clock=lambda: 0.0)
    told: list[str] = []
    registry.on_result(lambda _seconds, _result: told.append("registry"))
    for _ in range(2):  # as each connection of a session does
        registry.add(metrics)
    metrics.on_result(lambda _seconds, _result: told.append("session"))
    metrics.writing(json.dumps(PROMPT))
    metrics.read([b'{"type":"result"}'])
    assert told == ["registry", "session"]


# ------------------------------------------------------------------------------------------------------------ many sessions


async def test_fifty_sessions_at_once_count_for_themselves_and_their_registry_for_all() -> None:
    registry, others = MetricsRegistry(), MetricsRegistry()
    counted: dict[int, MetricsSnapshot] = {}

    async def converse(prompts: int) -> None:
        replies = [{"type": "result", "result": "ok", "usage": {"input_tokens": prompts}}] * prompts
        transport = MetricsTransport(MockTransport(replies), registry=registry)
        async with Query(transport) as query:
            for _ in range(prompts):
                await (await query.send("x")).result()
        counted[prompts] = transport.metrics.snapshot()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for prompts in range(1, 51):
                tasks.start_soon(converse, prompts)
    for prompts, snapshot in counted.items():
        assert (snapshot.prompts, snapshot.results, snapshot.tokens.input_tokens) == (prompts, {"ok": prompts}, prompts * prompts)
        assert snapshot.result.count == prompts
    total = registry.snapshot()
    assert (total.sessions, registry.running, total.prompts) == (50, 0, 1275)
    assert total.bytes_read == sum(snapshot.bytes_read for snapshot in counted.values())
    assert others.snapshot() == MetricsSnapshot(sessions=0)


async def test_a_session_that_is_dropped_stays_in_the_sum_and_nowhere_else() -> None:
    registry = MetricsRegistry()
    transport = MetricsTransport(MockTransport(), registry=registry)
    await transport.connect()
    await transport.write(json.dumps(PROMPT))
    await transport.transport.close()
    before = registry.snapshot()
    assert (registry.running, before.prompts) == (1, 1)
    del transport
    gc.collect()
    assert (registry.running, registry.snapshot()) == (0, msgspec.structs.replace(before, running=0))


# ---------------------------------------------------------------------------------------------------------------- exporting


def test_prometheus_can_read_it() -> None:
    text = prometheus_text(Recording(BUNDLED / "04a_permission_allow.ndjson").snapshot, labels={"service": 'a "b"\n\\c'})
    assert text.endswith("\n")
    assert 'claude_transport_tokens_total{service="a \\"b\\"\\n\\\\c",kind="input"} 24\n' in text
    assert "# TYPE claude_transport_result_seconds summary\n" in text
    lines = text.splitlines()
    assert len([line for line in lines if line.startswith("# TYPE")]) == len([line for line in lines if line.startswith("# HELP")])
    samples = [line for line in lines if not line.startswith("#")]
    assert len({line.rpartition(" ")[0] for line in samples}) == len(samples)
    for line in samples:
        float(line.rpartition(" ")[2])


@pytest.mark.parametrize("name", ["", "a-b", "1st", "__name__", "ä"])
def test_a_label_that_prometheus_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError):
        MetricsRegistry().prometheus_text(labels={name: "x"})


async def test_nothing_that_was_said_is_in_what_is_exported() -> None:
    registry = MetricsRegistry()
    said = {"type": "assistant", "message": {"id": "a", "content": [{"type": "text", "text": SENTINEL}]}}
    transport = MetricsTransport(MockTransport([said, {"type": "result", "result": SENTINEL}]), registry=registry)
    async with Query(transport) as query:
        await (await query.send(SENTINEL)).result()
        assert registry.snapshot().results == {"ok": 1}
        assert SENTINEL not in registry.prometheus_text() + repr(transport.metrics.snapshot()) + repr(transport)


def test_it_keeps_every_clause_of_the_contract() -> None:
    run_conformance(wrapped(memory(), MetricsTransport)).raise_for_failures()
