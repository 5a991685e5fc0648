"""What the program's own callbacks failed at: counted, and each of them logged, without the secrets that its error may quote."""

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

# --- What a conversation reports about itself: how an interrupt went, how it was closed, where it can be taken up again.


class InterruptOutcome(StrEnum):
    """What came of an interrupt."""

    ACKNOWLEDGED = "acknowledged"
    """The CLI stops the running turn; its result follows (docs/reference/protocol.md#interrupts)."""
    NOT_RUNNING = "not_running"
    """There was nothing to stop."""
    TIMED_OUT = "timed_out"
    """The peer is there but did not answer in time."""
    DEAD = "dead"
    """There is no peer any more, or none that can be reached: input has ended, or it refuses while the turn goes on."""


class CloseReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a conversation was closed, and what was cut off by it.

    `ended_by_itself` is False when the transport had to be closed under it. `lost_turns` are the uuids of prompts without a
    result, `dropped_tasks` the background agents that were still at work: task id to description.
    """

    ended_by_itself: bool = True
    lost_turns: tuple[str, ...] = ()
    dropped_tasks: dict[str, str] = {}
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False


class ResumePoint(msgspec.Struct, frozen=True):
    """Where a new process can take the conversation up: `ClaudeOptions(resume=session_id, resume_session_at=last_uuid)`."""

    session_id: str
    last_uuid: str | None = None


# --- Cancellations that nobody here ordered: foreign code may end in one, and it must not take the conversation along.


T = TypeVar("T")


class StrayCancellation(Exception):
    """Foreign code ended as if it had been cancelled, and no scope around it was."""


async def guarded(awaitable: Awaitable[T]) -> T:
    """What `awaitable` returns or raises; a cancellation only when a scope around the caller is cancelled."""
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
    """Return what is left of `error` when the cancellations are taken out of it; None when it was nothing else."""
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


# --- How a conversation ended: with which typed cause, or with none.


def translated(exc: Exception, what: str) -> ClaudeTransportError:
    """`exc` as an error of this library: somebody else's transport may raise anything.

    An exception with an `exit_code`, such as the official SDK's `ProcessError`, tells of a program that failed.
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
    """Return a copy to raise: one error may be raised to many waiters, and each raise would add to the traceback of the others.

    It is the cause itself when a callback called `sys.exit()`: under trio, only what waits can take that to the program.
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
    """Why the stream ended; None when all is well."""
    if isinstance(error, ProcessError) and error.exit_code == 1 and last is not None and last.is_error is True:
        return None  # the CLI's exit code repeats what its last result said (docs/reference/protocol.md#exit-codes): it is no crash
    messages = counters.typed + counters.salvaged + counters.unknown + counters.lossy
    if error is None and not messages and counters.noise + counters.malformed:
        return CLIJSONDecodeError("the peer ended, and nothing that it said was a JSON message")
    return error


# --- What a `Query` is made with, checked when it is made: a guard that is misspelt must not be a guard that never runs.


_METHODS = ("connect", "write", "read_messages", "end_input", "close", "is_ready")


def check_transport(transport: object) -> None:
    """Refuse what has not the six methods of a transport."""
    missing = [name for name in _METHODS if not callable(getattr(transport, name, None))]
    if missing:
        _refuse("transport", f"{type(transport).__name__} is no transport: it has no {', '.join(missing)}")


def check_callback(option: str, callback: object) -> None:
    """Refuse a callback that cannot be called; None is no callback."""
    if callback is not None and not callable(callback):
        _refuse(option, f"{option} is an async function, not {type(callback).__name__}")


def check_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return `fields`; refuse `skills` and agents that would allow other skills or tools than they name."""
    check_skills(fields.get("skills"))
    agents = fields.get("agents")
    if isinstance(agents, Mapping):
        check_agent_rules(agents)
    return fields


def check_on_error(value: object) -> None:
    """Refuse anything but the two policies: a misspelt "deny" must not become an "allow"."""
    if value not in ("deny", "allow"):
        _refuse("on_callback_error", f'on_callback_error is "deny" or "allow", not {value!r}')


def check_number(option: str, value: object, *, positive: bool) -> None:
    """Refuse what is no number, or too small a one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value > 0 if positive else value >= 0):
        _refuse(option, f"{option} is a number {'above' if positive else 'of at least'} 0, not {value!r}")


def check_seconds(name: str, value: object) -> None:
    """Refuse what is no time to wait, before anything is begun that would have to be undone; less than none is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UsageError(f"{name} is a number of seconds, math.inf for no limit, not {value!r}")


def check_hook_event(event: object) -> None:
    """Refuse the name of an event that does not exist: its hooks would never run, without a word."""
    if not isinstance(event, str) or event not in [*HookEvent]:
        close: list[str] = []
        with contextlib.suppress(OSError):  # no file descriptor may be free: then there is no hint
            import difflib  # only for those who need the hint

            close = difflib.get_close_matches(str(event), [*HookEvent], n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        _refuse("hooks", f"there is no hook event {event!r}{hint} (an event of a newer CLI can be registered by initialize=)")


def check_sequence(option: str, value: Any, *, of: type, what: str) -> None:
    """Refuse what is no list of `of`."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes | Mapping)
    if not is_list or not all(isinstance(item, of) for item in value):
        _refuse(option, f"{what} must be a list of {of.__name__}, not {value!r}")


def _refuse(option: str, message: str) -> NoReturn:
    raise ConfigurationError(message, option=option)


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
