"""The shell programs for the other end of a launcher need nothing of the PATH that they find there, and run nothing from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from claude_transport.launch.supervisor import REMOTE_MARK, RemoteEnvironment, bootstrap, end_command, instructions

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by their environment")

PATIENCE = 30.0
LEAVES_SOMETHING = [
    "/bin/sh",
    "-c",
    f"trap '' HUP; {shutil.which('setsid')} {shutil.which('sleep')} 1000 </dev/null >/dev/null 2>&1 & echo \"pid $!\"",
]


@pytest.fixture(params=["no PATH", "an empty PATH", "a PATH of an attacker"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment at the other end; what is run from its PATH is written down."""
    ran = tmp_path / "ran"
    for name in ("grep", "sleep", "kill"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {name} >> {ran}\nexit 1\n")
        program.chmod(0o755)
    yield {"no PATH": {}, "an empty PATH": {"PATH": ""}}.get(request.param, {"PATH": str(tmp_path)})
    assert not ran.exists()


def until_gone(pid: int) -> None:
    """Wait until the process does not run any more."""
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, f"{pid} lives"


def test_the_second_command_ends_what_carries_the_mark(environment: dict[str, str]) -> None:
    left = subprocess.Popen(["sleep", "1000"], env={**os.environ, REMOTE_MARK: "m" * 32})
    try:
        assert subprocess.run(end_command("m" * 32), env=environment, timeout=PATIENCE, check=False).returncode is not None
        assert left.wait(PATIENCE) < 0
    finally:
        left.kill()
        left.wait()


def test_the_supervisor_ends_what_the_program_has_left(environment: dict[str, str]) -> None:
    mark = "n" * 32
    told = instructions(LEAVES_SOMETHING, mark=mark, environment=RemoteEnvironment(assign={}))
    command = bootstrap(mark)
    ran = subprocess.run(command, input=told, capture_output=True, env=environment, timeout=PATIENCE, check=True)
    words = ran.stdout.decode().splitlines()
    assert words[:2] == [f"claude-transport {mark} ready", f"claude-transport {mark} started /bin/sh"]
    assert ran.stderr.decode().splitlines()[-1:] == [f"claude-transport {mark} ended 0"]
    until_gone(int(words[2].split()[1]))
