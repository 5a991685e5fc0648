"""How long an answer takes, on a terminal: one line that comes and goes, and costs neither the answer nor anybody a keystroke."""

from __future__ import annotations

import fcntl
import io
import os
import re
import signal
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from functools import partial

import anyio
import anyio.to_thread
import pytest
from program_process import PATIENCE, Program
from program_terminal import Terminal

from claude_transport.app.event_loop import while_ticking
from claude_transport.app.render import Face, ShownToolCall, Words
from claude_transport.app.terminal import Look, Progress
from claude_transport.testing import FakeMessagesAPI, replies
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario, Turn
from claude_transport.testing.steps import Delay, Hang, Result, Text, ToolUse, WaitForFile

Play = Callable[..., FakeClaude]
CLEAR = b"\r\x1b[K"
GATED = Scenario(otherwise=Turn((Text("one two", chunks=["one ", "two"], gate="seen"), Result())))
SLOW = Scenario(otherwise=Turn((Delay(1.5), Text("one two"), Result())))
"""Slow enough for a line to be shown where one may be."""
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Answer:
    """A pipe for stdout: `writer` is for the program, and `read()` gives what it has written to its end."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def read(self) -> bytes:
        os.close(self.writer)
        self.writer = -1
        with os.fdopen(self.reader, "rb") as stream:
            return stream.read()


@pytest.fixture
def answer() -> Answer:
    return Answer()


def left_on(terminal: Terminal) -> list[str]:
    """The lines that stay, each without what was shown before the last time that it was cleared."""
    return [line.rpartition(CLEAR)[2].decode() for line in terminal.screen.removesuffix(b"\r\n").split(b"\r\n")]


# ----------------------------------------------------------------------------------------------------------------- the program


@BACKENDS
@pytest.mark.parametrize("without", [(), ("rich",)])
def test_while_an_answer_goes_elsewhere_a_line_says_how_long_it_takes_and_is_gone_with_it(
    program: Program, play: Play, terminal: Terminal, answer: Answer, without: tuple[str, ...], backend: str
) -> None:
    fake = play(GATED)
    argv = program.argv("ask", "--backend", backend, "--cli-path", str(fake.path), "hi", without=without)
    with terminal.start(program, argv=argv, stdout=answer.writer) as process:
        terminal.read_until(b"claude is writing \x1b[2m")
        fake.open_gate("seen")
        assert terminal.finish(process) == 0
    assert answer.read() == b"one two\n"
    (summary,) = left_on(terminal)
    assert "tokens in" in summary


def test_a_recording_shows_it_too(program: Program, play: Play, terminal: Terminal, answer: Answer, tmp_path: os.PathLike[str]) -> None:
    fake = play(GATED)
    argv = program.argv("record", "-o", str(tmp_path) + "/tape", "--cli-path", str(fake.path), "hi")
    with terminal.start(program, argv=argv, stdout=answer.writer) as process:
        terminal.read_until(b"claude is writing")
        fake.open_gate("seen")
        assert terminal.finish(process) == 0
    assert answer.read() == b"one two\n"


@pytest.mark.parametrize("without", [(), ("rich",)])
def test_what_is_waited_for_changes_once_claude_is_there(
    program: Program, play: Play, terminal: Terminal, without: tuple[str, ...]
) -> None:
    fake = play(Scenario(startup=(WaitForFile("start"),), otherwise=Turn((WaitForFile("answer"), Text("Here."), Result()))))
    with terminal.start(program, argv=program.argv("ask", "--cli-path", str(fake.path), "hi", without=without)) as process:
        terminal.read_until(b"starting claude")
        fake.open_gate("start")
        terminal.read_until(b"waiting for claude")
        fake.open_gate("answer")
        assert terminal.finish(process) == 0
    assert "Here." in terminal.text


@pytest.mark.parametrize("without", [(), ("rich",)])
def test_while_a_tool_runs_the_terminal_says_which_with_and_without_rich(
    program: Program, play: Play, terminal: Terminal, without: tuple[str, ...]
) -> None:
    tool = ToolUse("Bash", input={"command": "make all"}, ask=False)
    fake = play(Scenario(otherwise=Turn((Text("Look."), tool, Text("Done.", chunks=["Done."], gate="seen"), Result()))))
    with terminal.start(program, argv=program.argv("ask", "--cli-path", str(fake.path), "hi", without=without)) as process:
        terminal.read_until(b"claude uses Bash")
        fake.open_gate("seen")
        assert terminal.finish(process) == 0
    assert "Bash: make all\n" in terminal.text
    assert terminal.screen.count(b"\x1b[?25l") == terminal.screen.count(b"\x1b[?25h")
    if without:
        assert left_on(terminal)[:5] == ["Look.", "", "\x1b[2m● Bash: make all\x1b[0m", "", "Done."]


async def test_waiting_for_the_api_is_shown_too(program: Program, terminal: Terminal, answer: Answer, anyio_backend_name: str) -> None:
    async with FakeMessagesAPI([replies.gated("one two", after_chunks=0)]) as api:
        env = {"CLAUDE_CLI_PATH": "/no/such/claude", "ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "sk-ant-fake"}
        argv = program.argv("ask", "--backend", anyio_backend_name, "--model", "haiku", "hi")
        with terminal.start(program, argv=argv, env=env, stdout=answer.writer) as process:
            await anyio.to_thread.run_sync(terminal.read_until, b"asking the API")
            api.open_gate()
            assert await anyio.to_thread.run_sync(terminal.finish, process) == 0
    assert answer.read() == b"one two\n"
    assert "asking" not in "".join(left_on(terminal))


@pytest.mark.parametrize(
    ("arguments", "env"),
    [(("--quiet",), {}), (("--plain",), {}), (("--no-color",), {}), ((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"}), ((), {"TERM": ""})],
)
def test_nothing_is_said_about_it_where_that_is_not_wanted(
    program: Program, play: Play, terminal: Terminal, answer: Answer, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    argv = program.argv("ask", *arguments, "--cli-path", str(play(SLOW).path), "hi")
    with terminal.start(program, argv=argv, env=env, stdout=answer.writer) as process:
        assert terminal.finish(process) == 0
    assert answer.read() == b"one two\n"
    assert CLEAR not in terminal.screen
    assert "claude is" not in terminal.text


def test_nothing_of_it_goes_into_a_pipe(program: Program, play: Play) -> None:
    ran = program.run("ask", "--cli-path", str(play(SLOW).path), "hi")
    assert (ran.stdout, ran.stderr) == (b"one two\n", b"")


def test_with_json_on_a_terminal_each_message_is_still_a_line_of_its_own(program: Program, play: Play, terminal: Terminal) -> None:
    fake = play(GATED)
    with terminal.start(program, "ask", "--json", "--cli-path", str(fake.path), "hi") as process:
        terminal.read_until(b"claude is at work")
        fake.open_gate("seen")
        assert terminal.finish(process) == 0
    assert all(re.fullmatch(r"\{.*\}", line) for line in left_on(terminal))


@BACKENDS
def test_ctrl_c_takes_the_line_away_and_ends_the_run(
    program: Program, play: Play, terminal: Terminal, answer: Answer, backend: str
) -> None:
    fake = play(Scenario(otherwise=Turn((Text("one"), Hang()))))
    argv = program.argv("ask", "--backend", backend, "--cli-path", str(fake.path), "hi")
    with terminal.start(program, argv=argv, stdout=answer.writer) as process:
        terminal.read_until(b"claude is writing")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert terminal.finish(process) == 130
    assert answer.read() == b"one\n"
    assert "".join(left_on(terminal)) == ""


def test_a_question_is_the_last_thing_on_the_screen_and_its_answer_counts(
    program: Program, play: Play, terminal: Terminal, answer: Answer
) -> None:
    tool = ToolUse("Bash", input={"command": "ls"}, ask=True)
    steps = (Text("one two", chunks=["one ", "two"], gate="seen"), tool, Result())
    fake = play(Scenario(otherwise=Turn(steps)))
    with terminal.start(program, argv=program.argv("ask", "--cli-path", str(fake.path), "hi"), stdout=answer.writer) as process:
        terminal.read_until(b"claude is writing")
        fake.open_gate("seen")
        terminal.read_until(b"[y/N] ")
        terminal.type("y\n")
        assert terminal.finish(process) == 0
    assert terminal.screen.count(b"[y/N] \x1b[0my\r\n") == 1
    (call,) = fake.calls()
    replies_of_host = [message["response"]["response"] for message in call.messages if message.get("type") == "control_response"]
    assert [reply["behavior"] for reply in replies_of_host] == ["allow"]


@pytest.mark.parametrize("columns", [8, 20])
def test_no_line_of_it_is_wider_than_a_narrow_terminal(program: Program, play: Play, answer: Answer, columns: int) -> None:
    terminal = Terminal(columns=columns)
    fake = play(GATED)
    with terminal.start(program, argv=program.argv("ask", "--json", "--cli-path", str(fake.path), "hi"), stdout=answer.writer) as process:
        terminal.read_until(b" s\x1b[0m")
        fake.open_gate("seen")
        assert terminal.finish(process) == 0
    os.close(terminal.master)
    pictures = terminal.text.split("\r")
    assert any(pictures)
    assert all(len(picture) < columns for picture in pictures)


def test_a_terminal_that_was_stopped_does_not_hold_up_an_answer_that_goes_elsewhere(
    program: Program, play: Play, terminal: Terminal, answer: Answer
) -> None:
    termios.tcflow(terminal.slave, termios.TCOOFF)  # as Ctrl-S does
    argv = program.argv("ask", "--json", "--cli-path", str(play(SLOW).path), "hi")
    with terminal.start(program, argv=argv, stdout=answer.writer) as process:
        assert process.wait(PATIENCE) == 0
    assert b'"one two"' in answer.read()


IN_THE_BACKGROUND = """
import fcntl, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for group in (None, 0):
    subprocess.run([sys.executable, "-c", sys.argv[1]], process_group=group, check=True)
"""
ASK_WHETHER = "import sys; from claude_transport.app.terminal import takes_more; print(takes_more(sys.stderr), flush=True)"


def test_a_job_in_the_background_leaves_the_terminal_to_the_one_in_front(program: Program, terminal: Terminal, answer: Answer) -> None:
    argv = [sys.executable, "-c", IN_THE_BACKGROUND, ASK_WHETHER]
    with terminal.start(program, argv=argv, stdout=answer.writer) as process:
        assert process.wait(PATIENCE) == 0
    assert answer.read().split() == [b"True", b"False"]


# ------------------------------------------------------------------------------------------------------------------- the parts


class Stage:
    """A `Face` on a terminal, and a clock that is past the patience of any progress."""

    def __init__(self) -> None:
        self.ours, theirs = os.openpty()
        self.stream = os.fdopen(theirs, "w")
        ticks = iter(range(1000))
        progress = Progress("", stream=self.stream, look=Look(), is_shown=True, unit="s", clock=lambda: float(next(ticks)))
        self.face = Face(self.stream, self.stream, look=Look(), progress=progress)

    def tick(self, times: int) -> None:
        assert self.face.on_tick is not None
        for _ in range(times):
            self.face.on_tick(7.0)

    def shown(self) -> str:
        """What has come since it was asked for last."""
        self.stream.write("|")
        self.stream.flush()
        shown = b""
        while not shown.endswith(b"|"):
            shown += os.read(self.ours, 65536)
        return shown.decode().removesuffix("|")


@pytest.fixture
def stage() -> Iterator[Stage]:
    opened = Stage()
    yield opened
    opened.stream.close()
    os.close(opened.ours)


async def test_words_on_the_line_are_never_drawn_over(stage: Stage) -> None:
    await stage.face.show(Words("half a line"))
    stage.tick(9)
    assert stage.shown() == "half a line"
    await stage.face.show(Words(" and the rest\n"))
    stage.tick(9)
    assert "claude is writing 7 s" in stage.shown()


async def test_nothing_is_drawn_behind_a_question(stage: Stage) -> None:
    stage.face.waiting("starting claude")
    async with stage.face.lock:
        stage.face.say("Allow it? ", end="")
        stage.tick(9)
        assert stage.shown() == "Allow it? "


async def test_what_is_said_one_after_the_other_has_nothing_flicker_between(stage: Stage) -> None:
    for name in ("Read", "Grep"):
        await stage.face.show(ShownToolCall(tool_use_id=name, name=name, gist="x"))
        stage.tick(1)
    assert stage.shown() == "● Read: x\r\n● Grep: x\r\n"
    stage.tick(1)
    assert stage.shown() == "\r\x1b[Kclaude uses Grep 7 s"


def test_a_terminal_that_became_narrow_gets_narrow_pictures() -> None:
    ours, theirs = os.openpty()
    clock = iter(range(1000))
    with os.fdopen(theirs, "w") as stream:
        progress = Progress(
            "Reading a tape", stream=stream, look=Look(), is_shown=True, unit="MB", scale=1e6, clock=lambda: float(next(clock))
        )
        for columns in (80, 30, 12, 5):
            fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            progress.update(1e6, 2e6)
            stream.write("|")
            stream.flush()
            shown = ""
            while not shown.endswith("|"):
                shown += os.read(ours, 1000).decode()
            (picture,) = shown.removesuffix("|").split("\r\x1b[K")[1:]
            assert 0 < len(picture) < columns
    os.close(ours)


async def test_a_face_without_progress_has_nothing_to_be_told() -> None:
    assert Face(io.StringIO(), io.StringIO(), look=Look()).on_tick is None


async def test_ticks_come_until_the_work_is_done_and_count_up() -> None:
    told: list[float] = []
    enough = anyio.Event()

    def tick(seconds: float) -> None:
        told.append(seconds)
        if len(told) == 2:
            enough.set()

    with anyio.fail_after(PATIENCE):
        await while_ticking(enough.wait, tick)
    assert told == sorted(told)
    assert len(told) == 2


@pytest.mark.parametrize("error", [LookupError("the very one"), KeyboardInterrupt("the very one")])
@pytest.mark.parametrize("tick", [None, print])
async def test_what_the_work_raises_comes_out_as_it_is(error: BaseException, tick: Callable[[float], object] | None) -> None:
    async def work() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await while_ticking(work, tick)
    assert caught.value is error


async def test_work_that_is_cancelled_is_cancelled_and_nobody_is_told_any_more() -> None:
    told: list[float] = []
    with anyio.CancelScope() as scope:
        await while_ticking(partial(_cancel_and_wait, scope), told.append)
    assert scope.cancelled_caught
    assert told == []


async def _cancel_and_wait(scope: anyio.CancelScope) -> None:
    scope.cancel()
    await anyio.sleep_forever()
