"""`APIStream`: the bytes of a streamed answer of the Messages API become its events, and the events one message. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["APIStream"]

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}
"""The text that each kind of delta adds to its block, by the name it has there."""


class APIStream:
    """One answer as it comes in: `feed()` it the bytes. Whatever it does not understand it passes on and leaves out of the message."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        # the pieces of each growing text: adding a text to itself at every delta would take time with the square of its length (P5)
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self.is_complete: bool = False
        """True once the API has said that the message is whole; a stream that ends before was cut."""

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """The events that are whole with `chunk`, in order, however the bytes were cut."""
        self._rest.append(chunk)
        if b"\n" not in chunk:
            return []  # joined once its line is whole, or a long line would take time with the square of its length
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        events = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].lstrip(b" "))
            elif not line and self._data:
                event = _decoded(b"\n".join(self._data))
                self._data = []
                if event is not None:
                    self._take(event)
                    events.append(event)
        return events

    @property
    def message_id(self) -> str:
        """The id of the message, empty before it has begun."""
        found = self._message.get("id")
        return found if isinstance(found, str) else ""

    @property
    def has_begun(self) -> bool:
        """Whether there is a message at all."""
        return bool(self._message)

    def message(self) -> dict[str, Any]:
        """The message as far as it has come, in wire shape."""
        content = []
        for index in sorted(self._blocks):
            block = dict(self._blocks[index])
            for (of, name), pieces in self._pieces.items():
                if of == index:
                    _add_text(block, name, "".join(pieces))
            content.append(block)
        return {**self._message, "content": content}

    def _take(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                self._message = _object(event.get("message"))
            case "content_block_start":
                self._blocks[_index(event)] = _object(event.get("content_block"))
            case "content_block_delta":
                self._take_delta(_index(event), _object(event.get("delta")))
            case "message_delta":
                self._message |= _object(event.get("delta"))
                known = {name: value for name, value in _object(event.get("usage")).items() if value is not None}
                self._message["usage"] = {**_object(self._message.get("usage")), **known}
            case "message_stop":
                self.is_complete = self.has_begun

    def _take_delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        name = _TEXTS.get(kind) if isinstance(kind, str) else None
        if name is not None and isinstance(text := delta.get(name), str):
            self._pieces.setdefault((index, name), []).append(text)
        elif kind == "citations_delta" and index in self._blocks:
            self._blocks[index]["citations"] = [*(self._blocks[index].get("citations") or ()), delta.get("citation")]


def _add_text(block: dict[str, Any], name: str, text: str) -> None:
    """Add what the deltas of one kind gave; the input of a tool call comes as text, and is JSON when it is whole."""
    if name == "partial_json":
        block["input"] = _decoded(text.encode()) or {}
        return
    begun = block.get(name)
    block[name] = (begun if isinstance(begun, str) else "") + text


def _decoded(data: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None  # an event that is no JSON says nothing; that it was needed shows when the message does not become whole
    return found if isinstance(found, dict) else None


def _object(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0
