"""Half of a surrogate pair in any argument of a call or a session is refused with the argument's name, and nothing is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from codex_player import connected, sent

import claude_transport as ct
from claude_transport.bridge import HostTool
from claude_transport.codex import CodexOptions, CodexSession
from claude_transport.testing import FakeClaude, FakeCodex, Scenario

HALF = "a\ud800b"
WORLD = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
FORMAT = {"type": "json_schema", "schema": {"type": "object", "description": HALF}}

ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "system": ("system", {"system": HALF}),
    "model": ("model", {"model": HALF}),
    "subject": ("subject", {"subject": HALF}),
}
"""Arguments that every path takes: the name in the error, and the argument."""

OF_CLAUDE: dict[str, tuple[str, dict[str, Any]]] = {
    "cwd": ("cwd", {"cwd": f"/{HALF}"}),
    "config_dir": ("config_dir", {"config_dir": f"/{HALF}"}),
    "a variable": ("env", {"env": {**WORLD, "A": HALF}}),
    "the name of a variable": ("env", {"env": {**WORLD, HALF: "a"}}),
    "model": ("model", {"model": HALF}),
    "system_prompt": ("system_prompt", {"system_prompt": HALF}),
    "extra_args": ("extra_args", {"extra_args": {"flag": HALF}}),
    "tools": ("tools", {"tools": [HALF]}),
    "allowed_tools": ("allowed_tools", {"allowed_tools": [HALF]}),
    "output_format": ("output_format", {"output_format": FORMAT}),
    "resume": ("resume", {"resume": HALF}),
}

OF_CODEX: dict[str, tuple[str, dict[str, Any]]] = {
    "cwd": ("cwd", {"cwd": f"/{HALF}"}),
    "codex_path": ("codex_path", {"codex_path": f"/{HALF}"}),
    "codex_home": ("codex_home", {"codex_home": f"/{HALF}"}),
    "a variable": ("env", {"env": {**WORLD, "A": HALF}}),
    "the name of a variable": ("env", {"env": {**WORLD, HALF: "a"}}),
    "env_allow": ("env_allow", {"env_allow": [HALF]}),
    "model": ("model", {"model": HALF}),
    "extra_args": ("extra_args", {"extra_args": ["--disable", HALF]}),
    "config": ("config", {"config": {"a.b": [HALF]}}),
}


@pytest.fixture
def codex() -> Iterator[FakeCodex]:
    with FakeCodex() as fake:
        yield fake


@pytest.fixture
def claude(fake_claude: Callable[..., FakeClaude]) -> FakeClaude:
    return fake_claude(Scenario.echo())


async def refused(option: str, **arguments: Any) -> None:
    with anyio.fail_after(60), pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", **arguments)
    assert caught.value.option == option
    assert str(caught.value).startswith(option)
    assert HALF not in str(caught.value)


@pytest.mark.parametrize(("option", "arguments"), ARGUMENTS.values(), ids=ARGUMENTS)
async def test_an_argument_is_refused_on_every_path(claude: FakeClaude, codex: FakeCodex, option: str, arguments: dict[str, Any]) -> None:
    given = ct.ClaudeOptions(cli_path=claude.path, env={**WORLD, "ANTHROPIC_API_KEY": "sk-ant-fake"}, env_mode="exact")
    for path in ({"transport": "cli", "options": given}, {"transport": "api", "options": given}, {"agent": "codex"}):
        own = {"codex": CodexOptions(codex_path=codex.path, env=WORLD, env_mode="exact")} if "agent" in path else {}
        await refused(option, **path, **own, **arguments)
    assert (claude.calls(), codex.calls()) == ([], [])


@pytest.mark.parametrize("prompt", [HALF, [{"type": "text", "text": HALF}]], ids=["text", "blocks"])
async def test_a_prompt_is_refused_like_any_other_that_is_none(codex: FakeCodex, prompt: Any) -> None:
    options = CodexOptions(codex_path=codex.path, env=WORLD, env_mode="exact")
    with anyio.fail_after(60), pytest.raises(ct.UsageError, match="the prompt cannot be sent: it holds half of a surrogate pair"):
        await ct.complete(prompt, agent="codex", codex=options)
    assert codex.calls() == []


@pytest.mark.parametrize(("option", "given"), OF_CLAUDE.values(), ids=OF_CLAUDE)
async def test_an_option_of_claude_is_refused(claude: FakeClaude, option: str, given: dict[str, Any]) -> None:
    options = ct.ClaudeOptions(**{"cli_path": claude.path, "env": WORLD, "env_mode": "exact", **given})
    await refused(option, transport="cli", options=options)
    with pytest.raises(ct.ConfigurationError) as caught:
        ct.SubprocessTransport(options)
    assert caught.value.option == option
    assert claude.calls() == []


@pytest.mark.parametrize(("option", "given"), OF_CODEX.values(), ids=OF_CODEX)
async def test_an_option_of_codex_is_refused(codex: FakeCodex, option: str, given: dict[str, Any]) -> None:
    options = CodexOptions(**{"codex_path": codex.path, "env": WORLD, "env_mode": "exact", **given})
    with anyio.fail_after(60), pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", agent="codex", codex=options)
    assert caught.value.option == option
    with pytest.raises(ct.ConfigurationError) as caught:
        ct.SubprocessTransport(options)
    assert caught.value.option == option
    assert codex.calls() == []


@pytest.mark.parametrize("option", ["system_prompt", "output_format", "resume"])
async def test_an_option_of_claude_is_refused_for_codex(codex: FakeCodex, option: str) -> None:
    _, given = OF_CLAUDE[option]
    options = CodexOptions(codex_path=codex.path, env=WORLD, env_mode="exact")
    await refused(option, agent="codex", codex=options, options=ct.ClaudeOptions(**given))
    assert codex.calls() == []


async def test_half_a_pair_that_a_path_may_have_is_none_in_a_system_prompt_of_codex(codex: FakeCodex, tmp_path: Path) -> None:
    """A byte of a file's name that is no UTF-8 (PEP 383) can be an argument, but no text in JSON."""
    options = CodexOptions(codex_path=codex.path, env=WORLD, env_mode="exact")
    await refused("system_prompt", agent="codex", codex=options, options=ct.ClaudeOptions(system_prompt="\udcff"))
    assert codex.calls() == []


async def call(_arguments: dict[str, Any], _context: Any) -> str:
    return ""


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("thread", {"thread": {"baseInstructions": HALF}}),
        ("resume", {"resume": HALF}),
        ("tools", {"tools": [HostTool(name="add", call=call, description=HALF, input_schema={"type": "object"})]}),
    ],
    ids=["thread", "resume", "tools"],
)
async def test_a_session_refuses_what_it_is_made_with(codex: FakeCodex, option: str, arguments: dict[str, Any]) -> None:
    transport = ct.SubprocessTransport(CodexOptions(codex_path=codex.path, env=WORLD, env_mode="exact"))
    with pytest.raises(ct.ConfigurationError) as caught:
        CodexSession(transport, **arguments)
    assert (caught.value.option, codex.calls()) == (option, [])


async def test_a_session_refuses_what_it_is_asked_to_send_and_goes_on() -> None:
    """Codex does not answer a line that it cannot read: the request would take its whole time."""
    async with connected() as (session, codex):
        for option, send in (
            ("content", lambda: session.send(HALF)),
            ("content", lambda: session.send([{"type": "text", "text": HALF}])),
            ("effort", lambda: session.send("Hi", effort=HALF)),
            ("baseInstructions", lambda: session.start_thread(baseInstructions=HALF)),
            ("threadId", lambda: session.resume_thread(HALF)),
            ("lastTurnId", lambda: session.fork(lastTurnId=HALF)),
            ("query", lambda: session.request("thread/list", {"query": HALF})),
        ):
            with pytest.raises(ct.ConfigurationError) as caught:
                await send()
            assert caught.value.option == option
        turn = await sent(session, codex, "Hi")
        await codex.complete()
        assert (await turn.result()).ok
