"""`record --as-claude` and `--to-script`, run as processes: which claude is found, what the variable means, and the test that is made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from program_process import PATIENCE, Program

from claude_transport.app.record_as_claude import command_of_claude
from claude_transport.errors import CLINotFoundError
from claude_transport.protocol.tape import Tape
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-ins are POSIX programs")

Play = Callable[..., FakeClaude]
ONE = b'{"type":"user","message":{"role":"user","content":"one"}}\n'
TWO = ONE.replace(b'"one"', b'"two"')


def talk(command: list[str], env: dict[str, str], *prompts: bytes) -> bytes:
    """Start the command as a host does, send each prompt after the result of the one before, and return its standard error."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as claude:
        assert claude.stdin is not None
        assert claude.stdout is not None
        for prompt in prompts:
            claude.stdin.write(prompt)
            claude.stdin.flush()
            while line := claude.stdout.readline():
                if b'"subtype":"success"' in line:
                    break
        return claude.communicate(timeout=PATIENCE)[1]


def test_the_program_stands_in_for_the_claude_after_the_dashes(program: Program, play: Play, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    fake = play(Scenario.text("Hi there."))
    ran = program.run("record", "--as-claude", str(tape), "--", str(fake.path), "--model", "haiku", stdin=ONE)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert fake.calls()[0].argv == ["--model", "haiku"]
    played = program.run("replay", "--match", "prompt", str(tape), stdin=ONE)
    assert (played.returncode, played.stdout) == (0, ran.stdout)
    refused = program.run("replay", "--match", "prompt", str(tape), stdin=TWO)
    assert refused.returncode == 2
    assert refused.stderr.decode().splitlines()[-2:] == ['  - "one"', '  + "two"']


def test_the_claude_of_path_is_found_and_a_stand_in_is_not(play: Play, tmp_path: Path) -> None:
    stand_in = tmp_path / "first" / "claude"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\nexec claude-transport record --as-claude tape.ndjson -- "$@"\n', "utf-8")
    stand_in.chmod(0o700)
    fake = play(Scenario())
    env = {"PATH": f"{stand_in.parent}:{fake.path.parent}", "HOME": str(tmp_path), "CLAUDE_CLI_PATH": str(stand_in)}
    assert command_of_claude(["--model", "haiku"], env) == [str(fake.path), "--model", "haiku"]
    assert command_of_claude(["node", "cli.js"], env) == ["node", "cli.js"]


def test_without_another_claude_the_stand_in_does_not_find_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / ".local" / "bin" / "claude"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text('#!/bin/sh\nexec claude-transport record --as-claude tape.ndjson -- "$@"\n', "utf-8")
    stand_in.chmod(0o700)
    monkeypatch.setattr("claude_transport.launch.discovery.find_bundled_directory", lambda: None)
    with pytest.raises(CLINotFoundError, match="is a recorder, not a claude"):
        command_of_claude([], {"PATH": str(stand_in.parent), "HOME": str(tmp_path)})


def test_the_variable_decides_between_recording_and_playing(program: Program, play: Play, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    fake = play(Scenario.text("Hi there."))
    words = ("record", "--as-claude", str(tape), "--", str(fake.path), "--verbose", "--api-key", "plain-words")
    for word in ("replay", "none"):
        missing = program.run(*words, stdin=ONE, env={"CLAUDE_TRANSPORT_TAPES": word})
        assert missing.returncode == 2
        assert b"record it with: CLAUDE_TRANSPORT_TAPES=record claude-transport record --as-claude" in missing.stderr
        assert b"[testing.tape_missing]" in missing.stderr
        assert b"plain-words" not in missing.stderr
    said = [program.run(*words, stdin=ONE, env={"CLAUDE_TRANSPORT_TAPES": word}).stdout for word in ("auto", "auto", "replay", "none")]
    assert len(set(said)) == 1
    assert len(fake.calls()) == 1
    assert b"Hi there." in said[0]
    assert program.run(*words, env={"CLAUDE_TRANSPORT_TAPES": "sometimes"}).returncode == 2


def test_a_tape_that_is_there_is_kept_or_overwritten_by_force(program: Program, play: Play, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    words = ["--as-claude", str(tape), "--", str(play(Scenario()).path)]
    for options in ([], [], ["--force"]):
        assert program.run("record", *options, *words, stdin=TWO if options else ONE).returncode == 0
    assert sorted(path.name for path in tmp_path.glob("*.ndjson")) == ["tape.2.ndjson", "tape.ndjson"]
    assert Tape.read(tape).lines("in") == [TWO.strip()]


def test_one_turn_of_a_tape_is_recorded_again(program: Program, play: Play, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    for scenario, turn in ((Scenario.text("old"), []), (Scenario.text("new"), ["--turn", "2"])):
        words = ["record", "--as-claude", str(tape), *turn, "--", str(play(scenario).path)]
        assert talk(program.argv(*words), program.env, ONE, TWO, ONE) == b""
    results = [json.loads(line)["result"] for line in Tape.read(tape).lines("out") if b'"result"' in line]
    assert results == ["old", "new", "old"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".", "tape"))] == ["tape.ndjson"]
    words = ["record", "--as-claude", str(tape), "--turn", "9", "--", str(play(Scenario()).path)]
    assert b"is as it was: this tape has 3 turns, so no turn 9" in talk(program.argv(*words), program.env, ONE)


@pytest.mark.parametrize(
    "arguments", [["--as-claude"], ["--as-claude", "t", "--turn", "x"], ["--as-claude", "t", "--model", "opus"], ["hi"]]
)
def test_a_wrong_command_line_runs_nothing(program: Program, arguments: list[str]) -> None:
    ran = program.run("record", *arguments)
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"claude-transport: ")


def test_a_tape_becomes_a_test_that_passes(program: Program, play: Play, tmp_path: Path) -> None:
    tape = tmp_path / "talk.ndjson"
    words = program.argv("record", "--as-claude", str(tape), "--", str(play(Scenario.text("Hi there.")).path))
    talk(words, program.env, ONE, TWO)
    made = program.run("record", "--to-script", str(tape))
    assert made.returncode == 0, made.stderr
    assert ".expect(type='user', message={'content': 'one'})" in made.stdout.decode()
    passes(made.stdout, tmp_path)


RECORDINGS = Path(__file__).parent.parent / "recordings"


@pytest.mark.parametrize(
    "name",
    [
        "04a_permission_allow",
        pytest.param("05a_hooks_all_events_passive", marks=pytest.mark.nightly),
        pytest.param("06a_sdk_mcp_via_mcp_config", marks=pytest.mark.nightly),
    ],
)
def test_a_recording_with_questions_becomes_a_test_that_passes(program: Program, tmp_path: Path, name: str) -> None:
    (recording,) = [path for path in RECORDINGS.glob("*.ndjson") if path.stem == name]
    passes(program.run("record", "--to-script", str(recording)).stdout, tmp_path)


def passes(source: bytes, folder: Path) -> None:
    (folder / "test_made.py").write_bytes(source)
    (folder / "test_changed.py").write_bytes(source.replace(b"await query.send(", b"await query.send('another ' +", 1))
    (folder / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "0", "-p", "no:cacheprovider", "test_made.py", "test_changed.py"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, timeout=PATIENCE, check=False)
    results = {
        words[0].split("::")[0]: words[1]
        for line in ran.stdout.decode().splitlines()
        if len(words := line.split()) > 1 and "::" in words[0]
    }
    assert results == {"test_made.py": "PASSED", "test_changed.py": "FAILED"}, ran.stdout.decode()


def test_a_tape_without_a_prompt_makes_no_test(program: Program, tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    Tape().write(tape)
    ran = program.run("record", "--to-script", str(tape))
    assert ran.returncode == 2
    assert b"has no prompt of a host" in ran.stderr
