"""`peek`: what a line is, without decoding all of it. For wrappers, which see lines and must not slow them down."""

from __future__ import annotations

from typing import Any, Final

import msgspec


class Peek(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a line says about itself. Each field is text, or None where the line has no such text.

    `type` and `subtype` are those of the message. For a control request and its answer, `subtype` is that of the request or response
    inside, and `request_id` is what the answer repeats. `uuid` is that of the message, and `session_id` that of the conversation.

    On a line of JSON-RPC, `type` is the method, or `answer` or `error` for an answer. `request_id` is its `id`, also when that is a number.
    """

    type: str | None = None
    subtype: str | None = None
    request_id: str | None = None
    uuid: str | None = None
    session_id: str | None = None


NO_MESSAGE: Final = Peek()
"""What `peek` returns for a line that holds no JSON object."""


# The decoder skips what is not named here.
class _Inner(msgspec.Struct, gc=False):
    subtype: Any = None
    request_id: Any = None


class _Outer(msgspec.Struct, gc=False):
    type: Any = None
    subtype: Any = None
    uuid: Any = None
    session_id: Any = None
    request_id: Any = None
    request: msgspec.Raw = msgspec.Raw(b"null")
    response: msgspec.Raw = msgspec.Raw(b"null")
    method: Any = None
    id: Any = None
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_outer: Final = msgspec.json.Decoder(_Outer).decode
_inner: Final = msgspec.json.Decoder(_Inner | None).decode


def peek(line: bytes) -> Peek:
    """Return what `line` says about itself. It never raises: a line that holds no message has no `type`.

    The order of the keys and spaces between them do not matter, so it is right where `line.startswith(b'{"type":"result"')` is not.
    """
    try:
        outer = _outer(line)
        subtype, request_id = outer.subtype, outer.request_id
        kind = outer.type
        if kind is None and (outer.method is not None or outer.id is not None):
            kind = outer.method or ("error" if isinstance(outer.error, msgspec.Raw) else "answer")
            request_id = str(outer.id) if isinstance(outer.id, str | int) else None
        elif kind in ("control_request", "control_response"):
            inner = _inner(outer.request if kind == "control_request" else outer.response)
            if inner is not None:
                subtype, request_id = inner.subtype, request_id or inner.request_id
    except (msgspec.MsgspecError, ValueError, RecursionError):  # also bytes that are no UTF-8, and numbers with too many digits
        return NO_MESSAGE
    return Peek(
        type=_text(kind), subtype=_text(subtype), request_id=_text(request_id), uuid=_text(outer.uuid), session_id=_text(outer.session_id)
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
