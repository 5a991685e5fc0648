"""Which sessions are stored, and what each is about, from the two ends of its file.

At most 64 KiB from either end of a file are read, whatever its size, and searched as bytes. Only the lines that may hold the first prompt
are decoded. The rules by which a title or a prompt is found are those of the official SDK, so that both show the same list.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from claude_transport.sessions.places import (
    AT_ONCE,
    Directory,
    all_projects,
    candidates,
    check_id,
    existing_projects,
    is_session_id,
    read_at,
    real_path,
    worktrees_of,
)

END_BYTES: Final = 64 * 2**10
"""Bytes that are read from each end of a file."""

_SUFFIX: Final = ".jsonl"
_ID_CHARS: Final = 36
_PROMPT_CHARS: Final = 200
_REST_OF_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_USER_LINE: Final = re.compile(rb'"type": ?"user"')
_NO_PROMPT: Final = re.compile(rb'"tool_result"|"isMeta": ?true|"isCompactSummary": ?true')
_SIDECHAIN: Final = re.compile(rb'"isSidechain": ?true')
_COMMAND: Final = re.compile(r"<command-name>(.*?)</command-name>")
# What the CLI or an editor wrote in the name of the user. Anchored at its beginning, and some of it at its end as well.
_GENERATED: Final = re.compile(
    r"(?:<(?:local-command-stdout|session-start-hook|tick|goal)>|\[Request interrupted by user[^\]]*\]"
    r"|\s*<ide_opened_file>.*</ide_opened_file>\s*$|\s*<ide_selection>.*</ide_selection>\s*$)",
    re.DOTALL,
)


@dataclass
class SDKSessionInfo:
    """What a list shows of a stored session. Times are milliseconds since 1970."""

    session_id: str
    """The UUID of the session."""
    summary: str
    """What to show for it: its title, else its last prompt, else a summary, else its first prompt."""
    last_modified: int
    """When its file was last changed."""
    file_size: int | None = None
    """The size of its file, in bytes. None for a session in a store."""
    custom_title: str | None = None
    """The title that a user gave it, else the one that the CLI made."""
    first_prompt: str | None = None
    """The first prompt of the user, cut after 200 characters. Without one the name of the first slash command."""
    git_branch: str | None = None
    """The branch of git at its end."""
    cwd: str | None = None
    """The working directory in which it began."""
    tag: str | None = None
    """The tag that a user gave it."""
    created_at: int | None = None
    """When it began, by its first entry with a time."""


class Ends(NamedTuple):
    """Both ends of a file. They overlap in a short one."""

    head: bytes
    tail: bytes
    mtime: int
    size: int


def list_sessions(
    directory: Directory = None, limit: int | None = None, offset: int = 0, include_worktrees: bool = True
) -> list[SDKSessionInfo]:
    """Return the stored sessions, the latest first.

    With a limit only as many files are opened as the page needs. Sessions of subagents are left out, and so are files without a prompt or a
    title. A file that vanishes or cannot be read meanwhile is left out.

    Args:
        directory: the sessions of this working directory; without it, those of all projects.
        limit: at most so many; None or 0 for all.
        offset: leave out so many of the latest.
        include_worktrees: also those of the other worktrees of the repository around `directory`.

    Raises:
        SessionArgumentError: `directory` cannot be a path.
        ConfigurationError: there is no home directory, and `CLAUDE_CONFIG_DIR` is not set.
    """
    page: list[SDKSessionInfo] = []
    stop = max(offset, 0) + limit if limit is not None and limit > 0 else None
    for info in _latest_first(_projects(directory, include_worktrees)):
        page.append(info)
        if len(page) == stop:
            break
    page.sort(key=lambda info: info.last_modified, reverse=True)  # a file may have changed since its directory was read
    return page[max(offset, 0) :]


def get_session_info(session_id: str, directory: Directory = None) -> SDKSessionInfo | None:
    """Return what a list shows of one session. None if there is no such session, or if a list leaves it out.

    Args:
        session_id: its UUID.
        directory: look among the sessions of this working directory and of its worktrees; without it, in all projects.

    Raises:
        SessionArgumentError: the id is no UUID, or `directory` cannot be a path.
    """
    check_id(session_id)
    for path, project_path in candidates(session_id + _SUFFIX, directory):
        ends = read_ends(path)
        if ends is not None:
            return info_from_ends(session_id, ends, project_path)
    return None


def _projects(directory: Directory, include_worktrees: bool) -> Iterator[tuple[Path, str | None]]:
    """Yield the projects to list, each with its path if that is known. Of two sessions with one id and one time the first counts."""
    if not directory:
        yield from ((project, None) for project in all_projects())
        return
    own = real_path(directory)
    yield from existing_projects([own])
    worktrees = worktrees_of(own) if include_worktrees else []
    if len(worktrees) > 1:
        others = dict(existing_projects(path for path in worktrees if path != own))
        yield from ((project, others[project]) for project in all_projects() if project in others)


def _latest_first(projects: Iterator[tuple[Path, str | None]]) -> Iterator[SDKSessionInfo]:
    """Yield each session once, by the time of its file."""
    found: list[tuple[int, str, str | None]] = []
    for project, path in projects:
        with suppress(OSError), os.scandir(project) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIX) and is_session_id(entry.name[: -len(_SUFFIX)]):
                    with suppress(OSError):
                        found.append((milliseconds(entry.stat()), entry.path, path))
    found.sort(key=lambda candidate: candidate[0], reverse=True)
    seen: set[str] = set()
    for _, place, path in found:
        session_id = place[-len(_SUFFIX) - _ID_CHARS : -len(_SUFFIX)]
        if session_id not in seen:
            ends = read_ends(place)
            info = info_from_ends(session_id, ends, path) if ends else None
            if info is not None:
                seen.add(session_id)
                yield info


def milliseconds(found: os.stat_result) -> int:
    """Return when a file was changed, in milliseconds since 1970."""
    return int(found.st_mtime * 1000)


def read_ends(path: str | Path) -> Ends | None:
    """Read both ends of a file. None if it is empty or cannot be read, or if it is no file: a pipe would never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | AT_ONCE)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        head = os.read(descriptor, END_BYTES)
        tail = read_at(descriptor, END_BYTES, found.st_size - END_BYTES) if found.st_size > END_BYTES else head
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return Ends(head, tail, milliseconds(found), found.st_size) if head else None


def info_from_ends(session_id: str, ends: Ends, project_path: str | None = None) -> SDKSessionInfo | None:
    """Make what a list shows of a session. None for a subagent's, and for one that has neither title nor prompt.

    `project_path` is its working directory, should the file not name it.
    """
    if _SIDECHAIN.search(ends.head.partition(b"\n")[0]):
        return None
    head = _Strings(ends.head)
    tail = head if ends.tail is ends.head else _Strings(ends.tail)
    title = _title(head, tail)
    prompt = first_prompt(ends.head) or None
    summary = title or tail.last(b"lastPrompt") or tail.last(b"summary") or prompt
    if not summary:
        return None
    return SDKSessionInfo(
        session_id=session_id,
        summary=summary,
        last_modified=ends.mtime,
        file_size=ends.size,
        custom_title=title,
        first_prompt=prompt,
        git_branch=tail.last(b"gitBranch") or head.first(b"gitBranch") or None,
        cwd=head.first(b"cwd") or project_path or None,
        tag=_tag_in(ends.tail),
        created_at=_time(head.first(b"timestamp")),
    )


def title_from_ends(ends: Ends) -> str | None:
    """Return the title of a session: the last one of a user, else the last one of the CLI, else its first prompt."""
    return _title(_Strings(ends.head), _Strings(ends.tail)) or first_prompt(ends.head) or None


def first_prompt(head: bytes) -> str:
    """Return the first prompt that a user wrote, on one line and cut; else the name of the first slash command; else nothing."""
    command = ""
    start = 0
    while found := _USER_LINE.search(head, start):
        begin = head.rfind(b"\n", 0, found.start()) + 1
        end = head.find(b"\n", found.end())
        line = head[begin : end if end >= 0 else len(head)]
        start = begin + len(line)
        if _NO_PROMPT.search(line):
            continue
        for text in _texts(line):
            if name := _COMMAND.search(text):
                command = command or name[1]
            elif not _GENERATED.match(text):
                return text if len(text) <= _PROMPT_CHARS else f"{text[:_PROMPT_CHARS].rstrip()}…"
    return command


def _texts(line: bytes) -> Iterator[str]:
    """Yield the texts in a user's message, each on one line. A line that is cut or damaged has none."""
    try:
        entry = json.loads(line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return
    message = entry.get("message") if isinstance(entry, dict) and entry.get("type") == "user" else None
    content = message.get("content") if isinstance(message, dict) else None
    blocks: list[Any] = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            text = block["text"].replace("\n", " ").strip()
            if text:
                yield text


def _tag_in(tail: bytes) -> str | None:
    """Return the last tag. Only a line that begins as a tag counts: the arguments of tools may have tags, too."""
    mark = b'{"type":"tag"'
    begin = tail.rfind(b"\n" + mark) + 1
    if not begin and not tail.startswith(mark):
        return None
    end = tail.find(b"\n", begin)
    return _Strings(tail[begin : end if end >= 0 else len(tail)]).last(b"tag") or None


class _Strings:
    """The strings in a piece of a transcript, found by their keys without parsing what is around them. One that is cut does not count."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        # The CLI puts no space behind a colon. A single search says so, instead of one for each key.
        self._marks = (b'":"', b'": "') if text.rfind(b'": "') >= 0 else (b'":"',)

    def first(self, key: bytes) -> str | None:
        """Return the first string with this key."""
        for mark in self._marks:
            pattern = b'"' + key + mark
            begin = self._text.find(pattern)
            if begin >= 0 and (rest := _REST_OF_STRING.match(self._text, begin + len(pattern))):
                return _unescape(rest[0][:-1])
        return None

    def last(self, key: bytes) -> str | None:
        """Return the last string with this key; one with a space behind the colon goes first."""
        for mark in reversed(self._marks):
            pattern = b'"' + key + mark
            begin = self._text.rfind(pattern)
            while begin >= 0:
                if rest := _REST_OF_STRING.match(self._text, begin + len(pattern)):
                    return _unescape(rest[0][:-1])
                begin = self._text.rfind(pattern, 0, begin)
        return None


def _title(head: _Strings, tail: _Strings) -> str | None:
    """Return the last title of a user, else the last one of the CLI. The end of the file goes first."""
    ends = (tail,) if tail is head else (tail, head)
    return next((title for key in (b"customTitle", b"aiTitle") for end in ends if (title := end.last(key))), None)


def _unescape(raw: bytes) -> str:
    text = raw.decode("utf-8", errors="replace")
    if "\\" in text:
        with suppress(ValueError):
            return str(json.loads(f'"{text}"'))
    return text


def _time(text: str | None) -> int | None:
    if text:
        with suppress(ValueError, OverflowError):
            return int(datetime.fromisoformat(text).timestamp() * 1000)
    return None
