"""The resumable link as a byte stream: connections come and go below it, and its bytes arrive exactly once and in order.

* `LinkConnectable` opens a `LinkStream`, the client's end of a session with a far process.
* `LinkCarrier` moves what one end has to say over one connection. Client and gateway both use it.
* `LinkInbox` holds the bytes that have arrived and wait for their reader.

The rules (frames, positions, windows, replay) are in `claude_transport.link.machine`, without any I/O. The server's side of a
session is `claude_transport.link.session`.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.backoff import Backoff
from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    ProcessError,
    ProtocolError,
)
from claude_transport.link.machine import (
    CLOSED_BY_SERVER,
    DEFAULT_HEARTBEAT,
    DEFAULT_REPLAY_BYTES,
    DEFAULT_WINDOW_BYTES,
    LINK_VERSION,
    MAX_CONTROL_FRAME_BYTES,
    Bye,
    Data,
    End,
    Heartbeat,
    Hello,
    LinkEnd,
    LinkEvent,
    ProcessEnd,
    Pulse,
    Refusal,
    UnknownFrame,
    Welcome,
    decode_frame,
    encode_frame,
)
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import Wakeup
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.room import MOST_READ_BYTES
from claude_transport.text.printable import last_lines, printable, redacted_tail

logger: logging.Logger = logger_for(__name__)

DEFAULT_CONNECT_TIMEOUT = 30.0
"""Seconds for one connection with its handshake: the server may have to start a process before it sends its welcome."""

DEFAULT_CLOSE_TIMEOUT = 5.0
"""Seconds for the far process to end, and for its exit status to arrive."""

_WORDS_CHARS = 2**14
"""Characters of the end of standard error from which the last words are taken."""

DEFAULT_LINK_BACKOFF = Backoff(first=0.1, factor=2.0, maximum=5.0)
"""Delays between attempts to reconnect. The first attempt has none: most cuts are of one connection, not of the network."""

_CLOSE_SHARE = 0.25
"""The part of the closing time in which input may go out that still waits for the peer's window."""

_POLITE_SECONDS = 1.0
"""Seconds for closing a connection in good order after everything was said."""

_ACK_DELAY = 0.01
"""Seconds that an acknowledgement is delayed when nothing waits for it. A reader that keeps up sends a hundred in a second, and not
one after each chunk."""

_CHUNK_BYTES = 64 * 2**10
"""Bytes queued for sending at a time. A larger piece would exceed `replay_bytes` by its own size."""

_CRUMB_BYTES = 1024
"""Pieces smaller than this are joined: an object of its own could cost many times their size."""

_CODE = re.compile(r"[a-z][a-z_]{0,39}")
"""The form of a server's own code that becomes part of an error's `code`."""

_CUTS = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ConnectionLost)
"""Errors that end a connection without a violation of the protocol."""


class LinkConnectable(ByteStreamConnectable):
    """Opens a `LinkStream` to a gateway, or to any server that speaks the link protocol.

    Args:
        connectable: opens the connections: the first one, and one after each cut.
        token: the secret that the server asks for. It is sent in the first line, and never shown in an error or a log.
        options: options of the process that the server is asked to start, as JSON values.
        heartbeat: seconds of silence after which the peer is pinged; after twice as many the connection counts as lost.
        backoff: delays between attempts to reconnect after a cut.
        reconnect_timeout: seconds from a cut until it is given up. By default, and at most, the server's lease.
        window: bytes that the server may send before they are read.
        replay_bytes: bytes of input that are kept until the process has them. `send()` waits while all of them are in use.
        connect_timeout: seconds for each attempt to connect, with its handshake.
        close_timeout: seconds that `aclose()` waits for the end of the far process.
    """

    def __init__(
        self,
        connectable: ByteStreamConnectable,
        *,
        token: str | None = None,
        options: Mapping[str, Any] | None = None,
        heartbeat: float = DEFAULT_HEARTBEAT,
        backoff: Backoff = DEFAULT_LINK_BACKOFF,
        reconnect_timeout: float | None = None,
        window: int = DEFAULT_WINDOW_BYTES,
        replay_bytes: int = DEFAULT_REPLAY_BYTES,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        close_timeout: float = DEFAULT_CLOSE_TIMEOUT,
    ) -> None:
        Heartbeat(interval=heartbeat, now=0.0)  # raises for a bad value now, and not at the first connection
        LinkEnd(window=window, replay_bytes=replay_bytes)
        self._connectable = connectable
        self._token = token
        self._options = dict(options or {})
        self._trace: dict[str, str] = {}
        self._heartbeat = heartbeat
        self._backoff = backoff
        self._reconnect_timeout = reconnect_timeout
        self._window = window
        self._replay_bytes = replay_bytes
        self._connect_timeout = connect_timeout
        self._close_timeout = close_timeout

    def set_option(self, name: str, value: Any) -> None:
        """Set one more option of the process, for sessions that are opened from now on."""
        self._options[name] = value

    def carry_trace(self, fields: Mapping[str, str]) -> None:
        """Set the trace of sessions that are opened from now on: the W3C fields `traceparent` and perhaps `tracestate`."""
        self._trace = dict(fields)

    async def connect(self) -> LinkStream:
        """Open a new session on the server, and return the stream to it.

        Raises:
            AuthenticationError: the token was refused.
            ConfigurationError: the options were refused.
            ConnectTimeout: there was no welcome in time.
            CLIConnectionError: the server cannot be reached, or does not speak the link protocol.
        """
        hello = Hello(version=LINK_VERSION, token=self._token, options=dict(self._options), trace=dict(self._trace))
        dialler = _Dialler(self._connectable, hello, connect_timeout=self._connect_timeout, backoff=self._backoff)
        end = LinkEnd(window=self._window, replay_bytes=self._replay_bytes)
        connection = await dialler.dial(end)
        return LinkStream(
            end,
            connection,
            dialler=dialler,
            heartbeat=self._heartbeat,
            reconnect_timeout=self._reconnect_timeout,
            close_timeout=self._close_timeout,
            confidential={"token": self._token, "options": self._options},
        )


class LinkStream(ByteStream):
    """Bytes to and from a far process.

    After the last byte, `receive()` raises `EndOfStream` when the process ended well and `ProcessError` when it did not. It raises
    `ConnectionLost` when the server could not be reached again in time, and when the process ended well without
    all of its input.
    """

    def __init__(
        self,
        end: LinkEnd,
        connection: _LinkConnection,
        *,
        dialler: _Dialler,
        heartbeat: float,
        reconnect_timeout: float | None,
        close_timeout: float,
        confidential: object,
    ) -> None:
        self._end = end
        self._dialler = dialler
        self._confidential = confidential  # the far process may repeat it on standard error
        self._session = connection.welcome.session
        lease = connection.welcome.lease  # after it the server has ended the session
        self._patience = lease if reconnect_timeout is None else min(lease, reconnect_timeout)
        self._connection = connection
        self._close_timeout = close_timeout
        self._inbox = LinkInbox()
        self._process_end: ProcessEnd | None = None
        self._over: Exception | None = None  # raised to the reader after the last byte
        self._done = False  # the session is over: do not reconnect
        self._closing = False
        self._started_at = dt.datetime.now(dt.UTC)
        self._readable = Wakeup()  # data, or the end
        self._changed = Wakeup()  # room for more input, something sent, or the end
        self._sending = anyio.ResourceGuard("writing to")
        self._receiving = anyio.ResourceGuard("reading from")
        self._carrier = LinkCarrier(end, on_event=self._on_event, on_chunk=self._changed.fire, heartbeat=heartbeat)
        self._task = LoopTask.spawn(self._run, name="resumable link", at_end=self._task_over)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Wait for at least one byte of the process's output, and return at most `max_bytes`."""
        with self._receiving:
            if self._inbox:
                await anyio.lowlevel.checkpoint()
            while True:
                if self._closing:
                    raise anyio.ClosedResourceError
                if self._inbox:
                    # no await between taking and returning: a cancellation finds the bytes either here or with the caller
                    data = self._inbox.take(max_bytes)
                    self._end.consume(self._inbox.taken)
                    if self._end.has_output:
                        self._carrier.wake()
                    return data
                if self._over is not None:
                    await anyio.lowlevel.checkpoint()
                    raise self._over
                self._carrier.acknowledge_soon()
                await self._readable.wait()

    async def send(self, item: bytes) -> None:
        """Queue all of `item`. It is kept until the process has it; waits while `replay_bytes` are in use."""
        with self._sending:
            await anyio.lowlevel.checkpoint_if_cancelled()
            self._refuse_if_unwritable()
            for start in range(0, len(item), _CHUNK_BYTES):
                self._end.send(item[start : start + _CHUNK_BYTES])
                self._carrier.wake()
                while not self._end.has_room:
                    await self._changed.wait()
                    self._refuse_if_unwritable()

    async def send_eof(self) -> None:
        """End the process's input after all that was sent."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        if not self._closing and self._over is None:
            self._end_input()

    def _end_input(self) -> None:
        self._end.end_input()
        self._carrier.wake()

    def _refuse_if_unwritable(self) -> None:
        if self._closing:
            raise anyio.ClosedResourceError
        if self._process_end is not None or isinstance(self._over, ClaudeTransportError):
            raise anyio.BrokenResourceError from self._over

    async def aclose(self) -> None:
        """End the far process and wait for its exit status, at most `close_timeout` seconds, also when cancelled meanwhile."""
        self._closing = True
        self._inbox.clear()
        self._end.consume(self._end.received)
        self._notify()
        try:
            with anyio.move_on_after(self._close_timeout):
                if not self._task.finished:
                    self._end_input()
                    with anyio.move_on_after(self._close_timeout * _CLOSE_SHARE):
                        while self._end.unsaid and not self._task.finished:
                            await self._changed.wait()
                    self._end.bye(reason="closed")
                    self._carrier.wake()
                await self._task.wait()
        finally:
            self._task.cancel()
            await self._task.join()

    async def _run(self) -> None:
        """Carry the link over one connection after the other, until the session is over."""
        try:
            while True:
                try:
                    cause = await self._carrier.carry(self._connection.stream, unread=self._connection.unread)
                finally:
                    await self._release()
                if self._done:
                    return
                logger.info("the link was cut (%s); reconnecting", printable(cause or "closed by the other side"))
                self._connection = await self._dialler.redial(self._end, session=self._session, patience=self._patience)
        except ClaudeTransportError as exc:
            self._finish(exc)

    async def _release(self) -> None:
        """Close the connection: in good order when the process has ended, else by force."""
        stream = self._connection.stream
        with anyio.CancelScope(shield=True):
            if self._process_end is not None:
                with anyio.move_on_after(_POLITE_SECONDS):
                    try:
                        await stream.aclose()
                        return
                    except (anyio.BrokenResourceError, OSError):
                        pass  # it is closed by force below
            await anyio.aclose_forcefully(stream)

    def _on_event(self, event: LinkEvent) -> None:
        match event:
            case Data(position, data):
                if self._closing:
                    self._end.consume(position + len(data))
                else:
                    self._inbox.put(data)
                    self._readable.fire()
            case End():
                self._finish(anyio.EndOfStream())
            case ProcessEnd():
                self._process_ended(event)
            case Bye(code=code, reason=reason):
                self._leave(_closed_by_server(code, reason))
            case Refusal():
                self._leave(event.to_error())

    def _process_ended(self, end: ProcessEnd) -> None:
        self._process_end = end
        self._over = None if isinstance(self._over, anyio.EndOfStream) else self._over
        # All output has arrived. The server may forget the session, whatever happens to the connection now.
        self._end.consume(self._end.received)
        self._end.acknowledge()
        self._end.bye(reason="the process has ended")
        self._leave(self._how_it_ended(end))

    def _how_it_ended(self, end: ProcessEnd) -> Exception:
        """Return the exception for the reader."""
        if end.code:  # the server has ended the process, so its exit code says nothing about the session
            return _closed_by_server(end.code, end.error or "")
        if end.exit_code or end.signal is not None:
            how = f"exit code {end.exit_code}" if end.signal is None else f"signal {end.signal}"
            error = ProcessError(
                f"the far process ended with {how}", exit_code=end.exit_code, signal=end.signal, stderr_tail=end.stderr_tail
            )
            if end.stderr_tail:
                redactor = redactor_knowing([os.environ], confidential=self._confidential)
                # redacted before it is cut: half a key does not look like one
                error.reason = last_lines(redacted_tail(end.stderr_tail, redactor.text, at_most=_WORDS_CHARS))
            return error
        if end.error is not None:
            return ConnectionLost(end.error, reason=end.error)
        if (missed := self._end.sent_bytes - end.accepted) > 0:
            message = f"the far process ended well, but had not been given the end of its input ({missed} bytes)"
            return ConnectionLost(message, code="connection.input_lost")
        return anyio.EndOfStream()

    def _leave(self, over: Exception) -> None:
        """End the session: the carrier sends what is left to say, and there is no reconnect."""
        self._done = True
        self._finish(over)
        self._carrier.finish()

    def _finish(self, over: Exception) -> None:
        """Set what the reader gets after the last byte, unless it is set already."""
        if self._over is None:
            self._over = over
        self._notify()

    def _task_over(self) -> None:
        self._finish(ConnectionLost("the link was given up"))

    def _notify(self) -> None:
        self._readable.fire()
        self._changed.fire()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        end = self._process_end or ProcessEnd(after=0)
        attributes: dict[Any, Callable[[], Any]] = {
            StreamAttribute.exit_code: lambda: end.exit_code,
            StreamAttribute.signal: lambda: end.signal,
            StreamAttribute.killed: lambda: end.killed,
            StreamAttribute.stderr_tail: lambda: end.stderr_tail,
            StreamAttribute.started_at: lambda: self._started_at,
            StreamAttribute.ended: lambda: self._process_end is not None or self._task.finished,
        }
        address = self._connection.stream.extra(StreamAttribute.address, None)  # noqa: S610 - anyio's method, not Django's
        if address is not None:
            attributes[StreamAttribute.address] = lambda: address
        return attributes


def _closed_by_server(code: str, reason: str) -> ConnectionLost:
    """Return the error for a session that the server has ended, for the reason `code`."""
    message = reason or "the other side has closed the session"
    if code == CLOSED_BY_SERVER:
        return ConnectionLost(message, code="connection.closed_by_server", retryable=True, reason=reason)
    return ConnectionLost(message, code=f"connection.{code}" if _CODE.fullmatch(code) else None, reason=reason)


class LinkCarrier:
    """Moves what `end` has to say to the peer, and hands what the peer says to `on_event`, which must not wait.

    Args:
        end: this end of the link.
        on_event: called with each event.
        on_chunk: called after each chunk that came or went: an acknowledgement, which is no event, may have made room.
        heartbeat: seconds of silence after which the peer is pinged; after twice as many the connection counts as lost.
    """

    def __init__(
        self,
        end: LinkEnd,
        *,
        on_event: Callable[[LinkEvent], object],
        on_chunk: Callable[[], object] | None = None,
        heartbeat: float = DEFAULT_HEARTBEAT,
    ) -> None:
        self._end = end
        self._on_event = on_event
        self._on_chunk = on_chunk
        self._heartbeat = heartbeat
        self._output = Wakeup()
        self._idle = Wakeup()
        self._ack_wanted = False
        self._finishing = False
        self._interrupted = False

    @property
    def interrupted(self) -> bool:
        """True when the last connection ended in the middle of a write: the peer may take anything sent on it now for data."""
        return self._interrupted

    def wake(self) -> None:
        """Tell the carrier that the end may have something to say."""
        self._output.fire()

    def acknowledge_soon(self) -> None:
        """Tell the carrier that everything received was consumed: it acknowledges within 10 ms when the peer is owed that."""
        if self._end.owes_acknowledgement:
            self._ack_wanted = True
            self._idle.fire()

    def finish(self) -> None:
        """Let this `carry()` and every later one return as soon as the end has nothing more to say."""
        self._finishing = True
        self._output.fire()

    async def carry(self, stream: ByteStream, *, unread: bytes = b"") -> Exception | None:
        """Carry over `stream` until the connection is over. The caller closes `stream`.

        Args:
            stream: an open connection behind its handshake.
            unread: bytes of it that the handshake has read already.

        Returns:
            Why the connection is over: the error of the stream, or `ConnectionLost` for silence. None after `finish()`, and when the peer
            closed the connection.

        Raises:
            ProtocolError: the peer broke the protocol.
            ReplayGap: the peer needs bytes that were forgotten (`LinkEnd(may_outrun=True)`).
        """
        heart = Heartbeat(interval=self._heartbeat, now=anyio.current_time())
        causes: list[Exception | None] = []
        self._interrupted = False

        async def part(work: Callable[[], Awaitable[None]]) -> None:
            # The first part that ends, ends all four. Its error is kept and not raised, so that no exception group arises.
            try:
                await work()
                causes.append(None)
            except anyio.EndOfStream:
                causes.append(None)
            except Exception as exc:  # noqa: BLE001 - raised again below, outside of the task group
                causes.append(exc)
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(part, partial(self._write, stream))
                tasks.start_soon(part, partial(self._watch, heart))
                tasks.start_soon(part, self._acknowledge)
                await part(partial(self._read, stream, unread, heart))
        finally:
            self._end.disconnected()
        cause = causes[0] if causes else None
        if isinstance(cause, _CUTS) or cause is None:
            return cause
        raise cause

    async def _read(self, stream: ByteStream, chunk: bytes, heart: Heartbeat) -> None:
        end, on_event, on_chunk = self._end, self._on_event, self._on_chunk
        while True:
            for event in end.receive(chunk):
                on_event(event)
            if end.has_output:
                self._output.fire()
            if on_chunk is not None:
                on_chunk()
            chunk = await stream.receive(MOST_READ_BYTES)
            heart.heard(anyio.current_time())

    async def _write(self, stream: ByteStream) -> None:
        end = self._end
        while True:
            while data := end.data_to_send():
                self._interrupted = True
                await stream.send(data)
                self._interrupted = False
                if self._on_chunk is not None:
                    self._on_chunk()
            if self._finishing:
                return
            await self._output.wait()

    async def _acknowledge(self) -> None:
        while True:
            while not self._ack_wanted:
                await self._idle.wait()
            await anyio.sleep(_ACK_DELAY)
            self._ack_wanted = False
            self._end.acknowledge()
            self._output.fire()

    async def _watch(self, heart: Heartbeat) -> None:
        while True:
            await anyio.sleep_until(heart.next_check)
            match heart.check(anyio.current_time()):
                case Pulse.LOST:
                    raise ConnectionLost(f"nothing was heard for {2 * heart.interval:g} s, not even the answer to a ping")
                case Pulse.PING:
                    self._end.ping()
                    self._end.acknowledge()
                    self.wake()
                case Pulse.FINE:
                    pass


class LinkInbox:
    """Bytes that have arrived and wait for their reader, in order. `taken` counts the bytes that were taken."""

    def __init__(self) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self.taken: int = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def put(self, data: bytes) -> None:
        """Add `data`, which must not be empty."""
        pieces = self._pieces
        if len(data) < _CRUMB_BYTES and pieces and len(pieces[-1]) < _CRUMB_BYTES:
            pieces[-1] = b"".join((pieces[-1], data))
        else:
            pieces.append(data)

    def take(self, max_bytes: int) -> bytes:
        """Return the next bytes, at least one and at most `max_bytes`. Call it only when the inbox is not empty."""
        pieces = self._pieces
        data = pieces.popleft()
        if len(data) > max_bytes:
            whole = memoryview(data)
            data = whole[:max_bytes]
            pieces.appendleft(whole[max_bytes:])
        elif pieces and len(data) + len(pieces[0]) <= max_bytes:
            size = len(data)
            joined = [data]
            while pieces and size + len(pieces[0]) <= max_bytes:  # whole pieces only: splitting one would copy it
                size += len(pieces[0])
                joined.append(pieces.popleft())
            data = b"".join(joined)
        self.taken += len(data)
        return bytes(data)

    def clear(self) -> None:
        """Drop all bytes."""
        self._pieces.clear()


class _LinkConnection(msgspec.Struct, frozen=True):
    """A connection after its handshake. `unread` are bytes that were received behind the welcome."""

    stream: ByteStream
    welcome: Welcome
    unread: bytes


class _Dialler:
    """Makes the connections of one link. `hello` is the first line without the positions, which change with each connection."""

    def __init__(self, connectable: ByteStreamConnectable, hello: Hello, *, connect_timeout: float, backoff: Backoff) -> None:
        self._connectable = connectable
        self._hello = hello
        self._connect_timeout = connect_timeout
        self._backoff = backoff
        self._delays: Iterator[float] = iter(())
        self._progress = (-1, -1)

    async def dial(self, end: LinkEnd, *, session: str | None = None, timeout: float | None = None) -> _LinkConnection:
        """Return a connection on which `end` can go on.

        Raises:
            CLIConnectionError: the server cannot be reached, does not answer in time (`ConnectTimeout`), or refuses.
            ReplayGap: one end needs bytes that the other has forgotten.
            ProtocolError: the server claims impossible positions.
        """
        timeout = self._connect_timeout if timeout is None else min(timeout, self._connect_timeout)
        hello = msgspec.structs.replace(self._hello, session=session, received=end.received, replay_from=end.replay_from, window=end.window)
        try:
            with anyio.fail_after(timeout):
                connection = await _open_connection(self._connectable, hello)
        except TimeoutError as exc:
            raise ConnectTimeout(f"no welcome within {timeout:g} s", waited=timeout) from exc
        except OSError as exc:
            raise CLIConnectionError(f"cannot connect: {exc}") from exc
        welcome = connection.welcome
        try:
            end.resume(received=welcome.received, replay_from=welcome.replay_from, window=welcome.window)
        except BaseException:
            await _drop(connection.stream)
            raise
        return connection

    async def redial(self, end: LinkEnd, *, session: str, patience: float) -> _LinkConnection:
        """Return a connection that continues `session`. Tries again and again for `patience` seconds.

        Raises:
            AuthenticationError: the token is not accepted any more.
            ConnectionLost: the time is over, the session is gone, or trying again cannot help.
            ReplayGap, ProtocolError: as `dial()`.
        """
        deadline = anyio.current_time() + patience
        progress = (end.received, end.acknowledged)
        if progress != self._progress:
            self._progress = progress
            self._delays = iter(self._backoff)
            delay = 0.0
        else:  # the last connection moved no data: wait longer each time
            delay = next(self._delays)
        while True:
            await anyio.sleep(max(0.0, min(delay, deadline - anyio.current_time())))
            try:
                return await self.dial(end, session=session, timeout=max(deadline - anyio.current_time(), 0.001))
            except (AuthenticationError, ConnectionLost):
                raise
            except (CLIConnectionError, ConfigurationError) as exc:
                if not exc.retryable:
                    raise ConnectionLost(f"the connection was cut, and cannot be made again: {exc}") from exc
                logger.info("reconnecting the link failed; trying again: %s", exc)
                if anyio.current_time() >= deadline:
                    raise ConnectionLost(f"the connection was cut, and could not be made again within {patience:g} s: {exc}") from exc
            delay = next(self._delays)


async def _open_connection(connectable: ByteStreamConnectable, hello: Hello) -> _LinkConnection:
    """Connect and do the handshake. The caller sets a time limit.

    Raises:
        CLIConnectionError: the server cannot be reached, or does not speak the link protocol.
        ClaudeTransportError: the server's refusal, typed (see `Refusal.to_error`).
    """
    stream = await connectable.connect()
    try:
        await stream.send(encode_frame(hello))
        return await _await_welcome(stream)
    except BaseException as exc:
        await _drop(stream)
        match exc:
            case anyio.EndOfStream() | anyio.BrokenResourceError() | anyio.ClosedResourceError():
                raise CLIConnectionError("the connection ended before the server had sent its welcome") from exc
            case ProtocolError(code="link.malformed"):
                message = "the server does not speak the link protocol; to talk to a plain server, give resume=False"
                raise CLIConnectionError(message, code="connect.not_a_link", retryable=False) from exc
            case _:
                raise


async def _drop(stream: ByteStream) -> None:
    with anyio.CancelScope(shield=True):  # closing by force does not wait
        await anyio.aclose_forcefully(stream)


async def _await_welcome(stream: ByteStream) -> _LinkConnection:
    unread = bytearray()
    while True:
        match decode_frame(await _next_line(stream, unread)):
            case Welcome() as welcome:
                if welcome.version > LINK_VERSION:
                    message = f"the server speaks version {welcome.version} of the link protocol, this library {LINK_VERSION}"
                    raise CLIConnectionError(message, code="connect.version", retryable=False)
                return _LinkConnection(stream, welcome, bytes(unread))
            case Refusal() as refusal:
                raise refusal.to_error()
            case UnknownFrame():
                continue  # a newer server may send other frames before its welcome
            case _:
                raise ProtocolError("the first frame is neither a welcome nor a refusal", code="link.malformed")


async def _next_line(stream: ByteStream, unread: bytearray) -> bytes:
    """Remove the next line from `unread` and return it. Receives more until there is one."""
    searched = 0
    while (end := unread.find(b"\n", searched)) < 0:
        if len(unread) > MAX_CONTROL_FRAME_BYTES:
            raise ProtocolError(f"the first {len(unread)} bytes hold no frame of the link protocol", code="link.malformed")
        searched = len(unread)
        try:
            unread += await stream.receive(_CHUNK_BYTES)
        except (ConnectionLost, ProtocolError) as exc:  # from TLS, compression or WebSocket; the session itself is not lost
            message = f"the connection broke before the server had sent its welcome: {exc}"
            raise CLIConnectionError(message, retryable=isinstance(exc, ConnectionLost)) from exc
    line = bytes(unread[:end])
    del unread[: end + 1]
    return line
