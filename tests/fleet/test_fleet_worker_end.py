"""The end of the process, without a broker: what it takes, feeds and tells, and when."""

from __future__ import annotations

from typing import Any

import pytest

from claude_transport.fleet.ends import FEED_BYTES, Claimed, ClientEnd, WorkerEnd
from claude_transport.fleet.messages import Append, Appended, Call, Entry, Gap, Kind, Renew, Renewed, Reply, SessionEnd, Synced, Take, Taken

RESULT = b'{"type":"result"}\n'


def worker(**claimed: Any) -> WorkerEnd:
    return WorkerEnd(Claimed(token="1.w", **claimed), asked_at=0)


def prompt(number: int, *, token: str = "1.c") -> Entry:
    return Entry(number, token, "d", b'{"type":"user","n":%d}\n' % number)


def answer(end: WorkerEnd | ClientEnd, call: Call | None, reply: Reply, *, at: float = 0) -> None:
    assert call is not None
    end.answered(call, reply, asked_at=at, now=at)


def take(end: WorkerEnd, *, window: int = 0) -> None:
    """Take and feed what waits."""
    answer(end, end.take_call(), Taken(window))
    end.fed()


def tell(end: WorkerEnd) -> Append:
    """Let the broker take the next append."""
    call = end.append_call()
    assert call is not None
    answer(end, call, Appended(call.first + len(call.entries) - 1, 0))
    return call


@pytest.mark.parametrize(
    ("claimed", "is_takeover"),
    [
        (Claimed(token="2.w"), False),
        (Claimed(token="1.w", out_last=1, in_taken=1, turns_begun=1), False),
        (Claimed(token="2.w", out_last=1), True),
        (Claimed(token="2.w", in_taken=1), True),
        (Claimed(token="2.w", turns_begun=1), True),
    ],
)
def test_a_session_is_taken_over_when_another_worker_has_said_or_taken_anything(claimed: Claimed, is_takeover: bool) -> None:
    assert claimed.is_takeover is is_takeover


# Input.


def test_nothing_is_taken_while_anything_before_it_is_not_fed() -> None:
    end = worker()
    assert end.take_call() is None
    end.arrived([prompt(1)])
    call = end.take_call()
    end.arrived([prompt(2)])
    assert end.take_call() is None  # one is asked for
    answer(end, call, Taken())
    assert end.take_call() is None  # one is to be fed
    end.fed()
    end.stop_taking()
    assert end.take_call() is None


def test_a_worker_takes_no_more_at_once_than_it_may_and_what_is_left_afterwards() -> None:
    end = worker()
    end.arrived([Entry(number, "1.c", "d", b"x" * (FEED_BYTES // 2) + b"\n") for number in range(1, 6)])
    seen = []
    for _ in range(3):
        call = end.take_call()
        assert call is not None
        seen.append(call.upto)
        answer(end, call, Taken())
        end.fed()
    assert seen == [2, 4, 5]


def test_input_counts_as_waiting_until_the_process_has_received_it() -> None:
    end, size = worker(), len(prompt(1).data)
    states = [(end.waiting_bytes, end.has_input, end.owes_feeding, end.busy)]
    end.arrived([prompt(1), prompt(2)])
    states.append((end.waiting_bytes, end.has_input, end.owes_feeding, end.busy))
    call = end.take_call()
    states.append((end.waiting_bytes, end.has_input, end.owes_feeding, end.busy))
    answer(end, call, Taken())
    states.append((end.waiting_bytes, end.has_input, end.owes_feeding, end.busy))
    end.fed()
    states.append((end.waiting_bytes, end.has_input, end.owes_feeding, end.busy))
    waiting = (2 * size, True, False, True)
    assert states == [
        (0, False, False, False),
        waiting,
        (2 * size, True, True, True),
        (2 * size, True, True, True),
        (0, False, False, True),
    ]


def test_a_line_that_begins_no_turn_keeps_a_worker_busy_until_it_is_fed() -> None:
    end = worker()
    end.arrived([Entry(1, "1.c", "d", b"{}\n")])
    assert end.busy
    take(end)
    assert not end.busy


def test_an_answer_to_another_take_feeds_nothing() -> None:
    end = worker()
    end.arrived([prompt(1)])
    assert end.take_call() is not None
    answer(end, Take(end.side, "1.w", 7), Taken())
    assert end.to_feed(0) == []
    idle = worker()
    answer(idle, Take(idle.side, "1.w", 7), Taken())
    assert idle.to_feed(0) == []


def test_the_end_of_the_input_alone_tells_the_client_nothing() -> None:
    end = worker()
    end.arrived([Entry(1, "1.c", Kind.EOF, b"")])
    assert end.take_call() is None
    end.fed()
    assert (end.fed_number, end.append_call()) == (1, None)


def test_what_is_read_after_the_end_of_the_input_was_read_is_still_that() -> None:
    end = worker()
    end.arrived([prompt(1), Entry(2, "1.c", Kind.EOF, b"")])
    answer(end, end.sync_call(), Synced("1.c", 0, 0, 0))
    assert end.sync_call().cursor == 1


def test_what_a_newer_client_says_in_place_of_an_older_one_is_fed_alone() -> None:
    end, size = worker(), len(prompt(1).data)
    end.arrived([prompt(1), prompt(2), prompt(3)])
    answer(end, end.sync_call(), Synced("2.x", 2, 0, 0))
    assert (end.waiting_bytes, end.sync_call().taken, end.fed_number) == (2 * size, 0, 0)
    end.arrived([Entry(3, "2.x", "d", b"{}\n")])
    answer(end, end.take_call(), Taken())
    assert [each.data for each in end.to_feed(0)] == [prompt(1).data, prompt(2).data, b"{}\n"]


def test_what_is_being_fed_still_waits_when_a_newer_client_begins() -> None:
    end, size = worker(), len(prompt(1).data)
    end.arrived([prompt(1)])
    answer(end, end.take_call(), Taken())
    end.arrived([prompt(2), prompt(3)])
    answer(end, end.sync_call(), Synced("1.c", 0, 0, 0))
    assert end.waiting_bytes == 3 * size
    answer(end, end.sync_call(), Synced("2.x", 2, 0, 0))
    assert end.waiting_bytes == 2 * size


def test_a_lease_that_was_renewed_holds_longer() -> None:
    end = worker()
    assert not end.lease.holds(20)
    answer(end, end.renew_call(15), Renewed(60.0), at=10)
    assert end.lease.holds(20)


# What the client is told of the input.


def test_what_a_process_has_received_is_told_once_and_each_time_by_a_quarter_of_the_window() -> None:
    end = worker()
    end.arrived([prompt(1)])
    take(end, window=4 * 22)
    assert tell(end).fed == 1
    end.arrived([Entry(2, "1.c", "d", b"{}\n")])
    take(end, window=4 * 22)
    assert end.append_call() is None  # three bytes are no quarter of it
    end.arrived([prompt(3)])
    take(end, window=4 * 22)  # and tells of the three bytes
    assert tell(end).fed == 3
    assert end.append_call() is None


def test_a_take_that_tells_what_was_received_is_enough() -> None:
    end = worker()
    end.arrived([prompt(1)])
    take(end, window=1000)
    end.arrived([prompt(2)])
    call = end.take_call()
    assert isinstance(call, Take)
    assert call.fed == 1
    answer(end, call, Taken(1000))
    end.say(b"{}\n")
    assert tell(end).fed is None


def test_an_older_word_of_what_was_received_does_not_count_for_a_newer_one() -> None:
    end = worker()
    for number in (1, 2):
        end.arrived([prompt(number)])
        take(end, window=1000)
    end.say(b"{}\n")
    call = end.append_call()
    assert call is not None
    assert call.fed == 2
    end.arrived([prompt(3)])
    later = end.take_call()
    answer(end, later, Taken(1000))
    older = Append(call.side, call.token, call.first, call.entries, call.turns, call.stored, 1)
    answer(end, older, Appended(1, 0))
    end.say(b"{}\n")
    assert tell(end).fed is None


def test_a_worker_that_goes_back_to_what_was_told_tells_nothing() -> None:
    end = worker()
    end.arrived([prompt(1)])
    take(end, window=4 * 22)
    tell(end)
    end.arrived([prompt(2)])
    take(end, window=4 * 22)
    answer(end, end.sync_call(), Synced("2.x", 1, 0, 0))
    assert (end.fed_number, end.append_call()) == (1, None)


def test_what_was_received_is_told_after_a_lost_connection_too() -> None:
    end = worker()
    end.arrived([prompt(1)])
    take(end, window=1000)
    answer(end, end.sync_call(), Synced("1.c", 0, 0, 0))
    end.say(b"{}\n")
    assert tell(end).fed == 1


# Output and turns.


def turn(end: WorkerEnd, number: int = 1) -> None:
    """Let a turn run."""
    end.arrived([prompt(number)])
    take(end)


def test_a_cut_append_is_made_again_and_no_other_call_that_was_cut_lets_another_one_be_made() -> None:
    for end in (worker(), ClientEnd("1.c")):
        end.writer.put(b"{}\n")
        call = end.append_call()
        assert call is not None
        end.unanswered(Renew(end.side, end.token, 1.0))
        assert end.append_call() is None
        end.unanswered(call)
        assert end.append_call() == call


def test_a_turn_is_over_and_stored_with_its_result() -> None:
    end = worker()
    turn(end)
    end.say(RESULT)
    call = tell(end)
    assert (call.turns, call.stored) == (1, 1)
    assert end.append_call() is None
    end.say(b"{}\n")
    call = tell(end)
    assert (call.turns, call.stored) == (None, None)
    assert end.append_call() is None


def test_a_turn_that_waits_for_its_store_is_told_when_that_has_it_though_the_next_one_waits_already() -> None:
    end = worker()
    turn(end)
    end.hold_turns(unstored=True)
    end.say(RESULT)
    call = tell(end)
    assert (call.turns, call.stored) == (1, 0)
    assert end.append_call() is None
    end.hold_turns(unstored=False)
    end.hold_turns(unstored=True)
    call = tell(end)
    assert (call.entries, call.turns, call.stored) == ((), 1, 1)
    assert end.append_call() is None


def test_a_turn_whose_transcript_just_waits_for_its_store_is_not_stored() -> None:
    end = worker()
    turn(end)
    end.say(RESULT)
    end.hold_turns(unstored=True)
    call = tell(end)
    assert (call.turns, call.stored) == (1, 0)


def test_news_of_a_turn_wait_for_the_append_before_them() -> None:
    end = worker()
    end.say(b"{}\n")
    call = end.append_call()
    turn(end)
    end.say(RESULT)
    assert end.append_call() is None
    answer(end, call, Appended(1, 0))
    call = tell(end)
    assert (call.first, call.turns) == (2, 1)


def test_a_turn_is_over_with_the_last_of_several_appends() -> None:
    end = worker()
    turn(end)
    for _ in range(3):
        end.say(b"x" * 250_000 + b"\n")
    end.say(RESULT)
    seen = [tell(end).turns for _ in range(2)]
    assert seen == [None, 1]


def test_a_result_that_the_broker_did_not_take_is_told_again() -> None:
    end = worker(out_last=1)
    turn(end)
    end.say(RESULT)
    call = end.append_call()
    assert call is not None
    answer(end, call, Gap(1, 0))
    again = end.append_call()
    assert again is not None
    assert (again.first, again.turns) == (2, 1)


def test_a_session_that_has_ended_has_no_turn_any_more() -> None:
    end = worker()
    end.arrived([prompt(1), prompt(2)])
    take(end)
    end.say(RESULT)
    assert (end.busy, end.turn_may_follow) != (False, False)
    end.say_end(SessionEnd(code="stopped"))
    assert (end.busy, end.turn_may_follow) == (False, False)
    call = tell(end)
    assert (call.entries[-1][0], call.turns) == (Kind.END, 2)
    assert worker().turn_may_follow is False
    end = worker()
    turn(end)
    assert end.busy
    end.say_end(SessionEnd())
    assert not end.busy


def test_a_client_that_was_told_more_than_it_has_read_tells_what_it_reads_next() -> None:
    end = ClientEnd("2.c", cursor=3, told=5)
    end.arrived([Entry(4, "1.w", "d", b"{}\n")])
    end.consumed(4)
    assert end.take_call() == Take(end.side, "2.c", 4)
