"""A call of a store that fails after it has stored something: with the next attempt, each entry is there once."""

from __future__ import annotations

import itertools
import json
from typing import Any

import anyio
import anyio.lowlevel
import claude_agent_sdk
import pytest
from test_mirror import AT_ONCE, KEY, PATH, losses

from claude_transport import sessions
from claude_transport.transports.mirroring import Mirror

BEFORE = [{"type": "last-prompt", "lastPrompt": "?"}, {"type": "user", "uuid": "1"}, {"type": "mode", "mode": "x"}]
ONE = {"type": "mode", "mode": "x"}
TWO = {"type": "last-prompt", "lastPrompt": "Grüße", "n": 2.5}
BATCHES: dict[str, list[dict[str, Any]]] = {
    "plain": [TWO, ONE, {"type": "tag", "tag": "red"}],
    "mixed": [TWO, {"type": "user", "uuid": "2"}, ONE, ONE, {"type": "user", "uuid": "3"}, TWO],
    "repeated": [ONE, ONE, TWO, ONE, ONE],
    "uuids": [{"type": "user", "uuid": "2"}, {"type": "user", "uuid": "3"}],
}


def frame(entries: list[dict[str, Any]]) -> bytes:
    """A frame of the CLI."""
    return json.dumps({"type": "transcript_mirror", "filePath": PATH, "entries": entries}, separators=(",", ":")).encode()


class Breaking:
    """A store that stores the first `count` entries of a call and then fails, once; and fails `loads` times when it is read."""

    def __init__(self, inner: Any, count: int, loads: int = 0) -> None:
        self.inner = inner
        self.count: int | None = count
        self.loads = loads
        self.failed = False

    async def append(self, key: Any, entries: Any) -> None:
        """Store, all of it or not."""
        count, self.count = self.count, None
        await self.inner.append(key, entries[:count])
        if count is not None:
            self.failed = True
            raise ConnectionResetError("gone")

    async def load(self, key: Any) -> Any:
        """Return all entries."""
        if self.failed and self.loads:
            self.loads -= 1
            raise ConnectionResetError("still gone")
        return await self.inner.load(key)


@pytest.mark.parametrize("inner", [sessions.InMemorySessionStore, claude_agent_sdk.InMemorySessionStore], ids=["ours", "official"])
@pytest.mark.parametrize("kind", BATCHES)
async def test_what_a_failed_call_has_stored_is_not_stored_again(kind: str, inner: Any) -> None:
    for count in range(len(BATCHES[kind]) + 1):
        store: Any = Breaking(inner(), count)
        await store.inner.append(KEY, BEFORE)
        mirror = Mirror(store, retry=AT_ONCE, projects={KEY["session_id"]: KEY["project_key"]})
        mirror.start()
        mirror.take([frame(BATCHES[kind])])
        while mirror.is_behind:
            await anyio.lowlevel.checkpoint()
        await mirror.close()
        stored = await store.inner.load(KEY)
        if (kind, inner) == ("uuids", claude_agent_sdk.InMemorySessionStore):  # it does not look at uuids, as it says
            continue
        if kind == "repeated":  # of equal ones in a row, as in front of this call and at its beginning, one may be left out
            assert [each for each, _ in itertools.groupby(stored)] == [each for each, _ in itertools.groupby([*BEFORE, *BATCHES[kind]])]
            assert len(stored) >= len([*BEFORE, *BATCHES[kind]]) - 1
            continue
        assert (count, stored) == (count, [*BEFORE, *BATCHES[kind]])
        assert mirror.lost == 0


@pytest.mark.parametrize(("loads", "lost"), [(1, []), (2, ["the session store failed: ConnectionResetError: still gone"])])
async def test_a_store_that_cannot_say_what_it_has_counts_as_one_that_fails(loads: int, lost: list[str]) -> None:
    store: Any = Breaking(sessions.InMemorySessionStore(), 1, loads)
    mirror = Mirror(store, retry=AT_ONCE, projects={KEY["session_id"]: KEY["project_key"]})
    mirror.start()
    mirror.take([frame(BATCHES["plain"])])
    while mirror.is_behind:
        await anyio.lowlevel.checkpoint()
    assert losses(mirror.take([])) == lost
    await mirror.close()
    assert mirror.lost == (3 if lost else 0)
    assert await store.inner.load(KEY) == (BATCHES["plain"][:1] if lost else BATCHES["plain"])
