"""The resumable link as a byte stream: connections may come and go under it, the bytes in it arrive exactly once and in order."""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.background import BackgroundTask
from claude_transport.backoff import Backoff
from claude_transport.errors import ClaudeTransportError, ConnectionLost, ProcessError
from claude_transport.printable import printable, printable_lines
from claude_transport.protocol.heartbeat import DEFAULT_HEARTBEAT, Heartbeat
from claude_transport.protocol.known_secrets import redactor_knowing
from claude_transport.protocol.link import DEFAULT_REPLAY_BYTES, DEFAULT_WINDOW_BYTES, LinkEnd, LinkEvent
from claude_transport.protocol.link_frames import Bye, Data, End, ProcessEnd, Refusal
from claude_transport.streams.attributes import StreamAttribute
from claude_transport.streams.link_carrier import LinkCarrier
from claude_transport.streams.link_dialler import LinkDialler
from claude_transport.streams.link_handshake import ByteStreamOpener, LinkConnection
from claude_transport.streams.link_inbox import LinkInbox
from claude_transport.streams.wakeup import Wakeup

__all__ = ["DEFAULT_LINK_BACKOFF", "LinkConnectable", "LinkStream"]

logger: logging.Logger = logging.getLogger(__name__)

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
