"""The shell programs for the other end of a launcher need nothing of the PATH that they find there, and run nothing from it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
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
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/cmdline").read_bytes():
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


MIDDLE = "import signal, subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True); signal.pause()"


def test_without_proc_the_supervisor_ends_its_group_when_what_started_it_has_gone() -> None:
    """As on macOS: no environments can be read there, and no change of the parent."""
    mark = "o" * 32
    told = instructions(["/bin/sh", "-c", 'echo "pid $$"; exec sleep 1000'], mark=mark, environment=RemoteEnvironment(assign={}))
    assert b"/proc/" in told
    middle = subprocess.Popen([sys.executable, "-c", MIDDLE, *bootstrap(mark)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with middle:
        assert middle.stdin is not None
        assert middle.stdout is not None
        middle.stdin.write(told.replace(b"/proc/", b"/nowhere/"))
        middle.stdin.flush()
        words = [middle.stdout.readline().decode().strip() for _ in range(3)]
        middle.kill()
        middle.wait()
        until_gone(int(words[2].split()[1]))


@pytest.mark.parametrize("kept", [(), ("HOME",)], ids=["exact", "allowlist"])
def test_without_the_programs_that_drop_variables_nothing_is_started(kept: tuple[str, ...], tmp_path: Path) -> None:
    mark, secret = "o" * 32, tmp_path / "secret"
    prints = ["/bin/sh", "-c", f'echo "$ANTHROPIC_API_KEY" > {secret}']
    told = instructions(prints, mark=mark, environment=RemoteEnvironment(assign={}, keep=kept))
    bare = told.replace(b"/usr/bin:/bin:/run/current-system/sw/bin", str(tmp_path).encode())
    inherited = {"PATH": str(tmp_path), "ANTHROPIC_API_KEY": "sk-ant-fake"}
    ran = subprocess.run(bootstrap(mark), input=bare, capture_output=True, env=inherited, timeout=PATIENCE, check=True)
    assert ran.stdout.decode().splitlines()[-1] == f"claude-transport {mark} refused tools"
    assert not secret.exists()


def test_variables_are_dropped_also_where_the_path_is_empty(tmp_path: Path) -> None:
    mark, seen = "p" * 32, tmp_path / "seen"
    prints = ["/bin/sh", "-c", f'echo "key=$ANTHROPIC_API_KEY" > {seen}']
    told = instructions(prints, mark=mark, environment=RemoteEnvironment(assign={}, keep=()))
    subprocess.run(
        bootstrap(mark), input=told, capture_output=True, env={"PATH": "", "ANTHROPIC_API_KEY": "sk-ant-fake"}, timeout=PATIENCE, check=True
    )
    assert seen.read_text() == "key=\n"
