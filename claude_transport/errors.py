"""One tree of errors: whose fault it is, and whether trying again can help.

```text
ClaudeTransportError                     .code  .category  .retryable
├── ConfigurationError                   you asked for something that cannot be run
│   └── CLINotFoundError                 .searched  .advice
├── UsageError                           you broke the contract of this library
│   ├── NotConnected
│   ├── TransportClosed                  .exit_code  .signal  .stderr_tail
│   ├── InputClosed
│   └── Busy
├── CLIConnectionError                   nothing was said yet
│   ├── SpawnError                       .path
│   │   ├── WorkingDirectoryError
│   │   ├── NotExecutableError
│   │   └── WrongLibcError
│   ├── ConnectTimeout                   .waited
│   └── AuthenticationError
├── ConnectionLost                       it was there and went away
│   └── ProcessError                     .exit_code  .signal  .stderr_tail
│       └── CLIVersionMismatch           .flag  .version
├── ProtocolError                        the other side broke the contract
│   ├── CLIJSONDecodeError               .line  .line_number
│   ├── LineTooLong                      .size  .limit
│   ├── TruncatedStream                  .bytes_tail
│   └── ReplayGap
├── ControlError                         one request failed, the transport is fine
│   ├── ControlTimeout                   .subtype  .request_id  .waited  .stderr_tail
│   └── ControlRequestFailed             .subtype  .request_id  .error_code
├── ResultError                          the run reported failure: .result  .resets_at
│   ├── RateLimited · Overloaded · AuthFailed · BillingFailed · APIFailed · ModelNotFound
│   ├── MaxTurnsReached · BudgetExceeded · Refused · PromptTooLong · RunInterrupted
│   └── MissingResult · StructuredOutputMissing
└── OutcomeUncertain                     it may have happened: never retried for you
```

`code` is stable and meant for programs (`exec.cli.exited`); `category` is the coarse bucket that dashboards and retry policies
want (`auth`, `rate_limit`, `api`, `transport`, …); `retryable` answers "would the very same call, made again, have a chance?".
Every constructor takes the message first and data as keywords, so that errors survive `pickle` and `copy`. A message may quote a peer:
`str()` gives it on one line, with escapes for what is not printable, and cut after 3,000 characters; `args[0]` is the message as it was.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final

from claude_transport.printable import printable

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
    "ConfigurationError",
    "ConnectTimeout",
    "ConnectionLost",
    "ControlError",
    "ControlRequestFailed",
    "ControlTimeout",
    "InputClosed",
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
    "SpawnError",
    "StructuredOutputMissing",
    "TransportClosed",
    "TruncatedStream",
    "UsageError",
    "WorkingDirectoryError",
    "WrongLibcError",
]


_MAX_MESSAGE_CHARS: Final = 3000


class ClaudeTransportError(Exception):
    """Any failure this library raises on purpose; catch this one to catch them all."""

    code: str = "transport.error"
    category: str = "transport"
    retryable: bool = False

    def __init__(self, message: str = "", *, code: str | None = None, category: str | None = None, retryable: bool | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        if category is not None:
            self.category = category
        if retryable is not None:
            self.retryable = retryable

    def __str__(self) -> str:
        """Return the message on one line, printable and bounded: it may quote a peer, and stands in logs and tracebacks."""
        return printable(super().__str__(), at_most=_MAX_MESSAGE_CHARS)

    def __repr__(self) -> str:
        """Return the name of the class and the message, as `str()` shows it."""
        return f"{type(self).__name__}({str(self)!r})"


# ------------------------------------------------------------------------------------------------ before anything runs


class ConfigurationError(ClaudeTransportError):
    """What was asked for cannot be run; the message names the option and the remedy."""

    code = "config.invalid"
    category = "configuration"

    def __init__(self, message: str = "", *, option: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.option = option


class CLINotFoundError(ConfigurationError):
    """There is no `claude` binary: `searched` lists every place looked at, `advice` says what to do. Never retried."""

    code = "exec.cli.binary_not_found"
    category = "transport"

    def __init__(self, message: str = "", *, searched: Sequence[str] = (), advice: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.searched: tuple[str, ...] = tuple(searched)
        self.advice = advice


class UsageError(ClaudeTransportError):
    """The caller broke the contract: fix the program, do not retry."""

    code = "usage.error"
    category = "usage"


class NotConnected(UsageError):
    """The transport has not been connected yet."""

    code = "usage.not_connected"


class TransportClosed(UsageError):
    """The transport is closed or its peer is gone; how the peer ended is attached when it is known."""

    code = "usage.closed"

    def __init__(
        self, message: str = "", *, exit_code: int | None = None, signal: int | None = None, stderr_tail: str = "", **common: Any
    ) -> None:
        super().__init__(message, **common)
        self.exit_code = exit_code
        self.signal = signal
        self.stderr_tail = stderr_tail


class InputClosed(UsageError):
    """Something was written after `end_input()`."""

    code = "usage.input_closed"


class Busy(UsageError):
    """A second reader asked while another one is reading."""

    code = "usage.busy"


# -------------------------------------------------------------------------------------------------- nothing was said yet


class CLIConnectionError(ClaudeTransportError):
    """The connection could not be made; nothing was said, so trying again is safe."""

    code = "connect.failed"
    retryable = True


class SpawnError(CLIConnectionError):
    """The operating system refused to start the program at `path`."""

    code = "exec.cli.spawn_failed"

    def __init__(self, message: str = "", *, path: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.path = path


class WorkingDirectoryError(SpawnError):
    """The working directory does not exist or cannot be entered."""

    code = "exec.cli.cwd_unusable"
    retryable = False


class NotExecutableError(SpawnError):
    """The file is there but may not, or cannot, be executed."""

    code = "exec.cli.not_executable"
    retryable = False


class WrongLibcError(SpawnError):
    """The file is there and executable, but its loader is not (a musl build on glibc, or the reverse)."""

    code = "exec.cli.wrong_libc"
    retryable = False


class ConnectTimeout(CLIConnectionError):
    """The other side did not answer the handshake in `waited` seconds."""

    code = "connect.timeout"

    def __init__(self, message: str = "", *, waited: float | None = None, stderr_tail: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.waited = waited
        self.stderr_tail = stderr_tail


class AuthenticationError(CLIConnectionError):
    """The other side does not accept who we are; the same credential will be refused again."""

    code = "connect.auth_failed"
    category = "auth"
    retryable = False


# -------------------------------------------------------------------------------------------- it was there and went away


class ConnectionLost(ClaudeTransportError):
    """The peer went away in the middle of a conversation."""

    code = "connection.lost"


class ProcessError(ConnectionLost):
    """The program ended with a failure. A death by signal has `signal` set and `exit_code` None; `stderr_tail` holds its last words."""

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
        """The same as `stderr_tail`, under the name users of the official SDK know."""
        return self.stderr_tail


class CLIVersionMismatch(ProcessError):
    """This CLI does not know `flag`, or is too old for this library (`flag` is None); `version` is the CLI's, when known.

    `flag` is a name of the table of versions: a flag, a control request, `initialize.<field>`, `hook.<event>`, `prompt.<field>`.
    """

    code = "exec.cli.version_mismatch"

    def __init__(self, message: str = "", *, flag: str | None = None, version: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.flag = flag
        self.version = version


# ------------------------------------------------------------------------------------- the other side broke the contract


class ProtocolError(ClaudeTransportError):
    """The peer said something that the protocol does not allow."""

    code = "exec.cli.protocol_error"
    category = "protocol"


class CLIJSONDecodeError(ProtocolError):
    """A line that is no JSON object (raised only with `strict=True`, or when nothing else ever came)."""

    code = "exec.cli.invalid_json"

    def __init__(self, message: str = "", *, line: bytes = b"", line_number: int | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.line = line
        self.line_number = line_number


class LineTooLong(ProtocolError):
    """A line of `size` bytes, over the `limit` in bytes (raised only with `strict=True`)."""

    code = "protocol.line_too_long"

    def __init__(self, message: str = "", *, size: int = 0, limit: int = 0, **common: Any) -> None:
        super().__init__(message, **common)
        self.size = size
        self.limit = limit


class TruncatedStream(ProtocolError):
    """The stream ended inside a line; `bytes_tail` is what there was of it."""

    code = "protocol.truncated"

    def __init__(self, message: str = "", *, bytes_tail: bytes = b"", **common: Any) -> None:
        super().__init__(message, **common)
        self.bytes_tail = bytes_tail


class ReplayGap(ProtocolError):
    """A resumed link can no longer replay everything that was missed."""

    code = "protocol.replay_gap"


# ----------------------------------------------------------------------------------------------------- one request failed


class ControlError(ClaudeTransportError):
    """One control request failed; the transport and the conversation are fine."""

    code = "control.error"
    category = "control"

    def __init__(self, message: str = "", *, subtype: str = "", request_id: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.subtype = subtype
        self.request_id = request_id


class ControlTimeout(ControlError):
    """No answer to the request after `waited` seconds; one that still comes is counted, never misattributed."""

    code = "control.timeout"

    def __init__(self, message: str = "", *, waited: float = 0.0, stderr_tail: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.waited = waited
        self.stderr_tail = stderr_tail


class ControlRequestFailed(ControlError):
    """The peer refused the request; `error_code` is its machine-readable reason, when it gave one."""

    code = "control.refused"

    def __init__(self, message: str = "", *, error_code: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.error_code = error_code


# ---------------------------------------------------------------------------------------------- the run reported a failure


class ResultError(ClaudeTransportError):
    """The run ended and said that it failed: `result` is its `ResultMessage` (or None), `resets_at` when a limit lifts."""

    code = "result.failed"
    category = "api"

    def __init__(self, message: str = "", *, result: Any = None, resets_at: dt.datetime | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.result = result
        self.resets_at = resets_at


class RateLimited(ResultError):
    """Too many requests, or a usage limit was hit; `resets_at` says when it lifts, if the wire said so."""

    code = "result.rate_limited"
    category = "rate_limit"
    retryable = True


class Overloaded(ResultError):
    """The API is overloaded (529)."""

    code = "result.overloaded"
    category = "rate_limit"
    retryable = True


class AuthFailed(ResultError):
    """The credential was missing or refused (401, 403, not logged in)."""

    code = "exec.cli.auth_failed"
    category = "auth"


class BillingFailed(ResultError):
    """The account cannot pay for the call."""

    code = "result.billing"
    category = "auth"


class APIFailed(ResultError):
    """The API failed or refused the request for a reason with no class of its own."""

    code = "result.api_error"


class ModelNotFound(ResultError):
    """The model asked for does not exist or is not available to this account."""

    code = "result.model_not_found"


class MaxTurnsReached(ResultError):
    """The run stopped at `max_turns`."""

    code = "result.max_turns"


class BudgetExceeded(ResultError):
    """The run stopped at `max_budget_usd`."""

    code = "result.budget"


class Refused(ResultError):
    """The model refused to answer."""

    code = "result.refusal"


class PromptTooLong(ResultError):
    """The conversation does not fit into the model's context window, or the request is too large."""

    code = "result.prompt_too_long"


class RunInterrupted(ResultError):
    """The turn was interrupted before it was done."""

    code = "result.interrupted"


class MissingResult(ResultError):
    """The conversation ended before the turn had a result; `messages` holds what came of it."""

    code = "result.missing"
    category = "transport"

    def __init__(self, message: str = "", *, messages: Sequence[Any] = (), **common: Any) -> None:
        super().__init__(message, **common)
        self.messages: tuple[Any, ...] = tuple(messages)


class StructuredOutputMissing(ResultError):
    """A schema was asked for and the run reported success, but no `structured_output` came with it."""

    code = "result.structured_output_missing"


# ------------------------------------------------------------------------------------------------------- nobody can know


class OutcomeUncertain(ClaudeTransportError):
    """It may have happened: never retried for you. `session_id` says which conversation to look at, when known."""

    code = "outcome.uncertain"

    def __init__(self, message: str = "", *, session_id: str | None = None, **common: Any) -> None:
        super().__init__(message, **common)
        self.session_id = session_id
