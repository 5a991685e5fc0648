"""The tree of errors, and the one warning. All errors that this library raises on purpose are `ClaudeTransportError`s.

```text
ClaudeTransportError                     .code  .category  .retryable  .reason
├── ConfigurationError                   your request cannot be run
│   └── CLINotFoundError                 .searched  .advice
├── UsageError                           your program broke the contract of this library
│   ├── NotConnected
│   ├── TransportClosed                  .exit_code  .signal  .stderr_tail
│   ├── InputClosed
│   ├── Busy
│   ├── SessionArgumentError             .argument
│   ├── SessionNotFound                  .session_id
│   └── SessionInUse                     .session_id  .pid
├── CLIConnectionError                   the connection failed before anything was sent
│   ├── SpawnError                       .path
│   │   ├── WorkingDirectoryError
│   │   ├── NotExecutableError
│   │   └── WrongLibcError
│   ├── ConnectTimeout                   .waited
│   └── AuthenticationError
├── ConnectionLost                       the connection broke during a conversation
│   └── ProcessError                     .exit_code  .signal  .stderr_tail
│       └── CLIVersionMismatch           .flag  .version
├── ProtocolError                        the other side broke the protocol
│   ├── CLIJSONDecodeError               .line  .line_number
│   ├── LineTooLong                      .size  .limit
│   ├── TruncatedStream                  .bytes_tail
│   └── ReplayGap
├── ControlError                         one request failed, the transport still works
│   ├── ControlTimeout                   .subtype  .request_id  .waited  .stderr_tail
│   └── ControlRequestFailed             .subtype  .request_id  .error_code
├── ResultError                          the run reported failure: .result  .resets_at
│   ├── RateLimited · Overloaded · AuthFailed · BillingFailed · APIFailed · ModelNotFound
│   ├── MaxTurnsReached · BudgetExceeded · Refused · PromptTooLong · RunInterrupted
│   ├── MissingResult · StructuredOutputMissing
│   └── TurnUncertain                    also an OutcomeUncertain  .session_id
├── SessionFilesError                    .errno
└── OutcomeUncertain                     it may have happened: never retried for you
```

Programs should test `code`, which is stable (`exec.cli.exited`). `category` is the coarse group for dashboards and retry policies (`auth`,
`rate_limit`, `api`, `transport`, …). `retryable` is True when the same call may succeed if it is made again. `reason` is a short text for
people: what the other side said about it, else what is known.

Every constructor takes the message first and data as keywords, so errors survive `pickle` and `copy`. A message may quote a peer: `str()`
gives it on one line, with escapes for unprintable characters, cut after 3,000 characters. Behind it stands the reason, unless the message
says the same. `args[0]` is the original message.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final, Self

from claude_transport.text.printable import last_lines, printable, redacted_head, redacted_tail

__all__ = [
    "APIFailed",
    "AuthFailed",
    "AuthenticationError",
    "BillingFailed",
    "BudgetExceeded",
    "Busy",
    "CLIConnectionError",
    "CLIJSONDecodeError",
    "CLINotFoundError",
    "CLIVersionMismatch",
    "ClaudeTransportError",
    "ClaudeTransportWarning",
    "ConfigurationError",
    "ConnectTimeout",
    "ConnectionLost",
    "ControlError",
    "ControlRequestFailed",
    "ControlTimeout",
    "InputClosed",
    "JSONRPCError",
    "LineTooLong",
    "MaxTurnsReached",
    "MissingResult",
    "ModelNotFound",
    "NotConnected",
    "NotExecutableError",
    "OutcomeUncertain",
    "Overloaded",
    "ProcessError",
    "PromptTooLong",
    "ProtocolError",
    "RateLimited",
    "Refused",
    "ReplayGap",
    "ResultError",
    "RunInterrupted",
    "SessionArgumentError",
    "SessionFilesError",
    "SessionInUse",
    "SessionNotFound",
    "SpawnError",
    "StructuredOutputMissing",
    "TransportClosed",
    "TruncatedStream",
    "TurnUncertain",
    "UsageError",
    "WorkingDirectoryError",
    "WrongLibcError",
]

_MAX_MESSAGE_CHARS: Final = 3000
_MAX_REASON_CHARS: Final = 500
_READ_CHARS: Final = 16_384
"""Characters of a text that are searched for secrets, and may be shown."""
_MOST_CAUSES: Final = 20
"""Causes below each other that are asked for a reason."""
_SUFFIX: Final = re.compile(r" \(transport=\w+, category=[\w-]+\)\Z")
"""The end of a message of `complete()`, for programs that read logs: it stays the end."""


class ClaudeTransportError(Exception):
    """Base of all errors of this library. Catch it to catch them all.

    `code` is a stable name for programs (`exec.cli.exited`), `category` a coarse group for retries and statistics (`auth`, `api`,
    `transport`, …). `retryable` is True when the same call may succeed if it is made again. `reason` is a short text: what the other side
    said about it, else what is known.
    """

    code: str = "transport.error"
    category: str = "transport"
    retryable: bool = False

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        category: str | None = None,
        retryable: bool | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        if category is not None:
            self.category = category
        if retryable is not None:
            self.retryable = retryable
        if reason:
            self._reason = reason

    @property
    def reason(self) -> str:
        """Why it happened, in the words of the other side, else of the system or of the cause. Empty when nothing is known.

        One line of at most 500 characters, without credentials. What was given as `reason` counts first. Then come the text of a failed
        result, the reason of `__cause__`, and the end of standard error. Programs test `code`: these words may change.
        """
        return _shown(_reason_of(self, without_secrets), without_secrets)

    @reason.setter
    def reason(self, reason: str) -> None:
        self._reason = reason

    def __str__(self) -> str:
        """Return the message and the reason on one line, printable and cut, because they may quote a peer and go into logs."""
        message = printable(super().__str__(), at_most=_MAX_MESSAGE_CHARS)
        reason = self.reason
        if not reason or reason in " ".join(message.split()):
            return message
        suffix = _SUFFIX.search(message)
        what, end = (message, "") if suffix is None else (message[: suffix.start()], suffix[0])
        between = "" if not what else " Reason: " if what.endswith((".", "!", "?")) else ": "
        return f"{what}{between}{reason}{end}"

    def __repr__(self) -> str:
        """Return the class name and the text that `str()` shows."""
        return f"{type(self).__name__}({str(self)!r})"

    def __copy__(self) -> Self:
        """Return a copy without the cause. It has the reason uncut, for a caller that knows more secrets."""
        made: Any = super().__reduce__()
        found: Self = made[0](*made[1])
        found.__dict__.update(vars(self))
        if not _said_by_the_other_side(self, without_secrets):
            found.reason = redacted_head(_reason_of(self, without_secrets), without_secrets, at_most=_READ_CHARS)
        return found

    def __reduce__(self) -> Any:
        """Take the reason along: a copy has no `__cause__` to ask, and another process does not know the secrets of this one."""
        made: Any = super().__reduce__()
        facts = made[2] if len(made) > 2 else {}
        return (*made[:2], {**facts, "_reason": reason} if (reason := self.reason) else facts)


# Where the reason of an error is found.


def reason_without(error: ClaudeTransportError, redact: Callable[[str], str]) -> str:
    """Return the `reason` of an error for a caller that knows more secrets: `redact` removes them before the reason is cut."""

    def hide(text: str) -> str:
        return without_secrets(redact(text))

    return _shown(_reason_of(error, hide), hide)


def _reason_of(error: BaseException, hide: Callable[[str], str]) -> str:
    """Return what the other side said, as the error or one of its causes has it; else what its nearest cause says."""
    causes = _causes_of(error)
    said = (_said_by_the_other_side(each, hide) for each in (error, *causes) if isinstance(each, ClaudeTransportError))
    return next(filter(None, said), "") or next(filter(None, map(_message_of, causes)), "")


def _causes_of(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause = error.__cause__
    while cause is not None and len(found) < _MOST_CAUSES:
        found.append(cause)
        cause = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause.__cause__
    return found


def _said_by_the_other_side(error: ClaudeTransportError, hide: Callable[[str], str]) -> str:
    if given := vars(error).get("_reason"):
        return str(given)
    told = _said_in(getattr(error, "result", None))
    if told and told not in error.args:  # of a failure without words, the sentence of the error became the text of the result
        return told
    tail = getattr(error, "stderr_tail", "")
    return last_lines(redacted_tail(tail, hide, at_most=_READ_CHARS)) if isinstance(tail, str) else ""


def _said_in(result: object) -> str:
    """Return what a failed result says: its text, else the first of its errors."""
    if getattr(result, "is_error", None) is not True:
        return ""
    texts = (getattr(result, "result", None), *(getattr(result, "errors", None) or ()))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def _message_of(cause: BaseException) -> str:
    """Return what a cause says. Nothing for a group, and for the use of something that had ended: that is what followed."""
    if isinstance(cause, BaseExceptionGroup | UsageError):
        return ""
    if isinstance(cause, ClaudeTransportError):
        return _SUFFIX.sub("", str(cause.args[0])) if cause.args else ""
    with contextlib.suppress(Exception):  # an exception of other code, which perhaps cannot even be shown
        return str(getattr(cause, "strerror", None) or cause).strip()
    return ""


def _shown(text: str, hide: Callable[[str], str]) -> str:
    """Return `text` as a reason: one line, without what `hide` removes, cut."""
    if not text:
        return ""
    # redacted before it is cut: half a key does not look like one
    words = " ".join(redacted_head(text, hide, at_most=_READ_CHARS).split())
    return printable(words if len(words) <= _MAX_REASON_CHARS else words[: _MAX_REASON_CHARS - 1] + "…")


def without_secrets(text: str) -> str:
    """Return `text` without what looks like a credential, and without the secrets of this process's environment."""
    try:
        from claude_transport.text.secret_forms import SECRET, find_secrets, redact_secrets  # needed only after a failure
    except (ImportError, OSError):
        return ""  # no descriptor may be left to load it, and what cannot be redacted is not shown

    for secret in sorted(find_secrets(dict(os.environ)), key=len, reverse=True):
        text = text.replace(secret, SECRET)
    return redact_secrets(text)


# The warning, for programs that configured no logging, too.


class ClaudeTransportWarning(UserWarning):
    """Tells that code or configuration of your own is unsafe, or is ignored. What happens while a session runs is logged instead.

    Python writes it to standard error once for each text and line of your program. The text holds no credentials. The filters of `warnings`
    silence it: `warnings.filterwarnings("ignore", category=ClaudeTransportWarning)`. With the filter `error`, what gives the warning fails
    with a `ConfigurationError`.
    """


_BETWEEN: Final = frozenset(
    "claude_transport claude_agent_sdk anyio asyncio concurrent contextlib outcome threading trio uvloop".split()  # noqa: SIM905
)
"""Packages between the code that warns and the line of the program that it is about."""


def warn_caller(text: str) -> None:
    """Give a `ClaudeTransportWarning` at the line of the program that called this library.

    A task of a conversation has no other line of it than the one that runs the event loop, and a thread has none: the place is then the
    line that calls this.

    Raises:
        ConfigurationError: the filters of the program make the warning an error, which is the `__cause__`.
    """
    level = 2
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - `inspect` takes longer to load than the whole package
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    message = printable(redacted_head(text, without_secrets, at_most=_READ_CHARS), at_most=_MAX_MESSAGE_CHARS)
    try:
        warnings.warn(message, ClaudeTransportWarning, stacklevel=2 if frame is None else level)
    except ClaudeTransportWarning as exc:
        raise ConfigurationError(message) from exc


class ConfigurationError(ClaudeTransportError):
    """An option or argument cannot work. The message names it and the remedy; correct it, because a retry fails in the same way. `option`
    is its name, if it is known.
    """

    code = "config.invalid"
    category = "configuration"

    def __init__(self, message: str = "", *, option: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.option = option


class CLINotFoundError(ConfigurationError):
    """No `claude` program was found. `searched` lists every place that was checked; `advice` says what to do. It is not retried."""

    code = "exec.cli.binary_not_found"
    category = "transport"

    def __init__(self, message: str = "", *, searched: Sequence[str] = (), advice: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.searched: tuple[str, ...] = tuple(searched)
        self.advice = advice


class UsageError(ClaudeTransportError):
    """Your program broke the contract of this library, for example by a wrong argument. Correct the program; do not retry."""

    code = "usage.error"
    category = "usage"


class NotConnected(UsageError):
    """A method was called before the transport was connected, or before the `Query` or the pool was started. Connect or start it first."""

    code = "usage.not_connected"


class TransportClosed(UsageError):
    """The transport or the `Query` is closed, or the peer (the CLI process or the remote side) has ended. Make a new transport to continue.
    `exit_code`, `signal` and `stderr_tail` say how the process ended, if that is known.
    """

    code = "usage.closed"

    def __init__(
        self, message: str = "", *, exit_code: int | None = None, signal: int | None = None, stderr_tail: str = "", **common: Any
    ) -> None:
        super().__init__(message, **common)
        self.exit_code = exit_code
        self.signal = signal
        self.stderr_tail = stderr_tail


class InputClosed(UsageError):
    """Something was to be written after `end_input()`. Send everything before you end the input."""

    code = "usage.input_closed"


class Busy(UsageError):
    """A second task reads (`read_messages()`, `read_lines()`) from a transport while another one is reading. Read in one task at a time."""

    code = "usage.busy"


class SessionArgumentError(UsageError, ValueError):
    """An argument about a stored session cannot be used, for example a session id that is no UUID. `argument` is its name. It is also a
    `ValueError`, as in the official SDK.
    """

    code = "session.invalid_argument"

    def __init__(self, message: str = "", *, argument: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.argument = argument


class SessionNotFound(UsageError, FileNotFoundError):
    """No stored session has the id `session_id`, or not in the directory that was named. It is also a `FileNotFoundError`, as in the
    official SDK.
    """

    code = "session.not_found"

    def __init__(self, message: str = "", *, session_id: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.session_id = session_id


class SessionInUse(UsageError):
    """The session `session_id` is run by another process, so it cannot be deleted or resumed. End that process first. `pid` is its id, if
    it is known.
    """

    code = "session.in_use"

    def __init__(self, message: str = "", *, session_id: str | None = None, pid: int | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.session_id = session_id
        self.pid = pid


class CLIConnectionError(ClaudeTransportError):
    """The connection to the CLI could not be made. Nothing was sent yet, so a retry is safe; `retryable` says whether it can help."""

    code = "connect.failed"
    retryable = True


class SpawnError(CLIConnectionError):
    """The operating system could not start the program at `path`. Check the path and the limits of the system, then retry."""

    code = "exec.cli.spawn_failed"

    def __init__(self, message: str = "", *, path: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.path = path


class WorkingDirectoryError(SpawnError):
    """The working directory for the program does not exist or cannot be entered. Correct the option `cwd`."""

    code = "exec.cli.cwd_unusable"
    retryable = False


class NotExecutableError(SpawnError):
    """The file at `path` exists, but it is not executable. Set its permissions, or name another program."""

    code = "exec.cli.not_executable"
    retryable = False


class WrongLibcError(SpawnError):
    """The program at `path` is executable, but its loader is missing: it was built for musl and runs on glibc, or the reverse. Install the
    build for your system.
    """

    code = "exec.cli.wrong_libc"
    retryable = False


class ConnectTimeout(CLIConnectionError):
    """The other side did not complete the connection or the handshake within `waited` seconds. Retry, or allow more time. `stderr_tail` is
    the end of the standard error of the process.
    """

    code = "connect.timeout"

    def __init__(self, message: str = "", *, waited: float | None = None, stderr_tail: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.waited = waited
        self.stderr_tail = stderr_tail


class AuthenticationError(CLIConnectionError):
    """The other side did not accept the credential, for example the token of a gateway. Use another one; a retry fails in the same way."""

    code = "connect.auth_failed"
    category = "auth"
    retryable = False


class ConnectionLost(ClaudeTransportError):
    """The connection to the CLI broke during a conversation. The CLI may or may not have carried out the last request."""

    code = "connection.lost"


class ProcessError(ConnectionLost):
    """The CLI process ended with a failure. `exit_code` is set, or `signal` when a signal killed it. `stderr_tail` is the end of its
    standard error.
    """

    code = "exec.cli.exited"

    def __init__(
        self, message: str = "", *, exit_code: int | None = None, signal: int | None = None, stderr_tail: str = "", **common: Any
    ) -> None:
        super().__init__(message, **common)
        self.exit_code = exit_code
        self.signal = signal
        self.stderr_tail = stderr_tail

    @property
    def stderr(self) -> str:
        """The same as `stderr_tail`, with the name that the official SDK uses."""
        return self.stderr_tail


class CLIVersionMismatch(ProcessError):
    """The CLI that was started is too old: it does not know `flag`, or it does not work with this library at all (then `flag` is None).
    Update the CLI, or do not use the feature.

    `version` is the version of that CLI, if known. `flag` is one of: a command-line flag, a control request, `initialize.<field>`,
    `hook.<event>`, `prompt.<field>`.
    """

    code = "exec.cli.version_mismatch"

    def __init__(self, message: str = "", *, flag: str | None = None, version: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.flag = flag
        self.version = version


class ProtocolError(ClaudeTransportError):
    """The peer sent something that the protocol does not allow. Check that both sides are what you expect."""

    code = "exec.cli.protocol_error"
    category = "protocol"


class CLIJSONDecodeError(ProtocolError):
    """A line that was read is not a JSON object. Raised only by a transport with `strict=True`, or when the peer ended and no message came
    at all. `line` holds the bytes of the line, `line_number` its number.
    """

    code = "exec.cli.invalid_json"

    def __init__(self, message: str = "", *, line: bytes = b"", line_number: int | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.line = line
        self.line_number = line_number


class LineTooLong(ProtocolError):
    """A line that was read has `size` bytes, over the `limit` in bytes. Raised only by a transport with `strict=True`. Give the transport a
    larger `max_line_bytes` if you expect such lines.
    """

    code = "protocol.line_too_long"

    def __init__(self, message: str = "", *, size: int = 0, limit: int = 0, **common: Any) -> None:
        super().__init__(message, **common)
        self.size = size
        self.limit = limit


class TruncatedStream(ProtocolError):
    """What the peer sent ended in the middle of a line; `bytes_tail` is the incomplete line. All messages before it were delivered."""

    code = "protocol.truncated"

    def __init__(self, message: str = "", *, bytes_tail: bytes = b"", **common: Any) -> None:
        super().__init__(message, **common)
        self.bytes_tail = bytes_tail


class ReplayGap(ProtocolError):
    """A link (a connection that can be resumed after a network failure) was resumed too late: data that the peer needs is no longer kept.
    Start a new session.
    """

    code = "protocol.replay_gap"


class ControlError(ClaudeTransportError):
    """One control request, of type `subtype`, failed. The transport and the conversation still work."""

    code = "control.error"
    category = "control"

    def __init__(self, message: str = "", *, subtype: str = "", request_id: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.subtype = subtype
        self.request_id = request_id


class ControlTimeout(ControlError):
    """The peer did not answer a control request within `waited` seconds. An answer that comes later is counted in `Query.late_responses`
    and otherwise ignored. `stderr_tail` is the end of the standard error of the process.
    """

    code = "control.timeout"

    def __init__(self, message: str = "", *, waited: float = 0.0, stderr_tail: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.waited = waited
        self.stderr_tail = stderr_tail


class ControlRequestFailed(ControlError):
    """The peer refused a control request. `error_code` is its reason in a form for programs; None when the peer sent none."""

    code = "control.refused"

    def __init__(self, message: str = "", *, error_code: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.error_code = error_code


class JSONRPCError(ControlError):
    """The peer answered a JSON-RPC request with an error. `rpc_code` is its number, `message` its text, `data` what came with it, if
    anything. Raise it in an `on_request` callback to refuse a request of the peer.
    """

    code = "control.jsonrpc"

    def __init__(self, message: str = "", *, rpc_code: int = -32603, data: Any = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.message = message
        self.rpc_code = rpc_code
        self.data = data


class ResultError(ClaudeTransportError):
    """The run of the CLI or the API ended and reported a failure. `result` is its `ResultMessage`, or None; `resets_at` is when a usage
    limit ends, in UTC.
    """

    code = "result.failed"
    category = "api"

    def __init__(self, message: str = "", *, result: Any = None, resets_at: dt.datetime | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.result = result
        self.resets_at = resets_at


class RateLimited(ResultError):
    """There were too many requests, or a usage limit was reached. Retry after `resets_at`, if it is set."""

    code = "result.rate_limited"
    category = "rate_limit"
    retryable = True


class Overloaded(ResultError):
    """The API is overloaded (529). Retry later."""

    code = "result.overloaded"
    category = "rate_limit"
    retryable = True


class AuthFailed(ResultError):
    """The credential is missing or was refused (401, 403, not logged in). Log in, or correct the key."""

    code = "exec.cli.auth_failed"
    category = "auth"


class BillingFailed(ResultError):
    """The account cannot pay for the call. Add credit, or use another account."""

    code = "result.billing"
    category = "auth"


class APIFailed(ResultError):
    """The API failed or refused the request, for a reason that has no class of its own. `retryable` says whether a retry can help."""

    code = "result.api_error"


class ModelNotFound(ResultError):
    """The model does not exist, or this account may not use it. Choose another model."""

    code = "result.model_not_found"


class MaxTurnsReached(ResultError):
    """The run stopped at the limit `max_turns`. Set a higher limit, or continue with another prompt."""

    code = "result.max_turns"


class BudgetExceeded(ResultError):
    """The run stopped at the limit `max_budget_usd`. Set a higher limit to continue."""

    code = "result.budget"


class Refused(ResultError):
    """The model refused to answer. Change the prompt."""

    code = "result.refusal"


class PromptTooLong(ResultError):
    """The conversation is too long for the model, or the request is too large. Shorten it, or compact the conversation."""

    code = "result.prompt_too_long"


class RunInterrupted(ResultError):
    """The turn was interrupted before its end. Send the prompt again if you still need the answer."""

    code = "result.interrupted"


class MissingResult(ResultError):
    """The conversation ended, or the prompt was cancelled, before the turn had a result. `messages` holds the last messages of the turn.
    The turn may have had effects, such as changed files.
    """

    code = "result.missing"
    category = "transport"

    def __init__(self, message: str = "", *, messages: Sequence[Any] = (), **common: Any) -> None:
        super().__init__(message, **common)
        self.messages: tuple[Any, ...] = tuple(messages)


class StructuredOutputMissing(ResultError):
    """A JSON schema was given for the answer, but the result has no `structured_output` that fits it."""

    code = "result.structured_output_missing"


class SessionFilesError(ClaudeTransportError, OSError):
    """The files of a stored session cannot be read or written: a permission, a full disk. `errno` is the code of the system. It is also an
    `OSError`, as in the official SDK.
    """

    code = "session.files"
    category = "configuration"
    errno: int | None = None  # of Python, not the slot of OSError, which pickle would leave out

    def __init__(self, message: str = "", *, errno: int | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.errno = errno


class OutcomeUncertain(ClaudeTransportError):
    """It is not known whether a written line (a prompt, for example) arrived and had effects, so it is never sent again for you. Look into
    the session `session_id`, if that is known, before you repeat it.
    """

    code = "outcome.uncertain"

    def __init__(self, message: str = "", *, session_id: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.session_id = session_id


class TurnUncertain(ResultError, OutcomeUncertain):
    """The machine that ran the turn is gone, and it is not known what the turn has done. It is never sent again for you. Look into the
    session `session_id` before you repeat it.
    """

    code = "outcome.turn_uncertain"

    def __init__(self, message: str = "", *, result: Any = None, session_id: str | None = None, **common: Any) -> None:
        super().__init__(message, result=result, session_id=session_id or getattr(result, "session_id", None) or None, **common)
