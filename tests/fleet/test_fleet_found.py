"""What the simulation has found in the machines: each a small test of the machine alone."""

from __future__ import annotations

import pytest

from claude_transport.errors import ProtocolError, ReplayGap
from claude_transport.fleet.ends import Claimed, ClientEnd, FleetEnd, WorkerEnd
from claude_transport.fleet.messages import Append, Appended, Entry, FleetWriter, Gap, StreamArrival, Sync, Synced, Take, Taken


def answer(end: FleetEnd, call: object, reply: object, *, asked_at: float = 0, now: float = 0) -> None:
    assert call is not None
    end.answered(call, reply, asked_at=asked_at, now=now)  # type: ignore[arg-type]


def worker(**claimed: int) -> WorkerEnd:
    return WorkerEnd(Claimed(token="1.w", **claimed), asked_at=0)  # type: ignore[arg-type]


def entry(number: int, kind: str = "d", data: bytes | None = None) -> Entry:
    return Entry(number, "1.c", kind, b'{"type":"user","n":%d}\n' % number if data is None else data)


def test_what_was_put_behind_a_cut_append_does_not_take_its_number() -> None:
    writer = FleetWriter()
    writer.put(b"one\n")
    assert writer.next_entries() == (1, [("d", b"one\n")])
    writer.unanswered()  # the broker has it all the same
    writer.put(b"two\n")
    writer.appended(1, 0, now=0)
    assert writer.next_entries() == (2, [("d", b"two\n")])


def test_the_end_of_the_input_is_not_taken_so_the_next_worker_finds_it_too() -> None:
    end = worker()
    end.arrived([entry(1), entry(2, "f", b"")])
    call = end.take_call()
    assert call == Take(end.side, "1.w", 1, 1, 0)
    answer(end, call, Taken())
    assert [each.number for each in end.to_feed(0)] == [1]
    end.fed()
    assert end.take_call() is None
    assert end.to_feed(0) == [StreamArrival(2, "f")]
    end.fed()
    assert (end.fed_number, end.has_input) == (2, False)


def test_after_a_lost_connection_a_worker_says_again_what_it_has_taken_and_which_turns_are_over() -> None:
    end = worker()
    end.arrived([entry(1), entry(2)])
    answer(end, end.take_call(), Taken())
    end.fed()
    end.say(b'{"type":"result"}\n')
    answer(end, end.append_call(), Appended(1, 0))
    call = end.sync_call()
    assert (call.taken, call.begun, call.over) == (2, 2, 1)


def test_what_an_older_client_said_is_not_counted_as_taken_when_a_newer_one_begins_before_it() -> None:
    end = worker()
    end.arrived([entry(1), entry(2)])
    answer(end, end.take_call(), Taken())
    end.fed()
    answer(end, end.sync_call(), Synced("2.x", 1, 0, 0))
    assert (end.sync_call().cursor, end.sync_call().taken) == (1, 1)


def test_after_a_lost_connection_a_worker_says_which_turns_it_has_only_heard_of() -> None:
    end = worker()
    end.arrived([entry(1)])
    answer(end, end.take_call(), Taken())
    end.arrived([entry(2), entry(3), entry(4, data=b"{}\n")])
    assert (end.sync_call().begun, end.sync_call().heard) == (1, 3)


def test_a_client_that_comes_back_tells_at_once_what_the_one_before_it_had_not_told() -> None:
    assert ClientEnd("2.c", cursor=5, told=3).take_call() == Take(ClientEnd.side, "2.c", 5)
    assert ClientEnd("2.c", cursor=5, told=5).take_call() is None
    assert ClientEnd("2.c", cursor=3, told=5).take_call() is None


def test_a_worker_that_takes_no_more_leaves_what_the_broker_has_lost_to_the_client() -> None:
    end = worker()
    end.arrived([entry(1)])
    answer(end, end.take_call(), Taken())
    end.fed()
    end.arrived([entry(2), entry(3)])
    assert (end.sync_call().cursor, end.sync_call().heard) == (3, 3)
    end.stop_taking()
    assert (end.sync_call().cursor, end.sync_call().taken, end.sync_call().heard) == (1, 1, 1)


@pytest.mark.parametrize("call", [Append(ClientEnd.side, "1.c", 1, []), ClientEnd("1.c").sync_call(polls=True)], ids=["append", "poll"])
def test_an_answer_that_comes_late_is_no_proof_that_the_disk_of_the_broker_has_an_entry(call: Append | Sync) -> None:
    end = ClientEnd("1.c")
    end.writer.put(b"one\n")
    first = end.append_call()
    answer(end, first, Appended(1, 0), asked_at=0, now=0)
    reply = Appended(1, 1) if isinstance(call, Append) else Synced("1.w", 0, 1, 1)
    answer(end, call, reply, asked_at=1, now=30)  # the machine stood still, and the broker lost a second meanwhile
    end.writer.put(b"two\n")
    answer(end, end.append_call(), Gap(0, 0), asked_at=30, now=30)
    said_again = end.append_call()
    assert said_again is not None
    assert (said_again.first, len(said_again.entries)) == (1, 2)


def test_after_a_lost_connection_an_entry_is_kept_as_if_it_were_new() -> None:
    end = ClientEnd("1.c")
    end.writer.put(b"one\n")
    first = end.append_call()
    answer(end, first, Appended(1, 0))
    # the broker has lost the entry, and the worker has told it that it had read it: the broker may lose that, too
    answer(end, end.sync_call(), Synced("1.w", 0, 1, 1), asked_at=10, now=10)
    answer(end, end.sync_call(), Synced("1.w", 0, 0, 0), asked_at=11, now=11)
    assert end.append_call() == first
    answer(end, first, Appended(1, 1), asked_at=11, now=11)
    answer(end, end.sync_call(polls=True), Synced("1.w", 0, 1, 1), asked_at=13, now=13)
    with pytest.raises(ReplayGap):
        answer(end, end.sync_call(), Synced("1.w", 0, 0, 0), asked_at=14, now=14)


def test_the_end_of_the_input_that_the_broker_has_lost_is_said_again_for_the_next_worker() -> None:
    end = worker()
    end.arrived([entry(1), entry(2, "f", b"")])
    assert (end.sync_call().cursor, end.sync_call().heard) == (1, 1)
    answer(end, end.take_call(), Taken())
    end.fed()
    assert end.take_call() is None
    end.fed()
    assert (end.fed_number, end.sync_call().cursor) == (2, 1)
    answer(end, end.sync_call(), Synced("2.x", 1, 0, 0))  # a newer client has said something else there
    end.arrived([Entry(2, "2.x", "d", b"{}\n")])
    assert end.sync_call().cursor == 2


def test_a_reader_of_a_lost_writer_goes_back_to_the_end_of_the_one_before_it() -> None:
    end = worker()
    end.arrived([entry(1), entry(2), Entry(3, "2.d", "d", b"{}\n")])
    answer(end, end.sync_call(), Synced("2.lost-c", 0, 0, 0))
    assert (end.reader.cursor, end.sync_call().seen) == (2, "1.c")
    assert [each.number for each in end.arrived([entry(3)])] == [3]
    assert end.reader.writer_of(3) == "1.c"


def test_a_reader_that_has_read_nothing_of_what_is_there_goes_back_to_its_beginning() -> None:
    end = worker()
    end.arrived([Entry(1, "2.d", "d", b"{}\n"), Entry(2, "2.d", "d", b"{}\n")])
    answer(end, end.sync_call(), Synced("2.lost-c", 1, 0, 0))
    assert (end.reader.cursor, end.sync_call().seen) == (1, "0.c")
    assert [each.number for each in end.arrived([entry(2)])] == [2]


@pytest.mark.parametrize("lost", ["sync", "gap"])
def test_a_result_that_the_broker_has_lost_ends_its_turn_once_it_is_said_again(lost: str) -> None:
    end = worker()
    end.arrived([entry(1)])
    answer(end, end.take_call(), Taken())
    end.fed()
    end.say(b'{"type":"result"}\n')
    answer(end, end.append_call(), Appended(1, 0))
    assert (end.sync_call().said, end.sync_call().over) == (1, 1)
    if lost == "gap":
        end.say(b"{}\n")
        answer(end, end.append_call(), Gap(0, 0))
    else:
        answer(end, end.sync_call(), Synced("1.c", 0, 0, 0))
    assert (end.sync_call().said, end.sync_call().over) == (0, 0)
    call = end.append_call()
    assert call is not None
    assert (call.first, call.turns) == (1, 1)


def test_a_client_that_goes_back_tells_anew_what_it_reads_there() -> None:
    for told, owed in ((3, None), (0, Take(ClientEnd.side, "1.c", 1))):
        end = ClientEnd("1.c")
        end.arrived([Entry(number, "1.w", "d", b"%d\n" % number) for number in (1, 2, 3)])
        end.consumed(3)
        if told:
            answer(end, end.take_call(), Taken())
        answer(end, end.sync_call(), Synced("2.x", 1, 0, 0))
        assert (end.consumed_number, end.take_call()) == (1, owed)
        end.arrived([Entry(2, "2.x", "d", b"{}\n")])
        assert end.take_call() == owed
        end.consumed(2)
        assert end.take_call() == Take(ClientEnd.side, "1.c", 2)


def test_a_client_that_has_read_less_than_the_broker_has_lost_owes_what_it_owed() -> None:
    end = ClientEnd("1.c")
    end.arrived([Entry(number, "1.w", "d", b"%d\n" % number) for number in (1, 2, 3)])
    end.consumed(1)
    answer(end, end.sync_call(), Synced("2.x", 2, 0, 0))
    assert (end.consumed_number, end.take_call()) == (1, Take(ClientEnd.side, "1.c", 1))


def test_a_process_has_received_what_it_was_fed_and_nothing_that_only_waits() -> None:
    end = worker()
    end.arrived([entry(1), entry(2, "f", b"")])
    answer(end, end.take_call(), Taken())
    end.fed()
    assert end.fed_number == 1


def test_a_process_that_is_fed_what_an_older_client_said_has_received_what_is_left_of_it() -> None:
    end = worker()
    end.arrived([entry(1), entry(2)])
    answer(end, end.take_call(), Taken())
    answer(end, end.sync_call(), Synced("2.x", 1, 0, 0))
    end.fed()
    assert (end.fed_number, end.sync_call().fed) == (1, 1)


def test_what_a_worker_goes_back_from_is_told_anew_when_it_comes_there_again() -> None:
    end = worker()
    end.arrived([entry(1), entry(2)])
    answer(end, end.take_call(), Taken())
    end.fed()
    end.say(b"{}\n")
    answer(end, end.append_call(), Appended(1, 0))  # with what the process has received
    answer(end, end.sync_call(), Synced("2.x", 1, 1, 0))
    end.arrived([Entry(2, "2.x", "d", b"{}\n")])
    call = end.take_call()
    answer(end, call, Taken())
    end.fed()
    end.say(b"{}\n")
    again = end.append_call()
    assert again is not None
    assert again.fed == 2


@pytest.mark.parametrize("last", [1, 9])
def test_an_answer_that_counts_more_than_was_said_counts_what_was_said(last: int) -> None:
    writer = FleetWriter(window=5)
    writer.put(b"one\n")
    assert writer.next_entries() == (1, [("d", b"one\n")])
    writer.put(b"two\n")
    writer.appended(last, last, now=0, used=last)
    assert (writer.said, writer.taken, writer.has_room) == ((1, 1, True) if last == 1 else (2, 2, True))
    writer.put(b"three\n")
    assert writer.next_entries()[0] == writer.said + 1


def test_the_bounds_of_an_end_are_those_of_its_streams() -> None:
    line = b"x" * 20 + b"\n"
    for end in (ClientEnd("1.c", keep_bytes=10), WorkerEnd(Claimed(token="1.w"), asked_at=0, keep_bytes=10)):
        assert end.writer.has_room
        end.writer.put(line)
        assert not end.writer.has_room
    client = ClientEnd("1.c", max_held_bytes=10)
    assert [each.data for each in client.arrived([Entry(1, "1.w", "p", b"x" * 20)])] == [b"x" * 20]
    held = WorkerEnd(Claimed(token="1.w"), asked_at=0, max_line_bytes=10)
    with pytest.raises(ProtocolError, match="a line has more than 10 bytes"):
        held.arrived([Entry(1, "1.c", "p", b"x" * 20)])


def test_an_answer_to_another_question_is_a_typed_error() -> None:
    for call in (Append(ClientEnd.side, "1.c", 1, []), Take(ClientEnd.side, "1.c", 1)):
        with pytest.raises(ProtocolError, match="the broker has answered another question") as caught:
            answer(ClientEnd("1.c"), call, Synced("1.w", 0, 0, 0))
        assert caught.value.code == "fleet.malformed"
