"""`ServerFields`: what the gateway's options say about requests of the client, put into them as they pass by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from claude_transport.protocol.encoding import encode_line
from claude_transport.protocol.jsontext import JSONTextError, parse_json

__all__ = ["ServerFields"]

# letters may be written as escapes
_CANDIDATE = re.compile(rb'"subtype"\s*:\s*"(?:initialize|set_max_thinking_tokens)"|\\u00')


class ServerFields:
    """Lays `fields` over the `initialize` request that passes by, and lowers later wishes to `max_thinking_tokens`.

    The gateway's option wins over the client's field of the same name. Every other line stays the bytes it was; without fields and without
    a limit nothing is looked at.
    """

    def __init__(self, fields: Mapping[str, Any], *, max_thinking_tokens: int | None = None) -> None:
        self._fields = dict(fields)
        self._max_thinking_tokens = max_thinking_tokens

    def merged(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """The lines, with what the gateway's options say in the requests among them that it concerns."""
        if not self._fields and self._max_thinking_tokens is None:
            return lines
        return [self._merged(line) if _CANDIDATE.search(line) else line for line in lines]

    def _merged(self, line: bytes) -> bytes:
        try:
            message, _ = parse_json(line)
        except JSONTextError:
            return line  # the CLI will say what it thinks of it
        request = message.get("request") if isinstance(message, dict) and message.get("type") == "control_request" else None
        if not isinstance(request, dict):
            return line
        changes = self._changes(request)
        if not changes:
            return line
        request.update(changes)
        return encode_line(message)[:-1]

    def _changes(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request.get("subtype") == "initialize":
            return self._fields
        limit = self._max_thinking_tokens
        if request.get("subtype") != "set_max_thinking_tokens" or limit is None:
            return {}
        wanted = request.get("max_thinking_tokens")  # null: as many as the model likes
        allowed = isinstance(wanted, int) and not isinstance(wanted, bool) and wanted <= limit
        return {} if allowed else {"max_thinking_tokens": limit}
