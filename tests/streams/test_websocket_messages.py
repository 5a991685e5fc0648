"""Bytes become messages and messages become bytes: text holds whole lines, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.errors import ProtocolError
from claude_transport.streams.websocket import MessageReader, cut_messages

MIB = 2**20


def read(*parts: tuple[bytes, bool | None, bool]) -> bytes:
    reader = MessageReader()
    return b"".join(reader.feed(data, text=text, final=final) for data, text, final in parts)


def test_whole_lines_travel_as_one_message_of_text() -> None:
    assert list(cut_messages(b'{"a":1}\n{"b":"\xc3\xa9"}\n')) == [(b'{"a":1}\n{"b":"\xc3\xa9"}\n', True)]


@pytest.mark.parametrize("data", [b'{"a":', b"\n{", b"caf\xe9\n", b'{"a":"\xc3'])
def test_what_is_no_text_or_no_whole_line_travels_as_bytes(data: bytes) -> None:
    assert list(cut_messages(data)) == [(data, False)]


def test_nothing_makes_no_message() -> None:
    assert list(cut_messages(b"")) == []


def test_many_lines_are_cut_between_two_of_them() -> None:
    line = b"x" * 299_999 + b"\n"
    assert list(cut_messages(line * 7)) == [(line * 3, True), (line * 3, True), (line, True)]


def test_a_line_over_the_usual_size_stays_one_message() -> None:
    long = b"x" * 3 * MIB + b"\n"
    assert list(cut_messages(b"a\n" + long + b"b\n")) == [(b"a\n", True), (long, True), (b"b\n", True)]


def test_a_line_that_no_message_should_hold_travels_in_pieces() -> None:
    giant = b"x" * 17 * MIB + b"\n"
    messages = list(cut_messages(b"a\n" + giant + b"b\n"))
    assert [is_text for _, is_text in messages] == [True, *[False] * 18, True]
    assert max(len(payload) for payload, _ in messages) == MIB
    assert b"".join(payload for payload, _ in messages) == b"a\n" + giant + b"b\n"


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode), st.booleans())
def test_what_was_cut_into_messages_is_read_as_it_was(data: bytes, ends: bool) -> None:
    data += b"\n" if ends else b""
    assert read(*((payload, is_text, True) for payload, is_text in cut_messages(data))) == data


@pytest.mark.parametrize("text", [b'{"a":1}', b'{"a":1}\n', b'{"a":1}\n{"b":2}'])
def test_a_message_of_text_is_whole_lines_even_without_its_last_newline(text: bytes) -> None:
    assert read((text, True, True), (b"next\n", True, True)) == text.rstrip(b"\n") + b"\nnext\n"


def test_a_message_of_bytes_is_a_piece_of_the_stream_as_it_is() -> None:
    assert read((b'{"a"', False, True), (b"", False, True), (b":1}\n", False, True)) == b'{"a":1}\n'


def test_parts_of_a_message_may_part_a_character() -> None:
    assert read((b'{"\xe2', True, False), (b"\x82", None, False), (b"\xac", None, False), (b'"}', None, True)) == '{"€"}\n'.encode()


@pytest.mark.parametrize(
    "parts",
    [
        [(b"caf\xe9!", True, True)],
        [(b"ends inside \xe2\x82", True, True)],
        [(b"ends inside \xe2", True, False), (b"", None, True)],
        [(b"\xe2", True, False), (b"abc", None, True)],
    ],
)
def test_text_that_is_not_utf8_is_an_error(parts: list[tuple[bytes, bool | None, bool]]) -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        read(*parts)


@pytest.mark.parametrize("parts", [[(b"", True, True)], [(b"", True, False), (b"", None, True)]])
def test_an_empty_message_of_text_ends_the_input_and_what_follows_is_left_out(parts: list[tuple[bytes, bool | None, bool]]) -> None:
    reader = MessageReader()
    assert [reader.feed(data, text=text, final=final) for data, text, final in parts] == [b""] * len(parts)
    assert reader.ended
    assert reader.feed(b"more\n", text=True) == b""


def test_an_empty_message_of_bytes_ends_nothing() -> None:
    reader = MessageReader()
    assert reader.feed(b"", text=False) == b""
    assert not reader.ended
