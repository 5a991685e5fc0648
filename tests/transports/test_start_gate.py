"""One start at a time, over all processes; and a gate that never stays shut."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from claude_transport.client.query import Query
from claude_transport.errors import ConfigurationError, ConnectTimeout
from claude_transport.launch.options import ClaudeOptions
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario
from claude_transport.transports.start_gate import StartGate
from claude_transport.transports.subprocess import SubprocessTransport

PATIENCE = 60.0  # seconds; only a failure takes that long

HOLD = """
import anyio, sys
from claude_transport.transports.start_gate import StartGate
async def main():
    async with StartGate(sys.argv[1]).turn():
        print("inside", flush=True)
        sys.stdin.read()
anyio.run(main)
"""

MANY = """
import anyio, os, sys
from claude_transport.transports.start_gate import StartGate
async def main():
    gate = StartGate(sys.argv[1], sleep=lambda seconds: anyio.sleep(seconds / 50))
    for _ in range(40):
        async with gate.turn():
            os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))
            for _ in range(20):
                await anyio.sleep(0)
            os.unlink(sys.argv[2])
anyio.run(main)
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that is inside, until its input ends."""
    argv = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"inside" + os.linesep.encode()
            yield process
        finally:
            process.kill()


async def test_s7_a_gate_that_nobody_holds_is_open_at_once(tmp_path: Path) -> None:
    gate = StartGate(tmp_path / "gate")
    for _ in range(2):
        async with gate.turn() as waited:
            assert waited == 0
    assert (tmp_path / "gate").read_bytes() == b""


async def test_s7_of_many_tasks_one_is_inside(tmp_path: Path) -> None:
    gate, inside, most = StartGate(tmp_path / "gate", sleep=lambda _: anyio.lowlevel.checkpoint(), timeout=math.inf), 0, 0

    async def start() -> None:
        nonlocal inside, most
        async with gate.turn():
            inside += 1
            most = max(most, inside)
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            inside -= 1

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(start)
    assert (most, inside) == (1, 0)


async def test_s7_of_many_processes_one_is_inside(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", MANY, str(tmp_path / "gate"), str(tmp_path / "occupied")]
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(anyio.run_process, argv)  # a failure of one of them is raised
    assert not (tmp_path / "occupied").exists()


async def test_s7_a_turn_that_does_not_come_is_given_up_after_the_timeout(tmp_path: Path) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with holder(tmp_path / "gate"):
        with pytest.raises(ConnectTimeout, match=r"did not open in 0\.12 s") as caught:
            async with StartGate(tmp_path / "gate", timeout=0.12, sleep=sleep).turn():
                pytest.fail("two were inside")
        assert caught.value.retryable
        assert caught.value.waited == pytest.approx(0.12)
        assert waits == pytest.approx([0.05, 0.05, 0.02])


async def test_s7_a_holder_that_is_killed_leaves_the_gate_open(tmp_path: Path) -> None:
    with holder(tmp_path / "gate") as process:
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            process.kill()
            process.wait()

        async with StartGate(tmp_path / "gate", sleep=sleep).turn() as waited:
            assert waited == sum(waits) > 0


async def test_s7_a_failure_or_a_cancellation_inside_leaves_the_gate_open(tmp_path: Path) -> None:
    gate = StartGate(tmp_path / "gate", timeout=0)
    with pytest.raises(KeyError):
        async with gate.turn():
            raise KeyError
    with anyio.CancelScope() as scope:
        async with gate.turn():
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    async with gate.turn() as waited:
        assert waited == 0


async def test_s7_sessions_that_start_together_are_spawned_one_after_the_other(tmp_path: Path) -> None:
    gate, alone = StartGate(tmp_path / "gate"), []
    with FakeClaude(Scenario.echo()) as fake:

        async def session(number: int) -> None:
            async with gate.turn():
                before = len(fake.calls())
                query = Query(SubprocessTransport(ClaudeOptions(cli_path=str(fake.path))))
                await query.start()
                turn = await query.send(f"session {number}")
                await anext(aiter(turn))
                alone.append(len(fake.calls()) - before)
            await turn.result()
            await query.aclose()

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(session, number)
    assert alone == [1, 1, 1, 1]


async def test_s7_a_file_that_cannot_be_made_is_a_mistake_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used") as caught:
        async with StartGate(tmp_path / "no" / "such" / "gate").turn():
            pytest.fail("there is no gate")
    assert caught.value.option == "path"


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege there")
async def test_s7_the_gate_does_not_follow_a_link_that_somebody_has_put_there(tmp_path: Path) -> None:
    (tmp_path / "gate").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        async with StartGate(tmp_path / "gate").turn():
            pytest.fail("there is no gate")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("timeout", [-1, math.nan, "1", True])
def test_a_timeout_that_is_none_is_refused(timeout: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="timeout must be a number of seconds"):
        StartGate(tmp_path / "gate", timeout=timeout)  # type: ignore[arg-type]


async def test_a_gate_that_the_system_cannot_lock_is_a_matter_of_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("claude_transport.transports.start_gate.try_lock", refuse)
    with pytest.raises(ConfigurationError, match=f"cannot be used: {os.strerror(errno.ENOLCK)}") as caught:
        async with StartGate(tmp_path / "gate").turn():
            pass
    assert caught.value.option == "path"
