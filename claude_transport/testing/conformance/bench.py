"""`Bench`: what a clause works with: connected subjects, waits with a bound and a name, calls under way beside it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from claude_transport.testing.conformance.medium import Medium
from claude_transport.testing.conformance.subject import Inexpressible, Peer, Play, Reason, Subject
from claude_transport.transport import Transport, TransportInfo

T = TypeVar("T")


class Violation(AssertionError):
    """The transport under test broke the clause: the message says how."""


def expect(condition: object, message: str) -> None:
    """Raise `Violation(message)` unless `condition` is true."""
    if not condition:
        raise Violation(message)


def message(n: int, **more: object) -> dict[str, Any]:
    """The message that the clauses send: its type means nothing to anybody."""
    return {"type": "conformance", "n": n, **more}


def messages(count: int, *, first: int = 0) -> list[dict[str, Any]]:
    """`count` messages, numbered from `first`."""
    return [message(n) for n in range(first, first + count)]


def wire(*objects: dict[str, Any]) -> bytes:
    """The objects as lines."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in objects)


async def settle() -> None:
    """Return when every task has gone as far as it can without something new from outside."""
    for _ in range(25):
        await anyio.lowlevel.checkpoint()  # on asyncio the call below looks once and then sleeps: mostly, there is nothing left to see
    await anyio.wait_all_tasks_blocked()


class Attempt(Generic[T]):
    """A call that is under way in a task of its own."""

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
        """Cancel the call; does not wait."""
        self._scope.cancel()

    async def end(self, what: str) -> None:
        """Return when the call is over, whatever came of it; `what` names the wait for the report."""
        with self._bench.within(what):
            await self._over.wait()

    async def result(self, what: str) -> T | None:
        """What the call returned (None when it was cancelled); raises what it raised."""
        await self.end(what)
        if self.error is not None:
            raise self.error
        return self._results[0] if self._results else None

    async def run(self) -> None:
        """Make the call (called by the bench)."""
        try:
            with self._scope:
                self._results.append(await self._call())
        except Exception as exc:  # noqa: BLE001 - handed on by `result()`
            self.error = exc
        finally:
            self._over.set()


class Stand:
    """A subject on the bench, with what clauses do with it most often."""

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
        """The switch that makes `connect()` fail."""
        if self.subject.refuse is None:
            raise Inexpressible(Reason.NO_REFUSAL)
        return self.subject.refuse

    @property
    def own_info(self) -> TransportInfo:
        """What the transport's own `info` says."""
        if type(self.transport).info is Transport.info:
            raise Inexpressible(Reason.NO_OWN_INFO)
        return self.transport.info

    @property
    def line_limit(self) -> int:
        """The transport's limit for a line, in bytes."""
        if self.subject.max_line_bytes is None:
            raise Inexpressible(Reason.NO_LINE_LIMIT)
        return self.subject.max_line_bytes

    @property
    def flood(self) -> dict[str, Any]:
        """A message that no buffer between the two ends can hold."""
        return message(0, pad="x" * self.subject.absorbs)

    async def connect(self) -> None:
        """Connect, in bounded time."""
        with self._bench.within("connect()"):
            await self.transport.connect()

    async def close(self) -> None:
        """Close, in bounded time: the transport's own, and some patience on top."""
        with self._bench.within("close()", seconds=self.subject.close_timeout + self._bench.patience):
            await self.transport.close()

    async def write(self, data: str | bytes) -> None:
        """Write, in bounded time."""
        with self._bench.within("a write()"):
            await self.transport.write(data)

    async def end_input(self) -> None:
        """End the input, in bounded time."""
        with self._bench.within("end_input()"):
            await self.transport.end_input()

    async def read(self, count: int) -> list[dict[str, Any]]:
        """The next `count` messages; a violation when the iteration ends before that, or takes too long."""
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
        """How the iteration goes on: None when it ends well, the error when it raises; a violation when another message comes.

        What is read after this is read by a new iteration.
        """
        reading, self._reading = self._reading or aiter(self.transport.read_messages()), None
        with self._bench.within("the end of the iteration"):
            try:
                extra = await anext(reading)
            except StopAsyncIteration:
                return None
            except Exception as exc:  # noqa: BLE001 - the caller looks at it
                return exc
        raise Violation(f"another message came where the end was due: {extra!r}")

    async def receive(self, count: int) -> list[dict[str, Any]]:
        """The next `count` lines that reach the peer, decoded; a violation when one is no JSON or does not come."""
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
                raise Violation(f"the peer got a line that is no JSON: {line[:60]!r}…") from None
        return got


class Bench:
    """Where one clause is checked: `patience` is the number of seconds that any single wait may take."""

    def __init__(self, medium: Medium, tasks: TaskGroup, *, patience: float, needs_peer: bool = True) -> None:
        self._medium = medium
        self._tasks = tasks
        self._needs_peer = needs_peer
        self.patience = patience

    @contextmanager
    def within(self, what: str, *, seconds: float | None = None) -> Iterator[None]:
        """A wait with a name: a violation when it takes longer than `seconds` (default: the bench's patience)."""
        bound = self.patience if seconds is None else seconds
        with anyio.move_on_after(bound) as scope:
            yield
            return
        if scope.cancelled_caught:
            raise Violation(f"{what}: not within {bound:g} s")

    def start(self, call: Callable[[], Awaitable[T]]) -> Attempt[T]:
        """Make a call in a task of its own, beside the clause."""
        attempt = Attempt(self, call)
        self._tasks.start_soon(attempt.run)
        return attempt

    @asynccontextmanager
    async def opened(self, *, says: tuple[bytes, ...] = (), then: str | None = None) -> AsyncIterator[Stand]:
        """A subject that is not connected; closed afterwards in any case, without judging how."""
        async with self._medium.open(Play(says=says, then=then)) as subject:
            if self._needs_peer and subject.peer is None:
                raise Inexpressible(Reason.NO_PEER)
            try:
                yield Stand(self, subject)
            finally:
                # what close() owes is judged by the clauses about it; here it only makes room for the next one
                with anyio.move_on_after(subject.close_timeout + self.patience, shield=True), contextlib.suppress(Exception):
                    await subject.transport.close()

    @asynccontextmanager
    async def connected(self, *, says: tuple[bytes, ...] = (), then: str | None = None) -> AsyncIterator[Stand]:
        """A connected subject whose peer says `says` as soon as it can, and `then` ends, well or badly, or stays."""
        async with self.opened(says=says, then=then) as stand:
            await stand.connect()
            if not says and then is None and stand.subject.prime is not None:
                with self.within("the preparation of the subject"):
                    await stand.subject.prime()
            yield stand

    async def expect_raises(self, kinds: type[Exception] | tuple[type[Exception], ...], call: Awaitable[object], what: str) -> Exception:
        """The error that awaiting `call` raises; a violation when it is of another kind, or there is none, or it takes too long."""
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
