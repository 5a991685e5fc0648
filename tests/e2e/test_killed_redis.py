"""A Redis server that is killed while a session of the real CLI is stored in it: what it acknowledged is there, and a loss is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from redis_server import RedisServer
from test_session_stores import SID, Machine, ask, known, machines, temporary

import claude_transport as ct
from claude_transport import sessions
from claude_transport.testing import FakeMessagesAPI

pytestmark = pytest.mark.both_loops

__all__ = ["machines", "temporary"]  # fixtures


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A running server that keeps what it acknowledges."""
    made = RedisServer(tmp_path / "redis", durable=True)
    made.start()
    yield made
    made.kill()


class Witness(sessions.RedisSessionStore):
    """A store that notes what the server has acknowledged, and tells when an append begins.

    A server acknowledges entries by its answer to an append. When that answer was lost, the mirror asks for what is there instead, before
    it tries again: what the server shows then is acknowledged, too.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.acknowledged: list[Any] = []
        self.begun = self.ended = 0
        self.failed = 0
        self._changed = anyio.Event()

    async def append(self, key: Any, entries: Any) -> None:
        """Pass it on."""
        self.begun += 1
        self._note()
        try:
            await super().append(key, entries)
        except Exception:
            self.failed += 1
            raise
        else:
            self.acknowledged += entries
        finally:
            self.ended += 1
            self._note()

    async def load(self, key: Any) -> Any:
        """Pass it on."""
        try:
            found = await super().load(key)
        except Exception:
            self.failed += 1
            raise
        else:
            self.acknowledged += found or []
            return found
        finally:
            self._note()

    def _note(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Any) -> None:
        """Return when it holds, looked at whenever an append begins or ends."""
        with anyio.fail_after(60):
            while not condition():
                await self._changed.wait()


def uuids(entries: Any) -> list[str]:
    """The ids of entries, in their order. Entries without one may be there twice after a retry."""
    return [entry["uuid"] for entry in entries or [] if "uuid" in entry]


async def stored(server: RedisServer, machine: Machine) -> Any:
    """What the server has of the session, read by another store: a witness would count it as acknowledged."""
    store = sessions.RedisSessionStore(server.url)
    return await store.load({"project_key": sessions.project_key_for_directory(machine.project), "session_id": SID})


async def killed_in_an_append(server: RedisServer, store: Witness, steps: int) -> None:
    """Kill the server some steps of the event loop after the next append has begun, and start it again. Return when it stores again."""
    begun, acknowledged = store.begun, len(store.acknowledged)
    await store.until(lambda: store.begun > begun)
    for _ in range(steps):
        await anyio.lowlevel.checkpoint()
    server.kill()
    await anyio.to_thread.run_sync(server.start)
    await store.until(lambda: len(store.acknowledged) > acknowledged)


@pytest.mark.needs("--session-mirror")
async def test_a_server_that_is_killed_in_the_middle_of_appends_has_everything_once_in_the_end(
    server: RedisServer, machines: Iterator[Machine]
) -> None:
    one, store, said = next(machines), Witness(server.url), [f"Answer {number}." for number in range(6)]
    async with FakeMessagesAPI(said) as api, one.session(api, session_store=store, session_id=SID) as query:
        for number, answer in enumerate(said):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(killed_in_an_append, server, store, number * 8)  # a little later each time
                assert (await ask(query, f"Question {number}")).result == answer
        report = await query.aclose()
    assert report.unstored_entries == 0
    assert store.failed > 0
    there = uuids(await stored(server, one))
    assert there == list(dict.fromkeys(uuids(store.acknowledged)))  # nothing acknowledged is lost, and nothing is there twice
    messages = await sessions.get_session_messages_from_store(store, SID, one.project)
    assert [str(message.message["content"]) for message in messages[::2]] == [f"Question {number}" for number in range(6)]
    assert all(answer in str(message.message) for answer, message in zip(said, messages[1::2], strict=True))


@pytest.mark.needs("--session-mirror")
async def test_a_server_that_stays_away_costs_told_entries_only_and_is_used_again_when_it_is_back(
    server: RedisServer, machines: Iterator[Machine], temporary: Path
) -> None:
    one, other, store = next(machines), next(machines), Witness(server.url)
    async with FakeMessagesAPI(lambda _: "The word is xyzzy.") as api:
        async with one.session(api, session_store=store, session_id=SID) as query:
            messages = query.messages()
            await ask(query, "Stored before")
            # of an append that is under way when the server dies, nobody would know whether it was stored
            await store.until(lambda: uuids(store.acknowledged) and store.begun == store.ended)
            server.kill()
            for number in range(3):
                assert (await ask(query, f"Said while it is away, {number}")).result == "The word is xyzzy."
            await store.until(lambda: store.failed > 1)
            report = await query.aclose()
            lost = [message async for message in messages if isinstance(message, ct.messages.MirrorError)]
        assert lost
        assert {message.session_id for message in lost} <= {SID, ""}  # the last report counts what had not been looked at
        assert report.unstored_entries > 0
        await anyio.to_thread.run_sync(server.start)
        assert uuids(await stored(server, one)) == list(dict.fromkeys(uuids(store.acknowledged)))
        one.vanish()
        # the hold of the first host has not ended yet: it could not be given back
        async with other.session(api, session_store=store, resume=SID, fork_session=True) as query:
            assert (await ask(query, "Stored again")).session_id != SID
        assert "Stored before" in known(api)
        assert "Stored again" in str(store.acknowledged)
