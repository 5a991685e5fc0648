"""How a live host is matched with the recorded one: what may differ, what must not when asked for, and what a difference looks like."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.tape import Playback, Tape, TapeRecord, note_of_start
from claude_transport.protocol.tape_comparison import Comparison


def said(direction: Any, **message: Any) -> TapeRecord:
    return TapeRecord(0.0, direction, json.dumps(message).encode())


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def request(identity: str, subtype: str, **fields: Any) -> dict[str, Any]:
    return {"type": "control_request", "request_id": identity, "request": {"subtype": subtype, **fields}}


def answer(identity: str, **response: Any) -> dict[str, Any]:
    return {"type": "control_response", "response": {"subtype": "success", "request_id": identity, "response": response}}


def tell(playback: Playback, message: dict[str, Any]) -> None:
    playback.received(json.dumps(message).encode())


def heard(playback: Playback) -> Iterable[dict[str, Any]]:
    found = []
    while (record := playback.next_record()) is not None:
        if record.dir == "out":
            found.append(json.loads(record.line))
    return found


def two_requests() -> Tape:
    return Tape(
        [
            said("in", **request("r1", "set_model", model="haiku")),
            said("out", **answer("r1")),
            said("in", **request("r2", "mcp_status")),
            said("out", **answer("r2", mcpServers=[])),
            said("in", **user("hello")),
            said("out", type="result", result="hi"),
        ]
    )


def test_independent_requests_may_come_in_another_order_each_after_the_answer_to_the_other() -> None:
    playback = Playback(two_requests())
    tell(playback, request("live-2", "mcp_status"))
    assert heard(playback) == [answer("live-2", mcpServers=[])]
    tell(playback, request("live-1", "set_model", model="haiku"))
    assert heard(playback) == [answer("live-1")]
    tell(playback, user("hello"))
    assert heard(playback) == [{"type": "result", "result": "hi"}]
    assert playback.is_complete


def test_requests_of_one_kind_are_matched_by_what_they_ask() -> None:
    tape = Tape(
        [
            said("in", **request("r1", "set_model", model="haiku")),
            said("out", **answer("r1", now="haiku")),
            said("in", **request("r2", "set_model", model="opus")),
            said("out", **answer("r2", now="opus")),
        ]
    )
    playback = Playback(tape)
    tell(playback, request("a", "set_model", model="opus"))
    assert heard(playback) == [answer("a", now="opus")]
    tell(playback, request("b", "set_model", model="haiku"))
    assert heard(playback) == [answer("b", now="haiku")]


@pytest.mark.parametrize(
    ("match", "recorded", "live", "diff"),
    [
        ("prompt", user("one"), user("two"), 'message.content:\n- "one"\n+ "two"'),
        ("prompt", user("a\nb\nc"), user("a\nB\nc"), "message.content:\n  a\n- b\n+ B\n  c"),
        (
            "requests",
            request("1", "set_model", model="haiku"),
            request("1", "set_model", model="opus"),
            'request.model:\n- "haiku"\n+ "opus"',
        ),
        ("options", request("1", "initialize", hooks={"Stop": []}), request("1", "initialize"), 'request.hooks:\n- {"Stop": []}'),
    ],
)
def test_what_is_asked_for_must_be_the_same_and_a_diff_names_the_field(match: str, recorded: Any, live: Any, diff: str) -> None:
    tell(Playback(Tape([said("in", **recorded)])), live)  # otherwise it need not
    with pytest.raises(ExpectationFailed) as failed:
        tell(Playback(Tape([said("in", **recorded)]), match=[match]), live)
    assert failed.value.diff == diff
    assert diff in "\n".join(failed.value.__notes__)


def test_an_answer_to_a_question_is_compared_when_asked() -> None:
    tape = Tape([said("out", **request("q", "can_use_tool")), said("in", **answer("q", behavior="allow"))])
    playback = Playback(tape, match=["answers"])
    heard(playback)
    with pytest.raises(ExpectationFailed) as failed:
        tell(playback, answer("q", behavior="deny"))
    assert failed.value.diff == 'response.response.behavior:\n- "allow"\n+ "deny"'


@pytest.mark.parametrize(
    ("recorded", "live"),
    [
        ("in /home/user/project/a.txt", "in /srv/work/a.txt"),
        ("id 0e9ee2c5-3f7b-4c1e-8c3a-5d0c64c7f001", "id 1f9ee2c5-3f7b-4c1e-8c3a-5d0c64c7f002"),
        ("at /tmp/pytest-of-user/pytest-3/x", "at /tmp/pytest-of-user/pytest-14/x"),
        ("key [secret]", "key sk-ant-api03-abcdefghijklmnop"),
        ("text", [{"type": "text", "text": "text"}]),
    ],
)
def test_ids_folders_secrets_and_the_form_of_a_text_may_differ(recorded: Any, live: Any) -> None:
    start = TapeRecord(0.0, "note", note_of_start({"command": ["claude"], "cwd": "/home/user/project"}))
    tape = Tape([start, said("in", **user(recorded, uuid="0e9ee2c5-3f7b-4c1e-8c3a-5d0c64c7f00b"))])
    playback = Playback(tape, match=["prompt"], folder="/srv/work")
    tell(playback, user(live))
    heard(playback)
    assert playback.is_complete


def test_the_command_line_is_compared_when_options_are_asked_for() -> None:
    start = TapeRecord(0.0, "note", note_of_start({"command": ["/bin/claude", "--model", "haiku"], "cwd": "/x"}))
    playback = Playback(Tape([start]), match=["options"])
    playback.started({"command": ["/other/claude", "--model", "haiku"]})
    with pytest.raises(ExpectationFailed) as failed:
        playback.started({"command": ["/other/claude", "--model", "opus"]})
    assert '- "haiku"\n+ "opus"' in failed.value.diff
    with pytest.raises(ExpectationFailed, match="record it again"):
        Playback(Tape([said("in", **user("x"))]), match=["options"]).started({"command": ["claude"]})


def test_a_line_that_is_not_on_the_tape_is_compared_with_the_one_that_was_expected() -> None:
    with pytest.raises(ExpectationFailed) as failed:
        tell(Playback(two_requests()), request("x", "interrupt"))
    assert 'line.request.subtype:\n- "set_model"\n+ "interrupt"' in failed.value.diff


def test_match_takes_only_names_that_it_knows() -> None:
    with pytest.raises(ConfigurationError, match="'wording'; use some of prompt, options"):
        Playback(Tape(), match=["wording"])


@pytest.mark.parametrize(
    ("recorded", "live", "diff"),
    [
        (["ls", "-l"], ["ls"], '  "ls"\n- "-l"'),
        ([{"a": 1}], [{"a": 1}, {"b": 2}], '- [{"a": 1}]\n+ [{"a": 1}, {"b": 2}]'),
        ({"a": 1}, [{"a": 1}], '- {"a": 1}\n+ [{"a": 1}]'),
        ([1, "x"], [1, "y"], '[1]:\n- "x"\n+ "y"'),
    ],
)
def test_words_and_lines_of_a_text_are_compared_one_by_one_and_other_lists_whole(recorded: Any, live: Any, diff: str) -> None:
    found = Comparison().differences(recorded, live, path="x")
    assert found.removeprefix("x").removeprefix(":\n") == diff


@pytest.mark.parametrize(("length", "shown"), [(1998, '"' + "y" * 1998 + '"'), (1999, '"' + "y" * 1999 + "…")])
def test_a_long_value_is_cut_in_a_diff(length: int, shown: str) -> None:
    assert Comparison().differences("x", "y" * length, path="at") == f'at:\n- "x"\n+ {shown}'


def test_a_long_diff_is_cut() -> None:
    diff = Comparison().differences({str(n): 1 for n in range(100)}, {str(n): 2 for n in range(100)}, path="x")
    assert len(diff.splitlines()) == 41
    assert diff.endswith("… 260 more lines")


def test_a_tape_may_be_written_by_hand() -> None:
    tape = Tape.parse(
        b'{"dir": "in", "line": {"type": "user", "message": {"role": "user", "content": "Hi"}}}\n'
        b'\n{"t": 1.5, "dir": "out", "line": {"type": "result", "result": "Hello"}}\n'
        b'{"dir": "note", "line": "out EOF"}\n'
    )
    assert [record.t for record in tape] == [0.0, 1.5, 1.5]
    playback = Playback(tape)
    tell(playback, user("Hi"))
    assert heard(playback) == [{"type": "result", "result": "Hello"}]
    assert Tape.parse(tape.encode()) == tape


def conversation(session: str, *answers: str) -> Tape:
    records = []
    for number, text in enumerate(answers):
        records.append(TapeRecord(number, "in", json.dumps(user(f"prompt {number}")).encode()))
        records.append(TapeRecord(number + 0.5, "out", json.dumps({"type": "result", "result": text, "session_id": session}).encode()))
    return Tape([*records, TapeRecord(len(answers), "note", b"stdin closed by driver"), TapeRecord(len(answers), "note", b"out EOF")])


def test_one_turn_is_replaced_and_keeps_the_session() -> None:
    old, new = conversation("session-old", "a", "b", "c"), conversation("session-new", "A", "B", "C")
    mixed = old.with_turn(2, new)
    assert [json.loads(line)["result"] for line in mixed.lines("out")] == ["a", "B", "c"]
    assert {json.loads(line)["session_id"] for line in mixed.lines("out")} == {"session-old"}
    assert mixed.lines("note") == old.lines("note")
    assert [record.t for record in mixed] == sorted(record.t for record in mixed)
    assert old == conversation("session-old", "a", "b", "c")


@pytest.mark.parametrize("number", [0, 4])
def test_a_turn_that_is_not_there_is_refused(number: int) -> None:
    with pytest.raises(ConfigurationError, match=f"has 3 turns, so no turn {number}"):
        conversation("session-a", "a", "b", "c").with_turn(number, conversation("session-b", "a"))
