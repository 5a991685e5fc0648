"""`StreamTransport`: makes a `Transport` of any byte stream that can be opened. Most transports of this package are made of it.

Locking, framing, the guard against a second reader, the counts of `info` and the order of closing are written once, in this file. A new
medium only needs an opener: an object whose `await connect()` returns an `anyio.abc.ByteStream`. The openers are in `streams`.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.errors import (
    Busy,
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    InputClosed,
    NotConnected,
    ProcessError,
    TransportClosed,
    TruncatedStream,
    UsageError,
)
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import FairLock, clock_here
from claude_transport.protocol.codec import LineDecoder, is_torn
from claude_transport.protocol.envelope import DecodeFailure, OversizedMessage
from claude_transport.protocol.framing import DEFAULT_MAX_LINE_BYTES, LineBlock, LineFramer, OversizedLine
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.at_once import ClosesInATask, FactsAtOnce, OpensAtOnce, Pourable, SendsAtOnce
from claude_transport.streams.inflow import CooperativeYield
from claude_transport.streams.room import MOST_READ_BYTES
from claude_transport.transport import (
    HURRIED_CLOSE,
    AtOnce,
    Client,
    DecodedLines,
    PouredBlocks,
    PouredLines,
    SessionTerms,
    Transport,
    TransportInfo,
)

logger: logging.Logger = logger_for(__name__)

DEFAULT_STREAM_CLOSE_TIMEOUT = 5.0
"""Seconds for closing a stream before it is dropped. A TLS peer, for example, may never answer the farewell."""

_COPIED_BYTES = 32 * 2**10
"""Size up to which data for a pipe is copied to get its last newline. Copying more takes longer than a second system call."""

_LOGGED_ONE_BY_ONE = 10
"""Bad lines of one kind that are logged individually. After that every doubling is logged, because a peer can write them without end."""

_Framed = TypeVar("_Framed", Sequence[bytes], LineBlock)
"""Lines that were just read: a batch, or a block."""

_FACTS: Mapping[str, Any] = {
    "address": StreamAttribute.address,
    "pid": StreamAttribute.pid,
    "started_at": StreamAttribute.started_at,
    "exit_code": StreamAttribute.exit_code,
    "signal": StreamAttribute.signal,
    "killed": StreamAttribute.killed,
    "stderr_tail": StreamAttribute.stderr_tail,
}
"""What `info` takes from the stream, when it knows it: field by attribute."""


class StreamTransport(Transport):
    """A `Transport` over any byte stream that `connectable` opens. The other end must speak JSON lines.

    Args:
        connectable: the opener: an object whose `await connect()` returns an `anyio.abc.ByteStream`. It is called once for each attempt to
            connect.
        max_line_bytes: the most bytes of a line. A longer line is left out and reported to a `Query` as an `OversizedMessage`; the next
            line is read as usual.
        close_timeout: seconds for the stream's own `aclose()`, before it is closed by force.
        strict: raise `CLIJSONDecodeError` or `LineTooLong` for a line that holds no message, instead of leaving it out.

    Raises:
        ConfigurationError: a limit or timeout is not a sensible number.
    """

    __slots__ = (
        "_after_close",
        "_bytes_read",
        "_bytes_written",
        "_close_timeout",
        "_closed",
        "_closer",
        "_connect_lock",
        "_connectable",
        "_connecting",
        "_decoder",
        "_failures",
        "_framer",
        "_input_ended",
        "_is_pipe",
        "_last_words",
        "_lines_read",
        "_pace",
        "_patience",
        "_pending",
        "_read_end",
        "_reading",
        "_send_eof_now",
        "_send_now",
        "_stream",
        "_strict",
        "_tap",
        "_torn",
        "_write_failure",
        "_write_lock",
    )

    acts_at_once: ClassVar[bool] = True
    """True when the transport may write, end its input and close without calling the methods of this class. `attach()` then offers it."""

    looks_at_lines: ClassVar[bool] = False
    """True for a class that changes `_accept()`: each line must go through that method."""

    def __init_subclass__(cls, *, at_once: bool = False, **arguments: Any) -> None:
        """Declare a subclass: `class Mine(StreamTransport, at_once=True)`.

        Without `at_once=True` its methods are always called, as it may have changed them. With it, it says that it has no work of its own
        in `connect()`, `write()`, `end_input()` and `close()`.
        """
        super().__init_subclass__(**arguments)
        cls.acts_at_once = at_once

    def __init__(
        self,
        connectable: ByteStreamConnectable,
        *,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
        close_timeout: float = DEFAULT_STREAM_CLOSE_TIMEOUT,
        strict: bool = False,
    ) -> None:
        check_bounds(max_line_bytes=max_line_bytes, close_timeout=close_timeout)
        self._connectable = connectable
        self._close_timeout = close_timeout
        self._stream: ByteStream | None = None
        self._is_pipe = False  # the stream has no frames: bytes that are sent apart arrive together
        self._framer = LineFramer(max_line_bytes=max_line_bytes)
        self._strict = strict
        self._decoder = LineDecoder(strict=strict)
        self._tap: Callable[[Sequence[bytes]], Sequence[bytes]] | None = None  # of a subclass that takes or adds lines
        self._last_words: Callable[[], Awaitable[Sequence[bytes]]] | None = None  # what it adds at the end of the stream
        self._after_close: Callable[[], Awaitable[object]] | None = None  # what it closes after the stream
        self._pending: deque[bytes] | None = None  # lines that `read_messages()` has read and not handed out yet
        self._failures = FailureCount(type(self).__name__)
        self._connect_lock = FairLock()
        self._connecting: anyio.CancelScope | None = None
        self._write_lock = FairLock()
        self._pace = CooperativeYield()
        self._reading = False
        self._input_ended = False
        self._write_failure: BaseException | None = None
        self._send_now: Callable[[bytes], bool] | None = None  # of the open stream, when it has that
        self._send_eof_now: Callable[[], object] | None = None
        self._torn = False  # a write was cancelled: half a line may be out
        self._read_end: _ReadEnd | None = None
        self._closer: LoopTask | None = None
        self._patience: anyio.CancelScope | None = None  # while the stream is closed
        self._closed = False
        self._bytes_read = self._bytes_written = self._lines_read = 0

    def attach(self, client: Client) -> SessionTerms:
        """Return `SessionTerms` that say whether this transport is strict.

        They also make the layer above report to this transport the lines that hold no message, which `info` counts, and let it call
        `hurry()`. `client` is not used here.
        """
        return SessionTerms(strict=self._strict, on_failure=self._failures, hurry=self.hurry, at_once=self._at_once())

    def _at_once(self) -> AtOnce | None:
        """Return what this transport does without waiting. None when the methods of its class have to be called."""
        return AtOnce(self.connect_now, self.write_now, self.end_input_now, self.close_now) if self.acts_at_once else None

    async def connect(self) -> None:
        """Open the stream. Does nothing when it is open.

        Raises:
            CLIConnectionError: the stream could not be opened. Nothing was sent, and `connect()` may be tried again.
            TransportClosed: `close()` was called, before or meanwhile.
        """
        if self._stream is not None and not self._closed:
            return  # no checkpoint here: a cancelled `async with` over a connected transport must still reach its `close()`
        async with self._connect_lock:
            self._refuse_if_closed()
            if self._stream is not None:
                return
            try:
                with anyio.CancelScope() as self._connecting:
                    self._use(await self._connectable.connect())
            except OSError as exc:
                raise CLIConnectionError(f"cannot connect: {exc}") from exc
            finally:
                self._connecting = None
        if self._closed:
            # close() was called meanwhile; it waits for the lock and then closes the stream
            await self._close_stream()
            raise TransportClosed("the transport was closed while it was connecting")

    def connect_now(self) -> bool:
        """Open the stream if nothing has to be waited for. Returns False when nothing was done: then call `connect()`.

        Raises what `connect()` raises.
        """
        opener = self._connectable if self.acts_at_once else None
        if not isinstance(opener, OpensAtOnce) or self._stream is not None or self._closed or self._connect_lock.locked():
            return False
        try:
            stream = opener.connect_now()
        except OSError as exc:
            raise CLIConnectionError(f"cannot connect: {exc}") from exc
        if stream is not None:
            self._use(stream)
        return stream is not None

    def _use(self, stream: ByteStream) -> None:
        self._stream = stream
        self._is_pipe = isinstance(stream, Pourable)
        if self.acts_at_once and isinstance(stream, SendsAtOnce):
            self._send_now = stream.send_whole_now
            self._send_eof_now = stream.send_eof_now

    def is_ready(self) -> bool:
        """Return True while the stream is open, and neither it nor the peer is known to be broken or gone."""
        broken = self._torn or self._write_failure is not None or self._read_end is not None
        return self._stream is not None and not self._closed and not broken and not self._fact(StreamAttribute.ended, False)

    # Writing.

    async def write(self, data: str | bytes) -> None:
        """Send `data`, one or more whole lines. A missing final newline is added, and a final CRLF becomes a newline.

        It waits while the peer does not read. A call that is cancelled while it sends leaves the transport broken for writing.

        Raises:
            UsageError: `data` is neither `str` nor bytes, or cannot be encoded as UTF-8.
            InputClosed, NotConnected: after `end_input()`, before `connect()`.
            TransportClosed: the peer is gone, or `close()` was called. It has the exit code, the signal and the end of standard error, if
                known.
        """
        payload, rest = self._halves_of(data)
        if rest and not (self._is_pipe and len(payload) + len(rest) > _COPIED_BYTES):
            payload, rest = b"".join((payload, rest)), b""
        stream = self._stream
        if stream is None or self._closed:
            stream = self._open_stream()  # raises
        async with self._write_lock:
            await self._pace.step(len(payload))  # takes a pending cancellation while nothing has been sent
            if self._closed or self._input_ended or self._torn or self._write_failure or self._read_end:
                self._refuse_if_unwritable()
            try:
                await stream.send(payload)
                if rest:
                    await stream.send(rest)
            except anyio.ClosedResourceError as exc:
                raise self._closed_error("the transport was closed during the write") from exc
            except (anyio.BrokenResourceError, OSError) as exc:
                self._write_failure = exc.__cause__ or exc
                raise self._closed_error("the peer is gone") from self._write_failure
            except BaseException:
                # A cancellation, or an exception that no stream should raise. It is unknown how much of the line was sent, and the
                # next line must not be glued to half of this one.
                self._torn = True
                raise
            self._bytes_written += len(payload) + len(rest)

    def _halves_of(self, data: object) -> tuple[Any, Any]:
        """Return what to send for `data`, in two parts, of which the second may be empty.

        `forward()` gives a `LineBlock`. A pipe takes it without a copy, because it also takes views.
        """
        if not isinstance(data, LineBlock):
            return _whole_lines(data)
        if not self._is_pipe:
            return bytes(data), b""
        first, *more = data.pieces
        return first, more[0] if more else b""

    def write_now(self, line: bytes) -> bool:
        """Send `line`, one whole line with its newline, if the stream takes all of it at once. Returns False when nothing was sent: then
        call `write()`, which waits, and raises what is wrong.
        """
        if self._send_now is None or self._closed or self._input_ended or self._torn or self._write_failure or self._read_end:
            return False
        if self._write_lock.locked() or not self._send_now(line):
            return False
        self._bytes_written += len(line)
        return True

    def end_input_now(self) -> bool:
        """Close the writing direction if the stream can do that at once. Returns False when nothing was done: then call `end_input()`."""
        if self._send_eof_now is None or self._closed or self._input_ended or self._write_lock.locked():
            return False
        self._input_ended = True
        self._send_eof_now()
        return True

    async def end_input(self) -> None:
        """Close the writing direction, after the writes that came before. Reading continues. Does nothing when the peer is gone.

        Raises:
            NotConnected: `connect()` was not called.
            TransportClosed: `close()` was called.
        """
        stream = self._open_stream()
        async with self._write_lock:
            if self._input_ended or self._closed:
                return
            await anyio.lowlevel.checkpoint()  # takes a pending cancellation while the input has not ended
            self._input_ended = True
            try:
                await stream.send_eof()
            except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                # the peer is gone, so it will read nothing more; that is what the caller asked for
                logger.debug("end of input to a peer that is gone", exc_info=True)
            except anyio.get_cancelled_exc_class():
                self._input_ended = False  # whether it was sent is unknown; ending it again does no harm
                raise

    def _refuse_if_unwritable(self) -> None:
        self._refuse_if_closed()
        if self._input_ended:
            raise InputClosed(
                "end_input() was called, so nothing more can be written. Write everything before it, or make a new transport."
            )
        if self._torn:
            raise TransportClosed("an earlier write was cancelled in the middle of a line: the connection cannot be written to any more")
        if self._write_failure is not None:
            raise self._closed_error("the peer is gone") from self._write_failure
        if self._read_end is not None and self._read_end.error is not None:
            raise self._closed_error("the peer is gone") from self._read_end.error

    # Reading.

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """Return an iterator over the lines as they come, in batches, raw and without newlines: one batch for each chunk of bytes.

        It ends when the peer has ended well or `close()` is called, and raises `ConnectionLost`, `ProcessError` or `TruncatedStream`
        otherwise.

        Raises:
            NotConnected: `connect()` was not called.
            TransportClosed: `close()` was called.
        """
        stream: Any = self._open_stream()
        poured = stream if self._is_pipe else None  # only a pipe has `pour()`
        next_batch = self._next_batch
        next_block = functools.partial(self._next, self._block_of, LineBlock.of)
        pour_blocks = functools.partial(self._pour, poured, next_block, self._block_of)
        if poured is None:
            return _BlockBatches(next_batch, pour_blocks)
        return _PouredBatches(next_batch, pour_blocks, functools.partial(self._pour, poured, next_batch, self._batch_of))

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return an iterator over the messages, one by one, as dicts. Lines that hold no message are left out; `info` counts them.

        It ends when the peer has ended well or `close()` is called, and raises `ConnectionLost`, `ProcessError` or `TruncatedStream`
        otherwise.

        Raises:
            NotConnected: `connect()` was not called.
            TransportClosed: `close()` was called.
        """
        self._open_stream()
        if self._pending is None:
            self._pending = deque()
        return DecodedLines(self._next_batch, pending=self._pending, decoder=self._decoder, on_failure=self._failures)

    def _next_batch(self) -> Coroutine[Any, Any, Sequence[bytes]]:
        return self._next(self._batch_of, _unchanged)

    async def _next(self, frame: Callable[[bytes], _Framed | None], whole: Callable[[Sequence[bytes]], _Framed]) -> _Framed:
        """Return what `frame` makes of the next chunk that completes a line, or what `whole` makes of lines that were read before.

        Raises `StopAsyncIteration` at a good end of the stream, and the typed cause at a bad one.
        """
        if self._reading:
            raise Busy("another task is already reading from this transport")
        if self._pending:
            batch = list(self._pending)
            self._pending.clear()
            return whole(batch)
        self._reading = True
        try:
            while (stream := self._stream) is not None and self._read_end is None and not self._closed:
                try:
                    chunk = await stream.receive(MOST_READ_BYTES)
                except anyio.ClosedResourceError:
                    break  # our own close(): the iteration simply ends
                except (anyio.EndOfStream, anyio.BrokenResourceError, ClaudeTransportError, OSError) as exc:
                    self._read_end = _ReadEnd(_error_of_end(exc))
                    if lines := self._last_lines():
                        self._lines_read += len(lines)
                        return whole(self._accept(lines))
                else:
                    if framed := frame(chunk):
                        return framed
            if self._last_words is not None and not self._closed and (lines := await self._last_words()):
                return whole(lines)
        finally:
            self._reading = False
        if self._read_end is not None and self._read_end.error is not None and not self._closed:
            raise self._read_end.error
        raise StopAsyncIteration

    def _batch_of(self, chunk: bytes) -> Sequence[bytes]:
        """Count a chunk that was read. Return the lines that it completes, which may be none."""
        self._bytes_read += len(chunk)
        lines = self._framer.feed(chunk)
        if not lines:
            return lines
        self._lines_read += len(lines)
        return self._accept(lines)

    def _block_of(self, chunk: bytes) -> LineBlock | None:
        """Count a chunk that was read. Return the lines that it completes in one piece, and None when it completes none."""
        if self._tap is not None or self.looks_at_lines:
            return LineBlock.of(lines) if (lines := self._batch_of(chunk)) else None
        self._bytes_read += len(chunk)
        block = self._framer.feed_block(chunk)
        if block is not None:
            self._lines_read += block.count
        return block

    async def _pour(
        self,
        stream: Pourable | None,
        take: Callable[[], Coroutine[Any, Any, _Framed]],
        frame: Callable[[bytes], _Framed | None],
        hand_on: Callable[[_Framed], bool],
    ) -> bool:
        """Push batches as `PouredLines.pour` says, or blocks as `PouredBlocks.pour_blocks`. With None, each is received first."""

        def feed(chunk: bytes) -> bool:
            framed = frame(chunk)
            return hand_on(framed) if framed else False

        while True:
            try:
                is_enough = hand_on(await take())  # the lines are not kept while this sleeps
            except StopAsyncIteration:
                return False
            if is_enough:
                return True
            if stream is None:
                continue
            self._reading = True
            try:
                if await stream.pour(feed):
                    return True
            except anyio.ClosedResourceError:
                pass  # the next batch reports it
            finally:
                self._reading = False

    def _end_reading(self, error: ClaudeTransportError) -> ClaudeTransportError:
        """End the stream with `error` for every reader from now on, and return it to be raised."""
        self._read_end = _ReadEnd(error)
        return error

    def _accept(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return the lines to hand on, of `lines` that were just read and counted. For a subclass that takes some of them for itself."""
        return lines if self._tap is None else self._tap(lines)

    def _last_lines(self) -> Sequence[bytes]:
        """Return a whole last line without its newline. A torn one becomes the error of the stream, or its cause."""
        tail = self._framer.finish()
        if isinstance(tail, OversizedLine) or not is_torn(tail):
            return (tail,) if tail else ()
        if self._read_end is not None:
            truncated = TruncatedStream(f"the stream ended inside a line, after {len(tail)} bytes of it", bytes_tail=tail)
            if self._read_end.error is None:
                self._read_end = _ReadEnd(truncated)
            else:
                self._read_end.error.__cause__ = truncated
        return ()

    # Closing.

    def close_now(self) -> bool:
        """Close the transport if nothing has to be waited for. Returns False when it is not closed: then call `close()`, which waits."""
        stream = self._stream
        if not isinstance(stream, ClosesInATask) or self._closed or self._after_close is not None or not self.acts_at_once:
            return False
        self._closed = True
        self._closer = stream.begin_close()
        return self._closer is None

    async def close(self) -> None:
        """End the input, wake waiting readers and writers, and release the stream, in `close_timeout` seconds.

        A cancelled close still closes, and hurries: it takes at most one second more. Later calls wait for the first one. A session store
        gets 10 seconds more for the rest of the transcript, and none after a cancellation.
        """
        try:
            await self._close()
        finally:
            if self._after_close is not None:
                await self._after_close()

    async def _close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        elif self._stream is None:
            await anyio.lowlevel.checkpoint()
            return
        await self._close_stream()

    async def _close_stream(self) -> None:
        if self._closer is None:
            try:
                # a stream that ends in a task of its own, or at once, needs no second task
                if isinstance(self._stream, ClosesInATask):
                    self._closer = self._stream.begin_close()
                else:
                    self._closer = LoopTask.spawn(self._aclose, name="close transport")
            except RuntimeError:  # the event loop is ending and takes no new task
                await self._aclose()
                return
        if self._closer is None:
            await anyio.lowlevel.checkpoint()
            return
        try:
            await self._closer.wait()
        except anyio.get_cancelled_exc_class():
            self.hurry(HURRIED_CLOSE)
            await self._closer.join()
            raise

    def hurry(self, seconds: float) -> None:
        """Have `close()` take `seconds` from now at most, also when it is under way. Does not begin to close. The least value counts."""
        self._close_timeout = min(self._close_timeout, max(seconds, 0.0))
        if self._patience is not None:
            self._patience.deadline = min(self._patience.deadline, clock_here()() + self._close_timeout)
        if isinstance(self._stream, ClosesInATask):
            self._stream.hurry(self._close_timeout)

    async def _aclose(self) -> None:
        async with self._connect_lock:  # a connect() under way has ended
            stream = self._stream
        if stream is None:
            return
        try:
            with anyio.move_on_after(self._close_timeout) as self._patience:
                await stream.aclose()
            if self._patience.cancelled_caught:
                await anyio.aclose_forcefully(stream)
        except (anyio.BrokenResourceError, OSError):
            logger.debug("the stream was broken when it was closed", exc_info=True)

    # Facts.

    @property
    def info(self) -> TransportInfo:
        """What is known about the connection now: address, process and how it ended, as far as there is one, and the counts."""
        facts: Any = {} if self._stream is None else self._stream.extra_attributes
        known: dict[str, Any]
        if isinstance(facts, FactsAtOnce):  # a process tells them together, which costs less
            known = facts.snapshot()
        else:
            known = {name: facts[attribute]() for name, attribute in _FACTS.items() if attribute in facts}
        return TransportInfo(
            kind=type(self).__name__,
            pgid=known.get("pid"),
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            lines_read=self._lines_read,
            **known,
            **self._failures.counts(),
        )

    def _fact(self, attribute: Any, default: Any) -> Any:
        get = None if self._stream is None else self._stream.extra_attributes.get(attribute)
        return default if get is None else get()

    def _open_stream(self) -> ByteStream:
        self._refuse_if_closed()
        if self._stream is None:
            raise NotConnected("connect() has not been called, or did not succeed: use `async with`, or await connect() first")
        return self._stream

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise self._closed_error("the transport is closed")

    def _closed_error(self, message: str) -> TransportClosed:
        cause = self._read_end.error if self._read_end is not None else self._write_failure
        if isinstance(cause, ProcessError):
            return TransportClosed(message, exit_code=cause.exit_code, signal=cause.signal, stderr_tail=cause.stderr_tail)
        return TransportClosed(
            message,
            exit_code=self._fact(StreamAttribute.exit_code, None),
            signal=self._fact(StreamAttribute.signal, None),
            stderr_tail=self._fact(StreamAttribute.stderr_tail, ""),
        )


class FailureCount:
    """Counts and logs the lines that held no message: call it with each `DecodeFailure` or `OversizedMessage`.

    Args:
        transport: the name of the transport, for the log.
    """

    def __init__(self, transport: str) -> None:
        self._transport = transport
        self._by_kind: dict[str, int] = {}

    def __call__(self, failure: DecodeFailure | OversizedMessage) -> None:
        kind = "oversized" if isinstance(failure, OversizedMessage) else failure.kind
        self._by_kind[kind] = count = self._by_kind.get(kind, 0) + 1
        if count <= _LOGGED_ONE_BY_ONE or count & (count - 1) == 0:
            so_far = f", {count} so far" if count > _LOGGED_ONE_BY_ONE else ""
            # nothing of the line is logged: it may be a part of the conversation
            logger.warning("%s: left out a line that holds no message (%s, %d bytes%s)", self._transport, kind, len(failure.raw), so_far)

    def counts(self) -> dict[str, Any]:
        """Return the fields of `TransportInfo` that count left-out lines: none when there were no such lines."""
        if not self._by_kind:
            return {}
        oversized = self._by_kind.get("oversized", 0)
        noise = sum(self._by_kind.values()) - oversized
        return {"noise_lines": noise, "malformed_lines": noise - self._by_kind.get("noise", 0), "oversized_lines": oversized}


def check_bounds(**bounds: object) -> None:
    """Check the limits of a transport: every `…_bytes` is a whole number of at least 1, every timeout at least 0 seconds.

    Raises:
        ConfigurationError: names the first one that is not.
    """
    for option, value in bounds.items():
        if option.endswith("_bytes"):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"{option} must be a whole number of at least 1 byte, not {value!r}", option=option)
        elif isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ConfigurationError(f"{option} must be a number of seconds, 0 or more, not {value!r}", option=option)


class LineBatches:
    """One iteration over the batches that `next_batch` returns. It holds no lines, so leaving it loses nothing."""

    def __init__(self, next_batch: Callable[[], Coroutine[Any, Any, Sequence[bytes]]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Sequence[bytes]]:
        return self._next_batch()  # not awaited here: that would cost a frame


class _BlockBatches(LineBatches, PouredBlocks):
    """The same iteration, which can also push its lines undivided."""

    def __init__(
        self,
        next_batch: Callable[[], Coroutine[Any, Any, Sequence[bytes]]],
        pour_blocks: Callable[[Callable[[LineBlock], bool]], Coroutine[Any, Any, bool]],
    ) -> None:
        super().__init__(next_batch)
        self._pour_blocks = pour_blocks

    async def pour_blocks(self, hand_on: Callable[[LineBlock], bool]) -> bool:
        return await self._pour_blocks(hand_on)


class _PouredBatches(_BlockBatches, PouredLines):
    """The same iteration, which can also push its batches."""

    def __init__(
        self,
        next_batch: Callable[[], Coroutine[Any, Any, Sequence[bytes]]],
        pour_blocks: Callable[[Callable[[LineBlock], bool]], Coroutine[Any, Any, bool]],
        pour: Callable[[Callable[[Sequence[bytes]], bool]], Coroutine[Any, Any, bool]],
    ) -> None:
        super().__init__(next_batch, pour_blocks)
        self._pour = pour

    def pour(self, hand_on: Callable[[Sequence[bytes]], bool]) -> Coroutine[Any, Any, bool]:
        return self._pour(hand_on)  # not awaited here: that would cost a frame


def _unchanged(lines: Sequence[bytes]) -> Sequence[bytes]:
    return lines


class _ReadEnd(msgspec.Struct):
    """The end of the stream, and its error, if any."""

    error: ClaudeTransportError | None


def _error_of_end(exc: Exception) -> ClaudeTransportError | None:
    """Return the error of a stream that ended with `exc`; None for a good end."""
    if isinstance(exc, anyio.EndOfStream):
        return None
    if isinstance(exc, ClaudeTransportError):
        return exc
    lost = ConnectionLost(f"the connection broke while reading: {exc}")
    lost.__cause__ = exc
    return lost


def bytes_to_send(data: Any) -> bytes:
    """Return `data` in UTF-8. Raises `UsageError` for what is not text."""
    try:
        return data.encode() if isinstance(data, str) else data if data.__class__ is bytes else bytes(memoryview(data))
    except UnicodeEncodeError as exc:
        raise UsageError(f"the text cannot be sent as UTF-8: {exc.reason}") from exc
    except TypeError as exc:
        raise UsageError(f"a transport sends str or bytes, not {type(data).__name__}") from exc


def _whole_lines(data: Any) -> tuple[bytes, bytes]:
    """Return `data` in UTF-8, and the newline that its end needs: b"" when it has one. Raises `UsageError` for what is not text."""
    payload = bytes_to_send(data)
    if payload.endswith(b"\r\n"):
        return payload[:-2], b"\n"
    return payload, b"" if payload.endswith(b"\n") else b"\n"
