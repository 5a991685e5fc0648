"""TLS as a byte stream: each direction ends by itself, and a peer that is not trusted gets no data."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from anyio.streams.tls import TLSAttribute
from counted import Counted
from listening import Door
from websocket_peers import Given

from claude_transport.errors import AuthenticationError, CLIConnectionError, ConnectionLost, ConnectTimeout
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.memory import memory_stream_pair
from claude_transport.streams.sockets import SocketConnectable
from claude_transport.streams.tls import TLSConnectable, TLSStream
from claude_transport.testing.conformance.socket_peer import Certificates, certificates

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
def door() -> Iterator[Door]:
    with Door.tcp(scheme="tls") as door:
        yield door


def client(door: Door, *, context: ssl.SSLContext | None = None, hostname: str = "127.0.0.1", timeout: float = 10) -> TLSConnectable:
    return TLSConnectable(
        SocketConnectable(door.address),
        hostname=hostname,
        address=str(door.address),
        ssl_context=context or certificates().client_context(),
        handshake_timeout=timeout,
    )


@asynccontextmanager
async def against_the_standard_library(
    door: Door, play: Callable[[ssl.SSLSocket], object], *, server: ssl.SSLContext | None = None, context: ssl.SSLContext | None = None
) -> AsyncIterator[TLSStream]:
    """Give a stream to `play`, which runs in a thread with a blocking TLS socket of the standard library."""
    server = server or certificates().server_context()

    def serve() -> None:
        door.listener.settimeout(10)
        accepted, _ = door.listener.accept()
        accepted.settimeout(10)
        with accepted, server.wrap_socket(accepted, server_side=True, suppress_ragged_eofs=False) as tls:
            play(tls)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, serve)
        async with await client(door, context=context).connect() as stream:
            yield stream


async def receive_all(stream: TLSStream) -> bytes:
    received = b""
    with anyio.fail_after(30):
        async for chunk in stream:
            received += chunk
    return received


@asynccontextmanager
async def pair(
    *,
    capacity: int = 65536,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    server: ssl.SSLContext | None = None,
    client: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[TLSStream, TLSStream]]:
    """Return both ends of an encrypted stream in memory."""
    server, client = server or certificates().server_context(), client or certificates().client_context()
    server.num_tickets = 0  # nobody reads before both have shaken hands, and the smallest of these streams hold no ticket
    client.maximum_version = version
    ours, theirs = memory_stream_pair(capacity=capacity)
    here: list[TLSStream] = []
    there: list[TLSStream] = []

    async def accept() -> None:
        there.append(await TLSStream.wrap(theirs, ssl_context=server, server_side=True))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(accept)
        here.append(await TLSStream.wrap(ours, ssl_context=client, hostname="localhost"))
    async with here[0], there[0]:
        yield here[0], there[0]


@pytest.mark.parametrize("version", VERSIONS)
async def test_after_our_farewell_a_peer_of_another_make_still_says_what_it_has_to_say(door: Door, version: ssl.TLSVersion) -> None:
    answer = b"answer " * 50_000
    heard: list[bytes] = []

    def play(tls: ssl.SSLSocket) -> None:
        while chunk := tls.recv(65536):  # the end is our close_notify: a bare end of the connection would raise here
            heard.append(chunk)
        tls.sendall(answer)
        tls.unwrap()

    context = certificates().client_context()
    context.maximum_version = version
    async with against_the_standard_library(door, play, context=context) as stream:
        await stream.send(b"question " * 10_000)
        await stream.send_eof()
        await stream.send_eof()
        assert await receive_all(stream) == answer
        assert stream.extra(TLSAttribute.tls_version) == {771: "TLSv1.2", 772: "TLSv1.3"}[version]
    assert b"".join(heard) == b"question " * 10_000


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_farewell_in_the_middle_of_what_the_peer_says_loses_none_of_it(version: ssl.TLSVersion) -> None:
    said = bytes(range(256)) * 1000
    async with pair(version=version) as (here, there), anyio.create_task_group() as tasks:

        async def say() -> None:
            for at in range(0, len(said), 1000):
                await there.send(said[at : at + 1000])
            await there.send_eof()

        tasks.start_soon(say)
        first = await here.receive(10)  # the rest of what came with it is still encrypted, or cut in the middle of a record
        await here.send_eof()
        assert first + await receive_all(here) == said


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_farewell_does_not_disturb_a_reader_that_waits(version: ssl.TLSVersion) -> None:
    async with pair(version=version) as (here, there), anyio.create_task_group() as tasks:
        received: list[bytes] = []
        done = anyio.Event()

        async def read() -> None:
            received.append(await receive_all(here))
            done.set()

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        await here.send_eof()
        assert await receive_all(there) == b""
        await there.send(b"late ")
        await there.send(b"words")
        await there.send_eof()
        await done.wait()
        assert received == [b"late words"]


@pytest.mark.parametrize("capacity", [0, 1, 65536])
async def test_both_ends_may_send_megabytes_at_once(capacity: int) -> None:
    data = bytes(range(256)) * (2**12 if capacity != 1 else 2**5)
    async with pair(capacity=capacity) as (here, there), anyio.create_task_group() as tasks:
        for one, other in ((here, there), (there, here)):

            async def send(stream: TLSStream = one) -> None:
                await stream.send(data)
                await stream.send_eof()

            async def receive(stream: TLSStream = other) -> None:
                assert await receive_all(stream) == data

            tasks.start_soon(send)
            tasks.start_soon(receive)


async def test_a_peer_that_leaves_without_its_farewell_was_cut_off_after_what_it_said(door: Door) -> None:
    async with against_the_standard_library(door, lambda tls: tls.sendall(b"half a ")) as stream:
        with anyio.fail_after(30):
            assert await stream.receive() == b"half a "
            with pytest.raises(ConnectionLost, match="without the closing message of TLS"):
                await stream.receive()


async def test_a_close_says_farewell(door: Door) -> None:
    ends: list[bytes] = []
    async with against_the_standard_library(door, lambda tls: ends.append(tls.recv(10))) as stream:
        await stream.aclose()
        await stream.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await stream.send(b"more")
        with pytest.raises(anyio.ClosedResourceError):
            await stream.receive()
    assert ends == [b""]


async def test_bytes_that_are_no_tls_end_the_stream_with_an_error(door: Door) -> None:
    def play(tls: ssl.SSLSocket) -> None:
        with socket.socket(fileno=tls.detach()) as bare:
            bare.sendall(b"this is no record of TLS")

    async with against_the_standard_library(door, play) as stream:
        with pytest.raises(ConnectionLost, match="the TLS connection broke"):
            await stream.receive()
        with pytest.raises(anyio.BrokenResourceError) as caught:
            await stream.send_eof()
        assert isinstance(caught.value.__cause__, ssl.SSLError)


async def test_a_cancelled_send_breaks_the_stream_for_sending_and_is_no_farewell() -> None:
    async with pair(capacity=100) as (here, there):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(here.send, b"x" * 1000)
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        with pytest.raises(anyio.BrokenResourceError):
            await here.send(b"more")
        await here.aclose()
        with pytest.raises(ConnectionLost):
            await receive_all(there)


async def test_a_cancelled_receive_takes_nothing_along() -> None:
    async with pair() as (here, there):
        await there.send(b"kept")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await here.receive()
        assert scope.cancelled_caught
        assert await here.receive(2) == b"ke"
        assert await here.receive(2) == b"pt"


async def test_a_closing_end_does_not_wait_for_a_peer_that_reads_nothing() -> None:
    async with pair(capacity=100) as (here, _there), anyio.create_task_group() as tasks:

        async def write() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await here.send(b"x" * 1000)

        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(30):
            await here.aclose()


# Who is trusted.


async def test_a_client_proves_itself_with_a_certificate_of_its_own(door: Door) -> None:
    seen: list[object] = []

    def play(tls: ssl.SSLSocket) -> None:
        seen.append((tls.getpeercert() or {}).get("subjectAltName"))
        tls.unwrap()

    context = certificates().client_context(shows_certificate=True)
    mutual = certificates().server_context(asks_for_certificate=True)
    async with against_the_standard_library(door, play, server=mutual, context=context) as stream:
        assert await receive_all(stream) == b""
        assert stream.extra(StreamAttribute.address) == str(door.address)
        certificate = stream.extra(TLSAttribute.peer_certificate)
        assert certificate is not None
        assert "localhost" in str(certificate["subjectAltName"])
    assert seen == [(("email", "client@example.org"),)]


async def test_a_client_that_only_reads_still_answers_a_server_that_asks_who_it_is() -> None:
    server = certificates().server_context(asks_for_certificate=True)
    server.post_handshake_auth = True
    client = certificates().client_context(shows_certificate=True)
    client.post_handshake_auth = True
    async with pair(server=server, client=client) as (here, there), anyio.create_task_group() as tasks:
        assert not there.extra(TLSAttribute.peer_certificate)
        there.extra(TLSAttribute.ssl_object).verify_client_post_handshake()
        await there.send(b"who are you?")
        tasks.start_soon(there.receive)
        assert await here.receive() == b"who are you?"
        tasks.start_soon(here.receive)
        with anyio.fail_after(30):
            while not (certificate := there.extra(TLSAttribute.peer_certificate)):
                await anyio.lowlevel.checkpoint()
        assert "client@example.org" in str(certificate["subjectAltName"])
        tasks.cancel_scope.cancel()


async def failure_of(door: Door, connectable: TLSConnectable, *, server: ssl.SSLContext | None) -> Exception:
    """Return the error of connecting or of the first receive. The server is the standard library's; without a context it hangs up."""

    async def serve() -> None:
        accepted = await door.accept()

        def shake() -> None:
            with accepted, contextlib.suppress(OSError):
                if server is not None:
                    with server.wrap_socket(accepted, server_side=True) as tls:
                        tls.unwrap()

        await anyio.to_thread.run_sync(shake)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        try:
            async with await connectable.connect() as stream:
                await stream.receive()
        except Exception as exc:  # noqa: BLE001 - the caller looks at it
            return exc
    raise AssertionError("nothing failed")


async def test_a_server_that_wants_a_certificate_and_gets_none_is_an_authentication_error(door: Door) -> None:
    error = await failure_of(door, client(door), server=certificates().server_context(asks_for_certificate=True))
    assert isinstance(error, AuthenticationError)
    assert error.retryable is False


async def test_an_old_server_that_wants_a_certificate_and_gets_none_is_not_tried_again(door: Door) -> None:
    context = certificates().client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # its alert says no more than that the handshake failed
    error = await failure_of(door, client(door, context=context), server=certificates().server_context(asks_for_certificate=True))
    assert isinstance(error, CLIConnectionError)
    assert (error.code, error.retryable) == ("connect.tls_failed", False)
    assert "perhaps it wants a certificate" in str(error)


@pytest.mark.parametrize(
    ("trusts", "hostname", "said"), [(False, "127.0.0.1", "self.signed certificate|unable to get"), (True, "claude.example", "mismatch")]
)
async def test_a_server_that_cannot_be_trusted_is_not_spoken_to(door: Door, trusts: bool, hostname: str, said: str) -> None:
    context = (certificates() if trusts else Certificates()).client_context()
    error = await failure_of(door, client(door, context=context, hostname=hostname), server=certificates().server_context())
    assert isinstance(error, CLIConnectionError)
    assert (error.code, error.retryable) == ("connect.tls_untrusted", False)
    assert isinstance(error.__cause__, ssl.SSLCertVerificationError)
    with pytest.raises(CLIConnectionError, match=rf"{door.address}: its certificate is not trusted: .*({said})"):
        raise error


async def test_a_server_is_told_why_its_client_does_not_go_on() -> None:
    ours, theirs = memory_stream_pair()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:

            async def refuse() -> None:
                with pytest.raises(ssl.SSLCertVerificationError):
                    await TLSStream.wrap(ours, ssl_context=Certificates().client_context(), hostname="127.0.0.1")

            tasks.start_soon(refuse)
            with pytest.raises(ssl.SSLError, match=r"(?i)alert unknown ca"):
                served = await TLSStream.wrap(theirs, ssl_context=certificates().server_context(), server_side=True)
                await served.receive()


async def test_what_the_system_does_not_trust_is_not_trusted_without_a_context_of_our_own(door: Door) -> None:
    connectable = TLSConnectable(SocketConnectable(door.address), hostname="127.0.0.1", address="tls://here")
    error = await failure_of(door, connectable, server=certificates().server_context())
    assert isinstance(error, CLIConnectionError)
    assert error.code == "connect.tls_untrusted"


async def test_a_server_that_hangs_up_during_the_handshake_may_be_tried_again(door: Door) -> None:
    error = await failure_of(door, client(door), server=None)
    assert isinstance(error, CLIConnectionError)
    assert (error.code, error.retryable) == ("connect.tls_failed", True)


async def test_a_server_that_does_not_speak_tls_is_said_not_to(door: Door) -> None:
    async def serve() -> None:
        with await door.accept() as accepted:
            accepted.sendall(b'{"type":"system"}\n')
            await anyio.to_thread.run_sync(accepted.recv, 65536)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        with pytest.raises(CLIConnectionError, match="does it speak TLS at all") as caught:
            await client(door).connect()
        assert (caught.value.code, caught.value.retryable) == ("connect.tls_failed", False)


async def test_a_handshake_that_is_not_answered_is_a_timeout(door: Door) -> None:
    with pytest.raises(ConnectTimeout, match=r"no TLS handshake within 0\.01 s") as caught:
        await client(door, timeout=0.01).connect()
    assert caught.value.waited == 0.01


async def test_a_handshake_that_is_cancelled_stays_cancelled_and_leaves_nothing_open(door: Door) -> None:
    made: list[TLSStream] = []

    async def connect() -> None:
        made.append(await client(door).connect())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connect)
        with await door.accept() as accepted:
            assert (await anyio.to_thread.run_sync(accepted.recv, 1)) == b"\x16"  # the first byte of a record of the handshake
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True), contextlib.suppress(ConnectionResetError):
                while await anyio.to_thread.run_sync(accepted.recv, 65536):
                    pass
    assert made == []


async def test_a_handshake_whose_wire_is_closed_meanwhile_is_no_connection() -> None:
    wire, _peer = memory_stream_pair()
    await wire.aclose()
    connectable = TLSConnectable(Given(wire), hostname="x", address="tls://x", ssl_context=certificates().client_context())
    with pytest.raises(anyio.ClosedResourceError):
        await connectable.connect()


async def test_a_broken_stream_that_is_closed_takes_the_end_of_what_is_sent_without_an_error(door: Door) -> None:
    async with against_the_standard_library(door, ssl.SSLSocket.close) as stream:
        with pytest.raises(anyio.BrokenResourceError), anyio.fail_after(30):
            while True:
                await stream.send(b"x" * 65536)
        await stream.aclose()
        await stream.send_eof()


async def test_a_reader_of_little_takes_little_from_the_wire_also_in_the_handshake() -> None:
    ours, theirs = memory_stream_pair(capacity=2**20)
    wire = Counted(theirs)
    servers: list[TLSStream] = []
    clients: list[TLSStream] = []

    async def accept() -> None:
        servers.append(await TLSStream.wrap(wire, ssl_context=certificates().server_context(), server_side=True))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(accept)
        clients.append(await TLSStream.wrap(ours, ssl_context=certificates().client_context(), hostname="127.0.0.1"))
    (server,), (client,) = servers, clients
    assert wire.most == 4096
    before = wire.taken
    await client.send(b"x" * 300_000)
    with anyio.fail_after(30):
        for size in (1, 4095, 4096):
            assert await server.receive(size) == b"x" * size
        assert wire.most == 4096
        assert wire.taken - before <= 2**14 + 4096 + 256  # a record has to be read as a whole
        received = 8192
        while received < 300_000:
            received += len(await server.receive(2**20))
    assert received == 300_000
    assert wire.most == 65536
