"""Hooks: what the CLI was seen to say is typed without loss, and what a callback returns is encoded exactly, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_lines import lines_of, recordings

import claude_transport.hooks as door
from claude_transport.errors import UsageError
from claude_transport.protocol import hooks
from claude_transport.protocol.control import PermissionRule, PermissionUpdate
from claude_transport.protocol.hooks import (
    INPUTS,
    AdditionalContext,
    AsyncHookOutput,
    ElicitationReply,
    HookEvent,
    HookInput,
    HookOutput,
    MessageDisplayOutput,
    PermissionDeniedOutput,
    PermissionRequestDecision,
    PermissionRequestInput,
    PostToolBatchInput,
    PostToolUseOutput,
    PreModelSwitchDecision,
    PreModelSwitchInput,
    PreToolUseDecision,
    PreToolUseInput,
    SessionStartOutput,
    SpecificOutput,
    StopInput,
    SubagentStopInput,
    ToolHookInput,
    UserPromptExpansionOutput,
    UserPromptSubmitOutput,
    WatchPaths,
    WorktreeCreateOutput,
    encode_hook_output,
    parse_hook_input,
)

OBSERVED = Path(__file__).parent / "hook_inputs.ndjson"
NEVER_SEEN = {"CwdChanged", "Setup", "TaskCompleted", "TaskCreated", "TeammateIdle"}


def messages(path: Path, direction: str) -> Iterator[dict[str, Any]]:
    for line in lines_of(path, direction=direction):
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            yield message


def hook_calls(path: Path) -> Iterator[dict[str, Any]]:
    """The hook requests of one recording."""
    for message in messages(path, "out"):
        if message.get("type") == "control_request" and message["request"]["subtype"] == "hook_callback":
            yield message


@cache
def observed_inputs() -> tuple[dict[str, Any], ...]:
    """Every hook input at hand: those noted down by event, and those of the recordings."""
    noted = [json.loads(line) for line in OBSERVED.read_text("utf-8").splitlines()]
    return (*noted, *(call["request"]["input"] for path in recordings() for call in hook_calls(path)))


def by_event() -> dict[str, dict[str, Any]]:
    return {data["hook_event_name"]: data for data in observed_inputs()}


# ------------------------------------------------------------------------------------------------------------------- inputs


def test_there_are_33_events_and_each_has_a_class_of_its_own() -> None:
    assert len(HookEvent) == 33
    assert set(INPUTS) == set(HookEvent)
    assert len(set(INPUTS.values())) == 33
    assert all(event.name.replace("_", "").lower() == event.value.lower() for event in HookEvent)


def test_the_events_are_those_that_the_cli_lists() -> None:
    answers = [json.loads(line) for line in (Path(__file__).parent / "control_answers.ndjson").read_text("utf-8").splitlines()]
    catalogue = next(answer["response"]["eventCatalog"] for answer in answers if answer["subtype"] == "get_hooks_listing")
    assert {entry["name"] for entry in catalogue} == set(HookEvent)


def test_all_events_but_five_have_been_observed() -> None:
    assert set(HookEvent) - set(by_event()) == NEVER_SEEN


def test_every_observed_input_is_typed_and_nothing_is_lost() -> None:
    for data in observed_inputs():
        typed = parse_hook_input(data["hook_event_name"], data)
        assert type(typed) is INPUTS[data["hook_event_name"]]
        assert typed.misfits == ()
        assert typed.to_dict() == data


def test_every_field_of_an_observed_input_has_a_name() -> None:
    for data in observed_inputs():
        cls = INPUTS[data["hook_event_name"]]
        assert data.keys() <= set(cls.__struct_encode_fields__), cls


def test_a_tool_input_has_its_tool() -> None:
    typed = parse_hook_input("PreToolUse", by_event()["PreToolUse"])
    assert isinstance(typed, PreToolUseInput)
    assert isinstance(typed, ToolHookInput)
    assert typed.tool_name
    assert typed.tool_use_id.startswith("toolu_")
    assert typed.permission_mode is not None
    assert typed.effort is not None
    assert typed.effort.level == "medium"


def test_the_server_of_an_mcp_tool_is_told() -> None:
    (server,) = {
        typed.mcp_server.source
        for data in observed_inputs()
        if isinstance(typed := parse_hook_input(data["hook_event_name"], data), PreToolUseInput)
        if typed.mcp_server is not None
    }
    assert server == "dynamic"


def test_permission_suggestions_are_typed_to_the_leaf() -> None:
    data = next(data for data in observed_inputs() if data.get("permission_suggestions"))
    typed = parse_hook_input("PermissionRequest", data)
    assert isinstance(typed, PermissionRequestInput)
    first = typed.permission_suggestions[0]
    assert (first.type, first.behavior) == ("addRules", "allow")
    assert first.rules is not None
    assert first.rules[0].tool_name


def test_the_calls_of_a_batch_are_typed() -> None:
    typed = parse_hook_input("PostToolBatch", by_event()["PostToolBatch"])
    assert isinstance(typed, PostToolBatchInput)
    assert [call.tool_name for call in typed.tool_calls]


def test_a_model_switch_tells_both_models() -> None:
    typed = parse_hook_input("PreModelSwitch", by_event()["PreModelSwitch"])
    assert isinstance(typed, PreModelSwitchInput)
    assert (typed.from_model, typed.to_model, typed.requested_model) == ("claude-opus-5-5", "claude-haiku-5-5", "haiku")


def test_a_subagents_stop_is_not_taken_for_the_main_ones() -> None:
    typed = parse_hook_input("SubagentStop", by_event()["SubagentStop"])
    assert isinstance(typed, SubagentStopInput)
    assert not isinstance(typed, StopInput)
    assert typed.agent_id


def test_an_input_reads_like_the_dict_it_came_as() -> None:
    data = by_event()["PreToolUse"]
    typed = parse_hook_input("PreToolUse", data)
    assert typed["tool_name"] == typed.get("tool_name") == data["tool_name"]
    assert "tool_name" in typed
    assert "no_such" not in typed
    assert typed.get("no_such", 3) == 3
    assert dict(typed) == data  # type: ignore[call-overload]
    with pytest.raises(KeyError):
        typed["no_such"]


def test_unknown_fields_are_kept() -> None:
    data = {**by_event()["Stop"], "new_thing": {"a": [1]}}
    assert parse_hook_input("Stop", data).to_dict() == data


def test_an_unknown_event_is_a_plain_input() -> None:
    typed = parse_hook_input("Sunrise", {"hook_event_name": "Sunrise", "session_id": "s", "colour": "red"})
    assert type(typed) is HookInput
    assert (typed.hook_event_name, typed.session_id, typed["colour"]) == ("Sunrise", "s", "red")


@pytest.mark.parametrize(
    "change",
    [{"tool_input": "rm -rf /"}, {"tool_input": None}, {"tool_name": 7}, {"tool_name": ...}, {"tool_input": ...}],
    ids=["text", "null", "number", "no name", "no input"],
)
def test_a_guard_never_sees_an_empty_default_in_place_of_an_odd_tool_input(change: dict[str, Any]) -> None:
    data = {key: value for key, value in {**by_event()["PreToolUse"], **change}.items() if value is not ...}
    typed = parse_hook_input("PreToolUse", data)
    assert type(typed) is HookInput
    assert typed.to_dict() == data


def test_an_odd_field_costs_that_field_only() -> None:
    typed = parse_hook_input("Stop", {**by_event()["Stop"], "background_tasks": [{"id": 1, "type": "shell"}, 7], "effort": "high"})
    assert isinstance(typed, StopInput)
    assert [task.type for task in typed.background_tasks] == ["shell"]
    assert set(typed.misfits) == {"effort", "background_tasks.0.id", "background_tasks.1"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(sorted({name for cls in INPUTS.values() for name in cls.__struct_encode_fields__})) | st.text(max_size=6)


@given(event=st.sampled_from(list(HookEvent)), data=st.dictionaries(keys, json_values, max_size=6))
def test_whatever_comes_is_read_without_an_error_and_without_loss(event: HookEvent, data: dict[str, Any]) -> None:
    typed = parse_hook_input(event, data)
    assert isinstance(typed, HookInput)
    assert typed.to_dict() == (data or typed.to_dict())


def test_an_input_that_is_no_mapping_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="PreToolUse"):
        parse_hook_input("PreToolUse", ["tool_name"])  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------------ outputs


def specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


ENCODED: list[tuple[str, object, dict[str, Any]]] = [
    ("Stop", None, {}),
    ("Stop", {}, {}),
    ("Stop", HookOutput(), {}),
    ("PreToolUse", PreToolUseDecision.deny("no"), specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="no")),
    ("PreToolUse", PreToolUseDecision.allow(), specific("PreToolUse", permissionDecision="allow")),
    (
        "PreToolUse",
        PreToolUseDecision.allow("fine", updated_input={"command": "ls"}),
        specific("PreToolUse", permissionDecision="allow", permissionDecisionReason="fine", updatedInput={"command": "ls"}),
    ),
    ("PreToolUse", PreToolUseDecision.ask("sure?"), specific("PreToolUse", permissionDecision="ask", permissionDecisionReason="sure?")),
    ("PreToolUse", PreToolUseDecision.defer(), specific("PreToolUse", permissionDecision="defer")),
    ("PreToolUse", PreToolUseDecision(updated_input={}), specific("PreToolUse", updatedInput={})),
    ("PreModelSwitch", PreModelSwitchDecision.allow(), specific("PreModelSwitch", permissionDecision="allow")),
    (
        "PreModelSwitch",
        PreModelSwitchDecision.deny("dear"),
        specific("PreModelSwitch", permissionDecision="deny", permissionDecisionReason="dear"),
    ),
    ("PermissionRequest", PermissionRequestDecision.allow(), specific("PermissionRequest", decision={"behavior": "allow"})),
    (
        "PermissionRequest",
        PermissionRequestDecision.allow(
            updated_input={"command": "ls"},
            updated_permissions=[
                PermissionUpdate(type="addRules", rules=(PermissionRule(tool_name="Bash"),), behavior="allow", destination="session"),
                {"type": "setMode", "mode": "plan"},
            ],
        ),
        specific(
            "PermissionRequest",
            decision={
                "behavior": "allow",
                "updatedInput": {"command": "ls"},
                "updatedPermissions": [
                    {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow", "destination": "session"},
                    {"type": "setMode", "mode": "plan"},
                ],
            },
        ),
    ),
    ("PermissionRequest", PermissionRequestDecision.deny(), specific("PermissionRequest", decision={"behavior": "deny"})),
    (
        "PermissionRequest",
        PermissionRequestDecision.deny("no", interrupt=True),
        specific("PermissionRequest", decision={"behavior": "deny", "message": "no", "interrupt": True}),
    ),
    ("PostToolUse", PostToolUseOutput(updated_tool_output="…"), specific("PostToolUse", updatedToolOutput="…")),
    (
        "PostToolUse",
        PostToolUseOutput(additional_context="a", classifier_context="c", updated_mcp_tool_output=[1]),
        specific("PostToolUse", additionalContext="a", classifierContext="c", updatedMCPToolOutput=[1]),
    ),
    (
        "UserPromptSubmit",
        UserPromptSubmitOutput(additional_context="a", session_title="t", suppress_original_prompt=True),
        specific("UserPromptSubmit", additionalContext="a", sessionTitle="t", suppressOriginalPrompt=True),
    ),
    (
        "UserPromptExpansion",
        UserPromptExpansionOutput(suppress_original_prompt=False),
        specific("UserPromptExpansion", suppressOriginalPrompt=False),
    ),
    (
        "SessionStart",
        SessionStartOutput(initial_user_message="hi", watch_paths=("a", "b"), reload_skills=True),
        specific("SessionStart", initialUserMessage="hi", watchPaths=["a", "b"], reloadSkills=True),
    ),
    ("PermissionDenied", PermissionDeniedOutput(retry=True), specific("PermissionDenied", retry=True)),
    ("Elicitation", ElicitationReply(action="accept", content={"n": 1}), specific("Elicitation", action="accept", content={"n": 1})),
    ("ElicitationResult", ElicitationReply(action="cancel"), specific("ElicitationResult", action="cancel")),
    ("CwdChanged", WatchPaths(watch_paths=["a"]), specific("CwdChanged", watchPaths=["a"])),
    ("FileChanged", WatchPaths(watch_paths=[]), specific("FileChanged", watchPaths=[])),
    ("WorktreeCreate", WorktreeCreateOutput(worktree_path="/w"), specific("WorktreeCreate", worktreePath="/w")),
    ("MessageDisplay", MessageDisplayOutput(display_content=""), specific("MessageDisplay", displayContent="")),
    ("Stop", HookOutput.block("go on"), {"decision": "block", "reason": "go on"}),
    ("PreToolUse", HookOutput.stop("enough"), {"continue": False, "stopReason": "enough"}),
    (
        "Stop",
        HookOutput(continue_=True, suppress_output=True, system_message="m", terminal_sequence="\a", decision="approve"),
        {"continue": True, "suppressOutput": True, "systemMessage": "m", "terminalSequence": "\a", "decision": "approve"},
    ),
    (
        "PreToolUse",
        HookOutput(system_message="m", specific=PreToolUseDecision.deny("no")),
        {"systemMessage": "m", **specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="no")},
    ),
    ("Stop", HookOutput(reason="r", extra={"brandNew": [1]}), {"reason": "r", "brandNew": [1]}),
    ("PostToolUse", AsyncHookOutput(), {"async": True}),
    ("PostToolUse", AsyncHookOutput(timeout=1.5), {"async": True, "asyncTimeout": 1500}),
    ("PostToolUse", {"async_": True, "asyncTimeout": 5}, {"async": True, "asyncTimeout": 5}),
    ("Stop", {"continue_": False, "stopReason": "x", "reason": None}, {"continue": False, "stopReason": "x"}),
    ("Stop", {"hookSpecificOutput": {"additionalContext": "a"}}, specific("Stop", additionalContext="a")),
    ("Setup", {"hookSpecificOutput": {"hookEventName": "Setup"}}, specific("Setup")),
    ("TaskCreated", {"hookSpecificOutput": {}}, specific("TaskCreated")),
]


@pytest.mark.parametrize(("event", "output", "wire"), ENCODED, ids=[f"{event}-{number}" for number, (event, *_) in enumerate(ENCODED)])
def test_an_output_becomes_exactly_this_payload(event: str, output: object, wire: dict[str, Any]) -> None:
    encoded = encode_hook_output(event, output)
    assert encoded == wire
    assert json.loads(json.dumps(encoded)) == wire


@pytest.mark.parametrize(("event", "output", "wire"), ENCODED, ids=[f"{event}-{number}" for number, (event, *_) in enumerate(ENCODED)])
def test_a_mapping_in_wire_spelling_passes_unchanged(event: str, output: object, wire: dict[str, Any]) -> None:
    if isinstance(output, HookOutput) and output.extra:
        with pytest.raises(UsageError, match="brandNew"):
            encode_hook_output(event, wire)
    else:
        assert encode_hook_output(event, wire) == wire


@pytest.mark.parametrize("event", sorted(AdditionalContext.events))
def test_more_context_can_be_given_to_the_model_at_many_events(event: HookEvent) -> None:
    assert encode_hook_output(event, AdditionalContext(additional_context="a")) == specific(event, additionalContext="a")


def test_what_was_answered_in_the_recordings_passes_unchanged() -> None:
    passed = 0
    for path in recordings():
        events = {call["request_id"]: call["request"]["input"]["hook_event_name"] for call in hook_calls(path)}
        for message in messages(path, "in"):
            reply = message.get("response") or {}
            if message.get("type") == "control_response" and reply.get("request_id") in events and reply["subtype"] == "success":
                assert encode_hook_output(events[reply["request_id"]], reply["response"]) == reply["response"]
                passed += 1
    assert passed >= 10


NONSENSE: list[tuple[str, object, str]] = [
    ("PreToolUse", {"permissionDecision": "deny"}, "permissionDecision"),
    ("PreToolUse", {"hookSpecificOutput": {"permissiondecision": "deny"}}, "permissiondecision"),
    ("PreToolUse", {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "denied"}}, "denied"),
    ("PreToolUse", {"hookSpecificOutput": {"hookEventName": "PostToolUse"}}, "PostToolUse"),
    ("PreToolUse", {"hookSpecificOutput": "deny"}, "hookSpecificOutput"),
    ("PreToolUse", {"hookSpecificOutput": PreToolUseDecision.deny("no")}, "hookSpecificOutput"),
    ("PreToolUse", {"hookSpecificOutput": {"updatedInput": "ls"}}, "updatedInput"),
    ("PreToolUse", PreToolUseDecision(permission_decision="denied"), "denied"),  # type: ignore[arg-type]
    ("PreToolUse", PermissionRequestDecision.deny("no"), "PermissionRequest"),
    ("PreToolUse", HookOutput(specific=WatchPaths(watch_paths=[])), "WatchPaths"),
    ("PreToolUse", PreToolUseDecision(updated_input={"a": object()}), "JSON"),
    ("PreModelSwitch", {"hookSpecificOutput": {"permissionDecision": "defer"}}, "defer"),
    ("PermissionRequest", {"hookSpecificOutput": {"decision": {"behavior": "perhaps"}}}, "perhaps"),
    ("PermissionRequest", {"hookSpecificOutput": {"decision": {"behaviour": "deny"}}}, "behaviour"),
    ("PermissionRequest", {"hookSpecificOutput": {}}, "decision"),
    ("PermissionRequest", {"behavior": "deny"}, "behavior"),
    ("WorktreeCreate", {"hookSpecificOutput": {}}, "worktreePath"),
    ("TaskCreated", {"hookSpecificOutput": {"additionalContext": "a"}}, "leave it out"),
    ("Stop", {"decision": "deny"}, "deny"),
    ("Stop", HookOutput(decision="deny"), "deny"),  # type: ignore[arg-type]
    ("Stop", {"continue": "no"}, "continue"),
    ("Stop", {"extra": {}}, "extra"),
    ("Stop", {1: 2}, "Stop"),
    ("Stop", HookOutput(extra={"a": object()}), "JSON"),
    ("Stop", {"async": False}, "async"),
    ("Stop", {"async": True, "decision": "block"}, "async"),
    ("Stop", SpecificOutput(), "SpecificOutput"),
    ("Stop", "block", "str"),
    ("Stop", True, "bool"),
    ("Stop", [], "list"),
    ("Sunrise", None, "Sunrise"),
    ("", {}, "unknown hook event"),
]


@pytest.mark.parametrize(("event", "output", "named"), NONSENSE)
def test_nonsense_is_a_usage_error_that_names_it(event: str, output: object, named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        encode_hook_output(event, output)
    assert event in str(caught.value)


@given(event=st.sampled_from(list(HookEvent)), output=json_values)
def test_any_output_is_encoded_or_refused(event: HookEvent, output: object) -> None:
    try:
        encoded = encode_hook_output(event, output)
    except UsageError:
        return
    assert encode_hook_output(event, encoded) == encoded


def test_every_class_of_a_hook_is_at_the_public_door() -> None:
    classes = [cls for name, cls in vars(hooks).items() if isinstance(cls, type) and cls.__module__ == hooks.__name__ and name[0] != "_"]
    assert len(classes) > 55
    assert [cls.__name__ for cls in classes if getattr(door, cls.__name__, None) is not cls] == []
