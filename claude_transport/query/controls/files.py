"""Files of the session's directory."""

from __future__ import annotations

import math
import os
from typing import Literal

from claude_transport.protocol.answers import FileContents, FileSuggestions, PlanInfo, RewindResult, WorkspaceDiffAnswer
from claude_transport.query.controls.asking import DEFAULT_CONTROL_TIMEOUT, MILLISECONDS, Asking

__all__ = ["FileControls"]


class FileControls(Asking):
    """Files, where the CLI runs."""

    async def rewind_files(self, uuid: str, *, dry_run: bool = False, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> RewindResult:
        """Put files back to how they were when the user message `uuid` was sent; with `dry_run` only say what that would do. [08a]

        Needs `CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=true` in the CLI's environment. Without it, or for a message without a checkpoint,
        it raises `ControlRequestFailed`; a dry run may say so in `can_rewind` and `error` instead. What shell commands have changed is not
        put back.
        """
        return await self._ask(RewindResult, "rewind_files", timeout=timeout, user_message_id=uuid, dry_run=dry_run or None)

    async def read_file(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        encoding: Literal["utf-8", "base64"] | None = None,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> FileContents:
        """A file as the CLI sees it; `base64` for bytes. Raises `ControlRequestFailed` for one that is outside, or not there. [08a]"""
        return await self._ask(FileContents, "read_file", timeout=timeout, path=os.fspath(path), max_bytes=max_bytes, encoding=encoding)

    async def seed_read_state(self, path: str | os.PathLike[str], *, mtime: float, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Tell the CLI that the model has seen a file as of `mtime`, so that it may edit it at once. [08a]

        `mtime` is in seconds, as `os.stat` has it. A file that is newer, or is not there, is left out without a word.
        """
        await self._tell("seed_read_state", timeout=timeout, path=os.fspath(path), mtime=math.ceil(mtime * MILLISECONDS))

    async def file_suggestions(self, query: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> FileSuggestions:
        """Paths that match what somebody begins to type. [08a]"""
        return await self._ask(FileSuggestions, "file_suggestions", timeout=timeout, query=query)

    async def workspace_diff(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> WorkspaceDiffAnswer:
        """What has changed in the git working tree, or why that cannot be said. [08a]"""
        return await self._ask(WorkspaceDiffAnswer, "get_workspace_diff", timeout=timeout)

    async def plan(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> PlanInfo:
        """The session's plan, when there is one. [08a]"""
        return await self._ask(PlanInfo, "get_plan", timeout=timeout)
