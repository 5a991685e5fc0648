"""What a conversation reports about itself: how an interrupt went, how it was closed, where it can be taken up again."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["CloseReport", "InterruptOutcome", "ResumePoint"]


class InterruptOutcome(StrEnum):
    """What came of an interrupt."""

    acknowledged = "acknowledged"
    """The CLI stops the running turn; its result follows (docs/reference/protocol.md#interrupts)."""
    not_running = "not_running"
    """There was nothing to stop."""
    timed_out = "timed_out"
    """The peer is there but did not answer in time."""
    dead = "dead"
    """There is no peer any more, or none that can be reached: input has ended, or it refuses while the turn goes on."""


class CloseReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a conversation was closed, and what was cut off by it.

    `ended_by_itself` is False when the transport had to be closed under it. `lost_turns` are the uuids of prompts without a
    result, `dropped_tasks` the background agents that were still at work: task id to description.
    """

    ended_by_itself: bool = True
    lost_turns: tuple[str, ...] = ()
    dropped_tasks: dict[str, str] = {}
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False


class ResumePoint(msgspec.Struct, frozen=True):
    """Where a new process can take the conversation up: `ClaudeOptions(resume=session_id, resume_session_at=last_uuid)`."""

    session_id: str
    last_uuid: str | None = None
