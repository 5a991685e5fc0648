"""A tool call, from the model's request to its result: hooks, permission, the call itself, hooks again, as CLI 2.1.331 does it."""

from __future__ import annotations

from .hooks import NOBODY_TO_ASK, HookVerdict, ask_hooks, call_hooks, hear, tell_notes
from .mcp import require_tool, server_of
from .permissions import DONT_ASK, INTERACTIVE
from .registered import matches
from .speech import begin_message, end_message, say_streamed, say_tool_result
from .stage import STREAM_CLOSED, TurnAborted, TurnStopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .stage import Stage

    Play = Callable[[Stage, list[dict[str, Any]]], None]

AGENTS = frozenset({"Agent", "Task"})
INVALID_ANSWER = (
    "The canUseTool callback returned an invalid permission result. Expected {behavior: 'allow', updatedInput?: object} or "
    "{behavior: 'deny', message: string}. updatedPermissions may hold at most 4096 updates, rules and directories in all."
)
SUGGESTIONS = [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
STOPPED = {"terminal_reason": "hook_stopped", "stop_reason": "tool_use"}
PLAN_APPROVED = "User has approved exiting plan mode. You can now proceed."


class FakeToolCall:
    """One tool call of the model."""

    def __init__(self, stage: Stage, step: dict[str, Any], server: str | None) -> None:
        self.name: str = step["name"]
        self.input: dict[str, Any] = stage.fill(step["input"], kind=dict, field="input")
        self.id: str = stage.tool_use_id
        self.step = step
        self.of: dict[str, Any] = {"mcp_server": {"name": server, "source": "sdk"}} if server is not None else {}

    @property
    def denied(self) -> dict[str, Any]:
        return {"tool_name": self.name, "tool_use_id": self.id, "tool_input": self.input}

    def hooks(self, stage: Stage, event: str, **more: Any) -> HookVerdict:
        payload = {"tool_name": self.name, "tool_input": self.input, **more, "tool_use_id": self.id, **self.of}
        if event.startswith("PostToolUse"):
            payload["duration_ms"] = 1
        return call_hooks(stage, event, self.name, payload, self.id)


class CallRefusal:
    """Why a call does not run."""

    def __init__(
        self,
        text: str,
        *,
        source: str = "config",
        kind: str = "permission-rule",
        counts: bool = True,
        meta: dict[str, Any] | None = None,
        reports: dict[str, Any] | None = None,
    ) -> None:
        self.text = text
        self.meta: dict[str, Any] | None = meta
        if counts:
            self.meta = {"non_execution_kind": kind, "permission_decision": {"decision": "reject", "source": source}}
        self.counts = counts
        self.reports = reports
        """More fields of `system/permission_denied`; None when it is not sent."""


def use_tool(stage: Stage, step: dict[str, Any], play: Play) -> None:
    """Play a tool call. `play` plays the steps of a subagent."""
    require_tool(stage, step)
    stage.tool_use_id = stage.short_id("toolu")
    found = server_of(stage, step["name"])
    call = FakeToolCall(stage, step, found[0].name if found is not None else None)
    begin_message(stage)
    say_streamed(stage, {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input})
    end_message(stage, "tool_use")
    missing = _missing(stage, call)
    if missing:
        content = f"<tool_use_error>{missing}</tool_use_error>"
        say_tool_result(stage, content, tool_use_id=call.id, is_error=True, result=missing, meta=None)
        _end_batch(stage, call, content)
        return
    before = call.hooks(stage, "PreToolUse")
    tell_notes(stage, before, f"PreToolUse:{call.name}")
    if before.decision == "defer" and not before.broken:
        deferred = {"deferred_tool_use": {"id": call.id, "name": call.name, "input": call.input}}
        raise TurnStopped(terminal_reason="tool_deferred", stop_reason="tool_deferred", extra=deferred)
    decided = _permit(stage, call, before)
    if isinstance(decided, CallRefusal):
        content, stops = _refuse(stage, call, decided), before.stops
    else:
        content, stops = _run(stage, call, decided, play)
    if stops or before.stops:
        raise TurnStopped(**STOPPED)
    _end_batch(stage, call, content)


def _missing(stage: Stage, call: FakeToolCall) -> str:
    found = server_of(stage, call.name)
    if found is not None and not found[0].has(found[1]):
        return f"Error: No such tool available: {call.name}"
    if stage.rules.is_disabled(call.name):
        return f"Error: No such tool available: {call.name}. {call.name} is disabled for this session, in subagents as well as here."
    return ""


def _permit(stage: Stage, call: FakeToolCall, before: HookVerdict) -> CallRefusal | str:
    """Return why the call may not run, or who has allowed it (`config`, `hook` or `user_temporary`)."""
    if before.broken:
        return CallRefusal(
            before.broken, counts=False, meta={"non_execution_kind": "cancelled"} if before.broken is NOBODY_TO_ASK else None
        )
    if before.decision == "deny":
        return CallRefusal(f"PreToolUse:{call.name} hook error: {before.reason or 'Blocked by hook'}", source="hook")
    call.input = before.input or call.input
    by_rule = _rule(stage, call)
    if by_rule == "deny":
        what = f" with command {call.input.get('command')}" if call.name == "Bash" else ""
        reports: dict[str, Any] | None = {} if before.decision is None else None
        return CallRefusal(f"Permission to use {call.name}{what} has been denied.", reports=reports)
    if before.decision == "allow" and by_rule != "ask":
        return "hook"
    if before.decision != "ask" and by_rule == "allow":
        return "config"
    if stage.mode == "dontAsk":
        return CallRefusal(DONT_ASK.format(name=call.name), reports={"decision_reason_type": "mode"})
    return _ask(stage, call, before)


def _rule(stage: Stage, call: FakeToolCall) -> str:
    if call.step["ask"] is not None:
        return "unlisted" if call.step["ask"] else "allow"
    return stage.rules.decide(stage.mode, call.name, call.input)


def _ask(stage: Stage, call: FakeToolCall, before: HookVerdict) -> CallRefusal | str:
    """Ask the host's `can_use_tool` and its hooks for PermissionRequest at the same time: the first answer counts."""
    by_hook = before.decision == "ask"
    has_host = bool(stage.option("--permission-prompt-tool") or (call.step["ask"] and not stage.lacks_prompts))
    if stage.turn is not None:
        stage.turn.tool = call.denied
    stage.change_state("requires_action")
    try:
        answer, verdict = _ask_both(stage, call, _question(call, before) if has_host else None, by_hook=by_hook)
    except TurnAborted:
        if stage.turn is not None:
            stage.turn.denials.append(call.denied)  # an undecided call counts as denied (recording 07g)
        raise
    stage.change_state("running")
    if verdict is not None and verdict.permission is not None:
        decided = _by_permission_hook(call, verdict.permission, has_host=has_host)
    elif answer is not None:
        decided = _by_host(stage, call, answer)
    else:
        if call.step["ask"]:
            stage.require_prompts()
        decided = _unanswerable(call, before)
    if stage.turn is not None:
        stage.turn.tool = None
    return decided


def _question(call: FakeToolCall, before: HookVerdict) -> dict[str, Any]:
    description = call.step["description"] or call.input.get("description")
    body: dict[str, Any] = {
        "subtype": "can_use_tool",
        "tool_name": call.name,
        "display_name": call.name,
        **call.of,
        "input": call.input,
        **({"description": description} if description else {}),
    }
    if before.decision == "ask":
        event = {"decision_reason_hook_event": "PreToolUse", "decision_reason_hook_source": "settings"}
        body |= {"decision_reason": before.reason, "decision_reason_type": "hook", **event}
    else:
        body["permission_suggestions"] = SUGGESTIONS
    if call.name in INTERACTIVE:
        body["requires_user_interaction"] = True
    return {**body, "tool_use_id": call.id}


def _ask_both(
    stage: Stage, call: FakeToolCall, question: dict[str, Any] | None, *, by_hook: bool
) -> tuple[dict[str, Any] | None, HookVerdict | None]:
    """Return the answer of the host, or else the verdict of the hooks; both are None when neither has decided."""
    request_id = stage.uuid()
    if question is not None:
        stage.pending[request_id] = question
        stage.emit({"type": "control_request", "request_id": request_id, "request": question})
    stage.input.held = False
    hooks = [hook for hook in stage.hooks.get("PermissionRequest", ()) if matches(hook.matcher, call.name)]
    payload = {"tool_name": call.name, "tool_input": call.input, **({} if by_hook else {"permission_suggestions": SUGGESTIONS})}
    asked = ask_hooks(stage, hooks, "PermissionRequest", payload, call.id)
    verdict = HookVerdict()

    def over() -> bool:
        for hook_id in [hook_id for hook_id in asked if hook_id in stage.answers]:
            stage.pending.pop(hook_id, None)
            hear(stage, verdict, asked.pop(hook_id), "PermissionRequest", stage.answers.pop(hook_id))
        undecided = question is not None or bool(asked)
        return not undecided or verdict.permission is not None or request_id in stage.answers or stage.input.ended

    if not over():
        stage.wait(None, over)
    for hook_id in asked:
        stage.pending.pop(hook_id, None)
    stage.pending.pop(request_id, None)
    if request_id in stage.answers:
        return stage.answers.pop(request_id), None
    if verdict.permission is not None:
        if question is not None:
            stage.emit({"type": "control_cancel_request", "request_id": request_id})
        return None, verdict
    return ({"subtype": "error", "error": STREAM_CLOSED} if question is not None else None), None


def _by_permission_hook(call: FakeToolCall, decided: dict[str, Any], *, has_host: bool) -> CallRefusal | str:
    if decided.get("behavior") == "allow":
        if isinstance(decided.get("updatedInput"), dict):
            call.input = decided["updatedInput"]
        return "hook"
    text = str(decided.get("message") or "Permission denied by hook")
    reports = None if has_host else {"decision_reason_type": "hook", "decision_reason": text}
    return CallRefusal(text, source="hook", reports=reports)


def _by_host(stage: Stage, call: FakeToolCall, response: dict[str, Any]) -> CallRefusal | str:
    answer = response.get("response")
    if response.get("subtype") == "error":
        return CallRefusal(f"Tool permission request failed: {response.get('error', '')}")
    if isinstance(answer, dict) and answer.get("behavior") == "allow":
        if isinstance(answer.get("updatedInput"), dict):
            call.input = answer["updatedInput"]
        _update(stage, answer.get("updatedPermissions"))
        return "user_temporary"
    if isinstance(answer, dict) and answer.get("behavior") == "deny" and isinstance(answer.get("message"), str):
        if answer.get("interrupt"):
            if stage.turn is not None:
                stage.turn.denials.append(call.denied)
            raise TurnAborted("deny")
        return CallRefusal(answer["message"], source="user_reject")
    return CallRefusal(INVALID_ANSWER)


def _update(stage: Stage, updates: Any) -> None:
    """Do what the host has sent with its permission (docs/reference/protocol.md#permission-questions)."""
    for update in updates if isinstance(updates, list) else ():
        if isinstance(update, dict) and update.get("type") == "setMode" and isinstance(update.get("mode"), str):
            change_mode(stage, update["mode"])
        elif isinstance(update, dict):
            stage.rules.add(update)


def change_mode(stage: Stage, mode: str) -> None:
    stage.mode = mode
    stage.emit({"type": "system", "subtype": "status", "status": None, "permissionMode": mode})


def _unanswerable(call: FakeToolCall, before: HookVerdict) -> CallRefusal:
    if before.decision == "ask":
        text = before.reason or f"Hook PreToolUse:{call.name} asked for confirmation for this tool"
        reports = {"decision_reason_type": "hook", "decision_reason": before.reason}
        return CallRefusal(text, kind="user-rejected", reports=reports)
    text = f"{call.name} needs approval, but this session has no permission prompt."
    return CallRefusal(text, kind="user-rejected", reports={})


def _refuse(stage: Stage, call: FakeToolCall, refusal: CallRefusal) -> str:
    if refusal.reports is not None:
        frame = {"type": "system", "subtype": "permission_denied", "tool_name": call.name, "tool_use_id": call.id}
        stage.emit({**frame, **refusal.reports, "message": refusal.text})
    if stage.turn is not None and refusal.counts:
        stage.turn.denials.append(call.denied)
    result = refusal.text if refusal.text == NOBODY_TO_ASK else f"Error: {refusal.text}"
    say_tool_result(stage, refusal.text, tool_use_id=call.id, is_error=True, result=result, meta=refusal.meta)
    return refusal.text


def _run(stage: Stage, call: FakeToolCall, source: str, play: Play) -> tuple[Any, bool]:
    """Run the tool and the hooks after it. Return its content for the model, and whether a hook ends the turn."""
    content, result, failed = _result(stage, call, play)
    if failed:
        error = content if isinstance(content, str) else str(content)
        after = call.hooks(stage, "PostToolUseFailure", error=error, is_interrupt=False)
    else:
        after = call.hooks(stage, "PostToolUse", tool_response=_response(result))
        if after.output is not None:
            content, result = _replaced(after.output)
    meta = {"permission_decision": {"decision": "accept", "source": source}}
    marks_error = None if isinstance(content, list) and not failed else failed
    say_tool_result(stage, content, tool_use_id=call.id, is_error=marks_error, result=result, meta=meta)
    tell_notes(stage, after, f"{'PostToolUseFailure' if failed else 'PostToolUse'}:{call.name}")
    return content, after.stops


def _result(stage: Stage, call: FakeToolCall, play: Play) -> tuple[Any, Any, bool]:
    """Return the content for the model, the result for the host, and whether the tool has failed."""
    output, failed = stage.fill(call.step["output"], kind=str, field="output"), call.step["is_error"]
    found = server_of(stage, call.name)
    if found is not None:
        server, tool = found
        if stage.turn is not None:
            stage.turn.tool = call.denied
        outcome = server.call(tool, call.input, call.id, fails=failed)
        if stage.turn is not None:
            stage.turn.tool = None
        return outcome
    if call.name in AGENTS:
        said = run_subagent(stage, call.input, call.id, call.step["steps"], play)
        text = [{"type": "text", "text": output or said}]
        return text, {"status": "completed", "agentType": call.input.get("subagent_type", "general-purpose"), "content": text}, False
    if failed:
        return output, f"Error: {output}", True
    if call.name == "ExitPlanMode":
        change_mode(stage, "default" if stage.mode == "plan" else stage.mode)
        output = output or PLAN_APPROVED
    return output, {"stdout": output, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": not output}, False


def run_subagent(stage: Stage, given: dict[str, Any], tool_use_id: str, steps: list[dict[str, Any]], play: Play) -> str:
    """Play what a subagent does, and return the last text that it says. Its frames are those of the call that has started it."""
    kind, about = str(given.get("subagent_type", "general-purpose")), str(given.get("description", ""))
    task = {"task_id": f"a{stage.number():016x}", "run_id": f"{stage.number() >> 32:09x}-{stage.number() >> 32:08x}"}
    made = {"tool_use_id": tool_use_id, "description": about, "subagent_type": kind}
    prompt = str(given.get("prompt", ""))
    kinds = {"is_backgrounded": False, "spawn_depth": 1, "task_type": "local_agent", "prompt": prompt}
    stage.emit({"type": "system", "subtype": "task_started", **task, **made, **kinds})
    outer, turn = stage.agent, stage.turn
    kept = (turn.text, turn.model_calls, turn.user_messages) if turn is not None else ("", 0, 0)
    stage.agent = {"id": task["task_id"], "type": kind, "parent": tool_use_id, "description": about}
    try:
        call_hooks(stage, "SubagentStart", kind, {})
        message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
        stage.emit({"type": "user", "message": message, **stage.kinship(), "timestamp": stage.timestamp()})
        play(stage, steps)
        said = turn.text if turn is not None and steps else ""
        transcript = {"agent_transcript_path": f"{stage.directory}/agent.jsonl"}
        rest = {"last_assistant_message": said, "background_tasks": [], "session_crons": []}
        call_hooks(stage, "SubagentStop", kind, {"stop_hook_active": False, **transcript, **rest})
    finally:
        stage.agent = outer
        if turn is not None:
            turn.text, turn.model_calls, turn.user_messages = kept
    stage.emit({"type": "system", "subtype": "task_updated", **task, "patch": {"status": "completed", "end_time": 0}})
    usage = {"total_tokens": 0, "tool_uses": sum(step["step"] == "tool_use" for step in steps), "duration_ms": 1}
    ended = {"tool_use_id": tool_use_id, "status": "completed", "output_file": "", "summary": said, "usage": usage}
    stage.emit({"type": "system", "subtype": "task_notification", **task, **ended})
    return said


def _response(result: Any) -> Any:
    """Return what a hook sees of a result: of structured content, the text (recorded with CLI 2.1.331)."""
    return result["content"] if isinstance(result, dict) and "structuredContent" in result else result


def _replaced(output: Any) -> tuple[Any, Any]:
    """Return content and result when a hook has put `output` in the place of what the tool has returned."""
    if isinstance(output, dict) and isinstance(output.get("stdout"), str):
        return output["stdout"], output
    return output, output


def _end_batch(stage: Stage, call: FakeToolCall, content: Any) -> None:
    made = {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id, "tool_response": content}
    verdict = call_hooks(stage, "PostToolBatch", None, {"tool_calls": [made]})
    tell_notes(stage, verdict, "PostToolBatch")
    if verdict.stops or verdict.blocks:
        raise TurnStopped(**STOPPED)
