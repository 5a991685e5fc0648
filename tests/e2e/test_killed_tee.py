"""kill -9 of the host, of the tee, of its recorder and of claude, at moments that a seed chooses: a readable tape, and no process left.

A moment is a number of lines that the host has heard, so that the seed alone decides. The last one is in the middle of a tool that would
run for five minutes.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from live_session import PATIENCE, bash

from claude_transport.protocol.tape import Tape
from claude_transport.testing import FakeMessagesAPI, TapeShelf

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it finds all processes of a conversation in /proc")

SEED = 32
ROUNDS = 50
ROUNDS_OF_CI = 3
VICTIMS = ("host", "tee", "claude")
HEARD = 8  # the lines of two answers, and of a call of a tool that runs then

HOST = """
import subprocess, sys
flags = ["--output-format", "stream-json", "--input-format", "stream-json", "--verbose", "--allowedTools", "Bash"]
claude = subprocess.Popen([sys.argv[1], "-p", *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(claude.pid, flush=True)
prompt = b'{"type":"user","message":{"role":"user","content":"go on"}}\\n'
claude.stdin.write(prompt)
claude.stdin.flush()
for line in claude.stdout:
    print(line[:40], flush=True)
    if b'"result"' in line:
        claude.stdin.write(prompt)
        claude.stdin.flush()
"""


def moments() -> list[Any]:
    """The cases: a victim, and how many lines the host has heard by then. The first ones run in CI."""
    chance = random.Random(SEED)
    cases = [(victim, HEARD) for victim in VICTIMS]
    cases += [(VICTIMS[number % 3], chance.randrange(HEARD)) for number in range(ROUNDS - len(cases))]
    late = [pytest.mark.nightly]
    return [
        pytest.param(victim, heard, id=f"{number}-{victim}-{heard}", marks=late if number >= ROUNDS_OF_CI else [])
        for number, (victim, heard) in enumerate(cases)
    ]


def processes_with(mark: str) -> dict[int, bytes]:
    """Every process whose environment has `mark`, with its command line."""
    found: dict[int, bytes] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_bytes()
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])


def wait_until_gone(mark: str) -> dict[int, bytes]:
    """Wait for every process with the mark to end, and return those that have not."""
    deadline = time.monotonic() + PATIENCE
    while (left := processes_with(mark)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError), open_pid(pid) as descriptor:
                select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
    return left


@contextlib.contextmanager
def open_pid(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def converse_and_kill(executable: Path, victim: str, heard: int, mark: str, project: Path, claude: bytes) -> None:
    with subprocess.Popen([sys.executable, "-c", HOST, str(executable)], stdout=subprocess.PIPE, cwd=project) as host:
        assert host.stdout is not None
        tee = int(host.stdout.readline())
        for _ in range(heard):
            assert host.stdout.readline()
        while heard == HEARD and not (project / "running").exists():
            os.sched_yield()
        victims = {"host": [host.pid], "tee": [tee], "claude": []}
        while victim == "claude" and not victims["claude"]:
            found = processes_with(mark)
            victims["claude"] = [pid for pid, command in found.items() if command.startswith(claude) and is_child(pid, tee)]
        for pid in victims[victim]:
            os.kill(pid, signal.SIGKILL)
        if victim != "host":
            host.stdout.read()  # the host sees the end
        host.stdout.close()


def is_child(pid: int, parent: int) -> bool:
    try:
        return parent_of(pid) == parent
    except OSError:
        return False


@pytest.mark.one_loop
@pytest.mark.parametrize(("victim", "heard"), moments())
async def test_a_kill_leaves_a_readable_tape_and_no_process(
    victim: str,
    heard: int,
    claude_cli: str,
    cli_home: Any,
    cli_env: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    mark = f"CLAUDE_CONFIG_DIR={cli_home.config}"
    shelf = TapeShelf(tmp_path / "tapes", name="tape", mode="all")
    executable = shelf.cli_path(claude_cli)
    async with FakeMessagesAPI(["One.", "Two.", bash("touch running; sleep 300")]) as api:
        for name in list(os.environ):
            if not name.startswith(("PYTEST_", "PYTHON")):
                monkeypatch.delenv(name)
        for name, value in cli_env(api, CLAUDE_CODE_MAX_RETRIES="0").items():
            monkeypatch.setenv(name, value)
        with anyio.fail_after(PATIENCE):
            await anyio.to_thread.run_sync(converse_and_kill, executable, victim, heard, mark, cli_home.project, claude_cli.encode())
        left = await anyio.to_thread.run_sync(wait_until_gone, mark)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        assert left == {}
    kept = shelf.finish(passed=True)
    if heard or kept:  # a tee that dies before it has begun has recorded nothing
        tape = Tape.read(kept[0])
        assert len(tape.lines("out")) >= min(heard, 1)
