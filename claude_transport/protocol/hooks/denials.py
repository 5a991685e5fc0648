"""How a hook says no at each event, and since which CLI: what a program answers for a hook of its own that failed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from claude_transport.protocol.hooks.events import HookEvent

__all__ = ["DENIABLE", "NEEDED_VERSIONS", "denial_of", "is_at_least"]

_PERMISSION: Final = frozenset({HookEvent.PreToolUse, HookEvent.PreModelSwitch})
_STOP: Final = frozenset({HookEvent.Stop, HookEvent.SubagentStop, HookEvent.TaskCreated, HookEvent.TaskCompleted, HookEvent.TeammateIdle})
_BLOCK: Final = frozenset(
    {
        HookEvent.ConfigChange,
        HookEvent.Elicitation,
        HookEvent.ElicitationResult,
        HookEvent.PostToolBatch,
        HookEvent.PostToolUse,
        HookEvent.PostToolUseFailure,
        HookEvent.PreCompact,
        HookEvent.UserPromptExpansion,
        HookEvent.UserPromptSubmit,
    }
)

DENIABLE: Final[frozenset[HookEvent]] = frozenset({HookEvent.PermissionRequest}) | _PERMISSION | _STOP | _BLOCK
"""Events whose hooks can say no. The hooks of all others are told of something that nothing they say can stop."""

NEEDED_VERSIONS: Final[Mapping[HookEvent, str]] = {
    HookEvent.PostToolBatch: "2.1.191",
    HookEvent.PreCompact: "2.1.191",
    HookEvent.PreModelSwitch: "2.1.257",
    HookEvent.UserPromptExpansion: "2.1.191",
}
"""The first CLI that was seen to ask the hook of an event, and to heed its no. 2.1.92 does so for all other events of `DENIABLE`."""


def denial_of(event: str, reason: str) -> dict[str, Any] | None:
    """Return the response payload that says no at `event`, for `reason`; None when the event has no way to say it.

    A Stop hook says no by ending the turn. It could also keep the turn going, but one that always fails would do so for ever.
    """
    if event in _PERMISSION:
        return _specific(event, permissionDecision="deny", permissionDecisionReason=reason)
    if event == HookEvent.PermissionRequest:
        return _specific(event, decision={"behavior": "deny", "message": reason})
    if event in _STOP:
        return {"continue": False, "stopReason": reason}
    if event in _BLOCK:
        return {"decision": "block", "reason": reason}
    return None


def _specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": str(event), **fields}}


def is_at_least(version: str | None, needed: str) -> bool:
    """Return whether `version` is `needed` or later; False for a version that is not known or has no three numbers."""
    found = re.match(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})", version or "")
    return found is not None and tuple(map(int, found.groups())) >= tuple(map(int, needed.split(".")))
