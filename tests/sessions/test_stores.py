"""The four stores of the library, and that of the official SDK: the same promises, checked by both packages."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import claude_agent_sdk
import coredis
import pytest
from claude_agent_sdk.testing import run_session_store_conformance
from redis_server import redis_server

from claude_transport import errors, sessions
from claude_transport.launch.session_store import has_method
from claude_transport.sessions.materialising import asked
from claude_transport.testing import STORE_CLAUSES, run_store_conformance

KEY: Any = {"project_key": "project", "session_id": "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"}
MakeStore = Callable[[], Any]


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server for this module."""
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(params=["memory", "file", "sqlite", "redis"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Makes empty stores of one kind."""
    numbers = itertools.count()
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        return lambda: sessions.RedisSessionStore(url, prefix=f"{tmp_path}-{next(numbers)}")
    made: dict[str, MakeStore] = {
        "memory": sessions.InMemorySessionStore,
        "file": lambda: sessions.FileSessionStore(tmp_path / f"store-{next(numbers)}" / "new"),
        "sqlite": lambda: sessions.SQLiteSessionStore(tmp_path / f"store-{next(numbers)}.db"),
    }
    return made[request.param]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_each_store_keeps_every_clause(make_store: MakeStore, backend: str) -> None:
    report = run_store_conformance(make_store, backends=[backend])
    report.raise_for_failures()
    assert len(report.passed) == len(STORE_CLAUSES)


async def test_each_store_passes_the_checks_of_the_official_sdk(make_store: MakeStore) -> None:
    await run_session_store_conformance(make_store)


def test_the_official_store_keeps_every_clause_but_two() -> None:
    report = run_store_conformance(claude_agent_sdk.InMemorySessionStore)
    # it keeps the dicts that it is given, and every entry as often as it comes; it knows no owners, and no sessions without their project
    assert {row.clause for row in report.failed} == {"store.again", "store.own"}
    assert {row.clause for row in report.excluded} == {"store.claim", "store.find"}
    assert len(report.rows) == 2 * len(STORE_CLAUSES)


def test_a_store_that_breaks_a_promise_fails_the_clause_and_only_that() -> None:
    class Reversed(sessions.InMemorySessionStore):
        async def load(self, key: Any) -> Any:
            """Return the entries in the wrong order."""
            return (await super().load(key) or [])[::-1] or None

    report = run_store_conformance(Reversed, clauses=["store.order", "store.unknown"], backends=["asyncio"])
    assert [(row.clause, row.verdict) for row in report.rows] == [("store.order", "failed"), ("store.unknown", "passed")]
    with pytest.raises(errors.ConfigurationError, match=r"store\.nonsense"):
        run_store_conformance(Reversed, clauses=["store.nonsense"])


def test_a_method_that_comes_from_a_protocol_counts_as_left_out() -> None:
    class Theirs(claude_agent_sdk.SessionStore):
        pass

    class Ours(sessions.SessionStore):
        pass

    for made in (Theirs, Ours):
        assert not has_method(made(), "list_sessions")  # type: ignore[abstract]
    assert has_method(claude_agent_sdk.InMemorySessionStore(), "list_sessions")


def conversation(session: str) -> list[Any]:
    """A short transcript, as the CLI writes one."""
    common = {"sessionId": session, "cwd": "/work", "gitBranch": "main", "isSidechain": False}
    uuids = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(5)]
    said = ["Hello", "Hi.", "And now?", "Now this."]
    lines: list[Any] = [{"type": "queue-operation", "operation": "enqueue", "timestamp": "2026-01-01T00:00:00.000Z", "sessionId": session}]
    for number, text in enumerate(said):
        role = "assistant" if number % 2 else "user"
        message = {"role": role, "content": [{"type": "text", "text": text}] if number % 2 else text}
        stamp = {
            "timestamp": f"2026-01-01T00:00:0{number}.000Z",
            "uuid": uuids[number],
            "parentUuid": uuids[number - 1] if number else None,
        }
        lines.append({"type": role, "message": message, **stamp, **common})
    return [*lines, {"type": "last-prompt", "lastPrompt": "And now?", "sessionId": session}]


async def test_the_functions_on_stores_give_what_the_official_ones_give(make_store: MakeStore, tmp_path: Path) -> None:
    store, where = make_store(), str(tmp_path)
    key = {**KEY, "project_key": sessions.project_key_for_directory(where)}
    sid = key["session_id"]
    await store.append(key, conversation(sid))
    part = [{"type": "agent_metadata", "toolUseId": "toolu_1", "parentAgentId": "parent"}, *conversation(sid)]
    await store.append({**key, "subpath": "subagents/agent-one"}, part)
    await store.append({**key, "subpath": "subagents/workflows/w/agent-two"}, conversation(sid)[:3])
    await sessions.rename_session_via_store(store, sid, " A title ", where)
    await sessions.tag_session_via_store(store, sid, "red", where)
    theirs: Any = claude_agent_sdk
    ours: Any = sessions
    for name, arguments in {
        "list_sessions_from_store": (),
        "get_session_messages_from_store": (sid,),
        "list_subagents_from_store": (sid,),
    }.items():
        found, wanted = [await getattr(package, name)(store, *arguments, directory=where) for package in (ours, theirs)]
        assert shown(found) == shown(wanted) != [], name
    for agent in ("one", "two", "nobody"):
        found, wanted = [await package.get_subagent_messages_from_store(store, sid, agent, where, 2, 1) for package in (ours, theirs)]
        assert shown(found) == shown(wanted)
    found, wanted = [await package.get_session_info_from_store(store, sid, where) for package in (ours, theirs)]
    assert {**shown(wanted), "file_size": None} == shown(found)
    assert found.custom_title == "A title"
    assert found.tag == "red"
    await sessions.tag_session_via_store(store, sid, None, where)
    (listed,) = await sessions.list_sessions_from_store(store, where)
    assert listed.tag is None
    await sessions.delete_session_via_store(store, sid, where)
    assert await sessions.list_sessions_from_store(store, where) == []
    assert await sessions.get_session_info_from_store(store, sid, where) is None


def shown(value: Any) -> Any:
    """A result as plain values: the classes of the two packages are not the same."""
    if isinstance(value, list):
        return [shown(each) for each in value]
    return vars(value) if hasattr(value, "__dict__") else value


async def test_a_fork_in_a_store_is_a_session_of_its_own(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    key = {**KEY, "project_key": sessions.project_key_for_directory(tmp_path)}
    sid = key["session_id"]
    await store.append(key, conversation(sid))
    before = await store.load(key)
    for up_to, count in ((None, 4), ("00000000-0000-4000-8000-000000000001", 2)):
        made = await sessions.fork_session_via_store(store, sid, tmp_path, up_to)
        said = await sessions.get_session_messages_from_store(store, made.session_id, tmp_path)
        assert len(said) == count
        assert {message.session_id for message in said} == {made.session_id}
        info = await sessions.get_session_info_from_store(store, made.session_id, tmp_path)
        assert info is not None
        assert info.custom_title == "Hello (fork)"
    assert await store.load(key) == before
    assert len(await sessions.list_sessions_from_store(store, tmp_path)) == 3
    assert len(await sessions.list_sessions_from_store(store, tmp_path, limit=2, offset=2)) == 1
    with pytest.raises(errors.SessionNotFound):
        await sessions.fork_session_via_store(store, "bbbbbbbb-bbbb-4ccc-8ddd-eeeeeeeeeeee", tmp_path)


class Minimal:
    """A store with nothing but what is required, which derives from nothing."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def append(self, key: Any, entries: Any) -> None:
        """Add entries."""
        await self._inner.append(key, entries)

    async def load(self, key: Any) -> Any:
        """Return all entries."""
        return await self._inner.load(key)


async def test_a_store_with_only_the_required_methods_is_a_store(tmp_path: Path) -> None:
    store: Any = Minimal(sessions.InMemorySessionStore())
    key = {**KEY, "project_key": sessions.project_key_for_directory(tmp_path)}
    await store.append(key, conversation(key["session_id"]))
    await store.append({**key, "subpath": "subagents/agent-one"}, conversation(key["session_id"]))
    assert len(await sessions.get_session_messages_from_store(store, key["session_id"], tmp_path)) == 4
    assert len(await sessions.get_subagent_messages_from_store(store, key["session_id"], "one", tmp_path)) == 4
    await sessions.delete_session_via_store(store, key["session_id"], tmp_path)  # does nothing, as in the official SDK
    for call in (
        sessions.list_sessions_from_store(store, tmp_path),
        sessions.list_subagents_from_store(store, key["session_id"], tmp_path),
    ):
        with pytest.raises(errors.SessionArgumentError, match="Minimal"):
            await call


@pytest.mark.parametrize("call", ["info", "messages", "subagents", "rename", "tag", "delete", "fork"])
async def test_an_id_that_is_no_uuid_is_refused_before_the_store_is_asked(call: str) -> None:
    store: Any = None
    calls: dict[str, Callable[[], Any]] = {
        "info": lambda: sessions.get_session_info_from_store(store, "../x"),
        "messages": lambda: sessions.get_session_messages_from_store(store, "../x"),
        "subagents": lambda: sessions.list_subagents_from_store(store, "../x"),
        "rename": lambda: sessions.rename_session_via_store(store, "../x", "t"),
        "tag": lambda: sessions.tag_session_via_store(store, "../x", "t"),
        "delete": lambda: sessions.delete_session_via_store(store, "../x"),
        "fork": lambda: sessions.fork_session_via_store(store, "../x"),
    }
    with pytest.raises(errors.SessionArgumentError, match="UUID"):
        await calls[call]()


async def test_a_summary_that_a_crash_left_behind_is_made_good_by_the_next_append(tmp_path: Path) -> None:
    store = sessions.FileSessionStore(tmp_path)
    await store.append(KEY, [{"type": "user", "uuid": "1", "message": {"content": "Hello"}}])  # type: ignore[typeddict-unknown-key]
    (transcript,) = tmp_path.glob("*/*.jsonl")
    with transcript.open("a") as file:  # another host wrote this, and died before its summary; then half a line
        file.write(json.dumps({"type": "custom-title", "customTitle": "Missed"}) + "\n" + '{"type": "us')
    again = sessions.FileSessionStore(tmp_path)
    assert len(await again.load(KEY) or []) == 2
    await again.append(KEY, [{"type": "tag", "tag": "red"}])  # type: ignore[typeddict-unknown-key]
    (summary,) = await again.list_session_summaries("project")
    assert (summary["data"]["custom_title"], summary["data"]["tag"], summary["data"]["first_prompt"]) == ("Missed", "red", "Hello")
    assert [entry["type"] for entry in await again.load(KEY) or []] == ["user", "custom-title", "tag"]


@pytest.mark.parametrize("seconds", [1e9, math.inf])
async def test_a_claim_for_ever_is_taken_and_holds_others_up(make_store: MakeStore, seconds: float) -> None:
    store = make_store()
    assert await store.claim(KEY, owner="one", seconds=seconds) == "one"
    assert await store.claim(KEY, owner="two", seconds=60) == "one"
    assert await store.claim(KEY, owner="one", seconds=0.0) == "one"


async def test_a_claim_on_redis_lasts_a_day_at_most(redis_url: str) -> None:
    store = sessions.RedisSessionStore(redis_url, prefix="a-day")
    assert await store.claim(KEY, owner="one", seconds=1e9) == "one"
    async with coredis.Redis.from_url(redis_url) as client:
        lasting = [await client.pttl(key) for key in await client.keys("*a-day*:claim")]
    assert [86_300_000 < milliseconds <= 86_400_000 for milliseconds in lasting] == [True]


async def test_a_transcript_whose_time_cannot_be_read_is_no_empty_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sessions.FileSessionStore(tmp_path)
    await store.append(KEY, [{"type": "user"}])
    real = Path.stat

    def failing(path: Path, **options: Any) -> os.stat_result:
        if path.name.endswith(".jsonl"):
            raise OSError(errno.EIO, "the disk is broken", str(path))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", failing)
    with pytest.raises(errors.SessionFilesError, match="the disk is broken"):
        await store.list_sessions("project")


async def test_files_of_a_store_can_be_read_by_their_user_only(tmp_path: Path) -> None:
    file_store, sqlite_store = sessions.FileSessionStore(tmp_path / "files"), sessions.SQLiteSessionStore(tmp_path / "store.db")
    for store in (file_store, sqlite_store):
        await store.append(KEY, [{"type": "user"}])
        await store.claim(KEY, owner="one", seconds=60)
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("make", [sessions.FileSessionStore, sessions.SQLiteSessionStore])
@pytest.mark.parametrize("path", ["", None, 7])
def test_what_is_no_path_is_refused(make: Any, path: Any) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        make(path)
    assert caught.value.option == "path"


@pytest.mark.parametrize("url", ["http://host", "redis://", "", None, "host:6379"])
def test_what_is_no_address_of_redis_is_refused(url: Any) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        sessions.RedisSessionStore(url)
    assert caught.value.option == "url"


@pytest.mark.parametrize("before", [0, 440, 452, 464, 476])  # the first 500 characters are shown
async def test_what_a_store_raises_is_told_without_its_password(before: int) -> None:
    async def fail() -> None:
        raise OSError(f"{'.' * before} postgres://app:hunter2-and-more@db/x {'.' * 300}")

    with pytest.raises(errors.CLIConnectionError) as caught:
        await asked(fail(), timeout=30)
    assert (caught.value.code, "hunter" in caught.value.args[0], "." * before in caught.value.args[0]) == (
        "session_store.failed",
        False,
        True,
    )


async def test_a_store_that_says_much_is_quoted_in_part() -> None:
    async def fail() -> None:
        raise OSError("word " * 10_000)

    with pytest.raises(errors.CLIConnectionError) as caught:
        await asked(fail(), timeout=30)
    assert caught.value.code == "session_store.failed"
    assert 500 < len(caught.value.args[0]) < 600


def test_a_redis_without_its_extra_is_refused_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(errors.ConfigurationError) as caught:
        sessions.RedisSessionStore("redis://127.0.0.1/0")
    assert caught.value.args == ("RedisSessionStore needs the extra redis: pip install 'claude-transport[redis]'",)
    assert (caught.value.code, caught.value.option) == ("config.invalid", "url")


async def test_a_redis_that_is_away_is_a_typed_error_without_its_password() -> None:
    store = sessions.RedisSessionStore("redis://user:hunter2@127.0.0.1:1/0")
    assert "hunter2" not in repr(store)
    with pytest.raises(errors.CLIConnectionError) as caught:
        await store.load(KEY)
    assert caught.value.code == "session_store.failed"
    assert "hunter2" not in str(caught.value)


async def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    store = sessions.SQLiteSessionStore(tmp_path / "store.db")
    await store.append(KEY, [{"type": "user", "uuid": "1"}])
    locked, done = threading.Event(), threading.Event()

    def lock() -> None:
        database = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        database.execute("BEGIN IMMEDIATE")
        locked.set()
        done.wait(30)
        database.rollback()
        database.close()

    thread = threading.Thread(target=lock)
    thread.start()
    await anyio.to_thread.run_sync(locked.wait)
    try:
        async with anyio.create_task_group() as tasks:
            entries: Any = [{"type": "user", "uuid": "2"}]
            tasks.start_soon(store.append, KEY, entries)
            await anyio.lowlevel.checkpoint()
            done.set()
    finally:
        done.set()
        await anyio.to_thread.run_sync(thread.join)
    assert len(await store.load(KEY) or []) == 2


@pytest.mark.parametrize("name", ["CON", "nul", "Aux.b", "com1.x.y", "LPT9", "ends.", ".", "..", ".hidden"])
async def test_a_file_of_a_store_has_a_name_that_every_system_takes(tmp_path: Path, name: str) -> None:
    store = sessions.FileSessionStore(tmp_path)
    key: Any = {"project_key": name, "session_id": name, "subpath": name}
    await store.append(key, [{"type": "user"}])
    for path in tmp_path.rglob("*"):
        assert path.name.partition(".")[0].upper() not in {"CON", "NUL", "AUX", "COM1", "LPT9", ""}
        assert not path.name.endswith(".")
    assert await store.load(key) == [{"type": "user"}]
    assert await store.list_subkeys({"project_key": name, "session_id": name}) == [name]
