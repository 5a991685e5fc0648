"""Figures and events of a tape: turns, tools, requests, tokens, costs, problems; also of strange, hostile and very long tapes."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_tapes import UUID, TapeMaker, text, use
from strange_lines import made_strange

from claude_transport.app.inspect_tape import inspection_lines
from claude_transport.app.terminal import Look
from claude_transport.errors import ConfigurationError
from claude_transport.inspection import Event, Timeline, read_timeline, render_page, summarize
from claude_transport.protocol.envelope import parse_json
from claude_transport.protocol.tape import CLOSED, INPUT_ENDED, OUTPUT_ENDED, Tape, TapeHeader, TapeRecord, note_of_exit, note_of_withdrawal

TESTS = Path(__file__).parent.parent
RECORDINGS = sorted((TESTS / "recordings").glob("*.ndjson")) + sorted((TESTS / "testing" / "recordings").glob("*.ndjson"))


def recorded(name: str) -> Timeline:
    return read_timeline(TESTS / "recordings" / f"{name}.ndjson")


def titled(timeline: Timeline, title: str) -> Event:
    """Return the only event with this title."""
    (event,) = (event for event in timeline.events if event.title == title)
    return event


def test_every_recording_has_a_timeline_that_accounts_for_all_of_it() -> None:
    assert len(RECORDINGS) > 100
    for path in RECORDINGS:
        timeline = read_timeline(path)
        summary = timeline.summary
        assert summary == summarize(path), path.name
        assert summary.records == len(Tape.read(path)), path.name
        assert len(timeline.events) == timeline.event_count, path.name
        assert [event.t for event in timeline.events] == sorted(event.t for event in timeline.events), path.name
        assert sum(summary.messages_out.values()) + sum(summary.messages_in.values()) > 0 or summary.unreadable_lines >= 0
        results = {event.turn for event in timeline.events if event.kind == "result"} - {None}
        assert results <= {turn.number for turn in summary.turns}, path.name
        calls = (*summary.tools, *summary.requests)
        assert all(stats.calls >= stats.errors + stats.denied + stats.cancelled + stats.open for stats in calls), path.name


def test_a_turn_with_a_tool_and_a_permission_has_all_its_figures() -> None:
    timeline = recorded("04a_permission_allow")
    (turn,) = timeline.summary.turns
    assert (turn.outcome, turn.prompt, turn.prompts, turn.api_messages, turn.tool_calls) == ("ok", "BASH", 1, 2, 1)
    assert (turn.seconds, turn.first_output) == (pytest.approx(0.206), pytest.approx(0.1))
    assert (turn.tokens.input_tokens, turn.tokens.output_tokens) == (24, 14)
    assert timeline.summary.cost_usd == turn.cost_usd == pytest.approx(0.000376)
    bash = titled(timeline, "Bash")
    assert (bash.lane, bash.status, bash.seconds) == ("tools", "ok", pytest.approx(0.077))
    assert [section.label for section in bash.sections] == ["input", "result"]
    question = titled(timeline, "can_use_tool Bash")
    assert (question.lane, question.status) == ("control", "allowed")
    assert [(stats.name, stats.asked_by, stats.calls) for stats in timeline.summary.requests] == [
        ("initialize", "host", 1),
        ("can_use_tool", "claude", 1),
    ]
    assert timeline.summary.ok
    assert timeline.summary.problems == ()


def test_a_denied_tool_is_counted_as_denied_and_not_as_broken() -> None:
    timeline = recorded("04b_permission_deny")
    (stats,) = timeline.summary.tools
    assert (stats.calls, stats.denied, stats.errors) == (1, 1, 0)
    assert titled(timeline, "can_use_tool Bash").status == "denied"


def test_streamed_pieces_are_folded_into_the_block_they_make() -> None:
    timeline = recorded("03_partial_messages")
    (words,) = (event for event in timeline.events if event.kind == "text")
    assert (words.pieces, words.sections[0].text) == (4, "Done thinking, here is text.")
    (thought,) = (event for event in timeline.events if event.kind == "thinking")
    assert thought.waited == pytest.approx(0.112)  # from the prompt to the first word
    assert not [event for event in timeline.events if event.kind.startswith("content_block")]


@pytest.mark.parametrize("place", [0, None, {"strange": []}])
def test_what_was_begun_and_never_arrived_is_shown_as_far_as_it_came(place: Any) -> None:
    maker = TapeMaker().prompt("hi")
    for event in (
        {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 9, "output_tokens": 1}}},
        {"type": "content_block_start", "index": place, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": place, "delta": {"type": "text_delta", "text": "Once upon "}},
        {"type": "content_block_delta", "index": place, "delta": {"type": "text_delta", "text": "a ti"}},
    ):
        maker.put("out", {"type": "stream_event", "event": event, "parent_tool_use_id": None})
    timeline = read_timeline(maker.tape)
    unfinished = titled(timeline, "Text, unfinished")
    assert (unfinished.gist, unfinished.status, unfinished.seconds) == ("Once upon a ti", "aborted", pytest.approx(0.2))
    assert timeline.summary.tokens.input_tokens == 9


def test_an_interrupted_turn_has_the_tokens_of_its_messages_and_the_next_prompt_its_own_turn() -> None:
    summary = recorded("07a_interrupt_during_stream").summary
    assert [(turn.outcome, turn.prompt, turn.tokens.input_tokens) for turn in summary.turns] == [
        ("result.interrupted", "SLOWSTREAM", 12),
        ("ok", "after interrupt", 12),  # a prompt without a uuid, after one with a uuid
    ]
    assert not summary.ok


def test_prompts_that_were_folded_or_merged_share_a_turn() -> None:
    folded = recorded("10f_message_folded_into_running_turn")
    assert [turn.prompts for turn in folded.summary.turns] == [2]
    assert [event.status for event in folded.events if event.kind == "prompt"] == ["done", "folded"]
    assert [turn.prompts for turn in recorded("10j_two_queued_behind_text_turn_no_uuid").summary.turns] == [1, 2]


def test_a_turn_that_a_task_woke_the_session_for_has_no_prompt() -> None:
    summary = recorded("15c_subagent_background").summary
    assert [turn.prompts for turn in summary.turns] == [1, 0]


def test_retries_and_the_failure_they_end_in_are_problems() -> None:
    summary = recorded("11_529_retries2").summary
    assert (summary.retries, summary.turns[0].outcome) == (2, "result.overloaded")
    assert [problem.level for problem in summary.problems] == ["warning", "warning", "error", "error"]
    assert (summary.problem_count, summary.error_count) == (4, 2)


def test_an_exit_code_that_a_failed_result_explains_is_no_further_problem() -> None:
    explained = recorded("11_529_retries2")
    assert (explained.summary.exit_code, titled(explained, "The process ended with exit code 1").level) == (1, "normal")
    unexplained = recorded("19a_unknown_flag")
    assert titled(unexplained, "The process ended with exit code 1").level == "error"


def test_each_api_message_is_counted_once_however_many_lines_it_has() -> None:
    maker = TapeMaker().prompt("hi").says(text("one"), text("two"), use("t1", command="ls"), tokens=(100, 7))
    summary = summarize(maker.tape)
    (turn,) = summary.turns
    assert (turn.outcome, summary.api_messages, summary.tokens.input_tokens, summary.tokens.output_tokens) == ("result.missing", 1, 100, 7)


def test_what_has_no_answer_on_the_tape_is_open_and_a_problem() -> None:
    maker = TapeMaker().prompt("hi").says(use("t1", command="sleep 9"))
    maker.put(
        "out", {"type": "control_request", "request_id": "q1", "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}}
    )
    timeline = read_timeline(maker.tape)
    assert titled(timeline, "Bash").status == titled(timeline, "can_use_tool Bash").status == "open"
    assert [problem.text for problem in timeline.summary.problems] == [
        "a prompt has no result",
        "can_use_tool has no answer",
        "Bash has no result",
    ]
    assert {stats.name: stats.open for stats in (*timeline.summary.tools, *timeline.summary.requests)} == {"Bash": 1, "can_use_tool": 1}


def test_a_withdrawn_question_is_cancelled_and_not_open() -> None:
    maker = TapeMaker().put(
        "out", {"type": "control_request", "request_id": "q1", "request": {"subtype": "hook_callback", "callback_id": "c"}}
    )
    maker.put("out", {"type": "control_cancel_request", "request_id": "q1"})
    (stats,) = summarize(maker.tape).requests
    assert (stats.cancelled, stats.open, stats.seconds) == (1, 0, pytest.approx(0.1))


def test_a_request_id_that_is_used_twice_is_answered_twice() -> None:
    maker = TapeMaker()
    for _ in range(2):
        maker.put("in", {"type": "control_request", "request_id": "same", "request": {"subtype": "mcp_status"}})
    for _ in range(2):
        maker.put("out", {"type": "control_response", "response": {"subtype": "success", "request_id": "same"}})
    (stats,) = summarize(maker.tape).requests
    assert (stats.calls, stats.open, stats.seconds, stats.longest) == (2, 0, pytest.approx(0.4), pytest.approx(0.2))


def test_lines_that_were_withdrawn_were_not_said(tmp_path: Path) -> None:
    maker = TapeMaker().prompt("said", number=1).prompt("never went out", number=2).put("note", note_of_withdrawal(back=1)).result()
    in_a_file = tmp_path / "withdrawn.ndjson"
    maker.tape.write(in_a_file)
    for tape in (maker.tape, in_a_file):
        assert [event.gist for event in read_timeline(tape).events if event.kind == "prompt"] == ["said"]


def test_a_repeated_uuid_is_a_prompt_that_the_cli_drops() -> None:
    timeline = read_timeline(TapeMaker().prompt("one").result(user_message_uuids=[UUID.format(1)]).prompt("again").tape)
    assert [event.status for event in timeline.events if event.kind == "prompt"] == ["done", "dropped"]
    assert len(timeline.summary.turns) == 1


def test_words_on_standard_error_that_follow_each_other_are_one_event() -> None:
    maker = TapeMaker().put("err", b"one").put("err", b"two").prompt("hi").put("err", b"three \xff")
    errors = [event.sections[0].text for event in read_timeline(maker.tape).events if event.kind == "stderr"]
    assert errors == ["one\ntwo", "three \N{REPLACEMENT CHARACTER}"]


def test_notes_of_the_recorder_are_told_in_words() -> None:
    maker = (
        TapeMaker()
        .put("note", INPUT_ENDED)
        .put("note", OUTPUT_ENDED)
        .put("note", CLOSED)
        .put("note", note_of_exit(exit_code=None, signal=9))
    )
    maker.put("note", b'{"failure":"read","error":"ProcessError","message":"it died","code":"exec.cli.exited"}')
    timeline = read_timeline(maker.tape)
    assert [event.title for event in timeline.events] == [
        "The host ended its input",
        "The output ended",
        "The host closed the transport",
        "The process ended by signal 9",
        "read failed",
    ]
    assert (timeline.summary.signal, timeline.summary.error_count) == (9, 1)  # a host that closes may have to use a signal


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"nothing",
        b'{"type":7}',
        b"\xff\xfe",
        b'{"type":"user"}',
        b'{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}',
    ],
)
def test_no_line_is_too_strange(line: bytes) -> None:
    summary = summarize(TapeMaker().put("in", line).put("out", line).tape)
    assert summary.records == 2


def test_no_message_is_too_strange() -> None:
    chance = random.Random(20)
    for path in [path for path in RECORDINGS if path.stat().st_size < 50_000] * 2:
        records: list[TapeRecord] = []
        for record in Tape.read(path):
            line = record.line
            if record.dir in ("in", "out") and chance.random() < 0.5:
                message, _ = parse_json(record.whole_line) if line.startswith(b"{") and line.endswith(b"}") else ({}, False)
                line = json.dumps(made_strange(message, chance)).encode()
            records.append(msgspec.structs.replace(record, line=line))
        timeline = read_timeline(Tape(records))
        assert timeline.summary.records == len(records)
        assert "".join(render_page(timeline, title=path.name)).encode()


def test_lone_surrogates_and_deep_nesting_can_be_shown() -> None:
    nested = (
        b'{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"X","input":' + b'{"a":' * 50 + b'"\\ud800"'
    )
    maker = TapeMaker().put("out", nested + b"}" * 53 + b"]}}").put("out", b'{"type":"\\ud800","subtype":"\\ud800","y":"\\ud800"}')
    maker.put("out", b'{"type":"control_request","request_id":"\\ud800","request":{"subtype":"\\ud800"}}')
    maker.put("out", b'{"type":"system","subtype":"init","session_id":"\\ud800","model":"\\ud800"}')
    timeline = read_timeline(maker.tape)
    assert json.dumps([section.text for event in timeline.events for section in event.sections]).isascii()
    assert msgspec.json.encode(timeline)  # raises for text that is not UTF-8


def test_very_long_texts_are_cut_and_say_how_long_they_are() -> None:
    maker = TapeMaker()
    for number in range(20):
        maker.prompt("word " * 10_000, number=number)
    timeline = read_timeline(maker.tape, max_text_chars=50_000)
    kept = [section for event in timeline.events for section in event.sections]
    assert all(section.is_cut and section.chars == 50_000 for section in kept)
    assert sum(len(section.text) for section in kept) <= 50_000
    assert timeline.text_limit == max(len(section.text) for section in kept) == 2048  # the longest limit with which all texts fit


def test_of_very_many_events_the_middle_is_left_out_but_all_are_counted() -> None:
    maker = TapeMaker()
    for number in range(100):
        maker.says(use(f"t{number}", command=f"step {number}"), message_id=f"m{number}").answers_tool(f"t{number}", "ok")
    timeline = read_timeline(maker.tape, max_events=10)
    assert [event.gist for event in timeline.events] == [f"step {number}" for number in (*range(5), *range(95, 100))]
    assert timeline.event_count == 100
    (stats,) = timeline.summary.tools
    assert (stats.calls, stats.open) == (100, 0)


def test_a_line_that_was_trimmed_while_recording_says_so() -> None:
    answer = titled(recorded("04a_permission_allow"), "initialize").sections[-1]
    assert (answer.label, answer.chars, answer.is_cut) == ("as recorded", 17_273, True)


# Reading from a file


def test_a_tape_of_many_blocks_is_read_as_one(tmp_path: Path) -> None:
    maker = TapeMaker()
    for number in range(2000):
        maker.prompt("x" * 1500, number=number)
    maker.tape.header = TapeHeader(cli_version="9.9.9", scrubbed=True)
    path = tmp_path / "long.ndjson"
    maker.tape.write(path)
    steps: list[tuple[int, int]] = []
    summary = summarize(path, on_progress=lambda done, total: steps.append((done, total)))
    assert (summary.records, summary.cli_version, summary.scrubbed) == (2000, "9.9.9", True)
    assert 2 < len(steps) == len(set(steps))
    assert steps[-1] == (path.stat().st_size, path.stat().st_size)
    assert steps == sorted(steps)


def test_a_tape_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word " * 400}}
    line = (
        TapeMaker()
        .put("out", {"type": "stream_event", "event": piece, "parent_tool_use_id": None})
        .tape.encode()
        .splitlines(keepends=True)[-1]
    )
    path = tmp_path / "large.ndjson"
    path.write_bytes(line * (20_000_000 // len(line)))
    tracemalloc.start()
    try:
        summary = summarize(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert summary.records == 20_000_000 // len(line)
    assert peak < 10_000_000


def test_a_tape_of_50_mb_becomes_a_page_of_a_few_in_the_memory_of_a_page(tmp_path: Path) -> None:
    path = tmp_path / "large.ndjson"
    turns = 0
    with path.open("wb") as file:
        while file.tell() < 50_000_000:
            maker = TapeMaker().prompt("again", number=turns).says(use(f"t{turns}"), message_id=f"m{turns}")
            maker.answers_tool(f"t{turns}", "a line of output\n" * 12_000).result("done")
            file.write(maker.tape.encode() if not turns else maker.tape.encode().partition(b"\n")[2])
            turns += 1
    tracemalloc.start()
    try:
        timeline = read_timeline(path)
        size = sum(len(piece) for piece in render_page(timeline, title="large"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(timeline.summary.turns) == timeline.summary.tools[0].calls == turns
    assert timeline.event_count == len(timeline.events) == 3 * turns
    assert size < 12_000_000
    assert peak < 60_000_000


@pytest.mark.parametrize("far", [0, 1500])
def test_a_bad_line_is_named_by_its_number_wherever_it_stands(tmp_path: Path, far: int) -> None:
    record = b'{"t":0,"dir":"note","line":"%s"}\n' % (b"x" * 1000)
    path = tmp_path / "bad.ndjson"
    path.write_bytes(record * far + b"no record\n" + record)
    with pytest.raises(ConfigurationError, match=rf"bad\.ndjson is not a tape, line {far + 1}:"):
        summarize(path)


def test_a_second_header_far_down_is_no_tape(tmp_path: Path) -> None:
    path = tmp_path / "two.ndjson"
    path.write_bytes(TapeHeader().encode() + b'{"t":0,"dir":"note","line":"%s"}\n' % (b"x" * 2**20) + TapeHeader().encode())
    with pytest.raises(ConfigurationError, match="line 3: a second header"):
        summarize(path)


def test_a_torn_last_line_is_a_problem_and_no_error(tmp_path: Path) -> None:
    for length in (1, 3000):
        path = tmp_path / "torn.ndjson"
        path.write_bytes(b'{"t":0,"dir":"note","line":"%s"}\n' % (b"x" * 1000) * length + b'{"t":1,"dir":"o')
        summary = summarize(path)
        assert (summary.is_torn, summary.records, summary.problem_count) == (True, length, 1)


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_file_is_no_tape(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.ndjson"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"empty\.ndjson is not a tape, line 1: it is empty"):
        summarize(path)


@pytest.mark.parametrize("size", [100, 3 * 2**20], ids=["small", "larger than a block"])
def test_a_file_without_a_newline_is_not_said_to_be_empty(tmp_path: Path, size: int) -> None:
    path = tmp_path / "flat.ndjson"
    path.write_bytes(b'{"t":0,"dir":"out","line":"' + b"x" * size)
    with pytest.raises(ConfigurationError, match=r"flat\.ndjson is not a tape, line 1: the only line is not complete JSON"):
        summarize(path)
    with pytest.raises(ConfigurationError, match=r"flat\.ndjson is not a tape, line 1: the only line is not complete JSON"):
        Tape.read(path)


@pytest.mark.parametrize(("before", "line"), [(b"", 1), (b"\n \n", 3)])
def test_a_large_file_of_something_else_is_refused_by_its_beginning(tmp_path: Path, before: bytes, line: int) -> None:
    path = tmp_path / "image.raw"
    with path.open("wb") as file:
        file.write(before + b"\x00")
        file.truncate(500 * 2**20)  # a sparse file: no data is written
    tracemalloc.start()
    try:
        with pytest.raises(ConfigurationError, match=rf"image\.raw is not a tape, line {line}: every line of a tape is a JSON object"):
            summarize(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


def test_a_time_beyond_every_clock_is_no_tape(tmp_path: Path) -> None:
    path = tmp_path / "late.ndjson"
    path.write_bytes(b'{"t":1%b,"dir":"note","line":"tape"}\n' % (b"0" * 400))
    with pytest.raises(ConfigurationError, match="line 1: the number `t` is too large"):
        summarize(path)


def test_an_exit_code_of_thousands_of_digits_is_a_note_like_any_other() -> None:
    summary = summarize(Tape([TapeRecord(0.0, "note", b"exit code " + b"9" * 5000)]))
    assert summary.exit_code is None


def test_numbers_of_thousands_of_digits_can_be_added_and_shown() -> None:
    huge = int("9" * 4300)
    maker = TapeMaker().prompt("one").result(tokens=(huge, huge), cost=huge).prompt("two", number=2).result(tokens=(huge, huge), cost=huge)
    maker.put("out", {"type": "system", "subtype": "api_retry", "retry_delay_ms": huge, "attempt": 1})
    timeline = read_timeline(maker.tape)
    assert timeline.summary.tokens.input_tokens == 2 * 10**15
    assert "inf s" in titled(timeline, "API retry").gist
    assert list(inspection_lines(timeline.summary, name="x", look=Look(), everything=True))
    assert list(render_page(timeline, title="x"))


# Subagents


def two_agents() -> TapeMaker:
    """Two subagents that work at the same time, with their lines mixed."""
    maker = TapeMaker().prompt("look")
    maker.says(use("a", "Agent", description="Find the callers", subagent_type="Explore"))
    maker.says(use("b", "Agent", description="Read the tests", subagent_type="Explore"))
    maker.says(use("a1", "Grep", pattern="call"), message_id="m_a", parent_tool_use_id="a")
    maker.says(use("b1", "Read", file_path="/t"), message_id="m_b", parent_tool_use_id="b")
    maker.says(use("a2", "Bash", command="ls"), message_id="m_a2", parent_tool_use_id="a")
    return maker


def test_what_parallel_subagents_do_is_shown_under_the_agent_that_does_it() -> None:
    timeline = read_timeline(two_agents().tape)
    first, second = (event.id for event in timeline.events if event.title == "Agent")
    found = {title: titled(timeline, title) for title in ("Grep", "Read", "Bash")}
    assert {title: (event.nested, event.agent, event.parent) for title, event in found.items()} == {
        "Grep": (True, "Find the callers", first),
        "Read": (True, "Read the tests", second),
        "Bash": (True, "Find the callers", first),
    }
    assert [(event.nested, event.agent, event.parent) for event in timeline.events if event.title in ("Prompt", "Agent")] == [
        (False, "", None)
    ] * 3


def test_everything_a_subagent_says_names_it() -> None:
    maker = two_agents().says(text("found"), {"type": "thinking", "thinking": "hm"}, message_id="m_a3", parent_tool_use_id="a")
    echo = {"type": "user", "message": {"role": "user", "content": "Find them."}, "parent_tool_use_id": "b"}
    late = {
        "type": "user",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "zz", "content": "x"}]},
        "parent_tool_use_id": "b",
    }
    start = {"type": "message_start", "message": {"id": "m_b2"}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}}
    maker.put("out", echo).put("out", late)
    for event in (start, block, delta):
        maker.put("out", {"type": "stream_event", "event": event, "parent_tool_use_id": "b"})
    timeline = read_timeline(maker.tape)
    said = {title: titled(timeline, title).agent for title in ("Text", "Thinking", "Prompt of a subagent", "Result of an earlier call")}
    assert said == {
        "Text": "Find the callers",
        "Thinking": "Find the callers",
        "Prompt of a subagent": "Read the tests",
        "Result of an earlier call": "Read the tests",
    }
    assert titled(timeline, "Text, unfinished").agent == "Read the tests"


def test_a_subagent_whose_call_is_not_on_the_tape_is_named_by_what_it_says() -> None:
    maker = TapeMaker().prompt("x").says(use("t", "Read"), parent_tool_use_id="gone", task_description="Count", subagent_type="Explore")
    event = titled(read_timeline(maker.tape), "Read")
    assert (event.nested, event.agent, event.parent) == (True, "Count", None)
    nameless = titled(read_timeline(TapeMaker().prompt("x").says(use("t", "Read"), parent_tool_use_id="gone").tape), "Read")
    assert (nameless.nested, nameless.agent, nameless.parent) == (True, "", None)


def test_a_recorded_subagent_is_named() -> None:
    nested = [event for event in recorded("15a_subagent_foreground").events if event.nested]
    assert nested
    assert all(event.agent and event.parent for event in nested)


def test_a_tape_that_is_not_there_is_said_to_be_unreadable(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the tape .*No such file"):
        summarize(tmp_path / "nowhere.ndjson")
