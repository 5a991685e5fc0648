"""`attempt_timeout`: a limit for each attempt beside that of the call."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import pytest
from call_errors import Waits
from virtual_time import virtual_time

import claude_transport as ct
from claude_transport.completion import complete_sync, partial_completion
from claude_transport.testing import FakeMessagesAPI, assistant, replies, result, tool_use

HELLO = [assistant("Hello there."), result("Hello there.")]
THRICE = ct.RetryPolicy(attempts=3)
SHORT = 5.0


class Silent:
    """Makes mocks: those of the first attempts say only this and then nothing, the one after them answers."""

    def __init__(self, attempts: int, *said: dict[str, Any]) -> None:
        self._silent = attempts
        self._said = said
        self.made = 0

    def __call__(self, _options: object) -> ct.MockTransport:
        self.made += 1
        script = ct.MockTransport.script().expect(type="user")
        if self.made > self._silent:
            return script.reply(*HELLO)
        return (script.reply(*self._said) if self._said else script).expect(type="never")


@virtual_time
async def test_an_attempt_that_is_late_is_made_again(waits: Waits) -> None:
    make = Silent(2)
    completion = await ct.complete("Hi", make_transport=make, attempt_timeout=SHORT, retry=THRICE, sleep=waits)
    assert (completion.text, completion.attempts, make.made) == ("Hello there.", 3, 3)
    assert waits.follow([1, 2])


@virtual_time
async def test_when_every_attempt_was_late_the_error_names_the_limit_and_is_retryable(waits: Waits) -> None:
    make = Silent(9)
    with pytest.raises(ct.MissingResult) as caught:
        await ct.complete("Hi", make_transport=make, attempt_timeout=SHORT, retry=THRICE, sleep=waits)
    error, there = caught.value, partial_completion(caught.value)
    assert (error.code, error.category, error.retryable, error.__cause__) == ("exec.cli.timeout", "timeout", True, None)
    assert error.args[0] == (
        "There was no complete answer within 5 s. Allow more time with attempt_timeout, or ask for less. (transport=cli, category=timeout)"
    )
    assert error.__notes__ == ["3 attempts were made"]
    assert there is not None
    assert (there.attempts, make.made, there.exit_code) == (3, 3, -1)


@virtual_time
@pytest.mark.parametrize("used", [True, False], ids=["a tool was called", "the session is named"])
async def test_an_attempt_that_may_have_changed_something_is_not_made_again(used: bool, waits: Waits) -> None:
    make = Silent(1, *([tool_use("Bash", {"command": "make"})] if used else []))
    options = ct.ClaudeOptions() if used else ct.ClaudeOptions(session_id="584ca48f-4b77-444b-bef6-e50ce8530e7f")
    with pytest.raises(ct.MissingResult) as caught:
        await ct.complete("Hi", options=options, make_transport=make, attempt_timeout=SHORT, retry=THRICE, sleep=waits)
    assert (caught.value.code, caught.value.retryable, make.made, waits.seconds) == ("exec.cli.timeout", False, 1, [])


@virtual_time
async def test_the_limit_of_the_call_stays_and_is_the_one_that_is_named(waits: Waits) -> None:
    make = Silent(9)
    with pytest.raises(ct.MissingResult, match=r"within 5 s\. Allow more time with timeout,") as caught:
        await ct.complete("Hi", make_transport=make, timeout=SHORT, attempt_timeout=10 * SHORT, retry=THRICE, sleep=waits)
    assert (caught.value.code, caught.value.retryable, make.made) == ("exec.cli.timeout", False, 1)
    assert getattr(caught.value, "__notes__", []) == []


@virtual_time
async def test_an_answer_that_has_come_is_not_late_however_long_its_process_stays(waits: Waits) -> None:
    class Staying(ct.MockTransport):
        async def close(self) -> None:
            await super().close()
            await anyio.sleep(10 * SHORT)

    made: list[Staying] = []

    def make(_options: object) -> Staying:
        made.append(Staying(HELLO))
        return made[-1]

    completion = await ct.complete("Hi", make_transport=make, attempt_timeout=SHORT, retry=THRICE, sleep=waits)
    assert (completion.text, completion.attempts, len(made)) == ("Hello there.", 1, 1)


RETRY = {
    "type": "system",
    "subtype": "api_retry",
    "attempt": 2,
    "max_retries": 10,
    "retry_delay_ms": 1000,
    "error_status": 529,
    "error": "overloaded",
    "session_id": "584ca48f-4b77-444b-bef6-e50ce8530e7f",
    "uuid": "584ca48f-4b77-444b-bef6-e50ce8530e7f",
}


@virtual_time
@pytest.mark.parametrize(
    ("said", "category", "retryable", "cause"),
    [
        ([RETRY, RETRY], "rate_limit", True, ct.Overloaded),
        ([RETRY, {**RETRY, "error_status": 401, "error": "authentication_failed"}], "auth", False, ct.AuthFailed),
        ([RETRY, RETRY, assistant("I begin.")], "timeout", False, type(None)),
    ],
    ids=["529", "401", "answered since"],
)
async def test_a_call_that_is_late_while_the_cli_tries_again_is_as_retryable_as_the_last_failure(
    said: Any, category: str, retryable: bool, cause: type, waits: Waits
) -> None:
    with pytest.raises(ct.MissingResult) as caught:
        await ct.complete("Hi", make_transport=Silent(9, *said), timeout=SHORT, retry=THRICE, sleep=waits)
    error = caught.value
    assert (error.code, error.category, error.retryable, type(error.__cause__)) == ("exec.cli.timeout", category, retryable, cause)
    assert ("the API failed 2 times" in error.reason) == ("Allow more time" not in str(error)) == (cause is not type(None))


@virtual_time
async def test_a_call_that_is_late_in_its_second_attempt_tells_why_there_was_one(waits: Waits) -> None:
    silent, overloaded = Silent(9), [result("API Error: 529 it is full", is_error=True, api_error_status=529)]

    def make(options: object) -> ct.MockTransport:
        return ct.MockTransport(overloaded) if not waits.seconds else silent(options)

    with pytest.raises(ct.MissingResult) as caught:
        await ct.complete("Hi", make_transport=make, timeout=SHORT, retry=THRICE, sleep=waits)
    error = caught.value
    assert (error.code, type(error.__cause__), error.reason) == ("exec.cli.timeout", ct.Overloaded, "API Error: 529 it is full")


class DiesSlowly(ct.TransportWrapper):
    """Breaks at once, and needs longer than the call has to end."""

    async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        raise ct.ConnectionLost("the pipe broke")
        yield ()

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(2 * SHORT)
        await super().close()


@virtual_time
async def test_a_call_that_is_late_because_its_end_took_long_tells_what_had_ended_it(waits: Waits) -> None:
    def make(_options: object) -> ct.TransportWrapper:
        return DiesSlowly(ct.MockTransport(HELLO))

    with pytest.raises(ct.MissingResult) as caught:
        await ct.complete("Hi", make_transport=make, timeout=SHORT, retry=ct.RetryPolicy.none(), sleep=waits)
    assert (caught.value.code, type(caught.value.__cause__)) == ("exec.cli.timeout", ct.ConnectionLost)


@virtual_time
async def test_a_stream_takes_it_too(waits: Waits) -> None:
    stream = ct.stream("Hi", make_transport=Silent(1), attempt_timeout=SHORT, sleep=waits)
    assert [piece async for piece in stream] == ["Hello there."]
    assert stream.completion.attempts == 2


async def test_the_attempts_of_the_api_have_the_limit_too(fake_messages_api: FakeMessagesAPI) -> None:
    fake_messages_api.replace(replies.gated("never", chunks=["never"], after_chunks=0))
    options = ct.ClaudeOptions(env=fake_messages_api.environment(), env_mode="exact")
    with anyio.fail_after(60), pytest.raises(ct.MissingResult, match=r"more time with attempt_timeout.*transport=api") as caught:
        await ct.complete("Hi", transport="api", options=options, attempt_timeout=0.2, retry=ct.RetryPolicy.none())
    assert (caught.value.code, caught.value.category, caught.value.retryable) == ("exec.cli.timeout", "timeout", True)


def test_a_script_takes_it_too() -> None:
    with pytest.raises(ct.MissingResult, match="more time with attempt_timeout"):
        complete_sync("Hi", make_transport=Silent(1), attempt_timeout=0.05, retry=ct.RetryPolicy.none())


@pytest.mark.parametrize("value", [0, -1, math.nan, True, "3"])
async def test_what_is_no_limit_is_refused(value: Any) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", attempt_timeout=value)
    assert str(caught.value) == f"attempt_timeout must be a number of seconds above 0 (math.inf for no limit), not {value!r}"
    assert caught.value.option == "attempt_timeout"
