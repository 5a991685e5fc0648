"""The MCP servers of a conversation, above all those that live in this program: the CLI's model calls their tools also from far away.

The CLI speaks JSON-RPC inside `mcp_message` requests, and each of them has to be answered by a control response that holds the
JSON-RPC answer with the same id: one without it, or with another id, hangs the tool call for good, beyond the end of input
(recordings 06q, 06r). So every request here is answered under its own id, whatever the server does: by the server's answer,
or by a JSON-RPC error when the server fails, is gone, or drops a cancelled call.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from claude_transport.errors import ConfigurationError
from claude_transport.printable import printable
from claude_transport.query.mcp_configuration import checked_configuration
from claude_transport.query.mcp_session import INTERNAL_ERROR, McpCall, McpSession, OnFailure

if TYPE_CHECKING:
    from mcp.server import Server

__all__ = ["McpServers"]

logger: logging.Logger = logging.getLogger(__name__)

_HANDSHAKE = "claude-transport-handshake"
"""Id of the `initialize` request that is made in place of the CLI; its answer is dropped."""

Tell = Callable[[str, dict[str, Any]], None]
"""Sends a JSON-RPC message of a server to the CLI: `tell(server_name, message)`."""


class McpServers:
    """The servers of one conversation, by name. One server object may serve any number of conversations at once.

    `servers` are `mcp.server.Server` or `mcp.server.MCPServer` objects by name, or configurations of what the CLI runs or reaches
    itself. `on_failure` is told of a server that failed, and of why. `tell` is how the objects' own messages (progress, `list_changed`,
    requests) reach the CLI; whoever speaks to it sets it.
    Raises `ConfigurationError` for anything else, and when the package `mcp` is missing or too old.
    """

    def __init__(self, servers: Mapping[str, Any] | None, *, on_failure: OnFailure) -> None:
        if servers is not None and not isinstance(servers, Mapping):
            raise _refused(f"mcp_servers maps names to servers, and is no {type(servers).__name__}")
        given = {_checked_name(name): _instance_of(server) for name, server in (servers or {}).items()}
        _refuse_same_tool_names(given)
        configured = {name: server for name, server in given.items() if isinstance(server, Mapping)}
        self._configured = {name: checked_configuration(name, config) for name, config in configured.items()}
        self._servers = {name: _low_level(name, server) for name, server in given.items() if name not in configured}
        self.tell: Tell = _tell_nobody
        self.parked: frozenset[str] = frozenset()
        """Servers whose manifest the CLI uses (`sdk_mcp_server_manifests`): it calls their tools without a handshake."""
        self._on_failure = on_failure
        self._sessions: dict[str, McpSession] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Those that live here: what `initialize.sdkMcpServers` says."""
        return tuple(self._servers)

    @property
    def dynamic(self) -> dict[str, dict[str, Any]]:
        """What `mcp_set_servers` is to be told once `initialize` is answered: nothing, unless there are configurations.

        It names those that live here too: what a set does not name is gone after it, whoever declared it (CLI 2.1.329, real).
        """
        if not self._configured:
            return {}
        return {**self._configured, **{name: {"type": "sdk", "name": name} for name in self._servers}}

    def __contains__(self, name: str) -> bool:
        return name in self._servers

    def accept(self, name: str, message: dict[str, Any]) -> McpCall:
        """Hand a message of the CLI to the server `name`. Without waiting, so that the server gets them in the order they came."""
        try:
            if message.get("method") == "initialize":
                # every handshake is a new life of the server (the CLI shakes hands again after a toggle or a failure, 06l)
                self._begin(name)
            elif name not in self._sessions and name in self.parked:
                self._shake_hands(name)
            session = self._sessions.get(name)
            if session is None:
                return McpCall.failed(message.get("id"), INTERNAL_ERROR, f"the server {name!r} has not been initialised")
            return session.accept(message)
        except Exception as exc:  # noqa: BLE001 - it is noted, and the call answered
            self._on_failure(f"handing a message to the MCP server {name!r}", exc)
            return McpCall.failed(message.get("id"), INTERNAL_ERROR, f"the host failed ({type(exc).__name__})")

    def _begin(self, name: str) -> McpSession:
        """Begin a new life of the server, in place of the one it has."""
        session = self._sessions[name] = McpSession(
            name,
            self._servers[name],
            tell=lambda said: self.tell(name, said),
            on_failure=self._on_failure,
            after=self._sessions.get(name),
        )
        return session

    def _shake_hands(self, name: str) -> None:
        """Begin a life of the server with a handshake of our own, in place of the CLI."""
        from mcp.types import LATEST_PROTOCOL_VERSION

        params = {
            "protocolVersion": LATEST_PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "claude-transport", "version": "1"},
        }
        session = self._begin(name)
        session.accept({"jsonrpc": "2.0", "id": _HANDSHAKE, "method": "initialize", "params": params})
        session.accept({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def aclose(self) -> None:
        """End all sessions, side by side: each of them may take its time to end."""
        sessions, self._sessions = self._sessions, {}
        async with anyio.create_task_group() as closing:
            for session in sessions.values():
                closing.start_soon(session.aclose)


def _tell_nobody(name: str, message: dict[str, Any]) -> None:
    logger.debug("the MCP server %r said something before there was anybody to hear it: %s", name, printable(message.get("method")))


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, option="mcp_servers")


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise _refused(f"an MCP server is named by a string that is not empty, not by {name!r}")
    return name


def _refuse_same_tool_names(names: Iterable[str]) -> None:
    """Two names that the CLI writes alike would hide each other's tools from the model; seen on CLI 2.1.329, which says nothing."""
    seen: dict[str, str] = {}
    for name in names:
        written = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        if written in seen:
            raise _refused(f"the MCP servers {seen[written]!r} and {name!r} are both mcp__{written}__… to the model: rename one of them")
        seen[written] = name


def _instance_of(server: Any) -> Any:
    """The server object inside of a configuration that holds one, as the official SDK makes them; else what was given."""
    return server["instance"] if isinstance(server, Mapping) and server.get("instance") is not None else server


def _low_level(name: str, server: Any) -> Server[Any]:
    """The `mcp.server.Server` behind what the user gave."""
    low_level: Any = getattr(server, "_lowlevel_server", server)  # MCPServer has no public way to serve two streams
    if not hasattr(low_level, "run") or not hasattr(low_level, "create_initialization_options"):
        raise _refused(
            f"mcp_servers[{name!r}] is neither an mcp.server.Server nor an MCPServer (mcp 2 or newer), nor a configuration, but "
            f"{type(server).__name__}"
        )
    try:
        from mcp.types import jsonrpc_message_adapter  # noqa: F401 - what is needed of it, and was not in version 1
    except ImportError as exc:
        raise _refused("in-process MCP servers need the package mcp, 2 or newer: pip install 'claude-transport[mcp]'") from exc
    return low_level  # type: ignore[no-any-return]
