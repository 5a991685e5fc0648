"""`FaultyTransport`: injects faults into a transport, the same faults at the same places every time. The faults are in `faults`."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import get_args

import anyio
import msgspec

from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    TransportClosed,
    TruncatedStream,
)
from claude_transport.protocol.framing import LineFramer, OversizedLine
from claude_transport.transport import AtOnce, TransportLike
from claude_transport.wrappers.base import LineWrapper
from claude_transport.wrappers.faults import Corrupt, Cut, Delay, Drop, Duplicate, FailConnect, FailWrite, Fault, Split

_FAULTS = get_args(Fault)

_CONNECT = "connect "
"""How the entries of `done` about failed attempts to connect begin."""


class FaultyTransport(LineWrapper):
    """Injects `faults` (see `claude_transport.wrappers.faults`) into `transport`, to test the code that uses it.

    Args:
        seed: decides everything that the faults leave open. The same faults and seed on the same stream do the same.
        sleep: waits the given seconds for `Delay`; pass your own function to wait without time passing.
        done: the list to which a text is added for each fault that happened; by default a new one, in the attribute `done`. Give the list
            of an earlier transport to another one, and `FailConnect` counts the attempts of both together.

    The lines that are read are joined to a stream of bytes, changed, and framed again, so a fault can hit any byte of any transport. Whole
    lines are dropped, duplicated and delayed before bytes are corrupted, cut and split. Without faults for reading, lines pass unchanged.

    Raises:
        ConfigurationError: an item of `faults` is not a fault.
    """

    keeps_taken_lines = True
    speaks = False

    def __init__(
        self,
        transport: TransportLike,
        faults: Iterable[Fault],
        *,
        seed: int = 0,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
        done: list[str] | None = None,
    ) -> None:
        super().__init__(transport)
        self._faults = tuple(faults)
        for fault in self._faults:
            if not isinstance(fault, _FAULTS):
                raise ConfigurationError(f"{fault!r} is not a fault: see claude_transport.wrappers.faults", option="faults")
        self._sleep = sleep
        self._line_faults = _LineFaults(self._faults, random.Random(seed))  # noqa: S311 - to be repeated, not to be secret
        self._byte_faults = _ByteFaults(self._faults, random.Random(seed + 1))  # noqa: S311
        self._writes = 0
        self._write_broken = False
        self._waiting: deque[tuple[float, list[bytes]]] = deque()  # lines not yet handed on, with the delay before them
        self._ready: deque[Sequence[bytes]] = deque()
        self._delay: anyio.CancelScope | None = None  # the delay that a reader waits for
        self._closing = False
        self._end: ClaudeTransportError | StopAsyncIteration | None = None
        self.done: list[str] = [] if done is None else done
        """The faults that happened so far, in words, in order."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults that this transport injects, as they were given."""
        return self._faults

    @property
    def is_idle(self) -> bool:
        """True when every fault is about connecting or writing. Readers then get the iterator of the wrapped transport."""
        return not self._line_faults.any and not self._byte_faults.any

    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        """Have lines written without waiting when there are no faults at all."""
        return None if self._faults else AtOnce(connect=bool, write=inner.write, end_input=bool, close=bool)

    async def connect(self) -> None:
        """Connect the wrapped transport, after as many failed attempts as the fault `FailConnect` asks for.

        Raises:
            CLIConnectionError: this attempt is one of those that must fail. The wrapped transport was not called.
        """
        attempt = sum(each.startswith(_CONNECT) for each in self.done) + 1
        times = max((fault.times for fault in self._faults if isinstance(fault, FailConnect)), default=0)
        if attempt <= times:
            self.done.append(f"{_CONNECT}{attempt} failed")
            await anyio.lowlevel.checkpoint()
            raise CLIConnectionError(f"injected fault: attempt {attempt} of {times} to connect fails")
        await super().connect()

    def is_ready(self) -> bool:
        """Return True while the wrapped transport is ready and no fault has broken the connection."""
        return not self._write_broken and self._end is None and super().is_ready()

    async def write(self, data: str | bytes) -> None:
        """Write `data` to the wrapped transport, unless a fault `FailWrite` names this call.

        Raises:
            TransportClosed: this call must fail (before or after `data` was written, as the fault says), or a fault has broken the
                connection.
        """
        if self._write_broken or self._end is not None:
            await anyio.lowlevel.checkpoint()
            raise TransportClosed("injected fault: the connection is broken")
        self._writes += 1
        number = self._writes
        failing = [fault for fault in self._faults if isinstance(fault, FailWrite) and fault.write == number]
        if not failing or failing[0].after:
            await super().write(data)
        if failing:
            self._write_broken = failing[0].lasting
            moment = "after" if failing[0].after else "before"
            self.done.append(f"write {number} failed {moment} it was handed over")
            await anyio.lowlevel.checkpoint()
            raise TransportClosed(f"injected fault: write {number} fails {moment} it was handed over")

    async def close(self) -> None:
        """Close the wrapped transport, and end the iteration of a reader that waits for a delayed line. Later calls wait for the first."""
        self._closing = True
        if self._delay is not None:
            self._delay.cancel()
        await super().close()

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """Return the next lines, at least one, as the faults have changed them. `source` gives the lines of the wrapped transport.

        At the end it raises what ended the stream: `StopAsyncIteration`, the error of `source`, or that of a fault (`ConnectionLost`,
        `TruncatedStream`).
        """
        if self.is_idle:  # a view of the rest of an earlier batch
            return await super().read_batch(source)
        while not self._ready:
            if self._end is None and self._byte_faults.is_cut(self.done):
                self._finish(None)
            elif self._end is not None and not self._waiting:
                await anyio.lowlevel.checkpoint()
                raise self._end
            elif self._waiting:
                await self._hand_on()
            else:
                await self._take_in(source)
        return self._ready.popleft()

    async def _take_in(self, source: AsyncIterator[Sequence[bytes]]) -> None:
        try:
            batch = await super().read_batch(source)
        except (StopAsyncIteration, ClaudeTransportError) as end:
            self._finish(None if isinstance(end, StopAsyncIteration) else end)
        else:
            self._waiting.extend(self._line_faults.spoil(batch, self.done))

    async def _hand_on(self) -> None:
        delay, lines = self._waiting[0]
        if delay and await self._is_closed_during(delay):
            self._waiting.clear()
            self._end = StopAsyncIteration()
            return
        self._waiting.popleft()  # not before: a cancelled reader must lose nothing
        for line in lines:
            self._ready.extend(self._byte_faults.feed(line, self.done))
            if self._byte_faults.is_cut(self.done):
                self._waiting.clear()
                self._finish(None)
                return
        if not self._waiting or self._waiting[0][0]:
            # a chunk ends when no more bytes are there, as on a real connection
            self._ready.extend(self._byte_faults.flush())

    async def _is_closed_during(self, delay: float) -> bool:
        if not self._closing:
            with anyio.CancelScope() as self._delay:
                await self._sleep(delay)
            self._delay = None
        return self._closing

    def _finish(self, error: ClaudeTransportError | None) -> None:
        """End the stream here, with `error` or with the end that the faults made."""
        self._ready.extend(self._byte_faults.finish())
        self._end = error or self._byte_faults.end()


class _LineFaults:
    """Drops, duplicates and delays lines."""

    def __init__(self, faults: Iterable[Fault], dice: random.Random) -> None:
        self._faults = [fault for fault in faults if isinstance(fault, Drop | Duplicate | Delay)]
        self._dice = dice
        self._number = 0
        self.any = bool(self._faults)

    def spoil(self, batch: Sequence[bytes], done: list[str]) -> list[tuple[float, list[bytes]]]:
        """Return for each line the seconds to wait before it, and the line as often as it comes."""
        return [self._spoil(line, done) for line in batch] if self.any else [(0.0, list(batch))]

    def _spoil(self, line: bytes, done: list[str]) -> tuple[float, list[bytes]]:
        self._number += 1
        delay, copies = 0.0, 1
        for fault in self._faults:
            # throw the dice for every line and fault, so that one fault does not shift another
            by_chance = fault.line is None and self._dice.random() < fault.rate
            if fault.line != self._number and not by_chance:
                continue
            if isinstance(fault, Delay):
                delay += fault.seconds
            else:
                copies = 0 if isinstance(fault, Drop) else copies * 2
            done.append(f"{type(fault).__name__.lower()} of line {self._number}")
        return delay, [line] * copies


class _ByteFaults:
    """Corrupts, cuts and splits the stream of bytes."""

    def __init__(self, faults: Iterable[Fault], dice: random.Random) -> None:
        mine = [fault for fault in faults if isinstance(fault, Corrupt | Cut | Split)]
        self.any = bool(mine)
        self.cut: Cut | None = None
        self._dice = dice
        self._corrupt = {fault.at_byte: fault.value for fault in mine if isinstance(fault, Corrupt)}
        self._cuts = [fault for fault in mine if isinstance(fault, Cut)]
        self._split = next((fault for fault in mine if isinstance(fault, Split)), None)
        self._framer = LineFramer()
        self._chunk: list[bytes] = []
        self._room = self._next_size(0)
        self._chunks = 0
        self._bytes = 0
        self._lines = 0
        self._tail = b""

    def feed(self, line: bytes, done: list[str]) -> list[Sequence[bytes]]:
        """Return the batches that this line completes: one for each chunk that completes any line."""
        if not self.any or isinstance(line, OversizedLine):
            return [(line,)]
        data = self._corrupted(line + b"\n", done)
        room = min((cut.after_bytes - self._bytes for cut in self._cuts if cut.after_bytes is not None), default=len(data))
        self._lines += room >= len(data)
        data = data[:room]
        self._bytes += len(data)
        return self._framed(data)

    def is_cut(self, done: list[str]) -> bool:
        """Return whether the stream is cut at this position."""
        for cut in self._cuts:
            if self.cut is None and (_reached(cut.after_bytes, self._bytes) or _reached(cut.after_lines, self._lines)):
                self.cut = cut
                done.append(f"cut after {self._bytes} bytes")
        return self.cut is not None

    def flush(self) -> list[Sequence[bytes]]:
        """Return the lines that are complete with the bytes of an unfinished chunk."""
        chunk, self._chunk = b"".join(self._chunk), []
        lines = self._framer.feed(chunk) if chunk else []
        return [tuple(lines)] if lines else []

    def finish(self) -> list[Sequence[bytes]]:
        """Return what is left at the end of the stream: an unfinished chunk, and a last line that lacks only its newline."""
        batches = self.flush()
        tail = self._framer.finish()
        if tail and (not tail.lstrip().startswith(b"{") or _is_json(tail)):
            return [*batches, (tail,)]
        self._tail = tail
        return batches

    def end(self) -> ClaudeTransportError | StopAsyncIteration:
        """Return the exception that ends a stream whose transport has not failed by itself."""
        if self.cut is not None and not self.cut.clean:
            return ConnectionLost(f"injected fault: the connection broke after {self._bytes} bytes")
        if self._tail:
            message = f"injected fault: the stream ended inside a line, after {len(self._tail)} bytes of it"
            return TruncatedStream(message, bytes_tail=self._tail)
        return StopAsyncIteration()

    def _corrupted(self, data: bytes, done: list[str]) -> bytes:
        hits = [at for at in self._corrupt if self._bytes <= at < self._bytes + len(data)]
        if not hits:
            return data
        spoilt = bytearray(data)
        for at in sorted(hits):
            index = at - self._bytes
            value = self._corrupt[at]
            spoilt[index] = (spoilt[index] + self._dice.randrange(1, 256)) % 256 if value is None else value
            done.append(f"corrupt byte {at}")
        return bytes(spoilt)

    def _framed(self, data: bytes) -> list[Sequence[bytes]]:
        if self._split is None:
            lines = self._framer.feed(data)
            return [tuple(lines)] if lines else []
        batches: list[Sequence[bytes]] = []
        view = memoryview(data)
        while view:
            piece, view = view[: self._room], view[self._room :]
            self._chunk.append(bytes(piece))
            self._room -= len(piece)
            if not self._room:
                batches.extend(self.flush())
                self._chunks += 1
                self._room = self._next_size(self._chunks)
        return batches

    def _next_size(self, number: int) -> int:
        if self._split is None:
            return 0
        sizes = self._split.sizes
        return sizes[number % len(sizes)] if sizes else self._dice.randint(1, self._split.up_to)


def _reached(limit: int | None, count: int) -> bool:
    return limit is not None and count >= limit


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True
