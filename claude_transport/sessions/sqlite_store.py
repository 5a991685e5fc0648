"""`SQLiteSessionStore`: transcripts in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import anyio.to_thread

from claude_transport.errors import CLIConnectionError, ConfigurationError
from claude_transport.launch.session_store import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from claude_transport.platform.winapi import make_private
from claude_transport.sessions.store_entries import LONGEST_CLAIM, decode_entries, decode_summary, encode_entry, encode_summary, uuid_of
from claude_transport.sessions.store_keys import checked_key, checked_name, shown_place
from claude_transport.sessions.summaries import fold_session_summary

_PATIENCE: Final = 5.0
"""Seconds that a call waits for another process to finish its write. Then it fails, and the mirror tries again."""

_DAMAGE: Final = (OverflowError, MemoryError, UnicodeDecodeError)
"""What damaged numbers and texts of a database raise besides `sqlite3.Error`, also those that SQLite puts into its error messages."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    position INTEGER PRIMARY KEY, project TEXT NOT NULL, session TEXT NOT NULL, subpath TEXT NOT NULL, uuid TEXT, body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS entries_by_key ON entries (project, session, subpath, position);
CREATE UNIQUE INDEX IF NOT EXISTS entries_by_uuid ON entries (project, session, subpath, uuid) WHERE uuid IS NOT NULL;
CREATE TABLE IF NOT EXISTS sessions (
    project TEXT NOT NULL, session TEXT NOT NULL, mtime INTEGER NOT NULL, summary BLOB NOT NULL, PRIMARY KEY (project, session)
);
CREATE INDEX IF NOT EXISTS sessions_by_id ON sessions (session, mtime);
CREATE TABLE IF NOT EXISTS claims (
    project TEXT NOT NULL, session TEXT NOT NULL, owner TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (project, session)
);
"""

_T = TypeVar("_T")


class SQLiteSessionStore(SessionStore):
    """Keeps transcripts in the SQLite database `path`, which is made with mode 0600 when it is missing.

    Several processes of one machine may use the file at once. It must not be on a network file system: SQLite cannot lock it there.

    Its methods raise `CLIConnectionError` when the file cannot be used, or is locked by another process for longer than 5 seconds.

    Raises:
        ConfigurationError: `path` is no path of a file, such as `":memory:"`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if not name or not isinstance(name, str) or name.startswith(":") or "\0" in name:
            raise ConfigurationError(f"path must name a file, not {path!r}; InMemorySessionStore keeps nothing on the disk", option="path")
        self._path: str = os.path.abspath(name)  # noqa: PTH100 - a later change of the working directory must not matter

    def __repr__(self) -> str:
        return f"SQLiteSessionStore({self._path!r})"

    async def _run(
        self, work: Callable[[sqlite3.Connection], _T], project: str | None, session: str | None = None, *, begin: str = "BEGIN IMMEDIATE"
    ) -> _T:
        def named() -> _T:
            try:
                return _in_transaction(self._path, work, begin)
            except (sqlite3.Error, OSError, *_DAMAGE) as exc:
                what = f"{self._path}: {shown_place(project, session)}: {exc}"
                raise CLIConnectionError(what, code="session_store.failed") from exc

        # a cancelled caller leaves the thread, which ends by itself: SQLite waits for `_PATIENCE` seconds at most
        return await anyio.to_thread.run_sync(named, abandon_on_cancel=True)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add `entries` to the end of a transcript, all or none. An entry whose `uuid` the transcript has already is left out."""
        project, session, _ = checked_key(key)
        rows = [(uuid_of(entry), encode_entry(entry)) for entry in entries]
        if rows:
            await self._run(functools.partial(_append, key=key, entries=entries, rows=rows), project, session)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript; None for one that was never written."""
        project, session, subpath = checked_key(key)
        # decoding a long one takes long, too, so it is done in the thread
        return (
            await self._run(lambda database: list(_entries(database, project, session, subpath)), project, session, begin="BEGIN") or None
        )

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the sessions of a project that have a main transcript."""
        listed = await self._run(functools.partial(_listed, checked_name(project_key, "project_key")), project_key, begin="BEGIN")
        return [{"session_id": session, "mtime": mtime} for session, mtime, _ in listed]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """List the summaries of all sessions of a project. One that is damaged is made from its transcript."""
        project = checked_name(project_key, "project_key")

        def work(database: sqlite3.Connection) -> list[SessionSummaryEntry]:
            listed = _listed(project, database)
            return [
                {"session_id": session, "mtime": mtime, "data": _folded(database, project, session) if data is None else data}
                for session, mtime, data in listed
            ]

        return await self._run(work, project, begin="BEGIN")

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; a main transcript with its subkeys and its summary."""
        project, session, subpath = checked_key(key)

        def work(database: sqlite3.Connection) -> None:
            if subpath is not None:
                database.execute("DELETE FROM entries WHERE project = ? AND session = ? AND subpath = ?", (project, session, subpath))
                return
            database.execute("DELETE FROM entries WHERE project = ? AND session = ?", (project, session))
            database.execute("DELETE FROM sessions WHERE project = ? AND session = ?", (project, session))

        await self._run(work, project, session)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the subpaths of a session."""
        project, session, _ = checked_key(key)
        query = "SELECT DISTINCT subpath FROM entries WHERE project = ? AND session = ? AND subpath != ''"

        def work(database: sqlite3.Connection) -> list[str]:
            found = (_text(row[0]) for row in database.execute(query, (project, session)))
            return [subpath for subpath in found if subpath is not None]

        return await self._run(work, project, session, begin="BEGIN")

    async def claim(self, key: SessionListSubkeysKey, *, owner: str, seconds: float) -> str | None:
        """Take a session for `owner`, or keep it, for `seconds`: a day at most. Return the owner that has it now."""
        project, session, _ = checked_key(key)

        def work(database: sqlite3.Connection) -> str | None:
            now = time.time()
            database.execute(
                "INSERT INTO claims VALUES (?, ?, ?, ?) ON CONFLICT (project, session) DO UPDATE SET owner = excluded.owner,"
                " until = excluded.until WHERE claims.owner = excluded.owner OR claims.until NOT BETWEEN ? AND ?",
                (project, session, owner, now + min(seconds, LONGEST_CLAIM), now, now + LONGEST_CLAIM),
            )
            row = database.execute("SELECT owner FROM claims WHERE project = ? AND session = ?", (project, session)).fetchone()
            return None if row is None else _text(row[0]) or ""

        return await self._run(work, project, session)

    async def release(self, key: SessionListSubkeysKey, *, owner: str) -> None:
        """Give a session back. Does nothing when `owner` does not have it."""
        project, session, _ = checked_key(key)
        query = "DELETE FROM claims WHERE project = ? AND session = ? AND owner = ?"
        await self._run(lambda database: database.execute(query, (project, session, owner)).rowcount, project, session)

    async def find_project(self, session_id: str) -> str | None:
        """Return the project key under which the session was last written; None when there is none."""
        session = checked_name(session_id, "session_id")
        query = "SELECT project FROM sessions WHERE session = ? ORDER BY mtime DESC"

        def work(database: sqlite3.Connection) -> str | None:
            found = (_text(row[0]) for row in database.execute(query, (session,)))
            return next((project for project in found if project is not None), None)

        return await self._run(work, None, session, begin="BEGIN")


def _append(
    database: sqlite3.Connection, *, key: SessionKey, entries: Sequence[SessionStoreEntry], rows: Sequence[tuple[str | None, bytes]]
) -> None:
    project, session, subpath = checked_key(key)
    insert = "INSERT OR IGNORE INTO entries (project, session, subpath, uuid, body) VALUES (?, ?, ?, ?, ?)"
    new = [
        entry
        for entry, (uuid, body) in zip(entries, rows, strict=True)
        if database.execute(insert, (project, session, subpath or "", uuid, body)).rowcount
    ]
    if subpath is not None:
        return
    row = database.execute("SELECT mtime, summary FROM sessions WHERE project = ? AND session = ?", (project, session)).fetchone()
    data = None if row is None else decode_summary(row[1])
    if data is None:  # it is the first one, or the summary was damaged
        data = _folded(database, project, session)
    else:
        data = fold_session_summary({"session_id": session, "mtime": 0, "data": data}, key, new)["data"]
    now = int(time.time() * 1000)
    last = 0 if row is None else _milliseconds(row[0])
    mtime = max(now, last + 1) if last < now + 1000 * LONGEST_CLAIM else now
    database.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)", (project, session, mtime, encode_summary(data)))


def _entries(database: sqlite3.Connection, project: str, session: str, subpath: str | None) -> Iterator[Any]:
    query = "SELECT body FROM entries WHERE project = ? AND session = ? AND subpath = ? ORDER BY position"
    bodies = (body for (body,) in database.execute(query, (project, session, subpath or "")))
    return decode_entries(body for body in bodies if isinstance(body, bytes))


def _folded(database: sqlite3.Connection, project: str, session: str) -> dict[str, Any]:
    """Make the summary of a session from all its entries."""
    entries = list(_entries(database, project, session, None))
    return fold_session_summary(None, {"project_key": project, "session_id": session}, entries)["data"]


def _listed(project: str, database: sqlite3.Connection) -> list[tuple[str, int, dict[str, Any] | None]]:
    """Return the sessions of a project, with the time and the summary of each. None for a summary that is damaged."""
    rows = database.execute("SELECT session, mtime, summary FROM sessions WHERE project = ?", (project,)).fetchall()
    return [(session, _milliseconds(mtime), decode_summary(data)) for name, mtime, data in rows if (session := _text(name)) is not None]


def _text(value: object) -> str | None:
    """Return the text in a column; None for one that is damaged."""
    with contextlib.suppress(UnicodeDecodeError):
        return value.decode() if isinstance(value, bytes) else None
    return None


def _milliseconds(value: object) -> int:
    """Return the time in a column; 0 for one that is damaged."""
    return value if isinstance(value, int) and value >= 0 else 0


def _in_transaction(path: str, work: Callable[[sqlite3.Connection], _T], begin: str) -> _T:
    with _connected(path) as database:
        database.execute(begin)
        result = work(database)  # when it fails, the end of the connection takes back what it has done
        database.commit()
        return result


@contextlib.contextmanager
def _connected(path: str) -> Iterator[sqlite3.Connection]:
    """Open the database for one call: a connection that stays open would belong to one thread."""
    if not os.path.exists(path):  # noqa: PTH110
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        make_private(path)
    database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
    try:
        database.text_factory = bytes  # one damaged text must not hide the others
        database.execute("PRAGMA synchronous = FULL")  # some systems build SQLite to sync later than at each commit
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'claims'").fetchone():
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_SCHEMA)
        yield database
    finally:
        database.close()
