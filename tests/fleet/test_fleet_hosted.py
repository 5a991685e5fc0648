"""A session on its worker, without a broker: what the process gets when the lease ends in between, and a worker that was replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from hostile_words import SHORTER, assert_lines_are_safe
from virtual_time import virtual_time

from claude_transport import errors
from claude_transport.agents.claude_fields import ClaudeFields
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.carrier import Carrier
from claude_transport.fleet.ends import Claimed, WorkerEnd
from claude_transport.fleet.hosted import HostedSession
from claude_transport.fleet.messages import (
    Append,
    Appended,
    Call,
    Entry,
    Fenced,
    Kind,
    Lease,
    Owner,
    Renew,
    Renewed,
    Reply,
    Synced,
    Take,
    Taken,
)
from claude_transport.serving.door import Allowance, GatewayLimits
from claude_transport.transport import Transport, TransportInfo


class SwitchedLease(Lease):
    """A lease that holds when the test says so."""

    def __init__(self, *, held: bool) -> None:
        super().__init__(seconds=1e6, margin=0)
        self.granted(asked_at=anyio.current_time())
        self.held = held

    def holds(self, now: float) -> bool:
        return self.held


class Listening(Transport):
    """A process that notes what it gets, and says nothing."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.says: list[dict[str, Any]] = []
        self.closing: Exception | None = None
        self.has_ended = False
        self.takes: anyio.Event | None = None
        self.closing_takes: anyio.Event | None = None
        self.cut_at: float | None = None
        self.known = TransportInfo(kind="Listening")
        self._closed = anyio.Event()

    @property
    def info(self) -> TransportInfo:
        return self.known

    async def connect(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def write(self, data: str | bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self.has_ended:
            raise errors.TransportClosed("the process has ended")
        if self.takes is not None:
            try:
                await self.takes.wait()
            except anyio.get_cancelled_exc_class():
                self.cut_at = anyio.current_time()
                raise
        self.written.append(data if isinstance(data, bytes) else data.encode())

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        for message in self.says:
            yield message
        await self._closed.wait()

    async def end_input(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def close(self) -> None:
        if self.closing_takes is not None:
            await self.closing_takes.wait()
        self._closed.set()
        if self.closing is not None:
            raise self.closing

    def is_ready(self) -> bool:
        return not self._closed.is_set()


class Answering(Carrier):
    """Answers each call at once; a renewal with `fenced` when there is one, and never when it is cut off; no append when it is mute."""

    fenced: Fenced | None = None
    is_cut_off = False
    is_mute = False
    has_more = False
    said = b""

    async def carry_out(self, call: Call) -> bool:
        await anyio.lowlevel.checkpoint()
        if (self.is_cut_off and isinstance(call, Renew)) or (self.is_mute and isinstance(call, Append)):
            await anyio.sleep_forever()
        now = anyio.current_time()
        self.end.answered(call, self._answer(call), asked_at=now, now=now)
        self.on_change()
        return True

    def _answer(self, call: Call) -> Reply:
        match call:
            case Append():
                self.said += b"".join(data for _, data in call.entries)
                return Appended(call.first + len(call.entries) - 1, 0)
            case Take():
                return Taken()
            case Renew():
                return self.fenced or Renewed(60.0, more=self.has_more)
        return Synced("1.c", 0, 0, 0)


class Spending(Allowance):
    """Calls `on_spend` for each piece of input, before it is written."""

    def __init__(self, on_spend: Callable[[int], object]) -> None:
        super().__init__(GatewayLimits())
        self._on_spend = on_spend
        self._times = 0

    async def spend(self, size: int) -> None:
        await anyio.lowlevel.checkpoint()
        self._times += 1
        self._on_spend(self._times)


class Stand:
    """A hosted session, its process, and its lease."""

    def __init__(
        self,
        *,
        held: bool = True,
        lease: float | None = None,
        on_spend: Callable[[int], object] = bool,
        limits: GatewayLimits | None = None,
        fields: ClaudeFields | None = None,
    ) -> None:
        broker = Broker(BrokerAddress("redis://127.0.0.1:1/0"))
        self.end = WorkerEnd(Claimed(token="1.w"), asked_at=anyio.current_time(), lease=lease or 15.0)
        self.lease = SwitchedLease(held=held)
        if lease is None:
            self.end.lease = self.lease
        self.process = Listening()
        self.carrier = Answering(broker, "S", self.end, patience=1.0, on_change=bool)
        self.session = HostedSession(
            broker,
            "S",
            self.end,
            self.process,
            carrier=self.carrier,
            fields=fields or ClaudeFields({}),
            allowance=Spending(on_spend),
            limits=limits or GatewayLimits(),
            storage=None,
        )

    @asynccontextmanager
    async def running(self, *, setup: tuple[bytes, ...] = ()) -> AsyncIterator[None]:
        async def run() -> None:
            await self.session.run(Owner(node="one"), setup=setup)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            yield
            self.session.leave()

    async def set_lease(self, *, held: bool) -> None:
        self.lease.held = held
        self.carrier.on_change()
        await anyio.wait_all_tasks_blocked()


def line(number: int) -> bytes:
    return b'{"n":%d}\n' % number


async def test_a_lease_that_ends_between_two_writes_keeps_the_second_one_from_the_process() -> None:
    stand = Stand(on_spend=lambda times: times == 2 and setattr(stand.lease, "held", False))
    async with stand.running():
        stand.session.hear([Entry(number, "1.c", "d", line(number)) for number in (1, 2)])
        await anyio.wait_all_tasks_blocked()
        assert stand.process.written == [line(1)]
        await stand.set_lease(held=True)
        assert stand.process.written == [line(1), line(2)]


async def test_the_lines_that_set_a_process_up_need_the_lease() -> None:
    stand = Stand(held=False)
    async with stand.running(setup=(line(1), line(2))):
        assert stand.process.written == []
        await stand.set_lease(held=True)
        assert stand.process.written == [line(1), line(2)]


async def test_a_session_that_leaves_gets_what_is_taken_and_takes_nothing_more() -> None:
    stand = Stand(held=False)
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", line(1))])
        await anyio.wait_all_tasks_blocked()
        stand.session.leave()
        stand.session.hear([Entry(2, "1.c", "d", line(2))])
        await stand.set_lease(held=True)
        assert stand.process.written == [line(1)]
        assert [each.data for each in stand.end.unfed] == [line(2)]
        assert not stand.end.owes_feeding


async def test_a_session_that_cannot_be_given_back_is_told_to_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand()
    async with stand.running():  # there is no broker at its address
        assert caplog.messages == []
    (said,) = (message for message in caplog.messages if "given back" in message)
    assert said.startswith("session S could not be given back: its lease ends by itself (")


async def test_a_drain_does_not_wait_for_a_session_that_is_over() -> None:
    stand = Stand(held=False)
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", line(1))])
        await anyio.wait_all_tasks_blocked()
        await stand.process.close()
    assert stand.end.has_input
    with anyio.fail_after(5):
        await stand.session.move_away()


@virtual_time
async def test_a_session_that_moves_waits_for_the_turn_of_a_prompt_that_the_process_had_not_read_when_it_was_idle() -> None:
    state = b'{"type":"system","subtype":"session_state_changed","state":"%s"}\n'
    running, idle, result, prompt = state % b"running", state % b"idle", b'{"type":"result"}\n', b'{"type":"user"}\n'
    stand = Stand()
    moved: list[float] = []

    async def move() -> None:
        await stand.session.move_away()
        moved.append(anyio.current_time())

    async with stand.running(), anyio.create_task_group() as tasks:
        for number in (1, 2):
            stand.session.hear([Entry(number, "1.c", "d", prompt)])
            await anyio.wait_all_tasks_blocked()
            stand.end.say(running if number == 1 else result + idle)
        assert stand.process.written == [prompt, prompt]
        tasks.start_soon(move)
        await anyio.wait_all_tasks_blocked()
        stand.end.say(running)
        stand.carrier.on_change()
        await anyio.sleep(600)
        assert moved == []
        stand.end.say(result + idle)
        stand.carrier.on_change()
        await anyio.wait_all_tasks_blocked()
    assert len(moved) == 1


async def test_a_process_that_ends_before_it_is_set_up_ends_its_session() -> None:
    stand = Stand(held=False)
    async with stand.running(setup=(line(1),)):
        stand.process.has_ended = True
        await stand.set_lease(held=True)
        await stand.process.close()
        await anyio.wait_all_tasks_blocked()
    assert (stand.session.ended, stand.end.writer.last) == ("ended", 2)  # it has said that it has the session, and how it ended


@virtual_time
async def test_a_write_that_the_process_does_not_take_is_cut_before_its_lease_ends(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand(lease=1.5)
    began = anyio.current_time()
    stand.process.takes = anyio.Event()
    stand.carrier.is_cut_off = True
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", line(1))])
        await anyio.sleep(1.5)
    assert stand.process.cut_at is not None
    assert stand.process.cut_at < began + 1.5
    assert (stand.session.lost_code, stand.process.written) == ("fleet.broker_lost", [])
    assert "the lease was not renewed, and the process did not take its input in the rest of it" in caplog.text


@virtual_time
async def test_a_write_that_takes_longer_than_a_lease_goes_on_while_the_lease_is_renewed() -> None:
    stand = Stand(lease=1.5)
    stand.process.takes = anyio.Event()
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", line(1))])
        await anyio.sleep(60)
        assert (stand.session.lost_code, stand.process.written) == (None, [])
        stand.process.takes.set()
        await anyio.wait_all_tasks_blocked()
        assert stand.process.written == [line(1)]


async def test_input_that_is_missing_in_the_middle_ends_a_session_once(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand()
    stand.process.closing_takes = anyio.Event()
    async with stand.running():
        stand.session.hear([Entry(3, "1.c", "d", line(3))])
        await anyio.wait_all_tasks_blocked()
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        stand.process.closing_takes.set()
    assert len(said) == 1
    assert said[0].startswith("session S: ")
    assert stand.process.written == []


async def test_a_worker_that_was_replaced_is_fenced_when_the_next_one_has_trimmed_what_it_reads() -> None:
    stand = Stand()
    stand.carrier.fenced = Fenced("2.v")
    async with stand.running():
        stand.session.hear([Entry(3, "1.c", "d", line(3))])
        await anyio.wait_all_tasks_blocked()
    assert stand.session.lost_code == "fleet.fenced"
    assert stand.end.writer.last == 1  # it has said that it has the session, and not that the session ended


async def test_entries_that_are_gone_end_the_session_of_a_worker_that_still_has_it(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand()
    async with stand.running():
        stand.session.hear([Entry(3, "1.c", "d", line(3))])
        await anyio.wait_all_tasks_blocked()
        assert stand.session.ended == "malformed"
    assert str(errors.ReplayGap("the entries from 1 to 2 are not kept any more")) in caplog.text


@virtual_time
async def test_a_session_whose_last_words_the_broker_does_not_take_waits_twenty_seconds_and_is_not_given_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stand = Stand()
    began = anyio.current_time()
    async with stand.running():
        stand.carrier.is_mute = True
        await stand.process.close()
        await anyio.wait_all_tasks_blocked()
    assert 20 <= anyio.current_time() - began < 21
    assert stand.session.ended == "ended"
    assert "given back" not in caplog.text  # there is no broker at its address: a call would fail


async def test_a_line_reaches_the_process_once_and_alone_where_the_worker_changes_requests() -> None:
    stand = Stand(fields=ClaudeFields({"title": "ours"}))
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", line(1) + line(2))])
        await anyio.wait_all_tasks_blocked()
        assert stand.process.written == [line(1) + line(2)]


@pytest.mark.parametrize("way", ["in", "out"])
async def test_a_session_that_carries_more_than_it_may_is_ended(way: str) -> None:
    stand = Stand(limits=GatewayLimits(session_bytes=10))
    stand.process.says = [{"n": 1}, {"n": 2}] if way == "out" else []
    async with stand.running():
        if way == "in":
            stand.session.hear([Entry(1, "1.c", "d", line(1) + line(2))])
        await anyio.wait_all_tasks_blocked()
        assert stand.session.ended == "session_bytes"
    assert stand.process.written == []
    if way == "in":  # the last words of a process that says too much need a broker, which this stand has not
        assert b"the session has carried more than 10 bytes" in stand.carrier.said


async def test_a_line_that_is_too_long_ends_the_session_and_does_not_reach_the_process() -> None:
    stand = Stand(limits=GatewayLimits(line_bytes=10))
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", b'"0123456789"\n')])
        await anyio.wait_all_tasks_blocked()
        assert stand.session.ended == "line_too_long"
    assert stand.process.written == []


async def test_a_client_that_sends_far_more_than_the_process_takes_is_ended() -> None:
    stand = Stand(held=False, limits=GatewayLimits(line_bytes=10))
    async with stand.running():
        for number in range(1, 6):
            stand.session.hear([Entry(number, "1.c", "d", line(number))])
            assert not stand.session.is_deaf
        stand.session.hear([Entry(6, "1.c", "d", line(6))])
        assert stand.session.is_deaf
        await anyio.wait_all_tasks_blocked()
        assert stand.session.ended == "line_too_long"


@virtual_time
async def test_input_that_the_process_does_not_take_holds_its_end_up_for_a_second() -> None:
    stand = Stand(held=False)
    began = anyio.current_time()
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", line(1))])
        await anyio.wait_all_tasks_blocked()
        stand.session.hear([Entry(2, "1.c", "b", b"")])
        while stand.process.is_ready():
            await anyio.sleep(0.1)
    assert 1 <= anyio.current_time() - began < 2
    assert stand.process.written == []


@pytest.mark.parametrize("words", SHORTER.values(), ids=SHORTER)
async def test_what_ends_a_session_and_what_its_transport_raises_are_one_line(words: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "claude_transport")
    stand = Stand()
    stand.process.closing = LookupError(words)
    async with stand.running():
        stand.session.refuse(errors.ProtocolError(words))
        await anyio.wait_all_tasks_blocked()
    end = msgspec.json.decode(stand.carrier.said[stand.carrier.said.rindex(b'{"code"') :])
    assert_lines_are_safe([end["error"]], longest=600)
    closed = [message for message in caplog.messages if "could not be closed" in message]
    assert closed != []
    assert_lines_are_safe(closed)


@virtual_time
async def test_input_that_no_message_told_of_comes_with_the_next_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[Entry] = []

    async def read(_self: Broker, _key: str, cursor: int) -> list[Entry]:
        await anyio.lowlevel.checkpoint()
        return [each for each in entries if each.number > cursor]

    monkeypatch.setattr(Broker, "read", read)
    stand = Stand(lease=15.0)
    async with stand.running():
        entries.append(Entry(1, "1.c", Kind.DATA, line(1)))
        await anyio.sleep(15)
        assert stand.process.written == []
        stand.carrier.has_more = True
        await anyio.sleep(15)
        assert stand.process.written == [line(1)]


async def test_the_last_words_of_a_process_reach_the_client_without_their_secrets() -> None:
    stand = Stand()
    stand.process.known = TransportInfo(kind="Listening", exit_code=3, stderr_tail="refused: sk-ant-api03-Zm9vYmFyYmF6cXV4-9_A\n")
    async with stand.running():
        await stand.process.close()
        await anyio.wait_all_tasks_blocked()
    assert b'"exit_code":3' in stand.carrier.said
    assert b"refused: " in stand.carrier.said
    assert b"Zm9vYmFy" not in stand.carrier.said
