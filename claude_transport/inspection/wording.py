"""Words for what stands in messages: JSON that people can read, the gist of a tool's input, the text of a content."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from claude_transport.protocol.envelope import to_wire
from claude_transport.protocol.messages import ContentBlock, TextBlock

__all__ = ["GIST_CHARS", "gist", "gist_of_input", "json_text", "text_of_content"]

GIST_CHARS: Final = 160
"""Characters of what stands on one line beside a title."""

_TELLING: Final = ("command", "file_path", "notebook_path", "pattern", "path", "url", "query", "skill", "description", "prompt")
"""Fields of tool input that say most about a call, best first."""

_MAX_PRETTY_CHARS: Final = 200_000
"""Of JSON that is indented; more is shown as it is, because nobody reads it to its end."""


def gist(text: str) -> str:
    """The beginning of `text`, on one line."""
    flat = " ".join(text[: GIST_CHARS * 4].split())
    flat = flat if flat.isascii() else flat.encode("utf-8", "replace").decode()
    return flat if len(flat) <= GIST_CHARS and len(text) <= GIST_CHARS * 4 else flat[: GIST_CHARS - 1] + "…"


def json_text(value: Any) -> str:
    """`value` as indented JSON."""
    try:
        encoded = msgspec.json.encode(to_wire(value))
        return (msgspec.json.format(encoded, indent=2) if len(encoded) <= _MAX_PRETTY_CHARS else encoded).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):  # a lone surrogate, or nested deeper than msgspec goes
        pass
    try:
        return json.dumps(to_wire(value), indent=2, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"({type(value).__name__} that cannot be shown)"


def gist_of_input(tool_input: Mapping[str, Any]) -> str:
    """What a tool call is about: its most telling field, or all of it."""
    for name in _TELLING:
        value = tool_input.get(name)
        if isinstance(value, str) and value.strip():
            return gist(value)
    return gist(json_text(tool_input)) if tool_input else ""


def text_of_content(content: str | Sequence[ContentBlock] | None) -> str:
    """The text of a message or a tool's answer; what is no text is named in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_text_of_block(block) for block in content)


def _text_of_block(block: ContentBlock) -> str:
    if isinstance(block, TextBlock):
        return block.text
    wire = block.to_dict()
    source = wire.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    if isinstance(data, str) and isinstance(source, dict):
        return f"[{wire.get('type')}: {source.get('media_type', 'data')}, {len(data):,} characters of base64]"
    return json_text(wire)
