"""The answer to `get_context_usage`: what fills the context window. All sizes in tokens."""

from __future__ import annotations

from typing import Any

from msgspec import field

from claude_transport.protocol.answers.answer import Answer
from claude_transport.protocol.envelope import Number, Part

__all__ = [
    "ContextAgent",
    "ContextCategory",
    "ContextCell",
    "ContextMemoryFile",
    "ContextSkill",
    "ContextSkills",
    "ContextSlashCommands",
    "ContextTool",
    "ContextUsage",
    "MessageBreakdown",
    "TokenShare",
]


class ContextCategory(Part, rename="camel", frozen=True, kw_only=True):
    """One kind of content; `kind`: used, deferred (counted, but not loaded), buffer (kept free), free."""

    id: str = ""
    name: str = ""
    tokens: int = 0
    kind: str = ""
    color: str = ""
    is_deferred: bool = False


class ContextCell(Part, rename="camel", frozen=True, kw_only=True):
    """One square of the picture that the CLI itself draws; `percentage` of the window, `square_fullness` from 0 to 1."""

    category_name: str = ""
    tokens: int = 0
    percentage: Number = 0
    square_fullness: Number = 0
    is_filled: bool = False
    color: str = ""


class ContextMemoryFile(Part, frozen=True, kw_only=True):
    """A CLAUDE.md, or what else is read at the start."""

    path: str = ""
    type: str = ""
    tokens: int = 0


class ContextTool(Part, rename="camel", frozen=True, kw_only=True):
    """A tool of an MCP server; one that is not loaded costs nothing yet."""

    name: str = ""
    server_name: str = ""
    tokens: int = 0
    is_loaded: bool | None = None


class ContextAgent(Part, rename="camel", frozen=True, kw_only=True):
    """A subagent definition."""

    agent_type: str = ""
    source: str = ""
    tokens: int = 0


class ContextSkill(Part, frozen=True, kw_only=True):
    """A skill's front matter."""

    name: str = ""
    source: str = ""
    tokens: int = 0


class ContextSkills(Part, rename="camel", frozen=True, kw_only=True):
    """How many skills there are, how many are described to the model, and what that costs."""

    total_skills: int = 0
    included_skills: int = 0
    tokens: int = 0
    skill_frontmatter: tuple[ContextSkill, ...] = ()


class ContextSlashCommands(Part, rename="camel", frozen=True, kw_only=True):
    """How many slash commands there are, how many are described to the model, and what that costs."""

    total_commands: int = 0
    included_commands: int = 0
    tokens: int = 0


class TokenShare(Part, rename="camel", frozen=True, kw_only=True):
    """What one kind of attachment (`tokens`) or one tool (`call_tokens` and `result_tokens`) takes."""

    name: str = ""
    tokens: int | None = None
    call_tokens: int | None = None
    result_tokens: int | None = None


class MessageBreakdown(Part, rename="camel", frozen=True, kw_only=True):
    """What the conversation itself is made of."""

    tool_call_tokens: int = 0
    tool_result_tokens: int = 0
    attachment_tokens: int = 0
    assistant_message_tokens: int = 0
    user_message_tokens: int = 0
    redirected_context_tokens: int = 0
    unattributed_tokens: int = 0
    tool_calls_by_type: tuple[TokenShare, ...] = ()
    attachments_by_type: tuple[TokenShare, ...] = ()


class ContextUsage(Answer, rename="camel", frozen=True, kw_only=True):
    """What fills the context window. [08a, 08b]

    Estimates with `detail="summary"` (8 ms), counted by the API in full (1.1 s, it asks the API to count). `max_tokens` is what can be
    used, `raw_max_tokens` the model's window, `percentage` a whole number.
    """

    total_tokens: int = 0
    max_tokens: int = 0
    raw_max_tokens: int = 0
    percentage: Number = 0
    model: str = ""
    categories: tuple[ContextCategory, ...] = ()
    memory_files: tuple[ContextMemoryFile, ...] = ()
    mcp_tools: tuple[ContextTool, ...] = ()
    mcp_instructions: tuple[Any, ...] = ()
    agents: tuple[ContextAgent, ...] = ()
    skills: ContextSkills | None = None
    slash_commands: ContextSlashCommands | None = None
    message_breakdown: MessageBreakdown | None = None
    auto_compact_threshold: int | None = None
    auto_compact_source: str | None = field(name="autocompactSource", default=None)
    is_auto_compact_enabled: bool = False
    grid_rows: tuple[tuple[ContextCell, ...], ...] = ()
    api_usage: dict[str, Any] | None = None
    """The usage of the last API response, None before the first."""

    def category(self, id: str) -> ContextCategory | None:  # noqa: A002 - the wire's own name for it
        """The category with this id (`messages`, `system_prompt`, `free_space`, …), or None."""
        return next((category for category in self.categories if category.id == id), None)
