"""`LinkEnd`: each line exactly once and in order, however the connections under it are cut; and what happens when that is impossible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from claude_transport.errors import ConfigurationError, InputClosed, ProtocolError, ReplayGap
from claude_transport.protocol.framing import LineFramer
from claude_transport.protocol.link import Lines, LinkEnd, LinkEvent
from claude_transport.protocol.link_frames import Bye, End, Fragment, ProcessEnd

WINDOW = 2**20


def connect(one: LinkEnd, other: LinkEnd) -> None:
    """A new connection between the two: each learns what the other has."""
    ours = {"received": one.received, "replay_from": one.replay_from, "window": one.window}
    theirs = {"received": other.received, "replay_from": other.replay_from, "window": other.window}
    one.resume(**theirs)
    other.resume(**ours)


def connected(**options: Any) -> tuple[LinkEnd, LinkEnd]:
    one, other = LinkEnd(**options), LinkEnd(**options)
    connect(one, other)
    return one, other


def carry(sender: LinkEnd, receiver: LinkEnd, *, consume: bool = True) -> list[LinkEvent]:
    """Everything that one end has to say, said to the other: what it made of it."""
    events: list[LinkEvent] = []
    while sender.has_output:
        data = sender.data_to_send()
        events += receiver.receive_lines(data.split(b"\n")[:-1])
        if consume:
            receiver.consume(receiver.received)
            receiver.acknowledge()
    return events


def lines_of(events: Sequence[LinkEvent]) -> list[bytes]:
    return [line for event in events if isinstance(event, Lines) for line in event.lines]


def test_lines_arrive_in_order_and_what_was_dealt_with_is_not_kept() -> None:
    one, other = connected()
    one.send_lines([b"a", b"b b", b""])
    one.send_lines([b"c"])
    assert lines_of(carry(one, other)) == [b"a", b"b b", b"", b"c"]
    assert (one.sent, other.received, one.unacknowledged_lines) == (4, 4, 4)
    carry(other, one)
    assert (one.acknowledged, one.unacknowledged_lines, one.kept_bytes) == (4, 0, 0)


def test_nothing_is_said_before_a_connection_or_after_it() -> None:
    one, other = LinkEnd(), LinkEnd()
    one.send_lines([b"early"])
    assert not one.has_output
    assert one.data_to_send() == b""
    connect(one, other)
    assert one.has_output
    one.disconnected()
    assert not one.has_output
    connect(one, other)
    assert lines_of(carry(one, other)) == [b"early"]


def test_what_did_not_arrive_is_said_again_and_what_did_is_not() -> None:
    one, other = connected()
    one.send_lines([b"1", b"2", b"3"])
    frames = one.data_to_send().split(b"\n")[:-1]
    assert lines_of(other.receive_lines(frames[:2])) == [b"1", b"2"]
    connect(one, other)
    assert one.data_to_send() == b"D 3 3\n"


def test_a_line_that_comes_twice_is_dropped_by_its_number() -> None:
    one, other = connected()
    one.send_lines([b"1", b"2"])
    frames = one.data_to_send().split(b"\n")[:-1]
    assert lines_of(other.receive_lines([*frames, *frames])) == [b"1", b"2"]
    assert other.received == 2


def test_a_missing_number_is_an_error() -> None:
    _, other = connected()
    with pytest.raises(ProtocolError, match="number 2 came after number 0"):
        other.receive_lines([b"D 2 x"])


def test_what_the_peer_cannot_have_received_or_dealt_with_is_an_error() -> None:
    one, _ = connected()
    one.send_lines([b"waiting"])
    with pytest.raises(ProtocolError, match="acknowledges number 1, which it was not told"):
        one.receive_lines([b"A 1"])
    with pytest.raises(ProtocolError, match="has received number 2, but only 1"):
        one.resume(received=2, replay_from=1, window=WINDOW)


def test_the_ends_are_numbered_kept_and_said_again_like_lines() -> None:
    one, other = connected()
    one.send_lines([b"last"])
    one.end_input()
    one.end_input()
    assert one.data_to_send() == b"D 1 last\nE 1\n"
    connect(one, other)
    one.end_process(exit_code=3, stderr_tail="oops")
    events = carry(one, other)
    assert events == [Lines([b"last"], 1), End(1), ProcessEnd(after=2, exit_code=3, stderr_tail="oops")]
    carry(other, one)
    assert one.acknowledged == one.sent == 3


def test_after_an_end_nothing_can_be_sent_and_nothing_may_come() -> None:
    one, other = connected()
    one.send_fragment(b'{"half')
    with pytest.raises(InputClosed):
        one.send_lines([b"more"])
    one.end_process(signal=9)
    with pytest.raises(InputClosed):
        one.send_lines([b"more"])
    one.end_input()  # the end of the process was the end of everything
    assert carry(one, other) == [Fragment(1, b'{"half'), ProcessEnd(after=1, signal=9)]
    with pytest.raises(ProtocolError, match="after the end"):
        other.receive_lines([b"D 3 zombie"])


def test_the_end_of_the_process_says_what_had_reached_it() -> None:
    client, server = connected()
    client.send_lines([b"1", b"2"])
    carry(client, server, consume=False)
    server.consume(1)
    server.end_process(exit_code=0)
    carry(server, client)
    assert client.unacknowledged_lines == 1


def test_the_window_bounds_what_flies_and_consuming_opens_it() -> None:
    one, other = connected(window=100)
    one.send_lines([b"x" * 36] * 5)  # 41 bytes each as a frame
    assert len(lines_of(carry(one, other, consume=False))) == 2
    other.consume(1)
    other.acknowledge()
    carry(other, one)
    assert len(lines_of(carry(one, other, consume=False))) == 1


def test_a_line_larger_than_the_window_flies_alone() -> None:
    one, other = connected(window=100)
    one.send_lines([b"small", b"x" * 1000, b"small"])
    assert lines_of(carry(one, other, consume=False)) == [b"small"]
    for expected in ([b"x" * 1000], [b"small"]):
        other.consume(other.received)
        other.acknowledge()
        carry(other, one)
        assert lines_of(carry(one, other, consume=False)) == expected


def test_what_arrived_without_being_dealt_with_fills_the_window_of_the_next_connection_too() -> None:
    one, other = connected(window=100)
    one.send_lines([b"x" * 36] * 4)
    assert len(lines_of(carry(one, other, consume=False))) == 2
    connect(one, other)
    assert lines_of(carry(one, other, consume=False)) == []


def test_a_peer_that_ignores_the_window_is_an_error_and_cannot_fill_the_memory() -> None:
    other = LinkEnd(window=1000)
    other.resume(received=0, replay_from=1, window=WINDOW)
    with pytest.raises(ProtocolError, match="window of 1000 bytes"):
        for number in range(1, 1000):
            other.receive_lines([b"D %d %b" % (number, b"x" * 90)])
    assert other.received < 30


def test_who_looks_at_the_room_never_outruns_the_buffer() -> None:
    one = LinkEnd(replay_bytes=1000)
    while one.has_room:
        one.send_lines([b"x" * 100])
    other = LinkEnd()
    connect(one, other)
    assert len(lines_of(carry(one, other))) == one.sent == 10


def test_an_outrun_buffer_is_a_gap_for_the_peer_that_needs_it() -> None:
    one, other = LinkEnd(replay_bytes=1000, may_outrun=True), LinkEnd()
    connect(one, other)
    one.send_lines([b"heard"])
    carry(one, other)
    one.disconnected()
    one.send_lines([b"x" * 100] * 50)
    assert one.kept_bytes < 1000
    with pytest.raises(ReplayGap, match="up to number 1, but can be told again only from"):
        one.resume(received=1, replay_from=1, window=WINDOW)
    with pytest.raises(ReplayGap, match="the peer can say again only from"):
        other.resume(received=0, replay_from=one.replay_from, window=WINDOW)


def test_an_outrun_buffer_is_no_gap_for_a_peer_that_has_heard_it_all() -> None:
    one, other = LinkEnd(replay_bytes=1000, may_outrun=True), LinkEnd()
    connect(one, other)
    for _ in range(20):
        one.send_lines([b"x" * 100] * 5)
        carry(one, other)  # whose acknowledgements do not get through
    connect(one, other)
    one.send_lines([b"on"])
    assert lines_of(carry(one, other)) == [b"on"]
    carry(other, one)
    assert one.acknowledged == 101


def test_outrunning_a_peer_that_is_connected_and_slow_is_a_gap_at_once() -> None:
    one, _ = connected(replay_bytes=1000, may_outrun=True)
    one.send_lines([b"x" * 100] * 50)
    with pytest.raises(ReplayGap, match="forgotten before it could be said"):
        one.data_to_send()


def test_acknowledgements_gather_until_there_are_enough_or_nothing_else_to_do() -> None:
    one, other = connected()
    one.send_lines([b"x"] * 300)
    other.receive_lines(one.data_to_send().split(b"\n")[:-1])
    other.consume(255)
    assert not other.has_output
    other.consume(256)
    assert other.data_to_send() == b"A 256\n"
    other.consume(300)
    assert not other.has_output
    other.acknowledge()
    assert other.data_to_send() == b"A 300\n"
    other.acknowledge()
    assert not other.has_output


def test_a_quarter_of_the_window_is_acknowledged_without_waiting_for_more() -> None:
    one, other = connected(window=400)
    one.send_lines([b"x" * 120])
    other.receive_lines(one.data_to_send().split(b"\n")[:-1])
    other.consume(1)
    assert other.data_to_send() == b"A 1\n"


def test_an_acknowledgement_that_was_cut_off_is_said_again() -> None:
    one, other = connected()
    one.send_lines([b"x"])
    carry(one, other)
    assert other.data_to_send() == b"A 1\n"
    connect(one, other)
    assert other.data_to_send() == b"A 1\n"


def test_pings_are_answered_with_their_number_and_a_flood_of_them_with_the_last() -> None:
    one, other = connected()
    one.ping()
    assert other.receive_lines(one.data_to_send().split(b"\n")[:-1]) == []
    assert other.data_to_send() == b"O 1\n"
    other.receive_lines([b"P %d" % number for number in range(1000)])
    assert other.data_to_send() == b"O 999\n"


def test_a_bye_comes_after_what_was_said_and_again_on_every_connection() -> None:
    one, other = connected()
    one.send_lines([b"x"] * 10)
    one.bye(reason="done")
    other.receive_lines(one.data_to_send(1).split(b"\n")[:-1])
    assert (other.received, one.has_output) == (1, True)
    assert carry(one, other)[-1] == Bye(reason="done")
    connect(one, other)
    assert carry(one, other) == [Bye(reason="done")]


def test_a_bye_does_not_wait_for_a_peer_that_takes_nothing_in() -> None:
    one, other = connected(window=100)
    one.send_lines([b"x" * 80, b"stuck" * 4])
    one.bye()
    assert carry(one, other, consume=False) == [Lines([b"x" * 80], 1), Bye()]


def test_letters_from_the_future_are_ignored() -> None:
    _, other = connected()
    assert lines_of(other.receive_lines([b"Z whatever", b"D 1 a", b"Q", b"D 2 b"])) == [b"a", b"b"]


@pytest.mark.parametrize("frame", [b'H {"version":1}', b'W {"version":1,"session":"s","lease":1}'])
def test_a_second_handshake_on_one_connection_is_an_error(frame: bytes) -> None:
    _, other = connected()
    with pytest.raises(ProtocolError, match="second hello"):
        other.receive_lines([frame])


def test_a_line_over_the_limit_keeps_its_number_its_size_and_its_place() -> None:
    one, other = connected()
    framer = LineFramer(max_line_bytes=2000)
    one.send_lines([b"a", b"x" * 5000, b"b"])
    first, large, last = lines_of(other.receive_lines(framer.feed(one.data_to_send())))
    assert (first, last) == (b"a", b"b")
    assert getattr(large, "size", None) == 5000
    assert other.received == 3


@pytest.mark.parametrize("option", ["replay_bytes", "window"])
def test_a_bound_of_nothing_is_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match="1 or more"):
        connected(**{option: 0})


# --------------------------------------------------------------------------------------- two ends over a channel that cuts

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 1), st.integers(1, 5)),
        st.tuples(st.just("carry"), st.integers(0, 1), st.integers(1, 400)),
        st.tuples(st.just("consume"), st.integers(0, 1), st.integers(1, 6)),
        st.tuples(st.just("acknowledge"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 1), st.integers(0, 400)),
    ),
    max_size=80,
)


class Channel:
    """Two ends and the bytes between them: cut at any byte, read in any pieces."""

    def __init__(self, window: int) -> None:
        self.ends = (LinkEnd(window=window), LinkEnd(window=window))
        self.framers = [LineFramer(), LineFramer()]
        self.flying = [bytearray(), bytearray()]  # what each end has said and the other has not read
        self.said: list[list[bytes]] = [[], []]
        self.heard: list[list[bytes]] = [[], []]
        self.ended = [0, 0]  # how often the end of each was heard
        connect(*self.ends)

    def say(self, who: int, count: int) -> None:
        lines = [b"%d.%d" % (who, len(self.said[who]) + number) for number in range(count)]
        try:
            self.ends[who].send_lines(lines)
        except InputClosed:
            return
        self.said[who] += lines

    def carry(self, who: int, size: int) -> None:
        self.flying[who] += self.ends[who].data_to_send(50)
        chunk = bytes(self.flying[who][:size])
        del self.flying[who][:size]
        for event in self.ends[1 - who].receive_lines(self.framers[who].feed(chunk)):
            self.heard[1 - who] += lines_of([event])
            self.ended[1 - who] += isinstance(event, End)

    def consume(self, who: int, count: int) -> None:
        self.ends[who].consume(self.ends[who].consumed + count)

    def cut(self, survivor: int, size: int) -> None:
        """Part of what was on its way still arrives at one of the two; the rest is gone."""
        self.carry(survivor, size)
        for end in self.ends:
            end.disconnected()
        self.flying = [bytearray(), bytearray()]
        self.framers = [LineFramer(), LineFramer()]
        connect(*self.ends)

    def settle(self) -> None:
        """Let everything arrive and be dealt with."""
        while True:
            for who in (0, 1):
                self.ends[who].consume(self.ends[who].received)
                self.ends[who].acknowledge()
            if not any(end.has_output for end in self.ends) and not any(self.flying):
                return
            for who in (0, 1):
                self.carry(who, 10**6)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, window=st.sampled_from([1, 40, 200, 10**6]))
def test_whatever_is_cut_whenever_both_sides_hear_everything_once_in_order(steps: list[tuple[str, int, int]], window: int) -> None:
    channel = Channel(window)
    for what, who, size in steps:
        match what:
            case "say":
                channel.say(who, size)
            case "carry":
                channel.carry(who, size)
            case "consume":
                channel.consume(who, size)
            case "acknowledge":
                channel.ends[who].acknowledge()
            case "end":
                channel.ends[who].end_input()
            case _:
                channel.cut(who, size)
        for me in (0, 1):
            assert channel.heard[me] == channel.said[1 - me][: len(channel.heard[me])]
    for end in channel.ends:
        end.end_input()
    channel.settle()
    assert channel.heard == [channel.said[1], channel.said[0]]
    assert channel.ended == [1, 1]
    assert all(end.kept_bytes == 0 and end.unacknowledged_lines == 0 for end in channel.ends)
