"""`/healthz` and `/metrics` are answered under the gateway's own host names only: a page with a DNS server of its own reads neither."""

from __future__ import annotations

import logging
import socket
from typing import Any

import anyio
import pytest

from claude_transport.errors import ConfigurationError
from claude_transport.gateway.asgi import GatewayApplication
from claude_transport.gateway.gateway import Gateway
from claude_transport.serving.pages import Hosts


@pytest.mark.parametrize(
    "host",
    [
        *(
            "localhost",
            "LOCALHOST:80",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:7412",
            "127.8.8.8",
            "[::1]",
            "[::1]:80",
            "::1",
            "[::ffff:127.0.0.1]:80",
        ),
        *(
            "10.1.2.3",
            "10.1.2.3:7412",
            "[::ffff:10.1.2.3]",
            "gateway.example.org",
            "Gateway.Example.Org.:443",
            "192.0.2.7",
            "[2001:db8::7]:1",
        ),
        *("bound.example.org", None),
    ],
)
def test_these_names_are_the_gateways(host: str | None) -> None:
    hosts = Hosts(["gateway.example.org", "192.0.2.7", "2001:DB8:0::7"], bound=["bound.example.org", "0.0.0.0", "::"])
    assert hosts.admits(host, here="10.1.2.3")


@pytest.mark.parametrize(
    "host",
    [
        *("", " ", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "gateway.example.org.evil.example", "10.1.2.4"),
        *("gateway.example.org, evil.example", "evil.example:80:localhost", "[::1]evil.example", "[::1", "0.0.0.0", "0.0.0.0:80", "[::]"),
        *("localhost@evil.example", "evil.example#localhost", "localhost:evil", "localhost/", "\x00", "2130706433", "0x7f.1", "127.1"),
        *("gateway.example.org:80:80", "[fe80::1%25eth0]", "\uff4cocalhost", "x" * 100_000),
    ],
)
def test_these_names_are_not(host: str) -> None:
    hosts = Hosts(["gateway.example.org"], bound=["0.0.0.0", "::"])
    assert not hosts.admits(host, here="10.1.2.3")
    assert not Hosts().admits(host)


def test_an_address_is_the_gateways_only_where_the_request_went_to_it() -> None:
    assert not Hosts().admits("10.1.2.3", here="10.1.2.4")
    assert not Hosts().admits("10.1.2.3")
    assert not Hosts().admits("0.0.0.0", here="0.0.0.0")


@pytest.mark.parametrize(
    "names", ["example.org", "localhost", [7], ["https://example.org"], ["example.org:80"], ["example.org/x"], [""], ["a b"], ["*"]]
)
def test_what_is_no_host_name_is_refused_when_the_gateway_is_made(names: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Gateway(command=["true"], hosts=names)
    assert caught.value.option == "hosts"


async def ask(port: int, path: str, *host: str, address: str = "127.0.0.1") -> bytes:
    """Return the status line of the answer to a plain HTTP request."""
    headers = b"".join(b"Host: %s\r\n" % each.encode() for each in host)
    async with await anyio.connect_tcp(address, port) as stream:
        await stream.send(b"GET %s HTTP/1.1\r\n%s\r\n" % (path.encode(), headers))
        answer = b""
        with anyio.fail_after(30):
            try:
                while True:
                    answer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return answer


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/metrics?x"])
async def test_a_page_that_rebinds_its_name_reads_nothing_on_a_socket(path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "claude_transport")
    async with Gateway(command=["true"], listen=["ws://127.0.0.1:0"], hosts=["gateway.example.org"]) as gateway:
        port = int(gateway.urls[0].rpartition(":")[2].rstrip("/"))
        for host in ("127.0.0.1", f"localhost:{port}", "gateway.example.org"):
            assert (await ask(port, path, host)).startswith(b"HTTP/1.1 200 ")
        for hosts in (["evil.example"], [f"evil.example:{port}"], ["127.0.0.1", "evil.example"], ["evil.example", "127.0.0.1"], [""]):
            answer = await ask(port, path, *hosts)
            assert answer.startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 ")), answer
            assert b"claude_transport_gateway" not in answer
            assert b'"status"' not in answer
        assert gateway.metrics.refused["host"] >= 4
    assert "refused a client (host)" in caplog.text


async def test_where_it_listens_at_every_address_the_one_that_was_asked_counts_as_for_a_probe_of_kubernetes() -> None:
    limits: dict[str, Any] = {"tokens": {"a": "a-token-of-sufficient-length"}, "allow_plaintext": True}
    async with Gateway(command=["true"], listen=["ws://0.0.0.0:0"], **limits) as gateway:
        port = int(gateway.urls[0].rpartition(":")[2].rstrip("/"))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))  # sends nothing; finds the address that this machine would use
                own = probe.getsockname()[0]
            except OSError:
                own = "127.0.0.1"  # a machine without a network
        assert (await ask(port, "/healthz", f"{own}:{port}", address=own)).startswith(b"HTTP/1.1 200 ")
        assert (await ask(port, "/healthz", "192.0.2.77", address=own)).startswith(b"HTTP/1.1 421 ")
        assert (await ask(port, "/healthz", "0.0.0.0", address=own)).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    ("host", "server", "status"),
    [
        (b"127.0.0.1:8000", ("127.0.0.1", 8000), 200),
        (b"10.1.2.3:8000", ("10.1.2.3", 8000), 200),
        (b"10.1.2.3:8000", ("10.9.9.9", 8000), 421),
        (b"gateway.example.org", None, 200),
        (b"evil.example", ("127.0.0.1", 8000), 421),
        (b"evil.example", ("evil.example", 8000), 421),
        (b"evil.example", ("/run/server.sock", None), 421),
        (None, ("127.0.0.1", 8000), 200),
    ],
)
@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
async def test_an_application_looks_at_the_host_too(path: str, host: bytes | None, server: Any, status: int) -> None:
    said: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("nothing is read of such a request")

    async def send(event: Any) -> None:
        said.append(event)

    async with Gateway(command=["true"], hosts=["gateway.example.org"]) as gateway:
        application = GatewayApplication(gateway, allow_anyone=True)
        headers = [] if host is None else [(b"host", host)]
        await application({"type": "http", "path": path, "headers": headers, "server": server}, receive, send)
    assert said[0]["status"] == status
