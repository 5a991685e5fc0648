"""`CodexFields`: the options of a server in front of Codex hold for the threads and turns of its clients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from claude_transport.agents.agent import HeldOptions
from claude_transport.protocol.envelope import JSONTextError, encode_line, parse_json

_THREADS: Final = frozenset({"thread/start", "thread/resume", "thread/fork"})
_CANDIDATE = re.compile(rb'"(?:thread/(?:start|resume|fork)|turn/start)"|\\u00|\\/')


class CodexFields(HeldOptions):
    """Changes requests of the client so that the options of a gateway in front of Codex hold for its threads and turns.

    It keeps a client from choosing more by mistake. It is no wall: `command/exec` and other requests of Codex obey no option.

    Args:
        fields: set in every request that opens a thread: `approvalPolicy` and `sandbox`, as far as the gateway has them. A prompt gets the
            same `approvalPolicy`, and no sandbox of its own.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def merged(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return `lines`, with changes in the requests that the gateway's options concern."""
        if not self._fields:
            return lines
        return [self._merged(line) if _CANDIDATE.search(line) else line for line in lines]

    def _merged(self, line: bytes) -> bytes:
        try:
            message, _ = parse_json(line)
        except JSONTextError:
            return line  # Codex answers nothing to it
        method = message.get("method") if isinstance(message, dict) else None
        if method not in _THREADS and method != "turn/start":
            return line
        given = message.get("params")
        params: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        if method == "turn/start":
            if "sandbox" in self._fields:
                params.pop("sandboxPolicy", None)
            changes = {name: value for name, value in self._fields.items() if name in params}
        else:
            changes = self._fields
        return encode_line({**message, "params": {**params, **changes}})[:-1]
