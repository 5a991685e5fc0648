"""What results mean: every recorded failure, and the words that are the last resort when no field says anything."""

from __future__ import annotations

import copy
import datetime as dt
import json
import pickle
from typing import Any

import msgspec
import pytest
from recorded_lines import lines_of, recordings

from claude_transport import errors
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.diagnosis import diagnose, error_for
from claude_transport.protocol.messages import AssistantMessage, ResultMessage

LIMIT = dt.datetime(2027, 1, 15, 8, 0, tzinfo=dt.UTC)

EXPECTED = {
    "04c": ("result.interrupted", "api", False),
    "06p": ("result.interrupted", "api", False),
    "07a": ("result.interrupted", "api", False),
    "07b": ("result.interrupted", "api", False),
    "07f": ("result.interrupted", "api", False),
    "07g": ("result.interrupted", "api", False),
    "11_400_credit": ("result.billing", "auth", False),
    "11_401": ("exec.cli.auth_failed", "auth", False),
    "11_404": ("result.model_not_found", "api", False),
    "11_413": ("result.prompt_too_long", "api", False),
    "11_429": ("result.rate_limited", "rate_limit", True),
    "11_500": ("result.server_error", "api", True),
    "11_529": ("result.overloaded", "rate_limit", True),
    "11_conn_refused": ("result.connection_failed", "transport", True),
    "11_no_auth": ("exec.cli.auth_failed", "auth", False),
    "11_sse_error": ("result.server_error", "api", True),
    "12_max_turns": ("result.max_turns", "api", False),
    "12b": ("result.budget", "api", False),
    "16g": ("result.startup_failed", "configuration", False),
    "16h": ("result.startup_failed", "configuration", False),
    "20b": ("result.interrupted", "api", False),
    "25f": ("exec.cli.auth_failed", "auth", False),
    "25j": ("exec.cli.auth_failed", "auth", False),
}


# The fields that the CLI sent for each cause, the class that is raised, and its code. The causes: docs/reference/protocol.md#api-failures
GOLDEN: list[tuple[str, dict[str, Any], type[errors.ResultError] | None, str]] = [
    (
        "429",
        {
            "assistant_error": "rate_limit",
            "api_error_status": 429,
            "api_error_type": "rate_limit_error",
            "terminal_reason": "api_error",
            "result": "API Error: Request rejected (429) · ...",
        },
        errors.RateLimited,
        "result.rate_limited",
    ),
    (
        "401",
        {
            "assistant_error": "authentication_failed",
            "api_error_status": 401,
            "terminal_reason": "api_error",
            "result": "Invalid API key · Fix external API key",
        },
        errors.AuthFailed,
        "exec.cli.auth_failed",
    ),
    (
        "403",
        {
            "assistant_error": "authentication_failed",
            "api_error_status": 403,
            "terminal_reason": "api_error",
            "result": "Failed to authenticate. API Error: 403 ...",
        },
        errors.AuthFailed,
        "exec.cli.auth_failed",
    ),
    (
        "402",
        {
            "assistant_error": "billing_error",
            "api_error_status": 402,
            "terminal_reason": "api_error",
            "result": "Credit balance is too low",
        },
        errors.BillingFailed,
        "result.billing",
    ),
    (
        "400, credit",
        {
            "assistant_error": "billing_error",
            "api_error_status": 400,
            "terminal_reason": "api_error",
            "result": "Credit balance is too low",
        },
        errors.BillingFailed,
        "result.billing",
    ),
    (
        "404",
        {
            "assistant_error": "model_not_found",
            "api_error_status": 404,
            "terminal_reason": "api_error",
            "result": "There's an issue with the selected model (...)",
        },
        errors.ModelNotFound,
        "result.model_not_found",
    ),
    (
        "400",
        {
            "assistant_error": "unknown",
            "api_error_status": 400,
            "terminal_reason": "api_error",
            "result": "API Error: 400 the rate limit of your credentials must be a number",
        },
        errors.APIFailed,
        "result.invalid_request",
    ),
    (
        "prompt too long",
        {
            "assistant_error": "invalid_request",
            "api_error_status": 400,
            "terminal_reason": "prompt_too_long",
            "result": "Prompt is too long ...",
        },
        errors.PromptTooLong,
        "result.prompt_too_long",
    ),
    (
        "413",
        {
            "assistant_error": "invalid_request",
            "api_error_status": 413,
            "terminal_reason": "image_error",
            "result": "Request too large (max 32MB) ...",
        },
        errors.PromptTooLong,
        "result.prompt_too_long",
    ),
    (
        "500",
        {
            "assistant_error": "server_error",
            "api_error_status": 500,
            "terminal_reason": "api_error",
            "result": "API Error: 500 Internal server error. ...",
        },
        errors.APIFailed,
        "result.server_error",
    ),
    (
        "529",
        {
            "assistant_error": "server_error",
            "api_error_status": 529,
            "terminal_reason": "api_error",
            "result": "API Error: 529 Overloaded. ...",
        },
        errors.Overloaded,
        "result.overloaded",
    ),
    (
        "529, given up",
        {"assistant_error": "server_error", "terminal_reason": "api_error", "result": "Repeated 529 Overloaded errors"},
        errors.Overloaded,
        "result.overloaded",
    ),
    (
        "connection",
        {
            "assistant_error": "server_error",
            "api_error": "connection_failed",
            "terminal_reason": "api_error",
            "result": "API Error: Connection refused ...",
        },
        errors.APIFailed,
        "result.connection_failed",
    ),
    (
        "error in the stream",
        {"assistant_error": "server_error", "terminal_reason": "api_error", "result": "API Error: Server error mid-response. ..."},
        errors.APIFailed,
        "result.server_error",
    ),
    (
        "max_tokens",
        {
            "assistant_error": "max_output_tokens",
            "api_error": "max_output_tokens",
            "terminal_reason": "api_error",
            "result": "... exceeded the 128000 output token maximum ...",
        },
        errors.APIFailed,
        "result.max_output_tokens",
    ),
    (
        "refusal",
        {
            "assistant_error": "invalid_request",
            "stop_reason": "refusal",
            "terminal_reason": "api_error",
            "result": "... safeguards flagged this message ...",
        },
        errors.Refused,
        "result.refusal",
    ),
    (
        "not logged in",
        {"assistant_error": "authentication_failed", "terminal_reason": "api_error", "result": "Not logged in · Please run /login"},
        errors.AuthFailed,
        "exec.cli.auth_failed",
    ),
    (
        "context window",
        {"assistant_error": "invalid_request", "terminal_reason": "blocking_limit", "result": "Prompt is too long"},
        errors.PromptTooLong,
        "result.prompt_too_long",
    ),
    (
        "max turns",
        {"subtype": "error_max_turns", "terminal_reason": "max_turns", "errors": ("Reached maximum number of turns (2)",)},
        errors.MaxTurnsReached,
        "result.max_turns",
    ),
    (
        "max budget",
        {"subtype": "error_max_budget_usd", "terminal_reason": "budget_exhausted", "errors": ("Reached maximum budget ($0.0003)",)},
        errors.BudgetExceeded,
        "result.budget",
    ),
    (
        "structured output invalid",
        {
            "subtype": "error_max_structured_output_retries",
            "terminal_reason": "structured_output_retry_exhausted",
            "errors": ("Failed to provide valid structured output after 5 attempts",),
        },
        errors.StructuredOutputMissing,
        "result.structured_output_invalid",
    ),
    (
        "schema ignored",
        {"is_error": False, "terminal_reason": "completed", "expects_structured_output": True, "result": "just text"},
        errors.StructuredOutputMissing,
        "result.structured_output_missing",
    ),
    (
        "interrupt in the stream",
        {"subtype": "error_during_execution", "terminal_reason": "aborted_streaming", "errors": ("[ede_diagnostic] result_type=user",)},
        errors.RunInterrupted,
        "result.interrupted",
    ),
    (
        "interrupt in a tool",
        {"subtype": "error_during_execution", "terminal_reason": "aborted_tools", "errors": ("[ede_diagnostic] result_type=user",)},
        errors.RunInterrupted,
        "result.interrupted",
    ),
    (
        "resume of a missing session",
        {"subtype": "error_during_execution", "num_turns": 0, "errors": ("No conversation found with session ID: ...",)},
        errors.ResultError,
        "result.startup_failed",
    ),
    (
        "corrupt global config",
        {"subtype": "error_during_execution", "num_turns": 0, "startup_failure_reason": "config_file_invalid"},
        errors.ResultError,
        "result.startup_failed",
    ),
    ("stream cut", {"is_error": False, "terminal_reason": "completed", "result": "429 in the text is no failure"}, None, "ok"),
    ("empty content", {"is_error": False, "terminal_reason": "completed", "result": ""}, None, "ok"),
    ("pushed aside", {"is_error": False, "terminal_reason": "aborted_streaming"}, None, "ok"),
    ("stopped by a hook", {"is_error": False, "terminal_reason": "hook_stopped", "result": ""}, None, "ok"),
]


@pytest.mark.parametrize(("fields", "error", "code"), [pytest.param(*row, id=name) for name, *row in GOLDEN])
def test_each_row_of_the_protocols_table_of_errors_raises_its_class(
    fields: dict[str, Any], error: type[errors.ResultError] | None, code: str
) -> None:
    known: dict[str, Any] = {"subtype": "success", "is_error": True, "num_turns": 1, **fields}
    result = ResultMessage(**known)
    assert result.outcome.code == code
    if error is None:
        assert result.raise_for_error() is result
        return
    with pytest.raises(errors.ResultError) as caught:
        result.raise_for_error()
    assert type(caught.value) is error
    assert (caught.value.result, caught.value.code, caught.value.category) == (result, code, result.outcome.category)


def recorded_failures() -> list[Any]:
    """Every failing result of the recordings, with what the last message of its turn reported, as a host would see it."""
    found = []
    for path in recordings():
        reported = None
        for line in lines_of(path, direction="out"):
            message = decode_message(line)
            if isinstance(message, AssistantMessage) and message.parent_tool_use_id is None:
                reported = message.error
            elif isinstance(message, ResultMessage):
                if message.is_error:
                    found.append(pytest.param(path.stem, json.loads(line), reported, id=f"{path.stem}-{message.result_index}"))
                reported = None
    return found


def failed(text: str | None = None, **fields: Any) -> ResultMessage:
    return ResultMessage(subtype="success", is_error=True, num_turns=1, result=text, **fields)


@pytest.mark.parametrize(("name", "line", "reported"), recorded_failures())
def test_every_recorded_failure_has_its_place_in_the_taxonomy(name: str, line: dict[str, Any], reported: str | None) -> None:
    (expected,) = [meaning for prefix, meaning in EXPECTED.items() if name.startswith(prefix)]
    result = decode_message(json.dumps(line).encode())
    assert isinstance(result, ResultMessage)
    outcome = diagnose(msgspec.structs.replace(result, assistant_error=reported))
    assert (outcome.ok, outcome.code, outcome.category, outcome.retryable) == (False, *expected)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Credit balance is too low; rate limit", "result.billing"),
        ("429: check your ANTHROPIC_API_KEY credentials", "result.rate_limited"),
        ("You hit your usage limit", "result.rate_limited"),
        ("RATE LIMIT exceeded while authentication was pending", "result.rate_limited"),
        ("rate-limited", "result.rate_limited"),
        ("529 Overloaded, unauthorized", "result.overloaded"),
        ("our safeguards flagged this message", "result.refusal"),
        ("Prompt is too long", "result.prompt_too_long"),
        ("Request too large (max 32MB)", "result.prompt_too_long"),
        ("Error 401", "exec.cli.auth_failed"),
        ("403 Forbidden", "exec.cli.auth_failed"),
        ("Not logged in", "exec.cli.auth_failed"),
        ("Server error mid-response", "result.server_error"),
        ("request req_0114290 and req_4015 failed", "result.api_error"),
        ("something else", "result.api_error"),
        ("", "result.api_error"),
    ],
)
def test_words_decide_when_no_field_does_and_the_first_kind_wins(text: str, code: str) -> None:
    assert failed(text).outcome.code == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"subtype": "error_max_turns"}, "result.max_turns"),
        ({"subtype": "error_max_structured_output_retries"}, "result.structured_output_invalid"),
        ({"terminal_reason": "blocking_limit"}, "result.prompt_too_long"),
        ({"api_error": "max_output_tokens"}, "result.max_output_tokens"),
        ({"api_error_status": 402}, "result.billing"),
        ({"api_error_status": 400, "result": "API Error: 400 messages: must not be empty"}, "result.invalid_request"),
        ({"api_error_status": 400, "result": "Credit balance is too low"}, "result.billing"),
        ({"api_error_status": 503}, "result.server_error"),
        ({"stop_reason": "refusal", "assistant_error": "invalid_request"}, "result.refusal"),
        ({"assistant_error": "overloaded"}, "result.overloaded"),
        ({"assistant_error": "server_error", "result": "529 Overloaded"}, "result.overloaded"),
        ({"assistant_error": "invalid_request", "result": "Prompt is too long"}, "result.prompt_too_long"),
        ({"assistant_error": "invalid_request", "result": "no"}, "result.invalid_request"),
        ({"assistant_error": "from_the_future"}, "result.api_error"),
        ({"api_error_status": 429, "assistant_error": "authentication_failed", "result": "401"}, "result.rate_limited"),
        ({"subtype": "error_during_execution", "num_turns": 0}, "result.startup_failed"),
        ({"subtype": "error_during_execution", "num_turns": 2}, "result.api_error"),
        ({"startup_failure_reason": "config_file_invalid"}, "result.startup_failed"),
    ],
)
def test_fields_say_more_than_words(fields: dict[str, Any], code: str) -> None:
    known: dict[str, Any] = {"subtype": "success", "is_error": True, "num_turns": 1, **fields}
    assert ResultMessage(**known).outcome.code == code


@pytest.mark.parametrize("is_error", [b"false", b'"true"', b"1", b"null", b"[true]"])
def test_only_a_strictly_true_is_error_is_a_failure(is_error: bytes) -> None:
    result = decode_message(b'{"type":"result","subtype":"error_max_turns","api_error_status":429,"is_error":%s}' % is_error)
    assert isinstance(result, ResultMessage)
    assert result.outcome.ok
    assert result.outcome.code == "ok"
    assert result.raise_for_error() is result


def test_a_failure_is_raised_as_the_class_that_says_whose_fault_it_is() -> None:
    result = failed("Rate limited", api_error_status=429, resets_at=LIMIT)
    with pytest.raises(errors.RateLimited) as caught:
        result.raise_for_error()
    assert caught.value.result is result
    assert caught.value.resets_at == LIMIT
    assert (caught.value.code, caught.value.category, caught.value.retryable) == ("result.rate_limited", "rate_limit", True)


def test_only_a_rate_limit_says_when_it_lifts() -> None:
    assert failed("no", api_error_status=500, resets_at=LIMIT).outcome.resets_at is None


def test_what_users_are_shown_holds_nothing_the_model_or_the_api_said() -> None:
    secret = "sk-ant-very-secret"
    for result in (failed(f"401 {secret}"), failed(secret, api_error_status=500), failed(secret, errors=(secret,))):
        error = error_for(result)
        assert error is not None
        assert secret not in str(error)
        assert secret not in result.outcome.text


def test_a_failure_survives_copying_and_pickling() -> None:
    error = error_for(failed("no", api_error_status=529))
    assert error is not None
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is errors.Overloaded
        assert (str(again), again.code, again.retryable, again.result) == (str(error), error.code, True, error.result)
