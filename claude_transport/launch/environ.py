"""Builds the environment of the CLI as a new dict, and describes where each variable comes from. `os.environ` is never changed.

Three sources are merged; each wins over those before it: inherited variables, variables that options imply (`VARIABLES`), `options.env`.
Three rules remove inherited variables:

* `NESTING`: the variables that CLI 2.1.329 was observed to set for its tools. Without them, a host that itself runs under Claude starts an
  independent session. Two of them would give the child the message socket of the enclosing session, and the token for it.
* `billing`: variables that would make another account pay.
* `env_mode`: variables that it does not pass on.

`CLAUDE_CODE_ENTRYPOINT` is set only by the option `entrypoint`. Without it the CLI reports itself as `sdk-cli`. The CLI changes its
behaviour for names that it knows, so this library does not use `sdk-py`, the name of the official SDK.

`credentials` says which credential the CLI would use with an environment. Settings files are in `settings`.
"""

from __future__ import annotations

import fnmatch
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Final, Protocol

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch import windows
from claude_transport.launch.options import BillingPolicy, ClaudeOptions, EnvironmentMode

CLOUD_SWITCHES: Final = (
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
)
NOT_SUBSCRIPTION: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR", *CLOUD_SWITCHES)
NOT_API_KEY: Final = ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", *CLOUD_SWITCHES)
CUSTOM_HEADERS: Final = "ANTHROPIC_CUSTOM_HEADERS"
CREDENTIAL_HEADERS: Final = ("authorization", "proxy-authorization", "x-api-key")
"""HTTP headers that carry a credential, in lower case. The CLI sends those in `CUSTOM_HEADERS` in addition to its own credential."""

NESTING: Final = frozenset(
    {
        "AI_AGENT",
        "CLAUDECODE",
        "CLAUDE_CODE_CHILD_NOTES_DIR",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_EXECPATH",
        "CLAUDE_CODE_HOST_CHECKED_FOLDER",
        "CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS",
        "CLAUDE_CODE_MESSAGING_SOCKET",
        "CLAUDE_CODE_MESSAGING_TOKEN",
        "CLAUDE_CODE_SESSION_ATTENDED",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_EFFORT",
        "CLAUDE_PID",
    }
)
"""Variables that the CLI sets for the tools of a session. They are never inherited."""

ALWAYS_ALLOWED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR", "TEMP", "TMP", "XDG_*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "APPDATA"),
    *("LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"),
)
"""Variables that `env_mode="allowlist"` passes on in addition to `env_allow`. Programs need them to run; none is a credential."""

POLICIES: Final[Mapping[str, str]] = {
    "env": "Variables for the child. They win over inherited variables and over those that other options set.",
    "env_mode": "`inherit` everything, only an `allowlist`, or `exact`: only what `env` and the other options set.",
    "env_allow": "Names (`*` and `?` allowed) that `allowlist` passes on, besides those that every program needs.",
    "billing": "Which account may pay: `inherit` (the CLI decides), `subscription` (keys, tokens and cloud switches are removed), "
    "`subscription_strict` (refuse to start when one is set), `api_key` (require a key, remove the others).",
    "isolated_config": "A private `CLAUDE_CONFIG_DIR` for this session, made by the transport. The login is not in it.",
}
"""The options that affect the whole environment, with their descriptions for the reference page."""


class Variable(msgspec.Struct, frozen=True):
    """One row: an option, the variable that it sets, and the function that makes the text of the variable from the value of the option."""

    option: str
    name: str
    doc: str
    convert: Callable[[Any], str] = str
    note: str = ""


def _flag(_: Any) -> str:
    return "1"


def _milliseconds(seconds: float) -> str:
    return str(math.ceil(seconds * 1000))


VARIABLES: Final[tuple[Variable, ...]] = (
    Variable("max_retries", "CLAUDE_CODE_MAX_RETRIES", "How often the CLI repeats a failed API request (its default is 10)."),
    Variable("max_output_tokens", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "`max_tokens` of every API request."),
    Variable("mcp_timeout", "MCP_TIMEOUT", "Seconds an MCP server may take to connect.", _milliseconds),
    Variable("mcp_tool_timeout", "MCP_TOOL_TIMEOUT", "Seconds an MCP tool may take.", _milliseconds),
    Variable(
        "mcp_tool_idle_timeout",
        "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT",
        "Seconds an MCP tool may send neither an answer nor progress; `math.inf` for no limit. The CLI's own is 5 minutes.",
        lambda seconds: "0" if math.isinf(seconds) else _milliseconds(seconds),
        note="The `timeout` of a server's own configuration wins for that server.",
    ),
    Variable(
        "tool_config",
        "CLAUDE_CODE_QUESTION_PREVIEW_FORMAT",
        'How AskUserQuestion may show a preview: `{"askUserQuestion": {"previewFormat": "markdown"}}` (or `"html"`).',
        lambda config: config["askUserQuestion"]["previewFormat"],
    ),
    Variable(
        "background_wait_ceiling",
        "CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS",
        "Seconds the CLI waits for background agents after its input ended; `math.inf` for no limit.",
        lambda seconds: "0" if math.isinf(seconds) else _milliseconds(seconds),
        note="The CLI always waits for background shells, without limit `[24f]`.",
    ),
    Variable("disable_background_tasks", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "Turn background tasks off.", _flag),
    Variable(
        "enable_file_checkpointing",
        "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING",
        "Allow `rewind_files`.",
        lambda _: "true",
    ),
    Variable("session_state_events", "CLAUDE_CODE_SDK_READS_SESSION_STATE", "Send `session_state_changed` frames.", _flag),
    Variable("pin_cli", "DISABLE_AUTOUPDATER", "The CLI does not update itself under a running service.", _flag),
    Variable("config_dir", "CLAUDE_CONFIG_DIR", "Where the CLI keeps its configuration, login and sessions.", os.fspath),
    Variable("client_app", "CLAUDE_AGENT_SDK_CLIENT_APP", "Your program, for the User-Agent (`my-app/1.0`)."),
    Variable("entrypoint", "CLAUDE_CODE_ENTRYPOINT", "The entry point that the CLI reports; None leaves it at `sdk-cli`."),
)


class EnvironmentOptions(Protocol):
    """What the environment of a program depends on: the fields that `ClaudeOptions` shares with the options of other agents."""

    @property
    def cwd(self) -> str | PathLike[str] | None: ...

    @property
    def env(self) -> Mapping[str, str]: ...

    @property
    def env_mode(self) -> EnvironmentMode: ...

    @property
    def env_allow(self) -> Sequence[str]: ...

    @property
    def billing(self) -> BillingPolicy: ...


class EnvironmentRules(msgspec.Struct, frozen=True, kw_only=True):
    """What is particular to one agent's environment.

    * `variables`: the options that set a variable.
    * `not_subscription`, `not_api_key`: the variables that a billing policy forbids, because another account would pay.
    * `key`: the variable that `billing="api_key"` needs; None when the key may come from elsewhere.
    * `custom_headers`: the variable with HTTP headers, which are forbidden when one is a credential; None without such a variable.
    * `nesting`: the variables that an enclosing session of the agent sets. They are never inherited.
    """

    variables: tuple[Variable, ...]
    not_subscription: tuple[str, ...]
    not_api_key: tuple[str, ...]
    key: str | None
    custom_headers: str | None
    nesting: frozenset[str]


CLAUDE_RULES: Final = EnvironmentRules(
    variables=VARIABLES,
    not_subscription=NOT_SUBSCRIPTION,
    not_api_key=NOT_API_KEY,
    key="ANTHROPIC_API_KEY",
    custom_headers=CUSTOM_HEADERS,
    nesting=NESTING,
)
"""The rules for `claude`."""


def is_switched_on(value: str | None) -> bool:
    """Return whether the CLI takes `value` of a switch variable as on."""
    return (value or "").strip().lower() in {"1", "true", "yes", "on"}


def check_variables(env: Mapping[str, str]) -> None:
    """Check the types and names in `env`. Raises `ConfigurationError(option="env")`; its message never contains a value."""
    if not isinstance(env, Mapping):
        raise ConfigurationError(f"env: must be a mapping, not {type(env).__name__}", option="env")
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name:
            raise ConfigurationError(f"env: {name!r} is not a variable name", option="env")
        if not isinstance(value, str):
            raise ConfigurationError(f"env: the value of {name} must be a string, not {type(value).__name__}", option="env")


def forbidden_variables(billing: BillingPolicy, *, rules: EnvironmentRules = CLAUDE_RULES) -> tuple[str, ...]:
    """Return the names of the variables that would make another account pay than `billing` allows."""
    if billing == "api_key":
        return rules.not_api_key
    return () if billing == "inherit" else rules.not_subscription


def forbidden_in(env: Mapping[str, str], billing: BillingPolicy, *, rules: EnvironmentRules = CLAUDE_RULES) -> list[str]:
    """Return the names of the variables in `env` that `billing` forbids. Empty variables are allowed.

    `ANTHROPIC_CUSTOM_HEADERS` is forbidden when it contains one of `CREDENTIAL_HEADERS`.
    """
    found = [name for name in forbidden_variables(billing, rules=rules) if env.get(name)]
    if billing != "inherit" and rules.custom_headers is not None and _has_credential_header(env.get(rules.custom_headers, "")):
        found.append(rules.custom_headers)
    return found


def _has_credential_header(text: str) -> bool:
    """Return whether `text` (lines of `NAME: VALUE`) contains one of `CREDENTIAL_HEADERS`."""
    # The CLI trims names with JavaScript's trim(), which also removes a byte-order mark.
    names = (line.partition(":")[0].replace("\ufeff", "").strip().lower() for line in text.splitlines())
    return any(name in CREDENTIAL_HEADERS for name in names)


def settings_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the `env` block of parsed settings; empty when there is no such mapping. In the CLI it wins over the environment."""
    block = settings.get("env")
    return {str(name): str(value) for name, value in block.items()} if isinstance(block, Mapping) else {}


def bare_can_authenticate(env: Mapping[str, str], settings: Mapping[str, Any]) -> bool:
    """Return whether a session with `--bare` would find a credential: a key, a token or a cloud switch in `env`, or `apiKeyHelper` in
    `settings`.

    Observed: `--bare` uses `ANTHROPIC_API_KEY` and `ANTHROPIC_AUTH_TOKEN`. It ignores the stored login and `CLAUDE_CODE_OAUTH_TOKEN`.
    """
    env = {**env, **settings_variables(settings)}
    if env.get("ANTHROPIC_API_KEY") or env.get("ANTHROPIC_AUTH_TOKEN") or settings.get("apiKeyHelper"):
        return True
    return any(is_switched_on(env.get(name)) for name in CLOUD_SWITCHES)


_last_seen: tuple[object, dict[str, str]] | None = None


def environment_now() -> Mapping[str, str]:
    """Return the variables of `os.environ`: the same dict as the last time while they are the same. Do not change it.

    Each look at `os.environ` decodes all of it, which was a tenth of starting and ending a session.
    """
    global _last_seen
    stored = getattr(os.environ, "_data", None)  # the encoded variables, in CPython
    if not isinstance(stored, dict):
        return dict(os.environ)
    if _last_seen is None or _last_seen[0] != stored:
        _last_seen = (stored.copy(), dict(os.environ))
    return _last_seen[1]


def build_environment(options: ClaudeOptions, inherited: Mapping[str, str], *, platform: str = sys.platform) -> dict[str, str]:
    """Return the complete environment for the CLI process, as a new dict.

    It has the variables of `inherited` (usually `os.environ`), over them what the options imply, and over both the option `env`. Marks of
    an enclosing Claude session are left out, and so is what the options `billing`, `env_mode` and `env_allow` exclude. `platform` is a
    value as in `sys.platform`; on Windows, names are upper-cased.

    Raises `ConfigurationError` for an `env` that is not a mapping of texts, and when the billing policy cannot be kept. That is so when
    `env` sets a variable that it forbids, when one is set at all (`subscription_strict`), or when the key that it needs is missing
    (`api_key`).
    """
    return plan_environment(options, inherited, rules=CLAUDE_RULES, platform=platform)[0]


def describe_environment(options: ClaudeOptions, inherited: Mapping[str, str], *, platform: str = sys.platform) -> dict[str, str]:
    """Return, for each variable name, why the CLI process would have that variable or not: a dict sorted by name, without any values.

    The text is `inherited`, `options.env`, `option NAME` (another option sets it), or `removed: WHY`. The arguments and the errors are
    those of `build_environment`.
    """
    return dict(sorted(plan_environment(options, inherited, rules=CLAUDE_RULES, platform=platform)[1].items()))


def plan_environment(
    options: EnvironmentOptions, inherited: Mapping[str, str], *, rules: EnvironmentRules, platform: str = sys.platform
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment of the child, and the origin of each variable by name.

    `rules` are those of the agent that the options are for. The errors are those of `build_environment`.
    """
    fold = str.upper if windows.is_windows(platform) else str  # os.environ has upper-case names on Windows
    check_variables(options.env)
    given = {fold(name): value for name, value in options.env.items()}
    inherited = {fold(name): value for name, value in inherited.items()}
    _check_billing(options, inherited, given, rules)
    allowed = (*ALWAYS_ALLOWED, *map(fold, options.env_allow))
    env: dict[str, str] = {}
    origins: dict[str, str] = {}
    forbidden = {*forbidden_variables(options.billing, rules=rules), *forbidden_in(inherited, options.billing, rules=rules)}
    for name, value in inherited.items():
        reason = _why_removed(name, options, allowed=allowed, forbidden=forbidden, nesting=rules.nesting)
        if reason is None:
            env[name] = value
        origins[name] = "inherited" if reason is None else f"removed: {reason}"
    for row in rules.variables:
        value = getattr(options, row.option)
        if value is not None and value is not False:
            env[row.name] = _convert(row, value)
            origins[row.name] = f"option {row.option}"
    if options.cwd is not None and not windows.is_windows(platform):
        env |= {"PWD": os.path.abspath(options.cwd)}  # noqa: PTH100 - PWD keeps symbolic links, which Path.resolve() replaces
        origins |= {"PWD": "option cwd"}  # not as origins["PWD"] = …, which ruff takes for a password
    for name, value in given.items():
        env[name] = value
        origins[name] = "options.env"
    if options.billing == "api_key" and rules.key is not None and not env.get(rules.key):
        raise ConfigurationError(f'billing="api_key" needs {rules.key}: set it in the environment or in env', option="billing")
    return env, origins


def _why_removed(
    name: str, options: EnvironmentOptions, *, allowed: tuple[str, ...], forbidden: set[str], nesting: frozenset[str]
) -> str | None:
    """Return the rule that removes the inherited variable `name`; None when it is kept."""
    if options.env_mode == "exact":
        return 'env_mode="exact"'
    if name in nesting:
        return "set by an enclosing session"
    if name in forbidden:
        return f'billing="{options.billing}"'
    if options.env_mode == "allowlist" and not any(fnmatch.fnmatchcase(name, rule) for rule in allowed):
        return "not in env_allow"
    return None


def _convert(row: Variable, value: Any) -> str:
    try:
        return row.convert(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"{row.option}: {value!r} cannot be converted for the variable {row.name}: {error}", option=row.option
        ) from error


def _check_billing(options: EnvironmentOptions, inherited: Mapping[str, str], given: Mapping[str, str], rules: EnvironmentRules) -> None:
    clash = forbidden_in(given, options.billing, rules=rules)
    if clash:
        raise ConfigurationError(
            f'env sets {", ".join(clash)}, which billing="{options.billing}" forbids: remove it from env, or choose another billing',
            option="env",
        )
    if options.billing == "subscription_strict":
        found = forbidden_in(inherited, options.billing, rules=rules)
        if found:
            raise ConfigurationError(
                f'billing="subscription_strict" refuses to start while {", ".join(found)} is set: another account might pay. '
                'Unset it, or use billing="subscription", which removes it from the environment of the CLI.',
                option="billing",
            )
