"""The machines of a fleet, without a broker: numbers, windows, fences and leases."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec
import pytest

from claude_transport.errors import ConnectionLost, ProtocolError, ReplayGap
from claude_transport.fleet.answers import decode_node
from claude_transport.fleet.ends import LEASE_SECONDS, Claimed, ClientEnd, WorkerEnd
from claude_transport.fleet.messages import (
    JOIN_BYTES,
    MAX_ENTRY_BYTES,
    Append,
    Appended,
    Entry,
    Fenced,
    FleetReader,
    FleetWriter,
    Gap,
    Gone,
    Kind,
    Lease,
    Owner,
    Synced,
    Take,
    Taken,
)
from claude_transport.fleet.placement import Node, Placed, Placing, Wanted, rank_nodes, wait_for_better


def said(writer: FleetWriter) -> list[bytes]:
    return [data for _, data in writer.next_entries()[1]]


def test_lines_that_wait_are_joined_into_one_entry() -> None:
    writer = FleetWriter()
    for number in range(20):
        writer.put(b'{"n":%d}\n' % number)
    first, entries = writer.next_entries()
    assert first == 1
    assert entries == [("d", b"".join(b'{"n":%d}\n' % number for number in range(20)))]


def test_what_is_in_flight_is_not_changed_by_what_comes_after() -> None:
    writer = FleetWriter()
    writer.put(b"one\n")
    assert said(writer) == [b"one\n"]
    writer.put(b"two\n")
    assert said(writer) == []
    writer.appended(1, 0, now=0)
    assert writer.next_entries() == (2, [("d", b"two\n")])


def test_a_cut_append_is_said_again_under_its_numbers() -> None:
    writer = FleetWriter()
    writer.put(b"one\n")
    before = writer.next_entries()
    writer.unanswered()
    assert writer.next_entries() == before


def test_a_long_line_is_cut_and_put_together_again() -> None:
    writer, reader = FleetWriter(), FleetReader()
    line = b"x" * (2 * MAX_ENTRY_BYTES + 5) + b"\n"
    writer.put(b"short\n" * JOIN_BYTES)
    writer.put(line)
    number, got = 0, b""
    while writer.has_unsaid:
        number, entries = writer.next_entries()
        arrived = reader.take(Entry(number + at, "1.a", kind, data) for at, (kind, data) in enumerate(entries))
        got += b"".join(each.data for each in arrived)
        writer.appended(number + len(entries) - 1, 0, now=0)
    assert got == b"short\n" * JOIN_BYTES + line


def test_the_window_bounds_how_far_the_writer_is_ahead_and_a_take_makes_room() -> None:
    writer = FleetWriter(window=10, keep_seconds=0)
    writer.put(b"0123456789\n")
    assert not writer.has_room
    writer.next_entries()
    writer.appended(1, 0, now=0)
    assert writer.waits_for_reader
    writer.note_taken(1, now=0)
    assert writer.has_room


def test_what_was_taken_and_not_used_takes_room_and_is_not_kept() -> None:
    writer = FleetWriter(window=10, keep_seconds=0)
    writer.put(b"0123456")
    writer.put(b"789\n")
    writer.next_entries()
    writer.appended(1, 1, now=0, used=0)
    assert (writer.has_room, writer.taken, writer.kept_bytes) == (False, 1, 0)
    writer.note_taken(1, now=0, used=1)
    assert writer.has_room


def test_an_entry_is_kept_until_the_disk_of_the_broker_has_it_even_when_it_was_taken() -> None:
    writer = FleetWriter(keep_seconds=2)
    writer.put(b"one\n")
    writer.next_entries()
    writer.appended(1, 1, now=10)
    writer.lost(0)  # a power cut a moment later
    assert writer.next_entries() == (1, [("d", b"one\n")])
    writer.appended(1, 1, now=10)
    writer.note_taken(1, now=12)
    with pytest.raises(ReplayGap, match="from 1 on"):
        writer.lost(0)


def test_the_bytes_of_joined_lines_take_room_together() -> None:
    writer = FleetWriter(window=4, keep_seconds=0)
    writer.put(b"0123")
    writer.put(b"4567")
    writer.next_entries()
    writer.appended(1, 1, now=0)
    assert writer.has_room


def test_a_writer_waits_for_its_reader_when_all_is_said_and_there_is_no_room() -> None:
    writer = FleetWriter(window=4, keep_seconds=0)
    assert not writer.waits_for_reader
    writer.put(b"0123")
    assert not writer.waits_for_reader
    writer.next_entries()
    writer.appended(1, 0, now=0)
    assert writer.waits_for_reader


def test_nothing_is_joined_to_an_entry_that_is_no_data() -> None:
    writer = FleetWriter()
    writer.put_control(Kind.OWNER, b"{}")
    writer.put(b"[]\n")
    assert writer.next_entries()[1] == [("o", b"{}"), ("d", b"[]\n")]


def test_an_append_has_at_most_sixty_four_entries() -> None:
    writer = FleetWriter()
    for _ in range(70):
        writer.put_control(Kind.OWNER, b"{}")
    assert [len(writer.next_entries()[1]), writer.appended(64, 0, now=0), len(writer.next_entries()[1])] == [64, None, 6]


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (b"a" * 200_000 + b"\n" + b"b" * 200_000 + b"\n", [("d", 200_001), ("d", 200_001)]),
        (b"a" * 600_000 + b"\n", [("p", MAX_ENTRY_BYTES), ("p", MAX_ENTRY_BYTES), ("d", 600_001 - 2 * MAX_ENTRY_BYTES)]),
        (b"a" * (MAX_ENTRY_BYTES - 1) + b"\n", [("d", MAX_ENTRY_BYTES)]),
    ],
)
def test_what_is_long_is_cut_behind_a_line_or_else_in_its_middle(data: bytes, entries: list[tuple[str, int]]) -> None:
    writer, said = FleetWriter(), list[tuple[str, bytes]]()
    writer.put(data)
    while writer.has_unsaid:
        first, some = writer.next_entries()
        said += some
        writer.appended(first + len(some) - 1, 0, now=0)
    assert [(kind, len(each)) for kind, each in said] == entries
    assert b"".join(each for _, each in said) == data


def test_an_entry_that_was_lost_is_kept_until_the_broker_has_it_again() -> None:
    writer = FleetWriter(keep_seconds=2)
    writer.put(b"one\n")
    writer.next_entries()
    writer.appended(1, 0, now=0)
    writer.note_taken(0, now=10)  # it is on the disk, and not taken
    writer.lost(0)
    writer.note_taken(1, now=20)
    assert writer.next_entries() == (1, [("d", b"one\n")])


def test_what_was_not_said_takes_room_whatever_the_broker_says() -> None:
    writer = FleetWriter(window=4)
    writer.put(b"0123")
    writer.note_taken(9, now=0, used=9)
    assert not writer.has_room


def test_a_reader_remembers_the_newest_writers() -> None:
    reader = FleetReader()
    reader.take(Entry(number, f"{number}.a", "d", b"{}\n") for number in range(1, 67))
    assert [reader.writer_of(number) for number in (2, 3, 66)] == ["", "3.a", "66.a"]


@pytest.mark.parametrize("token", ["none", "0.a", ""])
def test_an_entry_of_no_writer_is_refused(token: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        FleetReader(token="1.w").take([Entry(1, token, "d", b"{}\n")])
    assert caught.value.code == "fleet.stale"
    if token:
        with pytest.raises(ProtocolError):
            FleetReader().take([Entry(1, token, "d", b"{}\n")])


def test_a_line_without_its_end_comes_before_the_end_of_the_stream() -> None:
    arrived = FleetReader().take([Entry(1, "1.a", "p", b"ha"), Entry(2, "1.a", "p", b"lf"), Entry(3, "1.a", Kind.END, b"{}")])
    assert [(each.number, each.kind, each.data) for each in arrived] == [(3, "d", b"half"), (3, Kind.END, b"{}")]


def test_lines_that_were_cut_do_not_add_up() -> None:
    reader = FleetReader(max_held_bytes=4)
    entries = [Entry(number, "1.a", "d" if number % 2 == 0 else "p", b"xxx") for number in range(1, 7)]
    assert [each.data for each in reader.take(entries)] == [b"xxxxxx"] * 3
    assert reader.held_bytes == 0


def test_a_long_line_that_has_ended_is_not_ended_once_more_by_a_newer_writer() -> None:
    reader = FleetReader(max_held_bytes=4, passes_on=True)
    arrived = reader.take([Entry(1, "1.a", "p", b"01234"), Entry(2, "1.a", "d", b"5\n"), Entry(3, "2.b", "d", b"{}\n")])
    assert b"".join(each.data for each in arrived) == b"012345\n{}\n"


def test_a_reader_goes_back_for_a_newer_writer_only_and_only_when_it_has_read_anything() -> None:
    fresh = FleetReader(cursor=5)
    fresh.synced(Synced("2.x", 0, 0, 0))
    assert fresh.cursor == 5
    reader = FleetReader()
    reader.take([Entry(1, "1.w", "d", b"1\n"), Entry(2, "2.v", "d", b"2\n")])
    reader.synced(Synced("1.w", 0, 0, 0))
    assert (reader.cursor, reader.token) == (2, "2.v")
    reader.synced(Synced("3.x", 1, 0, 0))
    assert (reader.cursor, reader.token) == (1, "1.w")
    reader.synced(Synced("4.y", 0, 0, 0))
    assert (reader.cursor, reader.token) == (0, "")


def test_a_reader_takes_each_entry_once() -> None:
    reader = FleetReader()
    entries = [Entry(1, "1.a", "d", b"one\n"), Entry(2, "1.a", "d", b"two\n")]
    assert [each.data for each in reader.take(entries)] == [b"one\n", b"two\n"]
    assert reader.take(entries) == []


def test_a_reader_reports_entries_that_are_gone() -> None:
    with pytest.raises(ReplayGap, match="from 1 to 4"):
        FleetReader().take([Entry(5, "1.a", "d", b"five\n")])


def test_half_a_line_of_a_writer_that_is_gone_is_dropped() -> None:
    reader = FleetReader()
    arrived = reader.take([Entry(1, "1.a", "p", b'{"half'), Entry(2, "2.b", "d", b"{}\n")])
    assert [each.data for each in arrived] == [b"{}\n"]


def test_half_of_an_endless_line_is_ended_before_the_next_writer() -> None:
    reader = FleetReader(max_held_bytes=4, passes_on=True)
    arrived = reader.take([Entry(1, "1.a", "p", b'{"half'), Entry(2, "2.b", "d", b"{}\n")])
    assert b"".join(each.data for each in arrived) == b'{"half\n{}\n'


@pytest.mark.parametrize("entry", [Entry(2, "1.b", "d", b"stale\n"), Entry(2, "none", "d", b"stale\n")])
def test_an_entry_of_an_older_writer_is_refused(entry: Entry) -> None:
    reader = FleetReader()
    reader.take([Entry(1, "2.a", "d", b"new\n")])
    with pytest.raises(ProtocolError) as caught:
        reader.take([entry])
    assert caught.value.code == "fleet.stale"


def test_an_entry_that_no_writer_makes_is_refused() -> None:
    with pytest.raises(ProtocolError) as caught:
        FleetReader().take([Entry(1, "1.a", "d", b"x" * (MAX_ENTRY_BYTES + 1))])
    assert caught.value.code == "fleet.malformed"


def test_a_line_without_an_end_is_refused_where_it_would_be_fed_to_a_process() -> None:
    reader = FleetReader(max_held_bytes=3)
    with pytest.raises(ProtocolError) as caught:
        reader.take([Entry(1, "1.a", "p", b"xxxx")])
    assert caught.value.code == "fleet.line_too_long"


def test_a_fenced_end_is_over_with_a_typed_error() -> None:
    end = ClientEnd("1.a")
    end.writer.put(b"{}\n")
    call = end.append_call()
    assert isinstance(call, Append)
    refusals = (
        (Fenced("2.b"), "fleet.fenced", "another end has taken its place"),
        (Fenced("1.b"), "fleet.fenced", "the broker has forgotten that it was admitted"),
        (Gone(), "fleet.gone", "the broker does not know the session"),
    )
    for reply, code, why in refusals:
        with pytest.raises(ConnectionLost, match=why) as caught:
            end.answered(call, reply, asked_at=0, now=0)
        assert caught.value.code == code


@pytest.mark.parametrize("last", [1, 2, 9])
def test_a_late_gap_makes_the_writer_leave_out_nothing_that_it_has_not_said(last: int) -> None:
    writer, lines = FleetWriter(), [b'{"n":%d}\n' % number for number in range(3)]
    for number, line in enumerate(lines):
        writer.put(line)
        if number < 2:
            assert writer.next_entries() == (number + 1, [("d", line)])
            writer.appended(number + 1, 0, now=1.0)
    writer.lost(last)
    first = min(last, 2) + 1
    assert writer.next_entries() == (first, [("d", line) for line in lines[first - 1 :]])


def test_a_gap_makes_the_writer_say_its_window_again() -> None:
    end = ClientEnd("1.a")
    for number in range(3):
        end.writer.put(b"%d\n" % number)
        call = end.append_call()
        assert call is not None
        end.answered(call, Appended(number + 1, 0), asked_at=0, now=0)
    end.writer.put(b"3\n")
    call = end.append_call()
    assert call is not None
    end.answered(call, Gap(1, 0), asked_at=0, now=0)
    assert end.append_call() == Append(end.side, "1.a", 2, [("d", b"1\n"), ("d", b"2\n"), ("d", b"3\n")])


def test_a_reader_goes_back_to_where_a_newer_writer_began_when_the_broker_lost_what_was_read() -> None:
    end = ClientEnd("1.a")
    end.arrived([Entry(number, "1.w", "d", b"%d\n" % number) for number in (1, 2, 3)])
    end.consumed(3)
    end.answered(end.sync_call(), Synced("2.x", 1, 0, 0), asked_at=0, now=0)
    assert end.reader.cursor == 1
    assert [each.data for each in end.arrived([Entry(2, "2.x", "d", b"new\n")])] == [b"new\n"]


def test_a_compare_without_a_newer_writer_changes_nothing_for_the_reader() -> None:
    end = ClientEnd("1.a")
    end.arrived([Entry(1, "1.w", "d", b"1\n")])
    end.answered(end.sync_call(), Synced("1.w", 0, 0, 0), asked_at=0, now=0)
    assert end.reader.cursor == 1


# The worker.


def claimed(**fields: int) -> Claimed:
    return Claimed(token="1.w", **fields)  # type: ignore[arg-type]


def prompt(number: int) -> Entry:
    return Entry(number, "1.c", "d", b'{"type":"user","n":%d}\n' % number)


def test_input_is_written_down_as_taken_before_the_process_gets_it() -> None:
    end = WorkerEnd(claimed(), asked_at=0)
    end.arrived([prompt(1), prompt(2)])
    call = end.take_call()
    assert call == Take(end.side, "1.w", 2, 2, 0)
    assert end.to_feed(0) == []
    assert call is not None
    end.answered(call, Taken(), asked_at=0, now=0)
    assert [each.number for each in end.to_feed(0)] == [1, 2]
    assert end.take_call() is None
    end.fed()
    assert end.fed_number == 2
    assert not end.has_input


def fed_worker(*, window: int) -> WorkerEnd:
    """A worker whose process has received the entry 1, which is a prompt of 22 bytes."""
    end = WorkerEnd(claimed(), asked_at=0)
    end.arrived([prompt(1)])
    call = end.take_call()
    assert call is not None
    end.answered(call, Taken(window), asked_at=0, now=0)
    assert end.append_call() is None
    end.fed()
    return end


def test_what_a_process_has_received_is_told_with_the_calls_that_are_made_anyway() -> None:
    end = fed_worker(window=4 * 22 + 1)
    assert end.append_call() is None
    end.arrived([prompt(2)])
    take = end.take_call()
    assert isinstance(take, Take)
    assert (take.upto, take.fed) == (2, 1)
    end.say(b"{}\n")
    call = end.append_call()
    assert call is not None
    assert call.fed == 1
    end.answered(call, Appended(1, 0), asked_at=0, now=0)
    end.say(b"{}\n")
    call = end.append_call()
    assert call is not None
    assert call.fed is None
    assert end.sync_call().fed == 1


def test_a_quarter_of_the_window_that_a_process_has_received_is_told_at_once() -> None:
    end = fed_worker(window=4 * 22)
    call = end.append_call()
    assert call is not None
    assert (call.entries, call.fed) == ((), 1)
    end.answered(call, Appended(0, 0), asked_at=0, now=0)
    assert end.append_call() is None


def test_a_client_without_a_window_is_told_nothing_on_its_own() -> None:
    assert fed_worker(window=0).append_call() is None


def test_a_cut_take_is_made_again_before_anything_is_fed() -> None:
    end = WorkerEnd(claimed(), asked_at=0)
    end.arrived([prompt(1)])
    call = end.take_call()
    assert call is not None
    end.unanswered(call)
    assert end.to_feed(0) == []
    assert end.take_call() == call


@pytest.mark.parametrize(("lease", "until"), [(15, 12), (60, 57), (4, 3)])
def test_nothing_is_fed_from_a_margin_before_the_end_of_the_lease_on(lease: float, until: float) -> None:
    end = WorkerEnd(claimed(), asked_at=0, lease=lease)
    end.arrived([prompt(1)])
    call = end.take_call()
    assert call is not None
    end.answered(call, Taken(), asked_at=0, now=0)
    assert end.to_feed(until - 0.1)
    assert end.to_feed(until) == []


@pytest.mark.parametrize("lease", [1.0, 1.5, 4.0, 6.0, LEASE_SECONDS])
def test_a_write_that_begins_at_the_last_moment_of_a_lease_is_over_before_another_worker_can_have_the_session(lease: float) -> None:
    end = WorkerEnd(claimed(), asked_at=0, lease=lease)
    slowest = 1 - 0.08  # what the fleet takes for granted
    begun = max(tick / 1000 for tick in range(20_000) if end.lease.holds(tick / 1000 * slowest))
    over = end.lease.write_until / slowest
    assert begun < over < lease
    assert end.lease.renew_at < end.lease.write_until


def test_a_turn_is_over_for_the_broker_with_the_append_of_its_result() -> None:
    end = WorkerEnd(claimed(), asked_at=0)
    end.arrived([prompt(1)])
    call = end.take_call()
    assert call is not None
    end.answered(call, Taken(), asked_at=0, now=0)
    end.fed()
    assert end.busy
    end.say(b'{"type":"assistant"}\n')
    first = end.append_call()
    assert first is not None
    assert first.turns is None
    end.say(b'{"type":"result"}\n')
    end.answered(first, Appended(1, 0), asked_at=0, now=0)
    second = end.append_call()
    assert second is not None
    assert second.turns == 1
    assert not end.busy


def feed(end: WorkerEnd, number: int, line: bytes) -> None:
    end.arrived([Entry(number, "1.a", Kind.DATA, line + b"\n")])
    call = end.take_call()
    assert call is not None
    end.answered(call, Taken(), asked_at=0, now=0)
    end.fed()


RESULT = b'{"type":"result"}\n'


def state(word: str) -> bytes:
    return b'{"type":"system","subtype":"session_state_changed","state":"%s"}\n' % word.encode()


def life(word: str, uuid: str) -> bytes:
    return b'{"type":"command_lifecycle","command_uuid":"%s","state":"%s"}\n' % (uuid.encode(), word.encode())


def test_a_prompt_that_comes_between_a_result_and_idle_is_a_turn_that_runs() -> None:
    end = WorkerEnd(claimed(), asked_at=0)
    feed(end, 1, b'{"type":"user"}')
    end.say(state("running") + RESULT)
    feed(end, 2, b'{"type":"user"}')  # a client sends it as soon as it has the result
    end.say(state("idle"))
    call = end.append_call()
    assert call is not None
    assert (end.busy, call.turns) == (True, 1)
    end.say(state("running") + RESULT + state("idle"))
    assert not end.busy


def test_a_prompt_with_a_uuid_runs_until_the_process_is_idle_after_it_has_named_it() -> None:
    end = WorkerEnd(claimed(), asked_at=0)
    feed(end, 1, b'{"type":"user","uuid":"one"}')
    end.say(life("queued", "one") + life("started", "one") + state("running"))
    feed(end, 2, b'{"type":"user","uuid":"two"}')  # it is in the pipe when the process says the rest
    end.say(RESULT + state("idle") + life("completed", "one"))
    assert end.busy
    end.say(life("queued", "two") + state("running") + RESULT)
    assert end.busy
    end.say(state("idle"))
    assert not end.busy


def test_a_result_is_one_wherever_its_type_stands_and_none_inside_of_another_message() -> None:
    end = WorkerEnd(claimed(), asked_at=0)
    feed(end, 1, b'{"type":"user"}')
    end.say(b'{"type":"assistant","message":{"content":[{"type":"result"}]}}\n')
    assert end.busy
    end.say(b'{"duration_ms":7,"type":"result"}\n')
    assert not end.busy


def test_prompts_that_became_one_turn_are_over_together() -> None:
    end = WorkerEnd(claimed(), asked_at=0)
    for number, uuid in enumerate(("one", "two", "three"), 1):
        feed(end, number, b'{"type":"user","uuid":"%s"}' % uuid.encode())
        end.say(life("queued", uuid))
    end.say(state("running") + RESULT + state("idle"))
    call = end.append_call()
    assert call is not None
    assert (end.busy, call.turns) == (False, 3)


def test_a_turn_whose_transcript_is_not_stored_is_a_gap_for_the_next_worker() -> None:
    end = WorkerEnd(claimed(turns_begun=1), asked_at=0)
    end.hold_turns(unstored=True)
    end.say(b'{"type":"result"}\n')
    call = end.append_call()
    assert call is not None
    assert (call.turns, call.stored) == (1, 0)
    assert Claimed(token="2.x", turns_begun=1, turns_over=1).unstored == 1
    end.answered(call, Appended(1, 0), asked_at=0, now=0)
    assert end.append_call() is None
    end.hold_turns(unstored=False)
    call = end.append_call()
    assert call is not None
    assert (call.entries, call.turns, call.stored) == ((), 1, 1)


def test_a_worker_that_takes_a_session_counts_the_turns_that_are_uncertain() -> None:
    taken = Claimed(token="2.x", turns_begun=3, turns_over=2, out_last=7)
    assert (taken.is_takeover, taken.uncertain) == (True, 1)
    end = WorkerEnd(taken, asked_at=0)
    end.begin(Owner(node="two"))
    call = end.append_call()
    assert call is not None
    assert (call.first, call.entries[0][0], call.turns) == (8, Kind.OWNER, 3)


@pytest.mark.parametrize("fields", [{}, {"we": "1.a", "wi": "x", "ce": "1.b", "wo": "0", "co": "0"}])
def test_a_hash_that_no_script_wrote_is_a_typed_error(fields: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        Claimed.from_fields(fields)


def test_a_lease_counts_from_before_it_was_asked_for() -> None:
    lease = Lease(seconds=15, margin=3)
    assert not lease.holds(0)
    lease.granted(asked_at=100)
    lease.granted(asked_at=90)  # a late answer
    assert lease.holds(111.9)
    assert not lease.holds(112)
    assert lease.renew_at == 105


# Placement.


def test_the_least_loaded_worker_with_the_labels_comes_first() -> None:
    nodes = [
        Node(id="full", capacity=2, load=2, labels=("gpu",)),
        Node(id="busy", capacity=4, load=3, labels=("gpu",)),
        Node(id="idle", capacity=4, load=1, labels=("gpu",)),
        Node(id="plain", capacity=4, load=0),
        Node(id="leaving", capacity=4, load=0, labels=("gpu",), draining=True),
        Node(id="gone", capacity=4, load=0, labels=("gpu",), seen=-100),
        Node(id="old", capacity=4, load=0, labels=("gpu",), versions=(0,)),
    ]
    ranked = rank_nodes(nodes, Wanted(labels=("gpu",)), now=1, session="s")
    assert [node.id for node in ranked] == ["idle", "busy"]
    assert [wait_for_better(ranked, name) for name in ("idle", "busy", "plain")] == [0, 2, None]


def test_a_workspace_stays_with_its_worker_while_that_one_lives_and_has_room() -> None:
    home = Node(id="home", capacity=4, load=3)
    other = Node(id="other", capacity=4, load=0)
    assert [node.id for node in rank_nodes([other, home], Wanted(workspace="w"), now=0, session="s", home="home")] == ["home", "other"]
    assert [
        node.id for node in rank_nodes([other, Node(id="home", capacity=3, load=3)], Wanted(workspace="w"), now=0, session="s", home="home")
    ] == ["other"]


def placed(nodes: list[Node], me: str, waiting: list[str], *, asked: Collection[str] = (), placing: Placing | None = None) -> Placed:
    """What the worker `me` does with the sessions that wait, one second after the heartbeats."""
    placing = placing or Placing()
    if not asked:
        placing.ask_about_all()
    for name in asked:
        placing.ask(name)
    for name in placing.unknown(waiting):
        placing.learn(name, Wanted())
    own = next(node for node in nodes if node.id == me)
    return placing.place(own, [node for node in nodes if node is not own], now=1.0, homes={})


class Looking:
    """Workers that look at the same waiting sessions in turn, and see what the others have claimed."""

    def __init__(self, loads: Mapping[str, int], waiting: Sequence[str], *, capacity: int = 4) -> None:
        self.nodes = {name: Node(id=name, capacity=capacity, load=load) for name, load in loads.items()}
        self.waiting = list(waiting)
        self.claims: dict[str, list[str]] = {name: [] for name in loads}
        self.learned = 0
        self.woken: list[str] = []
        self._placings = {name: Placing() for name in loads}

    def look(self, name: str) -> Placed:
        """Let a worker look at all that wait, again and again as long as it wants to."""
        placing = self._placings[name]
        while True:
            placing.ask_about_all()
            for session in placing.unknown(self.waiting):
                placing.learn(session, Wanted())
                self.learned += 1
            own, others = self.nodes[name], [node for node in self.nodes.values() if node.id != name]
            placing.pass_over([own, *others])
            found = placing.place(own, others, now=1.0, homes={})
            self.woken += [session for about in found.wakes.values() for session in about]
            for session, _ in found.claims:
                self.claims[name].append(session)
                self.waiting.remove(session)
            self.nodes[name] = msgspec.structs.replace(own, load=own.load + len(found.claims))
            if not found.looks_further:
                return found


def test_workers_take_the_sessions_that_wait_each_once_and_the_least_loaded_ones_first() -> None:
    waiting = [f"s{number}" for number in range(9)]
    looking = Looking({"a": 0, "b": 0, "c": 2, "full": 4}, waiting)
    for name in ("a", "b", "c", "full") * 3:
        looking.look(name)
    claims = looking.claims
    assert sorted(name for names in claims.values() for name in names) == sorted(waiting)
    assert (len(claims["a"]) + len(claims["b"]), len(claims["c"]), len(claims["full"])) in {(8, 1, 0), (7, 2, 0)}


@pytest.mark.parametrize(("workers", "read"), [(32, 4), (31, 64)])
def test_a_worker_of_a_large_fleet_reads_few_of_the_sessions_that_are_for_others(workers: int, read: int) -> None:
    """A burst: each of many workers would read all that wait, with each of its heartbeats."""
    idle = {f"w{number}": 0 for number in range(workers - 1)}
    looking = Looking({"busy": 30, **idle}, [f"s{number}" for number in range(64)], capacity=100)
    found = looking.look("busy")
    assert (looking.learned, found.claims) == (read, [])
    assert len(looking.woken) == (2 if read == 4 else 64)
    looking.look("busy")
    assert looking.learned == min(2 * read, 64)


def test_a_worker_that_can_take_none_of_the_sessions_reads_few_of_them() -> None:
    """In a large fleet, few workers may have a label, and all look at the sessions that want it."""
    placing, waiting, reads = Placing(), [f"s{number}" for number in range(64)], []
    for _ in range(3):
        placing.ask_about_all()
        reads.append(new := placing.unknown(waiting))
        for name in new:
            placing.learn(name, Wanted(labels=("gpu",)))
        own, other = Node(id="plain", capacity=9), Node(id="gpu", capacity=100, labels=("gpu",))
        placing.pass_over([own, other])
        assert not placing.place(own, [other], now=1.0, homes={}).looks_further
    assert [len(new) for new in reads] == [4, 4, 4]


def test_the_only_worker_takes_all_that_it_has_room_for_at_once() -> None:
    looking = Looking({"a": 0}, [f"s{number}" for number in range(64)], capacity=50)
    looking.look("a")
    assert (len(looking.claims["a"]), looking.waiting) == (50, [f"s{number}" for number in range(50, 64)])


def test_a_worker_reads_more_and_more_while_it_finds_only_what_no_worker_can_take() -> None:
    placing, waiting, reads = Placing(), [f"s{number:03}" for number in range(300)], []
    nodes = [Node(id=f"w{number}") for number in range(40)]
    for strange in (True, True, True, True, True, True, False, False):
        placing.ask_about_all()
        new = placing.unknown(waiting)
        reads.append(len(new))
        for name in new:
            placing.learn(name, None if strange else Wanted())
        placing.pass_over(nodes)
        placing.place(nodes[0], nodes[1:], now=1.0, homes={})
    assert reads == [4, 8, 16, 32, 64, 64, 64, 4]
    assert placing.out_of_reach == 188


def test_a_worker_that_is_woken_reads_what_it_was_woken_about_and_nothing_else() -> None:
    placing, waiting = Placing(), [f"s{number}" for number in range(30)]
    for name in ("s7", "s29", "gone"):
        placing.ask(name)
    assert placing.unknown(waiting) == ["s7", "s29"]


@pytest.mark.parametrize("homes", [{}, {"w": "w3"}])
def test_sessions_that_begin_together_are_for_several_of_the_least_loaded_workers(homes: dict[str, str]) -> None:
    nodes = [Node(id=f"w{number}", capacity=9) for number in range(8)] + [Node(id="busy", capacity=9, load=1)]
    wanted = Wanted(workspace="w")
    best = Counter(rank_nodes(nodes, wanted, now=1, session=f"s{number}", home=homes.get("w"))[0].id for number in range(400))
    if homes:
        assert best == {"w3": 400}
    else:
        assert set(best) == {f"w{number}" for number in range(8)}
        assert max(best.values()) < 80  # of 50
    assert rank_nodes(nodes, wanted, now=1, session="s1") == rank_nodes(reversed(nodes), wanted, now=1, session="s1")


def test_more_sessions_than_room_wait() -> None:
    nodes = [Node(id="a", capacity=2), Node(id="b", capacity=1)]
    waiting = [f"s{number}" for number in range(9)]
    assert [len(placed(nodes, each, waiting).claims) for each in ("a", "b")] == [2, 1]


def test_a_worker_is_woken_once_about_all_that_is_for_it() -> None:
    nodes = [Node(id="a", capacity=9, load=6), Node(id="b", capacity=9), Node(id="c", capacity=9, load=3)]
    placing, waiting = Placing(), [f"s{number}" for number in range(5)]
    first = placed(nodes, "a", waiting, asked=waiting, placing=placing)
    assert (first.claims, first.wakes) == ([], {"b": ["s0", "s1", "s2", "s3"], "c": ["s4"]})
    assert placed(nodes, "a", waiting, asked=waiting, placing=placing).wakes == {}


def test_a_worker_passes_on_only_what_it_was_asked_about() -> None:
    nodes = [Node(id="a", capacity=9, load=6), Node(id="b", capacity=9)]
    placing, waiting = Placing(), ["s0", "s1", "s2"]
    assert placed(nodes, "a", waiting, asked=["s1"], placing=placing).wakes == {"b": ["s1"]}
    assert placed(nodes, "a", waiting, asked=["s1", "s2"], placing=placing).wakes == {"b": ["s2"]}


def test_a_worker_that_is_woken_about_very_many_sessions_passes_on_all() -> None:
    nodes = [Node(id="a", capacity=9, load=6), Node(id="b", capacity=9)]
    assert placed(nodes, "a", ["s0"], asked=[f"other{number}" for number in range(1001)]).wakes == {"b": ["s0"]}


def test_a_session_that_the_better_worker_leaves_is_taken_by_the_next_one() -> None:
    nodes = [Node(id="a", capacity=2, load=1, seen=100.0), Node(id="b", capacity=2, seen=100.0)]
    placing = Placing()
    placing.learn("s", Wanted())
    taken = [len(placing.place(nodes[0], nodes[1:], now=now, homes={}).claims) for now in (100.0, 101.9, 102.0)]
    assert taken == [0, 0, 1]
    assert placing.unknown([]) == []
    assert not placing.place(nodes[0], nodes[1:], now=102.0, homes={}).claims  # it does not wait any more


def test_a_session_goes_to_the_worker_that_had_its_workspace() -> None:
    nodes = [Node(id="a", capacity=9, load=6), Node(id="b", capacity=9)]
    placing = Placing()
    placing.learn("s", Wanted(workspace="w"))
    assert placing.workspaces() == {"w"}
    assert [name for name, _ in placing.place(nodes[0], nodes[1:], now=1.0, homes={"w": "a"}).claims] == ["s"]


def claims_of_one_by_one(nodes: list[Node], me: str, wants: Mapping[str, Wanted], homes: Mapping[str, str]) -> list[str]:
    """What the worker `me` claims at once, with all workers ranked anew for each session."""
    there, claims = {node.id: node for node in nodes}, []
    for name, wanted in wants.items():
        if ranked := rank_nodes(there.values(), wanted, now=1.0, session=name, home=homes.get(wanted.workspace)):
            taker = ranked[0]
            there[taker.id] = msgspec.structs.replace(taker, load=taker.load + 1)
            claims += [name] if taker.id == me else []
    return claims


@pytest.mark.parametrize("seed", range(20))
def test_sessions_of_all_kinds_are_divided_as_if_each_was_the_only_one(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [
        Node(
            id=f"w{number}",
            capacity=rng.randint(1, 5),
            load=rng.randint(0, 3),
            labels=rng.sample(["a", "b", "c"], rng.randint(0, 3)),
            versions=rng.choice([(1,), (1, 2)]),
            seen=rng.choice([1.0, 1.0, 1.0, -60.0]),
            draining=rng.random() < 0.1,
        )
        for number in range(8)
    ]
    wants = {
        f"s{number}": Wanted(
            labels=rng.sample(["a", "b"], rng.randint(0, 2)), workspace=rng.choice(["", "x", "y"]), version=rng.choice([1, 2])
        )
        for number in range(20)
    }
    homes = {"x": f"w{rng.randrange(8)}", "y": "gone"}
    for own in nodes:
        placing = Placing()
        for name, wanted in wants.items():
            placing.learn(name, wanted)
        found = placing.place(own, [node for node in nodes if node is not own], now=1.0, homes=homes)
        assert [name for name, _ in found.claims] == claims_of_one_by_one(nodes, own.id, wants, homes)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"id":1}', b'{"id":"' + b"x" * 5000 + b'"}', b"\xff"])
def test_a_record_that_no_worker_wrote_is_left_out(data: bytes) -> None:
    assert decode_node(data) is None
