"""Bytes of a store that a disk or a program has changed: a typed error at the most, that names the store and the session; the others stay.

For files, it is any byte of any file; for databases, any byte of any value, and of an SQLite file also any byte at all. Each case has a
seed, which its failure shows; each loop has seeds of its own. With the nightly rounds, there are 10,000 different flips over each store.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from redis_server import redis_server
from sniffio import current_async_library

from claude_transport import errors, sessions
from claude_transport.launch.session_store import SessionKey
from claude_transport.redis.address import RedisAddress
from claude_transport.redis.client import make_client
from claude_transport.sessions import fold_session_summary

PROJECTS = ("-srv-one", "-srv-two")
SIDS = [f"{number}aaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee" for number in range(2)]
KEYS: list[Any] = [
    {"project_key": PROJECTS[0], "session_id": SIDS[0]},
    {"project_key": PROJECTS[0], "session_id": SIDS[1]},
    {"project_key": PROJECTS[1], "session_id": SIDS[0]},
]
PART = "subagents/agent-1"
ROUNDS = [pytest.param(0, 30, id="round 0"), *(pytest.param(n, 250, id=f"round {n}", marks=pytest.mark.nightly) for n in range(1, 21))]
"""The number of each round, and how many flips it has."""

NEW: Any = {"type": "user", "uuid": "new", "message": {"role": "user", "content": "New"}}
Flip = Callable[[random.Random], Awaitable[int | None]]


def transcript(session: str) -> list[Any]:
    """A short one, with text in which a flipped byte shows in many ways."""
    common = {"sessionId": session, "cwd": "/srv", "timestamp": "2026-01-01T00:00:00.000Z"}
    said = [
        {"type": "user", "uuid": f"{n}", "message": {"role": "user", "content": f'Grüße "{n}" \\ 漢'}, "n": 2.5, **common} for n in range(4)
    ]
    return [*said, {"type": "custom-title", "customTitle": f"Title of {session}"}, {"type": "last-prompt", "lastPrompt": "?", "ok": True}]


async def fill(store: Any) -> None:
    """Write all sessions, each in several calls, with a subagent and an owner."""
    for key in KEYS:
        entries = transcript(key["session_id"])
        for begin in range(0, len(entries), 2):
            await store.append(key, entries[begin : begin + 2])
        await store.append({**key, "subpath": PART}, entries[:2])
        await store.claim(key, owner="host", seconds=30)


def flipped(data: bytes, at: random.Random) -> bytes:
    """The bytes, with one bit of one of them changed."""
    place = at.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << at.randrange(8)]) + data[place + 1 :]


async def typed(call: Awaitable[Any], *names: str) -> Any:
    """What a call returns, or its typed error, which names the store and the session."""
    try:
        return await call
    except (errors.CLIConnectionError, errors.SessionFilesError) as exc:
        failure = exc
    assert failure.code in ("session_store.failed", "session.files")
    assert all(name in str(failure) for name in names), failure
    return failure


def at_most_changed(found: Any, original: list[Any], most: int) -> None:
    """Check that a transcript has what it had, without so many entries."""
    kept = [entry for entry in found or [] if entry in original]
    assert kept == [entry for entry in original if entry in kept]
    assert len(kept) >= len(original) - most


async def check_others(store: Any, spoilt: Any) -> None:
    """Check that nothing is lost of the sessions that were not hit, in any list."""
    for key in KEYS:
        if key != spoilt:
            assert await store.load(key) == transcript(key["session_id"])
            assert await store.load({**key, "subpath": PART}) == transcript(key["session_id"])[:2]
            assert await store.list_subkeys(key) == [PART]
    for project in PROJECTS:
        others = [key["session_id"] for key in KEYS if key != spoilt and key["project_key"] == project]
        listed = {each["session_id"]: each["mtime"] for each in await store.list_sessions(project)}
        summaries = {each["session_id"]: each for each in await store.list_session_summaries(project)}
        for session in others:
            assert summaries[session]["mtime"] >= listed[session]
            key: SessionKey = {"project_key": project, "session_id": session}
            assert summaries[session]["data"] == fold_session_summary(None, key, transcript(session))["data"]


async def check(store: Any, spoilt: Any, name: str, *, costs: int = 2) -> None:
    """Check that a store is of use after a byte of the session `spoilt` was changed, that each call is, and that the next entry is kept."""
    where = (name, spoilt["session_id"])
    found = await typed(store.load(spoilt), *where)
    if not isinstance(found, Exception):
        at_most_changed(found, transcript(spoilt["session_id"]), costs)
    for call in (store.list_subkeys(spoilt), store.find_project(spoilt["session_id"])):
        await typed(call, *where)
    holder = await typed(store.claim(spoilt, owner="other", seconds=30), *where)
    assert isinstance(holder, str | Exception)
    await typed(store.release(spoilt, owner="host"), *where)
    if not isinstance(await typed(store.append(spoilt, [NEW]), *where), Exception):
        assert (await store.load(spoilt))[-1] == NEW
        await store.append({**spoilt, "subpath": PART}, [NEW])
        assert (await store.load({**spoilt, "subpath": PART}))[-1] == NEW
        ((summary,), loaded) = (await summaries_of(store, spoilt), await store.load(spoilt))
        if loaded[:-1] == transcript(spoilt["session_id"]):  # where a summary was hit, it is what it was
            assert summary == fold_session_summary(None, spoilt, loaded)["data"]
    await check_others(store, spoilt)


async def summaries_of(store: Any, key: Any) -> list[Any]:
    """What the list says about a session."""
    listed = await store.list_session_summaries(key["project_key"])
    return [each["data"] for each in listed if each["session_id"] == key["session_id"]]


# ------------------------------------------------------------------------------------------------------------------ kinds of stores


@contextlib.asynccontextmanager
async def spoilt_files(folder: Path) -> AsyncIterator[tuple[str, Callable[[random.Random], Awaitable[tuple[Any, Any]]]]]:
    """A directory, of which a byte of any file is changed."""
    original = folder / "original"
    await fill(sessions.FileSessionStore(original))
    where = folder / "store"

    async def spoil(at: random.Random) -> tuple[Any, Any]:
        shutil.rmtree(where, ignore_errors=True)
        shutil.copytree(original, where)
        paths = sorted(path for path in where.rglob("*") if path.is_file() and path.stat().st_size)
        path = at.choice(paths)
        path.write_bytes(flipped(path.read_bytes(), at))
        project, session = path.relative_to(where).parts[:2]
        return sessions.FileSessionStore(where), {"project_key": project, "session_id": session.partition(".")[0]}

    yield str(where), spoil


@contextlib.asynccontextmanager
async def spoilt_values(folder: Path) -> AsyncIterator[tuple[str, Callable[[random.Random], Awaitable[tuple[Any, Any]]]]]:
    """An SQLite database, of which a byte of any text or other value is changed."""
    original, where = folder / "original.db", folder / "store.db"
    await fill(sessions.SQLiteSessionStore(original))
    columns = {"entries": "project session subpath uuid body", "sessions": "project session mtime summary", "claims": "owner until"}

    async def spoil(at: random.Random) -> tuple[Any, Any]:
        shutil.copy(original, where)
        with contextlib.closing(sqlite3.connect(where, isolation_level=None)) as database:
            changed, project, session = 0, "", ""
            while not changed:  # a uuid may not become another one of the session
                table = at.choice(list(columns))
                column = at.choice(columns[table].split())
                query = f"SELECT rowid, project, session, CAST({column} AS BLOB) FROM {table} WHERE length({column}) > 0"
                row, project, session, value = at.choice(database.execute(query).fetchall())
                kind = {"body": "BLOB", "summary": "BLOB", "mtime": "NUMERIC", "until": "NUMERIC"}.get(column, "TEXT")
                update = f"UPDATE OR IGNORE {table} SET {column} = CAST(? AS {kind}) WHERE rowid = ?"
                changed = database.execute(update, (flipped(value, at), row)).rowcount
        return sessions.SQLiteSessionStore(where), {"project_key": project, "session_id": session}

    yield str(where), spoil


@contextlib.asynccontextmanager
async def spoilt_server(url: str, folder: Path) -> AsyncIterator[tuple[str, Callable[[random.Random], Awaitable[tuple[Any, Any]]]]]:
    """A database of Redis, of which a byte of any member, field or value is changed."""
    original, prefix = f"{folder}-original", f"{folder}-store"
    await fill(sessions.RedisSessionStore(url, prefix=original))

    async def spoil(at: random.Random) -> tuple[Any, Any]:
        async with make_client(RedisAddress.of(url)) as client:
            for key in [key async for key in client.scan_iter(match="{" + prefix + "}*", count=1000)]:
                await client.delete([key])
            keys = sorted([key async for key in client.scan_iter(match="{" + original + "}*", count=1000)])
            for key in keys:
                await client.copy(key, key.replace(original.encode(), prefix.encode()))
            spoilt = at.choice(KEYS)
            mine = [key for key in keys if is_of(spoilt, key.decode())]
            await change(client, at.choice(mine).decode().replace(original, prefix), spoilt["session_id"], at)
        return sessions.RedisSessionStore(url, prefix=prefix), spoilt

    yield str(RedisAddress.of(url)), spoil


def is_of(spoilt: Any, key: str) -> bool:
    """Whether a key has something of a session."""
    project, session = spoilt["project_key"], spoilt["session_id"]
    return f":project:{project}:" in key and (session in key or key.rpartition(":")[2] in ("sessions", "summaries", "begun"))


async def change(client: Any, key: str, session: str, at: random.Random) -> None:
    """Change one byte of a key, among what belongs to the session where several share it."""
    kind = (await client.type(key)).decode() if isinstance(await client.type(key), bytes) else str(await client.type(key))
    if kind == "string":
        await client.set(key, flipped(await client.get(key), at))
    elif kind == "list":
        number = at.randrange(await client.llen(key))
        await client.lset(key, number, flipped(await client.lindex(key, number), at))
    elif kind == "set":
        member = at.choice(sorted(await client.smembers(key)))
        await client.srem(key, [member])
        await client.sadd(key, [flipped(member, at)])
    elif kind == "zset":
        score = await client.zscore(key, session)
        await client.zrem(key, [session])
        name, number = (flipped(session.encode(), at), score) if at.random() < 0.5 else (session, at.choice([-1.0, 1e300, float("inf")]))
        await client.zadd(key, {name: number})
    else:
        value = await client.hget(key, session)
        if at.random() < 0.5:
            await client.hset(key, {session: flipped(value, at)})
        else:
            await client.hdel(key, [session])
            await client.hset(key, {flipped(session.encode(), at): value})


# ------------------------------------------------------------------------------------------------------------------------ the tests


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server for this module."""
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.mark.parametrize(("seed", "flips"), ROUNDS)
@pytest.mark.parametrize("kind", ["file", "sqlite", "redis"])
async def test_a_flipped_byte_costs_no_other_session_and_no_untyped_error(
    kind: str, seed: int, flips: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "redis":
        made = spoilt_server(request.getfixturevalue("redis_url"), tmp_path)
    else:
        made = spoilt_files(tmp_path) if kind == "file" else spoilt_values(tmp_path)
    async with made as (name, spoil):
        for number in range(flips):
            case = f"{kind} {current_async_library()} {seed}/{number}"
            store, spoilt = await spoil(random.Random(case))
            try:
                await check(store, spoilt, name)
            except BaseException as exc:
                exc.add_note(f"the case {case}, session {spoilt}")
                raise


@pytest.mark.parametrize(("seed", "flips"), ROUNDS)
async def test_a_flipped_byte_anywhere_in_a_database_gives_typed_errors_only(seed: int, flips: int, tmp_path: Path) -> None:
    """The file of SQLite has pages that sessions share: one of those that is damaged may cost them all."""
    original, where = tmp_path / "original.db", tmp_path / "store.db"
    await fill(sessions.SQLiteSessionStore(original))
    whole, lost = original.read_bytes(), 0
    for number in range(flips):
        case = f"sqlite file {current_async_library()} {seed}/{number}"
        for end in ("", "-wal", "-shm"):
            Path(f"{where}{end}").unlink(missing_ok=True)
        where.write_bytes(flipped(whole, random.Random(case)))
        store: Any = sessions.SQLiteSessionStore(where)
        try:
            found = [await typed(store.load(key), str(where), key["session_id"]) for key in KEYS]
            for project in PROJECTS:
                await typed(store.list_sessions(project), str(where), project)
                await typed(store.list_session_summaries(project), str(where), project)
            for key in KEYS[:2]:
                for call in (store.claim(key, owner="other", seconds=30), store.append(key, [NEW]), store.list_subkeys(key)):
                    await typed(call, str(where), key["session_id"])
                await typed(store.find_project(key["session_id"]), str(where), key["session_id"])
                await typed(store.delete(key), str(where), key["session_id"])
        except BaseException as exc:
            exc.add_note(f"the case {case}")
            raise
        is_whole = [each == transcript(key["session_id"]) for key, each in zip(KEYS, found, strict=True)]
        lost += is_whole.count(False) > 1
    print(f"{lost} of {flips} flips of the whole file cost more than one session")
    await anyio.lowlevel.checkpoint()
