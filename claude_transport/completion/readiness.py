"""Before anything is spent: which path a call would take, which credential would win, who would pay, and what stands in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, Protocol, Self

import anyio
import msgspec

from claude_transport.client.shadowing import check_payer
from claude_transport.completion.resolution import (
    API_VARIABLES,
    NO_PATH,
    Cell,
    Resolution,
    Row,
    TransportChoice,
    TransportKind,
    cell_of,
    has_api_key,
    resolve_transport,
)
from claude_transport.errors import CLINotFoundError, ConfigurationError, NotExecutableError, SpawnError
from claude_transport.launch.credentials import CredentialReport, Payer, describe_credentials
from claude_transport.launch.discovery import CLI, find_cli, read_cli_version
from claude_transport.launch.environ import build_environment
from claude_transport.launch.options import BillingPolicy, ClaudeOptions, SettingSource
from claude_transport.launch.settings import load_settings
from claude_transport.launch.windows import creation_flags

# --- Which agent's CLI the CLI path runs: a description, so that another one could be added beside it (S1.10).


class _Find(Protocol):
    def __call__(self, explicit: str | PathLike[str] | None = None, /, *, env: Mapping[str, str]) -> CLI: ...


class _ReadVersion(Protocol):
    def __call__(self, cli: CLI, /) -> str | None: ...


class AgentCLI(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's program: its name, how it is found (raising `CLINotFoundError`), and how its version is read without starting it."""

    name: str
    find: _Find
    read_version: _ReadVersion


CLAUDE_CODE: Final = AgentCLI(name="claude-code", find=find_cli, read_version=read_cli_version)
"""Claude Code, whose protocol this library speaks."""


# --- What the CLI itself says of its login: `claude auth status`, which asks nobody and sends nothing.


_ARGUMENTS: Final = ("auth", "status", "--json")


class LoginStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the CLI has a credential, and of which kind; no name, address or secret of anybody."""

    logged_in: bool
    auth_method: str = ""
    api_provider: str = ""
    api_key_source: str | None = None
    subscription_type: str | None = None


async def read_login_status(
    cli: CLI | str | PathLike[str], *, env: Mapping[str, str], cwd: str | PathLike[str] | None = None, timeout: float = 10.0
) -> LoginStatus | None:
    """What `claude auth status` says in this environment (the child's, complete); None from a CLI that does not know the command.

    One process, killed after `timeout` seconds, which is None, too. Raises `SpawnError` when it cannot be started.
    """
    program = cli.path if isinstance(cli, CLI) else os.fspath(cli)
    with anyio.move_on_after(timeout):
        try:
            done = await anyio.run_process(
                [program, *_ARGUMENTS],
                check=False,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(env),
                cwd=cwd,
                creationflags=creation_flags(sys.platform),
            )
        except OSError as error:
            raise SpawnError(f"{program} cannot be started: {error.strerror or type(error).__name__}", path=program) from error
        try:
            return msgspec.json.decode(done.stdout, type=LoginStatus)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None  # an older CLI takes the words for a prompt, or refuses them
    return None


# --- The settings that a session would load of itself, as far as they decide about credentials; read as the CLI reads them, never written.


_NAMES: Final[Mapping[SettingSource, str]] = {"project": "settings.json", "local": "settings.local.json"}


def find_config_dir(env: Mapping[str, str]) -> Path:
    """Where a CLI with this environment keeps its configuration and, on Linux, its login.

    Raises `ConfigurationError` when nobody knows: for a container's user that has no HOME and no entry among the system's users.
    """
    given = env.get("CLAUDE_CONFIG_DIR")
    if given:
        return Path(given)
    home = env.get("HOME") or env.get("USERPROFILE")
    try:
        return (Path(home) if home else Path.home()) / ".claude"
    except RuntimeError as error:
        raise ConfigurationError("this user has no home directory: set HOME, or CLAUDE_CONFIG_DIR", option="HOME") from error


def read_user_settings(
    env: Mapping[str, str], *, project: str | PathLike[str] = ".", sources: Collection[SettingSource] | None = None
) -> dict[str, Any]:
    """The user's settings with the project's laid over them: `env` and `apiKeyHelper`, and nothing else of them.

    `sources` are those that the session reads; None is all of them, as it is for the CLI. A file that is not there, or cannot be read, is
    left out, as the CLI leaves it out.
    """
    found: dict[str, Any] = {"env": {}}
    paths: dict[SettingSource, Path] = {"user": find_config_dir(env) / "settings.json"}
    paths |= {source: Path(project) / ".claude" / name for source, name in _NAMES.items()}
    for path in [path for source, path in paths.items() if sources is None or source in sources]:
        try:
            document = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(document, dict):
            block = document.get("env")
            found["env"] |= block if isinstance(block, dict) else {}
            found["apiKeyHelper"] = document.get("apiKeyHelper") or found.get("apiKeyHelper")
    return found


_SUBSCRIPTION: Final = frozenset({"subscription", "subscription_strict"})


class PreflightReport(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen to a call; names and paths, never a secret.

    `ok` is whether the call may be tried, else `problem` says why not and what to do, under the stable `code`. `resolution` is None when
    there is nothing to choose from. `row` and `cell` are the place in the matrix. `credential` and `payer` belong to the path that was
    chosen; `api_credential` is the variable the API path would use, None without one. `warnings` are sentences about what will probably
    go wrong, or will be paid by somebody one would not expect.
    """

    ok: bool
    row: Row
    choice: TransportChoice
    cell: Cell
    resolution: Resolution | None = None
    problem: str = ""
    code: str | None = None
    option: str | None = None
    cli: CLI | None = None
    cli_version: str | None = None
    searched: tuple[str, ...] = ()
    credential: str | None = None
    payer: Payer = "nobody"
    cli_credential: CredentialReport | None = None
    api_credential: str | None = None
    login_status: LoginStatus | None = None
    warnings: tuple[str, ...] = ()

    def raise_for_problem(self) -> Self:
        """The report itself when the call may be tried; raises `ConfigurationError` with the problem when not."""
        if self.ok:
            return self
        if self.code == "exec.cli.auth_failed":
            raise ConfigurationError(self.problem, option=self.option, code=self.code, category="auth")
        raise ConfigurationError(self.problem, option=self.option, code=self.code)


def preflight(
    transport: TransportChoice | None = None,
    *,
    env: Mapping[str, str] | None = None,
    declared: str | Mapping[str, Any] | None = None,
    options: ClaudeOptions | None = None,
    billing: BillingPolicy | None = None,
    strict: bool = False,
    cli_available: bool | None = None,
    api_key_available: bool | None = None,
    login_status: LoginStatus | None = None,
    agent: AgentCLI = CLAUDE_CODE,
) -> PreflightReport:
    """What would become of a call with this choice in this environment; nothing is started, and no credential is opened.

    Passes when either path is open: one that was insisted on and cannot work is a warning here and an error of the call (S1.2).

    Args:
        transport: the choice of this one call, `declared` that of its project; see `resolve_transport`.
        env: the environment of this process, or another one.
        options: what the CLI would be run with; its `cli_path`, `env`, `settings`, `bare` and `cwd` count.
        billing: the policy, if not that of `options`. One that cannot be kept is a problem.
        strict: require ANTHROPIC_API_KEY, so that a job that means to use it does not silently run on somebody's subscription (S1.5).
        cli_available, api_key_available: facts that need not be found out.
        login_status: what `read_login_status` found out; a CLI that says that it is not logged in is then a problem.

    Raises `ConfigurationError` only for a choice that is none, or for options that make no sense.
    """
    env = os.environ if env is None else env
    options = (options or ClaudeOptions()).replace(**({} if billing is None else {"billing": billing}))
    cli, searched = _find(agent, options, env) if cli_available is not False else (None, ())
    has_cli = cli is not None if cli_available is None else cli_available
    # the API path reads its key from the environment that a CLI would be given; what may pay is asked below
    given = build_environment(options.replace(billing="inherit"), env)
    has_key = has_api_key(given) if api_key_available is None else api_key_available
    choice, resolution = _resolve(transport, env, declared, has_cli=has_cli, has_key=has_key)
    cell = cell_of(choice, api_key=has_key, cli=has_cli)
    by_cli, broken = _describe(options, env, login_status) if has_cli else (None, "")
    by_api = api_credential_of(given)
    kind = cell.kind
    problem, code, option = _problem(cell, given, options, strict=strict, broken=broken, status=login_status)
    return PreflightReport(
        ok=not problem,
        row=Row(api_key=has_key, cli=has_cli),
        choice=choice,
        cell=cell,
        resolution=resolution,
        problem=problem,
        code=code,
        option=option,
        cli=cli,
        cli_version=None if cli is None else agent.read_version(cli),
        searched=searched,
        credential=_winner(kind, by_cli, by_api),
        payer=_payer(kind, by_cli, by_api),
        cli_credential=by_cli,
        api_credential=by_api,
        login_status=login_status,
        warnings=_warnings(cell, by_cli, by_api),
    )


def api_credential_of(env: Mapping[str, str]) -> str | None:
    """The variable that the API path would authenticate with: the key before the token, as the SDK has it; None without either.

    Observed on anthropic 2.11: with both set there is one `Authorization` header, and the key is in it. (The CLI sends both.)
    """
    return next((name for name in API_VARIABLES if env.get(name, "").strip()), None)


def check_billing(kind: TransportKind, billing: BillingPolicy) -> None:
    """Return when this path can be paid for by this policy, else raise `ConfigurationError`: the API cannot use a subscription."""
    if kind == "api" and billing in _SUBSCRIPTION:
        raise ConfigurationError(
            f'billing="{billing}" cannot be kept on the API path, which knows no subscription: use transport="cli", or another policy',
            option="billing",
        )


def _find(agent: AgentCLI, options: ClaudeOptions, env: Mapping[str, str]) -> tuple[CLI | None, tuple[str, ...]]:
    try:
        cli = agent.find(options.cli_path, env=env)
    except CLINotFoundError as error:
        return None, error.searched
    except NotExecutableError as error:
        return None, (str(error),)
    return cli, cli.searched


def _resolve(
    transport: TransportChoice | None,
    env: Mapping[str, str],
    declared: str | Mapping[str, Any] | None,
    *,
    has_cli: bool,
    has_key: bool,
) -> tuple[TransportChoice, Resolution | None]:
    """The choice, and what it comes to; None for `auto` with nothing to choose from."""
    # with a CLI every choice resolves, so that what was chosen is known also where there is nothing
    assumed = resolve_transport(transport, env=env, declared=declared, cli_available=True, api_key_available=True)
    if assumed.choice == "auto" and not has_cli and not has_key:
        return "auto", None
    return assumed.choice, resolve_transport(transport, env=env, declared=declared, cli_available=has_cli, api_key_available=has_key)


def _describe(options: ClaudeOptions, env: Mapping[str, str], status: LoginStatus | None) -> tuple[CredentialReport | None, str]:
    """Which credential the CLI would use, and why it must not, when the billing policy cannot be kept."""
    try:
        child = build_environment(options, env)
    except ConfigurationError as error:
        return None, str(error)
    settings = read_user_settings(child, project=options.cwd or ".", sources=options.setting_sources)
    given = load_settings(options)
    block = given.get("env")
    settings = {**settings, **given, "env": {**settings["env"], **(block if isinstance(block, Mapping) else {})}}
    found = describe_credentials(child, settings=settings, config_dir=find_config_dir(child), bare=options.bare)
    found = _with_status(found, status)
    try:
        check_payer(options.billing, found.payer, found.name)
    except ConfigurationError as error:
        return found, str(error)
    return found, ""


def _with_status(found: CredentialReport, status: LoginStatus | None) -> CredentialReport:
    """What the files could not tell (macOS and Windows keep the login elsewhere) from what the CLI says of itself."""
    if status is None or not status.logged_in or found.winner not in {"none", "unknown"}:
        return found
    if status.auth_method == "api_key":
        return msgspec.structs.replace(found, winner="api_key", name=status.api_key_source, payer="api account", headers=("x-api-key",))
    name = f"login ({status.subscription_type})" if status.subscription_type else "login"
    return msgspec.structs.replace(found, winner="login", name=name, payer="subscription", headers=("Authorization",))


def _problem(
    cell: Cell, env: Mapping[str, str], options: ClaudeOptions, *, strict: bool, broken: str, status: LoginStatus | None
) -> tuple[str, str | None, str | None]:
    """Why the call may not be tried, the code, and the option to blame; an empty sentence when it may."""
    if cell.failure == "preflight":
        return NO_PATH, cell.code, "transport"
    if strict and not env.get("ANTHROPIC_API_KEY", "").strip():
        return "ANTHROPIC_API_KEY is not set, and the strict check requires it", "config.no_api_key", None
    if cell.kind is None:
        return "", None, None
    try:
        check_billing(cell.kind, options.billing)
    except ConfigurationError as error:
        return str(error), error.code, error.option
    if cell.kind == "cli" and broken:
        return broken, ConfigurationError.code, "billing"
    if cell.kind == "cli" and cell.failure is None and status is not None and not status.logged_in:
        return "claude is not logged in: run `claude` and /login, or set ANTHROPIC_API_KEY", "exec.cli.auth_failed", None
    return "", None, None


def _winner(kind: TransportKind | None, by_cli: CredentialReport | None, by_api: str | None) -> str | None:
    if kind == "api":
        return by_api
    return by_cli.name if kind == "cli" and by_cli is not None else None


def _payer(kind: TransportKind | None, by_cli: CredentialReport | None, by_api: str | None) -> Payer:
    if kind == "api" and by_api is not None:
        return "api account" if by_api == "ANTHROPIC_API_KEY" else "token owner"
    return by_cli.payer if kind == "cli" and by_cli is not None else "nobody"


def _warnings(cell: Cell, by_cli: CredentialReport | None, by_api: str | None) -> tuple[str, ...]:
    found = []
    if cell.failure == "call":
        found.append(f"the call will fail: {cell.note} [{cell.code}]")
    if cell.kind == "cli" and by_cli is not None:
        found += by_cli.notes
        if by_cli.winner == "none" and cell.failure is None:
            found.append("no credential was found for claude: it will say that it is not logged in, unless its login is kept elsewhere")
        if by_cli.winner in {"api_key", "auth_token"} and by_api is not None:
            found.append(f'{by_cli.name} wins over the login of claude: billing="subscription" keeps it from the child')
    return tuple(found)
