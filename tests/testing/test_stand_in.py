"""The stand-ins for `claude`: the tee and the player, started by a host that knows nothing of them. The claude behind them is a fake."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.tape import INPUT_ENDED, OUTPUT_ENDED, Tape
from claude_transport.testing import FakeClaude, Scenario, TapeMissing, TapeShelf
from claude_transport.testing.scenario import Turn
from claude_transport.testing.stand_in import recorder, tee
from claude_transport.testing.steps import DieBySignal, Exit, Hang, OnSignal, Stderr, Text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-ins are POSIX programs")

PATIENCE = 60.0
SECRET = "sk-ant-api03-" + "x" * 20


def prompt(text: str) -> bytes:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}}).encode() + b"\n"


def run(path: Path, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [str(path), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE, env={**os.environ, **(env or {})}, check=False)


@pytest.fixture
def play() -> Iterator[Callable[..., FakeClaude]]:
    """Make a fake claude; its files go after the test."""
    made: list[FakeClaude] = []

    def make(scenario: Scenario) -> FakeClaude:
        made.append(FakeClaude(scenario, record_env=["CLAUDE_TRANSPORT_TEE_PID"]))
        return made[-1]

    yield make
    for fake in made:
        fake.close()


def shelf(tmp_path: Path, mode: str) -> TapeShelf:
    return TapeShelf(tmp_path / "tapes", name="tape", mode=mode, command="pytest it")


def test_the_tee_carries_bytes_standard_error_and_the_exit_code_unchanged(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    fake = play(Scenario(otherwise=Turn((Stderr("oh dear\n"), Text("Hi."), Exit(7)))))
    direct = run(fake.path, "--verbose", stdin=prompt("one"))
    taping = shelf(tmp_path, "all")
    taped = run(taping.cli_path(fake.path), "--verbose", stdin=prompt("one"))
    assert (taped.returncode, taped.stderr) == (direct.returncode, direct.stderr) == (7, b"oh dear\n")
    assert [json.loads(line)["type"] for line in taped.stdout.splitlines()] == [
        json.loads(line)["type"] for line in direct.stdout.splitlines()
    ]
    assert fake.calls()[1].argv == ["--verbose"]
    (path,) = taping.finish(passed=True)
    tape = Tape.read(path)
    assert (tape.lines("in"), tape.lines("err")) == ([prompt("one").strip()], [b"oh dear"])
    assert b"\n".join(tape.lines("out")) + b"\n" == taped.stdout
    assert tape.lines("note")[-2:] == [b"out EOF", b"exit code 7"]


def test_secrets_of_the_command_line_the_environment_and_the_lines_are_not_on_the_tape(
    play: Callable[..., FakeClaude], tmp_path: Path
) -> None:
    taping = shelf(tmp_path, "all")
    settings = json.dumps({"env": {"MY_TOKEN": "plain-words-as-a-secret"}})
    env = {"SOME_API_KEY": "another plain secret"}
    said = prompt(f"{SECRET} and another plain secret and plain-words-as-a-secret")
    run(taping.cli_path(play(Scenario.text("Hi.")).path), "--settings", settings, "--api-key", SECRET, stdin=said, env=env)
    (path,) = taping.finish(passed=True)
    text = path.read_text("utf-8")
    assert "[secret]" in text
    assert not [secret for secret in (SECRET, "plain-words-as-a-secret", "another plain secret") if secret in text]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_signal_for_the_tee_reaches_claude_and_its_answer_comes_back(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    fake = play(Scenario(startup=(OnSignal("SIGTERM", steps=(Exit(3),)),), otherwise=Turn((Text("ready"), Hang()))))
    taping = shelf(tmp_path, "all")
    with subprocess.Popen([taping.cli_path(fake.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(prompt("go"))
        host.stdin.flush()
        while b"ready" not in host.stdout.readline():
            pass
        host.send_signal(signal.SIGTERM)
        assert host.wait(PATIENCE) == 3
    assert fake.calls()[0].signals == [signal.SIGTERM]


def test_a_claude_that_dies_by_a_signal_ends_the_tee_by_the_same_one(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    taping = shelf(tmp_path, "all")
    ran = run(taping.cli_path(play(Scenario(otherwise=Turn((DieBySignal("SIGKILL"),)))).path), stdin=prompt("go"))
    assert ran.returncode == -signal.SIGKILL
    (path,) = taping.finish(passed=True)
    assert Tape.read(path).lines("note")[-1] == b"exit code -9"


def test_a_host_that_has_gone_ends_a_claude_that_is_busy(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    fake = play(Scenario(otherwise=Turn((Text("ready"), Hang()))))
    with subprocess.Popen([shelf(tmp_path, "all").cli_path(fake.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(prompt("go"))
        host.stdin.flush()
        while b"ready" not in host.stdout.readline():
            pass
        host.stdout.close()
        host.stdin.close()
        host.wait(PATIENCE)
    with pytest.raises(ProcessLookupError):
        os.kill(fake.calls()[0].pid, 0)


def test_a_question_about_the_version_is_no_conversation(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    fake = play(Scenario.text("Hi."))
    taping = shelf(tmp_path, "all")
    path = taping.cli_path(fake.path)
    assert run(path, "-v").stdout == b"2.1.329 (Claude Code)\n"
    run(path, stdin=prompt("one"))
    assert [kept.name for kept in taping.finish(passed=True)] == ["tape.ndjson"]
    playing = shelf(tmp_path, "none")
    path = playing.cli_path()
    assert run(path, "--version").stdout == b"2.1.329 (Claude Code)\n"
    assert run(path, stdin=prompt("one")).returncode == 0
    playing.finish(passed=True)


def test_each_start_has_a_tape_of_its_own_and_one_more_names_the_command_that_records_it(
    play: Callable[..., FakeClaude], tmp_path: Path
) -> None:
    taping = shelf(tmp_path, "all")
    path = taping.cli_path(play(Scenario()).path)
    first, second = (run(path, stdin=prompt(text)).stdout for text in ("one", "two"))
    assert [kept.name for kept in taping.finish(passed=True)] == ["tape.ndjson", "tape.2.ndjson"]
    playing = shelf(tmp_path, "none")
    path = playing.cli_path(match=["prompt"])
    assert [run(path, stdin=prompt(text)).stdout for text in ("one", "two")] == [first, second]
    assert run(path, stdin=prompt("three")).returncode == 2
    with pytest.raises(TapeMissing, match="start 3 of claude; record it with: pytest it"):
        playing.finish(passed=False)


def test_a_tape_that_is_missing_names_the_command_that_records_it(tmp_path: Path) -> None:
    with pytest.raises(TapeMissing, match="record it with: pytest it"):
        shelf(tmp_path, "none").cli_path()


def test_another_prompt_is_a_diff_on_standard_error_and_in_the_test(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    taping = shelf(tmp_path, "all")
    run(taping.cli_path(play(Scenario.text("Hi.")).path), "--model", "haiku", stdin=prompt("one"))
    taping.finish(passed=True)

    playing = shelf(tmp_path, "none")
    ran = run(playing.cli_path(match=["prompt"]), "--model", "haiku", stdin=prompt("two"))
    diff = ["message.content:", '- "one"', '+ "two"']
    assert ran.returncode == 2
    assert [line.strip() for line in ran.stderr.decode().splitlines()[-3:]] == diff
    with pytest.raises(ExpectationFailed) as failed:
        playing.finish(passed=False)  # the host may have failed because of it
    assert failed.value.diff.splitlines() == diff

    playing = shelf(tmp_path, "none")
    assert b'- "haiku"' in run(playing.cli_path(match=["options"]), "--model", "opus", stdin=prompt("two")).stderr
    with pytest.raises(ExpectationFailed, match="another command"):
        playing.finish(passed=True)


def test_a_host_that_leaves_early_fails_the_test_that_passed(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    taping = shelf(tmp_path, "all")
    run(taping.cli_path(play(Scenario.text("Hi.")).path), stdin=prompt("one") + prompt("two"))
    taping.finish(passed=True)
    playing = shelf(tmp_path, "none")
    assert run(playing.cli_path(), stdin=prompt("one")).returncode == 2
    with pytest.raises(ExpectationFailed, match="the end of the input"):
        playing.finish(passed=True)


def test_the_stand_in_is_found_on_path_and_path_is_restored(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    before = os.environ["PATH"]
    taping = shelf(tmp_path, "all")
    taping.cli_path(play(Scenario.text("Hi.")).path, on_path=True)
    ran = subprocess.run(["claude"], input=prompt("one"), capture_output=True, timeout=PATIENCE, check=True)
    assert b"Hi." in ran.stdout
    assert taping.finish(passed=True)
    assert os.environ["PATH"] == before


def test_a_recorder_that_is_killed_costs_the_tape_and_not_the_conversation(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    fake = play(Scenario())
    taping = shelf(tmp_path, "all")
    with subprocess.Popen([taping.cli_path(fake.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(prompt("one"))
        host.stdin.flush()
        while b'"result"' not in host.stdout.readline():
            pass
        children = Path(f"/proc/{host.pid}/task/{host.pid}/children").read_text("utf-8").split() if sys.platform == "linux" else []
        if not children:
            pytest.skip("the recorder is found in /proc")
        for pid in children:
            if b"recorder.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
        said, errors = host.communicate(prompt("two"), timeout=PATIENCE)
        assert b'"result"' in said
        assert b"[tape.incomplete]" in errors
        assert host.returncode == 0


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this system shares its processors by process, not by session")
def test_the_recorder_leaves_the_processors_to_what_it_records(tmp_path: Path) -> None:
    """It has a session of its own. Linux gives each session its share, so the niceness of the process alone would change nothing."""
    tape = tmp_path / "tape.ndjson"
    shell = ["sh", "-c", 'exec "$@" 3>"$0"', str(tape)]
    with subprocess.Popen([*shell, sys.executable, recorder.__file__, str(tape), "", "0"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        copies = process.stdin.fileno()
        os.set_blocking(copies, False)
        while True:
            try:
                os.write(copies, b"\n" * 65536)
            except BlockingIOError:
                break
        assert select.select([], [copies], [], PATIENCE)[1], "the recorder reads, and so it has done what it does first"
        assert Path(f"/proc/{process.pid}/autogroup").read_text("utf-8").split()[-1] == "19"
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
        process.kill()


TEE = """
import os, sys
from claude_transport.testing.stand_in.tee import Tee
tape, patience, *recorder = sys.argv[1:]
descriptor = os.open(tape, os.O_RDWR | os.O_CREAT)
running = Tee(["/bin/true"], descriptor, path=tape, recorder=recorder, passes_input=False, patience=float(patience))
running.finish(running.run())
"""
SLOW = """
import os, select, sys
AUTOGROUP = "/proc/self/autogroup"
if os.path.exists(AUTOGROUP):
    with open(AUTOGROUP, "w") as file:
        file.write("19")
sys.stdin.buffer.read()
for _ in range(20):
    select.select([], [], [], 0.1)
    os.write(3, b"x")
niceness = open(AUTOGROUP).read().split()[-1] if os.path.exists(AUTOGROUP) else "0"
os.write(3, niceness.encode())
if sys.argv[1] == "ends":
    os.write(1, b"\\0")
else:  # until the tee has ended
    gone = select.poll()
    gone.register(1, 0)
    gone.poll()
"""


@pytest.mark.parametrize("ends", [True, False])
def test_a_slow_recorder_has_all_the_time_that_it_needs_and_one_that_does_nothing_has_not(tmp_path: Path, ends: bool) -> None:
    """Beside a busy machine it needs long: it gets its share of the processors back once claude has ended, and time while it writes."""
    tape = tmp_path / "tape.ndjson"
    slow = [sys.executable, "-c", SLOW, "ends" if ends else "hangs"]
    ran = subprocess.run([sys.executable, "-c", TEE, str(tape), "1", *slow], capture_output=True, timeout=PATIENCE, check=True)
    assert tape.read_bytes() == b"x" * 20 + b"0"  # that took twice the patience
    assert (b"takes too long" in ran.stderr) is not ends


def test_what_a_host_does_after_the_end_of_claude_is_on_no_tape_and_in_no_other_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The pipe to the recorder is closed then, and its number may belong to a file that was opened since."""
    wake_in, wake = os.pipe()
    recorder_end, to_recorder = os.pipe()
    copies = tee.Copies(to_recorder, wake, tape=str(tmp_path / "tape.ndjson"))
    copies.put("o", b"the last word of claude\n")
    copies.close()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    assert other == to_recorder
    copies.put("i", b"late\n")
    copies.put("e", b"")
    assert os.read(recorder_end, 1000).endswith(b"the last word of claude\n")
    assert (copies.is_lost, capfd.readouterr().err, os.read(other, 1)) == (False, "", b"")
    assert (tmp_path / "other").read_bytes() == b""
    for descriptor in (wake_in, wake, recorder_end, other):
        os.close(descriptor)


def test_a_tee_that_is_its_own_claude_says_so(tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    script = tmp_path / "claude"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {tee.__file__} {tape} -- {script} "$@"\n', "utf-8")
    script.chmod(0o700)
    ran = run(script, stdin=prompt("one"))
    assert ran.returncode == 2
    assert b"is this recorder, not a claude" in ran.stderr


@pytest.mark.parametrize(("claude", "code"), [("missing", 127), (".", 126)])
def test_a_claude_that_cannot_be_started_leaves_no_tape(tmp_path: Path, claude: str, code: int) -> None:
    command = [sys.executable, "-I", "-S", tee.__file__, str(tmp_path / "tape.ndjson"), "--", str(tmp_path / claude)]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, b"[spawn.failed]" in ran.stderr) == (code, True)
    assert not (tmp_path / "tape.ndjson").exists()


def test_the_tee_imports_next_to_nothing() -> None:
    said = "import sys; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), {'__name__': 'tee'}); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", said, tee.__file__], capture_output=True, timeout=PATIENCE, check=True)
    names = {name.split(".")[0] for name in ran.stdout.decode().split()}
    assert not names & {"claude_transport", "anyio", "ctypes", "json", "pathlib", "re", "signal", "subprocess", "threading"}


def test_a_stand_in_is_refused_where_there_is_no_posix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taping = shelf(tmp_path, "all")
    monkeypatch.setattr("claude_transport.testing.tape_shelf.os.name", "nt")
    with pytest.raises(ConfigurationError, match="POSIX"):
        taping.cli_path("claude")


def test_a_name_can_be_used_once(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    taping = shelf(tmp_path, "all")
    fake = play(Scenario())
    taping.cli_path(fake.path)
    with pytest.raises(UsageError, match="already used"):
        taping.cli_path(fake.path)
    taping.finish(passed=False)


def script(folder: Path, body: str) -> Path:
    """A claude that is a shell script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "claude"
    path.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
    path.chmod(0o700)
    return path


def tee_of(tape: Path, claude: Path, *options: str) -> list[str]:
    return [sys.executable, "-I", "-S", tee.__file__, *options, str(tape), "--", str(claude)]


def test_bytes_that_are_no_utf_8_come_through_and_stand_on_the_tape(tmp_path: Path) -> None:
    said = b"\xff\xfe\x00 \xed\xa0\x80\nand a line without an end \xc3"
    tape = tmp_path / "tape.ndjson"
    ran = subprocess.run(tee_of(tape, script(tmp_path, "exec cat")), input=said, capture_output=True, timeout=PATIENCE, check=True)
    assert ran.stdout == said
    read = Tape.read(tape)
    assert read.lines("in") == read.lines("out") == said.split(b"\n")


def test_a_disk_that_takes_no_more_costs_the_tape_and_not_the_conversation(play: Callable[..., FakeClaude], tmp_path: Path) -> None:
    fake = play(Scenario.text("Hi."))
    direct = run(fake.path, stdin=prompt("one"))
    taping = shelf(tmp_path, "all")
    path = taping.cli_path(script(tmp_path / "real", f'ulimit -S -f unlimited; exec {fake.path} "$@"'))
    limited = ["sh", "-c", 'ulimit -S -f 1; exec "$0"', str(path)]  # a file of 512 bytes, or of 1024
    ran = subprocess.run(limited, input=prompt("one " * 1000), capture_output=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, b'"Hi."' in ran.stdout) == (direct.returncode, b'"Hi."' in direct.stdout) == (0, True)
    assert b"is not complete: File too large [tape.incomplete]" in ran.stderr
    with pytest.raises(ConfigurationError, match="could not be recorded: File too large"):
        taping.finish(passed=True)
    assert list((tmp_path / "tapes").glob("*")) == []


def test_a_tape_that_cannot_be_made_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = tee_of(tmp_path / "file" / "tape.ndjson", script(tmp_path, "touch ran"))
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, cwd=tmp_path, check=False)
    assert ran.returncode == 2
    assert b"tape.ndjson cannot be written: Not a directory [config.invalid]" in ran.stderr
    assert not (tmp_path / "ran").exists()


def test_a_tape_that_another_recorder_writes_is_not_overwritten_by_force(tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    tape.touch(mode=0o644)
    command = tee_of(tape, script(tmp_path, "exec cat"), "--force")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(b"first\n")
        first.stdin.flush()
        assert first.stdout.readline() == b"first\n"
        subprocess.run(command, input=b"second\n", stdout=subprocess.DEVNULL, timeout=PATIENCE, check=True)
    assert Tape.read(tape).lines("in") == [b"first"]
    assert Tape.read(tmp_path / "tape.2.ndjson").lines("in") == [b"second"]
    assert tape.stat().st_mode & 0o777 == 0o600
    subprocess.run(command, input=b"third\n", stdout=subprocess.DEVNULL, timeout=PATIENCE, check=True)
    assert Tape.read(tape).lines("in") == [b"third"]


def test_streams_that_the_host_has_made_non_blocking_are_carried_to_their_end(tmp_path: Path) -> None:
    flood = script(tmp_path, "echo ready; head -c 4000000 /dev/zero; exec cat")
    into_read, into = os.pipe()
    out, out_write = os.pipe()
    os.set_blocking(into_read, False)
    os.set_blocking(out_write, False)
    with subprocess.Popen(tee_of(tmp_path / "tape.ndjson", flood), stdin=into_read, stdout=out_write) as host:
        os.close(into_read)
        os.close(out_write)
        with os.fdopen(out, "rb") as said:
            assert said.readline() == b"ready\n"
            os.write(into, b"late")
            os.close(into)
            assert said.read() == b"\0" * 4_000_000 + b"late"
        assert host.wait(PATIENCE) == 0


def test_a_claude_that_outlives_its_input_is_heard_to_its_end(tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    claude = script(tmp_path, "cat > /dev/null; echo late; echo complaint >&2; exit 5")
    ran = subprocess.run(tee_of(tape, claude), stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (5, b"late\n", b"complaint\n")
    said = [(record.dir, record.line) for record in Tape.read(tape) if record.dir != "err"][1:]
    assert said == [("note", INPUT_ENDED), ("out", b"late"), ("note", OUTPUT_ENDED), ("note", b"exit code 5")]


def test_a_claude_that_closes_its_input_early_ends_that_of_the_host(tmp_path: Path) -> None:
    claude = script(tmp_path, "exec <&-; echo ready; read gone < fifo; echo late")
    os.mkfifo(tmp_path / "fifo")
    command = tee_of(tmp_path / "tape.ndjson", claude)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, bufsize=0) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        assert host.stdout.readline() == b"ready\n"
        with pytest.raises(BrokenPipeError):
            while True:
                host.stdin.write(b"x" * 2**16)
        (tmp_path / "fifo").write_bytes(b"\n")
        assert host.stdout.read() == b"late\n"
        assert host.wait(PATIENCE) == 0


def test_a_working_directory_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    remove = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.argv[1], sys.argv[1:])"
    cat = shutil.which("cat")
    assert cat is not None
    command = [sys.executable, "-c", remove, *tee_of(tmp_path / "tape.ndjson", Path(cat))]
    ran = subprocess.run(command, input=b"one\n", capture_output=True, timeout=PATIENCE, cwd=gone, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"one\n", b"")
    assert Tape.read(tmp_path / "tape.ndjson").lines("in") == [b"one"]


def test_a_script_that_starts_itself_in_a_process_between_comes_to_an_end(tmp_path: Path) -> None:
    itself = script(tmp_path, "")
    command = " ".join(tee_of(tmp_path / "tape.ndjson", itself))
    script(tmp_path, f"{command}\nexit $?")
    ran = subprocess.run([itself], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 2
    assert b"is this recorder, not a claude" in ran.stderr
    assert len(list(tmp_path.glob("tape*.ndjson"))) == 8


def test_a_line_that_is_too_long_for_memory_is_cut_before_the_string_where_it_is_too_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(recorder, "MOST_LINE_BYTES", 4096)
    recording = recorder.Recording()
    about = b"\0".join([str(os.getpid()).encode(), b"/", b"claude"])
    written = [*recording.take("m", 0.0, b""), *recording.take("c", 0.0, about)]
    secret = b"my-half-secret"
    line = b'{"type":"assistant","message":"' + b"x " * 490 + secret * 1000 + b'"}'
    for begin in range(0, len(line), 7):
        written += recording.take("o", 1.0, line[begin : begin + 7])
    written += recording.take("o", 1.0, b'\n{"type":"result"}\n')
    written += recording.end()
    tape = Tape.parse(b"".join(written))
    cut, whole = [record for record in tape if record.dir == "out"]
    assert (cut.line, cut.trimmed_from_chars) == (b'{"type":"assistant","message":', len(line))
    assert (whole.line, whole.trimmed_from_chars) == (b'{"type":"result"}', None)
    assert recording.cut_bytes == len(line)


FLOOD_LINE = b'{"type":"stream_event","event":{"delta":{"text":"%06d"}},"pad":"' + b"x" * 400 + b'"}\n'


def flood(size: int) -> bytes:
    return b"".join(FLOOD_LINE % number for number in range(size // len(FLOOD_LINE % 0) + 1))


def read_all(descriptor: int) -> bytes:
    found = bytearray()
    while data := os.read(descriptor, 2**20):
        found += data
    os.close(descriptor)
    return bytes(found)


class InOneProcess:
    """A stream of the tee whose three ends the test holds."""

    def __init__(self, tape: Path) -> None:
        self.wake, wake_in = os.pipe()
        self.recorder, to_recorder = os.pipe()
        self.output, sink = os.pipe()
        source, self.claude = os.pipe()
        self.copies = tee.Copies(to_recorder, wake_in, tape=str(tape))
        self.stream = tee.Stream("o", source, sink, self.copies, wake_in)
        self._wake_and_sink = wake_in, sink

    def say(self, data: bytes) -> threading.Thread:
        """Write as claude, in a thread, and end."""

        def run() -> None:
            tee.write_all(self.claude, data)
            os.close(self.claude)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def hear(self, size: int) -> bytes:
        """Read as the host."""
        found = bytearray()
        while len(found) < size:
            found += os.read(self.output, 2**20)
        return bytes(found)

    def wait_for_the_end(self) -> None:
        while not self.stream.is_over:
            os.read(self.wake, 100)

    def close(self) -> None:
        for descriptor in (self.wake, self.output, *self._wake_and_sink):
            os.close(descriptor)


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.parametrize("sink", ["pipe", "socket", "file", "file to append to"])
def test_a_flood_comes_through_whole_wherever_the_host_has_its_end(tmp_path: Path, sink: str) -> None:
    """A file that is opened to append to takes nothing from a pipe as it is, and a socket takes as much as it has room for."""
    said = flood(6 * 2**20)
    (tmp_path / "said").write_bytes(said)
    command = tee_of(tmp_path / "tape.ndjson", script(tmp_path, f"exec cat {tmp_path / 'said'}"))
    if sink == "pipe":
        heard = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=PATIENCE, check=True).stdout
    elif sink == "socket":
        ours, theirs = socket.socketpair()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs.fileno()) as process:
            theirs.close()
            heard = read_all(ours.detach())
            assert process.wait(PATIENCE) == 0
    else:
        with (tmp_path / "heard").open("ab" if sink == "file to append to" else "wb") as file:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, timeout=PATIENCE, check=True)
        heard = (tmp_path / "heard").read_bytes()
    assert heard == said
    assert b"\n".join(Tape.read(tmp_path / "tape.ndjson").lines("out")) + b"\n" == said


def test_a_flood_for_which_the_pipes_do_not_suffice_is_kept_in_memory(tmp_path: Path) -> None:
    before = open_descriptors()
    ends = InOneProcess(tmp_path / "tape.ndjson")
    said = flood(40 * 2**20)
    claude = ends.say(said)
    assert ends.hear(len(said)) == said
    claude.join(PATIENCE)
    ends.wait_for_the_end()
    assert open_descriptors() <= before + 80, "32 pipes, and those of the test"
    kept = bytearray()

    def record() -> None:
        for copies in recorder.read_copies(ends.recorder):
            kept.extend(b"".join(data for kind, _, data in copies if kind == "o"))

    taping = threading.Thread(target=record)
    taping.start()
    while ends.copies.is_behind:
        select.select([], [ends.copies], [], PATIENCE)
        ends.copies.flush()
    ends.copies.close()
    taping.join(PATIENCE)
    assert bytes(kept) == said
    os.close(ends.recorder)
    ends.close()


def test_a_tape_that_is_given_up_in_a_flood_frees_what_waits_for_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = open_descriptors()
    ends = InOneProcess(tmp_path / "tape.ndjson")
    said = flood(8 * 2**20)
    half = len(said) // 2
    threading.Thread(target=tee.write_all, args=(ends.claude, said[:half])).start()
    heard = ends.hear(half)
    most = open_descriptors()
    os.close(ends.recorder)
    ends.copies.flush()
    claude = ends.say(said[half:])
    heard += ends.hear(len(said) - half)
    claude.join(PATIENCE)
    ends.wait_for_the_end()
    assert (heard == said, ends.copies.is_lost) == (True, True)
    assert "is not complete: its recorder has ended [tape.incomplete]" in capfd.readouterr().err
    ends.copies.close()
    ends.close()
    del ends
    assert open_descriptors() <= before < most


def within_patience(read: Callable[[], object]) -> object:
    """What `read` returns. It runs in a thread, so that a pause of an hour fails the test and does not hold it."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(read()), daemon=True)
    thread.start()
    thread.join(PATIENCE / 6)
    assert found, "the recorder pauses"
    return found[0]


def test_the_pause_of_the_recorder_ends_with_the_tee() -> None:
    output, into = os.pipe()
    os.write(into, b"o 1.5 3\nHi.")
    copies = recorder.read_copies(output, pause=3600)
    assert next(copies) == [("o", 1.5, b"Hi.")]
    os.close(into)
    assert within_patience(lambda: list(copies)) == []
    os.close(output)


def test_the_recorder_does_not_pause_in_a_flood() -> None:
    output, into = os.pipe()
    said = b"x" * 2**15
    copies = recorder.read_copies(output, pause=3600)
    for number in range(3):
        os.write(into, b"o %d.0 %d\n" % (number, len(said)) + said)
        assert within_patience(lambda: next(copies)) == [("o", float(number), said)]
    os.close(into)
    os.close(output)
