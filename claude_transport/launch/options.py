"""Every option that becomes arguments, environment or the `initialize` request, in one frozen Struct without callbacks.

Names and shapes are those of the official `ClaudeAgentOptions` where it has the same option. These differ on purpose:

* `system_prompt=None` leaves the CLI its own system prompt (the official SDK sends an empty one); `system_prompt=""` sends an empty one.
* `strict_mcp_config` has three states. None means "strict when MCP servers are configured".
* `skills` does not change `setting_sources`. When that is None, the CLI loads every source and finds skills by itself.
* In-process MCP servers, hooks and permission callbacks are live objects. They are arguments of `Query`, not options.

What each option becomes is in the tables of `argv`, `payloads` and `environ`, and in `HOST_ONLY` below. A test checks that every field is
in exactly one of them, and the reference page is generated from them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import compress
from os import PathLike
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from claude_transport.launch.session_store import SessionStore

PermissionMode: TypeAlias = Literal["default", "acceptEdits", "auto", "bypassPermissions", "dontAsk", "manual", "plan"]
"""Permission modes that `--permission-mode` takes."""
Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
"""How much effort the model spends."""
SettingSource: TypeAlias = Literal["user", "project", "local"]
"""Sources of settings files that the CLI reads."""
BillingPolicy: TypeAlias = Literal["inherit", "subscription", "subscription_strict", "api_key"]
"""Which account may pay: see `ClaudeOptions.billing`."""
InlineDelivery: TypeAlias = Literal["argv", "initialize"]
"""Where the CLI reads plugins or MCP servers from: its command line, or the `initialize` request."""
EnvironmentMode: TypeAlias = Literal["inherit", "allowlist", "exact"]
"""Which variables of this process the CLI inherits, below `env`: all, harmless ones, or none."""

StrPath: TypeAlias = str | PathLike[str]

HOST_ONLY: Final[Mapping[str, str]] = {
    "cli_path": "Which program to run; None lets `find_cli` look for it.",
    "cwd": "The working directory of the child (its workspace root); `PWD` in its environment follows. Checked when it is spawned.",
    "mcp_servers_delivery": "`argv` names a private file with `mcp_servers` on the command line; `initialize` sends them in that request. "
    "Processes that the session starts are not handed them then.",
    "plugin_delivery": "`argv` writes a flag for each of `plugins`; `initialize` sends them in that request (CLI 2.1.261 or newer).",
    "session_store": "Where the transcript is copied to, and where `resume` and `continue_conversation` find it: an object with the "
    "methods of `SessionStore`. It stays in this process, and is compared by identity. The CLI gets `--session-mirror`.",
    "user": "The operating-system user to run as (POSIX; needs the privilege to switch).",
    "verbatim_prompts": "Mark every user message `client_composed`: no `@path` expansion, no slash commands. Applied by the sender.",
}
"""Options that never reach the command line, the environment or `initialize`, and what uses them."""

# May hold secrets or whole documents: shown by name or size only.
REDACTED: Final = frozenset(
    {
        "agents",
        "append_subagent_system_prompt",
        "append_system_prompt",
        "env",
        "extra_args",
        "managed_settings",
        "mcp_servers",
        "plan_mode_instructions",
        "sandbox",
        "sdk_mcp_server_configs",
        "sdk_mcp_server_manifests",
        "session_store",
        "settings",
        "system_prompt",
    }
)


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of the options of every agent, which tells the agent: `agent_name` is what `find_agent()` looks for.

    A subclass has at least `cwd`, the working directory or None, and `env`, a mapping of variables for the process.
    """

    agent_name: ClassVar[str]


class ClaudeOptions(AgentOptions, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Says how to start and set up the CLI: model, prompts, tools, permissions, servers, session, limits and environment.

    Every option has a default. Times are seconds, budgets US dollars; sequences may be lists or tuples. The object cannot be changed;
    `replace(**changes)` makes a changed copy. A value that the CLI would refuse raises `ConfigurationError` when a
    `SubprocessTransport` is made. What depends on files, variables or the user is checked at its `connect()`, before any process runs.
    """

    agent_name: ClassVar[str] = "claude-code"

    # The model.
    model: str | None = None
    fallback_model: str | Sequence[str] | None = None
    betas: Sequence[str] = ()
    effort: Effort | None = None
    thinking: Mapping[str, Any] | None = None
    max_thinking_tokens: int | None = None
    max_output_tokens: int | None = None
    advisor: str | None = None
    autocompact: str | int | None = None

    # The prompt.
    system_prompt: str | Mapping[str, Any] | None = None
    append_system_prompt: str | None = None
    append_subagent_system_prompt: str | None = None
    exclude_dynamic_system_prompt_sections: bool = False
    system_prompt_snapshot: bool | None = None
    plan_mode_instructions: str | None = None
    output_format: Mapping[str, Any] | None = None

    # Tools and permissions.
    tools: Sequence[str] | Mapping[str, Any] | None = None
    allowed_tools: Sequence[str] = ()
    disallowed_tools: Sequence[str] = ()
    permission_mode: PermissionMode | None = None
    permission_prompt_tool_name: str | None = None
    permission_prompts: Literal["host", "none"] | None = None
    dangerously_skip_permissions: bool = False
    allow_dangerously_skip_permissions: bool = False
    tool_aliases: Mapping[str, str] | None = None
    tool_config: Mapping[str, Any] | None = None
    sandbox: Mapping[str, Any] | None = None
    restricted: bool = False

    # Servers, agents, plugins, skills.
    mcp_servers: Mapping[str, Mapping[str, Any]] | StrPath = msgspec.field(default_factory=dict)
    mcp_servers_delivery: InlineDelivery = "argv"
    strict_mcp_config: bool | None = None
    sdk_mcp_server_configs: Mapping[str, Mapping[str, Any]] | None = None
    sdk_mcp_server_manifests: Mapping[str, Mapping[str, Any]] | None = None
    sdk_mcp_server_manifests_origin: Literal["host_per_send"] | None = None
    mcp_timeout: float | None = None
    mcp_tool_timeout: float | None = None
    mcp_tool_idle_timeout: float | None = None
    agent: str | None = None
    agents: Mapping[str, Any] | None = None
    agent_progress_summaries: bool = False
    skills: Sequence[str] | Literal["all"] | None = None
    plugins: Sequence[Mapping[str, Any]] = ()
    plugin_delivery: InlineDelivery = "argv"
    plugin_urls: Sequence[str] = ()
    disable_slash_commands: bool = False
    supported_dialog_kinds: Sequence[str] = ()
    per_task_stop_affordance: bool = False
    chrome: bool | None = None

    # The session.
    continue_conversation: bool = False
    resume: str | None = None
    session_id: str | None = None
    fork_session: bool = False
    resume_session_at: str | None = None
    resume_drops_turn: str | None = None
    no_session_persistence: bool = False
    session_mirror: bool = False
    session_store: SessionStore | None = None
    name: str | None = None
    title: str | None = None
    enable_file_checkpointing: bool = False

    # Limits.
    max_turns: int | None = None
    max_budget_usd: float | None = None
    task_budget: Mapping[str, int] | None = None
    max_retries: int | None = None
    background_wait_ceiling: float | None = None
    disable_background_tasks: bool = False

    # What the CLI writes on stdout.
    include_partial_messages: bool = False
    include_hook_events: bool = False
    forward_subagent_text: bool = False
    replay_user_messages: bool = False
    prompt_suggestions: bool = False
    auth_status_events: bool = False
    session_state_events: bool = True
    await_initialize: bool = False
    debug: bool | str = False
    debug_file: StrPath | None = None
    debug_to_stderr: bool = False

    # Files and settings.
    cwd: StrPath | None = None
    add_dirs: Sequence[StrPath] = ()
    settings: str | PathLike[str] | Mapping[str, Any] | None = None
    setting_sources: Sequence[SettingSource] | None = None
    managed_settings: Mapping[str, Any] | None = None
    files: Sequence[str] = ()
    project_config_root: StrPath | None = None
    bare: bool = False
    safe_mode: bool = False

    # The program and its environment.
    cli_path: StrPath | None = None
    extra_args: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    env_mode: EnvironmentMode = "inherit"
    env_allow: Sequence[str] = ()
    billing: BillingPolicy = "inherit"
    config_dir: StrPath | None = None
    isolated_config: bool = False
    pin_cli: bool = False
    client_app: str | None = None
    entrypoint: str | None = None
    workload: str | None = None
    user: str | None = None
    verbatim_prompts: bool = False

    def __eq__(self, other: object) -> bool:
        """Compare the options by their values, but `session_store` by identity."""
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = (operator.attrgetter(*type(self).__struct_fields__)(each) for each in (self, other))
        at = type(self).__struct_fields__.index("session_store")
        return mine[at] is theirs[at] and mine[:at] == theirs[:at] and mine[at + 1 :] == theirs[at + 1 :]

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # the mappings in it have none either

    def replace(self, **changes: Any) -> ClaudeOptions:
        """Return a copy of these options in which `changes` replace the values of the named options. These options stay as they are.

        Raises `TypeError` for a name that is not an option. The new values are checked later, as those of `ClaudeOptions` are.
        """
        return msgspec.structs.replace(self, **changes)

    def __repr__(self) -> str:
        """Show the options that differ from their defaults. Values that may hold a secret are shown by their keys or their size."""
        shown = []
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if not is_given(field, value):
                continue
            if field.name in REDACTED:
                shown.append(f"{field.name}={_outline(value)}")
            else:
                shown.append(f"{field.name}={value!r}")
        return f"ClaudeOptions({', '.join(shown)})"


def _outline(value: Any) -> str:
    """Return what may be shown of a value that may hold secrets."""
    if isinstance(value, Mapping):
        return str(sorted(map(str, value)))
    return f"<{len(value)} characters>" if isinstance(value, str) else "..."


@functools.cache
def fields_of(cls: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a Struct, cached: msgspec evaluates the annotations at each call, which took most of the time of a connect."""
    return msgspec.structs.fields(cls)


def given_values(options: ClaudeOptions) -> dict[str, Any]:
    """Return the options that are not at their defaults, as values by name. Options at their defaults need no check."""
    names, defaults, values_of = _defaults_of(type(options))
    values = values_of(options)
    return {
        name: value
        for name, default, value in compress(zip(names, defaults, values, strict=True), map(operator.is_not, values, defaults))
        # the default of a `default_factory` is another object in each Struct, and always empty
        if type(value) is not dict or type(default) is not dict or value
    }


@functools.cache
def _defaults_of(cls: type[msgspec.Struct]) -> tuple[tuple[str, ...], tuple[Any, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the names of all fields, their defaults, and the function that reads all their values at once."""
    fields = fields_of(cls)
    names = tuple(field.name for field in fields)
    return names, tuple(default_of(field) for field in fields), operator.attrgetter(*names)


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """Return the default value of a Struct field, also of a `default_factory`."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def is_given(field: msgspec.structs.FieldInfo, value: Any, *, unless: Container[object] = ()) -> bool:
    """Return whether an option is neither at its default nor one of `unless`. A session store is compared by identity, not by value."""
    return value is not None if field.name == "session_store" else value != default_of(field) and value not in unless
