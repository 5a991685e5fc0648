"""`StreamedBlocks`: the pieces of an answer, put together: when each block began, and what was said of one that never arrived whole."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from claude_transport.protocol.messages import StreamEvent, Usage

__all__ = ["BlockTimes", "StreamedBlocks", "Unfinished"]

_KEPT_CHARS = 65_536
"""Characters kept of a block that has not arrived; most do, and then what was kept is not needed."""


class BlockTimes(NamedTuple):
    """When a block began, when the API message it belongs to did, and in how many pieces it came."""

    began: float
    message_began: float
    pieces: int


class Unfinished(NamedTuple):
    """A block of which only pieces ever came."""

    kind: str
    began: float
    ended: float
    text: str
    chars: int
    parent: str | None
    """The id of the call that started the subagent which wrote it; None for the main conversation."""


class _Block:
    """A block that is being written."""

    __slots__ = ("began", "chars", "kept", "kind", "last", "pieces", "texts")

    def __init__(self, kind: str, began: float) -> None:
        self.kind = kind
        self.began = self.last = began
        self.pieces = self.chars = self.kept = 0
        self.texts: list[str] = []

    def add(self, text: str, t: float) -> None:
        self.pieces += 1
        self.chars += len(text)
        self.last = t
        if self.kept < _KEPT_CHARS:
            self.texts.append(text)
            self.kept += len(text)


class _Thread:
    """The main conversation, or one subagent: each writes one message at a time."""

    __slots__ = ("began", "blocks", "message_id")

    def __init__(self, message_id: str, began: float) -> None:
        self.message_id = message_id
        self.began = began
        self.blocks: dict[str, _Block] = {}


class StreamedBlocks:
    """Fed with every `StreamEvent`, and asked when a block has arrived whole. Messages arrive block by block, in their order [03]."""

    def __init__(self) -> None:
        self._threads: dict[str | None, _Thread] = {}
        self._unfinished: list[Unfinished] = []

    def read(self, message: StreamEvent, t: float) -> tuple[str, Usage | None]:
        """Take an event: the id of the API message it is about (may be empty), and the usage it reports."""
        parent = message.parent_tool_use_id
        event, kind = message.event, message.event_type
        if kind == "message_start":
            self._give_up(parent)
            about = event.get("message")
            about = about if isinstance(about, dict) else {}
            thread = self._threads[parent] = _Thread(str(about.get("id", "")), t)
            return thread.message_id, _usage(about.get("usage"))
        thread_now = self._threads.get(parent)
        if thread_now is None:
            return "", None
        place = str(event.get("index"))  # a number, but a peer may send anything, also what cannot be a key
        if kind == "content_block_start":
            block = event.get("content_block")
            thread_now.blocks[place] = _Block(str(block.get("type", "")) if isinstance(block, dict) else "", t)
        elif kind == "content_block_delta" and (writing := thread_now.blocks.get(place)) is not None:
            writing.add(message.text or message.thinking or _partial_json(event), t)
        elif kind == "message_delta":
            return thread_now.message_id, _usage(event.get("usage"))
        return thread_now.message_id, None

    def arrived(self, message_id: str, *, parent: str | None) -> BlockTimes | None:
        """The next block of this message is there as a whole: when it began; None when nothing of it was streamed."""
        thread = self._threads.get(parent)
        if thread is None or thread.message_id != message_id or not thread.blocks:
            return None
        block = thread.blocks.pop(next(iter(thread.blocks)))
        return BlockTimes(block.began, thread.began, block.pieces)

    def unfinished(self, *, at_end: bool = False) -> list[Unfinished]:
        """Blocks that will not come any more, each once; `at_end`, also those that were still being written."""
        if at_end:
            for parent in tuple(self._threads):
                self._give_up(parent)
        found, self._unfinished = self._unfinished, []
        return found

    def _give_up(self, parent: str | None) -> None:
        thread = self._threads.pop(parent, None)
        for block in thread.blocks.values() if thread is not None else ():
            if block.chars:
                self._unfinished.append(Unfinished(block.kind, block.began, block.last, "".join(block.texts), block.chars, parent))


def _partial_json(event: dict[str, Any]) -> str:
    delta = event.get("delta")
    text = delta.get("partial_json") if isinstance(delta, dict) else None
    return text if isinstance(text, str) else ""


def _usage(value: Any) -> Usage | None:
    try:
        return msgspec.convert(value, Usage) if isinstance(value, dict) else None
    except msgspec.ValidationError:
        return None  # a peer that says something else about usage has said nothing
