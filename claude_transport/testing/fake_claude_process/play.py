"""Play the steps of a scenario: one small function per kind of step, listed in `DEEDS`."""

from __future__ import annotations

import os
import signal
import sys
import time

from . import payloads
from .hooks import call_hooks, inform, tell_notes
from .mcp import prefix_of
from .speech import ask, say_assistant, say_result, say_text
from .stage import POLL_SECONDS, StopBlocked, encode
from .tools import use_tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .stage import PlayedTurn, Stage

    Step = dict[str, Any]

FLOOD_BYTES = 1 << 16
STOP_BLOCKS = 9  # the CLI lets a turn end that hooks have blocked so often, one after the other
STOP_CAP = (
    "A hook blocked the turn from ending {count} consecutive times—overriding and ending turn. For Stop/SubagentStop hooks, check "
    "stop_hook_active in the input and return success while it's true. Set CLAUDE_CODE_STOP_HOOK_BLOCK_CAP to raise this limit."
)


def play(stage: Stage, steps: list[Step]) -> None:
    """Play steps in order; handle waiting input before each."""
    for place, step in enumerate(steps, 1):
        name = step["step"].title().replace("_", "")
        stage.path.append(f"step {place} of {len(steps)} ({name})")
        try:
            stage.at(_awaited(step))
            stage.wait(0)
            DEEDS[step["step"]](stage, step)
        finally:
            stage.path.pop()


def _awaited(step: Step) -> str:
    """Return what a step waits for, in words; empty for a step that waits for nothing, and for one that says it itself."""
    kind = step["step"]
    if kind == "wait_for_file":
        return f"the file or gate {step['path']!r}"
    if kind == "text" and step["gate"] is not None:
        return f"the gate {step['gate']!r}"
    if kind in ("wait_for_input", "await_input"):
        return f"{step['type']} {step['subtype'] or ''}".rstrip()
    return {"await_signal": f"the signal {step.get('name')}", "hang": "a signal that ends it"}.get(kind, "")


def say_init(stage: Stage, _step: Step | None = None) -> None:
    frame = payloads.system_init(stage.model, stage.scenario["version"], stage.mode, bool(stage.option("--permission-prompt-tool")))
    frame["mcp_servers"] = [{"name": name, "status": server.status} for name, server in stage.servers.items()]
    frame["tools"] += [f"{prefix_of(name)}{tool['name']}" for name, server in stage.servers.items() for tool in server.tools or ()]
    if stage.turn is not None and stage.turn.uuids:
        frame["user_message_uuids"] = list(stage.turn.uuids)
    stage.emit(frame)


def _emit(stage: Stage, step: Step) -> None:
    message = stage.fill(step["message"], kind=dict, field="message")
    if stage.turn is not None and message.get("type") == "result":
        stage.turn.has_result = True
    starts_turn = _note_background(stage, message)
    if step["complete"]:
        stage.emit(message)
    else:
        stage.output.write(encode(message))
    if starts_turn:
        stage.change_state("running")


def _note_background(stage: Stage, message: dict[str, Any]) -> bool:
    """Note what works in the background. Returns True when the end of a task starts a turn in a session that was idle.

    The end of a shell does, unless the host has stopped it. With an agent the session was not idle
    (docs/reference/protocol.md#background-work).
    """
    if message.get("subtype") == "task_notification":
        stage.task_was_stopped = message.get("status") == "stopped"
    if message.get("subtype") != "background_tasks_changed":
        return False
    tasks = message.get("tasks")
    types = [task.get("task_type") for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    one_has_ended = len(types) < stage.tasks
    stage.tasks, stage.has_agents = len(types), "local_agent" in types
    return one_has_ended and not stage.task_was_stopped and stage.session_state == "idle"


def _emit_raw(stage: Stage, step: Step) -> None:
    import binascii

    data = binascii.a2b_base64(step["data"])
    pause = (lambda: time.sleep(step["pause"])) if step["pause"] else None
    stage.emit_raw(data, chunk_size=step["chunk_size"], pause=pause)


def _noise(stage: Stage, step: Step) -> None:
    stage.emit_raw(f"{step['text']}\n".encode())


def _big_line(stage: Stage, step: Step) -> None:
    stage.message_id = stage.short_id("msg")
    text = {"type": "text", "text": ""}
    frame = {
        "type": "assistant",
        "message": {"id": stage.message_id, "type": "message", "role": "assistant", "model": stage.model, "content": [text]},
        "parent_tool_use_id": None,
        "session_id": stage.session_id,
        "uuid": stage.uuid(),
        "timestamp": stage.timestamp(),
    }
    empty = encode(frame)
    stage.output.write(empty.replace(b'"text":""', b'"text":"' + b"x" * (step["size"] - len(empty)) + b'"', 1))


def _flood(stage: Stage, step: Step) -> None:
    stage.message_id = stage.short_id("msg")
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "flood "}}
    left, batch = step["size"], b""
    while left > 0:
        frame = {"type": "stream_event", "event": delta, "session_id": stage.session_id, "parent_tool_use_id": None}
        line = encode({**frame, "uuid": stage.uuid(), "api_message_id": stage.message_id})
        left -= len(line)
        batch += line
        if len(batch) >= FLOOD_BYTES:
            stage.output.write(batch)
            batch = b""
    stage.output.write(batch)


def _stderr_flood(stage: Stage, step: Step) -> None:
    size, width = step["size"], step["line_size"] or step["size"]
    line = b"e" * max(width - 1, 0) + (b"\n" if step["line_size"] else b"e")
    while size > 0 and line:
        data = (line * max(FLOOD_BYTES // len(line), 1))[:size]
        stage.errors.write(data)
        size -= len(data)


def _request(stage: Stage, step: Step) -> None:
    stage.tool_use_id = stage.tool_use_id or stage.short_id("toolu")
    body = stage.fill(step["request"], kind=dict, field="request")
    if body["subtype"] == "can_use_tool":
        stage.require_prompts()
    if body["subtype"] == "hook_callback" and body.get("callback_id") == "":
        event = (body.get("input") or {}).get("hook_event_name", "")
        stage.require(f"a hook for {event}, which the scenario calls", f"hooks for {', '.join(stage.hooks) or 'nothing'}")
        play(stage, step["on_success"])  # the host registered no hook for this event
        return
    response = ask(stage, body, wait=step["wait"], timeout=step["timeout"], may_be_refused=bool(step["on_error"]))
    stage.answer = response
    answer = response.get("response")
    if response.get("subtype") == "error":
        play(stage, step["on_error"])
    elif isinstance(answer, dict) and answer.get("behavior") == "deny":
        play(stage, step["on_deny"])
    else:
        play(stage, step["on_success"])


def end_turn(stage: Stage, step: Step) -> None:
    """Send the result, unless a hook for Stop keeps the turn going."""
    turn = stage.turn
    ends_well = step["subtype"] == "success" and not step["is_error"]
    if turn is None or turn.finished or not ends_well or not stage.hooks.get("Stop") or stage.input.ended:
        say_result(stage, step)
        return
    said = stage.fill(step["text"], kind=str, field="text") if step["text"] is not None else turn.text
    told: dict[str, Any] = {
        "stop_hook_active": bool(turn.stop_blocks),
        "last_assistant_message": said,
        "background_tasks": [],
        "session_crons": [],
    }
    verdict = call_hooks(stage, "Stop", None, told)
    tell_notes(stage, verdict, "Stop")
    if verdict.stops:
        step = {**step, "terminal_reason": "stop_hook_prevented"}
    elif verdict.blocks:
        step = _block_stop(stage, turn, verdict.blocks, step)
    say_result(stage, step)


def _block_stop(stage: Stage, turn: PlayedTurn, reasons: list[str], step: Step) -> Step:
    """Let the model go on. Returns the result of a turn that has been blocked too often."""
    turn.stop_blocks += 1
    feedback = [f"Stop hook feedback:\n{reason}" for reason in reasons]
    for text in feedback:
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        turn.user_messages += 1
        stage.emit({"type": "user", "message": message, "parent_tool_use_id": None, "isSynthetic": True, "timestamp": stage.timestamp()})
    notice = {"type": "system", "subtype": "notification"}
    if turn.stop_blocks == 1:
        stage.emit({**notice, "key": "stop-hook-error", "text": "stop hook problem · ctrl+o to see", "priority": "immediate"})
    if turn.stop_blocks < STOP_BLOCKS:
        raise StopBlocked("\n".join(feedback))
    text = STOP_CAP.format(count=STOP_BLOCKS)
    inform(stage, text, level="warning")
    stage.emit({**notice, "key": "stop-hook-block-cap", "text": text, "priority": "high", "color": "warning"})
    return {**step, "text": ""}


def _fold_queued(stage: Stage, _step: Step) -> None:
    turn = stage.turn
    if turn is None:
        return
    folded = [message for message in stage.queue if message.get("priority") != "later"]
    stage.queue[:] = [message for message in stage.queue if message.get("priority") == "later"]
    for message in folded:
        turn.adopt(message)
        if isinstance(message.get("uuid"), str):
            turn.folded.append(message["uuid"])
            stage.lifecycle(message["uuid"], "started")


def _wait_for_input(stage: Stage, step: Step) -> None:
    kind, subtype = step["type"], step["subtype"]

    def seen() -> bool:
        inputs = stage.turn.inputs if stage.turn is not None else []
        return any(got == kind and subtype in (None, got_subtype) for got, got_subtype in inputs) or stage.input.ended

    stage.input.held = False
    stage.wait(None, seen)


def _write_file(stage: Stage, step: Step) -> None:
    path = stage.locate(step["path"])
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, stage.fill(step["text"], kind=str, field="text").encode())
    os.close(fd)


def _on_signal(stage: Stage, step: Step) -> None:
    number = getattr(signal, step["name"])
    stage.on_signal[number] = step.get("steps")
    signal.signal(number, stage.catch)


def _await_signal(stage: Stage, step: Step) -> None:
    number = int(getattr(signal, step["name"]))
    before = signal.signal(number, stage.note_signal)
    stage.wait(None, lambda: number in stage.noted, POLL_SECONDS)
    stage.noted.remove(number)
    signal.signal(number, before)


def _fork_grandchild(stage: Stage, step: Step) -> None:
    import subprocess

    output = None if step["holds_stdout"] else subprocess.DEVNULL
    code = f"import time; time.sleep({step['seconds']!r})"
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=step["own_session"],
    )
    stage.journal.record("grandchild", pid=child.pid)


def _stop_reading(stage: Stage, _step: Step) -> None:
    stage.input.stopped = True


def _hang(stage: Stage, _step: Step) -> None:
    stage.journal.record("done")  # nothing can follow
    while True:
        time.sleep(3600)


def _die_by_signal(stage: Stage, step: Step) -> None:
    number = getattr(signal, step["name"])
    stage.journal.record("dies", signal=int(number))
    if step["name"] not in ("SIGKILL", "SIGSTOP"):  # these two cannot be caught
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(60)  # the signal arrives before this ends


DEEDS: dict[str, Callable[[Stage, Step], object]] = {
    "emit": _emit,
    "emit_raw": _emit_raw,
    "noise": _noise,
    "big_line": _big_line,
    "flood": _flood,
    "init": say_init,
    "text": say_text,
    "assistant": say_assistant,
    "tool_use": lambda stage, step: use_tool(stage, step, play),
    "result": end_turn,
    "fold_queued": _fold_queued,
    "request": _request,
    "stderr": lambda stage, step: stage.errors.write(step["text"].encode()),
    "stderr_flood": _stderr_flood,
    "delay": lambda stage, step: stage.wait(step["seconds"]),
    "wait_for_file": lambda stage, step: stage.wait_for_file(step["path"]),
    "wait_for_input": _wait_for_input,
    "write_file": _write_file,
    "ignore_signal": _on_signal,
    "on_signal": _on_signal,
    "await_signal": _await_signal,
    "fork_grandchild": _fork_grandchild,
    "close_stdout": lambda stage, step: stage.output.close(),
    "stop_reading": _stop_reading,
    "hang": _hang,
    "exit": lambda stage, step: stage.exit(step["code"]),
    "die_by_signal": _die_by_signal,
}
