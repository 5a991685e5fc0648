"""Objects to lines: exactly one `\\n` at the end, never a CR, and nothing that a JSON reader could stumble over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from claude_transport.errors import UsageError
from claude_transport.protocol.envelope import Message, Part, to_wire
from claude_transport.protocol.unreadable import DecodeFailure, OversizedMessage

__all__ = ["encode_line", "encode_message"]


def _replace_struct(value: object) -> object:
    if isinstance(value, (Message, Part, Mapping)):
        return to_wire(value)
    raise TypeError(f"{type(value).__name__} has no place in JSON")


# The standard library's encoder, because msgspec writes what it should refuse: NaN as null, bytes as base64, dates as strings.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_replace_struct).encode
_encode_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_replace_struct).encode

# Legal inside JSON strings, yet line ends for readers that split like `str.splitlines` or like JavaScript [23e: the CLI escapes them too]
_LINE_ENDS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))


def encode_line(obj: Mapping[str, Any] | Message) -> bytes:
    """`obj` as one line of UTF-8 JSON with its newline.

    Lone surrogates are escaped, so whatever could be read can be written again. Raises `UsageError` for what JSON cannot say: NaN and
    Infinity, bytes, dates, sets, circular structures. (The CLI exits on a line it cannot parse [18a].)
    """
    if not isinstance(obj, Mapping):
        if not isinstance(obj, Message):
            raise UsageError(f"a line is a JSON object, not {type(obj).__name__}")
        return encode_message(obj)
    try:
        text = _encode(obj if isinstance(obj, dict) else dict(obj))
        for plain, escaped in _LINE_ENDS:
            if plain in text:
                text = text.replace(plain, escaped)
        try:
            return text.encode() + b"\n"
        except UnicodeEncodeError:  # a lone surrogate, which only an escape can carry
            return _encode_ascii(obj if isinstance(obj, dict) else dict(obj)).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"this cannot be written as JSON: {error}") from error


def encode_message(message: Message) -> bytes:
    """`message` as one line with its newline: byte for byte as it was received, or from its fields when it was built by hand.

    Raises `UsageError` for a `DecodeFailure` or `OversizedMessage`, which were no messages to begin with.
    """
    if isinstance(message, (DecodeFailure, OversizedMessage)):
        raise UsageError(f"a {type(message).__name__} stands for a line that was no message; there is nothing to encode")
    line = message.raw.strip(b"\r\n")
    if line and b"\n" not in line and b"\r" not in line:
        return line + b"\n"
    return encode_line(message.to_dict())
