"""What a conversation reports about itself, and what it refuses: outcomes, causes of an end, failed callbacks, wrong arguments.

The public reports come first: `InterruptOutcome`, `CloseReport`, `ResumePoint`. The rest is for the other modules of `client`.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

import anyio
import msgspec

from claude_transport.errors import ClaudeTransportError, CLIJSONDecodeError, ConfigurationError, ConnectionLost, ProcessError, UsageError
from claude_transport.launch.rules import check_agent_rules, check_skills
from claude_transport.printable import printable, printable_lines
from claude_transport.protocol.codec import DecodeCounters
from claude_transport.protocol.hooks import HookEvent
from claude_transport.protocol.messages import ResultMessage
from claude_transport.protocol.redaction import Redactor

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")


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
    process ended, if there is one; `killed` is True when it had to be ended by a signal.
    """

    ended_by_itself: bool = True
    lost_turns: tuple[str, ...] = ()
    dropped_tasks: dict[str, str] = {}
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False


class ResumePoint(msgspec.Struct, frozen=True):
    """Where a new process can continue a conversation: `ClaudeOptions(resume=session_id, resume_session_at=last_uuid)`. `last_uuid` is the
    uuid of the last message of the main conversation; None before there is one.
    """

    session_id: str
    last_uuid: str | None = None


# Cancellations that no scope of this library ordered: code of others may end in one, and it must not end the conversation.


class StrayCancellation(Exception):
    """Code of another library ended as if it had been cancelled, but no scope around it was."""


async def guarded(awaitable: Awaitable[T]) -> T:
    """Await `awaitable`. A cancellation passes only when a scope around the caller is cancelled; else `StrayCancellation` is raised."""
    try:
        return await awaitable
    except anyio.get_cancelled_exc_class() as exc:
        refuse_stray(exc)
        raise


def refuse_stray(cancelled: BaseException) -> None:
    """Raise `StrayCancellation` unless a scope around the caller is cancelled."""
    if anyio.current_effective_deadline() != -math.inf:
        raise StrayCancellation("it was cancelled by something of its own") from cancelled


def without_cancellation(error: BaseException) -> BaseException | None:
    """Return `error` without the cancellations in it; None when it holds nothing else."""
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, BaseExceptionGroup):
        return error if error.subgroup(cancelled) is None else error.split(cancelled)[1]
    return None if isinstance(error, cancelled) else error


def meant_for_the_program(error: BaseException | None) -> KeyboardInterrupt | SystemExit | None:
    """Return the Ctrl-C or `sys.exit()` that `error` is, or that is in the group; None when there is none."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            if (found := meant_for_the_program(member)) is not None:
                return found
        return None
    return error if isinstance(error, KeyboardInterrupt | SystemExit) else None


def translated(exc: Exception, what: str) -> ClaudeTransportError:
    """Return `exc` as an error of this library, with `what` failed as its message: a transport of another library may raise anything.

    An exception with an `exit_code`, such as the official SDK's `ProcessError`, becomes a `ProcessError`; others a `ConnectionLost`.
    """
    if isinstance(exc, ClaudeTransportError):
        return exc
    exit_code = getattr(exc, "exit_code", None)
    error: ConnectionLost
    if isinstance(exit_code, int) and not isinstance(exit_code, bool):
        died = {"signal": -exit_code} if exit_code < 0 else {"exit_code": exit_code}
        error = ProcessError(f"{what}: {exc}", stderr_tail=str(getattr(exc, "stderr", None) or ""), **died)
    else:
        error = ConnectionLost(f"{what}: {exc!r}")
    error.__cause__ = exc
    return error


def raised_again(error: ClaudeTransportError) -> BaseException:
    """Return a copy of `error` to raise: one error may be raised to many waiters, and each raise would add to the traceback of the others.

    When a callback called `sys.exit()`, return that `SystemExit`: under trio, only a waiting task can take it to the program.
    """
    exit_of_program = meant_for_the_program(error.__cause__)
    if isinstance(exit_of_program, SystemExit):
        return exit_of_program
    again = copy.copy(error)
    again.__cause__ = error.__cause__
    for note in getattr(error, "__notes__", ()):
        if note not in getattr(again, "__notes__", ()):
            again.add_note(note)
    return again


def cause_of_end(
    error: ClaudeTransportError | None, *, last: ResultMessage | None, counters: DecodeCounters
) -> ClaudeTransportError | None:
    """Return why the stream ended; None for a good end."""
    if isinstance(error, ProcessError) and error.exit_code == 1 and last is not None and last.is_error is True:
        return None  # the CLI's exit code repeats what its last result said (docs/reference/protocol.md#exit-codes): it is no crash
    messages = counters.typed + counters.salvaged + counters.unknown + counters.lossy
    if error is None and not messages and counters.noise + counters.malformed:
        return CLIJSONDecodeError("the peer ended, and nothing that it said was a JSON message")
    return error


# Checks of arguments

_METHODS = ("connect", "write", "read_messages", "end_input", "close", "is_ready")


def check_transport(transport: object) -> None:
    """Raise `ConfigurationError` for an object that lacks one of the six methods of a transport."""
    missing = [name for name in _METHODS if not callable(getattr(transport, name, None))]
    if missing:
        _refuse("transport", f"{type(transport).__name__} is no transport: it has no {', '.join(missing)}")


def check_callback(option: str, callback: object) -> None:
    """Raise `ConfigurationError` for a callback that cannot be called. None is no callback."""
    if callback is not None and not callable(callback):
        _refuse(option, f"{option} is an async function, not {type(callback).__name__}")


def check_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return `fields`; raise `ConfigurationError` for `skills` and agents that would allow other skills or tools than they name."""
    check_skills(fields.get("skills"))
    agents = fields.get("agents")
    if isinstance(agents, Mapping):
        check_agent_rules(agents)
    return fields


def check_on_error(value: object) -> None:
    """Raise `ConfigurationError` for any value but "deny" and "allow"."""
    if value not in ("deny", "allow"):
        _refuse("on_callback_error", f'on_callback_error is "deny" or "allow", not {value!r}')


def check_number(option: str, value: object, *, positive: bool) -> None:
    """Raise `ConfigurationError` for a value that is no number, or below 0; with `positive`, also for 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value > 0 if positive else value >= 0):
        _refuse(option, f"{option} is a number {'above' if positive else 'of at least'} 0, not {value!r}")


def check_seconds(name: str, value: object) -> None:
    """Raise `UsageError` for a value that is no number of seconds. Negative values count as 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UsageError(f"{name} is a number of seconds, math.inf for no limit, not {value!r}")


def check_hook_event(event: object) -> None:
    """Raise `ConfigurationError` for an event that does not exist: its hooks would never run."""
    if not isinstance(event, str) or event not in [*HookEvent]:
        close: list[str] = []
        with contextlib.suppress(OSError):  # without a free file descriptor, the import fails and there is no hint
            import difflib  # only when the hint is needed

            close = difflib.get_close_matches(str(event), [*HookEvent], n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        _refuse("hooks", f"there is no hook event {event!r}{hint} (an event of a newer CLI can be registered by initialize=)")


def check_sequence(option: str, value: Any, *, of: type, what: str) -> None:
    """Raise `ConfigurationError` for a value that is no list of `of`."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes | Mapping)
    if not is_list or not all(isinstance(item, of) for item in value):
        _refuse(option, f"{what} must be a list of {of.__name__}, not {value!r}")


def _refuse(option: str, message: str) -> NoReturn:
    raise ConfigurationError(message, option=option)


class CallbackFailures:
    """Counts and logs the callbacks of one conversation that fail.

    `make_redactor` is called for the first failure; the redactor takes the secrets out of what is logged. The record has the level ERROR
    and holds the traceback as text. It has no `exc_info`, which would hold the error itself, with all that its message quotes of the
    CLI's question, and every variable of every frame. Each line of the traceback is printable and indented.
    """

    def __init__(self, make_redactor: Callable[[], Redactor] = Redactor) -> None:
        self._make_redactor = make_redactor
        self._redactor: Redactor | None = None
        self.failed: int = 0
        """Callbacks that raised, cancelled themselves, were late, or answered what cannot be told to the CLI."""
        self.late: int = 0
        """Answers that came too late: the question was withdrawn or answered before."""

    def note(self, name: str, error: BaseException | None = None, *, what: str = "") -> None:
        """Count a failure of the callback `name`, and log the error that it raised, or without one the words of `what`."""
        self.failed += 1
        if error is None:
            logger.error("%s failed: %s", printable(name), printable(what))
            return
        if self._redactor is None:
            self._redactor = self._make_redactor()
        told = self._redactor.text("".join(traceback.format_exception(error)))
        logger.error("%s failed (%s)\n%s", printable(name), type(error).__name__, printable_lines(told.rstrip()))

    def note_late(self, what: str) -> None:
        """Count an answer of the callback `what` that came too late."""
        self.late += 1
        logger.debug("%s has answered too late: its question was withdrawn, or denied because its time was over", printable(what))
