"""Listening sockets: what they do when the system cannot accept a connection, and at addresses that are listed twice."""

from __future__ import annotations

import errno
import logging
import socket
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute
from virtual_time import virtual_time

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.gateway.gateway import Gateway
from claude_transport.serving.listeners import Listener, open_listeners
from claude_transport.streams.address import parse_address

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
