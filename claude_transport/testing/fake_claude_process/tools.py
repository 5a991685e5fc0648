"""A tool call from request to result, and the questions the fake asks its host."""

from __future__ import annotations

from .speech import begin_message, end_message, say_block, say_tool_result
from .stage import TurnAborted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .stage import Stage

INVALID_ANSWER = (
    "The canUseTool callback returned an invalid permission result. Expected {behavior: 'allow', updatedInput?: object} or "
    "{behavior: 'deny', message: string}. updatedPermissions may hold at most 4096 updates, rules and directories in all."
)
STREAM_CLOSED = "AbortError: Tool permission stream closed before response received"  # recording 20k


def ask(stage: Stage, body: dict[str, Any], *, wait: bool = True, timeout: float | None = None) -> dict[str, Any]:
    """The `response` of the host's answer; an `error` of our own making when the time or the input is over before it comes."""
    request_id = stage.uuid()
    stage.pending[request_id] = body
    stage.emit({"type": "control_request", "request_id": request_id, "request": body})
    if not wait:
        return {"subtype": "success"}
    answered = stage.wait(timeout, lambda: request_id in stage.answers or stage.input.ended)
    stage.pending.pop(request_id, None)
    if request_id in stage.answers:
        return stage.answers.pop(request_id)
    if not answered:
        stage.emit({"type": "control_cancel_request", "request_id": request_id})
        return {"subtype": "error", "error": "timed out"}
    return {"subtype": "error", "error": STREAM_CLOSED}


def needs_asking(stage: Stage, name: str, ask_always: bool | None) -> bool | None:
    """True: ask the host; False: run it; None: nobody can be asked, refuse it (recording 04h)."""
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
        text = f"{name} needs approval, and nobody can be asked in this session."
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
