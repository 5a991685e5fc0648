"""The stores on disks that are full or damaged, beside processes that hold locks or delete, with what no database can hold."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import threading
import tracemalloc
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from quick_clock import QuickClock

from claude_transport import errors, sessions
from claude_transport.sessions import file_store, reading
from claude_transport.sessions.materialising import find_session

SID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
KEY: Any = {"project_key": "project", "session_id": SID}
MakeStore = Callable[[Path], Any]
STORES: dict[str, MakeStore] = {
    "memory": lambda _: sessions.InMemorySessionStore(),
    "file": lambda folder: sessions.FileSessionStore(folder / "store"),
    "sqlite": lambda folder: sessions.SQLiteSessionStore(folder / "store.db"),
}


def entry(uuid: str, **more: Any) -> Any:
    """A message of a user."""
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": f"Said {uuid}"}, **more}


def uuids(entries: Any) -> list[str]:
    """The ids of entries."""
    return [each["uuid"] for each in entries or []]


# ------------------------------------------------------------------------------------------------------------------------ locks


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Locks a file in another process, until the test ends."""
    program = "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.flock(f, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    held: list[subprocess.Popen[bytes]] = []

    def hold(path: Path) -> None:
        process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        held.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()

    yield hold
    for process in held:
        process.communicate()


WRITES: dict[str, Callable[[sessions.FileSessionStore], Awaitable[object]]] = {
    "append": lambda store: store.append(KEY, [entry("2")]),
    "delete": lambda store: store.delete(KEY),
    "claim": lambda store: store.claim(KEY, owner="two", seconds=0),
    "release": lambda store: store.release(KEY, owner="one"),
}


@pytest.mark.parametrize("write", WRITES)
async def test_a_lock_that_another_process_keeps_is_a_typed_error(
    write: str, tmp_path: Path, holder: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that waited for ever would keep this process from ending. Nothing is written without the lock."""
    store = sessions.FileSessionStore(tmp_path)
    await store.append(KEY, [entry("1")])
    assert await store.claim(KEY, owner="one", seconds=60) == "one"
    (lock,) = tmp_path.rglob("*.lock")
    (claim,) = tmp_path.rglob("*.claim")
    before = claim.read_bytes()
    holder(lock)
    monkeypatch.setattr(file_store, "time", QuickClock())
    with pytest.raises(errors.CLIConnectionError, match="locked") as caught:
        await WRITES[write](store)
    assert caught.value.code == "session_store.failed"
    assert (uuids(await store.load(KEY)), claim.read_bytes()) == (["1"], before)


async def test_a_folder_that_another_process_makes_in_the_same_moment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Path.mkdir
    made: list[Path] = []

    def make_second(self: Path, mode: int = 0o777) -> None:
        make(self, mode)  # the other process
        made.append(self)
        make(self, mode)

    store = sessions.FileSessionStore(tmp_path)
    monkeypatch.setattr(Path, "mkdir", make_second)
    await store.append(KEY, [entry("1")])
    assert (len(made) > 0, uuids(await store.load(KEY))) == (True, ["1"])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock of a database, in a thread of its own."""
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("BEGIN IMMEDIATE")
        begun.set()
        end.wait(60)
        database.rollback()
        database.close()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(60)
    try:
        yield
    finally:
        end.set()
        thread.join()


async def test_a_database_is_read_while_another_process_writes(tmp_path: Path) -> None:
    store = sessions.SQLiteSessionStore(tmp_path / "store.db")
    await store.append(KEY, [entry("1")])
    with locked(tmp_path / "store.db"):
        assert uuids(await store.load(KEY)) == ["1"]
        assert len(await store.list_sessions("project")) == len(await store.list_session_summaries("project")) == 1
        assert await store.list_subkeys(KEY) == []
        assert await store.find_project(SID) == "project"


async def test_what_is_no_database_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"this is a letter, and no database" * 100)
    with pytest.raises(errors.CLIConnectionError, match="not a database") as caught:
        await sessions.SQLiteSessionStore(tmp_path / "store.db").load(KEY)
    assert caught.value.code == "session_store.failed"


async def test_a_folder_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.SessionFilesError) as caught:
        await sessions.FileSessionStore(tmp_path / "file" / "store").append(KEY, [entry("1")])
    assert caught.value.errno is not None


# ----------------------------------------------------------------------------------------------------------- disks and deletions


async def test_a_damaged_line_costs_that_line_only(tmp_path: Path) -> None:
    store = sessions.FileSessionStore(tmp_path)
    await store.append(KEY, [entry("1")])
    (path,) = tmp_path.rglob("*.jsonl")
    with path.open("ab") as file:
        file.write(b"\0" * 4096 + b"\n" + b"[" * 5000 + b"\n\xff\n")
    for again in (store, sessions.FileSessionStore(tmp_path)):
        assert uuids(await again.load(KEY)) == ["1"] if again is store else ["1", "2"]
        await again.append(KEY, [entry("1"), entry("2")])
    assert uuids(await store.load(KEY)) == ["1", "2"]
    (listed,) = await store.list_session_summaries("project")
    assert listed["data"]["first_prompt"] == "Said 1"


async def test_a_transcript_that_somebody_has_cut_gets_the_lost_entries_again_and_no_other_twice(tmp_path: Path) -> None:
    store = sessions.FileSessionStore(tmp_path)
    await store.append(KEY, [entry("1"), entry("2")])
    (path,) = tmp_path.rglob("*.jsonl")
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(whole.index(b"\n") + 1)
    await store.append(KEY, [entry(name) for name in "123"])
    assert uuids(await store.load(KEY)) == ["1", "2", "3"]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The operating system lets no file of this process grow over so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_full_disk_is_a_typed_error_and_the_next_append_is_whole(kind: str, tmp_path: Path) -> None:
    store = STORES[kind](tmp_path)
    await store.append(KEY, [entry("1")])
    with files_up_to(2000), pytest.raises((errors.SessionFilesError, errors.CLIConnectionError)):
        await store.append(KEY, [entry(str(number), text="x" * 5000) for number in range(2, 50)])
    assert "1" in uuids(await store.load(KEY))
    await store.append(KEY, [entry("1"), entry("last")])
    found = uuids(await store.load(KEY))
    assert found[0] == "1"
    assert found[-1] == "last"
    assert len(found) == len(set(found))


async def test_entries_are_stored_also_where_the_summary_cannot_be(tmp_path: Path) -> None:
    """Otherwise they would be stored again with the next attempt, and those without a uuid would be there twice."""
    store = sessions.FileSessionStore(tmp_path)
    (tmp_path / "project" / f"{SID}.summary.new").mkdir(parents=True)
    await store.append(KEY, [entry("1"), {"type": "tag"}])
    assert len(await store.load(KEY) or []) == 2
    (summary,) = await store.list_session_summaries("project")  # made from the transcript
    assert summary["data"]["first_prompt"] == "Said 1"
    (tmp_path / "project" / f"{SID}.summary.new").rmdir()
    await store.append(KEY, [entry("2")])
    (summary,) = await store.list_session_summaries("project")
    assert summary["data"]["first_prompt"] == "Said 1"


async def test_a_session_that_is_deleted_while_a_list_is_made_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sessions.FileSessionStore(tmp_path)
    other = SID.replace("a", "b")
    for session in (SID, other):
        key: Any = {**KEY, "session_id": session}
        await store.append(key, [entry("1")])
    real = Path.iterdir

    def vanishing(self: Path) -> Iterator[Path]:
        found = list(real(self))
        (tmp_path / "project" / f"{SID}.jsonl").unlink(missing_ok=True)
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", vanishing)
    assert [each["session_id"] for each in await store.list_sessions("project")] == [other]
    assert [each["session_id"] for each in await store.list_session_summaries("project")][-1:] == [other]
    assert await store.load(KEY) is None
    assert await store.find_project(SID) is None


# ------------------------------------------------------------------------------------------------- what no database can hold


@pytest.mark.parametrize("kind", STORES)
async def test_half_of_a_surrogate_pair_and_enormous_numbers_come_back_as_they_were(kind: str, tmp_path: Path) -> None:
    store = STORES[kind](tmp_path)
    odd: Any = [
        {"type": "user", "uuid": "1", "message": {"content": "\ud83d cut"}, "number": 2**100},
        {"type": "custom-title", "customTitle": "Title \udc00"},
        {"type": "user", "uuid": "\ud800"},
    ]
    await store.append(KEY, odd)
    await store.append(KEY, odd[:1])
    assert await store.load(KEY) == odd
    (summary,) = await store.list_session_summaries("project")
    summary["data"]["custom_title"].startswith("Title ")


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("wrong", [{"a": {1, 2, object()}}, object(), {"nested": [[]]}], ids=["an object", "no entry", "too deep"])
async def test_what_is_no_json_is_refused_and_nothing_is_stored(kind: str, wrong: Any, tmp_path: Path) -> None:
    store = STORES[kind](tmp_path)
    if isinstance(wrong, dict) and "nested" in wrong:
        for _ in range(5000):
            wrong = {"nested": wrong}
    with pytest.raises(errors.UsageError):
        await store.append(KEY, [entry("1"), wrong])
    assert await store.load(KEY) is None


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("part", ["project_key", "session_id", "subpath"])
async def test_a_key_that_cannot_be_written_is_refused(kind: str, part: str, tmp_path: Path) -> None:
    store = STORES[kind](tmp_path)
    with pytest.raises(errors.UsageError, match=part):
        await store.append({**KEY, part: "\ud800"}, [entry("1")])


async def test_a_store_without_lists_cannot_say_which_session_is_the_latest_and_names_the_option(tmp_path: Path) -> None:
    class WithoutLists:
        async def append(self, key: Any, entries: Any) -> None:
            raise AssertionError

        async def load(self, key: Any) -> Any:
            raise AssertionError

    store: Any = WithoutLists()
    with pytest.raises(errors.ConfigurationError, match="WithoutLists cannot list its sessions; name one with resume") as caught:
        await find_session(store, resume=None, cwd=tmp_path)
    assert caught.value.option == "continue_conversation"


async def test_a_store_that_lists_what_is_no_session_is_not_asked_for_it(tmp_path: Path) -> None:
    class Hostile(sessions.InMemorySessionStore):
        async def list_sessions(self, project_key: str) -> Any:
            listed = await super().list_sessions(project_key)
            return [*listed, *({"session_id": name, "mtime": 10**15} for name in ("../../evil", "", "x" * 9999))]

        async def load(self, key: Any) -> Any:
            asked.append(key["session_id"])
            return await super().load(key)

    asked: list[str] = []
    store = Hostile()
    own: Any = {"project_key": sessions.project_key_for_directory(tmp_path), "session_id": str(uuid.UUID(int=5))}
    await store.append(own, [entry("1")])
    found = await find_session(store, resume=None, cwd=tmp_path)
    assert found is not None
    assert set(asked) == {own["session_id"]}


async def test_a_name_in_a_database_that_is_damaged_is_left_out_of_a_list(tmp_path: Path) -> None:
    store = sessions.SQLiteSessionStore(tmp_path / "store.db")
    for name in ("good", "bad"):
        named: Any = {**KEY, "session_id": name}
        await store.append(named, [entry("1")])
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as database:
        database.execute("UPDATE sessions SET session = CAST(x'ff' AS TEXT) WHERE session = 'bad'")
    assert [each["session_id"] for each in await store.list_sessions(KEY["project_key"])] == ["good"]
    assert [each["session_id"] for each in await store.list_session_summaries(KEY["project_key"])] == ["good"]


async def test_a_subpath_that_cannot_be_a_file_is_left_out_of_a_resumed_session() -> None:
    class Hostile(sessions.InMemorySessionStore):
        async def list_subkeys(self, key: Any) -> list[str]:
            """Name what no file can be called."""
            return ["\ud800", "subagents/agent-x"]

    store = Hostile()
    key: Any = {**KEY, "project_key": sessions.project_key_for_directory()}
    await store.append(key, [entry("1")])
    part: Any = {**key, "subpath": "subagents/agent-x"}
    await store.append(part, [entry("1")])
    found = await find_session(store, resume=SID, cwd=None)
    assert found is not None
    assert sorted(map(str, found.transcripts)) == ["None", "subagents/agent-x"]


@pytest.mark.parametrize("odd", [[], {}, 7, None, [[]]])
def test_an_entry_whose_type_is_no_text_is_no_part_of_a_conversation(odd: Any) -> None:
    assert reading.EntryPlace.of({"type": odd, "uuid": "1"}, 0) is None


async def test_of_many_transcripts_some_are_remembered() -> None:
    """Each has an id of 100 kB. The last 64 are kept in memory, and the others are read again when they are written."""
    with tempfile.TemporaryDirectory() as folder:
        store = sessions.FileSessionStore(folder)
        tracemalloc.start()
        try:
            for number in range(130):
                await store.append({"project_key": "project", "session_id": f"session-{number}"}, [entry(f"{number}-{'x' * 100_000}")])
            assert tracemalloc.get_traced_memory()[0] < 9_000_000
        finally:
            tracemalloc.stop()


async def test_what_is_no_file_is_refused_and_not_left_open(tmp_path: Path) -> None:
    store = sessions.FileSessionStore(tmp_path)
    await store.append(KEY, [entry("1")])
    (transcript,) = tmp_path.glob("*/*.jsonl")
    transcript.unlink()
    os.mkfifo(transcript)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(errors.SessionFilesError, match="is not a file"):
            await store.load(KEY)
        gc.collect()
    assert [str(each.message) for each in told] == []


async def test_a_claim_that_would_last_longer_than_a_day_is_damaged_and_holds_nobody_up(tmp_path: Path) -> None:
    store = sessions.FileSessionStore(tmp_path)
    assert await store.claim(KEY, owner="other", seconds=1e9) == "other"
    assert await store.claim(KEY, owner="mine", seconds=60) == "other"
    (claim,) = tmp_path.glob("*/*.claim")
    until = json.loads(claim.read_text())["until"]
    claim.write_text(json.dumps({"owner": "other", "until": until + 3600}))
    assert await store.claim(KEY, owner="mine", seconds=60) == "mine"


def test_a_fork_of_the_process_that_ends_removes_nothing_of_a_resumed_session(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from claude_transport.sessions.materialising import FoundSession, PrivatePlace\n"
        f"place = PrivatePlace(cwd=None, found=FoundSession({SID!r}, 'project', {{None: [{{'type': 'user'}}]}}), configuration={{}})\n"
        "if (child := os.fork()) == 0:\n"
        "    sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(place.path, place.path.exists())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    path, exists = done.stdout.split()
    assert exists == "True"
    assert not Path(path).exists()  # the process that made it has removed it at its end
