"""`FileSessionStore`: transcripts as files of JSON lines in a directory, which several machines may share."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeVar
from urllib.parse import quote, unquote

import anyio.to_thread
import msgspec

from claude_transport.errors import CLIConnectionError, ConfigurationError, SessionFilesError, UsageError
from claude_transport.locks import try_lock
from claude_transport.session_store import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from claude_transport.sessions.store_entries import decode_entries, encode_entry, encode_summary, uuid_of
from claude_transport.sessions.store_keys import checked_key
from claude_transport.sessions.summaries import fold_session_summary
from claude_transport.winapi import make_private

logger: logging.Logger = logging.getLogger(__name__)

_LINES: Final = ".jsonl"
_LONGEST_NAME: Final = 240
"""Bytes of a file's name; file systems allow 255, and the name of a file while it is written is a little longer."""

_DEVICES: Final = frozenset({"CON", "PRN", "AUX", "NUL", *(kind + digit for kind in ("COM", "LPT") for digit in "0123456789")})
"""Names that are devices on Windows, whatever follows a dot. A store may be shared, so they are written differently everywhere."""

_REMEMBERED: Final = 64
"""Transcripts whose uuids are kept in memory. Those of another one are read from its file again."""

_PATIENCE: Final = 5.0
"""Seconds that a call waits for another process to finish its write. Then it fails, and the mirror tries again."""

_BETWEEN_TRIES: Final = 0.01
"""Seconds between two looks at a lock."""

_T = TypeVar("_T")


class FileSessionStore(SessionStore):
    """Keeps each transcript in a file of JSON lines below the directory `path`, which is made with mode 0700 when it is missing.

    Several processes may use the directory at once, and several machines where its file system has working locks. A write that a crash has
    cut is repaired by the next one. `<path>/<project>/<session>.jsonl` is a main transcript; `<path>/<project>/<session>/` has the rest.

    Its methods raise `SessionFilesError` when a file cannot be used, and `CLIConnectionError` when another process locks it for longer
    than 5 seconds.

    Raises:
        ConfigurationError: `path` is no path.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise ConfigurationError(f"path must name a directory, not {path!r}", option="path")
        self._root = Path(os.path.abspath(path))  # noqa: PTH100 - a later change of the working directory must not matter
        self._known: OrderedDict[Path, _Known] = OrderedDict()

    def __repr__(self) -> str:
        return f"FileSessionStore({str(self._root)!r})"

    async def _run(self, work: Callable[[], _T]) -> _T:
        def typed() -> _T:
            try:
                return work()
            except OSError as exc:
                raise SessionFilesError(f"{self._root}: {exc}", errno=exc.errno) from exc

        # a cancelled caller leaves the thread, which ends by itself: it waits for a lock for `_PATIENCE` seconds at most
        return await anyio.to_thread.run_sync(typed, abandon_on_cancel=True)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add `entries` to the end of a transcript. An entry whose `uuid` the transcript has already is left out."""
        checked_key(key)
        rows = [(uuid_of(entry), encode_entry(entry) + b"\n") for entry in entries]
        if rows:
            await self._run(functools.partial(self._append, key, entries, rows))

    def _append(self, key: SessionKey, entries: Sequence[SessionStoreEntry], rows: Sequence[tuple[str | None, bytes]]) -> None:
        project, session, subpath = checked_key(key)
        path = self._path(project, session, subpath)
        _make_folder(path.parent)
        with self._locked(project, session):
            known = self._remember(path)
            with _opened(path, "ab") as file:
                known.catch_up(path)
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
                    self._summarise(path, key, new, start=start, end=known.size)
                except OSError as exc:  # the next append makes it good, and lists load a session whose summary is too old
                    logger.info("a session is stored, and its summary is not: %s", exc)

    def _remember(self, path: Path) -> _Known:
        known = self._known.pop(path, None)
        self._known[path] = known = known if known is not None and known.size >= 0 else _Known()
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return known

    def _summarise(self, path: Path, key: SessionKey, new: Sequence[SessionStoreEntry], *, start: int, end: int) -> None:
        """Fold what was added into the summary; or everything that it has missed, after a crash between the two writes."""
        place = self._summary(path)
        before = _read_summary(place)
        if before is not None and before["size"] > start:  # of a file that was deleted
            before = None
        folded = 0 if before is None else before["size"]
        if folded != start:
            new = list(decode_entries(_whole_lines(path, start=folded)))
        prev: SessionSummaryEntry | None = None if before is None else {"session_id": key["session_id"], "mtime": 0, "data": before["data"]}
        data = fold_session_summary(prev, key, new)["data"]
        kept = encode_summary({"size": end, "mtime": _mtime(path), "data": data})
        draft = place.with_name(place.name + ".new")
        with _opened(draft, "wb") as file:
            file.write(kept)
        draft.replace(place)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript; None for one that was never written. Half a line at its end is left out."""
        path = self._path(*checked_key(key))

        def work() -> list[SessionStoreEntry] | None:
            try:
                return list(decode_entries(_whole_lines(path)))
            except FileNotFoundError:
                return None

        return await self._run(work) or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the sessions of a project that have a main transcript."""

        def work() -> list[SessionStoreListEntry]:
            found = [(path, _mtime(path)) for path in self._transcripts(project_key)]
            return [{"session_id": _read(path.name), "mtime": mtime} for path, mtime in found if mtime is not None]

        return await self._run(work)

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """List the summaries of all sessions of a project."""

        def work() -> list[SessionSummaryEntry]:
            found = [(path, _read_summary(self._summary(path))) for path in self._transcripts(project_key)]
            return [
                {"session_id": _read(path.name), "mtime": kept["mtime"], "data": kept["data"]} for path, kept in found if kept is not None
            ]

        return await self._run(work)

    def _transcripts(self, project: str) -> list[Path]:
        folder = self._root / _written(project)
        return [path for path in folder.iterdir() if path.name.endswith(_LINES)] if folder.is_dir() else []

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; a main transcript with its subkeys and its summary."""
        project, session, subpath = checked_key(key)
        await self._run(functools.partial(self._delete, project, session, subpath))

    def _delete(self, project: str, session: str, subpath: str | None) -> None:
        path = self._path(project, session, subpath)
        if not (self._root / _written(project)).is_dir():
            return
        with self._locked(project, session):
            self._known.clear()
            path.unlink(missing_ok=True)
            if subpath is None:
                self._summary(path).unlink(missing_ok=True)
                for part in self._parts(project, session):
                    part.unlink(missing_ok=True)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the subpaths of a session."""
        project, session, _ = checked_key(key)
        return await self._run(lambda: [_read(path.name) for path in self._parts(project, session)])

    def _parts(self, project: str, session: str) -> list[Path]:
        folder = self._root / _written(project) / _written(session)
        return sorted(path for path in folder.iterdir() if path.name.endswith(_LINES)) if folder.is_dir() else []

    async def claim(self, key: SessionListSubkeysKey, *, owner: str, seconds: float) -> str | None:
        """Take a session for `owner`, or keep it, for `seconds`. Return the owner that has it now."""
        project, session, _ = checked_key(key)

        def work() -> str | None:
            place = self._claim_file(project, session)
            _make_folder(place.parent)
            with self._locked(project, session):
                now = time.time()
                held = _read_object(place)
                if held is not None and held.get("owner") != owner and isinstance(held.get("until"), int | float) and held["until"] > now:
                    return str(held.get("owner"))
                with _opened(place, "wb") as file:
                    file.write(msgspec.json.encode({"owner": owner, "until": now + seconds}))
                return owner

        return await self._run(work)

    async def release(self, key: SessionListSubkeysKey, *, owner: str) -> None:
        """Give a session back. Does nothing when `owner` does not have it."""
        project, session, _ = checked_key(key)

        def work() -> None:
            place = self._claim_file(project, session)
            if not place.exists():
                return
            with self._locked(project, session):
                held = _read_object(place)
                if held is not None and held.get("owner") == owner:
                    place.unlink(missing_ok=True)

        await self._run(work)

    async def find_project(self, session_id: str) -> str | None:
        """Return the project key under which the session was last written; None when there is none."""
        name = _written(session_id) + _LINES

        def work() -> str | None:
            folders = list(self._root.iterdir()) if self._root.is_dir() else []
            found = [(mtime, folder.name) for folder in folders if (mtime := _mtime(folder / name)) is not None]
            return _read(max(found)[1]) if found else None

        return await self._run(work)

    def _path(self, project: str, session: str, subpath: str | None) -> Path:
        folder = self._root / _written(project)
        return folder / (_written(session) + _LINES) if subpath is None else folder / _written(session) / (_written(subpath) + _LINES)

    def _summary(self, path: Path) -> Path:
        return path.with_name(path.name.removesuffix(_LINES) + ".summary")

    def _claim_file(self, project: str, session: str) -> Path:
        return self._root / _written(project) / (_written(session) + ".claim")

    @contextlib.contextmanager
    def _locked(self, project: str, session: str) -> Iterator[None]:
        """Hold the lock of one session. It ends with the process, however that ends."""
        with _opened(self._root / _written(project) / (_written(session) + ".lock"), "ab") as file:
            give_up = time.monotonic() + _PATIENCE
            while not try_lock(file.fileno()):
                if time.monotonic() >= give_up:
                    what = f"{file.name} is locked by another process for longer than {_PATIENCE:g} s"
                    raise CLIConnectionError(what, code="session_store.failed")
                time.sleep(_BETWEEN_TRIES)
            yield  # closing the file ends the lock


class _Known:
    """What is known of a transcript's file: its size up to the last whole line, and the uuids in it."""

    def __init__(self) -> None:
        self.size = 0
        self.uuids: set[str] = set()

    def catch_up(self, path: Path) -> None:
        """Read what other processes have added."""
        if path.stat().st_size < self.size:  # it was deleted and begun again
            self.size = 0
            self.uuids.clear()
        for line in _whole_lines(path, start=self.size):
            self.size += len(line) + 1
            self.uuids.update(uuid for entry in decode_entries([line]) if (uuid := uuid_of(entry)))


def _whole_lines(path: Path, *, start: int = 0) -> Iterator[bytes]:
    """Yield the lines from the byte `start` on, without their newlines. What follows the last newline is half a line."""
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def _read_summary(place: Path) -> dict[str, Any] | None:
    kept = _read_object(place)
    whole = (
        kept is not None and isinstance(kept.get("size"), int) and isinstance(kept.get("mtime"), int) and isinstance(kept.get("data"), dict)
    )
    return kept if whole else None


def _read_object(place: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None when there is none, for example after a crash."""
    try:
        value = msgspec.json.decode(place.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def _written(name: str) -> str:
    """Return a part of a key as the name of a file. Names that mean something to a file system are written differently."""
    written = quote(name, safe="")
    if written.startswith(".") or written.partition(".")[0].upper() in _DEVICES:
        written = f"%{ord(written[0]):02X}{written[1:]}"
    if written.endswith("."):  # Windows drops it
        written = written[:-1] + "%2E"
    if len(written) > _LONGEST_NAME:
        raise UsageError(f"a part of a key takes {len(written)} bytes as a file name, and {_LONGEST_NAME} are possible: {name[:60]!r}…")
    return written


def _read(name: str) -> str:
    return unquote(name.removesuffix(_LINES))


def _mtime(path: Path) -> int | None:
    """Return when a file was changed, in milliseconds since 1970. None for one that was deleted."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except (FileNotFoundError, NotADirectoryError):
        return None


def _make_folder(folder: Path) -> None:
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            with contextlib.suppress(FileExistsError):  # another process was faster
                each.mkdir(mode=0o700)
                make_private(each)


def _opened(path: Path, mode: Literal["ab", "wb"]) -> BinaryIO:
    """Open a file for writing. When it is made, only its user can read it."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))
