"""Makes one value of everything that would be run for Codex: program, arguments, environment, and where. Starts nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from claude_transport.codex.argv import build_codex_argv
from claude_transport.codex.credentials import check_codex_payer
from claude_transport.codex.discovery import find_codex
from claude_transport.codex.environ import CODEX_RULES, build_codex_environment
from claude_transport.codex.options import CodexOptions, check_options
from claude_transport.launch.discovery import read_cli_version
from claude_transport.launch.launch import INHERIT, Launch, PlannedLaunch, check_launcher
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.supervisor import RemoteEnvironment


def plan_codex(
    options: CodexOptions,
    *,
    inherited: Mapping[str, str],
    command: Sequence[str] | None = None,
    launcher: Launcher | None = None,
    trace: Mapping[str, str] | None = None,
) -> PlannedLaunch:
    """Make the launch of `codex app-server` for `options`. Looks for programs on this machine, and starts nothing.

    Args:
        options: the options of Codex.
        inherited: the environment to inherit from, usually `os.environ`.
        command: a program and its arguments, to run in place of `codex app-server`.
        launcher: where or behind which program to run it.
        trace: variables of a trace, below those of the options, for another machine.

    Raises:
        ConfigurationError: Codex would refuse, ignore or misread an option, or this machine lacks the program of the launcher.
        CLINotFoundError, NotExecutableError: there is no `codex` on this machine.
    """
    launcher = INHERIT if launcher is None else launcher
    check_launcher(launcher, inherited)
    check_options(options, check_files=not launcher.supervised)
    cwd = None if options.cwd is None else os.fspath(options.cwd)
    if launcher.supervised:
        program = "codex" if options.codex_path is None else os.fspath(options.codex_path)
        argv = build_codex_argv(options, program) if command is None else command
        beyond = {name: value for name, value in (trace or {}).items() if name not in options.env}
        remote = RemoteEnvironment.of(options, trace=beyond, rules=CODEX_RULES)
        return PlannedLaunch(launch=Launch(argv=tuple(argv), env={}, cwd=cwd), launcher=launcher, remote=remote)
    env = build_codex_environment(options, inherited)
    if command is not None:
        return PlannedLaunch(launch=Launch(argv=tuple(command), env=env, cwd=cwd), launcher=launcher)
    cli = find_codex(options.codex_path, env=inherited)
    read_cli_version(cli)  # read from the disk, later from memory
    payer = check_codex_payer(options, inherited)
    launch = Launch(argv=tuple(build_codex_argv(options, cli.path)), env=env, cwd=cwd, notes=() if payer is None else payer.notes)
    return PlannedLaunch(launch=launch, launcher=launcher, cli=cli)
