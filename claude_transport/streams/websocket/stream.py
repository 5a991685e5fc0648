"""`WebSocketStream`: one end of a WebSocket connection as a byte stream, client or server alike."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.background import BackgroundTask
from claude_transport.errors import ClaudeTransportError, ConfigurationError, ConnectionLost, ProtocolError, UsageError
from claude_transport.streams.address import StreamAttribute

if TYPE_CHECKING:
    from websockets.client import ClientProtocol
    from websockets.frames import Frame
    from websockets.protocol import Protocol
    from websockets.server import ServerProtocol
    from websockets.uri import WebSocketURI


# --- What the end of a WebSocket connection means: good, broken, or an error with a name.


_GOOD = frozenset({1000, 1005})
"""Codes of RFC 6455, 7.4.1: the purpose is fulfilled; or closed without a code, as `socket.close()` of a browser does."""

_OUR_FAULT = frozenset({1002, 1003, 1007, 1009, 1010})
"""The peer says that what it was sent is not allowed, in form or in size."""

_TRY_AGAIN = frozenset({1001, 1012, 1013, 1014})
"""The peer leaves, restarts, is overloaded, or stands before one that is."""


def ending_of(protocol: Protocol) -> Exception:
    """The exception for a reader at the end of what came: `anyio.EndOfStream` when the peer closed the connection in good order.

    `ProtocolError` when one end has broken the rules, or a limit, of the other; `ConnectionLost` when the peer closed with another code
    (`retryable` for those that say so); `anyio.BrokenResourceError` when it went away without a word.
    """
    cause = protocol.parser_exc
    if cause is not None and not isinstance(cause, EOFError):
        too_big = type(cause).__name__ == "PayloadTooBig"
        code = "protocol.message_too_big" if too_big else "protocol.websocket"
        error: Exception = ProtocolError(f"the peer broke the rules of WebSocket: {cause}", code=code)
        error.__cause__ = cause
        return error
    close = protocol.close_rcvd
    if close is None:
        return anyio.BrokenResourceError("the connection ended without the closing handshake of WebSocket")
    if close.code in _GOOD:
        return anyio.EndOfStream()
    said = f"{close.code}{f', {close.reason!r}' if close.reason else ''}"
    if close.code in _OUR_FAULT:
        return ProtocolError(f"the peer did not accept what it was sent, and closed the WebSocket connection with {said}")
    return ConnectionLost(f"the peer closed the WebSocket connection with {said}", retryable=close.code in _TRY_AGAIN)


# --- Messages and bytes: how a stream of lines becomes WebSocket messages, and how messages of any peer become a stream of lines.


USUAL_MESSAGE_BYTES = 2**20
"""Bytes of a message made of several lines: many peers refuse a larger one unless they are told otherwise."""

LARGEST_TEXT_BYTES = 16 * 2**20
"""Bytes of a line that is still sent as one message of text; a longer one goes in pieces, as messages of bytes."""


def cut_messages(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """The messages that carry `data`, each with whether it is text. Text holds whole lines; anything else goes as bytes.

    No message is empty, and joined they are `data`.
    """
    if not (data.endswith(b"\n") and is_utf8(data)):
        yield from ((data[at : at + USUAL_MESSAGE_BYTES], False) for at in range(0, len(data), USUAL_MESSAGE_BYTES))
        return
    start = 0
    while len(data) - start > USUAL_MESSAGE_BYTES:
        end = data.rfind(b"\n", start, start + USUAL_MESSAGE_BYTES) + 1 or data.find(b"\n", start) + 1
        if end - start > LARGEST_TEXT_BYTES:
            yield from ((data[at : min(at + USUAL_MESSAGE_BYTES, end)], False) for at in range(start, end, USUAL_MESSAGE_BYTES))
        else:
            yield data[start:end], True
        start = end
    if start < len(data):
        yield (data[start:] if start else data), True


def is_utf8(data: bytes) -> bool:
    """Whether `data` may be sent as text."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class MessageReader:
    """Turns the messages of a peer, or the frames they come in, into bytes; `ended` is True once the peer has ended its input."""

    def __init__(self) -> None:
        self.ended: bool = False
        self._is_text = False
        self._size = 0  # bytes of the message that is being read
        self._last = b""  # its last byte so far
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._inside_character = False

    def feed(self, data: bytes, *, text: bool | None, final: bool = True) -> bytes:
        """The bytes of the stream that this message holds, or this part of one: `text` is None for a part that continues a message.

        A message of text holds whole lines: the newline that its last one may lack is added. What comes after the end of input is left out.

        Raises:
            ProtocolError: a message of text is not UTF-8.
        """
        if text and final and data and data.isascii():  # the usual message, of which nothing has to be remembered
            whole = data if data.endswith(b"\n") else data + b"\n"
            return b"" if self.ended else whole
        if text is not None:
            self._is_text, self._size, self._last = text, 0, b""
        self._size += len(data)
        self._last = data[-1:] or self._last
        if self._is_text:
            self._check_text(data, final=final)
            if final:
                if not self._size:
                    self.ended = True
                elif self._last != b"\n":
                    data += b"\n"
        return b"" if self.ended else data

    def _check_text(self, data: bytes, *, final: bool) -> None:
        if data.isascii() and not self._inside_character:
            return
        try:
            self._decoder.decode(data, final)
        except UnicodeDecodeError as exc:
            raise ProtocolError(f"a text message of the peer is not UTF-8: {exc.reason}") from exc
        self._inside_character = bool(self._decoder.getstate()[0])


# --- The package `websockets`, of which only the classes without I/O are used: found, configured, and kept from logging what is said.


_WINDOW_BITS = 12
"""Of the windows of compression: each connection holds some 20 KiB for each direction instead of 300."""

_MEMORY_LEVEL = 5


class _WithoutFrames(logging.LoggerAdapter[logging.Logger]):
    """At level DEBUG the protocol would log every header, the token among them, and the frames."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the standard library's name
        return level > logging.DEBUG and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs


_logger = _WithoutFrames(logging.getLogger("claude_transport.streams.websocket"), None)


def check_websocket() -> None:
    """Raise `ConfigurationError` when `websockets` is not installed: for who would otherwise find out with the first client."""
    try:
        import websockets.server  # noqa: F401 - used where a connection is made
    except ImportError as exc:
        raise _not_installed() from exc


def parse_url(url: str) -> WebSocketURI:
    """The parts of a `ws://` or `wss://` URL; `ConfigurationError` when it is none, or `websockets` is not installed."""
    try:
        from websockets.exceptions import InvalidURI
        from websockets.uri import parse_uri
    except ImportError as exc:
        raise _not_installed() from exc
    try:
        return parse_uri(url)
    except InvalidURI as exc:
        raise ConfigurationError("the URL is no WebSocket URL: it looks like wss://host:port/path", option="url") from exc


def client_protocol(uri: WebSocketURI, *, compression: bool, max_message_bytes: int) -> ClientProtocol:
    """A connection that has not been asked for yet."""
    from websockets.client import ClientProtocol
    from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

    offer = ClientPerMessageDeflateFactory(client_max_window_bits=True, compress_settings={"memLevel": _MEMORY_LEVEL})
    return ClientProtocol(uri, extensions=[offer] if compression else None, max_size=max_message_bytes, logger=_logger)


def server_protocol(*, compression: bool, max_message_bytes: int) -> ServerProtocol:
    """A connection that has not been asked for yet; `ConfigurationError` when `websockets` is not installed."""
    try:
        from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
        from websockets.server import ServerProtocol
    except ImportError as exc:
        raise _not_installed() from exc

    settings: Mapping[str, Any] = {"memLevel": _MEMORY_LEVEL}
    accepted = ServerPerMessageDeflateFactory(
        server_max_window_bits=_WINDOW_BITS, client_max_window_bits=_WINDOW_BITS, compress_settings=dict(settings)
    )
    return ServerProtocol(extensions=[accepted] if compression else None, max_size=max_message_bytes, logger=_logger)


def is_open(protocol: Protocol) -> bool:
    """Whether messages may be sent: neither end has said that it closes."""
    return protocol.state.name == "OPEN"


def _not_installed() -> ConfigurationError:
    return ConfigurationError("WebSocket needs the package `websockets`: pip install 'claude-transport[ws]'", option="url")


logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_MAX_MESSAGE_BYTES = 64 * 2**20
"""Bytes one message may have, inflated: four times what an end of this library ever puts into one."""

DEFAULT_CLOSE_TIMEOUT = 2.0
"""Seconds that the farewell may take: some round trips, and no longer when the peer is not listening."""

_CHUNK_BYTES = 64 * 2**10
_DEFLATED_CHUNK_BYTES = 16 * 2**10
"""Bytes asked for at once. Deflate makes at most 1032 bytes of one, so small messages inflate to 16 MiB before the next look."""

_MAX_PENDING_BYTES = 64 * 2**10
"""Bytes of pongs that wait to be sent. A peer that pings on and reads nothing gets no answer to the rest, which RFC 6455, 5.5.3 allows."""

_IS_TEXT = (None, True, False)
"""By opcode of a data frame (RFC 6455, 5.2): the continuation of a message is what its beginning was."""

_FIRST_CONTROL = 8
"""Opcodes from here on are no data."""

_PONG = 0x8A
"""The first byte of a pong frame."""

_BROKEN = (anyio.BrokenResourceError, OSError, ClaudeTransportError)


class WebSocketStream(ByteStream):
    """The bytes of a WebSocket connection whose handshake is done; made by `WebSocketConnectable` and `accept_websocket()`.

    One task at a time may send and one may receive (`anyio.BusyResourceError`). Pings are answered, and the peer's farewell is, while
    somebody receives, and after the peer has ended its input.
    """

    def __init__(self, stream: ByteStream, protocol: Protocol, *, address: str | None, close_timeout: float) -> None:
        self._stream = stream
        self._protocol = protocol
        self._address = address
        self._close_timeout = close_timeout
        self._chunk_bytes = _DEFLATED_CHUNK_BYTES if protocol.extensions else _CHUNK_BYTES
        self._messages = MessageReader()
        self._unread = b""  # what messages have brought, of which the first `_taken` bytes have been received
        self._taken = 0
        self._ending: Exception | None = None  # nothing more is said by the peer, and why
        self._wire_over = False  # nothing more comes from the wire, not even a farewell
        self._outgoing: list[bytes] = []  # frames that are made and not yet sent
        self._outgoing_size = 0
        self._eof_sent = False
        self._torn: BaseException | None = None  # a frame may be out by half: nothing can be sent after it
        self._closed = False
        self._receiving = anyio.ResourceGuard("reading from")
        self._sending = anyio.ResourceGuard("writing to")
        self._pump_lock = anyio.Lock(fast_acquire=True)
        self._send_lock = anyio.Lock(fast_acquire=True)
        self._pumping: anyio.CancelScope | None = None
        self._writing: anyio.CancelScope | None = None
        self._flusher: BackgroundTask | None = None
        self._watcher: BackgroundTask | None = None

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """What the stream below knows, the address, and whether the peer is known to be gone."""
        own: dict[Any, Callable[[], Any]] = {StreamAttribute.ended: lambda: self._ending is not None}
        if self._address is not None:
            own[StreamAttribute.address] = lambda: self._address
        return {**self._stream.extra_attributes, **own}

    # ----------------------------------------------------------------------------------------------------------- receiving

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What the peer sent, at most `max_bytes`; waits for at least one byte. A cancelled call takes nothing along.

        Raises:
            anyio.EndOfStream: the peer has ended its input, or closed the connection in good order.
            anyio.BrokenResourceError: the peer went away without a word.
            ProtocolError: the peer broke the rules of WebSocket, or sent a message over the limit.
            ConnectionLost: the peer closed the connection for another reason.
            anyio.ClosedResourceError: this end is closed.
        """
        if max_bytes < 1:
            raise UsageError(f"max_bytes must be at least 1, not {max_bytes}")
        with self._receiving:
            if self._unread or self._ending is not None:
                await anyio.lowlevel.checkpoint()
            while True:
                if self._closed:
                    raise anyio.ClosedResourceError
                if self._unread:
                    return self._take(max_bytes)
                if self._messages.ended:
                    raise anyio.EndOfStream
                if self._ending is not None:
                    raise self._ending
                await self._pump()

    def _take(self, max_bytes: int) -> bytes:
        start, self._taken = self._taken, self._taken + max_bytes
        data = self._unread[start : self._taken]  # all of it is no copy
        if self._taken >= len(self._unread):
            self._unread, self._taken = b"", 0
        return data

    async def _pump(self) -> None:
        """Read once from the wire. Returns without having read when `aclose()` wants to; the lock then tells it that nobody reads."""
        async with self._pump_lock:
            try:
                with anyio.CancelScope() as self._pumping:
                    self.feed(await self._stream.receive(self._chunk_bytes))
            except anyio.EndOfStream:
                self._wire_over = True
                self._protocol.receive_eof()
                self._settle()
            except (*_BROKEN, anyio.ClosedResourceError) as exc:
                self._wire_over = True
                self._ending = self._ending or exc
            finally:
                self._pumping = None

    def feed(self, data: bytes) -> None:
        """Take in bytes of the wire: for the handshake, which may have received some of what comes behind it."""
        self._protocol.receive_data(data)
        self.take_frames(self._protocol.events_received())

    def take_frames(self, frames: Sequence[Any]) -> None:
        """Take in what the protocol made of the bytes of the wire."""
        brought = [self._read_frame(frame) for frame in frames if frame.opcode < _FIRST_CONTROL]
        if any(brought) and not self._closed:
            # joined here, once for each reading of the wire: a peer may put every line into a message of its own
            self._unread = b"".join([self._unread[self._taken :], *brought]) if len(brought) > 1 or self._unread else brought[0]
            self._taken = 0
        self._settle()
        if self._messages.ended and self._ending is None and self._watcher is None:
            # nobody receives any more, but the peer still pings, and may close
            self._watcher = self._start(self._watch, "watch WebSocket")

    def _read_frame(self, frame: Frame) -> bytes:
        if self._ending is not None:
            return b""
        try:
            return self._messages.feed(bytes(frame.data), text=_IS_TEXT[frame.opcode], final=frame.fin)
        except ProtocolError as exc:
            self._ending = exc
            self._protocol.fail(1007, "not UTF-8")
            return b""

    def _settle(self) -> None:
        """Note whether this was the end, and send what the protocol has to say by itself: pongs, and the answer to a farewell."""
        protocol = self._protocol
        if self._ending is None and (protocol.close_rcvd is not None or protocol.parser_exc is not None or protocol.state.name == "CLOSED"):
            self._ending = ending_of(protocol)
        answers = [each for each in protocol.data_to_send() if each]
        if self._outgoing_size > _MAX_PENDING_BYTES:
            answers = [each for each in answers if each[0] != _PONG]
        self._queue(answers)
        if self._outgoing and self._torn is None and (self._flusher is None or self._flusher.finished):
            # in a task of its own: a reader that waited for a peer to take its pongs could wait for one that waits for it
            self._flusher = self._start(self._flush_answers, "answer on WebSocket")

    def _start(self, func: Callable[[], Any], name: str) -> BackgroundTask | None:
        try:
            return BackgroundTask.spawn(func, name=name)
        except RuntimeError:  # the event loop is ending, and the connection with it
            return None

    async def _watch(self) -> None:
        while self._ending is None and not self._closed:
            await self._pump()

    # ------------------------------------------------------------------------------------------------------------- sending

    async def send(self, item: bytes) -> None:
        """Send all of `item`: whole lines in UTF-8 as messages of text, anything else as messages of bytes.

        Raises:
            anyio.BrokenResourceError: the peer is gone, or an earlier call was cancelled half-way.
            anyio.ClosedResourceError: this end is closed, or `send_eof()` was called.
        """
        if item:
            await self._send(cut_messages(bytes(item)))
        else:
            await anyio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        """Tell the peer that nothing more will be sent, by an empty message of text; receiving goes on."""
        if self._eof_sent or self._closed:
            await anyio.lowlevel.checkpoint()
            return
        await self._send([(b"", True)])
        self._eof_sent = True

    async def _send(self, messages: Any) -> None:
        with self._sending:
            with anyio.CancelScope() as self._writing:
                async with self._send_lock:  # which looks for a cancellation; the stream below yields to others
                    for payload, is_text in messages:
                        self._refuse_if_unwritable()
                        await self._send_message(payload, is_text=is_text)
                    return
            raise anyio.ClosedResourceError  # cancelled by aclose()

    async def _send_message(self, payload: bytes, *, is_text: bool) -> None:
        protocol = self._protocol
        begin = protocol.send_text if is_text else protocol.send_binary
        if len(payload) <= USUAL_MESSAGE_BYTES:
            begin(payload)
            await self._flush()
            return
        for at in range(0, len(payload), USUAL_MESSAGE_BYTES):  # frames of that size: neither end holds the whole message
            self._refuse_if_unwritable()
            is_last = at + USUAL_MESSAGE_BYTES >= len(payload)
            part = payload[at : at + USUAL_MESSAGE_BYTES]
            if at:
                protocol.send_continuation(part, fin=is_last)
            else:
                begin(part, fin=is_last)
            await self._flush()

    async def _flush(self) -> None:
        """Send what is queued, in order; the caller holds the lock."""
        self._queue(self._protocol.data_to_send())
        while self._outgoing:
            data = b"".join(self._outgoing)
            self._outgoing.clear()
            self._outgoing_size = 0
            try:
                await self._stream.send(data)
            except _BROKEN as exc:
                self._torn = exc
                raise anyio.BrokenResourceError(str(exc) or "the connection is broken") from (exc.__cause__ or exc)
            except BaseException as exc:
                self._torn = exc
                raise

    def _queue(self, frames: Sequence[bytes]) -> None:
        self._outgoing.extend(each for each in frames if each)  # an empty one asks to half-close the wire, which closing does anyway
        self._outgoing_size += sum(map(len, frames))

    async def _flush_answers(self) -> None:
        async with self._send_lock:
            if self._torn is None:
                try:
                    await self._flush()
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    logger.debug("the peer of a WebSocket connection was gone before it was answered", exc_info=True)

    def _refuse_if_unwritable(self) -> None:
        if self._closed or self._eof_sent:
            raise anyio.ClosedResourceError
        if self._torn is not None:
            raise anyio.BrokenResourceError("an earlier frame was not sent as a whole") from self._torn
        if not is_open(self._protocol):
            raise anyio.BrokenResourceError("the WebSocket connection is closed") from self._ending

    # ------------------------------------------------------------------------------------------------------------- closing

    async def aclose(self) -> None:
        """Close the connection, with the closing handshake if the peer takes part within the timeout; wakes who receives or sends."""
        if self._closed:
            await anyio.lowlevel.checkpoint()
            return
        self._closed = True
        for scope in (self._pumping, self._writing):
            if scope is not None:
                scope.cancel()
        is_done = False
        try:
            with anyio.move_on_after(self._close_timeout):
                await self._say_goodbye()
                await self._stream.aclose()
                is_done = True
        except (*_BROKEN, anyio.ClosedResourceError):
            logger.debug("a WebSocket connection was broken when it was closed", exc_info=True)
        finally:
            self._unread, self._taken = b"", 0
            with anyio.CancelScope(shield=True):
                if not is_done:
                    await anyio.aclose_forcefully(self._stream)
                for task in (self._flusher, self._watcher):
                    if task is not None:
                        task.cancel()
                        await task.wait()

    async def _say_goodbye(self) -> None:
        protocol = self._protocol
        async with self._send_lock:
            if self._torn is None:
                if is_open(protocol):
                    protocol.send_close(1000)
                await self._flush()
        # a client need not wait until the server has closed the wire as well (RFC 6455, 7.1.1: SHOULD): its owner may not look for long
        while self._torn is None and protocol.close_rcvd is None and not (self._wire_over or protocol.eof_sent):
            await self._pump()
