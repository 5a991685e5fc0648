"""Said once per process: a call whose path nobody chose goes through the CLI (S1.4).

Through `logging`, as a warning, because it is about money: who wants it elsewhere adds a handler to `claude_transport.completion`, who
does not want it chooses a path. Nothing is written to stderr unless the program asks for that (`say`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from claude_transport.completion.resolution import TRANSPORT_VARIABLE, Resolution
from claude_transport.launch.credentials import Payer

__all__ = ["Announcer", "announce", "announcement_of"]

_logger = logging.getLogger("claude_transport.completion")
_logger.addHandler(logging.NullHandler())  # without one, logging itself would write warnings to stderr

_WHO: Final[dict[Payer, str]] = {
    "subscription": "the subscription pays",
    "api account": "an API account pays, because its key wins over the login",
    "cloud account": "a cloud account pays",
    "token owner": "the owner of ANTHROPIC_AUTH_TOKEN pays",
    "nobody": "no credential was found for it",
    "unknown": "its login pays",
}


def announcement_of(resolution: Resolution, *, payer: Payer = "unknown") -> str | None:
    """The line that is due for this resolution: only for `auto` that came to the CLI. An explicit choice surprises nobody."""
    if resolution.kind != "cli" or resolution.choice != "auto":
        return None
    return f'using the Claude CLI ({_WHO[payer]}); transport="api" or {TRANSPORT_VARIABLE}=api chooses the API instead'


class Announcer:
    """Says it the first time, from any thread, and never again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_spoken = False

    def announce(self, resolution: Resolution, *, payer: Payer = "unknown", say: Callable[[str], object] | None = None) -> bool:
        """Whether it was said now. `say` gets the line in place of the log; what it raises is the caller's."""
        text = announcement_of(resolution, payer=payer)
        if text is None:
            return False
        with self._lock:
            if self._has_spoken:
                return False
            self._has_spoken = True
        if say is None:
            _logger.warning("%s", text)
        else:
            say(text)
        return True


_of_this_process = Announcer()


def announce(resolution: Resolution, *, payer: Payer = "unknown", say: Callable[[str], object] | None = None) -> bool:
    """Say it once in this process; see `Announcer.announce`."""
    return _of_this_process.announce(resolution, payer=payer, say=say)
