"""Programs that a host starts in place of `claude`: `tee.py` records the real one, with `recorder.py` beside it; `player.py` plays a tape.

Each is run by its path, in a process of its own. `tee.py` imports nothing of this package and no installed one, so that it starts quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "CLAUDE_TRANSPORT_TAPES"
"""The variable that says for a whole suite whether to record or to play."""

WORDS: Final[Mapping[str, str]] = {"record": "all", "replay": "none", "auto": "once", "none": "none"}
"""Its values, and the mode of `TapeShelf` that each means."""
