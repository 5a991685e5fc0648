"""What is different on Windows, as functions that every platform can call. They do no I/O; what they need of the system is an argument.

The limits are those of `CreateProcessW` (32,767 characters) and of `cmd.exe` (8,191). The rule for batch files prevents the
vulnerability known as "BatBadBut" (CVE-2024-27980).
"""

from __future__ import annotations

import errno
import ntpath
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from claude_transport.errors import ConfigurationError, SpawnError

# Below 8,191, cmd.exe's limit and the smallest that may apply: a `.cmd` file, `wsl` or the shell of a launcher may run the command line.
COMMAND_LINE_BUDGET: Final = 8_000  # characters

LONGEST_COMMAND_LINE: Final = 32_766  # characters, without the zero at the end

CREATE_NO_WINDOW: Final = 0x0800_0000  # a host without a console window does not open one for the child
CREATE_NEW_PROCESS_GROUP: Final = 0x0000_0200  # Ctrl-C in the host's console does not reach the child
CREATE_SUSPENDED: Final = 0x0000_0004  # the child is put into its job before it can start anything
DETACHED_PROCESS: Final = 0x0000_0008  # no console at all

# Characters that cmd.exe never interprets. It may interpret `&|<>^%!"()` and line ends, and quoting does not prevent that: `%NAME%` expands
# even inside double quotes. All characters that are not listed here are refused.
_SAFE_IN_BATCH: Final = re.compile(r"[A-Za-z0-9_\-=./:\\,@+~ ]*")
# The path of the batch file itself comes from the machine, so letters of every language are possible, and `C:\Program Files (x86)`.
_SAFE_AS_BATCH: Final = re.compile(r"[\w\-./:\\@+~ ()']*")

BASH_VARIABLE: Final = "CLAUDE_CODE_GIT_BASH_PATH"

_BATCH: Final = (".cmd", ".bat")
_EXTENSIONS: Final = (".exe", ".com", *_BATCH)  # native programs first
_NEEDED: Final = ("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC")  # without them, sockets and batch files do not work


def is_windows(platform: str) -> bool:
    """Return whether `platform`, a value of `sys.platform`, is Windows."""
    return platform == "win32"


def is_encodable(text: str, *, platform: str) -> bool:
    """Return whether `text` can be an argument, a variable or a path that the CLI reads as it is.

    Elsewhere, a lone surrogate may stand for a byte of a file's name (PEP 383). Windows would pass on each of them, and the CLI reads
    another character.
    """
    try:
        text.encode("utf-8") if is_windows(platform) else os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def command_line_length(argv: Sequence[str]) -> int:
    """Return the length of `argv` joined and quoted as a Windows command line. Other platforms use the same measure."""
    joined = " ".join(argv)
    if all(argv) and joined.count(" ") == len(argv) - 1 and '"' not in joined and "\t" not in joined:
        return len(joined)  # nothing needs quotes: ten times as fast
    return len(subprocess.list2cmdline(argv))


def creation_flags(platform: str) -> int:
    """Return the `creationflags` for `subprocess.Popen`: no console window, no Ctrl-C of the host. 0 on other platforms."""
    return CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP if is_windows(platform) else 0


def needs_job_object(platform: str) -> bool:
    """Return whether a job object is needed to end a process tree together with its host. POSIX uses sessions."""
    return is_windows(platform)


def program_names(platform: str) -> tuple[str, ...]:
    """Return the names of the CLI's program file, best first. npm's script without extension is left out: Windows cannot run it."""
    return ("claude.exe", "claude.cmd", "claude.bat") if is_windows(platform) else ("claude",)


def is_batch_file(program: str) -> bool:
    """Return whether Windows would run `program` with `cmd.exe`.

    It drops spaces and dots at the end of a name, resolves `..`, and reads what follows a colon as the name of a stream of the file. So
    `claude.cmd.`, `claude.CMD `, `claude.cmd:stream` and `claude.cmd\\x\\..` all name a batch file.
    """
    whole = ntpath.splitdrive(program.replace("/", "\\"))[1]
    # also the path as it is written: which of its readers cuts first is not promised
    names = [part for path in (ntpath.normpath(whole), whole) for part in re.split(r"[\\:]", path)]
    return any(name.rstrip(" .\t").lower().endswith(_BATCH) for name in names)


def check_batch_file(argv: Sequence[str], *, platform: str) -> None:
    """Raise `ConfigurationError(option="cli_path")` for a `.cmd` or `.bat` program whose arguments `cmd.exe` could read as commands.

    Windows runs batch files with `cmd.exe`, which parses the command line again. So npm's `claude.cmd` works only when all arguments
    consist of characters that are known to be safe.
    """
    if not is_windows(platform) or not argv or not is_batch_file(argv[0]):
        return
    if not _SAFE_AS_BATCH.fullmatch(argv[0]):
        raise ConfigurationError(
            f"{argv[0]!r} is a batch file, and cmd.exe could interpret its path. Quoting does not prevent that: set cli_path to a native "
            "claude.exe.",
            option="cli_path",
        )
    for position, argument in enumerate(argv[1:], 1):
        if not _SAFE_IN_BATCH.fullmatch(argument):
            flag = argument.partition("=")[0]
            unsafe = sorted(set(_SAFE_IN_BATCH.sub("", argument)))
            raise ConfigurationError(
                f"{argv[0]} is a batch file, and cmd.exe could interpret {unsafe} in argument {position} ({flag[:40]!r}). "
                "Quoting does not prevent that: set cli_path to a native claude.exe.",
                option="cli_path",
            )


def check_length(argv: Sequence[str]) -> None:
    """Raise `SpawnError` for a command line that Windows does not take."""
    length = command_line_length(argv)
    if length > LONGEST_COMMAND_LINE:
        raise SpawnError(
            f"{argv[0]!r} cannot be started: its command line has {length} characters, and Windows takes {LONGEST_COMMAND_LINE}",
            path=argv[0],
            retryable=False,
        )


def environment_of(env: Mapping[str, str], *, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return `env` as Windows reads it: of names that differ only in case, the last one. `inherited` adds what every program needs."""
    names: dict[str, str] = {}
    for name in env:
        names[name.upper()] = name
    found = {name: env[name] for name in names.values()}
    folded = {name.upper(): value for name, value in inherited.items()}
    return found | {name: folded[name] for name in _NEEDED if name not in names and name in folded}


def variable(env: Mapping[str, str], name: str) -> str:
    """Return the value of a variable, whatever the case of its name; "" when it is not set."""
    return next((value for found, value in env.items() if found.upper() == name.upper()), "")


def home_folder(env: Mapping[str, str], *, platform: str) -> str | None:
    """Return the home folder of the CLI in the environment `env`: `HOME`, but `USERPROFILE` first on Windows. None when it is not set."""
    if is_windows(platform):
        return variable(env, "USERPROFILE") or variable(env, "HOME") or None
    return env.get("HOME") or None


def program_path(
    program: str, *, cwd: str | os.PathLike[str] | None, env: Mapping[str, str], is_file: Callable[[str], bool] = os.path.isfile
) -> str:
    """Return the absolute path of `program`: of a bare name on the child's `PATH`, of a relative path below its working directory.

    Windows itself would look in the host's folder and working directory first. A name without an extension gets that of a native program,
    or else of a batch file. Raises `FileNotFoundError` when there is no such file.
    """
    here = os.fspath(cwd) if cwd is not None else ""
    if ntpath.basename(program) == program and not ntpath.splitdrive(program)[0]:
        folders = [folder.strip('"') for folder in variable(env, "PATH").split(";")]
        places = [ntpath.join(folder, program) for folder in folders if ntpath.isabs(folder)]
    else:
        places = [ntpath.abspath(ntpath.join(here, program))]
    for place in places:
        has_extension = is_batch_file(place) or ntpath.splitext(place)[1].lower() in _EXTENSIONS
        for path in (place,) if has_extension else (*(place + extension for extension in _EXTENSIONS), place):
            if is_file(path):
                return path
    raise FileNotFoundError(errno.ENOENT, "there is no such program", program)


def git_bash(env: Mapping[str, str], *, is_file: Callable[[str], bool] = os.path.isfile) -> str | None:
    """Return the path of the `bash.exe` of Git for Windows, in which the CLI runs shell commands; None when none is found.

    The variable `CLAUDE_CODE_GIT_BASH_PATH` wins. Then come the installation of the first `git.exe` on `PATH`, and the usual folders. A
    `bash.exe` on `PATH` does not count: that of Windows starts WSL.
    """
    chosen = variable(env, BASH_VARIABLE)
    if chosen:
        return chosen if is_file(chosen) else None
    folders = [folder.strip('"') for folder in variable(env, "PATH").split(";")]
    homes = [ntpath.dirname(folder.rstrip("\\/")) for folder in folders if ntpath.isabs(folder) and is_file(ntpath.join(folder, "git.exe"))]
    homes += [ntpath.dirname(home) for home in homes if ntpath.basename(home).lower() == "mingw64"]
    homes += [ntpath.join(base, "Git") for name in ("PROGRAMFILES", "PROGRAMW6432") if (base := variable(env, name))]
    if local := variable(env, "LOCALAPPDATA"):
        homes.append(ntpath.join(local, "Programs", "Git"))
    return next((bash for home in homes if is_file(bash := ntpath.join(home, "bin", "bash.exe"))), None)


def helper_python(executable: str | None, *, is_frozen: bool) -> str | None:
    """Return the interpreter that can run a helper script; None inside a frozen program, or one that embeds Python."""
    if is_frozen or not executable or not re.fullmatch(r"pythonw?[\d.]*(\.exe)?", ntpath.basename(executable).lower()):
        return None
    return executable


def event_loop_refusal(loop_class: str, *, platform: str) -> str | None:
    """Return an error message when the asyncio loop class named `loop_class` cannot start subprocesses; None when it can."""
    if is_windows(platform) and "SelectorEventLoop" in loop_class:
        return (
            f"{loop_class} cannot start subprocesses on Windows. Use the default ProactorEventLoop "
            "(remove WindowsSelectorEventLoopPolicy or loop_factory), or run on trio."
        )
    return None
