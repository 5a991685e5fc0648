"""Callbacks written for the official SDK, as a `Query` calls them: same arguments, same answers, same meaning of a failure."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.control import PermissionUpdate
from claude_transport.protocol.hooks import HookOutput, encode_hook_output
from claude_transport.query.handlers import Allow, CallbackContext, CanUseToolCallback, Deny, HookCallable, HookMatcher

if TYPE_CHECKING:
    import claude_agent_sdk

__all__ = ["hooks_from", "permission_callback_from"]

logger: logging.Logger = logging.getLogger(__name__)


def permission_callback_from(callback: claude_agent_sdk.CanUseTool) -> CanUseToolCallback:
    """An official `can_use_tool` as one of `Query`. One that raises, or answers something else, denies: there too."""
    import claude_agent_sdk as sdk

    async def ask(tool_name: str, tool_input: dict[str, Any], context: CallbackContext) -> Allow | Deny:
        suggestions = [sdk.PermissionUpdate.from_dict(update.to_dict()) for update in context.suggestions]
        theirs = sdk.ToolPermissionContext(
            suggestions=suggestions,
            tool_use_id=context.tool_use_id,
            agent_id=context.agent_id,
            blocked_path=context.blocked_path,
            title=context.title,
            display_name=context.display_name,
            description=context.description,
            decision_reason=context.decision_reason,
        )
        answer: object = await callback(tool_name, tool_input, theirs)
        if isinstance(answer, sdk.PermissionResultAllow):
            return Allow(updated_input=answer.updated_input, updated_permissions=_updates(answer.updated_permissions))
        if isinstance(answer, sdk.PermissionResultDeny):
            return Deny(message=answer.message, interrupt=answer.interrupt)
        raise TypeError(f"can_use_tool returned {type(answer).__name__}, not PermissionResultAllow or PermissionResultDeny")

    return ask


def _updates(updates: Sequence[claude_agent_sdk.PermissionUpdate] | None) -> tuple[PermissionUpdate, ...]:
    """The same changes of the rules; none at all when one of them cannot be sent, as the official SDK has it."""
    try:
        return tuple(msgspec.convert(update.to_dict(), PermissionUpdate) for update in updates or ())
    except ValueError:  # also of msgspec: what is no update at all
        logger.warning("permission updates are left out: one of them lacks a field", exc_info=True)
        return ()


def hooks_from(hooks: Mapping[Any, Sequence[claude_agent_sdk.HookMatcher]]) -> dict[str, list[HookMatcher]]:
    """Official hooks as those of `Query`. With `on_failure="block"` a hook that raises blocks; otherwise it has no say, and is logged."""
    return {str(event): [_matcher(event, matcher) for matcher in matchers] for event, matchers in hooks.items() if matchers}


def _matcher(event: str, matcher: claude_agent_sdk.HookMatcher) -> HookMatcher:
    if matcher.on_failure not in (None, "continue", "block"):
        raise ConfigurationError(f'on_failure is "continue" or "block", not {matcher.on_failure!r}', option="hooks")
    blocks = matcher.on_failure == "block"
    callbacks = [_hook(event, callback, blocks=blocks) for callback in matcher.hooks]
    return HookMatcher(matcher.matcher, callbacks, timeout=matcher.timeout)


def _hook(event: str, callback: claude_agent_sdk.HookCallback, *, blocks: bool) -> HookCallable:
    async def run(given: Any, tool_use_id: str | None, _context: CallbackContext) -> HookOutput:
        try:
            # all that can fail belongs in here, the check of the answer too: a hook that does not block has no say then
            return _answer(event, await callback(given.to_dict(), tool_use_id, {"signal": None}))
        except Exception:
            if blocks:
                raise
            logger.warning("a %s hook failed and has no say in what happens", event, exc_info=True)
            return HookOutput()

    return run


def _answer(event: str, answer: object) -> HookOutput:
    """Check what is known of a hook's answer; the rest is passed on as it is, as the official SDK does."""
    if not isinstance(answer, Mapping):
        raise TypeError(f"the {event} hook returned {type(answer).__name__}, not a dict")
    return HookOutput(extra=encode_hook_output(event, answer, strict=False))
