# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.schema.check import WireCheck as WireCheck
from claude_transport.schema.check import WireFinding as WireFinding
from claude_transport.schema.documents import WIRE_RANGES as WIRE_RANGES
from claude_transport.schema.documents import wire_range as wire_range
from claude_transport.schema.documents import wire_schema as wire_schema

__all__ = [
    "WIRE_RANGES",
    "WireCheck",
    "WireFinding",
    "wire_range",
    "wire_schema",
]
