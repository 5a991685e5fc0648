"""`BridgeHost`: serves tools of this program to the bridges that the CLI starts, over a socket that asks for a token."""

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
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import anyio
from anyio.abc import TaskGroup

from claude_transport.background import BackgroundTask
from claude_transport.bridge.configuration import bridge_config, check_bridge_url, check_token
from claude_transport.bridge.connection import (
    CANCELLED,
    GREETING_VERSION,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_GREETING_BYTES,
    METHOD_NOT_FOUND,
    BridgeConnection,
    Greeting,
    HostSession,
    OpenSession,
    Refusal,
    Welcome,
    decode_greeting,
    encode_greeting,
    is_request_id,
    rpc_error,
)
from claude_transport.bridge.tools import HostTool, ToolContext, result_of
from claude_transport.client.mcp import McpCall, McpServers, OnFailure
from claude_transport.client.reports import CallbackFailures, guarded
from claude_transport.errors import ConfigurationError, ProtocolError, UsageError
from claude_transport.gateway.door import Crowd
from claude_transport.gateway.listeners import Listener, open_listeners
from claude_transport.gateway.turned_away import RefusalLog
from claude_transport.protocol.framing import LineFramer
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.streams.address import Address
from claude_transport.streams.sockets import SocketStream

# --- `RegistrySession`: the MCP server that a plain registry of functions is for one bridge, without the package `mcp`.


PROTOCOL_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Of MCP, newest first: in all of them tools are listed and called alike."""

_GRACE: Final = 3.0
"""Seconds that cancelled tools get to end when their bridge has gone; one that resists is not worth hanging for."""


class RegistrySession:
    """One bridge's conversation with `tools`; what they say of their progress goes to `tell(message)`."""

    def __init__(self, name: str, tools: Mapping[str, HostTool], *, tell: Callable[[dict[str, Any]], None], on_failure: OnFailure) -> None:
        self._name = name
        self._tools = tools
        self._tell = tell
        self._on_failure = on_failure
        self._running: dict[str | int, BackgroundTask] = {}

    def accept(self, message: dict[str, Any]) -> McpCall:
        """Hand it a message of the CLI; what comes of it is the call's to say."""
        request_id, method = message.get("id"), message.get("method")
        given = message.get("params")
        params = given if isinstance(given, dict) else {}
        if "id" not in message or method is None:
            if method == "notifications/cancelled":
                self._cancel(params.get("requestId"))
            return McpCall({})  # a notification, or the answer to a question that was never asked
        if not is_request_id(request_id):
            return McpCall.failed(request_id, INVALID_REQUEST, "a request id is a string or an integer")
        match method:
            case "initialize":
                return _answered(request_id, self._introduction(params.get("protocolVersion")))
            case "ping":
                return _answered(request_id, {})
            case "tools/list":
                return _answered(request_id, {"tools": [tool.described() for tool in self._tools.values()]})
            case "tools/call":
                return self._call(request_id, params)
        return McpCall.failed(request_id, METHOD_NOT_FOUND, "Method not found")

    async def aclose(self) -> None:
        """Cancel the tools that still run, and wait for them."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        with anyio.move_on_after(_GRACE, shield=True):
            for task in running:
                await task.wait()

    def _introduction(self, wanted: object) -> dict[str, Any]:
        return {
            "protocolVersion": wanted if wanted in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": self._name, "version": version("claude-transport")},
        }

    def _call(self, request_id: str | int, params: Mapping[str, Any]) -> McpCall:
        name = params.get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        arguments = params.get("arguments", {})
        if tool is None:
            return McpCall.failed(request_id, INVALID_PARAMS, f"there is no tool {str(name)[:128]!r}")
        if not isinstance(arguments, dict):
            return McpCall.failed(request_id, INVALID_PARAMS, "the arguments of a tool are an object")
        if missing := tool.missing(arguments):
            return McpCall.failed(request_id, INVALID_PARAMS, f"{tool.name} needs {', '.join(map(str, missing))}")
        if request_id in self._running:
            return McpCall.failed(request_id, INVALID_REQUEST, f"the request id {request_id!r} is already in use")
        outcome: list[dict[str, Any]] = []
        call = McpCall(on_withdrawal=lambda: self._cancel(request_id))

        async def work() -> None:
            outcome.append({"jsonrpc": "2.0", "id": request_id, "result": await self._result(tool, arguments, request_id, params)})

        def end() -> None:
            self._running.pop(request_id, None)
            call.fill(outcome[0] if outcome else rpc_error(request_id, CANCELLED, "cancelled"))

        self._running[request_id] = BackgroundTask.spawn(work, name=f"tool {tool.name}", at_end=end)
        return call

    async def _result(self, tool: HostTool, arguments: dict[str, Any], request_id: str | int, params: Mapping[str, Any]) -> dict[str, Any]:
        meta = params.get("_meta")
        progress_token = meta.get("progressToken") if isinstance(meta, dict) else None

        def tell_progress(told: dict[str, Any]) -> None:
            self._tell({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": progress_token, **told}})

        context = ToolContext(tool.name, request_id=request_id, tell_progress=None if progress_token is None else tell_progress)
        try:
            return result_of(await guarded(tool.call(arguments, context)))
        except Exception as exc:  # noqa: BLE001 - a tool is a callback: whatever it raises is noted, and told to the model
            self._on_failure(f"the tool {tool.name!r} of {self._name!r}", exc)
            return {"content": [{"type": "text", "text": str(exc) or type(exc).__name__}], "isError": True}

    def _cancel(self, request_id: object) -> None:
        task = self._running.get(request_id) if is_request_id(request_id) else None
        if task is not None:
            task.cancel()


def _answered(request_id: str | int, result: dict[str, Any]) -> McpCall:
    return McpCall({"jsonrpc": "2.0", "id": request_id, "result": result})


logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_MAX_LINE_BYTES: Final = 64 * 2**20
"""Bytes of one message, in either direction: an image or a file, not a disk."""

_HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds that somebody who connects has to say who it is. A bridge does so at once."""

_CLOSING: Final = 2.0
"""Seconds that closing a connection may take."""

_MAX_SOCKET_PATH: Final = 103
"""Bytes: macOS has room for 103 and a zero."""

Make = Callable[[Callable[[dict[str, Any]], None], OnFailure], HostSession]


class BridgeHost:
    """The tools of this program, for any number of bridges at once, each with a session of its own.

    `servers` maps names to `mcp.server.Server` or `MCPServer` objects, or to collections of `HostTool` (which need no package `mcp`).
    `listen` is `unix:///path` (made with mode 0600) or `tcp://127.0.0.1:port`; by default a socket in a private directory, or a free
    port where the system has no Unix sockets. `token` is made when none is given. `max_bridges` are let in at once, each with
    `max_calls` open calls; a message has at most `max_line_bytes` bytes. `compare` compares the digest of a token that a bridge shows with
    the right one, in constant time.

    Raises `ConfigurationError` for what is no server, for two names that the CLI writes alike, for an address that is not on this
    machine, and for a token that could be guessed.
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
        if min(max_bridges, max_calls, max_line_bytes) < 1:
            raise ConfigurationError("max_bridges, max_calls and max_line_bytes are at least 1", option="max_bridges")
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
        self._server: BackgroundTask | None = None
        self._crowd = Crowd(full=2 * max_bridges, per_source=2 * max_bridges)  # connections that have not been let in
        self._bridges = 0
        self._closed = False

    def __repr__(self) -> str:
        """Without the token."""
        return f"BridgeHost({', '.join(self._makers)})"

    # -------------------------------------------------------------------------------------------------------- opening, closing

    async def start(self) -> None:
        """Listen; returns when bridges can connect.

        Raises:
            ConfigurationError: the address is taken or not allowed.
            UsageError: it was started or closed before.
        """
        if self._server is not None or self._closed:
            raise UsageError("the host of bridges is started once")
        try:
            self._listeners = await open_listeners(self._address or self._private_address())
        except BaseException:
            self._remove_directory()
            raise
        self._server = BackgroundTask.spawn(self._serve, name="bridge host")

    async def aclose(self) -> None:
        """Hang up on all bridges, cancel their tools and stop listening; from any task, and more than once."""
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

    # ---------------------------------------------------------------------------------------------------------------- what it is

    @property
    def url(self) -> str:
        """Where bridges connect; raises `UsageError` before `start()`."""
        if not self._listeners:
            raise UsageError("the host has not been started")
        return str(self._listeners[0].address)

    @property
    def token(self) -> str:
        """What bridges have to show."""
        return self._token

    @property
    def mcp_servers(self) -> dict[str, dict[str, Any]]:
        """For `ClaudeOptions(mcp_servers=...)`: an entry for each server, which makes the CLI start a bridge to it."""
        return {name: bridge_config(self.url, token=self._token, server=name) for name in self._makers}

    @property
    def bridges(self) -> int:
        """How many bridges are connected and let in."""
        return self._bridges

    @property
    def failed_calls(self) -> int:
        """How many tools and servers have raised; each is in the log, too."""
        return self._failures.failed

    # ------------------------------------------------------------------------------------------------------------------- serving

    async def _serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            for listener in self._listeners:
                tasks.start_soon(self._accept, listener, tasks)

    async def _accept(self, listener: Listener, tasks: TaskGroup) -> None:
        while True:
            try:
                stream, _peer = await listener.accept()
            except anyio.ClosedResourceError:
                return
            tasks.start_soon(self._attend, stream)

    async def _attend(self, stream: SocketStream) -> None:
        try:
            await self._receive(stream)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("a bridge hung up before it was let in")
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
        try:
            connection = BridgeConnection(
                stream, open_session=self._opener(server), max_calls=self._max_calls, max_line_bytes=self._max_line_bytes
            )
            await connection.serve(framer, first=rest)
        finally:
            self._bridges -= 1

    async def _admit(self, stream: SocketStream, framer: LineFramer) -> tuple[str, list[bytes]] | None:
        """Return the server that a bridge wants and may have, and the lines behind its greeting; None for one that was turned away.

        A bridge that is let in counts from before its welcome on, so that no more are let in than there are places.
        """
        lines = await _first_lines(stream, framer)
        if not lines:
            return None
        try:
            greeting = decode_greeting(lines[0])
        except ProtocolError:
            return None  # whatever it speaks, it is not ours to answer
        refused = self._objection(greeting)
        welcomed = False
        self._bridges += refused is None
        try:
            with anyio.move_on_after(_CLOSING):
                await stream.send(encode_greeting(Welcome(mcp_bridge=GREETING_VERSION, refused=refused)))
                welcomed = refused is None
        finally:
            self._bridges -= refused is None and not welcomed
        if not welcomed:
            self._refusals.note(logging.WARNING, "bridge_turned_away", "a bridge was turned away: %s", refused)
            return None
        return greeting.server, lines[1:]

    def _objection(self, greeting: Greeting) -> Refusal | None:
        # the token first: who has none learns nothing else
        if not self._compare(_digest(greeting.token), self._digest):
            return "auth"
        if greeting.mcp_bridge != GREETING_VERSION:
            return "version"
        if greeting.server not in self._makers:
            return "server"
        return "busy" if self._bridges >= self._max_bridges else None

    def _opener(self, server: str) -> OpenSession:
        make = self._makers[server]
        return lambda tell: make(tell, self._failures.note)

    # ------------------------------------------------------------------------------------------------------------------- a place

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
            with contextlib.suppress(OSError):  # the system's cleaner may have been there first
                shutil.rmtree(directory)


async def _first_lines(stream: SocketStream, framer: LineFramer) -> list[bytes]:
    """The greeting and what came behind it; nothing when there is none, or it is too long to be one."""
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


class _ServerSession:
    """An `mcp` server, for one bridge: as the one server of a conversation."""

    def __init__(self, name: str, server: Any, *, tell: Callable[[dict[str, Any]], None], on_failure: OnFailure) -> None:
        self._name = name
        self._servers = McpServers({name: server}, on_failure=on_failure, tell=lambda _name, message: tell(message))

    def accept(self, message: dict[str, Any]) -> McpCall:
        return self._servers.accept(self._name, message)

    async def aclose(self) -> None:
        await self._servers.aclose()


def _checked_servers(servers: Mapping[str, Any]) -> dict[str, Make]:
    """How to make a session of each server."""
    if not isinstance(servers, Mapping) or not servers:
        raise _refused("servers maps the names of servers to servers, and there is at least one")
    written: dict[str, str] = {}
    for name in servers:
        if not isinstance(name, str) or not name or len(name) > 256:
            raise _refused("a server is named by 1 to 256 characters")
        alike = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        if alike in written:
            raise _refused(f"the servers {written[alike]!r} and {name!r} are both mcp__{alike}__… to the model: rename one of them")
        written[alike] = name
    return {name: _maker(name, server) for name, server in servers.items()}


def _maker(name: str, server: Any) -> Make:
    if isinstance(server, Iterable) and not isinstance(server, str | bytes | Mapping):
        tools = [*server]
        if not all(isinstance(tool, HostTool) for tool in tools):
            raise _refused(f"the tools of {name!r} are HostTools")
        by_name = {tool.name: tool for tool in tools}
        if len(by_name) < len(tools):
            raise _refused(f"two tools of {name!r} have the same name")
        return lambda tell, on_failure: RegistrySession(name, by_name, tell=tell, on_failure=on_failure)
    if isinstance(server, Mapping):
        raise _refused(f"{name!r} is a configuration: the CLI starts or reaches such a server itself, without a bridge")
    McpServers({name: server}, on_failure=lambda _what, _error: None)  # refuses what is none
    return lambda tell, on_failure: _ServerSession(name, server, tell=tell, on_failure=on_failure)


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, option="servers")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
