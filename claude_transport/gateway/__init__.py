"""The gateway: runs local `claude` processes for clients that connect over a network.

Run it: `serve` runs a gateway until a signal comes, and takes the `GatewaySettings`. `Gateway` is the same for your own program: it
    listens, lets clients in, and starts one process for each session. `GatewayApplication` is a gateway as an ASGI application.
Watch it: `ObserverGrant` is the right to watch one session; `Gateway.grant_observer()` makes it, and `claude_transport.observe()` uses it.
Protect it: `GatewayTokens` says which tokens may connect. `GatewayLimits` bounds clients, sessions, sizes and times.

Clients connect with `NetworkTransport`. `docs/how-to/serve.md` shows both ends.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "gateway.asgi": "GatewayApplication",
        "serving.door": "GatewayLimits GatewayTokens",
        "gateway.gateway": "Gateway",
        "gateway.observatory": "ObserverGrant",
        "gateway.service": "GatewaySettings serve",
    },
)
