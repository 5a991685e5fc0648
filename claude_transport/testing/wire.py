"""Messages as the CLI writes them, for mocks and fakes: `assistant()`, `tool_use()` and `result()` fill in everything but the content.

What a model answers to the CLI, one layer below, is in `replies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any
from uuid import uuid4

from claude_transport.testing.fake_claude_process.payloads import FAST_MODE, NO_SUBAGENTS, model_usage, turn_usage

__all__ = ["assistant", "result", "tool_use"]

MODEL = "claude-opus-5-5"
SESSION_ID = "00000000-0000-4000-8000-000000000000"
"""The session of all messages that are made here, unless they say otherwise."""

_REASONS = {"error_max_turns": "max_turns", "error_max_budget_usd": "budget_exhausted"}


def assistant(content: str | Sequence[Mapping[str, Any]], *, parent_tool_use_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """Make the message of a model that says `content`: a text, or content blocks as the Messages API has them.

    `parent_tool_use_id` is the id of the tool call that started the subagent which says it; None is the main conversation. `fields` are
    added to the message, or replace its keys.
    """
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [dict(block) for block in content]
    message = {
        "id": f"msg_{uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": blocks,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": turn_usage(12, 7),
        "context_management": None,
    }
    frame = {"type": "assistant", "message": message, "parent_tool_use_id": parent_tool_use_id, "timestamp": "2026-01-01T00:00:00.000Z"}
    return {**frame, "session_id": SESSION_ID, "uuid": str(uuid4()), **fields}


def tool_use(
    name: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the wire name
    *,
    id: str | None = None,  # noqa: A002 - the wire name
    parent_tool_use_id: str | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Make the message of a model that calls the tool `name`. `id` is the id of the call, a new one by default. The rest is as in
    `assistant()`.
    """
    block = {"type": "tool_use", "id": id or f"toolu_{uuid4().hex[:24]}", "name": name, "input": dict(input or {})}
    return assistant([block], parent_tool_use_id=parent_tool_use_id, **fields)


def result(
    text: str = "", *, subtype: str = "success", is_error: bool | None = None, api_error_status: int | None = None, **fields: Any
) -> dict[str, Any]:
    """Make the message that ends a turn. `text` is the last text of the model.

    A failed request of the API has `is_error=True` and its `api_error_status`, with the error as `text`; its `subtype` stays `success`.
    With any other subtype, such as `error_max_turns`, the turn has failed, and `text` is its error. `fields` are added to the message, or
    replace its keys: `num_turns=2`, `structured_output={…}`.
    """
    is_success = subtype == "success"
    failed = not is_success if is_error is None else is_error
    frame: dict[str, Any] = {
        "type": "result",
        "subtype": subtype,
        "is_error": failed,
        "duration_ms": 20,
        "duration_api_ms": 10,
        "num_turns": 1,
        "stop_reason": "end_turn",
        "total_cost_usd": 0.000188,
        "usage": turn_usage(12, 7),
        "modelUsage": model_usage(MODEL, 12, 7, 0.000188),
        "model_usage_since_last_result": model_usage(MODEL, 12, 7, 0.000188),
        "permission_denials": [],
        "subagent_stats": deepcopy(NO_SUBAGENTS),
        "safety_stops": 0,
        **FAST_MODE,
        "queued_turn_count": 0,
        "result_index": 0,
        "session_id": SESSION_ID,
        "uuid": str(uuid4()),
    }
    if is_success:
        frame |= {"api_error_status": api_error_status, "result": text}
    else:
        frame["errors"] = [text] if text else []
    reason = terminal_reason(subtype, is_error=failed)
    return {**frame, **({} if reason is None else {"terminal_reason": reason}), **fields}


def terminal_reason(subtype: str, *, is_error: bool) -> str | None:
    """Return the `terminal_reason` that the CLI gives to such a result, or None where it gives none."""
    if subtype == "success":
        return "api_error" if is_error else "completed"
    return _REASONS.get(subtype)
