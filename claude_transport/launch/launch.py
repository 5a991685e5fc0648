"""One value that says what would be run: program, arguments, environment, files, and the fields of `initialize`.

`build_launch` is where the tables meet. It reads settings files that have to be merged, and nothing else; it writes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final

import msgspec

from claude_transport.launch import windows
from claude_transport.launch.argv import FIXED_ARGUMENTS, check_length, effective_values, flag_arguments
from claude_transport.launch.discovery import CLI
from claude_transport.launch.environ import build_environment
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import ANNOUNCED, Delivered, Delivery, PlannedDirectory, PlannedFile, build_payloads, path_argument
from claude_transport.launch.settings import settings_document
from claude_transport.launch.validation import check_types, validate_options

__all__ = ["Launch", "build_launch", "needs_of"]

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
