"""How a program would do each thing with the official SDK (its `Query` of dicts and its transport have no public name)."""

from __future__ import annotations

import json

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

from speed.harness import Cost, Meter
from speed.peers import Sink
from speed.workload import Workload

__all__ = ["client_over", "transport_over"]

GO = '{"type":"user","message":{"role":"user","content":"go"}}\n'


def _options(peer: str) -> ClaudeAgentOptions:
    # its own limit of a megabyte would end the session at the longest lines
    return ClaudeAgentOptions(cli_path=peer, max_buffer_size=256 * 2**20)


def transport_over(peer: str) -> SubprocessCLITransport:
    return SubprocessCLITransport(prompt="", options=_options(peer))


def client_over(peer: str) -> ClaudeSDKClient:
    return ClaudeSDKClient(options=_options(peer))


async def read_dicts(peer: str, work: Workload) -> Cost:
    transport = transport_over(peer)
    await transport.connect()
    count = 0
    with Meter() as meter:
        await transport.write(GO)
        async for _ in transport.read_messages():
            count += 1
    await transport.close()
    return _checked(meter, count, work)


async def query_dicts(peer: str, work: Workload) -> Cost:
    async with client_over(peer) as client:
        count = 0
        with Meter() as meter:
            await client.query("go")
            async for message in client._query.receive_messages():  # noqa: SLF001 - there is no other way to its dicts
                count += 1
                if message["type"] == "result":
                    break
    return _checked(meter, count, work)


async def query_typed(peer: str, work: Workload) -> Cost:
    async with client_over(peer) as client:
        count = 0
        with Meter() as meter:
            await client.query("go")
            async for message in client.receive_messages():
                count += 1
                if isinstance(message, ResultMessage):
                    break
    return _checked(meter, count, work)


async def turn_typed(peer: str, work: Workload) -> Cost:
    async with client_over(peer) as client:
        count = 0
        with Meter() as meter:
            await client.query("go")
            async for _ in client.receive_response():
                count += 1
    return _checked(meter, count, work)


async def forward(peer: str, sink: Sink, work: Workload) -> Cost:
    source, target = transport_over(peer), transport_over(sink.command)
    await source.connect()
    await target.connect()
    count = 0
    with Meter() as meter:
        await source.write(GO)
        async for message in source.read_messages():
            count += 1
            await target.write(json.dumps(message) + "\n")
    await source.close()
    await target.close()
    sink.check(work.count + 1)
    _checked(meter, count, work)
    return meter.cost(work.size_bytes / 1e6)


async def write(sink: Sink, *, line: bytes, count: int) -> Cost:
    transport, text = transport_over(sink.command), line.decode()
    await transport.connect()
    with Meter() as meter:
        for _ in range(count):
            await transport.write(text)
    await transport.close()
    sink.check(count)
    return meter.cost(count)


async def ask(peer: str, *, count: int) -> Cost:
    async with client_over(peer) as client:
        with Meter() as meter:
            for _ in range(count):
                await client.set_permission_mode("plan")
    return meter.cost(count)


async def connect_and_close(peer: str, *, count: int) -> Cost:
    with Meter() as meter:
        for _ in range(count):
            async with client_over(peer):
                pass
    return meter.cost(count)


def _checked(meter: Meter, count: int, work: Workload) -> Cost:
    assert count == work.count + 1, (count, work.count)
    return meter.cost(work.count)
