"""A subagent: the frames of its task, its hooks, and its steps, whose frames are those of the tool call that has started it (15a)."""

from __future__ import annotations

from .hooks import call_hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .stage import Stage


def run_subagent(
    stage: Stage, given: dict[str, Any], tool_use_id: str, steps: list[dict[str, Any]], play: Callable[[Stage, list[dict[str, Any]]], None]
) -> str:
    """Play what a subagent does, and return the last text that it says."""
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
