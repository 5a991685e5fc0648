"""Checks before a call: which path it would take, which credential would be used, which account pays, and what is wrong.

`preflight` answers all of this without starting a session. `read_login_status` asks the CLI for its login. Which path is chosen is decided
in `resolution`; which credential the CLI uses is decided in `launch.credentials`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import anyio
import msgspec

from claude_transport.agents.registry import find_agent
from claude_transport.client.shadowing import check_payer
from claude_transport.completion.models import check_model
from claude_transport.completion.resolution import (
    API_VARIABLES,
    NO_AGENT,
    NO_KEY,
    NO_PATH,
    AgentChoice,
    AgentKind,
    AgentResolution,
    AvailableMeans,
    Cell,
    Resolution,
    TransportChoice,
    TransportKind,
    can_run_other,
    cell_of,
    check_has_path,
    choose_agent,
    has_api_key,
    resolve_transport,
)
from claude_transport.errors import CLINotFoundError, ConfigurationError, NotExecutableError, SpawnError, UsageError
from claude_transport.launch import windows
from claude_transport.launch.credentials import CredentialReport, Payer, describe_credentials
from claude_transport.launch.discovery import CLI, find_cli, read_cli_version
from claude_transport.launch.environ import build_environment
from claude_transport.launch.options import AgentOptions, BillingPolicy, ClaudeOptions, SettingSource
from claude_transport.launch.settings import load_settings
from claude_transport.transport import TransportLike

if TYPE_CHECKING:
    from claude_transport.codex.options import CodexOptions

# The program of the CLI path, as data, so that another agent's program can be added.


class _Find(Protocol):
    def __call__(self, explicit: str | PathLike[str] | None = None, /, *, env: Mapping[str, str]) -> CLI: ...


class _ReadVersion(Protocol):
    def __call__(self, cli: CLI, /) -> str | None: ...


class AgentCLI(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's program: its name, how to find it (raises `CLINotFoundError`), and how to read its version without starting it."""

    name: str
    find: _Find
    read_version: _ReadVersion


CLAUDE_CODE: Final = AgentCLI(name="claude-code", find=find_cli, read_version=read_cli_version)
"""Claude Code, the agent of the CLI path."""


# `claude auth status`: what the CLI reports about its login, without asking a server.


_ARGUMENTS: Final = ("auth", "status", "--json")


class LoginStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of `claude auth status`: whether the CLI has a credential, and of which kind. It holds no name, address or secret.

    `subscription_type` is set for the login of a subscription, `api_key_source` names where an API key comes from.
    """

    logged_in: bool
    auth_method: str = ""
    api_provider: str = ""
    api_key_source: str | None = None
    subscription_type: str | None = None


async def read_login_status(
    cli: CLI | str | PathLike[str], *, env: Mapping[str, str], cwd: str | PathLike[str] | None = None, timeout: float = 10.0
) -> LoginStatus | None:
    """Run `claude auth status` with the environment `env`, in the directory `cwd`, and return what it reports. It asks no server.

    Returns None when the CLI does not know that command, or does not answer within `timeout` seconds; it is killed then. Raises
    `SpawnError` when it cannot be started.
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
                creationflags=windows.creation_flags(sys.platform),
            )
        except OSError as error:
            raise SpawnError(f"{program} cannot be started: {error.strerror or type(error).__name__}", path=program) from error
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # an older CLI takes the words for a prompt, or refuses them
            return msgspec.json.decode(done.stdout, type=LoginStatus)
    return None


# The settings that a session would load by itself, as far as they decide about credentials.


_NAMES: Final[Mapping[SettingSource, str]] = {"project": "settings.json", "local": "settings.local.json"}


def find_config_dir(env: Mapping[str, str]) -> Path:
    """Return the directory where a CLI with this environment keeps its configuration and, on Linux, its login.

    Raises `ConfigurationError` when it is unknown: a container's user may have no HOME and no entry among the system's users.
    """
    given = env.get("CLAUDE_CONFIG_DIR")
    if given:
        return Path(given)
    home = windows.home_folder(env, platform=sys.platform)
    try:
        return (Path(home) if home else Path.home()) / ".claude"
    except RuntimeError as error:
        raise ConfigurationError("this user has no home directory: set HOME, or CLAUDE_CONFIG_DIR", option="HOME") from error


def read_user_settings(
    env: Mapping[str, str], *, project: str | PathLike[str] = ".", sources: Collection[SettingSource] | None = None
) -> dict[str, Any]:
    """Read the user's settings, then the project's over them. Only `env` and `apiKeyHelper` are returned.

    `sources` are the sources that the session reads; None is all of them, as for the CLI. A file that is missing or unreadable is skipped,
    as by the CLI.
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
    """What would happen to a call: the result of `preflight()`. It holds names and paths, never a secret.

    `ok` says whether the call may be tried. `problem` says why it cannot work and what to do, `code` is its stable code, and `option` names
    the option that causes it. `problem` may be set although `ok` is True. The path that was asked for may be closed and the other one open,
    or no credential was found for the CLI, whose login may be kept elsewhere. `choice` is the requested path, `resolution` the chosen one;
    None when neither path is possible. `row` and `cell` are the place in the table of docs/reference/transport-choice.md.

    `cli`, `cli_version` and `searched` tell which program was found, and where. `credential` (a name) and `payer` belong to the chosen
    path. `agent_resolution` is the chosen agent, and None when `auto` finds none. `cli` and `cli_version` are those of this agent.
    `cli_credential` is what the CLI would use, `api_credential` the variable that the API path would use, or None. `warnings` are
    sentences about what will probably fail, or what an unexpected account would pay.
    """

    ok: bool
    row: AvailableMeans
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
    agent_resolution: AgentResolution | None = AgentResolution()

    @property
    def agent(self) -> AgentKind | None:
        """The name of the agent that would answer; None when `auto` finds none."""
        return None if self.agent_resolution is None else self.agent_resolution.kind

    def raise_for_problem(self) -> Self:
        """Return this report when `ok` is True. Otherwise raise `ConfigurationError` with `problem`, `code` and `option`."""
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
    agent: AgentCLI | AgentChoice | None = None,
    codex: CodexOptions | None = None,
) -> PreflightReport:
    """Check what would happen to a call of `complete()` with this choice in this environment. Starts nothing, and opens no credential.

    The report is `ok` when either path works. When the path that was asked for cannot work, that is a warning in the report, and an error
    of the call.

    Args:
        transport: the choice for one call; `declared` is that of the project. See `resolve_transport`.
        env: the environment; None is that of this process.
        options: how the CLI would run. `cli_path`, `env`, `settings`, `bare` and `cwd` count.
        billing: the billing policy, if it is not that of `options`. A policy that cannot be kept is a problem.
        strict: require ANTHROPIC_API_KEY, so that a job that should use it does not silently use a subscription.
        cli_available, api_key_available: whether there is a CLI, and a key, if you know it; None looks for them.
        login_status: what `read_login_status` returned. A CLI that is not logged in is then a problem.
        agent: which agent answers, as in `complete()`; None reads `CLAUDE_TRANSPORT_AGENT` and `declared`. Or an `AgentCLI`: how to find
            the program of the CLI path.
        codex: how Codex would run, when it answers.

    Raises `ConfigurationError` only for an unknown choice, or for options that are not valid. Problems are in the report.
    """
    env = os.environ if env is None else env
    options = (options or ClaudeOptions()).replace(**({} if billing is None else {"billing": billing}))
    program = agent if isinstance(agent, AgentCLI) else CLAUDE_CODE
    cli, searched = _find(program, options, env) if cli_available is not False else (None, ())
    has_cli = cli is not None if cli_available is None else cli_available
    given = build_environment(options.replace(billing="inherit"), env)  # of the API path, too; the policy is checked below
    has_key = has_api_key(given) if api_key_available is None else api_key_available
    choice, resolution = _resolve(transport, env, declared, has_cli=has_cli, has_key=has_key)
    row, cell = AvailableMeans(api_key=has_key, cli=has_cli), cell_of(choice, api_key=has_key, cli=has_cli)
    chosen = _choose_agent(agent, env, declared, choice=choice, row=row, codex=codex)
    if chosen is not None and chosen.kind != "claude-code":
        return _preflight_other(chosen, resolution, choice, row, env, options=options, agent_options=codex)
    by_cli, broken = _describe(options, env, login_status) if has_cli else (None, "")
    by_api = api_credential_of(given)
    obstacle = _obstacle(cell, choice, given, options, agent=chosen, strict=strict, broken=broken, status=login_status)
    problem, code, option = obstacle if obstacle[0] else _doubt(cell, by_cli)
    return PreflightReport(
        ok=not obstacle[0],
        row=row,
        choice=choice,
        cell=cell,
        resolution=resolution,
        problem=problem,
        code=code,
        option=option,
        cli=cli,
        cli_version=None if cli is None else program.read_version(cli),
        searched=searched,
        credential=_winner(cell.kind, by_cli, by_api),
        payer=_payer(cell.kind, by_cli, by_api),
        cli_credential=by_cli,
        api_credential=by_api,
        login_status=login_status,
        warnings=_warnings(cell, by_cli, by_api),
        agent_resolution=chosen,
    )


def _choose_agent(
    agent: AgentCLI | AgentChoice | None,
    env: Mapping[str, str],
    declared: str | Mapping[str, Any] | None,
    *,
    choice: TransportChoice,
    row: AvailableMeans,
    codex: CodexOptions | None,
) -> AgentResolution | None:
    """Choose the agent; None for `auto` without any. Raises `ConfigurationError` for an unknown one."""
    if isinstance(agent, AgentCLI):
        return AgentResolution()
    try:
        return choose_agent(
            agent,
            env=env,
            declared=declared,
            transport=choice,
            has_cli=lambda: row.cli,
            has_other=lambda: can_run_other(codex, env=env),
            has_key=lambda: row.api_key,
        )
    except ConfigurationError as error:
        if error.code != "config.no_agent":
            raise
        return None


class _AskedLater(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is only examined: an `AskedCall` without a prompt."""

    options: ClaudeOptions
    agent_options: AgentOptions | None
    chosen: AgentResolution
    prompt: str = ""
    arguments: Mapping[str, str] = {}
    plain: bool = False
    makes_transport: bool = False
    close_timeout: float | None = None

    def transport_with(self, options: AgentOptions) -> TransportLike:
        raise UsageError("preflight() asks nothing")


def _preflight_other(
    chosen: AgentResolution,
    asked: Resolution | None,
    choice: TransportChoice,
    row: AvailableMeans,
    env: Mapping[str, str],
    *,
    options: ClaudeOptions,
    agent_options: AgentOptions | None,
) -> PreflightReport:
    """Check a call that another agent answers. `asked` is the path that Claude would take, and `row` what there is of it."""
    agent = find_agent(chosen.kind)
    resolution = Resolution(kind="cli", layer=chosen.layer, choice=choice, reason=chosen.reason)
    problem, code, option = "", None, None
    cli: CLI | None = None
    searched: tuple[str, ...] = ()
    credential: CredentialReport | None = None
    try:
        check_has_path(asked or resolution, chosen, title=agent.title)
        planned = agent.plan_call(_AskedLater(options=options, agent_options=agent_options, chosen=chosen), env)
        check_model(planned.model, chosen)
        credential = planned.credential
        cli = agent.find(planned.options, env)
        searched = cli.searched
    except CLINotFoundError as error:
        problem, code, option, searched = str(error), error.code, f"{agent.program}_path", error.searched
    except (ConfigurationError, NotExecutableError) as error:
        problem, code, option = str(error), error.code, getattr(error, "option", f"{agent.program}_path")
    ok = not problem
    if ok and credential is not None and credential.missing:
        problem, code = credential.missing, NO_KEY
    return PreflightReport(
        ok=ok,
        row=row,
        choice=choice,
        cell=Cell("cli"),
        resolution=resolution,
        problem=problem,
        code=code,
        option=option,
        cli=cli,
        cli_version=None if cli is None else read_cli_version(cli),
        searched=searched,
        credential=None if credential is None else credential.name,
        payer="nobody" if credential is None else credential.payer,
        cli_credential=credential,
        warnings=() if credential is None else credential.notes,
        agent_resolution=chosen,
    )


def api_credential_of(env: Mapping[str, str]) -> str | None:
    """Return the variable that the API path would authenticate with: the key before the token, as in the SDK. None without either.

    Observed on anthropic 2.11: with both set there is one `Authorization` header, with the key in it. (The CLI sends both.)
    """
    return next((name for name in API_VARIABLES if env.get(name, "").strip()), None)


def check_billing(kind: TransportKind, billing: BillingPolicy) -> None:
    """Check that this billing policy allows this path. Raises `ConfigurationError` if not: the API cannot use a subscription."""
    if kind == "api" and billing in _SUBSCRIPTION:
        raise ConfigurationError(
            f'billing="{billing}" is not possible on the API path, which cannot use a subscription: use transport="cli", or another policy',
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
    transport: TransportChoice | None, env: Mapping[str, str], declared: str | Mapping[str, Any] | None, *, has_cli: bool, has_key: bool
) -> tuple[TransportChoice, Resolution | None]:
    """Resolve the choice; None for `auto` without a CLI and a key."""
    # with a CLI every choice resolves, so the report names the choice also where nothing works
    assumed = resolve_transport(transport, env=env, declared=declared, cli_available=True, api_key_available=True)
    if assumed.choice == "auto" and not has_cli and not has_key:
        return "auto", None
    return assumed.choice, resolve_transport(transport, env=env, declared=declared, cli_available=has_cli, api_key_available=has_key)


def _describe(options: ClaudeOptions, env: Mapping[str, str], status: LoginStatus | None) -> tuple[CredentialReport | None, str]:
    """Find the credential that the CLI would use, and the problem when the billing policy cannot be kept."""
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
    """Add to the report what only the CLI knows: macOS and Windows keep the login outside of files."""
    if status is None or not status.logged_in or found.winner not in {"none", "unknown"}:
        return found
    if status.auth_method == "api_key":
        return msgspec.structs.replace(
            found, winner="api_key", name=status.api_key_source, payer="api account", headers=("x-api-key",), missing=""
        )
    name = f"login ({status.subscription_type})" if status.subscription_type else "login"
    return msgspec.structs.replace(found, winner="login", name=name, payer="subscription", headers=("Authorization",), missing="")


def _obstacle(
    cell: Cell,
    choice: TransportChoice,
    env: Mapping[str, str],
    options: ClaudeOptions,
    *,
    agent: AgentResolution | None,
    strict: bool,
    broken: str,
    status: LoginStatus | None,
) -> tuple[str, str | None, str | None]:
    """Return why the call may not be tried, the code, and the option at fault; an empty sentence when it may."""
    if agent is None:
        return NO_AGENT, "config.no_agent", "agent"
    if cell.failure == "preflight":
        return NO_PATH[choice], cell.code, "transport"
    if strict and not env.get("ANTHROPIC_API_KEY", "").strip():
        return "ANTHROPIC_API_KEY is not set, and the strict check requires it", "config.no_api_key", None
    if cell.kind is None:
        return "", None, None
    try:
        check_model(options.model, agent)
        check_billing(cell.kind, options.billing)
    except ConfigurationError as error:
        return str(error), error.code, error.option
    if cell.kind == "cli" and broken:
        return broken, ConfigurationError.code, "billing"
    if cell.kind == "cli" and cell.failure is None and status is not None and not status.logged_in:
        return "claude is not logged in: run `claude` and /login, or set ANTHROPIC_API_KEY", "exec.cli.auth_failed", None
    return "", None, None


def _doubt(cell: Cell, by_cli: CredentialReport | None) -> tuple[str, str | None, str | None]:
    """Return why a call that may be tried will probably fail, the code, and the option at fault; an empty sentence when it will not."""
    if cell.failure == "call" and cell.kind is not None:
        return NO_PATH[cell.kind], cell.code, "transport"
    if cell.kind == "cli" and by_cli is not None and by_cli.missing:
        return by_cli.missing, NO_KEY, None
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
