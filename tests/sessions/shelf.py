"""A configuration directory of the CLI with made-up sessions in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claude_transport.sessions import project_key_for_directory

CWD = "/work/of/alice"


def session(number: int) -> str:
    """The id of a session."""
    return f"{number:08x}-1111-4222-8333-444444444444"


def entry(number: int) -> str:
    """The id of an entry."""
    return f"{number:08x}-aaaa-4bbb-8ccc-dddddddddddd"


def line(entry: Any) -> bytes:
    """One line of a transcript, as the CLI writes it."""
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def user(number: int, content: Any = "Hello", *, parent: int | None = None, **more: Any) -> dict[str, Any]:
    """A message of the user."""
    return _message("user", number, {"role": "user", "content": content}, parent, more)


def assistant(number: int, content: Any = "Hi.", *, parent: int | None = None, response: str = "", **more: Any) -> dict[str, Any]:
    """A message of the model, or one block of it."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return _message("assistant", number, {"id": response or f"msg_{number}", "role": "assistant", "content": blocks}, parent, more)


def call(name: str) -> dict[str, Any]:
    """A tool call in a message of the model."""
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": "true"}}


def answer(name: str) -> dict[str, Any]:
    """A tool result in a message of the user."""
    return {"type": "tool_result", "tool_use_id": name, "content": "done"}


def talk(number: int = 1) -> list[dict[str, Any]]:
    """A short conversation."""
    return [user(number, f"Question {number}"), assistant(number + 1, f"Answer {number}", parent=number)]


def _message(kind: str, number: int, message: dict[str, Any], parent: int | None, more: dict[str, Any]) -> dict[str, Any]:
    return {
        "parentUuid": entry(parent) if parent is not None else None,
        "isSidechain": False,
        "type": kind,
        "message": message,
        "uuid": entry(number),
        "timestamp": f"2026-11-20T10:{number // 60 % 60:02}:{number % 60:02}.500Z",
        "cwd": CWD,
        "sessionId": session(1),
        "gitBranch": "main",
        **more,
    }


@dataclass(frozen=True)
class Shelf:
    """The directory, and what puts sessions into it."""

    configuration: Path

    def project(self, cwd: str | Path = CWD) -> Path:
        """The directory of the sessions of one working directory."""
        return self.configuration / "projects" / project_key_for_directory(cwd)

    def put(
        self, number: int, entries: Iterable[Any] | bytes | None = None, *, cwd: str | Path = CWD, changed: float | None = None
    ) -> Path:
        """Write a session: entries or bytes. `changed` is the time of its file, in seconds; without it each later number is later."""
        path = self.project(cwd) / f"{session(number)}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = entries if isinstance(entries, bytes) else b"".join(map(line, talk() if entries is None else entries))
        path.write_bytes(data)
        time = changed if changed is not None else 1_700_000_000.25 + number
        os.utime(path, (time, time))
        return path

    def put_subagent(self, number: int, agent: str, entries: Iterable[Any], *, below: str = "", noted: Any = None) -> Path:
        """Write the transcript of a subagent of session `number`, and what the CLI noted about it."""
        folder = self.project() / session(number) / "subagents" / below
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"agent-{agent}.jsonl"
        path.write_bytes(b"".join(map(line, entries)))
        if noted is not None:
            (folder / f"agent-{agent}.meta.json").write_text(json.dumps(noted), "utf-8")
        return path
