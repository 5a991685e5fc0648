"""What is too large or too secret for a command line: one content, two ways, and errors that name the option."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import (
    INITIALIZE_FIELDS,
    INLINE_SCHEMA_LIMIT,
    PAYLOADS,
    build_payloads,
    initialize_fields,
    path_argument,
)
from claude_transport.launch.settings import is_inline_json, load_settings, mcp_document, read_json_object, settings_document

SERVERS = {"a": {"command": "run", "env": {"T": "1"}}}


def files(**options: Any) -> dict[str, Any]:
    """What each planned file holds, by flag: text, or parsed JSON."""
    delivered = build_payloads(ClaudeOptions(**options), delivery="files", permissions={})
    contents = {planned.flag: (planned.suffix, planned.content.decode()) for planned in delivered.files}
    return {flag: json.loads(text) if suffix == ".json" else text for flag, (suffix, text) in contents.items()}


def fields(**options: Any) -> dict[str, Any]:
    return build_payloads(ClaudeOptions(**options), delivery="initialize", permissions={}).initialize


@dataclass
class Agent:
    description: str
    prompt: str
    tools: list[str] | None = None


@pytest.mark.parametrize(
    ("options", "as_file", "as_field"),
    [
        ({"system_prompt": "text"}, {"--system-prompt-file": "text"}, {"systemPrompt": "text"}),
        ({"system_prompt": ""}, {"--system-prompt-file": ""}, {"systemPrompt": ""}),
        ({"system_prompt": {"type": "custom", "prompt": "c"}}, {"--system-prompt-file": "c"}, {"systemPrompt": "c"}),
        (
            {"system_prompt": {"type": "preset", "preset": "claude_code", "append": "more"}},
            {"--append-system-prompt-file": "more"},
            {"appendSystemPrompt": "more"},
        ),
        ({"system_prompt": {"type": "preset", "preset": "claude_code"}}, {}, {}),
        ({"append_system_prompt": "x"}, {"--append-system-prompt-file": "x"}, {"appendSystemPrompt": "x"}),
        (
            {"append_subagent_system_prompt": "x"},
            {"--append-subagent-system-prompt-file": "x"},
            {"appendSubagentSystemPrompt": "x"},
        ),
        ({"mcp_servers": SERVERS}, {"--mcp-config": {"mcpServers": SERVERS}}, {"mcpServers": SERVERS}),
        ({"mcp_servers": json.dumps({"mcpServers": SERVERS})}, {"--mcp-config": {"mcpServers": SERVERS}}, {"mcpServers": SERVERS}),
        ({"settings": {"model": "opus"}}, {"--settings": {"model": "opus"}}, {"settings": {"model": "opus"}}),
        ({"settings": '{"model": "opus"}'}, {"--settings": {"model": "opus"}}, {"settings": {"model": "opus"}}),
        ({"sandbox": {"enabled": True}}, {"--settings": {"sandbox": {"enabled": True}}}, {"settings": {"sandbox": {"enabled": True}}}),
        (
            {"sandbox": {"enabled": True}, "settings": {"model": "opus", "sandbox": {"enabled": False}}},
            {"--settings": {"model": "opus", "sandbox": {"enabled": True}}},
            {"settings": {"model": "opus", "sandbox": {"enabled": True}}},
        ),
        ({"agents": {}, "mcp_servers": {}}, {}, {}),
    ],
)
def test_a_payload_is_the_same_in_a_file_and_in_initialize(options: dict[str, Any], as_file: Any, as_field: Any) -> None:
    assert files(**options) == as_file
    assert fields(**options) == as_field


def test_every_row_of_the_tables_has_a_way_of_its_own() -> None:
    assert len({row.flag for row in PAYLOADS}) == len(PAYLOADS) - 1, "sandbox is merged into settings"
    names = [row.field for row in PAYLOADS[:-1]] + [row.field for row in INITIALIZE_FIELDS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"system_prompt": {"type": "file", "path": Path("p.txt")}}, "--system-prompt-file=p.txt"),
        ({"mcp_servers": "servers.json"}, "--mcp-config=servers.json"),
        ({"settings": Path("s.json")}, "--settings=s.json"),
        ({"settings": "-s.json"}, "--settings=-s.json"),
    ],
)
def test_a_file_of_the_callers_own_is_passed_on_as_it_is_in_either_way(options: dict[str, Any], expected: str) -> None:
    for delivery in ("files", "initialize"):
        delivered = build_payloads(ClaudeOptions(**options), delivery=delivery, permissions={})
        assert (delivered.arguments, delivered.files, delivered.initialize) == ((expected,), (), {})


def test_a_path_that_looks_like_json_is_made_a_path() -> None:
    assert path_argument("{x.json") == "./{x.json"
    assert path_argument(" {}") == "./ {}"
    assert path_argument("x.json") == "x.json"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"skills": ["a"]}, {"skills": ["a"]}),
        ({"skills": []}, {"skills": []}),
        ({"skills": "all"}, {}),
        ({"plan_mode_instructions": "x"}, {"planModeInstructions": "x"}),
        ({"tool_aliases": {"A": "B"}}, {"toolAliases": {"A": "B"}}),
        ({"agent_progress_summaries": True}, {"agentProgressSummaries": True}),
        ({"supported_dialog_kinds": ("k",)}, {"supportedDialogKinds": ["k"]}),
        ({"per_task_stop_affordance": True}, {"perTaskStopAffordance": True}),
        ({"title": "t"}, {"title": "t"}),
        (
            {"agents": {"a": Agent("d", "p"), "b": {"description": "e", "prompt": "q", "model": None}}},
            {"agents": {"a": {"description": "d", "prompt": "p"}, "b": {"description": "e", "prompt": "q"}}},
        ),
        ({"agents": {}}, {}),
        ({}, {}),
    ],
)
def test_an_option_becomes_its_initialize_field(options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert initialize_fields(ClaudeOptions(**options)) == expected


def test_a_schema_goes_by_initialize_exactly_when_it_is_not_on_the_command_line() -> None:
    def schema(length: int) -> dict[str, Any]:
        return {"type": "json_schema", "schema": {"title": "t" * (length - len('{"title":""}'))}}

    assert initialize_fields(ClaudeOptions(output_format=schema(INLINE_SCHEMA_LIMIT))) == {}
    assert list(initialize_fields(ClaudeOptions(output_format=schema(INLINE_SCHEMA_LIMIT + 1)))) == ["jsonSchema"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"settings": {"when": object()}}, "settings"),
        ({"sandbox": {"when": object()}}, "settings"),
        ({"mcp_servers": {"a": {"command": object()}}}, "mcp_servers"),
        ({"agents": {"a": object()}}, "agents"),
        ({"system_prompt": "\ud83d"}, "system_prompt"),
        ({"append_system_prompt": "\ud83d"}, "append_system_prompt"),
        ({"output_format": {"type": "json_schema", "schema": {"x": object()}}}, "output_format"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        files(**options)
    assert caught.value.option == named


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"settings": {"when": object()}}, "settings"),
        ({"mcp_servers": {"a": {"command": object()}}}, "mcp_servers"),
        ({"system_prompt": "\ud83d"}, "system_prompt"),
        ({"append_system_prompt": "\ud83d"}, "append_system_prompt"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name_also_for_another_machine(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        fields(**options)
    assert caught.value.option == named


def test_servers_that_go_by_initialize_are_refused_when_they_cannot_be_written() -> None:
    options = ClaudeOptions(mcp_servers={"a": {"command": object()}}, mcp_servers_delivery="initialize")
    with pytest.raises(ConfigurationError) as caught:
        build_payloads(options, delivery="files", permissions={})
    assert caught.value.option == "mcp_servers"


def test_dates_and_other_plain_values_are_written() -> None:
    assert files(settings={"since": dt.date(2026, 1, 2), "paths": ("a", "b")}) == {
        "--settings": {"since": "2026-01-02", "paths": ["a", "b"]}
    }


def test_a_planned_file_does_not_show_what_it_holds() -> None:
    (planned,) = build_payloads(ClaudeOptions(system_prompt="private"), delivery="files", permissions={}).files
    assert repr(planned) == "PlannedFile('--system-prompt-file', '.txt', <7 bytes>)"


# ------------------------------------------------------------------------------------------------------- JSON documents


@pytest.mark.parametrize(
    ("text", "expected"), [("{}", True), (' {"a": 1}\n', True), ("{x", False), ("x}", False), ("a.json", False), ("", False)]
)
def test_text_between_braces_is_json_and_everything_else_a_path(text: str, expected: bool) -> None:
    assert is_inline_json(text) is expected


def test_settings_are_read_from_the_childs_working_directory_with_or_without_a_mark(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('\ufeff{"model": "opus"}', "utf-8")
    assert load_settings(ClaudeOptions(settings="s.json", cwd=tmp_path)) == {"model": "opus"}
    assert load_settings(ClaudeOptions()) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": sentinel}', r"is not JSON \(line 1\)"),
        (b"[1]", "must be a JSON object, not list"),
        (b"\xff\xfe", "cannot be read"),
        (None, "No such"),
    ],
)
def test_a_document_that_is_no_json_object_is_refused_without_its_text(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "d.json").write_bytes(content)
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_json_object(tmp_path / "d.json", option="settings")
    assert caught.value.option == "settings"
    assert "sentinel" not in str(caught.value)
    assert not isinstance(caught.value.__cause__, json.JSONDecodeError), "it would carry the whole document into a traceback"


def test_json_nested_beyond_reason_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text('{"a":' * 100_000, "utf-8")
    with pytest.raises(ConfigurationError, match="is not JSON"):
        read_json_object(tmp_path / "d.json", option="settings")


def test_rules_that_found_no_room_are_added_to_those_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"model": "opus", "permissions": {"allow": ["A"], "deny": ["D"]}}', "utf-8")
    document = settings_document(
        ClaudeOptions(settings=tmp_path / "s.json"), permissions={"allow": ["A", "B"], "additionalDirectories": ["/x"]}
    )
    assert document == {"model": "opus", "permissions": {"allow": ["A", "B"], "deny": ["D"], "additionalDirectories": ["/x"]}}


def test_merging_leaves_the_callers_own_settings_alone() -> None:
    given = {"permissions": {"allow": ["A"]}}
    settings_document(ClaudeOptions(settings=given, sandbox={"enabled": True}), permissions={"allow": ["B"]})
    assert given == {"permissions": {"allow": ["A"]}}


@pytest.mark.parametrize("permissions", [["A"], {"allow": "A"}, "text"])
def test_permissions_that_cannot_be_added_to_are_refused(permissions: Any) -> None:
    with pytest.raises(ConfigurationError, match="permissions"):
        settings_document(ClaudeOptions(settings={"permissions": permissions}), permissions={"allow": ["B"]})


def test_servers_are_copied_into_a_document_and_nothing_is_none() -> None:
    assert mcp_document(ClaudeOptions(mcp_servers=SERVERS)) == {"mcpServers": SERVERS}
    assert mcp_document(ClaudeOptions()) is None
    assert mcp_document(ClaudeOptions(mcp_servers="")) is None
