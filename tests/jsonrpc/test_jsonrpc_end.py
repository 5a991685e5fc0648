"""How a JSON-RPC conversation ended, for a layer that waits for that."""

from __future__ import annotations

import anyio
import msgspec
import pytest
from rpc_peers import PATIENCE, connected

import claude_transport as ct
from claude_transport import errors
from claude_transport.streams.memory import MemoryConnectable
from claude_transport.transports import AtOnce, Client, SessionTerms


async def test_a_good_end_of_the_peer_has_no_error() -> None:
    async with connected() as (peer, other):
        await other.hang_up()
        with anyio.fail_after(PATIENCE):
            assert await peer.ended() is None
            assert await peer.ended() is None


async def test_an_end_in_the_middle_of_a_line_is_told() -> None:
    async with connected() as (peer, other):
        await other.say(b'{"half')
        await other.hang_up()
        with anyio.fail_after(PATIENCE):
            assert isinstance(await peer.ended(), errors.TruncatedStream)


@pytest.mark.parametrize("times", [1, 2])
async def test_closing_wakes_everything_that_waits_for_the_end(times: int) -> None:
    async with connected() as (peer, _), anyio.create_task_group() as tasks:
        for _ in range(times):
            tasks.start_soon(peer.ended)
        await anyio.wait_all_tasks_blocked()
        await peer.aclose()
    assert isinstance(await peer.ended(), errors.TransportClosed)


class FailsAtOnce(ct.TransportWrapper):
    """Its write without a wait raises what no transport of this library raises."""

    def attach(self, client: Client) -> SessionTerms:
        def fail(_line: bytes) -> bool:
            raise LookupError("the medium is gone")

        at_once = AtOnce(connect=bool, write=fail, end_input=bool, close=bool)
        return msgspec.structs.replace(super().attach(client), at_once=at_once)


@pytest.mark.parametrize("way", ["request", "notify"])
async def test_a_write_at_once_that_fails_is_a_typed_error_and_leaves_nothing(way: str) -> None:
    connectable = MemoryConnectable()
    async with ct.JSONRPCPeer(FailsAtOnce(ct.StreamTransport(connectable))) as peer:
        with anyio.fail_after(PATIENCE), pytest.raises(errors.ConnectionLost) as caught:
            await (peer.request("hello") if way == "request" else peer.notify("hello"))
        assert (caught.value.code, type(caught.value.__cause__)) == ("transport.failed", LookupError)
        assert peer.pending_requests == {}
