"""What a fake does by itself, around the steps of its scenario: hooks, MCP, several starts, `--version`, placeholders without a value.

That it does so as the real CLI does is shown in `tests/e2e/test_fake_agrees.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import claude_transport as ct
from claude_transport.testing import Answer, FakeClaude, Scenario, ScriptedTurn, steps
from claude_transport.testing.checked import PLACEHOLDERS

PATIENCE = 30.0
USER_LINE = b'{"type":"user","message":{"role":"user","content":"hi"}}\n'
BASH = steps.ToolUse("Bash", {"command": "ls"}, output="a.txt", ask=False)


def play(scenario: Any, *flags: str, given: bytes = USER_LINE) -> subprocess.CompletedProcess[bytes]:
    with FakeClaude(scenario) as fake:
        return subprocess.run([*fake.command, *flags], input=given, capture_output=True, timeout=PATIENCE, check=False)


async def converse(fake: FakeClaude, *prompts: str, env: Mapping[str, str] | None = None, **given: Any) -> list[ct.Message]:
    """All messages of a conversation with the fake."""
    heard: list[ct.Message] = []
    with anyio.fail_after(PATIENCE):
        async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path, env=dict(env or {}))), **given) as query:
            for prompt in prompts:
                heard += [message async for message in await query.send(prompt)]
    return heard


def results(messages: Sequence[ct.Message]) -> list[ct.ResultMessage]:
    return [message for message in messages if isinstance(message, ct.ResultMessage)]


def tool_results(messages: Sequence[ct.Message]) -> list[str]:
    blocks = [message.to_dict()["message"]["content"][0] for message in messages if isinstance(message, ct.UserMessage)]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


def said(text: str) -> Any:
    async def hook(*_: object) -> Any:
        return json.loads(text)

    return hook


# ------------------------------------------------------------------------------------------------------------------------- hooks


async def test_a_hook_that_is_late_is_withdrawn_and_its_tool_does_not_run() -> None:
    withdrawn = anyio.Event()

    async def ponder(_given: Any, _id: str | None, context: ct.client.CallbackContext) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()

    with FakeClaude(Scenario.turns([[BASH, steps.Text("Done.")]])) as fake:
        messages = await converse(fake, "Go", hooks={"PreToolUse": [ct.HookMatcher(hooks=[ponder], timeout=0.05)]})
        assert withdrawn.is_set()
    assert "PreToolUse hook of this program failed" in tool_results(messages)[0]


async def test_a_call_that_a_hook_defers_ends_the_turn_and_is_named_by_its_result() -> None:
    defer = said('{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}}')
    with FakeClaude(Scenario.turns([[BASH, steps.Text("never")], "Next."])) as fake:
        messages = await converse(fake, "Go", "On", hooks={"PreToolUse": [ct.HookMatcher(hooks=[defer])]})
    (call,) = [block for message in messages if isinstance(message, ct.AssistantMessage) for block in message.tool_uses]
    waiting, after = results(messages)
    assert (waiting.result, waiting.terminal_reason, waiting.stop_reason) == ("", "tool_deferred", "tool_deferred")
    assert waiting.deferred_tool_use == {"id": call.id, "name": "Bash", "input": {"command": "ls"}}
    assert (tool_results(messages), after.result) == ([], "Next.")


def registered(**matcher: Any) -> bytes:
    hooks = {"PreToolUse": [{"hookCallbackIds": ["cb"], **matcher}]}
    return json.dumps({"type": "control_request", "request_id": "i", "request": {"subtype": "initialize", "hooks": hooks}}).encode() + b"\n"


def test_a_hook_that_is_needed_after_the_end_of_input_refuses_the_tool() -> None:
    done = play(Scenario.turns([[BASH, steps.Text("Done.")]]), given=registered() + USER_LINE)
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    (refused,) = [frame["message"]["content"][0] for frame in frames if frame["type"] == "user"]
    assert refused["content"].startswith("The user doesn't want to take this action right now.")
    assert frames[-1]["permission_denials"] == []


@pytest.mark.parametrize("matcher", [{"matcher": 7}, {"hookCallbackIds": "cb"}])
def test_a_hook_of_another_shape_fails_the_handshake_and_not_the_process(matcher: dict[str, Any]) -> None:
    done = play(Scenario.text("Still here."), given=registered(**matcher) + USER_LINE)
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert frames[0]["response"]["error"].startswith("initialize: hooks must map hook events")
    assert frames[-1]["result"] == "Still here."


@pytest.mark.parametrize(("matcher", "ran"), [({}, True), ({"onFailure": "block"}, False)])
def test_a_hook_that_is_answered_by_an_error_counts_as_its_matcher_says(matcher: dict[str, Any], ran: bool) -> None:
    with FakeClaude(Scenario.turns([[BASH, steps.Text("Done.")]])) as fake:
        process = subprocess.Popen(fake.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(registered(**matcher) + USER_LINE)
        process.stdin.flush()
        frames: list[dict[str, Any]] = []
        while not frames or frames[-1]["type"] != "control_request":
            frames.append(json.loads(process.stdout.readline()))
        body = {"subtype": "error", "request_id": frames[-1]["request_id"], "error": "broken"}
        process.stdin.write(json.dumps({"type": "control_response", "response": body}).encode() + b"\n")
        out, err = process.communicate(timeout=PATIENCE)
    rest = [json.loads(line) for line in out.splitlines()]
    assert (rest[0]["subtype"], rest[0]["tag"]) == ("informational", "hook_callback_failed")
    assert (rest[1]["message"]["content"][0]["content"] == "a.txt") is ran
    assert err == b"Error in hook callback cb: broken\n"


async def test_a_stop_hook_that_never_gives_in_is_overruled() -> None:
    with FakeClaude(Scenario.text("More.")) as fake:
        messages = await converse(fake, "Go", hooks={"Stop": [ct.HookMatcher(hooks=[said('{"decision": "block", "reason": "Go on."}')])]})
    (result,) = results(messages)
    assert (result.result, result.num_turns) == ("", 10)
    assert any(
        "blocked the turn from ending 9" in message.content for message in messages if isinstance(message, ct.messages.Informational)
    )


async def test_a_stop_hook_that_blocks_gets_the_next_reply_of_the_scenario() -> None:
    seen: list[bool] = []

    async def once(given: Any, *_: object) -> Any:
        seen.append(given.stop_hook_active)
        return None if given.stop_hook_active else ct.hooks.HookOutput.block("Say more.")

    with FakeClaude(Scenario.turns(["Short.", "Longer."])) as fake:
        messages = await converse(fake, "Go", hooks={"Stop": [ct.HookMatcher(hooks=[once])]})
    assert [result.result for result in results(messages)] == ["Longer."]
    assert seen == [False, True]


# --------------------------------------------------------------------------------------------------------------------------- MCP


def box(calls: list[str]) -> MCPServer:
    server = MCPServer("box")

    @server.tool(structured_output=False)
    async def greet(name: str) -> str:
        """Greets."""
        calls.append(name)
        if name == "nobody":
            raise ToolError("There is nobody.")
        return f"Hello, {name}."

    return server


async def test_a_tool_of_an_in_process_server_is_really_called() -> None:
    calls: list[str] = []
    turn = [steps.ToolUse("mcp__box__greet", {"name": name}, ask=False) for name in ("{{prompt}}", "nobody")]
    with FakeClaude(Scenario.turns([[*turn, steps.Text("Done.")]])) as fake:
        messages = await converse(fake, "Bob", mcp_servers={"box": box(calls)})
    (init,) = [message for message in messages if isinstance(message, ct.messages.InitMessage)]
    assert calls == ["Bob", "nobody"]
    assert "Hello, Bob." in tool_results(messages)[0]
    assert "There is nobody." in tool_results(messages)[1]
    assert [(server.name, server.status) for server in init.mcp_servers] == [("box", "connected")]
    assert "mcp__box__greet" in init.tools


async def test_a_call_that_is_not_answered_in_time_fails_its_tool() -> None:
    server = MCPServer("box")

    @server.tool()
    async def wait() -> str:
        """Waits."""
        await anyio.sleep_forever()
        return ""

    with FakeClaude(Scenario.turns([[steps.ToolUse("mcp__box__wait", ask=False), steps.Text("Done.")]])) as fake:
        messages = await converse(fake, "Go", mcp_servers={"box": server}, env={"MCP_TOOL_TIMEOUT": "50"})
    assert tool_results(messages) == ['MCP server "box" tool "wait" timed out after 1s']
    assert results(messages)[0].result == "Done."


def test_a_server_that_does_not_answer_its_handshake_holds_up_the_turn_only_for_its_time() -> None:
    request = {"type": "control_request", "request_id": "i", "request": {"subtype": "initialize", "sdkMcpServers": ["box"]}}
    with FakeClaude(Scenario.text("Hello.")) as fake:
        process = subprocess.Popen(fake.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"MCP_TIMEOUT": "50"})
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n" + USER_LINE)
        process.stdin.flush()
        frames: list[dict[str, Any]] = []
        while not frames or frames[-1]["type"] != "result":
            frames.append(json.loads(process.stdout.readline()))
        process.communicate(timeout=PATIENCE)
    (init,) = [frame for frame in frames if frame.get("subtype") == "init"]
    assert init["mcp_servers"] == [{"name": "box", "status": "failed"}]


async def test_the_tools_of_a_server_are_named_as_the_cli_names_them() -> None:
    calls: list[str] = []
    turn = [steps.ToolUse("mcp__my_box__greet", {"name": "Bob"}, ask=False), steps.Text("Done.")]
    with FakeClaude(Scenario.turns([turn]), strict=True) as fake:
        messages = await converse(fake, "Go", mcp_servers={"my.box": box(calls)})
    (init,) = [message for message in messages if isinstance(message, ct.messages.InitMessage)]
    assert calls == ["Bob"]
    assert [name for name in init.tools if name.startswith("mcp__")] == ["mcp__my_box__greet"]


async def test_a_server_that_the_program_has_removed_is_not_there_any_more() -> None:
    with FakeClaude(Scenario.turns([[steps.ToolUse("mcp__far__look", ask=False)]]), strict=True) as fake:
        async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path))) as query:
            await query.mcp_set_servers({"far": {"type": "http", "url": "http://127.0.0.1:9/"}})
            await query.mcp_set_servers({})
            turn = await query.send("Go")
            with pytest.raises(ct.ProcessError):
                await turn.result()
        (call,) = fake.calls()
    wanted = "an MCP server 'far' in the program or its configuration, which the scenario calls"
    assert call.failure is not None
    assert (call.failure.expected, call.failure.actual) == (wanted, "no MCP servers")


# ---------------------------------------------------------------------------------------------------------------- rules and modes


async def test_a_host_without_a_callback_is_not_asked_and_its_hooks_decide() -> None:
    asked: list[str] = []

    async def allow(given: Any, *_: object) -> Any:
        asked.append(given.tool_name)
        return ct.hooks.PermissionRequestDecision.allow()

    calls = [steps.ToolUse("Bash", {"command": "ls"}, output="a.txt", ask=True), steps.Text("Done.")]
    hooks = {"PermissionRequest": [ct.HookMatcher(None, [allow])]}
    with FakeClaude(Scenario.turns([calls]), strict=True) as fake:
        messages = await converse(fake, "Go", hooks=hooks)
    assert (asked, tool_results(messages)) == (["Bash"], ["a.txt"])


async def test_a_host_without_a_callback_can_be_asked_anything_else() -> None:
    turn = [steps.Request.hook_callback("Notification"), steps.Text("Done.")]
    with FakeClaude(Scenario.turns([turn]), strict=True) as fake:
        messages = await converse(fake, "Go", hooks={"Notification": [ct.HookMatcher(None, [said("null")])]})
    assert results(messages)[0].result == "Done."


async def test_a_tool_that_a_host_without_a_callback_needs_a_permission_for_is_refused() -> None:
    call = steps.ToolUse("Bash", {"command": "ls"})
    with FakeClaude(Scenario.turns([[call, steps.Text("Done.")]]), strict=True) as fake:
        messages = await converse(fake, "Go")
    assert tool_results(messages) == ["Bash needs approval, but this session has no permission prompt."]
    with FakeClaude(Scenario.turns([[steps.ToolUse("Bash", {"command": "ls"}, ask=True), steps.Text("Done.")]])) as fake:
        messages = await converse(fake, "Go")
    assert tool_results(messages) == ["Bash needs approval, but this session has no permission prompt."]


@pytest.mark.parametrize(
    ("flags", "name", "given", "ran"),
    [
        (("--allowedTools", "Read,Bash(ls *)"), "Bash", {"command": "ls -l"}, True),
        (("--allowedTools=Bash(ls *)",), "Bash", {"command": "ls"}, True),
        (("--allowedTools", "Bash(ls:*)", "Bash(cat *)"), "Bash", {"command": "cat x"}, True),
        (("--allowedTools", "Bash(ls *)"), "Bash", {"command": "lsof"}, False),
        (("--allowedTools", "mcp__far"), "mcp__far__add", {}, True),
        (("--allowedTools", "mcp__far__*"), "mcp__far__add", {}, True),
        (("--allowedTools", "mcp__far__sub"), "mcp__far__add", {}, False),
        (("--permission-mode", "acceptEdits"), "Write", {"file_path": "x"}, True),
        (("--permission-mode", "acceptEdits"), "Bash", {"command": "ls"}, False),
        (("--permission-mode", "bypassPermissions"), "Bash", {"command": "ls"}, True),
        (("--permission-mode", "bypassPermissions", "--disallowedTools", "Bash(l*)"), "Bash", {"command": "ls"}, False),
        (("--allowedTools", "Bash", "--settings", '{"permissions":{"deny":["Bash(ls)"]}}'), "Bash", {"command": "ls"}, False),
        (("--allowedTools", "Bash", "--settings", '{"permissions":{"ask":["Bash"]}}'), "Bash", {"command": "ls"}, False),
        ((), "Read", {"file_path": "a.txt"}, True),
        ((), "Read", {"file_path": "/etc/passwd"}, False),
        ((), "Agent", {"prompt": "x"}, True),
    ],
)
def test_the_rules_of_a_run_decide_which_tools_run_unasked(flags: tuple[str, ...], name: str, given: dict[str, Any], ran: bool) -> None:
    done = play(Scenario.turns([[steps.ToolUse(name, given, output="out"), steps.Text("Done.")]]), *flags)
    result = json.loads(done.stdout.splitlines()[-1])
    assert [denial["tool_name"] for denial in result["permission_denials"]] == ([] if ran else [name])


# --------------------------------------------------------------------------------------------------------------- background work

SHELL = {"task_id": "b1", "run_id": "r1", "task_type": "local_bash", "description": "bg"}
AGENT = {**SHELL, "task_id": "a1", "task_type": "local_agent"}


def alive(*tasks: dict[str, str]) -> steps.Emit:
    return steps.Emit({"type": "system", "subtype": "background_tasks_changed", "tasks": list(tasks)})


def ended(status: str) -> steps.Emit:
    return steps.Emit({"type": "system", "subtype": "task_notification", "task_id": "b1", "status": status, "summary": "bg"})


NOTICED = [steps.Init(), steps.Text("noticed"), steps.Result(extra={"origin": {"kind": "task-notification"}})]
WORK: list[tuple[str, Any, list[str]]] = [
    (
        "a shell that ends, as in recording 24a",
        [alive(SHELL), steps.Result("a"), ended("completed"), alive(), *NOTICED],
        ["running", "tasks", "result", "idle", "ended", "tasks", "running", "init", "result", "idle"],
    ),
    (
        "one of two shells",
        [alive(SHELL, SHELL), steps.Result("a"), ended("failed"), alive(SHELL), *NOTICED],
        ["running", "tasks", "result", "idle", "ended", "tasks", "running", "init", "result", "idle"],
    ),
    (
        "a shell that the host stops, as in recording 24d",
        [alive(SHELL), steps.Result("a"), ended("stopped"), alive()],
        ["running", "tasks", "result", "idle", "ended", "tasks"],
    ),
    (
        "a shell that starts after the turn",
        [alive(), steps.Result("a"), alive(SHELL)],
        ["running", "tasks", "result", "idle", "tasks"],
    ),
    (
        "a shell that ends in its turn",
        [alive(SHELL), ended("completed"), alive(), steps.Result("a")],
        ["running", "tasks", "ended", "tasks", "result", "idle"],
    ),
    (
        "a shell whose end has no turn in the scenario",
        [alive(SHELL), steps.Result("a"), ended("completed"), alive()],
        ["running", "tasks", "result", "idle", "ended", "tasks", "running", "idle"],
    ),
    (
        "an agent, as in recording 15c",
        [alive(AGENT), steps.Result("a"), ended("completed"), alive(), *NOTICED],
        ["running", "tasks", "result", "ended", "tasks", "init", "result", "idle"],
    ),
    (
        "a turn that never ends",
        ScriptedTurn([alive(SHELL), ended("completed"), alive()], init=False, result=False),
        ["running", "tasks", "ended", "tasks"],
    ),
    (
        "an agent that goes on",
        [alive(AGENT), steps.Result("a")],
        ["running", "tasks", "result"],
    ),
]


@pytest.mark.parametrize(("turn", "told"), [case[1:] for case in WORK], ids=[case[0] for case in WORK])
def test_the_session_runs_again_when_background_work_has_ended(turn: Any, told: list[str]) -> None:
    words = {"session_state_changed": "", "task_notification": "ended", "background_tasks_changed": "tasks", "init": "init"}
    with FakeClaude(Scenario.turns([turn if isinstance(turn, ScriptedTurn) else ScriptedTurn(turn, init=False)])) as fake:
        env = {**os.environ, "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}
        done = subprocess.run(fake.command, input=USER_LINE, capture_output=True, timeout=PATIENCE, check=False, env=env)
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    heard = [
        "result" if frame["type"] == "result" else words[frame["subtype"]] or frame["state"]
        for frame in frames
        if frame["type"] == "result" or frame.get("subtype") in words
    ]
    assert heard == told


# ------------------------------------------------------------------------------------------------------------- starts and versions


def test_thinking_and_a_tool_call_are_streamed_block_by_block() -> None:
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, {"type": "text", "text": "I look."}]
    turn = [steps.Assistant(blocks), BASH, steps.Assistant("Out of service.", model="<synthetic>")]
    done = play(Scenario.turns([turn]), "--include-partial-messages")
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    events = [frame["event"] for frame in frames if frame["type"] == "stream_event"]
    (call,) = [block["id"] for frame in frames if frame["type"] == "assistant" for block in frame["message"]["content"] if "id" in block]
    kinds = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [(event["index"], event.get("content_block") or event.get("delta")) for event in events if event["type"] in kinds] == [
        (0, {"type": "thinking", "thinking": "", "signature": ""}),
        (0, {"type": "thinking_delta", "thinking": "Hm."}),
        (0, {"type": "signature_delta", "signature": "c2ln"}),
        (0, None),
        (1, {"type": "text", "text": ""}),
        (1, {"type": "text_delta", "text": "I look."}),
        (1, None),
        (0, {"type": "tool_use", "id": call, "name": "Bash", "input": {}}),
        (0, {"type": "input_json_delta", "partial_json": ""}),
        (0, {"type": "input_json_delta", "partial_json": '{"comman'}),
        (0, {"type": "input_json_delta", "partial_json": 'd":"ls"}'}),
        (0, None),
    ]
    reasons = [event["delta"]["stop_reason"] for event in events if event["type"] == "message_delta"]
    assert (reasons, [event["type"] for event in events].count("message_stop")) == (["end_turn", "tool_use"], 2)


async def test_each_start_plays_the_next_scenario_of_a_list() -> None:
    with FakeClaude([Scenario.crash(exit_code=3, stderr="it hurts"), Scenario.text("ok")]) as fake:
        with pytest.raises(ct.ProcessError) as caught:
            await converse(fake, "Go")
        assert (caught.value.exit_code, caught.value.stderr_tail) == (3, "it hurts")
        assert results(await converse(fake, "Go"))[0].result == "ok"


def test_a_start_past_the_end_of_the_list_fails_and_says_so() -> None:
    with FakeClaude([Scenario.text("one"), Scenario.text("two")]) as fake:
        runs = [subprocess.run(fake.command, input=USER_LINE, capture_output=True, timeout=PATIENCE, check=False) for _ in range(3)]
        assert [run.returncode for run in runs] == [0, 0, 70]
        assert b"this is start 3, and the FakeClaude has 2 scenarios" in runs[2].stderr
        assert [call.exit_code for call in fake.calls()] == [0, 0, 70]


def test_the_version_is_that_of_the_scenario_after_its_startup() -> None:
    scenario = Scenario(version="9.8.7", startup=[steps.Stderr("waking up\n")])
    done = play(scenario, "--version", given=b"")
    assert (done.stdout, done.stderr, done.returncode) == (b"9.8.7 (Claude Code)\n", b"waking up\n", 0)
    broken = play(Scenario(startup=[steps.Exit(4)]), "--version", given=b"")
    assert (broken.stdout, broken.returncode) == (b"", 4)


def test_asking_for_the_version_uses_up_no_scenario_and_changes_no_id() -> None:
    with FakeClaude([Scenario.text("one", version="1.0.1"), Scenario.text("two", version="1.0.2")]) as fake:

        def run(*flags: str) -> bytes:
            return subprocess.run([*fake.command, *flags], input=USER_LINE, capture_output=True, timeout=PATIENCE, check=False).stdout

        told = [run("--version"), run(), run("--version"), run(), run("--version")]
        assert [told[0][:5], told[2][:5], told[4][:5]] == [b"1.0.1", b"1.0.2", b"1.0.2"]
        assert [json.loads(lines.splitlines()[-1])["result"] for lines in (told[1], told[3])] == ["one", "two"]
        assert [call.argv for call in fake.calls()] == [["--version"], [], ["--version"], [], ["--version"]]
    with FakeClaude(Scenario.text("one", version="1.0.1")) as plain:
        assert subprocess.run(plain.command, input=USER_LINE, capture_output=True, timeout=PATIENCE, check=False).stdout == told[1]


@pytest.mark.parametrize("nothing", [[], "text", {}, [Scenario.echo(), "text"]])
def test_only_scenarios_can_be_played(nothing: Any) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        FakeClaude(nothing)
    assert caught.value.option == "scenario"


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["--resume", "X", "--verbose"], "X"),
        (["--resume=X", "--verbose"], "X"),
        (["--resume=", "--verbose"], ""),
        (["--resume", "--verbose"], ""),
        (["--resume", "X", "--resume=Y"], "Y"),
        (["--resumed", "X"], None),
        ([], None),
    ],
)
def test_an_option_of_a_call_is_found_in_both_spellings(argv: list[str], value: str | None) -> None:
    with FakeClaude(Scenario.echo()) as fake:
        subprocess.run([*fake.command, *argv], input=b"", capture_output=True, timeout=PATIENCE, check=False)
        assert fake.calls()[0].option("--resume") == value


# -------------------------------------------------------------------------------------------------------------------- placeholders

ASKED = steps.Request({"subtype": "elicitation"}, on_success=[steps.Text("{{answer.response.items.1.name}}")])
ANSWER = {"items": [{"name": "a"}, {"name": "b"}]}


async def answered(step: steps.Request, response: Mapping[str, Any]) -> list[ct.Message]:
    async def on_request(_subtype: str, _fields: dict[str, Any]) -> Mapping[str, Any]:
        return response

    with FakeClaude(Scenario.turns([[step]])) as fake:
        return await converse(fake, "Go", on_request=on_request)


async def test_a_placeholder_looks_into_lists() -> None:
    assert results(await answered(ASKED, ANSWER))[0].result == "b"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("answer.response.items.2", "{{answer.response.items}} is a list of 2; '2' is not one of its indexes"),
        ("answer.response.items.name", "{{answer.response.items}} is a list of 2; 'name' is not one of its indexes"),
        ("answer.response.itmes", "{{answer.response}} has no 'itmes'; it has: items"),
        ("answer.response.items.0.name.x", "{{answer.response.items.0.name}} is a text, in which 'x' cannot be looked up"),
        ("answer.response.items", "text must be a text, and {{answer.response.items}} is a list"),
    ],
)
async def test_a_placeholder_without_a_value_is_an_error_that_names_the_step(path: str, why: str) -> None:
    with pytest.raises(ct.ProcessError) as caught:
        await answered(steps.Request({"subtype": "elicitation"}, on_success=[steps.Noise(), steps.Text(f"{{{{{path}}}}}")]), ANSWER)
    assert caught.value.exit_code == 70
    assert "fake claude: turn 1 > step 1 of 1 (Request) > step 2 of 2 (Text): " in caught.value.stderr_tail
    assert why in caught.value.stderr_tail


@pytest.mark.parametrize(
    "make",
    [
        lambda: steps.Text("Hello {{promt}}"),
        lambda: steps.Emit({"type": "system", "list": [{"deep": "{{promt}}"}]}),
        lambda: steps.ToolUse("Bash", {"command": "{{promt.0}}"}),
        lambda: steps.Request({"subtype": "x", "a": "{{promt}}"}),
        lambda: Scenario.turns(["{{promt}}"]),
    ],
)
def test_an_unknown_placeholder_is_refused_in_the_line_that_writes_it(make: Any) -> None:
    with pytest.raises(ct.ConfigurationError, match=r"unknown placeholder \{\{promt(\.0)?\}\}; did you mean 'prompt'\?"):
        make()


def test_every_placeholder_that_may_be_written_can_be_played() -> None:
    texts = " ".join(f"{{{{{name}}}}}" for name in PLACEHOLDERS if name not in ("hook", "answer"))
    done = play(Scenario.turns([[steps.Text(texts)]]))
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_placeholder_in_a_scenario_from_json_is_checked_when_it_is_played() -> None:
    text = Scenario.text("{{prompt}}").to_json().replace(b"{{prompt}}", b"{{promt}}")
    done = play(Scenario.from_json(text))
    assert done.returncode == 70
    assert b"turn 1 > step 1 of 2 (Text): unknown placeholder {{promt}}" in done.stderr


def test_the_answer_of_nothing_is_an_error() -> None:
    done = play(Scenario.turns([[steps.Text("{{answer.response}}")]]))
    assert b"turn 1 > step 1 of 1 (Text): {{answer.response}} stands only in the branches of a Request" in done.stderr


async def test_an_answer_is_known_outside_of_a_turn_too() -> None:
    asked = steps.Request.hook_callback("PreToolUse", on_success=[steps.Text("{{answer.response.decision}}"), steps.Result()])
    heard: list[ct.Message] = []
    with FakeClaude(Scenario(answers={"initialize": Answer(after=[asked])})) as fake, anyio.fail_after(PATIENCE):
        hooks: Any = {"PreToolUse": [ct.HookMatcher(hooks=[said('{"decision": "block"}')])]}
        async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path)), hooks=hooks) as query:
            async for message in query.messages():
                heard.append(message)
                if isinstance(message, ct.ResultMessage):
                    break
    assert [message.text for message in heard if isinstance(message, ct.AssistantMessage)] == ["block"]


def test_braces_that_are_no_placeholder_stay() -> None:
    done = play(Scenario.turns([[steps.Text("{{ name }} {{}} {{open}}name}}")]]))
    assert json.loads(done.stdout.splitlines()[-1])["result"] == "{{ name }} {{}} {{name}}"


def test_a_step_of_an_answer_names_its_place_too() -> None:
    line = b'{"type":"control_request","request_id":"i","request":{"subtype":"initialize"}}\n'
    done = play(Scenario(answers={"initialize": Answer(before=[steps.Text("{{user_uuids.0}}")])}), given=line)
    assert b"step 1 of 1 (Text): {{user_uuids.0}}: {{user_uuids}} is a list of 0; '0' is not one of its indexes" in done.stderr
