"""Metrics and spans of the real binary say what the model behind it served."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from span_recorder import SpanRecorder

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 60.0
SENTINEL = "hunter2-sentinel-Zx7Qw9"


@pytest.fixture
def options(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Callable[..., ct.ClaudeOptions]:
    """`options(api, **changes)`: the real binary, in a clean world, talking to `api`."""

    def build(api: FakeMessagesAPI, **changes: Any) -> ct.ClaudeOptions:
        env = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
        return ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=env, env_mode="exact", **changes)

    return build


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
async def test_tokens_spans_and_bytes_are_those_of_what_was_served(
    options: Callable[..., ct.ClaudeOptions], cli_home: Any, partial: bool
) -> None:
    spans = SpanRecorder()
    script = [
        replies.message(
            replies.text_block("I shall look."),
            replies.tool_use_block("Bash", input={"command": 'printf %s "$TRACEPARENT" > trace'}, id="toolu_1"),
            usage=replies.Usage(input_tokens=100, output_tokens=20, cache_read_input_tokens=7),
        ),
        replies.text(SENTINEL, usage=replies.Usage(input_tokens=150, output_tokens=30)),
    ]
    async with FakeMessagesAPI(script) as api:
        chosen = options(api, include_partial_messages=partial, allowed_tools=["Bash"])
        metrics = ct.MetricsTransport(ct.TracingTransport(ct.SubprocessTransport(chosen), tracer_provider=spans))
        with spans.start_as_current_span("job") as job, anyio.fail_after(PATIENCE):
            async with ct.Query(metrics) as query:
                result = (await (await query.send(f"Look: {SENTINEL}")).result()).raise_for_error()
                counted = metrics.metrics.snapshot()
    served = {"input_tokens": 250, "output_tokens": 50, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 0}
    assert {name: getattr(counted.tokens, name) for name in served} == served
    assert counted.cost_usd == pytest.approx(result.total_cost_usd)
    assert (counted.prompts, counted.results, counted.api_messages) == (1, {"ok": 1}, 2)
    assert ("stream_event" in counted.messages_read) is partial
    assert (counted.connect.count, counted.first_message.count, counted.result.count) == (1, 1, 1)
    end = metrics.metrics.snapshot()
    assert (end.bytes_read, end.bytes_written) == (metrics.info.bytes_read, metrics.info.bytes_written)

    (turn,), (tool,) = spans.turns, spans.tools
    assert spans.parent_of(turn) is job
    assert spans.parent_of(tool) is turn
    assert not turn.failed
    assert (turn.attributes["gen_ai.usage.input_tokens"], turn.attributes["gen_ai.usage.output_tokens"]) == (257, 50)
    assert turn.attributes["gen_ai.conversation.id"] == result.session_id
    assert (tool.attributes["gen_ai.tool.name"], tool.attributes["gen_ai.tool.call.id"]) == ("Bash", "toolu_1")
    assert SENTINEL not in spans.text + metrics.metrics.prometheus_text()
    # the trace goes on in what the CLI's tools start
    own = job.get_span_context()
    assert f"{own.trace_id:032x}" in Path(cli_home.project, "trace").read_text()


async def test_a_failed_turn_is_one_in_both(options: Callable[..., ct.ClaudeOptions]) -> None:
    spans = SpanRecorder()
    async with FakeMessagesAPI([replies.error(529)]) as api:
        metrics = ct.MetricsTransport(ct.TracingTransport(ct.SubprocessTransport(options(api)), tracer_provider=spans))
        with anyio.fail_after(PATIENCE):
            async with ct.Query(metrics) as query:
                await (await query.send("Hello")).result()
    counted = metrics.metrics.snapshot()
    assert (counted.results, counted.failures, counted.lost_prompts) == ({"result.overloaded": 1}, {}, {})
    assert spans.turns[0].attributes["error.type"] == "result.overloaded"


async def test_a_killed_cli_is_one_failure_and_loses_the_prompt_that_it_was_answering(options: Callable[..., ct.ClaudeOptions]) -> None:
    registry = ct.wrappers.MetricsRegistry()
    running: list[int] = []
    async with FakeMessagesAPI([replies.text("Hello."), replies.gated("never")]) as api:
        metrics = ct.MetricsTransport(ct.SubprocessTransport(options(api)), registry=registry)
        with anyio.fail_after(PATIENCE), pytest.raises(ct.ProcessError):
            async with ct.Query(metrics) as query:
                await (await query.send("Hi")).result()
                turn = await query.send("Are you there?")
                running.append(registry.running)
                os.kill(metrics.info.pid or 0, signal.SIGKILL)
                await turn.result()
    counted = registry.snapshot()
    code = {"exec.cli.exited": 1}
    assert (counted.connects, counted.failures, counted.lost_prompts) == ({"ok": 1}, code, code)
    assert (counted.prompts, counted.results, running, registry.running) == (2, {"ok": 1}, [1], 0)
