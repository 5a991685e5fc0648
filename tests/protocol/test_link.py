"""`LinkEnd`: each byte exactly once and in order, however the connections under it are cut; and what happens when that is impossible."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from claude_transport.errors import ConfigurationError, InputClosed, ProtocolError, ReplayGap
from claude_transport.link.machine import Bye, Data, End, LinkEnd, LinkEvent, ProcessEnd

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


def hear(end: LinkEnd, data: bytes) -> list[LinkEvent]:
    return list(end.receive(data))


def carry(sender: LinkEnd, receiver: LinkEnd, *, consume: bool = True) -> list[LinkEvent]:
    """Everything that one end has to say, said to the other: what it made of it."""
    events: list[LinkEvent] = []
    while sender.has_output:
        events += receiver.receive(sender.data_to_send())
        if consume:
            receiver.consume(receiver.received)
            receiver.acknowledge()
    return events


def bytes_of(events: Sequence[LinkEvent]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Data))


def test_bytes_arrive_in_order_and_what_was_dealt_with_is_not_kept() -> None:
    one, other = connected()
    one.send(b"a\nb ")
    one.send(b"b\n")
    one.send(b"")
    one.send(b"\xff\x00")
    assert bytes_of(carry(one, other)) == b"a\nb b\n\xff\x00"
    assert (one.sent, other.received, one.kept_bytes) == (8, 8, 8)
    carry(other, one)
    assert (one.acknowledged, one.kept_bytes) == (8, 0)


def test_what_is_sent_while_nothing_goes_out_goes_out_as_one_frame() -> None:
    one, _ = connected()
    for _ in range(1000):
        one.send(b"x\n")
    assert one.data_to_send() == b"D 0 2000\n" + b"x\n" * 1000


def test_nothing_is_said_before_a_connection_or_after_it() -> None:
    one, other = LinkEnd(), LinkEnd()
    one.send(b"early")
    assert not one.has_output
    assert one.data_to_send() == b""
    connect(one, other)
    assert one.has_output
    one.disconnected()
    assert not one.has_output
    connect(one, other)
    assert bytes_of(carry(one, other)) == b"early"


@pytest.mark.parametrize("arrived", range(8))
def test_what_arrived_of_a_frame_that_was_cut_is_not_said_again(arrived: int) -> None:
    one, other = connected()
    one.send(b"1234567")
    header, payload = one.data_to_send().split(b"\n")
    assert bytes_of(hear(other, header + b"\n" + payload[:arrived])) == payload[:arrived]
    connect(one, other)
    rest = payload[arrived:]
    assert one.data_to_send() == (b"D %d %d\n" % (arrived, len(rest)) + rest if rest else b"")


def test_bytes_that_come_twice_are_dropped_by_their_position_also_in_part() -> None:
    _, other = connected()
    chunks = (b"D 0 4\nabcd", b"D 0 4\nabcdD 2 4\ncdefD 5 1\nf", b"D 1 9\nbcdef", b"ghij")
    heard = [event for chunk in chunks for event in other.receive(chunk)]
    assert bytes_of(heard) == b"abcdefghij"
    assert [event.position for event in heard if isinstance(event, Data)] == [0, 4, 6]
    assert other.received == 10


def test_a_missing_position_is_an_error() -> None:
    _, other = connected()
    assert hear(other, b"D 0 1\nx") == [Data(0, b"x")]
    with pytest.raises(ProtocolError, match="position 2 came after position 1"):
        hear(other, b"D 2 1\nx")
    with pytest.raises(ProtocolError, match="an end after position 7 came after position 1"):
        hear(other, b"E 7\n")


@pytest.mark.parametrize("bad", [b"D 9 1\nx", b"no frame\n", b"A 7\n", b"D 0 0\n", b"H {}\n"])
def test_what_came_in_one_piece_with_something_bad_is_heard_before_the_error(bad: bytes) -> None:
    _, other = connected()
    events = other.receive(b"D 0 2\nxy" + bad)
    assert next(events) == Data(0, b"xy")
    with pytest.raises(ProtocolError):
        next(events)
    assert other.received == 2


def test_what_the_peer_cannot_have_received_or_dealt_with_is_an_error() -> None:
    one, _ = connected()
    one.send(b"waiting")
    with pytest.raises(ProtocolError, match="acknowledges position 1, which was not sent"):
        hear(one, b"A 1\n")
    with pytest.raises(ProtocolError, match="claims position 1, but only 0"):
        one.resume(received=1, replay_from=0, window=WINDOW)
    with pytest.raises(ProtocolError, match="acknowledges position 3"):
        hear(one, b'X {"after":0,"accepted":3}\n')


def test_the_ends_are_positions_kept_and_said_again_like_bytes() -> None:
    one, other = connected()
    one.send(b"last\n")
    one.end_input()
    one.end_input()
    assert one.data_to_send() == b"D 0 5\nlast\nE 5\n"
    connect(one, other)
    one.end_process(exit_code=3, stderr_tail="oops")
    events = carry(one, other)
    assert events == [Data(0, b"last\n"), End(5), ProcessEnd(after=6, exit_code=3, stderr_tail="oops")]
    carry(other, one)
    assert one.acknowledged == one.sent == 7


@pytest.mark.parametrize(("received", "said"), [(4, b"D 4 1\n\nE 5\nX "), (5, b"E 5\nX "), (6, b"X "), (7, b"")])
def test_an_end_that_was_lost_is_said_again_and_one_that_was_heard_is_not(received: int, said: bytes) -> None:
    one, _ = connected()
    one.send(b"last\n")
    one.end_input()
    one.end_process()
    one.data_to_send()
    one.resume(received=received, replay_from=0, window=WINDOW)
    again = one.data_to_send()
    assert again.startswith(said)
    assert bool(again) is bool(said)


def test_ends_that_come_twice_are_heard_once() -> None:
    _, other = connected()
    ends = b'D 0 1\nxE 1\nX {"after":2}\n'
    assert hear(other, ends + ends) == [Data(0, b"x"), End(1), ProcessEnd(after=2)]
    assert other.received == 3


def test_after_an_end_nothing_can_be_sent_and_nothing_may_come() -> None:
    one, other = connected()
    one.send(b'{"half')
    one.end_process(signal=9)
    with pytest.raises(InputClosed):
        one.send(b"more")
    one.end_input()  # the end of the process was the end of everything
    assert carry(one, other) == [Data(0, b'{"half'), ProcessEnd(after=6, signal=9)]
    for zombie in (b"D 6 1\nz", b"D 4 3\nlfz", b"E 7\n", b'X {"after":7}\n'):
        with pytest.raises(ProtocolError, match="after the end"):
            hear(other, zombie)
        connect(one, other)


def test_the_end_of_the_process_says_what_had_reached_it() -> None:
    client, server = connected()
    client.send(b"1\n2\n")
    carry(client, server, consume=False)
    server.consume(2)
    server.end_process(exit_code=0)
    assert carry(server, client) == [ProcessEnd(after=0, accepted=2, exit_code=0)]
    assert (client.acknowledged, client.sent_bytes) == (2, 4)


FAILED: list[dict[str, Any]] = [{"exit_code": 3}, {"signal": 9}, {"error": "lost"}]


@pytest.mark.parametrize(("how", "failed"), [({}, False), ({"exit_code": 0}, False), *((how, True) for how in FAILED)], ids=str)
def test_a_process_has_failed_by_its_exit_code_a_signal_or_another_error(how: dict[str, Any], failed: bool) -> None:
    assert ProcessEnd(after=0, **how).failed is failed


@pytest.mark.parametrize(("words", "shown"), [("", "''"), ("secret", "'<6 characters>'")])
def test_the_end_of_a_process_is_shown_without_its_last_words(words: str, shown: str) -> None:
    assert f"stderr_tail={shown}, " in repr(ProcessEnd(after=0, stderr_tail=words))


def test_last_words_that_fit_into_no_frame_are_cut_at_their_beginning() -> None:
    client, server = connected()
    tail = "\0" * 64 * 2**10 + "Killed"  # as JSON, each of these zeros has six bytes
    server.end_process(exit_code=137, stderr_tail=tail)
    (end,) = carry(server, client)
    assert isinstance(end, ProcessEnd)
    assert end.exit_code == 137
    assert tail.endswith(end.stderr_tail)
    assert len(end.stderr_tail) > 20_000


def test_what_reached_the_process_may_be_less_than_what_was_acknowledged() -> None:
    client, server = connected()
    client.send(b"1\n2")
    carry(client, server)
    server.end_process(accepted=2)
    (end,) = carry(server, client)
    assert isinstance(end, ProcessEnd)
    assert (client.acknowledged, end.accepted) == (3, 2)


def test_the_window_bounds_what_flies_and_consuming_opens_it() -> None:
    one, other = connected(window=100)
    one.send(b"x" * 250)
    one.end_input()
    assert bytes_of(carry(one, other, consume=False)) == b"x" * 100
    other.consume(30)
    other.acknowledge()
    carry(other, one)
    assert bytes_of(carry(one, other, consume=False)) == b"x" * 30
    assert len(bytes_of(carry(one, other))) + len(bytes_of(carry(other, one))) == 0
    other.consume(130)
    other.acknowledge()
    carry(other, one)
    assert carry(one, other, consume=False)[0] == Data(130, b"x" * 100)


def test_the_ends_need_no_room_in_the_window() -> None:
    one, other = connected(window=100)
    one.send(b"x" * 100)
    one.end_input()
    one.end_process()
    assert [type(event) for event in carry(one, other, consume=False)] == [Data, End, ProcessEnd]


def test_what_arrived_without_being_dealt_with_fills_the_window_of_the_next_connection_too() -> None:
    one, other = connected(window=100)
    one.send(b"x" * 200)
    assert len(bytes_of(carry(one, other, consume=False))) == 100
    connect(one, other)
    assert carry(one, other, consume=False) == []


def test_a_peer_that_ignores_the_window_is_an_error_and_cannot_fill_the_memory() -> None:
    other = LinkEnd(window=1000)
    other.resume(received=0, replay_from=0, window=WINDOW)
    with pytest.raises(ProtocolError, match="window of 1000 bytes"):
        for number in range(1000):
            hear(other, b"D %d 90\n%b" % (90 * number, b"x" * 90))
    assert other.received <= 1000


def test_who_looks_at_the_room_never_outruns_the_buffer() -> None:
    one = LinkEnd(replay_bytes=1000)
    while one.has_room:
        one.send(b"x" * 100)
    other = LinkEnd()
    connect(one, other)
    assert len(bytes_of(carry(one, other))) == one.sent == 1000


def test_8_mebibytes_wait_for_a_peer_that_is_away_when_nobody_says_how_many_may() -> None:
    one = LinkEnd()
    for _ in range(7):
        one.send(bytes(2**20))
    assert one.has_room
    one.send(bytes(2**20))
    assert not one.has_room


def test_an_outrun_buffer_is_a_gap_for_the_peer_that_needs_it() -> None:
    one, other = LinkEnd(replay_bytes=1000, may_outrun=True), LinkEnd()
    connect(one, other)
    one.send(b"heard")
    carry(one, other)
    one.disconnected()
    for _ in range(50):
        one.send(b"x" * 100)
    assert one.kept_bytes == 1000
    with pytest.raises(ReplayGap, match="needs the data after position 5, but it is kept only from 4005"):
        one.resume(received=5, replay_from=0, window=WINDOW)
    with pytest.raises(ReplayGap, match="the peer can repeat its data only from"):
        other.resume(received=0, replay_from=one.replay_from, window=WINDOW)


def test_an_outrun_buffer_is_no_gap_for_a_peer_that_has_heard_it_all() -> None:
    one, other = LinkEnd(replay_bytes=1000, may_outrun=True), LinkEnd()
    connect(one, other)
    for _ in range(20):
        one.send(b"x" * 500)
        carry(one, other)  # whose acknowledgements do not get through
    connect(one, other)
    one.send(b"on")
    assert bytes_of(carry(one, other)) == b"on"
    carry(other, one)
    assert (one.acknowledged, one.kept_bytes) == (10_002, 0)


def test_outrunning_a_peer_that_is_connected_and_slow_is_a_gap_at_once() -> None:
    one, _ = connected(replay_bytes=1000, may_outrun=True)
    for _ in range(50):
        one.send(b"x" * 100)
    with pytest.raises(ReplayGap, match="dropped before it could be sent"):
        one.data_to_send()


def test_acknowledgements_gather_until_there_are_enough_or_nothing_else_to_do() -> None:
    one, other = connected(window=400)
    one.send(b"x" * 130)
    hear(other, one.data_to_send())
    other.consume(99)
    assert (other.has_output, other.owes_acknowledgement) == (False, True)
    other.consume(100)
    assert (other.has_output, other.owes_acknowledgement) == (True, False)
    assert other.data_to_send() == b"A 100\n"
    other.consume(130)
    assert not other.has_output
    other.acknowledge()
    assert other.data_to_send() == b"A 130\n"
    other.acknowledge()
    assert (other.has_output, other.owes_acknowledgement) == (False, False)


def test_an_acknowledgement_that_was_cut_off_is_said_again() -> None:
    one, other = connected()
    one.send(b"x")
    carry(one, other)
    assert other.data_to_send() == b"A 1\n"
    connect(one, other)
    assert other.data_to_send() == b"A 1\n"


def test_pings_are_answered_with_their_number_and_a_flood_of_them_with_the_last() -> None:
    one, other = connected()
    one.ping()
    assert hear(other, one.data_to_send()) == []
    assert other.data_to_send() == b"O 1\n"
    hear(other, b"".join(b"P %d\n" % number for number in range(1000)))
    assert other.data_to_send() == b"O 999\n"


def test_a_bye_comes_after_what_was_said_and_again_on_every_connection() -> None:
    one, other = connected()
    one.send(b"x" * 10)
    one.bye(reason="done")
    hear(other, one.data_to_send(1))
    assert (other.received, one.has_output) == (1, True)
    assert carry(one, other)[-1] == Bye(reason="done")
    connect(one, other)
    assert carry(one, other) == [Bye(reason="done")]


def test_a_bye_does_not_wait_for_a_peer_that_takes_nothing_in() -> None:
    one, other = connected(window=100)
    one.send(b"x" * 120)
    one.bye()
    assert carry(one, other, consume=False) == [Data(0, b"x" * 100), Bye()]


def test_letters_from_the_future_are_ignored() -> None:
    _, other = connected()
    assert hear(other, b"Z whatever\nD 0 1\naQ\nF 3 x\nD 1 1\nb") == [Data(0, b"ab")]


def test_what_comes_behind_a_farewell_has_its_own_position() -> None:
    _, other = connected()
    assert hear(other, b"D 0 1\naB {}\nD 1 1\nb") == [Data(0, b"a"), Bye(), Data(1, b"b")]


@pytest.mark.parametrize("frame", [b'H {"version":1}', b'W {"version":1,"session":"s","lease":1}'])
def test_a_second_handshake_on_one_connection_is_an_error(frame: bytes) -> None:
    _, other = connected()
    with pytest.raises(ProtocolError, match="second hello"):
        hear(other, frame + b"\n")


@pytest.mark.parametrize("option", ["replay_bytes", "window"])
def test_a_bound_of_nothing_is_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match="must be at least 1 byte"):
        connected(**{option: 0})


@pytest.mark.parametrize("size", [1, 7, 1023, 1024, 5000])
def test_what_is_kept_is_forgotten_to_the_byte_that_was_acknowledged(size: int) -> None:
    one, other = connected()
    sent = bytes(number % 251 for number in range(20_000))
    for start in range(0, len(sent), size):
        one.send(sent[start : start + size])
    while one.has_output:
        hear(other, one.data_to_send(3000))
    for position in (1, 2, 999, 5001, 12_345, 19_999):
        hear(one, b"A %d\n" % position)
        assert (one.kept_bytes, one.replay_from) == (20_000 - position, position)
        one.resume(received=position, replay_from=0, window=WINDOW)
        assert b"".join(piece.partition(b"\n")[2] for piece in iter(lambda: one.data_to_send(3000), b"")) == sent[position:]


@pytest.mark.parametrize("flies", [False, True])
def test_bytes_that_are_sent_two_by_two_cost_not_much_more_than_their_size(flies: bool) -> None:
    one, other = LinkEnd(), LinkEnd()
    if flies:
        connect(one, other)
    tracemalloc.start()
    try:
        for _ in range(50_000):
            one.send(bytes((1, 2)))
            one.data_to_send()
        assert tracemalloc.get_traced_memory()[0] < 250_000
    finally:
        tracemalloc.stop()
    assert one.kept_bytes == 100_000


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.sampled_from([1, 50, 1023, 1024, 3000, 70_000]), max_size=30), most=st.sampled_from([100, 3000, 10**6]))
def test_small_and_large_pieces_keep_their_order(sizes: list[int], most: int) -> None:
    one, other = connected()
    sent, heard = bytearray(), bytearray()
    for number, size in enumerate(sizes):
        piece = bytes([number]) * size
        sent += piece
        one.send(piece)
        if number % 4 == 3:
            heard += bytes_of(hear(other, one.data_to_send(most)))
        if number % 10 == 9:
            connect(one, other)
    while one.has_output:
        heard += bytes_of(hear(other, one.data_to_send(most)))
    assert heard == sent


# --------------------------------------------------------------------------------------- two ends over a channel that cuts

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 1), st.integers(1, 60)),
        st.tuples(st.just("carry"), st.integers(0, 1), st.integers(1, 400)),
        st.tuples(st.just("consume"), st.integers(0, 1), st.integers(1, 60)),
        st.tuples(st.just("acknowledge"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("exit"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 1), st.integers(0, 400)),
    ),
    max_size=80,
)


class Channel:
    """Two ends and the bytes between them: cut at any byte, read in any pieces."""

    def __init__(self, window: int) -> None:
        self.ends = (LinkEnd(window=window), LinkEnd(window=window))
        self.flying = [bytearray(), bytearray()]  # what each end has said and the other has not read
        self.said = [bytearray(), bytearray()]
        self.heard = [bytearray(), bytearray()]
        self.ended: list[list[type]] = [[], []]  # which ends of each were heard
        connect(*self.ends)

    def say(self, who: int, size: int) -> None:
        data = bytes((len(self.said[who]) + number) % 251 for number in range(size))
        try:
            self.ends[who].send(data)
        except InputClosed:
            return
        self.said[who] += data

    def carry(self, who: int, size: int) -> None:
        self.flying[who] += self.ends[who].data_to_send(50)
        chunk = bytes(self.flying[who][:size])
        del self.flying[who][:size]
        for event in self.ends[1 - who].receive(chunk):
            if isinstance(event, Data):
                assert event.position == len(self.heard[1 - who])
                self.heard[1 - who] += event.data
            else:
                self.ended[1 - who].append(type(event))

    def consume(self, who: int, count: int) -> None:
        self.ends[who].consume(self.ends[who].consumed + count)

    def cut(self, survivor: int, size: int) -> None:
        """Part of what was on its way still arrives at one of the two; the rest is gone."""
        self.carry(survivor, size)
        for end in self.ends:
            end.disconnected()
        self.flying = [bytearray(), bytearray()]
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

    def check(self) -> None:
        """What was heard is what was said so far, and nobody holds more than it may."""
        for me in (0, 1):
            assert self.heard[me] == self.said[1 - me][: len(self.heard[me])]
            assert self.ends[me].received - self.ends[me].consumed <= self.ends[me].window + 2


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, window=st.sampled_from([1, 40, 200, 10**6]))
def test_whatever_is_cut_whenever_both_sides_hear_every_byte_once_in_order(steps: list[tuple[str, int, int]], window: int) -> None:
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
            case "exit":
                channel.ends[who].end_process()
            case _:
                channel.cut(who, size)
        channel.check()
    for end in channel.ends:
        end.end_process()
    channel.settle()
    assert channel.heard == [channel.said[1], channel.said[0]]
    assert all(ended in ([ProcessEnd], [End, ProcessEnd]) for ended in channel.ended)
    assert all(end.kept_bytes == 0 and end.acknowledged == end.sent for end in channel.ends)


@pytest.mark.parametrize("who", [0, 1])
def test_a_cut_at_every_single_byte_of_a_conversation_loses_and_repeats_nothing(who: int) -> None:
    at = 0
    while True:
        channel = Channel(40)
        for speaker in (who, 1 - who):
            channel.say(speaker, 60)
            channel.ends[speaker].end_input()
            channel.ends[speaker].end_process()
        channel.carry(1 - who, 50)
        channel.carry(who, 10**6)
        channel.consume(1 - who, 30)
        channel.ends[1 - who].acknowledge()
        channel.carry(1 - who, 10**6)
        on_its_way = bytes(channel.flying[who]) + channel.ends[who].data_to_send(50)
        channel.flying[who] = bytearray(on_its_way)
        if at > len(on_its_way):
            break
        channel.cut(who, at)
        channel.check()
        channel.settle()
        assert channel.heard == [channel.said[1], channel.said[0]]
        assert channel.ended == [[End, ProcessEnd]] * 2
        at += 1
    assert at > 30
