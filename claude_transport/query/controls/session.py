"""The session as a whole."""

from __future__ import annotations

import os
from typing import Literal

from claude_transport.protocol.answers import (
    BinaryVersion,
    ConversationRewind,
    CwdChange,
    ExportedConversation,
    ForkResult,
    SessionTitle,
    SideAnswer,
    StatusInfo,
)
from claude_transport.query.controls.asking import DEFAULT_CONTROL_TIMEOUT, MODEL_TIMEOUT, Asking

__all__ = ["SessionControls"]


class SessionControls(Asking):
    """The session: its name, its directory, its text, its end."""

    async def end_session(self, *, reason: str | None = None, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Let the CLI end by itself, with input still open: a running turn is aborted, background tasks are killed. [08a, 24i]

        Returns when it has agreed. The conversation ends soon after, and `aclose()` reports how.
        """
        await self._tell("end_session", timeout=timeout, reason=reason)

    async def status(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> StatusInfo:
        """What `/status` shows, as text for people. [08a]"""
        return await self._ask(StatusInfo, "get_status", timeout=timeout)

    async def binary_version(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> BinaryVersion:
        """Which CLI this is. [08a]"""
        return await self._ask(BinaryVersion, "get_binary_version", timeout=timeout)

    async def rename_session(self, title: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Give the session a title; `session_title_changed` is sent. [08a]"""
        await self._tell("rename_session", timeout=timeout, title=title)

    async def set_color(self, color: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Give the session an accent color, such as "red", or the default again with "default".

        CLI 2.1.330 answers it over Remote Control only: in stream-json sessions it raises `ControlRequestFailed`.
        """
        await self._tell("set_color", timeout=timeout, color=color)

    async def generate_session_title(self, description: str, *, timeout: float = MODEL_TIMEOUT) -> str | None:
        """A title for what is described, made by a model; the session is not renamed. None when none was made."""
        return (await self._ask(SessionTitle, "generate_session_title", timeout=timeout, description=description)).title

    async def side_question(self, question: str, *, timeout: float = MODEL_TIMEOUT) -> SideAnswer:
        """Ask the model something that leaves no trace in the conversation: its answer. It is one paid call of the API. [08a]"""
        return await self._ask(SideAnswer, "side_question", timeout=timeout, question=question)

    async def export_conversation(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> ExportedConversation:
        """The conversation as plain text. [08a]"""
        return await self._ask(ExportedConversation, "export_conversation", timeout=timeout)

    async def fork_conversation(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> ForkResult:
        """Whether the conversation was forked. In stream-json sessions it never is: look at `forked`, or use `fork_session` [08a]."""
        return await self._ask(ForkResult, "fork_conversation", timeout=timeout)

    async def rewind_conversation(self, uuid: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> ConversationRewind:
        """Cut the conversation back to before the user message `uuid`: what that message said. Files are left alone, see `rewind_files`."""
        return await self._ask(ConversationRewind, "rewind_conversation", timeout=timeout, target_message_uuid=uuid)

    async def set_cwd(
        self,
        path: str | os.PathLike[str],
        *,
        trusted_directory: str | os.PathLike[str] | None = None,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> CwdChange:
        """Go to another directory: whether that was done.

        A directory that is not trusted answers `needs_trust`, and nothing was done: ask the user, and repeat with the answer's `directory`
        as `trusted_directory`. While a turn is running it is `rejected`.
        """
        trust = {} if trusted_directory is None else {"trust_accepted": True, "trusted_directory": os.fspath(trusted_directory)}
        return await self._ask(CwdChange, "set_cwd", timeout=timeout, path=os.fspath(path), **trust)

    async def set_has_subscribers(self, has_subscribers: bool, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Say whether anybody is looking. [08a]"""
        await self._tell("set_has_subscribers", timeout=timeout, has_subscribers=has_subscribers)

    async def set_message_waiting(self, waiting: bool, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Say whether the user has a message in hand that is not sent yet."""
        await self._tell("set_message_waiting", timeout=timeout, waiting=waiting)

    async def set_prompt_suggestions_paused(self, paused: bool, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Stop making suggestions for the next prompt, or go on. [08a]"""
        await self._tell("set_prompt_suggestions_paused", timeout=timeout, paused=paused)

    async def prompt_draft_activity(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Say that the user is typing. [08a]"""
        await self._tell("prompt_draft_activity", timeout=timeout)

    async def rate_message(
        self,
        uuid: str,
        *,
        sentiment: Literal["positive", "negative"],
        surface: Literal["assistant_text", "tool_use"] = "assistant_text",
        cleared: bool = False,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> None:
        """Send a rating of a message to the maker of the CLI, where that is allowed; `cleared` takes it back."""
        await self._tell("message_rated", timeout=timeout, messageUuid=uuid, sentiment=sentiment, surface=surface, cleared=cleared)
