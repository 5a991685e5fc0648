"""The CLI path, with a fake claude that is a real process: what it is given, what comes of it, and how every way of failing is told."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic.types
import anyio
import anyio.to_thread
import pytest
from call_errors import Waits

import claude_transport as ct
from claude_transport.completion.assembly import NO_RESULT
from claude_transport.protocol.diagnosis import Detail
from claude_transport.testing import Answer, FakeClaude, FakeMessagesAPI, Scenario, steps
from claude_transport.testing.scenario import ScriptedTurn

SESSION = "584ca48f-4b77-444b-bef6-e50ce8530e7f"
DIES_AT_ONCE = Scenario(answers={"initialize": Answer(never=True, before=[steps.Exit(3)])})
posix_only = pytest.mark.skipif(os.name == "nt", reason="signals and process groups")

FakeMaker = Callable[..., FakeClaude]
Options = Callable[..., ct.ClaudeOptions]


async def ask(options: ct.ClaudeOptions, prompt: Any = "Hi", **arguments: Any) -> ct.Completion:
    with anyio.fail_after(60):
        return await ct.complete(prompt, **{"transport": "cli", "options": options, **arguments})


def turn(*deeds: Any) -> Scenario:
    """Every prompt is answered by these steps."""
    return Scenario(otherwise=ScriptedTurn(deeds))


def has_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# ------------------------------------------------------------------------------------------------------------------ the answer


async def test_the_answer_has_everything_that_the_cli_said(cli_options: Options) -> None:
    completion = await ask(cli_options(Scenario.text("Hello there.")))
    assert (completion.text, completion.text_blocks) == ("Hello there.", ("Hello there.",))
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (12, 7)
    assert completion.cost_usd == pytest.approx(0.000188)
    assert (completion.model, completion.stop_reason, completion.transport) == ("claude-opus-5-5", "end_turn", "cli")
    assert (completion.attempts, completion.warnings, completion.category) == (1, (), None)
    assert completion.session_id
    assert completion.duration > 0
    assert (completion.resolution.kind, completion.resolution.layer) == ("cli", "argument")
    assert "stream_event" not in {event.type for event in completion.events}
    message = completion.raw_message
    assert type(message) is anthropic.types.Message
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "Hello there."}]


async def test_the_arguments_reach_the_cli(fake_claude: FakeMaker) -> None:
    fake = fake_claude()
    options = ct.ClaudeOptions(cli_path=fake.path, env={"PATH": "/usr/bin:/bin"}, env_mode="exact", tools=[])
    blocks = [{"type": "text", "text": "What is"}, {"type": "text", "text": "this?"}]
    await ask(options, blocks, model="haiku", system="Be brief.", max_tokens=77)
    (call,) = fake.calls()
    assert call.prompts == [blocks]
    assert call.argv[call.argv.index("--model") + 1] == "haiku" if "--model" in call.argv else "--model=haiku" in call.argv
    assert {"CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_MAX_RETRIES"} <= set(call.env_names)
    assert "--include-partial-messages" in call.argv


async def test_its_own_retries_are_off_unless_they_were_asked_for(fake_claude: FakeMaker) -> None:
    fake = fake_claude(None, record_env=["CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CODE_MAX_OUTPUT_TOKENS"])
    options = ct.ClaudeOptions(cli_path=fake.path, env={"PATH": "/usr/bin:/bin"}, env_mode="exact")
    await ask(options, max_tokens=77)
    await ask(options.replace(max_retries=4))
    off, on = (call.env for call in fake.calls())
    assert off == {"CLAUDE_CODE_MAX_RETRIES": "0", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "77"}
    assert on == {"CLAUDE_CODE_MAX_RETRIES": "4"}


async def test_s2_7_a_run_that_waits_for_somebody_is_advised_of_unless_nobody_wants_to_know(cli_options: Options) -> None:
    options = cli_options(Scenario.text("Shall I go on?"))
    asked, quiet = await ask(options), await ask(options, heuristics=False)
    assert asked.category == "interactive"
    assert asked.warnings[-1].startswith("interactive-hang: ")
    assert (quiet.category, quiet.warnings) == (None, ())
    assert asked.text == quiet.text == "Shall I go on?"


async def test_s2_6_a_run_without_a_result_is_an_answer_with_a_warning(cli_options: Options) -> None:
    completion = await ask(cli_options(turn(steps.Text("I just leave."), steps.Exit(0))))
    assert completion.text == "I just leave."
    assert completion.warnings == (NO_RESULT,)
    assert (completion.usage.input_tokens, completion.usage.output_tokens, completion.cost_usd) == (0, 0, None)


async def test_s4_6_the_calls_of_tools_are_events_and_not_in_the_message(cli_options: Options) -> None:
    scenario = turn(steps.ToolUse("Bash", input={"command": "ls"}, output="a.txt", ask=False), steps.Text("One file."), steps.Result())
    completion = await ask(cli_options(scenario, allowed_tools=["Bash"]))
    used = [tool.name for event in completion.events if isinstance(event, ct.AssistantMessage) for tool in event.tool_uses]
    assert used == ["Bash"]
    assert [block.type for block in completion.raw_message.content] == ["text"]
    assert completion.text == "One file."


async def test_the_environment_of_this_process_is_not_written(cli_options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-SENTINEL")
    before = dict(os.environ)
    await ask(cli_options(), billing="subscription")
    assert dict(os.environ) == before


async def test_many_calls_at_once_do_not_meet(cli_options: Options) -> None:
    options, answers = cli_options(), dict[str, str]()

    async def one(prompt: str) -> None:
        answers[prompt] = (await ask(options, prompt)).text

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(one, f"prompt {number}")
    assert answers == {prompt: prompt for prompt in answers}
    assert len(answers) == 5


# ---------------------------------------------------------------------------------------------------------------- how it fails


async def test_a_failed_result_is_raised_with_a_fixed_sentence_and_its_words_are_the_cause(cli_options: Options, waits: Waits) -> None:
    words = "API Error: 500 as scripted " + "x" * 5000
    failed = steps.Result(text=words, is_error=True, terminal_reason="api_error", api_error_status=500)
    with pytest.raises(ct.errors.APIFailed) as caught:
        await ask(cli_options(turn(failed)), sleep=waits, subject="grading")
    error = caught.value
    assert error.reason == words[:499] + "…"
    assert str(error) == f"The API failed. Try again in a few minutes. Reason: {error.reason} (transport=cli, category=api)"
    assert isinstance(error.__cause__, Detail)
    assert str(error.__cause__) == words[:4096] + " ... (truncated)"
    assert waits.follow([1])
    there = ct.completion.partial_completion(error)
    assert there is not None
    assert there.attempts == 2
    assert error.__notes__ == ["2 attempts were made", "subject: grading"]
    (result,) = (event for event in there.events if isinstance(event, ct.ResultMessage))
    assert result.result == words, "the whole of it stays in the events"


@posix_only
async def test_s2_8_a_timeout_keeps_the_text_and_leaves_no_process(fake_claude: FakeMaker) -> None:
    said = ["one ", "two ", "three"]
    scenario = turn(steps.ForkGrandchild(60, own_session=True), steps.Text("".join(said), chunks=said, gate="never"), steps.Result())
    for timeout in (2.0, 6.0, 30.0):  # up to the first that is long enough, on this machine, for what comes before the gate
        fake = fake_claude(scenario)
        options = ct.ClaudeOptions(cli_path=fake.path, env={"PATH": "/usr/bin:/bin"}, env_mode="exact")
        with pytest.raises(ct.ClaudeTransportError) as caught:
            await ask(options, timeout=timeout)
        there = ct.completion.partial_completion(caught.value)
        if there is not None and there.text == "one two ":
            break
    else:
        pytest.fail("it has not kept the text")
    error = caught.value
    assert type(error) is ct.MissingResult
    assert (error.code, error.category, error.retryable) == ("exec.cli.timeout", "timeout", False)
    assert (there.text_blocks, there.category) == (("one two ",), "timeout")
    assert there.duration >= timeout
    assert there.exit_code == -1
    (call,) = fake.calls()
    assert all(has_gone(pid) for pid in [call.pid, *call.grandchildren])


@pytest.mark.parametrize("tells_its_state", [True, False])
async def test_a_process_that_dies_without_having_used_a_tool_is_started_again(
    cli_options: Options, waits: Waits, tells_its_state: bool
) -> None:
    options = cli_options(turn(steps.Text("I was about to"), steps.Exit(3)), session_state_events=tells_its_state)
    with pytest.raises(ct.ProcessError) as caught:
        await ask(options, sleep=waits)
    assert caught.value.exit_code == 3
    assert (
        str(caught.value) == "claude ended before it had answered. Its exit code and the end of its standard error say why. "
        "Reason: claude ended with exit code 3 (transport=cli, category=transport)"
    )
    assert waits.follow([1])
    there = ct.completion.partial_completion(caught.value)
    assert there is not None
    assert (there.text, there.text_blocks, there.attempts) == ("", (), 2)
    assert there.raw_message.content == []
    assert [event.text for event in there.events if isinstance(event, ct.AssistantMessage)] == ["I was about to"]


@pytest.mark.parametrize(
    ("deeds", "options"),
    [
        ((steps.ToolUse("Bash", input={"command": "rm x"}, ask=False), steps.Exit(3)), {"allowed_tools": ["Bash"]}),
        ((steps.Exit(3),), {"session_id": SESSION}),
        ((steps.Exit(3),), {"resume": SESSION}),
        ((steps.Exit(3),), {"continue_conversation": True}),
    ],
    ids=["a-tool-was-called", "its-session-is-named", "it-goes-on-with-a-session", "it-goes-on-with-the-last-session"],
)
async def test_what_may_have_left_traces_is_never_done_a_second_time(
    cli_options: Options, deeds: Any, options: dict[str, Any], waits: Waits
) -> None:
    with pytest.raises(ct.ProcessError):
        await ask(cli_options(turn(*deeds), **options), sleep=waits)
    assert waits.seconds == []


async def test_a_fork_of_a_session_leaves_the_session_alone_and_may_be_made_again(cli_options: Options, waits: Waits) -> None:
    with pytest.raises(ct.ProcessError):
        await ask(cli_options(turn(steps.Exit(3)), resume=SESSION, fork_session=True), sleep=waits)
    assert waits.follow([1])


async def test_a_run_that_says_nothing_at_all_is_a_missing_result(cli_options: Options, waits: Waits) -> None:
    with pytest.raises(ct.MissingResult) as caught:
        await ask(cli_options(turn(steps.Exit(0))), sleep=waits)
    assert (caught.value.code, caught.value.category) == ("result.missing", "transport")
    assert "session_state_changed" in [getattr(message, "subtype", None) for message in caught.value.messages]  # before it was silent
    assert waits.follow([1])


async def test_no_binary_is_said_to_be_none(cli_options: Options, waits: Waits) -> None:
    with pytest.raises(ct.CLINotFoundError) as caught:
        await ask(cli_options(cli_path="/nowhere/claude"), sleep=waits)
    assert caught.value.code == "exec.cli.binary_not_found"
    assert caught.value.searched
    assert waits.seconds == []
    there = ct.completion.partial_completion(caught.value)
    assert there is not None
    assert (there.text, there.exit_code, there.category, there.attempts, there.transport) == ("", -1, "transport", 1, "cli")
    assert 0 < there.duration < 60


EARLY: dict[str, tuple[dict[str, Any], int | None]] = {
    "no binary": ({"transport": "cli", "options": ct.ClaudeOptions(cli_path="/nowhere/claude")}, -1),
    "no program": ({"transport": "cli", "options": ct.ClaudeOptions(cli_path=__file__)}, -1),
    "no directory": ({"transport": "cli", "options": ct.ClaudeOptions(cli_path="/bin/cat", cwd="/nowhere")}, -1),
    "no answer": ({"transport": "cli", "options": ct.ClaudeOptions(cli_path="/bin/false")}, 1),
    "no path at all": ({"transport": "auto", "options": ct.ClaudeOptions(cli_path="/nowhere/claude", env_mode="exact", env={})}, -1),
    "a choice that is none": ({"declared": "smoke signals"}, -1),
    "no key": ({"transport": "api", "options": ct.ClaudeOptions(env_mode="exact", env={})}, None),
}


@pytest.mark.parametrize(("arguments", "exit_code"), EARLY.values(), ids=EARLY)
async def test_s2_8_a_call_that_fails_early_has_a_duration_and_an_exit_code(arguments: dict[str, Any], exit_code: int | None) -> None:
    with anyio.fail_after(60), pytest.raises(ct.ClaudeTransportError) as caught:
        await ct.complete("Hi", **{"retry": ct.RetryPolicy.none(), **arguments})
    there = ct.completion.partial_completion(caught.value)
    assert there is not None
    assert (there.text, there.exit_code, there.category) == ("", exit_code, caught.value.category)
    assert 0 < there.duration < 60


async def test_a_call_without_a_thread_to_spare_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **_options: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(anyio.to_thread, "run_sync", refuse)
    with pytest.raises(ct.errors.SpawnError, match="needs a thread") as caught:
        await ct.complete("Hi", transport="cli", retry=ct.RetryPolicy.none())
    assert (caught.value.code, caught.value.path) == ("exec.cli.spawn_failed", "claude")


async def test_s2_8_an_answer_has_the_exit_code_of_the_cli(cli_options: Options) -> None:
    answer = await ask(cli_options(turn(steps.Text("Hello"), steps.Result())))
    assert (answer.text, answer.exit_code) == ("Hello", 0)


async def test_a_handshake_that_never_ends_is_ended_by_the_timeout(cli_options: Options) -> None:
    with pytest.raises(ct.MissingResult) as caught:
        await ask(cli_options(Scenario(answers={"initialize": Answer(never=True)})), timeout=1.0)
    assert caught.value.code == "exec.cli.timeout"


@pytest.mark.parametrize("billing", ["subscription", "subscription_strict"])
async def test_s3_1_a_cli_that_would_charge_somebody_else_never_gets_the_prompt(fake_claude: FakeMaker, billing: Any, waits: Waits) -> None:
    """Settings, a managed key and cloud switches are the CLI's to find: it says what it has found before it is asked anything."""
    fake = fake_claude(Scenario(answers={"initialize": Answer(response={"account": {"apiKeySource": "/login managed key"}})}))
    options = ct.ClaudeOptions(cli_path=fake.path, env={"PATH": "/usr/bin:/bin"}, env_mode="exact")
    with pytest.raises(ct.ConfigurationError, match="/login managed key") as caught:
        await ask(options, billing=billing, sleep=waits)
    assert caught.value.option == "billing"
    (call,) = fake.calls()
    assert call.prompts == []
    assert waits.seconds == []


@pytest.mark.parametrize(("billing", "times"), [("subscription", 1), ("subscription_strict", 1), (None, 0)])
async def test_a_cli_is_asked_once_for_the_settings_that_a_policy_needs(fake_claude: FakeMaker, billing: Any, times: int) -> None:
    fake = fake_claude(turn(steps.Text("Hello."), steps.Result()))
    options = ct.ClaudeOptions(cli_path=fake.path, env={"PATH": "/usr/bin:/bin"}, env_mode="exact")
    assert (await ask(options, billing=billing)).text == "Hello."
    (call,) = fake.calls()
    assert len(call.requests("get_settings")) == times


async def test_s1_1_blind_callers_catch_one_class_and_others_what_only_the_cli_raises(cli_options: Options) -> None:
    with pytest.raises(ct.ClaudeTransportError) as caught:
        await ask(cli_options(turn(steps.Exit(3))), retry=ct.RetryPolicy.none())
    assert isinstance(caught.value, ct.ProcessError)


# ------------------------------------------------------------------------------------------------------------ falling back


def both(options: ct.ClaudeOptions, api: FakeMessagesAPI) -> ct.ClaudeOptions:
    """The options of the CLI path, with a credential for the API path."""
    return options.replace(env={**options.env, **api.environment()})


async def test_a2_the_api_answers_for_a_cli_that_never_got_the_prompt_and_the_result_says_so(
    cli_options: Options, fake_messages_api: FakeMessagesAPI, caplog: pytest.LogCaptureFixture
) -> None:
    options = both(cli_options(cli_path="/nowhere/claude"), fake_messages_api)
    with caplog.at_level(logging.WARNING, logger="claude_transport"):
        completion = await ask(options, fallback=True, subject="grading")
    assert (completion.transport, completion.resolution.kind, completion.attempts) == ("api", "api", 2)
    assert completion.text == "Hello from the fake Messages API."
    assert completion.billing_source == "api account"
    assert completion.warnings[0].startswith("fallback: ")
    assert "exec.cli.binary_not_found" in completion.resolution.reason
    assert "goes to the API instead (grading)" in caplog.text


async def test_a2_a_process_that_dies_before_the_prompt_is_tried_again_and_then_replaced(
    cli_options: Options, fake_messages_api: FakeMessagesAPI, waits: Waits
) -> None:
    completion = await ask(both(cli_options(DIES_AT_ONCE), fake_messages_api), fallback=True, sleep=waits)
    assert (completion.transport, completion.attempts) == ("api", 3)
    assert waits.follow([1])


@pytest.mark.parametrize(
    ("scenario", "arguments"),
    [
        (DIES_AT_ONCE, {}),
        (turn(steps.Exit(3)), {"fallback": True}),
        (turn(steps.Result(is_error=True, terminal_reason="api_error", api_error_status=401)), {"fallback": True}),
    ],
    ids=["nobody-allowed-it", "the-prompt-was-handed-over", "the-cli-has-answered"],
)
async def test_a2_nothing_else_falls_back(
    cli_options: Options, fake_messages_api: FakeMessagesAPI, scenario: Scenario, arguments: dict[str, Any], waits: Waits
) -> None:
    with pytest.raises(ct.ClaudeTransportError):
        await ask(both(cli_options(scenario), fake_messages_api), sleep=waits, **arguments)
    assert fake_messages_api.requests == []


async def test_a2_a_wrong_option_does_not_fall_back(cli_options: Options, fake_messages_api: FakeMessagesAPI) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ask(both(cli_options(max_turns=0), fake_messages_api), fallback=True)
    assert caught.value.option == "max_turns"
    assert fake_messages_api.requests == []


async def test_a2_without_a_credential_the_error_of_the_cli_stays(cli_options: Options) -> None:
    with pytest.raises(ct.CLINotFoundError):
        await ask(cli_options(cli_path="/nowhere/claude"), fallback=True)


async def test_a2_a_call_whose_time_is_up_does_not_fall_back(cli_options: Options, fake_messages_api: FakeMessagesAPI) -> None:
    options = both(cli_options(Scenario(answers={"initialize": Answer(never=True)})), fake_messages_api)
    with pytest.raises(ct.MissingResult) as caught:
        await ask(options, fallback=True, timeout=1.0)
    assert str(caught.value).endswith("(transport=cli, category=timeout)")
    there = ct.completion.partial_completion(caught.value)
    assert there is not None
    assert (there.transport, there.attempts, there.warnings) == ("cli", 1, (NO_RESULT,))


async def test_a2_a_billing_policy_that_forbids_the_api_forbids_falling_back_to_it(cli_options: Options) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ask(cli_options(), fallback=True, billing="subscription")
    assert caught.value.option == "billing"


# --------------------------------------------------------------------------------------------------------- which path


async def test_s1_2_auto_is_the_cli_where_there_is_one_and_else_the_api(cli_options: Options, fake_messages_api: FakeMessagesAPI) -> None:
    here, nowhere = cli_options(), cli_options(cli_path="/nowhere/claude")
    assert (await ask(both(here, fake_messages_api), transport="auto")).transport == "cli"
    assert (await ask(both(here, fake_messages_api), transport=None)).transport == "cli"
    assert (await ask(both(nowhere, fake_messages_api), transport="auto")).transport == "api"
    with pytest.raises(ct.ConfigurationError) as caught:
        await ask(nowhere, transport="auto")
    assert caught.value.code == "config.no_auth_path"


async def test_s1_3_the_call_wins_over_the_environment_and_that_over_the_declaration(
    cli_options: Options, fake_messages_api: FakeMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = both(cli_options(), fake_messages_api)
    declared = await ask(options, transport=None, declared={"transport": "api"})
    assert (declared.transport, declared.resolution.layer) == ("api", "declared")
    monkeypatch.setenv("CLAUDE_TRANSPORT", "cli")
    shell = await ask(options, transport=None, declared="api")
    assert (shell.transport, shell.resolution.layer) == ("cli", "environment")
    call = await ask(options, transport="api", declared="cli")
    assert (call.transport, call.resolution.layer) == ("api", "argument")
    with pytest.raises(ct.ConfigurationError, match="null"):
        monkeypatch.delenv("CLAUDE_TRANSPORT")
        await ask(options, transport=None, declared={"transport": None})


async def test_auto_does_not_go_to_an_api_that_may_not_be_paid_for(cli_options: Options, fake_messages_api: FakeMessagesAPI) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ask(cli_options(cli_path="/nowhere/claude"), transport="auto", billing="subscription")
    assert caught.value.code == "config.no_auth_path"


# -------------------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ({"transport": "carrier pigeon"}, "transport"),
        ({"billing": "somebody"}, "billing"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"retry": 3}, "retry"),
        ({"model": 5}, "model"),
        ({"system": b"x"}, "system"),
        ({"subject": 5}, "subject"),
        ({"heuristics": "yes"}, "heuristics"),
        ({"fallback": "api"}, "fallback"),
        ({"options": {"model": "x"}}, "options"),
    ],
)
async def test_an_argument_that_cannot_be_meant_is_refused_by_name(cli_options: Options, arguments: Any, option: str) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ask(**{"options": cli_options(), **arguments})
    assert caught.value.option == option


@pytest.mark.parametrize("transport", ["cli", "api"])
@pytest.mark.parametrize(
    "prompt",
    [
        *("", "  \n", [], None, 5, b"bytes", ["text"], [{"no": "type"}]),
        *([{"type": "text", "text": b"bytes"}], [{"type": "text", "text": float("nan")}], [{"type": "text", "text": object()}]),
        *("half of a pair: \ud800", [{"type": "text", "text": "\udfff"}]),
    ],
)
async def test_a_prompt_that_is_none_is_refused(cli_options: Options, transport: Any, prompt: Any) -> None:
    with pytest.raises(ct.UsageError):
        await ask(cli_options(), prompt, transport=transport)


async def test_who_pays_is_found_before_the_cli_runs(cli_options: Options) -> None:
    for variable, payer in (("ANTHROPIC_AUTH_TOKEN", "token owner"), ("CLAUDE_CODE_OAUTH_TOKEN", "subscription")):
        completion = await ask(cli_options(Scenario.text("Hello."), env={"PATH": "/usr/bin:/bin", variable: "geheim"}))
        assert (completion.text, completion.billing_source) == ("Hello.", payer)
