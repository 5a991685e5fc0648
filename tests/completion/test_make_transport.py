"""`make_transport`: a transport of the caller on the CLI path of one call. The ladder, the errors and the retries stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from call_errors import Waits
from virtual_time import virtual_time

import claude_transport as ct
from claude_transport.codex import CodexOptions, CodexPool
from claude_transport.completion import complete_sync, partial_completion
from claude_transport.testing import FakeCodex, FakeMessagesAPI, Scenario, assistant, replies, result
from claude_transport.wrappers import FaultyTransport
from claude_transport.wrappers.faults import Delay

MakeOptions = Callable[..., ct.ClaudeOptions]
HELLO = [assistant("Hello there."), result("Hello there.")]
OVERLOADED = [result("API Error: 529", is_error=True, api_error_status=529)]


class Maker:
    """Makes mocks that play these responses, one list for each attempt, and keeps the options that it was called with."""

    def __init__(self, *responses: list[dict[str, Any]]) -> None:
        self._responses = list(responses)
        self.asked: list[Any] = []

    def __call__(self, options: Any) -> ct.MockTransport:
        self.asked.append(options)
        return ct.MockTransport(self._responses.pop(0))


@pytest.fixture(autouse=True)
def no_cli(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no claude on this machine, and its credential would be one that pays."""
    monkeypatch.setenv("CLAUDE_CLI_PATH", "/nowhere/claude")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-SENTINEL")


@pytest.mark.parametrize("choice", [None, "auto", "cli"])
async def test_a_call_takes_the_transport_that_it_is_given_and_looks_for_no_cli(choice: Any) -> None:
    make = Maker(HELLO)
    completion = await ct.complete("Hi", model="haiku", transport=choice, make_transport=make)
    assert (completion.text, completion.transport, completion.attempts) == ("Hello there.", "cli", 1)
    assert (completion.billing_source, completion.exit_code) == ("unknown", -1)
    who = "the default says auto" if choice is None else f"the call says {choice}"
    assert completion.resolution.reason == f"{who}, and make_transport makes the way to the CLI"
    (options,) = make.asked
    assert (options.model, options.tools, options.max_retries, options.include_partial_messages) == ("haiku", (), 0, True)


async def test_a_stream_takes_it_too() -> None:
    stream = ct.stream("Hi", make_transport=Maker(HELLO))
    assert [piece async for piece in stream] == ["Hello there."]
    assert stream.completion.text == "Hello there."


def test_a_script_without_an_event_loop_takes_it_too() -> None:
    assert complete_sync("Hi", make_transport=Maker(HELLO)).text == "Hello there."


async def test_a_wrapper_around_a_process_sees_the_whole_call(cli_options: MakeOptions) -> None:
    counted: list[ct.MetricsTransport] = []

    def make(options: ct.ClaudeOptions) -> ct.MetricsTransport:
        counted.append(ct.MetricsTransport(ct.SubprocessTransport(options)))
        return counted[-1]

    with anyio.fail_after(60):
        completion = await ct.complete("Hi", options=cli_options(Scenario.text("Hello.")), make_transport=make)
    assert (completion.text, completion.exit_code) == ("Hello.", 0)
    assert counted[0].info.lines_read > 0


async def test_every_attempt_has_a_new_transport_and_the_failures_are_those_of_the_table(waits: Waits) -> None:
    make = Maker(OVERLOADED, OVERLOADED, HELLO)
    completion = await ct.complete("Hi", make_transport=make, sleep=waits)
    assert (completion.text, completion.attempts, len(make.asked)) == ("Hello there.", 3, 3)
    with pytest.raises(ct.Overloaded) as caught:
        await ct.complete("Hi", make_transport=Maker(OVERLOADED), retry=ct.RetryPolicy.none())
    assert (caught.value.code, caught.value.category, caught.value.retryable) == ("result.overloaded", "rate_limit", True)
    assert str(caught.value.__cause__) == "API Error: 529"


@pytest.mark.parametrize("option", ["env", "settings", "mcp_servers"])
async def test_the_reason_holds_no_secret_of_the_options(option: str) -> None:
    """The other end, which has them, may say them. They look like no credential."""
    secret = "plain-words-of-hers"
    env = {"OWN_TOKEN": secret}
    given: dict[str, Any] = {
        "env": env,
        "settings": {"env": env},
        "mcp_servers": {"s": {"type": "http", "url": "http://127.0.0.1/", "headers": {"Authorization": f"Bearer {secret}"}}},
    }
    make = Maker([result(f"refused: {secret}", is_error=True, api_error_status=401)])
    options = ct.ClaudeOptions(**{option: given[option]})
    with pytest.raises(ct.AuthFailed) as caught:
        await ct.complete("Hi", options=options, make_transport=make, retry=ct.RetryPolicy.none())
    assert caught.value.reason == "refused: [secret]"
    assert secret not in str(caught.value)


async def test_an_error_of_the_function_is_an_error_of_the_attempt(waits: Waits) -> None:
    made = Maker(HELLO)
    refusals: list[Exception] = [ct.CLIConnectionError("the container is not ready")]

    def make(options: ct.ClaudeOptions) -> ct.MockTransport:
        if refusals:
            raise refusals.pop()
        return made(options)

    completion = await ct.complete("Hi", make_transport=make, sleep=waits)
    assert (completion.text, completion.attempts) == ("Hello there.", 2)


async def test_the_api_path_does_not_call_it(fake_messages_api: FakeMessagesAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_messages_api.replace(replies.text("By the API.", times=None))
    options = ct.ClaudeOptions(env=fake_messages_api.environment(), env_mode="exact")
    make = Maker()
    assert (await ct.complete("Hi", transport="api", options=options, make_transport=make)).transport == "api"
    monkeypatch.setenv("CLAUDE_TRANSPORT", "api")
    assert (await ct.complete("Hi", options=options, make_transport=make)).transport == "api"
    assert make.asked == []


async def test_a_fallback_to_the_api_stays(fake_messages_api: FakeMessagesAPI) -> None:
    fake_messages_api.replace(replies.text("By the API."))
    options = ct.ClaudeOptions(env=fake_messages_api.environment(), env_mode="exact")

    def make(_options: ct.ClaudeOptions) -> ct.MockTransport:
        raise ct.CLIConnectionError("no road")

    completion = await ct.complete("Hi", options=options, make_transport=make, fallback=True, retry=ct.RetryPolicy.none())
    assert (completion.text, completion.transport, completion.attempts) == ("By the API.", "api", 2)
    assert completion.warnings[0].startswith("fallback: ")


async def test_the_account_that_the_other_end_reports_must_keep_the_policy() -> None:
    """The mock knows no options, so the policy is not among its terms."""
    mock = ct.MockTransport.script().expect_control("initialize").reply({"account": {"apiKeySource": "ANTHROPIC_API_KEY"}})
    with pytest.raises(ct.ConfigurationError, match=r'billing="subscription" cannot be kept') as caught:
        await ct.complete("Hi", billing="subscription", make_transport=lambda _options: mock)
    assert caught.value.option == "billing"
    assert [message["type"] for message in mock.written] == ["control_request"]


async def test_codex_calls_it_with_its_own_options() -> None:
    asked: list[Any] = []

    def make(options: CodexOptions) -> ct.SubprocessTransport:
        asked.append(options)
        return ct.SubprocessTransport(options)

    with FakeCodex() as fake, anyio.fail_after(60):
        completion = await ct.complete("Hi", agent="codex", codex=CodexOptions(codex_path=fake.path), make_transport=make)
    assert (completion.text, completion.agent, completion.billing_source) == ("Hi", "codex", "unknown")
    assert [type(options) for options in asked] == [CodexOptions]


@pytest.mark.parametrize(
    ("value", "what"), [(ct.MockTransport(), "MockTransport"), (ct.MockTransport, "MockTransport"), (lambda _options: None, "function")]
)
@pytest.mark.parametrize("call", [ct.complete, ct.stream])
async def test_a_transport_in_the_place_of_the_choice_is_told_of_the_right_argument(call: Any, value: Any, what: str) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await call("Hi", transport=value)
    assert str(caught.value) == (
        f"transport must be auto, cli or api, not {what}: give a transport of your own as make_transport=lambda options: …"
    )
    assert (caught.value.option, caught.value.code) == ("transport", "config.invalid")


async def test_a_transport_for_a_pool_is_told_of_the_right_argument() -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        ct.SessionPool(transport=ct.MockTransport())  # type: ignore[call-arg]
    assert str(caught.value) == "SessionPool takes no transport: each session has one of its own, from make_transport=lambda options: …"
    assert (caught.value.option, caught.value.code) == ("transport", "config.invalid")


async def test_a_pool_takes_a_transport_of_the_caller_too() -> None:
    make = Maker(HELLO, HELLO)
    async with ct.SessionPool(ct.ClaudeOptions(model="haiku"), warm=0, make_transport=make) as pool:
        for _ in range(2):
            async with pool.acquire() as query:
                assert (await (await query.send("Hi")).result()).result == "Hello there."
    assert [options.model for options in make.asked] == ["haiku", "haiku"]


async def _asynchronous(_options: object) -> ct.MockTransport:
    return ct.MockTransport()


@pytest.mark.parametrize(("value", "what"), [("ssh", "str"), (ct.MockTransport(), "MockTransport"), (_asynchronous, "an async one")])
async def test_what_is_no_plain_function_is_refused_by_a_call_and_by_a_pool(value: Any, what: str) -> None:
    for make in (ct.complete, ct.stream, ct.SessionPool, CodexPool):
        arguments = ("Hi",) if make in (ct.complete, ct.stream) else ()
        with pytest.raises(ct.ConfigurationError) as caught:
            await make(*arguments, make_transport=value)  # type: ignore[operator]
        assert str(caught.value) == f"make_transport must be a function that takes the options and returns a transport, not {what}"
        assert caught.value.option == "make_transport"


@pytest.mark.parametrize(("made", "what"), [(None, "None"), (ct.MockTransport, "the class MockTransport: pass an instance")])
async def test_a_function_that_returns_no_transport_is_told_so(made: Any, what: str) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", make_transport=lambda _options: made)
    assert str(caught.value) == f"complete: make_transport must return a Transport, not {what}"
    there = partial_completion(caught.value)
    assert there is not None
    assert (there.attempts, there.exit_code) == (1, -1)


class Telling(ct.MockTransport):
    """Fails to start, and repeats what it was told in confidence."""

    async def connect(self) -> None:
        raise ct.ProcessError("it ended", exit_code=1, stderr_tail="cannot use plain-words-of-hers")


@pytest.mark.parametrize(
    "arguments",
    [
        {"options": ct.ClaudeOptions(env={"OWN_TOKEN": "plain-words-of-hers"})},
        {"agent": "codex", "codex": CodexOptions(env={"OWN_TOKEN": "plain-words-of-hers"})},
    ],
    ids=["claude", "codex"],
)
async def test_what_the_options_hold_in_confidence_is_in_no_reason_of_an_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(ct.ClaudeTransportError) as caught:
        await ct.complete("Hi", make_transport=lambda _options: Telling(), **arguments)
    error: BaseException | None = caught.value
    chain = []
    while error is not None:
        chain.append(error)
        error = error.__cause__
    assert len(chain) == 2
    assert [str(each) for each in chain if "plain-words" in f"{each} {each!r} {getattr(each, 'reason', '')}"] == []
    assert "cannot use" in str(caught.value)


# A background agent


def state(name: str) -> dict[str, Any]:
    return {"type": "system", "subtype": "session_state_changed", "state": name}


def agents(*ids: str) -> dict[str, Any]:
    tasks = [{"task_id": each, "task_type": "local_agent", "description": "dig"} for each in ids]
    return {"type": "system", "subtype": "background_tasks_changed", "tasks": tasks}


INIT = {"type": "system", "subtype": "init", "session_id": "s", "claude_code_version": "2.1.332"}
WAKE_UP = {"origin": {"kind": "task-notification"}, "user_message_uuids": []}
BEFORE = [state("running"), INIT, agents("t1"), assistant("I wait."), result("I wait."), agents()]
WOKEN = [INIT, assistant("It is done."), result("It is done.", **WAKE_UP)]


@virtual_time
@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        pytest.param(5, 100.0, id="the agent works"),
        pytest.param(6, 1.5, id="its turn has not begun"),  # some ten milliseconds with the real CLI
        pytest.param(7, 100.0, id="the model is silent in its turn"),
        pytest.param(8, 100.0, id="a tool works in its turn"),
        pytest.param(9, 1.5, id="the session is not idle yet"),
    ],
)
async def test_the_turn_that_a_background_agent_starts_is_waited_for(after: int, seconds: float) -> None:
    """As in recording 15c, with a silence after so many messages."""

    def make(_options: object) -> FaultyTransport:
        claude = ct.MockTransport.script().expect(type="user").reply(*BEFORE, *WOKEN, state("idle"))
        return FaultyTransport(claude, [Delay(seconds=seconds, line=after + 2)])  # the first line answers `initialize`

    began = anyio.current_time()
    completion = await ct.complete("Hi", make_transport=make)
    assert completion.text_blocks == ("I wait.", "It is done.")
    assert anyio.current_time() - began == pytest.approx(seconds)


@virtual_time
async def test_a_cli_that_does_not_say_that_it_is_idle_is_waited_for_two_seconds() -> None:
    began = anyio.current_time()
    make = Maker([state("running"), *HELLO])
    assert (await ct.complete("Hi", make_transport=make)).text == "Hello there."
    assert anyio.current_time() - began == pytest.approx(2.0)
