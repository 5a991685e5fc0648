"""What a launcher makes of options: the same launch, for here or for the other end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch.discovery import CLI, find_cli, read_cli_version
from claude_transport.launch.environ import build_environment
from claude_transport.launch.launch import Launch, build_launch
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.supervisor import RemoteEnvironment, instructions, without_words

__all__ = ["PlannedLaunch", "plan_launch", "without_supervisor"]

_INHERIT = Launcher(name="none", client=())


class PlannedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """What would be run, where, and what is known of the binary; `cli` is None for a command, and for a CLI on another machine."""

    launch: Launch
    launcher: Launcher = _INHERIT
    cli: CLI | None = None
    remote: RemoteEnvironment | None = None

    def for_this_machine(self, launch: Launch, *, mark: str) -> Launch:
        """`launch` (this one, with its files made) as what is spawned here: the launcher's client, in this process's environment."""
        argv = tuple(self.launcher.command(launch.argv, mark=mark))
        if self.remote is None:
            return msgspec.structs.replace(launch, argv=argv)
        return msgspec.structs.replace(launch, argv=argv, env=dict(os.environ), cwd=None, directories=())

    def instructions(self, *, mark: str) -> bytes:
        """What the supervisor at the other end is told; empty when there is none."""
        if self.remote is None:
            return b""
        private = [planned.variable for planned in self.launch.directories]
        return instructions(self.launch.argv, mark=mark, environment=self.remote, cwd=self.launch.cwd, private=private)


def plan_launch(
    options: ClaudeOptions,
    *,
    inherited: Mapping[str, str],
    command: Sequence[str] | None = None,
    launcher: Launcher | None = None,
    permission_prompt: str | None = None,
    trace: Mapping[str, str] | None = None,
) -> PlannedLaunch:
    """What `options` come to through `launcher` (None: started directly). Looks for the binaries of this machine; starts nothing.

    Raises `ConfigurationError` for options that the CLI would refuse or that have no meaning there, and when this machine lacks the
    launcher's program; `CLINotFoundError` and `NotExecutableError` for a CLI of this machine.
    """
    launcher = _INHERIT if launcher is None else launcher
    if launcher.client and not _is_there(launcher.program, inherited):
        raise ConfigurationError(f"launcher: there is no program {launcher.program!r} on this machine: install it", option="launcher")
    if launcher.supervised:
        return _elsewhere(options, command=command, launcher=launcher, permission_prompt=permission_prompt, trace=trace or {})
    if command is not None:
        launch = Launch(argv=tuple(command), env=build_environment(options, inherited), cwd=_cwd(options), user=options.user)
        return PlannedLaunch(launch=launch, launcher=launcher)
    if launcher.delivery == "initialize" and options.isolated_config:
        raise ConfigurationError(
            f"isolated_config makes a directory that nothing inside {launcher.name} may write to: give it a writable config_dir",
            option="isolated_config",
        )
    cli = find_cli(options.cli_path, env=inherited)
    read_cli_version(cli)  # from the disk here, from memory afterwards
    delivery = launcher.delivery
    launch = build_launch(options, cli=cli, inherited=inherited, delivery=delivery, permission_prompt=permission_prompt)
    return PlannedLaunch(launch=launch, launcher=launcher, cli=cli)


def _is_there(program: str, inherited: Mapping[str, str]) -> bool:
    import shutil  # takes as long to import as the rest of this package's launches, and most sessions have no launcher

    return shutil.which(program, path=inherited.get("PATH")) is not None


def _elsewhere(
    options: ClaudeOptions,
    *,
    command: Sequence[str] | None,
    launcher: Launcher,
    permission_prompt: str | None,
    trace: Mapping[str, str],
) -> PlannedLaunch:
    if options.user is not None:
        raise ConfigurationError(f"user: {launcher.name} has a way of its own to say who: tell the launcher", option="user")
    if command is not None:
        launch = Launch(argv=tuple(command), env={}, cwd=_cwd(options))
    else:
        cli = "claude" if options.cli_path is None else os.fspath(options.cli_path)
        # -1: who is root there is not known here
        launch = build_launch(options, cli=cli, inherited={}, delivery="initialize", permission_prompt=permission_prompt, uid=-1)
    remote = RemoteEnvironment.of(options, trace={name: value for name, value in trace.items() if name not in options.env})
    return PlannedLaunch(launch=launch, launcher=launcher, remote=remote)


def without_supervisor(on_stderr: Callable[[str], object] | None, *, mark: str) -> Callable[[str], object] | None:
    """`on_stderr` for the program's own lines: those of the supervisor are not handed on."""
    if on_stderr is None:
        return None
    return lambda line: on_stderr(line) if without_words(line, mark=mark) == line else None


def _cwd(options: ClaudeOptions) -> str | None:
    return None if options.cwd is None else os.fspath(options.cwd)
