"""From what a hook callback returns to what the CLI understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from claude_transport.errors import UsageError
from claude_transport.protocol.envelope import to_wire
from claude_transport.protocol.hooks.events import HookEvent
from claude_transport.protocol.hooks.outputs import (
    AdditionalContext,
    AsyncHookOutput,
    ElicitationReply,
    HookOutput,
    MessageDisplayOutput,
    PermissionDeniedOutput,
    PermissionRequestDecision,
    PostToolUseOutput,
    PreModelSwitchDecision,
    PreToolUseDecision,
    SessionStartOutput,
    SpecificOutput,
    UserPromptExpansionOutput,
    UserPromptSubmitOutput,
    WatchPaths,
    WorktreeCreateOutput,
)

__all__ = ["encode_hook_output"]

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
    if event not in HookEvent.__members__:
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
