"""`InMemorySessionStore`: transcripts in the memory of this process, for tests and for sessions that end with it."""

from __future__ import annotations

import time

import anyio.lowlevel

from claude_transport.launch.session_store import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from claude_transport.sessions.store_entries import decode_entries, encode_entry, uuid_of
from claude_transport.sessions.store_keys import checked_key, checked_name
from claude_transport.sessions.summaries import fold_session_summary


class _Transcript:
    """The entries of one key, encoded: what a caller does to its dicts later must not change them."""

    __slots__ = ("lines", "mtime", "uuids")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.uuids: set[str] = set()
        self.mtime = 0


class InMemorySessionStore(SessionStore):
    """Keeps transcripts in memory. Everything is gone when the process ends."""

    def __init__(self) -> None:
        self._transcripts: dict[tuple[str, str], dict[str | None, _Transcript]] = {}
        self._summaries: dict[tuple[str, str], SessionSummaryEntry] = {}
        self._claims: dict[tuple[str, str], tuple[str, float]] = {}
        self._last_mtime = 0

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add `entries` to the end of a transcript. An entry whose `uuid` the transcript has already is left out."""
        project, session, subpath = checked_key(key)
        lines = [(uuid_of(entry), encode_entry(entry), entry) for entry in entries]
        await anyio.lowlevel.checkpoint()
        if not lines:
            return
        transcript = self._transcripts.setdefault((project, session), {}).setdefault(subpath, _Transcript())
        new = []
        for uuid, line, entry in lines:
            if uuid is not None and uuid in transcript.uuids:
                continue
            transcript.uuids.update(() if uuid is None else (uuid,))
            transcript.lines.append(line)
            new.append(entry)
        # later than every write before, also where the clock has not moved on
        transcript.mtime = self._last_mtime = max(int(time.time() * 1000), self._last_mtime + 1)
        if subpath is None:
            summary = fold_session_summary(self._summaries.get((project, session)), key, new)
            summary["mtime"] = transcript.mtime
            self._summaries[project, session] = summary

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript; None for one that was never written."""
        project, session, subpath = checked_key(key)
        await anyio.lowlevel.checkpoint()
        transcript = self._transcripts.get((project, session), {}).get(subpath)
        return None if transcript is None else list(decode_entries(transcript.lines))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the sessions of a project that have a main transcript."""
        checked_name(project_key, "project_key")
        await anyio.lowlevel.checkpoint()
        return [
            {"session_id": session, "mtime": parts[None].mtime}
            for (project, session), parts in self._transcripts.items()
            if project == project_key and None in parts
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """List the summaries of all sessions of a project."""
        checked_name(project_key, "project_key")
        await anyio.lowlevel.checkpoint()
        return [{**each, "data": dict(each["data"])} for (project, _), each in self._summaries.items() if project == project_key]

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; a main transcript with its subkeys and its summary."""
        project, session, subpath = checked_key(key)
        await anyio.lowlevel.checkpoint()
        if subpath is not None:
            self._transcripts.get((project, session), {}).pop(subpath, None)
        else:
            self._transcripts.pop((project, session), None)
            self._summaries.pop((project, session), None)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the subpaths of a session."""
        project, session, _ = checked_key(key)
        await anyio.lowlevel.checkpoint()
        return [subpath for subpath in self._transcripts.get((project, session), {}) if subpath is not None]

    async def claim(self, key: SessionListSubkeysKey, *, owner: str, seconds: float) -> str | None:
        """Take a session for `owner`, or keep it, for `seconds`. Return the owner that has it now."""
        project, session, _ = checked_key(key)
        await anyio.lowlevel.checkpoint()
        now = time.monotonic()
        holder, until = self._claims.get((project, session), (owner, now))
        if holder != owner and until > now:
            return holder
        self._claims[project, session] = (owner, now + seconds)
        return owner

    async def release(self, key: SessionListSubkeysKey, *, owner: str) -> None:
        """Give a session back. Does nothing when `owner` does not have it."""
        project, session, _ = checked_key(key)
        await anyio.lowlevel.checkpoint()
        if self._claims.get((project, session), ("", 0.0))[0] == owner:
            del self._claims[project, session]

    async def find_project(self, session_id: str) -> str | None:
        """Return the project key under which the session was last written; None when there is none."""
        checked_name(session_id, "session_id")
        await anyio.lowlevel.checkpoint()
        of_session = {project: parts for (project, session), parts in self._transcripts.items() if session == session_id and None in parts}
        found = [(parts[None].mtime, project) for project, parts in of_session.items()]
        return max(found)[1] if found else None
