"""What a call may not ask of Codex: refused by name before any process starts. And what becomes of the options of both agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import claude_transport as ct
from claude_transport.agents.agent import RUN_ONLY
from claude_transport.codex import CodexOptions
from claude_transport.codex.asking import HONOURED, PLAIN_CODEX, CodexCall, input_of
from claude_transport.completion import partial_completion
from claude_transport.completion.request import CompletionRequest
from claude_transport.completion.resolution import AgentResolution
from claude_transport.launch.options import fields_of
from claude_transport.sessions import InMemorySessionStore

CODEX = AgentResolution(kind="codex", layer="argument", choice="codex", reason="the call says codex")


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_TRANSPORT", "CLAUDE_TRANSPORT_AGENT", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tripwire(tmp_path: Path) -> tuple[CodexOptions, Path]:
    """Options whose program leaves a file when it is started."""
    trace, program = tmp_path / "started", tmp_path / "codex"
    program.write_text(f"#!/bin/sh\ntouch {trace}\nexit 1\n")
    program.chmod(0o755)
    return CodexOptions(codex_path=program, env={"PATH": "/usr/bin:/bin"}, env_mode="exact"), trace


def call(options: Any = None, codex: CodexOptions | None = None, **arguments: str) -> CodexCall:
    given = ct.ClaudeOptions() if options is None else options
    return CodexCall(
        CompletionRequest(prompt="", options=given, agent_options=codex, chosen=CODEX, arguments=arguments, plain=options is None)
    )


# ------------------------------------------------------------------------------------------------------------ what is refused


class Equal(InMemorySessionStore):
    """A store that says that it is equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "the API path": ({"transport": "api"}, "transport"),
    "the API path, declared": ({"declared": {"transport": "api", "agent": "codex"}, "agent": None}, "transport"),
    "a fallback": ({"fallback": True}, "fallback"),
    "a model of Claude": ({"model": "haiku"}, "model"),
    "a model of Claude, as an option": ({"options": ct.ClaudeOptions(model="claude-opus-5-5")}, "model"),
    "a limit of tokens": ({"max_tokens": 100}, "max_tokens"),
    "a limit of tokens, as an option": ({"options": ct.ClaudeOptions(max_output_tokens=100)}, "max_output_tokens"),
    "a limit of turns": ({"options": ct.ClaudeOptions(max_turns=3)}, "max_turns"),
    "a budget": ({"options": ct.ClaudeOptions(max_budget_usd=1.0)}, "max_budget_usd"),
    "no tools": ({"options": ct.ClaudeOptions(tools=[])}, "tools"),
    "rules": ({"options": ct.ClaudeOptions(allowed_tools=["Bash"])}, "allowed_tools"),
    "a mode": ({"options": ct.ClaudeOptions(permission_mode="plan")}, "permission_mode"),
    "servers": ({"options": ct.ClaudeOptions(mcp_servers={"a": {"command": "b"}})}, "mcp_servers"),
    "a fork": ({"options": ct.ClaudeOptions(resume="x", fork_session=True)}, "fork_session"),
    "a session id": ({"options": ct.ClaudeOptions(session_id="584ca48f-4b77-444b-bef6-e50ce8530e7f")}, "session_id"),
    "the last session": ({"options": ct.ClaudeOptions(continue_conversation=True)}, "continue_conversation"),
    "a preset": ({"options": ct.ClaudeOptions(system_prompt={"type": "preset", "preset": "claude_code"})}, "system_prompt"),
    "an addition to the prompt": ({"options": ct.ClaudeOptions(append_system_prompt="x")}, "append_system_prompt"),
    "a schema without an object": ({"options": ct.ClaudeOptions(output_format={"type": "json_schema", "schema": []})}, "output_format"),
    "another format": ({"options": ct.ClaudeOptions(output_format={"type": "text"})}, "output_format"),
    "a schema that cannot be checked": (
        {"options": ct.ClaudeOptions(output_format={"type": "json_schema", "schema": {"if": {}}})},
        "output_format",
    ),
    "a block that is no text": ({"prompt": [{"type": "document", "source": {"type": "text", "data": "x"}}]}, "prompt"),
    "a sandbox that is none": ({"codex": CodexOptions(sandbox="sand")}, "sandbox"),  # type: ignore[arg-type]
    "settings": ({"options": ct.ClaudeOptions(settings={"a": 1})}, "settings"),
    "a session store": ({"options": ct.ClaudeOptions(session_store=Equal())}, "session_store"),
}


@pytest.mark.parametrize(("arguments", "option"), REFUSED.values(), ids=REFUSED)
async def test_s1_10_what_codex_cannot_do_is_refused_by_name_before_a_process_starts(
    arguments: dict[str, Any], option: str, tripwire: tuple[CodexOptions, Path]
) -> None:
    codex, trace = tripwire
    given: dict[str, Any] = {"prompt": "Hi", "agent": "codex", "codex": codex, **arguments}
    for begin in (ct.complete(**given), anext(ct.stream(**given))):
        with pytest.raises(ct.ConfigurationError) as caught:
            await begin
        assert caught.value.option == option
        assert option in str(caught.value)
        there = partial_completion(caught.value)
        assert there is not None
        assert there.attempts == 0
    assert not trace.exists()


async def test_the_api_of_the_environment_contradicts_codex_too(
    tripwire: tuple[CodexOptions, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_TRANSPORT", "api")
    with pytest.raises(ct.ConfigurationError, match="CLAUDE_TRANSPORT says api, but the call says codex") as caught:
        await ct.complete("Hi", agent="codex", codex=tripwire[0])
    assert caught.value.option == "transport"


async def test_one_place_that_says_codex_and_api_is_named_once(tripwire: tuple[CodexOptions, Path]) -> None:
    said = "transport: the call says codex and api, and Codex has no API path"
    with pytest.raises(ct.ConfigurationError, match=said) as caught:
        await ct.complete("Hi", agent="codex", transport="api", codex=tripwire[0])
    assert (caught.value.code, caught.value.option) == ("config.invalid", "transport")
    report = ct.preflight("api", agent="codex", codex=tripwire[0], env={"HOME": "/nowhere"})
    assert (report.ok, report.code, report.option) == (False, "config.invalid", "transport")
    assert report.problem.startswith(said)


async def test_options_of_codex_are_refused_where_the_call_says_claude_code() -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", agent="claude-code", codex=CodexOptions())
    assert caught.value.option == "codex"


def test_every_option_of_claude_is_honoured_means_nothing_or_is_refused() -> None:
    names = {field.name for field in fields_of(ct.ClaudeOptions)}
    assert names >= {*HONOURED, *RUN_ONLY}
    assert not {*HONOURED} & {*RUN_ONLY}
    assert set(HONOURED) == {
        *("model", "system_prompt", "output_format", "cwd", "resume", "no_session_persistence", "env", "env_mode", "env_allow", "billing")
    }
    limits = (
        "restricted",
        "safe_mode",
        "bare",
        "disallowed_tools",
        "permission_prompts",
        "sandbox",
        "max_retries",
        "background_wait_ceiling",
    )
    assert not set(limits) & {*HONOURED, *RUN_ONLY}, "what limits a run is never ignored"


async def test_s3_1_an_account_that_may_not_pay_is_refused_before_a_process_starts(tripwire: tuple[CodexOptions, Path]) -> None:
    codex, trace = tripwire
    provider = {"model_provider": "lab", "model_providers.lab": {"name": "lab", "base_url": "http://127.0.0.1:9/v1", "env_key": "LAB_KEY"}}
    codex = codex.replace(config=provider, env={**codex.env, "LAB_KEY": "sk-lab"})
    asked: list[dict[str, Any]] = [{"billing": "subscription_strict"}, {"options": ct.ClaudeOptions(billing="subscription_strict")}]
    for arguments in asked:
        with pytest.raises(ct.ConfigurationError, match="LAB_KEY") as caught:
            await ct.complete("Hi", agent="codex", codex=codex, **arguments)
        assert caught.value.option == "billing"
        there = partial_completion(caught.value)
        assert there is not None
        assert there.attempts == 0
    assert not trace.exists()


# --------------------------------------------------------------------------------------------------------- what becomes of it


def test_without_options_codex_can_only_read_and_asks_for_nothing() -> None:
    assert call().options == PLAIN_CODEX == CodexOptions(sandbox="read-only", approval_policy="never")
    assert call().thread_settings == {}
    call().check()


def test_an_argument_counts_before_the_options_of_codex_and_these_before_those_of_claude() -> None:
    claude = ct.ClaudeOptions(model="gpt-a", cwd="/claude", env={"A": "claude", "B": "claude"}, env_mode="exact", billing="api_key")
    assert call(claude, CodexOptions(model="gpt-b", cwd="/codex", env={"A": "codex"})).options == CodexOptions(
        model="gpt-b", cwd="/codex", env={"A": "codex", "B": "claude"}, env_mode="exact", billing="api_key"
    )
    argued = call(claude, CodexOptions(model="gpt-b", billing="subscription"), model="model", billing="billing").options
    assert (argued.model, argued.billing) == ("gpt-a", "api_key")
    assert call(claude, None).options.sandbox == "read-only"


def test_the_system_prompt_and_the_wish_to_keep_nothing_are_settings_of_the_thread() -> None:
    assert call(ct.ClaudeOptions(system_prompt="Be brief.")).thread_settings == {"baseInstructions": "Be brief."}
    assert call(ct.ClaudeOptions(system_prompt="")).thread_settings == {"baseInstructions": ""}
    assert call(ct.ClaudeOptions(no_session_persistence=True)).thread_settings == {"ephemeral": True}
    assert call(ct.ClaudeOptions()).thread_settings == {}


def test_text_and_images_are_taken_from_a_prompt_of_blocks() -> None:
    blocks = [
        {"type": "text", "text": "What?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ]
    assert input_of(blocks) == [
        {"type": "text", "text": "What?", "text_elements": []},
        {"type": "image", "url": "data:image/png;base64,AA=="},
        {"type": "image", "url": "https://example.org/a.png"},
    ]
    assert input_of("Hi") == [{"type": "text", "text": "Hi", "text_elements": []}]


# ------------------------------------------------------------------------------------------------------------- pre-flight


def test_preflight_reports_codex_where_codex_would_answer(tripwire: tuple[CodexOptions, Path], tmp_path: Path) -> None:
    codex, trace = tripwire
    env = {"HOME": str(tmp_path), "CLAUDE_CLI_PATH": "/nowhere/claude"}
    report = ct.preflight(env=env, agent="codex", codex=codex)
    assert report.ok
    assert (report.agent, report.cli is not None and report.cli.path) == ("codex", str(codex.codex_path))
    assert report.resolution is not None
    assert report.resolution.kind == "cli"
    keyed = codex.replace(
        config={"model_provider": "lab", "model_providers.lab": {"env_key": "LAB_KEY"}}, env={**codex.env, "LAB_KEY": "x"}
    )
    paid = ct.preflight(env=env, agent="codex", codex=keyed)
    assert (paid.credential, paid.payer) == ("LAB_KEY", "api account")
    by_variable = ct.preflight(env={**env, "CLAUDE_TRANSPORT_AGENT": "auto", "CODEX_CLI_PATH": str(codex.codex_path)})
    assert (by_variable.agent, by_variable.ok) == ("codex", True)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "option"),
    [
        ({"transport": "api"}, "config.invalid", "transport"),
        ({"options": ct.ClaudeOptions(max_turns=1)}, "config.invalid", "max_turns"),
        ({"options": ct.ClaudeOptions(model="opus")}, "config.invalid", "model"),
        ({"codex": CodexOptions(codex_path="/nowhere/codex")}, "exec.cli.binary_not_found", "codex_path"),
    ],
)
def test_preflight_reports_what_a_call_to_codex_would_be_refused_for(
    arguments: dict[str, Any], code: str, option: str, tripwire: tuple[CodexOptions, Path], tmp_path: Path
) -> None:
    env = {"HOME": str(tmp_path)}
    report = ct.preflight(**{"env": env, "agent": "codex", "codex": tripwire[0], **arguments})
    assert (report.ok, report.code, report.option) == (False, code, option)
    with pytest.raises(ct.ConfigurationError) as caught:
        report.raise_for_problem()
    assert caught.value.code == code


def test_preflight_reports_that_auto_finds_no_agent(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "CLAUDE_CLI_PATH": "/nowhere/claude", "CODEX_CLI_PATH": "/nowhere/codex"}
    report = ct.preflight(env=env, agent="auto")
    assert (report.ok, report.code, report.option, report.agent) == (False, "config.no_agent", "agent", None)
    assert ct.preflight(env={**env, "ANTHROPIC_API_KEY": "sk-ant-fake"}, agent="auto").agent == "claude-code"
    with pytest.raises(ct.ConfigurationError, match="the call says 'gemini'"):
        ct.preflight(env=env, agent="gemini")  # type: ignore[arg-type]
