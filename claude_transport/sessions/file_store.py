"""`FileSessionStore`: transcripts as files of JSON lines in a directory, which several machines may share."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeVar
from urllib.parse import quote, unquote

import anyio.to_thread
import msgspec

from claude_transport.errors import CLIConnectionError, ConfigurationError, SessionFilesError, UsageError
from claude_transport.launch.session_store import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from claude_transport.loggers import logger_for
from claude_transport.platform.locks import try_lock
from claude_transport.platform.winapi import make_private
from claude_transport.sessions.store_entries import (
    LONGEST_CLAIM,
    decode_entries,
    decode_summary,
    encode_entry,
    encode_summary,
    uuid_of,
)
from claude_transport.sessions.store_keys import checked_key, checked_name, shown_place
from claude_transport.sessions.summaries import fold_session_summary

logger: logging.Logger = logger_for(__name__)

_LINES: Final = ".jsonl"
_OWN: Final = (_LINES, ".summary", ".new", ".claim", ".lock")
"""Endings of the store's own files. A session whose id has such an ending gets another name for its folder."""

_LONGEST_NAME: Final = 240
"""Bytes of a file's name; file systems allow 255, and the name of a file while it is written is a little longer."""

_DEVICES: Final = frozenset({"CON", "PRN", "AUX", "NUL", *(kind + digit for kind in ("COM", "LPT") for digit in "0123456789")})
"""Names that are devices on Windows, whatever follows a dot. A store may be shared, so they are written differently everywhere."""

_CAPITALS: Final = re.compile("%..|[A-Z]")
"""In a quoted name: what is quoted, and the capitals. Some file systems take `A` and `a` for one name."""

_REMEMBERED: Final = 64
"""Transcripts whose uuids are kept in memory. Those of another one are read from its file again."""

_PATIENCE: Final = 5.0
"""Seconds that a call waits for another process to finish its write. Then it fails, and the mirror tries again."""

_BETWEEN_TRIES: Final = 0.01
"""Seconds between two looks at a lock."""

_GENERATION_BYTES: Final = 16
"""Bytes in the file of a lock."""

_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""A file that was deleted, or a link that leads nowhere or to itself."""

_T = TypeVar("_T")


class FileSessionStore(SessionStore):
    """Keeps each transcript in a file of JSON lines below the directory `path`, which is made with mode 0700 when it is missing.

    Several processes may use the directory at once, and several machines where its file system has working locks. A write that a crash has
    cut is repaired by the next one. `<path>/<project>/<session>.jsonl` is a main transcript; `<path>/<project>/<session>/` has the rest.
    What is no file, such as a pipe, is in no list.

    Its methods raise `SessionFilesError` when a file cannot be used, and `CLIConnectionError` when another process locks it for longer than
    5 seconds. `UsageError` is for a part of a key that takes more than 240 bytes as a file name.

    Raises:
        ConfigurationError: `path` is no path.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if not name or not isinstance(name, str) or "\0" in name:
            raise ConfigurationError(f"path must name a directory, not {path!r}", option="path")
        self._root = Path(os.path.abspath(name))  # noqa: PTH100 - a later change of the working directory must not matter
        self._known: OrderedDict[Path, _Known] = OrderedDict()
        self._guard = threading.Lock()  # of `_known`, which each call uses in a thread

    def __repr__(self) -> str:
        return f"FileSessionStore({str(self._root)!r})"

    async def _run(self, work: Callable[[], _T], project: str | None, session: str | None = None) -> _T:
        def typed() -> _T:
            try:
                return work()
            except SessionFilesError:
                raise
            except OSError as exc:
                raise SessionFilesError(f"{self._root}: {shown_place(project, session)}: {exc}", errno=exc.errno) from exc

        # a cancelled caller leaves the thread, which ends by itself: it waits for a lock for `_PATIENCE` seconds at most
        return await anyio.to_thread.run_sync(typed, abandon_on_cancel=True)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add `entries` to the end of a transcript. An entry whose `uuid` the transcript has already is left out."""
        project, session, _ = checked_key(key)
        rows = [(uuid_of(entry), encode_entry(entry) + b"\n") for entry in entries]
        if rows:
            await self._run(functools.partial(self._append, key, entries, rows), project, session)

    def _append(self, key: SessionKey, entries: Sequence[SessionStoreEntry], rows: Sequence[tuple[str | None, bytes]]) -> None:
        project, session, subpath = checked_key(key)
        path = self._path(project, session, subpath)
        _make_folder(path.parent)
        with self._locked(project, session) as lock:
            with _opened(path, "ab") as file:
                known = self._remember(path, file, lock)
                if file.tell() > known.size:  # the end of a write that was cut
                    file.truncate(known.size)
                new, lines = [], []
                for entry, (uuid, line) in zip(entries, rows, strict=True):
                    if uuid is None or uuid not in known.uuids:
                        known.uuids.update(() if uuid is None else (uuid,))
                        new.append(entry)
                        lines.append(line)
                start = known.size
                known.size = -1  # until the write is known to be whole
                data = b"".join(lines)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                known.size = start + len(data)
            if subpath is None:
                try:
                    self._summarise(path, key, new, known, start=start)
                except OSError as exc:  # the next append makes it good, and lists read the transcript
                    logger.info("a session is stored, and its summary is not: %s", exc)

    def _remember(self, path: Path, file: BinaryIO, lock: _Lock) -> _Known:
        """Return what is in a transcript, which is open as `file`. What was known is of use only while the file is the same one."""
        with self._guard:
            if not file.tell():
                before, now = lock.generation, lock.begin_generation()
                for other in self._known.values():  # those of this session, of which this process has seen the latest
                    other.generation = now if before and other.generation == before else other.generation
            identity = os.fstat(file.fileno()).st_ino
            known = self._known.pop(path, None)
            if known is None or known.size < 0 or (known.generation, known.identity) != (lock.generation, identity):
                known = _Known(lock.generation, identity)
            self._known[path] = known
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        known.catch_up(path, file.tell())
        return known

    def _summarise(self, path: Path, key: SessionKey, new: Sequence[SessionStoreEntry], known: _Known, *, start: int) -> None:
        """Fold what was added into the summary; or everything that it has missed, after a crash between the two writes."""
        place, identity = self._summary(path), [known.generation, known.identity]
        before = _read_summary(place)
        if before is None or before["identity"] != identity or before["size"] > start:  # it is damaged, or of a file that was deleted
            before = {"size": 0, "data": {}}
        if before["size"] != start:
            new = list(decode_entries(_whole_lines(path, start=before["size"])))
        data = fold_session_summary({"session_id": key["session_id"], "mtime": 0, "data": before["data"]}, key, new)["data"]
        draft = place.with_name(place.name + ".new")
        with _opened(draft, "wb") as file:
            file.write(encode_summary({"size": known.size, "mtime": _mtime(path), "identity": identity, "data": data}))
        draft.replace(place)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript; None for one that was never written. Half a line at its end is left out."""
        project, session, subpath = checked_key(key)
        path = self._path(project, session, subpath)

        def work() -> list[SessionStoreEntry] | None:
            try:
                return list(decode_entries(_whole_lines(path)))
            except (FileNotFoundError, NotADirectoryError):
                return None

        return await self._run(work, project, session) or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the sessions of a project that have a main transcript."""
        folder = self._folder(project_key)

        def work() -> list[SessionStoreListEntry]:
            return [{"session_id": session, "mtime": mtime} for session, _, mtime in _transcripts(folder)]

        return await self._run(work, project_key)

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """List the summaries of all sessions of a project. A missing or damaged summary is made again from the transcript."""
        folder = self._folder(project_key)

        def work() -> list[SessionSummaryEntry]:
            found = (self._listed_summary(project_key, session, path, mtime) for session, path, mtime in _transcripts(folder))
            return [each for each in found if each is not None]

        return await self._run(work, project_key)

    def _listed_summary(self, project: str, session: str, path: Path, mtime: int) -> SessionSummaryEntry | None:
        kept = _read_summary(self._summary(path))
        if kept is not None:
            return {"session_id": session, "mtime": kept["mtime"], "data": kept["data"]}
        try:
            entries = list(decode_entries(_whole_lines(path)))
        except OSError as exc:  # it was deleted meanwhile, or its disk is damaged; the others can be shown
            logger.info("a session is left out of a list: %s", exc)
            return None
        return {**fold_session_summary(None, {"project_key": project, "session_id": session}, entries), "mtime": mtime}

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; a main transcript with its subkeys and its summary."""
        project, session, subpath = checked_key(key)
        await self._run(functools.partial(self._delete, project, session, subpath), project, session)

    def _delete(self, project: str, session: str, subpath: str | None) -> None:
        path = self._path(project, session, subpath)
        if not self._folder(project).is_dir():
            return
        with self._locked(project, session) as lock:
            lock.begin_generation()  # so no process takes the next file of this name for the one that it knows
            path.unlink(missing_ok=True)
            if subpath is None:
                self._summary(path).unlink(missing_ok=True)
                for _, part in _named(path.with_suffix("")):
                    part.unlink(missing_ok=True)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the subpaths of a session."""
        project, session, _ = checked_key(key)
        folder = self._path(project, session, None).with_suffix("")
        return await self._run(lambda: sorted(subpath for subpath, _, _ in _transcripts(folder)), project, session)

    async def claim(self, key: SessionListSubkeysKey, *, owner: str, seconds: float) -> str | None:
        """Take a session for `owner`, or keep it, for `seconds`: a day at most. Return the owner that has it now."""
        project, session, _ = checked_key(key)

        def work() -> str | None:
            place = self._claim_file(project, session)
            _make_folder(place.parent)
            with self._locked(project, session):
                now = time.time()
                held = _read_claim(place)
                if held is not None and held[0] != owner and now < held[1] <= now + LONGEST_CLAIM:
                    return held[0]
                with _opened(place, "wb") as file:
                    file.write(msgspec.json.encode({"owner": owner, "until": now + min(seconds, LONGEST_CLAIM)}))
                return owner

        return await self._run(work, project, session)

    async def release(self, key: SessionListSubkeysKey, *, owner: str) -> None:
        """Give a session back. Does nothing when `owner` does not have it."""
        project, session, _ = checked_key(key)

        def work() -> None:
            place = self._claim_file(project, session)
            if not place.exists():
                return
            with self._locked(project, session):
                held = _read_claim(place)
                if held is not None and held[0] == owner:
                    place.unlink(missing_ok=True)

        await self._run(work, project, session)

    async def find_project(self, session_id: str) -> str | None:
        """Return the project key under which the session was last written; None when there is none."""
        name = _written(checked_name(session_id, "session_id"), closely=True) + _LINES

        def work() -> str | None:
            folders = list(self._root.iterdir()) if self._root.is_dir() else []
            found = [
                (mtime, project)
                for folder in folders
                if (project := _read(folder.name)) is not None and (mtime := _mtime(folder / name)) is not None
            ]
            return max(found)[1] if found else None

        return await self._run(work, None, session_id)

    def _folder(self, project: str) -> Path:
        return self._root / _written(checked_name(project, "project_key"))

    def _path(self, project: str, session: str, subpath: str | None) -> Path:
        folder = self._folder(project)
        if subpath is None:
            return folder / (_written(session, closely=True) + _LINES)
        return folder / _written(session, closely=True) / (_written(subpath, closely=True) + _LINES)

    def _summary(self, path: Path) -> Path:
        return path.with_suffix(".summary")

    def _claim_file(self, project: str, session: str) -> Path:
        return self._path(project, session, None).with_suffix(".claim")

    @contextlib.contextmanager
    def _locked(self, project: str, session: str) -> Iterator[_Lock]:
        """Hold the lock of one session. It ends with the process, however that ends."""
        with _opened(self._path(project, session, None).with_suffix(".lock"), "r+b") as file:
            give_up = time.monotonic() + _PATIENCE
            while not try_lock(file.fileno()):
                if time.monotonic() >= give_up:
                    what = f"{file.name} is locked by another process for longer than {_PATIENCE:g} s"
                    raise CLIConnectionError(what, code="session_store.failed")
                time.sleep(_BETWEEN_TRIES)
            yield _Lock(file)  # closing the file ends the lock


class _Lock:
    """The lock of a session, while this process has it. Its file names a generation of transcripts.

    A new one begins whenever a transcript of the session is begun or deleted. The number of a file cannot tell the two apart: most file
    systems give that of a deleted file to the next one.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.generation = file.read(_GENERATION_BYTES).decode("ascii", "replace")

    def begin_generation(self) -> str:
        """Begin a new generation, and return it."""
        self.generation = secrets.token_hex(_GENERATION_BYTES // 2)
        self._file.seek(0)
        self._file.write(self.generation.encode())
        self._file.truncate()
        self._file.flush()
        return self.generation


class _Known:
    """What is known of a transcript's file: its identity, its size up to the last whole line, and the uuids in it."""

    def __init__(self, generation: str, identity: int) -> None:
        self.generation = generation
        self.identity = identity
        self.size = 0
        self.uuids: set[str] = set()

    def catch_up(self, path: Path, size: int) -> None:
        """Read what other processes have added to the file, which has `size` bytes."""
        if size < self.size:  # it was cut
            self.size = 0
            self.uuids.clear()
        for line in _whole_lines(path, start=self.size):
            self.size += len(line) + 1
            self.uuids.update(uuid for entry in decode_entries([line]) if (uuid := uuid_of(entry)))


def _whole_lines(path: Path, *, start: int = 0) -> Iterator[bytes]:
    """Yield the lines from the byte `start` on, without their newlines. What follows the last newline is half a line."""
    with _opened(path, "rb") as file:
        file.seek(start)
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def _read_summary(place: Path) -> dict[str, Any] | None:
    """Return what is kept of a session for lists; None when it is missing or damaged."""
    try:
        with _opened(place, "rb") as file:
            return decode_summary(file.read())
    except OSError:
        return None


def _read_claim(place: Path) -> tuple[str, float] | None:
    """Return the owner of a claim and its end; None when there is none, for example after a crash."""
    try:
        with _opened(place, "rb") as file:
            held = msgspec.json.decode(file.read())
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    owner, until = (held.get("owner"), held.get("until")) if isinstance(held, dict) else (None, None)
    return (owner, until) if isinstance(owner, str) and isinstance(until, int | float) else None


def _written(name: str, *, closely: bool = False) -> str:
    """Return a part of a key as the name of a file. Names that mean something to a file system are written differently.

    With `closely`, it is also none of the store's own names, and differs from others in more than capitals. Project keys are full of
    capitals and long, so they are not written so: they name folders with nothing else beside them.
    """
    written = quote(name, safe="")
    if closely:
        written = _CAPITALS.sub(lambda found: found[0] if len(found[0]) > 1 else f"%{ord(found[0]):02X}", written)
        if written.endswith(_OWN):
            written = "%2E".join(written.rsplit(".", 1))
    if written.startswith(".") or written.partition(".")[0].upper() in _DEVICES:
        written = f"%{ord(written[0]):02X}{written[1:]}"
    if written.endswith("."):  # Windows drops it
        written = written[:-1] + "%2E"
    if len(written) > _LONGEST_NAME:
        raise UsageError(f"a part of a key takes {len(written)} bytes as a file name, and {_LONGEST_NAME} are possible: {name[:60]!r}…")
    return written


def _read(written: str, *, closely: bool = False) -> str | None:
    """Return the part of a key that was written as a file name; None for the name of another program's file."""
    try:
        name = unquote(written)
        return name if _written(name, closely=closely) == written else None
    except (UsageError, UnicodeEncodeError):
        return None


def _named(folder: Path) -> list[tuple[str, Path]]:
    """Return the names of the transcripts in a folder, and their paths, whatever is there."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    names = [(_read(path.name.removesuffix(_LINES), closely=True), path) for path in paths if path.name.endswith(_LINES)]
    return [(name, path) for name, path in names if name is not None]


def _transcripts(folder: Path) -> list[tuple[str, Path, int]]:
    """Return the names of the transcripts in a folder that are files, with their paths and the times of their last change."""
    return [(name, path, mtime) for name, path in _named(folder) if (mtime := _mtime(path)) is not None]


def _mtime(path: Path) -> int | None:
    """Return when a file was changed, in milliseconds since 1970. None for one that was deleted, and for what is no file."""
    try:
        found = path.stat()
    except OSError as exc:
        if exc.errno in _NOT_THERE:
            return None
        raise
    return found.st_mtime_ns // 1_000_000 if stat.S_ISREG(found.st_mode) else None


def _make_folder(folder: Path) -> None:
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            with contextlib.suppress(FileExistsError):  # another process was faster
                each.mkdir(mode=0o700)
                make_private(each)


def _opened(path: Path, mode: Literal["rb", "r+b", "ab", "wb"]) -> BinaryIO:
    """Open a file; a mode that writes makes it, for its user only. What is no file is refused: a pipe would never end."""
    more = getattr(os, "O_NONBLOCK", 0) | (os.O_CREAT if mode == "r+b" else 0)
    file: BinaryIO = open(path, mode, opener=lambda name, flags: os.open(name, flags | more, 0o600))  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise SessionFilesError(f"{path} is not a file; remove it")
    return file
