"""`ask`, run as a process against fake claudes: what is printed where, and the exit code of everything that can happen."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from program_process import PATIENCE, Program

from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario, Turn
from claude_transport.testing.steps import (
    Assistant,
    Delay,
    DieBySignal,
    Emit,
    EmitRaw,
    Exit,
    Hang,
    IgnoreSignal,
    Noise,
    Result,
    Stderr,
    Text,
    ToolUse,
)

Play = Callable[..., FakeClaude]
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
GATED = Scenario(otherwise=Turn((Text("first last", chunks=["first ", "last"], gate="open"), Result())))


def read_until(stream: IO[bytes] | None, wanted: bytes) -> bytes:
    """What comes until `wanted` is there, or until the stream ends."""
    assert stream is not None
    seen = b""
    while wanted not in seen:
        assert select.select([stream], [], [], PATIENCE)[0], f"nothing came after {seen[-200:]!r}"
        chunk = os.read(stream.fileno(), 65536)
        if not chunk:
            break
        seen += chunk
    return seen


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -------------------------------------------------------------------------------------------------------------- the answer


@BACKENDS
def test_offline_prints_the_answer_on_stdout_and_says_on_stderr_that_it_is_simulated(program: Program, backend: str) -> None:
    ran = program.run("ask", "--offline", "--backend", backend, "Hello, Claude")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(b"[simulated] Hello!")
    assert "You said: “Hello, Claude”" in ran.stdout.decode()
    assert ran.stdout.endswith(b"arrive.\n")
    assert ran.stderr.decode() == "· simulated: no Claude was asked, the answer is made up on this machine\n"


@BACKENDS
def test_words_are_printed_while_the_rest_is_still_being_written(program: Program, play: Play, backend: str) -> None:
    fake = play(GATED)
    with program.start("ask", "--backend", backend, "--cli-path", str(fake.path), "hi") as process:
        assert read_until(process.stdout, b"first") == b"first "
        assert process.poll() is None
        fake.open_gate("open")
        assert read_until(process.stdout, b"nothing more") == b"last\n"
        assert process.wait(PATIENCE) == 0


def test_a_claude_that_sends_no_partial_messages_is_printed_block_by_block(program: Program, play: Play) -> None:
    blocks = [{"type": "text", "text": "One."}, {"type": "text", "text": " Two."}]
    fake = play(Scenario(otherwise=Turn((Assistant(blocks), Text("Three.", chunks=["Three."]), Result()))))
    assert program.run("ask", "--cli-path", str(fake.path), "hi").stdout == b"One. Two.\n\nThree.\n"


def test_an_answer_that_only_the_result_holds_is_printed(program: Program, play: Play) -> None:
    fake = play(Scenario(otherwise=Turn((Result(text="You have used 3 tokens."),))))
    assert program.run("ask", "--cli-path", str(fake.path), "/usage").stdout == b"You have used 3 tokens.\n"


def test_tool_calls_and_their_failures_are_lines_on_stderr(program: Program, play: Play) -> None:
    read = ToolUse("Read", input={"file_path": "/no/such"}, output="There is no such file.\nAt all.", is_error=True, ask=False)
    fake = play(Scenario(otherwise=Turn((Text("Looking."), read, Text("Gone."), Result()))))
    ran = program.run("ask", "--cli-path", str(fake.path), "hi")
    assert ran.stdout == b"Looking.\n\nGone.\n"
    assert ran.stderr.decode() == "● Read: /no/such\n  ✗ There is no such file.\n"


def test_the_words_of_a_subagent_are_not_taken_for_the_answer(program: Program, play: Play) -> None:
    said = {"type": "assistant", "message": {"id": "msg_sub", "role": "assistant", "content": [{"type": "text", "text": "psst"}]}}
    fake = play(Scenario(otherwise=Turn((Emit({**said, "parent_tool_use_id": "toolu_1"}), Text("Loud."), Result()))))
    assert program.run("ask", "--cli-path", str(fake.path), "hi").stdout == b"Loud.\n"


def test_what_the_model_says_reaches_a_pipe_unchanged(program: Program, play: Play) -> None:
    fake = play(Scenario.text("a\x1b[31mb\x07 ü \u202e"))
    assert program.run("ask", "--cli-path", str(fake.path), "hi").stdout == "a\x1b[31mb\x07 ü \u202e\n".encode()


@BACKENDS
def test_json_gives_every_message_as_it_came_and_ends_with_the_result(program: Program, play: Play, backend: str) -> None:
    odd = b'{ "type" : "from the future",  "n": 1.50 }'
    fake = play(Scenario(otherwise=Turn((EmitRaw(odd + b"\n"), Noise(), Text("Hi."), Result()))))
    ran = program.run("ask", "--json", "--backend", backend, "--cli-path", str(fake.path), "hi")
    lines = ran.stdout.splitlines()
    messages = [json.loads(line) for line in lines]
    kinds = [message["type"] for message in messages]
    assert kinds[-1] == "result"
    assert {"system", "from the future", "stream_event", "assistant"} <= set(kinds)
    assert ran.returncode == 0
    assert b"left out" in ran.stderr
    assert odd in lines


def test_warnings_of_the_library_are_lines_on_stderr(program: Program, play: Play) -> None:
    fake = play(Scenario(otherwise=Turn((Noise(), Text("Hi."), Result()))))
    ran = program.run("ask", "--cli-path", str(fake.path), "hi")
    assert ran.stdout == b"Hi.\n"
    assert "· SubprocessTransport: left out a line that holds no message" in ran.stderr.decode()


def test_verbose_adds_the_summary_and_what_claude_says_on_stderr(program: Program, play: Play) -> None:
    fake = play(Scenario(otherwise=Turn((Text("Hi."), Result(cost_usd=1.5), Stderr("a warning\n")))))
    ran = program.run("ask", "-v", "--cli-path", str(fake.path), "hi")
    assert ran.stdout == b"Hi.\n"
    assert b"a warning" in ran.stderr
    assert b"12 tokens in, 7 out" in ran.stderr
    assert b"$1.50" in ran.stderr
    assert b"claude-opus-5-5" in ran.stderr


# -------------------------------------------------------------------------------------------------------- prompt and options


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_the_prompt_is_read_from_stdin(program: Program, play: Play, arguments: tuple[str, ...]) -> None:
    fake = play(Scenario.echo())
    assert program.run("ask", "--cli-path", str(fake.path), *arguments, stdin="Grüße\n".encode()).stdout == "Grüße\n".encode()
    assert fake.calls()[0].prompts == ["Grüße"]


@pytest.mark.parametrize(("piped", "prompt"), [(b"a\nb\n\n", "a\nb\n"), (b" a\r\n", " a"), (b"a\r", "a\r"), (b"a\n ", "a\n "), (b"a", "a")])
def test_a_prompt_from_stdin_loses_one_line_end_and_nothing_else(program: Program, play: Play, piped: bytes, prompt: str) -> None:
    fake = play(Scenario.echo())
    assert program.run("ask", "--cli-path", str(fake.path), stdin=piped).returncode == 0
    assert fake.calls()[0].prompts == [prompt]


def test_a_prompt_that_is_an_argument_keeps_its_line_end(program: Program, play: Play) -> None:
    fake = play(Scenario.echo())
    assert program.run("ask", "--cli-path", str(fake.path), "a\n").returncode == 0
    assert fake.calls()[0].prompts == ["a\n"]


def test_options_reach_the_command_line_of_claude(program: Program, play: Play, tmp_path: Path) -> None:
    fake = play(Scenario.echo())
    options = ("--model", "haiku", "--permission-mode", "plan", "--max-turns", "3", "--cwd", str(tmp_path), "--system-prompt", "Be brief.")
    ran = program.run("ask", "--cli-path", str(fake.path), *options, "--allowed-tools", "Read,Bash(git log:*, x)", "hi")
    assert ran.returncode == 0, ran.stderr
    (call,) = fake.calls()
    assert {"--model=haiku", "--permission-mode=plan", "--max-turns=3", "--include-partial-messages"} <= set(call.argv)
    assert {"--allowedTools=Read", "--allowedTools=Bash(git log:*, x)"} <= set(call.argv)
    assert call.cwd == str(tmp_path)


def test_the_claude_of_the_environment_is_asked(program: Program, play: Play) -> None:
    fake = play(Scenario.text("It was me."))
    assert program.run("ask", "hi", env={"CLAUDE_CLI_PATH": str(fake.path)}).stdout == b"It was me.\n"


# -------------------------------------------------------------------------------------------------------------- exit codes

FAILED = Result(is_error=True, terminal_reason="api_error", text="API Error: 401 no", api_error_status=401)
FAILURES = {
    "claude died": (Turn((Text("Hal"), Stderr("Segfault\nat 0x0\n"), Exit(7))), 1, "exec.cli.exited", "at 0x0"),
    "claude was killed": (Turn((Text("Hal"), DieBySignal("SIGKILL"))), 1, "exec.cli.exited", ""),
    "no result": (Turn((Text("Hal"), Exit(0))), 1, "result.missing", ""),
    "too many turns": (Turn((Result(subtype="error_max_turns", is_error=True, terminal_reason="max_turns"),)), 1, "result.max_turns", ""),
    "not logged in": (Turn((FAILED,)), 3, "exec.cli.auth_failed", "claude says: API Error: 401 no"),
    "rate limit": (Turn((Result(is_error=True, api_error_status=429),)), 3, "result.rate_limited", "Wait"),
    "overloaded": (Turn((Result(is_error=True, api_error_status=529),)), 3, "result.overloaded", "Try again"),
    "server error": (Turn((Result(is_error=True, api_error_status=500),)), 3, "result.server_error", "again"),
    "no such model": (Turn((Result(is_error=True, api_error_status=404),)), 3, "result.model_not_found", "--model"),
    "older claude": (Turn((Stderr("error: unknown option '--x'\n"), Exit(1))), 2, "exec.cli.version_mismatch", "Update"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_is_one_line_with_its_code_and_a_hint_and_has_its_exit_code(program: Program, play: Play, case: str) -> None:
    turn, exit_code, code, hint = FAILURES[case]
    ran = program.run("ask", "--cli-path", str(play(Scenario(otherwise=turn)).path), "hi")
    first, *hints = ran.stderr.decode().splitlines()
    assert ran.returncode == exit_code, ran.stderr
    assert first.startswith("claude-transport: ")
    assert first.endswith(f"[{code}]")
    assert all(line.startswith("  ") for line in hints)
    assert hint in "\n".join(hints)
    assert b"Traceback" not in ran.stderr


@BACKENDS
def test_a_simulated_rate_limit_is_the_models_side(program: Program, backend: str) -> None:
    ran = program.run("ask", "--offline", "--backend", backend, "please simulate an error")
    assert (ran.returncode, ran.stdout) == (3, b"")
    assert b"[result.rate_limited]" in ran.stderr


@pytest.mark.parametrize("options", [(), ("-v",)], ids=["", "verbose"])
def test_no_claude_is_exit_code_2_and_with_verbose_every_place_that_was_searched(program: Program, options: tuple[str, ...]) -> None:
    ran = program.run("ask", *options, "--cli-path", "/no/such/claude", "hi")
    assert ran.returncode == 2
    assert ran.stderr.decode().splitlines()[:1] == [
        "claude-transport: --cli-path names '/no/such/claude', which does not exist. [exec.cli.binary_not_found]"
    ]
    assert (b"Looked at:\n    explicit path: /no/such/claude (not there)" in ran.stderr) == bool(options)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--cwd", "/no/such/folder", "hi"), "exec.cli.cwd_unusable"),
        (("   ",), "config.invalid"),
        ((), "config.invalid"),  # an empty pipe on stdin
        (("--cli-path", "x", "--offline", "hi"), "config.invalid"),
        (("--max-turns", "0", "hi"), "usage.error"),
        (("--timeout", "nan", "hi"), "usage.error"),
        (("--permission-mode", "yolo", "hi"), "usage.error"),
        (("--no-such-option", "hi"), "usage.error"),
        (("--backend", "curio", "hi"), "usage.error"),
    ],
)
def test_what_cannot_be_run_is_refused_with_exit_code_2(program: Program, play: Play, arguments: tuple[str, ...], code: str) -> None:
    fake = play(Scenario.echo())
    ran = program.run("ask", *arguments, env={"CLAUDE_CLI_PATH": str(fake.path)})
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert f"[{code}]" in ran.stderr.decode()
    assert fake.calls() == []


def test_a_prompt_that_is_not_text_is_refused(program: Program) -> None:
    ran = program.run("ask", "--offline", "-", stdin=b"\xff\xfe")
    assert ran.returncode == 2
    assert b"not UTF-8" in ran.stderr


def test_trio_is_refused_with_its_name_when_it_is_not_installed(program: Program) -> None:
    ran = program.run("ask", "--offline", "--backend", "trio", "hi", without=["trio"])
    assert ran.returncode == 2
    assert b"needs the package trio" in ran.stderr


NEVER = {
    "says nothing at all": (Scenario(startup=(Hang(),)), b""),
    "begins and does not end": (Scenario(otherwise=Turn((Text("Wait"), Hang()))), b"Wait\n"),
    "will not go either": (Scenario(otherwise=Turn((IgnoreSignal("SIGTERM"), IgnoreSignal("SIGINT"), Text("Wait"), Hang()))), b"Wait\n"),
    "answers and stays": (Scenario(otherwise=Turn((Text("Wait"), Delay(3600), Result()))), b"Wait\n"),
}


@BACKENDS
@pytest.mark.parametrize("claude", NEVER)
def test_the_timeout_ends_a_claude_that_never_answers_and_says_so(program: Program, play: Play, backend: str, claude: str) -> None:
    scenario, said = NEVER[claude]
    fake = play(scenario)
    ran = program.run("ask", "--timeout", "1.5", "--backend", backend, "--cli-path", str(fake.path), "hi")
    assert ran.returncode == 1
    assert ran.stderr == (
        b"claude-transport: no answer in 1.5 s. [exec.cli.timeout]\n"
        b"  Allow more time with --timeout; `claude-transport doctor` says if the agent works at all.\n"
    )
    assert ran.stdout in {b"", said}  # nothing, where starting it has taken so long already
    assert not any(is_alive(call.pid) for call in fake.calls())


def test_without_a_timeout_a_slow_answer_is_waited_for(program: Program, play: Play) -> None:
    fake = play(Scenario(otherwise=Turn((Delay(2.0), Text("At last."), Result()))))
    assert program.run("ask", "--cli-path", str(fake.path), "hi").stdout == b"At last.\n"
    assert program.run("ask", "--timeout", "59", "--cli-path", str(fake.path), "hi").stdout == b"At last.\n"


def test_a_traceback_is_shown_when_it_is_asked_for(program: Program) -> None:
    ran = program.run("ask", "--cli-path", "/no/such/claude", "hi", env={"CLAUDE_TRANSPORT_TRACEBACK": "1"})
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"Traceback")
    assert b"[exec.cli.binary_not_found]" in ran.stderr


# ------------------------------------------------------------------------------------------------------------ interruptions


@BACKENDS
@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_so_and_leaves_nothing_running(
    program: Program, play: Play, backend: str, number: int, exit_code: int
) -> None:
    fake = play(GATED)
    with program.start("ask", "--backend", backend, "--cli-path", str(fake.path), "hi") as process:
        read_until(process.stdout, b"first")
        process.send_signal(number)
        assert process.wait(PATIENCE) == exit_code
        assert read_until(process.stdout, b"nothing more") == b"\n"
        assert read_until(process.stderr, b"nothing more") == b""
    (call,) = fake.calls()
    assert len(call.requests("interrupt")) == 1
    assert not is_alive(call.pid)


def test_a_second_ctrl_c_ends_a_claude_that_does_not_listen(program: Program, play: Play) -> None:
    fake = play(Scenario(otherwise=Turn((IgnoreSignal("SIGTERM"), IgnoreSignal("SIGINT"), Text("I stay"), Hang()))))
    with program.start("ask", "--cli-path", str(fake.path), "hi") as process:
        read_until(process.stdout, b"I stay")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert not is_alive(fake.calls()[0].pid)


@BACKENDS
def test_ctrl_c_works_while_nobody_reads_stdout(program: Program, play: Play, backend: str) -> None:
    fake = play(Scenario(otherwise=Turn((Text("words"), Stderr("said it\n"), Hang()))))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    arguments = ("ask", "-v", "--timeout", "50", "--backend", backend, "--cli-path", str(fake.path), "hi")
    with program.start(*arguments, stdout=writer) as process:
        os.close(writer)
        read_until(process.stderr, b"said it")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    os.close(reader)
    assert not is_alive(fake.calls()[0].pid)


@BACKENDS
def test_a_reader_that_goes_away_ends_the_run_without_a_word(program: Program, play: Play, backend: str) -> None:
    fake = play(GATED)
    with program.start("ask", "--backend", backend, "--cli-path", str(fake.path), "hi") as process:
        read_until(process.stdout, b"first")
        assert process.stdout is not None
        process.stdout.close()
        fake.open_gate("open")
        assert process.wait(PATIENCE) == 141
        assert read_until(process.stderr, b"nothing more") == b""
    assert not is_alive(fake.calls()[0].pid)


def test_a_closed_stderr_does_not_cost_the_answer(program: Program) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with program.start("ask", "--offline", "hi", stderr=writer) as process:
        os.close(writer)
        assert b"arrive.\n" in read_until(process.stdout, b"arrive.\n")
        assert process.wait(PATIENCE) == 0


# -------------------------------------------------------------------------------------------------------------- permissions


def test_without_a_terminal_a_tool_is_denied_and_the_notice_says_how_to_allow_it(program: Program, play: Play) -> None:
    fake = play(Scenario.simulated(pace=0))
    ran = program.run("ask", "--cli-path", str(fake.path), "use a tool", stdin=b"y\n")
    assert ran.returncode == 0
    notice = "  ✗ denied: Bash (echo hello), because there is no terminal to ask on; see --allowed-tools\n"
    assert ran.stderr.decode() == f"● Bash: echo hello\n{notice}"
    assert [answer["behavior"] for answer in answers(fake)] == ["deny"]


def test_an_allowed_tool_is_not_asked_about(program: Program, play: Play) -> None:
    fake = play(Scenario.simulated(pace=0))
    ran = program.run("ask", "--allowed-tools", "Bash", "--cli-path", str(fake.path), "use a tool")
    assert ran.stderr.decode() == "● Bash: echo hello\n"
    assert answers(fake) == []


def answers(fake: FakeClaude) -> list[dict[str, object]]:
    """What the host answered to permission questions."""
    (call,) = fake.calls()
    replies = [message["response"] for message in call.messages if message.get("type") == "control_response"]
    return [reply["response"] for reply in replies if reply["subtype"] == "success"]


def test_the_program_run_by_its_script_is_the_same_program(program: Program) -> None:
    script = Path(program.argv("x")[0]).with_name("claude-transport")
    ran = subprocess.run([script, "--version"], capture_output=True, env=program.env, timeout=PATIENCE, check=True)
    assert ran.stdout.startswith(b"claude-transport ")


def test_a_newer_claude_than_the_newest_tested_one_is_one_line_and_works_although_warnings_are_errors(play: Play, program: Program) -> None:
    fake = play(Scenario(otherwise=Turn((Text("yes"), Result())), version="2.1.999"))
    ran = program.run("ask", "--cli-path", str(fake.path), "hi")  # with -W error
    assert (ran.returncode, ran.stdout) == (0, b"yes\n"), ran.stderr
    (line,) = ran.stderr.decode().splitlines()
    assert line.lstrip("\N{MIDDLE DOT}- ").startswith("this claude is 2.1.999, newer than ")


def test_that_permissions_of_the_command_line_are_not_asked_about_is_told_with_verbose_only(play: Play, program: Program) -> None:
    fake = play(Scenario(otherwise=Turn((Text("yes"), Result()))))
    quiet, verbose = (
        program.run("ask", *chosen, "--cli-path", str(fake.path), "--allowed-tools", "Bash", "hi") for chosen in ([], ["--verbose"])
    )
    assert (quiet.returncode, quiet.stderr, verbose.returncode) == (0, b"", 0)
    assert b"can_use_tool is not asked about everything: allowed_tools: Bash" in verbose.stderr
