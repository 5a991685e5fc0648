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
    """One category of content in the context window (system prompt, tools, messages, …), and the tokens it uses there. `kind`: used,
    deferred (counted, but not loaded), buffer (kept free), free. A part of `ContextUsage`.
    """

    id: str = ""
    name: str = ""
    tokens: int = 0
    kind: str = ""
    color: str = ""
    is_deferred: bool = False


class ContextCell(Part, rename="camel", frozen=True, kw_only=True):
    """One square of the grid with which the CLI draws the context window. A part of `ContextUsage`.

    `tokens` and `percentage` (of the whole window) are those of the whole category, the same in each of its squares. `square_fullness`,
    from 0 to 1, is that of this square.
    """

    category_name: str = ""
    tokens: int = 0
    percentage: Number = 0
    square_fullness: Number = 0
    is_filled: bool = False
    color: str = ""


class ContextMemoryFile(Part, frozen=True, kw_only=True):
    """A CLAUDE.md or another memory file that the CLI read at the start of the session, and the tokens it uses in the context window."""

    path: str = ""
    type: str = ""
    tokens: int = 0


class ContextTool(Part, rename="camel", frozen=True, kw_only=True):
    """A tool of an MCP server, and the tokens that its description uses in the context window. The `tokens` of a tool that is
    not loaded are 0.
    """

    name: str = ""
    server_name: str = ""
    tokens: int = 0
    is_loaded: bool | None = None


class ContextAgent(Part, rename="camel", frozen=True, kw_only=True):
    """A kind of subagent that the session can start, and the tokens that its description uses in the context window. `source` is where it
    is defined.
    """

    agent_type: str = ""
    source: str = ""
    tokens: int = 0


class ContextSkill(Part, frozen=True, kw_only=True):
    """A skill, and the tokens that its front matter (its description for the model) uses in the context window. `source` is where it is
    defined.
    """

    name: str = ""
    source: str = ""
    tokens: int = 0


class ContextSkills(Part, rename="camel", frozen=True, kw_only=True):
    """The skills in the context window: how many there are, how many of them are described to the model, and the tokens that this uses.
    `skill_frontmatter` has them one by one.
    """

    total_skills: int = 0
    included_skills: int = 0
    tokens: int = 0
    skill_frontmatter: tuple[ContextSkill, ...] = ()


class ContextSlashCommands(Part, rename="camel", frozen=True, kw_only=True):
    """The slash commands in the context window: how many there are, how many are described to the model, and the tokens that this uses."""

    total_commands: int = 0
    included_commands: int = 0
    tokens: int = 0


class TokenShare(Part, rename="camel", frozen=True, kw_only=True):
    """Tokens that one tool or one kind of attachment (`name`) uses in the context window; a part of `MessageBreakdown`. A kind of
    attachment has `tokens`. A tool has `call_tokens` and `result_tokens`. The other fields are None.
    """

    name: str = ""
    tokens: int | None = None
    call_tokens: int | None = None
    result_tokens: int | None = None


class MessageBreakdown(Part, rename="camel", frozen=True, kw_only=True):
    """Tokens that the conversation uses in the context window, by kind of message; then by tool and by kind of attachment. A part of
    `ContextUsage`.
    """

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
    """What fills the context window of the session, in tokens; returned by `Query.context_usage`.

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
        """Return the category with this `id` (`messages`, `system_prompt`, `free_space`, …); None when there is no such category."""
        return next((category for category in self.categories if category.id == id), None)


# Answers about files: read, rewound, changed, suggested.


class RewindResult(Answer, rename="camel", frozen=True, kw_only=True):
    """The result of `Query.rewind_files`, which restores files. `can_rewind` says whether that is possible. The changed files, `insertions`
    and `deletions`, and `error` come only with `dry_run`, `skipped_links` only without.
    """

    can_rewind: bool = False
    error: str | None = None
    files_changed: tuple[str, ...] = ()
    insertions: int | None = None
    deletions: int | None = None
    skipped_links: int | None = None


class FileSuggestions(Answer, frozen=True, kw_only=True):
    """Paths below `cwd` that match the beginning of a path; returned by `Query.file_suggestions`."""

    suggestions: tuple[Any, ...] = ()
    cwd: str = ""


class FileContents(Answer, frozen=True, kw_only=True):
    """The contents of a file, as text or as base64 (when `encoding` is `base64`); returned by `Query.read_file`.

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
        """The contents as bytes: decoded from base64, or the text encoded in UTF-8. Empty when the base64 is not valid."""
        if self.encoding == "base64":
            try:
                return base64.b64decode(self.contents)
            except binascii.Error:
                return b""  # not valid base64; `contents` still has the text
        return self.contents.encode("utf-8", "surrogatepass")


class PlanInfo(Answer, frozen=True, kw_only=True):
    """The plan of the session; returned by `Query.plan`. When there is none, `exists` is False and `content` and `path` are None."""

    exists: bool = False
    content: str | None = None
    path: str | None = None


class DiffStats(Part, rename="camel", frozen=True, kw_only=True):
    """The number of changed files, added lines and removed lines in a `WorkspaceDiff`."""

    files_count: int = 0
    lines_added: int = 0
    lines_removed: int = 0


class ChangedFile(Part, rename="camel", frozen=True, kw_only=True):
    """One changed file of a `WorkspaceDiff`, and how many of its lines were `added` and `removed`. `status`: added, modified, removed,
    renamed, copied.
    """

    path: str = ""
    added: int = 0
    removed: int = 0
    is_binary: bool = False
    is_untracked: bool = False
    status: str | None = None


class DiffHunk(Part, rename="camel", frozen=True, kw_only=True):
    """A hunk of a unified diff: a group of changed lines, with its place in the old and the new file (line numbers and numbers of lines).
    Each line in `lines` begins with a space (unchanged), `+` or `-`.
    """

    old_start: int = 0
    old_lines: int = 0
    new_start: int = 0
    new_lines: int = 0
    lines: tuple[str, ...] = ()


class DiffFile(Part, frozen=True, kw_only=True):
    """The hunks of one changed file of a `WorkspaceDiff`. Untracked files have none."""

    path: str = ""
    hunks: tuple[DiffHunk, ...] = ()


class WorkspaceDiff(Part, rename="camel", frozen=True, kw_only=True):
    """The changes in the git working tree: the totals in `stats`, the changed `files`, and their changed lines in `hunks`. `skipped_large`
    names the files that were too large to show. Returned in a `WorkspaceDiffAnswer`.
    """

    stats: DiffStats = DiffStats()
    files: tuple[ChangedFile, ...] = field(name="perFileStats", default=())
    hunks: tuple[DiffFile, ...] = ()
    skipped_large: tuple[str, ...] = ()
    omitted: dict[str, Any] | None = None
    source: dict[str, Any] | None = None


class WorkspaceDiffAnswer(Answer, rename="camel", frozen=True, kw_only=True):
    """The changes in the git working tree, in `diff`; returned by `Query.workspace_diff`. When `diff` is None, `no_diff_reason` says why:
    `no-repository`, …
    """

    diff: WorkspaceDiff | None = None
    no_diff_reason: str | None = None


# Answers about MCP servers.


class McpServerInfo(Part, frozen=True, kw_only=True):
    """The name and version that a connected MCP server reports about itself. A part of `McpServerStatus`."""

    name: str = ""
    version: str = ""


class McpServerTool(Part, frozen=True, kw_only=True):
    """A tool of a connected MCP server, in `McpServerStatus`. `annotations` are the server's hints about it, with the CLI's names
    (`readOnly`, `destructive`, …).
    """

    name: str = ""
    description: str | None = None
    annotations: dict[str, Any] = field(default_factory=dict)


class McpServerStatus(Part, frozen=True, kw_only=True):
    """The state of one MCP server of the session; `Query.mcp_status` returns one for each.

    `status`: connected, failed (see `error`), disabled, pending, needs-auth. `scope` and `source` say where it was configured: `sdk` for a
    server of the host, `dynamic` for one of `Query.mcp_set_servers`. `tools` is empty unless the server is connected.
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
    """The answer to the control request `mcp_status`: the state of every MCP server of the session. `Query.mcp_status` returns its
    `servers`.
    """

    servers: tuple[McpServerStatus, ...] = field(name="mcpServers", default=())


class McpServersChange(Answer, frozen=True, kw_only=True):
    """The names of the MCP servers that `Query.mcp_set_servers` added and removed. `errors` names the servers that were added but could not
    be connected, each with the error text.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)


class McpCallResult(Answer, frozen=True, kw_only=True):
    """The result of a tool of an MCP server that the host called directly with `Query.mcp_call`, without the model. `is_error` is True when
    the tool reports a failure of its own. `staging` is an object of the CLI that comes only when `call_timeout` was given.
    """

    content: tuple[dict[str, Any], ...] | str = ()
    is_error: bool = field(name="isError", default=False)
    structured_content: dict[str, Any] | None = field(name="structuredContent", default=None)
    staging: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text of the result: all its text blocks, joined without a separator; an empty string when it has none."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")


class McpResourceContents(Answer, frozen=True, kw_only=True):
    """A resource that an MCP server returned: a tuple of MCP content objects with `uri`, `mimeType` and `text` or `blob`.
    `Query.mcp_read_resource` returns its `contents`.
    """

    contents: tuple[dict[str, Any], ...] = ()


# Answers about models and their cost.


class ModelListing(Answer, frozen=True, kw_only=True):
    """The answer to the control request `list_models`: the models that the session can use. `Query.list_models` returns `models`."""

    models: tuple[ModelInfo, ...] = ()


class ModelSpending(Part, rename="camel", frozen=True, kw_only=True):
    """What one model has used in this session: tokens, and its cost in US dollars. A part of `SessionSpending`."""

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
    cache_creation_ephemeral_5m_input_tokens: int | None = field(name="cacheCreationEphemeral5mInputTokens", default=None)
    cache_creation_ephemeral_1h_input_tokens: int | None = field(name="cacheCreationEphemeral1hInputTokens", default=None)


class SessionSpending(Part, frozen=True, kw_only=True):
    """The session's cost (US dollars), time (milliseconds) and changed lines since this CLI process started, and what each model used. The
    keys of `model_usage` are model names. A part of `UsageInfo`.
    """

    total_cost_usd: Number = 0
    total_api_duration_ms: Number = 0
    total_duration_ms: Number = 0
    total_lines_added: int = 0
    total_lines_removed: int = 0
    model_usage: dict[str, ModelSpending] = field(default_factory=dict)


class UsageInfo(Answer, frozen=True, kw_only=True):
    """What this session has used, and the remaining limits of a subscription; returned by `Query.usage`.

    `rate_limits` and `behaviors` are None with an API key. With a subscription, `rate_limits` holds windows (`five_hour`, `seven_day`, …),
    each with `utilization` and `resets_at`: published in the CLI's type declarations, never seen in a recording.
    """

    session: SessionSpending = SessionSpending()
    subscription_type: str | None = None
    rate_limits_available: bool = False
    rate_limits: dict[str, Any] | None = None
    behaviors: dict[str, Any] | None = None


# Answers about permission rules, hooks and the sandbox.


class PermissionRuleInfo(Part, frozen=True, kw_only=True):
    """One permission rule that is in force, such as `Bash(ls)`. `behavior`: allow, deny, ask. `source` is where the rule was set:
    flagSettings, userSettings, session, …
    """

    rule: str = ""
    behavior: str = ""
    source: str = ""
    editability: str | None = None
    description: Any = None


class PermissionRuleState(Part, rename="camel", frozen=True, kw_only=True):
    """The permission rules in force, the directories in which the session may work, and whether only an organisation's rules count. The
    content of `PermissionRules`.
    """

    rules: tuple[PermissionRuleInfo, ...] = ()
    workspace_directories: tuple[Any, ...] = ()
    original_cwd: str = ""
    managed_only: bool = False


class PermissionRules(Answer, frozen=True, kw_only=True):
    """The permission rules in force in the session, and its directories; returned by `Query.permission_rules`."""

    state: PermissionRuleState = PermissionRuleState()

    @property
    def rules(self) -> tuple[PermissionRuleInfo, ...]:
        """All permission rules in force, whether they come from settings files, options or the session; the `source` of each rule tells."""
        return self.state.rules

    @property
    def workspace_directories(self) -> tuple[Any, ...]:
        """The directories in which the session may work, in addition to `original_cwd`; as the CLI sent them."""
        return self.state.workspace_directories

    @property
    def original_cwd(self) -> str:
        """The directory in which the session began."""
        return self.state.original_cwd

    @property
    def managed_only(self) -> bool:
        """True when only the permission rules that an organisation set count, and those of users and projects are ignored."""
        return self.state.managed_only


class HookListingEvent(Part, rename="camel", frozen=True, kw_only=True):
    """A hook event that this version of the CLI knows, in `HookListing.event_catalog`. `supports_matcher` says whether a hook can be
    limited to some of these events, such as those of one tool.
    """

    name: str = ""
    summary: str = ""
    supports_matcher: bool = False


class HookListing(Answer, rename="camel", frozen=True, kw_only=True):
    """The hooks that settings files define, in `hooks`, and all events that this CLI knows, in `event_catalog`; returned by
    `Query.hooks_listing`. Hooks of the host are not listed.
    """

    events: tuple[Any, ...] = ()
    hooks: tuple[dict[str, Any], ...] = ()
    event_catalog: tuple[HookListingEvent, ...] = ()
    policy: dict[str, Any] | None = None


class SandboxInfo(Answer, frozen=True, kw_only=True):
    """Whether and how the CLI runs shell commands in a sandbox; returned by `Query.sandbox_info`. `supported` is True when it could,
    `enabled` when it does. `mode`: disabled, …
    """

    supported: bool = False
    enabled: bool = False
    locked: bool = False
    mode: str = ""
    excluded_commands: tuple[str, ...] = ()
    restrictions: dict[str, Any] = field(default_factory=dict)
    dependencies: dict[str, Any] = field(default_factory=dict)
    enabled_in_settings: bool | None = None
    overrides_locked: bool | None = None
    policy_origins: tuple[Any, ...] = ()
    auto_allow_available: bool | None = None
    no_sandbox_allowed: bool | None = None
    unsandboxed_fallback: bool | None = None
    setting_sources: Any = None


# Answers about the session as a whole.


class BinaryVersion(Answer, rename="camel", frozen=True, kw_only=True):
    """The version of the CLI's binary; returned by `Query.binary_version`. `build_time` is in ISO 8601."""

    version: str = ""
    build_time: str = ""
    oldest_desktop_sdk: str | None = None


class StatusRow(Part, frozen=True, kw_only=True):
    """One fact of the session's status, such as its model, as text for people: a label and its value. A part of `StatusSection`."""

    label: str = ""
    value: str = ""


class StatusSection(Part, frozen=True, kw_only=True):
    """The facts under one heading (`title`) of the session's status. A part of `StatusInfo`."""

    title: str = ""
    rows: tuple[StatusRow, ...] = ()


class StatusInfo(Answer, frozen=True, kw_only=True):
    """What the slash command `/status` shows about the session, as text for people; returned by `Query.status`."""

    sections: tuple[StatusSection, ...] = ()

    def value(self, label: str) -> str | None:
        """Return the value of the first row with this label (`Session ID`, `Model`, `cwd`, …); None when no row has it."""
        return next((row.value for section in self.sections for row in section.rows if row.label == label), None)


class ExportedConversation(Answer, frozen=True, kw_only=True):
    """The conversation as plain text, and a suggested name for its file; returned by `Query.export_conversation`."""

    text: str = ""
    default_filename: str = ""


class ForkResult(Answer, frozen=True, kw_only=True):
    """The result of `Query.fork_conversation`. A stream-json session, as every `Query` has, answers `forked=False` with
    `reason="unsupported"`: use the option `fork_session`.
    """

    forked: bool = False
    error: str | None = None
    reason: str | None = None


class SideAnswer(Answer, frozen=True, kw_only=True):
    """The model's answer to a side question, which is not part of the conversation; returned by `Query.side_question`. `synthetic` is True
    when no model wrote it.
    """

    response: str | None = None
    synthetic: bool = False


class SessionTitle(Answer, frozen=True, kw_only=True):
    """A title that a model made for the session from a description; None when it made none. `Query.generate_session_title` returns its
    `title`.
    """

    title: str | None = None


class CwdChange(Answer, frozen=True, kw_only=True):
    """The result of `Query.set_cwd`, which changes the working directory of the session.

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
    """The result of `Query.rewind_conversation`, which cuts the conversation back to before a user message. `prefill_text` is the text of
    that message. When `rewound` is False, `reason` and `error` say why.
    """

    rewound: bool = False
    target_message_uuid: str | None = None
    prefill_text: str | None = None
    preceding_assistant_uuid: str | None = None
    error: str | None = None
    reason: str | None = None


# Answers about settings, plugins, skills and memory.


class SettingsSource(Part, frozen=True, kw_only=True):
    """The settings from one source, in `SettingsInfo`. `source`: userSettings, projectSettings, localSettings, flagSettings,
    policySettings.
    """

    source: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


class AppliedSettings(Part, rename="camel", frozen=True, kw_only=True):
    """The model, effort and advisor that the session uses now, after the settings of all sources were merged. A part of `SettingsInfo`. A
    field is None when the CLI does not report it.
    """

    model: str | None = None
    effort: str | None = None
    advisor: Any = None
    ultracode: bool | None = None
    ultracode_requested: bool | None = None
    ultracode_available: bool | None = None
    ultrathink_available: bool | None = None
    outside_file_tool_reads_blocked: bool | None = None
    outside_file_tool_writes_blocked: bool | None = None
    outside_blocks_count_launch_folders_only: bool | None = None
    launch_env_left_own_files_in_place: bool | None = None


class SettingsInfo(Answer, frozen=True, kw_only=True):
    """The settings of the session: merged (`effective`), by source (`sources`, weakest first), and those in use (`applied`); returned by
    `Query.settings`.
    """

    effective: dict[str, Any] = field(default_factory=dict)
    sources: tuple[SettingsSource, ...] = ()
    applied: AppliedSettings = AppliedSettings()
    served_settings_state: str | None = None


class PluginInfo(Part, frozen=True, kw_only=True):
    """A plugin that the session loaded: its name, its directory in `path`, where it is from in `source`, and its version. In
    `ReloadedPlugins`.
    """

    name: str = ""
    path: str = ""
    source: str | None = None
    version: str | None = None


class CacheImpact(Part, frozen=True, kw_only=True):
    """The changes that a plugin reload would make if it were not held back; they would invalidate the prompt cache. In `ReloadedPlugins`.
    Published in the CLI's type declarations; never seen in a recording.
    """

    mcp_servers_added: tuple[str, ...] = ()
    mcp_servers_removed: tuple[str, ...] = ()
    lsp_tool_change: str | None = None


class ReloadedPlugins(Answer, frozen=True, kw_only=True):
    """All plugins, commands, agents and MCP servers of the session; returned by `Query.reload_plugins`. `held` is True when the reload was
    held back and nothing changed; `cache_impact` then says what would change.
    """

    commands: tuple[CommandInfo, ...] = ()
    agents: tuple[AgentInfo, ...] = ()
    plugins: tuple[PluginInfo, ...] = ()
    mcp_servers: tuple[McpServerStatus, ...] = field(name="mcpServers", default=())
    error_count: int = 0
    held: bool = False
    cache_impact: CacheImpact | None = None


class SkillListing(Answer, frozen=True, kw_only=True):
    """The answer to the control request `reload_skills`: all skills after the reload. `Query.reload_skills` returns its `skills`."""

    skills: tuple[CommandInfo, ...] = ()


class OutputStyles(Answer, frozen=True, kw_only=True):
    """The answer to the control request `reload_output_styles`: the names of all output styles after the reload, which
    `Query.reload_output_styles` returns.
    """

    available_output_styles: tuple[str, ...] = ()


class SkillsInfo(Answer, frozen=True, kw_only=True):
    """The skills that the user can manage, without the built-in ones, as objects of the CLI; returned by `Query.skills_info`."""

    skills: tuple[dict[str, Any], ...] = ()


class MemoryFile(Part, frozen=True, kw_only=True):
    """A file, such as CLAUDE.md, that the CLI reads at the start of a session if it exists. `kind`: user, project, … In `MemoryInfo`."""

    kind: str = ""
    path: str = ""
    label: str = ""
    description: str = ""
    exists: bool = False


class MemoryFolder(Part, frozen=True, kw_only=True):
    """A folder in which the CLI keeps memory files between sessions. `kind`: auto, … In `MemoryInfo`."""

    kind: str = ""
    path: str = ""
    label: str = ""
    description: str = ""


class MemoryInfo(Answer, frozen=True, kw_only=True):
    """The memory files and folders that the CLI keeps between sessions; returned by `Query.memory_info`. `auto_memory` says whether the CLI
    keeps memories by itself.
    """

    files: tuple[MemoryFile, ...] = ()
    folders: tuple[MemoryFolder, ...] = ()
    memories: tuple[Any, ...] = ()
    auto_memory: dict[str, Any] = field(default_factory=dict)
    auto_dream: dict[str, Any] | None = None


# Answers about running turns, queued messages and background tasks.


class InterruptReceipt(Answer, frozen=True, kw_only=True):
    """What an interrupt did with the queued messages: the uuids of those that it kept (`still_queued`) and dropped (`cancelled`). Returned
    by `Query.interrupt_all`.
    """

    still_queued: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


class MessageCancellation(Answer, frozen=True, kw_only=True):
    """The result of cancelling a queued message. `cancelled` is False when its turn already began, or when the uuid is unknown.
    `Query.cancel_message` returns `cancelled`.
    """

    cancelled: bool = False
    message_uuid: str | None = None


class TaskOutput(Answer, frozen=True, kw_only=True):
    """The output that a background shell has written so far; returned by `Query.task_output`. `truncated` is True when `output` is not all
    of the `total_bytes`.
    """

    output: str = ""
    total_bytes: int = 0
    truncated: bool = False
