"""What a failure of Codex means: the error of it is that of the same failure of `claude`, as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claude_transport import errors
from claude_transport.codex.errors import MAX_INPUT_CHARS, check_sendable, error_of, is_unreachable, refusal_of
from claude_transport.codex.messages import CodexTurnError

LIMITED = (errors.RateLimited, "result.rate_limited", "rate_limit", True)
INVALID = (errors.APIFailed, "result.invalid_request", "api", False)


def shown(error: errors.ClaudeTransportError) -> tuple[Any, ...]:
    return type(error), error.code, error.category, error.retryable


def body(**error: Any) -> str:
    return json.dumps({"error": error})


@pytest.mark.parametrize(
    ("message", "info", "told"),
    [
        ("said", "usageLimitExceeded", LIMITED),
        ("said", {"httpConnectionFailed": {"httpStatusCode": 429}}, LIMITED),
        ("said", {"responseStreamDisconnected": {}}, (errors.APIFailed, "result.connection_failed", "transport", True)),
        (body(code="rate_limit_exceeded"), "other", LIMITED),
        (body(code=7, type="rate_limit_exceeded"), None, LIMITED),
        (body(code=["rate_limit_exceeded"], type="invalid_request_error"), None, INVALID),
        (body(code="brand_new", type="invalid_request_error"), None, INVALID),
        ("unexpected status 429 Too Many Requests", None, LIMITED),
        ("followed status 302, then: rate limit", None, LIMITED),
    ],
)
def test_the_error_of_a_failure_and_what_codex_wrote_of_it(message: str, info: Any, told: tuple[Any, ...]) -> None:
    result = object()
    error = error_of(CodexTurnError(message=message, codex_error_info=info), result=result)
    assert (shown(error), error.reason, str(error.__cause__)) == (told, message, message)
    assert error.result is result


def test_what_codex_wrote_stays_the_reason_of_an_error_that_is_raised_from_another() -> None:
    error = error_of(CodexTurnError(message="said", codex_error_info="usageLimitExceeded"))
    with pytest.raises(errors.RateLimited) as caught:
        raise error from ValueError("other")
    assert caught.value.reason == "said"


def test_a_failure_without_words_has_no_reason() -> None:
    error = error_of(CodexTurnError(codex_error_info="usageLimitExceeded"))
    assert (shown(error), error.reason, error.__cause__, error.result) == (LIMITED, "", None, None)


@pytest.mark.parametrize(
    ("message", "info", "expected"),
    [
        ("Reconnecting...", {"responseStreamConnectionFailed": {}}, True),
        ("Reconnecting... 1/5", {"responseStreamConnectionFailed": {}}, False),
        ("Reconnecting...", {"responseStreamConnectionFailed": {"httpStatusCode": 500}}, False),
        ("Reconnecting...", "serverOverloaded", False),
        ("Reconnecting...", None, False),
    ],
)
def test_an_api_that_is_tried_without_end_is_unreachable(message: str, info: Any, *, expected: bool) -> None:
    assert is_unreachable(CodexTurnError(message=message, codex_error_info=info)) is expected


@pytest.mark.parametrize(
    ("count", "told"), [(1_048_600, "1,048,600"), (None, f"{MAX_INPUT_CHARS + 1:,}"), ("many", f"{MAX_INPUT_CHARS + 1:,}")]
)
def test_a_prompt_that_codex_refuses_as_too_long_is_the_error_of_such_a_prompt(count: Any, told: str) -> None:
    answer = errors.JSONRPCError("input too large", rpc_code=-32602, data={"input_error_code": "input_too_large", "actual_chars": count})
    error = refusal_of(answer)
    assert shown(error) == (errors.PromptTooLong, "result.prompt_too_long", "api", False)
    assert error.args == (f"the prompt has {told} characters, and Codex takes 1,048,576: shorten it, or put it into a file",)
    assert error.__cause__ is answer


@pytest.mark.parametrize("data", [None, "input_too_large", {"input_error_code": "other"}, {"actual_chars": 5}])
def test_another_refusal_stays_what_it_is(data: Any) -> None:
    answer = errors.JSONRPCError("no", rpc_code=-32602, data=data)
    assert refusal_of(answer) is answer


def test_what_codex_cannot_read_is_refused_by_the_name_of_its_option() -> None:
    check_sendable("model", {"of": ["text", None, 1]})
    with pytest.raises(errors.ConfigurationError) as caught:
        check_sendable("model", {"of": ["half \ud83d"]})
    assert caught.value.args == ("model: holds half of a surrogate pair, which Codex cannot read. Remove it",)
    assert (caught.value.code, caught.value.option) == ("config.invalid", "model")
