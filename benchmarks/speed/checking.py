"""What a check measures: every figure with a target once, and figures under their floor again while there is time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from speed.bench import Table
from speed.targets import Target

__all__ = ["Tries"]


class Tries:
    """The tables of one event loop, by part. Calling it with names of parts measures these with `measure(part, tables)`."""

    def __init__(
        self, targets: Sequence[Target], *, measure: Callable[[str, set[str]], dict[str, Table]], is_over: Callable[[], bool]
    ) -> None:
        self._targets = targets
        self._measure = measure
        self._is_over = is_over
        self._found: dict[str, dict[str, Table]] = {}

    def __call__(self, names: Collection[str]) -> dict[str, dict[str, Table]]:
        for part in dict.fromkeys(target.place[0] for target in self._targets if target.place[0] in names):
            targets = [target for target in self._targets if target.place[0] == part]
            is_first = part not in self._found
            wanted = {target.place[1] for target in targets if is_first or target.figure(self._found) < target.floor}
            if is_first or not self._is_over():
                self._found[part] = {**self._found.get(part, {}), **self._measure(part, wanted)}
        return self._found
