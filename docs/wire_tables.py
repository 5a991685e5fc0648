"""What the schema of the wire needs beside our message types: the requests of a host, its answers, and since when the CLI sends a field.

`docs/generate_schema.py` reads these tables. A test compares `REQUESTS` with the methods of `Query` that send them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from claude_transport.protocol import answers
from claude_transport.protocol.control import InitializationInfo, PermissionUpdate

__all__ = ["ANSWERS_OF_HOSTS", "FROM_CLI", "FROM_HOST", "INITIALIZE", "RANGES", "REQUESTS", "SINCE", "Optional", "Row"]

RANGES: Final = ("2.1.92", "2.1.191", "2.1.257", "2.1.275", "2.1.330")
"""The first version of each range of the CLI that has a schema of its own: the versions whose binaries are tested. A range ends before
the next one, the last one is open."""

FROM_CLI: Final = (
    *("assistant", "user", "system", "result", "stream_event", "control_request", "control_response", "control_cancel_request"),
    *("rate_limit_event", "tool_progress", "command_lifecycle", "conversation_reset", "transcript_mirror", "keep_alive", "active_goal"),
    *("auth_status", "prompt_suggestion", "tool_use_summary"),
)
"""The types of lines that the CLI writes."""

FROM_HOST: Final = ("user", "control_request", "control_response", "control_cancel_request", "keep_alive", "update_environment_variables")
"""The types of lines that a host writes and the CLI heeds, or ignores on purpose."""


class Optional(NamedTuple):
    """The type of a field that may be left out."""

    type: Any


class Row(NamedTuple):
    """A control request of a host: its fields with their types, and the fields of the answer. A class stands for its fields."""

    fields: Mapping[str, Any] = {}
    answer: Any = None


_Dict = dict[str, Any]

INITIALIZE: Final[Mapping[str, Any]] = {
    "hooks": Optional(dict[str, tuple[_Dict, ...]] | None),
    "agents": Optional(dict[str, _Dict]),
    "sdkMcpServers": Optional(tuple[str, ...]),
    "jsonSchema": Optional(_Dict),
    "promptSuggestions": Optional(bool),
    "systemPrompt": Optional(str | tuple[str, ...]),
    "appendSystemPrompt": Optional(str),
    "appendSubagentSystemPrompt": Optional(str),
    "mcpServers": Optional(dict[str, _Dict]),
    "settings": Optional(_Dict | str),
    "plugins": Optional(tuple[_Dict, ...]),
    "skills": Optional(tuple[str, ...]),
    "planModeInstructions": Optional(str),
    "toolAliases": Optional(dict[str, Any]),
    "agentProgressSummaries": Optional(bool),
    "supportedDialogKinds": Optional(tuple[str, ...]),
    "perTaskStopAffordance": Optional(bool),
    "title": Optional(str),
    "managedSettings": Optional(_Dict),
    "sdkMcpServerConfigs": Optional(dict[str, _Dict]),
    "sdkMcpServerManifests": Optional(dict[str, _Dict]),
    "sdkMcpServerManifestsOrigin": Optional(str),
}

_SERVER: Final = {"serverName": str}

REQUESTS: Final[Mapping[str, Row]] = {
    "apply_flag_settings": Row({"settings": _Dict}),
    "background_tasks": Row({"tool_use_id": Optional(str)}, {"backgrounded": Optional(bool)}),
    "cancel_async_message": Row({"message_uuid": str}, answers.MessageCancellation),
    "channel_enable": Row(_SERVER),
    "end_session": Row({"reason": Optional(str)}),
    "export_conversation": Row({}, answers.ExportedConversation),
    "file_suggestions": Row({"query": str}, answers.FileSuggestions),
    "fork_conversation": Row({}, answers.ForkResult),
    "generate_session_title": Row({"description": str}, answers.SessionTitle),
    "get_binary_version": Row({}, answers.BinaryVersion),
    "get_context_usage": Row({"detail": Optional(str)}, answers.ContextUsage),
    "get_hooks_listing": Row({}, answers.HookListing),
    "get_memory_dialog": Row({}, answers.MemoryInfo),
    "get_plan": Row({}, answers.PlanInfo),
    "get_sandbox_dialog": Row({}, answers.SandboxInfo),
    "get_session_cost": Row({}, {"text": str}),
    "get_settings": Row({}, answers.SettingsInfo),
    "get_skills_dialog": Row({}, answers.SkillsInfo),
    "get_status": Row({}, answers.StatusInfo),
    "get_task_output": Row({"task_id": str}, answers.TaskOutput),
    "get_usage": Row({"skip_behaviors": Optional(bool)}, answers.UsageInfo),
    "get_workspace_diff": Row({}, answers.WorkspaceDiffAnswer),
    "initialize": Row(INITIALIZE, InitializationInfo),
    "interrupt": Row({"cancel_queued": Optional(bool)}, answers.InterruptReceipt),
    "list_models": Row({}, answers.ModelListing),
    "list_permission_rules": Row({}, answers.PermissionRules),
    "mcp_authenticate": Row(_SERVER, _Dict),
    "mcp_call": Row({"tool": str, "arguments": _Dict, "timeout_ms": Optional(int)}, answers.McpCallResult),
    "mcp_clear_auth": Row(_SERVER),
    "mcp_message": Row({"server_name": str, "message": _Dict}),
    "mcp_read_resource": Row({**_SERVER, "uri": str}, answers.McpResourceContents),
    "mcp_reconnect": Row(_SERVER),
    "mcp_set_servers": Row({"servers": dict[str, _Dict]}, answers.McpServersChange),
    "mcp_status": Row({}, answers.McpServerStatuses),
    "mcp_toggle": Row({**_SERVER, "enabled": bool}),
    "message_rated": Row({"messageUuid": str, "sentiment": str, "surface": str, "cleared": Optional(bool)}),
    "prompt_draft_activity": Row(),
    "read_file": Row({"path": str, "max_bytes": Optional(int), "encoding": Optional(str)}, answers.FileContents),
    "register_repo_root": Row(
        {
            "directory": str,
            "reload_claude_md": Optional(bool),
            "reload_plugins": Optional(bool),
            "reload_skills": Optional(bool),
        },
        _Dict,
    ),
    "reload_connectors": Row({}, _Dict),
    "reload_output_styles": Row({}, answers.OutputStyles),
    "reload_plugins": Row(
        {"hold_on_cache_impact": Optional(bool), "refuse_if_busy": Optional(bool)},
        answers.ReloadedPlugins,
    ),
    "reload_skills": Row({}, answers.SkillListing),
    "rename_session": Row({"title": str}),
    "rewind_conversation": Row({"target_message_uuid": str}, answers.ConversationRewind),
    "rewind_files": Row({"user_message_id": str, "dry_run": Optional(bool)}, answers.RewindResult),
    "seed_read_state": Row({"path": str, "mtime": int}),
    "set_color": Row({"color": str}),
    "set_cwd": Row({"path": str, "trust_accepted": Optional(bool), "trusted_directory": Optional(str)}, answers.CwdChange),
    "set_has_subscribers": Row({"has_subscribers": bool}),
    "set_max_thinking_tokens": Row({"max_thinking_tokens": int | None, "thinking_display": Optional(str)}),
    "set_message_waiting": Row({"waiting": bool}),
    "set_model": Row({"model": Optional(str | None)}, {"model": str}),
    "set_permission_mode": Row({"mode": str}, {"mode": str}),
    "set_proactivity_level": Row({"level": str}),
    "set_prompt_suggestions_paused": Row({"paused": bool}),
    "side_question": Row({"question": str}, answers.SideAnswer),
    "stop_task": Row({"task_id": str}),
    "update_settings": Row({"source": str, "settings": _Dict}),
}
"""The control requests that `Query` has a method for, and `initialize`, by their `subtype`."""

ANSWERS_OF_HOSTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "can_use_tool": {
        "behavior": str,
        "updatedInput": Optional(_Dict),
        "updatedPermissions": Optional(tuple[PermissionUpdate, ...]),
        "message": Optional(str),
        "interrupt": Optional(bool),
    },
    "mcp_message": {"mcp_response": _Dict},
    "elicitation": {"action": str, "content": Optional(_Dict | None)},
}
"""The payloads with which a host answers a question of the CLI, by the `subtype` of the question. Those of hooks are made from classes."""

SINCE: Final[Mapping[str, str]] = {
    "ContextCategory.id": "2.1.330",
    "ContextCategory.kind": "2.1.275",
    "ContextUsage.mcpInstructions": "2.1.330",
    "FileContents.requested_path": "2.1.330",
    "FileSuggestions.cwd": "2.1.330",
    "InitMessage.additional_directories": "2.1.330",
    "InitMessage.capabilities": "2.1.257",
    "InitMessage.terminal_slash_commands": "2.1.257",
    "MessageBreakdown.redirectedContextTokens": "2.1.191",
    "MessageBreakdown.unattributedTokens": "2.1.191",
    "SideAnswer.synthetic": "2.1.191",
    "StopInput.background_tasks": "2.1.191",
    "StopInput.session_crons": "2.1.191",
    "SubagentStopInput.background_tasks": "2.1.191",
    "SubagentStopInput.session_crons": "2.1.191",
}
"""Fields that the CLI sends in every object of their class only since this version, which is one of RANGES: `Class.wireName`."""
