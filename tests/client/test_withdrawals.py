"""A question that the CLI withdraws cancels its callback and is not answered, whenever the withdrawal comes.

The races are made, not waited for: a callback itself says "withdrawn" on the peer's behalf, and a request that is answered
afterwards proves that it was read. The clocks jump, so that a callback that is never let go costs a failing test no time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer
from mcp_peers import HELLO
from peers import PATIENCE, ForeignTransport, Frame, in_time, permission, soon
from virtual_time import Backend, jumping_backends

from claude_transport import Allow, HookMatcher, Query

CANCEL = {"type": "control_cancel_request", "request_id": "q1"}
KINDS = ["permission", "hook", "mcp", "request"]
PROMPTLY = 0.1  # seconds from a withdrawal to the cancellation of its callback


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Run every test of this module on both event loops, with clocks that jump."""
    backend: Backend = request.param
    return backend


class Case:
    """One kind of callback, what it does, and the question that leads to it."""

    def __init__(self, kind: str, work: Callable[[Case], Awaitable[None]]) -> None:
        self.kind = kind
        self.work = work
        self.asked = anyio.Event()
        self.let_go = anyio.Event()
        self.cancelled: list[float] = []
        self.transport = ForeignTransport()
        self.query = Query(self.transport, **self._callback())

    def _callback(self) -> dict[str, Any]:
        async def callback(*_: object) -> Any:
            self.asked.set()
            try:
                await self.work(self)
            except anyio.get_cancelled_exc_class():
                self.cancelled.append(anyio.current_time())
                raise
            return {"permission": Allow(), "hook": {"continue": True}}.get(self.kind, {"ok": True})

        async def tool() -> dict[str, Any]:
            return dict(await callback())

        server = MCPServer("box")
        server.tool()(tool)
        return {
            "permission": {"can_use_tool": callback},
            "hook": {"hooks": {"PreToolUse": [HookMatcher(hooks=[callback])]}},
            "mcp": {"mcp_servers": {"box": server}},
            "request": {"on_request": callback},
        }[self.kind]

    async def prepare(self) -> None:
        if self.kind == "mcp":
            self.transport.say(mcp({"id": 0, "method": "initialize", "params": HELLO}, "hello"))
            await soon(lambda: "hello" in self.transport.responses())

    def question(self, request_id: str = "q1", rpc_id: int = 2) -> Frame:
        if self.kind == "permission":
            return permission(request_id)
        if self.kind == "mcp":
            return mcp({"id": rpc_id, "method": "tools/call", "params": {"name": "tool", "arguments": {}}}, request_id)
        body: Frame = {"subtype": "from_the_future"}
        if self.kind == "hook":
            body = {"subtype": "hook_callback", "callback_id": "hook_0", "input": {"hook_event_name": "PreToolUse"}, "tool_use_id": "t"}
        return {"type": "control_request", "request_id": request_id, "request": body}

    async def ask(self) -> None:
        self.transport.say(self.question())
        await in_time(self.asked.wait())

    async def settle(self) -> None:
        """Everything that was said is read, and everything that wants to be answered is."""
        await in_time(self.query.request("sync"))
        await soon(lambda: not self.query.pending_questions)
        await in_time(self.query.request("sync"))

    def answers(self, request_id: str = "q1") -> int:
        written = self.transport.written
        return sum(1 for frame in written if frame["type"] == "control_response" and frame["response"]["request_id"] == request_id)


def mcp(message: Frame, request_id: str) -> Frame:
    body = {"subtype": "mcp_message", "server_name": "box", "message": {"jsonrpc": "2.0", **message}}
    return {"type": "control_request", "request_id": request_id, "request": body}


async def waits(case: Case) -> None:
    await case.let_go.wait()


async def resists(case: Case) -> None:
    with anyio.move_on_after(PATIENCE, shield=True):
        await case.let_go.wait()


async def swallows(case: Case) -> None:
    try:
        await case.let_go.wait()
    except anyio.get_cancelled_exc_class():
        case.cancelled.append(anyio.current_time())


async def fails_when_cancelled(case: Case) -> None:
    try:
        await case.let_go.wait()
    except anyio.get_cancelled_exc_class():
        case.cancelled.append(anyio.current_time())
        raise ValueError("instead") from None


async def asks_the_cli(case: Case) -> None:
    case.transport.answers = False
    await case.query.request("get_settings")


async def is_withdrawn_an_instant_before_it_returns(case: Case) -> None:
    case.transport.say(CANCEL)
    with anyio.CancelScope(shield=True):
        await case.query.request("sync")  # its answer comes after the withdrawal, which has been read then


async def is_withdrawn_while_it_returns(case: Case) -> None:
    case.transport.say(CANCEL)  # and nobody can read it before the answer is on its way


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("work", [waits, swallows, fails_when_cancelled])
async def test_a_withdrawal_cancels_the_callback_and_nothing_is_answered(kind: str, work: Any) -> None:
    case = Case(kind, work)
    async with case.query:
        await case.prepare()
        await case.ask()
        await anyio.sleep(1)  # seconds of a clock that jumps
        withdrawn = anyio.current_time()
        case.transport.say(CANCEL)
        await soon(lambda: case.cancelled)
        await case.settle()
        (cancelled,) = case.cancelled
        assert cancelled - withdrawn <= PROMPTLY
        assert (case.answers(), case.query.pending_questions, case.query.is_quiet) == (0, (), True)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_callback_that_resists_is_not_answered_for_either(kind: str) -> None:
    case = Case(kind, resists)
    async with case.query:
        await case.prepare()
        await case.ask()
        case.transport.say(CANCEL)
        await in_time(case.query.request("sync"))
        case.let_go.set()
        await case.settle()
        assert case.answers() == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_withdrawal_that_was_read_before_the_callback_returned_wins(kind: str) -> None:
    case = Case(kind, is_withdrawn_an_instant_before_it_returns)
    async with case.query:
        await case.prepare()
        await case.ask()
        await case.settle()
        assert case.answers() == 0


@pytest.mark.parametrize("kind", ["permission", "hook", "request"])
async def test_a_callback_that_returned_before_the_withdrawal_was_read_is_answered_once(kind: str) -> None:
    case = Case(kind, is_withdrawn_while_it_returns)
    async with case.query:
        await case.ask()
        await case.settle()
        assert case.answers() == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_withdrawal_after_the_answer_changes_nothing(kind: str) -> None:
    case = Case(kind, waits)
    async with case.query:
        await case.prepare()
        case.let_go.set()
        await case.ask()
        await soon(case.answers)
        case.transport.say(CANCEL, CANCEL, {**CANCEL, "request_id": "unheard of"})
        await case.settle()
        assert (case.answers(), case.cancelled) == (1, [])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_callback_that_is_asking_the_cli_gives_that_up_too(kind: str) -> None:
    case = Case(kind, asks_the_cli)
    async with case.query:
        await case.prepare()
        await case.ask()
        await soon(lambda: case.transport.requests("get_settings"))
        case.transport.answers = True
        case.transport.say(CANCEL)
        await soon(lambda: case.cancelled)
        await case.settle()
        assert (case.answers(), case.query.pending_requests) == (0, {})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_new_question_under_the_id_of_a_withdrawn_one_gets_its_own_answer(kind: str) -> None:
    """The old callback is still there, because it resists: what it returns in the end answers nothing."""
    gates = [anyio.Event(), anyio.Event()]
    begun: list[int] = []

    async def work(_case: Case) -> None:
        begun.append(number := len(begun))
        with anyio.move_on_after(PATIENCE, shield=True):
            await gates[number].wait()

    case = Case(kind, work)
    async with case.query:
        await case.prepare()
        await case.ask()
        case.transport.say(CANCEL)
        await in_time(case.query.request("sync"))
        case.transport.say(case.question(rpc_id=3))
        await soon(lambda: len(begun) == 2)
        gates[0].set()
        await in_time(case.query.request("sync"))
        await anyio.wait_all_tasks_blocked()
        assert case.answers() == 0
        gates[1].set()
        await soon(case.answers)
        await case.settle()
        assert case.answers() == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_withdrawing_one_of_two_leaves_the_other_to_be_answered(kind: str) -> None:
    case = Case(kind, waits)
    async with case.query:
        await case.prepare()
        case.transport.say(case.question("q1", 2), case.question("q2", 3))
        await soon(lambda: len(case.query.pending_questions) == 2)
        case.transport.say(CANCEL)
        await in_time(case.query.request("sync"))
        case.let_go.set()
        await soon(lambda: case.answers("q2"))
        await case.settle()
        assert (case.answers("q1"), case.answers("q2")) == (0, 1)
