"""Which process runs a session, by the register that the CLI keeps in `sessions/<pid>.json` of its configuration directory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from claude_transport.errors import SessionFilesError
from claude_transport.platform.winapi import is_running
from claude_transport.sessions.reading import open_regular, parse

_MAX_BYTES: Final = 64 * 2**10
_STATE, _STARTED = 0, 19  # the third and the 22nd field of /proc/<pid>/stat


def process_of(session_id: str, configuration: Path, *, proc: str = "/proc") -> int | None:
    """Return the id of the process that runs a session, or None.

    A process that ended without tidying up does not count, nor one that has its number by now. A CLI on another machine or in another
    container is not seen, nor one that is too old to keep the register.
    """
    with suppress(OSError), os.scandir(configuration / "sessions") as entries:
        for entry in entries:
            if entry.name.endswith(".json"):
                noted = _read(Path(entry.path))
                pid = noted.get("pid")
                if noted.get("sessionId") == session_id and type(pid) is int and _is_alive(pid, noted.get("procStart"), proc):
                    return pid
    return None


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, SessionFilesError), open_regular(path) as file:
        noted = parse(file.read(_MAX_BYTES))
        return noted if isinstance(noted, dict) else {}
    return {}


def _is_alive(pid: int, started: object, proc: str) -> bool:
    """Tell whether the process runs that had this number when it was noted."""
    if not 0 < pid < 2**31:
        return False
    if os.name == "nt":
        return is_running(pid) is True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it runs, and belongs to another user
    try:
        # the name of the program is in parentheses and may have any characters; the first field behind it is the third
        fields = Path(f"{proc}/{pid}/stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return True  # a system without /proc
    return fields[_STATE] not in "ZX" and started in (None, fields[_STARTED])
