"""Sockets as byte streams: nothing that was sent before the end is lost, and the end is reported truly."""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from anyio.abc import SocketAttribute
from listening import Door
from virtual_time import jumping

from claude_transport.errors import CLIConnectionError, ConfigurationError, ConnectTimeout
from claude_transport.streams.address import Address, StreamAttribute, parse_address
from claude_transport.streams.sockets import SocketConnectable, SocketStream


@pytest.fixture(params=["tcp", "unix"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    with Door.tcp() if request.param == "tcp" else Door.unix(tmp_path) as door:
        yield door


@pytest.fixture
def tcp_door() -> Iterator[Door]:
    with Door.tcp() as door:
        yield door


async def receive_all(stream: SocketStream) -> bytes:
    received = b""
    with anyio.fail_after(30):
        async for chunk in stream:
            received += chunk
    return received


def receive_exactly(peer: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += peer.recv(2**16)
    return received


async def test_bytes_go_both_ways_and_each_side_ends_for_itself(door: Door) -> None:
    async with door.connected() as (stream, peer):
        await stream.send(b"question")
        await stream.send_eof()
        await stream.send_eof()
        assert peer.makefile("rb").read() == b"question"
        peer.sendall(b"answer")
        peer.shutdown(socket.SHUT_WR)
        assert await receive_all(stream) == b"answer"
        with pytest.raises(anyio.ClosedResourceError):
            await stream.send(b"more")


async def test_a_peer_that_sends_without_a_pause_is_read_in_larger_pieces(door: Door) -> None:
    data = bytes(range(256)) * 2**16
    async with door.connected() as (stream, peer), anyio.create_task_group() as tasks:
        raw = stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 150_000)  # room for a full read
        before = raw.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        # A sender on a Unix socket that was blocked goes on when a quarter of its buffer is left: that has to be more than a usual read.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)

        def send() -> None:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)

        tasks.start_soon(anyio.to_thread.run_sync, send)
        received, sizes = b"", []
        with anyio.fail_after(30):
            while len(received) < len(data):
                while len(sizes) < 4 and unread(raw) < 2**16:  # the first reads find a full buffer, as those of a slow reader do
                    await anyio.lowlevel.checkpoint()
                received += (chunk := await stream.receive(2**20))
                sizes.append(len(chunk))
        assert received == data
        assert sizes[:4] == [2**16] * 4
        assert 2**16 < max(sizes) <= 2**18
        after = raw.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert after > before if raw.family == socket.AF_INET else after == before
        await stream.send(b"still there")
        assert peer.recv(100) == b"still there"


def unread(connected: socket.socket) -> int:
    """Return how many bytes can be received, at most 64 KiB."""
    try:
        return len(connected.recv(2**16, socket.MSG_PEEK))
    except BlockingIOError:
        return 0


async def test_a_send_waits_while_the_peer_does_not_read(door: Door) -> None:
    data = bytes(range(256)) * 2**16
    async with door.connected() as (stream, peer), anyio.create_task_group() as tasks:
        done = anyio.Event()

        async def send() -> None:
            await stream.send(data)
            await stream.send_eof()
            done.set()

        tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        assert not done.is_set()
        assert await anyio.to_thread.run_sync(peer.makefile("rb").read) == data


async def test_what_fits_is_sent_without_waiting_and_the_rest_later_in_order(door: Door) -> None:
    data = bytes(range(256)) * 2**16
    async with door.connected() as (stream, peer):
        sent = stream.send_now([data[:5], memoryview(data)[5:]])
        assert 0 < sent < len(data)
        while more := stream.send_now([memoryview(data)[sent:]]):
            sent += more
        assert more == 0
        received: list[bytes] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send, data[sent:])
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(anyio.BusyResourceError):
                stream.send_now([b"between"])
            received.append(await anyio.to_thread.run_sync(receive_exactly, peer, len(data)))
        assert received == [data]
        await stream.send_eof()
        with pytest.raises(anyio.ClosedResourceError):
            stream.send_now([b"more"])


async def test_a_broken_connection_takes_nothing_without_waiting_either(tcp_door: Door) -> None:
    async with tcp_door.connected() as (stream, peer):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        await anyio.wait_readable(stream.extra(SocketAttribute.raw_socket))
        with pytest.raises(anyio.BrokenResourceError):
            stream.send_now([b"more"])
        await stream.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            stream.send_now([b"more"])


async def test_what_the_peer_said_before_it_broke_off_is_received_first_even_after_a_failed_send(tcp_door: Door) -> None:
    async with tcp_door.connected() as (stream, peer):
        peer.sendall(b"last words")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        with pytest.raises(anyio.BrokenResourceError) as caught:
            await stream.send(b"a" * 2**20)
        assert isinstance(caught.value.__cause__, OSError)
        assert await stream.receive() == b"last words"


async def test_who_closes_without_having_read_everything_does_not_take_its_last_words_back(tcp_door: Door) -> None:
    async with tcp_door.connected() as (stream, peer):
        peer.sendall(b"something that nobody will read")
        await anyio.wait_readable(stream.extra(SocketAttribute.raw_socket))
        await stream.send(b"last words")
        await stream.aclose()
        assert await anyio.to_thread.run_sync(peer.makefile("rb").read) == b"last words"


async def test_a_reset_is_not_an_end(tcp_door: Door) -> None:
    async with tcp_door.connected() as (stream, peer):
        accepted = SocketStream(peer.dup())
        peer.close()
        accepted.abort()
        with pytest.raises(anyio.BrokenResourceError) as caught:
            await stream.receive()
        assert isinstance(caught.value.__cause__, ConnectionResetError)


async def test_a_cancelled_send_sends_nothing(door: Door) -> None:
    async with door.connected() as (stream, peer):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stream.send(b"never")
        assert scope.cancelled_caught
        await stream.send(b"said")
        await stream.send_eof()
        assert peer.makefile("rb").read() == b"said"


async def test_a_cancelled_receive_takes_nothing_along(door: Door) -> None:
    async with door.connected() as (stream, peer):
        with anyio.CancelScope() as scope:
            scope.cancel()
            peer.sendall(b"kept")
            await stream.receive()
        assert scope.cancelled_caught
        assert await stream.receive(2) == b"ke"
        assert await stream.receive(2) == b"pt"


async def test_closing_wakes_who_waits_and_works_twice(door: Door) -> None:
    async with door.connected() as (stream, peer), anyio.create_task_group() as tasks:
        woken: list[str] = []

        async def wait_to_read() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await stream.receive()
            woken.append("reader")

        async def wait_to_write() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await stream.send(b"x" * 2**25)
            woken.append("writer")

        tasks.start_soon(wait_to_read)
        tasks.start_soon(wait_to_write)
        await anyio.wait_all_tasks_blocked()
        await stream.aclose()
        await stream.aclose()
        with anyio.fail_after(30):
            while len(woken) < 2:
                await anyio.lowlevel.checkpoint()
        assert peer.recv(1) == b"x"
    await stream.send_eof()


async def test_a_second_reader_is_refused(door: Door) -> None:
    async with door.connected() as (stream, _peer), anyio.create_task_group() as tasks:
        tasks.start_soon(_read_until_cancelled, stream)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await stream.receive()
        tasks.cancel_scope.cancel()


async def _read_until_cancelled(stream: SocketStream) -> None:
    await stream.receive()


async def test_a_stream_knows_whom_it_reaches_and_since_when(door: Door) -> None:
    async with door.connected() as (stream, _peer):
        assert stream.extra(StreamAttribute.address) == str(door.address)
        assert stream.extra(StreamAttribute.started_at).tzinfo is not None
        assert stream.extra(SocketAttribute.family) == door.listener.family


async def test_a_silent_peer_is_asked_whether_it_is_there_and_small_lines_leave_at_once(tcp_door: Door) -> None:
    async with tcp_door.connected() as (stream, _peer):
        raw = stream.extra(SocketAttribute.raw_socket)
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


# No connection.


async def refused_by(address: Address) -> CLIConnectionError:
    with pytest.raises(CLIConnectionError) as caught:
        await SocketConnectable(address).connect()
    assert str(address) in str(caught.value)
    return caught.value


async def test_nobody_listening_is_worth_another_try() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        error = await refused_by(Address(scheme="tcp", host="127.0.0.1", port=bound.getsockname()[1]))
    assert (error.code, error.retryable) == ("connect.refused", True)


async def test_a_missing_socket_file_is_said_to_be_missing(tmp_path: Path) -> None:
    error = await refused_by(parse_address(f"unix://{tmp_path}/nothing"))
    assert (error.code, error.retryable) == ("connect.refused", True)
    assert "no such socket" in str(error)


async def test_a_socket_file_that_nobody_serves_any_more_refuses(tmp_path: Path) -> None:
    with Door.unix(tmp_path) as door:
        pass
    assert (await refused_by(door.address)).code == "connect.refused"


async def test_a_host_without_an_address_is_named_and_not_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    error = await refused_by(Address(scheme="tcp", host="claude.invalid", port=1))
    assert (error.code, error.retryable) == ("connect.unresolved", False)
    assert "'claude.invalid'" in str(error)


@pytest.mark.parametrize("host", ["klöster..example", "ö" * 70, "\u2603.example"])
async def test_what_cannot_be_the_name_of_a_host_is_not_found_either(host: str) -> None:
    error = await refused_by(Address(scheme="tcp", host=host, port=1))
    assert (error.code, error.retryable) == ("connect.unresolved", False)


async def test_a_name_server_that_fails_for_the_moment_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    def later(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", later)
    assert (await refused_by(Address(scheme="tcp", host="claude.invalid", port=1))).retryable is True


async def test_the_next_address_of_a_host_is_tried_when_the_first_one_fails(monkeypatch: pytest.MonkeyPatch, tcp_door: Door) -> None:
    def two(_host: object, port: int, *_args: object, **_kwargs: object) -> list[object]:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            dead = bound.getsockname()[1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", each)) for each in (dead, port)]

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", two)
        stream = await SocketConnectable(Address(scheme="tcp", host="two.example", port=tcp_door.address.port)).connect()
    async with stream:
        with await tcp_door.accept() as accepted:
            await stream.send(b"here")
            assert accepted.recv(4) == b"here"


@jumping(idle=0.05)
async def test_of_two_addresses_that_answer_at_once_one_is_dropped_as_by_a_crash(monkeypatch: pytest.MonkeyPatch, tcp_door: Door) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", tcp_door.address.port))] * 2
    connected, both, waits = [], anyio.Event(), anyio.wait_writable

    async def wait_for_both(dialled: socket.socket) -> None:
        await waits(dialled)
        connected.append(dialled)
        if len(connected) == 2:
            both.set()
        else:
            await both.wait()

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: found)
        patched.setattr(anyio, "wait_writable", wait_for_both)
        stream = await SocketConnectable(Address(scheme="tcp", host="two.example", port=1)).connect()
    async with stream:
        heard = []
        for _ in found:
            with await tcp_door.accept() as accepted:
                await stream.send(b"here")
                try:
                    heard.append(await anyio.to_thread.run_sync(accepted.recv, 4))
                except ConnectionResetError:
                    heard.append(b"a reset")
        assert sorted(heard) == [b"a reset", b"here"]


async def test_a_connection_that_is_given_up_after_any_step_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, tcp_door: Door) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", tcp_door.address.port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: found)
    reached: list[SocketStream] = []

    async def connect() -> None:
        reached.append(await SocketConnectable(Address(scheme="tcp", host="one.example", port=1)).connect())

    for steps in range(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        while reached:
            await reached.pop().aclose()
        gc.collect()  # what was left open warns now


@jumping(idle=0.05)
async def test_an_address_that_refuses_gets_no_head_start(monkeypatch: pytest.MonkeyPatch, tcp_door: Door) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        dead = bound.getsockname()[1]
        ports = [*[dead] * 40, tcp_door.address.port]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: found)
        begun = anyio.current_time()
        await (await SocketConnectable(Address(scheme="tcp", host="many.example", port=1)).connect()).aclose()
        assert anyio.current_time() - begun < 5


async def test_nobody_answering_is_a_timeout_with_the_seconds_that_were_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_args: object, **_kwargs: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(anyio, "getaddrinfo", never)
    with pytest.raises(ConnectTimeout, match=r"tcp://slow\.example:1 did not answer within 0\.01 s") as caught:
        await SocketConnectable(Address(scheme="tcp", host="slow.example", port=1), connect_timeout=0.01).connect()
    assert caught.value.waited == 0.01


def test_where_the_system_has_no_unix_sockets_they_are_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    with pytest.raises(ConfigurationError, match="use tcp:// on loopback") as caught:
        SocketConnectable(Address(scheme="unix", path="/run/claude.sock"))
    assert caught.value.option == "url"


def test_port_zero_cannot_be_dialled() -> None:
    with pytest.raises(ConfigurationError, match="port 0"):
        SocketConnectable(parse_address("tcp://127.0.0.1:0"))
