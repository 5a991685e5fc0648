"""What each trick of the fast path gains: the same work with the trick and without it, in turns, in one process.

    python benchmarks/bench_tricks.py                      every trick on both event loops
    python benchmarks/bench_tricks.py --backend trio --rounds 3
    python benchmarks/bench_tricks.py --only pour "pace of reading"

Each figure is a ratio of processor time: without the trick, divided by with it. 1.30 means that the work costs 30 % more without it.
The runs take turns and each round gives one ratio; the figure is the median, followed by the quartiles. Processor time depends
less on a busy machine than time by the clock.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import anyio.to_thread
from speed import ours, sessions
from speed.harness import Meter, spread
from speed.peers import Sink, handshake_peer, line_peer
from speed.report import backends_of
from speed.workload import SHAPES, Workload

from claude_transport import TransportWrapper
from claude_transport.loops import current, descriptors
from claude_transport.streams import inflow, room
from claude_transport.streams.process import ProcessStream
from claude_transport.transports.stream import StreamTransport


class Trick(NamedTuple):
    """One trick: the scenario that shows it, and how the two runs of it are made.

    `beside` are tricks that both runs go without, because they would hide this one.
    """

    scenario: str
    without: Callable[[], AbstractContextManager[object]]
    beside: tuple[str, ...] = ()
    backends: tuple[str, ...] = ("asyncio", "trio")


class EventWakeup:
    """`Wakeup`, made of an `anyio.Event` for each wait."""

    def __init__(self, *, beside: object = None) -> None:
        self._event: anyio.Event | None = None

    @property
    def is_awaited(self) -> bool:
        return self._event is not None and self._event.statistics().tasks_waiting > 0

    @property
    def waiting(self) -> bool:
        return self.is_awaited

    def fire(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give `owner` another attribute inside the block."""
    before = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Unpourable:
    """Stands in for `Pourable`: no stream is an instance of it."""


def without_pour() -> AbstractContextManager[None]:
    """The reader's task is resumed for each chunk, as for a stream that has no `pour()`."""
    return replaced(sys.modules[StreamTransport.__module__], "Pourable", Unpourable)


@contextlib.contextmanager
def without_own_wakeup() -> Iterator[None]:
    """An `anyio.Event` for each wait."""
    own = current.Wakeup
    with contextlib.ExitStack() as stack:
        for name, module in tuple(sys.modules.items()):
            if name.startswith("claude_transport.") and module.__dict__.get("Wakeup") is own:
                stack.enter_context(replaced(module, "Wakeup", EventWakeup))
        yield


def without_watcher() -> AbstractContextManager[None]:
    """trio's own wait for each chunk."""
    return replaced(descriptors.DescriptorWatcher, "here", staticmethod(lambda: None))


def without_watching() -> AbstractContextManager[None]:
    """`anyio.wait_readable()` for each chunk."""
    return replaced(inflow.Inflow, "_watch_on_asyncio", lambda _self: False)


@contextlib.contextmanager
def without_dryness() -> Iterator[None]:
    """A read of the pipe before each wait, although the last one has emptied it."""
    inflow.Inflow.is_dry = property(lambda _self: False, lambda _self, _value: None)  # type: ignore[assignment]
    try:
        yield
    finally:
        del inflow.Inflow.is_dry


async def _checkpoint(_self: Any, _size: int = 0) -> None:
    await anyio.lowlevel.checkpoint()


@contextlib.contextmanager
def without_pace(of: type) -> Iterator[None]:
    """A checkpoint at every step of objects of that class."""

    class Slow(inflow.CooperativeYield):
        step = _checkpoint

    module = sys.modules[of.__module__]
    with replaced(module, "CooperativeYield", Slow):
        yield


def without_growth() -> AbstractContextManager[None]:
    """Every pipe keeps its 64 KiB, and so does every read."""
    return replaced(room.PipePages, "widen", lambda _self, _fd: room.READ_BYTES)


class OneByOne(TransportWrapper):
    """Hands on batches of a single line each."""

    async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        async for lines in super().read_lines():
            for line in lines:
                yield (line,)


def without_batches() -> AbstractContextManager[None]:
    """Each line of a read is handed on by itself."""
    made = ours.transport_of_session
    return replaced(ours, "transport_of_session", lambda peer: OneByOne(made(peer)))


TRICKS = {
    "batches": Trick("burst", without_batches, beside=("pour",)),
    "pour": Trick("alone", without_pour),
    "pour, many": Trick("many", without_pour),
    "own wake-up": Trick("alone", without_own_wakeup),
    "watched once": Trick("alone", without_watching, beside=("pour",), backends=("asyncio",)),
    "watcher": Trick("alone", without_watcher, backends=("trio",)),
    "no read of an empty pipe": Trick("alone", without_dryness, beside=("pour",)),
    "growth, small messages": Trick("burst", without_growth),
    "growth, large lines": Trick("forward", without_growth),
    "pace of reading": Trick("forward", functools.partial(without_pace, ProcessStream)),
    "pace of writing": Trick("write", functools.partial(without_pace, StreamTransport)),
}


class Scenarios:
    """The work that is measured, by name: each returns microseconds of processor time per unit."""

    def __init__(self, folder: Path, *, backend: str, scale: float, sessions: int) -> None:
        self._backend = backend
        self._scale = scale
        self._fifos = [folder / f"fifo-{number}" for number in range(sessions)]
        for fifo in self._fifos:
            os.mkfifo(fifo)
        self._alone = [handshake_peer(folder, (fifo,), waits=False) for fifo in self._fifos]
        self._small = Workload.of_shape(folder, "delta, 263 B", scale=scale * 0.5)
        self._large = Workload.of_shape(folder, "tool result, 87 KB", scale=scale)
        self._session = handshake_peer(folder, self._small.files)
        self._lines = line_peer(folder, self._large.files)
        self._sink = Sink(folder)

    def alone(self) -> float:
        """Small messages that come alone: the next one is sent when its session's reader has got the last. The sessions take turns."""
        return anyio.run(self._alone_in_turns, backend=self._backend)

    async def _alone_in_turns(self) -> float:
        line, count = SHAPES["delta, 263 B"][1], max(round(200 * self._scale), 4)
        async with contextlib.AsyncExitStack() as stack:
            opened = []
            for peer, fifo in zip(self._alone, self._fifos, strict=True):
                query = await stack.enter_async_context(ours.query_over(peer))
                writer = await anyio.to_thread.run_sync(os.open, fifo, os.O_WRONLY)
                stack.callback(os.close, writer)
                opened.append((writer, query.messages()))
            with Meter() as meter:
                for _ in range(count):
                    for writer, messages in opened:
                        os.write(writer, line)
                        await anext(messages)
        return meter.cost(count * len(opened)).cpu * 1e6

    def many(self) -> float:
        """Small messages in 100 sessions, each of which sends a hundred in a second."""
        found = sessions.work(subject="ours", backend=self._backend, size=100, seconds=max(1.5 * self._scale, 0.3))
        return float(found["cpu_us"])

    def burst(self) -> float:
        """Small messages, as fast as they can be read, through a `Query`."""
        return anyio.run(functools.partial(ours.query_typed, self._session, self._small), backend=self._backend).cpu * 1e6

    def forward(self) -> float:
        """Lines of 87 KB from one process to another."""
        return anyio.run(functools.partial(ours.forward, self._lines, self._sink, self._large), backend=self._backend).cpu * 1e6

    def write(self) -> float:
        """Lines of 263 bytes, each written by itself."""
        line, count = SHAPES["delta, 263 B"][1], max(round(20_000 * self._scale), 4)
        return anyio.run(functools.partial(ours.write, self._sink, line=line, count=count), backend=self._backend).cpu * 1e6


def measure(trick: Trick, scenarios: Scenarios, *, backend: str, rounds: int) -> dict[str, float]:
    """Return median and quartiles of the ratios of all rounds."""
    run: Callable[[], float] = getattr(scenarios, trick.scenario)
    ratios = []
    with contextlib.ExitStack() as stack:
        for name in trick.beside:
            if backend in TRICKS[name].backends:
                stack.enter_context(TRICKS[name].without())
        for number in range(rounds + 1):
            found = {}
            for is_without in (True, False) if number % 2 else (False, True):
                with trick.without() if is_without else contextlib.nullcontext():
                    found[is_without] = run()
            if number or not rounds:  # the first round warms up
                ratios.append(found[True] / found[False])
    return spread(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=list(TRICKS), nargs="+", default=list(TRICKS), metavar="TRICK", help=f"of {', '.join(TRICKS)}")
    parser.add_argument("--backend", choices=["asyncio", "trio", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=9, help="ratios for each trick (default 9)")
    parser.add_argument("--sessions", type=int, default=25, help='of the scenario "alone" (default 25)')
    parser.add_argument("--scale", type=float, default=1.0, help="times as many messages (default 1.0)")
    options = parser.parse_args()
    for backend in backends_of(options):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            scenarios = Scenarios(Path(folder), backend=backend, scale=options.scale, sessions=options.sessions)
            for name in options.only:
                trick = TRICKS[name]
                if backend in trick.backends:
                    found = measure(trick, scenarios, backend=backend, rounds=options.rounds)
                    figures = f"{found['median']:6.2f}   {found['low']:.2f} to {found['high']:.2f}"
                    print(f"{backend:8} {trick.scenario:8} {name:26}{figures}", flush=True)


if __name__ == "__main__":
    main()
