"""`StreamTransport`: the one real transport. Whatever can be opened as a byte stream becomes a `Transport` here.

Locking, framing, the single-reader guard, state and the order of closing are written once, in this file. A new medium is an
opener: an object whose `await connect()` gives an `anyio.abc.ByteStream`.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Protocol, Self, runtime_checkable

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.background import BackgroundTask
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
from claude_transport.protocol.codec import LineDecoder, decode_message
from claude_transport.protocol.envelope import DecodeFailure, OversizedMessage
from claude_transport.protocol.framing import DEFAULT_MAX_LINE_BYTES, LineFramer, OversizedLine
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.inflow import Pace
from claude_transport.transport import Client, PouredLines, SessionTerms, Transport, TransportInfo

# --- The two views of a transport's lines: undecoded in batches, and as dicts one by one. They hold no state of their own.


NextBatch = Callable[[], Coroutine[Any, Any, Sequence[bytes]]]
HandOn = Callable[[Sequence[bytes]], bool]


@runtime_checkable
class Pourable(Protocol):
    """A stream that can hand on what comes where it is noticed, without waking who waits for it."""

    async def pour(self, hand_on: Callable[[bytes], bool]) -> bool:
        """Hand each chunk to `hand_on` until that returns True: True then, False when `receive()` has something to say."""
        ...


class LineView:
    """The batches that `next_batch` gives. Leaving it loses nothing."""

    def __init__(self, next_batch: NextBatch) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Sequence[bytes]]:
        return self._next_batch()  # not awaited here: that would cost a frame


class PouredLineView(LineView, PouredLines):
    """The same, and `pour` hands them on."""

    def __init__(self, next_batch: NextBatch, pour: Callable[[HandOn], Coroutine[Any, Any, bool]]) -> None:
        super().__init__(next_batch)
        self._pour = pour

    async def pour(self, hand_on: HandOn) -> bool:
        """See `PouredLines`."""
        return await self._pour(hand_on)


class DictView:
    """The objects on the lines that `next_batch` gives. What was read and not yet handed out stays in `pending`, the transport's."""

    def __init__(
        self,
        next_batch: NextBatch,
        *,
        pending: deque[bytes],
        decoder: LineDecoder,
        count_failure: Callable[[DecodeFailure | OversizedMessage], object],
    ) -> None:
        self._next_batch = next_batch
        self._pending = pending
        self._as_dict = decoder.as_dict
        self._count_failure = count_failure

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        pending = self._pending
        while True:
            if not pending:
                pending.extend(await self._next_batch())
            message = self._as_dict(pending.popleft())
            if isinstance(message, dict):
                return message
            if message is not None:
                self._count_failure(message)


# --- Lines at both ends of a transport: whole ones, as they are sent, and torn ones, as a stream that breaks off leaves them.


_LOGGED_ONE_BY_ONE = 10
"""Bad lines of a kind that are logged each; then only every doubling of their number is, for a peer can write them without end."""


def whole_lines(data: str | bytes) -> bytes:
    """`data` in UTF-8 with exactly one newline at its end; raises `UsageError` for what is no text."""
    try:
        payload = data.encode() if isinstance(data, str) else bytes(memoryview(data))
    except UnicodeEncodeError as exc:
        raise UsageError(f"the text cannot be sent as UTF-8: {exc.reason}") from exc
    except TypeError as exc:
        raise UsageError(f"a transport sends str or bytes, not {type(data).__name__}") from exc
    if payload.endswith(b"\r\n"):
        return payload[:-2] + b"\n"
    return payload if payload.endswith(b"\n") else payload + b"\n"


def is_torn(tail: bytes) -> bool:
    """Whether `tail` is the beginning of an object and nothing more: not even the most patient reader sees a whole one."""
    if not tail.lstrip().startswith(b"{"):
        return False
    message = decode_message(tail)
    return isinstance(message, DecodeFailure) and message.kind in ("malformed", "invalid_utf8")


def log_failure(logger: logging.Logger, failure: DecodeFailure | OversizedMessage, *, transport: str, count: int) -> None:
    """Warn that a line held no message, the `count`th of its kind; nothing of the line is logged. Of many lines only a few are logged."""
    if count <= _LOGGED_ONE_BY_ONE or count & (count - 1) == 0:
        kind = "oversized" if isinstance(failure, OversizedMessage) else failure.kind
        so_far = f", {count} so far" if count > _LOGGED_ONE_BY_ONE else ""
        logger.warning("%s: left out a line that holds no message (%s, %d bytes%s)", transport, kind, len(failure.raw), so_far)


# --- The numbers that bound a transport, checked when it is made: a limit of nothing would lose every line, a NaN would never expire.


def check_bounds(**bounds: object) -> None:
    """Return when every `…_bytes` is an int of at least 1, and every timeout a number of seconds that is not negative.

    Raises `ConfigurationError` with the name of the first that is not.
    """
    for option, value in bounds.items():
        if option.endswith("_bytes"):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"{option} is a whole number of at least 1 byte, not {value!r}", option=option)
        elif isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ConfigurationError(f"{option} is a number of seconds, 0 or more, not {value!r}", option=option)


# --- `Remakable`: a transport that knows what it was made with, so that another one can be made.


class Remakable(Transport):
    """Remembers its arguments, whatever a subclass takes, for `reconnect()`.

    It is a class of its own so that the `__init__` of a transport is nearer than this `__new__`, and `help()` shows its arguments.
    """

    _make_another: Callable[[], Self]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self._make_another = functools.partial(cls, *args, **kwargs)
        return self


logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_STREAM_CLOSE_TIMEOUT = 5.0
"""Seconds that closing a stream may take before it is dropped: a TLS peer, for one, may never answer the farewell."""

_CHUNK_BYTES = 64 * 2**10
"""Bytes asked for per read: a pipe holds no more on Linux, and a batch of small messages is a few hundred lines."""


class StreamTransport(Remakable):
    """A `Transport` over any byte stream that `connectable` opens.

    Args:
        connectable: the opener; its `connect()` is called once for each attempt to connect.
        max_line_bytes: a longer line costs that one message (`OversizedMessage`), never the stream.
        close_timeout: seconds that the stream's own `aclose()` may take before it is closed by force.
        strict: raise `CLIJSONDecodeError` or `LineTooLong` for a bad line instead of leaving it out.
    """

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
        self._framer = LineFramer(max_line_bytes=max_line_bytes)
        self._strict = strict
        self._decoder = LineDecoder(strict=strict)
        self._pending: deque[bytes] = deque()  # lines read from the stream that no view has handed out yet
        self._connect_lock = anyio.Lock()
        self._connecting: anyio.CancelScope | None = None
        self._write_lock = anyio.Lock(fast_acquire=True)
        self._pace = Pace()
        self._reading = False
        self._input_ended = False
        self._write_failure: BaseException | None = None
        self._torn = False  # a write was cancelled: half a line may be out
        self._read_end: _ReadEnd | None = None
        self._closer: BackgroundTask | None = None
        self._closed = False
        self._bytes_read = self._bytes_written = self._lines_read = 0
        self._failures: dict[str, int] = {}

    # ---------------------------------------------------------------------------------------------------------- connecting

    def attach(self, client: Client) -> SessionTerms:
        """Return terms that say whether this transport is strict, and count bad lines for `info`."""
        return SessionTerms(strict=self._strict, on_failure=self._count_failure)

    async def connect(self) -> None:
        """Open the stream."""
        if self._stream is not None and not self._closed:
            return  # not a point of cancellation: who enters `async with` with it must get as far as the closing end of the block
        async with self._connect_lock:
            self._refuse_if_closed()
            if self._stream is not None:
                return
            try:
                with anyio.CancelScope() as self._connecting:
                    self._stream = await self._connectable.connect()
            except OSError as exc:
                raise CLIConnectionError(f"cannot connect: {exc}") from exc
            finally:
                self._connecting = None
        if self._closed:
            # close() came meanwhile; it waits for the lock, and takes what there is behind it
            await self._close_stream()
            raise TransportClosed("the transport was closed while it was connecting")

    def is_ready(self) -> bool:
        """True while connected, not closed, and the peer is not known to be gone."""
        broken = self._torn or self._write_failure is not None or self._read_end is not None
        return self._stream is not None and not self._closed and not broken and not self._fact(StreamAttribute.ended, False)

    async def reconnect(self) -> Self:
        """A new, connected transport, made as this one was; this one is closed. Nothing that was said is said again.

        Also for one that was closed before, or whose peer is gone. When it fails, with what `connect()` raises, or is cancelled, there
        is no new transport and nothing is left open; it may be called again.
        """
        another = self._another()
        await self.close()
        await another.connect()
        return another

    def _another(self) -> Self:
        return self._make_another()

    # ------------------------------------------------------------------------------------------------------------- writing

    async def write(self, data: str | bytes) -> None:
        """Send whole lines; a missing final newline is added, a final CRLF becomes a newline."""
        payload = whole_lines(data)
        stream = self._open_stream()
        async with self._write_lock:
            # A cancellation that is already on its way is taken here, where nothing is out yet.
            await self._pace.step()
            self._refuse_if_unwritable()
            try:
                await stream.send(payload)
            except anyio.ClosedResourceError as exc:
                raise self._closed_error("the transport was closed during the write") from exc
            except (anyio.BrokenResourceError, OSError) as exc:
                self._write_failure = exc.__cause__ or exc
                raise self._closed_error("the peer is gone") from self._write_failure
            except BaseException:
                # A cancellation, or something no stream should raise: nobody knows how much of the line is out, and the next
                # one must not be glued to half of this one.
                self._torn = True
                raise
            self._bytes_written += len(payload)

    async def end_input(self) -> None:
        """Close the writing direction, after the writes that came before."""
        stream = self._open_stream()
        async with self._write_lock:
            if self._input_ended or self._closed:
                return
            # A cancellation that is already on its way is taken here: the input has not ended then, and can be ended again.
            await anyio.lowlevel.checkpoint()
            self._input_ended = True
            try:
                await stream.send_eof()
            except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                # the peer is gone already: it will not read anything more, which is all that was asked for
                logger.debug("end of input to a peer that is gone", exc_info=True)
            except anyio.get_cancelled_exc_class():
                self._input_ended = False  # whether it got through is unknown; asking again does no harm
                raise

    def _refuse_if_unwritable(self) -> None:
        self._refuse_if_closed()
        if self._input_ended:
            raise InputClosed("end_input() was called: nothing more can be written")
        if self._torn:
            raise TransportClosed("an earlier write was cancelled in the middle of a line: the connection cannot be written to any more")
        if self._write_failure is not None:
            raise self._closed_error("the peer is gone") from self._write_failure
        if self._read_end is not None and self._read_end.error is not None:
            raise self._closed_error("the peer is gone") from self._read_end.error

    # ------------------------------------------------------------------------------------------------------------- reading

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """The lines in batches, as they were read."""
        stream: object = self._open_stream()
        if isinstance(stream, Pourable):
            return PouredLineView(self._next_batch, functools.partial(self._pour, stream))
        return LineView(self._next_batch)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The messages one by one, as dicts."""
        self._open_stream()
        return DictView(self._next_batch, pending=self._pending, decoder=self._decoder, count_failure=self._count_failure)

    async def _next_batch(self) -> Sequence[bytes]:
        """At least one line; StopAsyncIteration at a good end, the typed cause at a bad one."""
        if self._reading:
            raise Busy("somebody else is reading from this transport")
        if self._pending:
            batch = list(self._pending)
            self._pending.clear()
            return batch
        self._reading = True
        try:
            while (stream := self._stream) is not None and self._read_end is None and not self._closed:
                try:
                    chunk = await stream.receive(_CHUNK_BYTES)
                except anyio.ClosedResourceError:
                    break  # our own close(): the reader simply ends
                except (anyio.EndOfStream, anyio.BrokenResourceError, ClaudeTransportError, OSError) as exc:
                    self._read_end = _ReadEnd(_error_of_end(exc))
                    lines = self._last_lines()
                else:
                    self._bytes_read += len(chunk)
                    lines = self._framer.feed(chunk)
                if lines:
                    self._lines_read += len(lines)
                    return self._accept(lines)
        finally:
            self._reading = False
        if self._read_end is not None and self._read_end.error is not None and not self._closed:
            raise self._read_end.error
        raise StopAsyncIteration

    async def _pour(self, stream: Pourable, hand_on: Callable[[Sequence[bytes]], bool]) -> bool:
        """See `PouredLines`."""

        def feed(chunk: bytes) -> bool:
            self._bytes_read += len(chunk)
            lines = self._framer.feed(chunk)
            self._lines_read += len(lines)
            return bool(lines) and hand_on(self._accept(lines))

        while True:
            try:
                lines = await self._next_batch()
            except StopAsyncIteration:
                return False
            if hand_on(lines):
                return True
            self._reading = True
            try:
                if await stream.pour(feed):
                    return True
            except anyio.ClosedResourceError:
                pass  # the next batch says what that means
            finally:
                self._reading = False

    def _end_reading(self, error: ClaudeTransportError) -> ClaudeTransportError:
        """Nothing more is read: every reader from now on gets `error`, which is returned to be raised at once."""
        self._read_end = _ReadEnd(error)
        return error

    def _accept(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """What is handed on of lines that were just read and counted; for a subclass that knows of lines which are not the peer's."""
        return lines

    def _last_lines(self) -> Sequence[bytes]:
        """A final line without its newline, if it is whole; a torn one is left as the error of the stream."""
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

    def _count_failure(self, failure: DecodeFailure | OversizedMessage) -> None:
        """Count and log a line that held no message."""
        kind = "oversized" if isinstance(failure, OversizedMessage) else failure.kind
        self._failures[kind] = self._failures.get(kind, 0) + 1
        log_failure(logger, failure, transport=type(self).__name__, count=self._failures[kind])

    # ------------------------------------------------------------------------------------------------------------- closing

    async def close(self) -> None:
        """End the input, wake who waits, and release the stream; a cancelled close still closes."""
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
                self._closer = BackgroundTask.spawn(self._aclose, name="close transport")
            except RuntimeError:  # the event loop is ending and takes no new task
                await self._aclose()
                return
        await self._closer.join()

    async def _aclose(self) -> None:
        async with self._connect_lock:
            # who was connecting is done with it
            stream = self._stream
        if stream is None:
            return
        try:
            with anyio.move_on_after(self._close_timeout) as patience:
                await stream.aclose()
            if patience.cancelled_caught:
                await anyio.aclose_forcefully(stream)
        except (anyio.BrokenResourceError, OSError):
            logger.debug("the stream was broken when it was closed", exc_info=True)

    # --------------------------------------------------------------------------------------------------------------- facts

    @property
    def info(self) -> TransportInfo:
        """What is known at this moment."""
        fact = self._fact
        noise = sum(self._failures.values()) - self._failures.get("oversized", 0)
        return TransportInfo(
            kind=type(self).__name__,
            address=fact(StreamAttribute.address, None),
            pid=fact(StreamAttribute.pid, None),
            pgid=fact(StreamAttribute.pid, None),
            started_at=fact(StreamAttribute.started_at, None),
            exit_code=fact(StreamAttribute.exit_code, None),
            signal=fact(StreamAttribute.signal, None),
            killed=fact(StreamAttribute.killed, False),
            stderr_tail=fact(StreamAttribute.stderr_tail, ""),
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            lines_read=self._lines_read,
            noise_lines=noise,
            malformed_lines=noise - self._failures.get("noise", 0),
            oversized_lines=self._failures.get("oversized", 0),
        )

    def _fact(self, attribute: Any, default: Any) -> Any:
        return default if self._stream is None else self._stream.extra(attribute, default)  # noqa: S610 - anyio's method, not Django's

    def _open_stream(self) -> ByteStream:
        self._refuse_if_closed()
        if self._stream is None:
            raise NotConnected("connect() has not been called, or did not succeed")
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


class _ReadEnd(msgspec.Struct):
    """That the stream has ended, and the error it ended with, if any."""

    error: ClaudeTransportError | None


def _error_of_end(exc: Exception) -> ClaudeTransportError | None:
    """What a stream that ended like this has ended with; None for a good end."""
    if isinstance(exc, anyio.EndOfStream):
        return None
    if isinstance(exc, ClaudeTransportError):
        return exc
    lost = ConnectionLost(f"the connection broke while reading: {exc}")
    lost.__cause__ = exc
    return lost
