"""`PooledSession`: one session of a pool, from its `SessionStart` to its one use; and `LateGuard`, whose callback comes with that use."""

from __future__ import annotations

from typing import Any

from claude_transport.background import BackgroundTask
from claude_transport.errors import ClaudeTransportError
from claude_transport.query.handlers import Allow, CallbackContext, CanUseToolCallback, Deny
from claude_transport.query.query import Query

__all__ = ["LateGuard", "PooledSession", "SessionStart"]


class LateGuard:
    """A `can_use_tool` that is there when the session starts, and asks whoever was put in charge since."""

    def __init__(self, callback: CanUseToolCallback) -> None:
        self.callback = callback
        """Who is asked: the pool's own callback, until somebody who took the session brings another one."""

    async def __call__(self, tool_name: str, given: dict[str, Any], context: CallbackContext) -> Allow | Deny:
        return await self.callback(tool_name, given, context)


class PooledSession:
    """One session: its query, and since when it has been waiting (a time of the pool's clock)."""

    __slots__ = ("guard", "idle_since", "query")

    def __init__(self, query: Query, *, guard: LateGuard | None) -> None:
        self.query: Query = query
        self.guard: LateGuard | None = guard
        """None when the pool was made without `can_use_tool`."""
        self.idle_since: float = 0.0


class SessionStart:
    """One attempt to start a session: the task at it, and what came of it: a session, an error, or neither when it was cancelled."""

    __slots__ = ("error", "session", "task")

    def __init__(self) -> None:
        self.task: BackgroundTask | None = None
        self.session: PooledSession | None = None
        self.error: ClaudeTransportError | None = None
