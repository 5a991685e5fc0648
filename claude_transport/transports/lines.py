"""Lines at both ends of a transport: whole ones, as they are sent, and torn ones, as a stream that breaks off leaves them."""

from __future__ import annotations

import logging

from claude_transport.errors import UsageError
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.messages import DecodeFailure, OversizedMessage

__all__ = ["is_torn", "log_failure", "whole_lines"]

_LOGGED_ONE_BY_ONE = 10
"""Bad lines of a kind that are logged each; then only every doubling of their number is, for a peer can write them without end."""


def whole_lines(data: str | bytes) -> bytes:
    """`data` in UTF-8 with exactly one newline at its end; raises `UsageError` for what is no text."""
    try:
        payload = data.encode() if isinstance(data, str) else bytes(memoryview(data))
    except UnicodeEncodeError as exc:
        raise UsageError(f"the text cannot be sent as UTF-8: {exc.reason}") from exc
    except TypeError as exc:
        raise UsageError(f"a transport sends str or bytes, not {type(data).__name__}") from exc
    if payload.endswith(b"\r\n"):
        return payload[:-2] + b"\n"
    return payload if payload.endswith(b"\n") else payload + b"\n"


def is_torn(tail: bytes) -> bool:
    """Whether `tail` is the beginning of an object and nothing more: not even the most patient reader sees a whole one."""
    if not tail.lstrip().startswith(b"{"):
        return False
    message = decode_message(tail)
    return isinstance(message, DecodeFailure) and message.kind in ("malformed", "invalid_utf8")


def log_failure(logger: logging.Logger, failure: DecodeFailure | OversizedMessage, *, transport: str, count: int) -> None:
    """Warn that a line held no message, the `count`th of its kind; nothing of the line is logged. Of many lines only a few are logged."""
    if count <= _LOGGED_ONE_BY_ONE or count & (count - 1) == 0:
        kind = "oversized" if isinstance(failure, OversizedMessage) else failure.kind
        so_far = f", {count} so far" if count > _LOGGED_ONE_BY_ONE else ""
        logger.warning("%s: left out a line that holds no message (%s, %d bytes%s)", transport, kind, len(failure.raw), so_far)
