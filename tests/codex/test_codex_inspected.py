"""A tape of Codex is inspected as one of Claude is: turns, items, questions, errors, on a terminal and as a page."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import pytest
from codex_recordings import entries_of
from codex_tapes import CONVERSATIONS, tape_of
from hostile_words import HOSTILE, assert_lines_are_safe
from hypothesis import given, settings
from hypothesis import strategies as st
from strange_lines import made_strange

from claude_transport.app.inspect_tape import inspection_lines
from claude_transport.app.terminal import choose_look
from claude_transport.inspection import Event, Timeline, read_timeline, render_page, summarize
from claude_transport.protocol.tape import Direction, Tape, TapeRecord

LOOK = choose_look(sys.stdout, sys.stderr, env={"COLUMNS": "120"}, plain=True, no_color=True)


def events(timeline: Timeline, kind: str) -> list[Event]:
    return [event for event in timeline.events if event.kind == kind]


def text_of(tape: Tape) -> str:
    return "\n".join(inspection_lines(summarize(tape), name="tape", look=LOOK, everything=True))


@pytest.mark.parametrize(
    ("name", "outcomes", "tokens"),
    [
        ("app_text", ["ok", "ok"], 200),
        ("app_command_accept", ["ok"], 200),
        ("app_command_cancel", ["result.interrupted"], 100),
        ("app_two_threads_at_once", ["ok", "ok"], 200),
        ("app_401", ["exec.cli.auth_failed"], 0),
        ("app_429", ["result.rate_limited"], 0),
        ("app_500", ["result.server_error"], 0),
        ("app_response_failed_context", ["result.prompt_too_long"], 0),
        ("app_eof_during_turn", ["result.missing"], 0),
        ("app_before_initialize", [], 0),
    ],
)
def test_the_turns_of_a_recording_with_their_outcomes_and_tokens(name: str, outcomes: list[str], tokens: int) -> None:
    summary = summarize(tape_of(name))
    assert summary.agent == "codex"
    assert [turn.outcome for turn in summary.turns] == outcomes
    assert summary.tokens.input_tokens + summary.tokens.cache_read_input_tokens == tokens
    assert [turn.number for turn in summary.turns] == list(range(1, len(outcomes) + 1))


def test_a_turn_has_its_prompt_its_first_words_and_its_calls() -> None:
    (turn,) = summarize(tape_of("app_command_accept")).turns
    assert (turn.prompt, turn.prompts, turn.tool_calls, turn.tool_errors, turn.api_messages) == ("Make a file", 1, 1, 0, 2)
    assert turn.first_output is not None
    assert 0 < turn.first_output < turn.seconds


def test_each_item_is_an_event_in_its_lane() -> None:
    timeline = read_timeline(tape_of("app_command_accept"))
    assert [(event.lane, event.title, event.status) for event in events(timeline, "tool")] == [("tools", "commandExecution", "ok")]
    assert "touch made-by-command" in events(timeline, "tool")[0].gist
    assert [event.gist for event in events(timeline, "thinking")] == ["I use a tool."]
    (text,) = events(timeline, "text")
    assert (text.gist, text.turn, text.pieces) == ("Hello, world", 1, 3)
    (prompt,) = events(timeline, "prompt")
    assert (prompt.gist, prompt.status, prompt.turn) == ("Make a file", "done", 1)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("app_command_accept", "allowed"),
        ("app_command_decline", "denied"),
        ("app_command_cancel", "denied"),
        ("app_command_error_answer", "error"),
        ("app_command_nonsense_answer", "error"),
    ],
)
def test_a_question_for_approval_has_its_answer(name: str, status: str) -> None:
    (question,) = events(read_timeline(tape_of(name)), "question")
    assert (question.lane, question.status, question.turn) == ("control", status, 1)
    assert question.seconds is not None
    (asked,) = (stats for stats in summarize(tape_of(name)).requests if stats.asked_by == "codex")
    assert (asked.name, asked.calls, asked.open) == ("item/commandExecution/requestApproval", 1, 0)
    assert (asked.errors, asked.denied) == (status == "error", status == "denied")


def test_a_question_that_an_interrupt_made_moot_is_cancelled() -> None:
    ask = b'{"method":"item/tool/call","id":0,"params":{"threadId":"t","turnId":"1","tool":"add","arguments":{}}}'
    gone = b'{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":0}}'
    (question,) = events(read_timeline(Tape([TapeRecord(0, "out", ask), TapeRecord(1, "out", gone)])), "question")
    assert (question.status, question.seconds) == ("cancelled", 1.0)


@pytest.mark.parametrize(("way", "by"), [("in", "the host"), ("out", "codex")])
@pytest.mark.parametrize(
    ("answer", "gist", "level"),
    [({"result": {"decision": "accept"}}, "", "minor"), ({"error": {"code": 1, "message": "not mine"}}, "not mine", "warning")],
)
def test_an_answer_to_nothing_is_an_event_of_its_own(way: Any, by: str, answer: dict[str, Any], gist: str, level: str) -> None:
    greeting = b'{"id":0,"method":"initialize","params":{}}'
    line = json.dumps({"id": 99, **answer}).encode()
    timeline = read_timeline(Tape([TapeRecord(0, "in", greeting), TapeRecord(1, way, line)]))
    (event,) = events(timeline, "answer")
    assert (event.lane, event.title, event.gist, event.level) == ("control", f"Answer of {by} to nothing that is open", gist, level)


def test_an_answer_of_which_the_tape_has_the_beginning_shows_that() -> None:
    ask = TapeRecord(0, "in", b'{"id":7,"method":"model/list","params":{}}')
    cut = TapeRecord(1, "out", b'{"id":7,"result":{"data":[{"id":"first-mo', trimmed_from_chars=50_000)
    (event,) = events(read_timeline(Tape([ask, cut])), "request")
    assert (event.title, event.status) == ("model/list", "ok")
    assert [(section.label, section.text, section.chars) for section in event.sections][1:] == [("as recorded", cut.line.decode(), 50_000)]


def test_what_has_no_end_on_the_tape_is_a_problem() -> None:
    ask = {"method": "item/commandExecution/requestApproval", "id": 0, "params": {"threadId": "t", "turnId": "1", "itemId": "c"}}
    call = {"method": "item/started", "params": {"turnId": "1", "item": {"type": "commandExecution", "id": "c", "command": "ls"}}}
    prompt = {"id": 8, "method": "turn/start", "params": {"threadId": "t", "input": [{"type": "text", "text": "Go"}]}}
    lines: list[tuple[Direction, dict[str, Any]]] = [
        ("in", {"id": 7, "method": "model/list", "params": {}}),
        ("in", prompt),
        ("out", ask),
        ("out", call),
    ]
    greeting = TapeRecord(0, "in", b'{"id":0,"method":"initialize","params":{}}')
    answer = TapeRecord(0, "out", b'{"id":0,"result":{}}')
    timeline = read_timeline(Tape([greeting, answer, *(TapeRecord(1, way, json.dumps(line).encode()) for way, line in lines)]))
    assert [(problem.level, problem.text) for problem in timeline.summary.problems] == [
        ("error", "a prompt has no result"),
        ("warning", "model/list has no answer"),
        ("warning", "turn/start has no answer"),
        ("warning", "item/commandExecution/requestApproval has no answer"),
        ("warning", "commandExecution has no result"),
    ]
    assert [(event.kind, event.status, event.level) for event in timeline.events][-4:] == [
        ("request", "open", "warning"),
        ("prompt", "lost", "error"),
        ("question", "open", "warning"),
        ("tool", "open", "warning"),
    ]


def test_a_declined_command_and_a_failed_call_are_problems() -> None:
    assert any("commandExecution was declined" in problem.text for problem in summarize(tape_of("app_command_decline")).problems)
    assert summarize(tape_of("app_command_decline")).tool_errors == 1
    assert any("turn/steer failed" in problem.text for problem in summarize(tape_of("app_steer")).problems)


def test_a_retry_is_no_failure_and_its_final_error_is() -> None:
    summary = summarize(tape_of("app_401"))
    assert summary.retries == 1
    levels = [problem.level for problem in summary.problems]
    assert levels.count("error") >= 1
    assert any(problem.text.startswith("API retry") and problem.level == "warning" for problem in summary.problems)


def test_a_text_that_was_cut_short_is_unfinished() -> None:
    timeline = read_timeline(tape_of("app_interrupt"))
    (unfinished,) = (event for event in timeline.events if event.title == "Text, unfinished")
    assert (unfinished.gist, unfinished.status, unfinished.turn) == ("slow", "aborted", 1)


def test_a_text_that_is_said_again_is_not_doubled() -> None:
    def item(kind: str, text: str) -> bytes:
        about = {"type": "agentMessage", "id": "m", "text": text}
        return json.dumps({"method": kind, "params": {"threadId": "t", "turnId": "1", "item": about}}).encode()

    delta = b'{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"1","itemId":"m","delta":"half "}}'
    began = b'{"method":"turn/started","params":{"threadId":"t","turn":{"id":"1"}}}'
    lines = [began, item("item/started", ""), delta, item("item/started", ""), delta, delta, item("item/completed", "half half ")]
    timeline = read_timeline(Tape([TapeRecord(number, "out", line) for number, line in enumerate(lines)]))
    assert [(event.title, event.gist) for event in events(timeline, "text")] == [("Text, begun again", "half"), ("Text", "half half")]


def test_prompts_that_share_a_turn_and_one_that_was_refused() -> None:
    timeline = read_timeline(tape_of("app_steer"))
    assert [event.status for event in events(timeline, "prompt")] == ["done", "folded", "dropped", "folded"]
    assert [event.seconds is not None for event in events(timeline, "prompt") if event.status == "dropped"] == [True]
    (turn,) = timeline.summary.turns
    assert turn.prompts == 3


def test_what_codex_cannot_read_and_what_cannot_be_read_of_codex() -> None:
    summary = summarize(tape_of("app_malformed"))
    assert summary.unreadable_lines == 2
    assert summary.messages_in["no/such/method"] == 1
    assert summary.messages_out["answer"] > 0


def test_two_threads_are_told_apart() -> None:
    timeline = read_timeline(tape_of("app_two_threads_at_once"))
    assert len(timeline.summary.session_ids) == 2
    assert {event.turn for event in events(timeline, "text")} == {1, 2}
    assert [turn.prompt for turn in timeline.summary.turns] == ["One", "Two"]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_recording_is_shown_on_a_terminal_and_as_a_page(name: str) -> None:
    timeline = read_timeline(tape_of(name))
    assert timeline.summary.agent == "codex"
    assert "codex" in text_of(tape_of(name))
    page = "".join(render_page(timeline, title=name))
    assert "from codex" in page
    assert "from claude" not in page
    assert not [event for event in timeline.events if event.status == "open" and event.kind == "request" and "EOF" in event.title]


@pytest.mark.parametrize("name", ["exec_text", "exec_429_then_ok", "exec_401", "exec_file_change"])
def test_a_tape_of_codex_exec_has_its_turn(name: str) -> None:
    records = [TapeRecord(entry["t"], entry["dir"], entry["line"].encode()) for entry in entries_of(name) if entry["dir"] in ("out", "err")]
    summary = summarize(Tape(records))
    assert summary.agent == "codex"
    assert [turn.outcome for turn in summary.turns] == ["exec.cli.auth_failed" if name == "exec_401" else "ok"]
    assert len(summary.session_ids) == 1


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
def test_hostile_words_of_codex_are_printable_everywhere(words: str) -> None:
    command = {"type": "commandExecution", "id": "c", "status": "failed"}
    places: list[dict[str, Any]] = [
        {"method": words, "params": {"threadId": words}},
        {"method": "turn/started", "params": {"threadId": words, "turn": {"id": words}}},
        {"method": "item/started", "params": {"turnId": words, "item": {"type": words, "id": words, "status": words}}},
        {"method": "item/completed", "params": {"turnId": words, "item": {**command, "command": words, "aggregatedOutput": words}}},
        {"method": "item/completed", "params": {"turnId": words, "item": {"type": "agentMessage", "id": "m", "text": words}}},
        {"method": "item/tool/call", "id": words, "params": {"tool": words, "arguments": {words: words}}},
        {"method": "error", "params": {"turnId": words, "error": {"message": words, "codexErrorInfo": words}}},
        {"method": "configWarning", "params": {"summary": words}},
        {"id": words, "error": {"code": 1, "message": words}},
        {"method": "turn/completed", "params": {"threadId": words, "turn": {"id": words, "status": words, "error": {"message": words}}}},
    ]
    host = {"id": 1, "method": "turn/start", "params": {"threadId": words, "input": [{"type": "text", "text": words}]}}
    tape = Tape([TapeRecord(0, "in", json.dumps(host).encode()), *(TapeRecord(0, "out", json.dumps(line).encode()) for line in places)])
    assert_lines_are_safe(text_of(tape).split("\n"))
    assert "".join(render_page(read_timeline(tape), title="tape")).count("<script") == 2


def test_markup_from_a_tape_is_escaped_in_the_page() -> None:
    words = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    line = json.dumps(
        {"method": "turn/completed", "params": {"turn": {"id": "1", "status": "failed", "error": {"message": words}}}}
    ).encode()
    page = "".join(render_page(read_timeline(Tape([TapeRecord(0, "out", line)])), title="tape"))
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_strange_values_anywhere_break_nothing() -> None:
    chance = random.Random(18)
    for name in CONVERSATIONS:
        records = []
        for record in tape_of(name):
            line = record.line
            if record.dir in ("in", "out") and chance.random() < 0.5:
                try:
                    line = json.dumps(made_strange(json.loads(line), chance)).encode("utf-8", "surrogatepass")
                except ValueError:
                    pass  # a line that was never JSON stays as it is
            records.append(TapeRecord(record.t, record.dir, line))
        timeline = read_timeline(Tape(records))
        assert timeline.event_count
        assert "".join(render_page(timeline, title="tape"))
        assert list(inspection_lines(timeline.summary, name="tape", look=LOOK))


@settings(max_examples=100, deadline=None)
@given(lines=st.lists(st.tuples(st.sampled_from(["in", "out"]), st.binary(max_size=80)), max_size=8))
def test_noise_in_a_tape_of_codex_breaks_nothing(lines: list[tuple[Any, bytes]]) -> None:
    greeting = TapeRecord(0, "in", b'{"id":0,"method":"initialize","params":{}}')
    summary = summarize(Tape([greeting, *(TapeRecord(0, way, line) for way, line in lines)]))
    assert summary.agent == "codex"
    assert summary.records == len(lines) + 1


def test_a_flood_of_items_and_turns_keeps_its_figures() -> None:
    lines = [
        b'{"method":"item/started","params":{"turnId":"1","item":{"type":"agentMessage","id":"%d"}}}' % number for number in range(6000)
    ]
    lines += [b'{"method":"turn/started","params":{"turn":{"id":"%d"}}}' % number for number in range(2000)]
    summary = summarize(Tape([TapeRecord(0, "out", line) for line in lines]))
    assert summary.messages_out == {"item/started": 6000, "turn/started": 2000}
    assert len(summary.turns) == 1000


def completed(**fields: Any) -> dict[str, Any]:
    return {"method": "item/completed", "params": {"threadId": "T", "turnId": "U", "item": {"id": "i", **fields}}}


LINES: list[tuple[Direction, dict[str, Any]]] = [
    ("in", {"id": 0, "method": "initialize", "params": {}}),
    ("out", {"id": 0, "result": {"userAgent": "codex/0.1"}}),
    ("in", {"id": 2, "method": "turn/start", "params": {"threadId": "T", "input": [{"type": "text", "text": "hello"}], "model": "m"}}),
    ("out", {"id": 2, "result": {"turn": {"id": "U"}}}),
    ("out", {"method": "turn/started", "params": {"threadId": "T", "turn": {"id": "U", "status": "inProgress", "items": []}}}),
    ("in", {"id": 3, "method": "turn/steer", "params": {"threadId": "T", "input": []}}),
    ("out", {"id": 3, "result": {}}),
    ("out", completed(type="agentMessage", text="")),
    ("out", completed(type="agentMessage", text="hi")),
    ("out", completed(type="reasoning", summary=["a"], content=["b"])),
    ("out", completed(type="plan", text="first")),
    ("out", completed(type="userMessage", content=[{"type": "text", "text": "you"}])),
    ("out", completed(type="contextCompaction")),
    ("out", completed(type="somethingNew", x=1)),
    ("out", completed(type="", x=1)),
    ("out", completed(type="commandExecution", command="ls", cwd="/", status="completed", exitCode=1, aggregatedOutput="out")),
    ("out", {"method": "turn/completed", "params": {"threadId": "T", "turn": {"id": "U", "status": "completed", "items": []}}}),
]
TOLD = [  # lane, kind, title, gist, status, and the text of each section by its label
    ("user", "prompt", "Prompt", "hello", "done", {"text": "hello", "options": {"model": "m"}, "answer": {"turn": {"id": "U"}}}),
    ("user", "prompt", "Prompt into the running turn", "(empty)", "open", {"answer": {}}),
    ("assistant", "text", "Text", "(empty)", "", {}),
    ("assistant", "text", "Text", "hi", "", {"text": "hi"}),
    ("assistant", "thinking", "Thinking", "a b", "", {"text": "a\nb"}),
    ("assistant", "plan", "Plan", "first", "", {"text": "first"}),
    ("user", "echo", "Echo of a prompt", "you", "", {"text": "you"}),
    ("session", "contextCompaction", "The conversation was shortened", "", "", {}),
    (
        "assistant",
        "item",
        "somethingNew",
        '{ "id": "i", "type": "somethingNew", "x": 1 }',
        "",
        {"item": {"id": "i", "type": "somethingNew", "x": 1}},
    ),
    ("assistant", "item", "An item without a type", '{ "id": "i", "type": "", "x": 1 }', "", {"item": {"id": "i", "type": "", "x": 1}}),
    ("tools", "tool", "commandExecution", "ls", "error", {"input": {"command": "ls", "cwd": "/"}, "result": "out"}),
]


def test_each_item_of_a_turn_is_shown_as_what_it_is() -> None:
    def shown(text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    tape = Tape([TapeRecord(number / 10, direction, json.dumps(line).encode()) for number, (direction, line) in enumerate(LINES)])
    told = [
        (event.lane, event.kind, event.title, event.gist, event.status, {each.label: shown(each.text) for each in event.sections})
        for event in read_timeline(tape).events
    ]
    assert [each for each in told if each[1] not in ("request", "turn/started", "result")] == TOLD


def test_a_turn_takes_from_its_prompt_to_its_end_and_a_text_that_never_came_whole_as_long_as_it_was_there() -> None:
    place = {"threadId": "T", "turnId": "U"}
    begun: list[tuple[Direction, dict[str, Any]]] = [
        *LINES[:5],
        ("out", {"method": "item/started", "params": {**place, "item": {"id": "m", "type": "agentMessage", "text": ""}}}),
        ("out", {"method": "item/agentMessage/delta", "params": {**place, "itemId": "m", "delta": "half "}}),
        ("out", {"method": "item/agentMessage/delta", "params": {**place, "itemId": "m", "delta": "a text"}}),
        LINES[-1],
    ]
    timeline = read_timeline(Tape([TapeRecord(float(number), way, json.dumps(line).encode()) for number, (way, line) in enumerate(begun)]))
    (turn,) = timeline.summary.turns
    assert (turn.t, turn.seconds, turn.prompt, turn.prompts) == (2.0, 6.0, "hello", 1)
    (text,) = events(timeline, "text")
    assert (text.t, text.seconds, text.pieces, text.gist, text.status) == (5.0, 3.0, 2, "half a text", "aborted")


_APPROVAL = {"threadId": "t", "turnId": "1", "itemId": "c"}
REPORTS: list[tuple[str, dict[str, Any], tuple[str, str, str]]] = [
    ("configWarning", {"summary": "odd"}, ("Configuration", "odd", "normal")),
    ("deprecationNotice", {"summary": "old"}, ("Deprecated", "old", "normal")),
    ("warning", {"message": "hot"}, ("Warning", "hot", "warning")),
    ("model/rerouted", {"threadId": "t", "fromModel": "a", "toModel": "b"}, ("Another model takes over", "a → b", "warning")),
    ("thread/started", {"thread": {"id": "t", "cwd": "/w"}}, ("Thread", "t in /w", "normal")),
    ("thread/started", {"thread": {"id": "t"}}, ("Thread", "t in no directory", "normal")),
    ("some/thing", {"a": 1}, ("some/thing", '{ "a": 1 }', "normal")),
    ("", {"a": 1}, ("A message without a method", '{ "a": 1 }', "normal")),
    (
        "thread/name/updated",
        {"threadId": "t", "turnId": "1", "threadName": "n"},
        ("thread/name/updated", '{ "threadName": "n" }', "normal"),
    ),
]
QUESTIONS: list[tuple[str, dict[str, Any], tuple[str, str, str]]] = [
    ("item/commandExecution/requestApproval", {**_APPROVAL, "command": "ls"}, ("May it run a command?", "ls", "warning")),
    ("item/fileChange/requestApproval", _APPROVAL, ("May it change files?", "c", "warning")),
    ("item/fileChange/requestApproval", {**_APPROVAL, "reason": "why"}, ("May it change files?", "why", "warning")),
    ("item/other/requestApproval", {"a": 1}, ("item/other/requestApproval", '{ "a": 1 }', "warning")),
    ("item/tool/call", {"tool": "add", "arguments": {"b": 1}}, ("Tool of the host: add", '{ "b": 1 }', "warning")),
    ("item/unknown/call", {"a": 1}, ("item/unknown/call", '{ "a": 1 }', "warning")),
]


@pytest.mark.parametrize(("method", "params", "shown"), [*REPORTS, *QUESTIONS])
def test_what_codex_tells_and_asks_has_a_title_a_line_and_a_level(method: str, params: dict[str, Any], shown: tuple[str, str, str]) -> None:
    greeting = b'{"id":0,"method":"initialize","params":{}}'
    identity = {"id": 1} if (method, params, shown) in QUESTIONS else {}
    line = json.dumps({"method": method, **identity, "params": params}).encode()
    *_, event = read_timeline(Tape([TapeRecord(0, "in", greeting), TapeRecord(1, "out", line)])).events
    assert (event.title, event.gist, event.level) == shown
    assert (event.lane == "control", event.kind == "question") == (bool(identity), bool(identity))
