"""What an idle session costs its host in memory. A host may hold hundreds of them."""

from __future__ import annotations

import contextlib
import gc
import sys
import tracemalloc
from textwrap import dedent

import anyio

from claude_transport import Query, SubprocessTransport

SESSIONS = 10
MOST_BYTES = 33_000

IDLE = dedent("""
    import json, sys
    for line in sys.stdin:
        request = json.loads(line)
        said = {"subtype": "success", "request_id": request["request_id"], "response": {"text": "x" * 20_000}}
        print(json.dumps({"type": "control_response", "response": said}), flush=True)
""")


async def test_an_idle_session_holds_at_most_33_kilobytes_of_objects() -> None:
    def session() -> Query:
        return Query(SubprocessTransport(command=[sys.executable, "-ISc", IDLE]))

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):  # makes what all sessions share
            await stack.enter_async_context(session())
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(SESSIONS):
            query = await stack.enter_async_context(session())
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        held = (tracemalloc.get_traced_memory()[0] - before) / SESSIONS
        text = len(query.initialization.raw["text"])  # the answer itself, once
        assert held - text < MOST_BYTES
