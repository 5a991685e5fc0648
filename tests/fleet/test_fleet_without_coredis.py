"""A fleet needs no extra: its client for the broker is the library's own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["coredis"] = None
from claude_transport.errors import CLIConnectionError
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
import anyio
async def main():
    FleetTransport("redis://127.0.0.1:1/0"), FleetWorker("redis://127.0.0.1:1/0")
    try:
        async with FleetRegistry("redis://127.0.0.1:1/0"):
            pass
    except CLIConnectionError:
        print("no broker")
anyio.run(main)
"""


def test_a_fleet_needs_no_coredis() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "no broker\n", ran.stderr
