"""Six wrappers around the real CLI: the main job is done as without them, and what they tell of it is true."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.context import Context

# The main job's own tests: they find the fixture `talk` of this module, and so run again, through all six.
from test_main_job import (  # noqa: F401
    PATIENCE,
    Options,
    Talk,
    options,
    test_a_hook_that_fails_does_not_open_the_gate,
    test_a_killed_process_is_told_to_everybody,
    test_a_second_process_takes_the_conversation_up,
    test_a_session_that_cannot_be_resumed_fails_the_start_at_once,
    test_a_slash_command_is_a_turn,
    test_a_text_turn,
    test_a_tool_runs_when_the_callback_allows_it_and_only_then,
    test_an_api_error_is_a_typed_outcome,
    test_an_interrupt_ends_the_turn_and_the_next_one_is_good,
    test_an_option_that_this_cli_does_not_know_is_named,
    test_closing_leaves_no_process,
    test_hooks_are_called_in_their_order,
    test_messages_of_a_turn_and_all_messages_agree,
    test_partial_messages_come_before_the_whole_one,
    test_prompts_that_wait_are_merged_into_one_turn_and_share_its_result,
    test_the_callback_may_change_what_the_tool_is_given,
    test_two_megabytes_of_answer_arrive_whole,
    test_two_turns_of_one_session,
)
from test_record_replay import Conversation

import claude_transport as ct
from claude_transport.protocol.token_counts import TokenCounts
from claude_transport.testing import FakeMessagesAPI, Tape, replies


class KeptSpan(trace.NonRecordingSpan):
    """A span that keeps what it is told."""

    def __init__(self, name: str, *, number: int, parent: trace.Span, attributes: Mapping[str, Any]) -> None:
        super().__init__(trace.SpanContext(trace_id=1, span_id=number, is_remote=False))
        self.name = name
        self.parent = parent
        self.attributes = dict(attributes)
        self.status = trace.StatusCode.UNSET
        self.ends = 0

    def is_recording(self) -> bool:
        return not self.ends

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self.attributes.update(attributes)

    def set_status(self, status: trace.Status | trace.StatusCode, description: str | None = None) -> None:
        self.status = status.status_code if isinstance(status, trace.Status) else status

    def end(self, end_time: int | None = None) -> None:
        self.ends += 1


class SpanKeeper(trace.NoOpTracerProvider, trace.NoOpTracer):
    """A tracer provider, and its tracer, that keep every span in `spans`."""

    def __init__(self) -> None:
        self.spans: list[KeptSpan] = []

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        return self

    def start_span(  # type: ignore[override]
        self, name: str, context: Context | None = None, *args: Any, attributes: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> trace.Span:
        parent = trace.get_current_span(context)
        self.spans.append(KeptSpan(name, number=len(self.spans) + 1, parent=parent, attributes=attributes or {}))
        return self.spans[-1]


class Stack:
    """Six wrappers around `transport`, all at work, and what they tell."""

    def __init__(self, transport: ct.Transport, *, tape: Path) -> None:
        self.attempts: list[ct.wrappers.RetryAttempt] = []
        self.states: list[ct.TransportState] = []
        self.keeper = SpanKeeper()
        self.tape = tape
        recording = ct.RecordingTransport(ct.RetryingTransport(transport, on_attempt=self.attempts.append), tape, scrub=False)
        stateful = ct.StatefulTransport(recording, on_change=lambda _old, new: self.states.append(new))
        self.counting = ct.MetricsTransport(stateful)
        tracing = ct.TracingTransport(self.counting, tracer_provider=self.keeper)
        self.outermost = ct.LoggingTransport(tracing, bodies=True)


@pytest.fixture
def talk(options: Options, tmp_path: Path) -> Talk:  # noqa: F811
    """`talk` of the main job, through all six."""
    tapes: list[Path] = []

    def build(api: FakeMessagesAPI, **arguments: Any) -> ct.Query:
        callbacks = {name: arguments.pop(name) for name in ("can_use_tool", "hooks") if name in arguments}
        tapes.append(tmp_path / f"tape-{len(tapes)}.ndjson")
        stack = Stack(ct.SubprocessTransport(options(api, **arguments)), tape=tapes[-1])
        return ct.Query(stack.outermost, **callbacks)

    return build


@pytest.fixture(autouse=True)
def wire_log(caplog: pytest.LogCaptureFixture) -> None:
    """The log of the wire is on, so that the wrapper that writes it is at work."""
    caplog.set_level(logging.DEBUG, logger="claude_transport.wire")


USAGES = [
    replies.Usage(input_tokens=11, output_tokens=3),
    replies.Usage(input_tokens=23, output_tokens=5, cache_read_input_tokens=7),
    replies.Usage(input_tokens=31, output_tokens=13),
    replies.Usage(input_tokens=41, output_tokens=17, cache_creation_input_tokens=19),
    replies.Usage(input_tokens=53, output_tokens=29),
]
SCRIPT = [
    replies.tool_use("Bash", {"command": "touch first.txt && echo é"}, usage=USAGES[0]),
    replies.text("The first one is done.", usage=USAGES[1]),
    replies.tool_use("Bash", {"command": "touch second.txt"}, usage=USAGES[2]),
    replies.text("The second one was refused.", usage=USAGES[3]),
    replies.text("You are welcome.", usage=USAGES[4]),
]


class Told:
    """One conversation through all six, and what was served."""

    def __init__(self, stack: Stack, conversation: Conversation, *, served: int) -> None:
        self.stack = stack
        self.conversation = conversation
        self.served = served
        self.tape = Tape.read(stack.tape)
        self.metrics = stack.counting.metrics.snapshot()
        self.spans = stack.keeper.spans


@pytest.fixture
async def told(options: Options, tmp_path: Path) -> Told:  # noqa: F811
    conversation = Conversation()
    async with FakeMessagesAPI(SCRIPT) as api:
        stack = Stack(ct.SubprocessTransport(options(api, include_partial_messages=True)), tape=tmp_path / "tape.ndjson")
        await conversation.run(stack.outermost)
    return Told(stack, conversation, served=len(api.conversation))


async def test_the_tape_replays_to_the_same_messages(told: Told, tmp_path: Path) -> None:
    again = Conversation()
    claude = ct.ReplayTransport(told.stack.tape)
    replayed = Stack(claude, tape=tmp_path / "again.ndjson")
    await again.run(replayed.outermost)
    claude.assert_played()
    assert again.heard == told.conversation.heard
    assert (again.asked, again.answers, again.texts) == (told.conversation.asked, told.conversation.answers, told.conversation.texts)
    metrics = replayed.counting.metrics.snapshot()
    assert (metrics.tokens, metrics.results) == (told.metrics.tokens, told.metrics.results)
    assert metrics.messages_read == told.metrics.messages_read
    assert [span.name for span in replayed.keeper.spans] == [span.name for span in told.spans]


async def test_the_metrics_are_what_the_api_served_and_the_tape_holds(told: Told) -> None:
    metrics, info = told.metrics, told.stack.outermost.info
    assert told.served == metrics.api_messages == len(SCRIPT)
    for name in TokenCounts.__struct_fields__:
        assert getattr(metrics.tokens, name) == sum(getattr(usage, name) for usage in USAGES), name
    assert (metrics.prompts, metrics.results) == (3, {"ok": 3})
    assert (metrics.bytes_read, metrics.bytes_written) == (info.bytes_read, info.bytes_written)
    read, written = told.tape.lines("out"), told.tape.lines("in")
    assert (metrics.lines_read, metrics.lines_written) == (len(read), len(written))
    assert metrics.bytes_read == sum(len(line) + 1 for line in read)
    assert metrics.messages_read == Counter(ct.decode_message(line).type for line in read)
    assert metrics.unreadable_lines == 0
    assert metrics.connect.count == 1


async def test_the_spans_are_the_turns_and_tools_that_there_were(told: Told) -> None:
    turns = [span for span in told.spans if span.name == "invoke_agent claude"]
    tools = [span for span in told.spans if span.name != "invoke_agent claude"]
    assert [span.ends for span in told.spans] == [1] * 5
    assert [span.name for span in tools] == ["execute_tool Bash"] * 2
    assert [span.parent for span in tools] == turns[:2]
    assert [span.status for span in tools] == [trace.StatusCode.UNSET, trace.StatusCode.ERROR]  # the second one was denied
    assert [span.attributes["claude_transport.turn.state"] for span in turns] == ["done"] * 3
    assert [span.attributes["gen_ai.usage.output_tokens"] for span in turns] == [3 + 5, 13 + 17, 29]


async def test_the_others_tell_the_same_story(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    state = ct.TransportState
    assert told.stack.states[:2] == [state.CONNECTING, state.CONNECTED]
    assert told.stack.states[-1] is state.CLOSED
    assert [(attempt.action, attempt.number, attempt.error) for attempt in told.stack.attempts] == [("connect", 1, None)]
    events = Counter(getattr(record, "claude_event", None) for record in caplog.get_records("setup"))
    assert events["line"] == told.metrics.lines_read + told.metrics.lines_written
    assert (events["connected"], events["closed"]) == (1, 1)


# ----------------------------------------------------------------------------------------------------- retries and session ids

SESSION = "6f1c1a52-3d0e-4a43-9c0b-2f6b7f0d9e11"


async def test_an_attempt_that_failed_has_not_used_the_session_id(options: Options, claude_cli: str, tmp_path: Path) -> None:  # noqa: F811
    claude = tmp_path / "claude"
    attempts: list[ct.wrappers.RetryAttempt] = []

    def install(attempt: ct.wrappers.RetryAttempt) -> None:
        attempts.append(attempt)
        if not claude.is_symlink():
            claude.symlink_to(claude_cli)

    async with FakeMessagesAPI(["Here I am."]) as api:
        inside = ct.SubprocessTransport(msgspec.structs.replace(options(api, session_id=SESSION), cli_path=str(claude)))
        wrapper = ct.RetryingTransport(
            inside, backoff=ct.backoff.Backoff(first=0), on=lambda error: isinstance(error, ct.CLINotFoundError), on_attempt=install
        )
        async with ct.Query(wrapper) as query:
            with anyio.fail_after(PATIENCE):
                result = await (await query.send("Hello")).result()
    assert [type(attempt.error) for attempt in attempts] == [ct.CLINotFoundError, type(None)]
    assert (result.result, result.session_id) == ("Here I am.", SESSION)


async def test_a_session_id_that_is_in_use_is_said_once_and_not_tried_again(options: Options) -> None:  # noqa: F811
    attempts: list[ct.wrappers.RetryAttempt] = []
    async with FakeMessagesAPI(["Here I am."]) as api:
        chosen = options(api, session_id=SESSION)
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.SubprocessTransport(chosen)) as query:
                await (await query.send("Hello")).result()
            again = ct.Query(ct.RetryingTransport(ct.SubprocessTransport(chosen), on_attempt=attempts.append))
            with pytest.raises(ct.ProcessError) as caught:
                await again.start()
    assert "already in use" in caught.value.stderr_tail
    assert [attempt.error for attempt in attempts] == [None]
