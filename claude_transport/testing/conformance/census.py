"""`Census`: the number of file descriptors, child processes, threads and tasks of this process at one moment."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec

from claude_transport.platform.winapi import count_handles
from claude_transport.testing.conformance.bench import settle

OWN = frozenset({"children", "tasks"})
"""Kinds that belong to one session: its close must already have released them."""

LASTING = OWN | {"file_descriptors"}
"""Kinds that must not grow from session to session, however they end. (Threads may: a cancelled call keeps its thread busy.)"""

ALL = LASTING | {"threads"}
"""Kinds that must not grow from one undisturbed session to the next."""

_YOUNG = 1
"""The oldest generation that is always collected. Collecting all of them would take most of the time in a large process."""

_LOOK_AGAIN = 0.01
"""Seconds between two counts while the system still has something to release."""


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """The number of each kind; None where the system does not report it."""

    file_descriptors: int | None
    children: int | None
    threads: int
    tasks: int

    @classmethod
    def take(cls) -> Census:
        """Count now. Must be called inside an event loop."""
        return cls(
            file_descriptors=_count_file_descriptors(),
            children=_count_children(),
            threads=threading.active_count(),
            tasks=len(anyio.get_running_tasks()),
        )

    @classmethod
    async def rested(cls) -> Census:
        """Wait until all tasks wait, then count."""
        gc.collect(_YOUNG)
        await settle()
        return cls.take()

    async def growth(self, *, patience: float, of: frozenset[str]) -> dict[str, int]:
        """Return the growth of the kinds in `of` since this census, by name. While there is any, count again for `patience` seconds."""
        await Census.rested()
        if self._grown(of):
            gc.collect()
        with anyio.move_on_after(patience):
            while self._grown(of):  # noqa: ASYNC110
                await anyio.sleep(_LOOK_AGAIN)  # the system sends no event when it releases something
        return self._grown(of)

    def _grown(self, of: frozenset[str]) -> dict[str, int]:
        now = Census.take()
        return {kind.replace("_", " "): more for kind in sorted(of) if (more := (getattr(now, kind) or 0) - (getattr(self, kind) or 0)) > 0}


@contextlib.contextmanager
def unclosed() -> Iterator[list[str]]:
    """Collect the texts of all `ResourceWarning`s inside the block, including a garbage collection at its end."""
    said: list[str] = []
    enabled = gc.isenabled()
    gc.disable()  # so that garbage is still in a young generation at the end
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            yield said
            gc.collect(_YOUNG)
    finally:
        if enabled:
            gc.enable()
    said += [str(warning.message) for warning in caught if issubclass(warning.category, ResourceWarning)]


def _count_file_descriptors() -> int | None:
    if os.name == "nt":  # under wine, the folders are there, and list what wine itself has open
        return count_handles()
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len([*Path(folder).iterdir()])
    return None


def _count_children() -> int | None:
    """Count the child processes of every thread, zombies included. A thread may end meanwhile."""
    if not Path("/proc/self/task").is_dir():
        return None
    count = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            count += len(task.joinpath("children").read_text().split())
    return count
