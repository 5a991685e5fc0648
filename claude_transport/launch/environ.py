"""Builds the environment of the child as a new dict, from a table and three policies. `os.environ` is never changed.

From weakest to strongest: inherited variables, what the options imply (`VARIABLES`), `options.env`. Removed from the inherited ones:

* the marks of a session (`NESTING`): everything that CLI 2.1.329 was observed to add to the environment of its tools. So a host that runs
  under Claude starts a session of its own, not a nested one. Two of the marks are a socket and its token.
* what `billing` does not allow to pay, and what `env_mode` does not let through.

`CLAUDE_CODE_ENTRYPOINT` is removed and, without the option `entrypoint`, not set: the CLI then calls itself `sdk-cli`, which is true. It
decides several things by the names it knows, and `sdk-py` is the name of another project.
"""

from __future__ import annotations

import fnmatch
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch import windows
from claude_transport.launch.options import BillingPolicy, ClaudeOptions

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
"""Headers that pay, by lower-case name. One of them in `CUSTOM_HEADERS` is sent beside the credential that the CLI has found."""

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
"""Marks of an enclosing session, never inherited."""

ALWAYS_ALLOWED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR", "TEMP", "TMP", "XDG_*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "APPDATA"),
    *("LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"),
)
"""What `env_mode="allowlist"` passes on besides `env_allow`: what a program needs to run, and no credential."""

POLICIES: Final[Mapping[str, str]] = {
    "env": "Variables for the child; they win over inherited ones and over what other options imply.",
    "env_mode": "`inherit` everything, only an `allowlist`, or `exact`: only what `env` and the other options set.",
    "env_allow": "Names (`*` and `?` allowed) that `allowlist` passes on, besides those that every program needs.",
    "billing": "Which account may pay: `inherit` (the CLI decides), `subscription` (keys, tokens and cloud switches are removed), "
    "`subscription_strict` (refuse to start when one is set), `api_key` (require a key, remove the others).",
    "isolated_config": "A private `CLAUDE_CONFIG_DIR` for this session, made by the transport. The login is not in it.",
}
"""Options that decide about the environment as a whole."""


class Variable(msgspec.Struct, frozen=True):
    """One row: the option, the variable that it becomes, and how its value is written."""

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
    Variable("disable_background_tasks", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "No background tasks.", _flag),
    Variable("enable_file_checkpointing", "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "`rewind_files` works.", lambda _: "true"),
    Variable("session_state_events", "CLAUDE_CODE_SDK_READS_SESSION_STATE", "`session_state_changed` frames.", _flag),
    Variable("pin_cli", "DISABLE_AUTOUPDATER", "The CLI does not update itself under a running service.", _flag),
    Variable("config_dir", "CLAUDE_CONFIG_DIR", "Where the CLI keeps its configuration, login and sessions.", os.fspath),
    Variable("client_app", "CLAUDE_AGENT_SDK_CLIENT_APP", "Your program, for the User-Agent (`my-app/1.0`)."),
    Variable("entrypoint", "CLAUDE_CODE_ENTRYPOINT", "The name under which the CLI runs; None leaves it at `sdk-cli`."),
)


def is_switched_on(value: str | None) -> bool:
    """Whether a switch variable counts as on for the CLI."""
    return (value or "").strip().lower() in {"1", "true", "yes", "on"}


def check_variables(env: Mapping[str, str]) -> None:
    """Check that `env` can be an environment. Raises `ConfigurationError(option="env")`, whose message holds no value."""
    if not isinstance(env, Mapping):
        raise ConfigurationError(f"env: must be a mapping, not {type(env).__name__}", option="env")
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name:
            raise ConfigurationError(f"env: {name!r} is not a variable name", option="env")
        if not isinstance(value, str):
            raise ConfigurationError(f"env: the value of {name} must be a string, not {type(value).__name__}", option="env")


def forbidden_variables(billing: BillingPolicy) -> tuple[str, ...]:
    """Return the variables that must not reach the child under this billing policy, because another account would pay."""
    if billing == "api_key":
        return NOT_API_KEY
    return () if billing == "inherit" else NOT_SUBSCRIPTION


def forbidden_in(env: Mapping[str, str], billing: BillingPolicy) -> list[str]:
    """Return the names of what is set in `env` and must not reach the child under this policy; never a value.

    `ANTHROPIC_CUSTOM_HEADERS` is among them when one of its headers is a credential, by name.
    """
    found = [name for name in forbidden_variables(billing) if env.get(name)]
    if billing != "inherit" and _has_credential_header(env.get(CUSTOM_HEADERS, "")):
        found.append(CUSTOM_HEADERS)
    return found


def _has_credential_header(text: str) -> bool:
    """Whether one of the headers in `text` (`NAME: VALUE`, one on a line) is a credential."""
    # the CLI trims names as JavaScript does, which takes a byte-order mark for white space
    names = (line.partition(":")[0].replace("\ufeff", "").strip().lower() for line in text.splitlines())
    return any(name in CREDENTIAL_HEADERS for name in names)


def settings_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the `env` block of parsed settings, whose variables win over those of the process; empty when it cannot be read."""
    block = settings.get("env")
    return {str(name): str(value) for name, value in block.items()} if isinstance(block, Mapping) else {}


def bare_can_authenticate(env: Mapping[str, str], settings: Mapping[str, Any]) -> bool:
    """Whether a session started with `--bare` would find a credential: a key, a token or a cloud in `env`, or a key helper in
    `settings`.

    Observed: `--bare` works with `ANTHROPIC_API_KEY` and `ANTHROPIC_AUTH_TOKEN`. It does not read the login and `CLAUDE_CODE_OAUTH_TOKEN`.
    """
    env = {**env, **settings_variables(settings)}
    if env.get("ANTHROPIC_API_KEY") or env.get("ANTHROPIC_AUTH_TOKEN") or settings.get("apiKeyHelper"):
        return True
    return any(is_switched_on(env.get(name)) for name in CLOUD_SWITCHES)


def build_environment(options: ClaudeOptions, inherited: Mapping[str, str], *, platform: str = sys.platform) -> dict[str, str]:
    """Return the complete environment for the CLI process, as a new dict.

    It has the variables of `inherited` (usually `os.environ`), over them what the options imply, and over both the option `env`. Marks of
    an enclosing Claude session are left out, and so is what the options `billing`, `env_mode` and `env_allow` exclude. `platform` is a
    value as in `sys.platform`; on Windows, names are upper-cased.

    Raises `ConfigurationError` for an `env` that is not a mapping of texts, and when the billing policy cannot be kept: `env` sets a
    variable that it forbids, or one is set at all (`subscription_strict`), or the key that it needs is missing (`api_key`).
    """
    return _plan(options, inherited, platform)[0]


def describe_environment(options: ClaudeOptions, inherited: Mapping[str, str], *, platform: str = sys.platform) -> dict[str, str]:
    """Return, for each variable name, why the CLI process would have that variable or not: a dict sorted by name, without any values.

    The text is `inherited`, `options.env`, `option NAME` (another option sets it), or `removed: WHY`. The arguments and the errors are
    those of `build_environment`.
    """
    return dict(sorted(_plan(options, inherited, platform)[1].items()))


def _plan(options: ClaudeOptions, inherited: Mapping[str, str], platform: str) -> tuple[dict[str, str], dict[str, str]]:
    fold = str.upper if windows.is_windows(platform) else str  # names are case-insensitive on Windows, as they are in os.environ there
    check_variables(options.env)
    given = {fold(name): value for name, value in options.env.items()}
    inherited = {fold(name): value for name, value in inherited.items()}
    _check_billing(options, inherited, given)
    allowed = (*ALWAYS_ALLOWED, *map(fold, options.env_allow))
    env: dict[str, str] = {}
    origins: dict[str, str] = {}
    forbidden = {*forbidden_variables(options.billing), *forbidden_in(inherited, options.billing)}
    for name, value in inherited.items():
        reason = _why_removed(name, options, allowed=allowed, forbidden=forbidden)
        if reason is None:
            env[name] = value
        origins[name] = "inherited" if reason is None else f"removed: {reason}"
    for row in VARIABLES:
        value = getattr(options, row.option)
        if value is not None and value is not False:
            env[row.name] = _written(row, value)
            origins[row.name] = f"option {row.option}"
    if options.cwd is not None and not windows.is_windows(platform):
        env |= {"PWD": os.path.abspath(options.cwd)}  # noqa: PTH100 - resolving links is what PWD is there to avoid
        origins |= {"PWD": "option cwd"}
    for name, value in given.items():
        env[name] = value
        origins[name] = "options.env"
    if options.billing == "api_key" and not env.get("ANTHROPIC_API_KEY"):
        raise ConfigurationError('billing="api_key" needs ANTHROPIC_API_KEY, in the environment or in env; it is not set', option="billing")
    return env, origins


def _why_removed(name: str, options: ClaudeOptions, *, allowed: tuple[str, ...], forbidden: set[str]) -> str | None:
    """Return the rule that removes the inherited variable `name`, or None."""
    if options.env_mode == "exact":
        return 'env_mode="exact"'
    if name in NESTING:
        return "mark of an enclosing session"
    if name in forbidden:
        return f'billing="{options.billing}"'
    if options.env_mode == "allowlist" and not any(fnmatch.fnmatchcase(name, rule) for rule in allowed):
        return "not in env_allow"
    return None


def _written(row: Variable, value: Any) -> str:
    try:
        return row.convert(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"{row.option}: {value!r} cannot be written into the variable {row.name}: {error}", option=row.option
        ) from error


def _check_billing(options: ClaudeOptions, inherited: Mapping[str, str], given: Mapping[str, str]) -> None:
    clash = forbidden_in(given, options.billing)
    if clash:
        raise ConfigurationError(
            f'env sets {", ".join(clash)}, which billing="{options.billing}" forbids; remove one of the two', option="env"
        )
    if options.billing == "subscription_strict":
        found = forbidden_in(inherited, options.billing)
        if found:
            raise ConfigurationError(
                f'billing="subscription_strict" refuses to start while {", ".join(found)} is set: another account might pay. '
                'Unset it, or use billing="subscription", which keeps it from the child.',
                option="billing",
            )
