"""`claude-transport doctor --broker URL`: whether a fleet can run on a broker."""

from __future__ import annotations

import sys

import msgspec

from claude_transport.app.failures import EXIT_FAILED, EXIT_OK
from claude_transport.app.terminal import TerminalOutput, json_for_terminals, visible


async def examine(url: str, *, as_json: bool) -> int:
    """Report on stdout, and return the exit code: 1 when the broker has a fault. Raises `CLIConnectionError` when it is not reached."""
    from claude_transport.fleet.registry import FleetRegistry

    async with FleetRegistry(url) as registry:
        check = await registry.check()
    output = TerminalOutput(sys.stdout)
    if as_json:
        await output.write_bytes(json_for_terminals(msgspec.json.encode(check)) + b"\n")
    else:
        lines = [
            f"Broker      {check.address}",
            f"Mode        {check.mode}" + (f" of {len(check.servers)} primaries" if check.mode == "cluster" else ""),
            f"Server      {check.version or 'unknown'}, {check.role or 'unknown role'}",
            f"Round trip  {check.round_trip_ms:g} ms",
            *(f"Setting     {name} {value}" for name, value in sorted(check.settings.items())),
            *(f"Fault       {finding}" for finding in check.findings),
            "A fleet should not run on it." if check.findings else "A fleet can run on it.",
        ]
        await output.write("".join(f"{visible(line)}\n" for line in lines))
    return EXIT_FAILED if check.findings else EXIT_OK
