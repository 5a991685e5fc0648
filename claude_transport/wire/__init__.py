"""JSON Schemas of the wire, for programs in any language, and what compares a conversation with them.

Schemas: `schema` returns the schema of the lines of one direction, for one version of the CLI. There is one for each range of
    versions: `WIRE_RANGES` has the first version of each range, and `wire_range` finds the range of a version.
Checks: `WireCheck` compares the lines of a conversation with the schemas, and says what is unknown, missing or of another type. Each
    place is a `WireFinding`.

The command `claude-transport wire` does both.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "wire.check": "WireCheck WireFinding",
        "wire.documents": "WIRE_RANGES schema wire_range",
    },
)
