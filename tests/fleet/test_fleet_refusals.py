"""A broker that answers, and takes no writes: it is out of memory, or has become a replica. Both ends wait, and not for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from broker_server import BrokerServer
from programs import ECHO, serving
from redis_server import free_port
from virtual_time import virtual_time

from claude_transport import errors
from claude_transport.fleet import FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.fleet.carrier import Carrier
from claude_transport.fleet.ends import ClientEnd
from claude_transport.fleet.messages import Append, Appended, Call, Entry, Renew, Renewed, Reply, Sync, Synced
from claude_transport.fleet.stream import FleetConnectable, SessionRequest
from claude_transport.observing import observe

PATIENCE = 30.0


class Refusing(Broker):
    """Has both streams, and takes no writes while `refuses(now)` says so. With `also_compares`, it compares them nevertheless.

    It says so itself while `refused(now)`; at other times the connection is lost.
    """

    def __init__(
        self, refuses: Callable[[float], bool], *, also_compares: bool = True, refused: Callable[[float], bool] | None = None
    ) -> None:
        super().__init__(BrokerAddress("redis://127.0.0.1:1/0"))
        self.refuses = refuses
        self.also_compares = also_compares
        self.refused = (lambda _now: True) if refused is None else refused
        self.last = 0
        self.taken: int | None = None

    async def reached(self, session: str, *, patience: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def call(self, session: str, call: Call) -> Reply:
        await anyio.lowlevel.checkpoint()
        if self.refuses(anyio.current_time()) and not (self.also_compares and isinstance(call, Sync)):
            raise BrokerCut("OOM command not allowed", refused=self.refused(anyio.current_time()))
        if isinstance(call, Append):
            self.last = call.first + len(call.entries) - 1
            return Appended(self.last, self._taken_now)
        if isinstance(call, Renew):
            return Renewed(60.0)
        return Synced("1.w", 0, self.last, self._taken_now)

    @property
    def _taken_now(self) -> int:
        return self.last if self.taken is None else self.taken


@virtual_time
@pytest.mark.parametrize("also_compares", [True, False])
async def test_a_broker_that_takes_no_writes_is_given_up_after_the_patience_of_this_end(*, also_compares: bool) -> None:
    end = ClientEnd("1.c")
    carrier = Carrier(Refusing(lambda _now: True, also_compares=also_compares), "S", end, patience=PATIENCE, on_change=bool)
    end.writer.put(b"{}\n")
    began = anyio.current_time()
    with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(3600):
        await carrier.append_all()
    assert (caught.value.code, str(caught.value)) == ("fleet.broker_lost", "redis://127.0.0.1:1/0 took no call for 30 s")
    assert PATIENCE <= anyio.current_time() - began <= PATIENCE + 2


@virtual_time
async def test_a_broker_that_takes_writes_again_in_time_is_waited_for_anew() -> None:
    """Twice as long as the patience in all, and never as long at once."""
    began, periods = anyio.current_time(), ((0, 25), (30, 55))
    broker = Refusing(lambda now: any(first <= now - began < last for first, last in periods))
    end = ClientEnd("1.c")
    carrier = Carrier(broker, "S", end, patience=PATIENCE, on_change=bool)
    said = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(carrier.append_all)
        for pause in (0, 27, 5, 30):
            await anyio.sleep(pause)
            said.append(broker.last)
            end.writer.put(b"x" * 20_000)
            carrier.wake()
        await anyio.sleep(1)
        said.append(broker.last)
        tasks.cancel_scope.cancel()
    assert said == [0, 1, 2, 3, 4]


@virtual_time
async def test_each_lost_connection_is_waited_for_anew_once_the_streams_were_compared() -> None:
    began, end = anyio.current_time(), ClientEnd("1.c")
    at_once = Refusing(lambda now: now == began, refused=lambda _now: False)
    carrier = Carrier(at_once, "S", end, patience=PATIENCE, on_change=bool)
    assert not await carrier.carry_out(end.renew_call(60))
    await anyio.sleep(20)
    at_once.refuses = lambda now: now - began < 40
    at_once.also_compares = False
    assert not await carrier.carry_out(end.renew_call(60))
    assert anyio.current_time() - began >= 40
    assert await carrier.carry_out(end.renew_call(60))


@virtual_time
async def test_a_broker_that_is_lost_and_then_takes_no_writes_is_waited_for_once() -> None:
    began, end = anyio.current_time(), ClientEnd("1.c")
    broker = Refusing(lambda _now: True, also_compares=False, refused=lambda now: now - began >= 20)
    carrier = Carrier(broker, "S", end, patience=PATIENCE, on_change=bool)
    with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(3600):
        await carrier.carry_out(end.renew_call(60))
    assert caught.value.code == "fleet.broker_lost"
    assert PATIENCE <= anyio.current_time() - began <= PATIENCE + 2


@virtual_time
async def test_a_writer_that_waits_for_its_reader_gives_a_broker_up_too() -> None:
    """It compares the streams again and again, which is no write."""
    began, end = anyio.current_time(), ClientEnd("1.c", window=1)
    broker = Refusing(lambda now: now > began + 1)
    broker.taken = 0
    carrier = Carrier(broker, "S", end, patience=PATIENCE, on_change=bool)
    end.writer.put(b"{}\n")

    async def renew() -> None:
        while True:
            await anyio.sleep(5)
            await carrier.carry_out(end.renew_call(60))

    with pytest.raises(BaseExceptionGroup) as caught, anyio.fail_after(3600):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(carrier.append_all)
            tasks.start_soon(renew)
    (lost,) = caught.value.exceptions
    assert (type(lost), str(lost)) == (errors.ConnectionLost, "redis://127.0.0.1:1/0 took no call for 30 s")
    assert 5 + PATIENCE <= anyio.current_time() - began <= 5 + PATIENCE + 6


@virtual_time
async def test_a_writer_asks_often_at_first_and_four_times_a_second_later_whether_its_reader_has_taken() -> None:
    began, end, asked = anyio.current_time(), ClientEnd("1.c", window=1), list[float]()

    class Counting(Refusing):
        async def call(self, session: str, call: Call) -> Reply:
            if isinstance(call, Sync):
                asked.append(anyio.current_time() - began)
            return await super().call(session, call)

    broker = Counting(lambda _now: False)
    broker.taken = 0
    carrier = Carrier(broker, "S", end, patience=PATIENCE, on_change=bool)
    end.writer.put(b"{}\n")
    with anyio.move_on_after(600):
        await carrier.append_all()
    assert sum(when < 0.2 for when in asked) >= 4
    assert sum(300 <= when < 400 for when in asked) == pytest.approx(400, abs=2)


@virtual_time
@pytest.mark.parametrize("refused", [True, False])
async def test_a_broker_that_does_not_come_back_is_waited_for_as_long_as_this_end_has_patience(*, refused: bool) -> None:
    class Away(Refusing):
        async def reached(self, session: str, *, patience: float) -> None:
            await anyio.sleep(patience if anyio.current_time() - began >= 10 else 0)

    began, end = anyio.current_time(), ClientEnd("1.c")
    broker = Away(lambda _now: True, also_compares=refused, refused=lambda _now: refused)
    carrier = Carrier(broker, "S", end, patience=PATIENCE, on_change=bool)
    with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(3600):
        while True:
            await carrier.carry_out(end.renew_call(60))
    assert caught.value.code == "fleet.broker_lost"
    assert anyio.current_time() - began <= PATIENCE + 12


class Lost(Broker):
    """Has a session, and is lost when its output is read."""

    async def start(self, *, timeout: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def command(self, name: str, *args: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return [] if name == "xrange" else b"1" if args[-1] == "wo" else None

    async def follow(self, channel: str, heard: Callable[[bytes], object]) -> None:
        await anyio.lowlevel.checkpoint()

    async def read(self, key: str, cursor: int, *, count: int = 64) -> list[Entry]:
        await anyio.lowlevel.checkpoint()
        raise BrokerCut("the broker is not connected")


@virtual_time
async def test_an_observer_gives_a_broker_up_that_is_lost_for_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claude_transport.fleet.observing.Broker", Lost)
    began = anyio.current_time()
    with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(3600):
        await anext(observe("redis://127.0.0.1:1/0", session="S", since=None))
    assert (caught.value.code, round(anyio.current_time() - began, 6)) == ("fleet.broker_lost", PATIENCE)


OUT_OF_MEMORY = ("config_set", {"maxmemory": 1, "maxmemory-policy": "noeviction"})
READ_ONLY = ("replicaof", "127.0.0.1")


@pytest.mark.parametrize("how", [OUT_OF_MEMORY, READ_ONLY], ids=["out of memory", "read-only"])
async def test_a_server_that_stays_without_writes_ends_both_ends_of_a_session(broker: BrokerServer, how: tuple[Any, ...]) -> None:
    """Each in its own time: the worker when its lease is over, the client after its patience."""
    connection = Broker(BrokerAddress(broker.url))
    await connection.start(timeout=10)
    worker = FleetWorker(broker.url, command=ECHO, lease=1.5)
    wanted = FleetConnectable(BrokerAddress(broker.url), SessionRequest(), close_timeout=1.0, patience=1.0)
    async with serving(worker), await wanted.connect() as stream:
        await stream.send(b'{"n":0}\n')
        with anyio.fail_after(20):
            assert await stream.receive() == b'{"n":0}\n'
        await connection.command(*how, *([free_port()] if how is READ_ONLY else []))
        await stream.send(b'{"n":1}\n')
        with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(20):
            await stream.receive()
        assert (caught.value.code, str(caught.value)) == ("fleet.broker_lost", f"{BrokerAddress(broker.url)} took no call for 1 s")
        with anyio.fail_after(20):
            while worker.sessions:
                await anyio.sleep(0.01)
        assert dict(worker.metrics.lost) == {"fleet.broker_lost": 1}
    await connection.aclose()
