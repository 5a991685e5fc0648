"""How a hook says no at each event: what a program answers for a hook of its own that failed.

Which CLI heeds it is in `launch.features`.
"""

from __future__ import annotations

from typing import Any, Final

from claude_transport.protocol.hooks.events import HookEvent

__all__ = ["DENIABLE", "denial_of"]

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
