"""Decides from a result message whether the run succeeded; if not, with which error, and whether a retry can help.

The structured fields decide, in the order of `_by_fields()`. The words of the text decide only when no field does. `subtype` is not
enough: an API failure arrives as `"success"` with `is_error: true` (docs/reference/protocol.md#results).

The error classes are in `errors`. Errors of `complete()`, which also retries, are in `completion.classification`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from claude_transport import errors


class ReportedResult(Protocol):
    """The fields of a `ResultMessage` that this module reads. `messages` imports this module, so it cannot import the class itself."""

    @property
    def is_error(self) -> bool: ...
    @property
    def subtype(self) -> str: ...
    @property
    def result(self) -> str | None: ...
    @property
    def errors(self) -> tuple[str, ...]: ...
    @property
    def terminal_reason(self) -> str | None: ...
    @property
    def stop_reason(self) -> str | None: ...
    @property
    def num_turns(self) -> int: ...
    @property
    def api_error(self) -> str | None: ...
    @property
    def api_error_status(self) -> int | None: ...
    @property
    def startup_failure_reason(self) -> str | None: ...
    @property
    def assistant_error(self) -> str | None: ...
    @property
    def resets_at(self) -> dt.datetime | None: ...
    @property
    def structured_output(self) -> object: ...
    @property
    def expects_structured_output(self) -> bool: ...


class ReportedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that came in another form than a `result`, in the words of one, so that the same table names its error.

    The defaults are those of an API failure of which nothing more is known.
    """

    is_error: bool = True
    subtype: str = "success"
    result: str | None = None
    errors: tuple[str, ...] = ()
    terminal_reason: str | None = "api_error"
    stop_reason: str | None = None
    num_turns: int = 1
    api_error: str | None = None
    api_error_status: int | None = None
    startup_failure_reason: str | None = None
    assistant_error: str | None = None
    resets_at: dt.datetime | None = None
    structured_output: object = None
    expects_structured_output: bool = False


DETAIL_LIMIT: Final = 4096
"""Characters of the other side's text that a `Detail` repeats. The events have all of it."""
TRUNCATED: Final = " ... (truncated)"


class Detail(Exception):
    """What the other side wrote about its failure, at most 4,096 characters. It is on `__cause__`, and never raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= DETAIL_LIMIT else text[:DETAIL_LIMIT] + TRUNCATED)


def detail_of(result: ReportedResult) -> Detail | None:
    """Return what the other side wrote about a failure; None when it wrote nothing."""
    text = getattr(result, "said", None) or (result.result if isinstance(result.result, str) else "")
    text = text or "; ".join(result.errors)
    return Detail(text) if text and result.is_error is True else None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the result of a turn means. `ok` is True on success; `code` and `category` are then `ok`. On a failure they name its kind
    (`result.rate_limited` and `rate_limit`), and `retryable` says whether the same call may succeed later.

    `resets_at` is when a rate limit ends, in UTC; None when unknown. `text` can be shown to users: it contains no secrets and no model
    output.
    """

    ok: bool
    code: str
    category: str
    retryable: bool = False
    resets_at: dt.datetime | None = None
    text: str = ""


class _Failure(msgspec.Struct, frozen=True):
    """One kind of failure: the error class and the text. `code`, `category` and `retryable` replace those of the class unless None."""

    error: type[errors.ResultError]
    text: str
    code: str | None = None
    category: str | None = None
    retryable: bool | None = None


REASONS: Final[Mapping[str, str]] = {
    "ECONNREFUSED": "connection refused",
    "ConnectionRefused": "connection refused",
    "ENOTFOUND": "the host name has no address",
    "EAI_AGAIN": "the host name could not be looked up now",
    "ETIMEDOUT": "no answer in time",
    "ECONNRESET": "the connection was cut",
    "EPIPE": "the connection was cut",
    "EHOSTUNREACH": "there is no way to the host",
    "ENETUNREACH": "the network is unreachable",
    "CERT_HAS_EXPIRED": "its certificate has expired",
    "SELF_SIGNED_CERT_IN_CHAIN": "its certificate is not trusted",
    "DEPTH_ZERO_SELF_SIGNED_CERT": "its certificate is not trusted",
    "UNABLE_TO_VERIFY_LEAF_SIGNATURE": "its certificate is not trusted",
    "UNABLE_TO_GET_ISSUER_CERT_LOCALLY": "its certificate is not trusted",
}
"""Why a connection was not made, for each name that a system or a CLI gives it."""

_NAMED_REASON: Final = re.compile(rf"\b({'|'.join(REASONS)})\b")


def unreachable(*, at: str = "", reason: str = "") -> str:
    """Return the sentences about an API that was not reached: `at` is its address, `reason` one of `REASONS`. Both are empty if unknown."""
    where, why = f" at {at}" if at else "", f": {reason}" if reason else ""
    return (
        f"The API{where} could not be reached{why}. Check {'ANTHROPIC_BASE_URL, ' if at else ''}the network and the proxy, then try again."
    )


def reason_in(text: str) -> str:
    """Return why the API was not reached, from the name of the reason in the text of a CLI; empty when it names none that is known."""
    named = _NAMED_REASON.search(text)
    return REASONS[named[1]] if named else ""


_RATE_LIMIT: Final = _Failure(
    errors.RateLimited, "The API refused the request because of a rate or usage limit. Wait, or choose a smaller model."
)
_OVERLOADED: Final = _Failure(errors.Overloaded, "The API is overloaded. Try again in a few minutes.")
_AUTH: Final = _Failure(errors.AuthFailed, "The credential is missing or was refused. Log in again, or check the key.")
_BILLING: Final = _Failure(errors.BillingFailed, "The account cannot pay for this call. Check its credit.")
_MODEL: Final = _Failure(errors.ModelNotFound, "The model does not exist, or this account may not use it. Choose another model.")
_TOO_LONG: Final = _Failure(
    errors.PromptTooLong, "The request is too large for the model. Shorten the prompt, or compact the conversation."
)
_REFUSED: Final = _Failure(errors.Refused, "The model refused to answer. Change the prompt.")
_MAX_TURNS: Final = _Failure(
    errors.MaxTurnsReached, "The run reached its maximum number of turns. Raise max_turns, or continue with another prompt."
)
_BUDGET: Final = _Failure(errors.BudgetExceeded, "The run reached its maximum budget. Raise max_budget_usd to continue.")
_INTERRUPTED: Final = _Failure(errors.RunInterrupted, "The turn was interrupted. Send the prompt again if you still need the answer.")
_STRUCTURED: Final = _Failure(
    errors.StructuredOutputMissing,
    "The model did not produce output that fits the schema. Simplify the schema, or describe the output in the prompt.",
    code="result.structured_output_invalid",
)
_NO_STRUCTURE: Final = _Failure(
    errors.StructuredOutputMissing,
    "A schema was requested, but the result contains no structured output. Describe the output in the prompt.",
)
_SERVER: Final = _Failure(errors.APIFailed, "The API failed. Try again in a few minutes.", code="result.server_error", retryable=True)
_CONNECTION: Final = _Failure(errors.APIFailed, unreachable(), code="result.connection_failed", category="transport", retryable=True)
_INVALID: Final = _Failure(
    errors.APIFailed, "The API refused the request as invalid. Its answer says what to correct.", code="result.invalid_request"
)
_OUTPUT: Final = _Failure(
    errors.APIFailed,
    "The answer exceeded the maximum number of output tokens. Raise the limit, or ask for a shorter answer.",
    code="result.max_output_tokens",
)
_START: Final = _Failure(
    errors.ResultError,
    "The session could not be started. Check its id, the settings files and the servers that the options name.",
    code="result.startup_failed",
    category="configuration",
)
_UNCERTAIN: Final = _Failure(
    errors.TurnUncertain,
    "The machine that ran the turn is gone, and the turn may have had effects. Look into the session before you repeat it.",
)
_UNKNOWN: Final = _Failure(errors.APIFailed, "The run failed, and its result gives no reason. Try again, and read the messages before it.")

_BY_SUBTYPE: Final = {
    "error_max_turns": _MAX_TURNS,
    "error_max_budget_usd": _BUDGET,
    "error_max_structured_output_retries": _STRUCTURED,
    "outcome_uncertain": _UNCERTAIN,
}

_BY_TERMINAL_REASON: Final = {
    "max_turns": _MAX_TURNS,
    "budget_exhausted": _BUDGET,
    "aborted_streaming": _INTERRUPTED,
    "aborted_tools": _INTERRUPTED,
    "prompt_too_long": _TOO_LONG,
    "blocking_limit": _TOO_LONG,
    "structured_output_retry_exhausted": _STRUCTURED,
}

_BY_API_ERROR: Final = {"connection_failed": _CONNECTION, "max_output_tokens": _OUTPUT}

_BY_STATUS: Final = {
    401: _AUTH,
    402: _BILLING,
    403: _AUTH,
    404: _MODEL,
    413: _TOO_LONG,
    429: _RATE_LIMIT,
    500: _SERVER,
    502: _SERVER,
    503: _SERVER,
    504: _SERVER,
    529: _OVERLOADED,
}

_BY_ASSISTANT_ERROR: Final = {
    "authentication_failed": _AUTH,
    "oauth_org_not_allowed": _AUTH,
    "account_on_hold": _AUTH,
    "verification_required": _AUTH,
    "cloud_credential_error": _AUTH,
    "billing_error": _BILLING,
    "rate_limit": _RATE_LIMIT,
    "overloaded": _OVERLOADED,
    "model_not_found": _MODEL,
    "max_output_tokens": _OUTPUT,
    "server_error": _SERVER,
    "invalid_request": _INVALID,
}

# The first match wins: a text that says "rate limit" and "overloaded" is a rate limit. A status must be a whole word, because request ids
# contain digits.
_BY_KEYWORD: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), failure)
    for pattern, failure in (
        (r"credit balance", _BILLING),
        (r"\b429\b|rate[ -]limit|usage limit", _RATE_LIMIT),
        (r"\b529\b|overloaded", _OVERLOADED),
        (r"safeguards flagged", _REFUSED),
        (r"prompt is too long|request too large", _TOO_LONG),
        (r"\b40[13]\b|unauthorized|authentication|auth error|anthropic_api_key|not logged in|credentials", _AUTH),
        (r"mid-response|internal server error", _SERVER),
    )
)


def diagnose(result: ReportedResult) -> Outcome:
    """Return the outcome of a run. It failed when `is_error` is True, or when a requested structured output is missing."""
    failure = _failure_of(result)
    return Outcome(ok=True, code="ok", category="ok") if failure is None else _outcome_of(failure, result)


def _outcome_of(failure: _Failure, result: ReportedResult) -> Outcome:
    error = failure.error
    return Outcome(
        ok=False,
        code=failure.code or error.code,
        category=failure.category or error.category,
        retryable=error.retryable if failure.retryable is None else failure.retryable,
        resets_at=result.resets_at if error is errors.RateLimited else None,
        text=unreachable(reason=reason_in(_text_of(result))) if failure is _CONNECTION else failure.text,
    )


def error_for(result: ReportedResult) -> errors.ResultError | None:
    """Return the exception for a failed `result`; None when it succeeded. Its cause is a `Detail`, when the result has a text."""
    failure = _failure_of(result)
    if failure is None:
        return None
    outcome = _outcome_of(failure, result)
    # the name of the reason in the text of the CLI means what the sentence says
    reason = reason_in(_text_of(result)) if failure is _CONNECTION else getattr(result, "said", None) or ""
    error = failure.error(
        f"{outcome.text} (transport=cli, category={outcome.category})",
        result=result,
        resets_at=outcome.resets_at,
        code=outcome.code,
        category=outcome.category,
        retryable=outcome.retryable,
        reason=reason,
    )
    error.__cause__ = detail_of(result)
    return error


def _failure_of(result: ReportedResult) -> _Failure | None:
    if result.is_error is not True:
        missing = result.expects_structured_output and result.structured_output is None
        return _NO_STRUCTURE if missing else None
    return _by_fields(result) or _by_words(result)


def _by_fields(result: ReportedResult) -> _Failure | None:
    """Return the failure that the structured fields name; None when they leave it open."""
    if result.api_error_status in (400, 402) and "credit balance" in _text_of(result).lower():
        return _BILLING  # checked first: other fields may name a failed start or an invalid request [11_400_credit]
    named = (
        _BY_SUBTYPE.get(result.subtype)
        or _BY_TERMINAL_REASON.get(result.terminal_reason or "")
        or _BY_API_ERROR.get(result.api_error or "")
        or _BY_STATUS.get(result.api_error_status or 0)
    )
    if named is not None:
        return named
    never_began = result.terminal_reason is None and result.num_turns == 0
    if result.startup_failure_reason or (never_began and result.subtype == "error_during_execution"):
        return _START  # the result of a failed start has no turns and no terminal_reason [16g]
    if result.stop_reason == "refusal":
        return _REFUSED
    # these two names cover several failures, so the words decide first
    reported = _BY_ASSISTANT_ERROR.get(result.assistant_error or "")
    return None if reported in (_SERVER, _INVALID) else reported


def _by_words(result: ReportedResult) -> _Failure:
    """Return the failure that the words of the text name; without such words, the one that `assistant_error` names.

    Example: the CLI reports an overloaded API (529) as `server_error`. Only the text says that it is overloaded.
    """
    text = _text_of(result)
    # a 400 is never a rate limit, an overload, a credential or a server failure, whatever words its text contains
    is_bad_request = result.api_error_status == 400
    for pattern, failure in _BY_KEYWORD:
        if pattern.search(text) and not (is_bad_request and failure in (_RATE_LIMIT, _OVERLOADED, _AUTH, _SERVER)):
            return failure
    return _BY_ASSISTANT_ERROR.get(result.assistant_error or "") or (_INVALID if is_bad_request else _UNKNOWN)


def _text_of(result: ReportedResult) -> str:
    return " ".join([result.result or "", *result.errors])
