"""`Bench`: what a clause works with: connected subjects, waits with a bound and a name, and calls that run beside the clause."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable, TaskGroup

from claude_transport.testing.conformance.medium import Medium
from claude_transport.testing.conformance.memory_peer import MemoryPeer
from claude_transport.testing.conformance.subject import Inexpressible, Peer, Play, Reason, Subject
from claude_transport.transport import Transport, TransportInfo
from claude_transport.transports.stream import StreamTransport

_CAPACITY = 65536
"""Bytes that each direction holds of the stream in memory below a wrapper."""

_encoder: Final = msgspec.json.Encoder()

T = TypeVar("T")


class Violation(AssertionError):
    """The transport under test does not keep the promise of a clause. The message says how. It is an `AssertionError`."""


def expect(condition: object, message: str) -> None:
    """Raise `Violation(message)` unless `condition` is true."""
    if not condition:
        raise Violation(message)


def message(n: int, **more: object) -> dict[str, Any]:
    """Return the message with number `n` that the clauses send. Its type is unknown to the library."""
    return {"type": "conformance", "n": n, **more}


def messages(count: int, *, first: int = 0) -> list[dict[str, Any]]:
    """Return `count` messages, numbered from `first`."""
    return [message(n) for n in range(first, first + count)]


def wire(*objects: dict[str, Any]) -> bytes:
    """Encode the objects as lines."""
    return _encoder.encode_lines(objects)


async def settle() -> None:
    """Wait until every task waits for something from outside."""
    for _ in range(25):
        await anyio.lowlevel.checkpoint()  # on asyncio, the call below sleeps when a task is still busy; after this, most are not
    await anyio.wait_all_tasks_blocked()


class RunningCall(Generic[T]):
    """A call that runs in its own task."""

    def __init__(self, bench: Bench, call: Callable[[], Awaitable[T]]) -> None:
        self._bench = bench
        self._call = call
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()
        self._results: list[T] = []
        self.error: Exception | None = None

    @property
    def over(self) -> bool:
        """True when the call has returned, raised or been cancelled."""
        return self._over.is_set()

    def cancel(self) -> None:
        """Cancel the call, without waiting for its end."""
        self._scope.cancel()

    async def end(self, what: str) -> None:
        """Wait until the call is over, with any result. `what` names the wait in the report."""
        with self._bench.within(what):
            await self._over.wait()

    async def result(self, what: str) -> T | None:
        """Wait for the call, and return its result (None when it was cancelled). Raises the exception of the call."""
        await self.end(what)
        if self.error is not None:
            raise self.error
        return self._results[0] if self._results else None

    async def run(self) -> None:
        """Make the call (for the bench)."""
        try:
            with self._scope:
                self._results.append(await self._call())
        except Exception as exc:  # noqa: BLE001 - `result()` raises it
            self.error = exc
        finally:
            self._over.set()


class Stand:
    """A subject, with the operations that clauses use most, each in bounded time."""

    def __init__(self, bench: Bench, subject: Subject) -> None:
        self._bench = bench
        self.subject = subject
        self.transport: Transport = subject.transport
        self._reading: AsyncIterator[dict[str, Any]] | None = None

    @property
    def peer(self) -> Peer:
        """The other end."""
        if self.subject.peer is None:
            raise Inexpressible(Reason.NO_PEER)
        return self.subject.peer

    @property
    def refusal(self) -> Callable[[bool], object]:
        """The function that makes `connect()` fail."""
        if self.subject.refuse is None:
            raise Inexpressible(Reason.NO_REFUSAL)
        return self.subject.refuse

    @property
    def own_info(self) -> TransportInfo:
        """The transport's own `info`."""
        if type(self.transport).info is Transport.info:
            raise Inexpressible(Reason.NO_OWN_INFO)
        return self.transport.info

    @property
    def line_limit(self) -> int:
        """The line limit of the transport, in bytes."""
        if self.subject.max_line_bytes is None:
            raise Inexpressible(Reason.NO_LINE_LIMIT)
        return self.subject.max_line_bytes

    @property
    def flood(self) -> dict[str, Any]:
        """A message that is larger than all buffers between the two ends."""
        return message(0, pad="x" * self.subject.absorbs)

    async def connect(self) -> None:
        """Connect."""
        with self._bench.within("connect()"):
            await self.transport.connect()

    async def close(self) -> None:
        """Close within the timeout of the transport and the patience of the bench."""
        with self._bench.within("close()", seconds=self.subject.close_timeout + self._bench.patience):
            await self.transport.close()

    async def write(self, data: str | bytes) -> None:
        """Write one piece of data."""
        with self._bench.within("a write()"):
            await self.transport.write(data)

    async def end_input(self) -> None:
        """End the input."""
        with self._bench.within("end_input()"):
            await self.transport.end_input()

    async def read(self, count: int) -> list[dict[str, Any]]:
        """Read the next `count` messages. Raises `Violation` when the iteration ends before, or takes too long."""
        if self._reading is None:
            self._reading = aiter(self.transport.read_messages())
        got: list[dict[str, Any]] = []
        while len(got) < count:
            with self._bench.within(f"message {len(got) + 1} of {count}"):
                try:
                    got.append(await anext(self._reading))
                except StopAsyncIteration:
                    raise Violation(f"the iteration ended after {len(got)} of {count} messages") from None
        return got

    async def read_end(self) -> Exception | None:
        """Read to the end of the iteration. Returns its exception, or None; raises `Violation` when another message comes.

        The next read starts a new iteration.
        """
        reading, self._reading = self._reading or aiter(self.transport.read_messages()), None
        with self._bench.within("the end of the iteration"):
            try:
                extra = await anext(reading)
            except StopAsyncIteration:
                return None
            except Exception as exc:  # noqa: BLE001 - the caller checks it
                return exc
        raise Violation(f"another message came where the end was due: {extra!r}")

    async def receive(self, count: int) -> list[dict[str, Any]]:
        """Return the next `count` lines that reach the peer, decoded. Raises `Violation` when one is not JSON or does not come."""
        got: list[dict[str, Any]] = []
        while len(got) < count:
            with self._bench.within(f"line {len(got) + 1} of {count} at the peer"):
                try:
                    line = await self.peer.receive_line()
                except anyio.EndOfStream:
                    raise Violation(f"the peer's input ended after {len(got)} of {count} lines") from None
            try:
                got.append(json.loads(line))
            except ValueError:
                raise Violation(f"the peer got a line that is not JSON: {line[:60]!r}…") from None
        return got


class _Opened(ByteStreamConnectable):
    """Returns a stream that is open already."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def connect(self) -> ByteStream:
        return self._stream


class Bench:
    """What the check function of a `Clause` gets: it opens transports to test, starts calls in tasks, and bounds every wait.

    `run_clause` makes one for each clause. `patience` bounds every single wait, in seconds.
    """

    def __init__(self, medium: Medium, tasks: TaskGroup, *, patience: float, needs_peer: bool = True) -> None:
        self._medium = medium
        self._tasks = tasks
        self._needs_peer = needs_peer
        self.patience = patience

    @contextmanager
    def within(self, what: str, *, seconds: float | None = None) -> Iterator[None]:
        """Bound the time that the `with` block may take. `seconds` is by default the `patience` of the bench.

        After that, the block is cancelled and `Violation` is raised; its message contains `what`, a name for the block.
        """
        bound = self.patience if seconds is None else seconds
        with anyio.move_on_after(bound) as scope:
            yield
            return
        if scope.cancelled_caught:
            raise Violation(f"{what}: not within {bound:g} s")

    def start(self, call: Callable[[], Awaitable[T]]) -> RunningCall[T]:
        """Start `call()` in a task of its own, beside the clause. Does not wait for it.

        The returned `RunningCall` can cancel the call, and gives its result.
        """
        attempt = RunningCall(self, call)
        self._tasks.start_soon(attempt.run)
        return attempt

    @asynccontextmanager
    async def opened(self, *, says: tuple[bytes, ...] = (), then: str | None = None) -> AsyncIterator[Stand]:
        """Give the `async with` block a transport that is not connected yet, as a `Stand`, with its peer at the other end.

        The peer sends the chunks `says` as soon as it can; `then` it ends ("finish" or "fail") or, with None, stays. The transport is
        closed after the block; errors of that close are ignored, because other clauses test it.
        """
        async with self._medium.open(Play(says=says, then=then)) as subject:
            if self._needs_peer and subject.peer is None:
                raise Inexpressible(Reason.NO_PEER)
            try:
                yield Stand(self, subject)
            finally:
                # other clauses test close(); here it only releases the subject
                with anyio.move_on_after(subject.close_timeout + self.patience, shield=True), contextlib.suppress(Exception):
                    await subject.transport.close()

    @asynccontextmanager
    async def connected(self, *, says: tuple[bytes, ...] = (), then: str | None = None) -> AsyncIterator[Stand]:
        """Give the `async with` block a transport that is connected, as a `Stand`, with its peer at the other end.

        The peer sends the chunks `says` as soon as it can; `then` it ends ("finish" or "fail") or, with None, stays. The transport is
        closed after the block. Raises what `connect()` raises, and `Violation` when it takes too long.
        """
        async with self.opened(says=says, then=then) as stand:
            await stand.connect()
            if not says and then is None and stand.subject.prime is not None:
                with self.within("the preparation of the subject"):
                    await stand.subject.prime()
            yield stand

    @asynccontextmanager
    async def around(self, inside: Transport) -> AsyncIterator[Transport]:
        """Give the `async with` block the wrapper under test around `inside`, not connected. It is closed after the block.

        Errors of that close are ignored, because other clauses test it. It is for a clause of wrappers.
        """
        async with self._medium.around(inside) as outside:
            try:
                yield outside
            finally:
                with anyio.move_on_after(self.patience, shield=True), contextlib.suppress(Exception):
                    await outside.close()

    @asynccontextmanager
    async def around_memory(self) -> AsyncIterator[Stand]:
        """Give the `async with` block the wrapper under test around a stream in memory, connected, as a `Stand` with its peer."""
        async with MemoryPeer.pair(capacity=_CAPACITY) as (stream, peer), self.around(StreamTransport(_Opened(stream))) as outside:
            stand = Stand(self, Subject(transport=outside, peer=peer, absorbs=16 * _CAPACITY))
            await stand.connect()
            yield stand

    async def expect_raises(self, kinds: type[Exception] | tuple[type[Exception], ...], call: Awaitable[object], what: str) -> Exception:
        """Await `call`, which must raise one of the exceptions `kinds`, and return that exception.

        Raises `Violation`, with `what` as the name of the call, when it raises another kind or none, or takes longer than `patience`.
        """
        wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        with self.within(what):
            try:
                await call
            except kinds as exc:
                return exc
            except Violation:
                raise
            except Exception as exc:
                raise Violation(f"{what} raised {type(exc).__name__} ({exc}), not {wanted}") from exc
        raise Violation(f"{what} did not raise {wanted}")
