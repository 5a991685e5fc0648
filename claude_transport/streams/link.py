"""The resumable link as a byte stream: connections may come and go under it, the bytes in it arrive exactly once and in order."""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream

from claude_transport.background import BackgroundTask
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
from claude_transport.printable import printable, printable_lines
from claude_transport.protocol.link import (
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
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.inflow import Wakeup

# --- `LinkCarrier`: carries a `LinkEnd` over one connection after the other. Both ends of a link use it.


_CUTS = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ConnectionLost)
"""What ends a connection without anybody having broken the protocol."""

_CHUNK_BYTES = 64 * 2**10
"""Bytes asked for per read."""

_ACK_DELAY = 0.01
"""Seconds that an acknowledgement which nobody waits for yet is put off: so a reader who keeps up with the peer tells it a
hundred times in a second, instead of after every chunk."""


class LinkCarrier:
    """Moves what an end has to say to the peer, and what the peer says to `on_event`, which must not wait.

    `on_chunk` is called after each chunk that has come or gone: acknowledgements, which are no events, may have made room.
    `heartbeat` is in seconds: after so much silence the peer is asked, after twice as much the connection counts as lost.
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
        """True when the last connection ended while something was being written: whatever is said on it now may be taken for data."""
        return self._interrupted

    def wake(self) -> None:
        """Tell that the end may have something to say."""
        self._output.fire()

    def acknowledge_soon(self) -> None:
        """Tell that what has come was dealt with, and nothing else is to be done: the moment to say so, if it is the last for a while."""
        if self._end.owes_acknowledgement:
            self._ack_wanted = True
            self._idle.fire()

    def finish(self) -> None:
        """Let `carry()` return as soon as the end has nothing more to say; also every later one."""
        self._finishing = True
        self._output.fire()

    async def carry(self, stream: ByteStream, *, unread: bytes = b"") -> Exception | None:
        """Carry until the connection is over; returns why: the error of the stream, a `ConnectionLost` for silence, None after `finish()`
        and when the peer has closed it. The stream is left to the caller, and the end is told that it is disconnected.

        `unread` is what a handshake on this stream has left over.

        Raises:
            ProtocolError: the peer broke the protocol.
            ReplayGap: this end was outrun (`LinkEnd(may_outrun=True)`).
        """
        heart = Heartbeat(interval=self._heartbeat, now=anyio.current_time())
        causes: list[Exception | None] = []
        self._interrupted = False

        async def part(work: Callable[[], Awaitable[None]]) -> None:
            # what ends one of the four ends all; it is kept, not raised, so that nobody gets an exception group
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
            chunk = await stream.receive(_CHUNK_BYTES)
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
                    pass  # something was heard meanwhile


# --- The first two lines of a connection of a resumable link: hello, and welcome or refusal.


class ByteStreamOpener(Protocol):
    """What opens a connection of the link."""

    async def connect(self) -> ByteStream:
        """A new, open stream; a `ClaudeTransportError` or an `OSError` when there can be none."""
        ...


class LinkConnection(msgspec.Struct, frozen=True):
    """A connection behind its handshake, and what was read of it beyond the welcome."""

    stream: ByteStream
    welcome: Welcome
    unread: bytes


async def open_link_connection(opener: ByteStreamOpener, hello: Hello) -> LinkConnection:
    """A new connection on which the server has said welcome. Waits for as long as the caller lets it.

    Raises:
        CLIConnectionError: there is nobody, or nobody who speaks the link protocol.
        ClaudeTransportError: the refusal of the server, typed (see `Refusal.to_error`).
    """
    stream = await opener.connect()
    try:
        return await _shake_hands(stream, hello)
    except BaseException as exc:
        with anyio.CancelScope(shield=True):  # forcefully: it does not wait for anybody
            await anyio.aclose_forcefully(stream)
        match exc:
            case anyio.EndOfStream() | anyio.BrokenResourceError() | anyio.ClosedResourceError():
                raise CLIConnectionError("the connection ended before the other side had said welcome") from exc
            case ProtocolError(code="link.malformed"):
                message = "what answers there does not speak the link protocol (resume=False would talk to a plain server)"
                raise CLIConnectionError(message, code="connect.not_a_link", retryable=False) from exc
            case _:
                raise


async def _shake_hands(stream: ByteStream, hello: Hello) -> LinkConnection:
    await stream.send(encode_frame(hello))
    unread = bytearray()
    while True:
        line = await _next_line(stream, unread)
        match decode_frame(line):
            case Welcome() as welcome:
                if welcome.version > LINK_VERSION:
                    message = f"the server goes on in version {welcome.version} of the link protocol, {LINK_VERSION} was asked for"
                    raise CLIConnectionError(message, code="connect.version", retryable=False)
                return LinkConnection(stream, welcome, bytes(unread))
            case Refusal() as refusal:
                raise refusal.to_error()
            case UnknownFrame():
                continue  # a newer server may say more before its welcome
            case _:
                raise ProtocolError("the first frame is neither a welcome nor a refusal", code="link.malformed")


async def _next_line(stream: ByteStream, unread: bytearray) -> bytes:
    """The next line, taken out of `unread`, to which what more is received is added."""
    searched = 0
    while (end := unread.find(b"\n", searched)) < 0:
        if len(unread) > MAX_CONTROL_FRAME_BYTES:
            raise ProtocolError("what came is no frame of the link protocol", code="link.malformed")
        searched = len(unread)
        try:
            unread += await stream.receive(65536)
        except (ConnectionLost, ProtocolError) as exc:  # of TLS, compression or WebSocket: the server has not said this of the session
            message = f"the connection broke before the other side had said welcome: {exc}"
            raise CLIConnectionError(message, retryable=isinstance(exc, ConnectionLost)) from exc
    line = bytes(unread[:end])
    del unread[: end + 1]
    return line


# --- `LinkDialler`: makes the connections of a link, the first one and those after a cut.


logger: logging.Logger = logging.getLogger(__name__)


class LinkDialler:
    """Dials `opener` and says hello; what a hello holds beside the positions of its end is given once, here."""

    def __init__(
        self,
        opener: ByteStreamOpener,
        *,
        token: str | None,
        options: Mapping[str, Any],
        trace: Mapping[str, str],
        connect_timeout: float,
        backoff: Backoff,
    ) -> None:
        self._opener = opener
        self._hello = Hello(version=LINK_VERSION, token=token, options=dict(options), trace=dict(trace))
        self._connect_timeout = connect_timeout
        self._backoff = backoff
        self._delays: Iterator[float] = iter(())
        self._progress = (-1, -1)

    async def dial(self, end: LinkEnd, *, session: str | None = None, timeout: float | None = None) -> LinkConnection:
        """A connection on which `end` can go on.

        Raises:
            CLIConnectionError: there is nobody, nobody in time (`ConnectTimeout`), or somebody who refuses.
            ReplayGap: the two ends cannot be brought together again.
            ProtocolError: the other side claims what cannot be.
        """
        timeout = self._connect_timeout if timeout is None else min(timeout, self._connect_timeout)
        hello = msgspec.structs.replace(self._hello, session=session, received=end.received, replay_from=end.replay_from, window=end.window)
        try:
            with anyio.fail_after(timeout):
                connection = await open_link_connection(self._opener, hello)
        except TimeoutError as exc:
            raise ConnectTimeout(f"no welcome within {timeout:g} s", waited=timeout) from exc
        except OSError as exc:
            raise CLIConnectionError(f"cannot connect: {exc}") from exc
        welcome = connection.welcome
        try:
            end.resume(received=welcome.received, replay_from=welcome.replay_from, window=welcome.window)
        except BaseException:
            with anyio.CancelScope(shield=True):  # forcefully: it does not wait for anybody
                await anyio.aclose_forcefully(connection.stream)
            raise
        return connection

    async def redial(self, end: LinkEnd, *, session: str, lease: float) -> LinkConnection:
        """A connection that continues `session`, tried again and again for `lease` seconds.

        Raises:
            AuthenticationError: the token is not accepted any more.
            ConnectionLost: it will not come back: the lease has run out, the session is gone, or trying again is no use.
            ReplayGap, ProtocolError: as `dial()`.
        """
        deadline = anyio.current_time() + lease
        progress = (end.received, end.acknowledged)
        if progress != self._progress:
            # the last connection was good for something; one that is cut again and again before that is tried ever more slowly
            self._progress = progress
            self._delays = iter(self._backoff)
            delay = 0.0
        else:
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
                logger.info("the link is cut, and could not be made again yet: %s", printable(exc))
                if anyio.current_time() >= deadline:
                    raise ConnectionLost(f"the connection was cut, and could not be made again within {lease:g} s: {exc}") from exc
            delay = next(self._delays)


# --- `LinkInbox`: bytes of a link that have arrived and wait for their reader.


_CRUMB_BYTES = 1024
"""A piece smaller than this is joined to the one before: as an object of its own it could cost many times its size."""


class LinkInbox:
    """Pieces of a stream, in order. `taken` is the position up to which it was taken."""

    def __init__(self) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self.taken: int = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def put(self, data: bytes) -> None:
        """Add `data`, which is not empty."""
        pieces = self._pieces
        if len(data) < _CRUMB_BYTES and pieces and len(pieces[-1]) < _CRUMB_BYTES:
            pieces[-1] = b"".join((pieces[-1], data))
        else:
            pieces.append(data)

    def take(self, max_bytes: int) -> bytes:
        """The next bytes, at most `max_bytes`, at least one; only to be called when there are any. Joined as far as pieces fit whole."""
        pieces = self._pieces
        data = pieces.popleft()
        if len(data) > max_bytes:
            whole = memoryview(data)
            data = whole[:max_bytes]
            pieces.appendleft(whole[max_bytes:])
        elif pieces and len(data) + len(pieces[0]) <= max_bytes:
            size = len(data)
            joined = [data]
            while pieces and size + len(pieces[0]) <= max_bytes:
                size += len(pieces[0])
                joined.append(pieces.popleft())
            data = b"".join(joined)
        self.taken += len(data)
        return bytes(data)

    def clear(self) -> None:
        """Forget everything."""
        self._pieces.clear()


DEFAULT_CONNECT_TIMEOUT = 30.0
"""Seconds for one connection with its handshake: the server may have to start a process before it says welcome."""

DEFAULT_CLOSE_TIMEOUT = 5.0
"""Seconds in which the far process has to have ended, and its status to have come back."""

DEFAULT_LINK_BACKOFF = Backoff(first=0.1, factor=2.0, maximum=5.0)
"""Delays between attempts to come back. The first is made at once: most cuts are of one connection, not of the network."""

_CLOSE_SHARE = 0.25
"""The share of the closing time in which input that still waits for the peer's window may go out."""

_FAREWELL = 1.0
"""Seconds that the closing handshake of a connection may take once everything was said."""

_SHOWN_CHARS = 500
"""Characters of the far process's last words in an error's note."""

_CODE = re.compile(r"[a-z][a-z_]{0,39}")

_PIECE_BYTES = 64 * 2**10
"""Bytes that are queued at once, so that a megabyte written in one piece does not outgrow the bound by a megabyte."""


class LinkConnectable:
    """Opens a `LinkStream` over connections that `connectable` makes: to a gateway, or to anything that speaks the link protocol.

    Args:
        connectable: the opener of the connections; its `connect()` is called for the first one and after each cut.
        token: what the server asks for; sent inside the hello, never part of an error or a log.
        options: what the server is asked to start the process with, as JSON would have it.
        heartbeat: seconds of silence after which the peer is asked whether it is there; after twice as many the connection is lost.
        backoff: the delays between attempts to come back after a cut, for as long as the server's lease.
        window: bytes that the server may send before they are read.
        replay_bytes: bytes of input kept until the process has them; `send()` waits while they are all in use.
        connect_timeout: seconds for each attempt to connect, with its handshake.
        close_timeout: seconds that `aclose()` waits for the end of the far process.
    """

    def __init__(
        self,
        connectable: ByteStreamOpener,
        *,
        token: str | None = None,
        options: Mapping[str, Any] | None = None,
        heartbeat: float = DEFAULT_HEARTBEAT,
        backoff: Backoff = DEFAULT_LINK_BACKOFF,
        window: int = DEFAULT_WINDOW_BYTES,
        replay_bytes: int = DEFAULT_REPLAY_BYTES,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        close_timeout: float = DEFAULT_CLOSE_TIMEOUT,
    ) -> None:
        Heartbeat(interval=heartbeat, now=0.0)  # bad bounds are told here and not when it is too late
        LinkEnd(window=window, replay_bytes=replay_bytes)
        self._connectable = connectable
        self._token = token
        self._options = dict(options or {})
        self._trace: dict[str, str] = {}
        self._heartbeat = heartbeat
        self._backoff = backoff
        self._window = window
        self._replay_bytes = replay_bytes
        self._connect_timeout = connect_timeout
        self._close_timeout = close_timeout

    def set_option(self, name: str, value: Any) -> None:
        """Ask for one more option in the hellos to come."""
        self._options[name] = value

    def carry_trace(self, fields: Mapping[str, str]) -> None:
        """Say in the hellos to come which trace the session is part of: `traceparent` and perhaps `tracestate`."""
        self._trace = dict(fields)

    async def connect(self) -> LinkStream:
        """A new session on the server, and the stream to it.

        Raises:
            AuthenticationError: the token was refused.
            ConfigurationError: the options were.
            ConnectTimeout: there was no welcome in time.
            CLIConnectionError: there is nobody, or nobody who speaks the link protocol.
        """
        dialler = LinkDialler(
            self._connectable,
            token=self._token,
            options=self._options,
            trace=self._trace,
            connect_timeout=self._connect_timeout,
            backoff=self._backoff,
        )
        end = LinkEnd(window=self._window, replay_bytes=self._replay_bytes)
        connection = await dialler.dial(end)
        told = {"token": self._token, "options": self._options}
        return LinkStream(end, connection, dialler=dialler, heartbeat=self._heartbeat, close_timeout=self._close_timeout, confidential=told)


class LinkStream(ByteStream):
    """Bytes to and from a far process.

    `receive()` ends with `EndOfStream` when the process ended well, and raises `ProcessError` when it did not, after its last byte
    either way. It raises `ConnectionLost` when the server did not come back within its lease, and when the process ended well
    without having been given all that was sent.
    """

    def __init__(
        self,
        end: LinkEnd,
        connection: LinkConnection,
        *,
        dialler: LinkDialler,
        heartbeat: float,
        close_timeout: float,
        confidential: object,
    ) -> None:
        self._end = end
        self._dialler = dialler
        self._confidential = confidential  # the far process may repeat it when it dies
        self._session = connection.welcome.session
        self._lease = connection.welcome.lease
        self._connection = connection
        self._close_timeout = close_timeout
        self._inbox = LinkInbox()
        self._process_end: ProcessEnd | None = None
        self._over: Exception | None = None  # what the reader gets after the last byte
        self._done = False  # there is nothing to come back for
        self._closing = False
        self._started_at = dt.datetime.now(dt.UTC)
        self._readable = Wakeup()  # something to read, or the end
        self._changed = Wakeup()  # room to keep more, something said, or the end
        self._sending = anyio.ResourceGuard("writing to")
        self._receiving = anyio.ResourceGuard("reading from")
        self._carrier = LinkCarrier(end, on_event=self._on_event, on_chunk=self._changed.fire, heartbeat=heartbeat)
        self._task = BackgroundTask.spawn(self._run, name="resumable link", at_end=self._task_over)

    # ------------------------------------------------------------------------------------------------------------- reading

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """The next bytes of the process's output, at most `max_bytes`."""
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

    # ------------------------------------------------------------------------------------------------------------- writing

    async def send(self, item: bytes) -> None:
        """Queue all of `item`: it is kept until the process has it. Waits while too much is kept already."""
        with self._sending:
            await anyio.lowlevel.checkpoint_if_cancelled()
            self._refuse_if_unwritable()
            for start in range(0, len(item), _PIECE_BYTES):
                self._end.send(item[start : start + _PIECE_BYTES])
                self._carrier.wake()
                while not self._end.has_room:
                    await self._changed.wait()
                    self._refuse_if_unwritable()

    async def send_eof(self) -> None:
        """End the process's input, behind all that was sent."""
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

    # ------------------------------------------------------------------------------------------------------------- closing

    async def aclose(self) -> None:
        """End the far process, and wait for its status; at most `close_timeout` seconds, also when cancelled meanwhile."""
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

    # -------------------------------------------------------------------------------------------------- in the background

    async def _run(self) -> None:
        """Carry the link over one connection after the other, until it is over."""
        try:
            while True:
                try:
                    cause = await self._carrier.carry(self._connection.stream, unread=self._connection.unread)
                finally:
                    await self._release()
                if self._done:
                    return
                logger.info("the link was cut (%s), trying to come back", printable(cause or "closed by the other side"))
                self._connection = await self._dialler.redial(self._end, session=self._session, lease=self._lease)
        except ClaudeTransportError as exc:
            self._finish(exc)

    async def _release(self) -> None:
        """Let go of the connection: politely when all was said, at once when it is broken or nobody is to be waited for."""
        stream = self._connection.stream
        with anyio.CancelScope(shield=True):
            if self._process_end is not None:
                with anyio.move_on_after(_FAREWELL):
                    try:
                        await stream.aclose()
                        return
                    except (anyio.BrokenResourceError, OSError):
                        pass  # forcefully then, and that is all that is left to do
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
                # what a server calls it is a part of our code only if it looks like one
                named = f"connection.{code}" if _CODE.fullmatch(code) else None
                self._leave(ConnectionLost(reason or "the other side has closed the session", code=named))
            case Refusal():
                self._leave(event.to_error())

    def _process_ended(self, end: ProcessEnd) -> None:
        self._process_end = end
        self._over = None if isinstance(self._over, anyio.EndOfStream) else self._over
        # All there will ever be is here: the server may forget the session, whatever happens to the connection from now on.
        self._end.consume(self._end.received)
        self._end.acknowledge()
        self._end.bye(reason="the process has ended")
        self._leave(self._how_it_ended(end))

    def _how_it_ended(self, end: ProcessEnd) -> Exception:
        if end.exit_code or end.signal is not None:
            how = f"exit code {end.exit_code}" if end.signal is None else f"signal {end.signal}"
            error = ProcessError(
                f"the far process ended with {how}", exit_code=end.exit_code, signal=end.signal, stderr_tail=end.stderr_tail
            )
            if end.stderr_tail:
                redactor = redactor_knowing([os.environ], confidential=self._confidential)
                # before it is cut: half a key looks like none
                error.add_note("its last words: " + printable_lines(redactor.text(end.stderr_tail)[-_SHOWN_CHARS:]).lstrip())
            return error
        if end.error is not None:
            return ConnectionLost(end.error)
        if (missed := self._end.sent_bytes - end.accepted) > 0:
            message = f"the far process ended well, but had not been given the end of its input ({missed} bytes)"
            return ConnectionLost(message, code="connection.input_lost")
        return anyio.EndOfStream()

    def _leave(self, over: Exception) -> None:
        """The session is over: say what is still to be said, and do not come back."""
        self._done = True
        self._finish(over)
        self._carrier.finish()

    def _finish(self, over: Exception) -> None:
        """Settle what the reader gets after the last byte; the first to say so wins."""
        if self._over is None:
            self._over = over
        self._notify()

    def _task_over(self) -> None:
        self._finish(ConnectionLost("the link was given up"))

    def _notify(self) -> None:
        self._readable.fire()
        self._changed.fire()

    # --------------------------------------------------------------------------------------------------------------- facts

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
