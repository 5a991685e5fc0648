"""`RedisSessionStore`: transcripts in Redis or Valkey, for many machines. It needs the extra `redis`."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from claude_transport.errors import CLIConnectionError, ConfigurationError
from claude_transport.session_store import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from claude_transport.sessions.redis_client import RedisAddress
from claude_transport.sessions.store_entries import decode_entries, encode_entry, encode_summary, uuid_of
from claude_transport.sessions.store_keys import checked_key
from claude_transport.sessions.summaries import fold_session_summary

logger: logging.Logger = logging.getLogger(__name__)

_PAGE: Final = 1_000
"""Entries that are read at once."""

# Each script runs as a whole or not at all, so a host that dies in the middle of a call leaves nothing half done.
_APPEND: Final = """
local now = redis.call('TIME')
local mtime = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local last = tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0')
if mtime <= last then mtime = last + 1 end
for index = 4, #ARGV, 2 do
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
_CLAIM: Final = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""
_RELEASE: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1"
_SUMMARISE: Final = """
local before = redis.call('HGET', KEYS[1], ARGV[1])
if before and cjson.decode(before).count > tonumber(ARGV[3]) then return 0 end
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return 0 end
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
        if importlib.util.find_spec("coredis") is None:
            raise ConfigurationError("RedisSessionStore needs the extra redis: pip install 'claude-transport[redis]'", option="url")
        self._prefix = prefix

    def __repr__(self) -> str:
        """Show the server, without its password."""
        return f"RedisSessionStore({str(self._address)!r})"

    def _connected(self) -> contextlib.AbstractAsyncContextManager[Any]:
        return self._address.connected()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add `entries` to the end of a transcript, all or none. An entry whose `uuid` the transcript has already is left out."""
        project, session, subpath = checked_key(key)
        rows = [(uuid_of(entry) or "", encode_entry(entry)) for entry in entries]
        if not rows:
            return
        names = self._names(project, session, subpath)
        keys = [names["entries"], names["uuids"], names["sessions"], names["subkeys"], names["projects"]]
        is_stored = False
        try:
            async with self._connected() as client:
                arguments = [session, subpath or "", project, *(part for row in rows for part in row)]
                mtime = int(await client.eval(_APPEND, keys=keys, args=arguments))
                is_stored = True
                if subpath is None:
                    await self._summarise(client, names, key, mtime)
        except CLIConnectionError as exc:
            if not is_stored:
                raise
            # the next append makes it good, and lists load a session whose summary is too old
            logger.info("a session is stored, and its summary is not: %s", exc)

    async def _summarise(self, client: Any, names: Mapping[str, str], key: SessionKey, mtime: int) -> None:
        """Fold what is new into the summary. Of two hosts at once, the one that has folded more wins."""
        kept = await client.hget(names["summaries"], key["session_id"])
        before: dict[str, Any] = msgspec.json.decode(kept) if kept else {"count": 0, "data": {}}
        count = before["count"]
        prev: SessionSummaryEntry = {"session_id": key["session_id"], "mtime": mtime, "data": before["data"]}
        while lines := await client.lrange(names["entries"], count, count + _PAGE - 1):
            prev = fold_session_summary(prev, key, list(decode_entries(lines)))
            count += len(lines)
        now = encode_summary({"count": count, "mtime": mtime, "data": prev["data"]})
        await client.eval(_SUMMARISE, keys=[names["summaries"], names["sessions"]], args=[key["session_id"], now, count])

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript; None for one that was never written."""
        names = self._names(*checked_key(key))
        found: list[SessionStoreEntry] = []
        count = 0
        async with self._connected() as client:
            while lines := await client.lrange(names["entries"], count, count + _PAGE - 1):
                count += len(lines)
                found += decode_entries(lines)
        return found or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the sessions of a project that have a main transcript."""
        async with self._connected() as client:
            rows = await client.zrange(self._names(project_key, "-", None)["sessions"], 0, -1, withscores=True)
        return [{"session_id": _text(session), "mtime": int(mtime)} for session, mtime in rows]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """List the summaries of all sessions of a project."""
        async with self._connected() as client:
            rows = await client.hgetall(self._names(project_key, "-", None)["summaries"])
        decoded = [(_text(session), msgspec.json.decode(kept)) for session, kept in rows.items()]
        return [{"session_id": session, "mtime": kept["mtime"], "data": kept["data"]} for session, kept in decoded]

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; a main transcript with its subkeys and its summary."""
        project, session, subpath = checked_key(key)
        names = self._names(project, session, subpath)
        async with self._connected() as client:
            await client.delete([names["entries"], names["uuids"]])
            if subpath is not None:
                await client.srem(names["subkeys"], [subpath])
                return
            for each in await client.smembers(names["subkeys"]):
                part = self._names(project, session, _text(each))
                await client.delete([part["entries"], part["uuids"]])
            await client.delete([names["subkeys"]])
            await client.zrem(names["sessions"], [session])
            await client.hdel(names["summaries"], [session])
            await client.zrem(names["projects"], [project])

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the subpaths of a session."""
        project, session, _ = checked_key(key)
        async with self._connected() as client:
            return sorted(_text(each) for each in await client.smembers(self._names(project, session, None)["subkeys"]))

    async def claim(self, key: SessionListSubkeysKey, *, owner: str, seconds: float) -> str | None:
        """Take a session for `owner`, or keep it, for `seconds`. Return the owner that has it now."""
        project, session, _ = checked_key(key)
        names = self._names(project, session, None)
        async with self._connected() as client:
            return _text(await client.eval(_CLAIM, keys=[names["claim"]], args=[owner, max(1, int(seconds * 1000))]))

    async def release(self, key: SessionListSubkeysKey, *, owner: str) -> None:
        """Give a session back. Does nothing when `owner` does not have it."""
        project, session, _ = checked_key(key)
        async with self._connected() as client:
            await client.eval(_RELEASE, keys=[self._names(project, session, None)["claim"]], args=[owner])

    async def find_project(self, session_id: str) -> str | None:
        """Return the project key under which the session was last written; None when there is none."""
        async with self._connected() as client:
            found: Sequence[Any] = await client.zrange(self._names("-", session_id, None)["projects"], -1, -1)
        return _text(found[0]) if found else None

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
            "subkeys": f"{of_session}:subkeys",
            "claim": f"{of_session}:claim",
            "projects": f"{{{self._prefix}}}:id:{quote(session, safe='')}:projects",
        }


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
