"""The reason of an error, on the real CLI: what the other side said, or what is known, in `error.reason` and once in its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import claude_transport as ct
from claude_transport.messages import APIRetryMessage
from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 180.0
UNKNOWN = "00000000-0000-4000-8000-000000000000"

Options = Callable[..., ct.ClaudeOptions]


@pytest.fixture
def options(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.delenv("CLAUDE_TRANSPORT", raising=False)

    def make(api: FakeMessagesAPI, **more: Any) -> ct.ClaudeOptions:
        return ct.ClaudeOptions(
            cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api), env_mode="exact", tools=(), system_prompt="", **more
        )

    return make


async def complete(options: ct.ClaudeOptions, timeout: float) -> None:
    await ct.complete("Hi", transport="cli", model="haiku", options=options, timeout=timeout)


async def stream(options: ct.ClaudeOptions, timeout: float) -> None:
    async for _ in ct.stream("Hi", transport="cli", model="haiku", options=options, timeout=timeout):
        pass


LATE: dict[str, tuple[Any, int, type[ct.ClaudeTransportError], str, str, bool, str, str]] = {
    "401": (
        complete,
        401,
        ct.AuthFailed,
        "exec.cli.auth_failed",
        "auth",
        False,
        "authentication_failed",
        "The credential is missing or was refused. Log in again, or check the key.",
    ),
    "429": (
        complete,
        429,
        ct.RateLimited,
        "result.rate_limited",
        "rate_limit",
        True,
        "rate_limit",
        "The API refused the request because of a rate or usage limit. Wait, or choose a smaller model.",
    ),
    "529": (
        complete,
        529,
        ct.Overloaded,
        "result.overloaded",
        "rate_limit",
        True,
        "overloaded",
        "The API is overloaded. Try again in a few minutes.",
    ),
    "529 of a stream": (
        stream,
        529,
        ct.Overloaded,
        "result.overloaded",
        "rate_limit",
        True,
        "overloaded",
        "The API is overloaded. Try again in a few minutes.",
    ),
}


async def check_late(case: str, options: Options) -> None:
    ask, status, cause, code, category, retryable, kind, sentence = LATE[case]
    async with FakeMessagesAPI(replies.error(status)) as api:
        for timeout in (4.0, 12.0, 60.0):  # up to the first in which the CLI comes to its retries, on this machine
            with pytest.raises(ct.MissingResult) as caught:
                await ask(options(api, max_retries=10), timeout)
            error = caught.value
            there = ct.completion.partial_completion(error)
            assert there is not None
            retries = [event for event in there.events if isinstance(event, APIRetryMessage)]
            if retries:
                break
    reason = (
        f"the API failed {len(retries)} times, the last time with status {status} ({kind}); "
        f"retry {retries[-1].attempt} of {retries[-1].max_retries} was to follow"
    )
    assert (error.code, error.category, error.retryable, error.reason) == ("exec.cli.timeout", category, retryable, reason)
    assert str(error) == (
        f"There was no complete answer within {timeout:g} s. {sentence} Reason: {reason} (transport=cli, category={category})"
    )
    told = error.__cause__
    assert isinstance(told, ct.ClaudeTransportError)
    assert (type(told), told.code, told.category, told.retryable, told.reason) == (cause, code, category, retryable, reason)


async def test_a_timeout_while_the_cli_tries_again_is_told_with_what_the_api_said(options: Options) -> None:
    """All at once, because each takes as long as its timeout."""
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for case in LATE:
                tasks.start_soon(check_late, case, options)


async def test_a_session_that_does_not_exist_is_told_in_the_words_of_the_cli(options: Options) -> None:
    async with FakeMessagesAPI("Never asked.") as api:
        with anyio.fail_after(PATIENCE), pytest.raises(ct.ClaudeTransportError) as caught:
            await complete(options(api, resume=UNKNOWN), 120.0)
    error = caught.value
    said = f"No conversation found with session ID: {UNKNOWN}"
    assert (type(error), error.code, error.reason, str(error.__cause__)) == (ct.ResultError, "result.startup_failed", said, said)
    assert str(error) == (
        "The session could not be started. Check its id, the settings files and the servers that the options name. "
        f"Reason: {said} (transport=cli, category=configuration)"
    )


@pytest.mark.parametrize("status", [401, 429, 500, 529])
async def test_the_sentence_of_the_api_is_the_reason_on_both_paths(options: Options, status: int) -> None:
    words = "a sentence of the API's own"
    async with FakeMessagesAPI(replies.error(status, message=words)) as api:
        for transport in ("cli", "api"):
            with anyio.fail_after(PATIENCE), pytest.raises(ct.ResultError) as caught:
                await ct.complete("Hi", transport=transport, model="haiku", options=options(api), retry=ct.RetryPolicy.none())
            error = caught.value
            assert words in error.reason
            assert str(error).count(error.reason) == str(error).count(words) == 1
            assert words in str(error.__cause__)
