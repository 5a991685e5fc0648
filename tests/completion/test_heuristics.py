"""What a run that reports success is still suspected of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claude_transport.completion.assembly import advise
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.envelope import Message

RECORDINGS = Path(__file__).parents[1] / "recordings"


def run(*frames: dict[str, Any]) -> list[Message]:
    return [decode_message(json.dumps(frame).encode()) for frame in frames]


def said(*content: dict[str, Any], stop: str | None = None, of: str = "msg_1", parent: str | None = None) -> dict[str, Any]:
    message = {"id": of, "role": "assistant", "model": "m", "content": list(content), "stop_reason": stop}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(name: str, of: str = "toolu_1", **tool_input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": of, "name": name, "input": tool_input}


def result(turns: int = 1, *, stop: str | None = "end_turn", **fields: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "num_turns": turns, "stop_reason": stop, **fields}


def task(subtype: str, **fields: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": subtype, "task_id": "t1", **fields}


STARTED = task("task_started", tool_use_id="toolu_1", task_type="local_agent")
LAUNCH = said(tool("Task", run_in_background=True))


def category_of(*frames: dict[str, Any]) -> str | None:
    advice = advise(run(*frames))
    return advice and advice.category


# -------------------------------------------------------------------------------------------------------- interactive-hang


def test_s2_7_a_single_turn_that_ends_with_a_question_hangs() -> None:
    advice = advise(run(said(text("Shall I go on? \n")), result()))
    assert advice is not None
    assert advice.category == "interactive"
    assert advice.warning.startswith("interactive-hang: ")


def test_s2_7_a_question_the_user_is_asked_by_tool_hangs_without_a_question_mark() -> None:
    assert category_of(said(text("Choose."), of="a"), said(tool("AskUserQuestion"), of="a"), result()) == "interactive"


@pytest.mark.parametrize(
    "frames",
    [
        [said(text("Shall I?")), result(2)],
        [said(text("Shall I?")), result(stop="max_tokens")],
        [said(text("Shall I?"), stop="tool_use"), result()],
        [said(text("Done.")), result()],
        [said(text("Why? Because.")), result()],
        [said(text("Shall I?"), parent="toolu_1"), result()],
        [said(text("Shall I?"))],
        [result()],
        [said(text("Shall I?"), of="a"), said(text("I shall."), of="b"), result()],
    ],
    ids=["two turns", "cut off", "a tool's turn", "no question", "answered", "a subagent's", "no result", "no words", "went on"],
)
def test_s2_7_no_hang_is_seen_in(frames: list[dict[str, Any]]) -> None:
    assert category_of(*frames) is None


def test_s2_7_a_run_that_reports_a_failure_is_left_at_that() -> None:
    assert category_of(said(text("Shall I?")), result(is_error=True)) is None


@pytest.mark.parametrize("claim", ["true", 1, None])
def test_s2_7_only_a_strictly_true_is_error_is_a_failure(claim: Any) -> None:
    assert category_of(said(text("Shall I?")), result(is_error=claim)) == "interactive"


def test_s2_7_stop_reason_on_the_message_counts_before_that_of_the_result() -> None:
    assert category_of(said(text("Shall I?"), stop="end_turn"), result(stop=None)) == "interactive"


# --------------------------------------------------------------------------------------------------------- background-task


@pytest.mark.parametrize("name", ["Task", "Agent"])
def test_s2_7_too_few_turns_after_a_launch_are_a_background_task_left_behind(name: str) -> None:
    advice = advise(run(said(tool(name, run_in_background=True)), said(text("Launched."), of="b"), result(2)))
    assert advice is not None
    assert advice.category == "background-task"
    assert advice.warning.startswith("background-task: 1 background task was launched")


@pytest.mark.parametrize("words", ["waiting on it", "Still Waiting", "Continuing.", "it is in progress", "It runs in the background."])
def test_s2_7_words_of_waiting_count_whatever_the_number_of_turns(words: str) -> None:
    assert category_of(LAUNCH, said(text(words), of="b"), result(9)) == "background-task"


@pytest.mark.parametrize(
    "launch",
    [
        tool("Task"),
        tool("Task", run_in_background=False),
        tool("Task", run_in_background="true"),
        tool("Task", run_in_background=1),
        tool("Bash", run_in_background=True),
    ],
)
def test_s2_7_only_agents_launched_with_a_strictly_true_flag_count(launch: dict[str, Any]) -> None:
    assert category_of(said(launch), said(text("still waiting"), of="b"), result(2)) is None


def test_s2_7_enough_turns_and_no_words_of_waiting_are_fine() -> None:
    assert category_of(LAUNCH, said(text("All done."), of="b"), result(3)) is None


def test_s2_7_a_hang_wins_over_a_background_task() -> None:
    assert category_of(LAUNCH, said(text("Still waiting. Shall I go on?"), of="b"), result(1)) == "interactive"


def test_s2_7_no_result_no_advice() -> None:
    assert category_of(LAUNCH, said(text("still waiting"), of="b")) is None


# ------------------------------------------------------------------------------------- the frames decide, where there are any


@pytest.mark.parametrize(
    "end",
    [
        task("task_notification", status="completed"),
        task("task_notification", status="failed"),
        task("task_updated", patch={"status": "killed"}),
        {"type": "system", "subtype": "background_tasks_changed", "tasks": []},
    ],
    ids=["notified", "failed", "killed", "no longer listed"],
)
def test_s2_7_a_task_that_the_cli_saw_end_is_no_background_task_whatever_the_words(end: dict[str, Any]) -> None:
    assert category_of(LAUNCH, STARTED, end, said(text("still waiting"), of="b"), result(2)) is None


def test_s2_7_a_task_that_the_cli_never_saw_end_is_one_whatever_the_turns() -> None:
    going_on = task("task_updated", patch={"status": "running"})
    listed = {"type": "system", "subtype": "background_tasks_changed", "tasks": [{"task_id": "t1"}]}
    advice = advise(run(LAUNCH, STARTED, going_on, listed, said(text("All done."), of="b"), result(9)))
    assert advice is not None
    assert advice.warning == "background-task: 1 background task was still running when the run ended"


def test_s2_7_tasks_of_other_tools_do_not_decide() -> None:
    other = task("task_started", tool_use_id="toolu_9", task_type="local_bash")
    assert category_of(LAUNCH, other, said(text("All done."), of="b"), result(9)) is None
    assert category_of(LAUNCH, other, said(text("still waiting"), of="b"), result(9)) == "background-task"


# ------------------------------------------------------------------------------------------------------ on recorded lines


def recorded(name: str) -> list[Message]:
    entries = [json.loads(line) for line in (RECORDINGS / name).read_text("utf-8").splitlines()]
    return [decode_message(entry["line"].encode()) for entry in entries if entry["dir"] == "out" and "trimmed_from_chars" not in entry]


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("01_oneshot_stdin_eof.ndjson", None),
        ("11_401_noretry.ndjson", None),
        ("15a_subagent_foreground.ndjson", None),
        ("15c_subagent_background.ndjson", None),
        ("24j_bg_agent_ceiling_1500ms.ndjson", "background-task"),
    ],
)
def test_s2_7_what_was_recorded_is_judged_by_its_frames(name: str, category: str | None) -> None:
    advice = advise(recorded(name))
    assert (advice and advice.category) == category


def test_s2_7_a_recorded_background_agent_is_seen_while_it_runs() -> None:
    messages = recorded("15c_subagent_background.ndjson")
    first = next(index for index, message in enumerate(messages) if message.type == "result")
    advice = advise(messages[: first + 1])
    assert advice is not None
    assert "still running" in advice.warning
