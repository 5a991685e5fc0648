"""A value of every field of the installed `ClaudeAgentOptions` that is not its default."""

from __future__ import annotations

from typing import Any

import claude_agent_sdk as sdk


async def decide(_tool: str, _input: dict[str, Any], _context: Any) -> Any: ...


async def hook(_given: Any, _tool_use_id: str | None, _context: Any) -> Any: ...


SET: dict[str, Any] = {
    "tools": ["Bash"],
    "allowed_tools": ["Read"],
    "system_prompt": "Be brief.",
    "mcp_servers": {"outside": {"type": "stdio", "command": "true"}},
    "strict_mcp_config": True,
    "permission_mode": "plan",
    "continue_conversation": True,
    "resume": "a session",
    "session_id": "0b0e7b1c-6b6c-4a7e-9f39-2d1f6a1f8f10",
    "max_turns": 3,
    "max_budget_usd": 0.5,
    "disallowed_tools": ["WebFetch"],
    "model": "haiku",
    "fallback_model": "opus",
    "betas": ["context-1m-2025-08-07"],
    "permission_prompt_tool_name": "stdio",
    "cwd": "/tmp",
    "cli_path": "/bin/true",
    "settings": "{}",
    "add_dirs": ["/tmp"],
    "env": {"A": "b"},
    "extra_args": {"replay-user-messages": None},
    "max_buffer_size": 10,
    "debug_stderr": None,
    "stderr": print,
    "can_use_tool": decide,
    "hooks": {"Stop": [sdk.HookMatcher(hooks=[hook])]},
    "user": "nobody",
    "include_partial_messages": True,
    "include_hook_events": True,
    "forward_subagent_text": True,
    "verbatim_prompts": True,
    "fork_session": True,
    "resume_session_at": "0b0e7b1c-6b6c-4a7e-9f39-2d1f6a1f8f11",
    "resume_drops_turn": "0b0e7b1c-6b6c-4a7e-9f39-2d1f6a1f8f12",
    "agents": {"one": sdk.AgentDefinition(description="d", prompt="p")},
    "setting_sources": ["user"],
    "skills": ["one"],
    "sandbox": {"enabled": True},
    "plugins": [{"type": "local", "path": "/tmp"}],
    "max_thinking_tokens": 5,
    "thinking": {"type": "adaptive"},
    "effort": "low",
    "output_format": {"type": "json_schema", "schema": {"type": "object"}},
    "enable_file_checkpointing": True,
    "session_store": sdk.InMemorySessionStore(),
    "session_store_flush": "eager",
    "load_timeout_ms": 1,
    "task_budget": {"total": 10},
    "client_app": "app/1",
}
