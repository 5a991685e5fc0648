"""The strings of a JSON line, rewritten in place: whatever is not a rewritten string stays byte for byte as it was.

It reads tokens, not values, so it also works on half a line, on noise, on bytes that are not UTF-8, and never changes a number, the
order of keys or the spacing. One pass, linear in the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import msgspec

__all__ = ["Place", "rewrite_strings"]

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)
_COLON = re.compile(rb"\s*+:")
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_PAIR_NAMES = frozenset({"name", "key", "header"})
_LINE_ENDS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))


class Place(msgspec.Struct):
    """Where a value stands: its field name, or that of the array it is in.

    `pair` is the name it has in an object of `{"name": …, "value": …}`; `previous` the string before it in an array (a command line
    flag, perhaps); `within` the name of the outermost object around it that `keep` has chosen.
    """

    name: str = ""
    is_key: bool = False
    pair: str = ""
    previous: str = ""
    within: str = ""


class _Frame:
    """An open object or array."""

    __slots__ = ("is_object", "name", "pair", "previous", "within")

    def __init__(self, *, is_object: bool, name: str, within: str) -> None:
        self.is_object = is_object
        self.name = name  # of the field whose value comes next, or of the array
        self.pair = ""
        self.previous = ""
        self.within = within


def rewrite_strings(
    line: bytes, rewrite: Callable[[str, Place], str], *, keep: Callable[[str], bool], number: Callable[[Place], bool]
) -> bytes:
    """`line` with `rewrite(text, place)` in place of each string; `line` itself when nothing changed.

    `keep(name)` says which names of surrounding objects are worth a `Place.within`; `number(place)` whether a number there
    becomes 0.
    """
    pieces: list[bytes] = []
    done = 0
    stack = [_Frame(is_object=False, name="", within="")]
    for match in _TOKEN.finditer(line):
        token, frame = match[0], stack[-1]
        first = token[:1]
        new = token
        if first == b'"':
            new = _rewrite_token(token, frame, rewrite, is_key=frame.is_object and _COLON.match(line, match.end()) is not None)
        elif first in (b"{", b"["):
            within = frame.name if not frame.within and first == b"{" and frame.name and keep(frame.name) else frame.within
            stack.append(_Frame(is_object=first == b"{", name="" if first == b"{" else frame.name, within=within))
        elif first in (b"}", b"]"):
            if len(stack) > 1:
                stack.pop()
        elif _NUMBER.fullmatch(token) and number(Place(frame.name, False, frame.pair, "", frame.within)):
            new = b"0"
        if new is not token:
            pieces.append(line[done : match.start()])
            pieces.append(new)
            done = match.end()
    if not pieces:
        return line
    pieces.append(line[done:])
    return b"".join(pieces)


def _rewrite_token(token: bytes, frame: _Frame, rewrite: Callable[[str, Place], str], *, is_key: bool) -> bytes:
    text, whole = _decode(token)
    if is_key:
        frame.name = text
    place = Place(frame.name, is_key, frame.pair if frame.name == "value" else "", frame.previous, frame.within)
    new = rewrite(text, place)
    if not is_key and frame.is_object and frame.name in _PAIR_NAMES:
        frame.pair = text
    frame.previous = "" if frame.is_object else text
    if new == text:
        return token
    if whole:
        return _encode(new)
    # not a whole, valid string: what is put in holds neither quotes nor backslashes, so the rest means what it meant
    return b'"' + new.encode("utf-8", "surrogateescape") + (b'"' if len(token) > 1 and token.endswith(b'"') else b"")


def _decode(token: bytes) -> tuple[str, bool]:
    """The text, and whether the token is a JSON string that can be read; else it is the raw text between the quotes."""
    try:
        return json.loads(token), True
    except ValueError:
        body = token[1:-1] if len(token) > 1 and token.endswith(b'"') else token[1:]
        return body.decode("utf-8", "surrogateescape"), False


def _encode(text: str) -> bytes:
    encoded = json.dumps(text, ensure_ascii=False)
    for plain, escaped in _LINE_ENDS:
        if plain in encoded:
            encoded = encoded.replace(plain, escaped)
    try:
        return encoded.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can carry
        return json.dumps(text).encode()
