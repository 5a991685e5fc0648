"""A transport that is not of this library is handed the same options, and runs and says what `SubprocessTransport` would."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from loading import load_file

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, steps

pytestmark = pytest.mark.filterwarnings("ignore:can_use_tool is not asked:UserWarning")

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "own_process.py"

Make = Callable[[ct.ClaudeOptions], ct.Transport]


@pytest.fixture(scope="module")
def own_process() -> Make:
    """The transport of the how-to, which is written with public names alone."""
    module = load_file(EXAMPLE, "own_process_example")
    return cast("Make", module.OwnProcess)


async def allow(*_: object) -> ct.Allow:
    return ct.Allow()


EVERYTHING: dict[str, Any] = {
    "model": "haiku",
    "system_prompt": "Be short.",
    "append_system_prompt": "Be kind.",
    "settings": {"permissions": {"deny": ["WebFetch"]}},
    "mcp_servers": {"a": {"type": "stdio", "command": "true"}},
    "agents": {"helper": {"description": "helps", "prompt": "You help."}},
    "allowed_tools": ["Bash(ls *)"],
    "skills": ["pdf"],
    "title": "A title",
    "max_retries": 3,
    "session_id": "11111111-1111-4111-8111-111111111111",
    "env": {"MARK": "here"},
}


async def heard(transport: ct.Transport, fake: FakeClaude) -> dict[str, Any]:
    """What the fake claude was started with and told first, without what differs from run to run."""
    with anyio.fail_after(30):
        async with ct.Query(transport, can_use_tool=allow) as query:
            result = await (await query.send("Hi")).result()
    call = fake.calls()[-1]
    (initialize,) = [frame["request"] for frame in call.messages if frame.get("request", {}).get("subtype") == "initialize"]
    (prompt,) = [frame["message"] for frame in call.messages if frame["type"] == "user"]
    argv = [re.sub(r"(?<=-file=|onfig=|tings=|gents=).*", "FILE", argument) for argument in call.argv]
    names = sorted(name for name in call.env_names if not name.startswith("CLAUDE_TRANSPORT_"))
    return {"argv": argv, "env": call.env, "names": names, "initialize": initialize, "prompt": prompt, "result": result.result}


async def test_another_transport_runs_and_says_the_same(own_process: Make) -> None:
    scenario = Scenario.turns([[steps.ToolUse("Bash", input={"command": "ls"}, output="x"), steps.Text("Done."), steps.Result()]])
    with FakeClaude(scenario) as fake:
        options = ct.ClaudeOptions(cli_path=fake.path, **EVERYTHING)
        theirs = await heard(own_process(options), fake)
        ours = await heard(ct.SubprocessTransport(options), fake)
    assert theirs == ours
    assert "--model=haiku" in theirs["argv"]
    assert "--permission-prompt-tool=stdio" in theirs["argv"]
    assert {"MARK", "CLAUDE_CODE_MAX_RETRIES"} <= {*theirs["names"]}
    assert (theirs["initialize"]["skills"], theirs["initialize"]["title"]) == (["pdf"], "A title")


async def test_the_private_files_hold_the_same_and_are_gone_afterwards(own_process: Make) -> None:
    with FakeClaude(Scenario.turns(["Hello!"])) as fake:
        options = ct.ClaudeOptions(cli_path=fake.path, system_prompt="Be short.")
        with anyio.fail_after(30):
            async with ct.Query(own_process(options)) as query:
                (flag,) = [argument for argument in fake.calls()[0].argv if argument.startswith("--system-prompt-file=")]
                path = anyio.Path(flag.partition("=")[2])
                assert await path.read_text("utf-8") == "Be short."
                assert (await path.parent.stat()).st_mode & 0o077 == 0
                await (await query.send("Hi")).result()
    assert not await path.exists()


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"permission_mode": "bypassPermissions"}, "permission_mode"),
        ({"settings": {"permissions": {"defaultMode": "dontAsk"}}}, "settings"),
    ],
)
async def test_a_callback_that_would_never_be_called_is_refused_there_too(own_process: Make, given: dict[str, Any], option: str) -> None:
    with FakeClaude(Scenario.turns(["Hello!"])) as fake:
        with pytest.raises(ct.ConfigurationError, match="can_use_tool would never be called") as caught:
            await ct.Query(own_process(ct.ClaudeOptions(cli_path=fake.path, **given)), can_use_tool=allow).start()
        assert fake.calls() == []
    assert caught.value.option == option


async def test_options_that_are_wrong_are_refused_there_too(own_process: Make) -> None:
    with FakeClaude(Scenario.turns(["Hello!"])) as fake:
        with pytest.raises(ct.ConfigurationError) as caught:
            await ct.Query(own_process(ct.ClaudeOptions(cli_path=fake.path, skills=["x),Bash(*"]))).start()
        assert fake.calls() == []
    assert caught.value.option == "skills"


def test_the_terms_of_options_say_what_a_query_has_to_know() -> None:
    options = ct.ClaudeOptions(
        resume="11111111-1111-4111-8111-111111111111",
        fork_session=True,
        billing="api_key",
        verbatim_prompts=True,
        output_format={"type": "json_schema", "schema": {}},
        permission_mode="plan",
        title="t",
        system_prompt="Be short.",
    )
    terms = ct.transports.session_terms(options)
    assert terms == ct.transports.SessionTerms(
        initialize={"title": "t"},
        verbatim_prompts=True,
        permissions=(ct.transports.PermissionSetting("mode", "plan", "permission_mode"),),
        session_id="11111111-1111-4111-8111-111111111111",
        forks_session=True,
        structured_output=True,
        billing="api_key",
    )
    assert {*ct.transports.session_terms(options, delivery="initialize").initialize} == {"title", "systemPrompt"}
