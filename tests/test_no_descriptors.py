"""Without a free file descriptor: what is connected goes on and closes, the rest fails with typed errors, and nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shares import once_in_a_run

pytest.importorskip("resource", reason="a limit on open files is a thing of POSIX")

HOST = Path(__file__).parent / "starved_host.py"
PATIENCE = 120.0  # seconds; a hang fails instead of hanging the suite (measured: 4)
SPAWN_FAILED = "SpawnError exec.cli.spawn_failed <- OSError 24"
NOT_FOUND = "CLINotFoundError exec.cli.binary_not_found <- FileNotFoundError 2"
DIAL_FAILED = "CLIConnectionError connect.failed <- OSError 24"
REFUSED = {
    "type": "system",
    "subtype": "refused",
    "error": {"code": "start", "message": "claude could not be started (exec.cli.spawn_failed)", "retryable": True},
}
UNTOUCHED = {
    "a_session_that_is_connected": {"write": "ok", "read": "ok", "read past noise": "ok", "close": "ok"},
    "a_child_that_dies": {
        "write": "ok",
        "read": "ProcessError exec.cli.exited",
        "write again": "TransportClosed usage.closed",
        "close": "ok",
    },
    "a_child_that_has_to_be_killed": {"close": "ok"},
    "a_conversation": {
        "send": "ok",
        "result": "ok",
        "request": "ok",
        "a request that is not answered": "ControlTimeout control.timeout",
        "interrupt": "ok",
        "close": "ok",
    },
    "a_conversation_that_is_begun": {"start": SPAWN_FAILED, "close": "ok"},
    "a_conversation_on_a_mock": {"start": "ok", "close": "ok"},
    "a_one_shot": {"query": SPAWN_FAILED},
    "a_completion": {"by the CLI": "SpawnError exec.cli.spawn_failed", "by the API": "APIFailed result.connection_failed <- OSError 24"},
    "a_pool": {"acquire": SPAWN_FAILED},
    "a_tape_that_is_begun": {"write": "ok", "read": "ok", "close": "ok", "secrets that are redacted in the tape": 2},
    "a_tape_that_cannot_be_made": {"connect": "ok", "write": "ok", "close": "ok", "failure": "OSError"},
    "a_question_of_an_mcp_server": {"send": "ok", "result, which comes after the answer": "ok", "close": "ok"},
}


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, Any]]]:
    """Every scenario on one event loop: each step and how it went."""

    def said_by_host() -> str:
        environ = {**os.environ, "TMPDIR": str(tmp_path_factory.mktemp("starved"))}
        command = [sys.executable, HOST, request.param]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environ, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    steps: dict[str, list[tuple[str, Any]]] = {}
    for name, outcome in map(json.loads, once_in_a_run(tmp_path_factory, f"starved-{request.param}", said_by_host).splitlines()):
        if name == "scenario":
            steps[outcome] = []
        else:
            steps[[*steps][-1]].append((name, outcome))
    return steps


def test_nothing_fails_without_a_typed_error_and_nothing_is_left(run: dict[str, list[tuple[str, Any]]]) -> None:
    assert len(run) >= 20
    untyped = [(scenario, step) for scenario, steps in run.items() for step in steps if "UNTYPED" in f"{step[0]} {step[1]}"]
    assert untyped == []
    assert {scenario: steps[-1] for scenario, steps in run.items()} == dict.fromkeys(run, ("left", [0, False, []]))
    logged = {(scenario, step[1]) for scenario, steps in run.items() for step in steps if step[0] == "logged"}
    assert logged <= {("a_gateway", "claude could not be started for anybody: 'cat' cannot be started: Too many open files")}


@pytest.mark.parametrize("scenario", UNTOUCHED)
def test_what_is_connected_goes_on_and_what_is_not_says_why(scenario: str, run: dict[str, list[tuple[str, Any]]]) -> None:
    assert dict(run[scenario][:-1]) == UNTOUCHED[scenario]


@pytest.mark.parametrize(
    ("scenario", "at_last"),
    [
        ("a_connection", "ok"),
        ("a_connection_to_nothing", NOT_FOUND),
        ("a_connection_to_a_missing_path", NOT_FOUND),
        ("a_connection_with_files", "ok"),
    ],
)
def test_a_connection_fails_for_too_few_descriptors_and_works_with_enough(
    scenario: str, at_last: str, run: dict[str, list[tuple[str, Any]]]
) -> None:
    steps = [step for step in run[scenario] if step[0].startswith("connect")]
    outcomes = [outcome for _, outcome in steps]
    if scenario == "a_connection_with_files":
        # `tempfile` looks for a directory by writing to it, and says that there is none
        assert outcomes.pop(0) == "SpawnError exec.cli.spawn_failed <- FileNotFoundError 2"
    few = outcomes.count(SPAWN_FAILED)
    assert 0 < few < len(outcomes)
    assert outcomes == [SPAWN_FAILED] * few + [at_last] * (len(outcomes) - few)
    assert {outcome for name, outcome in run[scenario] if name.startswith("close")} == {"ok"}


def test_a_dial_says_that_it_failed(run: dict[str, list[tuple[str, Any]]]) -> None:
    dials = {scenario: dict(steps[:-1]) for scenario, steps in run.items() if scenario.startswith("a_dial_to_")}
    assert len(dials) == 6
    for scenario, steps in dials.items():
        unresolved = "localhost" in scenario and steps["connect"].startswith("CLIConnectionError connect.unresolved <- gaierror")
        assert unresolved or steps["connect"] == DIAL_FAILED, scenario
        assert steps["close"] == "ok"


def test_a_gateway_accepts_again_and_says_why_it_could_not_start_a_session(run: dict[str, list[tuple[str, Any]]]) -> None:
    answers = {name: outcome for name, outcome in run["a_gateway"] if name.startswith("client")}
    assert answers["client with 0"] == answers["client with 20"] == "ok"
    assert all(answer == "ok" or json.loads(answer) == REFUSED for answer in answers.values())


def test_a_name_that_cannot_be_loaded_is_a_typed_error() -> None:
    code = """
import os, resource, claude_transport as ct
ct.ClaudeTransportError
resource.setrlimit(resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
said = []
for load in (lambda: ct.query, lambda: ct.NetworkTransport):
    try:
        load()
    except ct.CLIConnectionError as exc:
        said.append((str(exc), exc.code, exc.retryable, exc.__cause__.errno))
for fd in taken:
    os.close(fd)
print(said, ct.query, ct.NetworkTransport.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reason = "Too many open files; import it earlier, while file descriptors are free"
    for module in ("claude_transport.completion.one_shot", "claude_transport.transports.network"):
        assert f"('cannot import {module}: {reason}', 'connect.failed', True, 24)" in done.stdout
    assert done.stdout.endswith(" NetworkTransport\n")
