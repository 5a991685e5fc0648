"""The gateway: runs local `claude` processes for clients on other machines, and admits only known clients.

* `gateway`: the gateway as a whole, its sessions and the start of their processes.
* `serve`: a gateway until a signal ends it. `asgi`: a gateway inside an ASGI server.
* `listeners`: sockets to listen at. `arrival`: from a new connection to a known client.
* `door`: tokens, origins and limits. `choices`: options that clients may choose. `turned_away`: refusals.
* `session`: a process and its client; plain mode. `link_session`: link mode, where a process outlives its connections.
* `health`: `/healthz`, `/metrics` and the host names under which they are answered.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "gateway.asgi": "GatewayApplication",
        "gateway.door": "GatewayLimits GatewayTokens",
        "gateway.gateway": "Gateway",
        "gateway.serve": "GatewaySettings serve",
    },
)
