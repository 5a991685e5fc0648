"""Typed answers to what a host asks of the CLI, one module per noun; `claude_transport.client.controls` asks.

An answer is never refused: what does not fit is left at its default and named in `misfits`, and `raw` is the whole payload. What a
newer CLI adds is therefore at hand before this library has a name for it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Self

from msgspec import field

from claude_transport.protocol.control import AgentInfo, CommandInfo, ModelInfo
from claude_transport.protocol.envelope import Number, Part
from claude_transport.protocol.salvage import Salvaged

# --- What every answer to a control request has.


class Answer(Salvaged, frozen=True, kw_only=True):
    """The payload of a successful control response, typed; `raw` is all of it, also what has no field here."""

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """The typed view of `ControlResponse.payload`; whatever does not fit is left at its default. Never raises.

        With more misfits than can be looked through (see `salvage`), all fields hold their default and `misfits` names the keys.
        """
        unread = [name for name in cls.__struct_encode_fields__ if name in payload]
        return cls._salvage(payload) or cls(misfits=tuple(unread), raw=dict(payload))


# --- The answer to `get_context_usage`: what fills the context window. All sizes in tokens.


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


# --- Answers about files: read, rewound, changed, suggested.


class RewindResult(Answer, rename="camel", frozen=True, kw_only=True):
    """What a rewind did, or with `dry_run` would do: counts and paths come with a dry run only, and so does `error`. [08a]"""

    can_rewind: bool = False
    error: str | None = None
    files_changed: tuple[str, ...] = ()
    insertions: int | None = None
    deletions: int | None = None
    skipped_links: int | None = None


class FileSuggestions(Answer, frozen=True, kw_only=True):
    """Paths that match what was typed, seen from `cwd`. [08a]"""

    suggestions: tuple[Any, ...] = ()
    cwd: str = ""


class FileContents(Answer, frozen=True, kw_only=True):
    """A file, as text or as base64 (`encoding`). `lossy` when bytes that are no UTF-8 were replaced, `truncated` at `max_bytes`. [08a]"""

    contents: str = ""
    abs_path: str = field(name="absPath", default="")
    requested_path: str = ""
    encoding: str | None = None
    lossy: bool = False
    truncated: bool = False

    @property
    def data(self) -> bytes:
        """The bytes: decoded from base64, or the text in UTF-8."""
        if self.encoding == "base64":
            try:
                return base64.b64decode(self.contents)
            except binascii.Error:
                return b""  # not base64 after all; `contents` still has what came
        return self.contents.encode("utf-8", "surrogatepass")


class PlanInfo(Answer, frozen=True, kw_only=True):
    """The session's plan, when there is one. [08a]"""

    exists: bool = False
    content: str | None = None
    path: str | None = None


class DiffStats(Part, rename="camel", frozen=True, kw_only=True):
    """How much has changed."""

    files_count: int = 0
    lines_added: int = 0
    lines_removed: int = 0


class ChangedFile(Part, rename="camel", frozen=True, kw_only=True):
    """One changed file; `status`: added, modified, removed, renamed, copied."""

    path: str = ""
    added: int = 0
    removed: int = 0
    is_binary: bool = False
    is_untracked: bool = False
    status: str | None = None


class DiffHunk(Part, rename="camel", frozen=True, kw_only=True):
    """A hunk of a unified diff: `lines` begin with a space, `+` or `-`."""

    old_start: int = 0
    old_lines: int = 0
    new_start: int = 0
    new_lines: int = 0
    lines: tuple[str, ...] = ()


class DiffFile(Part, frozen=True, kw_only=True):
    """The hunks of one file; untracked files have none."""

    path: str = ""
    hunks: tuple[DiffHunk, ...] = ()


class WorkspaceDiff(Part, rename="camel", frozen=True, kw_only=True):
    """What has changed in the working tree."""

    stats: DiffStats = DiffStats()
    files: tuple[ChangedFile, ...] = field(name="perFileStats", default=())
    hunks: tuple[DiffFile, ...] = ()
    skipped_large: tuple[str, ...] = ()
    omitted: dict[str, Any] | None = None
    source: dict[str, Any] | None = None


class WorkspaceDiffAnswer(Answer, rename="camel", frozen=True, kw_only=True):
    """The changes, or None and the reason: `no-repository`, … [08a]"""

    diff: WorkspaceDiff | None = None
    no_diff_reason: str | None = None


# --- Answers about MCP servers.


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


# --- Answers about models, and about what they have cost.


class ModelListing(Answer, frozen=True, kw_only=True):
    """The models that can be chosen. [08a]"""

    models: tuple[ModelInfo, ...] = ()


class ModelSpending(Part, rename="camel", frozen=True, kw_only=True):
    """What one model was used for in this session, in tokens and US dollars. [08a]"""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    web_search_requests: int = 0
    cost_usd: Number = field(name="costUSD", default=0)
    context_window: int | None = None
    max_output_tokens: int | None = None
    thinking_tokens: int | None = None
    canonical_model: str | None = None
    provider: str | None = None
    cost_basis: str | None = None
    """`list` for list prices."""


class SessionSpending(Part, frozen=True, kw_only=True):
    """What this process has used so far; times in milliseconds, `model_usage` by model name. [08a]"""

    total_cost_usd: Number = 0
    total_api_duration_ms: Number = 0
    total_duration_ms: Number = 0
    total_lines_added: int = 0
    total_lines_removed: int = 0
    model_usage: dict[str, ModelSpending] = field(default_factory=dict)


class UsageInfo(Answer, frozen=True, kw_only=True):
    """What was used, and how much of a subscription's limits is left. [08a]

    `rate_limits` and `behaviors` are None with an API key. *Declared*: `rate_limits` holds windows (`five_hour`, `seven_day`, …), each
    with `utilization` and `resets_at`.
    """

    session: SessionSpending = SessionSpending()
    subscription_type: str | None = None
    rate_limits_available: bool = False
    rate_limits: dict[str, Any] | None = None
    behaviors: dict[str, Any] | None = None


# --- Answers about what is allowed, and about who is asked: permission rules, hooks, the sandbox.


class PermissionRuleInfo(Part, frozen=True, kw_only=True):
    """One rule, e.g. `Bash(ls)`; `behavior`: allow, deny, ask; `source`: flagSettings, userSettings, session, …"""

    rule: str = ""
    behavior: str = ""
    source: str = ""
    editability: str | None = None
    description: Any = None


class PermissionRuleState(Part, rename="camel", frozen=True, kw_only=True):
    """The rules, and where they apply."""

    rules: tuple[PermissionRuleInfo, ...] = ()
    workspace_directories: tuple[Any, ...] = ()
    original_cwd: str = ""
    managed_only: bool = False


class PermissionRules(Answer, frozen=True, kw_only=True):
    """The permission rules in force. [08a]"""

    state: PermissionRuleState = PermissionRuleState()

    @property
    def rules(self) -> tuple[PermissionRuleInfo, ...]:
        """The rules, of all sources."""
        return self.state.rules

    @property
    def workspace_directories(self) -> tuple[Any, ...]:
        """Directories that may be worked in beside `original_cwd`."""
        return self.state.workspace_directories

    @property
    def original_cwd(self) -> str:
        """Where the session began."""
        return self.state.original_cwd

    @property
    def managed_only(self) -> bool:
        """Whether only the rules of an organisation count."""
        return self.state.managed_only


class HookListingEvent(Part, rename="camel", frozen=True, kw_only=True):
    """A hook event that this CLI knows."""

    name: str = ""
    summary: str = ""
    supports_matcher: bool = False


class HookListing(Answer, rename="camel", frozen=True, kw_only=True):
    """The hooks of the settings files, and every event there could be one for. Hooks of the host are not among them. [08a]"""

    events: tuple[Any, ...] = ()
    hooks: tuple[dict[str, Any], ...] = ()
    event_catalog: tuple[HookListingEvent, ...] = ()
    policy: dict[str, Any] | None = None


class SandboxInfo(Answer, frozen=True, kw_only=True):
    """How commands are sandboxed; `mode`: disabled, … [08a]"""

    supported: bool = False
    enabled: bool = False
    locked: bool = False
    mode: str = ""
    excluded_commands: tuple[str, ...] = ()
    restrictions: dict[str, Any] = field(default_factory=dict)
    dependencies: dict[str, Any] = field(default_factory=dict)


# --- Answers about the session as a whole.


class BinaryVersion(Answer, rename="camel", frozen=True, kw_only=True):
    """Which CLI this is; `build_time` in ISO 8601. [08a]"""

    version: str = ""
    build_time: str = ""
    oldest_desktop_sdk: str | None = None


class StatusRow(Part, frozen=True, kw_only=True):
    """One fact, as text for people."""

    label: str = ""
    value: str = ""


class StatusSection(Part, frozen=True, kw_only=True):
    """Facts under one heading."""

    title: str = ""
    rows: tuple[StatusRow, ...] = ()


class StatusInfo(Answer, frozen=True, kw_only=True):
    """What `/status` shows, as text for people. [08a]"""

    sections: tuple[StatusSection, ...] = ()

    def value(self, label: str) -> str | None:
        """The value of the first row with this label (`Session ID`, `Model`, `cwd`, …), or None."""
        return next((row.value for section in self.sections for row in section.rows if row.label == label), None)


class ExportedConversation(Answer, frozen=True, kw_only=True):
    """The conversation as plain text, and what its file could be called. [08a]"""

    text: str = ""
    default_filename: str = ""


class ForkResult(Answer, frozen=True, kw_only=True):
    """Whether the conversation was forked: stream-json sessions answer success with `forked=False` and `reason="unsupported"`. [08a]"""

    forked: bool = False
    error: str | None = None
    reason: str | None = None


class SideAnswer(Answer, frozen=True, kw_only=True):
    """The model's answer to a question beside the conversation; `synthetic` when no model gave it. [08a]"""

    response: str | None = None
    synthetic: bool = False


class SessionTitle(Answer, frozen=True, kw_only=True):
    """A title made from a description."""

    title: str | None = None


class CwdChange(Answer, frozen=True, kw_only=True):
    """What came of a change of directory.

    `status` `ok`: the session is in `cwd`, `changed` says whether it was elsewhere before. `needs_trust`: nothing was done; ask the user
    whether `trust_root` is to be trusted, and repeat with this `directory` as `trusted_directory`. `rejected`: nothing was done, for
    `reason` (`busy` while a turn or hook is running), in words `message`.
    """

    status: str = ""
    cwd: str | None = None
    changed: bool = False
    transcript_relocated: bool | None = None
    directory: str | None = None
    trust_root: str | None = None
    reason: str | None = None
    message: str | None = None


class ConversationRewind(Answer, rename="camel", frozen=True, kw_only=True):
    """Whether the conversation was cut back to before a message; `prefill_text` is what that message said."""

    rewound: bool = False
    target_message_uuid: str | None = None
    prefill_text: str | None = None
    preceding_assistant_uuid: str | None = None
    error: str | None = None
    reason: str | None = None


# --- Answers about settings, and about what is loaded by them: plugins, skills, memory.


class SettingsSource(Part, frozen=True, kw_only=True):
    """What one place contributes: userSettings, projectSettings, localSettings, flagSettings, policySettings."""

    source: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


class AppliedSettings(Part, frozen=True, kw_only=True):
    """What the session runs with now, after everything has had its say."""

    model: str | None = None
    effort: str | None = None
    advisor: Any = None


class SettingsInfo(Answer, frozen=True, kw_only=True):
    """The settings: merged (`effective`), by place (`sources`, weakest first), and what is in use. [08a, 08c]"""

    effective: dict[str, Any] = field(default_factory=dict)
    sources: tuple[SettingsSource, ...] = ()
    applied: AppliedSettings = AppliedSettings()
    served_settings_state: str | None = None


class PluginInfo(Part, frozen=True, kw_only=True):
    """A plugin that is loaded."""

    name: str = ""
    path: str = ""
    source: str | None = None
    version: str | None = None


class CacheImpact(Part, frozen=True, kw_only=True):
    """What a reload that was held back would change. *Declared.*"""

    mcp_servers_added: tuple[str, ...] = ()
    mcp_servers_removed: tuple[str, ...] = ()
    lsp_tool_change: str | None = None


class ReloadedPlugins(Answer, frozen=True, kw_only=True):
    """What there is after the plugins were read again. With `held` nothing was changed yet. [08a]"""

    commands: tuple[CommandInfo, ...] = ()
    agents: tuple[AgentInfo, ...] = ()
    plugins: tuple[PluginInfo, ...] = ()
    mcp_servers: tuple[McpServerStatus, ...] = field(name="mcpServers", default=())
    error_count: int = 0
    held: bool = False
    cache_impact: CacheImpact | None = None


class SkillListing(Answer, frozen=True, kw_only=True):
    """The skills, after they were read again. [08a]"""

    skills: tuple[CommandInfo, ...] = ()


class OutputStyles(Answer, frozen=True, kw_only=True):
    """The output styles, after they were read again. [08a]"""

    available_output_styles: tuple[str, ...] = ()


class SkillsInfo(Answer, frozen=True, kw_only=True):
    """The skills that the user can manage; none of the built-in ones. [08a]"""

    skills: tuple[dict[str, Any], ...] = ()


class MemoryFile(Part, frozen=True, kw_only=True):
    """A file that is read at the start, or would be; `kind`: user, project, …"""

    kind: str = ""
    path: str = ""
    label: str = ""
    description: str = ""
    exists: bool = False


class MemoryFolder(Part, frozen=True, kw_only=True):
    """A folder of memories."""

    kind: str = ""
    path: str = ""
    label: str = ""
    description: str = ""


class MemoryInfo(Answer, frozen=True, kw_only=True):
    """What is remembered between sessions, and where. [08a]"""

    files: tuple[MemoryFile, ...] = ()
    folders: tuple[MemoryFolder, ...] = ()
    memories: tuple[Any, ...] = ()
    auto_memory: dict[str, Any] = field(default_factory=dict)


# --- Answers about what is under way: turns, queued messages, background tasks.


class InterruptReceipt(Answer, frozen=True, kw_only=True):
    """Which queued messages an interrupt left alone, and which it dropped, by uuid. [07c, 07f]"""

    still_queued: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


class MessageCancellation(Answer, frozen=True, kw_only=True):
    """Whether a queued message was dropped; False when it had been taken up already, or was never there. [10e]"""

    cancelled: bool = False
    message_uuid: str | None = None


class TaskOutput(Answer, frozen=True, kw_only=True):
    """What a background shell has written so far; `truncated` when `output` is not all of the `total_bytes`. [24d]"""

    output: str = ""
    total_bytes: int = 0
    truncated: bool = False
