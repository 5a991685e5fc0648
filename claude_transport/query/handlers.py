"""Answers to what the CLI asks of its host: permissions and hooks, from the user's callbacks.

A callback may take hours (the CLI has no time-out for permissions, recording 04l). One that raises never leaves the CLI
without an answer, and by default the answer is no: a guard that fails must not open the gate (`on_callback_error="deny"`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import anyio
import msgspec

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.protocol.control import CanUseTool, HookCallback, PermissionUpdate
from claude_transport.protocol.hooks import HookEvent, encode_hook_output, parse_hook_input
from claude_transport.query.arguments import check_callback, check_hook_event, check_sequence
from claude_transport.query.cancellation import guarded

__all__ = [
    "Allow",
    "CallbackContext",
    "CanUseToolCallback",
    "Deny",
    "HookCallable",
    "HookMatcher",
    "HookRegistry",
    "PermissionHandler",
]

OnCallbackError = Literal["deny", "allow"]


class Allow(msgspec.Struct, frozen=True):
    """Let the tool run; with `updated_input` in place of the model's input, and with `updated_permissions` applied."""

    updated_input: dict[str, Any] | None = None
    updated_permissions: Sequence[PermissionUpdate] = ()


class Deny(msgspec.Struct, frozen=True):
    """Do not let the tool run; `message` is told to the model, and `interrupt=True` ends the turn as well."""

    message: str = "The user does not allow this."
    interrupt: bool = False


class CallbackContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a callback may want to know beside its main arguments.

    `cancel_scope` is cancelled when the CLI withdraws its question (after an interrupt, or when somebody else answered).

    Of a permission question, for people: `title` is the whole sentence, `display_name` what the tool does in a word or two, `description`
    says more; `decision_reason` is why it is asked, for instance what a hook gave as its reason. The CLI may leave out each.
    """

    cancel_scope: anyio.CancelScope
    request_id: str = ""
    tool_use_id: str | None = None
    agent_id: str | None = None
    suggestions: tuple[PermissionUpdate, ...] = ()
    blocked_path: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None
    decision_reason: str | None = None
    requires_user_interaction: bool = False


CanUseToolCallback = Callable[[str, dict[str, Any], CallbackContext], Awaitable[Allow | Deny]]
HookCallable = Callable[[Any, str | None, CallbackContext], Awaitable[object]]
"""`await callback(input, tool_use_id, context)`: the event's typed input, which also reads like the dict it came as
(`input["tool_name"]`); the answer is one of the outputs of `protocol.hooks`, a mapping in wire spelling, or None."""


class HookMatcher(msgspec.Struct, frozen=True):
    """Callbacks for one hook event, for the tools that `matcher` names (None: for all of them).

    `timeout` in seconds is the CLI's own: after it the CLI withdraws the question and refuses the tool
    (docs/reference/protocol.md#hook-callbacks).
    """

    matcher: str | None = None
    hooks: Sequence[HookCallable] = ()
    timeout: float | None = None


class PermissionHandler:
    """Answers `can_use_tool`; without a callback every question is answered with no, as the CLI itself would."""

    def __init__(self, callback: CanUseToolCallback | None, *, on_error: OnCallbackError = "deny") -> None:
        self._callback = callback
        self._on_error = on_error

    @property
    def has_callback(self) -> bool:
        """False when every answer is no."""
        return self._callback is not None

    async def answer(self, body: CanUseTool, context: CallbackContext) -> dict[str, Any]:
        """The response payload (recordings 04a to 04c); raises what the callback raised, and `UsageError` for what is no decision."""
        if self._callback is None:
            return _permission(Deny("Nobody is there to give permission for this."), body)
        return _permission(await guarded(self._callback(body.tool_name, body.input, context)), body)

    def answer_for_failure(self, body: CanUseTool, what: str) -> dict[str, Any]:
        """The response payload when the callback has none."""
        if self._on_error == "allow":
            return _permission(Allow(), body)
        return _permission(Deny(f"The permission check itself failed ({what})."), body)


def _permission(decision: object, body: CanUseTool) -> dict[str, Any]:
    if isinstance(decision, Allow):
        updated = body.input if decision.updated_input is None else decision.updated_input
        if not isinstance(updated, Mapping):
            raise UsageError(f"Allow.updated_input is a mapping, not {type(updated).__name__}")  # the CLI would refuse the answer [04g]
        answer: dict[str, Any] = {"behavior": "allow", "updatedInput": updated}
        if decision.updated_permissions:
            answer["updatedPermissions"] = [update.to_dict() for update in decision.updated_permissions]
        return answer
    if isinstance(decision, Deny):
        answer = {"behavior": "deny", "message": str(decision.message)}
        if decision.interrupt:
            answer["interrupt"] = True
        return answer
    raise UsageError(f"can_use_tool returned {type(decision).__name__}, not Allow or Deny")


class HookRegistry:
    """Gives each hook callback an id for `initialize`, and answers the CLI's calls by that id."""

    def __init__(self, hooks: Mapping[str, Sequence[HookMatcher]] | None, *, on_error: OnCallbackError = "deny") -> None:
        self._on_error = on_error
        self._callbacks: dict[str, tuple[str, HookCallable]] = {}
        self._config: dict[str, list[dict[str, Any]]] = {}
        if hooks is not None and not isinstance(hooks, Mapping):
            raise ConfigurationError(f"hooks maps events to lists of HookMatcher, and is no {type(hooks).__name__}", option="hooks")
        for event, matchers in (hooks or {}).items():
            check_hook_event(event)
            check_sequence("hooks", matchers, of=HookMatcher, what=f"hooks[{event!r}]")
            self._config[event] = [self._register(event, matcher) for matcher in matchers]

    @property
    def config(self) -> dict[str, list[dict[str, Any]]] | None:
        """What `initialize.hooks` says; None without hooks."""
        return self._config or None

    def _register(self, event: str, matcher: HookMatcher) -> dict[str, Any]:
        ids = []
        if not isinstance(matcher.hooks, Sequence):
            raise ConfigurationError(f"the hooks of a HookMatcher for {event} are a list of async functions", option="hooks")
        for callback in matcher.hooks:
            check_callback("hooks", callback)
            callback_id = f"hook_{len(self._callbacks)}"
            self._callbacks[callback_id] = (event, callback)
            ids.append(callback_id)
        if not ids:
            raise ConfigurationError(f"a HookMatcher for {event!r} has no callbacks", option="hooks")
        config: dict[str, Any] = {"matcher": matcher.matcher, "hookCallbackIds": ids}
        if matcher.timeout is not None:
            config["timeout"] = matcher.timeout
        if not self.fails_open:
            # without it the CLI lets the tool run when a hook fails (recordings 05g, 05h)
            config["onFailure"] = "block"
        return config

    async def answer(self, body: HookCallback, context: CallbackContext) -> dict[str, Any]:
        """The hook's output as the response payload; raises what the callback raised, and `UsageError` for what is no output."""
        event, callback = self._callbacks[body.callback_id]
        return _hook_payload(event, await guarded(callback(parse_hook_input(event, body.input), body.tool_use_id, context)))

    def event_of(self, callback_id: str) -> str:
        """The event that a callback of ours was registered for."""
        return self._callbacks[callback_id][0]

    @property
    def fails_open(self) -> bool:
        """Whether a hook that fails lets things go on."""
        return self._on_error == "allow"

    def __contains__(self, callback_id: str) -> bool:
        return callback_id in self._callbacks


def _hook_payload(event: str, output: object) -> dict[str, Any]:
    """The response payload for what a hook returned. A newer event than this library knows is passed on as it is."""
    if event in HookEvent.__members__:
        return encode_hook_output(event, output)
    if output is None or isinstance(output, Mapping):
        return dict(output or {})
    raise UsageError(f"the {event} hook returned {type(output).__name__}, not a mapping")
