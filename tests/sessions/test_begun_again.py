"""Two processes on one store: what one acknowledges, the other never takes back, also around sessions that are deleted and begun again."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from redis_server import redis_server

from claude_transport import sessions
from claude_transport.redis.address import RedisAddress
from claude_transport.redis.client import make_client
from claude_transport.sessions import fold_session_summary
from claude_transport.sessions.store_entries import decode_summary, encode_entry, encode_summary

SID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
KEY: Any = {"project_key": "project", "session_id": SID}
PART: Any = {**KEY, "subpath": "subagents/agent-1"}
Opened = Callable[[], Any]


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server for this module."""
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(params=["memory", "file", "sqlite", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens one store, as each process does for itself."""
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        return lambda: sessions.RedisSessionStore(url, prefix=str(tmp_path))
    memory = sessions.InMemorySessionStore()
    made: dict[str, Opened] = {
        "memory": lambda: memory,
        "file": lambda: sessions.FileSessionStore(tmp_path / "store"),
        "sqlite": lambda: sessions.SQLiteSessionStore(tmp_path / "store.db"),
    }
    return made[request.param]


def entry(uuid: str, **more: Any) -> Any:
    """A message of a user."""
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": f"Said {uuid}"}, **more}


def uuids(entries: Any) -> list[str]:
    """The ids of entries."""
    return [each["uuid"] for each in entries or []]


async def summary_of(store: Any) -> dict[str, Any]:
    """What the store's list says about its only session, which is no older than the session."""
    ((summary,), (listed,)) = await store.list_session_summaries("project"), await store.list_sessions("project")
    assert (summary["session_id"], summary["mtime"] >= listed["mtime"]) == (listed["session_id"], True)
    return dict(summary["data"])


@pytest.mark.parametrize("key", [KEY, PART], ids=["session", "subagent"])
@pytest.mark.parametrize("deleted", [KEY, PART], ids=["the session is deleted", "the subagent is deleted"])
async def test_what_is_appended_to_a_session_that_another_process_began_again_is_there(opened: Opened, key: Any, deleted: Any) -> None:
    one, other = opened(), opened()
    for each in (KEY, PART):
        await one.append(each, [entry("1")])
    is_gone = deleted in (KEY, key)
    await other.delete(deleted)
    longer = [entry("a", text="x" * 1000), entry("b")]
    await other.append(key, longer)
    await one.append(key, [entry("1"), entry("2")])
    await other.append(key, [entry("2"), entry("3")])
    begun = ["a", "b", "1", "2", "3"] if is_gone else ["1", "a", "b", "2", "3"]
    for store in (one, other, opened()):
        assert uuids(await store.load(key)) == begun
    if key is KEY:
        assert await summary_of(one) == fold_session_summary(None, KEY, await one.load(KEY))["data"]


@pytest.mark.parametrize("how", ["removed", "replaced", "restored", "cut", "all removed"])
@pytest.mark.parametrize("key", [KEY, PART], ids=["session", "subagent"])
async def test_a_file_that_was_removed_or_replaced_by_hand_is_read_anew(tmp_path: Path, how: str, key: Any) -> None:
    one: Any = sessions.FileSessionStore(tmp_path)
    other: Any = sessions.FileSessionStore(tmp_path)
    await one.append(key, [entry("1")])
    begun = [entry("a", text="x" * 1000), entry("b")]
    (path,) = tmp_path.rglob("*.jsonl")
    if how == "removed":
        path.unlink()
    elif how == "all removed":
        shutil.rmtree(tmp_path / "project")
    else:
        draft = path.with_name("draft")
        draft.write_bytes(b"".join(encode_entry(each) + b"\n" for each in begun) if how == "restored" else b"")
        os.truncate(path, 0) if how == "cut" else draft.replace(path)
    if how != "restored":  # from a copy that has other entries, and more
        await other.append(key, begun)
    await one.append(key, [entry("1")])
    assert uuids(await other.load(key)) == ["a", "b", "1"]
    if key is KEY:
        assert await summary_of(other) == fold_session_summary(None, KEY, await other.load(KEY))["data"]


async def test_a_summary_that_a_deletion_left_behind_is_not_that_of_the_next_session(tmp_path: Path) -> None:
    """A process that dies between the two leaves it."""
    store: Any = sessions.FileSessionStore(tmp_path)
    await store.append(KEY, [entry("1"), {"type": "custom-title", "customTitle": "Old"}])
    (left,) = tmp_path.rglob("*.summary")
    kept = left.read_bytes()
    await store.delete(KEY)
    await store.append(KEY, [entry("a", text="x" * 1000)])
    left.write_bytes(kept)
    await store.append(KEY, [entry("b")])
    assert await summary_of(store) == fold_session_summary(None, KEY, await store.load(KEY))["data"]


async def test_what_is_written_while_another_process_deletes_is_stored_and_listed_or_deleted_as_a_whole(opened: Opened) -> None:
    """Half a deletion would leave a session that has entries and is in no list, or uuids of entries that are gone."""
    one, other = opened(), opened()

    async def write(number: int) -> None:
        await one.append(KEY, [entry(str(number))])
        await one.append({**KEY, "subpath": f"subagents/agent-{number}"}, [entry("1")])

    for _ in range(10):
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(write, number)
            tasks.start_soon(other.delete, KEY)
        listed = [each["session_id"] for each in await one.list_sessions("project")]
        found = uuids(await one.load(KEY))
        assert listed == [SID] * bool(found)
        parts = await one.list_subkeys(KEY)
        assert [await one.load({**KEY, "subpath": part}) for part in parts] == [[entry("1")]] * len(parts)
        await one.append(KEY, [entry(str(number)) for number in range(4)])
        assert sorted(uuids(await one.load(KEY))) == ["0", "1", "2", "3"]
        assert await summary_of(one) == fold_session_summary(None, KEY, await one.load(KEY))["data"]


async def test_entries_that_a_server_has_evicted_can_be_written_again(redis_url: str, tmp_path: Path) -> None:
    """A server that is full may delete keys. The uuids of entries that are gone must not keep them away."""
    store: Any = sessions.RedisSessionStore(redis_url, prefix=str(tmp_path))
    await store.append(KEY, [entry("1"), {"type": "custom-title", "customTitle": "Old"}])
    async with make_client(RedisAddress.of(redis_url)) as client:
        (gone,) = [key async for key in client.scan_iter(match=f"*{tmp_path}*:entries")]
        await client.delete([gone])
    await store.append(KEY, [entry("1")])
    assert await store.load(KEY) == [entry("1")]
    assert await summary_of(store) == fold_session_summary(None, KEY, [entry("1")])["data"]


async def test_a_summary_counts_for_the_session_that_it_was_made_of_and_for_no_later_one(redis_url: str, tmp_path: Path) -> None:
    store: Any = sessions.RedisSessionStore(redis_url, prefix=str(tmp_path))
    await store.append(KEY, [entry("1")])
    async with make_client(RedisAddress.of(redis_url)) as client:
        (name,) = [key async for key in client.scan_iter(match=f"*{tmp_path}*:summaries")]
        kept = decode_summary(await client.hget(name, SID))
        assert kept is not None
        marked = encode_summary({**kept, "data": {"custom_title": "As kept"}})
        await client.hset(name, {SID: marked})
        assert await summary_of(store) == {"custom_title": "As kept"}, "the transcript is not read again"
        await store.delete(KEY)
        await store.append(KEY, [entry("2")])
        await client.hset(name, {SID: marked})  # a host wrote it late
    assert await summary_of(store) == fold_session_summary(None, KEY, [entry("2")])["data"]


async def test_a_claim_whose_owner_cannot_be_read_is_held_by_nobody_that_can_be_named(redis_url: str, tmp_path: Path) -> None:
    store: Any = sessions.RedisSessionStore(redis_url, prefix=str(tmp_path))
    assert await store.claim(KEY, owner="mine", seconds=60) == "mine"
    async with make_client(RedisAddress.of(redis_url)) as client:
        (name,) = [key async for key in client.scan_iter(match=f"*{tmp_path}*:claim")]
        await client.set(name, b"\xff")
    assert await store.claim(KEY, owner="mine", seconds=60) == ""


def test_threads_of_one_process_may_use_one_store(tmp_path: Path) -> None:
    store: Any = sessions.FileSessionStore(tmp_path)
    failures: list[BaseException] = []

    async def work(name: int) -> None:
        for number in range(15):
            key: Any = {"project_key": "project", "session_id": f"{name}-{number % 3}"}
            await store.append(key, [entry(str(number))])
            await store.delete({**key, "session_id": "another"})

    def run(name: int) -> None:
        try:
            anyio.run(work, name)
        except BaseException as exc:
            failures.append(exc)
            raise

    threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for name in range(4):
        for number in range(3):
            key: Any = {"project_key": "project", "session_id": f"{name}-{number}"}
            assert [*map(int, uuids([*(anyio.run(store.load, key) or [])]))] == list(range(number, 15, 3))
