"""Public results of a `Query` (`InterruptOutcome`, `CloseReport`, `ResumePoint`), and functions that the modules of `client` share.

The functions recognise cancellations that this library did not order, turn exceptions into errors of this library, and check arguments.
`CallbackFailures` counts and logs failed callbacks. The state of a query is in `query.py`, `connection.py` and `storage.py`.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import anyio
import msgspec

from claude_transport.background import is_being_cancelled_here
from claude_transport.errors import (
    ClaudeTransportError,
    CLIConnectionError,
    CLIJSONDecodeError,
    ConfigurationError,
    ConnectionLost,
    InputClosed,
    OutcomeUncertain,
    ProcessError,
    TransportClosed,
    UsageError,
)
from claude_transport.launch.rules import check_agent_rules, check_skills
from claude_transport.loggers import logger_for
from claude_transport.printable import printable, printable_lines
from claude_transport.protocol.codec import DecodeCounters
from claude_transport.protocol.envelope import DecodeFailure, OversizedMessage
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.messages import ResultMessage
from claude_transport.protocol.redaction import Redactor
from claude_transport.transport import TransportInfo, TransportLike

logger: logging.Logger = logger_for(__name__)

T = TypeVar("T")

_PROSE_BYTES: Final = 4096
"""Bytes that are kept of a first line that held no message."""
_SHOWN_CHARS: Final = 200
"""Characters of it in the message of an error."""
_GONE: Final = (ConnectionError, EOFError, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""What a transport of another library may raise for a write to a peer that is gone."""


class InterruptOutcome(StrEnum):
    """What `Query.interrupt()` returns: whether the CLI stops the running turn."""

    ACKNOWLEDGED = "acknowledged"
    """The CLI stops the running turn; its result follows (docs/reference/protocol.md#interrupts)."""
    NOT_RUNNING = "not_running"
    """No turn was running."""
    TIMED_OUT = "timed_out"
    """The peer did not answer in time."""
    DEAD = "dead"
    """The peer has ended or cannot be asked: input has ended, or it refuses while the turn still runs."""


class CloseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `Query.aclose()` returns: how the conversation was closed, and what was cut off.

    `ended_by_itself` is False when the peer did not end in time, so that it was cut off. `lost_turns` are the uuids of prompts without a
    result. `dropped_tasks` are the background agents that were still at work: task id to description. `exit_code` and `signal` say how the
    process ended, if there is one; `killed` is True when it had to be ended by a signal. `unstored_entries` counts what the `session_store`
    did not get of the transcript.
    """

    ended_by_itself: bool = True
    lost_turns: tuple[str, ...] = ()
    dropped_tasks: dict[str, str] = {}
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False
    unstored_entries: int = 0


class ResumePoint(msgspec.Struct, frozen=True):
    """Where a new process can continue a conversation: `ClaudeOptions(resume=session_id, resume_session_at=last_uuid)`. `last_uuid` is the
    uuid of the last message of the main conversation; None before there is one.
    """

    session_id: str
    last_uuid: str | None = None


# A callback or a transport of another library may raise a cancellation of its own. It must not end the conversation.


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


class FirstFailure:
    """What the transport of one conversation raised first for a write or the end of its input: `error`, and whether a caller was told."""

    __slots__ = ("_is_told", "error")

    def __init__(self) -> None:
        self.error: ClaudeTransportError | None = None
        self._is_told = False

    def note(self, error: ClaudeTransportError) -> None:
        """Keep `error`, when it is the first one."""
        self.error = self.error or error

    def told(self, error: ClaudeTransportError) -> BaseException:
        """Return `error`, of a write or not, to be raised to a caller."""
        self.mark_told(error)
        return raised_again(error)

    def mark_told(self, error: ClaudeTransportError | None) -> None:
        """Note that callers get `error`, as the end of the conversation."""
        self._is_told |= error is self.error

    def or_end(self, end: ClaudeTransportError | None) -> ClaudeTransportError | None:
        """Return the error of the conversation whose reading ended with `end`, or well.

        The first one counts, and `end` becomes a note of it. Only when the first one looks like the end of the peer, `end` says more.
        """
        failure = self.error
        if failure is None or says_peer_is_gone(failure):
            return end
        if end is None or end is failure:
            return failure
        if tells_of_the_end(failure):
            return _caused(end, end.__cause__ or failure)
        failure.add_note(f"after that, reading ended with {type(end).__name__}: {end}")
        return failure

    def log_untold(self) -> None:
        """Log it at the end of the conversation, when no caller was told."""
        if self.error is not None and not self._is_told and not says_peer_is_gone(self.error):
            logger.error("the transport failed, and nothing waited for what it was to write", exc_info=self.error)


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


def cause_of_end(
    error: ClaudeTransportError | None,
    *,
    last: ResultMessage | None,
    counters: DecodeCounters,
    explain: Callable[[], ClaudeTransportError | None],
) -> ClaudeTransportError | None:
    """Return the error that ended the stream; None when it ended well.

    `error` is what the transport raised, `last` the last result, and `counters` tell whether any line was a message. `explain` makes the
    error for a peer of which no line was.
    """
    if isinstance(error, ProcessError) and error.exit_code == 1 and last is not None and last.is_error is True:
        return None  # not a crash: after a failed result, the CLI exits with code 1 (docs/reference/protocol.md#exit-codes)
    messages = counters.typed + counters.salvaged + counters.unknown + counters.lossy
    if error is None and not messages and counters.noise + counters.malformed:
        return explain()
    return error


class Prose(NamedTuple):
    """The first line that held no message. A peer that sends nothing else may be another program, which explains itself there."""

    line: bytes
    line_number: int | None

    @classmethod
    def of(cls, failure: DecodeFailure | OversizedMessage) -> Prose:
        """Keep the beginning of the line."""
        line = failure.raw
        if len(line) > _PROSE_BYTES:
            line = OversizedLine(line[:_PROSE_BYTES], size=len(line), limit=_PROSE_BYTES)
        return cls(line, getattr(failure, "line_number", None))

    def error(self, info: TransportInfo, redactor: Redactor) -> CLIJSONDecodeError:
        """Return the error for a peer that has ended, and whose output was nothing but such lines."""
        # redacted before it is cut: half a key does not look like one
        shown = printable(redactor.line(self.line).decode("utf-8", "backslashreplace").strip(), at_most=_SHOWN_CHARS)
        return CLIJSONDecodeError(
            f"{end_of(info)}, and none of its output was a message of the Claude CLI. It began with {shown!r}. {check_peer(info)}",
            line=self.line,
            line_number=self.line_number,
        )


def end_of(info: TransportInfo) -> str:
    """Return how the peer ended, in words: its program, or what is known of it, and the exit code."""
    if info.exit_code is not None:
        return f"{info.cli_path or 'the process'} ended with exit code {info.exit_code}"
    return f"{info.cli_path or 'the peer'} closed the connection"


def check_peer(info: TransportInfo) -> str:
    """Return what to do about a peer that does not speak like a Claude CLI."""
    if info.cli_path is None:
        return "Check that the Claude CLI, or a gateway to it, is at the other end."
    return (
        f"Run `{info.cli_path} --version`: it must answer `… (Claude Code)`. "
        "If it does not, name another program (cli_path, CLAUDE_CLI_PATH)."
    )


def ended_before_answer(info: TransportInfo, *, failure: ClaudeTransportError | None = None) -> ConnectionLost:
    """Return the error for the requests that a peer had not answered when it ended well. `failure` is why it got no more lines, if so."""
    if not info.bytes_read and not info.lines_read and info.exit_code is not None:
        lost = ConnectionLost(f"{end_of(info)} and said nothing: it is probably no Claude CLI. {check_peer(info)}")
    else:
        how = f"the conversation ended before the request was answered: {end_of(info)}"
        lost = ConnectionLost(f"{how}. Start a new session and ask again.")
    lost.__cause__ = failure
    return lost


# Checks of arguments


def check_callback(option: str, callback: object) -> None:
    """Raise `ConfigurationError` unless `callback` can be called or is None."""
    if callback is not None and not callable(callback):
        _refuse(option, f"{option} must be an async function, not {type(callback).__name__}")


def check_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Check `skills` and `agents` in the fields of `initialize`, and return `fields`.

    Raises `ConfigurationError` for names that the CLI would read as rules for other skills or tools.
    """
    check_skills(fields.get("skills"))
    agents = fields.get("agents")
    if isinstance(agents, Mapping):
        check_agent_rules(agents)
    return fields


def check_on_error(value: object) -> None:
    """Raise `ConfigurationError` unless `value` is "deny" or "allow"."""
    if value not in ("deny", "allow"):
        _refuse("on_callback_error", f'on_callback_error must be "deny" or "allow", not {value!r}')


def check_number(option: str, value: object, *, positive: bool) -> None:
    """Raise `ConfigurationError` unless `value` is a number of at least 0; with `positive`, above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value > 0 if positive else value >= 0):
        _refuse(option, f"{option} must be a number {'above' if positive else 'of at least'} 0, not {value!r}")


def check_seconds(name: str, value: object) -> None:
    """Raise `UsageError` unless `value` is a number. Negative numbers are accepted, and mean 0 seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UsageError(f"{name} must be a number of seconds (math.inf for no limit), not {value!r}")


def check_hook_event(event: object) -> None:
    """Raise `ConfigurationError` unless `event` is a known hook event: hooks of an unknown one would never run."""
    from claude_transport.protocol.hooks import HookEvent  # its many classes are made for conversations with hooks only

    if not isinstance(event, str) or event not in [*HookEvent]:
        close: list[str] = []
        with contextlib.suppress(OSError):  # the import fails when no file descriptor is free; then the message has no hint
            import difflib  # only when the hint is needed

            close = difflib.get_close_matches(str(event), [*HookEvent], n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        _refuse("hooks", f"there is no hook event {event!r}{hint} (for an event of a newer CLI, pass its hooks in initialize=)")


def check_sequence(option: str, value: Any, *, of: type, what: str) -> None:
    """Raise `ConfigurationError` unless `value` is a sequence of `of`. `what` names the value in the message."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes | Mapping)
    if not is_list or not all(isinstance(item, of) for item in value):
        _refuse(option, f"{what} must be a list of {of.__name__}, not {value!r}")


def _refuse(option: str, message: str) -> NoReturn:
    raise ConfigurationError(message, option=option)


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
