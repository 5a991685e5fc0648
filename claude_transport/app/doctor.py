"""`claude-transport doctor`: what would run, who would pay, what the session would see, and whether it works."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterable
from functools import partial
from importlib.metadata import version
from typing import Final

import msgspec

from claude_transport.app.backend import run_on
from claude_transport.app.checkup import Checkup
from claude_transport.app.interruption import run_interruptibly
from claude_transport.app.output import Output
from claude_transport.app.path_choice import PathFinding, examine_paths, require_home
from claude_transport.app.render_report import ReportLines
from claude_transport.app.report import CLIFinding, EnvironmentFinding, Failure, Report, TestRun, exit_code_for, is_ready
from claude_transport.app.terminal import choose_look, json_for_terminals
from claude_transport.completion.readiness import LoginStatus, find_config_dir, read_login_status, read_user_settings
from claude_transport.errors import CLINotFoundError, NotExecutableError
from claude_transport.launch.credentials import describe_credentials
from claude_transport.launch.discovery import find_cli, read_cli_version, remember_cli_version
from claude_transport.launch.environ import build_environment, describe_environment
from claude_transport.launch.features import NEWEST_CLI, OLDEST_CLI, parse_version, range_note
from claude_transport.launch.options import ClaudeOptions

TESTED_VERSION: Final = NEWEST_CLI
"""The newest CLI that this library was tested with."""


def run(args: argparse.Namespace) -> int:
    """Examine, report on stdout, and return the exit code: 0 what was tried works, 1 something does not, 2 there is no claude.

    Raises `ConfigurationError` when not even a home directory is known.
    """
    require_home()
    return run_on(args.backend, partial(_doctor, args))


async def _doctor(args: argparse.Namespace) -> int:
    return await _Doctor(args).examine()


class _Doctor:
    """One examination: what was found out so far, shown as it is found out, unless JSON was asked for."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._look = choose_look(sys.stdout, sys.stderr, env=os.environ, plain=args.plain, no_color=args.no_color)
        self._lines = ReportLines(self._look, verbose=args.verbose)
        self._output = Output(sys.stdout)
        self._cli = _find(args.cli_path)
        environment = build_environment(ClaudeOptions(), os.environ)
        self._credential = describe_credentials(
            environment, settings=read_user_settings(environment), config_dir=find_config_dir(environment)
        )
        self._paths: PathFinding | None = None
        self._environment = _environment()
        self._test_run: TestRun | None = None

    async def examine(self) -> int:
        """Everything, in order: the exit code."""
        await self._show(self._lines.header(version("claude-transport"), self._args.backend))
        await self._show(self._lines.cli(self._cli))
        await self._show(self._lines.credential(self._credential))
        self._paths = examine_paths(
            self._args.transport,
            cli_path=self._args.cli_path,
            cli_available=self._cli.path is not None,
            login_status=await self._ask_claude(),
        )
        await self._show(self._lines.paths(self._paths))
        await self._show(self._lines.environment(self._environment))
        if self._cli.path is not None or self._args.offline:
            interrupted = await self._try_it()
            if self._test_run is None:
                return interrupted
            await self._learn_version(self._test_run)
        code = exit_code_for(self._cli, self._test_run)
        ready = is_ready(self._credential, self._test_run)
        await self._show(self._lines.verdict(code, self._cli, simulated=self._args.offline, ready=ready))
        if self._args.json:
            await self._output.write_bytes(json_for_terminals(msgspec.json.format(msgspec.json.encode(self._report(code)))) + b"\n")
        return code

    async def _ask_claude(self) -> LoginStatus | None:
        if not self._args.login_status or self._cli.path is None:
            return None
        return await read_login_status(self._cli.path, env=build_environment(ClaudeOptions(), os.environ), timeout=self._args.timeout)

    async def _try_it(self) -> int:
        await self._show(self._lines.before_run(simulated=self._args.offline))
        cli_path = None if self._args.offline else self._cli.path
        checkup = Checkup(cli_path, timeout=self._args.timeout, on_step=lambda step: self._show(self._lines.step(step)))

        async def work() -> int:
            self._test_run = await checkup.run()
            return 0

        interrupted = await run_interruptibly(work, give_up=checkup.give_up)
        if self._test_run is not None and self._test_run.error is not None:
            await self._show(self._lines.failure(self._test_run.error))
        return interrupted

    async def _learn_version(self, run: TestRun) -> None:
        """A running CLI says its version; no process has to be started for that."""
        if run.version is None or self._cli.path is None or run.against == "simulated":
            return
        remember_cli_version(self._cli.path, run.version)
        if self._cli.version is None:
            self._cli = msgspec.structs.replace(self._cli, version=run.version, version_note=_version_note(run.version))
            await self._show(self._lines.version(self._cli))

    async def _show(self, lines: Iterable[str]) -> None:
        if not self._args.json:
            await self._output.write("".join(f"{line}\n" for line in lines))

    def _report(self, code: int) -> Report:
        return Report(
            ok=code == 0,
            ready=is_ready(self._credential, self._test_run),
            exit_code=code,
            version=version("claude-transport"),
            python=platform.python_version(),
            platform=platform.platform(terse=True),
            backend=self._args.backend,
            cli=self._cli,
            credential=self._credential,
            paths=self._paths,
            environment=self._environment,
            test_run=self._test_run,
        )


def _find(cli_path: str | None) -> CLIFinding:
    try:
        cli = find_cli(cli_path)
    except (CLINotFoundError, NotExecutableError) as error:
        searched = error.searched if isinstance(error, CLINotFoundError) else ()
        return CLIFinding(searched=searched, tested_version=TESTED_VERSION, error=Failure.of(error))
    known = read_cli_version(cli)
    return CLIFinding(
        path=cli.path,
        source=cli.source,
        searched=cli.searched,
        version=known,
        tested_version=TESTED_VERSION,
        version_note=_version_note(known),
    )


def _version_note(found: str | None) -> str:
    if found is None:
        return "not known before it runs"
    outside = range_note(found)
    if outside is not None:
        return f"outside the supported range: {outside}"
    if parse_version(found) == parse_version(TESTED_VERSION):
        return "the newest one that this library was tested with"
    return f"in the supported range, {OLDEST_CLI} to {NEWEST_CLI}"


def _environment() -> EnvironmentFinding:
    origins = describe_environment(ClaudeOptions(), os.environ)
    inherited = [name for name, origin in origins.items() if origin == "inherited"]
    relevant = ("ANTHROPIC_", "CLAUDE", "DISABLE_", "MCP_", "NODE_EXTRA_CA_CERTS")
    return EnvironmentFinding(
        inherited=len(inherited),
        relevant=tuple(name for name in inherited if name.startswith(relevant) or name.upper().endswith("_PROXY")),
        removed={name: origin.removeprefix("removed: ") for name, origin in origins.items() if origin.startswith("removed: ")},
        added={name: origin for name, origin in origins.items() if origin != "inherited" and not origin.startswith("removed: ")},
    )
