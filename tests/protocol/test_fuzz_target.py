"""The oracle of the fuzz target, without the fuzzer: mutated recordings and random bytes, a bounded number of them, the same each time."""

from __future__ import annotations

import random

import pytest
from framing_oracle import LIMITS, check_stream, target
from recorded_lines import sample_lines

from claude_transport.protocol import salvage
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.framing import LineFramer

ROUNDS = 300  # inputs per seed; all fifteen seeds take about three seconds
SPICE = (
    b"\n",
    b"\n\n",
    b"\r\n",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\x00",
    b"\x0b",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b"\\",
    rb"\ud83d",
    b"NaN",
    b"1e999",
    b"-",
    b"null",
    b"[debug] ",
    b'{"type":"zzz"}',
    b'"type":5,',
    b'{"',
    b"9" * 30,
    b"7," * 1200,
    b'{"type":"text","text":7},' * 1200,
    b'{"type":"tool_result","content":[' * 40,
    b'x {"a":[' * 40,
)


def mutant(rng: random.Random) -> bytes:
    """A few recorded lines with bytes cut out, doubled, swapped and put in."""
    stream = bytearray(b"\n".join(rng.choices(sample_lines(), k=rng.randint(1, 3))))
    for _ in range(rng.randint(1, 8)):
        start = rng.randrange(len(stream) + 1)
        end = min(len(stream), start + rng.choice([0, 1, 2, rng.randrange(200)]))
        replacement = rng.choice([b"", rng.choice(SPICE), rng.randbytes(rng.randint(1, 4)), bytes(stream[start:end]) * 2])
        stream[start:end] = replacement
    return bytes(stream)


@pytest.mark.parametrize("seed", range(12))
def test_mutated_recordings_are_accepted_or_refused_with_a_type(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(ROUNDS):
        target(bytes([rng.randrange(len(LIMITS)), rng.randrange(256)]) + mutant(rng))


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_are_accepted_or_refused_with_a_type(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(ROUNDS):
        pieces = [rng.choice([*SPICE, rng.randbytes(rng.randrange(30))]) for _ in range(rng.randrange(12))]
        target(bytes([rng.randrange(256), rng.randrange(256)]) + b"".join(pieces))


@pytest.mark.parametrize("limit", LIMITS)
def test_the_recordings_themselves_are_accepted(limit: int) -> None:
    check_stream(b"\n".join(sample_lines()), limit=limit, chunk_size=1000)


def test_inputs_without_a_stream_are_no_inputs() -> None:
    for data in (b"", b"\0", b"\0\0"):
        target(data)


# ------------------------------------------------------------------------------------------- the oracle sees what it is there for


def test_the_oracle_sees_a_line_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = LineFramer.feed
    monkeypatch.setattr(LineFramer, "feed", lambda self, chunk: whole(self, chunk)[:-1])
    with pytest.raises(AssertionError):
        check_stream(b'{"type":"a"}\n{"type":"b"}\n')


def test_the_oracle_sees_a_line_that_costs_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = b'{"type":"assistant","message":{"content":[' + b"7," * 1200 + b"7]}}\n"
    check_stream(stream, chunk_size=1000)
    monkeypatch.setattr(salvage, "MAX_SALVAGE_DECODES", 10**9)
    with pytest.raises(AssertionError, match="values were decoded to save one line"):
        check_stream(stream, chunk_size=1000)


def test_the_oracle_lets_an_untyped_exception_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(_decoder: LineDecoder, _lines: object) -> None:
        raise KeyError("type")

    monkeypatch.setattr(LineDecoder, "messages", explode)
    with pytest.raises(KeyError):
        check_stream(b"{}\n")
