"""`FleetStream`, with a broker that has what a test gives it: a session that does not start, and one that no worker has any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from virtual_time import virtual_time

from claude_transport import errors
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.ends import ClientEnd
from claude_transport.fleet.messages import Append, Appended, Call, Entry, Fenced, Kind, Renew, Renewed, Reply, Sync, Synced, Taken
from claude_transport.fleet.stream import CLIENT_LEASE, TAKEOVER_SECONDS, FleetStream


class Having(Broker):
    """Has these entries of a worker, whose lease ends in `others_lease(now)` seconds."""

    def __init__(self, entries: Sequence[tuple[Kind, bytes]], *, others_lease: Callable[[float], float] = lambda _now: 60.0) -> None:
        super().__init__(BrokerAddress("redis://127.0.0.1:1/0"))
        self.entries = [Entry(number, "1.w", kind, data) for number, (kind, data) in enumerate(entries, 1)]
        self.others_lease = others_lease

    async def reached(self, session: str, *, patience: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def follow(self, channel: str, heard: Callable[[bytes], object]) -> None:
        await anyio.lowlevel.checkpoint()

    async def read(self, key: str, cursor: int, *, count: int = 64) -> list[Entry]:
        await anyio.lowlevel.checkpoint()
        return [each for each in self.entries if each.number > cursor]

    async def call(self, session: str, call: Call) -> Reply:
        await anyio.lowlevel.checkpoint()
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
async def streaming(broker: Broker) -> AsyncIterator[FleetStream]:
    stream = FleetStream(broker, "S", ClientEnd("1.c", window=1000), window=1000, close_timeout=0.0, patience=1.0, is_new=False)
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


OWNED = (Kind.OWNER, b"{}")


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

    async def script(self, text: str, keys: Sequence[str], args: Sequence[object]) -> list[object]:
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
    stream = FleetStream(broker, "S", ClientEnd("1.c", window=1000), window=1000, close_timeout=0.0, patience=1.0, is_new=True)
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
