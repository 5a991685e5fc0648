"""How the program ends: its exit codes, and every error as one line on stderr with hints below it.

All commands share it. It imports nothing but the errors, so that `--help` and `mcp-bridge` are quick. `in_program_words()` puts the options
of the program in place of the Python arguments that an error names. It is called for the message and the remedy of an error of this
library. What a CLI or a file says stays as it is.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Final

from claude_transport.agents.registry import find_agent, loaded_agents
from claude_transport.errors import (
    APIFailed,
    AuthenticationError,
    AuthFailed,
    BillingFailed,
    ClaudeTransportError,
    CLIJSONDecodeError,
    CLINotFoundError,
    CLIVersionMismatch,
    ConfigurationError,
    ConnectTimeout,
    ModelNotFound,
    Overloaded,
    ProcessError,
    PromptTooLong,
    RateLimited,
    ResultError,
    SpawnError,
    TransportClosed,
    UsageError,
    WrongLibcError,
)
from claude_transport.text.printable import printable, printable_lines, redacted_tail

PROGRAM: Final = "claude-transport"
COMPLETE_VARIABLE: Final = "_CLAUDE_TRANSPORT_COMPLETE"
"""The variable with which the script of a shell asks for completions."""

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_MODEL: Final = 3
EXIT_INTERRUPTED: Final = 130
EXIT_NO_READER: Final = 141
"""The reader of stdout has gone (`| head -1`). It is 128 + SIGPIPE, which a shell reports for a program that the signal has ended."""

NO_ANSWER: Final = "Allow more time with --timeout; `claude-transport doctor` says if the agent works at all."
"""What to do after `--timeout`."""

TRACEBACK: Final = "CLAUDE_TRANSPORT_TRACEBACK"

_LAST_WORDS = 5
"""Lines of the CLI's stderr that are shown when it died. `--verbose` shows all of them at once."""

_TAIL_CHARS = 2**15
"""Characters of standard error that are read: fewer than are kept, so that a key at the cut is seen whole."""

_SUFFIX: Final = re.compile(r" \(transport=(\w+), category=[\w-]+\)$")
_SENTENCES: Final = re.compile(r"(?<=[.!?]) (?=[A-Z`])")
_REMEDY_AFTER_PROSE: Final = re.compile(r" (?=Run `[^`]*--version`: it must|Check that the Claude CLI, or)")  # prose may have sentences
_NO_KEY: Final = "Neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set. Set ANTHROPIC_API_KEY, or use `--transport cli` with a login."

_BEFORE_ANYTHING_RAN = (ConfigurationError, UsageError, SpawnError, CLIVersionMismatch)
_MODEL_SIDE = (AuthFailed, AuthenticationError, BillingFailed, RateLimited, Overloaded, APIFailed, ModelNotFound)

_REMEDIES: tuple[tuple[type[BaseException], str], ...] = (
    (CLIVersionMismatch, "Update claude (`claude update`), or do not use the option."),
    (WrongLibcError, "Install the claude for this system's C library (musl or glibc)."),
    (AuthFailed, "Log in (`claude`, then /login), or set ANTHROPIC_API_KEY. `claude-transport doctor` says which credential is used."),
    (BillingFailed, "Check the account's credit. `claude-transport doctor` says which account would pay."),
    (ModelNotFound, "Choose another model with --model."),
    (RateLimited, "Wait, or choose a smaller model with --model."),
    (ConnectTimeout, "`claude-transport doctor` tests claude without your settings, against an API on this machine."),
    (ProcessError, "`claude-transport doctor` tests claude without your settings, against an API on this machine."),
)


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
    """Return what happened, in one line, without the code and without what to do."""
    return _split(error)[0]


def _split(error: BaseException) -> tuple[str, str]:
    """Return the first sentence of the message, which says what happened and why, and the rest, which says what to do."""
    if not isinstance(error, ClaudeTransportError):
        return printable(f"unexpected {type(error).__name__}: {str(error).partition(chr(10))[0]}"), ""
    text = printable(_SUFFIX.sub("", _message_of(error))).strip()  # details for logs; here the code says the same
    advice = error.advice if isinstance(error, CLINotFoundError) else ""
    if isinstance(error, ConfigurationError | SpawnError):
        text, advice = in_program_words(text), in_program_words(advice)
    if advice and advice in text:
        return text.replace(advice, "").strip(), advice
    parts = (_REMEDY_AFTER_PROSE if isinstance(error, CLIJSONDecodeError) else _SENTENCES).split(text, maxsplit=1)
    return parts[0] or type(error).__name__, "".join(parts[1:])


def _message_of(error: ClaudeTransportError) -> str:
    """Return the message without the reason, which has a line of its own."""
    return str(error.args[0]) if error.args else ""


def remedy_for(error: BaseException) -> str:
    """Return what to do about an error, or an empty string if nothing sensible is known."""
    if not isinstance(error, ClaudeTransportError):
        return f"This is a bug. {TRACEBACK}=1 shows where it happened; please report it."
    said = in_program_words(_split(error)[1])
    if isinstance(error, RateLimited) and error.resets_at is not None:
        return f"The limit lifts at {error.resets_at.astimezone():%Y-%m-%d %H:%M %Z}."
    if isinstance(error, AuthFailed) and isinstance(error, ResultError) and _transport_of(error) == "api":
        return _NO_KEY if _has_no_key(error) else "Check ANTHROPIC_API_KEY, or use `--transport cli` with a login."
    table = (*find_agent(_agent_of(error)).remedies.items(), *_REMEDIES)
    known = next((remedy for kind, remedy in table if isinstance(error, kind)), "")
    if said and not (known and isinstance(error, ResultError | ConnectTimeout)):
        return f"{said} {known}".strip()
    return known or ("The same call may work if you try again." if error.retryable else "")


def hints_for(error: BaseException, *, verbose: bool = False) -> Iterator[str]:
    """Yield the lines below the message: what the CLI said, what to do, and with `verbose` which places were searched."""
    chosen = isinstance(error, CLINotFoundError) and len(error.searched) == 1 and "names" not in str(error)
    if isinstance(error, CLINotFoundError) and error.searched and (verbose or chosen):
        yield "Looked at:"
        yield from (f"  {printable(place)}" for place in dict.fromkeys(error.searched))
    if isinstance(error, (*_MODEL_SIDE, PromptTooLong)) and isinstance(error, ResultError):
        said = _said_by_the_api(error) if _transport_of(error) == "api" else error.reason
        if said:
            yield f"{_speaker_of(error)} says: {printable(_without_secrets(said).strip().partition(chr(10))[0])}"
    tail = error.stderr_tail if isinstance(error, ProcessError | ConnectTimeout) else ""
    if tail:
        yield "Its last words:"
        words = redacted_tail(tail, _without_secrets, at_most=_TAIL_CHARS)
        yield from (f"  {printable(line)}" for line in words.rstrip().split("\n")[-_LAST_WORDS:])
    remedy = remedy_for(error)
    if remedy:
        yield remedy
    if isinstance(error, CLINotFoundError) and len(error.searched) > 1 and not verbose:
        yield "--verbose lists the places that were searched."


def _has_no_key(error: ResultError) -> bool:
    """Whether the API was not asked, because there was no key."""
    return type(error.__cause__).__name__ == "CredentialsError"


def _said_by_the_api(error: ResultError) -> str:
    """Return the `message` of the API's answer; empty when it gave none."""
    body = getattr(error.__cause__, "body", None)
    inner = body.get("error") if isinstance(body, dict) else None
    said = inner.get("message") if isinstance(inner, dict) else None
    return said if isinstance(said, str) else ""


def _speaker_of(error: ClaudeTransportError) -> str:
    return "the API" if _transport_of(error) == "api" else find_agent(_agent_of(error)).program


def _transport_of(error: BaseException) -> str:
    """Return the path of the call that failed."""
    found = _SUFFIX.search(_message_of(error) if isinstance(error, ClaudeTransportError) else "")
    return "cli" if found is None else found[1]


def _agent_of(error: BaseException) -> str:
    """Return the agent of the call that failed."""
    from claude_transport.completion.completion import partial_completion  # needed only after a failure

    there = partial_completion(error)
    return "claude-code" if there is None else there.agent


def _without_secrets(text: str) -> str:
    """Return `text` without what looks like a secret, and without the secrets of this process's environment."""
    from claude_transport.protocol.redaction import redactor_knowing  # needed only after a failure

    return redactor_knowing([os.environ]).text(text)


def report_failure(error: BaseException, *, verbose: bool = False) -> int:
    """Write the error to stderr, with its traceback if `CLAUDE_TRANSPORT_TRACEBACK=1`, and return the exit code.

    With `verbose`, every place that was searched for a program is listed.
    """
    error = told(error)
    code = error.code if isinstance(error, ClaudeTransportError) else "internal"
    lines = [f"{PROGRAM}: {describe_failure(error)} [{code}]", *(f"  {line}" for line in hints_for(error, verbose=verbose))]
    diff = getattr(error, "diff", "")
    if diff:  # of a line of the host and that of a tape
        lines += ["  - is on the tape, + came from the host", printable_lines(diff)]
    if os.environ.get(TRACEBACK) == "1":
        lines.insert(0, printable_lines("".join(traceback.format_exception(error)), indent=""))
    _write(lines)
    return exit_code_of(error)


def report_usage(mistake: str, hint: str = "", *, command: str) -> int:
    """Write a mistake on the command line to stderr, and return exit code 2. `command` is the command that has the `--help` for it."""
    hints = [f"  {printable(hint)}"] if hint else []
    _write([f"{PROGRAM}: {printable(mistake)} [{UsageError.code}]", *hints, f"  See `{command} --help`."])
    return EXIT_USAGE


def _write(lines: list[str]) -> None:
    with contextlib.suppress(OSError):  # stderr cannot be written to; the exit code still says it
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()


OPTIONS: Final[Mapping[str, str]] = {
    "agent": "--agent",
    "allow_plaintext": "--allow-plaintext",
    "allowed_tools": "--allowed-tools",
    "approval_policy": "--approval-policy",
    "capacity": "--capacity",
    "choices": "--choice",
    "cli_path": "--cli-path",
    "close_timeout": "--close-timeout",
    "cwd": "--cwd",
    "drain_timeout": "--drain-timeout",
    "hosts": "--host-name",
    "labels": "--label",
    "lease": "--lease",
    "max_turns": "--max-turns",
    "metrics_host": "--metrics-host",
    "metrics_port": "--metrics-port",
    "model": "--model",
    "name": "--name",
    "origins": "--origin",
    "permission_mode": "--permission-mode",
    "sandbox": "--sandbox",
    "session": "--session",
    "session_store": "--session-store",
    "since": "--since",
    "speed": "--speed",
    "system_prompt": "--system-prompt",
    "transport": "--transport",
}
"""The option of the program for each argument of the library that it sets."""

_PHRASES: Final = tuple(
    (re.compile(phrase), words)
    for phrase, words in (
        (
            r"\bPass tokens, or an ssl_context that requires client certificates",
            "Give --token-file or --token-env, or --client-ca with TLS",
        ),
        (r"\bpass ssl_context\b", "give --certificate"),
        (r"\bpass (?=allow_plaintext=True)", "give "),
        (r"\bgive `token=`", "give --token-env"),
        (r"\bleave it None(?: instead)?\b", "leave it out"),
        (r"\bcorrect cwd\b", "correct --cwd"),
    )
)


@functools.cache
def _patterns(names: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return what finds an argument with its value, at the beginning of a sentence, and alone."""
    any_of = "|".join(names)
    return (
        re.compile(rf'\b({any_of})=(?:True\b|"([^"]*)")'),
        re.compile(rf"^({any_of})(?=:| must | is not | is a position)"),
        re.compile(rf"(?<![\w-])({'|'.join(name for name in names if '_' in name)})\b"),
    )


def in_program_words(text: str) -> str:
    """Return `text` with `--max-turns` for `max_turns`, `--agent auto` for `agent="auto"`, and so on."""
    for phrase, words in _PHRASES:
        text = phrase.sub(words, text)
    options = {**OPTIONS, **{agent.path_option: f"--{agent.path_option.replace('_', '-')}" for agent in loaded_agents()}}
    value, subject, plain = _patterns(tuple(options))
    text = value.sub(lambda found: options[found[1]] + (f" {found[2]}" if found[2] else ""), text)
    text = subject.sub(lambda found: options[found[1]], text)
    return plain.sub(lambda found: options[found[1]], text)
