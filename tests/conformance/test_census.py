"""`Census`: what it counts does not depend on what ends while it counts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from claude_transport.testing.conformance.census import Census

THREADS = Path("/proc/self/task")


@pytest.mark.skipif(not THREADS.is_dir(), reason="this system does not list a process's threads")
async def test_a_thread_that_ends_while_children_are_counted_hides_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Path.iterdir

    def with_one_that_is_gone(folder: Path) -> Iterator[Path]:
        if folder == THREADS:
            yield folder / "1"  # of another process: as gone as a thread that has just ended
        yield from listed(folder)

    before = Census.take().children
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE):
        assert before is not None
        assert Census.take().children == before + 1
        monkeypatch.setattr(Path, "iterdir", with_one_that_is_gone)
        assert Census.take().children == before + 1
