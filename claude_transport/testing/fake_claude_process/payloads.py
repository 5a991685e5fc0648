"""The large answers of CLI 2.1.329, shortened: the recorded shapes and keys, with fewer entries."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOOLS = ["Task", "Bash", "Edit", "NotebookEdit", "Read", "Skill", "TaskStop", "ToolSearch", "WebFetch", "WebSearch", "Write"]
ASKING_TOOLS = ["AskUserQuestion", "EnterPlanMode", "ExitPlanMode"]
"""Tools that are offered only when the host answers permission questions (docs/reference/protocol.md#permission-questions)."""
COMMANDS = ["clear", "compact", "context", "init", "usage"]
SKILLS = ["verify", "debug"]
AGENTS = ["claude", "Explore", "general-purpose", "Plan"]
OUTPUT_STYLES = ["default", "Proactive", "Concise", "Explanatory", "Learning"]
INIT_CAPABILITIES = [
    "interrupt_receipt_v1",
    "interrupt_cancel_queued_v1",
    "interrupt_send_now_v1",
    "msg_lifecycle_v1",
    "request_marker_lists_v1",
    "sdk_mcp_tools_list_changed",
    "sdk_mcp_manifests",
    "mcp_read_resource_v1",
    "reload_plugins_refuse_if_busy_v1",
]
CAPABILITIES = ["ui_surface_v1", "mcp_call_result_not_for_model_v1", "mcp_call_check_permissions_v1", "reload_plugins_refuse_if_busy_v1"]
FAST_MODE = {"fast_mode_state": "off", "fast_mode_disabled_reason": "sdk_opt_in_required"}
NO_SUBAGENTS: dict[str, Any] = {
    "spawned": 0,
    "requested": {"background": 0, "foreground": 0, "unset": 0},
    "started_in_background": 0,
    "max_depth": 0,
    "spawned_by_subagents": 0,
    "completed": 0,
    "failed": 0,
    "killed": {"parent": 0, "user": 0, "system": 0},
    "refused": {"depth_limit": 0, "concurrency_limit": 0, "budget": 0},
    "by_type": {},
}


def models(default: str) -> list[dict[str, Any]]:
    """Build `models` of an initialize answer and of `list_models`."""
    rows = [
        ("default", default, "Default (recommended)"),
        ("opus", "claude-opus-5-5", "Opus"),
        ("sonnet", "claude-sonnet-5-5", "Sonnet"),
        ("haiku", "claude-haiku-5-5", "Haiku"),
    ]
    return [
        {
            "value": value,
            "resolvedModel": resolved,
            "displayName": name,
            "description": f"{name} (simulated)",
            "supportsEffort": True,
            "supportedEffortLevels": ["low", "medium", "high", "xhigh", "max"],
            "supportsAdaptiveThinking": True,
            "supportsAutoMode": True,
            "supportsThinkingOff": False,
        }
        for value, resolved, name in rows
    ]


def api_key_source() -> str:
    return "ANTHROPIC_API_KEY" if os.environ.get("ANTHROPIC_API_KEY") else "none"


def initialization(model: str, version: str, mode: str, state: str) -> dict[str, Any]:
    """Build the `response` of an initialize answer."""
    return {
        "commands": [{"name": name, "description": f"{name} (simulated)", "argumentHint": "", "builtin": True} for name in COMMANDS],
        "agents": [{"name": name, "description": f"{name} (simulated)"} for name in AGENTS],
        "output_style": "default",
        "available_output_styles": OUTPUT_STYLES,
        "models": models(model),
        "account": {"tokenSource": "none", "apiKeySource": api_key_source(), "apiProvider": "firstParty"},
        "pid": os.getpid(),
        "claude_code_version": version,
        "current_permission_mode": mode,
        "hook_on_failure_supported": True,
        "analytics_disabled": True,
        **FAST_MODE,
        "session_state": state,
        "capabilities": CAPABILITIES,
    }


def system_init(model: str, version: str, mode: str, asks: bool) -> dict[str, Any]:
    """Build a `system/init` frame without its ids."""
    cwd = os.getcwd()  # noqa: PTH109 - pathlib costs 5 ms
    return {
        "type": "system",
        "subtype": "init",
        "cwd": cwd,
        "tools": [*TOOLS, *(ASKING_TOOLS if asks else ())],
        "mcp_servers": [],
        "model": model,
        "permissionMode": mode,
        "slash_commands": [*SKILLS, *COMMANDS],
        "terminal_slash_commands": [],
        "apiKeySource": api_key_source(),
        "claude_code_version": version,
        "output_style": "default",
        "agents": AGENTS,
        "skills": SKILLS,
        "plugins": [],
        "capabilities": INIT_CAPABILITIES,
        "analytics_disabled": True,
        "product_feedback_disabled": True,
        "served_by_anthropic": False,
        "memory_paths": {},
        "original_cwd": cwd,
        "additional_directories": [],
        "messaging_socket_path": "",
        **FAST_MODE,
        "per_turn_effort_active": True,
        "ultrathink_available": False,
        "ultrathink_typed_raises": False,
        "view_mode": "default",
    }


def settings(model: str) -> dict[str, Any]:
    """Build the `response` of `get_settings`, of a CLI without any settings."""
    applied = {
        "model": model,
        "effort": "medium",
        "advisor": None,
        "ultracode": False,
        "ultracodeRequested": False,
        "ultracodeAvailable": True,
        "ultrathinkAvailable": False,
        "outsideFileToolReadsBlocked": False,
        "outsideFileToolWritesBlocked": False,
        "outsideBlocksCountLaunchFoldersOnly": False,
        "launchEnvLeftOwnFilesInPlace": False,
    }
    return {"effective": {}, "sources": [], "served_settings_state": "ineligible", "applied": applied}


def context_usage(model: str) -> dict[str, Any]:
    """Build the `response` of `get_context_usage`."""
    used = {"id": "system_prompt", "name": "System prompt", "tokens": 100, "color": "promptBorder", "kind": "used"}
    return {
        "categories": [used],
        "totalTokens": 100,
        "maxTokens": 1_000_000,
        "rawMaxTokens": 1_000_000,
        "autocompactSource": "model-default",
        "percentage": 0,
        "gridRows": [],
        "model": model,
        "memoryFiles": [],
        "mcpTools": [],
        "agents": [],
        "skills": {"totalSkills": 0, "includedSkills": 0, "tokens": 0, "skillFrontmatter": []},
        "autoCompactThreshold": 967_000,
        "isAutoCompactEnabled": True,
        "messageBreakdown": {
            "toolCallTokens": 0,
            "toolResultTokens": 0,
            "attachmentTokens": 0,
            "assistantMessageTokens": 0,
            "userMessageTokens": 0,
            "redirectedContextTokens": 0,
            "unattributedTokens": 0,
            "toolCallsByType": [],
            "attachmentsByType": [],
        },
        "apiUsage": None,
    }


def turn_usage(tokens_in: int, tokens_out: int) -> dict[str, Any]:
    """Build the `usage` of a result frame."""
    return {
        "input_tokens": tokens_in,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": tokens_out,
        "output_tokens_details": {"thinking_tokens": 0},
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": "standard",
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
        "inference_geo": "",
        "iterations": [],
        "speed": "standard",
        "fallback_credit": None,
    }


def model_usage(model: str, tokens_in: float, tokens_out: float, cost: float) -> dict[str, Any]:
    """Build the `modelUsage` of a result frame."""
    return {
        model: {
            "inputTokens": tokens_in,
            "outputTokens": tokens_out,
            "cacheReadInputTokens": 0,
            "cacheCreationInputTokens": 0,
            "webSearchRequests": 0,
            "costUSD": cost,
            "contextWindow": 1_000_000,
            "maxOutputTokens": 128_000,
            "thinkingTokens": 0,
            "canonicalModel": model,
            "provider": "firstParty",
            "costBasis": "list",
        }
    }
