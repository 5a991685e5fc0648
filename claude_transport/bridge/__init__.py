"""Tools of this program for a CLI that cannot use the control channel: a host, and the stdio MCP server (the bridge) that the CLI starts.

* `host`: `BridgeHost` serves the tools over a socket. `tools`: `HostTool`, a function as a tool.
* `configuration`: what both ends agree on: settings, the first lines, JSON-RPC messages.
* `stdio`: the program of the bridge, which `claude-transport mcp-bridge` runs.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "bridge.configuration": "bridge_config",
        "bridge.host": "BridgeHost",
        "bridge.tools": "HostTool ToolContext",
    },
)
