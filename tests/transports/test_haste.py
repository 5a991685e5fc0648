"""Haste with real processes: whoever leaves by an error, a cancellation or a deadline waits about a second, and nothing stays behind.

Real time is compared here, with five times what was measured as the bound (docs/explanation/closing-a-process.md has the figures).
"""

# A block that pytest or a cancel scope leaves by an exception has bound what stands before it.
# pyright: reportPossiblyUnboundVariable=false
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream, ByteStreamConnectable
from children import STUBBORN, alive, gone, pid_of, read_one, shell
from virtual_time import virtual_time

import claude_transport as ct
from claude_transport.errors import MissingResult
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.testing.scenario import Turn
from claude_transport.testing.steps import Delay, Exit, ForkGrandchild, Hang, IgnoreSignal, Text

BOUND = 4.8
"""Seconds, five times what a leave in haste took of a process that ignores everything. Without haste such a leave took 9.5."""

STAYS = (IgnoreSignal("SIGTERM"), IgnoreSignal("SIGINT"))


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@contextmanager
def wedged(*more: object) -> Iterator[FakeClaude]:
    """A claude that writes a word and then hangs, in spite of the end of its input, an interrupt and SIGTERM."""
    with FakeClaude(Scenario(otherwise=Turn((*STAYS, *more, Text("word"), Hang())), at_eof=[Hang()])) as fake:  # type: ignore[arg-type]
        yield fake


def stopped(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


async def test_a_cancelled_close_of_a_transport_hurries() -> None:
    transport = ct.SubprocessTransport(command=STUBBORN, close_timeout=30)
    await transport.connect()
    assert await read_one(transport) == {}
    pid = pid_of(transport)
    with at_most(BOUND), anyio.CancelScope() as scope:
        scope.cancel()
        await transport.close()
    assert not alive(pid)
    assert (transport.info.exit_code, transport.info.signal, transport.info.killed) == (None, signal.SIGKILL, True)


async def test_a_close_that_is_cancelled_in_the_middle_hurries() -> None:
    transport = ct.SubprocessTransport(command=STUBBORN, close_timeout=60)
    await transport.connect()
    assert await read_one(transport) == {}
    pid = pid_of(transport)
    with at_most(0.3 + BOUND), anyio.move_on_after(0.3):
        await transport.close()
    assert not alive(pid)


async def test_a_child_that_ends_with_its_input_is_not_signalled_in_haste(tmp_path: Path) -> None:
    """It has time to write down what it knows: more than half of a second."""
    written = tmp_path / "transcript"
    command = ["sh", "-c", 'trap "exit 9" TERM; echo "{}"; cat > /dev/null; sleep 0.1; echo saved > "$0"', str(written)]
    transport = ct.SubprocessTransport(command=command)
    await transport.connect()
    assert await read_one(transport) == {}
    with anyio.CancelScope() as scope:
        scope.cancel()
        await transport.close()
    assert (transport.info.exit_code, transport.info.killed, written.read_text()) == (0, False, "saved\n")


class Wedged(ByteStream):
    """A stream that takes everything, says nothing and does not close."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.sleep_forever()
        return b""

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await anyio.sleep_forever()


class Opener(ByteStreamConnectable):
    async def connect(self) -> Wedged:
        return Wedged()


@virtual_time
@pytest.mark.parametrize("hurried", [(), (2.0,), (2.0, 600.0), (600.0, 2.0), (600.0,)], ids=str)
@pytest.mark.parametrize("at", ["before", "under way"])
async def test_of_all_the_times_that_a_close_is_given_the_least_counts(hurried: tuple[float, ...], at: str) -> None:
    transport = ct.StreamTransport(Opener(), close_timeout=30)
    await transport.connect()
    begun = anyio.current_time()

    def hurry() -> None:
        for seconds in hurried:
            transport.hurry(seconds)

    if at == "before":
        hurry()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(transport.close)
        await anyio.wait_all_tasks_blocked()
        if at == "under way":
            hurry()
    least = min((30.0, *hurried))
    assert least <= anyio.current_time() - begun < least + 1


async def test_a_transport_that_was_hurried_before_it_is_closed_kills_in_time() -> None:
    transport = ct.SubprocessTransport(command=STUBBORN, close_timeout=60)
    await transport.connect()
    assert await read_one(transport) == {}
    pid = pid_of(transport)
    transport.hurry(0.2)
    with at_most(2.0):
        await transport.close()
    assert not alive(pid)


@asynccontextmanager
async def in_a_turn(fake: FakeClaude, **arguments: float) -> AsyncIterator[ct.Query]:
    """A query whose claude hangs in its first turn, and whose pid is known."""
    options = ct.ClaudeOptions(cli_path=str(fake.path), include_partial_messages=True)
    query = ct.Query(ct.SubprocessTransport(options), **arguments)  # type: ignore[arg-type]
    async with query:
        turn = await query.send("hello")
        await anext(aiter(turn))
        yield query


async def by_error(fake: FakeClaude) -> int:
    with pytest.raises(KeyError):
        async with in_a_turn(fake) as query:
            pid = query.info.pid
            raise KeyError
    assert pid is not None
    return pid


async def by_cancellation(fake: FakeClaude) -> int:
    with anyio.CancelScope() as scope:
        async with in_a_turn(fake) as query:
            pid = query.info.pid
            scope.cancel()
            await anyio.sleep_forever()
    assert pid is not None
    return pid


async def by_cancellation_of_a_stopped_process(fake: FakeClaude) -> int:
    with anyio.CancelScope() as scope:
        async with in_a_turn(fake) as query:
            pid = query.info.pid
            assert pid is not None
            stopped(pid)
            scope.cancel()
            await anyio.sleep_forever()
    assert pid is not None
    return pid


async def with_a_close_timeout(fake: FakeClaude) -> int:
    async with in_a_turn(fake, close_timeout=1.0) as query:
        pid = query.info.pid
    assert pid is not None
    return pid


WAYS = [by_error, by_cancellation, by_cancellation_of_a_stopped_process, with_a_close_timeout]


@pytest.mark.parametrize("way", WAYS)
async def test_a_query_leaves_a_wedged_claude_in_haste(way: Callable[[FakeClaude], Awaitable[int]]) -> None:
    with wedged() as fake, at_most(2 * BOUND):  # with the start of the process
        began = time.monotonic()
        pid = await way(fake)
        assert time.monotonic() - began < 2 * BOUND
    assert not alive(pid)


async def test_what_a_wedged_process_has_started_is_gone_too(tmp_path: Path) -> None:
    """In its group and out of it, with and without a parent, although it ignores SIGTERM."""
    script = """
        trap "" TERM HUP INT
        sh -c 'trap "" TERM; echo $$ > "$0/group"; while :; do sleep 1000; done' "$0" &
        setsid sh -c 'echo $$ > "$0/session"; sleep 1000' "$0" &
        (setsid sh -c 'echo $$ > "$0/orphan"; sleep 1000' "$0" &)
        while [ ! -s "$0/group" ] || [ ! -s "$0/session" ] || [ ! -s "$0/orphan" ]; do sleep 0.01; done
        echo "{}"
        while :; do sleep 1000; done
    """
    transport = ct.SubprocessTransport(command=[*shell(script), str(tmp_path)], close_timeout=60)
    await transport.connect()
    assert await read_one(transport) == {}
    pids = [int((tmp_path / name).read_text()) for name in ("group", "session", "orphan")]
    with at_most(BOUND), anyio.CancelScope() as scope:
        scope.cancel()
        await transport.close()
    for pid in (*pids, pid_of(transport)):
        await gone(pid, seconds=5)


async def test_a_call_that_is_late_ends_soon_after_its_time() -> None:
    with wedged() as fake:
        options = ct.ClaudeOptions(cli_path=str(fake.path))
        with at_most(2.0 + BOUND), pytest.raises(MissingResult) as caught:
            await ct.complete("hello", transport="cli", timeout=2.0, options=options)
    assert (caught.value.code, caught.value.category) == ("exec.cli.timeout", "timeout")


async def test_a_call_that_is_cancelled_ends_soon() -> None:
    with wedged() as fake, at_most(1.0 + BOUND), anyio.move_on_after(1.0) as scope:
        await ct.complete("hello", transport="cli", options=ct.ClaudeOptions(cli_path=str(fake.path)))
    assert scope.cancelled_caught


async def test_a_stream_that_is_left_ends_soon() -> None:
    with wedged() as fake:
        async with ct.stream("hello", transport="cli", options=ct.ClaudeOptions(cli_path=str(fake.path))) as pieces:
            async for piece in pieces:
                assert piece == "word"
                break
            began = time.monotonic()
        assert time.monotonic() - began < BOUND


async def test_a_leftover_that_holds_the_output_delays_a_good_end_by_no_second() -> None:
    """It takes 0.2 seconds for the output, and up to half a second for the group. It was 1.5."""
    with FakeClaude(Scenario.echo(startup=[ForkGrandchild(1000)])) as fake:
        async with ct.Query(ct.SubprocessTransport(command=fake.command)) as query:
            await (await query.send("hello")).result()
            report = await query.aclose()
    assert (report.exit_code, report.killed, report.ended_by_itself) == (0, False, True)


async def test_a_pool_that_is_left_by_an_error_hurries() -> None:
    with wedged() as fake:
        options = ct.ClaudeOptions(cli_path=str(fake.path), include_partial_messages=True)
        with pytest.raises(KeyError):
            async with ct.SessionPool(options, warm=0) as pool, pool.acquire() as query:
                await anext(aiter(await query.send("hello")))
                pid = query.info.pid
                began = time.monotonic()
                raise KeyError
        assert time.monotonic() - began < BOUND
    assert pid is not None
    assert not alive(pid)


async def test_a_codex_that_ignores_everything_is_left_in_haste() -> None:
    from claude_transport.codex import CodexSession
    from claude_transport.testing import CodexScenario, FakeCodex

    with FakeCodex(CodexScenario(startup=STAYS, at_eof=[Hang()])) as fake, pytest.raises(KeyError):
        async with CodexSession(ct.SubprocessTransport(command=fake.command)) as session:
            pid = session.info.pid
            began = time.monotonic()
            raise KeyError
    assert time.monotonic() - began < BOUND
    assert pid is not None
    assert not alive(pid)


async def test_a_gateway_that_is_closed_ends_a_process_in_its_close_timeout() -> None:
    """The process ignores everything. By default it gets 5 seconds."""
    async with (
        ct.Gateway(listen=["tcp://127.0.0.1:0"], command=STUBBORN, modes=["plain"], close_timeout=0.2) as gateway,
        ct.NetworkTransport(gateway.urls[0], resume=False) as transport,
    ):
        assert await read_one(transport) == {}
        (pid,) = (session.pid for session in gateway.sessions)
        with at_most(BOUND):
            await gateway.aclose()
    assert pid is not None
    assert not alive(pid)


@pytest.mark.parametrize("arguments", [(), ("--close-timeout", "0.3")])
def test_ask_ends_a_claude_that_ignores_everything_in_its_close_timeout(arguments: tuple[str, ...]) -> None:
    with wedged() as fake:
        command = [sys.executable, "-m", "claude_transport", "ask", "--cli-path", str(fake.path), "--timeout", "2", *arguments, "hello"]
        with at_most(2 + 2 * BOUND):  # with the start of two programs
            ran = subprocess.run(command, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, b"word\n")
    assert b"[exec.cli.timeout]" in ran.stderr


def ask(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "claude_transport", "ask", "--timeout", "2", *arguments, "hello"]
    return subprocess.run(command, capture_output=True, check=False)


SAVES = [Delay(1.5), Exit(7)]
"""At the end of the input: longer than there is in haste by default."""


@pytest.mark.parametrize(("arguments", "saved"), [((), False), (("--close-timeout", "60"), True)])
def test_ask_whose_time_is_over_lets_the_process_save_its_session_for_close_timeout_seconds(
    arguments: tuple[str, ...], saved: bool
) -> None:
    with FakeClaude(Scenario(otherwise=Turn((Text("word"), Delay(600))), at_eof=SAVES)) as fake:
        assert ask("--cli-path", str(fake.path), *arguments).returncode == 1
        calls = fake.calls()
    assert [call.exit_code == 7 for call in calls] == [saved]


@pytest.mark.parametrize(("arguments", "saved"), [((), False), (("--close-timeout", "60"), True)])
def test_ask_gives_that_time_to_a_codex_too(arguments: tuple[str, ...], saved: bool) -> None:
    from claude_transport.testing import CodexScenario, FakeCodex

    with FakeCodex(CodexScenario(otherwise=[Delay(600)], at_eof=SAVES)) as fake:
        assert ask("--agent", "codex", "--codex-path", str(fake.path), *arguments).returncode == 1
        calls = fake.calls()
    assert [call.exit_code == 7 for call in calls] == [saved]
