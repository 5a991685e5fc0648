"""The three bases of wrappers: `TransportWrapper` forwards everything, `LineWrapper` takes part in reading, `ObservingWrapper` watches.

A wrapper is a transport around another transport. It overrides what it changes and inherits the rest. The contract is in `transport`, and
the laws that every wrapper keeps are in `tests/wrappers/test_laws.py`.
"""

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
from claude_transport.transport import (
    Client,
    DecodedLines,
    SessionTerms,
    Transport,
    TransportInfo,
    TransportLike,
    attach_to,
    info_of,
    read_lines_of,
)

logger: logging.Logger = logging.getLogger(__name__)

P = ParamSpec("P")


class TransportWrapper(Transport):
    """A `Transport` that forwards every call to `transport`, which may be any object with the six methods.

    It adds nothing and costs nothing: its iterators are those of the transport inside, and errors pass unchanged. It closes the transport
    inside exactly once, however often `close()` is called. A subclass overrides the methods that it changes.
    """

    def __init__(self, transport: TransportLike) -> None:
        self._transport = transport
        self._wants_bytes = isinstance(transport, Transport)  # a transport written for the official SDK expects text
        self._close_attempt: anyio.Event | None = None
        self._closed = False

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
        """Return the messages of the transport inside."""
        return self._transport.read_messages()

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the lines of the transport inside, or its encoded messages when it has no lines."""
        return read_lines_of(self._transport)

    async def end_input(self) -> None:
        """End the input of the transport inside."""
        await self._transport.end_input()

    async def close(self) -> None:
        """Close the transport inside. A second call waits for the first one, and closes if the first one was cancelled."""
        while self._close_attempt is not None:
            await self._close_attempt.wait()
        if self._closed:
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

    def is_ready(self) -> bool:
        """Return whether the transport inside is ready."""
        return self._transport.is_ready()

    @property
    def info(self) -> TransportInfo:
        """What is known about the transport inside."""
        return info_of(self._transport)

    def attach(self, client: Client) -> SessionTerms:
        """Attach the transport inside and return its terms. Override it to change `client` on the way in, or the terms on the way out."""
        return attach_to(self._transport, client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport!r})"


def _text_of(data: bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as exc:
        raise UsageError(f"the transport inside takes only text, and these bytes are not UTF-8: {exc.reason}") from exc


class LineWrapper(TransportWrapper):
    """A `TransportWrapper` whose subclasses override `read_batch` to see or change what is read.

    Both views consist of the lines that `read_batch` returns. Lines that one view has not handed out yet stay here for the next view.
    While `is_idle` is True, a new view is that of the transport inside, and costs nothing.
    """

    def __init__(self, transport: TransportLike) -> None:
        super().__init__(transport)
        self._terms: SessionTerms | None = None
        self._decoder: LineDecoder | None = None
        self._pending: deque[bytes] = deque()
        self._reading = False

    @property
    def is_idle(self) -> bool:
        """True while there is nothing to do for what is read. It is asked once per iteration, at its beginning. Default: always False."""
        return False

    def attach(self, client: Client) -> SessionTerms:
        """Attach the transport inside and return its terms."""
        self._terms = super().attach(client)
        return self._terms

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the lines in batches."""
        source = read_lines_of(self.transport)
        return source if self.is_idle and not self._pending else _Batches(self, source)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return the messages one by one, as dicts. Lines that hold no message are left out and counted."""
        if self.is_idle and not self._pending:
            return self.transport.read_messages()
        # without a layer above that has attached, this wrapper is the one that decodes
        terms = self._terms or self.attach(Client(initializes=False))
        if self._decoder is None:
            self._decoder = LineDecoder(strict=terms.strict)
        return _Messages(self, read_lines_of(self.transport), pending=self._pending, decoder=self._decoder, terms=terms)

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """Return at least one line of `source`, the lines of the transport inside. Raises what ended the stream."""
        return await anext(source)

    async def next_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """Return the rest of an earlier batch, or the next batch. Called by the views.

        Raises:
            Busy: another task is reading.
        """
        if self._reading:
            raise Busy("another task is already reading from this transport")
        if self._pending:
            batch = list(self._pending)
            self._pending.clear()
            return batch
        self._reading = True
        try:
            return await self.read_batch(source)
        finally:
            self._reading = False


class _Batches:
    """One iteration over batches. It holds no lines, so leaving it loses nothing."""

    def __init__(self, wrapper: LineWrapper, source: AsyncIterator[Sequence[bytes]]) -> None:
        self._wrapper = wrapper
        self._source = source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        return await self._wrapper.next_batch(self._source)

    async def aclose(self) -> None:
        await _aclose(self._source)


class _Messages(DecodedLines):
    """One iteration over messages."""

    def __init__(
        self,
        wrapper: LineWrapper,
        source: AsyncIterator[Sequence[bytes]],
        *,
        pending: deque[bytes],
        decoder: LineDecoder,
        terms: SessionTerms,
    ) -> None:
        next_batch = functools.partial(wrapper.next_batch, source)
        super().__init__(next_batch, pending=pending, decoder=decoder, on_failure=terms.on_failure)
        self._source = source

    async def aclose(self) -> None:
        await _aclose(self._source)


async def _aclose(source: AsyncIterator[Sequence[bytes]]) -> None:
    """Close the iteration of the transport inside, if it can be closed."""
    aclose = getattr(source, "aclose", None)
    if aclose is not None:
        await aclose()


class ObservingWrapper(LineWrapper):
    """A `TransportWrapper` whose subclasses override the `on_…` methods they want; the other ones do nothing.

    Each of these methods is an ordinary method and must not block. It is called between the event and the caller that caused the event.
    An exception in it is logged once per wrapper and changes nothing. An `async` one is refused when the class is created (`UsageError`).
    Lines come as they were read, in batches, without terminators. The `data` of a write comes as it was given.

    While `is_idle` is True, none of them is called and reading costs nothing.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in filter(_is_hook, dir(ObservingWrapper)):
            hook = getattr(cls, name)
            if inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook):
                raise UsageError(f"{cls.__name__}.{name} must be an ordinary method, because it is not awaited: leave out `async`")

    def __init__(self, transport: TransportLike) -> None:
        super().__init__(transport)
        self._connect_told = False
        self._close_told = False
        self._end_told = False
        self._complained = False

    # The methods to override.

    def on_connecting(self) -> None:
        """Called when an attempt to connect begins. Not called again once an attempt has succeeded."""

    def on_connected(self) -> None:
        """Called when the attempt has succeeded."""

    def on_connect_failed(self, error: BaseException) -> None:
        """Called when the attempt has failed or was cancelled."""

    def on_writing(self, data: str | bytes) -> None:
        """Called when a write begins."""

    def on_written(self, data: str | bytes) -> None:
        """Called when the write has been handed over."""

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """Called when the write was refused, failed or was cancelled."""

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """Called for each batch of lines that was read."""

    def on_read_end(self, error: Exception | None) -> None:
        """Called once when there is nothing more to read, with the error that ended the stream, or None. A `UsageError` does not count."""

    def on_input_ended(self) -> None:
        """Called when `end_input()` has ended the input."""

    def on_closing(self) -> None:
        """Called once, when closing begins."""

    def on_closed(self, error: BaseException | None) -> None:
        """Called once, when closing is over. `error` is the exception that closing raised, or the cancellation that cut it short."""

    # The contract.

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
        """Return the next lines of the transport inside."""
        try:
            batch = await anext(source)
        except StopAsyncIteration:
            self._read_ended(None)
            raise
        except UsageError:
            raise  # a mistake of the reader: there may be more to read
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
        except Exception as error:  # noqa: BLE001 - an observer must never end a conversation
            if not self._complained:
                self._complained = True
                place = traceback.extract_tb(error.__traceback__)[-1]
                # The log handler may be the one that failed. The text of the error may quote the conversation, so it is not logged.
                with contextlib.suppress(Exception):
                    logger.warning("%s: %s raised in %s, line %s", type(self).__name__, type(error).__name__, place.filename, place.lineno)


def _is_hook(name: str) -> bool:
    return name.startswith("on_")
