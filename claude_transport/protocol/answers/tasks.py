"""Answers about what is under way: turns, queued messages, background tasks."""

from __future__ import annotations

from claude_transport.protocol.answers.answer import Answer

__all__ = ["InterruptReceipt", "MessageCancellation", "TaskOutput"]


class InterruptReceipt(Answer, frozen=True, kw_only=True):
    """Which queued messages an interrupt left alone, and which it dropped, by uuid. [07c, 07f]"""

    still_queued: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


class MessageCancellation(Answer, frozen=True, kw_only=True):
    """Whether a queued message was dropped; False when it had been taken up already, or was never there. [10e]"""

    cancelled: bool = False
    message_uuid: str | None = None


class TaskOutput(Answer, frozen=True, kw_only=True):
    """What a background shell has written so far; `truncated` when `output` is not all of the `total_bytes`. [24d]"""

    output: str = ""
    total_bytes: int = 0
    truncated: bool = False
