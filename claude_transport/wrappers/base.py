"""The three bases of wrappers: `TransportWrapper` forwards everything, `LineWrapper` takes part in reading, `ObservingWrapper` watches.

A wrapper is a transport around another transport. It overrides what it changes and inherits the rest. The contract is in `transport`, and
the laws that every wrapper keeps are in `tests/wrappers/test_laws.py`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import re
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from typing import Any, Final, NoReturn, ParamSpec, Self, TypeVar

import anyio
import msgspec

from claude_transport.errors import Busy, ConfigurationError, UsageError, warn_caller
from claude_transport.loggers import logger_for
from claude_transport.protocol.codec import LineDecoder
from claude_transport.transport import (
    AtOnce,
    Client,
    Confidential,
    DecodedLines,
    SessionTerms,
    Transport,
    TransportInfo,
    TransportLike,
    attach_to,
    check_transport,
    confidential_of,
    info_of,
    read_lines_of,
)
from claude_transport.wrappers.own_lines import OwnLines, Pump, Woken

logger: logging.Logger = logger_for(__name__)

P = ParamSpec("P")

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
"""A line, and the end of a text without a newline."""

W = TypeVar("W", bound="TransportWrapper")


class TransportWrapper(Transport):
    """A `Transport` that forwards every call to the wrapped transport: `transport`, any object with the six methods of `TransportLike`.

    By itself it changes nothing: its iterators are those of the wrapped transport, and errors pass unchanged. It closes the wrapped
    transport exactly once, however often `close()` is called. A subclass overrides the methods that it changes.

    Raises:
        ConfigurationError: `transport` is not a transport.
    """

    def __init__(self, transport: TransportLike) -> None:
        check_transport(transport, of=type(self).__name__)
        self._transport = transport
        self._wants_bytes = isinstance(transport, Transport)  # a transport written for the official SDK expects text
        self._writing: anyio.Lock | None = None  # of such a transport, which may expect one write at a time
        self._close_attempt: anyio.Event | None = None
        self._closed = False
        self._claimed: set[Hashable] = set()
        why = transport.why_outermost if isinstance(transport, TransportWrapper) else ""
        if why:
            warn_caller(f"{type(self).__name__} is around a {type(transport).__name__}: {why}")

    # What wrappers in one stack have to know of each other: declared here, so that no wrapper looks into another one.

    @property
    def claims(self) -> frozenset[Hashable]:
        """What the wrappers from this one inwards have claimed, each for itself alone."""
        inside = self._transport.claims if isinstance(self._transport, TransportWrapper) else frozenset[Hashable]()
        return inside | self._claimed

    def claim(self, what: Hashable, *, taken: str, option: str = "transport") -> None:
        """Claim `what` for this wrapper alone, as two in one stack would disturb each other. Call it in `__init__`.

        `what` is an object that both would use, or any key: another wrapper that claims an equal one is refused. `taken` then says what is
        wrong and what to do. `option` is the argument that it is about.

        Raises:
            ConfigurationError: a wrapper inside has claimed it.
        """
        if what in self.claims:
            raise ConfigurationError(f"{type(self).__name__}: {taken}", option=option)
        self._claimed.add(what)

    @property
    def why_outermost(self) -> str:
        """Why no other wrapper should be around this one, as the end of a warning. Override it; the default is empty: any may be."""
        return ""

    @property
    def transport(self) -> TransportLike:
        """The wrapped transport, as it was given. It cannot be replaced: a transport connects once, and its reader and writers keep it."""
        return self._transport

    @transport.setter
    def transport(self, transport: object) -> NoReturn:
        raise UsageError(
            f"{type(self).__name__}.transport cannot be replaced. To go on over another transport, use FailoverTransport([make_a, make_b]) "
            "or RetryingTransport(transport, make_transport=…)"
        )

    def _wrap_instead(self, transport: TransportLike) -> None:
        """Wrap another transport. Only for one that was never connected: readers and writers keep the one that they know."""
        self._transport = transport
        self._wants_bytes = isinstance(transport, Transport)

    async def connect(self) -> None:
        """Connect the wrapped transport. Its errors pass unchanged."""
        await self._transport.connect()

    async def write(self, data: str | bytes) -> None:
        """Write `data`, one or more whole lines, to the wrapped transport. Its errors pass unchanged.

        A wrapped transport that is not a `Transport` of this library takes only text, and one line in each call. So bytes are decoded for
        it, and lines are written one after another.

        * `prompts.others-pass`: requests, answers and interrupts pass prompts that wait.
        * `prompts.order`: they are sent in the order in which they came, each once.
        * `prompts.cancelled-not-sent`: a sender that is cancelled while its prompt waits has sent nothing.

        So a method that overrides this one does not wait for anything else; `SessionTerms.with_before_prompt()` makes prompts wait.

        Raises:
            UsageError: bytes for such a transport are not UTF-8. Nothing was sent.
        """
        if self._wants_bytes:
            await self._transport.write(data)  # type: ignore[arg-type]
            return
        text = data if isinstance(data, str) else _text_of(data)
        self._writing = self._writing or anyio.Lock(fast_acquire=True)
        async with self._writing:
            for line in _LINE.findall(text) or (text,):
                await self._transport.write(line)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return the wrapped transport's iterator over messages, as dicts. It ends, or raises an error, as that iterator does."""
        return self._transport.read_messages()

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the wrapped transport's iterator over batches of raw lines, without newlines.

        For a transport without `read_lines()`, it encodes the dicts of `read_messages()`, one line in each batch.

        * `lines.cancelled-reader-loses-nothing`: cancelling a reader of lines loses none, also while the wrapper waits with lines that it
          has taken.
        """
        return read_lines_of(self._transport)

    async def end_input(self) -> None:
        """End the input of the wrapped transport: its peer learns that nothing more will be written. Reading continues."""
        await self._transport.end_input()

    async def close(self) -> None:
        """Close the wrapped transport; later calls do nothing and wait for the first. If the first was cancelled, the next one closes."""
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
        """Return `is_ready()` of the wrapped transport: True while it is connected, and neither closed nor known to be broken."""
        return self._transport.is_ready()

    @property
    def info(self) -> TransportInfo:
        """What the wrapped transport knows about its connection now; if it has no `info`, only the name of its class."""
        return info_of(self._transport)

    @property
    def confidential(self) -> Confidential:
        """What a redactor has to know of the wrapped transport. Override it in a wrapper that adds secrets of its own.

        * `terms.confidential`: what the wrapped transport declares as `confidential` is declared outside, too. More may be added.
        """
        return confidential_of(self._transport)

    @property
    def innermost(self) -> TransportLike:
        """The transport inside this wrapper and all wrappers in it."""
        inside = self._transport
        return inside.innermost if isinstance(inside, TransportWrapper) else inside

    def find(self, kind: type[W]) -> W | None:
        """Return the outermost wrapper of the class `kind`, from this one inwards. None when there is none."""
        if isinstance(self, kind):
            return self
        inside = self._transport
        return inside.find(kind) if isinstance(inside, TransportWrapper) else None

    def attach(self, client: Client) -> SessionTerms:
        """Return the `SessionTerms` of the wrapped transport, after telling it about `client`, the layer above (usually a `Query`).

        `Query` calls it before `connect()`. Override it to change `client`, or the `SessionTerms` that are returned. A wrapped transport
        that has only the six methods is not told, and the returned `SessionTerms` are empty. `pass_at_once()` says what the layer above
        may do without waiting.

        * `terms.values`: what the wrapped transport asks of a session is handed on. More may be added.
        * `terms.callbacks`: each of its callbacks is called, once for each call.
        * `terms.before-prompt`: so is its `before_prompt`, with the line that the one of the wrapper has returned.
        * `terms.storage`: so is its `storage`.
        """
        terms = attach_to(self._transport, client)
        return terms if terms.at_once is None else msgspec.structs.replace(terms, at_once=self.pass_at_once(terms.at_once))

    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        """Return what the layer above may do without waiting, where `inner` is what the wrapped transport does so. Called by `attach()`.

        The default withholds all of it, so every call goes through the methods of this wrapper. Override it in a wrapper that has nothing
        to do at times: what it returns is called instead of the methods, and each function may return False to have the method called.

        * `terms.at-once`: what it hands on keeps the order of lines, and sends each once: where a function returns False, nothing was done.
        * `terms.at-once-changes-nothing`: and it sends what `write()` would send.
        """
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport!r})"


def _text_of(data: bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as exc:
        raise UsageError(f"the transport inside takes only text, and these bytes are not UTF-8: {exc.reason}") from exc


class LineWrapper(TransportWrapper):
    """A `TransportWrapper` whose subclasses override `read_batch` to see or change the lines that are read.

    `read_lines()` and `read_messages()` both give the lines that `read_batch` returns. Lines that an iterator has not handed out when it is
    left are kept for the next iterator. While `is_idle` is True, a new iterator is that of the wrapped transport, so reading costs nothing
    extra.

    It can speak by itself: `inject()` to the reader, `send_later()` and `request()` to the peer.
    """

    keeps_taken_lines: bool = False
    """Set it to True in a subclass whose `read_batch` keeps the lines that it has taken itself, so that a cancellation cannot lose them."""

    speaks: bool = True
    """Set it to False in a subclass that only watches or changes lines. Then `inject()` is refused, and reading costs less."""

    def __init__(self, transport: TransportLike) -> None:
        super().__init__(transport)
        self._own: OwnLines | None = None
        self._pump: Pump | None = None
        self._terms: SessionTerms | None = None
        self._decoder: LineDecoder | None = None
        self._pending: deque[bytes] = deque()
        self._again: deque[Sequence[bytes]] = deque()
        self._reading = False

    @property
    def is_idle(self) -> bool:
        """True while this wrapper has nothing to do for the lines that are read. Override it; the default is always False.

        It is checked at each call of `read_lines()` and `read_messages()`. If it is True, the caller gets the iterator of the wrapped
        transport, unless lines of an earlier iterator are left. A later change has no effect on an iterator that was already returned.
        """
        return False

    def attach(self, client: Client) -> SessionTerms:
        """Return the `SessionTerms` of the wrapped transport, after telling it about `client`, the layer above (usually a `Query`).

        This class also keeps them, because they say how `read_messages()` treats a line that holds no message.
        """
        self._terms = super().attach(client)
        return self._terms

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """Return an iterator over the lines that `read_batch` returns, in batches, raw and without newlines."""
        source = self._lines_inside()
        return source if self._has_nothing_to_do else _Batches(self, source)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return an iterator over the messages on the lines that `read_batch` returns, one by one, as dicts.

        A line that holds no message is left out; the wrapped transport is told and counts it. If that transport is strict, such a line
        raises `CLIJSONDecodeError` or `LineTooLong`.
        """
        if self._has_nothing_to_do:
            return self.transport.read_messages()
        # without a layer above that has attached, this wrapper is the one that decodes
        terms = self._terms or self.attach(Client(initializes=False))
        if self._decoder is None:
            self._decoder = LineDecoder(strict=terms.strict)
        return _Messages(self, self._lines_inside(), pending=self._pending, decoder=self._decoder, terms=terms)

    @property
    def _has_nothing_to_do(self) -> bool:
        is_quiet = self._own is None or not self._own.has_injected
        is_between = self._pump is not None and not self._pump.is_over
        return self.is_idle and is_quiet and not is_between and not self._pending and not self._again

    def _lines_inside(self) -> AsyncIterator[Sequence[bytes]]:
        pump = None if self._pump is None or self._pump.is_over else self._pump
        if self._wants_bytes or not self.speaks or self.is_idle:
            return pump or read_lines_of(self.transport)
        self._pump = pump or Pump(read_lines_of(self.transport))
        return self._pump

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """Return the next lines, at least one. Override it to see or change them; the default returns the next batch of `source`.

        `source` gives the batches of the wrapped transport. At the end of the stream it raises `StopAsyncIteration` or the error that ended
        the stream; let that pass. Waiting after a batch was taken is allowed: when the call is cancelled there, the next call gets the
        batches that it has taken once more. So count lines after the last wait. A class that keeps them itself sets `keeps_taken_lines`.
        """
        return await anext(source)

    # What the wrapper says by itself.

    def inject(self, line: bytes | str) -> None:
        """Give `line` to the reader above, as if the peer had said it: after the lines that the reader has, before what the peer says next.

        Any task of the event loop may call it, at any time before the reader has got the end of the stream; also `read_batch`, whose own
        lines go first. A reader that waits is woken. `read_batch` does not see the line.

        * `own.injected-once`: it comes once, whole, and between the lines of the peer, whether or not a reader waits.

        Raises:
            UsageError: it is not one line, or `speaks` is False.
            Busy: 16 MiB wait for the reader already.
            TransportClosed: the reader has got the end of the stream, or the transport is closed.
        """
        if not self.speaks:
            raise UsageError(f"{type(self).__name__} only watches: set `speaks = True` in a class that injects lines")
        self._own_lines().inject(line)

    def send_later(self, line: bytes | str) -> None:
        """Send `line` to the peer soon, without waiting. It goes to the wrapped transport, so this wrapper's `write()` does not see it.

        For `read_batch` and the `on_…` methods: a `write()` in them may wait for a peer that waits for its own lines to be read. The lines
        are sent in their order, by a task of their own. `end_input()` waits for them. `close()` drops those that are not sent.

        * `own.sent-later-once`: it is sent once, in the order of the calls, never in the middle of another line, and before the end of the
          input.

        Raises:
            UsageError: it is not one line.
            Busy: 16 MiB wait for the peer already, which does not read.
            TransportClosed: the transport is closed. After a failed write, its error, whatever it is.

        Lines before `connect()` cannot be sent: they are dropped, with a warning in the log.
        """
        self._own_lines().send_later(line)

    async def request(self, subtype: str, *, timeout: float = 60.0, **fields: Any) -> dict[str, Any]:
        """Send a control request of this wrapper, and return the content of the answer as a dict. The reader above does not get that.

        The answer comes with the lines that are read, so something must be reading, and `read_batch` must not wait for it.

        Raises:
            ControlRequestFailed: the peer refused it.
            ControlTimeout: there was no answer within `timeout` seconds.
            ConnectionLost: the stream ended before the answer.
            UsageError: `timeout` is not a number of seconds.
            Busy, TransportClosed: as `send_later()`.
        """
        return await self._own_lines().request(subtype, fields, timeout=timeout)

    def _own_lines(self) -> OwnLines:
        if self._own is None:
            self._own = OwnLines(super().write)
        return self._own

    async def end_input(self) -> None:
        """End the input of the wrapped transport, after the lines of `send_later()`. Reading continues."""
        if self._own is not None:
            await self._own.flush()
        await super().end_input()

    async def close(self) -> None:
        """Close the wrapped transport; later calls do nothing and wait for the first. If the first was cancelled, the next one closes."""
        try:
            await super().close()
        finally:
            for part in (self._own, self._pump):
                if part is not None:
                    await part.aclose()

    async def next_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """Return the lines that an earlier iterator has left, or else the next batch of `read_batch(source)`. Called by the iterators.

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
            return await (self._next_or_own(source, self._own_lines()) if self.speaks else self._read(source))
        finally:
            self._reading = False

    async def _next_or_own(self, source: AsyncIterator[Sequence[bytes]], own: OwnLines) -> Sequence[bytes]:
        """Return the injected lines, or else the next batch without the answers to requests of this wrapper."""
        while not own.has_injected:
            own.raise_end()
            try:
                batch = await self._read(source, own)
            except Woken:
                break
            except Exception as end:
                if own.keeps_back(end):
                    break
                raise
            rest = own.without_answers(batch)
            if rest or not batch:
                return rest
        return own.take_injected()

    async def _read(self, source: AsyncIterator[Sequence[bytes]], own: OwnLines | None = None) -> Sequence[bytes]:
        kept = _KeptSource(source, again=self._again, own=own)
        try:
            return await self.read_batch(source if self.keeps_taken_lines and own is None else kept)
        except Exception:
            raise
        except BaseException:  # a cancellation, or an injected line
            if not self.keeps_taken_lines:
                self._again.extendleft(reversed(kept.taken))
            raise


class _KeptSource:
    """The batches of `source` for one call of `read_batch`, after those of a call that was cancelled. It keeps what the call has taken."""

    def __init__(self, source: AsyncIterator[Sequence[bytes]], *, again: deque[Sequence[bytes]], own: OwnLines | None) -> None:
        self.taken: list[Sequence[bytes]] = []
        self._source = source
        self._again = again
        self._own = own

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        if self._again:
            batch = self._again.popleft()
        else:
            batch = await (anext(self._source) if self._own is None else self._own.next_of(self._source))
        self.taken.append(batch)
        return batch


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
    """A `LineWrapper` that only watches: subclasses override the `on_…` methods that they want; the other ones do nothing.

    `connect()`, `write()`, `end_input()`, `close()` and the iterators call these methods, before they return to their own caller. So each
    is an ordinary method and must not block. Of the exceptions that they raise, the first one of each wrapper is logged; none changes
    anything. An `async` one raises `UsageError` when the subclass is defined. Lines come in batches as they were read, without newlines.
    The `data` of a write comes as it was given.

    While `is_idle` is True, none of them is called, and reading costs nothing extra. An iterator that was returned before continues to call
    them.
    """

    speaks = False

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
        """Called by `connect()` when an attempt begins, until one has succeeded. Override it; the default does nothing."""

    def on_connected(self) -> None:
        """Called by `connect()` when the first attempt has succeeded, and never again. Override it; the default does nothing."""

    def on_connect_failed(self, error: BaseException) -> None:
        """Called by `connect()` when an attempt has failed or was cancelled, with its exception. Override it; the default does nothing."""

    def on_writing(self, data: str | bytes) -> None:
        """Called by `write()` before it gives `data` to the wrapped transport. Override it; the default does nothing."""

    def on_written(self, data: str | bytes) -> None:
        """Called by `write()` when the wrapped transport has taken `data`. Override it; the default does nothing."""

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """Called by `write()` when it failed or was cancelled. Override it; the default does nothing.

        `error` is the exception: the wrapped transport refused `data`, or failed, or the call was cancelled. A part of `data` may have been
        sent.
        """

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """Called with each batch of lines that was read, before the reader gets it. Override it; the default does nothing."""

    def on_read_end(self, error: Exception | None) -> None:
        """Called once, when there is nothing more to read. Override it; the default does nothing.

        `error` is the exception that ended the stream; None when the stream ended well. A `UsageError`, such as that of a second reader, is
        not an end.
        """

    def on_input_ended(self) -> None:
        """Called by `end_input()` when the wrapped transport has ended its input. Override it; the default does nothing."""

    def on_closing(self) -> None:
        """Called once, by the first `close()`, before it closes the wrapped transport. Override it; the default does nothing."""

    def on_closed(self, error: BaseException | None) -> None:
        """Called once, by the first `close()`, when it is over. Override it; the default does nothing.

        `error` is the exception that closing raised, or the cancellation that cut it short; None when closing went well.
        """

    # The contract.

    async def connect(self) -> None:
        """Connect the wrapped transport; call `on_connecting` before, and `on_connected` or `on_connect_failed` after.

        Errors of the wrapped transport pass unchanged.
        """
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
        """Write `data` to the wrapped transport; call `on_writing` before, and `on_written` or `on_write_failed` after.

        Errors of the wrapped transport pass unchanged.
        """
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
        """Return the next batch of `source`, the lines of the wrapped transport, after `on_lines` was called with it.

        At the end of the stream it calls `on_read_end`, and then raises what `source` raised.
        """
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

    def pass_while_idle(self, inner: AtOnce) -> AtOnce:
        """Return an `AtOnce` that writes as `inner` does while `is_idle` is True, for a `pass_at_once()` of a subclass.

        The subclass must not override `write()`. Connecting, closing and the end of the input go through the methods.
        """

        def write(line: bytes) -> bool:
            return self.is_idle and inner.write(line)

        return AtOnce(connect=bool, write=write, end_input=bool, close=bool)

    async def end_input(self) -> None:
        """End the input of the wrapped transport, then call `on_input_ended`. Reading continues."""
        await super().end_input()
        if not self.is_idle:
            self._tell(self.on_input_ended)

    async def close(self) -> None:
        """Close the wrapped transport; call `on_closing` before and `on_closed` after. Later calls do nothing and wait for the first."""
        if self._close_told:
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
