"""`ClaudeFields`: the options of a server in front of Claude hold, whatever its clients ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from claude_transport.agents.agent import HeldOptions
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.envelope import JSONTextError, encode_line, parse_json

# JSON may write letters as escapes
_CANDIDATE = re.compile(rb'"subtype"\s*:\s*"(?:initialize|set_max_thinking_tokens)"|\\u00')


class ClaudeFields(HeldOptions):
    """Changes requests of the client so that the options of the server hold. All other lines keep their bytes.

    Args:
        fields: set in every `initialize` request; they replace the client's fields of the same name.
        max_thinking_tokens: the most that a `set_max_thinking_tokens` request may ask for; None is no limit.
    """

    def __init__(self, fields: Mapping[str, Any], *, max_thinking_tokens: int | None = None) -> None:
        self._fields = dict(fields)
        self._max_thinking_tokens = max_thinking_tokens

    def merged(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return `lines`, with changes in the requests that the options concern."""
        if not self._fields and self._max_thinking_tokens is None:
            return lines
        return [self._merged(line) if _CANDIDATE.search(line) else line for line in lines]

    def _merged(self, line: bytes) -> bytes:
        try:
            message, _ = parse_json(line)
        except JSONTextError:
            return line  # the CLI reports it
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
        wanted = request.get("max_thinking_tokens")  # null is no limit
        allowed = isinstance(wanted, int) and not isinstance(wanted, bool) and wanted <= limit
        return {} if allowed else {"max_thinking_tokens": limit}


def thinking_ceiling(options: ClaudeOptions) -> int | None:
    """Return the number of tokens that the model may think; None when `options` set no limit."""
    if options.thinking is None:
        return options.max_thinking_tokens
    budget: int | None = {"disabled": 0, "adaptive": None}.get(options.thinking.get("type", ""), options.thinking.get("budget_tokens"))
    return budget
