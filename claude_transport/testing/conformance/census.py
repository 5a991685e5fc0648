"""`Census`: what a process holds at one moment: file descriptors, child processes, threads, tasks."""

from __future__ import annotations

import contextlib
import gc
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec

from claude_transport.testing.conformance.bench import settle

OWN = frozenset({"children", "tasks"})
"""What belongs to one session alone: the first one that is closed must already have taken it along."""

LASTING = OWN | {"file_descriptors"}
"""What does not grow from one session to the next, however they end. (A pool of threads may: a cancelled call keeps its thread busy.)"""

ALL = LASTING | {"threads"}
"""What does not grow from one undisturbed session to the next."""

_YOUNG = 1
"""The oldest generation that is collected as a matter of course: all of them would take most of a run's time in a large process."""

_LOOK_AGAIN = 0.01
"""Seconds between two looks while something is still there that only the system can take away."""


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each there are; None where this system does not tell."""

    file_descriptors: int | None
    children: int | None
    threads: int
    tasks: int

    @classmethod
    def take(cls) -> Census:
        """Count now; must be called inside an event loop."""
        return cls(
            file_descriptors=_count_file_descriptors(),
            children=_count_children(),
            threads=threading.active_count(),
            tasks=len(anyio.get_running_tasks()),
        )

    @classmethod
    async def rested(cls) -> Census:
        """Count after everything has come to rest."""
        gc.collect(_YOUNG)
        await settle()
        return cls.take()

    async def growth(self, *, patience: float, of: frozenset[str]) -> dict[str, int]:
        """What there is more of now, by name, of the kinds in `of`; looks again for up to `patience` seconds until there is nothing."""
        await Census.rested()
        if self._grown(of):
            gc.collect()
        with anyio.move_on_after(patience):
            while self._grown(of):  # noqa: ASYNC110
                await anyio.sleep(_LOOK_AGAIN)  # there is no event for "the system has forgotten it"
        return self._grown(of)

    def _grown(self, of: frozenset[str]) -> dict[str, int]:
        now = Census.take()
        return {kind.replace("_", " "): more for kind in sorted(of) if (more := (getattr(now, kind) or 0) - (getattr(self, kind) or 0)) > 0}


@contextlib.contextmanager
def unclosed() -> Iterator[list[str]]:
    """Collects what `ResourceWarning`s say inside the block, garbage collection at its end included."""
    said: list[str] = []
    enabled = gc.isenabled()
    gc.disable()  # so that nothing grows old while it is in use: what is garbage at the end is young
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
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len([*Path(folder).iterdir()])
    return None


def _count_children() -> int | None:
    """Child processes, zombies included: those of every thread, of which one or the other ends while they are gone through."""
    if not Path("/proc/self/task").is_dir():
        return None
    count = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            count += len(task.joinpath("children").read_text().split())
    return count
