"""Answers that come late or twice, in every order: 500 seeds of one conversation on each event loop, with a Codex in memory."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from codex_player import Codex, connected

from claude_transport.bridge import HostTool
from claude_transport.client import InterruptOutcome
from claude_transport.codex import ApprovalRequest, CodexSession, FileChangeApproval, FileUpdate

SEEDS = 500
Line = dict[str, Any]


def asks(number: int, turn: str = "U") -> Line:
    params = {"threadId": "T", "turnId": turn, "itemId": f"call_{number}", "command": "true"}
    return {"id": number, "method": "item/commandExecution/requestApproval", "params": params}


def calls(number: int, turn: str = "U") -> Line:
    params = {"threadId": "T", "turnId": turn, "callId": f"call_{number}", "tool": "look", "arguments": {}}
    return {"id": number, "method": "item/tool/call", "params": params}


def tells(method: str, **params: Any) -> Line:
    return {"method": method, "params": {"threadId": "T", **params}}


def settles(number: int) -> Line:
    return tells("serverRequest/resolved", requestId=number)


def begins(turn: str) -> Line:
    return tells("turn/started", turn={"id": turn, "status": "inProgress"})


def ends(turn: str = "U", status: str = "completed") -> Line:
    return tells("turn/completed", turn={"id": turn, "status": status, "items": []})


class Host:
    """The callbacks of the program. They take as many steps as `chance` says, or wait for ever while `is_stuck`."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.begun: list[object] = []
        self.running = 0
        self.is_stuck = False
        self.tool = HostTool(name="look", call=self._look, description="Looks.")

    async def on_approval(self, request: ApprovalRequest) -> Any:
        await self._work(request.id)
        return "accept"

    async def _look(self, _: dict[str, Any], context: Any) -> str:
        return await self._work(context.request_id)

    async def _work(self, what: object) -> str:
        self.begun.append(what)
        self.running += 1
        try:
            if self.is_stuck:
                await anyio.sleep_forever()
            for _ in range(self.chance.randrange(5)):
                await anyio.lowlevel.checkpoint()
        finally:
            self.running -= 1
        return "seen"


class Peer:
    """Codex in one conversation: says lines in pieces as `chance` cuts them, and sorts what it hears."""

    def __init__(self, codex: Codex, chance: random.Random) -> None:
        self._codex = codex
        self._chance = chance
        self._changed = anyio.Event()
        self.requests: list[Line] = []
        self.answers: dict[object, list[Any]] = {}

    async def listen(self) -> None:
        while True:
            message = await self._codex.hear()
            if "method" in message:
                self.requests.append(message)
            else:
                self.answers.setdefault(message["id"], []).append(message.get("result", message.get("error")))
            self._changed.set()
            self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    async def request(self, method: str) -> Line:
        """The next request of the host."""
        await self.until(lambda: bool(self.requests))
        request = self.requests.pop(0)
        assert request["method"] == method
        return request

    async def say(self, *lines: Line) -> None:
        rest: Sequence[Line] = lines
        while rest:
            size = self._chance.randint(1, len(rest))
            await self._codex.say(*rest[:size])
            rest = rest[size:]
            for _ in range(self._chance.randrange(5)):
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def talking(chance: random.Random) -> AsyncIterator[tuple[CodexSession, Peer, Host]]:
    host = Host(chance)
    async with connected(on_approval=host.on_approval, tools=[host.tool]) as (session, codex):
        peer = Peer(codex, chance)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.listen)
            yield session, peer, host
            tasks.cancel_scope.cancel()


ACCEPTED = {"decision": "accept"}
DECLINED = {"decision": "decline"}
IN_USE = {"code": -32600, "message": "the id of this request is already in use"}


async def answered_twice(session: CodexSession, peer: Peer, host: Host, turn: str, number: int) -> None:
    """Codex asks, is answered, ends the turn, and asks the same again."""
    await peer.say(begins(turn), asks(number, turn))
    await peer.until(lambda: number in peer.answers)
    await peer.say(settles(number), ends(turn), asks(number, turn))
    await peer.until(lambda: len(peer.answers[number]) == 2)
    assert peer.answers == {number: [ACCEPTED, ACCEPTED]}
    assert host.begun == [number, number]


async def said_twice(session: CodexSession, peer: Peer, host: Host, turn: str, number: int) -> None:
    """Codex says its question twice, with its end of the turn in between: the second one is a question, or its id is in use."""
    await peer.say(begins(turn), asks(number, turn), ends(turn), asks(number, turn))
    await peer.until(lambda: sum(map(len, peer.answers.values())) == 2)
    answers = [ACCEPTED] * len(host.begun)
    assert peer.answers == ({number: answers} if len(answers) == 2 else {None: [IN_USE], number: answers})


async def settled_unanswered(session: CodexSession, peer: Peer, host: Host, turn: str, number: int) -> None:
    """A question and a call of a tool are settled before they are answered, and the turn ends."""
    host.is_stuck = True
    lines = [asks(number, turn), calls(number + 1, turn)]
    await peer.say(begins(turn), *lines, settles(number + 1), settles(number), ends(turn))
    await peer.until(lambda: len(peer.answers) == 2)
    assert peer.answers == {number: [DECLINED], number + 1: [CANCELLED]}


CANCELLED = {"success": False, "contentItems": [{"type": "inputText", "text": "cancelled"}]}


async def answered_late(session: CodexSession, peer: Peer, host: Host, turn: str, number: int) -> None:
    """The turn ends while a question and a tool are worked on: both are answered after its end."""
    await peer.say(begins(turn), calls(number, turn), asks(number + 1, turn), ends(turn))
    await peer.until(lambda: len(peer.answers) == 2)
    seen = {"success": True, "contentItems": [{"type": "inputText", "text": "seen"}]}
    assert peer.answers == {number: [seen], number + 1: [ACCEPTED]}


async def interrupted(session: CodexSession, peer: Peer, host: Host, turn: str, number: int) -> None:
    """The turn is interrupted while a question waits. Codex settles it and ends the turn before or after it answers the interrupt."""
    host.is_stuck = True
    outcomes: list[InterruptOutcome] = []

    async def interrupt() -> None:
        outcomes.append(await session.interrupt())

    await peer.say(begins(turn), asks(number, turn))
    while not (host.running and session.running_turns):
        await anyio.lowlevel.checkpoint()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(interrupt)
        request = await peer.request("turn/interrupt")
        lines = [settles(number), ends(turn, "interrupted")]
        lines.insert(number % 3, {"id": request["id"], "result": {}})
        await peer.say(*lines)
    await peer.until(lambda: number in peer.answers)
    assert peer.answers == {number: [DECLINED]}
    assert outcomes == [InterruptOutcome.ACKNOWLEDGED]


STORIES = [answered_twice, said_twice, settled_unanswered, answered_late, interrupted]


async def test_answers_that_come_twice_or_late_change_no_turn() -> None:
    chance = random.Random(0)
    async with talking(chance) as (session, peer, host):
        for seed in range(SEEDS):
            chance.seed(seed)
            story, turn = STORIES[seed % len(STORIES)], f"turn_{seed}"
            host.begun, host.is_stuck = [], False
            peer.answers = {}
            ended: list[tuple[str, object]] = []

            async def prompt(ended: list[tuple[str, object]] = ended) -> None:
                result = await (await session.send("Go on")).result()
                ended.append((result.status, result.error))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(prompt)
                request = await peer.request("turn/start")
                await peer.say({"id": request["id"], "result": {"turn": {"id": turn}}})
                await story(session, peer, host, turn, 2 * seed)
            assert ended == [("interrupted" if story is interrupted else "completed", None)], seed
            assert (host.running, session.pending_approvals, session.running_turns, session.failed_callbacks) == (0, (), (), 0), seed


# One order each


@pytest.mark.parametrize(("line", "answer"), [(asks(0), DECLINED), (calls(0), CANCELLED)])
async def test_what_is_settled_as_soon_as_it_is_asked_is_not_begun(line: Line, answer: Any) -> None:
    host = Host(random.Random(0))
    host.is_stuck = True
    async with connected(on_approval=host.on_approval, tools=[host.tool]) as (session, codex):
        await codex.say(line, settles(0))
        assert await codex.hear() == {"id": 0, "result": answer}
        assert (host.begun, session.pending_approvals) == ([], ())


async def test_an_answer_that_is_ready_when_its_question_is_settled_declines() -> None:
    released = anyio.Event()
    settled: list[bool] = []

    async def on_approval(_: ApprovalRequest) -> Any:
        with anyio.CancelScope(shield=True):
            await released.wait()
        settled.append(True)
        return "accept"

    async with connected(on_approval=on_approval) as (session, codex):
        await codex.say(asks(0))
        await anyio.wait_all_tasks_blocked()
        await codex.say(settles(0))
        await anyio.wait_all_tasks_blocked()
        released.set()
        assert await codex.hear() == {"id": 0, "result": DECLINED}
        assert (settled, session.failed_callbacks) == ([True], 0)


async def test_questions_are_taken_up_in_the_order_in_which_they_were_asked() -> None:
    host = Host(random.Random(0))
    host.is_stuck = True
    async with connected(on_approval=host.on_approval) as (session, codex):
        await codex.say(*map(asks, range(8)))
        while host.running < 8:
            await anyio.lowlevel.checkpoint()
        assert [request.id for request in session.pending_approvals] == host.begun == list(range(8))


async def test_the_changes_of_a_file_change_are_known_although_its_turn_ends_at_once() -> None:
    asked: list[ApprovalRequest] = []

    async def on_approval(request: ApprovalRequest) -> Any:
        asked.append(request)
        return "decline"

    change = {"path": "/made.txt", "kind": {"type": "add"}, "diff": "one line\n"}
    item = {"type": "fileChange", "id": "call_1", "changes": [change], "status": "inProgress"}
    ask = {"id": 0, "method": "item/fileChange/requestApproval", "params": {"threadId": "T", "turnId": "U", "itemId": "call_1"}}
    async with connected(on_approval=on_approval) as (session, codex), anyio.create_task_group() as tasks:
        tasks.start_soon(session.send, "Make it")
        request = await codex.hear()
        await codex.say({"id": request["id"], "result": {"turn": {"id": "U"}}}, begins("U"))
        await anyio.wait_all_tasks_blocked()
        await codex.say(tells("item/started", turnId="U", item=item), ask, ends())
        assert await codex.hear() == {"id": 0, "result": DECLINED}
    (question,) = asked
    assert isinstance(question, FileChangeApproval)
    assert [(each.path, each.diff) for each in question.changes] == [("/made.txt", "one line\n")]
    assert all(isinstance(each, FileUpdate) for each in question.changes)


async def test_a_session_that_ended_has_no_question_that_waits() -> None:
    host = Host(random.Random(0))
    host.is_stuck = True
    async with connected(on_approval=host.on_approval) as (session, codex):
        await codex.say(asks(0))
        await anyio.wait_all_tasks_blocked()
        await codex.stream.aclose()
        while not session.has_ended:
            await anyio.lowlevel.checkpoint()
        assert session.pending_approvals == ()


async def test_a_question_whose_callback_resists_the_end_waits_no_more() -> None:
    released, begun = anyio.Event(), anyio.Event()

    async def on_approval(_: ApprovalRequest) -> Any:
        with anyio.CancelScope(shield=True):
            begun.set()
            await released.wait()
        return "accept"

    async with connected(on_approval=on_approval) as (session, codex):
        await codex.say(asks(0))
        await begun.wait()
        assert [request.id for request in session.pending_approvals] == [0]
        await codex.stream.aclose()
        while not session.has_ended:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert session.pending_approvals == ()
        released.set()
