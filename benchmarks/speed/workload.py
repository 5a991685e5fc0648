"""The files that are read: lines of some shapes and a result, as a CLI writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["RESULT", "SHAPES", "Workload", "delta", "lines_of"]

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


def _prose(size: int, text: str = _PROSE) -> str:
    return (text * (size // len(text) + 1))[:size]


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


def _tool_result(size: int) -> dict[str, Any]:
    content = [{"type": "tool_result", "tool_use_id": "toolu_01A", "content": _prose(size), "is_error": False}]
    return {"type": "user", "message": {"role": "user", "content": content}, **_IDS}


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


SHAPES = {
    "delta, 263 B": (200_000, _line(delta("a few words of prose, " + "or" * 2))),
    "assistant, 2.3 KB": (40_000, _line(_assistant(_prose(1750)))),
    "assistant, 2.3 KB, much escaped": (10_000, _line(_assistant(_prose(1620, _ESCAPES)))),
    "tool result, 87 KB": (1500, _line(_tool_result(86_000))),
    "tool result, 1.3 MB": (60, _line(_tool_result(1_285_000))),
}
"""By name: the number of lines in a full run, and the line."""


def lines_of(size: int) -> bytes:
    """Return a line of about `size` bytes."""
    return _line(delta("x" * max(size - 200, 1))) if size < 2000 else _line(_tool_result(size - size // 20))


@dataclass(frozen=True)
class Workload:
    """`count` equal lines and a result, in files that a peer writes one after the other."""

    name: str
    line: bytes
    count: int
    files: tuple[Path, ...]

    @property
    def size_bytes(self) -> int:
        """The number of bytes of the lines, without the result."""
        return len(self.line) * self.count

    @classmethod
    def write(cls, folder: Path, name: str, *, line: bytes, count: int, files: int = 1) -> Workload:
        """Write the files; `count` is a multiple of `files`."""
        part, end = folder / f"{len(line)}-{count}.ndjson", folder / "result.ndjson"
        part.write_bytes(line * (count // files))
        end.write_bytes(_line(RESULT))
        return cls(name, line, count // files * files, (*[part] * files, end))

    @classmethod
    def of_shape(cls, folder: Path, name: str, *, scale: float) -> Workload:
        """Write files of one of `SHAPES`, with `scale` times as many lines."""
        count, line = SHAPES[name]
        return cls.write(folder, name, line=line, count=max(round(count * scale), 4))
