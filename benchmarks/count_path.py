"""Count what opening a `Query`, one `send()`, one message and one control request pass inside the package: files, functions, calls,
coroutines and objects.

    python benchmarks/count_path.py                    a table for asyncio
    python benchmarks/count_path.py --backend trio
    python benchmarks/count_path.py --functions        also the name of each function

A `Query` talks to a small child process over a `SubprocessTransport`. Nothing is timed: the script counts the calls of Python functions
with `sys.setprofile`. It counts the second prompt and the third message of a turn, because the first ones also set things up.

* Opening: from the call of `Query()` until `start()` returns, over a transport in this file, the second time. What the transport itself
  does is not counted, and so not how a process is started.
* `send()`: from the call until it returns, with the work of the writing task.
* One message: from the call of `anext(turn)`, before the child writes, until it returns the message.
* One request: from the call of `set_permission_mode()`, the second one, until it returns the answer.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import msgspec

import claude_transport as ct

PACKAGE = Path(ct.__file__).parent

PEER = r"""
import json, signal, sys

def say(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()

def speak(*_):
    content = [{"type": "text", "text": "A few words."}]
    say(type="assistant", session_id="s", uuid="a", parent_tool_use_id=None,
        message={"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content,
                 "stop_reason": None, "stop_sequence": None, "usage": {}})

signal.signal(signal.SIGUSR1, speak)
prompts = 0
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "control_request":
        say(type="control_response", response={"subtype": "success", "request_id": message["request_id"], "response": {}})
    elif message["type"] == "user":
        prompts += 1
        if prompts == 1:
            speak()
            say(type="result", subtype="success", is_error=False, session_id="s", uuid="r", num_turns=1, duration_ms=1,
                duration_api_ms=1, result="A few words.", total_cost_usd=0, usage={})
"""


class Answering(ct.Transport):
    """A peer in memory that answers `initialize`, as a CLI does, and says nothing else."""

    def __init__(self) -> None:
        self._asked = anyio.Event()
        self._over = anyio.Event()
        self._line = b""
        self._is_open = False

    async def connect(self) -> None:
        self._is_open = True

    async def write(self, data: str | bytes) -> None:
        request = msgspec.json.decode(data)
        self._line = msgspec.json.encode(_answer_to(request["request_id"]))
        self._asked.set()

    async def _messages(self) -> AsyncIterator[dict[str, Any]]:
        async for lines in self.read_lines():
            for line in lines:
                yield msgspec.json.decode(line)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        return self._messages()

    async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        await self._asked.wait()
        yield [self._line]
        await self._over.wait()

    async def end_input(self) -> None:
        self._over.set()

    async def close(self) -> None:
        self._is_open = False
        self._over.set()

    def is_ready(self) -> bool:
        return self._is_open


def _answer_to(request_id: str) -> dict[str, Any]:
    payload = {"commands": [], "agents": [], "models": [], "account": {"tokenSource": "none"}, "output_style": "default", "pid": 1}
    return {"type": "control_response", "response": {"subtype": "success", "request_id": request_id, "response": payload}}


_BY_THE_CLOCK = {"Alarm.ring", "_Ringer._run"}
"""Functions that call others when a time has come, whatever is sent meanwhile. Neither they nor what they call is counted."""


@dataclass
class Passage:
    """What one operation passed."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    coroutines: int = 0
    objects: dict[int, object] = field(default_factory=dict)
    _frames: list[FrameType] = field(default_factory=list)
    _known: set[int] = field(default_factory=set)

    @property
    def files(self) -> list[str]:
        """The files of the package, sorted."""
        return sorted({file for file, _ in self.calls})

    def note(self, frame: FrameType) -> None:
        """Count the call of `frame`, once; a coroutine that goes on is not called again."""
        code = frame.f_code
        if id(frame) in self._known or not code.co_filename.startswith(f"{PACKAGE}{os.sep}") or code.co_name.endswith("comp>"):
            return
        if _runs_by_the_clock(frame):
            return
        self._known.add(id(frame))
        self._frames.append(frame)  # kept, so that its id is not used again
        self.calls[str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname] += 1
        self.coroutines += bool(code.co_flags & inspect.CO_COROUTINE)
        if code.co_varnames[:1] == ("self",) and "self" in frame.f_locals:
            itself = frame.f_locals["self"]
            self.objects[id(itself)] = itself

    def row(self, name: str) -> str:
        """One line of the table."""
        counts = (len(self.files), len(self.calls), self.calls.total(), self.coroutines, len(self.objects))
        return f"{name:<12}" + "".join(f"{count:>11}" for count in counts)


def _runs_by_the_clock(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_qualname not in _BY_THE_CLOCK:
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def counting() -> Iterator[Passage]:
    """Count the calls in this thread for as long as the block lasts. What is garbage by then is collected before."""
    path = Passage()
    gc.collect()
    gc.disable()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            path.note(frame)

    sys.setprofile(profile)
    try:
        yield path
    finally:
        sys.setprofile(None)
        gc.enable()


async def count_paths(wrap: Callable[[ct.Transport], ct.Transport] | None = None) -> dict[str, Passage]:
    """Run a conversation with a child process: what its second `send()` and the third message of that turn pass. `wrap` adds wrappers."""
    opening = await count_opening(wrap)
    transport: ct.Transport = ct.SubprocessTransport(command=[sys.executable, "-u", "-c", PEER])
    async with ct.Query(wrap(transport) if wrap else transport) as query:
        await (await query.send("One")).result()
        pid = query.info.pid
        assert pid is not None
        with counting() as sending:
            turn = await query.send("Two")
        for _ in range(2):
            os.kill(pid, signal.SIGUSR1)
            await anext(turn)
        with counting() as hearing:
            os.kill(pid, signal.SIGUSR1)
            await anext(turn)
        await query.set_permission_mode("plan")
        with counting() as asking:
            await query.set_permission_mode("default")
    return {"opening": opening, "send()": sending, "one message": hearing, "one request": asking}


async def count_opening(wrap: Callable[[ct.Transport], ct.Transport] | None = None) -> Passage:
    """Open two queries, one after the other, and return what the second one passes until it is open."""
    await _open(Answering())
    return await _open(wrap(Answering()) if wrap else Answering())


async def _open(transport: ct.Transport) -> Passage:
    with counting() as opening:
        query = ct.Query(transport)
        await query.start()
    await query.aclose()
    return opening


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Count what opening a Query, one send() and one message pass inside the package.")
    parser.add_argument("--backend", choices=["asyncio", "trio"], default="asyncio")
    parser.add_argument("--functions", action="store_true", help="print the name of each function, too")
    arguments = parser.parse_args()
    paths = anyio.run(count_paths, backend=arguments.backend)
    print(f"{'':<12}{'files':>11}{'functions':>11}{'calls':>11}{'coroutines':>11}{'objects':>11}")
    for name, path in paths.items():
        print(path.row(name))
    if arguments.functions:
        for name, path in paths.items():
            print(f"\n{name}")
            for (file, function), calls in path.calls.items():
                print(f"  {file}: {function}" + (f" ({calls} calls)" if calls > 1 else ""))


if __name__ == "__main__":
    main()
