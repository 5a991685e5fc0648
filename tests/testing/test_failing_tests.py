"""No broken test passes: twelve ways in which a test with our fixtures fails, each in a pytest of its own, and where its cause stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from shares import once_in_a_run

from claude_transport.protocol.envelope import encode_line
from claude_transport.protocol.tape import Tape, TapeHeader, TapeRecord

PRELUDE = """
import anyio, anyio.lowlevel, pytest
import claude_transport as ct
from claude_transport.client import tools
from claude_transport.hooks import *
from claude_transport.testing import Answer, Scenario, assistant, hook_callback, replies, result, steps

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return BACKEND

async def ask(transport, *prompts, **options):
    async with ct.Query(transport, **options) as query:
        results = [(await (await query.send(prompt)).result()).result for prompt in prompts]
        await query.end_input()
        async for _ in query.messages():
            pass
    return results

def fake_transport(fake):
    return ct.SubprocessTransport(command=fake.command)

HOOK = {"type": "control_request", "request_id": "q-1", "request": {"subtype": "hook_callback", "callback_id": "hook_0",
    "input": {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}, "session_id": "s", "cwd": "/",
    "transcript_path": "/t"}, "tool_use_id": "toolu_1"}}

def hooks(callback, event="PreToolUse"):
    return {event: [ct.HookMatcher(None, [callback])]}
"""


class Failure(NamedTuple):
    """One way in which a test fails: its body, and what the end of its report must say."""

    name: str
    body: str
    says: tuple[str, ...]
    tape: str = ""

    @property
    def test(self) -> str:
        return "test_" + self.name.replace(" ", "_")


TWELVE = [
    Failure(
        "wrong prompt",
        """
async def test_it(mock_claude):
    claude = mock_claude.script().expect(type="user", message={"content": "Hi"}).reply(result("Hello"))
    assert await ask(claude, "Hey") == ["Hello"]
""",
        (r"script 1: step 1 of 1: waiting for user with message=\{'content': 'Hi'\}", r"failed: .*message.content is 'Hey', not 'Hi'"),
    ),
    Failure(
        "missing tool call",
        """
async def test_it(fake_messages_api):
    fake_messages_api.replace([replies.tool_use("price", {"of": "tea"}), replies.text("Three.")])
    options = ct.ClaudeOptions(env=fake_messages_api.environment(), env_mode="exact")
    await ct.complete("What does tea cost?", options=options, transport="api")
""",
        (r"FakeMessagesAPI: 1 model requests, reply 2 of 2 is next", r"failed: reply 2 of 2: expected one more request.* got nothing more"),
    ),
    Failure(
        "unexpected request",
        """
async def test_it(mock_claude):
    async with ct.Query(mock_claude.script().expect(type="user").reply(result("Hello"))) as query:
        await query.set_model("haiku")
""",
        (r"failed: step 1 of 1: expected user, got control_request set_model \{.*'model': 'haiku'",),
    ),
    Failure(
        "hang",
        """
async def test_it(fake_claude):
    fake = fake_claude(Scenario.turns([[steps.Text("One"), steps.WaitForFile("go")]]))
    async with ct.Query(fake_transport(fake)) as query:
        turn = await query.send("Hi")
        while "WaitForFile" not in fake.calls()[0].place.step:
            await anyio.lowlevel.checkpoint()
        with anyio.fail_after(0.1):
            await turn.result()
""",
        (
            r"fake claude 1: run 1, turn 1 > step 2 of 2 \(WaitForFile\): waiting for the file or gate 'go' until",
            r"received last: user .*'Hi'",
            r"run 1: .*; \d lines received; arguments ",
            r"FAILED .*TimeoutError",
        ),
    ),
    Failure(
        "leftover script",
        """
async def test_it(mock_claude):
    assert await ask(mock_claude([result("One"), result("Two")]), "Hi") == ["One"]
""",
        (r"failed: response 2 of 2: expected one more prompt, which this answers: result 'Two', got nothing more",),
    ),
    Failure(
        "wrong order",
        """
async def test_it(mock_claude):
    claude = mock_claude.script().expect_control("set_model", model="haiku").reply().expect(type="user").reply(result("Hello"))
    async with ct.Query(claude) as query:
        await query.send("Hi")
        await query.set_model("haiku")
""",
        (r"failed: step 1 of 2: expected control_request set_model with request=\{'model': 'haiku'\}, got user \{.*'Hi'",),
    ),
    Failure(
        "exception in a hook",
        """
async def test_it(mock_claude):
    async def look(given, tool_use_id, context):
        return 1 / 0
    claude = mock_claude.script().expect(type="user").reply(HOOK).expect(type="control_response").reply(result("Hello"))
    assert await ask(claude, "Hi", hooks=hooks(look)) == ["Hello"]
""",
        (r"failed: the PreToolUse hook: expected a callback that does not fail, got ZeroDivisionError: division by zero at test_it.py",),
    ),
    Failure(
        "tape mismatch",
        """
async def test_it(claude_tape):
    assert await ask(claude_tape(None), "Hi", "And now?") == ["Hello", "?"]
""",
        (r"tape test_tape_mismatch.ndjson: record \d of \d", r"failed: record \d of \d: expected .*, got user \{.*'And now\?'"),
        tape="plain",
    ),
    Failure(
        "lost hooks",
        """
async def test_it(claude_tape):
    assert await ask(claude_tape(None), "Hi") == ["Hello"]
""",
        (r"failed: the tape calls hooks for PreToolUse, and this program registers no hooks: give it the hooks that it had when",),
        tape="hooks",
    ),
    Failure(
        "crash of the fake",
        """
async def test_it(fake_claude):
    fake = fake_claude(Scenario.turns([[steps.Stderr("out of memory\\n"), steps.Exit(3)]]))
    assert await ask(fake_transport(fake), "Hi") == ["Hello"]
""",
        (
            r"fake claude 1: run 1, turn 1 > step 2 of 2 \(Exit\)",
            r"run 1: exit code 3; \d lines received; arguments ",
            r"standard error: out of memory",
        ),
    ),
    Failure(
        "swallowed error",
        """
async def test_it(mock_claude):
    claude = mock_claude.script().expect(type="user", message={"content": "Hi"}).reply(result("Hello"))
    try:
        await ask(claude, "Hey")
    except Exception:
        pass
""",
        (r"failed: step 1 of 1: expected user with .* got user .*message.content is 'Hey', not 'Hi'",),
    ),
    Failure(
        "second prompt",
        """
async def test_it(fake_claude):
    try:
        await ask(fake_transport(fake_claude(Scenario.turns(["Hello"]))), "Hi", "And now?")
    except ct.ClaudeTransportError:
        pass
""",
        (
            r"run 1: exit code 71; ",
            r"failed: turn 2: expected no further prompt: no turn was written for it, got the prompt 'And now\?'",
        ),
    ),
]


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-without-a-model.md"

MORE = """
import claude_agent_sdk as sdk
from claude_transport.interop.agent_sdk import adapt, options_from

async def test_a_hang_of_a_script(mock_claude):
    async with ct.Query(mock_claude.script().expect(type="user").expect_control("set_model")) as query:
        turn = await query.send("Hi")
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(0.1):
            await turn.result()

async def test_a_hang_of_a_tape(claude_tape):
    async with ct.Query(claude_tape(None)):
        with anyio.fail_after(0.1):
            await anyio.sleep_forever()

async def test_a_hook_that_a_mock_calls_and_nothing_registered(mock_claude):
    try:
        await ask(mock_claude([HOOK, result("Hello")]), "Hi")
    except Exception:
        pass

async def test_a_hook_that_a_fake_calls_and_nothing_registered(fake_claude):
    try:
        await ask(fake_transport(fake_claude(Scenario.turns([[steps.Request.hook_callback("PreToolUse")]]))), "Hi")
    except Exception:
        pass

ASKED = steps.Request({"subtype": "oauth_token_refresh"})
TOOL = {"type": "control_request", "request_id": "q-1", "request": {"subtype": "mcp_message", "server_name": "shop",
    "message": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "price", "arguments": {}}}}}

async def test_a_tool_that_is_not_there(mock_claude):
    claude = mock_claude.script().expect(type="user").reply(TOOL).expect(type="control_response").reply(result("Hello"))
    try:
        await ask(claude, "Hi")
    except Exception:
        pass

async def test_an_error_that_a_script_expects(mock_claude):
    refused = {"subtype": "error"}
    claude = mock_claude.script().expect(type="user").reply(TOOL).expect(type="control_response", response=refused).reply(result("Hello"))
    assert await ask(claude, "Hi") == ["Hello"]

async def test_a_question_that_a_fake_gets_an_error_for(fake_claude):
    try:
        await ask(fake_transport(fake_claude(Scenario.turns([[ASKED, steps.Text("Hello")]]))), "Hi")
    except Exception:
        pass

async def test_an_error_that_a_scenario_expects(fake_claude):
    asked = steps.Request({"subtype": "oauth_token_refresh"}, on_error=[steps.Text("Hello")])
    assert await ask(fake_transport(fake_claude(Scenario.turns([[asked]]))), "Hi") == ["Hello"]

async def test_a_permission_callback_that_raises(fake_claude):
    async def decide(name, given, context):
        raise KeyError("rules")
    fake = fake_claude(Scenario.turns([[steps.ToolUse("Bash", {"command": "ls"}, ask=True), steps.Text("Hello")]]))
    assert await ask(fake_transport(fake), "Hi", can_use_tool=decide) == ["Hello"]

async def test_a_hook_of_the_official_sdk_that_raises(mock_claude):
    async def look(given, tool_use_id, context):
        raise KeyError("rules")
    theirs = sdk.ClaudeAgentOptions(hooks={"PreToolUse": [sdk.HookMatcher(hooks=[look])]})
    claude = mock_claude.script().expect(type="user").reply(HOOK).expect(type="control_response").reply(result("Hello"))
    assert await ask(claude, "Hi", **options_from(theirs).query_options) == ["Hello"]

def started_with_options(fake, **options):
    return ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path, **options))

async def swallowing(transport, **given):
    try:
        await ask(transport, "Hi", **given)
    except Exception:
        pass

CALL = [steps.ToolUse("mcp__shop__price", {"of": "tea"}, ask=False), steps.Text("Hello")]

@tools.tool("price", "Says what it costs.")
async def price(of: str) -> str:
    if of == "gold":
        raise KeyError("no gold")
    return "3"

def shop():
    return {"shop": tools.create_sdk_mcp_server("shop", tools=[price])}

async def test_a_server_that_the_program_of_a_fake_lacks(fake_claude):
    await swallowing(started_with_options(fake_claude(Scenario.turns([CALL]))))

async def test_a_server_that_strict_flags_leave_out(fake_claude):
    call = steps.ToolUse("mcp__shop__price", {"of": "tea"}, ask=False, output="3")
    await swallowing(started_with_options(fake_claude(Scenario.turns([[call]])), strict_mcp_config=True))

async def test_a_tool_that_the_server_of_a_fake_lacks(fake_claude):
    call = steps.ToolUse("mcp__shop__order", {"pieces": 3}, ask=False)
    await swallowing(started_with_options(fake_claude(Scenario.turns([[call]]))), mcp_servers=shop())

async def test_a_tool_of_the_program_that_its_flags_disable(fake_claude):
    fake = fake_claude(Scenario.turns([CALL]))
    await swallowing(started_with_options(fake, disallowed_tools=["mcp__shop__price"]), mcp_servers=shop())

async def test_a_disabled_tool_whose_failure_is_meant(fake_claude):
    fake = fake_claude(Scenario.turns([[steps.ToolUse("mcp__shop__price", is_error=True), steps.ToolUse("Bash"), steps.Text("Hello")]]))
    transport = started_with_options(fake, disallowed_tools=["mcp__shop__price", "Bash"])
    assert await ask(transport, "Hi", mcp_servers=shop()) == ["Hello"]

async def test_a_hook_that_a_mock_names_by_another_event(mock_claude):
    async def look(given, tool_use_id, context):
        return None
    await swallowing(mock_claude([hook_callback("PostToolUse", tool_name="Bash")]), hooks=hooks(look))

async def test_a_server_that_the_program_of_a_mock_lacks(mock_claude):
    await swallowing(mock_claude([TOOL, result("Hello")]))

async def test_servers_that_are_registered_or_not_of_the_program(fake_claude):
    far = {"far.away": {"type": "http", "url": "http://127.0.0.1:9/"}}
    look, gone = steps.ToolUse("mcp__far_away__look", ask=False), steps.ToolUse("mcp__shop__gone", ask=False, is_error=True)
    near = steps.ToolUse("mcp__near__look", ask=False, output="seen")
    fake = fake_claude([Scenario.turns([turn]) for turn in ([*CALL, look, gone], [*CALL, look], [near, steps.Text("Hello")])])
    assert await ask(started_with_options(fake, mcp_servers=far), "Hi", mcp_servers=shop()) == ["Hello"]
    assert await ask(started_with_options(fake), "Hi", mcp_servers={**shop(), **far}) == ["Hello"]
    assert await ask(started_with_options(fake), "Hi") == ["Hello"]

def buying(**given):
    return steps.ToolUse("mcp__shop__price", ask=False, **given)

async def test_a_tool_that_raises(fake_claude):
    turn = [buying(input={"of": "gold"}), steps.Text("Hello")]
    await swallowing(fake_transport(fake_claude(Scenario.turns([turn]))), mcp_servers=shop())

async def test_a_tool_that_does_not_take_its_arguments(fake_claude):
    turn = [buying(input={"amount": 3}), steps.Text("Hello")]
    await swallowing(fake_transport(fake_claude(Scenario.turns([turn]))), mcp_servers=shop())

async def test_a_tool_that_succeeds_where_it_should_not(fake_claude):
    turn = [buying(input={"of": "tea"}, is_error=True), steps.Text("Hello")]
    await swallowing(fake_transport(fake_claude(Scenario.turns([turn]))), mcp_servers=shop())

async def test_a_tool_whose_failure_is_meant(fake_claude):
    turn = [buying(input={"of": "gold"}, is_error=True), steps.Text("Hello")]
    assert await ask(fake_transport(fake_claude(Scenario.turns([turn]))), "Hi", mcp_servers=shop()) == ["Hello"]

def rpc(method, **params):
    return steps.Request.mcp_message("shop", message={"id": 7, "method": method, "params": params})

async def test_a_raw_call_of_a_tool_that_raises(fake_claude):
    turn = [rpc("tools/call", name="price", arguments={"of": "gold"}), steps.Text("Hello")]
    await swallowing(fake_transport(fake_claude(Scenario.turns([turn]))), mcp_servers=shop())

async def test_a_raw_call_that_succeeds(fake_claude):
    turn = [rpc("tools/call", name="price", arguments={"of": "tea"}), steps.Text("Hello")]
    assert await ask(fake_transport(fake_claude(Scenario.turns([turn]))), "Hi", mcp_servers=shop()) == ["Hello"]

ALLOWING = steps.Request.can_use_tool("Bash", {"command": "ls"})
QUESTION = {"type": "control_request", "request_id": "q-1", "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}}

async def allow(name, given, context):
    return ct.Allow()

async def test_a_question_that_the_flags_of_a_host_exclude(fake_claude):
    await swallowing(started_with_options(fake_claude(Scenario.turns([[ALLOWING, steps.Text("Hello")]]))))

async def test_a_tool_that_a_host_cannot_be_asked_about(fake_claude):
    await swallowing(started_with_options(fake_claude(Scenario.turns([[steps.ToolUse("Bash", {"command": "ls"}, ask=True)]]))))

async def test_a_question_to_a_program_without_a_callback(fake_claude):
    await swallowing(fake_transport(fake_claude(Scenario.turns([[ALLOWING, steps.Text("Hello")]]))))

async def test_a_question_of_a_mock_to_a_program_without_a_callback(mock_claude):
    await swallowing(mock_claude.script().expect(type="user").reply(QUESTION).expect(type="control_response").reply(result("Hello")))

async def test_questions_that_a_callback_answers(fake_claude, mock_claude):
    fakes = [fake_claude(Scenario.turns([[ALLOWING, steps.ToolUse("Bash", ask=True), steps.Text("Hello")]])) for _ in range(2)]
    for transport in (fake_transport(fakes[0]), started_with_options(fakes[1]), mock_claude([QUESTION, result("Hello")])):
        assert await ask(transport, "Hi", can_use_tool=allow) == ["Hello"]

async def test_a_control_request_that_a_list_does_not_answer(mock_claude):
    try:
        async with ct.Query(mock_claude([result("Hello")])) as query:
            await query.set_permission_mode("bypassPermissions")
            await (await query.send("Hi")).result()
    except Exception:
        pass

async def test_a_control_request_that_the_fake_does_not_know(fake_claude):
    try:
        async with ct.Query(fake_transport(fake_claude())) as query:
            await query.request("set_modle", model="haiku")
    except Exception:
        pass

async def test_control_requests_that_an_answer_was_written_for(fake_claude):
    answers = {"set_modle": Answer(error="no"), "set_fish": Answer(response={"fish": 1})}
    async with ct.Query(fake_transport(fake_claude(Scenario.echo(answers=answers)))) as query:
        with pytest.raises(ct.ControlRequestFailed):
            await query.request("set_modle", model="haiku")
        assert await query.request("set_fish") == {"fish": 1}
        await query.set_model("haiku")

async def test_a_second_prompt_to_a_mock(mock_claude):
    try:
        await ask(mock_claude([result("Hello")]), "Hi", "And now?")
    except ct.ClaudeTransportError:
        pass

async def test_a_prompt_that_nothing_was_written_for(mock_claude):
    async with ct.Query(mock_claude([])) as query:
        try:
            await query.send("Hi")
            async for _ in query.messages():
                pass
        except ct.ClaudeTransportError:
            pass

async def test_a_request_to_the_api_that_nothing_was_written_for(fake_messages_api):
    fake_messages_api.replace([replies.text("Hello")])
    options = ct.ClaudeOptions(env=fake_messages_api.environment(), env_mode="exact")
    await ct.complete("Hi", options=options, transport="api")
    try:
        await ct.complete("And now?", options=options, transport="api")
    except Exception:
        pass

@pytest.mark.filterwarnings("ignore")
async def test_an_error_of_the_official_sdk_hides_nothing(mock_claude):
    claude = mock_claude.script().expect(type="user", message={"content": "Hi"}).reply(result("Hello"))
    try:
        async for _ in sdk.query(prompt="Hey", transport=adapt(claude)):
            pass
    except sdk.ClaudeSDKError:
        print("HIDDEN")
    except Exception:
        pass

async def test_a_step_that_cannot_be_played(fake_claude):
    try:
        await ask(fake_transport(fake_claude(Scenario.turns([[steps.WriteFile("no/such/folder/x", text="x")]]))), "Hi")
    except Exception:
        pass

async def test_turns_that_were_not_played(fake_claude):
    assert await ask(fake_transport(fake_claude(Scenario.turns(["Hello", "Bye"]))), "Hi") == ["Hello"]

async def test_a_start_that_did_not_come(fake_claude):
    assert await ask(fake_transport(fake_claude([Scenario.text("Hello"), Scenario.text("Bye")])), "Hi") == ["Hello"]

async def test_a_start_too_many(fake_claude):
    fake = fake_claude([Scenario.text("Hello")])
    assert await ask(fake_transport(fake), "Hi") == ["Hello"]
    try:
        await ask(fake_transport(fake), "Hi")
    except Exception:
        pass

async def test_a_placeholder_without_a_value(fake_claude):
    try:
        await ask(fake_transport(fake_claude(Scenario.turns([[steps.Text("{{answer.response}}")]]))), "Hi")
    except Exception:
        pass

def test_a_fake_that_was_never_started(fake_claude):
    fake_claude(Scenario.turns(["Hello"]))

def test_replies_that_a_test_without_an_event_loop_leaves(fake_messages_api):
    fake_messages_api.replace([replies.text("Hello")])

def test_a_mock_that_was_never_connected(mock_claude):
    mock_claude([result("Hello")])

@pytest.mark.claude_lenient
async def test_that_is_lenient(mock_claude, fake_claude):
    mock_claude.script().expect(type="user")
    assert await ask(fake_transport(fake_claude(Scenario.turns(["Hello"]))), "Hi", "And now?") == ["Hello", "And now?"]

async def test_what_failed_first_is_in_the_report_of_a_test_that_fails_otherwise(mock_claude):
    try:
        await ask(mock_claude.script().expect(type="user", message={"content": "Hi"}), "Hey")
    except Exception:
        pass
    print("much output")
    assert False
"""

MORE_SAYS = {
    "a_hang_of_a_script": r"script 1: step 2 of 2: waiting for control_request set_model\n  received last: user ",
    "a_hang_of_a_tape": r"hang_of_a_tape.ndjson: record 3 of 4: waiting for user .*\n  received last: control_request initialize",
    "a_hook_that_a_mock_calls_and_nothing_registered": r"failed: .*`initialize` to register the hook 'hook_0', .* got no hooks",
    "a_hook_that_a_fake_calls_and_nothing_registered": r"failed: turn 1 > step 1 of 1 .*: expected a hook for PreToolUse, .* nothing",
    "a_tool_that_is_not_there": r"failed: step 2 of 2: expected an answer that is no error, got the error 'Unsupported .*mcp_message'",
    "a_question_that_a_fake_gets_an_error_for": r"failed: turn 1 > .*expected an answer to oauth_token_refresh that is no error, got",
    "a_permission_callback_that_raises": r"failed: can_use_tool, asked about 'Bash': .*got KeyError: 'rules' at test_it.py",
    "a_hook_of_the_official_sdk_that_raises": r"failed: the PreToolUse hook: .*got KeyError: 'rules' at test_it.py",
    "a_server_that_the_program_of_a_fake_lacks": r"failed: turn 1 > step 1 of 2 .* an MCP server 'shop' in .*, got no MCP servers",
    "a_tool_that_raises": r"failed: turn 1 > .*: expected a result of the tool 'price' of the MCP server 'shop', .*the error .*no gold",
    "a_tool_that_does_not_take_its_arguments": r"failed: turn 1 > .*: expected a result of the tool 'price' .*Input validation error",
    "a_tool_that_succeeds_where_it_should_not": r"failed: turn 1 > .*: expected a failure of the tool 'price' .*, got .*'text': '3'",
    "a_raw_call_of_a_tool_that_raises": r"failed: turn 1 > .*: expected an answer to mcp_message that is no error, got the error .*no gold",
    "a_server_that_strict_flags_leave_out": r"failed: turn 1 > .*: expected an MCP server 'shop' in .*, got no MCP servers",
    "a_tool_that_the_server_of_a_fake_lacks": r"failed: turn 1 > .*: expected a tool 'order' of the MCP server 'shop', .*, got price",
    "a_tool_of_the_program_that_its_flags_disable": r"failed: turn 1 > .* a tool 'price' of .* 'shop', .*, got one that is disabled",
    "a_hook_that_a_mock_names_by_another_event": r"failed: hook call: expected .* a hook for PostToolUse of Bash, .*, got PreToolUse",
    "a_server_that_the_program_of_a_mock_lacks": r"failed: .*an answer that is no error, .*registered no MCP server 'shop'",
    "a_question_that_the_flags_of_a_host_exclude": r"failed: turn 1 > .*Request.*: expected a host that can be asked.* no such flag",
    "a_tool_that_a_host_cannot_be_asked_about": r"failed: turn 1 > .*ToolUse.*: expected a host that can be asked.* no such flag",
    "a_question_to_a_program_without_a_callback": r"failed: can_use_tool, asked about 'Bash': expected .*, got no callback",
    "a_question_of_a_mock_to_a_program_without_a_callback": r"failed: step 2 of 2: expected .* can_use_tool, which is asked next, got none",
    "a_control_request_that_a_list_does_not_answer": r"failed: response 1 of 1: expected no control request.*, got .* set_permission_mode",
    "a_control_request_that_the_fake_does_not_know": r"failed: .*: expected no control request 'set_modle': .*answers=.*, got",
    "a_second_prompt_to_a_mock": r"failed: response 1 of 1: expected no further prompt: no responses are left for it, got user .*And now",
    "a_prompt_that_nothing_was_written_for": r"failed: response 0 of 0: expected no further prompt: .*, got user .*'Hi'",
    "a_request_to_the_api_that_nothing_was_written_for": r"failed: request 2: expected no further request: no reply .* prompt 'And now\?'",
    "an_error_of_the_official_sdk_hides_nothing": r"failed: step 1 of 1: expected user .*, got user .*'Hey'",
    "a_step_that_cannot_be_played": r"failed: turn 1 > step 1 of 1 \(WriteFile\): expected a step .*, got FileNotFoundError",
    "turns_that_were_not_played": r"failed: turn 2 of 2: expected a prompt that it answers, got nothing more",
    "a_start_that_did_not_come": r"failed: scenario 2 of 2: expected one more start, which plays it, got nothing more",
    "a_start_too_many": r"failed: start 2: expected no more starts than scenarios, of which there are 1, got one more",
    "a_placeholder_without_a_value": r"failed: turn 1 > step 1 of 1 \(Text\): expected a step .*, got \{\{answer.response\}\} stands only",
    "a_fake_that_was_never_started": r"fake claude 1: never started\nfailed: turn 1 of 1: .*, got a fake that was never started",
    "replies_that_a_test_without_an_event_loop_leaves": r"failed: reply 1 of 1: expected one more request, .* got nothing more",
    "a_mock_that_was_never_connected": r"failed: response 1 of 1: .*result 'Hello', got a mock that was never connected",
    "what_failed_first_is_in_the_report_of_a_test_that_fails_otherwise": r"failed: step 1 of 1: expected user .*, got user .*'Hey'",
}
"""What the last ten lines of these reports say."""

PASSING = (
    "an_error_that_a_script_expects",
    "an_error_that_a_scenario_expects",
    "servers_that_are_registered_or_not_of_the_program",
    "a_tool_whose_failure_is_meant",
    "a_raw_call_that_succeeds",
    "a_disabled_tool_whose_failure_is_meant",
    "questions_that_a_callback_answers",
    "control_requests_that_an_answer_was_written_for",
    "that_is_lenient",
)


def tape_of(kind: str) -> Tape:
    """A tape of one turn; in `hooks` its host had a hook, which was called."""
    registered = {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["hook_0"]}]} if kind == "hooks" else {}
    called = {"subtype": "hook_callback", "callback_id": "hook_0", "input": {"hook_event_name": "PreToolUse"}}
    lines: list[tuple[str, dict[str, object]]] = [
        ("in", {"type": "control_request", "request_id": "r-1", "request": {"subtype": "initialize", "hooks": registered}}),
        ("out", {"type": "control_response", "response": {"subtype": "success", "request_id": "r-1", "response": {}}}),
        ("in", {"type": "user", "message": {"role": "user", "content": "Hi"}, "parent_tool_use_id": None}),
        ("out", {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "Hello"}),
    ]
    if kind == "hooks":
        answer = {"subtype": "success", "request_id": "q-1", "response": {}}
        lines[3:3] = [
            ("out", {"type": "control_request", "request_id": "q-1", "request": called}),
            ("in", {"type": "control_response", "response": answer}),
        ]
    records = [TapeRecord(0.0, kind, encode_line(message)[:-1]) for kind, message in lines]  # type: ignore[arg-type]
    return Tape(records, header=TapeHeader())


class Ran(NamedTuple):
    """One run of pytest: the outcomes of its tests, and the report of each that failed, with the summary line that follows it."""

    outcomes: dict[str, str]
    reports: dict[str, list[str]]
    text: str

    @classmethod
    def of(cls, text: str) -> Ran:
        outcomes = {
            found[1]: found[2].lower() for found in re.finditer(r"^test_it\.py::(\w+) (PASSED|FAILED|ERROR|XFAIL)", text, re.MULTILINE)
        }
        pieces = re.split(r"^_{3,} (?:ERROR at \w+ of )?(\w+) _{3,}$|^=+ short test summary info =+$", text, flags=re.MULTILINE)
        reports = {name: report.splitlines() for name, report in zip(pieces[1::2], pieces[2::2], strict=False) if name}
        for line in (pieces[-1] or "").splitlines():
            if found := re.match(r"(?:FAILED|ERROR) test_it\.py::(\w+)", line):
                reports[found[1]] += ["short test summary info", line]
        return cls(outcomes, reports, text)

    def end_of(self, name: str) -> str:
        """The last ten lines of the report of one test."""
        return "\n".join(self.reports[name][-10:])


def run(folder: Path, bodies: str, *arguments: str, backend: str) -> str:
    """Return what a pytest of its own prints."""
    (folder / "test_it.py").write_text(PRELUDE.replace("BACKEND", repr(backend)) + bodies)
    others = [part for name in ("cacheprovider", "hypothesispytest", "xdist") for part in ("-p", f"no:{name}")]  # each costs its import
    command = [sys.executable, "-m", "pytest", "-v", *others, *arguments, "test_it.py"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, backend: str) -> Ran:
    """All the tests below, in one pytest of their own."""

    def printed() -> str:
        folder = tmp_path_factory.mktemp("project")
        tapes = folder / "tapes" / "test_it"
        tapes.mkdir(parents=True)
        tape_of("plain").write(tapes / "test_a_hang_of_a_tape.ndjson")
        for failure in TWELVE:
            if failure.tape:
                tape_of(failure.tape).write(tapes / f"{failure.test}.ndjson")
        bodies = [failure.body.replace("test_it(", f"{failure.test}(") for failure in TWELVE]
        return run(folder, "\n".join([*bodies, MORE]), backend=backend)

    return Ran.of(once_in_a_run(tmp_path_factory, f"failing-{backend}", printed))


@pytest.mark.parametrize("failure", TWELVE, ids=[failure.name for failure in TWELVE])
def test_a_broken_test_fails_and_the_last_ten_lines_say_why(ran: Ran, failure: Failure) -> None:
    assert ran.outcomes[failure.test] == "failed"
    for says in failure.says:
        assert re.search(says, ran.end_of(failure.test)), f"{says} is not in the last ten lines of\n" + "\n".join(ran.reports[failure.test])


@pytest.mark.parametrize("name", MORE_SAYS)
def test_so_does_each_of_these(ran: Ran, name: str) -> None:
    test = f"test_{name}"
    assert ran.outcomes[test] in ("failed", "error")
    assert re.search(MORE_SAYS[name], ran.end_of(test)), "\n".join(ran.reports[test])
    assert "HIDDEN" not in "\n".join(ran.reports[test])


@pytest.mark.parametrize("name", PASSING)
def test_what_a_test_says_to_expect_or_to_leave_alone_does_not_fail_it(ran: Ran, name: str) -> None:
    assert ran.outcomes[f"test_{name}"] == "passed"


def test_the_setting_of_a_whole_suite_leaves_its_tests_alone_and_hidden_output_hides_no_section(tmp_path: Path, backend: str) -> None:
    bodies = """
def test_forgotten(mock_claude):
    mock_claude.script().expect(type="user")

def test_fails(mock_claude):
    mock_claude.script().expect(type="user")
    assert False
"""
    found = Ran.of(run(tmp_path, bodies, "-o", "claude_strict=false", "--show-capture=no", backend=backend))
    assert found.outcomes == {"test_forgotten": "passed", "test_fails": "failed"}
    assert "script 1: step 1 of 1: waiting for user" in found.end_of("test_fails")


def test_pytest_timeout_says_where_a_hang_stands_before_it_ends_the_process(tmp_path: Path, backend: str) -> None:
    pytest.importorskip("pytest_timeout")
    bodies = """
async def test_hang(mock_claude):
    async with ct.Query(mock_claude.script().expect(type="user").expect_control("set_model")) as query:
        turn = await query.send("Hi")
        await turn.result()
"""
    found = Ran.of(run(tmp_path, bodies, "--timeout=8", "--timeout-method=thread", backend=backend))
    assert "script 1: step 2 of 2: waiting for control_request set_model\n  received last: user" in found.text


def test_the_page_has_a_row_for_each_of_the_twelve_with_what_its_report_says() -> None:
    _, _, section = PAGE.read_text("utf-8").partition("## Twelve ways in which a test fails")
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (`.*`) \|$", section, re.MULTILINE))
    assert list(rows) == [failure.name for failure in TWELVE]
    for failure in TWELVE:
        assert any(re.search(says, rows[failure.name]) for says in failure.says), failure.name
