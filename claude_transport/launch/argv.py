"""Builds the command line of the CLI from `FLAGS`, a table with one row for each flag.

Every value is joined to its flag: `--flag=value`. Observed on CLI 2.1.329: every flag with a value accepts this form, also flags that take
several values. The value is then never read as a flag, even when it starts with `-` (`--name=--version` names the session). A flag that
takes several values does not swallow the arguments after it.

The flags in `FIXED_ARGUMENTS` are required by a stream-json session. Values that are large or may be secret are passed
in files: see `payloads`. `launch` combines command line, environment and files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from os import PathLike
from typing import Any, Final, Literal

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch import windows
from claude_transport.launch.discovery import CLI
from claude_transport.launch.environ import bare_can_authenticate, build_environment
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import INLINE_SCHEMA_LIMIT, path_argument, path_arguments, schema_text
from claude_transport.launch.rules import check_rules, check_tools, skill_rules
from claude_transport.launch.settings import is_inline_json, load_settings

BARE_DROPPED: Final = (
    "--bare was dropped: it ignores the login and the OAuth token, and the child has no other credential, such as an API key"
)
"""The note on an option that cannot be used."""

FIXED_ARGUMENTS: Final = ("--output-format", "stream-json", "--verbose", "--input-format", "stream-json")

RESERVED_FLAGS: Final[Mapping[str, str]] = {
    "input-format": "it is always stream-json",
    "output-format": "it is always stream-json",
    "verbose": "it is always set, because stream-json output requires it",
    "print": "a stream-json session on pipes needs no -p, and the CLI ignores the prompt argument of -p",
    "sdk-url": "it is reserved for the Remote Control workers of Anthropic, and the CLI accepts only addresses of Anthropic in it",
    "help": "the CLI prints a text and exits",
    "version": "the CLI prints a text and exits",
    "init-only": "the CLI exits without a conversation",
}
"""Flags that `extra_args` must not contain, with the reason that the error message shows."""

Form = Literal["value", "repeat", "switch"]
Convert = Callable[[Any], Sequence[str]]
"""Makes the values of a flag from the value of its option. A switch is given once for each item; the item itself does not matter."""


class Flag(msgspec.Struct, frozen=True):
    """One row: an option, the flag that it becomes, and a description for the reference page.

    `form` is `value` (once, `--flag=value`), `repeat` (`--flag=value` for each item) or `switch` (`--flag`). An option that is None, False
    or empty adds no flag, unless `false_counts` or `empty_counts` is set. `claude --help` does not show `hidden` flags.
    """

    option: str
    flag: str
    form: Form
    doc: str
    convert: Convert
    false_counts: bool = False
    empty_counts: bool = False
    hidden: bool = False
    note: str = ""


def _one(value: Any) -> Sequence[str]:
    return (str(value),)


def _each(value: Any) -> Sequence[str]:
    return tuple(os.fspath(item) for item in value)


def _allow_rules(value: Any) -> Sequence[str]:
    check_rules("allowed_tools", value)
    return tuple(value)


def _deny_rules(value: Any) -> Sequence[str]:
    check_rules("disallowed_tools", value)
    return tuple(value)


def _switch(value: Any) -> Sequence[str]:
    return ("",) if value is True else ()


def _off(value: Any) -> Sequence[str]:
    return ("",) if value is False else ()


def _on_off(value: Any) -> Sequence[str]:
    return ("on" if value else "off",)


def _commas(value: Any) -> Sequence[str]:
    return (value if isinstance(value, str) else ",".join(value),)


def _number(value: Any) -> Sequence[str]:
    # repr() is exact; Decimal then writes it without an exponent. format(value, "f") alone would round a small budget to 0.
    return (format(Decimal(repr(value)).normalize(), "f") if isinstance(value, float) else str(value),)


def _tools(value: Any) -> Sequence[str]:
    if isinstance(value, Mapping):
        return ("default",)
    check_tools("tools", value)
    return tuple(value) or ("",)


def _plugin_paths(value: Any) -> Sequence[str]:
    return tuple(os.fspath(plugin["path"]) for plugin in value)


def _debug_filter(value: Any) -> Sequence[str]:
    return (value,) if isinstance(value, str) and value else ()


def _thinking_mode(value: Any) -> Sequence[str]:
    return () if value["type"] == "enabled" else (value["type"],)


def _thinking_budget(value: Any) -> Sequence[str]:
    return (str(value["budget_tokens"]),) if value["type"] == "enabled" and "budget_tokens" in value else ()


def _thinking_display(value: Any) -> Sequence[str]:
    return (value["display"],) if "display" in value else ()


def _schema(value: Any) -> Sequence[str]:
    return (schema_text(value),)


def _extra(value: Any) -> Sequence[str]:
    return tuple(f"--{name}" if text is None else f"--{name}={text}" for name, text in value.items())


FLAGS: Final[tuple[Flag, ...]] = (
    Flag("model", "--model", "value", "Model alias or full name. The CLI reports an unknown name only in the first turn.", _one),
    Flag("fallback_model", "--fallback-model", "value", "Models to use when the main model is busy, in order.", _commas),
    Flag("betas", "--betas", "repeat", "Beta headers (API key only); the CLI warns about those it does not allow.", _each),
    Flag(
        "effort",
        "--effort",
        "value",
        "How much effort the model spends.",
        _one,
        note="The CLI only warns about an unknown level.",
    ),
    Flag("thinking", "--thinking", "value", "`adaptive` or `disabled`.", _thinking_mode, hidden=True),
    Flag("thinking", "--max-thinking-tokens", "value", "`enabled` with `budget_tokens`.", _thinking_budget, hidden=True),
    Flag("thinking", "--thinking-display", "value", "`summarized`, `omitted` or `highlights`.", _thinking_display, hidden=True),
    Flag("max_thinking_tokens", "--max-thinking-tokens", "value", "Thinking budget in tokens; 0 turns thinking off.", _one, hidden=True),
    Flag("advisor", "--advisor", "value", "Turn on the advisor tool with this model.", _one, hidden=True),
    Flag("autocompact", "--autocompact", "value", "`auto`, or the auto-compact window in tokens (at least 100 000).", _one),
    Flag(
        "exclude_dynamic_system_prompt_sections",
        "--exclude-dynamic-system-prompt-sections",
        "switch",
        "Move text about this machine from the system prompt to the first user message, for a shared prompt cache.",
        _switch,
    ),
    Flag(
        "system_prompt_snapshot",
        "--system-prompt-snapshot",
        "value",
        "Whether a conversation keeps its first system prompt.",
        _on_off,
        false_counts=True,
    ),
    Flag(
        "output_format",
        "--json-schema",
        "value",
        "JSON schema of the structured output.",
        _schema,
        note=f"Over {INLINE_SCHEMA_LIMIT} characters it is sent as `initialize.jsonSchema`; there the CLI ignores an invalid schema.",
    ),
    Flag(
        "tools",
        "--tools",
        "repeat",
        "The built-in tools to offer; empty for none, the preset for the default set.",
        _tools,
        empty_counts=True,
    ),
    Flag("allowed_tools", "--allowedTools", "repeat", "Permission rules that allow without asking.", _allow_rules),
    Flag(
        "disallowed_tools",
        "--disallowedTools",
        "repeat",
        "Rules that deny; a tool name without a pattern removes the tool.",
        _deny_rules,
    ),
    Flag(
        "permission_mode",
        "--permission-mode",
        "value",
        "How tool use is approved.",
        _one,
        note="The CLI refuses bypassPermissions when it runs as root.",
    ),
    Flag(
        "permission_prompt_tool_name",
        "--permission-prompt-tool",
        "value",
        "What answers permission prompts: `stdio` for the host (can_use_tool requests), or an MCP tool.",
        _one,
        hidden=True,
        note="None: what would prompt is denied `[04h]`. `stdio`: the host must answer each prompt; the CLI waits without limit `[04l]`.",
    ),
    Flag("permission_prompts", "--permission-prompts", "value", "`host`, or `none`: the CLI denies what would prompt.", _one),
    Flag(
        "dangerously_skip_permissions",
        "--dangerously-skip-permissions",
        "switch",
        "Ask no permission questions. The CLI refuses it as root.",
        _switch,
    ),
    Flag(
        "allow_dangerously_skip_permissions",
        "--allow-dangerously-skip-permissions",
        "switch",
        "Let the session switch to bypassPermissions later. The CLI refuses it as root.",
        _switch,
    ),
    Flag(
        "restricted", "--restricted", "switch", "No tools that run code, no settings files, file tools confined to the workspace.", _switch
    ),
    Flag(
        "strict_mcp_config",
        "--strict-mcp-config",
        "switch",
        "Use only the MCP servers given here. None: on when `mcp_servers` has any.",
        _switch,
    ),
    Flag("agent", "--agent", "value", "The agent of the main conversation.", _one, note="The CLI ignores an unknown name."),
    Flag("plugins", "--plugin-dir", "repeat", 'Local plugins, `{"type": "local", "path": ...}`.', _plugin_paths),
    Flag("plugin_urls", "--plugin-url", "repeat", "Plugins to fetch as .zip, for this session.", _each),
    Flag("disable_slash_commands", "--disable-slash-commands", "switch", "Turn skills and slash commands off.", _switch),
    Flag("chrome", "--chrome", "switch", "True turns Claude in Chrome on.", _switch),
    Flag("chrome", "--no-chrome", "switch", "False turns it off.", _off, false_counts=True),
    Flag("continue_conversation", "--continue", "switch", "Continue the newest conversation of this directory.", _switch),
    Flag("resume", "--resume", "value", "Continue the session with this id or title.", _one),
    Flag(
        "session_id",
        "--session-id",
        "value",
        "The id (a UUID) of the new session.",
        _one,
        note="The CLI refuses the id of an existing session `[16e]`.",
    ),
    Flag("fork_session", "--fork-session", "switch", "Resume into a new session id.", _switch),
    Flag("resume_session_at", "--resume-session-at", "value", "Resume only up to this transcript entry.", _one, hidden=True),
    Flag("resume_drops_turn", "--resume-drops-turn", "value", "The prompt whose turn `resume_session_at` may discard.", _one, hidden=True),
    Flag("no_session_persistence", "--no-session-persistence", "switch", "Write no transcript, so the session cannot be resumed.", _switch),
    Flag("session_mirror", "--session-mirror", "switch", "Also send the transcript, as `transcript_mirror` frames.", _switch, hidden=True),
    Flag("name", "--name", "value", "Display name of the session.", _one),
    Flag(
        "max_turns",
        "--max-turns",
        "value",
        "Stop after this many turns (at least 1).",
        _one,
        hidden=True,
        note="The CLI takes 0 as no limit.",
    ),
    Flag("max_budget_usd", "--max-budget-usd", "value", "Stop when this much has been spent, in US dollars.", _number),
    Flag(
        "task_budget",
        "--task-budget",
        "value",
        '`{"total": tokens}`: the token budget that the model is told about.',
        lambda b: _one(b["total"]),
        hidden=True,
    ),
    Flag("include_partial_messages", "--include-partial-messages", "switch", "Send `stream_event` frames while the model writes.", _switch),
    Flag("include_hook_events", "--include-hook-events", "switch", "Send frames about hooks that settings files define.", _switch),
    Flag("forward_subagent_text", "--forward-subagent-text", "switch", "Send text and thinking of subagents as messages.", _switch),
    Flag("replay_user_messages", "--replay-user-messages", "switch", "Repeat every user message as output when its turn begins.", _switch),
    Flag("prompt_suggestions", "--prompt-suggestions", "value", "Suggest the next prompt after a turn.", lambda _: ("true",)),
    Flag("auth_status_events", "--enable-auth-status", "switch", "Send `auth_status` frames.", _switch, hidden=True),
    Flag(
        "await_initialize",
        "--await-initialize",
        "switch",
        "Wait for `initialize`, and apply its plugins and mcpServers. Any other first line ends the CLI `[19x]`.",
        _switch,
        hidden=True,
    ),
    Flag("debug", "--debug", "switch", "Write a debug log to a file.", _switch),
    Flag("debug", "--debug", "value", "Write a debug log of these categories (`api,hooks`, `!mcp`) to a file.", _debug_filter),
    Flag("debug_file", "--debug-file", "value", "Where the debug log is written.", lambda p: (os.fspath(p),)),
    Flag("debug_to_stderr", "--debug-to-stderr", "switch", "Write the debug log to stderr.", _switch, hidden=True),
    Flag(
        "add_dirs",
        "--add-dir",
        "repeat",
        "More directories that tools may use.",
        _each,
        note="The CLI accepts a directory that does not exist.",
    ),
    Flag(
        "setting_sources",
        "--setting-sources",
        "value",
        "Which settings files to read; empty for none, None for all.",
        _commas,
        empty_counts=True,
    ),
    Flag("files", "--file", "repeat", "Files to download at start-up, `file_id:path`.", _each, note="Needs a session access token."),
    Flag(
        "project_config_root", "--project-config-root", "value", "Read project settings from here.", lambda p: (os.fspath(p),), hidden=True
    ),
    Flag(
        "bare",
        "--bare",
        "switch",
        "Minimal start: no hooks, plugins, memory, keychain or CLAUDE.md.",
        _switch,
        note="Dropped, with a note, when the child has no credential that `--bare` uses: it ignores the login and the OAuth token.",
    ),
    Flag("safe_mode", "--safe-mode", "switch", "Turn off all customisation, to find out what causes a problem.", _switch),
    Flag("workload", "--workload", "value", "Tag that attributes the costs of scheduled work.", _one, hidden=True),
    Flag("extra_args", "", "value", "Other flags: the name without dashes, and its value; None for a switch.", _extra),
)


def effective_values(
    options: ClaudeOptions, *, environment: Mapping[str, str] | None = None, permission_prompt: str | None = None, remote: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the value of each option for `flag_arguments`, by option name, and notes for the user about what was dropped.

    The values are those of `options`, changed by the rules that combine several options:

    * `bare` is dropped when the child would have no credential that works with `--bare`.
    * `strict_mcp_config=None` becomes True when MCP servers are configured.
    * `skills` adds the rules that allow them to `allowed_tools`.
    * The preset form of `system_prompt` sets two other options.
    * A long JSON schema is left out: `initialize` carries it. So are `plugins` when `plugin_delivery="initialize"`.
    * `permission_prompt_tool_name=None` becomes `permission_prompt`, which the transport chooses.

    `environment` is the child's. With `remote`, paths are paths of another machine, so a settings file is not read.
    """
    values = {name: getattr(options, name) for name in options.__struct_fields__}
    notes: list[str] = []
    if options.bare:
        env = build_environment(options, os.environ) if environment is None else environment
        # a settings file on another machine may name a key helper
        unreadable = remote and isinstance(options.settings, (str, os.PathLike)) and not is_inline_json(os.fspath(options.settings))
        if not unreadable and not bare_can_authenticate(env, load_settings(options)):
            values["bare"] = False
            notes.append(BARE_DROPPED)
    if options.strict_mcp_config is None:
        values["strict_mcp_config"] = bool(options.mcp_servers)
    if options.skills is not None:
        rules = [rule for rule in skill_rules(options.skills) if rule not in options.allowed_tools]
        values["allowed_tools"] = [*options.allowed_tools, *rules]
    if isinstance(options.system_prompt, Mapping):
        if options.system_prompt.get("exclude_dynamic_sections"):
            values["exclude_dynamic_system_prompt_sections"] = True
        if options.system_prompt.get("snapshot") is not None:
            values["system_prompt_snapshot"] = options.system_prompt["snapshot"]
    if options.output_format is not None and len(_schema(options.output_format)[0]) > INLINE_SCHEMA_LIMIT:
        values["output_format"] = None
    if options.plugin_delivery == "initialize":
        values["plugins"] = ()
    if options.permission_prompt_tool_name is None and permission_prompt is not None:
        values["permission_prompt_tool_name"] = permission_prompt
    return values, tuple(notes)


def flag_arguments(values: Mapping[str, Any]) -> list[str]:
    """Return the command line arguments for `values` (from `effective_values`), in the order of `FLAGS`."""
    arguments: list[str] = []
    for row in FLAGS:
        value = values[row.option]
        if value is None or (row.form == "switch" and not isinstance(value, bool)):
            continue
        if value is False and not row.false_counts:
            continue
        if isinstance(value, (tuple, list, Mapping)) and not value and not row.empty_counts:
            continue
        converted = row.convert(value)
        if row.option == "extra_args":
            arguments += converted
        elif row.form == "switch":
            arguments += [row.flag] * len(converted)
        else:
            arguments += [f"{row.flag}={item}" for item in converted]
    return arguments


def build_argv(
    options: ClaudeOptions,
    cli: CLI | str | PathLike[str],
    *,
    permission_prompt: str | None = None,
    environment: Mapping[str, str] | None = None,
    files: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """Return the command line that starts the CLI with `options`, program first. It is shorter than 8,000 characters.

    Prompts, settings, MCP servers and agents are not on it: they travel in payload files or in the `initialize` request. `build_launch`
    decides which, and checks the options; this function does not.

    Args:
        options: the options of the CLI.
        cli: the binary.
        permission_prompt: `"stdio"` makes the host answer permission prompts, unless the option `permission_prompt_tool_name` is set.
        environment: the environment of the CLI process; by default made of that of this process. The option `bare` has no effect when
            neither it nor the settings have a credential that works with `--bare`.
        files: `(flag, path)` for each payload file that was written.

    Raises:
        ConfigurationError: the command line is too long (the error names the longest option), or an option cannot be written.
    """
    program = cli.path if isinstance(cli, CLI) else os.fspath(cli)
    values, _ = effective_values(options, environment=environment, permission_prompt=permission_prompt)
    argv = [program, *FIXED_ARGUMENTS, *flag_arguments(values), *path_arguments(options)]
    argv += [f"{flag}={path_argument(path)}" for flag, path in files]
    check_length(argv)
    return argv


def check_length(argv: Sequence[str], *, reserved: int = 0) -> None:
    """Raise `ConfigurationError` when `argv` has 8,000 characters or more, with `reserved` added. The message names the longest flag."""
    length = windows.command_line_length(argv) + reserved
    if length < windows.COMMAND_LINE_BUDGET:
        return
    lengths: dict[str, int] = {}
    for argument in argv[1:]:
        flag = argument.partition("=")[0]
        lengths[flag] = lengths.get(flag, 0) + len(argument)
    longest = max(lengths, key=lengths.__getitem__)
    option = next((row.option for row in FLAGS if row.flag == longest), "extra_args")
    raise ConfigurationError(
        f"the command line has {length} characters, and must have fewer than {windows.COMMAND_LINE_BUDGET}; {longest} (option {option}) "
        "is the longest part: shorten it, or put it into a settings file",
        option=option,
    )
