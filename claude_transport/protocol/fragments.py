"""`FragmentRedactor`: redacts lines in order, also where a secret comes in several fragments of a text.

With `include_partial_messages` Claude sends an answer a few characters at a time, and other agents always do. A `Redactor` sees one line,
and a key in twenty pieces looks like none.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

import msgspec

from claude_transport.protocol.redaction import Redactor
from claude_transport.text.secret_forms import SECRET

FRAGMENT_FIELDS: Final = ("text", "thinking", "partial_json", "signature", "delta")
"""Fields of a delta that hold a fragment: those of Claude, and `delta` of JSON-RPC."""

_CLAUDE: Final = b'"content_block_delta"'
_JSON_RPC: Final = b'elta"'
_ENDS: Final = (b'"content_block_stop"', b'"assistant"', b'"result"', b'"item/completed"', b'"turn/completed"')
"""A line that contains one of them ends a text: no word goes on after it."""

_BEGINS: Final = (b'"content_block_start"', b'"message_start"', b'"item/started"')
"""A line that contains one of them begins a text."""

_CONTEXT_CHARS: Final = 512
"""Characters before a fragment that may tell what it is, such as `password: `."""

_KEY_BEGIN: Final = "-----BEGIN "
_KEY_NAME: Final = re.compile(r"[A-Z ]{0,60}-{0,5}")
_MOST_CONTEXT_CHARS: Final = 16 * 2**10
"""Characters of context where a private key may have begun."""

_MOST_HELD: Final = 64 * 2**10
"""Bytes of lines that wait for the end of a word. Then they are released as they are."""

_MOST_LINES: Final = 1024
"""Lines that wait, however short they are. A fragment is too long for this bound to be met before the one of bytes."""

_MOST_TEXTS: Final = 64
"""Texts that are followed at the same time. Beyond that the oldest is forgotten."""

_MOST_KEY: Final = 256
"""Characters of the name of a text, which is made of ids. A hostile one may be as long as a line."""

_Item = TypeVar("_Item")


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None


class _Params(msgspec.Struct):
    itemId: str = ""  # noqa: N815 - the name on the wire
    delta: str | None = None


class _FragmentLine(msgspec.Struct):
    parent_tool_use_id: str | None = None
    event: _Event | None = None
    method: str = ""
    params: _Params | None = None


_decode: Final = msgspec.json.Decoder(_FragmentLine).decode


def read_fragment(line: bytes) -> tuple[str, str] | None:
    """Return the text that a line continues, by a name, and its fragment; None for a line that is no delta."""
    if _CLAUDE not in line and _JSON_RPC not in line:
        return None
    try:
        read = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if read.event is not None and read.event.delta is not None:
        delta = read.event.delta
        found = next((text for text in (delta.text, delta.thinking, delta.partial_json, delta.signature) if text is not None), None)
        return None if found is None else (f"{read.event.index} {read.parent_tool_use_id}"[:_MOST_KEY], found)
    if read.params is not None and read.params.delta is not None and read.method.lower().endswith("delta"):
        return f"{read.method} {read.params.itemId}"[:_MOST_KEY], read.params.delta
    return None


class _Held(Generic[_Item]):
    """A line that waits. `key` names the text that it continues; empty for any other line."""

    __slots__ = ("item", "key", "line", "shown", "text")

    def __init__(self, item: _Item, line: bytes, key: str, text: str) -> None:
        self.item = item
        self.line = line
        self.key = key
        self.text = text
        self.shown = text


class FragmentRedactor(Generic[_Item]):
    """Redacts the lines of a conversation in order. A fragment that ends in the middle of a word, or of a known secret, waits, and what
    follows waits with it.

    `feed()` gives back each line once, with what the caller has given for it. At most 64 KiB wait. Call `rest()` at the end, and `miss()`
    where lines are missing.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held: deque[_Held[_Item]] = deque()
        self._contexts: dict[str, str] = {}
        self._in_midst = False
        self._hidden_texts: set[str] = set()
        self.held_bytes: int = 0
        """Bytes of the lines that wait."""

    def miss(self) -> None:
        """Tell that lines before the next one are missing, after `rest()`. The first half of a secret may be among them.

        So a text that goes on is hidden, until one begins or ends.
        """
        self._in_midst = True
        self._hidden_texts.clear()
        self._contexts.clear()

    def feed(self, item: _Item, line: bytes, *, received: bool = True) -> Iterator[tuple[_Item, bytes]]:
        """Take the next line, and yield those that can be shown. Only a line that was `received` can hold a fragment or end one."""
        found = read_fragment(line) if received else None
        if found is not None and self._in_midst:
            yield item, self._hidden(line, *found)
            return
        if received and self._in_midst and any(mark in line for mark in (*_BEGINS, *_ENDS)):
            self._in_midst = False
        if found is None and not self._held:
            yield item, self._redactor.line(line)
            return
        key, text = found or ("", "")
        self._held.append(_Held(item, line, key, text))
        self.held_bytes += len(line)
        if (found is None and received and any(end in line for end in _ENDS)) or self._is_full():
            yield from self.rest()
        elif found is not None:
            yield from self._release(self._closed())

    def rest(self) -> Iterator[tuple[_Item, bytes]]:
        """Yield everything that waits."""
        yield from self._release(len(self._held))

    def _is_full(self) -> bool:
        return self.held_bytes > _MOST_HELD or len(self._held) > _MOST_LINES

    def _hidden(self, line: bytes, key: str, text: str) -> bytes:
        """Return a line with the next fragment of a text whose beginning is missing. Only the first one shows that something was there."""
        shown = "" if key in self._hidden_texts else SECRET
        if len(self._hidden_texts) < _MOST_TEXTS:
            self._hidden_texts.add(key)
        return self._redactor.line(line, instead=_place_of(text, shown))

    def _closed(self) -> int:
        """Return how many of the lines that wait belong to no word that may go on."""
        texts = {key: "".join(held.text for held in self._held if held.key == key) for key in self._keys_held()}
        left = {key: max(_open_chars(text), self._begun_chars(text)) for key, text in texts.items()}
        first = len(self._held)
        for place in range(len(self._held) - 1, -1, -1):
            key = self._held[place].key
            if left.get(key, 0) > 0:
                left[key] -= len(self._held[place].text)
                first = place
        return first

    def _begun_chars(self, text: str) -> int:
        """Return how many characters at the end of `text` begin a known secret of several words."""
        most = 0
        for secret in self._redactor.several_words:
            begin = text.find(secret[0], max(len(text) - len(secret) + 1, 0))
            while begin >= 0 and not secret.startswith(text[begin:]):
                begin = text.find(secret[0], begin + 1)
            most = max(most, len(text) - begin if begin >= 0 else 0)
        return most

    def _keys_held(self) -> list[str]:
        return list(dict.fromkeys(held.key for held in self._held if held.key))

    def _release(self, count: int) -> Iterator[tuple[_Item, bytes]]:
        if not count:
            return
        released = list(islice(self._held, count))
        for key in self._keys_held():
            pieces = [held for held in self._held if held.key == key]
            self._redact(pieces, self._contexts.get(key, ""), released=sum(held.key == key for held in released))
        for _ in range(count):
            held = self._held.popleft()
            self.held_bytes -= len(held.line)
            if held.key:
                self._remember(held.key, held.text)
            yield held.item, self._redactor.line(held.line, instead=_place_of(held.text, held.shown) if held.key else None)

    def _redact(self, pieces: list[_Held[_Item]], context: str, *, released: int) -> None:
        """Set what the first `released` of the `pieces` show. They continue `context`; the others tell what they are."""
        raw = context + "".join(piece.text for piece in pieces)
        clean = self._redactor.text(raw)
        if clean == raw:
            return
        end = len(context) + sum(len(piece.text) for piece in pieces[:released])
        alone = self._redactor.text(raw[:end])
        if clean.startswith(alone):  # the others change nothing, and are looked at again
            raw, clean, pieces = raw[:end], alone, pieces[:released]
        before = self._redactor.text(context)
        if clean.startswith(before):  # what it says of the context alone is shown already
            raw, clean, context = raw[len(context) :], clean[len(before) :], ""
        first = next((at for at, (one, other) in enumerate(zip(raw, clean, strict=False)) if one != other), min(len(raw), len(clean)))
        most = max(min(len(raw), len(clean)) - first - 1, 0)  # a character is replaced also where a secret ends like its mark
        same = next((at for at in range(most) if raw[-1 - at] != clean[-1 - at]), most)
        start, stop, new = first, len(raw) - same, clean[first : len(clean) - same]
        begin = len(context)
        for piece in pieces:
            end = begin + len(piece.text)
            if begin < stop and end > start:
                said = new if start >= begin else ""  # it stands where the secret begins, and only there
                piece.shown = raw[begin : max(start, begin)] + said + raw[stop:end]
            begin = end

    def _remember(self, key: str, text: str) -> None:
        """Keep the end of a text whose fragments were released: it may say what comes next."""
        joined = self._contexts.pop(key, "") + text
        begun = joined.rfind(_KEY_BEGIN)
        if begun >= 0 and len(joined) - begun <= _MOST_CONTEXT_CHARS:
            joined = joined[min(begun, max(len(joined) - _CONTEXT_CHARS, 0)) :]
        else:
            joined = joined[-_CONTEXT_CHARS:]
        self._contexts[key] = joined
        if len(self._contexts) > _MOST_TEXTS:
            del self._contexts[next(iter(self._contexts))]


def _open_chars(text: str) -> int:
    """Return how many characters at the end of `text` belong to a word, or to the first line of a private key, that may go on."""
    words = text.rsplit(maxsplit=1)
    open_chars = len(words[-1]) if words and not text[-1].isspace() else 0
    begun = text.rfind(_KEY_BEGIN)
    if begun >= 0 and _KEY_NAME.fullmatch(text, begun + len(_KEY_BEGIN)):
        open_chars = max(open_chars, len(text) - begun)
    return open_chars


def _place_of(said: str, shown: str) -> Callable[[str, str], str | None] | None:
    """Return what `Redactor.line()` asks for each string: the text to show for the fragment of this line; None when that is as it is."""
    if shown == said:
        return None
    return lambda field, text: shown if field in FRAGMENT_FIELDS and text == said else None
