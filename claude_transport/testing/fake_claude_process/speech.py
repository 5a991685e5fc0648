"""The output of the simulated model: API messages, streamed or whole, tool calls, results, and the end of an aborted turn."""

from __future__ import annotations

from . import payloads
from .stage import TurnAborted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .stage import Stage

START_USAGE = {"input_tokens": 12, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
DELTA_CHARACTERS = 8  # the size of the text deltas in recording 03
INVALID_ANSWER = (
    "The canUseTool callback returned an invalid permission result. Expected {behavior: 'allow', updatedInput?: object} or "
    "{behavior: 'deny', message: string}. updatedPermissions may hold at most 4096 updates, rules and directories in all."
)
PLAIN_RESULT: dict[str, Any] = {  # what `steps.Result()` is, as a test compares
    "step": "result",
    "text": None,
    "subtype": "success",
    "is_error": False,
    "terminal_reason": "completed",
    "stop_reason": "end_turn",
    "api_error_status": None,
    "errors": [],
    "input_tokens": 12,
    "output_tokens": 7,
    "cost_usd": 0.000188,
    "extra": {},
}
STREAM_CLOSED = "AbortError: Tool permission stream closed before response received"  # recording 20k
REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the new_string was NOT "
    "written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)


def _api_message(stage: Stage, content: list[dict[str, Any]], model: str | None = None) -> dict[str, Any]:
    return {
        "id": stage.message_id,
        "type": "message",
        "role": "assistant",
        "model": model or stage.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": dict(START_USAGE),
    }


def new_message(stage: Stage) -> None:
    """Start a new API call with a new id."""
    stage.message_id = stage.short_id("msg")
    if stage.turn is not None:
        stage.turn.model_calls += 1


def begin_message(stage: Stage) -> None:
    """Start a new API call; with partial messages, also send `system/status` and `message_start` (recording 03)."""
    new_message(stage)
    if stage.partial:
        uuids = stage.turn.uuids if stage.turn is not None else []
        stage.emit(
            {"type": "system", "subtype": "status", "status": "requesting", **({"user_message_uuids": list(uuids)} if uuids else {})}
        )
        event = {"type": "message_start", "message": _api_message(stage, [])}
        marks = stage.turn.marks("stream_event") if stage.turn is not None else {}
        _stream(stage, event, ttft_ms=10, thinking_display="updates", **marks)


def _stream(stage: Stage, event: dict[str, Any], **extra: Any) -> None:
    if stage.partial:
        frame = {"type": "stream_event", "event": event, "parent_tool_use_id": None, "api_message_id": stage.message_id}
        stage.emit({**frame, **extra})


def end_message(stage: Stage, stop_reason: str | None) -> None:
    _stream(stage, {"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": None}, "usage": {"output_tokens": 7}})
    _stream(stage, {"type": "message_stop"})


def say_block(stage: Stage, block: dict[str, Any], *, model: str | None = None, **extra: Any) -> None:
    """Send one `assistant` frame with one block, as the CLI does."""
    marks = stage.turn.marks("assistant") if stage.turn is not None else {}
    frame = {
        "type": "assistant",
        "message": {**_api_message(stage, [block], model), "context_management": None},
        "parent_tool_use_id": None,
        "timestamp": stage.timestamp(),
        "request_id": "req_fake",
    }
    stage.emit({**frame, **marks, **extra})


def say_text(stage: Stage, step: dict[str, Any]) -> None:
    text = stage.fill(step["text"])
    chunks = step["chunks"] or cut(text, by_word=step["by_word"])
    pace = step["pace"]
    if step["at_most"] is not None and chunks:
        pace = min(pace, step["at_most"] / len(chunks))
    begin_message(stage)
    _stream(stage, {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    said = {"text": ""}
    if stage.turn is not None:
        stage.turn.said = said
    for position, chunk in enumerate(chunks):
        stage.wait(pace)
        if step["gate"] is not None and position == len(chunks) - 1:
            stage.wait_for_file(step["gate"])
        said["text"] += chunk
        _stream(stage, {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": chunk}})
    if stage.turn is not None:
        stage.turn.said, stage.turn.text = None, text
    # the whole block comes before its own stop event, docs/reference/protocol.md#partial-messages
    say_block(stage, {"type": "text", "text": text})
    _stream(stage, {"type": "content_block_stop", "index": 0})
    end_message(stage, "end_turn")


def cut(text: str, *, by_word: bool) -> list[str]:
    """Cut the text into pieces: words, or `DELTA_CHARACTERS` each."""
    if not by_word:
        return [text[start : start + DELTA_CHARACTERS] for start in range(0, len(text), DELTA_CHARACTERS)]
    words = text.split(" ")
    return [f"{word} " for word in words[:-1]] + words[-1:]


def say_assistant(stage: Stage, step: dict[str, Any]) -> None:
    new_message(stage)
    for block in stage.fill(step["content"]):
        if block.get("type") == "text" and stage.turn is not None:
            stage.turn.text = block.get("text", "")
        say_block(stage, block, model=step["model"], **stage.fill(step["extra"]))


def say_tool_result(stage: Stage, content: Any, *, is_error: bool, result: Any, meta: dict[str, Any]) -> None:
    """Send the `user` frame with the result of a tool (recordings 04a, 04b)."""
    block = {"type": "tool_result", "content": content, "is_error": is_error, "tool_use_id": stage.tool_use_id}
    frame = {
        "type": "user",
        "message": {"role": "user", "content": [block]},
        "parent_tool_use_id": None,
        "timestamp": stage.timestamp(),
        "tool_use_result": result,
        "tool_result_meta": [{"id": stage.tool_use_id, **meta}],
    }
    stage.emit(frame)


def say_result(stage: Stage, step: dict[str, Any]) -> None:
    """Send the frame that ends the turn, then the states that follow it: idle, completed (recordings 02f, 10i)."""
    turn = stage.turn
    for uuid in turn.folded if turn is not None else ():
        stage.lifecycle(uuid, "completed")  # a folded message completes just before the shared result (recording 10f)
    stage.emit(result_frame(stage, step))
    stage.results += 1
    stage.failed = bool(step["is_error"])
    if turn is not None:
        turn.has_result = True
    if turn is not None and not turn.finished:
        turn.finished = True
        stage.change_state("idle")
        for uuid in turn.uuids:
            if uuid not in turn.folded:
                stage.lifecycle(uuid, step.get("lifecycle", "completed"))


def result_frame(stage: Stage, step: dict[str, Any]) -> dict[str, Any]:
    """Build a `result` frame with its keys in the recorded order; `type` is not first (docs/reference/protocol.md#key-order)."""
    turn = stage.turn
    tokens_in, tokens_out, cost = step["input_tokens"], step["output_tokens"], step["cost_usd"]
    stage.totals = [stage.totals[0] + tokens_in, stage.totals[1] + tokens_out, stage.totals[2] + cost]
    frame: dict[str, Any] = {
        "duration_api_ms": 10,
        "stop_reason": step["stop_reason"],
        "session_id": stage.session_id,
        "total_cost_usd": stage.totals[2],
        "usage": payloads.turn_usage(tokens_in, tokens_out),
        "modelUsage": payloads.model_usage(stage.model, *stage.totals),
        "permission_denials": list(turn.denials) if turn is not None else [],
    }
    if step["terminal_reason"] is not None:
        frame["terminal_reason"] = step["terminal_reason"]
    calls = step.get("num_turns", max(turn.model_calls if turn is not None else 1, 1))
    frame |= {**payloads.FAST_MODE, "subagent_stats": payloads.NO_SUBAGENTS, "safety_stops": 0, "is_error": step["is_error"]}
    frame |= {"num_turns": calls, "subtype": step["subtype"]}
    if step["subtype"] == "success":
        text = stage.fill(step["text"]) if step["text"] is not None else (turn.text if turn is not None else "")
        frame |= {"api_error_status": step["api_error_status"], "result": text, "ttft_ms": 10}
    else:
        frame["errors"] = list(step["errors"])
    frame |= {"type": "result", "duration_ms": 20, "uuid": stage.uuid()}
    if turn is not None and turn.uuids:
        frame |= {"user_message_uuid": turn.uuids[0], "user_message_uuids": list(turn.uuids)}
    frame |= {"queued_turn_count": 0, "result_index": stage.results}
    frame["model_usage_since_last_result"] = payloads.model_usage(stage.model, tokens_in, tokens_out, cost)
    return {**frame, **stage.fill(step["extra"])}


def end_aborted_turn(stage: Stage, aborted: TurnAborted) -> None:
    """Send the frames of an aborted turn: 07a (text), 07g (tool), 10c (urgent message), 04c (denied with interrupt)."""
    turn = stage.turn
    if turn is None or turn.finished:
        return
    in_tool = turn.tool is not None
    if turn.said is not None and turn.said["text"]:
        turn.text = turn.said["text"]
        turn.marked.discard("assistant")
        say_block(stage, {"type": "text", "text": turn.text}, aborted=True)
    if turn.tool is not None:
        meta = {"non_execution_kind": "user-rejected"}
        say_tool_result(stage, REJECTED, is_error=True, result="User rejected tool use", meta=meta)
    if aborted.by != "now":
        words = "[Request interrupted by user for tool use]" if in_tool else "[Request interrupted by user]"
        message = {"role": "user", "content": [{"type": "text", "text": words}]}
        stage.emit({"type": "user", "message": message, "parent_tool_use_id": None, "timestamp": stage.timestamp()})
    if turn.said is not None:
        _stream(stage, {"type": "content_block_stop", "index": 0})
        end_message(stage, None)
    reason = "tool_use" if in_tool else "null"
    step: dict[str, Any] = {
        "text": turn.text,
        "subtype": "error_during_execution",
        "is_error": True,
        "terminal_reason": "aborted_tools" if in_tool else "aborted_streaming",
        "stop_reason": "tool_use" if in_tool else None,
        "api_error_status": None,
        "errors": [f"[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={reason}"],
        "input_tokens": 0,
        "output_tokens": 0,
        "cost_usd": 0.0,
        "extra": {},
        "num_turns": 3 if in_tool else 2,
        "lifecycle": "cancelled",
    }
    if aborted.by == "now":
        step |= {"subtype": "success", "is_error": False, "num_turns": 1}
    say_result(stage, step)


def ask(stage: Stage, body: dict[str, Any], *, wait: bool = True, timeout: float | None = None) -> dict[str, Any]:
    """Ask the host, and return the `response` of its answer. When the time or the input ends first, return an `error` instead."""
    request_id = stage.uuid()
    stage.pending[request_id] = body
    stage.emit({"type": "control_request", "request_id": request_id, "request": body})
    if not wait:
        return {"subtype": "success"}
    stage.input.held = False
    answered = stage.wait(timeout, lambda: request_id in stage.answers or stage.input.ended)
    stage.pending.pop(request_id, None)
    if request_id in stage.answers:
        return stage.answers.pop(request_id)
    if not answered:
        stage.emit({"type": "control_cancel_request", "request_id": request_id})
        return {"subtype": "error", "error": "timed out"}
    return {"subtype": "error", "error": STREAM_CLOSED}


def needs_asking(stage: Stage, name: str, ask_always: bool | None) -> bool | None:
    """Return True to ask the host, False to run the tool, None to refuse it because no host can be asked (recording 04h)."""
    if ask_always is not None:
        return ask_always
    allowed = (stage.option("--allowedTools") or stage.option("--allowed-tools")).replace(",", " ").split()
    if name in allowed or stage.mode == "bypassPermissions":
        return False
    return True if stage.option("--permission-prompt-tool") else None


def use_tool(stage: Stage, step: dict[str, Any]) -> None:
    name, given = step["name"], stage.fill(step["input"])
    stage.tool_use_id = stage.short_id("toolu")
    call = {"tool_name": name, "tool_use_id": stage.tool_use_id, "tool_input": given}
    begin_message(stage)
    say_block(stage, {"type": "tool_use", "id": stage.tool_use_id, "name": name, "input": given})
    end_message(stage, "tool_use")
    decision = needs_asking(stage, name, step["ask"])
    if decision is None:
        text = f"{name} needs approval, but this session has no permission prompt."
        denied = {"type": "system", "subtype": "permission_denied", "tool_name": name, "tool_use_id": stage.tool_use_id, "message": text}
        stage.emit(denied)
        _refuse(stage, call, text, source="config")
    elif decision is False:
        _run(stage, step, source="config")
    else:
        _decide(stage, step, call)


def _decide(stage: Stage, step: dict[str, Any], call: dict[str, Any]) -> None:
    body = {
        "subtype": "can_use_tool",
        "tool_name": call["tool_name"],
        "display_name": call["tool_name"],
        "input": call["tool_input"],
        **({"description": step["description"]} if step["description"] else {}),
        "permission_suggestions": [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}],
        "tool_use_id": call["tool_use_id"],
    }
    if stage.turn is not None:
        stage.turn.tool = call
    stage.change_state("requires_action")
    try:
        response = ask(stage, body)
    except TurnAborted:
        if stage.turn is not None:
            stage.turn.denials.append(call)  # an undecided call counts as denied (recording 07g)
        raise
    stage.change_state("running")
    answer = response.get("response")
    behavior = answer.get("behavior") if isinstance(answer, dict) else None
    if response.get("subtype") == "error":
        _refuse(stage, call, f"Tool permission request failed: {response.get('error', '')}", source="config")
    elif behavior == "allow":
        _run(stage, step, source="user_temporary")
    elif isinstance(answer, dict) and behavior == "deny" and isinstance(answer.get("message"), str):
        if answer.get("interrupt"):
            if stage.turn is not None:
                stage.turn.denials.append(call)
            raise TurnAborted("deny")
        _refuse(stage, call, answer["message"], source="user_reject")
    else:
        _refuse(stage, call, INVALID_ANSWER, source="config")
    if stage.turn is not None:
        stage.turn.tool = None


def _run(stage: Stage, step: dict[str, Any], *, source: str) -> None:
    output = stage.fill(step["output"])
    failed = step["is_error"]
    result: Any = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    meta = {"permission_decision": {"decision": "accept", "source": source}}
    say_tool_result(stage, output, is_error=failed, result=f"Error: {output}" if failed else result, meta=meta)


def _refuse(stage: Stage, call: dict[str, Any], text: str, *, source: str) -> None:
    if stage.turn is not None:
        stage.turn.denials.append(call)
    decision = {"decision": "reject", "source": source}
    meta = {"non_execution_kind": "permission-rule", "permission_decision": decision}
    say_tool_result(stage, text, is_error=True, result=f"Error: {text}", meta=meta)
