"""What framing and decoding promise for any bytes at all, as one function: the oracle of the fuzz target, and of its run in the tests.

The oracle is h11's: accept, or a typed refusal, and never anything else. Here, every line becomes one message (a `DecodeFailure` or an
`OversizedMessage` where it is none), `strict=True` raises a `ProtocolError`, any split of the bytes gives the same, both views agree,
what was read can be written again, and no line costs more than its bound (see `decode_counting`). Anything else is an
`AssertionError`, or whatever the code raised by mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decode_counting import counted

from claude_transport.errors import ProtocolError, UsageError
from claude_transport.protocol.codec import LineDecoder, decode_message
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage, encode_message
from claude_transport.protocol.framing import DEFAULT_MAX_LINE_BYTES, LineFramer, OversizedLine
from claude_transport.protocol.salvage import MAX_SALVAGE_DECODES

__all__ = ["LIMITS", "check_stream", "target"]

LIMITS = (DEFAULT_MAX_LINE_BYTES, 1, 5, 64, 1000, 1500)
"""Line limits, in bytes, that the first byte of an input chooses from."""

_HEAD_BYTES = 1024  # what framing says it keeps of a line that is too long
_NOISE_BYTES = 64 * 1024  # that a noise line may be parsed for, besides twice its length
_SINGLE_BYTES_UP_TO = 4096  # one byte at a time is slow, and finds nothing in long inputs that it does not find in short ones


def target(data: bytes) -> None:
    """Checks one input of a fuzzer: a byte for the limit, a byte for the size of the chunks, and the stream."""
    if len(data) >= 2:
        check_stream(data[2:], limit=LIMITS[data[0] % len(LIMITS)], chunk_size=data[1] + 2)


def check_stream(stream: bytes, *, limit: int = DEFAULT_MAX_LINE_BYTES, chunk_size: int = 7) -> None:
    """Raises `AssertionError` when a promise is broken for these bytes, or lets through what should never have been raised."""
    lines = _frame(stream, limit, len(stream) or 1)
    expected = [(line if len(line) <= limit else line[: min(limit, _HEAD_BYTES)], len(line)) for line in stream.split(b"\n") if line]
    assert [_facts(line) for line in lines] == expected
    for size in {chunk_size, 1} if len(stream) <= _SINGLE_BYTES_UP_TO else {chunk_size}:
        assert [_facts(line) for line in _frame(stream, limit, size)] == expected, f"another result in chunks of {size}"
    for line in lines:
        _check_work(line)
    messages = _check_typed_view(lines)
    _check_plain_view(lines, messages)
    _check_strict(lines, messages)
    for message in messages:
        _check_writing(message)


def _frame(stream: bytes, limit: int, size: int) -> list[bytes]:
    framer = LineFramer(max_line_bytes=limit)
    lines: list[bytes] = []
    for start in range(0, len(stream), size):
        lines += framer.feed(stream[start : start + size])
        assert framer.buffered_bytes <= limit
    if tail := framer.finish():
        lines.append(tail)
    assert framer.finish() == b""
    return lines


def _facts(line: bytes) -> tuple[bytes, int]:
    return bytes(line), line.size if isinstance(line, OversizedLine) else len(line)


def _is_failure(message: Message) -> bool:
    return isinstance(message, DecodeFailure | OversizedMessage)


def _seen(message: Message) -> tuple[Any, ...]:
    """A message by what can be seen of it: NaN does not equal itself, its text does."""
    return type(message), message.raw, repr(message.to_dict())


def _check_work(line: bytes) -> None:
    with counted() as cost:
        decode_message(line)
    assert cost.decodes <= MAX_SALVAGE_DECODES, f"{cost.decodes} values were decoded to save one line"
    assert cost.parsed_bytes <= 2 * len(line) + _NOISE_BYTES, f"a line of {len(line)} bytes was parsed for {cost.parsed_bytes}"


def _check_typed_view(lines: Sequence[bytes]) -> list[Message]:
    decoder = LineDecoder()
    messages = decoder.messages(lines)
    one_by_one = LineDecoder()
    assert [_seen(message) for message in messages] == [_seen(message) for line in lines for message in one_by_one.messages([line])]
    assert decoder.counters == one_by_one.counters
    assert decoder.counters.lines == len(lines) == len(messages) + decoder.counters.blank
    for line in lines:
        found, alone = LineDecoder().messages([line]), decode_message(line)
        assert isinstance(alone, Message)
        assert isinstance(repr(alone), str)
        assert [type(message) for message in found] in ([type(alone)], [])
        assert found or (isinstance(alone, DecodeFailure) and alone.kind == "blank")
    return messages


def _check_plain_view(lines: Sequence[bytes], messages: Sequence[Message]) -> None:
    dicts, failures = LineDecoder().dicts(lines)
    assert [repr(found) for found in dicts] == [repr(message.to_dict()) for message in messages if not _is_failure(message)]
    assert [_seen(failure) for failure in failures] == [_seen(message) for message in messages if _is_failure(message)]


def _check_strict(lines: Sequence[bytes], messages: Sequence[Message]) -> None:
    bad = next((index for index, message in enumerate(messages) if _is_failure(message)), None)
    decoder = LineDecoder(strict=True)
    try:
        passed: Any = decoder.messages(lines)
    except ProtocolError:
        assert bad is not None, "strict refused what is a message"
        passed = decoder.before_failure
    else:
        assert bad is None, "strict let a bad line pass"
    assert [_seen(message) for message in passed] == [_seen(message) for message in messages[:bad]]


def _check_writing(message: Message) -> None:
    try:
        line = encode_message(message)
    except UsageError:
        assert _is_failure(message), "a message that was received cannot be written"
        return
    assert not _is_failure(message), "what was no message was written"
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    again = decode_message(line)
    assert (type(again), repr(again.to_dict())) == (type(message), repr(message.to_dict()))
