"""`tool_call_of`: an item of Codex as a call of a tool, with its input, its output and how it ended. Traces and the inspector use it."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from claude_transport.codex.items import (
    AnyItem,
    CommandExecutionItem,
    DynamicToolCallItem,
    FileChangeItem,
    McpToolCallItem,
    UnknownItem,
    WebSearchItem,
)
from claude_transport.protocol.envelope import to_wire

CallStatus: TypeAlias = Literal["open", "ok", "error", "denied"]

_STATUSES: dict[str, CallStatus] = {"inProgress": "open", "failed": "error", "declined": "denied"}


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool. `name` is the type of its item, or the name of the tool that this program or an MCP server has.

    `status` is `open` while it runs; then `ok`, `error`, or `denied` when it was not allowed. `output` is None until it ends.
    """

    name: str
    input: dict[str, Any]
    output: Any
    status: CallStatus


def tool_call_of(item: AnyItem, *, is_over: bool) -> ToolCall | None:
    """Return the call that `item` is, or None for a message, a thought, and other items that call nothing.

    `is_over` is True for an item that is complete: some have no status of their own.
    """
    told = _told(item)
    if told is None:
        return None
    name, given, output, status = told
    known: CallStatus = _STATUSES.get(status, "ok") if status or is_over else "open"
    if isinstance(item, CommandExecutionItem) and known == "ok" and item.exit_code:
        known = "error"
    if is_over and known == "open":
        known = "ok"
    return ToolCall(name=name, input=given, output=output if is_over else None, status=known)


def _told(item: AnyItem) -> tuple[str, dict[str, Any], Any, str] | None:
    """Return name, input, output and status of a call."""
    match item:
        case CommandExecutionItem():
            return item.type, {"command": item.command, "cwd": item.cwd}, item.aggregated_output, item.status
        case FileChangeItem():
            paths = ", ".join(change.path for change in item.changes)
            return item.type, {"path": paths, "changes": to_wire(item.changes)}, None, item.status
        case DynamicToolCallItem():
            failed = "failed" if item.success is False else item.status
            return item.tool or item.type, _fields(item.arguments), item.content_items, failed
        case McpToolCallItem():
            name = f"{item.server}/{item.tool}" if item.server else item.tool
            return name or item.type, _fields(item.arguments), item.error if item.error is not None else item.result, item.status
        case WebSearchItem():
            return item.type, {"query": item.query}, item.results, ""
        case UnknownItem() if isinstance(status := item.data.get("status"), str):
            given = {name: value for name, value in item.data.items() if name not in ("type", "id", "status")}
            return item.type or "item", given, None, status
        case _:
            return None


def _fields(arguments: Any) -> dict[str, Any]:
    return arguments if isinstance(arguments, dict) else {} if arguments is None else {"arguments": arguments}
