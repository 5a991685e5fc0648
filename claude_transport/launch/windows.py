"""Windows decisions as pure functions: every one can be asked, and is tested, on any platform.

Sources: the limits are those of `CreateProcessW` (32 767 characters) and of `cmd.exe` (8 191); the batch-file rule is the remedy for the
class of holes known as "BatBadBut" (CVE-2024-27980).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import PureWindowsPath
from typing import Final

from claude_transport.errors import ConfigurationError

# Below cmd.exe's 8 191, which is the smallest limit a command line may meet on its way (a `.cmd` shim, `wsl`, a Launcher's shell).
COMMAND_LINE_BUDGET: Final = 8_000  # characters

CREATE_NO_WINDOW: Final = 0x0800_0000  # CreateProcess: a console program of a windowless host shows no console
CREATE_NEW_PROCESS_GROUP: Final = 0x0000_0200  # CreateProcess: Ctrl-C in the host's console is not delivered to the child

# What cmd.exe leaves alone, quoted or not. Everything else (`&|<>^%!"()` and line ends above all) it may interpret a second time, and no
# quoting stops it: `%NAME%` expands even inside double quotes.
_SAFE_IN_BATCH: Final = re.compile(r"[A-Za-z0-9_\-=./:\\,@+~ ]*")


def is_windows(platform: str) -> bool:
    """True for the `sys.platform` value of Windows."""
    return platform == "win32"


def command_line_length(argv: Sequence[str]) -> int:
    """How many characters `argv` is as one Windows command line, quotes included; the same measure is used on every platform (W1)."""
    return len(subprocess.list2cmdline(argv))


def creation_flags(platform: str) -> int:
    """The `creationflags` for every spawn, version probes included: no console window flashes (W4); 0 elsewhere."""
    return CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP if is_windows(platform) else 0


def needs_job_object(platform: str) -> bool:
    """True where only a job object with kill-on-close takes the whole process tree down with its host (L1); POSIX has sessions."""
    return is_windows(platform)


def program_names(platform: str) -> tuple[str, ...]:
    """The file names to look for in a directory, best first. An extensionless npm script cannot be run by `CreateProcess`."""
    return ("claude.exe", "claude.cmd", "claude.bat") if is_windows(platform) else ("claude",)


def check_batch_file(argv: Sequence[str], *, platform: str) -> None:
    """Refuse a `.cmd`/`.bat` program whose arguments `cmd.exe` could read as commands; everything else passes.

    Windows runs batch files through `cmd.exe`, which parses the command line again. Arguments made of plain characters only are safe and
    accepted, so that npm's `claude.cmd` works for simple launches; anything else raises `ConfigurationError(option="cli_path")`.
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
    """Why subprocesses cannot run on the asyncio loop class named `loop_class`, with the remedy; None when they can (W3)."""
    if is_windows(platform) and "SelectorEventLoop" in loop_class:
        return (
            f"{loop_class} cannot start subprocesses on Windows. Use the default ProactorEventLoop "
            "(remove WindowsSelectorEventLoopPolicy or loop_factory), or run on trio."
        )
    return None
