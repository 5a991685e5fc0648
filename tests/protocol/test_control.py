"""Control frames, read and written: both directions, with everything the recordings showed to be optional left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from recorded_lines import BUNDLED, lines_of

from claude_transport.errors import UsageError
from claude_transport.protocol.blocks import ImageBlock, TextBlock
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.control import (
    CanUseTool,
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    Elicitation,
    HookCallback,
    InitializationInfo,
    McpMessage,
    PermissionRule,
    PermissionUpdate,
    RequestUserDialog,
    UnknownControl,
    encode_control_error,
    encode_control_request,
    encode_control_success,
    encode_user_message,
)
from claude_transport.protocol.envelope import encode_message
from claude_transport.protocol.messages import UserMessage


def request(**body: Any) -> ControlRequest:
    message = decode_message(json.dumps({"type": "control_request", "request_id": "r", "request": body}).encode())
    assert isinstance(message, ControlRequest)
    assert message.to_dict()["request"] == body
    return message


def response(**reply: Any) -> ControlResponse:
    message = decode_message(json.dumps({"type": "control_response", "response": reply}).encode())
    assert isinstance(message, ControlResponse)
    return message


def written(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    wire: dict[str, Any] = json.loads(line)
    return wire


# ------------------------------------------------------------------------------------------------------------ what is received


def test_a_permission_question_is_typed_to_the_leaf() -> None:
    lines = lines_of(BUNDLED / "04a_permission_allow.ndjson", direction="out")
    asked = next(message for message in map(decode_message, lines) if isinstance(message, ControlRequest))
    body = asked.request
    assert isinstance(body, CanUseTool)
    assert (asked.subtype, body.tool_name, body.display_name) == ("can_use_tool", "Bash", "Bash")
    assert body.tool_use_id
    assert body.input["command"].startswith("touch ")
    assert [update.type for update in body.permission_suggestions] == ["addRules", "addDirectories", "setMode"]
    rule = body.permission_suggestions[0]
    assert (rule.behavior, rule.destination) == ("allow", "localSettings")
    assert rule.rules is not None
    assert rule.rules[0].tool_name == "Bash"


def test_a_permission_update_goes_out_as_it_came_in() -> None:
    wire = {
        "type": "addRules",
        "rules": [{"toolName": "Bash", "ruleContent": "npm test"}, {"toolName": "Read"}],
        "behavior": "allow",
        "destination": "session",
    }
    body = request(subtype="can_use_tool", tool_name="Bash", permission_suggestions=[wire]).request
    assert isinstance(body, CanUseTool)
    assert body.permission_suggestions[0].to_dict() == wire
    rules = (PermissionRule(tool_name="Bash", rule_content="npm test"), PermissionRule(tool_name="Read"))
    assert body.permission_suggestions[0] == PermissionUpdate(type="addRules", rules=rules, behavior="allow", destination="session")
    answer = written(encode_control_success("r", {"behavior": "allow", "updatedPermissions": body.permission_suggestions}))
    assert answer["response"]["response"]["updatedPermissions"] == [wire]


@pytest.mark.parametrize(
    ("body", "cls"),
    [
        ({"subtype": "hook_callback", "callback_id": "cb0", "input": {"hook_event_name": "Stop"}, "tool_use_id": "t"}, HookCallback),
        ({"subtype": "mcp_message", "server_name": "calc", "message": {"jsonrpc": "2.0", "id": 0, "method": "initialize"}}, McpMessage),
        ({"subtype": "elicitation", "mcp_server_name": "m", "message": "?", "mode": "form", "requested_schema": {}}, Elicitation),
        ({"subtype": "request_user_dialog", "dialog_kind": "k", "payload": [1]}, RequestUserDialog),
        ({"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}, CanUseTool),
    ],
)
def test_every_request_of_the_cli_has_a_class(body: dict[str, Any], cls: type) -> None:
    message = request(**body)
    assert type(message.request) is cls
    assert message.subtype == body["subtype"]
    assert message.misfits == ()
    assert decode_message(encode_message(ControlRequest(request_id="r", request=message.request))) == message


def test_a_hook_names_its_event() -> None:
    assert HookCallback(input={"hook_event_name": "Stop"}).event == "Stop"
    assert HookCallback(input={"hook_event_name": 5}).event == ""


def test_an_unknown_request_keeps_its_subtype_and_fields() -> None:
    message = request(subtype="brand_new", a=1, b={"c": None})
    assert message.request == UnknownControl(wire_subtype="brand_new", fields={"a": 1, "b": {"c": None}})
    assert message.subtype == "brand_new"
    assert message.request.to_dict() == {"subtype": "brand_new", "a": 1, "b": {"c": None}}
    assert message.misfits == ()


@pytest.mark.parametrize("body", [{}, {"subtype": None}, {"subtype": 5, "a": 1}])
def test_a_request_without_a_subtype_is_unknown(body: dict[str, Any]) -> None:
    message = request(**body)
    assert message.subtype == ""
    assert message.request.to_dict() == body


@pytest.mark.parametrize("wire", [{}, {"request": None}, {"request": "x"}, {"request": []}])
def test_a_request_without_a_body_is_still_a_request(wire: dict[str, Any]) -> None:
    message = decode_message(json.dumps({"type": "control_request", "request_id": "r", **wire}).encode())
    assert isinstance(message, ControlRequest)
    assert (message.request_id, message.subtype) == ("r", "")


@pytest.mark.parametrize("odd", [{"tool_name": 5}, {"input": "rm"}, {"input": None}])
def test_a_question_without_its_essence_is_no_question_that_could_be_allowed_by_mistake(odd: dict[str, Any]) -> None:
    body = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}, **odd}
    message = request(**body)
    assert isinstance(message.request, UnknownControl)
    assert (message.subtype, message.request.to_dict()) == ("can_use_tool", body)
    assert message.misfits == ("request",)


@pytest.mark.parametrize("odd", [{"description": 5}, {"permission_suggestions": "x"}, {"permission_suggestions": [5]}, {"agent_id": []}])
def test_an_odd_detail_does_not_spoil_the_question(odd: dict[str, Any]) -> None:
    message = request(subtype="can_use_tool", tool_name="Bash", input={"command": "ls"}, **odd)
    assert isinstance(message.request, CanUseTool)
    assert (message.request.tool_name, message.request.input) == ("Bash", {"command": "ls"})
    assert message.misfits[0].startswith(f"request.{next(iter(odd))}")


def test_a_suggestion_of_a_new_kind_does_not_spoil_the_question() -> None:
    body = request(subtype="can_use_tool", tool_name="Bash", permission_suggestions=[{"type": "newKind", "new": 1}]).request
    assert isinstance(body, CanUseTool)
    assert body.permission_suggestions[0].type == "newKind"


def test_a_request_without_an_id_is_legal() -> None:
    message = decode_message(b'{"type":"control_request","request":{"subtype":"mcp_message"}}')
    assert isinstance(message, ControlRequest)
    assert message.request_id is None


def test_an_answer_without_an_id_is_legal() -> None:
    lines = lines_of(BUNDLED / "18l_control_no_request_id.ndjson", direction="out")
    answers = [message for message in map(decode_message, lines) if isinstance(message, ControlResponse)]
    assert [(answer.ok, answer.request_id) for answer in answers] == [(True, None)]


def test_a_success_may_have_no_payload() -> None:
    answer = response(subtype="success", request_id="r")
    assert (answer.ok, answer.request_id, answer.payload, answer.error, answer.error_code) == (True, "r", {}, None, None)


def test_an_error_says_what_and_why() -> None:
    answer = response(subtype="error", request_id="r", error="Unsupported", error_code="unsupported_request")
    assert (answer.ok, answer.payload, answer.error, answer.error_code) == (False, {}, "Unsupported", "unsupported_request")


def test_pending_requests_beside_the_answer_are_kept() -> None:
    answer = response(subtype="success", request_id="r", response={"pid": 1}, pending_permission_requests=[{"request_id": "p"}])
    assert answer.payload == {"pid": 1}
    assert answer.response.pending_permission_requests == ({"request_id": "p"},)
    assert answer.response.pending_user_dialog_requests is None


@pytest.mark.parametrize("payload", ["x", 5, [1], None])
def test_a_payload_that_is_no_object_is_empty(payload: Any) -> None:
    answer = response(subtype="success", request_id="r", response=payload)
    assert (answer.ok, answer.request_id, answer.payload) == (True, "r", {})


@pytest.mark.parametrize("wire", [{}, {"response": None}, {"response": "x"}, {"response": {}}])
def test_an_answer_of_no_shape_is_no_success(wire: dict[str, Any]) -> None:
    answer = decode_message(json.dumps({"type": "control_response", **wire}).encode())
    assert isinstance(answer, ControlResponse)
    assert (answer.ok, answer.request_id, answer.payload) == (False, None, {})


def test_a_cancel_names_its_request() -> None:
    lines = lines_of(BUNDLED / "07g_interrupt_during_permission.ndjson", direction="out")
    messages = list(map(decode_message, lines))
    (cancel,) = [message for message in messages if isinstance(message, ControlCancelRequest)]
    assert cancel.request_id in {message.request_id for message in messages if isinstance(message, ControlRequest)}


# ------------------------------------------------------------------------------------------------------------ what is written


def test_a_request_is_written_with_its_fields_and_nulls() -> None:
    assert written(encode_control_request("r", "set_model", model=None)) == {
        "type": "control_request",
        "request_id": "r",
        "request": {"subtype": "set_model", "model": None},
    }
    assert "request_id" not in written(encode_control_request(None, "interrupt"))


def test_a_success_is_written_with_and_without_a_payload() -> None:
    assert written(encode_control_success("r")) == {"type": "control_response", "response": {"subtype": "success", "request_id": "r"}}
    assert written(encode_control_success("r", {}))["response"]["response"] == {}
    assert written(encode_control_success(None, {"a": 1}))["response"] == {"subtype": "success", "response": {"a": 1}}


def test_an_error_is_written_with_and_without_a_code() -> None:
    assert written(encode_control_error("r", "no")) == {
        "type": "control_response",
        "response": {"subtype": "error", "request_id": "r", "error": "no"},
    }
    assert written(encode_control_error("r", "no", "unsupported_request"))["response"]["error_code"] == "unsupported_request"


def test_what_is_written_is_read_back() -> None:
    answer = decode_message(encode_control_success("r", {"mcp_response": {"id": 1}}))
    assert isinstance(answer, ControlResponse)
    assert (answer.ok, answer.request_id, answer.payload) == (True, "r", {"mcp_response": {"id": 1}})
    failed = decode_message(encode_control_error("r", "no", "code"))
    assert isinstance(failed, ControlResponse)
    assert (failed.ok, failed.error, failed.error_code) == (False, "no", "code")
    assert decode_message(b'{"type":"control_cancel_request","request_id":"r"}\n') == ControlCancelRequest(request_id="r")
    asked = decode_message(encode_control_request("r", "initialize", hooks=None))
    assert isinstance(asked, ControlRequest)
    assert asked.request == UnknownControl(wire_subtype="initialize", fields={"hooks": None})


def test_a_prompt_is_written_with_only_what_was_said() -> None:
    assert written(encode_user_message("hi", uuid=None)) == {"type": "user", "message": {"role": "user", "content": "hi"}}
    line = encode_user_message(
        [TextBlock(text="a"), {"type": "image", "source": {}}],
        uuid="u",
        priority="later",
        session_id="s",
        parent_tool_use_id="p",
        should_query=False,
        client_composed=True,
    )
    assert written(line) == {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {}}]},
        "uuid": "u",
        "priority": "later",
        "session_id": "s",
        "parent_tool_use_id": "p",
        "shouldQuery": False,
        "client_composed": True,
    }
    message = decode_message(line)
    assert isinstance(message, UserMessage)
    assert message.content == (TextBlock(text="a"), ImageBlock())
    assert (message.should_query, message.priority, message.uuid) == (False, "later", "u")


@pytest.mark.parametrize("content", [None, 5, b"bytes", {"type": "text"}, ["text"], [None], [b"x"]])
def test_content_that_would_end_the_cli_is_refused(content: Any) -> None:
    with pytest.raises(UsageError, match="content"):
        encode_user_message(content, uuid=None)


def test_a_priority_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="'soon'"):
        encode_user_message("hi", uuid=None, priority="soon")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- initialization


PAYLOAD: dict[str, Any] = {
    "commands": [{"name": "compact", "description": "d", "argumentHint": "<x>", "aliases": ["c"], "builtin": True}],
    "agents": [{"name": "Explore", "description": "d", "model": "haiku"}],
    "models": [{"value": "default", "resolvedModel": "claude-opus-5-5", "displayName": "Default", "supportedEffortLevels": ["low"]}],
    "account": {"tokenSource": "none", "apiKeySource": "ANTHROPIC_API_KEY", "apiProvider": "firstParty"},
    "output_style": "default",
    "available_output_styles": ["default", "Proactive"],
    "pid": 10743,
    "claude_code_version": "2.1.329",
    "current_permission_mode": "default",
    "session_state": "idle",
    "capabilities": ["ui_surface_v1"],
    "hook_on_failure_supported": True,
    "something_new": {"a": 1},
}


def test_the_answer_to_initialize_is_typed() -> None:
    info = InitializationInfo.from_payload(PAYLOAD)
    assert (info.pid, info.claude_code_version, info.session_state, info.capabilities) == (10743, "2.1.329", "idle", ("ui_surface_v1",))
    assert (info.commands[0].argument_hint, info.commands[0].aliases) == ("<x>", ("c",))
    assert (info.agents[0].model, info.models[0].resolved_model) == ("haiku", "claude-opus-5-5")
    assert (info.account.token_source, info.account.api_key_source) == ("none", "ANTHROPIC_API_KEY")
    assert info.misfits == ()
    assert info.raw == info.to_dict() == PAYLOAD


def test_an_answer_to_initialize_of_another_shape_is_typed_as_far_as_it_goes() -> None:
    info = InitializationInfo.from_payload(
        {"commands": [{"name": "a"}, 5], "models": "none", "pid": "x", "account": None, "output_style": "y"}
    )
    assert [command.name for command in info.commands] == ["a"]
    assert (info.models, info.pid, info.account.token_source, info.output_style) == ((), None, None, "y")
    assert set(info.misfits) == {"commands.1", "models", "pid", "account"}


def test_an_empty_answer_to_initialize_is_legal() -> None:
    assert InitializationInfo.from_payload({}) == InitializationInfo()
