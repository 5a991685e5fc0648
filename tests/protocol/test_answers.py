"""Answers to control requests: what the CLI was seen to say is typed without loss, and nothing it could say is an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_lines import lines_of, recordings

from claude_transport import control
from claude_transport.protocol import answers
from claude_transport.protocol.answers import (
    BinaryVersion,
    ContextUsage,
    ConversationRewind,
    CwdChange,
    ExportedConversation,
    FileContents,
    FileSuggestions,
    ForkResult,
    HookListing,
    InterruptReceipt,
    McpCallResult,
    McpResourceContents,
    McpServersChange,
    McpServerStatuses,
    MemoryInfo,
    MessageCancellation,
    ModelListing,
    OutputStyles,
    PermissionRules,
    PlanInfo,
    ReloadedPlugins,
    RewindResult,
    SandboxInfo,
    SessionTitle,
    SettingsInfo,
    SideAnswer,
    SkillListing,
    SkillsInfo,
    StatusInfo,
    TaskOutput,
    UsageInfo,
    WorkspaceDiffAnswer,
)
from claude_transport.protocol.control import Answer

OBSERVED = Path(__file__).parent / "control_answers.ndjson"

CLASSES: dict[str, type[Answer]] = {
    "cancel_async_message": MessageCancellation,
    "export_conversation": ExportedConversation,
    "file_suggestions": FileSuggestions,
    "fork_conversation": ForkResult,
    "generate_session_title": SessionTitle,
    "get_binary_version": BinaryVersion,
    "get_context_usage": ContextUsage,
    "get_hooks_listing": HookListing,
    "get_memory_dialog": MemoryInfo,
    "get_plan": PlanInfo,
    "get_sandbox_dialog": SandboxInfo,
    "get_settings": SettingsInfo,
    "get_skills_dialog": SkillsInfo,
    "get_status": StatusInfo,
    "get_task_output": TaskOutput,
    "get_usage": UsageInfo,
    "get_workspace_diff": WorkspaceDiffAnswer,
    "interrupt": InterruptReceipt,
    "list_models": ModelListing,
    "list_permission_rules": PermissionRules,
    "mcp_call": McpCallResult,
    "mcp_read_resource": McpResourceContents,
    "mcp_set_servers": McpServersChange,
    "mcp_status": McpServerStatuses,
    "read_file": FileContents,
    "reload_output_styles": OutputStyles,
    "reload_plugins": ReloadedPlugins,
    "reload_skills": SkillListing,
    "rewind_conversation": ConversationRewind,
    "rewind_files": RewindResult,
    "set_cwd": CwdChange,
    "side_question": SideAnswer,
}
UNTYPED = {"background_tasks", "get_session_cost", "set_model", "set_permission_mode"}
"""Answers of one value, which the methods hand out by itself."""
UNNAMED: dict[str, set[str]] = {
    "get_memory_dialog": {"auto_dream"},
    "get_sandbox_dialog": {
        "auto_allow_available",
        "enabled_in_settings",
        "no_sandbox_allowed",
        "overrides_locked",
        "policy_origins",
        "unsandboxed_fallback",
    },
}
"""Fields that are left to `raw`: switches of a dialog."""


def observed() -> Iterator[tuple[str, dict[str, Any]]]:
    """Subtype and payload of every successful answer at hand that says something."""
    for text in OBSERVED.read_text("utf-8").splitlines():
        entry = json.loads(text)
        yield entry["subtype"], entry["response"]
    for path in recordings():
        asked: dict[str, str] = {}
        for line in lines_of(path, direction="in"):
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict) and isinstance(message.get("request"), dict):
                asked[str(message.get("request_id"))] = str(message["request"].get("subtype"))
        for line in lines_of(path, direction="out"):
            message = json.loads(line)
            if message["type"] == "control_response" and message["response"].get("response"):
                subtype = asked[str(message["response"].get("request_id"))]
                if subtype != "initialize":
                    yield subtype, message["response"]["response"]


def sample(subtype: str, **having: Any) -> Any:
    """The first observed answer to this request in which these fields are there (True) or have this value."""
    for found, payload in observed():
        if found == subtype and all(payload.get(key) == value or (value is True and key in payload) for key, value in having.items()):
            return CLASSES[subtype].from_payload(payload)
    raise AssertionError(subtype)


def test_every_observed_answer_has_a_class_fits_it_and_loses_nothing() -> None:
    seen = set()
    for subtype, payload in observed():
        seen.add(subtype)
        if subtype in UNTYPED:
            continue
        answer = CLASSES[subtype].from_payload(payload)
        assert answer.misfits == (), subtype
        assert answer.to_dict() == payload
        assert answer.raw == payload
    assert seen >= CLASSES.keys()


def test_every_field_of_an_observed_answer_has_a_name() -> None:
    for subtype, payload in observed():
        if subtype not in UNTYPED:
            named = set(CLASSES[subtype].__struct_encode_fields__)
            assert payload.keys() - named <= UNNAMED.get(subtype, set()), subtype


def test_mcp_servers_tell_their_state_and_tools() -> None:
    statuses: McpServerStatuses = sample("mcp_status", mcpServers=sample("mcp_status").raw["mcpServers"])
    (server,) = statuses.servers
    assert (server.name, server.status, server.transport, server.source) == ("sums", "connected", "stdio", "dynamic")
    assert server.server_info is not None
    assert (server.server_info.name, server.server_info.version) == ("sums", "1.2")
    assert [(tool.name, tool.annotations) for tool in server.tools] == [("add", {"readOnly": True})]


def test_the_context_is_broken_down_by_category() -> None:
    usage: ContextUsage = sample("get_context_usage")
    assert usage.max_tokens == usage.raw_max_tokens == 1_000_000
    messages = usage.category("messages")
    assert messages is not None
    assert (messages.kind, messages.tokens) == ("used", 2895)
    assert usage.category("no_such") is None
    assert [tool.server_name for tool in usage.mcp_tools] == ["sums"]
    assert usage.message_breakdown is not None
    assert usage.message_breakdown.tool_calls_by_type[0].name == "Write"
    assert usage.skills is not None
    assert usage.skills.total_skills == len(usage.skills.skill_frontmatter)
    assert usage.auto_compact_source == "model-default"
    assert usage.grid_rows[0][0].category_name == "System prompt"


def test_usage_counts_dollars_and_tokens_by_model() -> None:
    usage: UsageInfo = sample("get_usage")
    (spending,) = usage.session.model_usage.values()
    assert spending.cost_usd == usage.session.total_cost_usd > 0
    assert spending.input_tokens > 0
    assert spending.canonical_model == "claude-opus-5-5"
    assert (usage.subscription_type, usage.rate_limits) == (None, None)


def test_a_dry_run_of_a_rewind_tells_what_it_would_do() -> None:
    result: RewindResult = sample("rewind_files", filesChanged=True)
    assert (result.can_rewind, result.insertions, result.deletions) == (True, 0, 1)
    assert result.files_changed[0].endswith("/w.txt")


def test_the_settings_say_what_is_in_use_and_where_it_comes_from() -> None:
    info: SettingsInfo = sample("get_settings")
    assert info.applied.model == "claude-opus-5-5"
    assert [source.source for source in info.sources] == ["userSettings", "flagSettings"]
    assert info.effective["permissions"] == {"allow": ["Bash(ls)"]}


def test_permission_rules_tell_their_source() -> None:
    listings = [PermissionRules.from_payload(payload) for subtype, payload in observed() if subtype == "list_permission_rules"]
    (rule,) = [rule for listing in listings for rule in listing.rules]
    assert (rule.rule, rule.behavior, rule.editability) == ("Bash(ls)", "allow", "readonly")
    assert all(listing.original_cwd for listing in listings)
    assert not any(listing.managed_only or listing.workspace_directories for listing in listings)


def test_a_diff_has_files_and_hunks() -> None:
    diff = sample("get_workspace_diff").diff
    assert (diff.stats.files_count, diff.stats.lines_added) == (2, 1)
    assert [(file.path, file.status) for file in diff.files] == [("r.txt", "modified"), ("w.txt", "added")]
    assert diff.hunks[0].hunks[0].lines == (" hello", "+world")


def test_a_diff_that_cannot_be_made_says_why() -> None:
    answer = WorkspaceDiffAnswer.from_payload({"diff": None, "noDiffReason": "no-repository"})
    assert (answer.diff, answer.no_diff_reason) == (None, "no-repository")


def test_a_file_comes_as_text_or_as_bytes() -> None:
    text: FileContents = sample("read_file", lossy=False)
    assert (text.contents, text.data, text.truncated) == ("hel", b"hel", True)
    assert sample("read_file", encoding="base64").data == b"hello\nworld\n"
    assert FileContents.from_payload({"contents": "not base64", "encoding": "base64"}).data == b""


def test_the_text_of_a_tool_result_is_at_hand() -> None:
    assert sample("mcp_call").text == "3"
    assert McpCallResult.from_payload({"content": "plain"}).text == "plain"
    assert McpCallResult.from_payload({"content": [], "isError": True}).is_error


def test_the_status_can_be_looked_up_by_label() -> None:
    status: StatusInfo = sample("get_status")
    assert status.value("Version") == "2.1.329"
    assert status.value("Colour") is None


def test_what_does_not_fit_costs_that_field_only_and_is_named() -> None:
    payload = {"mcpServers": [{"name": "a", "status": 7, "tools": [{"name": "t"}, 3]}, "b"], "more": 1}
    answer = McpServerStatuses.from_payload(payload)
    (server,) = answer.servers
    assert (server.name, server.status, [tool.name for tool in server.tools]) == ("a", "", ["t"])
    assert set(answer.misfits) == {"mcpServers.0.status", "mcpServers.0.tools.1", "mcpServers.1"}
    assert answer.to_dict() == payload
    assert "misfits" not in repr(answer)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("cls", [*CLASSES.values()])
@settings(max_examples=40)  # of each class; all of them are made in the same way
@given(data=st.data())
def test_no_payload_is_an_error(cls: type[Answer], data: st.DataObject) -> None:
    keys = st.sampled_from(cls.__struct_encode_fields__) | st.text(max_size=6)
    payload = data.draw(st.dictionaries(keys, json_values, max_size=5))
    answer = cls.from_payload(payload)
    assert answer.raw == payload
    assert answer.to_dict() == (payload or answer.to_dict())
    repr(answer)


def test_every_answer_and_its_parts_are_at_the_public_door() -> None:
    defined = [name for name, value in vars(answers).items() if getattr(value, "__module__", "") == answers.__name__]
    assert len(defined) > 60
    assert [name for name in defined if getattr(control, name, None) is not getattr(answers, name)] == []
