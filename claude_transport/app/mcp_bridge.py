"""`claude-transport mcp-bridge`: a stdio MCP server for the CLI to start, whose tools are those of the program that told it where it is."""

from __future__ import annotations

import argparse
import os
import sys

from claude_transport.app.arguments import PROGRAM
from claude_transport.app.failures import EXIT_FAILED, EXIT_OK
from claude_transport.app.writing import write_remark
from claude_transport.bridge.configuration import read_bridge_settings
from claude_transport.bridge.stdio import StdioBridge
from claude_transport.errors import ClaudeTransportError


def run(args: argparse.Namespace) -> int:
    """Hand messages on until stdin ends: 0 when the host was there all the time, 1 when it was not. Raises `ConfigurationError`."""
    settings = read_bridge_settings(os.environ, url=args.url, server=args.server)
    bridge = StdioBridge(settings, stdin=sys.stdin.fileno(), stdout=sys.stdout.fileno(), on_failure=_say)
    return EXIT_OK if bridge.run() else EXIT_FAILED


def _say(failure: ClaudeTransportError) -> None:
    write_remark(f"{PROGRAM}: {failure} [{failure.code}]")
