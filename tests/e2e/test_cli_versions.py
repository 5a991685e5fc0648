"""What differs between versions of the CLI, on the one under test: the table of features is true for it, and agents work on all."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import PATIENCE, Live, bash
from test_agents_and_shells import agent, by_speaker

import claude_transport as ct
from claude_transport.launch.argv import FIXED_ARGUMENTS
from claude_transport.launch.features import FEATURES, Feature, check_range, supports
from claude_transport.launch.options import ClaudeOptions
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.version_sensitive

AGENTS = {"helper": {"description": "helps", "prompt": "You are the helper.", "tools": ["Bash"]}}
SWITCHES = {
    "--exclude-dynamic-system-prompt-sections",
    "--session-mirror",
    "--forward-subagent-text",
    "--restricted",
    "--await-initialize",
    "--safe-mode",
    "--managed-settings-in-initialize",
}
HALTING = {
    "mcp_call",
    "register_repo_root",
    "reload_connectors",
    "set_proactivity_level",
    "rewind_conversation",
    "set_cwd",
    "message_rated",
}
"""Requests that some version never answers without their fields, nor anything after them: asked last, and not judged then."""
SLOW = {"get_workspace_diff", "export_conversation"}
NO_ANSWER = 5.0  # seconds that they get; what the CLI does not know it refuses within milliseconds


class NoAPI:
    """Nothing that could be asked: the CLI ends before it would."""

    def environment(self, **extra: str) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_API_KEY": "sk-ant-fake", "DISABLE_AUTOUPDATER": "1", **extra}


def rows(kind: str) -> list[Feature]:
    return [feature for feature in FEATURES if feature.kind == kind]


def told(value: bool | None, *, known: bool) -> bool:
    """Whether what the table says of a feature is what the CLI said; None says nothing."""
    return value is None or value is known


# ------------------------------------------------------------------------------------------------------------ the table itself


def test_the_version_is_in_the_supported_range(cli_version: str) -> None:
    check_range(cli_version)


def test_the_cli_knows_the_flags_that_the_table_says_it_knows(
    claude_cli: str, cli_version: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    env = cli_env(NoAPI())
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Be brief.", "utf-8")
    values = {"--append-subagent-system-prompt-file": str(prompt), "--project-config-root": "/"}
    wrong = []
    for feature in rows("flag"):
        flag = feature.name if feature.name in SWITCHES else f"{feature.name}={values.get(feature.name, '1')}"
        ran = subprocess.run(
            [claude_cli, *FIXED_ARGUMENTS, flag, "--no-such-flag"],
            env=env,
            cwd=cli_home.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        known = f"unknown option '{feature.name}" not in ran.stderr.decode()
        if not told(supports(feature.name, version=cli_version), known=known):
            wrong.append((feature.name, known))
    assert wrong == []


async def test_the_cli_knows_the_requests_that_the_table_says_it_knows(
    claude_cli: str, cli_version: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]
) -> None:
    names = sorted((feature.name for feature in rows("request") if "." not in feature.name), key=lambda name: name in HALTING)
    lines = [json.dumps({"type": "control_request", "request_id": name, "request": {"subtype": name}}) for name in names]
    answers: dict[str, Any] = {}
    async with FakeMessagesAPI() as api:
        options = ClaudeOptions(cwd=cli_home.project, env=cli_env(api), env_mode="exact")
        transport = ct.SubprocessTransport(options, command=[claude_cli, *FIXED_ARGUMENTS])
        with anyio.fail_after(PATIENCE):
            async with transport:
                await transport.write("\n".join(lines) + "\n")
                with anyio.move_on_after(NO_ANSWER):
                    async for message in transport.read_messages():
                        if message["type"] == "control_response":
                            answers[message["response"]["request_id"]] = message["response"]
                        if len(answers) == len(names):
                            break
    unknown = {name: "Unsupported" in answer.get("error", "") for name, answer in answers.items()}
    assert [name for name in names if name not in unknown and name not in HALTING | SLOW] == []
    wrong = [name for name, is_unknown in unknown.items() if not told(supports(name, version=cli_version), known=not is_unknown)]
    assert wrong == []


# ------------------------------------------------------------------------------------------- what works on every version


@pytest.mark.parametrize("whose", ["options", "query"])
async def test_an_agent_works_wherever_it_is_defined(live: Live, cli_home: Any, whose: str) -> None:
    script = by_speaker([agent(run_in_background=False), replies.text("Main done.")], [bash("touch made"), replies.text("Sub done.")])
    defined: dict[str, Any] = {"agents": AGENTS} if whose == "query" else {"chosen": {"agents": AGENTS}}
    async with live(script, **defined, allowed_tools=["Agent", "Bash"]) as session:
        assert "helper" in [known.name for known in session.query.initialization.agents]
        assert (await session.ask("MAIN")).result == "Main done."
        systems = [json.dumps(request.body["system"]) for request in session.api.conversation]
    assert [system for system in systems if "You are the helper." in system] != []
    assert (cli_home.project / "made").exists()


async def test_an_agent_of_the_options_can_lead_the_session(live: Live) -> None:
    async with live([replies.text("At once.")], chosen={"agents": AGENTS}, agent="helper") as session:
        assert (await session.ask("Hi")).result == "At once."
        assert "You are the helper." in json.dumps(session.api.conversation[0].body["system"])


async def test_an_option_that_no_version_knows_is_named_with_the_version(live: Live, cli_version: str) -> None:
    with pytest.raises(ct.errors.CLIVersionMismatch, match=cli_version) as caught:
        async with live([], extra_args={"from-the-future": "s3cret"}):
            pytest.fail("it started")
    error = caught.value
    assert (error.code, error.flag, error.version) == ("exec.cli.version_mismatch", "--from-the-future", cli_version)
    assert error.exit_code == 1
    assert "unknown option '--from-the-future" in error.stderr_tail
    assert error.reason == "error: unknown option '--from-the-future'"
    assert "s3cret" not in str(error)


async def test_a_running_cli_tells_its_version(live: Live, cli_version: str) -> None:
    async with live([replies.text("Hello.")]) as session:
        assert session.query.info.cli_version == cli_version
        messages = await session.hear("Hi")
    assert [message.claude_code_version for message in messages if isinstance(message, ct.messages.InitMessage)] == [cli_version]


# -------------------------------------------------------------------------------------- what it lacks is refused by the library


async def test_a_request_is_refused_with_its_name_and_the_version_where_it_is_missing(live: Live, cli_version: str) -> None:
    async with live([]) as session:
        for feature in rows("request"):
            if supports(feature.name, version=cli_version) is False:
                subtype, _, field = feature.name.partition(".")
                with pytest.raises(ct.errors.CLIVersionMismatch) as caught:
                    await session.query.request(subtype, **({field: True} if field else {}))
                assert (caught.value.flag, caught.value.version) == (feature.name, cli_version)


async def test_an_option_is_refused_with_its_flag_and_the_version_where_it_is_missing(live: Live, cli_version: str) -> None:
    for feature in rows("flag"):
        if supports(feature.name, version=cli_version) is False:
            value = None if feature.name in SWITCHES else "1"
            with pytest.raises(ct.errors.CLIVersionMismatch) as caught:
                async with live([], extra_args={feature.name.removeprefix("--"): value}):
                    pytest.fail("it started")
            assert (caught.value.flag, caught.value.version) == (feature.name, cli_version)


async def test_what_would_be_dropped_of_initialize_is_refused_where_it_is_missing(live: Live, cli_version: str) -> None:
    async def ignore(_given: Any, _tool_use_id: Any, _context: Any) -> None: ...

    for feature in [*rows("initialize"), *rows("hook")]:
        if supports(feature.name, version=cli_version) is False:
            kind, _, name = feature.name.partition(".")
            asked: dict[str, Any] = {"initialize": {name: ["x"]}}
            if kind == "hook":
                asked = {"hooks": {ct.hooks.HookEvent(name): [ct.HookMatcher(hooks=[ignore])]}}
            with pytest.raises(ct.errors.CLIVersionMismatch) as caught:
                async with live([], **asked):
                    pytest.fail("it started")
            assert (caught.value.flag, caught.value.version) == (feature.name, cli_version)


async def test_a_verbatim_prompt_is_taken_as_text_or_refused(live: Live, cli_version: str) -> None:
    async with live([replies.text("Only text."), replies.text("Again.")], verbatim_prompts=True) as session:
        assert (await session.ask("Hello")).result == "Only text."
        if supports("prompt.client_composed", version=cli_version):
            assert (await session.ask("/usage")).result == "Again."
        else:
            with pytest.raises(ct.errors.CLIVersionMismatch) as caught:
                await session.ask("/usage")
            assert (caught.value.flag, caught.value.version) == ("prompt.client_composed", cli_version)
