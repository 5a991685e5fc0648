"""Small parts of the protocol, each as a table: numbers, texts that cannot be sent, versions, tokens."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from claude_transport.errors import UsageError
from claude_transport.protocol.envelope import DecodeFailure, Usage, as_float, holds_half_a_pair
from claude_transport.protocol.hooks import PermissionRequestDecision, encode_hook_output
from claude_transport.protocol.messages import APIMessage, InitMessage
from claude_transport.protocol.synthetic import synthetic_turn
from claude_transport.wire.check import find_cli_version

HUGE = 10**400


@pytest.mark.parametrize(("number", "value"), [(1, 1.0), (0.5, 0.5), (0, 0.0), (HUGE, math.inf), (-HUGE, -math.inf)])
def test_a_number_of_the_wire_is_a_float_of_its_sign(number: float, value: float) -> None:
    assert as_float(number) == value
    assert type(as_float(number)) is float


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        ("text", False),
        ("half \ud800", True),
        ({"a": ["\udfff"]}, True),
        ({"\ud800": 1}, True),
        (object(), False),
        ({1: object()}, False),
        (b"\xff", False),
        (None, False),
    ],
)
def test_only_half_of_a_surrogate_pair_is_told(value: object, holds: bool) -> None:
    assert holds_half_a_pair(value) is holds


def test_a_failure_to_decode_is_equal_to_the_same_one_alone() -> None:
    one, same = (DecodeFailure(kind="noise", raw=b"x", error=text) for text in ("a", "b"))
    others: list[Any] = [DecodeFailure(kind="noise", raw=b"y", error="a"), DecodeFailure(kind="torn", raw=b"x", error="a"), "x", None, 5]
    assert one == same
    assert hash(one) == hash(same)
    assert not any(one == other for other in others)
    assert (one.type, one.to_dict()["type"]) == ("decode_failure", "decode_failure")


@pytest.mark.parametrize(
    ("details", "tokens"),
    [(None, 0), ({}, 0), ({"thinking_tokens": 7}, 7), ({"thinking_tokens": True}, 0), ({"thinking_tokens": "7"}, 0), ({"other": 7}, 0)],
)
def test_the_tokens_of_thinking_are_a_number_or_none(details: Any, tokens: int) -> None:
    usage = Usage(input_tokens=1, cache_creation_input_tokens=2, cache_read_input_tokens=4, output_tokens_details=details)
    assert usage.reasoning_tokens == tokens
    assert usage.total_input_tokens == 7


NAMED = b'"claude_code_version":"2.1.0"'


@pytest.mark.parametrize(
    ("lines", "version"),
    [
        ([b'{"type":"system",%s}' % NAMED], "2.1.0"),
        ([b'{"response":{"response":{%s}}}' % NAMED], "2.1.0"),
        ([b'{"response":{%s}}' % NAMED], None),
        ([b"[%s]" % NAMED.replace(b":", b",")], None),
        ([b"{%s" % NAMED], None),
        ([b'{"claude_code_version":5}', b'{"response":5,"claude_code_version":null}'], None),
        ([b'{"response":{"response":5},"claude_code_version":5}', b"noise", b"{%s}" % NAMED], "2.1.0"),
        ([], None),
    ],
)
def test_the_version_of_a_cli_is_found_where_it_names_it(lines: list[bytes], version: str | None) -> None:
    assert find_cli_version(lines) == version


def test_what_a_newer_hook_says_is_passed_on_and_the_rest_is_checked() -> None:
    specific = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "newer": 1}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"async": True, "anything": (1, 2)}, {"async": True, "anything": [1, 2]}),
        ({"async_": True, "anything": 1}, {"async": True, "anything": 1}),
        ({"async": True, "continue": "not checked"}, {"async": True, "continue": "not checked"}),
        ({"newer": {"a": (1,)}}, {"newer": {"a": [1]}}),
        ({"hookSpecificOutput": specific, "newer": 2}, {"hookSpecificOutput": specific, "newer": 2}),
        (
            {"hookSpecificOutput": {"permissionDecision": "deny"}},
            {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}},
        ),
        ({"continue_": False}, {"continue": False}),
    ]
    for given, wire in cases:
        assert encode_hook_output("PreToolUse", given, strict=False) == wire
    wrong: list[dict[str, Any]] = [{"continue": "yes"}, {"hookSpecificOutput": {"permissionDecision": 5}}, {"newer": object()}]
    for given in wrong:
        with pytest.raises(UsageError, match="PreToolUse"):
            encode_hook_output("PreToolUse", given, strict=False)
    for given, _ in cases[2:4]:
        with pytest.raises(UsageError, match="PreToolUse"):
            encode_hook_output("PreToolUse", given)


def test_what_is_new_inside_a_decision_stays_beside_what_is_known() -> None:
    given = {"decision": {"behavior": "deny", "message": "no", "newer": [1]}, "more": 2}
    said = encode_hook_output("PermissionRequest", {"hookSpecificOutput": given}, strict=False)["hookSpecificOutput"]
    assert said == {"hookEventName": "PermissionRequest", **given}


@pytest.mark.parametrize(("interrupt", "more"), [(True, {"interrupt": True}), (False, {})])
def test_a_refused_permission_ends_the_turn_only_when_it_says_so(interrupt: bool, more: dict[str, Any]) -> None:
    wire = encode_hook_output("PermissionRequest", PermissionRequestDecision.deny("no", interrupt=interrupt))
    assert wire["hookSpecificOutput"]["decision"] == {"behavior": "deny", "message": "no", **more}


def test_a_synthetic_turn_is_what_the_cli_says_in_one() -> None:
    lines = synthetic_turn("u-1", "hello", session_id="s-1")
    assert not any(line.endswith(b"\n") for line in lines)
    frames = [json.loads(line) for line in lines]
    kinds = [(frame["type"], frame.get("state"), frame.get("command_uuid")) for frame in frames]
    life = [("command_lifecycle", state, "u-1") for state in ("queued", "started", "completed")]
    assert kinds == [*life[:2], ("assistant", None, None), ("result", None, None), life[2]]
    assert {frame["session_id"] for frame in frames} == {"s-1"}
    assert len({frame["uuid"] for frame in frames}) == 5
    assert (frames[2]["message"]["content"], frames[3]["result"]) == ([{"type": "text", "text": "hello"}], "hello")


def test_a_field_that_is_empty_by_default_is_left_out_and_one_that_is_always_written_is_not() -> None:
    assert not {"user_message_uuids", "tools", "agents"} & InitMessage().to_dict().keys()
    assert InitMessage(tools=("Bash",)).to_dict()["tools"] == ["Bash"]
    assert APIMessage().to_dict()["content"] == []
