"""`record` and `replay`, run as processes: what is on the tape, and that the tape speaks as the claude on it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from program_process import Program

from claude_transport.app import ask
from claude_transport.protocol.tape import Tape
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario, Turn
from claude_transport.testing.steps import Exit, Text

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


def test_what_is_no_tape_is_exit_code_2(program: Program, tmp_path: Path) -> None:
    assert program.run("replay", str(tmp_path / "none")).returncode == 2


def test_a_limit_of_time_leaves_claude_at_most_three_seconds_to_end() -> None:
    assert ask.HURRIED_EXIT + ask.HURRIED_CLOSE <= 3
