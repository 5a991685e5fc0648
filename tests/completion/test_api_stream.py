"""The events of a streamed answer: whole, however the bytes were cut, and one message out of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.completion.api_path import APIStream

EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": {"input_tokens": 7, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "h"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Ä"}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b😀"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"n": 1}}},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t", "name": "n", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a": '}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "[1]}"}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9, "input_tokens": None}},
    {"type": "message_stop"},
]
WHOLE = {
    "id": "msg_1",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Äb😀", "citations": [{"n": 1}]},
        {"type": "tool_use", "id": "t", "name": "n", "input": {"a": [1]}},
    ],
    "usage": {"input_tokens": 7, "output_tokens": 9},
    "stop_reason": "tool_use",
}


def encoded(events: list[dict[str, Any]], *, line_end: str = "\n") -> bytes:
    frames = (f"event: {event['type']}{line_end}data: {json.dumps(event, ensure_ascii=False)}{line_end}{line_end}" for event in events)
    return "".join(frames).encode()


@given(st.lists(st.integers(1, 40), max_size=80), st.sampled_from(["\n", "\r\n"]))
def test_the_events_and_the_message_are_whole_however_the_bytes_are_cut(sizes: list[int], line_end: str) -> None:
    stream, found, rest = APIStream(), [], encoded(EVENTS, line_end=line_end)
    for size in [*sizes, len(rest)]:
        found += stream.feed(rest[:size])
        rest = rest[size:]
    assert found == EVENTS
    assert stream.message() == WHOLE
    assert stream.is_complete
    assert stream.message_id == "msg_1"


def test_a_stream_that_is_cut_has_what_came_and_is_not_complete() -> None:
    stream = APIStream()
    stream.feed(encoded(EVENTS[:8]))
    assert not stream.is_complete
    assert stream.message()["content"] == [{"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "text", "text": "Ä"}]


@pytest.mark.parametrize(
    "data",
    [
        b"data: {broken\n\n",
        b"data: [1]\n\n",
        b": a comment\n\n",
        b"event: ping\n\n",
        b"data: {}\n\n",
        b'data: {"type": ["x"]}\n\n',
        b'data: {"type": "message_start"}\n\n',
        b'data: {"type": "content_block_delta", "index": "x", "delta": {"type": ["text_delta"]}}\n\n',
        b'data: {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "nowhere"}}\n\n',
        b'data: {"type": "message_delta", "delta": 5, "usage": 5}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
    ],
)
def test_what_makes_no_sense_costs_itself(data: bytes) -> None:
    stream = APIStream()
    stream.feed(data)
    stream.feed(encoded(EVENTS))
    assert stream.message() == WHOLE


def test_data_over_several_lines_is_one_event() -> None:
    assert APIStream().feed(b'data: {"type":\ndata:  "ping"}\n\n') == [{"type": "ping"}]


def test_input_of_a_tool_that_is_no_json_is_empty() -> None:
    stream = APIStream()
    broken = {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{"}}
    stream.feed(encoded([*EVENTS[:11], broken]))
    assert stream.message()["content"][2]["input"] == {}
