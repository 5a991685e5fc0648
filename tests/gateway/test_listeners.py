"""Listening sockets: what they do when the system cannot accept a connection, and at addresses that are listed twice."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute
from rehearsal import rehearsal
from virtual_time import jumping, virtual_time

from claude_transport.errors import CLIConnectionError, ConfigurationError, UsageError
from claude_transport.gateway.gateway import Gateway
from claude_transport.observing import observe
from claude_transport.serving.listeners import Listener, accept_all, local_address, open_listeners
from claude_transport.streams.address import Address, parse_address
from claude_transport.streams.memory import memory_stream_pair
from claude_transport.streams.sockets import SocketConnectable, SocketStream
from claude_transport.transports.network import NetworkTransport

HERE = "tcp://127.0.0.1:0"


class RefusingSocket(socket.socket):
    """A socket whose accept() fails with `error`, ten times, and then as a closed one does."""

    attempts = 0
    error = errno.EPERM

    def accept(self) -> tuple[Any, Any]:
        self.attempts += 1
        code = errno.EBADF if self.attempts > 10 else self.error
        raise OSError(code, "refused")


@virtual_time
async def test_a_failed_accept_is_logged_and_tried_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    with RefusingSocket() as refusing, caplog.at_level(logging.WARNING, logger="claude_transport.serving.listeners"):
        began = anyio.current_time()
        with pytest.raises(anyio.ClosedResourceError):
            await Listener(refusing, address=parse_address(HERE)).accept()
        assert anyio.current_time() - began == pytest.approx(10 * 0.1)
    assert [record.getMessage() for record in caplog.records] == [f"no connection can be accepted on {HERE}: refused"] * 10


async def test_an_address_that_is_listed_twice_is_listened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))

    async def listed_twice(*_args: Any, **_options: Any) -> list[Any]:
        return [found, found]

    monkeypatch.setattr(anyio, "getaddrinfo", listed_twice)
    listeners = await open_listeners(parse_address("tcp://localhost:0"))
    try:
        assert len(listeners) == 1
    finally:
        for listener in listeners:
            listener.close()


async def test_a_gateway_starts_once() -> None:
    gateway = Gateway(listen=[HERE], tokens={"alice": "a-token-of-thirty-characters!"})
    await gateway.start()
    try:
        urls = gateway.urls
        with pytest.raises(UsageError, match="make a new one"):
            await gateway.start()
        assert gateway.urls == urls
    finally:
        await gateway.aclose()
    with pytest.raises(UsageError, match="make a new one"):
        await gateway.start()


async def test_the_client_of_an_ipv6_address_has_its_address_and_its_port() -> None:
    try:
        (listener,) = await open_listeners(parse_address("tcp://[::1]:0"))
    except ConfigurationError:
        pytest.skip("this machine has no IPv6")
    try:
        async with await anyio.connect_tcp("::1", listener.address.port) as client:
            stream, peer = await listener.accept()
            assert peer == f"[::1]:{client.extra(SocketAttribute.local_port)}"
            await stream.aclose()
    finally:
        listener.close()


def addresses(monkeypatch: pytest.MonkeyPatch, *found: tuple[str, int]) -> None:
    """Make the name of every host stand for these IPv4 addresses."""

    async def getaddrinfo(*_args: Any, **_options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", where) for where in found]

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)


async def test_all_addresses_of_a_host_have_the_port_that_the_system_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses(monkeypatch, ("127.0.0.1", 0), ("127.0.0.2", 0))
    listeners = await open_listeners(parse_address("tcp://localhost:0"))
    try:
        first, second = (each.address.port for each in listeners)
        assert first == second != 0
        for host in ("127.0.0.1", "127.0.0.2"):
            with socket.create_connection((host, first)):
                pass
    finally:
        for listener in listeners:
            listener.close()


async def test_when_one_address_of_a_host_is_taken_the_others_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        addresses(monkeypatch, ("127.0.0.1", port), ("127.0.0.2", port))
        with pytest.raises(ConfigurationError) as refused:
            await open_listeners(parse_address(f"tcp://localhost:{port}"))
        assert (str(refused.value.args[0]), refused.value.option) == (
            f"cannot listen on tcp://localhost:{port}: Address already in use",
            "listen",
        )
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


async def test_a_cancelled_accept_takes_no_connection() -> None:
    """Also when one waits already: a flood of connections leaves the event loop to the others."""
    (listener,) = await open_listeners(parse_address(HERE))
    try:
        with socket.create_connection((listener.address.host, listener.address.port)):
            with anyio.CancelScope() as given_up:
                given_up.cancel()
                await listener.accept()
            assert given_up.cancelled_caught
            stream, _ = await listener.accept()
            await stream.aclose()
    finally:
        listener.close()


async def test_a_new_file_has_the_rights_that_the_program_gives_it_after_a_unix_socket_was_opened(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        (listener,) = await open_listeners(parse_address(f"unix://{tmp_path}/door"))
        listener.close()
        with pytest.raises(ConfigurationError):
            await open_listeners(parse_address(f"unix://{tmp_path}/missing/door"))
        (tmp_path / "file").touch()
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    finally:
        os.umask(before)


async def test_a_listener_that_is_closed_again_leaves_the_file_of_another_alone(tmp_path: Path) -> None:
    """The number of a file that was removed may be that of the next one, so it is not looked at twice."""
    (first,) = await open_listeners(parse_address(f"unix://{tmp_path}/s"))
    kept = tmp_path / "kept"
    os.link(tmp_path / "s", kept)
    first.close()
    os.link(kept, tmp_path / "s")
    first.close()
    assert (tmp_path / "s").exists()


async def test_a_gateway_that_could_not_listen_everywhere_names_no_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gateway = Gateway(listen=[HERE, f"tcp://127.0.0.1:{taken.getsockname()[1]}"], tokens={"a": "x" * 20})
        with pytest.raises(ConfigurationError):
            await gateway.start()
        assert gateway.urls == ()
        await gateway.aclose()


async def test_a_listener_whose_socket_file_was_removed_is_closed(tmp_path: Path) -> None:
    (listener,) = await open_listeners(parse_address(f"unix://{tmp_path}/door"))
    (tmp_path / "door").unlink()
    listener.close()
    with pytest.raises(anyio.ClosedResourceError):
        await listener.accept()


async def test_a_socket_file_whose_owner_accepts_nothing_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(tmp_path / "door"))
        busy.listen(0)
        waiting.connect(str(tmp_path / "door"))  # now its queue is full
        with pytest.raises(ConfigurationError, match="cannot listen on unix://"):
            await open_listeners(parse_address(f"unix://{tmp_path}/door"))
        assert (tmp_path / "door").is_socket()


async def test_the_own_address_of_a_connection_is_that_of_ip_alone(tmp_path: Path) -> None:
    for url, own in ((HERE, "127.0.0.1"), (f"unix://{tmp_path}/door", None)):
        (listener,) = await open_listeners(parse_address(url))
        try:
            client = await SocketConnectable(listener.address).connect()
            stream, _ = await listener.accept()
            assert local_address(stream) == own
            await stream.aclose()
            assert local_address(stream) is None
            await client.aclose()
        finally:
            listener.close()
    within, other = memory_stream_pair()
    assert local_address(within) is None
    for end in (within, other):
        await end.aclose()


async def test_an_ipv6_address_leaves_the_same_port_of_ipv4_to_others() -> None:
    try:
        (listener,) = await open_listeners(parse_address("tcp://[::]:0"))
    except ConfigurationError:
        pytest.skip("this machine has no IPv6")
    try:
        (other,) = await open_listeners(parse_address(f"tcp://0.0.0.0:{listener.address.port}"))
        other.close()
    finally:
        listener.close()


async def test_accepting_is_over_when_the_listener_is_closed_and_all_were_attended() -> None:
    (listener,) = await open_listeners(parse_address(HERE))
    attended: list[str] = []
    came = anyio.Event()

    async def attend(stream: SocketStream, _address: Address, peer: str) -> None:
        attended.append(peer)
        await stream.aclose()
        came.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept_all, [listener], attend)
            with socket.create_connection((listener.address.host, listener.address.port)):
                await came.wait()
            listener.close()
    assert len(attended) == 1


async def test_a_closed_gateway_is_not_started_and_begins_no_session() -> None:
    unused = Gateway(command=["true"])
    await unused.aclose()
    with pytest.raises(UsageError, match="make a new one"):
        await unused.start()
    async with rehearsal() as stage:
        await stage.gateway.aclose()
        await (await stage.plain()).rest()
        assert stage.gateway.metrics.refused == {"draining": 1}


@jumping(idle=0.05)
async def test_a_gateway_that_closes_waits_for_no_client_that_says_nothing() -> None:
    gateway = Gateway(command=["true"], listen=[HERE])
    await gateway.start()
    port = int(gateway.urls[0].rpartition(":")[2])
    async with await anyio.connect_tcp("127.0.0.1", port) as silent:
        await anyio.wait_all_tasks_blocked()
        began = anyio.current_time()
        await gateway.aclose()
        assert anyio.current_time() - began < 1.0
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await silent.receive()


PATHS = ["", "/", "/talk", "/talk/", "//", "/a%20b/", "/brücke/", "/łódź%20é"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_gateway_is_reached_at_the_url_that_it_names_and_at_the_one_that_it_was_given(path: str) -> None:
    async with Gateway(command=["cat"], listen=[f"ws://127.0.0.1:0{path}"], observable=True) as gateway:
        (named,) = gateway.urls
        port = named.split(":")[2].partition("/")[0]
        for url in (named, f"ws://127.0.0.1:{port}{path}"):
            with anyio.fail_after(30):
                async with NetworkTransport(url) as transport:
                    await transport.write('{"n":1}')
                    assert await anext(transport.read_messages()) == {"n": 1}
                    async with observe(url, session=gateway.sessions[-1].id) as watching:
                        assert await anext(watching) == b'{"n":1}'


@pytest.mark.parametrize("path", ["/other", "/talk", "/talk//", "/TALK/", "/talk/%20"])
async def test_a_gateway_is_not_reached_at_another_path(path: str) -> None:
    async with Gateway(command=["cat"], listen=["ws://127.0.0.1:0/talk/"]) as gateway:
        transport = NetworkTransport(gateway.urls[0].removesuffix("/talk/") + path)
        with pytest.raises(CLIConnectionError, match="There is nothing here") as caught:
            await transport.connect()
        assert caught.value.code == "connect.http_404"
