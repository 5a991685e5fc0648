"""What a list of sessions says about one: folded from its entries, batch by batch, so that a list reads no transcripts."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from claude_transport.launch.session_store import SessionKey, SessionStoreEntry, SessionSummaryEntry

_LAST_COUNTS: Final[Mapping[str, str]] = {
    "customTitle": "custom_title",
    "aiTitle": "ai_title",
    "lastPrompt": "last_prompt",
    "summary": "summary_hint",
    "gitBranch": "git_branch",
}
"""Fields of an entry, and where the latest of each is kept. The names in `data` are those that other clients of stores use."""

_LONGEST_PROMPT: Final = 200
_COMMAND: Final = re.compile(r"<command-name>(.*?)</command-name>")
_MARKS: Final = ("<local-command-stdout>", "<session-start-hook>", "<tick>", "<goal>")
_INTERRUPTION: Final = "[Request interrupted by user"
_EDITOR_TAGS: Final = ("ide_opened_file", "ide_selection")


def fold_session_summary(prev: SessionSummaryEntry | None, key: SessionKey, entries: Sequence[SessionStoreEntry]) -> SessionSummaryEntry:
    """Return the summary of a session after `entries`, from its summary before (None: there is none). Changes neither.

    A store calls it in `append` for keys without a `subpath`, keeps the result, and sets `mtime` to the time of its own write. Here it
    stays as it was, or 0.
    """
    data: dict[str, Any] = {} if prev is None else dict(prev["data"])
    for entry in cast("Sequence[Any]", entries):
        if not isinstance(entry, dict):
            continue  # a store may hold what was written by another program
        data.setdefault("is_sidechain", entry.get("isSidechain") is True)
        if "created_at" not in data and (moment := milliseconds_of(entry.get("timestamp"))) is not None:
            data["created_at"] = moment
        if "cwd" not in data and isinstance(entry.get("cwd"), str) and entry["cwd"]:
            data["cwd"] = entry["cwd"]
        if not data.get("first_prompt_locked"):
            _look_for_prompt(data, entry)
        data.update({name: entry[field] for field, name in _LAST_COUNTS.items() if isinstance(entry.get(field), str)})
        if entry.get("type") == "tag":
            data.pop("tag", None)
            if isinstance(entry.get("tag"), str) and entry["tag"]:
                data["tag"] = entry["tag"]
    return {"session_id": key["session_id"], "mtime": 0 if prev is None else prev["mtime"], "data": data}


def milliseconds_of(timestamp: object) -> int | None:
    """Return a time of an entry in milliseconds since 1970; None for what is no time."""
    if not isinstance(timestamp, str):
        return None
    try:
        return int(dt.datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def _look_for_prompt(data: dict[str, Any], entry: Mapping[str, Any]) -> None:
    """Keep the first text that a user has typed, or else the first command."""
    if entry.get("type") != "user" or entry.get("isMeta") is True or entry.get("isCompactSummary") is True:
        return
    for text in _typed_texts(entry.get("message")):
        line = text.replace("\n", " ").strip()
        if not line:
            continue
        if command := _COMMAND.search(line):
            data.setdefault("command_fallback", command[1])
            continue
        if _is_made_up(line):
            continue
        data["first_prompt"] = line if len(line) <= _LONGEST_PROMPT else line[:_LONGEST_PROMPT].rstrip() + "…"
        data["first_prompt_locked"] = True
        return


def _is_made_up(line: str) -> bool:
    """Return whether the CLI or an editor wrote this text of a user."""
    if line.startswith(_MARKS) or (line.startswith(_INTERRUPTION) and "]" in line):
        return True
    return any(line.startswith(f"<{tag}>") and line.endswith(f"</{tag}>") for tag in _EDITOR_TAGS)


def _typed_texts(message: object) -> Iterator[str]:
    """Yield the texts of a user's message; nothing when it carries the result of a tool."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        blocks = [block for block in content if isinstance(block, dict)]
        if all(block.get("type") != "tool_result" for block in blocks):
            yield from (block["text"] for block in blocks if block.get("type") == "text" and isinstance(block.get("text"), str))
