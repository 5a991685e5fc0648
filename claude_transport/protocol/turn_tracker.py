"""`TurnTracker`: what follows the turns of one session. Each agent has its own.

Transports carry lines and know no turns. A gateway, a tape, metrics and traces need two facts more: when a turn runs, and how a session is
ended without losing it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from claude_transport.protocol.framing import LineBlock


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
