"""What the broker gives back becomes a value of the right shape, or a typed error, whatever it is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from claude_transport import errors
from claude_transport.fleet import answers
from claude_transport.fleet.ends import Claimed, decode_struct
from claude_transport.fleet.messages import Append, Appended, Entry, Owner, Renew, Renewed, SessionEnd, Side, Sync, Take
from claude_transport.fleet.placement import Wanted, rank_nodes

CALLS = [Append(Side.CLIENT, "1.a", 1, ()), Take(Side.WORKER, "1.a", 1), Sync(Side.CLIENT, "1.a", 0, ""), Renew(Side.WORKER, "1.a", 1.0)]

READERS: list[Callable[[Any], Any]] = [
    answers.text_of,
    answers.bytes_of,
    answers.count_of,
    answers.fields_of,
    answers.session_name,
    answers.entries_of,
    lambda value: answers.entries_of([b"key", value]),
    answers.nodes_of,
    answers.Attached.of,
    lambda value: answers.entry_of(b"1-0", value),
    lambda value: answers.entry_of(value, {b"e": b"1.a", b"k": b"d", b"d": value}),
    lambda value: Claimed.from_fields(answers.fields_of(value)),
    *((lambda value, call=call: answers.reply_of(call, value)) for call in CALLS),  # type: ignore[misc]
]


def junk(rng: random.Random, depth: int = 3) -> Any:
    """Anything that a connection to a broker can give."""
    plain = [None, True, 0, 1, -1, 2**63 - 1, -(2**63), 10**15, 0.5, float("nan"), float("inf"), b"", b"\xff", b"7", b"-7", b"1e9", "7"]
    words: list[Any] = [b"OK", b"GONE", b"FENCED", b"GAP", b"e", b"k", b"d", b"we", b"wi", b"9" * 40, b"x" * 100, "٣".encode(), b"1-0"]
    kind = rng.randrange(5) if depth else 0
    if kind == 3:
        return [junk(rng, depth - 1) for _ in range(rng.randrange(10))]
    if kind == 4:
        return {rng.choice([*words, b"id", "text"]): junk(rng, depth - 1) for _ in range(rng.randrange(6))}
    return rng.choice(plain + words)


def test_no_answer_raises_anything_else_than_a_typed_error() -> None:
    rng, codes = random.Random(30), Counter[str]()
    for _ in range(2000):
        value = junk(rng)
        for read in READERS:
            try:
                read(value)
            except errors.ProtocolError as exc:
                codes[exc.code] += 1
    assert list(codes) == ["fleet.malformed"]
    assert codes.total() > 2000


@pytest.mark.parametrize("value", [b"", b"-1", b"1e3", b" 1", b"1_0", "٣".encode(), b"9" * 16, 10**15, -1, True, 1.0, None, [1]])
def test_a_number_is_one_that_an_end_writes(value: Any) -> None:
    with pytest.raises(errors.ProtocolError) as caught:
        answers.count_of(value)
    text = "a number in the broker cannot be read: no end of a fleet has written it"
    assert (str(caught.value), caught.value.code) == (text, "fleet.malformed")
    assert isinstance(caught.value.__cause__, ValueError | TypeError | AttributeError)


def test_numbers_in_range_are_read() -> None:
    assert [answers.count_of(value) for value in (b"0", "7", 7, b"9" * 15)] == [0, 7, 7, 10**15 - 1]
    assert answers.reply_of(CALLS[0], [b"OK", 3, 2, 1]) == Appended(3, 2, 1)
    assert answers.reply_of(CALLS[3], [b"OK", -1500, 0, 1]) == Renewed(-1.5, stop=False, more=True)


def test_the_entries_of_a_message_are_cut_out_of_it_and_of_any_other_message_there_are_none() -> None:
    found = answers.pushed_entries(b"7 1.ab-c d:3 p:0 e:2\n{}\n[]")
    assert found == [Entry(7, "1.ab-c", "d", b"{}\n"), Entry(8, "1.ab-c", "p", b""), Entry(9, "1.ab-c", "e", b"[]")]
    assert answers.pushed_entries(b"7 1.ab-c\n") == []
    for message in (b"", b"\n", b"7 1.a d:3\n{}", b"7 1.a d:1\n{}", b"7 x d:2\n{}", b"-1 1.a d:2\n{}", b"7 1.a d:2\n{}" + b" " * 2**20):
        assert answers.pushed_entries(message) == []


@pytest.mark.parametrize(
    "data",
    [
        b'{"id":"w","capacity":0,"load":-1,"seen":1}',
        b'{"id":"w","capacity":-3,"seen":1}',
        b'{"id":"w","capacity":1e400,"seen":1}',
        b'{"id":"w","capacity":1,"load":-1,"seen":1}',
        b'{"id":"w","capacity":1,"seen":1e300}',
        b'{"id":"w","capacity":1,"seen":-1}',
        b'{"id":"","capacity":1,"seen":1}',
        b'{"id":"%s","capacity":1,"seen":1}' % (b"x" * 257),
        b'{"id":"w","capacity":NaN,"seen":1}',
        b'{"capacity":1,"seen":1}',
    ],
)
def test_a_worker_without_room_that_makes_sense_is_left_out_of_the_table(data: bytes) -> None:
    good = b'{"id":"good","capacity":2,"seen":1}'
    nodes = answers.nodes_of({b"w": data, b"good": good, b"\xff": b"\xff"})
    assert [node.id for node in rank_nodes(nodes, Wanted(), now=1.0, session="s")] == ["good"]


def test_what_is_larger_than_any_end_writes_is_not_read() -> None:
    for size, is_read in ((4096, True), (4097, False)):
        begin, end = b'{"id":"w","library":"', b'"}'
        assert (answers.decode_node(begin + b"x" * (size - len(begin) - len(end)) + end) is not None) is is_read
    for size, is_read in ((2**18, True), (2**18 + 1, False)):
        begin, end = b'{"options":{"a":"', b'"}}'
        assert (answers.decode_wanted(begin + b"x" * (size - len(begin) - len(end)) + end) is not None) is is_read


def test_a_worker_from_the_future_does_not_live() -> None:
    nodes = answers.nodes_of({b"w": b'{"id":"w","capacity":2,"seen":99999999}', b"g": b'{"id":"g","capacity":2,"seen":100}'})
    assert [node.id for node in rank_nodes(nodes, Wanted(), now=101.0, session="s")] == ["g"]


def test_a_wake_up_is_about_the_sessions_that_it_names() -> None:
    assert answers.woken_about(b"one two.2") == ["one", "two.2"]
    assert answers.woken_about(b"\xff one ../etc " + b"x" * 200) == ["one"]
    assert answers.woken_about(b"one " * 100_000) == []


@pytest.mark.parametrize("kind", [Owner, SessionEnd])
@pytest.mark.parametrize("data", [b"\xff", b"[]", b'{"taken":"x"}', b'{"node":"\\ud800"}', b'{"x":' + b"[" * 100_000])
def test_what_no_worker_says_about_itself_is_a_typed_error(kind: Any, data: bytes) -> None:
    with pytest.raises(errors.ProtocolError) as caught:
        decode_struct(data, kind)
    assert caught.value.code == "fleet.malformed"
