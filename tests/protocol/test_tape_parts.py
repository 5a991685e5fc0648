"""The parts of a tape and of a failure, each as a table: what a line is, how a stream ended, what is shown of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claude_transport.codex.tape_lines import CodexLines
from claude_transport.errors import ConfigurationError, ConnectionLost, ProcessError, TruncatedStream
from claude_transport.protocol.diagnosis import DETAIL_LIMIT, TRUNCATED, Detail, ReportedFailure, detail_of
from claude_transport.protocol.expectation import describe_message, error_answered
from claude_transport.protocol.framing import LineFramer, OversizedLine
from claude_transport.protocol.observation import ObservedLine
from claude_transport.protocol.prometheus import check_labels
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.tape import CLOSED, OUTPUT_ENDED, Direction, Playback, Tape, TapeRecord, note_of_exit
from claude_transport.protocol.tape_comparison import Comparison, check_match
from claude_transport.protocol.tape_lines import IGNORED, MALFORMED, ClaudeLines
from claude_transport.wire import WireCheck


def line(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


ANSWERED = line(type="control_response", response={"request_id": "r", "subtype": "success"})


@pytest.mark.parametrize(
    ("said", "is_answer"),
    [
        (ANSWERED, True),
        (line(type="control_response", response={"request_id": "other"}), False),
        (line(type="control_response", response=["request_id"]), False),
        (line(type="control_response"), False),
        (line(type="other", response={"request_id": "r"}, x="control_response"), False),
        (line(type="control_answer", response={"request_id": "r"}), False),
        (b'{"type":"control_response"', False),
        (b'["control_response"]', False),
        (b'{"type":"control_response","response":"' + b"[" * 2000, False),
    ],
)
def test_only_an_answer_to_the_recorded_request_is_one(said: bytes, is_answer: bool) -> None:
    assert ClaudeLines().answered_by({"request_id": "r"}, said) is is_answer
    assert CodexLines().answered_by({"request_id": "r"}, said) is False


CLAUDE: list[tuple[bytes, Any, Any]] = [  # a line of a host, its key, and what it is about
    (b" \n", IGNORED, None),
    (b"\xff{", MALFORMED, None),
    (b"[]", IGNORED, None),
    (line(type="keep_alive"), IGNORED, None),
    (line(type="user", message={"content": "hi"}), ("user", ""), ("prompt", "message.content", "hi")),
    (line(type="control_request", request={"subtype": "initialize"}), ("control_request", "initialize"), "options"),
    (line(type="control_request", request={"subtype": "interrupt"}), ("control_request", "interrupt"), "requests"),
    (line(type="control_request", request=5), ("control_request", ""), "requests"),
    (ANSWERED, ("control_response", "r"), ("answers", "response", {"subtype": "success"})),
]
CODEX: list[tuple[bytes, Any, Any]] = [
    (b" \n", IGNORED, None),
    (b"[]", IGNORED, None),
    (line(id=1, method="initialize", params={}), ("request", "initialize"), "options"),
    (line(id=1, method="thread/start", params={}), ("request", "thread/start"), "options"),
    (line(id=1, method="thread/resume", params={}), ("request", "thread/resume"), "options"),
    (line(id=1, method="turn/start", params={"input": "hi"}), ("request", "turn/start"), ("prompt", "params.input", "hi")),
    (line(id=1, method="turn/start", params=5), ("request", "turn/start"), "requests"),
    (line(id=1, method="turn/steer", params={}), ("request", "turn/steer"), "requests"),
    (line(id=1, result=[2]), ("answer", "1"), ("answers", "result", [2])),
    (line(id=1, error={"code": 1}), ("answer", "1"), ("answers", "result", {"code": 1})),
]


@pytest.mark.parametrize(("lines", "table"), [(ClaudeLines, CLAUDE), (CodexLines, CODEX)])
def test_a_line_of_a_host_is_what_it_says(lines: Any, table: list[tuple[bytes, Any, Any]]) -> None:
    for said, key, about in table:
        found, message = lines().read(said)
        assert found == key
        if about is not None:
            aspect = lines().aspect(found, message)
            assert (aspect if isinstance(about, tuple) else aspect[0]) == about


def test_a_question_of_codex_needs_an_answer_until_it_is_resolved() -> None:
    lines = CodexLines()
    assert not lines.is_needed(("answer", "7"))
    lines.recorded(line(id=7, method="item/tool/call", params={}))
    assert lines.is_needed(("answer", "7"))
    lines.recorded(line(method="serverRequest/resolved", params={"requestId": 7}))
    assert not lines.is_needed(("answer", "7"))
    for ignored in (line(method="serverRequest/resolved", params=7), b'["id","method"]', line(id=8, method=5), b'{"id":9,"method"'):
        lines.recorded(ignored)
    assert not any(lines.is_needed(("answer", number)) for number in "789")


@pytest.mark.parametrize(
    ("notes", "error", "said"),
    [
        ([OUTPUT_ENDED, b"exit code 3"], ProcessError, "ended with exit code 3"),
        ([OUTPUT_ENDED, note_of_exit(exit_code=None, signal=9)], ProcessError, "ended with signal 9"),
        ([OUTPUT_ENDED, b"exit code 0"], None, ""),
        ([b'{"failure":"read","error":"TruncatedStream","message":"cut"}'], TruncatedStream, "cut"),
        ([b'{"failure":"read","error":"ConnectionLost","message":"gone"}'], ConnectionLost, "gone"),
        ([b'{"failure":"read"'], None, ""),
        ([b'{"failure":"read","message":5}'], ConnectionLost, "5"),
        ([b'{"failure":"write","message":"no"}'], None, ""),
        ([CLOSED, b"exit code 3"], None, ""),
        ([OUTPUT_ENDED, CLOSED, b"exit code 3"], ProcessError, "exit code 3"),
    ],
)
def test_a_tape_ends_as_its_notes_say(notes: list[bytes], error: type[Exception] | None, said: str) -> None:
    way: Direction = "note"
    playback = Playback(Tape([TapeRecord(0.0, way, note if isinstance(note, bytes) else str(note).encode()) for note in notes]))
    while playback.next_record() is not None:
        pass
    playback.input_ended()
    found = playback.error
    assert type(found) is (type(None) if error is None else error)
    assert said in str(found or "")


class Spoiling(Redactor):
    """Leaves no JSON behind."""

    def line(self, line: bytes, **_: Any) -> bytes:
        return b"{"


def test_values_of_which_redaction_leaves_no_json_are_compared_by_their_text() -> None:
    comparison = Comparison(redactor=Spoiling())
    assert comparison.differences({"a": 1}, {"a": 1}, path="x") == ""
    assert "{'a': 1}" in comparison.differences({"a": 1}, {"a": 2}, path="x")


def test_folders_of_both_runs_are_the_same_place() -> None:
    comparison = Comparison(folders=["/recorded/", "/live", "/", ""])
    assert comparison.differences({"a": 1}, {"a": 1}, path="x") == ""
    assert comparison.differences({"p": "/recorded/a"}, {"p": "/live/a"}, path="x") == ""
    assert comparison.differences({"p": "/recorded-a"}, {"p": "/live-a"}, path="x") != ""
    assert comparison.differences({"p": "/recorded/a"}, {"p": "/other/a"}, path="x") != ""


def test_what_a_tape_may_compare_has_a_name() -> None:
    assert check_match("prompt") == {"prompt"}
    assert check_match(["prompt", "options"]) == {"prompt", "options"}
    with pytest.raises(ConfigurationError, match="match cannot compare 'everything'; use some of") as caught:
        check_match(["prompt", "everything"])
    assert caught.value.option == "match"


@pytest.mark.parametrize("size", [0, 1, DETAIL_LIMIT, DETAIL_LIMIT + 1, 10**5])
def test_a_detail_repeats_no_more_than_its_limit(size: int) -> None:
    text = "x" * size
    assert str(Detail(text)) == (text if size <= 4096 else "x" * 4096 + TRUNCATED)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"result": "words"}, "words"),
        ({"errors": ("one", "two")}, "one; two"),
        ({"result": "", "errors": ("one",)}, "one"),
        ({}, None),
        ({"is_error": False, "result": "words"}, None),
    ],
)
def test_the_detail_of_a_failure_is_what_the_other_side_wrote(given: dict[str, Any], said: str | None) -> None:
    detail = detail_of(ReportedFailure(**given))
    assert (None if detail is None else str(detail)) == said


def failed_tool(*blocks: dict[str, str], is_error: bool = True) -> dict[str, Any]:
    """The answer with the result of a tool."""
    return {"subtype": "success", "response": {"mcp_response": {"result": {"content": list(blocks), "isError": is_error}}}}


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ({"subtype": "error", "error": "no"}, "no"),
        ({"subtype": "success", "response": {"mcp_response": {"error": {"message": "bad"}}}}, "bad"),
        ({"subtype": "success", "response": {"mcp_response": {"error": {"code": 1}}}}, "{'code': 1}"),
        ({"subtype": "success", "response": {"mcp_response": {"error": "text"}}}, "text"),
        ({"subtype": "success", "response": {"mcp_response": {"result": 1}}}, None),
        (failed_tool({"type": "text", "text": "no"}, {"type": "image"}, {"type": "text", "text": "way"}), "no\n\nway"),
        (failed_tool({"type": "text", "text": "yes"}, is_error=False), None),
        ({"subtype": "success", "response": {"mcp_response": {"result": {"isError": True}}}}, ""),
        ({"subtype": "success", "response": {"mcp_response": 5}}, None),
        ({"subtype": "success", "response": 5}, None),
        (5, None),
    ],
)
def test_the_error_with_which_a_host_answers_is_found_where_it_may_stand(response: Any, error: str | None) -> None:
    assert error_answered({"type": "control_response", "response": response}) == error
    assert error_answered({"type": "other", "response": response}) is None
    assert error_answered([response]) is None


def test_a_finding_names_a_message_of_a_peer_by_no_more_than_its_beginning() -> None:
    check = WireCheck()
    for given in ({"type": "t" * 500}, {"type": "system", "subtype": "s" * 500}, {"type": 5}):
        check.add("out", line(**given))
    names = [finding.message for finding in check.findings]
    assert max(map(len, names)) <= 60 + len("system/")
    assert all(len(part) <= 60 for name in names for part in name.split("/"))


@pytest.mark.parametrize("lines", [ClaudeLines, CodexLines])
@pytest.mark.parametrize(
    "broken", [b'{"request_id":"r","id":1,"result":', b'["request_id","id","result"]', b'{"type":"x","id":2,"result":1}']
)
def test_a_recorded_line_that_is_no_answer_is_played_as_it_is(lines: Any, broken: bytes) -> None:
    played = lines()
    played.learn({"method": "m", "id": 1, "type": "control_request", "request_id": "r"}, {"method": "m", "id": 5, "request_id": "s"})
    assert played.relive(broken) == broken


def test_an_answer_to_the_live_host_has_its_own_id() -> None:
    codex = CodexLines()
    codex.learn({"method": "m", "id": 1}, {"method": "m", "id": "live"})
    assert json.loads(codex.relive(line(id=1, result={}))) == {"id": "live", "result": {}}
    assert codex.relive(line(id=1, method="m", result={})) == line(id=1, method="m", result={})
    claude = ClaudeLines()
    claude.learn(
        {"type": "control_request", "request_id": "r", "request": {}}, {"type": "control_request", "request_id": "live", "request": {}}
    )
    assert json.loads(claude.relive(ANSWERED))["response"]["request_id"] == "live"


def test_an_id_that_cannot_be_written_again_is_that_of_no_question() -> None:
    assert CodexLines().read(b'{"id":"\\ud800","result":1}')[0] == ("answer", "")


def test_a_time_that_is_no_number_of_seconds_is_refused_with_its_place(tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    header = Tape([TapeRecord(0.0, "out", b"{}")])
    header.write(tape)
    first, record, *_ = tape.read_text("utf-8").splitlines()
    for t, said in (("1" + "0" * 400, "the number `t` is too large"), ("true", "`t` is a number"), ('"1"', "`t` is a number")):
        tape.write_text(f'{first}\n{{"t":{t},"dir":"out","line":"x"}}\n', "utf-8")
        with pytest.raises(ConfigurationError, match=said):
            Tape.read(tape)
    assert json.loads(record)["t"] == 0


def test_what_is_shown_of_a_long_line_is_its_beginning() -> None:
    long = b"x" * 10_000
    assert repr(OversizedLine(long, size=10**6, limit=5)) == f"OversizedLine({b'x' * 40!r}…, size=1000000, limit=5)"
    observed = ObservedLine(long, position=3, direction="out", t=0.5)
    assert repr(observed) == f"ObservedLine({b'x' * 40!r}, position=3, direction='out')"
    shown = describe_message({"type": "user", "text": "x" * 10_000})
    assert shown.startswith("user {'type': 'user'")
    assert shown.endswith("…")
    assert len(shown) < 450


@pytest.mark.parametrize("tail", [b"", b"half", b"h" * 100_000])
def test_the_pieces_of_a_block_are_its_whole_lines(tail: bytes) -> None:
    block = LineFramer(max_line_bytes=10**6).feed_block(b'{"a":1}\n{"b":2}\n' + tail)
    assert block is not None
    assert b"".join(bytes(piece) for piece in block.pieces) == bytes(block) == b'{"a":1}\n{"b":2}\n'


@pytest.mark.parametrize(("number", "is_found"), [("0.5", False), ("1" + "0" * 400, True), ("-1" + "0" * 400, True)])
def test_a_number_that_other_languages_cannot_hold_is_a_finding(number: str, is_found: bool) -> None:
    def found(value: str) -> set[tuple[str, str]]:
        check = WireCheck()
        check.add("out", b'{"type":"result","subtype":"success","total_cost_usd":%s}' % value.encode())
        return {(finding.path, finding.kind) for finding in check.findings}

    assert (found(number) != found("0.25")) is is_found


@pytest.mark.parametrize("name", ["", "1a", "a-b", "__a", "ä", "a b"])
def test_a_label_that_prometheus_does_not_allow_is_refused_by_name(name: str) -> None:
    check_labels({"a_1": "anything", "_a": "x"})
    with pytest.raises(ConfigurationError, match="is not a valid label name") as caught:
        check_labels({"fine": "x", name: "y"})
    assert caught.value.option == "labels"


def test_a_line_over_the_limit_says_the_limit_and_its_size() -> None:
    framer = LineFramer(max_line_bytes=5)
    found = [each for chunk in (b"123", b"456789\n12345\n", b"1234567\n") for each in framer.feed(chunk)]
    sizes = [(each.size, each.limit) if isinstance(each, OversizedLine) else bytes(each) for each in found]
    assert sizes == [(9, 5), b"12345", (7, 5)]


def test_a_turn_without_a_result_cannot_be_taken_out_of_a_tape() -> None:
    prompt = line(type="user", message={"content": "hi"})
    tape = Tape([TapeRecord(float(number), "in", prompt) for number in range(2)])
    with pytest.raises(
        ConfigurationError, match="this tape: turn 1 has no result before the next prompt, so it cannot stand alone"
    ) as caught:
        tape.with_turn(1, tape)
    assert caught.value.option == "number"
