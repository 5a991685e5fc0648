"""An observer of a session, with a broker that has what a test gives it: where it begins, what it misses, and when it looks again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from virtual_time import virtual_time

from claude_transport import errors
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.fleet.messages import Entry, Kind
from claude_transport.fleet.observing import FleetObservation

URL = "redis://127.0.0.1:1/0"
LINES = 2**16
"""Positions of one entry."""

Row = tuple[str, bytes, int]


class Having(Broker):
    """Has these entries of a worker; those before `first` are not kept any more."""

    def __init__(self, address: BrokerAddress) -> None:
        super().__init__(address)
        self.entries: list[Entry] = []
        self.last: int | None = None
        self.heard: Callable[[bytes], object] = bool
        self.at_read: Callable[[int], object] = bool  # called with the number of each read, before it
        self.reads = self.asks = self.closes = self.waits = self.losses = 0

    def generation_of(self, session: str) -> tuple[object, int]:
        return None, self.losses

    def add(self, *said: tuple[Kind, bytes], since: int = 0) -> None:
        """Let the worker say more."""
        for kind, data in said:
            self.last = max(self.last or 0, since) + 1
            self.entries.append(Entry(self.last, "1.w", kind, data))

    def trim(self, first: int) -> None:
        """Forget the entries before `first`."""
        self.entries = [each for each in self.entries if each.number >= first]

    async def start(self, *, timeout: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.closes += 1
        await anyio.lowlevel.checkpoint()

    async def reached(self, session: str, *, patience: float) -> None:
        self.waits += 1
        await anyio.lowlevel.checkpoint()

    async def follow(self, channel: str, heard: Callable[[bytes], object]) -> None:
        await anyio.lowlevel.checkpoint()
        self.heard = heard

    async def command(self, name: str, *args: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        if name == "xrange":
            return [(b"%d-0" % each.number, {b"e": b"1.w", b"k": each.kind.encode(), b"d": each.data}) for each in self.entries[:1]]
        if args[-1] != "wo":
            return b"1"
        self.asks += 1
        return None if self.last is None else self.last

    async def read(self, key: str, cursor: int, *, count: int = 64) -> list[Entry]:
        await anyio.lowlevel.checkpoint()
        self.reads += 1
        self.at_read(self.reads)
        return [each for each in self.entries if each.number > cursor][:count]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Having:
    """The broker that an observer gets."""
    made = Having(BrokerAddress(URL))
    monkeypatch.setattr("claude_transport.fleet.observing.Broker", lambda _address: made)
    return made


def observed(since: int | None = None, *, session: str = "S", scrub: bool = True) -> FleetObservation:
    return FleetObservation(URL, session=session, since=since, scrub=scrub)


async def rows(observation: FleetObservation, count: int) -> list[Row]:
    """The next lines: to whom they go, what they are, and where."""
    found = [await anext(observation) for _ in range(count)]
    return [(each.direction, bytes(each), each.position) for each in found]


def data(text: bytes) -> tuple[Kind, bytes]:
    return Kind.DATA, text


OWNED = (Kind.OWNER, b"{}")
TAKEN = b"a worker has taken the session"


@virtual_time
async def test_the_lines_of_a_session_have_places_of_their_own_and_come_at_once(broker: Having) -> None:
    broker.add(OWNED, data(b"[1]\n[2]\n"), data(b"[3]"), (Kind.END, b'{"exit_code":3}'))
    observation, began = observed(), anyio.current_time()
    assert await rows(observation, 7) == [
        ("note", TAKEN, LINES + 1),
        ("out", b"[1]", 2 * LINES + 1),
        ("out", b"[2]", 2 * LINES + 2),
        ("out", b"[3]", 3 * LINES + 1),
        ("note", b"out EOF", 4 * LINES + 1),
        ("note", b"exit code 3", 4 * LINES + 2),
        ("note", b"closed by host", 4 * LINES + 3),
    ]
    assert observation.position == 4 * LINES + 3
    for _ in range(2):
        with pytest.raises(StopAsyncIteration):
            await anext(observation)
    assert (anyio.current_time(), broker.closes > 0) == (began, True)


@pytest.mark.parametrize(
    ("end", "notes"),
    [
        (b"{}", [b"out EOF", b"closed by host"]),
        (b'{"exit_code":0}', [b"out EOF", b"exit code 0", b"closed by host"]),
        (b'{"signal":9}', [b"out EOF", b"exit code -9", b"closed by host"]),
    ],
)
async def test_how_a_process_has_ended_is_noted_when_it_is_known(broker: Having, end: bytes, notes: list[bytes]) -> None:
    broker.add((Kind.END, end))
    assert [bytes(line) async for line in observed()] == notes


@virtual_time
async def test_more_entries_than_are_read_at_once_come_without_a_pause(broker: Having) -> None:
    broker.add(*(data(b"[%d]\n" % number) for number in range(200)))
    observation, began = observed(), anyio.current_time()
    assert [line for _, line, _ in await rows(observation, 200)] == [b"[%d]" % number for number in range(200)]
    assert anyio.current_time() == began
    await observation.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(observation)


@virtual_time
async def test_an_observer_that_is_told_nothing_looks_every_five_seconds(broker: Having) -> None:
    broker.add(OWNED)
    observation = observed()
    await rows(observation, 1)
    reads = broker.reads
    with anyio.move_on_after(59):
        await anext(observation)
    assert 11 <= broker.reads - reads <= 13
    await observation.aclose()


@virtual_time
async def test_an_observer_of_a_session_that_says_nothing_reads_once(broker: Having) -> None:
    broker.last = 0
    observation = observed()
    with anyio.move_on_after(4):
        await anext(observation)
    assert broker.reads == 1
    await observation.aclose()


@virtual_time
async def test_a_line_that_does_not_end_is_shown_in_pieces_of_megabytes(broker: Having) -> None:
    broker.add(*((Kind.PART, b"x" * 2**18) for _ in range(257)))
    observation = observed()
    with anyio.fail_after(60):
        assert len(await anext(observation)) == 257 * 2**18
    await observation.aclose()


@virtual_time
async def test_what_is_told_during_a_read_is_looked_for_at_once(broker: Having) -> None:
    broker.add(OWNED)
    observation = observed()
    await rows(observation, 1)

    def tell(_: int) -> None:
        if len(broker.entries) == 1:
            broker.heard(b"")
            broker.at_read = add

    def add(_: int) -> None:
        if len(broker.entries) == 1:
            broker.add(data(b"[1]\n"))

    broker.at_read = tell
    began = anyio.current_time()
    assert await rows(observation, 1) == [("out", b"[1]", 2 * LINES + 1)]
    assert anyio.current_time() - began < 1
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rows, observation, 1)
        await anyio.wait_all_tasks_blocked()
        broker.add(data(b"[2]\n"))
        broker.heard(b"")
    assert anyio.current_time() - began < 1
    await observation.aclose()


@virtual_time
async def test_an_observer_reads_once_more_as_soon_as_its_broker_is_back(broker: Having) -> None:
    broker.add(OWNED, data(b"[1]\n"), data(b"[2]\n"))

    def cut(number: int) -> None:
        if number in (1, 2, 4):
            raise BrokerCut("gone")

    broker.at_read = cut
    observation, began = observed(), anyio.current_time()
    assert [line for _, line, _ in await rows(observation, 3)] == [TAKEN, b"[1]", b"[2]"]
    assert (anyio.current_time(), broker.waits) == (began, 1)
    broker.add(data(b"[3]\n"))
    assert [line for _, line, _ in await rows(observation, 1)] == [b"[3]"]
    assert (anyio.current_time(), broker.waits) == (began, 2)
    await observation.aclose()


@virtual_time
@pytest.mark.parametrize("last", [None, 1])
async def test_a_broker_that_has_lost_what_was_seen_is_a_replay_gap(broker: Having, last: int | None) -> None:
    broker.add(OWNED, data(b"[1]\n"))
    observation = observed()
    await rows(observation, 2)
    asks = broker.asks
    broker.losses += 1
    broker.add(data(b"[2]\n"))
    assert await rows(observation, 1) == [("out", b"[2]", 3 * LINES + 1)]  # it was lost, and has all
    with anyio.move_on_after(30):
        await anext(observation)
    assert broker.asks == asks + 1
    broker.losses += 1
    broker.last = last
    with pytest.raises(errors.ReplayGap, match="lost a part of the session that was watched"):
        await anext(observation)
    await observation.aclose()


@virtual_time
async def test_entries_that_were_taken_before_they_were_seen_are_noted(broker: Having) -> None:
    broker.add(OWNED, data(b"[1]\n"))
    observation = observed()
    await rows(observation, 2)
    broker.add(*(data(b"[%d]\n" % number) for number in range(2, 6)))
    broker.trim(5)
    assert await rows(observation, 3) == [
        ("note", b"2 lines were skipped", 3 * LINES),
        ("out", b"[4]", 5 * LINES + 1),
        ("out", b"[5]", 6 * LINES + 1),
    ]
    await observation.aclose()


def delta(text: str) -> tuple[Kind, bytes]:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return data(msgspec.json.encode({"type": "stream_event", "event": event}) + b"\n")


def text_of(line: bytes) -> str:
    return msgspec.json.decode(line)["event"]["delta"]["text"] if line.startswith(b"{") else line.decode()


@virtual_time
async def test_a_word_that_does_not_go_on_is_shown_before_what_interrupts_it(broker: Having) -> None:
    broker.add(delta("half"), OWNED, delta("again"))
    observation = observed()
    assert [text_of(line) for _, line, _ in await rows(observation, 2)] == ["half", TAKEN.decode()]
    broker.add(*(delta("cut") for _ in range(3)), delta("0123456789abcdef "))
    broker.trim(7)
    assert [text_of(line) for _, line, _ in await rows(observation, 3)] == ["again", "3 lines were skipped", "[secret]"]
    await observation.aclose()


async def test_an_observer_that_may_see_all_sees_each_line_as_it_is(broker: Having) -> None:
    secret = b'{"key":"sk-ant-api03-0123456789abcdef0123456789"}'
    broker.add(data(secret + b"\n"), delta("half"), OWNED)
    broker.add(data(secret + b"\n"), (Kind.END, b"{}"), since=3)
    assert [bytes(line) async for line in observed(scrub=False)][::3] == [secret, secret]
    broker.trim(4)
    assert bytes(await anext(observed(scrub=False))) == secret
    shown = [bytes(line) async for line in observed()]
    assert b"sk-ant" not in b"".join(shown)
    assert len(shown) == 3


# Where it begins.


@virtual_time
async def test_an_observer_begins_behind_what_it_has_seen(broker: Having) -> None:
    broker.add(*(data(b"[%d]\n[%d0]\n" % (number, number)) for number in range(1, 6)))
    broker.trim(3)
    for since, first in (
        (3 * LINES - 1, b"[3]"),  # right before the first line that is kept
        (3 * LINES, b"[3]"),
        (3 * LINES + 1, b"[30]"),
        (3 * LINES + 2, b"[4]"),
        (5 * LINES + 1, b"[50]"),
    ):
        observation = observed(since)
        assert [line for _, line, _ in await rows(observation, 1)] == [first]
        await observation.aclose()


@pytest.mark.parametrize("since", [0, 1, 2 * LINES - 1, 2 * LINES, 3 * LINES - 2])
async def test_lines_that_are_not_kept_are_a_replay_gap(broker: Having, since: int) -> None:
    broker.add(*(data(b"[%d]\n" % number) for number in range(1, 6)))
    broker.trim(3)
    with pytest.raises(errors.ReplayGap, match=f"the lines behind {since} are not kept any more"):
        await anext(observed(since))
    assert broker.closes == 1


async def test_a_place_that_the_session_has_not_reached_is_a_replay_gap(broker: Having) -> None:
    broker.add(OWNED)
    with pytest.raises(errors.ReplayGap, match=f"the session has not said {2 * LINES} yet"):
        await anext(observed(2 * LINES))
    assert broker.closes == 1


async def test_an_observer_of_no_session_is_told_so_on_one_short_line(broker: Having) -> None:
    with pytest.raises(errors.CLIConnectionError) as caught:
        await anext(observed(session="\x1b" * 1000))
    assert (caught.value.code, caught.value.retryable) == ("fleet.no_session", False)
    assert str(caught.value).startswith("the fleet has no session " + "\\x1b" * 16)
    assert len(str(caught.value)) < 200
    assert broker.closes == 1


async def test_a_broker_that_is_lost_before_an_observer_has_begun_is_a_typed_error(broker: Having, monkeypatch: pytest.MonkeyPatch) -> None:
    async def follow(*_: object) -> None:
        raise BrokerCut("gone")

    monkeypatch.setattr(broker, "follow", follow)
    with pytest.raises(errors.CLIConnectionError) as caught:
        await anext(observed())
    assert (caught.value.code, str(caught.value)) == ("fleet.broker_lost", f"{BrokerAddress(URL)}: gone")
    assert broker.closes == 1


@virtual_time
async def test_what_is_taken_while_an_observer_begins_is_not_waited_for(broker: Having) -> None:
    broker.add(*(data(b"[%d]\n" % number) for number in range(1, 4)))

    def take(number: int) -> None:
        if number == 1:
            broker.trim(4)
        elif number == 2:
            broker.add(data(b"[4]\n"))

    broker.at_read = take
    observation, began = observed(), anyio.current_time()
    assert await rows(observation, 1) == [("out", b"[4]", 4 * LINES + 1)]
    assert anyio.current_time() == began
    await observation.aclose()


async def test_a_session_that_goes_while_an_observer_begins_is_no_session(broker: Having) -> None:
    broker.add(OWNED)

    def forget(_: int) -> None:
        broker.entries.clear()
        broker.last = None

    broker.at_read = forget
    with anyio.fail_after(10), pytest.raises(errors.CLIConnectionError) as caught:
        await anext(observed())
    assert caught.value.code == "fleet.no_session"


@virtual_time
async def test_an_observer_of_a_queued_session_that_is_deleted_is_told_so_with_its_next_look(broker: Having) -> None:
    broker.last = 0
    observation = observed()

    with anyio.move_on_after(12):
        await anext(observation)
    broker.last = None
    with anyio.fail_after(5.5), pytest.raises(errors.ConnectionLost) as caught:
        await anext(observation)
    assert (caught.value.code, str(caught.value)) == ("fleet.gone", "the session was deleted before it has ended")
    await observation.aclose()
    assert broker.closes == 1


@virtual_time
async def test_lines_that_are_taken_just_after_the_first_read_are_shown(broker: Having) -> None:
    """Nothing else tells of them until the next line comes."""
    broker.add(OWNED, data(b"[1]\n"))
    broker.at_read = lambda number: broker.trim(9) if number > 1 else None
    with anyio.fail_after(1):
        assert await rows(observed(), 2) == [("note", TAKEN, LINES + 1), ("out", b"[1]", 2 * LINES + 1)]
