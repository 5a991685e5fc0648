"""Checks options before a process starts: everything that the CLI would refuse on stderr, silently ignore, or misread.

Each rule raises `ConfigurationError` with the name of the option in `.option`, and a message that says what to do. Nothing is corrected.
Some rules are stricter than CLI 2.1.329, which accepts the value and does something else (`max_turns=0` means no limit, an unknown `effort`
the default, an empty text nothing). End-to-end tests show, one by one, which values the CLI refuses itself.
"""

from __future__ import annotations

import functools
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from claude_transport.launch import windows
from claude_transport.launch.argv import FLAGS, RESERVED_FLAGS
from claude_transport.launch.environ import check_variables, forbidden_in, settings_variables
from claude_transport.launch.options import (
    BillingPolicy,
    ClaudeOptions,
    Effort,
    EnvironmentMode,
    InlineDelivery,
    PermissionMode,
    SettingSource,
    StrPath,
    fields_of,
    given_values,
)
from claude_transport.launch.payloads import PAYLOADS
from claude_transport.launch.rules import check_agent_rules, check_names, check_rules, check_skills, check_tools, refuse
from claude_transport.launch.session_store import is_store
from claude_transport.launch.settings import agent_definitions, is_inline_json, load_settings, read_json_object

UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
FLAG_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
AUTOCOMPACT_FLOOR: Final = 100_000  # tokens; the CLI's own minimum

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "permission_mode": get_args(PermissionMode),
    "effort": get_args(Effort),  # the CLI warns and uses the default
    "billing": get_args(BillingPolicy),
    "env_mode": get_args(EnvironmentMode),
    "permission_prompts": ("host", "none"),
    "mcp_servers_delivery": get_args(InlineDelivery),
    "plugin_delivery": get_args(InlineDelivery),
    "sdk_mcp_server_manifests_origin": ("host_per_send",),
}
TEXTS: Final = (
    "model",
    "agent",
    "resume",
    "session_id",
    "permission_prompt_tool_name",
    "advisor",
    "name",
    "title",
    "workload",
    "entrypoint",
)
IDS: Final = ("resume_session_at", "resume_drops_turn", "user")
LISTS: Final = ("betas", "allowed_tools", "disallowed_tools", "add_dirs", "plugin_urls", "files", "env_allow", "supported_dialog_kinds")
NAMES: Final[Mapping[str, bool]] = {"betas": False, "plugin_urls": True, "files": True}  # option → whether an item may hold a comma
# option → (smallest allowed, what it counts)
MINIMA: Final[Mapping[str, tuple[int, str]]] = {
    "max_turns": (1, "turns; for the CLI 0 would mean no limit, so leave it None for that"),
    "max_thinking_tokens": (0, "tokens"),
    "max_output_tokens": (1, "tokens"),
    "max_retries": (0, "retries"),
}
# as floats: what is beyond them cannot be written for the CLI
_MIN_POSITIVE: Final = sys.float_info.min
_MAX_POSITIVE: Final = sys.float_info.max
POSITIVE: Final = ("max_budget_usd", "mcp_timeout", "mcp_tool_timeout", "mcp_tool_idle_timeout", "background_wait_ceiling")
ENDLESS: Final = ("background_wait_ceiling", "mcp_tool_idle_timeout")  # math.inf means no limit
PLAIN_TYPES: Final[Mapping[Any, tuple[type, ...]]] = {
    bool: (bool,),
    bool | None: (bool, type(None)),
    int | None: (int, type(None)),
    float | None: (int, float, type(None)),
    str | None: (str, type(None)),
    bool | str: (bool, str),
    StrPath | None: (str, os.PathLike, type(None)),
}
# option → whether None is refused
MAPPINGS: Final[Mapping[str, bool]] = {
    "env": True,
    "extra_args": True,
    "managed_settings": False,
    "sandbox": False,
    "sdk_mcp_server_configs": False,
    "sdk_mcp_server_manifests": False,
    "tool_aliases": False,
    "tool_config": False,
}
PREVIEW_FORMATS: Final = ("markdown", "html")


def validate_options(
    options: ClaudeOptions, *, uid: int | None = None, environment: Mapping[str, str] | None = None, check_files: bool = True
) -> None:
    """Check that `options` can be run as they are. Raises `ConfigurationError`, naming the option and the remedy.

    `uid` is the user that the child would run as (default: the effective one of this process). `environment` is the child's (default:
    `options.env`). `check_files=False` skips what needs the disk of this machine, for a CLI on another one.
    """
    check_alone(options)
    check_surroundings(options, uid=uid, environment=environment, check_files=check_files)


def check_alone(options: ClaudeOptions) -> None:
    """Check everything that the options alone tell. Reads no file and no variable. Raises `ConfigurationError`, as `validate_options`."""
    check_types(options)
    given = given_values(options)
    _check_scalars(given)
    _check_lists(options)
    _check_plugins(options)
    _check_session(options)
    _check_permissions(options)
    _check_prompts(options)
    _check_model(options)
    _check_servers(options)
    _check_own_servers(options)
    _check_settings(options)
    _check_extras(options, given)
    _check_environment(options)


def check_surroundings(
    options: ClaudeOptions, *, uid: int | None = None, environment: Mapping[str, str] | None = None, check_files: bool = True
) -> None:
    """Check what depends on files, variables and the user, after `check_alone`. The arguments are those of `validate_options`."""
    environment = options.env if environment is None else environment
    _check_root(options, uid, environment)
    _check_prompt_file(options, check_files)
    _check_servers_file(options, check_files)
    _check_settings_file(options, check_files)
    if options.files and not environment.get("CLAUDE_CODE_SESSION_ACCESS_TOKEN"):
        refuse("files", "the CLI downloads files only with CLAUDE_CODE_SESSION_ACCESS_TOKEN in the environment; it is not set")


def check_types(options: ClaudeOptions) -> None:
    """Check the type of every option, every text and every rule. Raises `ConfigurationError`; `check_alone` begins with it.

    Switches must be bools and counts ints: `bare="no"` or `max_turns=True` would otherwise be taken for something else.
    """
    given = given_values(options)
    plain = _plain_types(type(options))
    for option, value in given.items():
        allowed = plain.get(option)
        if allowed is None or (isinstance(value, bool) and bool in allowed):
            continue
        if isinstance(value, bool) or not isinstance(value, allowed):
            names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in allowed)
            refuse(option, f"must be {names}, not {type(value).__name__}")
    for option, always in MAPPINGS.items():
        value = given.get(option)
        if option in given and (always or value is not None) and not isinstance(value, Mapping):
            refuse(option, f"must be a mapping, not {type(value).__name__}")
    for option in LISTS:
        if option in given:
            _check_sequence(option, given[option])
    for option, value in given.items():
        check_text(option, value)
    _check_rules(given)
    _check_tool_config(options)


@functools.cache
def _plain_types(cls: type[ClaudeOptions]) -> dict[str, tuple[type, ...]]:
    """Return the types that each option of a plain type may have, by its name."""
    return {field.name: PLAIN_TYPES[field.type] for field in fields_of(cls) if field.type in PLAIN_TYPES}


def _check_rules(given: Mapping[str, Any]) -> None:
    """Check each rule and each name for the CLI: the text of one option must not allow something else (see `launch.rules`)."""
    check_skills(given.get("skills"))
    for option in ("allowed_tools", "disallowed_tools"):
        check_rules(option, given.get(option, ()))
    tools = given.get("tools")
    if tools is not None and not isinstance(tools, Mapping):
        check_tools("tools", tools)
    for option, commas in NAMES.items():
        check_names(option, given.get(option, ()), commas=commas)


def _strings(value: Any) -> Iterator[str]:
    """Yield every string in a value, keys included."""
    if isinstance(value, (str, os.PathLike)):
        yield os.fspath(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def check_text(option: str, value: Any) -> None:
    """Refuse a NUL character, which ends an argument or a variable, and a lone surrogate, which cannot be encoded."""
    for text in _strings(value):
        if "\0" in text:
            refuse(option, "holds a NUL character, which no argument, variable or path can carry")
        if not windows.is_encodable(text, platform=sys.platform):
            refuse(option, "holds a lone surrogate, which cannot be encoded")


def _check_scalars(given: Mapping[str, Any]) -> None:
    for option, choices in CHOICES.items():
        value = given.get(option)
        if value is not None and value not in choices:
            refuse(option, f"{value!r} is not one of {', '.join(choices)}")
    for option in (*TEXTS, *IDS):
        value = given.get(option)
        if value is not None and not value.strip():
            refuse(option, "is empty; leave it None instead")
    for option, (smallest, unit) in MINIMA.items():
        value = given.get(option)
        if value is not None and value < smallest:
            refuse(option, f"{value} is below {smallest} ({unit})")
    for option in POSITIVE:
        value = given.get(option)
        if value is None or (option in ENDLESS and value == math.inf):
            continue
        if not _MIN_POSITIVE <= value <= _MAX_POSITIVE:
            refuse(option, f"{value} is not a positive number; leave it None for the CLI's default")


def _check_lists(options: ClaudeOptions) -> None:
    if options.setting_sources is not None:
        _check_sequence("setting_sources", options.setting_sources)
        for source in options.setting_sources:
            if source not in get_args(SettingSource):
                refuse("setting_sources", f"{source!r} is not one of {', '.join(get_args(SettingSource))}")
    if isinstance(options.tools, Mapping) and options.tools != {"type": "preset", "preset": "claude_code"}:
        refuse("tools", 'the only preset is {"type": "preset", "preset": "claude_code"}')


def _check_plugins(options: ClaudeOptions) -> None:
    if not isinstance(options.plugins, (list, tuple)):
        refuse("plugins", f"must be a list or tuple, not {type(options.plugins).__name__}")
    for plugin in options.plugins:
        path = plugin.get("path") if isinstance(plugin, Mapping) and plugin.get("type") == "local" else None
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            refuse("plugins", 'each must be {"type": "local", "path": ...}')


def _check_sequence(option: str, value: Any) -> None:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        refuse(option, f"must be a list or tuple, not {type(value).__name__}")
    for item in value:
        if not isinstance(item, (str, os.PathLike)) or not os.fspath(item):
            refuse(option, f"holds {item!r}, which is not a non-empty string")


def _check_session(options: ClaudeOptions) -> None:
    if options.session_id is not None and not UUID.fullmatch(options.session_id):
        refuse("session_id", f"{options.session_id!r} is not a UUID in its usual form")
    if options.continue_conversation and options.resume is not None:
        refuse(
            "continue_conversation", "and resume name two different conversations; give only one of the two"
        )  # the CLI takes the latest (2.1.330)
    if options.session_id is not None and not options.fork_session and (options.resume is not None or options.continue_conversation):
        refuse("session_id", "a resumed session keeps its own id; add fork_session=True to give the copy this one")
    _check_store(options)
    if options.resume_session_at is not None and options.resume is None:
        refuse("resume_session_at", "needs resume")
    if options.resume_drops_turn is not None and options.resume_session_at is None:
        refuse("resume_drops_turn", "needs resume_session_at")


def _check_store(options: ClaudeOptions) -> None:
    store: object = options.session_store
    if store is None:
        return
    if not is_store(store):
        refuse("session_store", f"must be an object with the methods append and load, not {type(store).__name__}")
    if options.no_session_persistence:
        refuse("session_store", "no_session_persistence=True writes no transcript that could be stored; remove one of the two")
    if options.enable_file_checkpointing:
        refuse("session_store", "enable_file_checkpointing keeps its copies on this machine, and no store has them; remove one of the two")
    if options.user is not None:
        refuse("session_store", "the files of a session cannot be handed to another user; remove user, or run this program as that user")


def _bypasses(options: ClaudeOptions) -> list[str]:
    """Return the options that ask for a bypass of permissions."""
    switches = ("dangerously_skip_permissions", "allow_dangerously_skip_permissions")
    asked = [name for name in switches if getattr(options, name)]
    asked += ["extra_args" for name in switches if name.replace("_", "-") in options.extra_args]
    return ["permission_mode", *asked] if options.permission_mode == "bypassPermissions" else asked


def _check_permissions(options: ClaudeOptions) -> None:
    asked = _bypasses(options)
    if asked and options.restricted:
        refuse(asked[0], "bypassing permissions is not possible with restricted=True; remove one of the two")


def _check_root(options: ClaudeOptions, uid: int | None, environment: Mapping[str, str]) -> None:
    asked = _bypasses(options)
    if not asked or (options.user is not None and options.user != "root"):
        return
    if uid is None:
        uid = os.geteuid() if hasattr(os, "geteuid") else -1
    if uid == 0 and environment.get("IS_SANDBOX") != "1" and not environment.get("CLAUDE_CODE_BUBBLEWRAP"):
        refuse(
            asked[0],
            "the CLI refuses to bypass permissions as root. Run it as another user (user=...), or list what may run in allowed_tools "
            'or in permissions.allow of the settings; in a container made to be thrown away, env={"IS_SANDBOX": "1"} says so to the CLI',
        )


def _check_prompts(options: ClaudeOptions) -> None:
    prompt = options.system_prompt
    if isinstance(prompt, Mapping):
        shapes: dict[Any, Callable[[], bool]] = {
            "preset": lambda: prompt.get("preset") == "claude_code" and isinstance(prompt.get("append", ""), str),
            "custom": lambda: isinstance(prompt.get("prompt"), str),
            "file": lambda: isinstance(prompt.get("path"), (str, os.PathLike)) and bool(prompt["path"]),
        }
        kind = prompt.get("type")
        shape = shapes.get(kind) if isinstance(kind, str) else None
        if shape is None or not shape():
            refuse("system_prompt", "a mapping needs a type of preset (with preset claude_code), custom (with prompt) or file (with path)")
        if prompt.get("append") is not None and options.append_system_prompt is not None:
            refuse("append_system_prompt", "system_prompt also has an append; give only one of the two")
    elif prompt is not None and not isinstance(prompt, str):
        refuse("system_prompt", f"must be text or a mapping, not {type(prompt).__name__}")
    output = options.output_format
    if output is not None:
        if not isinstance(output, Mapping) or output.get("type") != "json_schema":
            refuse("output_format", 'must be {"type": "json_schema", "schema": {...}}')
        if not isinstance(output.get("schema"), Mapping):
            refuse("output_format", "the schema must be a JSON object")


def _check_prompt_file(options: ClaudeOptions, check_files: bool) -> None:
    prompt = options.system_prompt
    if not isinstance(prompt, Mapping) or prompt["type"] != "file" or not check_files:
        return
    if not os.path.isfile(os.path.join(options.cwd or "", prompt["path"])):  # noqa: PTH113, PTH118 - also as text
        refuse("system_prompt", f"there is no file {os.fspath(prompt['path'])}")


def _check_model(options: ClaudeOptions) -> None:
    fallback = options.fallback_model
    if fallback is not None and not isinstance(fallback, str):
        check_names("fallback_model", fallback)  # the CLI takes them joined by commas
    if fallback is not None and not fallback:
        refuse("fallback_model", "must name a model, or several")
    thinking = options.thinking
    if thinking is not None:
        if not isinstance(thinking, Mapping) or thinking.get("type") not in ("adaptive", "enabled", "disabled"):
            refuse("thinking", "needs a type of adaptive, enabled or disabled")
        budget = thinking.get("budget_tokens")
        if thinking["type"] == "enabled" and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
            refuse("thinking", "type enabled needs budget_tokens, a positive number of tokens")
        if thinking.get("display", "omitted") not in ("summarized", "omitted", "highlights"):
            refuse("thinking", "display must be summarized, omitted or highlights")
        if options.max_thinking_tokens is not None:
            refuse("max_thinking_tokens", "thinking already sets the budget; give only one of the two")
    if options.task_budget is not None:
        total = options.task_budget.get("total") if isinstance(options.task_budget, Mapping) else None
        if isinstance(total, bool) or not isinstance(total, int) or total < 1:
            refuse("task_budget", 'must be {"total": tokens} with a positive number')
    compact = options.autocompact
    tokens: object = int(compact[:-1]) * 1000 if isinstance(compact, str) and re.fullmatch(r"\d{1,9}k", compact) else compact
    enough = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= AUTOCOMPACT_FLOOR
    if compact is not None and compact != "auto" and not enough:
        refuse("autocompact", f"must be auto, or at least {AUTOCOMPACT_FLOOR} tokens (500_000, '500k')")
    if options.debug == "":
        refuse("debug", "the filter is empty; use True for all categories")


def _check_servers(options: ClaudeOptions) -> None:
    servers: Any = options.mcp_servers
    if not isinstance(servers, (str, os.PathLike)):
        _check_named_servers(servers)
    elif is_inline_json(text := os.fspath(servers)):
        _check_named_servers(read_json_object(text, option="mcp_servers").get("mcpServers"))
    agents = options.agents
    if agents is not None and (not isinstance(agents, Mapping) or not all(isinstance(name, str) and name for name in agents)):
        refuse("agents", "must be a mapping of definitions by name")
    for name, definition in agent_definitions(options.agents or {}).items():
        texts = definition if isinstance(definition, dict) else {}
        if not isinstance(texts.get("prompt"), str) or not isinstance(texts.get("description"), str) or not texts["description"]:
            refuse("agents", f"{name!r} needs a non-empty description and a prompt")
        check_agent_rules({name: definition})


def _check_servers_file(options: ClaudeOptions, check_files: bool) -> None:
    servers = options.mcp_servers
    if not isinstance(servers, (str, os.PathLike)) or is_inline_json(text := os.fspath(servers)) or not text:
        return
    if check_files or text.lstrip().startswith("{"):
        _check_named_servers(read_json_object(text, option="mcp_servers", cwd=options.cwd).get("mcpServers"))


def _check_named_servers(servers: object) -> None:
    if not isinstance(servers, Mapping):
        refuse("mcp_servers", 'must be a mapping of servers by name, or a configuration {"mcpServers": {...}}')
    for name, config in servers.items():
        if not isinstance(name, str) or not name or not isinstance(config, Mapping):
            refuse("mcp_servers", f"{name!r} must be a name with a mapping")
        if "instance" in config:
            refuse("mcp_servers", f"{name!r} is a server object of this process; pass it to Query(mcp_servers=...)")


def _check_own_servers(options: ClaudeOptions) -> None:
    """Check what is said about MCP servers in this process, and how the other servers travel."""
    for option in ("sdk_mcp_server_configs", "sdk_mcp_server_manifests"):
        for name, about in (getattr(options, option) or {}).items():
            if not isinstance(name, str) or not name or not isinstance(about, Mapping):
                refuse(option, f"{name!r} must be the name of a server with a mapping")
            if option == "sdk_mcp_server_manifests" and not isinstance(about.get("initializeResult"), Mapping):
                refuse(option, f"{name!r} needs initializeResult, the server's own answer to initialize")
    servers = options.mcp_servers
    if options.mcp_servers_delivery == "initialize" and not isinstance(servers, Mapping) and not is_inline_json(os.fspath(servers)):
        refuse("mcp_servers_delivery", "initialize takes servers by name or as JSON text, not the path of a file")


def _check_tool_config(options: ClaudeOptions) -> None:
    if options.tool_config is None:
        return
    question = options.tool_config.get("askUserQuestion")
    known = set(options.tool_config) == {"askUserQuestion"} and isinstance(question, Mapping) and set(question) == {"previewFormat"}
    if not known or not isinstance(question, Mapping) or question["previewFormat"] not in PREVIEW_FORMATS:
        refuse("tool_config", f'must be {{"askUserQuestion": {{"previewFormat": ...}}}} with one of {", ".join(PREVIEW_FORMATS)}')


def _check_settings(options: ClaudeOptions) -> None:
    if options.managed_settings is not None:
        _check_payer(options, options.managed_settings, option="managed_settings")
    given = options.settings
    if given is None:
        return
    if not isinstance(given, Mapping) and (not isinstance(given, (str, os.PathLike)) or not os.fspath(given).strip()):
        refuse("settings", "must be a path, the text of a JSON object, or a mapping")
    if isinstance(given, Mapping) or (isinstance(given, str) and is_inline_json(given)):
        _check_payer(options, load_settings(options))


def _check_settings_file(options: ClaudeOptions, check_files: bool) -> None:
    given = options.settings
    if not isinstance(given, (str, os.PathLike)) or (isinstance(given, str) and is_inline_json(given)):
        return
    if check_files or os.fspath(given).lstrip().startswith("{"):
        _check_payer(options, load_settings(options))  # the CLI silently ignores a settings file that is not a JSON object
    elif options.sandbox is not None:
        refuse("sandbox", "cannot be merged into a settings file on another machine; give settings as a mapping")


def _check_payer(options: ClaudeOptions, settings: Mapping[str, Any], *, option: str = "settings") -> None:
    """Refuse credentials in the settings that `billing` forbids: they win over the environment."""
    names = forbidden_in(settings_variables(settings), options.billing)
    if options.billing.startswith("subscription") and settings.get("apiKeyHelper"):
        names.append("apiKeyHelper")
    if names:
        refuse(option, f'set {", ".join(names)}, which billing="{options.billing}" forbids; remove one of the two')


def _check_extras(options: ClaudeOptions, given: Mapping[str, Any]) -> None:
    if not options.extra_args:
        return
    flags = [(row.option, row.flag) for row in FLAGS] + [(row.option, row.flag) for row in PAYLOADS]
    flags.append(("agents", "--agents"))  # they travel in `initialize`, and the flag would name others
    flags += [(option, flag.removesuffix("-file")) for option, flag in flags if flag.endswith("-prompt-file")]
    owned = {flag.lower().replace("-", ""): option for option, flag in flags if option in given and flag}
    for name, value in options.extra_args.items():
        if not isinstance(name, str) or not FLAG_NAME.fullmatch(name):
            refuse("extra_args", f"{name!r} is not a flag name; write it without leading dashes and without =")
        if value is not None and not isinstance(value, str):
            refuse("extra_args", f"the value of {name} must be a string, or None for a switch")
        if name in RESERVED_FLAGS:
            refuse("extra_args", f"--{name} cannot be given: {RESERVED_FLAGS[name]}")
        if name in {"p", "h", "v"}:
            refuse("extra_args", f"--{name} is a short flag, which cannot be given; use the long one")
        if name.lower().replace("-", "") in owned:
            refuse("extra_args", f"--{name} is written by the option {owned[name.lower().replace('-', '')]}; use only the option")


def _check_environment(options: ClaudeOptions) -> None:
    check_variables(options.env)
    if options.isolated_config and (options.config_dir is not None or "CLAUDE_CONFIG_DIR" in options.env):
        refuse("isolated_config", "makes its own configuration directory; remove config_dir (or CLAUDE_CONFIG_DIR in env)")
    if options.client_app is not None and not re.fullmatch(r"[\x20-\x7e\xa0-\xff]*", options.client_app):
        refuse("client_app", "travels in an HTTP header: characters above U+00FF and control characters would stop every request")
    if options.project_config_root is not None and not os.path.isabs(options.project_config_root):  # noqa: PTH117 - also as text
        refuse("project_config_root", "must be an absolute path")
