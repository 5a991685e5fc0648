"""What is different on Windows, as functions of the platform's name. They do no I/O, so the tests run them on every platform.

The limits are those of `CreateProcessW` (32,767 characters) and of `cmd.exe` (8,191). The rule for batch files prevents the
vulnerability known as "BatBadBut" (CVE-2024-27980).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import PureWindowsPath
from typing import Final

from claude_transport.errors import ConfigurationError

# Below 8,191, cmd.exe's limit and the smallest that may apply: a `.cmd` file, `wsl` or the shell of a launcher may run the command line.
COMMAND_LINE_BUDGET: Final = 8_000  # characters

CREATE_NO_WINDOW: Final = 0x0800_0000  # a host without a console window does not open one for the child
CREATE_NEW_PROCESS_GROUP: Final = 0x0000_0200  # Ctrl-C in the host's console does not reach the child

# Characters that cmd.exe never interprets. It may interpret `&|<>^%!"()` and line ends, and quoting does not prevent that: `%NAME%` expands
# even inside double quotes. All characters that are not listed here are refused.
_SAFE_IN_BATCH: Final = re.compile(r"[A-Za-z0-9_\-=./:\\,@+~ ]*")


def is_windows(platform: str) -> bool:
    """Return whether `platform`, a value of `sys.platform`, is Windows."""
    return platform == "win32"


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


def check_batch_file(argv: Sequence[str], *, platform: str) -> None:
    """Raise `ConfigurationError(option="cli_path")` for a `.cmd` or `.bat` program whose arguments `cmd.exe` could read as commands.

    Windows runs batch files with `cmd.exe`, which parses the command line again. So npm's `claude.cmd` works only when all arguments
    consist of characters that are known to be safe.
    """
    if not is_windows(platform) or not argv or PureWindowsPath(argv[0]).suffix.lower() not in {".cmd", ".bat"}:
        return
    for position, argument in enumerate(argv[1:], 1):
        if not _SAFE_IN_BATCH.fullmatch(argument):
            flag = argument.partition("=")[0]
            unsafe = sorted(set(_SAFE_IN_BATCH.sub("", argument)))
            raise ConfigurationError(
                f"{argv[0]} is a batch file, and cmd.exe could interpret {unsafe} in argument {position} ({flag[:40]!r}). "
                "Quoting does not prevent that: set cli_path to a native claude.exe.",
                option="cli_path",
            )


def event_loop_refusal(loop_class: str, *, platform: str) -> str | None:
    """Return an error message when the asyncio loop class named `loop_class` cannot start subprocesses; None when it can."""
    if is_windows(platform) and "SelectorEventLoop" in loop_class:
        return (
            f"{loop_class} cannot start subprocesses on Windows. Use the default ProactorEventLoop "
            "(remove WindowsSelectorEventLoopPolicy or loop_factory), or run on trio."
        )
    return None
