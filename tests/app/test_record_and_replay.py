"""`record` and `replay`, run as processes: what is on the tape, and that the tape speaks as the claude on it did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from program_process import PATIENCE, Program, killed_at_the_end

from claude_transport.protocol.tape import Tape, TapeRecord
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario, Turn
from claude_transport.testing.steps import Exit, Hang, Result, Text

Play = Callable[..., FakeClaude]


def sent_by_the_host(path: Path) -> bytes:
    return b"".join(line + b"\n" for line in Tape.read(path).lines("in"))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_recorded_tape_plays_what_was_said(program: Program, play: Play, tmp_path: Path, backend: str) -> None:
    tape = tmp_path / "tape.ndjson"
    fake = play(Scenario.text("Hi there."))
    recorded = program.run("record", "-o", str(tape), "--backend", backend, "--cli-path", str(fake.path), "one", "-", stdin=b"two\n")
    assert recorded.returncode == 0, recorded.stderr
    prompts = [json.loads(line) for line in Tape.read(tape).lines("in") if b'"user"' in line]
    assert ["one" in json.dumps(prompts[0]), "two" in json.dumps(prompts[1])] == [True, True]
    assert recorded.stdout.count(b"Hi there.") == 2

    played = program.run("replay", str(tape), "--backend", backend, "--", "--verbose", stdin=sent_by_the_host(tape))
    assert played.returncode == 0, played.stderr
    said = [json.loads(line) for line in played.stdout.splitlines()]
    assert [message["type"] for message in said].count("result") == 2


@pytest.mark.parametrize("reports", [True, False], ids=["results report", "results report none"])
def test_the_summary_of_a_recording_and_of_its_tape_have_the_same_tokens(
    program: Program, play: Play, tmp_path: Path, reports: bool
) -> None:
    tape = tmp_path / "tape.ndjson"
    result = Result() if reports else Result(input_tokens=0, output_tokens=0)
    fake = play(Scenario(otherwise=Turn((Text("Hi."), result))))
    recorded = program.run("record", "-v", "-o", str(tape), "--cli-path", str(fake.path), "one", "two", "three")
    assert recorded.returncode == 0, recorded.stderr
    inspected = program.run("inspect", "--json", str(tape))
    tokens = json.loads(inspected.stdout)["tokens"]
    assert (tokens["input_tokens"], tokens["output_tokens"]) == (36, 21)
    assert b"36 tokens in, 21 out" in recorded.stderr


def test_the_simulated_claude_has_the_same_tokens_on_stderr_and_on_the_tape(program: Program, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    recorded = program.run("record", "-v", "--offline", "-o", str(tape), "one", "two")
    assert recorded.returncode == 0, recorded.stderr
    tokens = json.loads(program.run("inspect", "--json", str(tape)).stdout)["tokens"]
    assert f"{tokens['input_tokens']} tokens in, {tokens['output_tokens']} out".encode() in recorded.stderr


def test_a_tape_that_is_there_is_overwritten_only_by_force(program: Program, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    tape.write_text("precious", "utf-8")
    ran = program.run("record", "-o", str(tape), "--offline", "hi")
    assert ran.returncode == 2
    assert b"--force" in ran.stderr
    assert tape.read_text("utf-8") == "precious"
    assert program.run("record", "--force", "-o", str(tape), "--offline", "hi").returncode == 0
    assert len(Tape.read(tape)) > 0


def test_a_claude_that_died_on_the_tape_dies_again_with_its_exit_code(program: Program, play: Play, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    fake = play(Scenario(otherwise=Turn((Text("Well"), Exit(7)))))
    assert program.run("record", "-o", str(tape), "--cli-path", str(fake.path), "hi").returncode == 1
    assert program.run("replay", str(tape), stdin=sent_by_the_host(tape)).returncode == 7


def test_a_host_that_says_something_else_is_told_where(program: Program, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    assert program.run("record", "-o", str(tape), "--offline", "hi").returncode == 0
    ran = program.run("replay", str(tape), stdin=b'{"type":"control_request","request_id":"1","request":{"subtype":"set_model"}}\n')
    assert ran.returncode == 2
    assert b"[testing.expectation_failed]" in ran.stderr


def test_a_host_that_leaves_before_it_has_said_everything_is_exit_code_2(program: Program, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    assert program.run("record", "-o", str(tape), "--offline", "hi").returncode == 0
    for said in (b"", sent_by_the_host(tape).split(b"\n")[0] + b"\n"):
        ran = program.run("replay", str(tape), stdin=said)
        assert ran.returncode == 2
        assert b"got the end of the input [testing.expectation_failed]" in ran.stderr


def test_a_host_with_another_prompt_gets_the_recorded_answer(program: Program, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    assert program.run("record", "-o", str(tape), "--offline", "hi").returncode == 0
    said = sent_by_the_host(tape)
    assert b'"hi"' in said
    ran = program.run("replay", str(tape), stdin=said.replace(b'"hi"', b'"good evening"'))
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b'"type":"result"' in ran.stdout


def test_replay_and_inspect_count_the_same_records(program: Program, tmp_path: Path) -> None:
    recorded = [
        ("in", b'{"type":"user","message":{"role":"user","content":"1"}}'),
        ("note", b"withdrawn in 1"),
        ("in", b'{"type":"user","message":{"role":"user","content":"2"}}'),
        ("out", b'{"type":"keep_alive"}'),
        ("note", b"out EOF"),
        ("note", b"exit code 0"),
        ("note", b"closed by host"),
        ("in", b'{"type":"user","message":{"role":"user","content":"3"}}'),
        ("note", b"withdrawn in 1"),
    ]
    path = tmp_path / "tape.ndjson"
    Tape(records=[TapeRecord(float(index), way, said) for index, (way, said) in enumerate(recorded)]).write(path)  # type: ignore[arg-type]
    assert json.loads(program.run("inspect", str(path), "--json").stdout)["records"] == len(recorded)
    ran = program.run("replay", str(path))
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"claude-transport: record 3 of 9: expected user ")


def test_what_is_no_tape_is_exit_code_2(program: Program, tmp_path: Path) -> None:
    assert program.run("replay", str(tmp_path / "none")).returncode == 2


def test_a_prompt_that_failed_fails_the_recording_whatever_becomes_of_the_next(program: Program, play: Play, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    fake = play(Scenario(replies=(Turn((Result(subtype="error_max_turns", is_error=True),)),), otherwise=Turn((Text("Fine."), Result()))))
    ran = program.run("record", "-o", str(tape), "--cli-path", str(fake.path), "one", "two")
    assert b"Fine." in ran.stdout
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.count(b"claude-transport:") == 1


def test_a_limit_of_time_between_two_prompts_is_a_failure(program: Program, play: Play, tmp_path: Path) -> None:
    fake = play(Scenario(replies=(Turn((Text("Fine."), Result())),), otherwise=Turn((Hang(),))))
    ran = program.run("record", "-o", str(tmp_path / "tape.ndjson"), "--timeout", "3", "--cli-path", str(fake.path), "one", "two")
    assert ran.returncode == 1
    assert ran.stderr == (
        b"claude-transport: no answer in 3 s. [exec.cli.timeout]\n"
        b"  Allow more time with --timeout; `claude-transport doctor` says if the agent works at all.\n"
    )


@pytest.mark.parametrize("command", [("ask",), ("record", "-o", "tape.ndjson")])
def test_quiet_leaves_stderr_to_what_went_wrong(program: Program, tmp_path: Path, command: tuple[str, ...]) -> None:
    ran = program.run(*command, "--quiet", "--offline", "hi", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.startswith(b"[simulated]")


def test_quiet_and_verbose_contradict_each_other(program: Program) -> None:
    assert program.run("ask", "-q", "-v", "--offline", "hi").returncode == 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_ends_a_recording_and_leaves_a_tape_that_can_be_read(program: Program, play: Play, tmp_path: Path, backend: str) -> None:
    tape = tmp_path / "tape.ndjson"
    fake = play(Scenario(otherwise=Turn((Text("Well"), Hang()))))
    with program.start("record", "-o", str(tape), "--backend", backend, "--cli-path", str(fake.path), "hi") as process:
        read_until(process.stdout, b"Well")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert any(b"Well" in line for line in Tape.read(tape).lines("out"))


def test_a_reader_that_goes_away_ends_a_recording(program: Program, play: Play, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    fake = play(Scenario(otherwise=Turn((Text("one two", chunks=["one ", "two"], gate="open"), Result()))))
    with program.start("record", "-o", str(tape), "--cli-path", str(fake.path), "hi") as process:
        read_until(process.stdout, b"one")
        assert process.stdout is not None
        process.stdout.close()
        fake.open_gate("open")
        assert process.wait(PATIENCE) == 141
    assert len(Tape.read(tape)) > 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_ends_a_replay_that_waits_for_its_host(program: Program, tmp_path: Path, backend: str) -> None:
    tape = tmp_path / "tape.ndjson"
    assert program.run("record", "-o", str(tape), "--offline", "hi").returncode == 0
    reader, writer = os.pipe()
    argv = program.argv("replay", str(tape), "--backend", backend)
    process = subprocess.Popen(argv, stdin=reader, stdout=subprocess.PIPE, bufsize=0, env=program.env)
    with process, killed_at_the_end(process):
        os.close(reader)
        first, *_ = Tape.read(tape).lines("in")
        os.write(writer, first + b"\n")
        read_until(process.stdout, b"\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    os.close(writer)


def test_a_host_that_goes_away_ends_a_replay(program: Program, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    assert program.run("record", "-o", str(tape), "--offline", "hi").returncode == 0
    process = subprocess.Popen(program.argv("replay", str(tape)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=program.env)
    with process, killed_at_the_end(process):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(sent_by_the_host(tape))
        process.stdin.close()
        assert process.wait(PATIENCE) == 141


def read_until(stream: IO[bytes] | None, wanted: bytes) -> None:
    """Read on until this has been written, or the stream ends."""
    assert stream is not None
    seen = b""
    while wanted not in seen:
        chunk = stream.read(65536)
        assert chunk, f"nothing came after {seen!r}"
        seen += chunk
