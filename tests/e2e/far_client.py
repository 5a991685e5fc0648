"""A client of its own process: holds a session of the gateway at the URL it is given, by the token in its environment, and lets it work."""

from __future__ import annotations

import os
import sys

import anyio

import claude_transport as ct


async def main(url: str, token: str) -> None:
    async with ct.Query(ct.NetworkTransport(url, token=token)) as query:
        await (await query.send("Work")).result()


anyio.run(main, sys.argv[1], os.environ["GATEWAY_TOKEN"])
