"""The clauses of `read_messages` and `read_lines`, over real children."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from children import CAT, aiter_of, pid_of, python, read_all, read_one, shell, until

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.testing.steps import (
    BigLine,
    CloseStdout,
    DieBySignal,
    EmitRaw,
    Exit,
    Flood,
    ForkGrandchild,
    Hang,
    StderrFlood,
)


def printing(data: bytes, *, then: str = "") -> list[str]:
    """A child that writes exactly these bytes."""
    return python(f"import os, sys\nos.write(1, {data!r})\n{then}")


async def outcome_of(transport: ct.Transport) -> tuple[list[Any], Exception | None]:
    """Everything that can be read, and the error at the end."""
    messages: list[Any] = []
    with anyio.fail_after(30):
        async with transport:
            try:
                async for message in transport.read_messages():
                    messages.append(message)  # noqa: PERF401 - kept when the iteration fails
            except ct.ClaudeTransportError as error:
                return messages, error
    return messages, None


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_read_any_chunking(size: int) -> None:
    text = '{"text":"ä\u2028😀"}\n{"n":2}\n'.encode()
    with FakeClaude(Scenario(script=(EmitRaw(text, chunk_size=size), Exit(0)))) as fake:
        messages, error = await outcome_of(ct.SubprocessTransport(command=fake.command))
    assert messages == [{"text": "ä\u2028😀"}, {"n": 2}]
    assert error is None


async def test_read_order_of_a_flood() -> None:
    child = python("import sys\nfor n in range(20000): sys.stdout.write('{\"n\":%d}\\n' % n)")
    messages, error = await outcome_of(ct.SubprocessTransport(command=child))
    assert [message["n"] for message in messages] == list(range(20000))
    assert error is None


async def test_read_skips_noise_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    transport = ct.SubprocessTransport(command=printing(b'hello\n\n{"a":1}\n[SandboxDebug] x\n7\n\xff\n{"b":2}\n'))
    with caplog.at_level(logging.WARNING, logger="claude_transport"):
        messages, error = await outcome_of(transport)
    assert (messages, error) == ([{"a": 1}, {"b": 2}], None)
    assert transport.info.noise_lines == 4
    assert "hello" not in caplog.text
    assert len(caplog.records) == 4


async def test_noise_without_end_is_counted_whole_and_logged_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    transport = ct.SubprocessTransport(command=printing(b"x\n" * 5000 + b'{"torn":\n' * 20 + b'{"b":2}\n'))
    with caplog.at_level(logging.WARNING, logger="claude_transport"):
        messages, error = await outcome_of(transport)
    assert (messages, error) == ([{"b": 2}], None)
    assert (transport.info.noise_lines, transport.info.malformed_lines) == (5020, 20)
    said = [record.getMessage() for record in caplog.records]
    one = "SubprocessTransport: left out a line that holds no message (noise, 1 bytes"
    assert said[:19] == [f"{one})"] * 10 + [f"{one}, {2**n} so far)" for n in range(4, 13)]
    assert len(said) == 19 + 11


async def test_read_bad_line_costs_one_line() -> None:
    transport = ct.SubprocessTransport(command=printing(b'{"a":1}\n{"torn":\n{"b":2}\n'))
    assert await outcome_of(transport) == ([{"a": 1}, {"b": 2}], None)
    assert transport.info.malformed_lines == 1


async def test_read_line_limit_costs_one_line() -> None:
    with FakeClaude(Scenario(script=(BigLine(200_000), EmitRaw(b'{"next":1}\n'), Exit(0)))) as fake:
        transport = ct.SubprocessTransport(command=fake.command, max_line_bytes=100_000)
        assert await outcome_of(transport) == ([{"next": 1}], None)
    assert transport.info.oversized_lines == 1
    assert transport.info.noise_lines == 0


async def test_a_line_of_twenty_megabytes_is_read_by_default() -> None:
    with FakeClaude(Scenario(script=(BigLine(20_000_000), Exit(0)))) as fake:
        messages, error = await outcome_of(ct.SubprocessTransport(command=fake.command))
    assert error is None
    assert len(messages[0]["message"]["content"][0]["text"]) > 19_000_000


@pytest.mark.parametrize(
    "tail",
    [b'{"b":2}', b'{"b":2} \r', b'{"b":"\\ud83d"}', b'{"b":NaN}', b'{"b":"\xff"}', b"  {}"],
    ids=["plain", "carriage return", "lone surrogate", "NaN", "not UTF-8", "blanks"],
)
async def test_read_final_line_without_newline(tail: bytes) -> None:
    transport = ct.SubprocessTransport(command=printing(b'{"a":1}\n' + tail))
    messages, error = await outcome_of(transport)
    assert error is None
    assert len(messages) == transport.info.lines_read == 2


@pytest.mark.parametrize("tail", [b'{"b":', b"{", b'{"b":"\xe2\x80'], ids=["middle", "brace", "middle of a character"])
async def test_read_truncated_tail_is_reported(tail: bytes) -> None:
    messages, error = await outcome_of(ct.SubprocessTransport(command=printing(b'{"a":1}\n' + tail)))
    assert messages == [{"a": 1}]
    assert isinstance(error, ct.TruncatedStream)
    assert error.bytes_tail == tail


async def test_a_truncated_tail_of_a_failed_process_is_its_cause() -> None:
    messages, error = await outcome_of(ct.SubprocessTransport(command=printing(b'{"a":1}\n{"b', then="sys.exit(5)")))
    assert messages == [{"a": 1}]
    assert isinstance(error, ct.ProcessError)
    assert error.exit_code == 5
    assert isinstance(error.__cause__, ct.TruncatedStream)


async def test_an_unfinished_line_over_the_limit_costs_that_line() -> None:
    transport = ct.SubprocessTransport(command=printing(b'{"a":1}\n{"b":"' + b"x" * 5000), max_line_bytes=2000)
    assert await outcome_of(transport) == ([{"a": 1}], None)
    assert transport.info.oversized_lines == 1


async def test_noise_without_a_newline_at_the_end_is_noise() -> None:
    transport = ct.SubprocessTransport(command=printing(b'{"a":1}\nbye'))
    assert await outcome_of(transport) == ([{"a": 1}], None)
    assert transport.info.noise_lines == 1


async def test_read_failure_after_last_message_again_and_again() -> None:
    with FakeClaude(Scenario(script=(EmitRaw(b'{"last":1}\n'), DieBySignal("SIGTERM")))) as fake:
        async with ct.SubprocessTransport(command=fake.command) as transport:
            with anyio.fail_after(30):
                assert await read_one(transport) == {"last": 1}
                for _ in range(2):
                    with pytest.raises(ct.ProcessError) as caught:
                        await read_one(transport)
                    assert caught.value.signal == 15
            assert not transport.is_ready()


async def test_read_clean_eof_stops_again_and_again() -> None:
    async with ct.SubprocessTransport(command=printing(b"{}\n")) as transport:
        with anyio.fail_after(30):
            assert await read_all(transport) == [{}]
            assert await read_all(transport) == []


async def test_read_one_reader() -> None:
    async with ct.SubprocessTransport(command=CAT) as transport, anyio.create_task_group() as tasks:
        received: list[dict[str, Any]] = []

        async def read() -> None:
            received.append(await read_one(transport))

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ct.Busy):
            await read_one(transport)
        with pytest.raises(ct.Busy):
            await anext(aiter(transport.read_lines()))
        await transport.write("{}")
        with anyio.fail_after(30):
            await until(lambda: received == [{}])


async def test_read_resumable_in_either_view() -> None:
    async with ct.SubprocessTransport(command=printing(b"".join(b'{"n":%d}\n' % n for n in range(10)))) as transport:
        with anyio.fail_after(30):
            async for message in transport.read_messages():
                if message["n"] == 3:
                    break
            batches = aiter(transport.read_lines())
            assert [json.loads(line)["n"] for line in await anext(batches)] == [4, 5, 6, 7, 8, 9]
            with pytest.raises(StopAsyncIteration):
                await anext(batches)


Reader = Callable[[], Coroutine[Any, Any, None]]


async def cancelled_by_scope(read: Reader, rounds: int) -> None:
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for _ in range(rounds):
                await anyio.lowlevel.checkpoint()
            scope.cancel()


async def cancelled_natively(read: Reader, rounds: int) -> None:
    task = asyncio.create_task(read())
    for _ in range(rounds):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    ("backend", "cancelled"),
    [("asyncio", cancelled_by_scope), ("trio", cancelled_by_scope), ("asyncio", cancelled_natively)],
    ids=["asyncio scope", "trio scope", "asyncio task.cancel"],
)
def test_read_cancel_loses_nothing(backend: str, cancelled: Callable[[Reader, int], Awaitable[None]]) -> None:
    rng = random.Random(7)
    count = 300

    async def main() -> None:
        received: list[int] = []
        transport = ct.SubprocessTransport(command=CAT)

        async def read() -> None:
            async for message in transport.read_messages():
                received.append(message["n"])
                if rng.random() < 0.3:
                    await anyio.lowlevel.checkpoint()

        async def write() -> None:
            for number in range(count):
                await transport.write(json.dumps({"n": number, "text": "x" * rng.randrange(2000)}))

        async with transport, anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            with anyio.fail_after(30):
                while len(received) < count:
                    await cancelled(read, rng.randrange(12))
        assert received == list(range(count))

    anyio.run(main, backend=backend)


# ------------------------------------------------------------------------------------------------- what others do to the pipes


async def test_a_grandchild_that_holds_stdout_does_not_hang_the_reader() -> None:
    """The end comes a second after the exit."""
    with FakeClaude(Scenario(script=(ForkGrandchild(1000, holds_stdout=True), EmitRaw(b'{"a":1}\n'), Exit(3)))) as fake:
        error = await end_after_a_message(ct.SubprocessTransport(command=fake.command), seconds=6)  # 1.0 was measured
    assert isinstance(error, ct.ProcessError)
    assert (error.exit_code, error.signal, error.stderr_tail) == (3, None, "")


async def end_after_a_message(transport: ct.Transport, *, seconds: float) -> Exception | None:
    """Read a message and then, in so many seconds, the end; return the error that it came with."""
    async with transport:
        reading = aiter_of(transport)
        with anyio.fail_after(30):
            assert await anext(reading) == {"a": 1}
        with anyio.fail_after(seconds):
            try:
                assert [message async for message in reading] == []
            except ct.ClaudeTransportError as error:
                return error
    return None


async def test_a_grandchild_that_floods_stderr_does_not_stop_the_event_loop() -> None:
    messages, error = await outcome_of(
        ct.SubprocessTransport(command=shell("cat /dev/zero >&2 & cat /dev/zero >&2 & echo '{}'; exit 0"), close_timeout=1)
    )
    assert (messages, error) == ([{}], None)


async def test_a_child_that_closes_its_output_and_lives_on_does_not_hang_the_reader() -> None:
    """Two seconds are given to it to end."""
    with FakeClaude(Scenario(script=(EmitRaw(b'{"a":1}\n'), CloseStdout(), Hang()))) as fake:
        transport = ct.SubprocessTransport(command=fake.command, close_timeout=0.3)
        assert await end_after_a_message(transport, seconds=10) is None  # 2.0 were measured


async def test_ten_megabytes_on_stderr_that_nobody_asked_for_block_nothing() -> None:
    with FakeClaude(Scenario(startup=(StderrFlood(10 * 2**20),), script=(Flood(100_000), Exit(0)))) as fake:
        transport = ct.SubprocessTransport(command=fake.command)
        messages, error = await outcome_of(transport)
    assert error is None
    assert messages
    assert len(transport.info.stderr_tail) <= 64 * 2**10


async def test_an_endless_flood_on_stderr_leaves_the_event_loop_running() -> None:
    async with ct.SubprocessTransport(command=shell("cat /dev/zero >&2 & cat /dev/zero >&2 & exec cat"), close_timeout=1) as transport:
        with anyio.fail_after(30):
            await transport.write("{}")
            assert await read_one(transport) == {}


async def test_a_stderr_callback_that_raises_is_logged_once_and_gets_every_line(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    def on_stderr(line: str) -> None:
        lines.append(line)
        raise ValueError("the callback is broken")

    child = shell("printf 'one\\r\\ntwo\\n\\377three\\nlast words' >&2")
    assert await outcome_of(ct.SubprocessTransport(command=child, on_stderr=on_stderr)) == ([], None)
    assert lines == ["one", "two", "\ufffdthree", "last words"]
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_the_last_words_are_handed_on_before_anybody_closes() -> None:
    lines: list[str] = []
    async with ct.SubprocessTransport(command=shell("printf 'no newline' >&2; exec 2>&-; exec cat"), on_stderr=lines.append):
        await until(lambda: lines == ["no newline"])


async def test_a_dead_child_is_not_ready_although_nobody_reads_or_writes() -> None:
    async with ct.SubprocessTransport(command=shell("exit 0")) as transport:
        await until(lambda: not transport.is_ready())
        assert transport.info.exit_code == 0


async def test_the_facts_are_known_during_and_after() -> None:
    transport = ct.SubprocessTransport(command=CAT)
    assert transport.info.pid is None
    async with transport:
        info = transport.info
        assert info.kind == "SubprocessTransport"
        assert info.pid == info.pgid == pid_of(transport)
        assert info.started_at is not None
        assert info.started_at.tzinfo is not None
        assert info.exit_code is None
    assert transport.info.exit_code == 0
    assert not transport.info.killed


async def test_reading_before_connect_and_after_close_raises() -> None:
    transport = ct.SubprocessTransport(command=CAT)
    for view in (transport.read_messages, transport.read_lines):
        with pytest.raises(ct.NotConnected):
            view()
    async with transport:
        reader = aiter_of(transport)
    for view in (transport.read_messages, transport.read_lines):
        with pytest.raises(ct.TransportClosed):
            view()
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


def test_without_pidfd_every_exit_is_noticed_however_few_threads_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.pidfd_open")

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 1
        async with ct.SubprocessTransport(command=CAT), ct.SubprocessTransport(command=shell("exit 7")) as short:
            await until(lambda: not short.is_ready())
            assert short.info.exit_code == 7

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)


async def test_a_strict_transport_says_which_line_holds_no_message() -> None:
    good, bad = b'{"n":1}\n', b"no message\n"
    seen: list[int] = []
    async with ct.SubprocessTransport(command=printing(good * 30 + bad + good * 5 + bad + bad + good), strict=True) as transport:
        messages = transport.read_messages()
        for _ in range(3):
            with pytest.raises(ct.CLIJSONDecodeError) as caught:
                async for _message in messages:
                    pass
            assert caught.value.line_number is not None
            seen.append(caught.value.line_number)
    assert seen == [31, 37, 38]
