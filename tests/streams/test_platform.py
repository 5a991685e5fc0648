"""What Windows has in place of POSIX is loaded there only; its logic is tried here with this system's processes, on both event loops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claude_transport.errors import ConfigurationError, ProcessError
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.process import PumpedStream
from claude_transport.streams.reaping import StderrTail
from claude_transport.streams.windows import PumpedInflow, WindowsChild, start_child

ECHO = "import sys\nfor line in sys.stdin.buffer:\n    sys.stdout.buffer.write(line)\n    sys.stdout.buffer.flush()\n"
STUBBORN = "import os, time\nos.write(1, b'up\\n')\ntime.sleep(600)\n"


class ProcessGroup:
    """Stands in for a Job Object: the group that a child leads."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.is_closed = False

    def terminate(self) -> None:
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.terminate()


class Powerless(ProcessGroup):
    """One that ends nothing. The process itself is killed when it is let go."""

    def terminate(self) -> None:
        pass


async def nothing(pid: int) -> None:
    """Stands in for CTRL_BREAK to a program that ignores it."""


async def terminate(pid: int) -> None:
    """Stands in for CTRL_BREAK."""
    os.kill(pid, signal.SIGTERM)


@asynccontextmanager
async def pumped(
    code: str, *, close_timeout: float = 5.0, group: type[ProcessGroup] = ProcessGroup, **options: Any
) -> AsyncIterator[tuple[PumpedStream, ProcessGroup]]:
    """Start a Python as `WindowsChild` does on Windows, but for the job."""
    process = await anyio.open_process([sys.executable, "-c", code], start_new_session=True)
    job: Any = group(process.pid)
    options.setdefault("ask_to_end", nothing)
    child = WindowsChild(process, job=job, tail=StderrTail(), **options)
    stream = PumpedStream(child, command=["python"], close_timeout=close_timeout, last_words=str)
    try:
        with anyio.fail_after(30):
            yield stream, job
    finally:
        await stream.aclose()


def test_nothing_of_windows_is_loaded_elsewhere() -> None:
    code = (
        "import anyio, sys\nfrom claude_transport.streams.process import ProcessConnectable\nimport claude_transport.streams.sockets\n"
        "async def main():\n    async with await ProcessConnectable(['true']).connect():\n        pass\nanyio.run(main)\n"
        "print([name for name in ('windows', 'jobs', 'overlapped') if f'claude_transport.streams.{name}' in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=60, text=True)
    assert ran.stdout.strip() == "[]"


async def test_a_loop_that_cannot_start_processes_is_refused_by_name_before_anything_is_started(anyio_backend_name: str) -> None:
    error: type[Exception] = ConfigurationError if anyio_backend_name == "asyncio" else FileNotFoundError  # this asyncio has a selector
    with pytest.raises(error) as caught:
        await start_child(["C:\\no-such-program.exe"], cwd=None, env={}, tail=StderrTail(), on_gone=None)
    if isinstance(caught.value, ConfigurationError):
        assert caught.value.code == "config.unsupported_event_loop"
        assert "ProactorEventLoop" in str(caught.value)
        assert "trio" in str(caught.value)


async def test_lines_go_both_ways_and_the_end_of_input_ends_the_program() -> None:
    async with pumped(ECHO) as (stream, _):
        await stream.send(b"hello\n")
        assert await stream.receive() == b"hello\n"
        await stream.send(memoryview(b"more\n"))  # type: ignore[arg-type]
        assert await stream.receive(2) == b"mo"
        assert await stream.receive() == b"re\n"
        await stream.send_eof()
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
        with pytest.raises(anyio.ClosedResourceError):
            await stream.send(b"late\n")


async def test_a_failed_program_is_reported_behind_its_last_byte() -> None:
    async with pumped("import sys\nprint('last', end='')\nsys.stderr.write('why')\nsys.exit(3)") as (stream, _):
        assert await stream.receive() == b"last"
        with pytest.raises(ProcessError) as caught:
            await stream.receive()
        assert (caught.value.exit_code, caught.value.stderr_tail) == (3, "why")


async def test_a_failed_program_is_reported_with_all_of_its_standard_error() -> None:
    later = "if not os.fork():\n    os.close(1)\n    time.sleep(0.1)\n    os.write(2, b' and later')\n    os._exit(0)\n"
    async with pumped(f"import os, time\nos.write(2, b'soon')\n{later}os._exit(3)\n") as (stream, _):
        with pytest.raises(ProcessError) as caught:
            await stream.receive()
        assert (caught.value.exit_code, caught.value.signal, caught.value.stderr_tail) == (3, None, "soon and later")


async def test_a_program_that_has_left_by_itself_leaves_neither_job_nor_process_behind() -> None:
    async with pumped(ECHO) as (stream, group):
        pid = stream.extra(StreamAttribute.pid)
        await stream.send(b"hello\n")
        assert await stream.receive() == b"hello\n"
        assert not group.is_closed
        await stream.send_eof()
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
        await stream.aclose()
        assert group.is_closed
        assert stream.extra(StreamAttribute.exit_code) == 0
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it waits for nothing: the process was collected


async def test_a_program_that_ignores_the_end_of_its_input_is_ended_in_time_and_its_files_are_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone: list[bool] = []
    async with pumped(STUBBORN, close_timeout=0.3, on_gone=lambda: gone.append(True)) as (stream, group):
        assert await stream.receive() == b"up\n"
        await stream.aclose()
        assert group.is_closed
        assert gone == [True]
        assert stream.extra_attributes[StreamAttribute.killed]() is True
        with pytest.raises(anyio.ClosedResourceError):
            await stream.receive()
    assert caplog.records == []


async def test_a_program_that_its_job_does_not_end_is_not_waited_for_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with pumped(STUBBORN, close_timeout=0.1, group=Powerless) as (stream, _):
        assert await stream.receive() == b"up\n"
        await stream.aclose()
        assert [f"process {stream.extra(StreamAttribute.pid)} did not end" in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize(("code", "timeout", "is_killed"), [(STUBBORN, 0.1, True), (ECHO, 20.0, False)])
async def test_a_program_that_nobody_closes_is_ended_in_its_time_and_may_end_by_itself(code: str, timeout: float, is_killed: bool) -> None:
    gone = anyio.Event()
    process = await anyio.open_process([sys.executable, "-c", code], start_new_session=True)
    group: Any = ProcessGroup(process.pid)
    child = WindowsChild(process, job=group, tail=StderrTail(), on_gone=gone.set, ask_to_end=nothing)
    child.abandon(timeout=timeout)
    with anyio.fail_after(30):
        await gone.wait()
    assert (child.killed, group.is_closed) == (is_killed, True)


async def test_a_program_is_asked_to_end_before_it_is_killed() -> None:
    code = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n" + STUBBORN
    async with pumped(code, close_timeout=3.0, ask_to_end=terminate) as (stream, _):
        assert await stream.receive() == b"up\n"
        await stream.aclose()
        assert stream.extra_attributes[StreamAttribute.exit_code]() == 7


async def test_closing_wakes_a_reader_and_a_writer() -> None:
    async with pumped(STUBBORN, close_timeout=0.3) as (stream, _), anyio.create_task_group() as tasks:
        assert await stream.receive() == b"up\n"
        woken: list[str] = []

        async def read() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await stream.receive()
            woken.append("reader")

        async def write() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await stream.send(b"x" * 2**22)
            woken.append("writer")

        tasks.start_soon(read)
        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        await stream.aclose()
        await anyio.wait_all_tasks_blocked()
        assert sorted(woken) == ["reader", "writer"]


async def test_a_writer_waits_while_the_program_does_not_read() -> None:
    async with pumped(STUBBORN, close_timeout=0.3) as (stream, _):
        with anyio.move_on_after(0.2) as patience:
            await stream.send(b"x" * 2**22)
        assert patience.cancelled_caught


async def test_a_program_that_ended_cannot_be_written_to() -> None:
    async with pumped("import sys; sys.exit(4)") as (stream, _):
        with pytest.raises(ProcessError):
            await stream.receive()
        with pytest.raises(anyio.BrokenResourceError) as caught:
            await stream.send(b"late\n")
        assert isinstance(caught.value.__cause__, ProcessError)


async def test_output_that_another_process_holds_open_ends_a_second_after_the_exit() -> None:
    code = "import os, subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\nos.write(1, b'up\\n')"
    async with pumped(code) as (stream, _):
        assert await stream.receive() == b"up\n"
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_output_is_read_ahead_by_a_bounded_amount() -> None:
    asked = 0

    async def endless(max_bytes: int) -> bytes:
        nonlocal asked
        asked += 1
        await anyio.lowlevel.checkpoint()
        return b"x" * max_bytes

    inflow = PumpedInflow()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(inflow.fill, endless)
        await anyio.wait_all_tasks_blocked()
        assert asked == 2
        taken = inflow.take(10)
        assert taken == b"x" * 10
        for _ in range(2):
            assert inflow.take(2**20)
        await anyio.wait_all_tasks_blocked()
        assert asked > 2
        inflow.close()
        with pytest.raises(anyio.ClosedResourceError):
            await inflow.arrival()
        tasks.cancel_scope.cancel()


async def test_who_waits_for_output_is_told_the_end_of_it() -> None:
    async def ended(_max_bytes: int) -> bytes:
        await anyio.lowlevel.checkpoint()
        raise anyio.EndOfStream

    inflow = PumpedInflow()
    assert inflow.is_dry
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inflow.arrival)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(inflow.fill, ended)
        await inflow.arrival()
    assert (inflow.take(10), inflow.is_dry) == (b"", False)


async def test_only_one_task_may_wait_for_output() -> None:
    inflow = PumpedInflow()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(inflow.arrival)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await inflow.arrival()
        inflow.wake()


async def test_a_close_that_is_under_way_can_be_hurried() -> None:
    async with pumped(STUBBORN, close_timeout=3600.0) as (stream, group):
        assert await stream.receive() == b"up\n"
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.aclose)
                await anyio.wait_all_tasks_blocked()
                stream.hurry(0.1)
        assert group.is_closed
        assert stream.extra_attributes[StreamAttribute.killed]() is True


async def test_what_was_not_read_and_what_is_said_at_the_end_is_handed_on() -> None:
    code = "import os, sys\nos.write(1, b'before ')\nsys.stdin.read()\nos.write(1, b'at the end')"
    said: list[bytes] = []
    async with pumped(code, on_unread=said.append) as (stream, _):
        assert await stream.receive(1) == b"b"
        await stream.aclose()
    assert b"".join(said) == b"efore at the end"


async def test_a_cancelled_reader_loses_nothing() -> None:
    async with pumped(ECHO) as (stream, _):
        with anyio.move_on_after(0.05):
            await stream.receive()
        await stream.send(b"kept\n")
        assert await stream.receive() == b"kept\n"
