"""Answers about MCP servers."""

from __future__ import annotations

from typing import Any

from msgspec import field

from claude_transport.protocol.answers.answer import Answer
from claude_transport.protocol.envelope import Part

__all__ = [
    "McpCallResult",
    "McpResourceContents",
    "McpServerInfo",
    "McpServerStatus",
    "McpServerStatuses",
    "McpServerTool",
    "McpServersChange",
]


class McpServerInfo(Part, frozen=True, kw_only=True):
    """What a server says it is."""

    name: str = ""
    version: str = ""


class McpServerTool(Part, frozen=True, kw_only=True):
    """A tool of a connected server; `annotations` as the CLI reads them (`readOnly`, `destructive`, …)."""

    name: str = ""
    description: str | None = None
    annotations: dict[str, Any] = field(default_factory=dict)


class McpServerStatus(Part, frozen=True, kw_only=True):
    """How one server is. [06l, 08a]

    `status`: connected, failed, disabled, pending, needs-auth. `scope` and `source` say who configured it: `sdk` for those of the host,
    `dynamic` for those of `mcp_set_servers`.
    """

    name: str = ""
    status: str = ""
    error: str | None = None
    server_info: McpServerInfo | None = field(name="serverInfo", default=None)
    config: dict[str, Any] | None = None
    transport: str | None = None
    scope: str | None = None
    source: str | None = None
    tools: tuple[McpServerTool, ...] = ()


class McpServerStatuses(Answer, frozen=True, kw_only=True):
    """How every server is. [08a]"""

    servers: tuple[McpServerStatus, ...] = field(name="mcpServers", default=())


class McpServersChange(Answer, frozen=True, kw_only=True):
    """What came of a new set of servers: `errors` by server name, for servers that are there but could not be connected. [06l, 08a]"""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)


class McpCallResult(Answer, frozen=True, kw_only=True):
    """The result of a tool that was called past the model. `is_error` is the tool's own word; `staging` comes with a time limit."""

    content: tuple[dict[str, Any], ...] | str = ()
    is_error: bool = field(name="isError", default=False)
    structured_content: dict[str, Any] | None = field(name="structuredContent", default=None)
    staging: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """All text of the result."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")


class McpResourceContents(Answer, frozen=True, kw_only=True):
    """A resource: MCP content objects with `uri`, `mimeType` and `text` or `blob`."""

    contents: tuple[dict[str, Any], ...] = ()
