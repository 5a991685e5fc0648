"""How a conversation ended: with which typed cause, or with none."""

from __future__ import annotations

import copy

from claude_transport.errors import ClaudeTransportError, CLIJSONDecodeError, ConnectionLost, ProcessError
from claude_transport.protocol.codec import DecodeCounters
from claude_transport.protocol.messages import ResultMessage
from claude_transport.query.cancellation import meant_for_the_program

__all__ = ["cause_of_end", "raised_again", "translated"]


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
