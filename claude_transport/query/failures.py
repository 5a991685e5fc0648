"""What the program's own callbacks failed at: counted, and each of them logged, without the secrets that its error may quote."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

from claude_transport.printable import printable, printable_lines
from claude_transport.protocol.redaction import Redactor

__all__ = ["CallbackFailures"]

logger: logging.Logger = logging.getLogger(__name__)


class CallbackFailures:
    """The callbacks of one conversation that did not do what they are there for.

    `make_redactor` is called for the first failure; what it gives cleans what is logged. The record is at level ERROR and holds the
    traceback as text and not as `exc_info`: that would be the error itself, as it is, with everything that its message quotes of the
    CLI's question, and every variable of every frame. Each line of the traceback is printable and indented.
    """

    def __init__(self, make_redactor: Callable[[], Redactor] = Redactor) -> None:
        self._make_redactor = make_redactor
        self._redactor: Redactor | None = None
        self.failed: int = 0
        """Callbacks that raised, cancelled themselves, were late, or answered what cannot be told to the CLI."""
        self.late: int = 0
        """Answers that came when nothing waited for them any more."""

    def note(self, name: str, error: BaseException | None = None, *, what: str = "") -> None:
        """Count a failure of the callback `name`, and log it: the error that it raised, or else in words what happened."""
        self.failed += 1
        if error is None:
            logger.error("%s failed: %s", printable(name), printable(what))
            return
        if self._redactor is None:
            self._redactor = self._make_redactor()
        told = self._redactor.text("".join(traceback.format_exception(error)))
        logger.error("%s failed (%s)\n%s", printable(name), type(error).__name__, printable_lines(told.rstrip()))

    def note_late(self, what: str) -> None:
        """Count an answer of `what` that is of no use any more."""
        self.late += 1
        logger.debug("%s has answered too late: its question was withdrawn, or denied because its time was over", printable(what))
