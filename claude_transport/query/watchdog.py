"""`Watchdog`: when a turn that says nothing is called stalled, and what is done about it.

Two clocks run while a turn does: seconds without any byte, and seconds without progress, which is anything that is not merely a sign of
life. They stand still while something may honestly take hours: a tool is at work, a callback of the host is, or the host itself does not
read. Silence is normal up to a point: 66 s without a byte were seen while the API was quiet, and nothing is sent to fill them
(recording 17d, docs/reference/protocol.md#silence).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.envelope import Message
from claude_transport.query.arguments import check_number

__all__ = ["DEFAULT_WATCHDOG", "Clock", "StallEvent", "Watchdog"]

Clock = Literal["no_bytes", "no_progress"]


class Watchdog(msgspec.Struct, frozen=True, kw_only=True):
    """After how many seconds a turn that stands still is called stalled, and what happens then.

    Args:
        no_bytes: seconds without any byte; None for no such limit. Without `include_partial_messages` a CLI says nothing while the
            model writes a whole block, which may take more than ten minutes: hence 900.
        no_progress: seconds without progress, while signs of life may go on coming; None for no such limit.
        action: "event" puts a `StallEvent` among the messages, and nothing else. "kill" also ends the conversation: the turn and all
            pending requests fail with `ConnectionLost`, code `transport.stalled`.

    Raises `ConfigurationError` for other values.
    """

    no_bytes: float | None = 900.0
    no_progress: float | None = 1800.0
    action: Literal["event", "kill"] = "event"

    def __post_init__(self) -> None:
        for name in ("no_bytes", "no_progress"):
            if (limit := getattr(self, name)) is not None:
                check_number(name, limit, positive=True)
        if self.action not in ("event", "kill"):
            raise ConfigurationError(f'action is "event" or "kill", not {self.action!r}', option="action")


DEFAULT_WATCHDOG = Watchdog()
"""Speaks up after a quarter of an hour without a byte, or half an hour without progress; ends nothing."""


class StallEvent(Message, frozen=True, kw_only=True):
    """The turn stands still: nothing of the kind that `clock` counts has come for `seconds`. Made by `Query`'s watchdog, never on the wire.

    `clock` is "no_bytes" or "no_progress"; `last` the type of the last message that came, or an empty string; `killed` is True when the
    conversation is ended for it. There is one for each stall: the next comes only after the clock has been set back by something.
    """

    clock: Clock = "no_bytes"
    seconds: float = 0.0
    last: str = ""
    killed: bool = False

    @property
    def type(self) -> str:
        """Always `stall_event`, which is never on the wire."""
        return "stall_event"

    def to_dict(self) -> dict[str, Any]:
        """A description for logs."""
        return {"type": self.type, "clock": self.clock, "seconds": self.seconds, "last": self.last, "killed": self.killed}
