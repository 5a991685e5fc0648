"""The ladder: whatever the bytes, one line gives one answer, and the lines around it are not touched."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import OrderedDict
from copy import deepcopy
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_lines import sample_lines

from claude_transport.errors import CLIJSONDecodeError, LineTooLong, UsageError
from claude_transport.protocol.blocks import TextBlock, UnknownBlock
from claude_transport.protocol.codec import DecodeCounters, LineDecoder, decode_message, is_torn
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage, UnknownMessage, encode_line, encode_message
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.messages import (
    AssistantMessage,
    KeepAlive,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    UserContent,
    UserMessage,
)

KEEP_ALIVE = b'{"type":"keep_alive"}'
EVENT = b'{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}}'
DEEP = b'{"type":"result","structured_output":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def counts(decoder: LineDecoder) -> dict[str, int]:
    names = decoder.counters.__struct_fields__
    return {name: getattr(decoder.counters, name) for name in names if getattr(decoder.counters, name)}


def failure_kind(line: bytes) -> str:
    message = decode_message(line)
    assert isinstance(message, DecodeFailure)
    assert message.raw == line
    return message.kind


# ----------------------------------------------------------------------------------------------------------------- the rungs


def test_a_fitting_line_is_typed_straight_from_the_bytes() -> None:
    decoder = LineDecoder()
    (message,) = decoder.messages([EVENT])
    assert isinstance(message, StreamEvent)
    assert (message.text, message.raw, message.lossy, message.misfits) == ("a", EVENT, False, ())
    assert counts(decoder) == {"lines": 1, "typed": 1}


def test_an_odd_field_costs_that_field() -> None:
    decoder = LineDecoder()
    line = b'{"type":"result","subtype":"success","num_turns":"two","result":"done","usage":"abc"}'
    (message,) = decoder.messages([line])
    assert isinstance(message, ResultMessage)
    assert (message.result, message.num_turns) == ("done", 0)
    assert set(message.misfits) == {"num_turns", "usage"}
    assert message.to_dict() == json.loads(line)
    assert counts(decoder) == {"lines": 1, "salvaged": 1}


def test_an_unknown_block_counts_as_salvaged() -> None:
    decoder = LineDecoder()
    (message,) = decoder.messages([b'{"type":"assistant","message":{"content":[{"type":"smell"}]}}'])
    assert isinstance(message, AssistantMessage)
    assert message.content == (UnknownBlock(data={"type": "smell"}),)
    assert counts(decoder) == {"lines": 1, "salvaged": 1}


def test_an_odd_field_of_a_known_subtype_does_not_cost_the_subtype() -> None:
    message = decode_message(b'{"type":"system","subtype":"init","tools":"none","mcp_servers":[{"name":"a"},5],"cwd":"/x"}')
    assert type(message).__name__ == "InitMessage"
    assert isinstance(message, SystemMessage)
    assert set(message.misfits) == {"tools", "mcp_servers.1"}


def test_an_unknown_type_does_not_disturb_its_neighbours() -> None:
    decoder = LineDecoder()
    messages = decoder.messages([EVENT, b'{"type":"zzz_new"}', KEEP_ALIVE])
    assert [type(message) for message in messages] == [StreamEvent, UnknownMessage, KeepAlive]
    assert counts(decoder) == {"lines": 3, "typed": 2, "unknown": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'"\ud83d"', "\ud83d"),  # a lone surrogate, which msgspec calls truncated input
        (rb'"a\ude00b"', "a\ude00b"),
        (b'"tab\there"', "tab\there"),  # raw control characters
        (b'"vt\x0bff\x0c"', "vt\x0bff\x0c"),
        (b"Infinity", math.inf),
        (b"1e999", math.inf),
    ],
)
def test_what_only_a_lenient_reader_understands_is_delivered_and_flagged(text: bytes, value: Any) -> None:
    decoder = LineDecoder()
    line = b'{"type":"result","structured_output":' + text + b',"result":"ok"}'
    before, message, after = decoder.messages([EVENT, line, EVENT])
    assert isinstance(message, ResultMessage)
    assert (message.structured_output, message.result, message.lossy, message.misfits) == (value, "ok", True, ())
    assert message.to_dict()["structured_output"] == value
    assert (before, after) == (decode_message(EVENT), decode_message(EVENT))
    assert counts(decoder) == {"lines": 3, "typed": 2, "lossy": 1}


def test_not_a_number_is_delivered() -> None:
    message = decode_message(b'{"type":"result","total_cost_usd":NaN}')
    assert isinstance(message, ResultMessage)
    assert math.isnan(message.total_cost_usd)
    assert message.lossy


def test_a_lone_surrogate_in_an_unknown_type_is_delivered_too() -> None:
    message = decode_message(rb'{"type":"zzz","text":"\ud83d"}')
    assert isinstance(message, UnknownMessage)
    assert (message.lossy, message.to_dict()) == (True, {"type": "zzz", "text": "\ud83d"})


def test_a_byte_that_is_not_utf8_costs_that_character() -> None:
    decoder = LineDecoder()
    line = b'{"type":"assistant","message":{"content":[{"type":"text","text":"caf\xe9!"}]}}'
    message, after = decoder.messages([line, KEEP_ALIVE])
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.lossy, message.raw) == ("caf\ufffd!", True, line)
    assert isinstance(after, KeepAlive)
    assert encode_message(message) == line + b"\n"


def test_raw_line_separators_inside_a_string_survive() -> None:
    text = "a\u2028b\u2029c\x85d"
    message = decode_message(
        json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}, ensure_ascii=False).encode()
    )
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.lossy) == (text, False)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"hello", "noise"),
        (b"[SandboxDebug] x", "noise"),
        (b"\xff\xfe", "noise"),
        (b"}", "noise"),
        (b"[1,2]", "not_object"),
        (b"7", "not_object"),
        (b'"x"', "not_object"),
        (b"null", "not_object"),
        (b"{", "malformed"),
        (b'{"type":"user"', "malformed"),
        (b'{"type":"user"} {"type":"user"}', "malformed"),
        (b"{'type':'user'}", "malformed"),
        (b'{"type":\xff}', "invalid_utf8"),
        (DEEP, "too_deep"),
        (b'{"type":"result","num_turns":' + b"9" * 5000 + b"}", "out_of_range"),
        (b"", "blank"),
        (b" \t\r\n", "blank"),
        (b"\xef\xbb\xbf", "blank"),
    ],
)
def test_a_line_that_is_no_object_is_a_failure_of_its_kind(line: bytes, kind: str) -> None:
    assert failure_kind(line) == kind


def test_a_huge_integer_is_delivered() -> None:
    message = decode_message(b'{"type":"result","num_turns":' + b"9" * 40 + b"}")
    assert isinstance(message, ResultMessage)
    assert message.num_turns == int("9" * 40)


def test_a_failure_quotes_nothing_of_the_line() -> None:
    message = decode_message(b'{"type":"user","secret": sk-ant-oops}')
    assert isinstance(message, DecodeFailure)
    assert "oops" not in message.error


def test_of_duplicate_keys_the_last_one_counts() -> None:
    message = decode_message(b'{"type":"result","result":"a","result":"b"}')
    assert isinstance(message, ResultMessage)
    assert (message.result, message.to_dict()["result"]) == ("b", "b")


@pytest.mark.parametrize("around", [(b"  ", b""), (b"", b"\r"), (b"\xef\xbb\xbf", b""), (b"\xef\xbb\xbf ", b" \n"), (b"\t", b"\n")])
def test_whitespace_and_a_byte_order_mark_around_an_object_do_no_harm(around: tuple[bytes, bytes]) -> None:
    message = decode_message(around[0] + KEEP_ALIVE + around[1])
    assert message == KeepAlive()
    assert message.to_dict() == {"type": "keep_alive"}
    assert encode_message(message).strip() == KEEP_ALIVE
    assert encode_message(message).endswith(b"}\n") or around[1] == b" \n"


def test_a_byte_order_mark_inside_of_an_object_is_its_own() -> None:
    line = b' {"type":"user","text":"\xef\xbb\xbf", '
    message = decode_message(line)
    assert isinstance(message, DecodeFailure)
    assert message.raw == line


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_kind_of_bytes_will_do(kind: Any) -> None:
    assert decode_message(kind(KEEP_ALIVE)) == KeepAlive()
    assert LineDecoder().messages([kind(KEEP_ALIVE)])[0].raw == KEEP_ALIVE


def test_text_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="a line must be bytes, not str"):
        decode_message("{}")  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------------------- noise


def test_noise_before_between_and_glued_in_front_loses_no_message() -> None:
    heard: list[bytes] = []
    decoder = LineDecoder(on_noise=heard.append)
    messages = decoder.messages([b"banner", EVENT, b"[debug] {oops", b"[debug] " + KEEP_ALIVE, EVENT])
    kinds = [type(message) for message in messages]
    assert kinds == [DecodeFailure, StreamEvent, DecodeFailure, KeepAlive, StreamEvent]
    assert messages[3].raw == KEEP_ALIVE
    assert heard == [b"banner", b"[debug] {oops", b"[debug] "]
    assert counts(decoder) == {"lines": 5, "typed": 3, "noise": 3}


def test_noise_with_braces_of_its_own_in_front_of_a_message_is_seen_through() -> None:
    assert decode_message(b'config {"a": 1 then ' + EVENT) == decode_message(EVENT)


def test_a_log_line_that_ends_in_an_object_is_no_message() -> None:
    assert failure_kind(b'loaded config {"debug": true}') == "noise"


def test_an_unknown_type_behind_noise_is_still_delivered() -> None:
    message = decode_message(b'x{"type":"zzz"}')
    assert isinstance(message, UnknownMessage)
    assert message.type == "zzz"


def test_a_noise_line_full_of_braces_is_given_up_on() -> None:
    assert failure_kind(b"x" + b'{"' * 100_000) == "noise"


# ----------------------------------------------------------------------------------------------------------- lines in batches


def test_failures_stay_in_their_place_with_their_line_number() -> None:
    decoder = LineDecoder()
    decoder.messages([EVENT, b""])
    messages = decoder.messages([b"", EVENT, b"noise", b"  ", b"{", EVENT, OversizedLine(b"{", size=9, limit=5)])
    assert [type(message) for message in messages] == [StreamEvent, DecodeFailure, DecodeFailure, StreamEvent, OversizedMessage]
    assert [message.line_number for message in messages if isinstance(message, (DecodeFailure, OversizedMessage))] == [5, 7, 9]
    assert counts(decoder) == {"lines": 9, "typed": 3, "noise": 1, "malformed": 1, "oversized": 1, "blank": 3}


def test_an_empty_batch_gives_nothing() -> None:
    assert LineDecoder().messages([]) == []
    assert LineDecoder().dicts([]) == ([], [])


def test_a_batch_of_nothing_but_failures_is_no_special_case() -> None:
    decoder = LineDecoder()
    assert len(decoder.messages([b"noise"] * 1000)) == 1000
    assert counts(decoder) == {"lines": 1000, "noise": 1000}


def test_the_dict_view_gives_every_object_and_reports_the_rest() -> None:
    decoder = LineDecoder()
    lines = [EVENT, b"noise", b'{"no":"type"}', b"", rb'{"type":"x","t":"\ud83d"}', b"[]", b"dbg " + KEEP_ALIVE]
    messages, failures = decoder.dicts(lines)
    assert messages == [json.loads(EVENT), {"no": "type"}, {"type": "x", "t": "\ud83d"}, {"type": "keep_alive"}]
    assert [(type(failure), failure.line_number) for failure in failures] == [(DecodeFailure, 2), (DecodeFailure, 6)]
    assert counts(decoder) == {"lines": 7, "dicts": 2, "noise": 2, "blank": 1, "lossy": 1, "malformed": 1, "typed": 1}


def test_one_line_of_the_dict_view_is_a_dict_a_failure_or_nothing() -> None:
    decoder = LineDecoder()
    assert decoder.as_dict(KEEP_ALIVE) == {"type": "keep_alive"}
    assert isinstance(decoder.as_dict(b"x"), DecodeFailure)
    assert decoder.as_dict(b" ") is None
    assert isinstance(decoder.as_dict(OversizedLine(b"{}", size=9, limit=5)), OversizedMessage)


# ------------------------------------------------------------------------------------------------------------ over-long lines


@pytest.mark.parametrize("head", [b'{"type":"assist', KEEP_ALIVE, b""])
def test_an_oversized_line_costs_that_line_whatever_its_head_holds(head: bytes) -> None:
    decoder = LineDecoder()
    long, after = decoder.messages([OversizedLine(head, size=5000, limit=1000), KEEP_ALIVE])
    assert isinstance(long, OversizedMessage)
    assert (long.size, long.limit, long.raw, type(long.raw)) == (5000, 1000, head, bytes)
    assert isinstance(after, KeepAlive)
    assert decode_message(OversizedLine(head, size=5000, limit=1000)) == long or long.line_number == 1


def test_a_decoder_with_a_limit_of_its_own_applies_it() -> None:
    decoder = LineDecoder(max_line_bytes=100)
    line = b'{"type":"zzz","text":"' + b"x" * 5000 + b'"}'
    before, long, after = decoder.messages([KEEP_ALIVE, line, KEEP_ALIVE])
    assert isinstance(long, OversizedMessage)
    assert (long.size, long.limit, len(long.raw)) == (len(line), 100, 1024)
    assert before == after == KeepAlive()
    assert isinstance(decoder.as_dict(line), OversizedMessage)
    assert decoder.as_dict(KEEP_ALIVE) == {"type": "keep_alive"}


def test_a_line_of_twenty_megabytes_decodes() -> None:
    text = "x" * 20_000_000
    message = decode_message(b'{"type":"assistant","message":{"content":[{"type":"text","text":"' + text.encode() + b'"}]}}')
    assert isinstance(message, AssistantMessage)
    assert message.content == (TextBlock(text=text),)


# -------------------------------------------------------------------------------------------------------------------- strict


@pytest.mark.parametrize("line", [b"noise", b"{", b"[]", DEEP])
def test_strict_raises_for_the_first_bad_line_and_keeps_what_came_before(line: bytes) -> None:
    decoder = LineDecoder(strict=True)
    decoder.messages([EVENT])
    with pytest.raises(CLIJSONDecodeError, match="line 4 is not a JSON object") as caught:
        decoder.messages([EVENT, KEEP_ALIVE, line, EVENT])
    assert (caught.value.line, caught.value.line_number) == (line, 4)
    assert decoder.before_failure == [decode_message(EVENT), KeepAlive()]
    assert (decoder.counters.lines, decoder.counters.typed) == (4, 3)


def test_strict_raises_for_a_long_line() -> None:
    with pytest.raises(LineTooLong, match="line 1 has 5000 bytes, over the limit of 1000") as caught:
        LineDecoder(strict=True).messages([OversizedLine(b"{", size=5000, limit=1000)])
    assert (caught.value.size, caught.value.limit) == (5000, 1000)


def test_strict_raises_in_the_dict_view_too() -> None:
    decoder = LineDecoder(strict=True)
    with pytest.raises(CLIJSONDecodeError):
        decoder.dicts([KEEP_ALIVE, b"noise"])
    assert decoder.before_failure == [{"type": "keep_alive"}]


def test_strict_lets_unknown_odd_and_blank_lines_pass() -> None:
    messages = LineDecoder(strict=True).messages([b'{"type":"zzz"}', b"", b'{"type":"result","usage":5}', rb'{"type":"x","a":"\ud83d"}'])
    assert [type(message) for message in messages] == [UnknownMessage, ResultMessage, UnknownMessage]


# ------------------------------------------------------------------------------------------------------------------- encoding


def test_a_line_ends_in_one_newline_and_holds_no_other() -> None:
    line = encode_line({"type": "user", "message": {"role": "user", "content": "a\nb\r\nc\u2028d\u2029e\x85f\x0b"}})
    assert line.endswith(b"}\n")
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line)["message"]["content"] == "a\nb\r\nc\u2028d\u2029e\x85f\x0b"


def test_what_is_beyond_ascii_is_written_as_it_is() -> None:
    assert encode_line({"t": "é漢🎉"}) == '{"t":"é漢🎉"}\n'.encode()


def test_a_lone_surrogate_can_be_written() -> None:
    assert json.loads(encode_line({"t": "a\ud83db", "huge": 2**70})) == {"t": "a\ud83db", "huge": 2**70}


@pytest.mark.parametrize("mapping", [OrderedDict(a=1), MappingProxyType({"a": 1})])
def test_any_mapping_is_an_object(mapping: Any) -> None:
    assert encode_line(mapping) == b'{"a":1}\n'
    assert encode_line({"inner": mapping}) == b'{"inner":{"a":1}}\n'


def circular() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    return loop


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        {1, 2},
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        object(),
        math.nan,
        math.inf,
        -math.inf,
        1j,
        circular(),
        {(1, 2): 3},
        ValueError,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_say_is_refused_by_name(value: Any) -> None:
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        encode_line({"type": "user", "value": [value]})


@pytest.mark.parametrize("value", [[], "x", 5, None, b"{}"])
def test_only_objects_are_lines(value: Any) -> None:
    with pytest.raises(UsageError, match="as a line; pass a mapping or a Message"):
        encode_line(value)


def test_a_message_is_a_line_too() -> None:
    assert encode_line(KeepAlive()) == KEEP_ALIVE + b"\n"


def test_a_received_message_is_written_byte_for_byte() -> None:
    line = b'{ "new" : 1.50, "type":"keep_alive" , "x":"\\u00e9" }'
    for received in (line, line + b"\n", line + b"\r\n"):
        assert encode_message(decode_message(received)) == line + b"\n"


def test_a_message_received_over_several_lines_is_written_as_one() -> None:
    for ending in (b"\n", b"\r", b"\r\n"):
        message = decode_message(b'{ "type": "keep_alive",\n "x": 1}'.replace(b"\n", ending))
        assert encode_message(message) == b'{"type":"keep_alive","x":1}\n'


def test_a_hand_built_message_can_be_written_and_read_back() -> None:
    message = UserMessage(message=UserContent(content=(TextBlock(text="a\u2028"), UnknownBlock(data={"type": "zzz", "n": None}))), uuid="u")
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize("message", [DecodeFailure(raw=b"x"), OversizedMessage(raw=b"{}")])
def test_what_was_no_message_cannot_be_written(message: Message) -> None:
    with pytest.raises(UsageError, match="reports a line that was not a message"):
        encode_message(message)


# ------------------------------------------------------------------------------------------------------------------ properties


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
odd_values = json_values | st.sampled_from(
    [{"type": "text"}, {"type": "tool_use", "input": 5}, [{"type": "text"}, 5], "allow", {"subtype": "x"}]
)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += paths_of(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += paths_of(item, (*path, index))
    return found


@st.composite
def mutated_messages(draw: st.DrawFn) -> dict[str, Any]:
    """A recorded message with a few fields dropped or replaced, at any depth."""
    message: dict[str, Any] = json.loads(draw(st.sampled_from(sample_lines())))
    for _ in range(draw(st.integers(1, 4))):
        paths = paths_of(message)
        if not paths:
            break
        *parents, last = draw(st.sampled_from(paths))
        holder: Any = message
        for step in parents:
            holder = holder[step]
        if draw(st.booleans()):
            del holder[last]
        else:
            holder[last] = deepcopy(draw(odd_values))  # or a later step would change the strategy itself
    return message


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_message(data: bytes) -> None:
    message = decode_message(data)
    assert isinstance(message, Message)
    assert isinstance(message.to_dict(), dict)


@settings(deadline=None)
@given(st.sampled_from(sample_lines()), st.data())
def test_a_recorded_line_with_broken_bytes_gives_a_message(line: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(line)))
    broken = line[:at] + data.draw(st.binary(max_size=4)) + line[at + data.draw(st.integers(0, 4)) :]
    message, after = LineDecoder().messages([broken, KEEP_ALIVE])[-2:] if broken.strip() else (KeepAlive(), KeepAlive())
    assert isinstance(message.to_dict(), dict)
    assert after == KeepAlive()


@settings(deadline=None, max_examples=400)
@given(mutated_messages())
def test_a_mutated_message_is_never_lost_and_never_loses_anything(message: dict[str, Any]) -> None:
    line = json.dumps(message).encode()
    known = {json.loads(sample)["type"] for sample in sample_lines()}
    decoded = decode_message(line)
    assert decoded.to_dict() == message
    assert isinstance(repr(decoded), str)
    kind = message.get("type")
    if isinstance(kind, str) and kind in known:
        assert decoded.type == kind
        assert not isinstance(decoded, (UnknownMessage, DecodeFailure))
    else:
        assert isinstance(decoded, UnknownMessage)


@settings(deadline=None)
@given(json_values)
def test_any_object_can_be_written_and_read_back(value: Any) -> None:
    line = encode_line({"type": "zzz", "value": value})
    assert decode_message(line).to_dict() == {"type": "zzz", "value": value}
    assert line.count(b"\n") == 1


@settings(deadline=None)
@given(st.lists(st.sampled_from([EVENT, KEEP_ALIVE, b"noise", b"", b"{", b'{"type":"z"}', b"x" + KEEP_ALIVE]), max_size=12))
def test_every_line_is_counted_once(lines: list[bytes]) -> None:
    decoder = LineDecoder()
    messages = decoder.messages(lines)
    seen = decoder.counters
    glued = lines.count(b"x" + KEEP_ALIVE)
    rungs = seen.typed + seen.salvaged + seen.unknown + seen.lossy + seen.noise + seen.malformed + seen.oversized + seen.blank
    assert seen.lines == len(lines) == rungs - glued
    assert len(messages) == len(lines) - seen.blank
    assert isinstance(seen, DecodeCounters)


TAILS: dict[bytes, bool] = {
    b'{"type":"keep_alive"}': False,
    b' {"type":"assistant","message":{"role":"assistant","content":[]}}': False,
    b'{"type":"of_the_future"}': False,
    b"{}": False,
    b"": False,
    b"a word": False,
    b'{"type":"keep': True,
    b'{"type":"user","text":"\xff': True,
}


@pytest.mark.parametrize("tail", TAILS)
def test_the_end_of_a_stream_is_torn_when_it_only_begins_an_object(tail: bytes) -> None:
    assert is_torn(tail) is TAILS[tail]
