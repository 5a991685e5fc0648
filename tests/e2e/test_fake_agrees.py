"""The real CLI on the fake API, and `FakeClaude`: the same host sees the same, in the same order.

Each case is a script of the model and the scenario that says the same. What the CLI has sent is reduced to what a host acts on: the kinds
of the messages, their texts and tool results, and the questions with their inputs. Ids, times, costs and suggestions are left out.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from live_session import PATIENCE, Doorkeeper, Live, bash, from_subagent
from mcp.server import MCPServer
from shares import share

import claude_transport as ct
from claude_transport.testing import FakeClaude, FakeMessagesAPI, Scenario, replies, steps
from claude_transport.wrappers import LineWrapper

pytestmark = pytest.mark.filterwarnings("ignore:can_use_tool is not asked:UserWarning")  # tools that are allowed are part of the cases

COMMAND = {"command": "echo hi > f; cat f", "description": "d"}
BASH = replies.tool_use("Bash", COMMAND)
PLAYED = steps.ToolUse("Bash", COMMAND, output="hi")
ALLOWED = {"allowed_tools": ["Bash"]}
PARTIAL = {**ALLOWED, "include_partial_messages": True}
THOUGHT = {"type": "thinking", "thinking": "Let me think.", "signature": "ZmFrZQ=="}
DENY = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "No way."}}
ASK = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask", "permissionDecisionReason": "Better ask."}}
ALLOW = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
DEFER = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}}
CHANGED = {"command": "echo changed", "description": "d"}
ALLOW_CHANGED = {"hookSpecificOutput": {**ALLOW["hookSpecificOutput"], "updatedInput": CHANGED}}
ALLOW_OTHER = {"hookSpecificOutput": {**ALLOW["hookSpecificOutput"], "updatedInput": {**CHANGED, "command": "echo other"}}}
PERMIT = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}
AROUND_A_TOOL = ("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure", "PostToolBatch")
AGENT = {"description": "do it", "prompt": "SUB", "subagent_type": "helper", "run_in_background": False}
HELPER = {"helper": {"description": "helps", "prompt": "You help.", "tools": ["Bash"]}}
GREET = ("mcp__s__greet", {"name": "Bob"})
NOPE = "Error: No such tool available: "
REMEMBERED = ct.control.PermissionUpdate(
    type="addRules",
    rules=(ct.control.PermissionRule(tool_name="Bash", rule_content="touch *"),),
    behavior="allow",
    destination="session",
)


def touch(name: str) -> dict[str, str]:
    return {"command": f"touch {name}", "description": "d"}


def two(*events: str, **answers: Any) -> dict[str, Any]:
    """Two callbacks for each event; `answers` are what the first one answers, or a pair for both."""
    both = {event: answers.get(event, (None, None)) for event in (*events, *answers)}
    return {event: [(None, given if isinstance(given, tuple) else (given, None))] for event, given in both.items()}


def once(given: Any) -> Any:
    return None if given.stop_hook_active else {"decision": "block", "reason": "Say more."}


@dataclass(frozen=True)
class Case:
    """One conversation. `hooks` are lists of (matcher, answers) for each event; `shows` is something that both must have sent."""

    script: Sequence[Any]
    turns: Sequence[Any]
    shows: Any
    hooks: Mapping[str, Any] = field(default_factory=dict)
    answers: Sequence[ct.Allow | ct.Deny] | None = (ct.Allow(),)
    options: Mapping[str, Any] = field(default_factory=dict)
    prompts: Sequence[str] = ("Go",)
    server: bool = False
    agents: Any = None
    in_order: bool = True
    """False when the CLI itself orders messages and questions now so, now so."""


MATCHERS = [None, "", "*", "Bash", "bash", "Ba", "Bash|Read", "Read, Bash", "B.*h", "Ba.", "(", "Read", "Task", "Bash(echo *)"]
MCP_MATCHERS = ["mcp__s", "mcp__s__greet", "mcp__.*", "greet", "s__gr.e"]

CASES = {
    "two prompts": Case(["One.", "Two."], ["One.", "Two."], ("assistant", "Two."), prompts=("First", "Second")),
    "an allowed tool": Case([BASH, "Done."], [[PLAYED, "Done."]], ("user", "hi"), options=ALLOWED),
    **{
        f"a hook that defers, and one that says {said}": Case(
            [BASH, "Done."],
            [[PLAYED, "Done."]],
            ("assistant", ("Bash", COMMAND)),
            two("PostToolBatch", "PermissionRequest", "Stop", PreToolUse=(DEFER, other)),
            options=ALLOWED,
        )
        for said, other in {"nothing": None, "deny": DENY, "ask": ASK, "allow": ALLOW, "to change the input": ALLOW_CHANGED}.items()
    },
    "a streamed tool call": Case(
        [BASH, "Done."],
        [[PLAYED, "Done."]],
        ("streams", "content_block_start", 0, {"type": "tool_use", "name": "Bash", "input": {}}),
        options=PARTIAL,
        in_order=False,  # the CLI runs a tool once its block is whole: the result may come before the message's last parts
    ),
    "streamed thinking": Case(
        [replies.message(replies.thinking_block("Let me think."), replies.text_block("Done."))],
        [[steps.Assistant([THOUGHT, {"type": "text", "text": "Done."}])]],
        ("streams", "content_block_delta", 0, {"type": "thinking_delta", "thinking": "Let me think."}),
        options=PARTIAL,
    ),
    "a question, allowed": Case([BASH, "Done."], [[PLAYED, "Done."]], ("asks", "Bash", COMMAND, None, False)),
    "a question, denied": Case([BASH, "Done."], [[PLAYED, "Done."]], ("user", "error: No."), two("PostToolBatch"), (ct.Deny("No."),)),
    "a question, answered with another input": Case(
        [BASH, "Done."],
        [[steps.ToolUse("Bash", COMMAND, output="changed"), "Done."]],
        ("user", "changed"),
        two("PostToolUse"),
        (ct.Allow(updated_input=CHANGED),),
    ),
    "a question, denied with an interrupt": Case(
        [BASH, "Next."], [[PLAYED], "Next."], ("assistant", "Next."), answers=(ct.Deny("Stop.", interrupt=True),), prompts=("Go", "On")
    ),
    "a permission that is remembered": Case(
        [replies.tool_use("Bash", touch("one")), replies.tool_use("Bash", touch("two")), "Done."],
        [[*(steps.ToolUse("Bash", touch(name), output="(Bash completed with no output)") for name in ("one", "two")), "Done."]],
        ("asks", "Bash", touch("one"), None, False),
        answers=(ct.Allow(updated_permissions=[REMEMBERED]), ct.Deny("Asked again.")),
    ),
    "a rule that denies": Case(
        [BASH, "Done."],
        [[PLAYED, "Done."]],
        ("user", f"error: Permission to use Bash with command {COMMAND['command']} has been denied."),
        two("PreToolUse", "PostToolBatch"),
        options={"settings": {"permissions": {"deny": ["Bash(echo *)"]}}},
    ),
    "a tool that is switched off": Case(
        [BASH, "Done."],
        [[PLAYED, "Done."]],
        ("user", f"error: <tool_use_error>{NOPE}Bash. Bash is disabled for this session, in subagents as well as here.</tool_use_error>"),
        two("PreToolUse", "PostToolBatch"),
        options={"disallowed_tools": ["Bash"]},
    ),
    "all hooks around a tool, two callbacks each": Case(
        [BASH, "Done."], [[PLAYED, "Done."]], ("user", "hi"), two("UserPromptSubmit", *AROUND_A_TOOL, "Stop")
    ),
    "all hooks around a tool that fails": Case(
        [bash("exit 3"), "Done."],
        [[steps.ToolUse("Bash", {"command": "exit 3", "description": "d"}, output="Exit code 3", is_error=True), "Done."]],
        ("user", "error: Exit code 3"),
        two(*AROUND_A_TOOL),
        options=ALLOWED,
    ),
    "matchers": Case(
        [BASH, "Done."], [[PLAYED, "Done."]], ("user", "hi"), {"PreToolUse": [(text, (None,)) for text in MATCHERS]}, options=ALLOWED
    ),
    "one hook of two denies": Case(
        [BASH, "Done."],
        [[PLAYED, "Done."]],
        ("user", "error: PreToolUse:Bash hook error: No way."),
        two("PostToolUse", "PostToolBatch", PreToolUse=(DENY, ALLOW)),
        options=ALLOWED,
    ),
    "a hook has the host asked about an allowed tool": Case(
        [BASH, "Done."],
        [[PLAYED, "Done."]],
        ("asks", "Bash", COMMAND, "Better ask.", False),
        two("PermissionRequest", PreToolUse=(ALLOW, ASK)),
        (ct.Deny("No."),),
        ALLOWED,
    ),
    "two hooks allow, each with another input": Case(
        [BASH, "Done."],
        [[steps.ToolUse("Bash", COMMAND, output="changed"), "Done."]],
        ("user", "changed"),
        two("PostToolUse", PreToolUse=(ALLOW_OTHER, ALLOW_CHANGED)),
    ),
    "a hook blocks, and says something": Case(
        [BASH, "Done."],
        [[PLAYED, "Done."]],
        ("informs", "PreToolUse:Bash says: Look here."),
        two(PreToolUse={"decision": "block", "reason": "Blocked.", "systemMessage": "Look here."}),
        options=ALLOWED,
    ),
    "a hook before a tool ends the turn": Case(
        [BASH, "Never."],
        [[PLAYED, "Never."]],
        ("user", "hi"),
        two("PostToolUse", "PostToolBatch", "Stop", PreToolUse={"continue": False, "stopReason": "Enough."}),
        options=ALLOWED,
    ),
    "a hook after a tool ends the turn": Case(
        [BASH, "Never."],
        [[PLAYED, "Never."]],
        ("user", "hi"),
        two("PostToolBatch", "Stop", PostToolUse={"continue": False}),
        options=ALLOWED,
    ),
    "a hook blocks the prompt": Case(
        ["Never."],
        ["Never."],
        ("informs", "UserPromptSubmit operation blocked by hook:\nNot that.\n\nOriginal prompt: Go"),
        two("Stop", UserPromptSubmit={"decision": "block", "reason": "Not that."}),
    ),
    "a hook keeps the turn going": Case(
        ["Short.", "Longer."], ["Short.", "Longer."], ("user", "Stop hook feedback:\nSay more."), two(Stop=once)
    ),
    "a hook for permission is faster than the host": Case(
        [BASH, "Done."], [[PLAYED, "Done."]], ("withdraws",), two("PostToolUse", PermissionRequest=(None, PERMIT)), answers=None
    ),
    "a tool in the host": Case(
        [replies.tool_use(*GREET), "Done."],
        [[steps.ToolUse(*GREET), "Done."]],
        ("user", "Hello, Bob."),
        {**two("PostToolUse"), "PreToolUse": [(text, (None,)) for text in MCP_MATCHERS]},
        server=True,
    ),
    "a tool in the host that is denied, and one that is not there": Case(
        [replies.tool_use(*GREET), replies.tool_use("mcp__s__nope", {}), "Done."],
        [[steps.ToolUse(*GREET), steps.ToolUse("mcp__s__nope"), "Done."]],
        ("user", f"error: <tool_use_error>{NOPE}mcp__s__nope</tool_use_error>"),
        two(PreToolUse=DENY),
        options={"allowed_tools": ["mcp__s"]},
        server=True,
    ),
    "the way out of the plan mode": Case(
        [replies.tool_use("ExitPlanMode", {}), BASH, "Done."],
        [[steps.ToolUse("ExitPlanMode"), PLAYED, "Done."]],
        ("mode", "default"),
        two("PreToolUse"),
        options={"permission_mode": "plan"},
    ),
    "a subagent": Case(
        [replies.tool_use("Agent", AGENT), "Main done."],
        [[steps.ToolUse("Agent", AGENT, steps=[PLAYED, steps.Text("Sub done.")]), "Main done."]],
        ("task", "completed", "Sub done."),
        {event: [(None, (None,)), ("Task|helper", (None,))] for event in ("SubagentStart", "SubagentStop", "PreToolUse", "PostToolBatch")},
        agents=HELPER,
        in_order=False,
    ),
}


class Tap(LineWrapper):
    """Keeps every line that the CLI has sent."""

    def __init__(self, transport: ct.Transport) -> None:
        super().__init__(transport)
        self.frames: list[dict[str, Any]] = []

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        batch = await super().read_batch(source)
        self.frames += [json.loads(line) for line in batch]
        return batch


def callback(answer: Any) -> Any:
    async def hook(given: Any, *_: object) -> Any:
        return answer(given) if callable(answer) else answer

    return hook


async def ponder(*_: object) -> ct.Allow:
    await anyio.sleep_forever()
    raise AssertionError("unreachable")


def greeter() -> MCPServer:
    server = MCPServer("s")

    @server.tool(structured_output=False)
    async def greet(name: str) -> str:
        """Greets."""
        return f"Hello, {name}."

    return server


async def converse(cli: object, live: Live, api: FakeMessagesAPI, case: Case) -> list[Any]:
    """What a host sees that has this conversation with a CLI."""
    environment = live.environment(api, CLAUDE_CODE_MAX_RETRIES="0")
    options = ct.ClaudeOptions(cli_path=str(cli), cwd=live.home.project, env=environment, env_mode="exact", **case.options)
    tap = Tap(ct.SubprocessTransport(options))
    hooks = {
        event: [ct.HookMatcher(text, [callback(answer) for answer in answers]) for text, answers in entries]
        for event, entries in case.hooks.items()
    }
    door = ponder if case.answers is None else Doorkeeper(list(case.answers))
    servers = {"s": greeter()} if case.server else None
    with anyio.fail_after(PATIENCE):
        async with ct.Query(tap, hooks=hooks, can_use_tool=door, mcp_servers=servers, agents=case.agents) as query:
            for prompt in case.prompts:
                await (await query.send(prompt)).result()
            await query.end_input()
            async for _ in query:
                pass
    return [told for told in map(reduced, tap.frames) if told is not None]


def model(case: Case) -> Any:
    if case.agents is None:
        return list(case.script)
    inside, outside = iter([BASH, replies.text("Sub done.")]), iter([case.script[0], replies.text(case.script[1])])
    return lambda request: next(inside if from_subagent(request) else outside)


def scenario(case: Case) -> Scenario:
    def turn(given: Any) -> Any:
        return given if isinstance(given, str) else [steps.Text(step) if isinstance(step, str) else step for step in given]

    return Scenario.turns([turn(given) for given in case.turns])


@pytest.mark.parametrize("name", share(CASES, ci=[*CASES][::2]))
async def test_a_host_sees_the_same_from_the_fake_as_from_the_real_cli(live: Live, name: str) -> None:
    case = CASES[name]
    async with FakeMessagesAPI(model(case)) as api:
        real = await converse(live.cli, live, api, case)
        for made in live.home.project.iterdir():
            made.unlink()
        with FakeClaude(scenario(case)) as fake:
            played = await converse(fake.path, live, api, case)
    assert case.shows in real
    if case.in_order:
        assert played == real
    else:
        assert ordered_apart(played) == ordered_apart(real)


def ordered_apart(seen: list[Any]) -> tuple[list[Any], ...]:
    """What the CLI asks, what it streams, and the rest: each in its order."""
    kinds = ["question" if told[0] in QUESTIONS else "stream" if told[0] == "streams" else "rest" for told in seen]
    return tuple([told for told, each in zip(seen, kinds, strict=True) if each == kind] for kind in ("question", "stream", "rest"))


# ------------------------------------------------------------------------------------------------------------------- what is compared

QUESTIONS = ("hook", "asks", "mcp", "withdraws")
OF_HOOKS = ("agent_type", "tool_name", "tool_input", "error", "prompt", "stop_hook_active", "last_assistant_message", "mcp_server")


def reduced(frame: dict[str, Any]) -> Any:
    """What a host acts on, or None for a frame that is none of that."""
    kind = frame.get("subtype") if frame["type"] == "system" else frame["type"]
    reader = READERS.get(str(kind))
    return reader(frame) if reader is not None else None


def _question(frame: dict[str, Any]) -> Any:
    body = frame["request"]
    if body["subtype"] == "can_use_tool":
        return "asks", body["tool_name"], body["input"], body.get("decision_reason"), bool(body.get("requires_user_interaction"))
    if body["subtype"] == "mcp_message":
        message = body["message"]
        params = message.get("params", {})
        return "mcp", body["server_name"], message["method"], message.get("id"), params.get("name"), params.get("arguments")
    given = body["input"]
    about = {name: given[name] for name in OF_HOOKS if name in given}
    if given.get("tool_name") != "Agent" and given["hook_event_name"] == "PostToolUse":
        about["tool_response"] = given["tool_response"]
    calls = [(call["tool_name"], call["tool_input"]) for call in given.get("tool_calls", ())]
    return "hook", body["callback_id"], given["hook_event_name"], sorted(given), given.get("permission_mode"), about, calls


def _said(frame: dict[str, Any]) -> Any:
    (block,) = frame["message"]["content"]
    inside = ("in a subagent",) if frame.get("parent_tool_use_id") else ()
    kind = block["type"]
    return "assistant", (block["name"], block["input"]) if kind == "tool_use" else block[kind], *inside


def _heard(frame: dict[str, Any]) -> Any:
    (block,) = frame["message"]["content"]
    inside = ("in a subagent",) if frame.get("parent_tool_use_id") else ()
    text = block["text"] if block["type"] == "text" else block["content"]
    text = text if isinstance(text, str) else "\n".join(part["text"] for part in text)
    if "[Subagent hand-back]" in text or text == "Sub done.":
        text = "what the subagent said: Sub done." if "Sub done." in text else text
    return "user", f"{'error: ' if block.get('is_error') else ''}{text}", *inside


def _streamed(frame: dict[str, Any]) -> Any:
    event = frame["event"]
    about = event.get("content_block") or event.get("delta") or {}
    return "streams", event["type"], event.get("index"), {name: value for name, value in about.items() if name not in ("id", "caller")}


def _ended(frame: dict[str, Any]) -> Any:
    denied = [(denial["tool_name"], denial["tool_input"]) for denial in frame["permission_denials"]]
    facts = [frame.get(name) for name in ("subtype", "is_error", "num_turns", "terminal_reason", "stop_reason", "result")]
    deferred = frame.get("deferred_tool_use") or {}
    return "result", *facts, denied, (deferred.get("name"), deferred.get("input"))


def _begun(frame: dict[str, Any]) -> Any:
    tools = sorted(tool for tool in frame["tools"] if tool.startswith("mcp__"))
    return "init", frame["permissionMode"], [(server["name"], server["status"]) for server in frame["mcp_servers"]], tools


READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "control_request": _question,
    "control_cancel_request": lambda frame: ("withdraws",),
    "assistant": _said,
    "user": _heard,
    "stream_event": _streamed,
    "result": _ended,
    "init": _begun,
    "informational": lambda frame: ("informs", frame["content"]),
    "permission_denied": lambda frame: ("denied", frame["tool_name"], frame["message"]),
    "notification": lambda frame: ("notifies", frame["key"]),
    "status": lambda frame: ("mode", frame["permissionMode"]) if frame.get("permissionMode") else None,
    "task_started": lambda frame: ("task", "started", frame["prompt"], frame["subagent_type"]),
    "task_notification": lambda frame: ("task", frame["status"], frame["summary"]),
}


# -------------------------------------------------------------------------------------------------------------------- crash and resume


async def lives(cli: object, live: Live, api: FakeMessagesAPI, *, started: Callable[[], Any]) -> list[Any]:
    """A host whose CLI is killed in the middle of its first answer, and that resumes the session with another one."""
    environment = live.environment(api, CLAUDE_CODE_MAX_RETRIES="0")
    told: list[Any] = []
    session = ""

    def options(**more: Any) -> ct.ClaudeOptions:
        return ct.ClaudeOptions(cli_path=str(cli), cwd=live.home.project, env=environment, env_mode="exact", **more)

    async with ct.Query(ct.SubprocessTransport(options(include_partial_messages=True))) as query:
        told.append((await (await query.send("Go")).result()).result)
        turn = await query.send("On")
        with pytest.raises(ct.ProcessError) as died:
            async for message in turn:
                if isinstance(message, ct.messages.StreamEvent) and message.event.get("type") == "content_block_delta":
                    session = message.session_id
                    told.append(message.event["delta"]["text"])
                    os.kill(query.initialization.pid or 0, signal.SIGKILL)
        told.append((died.value.code, died.value.signal))
    started()
    tap = Tap(ct.SubprocessTransport(options(resume=session)))
    async with ct.Query(tap) as query:
        await (await query.send("Once more")).result()
        await query.end_input()
        async for _ in query:
            pass
    first = next(frame for frame in tap.frames if frame.get("subtype") == "init")
    return [*told, first["session_id"] == session, *(seen for seen in map(reduced, tap.frames) if seen is not None)]


async def test_a_host_sees_the_same_crash_and_resumes_in_the_same_way(live: Live) -> None:
    halves = ["Never ", "finished."]
    stuck = replies.gated("Never finished.", gate="never", chunks=halves)
    crashing = Scenario.turns(["First.", [steps.Text("Never finished.", chunks=halves, gate="never")]])
    with anyio.fail_after(PATIENCE):
        async with FakeMessagesAPI(["First.", stuck]) as api:
            real = await lives(live.cli, live, api, started=lambda: api.replace(["Back again."]))
            with FakeClaude([crashing, Scenario.text("Back again.")]) as fake:
                played = await lives(fake.path, live, api, started=lambda: None)
                calls = fake.calls()
    assert ("assistant", "Back again.") in real
    assert played == real
    assert [call.option("--resume") is not None for call in calls] == [False, True]
