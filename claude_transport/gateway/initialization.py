"""`ServerFields`: what the gateway's options need in the `initialize` request, put into the one that the client sends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from claude_transport.protocol.encoding import encode_line
from claude_transport.protocol.jsontext import JSONTextError, parse_json

__all__ = ["ServerFields"]

# letters may be written as escapes
_CANDIDATE = re.compile(rb'"subtype"\s*:\s*"initialize"|\\u00')


class ServerFields:
    """Lays `fields` over the `initialize` request that passes by; every other line stays the bytes it was.

    The gateway's option wins over the client's field of the same name. Without fields nothing is looked at.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def merged(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """The lines, the `initialize` request among them with the fields."""
        if not self._fields:
            return lines
        return [self._merged(line) if _CANDIDATE.search(line) else line for line in lines]

    def _merged(self, line: bytes) -> bytes:
        try:
            message, _ = parse_json(line)
        except JSONTextError:
            return line  # the CLI will say what it thinks of it
        request = message.get("request") if isinstance(message, dict) and message.get("type") == "control_request" else None
        if not isinstance(request, dict) or request.get("subtype") != "initialize":
            return line
        request.update(self._fields)
        return encode_line(message)[:-1]
