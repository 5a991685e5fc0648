"""Files that several processes use, on Windows: the stores, their locks, private places, and the version that a binary tells."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from quick_clock import QuickClock
from windows_processes import Watched

from claude_transport import errors, sessions
from claude_transport.launch import discovery
from claude_transport.launch.discovery import ask_cli_version
from claude_transport.sessions import file_store
from claude_transport.sessions.materialising import FoundSession, PrivatePlace, configuration_of, remove_abandoned
from claude_transport.testing import STORE_CLAUSES, run_store_conformance

KEY: Any = {"project_key": "project", "session_id": "session"}
WRITES = 20
WRITER = """
import sys, anyio
from claude_transport.sessions import FileSessionStore

async def main():
    store = FileSessionStore(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(int(sys.argv[3])):
        own = {"type": "user", "uuid": f"{sys.argv[2]}-{n}", "message": {"role": "user", "content": "x" * 200_000}}
        shared = [{"type": "user", "uuid": f"shared-{n}-{part}"} for part in range(100)]
        await store.append({"project_key": "project", "session_id": "session"}, [own, *shared])

anyio.run(main)
"""
HOLDER = """
import os, sys
from claude_transport.platform.locks import try_lock
file = os.open(sys.argv[1], os.O_RDWR)
print(try_lock(file), flush=True)
sys.stdin.read()
"""
HOST = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from claude_transport.sessions.materialising import FoundSession, PrivatePlace
place = PrivatePlace(cwd=None, found=FoundSession("x", "y", {None: []}), configuration={})
print(place.path, flush=True)
sys.stdin.read()
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
def test_each_store_keeps_every_clause(kind: str, anyio_backend: str, tmp_path: Path) -> None:
    made: list[Any] = []

    def make() -> Any:
        folder = tmp_path / str(len(made))
        store: Any = {
            "memory": sessions.InMemorySessionStore,
            "file": lambda: sessions.FileSessionStore(folder),
            "sqlite": lambda: sessions.SQLiteSessionStore(tmp_path / f"{folder.name}.db"),
        }[kind]()
        made.append(store)
        return store

    report = run_store_conformance(make, backends=[anyio_backend])
    report.raise_for_failures()
    assert len(report.passed) == len(STORE_CLAUSES)


async def test_processes_that_write_one_transcript_at_once_lose_and_repeat_nothing(tmp_path: Path) -> None:
    writers = [start(WRITER, tmp_path, name, WRITES) for name in "abc"]
    for writer in writers:
        assert said(writer) == "ready"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=300)
        assert writer.returncode == 0
    loaded: list[Any] = await sessions.FileSessionStore(tmp_path).load(KEY) or []
    expected = [f"{name}-{number}" for name in "abc" for number in range(WRITES)]
    expected += [f"shared-{number}-{part}" for number in range(WRITES) for part in range(100)]
    assert sorted(each["uuid"] for each in loaded) == sorted(expected)


async def test_a_store_waits_for_the_lock_of_another_process_only_while_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sessions.FileSessionStore(tmp_path)
    await store.append(KEY, [{"type": "user", "uuid": "1"}])
    (lock,) = tmp_path.rglob("*.lock")
    with start(HOLDER, lock) as holder:
        assert said(holder) == "True"
        monkeypatch.setattr(file_store, "time", QuickClock())
        with pytest.raises(errors.CLIConnectionError, match="locked") as caught:
            await store.append(KEY, [{"type": "user", "uuid": "2"}])
        assert caught.value.code == "session_store.failed"
        holder.kill()
    await store.append(KEY, [{"type": "user", "uuid": "3"}])
    assert [each.get("uuid") for each in await store.load(KEY) or []] == ["1", "3"]


def test_the_next_start_removes_the_place_of_a_host_that_was_killed_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = FoundSession("x", "y", {None: [{"type": "user"}]})
    with start(HOST, tmp_path) as host:
        left = Path(said(host))
        place = PrivatePlace(cwd=tmp_path, found=found, configuration={})
        assert left.exists()
        host.kill()
    assert left.exists()
    remove_abandoned()
    assert [path.name for path in tmp_path.iterdir()] == [place.path.name]
    place.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_of_the_user_is_below_the_profile(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text("{}")
    (tmp_path / ".claude.json").write_text("{}")
    assert set(configuration_of({"UserProfile": str(tmp_path)}, is_isolated=False)) == {"settings.json", ".claude.json"}


def test_a_batch_file_is_asked_for_its_version(tmp_path: Path) -> None:
    program = tmp_path / "claude.cmd"
    program.write_text("@echo 2.1.191 (Claude Code)\n")
    assert ask_cli_version(program) == "2.1.191"


def test_a_batch_file_that_never_answers_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "PROBE_TIMEOUT", 10.0)
    (tmp_path / "script.py").write_text(f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    program = tmp_path / "claude.cmd"
    program.write_text(f'@"{sys.executable}" "{tmp_path / "script.py"}"\n')
    assert ask_cli_version(program) is None
    left = Watched(int((tmp_path / "pid").read_text()))
    assert left.ends_within(30)
    left.close()
