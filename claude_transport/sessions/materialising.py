"""A session out of a store, as the files that the CLI resumes from, in a private place that goes away.

`find_session` asks the store. `PrivatePlace` is a configuration directory for one process: the user's own, except for the transcripts.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import logging
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast

import anyio
import msgspec

from claude_transport.errors import CLIConnectionError, ConfigurationError, without_secrets
from claude_transport.launch import windows
from claude_transport.launch.session_store import SessionKey, SessionStore, SessionStoreEntry, SharedSessionStore, has_method
from claude_transport.loggers import logger_for
from claude_transport.platform.locks import try_lock
from claude_transport.platform.winapi import make_private
from claude_transport.sessions.places import is_session_id, project_key_for_directory
from claude_transport.sessions.store_entries import encode_entry
from claude_transport.sessions.store_keys import relative_transcript
from claude_transport.text.printable import printable, redacted_head

logger: logging.Logger = logger_for(__name__)

LOAD_TIMEOUT: Final = 60.0
"""Seconds for each question to a store before the start of a session."""

_PREFIX: Final = "claude-transport-session-"
_LOCK: Final = "in-use"
_METADATA: Final = "agent_metadata"

_NO_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EINVAL})
"""What systems say of a name that no file can have, or that another file has."""

_CONFIG_DIR: Final = "CLAUDE_CONFIG_DIR"
_WITH_ENVIRONMENT: Final = ("settings.json", "cowork_settings.json", ".claude.json")
"""Files of the user whose `env` the CLI takes over. `CLAUDE_CONFIG_DIR` in it would lead the CLI away from the session (2.1.330, real)."""

_T = TypeVar("_T")


class FoundSession(msgspec.Struct, frozen=True):
    """A session of a store: its id, the project that the store has it under, and its transcripts by subpath (None: the main one)."""

    session_id: str
    project_key: str
    transcripts: Mapping[str | None, list[SessionStoreEntry]]


async def find_session(
    store: SessionStore, *, resume: str | None, cwd: str | os.PathLike[str] | None, timeout: float = LOAD_TIMEOUT
) -> FoundSession | None:
    """Load the session `resume`, or with None the latest one of the directory `cwd`. Return None when the store does not have it.

    A session that the store has under another directory is found, too, where the store has `find_project`.

    Raises:
        CLIConnectionError: the store failed, or took longer than `timeout` seconds for one answer.
        ConfigurationError: the store cannot list sessions, which a continued conversation needs.
    """
    key = await locate_session(store, resume=resume, cwd=cwd, timeout=timeout)
    return None if key is None else await load_session(store, key, timeout=timeout)


async def locate_session(
    store: SessionStore, *, resume: str | None, cwd: str | os.PathLike[str] | None, timeout: float = LOAD_TIMEOUT
) -> SessionKey | None:
    """Return the key of the session that `find_session()` loads, and raise what that raises."""
    own = project_key_for_directory(cwd)
    if resume is None:
        return await _latest(store, own, timeout=timeout)
    if not is_session_id(resume):
        return None  # a title, which only the CLI knows
    key: SessionKey = {"project_key": own, "session_id": resume}
    if await asked(store.load(key), timeout=timeout):
        return key
    if has_method(store, "find_project"):
        project = await asked(cast("SharedSessionStore", store).find_project(resume), timeout=timeout)
        if project is not None:
            return {"project_key": project, "session_id": resume}
    return None


async def _latest(store: SessionStore, project: str, *, timeout: float) -> SessionKey | None:
    if not has_method(store, "list_sessions"):
        raise ConfigurationError(
            f"continue_conversation: {type(store).__name__} cannot list its sessions; name one with resume", option="continue_conversation"
        )
    listed = await asked(store.list_sessions(project), timeout=timeout)
    for each in sorted(listed, key=lambda each: each["mtime"], reverse=True):
        key: SessionKey = {"project_key": project, "session_id": each["session_id"]}
        if not is_session_id(key["session_id"]):
            continue
        entries = await asked(store.load(key), timeout=timeout)
        if entries and not (isinstance(entries[0], dict) and entries[0].get("isSidechain") is True):  # not that of a subagent
            return key
    return None


async def load_session(store: SessionStore, key: SessionKey, *, timeout: float = LOAD_TIMEOUT) -> FoundSession | None:
    """Load a session with its subagents. None when the store does not have it (any more).

    Raises:
        CLIConnectionError: the store failed, or took longer than `timeout` seconds for one answer.
    """
    project, session = key["project_key"], key["session_id"]
    entries = await asked(store.load(key), timeout=timeout)
    if not entries:
        return None
    transcripts: dict[str | None, list[SessionStoreEntry]] = {None: entries}
    if has_method(store, "list_subkeys"):
        for subpath in await asked(store.list_subkeys({"project_key": project, "session_id": session}), timeout=timeout):
            if not isinstance(subpath, str) or relative_transcript(session, subpath) is None:
                logger.warning("a transcript with the subpath %s is left out: it would be outside of the session", printable(str(subpath)))
                continue
            if part := await asked(store.load({**key, "subpath": subpath}), timeout=timeout):
                transcripts[subpath] = part
    return FoundSession(session, project, transcripts)


async def asked(answer: Awaitable[_T], *, timeout: float) -> _T:
    """Return the answer of a store.

    Raises:
        CLIConnectionError: the store failed, or took longer than `timeout` seconds.
    """
    try:
        with anyio.move_on_after(timeout):
            return await answer
    except Exception as exc:
        raise CLIConnectionError(f"the session store failed: {said_by(exc)}", code="session_store.failed") from exc
    raise CLIConnectionError(f"the session store did not answer in {timeout:g} s", code="session_store.failed")


def said_by(exc: BaseException) -> str:
    """Return what a store's exception says, on one short line."""
    return printable(redacted_head(f"{type(exc).__name__}: {exc}", without_secrets, at_most=2000), at_most=500)


class PrivatePlace:
    """A configuration directory for one process, below the temporary directory, with mode 0700.

    `path` is the directory, and `CLAUDE_CONFIG_DIR` names it. It is removed when each of the two holders, `"process"` and `"mirror"`, has
    let go; at the exit of the interpreter; or by the next host, when this one was killed.
    """

    def __init__(self, *, cwd: str | os.PathLike[str] | None, found: FoundSession, configuration: Mapping[str, Path]) -> None:
        """Write the files of `found`, and link the files of the user's `configuration`, by name.

        Raises `OSError` when they cannot be written; nothing is left then.
        """
        remove_abandoned()
        self.path: Path = Path(tempfile.mkdtemp(prefix=_PREFIX))  # mode 0700
        self._holders = {"process", "mirror"}
        try:
            make_private(self.path)
            self._lock: IO[bytes] = _locked(self.path)
        except BaseException:
            _remove(str(self.path), os.getpid(), None)
            raise
        self._remove = weakref.finalize(self, _remove, str(self.path), os.getpid(), self._lock)
        try:
            _write(self.path / "projects" / project_key_for_directory(cwd), found)
            for name, target in configuration.items():
                kept = _without_place(target) if name in _WITH_ENVIRONMENT else None
                if kept is None:
                    _link(self.path / name, target)
                else:
                    _write_private(self.path / name, [kept])
        except BaseException:
            self._remove()
            raise

    def let_go(self, holder: str) -> None:
        """Note that the process is gone, or that the mirror needs the files no more."""
        self._holders.discard(holder)
        if not self._holders:
            self._remove()

    def remove(self) -> None:
        """Delete the place now. For a start that failed."""
        self._remove()


def configuration_of(env: Mapping[str, str], *, is_isolated: bool) -> dict[str, Path]:
    """Return what a process with the environment `env` has in its configuration directory, by name, without its transcripts.

    The files are linked, not copied: a login that is renewed stays one login, and no secret is written a second time. A file whose `env`
    would lead the CLI elsewhere is the exception.
    """
    if is_isolated:
        return {}
    home, chosen = windows.home_folder(env, platform=sys.platform), env.get("CLAUDE_CONFIG_DIR")
    folder = Path(chosen) if chosen else Path(home, ".claude") if home else None
    found: dict[str, Path] = {}
    if folder is not None:
        with contextlib.suppress(OSError):  # there is none, or it belongs to another user
            found = {path.name: path.absolute() for path in folder.iterdir() if path.name != "projects"}
    if not chosen and home and os.path.exists(own := Path(home, ".claude.json")):  # noqa: PTH110 - it is False for what cannot be
        found[own.name] = own.absolute()
    return found


def settings_without_place(text: bytes) -> bytes | None:
    """Return the JSON object `text` without `env.CLAUDE_CONFIG_DIR`. None when that is not in it, or the text is no JSON object."""
    try:
        document = msgspec.json.decode(text.removeprefix(codecs.BOM_UTF8), type=dict[str, msgspec.Raw])
        variables = msgspec.json.decode(document.get("env", b"{}"), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    kept = {name: value for name, value in variables.items() if (name.upper() if os.name == "nt" else name) != _CONFIG_DIR}
    return None if len(kept) == len(variables) else msgspec.json.encode({**document, "env": kept})


def _without_place(path: Path) -> bytes | None:
    try:
        return settings_without_place(path.read_bytes()) if path.is_file() else None
    except OSError:
        return None  # the CLI cannot read it either


def _link(place: Path, target: Path) -> None:
    try:
        place.symlink_to(target)
    except OSError as exc:
        if exc.errno not in (errno.EPERM, errno.EACCES, errno.ENOTSUP, None) and os.name != "nt":
            raise
        if target.is_file():  # a system that lets only some users make links
            shutil.copyfile(target, place)
            place.chmod(0o600)


def _write(folder: Path, found: FoundSession) -> None:
    for subpath, entries in found.transcripts.items():
        relative = relative_transcript(found.session_id, subpath)
        if relative is None:
            continue
        try:
            _write_transcript(folder / relative, entries)
        except OSError as exc:
            if subpath is None or exc.errno not in _NO_NAME:
                raise
            logger.warning("a transcript with the subpath %s is left out: %s", printable(subpath, at_most=200), exc.strerror)


def _write_transcript(path: Path, entries: Sequence[SessionStoreEntry]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    metadata = [entry for entry in entries if _is_metadata(entry)]
    _write_lines(path, [entry for entry in entries if not _is_metadata(entry)])
    if metadata:  # the CLI keeps it beside the transcript; the latest counts
        last: dict[str, Any] = {name: value for name, value in metadata[-1].items() if name != "type"}
        _write_private(path.with_name(path.name.removesuffix(".jsonl") + ".meta.json"), [encode_entry(last)])


def _is_metadata(entry: object) -> bool:
    return isinstance(entry, dict) and entry.get("type") == _METADATA


def _write_lines(path: Path, entries: Iterable[object]) -> None:
    _write_private(path, (encode_entry(entry) + b"\n" for entry in entries))


def _write_private(path: Path, parts: Iterable[bytes]) -> None:
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.writelines(parts)


# What says that a place is in use: a lock on a file in it, which the system ends with the process that has it. On Windows it is that the
# file is open: no open file can be renamed or deleted there.


def _locked(folder: Path) -> IO[bytes]:
    if os.name == "nt":
        return (folder / _LOCK).open("xb")
    draft = folder / f"{_LOCK}.new"
    lock = draft.open("wb")
    try:
        try_lock(lock.fileno())
        draft.rename(folder / _LOCK)  # from now on, others look whether it is locked
    except BaseException:
        lock.close()
        raise
    return lock


def remove_abandoned() -> None:
    """Delete the private places of hosts that were killed."""
    for folder in _own_places():
        try:
            if os.name == "nt":
                (folder / _LOCK).unlink()
                shutil.rmtree(folder, ignore_errors=True)
                continue
            with (folder / _LOCK).open("rb+") as lock:
                if try_lock(lock.fileno()):
                    shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # it is in use, or just being made or removed


def _own_places() -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if not folder.is_symlink() and (os.name == "nt" or folder.stat().st_uid == os.getuid()):  # on Windows, each user has one
                    yield folder


def _remove(folder: str, owner: int, lock: IO[bytes] | None) -> None:
    if os.getpid() != owner:  # a fork of this process must not delete the files when it ends
        return
    if lock is not None:
        lock.close()  # before: Windows deletes no open file. Another host may delete the rest at the same time
    # links are deleted, and not what they lead to
    shutil.rmtree(folder, ignore_errors=True)
