"""A drain closes a session after its last turn, also after one of a prompt that the process had not read by the end of the turn before."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from rehearsal import Talker, rehearsal
from virtual_time import Backend, jumping_backends

RUNNING = {"type": "system", "subtype": "session_state_changed", "state": "running"}
IDLE = {"type": "system", "subtype": "session_state_changed", "state": "idle"}
INIT = {"type": "system", "subtype": "init"}
DRAIN = 3600.0
DOUBT = 5.0  # more than the seconds that a drain waits for a turn which may not come


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Time passes only when everything waits, and then at once."""
    return request.param  # type: ignore[no-any-return]


def prompt(uuid: str = "") -> dict[str, Any]:
    return {"type": "user", **({"uuid": uuid} if uuid else {}), "message": {"role": "user", "content": "work"}}


def result(*uuids: str) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", **({"user_message_uuids": uuids} if uuids else {})}


def life(state: str, uuid: str) -> dict[str, Any]:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state}


class Drained:
    """A session of a gateway that is being drained: its client, and its process."""

    def __init__(self, client: Talker, process: Talker) -> None:
        self.client, self.process = client, process
        self.over = anyio.Event()

    async def says(self, *messages: dict[str, Any]) -> None:
        """Let the process say these, and the client hear them. The drain may do meanwhile what it wants."""
        await self.process.say(*messages)
        for message in messages:
            assert json.loads(await self.client.hear()) == json.loads(json.dumps(message))
        await anyio.wait_all_tasks_blocked()

    async def ends(self, *, within: float) -> None:
        """The drain closes the session: it ends the input of the process, which ends."""
        began = anyio.current_time()
        assert await self.process.rest() == b""
        assert await self.client.rest() == b""
        await self.client.stream.aclose()
        await self.over.wait()
        assert anyio.current_time() - began <= within


@asynccontextmanager
async def drained(*prompts: dict[str, Any], said: tuple[dict[str, Any], ...] = ()) -> AsyncIterator[Drained]:
    """A session that got the first of these prompts, said this, and got the other ones; then the drain of its gateway began."""
    async with rehearsal(drain_timeout=DRAIN) as stage:
        client = await stage.plain()
        session = Drained(client, await stage.processes.next())
        for each in prompts[:1]:
            await client.say(each)
            await session.process.hear()
        for message in said:
            await session.says(message)
        for each in prompts[1:]:
            await client.say(each)
            await session.process.hear()

        async def drain() -> None:
            await stage.gateway.drain()
            session.over.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drain)
            await anyio.wait_all_tasks_blocked()
            yield session


async def test_the_second_of_two_prompts_has_its_turn_when_the_process_does_not_report_its_state() -> None:
    async with drained(prompt(), prompt()) as session:
        await session.says(INIT, result())
        await session.says(INIT)
        await anyio.sleep(60)  # a turn takes its time
        await session.says(result())
        await session.ends(within=0)


async def test_a_prompt_that_was_on_its_way_when_the_process_became_idle_has_its_turn() -> None:
    async with drained(prompt(), prompt(), said=(RUNNING, INIT)) as session:
        await session.says(result(), IDLE)
        await session.says(RUNNING, INIT)
        await anyio.sleep(60)
        await session.says(result(), IDLE)
        await session.ends(within=0)


@pytest.mark.parametrize("reports", [True, False], ids=["reports its state", "reports no state"])
async def test_prompts_that_became_one_turn_keep_a_drain_waiting_for_a_moment_only(reports: bool) -> None:
    async with drained(prompt(), prompt(), said=(RUNNING, INIT) if reports else (INIT,)) as session:
        await session.says(result(), *([IDLE] if reports else []))
        await session.ends(within=DOUBT)


async def test_prompts_with_a_uuid_are_waited_for_by_name_when_the_process_does_not_report_its_state() -> None:
    said = (life("queued", "one"), life("started", "one"), INIT)
    async with drained(prompt("one"), prompt("two"), said=said) as session:
        await session.says(life("queued", "two"), result("one"))
        await session.says(life("completed", "one"), life("started", "two"), INIT)
        await anyio.sleep(60)
        await session.says(result("two"), life("completed", "two"))
        await session.ends(within=0)


async def test_no_moment_is_lost_where_every_prompt_is_known_to_be_over() -> None:
    said = (RUNNING, life("queued", "one"), life("started", "one"), INIT)
    async with drained(prompt("one"), prompt("two"), said=said) as session:
        await session.says(life("queued", "two"), result("one"), life("completed", "one"), life("started", "two"), INIT, result("two"))
        await session.says(life("completed", "two"), IDLE)
        await session.ends(within=0)


async def test_a_turn_that_no_prompt_has_begun_is_waited_for() -> None:
    async with drained(prompt(), said=(RUNNING, INIT, result(), IDLE, RUNNING)) as session:
        await anyio.sleep(60)
        await session.says(INIT, result(), IDLE)
        await session.ends(within=0)


@pytest.mark.parametrize("uuids", [None, ()], ids=["names nothing", "names no prompt"])
async def test_a_prompt_that_a_result_has_answered_keeps_no_drain_waiting(uuids: tuple[str, ...] | None) -> None:
    answer = {**result(), **({} if uuids is None else {"user_message_uuids": uuids})}
    async with drained(prompt(), prompt(), said=(RUNNING, INIT, answer)) as session:  # a client that waits for each result
        for messages in ([IDLE], [RUNNING, INIT], [answer], [IDLE]):
            await session.says(*messages)
        await session.ends(within=0)
