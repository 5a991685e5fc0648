"""The start and the end of a `JSONRPCPeer`: nothing is left, whichever task closes it, and whatever waits is told."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from rpc_peers import SixMethods, connected, in_time, settled, soon
from virtual_time import virtual_time

from claude_transport import (
    CLIConnectionError,
    CLINotFoundError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    JSONRPCPeer,
    NotConnected,
    SubprocessTransport,
    TransportClosed,
    UsageError,
)
from claude_transport.errors import ClaudeTransportError
from claude_transport.jsonrpc import Notification, Request


async def test_closing_settles_everything_that_waits() -> None:
    errors: list[ClaudeTransportError] = []
    cancelled: list[str] = []

    async def on_request(request: Request) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(request.method)

    async with connected(on_request=on_request, capacity=64) as (peer, other), anyio.create_task_group() as tasks:

        async def wait(call: Any, *arguments: Any) -> None:
            with pytest.raises(TransportClosed) as caught:
                await in_time(call(*arguments))
            errors.append(caught.value)

        await other.say({"id": 1, "method": "theirs"})
        await soon(lambda: peer.info.lines_read)
        tasks.start_soon(wait, peer.request, "ask")
        tasks.start_soon(wait, peer.notify, "x" * 1000)
        tasks.start_soon(wait, peer.notify, "behind it")
        await settled()
        await in_time(peer.aclose())
    assert (len(errors), cancelled, peer.pending_requests) == (3, ["theirs"], {})
    for call in (peer.request, peer.notify):
        with pytest.raises(TransportClosed, match="the JSON-RPC peer is closed"):
            await call("later")


async def test_closing_again_from_another_task_and_before_the_start_does_nothing_more() -> None:
    transport = SixMethods()
    peer = JSONRPCPeer(transport)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.aclose)
        tasks.start_soon(peer.aclose)
    await peer.aclose()
    assert transport.calls == ["close"]
    with pytest.raises(TransportClosed):
        await peer.start()


async def test_a_cancelled_close_still_closes() -> None:
    transport = SixMethods()
    peer = JSONRPCPeer(transport)
    await peer.start()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await peer.aclose()
    assert transport.calls == ["connect", "close"]


async def test_the_end_of_the_block_closes_also_when_it_ends_by_an_error() -> None:
    transport = SixMethods()
    with pytest.raises(ValueError, match="in the block"):
        async with JSONRPCPeer(transport):
            raise ValueError("in the block")
    assert transport.calls == ["connect", "close"]


@pytest.mark.parametrize("kind", ["on_request", "on_notification"])
async def test_a_callback_may_close_its_peer(kind: str) -> None:
    closed = anyio.Event()

    async def callback(_: Request | Notification) -> Any:
        await peer.aclose()
        closed.set()
        await anyio.sleep_forever()

    options: dict[str, Any] = {kind: callback}
    peer = JSONRPCPeer(transport := SixMethods(), **options)
    await peer.start()
    transport.say({"method": "m", **({"id": 1} if kind == "on_request" else {})})
    await in_time(closed.wait())
    await soon(lambda: transport.calls[-1] == "close")
    await in_time(peer.aclose())


@virtual_time
async def test_a_transport_that_does_not_close_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(SixMethods):
        async def close(self) -> None:
            await super().close()
            await anyio.sleep_forever()

    peer = JSONRPCPeer(Stuck(), transport_close_timeout=3)
    await peer.start()
    began = anyio.current_time()
    await in_time(peer.aclose())
    assert anyio.current_time() - began == pytest.approx(3)
    assert "did not close in 3 s" in caplog.text


async def test_of_the_time_for_closing_a_peer_gets_a_part_and_no_more_than_it_was_allowed() -> None:
    peer = JSONRPCPeer(SixMethods(), close_timeout=5)
    assert (peer.begin_closing(timeout=2.0, hurry=False), peer.begin_closing(timeout=60.0, hurry=True)) == (2.0, 3.0)
    await peer.aclose()


async def test_the_end_of_the_conversation_can_be_awaited_and_says_why() -> None:
    async with connected() as (peer, other):
        await other.hang_up()
        assert await in_time(peer.ended()) is None
    async with connected() as (peer, other):
        other.stream.break_connection()
        error = await in_time(peer.ended())
        assert isinstance(error, ConnectionLost)
    async with connected() as (peer, _):
        await peer.aclose()
        assert isinstance(await in_time(peer.ended()), TransportClosed)


# The start


async def test_a_transport_that_is_connected_is_used_as_it_is() -> None:
    transport = SixMethods()
    await transport.connect()
    async with JSONRPCPeer(transport) as peer:
        await peer.notify("hello")
    assert transport.calls == ["connect", "close"]


async def test_a_peer_is_started_once() -> None:
    async with connected() as (peer, _):
        with pytest.raises(UsageError, match="was started before"):
            await peer.start()


async def test_before_the_start_nothing_can_be_asked() -> None:
    peer = JSONRPCPeer(SixMethods())
    for call in (peer.request, peer.notify):
        with pytest.raises(NotConnected):
            await call("ask")


async def test_a_transport_that_cannot_connect_fails_the_start_and_is_closed() -> None:
    transport = SixMethods()
    transport.connect_error = OSError("no way")
    with pytest.raises(CLIConnectionError, match="no way"):
        await JSONRPCPeer(transport).start()
    assert transport.calls == ["connect", "close"]


async def test_a_program_that_does_not_exist_fails_the_start_with_the_error_of_the_transport() -> None:
    with pytest.raises(CLINotFoundError):
        async with JSONRPCPeer(SubprocessTransport(command=["/no/such/program"])):
            pass


@virtual_time
async def test_a_transport_that_connects_for_ever_fails_the_start_in_time() -> None:
    transport = SixMethods()
    transport.connects = anyio.Event()
    with pytest.raises(ConnectTimeout, match="not connected in 7 s"):
        await JSONRPCPeer(transport, connect_timeout=7).start()
    assert transport.calls == ["connect", "close"]


async def test_closing_while_it_connects_ends_the_start() -> None:
    transport = SixMethods()
    transport.connects = anyio.Event()
    peer = JSONRPCPeer(transport)
    async with anyio.create_task_group() as tasks:

        async def start() -> None:
            with pytest.raises(TransportClosed):
                await in_time(peer.start())

        tasks.start_soon(start)
        await settled()
        await in_time(peer.aclose())
    assert transport.calls == ["connect", "close"]


async def test_a_cancelled_start_closes_the_transport() -> None:
    transport = SixMethods()
    transport.connects = anyio.Event()
    peer = JSONRPCPeer(transport)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.start)
        await settled()
        tasks.cancel_scope.cancel()
    assert transport.calls == ["connect", "close"]
    with pytest.raises(TransportClosed):
        await peer.request("ask")


def test_another_event_loop_is_refused() -> None:
    peers: list[JSONRPCPeer] = []

    async def begin() -> None:
        peers.append(JSONRPCPeer(SixMethods()))
        await peers[0].start()

    async def use() -> None:
        for call in (peers[0].request, peers[0].notify):
            with pytest.raises(UsageError) as caught:
                await call("ask")
            assert caught.value.code == "usage.wrong_loop"
        with pytest.raises(UsageError) as caught:
            peers[0].notifications()
        assert caught.value.code == "usage.wrong_loop"
        for wait in (peers[0].ended, peers[0].aclose):
            with pytest.raises(UsageError) as caught:
                await wait()
            assert caught.value.code == "usage.wrong_loop"

    anyio.run(begin, backend="asyncio")
    anyio.run(use, backend="trio")


# Arguments


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("on_request", 5),
        ("on_notification", "name"),
        ("timeout", 0),
        ("timeout", "60"),
        ("connect_timeout", float("nan")),
        ("transport_close_timeout", -1),
        ("max_requests", 0),
        ("max_requests", True),
        ("max_notifications", 1.5),
    ],
)
def test_an_argument_that_is_not_valid_is_refused_by_name(option: str, value: Any) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError, match=option) as caught:
        JSONRPCPeer(SixMethods(), **options)
    assert caught.value.option == option


@pytest.mark.parametrize("transport", [None, SixMethods, object()])
def test_what_is_no_transport_is_refused(transport: Any) -> None:
    with pytest.raises(ConfigurationError, match="transport must be a Transport"):
        JSONRPCPeer(transport)
