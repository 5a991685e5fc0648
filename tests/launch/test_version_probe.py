"""A binary whose version no file tells is asked for it: once for each state of it, in bounded time, and with nothing left running."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from claude_transport.launch import discovery
from claude_transport.launch.discovery import ask_cli_version, read_cli_version

Make = Callable[[str], Path]
COUNTING = 'echo "$@" >> "{folder}/asked"\n'


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make a `claude` of this shell script, which writes down what it is asked. A loaded machine has time to start it."""
    monkeypatch.setattr(discovery, "PROBE_TIMEOUT", 60.0)

    def written(script: str) -> Path:
        path = tmp_path / "claude"
        path.write_text("#!/bin/sh\n" + COUNTING.format(folder=tmp_path) + script, "utf-8")
        path.chmod(0o755)
        return path

    return written


def asked(path: Path) -> list[str]:
    """The arguments of each run so far."""
    log = path.with_name("asked")
    return log.read_text("utf-8").splitlines() if log.exists() else []


def test_a_binary_is_asked_once_for_each_state_of_it(make: Make) -> None:
    path = make('echo "2.1.191 (Claude Code)"')
    assert [ask_cli_version(path) for _ in range(3)] == ["2.1.191"] * 3
    assert read_cli_version(path) == "2.1.191"
    assert asked(path) == ["--version"]
    make('echo "2.1.257 (Claude Code)" # another file')
    assert [ask_cli_version(path) for _ in range(3)] == ["2.1.257"] * 3
    assert asked(path) == ["--version"] * 2


def test_a_binary_whose_version_stands_in_a_file_is_not_asked(make: Make) -> None:
    path = make('echo "2.1.191 (Claude Code)"')
    path.with_name("claude.version").write_text("2.1.92 (Claude Code)", "utf-8")
    assert ask_cli_version(path) == "2.1.92"
    assert asked(path) == []


@pytest.mark.parametrize(
    "script",
    [
        "exit 3",
        "echo 2.1.191",
        "echo no version at all",
        "yes 2.1 | head -c 300000",
        'printf "\\377\\000 2.1.191 (Claude Code"',
        "kill -9 $$",
    ],
)
def test_an_answer_that_is_none_is_not_asked_for_again(script: str, make: Make) -> None:
    path = make(script)
    assert [ask_cli_version(path) for _ in range(2)] == [None, None]
    assert asked(path) == ["--version"]


def test_a_file_that_is_gone_or_cannot_run_has_no_version(tmp_path: Path, make: Make) -> None:
    assert ask_cli_version(tmp_path / "nowhere") is None
    path = make("")
    path.chmod(0o644)
    assert ask_cli_version(path) is None
    path.write_text("no program", "utf-8")
    path.chmod(0o755)
    assert ask_cli_version(path) is None


def test_one_that_does_not_end_is_killed_with_all_that_it_started(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "PROBE_TIMEOUT", 0.5)
    os.mkfifo(tmp_path / "fifo")
    path = make(f'sleep 600 & echo $! > "{tmp_path}/pid"; read line < "{tmp_path}/fifo"')
    assert ask_cli_version(path) is None
    pid = int((tmp_path / "pid").read_text("utf-8"))
    until = time.monotonic() + 30
    while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text("utf-8").split()[2] != "Z":
        assert time.monotonic() < until, "the process that it started is still there"
        os.sched_yield()


def test_one_that_leaves_something_behind_at_its_output_is_not_waited_for(make: Make, tmp_path: Path) -> None:
    path = make(f'sleep 600 & echo $! > "{tmp_path}/pid"; echo "2.1.191 (Claude Code)"')
    try:
        assert ask_cli_version(path) == "2.1.191"
    finally:
        os.kill(int((tmp_path / "pid").read_text("utf-8")), 9)


def test_many_threads_that_ask_at_once_start_one_process(make: Make) -> None:
    path = make('echo "2.1.191 (Claude Code)"')
    answers: list[str | None] = []
    threads = [threading.Thread(target=lambda: answers.append(ask_cli_version(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == ["2.1.191"] * 8
    assert asked(path) == ["--version"]


def test_it_runs_in_the_environment_that_is_given(make: Make) -> None:
    path = make('echo "$WHICH (Claude Code)"')
    assert ask_cli_version(path, env={"PATH": "/usr/bin:/bin", "WHICH": "2.1.100"}) == "2.1.100"
