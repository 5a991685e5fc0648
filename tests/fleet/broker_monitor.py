"""`Monitor`: what each user of a broker calls, as the server itself tells it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from broker_server import BrokerServer

from claude_transport.fleet.broker import Broker, BrokerAddress

_CLIENT = re.compile(r" addr=(\S+) .* user=(\S+)")
_LINE = re.compile(r'\+[\d.]+ \[\d+ (\S+)\] "([^"]+)"')


class Monitor:
    """`commands` are those of each user, in lower case, also those of its scripts. Administrative commands are not among them."""

    def __init__(self) -> None:
        self.commands: dict[str, set[str]] = defaultdict(set)
        self._users: dict[str, str] = {}
        self._caller = ""

    async def take(self, lines: list[str], connection: Broker) -> None:
        """Note what was called, and by which user."""
        called = [match.groups() for line in lines if (match := _LINE.match(line))]
        if not {address for address, _ in called} <= {*self._users, "lua"}:
            clients: bytes = await connection.command("client_list")
            self._users |= dict(_CLIENT.findall(clients.decode()))
        for address, command in called:
            if address != "lua":  # a script's own calls follow it
                self._caller = self._users.get(address, "")
            self.commands[self._caller].add(command.lower())


@asynccontextmanager
async def monitored(server: BrokerServer, *, user: str, password: str) -> AsyncIterator[Monitor]:
    """Note what is called as long as the block runs. `user` may do everything."""
    monitor = Monitor()
    connection = Broker(BrokerAddress(server.url.replace("//", f"//{user}:{password}@")))
    await connection.start(timeout=10)
    async with await anyio.connect_tcp("127.0.0.1", server.port) as stream, anyio.create_task_group() as tasks:
        await stream.send(f"AUTH {user} {password}\r\nMONITOR\r\n".encode())
        said = b""
        while said.count(b"+OK\r\n") < 2:
            said += await stream.receive()

        async def follow() -> None:
            rest = b""
            async for chunk in stream:
                *lines, rest = (rest + chunk).split(b"\r\n")
                await monitor.take([line.decode("latin-1") for line in lines], connection)

        tasks.start_soon(follow)
        yield monitor
        tasks.cancel_scope.cancel()
    await connection.aclose()
