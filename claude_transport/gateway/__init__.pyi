# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.gateway.asgi import GatewayApplication as GatewayApplication
from claude_transport.gateway.gateway import Gateway as Gateway
from claude_transport.gateway.observatory import ObserverGrant as ObserverGrant
from claude_transport.gateway.service import GatewaySettings as GatewaySettings
from claude_transport.gateway.service import serve as serve
from claude_transport.serving.door import GatewayLimits as GatewayLimits
from claude_transport.serving.door import GatewayTokens as GatewayTokens

__all__ = [
    "Gateway",
    "GatewayApplication",
    "GatewayLimits",
    "GatewaySettings",
    "GatewayTokens",
    "ObserverGrant",
    "serve",
]
