# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.bridge.configuration import bridge_config as bridge_config
from claude_transport.bridge.host import BridgeHost as BridgeHost
from claude_transport.bridge.tools import HostTool as HostTool
from claude_transport.bridge.tools import ToolContext as ToolContext

__all__ = [
    "BridgeHost",
    "HostTool",
    "ToolContext",
    "bridge_config",
]
