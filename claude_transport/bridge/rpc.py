"""JSON-RPC messages, one on each line, as MCP's stdio transport has them: read, written, and refused."""

from __future__ import annotations

import json
from typing import Any, Final, TypeGuard

import msgspec

__all__ = [
    "BUSY",
    "CANCELLED",
    "HOST_GONE",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "decode_rpc",
    "encode_rpc",
    "is_request_id",
    "rpc_error",
]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
"""JSON-RPC 2.0, section 5.1."""

HOST_GONE: Final = -32000
BUSY: Final = -32001
"""Of the range that JSON-RPC leaves to servers: the host cannot be reached (any more), and it has too much to do."""

CANCELLED: Final = -32800
"""What the Language Server Protocol calls a cancelled request."""


def decode_rpc(line: bytes) -> dict[str, Any] | None:
    """The JSON object on `line`; None when there is none, or none that can be read. Lone surrogates (JavaScript writes them) are kept."""
    try:
        found = msgspec.json.decode(line)
    except RecursionError:
        return None
    except ValueError:  # msgspec's own errors too; what it does not read for being no Unicode, Python's reader does
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def encode_rpc(message: dict[str, Any]) -> bytes:
    """The message as a line, with its end."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except ValueError:  # a lone surrogate: written as the escape it came as
        return json.dumps(message).encode("ascii") + b"\n"


def is_request_id(value: object) -> TypeGuard[str | int]:
    """Whether a request can have this id: a string or an integer (MCP leaves the rest of JSON-RPC's out)."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def rpc_error(request_id: object, code: int, text: str, *, reason: str | None = None) -> dict[str, Any]:
    """A JSON-RPC answer that says what went wrong; `reason` is the stable code for programs, in `error.data.code`."""
    error: dict[str, Any] = {"code": code, "message": text}
    if reason is not None:
        error["data"] = {"code": reason}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}
