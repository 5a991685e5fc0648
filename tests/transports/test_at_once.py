"""`connect_now()` and `close_now()`: a session whose start and end need no waiting takes neither a scope nor a round of the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, ByteStreamConnectable
from children import CAT, SILENT, alive, open_files, pid_of, read_all, until

import claude_transport as ct
from claude_transport.codex import CodexOptions
from claude_transport.sessions import InMemorySessionStore
from claude_transport.streams import process, reaping
from claude_transport.streams.at_once import SendsAtOnce
from claude_transport.streams.process import ProcessStream
from claude_transport.streams.sweeping import Sweeper
from claude_transport.transport import Client, SessionTerms
from claude_transport.transports.stream import StreamTransport
from tests.small_peer import small_peer

pytestmark = pytest.mark.skipif(os.name == "nt", reason="starting a process on Windows waits")


async def test_a_process_is_started_and_released_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc").mkdir()
    sweeper = Sweeper(proc=str(tmp_path / "proc"))  # the machine has no new processes, which might belong to the child
    for module in (process, reaping):
        monkeypatch.setattr(module, "sweeper", sweeper)
    before = open_files()
    transport = ct.SubprocessTransport(command=CAT)
    assert transport.connect_now()
    assert transport.is_ready()
    assert not transport.connect_now()  # it is open
    with anyio.fail_after(30):
        await transport.write('{"n":1}')
        await transport.end_input()
        assert await read_all(transport) == [{"n": 1}]
    assert transport.close_now()
    assert not alive(pid_of(transport))
    assert not transport.is_ready()
    assert not transport.close_now()
    assert transport.info.exit_code == 0
    await transport.close()
    with pytest.raises(ct.TransportClosed):
        await transport.connect()
    await until(lambda: open_files() <= before)


async def test_a_process_that_still_runs_is_ended_by_close() -> None:
    transport = ct.SubprocessTransport(command=SILENT, close_timeout=0.1)
    assert transport.connect_now()
    assert not transport.close_now()
    with anyio.fail_after(30):
        await transport.close()
    assert not alive(pid_of(transport))
    assert transport.info.killed


def test_nothing_is_closed_before_it_is_connected() -> None:
    assert not ct.SubprocessTransport(command=CAT).close_now()


async def test_a_start_that_fails_raises_what_connect_raises(tmp_path: Path) -> None:
    transport = ct.SubprocessTransport(command=[tmp_path / "missing"])
    with pytest.raises(ct.CLINotFoundError) as at_once:
        transport.connect_now()
    with pytest.raises(ct.CLINotFoundError) as waited:
        await transport.connect()
    assert str(at_once.value) == str(waited.value)
    assert at_once.value.searched == waited.value.searched == (str(tmp_path / "missing"),)


@pytest.fixture
async def peer(tmp_path: Path) -> Path:
    """A program that was started before: only such a one is started at once."""
    path = small_peer(tmp_path)
    with anyio.fail_after(30):
        async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=path))):
            pass
    transport = ct.SubprocessTransport(ct.ClaudeOptions(cli_path=path))
    assert transport.connect_now()
    await transport.close()
    return path


NOT_AT_ONCE: dict[str, Callable[[Path], ct.SubprocessTransport]] = {
    "a launcher": lambda peer: ct.SubprocessTransport(ct.ClaudeOptions(cli_path=peer), launcher=ct.Launcher.local(["env"])),
    "a session store": lambda peer: ct.SubprocessTransport(ct.ClaudeOptions(cli_path=peer, session_store=InMemorySessionStore())),
    "a settings file": lambda peer: ct.SubprocessTransport(ct.ClaudeOptions(cli_path=peer, settings="settings.json")),
    "Codex": lambda peer: ct.SubprocessTransport(CodexOptions(codex_path=peer)),
}


@pytest.mark.parametrize("what", NOT_AT_ONCE)
async def test_what_takes_time_is_left_to_connect(what: str, peer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CLI_PATH", str(peer))
    transport = NOT_AT_ONCE[what](peer)
    assert not transport.connect_now()
    assert transport.info.pid is None
    await transport.close()


class Changed(ct.SubprocessTransport):
    """Notes which of its methods were called."""

    def __init__(self, peer: Path, called: list[str]) -> None:
        super().__init__(ct.ClaudeOptions(cli_path=peer))
        self.called = called


class ChangesConnect(Changed):
    async def connect(self) -> None:
        self.called.append("changed")
        await super().connect()


class ChangesOpen(Changed):
    async def open(self) -> ProcessStream:
        self.called.append("changed")
        stream = await super().open()
        assert isinstance(stream, ProcessStream)
        return stream


class ChangesClose(Changed):
    async def close(self) -> None:
        self.called.append("changed")
        await super().close()


@pytest.mark.parametrize("kind", [ChangesConnect, ChangesOpen, ChangesClose])
async def test_what_a_subclass_changes_is_called(kind: type[Changed], peer: Path) -> None:
    called: list[str] = []
    with anyio.fail_after(30):
        async with ct.Query(kind(peer, called)):
            pass
    assert called == ["changed"]


class Named(ct.SubprocessTransport, at_once=True):
    """Has no work of its own in the methods, and says so."""


class NamedInPassing(ct.SubprocessTransport):
    """Says nothing."""


async def test_a_subclass_acts_at_once_only_when_it_says_so(peer: Path) -> None:
    options = ct.ClaudeOptions(cli_path=peer)
    assert ct.SubprocessTransport(options).attach(Client()).at_once is not None
    assert Named(options).attach(Client()).at_once is not None
    assert NamedInPassing(options).attach(Client()).at_once is None


def in_cancelled_scope() -> anyio.CancelScope:
    scope = anyio.CancelScope()
    scope.cancel()
    return scope


STOPPED: dict[str, Callable[[], anyio.CancelScope]] = {
    "a cancelled scope": in_cancelled_scope,
    "a deadline that has passed": lambda: anyio.move_on_after(-1),
}


@pytest.mark.parametrize("how", STOPPED)
async def test_a_query_that_is_cancelled_before_its_start_starts_no_process(how: str, peer: Path) -> None:
    transport = ct.SubprocessTransport(ct.ClaudeOptions(cli_path=peer))
    with STOPPED[how]() as scope:
        await ct.Query(transport).start()
    assert scope.cancelled_caught
    assert transport.info.pid is None


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_query_whose_task_is_cancelled_before_its_start_starts_no_process(peer: Path) -> None:
    transport = ct.SubprocessTransport(ct.ClaudeOptions(cli_path=peer))

    async def start() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await ct.Query(transport).start()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(start())
    assert transport.info.pid is None


async def test_a_query_that_is_given_up_in_the_middle_of_its_start_starts_no_process(peer: Path) -> None:
    class GivesUp(ct.SubprocessTransport):
        def attach(self, client: Client) -> SessionTerms:
            query.abandon()
            return super().attach(client)

    query = ct.Query(transport := GivesUp(ct.ClaudeOptions(cli_path=peer)))
    with pytest.raises(ct.TransportClosed), anyio.fail_after(30):
        await query.start()
    assert transport.info.pid is None


class Eager(SendsAtOnce):
    """A stream that takes everything at once, but for `send()`, which waits for `gate`. It notes what it was given."""

    def __init__(self) -> None:
        self.gate, self.is_sending, self.is_over = anyio.Event(), anyio.Event(), anyio.Event()
        self.taken: list[bytes] = []
        self.error: Exception | None = None

    async def send(self, item: bytes) -> None:
        self.is_sending.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.taken.append(bytes(item))

    def send_whole_now(self, item: bytes) -> bool:
        self.taken.append(bytes(item))
        return True

    def send_eof_now(self) -> None:
        self.taken.append(b"")

    async def send_eof(self) -> None:
        await self.gate.wait()
        self.taken.append(b"")

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await self.is_over.wait()
        raise self.error or anyio.EndOfStream

    async def aclose(self) -> None:
        pass


class ConnectsTo(ByteStreamConnectable):
    """Opens one stream that is there."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream

    async def connect(self) -> ByteStream:
        return self.stream


async def test_nothing_overtakes_a_line_that_is_being_written() -> None:
    stream = Eager()
    async with StreamTransport(ConnectsTo(stream)) as transport, anyio.create_task_group() as tasks:
        assert transport.write_now(b"1\n")
        tasks.start_soon(transport.write, b"2\n")
        await stream.is_sending.wait()
        assert not transport.write_now(b"3\n")
        assert not transport.end_input_now()
        stream.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert transport.end_input_now()
        assert not transport.end_input_now()
        assert not transport.write_now(b"4\n")
        await transport.end_input()
    assert not transport.end_input_now()
    assert stream.taken == [b"1\n", b"2\n", b""]


async def test_nothing_is_written_at_once_to_a_peer_whose_output_has_ended() -> None:
    stream = Eager()
    async with StreamTransport(ConnectsTo(stream)) as transport:
        stream.is_over.set()
        assert await read_all(transport) == []
        assert not transport.write_now(b"1\n")
        stream.gate.set()
        await transport.write(b"2\n")  # it may still read
    assert stream.taken[0] == b"2\n"


async def test_a_reader_that_was_told_why_the_output_ended_is_told_nothing_after_the_close() -> None:
    stream = Eager()
    stream.error = anyio.BrokenResourceError()
    stream.is_over.set()
    async with StreamTransport(ConnectsTo(stream)) as transport:
        lines = transport.read_lines()
        for _ in range(2):
            with pytest.raises(ct.ConnectionLost):
                await anext(lines)
    assert [batch async for batch in lines] == []


async def test_an_end_of_input_that_was_cancelled_has_ended_nothing() -> None:
    stream = Eager()
    async with StreamTransport(ConnectsTo(stream)) as transport:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.end_input)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        stream.gate.set()
        await transport.write(b"1\n")
        for _ in range(2):
            await transport.end_input()
        assert stream.taken == [b"1\n", b""]


async def test_a_line_whose_turn_comes_after_the_close_is_not_written() -> None:
    stream, refused = Eager(), list[ct.TransportClosed]()
    transport = StreamTransport(ConnectsTo(stream))
    await transport.connect()

    async def write(line: bytes) -> None:
        try:
            await transport.write(line)
        except ct.TransportClosed as error:
            refused.append(error)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, b"1\n")
            await stream.is_sending.wait()
            tasks.start_soon(write, b"2\n")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(transport.close)
            await anyio.wait_all_tasks_blocked()
            stream.gate.set()
    assert len(refused) == 1
    assert b"2\n" not in stream.taken


@pytest.mark.parametrize("how", ["a line was cut", "a write failed", "it was closed"])
async def test_nothing_is_done_at_once_on_a_connection_that_is_of_no_use(how: str) -> None:
    stream = Eager()
    transport = StreamTransport(ConnectsTo(stream))
    assert not transport.end_input_now()
    await transport.connect()
    if how == "a line was cut":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.write, b"1\n")
            await stream.is_sending.wait()
            tasks.cancel_scope.cancel()
    elif how == "a write failed":
        stream.error = anyio.BrokenResourceError()
        stream.gate.set()
        with pytest.raises(ct.TransportClosed):
            await transport.write(b"1\n")
    else:
        await transport.close()
        stream.taken.clear()
        assert not transport.end_input_now()
    assert not transport.write_now(b"2\n")
    assert stream.taken == []
    await transport.close()
