"""The files that are read: lines of some shapes and a result, as a CLI writes them.

A thousand lines of a shape differ in their text and their id. Equal lines would flatter every reader: a processor learns their branches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["RESULT", "SHAPES", "Workload", "delta", "lines_like", "lines_of", "message_of"]

_IDS = {
    "session_id": "0b0fcf5a-3f5e-4d7b-9d3b-8a5d3c1f8a11",
    "parent_tool_use_id": None,
    "uuid": "7f9c2b1e-5a4d-4c3b-8e2f-1a0b9c8d7e6f",
}
_USAGE = {"input_tokens": 3, "cache_creation_input_tokens": 120, "cache_read_input_tokens": 14000, "output_tokens": 9}
# Escapes cost both sides more, and so shrink the ratio between them. There are as many here as in prose and code.
_PROSE = (
    "The tests pass now: the reader was woken twice for one chunk, and the second time there was nothing to read.\n"
    'It says "no data" then, and waits again, which costs a turn of the event loop but loses no message in between. '
)
_ESCAPES = 'He said "no", and left.\n\tThen · by the way · 1 < 2 & so on; each line costs what it holds. '

RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "duration_ms": 1200,
    "duration_api_ms": 1100,
    "num_turns": 1,
    "result": "Done.",
    "session_id": _IDS["session_id"],
    "total_cost_usd": 0.01,
    "usage": _USAGE,
    "uuid": "7f9c2b1e-5a4d-4c3b-8e2f-1a0b9c8d7e70",
}


def _prose(size: int, text: str = _PROSE, *, number: int = 0) -> str:
    """Return a part of endless prose; another one for each `number`."""
    start = number * 37 % len(text)
    return (text * (size // len(text) + 2))[start : start + size]


def delta(text: str) -> dict[str, Any]:
    """Return a partial message, as the CLI sends it for every few letters."""
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "event": event, **_IDS}


def _assistant(text: str) -> dict[str, Any]:
    content = [
        {"type": "text", "text": text},
        {"type": "tool_use", "id": "toolu_01A", "name": "Bash", "input": {"command": "ls -l", "description": "List the files"}},
    ]
    message = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _USAGE,
    }
    return {"type": "assistant", "message": message, **_IDS}


def _tool_result(text: str) -> dict[str, Any]:
    content = [{"type": "tool_result", "tool_use_id": "toolu_01A", "content": text, "is_error": False}]
    return {"type": "user", "message": {"role": "user", "content": content}, **_IDS}


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


_MAKERS: dict[str, tuple[int, Callable[..., dict[str, Any]]]] = {
    "delta, 263 B": (120_000, lambda prose: delta(prose(26))),
    "assistant, 2.3 KB": (24_000, lambda prose: _assistant(prose(1750))),
    "assistant, 2.3 KB, much escaped": (6000, lambda prose: _assistant(prose(1620, _ESCAPES))),
    "tool result, 87 KB": (900, lambda prose: _tool_result(prose(86_000))),
    "tool result, 1.3 MB": (60, lambda prose: _tool_result(prose(1_285_000))),
}


def message_of(name: str, number: int, *, text: str | None = None) -> dict[str, Any]:
    """Return the message `number` of a shape, made of prose or of `text`."""

    def prose(size: int, usual: str = _PROSE) -> str:
        return _prose(size, text or usual, number=number)

    return {**_MAKERS[name][1](prose), "uuid": f"{number * 2_654_435_761 % 2**32:08x}{_IDS['uuid'][8:]}"}


SHAPES = {name: (count, _line(message_of(name, 0))) for name, (count, _) in _MAKERS.items()}
"""By name: the number of lines in a full run, and one of the lines."""

_VARIANTS, _VARIANT_BYTES = 1000, 8_000_000
"""Lines of a shape that differ, and the bytes from which on fewer do."""


def lines_like(name: str, count: int) -> list[bytes]:
    """Return lines of a shape, each with other text and another id."""
    size = len(SHAPES[name][1])
    return [_line(message_of(name, number)) for number in range(max(min(count, _VARIANTS, _VARIANT_BYTES // size), 1))]


def lines_of(size: int) -> bytes:
    """Return a line of about `size` bytes."""
    return _line(delta("x" * max(size - 200, 1))) if size < 2000 else _line(_tool_result(_prose(size - size // 20)))


@dataclass(frozen=True)
class Workload:
    """`count` lines and a result, in files that a peer writes one after the other. Without the result they have `size_bytes`."""

    name: str
    line: bytes
    count: int
    size_bytes: int
    files: tuple[Path, ...]

    @classmethod
    def write(cls, folder: Path, name: str, *, line: bytes, count: int, files: int = 1, variants: Sequence[bytes] = ()) -> Workload:
        """Write the files, of equal lines or of `variants` in turn; `count` is a multiple of `files`."""
        part, end = folder / f"{len(line)}-{count}.ndjson", folder / "result.ndjson"
        lines, each = variants or (line,), count // files
        part.write_bytes(b"".join(lines) * (each // len(lines)) + b"".join(lines[: each % len(lines)]))
        end.write_bytes(_line(RESULT))
        return cls(name, line, each * files, part.stat().st_size * files, (*[part] * files, end))

    @classmethod
    def of_shape(cls, folder: Path, name: str, *, scale: float) -> Workload:
        """Write files of one of `SHAPES`, with `scale` times as many lines."""
        count = max(round(SHAPES[name][0] * scale), 4)
        return cls.write(folder, name, line=SHAPES[name][1], count=count, variants=lines_like(name, count))
