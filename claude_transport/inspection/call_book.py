"""`CallBook`: calls matched to their answers by id, and counted by name: tools, control requests, tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from claude_transport.inspection.summary import CallStats
from claude_transport.inspection.wording import gist

__all__ = ["CallBook", "OpenCall"]

Caller = Literal["model", "host", "claude"]
_STATISTICS = {"error": "errors", "denied": "denied", "cancelled": "cancelled"}

_MAX_NAMES = 500
"""Names told apart; a tape that makes up more of them does not grow the memory."""


class OpenCall(NamedTuple):
    """A call that has no answer yet: the event that shows it, its name, and when it began."""

    event: int
    name: str
    t: float


class CallBook:
    """The calls of one side. An id may be used twice: then the older call is answered first [08e]. It may be missing [18l]."""

    def __init__(self, asked_by: Caller) -> None:
        self._asked_by: Caller = asked_by
        self._open: dict[str | None, deque[OpenCall]] = {}
        self._stats: dict[str, CallStats] = {}

    def began(self, call_id: str | None, *, name: str, event: int, t: float) -> None:
        """A call was made."""
        name = gist(name)
        if name not in self._stats and len(self._stats) >= _MAX_NAMES:
            name = "other"
        stats = self._stats.get(name) or CallStats(name=name, asked_by=self._asked_by)
        self._stats[name] = msgspec.structs.replace(stats, calls=stats.calls + 1, open=stats.open + 1)
        self._open.setdefault(call_id, deque()).append(OpenCall(event, name, t))

    def find(self, call_id: str | None) -> OpenCall | None:
        """The call of that id that waits for its answer."""
        waiting = self._open.get(call_id)
        return waiting[0] if waiting else None

    def ended(self, call_id: str | None, *, t: float, status: str) -> OpenCall | None:
        """The call that ends now with this status, and is open no more; None when nobody knows of one."""
        waiting = self._open.get(call_id)
        if not waiting:
            return None
        call = waiting.popleft()
        if not waiting:
            del self._open[call_id]
        stats = self._stats[call.name]
        took = max(0.0, t - call.t)
        counted = {_STATISTICS[status]: getattr(stats, _STATISTICS[status]) + 1} if status in _STATISTICS else {}
        self._stats[call.name] = msgspec.structs.replace(
            stats, open=stats.open - 1, seconds=stats.seconds + took, longest=max(stats.longest, took), **counted
        )
        return call

    def still_open(self) -> Iterator[OpenCall]:
        """Those without an answer, oldest first of each id."""
        for waiting in self._open.values():
            yield from waiting

    def stats(self) -> tuple[CallStats, ...]:
        """By name, the most used first."""
        return tuple(sorted(self._stats.values(), key=lambda stats: (-stats.calls, stats.name)))
