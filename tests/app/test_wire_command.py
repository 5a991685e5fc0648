"""`claude-transport wire`: one line for each thing that is unknown, missing or of another type, and an exit code for CI."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from program_process import Program

from claude_transport.app.main import main
from claude_transport.protocol.tape import Tape, TapeHeader, TapeRecord
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.wire import WIRE_RANGES
from claude_transport.wire.documents import schema_on_tape

RECORDINGS = Path(__file__).parent.parent / "recordings"
PLAIN = RECORDINGS / "01_oneshot_stdin_eof.ndjson"
NEW = b'{"type":"command_lifecycle","command_uuid":"u","state":1,"session_id":"s","mood":"glad"}'


def test_a_tape_that_says_nothing_new_prints_nothing_and_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wire", "check", str(PLAIN)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "claude 2.1.329, 4 lines, compared with the schemas of 2.1.275: nothing differs" in told.err


def test_each_place_that_differs_is_one_line_with_its_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "said.ndjson"
    file.write_bytes(NEW + b"\n" + NEW + b"\n\nnpm warn\n")
    assert main(["wire", "check", str(file)]) == 1
    told = capsys.readouterr()
    assert [line.split() for line in told.out.splitlines()] == [
        ["unreadable", "1x", "out", "-", "-", "not", "JSON"],
        ["type", "2x", "out", "command_lifecycle", "state", "integer,", "not", "string"],
        ["unknown", "2x", "out", "command_lifecycle", "mood", "string"],
    ]
    assert "a claude of unknown version, 3 lines, compared with the schemas of 2.1.330: 5 differences in 3 places" in told.err


def test_both_directions_of_a_tape_are_checked_by_the_version_in_its_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = b'{"type":"control_request","request_id":"1","request":{"subtype":"get_plan"}}'
    answer = b'{"type":"control_response","response":{"subtype":"success","request_id":"1","response":{"exists":false,"why":""}}}'
    tape = Tape([TapeRecord(0, "in", ask), TapeRecord(1, "out", answer)], header=TapeHeader(cli_version="2.1.100"))
    tape.write(tmp_path / "tape.ndjson")
    assert main(["wire", "check", str(tmp_path / "tape.ndjson"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["cli_version"], report["range"], report["lines"]) == (False, "2.1.100", "2.1.92", 2)
    assert [(each["kind"], each["direction"], each["path"]) for each in report["findings"]] == [("unknown", "in", "request.subtype")]
    assert main(["wire", "check", str(tmp_path / "tape.ndjson"), "--json", "--cli-version", "2.1.330"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [(each["direction"], each["path"]) for each in report["findings"]] == [("out", "response.response.why")]


def test_what_another_program_printed_is_read_from_stdin(program: Program) -> None:
    ran = program.run("wire", "check", "-", stdin=NEW)
    assert (ran.returncode, len(ran.stdout.splitlines())) == (1, 2)
    assert b"1 line, compared" in ran.stderr


def test_lines_of_a_host_are_checked_as_such(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = b'{"type":"update_environment_variables","variables":{"A":1}}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(said)))
    assert main(["wire", "check", "-", "--direction", "in"]) == 1
    assert capsys.readouterr().out.split() == [
        *("type", "1x", "in", "update_environment_variables", "variables.*", "integer,", "not", "string"),
    ]


def test_the_schemas_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for start in WIRE_RANGES:
        for direction in ("in", "out"):
            assert main(["wire", "schema", "--direction", direction, "--cli-version", start]) == 0
            assert json.loads(capsys.readouterr().out) == schema_on_tape(direction, cli_version=start)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "no-such-file"], "cannot read no-such-file: No such file or directory"),
        (["check", "hello.txt"], "hello.txt is neither a tape nor lines of JSON with a type"),
        (["check", "codex.ndjson"], "codex.ndjson is a conversation with codex; the schemas are those of claude"),
        (["check", "torn.ndjson"], "torn.ndjson is not a tape"),
        (["check", "hello.txt", "--claude-binary", "claude"], "wire check takes a TAPE or --claude-binary, and not both"),
        (["check", "--claude-binary", "no-such-claude"], "no-such-claude"),
        (["check", "--cli-version", "newest", str(PLAIN)], "'newest' is not a version of claude"),
        (["schema", "--cli-version", "newest"], "'newest' is not a version of claude"),
        (["schema", "hello.txt"], "wire schema takes no TAPE and no --claude-binary"),
        (["compare"], "'compare' is not one of 'check', 'schema'"),
        ([], "Missing argument"),
    ],
)
def test_where_nothing_can_be_checked_the_exit_code_is_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hello.txt").write_text("hello\n", "utf-8")
    Path("codex.ndjson").write_text('{"t": 0, "dir": "in", "line": "{\\"id\\": 1, \\"method\\": \\"initialize\\"}"}\n', "utf-8")
    Path("torn.ndjson").write_text('{"t": 0, "dir": "in", "line": "{}"}\n{"t": 0}\n', "utf-8")
    assert main(["wire", *arguments]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


# ------------------------------------------------------------------------------------------------------- the conversation


OF_330 = ("--cli-version", "2.1.330")


def script(folder: Path, command: str) -> str:
    """A program that does only this."""
    path = folder / "claude"
    path.write_text(f"#!/bin/sh\n{command}\n", "utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_claude_that_ends_early_is_no_success(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wire", "check", "--claude-binary", script(tmp_path, "exit 3"), *OF_330, "--backend", backend, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["findings"]) == (False, [])
    assert "exit code 3" in report["left"][0]


def test_a_program_that_says_nothing_is_given_up_at_the_time_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["wire", "check", "--claude-binary", script(tmp_path, "exec sleep 600"), *OF_330, "--timeout", "0.5"]
    assert main(arguments) == 1
    assert "the scripted conversation did not end in 0.5 s" in capsys.readouterr().err


def test_what_a_peer_says_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "said.ndjson"
    file.write_text(json.dumps({"type": "command_lifecycle", "\x1b[2J\n": 1}) + os.linesep, "utf-8")
    assert main(["wire", "check", str(file)]) == 1
    told = capsys.readouterr()
    assert "\x1b" not in told.out
    assert all(line.startswith(("missing", "unknown")) for line in told.out.splitlines())
    assert main(["wire", "check", str(file), "--json"]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_the_simulated_claude_is_checked_like_a_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeClaude(Scenario.simulated(pace=0.0)) as fake:
        main(["wire", "check", "--claude-binary", str(fake.path), "--cli-version", "2.1.330", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["lines"] > 50
    assert "claude never asked the API of this check: managed settings send it to another one" in report["left"]
