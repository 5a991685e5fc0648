"""What a real Codex said: every recorded line is decoded by a class of its own, and nothing of it is lost."""

from __future__ import annotations

import json
import math
import pickle
from copy import deepcopy
from typing import Any

import pytest
from codex_recordings import NAMES, lines_of, object_on
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from claude_transport import codex
from claude_transport.codex import decode_message, messages
from claude_transport.errors import UsageError
from claude_transport.messages import DecodeFailure, OversizedMessage, UnknownMessage
from claude_transport.protocol.envelope import encode_message
from claude_transport.protocol.framing import OversizedLine

every_recording = pytest.mark.parametrize("name", NAMES)


def test_all_recordings_are_here() -> None:
    assert len(NAMES) == 52


@every_recording
def test_every_recorded_line_comes_back_as_it_was(name: str) -> None:
    for line in (*lines_of(name), *lines_of(name, direction="in")):
        message, value = decode_message(line), object_on(line)
        assert message.raw == line
        if value is None:
            assert isinstance(message, DecodeFailure)
        else:
            assert message.to_dict() == json.loads(line)
            assert encode_message(message) == line + b"\n"


@every_recording
def test_every_line_of_codex_has_a_class_and_every_value_fits(name: str) -> None:
    for line in filter(object_on, lines_of(name)):
        message = decode_message(line)
        assert not isinstance(message, (UnknownMessage, DecodeFailure, codex.UnknownNotification, codex.UnknownRequest)), line
        assert message.misfits == ()
        if isinstance(message, (codex.ItemStarted, codex.ItemCompleted)):
            assert not isinstance(message.item, codex.UnknownItem)
            assert message.item.type == json.loads(line)["params"]["item"]["type"]


def unnamed_keys(struct: Any, wire: dict[str, Any]) -> set[str]:
    return set(wire) - {*struct.__struct_encode_fields__, str(struct.__struct_config__.tag_field)}


@every_recording
def test_every_field_of_a_notification_and_of_an_item_has_a_name(name: str) -> None:
    for line in filter(object_on, lines_of(name)):
        message, wire = decode_message(line), json.loads(line)
        if isinstance(message, (codex.CodexNotification, codex.CodexRequest)):
            assert unnamed_keys(message, wire.get("params", {})) == set(), type(message)
            assert unnamed_keys(message, wire) <= {"method", "params"}
        if isinstance(message, (codex.ItemStarted, codex.ItemCompleted)):
            assert unnamed_keys(message.item, wire["params"]["item"]) == set()


@every_recording
def test_a_message_can_be_copied_pickled_and_compared(name: str) -> None:
    for line in lines_of(name):
        message = decode_message(line)
        for twin in (deepcopy(message), pickle.loads(pickle.dumps(message))):
            assert twin == message
            assert twin.to_dict() == message.to_dict()


@every_recording
def test_a_message_that_is_built_says_the_same_as_the_received_one(name: str) -> None:
    for line in filter(object_on, lines_of(name)):
        message = decode_message(line)
        fields = {field: getattr(message, field) for field in message.__struct_fields__ if field not in {"raw", "damage"}}
        again = decode_message(json.dumps(type(message)(**fields).to_dict()).encode())
        assert again == message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
NAMED = [cls.method for cls in vars(messages).values() if isinstance(getattr(cls, "method", None), str)]
METHODS = st.sampled_from([*NAMED, "no/such", "error", ""])
KEYS = st.sampled_from(["threadId", "turnId", "item", "delta", "turn", "id", "error", "willRetry", "status", "tokenUsage", "requestId"])
PARAMS = st.dictionaries(KEYS | st.text(max_size=6), JSON | st.just({"type": "agentMessage"}) | st.just({"type": "x"}), max_size=5)
EVENTS = st.sampled_from(["thread.started", "item.completed", "turn.failed", "error", "assistant"])
MEMBERS = {"method": METHODS | JSON, "id": JSON, "params": PARAMS | JSON, "result": JSON, "error": JSON, "type": EVENTS | JSON}


@given(st.fixed_dictionaries({}, optional=MEMBERS) | st.dictionaries(st.text(max_size=6), JSON, max_size=4))
def test_any_object_comes_back_as_it_was(value: dict[str, Any]) -> None:
    line = json.dumps(value).encode()
    message = decode_message(line)
    assert message.to_dict() == json.loads(line)
    assert isinstance(message, codex.CodexMessage)
    assert message.type is not None
    repr(message)


@given(st.binary(max_size=200))
def test_any_bytes_become_a_message_or_a_failure(line: bytes) -> None:
    message = decode_message(line)
    assert isinstance(message, codex.CodexMessage)
    assert message.raw == line


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"hello", "noise"),
        (b"", "blank"),
        (b"  \r", "blank"),
        (b"[1, 2]", "not_object"),
        (b"7", "not_object"),
        (b'{"method": "turn/completed"', "malformed"),
        (b'{"a": ' + b"[" * 100_000, "too_deep"),
        (b'{"a": \xff', "invalid_utf8"),
    ],
)
def test_a_line_without_a_message_is_a_failure_that_says_why(line: bytes, kind: str) -> None:
    message = decode_message(line)
    assert isinstance(message, DecodeFailure)
    assert message.kind == kind
    assert message.error


def test_a_line_that_is_too_long_is_an_oversized_message() -> None:
    message = decode_message(OversizedLine(b'{"method":"error"}', size=5000, limit=1000))
    assert isinstance(message, OversizedMessage)
    assert (message.size, message.limit) == (5000, 1000)


def test_text_is_refused_because_a_line_is_bytes() -> None:
    with pytest.raises(UsageError, match="bytes, not str"):
        decode_message("{}")  # type: ignore[arg-type]


def test_an_unknown_method_keeps_its_params_and_its_thread() -> None:
    message = decode_message(b'{"method":"thread/new","params":{"threadId":"t","turnId":"u","x":[1]},"emittedAtMs":5}')
    assert isinstance(message, codex.UnknownNotification)
    assert (message.type, message.thread_id, message.turn_id, message.emitted_at_ms) == ("thread/new", "t", "u", 5)
    assert message.params["x"] == [1]


@pytest.mark.parametrize("raw", [b"no JSON", b"[1]", b""])
def test_a_message_whose_line_is_no_object_says_what_its_fields_say(raw: bytes) -> None:
    message = replace(decode_message(b'{"method": "thread/closed", "params": {"threadId": "T"}}'), raw=raw)
    assert message.to_dict() == {"method": "thread/closed", "params": {"threadId": "T"}}


KINDS: dict[str, type[Any]] = {
    '{"id": 1, "result": {}}': codex.CodexAnswer,
    '{"id": 1, "result": null}': codex.CodexAnswer,
    '{"id": 1, "error": {"code": 1, "message": "no"}}': codex.CodexAnswer,
    '{"id": 1, "type": "turn.started"}': codex.ExecEvent,
    '{"type": "error", "result": {}}': codex.ExecEvent,
    '{"id": 1}': UnknownMessage,
    '{"result": {}}': UnknownMessage,
    '{"error": {}}': UnknownMessage,
    '{"type": "errors"}': UnknownMessage,
    '{"type": 5}': UnknownMessage,
    '{"method": 5, "id": 1}': UnknownMessage,
}


@pytest.mark.parametrize("line", KINDS)
def test_the_members_of_a_line_say_what_it_is(line: str) -> None:
    message = decode_message(line.encode())
    assert type(message) is KINDS[line]
    assert message.to_dict() == json.loads(line)


@pytest.mark.parametrize("params", ["null", "[]", "{}", '{"threadId": 5}'])
def test_an_unknown_method_may_have_any_params(params: str) -> None:
    told = decode_message(f'{{"method": "brand/new", "params": {params}}}'.encode())
    assert isinstance(told, codex.UnknownNotification)
    assert (told.wire_method, told.params, told.thread_id) == ("brand/new", json.loads(params), "")
    asked = decode_message(f'{{"id": 7, "method": "brand/new", "params": {params}}}'.encode())
    assert isinstance(asked, codex.UnknownRequest)
    assert (asked.id, asked.wire_method, asked.params, asked.thread_id) == (7, "brand/new", json.loads(params), "")


def test_an_unknown_item_is_kept_inside_a_known_message() -> None:
    item = {"type": "telepathy", "id": "i", "to": "you"}
    message = decode_message(json.dumps({"method": "item/completed", "params": {"threadId": "t", "turnId": "u", "item": item}}).encode())
    assert isinstance(message, codex.ItemCompleted)
    assert isinstance(message.item, codex.UnknownItem)
    assert (message.item.type, message.item.id, message.item.to_dict()) == ("telepathy", "i", item)


def test_one_value_that_does_not_fit_costs_only_its_field() -> None:
    message = decode_message(b'{"method":"item/agentMessage/delta","params":{"threadId":3,"turnId":"u","itemId":"m","delta":"hi"}}')
    assert isinstance(message, codex.AgentMessageDelta)
    assert (message.delta, message.turn_id, message.thread_id) == ("hi", "u", "")
    assert message.misfits == ("params.threadId",)


def test_the_ids_of_both_sides_collide_and_the_method_tells_them_apart() -> None:
    asked, *rest = (decode_message(line) for line in lines_of("app_command_accept") if object_on(line) and json.loads(line).get("id") == 0)
    assert isinstance(asked, codex.CodexAnswer)  # the answer to our own request 0
    assert [type(message) for message in rest] == [codex.CommandApproval]  # and a request 0 of Codex
    assert [message.id for message in (asked, *rest)] == [0, 0]  # type: ignore[union-attr]


def test_a_byte_order_mark_and_nan_are_read() -> None:
    message = decode_message(b'\xef\xbb\xbf{"method":"warning","params":{"message":"hi"}}')
    assert isinstance(message, codex.WarningNotification)
    strange = decode_message(b'{"method":"account/rateLimits/updated","params":{"rateLimits":NaN}}')
    assert isinstance(strange, codex.RateLimitsUpdated)
    assert math.isnan(strange.rate_limits)
    assert strange.lossy
