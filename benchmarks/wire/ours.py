"""The reader with `NetworkTransport`."""

from __future__ import annotations

from typing import Any

from speed.harness import Cost, Meter

from claude_transport import NetworkTransport
from wire.flow import BATCHES, ECHO, Flow

__all__ = ["read", "round_trips"]


async def read(url: str, flow: Flow, *, view: str, asks: bytes = BATCHES, **settings: Any) -> Cost:
    """Read all lines: as dicts, or undecoded in batches."""
    count = 0
    async with NetworkTransport(url, **settings) as transport:
        with Meter() as meter:
            await transport.write(asks)
            if view == "dicts":
                async for _ in transport.read_messages():
                    count += 1
                    if count == flow.count:
                        break
            else:
                async for lines in transport.read_lines():
                    count += len(lines)
                    if count == flow.count:
                        break
    assert count == flow.count, (count, flow.count)
    return meter.cost(count)


async def round_trips(url: str, *, line: bytes, count: int, **settings: Any) -> Cost:
    """Send a line and read it back, again and again."""
    async with NetworkTransport(url, **settings) as transport:
        batches = transport.read_lines()
        await transport.write(ECHO)
        await anext(batches)
        with Meter() as meter:
            for _ in range(count):
                await transport.write(line)
                await anext(batches)
    return meter.cost(count)
