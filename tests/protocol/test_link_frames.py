"""Frames of the link: what was encoded is decoded again, and what is no frame is a typed error that shows nothing of what it held."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from claude_transport.errors import (
    AuthenticationError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ProtocolError,
    ReplayGap,
)
from claude_transport.link.machine import (
    MAX_CONTROL_FRAME_BYTES,
    MAX_DATA_HEADER_BYTES,
    Ack,
    Bye,
    Data,
    End,
    Frame,
    FrameReader,
    Heartbeat,
    Hello,
    LinkEnd,
    Ping,
    Pong,
    ProcessEnd,
    Pulse,
    Refusal,
    UnknownFrame,
    Welcome,
    decode_frame,
    encode_frame,
)

FRAMES: list[Frame] = [
    Hello(version=1, token="t", session="s", received=3, replay_from=2, window=9, options={"a": [1]}, trace={"traceparent": "x"}),
    Welcome(version=1, session="s", lease=1.5, received=1, details={"cli": "2.1"}),
    Refusal(code="auth", text="no", retryable=True),
    Bye(code="drain", reason="line\nbreak"),
    ProcessEnd(after=4, accepted=2, signal=9, killed=True, stderr_tail="é\n"),
    End(0),
    Ack(10**17),
    Ping(1),
    Pong(1),
    UnknownFrame("Z", b"what ever"),
]


def read(data: bytes, *, size: int = 10**6) -> list[Frame]:
    """The frames in `data`, which comes in chunks of `size` bytes."""
    reader = FrameReader()
    return [frame for start in range(0, len(data), size) for frame in reader.feed(data[start : start + size])]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_is_one_line_and_comes_back_as_it_was(frame: Frame) -> None:
    line = encode_frame(frame)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_frame(line[:-1]) == frame


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" ",
        b"d 1 x",
        b"1",
        b'{"type":"user"}',
        b"DD 1 x",
        b"D",
        b"D 0 1",
        b"A",
        b"A ",
        b"A 1 ",
        b"E 0x1",
        b"H",
        b"H {}",
        b"H []",
        b'H {"version":"1"}',
        b'H {"version":0}',
        b'H {"version":1,"received":-1}',
        b'H {"version":1,"replay_from":-1}',
        b'H {"version":1,"window":0}',
        b'H {"version":1,"window":99999999999999999999}',
        b'W {"version":1,"session":"s","lease":-1}',
        b'X {"after":-1}',
        b'X {"after":0,"stderr_tail":"\xff"}',
        b"R {",
        pytest.param(b'H {"version":1,"options":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}", id="deep options"),
        pytest.param(b'B {"unknown":' + b"[" * 5000 + b"]" * 5000 + b"}", id="deep and unknown"),
    ],
)
def test_what_is_no_frame_is_a_protocol_error(line: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_frame(line)
    assert caught.value.code == "link.malformed"


def test_an_error_shows_nothing_of_the_token_that_was_in_the_frame() -> None:
    for line in (b'H {"version":"x","token":"s3cret"}', b'H {"version":1,"token":"s3cret"', b'H {"version":1,"token":["s3cret"]}'):
        with pytest.raises(ProtocolError) as caught:
            decode_frame(line)
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_reprs_of_the_handshake_show_neither_token_nor_session() -> None:
    assert "secret" not in repr(Hello(version=1, token="secret-1", session="secret-2"))
    assert "secret" not in repr(Welcome(version=1, session="secret-2", lease=1.0))


@pytest.mark.parametrize("size", [1, 2, 7, 10**6])
def test_data_is_given_as_it_comes_and_what_surrounds_it_is_read_whatever_the_chunks(size: int) -> None:
    payload = b" two  spaces \xff\x00\n\nE 5\n"
    frames = read(b"P 1\n" + encode_frame(Data(12, payload)) + encode_frame(Data(3, b"\n")) + b"A 4\n", size=size)
    data = [frame for frame in frames if isinstance(frame, Data)]
    assert b"".join(piece.data for piece in data) == payload + b"\n"
    assert data[0].position == 12
    assert data[-1] == Data(3, b"\n")
    assert (frames[0], frames[-1]) == (Ping(1), Ack(4))


def test_a_part_of_a_frame_is_data_before_the_rest_has_come() -> None:
    reader = FrameReader()
    assert list(reader.feed(b"D 100 1000000000000\nabc")) == [Data(100, b"abc")]
    assert list(reader.feed(b"def")) == [Data(103, b"def")]


@pytest.mark.parametrize(
    "header",
    [
        b"D",
        b"D 1",
        b"D 1 0",
        b"D 1 1 1",
        b"D 1  1",
        b"D x 1",
        b"D 1 x",
        b"D -1 1",
        b"D 1 -1",
        b"D +1 1",
        b"D 1_0 1",
        b"D  1 1",
        b"D 1 1 ",
        b"D 1 1\r",
        b"D 1234567890123456789 1",
        b"D 1 1234567890123456789",
    ],
)
def test_a_header_of_data_that_is_none_is_a_protocol_error(header: bytes) -> None:
    for size in (1, 100):
        with pytest.raises(ProtocolError) as caught:
            read(header + b"\nx", size=size)
        assert caught.value.code == "link.malformed"


@pytest.mark.parametrize(
    ("endless", "most"), [(b"D 1", MAX_DATA_HEADER_BYTES), (b"X {", MAX_CONTROL_FRAME_BYTES), (b"Z", MAX_CONTROL_FRAME_BYTES), (b"x", 0)]
)
def test_a_line_that_never_ends_is_an_error_before_it_is_held(endless: bytes, most: int) -> None:
    reader = FrameReader()
    fed = len(endless)
    with pytest.raises(ProtocolError):
        list(reader.feed(endless))
        while True:
            fed += 16
            assert fed < most + 100
            list(reader.feed(b"1" * 16))


def test_a_control_frame_that_is_too_large_is_an_error() -> None:
    payload = b"x" * MAX_CONTROL_FRAME_BYTES
    for letter in (b"H", b"X", b"A", b"Z"):
        with pytest.raises(ProtocolError, match="over the limit"):
            decode_frame(letter + b" " + payload)
        for size in (5000, 10**6):
            with pytest.raises(ProtocolError, match="over the limit"):
                read(letter + b" " + payload + b"\n", size=size)


@given(st.binary(max_size=60))
def test_whatever_comes_is_a_frame_or_a_protocol_error(line: bytes) -> None:
    try:
        decode_frame(line)
    except ProtocolError:
        pass


PIECES = [*(encode_frame(frame) for frame in FRAMES), b"D 0 3\nabc", b"D 2 2\ncd", b"D 3 9\n", b"D ", b" ", b"\n", b"0", b"E 3\n"]


@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from(PIECES)), max_size=12))
def test_whatever_comes_an_end_makes_events_of_it_or_a_protocol_error(pieces: list[bytes]) -> None:
    end = LinkEnd()
    end.resume(received=0, replay_from=0, window=100)
    heard = 0
    try:
        for piece in pieces:
            for event in end.receive(piece):
                heard += len(event.data) if isinstance(event, Data) else isinstance(event, End | ProcessEnd)
    except ProtocolError:
        pass
    assert end.consumed <= end.received <= sum(map(len, pieces))
    assert heard == end.received


@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from(PIECES)), max_size=12), st.integers(1, 9))
def test_whatever_comes_means_the_same_in_whatever_chunks(pieces: list[bytes], size: int) -> None:
    def meaning(chunks: list[bytes]) -> tuple[bytes, list[object], bool]:
        reader, data, rest = FrameReader(), b"", []
        try:
            for chunk in chunks:
                for frame in reader.feed(chunk):
                    if isinstance(frame, Data):
                        data += frame.data
                    else:
                        rest.append(frame)
        except ProtocolError:
            return data, rest, True
        return data, rest, False

    whole = b"".join(pieces)
    assert meaning([whole]) == meaning([whole[start : start + size] for start in range(0, len(whole), size)])


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("auth", AuthenticationError),
        ("options", ConfigurationError),
        ("session", ConnectionLost),
        ("replay_gap", ReplayGap),
        ("from-the-future", CLIConnectionError),
    ],
)
def test_a_refusal_becomes_the_error_that_says_whose_fault_it_is(code: str, error: type[Exception]) -> None:
    refused = Refusal(code=code, retryable=True).to_error()
    assert type(refused) is error
    assert code in str(refused)


# ------------------------------------------------------------------------------------------------------------ heartbeats


def test_silence_is_asked_once_and_given_up_an_interval_later() -> None:
    heart = Heartbeat(interval=10.0, now=100.0)
    assert (heart.next_check, heart.check(109.9)) == (110.0, Pulse.FINE)
    assert heart.check(110.0) is Pulse.PING
    assert (heart.next_check, heart.check(119.9)) == (120.0, Pulse.FINE)
    assert heart.check(120.0) is Pulse.LOST


def test_any_sign_of_life_begins_a_new_silence() -> None:
    heart = Heartbeat(interval=10.0, now=0.0)
    assert heart.check(10.0) is Pulse.PING
    heart.heard(19.0)
    assert heart.next_check == 29.0
    assert heart.check(28.0) is Pulse.FINE
    assert heart.check(29.0) is Pulse.PING


def test_a_host_that_slept_asks_first_and_waits_for_the_answer() -> None:
    heart = Heartbeat(interval=10.0, now=0.0)
    assert heart.check(5000.0) is Pulse.PING
    assert (heart.next_check, heart.check(5009.0)) == (5010.0, Pulse.FINE)
    assert heart.check(5010.0) is Pulse.LOST


def test_a_check_at_its_time_is_never_too_early_by_a_rounding_error() -> None:
    clock = random.Random(1)
    for _ in range(1000):
        heart = Heartbeat(interval=20.0, now=clock.uniform(0.0, 30.0))
        assert [heart.check(heart.next_check) for _ in range(2)] == [Pulse.PING, Pulse.LOST]


@pytest.mark.parametrize("interval", [0.0, -1.0, float("nan")])
def test_an_interval_that_is_none_is_refused(interval: float) -> None:
    with pytest.raises(ConfigurationError, match="heartbeat"):
        Heartbeat(interval=interval, now=0.0)
