"""Messages as the CLI writes them, for mocks and fakes: `assistant()`, `hook_callback()`, `result()` fill in everything but the content.

What a model answers to the CLI, one layer below, is in `replies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any
from uuid import uuid4

from claude_transport.errors import ConfigurationError
from claude_transport.testing.fake_claude_process.payloads import FAST_MODE, NO_SUBAGENTS, model_usage, turn_usage

__all__ = [
    "assistant",
    "can_use_tool",
    "compaction",
    "hook_callback",
    "rate_limit",
    "result",
    "stream_event",
    "streamed",
    "subagent",
    "thinking",
    "tool_result",
    "tool_use",
]

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
    return assistant([block], parent_tool_use_id=parent_tool_use_id, **{"request_id": "req_mock", **fields})


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


_TIMESTAMP = "2026-01-01T00:00:00.000Z"
_COMMON_INPUT = {"session_id": SESSION_ID, "transcript_path": "/tmp/transcript.jsonl", "cwd": "/tmp"}  # noqa: S108 - no file
_ABOUT_A_TOOL: dict[str, Any] = {"tool_name": "Bash", "tool_input": {}}
_INPUTS: dict[str, dict[str, Any]] = {
    "UserPromptSubmit": {"prompt": ""},
    "PreToolUse": _ABOUT_A_TOOL,
    "PostToolUse": {**_ABOUT_A_TOOL, "tool_response": {}, "duration_ms": 30},
    "PostToolBatch": {"tool_calls": []},
    "PermissionRequest": {**_ABOUT_A_TOOL, "permission_suggestions": []},
    "MessageDisplay": {"turn_id": SESSION_ID, "message_id": SESSION_ID, "index": 0, "final": True, "delta": ""},
    "Stop": {"stop_hook_active": False, "last_assistant_message": "", "background_tasks": [], "session_crons": []},
}
"""What a hook's input has besides the common fields, by its event."""


def thinking(text: str, *, parent_tool_use_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """Make the message of a model that thinks `text`. The rest is as in `assistant()`."""
    block = {"type": "thinking", "thinking": text, "signature": "c2lnbmF0dXJl"}
    about = {"request_id": "req_mock", "thinking_duration_ms": 1, "thinking_display": "updates"}
    return assistant([block], parent_tool_use_id=parent_tool_use_id, **{**about, **fields})


def tool_result(
    call: str | Mapping[str, Any],
    content: str | Sequence[Mapping[str, Any]] = "",
    *,
    is_error: bool = False,
    parent_tool_use_id: str | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Make the message with the result of a tool. `call` is the message of `tool_use()`, or the id of the call.

    `content` is a text, or content blocks. `fields` are added to the message, or replace its keys: `tool_use_result={…}` is the result as
    the tool itself has it.
    """
    call_id = _call_id(call)
    blocks = content if isinstance(content, str) else [dict(block) for block in content]
    block = {"tool_use_id": call_id, "type": "tool_result", "content": blocks, "is_error": is_error}
    return {
        "type": "user",
        "message": {"role": "user", "content": [block]},
        "parent_tool_use_id": parent_tool_use_id,
        **_ids(),
        "timestamp": _TIMESTAMP,
        "tool_result_meta": [{"id": call_id, "permission_decision": {"decision": "accept", "source": "config", "reason_type": "rule"}}],
        **fields,
    }


def stream_event(event: Mapping[str, Any], *, parent_tool_use_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """Make the message that passes on one event of the API's stream. `streamed()` makes those of a whole answer."""
    frame: dict[str, Any] = {"type": "stream_event", "event": dict(event), **_ids(), "parent_tool_use_id": parent_tool_use_id}
    if event.get("type") == "message_start":
        frame |= {"ttft_ms": 12, "thinking_display": "updates"}
    return {**frame, "api_message_id": event.get("message", {}).get("id") or f"msg_{uuid4().hex[:24]}", **fields}


def streamed(*pieces: str, parent_tool_use_id: str | None = None) -> list[dict[str, Any]]:
    """Make the messages of a text that arrives in `pieces`: the events of the stream, and the whole message among them.

    A program sees them when it has asked for partial messages.
    """
    whole = assistant("".join(pieces), parent_tool_use_id=parent_tool_use_id)
    message = whole["message"]
    start = {key: message[key] for key in ("id", "type", "role", "model", "stop_reason", "stop_sequence", "usage")}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**start, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}} for piece in pieces),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    frames = [stream_event(event, parent_tool_use_id=parent_tool_use_id, api_message_id=message["id"]) for event in events]
    return [*frames[:-3], whole, *frames[-3:]]  # the message comes before the end of its block [03]


def rate_limit(
    status: str = "allowed",
    *,
    resets_at: int | None = None,
    rate_limit_type: str | None = None,
    info: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Make the message about the limits of a subscription. `status` is `allowed`, `allowed_warning` or `rejected`.

    `resets_at` is a time in seconds since 1970, `rate_limit_type` a window such as `five_hour`. `info` has further keys of
    `rate_limit_info` as the wire spells them.
    """
    given = {"resetsAt": resets_at, "rateLimitType": rate_limit_type}
    known = {key: value for key, value in given.items() if value is not None}
    return {
        "type": "rate_limit_event",
        "rate_limit_info": {"status": status, **known, "isUsingOverage": False, **(info or {})},
        **_ids(),
        **fields,
    }


def can_use_tool(
    name: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the wire name
    *,
    tool_use_id: str | Mapping[str, Any] | None = None,
    permission_suggestions: Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> dict[str, Any]:
    """Make the question whether the tool `name` may be used with `input`. What plays it waits for the answer.

    `tool_use_id` is the id of the call, or the message of `tool_use()`; a new id by default. `fields` are added to the request:
    `description="List files"`, `blocked_path="/etc"`.
    """
    request = {
        "subtype": "can_use_tool",
        "tool_name": name,
        "display_name": name,
        "input": dict(input or {}),
        "permission_suggestions": [dict(suggestion) for suggestion in permission_suggestions],
        "tool_use_id": _call_id(tool_use_id),
    }
    return {"type": "control_request", "request_id": str(uuid4()), "request": {**request, **fields}}


def hook_callback(
    event: str,
    *,
    tool_name: str | None = None,
    tool_input: Mapping[str, Any] | None = None,
    tool_use_id: str | Mapping[str, Any] | None = None,
    callback_id: str | None = None,
    **input_fields: Any,
) -> dict[str, Any]:
    """Make the call of a hook, such as `hook_callback("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})`.

    What plays it calls the first hook that your program has registered for `event`, and waits for the answer. A `MockTransport` calls the
    first whose matcher takes the tool. `callback_id` names another one. `tool_use_id` is as in `can_use_tool()`. `input_fields` are
    further fields of the input; what `event` has besides is filled in.
    """
    about = _call_id(tool_use_id)
    given = {"tool_name": tool_name, "tool_input": None if tool_input is None else dict(tool_input)}
    input_fields |= {key: value for key, value in given.items() if value is not None}
    mode = {} if event == "MessageDisplay" else {"permission_mode": "default"}
    effort = {} if event in {"MessageDisplay", "UserPromptSubmit"} else {"effort": {"level": "medium"}}
    known = {**_COMMON_INPUT, "prompt_id": str(uuid4()), **mode, **effort, "hook_event_name": event, **deepcopy(_INPUTS.get(event, {}))}
    if event in {"PreToolUse", "PostToolUse"}:
        known["tool_use_id"] = about
    called = f"{{{{hook.{event}}}}}" if callback_id is None else callback_id
    request = {"subtype": "hook_callback", "callback_id": called, "input": {**known, **input_fields}, "tool_use_id": about}
    return {"type": "control_request", "request_id": str(uuid4()), "request": request}


def subagent(
    call: str | Mapping[str, Any],
    messages: Sequence[Mapping[str, Any]] = (),
    *,
    description: str = "",
    prompt: str = "",
    subagent_type: str = "general-purpose",
    status: str = "completed",
    summary: str = "",
) -> list[dict[str, Any]]:
    """Make the messages of a subagent: its start, its `messages` with the marks of a subagent, and its end with `summary`, its answer.

    `call` is the message of `tool_use("Agent", {…})` that starts it, or the id of this call. Its input gives `description`, `prompt` and
    `subagent_type` where they are not passed. `status` is `completed`, `failed` or `stopped`.
    """
    call_id, task_id, run_id = _call_id(call), f"a{uuid4().hex[:16]}", f"{uuid4().hex[:9]}-{uuid4().hex[:8]}"
    asked = {} if isinstance(call, str) else _input_of(call)
    description = description or str(asked.get("description", ""))
    subagent_type = str(asked.get("subagent_type", subagent_type))
    task = {"task_id": task_id, "run_id": run_id}
    marks = {"parent_tool_use_id": call_id, "agent_id": task_id, "subagent_type": subagent_type, "task_description": description}
    started = {"description": description, "subagent_type": subagent_type, "is_backgrounded": True, "spawn_depth": 1}
    started |= {"task_type": "local_agent", "prompt": prompt or str(asked.get("prompt", ""))}
    ended = {"status": status, "output_file": f"/tmp/{task_id}.output", "summary": summary, "summary_is_report": True}  # noqa: S108
    used = {"total_tokens": 19, "tool_uses": sum(_is_call(message) for message in messages), "duration_ms": 216}
    patch = {"status": "killed" if status == "stopped" else status, "end_time": 1_767_225_600_000}
    return [
        _system("task_started", **task, tool_use_id=call_id, **started),
        *({**message, **marks} for message in messages),
        _system("task_updated", **task, patch=patch),
        _system("task_notification", **task, tool_use_id=call_id, **ended, usage=used),
    ]


def compaction(*, trigger: str = "manual", pre_tokens: int = 19, post_tokens: int = 2594) -> list[dict[str, Any]]:
    """Make the messages of a compaction: its start, its success, and the boundary behind which only the summary is left.

    `trigger` is `manual` or `auto`. `pre_tokens` and `post_tokens` are the sizes of the conversation.
    """
    last, anchor = str(uuid4()), str(uuid4())
    metadata = {
        "trigger": trigger,
        "pre_tokens": pre_tokens,
        "post_tokens": post_tokens,
        "cumulative_dropped_tokens": 0,
        "duration_ms": 116,
        "preserved_segment": {"head_uuid": last, "anchor_uuid": anchor, "tail_uuid": last},
        "preserved_messages": {"anchor_uuid": anchor, "uuids": [last], "all_uuids": [last]},
    }
    return [
        _system("status", status="compacting"),
        _system("status", status=None, compact_result="success"),
        _system("compact_boundary", compact_metadata=metadata, logical_parent_uuid=last),
    ]


def _ids() -> dict[str, str]:
    return {"session_id": SESSION_ID, "uuid": str(uuid4())}


def _system(subtype: str, **fields: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": subtype, **fields, **_ids()}


def _is_call(message: Mapping[str, Any]) -> bool:
    return message.get("type") == "assistant" and any(block.get("type") == "tool_use" for block in message["message"]["content"])


def _input_of(call: Mapping[str, Any]) -> dict[str, Any]:
    return dict(next(block["input"] for block in call["message"]["content"] if block.get("type") == "tool_use"))


def _call_id(call: str | Mapping[str, Any] | None) -> str:
    """Return the id of a tool call, from the id itself or from the message that makes it; a new one for None."""
    if call is None:
        return f"toolu_{uuid4().hex[:24]}"
    if isinstance(call, str):
        return call
    if not _is_call(call):
        raise ConfigurationError("call: pass a message of tool_use(), or the id of a tool call", option="call")
    return str(next(block["id"] for block in call["message"]["content"] if block.get("type") == "tool_use"))
