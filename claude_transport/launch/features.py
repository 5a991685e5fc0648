"""Which CLI can do what: the supported range of versions, and the first version that has each feature.

`supports()` tells whether a feature exists, and `require()` refuses when it does not. Both look first at `capabilities`, which the CLI
lists itself, and then at the version. When neither tells, the CLI may be tried.

How the versions were found: the binary of each version in `OBSERVED` was started with each flag, and was asked each control request.
`since` is the first of those versions that has the feature, or the version in the CLI's own change log. `lacked_by` is the last version
that was seen without it. Between these two, a flag or a request is tried, because the CLI refuses what it does not know. Everything else is
silently ignored by such a CLI, so it counts as missing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from claude_transport.errors import CLIVersionMismatch, warn_caller

OLDEST_CLI: Final = "2.1.92"
"""The oldest CLI that this library talks to; an older one is refused."""

NEWEST_CLI: Final = "2.1.332"
"""The newest CLI that this library was tested with; a newer one is used, with one warning."""

OBSERVED: Final[tuple[str, ...]] = tuple(
    f"2.1.{patch}"
    for patch in (92, 113, 121, 131, 150, 169, 178, 191, 204, 211, 219, 235, 247, 251, 257, 275, 280, 294, 308, 321, 330, 331, 332)
)
"""The versions whose binaries were examined for the table."""

FeatureKind: TypeAlias = Literal["flag", "initialize", "request", "hook", "denial", "prompt", "behaviour"]
"""Where a feature appears: a command-line flag, a field of `initialize`, a control request, a hook event, the CLI's reaction to a hook's
denial, a field of a prompt, or in behaviour only.
"""


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """One row: its name on the wire, the first version that has it, and what of this library needs it.

    `name` is unique: the flag with its dashes, `initialize.<field>`, `prompt.<field>`, or a few words for a behaviour. A control request
    has its subtype (and `.<field>` for one of its fields), a hook `hook.<event>` (and `.denial` for what it denies). `lacked_by` is the
    last version seen without it. `capability` is the entry of `capabilities` that says the same.
    """

    kind: FeatureKind
    name: str
    since: str
    lacked_by: str
    use: str
    capability: str | None = None

    @property
    def is_loud(self) -> bool:
        """Whether a CLI without the feature reports that, so that it can be tried."""
        return self.kind == "flag" or (self.kind == "request" and "." not in self.name)


def _rows(kind: FeatureKind, *rows: tuple[str, int, int, str]) -> tuple[Feature, ...]:
    """Make rows of one kind: (name, first version with it, last version without it, what needs it). Versions are those of 2.1."""
    return tuple(
        Feature(kind=kind, name=name, since=f"2.1.{since}", lacked_by=f"2.1.{lacked_by}", use=use) for name, since, lacked_by, use in rows
    )


_FLAGS: Final = _rows(
    "flag",
    ("--exclude-dynamic-system-prompt-sections", 98, 92, "the option exclude_dynamic_system_prompt_sections"),
    ("--session-mirror", 113, 92, "the option session_mirror"),
    ("--thinking-display", 113, 92, "`display` in the option thinking"),
    ("--plugin-url", 129, 121, "the option plugin_urls"),
    ("--prompt-suggestions", 169, 150, "the option prompt_suggestions"),
    ("--safe-mode", 169, 150, "the option safe_mode"),
    ("--advisor", 178, 169, "the option advisor"),
    ("--forward-subagent-text", 211, 204, "the option forward_subagent_text"),
    ("--autocompact", 235, 219, "the option autocompact"),
    ("--resume-drops-turn", 235, 219, "the option resume_drops_turn"),
    ("--restricted", 248, 247, "the option restricted"),
    ("--system-prompt-snapshot", 257, 251, "the option system_prompt_snapshot"),
    ("--append-subagent-system-prompt-file", 275, 257, "the option append_subagent_system_prompt"),
    ("--await-initialize", 275, 257, "the option await_initialize, and settings or MCP servers for a CLI on another machine"),
    ("--permission-prompts", 275, 257, "the option permission_prompts"),
    ("--project-config-root", 275, 257, "the option project_config_root"),
    ("--initialize-fields", 330, 321, "the options settings and sandbox for a CLI on another machine"),
    ("--managed-settings-in-initialize", 330, 275, "the option managed_settings"),
)

_INITIALIZE: Final = _rows(
    "initialize",
    ("initialize.planModeInstructions", 121, 113, "the option plan_mode_instructions"),
    ("initialize.toolAliases", 150, 131, "the option tool_aliases"),
    ("initialize.supportedDialogKinds", 169, 150, "the option supported_dialog_kinds"),
    ("initialize.skills", 191, 92, "the option skills"),
    ("initialize.title", 191, 92, "the option title"),
    ("initialize.perTaskStopAffordance", 247, 235, "the option per_task_stop_affordance"),
    ("initialize.plugins", 275, 257, "the option plugin_delivery"),
    ("initialize.appendSubagentSystemPrompt", 275, 257, "the option append_subagent_system_prompt for a CLI on another machine"),
    ("initialize.mcpServers", 330, 275, "the option mcp_servers_delivery, and MCP servers for a CLI on another machine"),
    ("initialize.sdkMcpServerConfigs", 330, 275, "the option sdk_mcp_server_configs"),
    ("initialize.sdkMcpServerManifests", 330, 275, "the option sdk_mcp_server_manifests"),
    ("initialize.sdkMcpServerManifestsOrigin", 330, 275, "the option sdk_mcp_server_manifests_origin"),
)

_REQUESTS: Final = _rows(
    "request",
    ("get_binary_version", 121, 113, "binary_version()"),
    ("get_session_cost", 121, 113, "session_cost()"),
    ("mcp_call", 121, 113, "mcp_call()"),
    ("message_rated", 121, 113, "rate_message()"),
    ("read_file", 121, 113, "read_file()"),
    ("register_repo_root", 121, 113, "register_repo_root()"),
    ("file_suggestions", 131, 121, "file_suggestions()"),
    ("background_tasks", 150, 131, "background()"),
    ("rename_session", 150, 131, "rename_session()"),
    ("get_usage", 169, 150, "usage()"),
    ("reload_skills", 169, 150, "reload_skills()"),
    ("set_max_thinking_tokens.thinking_display", 178, 169, "`display` of set_max_thinking_tokens()"),
    ("rewind_conversation", 191, 178, "rewind_conversation()"),
    ("get_plan", 204, 191, "plan()"),
    ("get_workspace_diff", 204, 191, "workspace_diff()"),
    ("list_models", 204, 191, "list_models()"),
    ("set_cwd", 204, 191, "set_cwd()"),
    ("update_settings", 257, 251, "update_settings()"),
    ("fork_conversation", 275, 257, "fork_conversation()"),
    ("get_hooks_listing", 275, 257, "hooks_listing()"),
    ("get_memory_dialog", 275, 257, "memory_info()"),
    ("list_permission_rules", 275, 257, "permission_rules()"),
    ("reload_output_styles", 275, 257, "reload_output_styles()"),
    ("export_conversation", 280, 275, "export_conversation()"),
    ("get_status", 280, 275, "status()"),
    ("set_prompt_suggestions_paused", 280, 275, "set_prompt_suggestions_paused()"),
    ("get_task_output", 294, 280, "task_output()"),
    ("set_proactivity_level", 294, 280, "set_proactivity_level()"),
    ("set_has_subscribers", 321, 308, "set_has_subscribers()"),
    ("get_sandbox_dialog", 330, 275, "sandbox_info()"),
    ("get_skills_dialog", 330, 275, "skills_info()"),
    ("prompt_draft_activity", 330, 321, "prompt_draft_activity()"),
    ("reload_connectors", 330, 321, "reload_connectors()"),
    ("set_message_waiting", 330, 321, "set_message_waiting()"),
)

_HOOKS: Final = _rows(
    "hook",
    ("hook.PostToolBatch", 121, 113, "a hook for PostToolBatch"),
    ("hook.UserPromptExpansion", 121, 113, "a hook for UserPromptExpansion"),
    ("hook.MessageDisplay", 152, 150, "a hook for MessageDisplay"),
    ("hook.DirectoryAdded", 219, 211, "a hook for DirectoryAdded"),
    ("hook.PostModelSwitch", 251, 247, "a hook for PostModelSwitch"),
    ("hook.PreModelSwitch", 251, 247, "a hook for PreModelSwitch"),
)

_DENIALS: Final = _rows(
    "denial",
    ("hook.PostToolBatch.denial", 191, 92, "a hook that guards PostToolBatch"),
    ("hook.PreCompact.denial", 191, 92, "a hook that guards PreCompact"),
    ("hook.UserPromptExpansion.denial", 191, 92, "a hook that guards UserPromptExpansion"),
    ("hook.PreModelSwitch.denial", 257, 191, "a hook that guards PreModelSwitch"),
)

_BEHAVIOURS: Final = _rows(
    "behaviour",
    ("permission_denied messages", 257, 191, "`PermissionDenied` messages when nothing can be asked"),
    ("error codes of control requests", 330, 275, "`error_code` of `ControlRequestFailed`, and the refusal of unknown permission modes"),
    ("updatedToolOutput", 121, 113, "`HookOutput` that replaces the output of any tool; before, of MCP tools only"),
    ("questions of background agents", 191, 92, "permission questions of background agents, and `origin` of the turns that they wake"),
    ("results of background shells", 191, 92, "turns that a background shell wakes"),
    ("sizes of tool results", 191, 92, "the size over which the CLI stores the result of a tool in a file"),
    (
        "long answers are not compacted at once",
        191,
        92,
        "answers of some megabytes; 2.1.92 compacts before the next turn, by one more request",
    ),
    ("long prompts in one block", 191, 92, "prompts of some megabytes that reach the model as one text"),
    ("an empty answer is asked for again", 191, 92, "an answer without content, which a newer CLI asks for again"),
    ("nothing is written beside the directories", 191, 92, "isolated_config; 2.1.92 makes `.npm` in the home all the same"),
    ("FileChanged of a watched file", 191, 92, "a hook for FileChanged"),
    ("hooks around /clear", 191, 92, "hooks for SessionEnd and SessionStart when `/clear` is sent"),
    ("refusals by hooks are listed", 191, 92, "`permission_denials` of a result for what a hook refused"),
    ("a blocked prompt says why", 191, 92, "the message of a hook that blocks a prompt"),
    ("MCP servers are switched off for the next turn", 191, 92, "mcp_toggle() between two turns"),
    ("rules for MCP servers with odd names", 191, 92, "allowed_tools for tools of servers whose names have other characters than letters"),
    ("thinking is switched off by a limit of 0", 191, 92, "set_max_thinking_tokens(0)"),
    ("the mode auto asks a classifier", 191, 92, "permission_mode auto"),
    ("permission rules with wildcards", 191, 92, "rules such as `Bash(touch *)`; 2.1.92 asks all the same"),
    ("a schema that the model ignores ends the turn", 191, 92, "output_format when the model never answers by it"),
    ("a continued session keeps its id", 191, 92, "continue_conversation; 2.1.92 goes on under a new id"),
    ("a session is resumed by its title", 191, 92, "the option resume with a title; 2.1.92 takes an id only"),
    ("capabilities", 211, 204, "`capabilities` of `InitMessage`"),
    ("interrupted messages are marked", 275, 257, "`aborted` of `AssistantMessage`"),
    ("agents are in the background by default", 257, 191, "background agents without `run_in_background`"),
    ("is_backgrounded", 257, 191, "`is_backgrounded` of `TaskStarted`"),
    ("messages after the result", 257, 191, "`CommandLifecycle` of a prompt without a name of its own"),
    ("conversation_reset", 330, 275, "`trigger` of `ConversationReset` after `/clear`; 2.1.191 and older send no such message"),
    ("aborted_tools", 330, 275, "`terminal_reason` of a turn that was interrupted in a tool"),
    ("messages name their subagent", 330, 275, "`agent_id` of messages, by which `split_by_parent()` names its lanes"),
    ("compaction by the command /compact", 275, 257, "`/compact` in a session that is not interactive"),
    ("a hook declines what an MCP server asks", 330, 275, "`HookOutput.block` for Elicitation and ElicitationResult"),
    ("set_model within a turn", 330, 275, "set_model() for the next step of a turn that runs"),
    ("requires_user_interaction", 257, 191, "`requires_user_interaction` of a permission question"),
    ("MCP servers of this process can be switched off", 330, 275, "mcp_toggle() of a server in this process"),
    ("parallel calls of MCP tools", 257, 191, "calls of read-only MCP tools that run at the same time"),
    ("changed lists of MCP tools", 275, 257, "`tools/list_changed` of a server in this process"),
    ("terminal_reason of a limit", 257, 191, "`terminal_reason` of a result that ended by a limit"),
    ("api_error_status", 191, 92, "`api_error_status` of results, and the error of the API by its kind"),
    ("messaging_socket_path", 257, 191, "`messaging_socket_path` of `InitMessage`"),
    ("blanks are answered by the CLI itself", 257, 191, "prompts of nothing but blanks"),
    ("rules of an untrusted project are ignored", 257, 191, "safety: before, the allow rules in a project's settings hold without trust"),
    ("bypassPermissions of a subagent is ignored", 275, 191, "safety: before, such a subagent's tools run without a question"),
    ("permission modes of 2.1.330", 257, 191, "the mode `manual`, and commands in the mode `plan`"),
    ("user_message_uuids", 275, 257, "results that name the prompts they answer; without, turns are told apart by their order"),
    (
        "set_cwd changes the memory",
        308,
        280,
        "`SessionPool.acquire(cwd=…)` without a new process; an older claude would keep `CLAUDE.md` of the first directory",
    ),
    (
        "a tool call that is deferred twice does not run",
        257,
        191,
        "`PreToolUseDecision.defer()`; on an older claude, `Query` denies the call instead",
    ),
    ("retries of an answer that broke off", 330, 275, "how often a broken answer is asked for again, and what is kept of it"),
    ("answers of 2.1.330 to control requests", 330, 275, "all fields of the answers to control requests"),
    ("silent MCP tools are given up", 257, 191, "mcp_tool_idle_timeout"),
    ("the flags of 2.1.330", 330, 321, "all options at once; each flag that an older CLI lacks is in the table of flags"),
    ("models and prices of 2.1.330", 330, 275, "names, limits and prices of models; costs are what the CLI says"),
)

FEATURES: Final[tuple[Feature, ...]] = (
    *_FLAGS,
    *_INITIALIZE,
    *_REQUESTS,
    Feature(
        kind="request",
        name="mcp_read_resource",
        since="2.1.280",
        lacked_by="2.1.275",
        use="mcp_read_resource()",
        capability="mcp_read_resource_v1",
    ),
    Feature(
        kind="request",
        name="interrupt.cancel_queued",
        since="2.1.219",
        lacked_by="2.1.211",
        use="interrupt_all()",
        capability="interrupt_cancel_queued_v1",
    ),
    *_HOOKS,
    *_DENIALS,
    Feature(
        kind="prompt",
        name="prompt.client_composed",
        since="2.1.248",
        lacked_by="2.1.247",
        use="a prompt with a command or an @path, and the option verbatim_prompts,",
    ),
    *_BEHAVIOURS,
)
"""All features that some supported CLI lacks, by kind and then by version."""


_BY_NAME: Final = {feature.name: feature for feature in FEATURES}
LIMITED_REQUESTS: Final = frozenset(feature.name.partition(".")[0] for feature in FEATURES)
"""Every name in the table, without the field: a control request that is not among them is known to every supported CLI, with all fields."""
_VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?![\d.])")
_warned: Final[dict[str, set[str]]] = {}  # by program
_warned_lock: Final = threading.Lock()


def parse_version(text: str | None) -> tuple[int, int, int] | None:
    """Read `"2.1.330"` or `"2.1.330-beta.1"` as three numbers; None for anything else, and for `0.0.0`, which is no release."""
    match = _VERSION.match(text or "")
    numbers = None if match is None else (int(match[1]), int(match[2]), int(match[3]))
    return numbers if numbers != (0, 0, 0) else None


def find_feature(name: str) -> Feature | None:
    """Find the row of this name; None for a feature that every supported CLI has, or that the table does not know."""
    return _BY_NAME.get(name)


def supports(name: str, *, version: str | None, capabilities: Collection[str] = ()) -> bool | None:
    """Tell whether a CLI has the feature `name`: None when neither its capabilities nor its version tell, and the CLI may be tried.

    A name without a row in `FEATURES` is a feature of every supported CLI.
    """
    feature = find_feature(name)
    if feature is None or (feature.capability is not None and feature.capability in capabilities):
        return True
    numbers = parse_version(version)
    if numbers is None:
        return None
    if feature.is_loud and _numbers(feature.lacked_by) < numbers < _numbers(feature.since):
        return None
    return numbers >= _numbers(feature.since)


def first_lacking(names: Iterable[str], *, version: str | None, capabilities: Collection[str] = ()) -> Feature | None:
    """Find the first of these features that the CLI is known to lack."""
    for name in names:
        if supports(name, version=version, capabilities=capabilities) is False:
            return find_feature(name)
    return None


def require(*names: str, version: str | None, capabilities: Collection[str] = ()) -> None:
    """Refuse when the CLI is known to lack one of these features.

    Raises:
        CLIVersionMismatch: it lacks `flag`; `version` is the CLI's.
    """
    feature = first_lacking(names, version=version, capabilities=capabilities)
    if feature is not None:
        raise CLIVersionMismatch(
            f"this claude ({version}) does not know {feature.name}, which {feature.use} needs: "
            f"update claude to {feature.since} or newer, or do without",
            flag=feature.name,
            version=version,
        )


class SupportedRange(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of `program` that this library talks to, from `oldest` to `newest`. `update` says how to get a newer one."""

    program: str
    oldest: str
    newest: str
    update: str

    def note(self, version: str | None) -> str | None:
        """Say how a version lies outside the range; None for one inside it, and for one that is not known."""
        numbers = parse_version(version)
        if numbers is None:
            return None
        if numbers < _numbers(self.oldest):
            return f"older than {self.oldest}, the oldest {self.program} that this library talks to: {self.update}"
        if numbers > _numbers(self.newest):
            return f"newer than {self.newest}, the newest {self.program} that this library was tested with"
        return None

    def check(self, version: str | None) -> None:
        """Refuse a version that is too old, and give one `ClaudeTransportWarning` of each that is newer than all that were tested.

        Raises:
            CLIVersionMismatch: it is older than `oldest`; `version` of the error is the program's, `flag` is None.
        """
        note = self.note(version)
        if note is None or version is None:
            return
        if _numbers(version) < _numbers(self.oldest):
            raise CLIVersionMismatch(f"this {self.program} is {version}, {note}", version=version)
        with _warned_lock:
            known = _warned.setdefault(self.program, set())
            if version in known or len(known) >= _MAX_WARNED:
                return
        warn_caller(f"this {self.program} is {version}, {note}; it may say or do things that this library does not know")
        with _warned_lock:  # not before: where the warning is an error, each session gets it
            known.add(version)


CLAUDE_RANGE: Final = SupportedRange(program="claude", oldest=OLDEST_CLI, newest=NEWEST_CLI, update="run `claude update`")
range_note: Final = CLAUDE_RANGE.note
check_range: Final = CLAUDE_RANGE.check

_MAX_WARNED: Final = 100  # versions; bounded, because a peer could report another one each time


def _numbers(version: str) -> tuple[int, int, int]:
    numbers = parse_version(version)
    assert numbers is not None  # noqa: S101 - of this module's own constants, and of what was parsed before
    return numbers
