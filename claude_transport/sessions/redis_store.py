"""`RedisSessionStore`: transcripts in Redis or Valkey, for many machines. It needs the extra `redis`."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import anyio
import anyio.lowlevel

from claude_transport.errors import CLIConnectionError
from claude_transport.launch.session_store import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from claude_transport.loggers import logger_for
from claude_transport.redis.address import RedisAddress
from claude_transport.redis.client import STORE_TIMEOUT, first_of, make_client, require_coredis, run_script
from claude_transport.sessions.store_entries import LONGEST_CLAIM, decode_entries, decode_summary, encode_entry, encode_summary, uuid_of
from claude_transport.sessions.store_keys import checked_key, checked_name, shown_place
from claude_transport.sessions.summaries import fold_session_summary

logger: logging.Logger = logger_for(__name__)

_PAGE: Final = 1_000
"""Entries that are read at once."""

_TRIES: Final = 10
"""Times that a call which meets the writes of other hosts begins anew."""

# Each script runs as a whole or not at all, so a host that dies in the middle of a call leaves nothing half done. A key of a wrong type
# would end it in the middle; so each one is read before the first write.
_APPEND: Final = """
local last = tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0')
local count = redis.call('LLEN', KEYS[1])
redis.call('SCARD', KEYS[2]) redis.call('SCARD', KEYS[4]) redis.call('ZCARD', KEYS[5]) redis.call('HLEN', KEYS[6])
local now = redis.call('TIME')
local mtime = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
if mtime <= last and last < mtime + tonumber(ARGV[4]) then mtime = last + 1 end
if count == 0 then
    redis.call('DEL', KEYS[2])
    if ARGV[2] == '' then redis.call('HSET', KEYS[6], ARGV[1], now[1] .. '.' .. now[2]) end
end
for index = 5, #ARGV, 2 do
    if ARGV[index] == '' or redis.call('SADD', KEYS[2], ARGV[index]) == 1 then redis.call('RPUSH', KEYS[1], ARGV[index + 1]) end
end
if ARGV[2] ~= '' then
    redis.call('SADD', KEYS[4], ARGV[2])
else
    redis.call('ZADD', KEYS[3], mtime, ARGV[1])
    redis.call('ZADD', KEYS[5], mtime, ARGV[3])
end
return mtime
"""
_DELETE_PART: Final = """
redis.call('SCARD', KEYS[3])
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SREM', KEYS[3], ARGV[1])
return 1
"""
# The keys of the subagents are named by the caller. When there is another one by now, nothing is done, and the caller looks again.
_DELETE: Final = """
redis.call('ZCARD', KEYS[2]) redis.call('HLEN', KEYS[3]) redis.call('ZCARD', KEYS[4]) redis.call('HLEN', KEYS[5])
if redis.call('SCARD', KEYS[1]) ~= #ARGV - 2 then return 0 end
for index = 3, #ARGV do
    if redis.call('SISMEMBER', KEYS[1], ARGV[index]) == 0 then return 0 end
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[2])
redis.call('HDEL', KEYS[5], ARGV[1])
for index = 6, #KEYS do redis.call('DEL', KEYS[index]) end
return 1
"""
_CLAIM: Final = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""
_RELEASE: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1"
# Nothing is written when the session was deleted, or begun again, or when another host was faster.
_SUMMARISE: Final = """
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[3] then return 0 end
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[4] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
"""


class RedisSessionStore(SessionStore):
    """Keeps transcripts in the Redis or Valkey server of `url`, such as `redis://user:password@host:6379/0`, or `rediss://…` for TLS.

    Each call makes a connection of its own, so one store can be used in several event loops, one after the other. A key never expires by
    itself. All keys begin with `prefix`. With TLS, the certificate and the name in it are checked; `?ssl_ca_certs=<file>` names an
    authority of your own.

    Raises:
        ConfigurationError: the URL is not one of Redis, or the extra `redis` is not installed.
    """

    def __init__(self, url: str, *, prefix: str = "claude-sessions") -> None:
        self._address = RedisAddress.of(url)
        require_coredis("RedisSessionStore")
        self._prefix = prefix

    def __repr__(self) -> str:
        """Show the server, without its password."""
        return f"RedisSessionStore({str(self._address)!r})"

    @contextlib.asynccontextmanager
    async def _connected(self, project: str | None, session: str | None = None) -> AsyncIterator[Any]:
        """Connect for one call, and yield a client of coredis. Errors name the server and the session.

        Raises:
            CLIConnectionError: the server cannot be reached, refused a command, or did not answer in time.
        """
        failure: Exception | None = None
        place = f"{self._address}: {about}" if (about := shown_place(project, session)) else str(self._address)
        patience = anyio.CancelScope(deadline=anyio.current_time() + STORE_TIMEOUT)
        try:
            with patience:
                try:
                    async with make_client(self._address, max_connections=1) as client:
                        yield client
                except Exception:
                    await anyio.lowlevel.checkpoint()  # coredis may put an error in place of a cancellation
                    raise
        except Exception as exc:  # noqa: BLE001 - a task group inside wraps each error in a group
            failure = first_of(exc)
        if failure is not None:
            what = self._address.without_password(f"{place}: {type(failure).__name__}: {failure}")
            raise CLIConnectionError(what, code="session_store.failed") from None
        if patience.cancelled_caught:
            raise CLIConnectionError(f"{place} did not answer in {STORE_TIMEOUT:g} s", code="session_store.failed")

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add `entries` to the end of a transcript, all or none. An entry whose `uuid` the transcript has already is left out."""
        project, session, subpath = checked_key(key)
        rows = [(uuid_of(entry) or "", encode_entry(entry)) for entry in entries]
        if not rows:
            return
        names = self._names(project, session, subpath)
        keys = [names[each] for each in ("entries", "uuids", "sessions", "subkeys", "projects", "begun")]
        a_day = int(1000 * LONGEST_CLAIM)  # a time that is later than tomorrow is damaged
        is_stored = False
        try:
            async with self._connected(project, session) as client:
                arguments = [session, subpath or "", project, a_day, *(part for row in rows for part in row)]
                mtime = int(await run_script(client, _APPEND, keys=keys, args=arguments))
                is_stored = True
                if subpath is None:
                    await self._summarise(client, names, key, mtime)
        except CLIConnectionError as exc:
            if not is_stored:
                raise
            # the next append makes it good, and lists load a session whose summary is too old
            logger.info("a session is stored, and its summary is not: %s", exc)

    async def _summarise(self, client: Any, names: Mapping[str, str], key: SessionKey, mtime: int) -> None:
        """Fold what is new into the summary."""
        session = key["session_id"]
        for _ in range(_TRIES):
            begun = await client.hget(names["begun"], session)
            kept = await client.hget(names["summaries"], session)
            before = _summary_of(kept, begun) or {"count": 0, "mtime": mtime, "data": {}}
            data, count = await self._folded(client, names, key, before["data"], before["count"])
            now = encode_summary({"count": count, "mtime": max(mtime, before["mtime"]), "begun": _text(begun), "data": data})
            places = [names["summaries"], names["begun"]]
            if begun is None or await run_script(client, _SUMMARISE, keys=places, args=[session, now, begun, kept or b""]):
                return

    async def _folded(
        self, client: Any, names: Mapping[str, str], key: SessionKey, data: dict[str, Any], count: int
    ) -> tuple[dict[str, Any], int]:
        """Return what a summary says after all entries, of which it has `count` already, and how many there are."""
        folded: SessionSummaryEntry = {"session_id": key["session_id"], "mtime": 0, "data": data}
        while lines := await client.lrange(names["entries"], count, count + _PAGE - 1):
            folded = fold_session_summary(folded, key, list(decode_entries(lines)))
            count += len(lines)
        return folded["data"], count

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript; None for one that was never written."""
        project, session, subpath = checked_key(key)
        names = self._names(project, session, subpath)
        found: list[SessionStoreEntry] = []
        count = 0
        async with self._connected(project, session) as client:
            while lines := await client.lrange(names["entries"], count, count + _PAGE - 1):
                count += len(lines)
                found += decode_entries(lines)
        return found or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the sessions of a project that have a main transcript."""
        names = self._names(checked_name(project_key, "project_key"), "-", None)
        async with self._connected(project_key) as client:
            listed = await _listed(client, names)
        return [{"session_id": session, "mtime": mtime} for session, mtime in listed]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """List the summaries of all sessions of a project. One that is missing or damaged is made from its transcript."""
        project = checked_name(project_key, "project_key")
        names = self._names(project, "-", None)
        found: list[SessionSummaryEntry] = []
        async with self._connected(project) as client:
            rows, begun = await client.hgetall(names["summaries"]), await client.hgetall(names["begun"])
            for session, mtime in await _listed(client, names):
                name = session.encode()
                kept = _summary_of(rows.get(name), begun.get(name))
                if kept is None:
                    key: SessionKey = {"project_key": project, "session_id": session}
                    data, _ = await self._folded(client, self._names(project, session, None), key, {}, 0)
                    kept = {"mtime": mtime, "data": data}
                found.append({"session_id": session, "mtime": kept["mtime"], "data": kept["data"]})
        return found

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; a main transcript with its subkeys and its summary. All or nothing of it is done."""
        project, session, subpath = checked_key(key)
        names = self._names(project, session, subpath)
        async with self._connected(project, session) as client:
            if subpath is not None:
                await run_script(client, _DELETE_PART, keys=[names["entries"], names["uuids"], names["subkeys"]], args=[subpath])
                return
            own = [names[each] for each in ("subkeys", "sessions", "summaries", "projects", "begun", "entries", "uuids")]
            for _ in range(_TRIES):
                subkeys = list(await client.smembers(names["subkeys"]))
                parts = [self._names(project, session, each) for each in map(_text, subkeys) if each is not None]
                keys = [*own, *(part[each] for part in parts for each in ("entries", "uuids"))]
                if await run_script(client, _DELETE, keys=keys, args=[session, project, *subkeys]):
                    return
        what = f"{self._address}: {shown_place(project, session)}: other hosts begin subagents of it while it is deleted"
        raise CLIConnectionError(what, code="session_store.failed")

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the subpaths of a session."""
        project, session, _ = checked_key(key)
        async with self._connected(project, session) as client:
            found = map(_text, await client.smembers(self._names(project, session, None)["subkeys"]))
            return sorted(subpath for subpath in found if subpath is not None)

    async def claim(self, key: SessionListSubkeysKey, *, owner: str, seconds: float) -> str | None:
        """Take a session for `owner`, or keep it, for `seconds`: a day at most. Return the owner that has it now."""
        project, session, _ = checked_key(key)
        names = self._names(project, session, None)
        async with self._connected(project, session) as client:
            milliseconds = max(1, int(min(seconds, LONGEST_CLAIM) * 1000))
            return _text(await run_script(client, _CLAIM, keys=[names["claim"]], args=[owner, milliseconds])) or ""

    async def release(self, key: SessionListSubkeysKey, *, owner: str) -> None:
        """Give a session back. Does nothing when `owner` does not have it."""
        project, session, _ = checked_key(key)
        async with self._connected(project, session) as client:
            await run_script(client, _RELEASE, keys=[self._names(project, session, None)["claim"]], args=[owner])

    async def find_project(self, session_id: str) -> str | None:
        """Return the project key under which the session was last written; None when there is none."""
        names = self._names("-", checked_name(session_id, "session_id"), None)
        async with self._connected(None, session_id) as client:
            found = [_text(each) for each in await client.zrange(names["projects"], 0, -1)]
        return next((project for project in reversed(found) if project is not None), None)

    def _names(self, project: str, session: str, subpath: str | None) -> dict[str, str]:
        """Return the keys in Redis. The parts of a key are quoted, so that no project can name the keys of another one.

        The braces put everything on one node of a cluster, because a script may use only keys of one node.
        """
        of_project = f"{{{self._prefix}}}:project:{quote(project, safe='')}"
        of_session = f"{of_project}:session:{quote(session, safe='')}"
        part = of_session + (":main" if subpath is None else f":part:{quote(subpath, safe='')}")
        return {
            "entries": f"{part}:entries",
            "uuids": f"{part}:uuids",
            "sessions": f"{of_project}:sessions",
            "summaries": f"{of_project}:summaries",
            "begun": f"{of_project}:begun",
            "subkeys": f"{of_session}:subkeys",
            "claim": f"{of_session}:claim",
            "projects": f"{{{self._prefix}}}:id:{quote(session, safe='')}:projects",
        }


def _summary_of(kept: Any, begun: Any) -> dict[str, Any] | None:
    """Return a summary; None for one that is missing or damaged, and for that of a session which was deleted since."""
    summary = decode_summary(kept)
    return None if summary is None or summary["begun"] != _text(begun) else summary


async def _listed(client: Any, names: Mapping[str, str]) -> list[tuple[str, int]]:
    rows = await client.zrange(names["sessions"], 0, -1, withscores=True)
    found = [(_text(name), int(mtime) if math.isfinite(mtime) else 0) for name, mtime in rows]
    return [(session, mtime) for session, mtime in found if session is not None]


def _text(value: Any) -> str | None:
    """Return a text that a server has kept; None for one that is missing or damaged."""
    with contextlib.suppress(UnicodeDecodeError):
        return value.decode() if isinstance(value, bytes) else value
    return None
