"""The items of a Codex turn: what the user said, what the model said and thought, commands, file changes, tool calls.

`item/started` and `item/completed` carry them, and so does the summary in `turn/completed`. An item of an unknown type becomes an
`UnknownItem`. The messages around them are in `codex.messages`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import field

from claude_transport.protocol.envelope import FALLBACK_TAG, Part


class CodexItem(Part, tag_field="type", rename="camel", frozen=True, kw_only=True):
    """Base class of all items of a turn. Use it for annotations and `isinstance`.

    `id` repeats: the model numbers its messages from the start in each turn. Only `thread_id`, `turn_id` and `id` together name one item.
    """

    id: str = ""
    started_at_ms: int | None = None
    """When the item began, in milliseconds since 1970."""
    completed_at_ms: int | None = None
    """When the item ended, in milliseconds since 1970; None while it runs."""

    @property
    def type(self) -> str:
        """The `type` of this item on the wire, such as `agentMessage`; every class has its own."""
        return str(self.__struct_config__.tag)


class UserMessageItem(CodexItem, tag="userMessage", frozen=True, kw_only=True):
    """A prompt, as Codex received it. `content` lists its inputs as dicts; `text` joins those that are text."""

    content: tuple[dict[str, Any], ...] = ()
    client_id: str | None = None

    @property
    def text(self) -> str:
        """The text inputs of the prompt, joined."""
        return "".join(part["text"] for part in self.content if isinstance(part.get("text"), str))


class AgentMessageItem(CodexItem, tag="agentMessage", frozen=True, kw_only=True):
    """A message of the model. `text` is empty in `ItemStarted` and whole in `ItemCompleted`; the deltas between them make it up.

    `phase` is `commentary` for a remark during the work, `final_answer` for the answer, and None when the model does not say.
    """

    text: str = ""
    phase: str | None = None
    moderation: Any = None
    memory_citation: Any = None
    delivery: Any = None
    questions: tuple[Any, ...] | None = None


class ReasoningItem(CodexItem, tag="reasoning", frozen=True, kw_only=True):
    """What the model thought: a `summary` in paragraphs, and the `content` itself where the provider shows it."""

    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


class PlanItem(CodexItem, tag="plan", frozen=True, kw_only=True):
    """The plan of the model, as one `text`."""

    text: str = ""


class CommandExecutionItem(CodexItem, tag="commandExecution", frozen=True, kw_only=True):
    """A shell command that the model runs.

    `status` is `inProgress`, `completed`, `failed` or `declined`. `exit_code` and `aggregated_output` are None until the command ends, and
    stay so when it was never run.
    """

    command: str = ""
    cwd: str | None = None
    status: str = ""
    exit_code: int | None = None
    aggregated_output: str | None = None
    duration_ms: int | None = None
    command_actions: tuple[Any, ...] = ()
    process_id: str | None = None
    source: Any = None
    plugin_id: str | None = None
    script_path: str | None = None


class FileUpdate(Part, rename="camel", frozen=True, kw_only=True):
    """One changed file of a `FileChangeItem`: its `path`, its `diff`, and in `kind` a dict with the `type` `add`, `delete` or `update`."""

    path: str = ""
    kind: Any = None
    diff: str = ""


class FileChangeItem(CodexItem, tag="fileChange", frozen=True, kw_only=True):
    """Changes to files that the model makes. `status` is `inProgress`, `completed`, `failed` or `declined`.

    A question for approval (`FileChangeApproval`) does not repeat the changes: they are in the `ItemStarted` with the same id.
    """

    changes: tuple[FileUpdate, ...] = ()
    status: str = ""


class DynamicToolCallItem(CodexItem, tag="dynamicToolCall", frozen=True, kw_only=True):
    """A call of a tool of this program. `status` is `inProgress`, `completed` or `failed`; `content_items` is what the tool returned."""

    tool: str = ""
    namespace: str | None = None
    arguments: Any = None
    status: str = ""
    content_items: tuple[Any, ...] | None = None
    success: bool | None = None
    duration_ms: int | None = None


class McpToolCallItem(CodexItem, tag="mcpToolCall", frozen=True, kw_only=True):
    """A call of the tool `tool` of the MCP server `server`. `result` or `error` holds its outcome."""

    server: str = ""
    tool: str = ""
    arguments: Any = None
    status: str = ""
    result: Any = None
    error: Any = None
    duration_ms: int | None = None


class WebSearchItem(CodexItem, tag="webSearch", frozen=True, kw_only=True):
    """A search of the web for `query`."""

    query: str = ""
    action: Any = None
    results: tuple[Any, ...] | None = None


class ContextCompactionItem(CodexItem, tag="contextCompaction", frozen=True, kw_only=True):
    """Codex replaced the history of the thread by a summary, because it became too long."""


class UnknownItem(CodexItem, tag=FALLBACK_TAG, frozen=True, kw_only=True):
    """An item of an unknown type, or one whose shape does not fit the class of its type. `data` is the whole JSON object."""

    data: dict[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The `type` that the item has on the wire; an empty string when it has none."""
        kind = self.data.get("type")
        return kind if isinstance(kind, str) else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the item as it came, as a new dict."""
        return dict(self.data)

    @classmethod
    def from_wire(cls, data: Any) -> UnknownItem | None:
        """Keep an object that no class of item takes; the decoder calls it. Returns None for anything but an object."""
        if not isinstance(data, dict):
            return None
        name = data.get("id")
        return cls(id=name if isinstance(name, str) else "", data=data)


AnyItem: TypeAlias = (
    UserMessageItem
    | AgentMessageItem
    | ReasoningItem
    | PlanItem
    | CommandExecutionItem
    | FileChangeItem
    | DynamicToolCallItem
    | McpToolCallItem
    | WebSearchItem
    | ContextCompactionItem
    | UnknownItem
)
"""Any item that a message of Codex can hold."""
