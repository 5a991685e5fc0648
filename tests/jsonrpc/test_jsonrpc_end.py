"""How a JSON-RPC conversation ended, for a layer that waits for that."""

from __future__ import annotations

import anyio
import pytest
from rpc_peers import PATIENCE, connected

from claude_transport import errors


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
