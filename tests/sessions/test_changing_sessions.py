"""Titles, tags, deletions and forks: what they leave on the disk, beside a running CLI and where the disk fails."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from shelf import CWD, Shelf, assistant, entry, line, session, talk, user

from claude_transport import errors
from claude_transport.sessions import (
    delete_session,
    fork_session,
    get_session_info,
    get_session_messages,
    list_sessions,
    list_subagents,
    rename_session,
    tag_session,
)


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The operating system lets no file of this process grow over so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def described(number: int = 1) -> tuple[str | None, str | None]:
    """The title and the tag of a session."""
    info = get_session_info(session(number))
    assert info is not None
    return info.custom_title, info.tag


# --------------------------------------------------------------------------------------------------------------- titles and tags


def test_the_last_title_and_the_last_tag_count_and_a_tag_can_be_taken_away(shelf: Shelf) -> None:
    shelf.put(1)
    for title, tag in (("One", "a"), ("Two", "b"), ("Three", None)):
        rename_session(session(1), title)
        tag_session(session(1), tag)
        assert described() == (title, tag)


@pytest.mark.parametrize("title", ["", "  ", "\n\t"])
def test_an_empty_title_is_refused(title: str, shelf: Shelf) -> None:
    path = shelf.put(1)
    before = path.read_bytes()
    with pytest.raises(errors.SessionArgumentError, match="title"):
        rename_session(session(1), title)
    assert path.read_bytes() == before


@pytest.mark.parametrize("tag", ["", " ", "\u200b", "\ue000 \u2066"])
def test_a_tag_without_a_visible_character_is_refused(tag: str, shelf: Shelf) -> None:
    shelf.put(1)
    with pytest.raises(errors.SessionArgumentError, match="tag"):
        tag_session(session(1), tag)


def test_letters_that_a_removed_character_kept_apart_are_joined_in_a_tag(shelf: Shelf) -> None:
    shelf.put(1)
    tag_session(session(1), "cafe\u200d\u0301")
    assert described()[1] == "caf\u00e9"


def test_a_title_behind_half_a_line_is_a_line_of_its_own(shelf: Shelf) -> None:
    shelf.put(1, b"".join(map(line, talk())) + b'{"type":"user","message":"cut sh')
    tag_session(session(1), "kept")
    rename_session(session(1), "Kept")
    assert described() == ("Kept", "kept")
    assert len(get_session_messages(session(1))) == 2


def test_each_line_is_written_by_one_call_of_the_system(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shelf.put(1)
    writes: list[bytes] = []
    real = os.write

    def note(descriptor: int, data: bytes) -> int:
        writes.append(bytes(data))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", note)
    before = path.read_bytes()
    rename_session(session(1), "é" * 5000)
    assert len(writes) == 1
    assert path.read_bytes() == before + writes[0]


def test_titles_and_lines_of_another_writer_all_stay_whole(shelf: Shelf) -> None:
    path = shelf.put(1)
    start = threading.Barrier(2)

    def talk_on() -> None:
        start.wait(60)
        for number in range(3, 300):
            with path.open("ab", buffering=0) as file:
                file.write(line(assistant(number, "x" * 5000, parent=number - 1)))

    other = threading.Thread(target=talk_on)
    other.start()
    start.wait(60)
    for number in range(200):
        rename_session(session(1), f"Title {number}")
    other.join(60)
    lines = [json.loads(one) for one in path.read_bytes().splitlines()]
    assert [one["customTitle"] for one in lines if "customTitle" in one] == [f"Title {number}" for number in range(200)]
    assert len(get_session_messages(session(1))) == 299


def test_a_line_that_another_writer_is_just_writing_is_no_half_line(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shelf.put(1)
    before, looks, real = path.read_bytes(), [b"x"], os.read
    monkeypatch.setattr(os, "read", lambda *arguments: looks.pop() if looks else real(*arguments))  # first, only a part is there
    rename_session(session(1), "Title")
    assert path.read_bytes().removeprefix(before).startswith(b"{")


def test_a_full_disk_is_told_and_the_next_title_is_whole(shelf: Shelf) -> None:
    path = shelf.put(1)
    size = path.stat().st_size
    for room in (0, 10):
        with files_up_to(size + room), pytest.raises(errors.SessionFilesError):
            rename_session(session(1), "Lost")
    rename_session(session(1), "Kept")
    assert described() == ("Kept", None)


@contextmanager
def no_file_left_open() -> Iterator[None]:
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208 - the listing itself has one, each time
    yield
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208


def test_no_call_leaves_a_file_open_also_where_it_fails(shelf: Shelf) -> None:
    path = shelf.put(1)
    with no_file_left_open():
        rename_session(session(1), "Title")
        tag_session(session(1), "tag")
        fork_session(session(1))
        get_session_info(session(1))
        get_session_messages(session(1))
        list_sessions()
        list_subagents(session(1))
    with no_file_left_open(), files_up_to(path.stat().st_size):
        for change in (
            lambda: rename_session(session(1), "Lost"),
            lambda: tag_session(session(1), "Lost"),
            lambda: fork_session(session(1)),
        ):
            with pytest.raises(errors.SessionFilesError):
                change()
    with no_file_left_open():
        delete_session(session(1))
    path.write_bytes(b"")
    with no_file_left_open(), pytest.raises(errors.SessionNotFound):
        rename_session(session(1), "Lost")


def test_of_two_that_delete_a_session_the_second_is_told(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the first was quicker by so little that both had seen it."""
    path = shelf.put(1)
    remove = shutil.rmtree

    def also_another(*arguments: Any, **options: Any) -> None:
        path.unlink()
        remove(*arguments, **options)

    path.with_suffix("").mkdir()
    monkeypatch.setattr(shutil, "rmtree", also_another)
    with pytest.raises(errors.SessionNotFound) as caught:
        delete_session(session(1))
    assert caught.value.args == (f"session {session(1)} was deleted by another process meanwhile",)
    assert (caught.value.code, caught.value.session_id) == ("session.not_found", session(1))


def test_an_error_of_the_system_keeps_its_number(shelf: Shelf) -> None:
    path = shelf.put(1)
    with files_up_to(path.stat().st_size), pytest.raises(errors.SessionFilesError) as caught:
        rename_session(session(1), "Lost")
    assert caught.value.errno is not None
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("directory", [None, CWD, "/elsewhere"])
def test_a_session_that_is_not_there_is_not_made(directory: str | None, shelf: Shelf) -> None:
    shelf.put(1, b"")
    for change in (lambda: rename_session(session(1), "T", directory), lambda: tag_session(session(2), "t", directory)):
        with pytest.raises(errors.SessionNotFound) as caught:
            change()
        assert isinstance(caught.value, FileNotFoundError)
        assert "list_sessions()" in str(caught.value)
        assert not caught.value.retryable
    assert [path.stat().st_size for path in shelf.configuration.rglob("*.jsonl")] == [0]


def test_a_session_that_comes_into_being_meanwhile_is_told_apart_from_none(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file had nothing in it when the title was to be written. Another try finds it."""
    shelf.put(1, b"")
    close = os.close

    def fill(descriptor: int) -> None:
        close(descriptor)
        shelf.put(1)

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", fill)
        with pytest.raises(errors.SessionNotFound, match="meanwhile; call again") as caught:
            rename_session(session(1), "T")
    assert (caught.value.retryable, caught.value.session_id) == (True, session(1))
    rename_session(session(1), "T")
    assert described()[0] == "T"


def test_a_file_that_cannot_be_opened_is_told_and_no_other_is_looked_for(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put(1)

    def refuse(*_arguments: Any, **_options: Any) -> int:
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(errors.SessionFilesError, match="cannot be written") as caught:
        rename_session(session(1), "T")
    assert caught.value.errno == errno.EROFS


# --------------------------------------------------------------------------------------------------------------------- deletion


def register(shelf: Shelf, number: int, pid: int, **more: Any) -> None:
    """Note that a process runs a session, as the CLI does."""
    folder = shelf.configuration / "sessions"
    folder.mkdir(exist_ok=True)
    (folder / f"{pid}.json").write_text(json.dumps({"pid": pid, "sessionId": session(number), **more}))


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until its input ends."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        if child.returncode is None:
            child.communicate(b"\n")


def started(pid: int) -> str:
    """When a process started, as the CLI notes it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def test_a_deleted_session_is_gone_with_its_subagents_and_no_other(shelf: Shelf) -> None:
    shelf.put(1)
    shelf.put(2)
    shelf.put_subagent(1, "a", talk())
    shelf.put_subagent(2, "b", talk())
    delete_session(session(1))
    assert [info.session_id for info in list_sessions()] == [session(2)]
    assert not [path for path in shelf.configuration.rglob("*") if session(1) in str(path)]
    assert list_subagents(session(2)) == ["b"]
    with pytest.raises(errors.SessionNotFound):
        delete_session(session(1))


def test_a_session_that_a_process_runs_is_not_deleted(shelf: Shelf, process: subprocess.Popen[bytes]) -> None:
    shelf.put(1)
    register(shelf, 1, process.pid, procStart=started(process.pid))
    shelf.put(2)
    with pytest.raises(errors.SessionInUse, match=str(process.pid)) as caught:
        delete_session(session(1))
    assert (caught.value.session_id, caught.value.pid) == (session(1), process.pid)
    delete_session(session(2))
    process.communicate(b"\n")
    delete_session(session(1))
    assert list_sessions() == []


def test_a_process_that_has_the_number_of_a_dead_one_runs_nothing(shelf: Shelf, process: subprocess.Popen[bytes]) -> None:
    shelf.put(1)
    register(shelf, 1, process.pid, procStart="1")
    delete_session(session(1))


def test_a_process_that_has_ended_and_that_nobody_has_waited_for_runs_nothing(shelf: Shelf, process: subprocess.Popen[bytes]) -> None:
    shelf.put(1)
    register(shelf, 1, process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    delete_session(session(1))
    assert list_sessions() == []


def test_a_process_without_a_time_of_start_counts(shelf: Shelf, process: subprocess.Popen[bytes]) -> None:
    shelf.put(1)
    register(shelf, 1, process.pid)
    with pytest.raises(errors.SessionInUse):
        delete_session(session(1))


@pytest.mark.parametrize("noted", [b"", b"{", b"[]", b'{"pid":"x"}', b'{"pid":-1}', b'{"pid":true}', b'{"pid":99999999999}'])
def test_a_damaged_register_keeps_no_session(noted: bytes, shelf: Shelf) -> None:
    shelf.put(1)
    (shelf.configuration / "sessions").mkdir()
    (shelf.configuration / "sessions" / "1.json").write_bytes(noted[:-1] + f',"sessionId":"{session(1)}"}}'.encode() if noted else noted)
    os.mkfifo(shelf.configuration / "sessions" / "2.json")
    delete_session(session(1))


def test_of_links_only_the_links_are_deleted(shelf: Shelf, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    shelf.put(1).rename(kept / "transcript")
    (shelf.project() / f"{session(1)}.jsonl").symlink_to(kept / "transcript")
    (shelf.project() / session(1)).symlink_to(kept)
    delete_session(session(1))
    assert sorted(path.name for path in kept.iterdir()) == ["file", "transcript"]
    assert list(shelf.project().iterdir()) == []


def test_a_session_that_cannot_be_deleted_whole_can_be_deleted_again(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put(1)
    shelf.put_subagent(1, "a", talk())

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(errors.SessionFilesError, match="Permission denied"):
            delete_session(session(1))
    assert [info.session_id for info in list_sessions()] == [session(1)]
    delete_session(session(1))
    assert list(shelf.project().iterdir()) == []


# ------------------------------------------------------------------------------------------------------------------------- forks


def test_a_fork_says_the_same_under_new_ids_and_leaves_the_original_alone(shelf: Shelf) -> None:
    path = shelf.put(1, [*talk(), user(3, "More", parent=2), {"type": "custom-title", "customTitle": "Mine"}])
    before = path.read_bytes()
    made = fork_session(session(1), title="Other").session_id
    original, fork = get_session_messages(session(1)), get_session_messages(made)
    assert [message.message for message in fork] == [message.message for message in original]
    assert {message.session_id for message in fork} == {made}
    assert not {message.uuid for message in fork} & {message.uuid for message in original}
    assert path.read_bytes() == before
    info = get_session_info(made)
    assert info is not None
    assert info.custom_title == "Other"
    assert stat.S_IMODE((shelf.project() / f"{made}.jsonl").stat().st_mode) == 0o600


def test_a_fork_ends_with_the_message_that_is_named(shelf: Shelf) -> None:
    shelf.put(1, [*talk(), user(3, "More", parent=2)])
    made = fork_session(session(1), up_to_message_id=entry(2)).session_id
    assert len(get_session_messages(made)) == 2
    with pytest.raises(errors.SessionArgumentError, match="up_to_message_id"):
        fork_session(session(1), up_to_message_id="../x")
    with pytest.raises(errors.SessionArgumentError, match=entry(9)):
        fork_session(session(1), up_to_message_id=entry(9))


def test_a_fork_of_a_session_that_is_being_written_has_its_whole_lines(shelf: Shelf) -> None:
    shelf.put(1, b"".join(map(line, talk())) + line(user(3, "Half", parent=2))[:-20])
    assert len(get_session_messages(fork_session(session(1)).session_id)) == 2


def test_progress_entries_in_a_circle_do_not_hold_a_fork_up(shelf: Shelf) -> None:
    shelf.put(
        1,
        [
            {"type": "progress", "uuid": entry(1), "parentUuid": entry(2)},
            {"type": "progress", "uuid": entry(2), "parentUuid": entry(1)},
            user(3, parent=2),
        ],
    )
    assert len(get_session_messages(fork_session(session(1)).session_id)) == 1


def test_progress_that_many_messages_follow_is_passed_once(shelf: Shelf) -> None:
    """The work is linear: else a transcript of a megabyte takes minutes."""
    many = 100
    progress = [{"type": "progress", "uuid": entry(number), "parentUuid": entry(number - 1)} for number in range(2, many)]
    shelf.put(1, [user(1), *progress, *(user(many + number, parent=many - 1) for number in range(many))])
    steps = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event == "call" and frame.f_code.co_name == "parent_of"

    sys.setprofile(count)
    try:
        fork_session(session(1))
    finally:
        sys.setprofile(None)
    assert steps <= 3 * many


def test_a_fork_is_not_seen_before_it_is_complete(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put(1)
    seen: list[int] = []
    real = Path.rename

    def look(path: Path, target: Any) -> Path:
        seen.append(len(list_sessions()))
        return real(path, target)

    monkeypatch.setattr(Path, "rename", look)
    fork_session(session(1))
    assert (seen, len(list_sessions())) == ([1], 2)


def test_a_fork_for_which_the_disk_has_no_room_leaves_nothing(shelf: Shelf) -> None:
    shelf.put(1, [user(1, "x" * 50_000)])
    with files_up_to(10_000), pytest.raises(errors.SessionFilesError, match="fork"):
        fork_session(session(1))
    assert len(list(shelf.project().iterdir())) == 1


def test_a_session_that_is_written_anew_while_it_is_forked_leaves_no_copy(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shelf.put(1, [user(1, "x" * 50_000), assistant(2, "y" * 50_000, parent=1)])
    real = os.open

    def write_anew(name: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            path.write_bytes(line(user(3)))
        return real(name, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", write_anew)
    with pytest.raises(errors.SessionFilesError, match="written anew meanwhile; call again") as caught:
        fork_session(session(1))
    assert caught.value.retryable
    assert list(shelf.project().iterdir()) == [path]


def test_a_session_without_messages_is_not_forked(shelf: Shelf) -> None:
    shelf.put(1, [{"type": "summary", "summary": "x"}])
    with pytest.raises(errors.SessionArgumentError, match="no messages"):
        fork_session(session(1))
    assert len(list(shelf.project().iterdir())) == 1
