"""What is shown of each message, without a process and without a terminal."""

from __future__ import annotations

import io
import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from claude_transport.app.arguments import split_rules
from claude_transport.app.render import AnswerReader, Paragraph, Remark, ShownToolCall, Words, gist_of, summarize
from claude_transport.app.render_rich import split_blocks
from claude_transport.app.terminal import Look, choose_look, one_line, visible
from claude_transport.protocol.blocks import TextBlock, ToolUseBlock
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.envelope import OversizedMessage, Usage, as_float, encode_line
from claude_transport.protocol.messages import (
    APIMessage,
    APIRetryMessage,
    AssistantMessage,
    ModelFallback,
    RateLimitEvent,
    RateLimitInfo,
    ResultMessage,
    StreamEvent,
)


def event(kind: str, **fields: Any) -> StreamEvent:
    return StreamEvent(event={"type": kind, **fields})


def delta(text: str) -> StreamEvent:
    return event("content_block_delta", delta={"type": "text_delta", "text": text})


def said(text: str, *, message_id: str = "m1") -> AssistantMessage:
    return AssistantMessage(message=APIMessage(id=message_id, model="claude-x", content=(TextBlock(text=text),)))


def words(reader: AnswerReader, *messages: Any) -> str:
    """The answer as one text, a paragraph mark for each break."""
    pieces = [piece for message in messages for piece in reader.read(message)]
    return "".join("¶" if isinstance(piece, Paragraph) else piece.text for piece in pieces if isinstance(piece, Paragraph | Words))


START = event("message_start", message={"id": "m1"})
BLOCK = event("content_block_start", index=0)


def test_a_streamed_block_is_not_said_again_when_it_arrives_whole() -> None:
    assert words(AnswerReader(), START, BLOCK, delta("Hel"), delta("lo"), said("Hello"), event("content_block_stop")) == "¶Hello"


def test_what_the_stream_left_out_of_a_block_is_added() -> None:
    assert words(AnswerReader(), START, BLOCK, delta("Hel"), said("Hello")) == "¶Hello"


def test_a_block_that_differs_from_what_was_streamed_is_not_said_twice() -> None:
    assert words(AnswerReader(), START, BLOCK, delta("Hallo"), said("Hello")) == "¶Hallo"


def test_two_blocks_of_one_message_follow_each_other_directly() -> None:
    assert words(AnswerReader(), START, BLOCK, delta("A"), said("A"), BLOCK, delta("B"), said("B")) == "¶AB"


def test_whole_messages_are_paragraphs() -> None:
    assert words(AnswerReader(), said("A"), said("B", message_id="m2")) == "¶A¶B"


def test_an_account_of_an_api_failure_is_not_the_answer() -> None:
    synthetic = APIMessage(id="m9", model="<synthetic>", content=(TextBlock(text="API Error"),))
    reader = AnswerReader()
    assert reader.read(AssistantMessage(message=synthetic, error="server_error")) == []
    assert reader.model == ""


def test_a_tool_call_of_a_subagent_is_nested() -> None:
    use = ToolUseBlock(id="t1", name="Bash", input={"command": "ls"})
    message = AssistantMessage(message=APIMessage(id="m1", content=(use,)), parent_tool_use_id="t0")
    assert AnswerReader().read(message) == [ShownToolCall(tool_use_id="t1", name="Bash", gist="ls", nested=True)]


def test_the_result_of_a_background_task_does_not_replace_that_of_the_prompt() -> None:
    reader = AnswerReader()
    reader.read(ResultMessage(result="mine", uuid="1"))
    reader.read(ResultMessage(result="late", uuid="2", origin={"kind": "task-notification"}))
    assert reader.result is not None
    assert reader.result.uuid == "1"


def test_the_turn_that_a_resumed_session_begins_with_is_not_the_answer() -> None:
    own, resumed = ResultMessage(result="mine", uuid="2"), ResultMessage(result="It is made.", uuid="1")
    msgspec.structs.force_setattr(resumed, "prompt_uuids", ())
    msgspec.structs.force_setattr(own, "prompt_uuids", ("p",))
    for results in ((own, resumed), (resumed, own)):
        reader = AnswerReader()
        for result in results:
            reader.read(result)
        assert reader.result is own


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            APIRetryMessage(attempt=2, max_retries=10, retry_delay_ms=3100, error_status=529),
            "the API request failed (529); trying again in 3 s, 2 of 10",
        ),
        (ModelFallback(original_model="big", fallback_model="small"), "small has replaced big"),
        (OversizedMessage(size=9, limit=5), "a message of 9 bytes was skipped: the limit is 5"),
        (RateLimitEvent(rate_limit_info=RateLimitInfo(status="rejected")), "the account is near or over its limit (rejected)"),
    ],
)
def test_what_happens_beside_the_answer_is_remarked_on(message: Any, text: str) -> None:
    assert AnswerReader().read(message) == [Remark(text=text)]


def test_an_account_within_its_limits_is_not_worth_a_remark() -> None:
    assert AnswerReader().read(RateLimitEvent(rate_limit_info=RateLimitInfo(status="allowed"))) == []


@pytest.mark.parametrize(
    ("given", "gist"), [({"description": "d", "command": "ls"}, "ls"), ({"x": 1}, '{"x":1}'), ({}, ""), ({"command": 5}, '{"command":5}')]
)
def test_the_gist_of_a_tool_call_is_its_most_telling_field(given: dict[str, Any], gist: str) -> None:
    assert gist_of(given) == gist


def test_rules_are_split_at_commas_outside_parentheses() -> None:
    assert split_rules(["Read, Bash(a, b:*),,Edit", "Write"]) == ["Read", "Bash(a, b:*)", "Edit", "Write"]


def test_the_summary_counts_cached_tokens_and_writes_small_costs_exactly() -> None:
    result = ResultMessage(usage=Usage(input_tokens=1000, cache_read_input_tokens=500, output_tokens=20), total_cost_usd=0.00019)
    assert summarize(result, model="claude-x", seconds=1.25, look=Look()) == "claude-x · 1.2 s · 1,500 tokens in, 20 out · $0.0002"
    assert summarize(ResultMessage(), model="", seconds=0, look=Look(unicode=False)) == "0.0 s - 0 tokens in, 0 out - no cost"


def test_a_stream_that_is_no_terminal_gets_neither_colours_nor_markdown() -> None:
    look = choose_look(io.StringIO(), io.StringIO(), env={})
    assert (look.stdout_color, look.stderr_color, look.rich) == (False, False, False)
    assert look.paint("x", "red") == "x"


@given(st.text())
def test_visible_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    assert not any((ord(char) < 32 and char not in "\t\n") or 0x7F <= ord(char) < 0xA0 for char in visible(text))


@given(st.text(), st.integers(1, 40))
def test_one_line_is_one_line_and_fits(text: str, width: int) -> None:
    line = one_line(text, width=width)
    assert "\n" not in line
    assert len(line) <= width


MARKDOWN = st.lists(
    st.sampled_from(["word", "two words", "", " ", "- item", "1. one", "12", "  indented", "```", "```py", "~~~", "# head", "-"]),
    max_size=14,
).map("\n".join)


@given(MARKDOWN)
def test_blocks_add_up_to_the_text(text: str) -> None:
    assert "".join(split_blocks(text)) == text.lstrip(" \n") or "".join(split_blocks(text)).strip() == text.strip()


@example("- item\n\n1. one")  # the "1" alone would begin something new
@given(MARKDOWN)
def test_a_finished_block_never_changes_when_more_is_written(text: str) -> None:
    whole = split_blocks(text)
    for length in range(len(text)):
        finished = split_blocks(text[:length])[:-1]
        assert whole[: len(finished)] == finished


def test_a_fence_and_a_list_are_one_block_each() -> None:
    assert split_blocks("a\n\n```\nx\n\ny\n```\n\n- 1\n\n- 2\n\n  more\n\nz\n") == [
        "a\n\n",
        "```\nx\n\ny\n```\n\n",
        "- 1\n\n- 2\n\n  more\n\n",
        "z\n",
    ]


def test_numbers_beyond_every_float_are_no_reason_to_fail() -> None:
    huge = int("9" * 4300)
    retry = decode_message(encode_line({"type": "system", "subtype": "api_retry", "retry_delay_ms": huge, "attempt": 1, "max_retries": 2}))
    (remark,) = AnswerReader().read(retry)
    assert isinstance(remark, Remark)
    assert "in inf s, 1 of 2" in remark.text
    assert "$inf" in summarize(ResultMessage(total_cost_usd=huge), model="", seconds=0, look=Look())
    assert as_float(-huge) == -as_float(huge) == -math.inf
