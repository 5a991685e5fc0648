"""Messages as values: what they are equal to, what they show, and what becomes of them on the wire."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import msgspec
import pytest

from claude_transport.protocol.blocks import (
    AdvisorToolResultBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownBlock,
)
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.envelope import DecodeFailure, Message, UnknownMessage, Usage, encode_message
from claude_transport.protocol.messages import (
    SYSTEM_SUBTYPES,
    APIMessage,
    AssistantMessage,
    HookMessage,
    InitMessage,
    KeepAlive,
    RateLimitEvent,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    UserContent,
    UserMessage,
)


def line(**wire: Any) -> bytes:
    return json.dumps(wire).encode()


def assistant(*blocks: dict[str, Any]) -> AssistantMessage:
    message = decode_message(line(type="assistant", message={"role": "assistant", "content": list(blocks)}))
    assert isinstance(message, AssistantMessage)
    return message


def test_two_messages_are_equal_when_they_say_the_same_in_other_bytes() -> None:
    assert decode_message(b'{"type":"keep_alive"}') == decode_message(b'{ "type" : "keep_alive" }') == KeepAlive()
    assert decode_message(line(type="result", is_error=True)) != decode_message(line(type="result"))
    assert decode_message(line(type="result")) != decode_message(line(type="user"))


def test_a_message_of_plain_values_can_be_a_set_member() -> None:
    assert len({decode_message(b'{"type":"keep_alive"}'), decode_message(b'{"type": "keep_alive"}')}) == 1


def test_the_bytes_are_not_shown() -> None:
    message = decode_message(line(type="user", message={"role": "user", "content": "hi"}))
    assert "raw=" not in repr(message)
    assert "damage" not in repr(message)
    assert repr(message).startswith("UserMessage(message=UserContent(role='user', content='hi')")
    assert [name for name, _ in message.__rich_repr__()][:2] == ["message", "parent_tool_use_id"]


def test_messages_are_frozen() -> None:
    with pytest.raises(AttributeError):
        KeepAlive().raw = b"x"  # type: ignore[misc]


def test_a_field_nobody_knows_survives_at_every_depth() -> None:
    wire = {
        "type": "assistant",
        "new": 1,
        "message": {"role": "assistant", "new": 2, "content": [{"type": "text", "text": "a", "new": 3}], "usage": {"new": 4}},
    }
    message = decode_message(line(**wire))
    assert isinstance(message, AssistantMessage)
    assert message.to_dict() == wire
    assert json.loads(encode_message(message)) == wire


def test_to_dict_gives_a_new_dict_each_time() -> None:
    message = decode_message(line(type="keep_alive"))
    message.to_dict()["type"] = "spoilt"
    assert message.to_dict() == {"type": "keep_alive"}


def test_a_message_built_by_hand_is_written_in_wire_spelling_without_what_is_unset() -> None:
    message = UserMessage(message=UserContent(content="hi"), should_query=False, is_synthetic=True)
    assert message.to_dict() == {"type": "user", "message": {"role": "user", "content": "hi"}, "shouldQuery": False, "isSynthetic": True}


@pytest.mark.parametrize("raw", [b"no JSON", b"[1]", b"\xff"])
def test_a_message_whose_line_was_replaced_by_something_else_is_written_from_its_fields(raw: bytes) -> None:
    built = ResultMessage(subtype="success", is_error=False, result="done")
    assert msgspec.structs.replace(built, raw=raw).to_dict() == built.to_dict()


def test_a_result_built_by_hand_carries_what_readers_insist_on() -> None:
    wire = ResultMessage(subtype="success", session_id="s").to_dict()
    assert {"type", "subtype", "is_error", "duration_ms", "duration_api_ms", "num_turns", "session_id", "usage"} <= set(wire)
    assert wire["usage"]["input_tokens"] == 0


def test_empty_content_is_written_all_the_same() -> None:
    assert AssistantMessage().to_dict()["message"]["content"] == []
    assert UserMessage(message=UserContent(content=())).to_dict()["message"]["content"] == []


def test_payload_values_that_are_null_stay_null() -> None:
    block = ToolUseBlock(id="t", name="Bash", input={"timeout": None, "list": [None, ()]})
    assert block.to_dict() == {"type": "tool_use", "id": "t", "name": "Bash", "input": {"timeout": None, "list": [None, []]}}


def test_a_changed_copy_without_the_old_bytes_tells_the_new_story() -> None:
    message = decode_message(line(type="conversation_reset", new_conversation_id="a"))
    changed = msgspec.structs.replace(message, new_conversation_id="b", raw=b"")
    assert changed.to_dict() == {"type": "conversation_reset", "new_conversation_id": "b"}


@pytest.mark.parametrize(("subtype", "cls"), SYSTEM_SUBTYPES.items())
def test_every_system_subtype_has_a_class_that_says_its_subtype(subtype: str, cls: type[SystemMessage]) -> None:
    message = decode_message(line(type="system", subtype=subtype, session_id="s", uuid="u"))
    assert type(message) is cls
    assert (message.type, message.subtype, message.session_id, message.uuid) == ("system", subtype, "s", "u")
    assert decode_message(encode_message(cls())) == cls()


def test_a_new_system_subtype_is_a_plain_system_message() -> None:
    message = decode_message(line(type="system", subtype="brand_new", detail=[1]))
    assert type(message) is SystemMessage
    assert message.subtype == "brand_new"
    assert message.to_dict()["detail"] == [1]
    assert message.misfits == ()


# ---------------------------------------------------------------------------------------------------- assistant text


def test_text_is_the_text_blocks_joined_by_a_newline() -> None:
    message = assistant(
        {"type": "text", "text": "one"},
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "id": "t"},
        {"type": "text", "text": "two"},
    )
    assert message.text == "one\ntwo"
    assert message.tool_uses == (ToolUseBlock(id="t"),)


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "text", "text": 7},
        {"type": "text", "text": ["x"]},
        {"type": "brand_new", "text": "x"},
        {"text": "x"},
        {"type": None},
        {"type": "tool_use", "input": "x"},
        {},
        None,
        7,
        [],
    ],
)
def test_an_odd_block_adds_nothing_to_the_text_and_harms_no_other(odd: Any) -> None:
    message = assistant({"type": "text", "text": "a"}, odd, {"type": "text", "text": "b"})
    assert message.text == "a\nb"
    assert message.to_dict()["message"]["content"][1] == odd


@pytest.mark.parametrize("content", [None, 7, {}, {"type": "text", "text": "x"}])
def test_content_that_is_no_list_gives_no_blocks(content: Any) -> None:
    message = decode_message(line(type="assistant", message={"content": content}, uuid="u"))
    assert isinstance(message, AssistantMessage)
    assert (message.content, message.text, message.uuid) == ((), "", "u")
    assert message.misfits == ("message.content",)


def test_content_that_is_bare_text_is_one_text_block() -> None:
    message = decode_message(line(type="assistant", message={"content": "hello"}))
    assert isinstance(message, AssistantMessage)
    assert message.content == (TextBlock(text="hello"),)


@pytest.mark.parametrize("message", [None, "x", 7, []])
def test_a_message_that_is_no_object_leaves_an_empty_one(message: Any) -> None:
    decoded = decode_message(line(type="assistant", message=message, uuid="u"))
    assert isinstance(decoded, AssistantMessage)
    assert (decoded.text, decoded.model, decoded.uuid) == ("", "", "u")
    assert decoded.misfits == ("message",)


def test_what_the_cli_writes_itself_is_synthetic() -> None:
    assert AssistantMessage(message=APIMessage(model="<synthetic>")).is_synthetic
    assert not AssistantMessage(message=APIMessage(model="claude-opus-5-5")).is_synthetic


# -------------------------------------------------------------------------------------------------------------------- blocks


def test_an_unknown_block_is_kept_whole_and_is_no_misfit() -> None:
    block = {"type": "hologram", "depth": {"cm": 3}}
    message = assistant({"type": "text", "text": "look"}, block)
    assert message.content == (TextBlock(text="look"), UnknownBlock(data=block))
    assert message.content[1].type == "hologram"
    assert message.content[1].to_dict() == block
    assert message.misfits == ()


def test_a_known_block_of_the_wrong_shape_is_kept_whole_and_named() -> None:
    block = {"type": "tool_use", "id": 5, "name": "Bash", "input": {}}
    message = assistant(block)
    assert message.content == (UnknownBlock(data=block),)
    assert message.misfits == ("message.content.0",)


def test_an_odd_optional_field_costs_a_block_only_that_field() -> None:
    message = assistant({"type": "tool_use", "id": "t", "name": "Bash", "input": {"a": 1}, "caller": "me"})
    assert message.tool_uses == (ToolUseBlock(id="t", name="Bash", input={"a": 1}),)
    assert message.misfits == ("message.content.0.caller",)


def test_an_unknown_block_inside_a_tool_result_leaves_the_tool_result_typed() -> None:
    wire = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "sound"}, {"type": "image"}]}]}
    message = decode_message(line(type="user", message=wire))
    assert isinstance(message, UserMessage)
    assert message.tool_results == (ToolResultBlock(tool_use_id="t", content=(UnknownBlock(data={"type": "sound"}), ImageBlock())),)
    assert message.misfits == ()


def test_a_bad_block_inside_a_tool_result_is_named_by_its_path() -> None:
    wire = {"content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": 5}]}]}
    message = decode_message(line(type="user", message=wire))
    assert isinstance(message, UserMessage)
    assert message.misfits == ("message.content.0.content.0",)
    assert message.tool_results[0].tool_use_id == "t"


@pytest.mark.parametrize(
    "kind",
    [
        "text", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use", "mcp_tool_use", "web_search_tool_result",
        "web_fetch_tool_result", "code_execution_tool_result", "mcp_tool_result", "image", "document", "search_result", "tool_reference",
        "container_upload", "advisor_tool_result",
    ],
)  # fmt: skip
def test_every_block_of_the_api_has_a_class(kind: str) -> None:
    block = assistant({"type": kind}).content[0]
    assert not isinstance(block, UnknownBlock)
    assert block.type == kind


@pytest.mark.parametrize(
    "content",
    [
        {"type": "advisor_result", "text": "Look at the tests first.", "stop_reason": "end_turn"},
        {"type": "advisor_redacted_result", "encrypted_content": "x"},
        {"type": "advisor_tool_result_error", "error_code": "unavailable"},
    ],
)
def test_what_the_advisor_said_is_a_block_with_all_of_it(content: dict[str, Any]) -> None:
    message = assistant({"type": "advisor_tool_result", "tool_use_id": "t", "content": content})
    assert message.content == (AdvisorToolResultBlock(tool_use_id="t", content=content),)
    assert message.misfits == ()


@pytest.mark.parametrize("subtype", ["hook_started", "hook_progress", "hook_response"])
@pytest.mark.parametrize(
    ("fields", "event"),
    [
        ({"hook_event": "PreToolUse", "hook_name": "PreToolUse:Bash"}, "PreToolUse"),  # recording 05l
        ({"hook_event_name": "PreToolUse", "hook_name": "guard"}, "PreToolUse"),
        ({"hook_event": "", "hook_event_name": "Stop"}, "Stop"),
        ({"hook_name": "PreToolUse:Bash"}, "PreToolUse"),
        ({"hook_name": "Stop"}, "Stop"),
        ({"hook_event": 3, "hook_name": "Stop"}, "Stop"),
        ({}, ""),
    ],
)
def test_the_event_of_a_hook_is_known_by_each_of_its_names(subtype: str, fields: dict[str, Any], event: str) -> None:
    wire = {"type": "system", "subtype": subtype, "hook_id": "h", "session_id": "s", "uuid": "u", **fields}
    message = decode_message(line(**wire))
    assert isinstance(message, HookMessage)
    assert message.hook_event == event
    assert message.to_dict() == wire


@pytest.mark.parametrize(
    ("origin", "kept"),
    [({"kind": "human"}, True), ({"kind": "task-notification", "x": 1}, True), ({}, False), ({"x": 1}, False), ({"kind": None}, False)],
)
def test_an_origin_is_one_that_has_a_kind(origin: dict[str, Any], kept: bool) -> None:
    for wire in (
        {"type": "user", "message": {"role": "user", "content": "x"}, "origin": origin},
        {"type": "result", "subtype": "success", "is_error": False, "origin": origin},
    ):
        message = decode_message(line(**wire))
        assert isinstance(message, UserMessage | ResultMessage)
        assert message.origin == (origin if kept else None)
        assert message.misfits == ()
        assert message.to_dict() == wire


def test_user_text_is_the_string_or_the_text_blocks() -> None:
    assert UserMessage(message=UserContent(content="hi")).text == "hi"
    assert UserMessage(message=UserContent(content=(TextBlock(text="a"), ImageBlock(), TextBlock(text="b")))).text == "a\nb"


# ------------------------------------------------------------------------------------------------------------- stream events


def test_the_pieces_of_a_delta_are_at_hand() -> None:
    event = StreamEvent(event={"type": "content_block_delta", "delta": {"type": "text_delta", "text": "wo"}})
    assert (event.event_type, event.delta_type, event.text, event.thinking) == ("content_block_delta", "text_delta", "wo", "")
    event = StreamEvent(event={"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}})
    assert (event.delta_type, event.text, event.thinking) == ("thinking_delta", "", "hm")


@pytest.mark.parametrize(
    "event", [{}, {"type": 5}, {"type": "content_block_delta"}, {"type": "content_block_delta", "delta": 5}, {"delta": {"text": "x"}}]
)
def test_any_other_event_has_no_text(event: dict[str, Any]) -> None:
    assert (StreamEvent(event=event).text, StreamEvent(event=event).delta_type) == ("", "")


# ------------------------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("usage", [None, "abc", 5, [], True])
def test_usage_that_is_no_object_counts_nothing_and_the_result_is_still_a_result(usage: Any) -> None:
    result = decode_message(line(type="result", subtype="success", result="done", usage=usage))
    assert isinstance(result, ResultMessage)
    assert (result.result, result.usage, result.misfits) == ("done", Usage(), ("usage",))


@pytest.mark.parametrize("count", [None, "12", [], {}, 1.5, True])
def test_a_token_count_that_is_no_number_is_zero_and_the_others_stay(count: Any) -> None:
    result = decode_message(line(type="result", usage={"input_tokens": count, "output_tokens": 3}))
    assert isinstance(result, ResultMessage)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (0, 3)
    assert result.misfits == ("usage.input_tokens",)


def test_missing_usage_is_zero() -> None:
    result = decode_message(line(type="result"))
    assert isinstance(result, ResultMessage)
    assert result.usage.total_input_tokens == 0


@pytest.mark.parametrize("value", ["true", 1, None, "yes", [], 0])
def test_only_true_is_an_error(value: Any) -> None:
    result = decode_message(line(type="result", is_error=value))
    assert isinstance(result, ResultMessage)
    assert result.is_error is False


def test_true_is_an_error() -> None:
    result = decode_message(line(type="result", is_error=True))
    assert isinstance(result, ResultMessage)
    assert result.is_error is True


def test_a_model_whose_usage_does_not_fit_costs_only_what_does_not_fit() -> None:
    usage = {"a": {"inputTokens": 5, "costUSD": "free"}, "b": 7, "c": {"costUSD": 1}}
    result = decode_message(line(type="result", modelUsage=usage))
    assert isinstance(result, ResultMessage)
    assert set(result.model_usage) == {"a", "c"}
    assert (result.model_usage["a"].input_tokens, result.model_usage["c"].cost_usd) == (5, 1)
    assert set(result.misfits) == {"modelUsage.a.costUSD", "modelUsage.b"}


# --------------------------------------------------------------------------------------------------------------- init


def test_an_api_key_source_that_is_no_text_is_ignored() -> None:
    init = decode_message(line(type="system", subtype="init", apiKeySource=5, model="m"))
    assert isinstance(init, InitMessage)
    assert (init.api_key_source, init.model, init.misfits) == ("", "m", ("apiKeySource",))


def test_a_subtype_that_is_no_text_leaves_a_system_message() -> None:
    message = decode_message(line(type="system", subtype=5, uuid="u"))
    assert type(message) is SystemMessage
    assert (message.uuid, message.misfits) == ("u", ("subtype",))


# ---------------------------------------------------------------------------------------------------------------- the others


def test_a_limit_says_when_it_lifts() -> None:
    event = decode_message(line(type="rate_limit_event", rate_limit_info={"status": "rejected", "resetsAt": 1795208611}))
    assert isinstance(event, RateLimitEvent)
    assert event.rate_limit_info.resets_at_time == dt.datetime(2026, 11, 20, 21, 3, 31, tzinfo=dt.UTC)


@pytest.mark.parametrize("moment", [None, "soon", 10**30, -(10**30)])
def test_a_limit_without_a_real_moment_has_none(moment: Any) -> None:
    event = decode_message(line(type="rate_limit_event", rate_limit_info={"status": "rejected", "resetsAt": moment}))
    assert isinstance(event, RateLimitEvent)
    assert (event.rate_limit_info.status, event.rate_limit_info.resets_at_time) == ("rejected", None)


def test_an_unknown_type_is_surfaced_with_everything_it_says() -> None:
    message = decode_message(line(type="zzz_new", deep={"er": [1]}))
    assert isinstance(message, UnknownMessage)
    assert (message.type, message.to_dict()) == ("zzz_new", {"type": "zzz_new", "deep": {"er": [1]}})
    assert message == decode_message(line(deep={"er": [1]}, type="zzz_new"))
    assert message != decode_message(line(type="zzz_new"))


@pytest.mark.parametrize("kind", [None, 5, [], {}, True])
def test_a_type_that_is_no_text_is_empty(kind: Any) -> None:
    message = decode_message(line(type=kind))
    assert isinstance(message, UnknownMessage)
    assert message.type == ""


def test_an_object_without_a_type_is_unknown() -> None:
    assert decode_message(b"{}") == UnknownMessage(raw=b"{}")


def test_a_peer_cannot_forge_what_is_ours() -> None:
    forged = '{"type":"result","\ue000raw":"Zm9yZ2Vk","\ue000damage":{"lossy":true},"subtype":"success"}'.encode()
    message = decode_message(forged)
    assert isinstance(message, ResultMessage)
    assert (message.raw, message.lossy, message.misfits, message.subtype) == (forged, False, (), "success")


def test_what_was_learnt_before_a_result_is_not_part_of_what_it_says() -> None:
    result = decode_message(line(type="result", is_error=True))
    known = msgspec.structs.replace(result, assistant_error="rate_limit", resets_at=dt.datetime(2026, 11, 20, tzinfo=dt.UTC))
    assert known == result
    assert known.to_dict() == {"type": "result", "is_error": True}
    assert "assistant_error" not in msgspec.structs.replace(known, raw=b"").to_dict()
    assert "resets_at" not in repr(known)


def test_a_failure_describes_itself_for_logs() -> None:
    failure = DecodeFailure(kind="noise", error="e", line_number=3, raw=b"a\xff")
    assert failure.to_dict() == {"type": "decode_failure", "kind": "noise", "error": "e", "line_number": 3, "line": "a\\xff"}


def test_every_message_is_a_message() -> None:
    everything: list[Message] = [KeepAlive(), UnknownMessage(), DecodeFailure(), AssistantMessage()]
    assert [message.type for message in everything] == ["keep_alive", "", "decode_failure", "assistant"]


def test_thinking_keeps_its_signature() -> None:
    assert assistant({"type": "thinking", "thinking": "hm", "signature": "s"}).content == (ThinkingBlock(thinking="hm", signature="s"),)
