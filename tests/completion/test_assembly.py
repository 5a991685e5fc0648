"""What the lines of a run come to, as a table: NDJSON in, text and tokens and warnings out. Nothing is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anthropic.types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claude_transport.completion.assembly import NO_RESULT, TextFlow, assemble, build_api_message, may_have_side_effects
from claude_transport.completion.completion import Completion
from claude_transport.completion.resolution import Resolution
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.envelope import Message, Usage
from claude_transport.protocol.messages import ResultMessage

INIT = {"type": "system", "subtype": "init", "session_id": "s1", "model": "claude-haiku-5-5", "apiKeySource": "ANTHROPIC_API_KEY"}
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "num_turns": 1,
    "stop_reason": "end_turn",
    "session_id": "s1",
    "usage": {"input_tokens": 1423, "output_tokens": 512},
}


def said(*content: Any, model: str = "claude-haiku-5-5", **message: Any) -> dict[str, Any]:
    """An assistant line; text stands for a text block."""
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    return {"type": "assistant", "message": {"id": "msg_1", "role": "assistant", "model": model, "content": blocks, **message}}


def decoded(*lines: Any) -> Sequence[Message]:
    """The messages on these lines: bytes as they are, anything else as JSON."""
    return LineDecoder().messages([line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines])


# ----------------------------------------------------------------------------------------------------------- as a table

TOOL = {"type": "tool_use", "id": "toolu_01", "name": "WebSearch", "input": {"query": "parks"}}

TABLE: list[Any] = [
    # lines
    pytest.param([INIT, b"", said("a"), b"   ", RESULT], {"text": "a", "warnings": ()}, id="blank-lines-are-skipped"),
    pytest.param([said("a"), b"[1, 2]", b"7", b'"x"', RESULT], {"text": "a"}, id="what-is-no-object-is-left-out"),
    pytest.param(
        [said("a"), b'{"type": "assistant", ', said("b"), RESULT],
        {"text": "a\nb", "warnings": ("lost-lines: 1 line held no message and was left out",)},
        id="a-malformed-line-costs-itself",
    ),
    pytest.param(
        [b"{broken", b"Warning: noise", said("a"), RESULT],
        {"text": "a", "warnings": ("lost-lines: 2 lines held no message and were left out",)},
        id="lost-lines-are-counted",
    ),
    pytest.param([{"type": "news_from_the_future", "x": 1}, said("a"), RESULT], {"text": "a", "warnings": ()}, id="unknown-types-pass"),
    # apiKeySource
    pytest.param([INIT, RESULT], {"api_key_source": "ANTHROPIC_API_KEY"}, id="the-source-of-the-key"),
    pytest.param([INIT, {**INIT, "apiKeySource": "other"}, RESULT], {"api_key_source": "ANTHROPIC_API_KEY"}, id="the-first-init-counts"),
    pytest.param(
        [{**INIT, "apiKeySource": 5}, INIT, RESULT], {"api_key_source": "ANTHROPIC_API_KEY"}, id="a-source-that-is-no-text-does-not"
    ),
    pytest.param([{**INIT, "apiKeySource": None}, RESULT], {"api_key_source": None}, id="a-null-source-is-none"),
    pytest.param(
        [{"type": "system", "subtype": "hook", "apiKeySource": "x"}, RESULT], {"api_key_source": None}, id="only-init-names-a-source"
    ),
    # text
    pytest.param(
        [said("one", TOOL, "two"), said("three"), RESULT], {"text": "one\ntwo\nthree", "text_blocks": ("one", "two", "three")}, id="text"
    ),
    pytest.param([{"type": "assistant"}, said("a"), RESULT], {"text": "a"}, id="no-message"),
    pytest.param([{"type": "assistant", "message": None}, said("a"), RESULT], {"text": "a"}, id="a-null-message"),
    pytest.param([{"type": "assistant", "message": {}}, said("a"), RESULT], {"text": "a"}, id="an-empty-message"),
    pytest.param([{"type": "assistant", "message": {"content": "loose"}}, RESULT], {"text": ""}, id="content-that-is-no-list"),
    pytest.param([said({"type": "text"}, {"type": "text", "text": None}, "a"), RESULT], {"text": "a"}, id="text-blocks-without-text"),
    pytest.param([said(7, None, [], {"no": "type"}, {"type": "hologram"}, "a"), RESULT], {"text": "a"}, id="odd-blocks"),
    pytest.param([said("a"), {**said("sub"), "parent_tool_use_id": "toolu_1"}, RESULT], {"text": "a"}, id="subagents-are-not-the-answer"),
    pytest.param(
        [{**said("API Error: 500", model="<synthetic>"), "error": "server_error"}, RESULT], {"text": ""}, id="errors-are-no-answer"
    ),
    # the result
    pytest.param([RESULT], {"usage": Usage(input_tokens=1423, output_tokens=512), "stop_reason": "end_turn"}, id="tokens"),
    pytest.param([{**RESULT, "usage": None}], {"usage": Usage()}, id="null-usage"),
    pytest.param([{key: RESULT[key] for key in RESULT if key != "usage"}], {"usage": Usage()}, id="no-usage"),
    pytest.param(
        [{**RESULT, "usage": {"input_tokens": "many", "output_tokens": None}}], {"usage": Usage()}, id="tokens-that-are-no-numbers"
    ),
    pytest.param([{**RESULT, "is_error": "true"}], {"failure": None}, id="is_error-as-text-is-no-failure"),
    pytest.param([{**RESULT, "is_error": 1}], {"failure": None}, id="is_error-as-a-number-is-no-failure"),
    pytest.param([{key: RESULT[key] for key in RESULT if key != "is_error"}], {"failure": None}, id="is_error-missing-is-no-failure"),
    # no result
    pytest.param(
        [INIT, said("a")], {"text": "a", "usage": Usage(), "cost_usd": None, "result": None, "warnings": (NO_RESULT,)}, id="no-result"
    ),
    pytest.param([], {"text": "", "model": None, "session_id": None, "warnings": (NO_RESULT,)}, id="nothing-at-all"),
    # who, and for how much
    pytest.param([INIT, RESULT], {"model": "claude-haiku-5-5", "session_id": "s1"}, id="the-model-of-init-when-nobody-spoke"),
    pytest.param(
        [INIT, said("a", model="claude-opus-5-5"), said("b", model="<synthetic>"), RESULT], {"model": "claude-opus-5-5"}, id="model"
    ),
    pytest.param([said("a", stop_reason="stop_sequence")], {"stop_reason": "stop_sequence"}, id="the-stop-reason-of-the-message"),
    pytest.param([{**RESULT, "total_cost_usd": 0.5}], {"cost_usd": 0.5}, id="the-total-of-an-older-cli"),
    pytest.param(
        [RESULT, {**RESULT, "session_id": "s2"}], {"session_id": "s2", "usage": Usage(input_tokens=2846, output_tokens=1024)}, id="two"
    ),
]


@pytest.mark.parametrize(("lines", "expected"), TABLE)
def test_s2_the_lines_of_a_run_come_to(lines: list[Any], expected: dict[str, Any]) -> None:
    assembly = assemble(decoded(*lines))
    found = {name: getattr(assembly, name) for name in expected}
    if isinstance(usage := found.get("usage"), Usage):
        found["usage"] = Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
    assert found == expected


def test_s2_4_only_a_strictly_true_is_error_is_a_failure_and_the_first_one_counts() -> None:
    failed = {**RESULT, "is_error": True, "result": "API Error: 500", "result_index": 0}
    assembly = assemble(decoded(RESULT, failed, {**failed, "result_index": 1}))
    assert assembly.failure is not None
    assert assembly.failure.result_index == 0


def test_a_resumed_session_costs_what_this_run_has_added() -> None:
    """The total goes on where the session was; recording 16b_resume has twice the cost of its one turn."""
    used = {"claude-opus-5-5": {"costUSD": 0.000188, "costBasis": "list"}, "claude-haiku-5-5": {"costUSD": 0.000012, "costBasis": "list"}}
    (result,) = decoded({**RESULT, "total_cost_usd": 0.000376, "model_usage_since_last_result": used})
    assert assemble([result]).cost_usd == pytest.approx(0.0002)
    assert assemble([result, result]).cost_usd == pytest.approx(0.0004)


def test_a_guessed_price_is_said_to_be_one() -> None:
    used = {"claude-nonesuch-9": {"costUSD": 0.000188, "costBasis": "unknown"}}
    (warning,) = assemble(decoded({**RESULT, "model_usage_since_last_result": used})).warnings
    assert warning.startswith("guessed-cost: ")
    assert "claude-nonesuch-9" in warning


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "content", "id", "x"]), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(["assistant", "result", "system", "stream_event", "user"])},
            optional=dict.fromkeys(("message", "usage", "is_error", "subtype", "event", "modelUsage", "session_id", "result"), json_values),
        ),
        max_size=5,
    )
)
def test_no_shape_of_a_line_ever_raises(lines: list[dict[str, Any]]) -> None:
    messages = decoded(*lines)
    assembly = assemble(messages)
    build_api_message(messages, usage=assembly.usage)
    flow = TextFlow()
    for message in messages:
        flow.hear(message)
    assert isinstance(assembly.text, str)


# --------------------------------------------------------------------------------------------------- the whole message


def completion_of(*lines: Any) -> Completion:
    assembly = assemble(decoded(*lines))
    chosen = Resolution(kind="cli", layer="argument", reason="")
    return Completion(text=assembly.text, transport="cli", resolution=chosen, events=assembly.events, usage=assembly.usage)


def test_s4_4_tool_calls_that_were_made_are_stripped_and_the_stop_reason_and_the_events_stay() -> None:
    answer = {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": "ok"}]}}
    undone = {**TOOL, "id": "toolu_02"}
    completion = completion_of(said("I look."), said(TOOL), answer, said("Found."), said(undone), {**RESULT, "stop_reason": "tool_use"})
    message = completion.raw_message
    assert type(message) is anthropic.types.Message
    assert [block.type for block in message.content] == ["text", "text", "tool_use"]
    assert message.content[-1].id == "toolu_02"  # type: ignore[union-attr]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (1423, 512)
    assert sum(block.type == "tool_use" for event in completion.events for block in getattr(event, "content", ())) == 2


def test_the_whole_message_keeps_what_this_version_does_not_know() -> None:
    message = completion_of(
        said({"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "hologram", "depth": 3}), RESULT
    ).raw_message
    thinking, hologram = (block.to_dict() for block in message.content)
    assert thinking == {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert hologram["depth"] == 3


def test_an_id_of_any_shape_is_no_obstacle() -> None:
    content = completion_of(said({**TOOL, "id": ["odd"]}, "text"), RESULT).raw_message.content
    assert [block.type for block in content] == ["tool_use", "text"]


def test_the_whole_message_of_nothing_is_an_empty_one() -> None:
    message = completion_of(INIT).raw_message
    assert (message.content, message.model, message.stop_reason) == ([], "claude-haiku-5-5", None)


# -------------------------------------------------------------------------------------------------------- text as it is written


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": {"type": kind, **fields}, "parent_tool_use_id": None}


def delta(text: str) -> dict[str, Any]:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


BLOCK = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
START = event("message_start", message={"id": "msg_1"})


def pieces(*lines: Any) -> list[str]:
    flow = TextFlow()
    found = [piece for message in decoded(*lines) if (piece := flow.hear(message))]
    assert flow.text == "".join(found)
    assert bool(flow) is bool(found)
    return found


def test_streamed_pieces_add_up_to_the_text_of_the_whole_blocks() -> None:
    lines = [START, BLOCK, delta("He"), delta("llo"), said("Hello"), BLOCK, delta("you"), said("you"), RESULT]
    assert pieces(*lines) == ["He", "llo", "\nyou"]
    assert assemble(decoded(*lines)).text == "Hello\nyou"


def test_a_block_that_was_not_streamed_is_one_piece() -> None:
    assert pieces(said("Hello"), said("you", TOOL, "too"), RESULT) == ["Hello", "\nyou\ntoo"]


def test_a_message_that_is_repeated_without_streaming_is_heard_again() -> None:
    again = said("whole", id="msg_2")
    assert pieces(START, BLOCK, delta("who"), again, RESULT) == ["who", "\nwhole"]


def test_what_the_cli_gives_up_is_taken_back() -> None:
    """Seen on CLI 2.1.329 after an error in the middle of a stream, and after a cut one."""
    flow = TextFlow()
    given_up = {**event("message_stop"), "abandoned_blocks": {"api_message_id": "msg_1", "from_block_index": 0}}
    for message in decoded(START, BLOCK, delta("who"), {**given_up, "abandoned_blocks": {"api_message_id": "msg_9"}}):
        flow.hear(message)
    assert (flow.text, flow.was_taken_back) == ("who", False)
    for message in decoded(given_up, said("whole", id="msg_2")):
        flow.hear(message)
    assert (flow.text, flow.was_taken_back) == ("whole", True)


def test_the_blocks_before_those_that_the_cli_gives_up_stay() -> None:
    flow = TextFlow()
    second = event("content_block_start", index=1, content_block={"type": "text", "text": ""})
    more = event("content_block_delta", index=1, delta={"type": "text_delta", "text": "and"})
    given_up = {**event("message_stop"), "abandoned_blocks": {"api_message_id": "msg_1", "from_block_index": 1}}
    for message in decoded(START, BLOCK, delta("first"), second, more, given_up):
        flow.hear(message)
    assert (flow.text, flow.was_taken_back) == ("first", True)


@pytest.mark.parametrize(
    "gives_up",
    [
        {"type": "user", "message": {"role": "user", "content": "Again."}, "isSynthetic": True, "refused_message_id": "msg_1"},
        {"type": "system", "subtype": "model_refusal_fallback", "retracted_message_uuids": ["uuid_1"]},
    ],
    ids=["same model", "another model"],
)
def test_a_message_that_was_refused_is_no_part_of_the_answer(gives_up: dict[str, Any]) -> None:
    refused, whole = {**said("No."), "uuid": "uuid_1"}, {**said("Fine.", id="msg_2"), "uuid": "uuid_2"}
    flow = TextFlow()
    for message in decoded(START, BLOCK, delta("No."), refused):
        flow.hear(message)
    assert (flow.text, flow.was_taken_back, flow.was_refused) == ("No.", False, False)
    for message in decoded(gives_up, whole):
        flow.hear(message)
    assert (flow.text, flow.blocks, flow.was_taken_back, flow.was_refused) == ("Fine.", ("Fine.",), True, True)
    completion = completion_of(refused, gives_up, whole, RESULT)
    assert completion.text == "Fine."
    assert [block.to_dict() for block in completion.raw_message.content] == [{"type": "text", "text": "Fine."}]


def test_the_blocks_so_far_are_those_of_the_text_so_far() -> None:
    flow = TextFlow()
    for message in decoded(START, BLOCK, delta("He"), delta("llo"), BLOCK, delta("y")):
        flow.hear(message)
    assert (flow.text, flow.blocks) == ("Hello\ny", ("Hello", "y"))


def test_the_stop_reason_of_a_message_of_the_cli_itself_is_not_the_models() -> None:
    failed = {**RESULT, "is_error": True, "stop_reason": "stop_sequence"}
    assert assemble(decoded(said("x"), failed)).stop_reason is None
    assert assemble(decoded(said("x"), {**failed, "api_error": "max_output_tokens"})).stop_reason == "max_tokens"


@pytest.mark.parametrize(
    "silent",
    [
        {**delta("sub"), "parent_tool_use_id": "toolu_1"},
        {**said("sub"), "parent_tool_use_id": "toolu_1"},
        {**said("API Error", model="<synthetic>"), "error": "unknown"},
        event("content_block_delta", delta={"type": "thinking_delta", "thinking": "hm"}),
        event("content_block_delta", delta=None),
        event("message_start", message=None),
        said(TOOL),
        RESULT,
    ],
)
def test_what_is_not_the_answer_is_not_heard(silent: dict[str, Any]) -> None:
    assert pieces(silent) == []


# ------------------------------------------------------------------------------------------------------------ side effects


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (said("text"), False),
        (said(TOOL), True),
        ({**said(TOOL), "parent_tool_use_id": "toolu_1"}, True),
        (said({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}), True),
        (event("content_block_start", content_block=TOOL), True),
        (BLOCK, False),
        (event("content_block_start", content_block=None), False),
        (RESULT, False),
    ],
)
def test_a_tool_that_was_called_or_is_about_to_be_makes_a_run_unrepeatable(line: dict[str, Any], expected: bool) -> None:
    assert may_have_side_effects(decoded(line)) is expected


def test_a_result_of_the_run_is_found_although_lines_follow_it() -> None:
    assembly = assemble(decoded(RESULT, {"type": "system", "subtype": "session_state_changed", "state": "idle"}))
    assert isinstance(assembly.result, ResultMessage)
