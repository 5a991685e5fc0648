"""Tests of a program that started `claude` by itself: what their patched Popen printed is now printed by a fake, or by a mock."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, assistant, result, steps

CANNED = [json.dumps(assistant("Hello!")), json.dumps(result("Hello!"))]  # what the tests have: lines of --output-format stream-json


@contextmanager
def claude_prints(*lines: str, stderr: str = "", returncode: int = 0) -> Iterator[FakeClaude]:
    """Put a `claude` on PATH that prints these lines after a prompt, as a patched Popen did, and ends with this code if it is not 0."""
    turn = [*(line.encode() for line in lines), steps.Stderr(stderr), *([steps.Exit(returncode)] if returncode else [])]
    with FakeClaude(Scenario.turns([turn])) as fake, pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", str(fake.path.parent), prepend=os.pathsep)
        yield fake


def from_popen(_options: object) -> ct.MockTransport:
    """In place of the fake, for a test that keeps its patched Popen: play what that Popen prints."""
    process = subprocess.Popen(["claude", "-p"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [line.encode() for line in process.stdout or ()]
    code = process.wait()
    mock = ct.MockTransport.script().expect_control("initialize").reply().expect(type="user").reply(*lines or [b""])
    return mock.end(code, stderr=process.stderr.read() if process.stderr else "") if code else mock


def ask(prompt: str, **how: Any) -> str:
    """Stand for the program under test, after it has moved to this library."""
    try:
        return ct.completion.complete_sync(prompt, transport="cli", **how).text
    except ct.ClaudeTransportError as error:
        return f"{error.code}: {error.reason}"


class CannedProcess:
    """What the tests put in place of Popen."""

    def __init__(self, lines: list[str], *, stderr: str = "", returncode: int = 0) -> None:
        self.stdout, self.stderr, self.returncode = io.StringIO("\n".join(lines)), io.StringIO(stderr), returncode

    def wait(self) -> int:
        return self.returncode


def main() -> None:
    with claude_prints(*CANNED) as fake:
        print(ask("Hi"), fake.calls()[0].prompts)
    with claude_prints(stderr="out of coffee\n", returncode=3):
        print(ask("Hi", retry=ct.RetryPolicy.none()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess, "Popen", lambda *_, **__: CannedProcess(CANNED))
        print(ask("Hi", make_transport=from_popen))
        patched.setattr(subprocess, "Popen", lambda *_, **__: CannedProcess([], stderr="out of coffee\n", returncode=3))
        print(ask("Hi", make_transport=from_popen, retry=ct.RetryPolicy.none()))


if __name__ == "__main__":
    main()
