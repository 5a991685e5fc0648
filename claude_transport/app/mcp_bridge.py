"""`claude-transport mcp-bridge`: a stdio MCP server for the CLI to start, whose tools are those of another program.

The CLI starts one for each session. So it reads its two options without click, which is not even installed without the extra `cli`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace

from claude_transport.app.failures import EXIT_FAILED, EXIT_OK, PROGRAM
from claude_transport.app.standard_streams import write_remark
from claude_transport.bridge.configuration import read_bridge_settings
from claude_transport.bridge.stdio import StdioBridge
from claude_transport.errors import ClaudeTransportError, UsageError


def read_arguments(words: Sequence[str]) -> SimpleNamespace:
    """Read the words after `mcp-bridge` on the command line: `url` and `server`, None if not given. Raises `UsageError`."""
    values: dict[str, str | None] = {"--url": None, "--server": None}
    rest = iter(words)
    for word in rest:
        name, joined, value = word.partition("=")
        if name not in values:
            raise UsageError(f"mcp-bridge does not know the argument {word!r}. It takes --url URL and --server NAME.")
        following = value if joined else next(rest, None)
        if following is None:
            raise UsageError(f"{name} needs a value.")
        values[name] = following
    return SimpleNamespace(url=values["--url"], server=values["--server"])


def run(args: SimpleNamespace) -> int:
    """Pass messages on until stdin ends.

    Returns 0 if the host was reachable all the time, 1 if not. Raises `ConfigurationError` if the address, the name or the token is
    missing or wrong.
    """
    settings = read_bridge_settings(os.environ, url=args.url, server=args.server)
    bridge = StdioBridge(settings, stdin=sys.stdin.fileno(), stdout=sys.stdout.fileno(), on_failure=_report)
    return EXIT_OK if bridge.run() else EXIT_FAILED


def _report(failure: ClaudeTransportError) -> None:
    write_remark(f"{PROGRAM}: {failure} [{failure.code}]")
