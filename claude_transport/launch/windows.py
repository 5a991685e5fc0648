"""Decisions about Windows as pure functions, so that they are tested on every platform.

The limits are those of `CreateProcessW` (32,767 characters) and of `cmd.exe` (8,191). The rule for batch files prevents the holes known as
"BatBadBut" (CVE-2024-27980).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import PureWindowsPath
from typing import Final

from claude_transport.errors import ConfigurationError

# Below the 8,191 of cmd.exe, the smallest limit that a command line may meet (a `.cmd` shim, `wsl`, the shell of a launcher).
COMMAND_LINE_BUDGET: Final = 8_000  # characters

CREATE_NO_WINDOW: Final = 0x0800_0000  # CreateProcess: a console program of a windowless host shows no console
CREATE_NEW_PROCESS_GROUP: Final = 0x0000_0200  # CreateProcess: Ctrl-C in the host's console is not delivered to the child

# What cmd.exe leaves alone, quoted or not. It may interpret everything else a second time (`&|<>^%!"()` and line ends above all), and no
# quoting stops it: `%NAME%` expands even inside double quotes.
_SAFE_IN_BATCH: Final = re.compile(r"[A-Za-z0-9_\-=./:\\,@+~ ]*")


def is_windows(platform: str) -> bool:
    """Whether a value of `sys.platform` means Windows."""
    return platform == "win32"


def command_line_length(argv: Sequence[str]) -> int:
    """Return the length of `argv` as one Windows command line, with quotes. The same measure is used on every platform."""
    return len(subprocess.list2cmdline(argv))


def creation_flags(platform: str) -> int:
    """Return the `creationflags` for each process, also for version probes: no console window appears; 0 elsewhere."""
    return CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP if is_windows(platform) else 0


def needs_job_object(platform: str) -> bool:
    """Whether only a job object can end the whole process tree together with its host. POSIX has sessions instead."""
    return is_windows(platform)


def program_names(platform: str) -> tuple[str, ...]:
    """Return the file names to look for in a directory, best first. `CreateProcess` cannot run an npm script without extension."""
    return ("claude.exe", "claude.cmd", "claude.bat") if is_windows(platform) else ("claude",)


def check_batch_file(argv: Sequence[str], *, platform: str) -> None:
    """Refuse a `.cmd` or `.bat` program whose arguments `cmd.exe` could read as commands.

    Windows runs batch files through `cmd.exe`, which parses the command line again. Arguments of plain characters are safe, so npm's
    `claude.cmd` works for simple launches. Anything else raises `ConfigurationError(option="cli_path")`.
    """
    if not is_windows(platform) or not argv or PureWindowsPath(argv[0]).suffix.lower() not in {".cmd", ".bat"}:
        return
    for position, argument in enumerate(argv[1:], 1):
        if not _SAFE_IN_BATCH.fullmatch(argument):
            flag = argument.partition("=")[0]
            culprits = sorted(set(re.sub(_SAFE_IN_BATCH, "", argument)))
            raise ConfigurationError(
                f"{argv[0]} is a batch file, and cmd.exe would interpret {culprits} in argument {position} ({flag[:40]!r}). "
                "No quoting prevents that; point cli_path at a native claude.exe instead.",
                option="cli_path",
            )


def event_loop_refusal(loop_class: str, *, platform: str) -> str | None:
    """Return why subprocesses cannot run on the asyncio loop class named `loop_class`, with the remedy; None when they can."""
    if is_windows(platform) and "SelectorEventLoop" in loop_class:
        return (
            f"{loop_class} cannot start subprocesses on Windows. Use the default ProactorEventLoop "
            "(remove WindowsSelectorEventLoopPolicy or loop_factory), or run on trio."
        )
    return None
