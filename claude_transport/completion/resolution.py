"""Chooses the path of a call, the CLI or the API: four layers of choices, and one table.

`resolve_transport` is pure when all facts are passed: it then reads no environment and no file.
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
"""Variables that the API path can authenticate with. One of them counts as "there is an API key"."""

LAYERS: Final[Mapping[Layer, str]] = {
    "argument": "the `transport` argument (`--transport` of the program)",
    "environment": f"the variable `{TRANSPORT_VARIABLE}`; empty or only whitespace is unset",
    "declared": "what a project or a specification declares; an explicit null is a mistake",
    "default": "`auto`",
}
"""The layers that may choose, strongest first: one call, the shell, the project, this library."""

NO_PATH: Final = (
    "neither path is open: no claude was found, and none of ANTHROPIC_API_KEY and ANTHROPIC_AUTH_TOKEN is set. "
    "Install Claude Code and log in, or set ANTHROPIC_API_KEY"
)


class Row(msgspec.Struct, frozen=True):
    """What is available: an API key (or token) in the environment, and a `claude` that can be run."""

    api_key: bool
    cli: bool


class Cell(msgspec.Struct, frozen=True):
    """Result of one choice in one row: the `kind` of path or None, where the call fails, and with which `code`.

    `failure` is None (it works as far as can be told), `preflight` (there is no path: exit code 2, nothing is tried) or `call` (the check
    passes because the other path works, and the call fails because this path was asked for).
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
    return MATRIX[Row(api_key=api_key, cli=cli)][choice]


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
    raise ConfigurationError(f"transport: {_who(layer)} says {shown}, which is not one of {', '.join(CHOICES)}", option="transport")


def _who(layer: Layer) -> str:
    return {"argument": "the call", "environment": TRANSPORT_VARIABLE, "declared": "the declaration", "default": "the default"}[layer]


def _can_run(env: Mapping[str, str]) -> bool:
    try:
        find_cli(env=env)
    except (CLINotFoundError, NotExecutableError):
        return False
    return True
