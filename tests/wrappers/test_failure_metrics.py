"""Metrics of failures: each is counted once, with its code, wherever the session breaks and wherever the wrapper stands."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest
from span_recorder import MeterRecorder

from claude_transport.client.query import Query
from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    CLINotFoundError,
    ConnectionLost,
    OutcomeUncertain,
    ProcessError,
    TransportClosed,
)
from claude_transport.testing import FakeClaude, Scenario, steps
from claude_transport.transport import TransportInfo
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.faults import Cut, FailConnect, FailWrite
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.metrics import Metrics, MetricsRegistry, MetricsTransport
from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot
from claude_transport.wrappers.retrying import RetryingTransport

PATIENCE = 30
PROMPT = json.dumps({"type": "user", "uuid": "p1", "message": {"role": "user", "content": "Hi"}})
SILENT = Scenario.turns(["Hello!", [steps.Hang()]])
"""Answers the first prompt, and then never again."""


async def no_time(_seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


def failures_of(snapshot: MetricsSnapshot) -> dict[str, Any]:
    """What the snapshot says of running, connecting and failing."""
    names = ("sessions", "running", "prompts", "results", "connects", "retries", "failures", "lost_prompts")
    return {name: getattr(snapshot, name) for name in names}


def counts(**changed: Any) -> dict[str, Any]:
    """The counts of one session that connected, and to which nothing has happened but what is `changed`."""
    return failures_of(msgspec.structs.replace(MetricsSnapshot(connects={"ok": 1}), **changed))


async def converse(transport: MetricsTransport, *prompts: str, then: Callable[[], object] = bool) -> Exception | None:
    """Send the prompts, the last of which gets no result, do `then`, and return the error of the last one."""
    with anyio.fail_after(PATIENCE):
        try:
            async with Query(transport) as query:
                for prompt in prompts:
                    turn = await query.send(prompt)
                    if prompt is prompts[-1]:
                        then()
                    await turn.result()
        except ClaudeTransportError as error:
            return error
    return None


# ------------------------------------------------------------------------------------------------------ processes that die


async def test_a_session_whose_process_is_killed_is_a_failure_and_its_prompt_is_lost() -> None:
    registry, meter = MetricsRegistry(), MeterRecorder()
    registry.instrument(meter_provider=meter)
    running: list[int] = []

    def kill() -> None:
        running.append(registry.running)
        os.kill(transport.info.pid or 0, signal.SIGKILL)

    with FakeClaude(SILENT) as fake:
        transport = MetricsTransport(SubprocessTransport(command=fake.command), registry=registry)
        error = await converse(transport, "Hi", "And now?", then=kill)
    assert isinstance(error, ProcessError)
    expected = counts(prompts=2, results={"ok": 1}, failures={"exec.cli.exited": 1}, lost_prompts={"exec.cli.exited": 1})
    assert failures_of(transport.metrics.snapshot()) == failures_of(registry.snapshot()) == expected
    assert (running, registry.running) == ([1], 0)

    page = registry.prometheus_text(labels={"service": "demo"})
    for line in (
        'claude_transport_connects_total{service="demo"} 1',
        'claude_transport_retries_total{service="demo"} 0',
        'claude_transport_failures_total{service="demo",error_type="exec.cli.exited"} 1',
        'claude_transport_lost_prompts_total{service="demo",error_type="exec.cli.exited"} 1',
        "# TYPE claude_transport_sessions_running gauge",
        'claude_transport_sessions_running{service="demo"} 0',
    ):
        assert f"\n{line}\n" in page
    collected = {name: [(each.value, each.attributes) for each in seen] for name, seen in meter.collect().items()}
    lost = [(1, {"error.type": "exec.cli.exited"})]
    assert collected["claude_transport.failures"] == collected["claude_transport.lost_prompts"] == lost
    assert (collected["claude_transport.connects"], collected["claude_transport.retries"]) == ([(1, {})], [(0, {})])
    assert collected["claude_transport.sessions.running"] == [(0, {})]
    ((_, _, answered), (name, seconds, attributes)) = meter.recorded
    assert (name, seconds > 0, "error.type" in answered) == ("gen_ai.client.operation.duration", True, False)
    assert attributes == {
        "gen_ai.provider.name": "anthropic",
        "gen_ai.system": "anthropic",
        "gen_ai.operation.name": "invoke_agent",
        "error.type": "exec.cli.exited",
    }


async def test_a_process_that_dies_between_two_turns_is_a_failure_that_loses_no_prompt() -> None:
    registry = MetricsRegistry()
    with FakeClaude(SILENT) as fake, anyio.fail_after(PATIENCE):
        transport = MetricsTransport(SubprocessTransport(command=fake.command), registry=registry)
        with pytest.raises(ProcessError):
            async with Query(transport) as query:
                await (await query.send("Hi")).result()
                os.kill(transport.info.pid or 0, signal.SIGKILL)
                async for _ in query:
                    pass
                assert registry.running == 0, "it is over before it is closed"
    assert failures_of(registry.snapshot()) == counts(prompts=1, results={"ok": 1}, failures={"exec.cli.exited": 1})


async def test_a_process_that_ends_well_in_the_middle_of_a_turn_loses_its_prompt_and_is_no_failure() -> None:
    with FakeClaude(Scenario.turns([[steps.Exit(code=0)]])) as fake:
        transport = MetricsTransport(SubprocessTransport(command=fake.command))
        assert await converse(transport, "Hi") is not None
    assert failures_of(transport.metrics.snapshot()) == counts(prompts=1, lost_prompts={"session_ended": 1})


async def test_a_program_that_leaves_in_the_middle_of_a_turn_loses_its_prompt_and_is_no_failure() -> None:
    transport = MetricsTransport(MockTransport())
    async with Query(transport) as query:
        await query.send("Hi")
    assert failures_of(transport.metrics.snapshot()) == counts(prompts=1, lost_prompts={"session_ended": 1})


async def test_the_exit_code_that_repeats_a_failed_result_is_not_another_failure() -> None:
    failed = steps.Result("Overloaded", is_error=True, subtype="success", api_error_status=529)
    snapshots = []
    metrics = Metrics()
    for turns in (
        [[failed, steps.Exit(code=1)]],
        [[steps.Exit(code=1)]],
        [[failed], [steps.Result("Hi"), steps.Exit(code=1)]],
        ["Hi", [failed, steps.Exit(code=3)]],
    ):
        with FakeClaude(Scenario.turns(turns)) as fake, anyio.fail_after(PATIENCE):
            transport = MetricsTransport(SubprocessTransport(command=fake.command), metrics=metrics)
            async with transport:
                for number in range(len(turns)):
                    await transport.write(PROMPT.replace("p1", f"p{number}"))
                with pytest.raises(ProcessError):
                    async for _ in transport.read_messages():
                        pass
        snapshots.append(metrics.snapshot())
    assert [(each.results, each.failures) for each in snapshots] == [
        ({"result.overloaded": 1}, {}),
        ({"result.overloaded": 1}, {"exec.cli.exited": 1}),
        ({"result.overloaded": 2, "ok": 1}, {"exec.cli.exited": 2}),
        ({"result.overloaded": 3, "ok": 2}, {"exec.cli.exited": 3}),
    ]


async def test_a_process_that_dies_unseen_is_a_failure_when_it_is_closed() -> None:
    with FakeClaude(SILENT) as fake, anyio.fail_after(PATIENCE):
        inside = SubprocessTransport(command=fake.command)
        transport = MetricsTransport(inside)
        await transport.connect()
        os.kill(inside.info.pid or 0, signal.SIGKILL)
        with pytest.raises(ProcessError):
            async for _ in inside.read_lines():  # a reader that does not ask the wrapper
                pass
        await transport.close()
    assert failures_of(transport.metrics.snapshot()) == counts(failures={"exec.cli.exited": 1})


async def test_a_write_that_finds_the_connection_lost_is_a_failure_when_no_reader_has_seen_the_end() -> None:
    transport = MetricsTransport(FaultyTransport(MockTransport(), [FailWrite()]))
    async with transport:
        with pytest.raises((ConnectionLost, TransportClosed)):
            await transport.write(PROMPT)
    assert failures_of(transport.metrics.snapshot()) == counts(failures={"connection.lost": 1})


class Stumbling(MockTransport):
    """Fails the first write, and takes the next ones."""

    stumbled = False

    async def write(self, data: str | bytes) -> None:
        if not self.stumbled:
            self.stumbled = True
            raise ConnectionLost("a moment ago")
        await super().write(data)


async def test_a_write_that_failed_before_one_that_succeeded_is_no_failure_of_the_connection() -> None:
    transport = MetricsTransport(Stumbling())
    async with transport:
        with pytest.raises(ConnectionLost):
            await transport.write(PROMPT)
        await transport.write(PROMPT)
    assert failures_of(transport.metrics.snapshot()) == counts(prompts=1, lost_prompts={"session_ended": 1})


async def test_closing_is_no_failure_of_the_write_that_it_ends() -> None:
    with FakeClaude(Scenario.turns([[steps.StopReading()]])) as fake, anyio.fail_after(PATIENCE):
        transport = MetricsTransport(SubprocessTransport(command=fake.command, close_timeout=0.1))
        await transport.connect()
        async with anyio.create_task_group() as tasks:

            async def flood() -> None:
                with pytest.raises(TransportClosed):
                    while True:
                        await transport.write(json.dumps({"type": "noise", "text": "x" * 100_000}))

            tasks.start_soon(flood)
            await anyio.wait_all_tasks_blocked()
            await transport.close()
    assert failures_of(transport.metrics.snapshot()) == counts()


async def test_a_stream_that_ends_with_an_error_is_one_failure_however_often_its_end_is_seen() -> None:
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "done"}
    transport = MetricsTransport(FaultyTransport(MockTransport([result]), [Cut(after_lines=0)]))
    async with transport:
        await transport.write(PROMPT)
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await anext(transport.read_lines())
        with pytest.raises((ConnectionLost, TransportClosed)):
            await transport.write(PROMPT)
    expected = counts(prompts=1, failures={"connection.lost": 1}, lost_prompts={"connection.lost": 1})
    assert failures_of(transport.metrics.snapshot()) == expected


# ------------------------------------------------------------------------------------------------------ connects and retries


async def test_a_session_that_cannot_connect_is_a_failure_with_the_code_of_its_error() -> None:
    transport = MetricsTransport(SubprocessTransport(command=["/no/such/claude"]))
    error = await converse(transport, "Hi")
    assert isinstance(error, CLINotFoundError)
    counted = {error.code: 1}
    assert failures_of(transport.metrics.snapshot()) == counts(connects=counted, failures=counted)


class EndingAtOnce(MockTransport):
    """Its process has ended before there was a connection."""

    async def connect(self) -> None:
        raise ProcessError("it does not start", exit_code=3)

    @property
    def info(self) -> TransportInfo:
        return TransportInfo(kind="EndingAtOnce", exit_code=3)


async def test_a_process_that_ended_while_it_was_started_is_one_failure() -> None:
    transport = MetricsTransport(EndingAtOnce())
    assert isinstance(await converse(transport, "Hi"), ProcessError)
    counted = {"exec.cli.exited": 1}
    assert failures_of(transport.metrics.snapshot()) == counts(connects=counted, failures=counted)


class NeverConnecting(MockTransport):
    async def connect(self) -> None:
        await anyio.sleep_forever()


async def test_an_attempt_that_the_program_gave_up_is_counted_and_is_no_failure() -> None:
    transport = MetricsTransport(NeverConnecting())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(transport.connect)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    await transport.close()
    assert failures_of(transport.metrics.snapshot()) == counts(connects={"cancelled": 1})


@pytest.mark.parametrize(
    ("refusals", "inside", "outside"),
    [
        (
            2,
            {"connects": {"connect.failed": 2, "ok": 1}, "retries": 2, "failures": {"connect.failed": 2}},
            {"connects": {"ok": 1}, "retries": 2},
        ),
        (
            3,
            {"connects": {"connect.failed": 3}, "retries": 2, "failures": {"connect.failed": 3}},
            {"connects": {"connect.failed": 1}, "retries": 2, "failures": {"connect.failed": 1}},
        ),
        (0, {}, {}),
    ],
)
async def test_retries_are_counted_inside_and_outside_of_what_makes_them(
    refusals: int, inside: dict[str, Any], outside: dict[str, Any]
) -> None:
    within = MetricsTransport(FaultyTransport(MockTransport(), [FailConnect(times=refusals)] if refusals else ()))
    around = MetricsTransport(RetryingTransport(within, attempts=3, sleep=no_time))
    if refusals < 3:
        await around.connect()
    else:
        with pytest.raises(CLIConnectionError):
            await around.connect()
    await around.close()
    assert failures_of(within.metrics.snapshot()) == counts(**inside)
    assert failures_of(around.metrics.snapshot()) == counts(**outside)
    assert around.info.connect_retries == min(refusals, 2)


async def test_the_attempts_of_every_connect_count_once() -> None:
    faulty = FaultyTransport(MockTransport(), [FailConnect(times=5)])
    around = MetricsTransport(RetryingTransport(faulty, attempts=3, sleep=no_time))
    with pytest.raises(CLIConnectionError):
        await around.connect()
    async with around:
        pass
    expected = counts(connects={"connect.failed": 1, "ok": 1}, retries=5, failures={"connect.failed": 1})
    assert failures_of(around.metrics.snapshot()) == expected


async def test_the_counts_of_a_session_go_on_when_it_reconnects() -> None:
    metrics, registry = Metrics(), MetricsRegistry()
    faults = iter([[Cut(after_bytes=0)], [FailConnect()], [Cut(after_bytes=0)], []])

    def make() -> MetricsTransport:
        return MetricsTransport(FaultyTransport(MockTransport(), next(faults)), metrics=metrics, registry=registry)

    first = RetryingTransport(make(), make_transport=make, sleep=no_time)
    async with first:
        assert registry.running == 1
        with pytest.raises(ConnectionLost):
            await first.write(PROMPT)
            await anext(first.read_lines())
        second = await first.reconnect()
        assert registry.running == 1
        with pytest.raises(ConnectionLost):
            await second.write(PROMPT)
            await anext(second.read_lines())
        async with await second.reconnect() as third:
            await third.write(PROMPT)
    expected = counts(
        prompts=3,
        connects={"ok": 3, "connect.failed": 1},
        retries=1,
        failures={"connect.failed": 1, "connection.lost": 2},
        lost_prompts={"connection.lost": 2, "session_ended": 1},
    )
    assert failures_of(metrics.snapshot()) == failures_of(registry.snapshot()) == expected


async def test_the_end_of_an_earlier_connection_ends_nothing_of_the_next_one() -> None:
    metrics = Metrics()
    first = MetricsTransport(MockTransport(), metrics=metrics)
    await first.connect()
    await first.write(PROMPT)
    inside = MockTransport()
    await inside.connect()
    second = MetricsTransport(inside, metrics=metrics)
    await second.write(PROMPT)
    await first.close()
    assert failures_of(metrics.snapshot()) == counts(running=1, prompts=2, lost_prompts={"session_ended": 1})
    await second.close()
    assert failures_of(metrics.snapshot()) == counts(prompts=2, lost_prompts={"session_ended": 2})


# --------------------------------------------------------------------------------------------------------------- lost prompts


def test_a_prompt_on_its_way_is_lost_only_if_it_was_written() -> None:
    snapshots = []
    for landed in ("written", "not_written"):
        metrics = Metrics(clock=lambda: 0.0)
        metrics.writing(PROMPT)
        metrics.ended(ConnectionLost("gone"))
        assert metrics.snapshot().lost_prompts == {}
        getattr(metrics, landed)(PROMPT)
        snapshots.append((metrics.snapshot().prompts, metrics.snapshot().lost_prompts))
    assert snapshots == [(1, {"connection.lost": 1}), (0, {})]


def test_listeners_hear_of_each_lost_prompt_and_of_the_agent_that_lost_it() -> None:
    now, registry, heard = [10.0], MetricsRegistry(), []
    registry.on_lost(lambda *lost: heard.append(lost))
    for prompt, answer in ((PROMPT, b'{"type":"keep_alive"}'), (CODEX_PROMPT, b'{"method":"thread/started","params":{}}')):
        metrics = Metrics(clock=lambda: now[-1])
        metrics.on_lost(lambda *lost: heard.append(lost[:1]))
        registry.add(metrics)
        metrics.writing(prompt)
        metrics.written(prompt)
        metrics.read([answer])
        now.append(now[-1] + 2.5)
        metrics.ended(ValueError("an error of another library"))
        metrics.ended(ConnectionLost("again"))
        assert metrics.snapshot().failures == {"ValueError": 1}
    assert heard == [(2.5,), (2.5, "ValueError", "claude"), (2.5,), (2.5, "ValueError", "codex")]


CODEX_PROMPT = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "turn/start", "params": {"threadId": "t", "input": [{"type": "text", "text": "Hi"}]}}
)


def test_a_transport_that_makes_up_codes_does_not_grow_the_memory_or_a_dashboard() -> None:
    metrics = Metrics(clock=lambda: 0.0)
    for number in range(5000):
        metrics.not_connected(CLIConnectionError(code=f"made.up{number}"))
    snapshot = metrics.snapshot()
    assert (len(snapshot.failures), snapshot.failures["made.up99"], snapshot.failures["_OTHER"]) == (101, 1, 4900)
    assert snapshot.connects == snapshot.failures


def test_what_does_not_look_like_a_code_is_counted_and_not_shown() -> None:
    metrics = Metrics(clock=lambda: 0.0)
    for code in ("sk-ant-api03-Yarrow", 'a"b', "x" * 101, "", "new\nline"):
        metrics.not_connected(OutcomeUncertain(code=code))
    assert failures_of(metrics.snapshot()) == counts(connects={"_OTHER": 5}, failures={"_OTHER": 5}, retries=0)
    assert 'claude_transport_failures_total{error_type="_OTHER"} 5\n' in metrics.prometheus_text()
