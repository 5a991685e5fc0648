"""Typed answers to the control requests that a host sends to the CLI; the methods of `client.controls` return them.

A value that does not fit leaves its field at the default and is named in `misfits`; it is never an error. `raw` is the whole payload, so
fields that only a newer CLI sends can be read there. `control` has the base class and the answer to `initialize`.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from msgspec import field

from claude_transport.protocol.control import AgentInfo, Answer, CommandInfo, ModelInfo
from claude_transport.protocol.envelope import Number, Part

# The answer to `get_context_usage`: what fills the context window. All sizes in tokens.


class ContextCategory(Part, rename="camel", frozen=True, kw_only=True):
    """One category of content in the context window. `kind`: used, deferred (counted, but not loaded), buffer (kept free), free."""

    id: str = ""
    name: str = ""
    tokens: int = 0
    kind: str = ""
    color: str = ""
    is_deferred: bool = False


class ContextCell(Part, rename="camel", frozen=True, kw_only=True):
    """One square of the grid that the CLI draws. `percentage` is of the whole window; `square_fullness` is from 0 to 1."""

    category_name: str = ""
    tokens: int = 0
    percentage: Number = 0
    square_fullness: Number = 0
    is_filled: bool = False
    color: str = ""


class ContextMemoryFile(Part, frozen=True, kw_only=True):
    """A CLAUDE.md or another file that is read at the start of a session."""

    path: str = ""
    type: str = ""
    tokens: int = 0


class ContextTool(Part, rename="camel", frozen=True, kw_only=True):
    """A tool of an MCP server. A tool that is not loaded uses no tokens yet."""

    name: str = ""
    server_name: str = ""
    tokens: int = 0
    is_loaded: bool | None = None


class ContextAgent(Part, rename="camel", frozen=True, kw_only=True):
    """A subagent definition and the tokens it uses."""

    agent_type: str = ""
    source: str = ""
    tokens: int = 0


class ContextSkill(Part, frozen=True, kw_only=True):
    """A skill and the tokens that its front matter uses."""

    name: str = ""
    source: str = ""
    tokens: int = 0


class ContextSkills(Part, rename="camel", frozen=True, kw_only=True):
    """The number of skills, how many of them are described to the model, and the tokens this uses."""

    total_skills: int = 0
    included_skills: int = 0
    tokens: int = 0
    skill_frontmatter: tuple[ContextSkill, ...] = ()


class ContextSlashCommands(Part, rename="camel", frozen=True, kw_only=True):
    """The number of slash commands, how many of them are described to the model, and the tokens this uses."""

    total_commands: int = 0
    included_commands: int = 0
    tokens: int = 0


class TokenShare(Part, rename="camel", frozen=True, kw_only=True):
    """Tokens used by one kind of attachment (`tokens`), or by one tool (`call_tokens` and `result_tokens`)."""

    name: str = ""
    tokens: int | None = None
    call_tokens: int | None = None
    result_tokens: int | None = None


class MessageBreakdown(Part, rename="camel", frozen=True, kw_only=True):
    """Tokens used by the conversation, by kind of message."""

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
    """The use of the context window, in tokens. [08a, 08b]

    With `detail="summary"` the numbers are estimates (8 ms). Otherwise the CLI asks the API to count (1.1 s). `max_tokens` is what can be
    used, `raw_max_tokens` is the model's window, and `percentage` is a whole number.
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
    """The usage that the last API response reported; None before the first response."""

    def category(self, id: str) -> ContextCategory | None:  # noqa: A002 - the wire's own name for it
        """Return the category with this id (`messages`, `system_prompt`, `free_space`, …), or None."""
        return next((category for category in self.categories if category.id == id), None)


# Answers about files: read, rewound, changed, suggested.


class RewindResult(Answer, rename="camel", frozen=True, kw_only=True):
    """The result of a rewind of files. Counts, paths and `error` come only with `dry_run`. [08a]"""

    can_rewind: bool = False
    error: str | None = None
    files_changed: tuple[str, ...] = ()
    insertions: int | None = None
    deletions: int | None = None
    skipped_links: int | None = None


class FileSuggestions(Answer, frozen=True, kw_only=True):
    """Paths below `cwd` that match the typed text. [08a]"""

    suggestions: tuple[Any, ...] = ()
    cwd: str = ""


class FileContents(Answer, frozen=True, kw_only=True):
    """The contents of a file, as text or as base64 (`encoding`). [08a]

    `lossy` is True when bytes that are not UTF-8 were replaced, `truncated` when the file was cut at `max_bytes`.
    """

    contents: str = ""
    abs_path: str = field(name="absPath", default="")
    requested_path: str = ""
    encoding: str | None = None
    lossy: bool = False
    truncated: bool = False

    @property
    def data(self) -> bytes:
        """The contents as bytes: decoded from base64, or the text encoded in UTF-8."""
        if self.encoding == "base64":
            try:
                return base64.b64decode(self.contents)
            except binascii.Error:
                return b""  # not valid base64; `contents` still has the text
        return self.contents.encode("utf-8", "surrogatepass")


class PlanInfo(Answer, frozen=True, kw_only=True):
    """The plan of the session, if it has one. [08a]"""

    exists: bool = False
    content: str | None = None
    path: str | None = None


class DiffStats(Part, rename="camel", frozen=True, kw_only=True):
    """The number of changed files and lines."""

    files_count: int = 0
    lines_added: int = 0
    lines_removed: int = 0


class ChangedFile(Part, rename="camel", frozen=True, kw_only=True):
    """One changed file. `status`: added, modified, removed, renamed, copied."""

    path: str = ""
    added: int = 0
    removed: int = 0
    is_binary: bool = False
    is_untracked: bool = False
    status: str | None = None


class DiffHunk(Part, rename="camel", frozen=True, kw_only=True):
    """A hunk of a unified diff. Each line begins with a space, `+` or `-`."""

    old_start: int = 0
    old_lines: int = 0
    new_start: int = 0
    new_lines: int = 0
    lines: tuple[str, ...] = ()


class DiffFile(Part, frozen=True, kw_only=True):
    """The hunks of one file. Untracked files have none."""

    path: str = ""
    hunks: tuple[DiffHunk, ...] = ()


class WorkspaceDiff(Part, rename="camel", frozen=True, kw_only=True):
    """The changes in the working tree."""

    stats: DiffStats = DiffStats()
    files: tuple[ChangedFile, ...] = field(name="perFileStats", default=())
    hunks: tuple[DiffFile, ...] = ()
    skipped_large: tuple[str, ...] = ()
    omitted: dict[str, Any] | None = None
    source: dict[str, Any] | None = None


class WorkspaceDiffAnswer(Answer, rename="camel", frozen=True, kw_only=True):
    """The changes in the working tree, or None with a `no_diff_reason`: `no-repository`, … [08a]"""

    diff: WorkspaceDiff | None = None
    no_diff_reason: str | None = None


# Answers about MCP servers.


class McpServerInfo(Part, frozen=True, kw_only=True):
    """The name and version that an MCP server reports about itself."""

    name: str = ""
    version: str = ""


class McpServerTool(Part, frozen=True, kw_only=True):
    """A tool of a connected MCP server. `annotations` use the CLI's names (`readOnly`, `destructive`, …)."""

    name: str = ""
    description: str | None = None
    annotations: dict[str, Any] = field(default_factory=dict)


class McpServerStatus(Part, frozen=True, kw_only=True):
    """The state of one MCP server. [06l, 08a]

    `status`: connected, failed, disabled, pending, needs-auth. `scope` and `source` say where it was configured: `sdk` for a server of the
    host, `dynamic` for one of `mcp_set_servers`.
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
    """The state of every MCP server. [08a]"""

    servers: tuple[McpServerStatus, ...] = field(name="mcpServers", default=())


class McpServersChange(Answer, frozen=True, kw_only=True):
    """The result of setting the MCP servers. `errors` names the servers that were added but could not be connected. [06l, 08a]"""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)


class McpCallResult(Answer, frozen=True, kw_only=True):
    """The result of an MCP tool that the host called, without the model. The tool sets `is_error`; `staging` comes only when a time
    limit was given.
    """

    content: tuple[dict[str, Any], ...] | str = ()
    is_error: bool = field(name="isError", default=False)
    structured_content: dict[str, Any] | None = field(name="structuredContent", default=None)
    staging: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """All text blocks of the result, joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")


class McpResourceContents(Answer, frozen=True, kw_only=True):
    """An MCP resource: a tuple of MCP content objects with `uri`, `mimeType` and `text` or `blob`."""

    contents: tuple[dict[str, Any], ...] = ()


# Answers about models and their cost.


class ModelListing(Answer, frozen=True, kw_only=True):
    """The models that can be selected. [08a]"""

    models: tuple[ModelInfo, ...] = ()


class ModelSpending(Part, rename="camel", frozen=True, kw_only=True):
    """Tokens and cost (US dollars) of one model in this session. [08a]"""

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
    """`list` when the cost was computed from list prices."""


class SessionSpending(Part, frozen=True, kw_only=True):
    """Tokens, cost and time (milliseconds) since this process started. The keys of `model_usage` are model names. [08a]"""

    total_cost_usd: Number = 0
    total_api_duration_ms: Number = 0
    total_duration_ms: Number = 0
    total_lines_added: int = 0
    total_lines_removed: int = 0
    model_usage: dict[str, ModelSpending] = field(default_factory=dict)


class UsageInfo(Answer, frozen=True, kw_only=True):
    """Usage of this session, and the remaining limits of a subscription. [08a]

    `rate_limits` and `behaviors` are None with an API key. *Declared*: `rate_limits` holds windows (`five_hour`, `seven_day`, …), each with
    `utilization` and `resets_at`.
    """

    session: SessionSpending = SessionSpending()
    subscription_type: str | None = None
    rate_limits_available: bool = False
    rate_limits: dict[str, Any] | None = None
    behaviors: dict[str, Any] | None = None


# Answers about permission rules, hooks and the sandbox.


class PermissionRuleInfo(Part, frozen=True, kw_only=True):
    """One permission rule, such as `Bash(ls)`. `behavior`: allow, deny, ask. `source`: flagSettings, userSettings, session, …"""

    rule: str = ""
    behavior: str = ""
    source: str = ""
    editability: str | None = None
    description: Any = None


class PermissionRuleState(Part, rename="camel", frozen=True, kw_only=True):
    """The permission rules and the directories they apply to."""

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
    """The hooks of the settings files, and all events that a hook can have. Hooks of the host are not listed. [08a]"""

    events: tuple[Any, ...] = ()
    hooks: tuple[dict[str, Any], ...] = ()
    event_catalog: tuple[HookListingEvent, ...] = ()
    policy: dict[str, Any] | None = None


class SandboxInfo(Answer, frozen=True, kw_only=True):
    """The sandbox in which commands run. `mode`: disabled, … [08a]"""

    supported: bool = False
    enabled: bool = False
    locked: bool = False
    mode: str = ""
    excluded_commands: tuple[str, ...] = ()
    restrictions: dict[str, Any] = field(default_factory=dict)
    dependencies: dict[str, Any] = field(default_factory=dict)


# Answers about the session as a whole.


class BinaryVersion(Answer, rename="camel", frozen=True, kw_only=True):
    """The version of the CLI; `build_time` is in ISO 8601. [08a]"""

    version: str = ""
    build_time: str = ""
    oldest_desktop_sdk: str | None = None


class StatusRow(Part, frozen=True, kw_only=True):
    """One fact of the status, as text for people."""

    label: str = ""
    value: str = ""


class StatusSection(Part, frozen=True, kw_only=True):
    """The facts under one heading of the status."""

    title: str = ""
    rows: tuple[StatusRow, ...] = ()


class StatusInfo(Answer, frozen=True, kw_only=True):
    """The content of `/status`, as text for people. [08a]"""

    sections: tuple[StatusSection, ...] = ()

    def value(self, label: str) -> str | None:
        """Return the value of the first row with this label (`Session ID`, `Model`, `cwd`, …), or None."""
        return next((row.value for section in self.sections for row in section.rows if row.label == label), None)


class ExportedConversation(Answer, frozen=True, kw_only=True):
    """The conversation as plain text, and a suggested file name. [08a]"""

    text: str = ""
    default_filename: str = ""


class ForkResult(Answer, frozen=True, kw_only=True):
    """The result of a fork request. A stream-json session answers `forked=False` with `reason="unsupported"`. [08a]"""

    forked: bool = False
    error: str | None = None
    reason: str | None = None


class SideAnswer(Answer, frozen=True, kw_only=True):
    """The model's answer to a side question, which is not part of the conversation. `synthetic` is True when no model wrote it. [08a]"""

    response: str | None = None
    synthetic: bool = False


class SessionTitle(Answer, frozen=True, kw_only=True):
    """A title that the model made for the session from a description."""

    title: str | None = None


class CwdChange(Answer, frozen=True, kw_only=True):
    """The result of a change of the working directory.

    `status` `ok`: the session is in `cwd`; `changed` is True when it was in another directory before. `needs_trust`: nothing changed; ask
    the user whether to trust `trust_root`, then repeat the request with this `directory` as `trusted_directory`. `rejected`: nothing
    changed; `reason` is for programs (`busy` while a turn or hook runs), `message` for people.
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
    """The result of cutting the conversation back to before a message. `prefill_text` is the text of that message."""

    rewound: bool = False
    target_message_uuid: str | None = None
    prefill_text: str | None = None
    preceding_assistant_uuid: str | None = None
    error: str | None = None
    reason: str | None = None


# Answers about settings, plugins, skills and memory.


class SettingsSource(Part, frozen=True, kw_only=True):
    """The settings from one source: userSettings, projectSettings, localSettings, flagSettings, policySettings."""

    source: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


class AppliedSettings(Part, frozen=True, kw_only=True):
    """The settings that the session uses now, after all sources were merged."""

    model: str | None = None
    effort: str | None = None
    advisor: Any = None


class SettingsInfo(Answer, frozen=True, kw_only=True):
    """The settings: merged (`effective`), by source (`sources`, weakest first), and those in use (`applied`). [08a, 08c]"""

    effective: dict[str, Any] = field(default_factory=dict)
    sources: tuple[SettingsSource, ...] = ()
    applied: AppliedSettings = AppliedSettings()
    served_settings_state: str | None = None


class PluginInfo(Part, frozen=True, kw_only=True):
    """A loaded plugin."""

    name: str = ""
    path: str = ""
    source: str | None = None
    version: str | None = None


class CacheImpact(Part, frozen=True, kw_only=True):
    """What a plugin reload would change, if it were not held back. *Declared.*"""

    mcp_servers_added: tuple[str, ...] = ()
    mcp_servers_removed: tuple[str, ...] = ()
    lsp_tool_change: str | None = None


class ReloadedPlugins(Answer, frozen=True, kw_only=True):
    """The plugins, commands, agents and MCP servers after a reload. `held` is True when the reload was held back and nothing changed.
    [08a]
    """

    commands: tuple[CommandInfo, ...] = ()
    agents: tuple[AgentInfo, ...] = ()
    plugins: tuple[PluginInfo, ...] = ()
    mcp_servers: tuple[McpServerStatus, ...] = field(name="mcpServers", default=())
    error_count: int = 0
    held: bool = False
    cache_impact: CacheImpact | None = None


class SkillListing(Answer, frozen=True, kw_only=True):
    """The skills after a reload. [08a]"""

    skills: tuple[CommandInfo, ...] = ()


class OutputStyles(Answer, frozen=True, kw_only=True):
    """The output styles after a reload. [08a]"""

    available_output_styles: tuple[str, ...] = ()


class SkillsInfo(Answer, frozen=True, kw_only=True):
    """The skills that the user can manage, without the built-in ones. [08a]"""

    skills: tuple[dict[str, Any], ...] = ()


class MemoryFile(Part, frozen=True, kw_only=True):
    """A file that is read at the start of a session if it exists. `kind`: user, project, …"""

    kind: str = ""
    path: str = ""
    label: str = ""
    description: str = ""
    exists: bool = False


class MemoryFolder(Part, frozen=True, kw_only=True):
    """A folder of memory files."""

    kind: str = ""
    path: str = ""
    label: str = ""
    description: str = ""


class MemoryInfo(Answer, frozen=True, kw_only=True):
    """The memory files and folders that are kept between sessions. [08a]"""

    files: tuple[MemoryFile, ...] = ()
    folders: tuple[MemoryFolder, ...] = ()
    memories: tuple[Any, ...] = ()
    auto_memory: dict[str, Any] = field(default_factory=dict)


# Answers about running turns, queued messages and background tasks.


class InterruptReceipt(Answer, frozen=True, kw_only=True):
    """Uuids of the queued messages that an interrupt kept, and of those it dropped. [07c, 07f]"""

    still_queued: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


class MessageCancellation(Answer, frozen=True, kw_only=True):
    """The result of cancelling a queued message. `cancelled` is False when its turn already began, or when the uuid is unknown. [10e]"""

    cancelled: bool = False
    message_uuid: str | None = None


class TaskOutput(Answer, frozen=True, kw_only=True):
    """The output of a background shell so far. `truncated` is True when `output` is not all of the `total_bytes`. [24d]"""

    output: str = ""
    total_bytes: int = 0
    truncated: bool = False
