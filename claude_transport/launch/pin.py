"""A CLI that stays what it is: what each session was started with, and a word when that changes between two of them (S10).

The option `pin_cli` keeps the CLI from updating itself. Somebody else may still do it, and a service that runs for weeks then talks to
another program than the one it was tried with. Nothing is prevented here; it is noticed, at the next spawn, and told.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from os import PathLike
from typing import Final

import msgspec

from claude_transport.launch.discovery import CLI, read_cli_version
from claude_transport.printable import printable

__all__ = ["CLIChange", "CLIPin", "PinnedCLI", "on_cli_change", "pin_cli"]

logger: logging.Logger = logging.getLogger(__name__)


class PinnedCLI(msgspec.Struct, frozen=True, kw_only=True):
    """The binary of a session: its path, its version when the files around it tell, and when and how large the file was."""

    path: str
    version: str | None
    modified_ns: int
    size: int


class CLIChange(msgspec.Struct, frozen=True, kw_only=True):
    """The same options, and another CLI: what it was at the last spawn, and what it is now."""

    before: PinnedCLI
    now: PinnedCLI

    def __str__(self) -> str:
        if self.before.path != self.now.path:
            return f"claude was {_shown(self.before)} at {self.before.path} and is {_shown(self.now)} at {self.now.path}"
        if None in (self.before.version, self.now.version):
            return f"claude at {self.now.path} is another file than it was"
        return f"claude at {self.now.path} was {_shown(self.before)} and is {_shown(self.now)}"


class CLIPin:
    """What was started last, by what was asked for; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pinned: dict[str | None, PinnedCLI] = {}

    def note(self, cli: CLI, *, asked: str | PathLike[str] | None = None) -> CLIChange | None:
        """Record the binary that is about to be started; the change since the last one, None for the first and for the same.

        `asked` is the option `cli_path`: who asks for two different paths has two CLIs, and not one that changes. A file that was only
        touched is the same CLI, if its version is known. A file that is not there any more is left to the spawn, which says so.
        """
        try:
            status = os.stat(cli.path)  # noqa: PTH116 - of what is started, whatever made the path
        except OSError:
            return None
        now = PinnedCLI(path=cli.path, version=read_cli_version(cli), modified_ns=status.st_mtime_ns, size=status.st_size)
        with self._lock:
            before = self._pinned.get(key := None if asked is None else os.fspath(asked))
            self._pinned[key] = now
        return None if before is None or _is_same(before, now) else CLIChange(before=before, now=now)


_of_this_process: Final = CLIPin()
_listeners: Final[list[Callable[[CLIChange], object]]] = []


def pin_cli(cli: CLI, *, asked: str | PathLike[str] | None = None) -> CLIChange | None:
    """Record a spawn of this process; a change is logged as a warning, and told to everybody who listens."""
    change = _of_this_process.note(cli, asked=asked)
    if change is not None:
        logger.warning("%s: pin_cli is on, so nobody should have changed it", printable(change))
        for listener in tuple(_listeners):
            try:
                listener(change)
            except Exception:
                logger.exception("a listener for changes of the CLI has failed; the session starts all the same")
    return change


def on_cli_change(listener: Callable[[CLIChange], object]) -> Callable[[], None]:
    """Have `listener(change)` called at the spawn that finds another CLI than the last one, with the option `pin_cli`; gives the way out.

    It is called on the event loop that spawns, and must not block. What it raises is logged, and stops nothing.
    """
    _listeners.append(listener)

    def stop() -> None:
        if listener in _listeners:
            _listeners.remove(listener)

    return stop


def _is_same(before: PinnedCLI, now: PinnedCLI) -> bool:
    if before.path != now.path:
        return False
    if before.version is not None and now.version is not None:
        return before.version == now.version
    return before == now


def _shown(cli: PinnedCLI) -> str:
    return cli.version or "of unknown version"
