"""What some options say about permissions, gathered from the six places where it can be said: one row for each statement.

Nothing is judged here. Who answers permission prompts wants to know what will never be put to it, and asks through the transport, which
hands these rows on (`SessionTerms.permissions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import agent_definitions
from claude_transport.launch.settings import load_settings

Row = tuple[str, str, str]


def permission_settings(options: ClaudeOptions) -> list[Row]:
    """Rows of (what, value, option that says so), of these kinds:

    * `mode`: the permission mode the session starts in, at most one row. `dangerously_skip_permissions` wins over `permission_mode`, and
      that over `permissions.defaultMode` of the settings (observed on CLI 2.1.329);
    * `allow`, `ask`: one row for each rule, `"Bash(git *)"`;
    * `prompt_tool`, `prompts`: who is asked, when that is said;
    * `agent_mode`: the mode of a subagent, whose name is in the option;
    * `sandbox`: `"allows"` when commands in the sandbox need no permission.

    Reads the settings file, when `settings` names one; the user's own and those of the project are the CLI's business. Raises
    `ConfigurationError` when it cannot be read.
    """
    settings = load_settings(options)
    given = settings.get("permissions")
    permissions: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    return [
        *_mode(options, permissions),
        *(("allow", str(rule), "allowed_tools") for rule in options.allowed_tools),
        *_extra(options, "allow", "allowedTools", "allowed-tools"),
        *(("allow", rule, "settings") for rule in _rules(permissions, "allow")),
        *(("ask", rule, "settings") for rule in _rules(permissions, "ask")),
        *_prompting(options),
        *_agent_modes(options),
        *_sandbox(options, settings),
    ]


def _mode(options: ClaudeOptions, permissions: Mapping[str, Any]) -> Iterator[Row]:
    default = permissions.get("defaultMode")
    if options.dangerously_skip_permissions:
        yield "mode", "bypassPermissions", "dangerously_skip_permissions"
    elif "dangerously-skip-permissions" in options.extra_args:
        yield "mode", "bypassPermissions", "extra_args"
    elif options.permission_mode is not None:
        yield "mode", options.permission_mode, "permission_mode"
    elif "permission-mode" in options.extra_args:
        yield from _extra(options, "mode", "permission-mode")
    elif isinstance(default, str):
        yield "mode", default, "settings"


def _prompting(options: ClaudeOptions) -> Iterator[Row]:
    if options.permission_prompt_tool_name is not None:
        yield "prompt_tool", options.permission_prompt_tool_name, "permission_prompt_tool_name"
    if options.permission_prompts is not None:
        yield "prompts", options.permission_prompts, "permission_prompts"
    yield from _extra(options, "prompt_tool", "permission-prompt-tool")
    yield from _extra(options, "prompts", "permission-prompts")


def _agent_modes(options: ClaudeOptions) -> Iterator[Row]:
    for name, definition in agent_definitions(options.agents or {}).items():
        mode = definition.get("permissionMode") if isinstance(definition, Mapping) else None
        if isinstance(mode, str):
            yield "agent_mode", mode, f"agents[{name!r}]"


def _sandbox(options: ClaudeOptions, settings: Mapping[str, Any]) -> Iterator[Row]:
    sandbox = settings.get("sandbox") if options.sandbox is None else options.sandbox
    if isinstance(sandbox, Mapping) and sandbox.get("enabled") and sandbox.get("autoAllowBashIfSandboxed"):
        yield "sandbox", "allows", "settings" if options.sandbox is None else "sandbox"


def _extra(options: ClaudeOptions, what: str, *flags: str) -> Iterator[Row]:
    for flag in flags:
        value = options.extra_args.get(flag)
        if value is not None:
            yield what, value, "extra_args"


def _rules(permissions: Mapping[str, Any], behavior: str) -> list[str]:
    rules = permissions.get(behavior)
    return [rule for rule in rules if isinstance(rule, str)] if isinstance(rules, list | tuple) else []
