"""Answers about files: read, rewound, changed, suggested."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from msgspec import field

from claude_transport.protocol.answers.answer import Answer
from claude_transport.protocol.envelope import Part

__all__ = [
    "ChangedFile",
    "DiffFile",
    "DiffHunk",
    "DiffStats",
    "FileContents",
    "FileSuggestions",
    "PlanInfo",
    "RewindResult",
    "WorkspaceDiff",
    "WorkspaceDiffAnswer",
]


class RewindResult(Answer, rename="camel", frozen=True, kw_only=True):
    """What a rewind did, or with `dry_run` would do: counts and paths come with a dry run only, and so does `error`. [08a]"""

    can_rewind: bool = False
    error: str | None = None
    files_changed: tuple[str, ...] = ()
    insertions: int | None = None
    deletions: int | None = None
    skipped_links: int | None = None


class FileSuggestions(Answer, frozen=True, kw_only=True):
    """Paths that match what was typed, seen from `cwd`. [08a]"""

    suggestions: tuple[Any, ...] = ()
    cwd: str = ""


class FileContents(Answer, frozen=True, kw_only=True):
    """A file, as text or as base64 (`encoding`). `lossy` when bytes that are no UTF-8 were replaced, `truncated` at `max_bytes`. [08a]"""

    contents: str = ""
    abs_path: str = field(name="absPath", default="")
    requested_path: str = ""
    encoding: str | None = None
    lossy: bool = False
    truncated: bool = False

    @property
    def data(self) -> bytes:
        """The bytes: decoded from base64, or the text in UTF-8."""
        if self.encoding == "base64":
            try:
                return base64.b64decode(self.contents)
            except binascii.Error:
                return b""  # not base64 after all; `contents` still has what came
        return self.contents.encode("utf-8", "surrogatepass")


class PlanInfo(Answer, frozen=True, kw_only=True):
    """The session's plan, when there is one. [08a]"""

    exists: bool = False
    content: str | None = None
    path: str | None = None


class DiffStats(Part, rename="camel", frozen=True, kw_only=True):
    """How much has changed."""

    files_count: int = 0
    lines_added: int = 0
    lines_removed: int = 0


class ChangedFile(Part, rename="camel", frozen=True, kw_only=True):
    """One changed file; `status`: added, modified, removed, renamed, copied."""

    path: str = ""
    added: int = 0
    removed: int = 0
    is_binary: bool = False
    is_untracked: bool = False
    status: str | None = None


class DiffHunk(Part, rename="camel", frozen=True, kw_only=True):
    """A hunk of a unified diff: `lines` begin with a space, `+` or `-`."""

    old_start: int = 0
    old_lines: int = 0
    new_start: int = 0
    new_lines: int = 0
    lines: tuple[str, ...] = ()


class DiffFile(Part, frozen=True, kw_only=True):
    """The hunks of one file; untracked files have none."""

    path: str = ""
    hunks: tuple[DiffHunk, ...] = ()


class WorkspaceDiff(Part, rename="camel", frozen=True, kw_only=True):
    """What has changed in the working tree."""

    stats: DiffStats = DiffStats()
    files: tuple[ChangedFile, ...] = field(name="perFileStats", default=())
    hunks: tuple[DiffFile, ...] = ()
    skipped_large: tuple[str, ...] = ()
    omitted: dict[str, Any] | None = None
    source: dict[str, Any] | None = None


class WorkspaceDiffAnswer(Answer, rename="camel", frozen=True, kw_only=True):
    """The changes, or None and the reason: `no-repository`, … [08a]"""

    diff: WorkspaceDiff | None = None
    no_diff_reason: str | None = None
