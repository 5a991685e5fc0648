"""`BridgeHost`: serves tools of this program to the bridges that the CLI starts, over a socket with a token.

`BridgeConnection` carries the messages of one bridge. `tools.py` has the MCP server for plain functions; servers of the package `mcp` are
run by `client/mcp.py`. `configuration.py` has the messages.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

import anyio
from anyio.abc import ByteSendStream, ByteStream, TaskGroup

from claude_transport.bridge.configuration import (
    BUSY,
    GREETING_VERSION,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    MAX_GREETING_BYTES,
    PARSE_ERROR,
    BridgeWelcome,
    Greeting,
    Refusal,
    bridge_config,
    check_bridge_url,
    check_token,
    decode_greeting,
    decode_rpc,
    encode_greeting,
    encode_rpc,
    is_request_id,
    rpc_error,
)
from claude_transport.bridge.tools import HostTool, ToolsSession
from claude_transport.client.mcp import McpCall, McpServers, OnFailure
from claude_transport.errors import ConfigurationError, ProtocolError, UsageError
from claude_transport.exchange.failures import CallbackFailures
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.protocol.framing import LineFramer
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.serving.door import UnadmittedConnections
from claude_transport.serving.listeners import Listener, accept_all, open_listeners
from claude_transport.serving.turned_away import RefusalLog
from claude_transport.streams.address import Address
from claude_transport.streams.sockets import SocketStream

logger: logging.Logger = logger_for(__name__)

DEFAULT_MAX_LINE_BYTES: Final = 64 * 2**20
"""Bytes of one message, in both directions."""

_HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds for the greeting of a new connection. A bridge sends it at once."""

_CLOSING: Final = 2.0
"""Seconds that closing a connection may take."""

_MAX_SOCKET_PATH: Final = 103
"""Bytes of a socket path on macOS, without the zero at its end."""


class HostSession(Protocol):
    """One life of a server of the host, for one bridge."""

    def accept(self, message: dict[str, Any]) -> McpCall:
        """Take a JSON-RPC message, without waiting. Return a call whose `answer()` waits for the answer."""
        ...

    async def aclose(self) -> None:
        """End the session and cancel its tools. Bounded."""
        ...


Tell: TypeAlias = Callable[[dict[str, Any]], None]
OpenSession: TypeAlias = Callable[[Tell], HostSession]
"""Makes a session, from the function with which it sends its own messages."""

_Make: TypeAlias = Callable[[Tell, OnFailure], HostSession]


class BridgeHost:
    """Serves tools of this program to `claude` processes on this machine. Use it with `async with`, or with `start()` and `aclose()`.

    A bridge is a small program that the CLI starts as an MCP server; it connects to this host over a local socket. Give `mcp_servers` of
    the host to the options of the CLI. Any number of bridges may be connected at once, up to `max_bridges`; each has a session of its own.

    Args:
        servers: MCP servers by name: each a `mcp.server.Server`, an `MCPServer`, or a collection of `HostTool`s.
        listen: `unix:///path` (made with mode 0600) or `tcp://127.0.0.1:port`. By default a socket in a private directory, or a free port
            where the system has no Unix sockets.
        token: the token that bridges must show; a random one by default.
        max_bridges: bridges at the same time; more are refused.
        max_calls: open calls of one bridge; further calls get an error at once.
        max_line_bytes: bytes of one message; a longer one gets an error.
        compare: compares two digests of tokens in constant time.

    Raises:
        ConfigurationError: a server is not valid, the CLI would write two names alike, the address is not on this machine, or the token can
            be guessed.
    """

    def __init__(
        self,
        servers: Mapping[str, Any],
        *,
        listen: str | None = None,
        token: str | None = None,
        max_bridges: int = 32,
        max_calls: int = 64,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
        compare: Callable[[bytes, bytes], bool] = hmac.compare_digest,
    ) -> None:
        for option, value in {"max_bridges": max_bridges, "max_calls": max_calls, "max_line_bytes": max_line_bytes}.items():
            if value < 1:
                raise ConfigurationError(f"{option} must be at least 1, not {value!r}", option=option)
        self._makers = _checked_servers(servers)
        self._address = None if listen is None else check_bridge_url(listen)
        self._token = check_token(token if token is not None else secrets.token_urlsafe(32))
        self._digest = _digest(self._token)
        self._compare = compare
        self._max_bridges = max_bridges
        self._max_calls = max_calls
        self._max_line_bytes = max_line_bytes
        self._failures = CallbackFailures(lambda: redactor_knowing([os.environ]))
        self._refusals = RefusalLog(logger)
        self._directory: str | None = None
        self._listeners: list[Listener] = []
        self._server: LoopTask | None = None
        self._crowd = UnadmittedConnections(full=2 * max_bridges, per_source=2 * max_bridges)  # connections that are not admitted
        self._bridges = 0
        self._closed = False

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"BridgeHost({', '.join(self._makers)})"

    async def start(self) -> None:
        """Open the socket, and serve bridges in the background. They can connect when this returns.

        Raises:
            ConfigurationError: the address is taken or not allowed.
            UsageError: the host was started or closed before; make a new one.
        """
        if self._server is not None or self._closed:
            raise UsageError("this host was started or closed before: make a new one")
        try:
            self._listeners = await open_listeners(self._address or self._private_address())
        except BaseException:
            self._remove_directory()
            raise
        self._server = LoopTask.spawn(partial(accept_all, self._listeners, self._attend), name="bridge host")

    async def aclose(self) -> None:
        """Stop listening, close the connections of all bridges, and cancel the tools that run for them. Returns when all has ended.

        Callable from any task, and more than once.
        """
        self._closed = True
        for listener in self._listeners:
            listener.close()
        try:
            if self._server is not None:
                self._server.cancel()
                await self._server.join()
        finally:
            self._remove_directory()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        await self.aclose()

    @property
    def url(self) -> str:
        """The URL at which bridges connect, with the real port. Raises `UsageError` before `start()`."""
        if not self._listeners:
            raise UsageError("the host has not been started: use `async with host`, or start()")
        return str(self._listeners[0].address)

    @property
    def token(self) -> str:
        """The token that a bridge must show to be admitted: the argument `token`, or the random one that was made in its place."""
        return self._token

    @property
    def mcp_servers(self) -> dict[str, dict[str, Any]]:
        """The value for `ClaudeOptions(mcp_servers=…)`: for each server of the host, an entry that makes the CLI start a bridge to it.

        The entries hold the token. Raises `UsageError` before `start()`.
        """
        return {name: bridge_config(self.url, token=self._token, server=name) for name in self._makers}

    @property
    def bridges(self) -> int:
        """The number of bridges that are connected and admitted at this moment."""
        return self._bridges

    @property
    def failed_calls(self) -> int:
        """How often a `HostTool`, a server or the connection of a bridge has raised an exception. Each is logged.

        Exceptions in tools of an `mcp` server are not counted: the package `mcp` turns them into answers.
        """
        return self._failures.failed

    async def _attend(self, stream: SocketStream, _address: Address, _peer: str) -> None:
        try:
            await self._receive(stream)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("a bridge closed its connection before it was admitted")
        except Exception as exc:  # noqa: BLE001 - one connection must not end the others
            self._failures.note("the connection of a bridge", exc)
        finally:
            with anyio.move_on_after(_CLOSING, shield=True):
                await stream.aclose()

    async def _receive(self, stream: SocketStream) -> None:
        framer = LineFramer(max_line_bytes=self._max_line_bytes)
        admitted: tuple[str, list[bytes]] | None = None
        with anyio.move_on_after(_HANDSHAKE_TIMEOUT) as scope, self._crowd.hold(scope, source=""):
            admitted = await self._admit(stream, framer)
        if admitted is None or scope.cancelled_caught:
            return
        server, rest = admitted
        make = self._makers[server]
        try:
            connection = BridgeConnection(
                stream,
                open_session=lambda tell: make(tell, self._failures.note),
                max_calls=self._max_calls,
                max_line_bytes=self._max_line_bytes,
            )
            await connection.serve(framer, first=rest)
        finally:
            self._bridges -= 1

    async def _admit(self, stream: SocketStream, framer: LineFramer) -> tuple[str, list[bytes]] | None:
        """Return the server that a bridge may have, and the lines behind its greeting; None for a refused one.

        The bridge counts from before its welcome, so that no more are admitted than `max_bridges`.
        """
        lines = await _first_lines(stream, framer)
        if not lines:
            return None
        try:
            greeting = decode_greeting(lines[0])
        except ProtocolError:
            return None  # an unknown protocol gets no answer
        refused = self._objection(greeting)
        welcomed = False
        self._bridges += refused is None
        try:
            with anyio.move_on_after(_CLOSING):
                await stream.send(encode_greeting(BridgeWelcome(mcp_bridge=GREETING_VERSION, refused=refused)))
                welcomed = refused is None
        finally:
            self._bridges -= refused is None and not welcomed
        if not welcomed:
            self._refusals.note(logging.WARNING, "bridge_turned_away", "refused a bridge: %s", refused)
            return None
        return greeting.server, lines[1:]

    def _objection(self, greeting: Greeting) -> Refusal | None:
        # check the token first: without it, a client learns nothing else
        if not self._compare(_digest(greeting.token), self._digest):
            return "auth"
        if greeting.mcp_bridge != GREETING_VERSION:
            return "version"
        if greeting.server not in self._makers:
            return "server"
        return "busy" if self._bridges >= self._max_bridges else None

    def _private_address(self) -> Address:
        if not hasattr(socket, "AF_UNIX"):
            return Address(scheme="tcp", host="127.0.0.1")
        self._directory = tempfile.mkdtemp(prefix="ct-bridge-")  # mode 0700
        path = str(Path(self._directory, "host.sock"))
        if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
            self._remove_directory()
            return Address(scheme="tcp", host="127.0.0.1")
        return Address(scheme="unix", path=path)

    def _remove_directory(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            with contextlib.suppress(OSError):  # a cleaner of temporary files may have removed it
                shutil.rmtree(directory)


async def _first_lines(stream: SocketStream, framer: LineFramer) -> list[bytes]:
    """Return the greeting and the lines that came with it; an empty list when it is missing or too long."""
    read = 0
    while read <= MAX_GREETING_BYTES:
        try:
            chunk = await stream.receive(MAX_GREETING_BYTES)
        except anyio.EndOfStream:
            return []
        read += len(chunk)
        if lines := framer.feed(chunk):
            return lines
    return []


def _checked_servers(servers: Mapping[str, Any]) -> dict[str, _Make]:
    """Return for each server the function that makes a session of it."""
    if not isinstance(servers, Mapping) or not servers:
        raise _refused("servers is not a mapping with at least one server: give {name: server}")
    written: dict[str, str] = {}
    for name in servers:
        if not isinstance(name, str) or not name or len(name) > 256:
            raise _refused(f"{str(name)[:256]!r} is not a valid name of a server: use 1 to 256 characters")
        alike = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        if alike in written:
            raise _refused(f"the servers {written[alike]!r} and {name!r} are both mcp__{alike}__… to the model: rename one of them")
        written[alike] = name
    return {name: _maker(name, server) for name, server in servers.items()}


def _maker(name: str, server: Any) -> _Make:
    if isinstance(server, Iterable) and not isinstance(server, str | bytes | Mapping):
        tools = [*server]
        if not all(isinstance(tool, HostTool) for tool in tools):
            raise _refused(f"the tools of {name!r} are not all HostTools")
        by_name = {tool.name: tool for tool in tools}
        if len(by_name) < len(tools):
            raise _refused(f"two tools of {name!r} have the same name: rename one of them")
        return lambda tell, on_failure: ToolsSession(name, by_name, tell=tell, on_failure=on_failure)
    if isinstance(server, Mapping):
        raise _refused(f"{name!r} is a configuration, which the CLI uses without a bridge: give it to ClaudeOptions(mcp_servers=...)")
    McpServers({name: server}, on_failure=lambda *_: None, tell=lambda *_: None)  # raises for an object that is not a server
    return lambda tell, on_failure: _ServerSession(name, server, tell=tell, on_failure=on_failure)


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, option="servers")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class _ServerSession:
    """A session of an object of the package `mcp`."""

    def __init__(self, name: str, server: Any, *, tell: Tell, on_failure: OnFailure) -> None:
        self._name = name
        self._servers = McpServers({name: server}, on_failure=on_failure, tell=lambda _name, message: tell(message))

    def accept(self, message: dict[str, Any]) -> McpCall:
        return self._servers.accept(self._name, message)

    async def aclose(self) -> None:
        await self._servers.aclose()


_SESSION_CLOSING: Final = 5.0
"""Seconds for a session to end when its bridge has gone, including the seconds that it gives its tools."""

_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class BridgeConnection:
    """Carries messages between one admitted bridge and its session.

    At `max_calls` open requests, further requests get an error at once, so that a cancellation is always read.

    Args:
        stream: the connection.
        open_session: makes the session.
        max_calls: open requests.
        max_line_bytes: bytes of a line of the bridge, and of an answer.
    """

    def __init__(self, stream: ByteStream, *, open_session: OpenSession, max_calls: int, max_line_bytes: int) -> None:
        self._stream = stream
        self._max_calls = max_calls
        self._max_line_bytes = max_line_bytes
        self._outbox = Outbox()
        self._open: set[str | int] = set()
        self._cancelled: set[str | int] = set()
        self._dropped = 0
        self._session = open_session(self._tell)

    async def serve(self, framer: LineFramer, *, first: Iterable[bytes] = ()) -> None:
        """Serve until the bridge closes the connection, then end the session and cancel its tools.

        Args:
            framer: holds the bytes that were read behind the greeting.
            first: the lines that came with the greeting.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, tasks)
                for line in first:
                    await self._take(line, tasks)
                await self._read(framer, tasks)
                tasks.cancel_scope.cancel()
        finally:
            if self._dropped:
                logger.warning("a bridge did not read: %d messages that need no answer were dropped", self._dropped)
            with anyio.move_on_after(_SESSION_CLOSING, shield=True):
                await self._session.aclose()

    async def _write(self, tasks: TaskGroup) -> None:
        try:
            await self._outbox.write_to(self._stream)
        except _GONE:
            tasks.cancel_scope.cancel()

    async def _read(self, framer: LineFramer, tasks: TaskGroup) -> None:
        while True:
            try:
                chunk = await self._stream.receive()
            except _GONE:
                return
            for line in framer.feed(chunk):
                await self._take(line, tasks)

    async def _take(self, line: bytes, tasks: TaskGroup) -> None:
        message = decode_rpc(line)
        if message is None:
            await self._outbox.put(encode_rpc(rpc_error(None, PARSE_ERROR, "the line is not a JSON object, or it is too long")))
            return
        request_id = message.get("id")
        if "method" not in message or "id" not in message:
            self._note_cancellation(message)
            self._session.accept(message)
        elif not is_request_id(request_id):
            await self._outbox.put(encode_rpc(rpc_error(None, INVALID_REQUEST, "a request id is a string or an integer")))
        elif request_id in self._open:
            # without an id: under this one, it would be taken for the answer to the first request
            await self._outbox.put(encode_rpc(rpc_error(None, INVALID_REQUEST, f"the request id {request_id!r} is already in use")))
        elif len(self._open) >= self._max_calls:
            text = f"this bridge has {self._max_calls} open calls already"
            await self._outbox.put(encode_rpc(rpc_error(request_id, BUSY, text, reason="bridge.busy")))
        else:
            self._open.add(request_id)
            tasks.start_soon(self._answer, request_id, self._session.accept(message))

    def _note_cancellation(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        if message.get("method") == "notifications/cancelled" and isinstance(params, dict):
            request_id = params.get("requestId")
            if is_request_id(request_id) and request_id in self._open:
                self._cancelled.add(request_id)

    async def _answer(self, request_id: str | int, call: McpCall) -> None:
        answer = await call.answer()
        self._open.discard(request_id)
        if request_id in self._cancelled:  # MCP: a cancelled request gets no answer
            self._cancelled.discard(request_id)
            return
        await self._outbox.put(self._line_of(request_id, answer))

    def _line_of(self, request_id: str | int, answer: dict[str, Any]) -> bytes:
        try:
            line = encode_rpc(answer)
        except (TypeError, ValueError) as exc:
            # the exception may quote the answer
            logger.error("an answer of a host's tool cannot be written as JSON: %s", type(exc).__name__)  # noqa: TRY400
            return encode_rpc(rpc_error(request_id, INTERNAL_ERROR, "the tool's answer cannot be written as JSON"))
        if len(line) > self._max_line_bytes:
            text = f"the answer has {len(line)} bytes, more than the {self._max_line_bytes} that this host allows"
            return encode_rpc(rpc_error(request_id, INTERNAL_ERROR, text, reason="bridge.too_large"))
        return line

    def _tell(self, message: dict[str, Any]) -> None:
        """Send a message of the server. It is dropped when the bridge does not read; a server's own timeout covers its questions."""
        if not self._outbox.offer(encode_rpc(message)):
            self._dropped += 1


DEFAULT_MAX_WAITING_BYTES: Final = 8 * 2**20
"""Bytes that wait for a bridge that does not read. Beyond that, answers wait, and messages that need no answer are dropped."""


class Outbox:
    """Lines that wait to be written to one bridge, in order. One line may exceed the bound, because it has to be kept somewhere."""

    def __init__(self, *, max_waiting_bytes: int = DEFAULT_MAX_WAITING_BYTES) -> None:
        self._max_waiting_bytes = max_waiting_bytes
        self._lines: list[bytes] = []
        self._waiting_bytes = 0  # includes the lines that are being written
        self._work = anyio.Event()
        self._room = anyio.Event()

    async def put(self, line: bytes) -> None:
        """Add a line. Waits while there is no room."""
        while self._waiting_bytes >= self._max_waiting_bytes:
            await self._room.wait()
        self._add(line)

    def offer(self, line: bytes) -> bool:
        """Add a line if there is room, without waiting. Return False when there is none."""
        if self._waiting_bytes >= self._max_waiting_bytes:
            return False
        self._add(line)
        return True

    async def write_to(self, stream: ByteSendStream) -> None:
        """Write the lines to `stream` in batches, until cancelled. Raises what the stream raises."""
        while True:
            while not self._lines:
                self._work = anyio.Event()
                await self._work.wait()
            batch, self._lines = b"".join(self._lines), []
            await stream.send(batch)
            self._waiting_bytes -= len(batch)
            self._room.set()
            self._room = anyio.Event()

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._waiting_bytes += len(line)
        self._work.set()
