"""`PipeRoom`: a pipe grows under load, gives back what it took, and shares it with the other pipes of the user."""

from __future__ import annotations

import fcntl
import os
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport import SubprocessTransport
from claude_transport.streams.inflow import Inflow
from claude_transport.streams.process import ProcessConnectable
from claude_transport.streams.room import MOST_READ_BYTES, READ_BYTES, PipePages, PipeRoom, ReadSize, pipe_pages
from tests.virtual_time import virtual_time

pytestmark = pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="only Linux changes the size of a pipe")
MB = 2**20


class Pipe:
    """A pipe, its room, and a reader."""

    def __init__(self, pages: PipePages) -> None:
        self.out, self.into = os.pipe()
        os.set_blocking(self.into, False)
        self.room = PipeRoom(self.out, pages=pages)

    @property
    def size(self) -> int:
        return fcntl.fcntl(self.out, fcntl.F_GETPIPE_SZ)

    def load(self) -> None:
        """Note as many full reads as make the pipe grow."""
        for _ in range(4):
            self.room.note_full()

    def close(self) -> None:
        self.room.close()
        os.close(self.out)
        os.close(self.into)


@pytest.fixture
def pages() -> PipePages:
    return PipePages(limit=8 * MB)


@pytest.fixture
def pipe(pages: PipePages) -> Iterator[Pipe]:
    pipe = Pipe(pages)
    yield pipe
    pipe.close()
    assert pages.taken == 0


async def test_a_pipe_grows_after_four_full_reads(pipe: Pipe, pages: PipePages) -> None:
    for _ in range(3):
        pipe.room.note_full()
    assert (pipe.size, pipe.room.read_bytes, pages.taken) == (READ_BYTES, READ_BYTES, 0)
    pipe.room.note_full()
    assert (pipe.size, pipe.room.read_bytes, pages.taken) == (MB, MOST_READ_BYTES, MB - READ_BYTES)


@virtual_time
async def test_a_second_without_load_makes_it_small_again() -> None:
    pages = PipePages(limit=8 * MB)
    pipe = Pipe(pages)
    pipe.load()
    await anyio.sleep(1.5)
    assert pipe.size == MB  # it was full in the first second
    await anyio.sleep(1)
    assert (pipe.size, pipe.room.read_bytes, pages.taken) == (READ_BYTES, READ_BYTES, 0)
    pipe.load()  # and it grows again
    assert (pipe.size, pipe.room.read_bytes) == (MB, MOST_READ_BYTES)
    pipe.close()
    assert pages.taken == 0


@virtual_time
async def test_a_pipe_under_load_stays_large() -> None:
    pages = PipePages(limit=8 * MB)
    pipe, idle = Pipe(pages), Pipe(pages)
    pipe.load()
    idle.load()
    for _ in range(10):
        await anyio.sleep(0.7)
        pipe.room.note_full()
    assert (pipe.size, idle.size) == (MB, READ_BYTES)
    pipe.close()
    idle.close()


@virtual_time
async def test_a_pipe_that_holds_too_much_is_made_small_later() -> None:
    pages = PipePages(limit=8 * MB)
    pipe = Pipe(pages)
    pipe.load()
    os.write(pipe.into, bytes(MB // 2))
    await anyio.sleep(5)
    assert (pipe.size, pages.taken) == (MB, MB - READ_BYTES)
    os.read(pipe.out, MB)
    await anyio.sleep(1.5)
    assert (pipe.size, pages.taken) == (READ_BYTES, 0)
    pipe.close()


async def test_what_the_system_refuses_is_done_without() -> None:
    asked: list[int] = []

    def refuse(fd: int, size: int) -> int:
        asked.append(size)
        raise PermissionError

    pages = PipePages(limit=8 * MB, set_size=refuse)
    pipe = Pipe(pages)
    for _ in range(100):
        pipe.room.note_full()
    assert asked == [MB]  # it is not asked for at each read
    assert (pipe.room.read_bytes, pages.taken) == (READ_BYTES, 0)
    pipe.close()


@given(limit=st.integers(0, 16 * MB), count=st.integers(1, 40), closed=st.lists(st.integers(0, 39)))
def test_the_pipes_of_a_process_stay_within_their_share(limit: int, count: int, closed: list[int]) -> None:
    sizes: dict[int, int] = {}

    def note(fd: int, size: int) -> int:
        sizes[fd] = size
        return size

    pages = PipePages(limit=limit, set_size=note)
    for fd in range(count):
        before = limit - pages.taken
        size = pages.widen(fd)
        assert READ_BYTES <= size <= MB
        assert size - READ_BYTES <= before // 2
        assert pages.taken <= limit
        assert sizes.get(fd, READ_BYTES) == size
    for fd in closed:
        pages.forget(fd)
    for fd in range(count):
        assert pages.narrow(fd)
    assert pages.taken == 0
    assert all(sizes[fd] == READ_BYTES for fd in sizes if fd not in closed)


async def test_a_pipe_that_another_thread_closes_gives_back_too(pages: PipePages) -> None:
    pipe = Pipe(pages)
    pipe.load()
    thread = threading.Thread(target=pipe.close)
    thread.start()
    thread.join()
    assert pages.taken == 0


async def test_a_burst_is_read_in_large_pieces_and_nothing_is_lost(pages: PipePages) -> None:
    out, into = os.pipe()
    for fd in (out, into):
        os.set_blocking(fd, False)
    inflow, data = Inflow(out), os.urandom(8 * MB)
    sizes: list[int] = []
    read = bytearray()

    async def write() -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(into, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(into)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        while len(read) < len(data):
            chunk = inflow.take(MOST_READ_BYTES)
            if chunk is None:
                await inflow.arrival()
            else:
                sizes.append(len(chunk))
                read += chunk
    assert read == data
    assert max(sizes[:4]) <= READ_BYTES
    assert max(sizes) == MOST_READ_BYTES
    inflow.close()
    os.close(out)
    os.close(into)
    assert pipe_pages.taken == 0


async def test_small_messages_leave_the_pipe_as_it_is() -> None:
    async with SubprocessTransport(command=["cat"]) as transport:
        lines = transport.read_lines()
        for _ in range(50):
            await transport.write(b'{"type":"keep_alive"}\n')
            await anext(aiter(lines))
            assert pipe_pages.taken == 0


@pytest.fixture
async def big_echo() -> AsyncIterator[None]:
    yield
    assert pipe_pages.taken == 0


@pytest.mark.usefixtures("big_echo")
async def test_a_large_line_makes_the_input_of_a_process_grow_and_closing_gives_it_back() -> None:
    item, taken = os.urandom(4 * MB), 0
    stream = await ProcessConnectable(["cat"]).connect()
    got = bytearray()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.send, item)
        while len(got) < len(item):
            got += await stream.receive(MOST_READ_BYTES)
            taken = max(taken, pipe_pages.taken)
    assert got == item
    assert taken >= 2 * (MB // 2 - READ_BYTES)  # both pipes grew
    await stream.aclose()


def test_reads_of_a_socket_grow_after_full_ones_and_shrink_after_a_short_one() -> None:
    size = ReadSize()
    for _ in range(4):
        assert size.bytes == READ_BYTES
        size.note(READ_BYTES)
    assert size.bytes == MOST_READ_BYTES
    size.note(100_000)  # the peer still sends without a pause
    assert size.bytes == MOST_READ_BYTES
    size.note(1000)
    assert size.bytes == READ_BYTES


async def test_a_long_line_of_a_process_takes_its_size_twice_while_it_is_read(tmp_path: Path) -> None:
    size = 16 * 2**20
    path = tmp_path / "line"
    path.write_bytes(b"x" * size + b"\n")
    async with SubprocessTransport(command=["cat", str(path)]) as transport:
        tracemalloc.start()
        try:
            async for batch in transport.read_lines():
                assert list(map(len, batch)) == [size]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert 2 * size <= peak < 2 * size + 2 * 2**20  # its pieces and the line
