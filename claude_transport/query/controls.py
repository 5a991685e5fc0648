"""The requests a host can make of a running CLI, beside the conversation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from claude_transport.errors import ClaudeTransportError, ControlRequestFailed, ControlTimeout
from claude_transport.query.reports import InterruptOutcome

__all__ = ["DEFAULT_CONTROL_TIMEOUT", "Controls"]

DEFAULT_CONTROL_TIMEOUT = 60.0
"""Seconds for an answer to a control request. Most take 1-20 ms, a full `get_context_usage` 1.1 s (PROTOCOL (c))."""


class Controls(ABC):
    """Typed requests, each made of one `request()`. All of them are answered while a turn is running (recording 08b)."""

    @abstractmethod
    async def request(self, subtype: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT, **fields: Any) -> dict[str, Any]:
        """Ask the CLI anything: the response fields."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """True while there is something an interrupt could stop."""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """True once there is nobody to ask."""

    async def interrupt(self, *, timeout: float = 10.0) -> InterruptOutcome:
        """Stop the running turn: what came of it, in at most `timeout` seconds. Never raises for a dead or silent peer.

        Raises `ControlRequestFailed` when the peer refuses to stop what is running.
        """
        running = self.is_running
        try:
            await self.request("interrupt", timeout=timeout)
        except ControlTimeout:
            return InterruptOutcome.timed_out
        except ControlRequestFailed:
            if running:
                raise
        except ClaudeTransportError:
            return InterruptOutcome.dead if self.has_ended else InterruptOutcome.not_running
        return InterruptOutcome.acknowledged if running else InterruptOutcome.not_running

    async def set_model(self, model: str | None = None) -> str:
        """Use another model from the next request on, or with None the default again: the name that is now set.

        The CLI accepts any string, also one that names no model; a wrong one shows as a failed turn (PROTOCOL (g) 12).
        """
        return str((await self.request("set_model", model=model)).get("model", model))

    async def set_permission_mode(self, mode: str) -> str:
        """Change the permission mode: the mode that is now set.

        Raises `ControlRequestFailed` for an unknown mode (`invalid_mode`), and for `bypassPermissions` in a session that was
        not started with it (`bypass_not_launched`).
        """
        return str((await self.request("set_permission_mode", mode=mode)).get("mode", mode))
