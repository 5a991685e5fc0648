"""What a model, a tool, a tape or a CLI says never moves the cursor of the terminal it is shown on, nor pretends to be another line."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from hostile_words import HOSTILE, assert_lines_are_safe

from claude_transport.app import failures
from claude_transport.app.ask import Keyboard, PermissionAsker
from claude_transport.app.doctor import CLIFinding, Failure, ReportLines
from claude_transport.app.inspect_tape import inspection_lines
from claude_transport.app.render import Face, Remark, ShownToolCall, summarize
from claude_transport.app.terminal import Look, json_for_terminals, one_line
from claude_transport.client.questions import CallbackContext
from claude_transport.errors import ConnectTimeout, ProcessError, ResultError
from claude_transport.inspection.timeline import summarize as summarize_tape
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.messages import ResultMessage
from claude_transport.protocol.tape import Tape, TapeHeader, TapeRecord

hostile = pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
LOOK = Look(width=80)


def face() -> tuple[Face, io.StringIO]:
    stderr = io.StringIO()
    return Face(io.StringIO(), stderr, look=LOOK), stderr


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


@hostile
async def test_a_tool_and_its_trouble_are_shown_on_one_line_each(words: str) -> None:
    shown, stderr = face()
    await shown.show(ShownToolCall(tool_use_id="t", name=words, gist=words))
    await shown.show(ShownToolCall(tool_use_id="u", name="Bash", gist=words, nested=True))
    await shown.show(Remark(text=words, problem=True))
    await shown.show(Remark(text=words))
    lines = lines_of(stderr.getvalue())
    assert len(lines) == 4
    assert_lines_are_safe(lines, longest=80)


@hostile
async def test_a_question_about_a_tool_is_what_it_seems(words: str) -> None:
    class Yes(Keyboard):
        @property
        def is_there(self) -> bool:
            return True

        async def ask(self, show_question: Any) -> str:
            show_question()
            return "n\n"

    shown, stderr = face()
    asker = PermissionAsker(shown, Yes(sys.stdin, sys.stderr), on_refusal=lambda _: None)
    context = CallbackContext(request_id="r", cancel_scope=anyio.CancelScope())
    await asker.can_use_tool(words, {words: "small", "command": words}, context)
    lines = lines_of(stderr.getvalue())
    assert lines[0].startswith("  Claude wants to use ")
    assert lines[1].startswith("    ")
    assert all(line.startswith("      ") for line in lines[3:-2])  # more lines of the command, none of which is at the margin
    assert_lines_are_safe([line.replace("\t", " ") for line in lines], longest=2_000_000)  # a command is shown whole
    assert_lines_are_safe(lines[:2], longest=120)


@hostile
async def test_a_denial_without_a_terminal_is_one_line(words: str) -> None:
    shown, stderr = face()
    asker = PermissionAsker(shown, Keyboard(io.StringIO(), io.StringIO()), on_refusal=lambda _: None)
    await asker.can_use_tool(words, {"command": words}, CallbackContext(request_id="r", cancel_scope=anyio.CancelScope()))
    lines = lines_of(stderr.getvalue())
    assert len(lines) == 1
    assert_lines_are_safe(lines, longest=300)


@hostile
def test_the_summary_is_one_line(words: str) -> None:
    result = decode_message(b'{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"","session_id":"s"}')
    assert isinstance(result, ResultMessage)
    assert_lines_are_safe([summarize(result, model=words, seconds=1.0, look=LOOK)], longest=200)


@hostile
@pytest.mark.parametrize("traceback", ["", "1"])
def test_a_failure_is_told_in_lines_that_are_safe(
    words: str, traceback: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(failures.TRACEBACK, traceback)
    for error in (
        ProcessError(words, exit_code=1, stderr_tail=words),
        ConnectTimeout(words, stderr_tail=words),
        ResultError(words),
        ValueError(words),
    ):
        failures.report_failure(error)
        lines = lines_of(capsys.readouterr().err)
        assert_lines_are_safe(lines)
        if not traceback:
            assert lines[0].startswith("claude-transport: ")
            assert all(line.startswith("  ") for line in lines[1:])


@hostile
def test_the_doctor_reports_in_lines_that_are_safe(words: str) -> None:
    report = ReportLines(LOOK, verbose=True)
    finding = CLIFinding(path=words, source="PATH", searched=(words, "/usr/bin"), version=words, version_note=words)
    failure = Failure.of(ProcessError(words, exit_code=1, stderr_tail=words))
    careless = Failure(type="x", code="y", category="z", message=words, remedy=words, details=(words,))
    shown = [*report.cli(finding), *report.failure(failure), *report.failure(careless)]
    for line in shown:
        assert line.replace("\N{REPLACEMENT CHARACTER}", "").isprintable() or line == "", ascii(line[:200])


@hostile
def test_the_figures_of_a_tape_are_lines_that_are_safe(words: str, tmp_path: Path) -> None:
    words = words[:50_000]
    session = {"session_id": words[:5000]}
    said = [
        {"type": "system", "subtype": "init", "model": words, "claude_code_version": words, "tools": [], "cwd": "/", **session},
        {
            "type": "assistant",
            "message": {
                "id": "m",
                "role": "assistant",
                "model": words,
                "content": [{"type": "tool_use", "id": "t", "name": words, "input": {}}],
            },
            **session,
        },
        {"type": "result", "subtype": words, "is_error": True, "result": words, "errors": [words], **session},
    ]
    records = [TapeRecord(0.1, "in", json.dumps({"type": "user", "message": {"role": "user", "content": words}}).encode())]
    records += [TapeRecord(0.2, "out", json.dumps(each).encode()) for each in said]
    path = tmp_path / "tape.ndjson"
    Tape(records, header=TapeHeader(cli_version=words[:300])).write(path)
    lines = list(inspection_lines(summarize_tape(path), name=words[:100], look=LOOK, everything=True))
    for line in lines:
        assert "\n" not in line
        assert line.replace("\N{REPLACEMENT CHARACTER}", "").isprintable(), ascii(line[:200])
        assert len(line) < 600


@hostile
def test_json_for_a_terminal_is_the_same_json(words: str) -> None:
    data = json.dumps({"text": words}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    shown = json_for_terminals(data)
    assert json.loads(shown) == {"text": words}
    assert_lines_are_safe([shown.decode("utf-8")], longest=10**8)


def test_one_line_is_cut_in_time_that_does_not_grow(tmp_path: Path) -> None:
    assert one_line("a  b\n c", width=20) == "a b c"
    assert one_line("x" * 10**7, width=5) == "xxxx…"
    assert one_line(" " * 10**7 + "x", width=5) == ""
