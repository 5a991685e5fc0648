"""The output of the simulated model: API messages, streamed or whole, tool calls, results, and the end of an aborted turn."""

from __future__ import annotations

from . import payloads
from .stage import STREAM_CLOSED, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .stage import Stage, TurnAborted

START_USAGE = {"input_tokens": 12, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
SYNTHETIC = "<synthetic>"  # the model of messages that the CLI writes itself, as about an error of the API; it streams none of them
DELTA_CHARACTERS = 8  # the size of the text deltas in recording 03
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


def begin_message(stage: Stage, model: str | None = None) -> None:
    """Start a new API call; with partial messages, also send `system/status` and `message_start`."""
    new_message(stage)
    if stage.partial and stage.agent is None:
        uuids = stage.turn.uuids if stage.turn is not None else []
        stage.emit(
            {"type": "system", "subtype": "status", "status": "requesting", **({"user_message_uuids": list(uuids)} if uuids else {})}
        )
        event = {"type": "message_start", "message": _api_message(stage, [], model)}
        marks = stage.turn.marks("stream_event") if stage.turn is not None else {}
        _stream(stage, event, ttft_ms=10, thinking_display="updates", **marks)


def _stream(stage: Stage, event: dict[str, Any], **extra: Any) -> None:
    if stage.partial and stage.agent is None:
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
        **stage.kinship(),
        "timestamp": stage.timestamp(),
        "request_id": "req_fake",
    }
    stage.emit({**frame, **marks, **extra})


def say_streamed(stage: Stage, block: dict[str, Any], *, index: int = 0, model: str | None = None, **extra: Any) -> None:
    """Send one block; with partial messages, also the events of its stream."""
    begun, deltas = _pieces(block)
    _stream(stage, {"type": "content_block_start", "index": index, "content_block": begun}, **_display(begun))
    for delta in deltas:
        _stream(stage, {"type": "content_block_delta", "index": index, "delta": delta}, **_display(delta))
    # the whole block comes before its own stop event, docs/reference/protocol.md#partial-messages
    say_block(stage, block, model=model, **extra)
    _stream(stage, {"type": "content_block_stop", "index": index})


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return how a block begins in a stream, and what is added to it."""
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in cut(block.get("text", ""))]
    if kind == "thinking":
        thought = {"type": "thinking_delta", "thinking": block.get("thinking", "")}
        signed = {"type": "signature_delta", "signature": block.get("signature", "")}
        return {"type": "thinking", "thinking": "", "signature": ""}, [thought, signed]
    if kind == "tool_use":
        written = encode(block.get("input", {})).decode().strip()
        half = len(written) // 2
        pieces = ("", written[:half], written[half:])  # the API begins with an empty one
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block, []


def _display(piece: dict[str, Any]) -> dict[str, Any]:
    return {"thinking_display": "updates"} if piece.get("type") in ("thinking", "thinking_delta") else {}


def say_text(stage: Stage, step: dict[str, Any]) -> None:
    text = stage.fill(step["text"], kind=str, field="text")
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
    if stage.agent is not None and not stage.forwards_subagents:
        return  # what a subagent says stays with it, unless the host has asked for it (`forwardSubagentText`)
    # the whole block comes before its own stop event, docs/reference/protocol.md#partial-messages
    say_block(stage, {"type": "text", "text": text})
    _stream(stage, {"type": "content_block_stop", "index": 0})
    end_message(stage, "end_turn")


def cut(text: str, *, by_word: bool = False) -> list[str]:
    """Cut the text into pieces: words, or `DELTA_CHARACTERS` each."""
    if not by_word:
        return [text[start : start + DELTA_CHARACTERS] for start in range(0, len(text), DELTA_CHARACTERS)]
    words = text.split(" ")
    return [f"{word} " for word in words[:-1]] + words[-1:]


def say_assistant(stage: Stage, step: dict[str, Any]) -> None:
    model, extra, used = step["model"], stage.fill(step["extra"]), False
    streams = model != SYNTHETIC
    if streams:
        begin_message(stage, model)
    else:
        new_message(stage)
    for index, block in enumerate(stage.fill(step["content"], kind=list, field="content")):
        used = used or block.get("type") == "tool_use"
        if block.get("type") == "text" and stage.turn is not None:
            stage.turn.text = block.get("text", "")
        if streams:
            say_streamed(stage, block, index=index, model=model, **extra)
        else:
            say_block(stage, block, model=model, **extra)
    if streams:
        end_message(stage, "tool_use" if used else "end_turn")


def say_tool_result(
    stage: Stage, content: Any, *, tool_use_id: str, is_error: bool | None, result: Any, meta: dict[str, Any] | None
) -> None:
    """Send the `user` frame with the result of a tool. `is_error=None` leaves the key out, as for MCP."""
    marked = {} if is_error is None else {"is_error": is_error}
    block = {"type": "tool_result", "content": content, **marked, "tool_use_id": tool_use_id}
    frame: dict[str, Any] = {
        "type": "user",
        "message": {"role": "user", "content": [block]},
        **stage.kinship(),
        "timestamp": stage.timestamp(),
    }
    if stage.agent is None:
        frame["tool_use_result"] = result
    if meta is not None:
        frame["tool_result_meta"] = [{"id": tool_use_id, **meta}]
    if stage.turn is not None:
        stage.turn.user_messages += 1
    stage.emit(frame)


def say_result(stage: Stage, step: dict[str, Any]) -> None:
    """Send the frame that ends the turn, then the states that follow it: idle, completed.

    A session with a background agent is not idle before the result of the turn that the end of the agent starts
    (docs/reference/protocol.md#background-work).
    """
    turn = stage.turn
    for uuid in turn.folded if turn is not None else ():
        stage.lifecycle(uuid, "completed")  # a folded message completes just before the shared result (recording 10f)
    stage.emit(result_frame(stage, step))
    stage.results += 1
    stage.failed = bool(step["is_error"])
    if turn is not None:
        turn.has_result = True
    is_first = turn is not None and not turn.finished
    if (is_first or stage.session_state == "running") and not stage.has_agents:
        stage.change_state("idle")
    if turn is not None and is_first:
        turn.finished = True
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
    calls = step.get("num_turns", max(turn.model_calls, 1 + turn.user_messages) if turn is not None else 1)
    frame |= {**payloads.FAST_MODE, "subagent_stats": payloads.NO_SUBAGENTS, "safety_stops": 0, "is_error": step["is_error"]}
    frame |= {"num_turns": calls, "subtype": step["subtype"]}
    if step["subtype"] == "success":
        text = stage.fill(step["text"], kind=str, field="text") if step["text"] is not None else (turn.text if turn is not None else "")
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
        call_id = turn.tool["tool_use_id"]
        say_tool_result(stage, REJECTED, tool_use_id=call_id, is_error=True, result="User rejected tool use", meta=meta)
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


def ask(
    stage: Stage, body: dict[str, Any], *, wait: bool = True, timeout: float | None = None, may_be_refused: bool = False
) -> dict[str, Any]:
    """Ask the host, and return the `response` of its answer. When the time or the input ends first, return an `error` instead.

    An error of the host fails a strict run, unless it `may_be_refused`.
    """
    request_id = stage.uuid()
    stage.pending[request_id] = body
    if may_be_refused:
        stage.may_be_refused.add(request_id)
    stage.at(f"the answer to {body['subtype']}")
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
    stage.cut("the end of the input")
    return {"subtype": "error", "error": STREAM_CLOSED}
