"""Sessions on many machines, through a Redis or Valkey server.

`FleetTransport` is the client's end: a transport as any other, to a session that a worker runs. `FleetWorker` serves sessions on its
machine. `FleetRegistry` lists the sessions and workers of a fleet, and stops a session.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "fleet.metrics": "FleetMetrics",
        "fleet.registry": "BrokerCheck FleetNode FleetRegistry FleetSession",
        "fleet.transport": "FleetTransport",
        "fleet.worker": "FleetWorker",
    },
)
