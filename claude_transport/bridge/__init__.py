"""A stdio MCP server that the CLI starts, and the host whose tools it hands on, for when the control channel is not an option.

Only names; the parts are imported from their modules. `stdio` is what runs inside the bridge, the rest belongs to the host.
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
