"""What stands in place of a line that no typed message could be made of: nothing is skipped, nothing ends a stream."""

from __future__ import annotations

from typing import Any

from claude_transport.protocol.envelope import Message

__all__ = ["DecodeFailure", "OversizedMessage", "UnknownMessage"]


class UnknownMessage(Message, frozen=True, kw_only=True):
    """A JSON object whose `type` this version does not know (or that has none); `to_dict()` is the object. A newer CLI sends these.

    So is an object of a known `type` in which so much does not fit that saving the rest would cost too much (see `salvage`).
    """

    wire_type: str = ""

    @property
    def type(self) -> str:
        """The wire's `type`, or an empty string."""
        return self.wire_type

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, UnknownMessage) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.wire_type)

    def to_dict(self) -> dict[str, Any]:
        """The object as it came."""
        whole = super().to_dict()
        return whole if self.raw else {"type": self.wire_type}


class DecodeFailure(Message, frozen=True, kw_only=True):
    """A line that is no JSON object. `raw` is the line; `line_number` counts from 1, blank lines included, where it is known.

    `kind`: `noise` (does not look like JSON), `not_object` (JSON, but an array or a scalar), `malformed`, `invalid_utf8`,
    `too_deep`, `out_of_range`, `blank`.
    """

    kind: str = "malformed"
    error: str = ""
    line_number: int | None = None

    @property
    def type(self) -> str:
        """Always `decode_failure`, which is never on the wire."""
        return "decode_failure"

    def __eq__(self, other: object) -> bool:
        return (self.kind, self.raw) == (other.kind, other.raw) if isinstance(other, DecodeFailure) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.kind, self.raw))

    def to_dict(self) -> dict[str, Any]:
        """A description for logs; the line as text, with escapes for bytes that are not UTF-8."""
        line = self.raw.decode("utf-8", errors="backslashreplace")
        return {"type": self.type, "kind": self.kind, "error": self.error, "line_number": self.line_number, "line": line}


class OversizedMessage(Message, frozen=True, kw_only=True):
    """A line of `size` bytes, over the `limit` in bytes, of which only the head (`raw`) was kept; the next line is not affected."""

    size: int = 0
    limit: int = 0
    line_number: int | None = None

    @property
    def type(self) -> str:
        """Always `oversized_message`, which is never on the wire."""
        return "oversized_message"

    def to_dict(self) -> dict[str, Any]:
        """A description for logs, without the head."""
        return {"type": self.type, "size": self.size, "limit": self.limit, "line_number": self.line_number}
