"""`TurnTable`: which turns of one connection to `codex app-server` run, from the requests for them until their ends.

A turn begins with the answer to its request, or with `turn/started` when that comes first. It is over with `turn/completed`, or with the
end of its thread. `turns.py` fills a table from bytes, to end a session in order; `watch.py` fills one from messages, for observers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

MOST_TURNS: Final = 1000
"""The most requests without an answer, and the most running turns, that are followed."""


class _HasThread(Protocol):
    @property
    def thread_id(self) -> str: ...


KeyT = TypeVar("KeyT")
RequestT = TypeVar("RequestT")
TurnT = TypeVar("TurnT", bound=_HasThread)


class TurnTable(Generic[KeyT, RequestT, TurnT]):
    """Requests for turns by their key, and running turns by their id, the oldest first. One beyond `MOST_TURNS` is not followed.

    Of the turns that are over the last ones are `remembered`: the answer that names a turn could come after its end.
    """

    def __init__(self, *, remembered: int = MOST_TURNS) -> None:
        self.asked: dict[KeyT, RequestT] = {}
        """Requests that may begin a turn, and have no answer yet."""
        self.running: dict[str, TurnT] = {}
        """The turns that run."""
        self._over: dict[str, None] = {}
        self._remembered = remembered

    def ask(self, key: KeyT, request: RequestT) -> None:
        """Note a request."""
        if len(self.asked) < MOST_TURNS:
            self.asked[key] = request

    def begin(self, turn_id: str, make: Callable[[], TurnT]) -> TurnT | None:
        """Note that a turn runs, and return what `make` makes of it; None when that is known, or it is over."""
        if not turn_id or turn_id in self.running or turn_id in self._over or len(self.running) >= MOST_TURNS:
            return None
        self.running[turn_id] = turn = make()
        return turn

    def is_over(self, turn_id: str) -> bool:
        """Return whether `end()` was told of a turn, a moment ago."""
        return turn_id in self._over

    def end(self, turn_id: str) -> TurnT | None:
        """Note that a turn is over. Returns it, if it was running."""
        if turn_id:
            self._over[turn_id] = None
            if len(self._over) > self._remembered:
                del self._over[next(iter(self._over))]
        return self.running.pop(turn_id, None)

    def of_thread(self, thread_id: str) -> list[str]:
        """Return the ids of the running turns of a thread."""
        return [turn_id for turn_id, turn in self.running.items() if turn.thread_id == thread_id]

    def forget(self) -> None:
        """Forget the requests and the running turns: nothing more will come of them."""
        self.asked.clear()
        self.running.clear()
