"""Where the keys of a cluster are, and what nodes say of it: also what no node says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.redis.resp import RespError
from claude_transport.redis.slots import SLOTS, NodeAddress, Redirection, ranges_of, redirection_of, slot_of


@pytest.mark.parametrize(
    ("key", "slot"),
    [("", 0), ("foo", 12182), ("bar", 5061), ("123456789", 12739), ("{bar}foo", 5061), ("a{foo}b{bar}", 12182), ("{}foo", 9500)],
)
def test_a_key_has_the_slot_that_a_server_gives_it(key: str, slot: int) -> None:
    """Numbers of a real server: `CLUSTER KEYSLOT`."""
    assert slot_of(key) == slot


@given(st.text(st.characters(exclude_characters="{}", codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")))
def test_what_stands_in_braces_decides_alone(tag: str, rest: str) -> None:
    assert slot_of(f"{{{tag}}}{rest}") == slot_of(tag)
    assert 0 <= slot_of(rest) < SLOTS


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirection(3999, NodeAddress("127.0.0.1", 6381), asks=False)),
        ("ASK 0 node-1.example:1", Redirection(0, NodeAddress("node-1.example", 1), asks=True)),
        ("MOVED 16383 :6381", Redirection(16383, NodeAddress("", 6381), asks=False)),
        ("MOVED 5 ::1:7000", Redirection(5, NodeAddress("::1", 7000), asks=False)),
        ("MOVED 16384 127.0.0.1:6381", None),
        ("MOVED 1 127.0.0.1:0", None),
        ("MOVED 1 127.0.0.1:65536", None),
        ("MOVED 1 127.0.0.1", None),
        ("MOVED 1 user@host:1", None),
        ("MOVED 1 " + "x" * 256 + ":1", None),
        ("ERR MOVED 1 127.0.0.1:6381", None),
        ("MOVED 1 127.0.0.1:6381\n", None),
    ],
)
def test_a_redirection_is_read_and_nothing_else_is_one(said: str, found: Redirection | None) -> None:
    assert redirection_of(RespError(said)) == found


def test_the_slots_of_a_cluster_are_those_of_its_primaries() -> None:
    one, two = [b"10.0.0.1", 1, b"id", []], [b"10.0.0.2", 2, b"id"]
    answer = [[0, 1, one, two], [5, 5, two], [7, 8, [None, 3]]]
    assert list(ranges_of(answer)) == [
        (range(2), NodeAddress("10.0.0.1", 1)),
        (range(5, 6), NodeAddress("10.0.0.2", 2)),
        (range(7, 9), NodeAddress("", 3)),
    ]


NODE = [b"host", 1]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"slots",
        [[0, 1]],
        [[0, SLOTS, NODE]],
        [[-1, 1, NODE]],
        [[2, 1, NODE]],
        [[0, 1, [b"host", 0]]],
        [[0, 1, [b"host", 65536]]],
        [[0, 1, [b"ho st", 1]]],
        [[0, 1, [b"\xff", 1]]],
        [[0, 1, [b"x" * 256, 1]]],
        [[0, 1, [b"user@host", 1]]],
        [[b"0", 1, NODE]],
        [[0, 1, b"host"]],
        [[0, 0, NODE]] * (SLOTS + 1),
    ],
)
def test_slots_that_no_node_says_are_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match="a cluster has said"):
        list(ranges_of(answer))
