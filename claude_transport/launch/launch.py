"""Makes one value of everything that would be run: program, arguments, environment, files, and the fields of `initialize`.

`build_launch` joins the tables of `argv`, `payloads` and `environ`. It reads settings files that must be merged, and writes nothing.
`plan_launch` does the same through a launcher. `options_to_continue` makes options for a process that takes the place of another one.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from os import PathLike
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch import windows
from claude_transport.launch.argv import FIXED_ARGUMENTS, check_length, effective_values, flag_arguments
from claude_transport.launch.discovery import CLI, find_cli, read_cli_version
from claude_transport.launch.environ import build_environment
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.options import ClaudeOptions, given_values
from claude_transport.launch.payloads import ANNOUNCED, Delivered, Delivery, PlannedDirectory, PlannedFile, build_payloads, path_argument
from claude_transport.launch.settings import settings_document
from claude_transport.launch.supervisor import RemoteEnvironment, instructions, without_words
from claude_transport.launch.validation import check_alone, check_surroundings

PATH_ROOM: Final = 300  # characters kept free on the command line for the path of one payload file (Windows: 260 at most by default)

# Options whose rules may move from the command line to the settings when there is no room. The effect is the same (observed).
MOVABLE: Final[Mapping[str, str]] = {"allowed_tools": "allow", "disallowed_tools": "deny", "add_dirs": "additionalDirectories"}


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Holds everything that is needed to start the CLI. `build_launch` makes it; nothing has been started or written yet.

    * `argv`: the command line, program first. `env`: the complete environment. `cwd`, `user`: None for those of this process.
    * `files`, `directories`: what has to exist before the start. Make them, then call `with_paths`.
    * `initialize`: fields for the `initialize` control request. They must be sent, or the session runs without them.
    * `initialize_first`: True when that request must be the first line on stdin.
    * `notes`: sentences for a log, for example about an option that was moved or dropped.
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
        """Return a copy of the launch with the paths of the files and directories that the caller has made. Start this copy.

        Args:
            files: the path of each of `self.files`, in the same order. They are added to `argv`.
            directories: the path of each of `self.directories`, in the same order. They are added to `env`.
            platform: a value as in `sys.platform`.

        Raises:
            ValueError: there are more or fewer paths than files or directories.
            ConfigurationError: the command line is too long with these paths, or they cannot be passed to a batch file of Windows.
        """
        arguments = [f"{planned.flag}={path_argument(path)}" for planned, path in zip(self.files, files, strict=True)]
        variables = {planned.variable: path for planned, path in zip(self.directories, directories, strict=True)}
        argv = (*self.argv, *arguments)
        check_length(argv)
        windows.check_batch_file(argv, platform=platform)
        return msgspec.structs.replace(self, argv=argv, env={**self.env, **variables}, files=(), directories=())

    def __repr__(self) -> str:
        """Show names only: values of the environment, of `initialize` and of the files may hold secrets."""
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
    """Check `options`, and return everything that is needed to start the CLI with them. Reads settings files; starts and writes nothing.

    Args:
        options: the options of the CLI.
        cli: the binary, as `find_cli` returns it, or its path.
        inherited: the environment to inherit from, usually `os.environ`.
        delivery: `files` puts prompts, settings and servers into files on this machine; `initialize` puts them into the `initialize`
            request, for a CLI that cannot see the files of this machine. Paths in the options are then paths of its machine, and are not
            checked.
        permission_prompt: `"stdio"` makes the host answer permission prompts, unless the options name another way.
        uid: the user id that the CLI will have; by default that of this process. Some options are refused to root.
        platform: a value as in `sys.platform`.

    Raises:
        ConfigurationError: the CLI would refuse, ignore or misread an option, or the command line is too long.
    """
    check_once(options)  # before the environment is made of them
    env = build_environment(options, inherited, platform=platform)
    check_surroundings(options, uid=uid, environment=env, check_files=delivery == "files")
    remote = delivery == "initialize"
    # the settings file is on another machine, so nothing can be merged into it
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
    """List the features that `launch` needs from the CLI, by their names in `features`: flags, and fields of `initialize`."""
    flags = [argument.partition("=")[0] for argument in launch.argv[1:] if argument.startswith("--")]
    flags += [planned.flag for planned in launch.files]
    return [*flags, *(f"initialize.{name}" for name in launch.initialize)]


def _assemble(program: str, values: Mapping[str, Any], delivered: Delivered) -> list[str]:
    """Return the whole command line: program, fixed arguments, flags, and payload arguments. Some fields of `initialize` need a flag,
    too.
    """
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


# The same launch through a launcher, for this machine or for the other end.


INHERIT: Final = Launcher(name="none", client=())
"""Starts the command itself."""


class PlannedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """What would be run, where, and which binary. `cli` is None for a command, and for a CLI on another machine."""

    launch: Launch
    launcher: Launcher = INHERIT
    cli: CLI | None = None
    remote: RemoteEnvironment | None = None

    def for_this_machine(self, launch: Launch, *, mark: str) -> Launch:
        """Return what is started on this machine for `launch` (this one, with its files made): the client of the launcher, in this
        environment.
        """
        argv = tuple(self.launcher.command(launch.argv, mark=mark))
        if self.remote is None:
            return msgspec.structs.replace(launch, argv=argv)
        return msgspec.structs.replace(launch, argv=argv, env=dict(os.environ), cwd=None, directories=())

    def instructions(self, *, mark: str) -> bytes:
        """Return the instructions for the supervisor at the other end; empty without one."""
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
    """Make the launch for `options` through `launcher` (None: started directly). Looks for programs on this machine, and starts nothing.

    Raises `ConfigurationError` for options that the CLI would refuse, for options that have no meaning there, and when this machine lacks
    the program of the launcher. Raises `CLINotFoundError` and `NotExecutableError` for a CLI of this machine.
    """
    launcher = INHERIT if launcher is None else launcher
    check_launcher(launcher, inherited)
    if launcher.supervised:
        return _elsewhere(options, command=command, launcher=launcher, permission_prompt=permission_prompt, trace=trace or {})
    if command is not None:
        launch = Launch(argv=tuple(command), env=build_environment(options, inherited), cwd=_cwd(options), user=options.user)
        return PlannedLaunch(launch=launch, launcher=launcher)
    if launcher.delivery == "initialize" and options.isolated_config:
        raise ConfigurationError(
            f"isolated_config makes a directory that is read-only inside {launcher.name}: set a writable config_dir instead",
            option="isolated_config",
        )
    if os.name == "nt":
        inherited = _with_git_bash(inherited)
    cli = find_cli(options.cli_path, env=inherited)
    read_cli_version(cli)  # read from the disk, later from memory
    launch = _built_before(options, cli=cli, inherited=inherited, delivery=launcher.delivery, permission_prompt=permission_prompt)
    return PlannedLaunch(launch=launch, launcher=launcher, cli=cli)


def _with_git_bash(inherited: Mapping[str, str]) -> Mapping[str, str]:
    """Add the place of Git Bash, if it is found: a CLI whose `PATH` does not lead there cannot find it."""
    bash = windows.git_bash(inherited)
    return inherited if bash is None else {windows.BASH_VARIABLE: bash, **inherited}


# A service starts many sessions with the same few options, and checking them costs more than the rest of a plan.


_MOST_KEPT: Final = 16
"""Launches that are kept, for as many different options."""

_LONGEST_KEPT: Final = 4_096
"""Characters of a text up to which a launch is kept: a long prompt must not stay in memory."""

_PLAIN: Final = frozenset({int, float, bool, type(None)})
_kept: Final[dict[Hashable, tuple[Mapping[str, str], Launch]]] = {}
_checked: Final[set[Hashable]] = set()


def check_once(options: ClaudeOptions) -> None:
    """Check what the options alone tell, unless the same options have passed before. Raises `ConfigurationError`; looks at no machine."""
    content = _content_of(options)
    if content is not None and content in _checked:
        return
    check_alone(options)
    if content is not None:
        if len(_checked) >= _MOST_KEPT:
            _checked.clear()
        _checked.add(content)


def _built_before(
    options: ClaudeOptions, *, cli: CLI, inherited: Mapping[str, str], delivery: Delivery, permission_prompt: str | None
) -> Launch:
    """Return `build_launch()` of the same arguments, kept from before when nothing that it depends on has changed."""
    build = functools.partial(build_launch, options, cli=cli, inherited=inherited, delivery=delivery, permission_prompt=permission_prompt)
    content = _content_of(options)
    if content is None:
        return build()
    key = (content, cli.path, delivery, permission_prompt, os.geteuid() if hasattr(os, "geteuid") else -1)
    environment, launch = _kept.get(key) or ({}, None)
    if launch is None or environment != inherited:
        launch = build()
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = (dict(inherited), launch)
    return msgspec.structs.replace(launch, env=dict(launch.env), initialize=dict(launch.initialize))


def _content_of(options: ClaudeOptions) -> Hashable | None:
    """Return what distinguishes these options from others. None when a launch depends on more, such as a file that they name."""
    given = given_values(options)
    names_file = any(isinstance(given.get(option), (str, PathLike)) for option in ("settings", "mcp_servers"))
    if names_file or isinstance(given.get("system_prompt"), Mapping):
        return None
    try:
        if "cwd" in given and not os.path.isabs(given["cwd"]):  # noqa: PTH117 - also as text
            return None
        return _frozen(given)
    except (TypeError, RecursionError):
        return None


def _frozen(value: object) -> Hashable:
    """Return an immutable copy that tells 1 from True. Raises `TypeError` for what may change, or is too long to be kept."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if isinstance(value, PurePath) or (kind is str and len(value) <= _LONGEST_KEPT):  # type: ignore[arg-type]
        return kind, str(value)
    if kind in (list, tuple):
        return kind, *map(_frozen, value)  # type: ignore[call-overload]
    if kind is dict:
        return kind, *((_frozen(name), _frozen(item)) for name, item in value.items())  # type: ignore[attr-defined]
    raise TypeError(f"a {kind.__name__} may change")


def check_launcher(launcher: Launcher, inherited: Mapping[str, str]) -> None:
    """Check that the program of `launcher` is on this machine's `PATH`. Raises `ConfigurationError(option="launcher")`."""
    if not launcher.client:
        return
    import shutil  # its import takes as long as all other modules of this package, and most sessions have no launcher

    if shutil.which(launcher.program, path=inherited.get("PATH")) is None:
        raise ConfigurationError(f"launcher: there is no program {launcher.program!r} on this machine: install it", option="launcher")


def _elsewhere(
    options: ClaudeOptions, *, command: Sequence[str] | None, launcher: Launcher, permission_prompt: str | None, trace: Mapping[str, str]
) -> PlannedLaunch:
    if options.user is not None:
        raise ConfigurationError(f"user: {launcher.name} chooses the user itself: set the user on the launcher", option="user")
    if command is not None:
        launch = Launch(argv=tuple(command), env={}, cwd=_cwd(options))
    else:
        cli = "claude" if options.cli_path is None else os.fspath(options.cli_path)
        # -1: whether the user there is root is not known here
        launch = build_launch(options, cli=cli, inherited={}, delivery="initialize", permission_prompt=permission_prompt, uid=-1)
    remote = RemoteEnvironment.of(options, trace={name: value for name, value in trace.items() if name not in options.env})
    return PlannedLaunch(launch=launch, launcher=launcher, remote=remote)


def without_supervisor(on_stderr: Callable[[str], object] | None, *, mark: str) -> Callable[[str], object] | None:
    """Wrap `on_stderr` so that it receives the lines of the program, without those of the supervisor."""
    if on_stderr is None:
        return None
    return lambda line: on_stderr(line) if without_words(line, mark=mark) == line else None


def _cwd(options: ClaudeOptions) -> str | None:
    return None if options.cwd is None else os.fspath(options.cwd)


# A process that takes the place of another one: a saved session is resumed, and not begun a second time.


_WHOLE_NAME: Final = 200
"""The CLI names a project's folder by the whole path up to this many characters. The name of a longer path begins with as many of them."""


def options_to_continue(options: ClaudeOptions) -> ClaudeOptions:
    """Return the options for a second process that continues the session `session_id`, which the first process has saved.

    The session is resumed, since the CLI refuses to begin a session whose id exists. What the first process forked it from no longer
    matters. Without a `session_id` the options are returned as they are; also with `isolated_config`, where sessions are deleted with their
    process.
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
    """Find the file in which the CLI keeps this session; None when there is none yet, or none that can be seen.

    A CLI with the environment `env` that works in `cwd` (None: that of this process) creates it with the first prompt, also for a slash
    command. It refuses to begin a session whose file exists: `Session ID … is already in use.` It looks only at sessions of that working
    directory. (CLI 2.1.329.)
    """
    home = windows.home_folder(env, platform=sys.platform)
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
        return None  # nothing was saved, or the home belongs to another user
    return None
