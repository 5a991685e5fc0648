"""Which of the two paths a call takes, the CLI or the API, and who decided: four layers of choices and one table of cells.

Pure when its facts are passed: `resolve_transport` then reads no environment and looks at no file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from claude_transport.errors import CLINotFoundError, ConfigurationError, NotExecutableError
from claude_transport.launch.discovery import find_cli

TransportKind: TypeAlias = Literal["cli", "api"]
TransportChoice: TypeAlias = Literal["auto", "cli", "api"]
Layer: TypeAlias = Literal["argument", "environment", "declared", "default"]
CellFailure: TypeAlias = Literal["preflight", "call"]

TRANSPORT_VARIABLE: Final = "CLAUDE_TRANSPORT"
CHOICES: Final[tuple[TransportChoice, ...]] = get_args(TransportChoice)

API_VARIABLES: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
"""The variables that the API path can authenticate with, and that count as "there is an API key" below."""

LAYERS: Final[Mapping[Layer, str]] = {
    "argument": "the `transport` argument (`--transport` of the program)",
    "environment": f"the variable `{TRANSPORT_VARIABLE}`; empty or only whitespace is unset",
    "declared": "what a project or a specification declares; an explicit null is a mistake",
    "default": "`auto`",
}
"""Who may choose, strongest first: who asks for this one run, this shell, this project, this library."""

NO_PATH: Final = (
    "neither path is open: no claude was found, and none of ANTHROPIC_API_KEY and ANTHROPIC_AUTH_TOKEN is set. "
    "Install Claude Code and log in, or set ANTHROPIC_API_KEY"
)


class Row(msgspec.Struct, frozen=True):
    """What is there: an API key (or token) in the environment, and a claude that can be run."""

    api_key: bool
    cli: bool


class Cell(msgspec.Struct, frozen=True):
    """What comes of one choice in one row: the `kind` of path, None when there is none; where it fails, and with which `code`.

    `failure` is None (it works as far as can be told), `preflight` (no path at all: exit code 2, nothing is tried) or `call` (the
    pre-flight passes because the other path is open, and the path that was insisted on fails when it is used).
    """

    kind: TransportKind | None
    failure: CellFailure | None = None
    code: str | None = None
    note: str = ""


NO_CLI: Final = "exec.cli.binary_not_found"
NO_KEY: Final = "exec.cli.auth_failed"
NOTHING: Final = "config.no_auth_path"

MATRIX: Final[Mapping[Row, Mapping[TransportChoice, Cell]]] = {
    Row(api_key=True, cli=True): {
        "auto": Cell("cli", note="subscription first"),
        "cli": Cell("cli"),
        "api": Cell("api", note="the subscription is bypassed"),
    },
    Row(api_key=True, cli=False): {
        "auto": Cell("api"),
        "cli": Cell("cli", "call", NO_CLI, "there is no binary to run"),
        "api": Cell("api"),
    },
    Row(api_key=False, cli=True): {
        "auto": Cell("cli"),
        "cli": Cell("cli"),
        "api": Cell("api", "call", NO_KEY, "the API is not asked without a key"),
    },
    Row(api_key=False, cli=False): {
        "auto": Cell(None, "preflight", NOTHING, "neither path is open"),
        "cli": Cell("cli", "preflight", NOTHING, "neither path is open"),
        "api": Cell("api", "preflight", NOTHING, "neither path is open"),
    },
}
"""The whole policy: what each choice comes to in each state of authentication (S1.2)."""


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The path that was chosen: its `kind`, the `layer` that decided, and the `reason` as a sentence; `choice` is what that layer said."""

    kind: TransportKind
    layer: Layer
    reason: str
    choice: TransportChoice = "auto"


def cell_of(choice: TransportChoice, *, api_key: bool, cli: bool) -> Cell:
    """The cell of the matrix for this choice and these facts."""
    return MATRIX[Row(api_key=api_key, cli=cli)][choice]


def has_api_key(env: Mapping[str, str]) -> bool:
    """Whether `env` holds something the API path can authenticate with; whitespace is nothing."""
    return any(env.get(name, "").strip() for name in API_VARIABLES)


def resolve_transport(
    explicit: TransportChoice | None = None,
    *,
    env: Mapping[str, str] | None = None,
    declared: str | Mapping[str, Any] | None = None,
    cli_available: bool | None = None,
    api_key_available: bool | None = None,
) -> Resolution:
    """Which path a call takes, and why: the first layer that says something decides, and `auto` takes the CLI when there is one.

    Args:
        explicit: what this one call asks for; None when it does not.
        env: where `CLAUDE_TRANSPORT` is looked up, and the two facts below when they are not given; None is this process's environment.
        declared: what a project declares: the value itself (None: nothing), or the mapping that holds it under `transport`, in which an
            explicit null is a mistake.
        cli_available: whether a claude can be run; None looks for one (`find_cli`), only when it matters.
        api_key_available: whether the API path has a key or a token; None looks into `env`, only when it matters.

    An explicit `cli` or `api` is taken as it is: whether it can work is `preflight`'s to say, and the call's to find out. Raises
    `ConfigurationError` for a value that is no choice (naming the layer), and, code `config.no_auth_path`, when `auto` has nothing to
    choose from.
    """
    env = os.environ if env is None else env
    choice, layer = _choose(explicit, env, declared)
    if choice != "auto":
        return Resolution(kind=choice, layer=layer, choice=choice, reason=f"{_who(layer)} says {choice}")
    cli = _can_run(env) if cli_available is None else cli_available
    if cli:
        return Resolution(kind="cli", layer=layer, choice=choice, reason=f"{_who(layer)} says auto, and a claude was found")
    key = has_api_key(env) if api_key_available is None else api_key_available
    cell = cell_of(choice, api_key=key, cli=cli)
    if cell.kind is None:
        raise ConfigurationError(NO_PATH, option="transport", code=cell.code)
    reason = f"{_who(layer)} says auto, no claude was found, and there is an API key"
    return Resolution(kind=cell.kind, layer=layer, choice=choice, reason=reason)


def _choose(explicit: str | None, env: Mapping[str, str], declared: str | Mapping[str, Any] | None) -> tuple[TransportChoice, Layer]:
    if explicit is not None:
        return _choice(explicit, "argument"), "argument"
    variable = env.get(TRANSPORT_VARIABLE, "").strip()
    if variable:
        return _choice(variable, "environment"), "environment"
    if isinstance(declared, Mapping):
        if "transport" in declared:
            return _choice(declared["transport"], "declared"), "declared"
    elif declared is not None:
        return _choice(declared, "declared"), "declared"
    return "auto", "default"


def _choice(value: object, layer: Layer) -> TransportChoice:
    for known in CHOICES:
        if value == known:
            return known
    shown = "null" if value is None else repr(value)
    raise ConfigurationError(f"transport: {_who(layer)} says {shown}, which is none of {', '.join(CHOICES)}", option="transport")


def _who(layer: Layer) -> str:
    return {
        "argument": "the call",
        "environment": TRANSPORT_VARIABLE,
        "declared": "the declaration",
        "default": "the default",
    }[layer]


def _can_run(env: Mapping[str, str]) -> bool:
    try:
        find_cli(env=env)
    except (CLINotFoundError, NotExecutableError):
        return False
    return True
