"""`complete()` and `stream()` with `agent="codex"`, on the real `codex` with a Responses API on loopback."""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from call_errors import Waits
from codex_world import CodexHome

import claude_transport as ct
from claude_transport.backoff import Backoff
from claude_transport.codex import CodexOptions, CodexSession
from claude_transport.completion import partial_completion
from claude_transport.protocol.messages import APIRetryMessage
from claude_transport.testing import FakeResponsesAPI, replies

pytestmark = pytest.mark.e2e

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""One pixel. Codex sends no picture that it cannot read."""
FORMAT = {"type": "json_schema", "schema": SCHEMA}


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_TRANSPORT", "CLAUDE_TRANSPORT_AGENT", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


async def ask(codex: CodexOptions, prompt: Any = "Hi", **arguments: Any) -> ct.Completion:
    with anyio.fail_after(120):
        return await ct.complete(prompt, **{"agent": "codex", "codex": codex, **arguments})


def processes_with(mark: str) -> list[int]:
    """The processes whose environment has this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


# ------------------------------------------------------------------------------------------------------------ nobody there


def elsewhere(home: CodexHome, url: str) -> None:
    """Let Codex look for its API at this address, and ask once."""
    config = home.codex / "config.toml"
    lines = [f'base_url = "{url}"' if line.startswith("base_url") else line for line in config.read_text("utf-8").splitlines()]
    config.write_text("\n".join(lines).replace("request_max_retries = 1", "request_max_retries = 0"), "utf-8")


@pytest.mark.parametrize("what", ["refused", "no such name", "no TLS"])
async def test_an_api_that_cannot_be_reached_is_told_at_once(
    codex_options: CodexOptions, codex_home: CodexHome, responses_api: FakeResponsesAPI, what: str
) -> None:
    """Codex asks again without an end, and says that it waits for the network. The call has an hour, and does not wait for it."""
    elsewhere(
        codex_home,
        {
            "refused": "http://127.0.0.1:1/v1",
            "no such name": "http://nowhere.invalid/v1",
            "no TLS": responses_api.url.replace("http:", "https:") + "/v1",
        }[what],
    )
    with pytest.raises(ct.errors.APIFailed) as caught:
        await ask(codex_options, timeout=3600, retry=ct.RetryPolicy.none())
    assert (caught.value.code, caught.value.category, caught.value.retryable) == ("result.connection_failed", "transport", True)
    assert str(caught.value.__cause__) == "Connection failed: error sending request"
    there = partial_completion(caught.value)
    assert there is not None
    assert (there.text, there.attempts, there.exit_code) == ("", 1, 0)


async def test_a_turn_of_a_session_ends_too_when_the_api_cannot_be_reached(codex_options: CodexOptions, codex_home: CodexHome) -> None:
    elsewhere(codex_home, "http://127.0.0.1:1/v1")
    found = []
    with anyio.fail_after(120):
        async with CodexSession(ct.SubprocessTransport(codex_options)) as session:
            for prompt in ("One", "Two"):
                result = await (await session.send(prompt)).result()
                assert result.error is not None
                found.append((result.status, type(result.error), result.error.code))
    assert found == [("failed", ct.errors.APIFailed, "result.connection_failed")] * 2


# ---------------------------------------------------------------------------------------------------------------- the answer


async def test_s1_10_an_answer_of_codex_has_everything_that_one_of_claude_has(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI
) -> None:
    usage = replies.Usage(input_tokens=100, output_tokens=20, cache_read_input_tokens=40, reasoning_output_tokens=8)
    responses_api.replace([replies.text("Hello there.", chunks=["Hello ", "there."], usage=usage)])
    answer = await ask(codex_options, "Say hello")
    assert (answer.text, answer.text_blocks) == ("Hello there.", ("Hello there.",))
    assert (answer.agent, answer.transport, answer.agent_resolution.layer) == ("codex", "cli", "argument")
    used = answer.usage
    assert (used.input_tokens, used.cache_read_input_tokens, used.output_tokens, used.reasoning_tokens) == (60, 40, 20, 8)
    assert (answer.model, answer.stop_reason, answer.cost_usd) == ("gpt-5.5", "end_turn", None)
    assert (answer.attempts, answer.warnings, answer.category, answer.exit_code) == (1, (), None, 0)
    assert answer.session_id
    assert answer.duration > 0
    assert answer.resolution.kind == "cli"
    assert (answer.api_key_source, answer.billing_source) == ("LAB_KEY", "api account")
    assert {event.type for event in answer.events} == {"system", "assistant", "result"}
    (request,) = responses_api.conversation
    assert request.prompt == "Say hello"
    (block,) = answer.raw_message.content
    assert block.to_dict() == {"type": "text", "text": "Hello there."}


@pytest.mark.codex_needs("the system prompt is the first instruction")
async def test_the_arguments_reach_codex(codex_options: CodexOptions, responses_api: FakeResponsesAPI, tmp_path: Path) -> None:
    blocks = [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
    ]
    where = tmp_path / "elsewhere"
    where.mkdir()
    options = ct.ClaudeOptions(cwd=where)
    await ask(codex_options.replace(cwd=None), blocks, model="gpt-5.4", system="Be brief.", options=options)
    (request,) = responses_api.conversation
    assert request.model == "gpt-5.4"
    assert request.body["input"][0]["content"] == [{"type": "input_text", "text": "Be brief."}]
    assert str(where) in str(request.body["input"])
    said = [part for item in request.body["input"] if item.get("role") == "user" for part in item["content"]]
    assert any(part.get("text") == "What is this?" for part in said)
    assert any(str(part.get("image_url", "")).startswith("data:image/png;base64,") for part in said)


@pytest.mark.codex_needs("the system prompt is the first instruction")
async def test_without_a_system_prompt_codex_has_its_own(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    await ask(codex_options)
    (request,) = responses_api.conversation
    assert "You are Codex" in request.body["input"][0]["content"][0]["text"]


async def test_a_thread_goes_on_in_another_call(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace(["One.", "Two."])
    first = await ask(codex_options, "First")
    second = await ask(codex_options, "Second", options=ct.ClaudeOptions(resume=first.session_id))
    assert (second.text, second.session_id) == ("Two.", first.session_id)
    assert "First" in str(responses_api.conversation[-1].body["input"])
    assert second.usage.output_tokens < first.usage.output_tokens * 2


async def test_a_thread_that_does_not_exist_is_refused_by_name(codex_options: CodexOptions, waits: Waits) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ask(codex_options, options=ct.ClaudeOptions(resume="01a20255-e46f-75e2-a747-69a9b6ed321c"), sleep=waits)
    assert caught.value.option == "resume"
    assert waits.seconds == []


async def test_a_call_that_shall_not_be_kept_leaves_no_thread(codex_options: CodexOptions) -> None:
    kept = await ask(codex_options)
    lost = await ask(codex_options, options=ct.ClaudeOptions(no_session_persistence=True))
    assert codex_options.codex_home is not None
    rollouts = " ".join(path.name for path in Path(codex_options.codex_home).rglob("rollout-*"))
    assert kept.session_id is not None
    assert lost.session_id is not None
    assert (kept.session_id in rollouts, lost.session_id in rollouts) == (True, False)


async def test_by_default_commands_can_only_read_and_nothing_is_asked(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_CLI_PATH", str(codex_options.codex_path))
    assert codex_options.cwd is not None
    target = Path(codex_options.cwd) / "written"
    responses_api.replace([replies.exec_command(f"touch {target}"), "It did not work."])
    env = {**codex_options.env, "CODEX_HOME": str(codex_options.codex_home)}
    options = ct.ClaudeOptions(cwd=codex_options.cwd, env=env, env_mode="exact")
    answer = await ask(None, options=options)  # type: ignore[arg-type]
    assert answer.text == "It did not work."
    assert not target.exists()


# ------------------------------------------------------------------------------------------------------------------ the text


async def test_the_text_comes_as_it_is_written(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.text("one two three", chunks=["one ", "two ", "three"])])
    stream = ct.stream("Count", agent="codex", codex=codex_options)
    with anyio.fail_after(120):
        pieces = [piece async for piece in stream]
    assert pieces == ["one ", "two ", "three"]
    assert (stream.completion.text, stream.completion.agent) == ("one two three", "codex")


async def test_a_stream_can_be_left_in_the_middle_and_leaves_nothing(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    mark = f"MARK=left-{os.getpid()}-{id(codex_options)}"
    name, _, value = mark.partition("=")
    responses_api.replace(replies.gated("one two", chunks=["one ", "two"], times=None))
    stream = ct.stream("Count", agent="codex", codex=codex_options.replace(env={**codex_options.env, name: value}))
    with anyio.fail_after(120):
        assert await anext(stream) == "one "
        assert processes_with(mark)
        await stream.aclose()
    assert processes_with(mark) == []


async def test_text_that_is_said_again_after_a_cut_stream_is_not_doubled(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI
) -> None:
    whole = replies.text("one two three", chunks=["one ", "two ", "three"])
    responses_api.replace([replies.cut(whole, after_events=4), whole])
    stream = ct.stream("Count", agent="codex", codex=codex_options)
    with anyio.fail_after(120):
        pieces = [piece async for piece in stream]
    assert "".join(pieces) == "one two three"
    assert len(responses_api.conversation) == 2
    assert any(isinstance(event, APIRetryMessage) for event in stream.completion.events)
    assert stream.completion.attempts == 1


# -------------------------------------------------------------------------------------------------------------- how it fails


def retries(count: int) -> ct.RetryPolicy:
    return ct.RetryPolicy(rate_limit=count, overloaded=count, api=count, transport=count, connection=count, backoff=Backoff(jitter=0))


@pytest.mark.parametrize(
    ("script", "error", "code", "ladder"),
    [
        (replies.error(401), ct.AuthFailed, "exec.cli.auth_failed", ()),
        (replies.error(429), ct.RateLimited, "result.rate_limited", (1,)),
        (replies.error(500), ct.errors.APIFailed, "result.server_error", (1,)),
        (replies.error(400), ct.errors.APIFailed, "result.invalid_request", ()),
        (replies.failed("context_length_exceeded"), ct.errors.PromptTooLong, "result.prompt_too_long", ()),
    ],
    ids=["401", "429", "500", "400", "too-long"],
)
async def test_s1_10_a_failure_has_the_class_code_and_ladder_that_it_has_with_claude(
    codex_options: CodexOptions,
    responses_api: FakeResponsesAPI,
    waits: Waits,
    script: Any,
    error: type[ct.ResultError],
    code: str,
    ladder: Sequence[float],
) -> None:
    responses_api.replace(script)
    with pytest.raises(error) as caught:
        await ask(codex_options, sleep=waits, retry=retries(1), subject="grading")
    found = caught.value
    assert (type(found), found.code) == (error, code)
    assert str(found).endswith(f"(transport=cli, category={found.category})")
    assert waits.follow(ladder)
    assert str(found.__cause__)
    there = partial_completion(found)
    assert there is not None
    assert (there.agent, there.attempts, there.category, there.exit_code) == ("codex", 1 + len(ladder), found.category, 0)
    assert "subject: grading" in found.__notes__
    assert isinstance(found.result, ct.ResultMessage)


@pytest.mark.codex_needs("a passing limit is asked for again")
async def test_a_limit_that_passes_is_a_retry_and_no_failure(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, waits: Waits
) -> None:
    responses_api.replace([replies.error(429, headers={"retry-after": "0"}, times=1), "Here I am."])
    answer = await ask(codex_options, sleep=waits)
    assert (answer.text, answer.attempts, waits.seconds) == ("Here I am.", 1, [])
    assert [event.error_status for event in answer.events if isinstance(event, APIRetryMessage)] == [429]


async def test_a_usage_limit_says_when_it_ends_and_one_that_lasts_is_not_waited_for(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, waits: Waits
) -> None:
    soon = int(dt.datetime.now(dt.UTC).timestamp()) + 3600
    window = {"used-percent": "100", "window-minutes": "300", "reset-at": str(soon)}
    headers = {f"x-codex-primary-{name}": value for name, value in window.items()}
    limit = replies.usage_limit(resets_at=soon)
    responses_api.replace(replies.error(429, error_type=limit.error_type, message=limit.message, headers=headers, details=limit.details))
    with pytest.raises(ct.RateLimited) as caught:
        await ask(codex_options, sleep=waits)
    assert caught.value.resets_at == dt.datetime.fromtimestamp(soon, dt.UTC)
    assert waits.seconds == []


async def test_a_call_that_ran_a_command_is_never_repeated(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, waits: Waits
) -> None:
    responses_api.replace([replies.exec_command("true"), replies.error(500, times=None)])
    with pytest.raises(ct.errors.APIFailed) as caught:
        await ask(codex_options.replace(sandbox="danger-full-access"), sleep=waits)
    assert waits.seconds == []
    there = partial_completion(caught.value)
    assert there is not None
    used = [tool.name for event in there.events if isinstance(event, ct.AssistantMessage) for tool in event.tool_uses]
    assert used == ["commandExecution"]


async def test_a_call_whose_command_the_sandbox_hid_is_never_repeated(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, waits: Waits
) -> None:
    responses_api.replace([replies.exec_command("touch /etc/never; false"), replies.error(500, times=None)])
    with pytest.raises(ct.errors.APIFailed):
        await ask(codex_options.replace(sandbox="read-only", approval_policy="never"), sleep=waits)
    assert waits.seconds == []


async def test_a_call_into_a_named_thread_is_never_repeated(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, waits: Waits
) -> None:
    first = await ask(codex_options)
    responses_api.replace(replies.error(500))
    with pytest.raises(ct.errors.APIFailed):
        await ask(codex_options, options=ct.ClaudeOptions(resume=first.session_id), sleep=waits)
    assert waits.seconds == []


async def test_a_timeout_keeps_the_text_and_leaves_no_process(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    name, value = "MARK", f"late-{os.getpid()}-{id(codex_options)}"
    codex = codex_options.replace(env={**codex_options.env, name: value})
    for timeout in (3.0, 10.0, 40.0):  # up to the first that is long enough, on this machine, for what comes before the gate
        responses_api.replace(replies.gated("one two", chunks=["one ", "two"], times=None))
        with pytest.raises(ct.MissingResult) as caught:
            await ask(codex, timeout=timeout)
        there = partial_completion(caught.value)
        if there is not None and there.text == "one ":
            break
    else:
        pytest.fail("it has not kept the text")
    assert (caught.value.code, there.exit_code) == ("exec.cli.timeout", -1)
    assert processes_with(f"{name}={value}") == []


async def test_a_cancelled_call_leaves_nothing(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    name, value = "MARK", f"cancelled-{os.getpid()}-{id(codex_options)}"
    responses_api.replace(replies.gated("one two", chunks=["one ", "two"], times=None))
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, codex_options.replace(env={**codex_options.env, name: value}))
            await responses_api.wait_for_requests(1)
            assert processes_with(f"{name}={value}")
            tasks.cancel_scope.cancel()
    assert processes_with(f"{name}={value}") == []


async def test_a_codex_that_is_not_there_is_told_as_for_claude(waits: Waits) -> None:
    with pytest.raises(ct.CLINotFoundError) as caught:
        await ask(CodexOptions(codex_path="/nowhere/codex"), sleep=waits)
    assert (
        str(caught.value)
        == "Codex CLI not found. Install Codex, or name its program with codex_path or CODEX_CLI_PATH. Reason: codex_path names "
        "'/nowhere/codex', which does not exist. Correct codex_path, or leave it out, so that the program is searched for. "
        "(transport=cli, category=transport)"
    )
    assert caught.value.searched
    assert waits.seconds == []
    there = partial_completion(caught.value)
    assert there is not None
    assert (there.agent, there.attempts, there.exit_code) == ("codex", 1, -1)


# ----------------------------------------------------------------------------------------------------------- the answer as data


async def test_an_answer_by_a_schema_is_data(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace(['{"city": "Bern", "people": 137000}'])
    answer = await ask(codex_options, options=ct.ClaudeOptions(output_format=FORMAT))
    assert answer.structured_output == {"city": "Bern", "people": 137000}
    (request,) = responses_api.conversation
    assert request.body["text"]["format"]["schema"] == SCHEMA


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Bern has 137,000 people.", "result.structured_output_missing"),
        ('{"city": "Bern", "people": "many"}', "result.structured_output_invalid"),
    ],
)
async def test_an_answer_that_ignores_the_schema_is_the_same_error_as_with_claude(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, waits: Waits, said: str, code: str
) -> None:
    responses_api.replace(said)
    with pytest.raises(ct.StructuredOutputMissing) as caught:
        await ask(codex_options, options=ct.ClaudeOptions(output_format=FORMAT), sleep=waits)
    assert caught.value.code == code
    there = partial_completion(caught.value)
    assert there is not None
    assert (there.text, there.text_blocks, there.structured_output, waits.seconds) == ("", (), None, [])
    assert [event.text for event in there.events if isinstance(event, ct.AssistantMessage)] == [said]


# ------------------------------------------------------------------------------------------------------------------ who answers


async def test_s1_10_auto_takes_codex_where_there_is_no_claude_and_says_so(
    codex_options: CodexOptions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CLAUDE_CLI_PATH", "/nowhere/claude")
    caplog.set_level(logging.WARNING, "claude_transport.completion")
    first = await ask(codex_options, agent="auto")
    second = await ask(codex_options, agent=None, declared={"agent": "auto"})
    assert [(answer.agent, answer.agent_resolution.layer) for answer in (first, second)] == [("codex", "argument"), ("codex", "declared")]
    assert sum("using the agent Codex" in record.getMessage() for record in caplog.records) <= 1
    assert not any("Claude CLI" in record.getMessage() for record in caplog.records)


async def test_s1_10_the_variable_chooses_codex(codex_options: CodexOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_TRANSPORT_AGENT", "codex")
    answer = await ask(codex_options, agent=None)
    assert (answer.agent, answer.agent_resolution.layer) == ("codex", "environment")
