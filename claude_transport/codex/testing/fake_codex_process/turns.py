"""Play the steps of one turn. Each step is a generator that yields where it would wait, so that turns of several threads run at once."""

from __future__ import annotations

import os
import time

from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from claude_transport.testing.fake_claude_process.play import DEEDS
else:
    from fake_claude_process.play import DEEDS

if TYPE_CHECKING:
    Step = dict[str, Any]
    Played = Generator[Callable[[], bool] | None, None, Any]

SHARED = (
    *("emit_raw", "noise", "stderr", "stderr_flood", "write_file", "ignore_signal", "on_signal", "fork_grandchild", "close_stdout"),
    *("stop_reading", "hang", "exit", "die_by_signal"),
)
DECISIONS = ("accept", "acceptForSession", "decline", "cancel")


class FakeTurnEnded(Exception):
    """End the turn with this status."""

    def __init__(self, status: str, error: dict[str, Any] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.error = error


class PlayedCodexTurn:
    """One running turn: its thread, its prompts, what it waits for, and what it has asked. `server` is the `Server` that plays it."""

    def __init__(self, server: Any, thread: dict[str, Any], turn_id: str) -> None:
        self.server = server
        self.thread = thread
        self.id = turn_id
        self.began: int = server.now()
        self.prompt: str = ""
        self.steps: Played = _nothing()
        self.ready: Callable[[], bool] = lambda: True
        self.asked: list[int] = []
        self.said: dict[str, Any] | None = None
        self.cut: str | None = None
        self.items: list[dict[str, Any]] = []

    def start(self, content: list[Any]) -> None:
        """Begin to answer a prompt; a running answer to an earlier one is dropped, as Codex drops it."""
        self.prompt = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict) and part.get("type") == "text")
        self.steps = self._play(content, self.server.choose(self.prompt))
        self.ready = lambda: True

    def notify(self, method: str, **params: Any) -> None:
        self.server.notify(method, {"threadId": self.thread["id"], "turnId": self.id, **params})

    def change_status(self, **status: Any) -> None:
        self.thread["status"] = status
        self.server.notify("thread/status/changed", {"threadId": self.thread["id"], "status": status})

    def begin_item(self, item: dict[str, Any]) -> int:
        at: int = self.server.milliseconds()
        timed = {**item, "startedAtMs": at, "completedAtMs": None}
        self.server.notify("item/started", {"item": timed, "threadId": self.thread["id"], "turnId": self.id, "startedAtMs": at})
        return at

    def end_item(self, item: dict[str, Any], began: int) -> None:
        at = self.server.milliseconds()
        timed = {**item, "startedAtMs": began, "completedAtMs": at}
        self.items.append(timed)
        params = {"item": timed, "threadId": self.thread["id"], "turnId": self.id, "contentTokenCount": None, "completedAtMs": at}
        self.server.notify("item/completed", params)

    def count_usage(self) -> None:
        """Report the usage of one request to the model, summed over the thread."""
        totals = self.server.totals.setdefault(self.thread["id"], dict.fromkeys(frames.USAGE, 0))
        for name, count in frames.USAGE.items():
            totals[name] += count
        usage = {"total": dict(totals), "last": frames.USAGE, "modelContextWindow": 258_400}
        self.notify("thread/tokenUsage/updated", tokenUsage=usage)
        self.server.notify("account/rateLimits/updated", {"rateLimits": frames.RATE_LIMITS})

    def ask(self, method: str, params: dict[str, Any]) -> Played:
        """Ask the host, and wait for its answer, which is returned."""
        number = self.server.ask(method, {"threadId": self.thread["id"], "turnId": self.id, **params})
        self.asked.append(number)
        yield lambda: number in self.server.answers
        self.asked.remove(number)
        self.server.notify("serverRequest/resolved", {"threadId": self.thread["id"], "requestId": number})
        return self.server.answers.pop(number)

    def withdraw(self) -> None:
        """Say of each open question that it is moot."""
        for number in self.asked:
            self.server.notify("serverRequest/resolved", {"threadId": self.thread["id"], "requestId": number})
        self.asked.clear()

    def _play(self, content: list[Any], steps: list[Step]) -> Played:
        item = frames.user_message(self.server.stage.uuid(), content)
        self.end_item(item, self.begin_item(item))
        yield None
        counted = 0
        for step in steps:
            name = step["step"]
            if name in SHARED:
                DEEDS[name](self.server.stage, step)
                continue
            filled = {key: value if key == "step" else self.server.stage.fill(value) for key, value in step.items()}
            yield from DEEDS_OF_A_TURN[name](self, filled)
            if name in ("run_command", "change_files", "call_tool"):
                self.count_usage()
                counted += 1
        if not counted or steps[-1]["step"] == "say":
            self.count_usage()


def _nothing() -> Played:
    yield from ()


def _wait_for(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def _wait_for_file(turn: PlayedCodexTurn, name: str) -> Callable[[], bool]:
    path = turn.server.stage.locate(name)
    return lambda: os.path.exists(path)  # noqa: PTH110 - pathlib costs 5 ms


def say(turn: PlayedCodexTurn, step: Step) -> Played:
    chunks = step["chunks"] or [f"{word} " for word in step["text"].split(" ")[:-1]] + [step["text"].rpartition(" ")[2]]
    item_id = step["id"] or turn.cut or turn.server.stage.short_id("msg")
    turn.cut = None
    began = turn.begin_item(frames.agent_message(item_id, ""))
    for number, chunk in enumerate(chunks, 1):
        if step["pace"]:
            yield _wait_for(step["pace"])
        if step["gate"] and number == len(chunks):
            yield _wait_for_file(turn, step["gate"])
        turn.notify("item/agentMessage/delta", itemId=item_id, delta=chunk)
        yield None
    if step["cut"]:
        turn.cut = item_id
        return
    turn.said = frames.agent_message(item_id, "".join(chunks))
    turn.end_item(turn.said, began)


def think(turn: PlayedCodexTurn, step: Step) -> Played:
    item = frames.reasoning(turn.server.stage.short_id("rs"), step["text"])
    turn.end_item(item, turn.begin_item(item))
    yield None


def run_command(turn: PlayedCodexTurn, step: Step) -> Played:
    line, cwd = step["command"], turn.thread["cwd"]
    item = frames.command(turn.server.stage.short_id("call"), line, cwd=cwd)
    waits = _is_asked(turn, step)
    if waits:
        turn.change_status(type="active", activeFlags=["waitingOnApproval"])
    began = turn.begin_item(item)
    decision = "accept"
    if waits:
        decision = yield from _decide(
            turn,
            "item/commandExecution/requestApproval",
            {
                "kind": "command",
                "itemId": item["id"],
                "startedAtMs": began,
                "environmentId": "local",
                "command": item["command"],
                "cwd": cwd,
                "commandActions": item["commandActions"],
                "proposedExecpolicyAmendment": line.split(),
                "availableDecisions": [
                    "accept",
                    {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": line.split()}},
                    "cancel",
                ],
            },
            key=line,
        )
    if decision in ("accept", "acceptForSession"):
        if waits:
            turn.change_status(type="active", activeFlags=[])
        if step["gate"]:
            yield _wait_for_file(turn, step["gate"])
        done = {"status": "completed" if step["exit_code"] == 0 else "failed", "exitCode": step["exit_code"], "durationMs": 0}
        output = step["output"] or None
        turn.end_item({**item, "processId": "1", "source": "unifiedExecStartup", "aggregatedOutput": output, **done}, began)
    else:
        turn.end_item({**item, "status": "failed" if decision == "nonsense" else "declined"}, began)
        turn.change_status(type="active", activeFlags=[])
    if decision == "cancel":
        raise FakeTurnEnded("interrupted")
    yield None


def change_files(turn: PlayedCodexTurn, step: Step) -> Played:
    item = frames.file_change(turn.server.stage.short_id("call"), step["changes"], cwd=turn.thread["cwd"])
    began = turn.begin_item(item)
    decision = "accept"
    if _is_asked(turn, step):
        turn.change_status(type="active", activeFlags=["waitingOnApproval"])
        params = {"itemId": item["id"], "startedAtMs": began, "reason": None, "grantRoot": None}
        decision = yield from _decide(turn, "item/fileChange/requestApproval", params, key=str(sorted(step["changes"])))
        turn.change_status(type="active", activeFlags=[])
    done = decision in ("accept", "acceptForSession")
    turn.end_item({**item, "status": "completed" if done else "failed" if decision == "nonsense" else "declined"}, began)
    if done:
        turn.notify("turn/diff/updated", diff="".join(f"+++ b/{path}\n+{text}" for path, text in step["changes"].items()))
    if decision == "cancel":
        raise FakeTurnEnded("interrupted")
    yield None


def _is_asked(turn: PlayedCodexTurn, step: Step) -> bool:
    if step["ask"] is not None:
        return bool(step["ask"])
    return bool(turn.server.approvals.get(turn.thread["id"]) == "untrusted")


def _decide(turn: PlayedCodexTurn, method: str, params: dict[str, Any], *, key: str) -> Played:
    """Ask for approval, and return the decision; `nonsense` for an error and for a word that is none."""
    if (turn.thread["id"], key) in turn.server.allowed:
        return "acceptForSession"
    answer = yield from turn.ask(method, params)
    result = answer.get("result")
    decision = result.get("decision") if isinstance(result, dict) else None
    if decision not in DECISIONS:
        turn.server.stage.errors.write(b"ERROR codex_app_server: the answer to an approval request is not valid\n")
        return "nonsense"
    if decision == "acceptForSession":
        turn.server.allowed.add((turn.thread["id"], key))
    return decision


def call_tool(turn: PlayedCodexTurn, step: Step) -> Played:
    item = frames.tool_call(turn.server.stage.short_id("call"), step["tool"], step["arguments"])
    began = turn.begin_item(item)
    params = {"callId": item["id"], "namespace": None, "tool": step["tool"], "arguments": step["arguments"]}
    answer = yield from turn.ask("item/tool/call", params)
    given = answer.get("result")
    result = given if isinstance(given, dict) else {}
    success = result.get("success") is True
    done = {"status": "completed" if success else "failed", "contentItems": result.get("contentItems"), "success": success, "durationMs": 0}
    turn.end_item({**item, **done}, began)
    yield None


def retry(turn: PlayedCodexTurn, step: Step) -> Played:
    error = frames.turn_error(step["message"], step["info"], step["details"])
    turn.server.notify("error", {"error": error, "willRetry": True, "threadId": turn.thread["id"], "turnId": turn.id})
    yield None


def fail(turn: PlayedCodexTurn, step: Step) -> Played:
    error = frames.turn_error(step["message"], step["info"])
    turn.change_status(type="systemError")
    turn.server.notify("error", {"error": error, "willRetry": False, "threadId": turn.thread["id"], "turnId": turn.id})
    yield None
    raise FakeTurnEnded("failed", error)


def notify(turn: PlayedCodexTurn, step: Step) -> Played:
    here = {} if step["bare"] else {"threadId": turn.thread["id"], "turnId": turn.id}
    turn.server.notify(step["method"], {**here, **step["params"]})
    yield None


def ask(turn: PlayedCodexTurn, step: Step) -> Played:
    yield from turn.ask(step["method"], step["params"])


def delay(_turn: PlayedCodexTurn, step: Step) -> Played:
    yield _wait_for(step["seconds"])


def wait_for_file(turn: PlayedCodexTurn, step: Step) -> Played:
    yield _wait_for_file(turn, step["path"])


DEEDS_OF_A_TURN: dict[str, Callable[[PlayedCodexTurn, Step], Played]] = {
    "say": say,
    "think": think,
    "run_command": run_command,
    "change_files": change_files,
    "call_tool": call_tool,
    "retry": retry,
    "fail": fail,
    "notify": notify,
    "ask": ask,
    "delay": delay,
    "wait_for_file": wait_for_file,
}
