"""Host tools through a stdio MCP server: for programs that cannot use the control channel of the CLI.

The CLI starts `claude-transport mcp-bridge`, which forwards each call to the program that owns the tools.

`BridgeHost` listens for bridges and runs the tools. `HostTool` is one tool, `ToolContext` is what it receives with each call.
`bridge_config` gives the entry for `ClaudeOptions(mcp_servers=…)`.
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
