"""Every failure as an exit code, one line, and a hint that helps; shared by all commands."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from typing import Final

from claude_transport.app.arguments import PROGRAM
from claude_transport.errors import (
    APIFailed,
    AuthenticationError,
    AuthFailed,
    BillingFailed,
    ClaudeTransportError,
    CLINotFoundError,
    CLIVersionMismatch,
    ConfigurationError,
    ConnectTimeout,
    ModelNotFound,
    NotExecutableError,
    Overloaded,
    ProcessError,
    RateLimited,
    ResultError,
    SpawnError,
    TransportClosed,
    UsageError,
    WrongLibcError,
)
from claude_transport.printable import printable, printable_lines

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_MODEL: Final = 3
EXIT_INTERRUPTED: Final = 130

TRACEBACK: Final = "CLAUDE_TRANSPORT_TRACEBACK"

_LAST_WORDS = 5
"""Lines of the CLI's standard error that are shown with its death; `--verbose` shows all of them as they come."""

_BEFORE_ANYTHING_RAN = (ConfigurationError, UsageError, SpawnError, CLIVersionMismatch)
_MODEL_SIDE = (AuthFailed, AuthenticationError, BillingFailed, RateLimited, Overloaded, APIFailed, ModelNotFound)

_REMEDIES: tuple[tuple[type[BaseException], str], ...] = (
    (CLIVersionMismatch, "Update claude (`claude update`), or leave the option away."),
    (WrongLibcError, "Install the claude that was built for this system's C library (musl or glibc)."),
    (NotExecutableError, "Make the file executable (chmod +x), or choose another one with --cli-path."),
    (AuthFailed, "Log in (`claude`, then /login), or set ANTHROPIC_API_KEY; `claude-transport doctor` says which credential would win."),
    (BillingFailed, "Check the account's credit; `claude-transport doctor` says which account would pay."),
    (ModelNotFound, "Choose another one with --model."),
    (RateLimited, "Wait, or choose a smaller model with --model."),
    (Overloaded, "Try again in a few minutes."),
    (ConnectTimeout, "`claude-transport doctor` tries the same without your settings, against an API on this machine."),
)


def told(error: BaseException) -> BaseException:
    """The error as a user should hear of it: writing to a claude that has just died is a death of claude, not a wrong use of anything."""
    if not isinstance(error, TransportClosed):
        return error
    how = "ended" if error.exit_code is None else f"ended with exit code {error.exit_code}"
    how = how if error.signal is None else f"was ended by signal {error.signal}"
    return ProcessError(
        f"claude {how} before it had answered", exit_code=error.exit_code, signal=error.signal, stderr_tail=error.stderr_tail
    ).with_traceback(error.__traceback__)


def exit_code_of(error: BaseException) -> int:
    """The program's exit code for this error."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if isinstance(error, _MODEL_SIDE):
        return EXIT_MODEL
    if isinstance(error, _BEFORE_ANYTHING_RAN) or (isinstance(error, ClaudeTransportError) and error.category == "configuration"):
        return EXIT_USAGE
    return EXIT_FAILED


def describe_failure(error: BaseException) -> str:
    """What happened, in one line, without its code."""
    if not isinstance(error, ClaudeTransportError):
        return printable(f"unexpected {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    text = str(error)
    if isinstance(error, CLINotFoundError):
        text = text.replace(error.advice, "").replace(f" ({'; '.join(error.searched)})", "")  # hints have both, line by line
    if isinstance(error, ResultError):
        text = text.partition(" (transport=")[0]  # for logs; the code says the same here
    return printable(text).strip() or type(error).__name__


def remedy_for(error: BaseException) -> str:
    """What to do about it; an empty string when nothing sensible is known."""
    if isinstance(error, CLINotFoundError):
        return error.advice
    if not isinstance(error, ClaudeTransportError):
        return f"This should not have happened. {TRACEBACK}=1 shows where it did; please report it."
    if isinstance(error, RateLimited) and error.resets_at is not None:
        return f"The limit lifts at {error.resets_at.astimezone():%Y-%m-%d %H:%M %Z}."
    known = next((remedy for kind, remedy in _REMEDIES if isinstance(error, kind)), "")
    return known or ("The same call, made again, may work." if error.retryable else "")


def hints_for(error: BaseException) -> Iterator[str]:
    """The lines that follow the message: where was searched, what the CLI said, what to do."""
    if isinstance(error, CLINotFoundError):
        yield "Looked at:"
        yield from (f"  {printable(place)}" for place in error.searched or ("no place at all",))
    if isinstance(error, _MODEL_SIDE) and isinstance(error, ResultError):
        said = getattr(error.result, "result", None)
        if said:
            yield f"claude says: {printable(said.strip().partition(chr(10))[0])}"
    tail = error.stderr_tail if isinstance(error, ProcessError | ConnectTimeout) else ""
    if tail:
        yield "Its last words:"
        yield from (f"  {printable(line)}" for line in _without_secrets(tail).rstrip().split("\n")[-_LAST_WORDS:])
    remedy = remedy_for(error)
    if remedy:
        yield remedy


def _without_secrets(text: str) -> str:
    """`text` without what looks like a secret, and without the secrets of this process's environment."""
    from claude_transport.protocol.redaction import redactor_knowing  # only where something has gone wrong

    return redactor_knowing([os.environ]).text(text)


def report_failure(error: BaseException) -> int:
    """Write the error to stderr, as a traceback only when `CLAUDE_TRANSPORT_TRACEBACK=1` asks for one: the exit code."""
    error = told(error)
    code = error.code if isinstance(error, ClaudeTransportError) else "internal"
    lines = [f"{PROGRAM}: {describe_failure(error)} [{code}]", *(f"  {line}" for line in hints_for(error))]
    try:
        if os.environ.get(TRACEBACK) == "1":
            sys.stderr.write(printable_lines("".join(traceback.format_exception(error)), indent="") + "\n")
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
    except OSError:
        pass  # nobody reads stderr; the exit code still says it
    return exit_code_of(error)
