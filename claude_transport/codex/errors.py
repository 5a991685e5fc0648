"""What a failure of Codex means: the same error classes and codes as a failure of `claude`.

`codexErrorInfo` decides: a text, or an object with one key and often an `httpStatusCode`. The words of the message decide only when it is
`other` or missing, as with `codex exec`. The table of causes itself is in `protocol.diagnosis`.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from claude_transport import errors
from claude_transport.codex.messages import CodexTurnError
from claude_transport.protocol.diagnosis import Detail, ReportedFailure, error_for
from claude_transport.protocol.envelope import holds_half_a_pair

MAX_INPUT_CHARS: Final = 1_048_576
"""Characters that the text of one prompt may have. Codex refuses more (code -32602, `input_too_large`)."""


_REFUSED: Final = ReportedFailure(terminal_reason=None, stop_reason="refusal")
_CONNECTION: Final = ReportedFailure(api_error="connection_failed")
_TOO_LONG: Final = ReportedFailure(terminal_reason="prompt_too_long")
_LIMIT: Final = ReportedFailure(api_error_status=429)
_OVERLOADED: Final = ReportedFailure(api_error_status=529)
_SERVER: Final = ReportedFailure(api_error_status=500)
_AUTH: Final = ReportedFailure(api_error_status=401)
_MODEL: Final = ReportedFailure(api_error_status=404)
_BILLING: Final = ReportedFailure(api_error_status=402)
_INVALID: Final = ReportedFailure(assistant_error="invalid_request", api_error_status=400)

BY_NAME: Final[Mapping[str, ReportedFailure]] = {
    "contextWindowExceeded": _TOO_LONG,
    "sessionBudgetExceeded": ReportedFailure(terminal_reason="budget_exhausted"),
    "usageLimitExceeded": _LIMIT,
    "rateLimitExceeded": _LIMIT,
    "flexUnavailable": _OVERLOADED,
    "serverOverloaded": _OVERLOADED,
    "policyCapacityUnavailable": _OVERLOADED,
    "modelNotFound": _MODEL,
    "cyberPolicy": _REFUSED,
    "misalignmentPolicyViolation": _REFUSED,
    "inferenceHookDenied": _REFUSED,
    "internalServerError": _SERVER,
    "unauthorized": _AUTH,
    "badRequest": _INVALID,
}
"""The kinds of `codexErrorInfo` that are plain texts, and the failure that each stands for. `other`, `sandboxError` and the rest name no
cause.
"""

BY_STATUS: Final = frozenset(
    {"httpConnectionFailed", "responseStreamConnectionFailed", "responseStreamDisconnected", "responseTooManyFailedAttempts"}
)
"""Kinds of `codexErrorInfo` that may hold an HTTP status, which decides the error. Without a status, the API was not reached."""

_KNOWN_STATUS: Final = frozenset({401, 402, 403, 404, 413, 429, 500, 502, 503, 504, 529})

BY_API_CODE: Final[Mapping[str, ReportedFailure]] = {
    "invalid_api_key": _AUTH,
    "authentication_error": _AUTH,
    "insufficient_quota": _BILLING,
    "billing_error": _BILLING,
    "rate_limit_exceeded": _LIMIT,
    "usage_limit_reached": _LIMIT,
    "model_not_found": _MODEL,
    "context_length_exceeded": _TOO_LONG,
    "server_error": _SERVER,
    "invalid_request_error": _INVALID,
}
"""Codes and types of errors in a body of the API, which Codex may pass on as the message."""

_FULL: Final = 100
"""Percent of a window from which on the account gets no more answers."""

_COUNTED: Final = re.compile(r"\b\d+/\d+\b")
_STATUS_IN_WORDS: Final = re.compile(r"\bstatus:? (\d{3})\b")

# Codex's own sentences; the first that is found counts. What none of them knows, the words of `protocol.diagnosis` may.
_BY_WORDS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), cause)
    for pattern, cause in (
        (r"usage limit|rate limit|quota exceeded", _LIMIT),
        (r"ran out of room|context window", _TOO_LONG),
        (r"selected model is at capacity|overloaded", _OVERLOADED),
        (r"high demand|internal server error", _SERVER),
        (r"missing environment variable|not logged in|log in again|refresh token", _AUTH),
        (r"stream disconnected|connection failed|error sending request|timeout waiting for", _CONNECTION),
    )
)


def error_of(failure: CodexTurnError | str, *, result: Any = None) -> errors.ResultError:
    """Make the error of this library for the failure of a turn.

    Args:
        failure: the `error` of `turn/completed` or of an `error` notification; the message alone for a line of `codex exec`.
        result: what becomes `result` of the error, such as the `TurnCompleted`.

    Returns:
        An error with the class, the code, the category and `retryable` that the same failure of `claude` has. What Codex wrote is its
        `reason`, without secrets and cut.
    """
    told = failure if isinstance(failure, CodexTurnError) else CodexTurnError(message=failure)
    cause = _by_info(told.codex_error_info) or _by_body(told.message) or _by_words(told.message)
    found = _made(cause)
    found.result = result
    if told.message:
        found.reason = told.message
        found.__cause__ = Detail(told.message)
    return found


def is_unreachable(failure: CodexTurnError) -> bool:
    """Return whether Codex could not reach the API and tries without end. Where it gives up itself, it counts (`Reconnecting... 1/5`)."""
    return _by_info(failure.codex_error_info) is _CONNECTION and _COUNTED.search(failure.message) is None


def resets_at_of(limits: Any) -> dt.datetime | None:
    """Return when the full windows of `account/rateLimits/updated` end, in UTC; None when none is full, or it is not known."""
    windows = [limits.get(name) for name in ("primary", "secondary")] if isinstance(limits, Mapping) else []
    found = []
    for window in windows:
        if isinstance(window, Mapping) and _is_count(window.get("usedPercent")) and window["usedPercent"] >= _FULL:
            try:
                found += [dt.datetime.fromtimestamp(window["resetsAt"], dt.UTC)] if _is_count(window.get("resetsAt")) else []
            except (ValueError, OverflowError, OSError):
                continue  # no moment that this machine can express
    return max(found, default=None)


def names_windows(limits: Any) -> bool:
    """Return True when this update of the limits names a window. Otherwise the windows of the update before stay valid."""
    return isinstance(limits, Mapping) and any(isinstance(limits.get(name), Mapping) for name in ("primary", "secondary"))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def interrupted(*, result: Any = None) -> errors.ResultError:
    """Make the error for a turn that was interrupted."""
    found = _made(ReportedFailure(terminal_reason="aborted_streaming"))
    found.result = result
    return found


def _made(cause: ReportedFailure) -> errors.ResultError:
    return cast("errors.ResultError", error_for(cause))  # None is for a success, and `is_error` is True in every ReportedFailure


def too_large(characters: int) -> errors.PromptTooLong:
    """Make the error for a prompt of more characters than Codex takes."""
    text = f"the prompt has {characters:,} characters, and Codex takes {MAX_INPUT_CHARS:,}: shorten it, or put it into a file"
    return errors.PromptTooLong(text)


def check_sendable(option: str, value: object) -> None:
    """Raise `ConfigurationError` for a value that holds half of a surrogate pair: Codex cannot read such a line, and answers nothing."""
    if holds_half_a_pair(value):
        raise errors.ConfigurationError(f"{option}: holds half of a surrogate pair, which Codex cannot read. Remove it", option=option)


def refusal_of(error: errors.ControlError) -> errors.ClaudeTransportError:
    """Return the error that an answer to a request means: `PromptTooLong` for a prompt over the limit, otherwise the error itself."""
    data = getattr(error, "data", None)
    if isinstance(data, Mapping) and data.get("input_error_code") == "input_too_large":
        count = data.get("actual_chars")
        found = too_large(count if isinstance(count, int) else MAX_INPUT_CHARS + 1)
        found.__cause__ = error
        return found
    return error


def _by_info(info: Any) -> ReportedFailure | None:
    """Return the cause that `codexErrorInfo` names; None when it leaves it open."""
    if isinstance(info, str):
        return BY_NAME.get(info)
    if not isinstance(info, Mapping):
        return None
    for name, facts in info.items():
        if name in BY_STATUS:
            status = facts.get("httpStatusCode") if isinstance(facts, Mapping) else None
            return _by_status(status) if isinstance(status, int) else _CONNECTION
        if name in BY_NAME:
            return BY_NAME[name]
    return None


def _by_status(status: int) -> ReportedFailure:
    """Return the cause for a status of the API. An unknown one is the fault of the request below 500, and of the API from there on."""
    if status in _KNOWN_STATUS:
        return ReportedFailure(api_error_status=status)
    return _SERVER if status >= 500 else _INVALID


def _by_body(message: str) -> ReportedFailure | None:
    """Return the cause in a body of the API that Codex passed on as it was, as for a status of 400."""
    if not message.lstrip().startswith("{"):
        return None
    try:
        body = json.loads(message)
    except (ValueError, RecursionError):
        return None
    inner = body.get("error") if isinstance(body, dict) else None
    named = [inner.get(name) for name in ("code", "type")] if isinstance(inner, dict) else []
    return next((BY_API_CODE[name] for name in named if isinstance(name, str) and name in BY_API_CODE), None)


def _by_words(message: str) -> ReportedFailure:
    found = _STATUS_IN_WORDS.search(message)
    if found is not None and int(found[1]) >= 400:
        return _by_status(int(found[1]))
    for pattern, cause in _BY_WORDS:
        if pattern.search(message):
            return cause
    return ReportedFailure(result=message)
