"""`FleetStream`, with a broker that has what a test gives it: a session that does not start, and one that no worker has any more."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import msgspec
import pytest
from virtual_time import virtual_time

from claude_transport import errors
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.ends import ClientEnd
from claude_transport.fleet.messages import (
    Append,
    Appended,
    Call,
    Entry,
    Fenced,
    Gone,
    Kind,
    Renew,
    Renewed,
    Reply,
    Sync,
    Synced,
    Take,
    Taken,
)
from claude_transport.fleet.stream import CLIENT_LEASE, TAKEOVER_SECONDS, FleetStream
from claude_transport.streams.address import StreamAttribute


class Having(Broker):
    """Has these entries of a worker, whose lease ends in `others_lease(now)` seconds."""

    def __init__(self, entries: Sequence[tuple[Kind, bytes]], *, others_lease: Callable[[float], float] = lambda _now: 60.0) -> None:
        super().__init__(BrokerAddress("redis://127.0.0.1:1/0"))
        self.entries = [Entry(number, "1.w", kind, data) for number, (kind, data) in enumerate(entries, 1)]
        self.others_lease = others_lease
        self.heard: Callable[[bytes], object] = bool
        self.reads = 0
        self.left: list[str] = []  # channels
        self.calls: list[Call] = []

    def add(self, kind: Kind, data: bytes = b"") -> None:
        """Let the worker say one more entry."""
        self.entries.append(Entry(len(self.entries) + 1, "1.w", kind, data))
        self.heard(b"")

    async def reached(self, session: str, *, patience: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def follow(self, channel: str, heard: Callable[[bytes], object]) -> None:
        await anyio.lowlevel.checkpoint()
        self.heard = heard

    def unfollow(self, channel: str, heard: Callable[[bytes], object]) -> None:
        self.left.append(channel)

    async def read(self, key: str, cursor: int, *, count: int = 64) -> list[Entry]:
        await anyio.lowlevel.checkpoint()
        self.reads += 1
        return [each for each in self.entries if each.number > cursor][:count]

    async def call(self, session: str, call: Call) -> Reply:
        await anyio.lowlevel.checkpoint()
        self.calls.append(call)
        match call:
            case Append():
                return Appended(call.first + len(call.entries) - 1, 0)
            case Renew():
                return Renewed(self.others_lease(anyio.current_time()))
            case Sync():
                return Synced("1.w", 0, 0, 0)
            case _:
                return Taken()


@asynccontextmanager
async def streaming(broker: Broker, *, close_timeout: float = 0.0) -> AsyncIterator[FleetStream]:
    end = ClientEnd("1.c", window=1000)
    stream = FleetStream(broker, "S", end, window=1000, close_timeout=close_timeout, patience=1.0)
    try:
        yield stream
    finally:
        await stream.detach()


@pytest.mark.parametrize(
    ("end", "kind", "said", "code"),
    [
        (b"{}", errors.ConnectionLost, "the session has ended", "connection.lost"),
        (b'{"exit_code":0,"stderr_tail":"bye"}', errors.ConnectionLost, "the session has ended", "connection.lost"),
        (b'{"exit_code":3,"stderr_tail":"no"}', errors.ProcessError, "the far process ended with exit code 3", "exec.cli.exited"),
        (b'{"signal":9}', errors.ProcessError, "the far process ended with signal 9", "exec.cli.exited"),
        (b'{"code":"auth","error":"no such token"}', errors.AuthenticationError, "no such token", "connect.auth_failed"),
        (b'{"code":"auth"}', errors.AuthenticationError, "auth", "connect.auth_failed"),
        (b'{"code":"options","error":"model"}', errors.ConfigurationError, "model", "config.invalid"),
        (b'{"code":"start"}', errors.CLIConnectionError, "start", "fleet.start"),
        (b'{"code":"a\\u001b[2J","error":"no"}', errors.CLIConnectionError, "no", errors.CLIConnectionError.code),
    ],
)
async def test_a_session_that_ends_before_it_has_begun_says_how(
    end: bytes, kind: type[errors.ClaudeTransportError], said: str, code: str
) -> None:
    async with streaming(Having([(Kind.END, end)])) as stream:
        with anyio.fail_after(10), pytest.raises(errors.ClaudeTransportError) as caught:
            await stream.started()
    assert (type(caught.value), str(caught.value.args[0]), caught.value.code) == (kind, said, code)
    reason = msgspec.json.decode(end).get("error") or msgspec.json.decode(end).get("stderr_tail", "")
    assert caught.value.reason == ("" if said == "the session has ended" else reason)


OWNED = (Kind.OWNER, b"{}")


@pytest.mark.parametrize(
    ("end", "kind", "said", "code"),
    [
        (b'{"code":"stopped"}', errors.ConnectionLost, "the session has ended (stopped)", "fleet.stopped"),
        (b'{"error":"no"}', errors.ConnectionLost, "no", errors.ConnectionLost.code),
        (b'{"code":"stopped","error":"no"}', errors.ConnectionLost, "no", "fleet.stopped"),
        (b'{"exit_code":3}', errors.ProcessError, "the far process ended with exit code 3", "exec.cli.exited"),
    ],
)
async def test_a_session_that_has_ended_says_how(end: bytes, kind: type[errors.ClaudeTransportError], said: str, code: str) -> None:
    async with streaming(Having([OWNED, (Kind.DATA, b"{}\n"), (Kind.END, end)])) as stream:
        with anyio.fail_after(10):
            assert await stream.receive() == b"{}\n"
            with pytest.raises(errors.ClaudeTransportError) as caught:
                await stream.receive()
    assert (type(caught.value), caught.value.args[0], caught.value.code) == (kind, said, code)
    assert caught.value.reason == msgspec.json.decode(end).get("error", "")


async def test_what_is_known_of_a_process_is_told_once_it_has_ended() -> None:
    broker = Having([OWNED])
    async with streaming(broker) as stream:
        await stream.started()
        assert (stream.extra(StreamAttribute.exit_code), stream.extra(StreamAttribute.ended)) == (None, False)
        assert stream.extra(StreamAttribute.started_at).tzinfo is not None
        assert stream.extra(StreamAttribute.address) == "redis://127.0.0.1:1/0"
        broker.add(Kind.END, b'{"signal":9,"killed":true,"stderr_tail":"oh"}')
        with anyio.fail_after(10), pytest.raises(errors.ProcessError) as caught:
            await stream.receive()
        told = (StreamAttribute.exit_code, StreamAttribute.signal, StreamAttribute.killed, StreamAttribute.stderr_tail)
        assert [stream.extra(each) for each in (*told, StreamAttribute.ended)] == [None, 9, True, "oh", True]
    assert (caught.value.signal, caught.value.stderr_tail) == (9, "oh")


async def test_input_that_the_process_was_not_given_is_told_at_its_good_end() -> None:
    broker = Having([OWNED])
    async with streaming(broker) as stream:
        await stream.send(b"{}\n")
        broker.add(Kind.END, b'{"exit_code":0,"taken":0}')
        with anyio.fail_after(10), pytest.raises(errors.ConnectionLost, match=r"not given the end of its input \(1 entries\)") as caught:
            await stream.receive()
    assert caught.value.code == "connection.input_lost"
    broker = Having([OWNED])
    async with streaming(broker) as stream:
        await stream.send(b"{}\n")
        broker.add(Kind.END, b'{"exit_code":0,"taken":1}')
        with anyio.fail_after(10), pytest.raises(anyio.EndOfStream):
            await stream.receive()


@pytest.mark.parametrize(("said", "code"), [("stopped", "fleet.stopped"), ("a\\u001b[2J", errors.ConnectionLost.code)])
async def test_a_session_that_has_ended_has_a_code_that_is_a_word(said: str, code: str) -> None:
    async with streaming(Having([OWNED, (Kind.END, b'{"code":"%b","error":"no"}' % said.encode())])) as stream:
        with anyio.fail_after(10), pytest.raises(errors.ConnectionLost) as caught:
            await stream.receive()
    assert caught.value.code == code


@virtual_time
async def test_a_client_gives_a_session_up_that_no_worker_has_for_a_minute() -> None:
    began = anyio.current_time()
    async with streaming(Having([OWNED], others_lease=lambda _now: -1.0)) as stream:
        with anyio.fail_after(3600), pytest.raises(errors.ConnectionLost) as caught:
            await stream.receive()
    assert (str(caught.value), caught.value.code) == ("no worker has had the session for 60 s", "fleet.no_worker")
    assert TAKEOVER_SECONDS <= anyio.current_time() - began <= TAKEOVER_SECONDS + 30


@virtual_time
async def test_the_minute_begins_anew_when_a_worker_had_the_session_in_between() -> None:
    began = anyio.current_time()

    def others_lease(now: float) -> float:
        return 1.0 if 40 <= now - began <= 60 else -1.0

    async with streaming(Having([OWNED], others_lease=others_lease)) as stream:
        with anyio.fail_after(3600), pytest.raises(errors.ConnectionLost):
            await stream.receive()
    assert 60 + TAKEOVER_SECONDS <= anyio.current_time() - began <= 60 + TAKEOVER_SECONDS + 30


class Replaced(Having):
    """Has another client in place of this one."""

    async def call(self, session: str, call: Call) -> Reply:
        return Fenced("2.c") if isinstance(call, Renew) else await super().call(session, call)


@virtual_time
async def test_a_client_that_was_replaced_hands_out_no_line_that_the_next_one_gets() -> None:
    async with streaming(Replaced([OWNED, (Kind.DATA, b"{}\n"), (Kind.DATA, b"[]\n")])) as stream:
        assert await stream.receive() == b"{}\n[]\n"
    async with streaming(Replaced([OWNED, (Kind.DATA, b"{}\n")])) as stream:
        await anyio.sleep(CLIENT_LEASE)
        with anyio.fail_after(10), pytest.raises(errors.ConnectionLost) as caught:
            await stream.receive()
    assert caught.value.code == "fleet.fenced"
    assert stream.position == 1


class Taking(Having):
    """Says of a session that its client gives up whether a worker has taken it."""

    def __init__(self, *, word: bytes) -> None:
        super().__init__([])
        self.word = word
        self.told: list[object] = []

    async def script(self, text: str, keys: Sequence[str], args: Sequence[object], *, follow: bool = True) -> list[object]:
        await anyio.lowlevel.checkpoint()
        return [self.word]

    async def command(self, name: str, *args: object, timeout: float = 5.0, **options: object) -> None:
        await anyio.lowlevel.checkpoint()
        self.told.append((name, *args))

    async def call(self, session: str, call: Call) -> Reply:
        if isinstance(call, Append):
            self.told.extend(kind for kind, _ in call.entries)
        return await super().call(session, call)


@pytest.mark.parametrize(("word", "told"), [(b"LIVE", [Kind.BYE]), (b"OK", [("zrem", "{claude-fleet}:queue", "S")])])
async def test_a_start_that_is_given_up_ends_the_session_or_takes_it_out_of_the_queue(word: bytes, told: list[object]) -> None:
    broker = Taking(word=word)
    stream = FleetStream(broker, "S", ClientEnd("1.c", window=1000), window=1000, close_timeout=0.0, patience=1.0)
    with anyio.fail_after(10):
        await stream.abandon()
    assert broker.told == told


async def test_a_word_of_the_worker_behind_a_line_is_read_with_the_line() -> None:
    async with streaming(Having([OWNED, (Kind.DATA, b"{}\n"), OWNED])) as stream:
        with anyio.fail_after(10):
            assert await stream.receive() == b"{}\n"
        assert stream.position == 3


class Growing(Having):
    """Gets one more line after a while, and tells of it in the answer to a renewal alone."""

    async def call(self, session: str, call: Call) -> Reply:
        if not isinstance(call, Renew):
            return await super().call(session, call)
        await anyio.lowlevel.checkpoint()
        if len(self.entries) == 1:
            self.entries.append(Entry(2, "1.w", Kind.DATA, b"{}\n"))
        return Renewed(60.0, more=True)


@virtual_time
async def test_a_line_that_no_message_told_of_comes_with_the_next_renewal() -> None:
    async with streaming(Growing([OWNED])) as stream:
        with anyio.fail_after(CLIENT_LEASE):
            assert await stream.receive() == b"{}\n"


async def test_the_end_of_the_input_is_said_once() -> None:
    broker = Taking(word=b"OK")
    async with streaming(broker) as stream:
        for _ in range(2):
            await stream.send_eof()
            await anyio.wait_all_tasks_blocked()
    assert broker.told == [Kind.EOF]


# What a cancelled, a waiting and a late caller gets.


async def test_a_cancelled_receive_leaves_the_line_and_the_end_to_the_next_one() -> None:
    async with streaming(Having([OWNED, (Kind.DATA, b"{}\n"), (Kind.END, b"{}")])) as stream:
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await stream.receive()
            assert scope.cancelled_caught
            with anyio.fail_after(10), contextlib.suppress(anyio.EndOfStream):
                assert await stream.receive() == b"{}\n"


async def test_a_cancelled_send_says_nothing() -> None:
    broker = Having([OWNED])
    async with streaming(broker) as stream:
        await anyio.wait_all_tasks_blocked()
        for say in (lambda: stream.send(b"{}\n"), stream.send_eof):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await say()
            assert scope.cancelled_caught
        await anyio.wait_all_tasks_blocked()
        assert [call for call in broker.calls if isinstance(call, Append)] == []


@pytest.mark.parametrize("how", ["closed", "left", "lost"])
async def test_a_sender_and_a_receiver_that_wait_are_told_that_the_stream_is_over(how: str) -> None:
    broker = Having([OWNED])
    raised: list[type[Exception]] = []

    async def note(call: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises((anyio.ClosedResourceError, anyio.BrokenResourceError, errors.ConnectionLost)) as caught:
            await call()
        raised.append(caught.type)

    with anyio.fail_after(10):
        async with streaming(broker) as stream, anyio.create_task_group() as tasks:
            tasks.start_soon(note, stream.receive)
            tasks.start_soon(note, lambda: stream.send(b"x" * 2000))
            await anyio.wait_all_tasks_blocked()
            assert raised == []
            if how == "lost":
                broker.add(Kind.END, b'{"code":"stopped"}')
            else:
                await (stream.aclose() if how == "closed" else stream.detach())
            await anyio.wait_all_tasks_blocked()
            assert len(raised) == 2
            await note(stream.receive)
            await note(lambda: stream.send(b"{}\n"))
    lost = {errors.ConnectionLost, anyio.BrokenResourceError}
    assert set(raised) == (lost if how == "lost" else {anyio.ClosedResourceError})


async def test_a_broken_connection_to_the_broker_ends_the_stream_that_uses_it() -> None:
    class Broken(Having):
        async def read(self, key: str, cursor: int, *, count: int = 64) -> list[Entry]:
            raise LookupError("an error that nobody knows")

    async with streaming(Broken([])) as stream:
        with anyio.fail_after(10), pytest.raises(errors.ConnectionLost, match="the session was given up"):
            await stream.receive()


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_lines_that_are_gone_are_a_replay_gap_unless_another_client_has_read_them(is_replaced: bool) -> None:
    broker = Replaced([OWNED]) if is_replaced else Having([OWNED])
    async with streaming(broker) as stream:
        await stream.started()
        broker.entries = [Entry(7, "1.w", Kind.DATA, b"{}\n")]
        broker.heard(b"")
        with anyio.fail_after(10), pytest.raises(errors.ClaudeTransportError) as caught:
            await stream.receive()
    assert type(caught.value) is (errors.ConnectionLost if is_replaced else errors.ReplayGap)
    assert caught.value.code == ("fleet.fenced" if is_replaced else "protocol.replay_gap")


# What the broker is told, and when.


async def test_a_line_counts_as_read_when_all_of_it_was_received() -> None:
    async with streaming(Having([OWNED, (Kind.DATA, b"[1]\n"), (Kind.DATA, b"[2]\n")])) as stream:
        with anyio.fail_after(10):
            seen = []
            for size in (2, 2, 4):
                await stream.receive(size)
                seen.append(stream.position)
    assert seen == [1, 2, 3]


async def test_a_word_of_the_worker_is_read_once_all_lines_before_it_are() -> None:
    broker = Having([OWNED, (Kind.DATA, b"{}\n")])
    async with streaming(broker) as stream:
        with anyio.fail_after(10):
            await stream.receive()
        broker.add(*OWNED)
        await anyio.wait_all_tasks_blocked()
        assert stream.position == 3


def takes_of(broker: Having) -> list[int]:
    """The positions that the broker was told as read."""
    return [call.upto for call in broker.calls if isinstance(call, Take)]


@virtual_time
async def test_what_was_read_is_told_soon_and_not_for_each_line() -> None:
    broker = Having([OWNED])
    async with streaming(broker) as stream:
        await anyio.sleep(1)
        for number in range(3):
            broker.add(Kind.DATA, b"[%d]\n" % number)
            await stream.receive()
        began = anyio.current_time()
        while takes_of(broker)[-1] < 4:
            await anyio.sleep(0.001)
        assert anyio.current_time() - began < 0.1
        assert takes_of(broker) == [1, 4]


@virtual_time
async def test_what_was_read_long_after_it_came_is_told_soon_too() -> None:
    broker = Having([OWNED, (Kind.DATA, b"{}\n")])
    async with streaming(broker) as stream:
        await anyio.sleep(1)
        assert takes_of(broker) == [1]
        await stream.receive()
        await anyio.sleep(0.1)
        assert takes_of(broker) == [1, 2]


@virtual_time
@pytest.mark.parametrize(("refusal", "takes"), [(Fenced("2.c"), [1, 2]), (Gone(), [1])], ids=["replaced", "gone"])
async def test_a_client_that_was_replaced_tells_the_last_that_it_has_read(refusal: Reply, takes: list[int]) -> None:
    class Refusing(Having):
        async def call(self, session: str, call: Call) -> Reply:
            reply = await super().call(session, call)
            return refusal if isinstance(call, Append) else reply

    broker = Refusing([OWNED])
    async with streaming(broker) as stream:
        await anyio.sleep(1)
        broker.add(Kind.DATA, b"{}\n")
        await stream.receive()
        await stream.send(b"{}\n")
        await anyio.sleep(1)
        assert takes_of(broker) == takes


@virtual_time
async def test_a_start_whose_client_is_replaced_is_told_so() -> None:
    async with streaming(Replaced([])) as stream:
        with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(3600):
            await stream.started()
    assert caught.value.code == "fleet.fenced"


@virtual_time
async def test_a_quarter_of_the_window_that_was_read_is_told_at_once() -> None:
    broker = Having([OWNED])
    async with streaming(broker) as stream:
        await anyio.sleep(1)
        began = anyio.current_time()
        for size in (1, 250):
            broker.add(Kind.DATA, b"x" * size)
            await stream.receive()
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
        assert (takes_of(broker), anyio.current_time()) == ([1, 3], began)


@virtual_time
async def test_output_beyond_the_window_comes_as_it_is_read() -> None:
    broker = Having([OWNED, *((Kind.DATA, b"x" * 99 + b"\n") for _ in range(200))])
    async with streaming(broker) as stream:
        got, began = 0, anyio.current_time()
        await anyio.sleep(1)
        assert broker.reads < 3
        while got < 20_000:
            got += len(await stream.receive())
        assert anyio.current_time() - began < 2


@virtual_time
async def test_a_session_is_renewed_and_its_stream_is_read_only_when_there_is_more() -> None:
    broker = Having([OWNED])
    async with streaming(broker):
        await anyio.sleep(3600)
        assert broker.reads == 1
        assert 360 <= sum(isinstance(call, Renew) for call in broker.calls) <= 720


@virtual_time
async def test_a_session_that_waits_for_its_first_worker_is_not_given_up() -> None:
    async with streaming(Having([], others_lease=lambda _now: -1.0)) as stream:
        with anyio.move_on_after(3600) as waited:
            await stream.started()
        assert waited.cancelled_caught


def asked(identifier: str) -> bytes:
    return msgspec.json.encode({"type": "control_request", "request_id": identifier, "request": {"subtype": "interrupt"}}) + b"\n"


async def test_a_request_that_died_with_its_worker_is_answered_with_an_error_and_no_other_one() -> None:
    broker = Having([OWNED])
    async with streaming(broker) as stream:
        for identifier in ("answered", "lost", "waiting"):
            await stream.send(asked(identifier))
            await anyio.wait_all_tasks_blocked()
        answer = b'{"type":"control_response","response":{"subtype":"success","request_id":"answered"}}\n'
        broker.add(Kind.DATA, answer)
        broker.add(Kind.OWNER, b'{"takeover":true,"taken":2}')
        got = b""
        with anyio.fail_after(10):
            while got.count(b"\n") < 2:
                got += await stream.receive()
        await anyio.wait_all_tasks_blocked()
        assert stream.position == 3
    first, second = got.splitlines(keepends=True)
    assert first == answer
    assert msgspec.json.decode(second)["response"]["request_id"] == "lost"


# Closing.


class Obeying(Having):
    """Ends the session when the client says goodbye."""

    async def call(self, session: str, call: Call) -> Reply:
        reply = await super().call(session, call)
        if isinstance(call, Append) and any(kind == Kind.BYE for kind, _ in call.entries):
            self.add(Kind.END, b'{"exit_code":0}')
        return reply


def said_to(broker: Having) -> list[tuple[str, bytes]]:
    return [entry for call in broker.calls if isinstance(call, Append) for entry in call.entries]


@virtual_time
async def test_closing_says_all_input_before_goodbye_and_takes_no_longer_than_the_process() -> None:
    """Also when nobody reads the output, and it is more than the window."""
    broker = Obeying([OWNED, *((Kind.DATA, b"x" * 999 + b"\n") for _ in range(100))])
    async with streaming(broker, close_timeout=40.0) as stream:
        await anyio.sleep(1)
        await stream.send(b"{}\n")
        began = anyio.current_time()
        await stream.aclose()
        assert anyio.current_time() - began < 1
        assert said_to(broker) == [(Kind.DATA, b"{}\n"), (Kind.BYE, b"")]


@virtual_time
async def test_closing_finds_an_end_that_is_behind_more_than_the_window() -> None:
    broker = Having([OWNED, *((Kind.DATA, b"x" * 999 + b"\n") for _ in range(100)), (Kind.END, b'{"exit_code":3}')])
    async with streaming(broker, close_timeout=40.0) as stream:
        await anyio.sleep(1)
        began = anyio.current_time()
        await stream.aclose()
        assert (anyio.current_time(), stream.extra(StreamAttribute.exit_code)) == (began, 3)


@virtual_time
async def test_closing_does_not_wait_for_a_session_that_is_lost_meanwhile() -> None:
    class Fencing(Having):
        async def call(self, session: str, call: Call) -> Reply:
            await anyio.sleep(1)
            return Fenced("2.c") if isinstance(call, Append) else await super().call(session, call)

    async with streaming(Fencing([OWNED]), close_timeout=40.0) as stream:
        await stream.started()
        began = anyio.current_time()
        await stream.send(b"{}\n")
        await stream.aclose()
        assert anyio.current_time() - began < 5


async def test_closing_that_is_cancelled_leaves_no_task_behind() -> None:
    async with streaming(Having([OWNED]), close_timeout=40.0) as stream:
        await stream.started()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stream.aclose()
        assert scope.cancelled_caught
        assert [task.name for task in anyio.get_running_tasks() if str(task.name).startswith("fleet session")] == []


@virtual_time
async def test_a_process_that_does_not_end_holds_the_closing_up_for_its_time_and_what_it_says_counts_as_read() -> None:
    broker = Having([OWNED])
    async with streaming(broker, close_timeout=40.0) as stream:
        await stream.started()
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            waiting = anyio.Event()

            async def wait() -> None:
                with pytest.raises(anyio.ClosedResourceError):
                    await stream.receive()
                waiting.set()

            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(stream.aclose)
            await anyio.sleep(1)
            assert (said_to(broker), waiting.is_set()) == ([(Kind.BYE, b"")], True)
            await stream.send_eof()
            broker.add(Kind.DATA, b"{}\n")
        assert anyio.current_time() - began == pytest.approx(40)
        assert said_to(broker) == [(Kind.BYE, b"")]
        assert takes_of(broker)[-1] == 2


@virtual_time
async def test_a_session_is_left_at_once_when_all_is_said_and_told() -> None:
    broker = Having([OWNED, (Kind.DATA, b"{}\n")])
    async with streaming(broker, close_timeout=40.0) as stream:
        assert await stream.receive() == b"{}\n"
        await stream.send(b"{}\n")
        began = anyio.current_time()
        await stream.detach()
        assert anyio.current_time() - began < 1
    assert (said_to(broker), takes_of(broker)[-1]) == ([(Kind.DATA, b"{}\n")], 2)


async def test_a_client_that_has_left_hears_of_no_more_lines() -> None:
    broker = Having([OWNED])
    async with streaming(broker) as stream:
        await stream.started()
        assert broker.left == []
    assert broker.left == [broker.keys.outgoing("S")]


@virtual_time
async def test_a_session_that_is_lost_is_left_at_once() -> None:
    class Mute(Having):
        async def call(self, session: str, call: Call) -> Reply:
            if isinstance(call, Append | Take):
                await anyio.sleep_forever()
            return await super().call(session, call)

    broker = Mute([OWNED, (Kind.END, b'{"code":"stopped"}')])
    async with streaming(broker, close_timeout=40.0) as stream:
        await anyio.sleep(1)
        with pytest.raises(anyio.BrokenResourceError):
            await stream.send(b"{}\n")
        began = anyio.current_time()
        await stream.detach()
        assert anyio.current_time() - began < 1


async def test_a_start_that_a_worker_has_refused_is_not_given_up_once_more() -> None:
    broker = Taking(word=b"LIVE")
    broker.entries = [Entry(1, "1.w", Kind.END, b'{"code":"options","error":"model"}')]
    stream = FleetStream(broker, "S", ClientEnd("1.c", window=1000), window=1000, close_timeout=0.0, patience=1.0)
    with anyio.fail_after(10):
        with pytest.raises(errors.ConfigurationError):
            await stream.started()
        await stream.abandon()
    assert broker.told == []
