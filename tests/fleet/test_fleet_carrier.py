"""`Carrier`, with a broker that only notes what it is asked."""

from __future__ import annotations

import anyio

from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.carrier import Carrier
from claude_transport.fleet.ends import Claimed, WorkerEnd
from claude_transport.fleet.messages import Call, Reply, Sync, Synced


class Noting(Broker):
    """Answers each comparison of the streams."""

    def __init__(self) -> None:
        super().__init__(BrokerAddress("redis://127.0.0.1:1/0"))
        self.asked: list[Call] = []
        self.losses = 0

    def generation_of(self, session: str) -> tuple[object, int]:
        return None, self.losses

    async def reached(self, session: str, *, patience: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def call(self, session: str, call: Call) -> Reply:
        await anyio.lowlevel.checkpoint()
        self.asked.append(call)
        return Synced("", 0, 0, 0)


async def test_an_idle_session_compares_the_streams_as_soon_as_its_connection_was_lost() -> None:
    broker = Noting()
    end = WorkerEnd(Claimed(token="1.w"), asked_at=anyio.current_time())
    carrier = Carrier(broker, "S", end, patience=1.0, on_change=bool)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(carrier.append_all)
        await anyio.wait_all_tasks_blocked()
        assert (broker.asked, carrier.is_current) == ([], True)
        broker.losses += 1
        assert not carrier.is_current
        carrier.wake()
        await anyio.wait_all_tasks_blocked()
        assert [type(call) for call in broker.asked] == [Sync]
        assert carrier.is_current
        tasks.cancel_scope.cancel()
