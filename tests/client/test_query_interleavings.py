"""Questions that the CLI asks, withdraws and repeats, cut into reads in every way: 400 seeds of one conversation on each event loop."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from peers import Frame, answer_to, permission, result

from claude_transport import Allow, HookMatcher, Query, StreamTransport
from claude_transport.streams.memory import MemoryConnectable, MemoryStream

SEEDS = 400
KINDS = ["permission", "hook", "request"]


def asks(request_id: str, kind: str = "permission") -> Frame:
    """A question of that kind. Its callback is told the id."""
    if kind == "permission":
        return permission(request_id, tool_use_id=request_id)
    body: Frame = {"subtype": "from_the_future", "about": request_id}
    if kind == "hook":
        hook_input = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}}
        body = {"subtype": "hook_callback", "callback_id": "hook_0", "input": hook_input, "tool_use_id": request_id}
    return {"type": "control_request", "request_id": request_id, "request": body}


def withdraws(request_id: str) -> Frame:
    return {"type": "control_cancel_request", "request_id": request_id}


class Host:
    """The callbacks of the program. They take as many steps as `chance` says, or wait for ever: while `is_stuck`, and those in `stuck`."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.begun: list[str] = []
        self.running = 0
        self.is_stuck = False
        self.stuck: Sequence[str] = ()

    async def _work(self, request_id: str) -> None:
        self.begun.append(request_id)
        self.running += 1
        try:
            if self.is_stuck or request_id in self.stuck:
                await anyio.sleep_forever()
            for _ in range(self.chance.randrange(5)):
                await anyio.lowlevel.checkpoint()
        finally:
            self.running -= 1

    async def can_use_tool(self, _name: str, _arguments: object, context: Any) -> Allow:
        await self._work(context.request_id)
        return Allow()

    async def hook(self, _input: object, _tool_use_id: str | None, context: Any) -> dict[str, Any]:
        await self._work(context.request_id)
        return {"continue": True}

    async def on_request(self, _subtype: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        await self._work(fields["about"])
        return {"ok": True}


class Cli:
    """The other end of the stream: says frames in pieces as `chance` cuts them, and sorts what it hears."""

    def __init__(self, stream: MemoryStream, chance: random.Random) -> None:
        self.stream = stream
        self._chance = chance
        self._changed = anyio.Event()
        self.requests: list[Frame] = []
        self.prompts = 0
        self.answers: dict[str, list[str]] = {}

    async def listen(self) -> None:
        rest = b""
        async for data in self.stream:
            *lines, rest = (rest + data).split(b"\n")
            for frame in map(json.loads, lines):
                if frame["type"] == "control_request":
                    self.requests.append(frame)
                elif frame["type"] == "control_response":
                    self.answers.setdefault(frame["response"]["request_id"], []).append(frame["response"]["subtype"])
                else:
                    self.prompts += 1
            self._changed.set()
            self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    async def request(self, subtype: str) -> Frame:
        """The next request of the host."""
        await self.until(lambda: bool(self.requests))
        request = self.requests.pop(0)
        assert request["request"]["subtype"] == subtype
        return request

    async def end(self) -> None:
        await self.stream.send_eof()

    async def say_at_once(self, *frames: Frame) -> None:
        await self.stream.send(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))

    async def say(self, *frames: Frame) -> None:
        rest: Sequence[Frame] = frames
        while rest:
            size = self._chance.randint(1, len(rest))
            await self.say_at_once(*rest[:size])
            rest = rest[size:]
            for _ in range(self._chance.randrange(5)):
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def talking(chance: random.Random) -> AsyncIterator[tuple[Query, Cli, Host]]:
    host = Host(chance)
    hooks = {"PreToolUse": [HookMatcher(hooks=[host.hook])]}
    connectable = MemoryConnectable()
    query = Query(
        StreamTransport(connectable),
        can_use_tool=host.can_use_tool,
        hooks=hooks,
        on_request=host.on_request,
        initialize={"agents": {}},
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(query.start)
        cli = Cli(await connectable.accept(), chance)
        tasks.start_soon(cli.listen)
        await cli.say(answer_to(await cli.request("initialize"), claude_code_version="2.1.330", hook_on_failure_supported=True))
        try:
            yield query, cli, host
        finally:
            host.is_stuck = False
            await cli.end()
            await query.aclose(timeout=0.05)
            tasks.cancel_scope.cancel()


def names(seed: int, count: int) -> list[str]:
    return [f"q{seed}_{number}" for number in range(count)]


async def in_order(query: Query, cli: Cli, host: Host, ids: list[str]) -> None:
    """Questions of all kinds are taken up in the order in which they were asked."""
    await cli.say(*[asks(name, KINDS[number % 3]) for number, name in enumerate(ids)], result())
    await cli.until(lambda: len(cli.answers) == len(ids))
    assert host.begun == ids
    assert cli.answers == {name: ["success"] for name in ids}


async def withdrawn(query: Query, cli: Cli, host: Host, ids: list[str]) -> None:
    """All but the last are withdrawn while they are worked on, or before that."""
    *host.stuck, last = ids
    lines = [each for name in host.stuck for each in (asks(name), withdraws(name))]
    await cli.say(*lines, asks(last), result())
    await cli.until(lambda: last in cli.answers)
    while host.running:
        await anyio.lowlevel.checkpoint()
    assert cli.answers == {last: ["success"]}
    assert host.begun == [name for name in ids if name in host.begun]


async def asked_again(query: Query, cli: Cli, host: Host, ids: list[str]) -> None:
    """A question is withdrawn and asked again under its id: the first one may have been answered before, the second one is."""
    await cli.say(asks(ids[0]), withdraws(ids[0]), asks(ids[0], "hook"), asks(ids[1]), result())
    await cli.until(lambda: ids[1] in cli.answers)
    while query.pending_questions:
        await anyio.lowlevel.checkpoint()
    await asked_for_settings(query, cli)
    assert cli.answers[ids[0]] in (["success"], ["success"] * 2)
    assert cli.answers[ids[1]] == ["success"]
    assert host.begun in ([ids[0], ids[1]], [ids[0], ids[0], ids[1]])


async def asked_for_settings(query: Query, cli: Cli, *around: Frame) -> None:
    """The host asks, and hears the answer after the first of `around`. Its request comes after all its earlier answers."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(query.request, "get_settings")
        request = await cli.request("get_settings")
        assert list(query.pending_requests.values()) == ["get_settings"]
        await cli.say(*around[:1], answer_to(request), *around[1:])


async def with_an_answer(query: Query, cli: Cli, host: Host, ids: list[str]) -> None:
    """A request of the host is answered between two questions: it is pending no more."""
    await asked_for_settings(query, cli, asks(ids[0], "request"), asks(ids[1], "request"), result())
    await cli.until(lambda: len(cli.answers) == 2)
    assert host.begun == ids[:2]


STORIES = [in_order, withdrawn, asked_again, with_an_answer]


async def test_questions_that_are_withdrawn_or_repeated_change_no_turn() -> None:
    chance = random.Random(0)
    async with talking(chance) as (query, cli, host):
        for seed in range(SEEDS):
            chance.seed(seed)
            host.begun, host.is_stuck, cli.answers = [], False, {}
            turn = await query.send("Go on")
            await STORIES[seed % len(STORIES)](query, cli, host, names(seed, 5))
            assert (await turn.result()).result == "done", seed
            left = (host.running, query.pending_questions, query.pending_requests, query.failed_callbacks)
            assert left == (0, (), {}, 0), seed


# One order each


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_withdrawn_in_the_read_that_asks_is_not_begun(kind: str) -> None:
    async with talking(random.Random(0)) as (query, cli, host):
        await cli.say_at_once(asks("q1", kind), withdraws("q1"), asks("q2", kind))
        await cli.until(lambda: "q2" in cli.answers)
        assert (host.begun, cli.answers, query.pending_questions) == (["q2"], {"q2": ["success"]}, ())


async def test_questions_of_one_read_are_taken_up_in_their_order() -> None:
    async with talking(random.Random(0)) as (query, cli, host):
        host.is_stuck = True
        ids = names(0, 9)
        for _ in range(16):  # trio chooses the order of tasks by chance
            host.begun = []
            await cli.say_at_once(*[asks(name, KINDS[number % 3]) for number, name in enumerate(ids)])
            while host.running < len(ids):
                await anyio.lowlevel.checkpoint()
            assert (host.begun, list(query.pending_questions)) == (ids, ids)
            await cli.say_at_once(*map(withdraws, ids))
            while query.pending_questions:
                await anyio.lowlevel.checkpoint()
        assert cli.answers == {}


async def test_questions_and_requests_of_a_conversation_that_ended_in_their_read_wait_for_nothing() -> None:
    for seed in range(16):
        async with talking(random.Random(seed)) as (query, cli, host):
            host.is_stuck = True
            turn = await query.send("Go on")
            await cli.say(asks("q1"), asks("q2", "hook"), result(), asks("q3", "request"))
            await cli.end()
            assert (await turn.result()).result == "done"
            await query.aclose(timeout=0.05)
            assert (host.running, query.pending_questions, query.pending_requests, cli.answers) == (0, (), {}, {})
            assert host.begun == ["q1", "q2", "q3"][: len(host.begun)]
