"""What to play for a line that was too long to be recorded whole: the smallest one that means the same.

The recordings behind the protocol reference keep the first 1,500 characters of lines over 6,000 (almost all of them are answers to
`initialize`), and say how long the line was.
"""

from __future__ import annotations

import re
from typing import Any

from claude_transport.protocol.encoding import encode_line

__all__ = ["restore_trimmed"]

_KIND = re.compile(rb'\{"type": ?"(\w+)"(?:, ?"subtype": ?"(\w+)")?')
_REQUEST_ID = re.compile(rb'"request_id": ?"([^"\\]*)"')
_RESULT: dict[str, Any] = {"subtype": "success", "is_error": False, "result": "", "num_turns": 1, "duration_ms": 0, "duration_api_ms": 0}
_REST: dict[str, dict[str, Any]] = {
    "assistant": {
        "message": {"id": "msg_trimmed", "type": "message", "role": "assistant", "content": [{"type": "text", "text": ""}]},
        "parent_tool_use_id": None,
    },
    "transcript_mirror": {"filePath": "", "entries": []},
}


def restore_trimmed(line: bytes) -> bytes:
    """A whole line of the type, subtype and request id that can still be read in the beginning of one, without its newline."""
    found = _KIND.match(line)
    if found is None:  # a `result` is the one message that does not begin with its type (docs/reference/protocol.md#key-order)
        return encode_line({"type": "result", **_RESULT})[:-1]
    kind = found[1].decode()
    if kind == "control_response":
        identity = _REQUEST_ID.search(line)
        body: dict[str, Any] = {"subtype": "success", "response": {}}
        if identity is not None:
            body["request_id"] = identity[1].decode("utf-8", "replace")
        return encode_line({"type": kind, "response": body})[:-1]
    subtype = {} if found[2] is None else {"subtype": found[2].decode()}
    return encode_line({"type": kind, **subtype, **_REST.get(kind, {})})[:-1]
