"""What a transport or a callback of other code raises, as errors of this library; and how a conversation ends with it.

Code of other libraries may raise anything, also a cancellation of its own, which must not end the conversation. `CallbackFailures` counts
and logs the callbacks of a conversation that failed; it goes on after such a failure.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import traceback
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

import anyio

from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    ConnectionLost,
    InputClosed,
    OutcomeUncertain,
    ProcessError,
    TransportClosed,
)
from claude_transport.loggers import logger_for
from claude_transport.loops.current import LightEvent, is_being_cancelled_here
from claude_transport.protocol.redaction import Redactor
from claude_transport.text.printable import printable, printable_lines
from claude_transport.transport import TransportInfo, TransportLike, info_of

logger: logging.Logger = logger_for(__name__)

T = TypeVar("T")

_GONE: Final = (ConnectionError, EOFError, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""What a transport of another library may raise for a write to a peer that is gone."""


class StrayCancellation(Exception):
    """Code of another library raised a cancellation, although no cancel scope around it was cancelled."""


async def guarded(awaitable: Awaitable[T]) -> T:
    """Await `awaitable`. Raises `StrayCancellation` for a cancellation that comes from no cancel scope around the caller."""
    try:
        return await awaitable
    except anyio.get_cancelled_exc_class() as exc:
        refuse_stray(exc)
        raise


def refuse_stray(cancelled: BaseException) -> None:
    """Raise `StrayCancellation` unless a scope around the caller is cancelled, or asyncio cancels its task, as at the end of the loop."""
    if anyio.current_effective_deadline() != -math.inf and not is_being_cancelled_here():
        raise StrayCancellation("it raised a cancellation, but no cancel scope around it was cancelled") from cancelled


def without_cancellation(error: BaseException) -> BaseException | None:
    """Return `error` without the cancellations in it; None when it contains nothing but cancellations."""
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, BaseExceptionGroup):
        return error if error.subgroup(cancelled) is None else error.split(cancelled)[1]
    return None if isinstance(error, cancelled) else error


def meant_for_the_program(error: BaseException | None) -> KeyboardInterrupt | SystemExit | None:
    """Return the `KeyboardInterrupt` or `SystemExit` in `error`, which may be a group; None when there is none."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            if (found := meant_for_the_program(member)) is not None:
                return found
        return None
    return error if isinstance(error, KeyboardInterrupt | SystemExit) else None


def translated(exc: Exception, what: str) -> ClaudeTransportError:
    """Return an error of this library for `exc`, which a transport or a wrapper of the user may have raised. `what` begins its message.

    An exception with an `exit_code`, such as the `ProcessError` of the official SDK, becomes a `ProcessError`; others a `ConnectionLost`
    with the code `transport.failed`. The exception is its `__cause__`.
    """
    if isinstance(exc, ClaudeTransportError):
        return exc
    exit_code = getattr(exc, "exit_code", None)
    error: ConnectionLost
    if isinstance(exit_code, int) and not isinstance(exit_code, bool):
        status = {"signal": -exit_code} if exit_code < 0 else {"exit_code": exit_code}
        error = ProcessError(f"{what}: {exc}", stderr_tail=str(getattr(exc, "stderr", None) or ""), **status)
    else:
        error = ConnectionLost(f"{what}: {exc!r}", code="transport.failed")
    error.__cause__ = exc
    return error


@contextlib.contextmanager
def translating(what: str) -> Iterator[None]:
    """Raise an error of this library for what the block raises, as `translated()` makes it."""
    try:
        yield
    except ClaudeTransportError:
        raise
    except Exception as exc:
        raise translated(exc, what) from exc


async def connect_guarded(transport: TransportLike) -> None:
    """Connect `transport`. What it raises that is no error of this library becomes a `CLIConnectionError`, code `transport.failed`."""
    try:
        await guarded(transport.connect())
    except ClaudeTransportError:
        raise
    except Exception as exc:
        message = f"the transport could not connect: {exc!r}"
        raise CLIConnectionError(message, code="transport.failed") from exc


def says_peer_is_gone(error: ClaudeTransportError) -> bool:
    """Return True when `error`, which a transport raised for a write, says no more than that the peer is gone, or takes no more input."""
    if error.code == "transport.failed":
        return isinstance(error.__cause__, _GONE)
    return isinstance(error, TransportClosed | InputClosed | ConnectionLost | OutcomeUncertain)


def tells_of_the_end(error: ClaudeTransportError) -> bool:
    """Return True when reading may find out more than `error` says: the peer is gone, or the system refused the write."""
    return says_peer_is_gone(error) or isinstance(error.__cause__, OSError)


class ConversationEnd:
    """How one conversation ends: what its transport raised first, why reading ended, and whether a caller was told.

    Args:
        transport: tells what is known of the peer.
    """

    __slots__ = ("_is_told", "_transport", "ended", "error", "first_failure")

    def __init__(self, transport: TransportLike) -> None:
        self._transport = transport
        self._is_told = False
        self.first_failure: ClaudeTransportError | None = None
        """What the transport raised first for a write or the end of its input."""
        self.ended: LightEvent = LightEvent()
        """Set when nothing more will come from the peer."""
        self.error: ClaudeTransportError | None = None
        """Why; None after a good end, and before any end."""

    @property
    def info(self) -> TransportInfo:
        """What is known of the transport."""
        return info_of(self._transport)

    def end(self, error: ClaudeTransportError | None) -> None:
        """Note that nothing more will come, because of `error` or after a good end."""
        self.error = error
        self.ended.set()

    def note(self, error: ClaudeTransportError) -> None:
        """Keep `error` as the first failure, when it is the first one."""
        self.first_failure = self.first_failure or error

    def told(self, error: ClaudeTransportError) -> BaseException:
        """Return `error`, of a write or not, to be raised to a caller."""
        self.mark_told(error)
        return raised_again(error)

    def mark_told(self, error: ClaudeTransportError | None) -> None:
        """Note that callers get `error`, as the end of the conversation."""
        self._is_told |= error is self.first_failure

    def cause(self, end: ClaudeTransportError | None) -> ClaudeTransportError | None:
        """Return the error of the conversation whose reading ended with `end`, or well.

        The first failure counts, and `end` becomes a note of it. Only when the first one looks like the end of the peer, `end` says more.
        """
        failure = self.first_failure
        if failure is None or says_peer_is_gone(failure):
            return end
        if end is None or end is failure:
            return failure
        if tells_of_the_end(failure):
            return _caused(end, end.__cause__ or failure)
        failure.add_note(f"after that, reading ended with {type(end).__name__}: {end}")
        return failure

    def gone(self, message: str) -> TransportClosed:
        """Return `TransportClosed` with what is known of the end of the peer."""
        known = self.error if isinstance(self.error, ProcessError) else self.info
        gone = TransportClosed(message, exit_code=known.exit_code, signal=known.signal, stderr_tail=known.stderr_tail)
        gone.__cause__ = self.error
        return gone

    def log_untold(self) -> None:
        """Log the first failure at the end of the conversation, when no caller was told."""
        if self.first_failure is not None and not self._is_told and not says_peer_is_gone(self.first_failure):
            logger.error("the transport failed, and nothing waited for what it was to write", exc_info=self.first_failure)


def _caused(error: ClaudeTransportError, cause: BaseException) -> ClaudeTransportError:
    try:
        raise error from cause
    except ClaudeTransportError as caused:
        return caused


def raised_again(error: ClaudeTransportError) -> BaseException:
    """Return a copy of `error`, for each of the tasks that wait for it: raising one object many times would mix up their tracebacks.

    When the cause is the `sys.exit()` of a callback, return that `SystemExit`: under trio, only a waiting task can raise it to the program.
    """
    exit_of_program = meant_for_the_program(error.__cause__)
    if isinstance(exit_of_program, SystemExit):
        return exit_of_program
    again = copy.copy(error)
    again.__cause__ = error.__cause__
    if hasattr(error, "__notes__"):
        again.__notes__ = list(error.__notes__)  # copy() shares the list
    return again


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
        """Count a failure of the callback `name`. Log `error`, which it raised; without one, log the description `what`."""
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
