"""Which agent answers a call: the layers that choose it, what each agent refuses, and what is said about it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import claude_transport as ct
from claude_transport.completion.call import Announcer, announcement_of
from claude_transport.completion.models import ALIASES, KNOWN_MODELS, agent_of
from claude_transport.completion.resolution import AGENTS, AgentResolution, choose_agent, resolve_agent

Options = Callable[..., ct.ClaudeOptions]


@pytest.fixture(autouse=True)
def no_agent_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAUDE_TRANSPORT_AGENT", raising=False)
    monkeypatch.setenv("CODEX_CLI_PATH", "/nowhere/codex")


def program(path: Path) -> str:
    """An executable that would be run; it is not."""
    path.write_text("#!/bin/sh\nexit 99\n")
    path.chmod(0o755)
    return str(path)


# -------------------------------------------------------------------------------------------------------- the four layers


@pytest.mark.parametrize(
    ("explicit", "variable", "declared", "layer", "kind"),
    [
        ("codex", "claude-code", "claude-code", "argument", "codex"),
        ("claude-code", "codex", "codex", "argument", "claude-code"),
        ("auto", "codex", "codex", "argument", "claude-code"),
        (None, "codex", "claude-code", "environment", "codex"),
        (None, " codex\n", None, "environment", "codex"),
        (None, "auto", "codex", "environment", "claude-code"),
        (None, "", "codex", "declared", "codex"),
        (None, " \t\n", {"agent": "codex"}, "declared", "codex"),
        (None, None, {"transport": "api"}, "default", "claude-code"),
        (None, None, None, "default", "claude-code"),
    ],
)
def test_s1_10_the_strongest_layer_that_says_something_chooses_the_agent(
    explicit: Any, variable: str | None, declared: Any, layer: str, kind: str
) -> None:
    env = {} if variable is None else {"CLAUDE_TRANSPORT_AGENT": variable}
    found = ct.resolve_agent(explicit, env=env, declared=declared, claude_available=True, codex_available=True)
    assert (found.layer, found.kind) == (layer, kind)


@pytest.mark.parametrize(("claude", "codex", "kind"), [(True, True, "claude-code"), (True, False, "claude-code"), (False, True, "codex")])
def test_s1_10_auto_is_claude_if_it_is_there_and_then_codex(claude: bool, codex: bool, kind: str) -> None:
    found = ct.resolve_agent("auto", env={}, claude_available=claude, codex_available=codex)
    assert (found.kind, found.choice, found.layer) == (kind, "auto", "argument")


def test_s1_10_auto_without_any_agent_is_refused_with_what_to_do() -> None:
    with pytest.raises(ct.ConfigurationError, match="Install Claude Code") as caught:
        ct.resolve_agent("auto", env={}, claude_available=False, codex_available=False)
    assert (caught.value.code, caught.value.option) == ("config.no_agent", "agent")


def test_s1_10_the_reason_names_the_layer_and_what_was_found() -> None:
    def reason(explicit: Any = None, env: Any = None, *, declared: Any = None, claude: bool = True) -> str:
        return resolve_agent(explicit, env=env or {}, declared=declared, claude_available=claude, codex_available=True).reason

    assert reason() == "the default says claude-code"
    assert reason("codex") == "the call says codex"
    assert reason(env={"CLAUDE_TRANSPORT_AGENT": "codex"}) == "CLAUDE_TRANSPORT_AGENT says codex"
    assert reason(declared={"agent": "auto"}) == "the declaration says auto, and Claude is there"
    assert reason("auto", claude=False) == "the call says auto, no claude was found, and a codex was"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"declared": {"agent": None}}, "the declaration says null"),
        ({"declared": ""}, "the declaration says ''"),
        ({"explicit": "Codex"}, "the call says 'Codex'"),
        ({"explicit": "claude"}, "the call says 'claude'"),
        ({"explicit": 1}, "the call says 1"),
        ({"env": {"CLAUDE_TRANSPORT_AGENT": "gemini"}}, "CLAUDE_TRANSPORT_AGENT says 'gemini'"),
    ],
)
def test_s1_10_an_unknown_agent_is_refused_with_the_layer_that_said_it(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ct.ConfigurationError, match="not one of claude-code, codex, auto") as caught:
        resolve_agent(**{"env": {}, **arguments})
    assert said in str(caught.value)
    assert caught.value.option == "agent"
    assert AGENTS == ("claude-code", "codex", "auto")


def test_s1_10_facts_that_are_not_passed_are_looked_for_in_the_given_environment_only(tmp_path: Path) -> None:
    claude, codex = program(tmp_path / "claude"), program(tmp_path / "codex")
    nowhere = {"CLAUDE_CLI_PATH": "/nowhere/claude", "CODEX_CLI_PATH": "/nowhere/codex"}
    assert resolve_agent("auto", env={**nowhere, "CLAUDE_CLI_PATH": claude}).kind == "claude-code"
    assert resolve_agent("auto", env={**nowhere, "CODEX_CLI_PATH": codex}).kind == "codex"
    with pytest.raises(ct.ConfigurationError, match="no agent was found"):
        resolve_agent("auto", env=nowhere)


@pytest.mark.parametrize(
    ("transport", "cli", "codex", "key", "kind"),
    [
        ("auto", True, True, False, "claude-code"),
        ("auto", False, True, True, "codex"),
        ("auto", False, False, True, "claude-code"),
        ("api", False, True, False, "claude-code"),
        ("cli", False, True, True, "codex"),
        ("cli", False, False, True, None),
        ("auto", False, False, False, None),
    ],
)
def test_s1_10_in_a_call_the_messages_api_is_claude_too(transport: Any, cli: bool, codex: bool, key: bool, kind: str | None) -> None:
    def choose() -> AgentResolution:
        return choose_agent(
            "auto", env={}, declared="cli", transport=transport, has_cli=lambda: cli, has_other=lambda: codex, has_key=lambda: key
        )

    if kind is None:
        with pytest.raises(ct.ConfigurationError) as caught:
            choose()
        assert caught.value.code == "config.no_agent"
    else:
        assert choose().kind == kind


# ------------------------------------------------------------------------------------------------------ whose model it is


@pytest.mark.parametrize(
    ("model", "agent"),
    [
        *((name, "claude-code") for name in (*KNOWN_MODELS, *ALIASES)),
        *((name, "claude-code") for name in ("opus[1m]", "OPUS", "opusplan", "us.anthropic.claude-opus-4-6-v1:0", "claude-sonnet-5@2026")),
        *((name, "codex") for name in ("gpt-5.5", "gpt-5.5-codex", "codex-mini-latest", "o3", "o4-mini", "openai/gpt-5.5", "GPT-5")),
        *((name, None) for name in ("llama-4", "my-model", "o3x", "octopus", "qwen3-coder", "")),
    ],
)
def test_the_name_of_a_model_says_whose_it_is_or_nothing(model: str, agent: str | None) -> None:
    assert agent_of(model) == agent


# -------------------------------------------------------------------------------------------------------- calls to Claude


async def test_the_default_is_claude_code_and_the_answer_says_so(cli_options: Options) -> None:
    answer = await ct.complete("Hi", transport="cli", options=cli_options())
    assert (answer.agent, answer.agent_resolution.layer, answer.transport) == ("claude-code", "default", "cli")


async def test_an_agent_that_was_asked_for_is_in_the_answer(cli_options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = await ct.complete("Hi", transport="cli", agent="claude-code", options=cli_options())
    assert (asked.agent, asked.agent_resolution.layer) == ("claude-code", "argument")
    monkeypatch.setenv("CLAUDE_TRANSPORT_AGENT", "codex")
    won = await ct.complete("Hi", transport="cli", agent="auto", options=cli_options())
    assert (won.agent, won.agent_resolution.choice) == ("claude-code", "auto")
    monkeypatch.setenv("CLAUDE_TRANSPORT_AGENT", "auto")
    declared = await ct.complete("Hi", declared={"transport": "cli", "agent": "codex"}, options=cli_options())
    assert (declared.agent, declared.agent_resolution.layer) == ("claude-code", "environment")


async def test_a_declared_text_is_a_path_and_no_agent(cli_options: Options) -> None:
    assert (await ct.complete("Hi", declared="cli", options=cli_options())).agent == "claude-code"


@pytest.mark.parametrize("layer", ["argument", "environment", "declared"])
async def test_a_model_of_codex_is_refused_where_claude_code_was_chosen(
    cli_options: Options, monkeypatch: pytest.MonkeyPatch, layer: str
) -> None:
    arguments: dict[str, Any] = {"argument": {"agent": "claude-code"}, "declared": {"declared": {"agent": "claude-code"}}}.get(layer, {})
    if layer == "environment":
        monkeypatch.setenv("CLAUDE_TRANSPORT_AGENT", "claude-code")
    with pytest.raises(ct.ConfigurationError, match=r"gpt-5\.5.*is a model of Codex.*says claude-code") as caught:
        await ct.complete("Hi", model="gpt-5.5", transport="cli", options=cli_options(), **arguments)
    assert caught.value.option == "model"
    there = ct.completion.partial_completion(caught.value)
    assert there is not None
    assert there.attempts == 0


async def test_a_call_that_chose_no_agent_may_name_any_model(cli_options: Options) -> None:
    assert (await ct.complete("Hi", model="gpt-5.5", transport="cli", options=cli_options())).text


@pytest.mark.parametrize(("arguments", "option"), [({"agent": "gemini"}, "agent"), ({"codex": {"model": "gpt-5.5"}}, "codex")])
async def test_what_cannot_be_meant_is_refused_by_name(cli_options: Options, arguments: dict[str, Any], option: str) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", transport="cli", options=cli_options(), **arguments)
    assert caught.value.option == option
    with pytest.raises(ct.ConfigurationError) as caught:
        async for _ in ct.stream("Hi", transport="cli", options=cli_options(), **arguments):
            pass
    assert caught.value.option == option


async def test_auto_without_claude_codex_and_key_starts_nothing(cli_options: Options) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", agent="auto", options=cli_options(cli_path="/nowhere/claude"))
    assert caught.value.code == "config.no_agent"


def test_codex_is_loaded_only_where_it_is_asked_about(tmp_path: Path) -> None:
    code = """
import sys
import claude_transport as ct
from claude_transport.completion import call, readiness
import claude_transport.app.ask
ct.resolve_agent(env={})
ct.resolve_agent("codex", env={})
ct.preflight("cli", env={"HOME": "/nowhere", "CLAUDE_CLI_PATH": "/nowhere/claude"})
print([name for name in sys.modules if "codex" in name])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False, env={**os.environ})
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


# ---------------------------------------------------------------------------------------------------------- what is said


def test_s1_4_an_agent_that_auto_chose_is_announced_once() -> None:
    said: list[str] = []
    announcer = Announcer()
    codex = AgentResolution(kind="codex", layer="argument", reason="", choice="auto")
    assert [announcer.announce(codex, payer="subscription", say=said.append), announcer.announce(codex, say=said.append)] == [True, False]
    assert said == [
        'using the agent Codex (paid by: subscription); agent="claude-code" or CLAUDE_TRANSPORT_AGENT=claude-code chooses the other one'
    ]
    claude = AgentResolution(kind="claude-code", layer="default", reason="", choice="auto")
    assert announcement_of(claude) == 'using the agent Claude Code; agent="codex" or CLAUDE_TRANSPORT_AGENT=codex chooses the other one'


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_s1_4_an_agent_that_was_named_is_never_announced(kind: Any) -> None:
    assert announcement_of(AgentResolution(kind=kind, layer="environment", reason="", choice=kind)) is None
    assert announcement_of(AgentResolution()) is None
