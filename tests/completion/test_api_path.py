"""The API path: what it sends, what comes back, and the same error as on the CLI path for each of docs/reference/protocol.md#api-failures.

The CLI's half of that table is in tests/e2e/test_complete.py, on the real binary.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anthropic.types
import anyio
import pytest
from call_errors import ROWS, Row, Waits

import claude_transport as ct
from claude_transport.completion.models import KNOWN_MODELS
from claude_transport.completion.request import API_OPTIONS
from claude_transport.sessions import InMemorySessionStore
from claude_transport.testing import FakeMessagesAPI, replies

HAIKU = "claude-haiku-5-5"


async def ask(options: ct.ClaudeOptions, prompt: Any = "Hi", **arguments: Any) -> ct.Completion:
    with anyio.fail_after(30):
        return await ct.complete(prompt, **{"transport": "api", "model": "haiku", "options": options, **arguments})


# ------------------------------------------------------------------------------------------------------------------ the answer


async def test_the_answer_has_everything_that_the_api_said(fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions) -> None:
    usage = replies.Usage(input_tokens=1000, output_tokens=500, cache_read_input_tokens=200, cache_creation_input_tokens=100)
    fake_messages_api.replace(
        [replies.message(replies.thinking_block("hm"), replies.text_block("One."), replies.text_block("Two."), usage=usage)]
    )
    completion = await ask(api_options)
    assert (completion.text, completion.text_blocks) == ("One.\nTwo.", ("One.", "Two."))
    found = completion.usage
    assert (found.input_tokens, found.output_tokens, found.cache_read_input_tokens, found.cache_creation_input_tokens) == (
        1000,
        500,
        200,
        100,
    )
    assert completion.cost_usd == pytest.approx((1000 * 0.1 + 500 * 0.5 + 200 * 0.01 + 100 * 0.125) / 1e6)
    assert (completion.model, completion.stop_reason, completion.transport) == (HAIKU, "end_turn", "api")
    assert (completion.api_key_source, completion.billing_source) == ("ANTHROPIC_API_KEY", "api account")
    assert (completion.attempts, completion.warnings, completion.category, completion.session_id) == (1, (), None, None)
    assert completion.duration > 0
    assert (completion.resolution.kind, completion.resolution.layer) == ("api", "argument")
    assert [event.type for event in completion.events] == ["assistant", "result"]
    assert type(completion.raw_message) is anthropic.types.Message
    assert [block.type for block in completion.raw_message.content] == ["thinking", "text", "text"]
    assert completion.raw_message.usage.cache_read_input_tokens == 200


async def test_what_is_sent_is_what_was_asked(fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions) -> None:
    blocks = [{"type": "text", "text": "What is"}, {"type": "text", "text": "this?"}]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    await ask(api_options.replace(thinking=thinking, betas=["x-1", "y-2"]), blocks, system="Be brief.", max_tokens=77, model="claude-x-1")
    (request,) = fake_messages_api.requests
    assert request.body["messages"] == [{"role": "user", "content": blocks}]
    assert (request.body["system"], request.body["max_tokens"], request.body["model"]) == ("Be brief.", 77, "claude-x-1")
    assert request.body["thinking"] == thinking
    assert request.headers["anthropic-beta"] == "x-1,y-2"
    assert request.stream, "an answer of 128 000 tokens takes longer than any request may"
    assert request.credential != "none"


async def test_without_system_and_max_tokens_there_is_no_system_and_the_longest_answer(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions
) -> None:
    await ask(api_options, model=None)
    await ask(api_options.replace(env={**api_options.env, "ANTHROPIC_MODEL": "claude-haiku-4-5"}), model=None)
    opus, haiku = (request.body for request in fake_messages_api.requests)
    assert (opus["model"], opus["max_tokens"], "system" in opus) == ("claude-opus-5-5", 128_000, False)
    assert (haiku["model"], haiku["max_tokens"]) == ("claude-haiku-4-5", 32_000)


async def test_a_token_is_taken_where_there_is_no_key(fake_messages_api: FakeMessagesAPI) -> None:
    env = {"ANTHROPIC_AUTH_TOKEN": "token-fake", "ANTHROPIC_BASE_URL": fake_messages_api.url}
    completion = await ask(ct.ClaudeOptions(env=env, env_mode="exact"))
    assert (completion.api_key_source, completion.billing_source) == ("ANTHROPIC_AUTH_TOKEN", "token owner")
    assert fake_messages_api.requests[0].headers["authorization"] == "Bearer token-fake"


async def test_headers_of_the_environment_are_those_of_the_built_one_and_hold_no_other_credential(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK adds what this process's ANTHROPIC_CUSTOM_HEADERS says: another key would pay, and `exact` would not be exact."""
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-outer: 1\nX-Api-Key: sk-ant-OTHER\nx-both: outer")
    await ask(api_options)
    given = {**api_options.env, "ANTHROPIC_CUSTOM_HEADERS": "x-inner: 2\nAuthorization: Bearer OTHER\nx-both: inner\nno header"}
    await ask(api_options.replace(env=given))
    exact, own = (request.headers for request in fake_messages_api.requests)
    assert not {"x-outer", "x-api-key", "x-both"} & set(exact)
    assert (own["x-inner"], own["x-both"]) == ("2", "inner")
    assert "x-outer" not in own
    assert exact["authorization"] == own["authorization"]


async def test_the_cost_of_an_unknown_model_is_none(api_options: ct.ClaudeOptions) -> None:
    completion = await ask(api_options, model="claude-nonesuch-9")
    assert completion.cost_usd is None
    assert completion.text


async def test_partial_messages_are_events_when_the_options_ask_for_them(api_options: ct.ClaudeOptions) -> None:
    completion = await ask(api_options.replace(include_partial_messages=True))
    kinds = [event.event_type for event in completion.events if isinstance(event, ct.StreamEvent)]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"


async def test_a_question_at_the_end_is_advised_of_unless_nobody_wants_to_know(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions
) -> None:
    fake_messages_api.replace(replies.text("Which one?", times=None))
    asked = await ask(api_options)
    assert asked.category == "interactive"
    assert asked.warnings[0].startswith("interactive-hang: ")
    quiet = await ask(api_options, heuristics=False)
    assert (quiet.category, quiet.warnings) == (None, ())


async def test_the_environment_of_this_process_is_read_and_never_written(
    fake_messages_api: FakeMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake_messages_api.environment().items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    completion = await ask(ct.ClaudeOptions())
    assert completion.text
    assert dict(os.environ) == before


# --------------------------------------------------------------------------------------------------- every failure of the table


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_failure_has_its_class_its_code_and_its_attempts(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, row: Row, waits: Waits
) -> None:
    fake_messages_api.replace(row.script)
    with pytest.raises(ct.ClaudeTransportError) as caught:
        await ask(api_options, sleep=waits)
    row.check(caught.value, transport="api")
    assert waits.follow(row.ladder)
    assert len(fake_messages_api.conversation) == 1 + len(row.ladder)
    assert "scripted" not in str(caught.value.args[0])
    assert caught.value.reason == "" or str(caught.value).count(caught.value.reason) == 1


async def test_nobody_there_is_a_connection_that_failed(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, waits: Waits
) -> None:
    await fake_messages_api.aclose()
    with pytest.raises(ct.errors.APIFailed) as caught:
        await ask(api_options, sleep=waits)
    assert (caught.value.code, caught.value.category) == ("result.connection_failed", "transport")
    assert waits.follow([1])


@pytest.mark.parametrize("after_events", [0, 1, 5])
async def test_a_cut_stream_is_asked_for_again(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, after_events: int, waits: Waits
) -> None:
    fake_messages_api.replace([replies.cut(after_events=after_events), "whole"])
    completion = await ask(api_options, sleep=waits)
    assert (completion.text, completion.attempts) == ("whole", 2)
    assert waits.follow([1])


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "message_start", "message": {"id": "msg_1"}}],
        [{"type": "message_stop"}],
        [{"type": "message_start", "message": None}, {"type": "message_stop"}],
    ],
    ids=["no-end", "no-beginning", "no-message"],
)
async def test_a_stream_without_a_whole_message_is_a_connection_that_failed(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, events: list[dict[str, Any]]
) -> None:
    fake_messages_api.replace(replies.raw(events, times=None))
    with pytest.raises(ct.errors.APIFailed) as caught:
        await ask(api_options, retry=ct.RetryPolicy.none())
    assert caught.value.code == "result.connection_failed"


async def test_retry_after_is_waited_for_and_one_that_is_too_long_is_not(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, waits: Waits
) -> None:
    fake_messages_api.replace([replies.error(429, headers={"retry-after": "17"}, times=1), "after all"])
    completion = await ask(api_options, sleep=waits)
    assert (completion.text, completion.attempts, waits.seconds) == ("after all", 2, [17])
    fake_messages_api.replace(replies.error(429, headers={"retry-after": "3600"}))
    with pytest.raises(ct.RateLimited):
        await ask(api_options, sleep=waits)
    assert waits.seconds == [17]


async def test_a_wait_that_the_timeout_would_end_is_not_begun(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, waits: Waits
) -> None:
    fake_messages_api.replace(replies.error(429, headers={"retry-after": "20"}))
    with pytest.raises(ct.RateLimited):
        await ask(api_options, sleep=waits, timeout=15)
    assert waits.seconds == []


async def test_a_timeout_keeps_the_text_so_far(fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions) -> None:
    for timeout in (1.0, 4.0, 20.0):  # up to the first that is long enough, on this machine, for what comes before the gate
        fake_messages_api.replace(replies.gated("one two three", chunks=["one ", "two ", "three"], after_chunks=2))
        with pytest.raises(ct.MissingResult) as caught:
            await ask(api_options, timeout=timeout)
        assert (caught.value.code, caught.value.category) == ("exec.cli.timeout", "timeout")
        there = ct.completion.partial_completion(caught.value)
        if there is not None and there.text == "one two ":
            break
    else:
        pytest.fail("it has not kept the text")
    assert (there.text, there.category, there.attempts) == ("one two ", "timeout", 1)


async def test_a_call_that_is_cancelled_hangs_up(fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions) -> None:
    fake_messages_api.replace(replies.gated("one two", chunks=["one ", "two"], after_chunks=1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, api_options)
        await fake_messages_api.wait_at_gate()
        tasks.cancel_scope.cancel()
    assert fake_messages_api.requests[0].outcome in ("pending", "client_gone")


# ------------------------------------------------------------------------------------------------------------- what is refused


async def test_without_a_credential_nobody_is_asked(fake_messages_api: FakeMessagesAPI) -> None:
    options = ct.ClaudeOptions(env={"ANTHROPIC_BASE_URL": fake_messages_api.url}, env_mode="exact")
    with pytest.raises(ct.AuthFailed) as caught:
        await ask(options)
    assert caught.value.code == "exec.cli.auth_failed"
    assert fake_messages_api.requests == []


@pytest.mark.parametrize("billing", ["subscription", "subscription_strict"])
async def test_s3_1_a_subscription_does_not_pay_for_the_api(fake_messages_api: FakeMessagesAPI, billing: Any) -> None:
    options = ct.ClaudeOptions(env={"ANTHROPIC_BASE_URL": fake_messages_api.url}, env_mode="exact")
    with pytest.raises(ct.ConfigurationError) as caught:
        await ask(options, billing=billing)
    assert caught.value.option == "billing"
    assert fake_messages_api.requests == []


async def test_billing_by_key_needs_the_key_and_uses_no_token(fake_messages_api: FakeMessagesAPI) -> None:
    env = {"ANTHROPIC_BASE_URL": fake_messages_api.url}
    with pytest.raises(ct.ConfigurationError, match="ANTHROPIC_API_KEY"):
        await ask(ct.ClaudeOptions(env=env, env_mode="exact"), billing="api_key")
    completion = await ask(ct.ClaudeOptions(env={**env, "ANTHROPIC_API_KEY": "sk-ant-fake"}, env_mode="exact"), billing="api_key")
    assert completion.billing_source == "api account"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tools", ["Bash"]),
        ("allowed_tools", ["Bash"]),
        ("mcp_servers", {"a": {"command": "x"}}),
        ("resume", "584ca48f-4b77-444b-bef6-e50ce8530e7f"),
        ("append_system_prompt", "And be kind."),
        ("system_prompt", {"type": "preset", "preset": "claude_code"}),
        ("output_format", {"type": "json_schema", "schema": {}}),
        ("max_budget_usd", 1.0),
    ],
)
async def test_an_option_that_only_the_cli_can_honour_is_not_left_out_silently(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, option: str, value: Any
) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ask(api_options.replace(**{option: value}))
    assert caught.value.option == option
    assert fake_messages_api.requests == []


class Kept(InMemorySessionStore):
    """A store that is not equal to None, and not false."""


class Equal(InMemorySessionStore):
    """A store that says that it is equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Empty(InMemorySessionStore):
    """A store without sessions, which looks like nothing."""

    def __len__(self) -> int:
        return 0


class Kin(InMemorySessionStore, dict[str, Any]):
    """A store that is a dict as well, and an empty one."""


class Odd(InMemorySessionStore):
    """A store whose comparisons have no truth value, as those of arrays have none."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


@pytest.mark.parametrize("store", [Kept, Equal, Empty, Kin, Odd])
async def test_a_session_store_is_refused_whatever_it_says_that_it_is_equal_to(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, store: type[InMemorySessionStore]
) -> None:
    options = api_options.replace(session_store=store())
    assert "session_store=" in repr(options)
    with pytest.raises(ct.ConfigurationError) as caught:
        await ask(options)
    with pytest.raises(ct.ConfigurationError) as streamed:
        await anext(ct.stream("Hi", transport="api", model="haiku", options=options))
    assert caught.value.option == streamed.value.option == "session_store"
    assert fake_messages_api.requests == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("thinking", ["adaptive"]),
        ("betas", [5]),
        ("betas", "x-1"),
        ("env_mode", "everything"),
        ("env_allow", 5),
        ("billing", "somebody"),
        ("system_prompt", 5),
        ("system_prompt", "half of a pair: \ud800"),
        ("max_turns", 0),
    ],
)
async def test_an_option_that_makes_no_sense_is_refused_as_on_the_cli_path(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, option: str, value: Any
) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ask(api_options.replace(**{option: value}))
    assert caught.value.option == option
    assert fake_messages_api.requests == []


async def test_options_that_mean_nothing_to_the_api_are_no_obstacle(api_options: ct.ClaudeOptions) -> None:
    options = api_options.replace(cli_path="/nowhere/claude", tools=(), strict_mcp_config=True, max_turns=3, no_session_persistence=True)
    options = options.replace(permission_mode="bypassPermissions", cwd="/nowhere")
    assert (await ask(options)).text


def test_the_table_of_options_names_only_options() -> None:
    assert set(API_OPTIONS) <= set(ct.ClaudeOptions.__struct_fields__)
    assert all(model.max_tokens > 0 for model in KNOWN_MODELS.values())


async def test_without_the_package_anthropic_the_error_names_the_command_that_installs_it(
    fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = await ask(api_options)
    asked = len(fake_messages_api.requests)
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(ct.ConfigurationError, match=r"needs the package anthropic: pip install anthropic") as caught:
        await ask(api_options)
    assert (caught.value.option, caught.value.code, caught.value.retryable) == ("transport", "config.invalid", False)
    assert len(fake_messages_api.requests) == asked
    with pytest.raises(ct.ConfigurationError, match="pip install anthropic"):
        _ = answered.raw_message
