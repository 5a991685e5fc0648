"""One value that says what would be run: program, arguments, environment, files, and the fields of `initialize`.

`build_launch` is where the tables meet. It reads settings files that have to be merged, and nothing else; it writes nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch import windows
from claude_transport.launch.argv import FIXED_ARGUMENTS, check_length, effective_values, flag_arguments
from claude_transport.launch.discovery import CLI, find_cli, read_cli_version
from claude_transport.launch.environ import build_environment
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import ANNOUNCED, Delivered, Delivery, PlannedDirectory, PlannedFile, build_payloads, path_argument
from claude_transport.launch.settings import settings_document
from claude_transport.launch.supervisor import RemoteEnvironment, instructions, without_words
from claude_transport.launch.validation import check_types, validate_options

PATH_ROOM: Final = 300  # characters kept free on the command line for the path of one payload file (Windows: 260 at most by default)

# Options whose rules may move from the command line to the settings when there is no room, and where to; the effect is the same (observed).
MOVABLE: Final[Mapping[str, str]] = {"allowed_tools": "allow", "disallowed_tools": "deny", "add_dirs": "additionalDirectories"}


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What would be run, complete. `files` and `directories` do not exist yet: who spawns makes them and calls `with_paths`.

    `initialize` holds fields for the `initialize` control request. When it is not empty, somebody has to send them, or the session runs
    without what they say; with `initialize_first`, that request must be the first line on stdin. `notes` are sentences for a log.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None = None
    user: str | None = None
    files: tuple[PlannedFile, ...] = ()
    directories: tuple[PlannedDirectory, ...] = ()
    initialize: dict[str, Any] = msgspec.field(default_factory=dict)
    initialize_first: bool = False
    notes: tuple[str, ...] = ()

    def with_paths(self, *, files: Sequence[str] = (), directories: Sequence[str] = (), platform: str = sys.platform) -> Launch:
        """The launch with the paths of what was made, in the order of `files` and `directories`: nothing is planned any more.

        Raises `ValueError` when the counts differ, and `ConfigurationError` when the paths are too long, or not plain enough for a
        batch file.
        """
        arguments = [f"{planned.flag}={path_argument(path)}" for planned, path in zip(self.files, files, strict=True)]
        variables = {planned.variable: path for planned, path in zip(self.directories, directories, strict=True)}
        argv = (*self.argv, *arguments)
        check_length(argv)
        windows.check_batch_file(argv, platform=platform)
        return msgspec.structs.replace(self, argv=argv, env={**self.env, **variables}, files=(), directories=())

    def __repr__(self) -> str:
        """Names only: values of the environment, of `initialize` and of the files may hold secrets."""
        return (
            f"Launch(argv={self.argv!r}, env=<{len(self.env)} names>, cwd={self.cwd!r}, files={self.files!r}, "
            f"directories={self.directories!r}, initialize={sorted(self.initialize)}, notes={self.notes!r})"
        )


def build_launch(
    options: ClaudeOptions,
    *,
    cli: CLI | str | PathLike[str],
    inherited: Mapping[str, str],
    delivery: Delivery = "files",
    permission_prompt: str | None = None,
    uid: int | None = None,
    platform: str = sys.platform,
) -> Launch:
    """What `options` come to with this `cli` and the `inherited` environment, checked.

    `delivery="initialize"` is for a CLI that cannot see this machine's files (see `payloads`); paths among the options then mean its
    machine and are not checked. `permission_prompt="stdio"` makes the host the one who answers permission prompts, unless the options
    name another. Raises `ConfigurationError` for options the CLI would refuse, ignore or misread, always before anything is spawned.
    """
    check_types(options)  # before the environment is made of them
    env = build_environment(options, inherited, platform=platform)
    validate_options(options, uid=uid, environment=env, check_files=delivery == "files")
    remote = delivery == "initialize"
    # settings in a file of another machine: nothing can be merged into them
    unread = remote and isinstance(settings_document(options, permissions={}), str)
    values, notes = effective_values(options, environment=env, permission_prompt=permission_prompt, remote=remote)
    program = cli.path if isinstance(cli, CLI) else os.fspath(cli)
    delivered, permissions = build_payloads(options, delivery=delivery, permissions={}), {}
    argv = _assemble(program, values, delivered)
    for option, key in MOVABLE.items():
        if unread or _length(argv, delivered) < windows.COMMAND_LINE_BUDGET:
            break
        if not values[option]:
            continue
        permissions[key] = [os.fspath(rule) for rule in values[option]]
        values[option] = ()
        notes = (*notes, f"{option} did not fit on the command line and was moved into the settings")
        delivered = build_payloads(options, delivery=delivery, permissions=permissions)
        argv = _assemble(program, values, delivered)
    check_length(argv, reserved=_reserved(delivered))
    windows.check_batch_file([*argv, *(planned.flag for planned in delivered.files)], platform=platform)
    if options.isolated_config:
        notes = (*notes, "isolated_config: the login of this user is not visible to the session; give it a key or a token")
    return Launch(
        argv=tuple(argv),
        env=env,
        cwd=None if options.cwd is None else os.fspath(options.cwd),
        user=options.user,
        files=delivered.files,
        directories=(PlannedDirectory("CLAUDE_CONFIG_DIR"),) if options.isolated_config else (),
        initialize=delivered.initialize,
        initialize_first="--await-initialize" in argv,
        notes=notes,
    )


def needs_of(launch: Launch) -> list[str]:
    """Name what `launch` asks of the CLI, as the table of features does: its flags, those of its files, and its fields of `initialize`."""
    flags = [argument.partition("=")[0] for argument in launch.argv[1:] if argument.startswith("--")]
    flags += [planned.flag for planned in launch.files]
    return [*flags, *(f"initialize.{name}" for name in launch.initialize)]


def _assemble(program: str, values: Mapping[str, Any], delivered: Delivered) -> list[str]:
    """Program, fixed arguments, flags, and those of the payloads; some fields of `initialize` have to be announced."""
    flags = flag_arguments(values)
    announced = [flag for name, (flag, _) in ANNOUNCED.items() if name in delivered.initialize]
    if announced and "--await-initialize" not in flags:
        flags.append("--await-initialize")
    flags += [flag for flag in announced if flag]
    return [program, *FIXED_ARGUMENTS, *flags, *delivered.arguments]


def _reserved(delivered: Delivered) -> int:
    return sum(len(planned.flag) + PATH_ROOM for planned in delivered.files)


def _length(argv: Sequence[str], delivered: Delivered) -> int:
    return windows.command_line_length(argv) + _reserved(delivered)


# --- What a launcher makes of options: the same launch, for here or for the other end.


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


# --- What a process in place of another one is to be started with: a session that was saved is resumed, not begun a second time.


_WHOLE_NAME: Final = 200
"""Characters up to which the CLI names a project's folder by the whole path; of a longer one the name begins with as many of them."""


def options_to_continue(options: ClaudeOptions) -> ClaudeOptions:
    """The options with which a second process goes on in the session that `session_id` names, and that a first one has saved.

    It is resumed, since the CLI begins no second session under an id that is there. What the first process has forked it from plays no
    part any more. Without a `session_id` they are the options themselves; so they are with `isolated_config`, whose sessions go with
    their process.
    """
    if options.session_id is None or options.isolated_config:
        return options
    return msgspec.structs.replace(
        options,
        resume=options.session_id,
        session_id=None,
        fork_session=False,
        continue_conversation=False,
        resume_session_at=None,
        resume_drops_turn=None,
    )


def find_transcript(session_id: str, *, env: Mapping[str, str], cwd: str | os.PathLike[str] | None = None) -> Path | None:
    """The file in which the CLI keeps this session; None when there is none yet, or none that can be seen from here.

    A CLI with the environment `env` that works in `cwd` (None: this process's) makes it with the first prompt, be it a slash command,
    and refuses to begin a session whose file is there: `Session ID … is already in use.` It looks at the sessions of that working
    directory only. (CLI 2.1.329, real.)
    """
    home = env.get("HOME")
    configuration = env.get("CLAUDE_CONFIG_DIR") or (home and Path(home, ".claude"))
    if not configuration:
        return None
    name = re.sub(r"[^A-Za-z0-9]", "-", os.path.realpath(cwd or "."))
    try:
        for folder in Path(configuration, "projects").iterdir():
            is_it = folder.name == name or (len(name) > _WHOLE_NAME and folder.name.startswith(name[:_WHOLE_NAME]))
            if is_it and (transcript := folder / f"{session_id}.jsonl").exists():
                return transcript
    except OSError:
        return None  # nothing was ever saved, or somebody else's home
    return None
