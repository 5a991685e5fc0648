"""`LineShape`: what the outermost fields of a line tell about who speaks. Agents tell their lines by it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import msgspec

from claude_transport.protocol.framing import OversizedLine


class LineShape(Enum):
    """The shape of a message."""

    TYPED = auto()
    """A message with a `type`, such as `user`: the stream-json of `claude`."""
    EVENT = auto()
    """A message whose `type` begins with `thread.`, `turn.` or `item.`, such as `turn.started`. No type of Claude does."""
    RPC = auto()
    """JSON-RPC: a message without a type, with a `method`, or with an `id` and a `result` or an `error`."""


_LONG_LINE: Final = 2**20
"""Bytes of a line that is not read: the first line of a session is short, or a prompt with images."""


_EVENT_TYPES: Final = (b'"thread.', b'"turn.', b'"item.')


class _Fields(msgspec.Struct, gc=False):
    """The fields that tell the shape. The decoder skips the rest."""

    type: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode_fields: Final = msgspec.json.Decoder(_Fields).decode


def shape_of(line: bytes) -> LineShape | None:
    """Return the shape of a line; None when it holds no message, or none of these."""
    if len(line) > _LONG_LINE or isinstance(line, OversizedLine):
        return None
    try:
        found = _decode_fields(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if isinstance(found.type, msgspec.Raw):
        return LineShape.EVENT if bytes(found.type).startswith(_EVENT_TYPES) else LineShape.TYPED
    answers = found.id is not msgspec.UNSET and (found.result is not msgspec.UNSET or found.error is not msgspec.UNSET)
    return LineShape.RPC if answers or found.method is not msgspec.UNSET else None
