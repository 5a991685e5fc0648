# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.fleet.metrics import FleetMetrics as FleetMetrics
from claude_transport.fleet.registry import BrokerCheck as BrokerCheck
from claude_transport.fleet.registry import FleetNode as FleetNode
from claude_transport.fleet.registry import FleetRegistry as FleetRegistry
from claude_transport.fleet.registry import FleetSession as FleetSession
from claude_transport.fleet.transport import FleetTransport as FleetTransport
from claude_transport.fleet.worker import FleetWorker as FleetWorker

__all__ = [
    "BrokerCheck",
    "FleetMetrics",
    "FleetNode",
    "FleetRegistry",
    "FleetSession",
    "FleetTransport",
    "FleetWorker",
]
