"""The clauses of `write` and `end_input`, over real children."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from children import CAT, SILENT, pid_of, python, read_all, read_one, shell, until

import claude_transport as ct


async def test_write_order() -> None:
    async with ct.SubprocessTransport(command=CAT) as transport:
        with anyio.fail_after(30):
            for number in range(100):
                await transport.write(json.dumps({"n": number}))
            await transport.end_input()
            assert [message["n"] for message in await read_all(transport)] == list(range(100))


@pytest.mark.parametrize(
    "data",
    ['{"a":1}', '{"a":1}\n', '{"a":1}\r\n', b'{"a":1}', bytearray(b'{"a":1}\n'), memoryview(b'{"a":1}')],
    ids=["text", "text-lf", "text-crlf", "bytes", "bytearray", "memoryview"],
)
async def test_a_line_is_written_with_exactly_one_newline_in_whatever_form_it_comes(data: str | bytes) -> None:
    async with ct.SubprocessTransport(command=CAT) as transport:
        with anyio.fail_after(30):
            await transport.write(data)
            assert transport.info.bytes_written == 8
            await transport.end_input()
            assert [line async for lines in transport.read_lines() for line in lines] == [b'{"a":1}']
            assert transport.info.bytes_read == 8


@pytest.mark.parametrize("data", [7, None, {"a": 1}, "\ud83d"], ids=repr)
async def test_what_is_no_text_is_refused_and_harms_nothing(data: object) -> None:
    async with ct.SubprocessTransport(command=CAT) as transport:
        with pytest.raises(ct.UsageError):
            await transport.write(data)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        with anyio.fail_after(30):
            await transport.write("{}")
            assert await read_one(transport) == {}


async def test_write_no_interleaving_with_a_hundred_writers_racing_the_end_of_input() -> None:
    rng = random.Random(1)
    received: list[dict[str, Any]] = []
    written: list[int] = []
    refused: list[int] = []
    transport = ct.SubprocessTransport(command=CAT)

    async def write(number: int) -> None:
        for _ in range(rng.randrange(30)):
            await anyio.lowlevel.checkpoint()
        try:
            await transport.write(json.dumps({"n": number, "text": "x" * rng.randrange(30_000)}))
        except ct.InputClosed:
            refused.append(number)
        else:
            written.append(number)

    async def end() -> None:
        for _ in range(15):
            await anyio.lowlevel.checkpoint()
        await transport.end_input()

    async with transport:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(write, number)
                tasks.start_soon(end)
                received += await read_all(transport)
        assert transport.info.noise_lines == 0
    assert [message["n"] for message in received] == written
    assert sorted(written + refused) == list(range(100))
    assert written
    assert refused


async def test_write_backpressure_waits_while_the_peer_does_not_read(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    transport = ct.SubprocessTransport(command=["sh", "-c", 'until [ -e "$0" ]; do sleep 0.01; done; exec cat >&2', str(gate)])
    async with transport:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(transport.write, "x" * 1_000_000)
                await anyio.wait_all_tasks_blocked()
                assert transport.info.bytes_written == 0
                gate.touch()
        assert transport.info.bytes_written == 1_000_001


async def test_write_cancel_poisons_and_broken_stays_broken() -> None:
    async with ct.SubprocessTransport(command=SILENT, close_timeout=0.2) as transport:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.write, "x" * 1_000_000)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert not transport.is_ready()
        for _ in range(2):
            with pytest.raises(ct.TransportClosed, match="middle of a line"):
                await transport.write("{}")


async def test_a_cancellation_before_the_first_byte_poisons_nothing() -> None:
    async with ct.SubprocessTransport(command=CAT) as transport:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.write('{"never":1}')
        assert scope.cancelled_caught
        assert transport.is_ready()
        with anyio.fail_after(30):
            await transport.write('{"then":1}')
            assert await read_one(transport) == {"then": 1}


def test_a_native_cancellation_before_the_first_byte_poisons_nothing() -> None:
    async def main() -> None:
        async with ct.SubprocessTransport(command=CAT) as transport:
            task = asyncio.create_task(transport.write('{"never":1}'))
            await asyncio.sleep(0)  # it has begun
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await transport.write('{"then":1}')
            assert await asyncio.wait_for(read_one(transport), 10) == {"then": 1}

    asyncio.run(main())


async def test_a_writer_that_is_cancelled_while_it_waits_for_its_turn_harms_nobody(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    transport = ct.SubprocessTransport(command=["sh", "-c", 'until [ -e "$0" ]; do sleep 0.01; done; exec cat', str(gate)])
    async with transport, anyio.create_task_group() as tasks:
        tasks.start_soon(transport.write, json.dumps({"text": "x" * 300_000}))
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(transport.write, '{"never":1}')
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        tasks.start_soon(transport.write, '{"then":1}')
        gate.touch()
        with anyio.fail_after(30):
            assert len((await read_one(transport))["text"]) == 300_000
            assert await read_one(transport) == {"then": 1}


async def test_write_after_end_raises_and_end_is_idempotent() -> None:
    async with ct.SubprocessTransport(command=CAT) as transport:
        await transport.end_input()
        await transport.end_input()
        with pytest.raises(ct.InputClosed):
            await transport.write("{}")


async def test_end_input_that_was_cancelled_can_be_repeated() -> None:
    async with ct.SubprocessTransport(command=CAT) as transport:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.end_input()
        await transport.end_input()
        with anyio.fail_after(30):
            assert await read_all(transport) == []


def test_end_input_that_was_cancelled_natively_can_be_repeated() -> None:
    async def main() -> None:
        async with ct.SubprocessTransport(command=CAT) as transport:
            task = asyncio.create_task(transport.end_input())
            await asyncio.sleep(0)  # it has begun
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await transport.end_input()
            assert await asyncio.wait_for(read_all(transport), 5) == []

    asyncio.run(main())


async def test_end_half_close_reading_goes_on() -> None:
    child = shell("""while read -r line; do :; done; echo '{"after":"end"}'""")
    async with ct.SubprocessTransport(command=child) as transport:
        with anyio.fail_after(30):
            await transport.write("{}")
            await transport.end_input()
            assert await read_all(transport) == [{"after": "end"}]


async def test_write_before_connect_and_after_close_raise() -> None:
    transport = ct.SubprocessTransport(command=CAT)
    for call in (transport.write("{}"), transport.end_input()):
        with pytest.raises(ct.NotConnected):
            await call
    await transport.connect()
    await transport.close()
    for call in (transport.write("{}"), transport.end_input()):
        with pytest.raises(ct.TransportClosed):
            await call


async def test_write_large_while_peer_writes_large() -> None:
    child = python(
        """
        import os, sys
        sys.stdout.write('{"text":"' + "y" * 5_000_000 + '"}\\n')
        sys.stdout.flush()
        print('{"read":%d}' % len(sys.stdin.buffer.readline()))
        """
    )
    async with ct.SubprocessTransport(command=child) as transport, anyio.create_task_group() as tasks:
        with anyio.fail_after(30):
            tasks.start_soon(transport.write, "x" * 5_000_000)
            first, second = await read_all(transport)
            assert len(first["text"]) == 5_000_000
            assert second == {"read": 5_000_001}


async def test_a_write_to_a_dead_child_says_how_it_died() -> None:
    async with ct.SubprocessTransport(command=shell("echo boom >&2; exit 3")) as transport:
        await until(lambda: not transport.is_ready())
        for _ in range(2):
            with anyio.fail_after(30), pytest.raises(ct.TransportClosed) as caught:
                await transport.write("{}")
            assert (caught.value.exit_code, caught.value.signal, caught.value.stderr_tail) == (3, None, "boom")
            assert isinstance(caught.value.__cause__, ct.ProcessError)


async def test_a_writer_that_waits_when_the_child_is_killed_is_told_so() -> None:
    transport = ct.SubprocessTransport(command=SILENT)
    errors: list[ct.TransportClosed] = []

    async def write() -> None:
        try:
            await transport.write("x" * 1_000_000)
        except ct.TransportClosed as error:
            errors.append(error)

    async with transport:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
                await anyio.wait_all_tasks_blocked()
                os.kill(pid_of(transport), signal.SIGKILL)
    assert [error.signal for error in errors] == [9]


async def test_a_write_after_the_child_left_a_heir_of_its_input_is_not_swallowed() -> None:
    # the background process inherits the pipe, so the system would take the bytes
    child = shell("exec 3<&0; sleep 1000 <&3 & exec 3<&-; exit 4")
    async with ct.SubprocessTransport(command=child, close_timeout=1) as transport:
        await until(lambda: not transport.is_ready())
        with anyio.fail_after(30), pytest.raises(ct.TransportClosed) as caught:
            await transport.write("{}")
        assert caught.value.exit_code == 4


async def test_a_child_that_ended_well_still_takes_no_writes() -> None:
    async with ct.SubprocessTransport(command=shell("exit 0")) as transport:
        with anyio.fail_after(30):
            assert await read_all(transport) == []
            with pytest.raises(ct.TransportClosed) as caught:
                await transport.write("{}")
        assert caught.value.exit_code == 0


async def test_lines_that_are_written_without_waiting_arrive_whole_in_order_and_are_counted() -> None:
    async with ct.SubprocessTransport(command=CAT) as transport:
        with anyio.fail_after(30):
            await transport.write('{"n":0}')
            for number in range(1, 100):
                assert transport.write_now(b'{"n":%d}\n' % number)
            assert transport.info.bytes_written == 10 * 8 + 90 * 9
            await transport.end_input()
            assert [message["n"] for message in await read_all(transport)] == list(range(100))


async def test_what_would_have_to_wait_is_not_written_now_and_harms_nothing(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    line = b'{"filled":1}\n'
    transport = ct.SubprocessTransport(command=["sh", "-c", 'until [ -e "$0" ]; do sleep 0.01; done; exec cat', str(gate)])
    assert not transport.write_now(line)  # not connected
    async with transport:
        with anyio.fail_after(30):
            assert not transport.write_now(b"x" * 100_000 + b"\n")  # a long line could be cut
            filled = 0
            while transport.write_now(line):
                filled += 1
            assert transport.info.bytes_written == filled * len(line) > 4096
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(transport.write, '{"waits":1}')
                await anyio.wait_all_tasks_blocked()
                gate.touch()
                assert (await read_one(transport)) == {"filled": 1}
            await transport.end_input()
            assert not transport.write_now(line)
            assert await read_all(transport) == [*[{"filled": 1}] * (filled - 1), {"waits": 1}]
    assert not transport.write_now(line)


async def test_nothing_is_written_now_while_another_line_is_half_out() -> None:
    async with ct.SubprocessTransport(command=SILENT, close_timeout=0.2) as transport, anyio.create_task_group() as tasks:
        tasks.start_soon(transport.write, "x" * 1_000_000)
        await anyio.wait_all_tasks_blocked()
        assert not transport.write_now(b"{}\n")
        tasks.cancel_scope.cancel()
    assert not transport.write_now(b"{}\n")


async def test_a_transport_that_changes_write_is_given_every_line() -> None:
    class Noting(ct.SubprocessTransport):
        def __init__(self) -> None:
            super().__init__(command=CAT)
            self.noted: list[str | bytes] = []

        async def write(self, data: str | bytes) -> None:
            self.noted.append(data)
            await super().write(data)

    async with Noting() as transport:
        assert not transport.write_now(b"{}\n")
