"""`Medium`: something transports can be made of, again and again, each with a peer; and what callers may give in its place."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, cast

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import ConfigurationError
from claude_transport.testing.conformance.memory_peer import MemoryPeer
from claude_transport.testing.conformance.subject import Peer, Play, Reason, Subject
from claude_transport.transport import Transport


class Medium(ABC):
    """Makes subjects: `open(play)` gives a fresh one each time, and releases the peer afterwards (the kit closes the transport).

    `excludes` names the clauses that it cannot express, each with its reason.
    """

    name: str = "factory"
    excludes: Mapping[str, Reason] = {}

    def prepare(self) -> None:  # noqa: B027 - most media share nothing
        """Start what all its subjects share, unless it runs already; called before each clause, outside of its event loop.

        Raises:
            ConfigurationError: it cannot be started: no clause can be asked.
        """

    @abstractmethod
    def open(self, play: Play) -> AbstractAsyncContextManager[Subject]:
        """A subject whose peer says what `play` says."""


Factory: TypeAlias = Medium | Callable[[], Any] | Callable[[ByteStream], Transport]
"""A `Medium`; a callable without arguments that gives a `Transport`, a `Subject`, or an async context manager of a `Subject`; or a
callable that makes a `Transport` of the byte stream it is given."""


class LiveMedium(Medium):
    """A medium whose peer can act at any time: the play is acted out from beside the clause."""

    @abstractmethod
    def subject(self) -> AbstractAsyncContextManager[Subject]:
        """A fresh subject."""

    @asynccontextmanager
    async def open(self, play: Play) -> AsyncIterator[Subject]:
        """A fresh subject, and a task in which its peer acts out the play."""
        async with self.subject() as subject:
            if subject.peer is None or not (play.says or play.then):
                yield subject
                return
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_act, subject.peer, play)
                try:
                    yield subject
                finally:
                    tasks.cancel_scope.cancel()


async def _act(peer: Peer, play: Play) -> None:
    try:
        for chunk in play.says:
            await peer.send(chunk)
        if play.then == "finish":
            await peer.finish()
        elif play.then == "fail":
            await peer.fail()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        # the transport has gone away while it was spoken to: some clauses are about just that
        return


class ByteStreamMedium(LiveMedium):
    """Transports over one end of a pair of streams in memory; the kit plays the peer at the other end.

    `capacity` is that of `memory_stream_pair` (0: lockstep); `max_line_bytes` the transport's limit, if it has one, and `close_timeout`
    the seconds its `close()` may take.
    """

    def __init__(
        self,
        make: Callable[[ByteStream], Transport],
        *,
        name: str = "byte stream",
        capacity: int = 65536,
        max_line_bytes: int | None = None,
        close_timeout: float = 5.0,
        excludes: Mapping[str, Reason] | None = None,
    ) -> None:
        self._make = make
        self._capacity = capacity
        self._max_line_bytes = max_line_bytes
        self._close_timeout = close_timeout
        self.name = name
        self.excludes: Mapping[str, Reason] = {"connect.failure-is-clean": Reason.NO_REFUSAL, **(excludes or {})}

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """A transport over a new pair."""
        async with MemoryPeer.pair(capacity=self._capacity) as (stream, peer):
            transport = self._make(stream)
            yield Subject(
                transport=transport,
                peer=peer,
                max_line_bytes=self._max_line_bytes,
                close_timeout=self._close_timeout,
                absorbs=16 * max(self._capacity, 65536),
            )


class FactoryMedium(LiveMedium):
    """What a callable without arguments gives: a bare `Transport`, a `Subject`, or an async context manager of a `Subject`."""

    def __init__(self, make: Callable[[], Any], *, name: str = "factory", excludes: Mapping[str, Reason] | None = None) -> None:
        self._make = make
        self.name = name
        self.excludes: Mapping[str, Reason] = dict(excludes or {})

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """What the callable gives this time."""
        made = self._make()
        if isinstance(made, Transport):  # before the next question: a Transport is an async context manager too
            yield Subject(transport=made)
        elif isinstance(made, Subject):
            yield made
        elif isinstance(made, AbstractAsyncContextManager):
            async with made as entered:
                yield _subject_of(entered)
        else:
            raise ConfigurationError(f"the factory gave {type(made).__name__}, not a Transport or a Subject", option="factory")


def _subject_of(entered: object) -> Subject:
    if isinstance(entered, Subject):
        return entered
    raise ConfigurationError(f"the factory's context manager gave {type(entered).__name__}, not a Subject", option="factory")


class Wrapped(Medium):
    """`wrapper` around every transport of `medium`: a wrapper is a transport, and owes the same."""

    def __init__(
        self,
        medium: Medium,
        wrapper: Callable[[Transport], Transport],
        *,
        name: str | None = None,
        excludes: Mapping[str, Reason] | None = None,
    ) -> None:
        self._medium = medium
        self._wrapper = wrapper
        self.name: str = name or f"{getattr(wrapper, '__name__', type(wrapper).__name__)}({medium.name})"
        self.excludes: Mapping[str, Reason] = {**medium.excludes, **(excludes or {})}

    def prepare(self) -> None:
        """What the medium inside shares."""
        self._medium.prepare()

    @asynccontextmanager
    async def open(self, play: Play) -> AsyncIterator[Subject]:
        """A subject of the medium inside, wrapped."""
        async with self._medium.open(play) as inner:
            yield Subject(
                transport=self._wrapper(inner.transport),
                peer=inner.peer,
                refuse=inner.refuse,
                max_line_bytes=inner.max_line_bytes,
                close_timeout=inner.close_timeout,
                absorbs=inner.absorbs,
                prime=inner.prime,
            )


def as_medium(factory: Factory) -> Medium:
    """The medium behind what a caller gave; attributes `excludes` and `max_line_bytes` of a callable count.

    Raises:
        ConfigurationError: it is neither a `Medium` nor a callable with no or one argument.
    """
    if isinstance(factory, Medium):
        return factory
    if not callable(factory):
        raise ConfigurationError(f"a factory is a Medium or a callable, not {type(factory).__name__}", option="factory")
    excludes = getattr(factory, "excludes", None)
    name = getattr(factory, "__name__", type(factory).__name__)
    if _wants_a_stream(factory):
        limit = getattr(factory, "max_line_bytes", None)
        return ByteStreamMedium(cast("Callable[[ByteStream], Transport]", factory), name=name, max_line_bytes=limit, excludes=excludes)
    return FactoryMedium(cast("Callable[[], Any]", factory), name=name, excludes=excludes)


def _wants_a_stream(factory: Callable[..., Any]) -> bool:
    required = [
        parameter
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    ]
    if len(required) > 1 or any(parameter.kind is parameter.KEYWORD_ONLY for parameter in required):
        raise ConfigurationError("a factory takes no argument, or one: the byte stream to make a transport of", option="factory")
    return bool(required)
