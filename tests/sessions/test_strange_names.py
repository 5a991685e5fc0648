"""Names that are no UUID, and things in a store's folder that are no files: kept apart, left out or refused, and never waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from claude_transport import errors, sessions
from claude_transport.sessions.materialising import FoundSession, PrivatePlace, find_session
from claude_transport.sessions.places import project_key_for_directory

SID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
OTHER = SID.replace("a", "b")
KEY: Any = {"project_key": "project", "session_id": SID}
MADE: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: sessions.InMemorySessionStore(),
    "file": lambda folder: sessions.FileSessionStore(folder / "store"),
    "sqlite": lambda folder: sessions.SQLiteSessionStore(folder / "store.db"),
}


def entry(uuid: str) -> Any:
    """A message of a user."""
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": f"Said {uuid}"}}


# ---------------------------------------------------------------------------------------------------------------- names of files


@pytest.mark.parametrize("first", ["a", "project-first"])
async def test_no_file_of_a_session_is_that_of_another_one(tmp_path: Path, first: str) -> None:
    """Not on file systems either that take `A` and `a` for one name."""
    store: Any = sessions.FileSessionStore(tmp_path)
    ends = ("", ".jsonl", ".lock", ".summary", ".summary.new", ".claim", ".new", ".LOCK", "%2Elock", "%2elock", ".jsonl.jsonl")
    names = [f"{each}{end}" for each in (first, first.upper()) for end in ends]
    for name in names:
        key: Any = {"project_key": "project", "session_id": name}
        before = {path.as_posix().casefold() for path in tmp_path.rglob("*")}
        for part in (key, {**key, "subpath": name}):
            await store.append(part, [entry(name)])
        await store.claim(key, owner="one", seconds=60)
        new = {path.relative_to(tmp_path / "project").parts[0].casefold() for path in tmp_path.glob("project/*")}
        assert len({path.as_posix().casefold() for path in tmp_path.rglob("*")} - before) == 6 + (not before), new
    assert sorted(each["session_id"] for each in await store.list_sessions("project")) == sorted(names)
    for name in names:
        key = {"project_key": "project", "session_id": name}
        assert [await store.load(part) for part in (key, {**key, "subpath": name})] == [[entry(name)], [entry(name)]]
        assert await store.find_project(name) == "project"
        await store.delete(key)
        assert await store.load(key) is None
    assert await store.list_sessions("project") == []


LONG = "x" * 5000
WRONG = ["", "\ud800", None, 7]


def asked(store: Any, name: Any) -> dict[str, Callable[[], Any]]:
    """Each call that takes a name."""
    key = {"project_key": "project", "session_id": name}
    return {
        "append": lambda: store.append(key, [entry("1")]),
        "append to a project": lambda: store.append({**KEY, "project_key": name}, [entry("1")]),
        "append to a part": lambda: store.append({**KEY, "subpath": name or 7}, [entry("1")]),
        "load": lambda: store.load(key),
        "list_sessions": lambda: store.list_sessions(name),
        "list_session_summaries": lambda: store.list_session_summaries(name),
        "list_subkeys": lambda: store.list_subkeys(key),
        "delete": lambda: store.delete(key),
        "claim": lambda: store.claim(key, owner="one", seconds=1),
        "release": lambda: store.release(key, owner="one"),
        "find_project": lambda: store.find_project(name),
    }


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("name", WRONG)
async def test_what_is_no_name_is_refused_by_each_call(kind: str, name: Any, tmp_path: Path) -> None:
    store = MADE[kind](tmp_path)
    for what, call in asked(store, name).items():
        with pytest.raises(errors.UsageError, match=r"the key of a transcript needs \w+ as a text that is not empty") as caught:
            await call()
        assert (what, caught.value.code) == (what, "usage.error")


@pytest.mark.parametrize("kind", MADE)
async def test_a_name_that_is_too_long_is_kept_or_refused_and_costs_no_other_session(kind: str, tmp_path: Path) -> None:
    store = MADE[kind](tmp_path)
    await store.append(KEY, [entry("1")])
    for what, call in asked(store, LONG).items():
        if kind == "file":
            with pytest.raises(errors.UsageError, match="takes 5000 bytes as a file name, and 240 are possible") as caught:
                await call()
            assert (what, caught.value.code, len(str(caught.value)) < 300) == (what, "usage.error", True)
        else:
            await call()
    assert await store.load(KEY) == [entry("1")]


async def test_a_wrong_name_is_shown_shortly() -> None:
    with pytest.raises(errors.UsageError) as caught:
        await sessions.InMemorySessionStore().list_sessions("\ud800" * 1_000_000)
    assert len(str(caught.value)) < 300


# -------------------------------------------------------------------------------------------- what is in the folder, and is no file


def pipe(path: Path) -> None:
    """Make a pipe, of which a read waits for ever."""
    os.mkfifo(path)


def link(path: Path) -> None:
    """Make a link that leads to itself."""
    path.symlink_to(path)


def folder(path: Path) -> None:
    """Make a directory."""
    path.mkdir()


ODD = {"a pipe": pipe, "a link to itself": link, "a directory": folder}
ENDS = [".jsonl", ".summary", ".summary.new", ".claim", ".lock", "", "/subagents%2Fagent-1.jsonl"]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("end", ENDS)
async def test_what_is_no_file_is_not_waited_for_and_costs_its_session_only(odd: str, end: str, tmp_path: Path) -> None:
    store: Any = sessions.FileSessionStore(tmp_path)
    other, part = {**KEY, "session_id": OTHER}, {**KEY, "subpath": "subagents/agent-1"}
    await store.append(other, [entry("1")])
    place = tmp_path / "project" / f"{SID}{end}"
    place.parent.mkdir(exist_ok=True)
    ODD[odd](place)
    with anyio.fail_after(60):
        for call in (
            lambda: store.append(KEY, [entry("1")]),
            lambda: store.append(part, [entry("1")]),
            lambda: store.load(KEY),
            lambda: store.load(part),
            lambda: store.claim(KEY, owner="one", seconds=60),
            lambda: store.release(KEY, owner="one"),
            lambda: store.list_subkeys(KEY),
        ):
            try:
                await call()
            except errors.SessionFilesError as exc:
                assert exc.code == "session.files"  # noqa: PT017 - a call may also succeed, where the odd thing is not in its way
                assert SID in str(exc)  # noqa: PT017
                assert str(tmp_path) in str(exc)  # noqa: PT017
        listed = [each["session_id"] for each in await store.list_sessions("project")]
        summaries = [each["session_id"] for each in await store.list_session_summaries("project")]
        assert OTHER in listed
        assert listed == summaries
        assert (SID in listed) == (end not in (".jsonl", ".lock"))
        assert await store.find_project(OTHER) == "project"
        assert await store.find_project(SID) == ("project" if SID in listed else None)
        assert await store.load(other) == [entry("1")]


@pytest.mark.parametrize("device", ["a link to /dev/null", "a pipe with a reader"])
async def test_nothing_is_acknowledged_that_goes_into_what_keeps_nothing(device: str, tmp_path: Path) -> None:
    store: Any = sessions.FileSessionStore(tmp_path)
    place = tmp_path / "project" / f"{SID}.jsonl"
    place.parent.mkdir()
    if device == "a pipe with a reader":
        pipe(place)
        reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    else:
        place.symlink_to(os.devnull)
        reader = os.open(os.devnull, os.O_RDONLY)
    try:
        for call in (lambda: store.append(KEY, [entry("1")]), lambda: store.load(KEY)):
            with pytest.raises(errors.SessionFilesError, match=f"{SID}.jsonl is not a file; remove it"), anyio.fail_after(60):
                await call()
    finally:
        os.close(reader)


@pytest.mark.parametrize("odd", ODD)
async def test_what_is_no_project_is_not_waited_for(odd: str, tmp_path: Path) -> None:
    store: Any = sessions.FileSessionStore(tmp_path)
    await store.append(KEY, [entry("1")])
    ODD[odd](tmp_path / "odd")
    (tmp_path / "project" / "b%FF.jsonl").touch()  # another program's, and so is the next one
    Path(os.fsdecode(bytes(tmp_path) + b"/project/\xff.jsonl")).touch()
    with anyio.fail_after(60):
        assert await store.list_sessions("odd") == []
        if odd != "a link to itself":
            assert await store.load({**KEY, "project_key": "odd"}) is None
        assert await store.find_project(SID) == "project"
        assert [each["session_id"] for each in await store.list_sessions("project")] == [SID]
        if odd != "a directory":
            with pytest.raises(errors.SessionFilesError):
                await store.append({**KEY, "project_key": "odd"}, [entry("1")])


@pytest.mark.parametrize("odd", ODD)
async def test_what_is_no_database_is_not_waited_for(odd: str, tmp_path: Path) -> None:
    ODD[odd](tmp_path / "store.db")
    store: Any = sessions.SQLiteSessionStore(tmp_path / "store.db")
    with anyio.fail_after(60):
        for call in (store.load(KEY), store.append(KEY, [entry("1")])):
            with pytest.raises(errors.CLIConnectionError, match="store.db.*session " + SID) as caught:
                await call
            assert caught.value.code == "session_store.failed"


# ------------------------------------------------------------------------------------------------------------- directories by name


@pytest.mark.parametrize(
    "wrong", ["x" * 5000, "x/" * 2500, "/" + "x" * 300 + "/y", "a\0b", "\ud800"], ids=["name", "path", "part", "null", "half"]
)
def test_a_directory_that_cannot_be_there_has_no_sessions(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typed error, or nothing: never an error of the system."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    (tmp_path / "projects").mkdir()
    calls: dict[str, Callable[[], Any]] = {
        "list_sessions": lambda: sessions.list_sessions(wrong),
        "get_session_info": lambda: sessions.get_session_info(SID, wrong),
        "get_session_messages": lambda: sessions.get_session_messages(SID, wrong),
        "list_subagents": lambda: sessions.list_subagents(SID, wrong),
        "get_subagent_messages": lambda: sessions.get_subagent_messages(SID, "x", wrong),
    }
    for what, call in calls.items():
        try:
            assert not call(), what
        except errors.SessionArgumentError as exc:
            assert exc.argument == "directory"  # noqa: PT017 - either is right
            assert wrong in ("a\0b", "\ud800")
    for change in (
        lambda: sessions.rename_session(SID, "t", wrong),
        lambda: sessions.tag_session(SID, "t", wrong),
        lambda: sessions.delete_session(SID, wrong),
        lambda: sessions.fork_session(SID, wrong),
    ):
        with pytest.raises((errors.SessionArgumentError, errors.SessionNotFound)):
            change()


@pytest.mark.parametrize("place", ["x" * 5000, "x" * 300, "loop"])
def test_a_configuration_directory_that_cannot_be_there_has_no_sessions(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link(tmp_path / "loop")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / place))
    assert sessions.list_sessions() == []
    assert sessions.list_sessions("/srv") == []
    assert sessions.get_session_info(SID, "/srv") is None
    with pytest.raises(errors.SessionNotFound):
        sessions.rename_session(SID, "t", "/srv")


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_transcript_is_in_no_list_of_the_cli(odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "configuration"))
    project = tmp_path / "configuration" / "projects" / project_key_for_directory(tmp_path)
    project.mkdir(parents=True)
    (project / f"{OTHER}.jsonl").write_text('{"type":"user","uuid":"1","message":{"role":"user","content":"Hello"}}\n')
    ODD[odd](project / f"{SID}.jsonl")
    ODD[odd](project.parent / "odd")
    ODD[odd](tmp_path / ".git")
    for where in (None, tmp_path):
        assert [each.session_id for each in sessions.list_sessions(where)] == [OTHER]
        assert sessions.get_session_info(SID, where) is None
        with pytest.raises(errors.SessionNotFound):
            sessions.rename_session(SID, "t", where)


WITHOUT = """
import os, pathlib, sys
for name in ("O_NONBLOCK", "O_CLOEXEC", "pread"):
    delattr(os, name)
import anyio
from claude_transport import sessions
sid, folder = sys.argv[1:]
assert [each.session_id for each in sessions.list_sessions()] == [sid]
assert len(sessions.get_session_messages(sid)) == 1
sessions.rename_session(sid, "Title")
store = sessions.FileSessionStore(folder)
anyio.run(sessions.import_session_to_store, sid, store)
(title,) = {each.custom_title for each in sessions.list_sessions()}
print(title, sorted(each.name for each in pathlib.Path(folder).rglob("*.jsonl")))
"""


def test_stored_sessions_are_read_and_changed_on_a_system_with_fewer_flags_for_files(tmp_path: Path) -> None:
    """Windows has no `O_NONBLOCK`, no `O_CLOEXEC` and no `pread`."""
    project = tmp_path / "configuration" / "projects" / "-work"
    project.mkdir(parents=True)
    said = {"type": "user", "uuid": OTHER, "sessionId": SID, "message": {"role": "user", "content": "Hello"}}
    (project / f"{SID}.jsonl").write_text(json.dumps(said) + "\n")
    env = {**os.environ, "CLAUDE_CONFIG_DIR": str(tmp_path / "configuration")}
    command = [sys.executable, "-c", WITHOUT, SID, str(tmp_path / "store")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (f"Title ['{SID}.jsonl']\n", "")


# ------------------------------------------------------------------------------------------------------- a session out of a store


PARTS = ["a", "a.jsonl/b", "A.JSONL/c", "a.jsonl", "x" * 300, "y/" * 2500 + "z", "nul", "ends.", "ends /b", "subagents/agent-1"]


async def test_subagents_whose_names_cannot_be_files_together_are_left_out_of_a_resumed_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store: Any = sessions.InMemorySessionStore()
    key: Any = {"project_key": project_key_for_directory(), "session_id": SID}
    await store.append(key, [entry("1")])
    for part in PARTS:
        await store.append({**key, "subpath": part}, [entry("1"), {"type": "agent_metadata", "toolUseId": "t"}])
    found = await find_session(store, resume=SID, cwd=None)
    assert found is not None
    place = PrivatePlace(cwd=None, found=found, configuration={})
    (root,) = (place.path / "projects").iterdir()
    written = {path.relative_to(root).as_posix() for path in root.rglob("*.jsonl") if path.is_file()}
    place.remove()
    assert {f"{SID}.jsonl", f"{SID}/a.jsonl", f"{SID}/subagents/agent-1.jsonl"} <= written
    assert len({name.casefold() for name in written}) == len(written)
    assert all(len(record.getMessage()) < 1500 for record in caplog.records)
    assert len(caplog.records) == len(PARTS) + 1 - len(written)


async def test_a_main_transcript_that_cannot_be_written_fails_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(OSError, match="File name too long"):
        PrivatePlace(cwd=None, found=FoundSession("x" * 300, "p", {None: [entry("1")]}), configuration={})
    assert list(tmp_path.iterdir()) == []
