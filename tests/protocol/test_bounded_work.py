"""What one hostile line costs to read: counted in steps, never in time. Each line costs a bounded number of decodes, and linear parsing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from decode_counting import counted
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_lines import sample_lines

from claude_transport.protocol.answers import McpServerStatuses
from claude_transport.protocol.blocks import TextBlock, ToolResultBlock
from claude_transport.protocol.codec import LineDecoder, decode_message
from claude_transport.protocol.control import InitializationInfo
from claude_transport.protocol.envelope import DecodeFailure, Message, UnknownMessage
from claude_transport.protocol.hooks import HookInput, parse_hook_input
from claude_transport.protocol.messages import AssistantMessage, KeepAlive, ResultMessage
from claude_transport.protocol.salvage import MAX_SALVAGE_DECODES

KEEP_ALIVE = b'{"type":"keep_alive"}'
MANY = 20_000
NOISE_ALLOWANCE = 64 * 1024  # bytes that a noise line may be parsed for, besides its own length


def spoken(*items: bytes) -> bytes:
    return b'{"type":"assistant","message":{"content":[' + b",".join(items) + b"]}}"


def results_in_results(levels: int, inside: bytes) -> bytes:
    return spoken(b'{"type":"tool_result","content":[' * levels + inside + b"]}" * levels)


HOSTILE = {
    "numbers for blocks": spoken(*[b"7"] * MANY),
    "empty objects for blocks": spoken(*[b"{}"] * MANY),
    "blocks with a number for text": spoken(*[b'{"type":"text","text":7}'] * MANY),
    "blocks with a list for a tag": spoken(*[b'{"type":[]}'] * MANY),
    "blocks of an unknown type": spoken(*[b'{"type":"smell"}'] * MANY),
    "tool results with a number in them": spoken(*[b'{"type":"tool_result","content":[7]}'] * MANY),
    "every other block odd": spoken(*[b'{"type":"text","text":"a"},7'] * MANY),
    "denials that are numbers": b'{"type":"result","permission_denials":[' + b",".join([b"7"] * MANY) + b"]}",
    "usage of models that are numbers": b'{"type":"result","modelUsage":{' + b",".join(b'"%d":7' % n for n in range(MANY)) + b"}}",
    "questions that are numbers": b'{"type":"control_request","request_id":"a","request":{"subtype":"can_use_tool","tool_name":"B",'
    b'"input":{},"permission_suggestions":[' + b",".join([b"7"] * MANY) + b"]}}",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_line_full_of_misfits_costs_a_bounded_number_of_decodes_and_becomes_unknown(line: bytes) -> None:
    kind = json.loads(line)["type"]
    decoder = LineDecoder()
    with counted() as cost:
        message, after = decoder.messages([line, KEEP_ALIVE])
    assert isinstance(message, UnknownMessage)
    assert (message.type, message.raw, message.misfits, message.lossy) == (kind, line, (), False)
    assert isinstance(after, KeepAlive)
    assert (decoder.counters.unknown, decoder.counters.salvaged, decoder.counters.typed) == (1, 0, 1)
    assert cost.decodes == MAX_SALVAGE_DECODES
    assert message.to_dict() == json.loads(line)


def test_a_lossy_line_full_of_misfits_is_bounded_as_well() -> None:
    with counted() as cost:
        message = decode_message(spoken(*[b"NaN"] * MANY))
    assert isinstance(message, UnknownMessage)
    assert (message.type, message.lossy, message.misfits) == ("assistant", True, ())
    assert cost.decodes == MAX_SALVAGE_DECODES


def test_one_odd_item_among_thousands_of_good_ones_costs_that_item_only() -> None:
    good = b'{"type":"text","text":"a"}'
    with counted() as cost:
        message = decode_message(spoken(*[good] * 9_999, b"7", *[good] * 10_000))
    assert isinstance(message, AssistantMessage)
    assert message.content == (TextBlock(text="a"),) * 19_999
    assert message.misfits == ("message.content.9999",)
    assert cost.decodes < MAX_SALVAGE_DECODES


def test_as_many_misfits_as_a_real_message_could_have_are_all_saved() -> None:
    message = decode_message(spoken(*[b'{"type":"text","text":"a"}', b"7", b'{"type":"smell"}'] * 250))
    assert isinstance(message, AssistantMessage)
    assert (len(message.content), len(message.misfits)) == (500, 250)


@pytest.mark.parametrize("levels", [50, 150, 200, 300, 400, 600])
def test_an_odd_value_deep_inside_costs_no_more_than_one_near_the_surface(levels: int) -> None:
    items = b",".join([b'{"type":"text","text":"a"}'] * 1000)
    with counted() as cost:
        message = decode_message(results_in_results(levels, items + b",7"))
    assert isinstance(message, AssistantMessage | DecodeFailure)  # the interpreter refuses to read what is too deep for it
    if isinstance(message, AssistantMessage):
        (block,) = message.content
        assert isinstance(block, ToolResultBlock)
        assert message.misfits == ("message.content.0.content.0.content.0.content.0.content.0",)
    assert cost.decodes < 20


def test_a_wire_path_does_not_grow_with_the_keys_of_the_peer() -> None:
    fields = b'"inputTokens":"a","outputTokens":"b","costUSD":"c"'
    message = decode_message(b'{"type":"result","modelUsage":{"' + b"k" * 100_000 + b'":{' + fields + b"}}}")
    assert isinstance(message, ResultMessage)
    assert [len(path) < 200 for path in message.misfits] == [True] * 3


# ------------------------------------------------------------------------------------- any shape at all: a property

LARGEST = 20_000  # characters of a hostile value, about

SCALARS = st.sampled_from([7, "x", None, True, 0.5, 10**40])
SMALL = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3))


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


WIRE_NAMES = sorted(set().union(*(keys_of(json.loads(line)) for line in sample_lines())))
TAGS = ["text", "tool_use", "tool_result", "document", "assistant", "can_use_tool", "hook_callback", "smell", "init", "status"]


@st.composite
def hostile_values(draw: st.DrawFn, depth: int = 3) -> Any:
    """A value as big as thousands of misfits can make it, under names that the decoder knows."""
    shape = draw(st.sampled_from(["small", "repeated", "object", "nested"] if depth else ["small"]))
    if shape == "small":
        return draw(SMALL)
    inner = draw(hostile_values(depth - 1))
    if shape == "repeated":
        return [inner] * draw(st.sampled_from([1, 33, max(LARGEST // len(json.dumps(inner)), 1)]))
    if shape == "nested":
        name = draw(st.sampled_from(WIRE_NAMES))
        for _ in range(draw(st.sampled_from([2, 30]) if len(json.dumps(inner)) < LARGEST else st.just(1))):
            inner = {"type": draw(st.sampled_from(TAGS)), name: [inner]}
        return inner
    named = {draw(st.sampled_from(WIRE_NAMES)): inner for _ in range(draw(st.integers(1, 4)))}
    return {"type": draw(st.sampled_from(TAGS)), "subtype": draw(st.sampled_from(TAGS)), **named}


@st.composite
def hostile_lines(draw: st.DrawFn) -> bytes:
    """A recorded line with hostile values in some of its fields, perhaps behind noise, perhaps torn."""
    message: dict[str, Any] = json.loads(draw(st.sampled_from(sample_lines())))
    for _ in range(draw(st.integers(1, 3))):
        holder = message
        while isinstance(inner := holder.get(draw(st.sampled_from(sorted(holder)))), dict) and inner and draw(st.booleans()):
            holder = inner
        holder[draw(st.sampled_from(sorted(holder)) | st.sampled_from(WIRE_NAMES))] = draw(hostile_values())
    line = json.dumps({**message, "type": message.get("type", "assistant")}).encode()
    line = draw(st.sampled_from([b"", b"[debug] ", b'x {"a":', b'x {"a":{"b":[' * 5])) + line
    return line[: draw(st.sampled_from([len(line), len(line) - 1, len(line) // 2]))]


@settings(deadline=None, max_examples=150)
@given(hostile_lines())
def test_no_line_costs_more_than_its_bound(line: bytes) -> None:
    with counted() as cost:
        message = decode_message(line)
    assert isinstance(message, Message)
    assert cost.decodes <= MAX_SALVAGE_DECODES
    assert cost.parses <= (1 if line.startswith(b"{") else 9)
    assert cost.parsed_bytes <= 3 * len(line) + NOISE_ALLOWANCE


# ------------------------------------------------------------------------------------- noise with something glued to it


@pytest.mark.parametrize(
    "tail",
    [b"0," * 100_000, b"0," * 100_000 + b"0]" + b"}" * 20, b"{}," * 100_000, b'"a' * 100_000, b"[" * 100_000],
    ids=["torn", "whole, without a type", "torn objects", "quotes", "brackets"],
)
def test_a_noise_line_is_parsed_at_most_twice(tail: bytes) -> None:
    line = b"x" + b'{"a":' * 20 + b"[" + tail
    with counted() as cost:
        message = decode_message(line)
    assert isinstance(message, DecodeFailure)
    assert (message.kind, message.raw) == ("noise", line)
    assert cost.parsed_bytes <= 2 * len(line) + NOISE_ALLOWANCE


def test_a_large_message_behind_noise_with_several_braces_is_still_found() -> None:
    message = spoken(b'{"type":"text","text":"' + b"x" * 1_000_000 + b'"}')
    found = decode_message(b'[debug] {"a":1} {"b":2} {"c":3} {"d": ' + message)
    assert isinstance(found, AssistantMessage)
    assert found.raw == message


# ------------------------------------------------------------------------------------- what else is made of what the peer sends


def test_an_answer_full_of_misfits_is_left_at_its_defaults() -> None:
    payload = {"mcpServers": [7] * MANY, "unknown": 1}
    with counted() as cost:
        answer = McpServerStatuses.from_payload(payload)
    assert cost.decodes == MAX_SALVAGE_DECODES
    assert (answer.misfits, answer.raw) == (("mcpServers",), payload)
    assert McpServerStatuses.from_payload({}) == McpServerStatuses()


def test_an_answer_to_initialize_full_of_misfits_is_left_at_its_defaults() -> None:
    payload = {"commands": [7] * MANY, "pid": 5}
    with counted() as cost:
        info = InitializationInfo.from_payload(payload)
    assert cost.decodes == MAX_SALVAGE_DECODES
    assert (info.misfits, info.commands, info.pid, info.raw) == (("commands", "pid"), (), None, payload)


def test_a_hook_input_full_of_misfits_is_not_taken_for_one_of_its_event() -> None:
    data = {"hook_event_name": "Stop", "session_id": "s", "background_tasks": [7] * MANY}
    with counted() as cost:
        parsed = parse_hook_input("Stop", data)
    assert type(parsed) is HookInput
    assert (parsed.hook_event_name, parsed.session_id) == ("Stop", "s")
    assert parsed.to_dict() == data
    assert cost.decodes <= 2 * MAX_SALVAGE_DECODES
