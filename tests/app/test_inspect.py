"""`claude-transport inspect`: figures on stdout, a page in a file, and one clear line for what is no tape."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path

import pytest
from program_process import Program

from claude_transport.app.inspect_tape import inspection_lines
from claude_transport.app.main import main
from claude_transport.app.terminal import Look, Progress, open_progress
from claude_transport.inspection import summarize
from claude_transport.protocol.tape import Tape, TapeHeader, TapeRecord

RECORDINGS = Path(__file__).parent.parent / "recordings"
ALLOWED = RECORDINGS / "04a_permission_allow.ndjson"
OVERLOADED = RECORDINGS / "11_529_retries2.ndjson"


def test_the_figures_of_a_tape_are_told_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(OVERLOADED)]) == 0  # what went wrong on the tape is no failure of looking at it
    told = capsys.readouterr()
    assert "1 turn, 1 failed" in told.out
    assert "result.overloaded" in told.out
    assert "API retry: 529: 1 of 2, in 0.6 s" in told.out
    assert "\x1b" not in told.out
    assert told.err == ""


def test_json_is_the_whole_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(ALLOWED), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["records"], report["turns"][0]["outcome"], report["tools"][0]["name"]) == (16, "ok", "Bash")


def test_every_recording_can_be_told_in_a_terminal_of_any_width() -> None:
    for path in sorted(RECORDINGS.glob("*.ndjson")):
        summary = summarize(path)
        for look in (Look(width=40, unicode=False), Look(width=100, stdout_color=True)):
            lines = list(inspection_lines(summary, name=path.name, look=look, everything=True))
            assert lines[0].count(path.name) == 1


def test_only_the_first_of_many_are_listed_unless_all_are_asked_for() -> None:
    summary = summarize(RECORDINGS / "08a_control_requests.ndjson")
    few = list(inspection_lines(summary, name="x", look=Look()))
    everything = list(inspection_lines(summary, name="x", look=Look(), everything=True))
    assert len(few) < len(everything)
    assert any("more" in line for line in few)


def test_a_page_is_written_for_its_owner_alone_and_named_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["inspect", str(ALLOWED), "--html", str(page)]) == 0
    told = capsys.readouterr()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert "1 turn, all ok" in told.out
    assert f"{page} has 13 events" in told.err
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_on_stdout_is_nothing_but_the_page(program: Program) -> None:
    ran = program.run("inspect", str(ALLOWED), "--html", "-")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.startswith(b"<!doctype html>")
    assert ran.stdout.endswith(b"</html>\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the tape"),
        (b"", "it is empty"),
        (b"hello\n", "is not a tape, line 1"),
        (b'{"tape": 99, "t": 0, "dir": "note", "line": "tape"}\n', "a tape of version 99"),
    ],
)
def test_what_is_no_tape_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    tape = tmp_path / "no.tape"
    if content is not None:
        tape.write_bytes(content)
    page = tmp_path / "page.html"
    assert main(["inspect", str(tape), "--html", str(page)]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.splitlines()[0].endswith("[config.invalid]")
    assert told.out == ""
    assert not page.exists()


def test_a_torn_tape_is_told_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn = tmp_path / "torn.ndjson"
    torn.write_bytes(ALLOWED.read_bytes()[:-20])
    assert main(["inspect", str(torn)]) == 0
    assert "torn" in capsys.readouterr().out


def test_the_page_never_takes_the_place_of_the_tape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tape = tmp_path / "tape.ndjson"
    tape.write_bytes(ALLOWED.read_bytes())
    assert main(["inspect", str(tape), "--html", str(tape)]) == 2
    assert "would overwrite the tape" in capsys.readouterr().err
    assert tape.read_bytes() == ALLOWED.read_bytes()


def test_neither_page_nor_figures_know_more_than_the_tape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret, path = "sk-ant-api03-SENTINEL", tmp_path / "tape.ndjson"
    said = json.dumps({"type": "user", "message": {"role": "user", "content": f"my key is {secret}, keep it"}}).encode()
    Tape([TapeRecord(0.0, "in", said)], header=TapeHeader()).redact().write(path)  # as RecordingTransport does it
    page = tmp_path / "page.html"
    assert main(["inspect", str(path), "--html", str(page), "--json"]) == 0
    shown = page.read_text("utf-8") + capsys.readouterr().out
    assert "my key is [secret], keep it" in shown
    assert secret not in shown
    assert str(tmp_path) not in shown


def test_a_page_that_cannot_be_written_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for target in (tmp_path / "nowhere" / "page.html", folder):
        assert main(["inspect", str(ALLOWED), "--html", str(target)]) == 2
        assert "cannot write the page" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [folder]  # and nothing half-written beside it


def test_a_tape_can_come_through_a_pipe(program: Program) -> None:
    ran = program.run("inspect", "/dev/stdin", "--json", stdin=ALLOWED.read_bytes())
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["records"] == 16


# --------------------------------------------------------------------------------------------------------------------- progress


class Clock:
    """A time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_shows_nothing_of_what_is_done_at_once() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress("Reading", stream=stream, look=Look(), is_shown=True, clock=clock) as progress:
        progress.update(1, 2)
    assert stream.getvalue() == ""


def test_progress_is_one_line_that_is_gone_at_the_end() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress("Reading x", stream=stream, look=Look(), is_shown=True, unit="MB", scale=1e6, clock=clock) as progress:
        clock.now = 1.0
        progress.update(25_000_000, 50_000_000)
        progress.update(26_000_000, 50_000_000)  # too soon for another picture
        clock.now = 2.0
        progress.update(30_000_000, 50_000_000)
    shown = stream.getvalue().split("\r\x1b[K")
    assert [piece.split("  ")[-1] for piece in shown] == ["", "25.0 of 50.0 MB", "30.0 of 50.0 MB", ""]
    assert " 50 %" in shown[1]
    assert "\n" not in stream.getvalue()


def test_progress_fits_the_width_and_knows_neither_colours_nor_blocks_without_leave() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress("a very long label " * 5, stream=stream, look=Look(width=60, unicode=False), is_shown=True, clock=clock) as progress:
        clock.now = 1.0
        progress.update(1, 3)
        clock.now = 2.0
        progress.update(7)
    _, first, second, _ = stream.getvalue().split("\r\x1b[K")
    assert len(first) <= 60
    assert len(second) <= 60
    assert "#" in first
    assert "\x1b" not in first


@pytest.mark.parametrize(
    ("where", "env", "plain", "is_shown"),
    [
        ("terminal", {"TERM": "xterm"}, False, True),
        ("terminal", {"TERM": "xterm"}, True, False),
        ("terminal", {"TERM": "dumb"}, False, False),
        ("terminal", {}, False, False),
        ("pipe", {"TERM": "xterm"}, False, False),
    ],
)
def test_progress_is_for_terminals_that_can_show_it(where: str, env: dict[str, str], plain: bool, is_shown: bool) -> None:
    ours, theirs = os.openpty() if where == "terminal" else os.pipe()
    clock = Clock()
    with os.fdopen(theirs, "w") as stream:
        with open_progress("Reading", stream=stream, look=Look(), env=env, plain=plain, clock=clock) as progress:
            clock.now = 1.0
            progress.update(1e6, 2e6)
        stream.write("end")
        stream.flush()
        shown = os.read(ours, 1000)
    os.close(ours)
    assert (b"1.0 of 2.0 MB" in shown) is is_shown
    assert (shown == b"end") is not is_shown


def test_a_terminal_that_is_gone_ends_the_progress_and_not_the_work() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress("x", stream=stream, look=Look(), is_shown=True, clock=clock) as progress:
        stream.close()
        clock.now = 1.0
        progress.update(1, 2)
        clock.now = 2.0
        progress.update(2, 2)
