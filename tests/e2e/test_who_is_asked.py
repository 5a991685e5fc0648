"""What keeps a permission callback from being called, observed on the real binary: each row of the table in `query.shadowing`.

The question is claimed by `on_request` here: a `can_use_tool` callback that could never be called is refused before the CLI is started.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from live_session import beyond_probes, from_subagent
from mcp.server import MCPServer

import claude_transport as ct
from claude_transport.client.shadowing import find_shadows
from claude_transport.launch.settings import permission_settings
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.filterwarnings("ignore:can_use_tool is not asked:UserWarning")

PATIENCE = 60.0  # seconds for a turn of the CLI, on a machine with much else to do

TOUCH = ("Bash", {"command": "touch proof.txt", "description": "t"})
WRITE = ("Write", {"file_path": "{project}/proof.txt", "content": "x"})
PYTHON = ("Bash", {"command": 'python3 -c \'open("proof.txt", "w")\'', "description": "t"})
ECHO = ("Bash", {"command": "echo hi", "description": "t"})
CHOICES = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
CHOOSE = ("AskUserQuestion", {"questions": [{"question": "Which?", "header": "H", "multiSelect": False, "options": CHOICES}]})

ASK_TOUCH = {"permissions": {"ask": ["Bash(touch *)"]}}
ALLOW_TOUCH = {"permissions": {"allow": ["Bash(touch *)"]}}


@dataclass(frozen=True)
class Row:
    """What is said, which tool is called, whether the host is asked, whether the tool ran, and what `find_shadows` makes of it."""

    name: str
    options: dict[str, Any]
    asked: bool
    ran: bool
    verdict: str = ""
    call: tuple[str, dict[str, Any]] = TOUCH
    hook: str | None = None
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


def mode(name: str) -> dict[str, Any]:
    return {"permission_mode": name}


ROWS = [
    Row("nothing said", {}, asked=True, ran=True),
    Row("nothing said, harmless", {}, asked=False, ran=False, call=ECHO),
    Row("manual", mode("manual"), asked=True, ran=True),
    Row("acceptEdits, a file command", mode("acceptEdits"), asked=False, ran=True, verdict="part"),
    Row("acceptEdits, an edit", mode("acceptEdits"), asked=False, ran=True, verdict="part", call=WRITE),
    Row("acceptEdits, another command", mode("acceptEdits"), asked=True, ran=True, verdict="part", call=PYTHON),
    Row("plan, a command", mode("plan"), asked=False, ran=False, verdict="part"),
    Row("plan, an edit", mode("plan"), asked=True, ran=True, verdict="part", call=WRITE),
    Row("auto", mode("auto"), asked=False, ran=True, verdict="part"),
    Row("auto, ask rule", {**mode("auto"), "settings": ASK_TOUCH}, asked=True, ran=True, verdict="part"),
    Row("bypass", mode("bypassPermissions"), asked=False, ran=True, verdict="whole"),
    Row("bypass, a question", mode("bypassPermissions"), asked=True, ran=False, verdict="whole", call=CHOOSE),
    Row("bypass, ask rule", {**mode("bypassPermissions"), "settings": ASK_TOUCH}, asked=True, ran=True, verdict="part"),
    Row("bypass, a hook asks", mode("bypassPermissions"), asked=True, ran=True, verdict="part", hook="ask"),
    Row("skip", {"dangerously_skip_permissions": True, **mode("default")}, asked=False, ran=True, verdict="whole"),
    Row("dontAsk", mode("dontAsk"), asked=False, ran=False, verdict="whole"),
    Row("dontAsk, a question", mode("dontAsk"), asked=False, ran=False, verdict="whole", call=CHOOSE),
    Row("dontAsk, ask rule", {**mode("dontAsk"), "settings": ASK_TOUCH}, asked=False, ran=False, verdict="whole"),
    Row("dontAsk, a hook asks", mode("dontAsk"), asked=True, ran=True, verdict="part", hook="ask"),
    Row("prompts none", {"permission_prompts": "none"}, asked=False, ran=False, verdict="whole"),
    Row("prompts none, a hook asks", {"permission_prompts": "none"}, asked=False, ran=False, verdict="whole", hook="ask"),
    Row("allowed_tools", {"allowed_tools": ["Bash(touch *)"]}, asked=False, ran=True, verdict="part"),
    Row("allowed_tools, another tool", {"allowed_tools": ["Read"]}, asked=True, ran=True, verdict="part"),
    Row("allow rule", {"settings": ALLOW_TOUCH}, asked=False, ran=True, verdict="part"),
    Row("allow rule, ask rule", {"allowed_tools": ["Bash(touch *)"], "settings": ASK_TOUCH}, asked=True, ran=True),
    Row("defaultMode", {"settings": {"permissions": {"defaultMode": "dontAsk"}}}, asked=False, ran=False, verdict="whole"),
    Row("mode wins", {**mode("default"), "settings": {"permissions": {"defaultMode": "bypassPermissions"}}}, asked=True, ran=True),
    Row("deny rule", {"settings": {"permissions": {"deny": ["Bash(touch *)"]}}}, asked=False, ran=False),
    Row("a hook allows", {}, asked=False, ran=True, hook="allow"),
    Row("a hook denies", {}, asked=False, ran=False, hook="deny"),
    Row("extra mode", {"extra_args": {"permission-mode": "dontAsk"}}, asked=False, ran=False, verdict="whole"),
    Row("extra rule", {"extra_args": {"allowedTools": "Bash"}}, asked=False, ran=True, verdict="part"),
    Row("the user's own rules", {}, asked=False, ran=True, files={"user": ALLOW_TOUCH}),
    Row("not the user's own rules", {"setting_sources": []}, asked=True, ran=True, files={"user": ALLOW_TOUCH}),
    Row("rules of a project nobody trusts", {}, asked=True, ran=True, files={"project": ALLOW_TOUCH}),
]

Build = Callable[..., ct.ClaudeOptions]


@pytest.fixture
def options(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Build:
    def build(api: FakeMessagesAPI, **given: Any) -> ct.ClaudeOptions:
        # IS_SANDBOX: bypassing permissions is refused to root, which these tests may well be
        environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0", IS_SANDBOX="1")
        return ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=environment, env_mode="exact", **given)

    return build


def answer_with(call: tuple[str, dict[str, Any]], project: object) -> Callable[[Any], Any]:
    tool, given = call
    given = json.loads(json.dumps(given).replace("{project}", str(project)))
    return lambda request: "Done." if request.tool_results else replies.tool_use(tool, given)


def decides(decision: str) -> dict[str, list[ct.HookMatcher]]:
    async def hook(*_: object) -> dict[str, Any]:
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision}}

    return {"PreToolUse": [ct.HookMatcher(None, [hook])]}


async def allow(*_: object) -> ct.Allow:
    return ct.Allow()


# each row on one of the two loops in turn: who is asked is decided in the CLI; that asking works on both is shown in test_permissions.py
@pytest.mark.needs("permission rules with wildcards", when="[the user's own rules")
@pytest.mark.needs("rules of an untrusted project are ignored", when="[rules of a project")
@pytest.mark.needs("--permission-prompts", when="[prompts none")
@pytest.mark.needs("permission modes of 2.1.330", when="[plan, a command-")
@pytest.mark.needs("permission modes of 2.1.330", when="[manual-")
@pytest.mark.parametrize(
    ("row", "anyio_backend"), [*zip(ROWS, itertools.cycle(["asyncio", "trio"]))], ids=lambda part: getattr(part, "name", part)
)
async def test_who_is_asked(options: Build, cli_home: Any, row: Row) -> None:
    asked: list[str] = []

    async def claim(subtype: str, fields: dict[str, Any]) -> dict[str, Any]:
        asked.append(subtype)
        return {"behavior": "allow", "updatedInput": fields["input"]}

    places = {"user": cli_home.config / "settings.json", "project": cli_home.project / ".claude" / "settings.json"}
    for where, content in row.files.items():
        places[where].parent.mkdir(exist_ok=True)
        places[where].write_text(json.dumps(content), "utf-8")
    hooks = None if row.hook is None else decides(row.hook)
    async with FakeMessagesAPI(answer_with(row.call, cli_home.project)) as api:
        given = options(api, permission_prompt_tool_name="stdio", **row.options)
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.SubprocessTransport(given), on_request=claim, hooks=hooks) as query:
                await (await query.send("go")).result()
    assert (bool(asked), (cli_home.project / "proof.txt").exists()) == (row.asked, row.ran)
    shadows = find_shadows([ct.transports.PermissionSetting(*setting) for setting in permission_settings(given)], hooks=hooks or ())
    assert ("whole" if any(shadow.whole for shadow in shadows) else "part" if shadows else "") == row.verdict


async def test_a_prompt_tool_of_somebody_else_is_asked_in_place_of_the_host(options: Build, cli_home: Any) -> None:
    guard = MCPServer("guard")
    asked: list[str] = []

    @guard.tool()
    async def ask(tool_name: str) -> str:
        asked.append(f"guard about {tool_name}")
        return "neither yes nor no, so the tool does not run"

    async def claim(subtype: str, fields: dict[str, Any]) -> dict[str, Any]:
        asked.append(subtype)
        return {"behavior": "allow", "updatedInput": fields["input"]}

    async with FakeMessagesAPI(answer_with(TOUCH, cli_home.project)) as api:
        transport = ct.SubprocessTransport(options(api, permission_prompt_tool_name="mcp__guard__ask"))
        with anyio.fail_after(PATIENCE):
            async with ct.Query(transport, on_request=claim, mcp_servers={"guard": guard}) as query:
                await (await query.send("go")).result()
    assert (asked, (cli_home.project / "proof.txt").exists()) == (["guard about Bash"], False)


@pytest.mark.needs("questions of background agents")
@pytest.mark.needs("messages name their subagent", when="True-True")
@pytest.mark.needs("bypassPermissions of a subagent is ignored", when="bypassPermissions")
@pytest.mark.parametrize(
    ("agent_mode", "asked", "ran"),
    [(None, True, True), ("bypassPermissions", True, True), ("acceptEdits", False, True), ("dontAsk", False, False)],
)
async def test_who_is_asked_about_the_calls_of_a_subagent(
    options: Build, cli_home: Any, agent_mode: str | None, asked: bool, ran: bool
) -> None:
    questions: list[str | None] = []

    async def can_use_tool(_tool: str, _input: dict[str, Any], context: ct.client.CallbackContext) -> ct.Allow:
        questions.append(context.agent_id)
        return ct.Allow()

    helper = {"description": "helps", "prompt": "You help.", "tools": ["Bash"], "permissionMode": agent_mode}
    start = replies.tool_use("Agent", {"description": "do it", "prompt": "SUB work", "subagent_type": "helper", "run_in_background": True})
    call = answer_with(TOUCH, cli_home.project)

    def answer(request: Any) -> Any:
        if from_subagent(request):
            return call(request)
        return start if len(api.conversation) == 1 else "Main says."

    async with FakeMessagesAPI(answer) as api:
        with anyio.fail_after(PATIENCE):
            one_shot = ct.query("MAIN", options=options(api, agents={"helper": helper}), can_use_tool=can_use_tool)
            placed = [(lane, message) async for lane, message in ct.client.split_by_parent(one_shot)]
    assert (bool(questions), (cli_home.project / "proof.txt").exists()) == (asked, ran)
    lanes = {lane.agent_id for lane, _ in placed if not lane.is_main}
    assert set(questions) <= lanes  # the one who asks is the one whose lane it is


@pytest.mark.parametrize("mode", ["dontAsk", "bypassPermissions"])
async def test_a_mode_that_the_users_own_settings_chose_fails_the_start(options: Build, cli_home: Any, mode: str) -> None:
    (cli_home.config / "settings.json").write_text(json.dumps({"permissions": {"defaultMode": mode}}), "utf-8")
    async with FakeMessagesAPI() as api:
        with anyio.fail_after(PATIENCE):
            with pytest.raises(ct.ConfigurationError, match="settings that the CLI found itself") as caught:
                await ct.Query(ct.SubprocessTransport(options(api)), can_use_tool=allow).start()
            async with ct.Query(ct.SubprocessTransport(options(api, permission_mode="default")), can_use_tool=allow):
                pass
        assert beyond_probes(api) == []
    assert caught.value.option == "permission_mode"
