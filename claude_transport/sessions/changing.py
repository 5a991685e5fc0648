"""Change stored sessions: give one a title or a tag, delete it, or fork it.

A title or a tag is a line at the end of the transcript. It is written in one piece, as the CLI writes its own, so the lines of both stay
whole. A fork is a new file, which appears when it is complete. `docs/explanation/decisions.md` says what a running CLI does with each.
Which process runs a session is in `sessions/<pid>.json` of the configuration directory, the register that the CLI keeps.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from claude_transport.errors import SessionArgumentError, SessionFilesError, SessionInUse, SessionNotFound
from claude_transport.platform.winapi import is_running
from claude_transport.sessions.listing import read_ends, title_from_ends
from claude_transport.sessions.places import AT_ONCE, Directory, candidates, check_id, configuration_directory, find_session, read_at
from claude_transport.sessions.reading import EntryPlace, lines_of, open_regular, parent_of, parse, read_again

_INVISIBLE: Final = frozenset({"Cf", "Co", "Cn"})  # Unicode categories: format, private use, unassigned
_MAX_PASSES: Final = 10
_LOOKS: Final = 10
_BETWEEN_LOOKS: Final = 0.001
_NOT_FORKED: Final = ("teamName", "agentName", "slug", "sourceToolAssistantUUID")


@dataclass
class ForkSessionResult:
    """What `fork_session()` made."""

    session_id: str
    """The UUID of the new session."""


def rename_session(session_id: str, title: str, directory: Directory = None) -> None:
    """Give a session a title. The last title counts.

    A CLI that runs the session meanwhile keeps the new title.

    Args:
        session_id: its UUID.
        title: the title, of which spaces at both ends are removed.
        directory: look among the sessions of this working directory and of its worktrees; without it, in all projects.

    Raises:
        SessionArgumentError: the id is no UUID, the title is empty, or `directory` cannot be a path.
        SessionNotFound: there is no such session.
        SessionFilesError: its file cannot be written.
    """
    check_id(session_id)
    _append(session_id, {"type": "custom-title", "customTitle": checked_title(title), "sessionId": session_id}, directory)


def tag_session(session_id: str, tag: str | None, directory: Directory = None) -> None:
    """Give a session a tag, or take it away with None. The last tag counts.

    Args:
        session_id: its UUID.
        tag: the tag. Invisible characters and spaces at both ends are removed, and compatible forms of characters are made one (NFKC).
        directory: look among the sessions of this working directory and of its worktrees; without it, in all projects.

    Raises:
        SessionArgumentError: the id is no UUID, nothing is left of the tag, or `directory` cannot be a path.
        SessionNotFound: there is no such session.
        SessionFilesError: its file cannot be written.
    """
    check_id(session_id)
    _append(session_id, {"type": "tag", "tag": checked_tag(tag), "sessionId": session_id}, directory)


def delete_session(session_id: str, directory: Directory = None) -> None:
    """Delete a session and what its subagents said. It cannot be undone.

    Args:
        session_id: its UUID.
        directory: look among the sessions of this working directory and of its worktrees; without it, in all projects.

    Raises:
        SessionArgumentError: the id is no UUID, or `directory` cannot be a path.
        SessionNotFound: there is no such session.
        SessionInUse: a CLI runs it. It would write its next lines into a new file, which lacks all that was said before.
        SessionFilesError: a file cannot be deleted. The session is still listed then, and can be deleted again.
    """
    path = find_session(session_id, directory)
    pid = process_of(session_id, configuration_directory())
    if pid is not None:
        what = f"session {session_id} is run by process {pid}, which would write to it again; end that process first"
        raise SessionInUse(what, session_id=session_id, pid=pid)
    with _typed(f"session {session_id} cannot be deleted"):
        _remove_tree(path.with_suffix(""))
        try:
            path.unlink()
        except FileNotFoundError:
            raise SessionNotFound(f"session {session_id} was deleted by another process meanwhile", session_id=session_id) from None


def fork_session(
    session_id: str, directory: Directory = None, up_to_message_id: str | None = None, title: str | None = None
) -> ForkSessionResult:
    """Copy a session into a new one, which can be resumed by its own id. The original stays as it is, and may be running.

    Every message gets a new id. What subagents said and saved versions of files are not copied.

    Args:
        session_id: its UUID.
        directory: look among the sessions of this working directory and of its worktrees; without it, in all projects.
        up_to_message_id: leave out what comes after this message.
        title: the title of the copy; without it, that of the original and " (fork)".

    Raises:
        SessionArgumentError: an id is no UUID, the session has no such message or none at all, or `directory` cannot be a path.
        SessionNotFound: there is no such session.
        SessionFilesError: the files cannot be read or written.
    """
    check_id(session_id)
    if up_to_message_id:
        check_id(up_to_message_id, argument="up_to_message_id")
    path = find_session(session_id, directory)
    with _typed(f"session {session_id} cannot be forked"), open_regular(path) as file:
        fork = Fork(session_id, up_to_message_id)
        for line in lines_of(file, end=os.fstat(file.fileno()).st_size):
            fork.add(parse(line.data), line.start)
        forked = fork.entries(lambda entry: _still_there(file, entry), (title or "").strip() or _title_of(path))
        _write_new(path.with_name(f"{fork.new_id}.jsonl"), forked)
    return ForkSessionResult(fork.new_id)


class Fork:
    """A copy of a session in the making: `add()` its entries, then read the `entries()` of the copy."""

    def __init__(self, session_id: str, up_to_message_id: str | None = None) -> None:
        self.new_id: str = str(uuid.uuid4())
        self._session_id = session_id
        self._up_to = up_to_message_id
        self._chosen: list[EntryPlace] = []
        self._reached = False
        self._replacements: list[Any] = []

    def add(self, raw: Any, where: Any) -> None:
        """Take one entry of the original. `where` leads back to it."""
        entry = EntryPlace.of(raw, where)
        if entry is None:
            if isinstance(raw, dict) and raw.get("type") == "content-replacement" and raw.get("sessionId") == self._session_id:
                replaced = raw.get("replacements")
                self._replacements += replaced if isinstance(replaced, list) else []
        elif not entry.is_sidechain and not self._reached:
            self._chosen.append(entry)
            self._reached = entry.uuid == self._up_to

    def entries(self, read: Callable[[EntryPlace], dict[str, Any]], title: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of the copy. `read` returns an entry of the original with its content; `title` is that of the copy.

        Raises:
            SessionArgumentError: there is nothing to copy, or no message with the id that was named.
        """
        written = [entry for entry in self._chosen if entry.type != "progress"]
        if not written:
            raise SessionArgumentError(f"session {self._session_id} has no messages to fork", argument="session_id")
        if self._up_to and not self._reached:
            what = f"session {self._session_id} has no message {self._up_to}; `get_session_messages()` returns its messages"
            raise SessionArgumentError(what, argument="up_to_message_id")
        now = timestamp()
        new = {entry.uuid: str(uuid.uuid4()) for entry in self._chosen}
        by_uuid = {entry.uuid: entry for entry in self._chosen}
        shown: dict[str, str | None] = {}
        for entry in written:
            copy = self._copied(read(entry), new, _shown_parent(entry, by_uuid, shown))
            copy["timestamp"] = now if entry is written[-1] else copy.get("timestamp", now)  # a resume looks for the latest
            yield copy
        named = {"sessionId": self.new_id, "uuid": str(uuid.uuid4()), "timestamp": now}
        if self._replacements:
            yield {"type": "content-replacement", "replacements": self._replacements, **named, "uuid": str(uuid.uuid4())}
        yield {"type": "custom-title", "customTitle": title, **named}

    def _copied(self, raw: dict[str, Any], new: dict[str, str], parent: str | None) -> dict[str, Any]:
        logical = raw.get("logicalParentUuid")
        return {
            **{name: value for name, value in raw.items() if name not in _NOT_FORKED},
            "uuid": new[raw["uuid"]],
            "parentUuid": new[parent] if parent is not None else None,
            "logicalParentUuid": new.get(logical) if isinstance(logical, str) and logical else logical,
            "sessionId": self.new_id,
            "isSidechain": False,
            "forkedFrom": {"sessionId": self._session_id, "messageUuid": raw["uuid"]},
        }


def checked_title(title: str) -> str:
    """Return a title without spaces at its ends.

    Raises:
        SessionArgumentError: nothing is left of it.
    """
    if stripped := title.strip():
        return stripped
    raise SessionArgumentError("title is empty; a session keeps a title once it has one", argument="title")


def checked_tag(tag: str | None) -> str:
    """Return a tag as it is stored: without invisible characters and spaces at its ends, and empty for None.

    Raises:
        SessionArgumentError: nothing is left of it.
    """
    if tag is None:
        return ""
    if cleaned := _without_invisible(tag).strip():
        return cleaned
    raise SessionArgumentError("tag has no visible character; None takes a tag away", argument="tag")


def fork_title(original: str | None) -> str:
    """Return the title of a copy without a title of its own."""
    return f"{original or 'Forked session'} (fork)"


def timestamp() -> str:
    """Return the time as transcripts have it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _append(session_id: str, entry: dict[str, Any], directory: Directory) -> None:
    """Write one line to the first file of the session that is not empty."""
    data = _line(entry)
    with _typed(f"session {session_id} cannot be written"):
        for path, _ in candidates(f"{session_id}.jsonl", directory):
            if _appended(path, data):
                return
    find_session(session_id, directory)  # says what is missing
    raise SessionNotFound(f"session {session_id} came into being meanwhile; call again", session_id=session_id, retryable=True)


def _appended(path: Path, data: bytes) -> bool:
    """Write one line in a single call of the system. False if the file is not there or has nothing in it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | AT_ONCE)
    except OSError:
        if path.is_file():
            raise
        return False
    try:
        if not os.fstat(descriptor).st_size:
            return False
        # A CLI that was killed may have left half a line, with which ours would be lost.
        whole = data if _ends_whole(descriptor) else b"\n" + data
        if os.write(descriptor, whole) < len(whole):
            raise SessionFilesError(f"{path} has only part of the line: the disk may be full")
        return True
    finally:
        os.close(descriptor)


def _ends_whole(descriptor: int) -> bool:
    """Return whether a file ends with a whole line. A write under way is seen in parts, so half a line is looked at again."""
    for _ in range(_LOOKS):
        size = os.fstat(descriptor).st_size
        if read_at(descriptor, 1, size - 1) == b"\n":
            return True
        time.sleep(_BETWEEN_LOOKS)
    return False


def _write_new(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    """Write a file that appears under its name when it is complete."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(_line(entry) for entry in entries)
        draft.rename(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode("ascii") + b"\n"


def _still_there(file: BufferedReader, entry: EntryPlace) -> dict[str, Any]:
    raw = read_again(file, entry)
    if raw is None:
        raise SessionFilesError("its file was written anew meanwhile; call again", retryable=True)
    return raw


def _title_of(path: Path) -> str:
    ends = read_ends(path)
    return fork_title(title_from_ends(ends) if ends else None)


def _shown_parent(entry: EntryPlace, by_uuid: dict[str, EntryPlace], shown: dict[str, str | None]) -> str | None:
    """Return the nearest ancestor that is copied: progress entries are not. `shown` has the answers of those that were passed."""
    passed: dict[str, None] = {}
    above = parent_of(entry, by_uuid)
    while above is not None and above.type == "progress" and above.uuid not in passed and above.uuid not in shown:
        passed[above.uuid] = None
        above = parent_of(above, by_uuid)
    found = None if above is None else shown.get(above.uuid) if above.type == "progress" else above.uuid
    shown.update(dict.fromkeys(passed, found))
    return found


def _without_invisible(text: str) -> str:
    for _ in range(_MAX_PASSES):  # what is removed may join letters that have a compatible form together
        before = text
        text = "".join(letter for letter in unicodedata.normalize("NFKC", text) if unicodedata.category(letter) not in _INVISIBLE)
        if text == before:
            break
    return text


def _remove_tree(path: Path) -> None:
    """Remove a directory with all in it. Of a link only the link, and nothing where there is nothing."""
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


@contextmanager
def _typed(what: str) -> Iterator[None]:
    """Turn an error of the system into one of this library."""
    try:
        yield
    except (SessionFilesError, SessionNotFound):
        raise
    except OSError as error:
        raise SessionFilesError(f"{what}: {error.strerror or error}", errno=error.errno) from error


_MAX_BYTES: Final = 64 * 2**10
_STATE, _STARTED = 0, 19  # the third and the 22nd field of /proc/<pid>/stat


def process_of(session_id: str, configuration: Path, *, proc: str = "/proc") -> int | None:
    """Return the id of the process that runs a session, or None.

    A process that ended without tidying up does not count, nor one that has its number by now. A CLI on another machine or in another
    container is not seen, nor one that is too old to keep the register.
    """
    with suppress(OSError), os.scandir(configuration / "sessions") as entries:
        for entry in entries:
            if entry.name.endswith(".json"):
                noted = _read(Path(entry.path))
                pid = noted.get("pid")
                if noted.get("sessionId") == session_id and type(pid) is int and _is_alive(pid, noted.get("procStart"), proc):
                    return pid
    return None


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, SessionFilesError), open_regular(path) as file:
        noted = parse(file.read(_MAX_BYTES))
        return noted if isinstance(noted, dict) else {}
    return {}


def _is_alive(pid: int, started: object, proc: str) -> bool:
    """Tell whether the process runs that had this number when it was noted."""
    if not 0 < pid < 2**31:
        return False
    if os.name == "nt":
        return is_running(pid) is True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it runs, and belongs to another user
    try:
        # the name of the program is in parentheses and may have any characters; the first field behind it is the third
        fields = Path(f"{proc}/{pid}/stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return True  # a system without /proc
    return fields[_STATE] not in "ZX" and started in (None, fields[_STARTED])
