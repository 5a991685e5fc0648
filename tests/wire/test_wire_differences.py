"""`WireCheck` names what a line says beyond the schema, by message and path, and never stumbles over a line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_corpus import recorded_cases

from claude_transport import wire as schema
from claude_transport.errors import UsageError
from claude_transport.protocol.tape import Tape, without_withdrawn
from claude_transport.wire import WireCheck, WireFinding
from claude_transport.wire.check import MAX_FINDINGS

from wire_corpus import RECORDINGS  # isort: skip

INIT = next(json.loads(case.text) for case in recorded_cases() if '"subtype":"init"' in case.text and case.direction == "out")


def check(*lines: Any, direction: Any = "out", version: str | None = None) -> list[tuple[str, str, str, str, str]]:
    """What is found in these lines: kind, message, path, expected, found."""
    checked = WireCheck(cli_version=version)
    for line in lines:
        checked.add(direction, line if isinstance(line, bytes) else json.dumps(line).encode())
    return [(each.kind, each.message, each.path, each.expected, each.found) for each in checked.findings]


def test_a_field_that_the_schema_has_not_is_unknown() -> None:
    assert check({**INIT, "brand_new": 1}) == [("unknown", "system/init", "brand_new", "", "integer")]
    inside = {"type": "assistant", "message": {"content": [{"type": "text", "text": "Hi", "tone": "glad"}]}}
    assert ("unknown", "assistant", "message.content[].tone", "", "string") in check(inside)


def test_a_field_that_every_cli_of_the_range_sends_is_missing() -> None:
    without = {name: value for name, value in INIT.items() if name not in {"capabilities", "model"}}
    assert check(without, version="2.1.330") == [
        ("missing", "system/init", "capabilities", "", ""),
        ("missing", "system/init", "model", "", ""),
    ]
    assert check(without, version="2.1.191") == [("missing", "system/init", "model", "", "")]


def test_a_value_of_another_type_is_named_with_both_types() -> None:
    assert check({**INIT, "tools": "all"}) == [("type", "system/init", "tools", "array", "string")]
    assert check({**INIT, "tools": [1]}) == [("type", "system/init", "tools[]", "string", "integer")]
    assert check({**INIT, "original_cwd": 3}) == [("type", "system/init", "original_cwd", "string or null", "integer")]
    assert check({**INIT, "type": ["system"]})[0] == ("type", "?", "type", "string", "array")


def test_a_type_that_a_peer_makes_up_is_cut() -> None:
    assert check({"type": "x" * 1000}) == [("unknown", "x" * 60, "type", "", repr("x" * 60))]


def test_a_type_or_subtype_or_block_that_is_new_is_unknown_and_nothing_else_is_said_of_it() -> None:
    assert check({"type": "brand_new", "x": 1}) == [("unknown", "brand_new", "type", "", "'brand_new'")]
    assert check({"type": "system", "subtype": "brand_new", "x": 1}) == [("unknown", "system/brand_new", "subtype", "", "'brand_new'")]
    block = {"type": "user", "message": {"role": "user", "content": [{"type": "brand_new", "x": 1}]}}
    assert [row for row in check(block) if row[0] != "missing"] == [("unknown", "user", "message.content[].type", "", "'brand_new'")]


def test_a_place_is_listed_once_with_its_count() -> None:
    checked = WireCheck()
    for _ in range(3):
        checked.add("out", json.dumps({**INIT, "brand_new": 1}).encode())
    expected = WireFinding(kind="unknown", direction="out", message="system/init", path="brand_new", found="integer", count=3)
    assert (checked.findings, checked.lines) == ((expected,), 3)


def test_what_an_answer_carries_is_compared_by_its_question() -> None:
    checked = WireCheck()
    checked.add("in", b'{"type":"control_request","request_id":"1","request":{"subtype":"get_plan"}}')
    checked.add("out", b'{"type":"control_response","response":{"subtype":"success","request_id":"1","response":{"exists":1,"why":""}}}')
    assert [(each.kind, each.message, each.path, each.found) for each in checked.findings] == [
        ("type", "control_response/get_plan", "response.response.exists", "integer"),
        ("unknown", "control_response/get_plan", "response.response.why", "string"),
    ]


def test_what_a_host_answers_is_compared_by_the_question_of_the_cli() -> None:
    checked = WireCheck()
    checked.add("out", b'{"type":"control_request","request_id":"1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}')
    checked.add("in", b'{"type":"control_response","response":{"subtype":"success","request_id":"1","response":{"behaviour":"deny"}}}')
    said = [(each.kind, each.path) for each in checked.findings if each.direction == "in"]
    assert said == [("missing", "response.response.behavior"), ("unknown", "response.response.behaviour")]


def test_the_output_of_a_hook_is_compared_by_its_event() -> None:
    checked = WireCheck()
    asked = {"subtype": "hook_callback", "callback_id": "h", "input": {"hook_event_name": "PreToolUse"}}
    checked.add("out", json.dumps({"type": "control_request", "request_id": "1", "request": asked}).encode())
    output = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReson": "no"}}
    answer = {"subtype": "success", "request_id": "1", "response": output}
    found = checked.add("in", json.dumps({"type": "control_response", "response": answer}).encode())
    assert [(each.kind, each.path) for each in found] == [("unknown", "response.response.hookSpecificOutput.permissionDecisionReson")]


def test_the_input_of_a_hook_is_compared_by_its_event() -> None:
    given = {"hook_event_name": "PreToolUse", "tool_name": 1}
    line = {"type": "control_request", "request_id": "1", "request": {"subtype": "hook_callback", "callback_id": "h", "input": given}}
    assert ("type", "control_request/hook_callback/PreToolUse", "request.input.tool_name", "string", "integer") in check(line)


@pytest.mark.parametrize("line", [b"npm warn", b'{"type":"user"', b'{"type":NaN}', b'{"type":"\x01"}', b'{"type":"\xff"}', b"[" * 100_000])
def test_a_line_that_is_not_json_is_unreadable(line: bytes) -> None:
    assert [row[0] for row in check(line)] == ["unreadable"]


def test_a_line_that_is_json_but_no_object_is_unreadable() -> None:
    assert [check(line) for line in (b"[1]", b"null", b'"x"')] == [[("unreadable", "", "", "", "JSON, but no object")]] * 3


def test_half_of_a_pair_is_a_text_like_any_other() -> None:
    assert check({**INIT, "cwd": "\ud800"}) == []


def test_a_line_that_is_nested_without_end_is_answered() -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [{"type": "tool_result", "tool_use_id": "t", "content": deep}]
    assert "type" not in {row[0] for row in check({"type": "user", "message": {"role": "user", "content": deep}})}


def test_blank_lines_do_not_count() -> None:
    checked = WireCheck()
    assert checked.add("out", b" \n") == ()
    assert (checked.lines, checked.findings) == (0, ())


def test_names_that_a_peer_makes_up_are_cut_and_bounded() -> None:
    checked = WireCheck()
    checked.add("out", json.dumps({**INIT, **{f"{number}{'x' * 1000}": 1 for number in range(MAX_FINDINGS + 5)}}).encode())
    assert (len(checked.findings), checked.unlisted) == (MAX_FINDINGS, 5)
    assert max(len(each.path) for each in checked.findings) < 100


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="'x' is not a version of claude"):
        WireCheck(cli_version="x")


def test_the_door_offers_what_it_names() -> None:
    assert all(hasattr(schema, name) for name in schema.__all__)


# ---------------------------------------------------------------------------------------------------------------- recordings

WRONG_ON_PURPOSE = {
    "02j_initialize_bad_fields": 4,
    "04g_permission_malformed_response": 2,
    "06q_sdk_tool_reply_without_mcp_response": 1,
    "08a_control_requests": 25,
    "08c_pipelined_control_requests": 1,
    "18a_malformed_json": 1,
    "18b_non_json_text": 1,
    "18d_json_array": 1,
    "18e_json_scalar": 1,
    "18g_missing_type": 1,
    "18h_user_missing_message": 1,
    "18m_control_no_request": 1,
    "18n_control_no_subtype": 1,
    "18v_assistant_message_in": 1,
    "18z_system_in": 1,
    "19h_text_input_via_stdin": 1,
}
"""Recordings whose host says what it should not, and in how many places."""


def test_every_recording_says_what_the_schemas_say_except_where_its_host_is_wrong_on_purpose() -> None:
    wrong: dict[str, int] = {}
    for path in sorted(RECORDINGS.glob("*.ndjson")):
        checked = WireCheck(cli_version="2.1.329")
        for record in without_withdrawn(Tape.read(path)):
            if record.trimmed_from_chars is None and record.dir in ("in", "out"):
                checked.add("in" if record.dir == "in" else "out", record.line)
        assert [each for each in checked.findings if each.direction == "out"] == [], path.name
        if checked.findings:
            wrong[path.stem] = len(checked.findings)
    assert wrong == WRONG_ON_PURPOSE
