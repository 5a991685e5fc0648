"""Whatever lies in the directories of sessions: it costs itself, and never the functions that read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shelf import CWD, Shelf, assistant, line, session, talk, user

from claude_transport import errors, sessions
from claude_transport.sessions import get_session_info, get_session_messages, get_subagent_messages, list_sessions, list_subagents, reading

BEYOND_THE_LONGEST_LINE = 65 * 2**20

NO_IDS = [
    "",
    "x",
    "../../../etc/passwd",
    "..",
    f"../{session(1)}",
    f"{session(1)}/..",
    f"{session(1)}\n",
    f" {session(1)}",
    session(1).replace("-", ""),
    f"{{{session(1)}}}",
    f"{session(1)}\0",
    "*",
    "\uff11" + session(1)[1:],
    None,
    7,
]
BY_ID: dict[str, Callable[[Any], Any]] = {
    "get_session_info": get_session_info,
    "get_session_messages": get_session_messages,
    "list_subagents": list_subagents,
    "get_subagent_messages": lambda text: get_subagent_messages(text, "a"),
    "rename_session": lambda text: sessions.rename_session(text, "Title"),
    "tag_session": lambda text: sessions.tag_session(text, "tag"),
    "delete_session": sessions.delete_session,
    "fork_session": sessions.fork_session,
}


def said(number: int = 1) -> list[Any]:
    """The messages of a session, in short."""
    return [message.message["content"] for message in get_session_messages(session(number))]


@pytest.mark.parametrize("text", NO_IDS)
@pytest.mark.parametrize("name", BY_ID)
def test_an_id_that_is_no_uuid_is_refused_by_name(name: str, text: Any, shelf: Shelf) -> None:
    shelf.put(1)
    with pytest.raises(errors.SessionArgumentError, match="session_id") as caught:
        BY_ID[name](text)
    assert isinstance(caught.value, ValueError)
    assert caught.value.argument == "session_id"


@pytest.mark.parametrize("text", NO_IDS)
async def test_an_id_that_is_no_uuid_is_not_imported(text: Any) -> None:
    with pytest.raises(errors.SessionArgumentError):
        await sessions.import_session_to_store(text, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("directory", ["a\0b", 7, b"bytes"])
def test_a_directory_that_is_no_path_is_refused_by_name(directory: Any, shelf: Shelf) -> None:
    for function in (list_sessions, lambda where: get_session_info(session(1), where)):
        with pytest.raises(errors.SessionArgumentError, match="directory"):
            function(directory)


def test_a_half_written_line_costs_that_line_only(shelf: Shelf) -> None:
    shelf.put(1, b"".join(map(line, talk())) + line(user(3, "Half", parent=2))[:-30])
    assert len(said()) == 2
    assert [info.first_prompt for info in list_sessions()] == ["Question 1"]


def test_a_title_behind_half_a_line_counts(shelf: Shelf) -> None:
    shelf.put(1, line(talk()[0]) + b'{"type":"custom-title","customTitle":"Cut\n' + line({"customTitle": "Whole"}))
    assert [info.summary for info in list_sessions()] == ["Whole"]


def test_bytes_that_are_no_text_cost_their_line_only(shelf: Shelf) -> None:
    noise = bytes(range(256)) * 20
    shelf.put(1, noise + b"\n" + line(talk()[0]) + noise + b"\n\0\0\0\n" + line(talk()[1]))
    assert len(said()) == 2
    assert list_sessions()[0].first_prompt == "Question 1"


def test_a_message_with_bytes_that_are_no_utf_8_is_read_with_marks_in_their_place(shelf: Shelf) -> None:
    shelf.put(1, line(user(1, "b?d")).replace(b"b?d", b"b\xffd"))
    assert said() == ["b\ufffdd"]


def test_json_that_is_nested_too_deeply_costs_its_line_only(shelf: Shelf) -> None:
    deep = b'{"type":"user","message":' + b"[" * 15_000 + b"]" * 15_000 + b"}\n"
    shelf.put(1, deep + line(talk()[0]) + deep + line(talk()[1]))
    assert len(said()) == 2
    assert list_sessions()[0].first_prompt == "Question 1"


def test_an_enormous_line_is_passed_over(shelf: Shelf) -> None:
    path = shelf.put(1, line(talk()[0]))
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.truncate(file.tell() + BEYOND_THE_LONGEST_LINE)  # zeros, which take no room on the disk
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + line(talk()[1]))
    assert len(said()) == 2
    assert sessions.fork_session(session(1)).session_id in [info.session_id for info in list_sessions()]


@pytest.mark.parametrize("kind", ["pipe", "directory", "dangling link", "endless device", "link to itself"])
def test_what_is_no_file_counts_as_no_session(kind: str, shelf: Shelf) -> None:
    shelf.put(1)
    path = shelf.project() / f"{session(2)}.jsonl"
    make: dict[str, Callable[[], Any]] = {
        "pipe": lambda: os.mkfifo(path),
        "directory": path.mkdir,
        "dangling link": lambda: path.symlink_to("nowhere"),
        "endless device": lambda: path.symlink_to("/dev/zero"),
        "link to itself": lambda: path.symlink_to(path),
    }
    make[kind]()
    assert [info.session_id for info in list_sessions()] == [session(1)]
    assert get_session_info(session(2)) is None
    assert get_session_messages(session(2)) == list_subagents(session(2)) == get_subagent_messages(session(2), "a") == []
    for name in ("rename_session", "tag_session", "delete_session", "fork_session"):
        with pytest.raises(errors.SessionNotFound):
            BY_ID[name](session(2))


def test_links_to_transcripts_and_projects_are_followed(shelf: Shelf, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    moved.mkdir()
    shelf.put(1).rename(moved / "transcript")
    (shelf.project() / f"{session(1)}.jsonl").symlink_to(moved / "transcript")
    shelf.put(2, cwd="/other").parent.rename(moved / "project")
    shelf.project("/other").symlink_to(moved / "project")
    assert {info.session_id for info in list_sessions()} == {session(1), session(2)}
    assert len(said(1)) == len(said(2)) == 2


def test_a_linked_directory_of_subagents_leads_in_no_circle(shelf: Shelf) -> None:
    shelf.put(1)
    folder = shelf.put_subagent(1, "a", talk()).parent
    (folder / "again").symlink_to(folder)
    assert list_subagents(session(1)) == ["a"]


def test_subagents_are_not_looked_for_below_a_hundred_directories(shelf: Shelf) -> None:
    shelf.put(1)
    shelf.put_subagent(1, "near", talk(), below="workflows/run-1")
    shelf.put_subagent(1, "far", talk(), below="/".join("d" * 100))
    assert list_subagents(session(1)) == ["near"]


@pytest.mark.parametrize("noted", [b"", b"[]", b"{half", b"\xff", b'{"toolUseId": 7}'])
def test_a_damaged_note_about_a_subagent_costs_that_note_only(noted: bytes, shelf: Shelf) -> None:
    shelf.put(1)
    shelf.put_subagent(1, "a", talk()).with_name("agent-a.meta.json").write_bytes(noted)
    assert [message.parent_tool_use_id for message in get_subagent_messages(session(1), "a")] == [None, None]


@pytest.mark.parametrize("gone", ["file", "project"])
def test_files_that_vanish_meanwhile_are_left_out(gone: str, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [shelf.put(number) for number in range(4)]
    real = os.open

    def vanish(path: Any, *args: Any, **arguments: Any) -> int:
        for victim in paths[:2] if gone == "file" else paths:
            victim.unlink(missing_ok=True)
        return real(path, *args, **arguments)

    monkeypatch.setattr(os, "open", vanish)
    assert [info.session_id for info in list_sessions()] == ([session(3), session(2)] if gone == "file" else [])


def test_a_transcript_that_is_written_anew_meanwhile_costs_the_messages_that_moved(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shelf.put(1, [*talk(), assistant(3, "Third", parent=2)])
    real = reading.conversation

    def rewrite(entries: Any) -> Any:
        path.write_bytes(line(talk()[0]) + b"\n")
        return real(entries)

    monkeypatch.setattr(reading, "conversation", rewrite)
    assert len(said()) == 1


def test_a_list_is_sorted_although_a_session_is_written_meanwhile(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shelf.put(1)
    shelf.put(2)
    real = os.open

    def write(path: Any, *args: Any, **arguments: Any) -> int:
        os.utime(first, (1_800_000_000, 1_800_000_000))
        return real(path, *args, **arguments)

    monkeypatch.setattr(os, "open", write)
    assert [info.session_id for info in list_sessions(CWD)] == [session(1), session(2)]


def test_without_a_home_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)

    def no_home(_cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(no_home))
    with pytest.raises(errors.ConfigurationError, match="CLAUDE_CONFIG_DIR"):
        list_sessions()


def test_the_sessions_of_the_home_directory_are_listed_without_a_variable(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put(1)
    shelf.configuration.rename(shelf.configuration.with_name(".claude"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    monkeypatch.setenv("HOME", str(shelf.configuration.parent))
    assert [info.session_id for info in list_sessions()] == [session(1)]


def test_a_directory_may_be_a_path(shelf: Shelf) -> None:
    shelf.put(1)
    assert list_sessions(Path(CWD)) == list_sessions(CWD) != []


async def test_half_a_line_is_not_imported(shelf: Shelf) -> None:
    given: list[Any] = []

    class Noting:
        async def append(self, _key: Any, entries: Any) -> None:
            given.extend(entries)

    shelf.put(1, b"".join(map(line, talk())) + b"\xff\n[1]\n" + line(user(3, "Half", parent=2))[:-30])
    await sessions.import_session_to_store(session(1), Noting())
    assert given == talk()
