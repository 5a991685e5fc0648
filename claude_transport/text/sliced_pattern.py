"""`SlicedPattern`: a regular expression that searches a long text in slices, so that other threads run in between.

One call of `re` holds the interpreter until it returns. For a text of some megabytes that is long enough to delay every task of an event
loop in another thread.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

SLICE_CHARS: Final = 2**16
"""Characters that are searched at once: at most some 15 ms for the slowest expression."""

MARGIN_CHARS: Final = 2**14
"""Characters behind a slice that a match may reach into. A longer match is searched again with more of them."""


class SlicedPattern:
    """A regular expression that is compiled when it is first used. It matches at least one character, and has no `^` or `$`.

    It finds what `re` finds, with one exception: a match that needs to see more than `margin` characters before it can succeed.

    Args:
        source: the regular expression.
        size: characters that are searched at once.
        margin: characters behind them that a match may reach into.
    """

    def __init__(self, source: str, *, size: int = SLICE_CHARS, margin: int = MARGIN_CHARS) -> None:
        self._source = source
        self._size = size
        self._margin = margin

    @functools.cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled expression, for short texts."""
        return re.compile(self._source)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Return the first match at or after `start`; None when there is none."""
        while start < len(text):
            stop = start + self._size
            found = self._search_slice(text, start, stop + self._margin)
            if found is not None and (found.start() < stop or stop >= len(text)):
                return found
            start = stop
        return None

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str) -> str:
        """Replace each match by `new`: a template as for `re.sub`, or a function that returns the replacement."""
        if len(text) <= self._size:
            return self.compiled.sub(new, text)
        pieces: list[str] = []
        done = 0
        while (found := self.search(text, done)) is not None:
            pieces += (text[done : found.start()], found.expand(new) if isinstance(new, str) else new(found))
            done = found.end()
        pieces.append(text[done:])
        return "".join(pieces)

    def _search_slice(self, text: str, start: int, end: int) -> re.Match[str] | None:
        """Search `text[start:end]`, and further while the match may go on behind it."""
        found = self.compiled.search(text, start, end)
        while found is not None and found.end() == end < len(text):
            end += end - found.start()
            found = self.compiled.search(text, found.start(), end)
        return found
