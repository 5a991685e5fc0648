"""`claude-transport doctor --broker URL`: whether a fleet can run on a broker."""

from __future__ import annotations

import sys

import msgspec

from claude_transport.app.failures import EXIT_FAILED, EXIT_OK
from claude_transport.app.terminal import TerminalOutput, json_for_terminals, visible
from claude_transport.errors import CLIConnectionError
from claude_transport.fleet.broker import BrokerAddress


async def examine(url: str, *, as_json: bool) -> int:
    """Report on stdout, and return the exit code: 1 when the broker has a fault. Raises `CLIConnectionError` when it is not reached."""
    from claude_transport.fleet.registry import BrokerCheck, FleetRegistry

    try:
        async with FleetRegistry(url) as registry:
            check = await registry.check()
    except CLIConnectionError as exc:
        if exc.code != "fleet.cluster":
            raise
        check = BrokerCheck(address=str(BrokerAddress(url)), findings=(str(exc),))
    output = TerminalOutput(sys.stdout)
    if as_json:
        await output.write_bytes(json_for_terminals(msgspec.json.encode(check)) + b"\n")
    else:
        lines = [
            f"Broker      {check.address}",
            f"Server      {check.version or 'unknown'}, {check.role or 'unknown role'}",
            f"Round trip  {check.round_trip_ms:g} ms",
            *(f"Setting     {name} {value}" for name, value in sorted(check.settings.items())),
            *(f"Fault       {finding}" for finding in check.findings),
            "A fleet should not run on it." if check.findings else "A fleet can run on it.",
        ]
        await output.write("".join(f"{visible(line)}\n" for line in lines))
    return EXIT_FAILED if check.findings else EXIT_OK
