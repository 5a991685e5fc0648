"""Bytes that claim to be JSON, read by whatever reader can read them.

msgspec reads almost everything, and fast. What it refuses but still means something is given to the standard library: lone
surrogates (old CLIs wrote them; msgspec calls such a line "truncated"), `NaN` and `Infinity`, control characters inside strings,
numbers beyond a double. Bytes that are not UTF-8 are read with replacement characters.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

__all__ = ["JSONTextError", "parse_json"]

_decode = msgspec.json.Decoder().decode
# strict=False: a raw control character inside a string is wrong JSON, but there is no doubt about what it means
_lenient = json.JSONDecoder(strict=False)


class JSONTextError(ValueError):
    """The bytes are no JSON for any reader; `kind` is one of `malformed`, `invalid_utf8`, `too_deep`, `out_of_range`.

    `position` is the character at which reading stopped, where the reader says so.
    """

    def __init__(self, message: str, *, kind: str = "malformed", position: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.position = position


def parse_json(data: bytes) -> tuple[Any, bool]:
    """`(value, lossy)`: the JSON value in `data`, and whether only the lenient reader could read it. Raises `JSONTextError`."""
    try:
        return _decode(data), False
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # the lenient reader below either reads it or says what is wrong
    replaced = False
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", errors="replace")
        replaced = True
    try:
        return _lenient.decode(text), True
    except RecursionError:
        raise JSONTextError("nested too deeply", kind="too_deep") from None
    except json.JSONDecodeError as error:
        # no position in the text is quoted: the line may hold what the user said
        what = f"{error.msg} (character {error.pos})"
        raise JSONTextError(what, kind="invalid_utf8" if replaced else "malformed", position=error.pos) from None
    except ValueError as error:  # an integer with more digits than the interpreter is willing to read
        raise JSONTextError(str(error), kind="out_of_range") from None
