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
from claude_transport.launch.features import require, supports
from claude_transport.protocol.control import CanUseTool, HookCallback, PermissionUpdate
from claude_transport.protocol.hooks import (
    DENIABLE,
    HookEvent,
    denial_of,
    encode_hook_output,
    parse_hook_input,
)
from claude_transport.protocol.initialization import InitializationInfo
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

DEFAULT_HOOK_TIMEOUT = 600.0
"""Seconds that a hook gets for its answer unless its matcher says otherwise: as many as the CLI gives it."""

_CLI_PATIENCE = 86_400.0
"""Seconds that the CLI is told to wait longer than this program. Older ones go on as if the hook had agreed when their own time is over,
so the time of this program must be over first, also when it is busy."""

_LONGEST_HOOK_TIMEOUT = 2_000_000.0
"""Seconds; the CLI's timers end at once beyond 2**31 milliseconds, which is a little more."""


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

    `timeout` in seconds, 600 by default: a hook that has not answered by then has failed, and is cancelled. At events that only tell
    something, which nothing can stop, it is the CLI's own limit, and the CLI's own default.
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
        self._callbacks: dict[str, tuple[str, HookCallable, float | None]] = {}
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

    @property
    def guards(self) -> tuple[str, ...]:
        """Events at which a hook that fails must stop something."""
        return () if self.fails_open else tuple(event for event in self._config if event in DENIABLE)

    def _register(self, event: str, matcher: HookMatcher) -> dict[str, Any]:
        if not isinstance(matcher.hooks, Sequence):
            raise ConfigurationError(f"the hooks of a HookMatcher for {event} are a list of async functions", option="hooks")
        told = _checked_timeout(event, matcher.timeout)
        limit = None
        if event in DENIABLE:
            limit = told or DEFAULT_HOOK_TIMEOUT
            told = limit + _CLI_PATIENCE
        ids = []
        for callback in matcher.hooks:
            check_callback("hooks", callback)
            callback_id = f"hook_{len(self._callbacks)}"
            self._callbacks[callback_id] = (event, callback, limit)
            ids.append(callback_id)
        if not ids:
            raise ConfigurationError(f"a HookMatcher for {event!r} has no callbacks", option="hooks")
        config: dict[str, Any] = {"matcher": matcher.matcher, "hookCallbackIds": ids}
        if told is not None:
            config["timeout"] = told
        if not self.fails_open:
            # for what no answer of this program can say, such as that it is gone: without it the CLI goes on (recordings 05g, 05h)
            config["onFailure"] = "block"
        return config

    def check_kept(self, initialization: InitializationInfo, *, version: str | None, asked: bool) -> None:
        """Raise when the CLI that answered `initialization` will not ask the hooks that it was told of, or not heed them.

        `version` is used when the answer has none. `asked` is whether the CLI was told of any hooks, of this registry or of others.

        Raises:
            ConfigurationError: it did not register the hooks; or its version is not known, and not every CLI heeds one of the guards.
            CLIVersionMismatch: it does not heed what a hook denies at one of the events.
        """
        if asked and initialization.hooks_applied is False:
            raise ConfigurationError(
                "the CLI did not register the hooks, so they would never be called: its session was begun by another client. "
                "Begin a new session, or leave out hooks",
                option="hooks",
            )
        if initialization.hook_on_failure_supported is True:
            return
        version = initialization.claude_code_version or version
        for event in self.guards:
            denial = f"hook.{event}.denial"
            require(denial, version=version)
            if supports(denial, version=version) is None:
                raise ConfigurationError(
                    f"hooks[{event!r}] cannot be kept: a CLI of unknown version may ignore what this hook denies. "
                    'Use a CLI that tells its version, leave out the hook, or say on_callback_error="allow" if it guards nothing',
                    option="hooks",
                )

    async def answer(self, body: HookCallback, context: CallbackContext) -> dict[str, Any]:
        """The hook's output as the response payload; raises what the callback raised, and `UsageError` for what is no output."""
        event, callback, _ = self._callbacks[body.callback_id]
        return _hook_payload(event, await guarded(callback(parse_hook_input(event, body.input), body.tool_use_id, context)))

    def answer_for_failure(self, body: HookCallback, what: str) -> dict[str, Any] | None:
        """Return the response payload for a hook that failed; None when only an error can be answered."""
        if self.fails_open:
            return {}
        event = self.event_of(body)
        return denial_of(event, f"The {event} hook of this program failed ({what}), so the answer is no.")

    def event_of(self, body: HookCallback) -> str:
        """Return the event that the hook was registered for; for a hook that is not registered here, the one that the CLI names."""
        registered = self._callbacks.get(body.callback_id)
        return body.event if registered is None else registered[0]

    def limit_of(self, body: HookCallback) -> float | None:
        """Return the seconds that the hook gets for its answer; None when the CLI ends the waiting."""
        registered = self._callbacks.get(body.callback_id)
        return None if registered is None else registered[2]

    @property
    def fails_open(self) -> bool:
        """Whether a hook that fails lets things go on."""
        return self._on_error == "allow"

    def __contains__(self, callback_id: str) -> bool:
        return callback_id in self._callbacks


def _checked_timeout(event: str, timeout: object) -> float | None:
    """Return the timeout of a matcher, or raise `ConfigurationError` for what is no time to wait."""
    if timeout is None:
        return None
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= _LONGEST_HOOK_TIMEOUT:  # type: ignore[operator]
        raise ConfigurationError(
            f"a HookMatcher for {event} has the timeout {timeout!r}: give seconds, above 0 and at most {_LONGEST_HOOK_TIMEOUT:.0f}",
            option="hooks",
        )
    return float(timeout)  # type: ignore[arg-type]


def _hook_payload(event: str, output: object) -> dict[str, Any]:
    """The response payload for what a hook returned. A newer event than this library knows is passed on as it is."""
    if event in HookEvent.__members__:
        return encode_hook_output(event, output)
    if output is None or isinstance(output, Mapping):
        return dict(output or {})
    raise UsageError(f"the {event} hook returned {type(output).__name__}, not a mapping")
