"""Content blocks: the parts of an assistant or user message.

The shapes are those of the Messages API. `text`, `thinking`, `tool_use` and `tool_result` are in the recordings; the others come from the
API's own declarations. A block of an unknown type, or one whose shape does not fit, becomes an `UnknownBlock`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import field

from claude_transport.protocol.envelope import FALLBACK_TAG, Part


class Block(Part, tag_field="type", frozen=True, kw_only=True):
    """Base of all content blocks."""

    @property
    def type(self) -> str:
        """The `type` on the wire."""
        return str(self.__struct_config__.tag)


class TextBlock(Block, tag="text", frozen=True, kw_only=True):
    """Text. `citations` is set only when the API cites sources."""

    text: str = ""
    citations: tuple[Any, ...] | None = None
    cache_control: dict[str, Any] | None = None


class ThinkingBlock(Block, tag="thinking", frozen=True, kw_only=True):
    """Thinking of the model. The API checks by `signature` that the text is its own. [recording 03]"""

    thinking: str = ""
    signature: str = ""


class RedactedThinkingBlock(Block, tag="redacted_thinking", frozen=True, kw_only=True):
    """Thinking that only the API can read."""

    data: str = ""


class ToolUseBlock(Block, tag="tool_use", frozen=True, kw_only=True):
    """A tool call of the model: the tool `name` with `input`, which the tool defines and which stays a dict."""

    id: str = ""
    name: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    caller: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class ToolResultBlock(Block, tag="tool_result", frozen=True, kw_only=True):
    """The result of a tool: text or blocks. `is_error` is None on most successes."""

    tool_use_id: str = ""
    content: str | tuple[ContentBlock, ...] | None = None
    is_error: bool | None = None
    cache_control: dict[str, Any] | None = None


class ServerToolUseBlock(Block, tag="server_tool_use", frozen=True, kw_only=True):
    """A call of a tool that the API runs itself (web search, code execution)."""

    id: str = ""
    name: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    caller: dict[str, Any] | None = None


class MCPToolUseBlock(Block, tag="mcp_tool_use", frozen=True, kw_only=True):
    """A call of a tool of an MCP server to which the API is connected."""

    id: str = ""
    name: str = ""
    server_name: str = ""
    input: dict[str, Any] = field(default_factory=dict)


class ServerToolResultBlock(Block, frozen=True, kw_only=True):
    """Base of the results of the API's own tools. `content` is a list of results, or one object that describes an error."""

    tool_use_id: str = ""
    content: Any = None


class WebSearchToolResultBlock(ServerToolResultBlock, tag="web_search_tool_result", frozen=True, kw_only=True):
    """The result of a web search."""


class WebFetchToolResultBlock(ServerToolResultBlock, tag="web_fetch_tool_result", frozen=True, kw_only=True):
    """The content that was fetched from the web."""


class CodeExecutionToolResultBlock(ServerToolResultBlock, tag="code_execution_tool_result", frozen=True, kw_only=True):
    """The output of code that the API ran."""


class AdvisorToolResultBlock(ServerToolResultBlock, tag="advisor_tool_result", frozen=True, kw_only=True):
    """The answer of the advisor model (option `advisor`).

    The `type` of `content` is `advisor_result` (with `text`), `advisor_redacted_result`, or `advisor_tool_result_error` (with
    `error_code`).
    """


class MCPToolResultBlock(ServerToolResultBlock, tag="mcp_tool_result", frozen=True, kw_only=True):
    """The answer of an MCP server to the API."""

    is_error: bool | None = None


class ImageBlock(Block, tag="image", frozen=True, kw_only=True):
    """An image. `source` is base64 data, a URL, or a file id."""

    source: dict[str, Any] = field(default_factory=dict)
    cache_control: dict[str, Any] | None = None


class DocumentBlock(Block, tag="document", frozen=True, kw_only=True):
    """A PDF or text document."""

    source: dict[str, Any] = field(default_factory=dict)
    title: str | None = None
    context: str | None = None
    citations: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class SearchResultBlock(Block, tag="search_result", frozen=True, kw_only=True):
    """One result of a search by the host, which the model can cite."""

    source: str = ""
    title: str = ""
    content: tuple[Any, ...] = ()
    citations: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class ToolReferenceBlock(Block, tag="tool_reference", frozen=True, kw_only=True):
    """A tool that a tool search found."""

    tool_name: str = ""


class ContainerUploadBlock(Block, tag="container_upload", frozen=True, kw_only=True):
    """A file that was put into the API's code container."""

    file_id: str = ""


class UnknownBlock(Block, tag=FALLBACK_TAG, frozen=True, kw_only=True):
    """A block of an unknown type, or one whose shape does not fit; `data` is the whole object."""

    data: dict[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The `type` on the wire, or an empty string when there is none."""
        kind = self.data.get("type")
        return kind if isinstance(kind, str) else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the object as it came."""
        return dict(self.data)

    @classmethod
    def from_wire(cls, data: Any) -> Block | None:
        """Wrap an object, turn bare text into a text block, and return None for anything else."""
        if isinstance(data, dict):
            return cls(data=data)
        return TextBlock(text=data) if isinstance(data, str) else None


ContentBlock: TypeAlias = (
    TextBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | ServerToolUseBlock
    | MCPToolUseBlock
    | WebSearchToolResultBlock
    | WebFetchToolResultBlock
    | CodeExecutionToolResultBlock
    | AdvisorToolResultBlock
    | MCPToolResultBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ToolReferenceBlock
    | ContainerUploadBlock
    | UnknownBlock
)
"""Any block that the content of a message can hold."""
