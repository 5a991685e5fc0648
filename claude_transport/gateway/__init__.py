"""The gateway: local `claude` processes for clients elsewhere, behind a door.

Each module owns one noun: `listeners` where it can be reached, `door` who may come in, `crowd` how many may stand in front of it, `hosts`
under which names pages are answered, `arrival` what a client says first, `choices` what it may choose, `ceilings` what that may not raise,
`limits` how much of everything, `plain_session` a process whose life is its connection's, `link_session` one that outlives it, `roster` all
of them, `health` and `metrics` what may be seen from outside, `refusal_log` what is written of strangers, `farewell` how they are shown
out, `gateway` the whole.
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
