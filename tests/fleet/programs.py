"""Programs that a worker runs in place of a CLI, and what tests of a fleet do with it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from broker_server import BrokerServer

from claude_transport.fleet import FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress

ECHO = [sys.executable, "-I", "-S", "-c", "import sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n    sys.stdout.flush()\n"]
"""Says each line again."""


@asynccontextmanager
async def connected(broker: BrokerServer) -> AsyncIterator[Broker]:
    """A connection of the test's own."""
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    try:
        yield connection
    finally:
        await connection.aclose()


@asynccontextmanager
async def serving(*workers: FleetWorker) -> AsyncIterator[None]:
    """The workers serve as long as the block runs, and have told the broker so before it begins."""
    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(worker.serve)
        for worker in workers:
            await worker.started.wait()
        yield
        tasks.cancel_scope.cancel()


async def read(messages: Any, count: int) -> list[dict[str, Any]]:
    """The next messages of a transport, at most 20 seconds."""
    with anyio.fail_after(20):
        return [await anext(messages) for _ in range(count)]


def numbered(numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [{"n": number} for number in numbers]
