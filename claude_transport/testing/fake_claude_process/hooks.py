"""Call the hooks of an event, and find out what their answers decide together."""

from __future__ import annotations

from .registered import matches
from .stage import STREAM_CLOSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .registered import Hook
    from .stage import Stage

INVALID = "the SDK host replied with an error or an invalid answer."
BROKE_OFF = "The tool call was not executed; other configured hooks may not have completed."
TOO_LATE = f"hook did not respond before its timeout (host client may be unreachable). {BROKE_OFF}"
MISADDRESSED = f"hook failed with an unexpected error. {BROKE_OFF}"
NOBODY_TO_ASK = (
    "The user doesn't want to take this action right now. STOP what you are doing and wait for the user to tell you how to proceed."
)


class HookVerdict:
    """What all callbacks of one event decide together."""

    def __init__(self) -> None:
        self.decision: str | None = None
        """`"deny"` before `"defer"` before `"ask"` before `"allow"`."""
        self.reason: str = ""
        self.input: dict[str, Any] | None = None
        self.output: Any = None
        self.permission: dict[str, Any] | None = None
        self.blocks: list[str] = []
        self.stops = False
        self.stop_reason = ""
        self.broken = ""
        """Why the tool was not executed at all: a callback was late, or answered another event."""
        self.notes: list[str] = []

    def decide(self, decision: str, reason: str) -> None:
        ranks = ("allow", "ask", "defer", "deny")
        if self.decision is None or ranks.index(decision) >= ranks.index(self.decision):
            self.decision, self.reason = decision, reason


def call_hooks(stage: Stage, event: str, subject: str | None, payload: dict[str, Any], tool_use_id: str | None = None) -> HookVerdict:
    """Call all hooks of the event at once, wait for their answers, and return what they decide.

    `subject` is what matchers are compared with: the name of the tool, or the type of the agent; None when the event has no matchers.
    """
    hooks = [hook for hook in stage.hooks.get(event, ()) if subject is None or matches(hook.matcher, subject)]
    verdict = HookVerdict()
    if hooks and stage.input.ended:
        verdict.broken = NOBODY_TO_ASK  # recording 20l
        return verdict
    asked = ask_hooks(stage, hooks, event, payload, tool_use_id)
    if asked:
        stage.at(f"the answers of {len(asked)} {event} hooks")
    late = _await(stage, asked)
    if stage.input.ended and any(request_id not in stage.answers and request_id not in late for request_id in asked):
        stage.cut("the end of the input")
    for request_id, hook in asked.items():
        stage.pending.pop(request_id, None)
        if request_id in late:
            stage.emit({"type": "control_cancel_request", "request_id": request_id})
            verdict.broken = f"{event} {TOO_LATE}"
        else:
            hear(stage, verdict, hook, event, stage.answers.pop(request_id, {"subtype": "error", "error": STREAM_CLOSED}))
    return verdict


def ask_hooks(stage: Stage, hooks: list[Hook], event: str, payload: dict[str, Any], tool_use_id: str | None) -> dict[str, Hook]:
    """Send the questions to the hooks, and return the hooks by the ids of the questions."""
    if not hooks:
        return {}
    agent = {"agent_id": stage.agent["id"], "agent_type": stage.agent["type"]} if stage.agent is not None else {}
    common = {
        "session_id": stage.session_id,
        "transcript_path": f"{stage.directory}/transcript.jsonl",
        "cwd": stage.fill("{{cwd}}"),
        "prompt_id": stage.turn.prompt_id if stage.turn is not None else stage.uuid(),
        **({} if event == "SubagentStart" else {"permission_mode": stage.mode}),
        **agent,
        **({} if event in ("SubagentStart", "UserPromptSubmit") else {"effort": {"level": "medium"}}),
        "hook_event_name": event,
    }
    about = tool_use_id or stage.uuid()  # an event without a tool has an id of its own
    asked: dict[str, Hook] = {}
    for hook in hooks:
        request_id = stage.uuid()
        body = {"subtype": "hook_callback", "callback_id": hook.callback_id, "input": {**common, **payload}, "tool_use_id": about}
        stage.pending[request_id] = body
        asked[request_id] = hook
        stage.emit({"type": "control_request", "request_id": request_id, "request": body})
    return asked


def _await(stage: Stage, asked: dict[str, Hook]) -> set[str]:
    """Wait for the answers, for each as long as its hook may take. Return the ids of those that are late."""
    waited = 0.0
    late: set[str] = set()

    def over() -> bool:
        return stage.input.ended or all(request_id in stage.answers or request_id in late for request_id in asked)

    for seconds in sorted({hook.timeout for hook in asked.values()}):
        if stage.wait(seconds - waited, over):
            return late
        late |= {request_id for request_id, hook in asked.items() if hook.timeout <= seconds and request_id not in stage.answers}
        waited = seconds
    return late


def hear(stage: Stage, verdict: HookVerdict, hook: Hook, event: str, response: dict[str, Any]) -> None:
    """Add the answer of one callback to the verdict."""
    answer: dict[str, Any] = {} if response.get("response") is None else response["response"]
    if response.get("subtype") != "success" or not _is_valid(answer):
        _fail(stage, verdict, hook, event, response)
        return
    if isinstance(answer.get("systemMessage"), str):
        verdict.notes.append(answer["systemMessage"])
    if answer.get("continue") is False:
        verdict.stops, verdict.stop_reason = True, answer.get("stopReason") or verdict.stop_reason
    if answer.get("decision") == "block":
        verdict.blocks.append(answer.get("reason") or "Blocked by hook")
        verdict.decide("deny", verdict.blocks[-1])
    elif answer.get("decision") == "approve":
        verdict.decide("allow", answer.get("reason") or "")
    specific = answer.get("hookSpecificOutput")
    if isinstance(specific, dict):
        _hear_specific(verdict, event, specific)


def _hear_specific(verdict: HookVerdict, event: str, specific: dict[str, Any]) -> None:
    if specific.get("hookEventName") != event:
        verdict.broken = f"{event} {MISADDRESSED}"
        return
    decision = specific.get("permissionDecision")
    if event == "PreToolUse" and decision in ("allow", "ask", "defer", "deny"):
        verdict.decide(decision, specific.get("permissionDecisionReason") or "")
    if isinstance(specific.get("updatedInput"), dict):
        verdict.input = specific["updatedInput"]
    for name in ("updatedToolOutput", "updatedMCPToolOutput"):
        if specific.get(name) is not None:
            verdict.output = specific[name]
    decided = specific.get("decision")
    if event == "PermissionRequest" and isinstance(decided, dict) and verdict.permission is None:
        verdict.permission = decided


def _fail(stage: Stage, verdict: HookVerdict, hook: Hook, event: str, response: dict[str, Any]) -> None:
    what = f"Hook callback {hook.callback_id} failed: {INVALID}"
    stage.errors.write(f"Error in hook callback {hook.callback_id}: {response.get('error', 'invalid answer')}\n".encode())
    effect = "Its answer was treated as empty."
    if hook.blocks:
        effect = 'onFailure is "block", so this failure counts as a block.'
        verdict.blocks.append(f'[callback]: failed; blocking because onFailure is "block"\n{what}')
        verdict.decide("deny", verdict.blocks[-1])
    inform(stage, f"{event}: {what} {effect}", level="warning", tag="hook_callback_failed")


def _is_valid(answer: Any) -> bool:
    if not isinstance(answer, dict) or answer.get("decision") not in (None, "approve", "block"):
        return False
    if not isinstance(answer.get("continue"), (bool, type(None))):
        return False
    specific = answer.get("hookSpecificOutput")
    decision = specific.get("permissionDecision") if isinstance(specific, dict) else None
    return isinstance(specific, (dict, type(None))) and decision in (None, "allow", "ask", "deny", "defer")


def inform(stage: Stage, text: str, *, level: str, **more: Any) -> None:
    """Tell the host, in words for its user."""
    stage.emit({"type": "system", "subtype": "informational", "content": text, "level": level, **more})


def tell_notes(stage: Stage, verdict: HookVerdict, label: str) -> None:
    """Send what the hooks want the user to read (`systemMessage`)."""
    for note in verdict.notes:
        inform(stage, f"{label} says: {note}", level="notice")
