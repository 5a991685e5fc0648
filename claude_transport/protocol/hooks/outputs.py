"""What a hook may say back. Each class encodes to the wire's form by `encode_hook_output`, which also refuses one at the wrong event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Self

import msgspec

from claude_transport.errors import UsageError
from claude_transport.protocol.control import PermissionUpdate
from claude_transport.protocol.envelope import to_wire
from claude_transport.protocol.hooks.events import HookEvent


class SpecificOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of what only some events understand: `hookSpecificOutput` on the wire. None is never sent."""

    events: ClassVar[frozenset[HookEvent]] = frozenset()
    """Where it may be said."""


class PreToolUseDecision(SpecificOutput, frozen=True, kw_only=True):
    """Whether a tool may run: allow, deny, ask, defer; with `updated_input` in place of the model's. [05c]

    A `deny` ends that call only; the model is told the reason. `allow` passes the permission rules by.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PRE_TOOL_USE})

    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: Mapping[str, Any] | None = None
    additional_context: str | None = None

    @classmethod
    def allow(cls, reason: str | None = None, *, updated_input: Mapping[str, Any] | None = None) -> Self:
        """Let it run."""
        return cls(permission_decision="allow", permission_decision_reason=reason, updated_input=updated_input)

    @classmethod
    def deny(cls, reason: str) -> Self:
        """Do not let it run; `reason` is told to the model."""
        return cls(permission_decision="deny", permission_decision_reason=reason)

    @classmethod
    def ask(cls, reason: str | None = None, *, updated_input: Mapping[str, Any] | None = None) -> Self:
        """Ask `can_use_tool`, whatever the permission rules say."""
        return cls(permission_decision="ask", permission_decision_reason=reason, updated_input=updated_input)

    @classmethod
    def defer(cls) -> Self:
        """Put the decision off: the turn ends well, with `terminal_reason` `tool_deferred` and the call in `deferred_tool_use`.

        A process that resumes the session asks its own PreToolUse hook about that call before it takes a prompt, and goes on by itself:
        the result of that is nobody's (`prompt_uuids` is empty). In the same process the next prompt goes on without the tool.
        """
        return cls(permission_decision="defer")


class PreModelSwitchDecision(SpecificOutput, frozen=True, kw_only=True):
    """Whether another model may be used; `ask` is a refusal where nobody can be asked."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PRE_MODEL_SWITCH})

    permission_decision: Literal["allow", "deny", "ask"] | None = None
    permission_decision_reason: str | None = None

    @classmethod
    def allow(cls) -> Self:
        """Switch."""
        return cls(permission_decision="allow")

    @classmethod
    def deny(cls, reason: str) -> Self:
        """Keep the model: `set_model` fails."""
        return cls(permission_decision="deny", permission_decision_reason=reason)


class _RequestDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    behavior: Literal["allow", "deny"]
    updated_input: Mapping[str, Any] | None = None
    updated_permissions: Sequence[Any] | None = None
    message: str | None = None
    interrupt: bool | None = None


class PermissionRequestDecision(SpecificOutput, frozen=True, kw_only=True):
    """An answer in the place of `can_use_tool`, which is then withdrawn. [05o]"""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PERMISSION_REQUEST})

    decision: _RequestDecision

    @classmethod
    def allow(
        cls,
        *,
        updated_input: Mapping[str, Any] | None = None,
        updated_permissions: Sequence[PermissionUpdate | Mapping[str, Any]] | None = None,
    ) -> Self:
        """Let the tool run."""
        return cls(decision=_RequestDecision(behavior="allow", updated_input=updated_input, updated_permissions=updated_permissions))

    @classmethod
    def deny(cls, message: str | None = None, *, interrupt: bool = False) -> Self:
        """Do not let it run; `interrupt` ends the turn as well."""
        return cls(decision=_RequestDecision(behavior="deny", message=message, interrupt=interrupt or None))


class AdditionalContext(SpecificOutput, frozen=True):
    """`AdditionalContext("…")`: something more for the model to know."""

    events: ClassVar[frozenset[HookEvent]] = frozenset(
        {
            HookEvent.NOTIFICATION,
            HookEvent.POST_MODEL_SWITCH,
            HookEvent.POST_TOOL_BATCH,
            HookEvent.POST_TOOL_USE,
            HookEvent.POST_TOOL_USE_FAILURE,
            HookEvent.PRE_TOOL_USE,
            HookEvent.SESSION_START,
            HookEvent.SETUP,
            HookEvent.STOP,
            HookEvent.SUBAGENT_START,
            HookEvent.SUBAGENT_STOP,
            HookEvent.USER_PROMPT_EXPANSION,
            HookEvent.USER_PROMPT_SUBMIT,
        }
    )

    additional_context: str | None = None


class PostToolUseOutput(SpecificOutput, frozen=True, kw_only=True):
    """A word on what a tool returned, or something else in its place (`updated_tool_output`).

    `classifier_context` (*declared*) is believed by the auto mode's permission classifier: never put a tool's own output there.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.POST_TOOL_USE})

    additional_context: str | None = None
    classifier_context: str | None = None
    updated_tool_output: Any = None
    updated_mcp_tool_output: Any = msgspec.field(name="updatedMCPToolOutput", default=None)


class UserPromptExpansionOutput(SpecificOutput, frozen=True, kw_only=True):
    """More for the model to know, or with `decision="block"` whether the prompt is repeated in the message."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.USER_PROMPT_EXPANSION})

    additional_context: str | None = None
    suppress_original_prompt: bool | None = None


class UserPromptSubmitOutput(SpecificOutput, frozen=True, kw_only=True):
    """More for the model to know, and a title for the session."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.USER_PROMPT_SUBMIT})

    additional_context: str | None = None
    session_title: str | None = None
    suppress_original_prompt: bool | None = None


class SessionStartOutput(SpecificOutput, frozen=True, kw_only=True):
    """What a session begins with; `watch_paths` are files whose changes fire FileChanged."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.SESSION_START})

    additional_context: str | None = None
    initial_user_message: str | None = None
    session_title: str | None = None
    watch_paths: Sequence[str] | None = None
    reload_skills: bool | None = None


class PermissionDeniedOutput(SpecificOutput, frozen=True, kw_only=True):
    """Whether the model may try once more. *Declared.*"""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.PERMISSION_DENIED})

    retry: bool | None = None


class ElicitationReply(SpecificOutput, frozen=True, kw_only=True):
    """An answer to an MCP server in the user's place (Elicitation), or instead of the user's (ElicitationResult).

    CLI 2.1.329 heeds it from command hooks of settings files only, and drops that of a host's hook without a word. What a host's hook
    can say is `HookOutput.block`, which declines; to accept, answer the request `elicitation` by the `on_request` of Query.
    """

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.ELICITATION, HookEvent.ELICITATION_RESULT})

    action: Literal["accept", "decline", "cancel"] | None = None
    content: Mapping[str, Any] | None = None


class WatchPaths(SpecificOutput, frozen=True):
    """`WatchPaths(["…"])`: the files whose changes fire FileChanged. *Declared.*"""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.CWD_CHANGED, HookEvent.FILE_CHANGED})

    watch_paths: Sequence[str] | None = None


class WorktreeCreateOutput(SpecificOutput, frozen=True):
    """`WorktreeCreateOutput("/…")`: where the hook has made the worktree."""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.WORKTREE_CREATE})

    worktree_path: str


class MessageDisplayOutput(SpecificOutput, frozen=True):
    """`MessageDisplayOutput("…")`: what is shown in the place of the piece. *Declared.*"""

    events: ClassVar[frozenset[HookEvent]] = frozenset({HookEvent.MESSAGE_DISPLAY})

    display_content: str | None = None


class HookOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What any event understands, and in `specific` what only some do. None is never sent.

    `decision="block"` with a `reason` refuses a prompt (UserPromptSubmit [05e]), keeps the turn going (Stop [05j]), or declines what an MCP
    server asks the user (Elicitation, ElicitationResult).
    `continue_=False` ends the turn after the tool that is being asked about; it does *not* stop that tool [05f].
    `system_message` is shown to the user. `extra` is sent as it is: for what a newer CLI understands; nothing in it is checked.
    """

    continue_: bool | None = msgspec.field(name="continue", default=None)
    stop_reason: str | None = None
    suppress_output: bool | None = None
    decision: Literal["approve", "block"] | None = None
    reason: str | None = None
    system_message: str | None = None
    terminal_sequence: str | None = None
    specific: SpecificOutput | None = msgspec.field(name="hookSpecificOutput", default=None)
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def block(cls, reason: str) -> Self:
        """Refuse the prompt, keep the turn going, or decline for the user."""
        return cls(decision="block", reason=reason)

    @classmethod
    def stop(cls, reason: str) -> Self:
        """End the turn; the result then has `terminal_reason` `hook_stopped` and is no error. [05f]"""
        return cls(continue_=False, stop_reason=reason)


class AsyncHookOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The hook works on and the CLI need not wait: nothing it says later can stop anything. `timeout` in seconds. *Declared.*"""

    timeout: float | None = None


# --- From what a hook callback returns to what the CLI understands.


# for a dict: the class that knows all an event understands, the generic one last
_CLASSES: Final = (
    PreToolUseDecision,
    PreModelSwitchDecision,
    PermissionRequestDecision,
    PostToolUseOutput,
    UserPromptExpansionOutput,
    UserPromptSubmitOutput,
    SessionStartOutput,
    PermissionDeniedOutput,
    ElicitationReply,
    WatchPaths,
    WorktreeCreateOutput,
    MessageDisplayOutput,
    AdditionalContext,
)
_PYTHON_SPELLING: Final[dict[str, str]] = {"continue_": "continue", "async_": "async"}
"""Keys that are Python keywords, as the official SDK lets them be written in dicts."""
_SPECIFIC: Final = "hookSpecificOutput"


def encode_hook_output(event: str, output: object, *, strict: bool = True) -> dict[str, Any]:
    """Return the response payload for what a callback of `event` returned.

    `output` may be None (nothing to say), a `HookOutput`, a `SpecificOutput` by itself, an `AsyncHookOutput`, or a mapping in wire
    spelling. A mapping is checked as strictly as a class: the CLI ignores what it does not know, and a misspelt refusal would be none.
    `hookEventName` may be left out. With `strict=False`, keys of a mapping that are not known are passed on as they are.

    Raises `UsageError`, naming the event and the fault: an event this version does not know, another type, unknown keys, values that the
    CLI does not know, something that this event does not understand, or what is not JSON.
    """
    if event not in [*HookEvent]:
        raise UsageError(f"there is no hook event {event!r}")
    name = HookEvent(event)
    wire = _encode(name, output) if strict or not isinstance(output, Mapping) else _encode_loosely(name, output)
    try:
        msgspec.json.encode(wire)
    except (TypeError, ValueError, RecursionError) as exc:
        raise UsageError(f"the output of a {event} hook is no JSON: {exc}") from exc
    return wire


def _encode(event: HookEvent, output: object) -> dict[str, Any]:
    match output:
        case None:
            return {}
        case HookOutput():
            return _encode_whole(event, output)
        case SpecificOutput():
            return {_SPECIFIC: _encode_specific(event, output)}
        case AsyncHookOutput():
            return {"async": True} if output.timeout is None else {"async": True, "asyncTimeout": round(output.timeout * 1000)}
        case Mapping():
            return _encode_mapping(event, output)
        case _:
            raise UsageError(f"a {event} hook returned {type(output).__name__}, not None, a HookOutput, a mapping, …")


def _encode_whole(event: HookEvent, output: HookOutput) -> dict[str, Any]:
    wire = _present(output)
    wire.pop("extra", None)
    if output.specific is not None:
        wire[_SPECIFIC] = _encode_specific(event, output.specific)
    return {**_checked(event, HookOutput, wire), **to_wire(output.extra)}


def _encode_specific(event: HookEvent, output: SpecificOutput) -> dict[str, Any]:
    if event not in output.events:
        raise UsageError(f"a {event} hook cannot say {type(output).__name__}: it is for {', '.join(sorted(output.events))}")
    wire = _present(output)
    _convert(event, type(output), wire)
    return {"hookEventName": str(event), **wire}


def _encode_mapping(event: HookEvent, output: Mapping[str, Any]) -> dict[str, Any]:
    wire: dict[str, Any] = {_PYTHON_SPELLING.get(key, key): to_wire(value) for key, value in output.items() if value is not None}
    if "async" in wire:
        if wire["async"] is not True or wire.keys() - {"async", "asyncTimeout"}:
            raise UsageError(f"a {event} hook's asynchronous output is {{'async': True}} and nothing but 'asyncTimeout' beside it")
        return wire
    if "extra" in wire:
        raise UsageError(f"the output of a {event} hook has the unknown key 'extra'")
    specific = wire.get(_SPECIFIC)
    if specific is not None:
        wire[_SPECIFIC] = _checked_specific(event, specific)
    return _checked(event, HookOutput, wire)


def _encode_loosely(event: HookEvent, output: Mapping[str, Any]) -> dict[str, Any]:
    """Check what is known of `output`, and put what is not beside it."""
    wire: dict[str, Any] = {_PYTHON_SPELLING.get(key, key): value for key, value in output.items()}
    if wire.get("async") is True:
        return {key: to_wire(value) for key, value in wire.items()}
    specific = wire.get(_SPECIFIC)
    known, unknown = _divided(HookOutput, wire)
    if isinstance(specific, Mapping):
        # an event that says nothing of its own knows no field but the name
        cls = next((cls for cls in _CLASSES if event in cls.events), SpecificOutput)
        said, more = _divided(cls, specific)
        name = {key: specific[key] for key in ("hookEventName",) if key in specific}
        more.pop("hookEventName", None)
        encoded = _encode_mapping(event, {**known, _SPECIFIC: {**said, **name}})
        return {**encoded, _SPECIFIC: _joined(encoded[_SPECIFIC], more), **unknown}
    return {**_encode_mapping(event, known), **unknown}


def _divided(cls: type[msgspec.Struct], wire: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what of `wire` the class knows, and what it does not; what is inside another class is divided likewise."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(cls) if field.name != "extra"}
    known: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for key, value in wire.items():
        if key not in fields:
            unknown[key] = to_wire(value)
        elif isinstance(value, Mapping) and _is_struct(fields[key]):
            known[key], inside = _divided(fields[key], value)
            if inside:
                unknown[key] = inside
        else:
            known[key] = value
    return known, unknown


def _is_struct(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def _joined(known: Mapping[str, Any], unknown: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, joined inside of what stands in both."""
    inside = {key: {**known[key], **unknown[key]} for key in known.keys() & unknown.keys()}
    return {**known, **unknown, **inside}


def _checked_specific(event: HookEvent, specific: object) -> dict[str, Any]:
    if not isinstance(specific, Mapping):
        raise UsageError(f"{_SPECIFIC} of a {event} hook is a mapping, not {type(specific).__name__}")
    named = specific.get("hookEventName", str(event))
    if named != event:
        raise UsageError(f"a {event} hook returned a {_SPECIFIC} for {named!r}")
    fields = {key: value for key, value in specific.items() if key != "hookEventName" and value is not None}
    cls = next((cls for cls in _CLASSES if event in cls.events), None)
    if cls is None:
        if fields:
            raise UsageError(f"a {event} hook has nothing to say in {_SPECIFIC}")
        return {"hookEventName": str(event)}
    _convert(event, cls, fields)
    return {"hookEventName": str(event), **fields}


def _checked(event: HookEvent, cls: type[HookOutput], wire: dict[str, Any]) -> dict[str, Any]:
    _convert(event, cls, {key: value for key, value in wire.items() if key != _SPECIFIC})
    return wire


def _convert(event: HookEvent, cls: type[msgspec.Struct], wire: dict[str, Any]) -> None:
    """Whether `wire` is a `cls`; a Struct checks types only when it is decoded."""
    try:
        msgspec.convert(wire, cls, str_keys=True)
    except (msgspec.ValidationError, TypeError) as exc:
        raise UsageError(f"the output of a {event} hook is wrong: {exc}") from exc


def _present(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields that are set, in wire spelling, JSON values only."""
    wire: dict[str, Any] = {}
    for name, wire_name in zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True):
        value = getattr(struct, name)
        if value is not None and not isinstance(value, SpecificOutput):
            wire[wire_name] = _present(value) if isinstance(value, msgspec.Struct) else to_wire(value)
    return wire


# --- How a hook says no at each event: what a program answers for a hook of its own that failed.


_PERMISSION: Final = frozenset({HookEvent.PRE_TOOL_USE, HookEvent.PRE_MODEL_SWITCH})
_STOP: Final = frozenset(
    {HookEvent.STOP, HookEvent.SUBAGENT_STOP, HookEvent.TASK_CREATED, HookEvent.TASK_COMPLETED, HookEvent.TEAMMATE_IDLE}
)
_BLOCK: Final = frozenset(
    {
        HookEvent.CONFIG_CHANGE,
        HookEvent.ELICITATION,
        HookEvent.ELICITATION_RESULT,
        HookEvent.POST_TOOL_BATCH,
        HookEvent.POST_TOOL_USE,
        HookEvent.POST_TOOL_USE_FAILURE,
        HookEvent.PRE_COMPACT,
        HookEvent.USER_PROMPT_EXPANSION,
        HookEvent.USER_PROMPT_SUBMIT,
    }
)

DENIABLE: Final[frozenset[HookEvent]] = frozenset({HookEvent.PERMISSION_REQUEST}) | _PERMISSION | _STOP | _BLOCK
"""Events whose hooks can say no. The hooks of all others are told of something that nothing they say can stop."""


def denial_of(event: str, reason: str) -> dict[str, Any] | None:
    """Return the response payload that says no at `event`, for `reason`; None when the event has no way to say it.

    A Stop hook says no by ending the turn. It could also keep the turn going, but one that always fails would do so for ever.
    """
    if event in _PERMISSION:
        return _specific(event, permissionDecision="deny", permissionDecisionReason=reason)
    if event == HookEvent.PERMISSION_REQUEST:
        return _specific(event, decision={"behavior": "deny", "message": reason})
    if event in _STOP:
        return {"continue": False, "stopReason": reason}
    if event in _BLOCK:
        return {"decision": "block", "reason": reason}
    return None


def _specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": str(event), **fields}}
