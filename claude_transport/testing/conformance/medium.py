"""`Medium`: makes subjects for the kit, one after the other; and the conversion of what callers may pass instead of one."""

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
from claude_transport.testing.conformance.subject import Inexpressible, Peer, Play, Reason, Subject
from claude_transport.transport import Transport


class Medium(ABC):
    """Makes transports for the conformance kit to test. Subclass it to test a transport over a medium of your own.

    `open(play)` gives a new `Subject` each time and releases the peer afterwards; the kit closes the transport. `name` is the name in the
    report. `excludes` maps the ids of clauses that cannot be tested with this medium to their reasons. `is_wrapper` is True when it has an
    `around()`, so that `WRAPPER_CLAUSES` can be tested.
    """

    name: str = "factory"
    excludes: Mapping[str, Reason] = {}
    is_wrapper: bool = False

    def prepare(self) -> None:  # noqa: B027 - most media share nothing
        """Start what all subjects of this medium share, such as a server, unless it is running. By default it does nothing.

        The kit calls it before each clause, outside the event loop.

        Raises:
            ConfigurationError: it cannot be started, so no clause can be tested.
        """

    @abstractmethod
    def open(self, play: Play) -> AbstractAsyncContextManager[Subject]:
        """Give the `async with` block a new `Subject`, not connected, whose peer acts as `play` says. Release the peer after the block.

        A subclass implements it. The kit calls it for each clause, and closes the transport itself.
        """

    def around(self, inside: Transport) -> AbstractAsyncContextManager[Transport]:
        """Give the `async with` block a new wrapper around `inside`, a transport of the kit. Only media of wrappers have it."""
        raise Inexpressible(Reason.NO_WRAPPER)


Factory: TypeAlias = Medium | Callable[[], Any] | Callable[[ByteStream], Transport]
"""A `Medium`; or a function without arguments that returns a `Transport`, a `Subject`, or an async context manager of a `Subject`; or a
function that takes a byte stream and returns a `Transport`."""


class LiveMedium(Medium):
    """A medium whose peer can act at any time: a task beside the clause runs the play."""

    @abstractmethod
    def subject(self) -> AbstractAsyncContextManager[Subject]:
        """Give a new subject."""

    @asynccontextmanager
    async def open(self, play: Play) -> AsyncIterator[Subject]:
        """Give a new subject, and run the play in a task."""
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
        # the transport was closed while the peer was sending, which some clauses do on purpose
        return


class ByteStreamMedium(LiveMedium):
    """Makes transports over one end of a pair of byte streams in memory, for the conformance kit, which plays the peer at the other end.

    Args:
        make: takes a byte stream and returns the transport over it, not connected.
        name: the name in the report.
        capacity: bytes that each stream can hold; 0 makes every write wait for the reader.
        max_line_bytes: the line limit of the transport, if it has one.
        close_timeout: seconds that its `close()` may take.
        excludes: clauses that cannot be tested, with their reasons.
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
        """Give the `async with` block a new `Subject`: a transport over a new pair of streams, and its peer.

        The streams are broken after the block.
        """
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
    """Make subjects with a function that returns a `Transport`, a `Subject`, or an async context manager of a `Subject`."""

    def __init__(self, make: Callable[[], Any], *, name: str = "factory", excludes: Mapping[str, Reason] | None = None) -> None:
        self._make = make
        self.name = name
        self.excludes: Mapping[str, Reason] = dict(excludes or {})

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """Call the function, and give its subject."""
        made = self._make()
        if isinstance(made, Transport):  # checked first, because a Transport is an async context manager too
            yield Subject(transport=made)
        elif isinstance(made, Subject):
            yield made
        elif isinstance(made, AbstractAsyncContextManager):
            async with made as entered:
                yield _subject_of(entered)
        else:
            raise ConfigurationError(
                f"the factory returned {type(made).__name__}; it must return a Transport or a Subject", option="factory"
            )


def _subject_of(entered: object) -> Subject:
    if isinstance(entered, Subject):
        return entered
    raise ConfigurationError(f"the context manager of the factory gave {type(entered).__name__}; it must give a Subject", option="factory")


class Wrapped(Medium):
    """Put `wrapper` around every transport of `medium`. A wrapper is a transport and must keep the same clauses."""

    is_wrapper = True

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
        """Start what the inner medium shares."""
        self._medium.prepare()

    @asynccontextmanager
    async def open(self, play: Play) -> AsyncIterator[Subject]:
        """Give a subject of the inner medium, with its transport wrapped."""
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

    @asynccontextmanager
    async def around(self, inside: Transport) -> AsyncIterator[Transport]:
        """Give the wrapper around `inside`, with those of the inner medium between the two."""
        if not self._medium.is_wrapper:
            yield self._wrapper(inside)
            return
        async with self._medium.around(inside) as wrapped:
            yield self._wrapper(wrapped)


class _Excluding(Medium):
    """A medium, of which more clauses are excluded."""

    def __init__(self, medium: Medium, excludes: Mapping[str, Reason]) -> None:
        self._medium = medium
        self.name = medium.name
        self.excludes: Mapping[str, Reason] = {**medium.excludes, **excludes}
        self.is_wrapper = medium.is_wrapper

    def prepare(self) -> None:
        self._medium.prepare()

    def open(self, play: Play) -> AbstractAsyncContextManager[Subject]:
        return self._medium.open(play)

    def around(self, inside: Transport) -> AbstractAsyncContextManager[Transport]:
        return self._medium.around(inside)


def as_medium(factory: Factory, *, excludes: Mapping[str, Reason] | None = None) -> Medium:
    """Convert what a caller passed to a `Medium`. The attributes `excludes` and `max_line_bytes` of a function are used.

    `excludes` are more clauses that cannot be tested, with their reasons.

    Raises:
        ConfigurationError: it is neither a `Medium` nor a callable with no or one argument.
    """
    medium = _made_of(factory)
    return _Excluding(medium, excludes) if excludes else medium


def _made_of(factory: Factory) -> Medium:
    if isinstance(factory, Medium):
        return factory
    if not callable(factory):
        raise ConfigurationError(f"factory: {type(factory).__name__} is neither a Medium nor callable", option="factory")
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
        raise ConfigurationError("factory: it must take no argument, or one positional argument, the byte stream", option="factory")
    return bool(required)
