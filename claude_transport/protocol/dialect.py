"""`Dialect`: which agent's language the lines of a transport are in. `TurnTracker`: what follows the turns of one.

Transports carry lines and know no dialect. A gateway, a tape, metrics and traces need three facts more: when a turn runs, what ends it, and
how a session is ended without losing it. `find_dialect` tells the dialect from the first line that holds a message. `claude_turns.py` and
`codex/turns.py` follow the turns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from claude_transport.protocol.framing import LineBlock, OversizedLine


class Dialect(StrEnum):
    """The language of the lines. Each is a string: `Dialect.CODEX == "codex"`."""

    CLAUDE = "claude"
    """The stream-json of `claude`: every message has a `type`."""
    CODEX = "codex"
    """The JSON-RPC of `codex app-server`: a message has a `method`, or it is the answer to one. Also the events of `codex exec --json`."""


class TurnTracker(ABC):
    """Follows the turns of one session: give it the lines of both directions in order, and `busy` says whether a turn runs.

    It looks at bytes, and decodes no line that neither begins nor ends a turn. How the lines are cut into batches changes nothing.
    """

    @property
    @abstractmethod
    def busy(self) -> bool:
        """True while a turn runs."""

    @property
    def turn_may_follow(self) -> bool:
        """True when no turn is known to run, but the agent may not have read all prompts yet. If it begins a turn, it does so soon."""
        return False

    @abstractmethod
    def said(self, lines: Sequence[bytes]) -> None:
        """Look at lines from the client, which may begin a turn."""

    @abstractmethod
    def heard(self, block: LineBlock, *, exactly: bool = False) -> None:
        """Look at lines from the agent, which may end a turn. With `exactly`, an end in the middle of a burst is noticed at once."""

    @abstractmethod
    def rest(self) -> None:
        """Forget the running turns: they are over, or will not go on."""

    def interrupts(self) -> list[bytes]:
        """Return the lines, with newlines, that end the running turns before the input may end. Each turn is named once.

        It is empty for an agent that finishes its turn when its input ends, as Claude does. Then the input may end at any time.
        """
        return []

    @property
    def drops_turns(self) -> bool:
        """True when a turn is running that the end of the input would drop."""
        return False


_UNDECIDED_LINES: Final = 16
"""Lines without a message after which a session counts as Claude's."""

_LONG_LINE: Final = 2**20
"""Bytes of a line that is not read to find the dialect. The first line of Codex is short; Claude's may be a prompt with images."""


_EXEC_TYPES: Final = (b'"thread.', b'"turn.', b'"item.')
"""The beginnings of the types of `codex exec --json`. No type of Claude has a dot."""


class _DialectShape(msgspec.Struct, gc=False):
    """The fields of a line that tell its dialect. The decoder skips the rest."""

    type: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode_shape: Final = msgspec.json.Decoder(_DialectShape).decode


def dialect_of(line: bytes) -> Dialect | None:
    """Return the dialect of one line; None when the line does not tell, because it holds no message.

    A message with a `type` is Claude's, unless the type is one of `codex exec --json` (`thread.started`). Without a `type`, a `method`, or
    an `id` with a `result` or an `error`, is Codex's.
    """
    if len(line) > _LONG_LINE or isinstance(line, OversizedLine):
        return None
    try:
        shape = _decode_shape(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if isinstance(shape.type, msgspec.Raw):
        return Dialect.CODEX if bytes(shape.type).startswith(_EXEC_TYPES) else Dialect.CLAUDE
    answers = shape.id is not msgspec.UNSET and (shape.result is not msgspec.UNSET or shape.error is not msgspec.UNSET)
    return Dialect.CODEX if answers or shape.method is not msgspec.UNSET else None


class DialectFinder:
    """Finds the dialect of a session from its first lines, in whichever direction they go.

    `dialect` is `Dialect.CLAUDE` until a line tells otherwise. `is_decided` is True when no later line can change it: a line has told, or
    16 lines have told nothing.
    """

    def __init__(self) -> None:
        self.dialect: Dialect = Dialect.CLAUDE
        self.is_decided: bool = False
        self._left = _UNDECIDED_LINES

    def look(self, lines: Iterable[bytes]) -> Dialect:
        """Look at the next lines, and return the dialect as far as it is known. Does nothing once it is decided."""
        if self.is_decided:
            return self.dialect
        for line in lines:
            if not line.strip():
                continue
            self._left -= 1
            found = dialect_of(line)
            if found is not None or self._left <= 0:
                self.dialect = found or Dialect.CLAUDE
                self.is_decided = True
                break
        return self.dialect


def find_dialect(lines: Iterable[bytes]) -> Dialect:
    """Return the dialect of a conversation from its lines, of both directions; `Dialect.CLAUDE` when they do not tell."""
    return DialectFinder().look(lines)
