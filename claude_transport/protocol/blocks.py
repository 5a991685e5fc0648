"""Content blocks: the parts of an assistant or user message.

The shapes are those of the Messages API. `text`, `thinking`, `tool_use` and `tool_result` are in the recordings; the others come from the
API's own declarations. A block of an unknown type, or one whose shape does not fit, becomes an `UnknownBlock`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import field

from claude_transport.protocol.envelope import FALLBACK_TAG, Part


class Block(Part, tag_field="type", frozen=True, kw_only=True):
    """Base class of all content blocks, the parts of a message's `content`. Use it for annotations and `isinstance`; every received block
    is of a subclass, and a block of an unknown type is an `UnknownBlock`.
    """

    @property
    def type(self) -> str:
        """The `type` of this block on the wire, such as `text` or `tool_use`; every class has its own."""
        return str(self.__struct_config__.tag)


class TextBlock(Block, tag="text", frozen=True, kw_only=True):
    """A piece of text of the model or of a prompt. `citations` is set only when the API cites sources."""

    text: str = ""
    citations: tuple[Any, ...] | None = None
    cache_control: dict[str, Any] | None = None


class ThinkingBlock(Block, tag="thinking", frozen=True, kw_only=True):
    """A piece of the model's thinking, as text. The API checks by `signature` that the text is its own."""

    thinking: str = ""
    signature: str = ""


class RedactedThinkingBlock(Block, tag="redacted_thinking", frozen=True, kw_only=True):
    """A piece of the model's thinking that is encrypted: only the API can read `data`."""

    data: str = ""


class ToolUseBlock(Block, tag="tool_use", frozen=True, kw_only=True):
    """The model calls the tool `name` with the arguments `input`. Each tool defines its own arguments, so `input` stays a dict. The result
    of the call is the `ToolResultBlock` whose `tool_use_id` is this `id`.
    """

    id: str = ""
    name: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    caller: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class ToolResultBlock(Block, tag="tool_result", frozen=True, kw_only=True):
    """The result of the tool call `tool_use_id`: a text or content blocks in `content`. `is_error` is True when the call failed or was
    denied, and None on most successes.
    """

    tool_use_id: str = ""
    content: str | tuple[ContentBlock, ...] | None = None
    is_error: bool | None = None
    cache_control: dict[str, Any] | None = None


class ServerToolUseBlock(Block, tag="server_tool_use", frozen=True, kw_only=True):
    """The model calls the tool `name`, which the API runs itself (web search, code execution). The CLI and the host have nothing to run."""

    id: str = ""
    name: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    caller: dict[str, Any] | None = None


class MCPToolUseBlock(Block, tag="mcp_tool_use", frozen=True, kw_only=True):
    """The model calls the tool `name` of the MCP server `server_name`. The API itself is connected to that server and makes the call, not
    the CLI.
    """

    id: str = ""
    name: str = ""
    server_name: str = ""
    input: dict[str, Any] = field(default_factory=dict)


class ServerToolResultBlock(Block, frozen=True, kw_only=True):
    """Base class of the results of tools that the API runs itself. `tool_use_id` is the id of the call. `content` is what the API sent: a
    list of results or one object, which may describe an error.
    """

    tool_use_id: str = ""
    content: Any = None


class WebSearchToolResultBlock(ServerToolResultBlock, tag="web_search_tool_result", frozen=True, kw_only=True):
    """The result of a web search that the API made. `content` is a list of results, or one object that describes an error."""


class WebFetchToolResultBlock(ServerToolResultBlock, tag="web_fetch_tool_result", frozen=True, kw_only=True):
    """The page or file that the API fetched from the web. `content` is one object, which may describe an error."""


class CodeExecutionToolResultBlock(ServerToolResultBlock, tag="code_execution_tool_result", frozen=True, kw_only=True):
    """The result of code that the API ran for the model. `content` is one object with the output, or one that describes an error."""


class AdvisorToolResultBlock(ServerToolResultBlock, tag="advisor_tool_result", frozen=True, kw_only=True):
    """The answer of the advisor, a second model that the model can ask (option `advisor`).

    The `type` of `content` is `advisor_result` (with `text`), `advisor_redacted_result`, or `advisor_tool_result_error` (with
    `error_code`).
    """


class MCPToolResultBlock(ServerToolResultBlock, tag="mcp_tool_result", frozen=True, kw_only=True):
    """The answer of an MCP server that the API itself called (see `MCPToolUseBlock`). `is_error` is True when the tool failed."""

    is_error: bool | None = None


class ImageBlock(Block, tag="image", frozen=True, kw_only=True):
    """An image in a prompt or in the result of a tool. `source` is the API's object: base64 data, a URL, or a file id."""

    source: dict[str, Any] = field(default_factory=dict)
    cache_control: dict[str, Any] | None = None


class DocumentBlock(Block, tag="document", frozen=True, kw_only=True):
    """A PDF or text document for the model. `source` is the API's object that holds it or refers to it; `title` and `context` describe it;
    `citations` says whether the model may cite it.
    """

    source: dict[str, Any] = field(default_factory=dict)
    title: str | None = None
    context: str | None = None
    citations: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class SearchResultBlock(Block, tag="search_result", frozen=True, kw_only=True):
    """One result of a search that the host made; the model can cite it. `source` says where it is from, `content` has its text."""

    source: str = ""
    title: str = ""
    content: tuple[Any, ...] = ()
    citations: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class ToolReferenceBlock(Block, tag="tool_reference", frozen=True, kw_only=True):
    """The name of a tool that the model found with a tool search."""

    tool_name: str = ""


class ContainerUploadBlock(Block, tag="container_upload", frozen=True, kw_only=True):
    """A file that was put into the container in which the API runs code; `file_id` is its id at the API."""

    file_id: str = ""


class UnknownBlock(Block, tag=FALLBACK_TAG, frozen=True, kw_only=True):
    """A content block of an unknown type, or one whose shape does not fit the class of its type. `data` is the whole JSON object."""

    data: dict[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The `type` that the block has on the wire; an empty string when it has none."""
        kind = self.data.get("type")
        return kind if isinstance(kind, str) else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the block as it came, as a new dict."""
        return dict(self.data)

    @classmethod
    def from_wire(cls, data: Any) -> Block | None:
        """Make a block of a JSON value that fits no other class; the decoder calls it. Returns an `UnknownBlock` for an object, a
        `TextBlock` for bare text, and None for anything else.
        """
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
