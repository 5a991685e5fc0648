"""`ask` on a terminal, which here is a pseudo-terminal: questions, Markdown, colours, and what must never reach a screen."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from program_process import Program
from program_terminal import Terminal

from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario, Turn
from claude_transport.testing.steps import Result, Text, ToolUse

Play = Callable[..., FakeClaude]


def decisions(fake: FakeClaude) -> list[Any]:
    """The answers to permission questions."""
    (call,) = fake.calls()
    return [message["response"]["response"] for message in call.messages if message.get("type") == "control_response"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize(("typed", "behavior"), [("y\n", "allow"), ("YES\n", "allow"), ("n\n", "deny"), ("\n", "deny"), ("\x04", "deny")])
def test_permission_is_asked_for_and_only_a_yes_is_a_yes(
    program: Program, play: Play, terminal: Terminal, typed: str, behavior: str, backend: str
) -> None:
    fake = play(Scenario.simulated(pace=0))
    with terminal.start(program, "ask", "--backend", backend, "--cli-path", str(fake.path), "use a tool") as process:
        terminal.read_until(b"[y/N] ")
        assert "Claude wants to use Bash:\n    command: echo hello\n" in terminal.text
        terminal.type(typed)
        assert terminal.finish(process) == 0
    (decision,) = decisions(fake)
    assert decision["behavior"] == behavior
    assert ("denied" in terminal.text) is (behavior == "deny")


def test_what_was_typed_before_the_question_does_not_answer_it(program: Program, play: Play, terminal: Terminal) -> None:
    tool = ToolUse("Bash", input={"command": "rm -r ."}, ask=True)
    fake = play(Scenario(otherwise=Turn((Text("I think.", chunks=["I ", "think."], gate="typed"), tool, Result()))))
    with terminal.start(program, "ask", "--plain", "--cli-path", str(fake.path), "hi") as process:
        terminal.read_until(b"I ")
        terminal.type("y\n")
        fake.open_gate("typed")
        terminal.read_until(b"[y/N] ")
        terminal.type("n\n")
        assert terminal.finish(process) == 0
    assert [decision["behavior"] for decision in decisions(fake)] == ["deny"]


def test_ctrl_c_at_the_question_ends_the_run(program: Program, play: Play, terminal: Terminal) -> None:
    fake = play(Scenario.simulated(pace=0))
    own_terminal = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    argv = [sys.executable, "-c", own_terminal, *program.argv("ask", "--cli-path", str(fake.path), "use a tool")]
    with terminal.start(program, argv=argv) as process:
        terminal.read_until(b"[y/N] ")
        terminal.type("\x03")
        assert terminal.finish(process) == 130
    assert decisions(fake) == []


def test_with_the_prompt_in_a_pipe_the_question_is_asked_on_the_controlling_terminal(
    program: Program, play: Play, terminal: Terminal
) -> None:
    fake = play(Scenario.simulated(pace=0))
    piped = (
        "import fcntl, subprocess, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
        "sys.exit(subprocess.run(sys.argv[1:], input=b'use a tool').returncode)"
    )
    argv = [sys.executable, "-c", piped, *program.argv("ask", "--cli-path", str(fake.path))]
    with terminal.start(program, argv=argv) as process:
        terminal.read_until(b"[y/N] ")
        terminal.type("y\n")
        assert terminal.finish(process) == 0
    assert [decision["behavior"] for decision in decisions(fake)] == ["allow"]


def test_a_command_is_shown_whole_and_cannot_hide_anything(program: Program, play: Play, terminal: Terminal) -> None:
    command = "echo fine\x1b[2K\x1b[1G\n" * 60 + "rm -r ."
    fake = play(Scenario(otherwise=Turn((ToolUse("Bash", input={"command": command}, ask=True), Result()))))
    with terminal.start(program, "ask", "--plain", "--cli-path", str(fake.path), "hi") as process:
        terminal.read_until(b"[y/N] ")
        terminal.type("n\n")
        terminal.finish(process)
    assert b"\x1b" not in terminal.screen
    assert terminal.text.count("echo fine\ufffd[2K\ufffd[1G\n") == 60
    assert "rm -r .\n  Allow it?" in terminal.text


MARKDOWN = "# Title\n\nSome **bold** words.\n\n```python\nx = 1\n\ny = 2\n```\n\nThe end."


def test_markdown_is_rendered_once_and_the_answer_ends_with_its_summary(program: Program, play: Play, terminal: Terminal) -> None:
    fake = play(Scenario.text(MARKDOWN))
    with terminal.start(program, "ask", "--cli-path", str(fake.path), "hi") as process:
        assert terminal.finish(process) == 0
    assert b"\x1b[1mbold\x1b[0m" in terminal.screen
    assert terminal.screen.count(b"bold") < 5  # a few frames of it, not one for each word of the answer
    assert re.search(r"The end\.\n\nclaude-opus-5-5 · \d+\.\d s · 12 tokens in, 7 out · \$0\.0002\n$", terminal.text)


@pytest.mark.parametrize(("arguments", "env"), [(("--plain",), {}), (("--no-color",), {}), ((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"})])
def test_nothing_moves_and_nothing_is_coloured_where_that_is_not_wanted(
    program: Program, play: Play, terminal: Terminal, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    fake = play(Scenario.text(MARKDOWN))
    with terminal.start(program, "ask", *arguments, "--cli-path", str(fake.path), "hi", env=env) as process:
        assert terminal.finish(process) == 0
    assert b"\x1b" not in terminal.screen
    assert terminal.text.startswith(MARKDOWN)


def test_without_rich_the_answer_is_plain_and_the_rest_is_dim(program: Program, play: Play, terminal: Terminal) -> None:
    fake = play(Scenario.text(MARKDOWN))
    with terminal.start(program, argv=program.argv("ask", "--cli-path", str(fake.path), "hi", without=["rich"])) as process:
        assert terminal.finish(process) == 0
    assert terminal.text.startswith(MARKDOWN)
    assert b"\x1b[2mclaude-opus-5-5" in terminal.screen


@pytest.mark.parametrize("arguments", [(), ("--plain",)])
def test_a_model_cannot_control_the_terminal(program: Program, play: Play, terminal: Terminal, arguments: tuple[str, ...]) -> None:
    fake = play(Scenario.text("Title: \x1b]0;owned\x07 back: \x9b2J over: \u202egnp.exe"))
    with terminal.start(program, "ask", *arguments, "--cli-path", str(fake.path), "hi") as process:
        assert terminal.finish(process) == 0
    assert not re.search("\x1b\\]|\x07|\x9b|\u202e", terminal.screen.decode())


def test_no_prompt_on_a_terminal_is_a_mistake_and_not_a_wait(program: Program, terminal: Terminal) -> None:
    with terminal.start(program, "ask", "--offline") as process:
        assert terminal.finish(process) == 2
    assert "there is no PROMPT" in terminal.text


def test_a_failure_leaves_no_spinner_behind(program: Program, terminal: Terminal) -> None:
    with terminal.start(program, "ask", "--cli-path", "/no/such/claude", "hi") as process:
        assert terminal.finish(process) == 2
    assert terminal.screen.count(b"\x1b[?25l") == terminal.screen.count(b"\x1b[?25h")
    assert "[exec.cli.binary_not_found]" in terminal.text
