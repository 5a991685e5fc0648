"""Which process runs a session, also on a system without `/proc`, as macOS is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from claude_transport.sessions.changing import process_of

SID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"


@pytest.mark.parametrize("proc", ["/proc", "/nowhere"])
def test_a_process_that_runs_is_found_and_one_that_has_ended_is_not(tmp_path: Path, proc: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        noted = tmp_path / "sessions" / f"{process.pid}.json"
        noted.parent.mkdir()
        noted.write_text(json.dumps({"pid": process.pid, "sessionId": SID}), "utf-8")
        assert process_of(SID, tmp_path, proc=proc) == process.pid
        process.kill()
    assert process_of(SID, tmp_path, proc=proc) is None


def test_without_proc_a_start_that_cannot_be_compared_counts_as_the_same(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        (tmp_path / "sessions").mkdir()
        noted = {"pid": process.pid, "sessionId": SID, "procStart": "1"}
        (tmp_path / "sessions" / "1.json").write_text(json.dumps(noted), "utf-8")
        assert process_of(SID, tmp_path, proc="/nowhere") == process.pid
        process.kill()
