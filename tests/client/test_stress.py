"""Two hundred conversations at once, each with a real child process, doing permissions, hooks and MCP at the same time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn
from claude_transport.testing.conformance.census import LASTING, Census
from claude_transport.testing.steps import Request, Result, Step, Text

SESSIONS = 200
ROUNDS = 2
PATIENCE = 120.0  # seconds; measured: about 5 on two cores
CALLBACKS = 3  # of each session in each round: a permission, a hook, a tool
HANDSHAKE = 3  # messages that the fake sends to the MCP server at the start of each session

resource = pytest.importorskip("resource", reason="a limit on open files is a thing of POSIX")


def conversation() -> ScriptedTurn:
    """One round: the three questions are asked together, and the last answer that comes decides how it goes on."""
    call = {"id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"word": "{{prompt}}"}, "_meta": {"progressToken": 2}}}
    tool_input = {"token": "{{prompt}}"}
    together: tuple[Step, ...] = (
        Request.hook_callback("PreToolUse", payload={"tool_name": "Bash", "tool_input": tool_input}, wait=False),
        Request.mcp_message("box", message=call, wait=False),
        Request.can_use_tool(
            "Bash", input=tool_input, on_success=(Text("{{answer.response.updatedInput.token}}"),), on_deny=(Text("denied"),)
        ),
    )
    return ScriptedTurn((*together, Result()))


class UnadmittedConnections:
    """What all sessions share: a gate that opens when every callback of every session is inside, and one MCP server."""

    def __init__(self) -> None:
        self.inside = 0
        self.most_inside = 0
        self.gate = anyio.Event()
        self.seen: list[tuple[str, str, str]] = []  # session, kind of callback, token that it was given
        self.server = MCPServer("shared")
        self.server.tool()(self.echo)

    async def meet(self) -> None:
        """Return when all are here: nobody gets an answer before everybody has asked."""
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        if self.inside == SESSIONS * CALLBACKS:
            self.gate.set()
        await self.gate.wait()
        self.inside -= 1
        if self.inside == 0:
            self.gate = anyio.Event()  # for the next round

    async def echo(self, word: str, ctx: Context) -> str:
        await ctx.report_progress(1, 2, word)
        await self.meet()
        self.seen.append((session_of(word), "mcp", word))
        return f"echo {word}"


def session_of(token: str) -> str:
    return token.partition(".")[0]


class Session:
    """One conversation, whose callbacks note every token they are shown."""

    def __init__(self, number: int, crowd: UnadmittedConnections, command: list[str]) -> None:
        self.name = f"s{number}"
        self.crowd = crowd
        self.query = ct.Query(
            ct.SubprocessTransport(command=command),
            can_use_tool=self.permit,
            hooks={"PreToolUse": [ct.HookMatcher(hooks=[self.look])]},
            mcp_servers={"box": crowd.server},
        )

    async def permit(self, _tool: str, given: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow:
        self.crowd.seen.append((self.name, "permission", given["token"]))
        await self.crowd.meet()
        return ct.Allow(updated_input={"token": f"allowed {given['token']}"})

    async def look(self, given: Any, _tool_use_id: str | None, _context: ct.client.CallbackContext) -> dict[str, Any]:
        self.crowd.seen.append((self.name, "hook", given["tool_input"]["token"]))
        await self.crowd.meet()
        return {"systemMessage": f"saw {given['tool_input']['token']}"}

    async def talk(self) -> None:
        for number in range(ROUNDS):
            token = f"{self.name}.{number}"
            result = await (await self.query.send(token)).result()
            assert result.result == f"allowed {token}"
            while self.query.pending_questions or self.query.pending_requests:
                await self.query.changed()


def check_answers(calls: list[Any]) -> None:
    """What each child was told carries the tokens of its own prompts and of no others, and each question was answered once."""
    for call in calls:
        (name,) = {session_of(prompt) for prompt in call.prompts}
        answers = [message["response"] for message in call.messages if message["type"] == "control_response"]
        assert max(Counter(answer["request_id"] for answer in answers).values()) == 1
        assert len(answers) == ROUNDS * CALLBACKS + HANDSHAKE
        words = Counter(word for answer in answers for word in json.dumps(answer).replace('\\"', '"').split('"'))
        for number in range(ROUNDS):
            token = f"{name}.{number}"
            for said in (f"allowed {token}", f"saw {token}", f"echo {token}"):
                assert words[said] >= 1, (said, answers)
        told = [word for word in words if word.startswith(("allowed ", "saw ", "echo "))]
        assert {session_of(word.split()[-1]) for word in told} == {name}


@pytest.fixture
def room_for_files() -> Iterator[None]:
    """The usual soft limit of 1024 open files is just about what two hundred children take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10 * SESSIONS if hard == resource.RLIM_INFINITY else min(10 * SESSIONS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("room_for_files")
async def test_two_hundred_sessions_at_once_keep_apart_and_leave_nothing_behind() -> None:
    before = await Census.rested()
    crowd = UnadmittedConnections()
    with FakeClaude(Scenario(otherwise=conversation())) as fake, anyio.fail_after(PATIENCE):
        sessions = [Session(number, crowd, fake.command) for number in range(SESSIONS)]
        async with AsyncExitStack() as stack:
            for session in sessions:
                stack.push_async_exit(session.query)
            async with anyio.create_task_group() as starting:
                for session in sessions:
                    starting.start_soon(session.query.start)
            async with anyio.create_task_group() as talking:
                for session in sessions:
                    talking.start_soon(session.talk)
            outstanding = [(*session.query.pending_questions, *session.query.pending_requests) for session in sessions]
            async with anyio.create_task_group() as closing:
                for session in sessions:
                    closing.start_soon(session.query.aclose)
        check_answers(fake.calls())
    assert crowd.most_inside == SESSIONS * CALLBACKS
    expected = [(f"s{n}", kind, f"s{n}.{r}") for n in range(SESSIONS) for kind in ("hook", "mcp", "permission") for r in range(ROUNDS)]
    assert sorted(crowd.seen) == sorted(expected)
    assert outstanding == [()] * SESSIONS
    assert await before.growth(patience=10, of=LASTING) == {}
