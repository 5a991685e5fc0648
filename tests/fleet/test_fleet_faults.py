"""Two hundred seeded faults on a real server: cut connections, brokers that are killed, and workers that are killed or cancelled at once.

The session has turns. Each turn has to end once: with its result, or as uncertain when its worker was gone. No prompt reaches a process
twice, and no line of a turn is lost, doubled or out of order. Ten seeds have 20 faults each, and run at night; one with five runs always.
The same seed makes the same plan.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec
import pytest
from broker_server import BrokerServer, broker_server
from relay import Cut, relay_to

from claude_transport.fleet import FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.fleet.roster import wake_node

CUTS = 14
"""Connections that are cut, of both ends together."""

FAULTS = ["broker", "broker", "broker", "cancelled", "cancelled", "killed"]
"""What else happens to one seed, in an order of its own."""

LINES = 10
"""Lines of a turn, without its result."""

LEASE = 2.0

TURNS = """
import json, os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for line in sys.stdin:
    said = json.loads(line)
    if said.get("type") != "user":
        continue
    os.write(log, b"%d\\n" % said["n"])
    for i in range(int(sys.argv[2])):
        print(json.dumps({"type": "line", "n": said["n"], "i": i}), flush=True)
    print(json.dumps({"type": "result", "n": said["n"]}), flush=True)
"""

WORKER = """
import sys, anyio
from claude_transport.fleet import FleetWorker
url, name, lease, *command = sys.argv[1:]
async def main():
    worker = FleetWorker(url, command=command, name=name, lease=float(lease))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.serve)
        await worker.started.wait()
        print("ready", flush=True)
anyio.run(main)
"""


class Fleet:
    """The workers of one session: one has it, and the next one comes when it goes."""

    def __init__(self, url: str, *, wakes: Broker, command: list[str], tasks: anyio.abc.TaskGroup) -> None:
        self._url = url
        self._wakes = wakes
        self._command = command
        self._tasks = tasks
        self._count = 0
        self._end: Callable[[], Any] = bool
        self.process: subprocess.Popen[bytes] | None = None

    async def begin(self, *, in_process: bool) -> str:
        """Start another worker. Returns its name."""
        self._count += 1
        name = f"worker-{self._count}"
        if not in_process:
            arguments = [sys.executable, "-c", WORKER, self._url, name, str(LEASE), *self._command]
            self.process = process = subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
            assert process.stdout is not None
            assert await anyio.to_thread.run_sync(process.stdout.readline) == b"ready\n"
            self._end = self.kill
            return name
        worker, scope, ended = FleetWorker(self._url, command=self._command, name=name, lease=LEASE), anyio.CancelScope(), anyio.Event()

        async def serve() -> None:
            with scope:
                await worker.serve()
            ended.set()

        async def cancel() -> None:
            scope.cancel()
            await ended.wait()

        self._tasks.start_soon(serve)
        await worker.started.wait()
        self._end = cancel
        return name

    async def kill(self) -> None:
        """End the worker in a process of its own with SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        await anyio.to_thread.run_sync(self.process.communicate)
        self.process = None

    async def replace(self, *, in_process: bool = True) -> None:
        """Start another worker, and end the one that has the session."""
        end = self._end
        name = await self.begin(in_process=in_process)
        await end()
        with contextlib.suppress(BrokerCut):  # its own heartbeat lets it look at the queue, too
            await wake_node(self._wakes, name)


@asynccontextmanager
async def fleet_of(url: str, server: BrokerServer, command: list[str]) -> AsyncIterator[Fleet]:
    wakes = Broker(BrokerAddress(server.url))
    await wakes.start(timeout=10)
    async with anyio.create_task_group() as tasks:
        fleet = Fleet(url, wakes=wakes, command=command, tasks=tasks)
        await fleet.begin(in_process=True)
        try:
            yield fleet
        finally:
            if fleet.process is not None:
                fleet.process.kill()
                fleet.process.communicate()
        tasks.cancel_scope.cancel()
    await wakes.aclose()


async def play_turn(messages: AsyncIterator[dict[str, Any]], number: int, *, at_line: Callable[[], Any] | None) -> bool:
    """Read one turn, and call `at_line()` in the middle of it. Returns whether it is certain."""
    got: list[int] = []
    while True:
        message = await anext(messages)
        if message["type"] == "system":
            assert message["subtype"] == "fleet_takeover"
            assert message["uncertain"] == 1 or not got, message
        elif message["type"] == "line":
            assert (message["n"], message["i"]) == (number, len(got))
            got.append(message["i"])
            if at_line is not None and len(got) == LINES // 2:
                await at_line()
        else:
            assert message["type"] == "result"
            if message.get("subtype") == "outcome_uncertain":
                return False
            assert (message["n"], len(got)) == (number, LINES)
            return True


async def play(server: BrokerServer, log: Path, *, seed: int, cuts: int, others: list[str]) -> tuple[list[int], int]:
    """Play turns until all faults of a seed have happened. Returns the turns that are certain, and the number of all."""
    seeded = random.Random(seed)
    faults = seeded.sample(others, len(others))

    def cut_next(_: int) -> Cut | None:
        if not armed or near.cuts + far.cuts >= cuts:
            return None
        up, down = seeded.randrange(1500, 8000), seeded.randrange(1500, 8000)
        return Cut(up=up, down=down if seeded.randrange(3) else None, hard=bool(seeded.randrange(2)))

    async def fail(what: str) -> None:
        armed.append(True)
        if what == "broker":
            server.kill()
            await anyio.to_thread.run_sync(server.start)
        elif what == "killed" and fleet.process is None:
            faults.insert(0, what)  # the last of all, when the worker in a process of its own has the session
            await fleet.replace(in_process=False)
        else:
            await fleet.replace()

    armed: list[bool] = []
    certain, number = [], 0
    target = f"tcp://127.0.0.1:{server.port}"
    command = [sys.executable, "-I", "-S", "-c", TURNS, str(log), str(LINES)]
    async with (
        relay_to(target, cut_next=cut_next) as near,
        relay_to(target, cut_next=cut_next) as far,
        fleet_of(far.url.replace("tcp://", "redis://"), server, command) as fleet,
        FleetTransport(near.url.replace("tcp://", "redis://")) as transport,
    ):
        messages = transport.read_messages()
        while faults or near.cuts + far.cuts < cuts:
            await transport.write(msgspec.json.encode({"type": "user", "n": number}))
            what = faults.pop() if faults and seeded.randrange(2) else None
            with anyio.fail_after(60):
                if await play_turn(messages, number, at_line=None if what is None else partial(fail, what)):
                    certain.append(number)
            number += 1
    return certain, number


SEEDS = [(0, 3, ["broker", "cancelled"]), *(pytest.param(seed, CUTS, FAULTS, marks=pytest.mark.nightly) for seed in range(1, 11))]


@pytest.mark.parametrize(("seed", "cuts", "others"), SEEDS)
async def test_cuts_killed_brokers_and_killed_workers_cost_no_line_and_repeat_none(
    tmp_path: Path, seed: int, cuts: int, others: list[str]
) -> None:
    log = tmp_path / "received"
    with broker_server(tmp_path / "broker", "--appendonly", "yes", "--appendfsync", "always") as server:
        certain, number = await play(server, log, seed=seed, cuts=cuts, others=others)
    received = Counter(int(line) for line in log.read_text().split())
    assert max(received.values()) == 1  # no process gets a prompt that another one had
    assert set(certain) <= set(received) <= set(range(number))
