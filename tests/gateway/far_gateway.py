"""A gateway to an echo, in a process of its own. Prints its URL. Arguments: URL to listen at, token, file for the input of the echo."""

from __future__ import annotations

import sys
from functools import partial

import anyio

import claude_transport as ct


def announce(gateway: ct.Gateway) -> None:
    print(gateway.urls[0], flush=True)


async def main(host: str, token: str, heard: str) -> None:
    await ct.serve(
        command=["tee", heard],
        listen=[f"tcp://{host}:0"],
        tokens={"tester": token},
        allow_plaintext=True,  # the cable is private
        limits=ct.gateway.GatewayLimits(heartbeat=0.3, lease=60.0),
        on_started=announce,
    )


anyio.run(partial(main, *sys.argv[1:]))
