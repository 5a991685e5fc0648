"""Content blocks: what the inside of an assistant or user message is made of.

The shapes are those of the Messages API; `text`, `thinking`, `tool_use` and `tool_result` are in the recordings, the others come from
the API's own declarations. A block this page does not know, or whose shape is wrong, arrives as `UnknownBlock`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import field

from claude_transport.protocol.envelope import FALLBACK_TAG, Part


class Block(Part, tag_field="type", frozen=True, kw_only=True):
    """Any content block; `.type` is the wire's."""

    @property
    def type(self) -> str:
        """The wire's `type`."""
        return str(self.__struct_config__.tag)


class TextBlock(Block, tag="text", frozen=True, kw_only=True):
    """Text; `citations` only when the API cites."""

    text: str = ""
    citations: tuple[Any, ...] | None = None
    cache_control: dict[str, Any] | None = None


class ThinkingBlock(Block, tag="thinking", frozen=True, kw_only=True):
    """The model's reasoning; `signature` proves to the API that it wrote it. [recording 03]"""

    thinking: str = ""
    signature: str = ""


class RedactedThinkingBlock(Block, tag="redacted_thinking", frozen=True, kw_only=True):
    """Reasoning that only the API can read."""

    data: str = ""


class ToolUseBlock(Block, tag="tool_use", frozen=True, kw_only=True):
    """The model wants tool `name` run with `input`, which belongs to the tool and stays a dict."""

    id: str = ""
    name: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    caller: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class ToolResultBlock(Block, tag="tool_result", frozen=True, kw_only=True):
    """What the tool answered: text, or blocks. `is_error` is absent (None) on most successes."""

    tool_use_id: str = ""
    content: str | tuple[ContentBlock, ...] | None = None
    is_error: bool | None = None
    cache_control: dict[str, Any] | None = None


class ServerToolUseBlock(Block, tag="server_tool_use", frozen=True, kw_only=True):
    """A tool that the API itself runs (web search, code execution)."""

    id: str = ""
    name: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    caller: dict[str, Any] | None = None


class MCPToolUseBlock(Block, tag="mcp_tool_use", frozen=True, kw_only=True):
    """A tool of an MCP server that the API itself talks to."""

    id: str = ""
    name: str = ""
    server_name: str = ""
    input: dict[str, Any] = field(default_factory=dict)


class ServerToolResultBlock(Block, frozen=True, kw_only=True):
    """Base of the answers of the API's own tools; `content` is a list of results, or one object that describes an error."""

    tool_use_id: str = ""
    content: Any = None


class WebSearchToolResultBlock(ServerToolResultBlock, tag="web_search_tool_result", frozen=True, kw_only=True):
    """What a web search found."""


class WebFetchToolResultBlock(ServerToolResultBlock, tag="web_fetch_tool_result", frozen=True, kw_only=True):
    """What was fetched from the web."""


class CodeExecutionToolResultBlock(ServerToolResultBlock, tag="code_execution_tool_result", frozen=True, kw_only=True):
    """What code run by the API gave."""


class AdvisorToolResultBlock(ServerToolResultBlock, tag="advisor_tool_result", frozen=True, kw_only=True):
    """What the advisor model said (option `advisor`).

    `content` has the `type` `advisor_result` (with `text`), `advisor_redacted_result`, or `advisor_tool_result_error` (with `error_code`).
    """


class MCPToolResultBlock(ServerToolResultBlock, tag="mcp_tool_result", frozen=True, kw_only=True):
    """What an MCP server answered to the API."""

    is_error: bool | None = None


class ImageBlock(Block, tag="image", frozen=True, kw_only=True):
    """A picture; `source` is base64 data, a URL, or a file id."""

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
    """One hit of the host's own search, citable by the model."""

    source: str = ""
    title: str = ""
    content: tuple[Any, ...] = ()
    citations: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class ToolReferenceBlock(Block, tag="tool_reference", frozen=True, kw_only=True):
    """A tool named by a tool search."""

    tool_name: str = ""


class ContainerUploadBlock(Block, tag="container_upload", frozen=True, kw_only=True):
    """A file put into the API's code container."""

    file_id: str = ""


class UnknownBlock(Block, tag=FALLBACK_TAG, frozen=True, kw_only=True):
    """A block of a type this version does not know, or with a shape that does not fit; `data` is the whole object."""

    data: dict[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The wire's `type`, or an empty string when there was none."""
        kind = self.data.get("type")
        return kind if isinstance(kind, str) else ""

    def to_dict(self) -> dict[str, Any]:
        """The object as it came."""
        return dict(self.data)

    @classmethod
    def from_wire(cls, data: Any) -> Block | None:
        """Objects are kept, bare text counts as a text block, anything else is no block at all."""
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
"""Everything that the content of a message may be made of."""
