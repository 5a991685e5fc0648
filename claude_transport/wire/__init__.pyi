# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.wire.check import WireCheck as WireCheck
from claude_transport.wire.check import WireFinding as WireFinding
from claude_transport.wire.documents import WIRE_RANGES as WIRE_RANGES
from claude_transport.wire.documents import schema as schema
from claude_transport.wire.documents import wire_range as wire_range

__all__ = [
    "WIRE_RANGES",
    "WireCheck",
    "WireFinding",
    "schema",
    "wire_range",
]
