"""What listing stored sessions costs: processor time and memory, with the official SDK beside it, on the same files.

    python benchmarks/bench_stored.py                a table: 10,000 short sessions, 2,000 long ones, a very long one, and a store
    python benchmarks/bench_stored.py --check        fails when a list costs more than promised
    python benchmarks/bench_stored.py --quick        a hundred sessions

Both sides take turns, and the medians of their processor time are shown: the clock would measure what else the machine does. The files have
been read before, so the disk has no part in it. Memory is the peak that Python allocates during a call, without what the call returns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import claude_agent_sdk

from claude_transport import sessions

PROMISED_SECONDS = 1.0
"""Processor time of a list of 10,000 sessions."""
PROMISED_MEMORY = 4 * 2**20
"""Bytes that such a list may take for a while, beyond what it returns."""

ROUNDS = 3
CWD = "/work/of/alice"
SHORT, LONG = 4, 60  # entries of about a kilobyte


def entry(number: int, parent: str | None, content: Any) -> dict[str, Any]:
    """Return one entry of a transcript."""
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "type": "assistant" if parent else "user",
        "message": {"id": f"msg_{number}", "role": "assistant" if parent else "user", "content": content},
        "uuid": str(uuid.UUID(int=number)),
        "timestamp": "2026-11-20T10:00:00.500Z",
        "cwd": CWD,
        "gitBranch": "main",
    }


def transcript(entries: int, first: str) -> bytes:
    """Return a transcript without a title, which is searched for it from end to end. At its end is what the CLI notes there."""
    made = [entry(0, None, first)]
    for number in range(1, entries):
        made.append(entry(number, made[-1]["uuid"], [{"type": "text", "text": "What the model says about it. " * 20}]))
    made.append({"type": "last-prompt", "lastPrompt": "What the user asked last", "sessionId": str(uuid.UUID(int=0))})
    return b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in made)


class WithoutSummaries:
    """A store that can only append, load and list."""

    def __init__(self, inner: sessions.InMemorySessionStore) -> None:
        self.append, self.load, self.list_sessions = inner.append, inner.load, inner.list_sessions


async def filled(count: int) -> sessions.InMemorySessionStore:
    """Return a store with so many short sessions."""
    store = sessions.InMemorySessionStore()
    project = sessions.project_key_for_directory(CWD)
    rest: list[Any] = [json.loads(line) for line in transcript(SHORT, "").splitlines()[1:]]
    for number in range(count):
        key: Any = {"project_key": project, "session_id": str(uuid.UUID(int=number))}
        await store.append(key, [entry(0, None, f"Prompt of session {number}"), *rest])  # type: ignore[list-item]
    return store


def from_store(side: Any, store: Any, limit: int | None) -> Any:
    """List the sessions of a store with the function of one side."""
    return anyio.run(partial(side.list_sessions_from_store, store, CWD, limit=limit))


@contextmanager
def stored(count: int, entries: int) -> Iterator[None]:
    """Make so many sessions, and have the functions find them."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "projects", sessions.project_key_for_directory(CWD))
        project.mkdir(parents=True)
        rest = transcript(entries, "First prompt").partition(b"\n")[2]
        for number in range(count):
            first = json.dumps(entry(0, None, f"Prompt of session {number}"), separators=(",", ":")).encode()
            (project / f"{uuid.uuid4()}.jsonl").write_bytes(first + b"\n" + rest)
        os.environ["CLAUDE_CONFIG_DIR"] = folder
        yield


def measured(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median processor time of each call, in seconds; they take turns."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            began = time.process_time()
            call()
            samples[name].append(time.process_time() - began)
    return {name: statistics.median(taken) for name, taken in samples.items()}


def memory(call: Callable[[], Any]) -> int:
    """Return the most bytes that a call held at once, beyond what it returned."""
    tracemalloc.start()
    kept = call()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return peak - held


def row(what: str, ours: Callable[[], Any], official: Callable[[], Any]) -> tuple[float, int]:
    """Print one line of the table, and return our seconds and bytes."""
    seconds = measured({"ours": ours, "official": official})
    held = memory(ours), memory(official)
    print(f"{what:40} {seconds['ours']:8.3f} {seconds['official']:10.3f} {held[0] / 1e6:10.2f} {held[1] / 1e6:10.2f}", flush=True)
    return seconds["ours"], held[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail when a list costs more than promised")
    parser.add_argument("--quick", action="store_true", help="very little of everything")
    given = parser.parse_args()
    count = 100 if given.quick else 10_000
    print(f"{'':40} {'seconds':>8} {'official':>10} {'MB for it':>10} {'official':>10}")
    lists = []
    for kind, number, entries in (("short", count, SHORT), ("long", count // 5, LONG)):
        with stored(number, entries):
            lists.append(row(f"{number:,} {kind} sessions", sessions.list_sessions, claude_agent_sdk.list_sessions))
            row("  the latest twenty", partial(sessions.list_sessions, limit=20), partial(claude_agent_sdk.list_sessions, limit=20))
    with stored(1, 40 * count // 100):
        only = sessions.list_sessions()[0].session_id
        for what, limit in (("messages of a long session", None), ("  twenty of them", 20)):
            sides = (partial(side.get_session_messages, only, limit=limit) for side in (sessions, claude_agent_sdk))
            row(what, *sides)
    store = anyio.run(filled, count)
    for kind, asked in (("with summaries", store), ("without", WithoutSummaries(store))):
        for what, limit in ((f"{count:,} sessions in a store {kind}", None), ("  the latest twenty", 20)):
            row(what, *(partial(from_store, side, asked, limit) for side in (sessions, claude_agent_sdk)))
    if given.check and any(seconds > PROMISED_SECONDS or held > PROMISED_MEMORY for seconds, held in lists):
        sys.exit(f"a list of sessions takes more than {PROMISED_SECONDS} s or {PROMISED_MEMORY / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
