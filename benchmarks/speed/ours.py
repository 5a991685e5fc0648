"""How a program would do each thing with claude_transport."""

from __future__ import annotations

import anyio

from claude_transport import ClaudeOptions, Query, ResultMessage, SubprocessTransport
from claude_transport.transports import forward as forward_lines
from speed.harness import Cost, Meter
from speed.peers import Sink
from speed.workload import Workload

__all__ = ["query_over", "transport_of_session", "transport_over"]

GO = '{"type":"user","message":{"role":"user","content":"go"}}\n'


def transport_over(peer: str) -> SubprocessTransport:
    return SubprocessTransport(command=[peer])


def transport_of_session(peer: str) -> SubprocessTransport:
    return SubprocessTransport(ClaudeOptions(cli_path=peer))


def query_over(peer: str) -> Query:
    return Query(transport_of_session(peer))


async def read_dicts(peer: str, work: Workload) -> Cost:
    async with transport_over(peer) as transport:
        count = 0
        with Meter() as meter:
            await transport.write(GO)
            async for _ in transport.read_messages():
                count += 1
    return _checked(meter, count, work)


async def query_dicts(peer: str, work: Workload) -> Cost:
    async with query_over(peer) as query:
        messages, count = query.messages(), 0
        with Meter() as meter:
            await query.send("go")
            async for message in messages:
                count += message.to_dict() is not None
                if isinstance(message, ResultMessage):
                    break
    return _checked(meter, count, work)


async def query_typed(peer: str, work: Workload) -> Cost:
    async with query_over(peer) as query:
        messages, count = query.messages(), 0
        with Meter() as meter:
            await query.send("go")
            async for message in messages:
                count += 1
                if isinstance(message, ResultMessage):
                    break
    return _checked(meter, count, work)


async def turn_typed(peer: str, work: Workload) -> Cost:
    async with query_over(peer) as query:
        count = 0
        with Meter() as meter:
            async for _ in await query.send("go"):
                count += 1
    return _checked(meter, count, work)


async def forward(peer: str, sink: Sink, work: Workload) -> Cost:
    async with transport_over(peer) as source, transport_over(sink.command) as target:
        with Meter() as meter:
            await source.write(GO)
            carried = await forward_lines(source, target)
    sink.check(work.count + 1)
    _checked(meter, carried.lines, work)
    return meter.cost(work.size_bytes / 1e6)


async def write(sink: Sink, *, line: bytes, count: int) -> Cost:
    async with transport_over(sink.command) as transport:
        with Meter() as meter:
            for _ in range(count):
                await transport.write(line)
    sink.check(count)
    return meter.cost(count)


async def ask(peer: str, *, count: int) -> Cost:
    async with query_over(peer) as query:
        with Meter() as meter:
            for _ in range(count):
                await query.set_permission_mode("plan")
    return meter.cost(count)


async def connect_and_close(peer: str, *, count: int) -> Cost:
    with Meter() as meter:
        for _ in range(count):
            async with query_over(peer):
                pass
    return meter.cost(count)


async def open_and_close_at_once(peer: str, *, count: int) -> Cost:
    """Open `count` sessions at once, and close all of them when the last is open. The cost is that of all together."""
    queries = [query_over(peer) for _ in range(count)]
    with Meter() as meter:
        async with anyio.create_task_group() as tasks:
            for query in queries:
                tasks.start_soon(query.start)
        async with anyio.create_task_group() as tasks:
            for query in queries:
                tasks.start_soon(query.aclose)
    return meter.cost(1)


def _checked(meter: Meter, count: int, work: Workload) -> Cost:
    assert count == work.count + 1, (count, work.count)
    return meter.cost(work.count)
