"""What a store and its mirror promise: the same entries again after a failure, on the disk when they say so, and no session kept."""

from __future__ import annotations

import errno
import functools
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from small_peer import small_peer
from test_mirror import AT_ONCE, KEY, frame, uuids
from test_store_troubles import files_up_to

import claude_transport as ct
from claude_transport import errors, sessions
from claude_transport.transports.mirroring import Mirror

SID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"


def entry(uuid: str, **more: Any) -> Any:
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": f"Said {uuid}"}, **more}


# ----------------------------------------------------------------------------------------------------------------------- retries


class Recording(sessions.InMemorySessionStore):
    """Notes the uuids of each call of `append`. The first `failures` calls store everything, and fail then."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.given: list[list[str]] = []

    async def append(self, key: Any, entries: Any) -> None:
        self.given.append([each["uuid"] for each in entries])
        await super().append(key, entries)
        if self.failures:
            self.failures -= 1
            raise ConnectionResetError("the answer was lost")


async def test_a_retry_gives_the_store_the_same_uuids_so_that_it_can_drop_duplicates() -> None:
    store = Recording(failures=2)
    mirror = Mirror(store, retry=AT_ONCE)
    mirror.start()
    mirror.take([frame("1", "2"), frame("3")])
    while mirror.is_behind:
        await anyio.lowlevel.checkpoint()
    await mirror.close()
    assert store.given == [["1", "2", "3"]] * 3
    assert (await uuids(store), mirror.lost) == (["1", "2", "3"], 0)


async def test_a_file_that_took_nothing_of_a_call_takes_all_of_it_with_the_next_attempt(tmp_path: Path) -> None:
    store = sessions.FileSessionStore(tmp_path)
    await store.append(KEY, [entry("1")])
    (path,) = tmp_path.rglob("*.jsonl")
    wanted = [entry("2"), entry("3")]
    with files_up_to(path.stat().st_size), pytest.raises(errors.SessionFilesError):
        await store.append(KEY, wanted)
    await store.append(KEY, wanted)
    assert await store.load(KEY) == [entry("1"), *wanted]


class Disk:
    """Notes the size of a file whenever it is synced. The first `failures` times, the disk fails."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.synced: list[int] = []
        self._sync = os.fsync

    def sync(self, fd: int) -> None:
        self.synced.append(os.fstat(fd).st_size)
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "the disk failed")
        self._sync(fd)


async def test_an_append_returns_when_all_of_it_was_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, store = Disk(), sessions.FileSessionStore(tmp_path)
    monkeypatch.setattr("os.fsync", disk.sync)
    sizes = []
    for number in range(3):
        await store.append(KEY, [entry(str(number), text="x" * 10_000)])
        (path,) = tmp_path.rglob("*.jsonl")
        sizes.append(path.stat().st_size)
    assert disk.synced == sizes


async def test_a_write_that_was_not_synced_is_not_acknowledged_and_the_next_attempt_syncs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, store, wanted = Disk(failures=1), sessions.FileSessionStore(tmp_path), [entry("1"), entry("2")]
    monkeypatch.setattr("os.fsync", disk.sync)
    with pytest.raises(errors.SessionFilesError) as caught:
        await store.append(KEY, wanted)
    assert caught.value.errno == errno.EIO
    await store.append(KEY, wanted)
    assert await store.load(KEY) == wanted
    (path,) = tmp_path.rglob("*.jsonl")
    assert disk.synced == [path.stat().st_size] * 2


async def test_an_append_to_sqlite_is_synced_also_where_sqlite_was_built_to_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []

    class Hasty(sqlite3.Connection):
        """A connection of a SQLite that syncs a write-ahead log only at checkpoints, as some systems build it."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.execute("PRAGMA synchronous = NORMAL")

        def commit(self) -> None:
            found.append(self.execute("PRAGMA synchronous").fetchone()[0])
            super().commit()

    monkeypatch.setattr("sqlite3.connect", functools.partial(sqlite3.connect, factory=Hasty))
    store = sessions.SQLiteSessionStore(tmp_path / "store.db")
    await store.append(KEY, [entry("1")])
    await store.append(KEY, [entry("2")])
    assert await store.load(KEY) == [entry("1"), entry("2")]
    full = 2
    assert found
    assert set(found) == {full}


# ------------------------------------------------------------------------------------------------------------------------ claims


class Stored(sessions.InMemorySessionStore):
    """A store whose `load` fails, or waits for ever, once a session is claimed."""

    def __init__(self, *, loads: str = "well") -> None:
        super().__init__()
        self.loads = loads
        self.claimed = False
        self.waits = anyio.Event()

    async def claim(self, key: Any, *, owner: str, seconds: float) -> str | None:
        self.claimed = True
        return await super().claim(key, owner=owner, seconds=seconds)

    async def release(self, key: Any, *, owner: str) -> None:
        await anyio.lowlevel.checkpoint()
        await super().release(key, owner=owner)

    async def load(self, key: Any) -> Any:
        if self.claimed and self.loads == "badly":
            raise ConnectionResetError("gone")
        if self.claimed and self.loads == "never":
            self.waits.set()
            await anyio.sleep_forever()
        return await super().load(key)


async def stored(folder: Path, store: Stored, *, cli_path: Path) -> tuple[ct.ClaudeOptions, Any]:
    """Options that resume a session of `store`, and the session's key."""
    key: Any = {"project_key": sessions.project_key_for_directory(folder), "session_id": SID}
    await store.append(key, [entry("1")])
    return ct.ClaudeOptions(cli_path=cli_path, cwd=folder, resume=SID, session_store=store), key


def missing(folder: Path) -> Path:
    return folder / "no-claude"


def unusable(folder: Path) -> Path:
    path = folder / "claude"
    path.write_bytes(b"#!/no/such/interpreter\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("cli", "loads", "error"),
    [
        (missing, "well", errors.CLINotFoundError),
        (unusable, "well", errors.CLIConnectionError),
        (small_peer, "badly", errors.CLIConnectionError),
    ],
)
async def test_a_start_that_fails_gives_its_session_back_at_once(
    cli: Callable[[Path], Path], loads: str, error: type[errors.ClaudeTransportError], tmp_path: Path
) -> None:
    store = Stored(loads=loads)
    options, key = await stored(tmp_path, store, cli_path=cli(tmp_path))
    transport = ct.SubprocessTransport(options)
    with pytest.raises(error):
        await transport.connect()
    assert store.claimed
    assert await store.claim(key, owner="another host", seconds=60) == "another host"
    await transport.close()


async def test_a_start_that_is_cancelled_gives_its_session_back(tmp_path: Path) -> None:
    store = Stored(loads="never")
    options, key = await stored(tmp_path, store, cli_path=small_peer(tmp_path))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ct.SubprocessTransport(options).connect)
        await store.waits.wait()
        assert await store.claim(key, owner="another host", seconds=60) != "another host"
        tasks.cancel_scope.cancel()
    assert await store.claim(key, owner="another host", seconds=60) == "another host"


async def test_a_start_without_room_for_its_files_gives_its_session_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Stored()
    options, key = await stored(tmp_path, store, cli_path=small_peer(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(errors.SpawnError):
        await ct.SubprocessTransport(options).connect()
    assert await store.claim(key, owner="another host", seconds=60) == "another host"


async def test_a_start_that_fails_while_it_is_cancelled_gives_its_session_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Stored()
    options, key = await stored(tmp_path, store, cli_path=small_peer(tmp_path))
    with anyio.CancelScope() as scope:

        def fail(**_more: object) -> str:
            anyio.from_thread.run_sync(scope.cancel)
            raise OSError(errno.ENOSPC, "no space is left")

        monkeypatch.setattr("tempfile.mkdtemp", fail)
        with pytest.raises(errors.SpawnError):
            await ct.SubprocessTransport(options).connect()
    assert scope.cancel_called
    assert await store.claim(key, owner="another host", seconds=60) == "another host"
