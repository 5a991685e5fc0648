"""The reader with the client of `websockets`, as its users call it (asyncio only)."""

from __future__ import annotations

from speed.harness import Cost, Meter
from websockets.asyncio.client import connect

from wire.bare import decode
from wire.flow import BATCHES, ECHO, Flow

__all__ = ["read", "round_trips"]


async def read(url: str, flow: Flow, *, view: str, asks: bytes = BATCHES) -> Cost:
    """Read all lines, any number in a message: as dicts, or only split."""
    count, decodes = 0, view == "dicts"
    async with connect(url, compression=None) as socket:
        with Meter() as meter:
            await socket.send(asks, text=True)
            while count < flow.count:
                lines = (await socket.recv(decode=False)).splitlines()
                count += len(lines)
                if decodes:
                    for line in lines:
                        decode(line)
    return meter.cost(count)


async def round_trips(url: str, *, line: bytes, count: int) -> Cost:
    """Send a line and read it back, again and again."""
    async with connect(url, compression=None) as socket:
        await socket.send(ECHO, text=True)
        await socket.recv(decode=False)
        with Meter() as meter:
            for _ in range(count):
                await socket.send(line, text=True)
                await socket.recv(decode=False)
    return meter.cost(count)
