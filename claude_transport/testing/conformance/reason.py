"""Why a clause is not asked of a medium: one sentence each, so that nothing is left out silently."""

from __future__ import annotations

import enum

__all__ = ["Inexpressible", "Reason"]


class Reason(enum.Enum):
    """Why a clause is excluded; the value is the sentence for the report."""

    no_peer = "the factory gives no peer: nothing can be said or seen at the other end"
    no_refusal = "its `connect()` cannot be made to fail: what it connects to is open already, or nobody told the kit how"
    no_line_limit = "it has no limit for the length of a line, or the kit was not told which"
    no_own_info = "it keeps the default `info`, which counts nothing"
    no_bytes = "it carries whole lines only: they can neither be cut on their way nor lack their newline"
    scripted = "what its peer says is fixed before it is connected: nothing can be said in reply, or later"
    never_waits = "its writes are taken at once: no writer ever waits"
    cannot_break = "its peer cannot go away badly"
    no_status = "bare lines have no word for how the process ended; the link has"
    no_sshd = "there is no sshd on this machine, or no ssh to reach it with"
    whole_lines = "something on the way takes each line whole before it hands it on: a single line, however long, does not wait"


class Inexpressible(Exception):
    """Raised inside a clause that turns out not to be expressible with the subject at hand: it is excluded for `reason`."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason
