"""`CallbackFailures`: counts and logs the callbacks of a conversation that failed. A conversation goes on after such a failure."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator

from claude_transport.loggers import logger_for
from claude_transport.protocol.redaction import Redactor
from claude_transport.text.printable import printable, printable_lines

logger: logging.Logger = logger_for(__name__)

CallbackWatcher = Callable[[str, BaseException | None, str], object]
"""Takes the name of a callback that failed, what it raised, if anything, and a description of the failure."""

_watchers: list[CallbackWatcher] = []


@contextlib.contextmanager
def watching_callbacks(watcher: CallbackWatcher) -> Iterator[None]:
    """Call `watcher` at every failure of a callback in this process, in any conversation. For tests: a program goes on after a failure."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def tell_watchers(name: str, error: BaseException | None, *, what: str = "") -> None:
    """Tell those who watch that the callback `name` has failed."""
    for watcher in tuple(_watchers):
        watcher(name, error, what)


class CallbackFailures:
    """Counts and logs the failed callbacks of one conversation.

    `make_redactor` is called at the first failure; the redactor removes secrets from the log. Each failure is logged at level ERROR, with
    the traceback as printable, indented text. The record has no `exc_info`: a log handler could show the variables of each frame, which
    are not redacted.
    """

    def __init__(self, make_redactor: Callable[[], Redactor] = Redactor) -> None:
        self._make_redactor = make_redactor
        self._redactor: Redactor | None = None
        self.failed: int = 0
        """Callbacks that raised, cancelled themselves, were late, or returned a value that cannot be sent to the CLI."""
        self.late: int = 0
        """Answers that came too late: the CLI had withdrawn the question, or the question was already answered."""

    def note(self, name: str, error: BaseException | None = None, *, what: str = "") -> None:
        """Count a failure of the callback `name`. Log the `error` that it raised, or the description `what` when it raised none."""
        self.failed += 1
        tell_watchers(name, error, what=what)
        if error is None:
            logger.error("%s failed: %s", printable(name), printable(what))
            return
        if self._redactor is None:
            self._redactor = self._make_redactor()
        report = self._redactor.text("".join(traceback.format_exception(error)))
        logger.error("%s failed (%s)\n%s", printable(name), type(error).__name__, printable_lines(report.rstrip()))

    def note_late(self, what: str) -> None:
        """Count an answer of the callback `what` that came too late."""
        self.late += 1
        logger.debug("%s has answered too late: the question was withdrawn, or denied because of its time limit", printable(what))
