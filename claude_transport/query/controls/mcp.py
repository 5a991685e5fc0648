"""MCP servers: which there are, how they are, and calling them past the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claude_transport.protocol.answers import McpCallResult, McpResourceContents, McpServersChange, McpServerStatus, McpServerStatuses
from claude_transport.query.controls.asking import DEFAULT_CONTROL_TIMEOUT, MILLISECONDS, Asking
from claude_transport.query.mcp_configuration import whole_configuration

__all__ = ["McpControls"]


class McpControls(Asking):
    """MCP servers."""

    async def mcp_status(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[McpServerStatus, ...]:
        """Every MCP server: its state, its configuration, and when it is connected its tools. [06l, 08a]"""
        return (await self._ask(McpServerStatuses, "mcp_status", timeout=timeout)).servers

    async def mcp_reconnect(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Connect to a server once more.

        Raises `ControlRequestFailed` for an unknown one [08a], for one that still cannot be reached, and for one of the host: toggle that
        off and on instead [06l].
        """
        await self._tell("mcp_reconnect", timeout=timeout, serverName=server)

    async def mcp_toggle(self, server: str, *, enabled: bool, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Switch a server on or off; on means connected anew. Raises `ControlRequestFailed` for an unknown one. [06l, 08a]"""
        await self._tell("mcp_toggle", timeout=timeout, serverName=server, enabled=enabled)

    async def mcp_set_servers(
        self, servers: Mapping[str, Mapping[str, Any]], *, timeout: float = DEFAULT_CONTROL_TIMEOUT
    ) -> McpServersChange:
        """Have exactly these dynamic servers, by name: what was added and removed, and which could not be connected. [06l, 08a]

        A configuration is `{"type": "stdio", "command": …}`, `{"type": "http", "url": …}`, `{"type": "sdk", "name": …}`. The servers that
        the Query was given are dynamic, too: those that are not named are gone. Servers of files and options are left alone.
        """
        plain = {name: whole_configuration(config) for name, config in servers.items()}
        return await self._ask(McpServersChange, "mcp_set_servers", timeout=timeout, servers=plain)

    async def mcp_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_timeout: float | None = None,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> McpCallResult:
        """Call a tool (`mcp__server__tool`) past the model and past every permission: nobody is asked, and no rule can deny it.

        The CLI gives up after `call_timeout` seconds, this method after `timeout`. Raises `ControlRequestFailed` when the server is not
        connected [08a]; a tool that fails by itself says so in `is_error`.
        """
        limit = None if call_timeout is None else round(call_timeout * MILLISECONDS)
        return await self._ask(McpCallResult, "mcp_call", timeout=timeout, tool=tool, arguments=dict(arguments or {}), timeout_ms=limit)

    async def mcp_message(self, server: str, message: Mapping[str, Any], *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Hand the CLI a JSON-RPC message of the host's server, such as `notifications/tools/list_changed`.

        It is for servers of type `sdk`; an unknown server succeeds just the same [08a]. An answer of the CLI comes as its own
        `mcp_message` [06o].
        """
        await self._tell("mcp_message", timeout=timeout, server_name=server, message=dict(message))

    async def mcp_read_resource(self, server: str, uri: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[dict[str, Any], ...]:
        """A resource of a server: MCP content objects. Only `ui://` URIs can be read; others raise `ControlRequestFailed`."""
        return (await self._ask(McpResourceContents, "mcp_read_resource", timeout=timeout, serverName=server, uri=uri)).contents

    async def mcp_authenticate(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> dict[str, Any]:
        """Begin to sign in to a remote server: the payload as it comes. Only its refusal of an unknown server was seen. [08a]"""
        return await self.request("mcp_authenticate", timeout=timeout, serverName=server)

    async def mcp_clear_auth(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Forget what was signed in with; raises `ControlRequestFailed` for an unknown server and for stdio. Only that was seen. [08a]"""
        await self._tell("mcp_clear_auth", timeout=timeout, serverName=server)

    async def channel_enable(self, server: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Let a plugin's server send messages into the conversation. Only the refusal of other servers was seen. [08a]"""
        await self._tell("channel_enable", timeout=timeout, serverName=server)

    async def reload_connectors(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> dict[str, Any]:
        """Read the list of claude.ai connectors again: the payload as it comes. Only the failure with an API key was seen. [08a]"""
        return await self.request("reload_connectors", timeout=timeout)
