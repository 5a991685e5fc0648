"""What hooks are told about tools."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import field

from claude_transport.protocol.control import PermissionUpdate
from claude_transport.protocol.envelope import Number, Part
from claude_transport.protocol.hooks.hook_input import HookInput, HookMcpServer

__all__ = [
    "PermissionDeniedInput",
    "PermissionRequestInput",
    "PostToolBatchInput",
    "PostToolUseFailureInput",
    "PostToolUseInput",
    "PreToolUseInput",
    "ToolCallRecord",
    "ToolHookInput",
]


class ToolHookInput(HookInput, frozen=True, kw_only=True):
    """What all events about one tool call have; `mcp_server` with a tool of an MCP server."""

    essential: ClassVar[frozenset[str]] = frozenset({"tool_name", "tool_input"})

    tool_name: str = ""
    tool_input: dict[str, Any] = field(default_factory=dict)
    mcp_server: HookMcpServer | None = None


class PreToolUseInput(ToolHookInput, frozen=True, kw_only=True):
    """A tool is about to run. [05a, 05c]"""

    tool_use_id: str = ""


class PostToolUseInput(ToolHookInput, frozen=True, kw_only=True):
    """A tool has run; `tool_response` is its own structure, `duration_ms` is without the waiting for permission. [05a]"""

    tool_use_id: str = ""
    tool_response: Any = None
    duration_ms: Number | None = None


class PostToolUseFailureInput(ToolHookInput, frozen=True, kw_only=True):
    """A tool has failed: `error` is what the model is told."""

    tool_use_id: str = ""
    error: str = ""
    is_interrupt: bool | None = None
    duration_ms: Number | None = None


class PermissionRequestInput(ToolHookInput, frozen=True, kw_only=True):
    """Permission is asked for; there is no tool use id. [05b]"""

    permission_suggestions: tuple[PermissionUpdate, ...] = ()


class PermissionDeniedInput(ToolHookInput, frozen=True, kw_only=True):
    """The auto mode has refused a tool, for `reason`."""

    tool_use_id: str = ""
    reason: str = ""


class ToolCallRecord(Part, frozen=True, kw_only=True):
    """One call of a batch; `tool_response` is what the model is told."""

    tool_name: str = ""
    tool_input: dict[str, Any] = field(default_factory=dict)
    tool_use_id: str = ""
    tool_response: Any = None


class PostToolBatchInput(HookInput, frozen=True, kw_only=True):
    """Every call of one model message has run, well or not. [05a, 05b]"""

    tool_calls: tuple[ToolCallRecord, ...] = ()
