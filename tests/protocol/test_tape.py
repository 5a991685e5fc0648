"""The tape format: what is written is what is read, also bytes that are no text, torn files, and recordings of others."""

from __future__ import annotations

import datetime as dt
import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_lines import recordings

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.envelope import DecodeFailure, UnknownMessage
from claude_transport.protocol.tape import Tape, TapeHeader, TapeRecord, note_of_exit, note_of_withdrawal, read_exit_note, without_withdrawn
from claude_transport.testing.scenario import Scenario

HEADER = TapeHeader(cli_version="2.1.329", created_at=dt.datetime(2026, 11, 20, 21, tzinfo=dt.UTC), scrubbed=True)
RECORDS = [
    TapeRecord(0.0, "in", b'{"type":"user","message":{"role":"user","content":"Hi \xc3\xa9"}}'),
    TapeRecord(0.25, "err", b"warning: \xff\xfe and \xed\xa0\x80"),
    TapeRecord(0.25, "out", '{"a":"\u2028\u2029\x85\x0b\x0c"}'.encode()),
    TapeRecord(1.5, "out", b"\x00\xff{"),
    TapeRecord(1.5, "note", b"exit code 0"),
]


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    tape = Tape(RECORDS, header=HEADER)
    tape.write(tmp_path / "a.ndjson")
    again = Tape.read(tmp_path / "a.ndjson")
    assert again == tape
    assert list(again) == RECORDS
    assert (again.header, again.is_torn, len(again)) == (HEADER, False, 5)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.sampled_from(["in", "out", "err", "note"]), st.binary())))
def test_any_bytes_survive(rows: list[tuple[float, str, bytes]]) -> None:
    tape = Tape([TapeRecord(round(t, 6), direction, line) for t, direction, line in rows])  # type: ignore[arg-type]
    assert Tape.parse(tape.encode()) == tape


def test_every_line_of_the_file_is_one_json_object_for_any_reader(tmp_path: Path) -> None:
    Tape(RECORDS, header=HEADER).write(tmp_path / "a.ndjson")
    rows = [json.loads(line) for line in (tmp_path / "a.ndjson").read_text("utf-8").splitlines()]
    assert len(rows) == 6
    assert all({"t", "dir", "line"} <= row.keys() for row in rows)
    assert rows[0]["tape"] == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_only_its_owner_can_read_it_even_where_a_file_was_that_everybody_could_read(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.touch(mode=0o644)
    Tape(RECORDS).write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["a.ndjson"]


def test_a_torn_last_line_is_left_out_and_said_to_be() -> None:
    whole = Tape(RECORDS, header=HEADER).encode()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        tape = Tape.parse(whole[:cut])
        assert list(tape) == RECORDS[: len(tape)]
        assert tape.is_torn == (whole[:cut].split(b"\n")[-1] not in (b"", *whole.split(b"\n")))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"hello\n{}\n", "line 1"),
        (b'{"t":0,"dir":"in","line":"x"}\n{"t":0,"dir":"in","line":\n{"t":0,"dir":"in","line":"x"}\n', "line 2"),
        (b'{"t":0,"dir":"sideways","line":"x"}\n', "line 1: a record needs"),
        (b'{"t":"0","dir":"in","line":"x"}\n', "line 1: a record needs"),
        (b'{"t":true,"dir":"in","line":"x"}\n', "line 1: a record needs"),
        (b'{"t":0,"dir":"in"}\n', "line 1: a record needs"),
        (b'{"t":0,"dir":"in","line":"x","base64":"*"}\n', "line 1: base64"),
        (b'{"t":0,"dir":"in","line":"x","base64":5}\n', "line 1: base64"),
        (b'{"tape":2}\n', "version 2; this program reads versions up to 1"),
        (b'{"tape":"x"}\n', "the version is not a number"),
        (b'{"tape":1,"created_at":"yesterday"}\n', "created_at"),
        (b'{"tape":1}\n{"tape":1}\n', "a second header"),
        (b"[1]\n", "line 1"),
    ],
)
def test_what_is_no_tape_is_refused_and_the_line_named(data: bytes, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Tape.parse(data, name="x.ndjson")


def test_a_file_that_is_not_there_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read the tape"):
        Tape.read(tmp_path / "none.ndjson")
    with pytest.raises(ConfigurationError, match="cannot write the tape"):
        Tape(RECORDS).write(tmp_path / "none" / "x.ndjson")


def test_records_are_appended_in_time() -> None:
    tape = Tape()
    for record in RECORDS:
        tape.append(record)
    with pytest.raises(ConfigurationError, match=r"0\.1 s cannot follow one at 1\.5 s"):
        tape.append(TapeRecord(0.1, "in", b"x"))
    assert tape.lines("out") == [RECORDS[2].line, RECORDS[3].line]


def test_redacting_a_tape_removes_a_secret_that_came_in_fragments_and_keeps_every_record() -> None:
    parts = ["The key is ", *("sk-ant-api03-" + "0123456789abcdef" * 2).partition("03-0"), " now"]
    said = [
        {"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}}
        for part in parts
    ]
    records = [TapeRecord(float(place), "out", json.dumps(each).encode()) for place, each in enumerate(said)]
    records.insert(3, TapeRecord(2.5, "in", b'{"type":"keep_alive"}'))
    redacted = Tape(records).redact()
    assert [(record.t, record.dir) for record in redacted.records] == [(record.t, record.dir) for record in records]
    assert "".join(json.loads(line)["event"]["delta"]["text"] for line in redacted.lines("out")) == "The key is [secret] now"
    assert redacted.lines("in") == [b'{"type":"keep_alive"}']
    assert redacted.redact() == redacted


def test_redacting_a_tape_unnames_its_users_everywhere_and_changes_no_direction_or_time() -> None:
    tape = Tape(
        [
            TapeRecord(0.0, "in", b'{"text":"I am gwendolyn, key sk-ant-abc"}'),
            TapeRecord(0.5, "err", b"denied for gwendolyn\xff"),
            TapeRecord(1.0, "out", b'{"cwd":"/home/gwendolyn/x","n":1.0}'),
            TapeRecord(1.0, "out", b'{"cwd":"C:\\\\Users\\\\olaf\\\\x","owner":"olaf"}'),
        ],
        header=TapeHeader(cli_version="1"),
    )
    redacted = tape.redact()
    assert [record.line for record in redacted] == [
        b'{"text":"I am user, key [secret]"}',
        b"denied for user\xff",
        b'{"cwd":"/home/user/x","n":1.0}',
        b'{"cwd":"C:\\\\Users\\\\user\\\\x","owner":"user"}',
    ]
    assert [(record.t, record.dir) for record in redacted] == [(record.t, record.dir) for record in tape]
    assert (redacted.header.scrubbed, redacted.header.cli_version, tape.header.scrubbed) == (True, "1", False)
    assert redacted.redact() == redacted


@pytest.mark.parametrize(
    ("exit_code", "signal", "note"), [(0, None, b"exit code 0"), (3, None, b"exit code 3"), (None, 9, b"exit code -9")]
)
def test_how_a_process_ended_is_noted_and_read(exit_code: int | None, signal: int | None, note: bytes) -> None:
    assert note_of_exit(exit_code=exit_code, signal=signal) == note
    assert read_exit_note(note) == (exit_code, signal)


def test_other_notes_say_nothing_of_an_exit() -> None:
    assert read_exit_note(b"out EOF") is None


@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.stem)
def test_a_recording_without_a_header_is_read_whole(path: Path) -> None:
    tape = Tape.read(path)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [record.line.decode() for record in tape] == [row["line"] for row in rows]
    assert Tape.parse(tape.encode()) == tape
    for record in tape:
        if record.trimmed_from_chars is not None and record.dir == "out":
            assert not isinstance(decode_message(record.whole_line), DecodeFailure | UnknownMessage)


@pytest.mark.parametrize(
    ("head", "whole"),
    [
        (b'{"type":"control_response","response":{"subtype":"success","request_id":"i-1","resp', ("control_response", "success")),
        (b'{"duration_api_ms":52,"stop', ("result", "success")),
        (b'{"type":"system","subtype":"commands_changed","comm', ("system", "commands_changed")),
        (b'{"type":"assistant","message":{"id":"msg', ("assistant", None)),
        (b'{"type":"transcript_mirror","fileP', ("transcript_mirror", None)),
    ],
)
def test_a_trimmed_line_is_played_as_the_smallest_of_its_type(head: bytes, whole: tuple[str, str | None]) -> None:
    message = msgspec.json.decode(TapeRecord(0.0, "out", head, 9000).whole_line, type=dict[str, object])
    inner = message.get("response")
    assert (message["type"], inner["subtype"] if isinstance(inner, dict) else message.get("subtype")) == whole
    if isinstance(inner, dict):
        assert inner["request_id"] == "i-1"


def test_a_fake_claude_can_play_a_tape(tmp_path: Path) -> None:
    Tape(RECORDS[:1] + RECORDS[4:], header=HEADER).write(tmp_path / "a.ndjson")
    scenario = Scenario.from_recording(tmp_path / "a.ndjson")
    assert scenario.exit_code == 0
    assert scenario.script


def test_lines_that_were_withdrawn_were_not_said_and_a_withdrawal_of_nothing_means_nothing() -> None:
    first, second, third = (TapeRecord(0.0, "in", text) for text in (b"1", b"2", b"3"))
    answer, other = TapeRecord(0.0, "out", b"withdrawn in 1"), TapeRecord(0.0, "note", b"withdrawn in")

    def withdrawn(back: int) -> TapeRecord:
        return TapeRecord(0.0, "note", note_of_withdrawal(back=back))

    early, late = withdrawn(1), [withdrawn(1), withdrawn(1), withdrawn(4), withdrawn(0)]
    assert without_withdrawn([early, first, answer, second, withdrawn(2), third, *late, other]) == [answer, second, other]


@given(st.floats(0, 10**6), st.sampled_from(["in", "out", "err", "note"]), st.text(st.characters(max_codepoint=0x2100)))
def test_a_record_is_the_same_json_however_it_is_encoded(t: float, direction: Any, text: str) -> None:
    line = TapeRecord(t, direction, text.encode("utf-8", "surrogatepass")).encode()
    assert line.count(b"\n") == 1
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == {"t": round(t, 6), "dir": direction, "line": text}
