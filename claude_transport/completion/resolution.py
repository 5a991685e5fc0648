"""Chooses the path of a call, the CLI or the API, and the agent that answers it: four layers of choices, and one table.

`resolve_transport` and `resolve_agent` are pure when all facts are passed: they then read no environment and no file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

import msgspec

from claude_transport.agents.registry import agent_names, find_agent
from claude_transport.errors import CLINotFoundError, ConfigurationError, NotExecutableError
from claude_transport.launch.discovery import ADVICE, find_cli
from claude_transport.launch.options import AgentOptions

TransportKind: TypeAlias = Literal["cli", "api"]
TransportChoice: TypeAlias = Literal["auto", "cli", "api"]
AgentKind: TypeAlias = str
"""The name of an agent: `claude-code`, `codex`, or that of a plug-in."""
AgentChoice: TypeAlias = str
"""The name of an agent, or `auto`."""
Layer: TypeAlias = Literal["argument", "environment", "declared", "default"]
CellFailure: TypeAlias = Literal["preflight", "call"]

TRANSPORT_VARIABLE: Final = "CLAUDE_TRANSPORT"
CHOICES: Final[tuple[TransportChoice, ...]] = get_args(TransportChoice)

AGENT_VARIABLE: Final = "CLAUDE_TRANSPORT_AGENT"
AGENTS: Final[tuple[AgentChoice, ...]] = ("claude-code", "codex", "auto")
"""The agents of this library, and `auto`. Plug-ins add more."""

API_VARIABLES: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
"""Variables that the API path can authenticate with. One of them counts as "there is an API key"."""

LAYERS: Final[Mapping[Layer, str]] = {
    "argument": "the `transport` argument (`--transport` of the program)",
    "environment": f"the variable `{TRANSPORT_VARIABLE}`; empty or only whitespace is unset",
    "declared": "what a project or a specification declares; an explicit null is a mistake",
    "default": "`auto`",
}
"""The layers that may choose, strongest first: one call, the shell, the project, this library."""

AGENT_LAYERS: Final[Mapping[Layer, str]] = {
    "argument": "the `agent` argument (`--agent` of the program)",
    "environment": f"the variable `{AGENT_VARIABLE}`; empty or only whitespace is unset",
    "declared": "what a project or a specification declares under `agent`; an explicit null is a mistake",
    "default": "`claude-code`",
}
"""The layers that may choose the agent, strongest first."""

NO_PATH: Final[Mapping[TransportChoice, str]] = {
    "auto": (
        "neither path is open: no claude was found, and neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set. "
        "Install Claude Code and log in, or set ANTHROPIC_API_KEY."
    ),
    "cli": f"no claude was found, and the choice is the CLI. {ADVICE}",
    "api": (
        "neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set, and the choice is the API. "
        "Set ANTHROPIC_API_KEY, or install Claude Code and choose the CLI."
    ),
}
"""The error for each choice without an open path: what is missing, and what to do."""


NO_AGENT: Final = (
    "no agent was found: neither a claude nor a codex can be run. Install Claude Code (or set ANTHROPIC_API_KEY), or install Codex."
)


class AvailableMeans(msgspec.Struct, frozen=True):
    """What is available: an API key (or token) in the environment, and a `claude` that can be run."""

    api_key: bool
    cli: bool


class Cell(msgspec.Struct, frozen=True):
    """Result of one choice in one row: the `kind` of path or None, where the call fails, and with which `code`.

    `failure` is None when it works as far as can be told, and `preflight` when there is no path: exit code 2, nothing is tried. It is
    `call` when the check passes because the other path works, and the call fails because this path was asked for.
    """

    kind: TransportKind | None
    failure: CellFailure | None = None
    code: str | None = None
    note: str = ""


NO_CLI: Final = "exec.cli.binary_not_found"
NO_KEY: Final = "exec.cli.auth_failed"
NOTHING: Final = "config.no_auth_path"

MATRIX: Final[Mapping[AvailableMeans, Mapping[TransportChoice, Cell]]] = {
    AvailableMeans(api_key=True, cli=True): {
        "auto": Cell("cli", note="subscription first"),
        "cli": Cell("cli"),
        "api": Cell("api", note="the subscription is bypassed"),
    },
    AvailableMeans(api_key=True, cli=False): {
        "auto": Cell("api"),
        "cli": Cell("cli", "call", NO_CLI, "there is no binary to run"),
        "api": Cell("api"),
    },
    AvailableMeans(api_key=False, cli=True): {
        "auto": Cell("cli"),
        "cli": Cell("cli"),
        "api": Cell("api", "call", NO_KEY, "the API is not asked without a key"),
    },
    AvailableMeans(api_key=False, cli=False): {
        "auto": Cell(None, "preflight", NOTHING, "neither path is open"),
        "cli": Cell("cli", "preflight", NOTHING, "neither path is open"),
        "api": Cell("api", "preflight", NOTHING, "neither path is open"),
    },
}
"""The whole policy: the result of each choice for each combination of what is available."""


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The path that was chosen for a call, and why. `resolve_transport()` returns it.

    `kind` is the path, `cli` or `api`. `layer` is where the choice came from: the `argument` of the call, the `environment`, the `declared`
    choice of the project, or the `default`. `choice` is the value that was found there. `reason` says all this in a sentence.
    """

    kind: TransportKind
    layer: Layer
    reason: str
    choice: TransportChoice = "auto"


def cell_of(choice: TransportChoice, *, api_key: bool, cli: bool) -> Cell:
    """Return the cell of the matrix for this choice and these facts."""
    return MATRIX[AvailableMeans(api_key=api_key, cli=cli)][choice]


def has_api_key(env: Mapping[str, str]) -> bool:
    """Whether `env` holds something that the API path can authenticate with. White space counts as nothing."""
    return any(env.get(name, "").strip() for name in API_VARIABLES)


def resolve_transport(
    explicit: TransportChoice | None = None,
    *,
    env: Mapping[str, str] | None = None,
    declared: str | Mapping[str, Any] | None = None,
    cli_available: bool | None = None,
    api_key_available: bool | None = None,
) -> Resolution:
    """Choose the path of a call (the CLI or the API), and explain the choice. Four places are asked in order: `explicit`, the variable
    `CLAUDE_TRANSPORT`, `declared`, then the default `auto`. The first that has a value decides; `auto` takes the CLI when there is one,
    else the API.

    Args:
        explicit: the choice for this one call, or None.
        env: where `CLAUDE_TRANSPORT` and the two facts below are looked up. None is the environment of this process.
        declared: the choice of the project: the value, or a mapping that holds it under `transport`. None is no choice, but null in the
            mapping is an error.
        cli_available: whether a `claude` can be run. None looks for one (`find_cli`) when it matters.
        api_key_available: whether the API path has a key or a token. None looks into `env` when it matters.

    An explicit `cli` or `api` is not checked here: `preflight` checks it, and the call may fail. Raises `ConfigurationError` for an unknown
    choice (the message names the place), and with code `config.no_auth_path` when `auto` finds neither a CLI nor a key.
    """
    env = os.environ if env is None else env
    choice, layer = _TRANSPORT.choose(explicit, env, declared)
    if choice != "auto":
        return Resolution(kind=choice, layer=layer, choice=choice, reason=f"{_TRANSPORT.who(layer)} says {choice}")
    cli = _can_run(env) if cli_available is None else cli_available
    if cli:
        return Resolution(kind="cli", layer=layer, choice=choice, reason=f"{_TRANSPORT.who(layer)} says auto, and a claude was found")
    key = has_api_key(env) if api_key_available is None else api_key_available
    cell = cell_of(choice, api_key=key, cli=cli)
    if cell.kind is None:
        raise ConfigurationError(NO_PATH[choice], option="transport", code=cell.code)
    reason = f"{_TRANSPORT.who(layer)} says auto, no claude was found, and there is an API key"
    return Resolution(kind=cell.kind, layer=layer, choice=choice, reason=reason)


def check_has_path(resolution: Resolution, agent: AgentResolution, *, title: str) -> None:
    """Raise `ConfigurationError` for a call that goes to the API, and that another agent than Claude is to answer."""
    if resolution.choice == "api":
        raise ConfigurationError(
            f'transport: {_both(resolution, agent)}, and {title} has no API path. Use transport="cli", or agent="claude-code"',
            option="transport",
        )


def _both(resolution: Resolution, agent: AgentResolution) -> str:
    """Return what says that the call goes to the API, and what says that another agent answers. One place may say both."""
    if agent.layer == resolution.layer != "environment" and agent.choice == agent.kind:
        return f"{agent.reason} and {resolution.choice}"
    return f"{resolution.reason}, but {agent.reason}"


class AgentResolution(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that was chosen for a call, and why. `resolve_agent()` returns it.

    `kind` is the name of the agent. `layer` is where the choice came from: the `argument` of the call, the `environment`, the
    `declared` choice of the project, or the `default`. `choice` is the value that was found there. `reason` says all this in a sentence.
    """

    kind: AgentKind = "claude-code"
    layer: Layer = "default"
    reason: str = "the default says claude-code"
    choice: AgentChoice = "claude-code"


def resolve_agent(
    explicit: AgentChoice | None = None,
    *,
    env: Mapping[str, str] | None = None,
    declared: str | Mapping[str, Any] | None = None,
    claude_available: bool | None = None,
    codex_available: bool | None = None,
) -> AgentResolution:
    """Choose the agent of a call (Claude Code or Codex), and explain the choice. Four places are asked in order: `explicit`, the variable
    `CLAUDE_TRANSPORT_AGENT`, `declared`, then the default `claude-code`. The first that has a value decides; `auto` takes Claude Code when
    it is there, else Codex.

    Args:
        explicit: the choice for this one call, or None.
        env: where `CLAUDE_TRANSPORT_AGENT` and the two facts below are looked up. None is the environment of this process.
        declared: the choice of the project: the value, or a mapping that holds it under `agent`. None is no choice, but null in the mapping
            is an error.
        claude_available: whether a `claude` can be run. None looks for one (`find_cli`) when it matters.
        codex_available: whether a `codex` can be run. None looks for one (`find_codex`) when it matters.

    An explicit agent is not checked here: `preflight` checks it, and the call may fail. Raises `ConfigurationError` for an unknown agent
    (the message names the place), and with code `config.no_agent` when `auto` finds none.
    """
    env = os.environ if env is None else env
    choice, layer = _AGENT.choose(explicit, env, declared)
    who = _AGENT.who(layer)
    if choice != "auto":
        return AgentResolution(kind=choice, layer=layer, choice=choice, reason=f"{who} says {choice}")
    if _can_run(env) if claude_available is None else claude_available:
        return AgentResolution(kind="claude-code", layer=layer, choice=choice, reason=f"{who} says auto, and Claude is there")
    if can_run_other(env=env) if codex_available is None else codex_available:
        reason = f"{who} says auto, no claude was found, and a codex was"
        return AgentResolution(kind="codex", layer=layer, choice=choice, reason=reason)
    raise ConfigurationError(NO_AGENT, option="agent", code="config.no_agent")


def choose_agent(
    explicit: AgentChoice | None,
    *,
    env: Mapping[str, str],
    declared: str | Mapping[str, Any] | None,
    transport: TransportChoice,
    has_cli: Callable[[], bool],
    has_other: Callable[[], bool],
    has_key: Callable[[], bool],
) -> AgentResolution:
    """Choose the agent of a call that has made the choice `transport`. The three facts are asked only for `auto`.

    Claude is there when its CLI is, when the call must go to the Messages API, and when there is a key and neither program. A `declared`
    text declares the path, not the agent. Raises what `resolve_agent` raises.
    """
    decide = partial(resolve_agent, explicit, env=env, declared=declared if isinstance(declared, Mapping) else None)
    found = decide(claude_available=True)
    if found.choice != "auto":
        return found
    claude = transport == "api" or has_cli()
    other = not claude and has_other()
    if not claude and not other:
        claude = transport == "auto" and has_key()
    return decide(claude_available=claude, codex_available=other)


ChoiceT = TypeVar("ChoiceT", bound=str)


class _Question(msgspec.Struct, Generic[ChoiceT], frozen=True):
    """What can be chosen in four layers: its name, its variable, the known choices, and the default."""

    name: str
    variable: str
    choices: tuple[ChoiceT, ...]
    default: ChoiceT
    more: Callable[[], tuple[ChoiceT, ...]] | None = None

    def choose(self, explicit: str | None, env: Mapping[str, str], declared: str | Mapping[str, Any] | None) -> tuple[ChoiceT, Layer]:
        """Return the choice of the strongest layer that has one. Raises `ConfigurationError` for an unknown one."""
        if explicit is not None:
            return self._known(explicit, "argument"), "argument"
        variable = env.get(self.variable, "").strip()
        if variable:
            return self._known(variable, "environment"), "environment"
        if isinstance(declared, Mapping):
            if self.name in declared:
                return self._known(declared[self.name], "declared"), "declared"
        elif declared is not None:
            return self._known(declared, "declared"), "declared"
        return self.default, "default"

    def who(self, layer: Layer) -> str:
        """Return the name of the layer in a sentence."""
        return {"argument": "the call", "environment": self.variable, "declared": "the declaration", "default": "the default"}[layer]

    def _known(self, value: object, layer: Layer) -> ChoiceT:
        for known in self.choices:
            if value == known:
                return known
        more = () if self.more is None else self.more()
        if value in more:
            return more[more.index(value)]
        shown = "null" if value is None else repr(value)
        there_are = dict.fromkeys((*self.choices, *more))
        text = f"{self.name}: {self.who(layer)} says {shown}, which is not one of {', '.join(there_are)}"
        raise ConfigurationError(text, option=self.name)


_TRANSPORT: Final[_Question[TransportChoice]] = _Question("transport", TRANSPORT_VARIABLE, CHOICES, "auto")
_AGENT: Final[_Question[AgentChoice]] = _Question("agent", AGENT_VARIABLE, AGENTS, "claude-code", agent_names)


def _can_run(env: Mapping[str, str]) -> bool:
    try:
        find_cli(env=env)
    except (CLINotFoundError, NotExecutableError):
        return False
    return True


def can_run_other(options: AgentOptions | None = None, *, env: Mapping[str, str]) -> bool:
    """Whether the other agent that `auto` may choose can be run: the program that its `options` name, or one that is found."""
    agent = find_agent("codex")
    try:
        agent.find(options if isinstance(options, agent.options_type) else agent.options_type(), env)
    except (CLINotFoundError, NotExecutableError):
        return False
    return True
