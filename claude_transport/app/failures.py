"""How the program ends: its exit codes, and every error as one line on stderr with hints below it.

All commands share it. It imports nothing but the errors, so that `--help` and `mcp-bridge` are quick.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Final

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

PROGRAM: Final = "claude-transport"
COMPLETE_VARIABLE: Final = "_CLAUDE_TRANSPORT_COMPLETE"
"""The variable with which the script of a shell asks for completions."""

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_MODEL: Final = 3
EXIT_INTERRUPTED: Final = 130

TRACEBACK: Final = "CLAUDE_TRANSPORT_TRACEBACK"

_LAST_WORDS = 5
"""Lines of the CLI's stderr that are shown when it died. `--verbose` shows all of them at once."""

_BEFORE_ANYTHING_RAN = (ConfigurationError, UsageError, SpawnError, CLIVersionMismatch)
_MODEL_SIDE = (AuthFailed, AuthenticationError, BillingFailed, RateLimited, Overloaded, APIFailed, ModelNotFound)

_REMEDIES: tuple[tuple[type[BaseException], str], ...] = (
    (CLIVersionMismatch, "Update claude (`claude update`), or do not use the option."),
    (WrongLibcError, "Install the claude for this system's C library (musl or glibc)."),
    (NotExecutableError, "Make the file executable (chmod +x), or name another one with --cli-path."),
    (AuthFailed, "Log in (`claude`, then /login), or set ANTHROPIC_API_KEY; `claude-transport doctor` says which credential is used."),
    (BillingFailed, "Check the account's credit; `claude-transport doctor` says which account would pay."),
    (ModelNotFound, "Choose another model with --model."),
    (RateLimited, "Wait, or choose a smaller model with --model."),
    (Overloaded, "Try again in a few minutes."),
    (ConnectTimeout, "`claude-transport doctor` tests claude without your settings, against an API on this machine."),
)

_CODEX_REMEDIES: tuple[tuple[type[BaseException], str], ...] = (
    (AuthFailed, "Log in (`codex login`), or set the key that the configuration of Codex names."),
    (BillingFailed, "Check the account's credit; `codex login status` says which account is used."),
    (NotExecutableError, "Make the file executable (chmod +x), or name another one with --codex-path."),
    (ConnectTimeout, "`codex app-server` did not answer; run `codex` once by hand to see what it says."),
)
"""What to do where Codex answered, if it is something else."""


def told(error: BaseException) -> BaseException:
    """Return the error that users should see: a write to a claude that has just died is reported as its death, not as a wrong use."""
    if not isinstance(error, TransportClosed):
        return error
    how = "ended" if error.exit_code is None else f"ended with exit code {error.exit_code}"
    how = how if error.signal is None else f"was ended by signal {error.signal}"
    return ProcessError(
        f"claude {how} before it had answered", exit_code=error.exit_code, signal=error.signal, stderr_tail=error.stderr_tail
    ).with_traceback(error.__traceback__)


def exit_code_of(error: BaseException) -> int:
    """Return the program's exit code for an error."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if isinstance(error, _MODEL_SIDE):
        return EXIT_MODEL
    if isinstance(error, _BEFORE_ANYTHING_RAN) or (isinstance(error, ClaudeTransportError) and error.category == "configuration"):
        return EXIT_USAGE
    return EXIT_FAILED


def describe_failure(error: BaseException) -> str:
    """Return what happened, in one line, without the code."""
    if not isinstance(error, ClaudeTransportError):
        return printable(f"unexpected {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    text = str(error)
    if isinstance(error, CLINotFoundError):
        text = text.replace(error.advice, "").replace(f" ({'; '.join(error.searched)})", "")  # the hints have both, line by line
    if isinstance(error, ResultError):
        text = text.partition(" (transport=")[0]  # details for logs; here the code says the same
    return printable(text).strip() or type(error).__name__


def remedy_for(error: BaseException) -> str:
    """Return what to do about an error, or an empty string if nothing sensible is known."""
    if isinstance(error, CLINotFoundError):
        return error.advice
    if not isinstance(error, ClaudeTransportError):
        return f"This is a bug. {TRACEBACK}=1 shows where it happened; please report it."
    if isinstance(error, RateLimited) and error.resets_at is not None:
        return f"The limit lifts at {error.resets_at.astimezone():%Y-%m-%d %H:%M %Z}."
    table = _CODEX_REMEDIES + _REMEDIES if _agent_of(error) == "codex" else _REMEDIES
    known = next((remedy for kind, remedy in table if isinstance(error, kind)), "")
    return known or ("The same call may work if you try again." if error.retryable else "")


def hints_for(error: BaseException) -> Iterator[str]:
    """Yield the lines below the message: which places were searched, what the CLI said, what to do."""
    if isinstance(error, CLINotFoundError):
        yield "Looked at:"
        yield from (f"  {printable(place)}" for place in error.searched or ("no place at all",))
    if isinstance(error, _MODEL_SIDE) and isinstance(error, ResultError):
        said = getattr(error.result, "result", None)
        if said:
            yield f"{'codex' if _agent_of(error) == 'codex' else 'claude'} says: {printable(said.strip().partition(chr(10))[0])}"
    tail = error.stderr_tail if isinstance(error, ProcessError | ConnectTimeout) else ""
    if tail:
        yield "Its last words:"
        yield from (f"  {printable(line)}" for line in _without_secrets(tail).rstrip().split("\n")[-_LAST_WORDS:])
    remedy = remedy_for(error)
    if remedy:
        yield remedy


def _agent_of(error: BaseException) -> str:
    """Return the agent of the call that failed."""
    from claude_transport.completion.completion import partial_completion  # needed only after a failure

    there = partial_completion(error)
    return "claude-code" if there is None else there.agent


def _without_secrets(text: str) -> str:
    """Return `text` without what looks like a secret, and without the secrets of this process's environment."""
    from claude_transport.protocol.redaction import redactor_knowing  # needed only after a failure

    return redactor_knowing([os.environ]).text(text)


def report_failure(error: BaseException) -> int:
    """Write the error to stderr, with its traceback if `CLAUDE_TRANSPORT_TRACEBACK=1`, and return the exit code."""
    error = told(error)
    code = error.code if isinstance(error, ClaudeTransportError) else "internal"
    lines = [f"{PROGRAM}: {describe_failure(error)} [{code}]", *(f"  {line}" for line in hints_for(error))]
    if os.environ.get(TRACEBACK) == "1":
        lines.insert(0, printable_lines("".join(traceback.format_exception(error)), indent=""))
    _write(lines)
    return exit_code_of(error)


def report_usage(mistake: str, *, command: str) -> int:
    """Write a mistake on the command line to stderr, and return exit code 2. `command` is the command that has the `--help` for it."""
    _write([f"{PROGRAM}: {printable(mistake)} [{UsageError.code}]", f"  See `{command} --help`."])
    return EXIT_USAGE


def _write(lines: list[str]) -> None:
    with contextlib.suppress(OSError):  # stderr cannot be written to; the exit code still says it
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
