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
    SessionEnd,
    Synced,
    Take,
    Taken,
)
from claude_transport.serving.door import Allowance, GatewayLimits
from claude_transport.transport import AtOnce, SessionTerms, Storage, Transport, TransportInfo


class SwitchedLease(Lease):
    """A lease that holds when the test says so."""

    def __init__(self, *, held: bool) -> None:
        super().__init__(seconds=1e6, margin=0)
        self.granted(asked_at=anyio.current_time())
        self.held = held

    def holds(self, now: float) -> bool:
        return self.held


class Listening(Transport):
    """A process that notes what it gets, and says what the test says."""

    ends_by_itself = False

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.says: list[dict[str, Any]] = []
        self.closing: Exception | None = None
        self.reading: Exception | None = None  # raised when it is closed
        self.cutting: Exception | None = None  # raised by a write that is cut
        self.has_ended = False
        self.takes: anyio.Event | None = None
        self.closing_takes: anyio.Event | None = None
        self.cut_at: float | None = None
        self.known = TransportInfo(kind="Listening")
        self.waits_for_input = False
        self._closed, self._got_input = anyio.Event(), anyio.Event()

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
                if self.cutting is not None:
                    raise self.cutting from None
                raise
        self.written.append(data if isinstance(data, bytes) else data.encode())
        self._got_input.set()

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        return self

    def __aiter__(self) -> Listening:
        return self

    async def __anext__(self) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        if self.waits_for_input:
            await self._got_input.wait()
        if self.says:
            return self.says.pop(0)
        if not self.ends_by_itself:
            await self._closed.wait()
        raise self.reading or StopAsyncIteration

    async def end_input(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.written.append(b"")

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
    others_lease = 60.0
    window = 0
    said = b""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.appends: list[Append] = []

    async def carry_out(self, call: Call) -> bool:
        try:
            await anyio.lowlevel.checkpoint()
            if (self.is_cut_off and isinstance(call, Renew)) or (self.is_mute and isinstance(call, Append)):
                await anyio.sleep_forever()
        except BaseException:
            self.end.unanswered(call)
            raise
        now = anyio.current_time()
        self.end.answered(call, self._answer(call), asked_at=now, now=now)
        self.on_change()
        return True

    def _answer(self, call: Call) -> Reply:
        match call:
            case Append():
                self.appends.append(call)
                self.said += b"".join(data for _, data in call.entries)
                return Appended(call.first + len(call.entries) - 1, 0)
            case Take():
                return Taken(self.window)
            case Renew():
                return self.fenced or Renewed(self.others_lease, more=self.has_more)
        return Synced("1.c", 0, self.end.writer.said, 0)


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
        storage: Storage | None = None,
        at_once: AtOnce | None = None,
        process: Listening | None = None,
    ) -> None:
        broker = Broker(BrokerAddress("redis://127.0.0.1:1/0"))
        limits = limits or GatewayLimits()
        claimed, now = Claimed(token="1.w"), anyio.current_time()
        self.end = WorkerEnd(claimed, asked_at=now, lease=lease or 15.0, max_line_bytes=limits.line_bytes)
        self.lease = SwitchedLease(held=held)
        if lease is None:
            self.end.lease = self.lease
        self.process = process or Listening()
        self.carrier = Answering(broker, "S", self.end, patience=1.0, on_change=bool)
        self.session = HostedSession(
            broker,
            "S",
            self.end,
            self.process,
            carrier=self.carrier,
            fields=fields or ClaudeFields({}),
            allowance=Spending(on_spend),
            limits=limits,
            terms=SessionTerms(storage=storage, at_once=at_once),
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

    @property
    def end_said(self) -> SessionEnd:
        """How the session has ended for its client."""
        (end,) = [data for call in self.carrier.appends for kind, data in call.entries if kind == Kind.END]
        return msgspec.json.decode(end, type=SessionEnd)

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


async def test_a_single_line_is_written_at_once_when_the_process_takes_it_and_needs_the_lease_too() -> None:
    written: list[bytes] = []
    is_full = [False, False, True]

    def write(data: bytes) -> bool:
        if is_full.pop(0):
            return False
        written.append(data)
        return True

    stand = Stand(held=False, at_once=AtOnce(connect=bool, write=write, end_input=bool, close=bool))
    async with stand.running():
        two = line(2) + line(3)
        stand.session.hear([Entry(number, "1.c", "d", data) for number, data in enumerate((line(1), two, line(4), line(5)), 1)])
        await anyio.wait_all_tasks_blocked()
        assert written == []
        await stand.set_lease(held=True)
        assert written == [line(1), line(4)]
        assert stand.process.written == [two, line(5)]
    assert stand.session.end.fed_number == 4


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
    assert stand.session.ended == "moved"


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


async def test_what_ends_a_session_first_is_what_its_client_is_told() -> None:
    stand = Stand()
    async with stand.running():
        stand.session.stop(SessionEnd(code="stopped"))
        stand.session.stop(SessionEnd(code="lease"))
        await anyio.wait_all_tasks_blocked()
    assert stand.session.ended == "stopped"


@pytest.mark.parametrize("raised", [LookupError("no"), errors.ProtocolError("no")], ids=["foreign", "ours"])
async def test_a_process_that_breaks_when_it_is_stopped_ends_its_session_as_stopped(raised: Exception) -> None:
    stand = Stand()
    stand.process.reading = raised
    async with stand.running():
        stand.session.stop(SessionEnd(code="stopped"))
        await anyio.wait_all_tasks_blocked()
    assert (stand.session.ended, stand.end.writer.last) == ("stopped", 2)


async def test_a_process_that_breaks_ends_its_session_with_the_kind_of_error_alone() -> None:
    stand = Stand()
    stand.process.reading = LookupError("hunter-two")
    async with stand.running():
        await stand.process.close()
        await anyio.wait_all_tasks_blocked()
    said = "using the process failed on the worker (LookupError); its log says more"
    assert (stand.session.ended, stand.end_said.code, stand.end_said.error) == ("failed", "failed", said)


async def test_a_process_that_cannot_be_read_ends_its_session_with_the_cause() -> None:
    stand = Stand()
    stand.process.reading = errors.ProtocolError("hunter-two")
    async with stand.running():
        await stand.process.close()
        await anyio.wait_all_tasks_blocked()
    assert stand.end_said.code == "failed"
    assert stand.end_said.error == "reading from the process failed on the worker (ProtocolError)"


async def test_a_process_that_cannot_be_read_any_more_when_its_client_leaves_has_ended_well() -> None:
    stand = Stand()
    stand.process.reading = errors.ProtocolError("no")
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", Kind.BYE, b"")])
        await anyio.wait_all_tasks_blocked()
    assert (stand.end_said.code, stand.end_said.error) == ("", None)


async def test_a_line_that_the_process_does_not_finish_is_said_without_its_end() -> None:
    stand = Stand()
    stand.process.reading = errors.TruncatedStream("in the middle of a line", bytes_tail=b'{"half')
    async with stand.running():
        await stand.process.close()
        await anyio.wait_all_tasks_blocked()
    assert b'{"half' in stand.carrier.said
    assert stand.end_said.code == ""


async def test_an_error_while_a_session_ends_does_not_end_it_once_more() -> None:
    stand = Stand()
    stand.process.takes = anyio.Event()
    stand.process.cutting = LookupError("a program of its own")
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", line(1))])
        await anyio.wait_all_tasks_blocked()
        await stand.process.close()
        await anyio.wait_all_tasks_blocked()
    assert (stand.session.ended, stand.end.writer.last) == ("ended", 2)


async def test_a_process_is_closed_before_the_end_of_its_session_is_told() -> None:
    """Only then its exit code is known."""

    class Ending(Listening):
        ends_by_itself = True

        async def close(self) -> None:
            self.known = TransportInfo(kind="Ending", exit_code=3)
            await super().close()

    stand = Stand(process=Ending())
    async with stand.running():
        await anyio.wait_all_tasks_blocked()
    assert stand.end_said.exit_code == 3


async def test_the_process_of_a_session_that_is_lost_is_closed() -> None:
    stand = Stand()
    stand.carrier.fenced = Fenced("2.v")
    async with stand.running():
        stand.session.renew_soon()
        await anyio.wait_all_tasks_blocked()
        assert not stand.process.is_ready()


@virtual_time
async def test_a_session_without_a_turn_moves_at_once() -> None:
    stand = Stand()
    async with stand.running():
        began = anyio.current_time()
        await stand.session.move_away()
        assert anyio.current_time() == began


@virtual_time
@pytest.mark.parametrize("said", [b"", b'{"type":"result"}\n'], ids=["a turn runs", "a turn may follow"])
async def test_a_drain_that_waits_for_a_turn_goes_on_when_the_session_is_lost(said: bytes) -> None:
    stand = Stand()
    async with stand.running(), anyio.create_task_group() as tasks:
        stand.session.hear([Entry(1, "1.c", "d", b'{"type":"user"}\n{"type":"user"}\n')])
        await anyio.wait_all_tasks_blocked()
        if said:
            stand.end.say(said)
        began, moved = anyio.current_time(), anyio.Event()

        async def move() -> None:
            await stand.session.move_away()
            moved.set()

        tasks.start_soon(move)
        await anyio.wait_all_tasks_blocked()
        assert not moved.is_set()
        stand.carrier.fenced = Fenced("2.v")
        stand.session.renew_soon()
        with anyio.fail_after(600):
            await moved.wait()
        assert anyio.current_time() < began + 1


async def test_a_drain_that_waits_for_the_end_of_a_write_goes_on_when_it_is_over() -> None:
    stand = Stand()
    stand.process.takes = anyio.Event()
    async with stand.running(), anyio.create_task_group() as tasks:
        stand.session.hear([Entry(1, "1.c", "d", line(1))])
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(stand.session.move_away)
        await anyio.wait_all_tasks_blocked()
        assert stand.process.is_ready()
        stand.process.takes.set()
        with anyio.fail_after(5):
            while stand.process.is_ready():
                await anyio.wait_all_tasks_blocked()
    assert stand.process.written == [line(1)]


async def test_a_client_whose_window_waits_for_the_process_is_told_at_once_what_it_has_received() -> None:
    stand = Stand()
    stand.carrier.window = 10
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", line(1))])
        await anyio.wait_all_tasks_blocked()
        assert [call.fed for call in stand.carrier.appends] == [None, 1]


@virtual_time
async def test_a_session_whose_client_is_gone_for_good_is_ended() -> None:
    stand = Stand(lease=15.0)
    stand.carrier.others_lease = -1.0
    async with stand.running():
        await anyio.sleep(15)
    assert (stand.end_said.code, stand.end_said.error) == ("lease", "no client has come back")


@virtual_time
async def test_a_session_whose_client_is_just_gone_goes_on() -> None:
    stand = Stand(lease=15.0)
    stand.carrier.others_lease = 0.0
    async with stand.running():
        await anyio.sleep(60)
        assert stand.process.is_ready()


@virtual_time
async def test_a_session_that_is_stopped_waits_for_no_input() -> None:
    stand = Stand(held=False)
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", line(1))])
        await anyio.wait_all_tasks_blocked()
        began = anyio.current_time()
        stand.session.stop(SessionEnd(code="stopped"))
        await anyio.wait_all_tasks_blocked()
        assert not stand.process.is_ready()
        assert anyio.current_time() < began + 0.5


@virtual_time
async def test_a_session_whose_client_reads_nothing_can_be_stopped() -> None:
    stand = Stand()
    stand.process.says = [{"text": "x" * 2**20}, {"n": 1}]
    async with stand.running():
        await anyio.sleep(1)
        assert b'{"n":1}' not in stand.carrier.said
        stand.session.stop(SessionEnd(code="stopped"))
        await anyio.sleep(10)
        assert stand.session.ended == "stopped"


async def test_a_line_without_an_end_reaches_the_process_without_one_and_then_its_input_ends() -> None:
    stand = Stand()
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", b'{"n":1}'), Entry(2, "1.c", Kind.EOF, b"")])
        await anyio.wait_all_tasks_blocked()
        assert stand.process.written == [b'{"n":1}', b""]


async def test_the_answers_to_what_sets_a_process_up_are_for_no_client() -> None:
    stand = Stand()
    stand.process.says = [{"type": "control_response", "response": {"request_id": f"{name}-0"}} for name in ("fleet-setup", "other")]
    async with stand.running(setup=(line(1),)):
        await anyio.wait_all_tasks_blocked()
        assert b"other-0" in stand.carrier.said
        assert b"fleet-setup-0" not in stand.carrier.said


async def test_a_turn_that_nothing_has_to_store_counts_as_stored_at_once() -> None:
    async def wait_stored() -> None:
        raise AssertionError("nothing is stored")

    stand = Stand(storage=Storage(is_storing=lambda: False, wait_stored=wait_stored))
    stand.process.waits_for_input, stand.process.says = True, [{"type": "result"}]
    async with stand.running():
        stand.session.hear([Entry(1, "1.c", "d", b'{"type":"user"}\n')])
        await anyio.wait_all_tasks_blocked()
        assert [(call.turns, call.stored) for call in stand.carrier.appends if call.turns] == [(1, 1)]


HOSTILE: dict[str, tuple[list[Any], str]] = {
    "no bytes": ([Entry(1, "1.c", "d", None)], "malformed"),  # type: ignore[arg-type]
    "an older client": ([Entry(1, "2.c", "d", line(1)), Entry(2, "1.c", "d", line(2))], "malformed"),
    "a line without an end": ([Entry(number, "1.c", "p", b"x" * 600) for number in (1, 2)], "line_too_long"),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_input_that_cannot_be_taken_ends_its_session_once(what: str) -> None:
    entries, code = HOSTILE[what]
    stand = Stand(limits=GatewayLimits(line_bytes=1000))
    async with stand.running():
        stand.session.hear(entries)
        assert stand.session.is_deaf
        stand.session.hear([Entry(99, "9.c", "d", line(99))])
        await anyio.wait_all_tasks_blocked()
        assert stand.session.ended == code
    assert stand.process.written == []


async def test_a_session_that_cannot_be_given_back_counts_as_lost_with_the_broker() -> None:
    stand = Stand()
    async with stand.running():
        await stand.process.close()
        await anyio.wait_all_tasks_blocked()
    assert (stand.session.ended, stand.session.lost_code) == ("ended", "fleet.broker_lost")
