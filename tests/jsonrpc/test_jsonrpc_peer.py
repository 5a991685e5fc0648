"""`JSONRPCPeer`: what its user sees of a conversation, with a peer that behaves and with one that does not."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from rpc_peers import connected

from claude_transport import JSONRPCError
from claude_transport.jsonrpc import Request


async def test_a_request_returns_the_result_of_its_answer() -> None:
    async with connected() as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(other.answer, {"pong": [1, 2]})
        assert await peer.request("ping", {"a": 1}) == {"pong": [1, 2]}
    assert other.heard == [{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": 1}}]


async def test_an_error_of_the_peer_is_raised_with_its_code_text_and_data() -> None:
    async with connected() as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(other.answer_with, {"error": {"code": -32001, "message": "no\nsuch thread", "data": {"a": 1}}})
        with pytest.raises(JSONRPCError) as caught:
            await peer.request("thread/read")
        assert (caught.value.rpc_code, caught.value.message, caught.value.data) == (-32001, "no\nsuch thread", {"a": 1})
        assert (caught.value.code, caught.value.subtype, caught.value.request_id) == ("control.jsonrpc", "thread/read", "1")


async def test_both_ends_may_use_the_same_id_at_the_same_time() -> None:
    async def on_request(request: Request) -> Any:
        return {"asked": request.method}

    async with connected(on_request=on_request) as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(peer.request, "ours")
        assert (await other.hear())["id"] == 1
        await other.say({"id": 1, "method": "theirs"})
        assert await other.hear() == {"jsonrpc": "2.0", "id": 1, "result": {"asked": "theirs"}}
        await other.say({"id": 1, "result": None})


async def test_what_a_callback_raises_is_not_told_to_the_peer() -> None:
    async def on_request(request: Request) -> Any:
        raise ValueError("the secret")

    async with connected(on_request=on_request) as (peer, other):
        await other.say({"id": "a", "method": "theirs"})
        assert await other.hear() == {"jsonrpc": "2.0", "id": "a", "error": {"code": -32603, "message": "internal error"}}
        assert peer.failed_callbacks == 1


async def test_the_version_is_left_out_where_a_dialect_leaves_it_out() -> None:
    async with connected(with_version=False) as (peer, other):
        await peer.notify("initialized")
        assert await other.hear() == {"method": "initialized"}


async def test_notifications_are_read_in_their_order_with_their_lines() -> None:
    async with connected() as (peer, other):
        await other.say(b'{"method":"a","params":{"n":1},"emittedAtMs":5}\n', {"method": "b", "params": [2]}, {"method": "c"})
        await other.hang_up()
        got = [notification async for notification in peer.notifications()]
    assert [(notification.method, notification.params) for notification in got] == [("a", {"n": 1}), ("b", [2]), ("c", None)]
    assert got[0].raw == b'{"method":"a","params":{"n":1},"emittedAtMs":5}'
