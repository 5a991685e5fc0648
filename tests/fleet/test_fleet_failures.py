"""The rows of the failure matrix, each on a real server: what dies, what is cut, and what is seen."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from broker_server import BrokerServer, broker_server
from polling import a_moment
from programs import ECHO, numbered, read, serving
from relay import Cut, relay_to

from claude_transport import errors
from claude_transport.fleet import FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut

FSYNC = ["always", "everysec", "no"]


async def talk(transport: FleetTransport, *, upto: int, disturb: Any) -> list[dict[str, Any]]:
    """Write numbers while the answers are read, and call `disturb()` now and then. Returns the answers."""
    got: list[dict[str, Any]] = []

    async def write() -> None:
        for number in range(upto):
            await transport.write(msgspec.json.encode({"n": number}))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            async for message in transport.read_messages():
                got.append(message)
                await disturb(len(got))
                if len(got) == upto:
                    break
    return got


@pytest.mark.parametrize("fsync", FSYNC)
async def test_a_broker_with_a_file_that_is_killed_loses_and_repeats_nothing(tmp_path: Path, fsync: str) -> None:
    with broker_server(tmp_path / "b", "--appendonly", "yes", "--appendfsync", fsync) as server:

        async def disturb(count: int) -> None:
            if count in (500, 1500):
                server.kill()
                await anyio.to_thread.run_sync(server.start)

        async with serving(FleetWorker(server.url, command=ECHO)), FleetTransport(server.url) as transport:
            assert await talk(transport, upto=3000, disturb=disturb) == numbered(range(3000))


async def test_a_torn_file_is_filled_again_by_both_ends(tmp_path: Path) -> None:
    with broker_server(tmp_path / "b", "--appendonly", "yes", "--appendfsync", "always") as server:

        async def disturb(count: int) -> None:
            if count in (500, 1500):
                server.kill()
                server.cut_file(20_000, kept=begun)
                await anyio.to_thread.run_sync(server.start)

        async with serving(FleetWorker(server.url, command=ECHO)), FleetTransport(server.url) as transport:
            begun = server.file.stat().st_size  # the session itself was acknowledged long ago
            assert await talk(transport, upto=3000, disturb=disturb) == numbered(range(3000))


async def test_a_broker_without_a_file_that_starts_again_ends_both_ends_with_a_typed_error(broker: BrokerServer) -> None:
    worker = FleetWorker(broker.url, command=ECHO)
    async with serving(worker), FleetTransport(broker.url) as transport:
        await transport.write("{}")
        messages = transport.read_messages()
        await read(messages, 1)
        broker.kill()
        await anyio.to_thread.run_sync(broker.start)
        with pytest.raises(errors.ConnectionLost) as caught, anyio.fail_after(20):
            await anext(messages)
        assert caught.value.code == "fleet.gone"
        with anyio.fail_after(30):
            while worker.sessions:
                await a_moment()
        # and the fleet goes on
        async with FleetTransport(broker.url) as second:
            await second.write("{}")
            assert await read(second.read_messages(), 1) == [{}]


async def test_a_link_to_the_broker_that_is_cut_anywhere_costs_no_line(broker: BrokerServer) -> None:
    def cut_next(cuts: int) -> Cut | None:
        return Cut(up=3000 + 700 * cuts, down=None, hard=bool(cuts % 2)) if cuts < 12 else None

    async with serving(FleetWorker(broker.url, command=ECHO)), relay_to(f"tcp://127.0.0.1:{broker.port}", cut_next=cut_next) as relay:
        url = relay.url.replace("tcp://", "redis://")

        async def nothing(_: int) -> None:
            pass

        async with FleetTransport(url) as transport:
            assert await talk(transport, upto=3000, disturb=nothing) == numbered(range(3000))
        assert relay.cuts >= 5


@pytest.mark.parametrize(
    ("failure", "code"),
    [(BrokerCut("the connection was lost"), "fleet.broker_lost"), (errors.ProtocolError("no", code="fleet.refused"), "fleet.refused")],
    ids=["cut", "refused"],
)
async def test_a_worker_that_loses_the_broker_before_it_uses_a_process_takes_the_session_again(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch, failure: Exception, code: str
) -> None:
    class CutOnce(Broker):
        """Is cut when the worker writes down which conversation the process has."""

        cuts = 0

        async def command(self, name: str, *args: Any) -> Any:
            if name == "hset" and str(args[0]).endswith(":setup") and not self.cuts:
                self.cuts += 1
                raise failure
            return await super().command(name, *args)

    monkeypatch.setattr("claude_transport.fleet.worker.Broker", CutOnce)
    worker = FleetWorker(broker.url, command=ECHO, lease=1)
    async with serving(worker), FleetTransport(broker.url, start_timeout=20) as transport:
        await transport.write("{}")
        assert await read(transport.read_messages(), 1) == [{}]
        assert (dict(worker.metrics.lost), dict(worker.metrics.ended)) == ({code: 1}, {})
        assert "claude_transport_fleet_free_capacity 7" in worker.prometheus_text()


async def test_a_partition_between_worker_and_broker_is_over_without_a_lost_or_repeated_line(broker: BrokerServer) -> None:
    async with relay_to(f"tcp://127.0.0.1:{broker.port}") as relay:
        worker = FleetWorker(relay.url.replace("tcp://", "redis://"), command=ECHO)

        async def disturb(count: int) -> None:
            if count == 500:
                before = relay.asked
                relay.fall_silent()
                await relay.until(lambda: relay.asked > before)  # it has given the connection up, and dials again
                relay.heal(late=False)

        async with serving(worker), FleetTransport(broker.url) as transport:
            assert await talk(transport, upto=1500, disturb=disturb) == numbered(range(1500))


WORKER = """
import sys, anyio
from claude_transport.fleet import FleetWorker
url, name, lease, *command = sys.argv[1:]
async def main():
    worker = FleetWorker(url, command=command, name=name, lease=float(lease), capacity=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.serve)
        await worker.started.wait()
        print("ready", flush=True)
anyio.run(main)
"""


def worker_process(server_url: str, name: str) -> subprocess.Popen[bytes]:
    """A worker in a process of its own, which a test can kill."""
    arguments = [sys.executable, "-c", WORKER, server_url, name, "1.5", *ECHO]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


async def test_a_worker_that_is_killed_is_replaced_and_the_turn_in_flight_is_told_as_uncertain(broker: BrokerServer) -> None:
    process = await anyio.to_thread.run_sync(worker_process, broker.url, "first")
    try:
        async with FleetTransport(broker.url) as transport:
            messages = transport.read_messages()
            await transport.write('{"type":"user","n":0}')
            assert await read(messages, 1) == [{"type": "user", "n": 0}]
            process.kill()
            second = FleetWorker(broker.url, command=ECHO, name="second", lease=1.5)
            async with serving(second):
                (notice, result) = await read(messages, 2)
                assert (notice["type"], notice["subtype"], notice["uncertain"]) == ("system", "fleet_takeover", 1)
                assert (result["type"], result["subtype"], result["is_error"]) == ("result", "outcome_uncertain", True)
                await transport.write('{"type":"user","n":1}')
                assert await read(messages, 1) == [{"type": "user", "n": 1}]
                assert (second.metrics.uncertain, dict(second.metrics.claimed)) == (1, {"takeover": 1})
    finally:
        process.kill()
        process.communicate()


async def test_a_zombie_worker_writes_nothing_and_its_process_gets_nothing(broker: BrokerServer) -> None:
    async with relay_to(f"tcp://127.0.0.1:{broker.port}") as relay:
        zombie = FleetWorker(relay.url.replace("tcp://", "redis://"), command=ECHO, name="zombie", lease=1.5, capacity=1)
        async with serving(zombie), FleetTransport(broker.url) as transport:
            messages = transport.read_messages()
            await transport.write('{"n":0}')
            assert await read(messages, 1) == [{"n": 0}]
            relay.fall_silent()
            async with serving(FleetWorker(broker.url, command=ECHO, name="heir", lease=1.5)):
                (notice,) = await read(messages, 1)
                assert (notice["subtype"], notice["uncertain"]) == ("fleet_takeover", 0)
                await transport.write('{"n":1}')
                assert await read(messages, 1) == [{"n": 1}]
                relay.heal(late=True)
                for number in range(2, 50):
                    await transport.write(msgspec.json.encode({"n": number}))
                assert await read(messages, 48) == numbered(range(2, 50))
                with anyio.fail_after(20):
                    while zombie.sessions:
                        await a_moment()


async def test_a_client_that_dies_comes_back_elsewhere_without_a_lost_or_repeated_line(broker: BrokerServer) -> None:
    async with serving(FleetWorker(broker.url, command=ECHO)), relay_to(f"tcp://127.0.0.1:{broker.port}") as relay:
        first = FleetTransport(relay.url.replace("tcp://", "redis://"), close_timeout=0.5, keep=1000)
        await first.connect()
        messages = first.read_messages()
        for message in numbered(range(10)):
            await first.write(msgspec.json.encode(message))
        assert await read(messages, 4) == numbered(range(4))
        relay.fall_silent()  # as a machine that is switched off
        async with FleetTransport(broker.url, session=first.session, since=0) as second:
            assert await read(second.read_messages(), 10) == numbered(range(10))
        await first.close()


async def test_a_replica_that_takes_over_without_the_last_writes_is_filled_again(tmp_path: Path) -> None:
    with broker_server(tmp_path / "one") as primary, broker_server(tmp_path / "two") as replica:

        async def command(server: BrokerServer, name: str, *args: Any) -> Any:
            connection = Broker(BrokerAddress(server.url))
            await connection.start(timeout=10)
            try:
                return await connection.command(name, *args)
            finally:
                await connection.aclose()

        await command(replica, "replicaof", "127.0.0.1", primary.port)
        with anyio.fail_after(30):
            while b"master_link_status:up" not in await command(replica, "info", "replication"):
                await a_moment()
        async with relay_to(f"tcp://127.0.0.1:{primary.port}") as relay:
            url = relay.url.replace("tcp://", "redis://")

            async def disturb(count: int) -> None:
                if count == 600:
                    with anyio.fail_after(30):
                        while not await command(replica, "keys", "*:meta"):  # it knows the session, however late it hears of it
                            await anyio.lowlevel.checkpoint()
                    await command(replica, "replicaof", "no", "one")  # and nothing of what comes now
                if count == 800:
                    relay.lead_to(replica.port)
                    primary.kill()

            async with serving(FleetWorker(url, command=ECHO)), FleetTransport(url) as transport:
                assert await talk(transport, upto=3000, disturb=disturb) == numbered(range(3000))


@pytest.mark.parametrize("many", [60, pytest.param(200, marks=pytest.mark.nightly)])
async def test_cuts_at_seeded_places_cost_no_line(tmp_path: Path, many: int) -> None:
    seeded = random.Random(20)

    def cut_next(cuts: int) -> Cut | None:
        up, down = seeded.randrange(200, 12_000), seeded.randrange(200, 12_000)
        return Cut(up=up, down=down if cuts % 3 else None, hard=bool(cuts % 2)) if cuts < many / 2 else None

    async def nothing(_: int) -> None:
        pass

    with broker_server(tmp_path / "b", "--appendonly", "yes") as server:
        target = f"tcp://127.0.0.1:{server.port}"
        async with relay_to(target, cut_next=cut_next) as near, relay_to(target, cut_next=cut_next) as far:
            worker = FleetWorker(far.url.replace("tcp://", "redis://"), command=ECHO)
            async with serving(worker), FleetTransport(near.url.replace("tcp://", "redis://")) as transport:
                upto = 0
                while near.cuts + far.cuts < many:
                    got = await talk_on(transport, first=upto, count=2000)
                    assert got == numbered(range(upto, upto + 2000))
                    upto += 2000


async def talk_on(transport: FleetTransport, *, first: int, count: int) -> list[dict[str, Any]]:
    """As `talk()`, with other numbers."""

    async def write() -> None:
        for number in range(first, first + count):
            await transport.write(msgspec.json.encode({"n": number}))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            messages = transport.read_messages()
            return [await anext(messages) for _ in range(count)]
    raise AssertionError("not reached")
