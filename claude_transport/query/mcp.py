"""In-process MCP servers over the control channel: the CLI's model calls tools that live in this program, also from far away.

The CLI speaks JSON-RPC inside `mcp_message` requests, and each of them has to be answered by a control response that holds the
JSON-RPC answer with the same id: one without it, or with another id, hangs the tool call for good, beyond the end of input
(recordings 06q, 06r). So every request here is answered under its own id, whatever the server does: by the server's answer,
or by a JSON-RPC error when the server fails, is gone, or drops a cancelled call.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from claude_transport.background import BackgroundTask
from claude_transport.errors import ConfigurationError

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.shared.message import SessionMessage

__all__ = ["McpServers"]

logger = logging.getLogger(__name__)

Tell = Callable[[str, dict[str, Any]], None]
"""Sends a JSON-RPC message of a server to the CLI: `tell(server_name, message)`."""

_INTERNAL_ERROR = -32603
_CANCELLED = -32800
"""JSON-RPC error codes: "internal error", and the one the Language Server Protocol gave to cancelled requests."""

_STOP_GRACE = 2.0
"""Seconds a server gets to end when its session does: one that blocks in a thread is not worth hanging for."""


class McpServers:
    """The in-process servers of one conversation, by name. One server object may serve any number of conversations at once.

    `servers` are `mcp.server.Server` or `mcp.server.MCPServer` objects by name. `tell` is how their own messages (progress,
    `list_changed`, requests) reach the CLI; whoever speaks to it sets it.
    """

    def __init__(self, servers: Mapping[str, Any] | None) -> None:
        self._servers = {name: _low_level(name, server) for name, server in (servers or {}).items()}
        self.tell: Tell = _tell_nobody
        self._sessions: dict[str, _Session] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What `initialize.sdkMcpServers` says."""
        return tuple(self._servers)

    def __contains__(self, name: str) -> bool:
        return name in self._servers

    async def answer(self, name: str, message: dict[str, Any]) -> dict[str, Any]:
        """The control response to one `mcp_message`."""
        if message.get("method") == "initialize":
            # every handshake is a new life of the server (the CLI shakes hands again after a toggle or a failure, 06l)
            await self._end(name)
            self._sessions[name] = _Session(name, self._servers[name], tell=self.tell)
        session = self._sessions.get(name)
        if session is None:
            return _response_to(message, _error(_INTERNAL_ERROR, f"the server {name!r} has not been initialised"))
        return {"mcp_response": await session.answer(message)}

    async def aclose(self) -> None:
        """End all sessions."""
        for name in tuple(self._sessions):
            await self._end(name)

    async def _end(self, name: str) -> None:
        session = self._sessions.pop(name, None)
        if session is not None:
            await session.aclose()


class _Session:
    """One life of one server: a JSON-RPC connection in memory, with the CLI at the other end."""

    def __init__(self, name: str, server: Server[Any], *, tell: Tell) -> None:
        self._name = name
        self._server = server
        self._tell = tell
        self._waiting: dict[Any, _Slot] = {}
        self._ready = anyio.Event()
        self._send: Callable[[SessionMessage], Awaitable[None]] | None = None
        self._task = BackgroundTask.spawn(self._run, name=f"MCP server {name}")

    async def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """The JSON-RPC answer to a request; an empty one for everything that needs none."""
        await self._ready.wait()
        request_id = message.get("id")
        if "method" not in message or request_id is None:
            self._note_cancellation(message)
            await self._pass_on(message)
            return {"jsonrpc": "2.0", "result": {}}
        if request_id in self._waiting:
            return _with_id(request_id, _error(_INTERNAL_ERROR, f"the request id {request_id!r} is already in use"))
        slot = self._waiting[request_id] = _Slot()
        try:
            if not await self._pass_on(message):
                return _with_id(request_id, _error(_INTERNAL_ERROR, f"the server {self._name!r} has ended"))
            await slot.filled.wait()
        except anyio.get_cancelled_exc_class():
            # the CLI has withdrawn its question: so does the server's client
            self._post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
            raise
        finally:
            self._waiting.pop(request_id, None)
        return _with_id(request_id, slot.answer)

    async def aclose(self) -> None:
        """End the server's connection."""
        self._task.cancel()
        with anyio.move_on_after(_STOP_GRACE, shield=True):
            await self._task.wait()

    async def _run(self) -> None:
        from mcp.shared.memory import create_client_server_memory_streams

        try:
            async with create_client_server_memory_streams() as ((incoming, outgoing), (read, write)), anyio.create_task_group() as tasks:
                self._send = outgoing.send
                tasks.start_soon(self._serve, read, write, tasks.cancel_scope)
                self._ready.set()
                async for item in incoming:
                    if isinstance(item, Exception):
                        logger.warning("the MCP server %r could not read a message: %r", self._name, item)
                    else:
                        self._deliver(_as_dict(item))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("the MCP server %r closed its streams", self._name, exc_info=True)
        finally:
            self._send = None
            self._ready.set()
            for slot in self._waiting.values():
                slot.fill(_error(_INTERNAL_ERROR, f"the server {self._name!r} has ended"))

    async def _serve(self, read: Any, write: Any, scope: anyio.CancelScope) -> None:
        try:
            await self._server.run(read, write, self._server.create_initialization_options())
        except Exception:
            logger.exception("the MCP server %r failed", self._name)
        finally:
            scope.cancel()

    def _deliver(self, message: dict[str, Any]) -> None:
        """A message of the server: the answer somebody waits for, or something of its own."""
        if "method" in message:
            self._tell(self._name, message)
            return
        slot = self._waiting.get(message.get("id"))
        if slot is not None:
            slot.fill({key: message[key] for key in ("result", "error") if key in message})

    def _note_cancellation(self, message: dict[str, Any]) -> None:
        """A cancelled request gets no answer from the server, but the control request around it still needs one."""
        params = message.get("params")
        if message.get("method") == "notifications/cancelled" and isinstance(params, dict):
            slot = self._waiting.get(params.get("requestId"))
            if slot is not None:
                slot.fill(_error(_CANCELLED, "cancelled"))

    def _post(self, message: dict[str, Any]) -> None:
        """Hand a message to the server from a place that must not wait."""
        BackgroundTask.spawn(lambda: self._pass_on(message), name=f"tell MCP server {self._name}")

    async def _pass_on(self, message: dict[str, Any]) -> bool:
        send = self._send
        if send is None:
            return False
        try:
            await send(_as_session_message(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True


class _Slot:
    """The place for one answer."""

    def __init__(self) -> None:
        self.filled = anyio.Event()
        self.answer: dict[str, Any] = {}

    def fill(self, answer: dict[str, Any]) -> None:
        """Take the first answer; later ones change nothing."""
        if not self.filled.is_set():
            self.answer = answer
            self.filled.set()


def _tell_nobody(name: str, message: dict[str, Any]) -> None:
    logger.debug("the MCP server %r said something before there was anybody to hear it: %s", name, message.get("method"))


def _low_level(name: str, server: Any) -> Server[Any]:
    """The `mcp.server.Server` behind what the user gave."""
    low_level: Any = getattr(server, "_lowlevel_server", server)  # MCPServer has no public way to serve two streams
    if not hasattr(low_level, "run") or not hasattr(low_level, "create_initialization_options"):
        raise ConfigurationError(
            f"mcp_servers[{name!r}] is neither an mcp.server.Server nor an MCPServer (mcp 2 or newer), but {type(server).__name__}",
            option="mcp_servers",
        )
    return low_level  # type: ignore[no-any-return]


def _as_session_message(message: dict[str, Any]) -> SessionMessage:
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    return SessionMessage(jsonrpc_message_adapter.validate_python(message))


def _as_dict(item: SessionMessage) -> dict[str, Any]:
    dumped: dict[str, Any] = item.message.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def _error(code: int, text: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": text}}


def _with_id(request_id: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, **answer}


def _response_to(message: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"mcp_response": _with_id(message.get("id"), answer)}
