"""A failure is told the same way, whichever path met it."""

from __future__ import annotations

import copy
import datetime as dt
import errno
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest

from claude_transport import errors
from claude_transport.backoff import RetryPolicy
from claude_transport.completion.classification import (
    classify_api_exception,
    classify_cli_exception,
    classify_reported,
    classify_result,
    read_suffix,
    retry_after_of,
    timed_out,
)
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.diagnosis import Detail, ReportedFailure, detail_of
from claude_transport.protocol.messages import ResultMessage

RECORDINGS = Path(__file__).parents[1] / "recordings"
REQUEST = httpx2.Request("POST", "http://127.0.0.1:1/v1/messages")
SECRET = "sk-ant-SENTINEL in /home/someone/project"


def sdk_error(status: int, kind: str = "", message: str = SECRET, headers: Mapping[str, str] | None = None) -> anthropic.APIStatusError:
    """What the SDK raises for such an answer: made by the SDK itself, so that the class is the one it would choose."""
    body = {"type": "error", "error": {"type": kind, "message": message}} if kind else message
    response = httpx2.Response(status, request=REQUEST, headers=dict(headers or {}))
    client = anthropic.Anthropic(api_key="sk-ant-fake", base_url="http://127.0.0.1:1", max_retries=0)
    try:
        return client._make_status_error(message, body=body, response=response)
    finally:
        client.close()


def refused_connection() -> anthropic.APIConnectionError:
    """What the SDK raises where nobody listens: around the error of its HTTP client, which is around that of the system."""
    error = anthropic.APIConnectionError(request=REQUEST)
    error.__cause__ = httpx2.ConnectError("All connection attempts failed", request=REQUEST)
    error.__cause__.__cause__ = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    return error


def recorded_result(name: str) -> ResultMessage:
    """The last result of a recording, with what the conversation would have added to it."""
    found: ResultMessage | None = None
    for line in (RECORDINGS / f"{name}.ndjson").read_text("utf-8").splitlines():
        entry = json.loads(line)
        if entry["dir"] == "out" and "trimmed_from_chars" not in entry:
            message = decode_message(entry["line"].encode())
            found = message if isinstance(message, ResultMessage) else found
    assert found is not None
    return found


def result(**fields: Any) -> ResultMessage:
    return ResultMessage(subtype="success", is_error=True, num_turns=1, **fields)


# ------------------------------------------------------------------------------------- one family, whichever path


@pytest.mark.parametrize(
    ("error", "recording"),
    [
        (sdk_error(429, "rate_limit_error"), "11_429_noretry"),
        (sdk_error(401, "authentication_error"), "11_401_noretry"),
        (sdk_error(404, "not_found_error"), "11_404_noretry"),
        (sdk_error(400, "invalid_request_error", "Your credit balance is too low"), "11_400_credit"),
        (sdk_error(413, "request_too_large"), "11_413_noretry"),
        (sdk_error(500, "api_error"), "11_500_noretry"),
        (sdk_error(529, "overloaded_error"), "11_529_retries2"),
        (refused_connection(), "11_conn_refused"),
        (TypeError('"Could not resolve authentication method. Expected one of api_key, …"'), "11_no_auth"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_s1_6_the_same_failure_has_the_same_class_code_and_sentence_on_both_paths(error: Exception, recording: str) -> None:
    by_api, by_cli = classify_api_exception(error), classify_result(recorded_result(recording))
    assert by_cli is not None
    assert type(by_api) is type(by_cli)
    assert (by_api.code, by_api.category, by_api.retryable) == (by_cli.code, by_cli.category, by_cli.retryable)
    assert by_api.args == (by_cli.args[0].replace("transport=cli", "transport=api"),)
    assert RetryPolicy.kind_of(by_api) == RetryPolicy.kind_of(by_cli)


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected", "code", "retried"),
    [
        (400, "invalid_request_error", "tools.0.name: too long", errors.APIFailed, "result.invalid_request", None),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens", errors.PromptTooLong, "result.prompt_too_long", None),
        (402, "billing_error", "pay", errors.BillingFailed, "result.billing", None),
        (403, "permission_error", "no", errors.AuthFailed, "exec.cli.auth_failed", None),
        (422, "", "odd", errors.APIFailed, "result.invalid_request", None),
        (409, "", "conflict", errors.APIFailed, "result.invalid_request", None),
        (501, "", "not here", errors.APIFailed, "result.server_error", "api"),
        (503, "", "down", errors.APIFailed, "result.server_error", "api"),
        (504, "timeout_error", "slow", errors.APIFailed, "result.server_error", "api"),
        (200, "overloaded_error", "in mid-stream", errors.Overloaded, "result.overloaded", "overloaded"),
        (200, "rate_limit_error", "in mid-stream", errors.RateLimited, "result.rate_limited", "rate_limit"),
        (200, "api_error", "in mid-stream", errors.APIFailed, "result.server_error", "api"),
    ],
)
def test_s1_6_every_answer_of_the_api_has_a_class_a_code_and_a_budget(
    status: int, kind: str, message: str, expected: type[Exception], code: str, retried: str | None
) -> None:
    found = classify_api_exception(sdk_error(status, kind, message))
    assert type(found) is expected
    assert found.code == code
    assert RetryPolicy.kind_of(found) == retried


def test_s1_6_a_message_is_a_fixed_sentence_and_the_cause_keeps_the_rest() -> None:
    raw = sdk_error(500, "api_error")
    found = classify_api_exception(raw)
    assert found.args == ("The API failed. Try again in a few minutes. (transport=api, category=api)",)
    assert found.reason == "[secret] in /home/someone/project"
    assert str(found) == f"The API failed. Try again in a few minutes. Reason: {found.reason} (transport=api, category=api)"
    assert found.__cause__ is raw
    assert SECRET in str(raw)


@pytest.mark.parametrize(
    ("error", "expected", "code", "category"),
    [
        (anthropic.APITimeoutError(REQUEST), errors.MissingResult, "exec.cli.timeout", "timeout"),
        (httpx2.ReadTimeout("slow", request=REQUEST), errors.MissingResult, "exec.cli.timeout", "timeout"),
        (TimeoutError(), errors.MissingResult, "exec.cli.timeout", "timeout"),
        (httpx2.ConnectTimeout("nobody", request=REQUEST), errors.APIFailed, "result.connection_failed", "transport"),
        (httpx2.ReadError("cut", request=REQUEST), errors.APIFailed, "result.connection_failed", "transport"),
        (ConnectionResetError(), errors.APIFailed, "result.connection_failed", "transport"),
        (anthropic.CredentialsError("no profile"), errors.AuthFailed, "exec.cli.auth_failed", "auth"),
        (
            anthropic.APIResponseValidationError(httpx2.Response(200, request=REQUEST), None),
            errors.ProtocolError,
            "exec.cli.protocol_error",
            "protocol",
        ),
        (KeyError("odd"), errors.APIFailed, "completion.unexpected", "api"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_s1_6_what_is_no_answer_of_the_api_is_told_apart(error: Exception, expected: type[Exception], code: str, category: str) -> None:
    found = classify_api_exception(error)
    assert type(found) is expected
    assert (found.code, found.category) == (code, category)
    assert found.__cause__ is error
    assert read_suffix(str(found)) == ("api", category)


def test_s1_6_a_connection_that_took_too_long_is_one_that_failed_and_may_be_tried_again() -> None:
    raw = anthropic.APITimeoutError(REQUEST)
    raw.__cause__ = httpx2.ConnectTimeout("nobody", request=REQUEST)
    assert RetryPolicy.kind_of(classify_api_exception(raw)) == "connection"


def test_s1_6_an_error_of_this_library_stays_what_it_is() -> None:
    ours = errors.UsageError("mine")
    assert classify_api_exception(ours) is ours
    assert classify_cli_exception(ours) is ours


def test_s1_6_a_refusal_is_the_same_error_on_both_paths() -> None:
    by_cli = classify_result(result(stop_reason="refusal", assistant_error="invalid_request"))
    by_api = classify_reported(ReportedFailure(stop_reason="refusal", terminal_reason=None), "api")
    assert by_api is not None
    assert by_cli is not None
    assert (type(by_api), type(by_cli)) == (errors.Refused, errors.Refused)
    assert by_api.code == by_cli.code
    assert read_suffix(str(by_api)) == ("api", by_api.category)


def test_s1_7_what_the_api_asks_to_wait_is_found_on_the_exception_and_on_what_it_caused() -> None:
    raw = sdk_error(429, "rate_limit_error", headers={"retry-after": "7"})
    assert retry_after_of(raw) == 7
    assert retry_after_of(classify_api_exception(raw)) == 7
    assert retry_after_of(sdk_error(429)) is None
    assert retry_after_of(KeyError()) is None


@pytest.mark.parametrize(
    ("header", "expected"),
    [("1800000000", dt.datetime(2027, 1, 15, 8, 0, tzinfo=dt.UTC)), ("soon", None), ("inf", None), ("1e99", None)],
)
def test_s1_7_the_moment_a_limit_lifts_is_read_or_not_known(header: str, expected: dt.datetime | None) -> None:
    found = classify_api_exception(sdk_error(429, "rate_limit_error", headers={"anthropic-ratelimit-unified-reset": header}))
    assert isinstance(found, errors.RateLimited)
    assert found.resets_at == expected


# ------------------------------------------------------------------------------- the CLI path's own failures


@pytest.mark.parametrize(
    ("error", "code", "category"),
    [
        (errors.CLINotFoundError(SECRET, searched=["a"], advice="b"), "exec.cli.binary_not_found", "transport"),
        (errors.NotExecutableError(SECRET, path="x"), "exec.cli.not_executable", "transport"),
        (errors.WrongLibcError(SECRET), "exec.cli.wrong_libc", "transport"),
        (errors.WorkingDirectoryError(SECRET), "exec.cli.cwd_unusable", "transport"),
        (errors.SpawnError(SECRET), "exec.cli.spawn_failed", "transport"),
        (errors.ConnectTimeout(SECRET, waited=3.0), "connect.timeout", "transport"),
        (errors.AuthenticationError(SECRET), "connect.auth_failed", "auth"),
        (errors.CLIVersionMismatch(SECRET, flag="--x"), "exec.cli.version_mismatch", "transport"),
        (errors.ProcessError(SECRET, exit_code=3, stderr_tail="boom"), "exec.cli.exited", "transport"),
        (errors.CLIJSONDecodeError(SECRET), "exec.cli.invalid_json", "protocol"),
        (errors.TruncatedStream(SECRET), "protocol.truncated", "protocol"),
        (errors.ControlTimeout(SECRET, waited=1.0), "control.timeout", "control"),
        (errors.ControlRequestFailed(SECRET), "control.refused", "control"),
        (errors.MissingResult(SECRET, messages=(1,)), "result.missing", "transport"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_s1_6_a_failure_of_the_cli_path_keeps_class_code_and_data_and_loses_its_words(
    error: errors.ClaudeTransportError, code: str, category: str
) -> None:
    found = classify_cli_exception(error)
    assert type(found) is type(error)
    assert (found.code, found.category) == (code, category)
    assert SECRET not in str(found)
    assert read_suffix(str(found)) == ("cli", category)
    assert found.__cause__ is error
    assert vars(error) == {name: value for name, value in vars(found).items() if name != "_reason"}
    assert found.reason == (error.reason or SECRET.replace("sk-ant-SENTINEL", "[secret]"))


def test_s1_6_writing_to_a_claude_that_has_died_is_its_death() -> None:
    found = classify_cli_exception(errors.TransportClosed(SECRET, exit_code=1, stderr_tail="boom"))
    assert isinstance(found, errors.ProcessError)
    assert (found.exit_code, found.stderr_tail, found.code) == (1, "boom", "exec.cli.exited")
    assert SECRET not in str(found)


def test_s1_6_what_nobody_thought_of_is_still_an_error_of_this_library() -> None:
    raw = KeyError(SECRET)
    found = classify_cli_exception(raw)
    assert found.code == "completion.unexpected"
    assert found.__cause__ is raw
    assert SECRET not in str(found)
    assert not found.retryable


def test_s1_6_what_has_been_told_once_is_not_told_again() -> None:
    told = classify_cli_exception(errors.ProcessError(SECRET))
    assert classify_cli_exception(told) is told


def test_s1_6_told_errors_survive_pickle_and_copy() -> None:
    for told in (classify_cli_exception(errors.ProcessError(SECRET, exit_code=3)), classify_api_exception(sdk_error(429))):
        for again in (pickle.loads(pickle.dumps(told)), copy.copy(told)):
            assert (type(again), str(again), again.code, again.category) == (type(told), str(told), told.code, told.category)


@pytest.mark.parametrize("message", ["", "(transport=cli)", "(transport=ssh, category=api)", "(transport=cli, category=api) more"])
def test_s1_6_a_message_without_the_suffix_has_none(message: str) -> None:
    assert read_suffix(message) is None


# -------------------------------------------------------------------------------------------------------- details and words


def test_s2_4_the_cause_of_a_failed_result_is_what_the_cli_said() -> None:
    found = classify_result(result(result=f"API Error: 500 {SECRET}", api_error_status=500))
    assert found is not None
    assert isinstance(found.__cause__, Detail)
    assert str(found.__cause__) == f"API Error: 500 {SECRET}"
    assert SECRET not in str(found)


def test_s2_4_a_result_that_is_not_strictly_an_error_is_none() -> None:
    assert classify_result(ResultMessage(subtype="success", is_error=False, result="API Error: 429")) is None


@pytest.mark.parametrize(
    ("length", "kept", "suffix"), [(4096, 4096, ""), (4097, 4096, " ... (truncated)"), (100_000, 4096, " ... (truncated)")]
)
def test_s2_4_a_long_text_is_cut_at_4_kb_and_whole_in_the_result(length: int, kept: int, suffix: str) -> None:
    failed = result(result="x" * length)
    assert str(detail_of(failed)) == "x" * kept + suffix
    assert failed.result == "x" * length


def test_s2_4_without_a_text_there_is_neither_a_cause_nor_a_reason() -> None:
    for silent in (result(), result(result="")):
        found = classify_result(silent)
        assert found is not None
        assert (found.category, found.__cause__, found.reason) == ("api", None, "")
        assert str(found).endswith("read the messages before it. (transport=cli, category=api)")


def test_s2_4_errors_stand_in_for_a_text_that_error_subtypes_do_not_have() -> None:
    assert str(detail_of(result(errors=("Reached maximum number of turns (2)", "b")))) == "Reached maximum number of turns (2); b"


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("API Error: Request rejected (429)", "rate_limit"),
        ("RATE LIMIT exceeded", "rate_limit"),
        ("rate-limit", "rate_limit"),
        ("Rate limit; ANTHROPIC_API_KEY is fine", "rate_limit"),
        ("401 and 429", "rate_limit"),
        ("status 401", "auth"),
        ("403 Forbidden", "auth"),
        ("Unauthorized", "auth"),
        ("Authentication failed", "auth"),
        ("an auth error", "auth"),
        ("check ANTHROPIC_API_KEY", "auth"),
        ("something else", "api"),
        ("", "api"),
        ("request req_4290401 failed", "api"),
    ],
)
def test_s2_5_words_are_the_last_resort_and_rate_limits_come_first(text: str, category: str) -> None:
    assert classify_reported(ReportedFailure(result=text, terminal_reason=None), "cli").category == category


def test_s2_5_a_field_that_says_something_wins_over_any_words() -> None:
    found = classify_result(result(result="rate limit 429", api_error_status=401))
    assert isinstance(found, errors.AuthFailed)


# ------------------------------------------------------------------------------------------------------------------ the documented codes


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (classify_cli_exception(errors.CLINotFoundError("")), "exec.cli.binary_not_found"),
        (classify_result(recorded_result("11_401_noretry")), "exec.cli.auth_failed"),
        (classify_api_exception(sdk_error(401)), "exec.cli.auth_failed"),
        (timed_out("cli", seconds=3), "exec.cli.timeout"),
        (timed_out("api", seconds=3), "exec.cli.timeout"),
        (classify_cli_exception(errors.ProtocolError("")), "exec.cli.protocol_error"),
        (classify_cli_exception(errors.ProcessError("")), "exec.cli.exited"),
        (
            classify_result(result(terminal_reason="aborted_tools", permission_denials=({"tool_name": "Bash"},))),
            "exec.cli.permission_denied",
        ),
        (classify_result(result(startup_failure_reason="bypass_root")), "exec.cli.permission_denied"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_s4_5_the_codes_are_the_seeds_on_every_transport(error: errors.ClaudeTransportError, code: str) -> None:
    assert error.code == code
    assert not error.retryable


@pytest.mark.parametrize(
    ("recording", "code"),
    [
        ("04b_permission_deny", None),
        ("04c_permission_deny_interrupt", "exec.cli.permission_denied"),
        ("07b_interrupt_then_close", "result.interrupted"),
    ],
)
def test_s4_5_a_denial_that_stops_the_run_is_told_from_one_that_does_not_and_from_an_interrupt(recording: str, code: str | None) -> None:
    found = classify_result(recorded_result(recording))
    assert (found and found.code) == code
    assert found is None or isinstance(found, errors.RunInterrupted)


def test_s4_5_an_interrupt_long_after_a_denial_is_an_interrupt() -> None:
    found = classify_result(result(terminal_reason="aborted_streaming", permission_denials=({"tool_name": "Bash"},)))
    assert found is not None
    assert found.code == "result.interrupted"


def test_s4_5_a_denied_tool_is_not_blamed_for_a_failure_with_a_cause_of_its_own() -> None:
    found = classify_result(result(api_error_status=429, permission_denials=({"tool_name": "Bash"},)))
    assert isinstance(found, errors.RateLimited)


def test_s2_8_a_timeout_keeps_what_had_come_by_then() -> None:
    found = timed_out("cli", seconds=2.5, messages=["a", "b"])
    assert found.messages == ("a", "b")
    assert (
        str(found)
        == "There was no complete answer within 2.5 s. Allow more time with timeout, or ask for less. (transport=cli, category=timeout)"
    )
