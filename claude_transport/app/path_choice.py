"""Which path the program takes, decided before anything runs; and what the doctor says about it."""

from __future__ import annotations

import argparse
import os

import msgspec

from claude_transport.completion.readiness import LoginStatus, PreflightReport, find_config_dir, preflight
from claude_transport.completion.resolution import CHOICES, MATRIX, TransportChoice
from claude_transport.errors import CLINotFoundError, ConfigurationError
from claude_transport.launch.options import ClaudeOptions


class PathFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What the doctor knows of the two paths; the names of `PreflightReport`, and all three cells of the row of the matrix.

    `cells` says for each choice where it goes (`cli`, `api`, None) and with which code it fails, if it does.
    """

    ok: bool
    choice: TransportChoice
    kind: str | None
    layer: str | None
    reason: str
    api_key: bool
    cli: bool
    cells: dict[str, tuple[str | None, str | None]]
    credential: str | None
    payer: str
    api_credential: str | None
    logged_in: bool | None = None
    problem: str = ""
    warnings: tuple[str, ...] = ()


def choose_path(args: argparse.Namespace, options: ClaudeOptions) -> PreflightReport:
    """The pre-flight report of `ask`. Who names a claude, or the simulated one, has chosen the CLI.

    Raises `ConfigurationError` when that contradicts `--transport`, or when the call may not be tried; with every place that was
    searched when there is neither a claude nor a key.
    """
    require_home()
    named = "--offline" if args.offline else "--cli-path" if args.cli_path is not None else None
    if named and args.transport == "api":
        raise ConfigurationError(f"{named} names a claude to run, and --transport api runs none; give one", option="transport")
    report = preflight("cli" if named else args.transport, env=os.environ, options=options)
    if named:
        return report  # whether it can be run is its own business: that it is not there is said with the places
    if report.code == "config.no_auth_path":
        raise CLINotFoundError(
            report.problem, searched=report.searched, code=report.code, advice="Set ANTHROPIC_API_KEY, or install claude."
        )
    return report.raise_for_problem()


def require_home() -> None:
    """Raises `ConfigurationError` when nobody knows where settings and login are: said before anything else is tried."""
    find_config_dir(os.environ)


def examine_paths(
    choice: TransportChoice | None, *, cli_path: str | None, cli_available: bool, login_status: LoginStatus | None = None
) -> PathFinding:
    """What would become of a call with this choice. Raises `ConfigurationError` when `CLAUDE_TRANSPORT` is no choice."""
    report = preflight(
        choice, env=os.environ, options=ClaudeOptions(cli_path=cli_path), cli_available=cli_available, login_status=login_status
    )
    resolution = report.resolution
    return PathFinding(
        ok=report.ok,
        choice=report.choice,
        kind=report.cell.kind,
        layer=resolution.layer if resolution is not None else None,
        reason=resolution.reason if resolution is not None else report.problem,
        api_key=report.row.api_key,
        cli=report.row.cli,
        cells={each: (MATRIX[report.row][each].kind, MATRIX[report.row][each].code) for each in CHOICES},
        credential=report.credential,
        payer=report.payer,
        api_credential=report.api_credential,
        logged_in=None if login_status is None else login_status.logged_in,
        problem=report.problem,
        warnings=report.warnings,
    )
