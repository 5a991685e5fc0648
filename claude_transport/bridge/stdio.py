"""`StdioBridge`: the program that the CLI starts as a stdio MCP server. It carries lines between the CLI and the host.

It has two threads and a socket, and no event loop: it only waits for two files, starts with every session, and works with any kind of
stdin. When the host cannot be reached or goes away, it answers every open and later request with a JSON-RPC error, because an MCP client
waits for ever for a silent server. `configuration.py` has the messages, `host.py` the other end.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from claude_transport.bridge.configuration import (
    HOST_GONE,
    MAX_GREETING_BYTES,
    BridgeSettings,
    Greeting,
    decode_rpc,
    decode_welcome,
    encode_greeting,
    encode_rpc,
    is_request_id,
    rpc_error,
)
from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    ConnectionLost,
    ConnectTimeout,
    ProtocolError,
)
from claude_transport.protocol.framing import LineFramer, OversizedLine

_CONNECT_TIMEOUT: Final = 10.0
"""Seconds to reach the host and be admitted. The CLI gives a server 30 to start (`MCP_TIMEOUT`)."""

_LAST_ANSWERS: Final = 5.0
"""Seconds for the last answers of the host after stdin has ended."""

_CHUNK: Final = 65536


class _Envelope(msgspec.Struct):
    """The fields of a message that a bridge needs."""

    id: Any = None
    method: Any = None


class StdioBridge:
    """Carries lines between two file descriptors and a host until stdin ends.

    Args:
        settings: address, token and server of the host.
        stdin: file descriptor to read the CLI's messages from.
        stdout: file descriptor to write the host's messages to.
        on_failure: called at most once, with the error, when the host cannot be reached or goes away.
    """

    def __init__(self, settings: BridgeSettings, *, stdin: int, stdout: int, on_failure: Callable[[ClaudeTransportError], object]) -> None:
        self._settings = settings
        self._stdin = stdin
        self._stdout = stdout
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._pending: dict[str | int, None] = {}
        self._failure: ClaudeTransportError | None = None
        self._ending = False

    def run(self) -> bool:
        """Carry lines until stdin has ended. Return True when the host was connected all the time."""
        connected: socket.socket | None = None
        reader: threading.Thread | None = None
        try:
            connected, framer, first = self._enter()
            # a daemon thread: a host that never closes must not keep the process alive
            reader = threading.Thread(target=self._carry_back, args=(connected, framer, first), name="from the host", daemon=True)
            reader.start()
        except ClaudeTransportError as exc:
            self._fail(exc)
        try:
            for line in _lines(lambda: os.read(self._stdin, _CHUNK), LineFramer()):
                self._carry(line, connected)
            self._ending = True
            if connected is not None and reader is not None:
                self._shut(connected)
                reader.join(_LAST_ANSWERS)
        finally:
            if connected is not None:
                connected.close()
        return self._failure is None

    def _enter(self) -> tuple[socket.socket, LineFramer, list[bytes]]:
        """Connect and be admitted. Return the socket, and the bytes and lines that came behind the welcome."""
        address = self._settings.address
        connected = socket.socket(socket.AF_UNIX) if address.scheme == "unix" else None
        try:
            if connected is None:
                connected = socket.create_connection((address.host, address.port), timeout=_CONNECT_TIMEOUT)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            else:
                connected.settimeout(_CONNECT_TIMEOUT)
                connected.connect(address.path)
            connected.sendall(encode_greeting(Greeting(server=self._settings.server, token=self._settings.token)))
            framer, first = self._await_welcome(connected)
            connected.settimeout(None)
        except BaseException as exc:
            if connected is not None:
                connected.close()
            if isinstance(exc, TimeoutError):
                message = f"the host at {address} did not answer within {_CONNECT_TIMEOUT:g} s"
                raise ConnectTimeout(message, waited=_CONNECT_TIMEOUT, code="bridge.host_unreachable") from exc
            if isinstance(exc, OSError):
                message = f"the host at {address} cannot be reached: {exc.strerror or exc}"
                raise CLIConnectionError(message, code="bridge.host_unreachable") from exc
            raise
        return connected, framer, first

    def _await_welcome(self, connected: socket.socket) -> tuple[LineFramer, list[bytes]]:
        framer, read = LineFramer(), 0
        while read <= MAX_GREETING_BYTES:
            chunk = connected.recv(_CHUNK)
            if not chunk:
                raise CLIConnectionError("the host closed the connection before it admitted the bridge", code="bridge.host_unreachable")
            read += len(chunk)
            if lines := framer.feed(chunk):
                welcome = decode_welcome(lines[0])
                if welcome.refused == "auth":
                    raise AuthenticationError("the host does not accept the token of this bridge", code="bridge.refused")
                if welcome.refused is not None:
                    raise CLIConnectionError(
                        f"the host refused the bridge to {self._settings.server!r}: {welcome.refused}",
                        code="bridge.refused",
                        retryable=False,
                    )
                return framer, lines[1:]
        raise ProtocolError("the program at this address is not the host of a bridge", code="bridge.protocol")

    def _carry(self, line: bytes, connected: socket.socket | None) -> None:
        """Send a line of the CLI to the host, or answer it with an error when the host is gone."""
        message = _look(line)
        request_id = message.id if message is not None and message.method is not None and is_request_id(message.id) else None
        with self._lock:
            failure = self._failure
            if request_id is not None and failure is None:
                self._pending[request_id] = None
        if failure is not None or connected is None:
            if request_id is not None and failure is not None:
                self._write(_failed(request_id, failure))
            return
        try:
            connected.sendall(line + b"\n")
        except OSError as exc:
            self._fail(_gone(exc))

    def _carry_back(self, connected: socket.socket, framer: LineFramer, first: list[bytes]) -> None:
        """Write the lines of the host to stdout until the host closes. Runs in a thread of its own."""
        try:
            for line in first:
                self._hand_over(line)
            for line in _lines(lambda: connected.recv(_CHUNK), framer):
                self._hand_over(line)
            failure: ClaudeTransportError = ConnectionLost("the host of this server has gone", code="bridge.host_gone")
        except ProtocolError as exc:
            failure = exc
        except OSError as exc:
            failure = _gone(exc)
        if not self._ending:
            self._fail(failure)
        self._shut(connected)

    def _hand_over(self, line: bytes) -> None:
        if isinstance(line, OversizedLine):
            raise ProtocolError(f"the host sent a message of {line.size} bytes", code="bridge.too_large")
        message = _look(line)
        if message is not None and message.method is None and is_request_id(message.id):
            with self._lock:
                if message.id not in self._pending and self._failure is not None:
                    return  # this request has its error answer already
                self._pending.pop(message.id, None)
        self._write(line + b"\n")

    def _fail(self, failure: ClaudeTransportError) -> None:
        """Note that the host is gone, and answer all open requests with an error."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = failure
            pending, self._pending = list(self._pending), {}
        self._on_failure(failure)
        for request_id in pending:
            self._write(_failed(request_id, failure))

    def _write(self, data: bytes) -> None:
        with self._lock:  # two threads write, and a line must stay whole
            rest = memoryview(data)
            try:
                while rest:
                    rest = rest[os.write(self._stdout, rest) :]
            except OSError:
                pass  # the CLI has gone: stdin ends, and the bridge ends with it

    def _shut(self, connected: socket.socket) -> None:
        try:
            connected.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is shut already


def _lines(read: Callable[[], bytes], framer: LineFramer) -> Iterator[bytes]:
    """Yield the lines of all chunks that `read()` returns, until it returns nothing."""
    while chunk := read():
        yield from framer.feed(chunk)
    if rest := framer.finish():
        yield rest


def _look(line: bytes) -> _Envelope | None:
    try:
        return msgspec.json.decode(line, type=_Envelope)
    except (ValueError, RecursionError):
        message = decode_rpc(line)
        return None if message is None else _Envelope(message.get("id"), message.get("method"))


def _failed(request_id: str | int, failure: ClaudeTransportError) -> bytes:
    return encode_rpc(rpc_error(request_id, HOST_GONE, str(failure), reason=failure.code))


def _gone(cause: OSError) -> ConnectionLost:
    lost = ConnectionLost("the host of this server has gone", code="bridge.host_gone")
    lost.__cause__ = cause
    return lost
