"""JSON Schemas of the wire, for programs in any language, and what compares a conversation with them.

`wire_schema()` returns the schema of the lines of one direction. `WireCheck` compares lines with it, and says what is unknown, missing or
of another type. The command `claude-transport wire` does both.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "schema.check": "WireCheck WireFinding",
        "schema.documents": "WIRE_RANGES wire_range wire_schema",
    },
)
