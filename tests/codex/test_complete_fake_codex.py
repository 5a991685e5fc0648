"""`complete()` with a fake codex that is a real process: every way in which it fails, what is repeated, and what is left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from call_errors import Waits

import claude_transport as ct
from claude_transport.codex import CodexOptions
from claude_transport.codex.testing.scenario import Fail, Retry, RunCommand, Say
from claude_transport.completion import partial_completion
from claude_transport.protocol.diagnosis import Detail
from claude_transport.protocol.messages import APIRetryMessage
from claude_transport.testing import CodexReply, CodexScenario, FakeCodex, steps

Make = Callable[..., tuple[CodexOptions, FakeCodex]]
posix_only = pytest.mark.skipif(os.name == "nt", reason="signals")


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_TRANSPORT", "CLAUDE_TRANSPORT_AGENT", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def codex(tmp_path: Any) -> Iterator[Make]:
    """`codex(*steps)`: options that run a fake codex which answers every prompt with these steps."""
    fakes: list[FakeCodex] = []

    def make(*deeds: Any, scenario: CodexScenario | None = None, **options: Any) -> tuple[CodexOptions, FakeCodex]:
        played = scenario if scenario is not None else CodexScenario(otherwise=deeds) if deeds else None
        fakes.append(FakeCodex(played))
        world = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        return CodexOptions(**{"codex_path": fakes[-1].path, "env": world, "env_mode": "exact", **options}), fakes[-1]

    yield make
    for fake in fakes:
        fake.close()


async def ask(options: CodexOptions, prompt: Any = "Hi", /, **arguments: Any) -> ct.Completion:
    with anyio.fail_after(60):
        return await ct.complete(prompt, **{"agent": "codex", "codex": options, **arguments})


async def test_many_calls_at_once_do_not_meet(codex: Make) -> None:
    options, fake = codex()
    answers: dict[str, str] = {}

    async def one(prompt: str) -> None:
        answers[prompt] = (await ask(options, prompt)).text

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(one, f"prompt {number}")
    assert answers == {f"prompt {number}": f"prompt {number}" for number in range(4)}
    assert len(fake.calls()) == 4


async def test_each_event_is_told_as_it_comes(codex: Make) -> None:
    options, _ = codex(RunCommand("true", output="fine", ask=False), Say("Done."))
    seen: list[str] = []
    answer = await ask(options, on_event=lambda event: seen.append(event.type))
    assert seen == ["system", "assistant", "user", "assistant", "result"] == [event.type for event in answer.events]


async def test_a_question_for_approval_is_declined_when_nothing_can_answer_it(codex: Make) -> None:
    options, fake = codex(RunCommand("rm x", ask=True), Say("I was not allowed to."), approval_policy="untrusted")
    answer = await ask(options)
    assert answer.text == "I was not allowed to."
    (call,) = fake.calls()
    assert [reply["result"] for reply in call.answers] == [{"decision": "decline"}]
    denied = [result.is_error for event in answer.events if isinstance(event, ct.UserMessage) for result in event.tool_results]
    assert denied == [True]


# ---------------------------------------------------------------------------------------------------------------- how it fails


FAILURES: dict[str, tuple[Any, type[ct.ResultError], str, tuple[float, ...]]] = {
    "usage limit": ("usageLimitExceeded", ct.RateLimited, "result.rate_limited", (1, 2, 4)),
    "429": ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, ct.RateLimited, "result.rate_limited", (1, 2, 4)),
    "overloaded": ("serverOverloaded", ct.Overloaded, "result.overloaded", (1, 2, 4)),
    "500": ("internalServerError", ct.errors.APIFailed, "result.server_error", (1,)),
    "no connection": ({"responseStreamDisconnected": {"httpStatusCode": None}}, ct.errors.APIFailed, "result.connection_failed", (1,)),
    "401": ("unauthorized", ct.AuthFailed, "exec.cli.auth_failed", ()),
    "no model": ("modelNotFound", ct.errors.ModelNotFound, "result.model_not_found", ()),
    "too long": ("contextWindowExceeded", ct.errors.PromptTooLong, "result.prompt_too_long", ()),
    "budget": ("sessionBudgetExceeded", ct.errors.BudgetExceeded, "result.budget", ()),
    "policy": ("cyberPolicy", ct.errors.Refused, "result.refusal", ()),
    "bad request": ("badRequest", ct.errors.APIFailed, "result.invalid_request", ()),
    "a new name": ("somethingNew", ct.errors.APIFailed, "result.api_error", ()),
}


@pytest.mark.parametrize(("info", "error", "code", "ladder"), FAILURES.values(), ids=FAILURES)
async def test_s1_10_each_failure_has_the_class_the_code_and_the_ladder_of_claude(
    codex: Make, waits: Waits, info: Any, error: type[ct.ResultError], code: str, ladder: tuple[float, ...]
) -> None:
    options, fake = codex(Fail(info, message="as scripted " + "x" * 5000))
    with pytest.raises(error) as caught:
        await ask(options, sleep=waits)
    found = caught.value
    assert (type(found), found.code, found.retryable) == (error, code, bool(ladder))
    assert waits.follow(ladder)
    assert isinstance(found.__cause__, Detail)
    assert str(found.__cause__).startswith("as scripted xxx")
    assert str(found.__cause__).endswith(" ... (truncated)")
    assert str(found).endswith(f"(transport=cli, category={found.category})")
    there = partial_completion(found)
    assert there is not None
    assert (there.agent, there.attempts, there.category) == ("codex", 1 + len(ladder), found.category)
    assert len(fake.calls()) == 1 + len(ladder)


async def test_a_retry_of_codex_itself_is_an_event_and_no_attempt(codex: Make, waits: Waits) -> None:
    options, _ = codex(Say("Hel", cut=True), Retry({"responseStreamDisconnected": {"httpStatusCode": None}}), Say("Hello"))
    stream = ct.stream("Hi", agent="codex", codex=options, sleep=waits)
    with anyio.fail_after(60):
        pieces = [piece async for piece in stream]
    assert "".join(pieces) == stream.completion.text == "Hello"
    assert (stream.completion.attempts, waits.seconds) == (1, [])
    assert sum(isinstance(event, APIRetryMessage) for event in stream.completion.events) == 1


async def test_an_api_that_cannot_be_reached_is_told_at_once_and_not_after_the_timeout(codex: Make, waits: Waits) -> None:
    """Codex waits for the network without an end. The words are those of the real one."""
    waiting = Retry(
        {"responseStreamDisconnected": {"httpStatusCode": None}},
        message="Reconnecting... waiting for network",
        details="Connection failed: error sending request",
    )
    options, fake = codex(waiting, Say("never", gate="never opened"))
    with pytest.raises(ct.errors.APIFailed) as caught:
        await ask(options, sleep=waits)
    assert (caught.value.code, caught.value.category, caught.value.retryable) == ("result.connection_failed", "transport", True)
    assert str(caught.value) == (
        "The API could not be reached. Check the network and the proxy, then try again. "
        "Reason: Connection failed: error sending request (transport=cli, category=transport)"
    )
    assert str(caught.value.__cause__) == "Connection failed: error sending request"
    assert waits.follow([1])
    there = partial_completion(caught.value)
    assert there is not None
    assert (there.text, there.attempts, len(fake.calls())) == ("", 2, 2)


async def test_a_stream_whose_answer_begins_otherwise_ends_with_an_error(codex: Make, waits: Waits) -> None:
    options, fake = codex(Say("Hello", cut=True), Retry("other"), Say("Bye"))
    pieces: list[str] = []
    with anyio.fail_after(60), pytest.raises(ct.errors.APIFailed) as caught:
        async for piece in ct.stream("Hi", agent="codex", codex=options, sleep=waits):
            pieces.append(piece)  # noqa: PERF401 - what came before the error counts
    assert ("".join(pieces), caught.value.code) == ("Hello", "result.connection_failed")
    assert (waits.seconds, len(fake.calls())) == ([], 1)
    assert (await ask(options)).text == "Bye"


@posix_only
async def test_a_process_that_dies_without_having_used_a_tool_is_started_again(codex: Make, waits: Waits) -> None:
    options, fake = codex(Say("I was about to", cut=True), steps.Exit(3))
    with pytest.raises(ct.ProcessError) as caught:
        await ask(options, sleep=waits)
    assert caught.value.exit_code == 3
    assert (
        str(caught.value) == "codex ended before it had answered. Its exit code and the end of its standard error say why. "
        "Reason: codex ended with exit code 3 (transport=cli, category=transport)"
    )
    assert waits.follow([1])
    there = partial_completion(caught.value)
    assert there is not None
    assert (there.text, there.text_blocks, there.attempts, there.exit_code) == ("", (), 2, 3)
    assert len(fake.calls()) == 2


@posix_only
async def test_a_process_that_dies_after_a_command_is_not_started_again(codex: Make, waits: Waits) -> None:
    options, fake = codex(RunCommand("touch x", ask=False), steps.DieBySignal("SIGKILL"))
    with pytest.raises(ct.ProcessError) as caught:
        await ask(options, sleep=waits)
    assert caught.value.signal == 9
    assert (waits.seconds, len(fake.calls())) == ([], 1)


async def test_a_process_that_ends_well_in_the_middle_of_a_turn_is_no_answer(codex: Make, waits: Waits) -> None:
    options, fake = codex(steps.Exit(0))
    with pytest.raises(ct.ClaudeTransportError) as caught:
        await ask(options, sleep=waits)
    assert str(caught.value).endswith("(transport=cli, category=transport)")
    assert waits.follow([1])
    assert len(fake.calls()) == 2


async def test_a_handshake_that_never_ends_is_ended_by_the_timeout(codex: Make) -> None:
    options, _ = codex(scenario=CodexScenario(answers={"initialize": CodexReply(never=True)}))
    with pytest.raises(ct.MissingResult) as caught:
        await ask(options, timeout=1.0)
    assert caught.value.code == "exec.cli.timeout"
    there = partial_completion(caught.value)
    assert there is not None
    assert (there.exit_code, there.agent) == (-1, "codex")


async def test_a_refused_request_has_a_fixed_sentence(codex: Make, waits: Waits) -> None:
    refusal = CodexReply(error={"code": -32600, "message": "secret words of the other side"})
    options, _ = codex(scenario=CodexScenario(answers={"turn/start": refusal}))
    with pytest.raises(ct.ControlError) as caught:
        await ask(options, sleep=waits)
    assert str(caught.value) == (
        "codex refused a control request. The cause says why. Reason: secret words of the other side (transport=cli, category=control)"
    )
    assert "secret words" in str(caught.value.__cause__)
    assert waits.seconds == []


async def test_a_prompt_over_the_limit_is_too_long_before_it_is_sent(codex: Make, waits: Waits) -> None:
    options, fake = codex()
    with pytest.raises(ct.errors.PromptTooLong):
        await ask(options, "x" * 1_048_577, sleep=waits)
    assert waits.seconds == []
    assert fake.calls()[0].prompts == []


async def test_a_stream_that_is_dropped_ends_its_process(codex: Make) -> None:
    options, fake = codex(Say("one two", chunks=["one ", "two"], gate="never"))
    stream = ct.stream("Hi", agent="codex", codex=options)
    with anyio.fail_after(60):
        async with stream:
            assert await anext(stream) == "one "
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    (call,) = fake.calls()
    assert call.requests("turn/interrupt"), "a running turn is interrupted before the input ends"


async def test_what_the_call_asks_for_is_what_codex_is_asked(codex: Make) -> None:
    options, fake = codex(Say('{"n": 1}'))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = ct.ClaudeOptions(output_format={"type": "json_schema", "schema": schema}, no_session_persistence=True)
    answer = await ask(options, system="Be brief.", options=wanted)
    assert answer.structured_output == {"n": 1}
    (call,) = fake.calls()
    (thread,), (turn,) = call.requests("thread/start"), call.requests("turn/start")
    assert (thread["baseInstructions"], thread["ephemeral"]) == ("Be brief.", True)
    assert turn["outputSchema"] == schema
