"""Turns the failures of both paths into the same errors: exceptions of the `anthropic` SDK, and results of the CLI.

There is one table of causes, in `protocol.diagnosis`. An exception of the SDK is described like a `result` (status, type, text) and looked
up there. So a 429 has the same class, code, category and message on both paths. Messages are fixed sentences with the suffix `(transport=…,
category=…)`. What the other side wrote is only on `__cause__`.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import errno
import re
import socket
import ssl
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from claude_transport import errors
from claude_transport.backoff import parse_retry_after
from claude_transport.completion.resolution import TransportKind
from claude_transport.launch.features import parse_version
from claude_transport.protocol.diagnosis import (
    REASONS,
    ReportedFailure,
    ReportedResult,
    detail_of,
    diagnose,
    error_for,
    reason_in,
    unreachable,
)
from claude_transport.protocol.messages import APIRetryMessage
from claude_transport.text.secret_forms import SECRET, is_secret_name

ERROR_TYPES: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Status that each error type of the Messages API means. The type is looked at first: an error in mid-stream has the status 200."""

_READ_STDERR: Final = "Its exit code and the end of its standard error say why."

# the message of each failure of the CLI path that is not a result; the first class that fits counts
SENTENCES: Final[tuple[tuple[type[errors.ClaudeTransportError], str], ...]] = (
    (errors.CLINotFoundError, "Claude CLI not found. Install Claude Code, or name its program with cli_path or CLAUDE_CLI_PATH."),
    (errors.NotExecutableError, "The claude binary may not be executed. Make it executable (chmod +x), or name another one."),
    (errors.WrongLibcError, "The claude binary was built for another C library. Install the build for this system."),
    (errors.WorkingDirectoryError, "The working directory cannot be used. Correct the option cwd."),
    (errors.SpawnError, "The claude binary could not be started. The cause says why the system refused."),
    (errors.ConnectTimeout, "claude did not answer the handshake in time. `claude-transport doctor` tests it step by step."),
    (errors.AuthenticationError, "The other side does not accept the credential. Check it."),
    (errors.CLIVersionMismatch, "This claude does not know an option it was given. Update claude, or do not use the option."),
    (errors.ProcessError, f"claude ended before it had answered. {_READ_STDERR}"),
    (errors.ConnectionLost, "The connection was lost before the answer was complete. The cause says how."),
    (errors.ProtocolError, "claude said something that the protocol does not allow. Check that cli_path names the Claude CLI."),
    (errors.ControlTimeout, "claude did not answer a control request in time. `claude-transport doctor` tests it step by step."),
    (errors.ControlError, "claude refused a control request. The cause says why."),
    (errors.MissingResult, f"The conversation ended without a result. {_READ_STDERR}"),
    (errors.CLIConnectionError, "claude could not be reached. The cause says why."),
    (errors.TransportClosed, f"claude ended before it had answered. {_READ_STDERR}"),
)

_SUFFIX: Final = re.compile(r"\(transport=(cli|api), category=([\w-]+)\)$")
_TIMEOUT_CODE: Final = "exec.cli.timeout"
_MOST_CAUSES: Final = 50
"""Exceptions that are looked at for the reason of the system."""

AnyError = TypeVar("AnyError", bound=errors.ClaudeTransportError)


class Suffix(NamedTuple):
    """The machine-readable end of a message: the path that failed, and the category."""

    transport: TransportKind
    category: str


# The API path.


def classify_api_exception(error: BaseException) -> errors.ClaudeTransportError:
    """Make the error of this library for an exception on the API path. The exception becomes its `__cause__`.

    Errors of this library are returned as they are. Others are recognised by shape (`status_code`, `body`, class names), so that nothing is
    imported. An exception that is not known becomes an `APIFailed` that is not retryable.
    """
    if isinstance(error, errors.ClaudeTransportError):
        return error
    names = [cls.__name__ for cls in type(error).__mro__]
    if "APIResponseValidationError" in names:
        return _caused(_worded(errors.ProtocolError, "api", "The API said something that the protocol does not allow."), error)
    if _is_timeout(error, names):
        return _caused(timed_out("api"), error)
    status = _status_of(error)
    if status is None and _never_asked(error, names):
        return _of_the_api(ReportedFailure(assistant_error="authentication_failed"), error)
    if status is None and _is_connection(error, names):
        return _of_the_api(ReportedFailure(api_error="connection_failed", result=_name_of_reason(error)), error)
    if status is None:
        text = "The call failed with an unexpected error."
        return _caused(_worded(errors.APIFailed, "api", text, code="completion.unexpected"), error)
    reported = ReportedFailure(result=_text_of(error), api_error_status=_known_status(status), resets_at=_resets_at(error))
    return _of_the_api(reported, error)


def _of_the_api(reported: ReportedFailure, cause: BaseException) -> errors.ResultError:
    """Make the error for `reported`. `APIPath` puts a whole result in its place."""
    error = _caused(classify_reported(reported, "api"), cause)
    error.result = reported
    error.reason = REASONS.get(reported.result or "", reported.result or "")
    return error


def retry_after_of(error: BaseException) -> float | None:
    """Return the seconds that the API asked to wait, from the headers of an SDK exception or of the cause of an error."""
    for each in (error, error.__cause__):
        headers = getattr(getattr(each, "response", None), "headers", None)
        if headers is not None:
            return parse_retry_after(headers.get("retry-after"))
    return None


# The CLI path.


def classify_result(result: ReportedResult) -> errors.ResultError | None:
    """Make the error that a result of the CLI reports; None for a good result. Its cause is a `Detail` with the text of the CLI."""
    error = error_for(result)
    if error is None:
        return None
    if _was_not_allowed(result, error):
        text = "The permissions did not allow what the run needed."
        told = _worded(type(error), "cli", text, code="exec.cli.permission_denied", category="permission")
        told.result = result
        error = told
    error.__cause__ = detail_of(result)
    return error


def _was_not_allowed(result: ReportedResult, error: errors.ResultError) -> bool:
    """Whether permissions ended a run that has no better cause: a denial that interrupts, or the refusal to run as root.

    An interrupt during a permission question looks the same on the wire. An interrupt while the model writes does not.
    """
    if error.code == "result.startup_failed":
        return result.startup_failure_reason == "bypass_root"
    stopped = isinstance(error, errors.RunInterrupted) and result.terminal_reason == "aborted_tools"
    return bool(getattr(result, "permission_denials", ())) and (stopped or error.code == errors.APIFailed.code)


def classify_cli_exception(error: BaseException) -> errors.ClaudeTransportError:
    """Make the error of this library for an exception on the CLI path: same class, code and data, with a fixed message.

    The original becomes its `__cause__`, because its message may hold paths and output of the process. Results and usage errors are
    returned as they are.
    """
    if not isinstance(error, errors.ClaudeTransportError):
        text = "The call failed with an unexpected error."
        return _caused(_worded(errors.ClaudeTransportError, "cli", text, code="completion.unexpected"), error)
    if read_suffix(_message_of(error)) is not None:
        return error
    for kind, text in SENTENCES:
        if isinstance(error, kind):
            if isinstance(error, errors.TransportClosed):
                ended = {"exit_code": error.exit_code, "signal": error.signal, "stderr_tail": error.stderr_tail}
                return _caused(_worded(errors.ProcessError, "cli", text, **ended), error)
            return _caused(_reworded(error, _too_old(error) or text), error)
    return error


def _too_old(error: errors.ClaudeTransportError) -> str | None:
    """Return the sentence for a claude that is older than every supported one, with its version; None for any other error."""
    if not isinstance(error, errors.CLIVersionMismatch) or error.flag is not None:
        return None
    numbers = parse_version(error.version)
    return None if numbers is None else f"This claude is {'.'.join(map(str, numbers))}, which is too old. Update claude."


def classify_exception_of(error: BaseException, words: Iterable[tuple[str, str]]) -> errors.ClaudeTransportError:
    """Make the error of this library for an exception on the CLI path when another agent runs.

    The sentences are those of `claude`; of each pair in `words`, the first is replaced by the second, in this order.
    """
    found = classify_cli_exception(error)
    text = _message_of(found)
    if found is not error and read_suffix(text) is not None:
        for word, other in words:
            text = text.replace(word, other)
        found.args = (text,)
    return found


# Both paths.


def with_address(error: AnyError, url: str | None) -> AnyError:
    """Name the API at `url` in the message of `error`, if it says that the API was not reached. Returns `error`.

    Only scheme, host and port are named: the rest of a URL may hold a secret. None leaves the message as it is.
    """
    suffix = read_suffix(_message_of(error))
    if url is None or suffix is None or error.code != "result.connection_failed":
        return error
    cause = error.__cause__
    name = _name_of_reason(cause) if cause is not None else ""
    reason = reason_in(name or str(cause))
    error.args = (_suffixed(unreachable(at=origin_of(url), reason=reason), suffix.transport, suffix.category),)
    return error


def origin_of(url: str) -> str:
    """Return scheme, host and port of `url`, without user, password, path and query; words that say so where it has no host."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "an address that is no URL"
    if not host:
        return "an address that is no URL"
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port else "")


def timed_out(
    transport: TransportKind,
    *,
    seconds: float | None = None,
    messages: Sequence[Any] = (),
    option: str = "timeout",
    retries: Sequence[APIRetryMessage] = (),
) -> errors.MissingResult:
    """Make the error for a call that took too long. `messages` are those received until then.

    `option` is the limit that was reached, `timeout` or `attempt_timeout`.
    `retries` are those with which they end: the API failed each time. Then its failure is the `__cause__`, and the error has its category,
    and is as retryable. Otherwise it is not retryable.
    """
    after = "" if seconds is None else f" within {seconds:g} s"
    text = f"There was no complete answer{after}."
    if not retries:
        text += f" Allow more time with {option}, or ask for less."
        return _worded(errors.MissingResult, transport, text, code=_TIMEOUT_CODE, category="timeout", messages=messages)
    cause = classify_reported(_reported_by(retries[-1]), transport)
    cause.reason = _told_of(retries)
    text += f" {_SUFFIX.sub('', _message_of(cause)).rstrip()}"
    known = {"category": cause.category, "retryable": cause.retryable, "messages": messages}
    return _caused(_worded(errors.MissingResult, transport, text, code=_TIMEOUT_CODE, **known), cause)


def _reported_by(retry: APIRetryMessage) -> ReportedFailure:
    """Return the failure that an agent announced with a retry. Without a status and a known kind, the API was not reached."""
    status = None if retry.error_status is None else _known_status(retry.error_status)
    reported = ReportedFailure(api_error_status=status, assistant_error=retry.error, result=retry.error)
    is_known = diagnose(reported).code != errors.APIFailed.code  # that of every status is
    return reported if is_known else ReportedFailure(api_error="connection_failed", result=retry.error)


def _told_of(retries: Sequence[APIRetryMessage]) -> str:
    """Return in words what the API did each time, and how far the agent had got with its retries."""
    last = retries[-1]
    status = "without an answer" if last.error_status is None else f"with status {last.error_status}"
    kind = f" ({last.error})" if last.error else ""
    following = f"; retry {last.attempt} of {last.max_retries} was to follow" if last.max_retries else ""
    return f"the API failed {len(retries)} times, the last time {status}{kind}{following}"


def read_suffix(message: str) -> Suffix | None:
    """Read the path and the category from the end of an error's message; None when there is no suffix."""
    match = _SUFFIX.search(message)
    if match is None:
        return None
    return Suffix("cli" if match[1] == "cli" else "api", match[2])


def classify_reported(reported: ReportedFailure, transport: TransportKind) -> errors.ResultError:
    """Look up the error for `reported` in the table of causes, for this path."""
    found = error_for(reported)
    if found is None:  # not reachable: `is_error` is True in every ReportedFailure
        raise AssertionError(reported)
    outcome = diagnose(reported)
    known = {"code": outcome.code, "category": outcome.category, "retryable": outcome.retryable, "resets_at": outcome.resets_at}
    return _worded(type(found), transport, outcome.text, **known)


def _worded(kind: type[AnyError], transport: TransportKind, text: str, **data: Any) -> AnyError:
    """Make a new error with the message `text` and the suffix."""
    category = data.get("category") or kind.category
    return kind(_suffixed(text, transport, category), **data)


def _suffixed(text: str, transport: TransportKind, category: str) -> str:
    return f"{text} (transport={transport}, category={category})"


def _reworded(error: errors.ClaudeTransportError, text: str) -> errors.ClaudeTransportError:
    """Copy an error with its data, under the message `text`."""
    found = copy.copy(error)
    found.args = (_suffixed(text, "cli", found.category),)
    return found


def _message_of(error: errors.ClaudeTransportError) -> str:
    """Return the message without the reason, which `str()` adds."""
    return str(error.args[0]) if error.args else ""


def _caused(error: AnyError, cause: BaseException) -> AnyError:
    error.__cause__ = cause
    return error


def forget_secrets(error: BaseException, hide: Callable[[str], str]) -> None:
    """Remove secrets from an exception of the SDK, and from those that led to it: `hide` returns a text without them.

    The other side may repeat a credential in its answer, and the HTTP client may quote a header. Local variables of the frames hold the
    headers of the request, and tools that report errors show local variables. So they are removed; the lines of the traceback stay.
    """
    waiting, seen = deque([error]), set[int]()
    while waiting and len(seen) < _MOST_CAUSES:
        each = waiting.popleft()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if not isinstance(each, errors.ClaudeTransportError):  # the messages of our own hold no secret
            _hide_in(each, hide)
        traceback.clear_frames(each.__traceback__)
        inner = (each.__cause__, each.__context__, *(each.exceptions if isinstance(each, BaseExceptionGroup) else ()))
        waiting.extend(found for found in inner if found is not None)


def _hide_in(error: BaseException, hide: Callable[[str], str]) -> None:
    """Remove secrets from the texts of `error`, and from the request that it keeps."""
    facts = getattr(error, "__dict__", {})
    for name in ("args", *facts):
        with contextlib.suppress(AttributeError, TypeError):  # an exception of other code may let nothing change it
            value = getattr(error, name, None)
            if value is not None and (hidden := _hidden(value, hide)) != value:
                setattr(error, name, hidden)
    requests: tuple[Any, ...] = (facts.get("request"), facts.get("_request"))
    for request in requests:
        with contextlib.suppress(AttributeError, TypeError):  # the next HTTP client may have another request
            request.url = type(request.url)(hide(str(request.url)))
            for name, value in request.headers.items():
                request.headers[name] = SECRET if is_secret_name(name) else hide(value)


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    """Return `value`, a text or what JSON can hold, with each text as `hide` returns it."""
    match value:
        case str():
            return hide(value)
        case bytes():
            return hide(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        case dict():
            return {_hidden(name, hide): _hidden(inner, hide) for name, inner in value.items()}
        case list():
            return [_hidden(inner, hide) for inner in value]
        case tuple():
            return tuple(_hidden(inner, hide) for inner in value)
        case _:
            return value


# What an exception of the SDK tells.


def _is_timeout(error: BaseException, names: Sequence[str]) -> bool:
    """Whether the answer took too long. A connection that was not made in time is another cause: nothing was sent."""
    if "ConnectTimeout" in names or type(error.__cause__).__name__ in {"ConnectTimeout", "PoolTimeout"}:
        return False
    return isinstance(error, TimeoutError) or "APITimeoutError" in names or "TimeoutException" in names


def _is_connection(error: BaseException, names: Sequence[str]) -> bool:
    return isinstance(error, OSError) or "APIConnectionError" in names or "TransportError" in names


def _name_of_reason(error: BaseException) -> str:
    """Return the name in `REASONS` of the failure of the system that caused `error`; empty when none is known.

    The SDK, its HTTP client and the event loop each wrap the error of the system. The loop may have tried several addresses.
    """
    waiting, seen = deque([error]), 0
    while waiting and seen < _MOST_CAUSES:
        each, seen = waiting.popleft(), seen + 1
        if isinstance(each, socket.gaierror):
            return "EAI_AGAIN" if each.errno == socket.EAI_AGAIN else "ENOTFOUND"
        if isinstance(each, ssl.SSLCertVerificationError):
            return "CERT_HAS_EXPIRED" if "expired" in each.verify_message else "SELF_SIGNED_CERT_IN_CHAIN"
        name = errno.errorcode.get(each.errno or 0, "") if isinstance(each, OSError) else ""
        if "Timeout" in type(each).__name__:
            name = "ETIMEDOUT"
        if name in REASONS:
            return name
        inner = each.exceptions if isinstance(each, BaseExceptionGroup) else (each.__cause__, each.__context__)
        waiting.extend(found for found in inner if found is not None)
    return ""


def _never_asked(error: BaseException, names: Sequence[str]) -> bool:
    """Whether the SDK had no credential. It raises a `TypeError` when it builds the request, or a class of its own."""
    return "CredentialsError" in names or (isinstance(error, TypeError) and "authentication method" in str(error))


def _status_of(error: BaseException) -> int | None:
    kind = _field(error, "type")
    if kind in ERROR_TYPES:
        return ERROR_TYPES[kind]
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and not isinstance(status, bool) else None


def _known_status(status: int) -> int:
    """Map the status to one that the table of causes has: 4xx is the request's fault, 5xx the API's."""
    if status in ERROR_TYPES.values():
        return status
    return 500 if status >= 500 else 400


def _text_of(error: BaseException) -> str:
    return _field(error, "message") or str(error)


def _field(error: BaseException, name: str) -> str:
    """Return a text of the `error` object in the response's body; empty when there is none."""
    body = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, Mapping) else None
    value = inner.get(name) if isinstance(inner, Mapping) else None
    return value if isinstance(value, str) else ""


def _resets_at(error: BaseException) -> dt.datetime | None:
    """Return when a limit lifts, from the API's header for subscriptions (seconds since the epoch)."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    text = headers.get("anthropic-ratelimit-unified-reset") if headers is not None else None
    try:
        return dt.datetime.fromtimestamp(float(text), dt.UTC) if text else None
    except (ValueError, OverflowError, OSError):
        return None  # not a number: then the time is not known
