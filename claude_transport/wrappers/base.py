"""`TransportWrapper`: a transport around another one, which does nothing yet. Subclasses change one thing and inherit the rest."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ParamSpec, Self

import anyio

from claude_transport.errors import Busy, UsageError
from claude_transport.protocol.codec import LineDecoder
from claude_transport.transport import Client, SessionTerms, Transport, TransportInfo, TransportLike, attach_to, read_lines_of


class _Rewrappable(Transport):
    # A class of its own, so that the __init__ of a wrapper is nearer than this __new__, and help() shows its arguments.

    _make_another: Callable[[TransportLike], Self]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # what it is made with, whatever a subclass takes besides the transport, for reconnect()
        self = super().__new__(cls)
        settings = {name: value for name, value in kwargs.items() if name != "transport"}
        self._make_another = functools.partial(_make, cls, args[1:], settings)
        return self


class TransportWrapper(_Rewrappable):
    """A `Transport` that hands every call to `transport`, which may be anything with the six methods, whoever wrote it.

    It adds nothing and costs nothing: the iterators are those of the wrapped transport. Errors pass as they are. The wrapped
    transport is closed exactly once, however often and from wherever the wrapper is.

    A subclass takes the wrapped transport as its first argument and everything else as it likes; `reconnect()` makes another one with
    the same arguments.
    """

    def __init__(self, transport: TransportLike) -> None:
        self._transport = transport
        # a transport written for the official SDK expects text
        self._wants_bytes = isinstance(transport, Transport)
        self._close_attempt: anyio.Event | None = None
        self._closed = False
        self._reconnecting: set[int] = set()  # ids of the tasks

    @property
    def transport(self) -> TransportLike:
        """The transport inside."""
        return self._transport

    async def connect(self) -> None:
        """Connect the transport inside."""
        await self._transport.connect()

    async def write(self, data: str | bytes) -> None:
        """Write to the transport inside."""
        if self._wants_bytes or isinstance(data, str):
            await self._transport.write(data)  # type: ignore[arg-type]
        else:
            await self._transport.write(_text_of(data))

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The messages of the transport inside."""
        return self._transport.read_messages()

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """The lines of the transport inside, encoded from its messages when it has no lines."""
        return read_lines_of(self._transport)

    async def end_input(self) -> None:
        """End the input of the transport inside."""
        await self._transport.end_input()

    async def close(self) -> None:
        """Close the transport inside; a second call waits for the first, and takes over from one that was cancelled."""
        while self._close_attempt is not None:
            await self._close_attempt.wait()
        if self._closed:
            if self._reconnecting and not self._closes_to_reconnect() and isinstance(self._transport, TransportWrapper):
                await self._transport.close()  # it is closed, but what waits in it to connect again is ended
            return
        self._close_attempt = attempt = anyio.Event()
        try:
            await self._transport.close()
            self._closed = True
        except Exception:
            self._closed = True  # as far as it will ever be
            raise
        finally:
            self._close_attempt = None
            attempt.set()

    async def reconnect(self) -> Self:
        """A new, connected wrapper made as this one was, around what the transport inside gives for its own `reconnect()`.

        This one is closed. When it fails, with what the transport inside raises, or is cancelled, there is no new one and nothing is left
        open; it may be called again.

        Raises:
            UsageError: the innermost transport has no `reconnect()`; nothing has happened.
        """
        innermost = self._transport
        while isinstance(innermost, TransportWrapper):
            innermost = innermost.transport
        if not hasattr(innermost, "reconnect"):
            raise UsageError(f"{type(innermost).__name__} has no reconnect(): make a new one instead")
        task = anyio.get_current_task().id
        self._reconnecting.add(task)
        try:
            await self.close()
            another = self.rewrapped(await self._transport.reconnect())  # type: ignore[attr-defined]
        finally:
            self._reconnecting.discard(task)
        try:
            await another.connect()  # what is inside is connected already: this is for what the wrapper does at that moment
        except BaseException:
            with anyio.CancelScope(shield=True):
                await another.close()
            raise
        return another

    def _closes_to_reconnect(self) -> bool:
        """Whether it is `reconnect()` that calls `close()`, and not somebody who has had enough."""
        return anyio.get_current_task().id in self._reconnecting

    def rewrapped(self, transport: TransportLike) -> Self:
        """A wrapper made as this one was, around `transport`, for `reconnect()`: override it to carry over what must not begin anew."""
        return self._make_another(transport)

    def is_ready(self) -> bool:
        """Whether the transport inside is."""
        return self._transport.is_ready()

    @property
    def info(self) -> TransportInfo:
        """What is known of the transport inside."""
        info = getattr(self._transport, "info", None)
        return info if isinstance(info, TransportInfo) else TransportInfo(kind=type(self._transport).__name__)

    def attach(self, client: Client) -> SessionTerms:
        """Attach the transport inside and return its terms. Override it to change what is handed down, or to add to the terms."""
        return attach_to(self._transport, client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport!r})"


def _make(cls: Callable[..., Any], positional: Sequence[Any], settings: dict[str, Any], transport: TransportLike) -> Any:
    return cls(transport, *positional, **settings)


def _text_of(data: bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as exc:
        raise UsageError(f"the transport inside takes text only, and these bytes are no UTF-8: {exc.reason}") from exc


# --- `LineWrapper`: a wrapper that takes part in the reading, line by line, without becoming visible to the reader.


class LineWrapper(TransportWrapper):
    """A `TransportWrapper` whose subclasses override `read_batch` to see or change what is read.

    Both views are made of the lines that it returns. What one view has not handed out yet stays here, for the next view.
    While `is_idle` is true, a new view is that of the transport inside, and costs nothing.
    """

    def __init__(self, transport: TransportLike) -> None:
        super().__init__(transport)
        self._terms: SessionTerms | None = None
        self._pending: deque[bytes] = deque()
        self._reading = False

    def attach(self, client: Client) -> SessionTerms:
        """Attach the transport inside and return its terms."""
        self._terms = super().attach(client)
        return self._terms

    @property
    def is_idle(self) -> bool:
        """True while there is nothing to do for what is read: asked once for each iteration, when it begins. By default, never."""
        return False

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """The lines in batches."""
        source = read_lines_of(self.transport)
        return source if self.is_idle and not self._pending else _Batches(self, source)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The messages one by one, as dicts; lines that hold none are left out and counted."""
        if self.is_idle and not self._pending:
            return self.transport.read_messages()
        terms = self._terms or self.attach(Client(initializes=False))  # nothing above has attached: the lines are decoded here
        return _Messages(self, read_lines_of(self.transport), pending=self._pending, terms=terms)

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """At least one line; `source` are the lines of the transport inside. Raises what the stream ended with."""
        return await anext(source)

    async def next_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """What is left of an earlier batch, or the next one (called by the views)."""
        if self._reading:
            raise Busy("somebody else is reading from this transport")
        if self._pending:
            batch = list(self._pending)
            self._pending.clear()
            return batch
        self._reading = True
        try:
            return await self.read_batch(source)
        finally:
            self._reading = False


class _View:
    """An iteration. It holds no state of its own, so leaving it loses nothing."""

    def __init__(self, wrapper: LineWrapper, source: AsyncIterator[Sequence[bytes]]) -> None:
        self._wrapper = wrapper
        self._source = source

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        """Close the iteration of the transport inside, when it is one that can be closed."""
        aclose = getattr(self._source, "aclose", None)
        if aclose is not None:
            await aclose()


class _Batches(_View):
    async def __anext__(self) -> Sequence[bytes]:
        return await self._wrapper.next_batch(self._source)


class _Messages(_View):
    def __init__(self, wrapper: LineWrapper, source: AsyncIterator[Sequence[bytes]], *, pending: deque[bytes], terms: SessionTerms) -> None:
        super().__init__(wrapper, source)
        self._pending = pending
        self._as_dict = LineDecoder(strict=terms.strict).as_dict
        self._on_failure = terms.on_failure

    # what is done here is done for each message: one more coroutine on the way costs 6 % of reading small messages
    async def __anext__(self) -> dict[str, Any]:
        pending = self._pending
        while True:
            if not pending:
                pending.extend(await self._wrapper.next_batch(self._source))
            message = self._as_dict(pending.popleft())
            if isinstance(message, dict):
                return message
            if message is not None and self._on_failure is not None:
                self._on_failure(message)


# --- `ObservingWrapper`: a wrapper that is told of everything that happens, and changes none of it.


logger: logging.Logger = logging.getLogger(__name__)

P = ParamSpec("P")


class ObservingWrapper(LineWrapper):
    """A `TransportWrapper` whose subclasses override what they want to be told of; the rest of it does nothing.

    Each of these is an ordinary method, called between the event and whoever caused it, so it must not block. What it raises is logged,
    once for each wrapper, and changes nothing. An `async` one, which nobody would await, is refused when the class is made
    (`UsageError`). Lines are told as they were read, in batches, without their terminators; `data` of a write
    as it was given.

    While `is_idle` is true nobody is told anything, and reading costs nothing: override it when that can be known beforehand.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in filter(_is_hook, dir(ObservingWrapper)):
            hook = getattr(cls, name)
            if inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook):
                raise UsageError(f"{cls.__name__}.{name} is an ordinary method, which is called and not awaited: leave out `async`")

    def __init__(self, transport: TransportLike) -> None:
        super().__init__(transport)
        self._connect_told = False
        self._close_told = False
        self._end_told = False
        self._complained = False

    # --------------------------------------------------------------------------------------------------------- to override

    def on_connecting(self) -> None:
        """An attempt to connect begins. Not told any more once one has succeeded."""

    def on_connected(self) -> None:
        """It succeeded."""

    def on_connect_failed(self, error: BaseException) -> None:
        """It failed, or was cancelled."""

    def on_writing(self, data: str | bytes) -> None:
        """A write begins."""

    def on_written(self, data: str | bytes) -> None:
        """It has been handed over."""

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """It was refused, failed, or was cancelled."""

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """These lines were read."""

    def on_read_end(self, error: Exception | None) -> None:
        """There is nothing more to read: all was well, or `error`. Told once, unless the error was one of use (`UsageError`)."""

    def on_input_ended(self) -> None:
        """The input was ended by `end_input()`."""

    def on_closing(self) -> None:
        """It is being closed. Told once."""

    def on_closed(self, error: BaseException | None) -> None:
        """It is closed, as far as it will ever be; `error` is what closing raised, or the cancellation that cut it short."""

    # -------------------------------------------------------------------------------------------------------- the contract

    async def connect(self) -> None:
        """Connect the transport inside."""
        if self._connect_told or self.is_idle:
            await super().connect()
            return
        self._tell(self.on_connecting)
        try:
            await super().connect()
        except BaseException as error:
            self._tell(self.on_connect_failed, error)
            raise
        self._connect_told = True
        self._tell(self.on_connected)

    async def write(self, data: str | bytes) -> None:
        """Write to the transport inside."""
        if self.is_idle:
            await super().write(data)
            return
        self._tell(self.on_writing, data)
        try:
            await super().write(data)
        except BaseException as error:
            self._tell(self.on_write_failed, data, error)
            raise
        self._tell(self.on_written, data)

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """The next lines of the transport inside."""
        try:
            batch = await anext(source)
        except StopAsyncIteration:
            self._read_ended(None)
            raise
        except UsageError:
            raise  # whoever reads did something wrong: there may be more to read
        except Exception as error:
            self._read_ended(error)
            raise
        self._tell(self.on_lines, batch)
        return batch

    async def end_input(self) -> None:
        """End the input of the transport inside."""
        await super().end_input()
        if not self.is_idle:
            self._tell(self.on_input_ended)

    async def close(self) -> None:
        """Close the transport inside."""
        if self._close_told or self.is_idle:
            await super().close()
            return
        self._close_told = True
        self._tell(self.on_closing)
        try:
            await super().close()
        except BaseException as error:
            self._tell(self.on_closed, error)
            raise
        self._tell(self.on_closed, None)

    def _read_ended(self, error: Exception | None) -> None:
        if not self._end_told:
            self._end_told = True
            self._tell(self.on_read_end, error)

    def _tell(self, hook: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            hook(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - an onlooker must never be what ends a conversation
            if not self._complained:
                self._complained = True
                place = traceback.extract_tb(error.__traceback__)[-1]
                # The handler that failed may be the one this goes to. And the error's text may hold what was said: it is not shown.
                with contextlib.suppress(Exception):
                    logger.warning("%s: %s raised in %s, line %s", type(self).__name__, type(error).__name__, place.filename, place.lineno)


def _is_hook(name: str) -> bool:
    return name.startswith("on_")
