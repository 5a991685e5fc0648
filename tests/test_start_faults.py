"""A fault anywhere between the spawn and the first message leaves nothing: no process, no file, no task.

`test_lifecycle.py` has the lines of the spawn itself, one by one. Here it is everything around it: the transport, its wrapper, its private
files, the handshake of the `Query`, and the first message of a one-shot.
"""

from __future__ import annotations

import gc
import linecache
import os
import sys
import tempfile
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import anyio
import pytest

import claude_transport as ct
from claude_transport.testing.conformance.census import LASTING, Census

PACKAGE = str(Path(ct.__file__).parent)
STEP = int(os.environ.get("FAULT_STEP", "61"))
ANSWER = r'{"type":"control_response","response":{"subtype":"success","request_id":"\1","response":{}}}'
RESULT = '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"","session_id":"s"}'
SCRIPT = rf"""#!/bin/sh
exec sed -u -n -e 's/.*"request_id": *"\([^"]*\)".*/{ANSWER}/p' -e 's/.*"type": *"user".*/{RESULT}/p'
"""


class Fault(BaseException):
    """As a `KeyboardInterrupt` may come: in any line."""


class Tracer:
    """Raises `Fault` before line number `at` of this package that the task of the test executes once there is a process."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.lines = 0
        self.spawned = False
        self.has_raised = False
        self.task = anyio.get_current_task().id

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def stop(self) -> None:
        """Raise nothing any more."""
        self.at = 0

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        return self.in_function if frame.f_code.co_filename.startswith(PACKAGE) else None

    def in_function(self, frame: Any, event: str, argument: Any) -> Any:
        if not self.spawned:
            self.spawned = frame.f_code.co_name == "watch" and Path(frame.f_code.co_filename).name == "guard.py"
        elif event == "line" and self.lines < self.at and self.is_in_the_test() and not is_with(frame):
            self.lines += 1
            if self.lines == self.at:
                self.has_raised = True
                raise Fault(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return self.in_function

    def is_in_the_test(self) -> bool:
        """True in the task of the test: a fault in a task of the library is another matter (`test_cancellation.py`)."""
        try:
            return anyio.get_current_task().id == self.task
        except RuntimeError:  # in a callback of the loop
            return False


def is_with(frame: Any) -> bool:
    """True at a `with` statement: CPython comes back to that line before it calls `__exit__`, and a fault there would skip the call."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith(("with ", "async with "))


Begun = Callable[[], object]
"""Called when there is a message: from then on there are no faults."""


async def read_one_shot(transport: ct.Transport, begun: Begun) -> None:
    conversation = ct.query("Hello", transport=transport)
    async for _ in conversation:
        begun()
        await conversation.aclose()


async def start_query(transport: ct.Transport, begun: Begun) -> None:
    async with ct.Query(transport) as query:
        await (await query.send("Hello")).result()
        begun()


async def connect(transport: ct.Transport, begun: Begun) -> None:
    async with transport:
        await transport.write('{"type":"user"}')
        await anext(transport.read_messages())
        begun()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a finaliser of another run is a place for a fault, too
@pytest.mark.parametrize("is_recorded", [False, True], ids=["", "recorded"])
@pytest.mark.parametrize("start", [connect, start_query, read_one_shot])
async def test_a_fault_between_the_spawn_and_the_first_message_leaves_nothing(
    start: Callable[[ct.Transport, Begun], Awaitable[None]], is_recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    binary = tmp_path / "claude"
    binary.write_text(SCRIPT)
    binary.chmod(0o755)

    def make() -> ct.Transport:
        transport = ct.SubprocessTransport(ct.ClaudeOptions(cli_path=binary, system_prompt="x" * 300_000))
        return ct.RecordingTransport(transport, tmp_path / "tape") if is_recorded else transport

    with anyio.fail_after(120), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of what was never closed: the fault came before its owner could
        await start(make(), lambda: None)
        before = await Census.rested()
        at = 0
        for at in range(1, 100_000, STEP):
            tracer = Tracer(at)
            try:
                with tracer:
                    await start(make(), tracer.stop)
            except Fault as fault:
                place = str(fault)
            else:
                if not tracer.has_raised:
                    break
                place = "a finaliser, from which nothing is raised"
            del tracer
            gc.collect()
            assert await before.growth(patience=30, of=LASTING) == {}, f"after fault {at} in {place}"
            assert [*tmp_path.glob("claude-transport-*")] == [], f"after fault {at} in {place}"
    assert at > STEP
