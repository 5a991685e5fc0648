"""The connection to the broker, whenever it ends."""

from __future__ import annotations

import contextlib
import functools
import gc
from typing import Any

import anyio
import anyio.lowlevel
from broker_server import BrokerServer

from claude_transport.streams.broker import Broker, BrokerAddress


async def call(client: Any) -> None:
    """Make a call, which may fail: the client may have ended."""
    with contextlib.suppress(Exception):  # of coredis or of anyio
        await client.ping()


async def test_a_connection_that_is_cancelled_after_any_step_leaves_nothing_open(broker: BrokerServer) -> None:
    for steps in range(60):
        connection = Broker(BrokerAddress(broker.url))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(functools.partial(connection.start, timeout=10))
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        finally:
            await connection.aclose()
        del connection, tasks
        gc.collect()  # what was left open warns now


async def test_a_client_that_ends_while_calls_connect_leaves_nothing_open(broker: BrokerServer) -> None:
    for steps in range(20):
        client = BrokerAddress(broker.url).client()
        async with anyio.create_task_group() as tasks, client:
            await client.ping()
            for _ in range(3):
                tasks.start_soon(call, client)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
        del client, tasks
        gc.collect()  # what was left open warns now
