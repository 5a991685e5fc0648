"""What a session is told and reads beside its flags: settings, MCP servers, agents, and what the settings say about permissions.

A launch carries JSON documents, which are read, checked and merged here. The CLI silently ignores a `--settings` *file* that is not a JSON
object (observed on 2.1.329), and would run without the permission rules in it. So such a file is refused here.

How the documents reach the CLI is decided in `payloads`. Which credential the settings choose is decided in `credentials`.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, overload

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch import windows
from claude_transport.launch.options import ClaudeOptions

PermissionRow = tuple[str, str, str]

_MAX_FILE_BYTES: Final = 2**20
"""Bytes of a settings file that are read. Real files have a few kilobytes."""


def is_inline_json(value: str) -> bool:
    """Whether text is a JSON object rather than a path. The CLI decides by the same first and last character."""
    text = value.strip()
    return text.startswith("{") and text.endswith("}")


def to_json(value: Any, *, option: str) -> bytes:
    """Encode `value` as JSON. Raises `ConfigurationError`, naming `option`, when it holds something that JSON cannot."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"{option} holds something that cannot be written as JSON: {error}", option=option) from error


def read_json_object(source: str | PathLike[str], *, option: str, cwd: str | PathLike[str] | None = None) -> dict[str, Any]:
    """Read the JSON object in the file `source` (relative to `cwd`, as for the CLI), or in the text itself.

    Raises `ConfigurationError` when the file is missing, unreadable or not a JSON object. A byte-order mark is accepted.
    """
    if isinstance(source, str) and is_inline_json(source):
        return _json_object(source, "the text given", option=option)
    return _json_object(_text_of_file(source, option=option, cwd=cwd), f"the file {Path(cwd or '') / source}", option=option)


def _text_of_file(source: str | PathLike[str], *, option: str, cwd: str | PathLike[str] | None) -> str:
    path = Path(cwd or "") / source
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigurationError(f"{option}: the file {path} cannot be read: {reason}", option=option) from error


def _json_object(text: str, where: str, *, option: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        position = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        # The decoder's own message is left out: its exception holds the whole document, which may hold secrets.
        raise ConfigurationError(f"{option}: {where} is not JSON{position}", option=option) from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{option}: {where} must be a JSON object, not {type(document).__name__}", option=option)
    return document


class ReadSettings(str):  # noqa: SLOT000 - there is one for each launch
    """The path of a settings file, with the `text` and the JSON `document` that were read from it.

    It takes the place of the path among the options of one launch, so that the launch reads the file once.
    """

    text: str
    document: dict[str, Any]


def with_settings_read(options: ClaudeOptions) -> ClaudeOptions:
    """Return `options` with `ReadSettings` in place of the path of a settings file.

    Returns them unchanged when they name no file, or one that cannot be read: the check of the options says what is wrong with it.
    """
    given = options.settings
    if not isinstance(given, (str, os.PathLike)) or isinstance(given, ReadSettings) or is_inline_json(os.fspath(given)):
        return options
    try:
        text = _text_of_file(given, option="settings", cwd=options.cwd)
        read = ReadSettings(os.fspath(given))
        read.text, read.document = text, _json_object(text, "the file", option="settings")
    except (ConfigurationError, TypeError):
        return options
    return options.replace(settings=read)


def load_settings(options: ClaudeOptions) -> dict[str, Any]:
    """Read `settings` as a dict, from disk when it is a path; empty without settings."""
    if options.settings is None:
        return {}
    if isinstance(options.settings, Mapping):
        return dict(options.settings)
    if isinstance(options.settings, ReadSettings):
        return dict(options.settings.document)
    return read_json_object(options.settings, option="settings", cwd=options.cwd)


def settings_document(options: ClaudeOptions, *, permissions: Mapping[str, list[str]]) -> dict[str, Any] | str | None:
    """Return the value of `--settings`: a document, the caller's own path when nothing must be merged into it, or None.

    `permissions` are rules for which the command line had no room: `{"allow": [...], "deny": [...], "additionalDirectories": [...]}`. They
    are added to those of the settings. `sandbox` replaces that of the settings. The CLI takes only one `--settings` (the last), so
    everything is merged into one.
    """
    merge = bool(permissions) or options.sandbox is not None
    if not merge and isinstance(options.settings, (str, os.PathLike)):
        text = os.fspath(options.settings)
        if not is_inline_json(text):
            return text
    if not merge and options.settings is None:
        return None
    document = load_settings(options)
    if options.sandbox is not None:
        document["sandbox"] = dict(options.sandbox)
    if permissions:
        rules = document.get("permissions") or {}
        if not isinstance(rules, Mapping) or not all(isinstance(rules.get(key, []), (list, tuple)) for key in permissions):
            raise ConfigurationError("settings: permissions must be lists of rules by name, or none can be added", option="settings")
        rules = dict(rules)
        for key, added in permissions.items():
            rules[key] = [*rules.get(key, ()), *(rule for rule in added if rule not in rules.get(key, ()))]
        document["permissions"] = rules
    return document


def mcp_document(options: ClaudeOptions) -> dict[str, Any] | str | None:
    """Return the value of `--mcp-config`: `{"mcpServers": {...}}`, the caller's own path, or None without servers."""
    servers = options.mcp_servers
    if not servers:
        return None
    if isinstance(servers, Mapping):
        return {"mcpServers": {name: dict(config) for name, config in servers.items()}}
    text = os.fspath(servers)
    return read_json_object(text, option="mcp_servers") if is_inline_json(text) else text


def naming_own_servers(options: ClaudeOptions, names: Sequence[str]) -> ClaudeOptions:
    """Return `options` in which a session that goes on also has the servers `names`, which run in the host's program.

    A CLI that resumes a session runs its deferred call before it connects to the servers that `initialize` names, so a call to one of them
    fails. It waits for those of its command line (CLI 2.1.330, real). A `mcp_servers` that is a file stays as it is.
    """
    document = mcp_document(options)
    goes_on = options.resume is not None or options.continue_conversation
    if not names or not goes_on or options.mcp_servers_delivery != "argv" or isinstance(document, str):
        return options
    given = (document or {}).get("mcpServers", {})
    strict = bool(given) if options.strict_mcp_config is None else options.strict_mcp_config
    own = {name: {"type": "sdk", "name": name} for name in names}
    return options.replace(mcp_servers={**own, **given}, strict_mcp_config=strict)


def agent_definitions(agents: Mapping[str, Any]) -> dict[str, Any]:
    """Return `agents` as plain data, without fields that are None (as in the official `AgentDefinition`)."""
    definitions: dict[str, Any] = {}
    for name, definition in agents.items():
        try:
            fields = msgspec.to_builtins(definition)
        except TypeError as error:
            raise ConfigurationError(
                f"agents[{name!r}] holds something that cannot be written as JSON: {error}", option="agents"
            ) from error
        definitions[name] = {key: value for key, value in fields.items() if value is not None} if isinstance(fields, dict) else fields
    to_json(definitions, option="agents")
    return definitions


def permission_settings(options: ClaudeOptions) -> list[PermissionRow]:
    """List what `options` say about permissions, as rows of (kind, value, option that says so).

    * `mode`: the permission mode at the start, at most one row. `dangerously_skip_permissions` wins over `permission_mode`, and that over
      `permissions.defaultMode` of the settings (observed on CLI 2.1.329).
    * `allow`, `ask`: one row for each rule, such as `"Bash(git *)"`.
    * `prompt_tool`, `prompts`: what answers permission prompts, when an option says it.
    * `agent_mode`: the mode of a subagent; the option names the subagent.
    * `sandbox`: `"allows"` when commands in the sandbox need no permission.

    Reads the settings file when `settings` names one, but not those of the user and the project. Raises `ConfigurationError` when it cannot
    be read.
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


def _mode(options: ClaudeOptions, permissions: Mapping[str, Any]) -> Iterator[PermissionRow]:
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


def _prompting(options: ClaudeOptions) -> Iterator[PermissionRow]:
    if options.permission_prompt_tool_name is not None:
        yield "prompt_tool", options.permission_prompt_tool_name, "permission_prompt_tool_name"
    if options.permission_prompts is not None:
        yield "prompts", options.permission_prompts, "permission_prompts"
    yield from _extra(options, "prompt_tool", "permission-prompt-tool")
    yield from _extra(options, "prompts", "permission-prompts")


def _agent_modes(options: ClaudeOptions) -> Iterator[PermissionRow]:
    for name, definition in agent_definitions(options.agents or {}).items():
        mode = definition.get("permissionMode") if isinstance(definition, Mapping) else None
        if isinstance(mode, str):
            yield "agent_mode", mode, f"agents[{name!r}]"


def _sandbox(options: ClaudeOptions, settings: Mapping[str, Any]) -> Iterator[PermissionRow]:
    sandbox = settings.get("sandbox") if options.sandbox is None else options.sandbox
    if isinstance(sandbox, Mapping) and sandbox.get("enabled") and sandbox.get("autoAllowBashIfSandboxed"):
        yield "sandbox", "allows", "settings" if options.sandbox is None else "sandbox"


def _extra(options: ClaudeOptions, what: str, *flags: str) -> Iterator[PermissionRow]:
    for flag in flags:
        value = options.extra_args.get(flag)
        if value is not None:
            yield what, value, "extra_args"


def _rules(permissions: Mapping[str, Any], behavior: str) -> list[str]:
    rules = permissions.get(behavior)
    return [rule for rule in rules if isinstance(rule, str)] if isinstance(rules, list | tuple) else []


class LazyTexts(Sequence[str]):
    """Texts for redactors, which must know the secrets in them. `read` is called once, at the first access."""

    def __init__(self, read: Callable[[], tuple[str, ...]]) -> None:
        self._read = read
        self._texts: tuple[str, ...] | None = None

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._known()[index]

    def __len__(self) -> int:
        return len(self._known())

    def __repr__(self) -> str:
        """Show the number of texts only: they hold secrets."""
        return f"LazyTexts({'unread' if self._texts is None else len(self._texts)})"

    def _known(self) -> tuple[str, ...]:
        if self._texts is None:
            self._texts = self._read()
        return self._texts


def settings_texts(options: ClaudeOptions, inherited: Mapping[str, str] | None = None) -> LazyTexts:
    """Return the texts of the settings files that a session with these options reads on this machine.

    These are the files in the options `settings` and `mcp_servers`, the user's settings, and those of the project. A missing or unreadable
    file is left out. `inherited` is the environment below `options.env`.
    """

    def read() -> tuple[str, ...]:
        settings = options.settings
        given = [settings.text[:_MAX_FILE_BYTES]] if isinstance(settings, ReadSettings) else []
        return (*given, *(text for path in _settings_files(options, inherited) if (text := _text_of(path)) is not None))

    return LazyTexts(read)


def _settings_files(options: ClaudeOptions, inherited: Mapping[str, str] | None) -> Iterator[Path]:
    project = Path(options.cwd or "")
    for given in (options.settings, options.mcp_servers):
        if isinstance(given, ReadSettings):
            continue
        if isinstance(given, os.PathLike) or (isinstance(given, str) and given and not is_inline_json(given)):
            yield project / given
    sources = ("user", "project", "local") if options.setting_sources is None else tuple(options.setting_sources)
    if "user" in sources and not options.isolated_config:
        yield from _user_settings(options, os.environ if inherited is None else inherited)
    if "project" in sources:
        yield project / ".claude" / "settings.json"
    if "local" in sources:
        yield project / ".claude" / "settings.local.json"


def _user_settings(options: ClaudeOptions, inherited: Mapping[str, str]) -> Iterator[Path]:
    env = {**inherited, **options.env}
    folder = options.config_dir or env.get("CLAUDE_CONFIG_DIR")
    home = windows.home_folder(env, platform=sys.platform)
    if folder:
        yield Path(folder) / "settings.json"
    elif home:
        yield Path(home) / ".claude" / "settings.json"


def _text_of(path: Path) -> str | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would wait for its other end
            return None
        with path.open("rb") as file:
            return file.read(_MAX_FILE_BYTES).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return None
