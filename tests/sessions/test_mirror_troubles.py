"""`Mirror` beside stores that hang, stop in odd ways or lose their hold, and CLIs that say hostile things."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from test_mirror import AT_ONCE, KEY, PATH, SID, Failing, frame, losses, uuids
from virtual_time import virtual_time

from claude_transport import errors, sessions
from claude_transport.launch.options import ClaudeOptions
from claude_transport.sessions.materialising import find_session
from claude_transport.transports.mirroring import CLAIM_SECONDS, Mirror, prepare_stored

KNOWN = {SID: "-work"}  # a session whose beginning is in the store: no thread looks for it, which a clock that jumps would not wait for


class Keeping(sessions.InMemorySessionStore):
    """A store that never takes a session back."""

    async def release(self, key: Any, *, owner: str) -> None:
        """Wait."""
        await anyio.sleep_forever()


@virtual_time
@pytest.mark.parametrize("is_started", [False, True])
async def test_a_store_that_does_not_take_a_session_back_does_not_hold_up_the_end(is_started: bool) -> None:
    mirror = Mirror(Keeping())
    await mirror.claim(KEY)
    if is_started:
        mirror.start()
    with anyio.fail_after(60):
        await mirror.close()


class Bursting(sessions.InMemorySessionStore):
    """A store of which a call that is cancelled fails in a task of its own, once."""

    def __init__(self) -> None:
        super().__init__()
        self.bursts = 1
        self.reached = anyio.Event()

    async def append(self, key: Any, entries: Any) -> None:
        """Wait for ever, and fail on the way out; or store."""
        if self.bursts:
            self.bursts -= 1
            self.reached.set()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._burst)
                await anyio.sleep_forever()
        await super().append(key, entries)

    async def load(self, key: Any) -> Any:
        """Wait for ever, and fail on the way out; or load."""
        if self.bursts:
            await self.append(key, [])
        return await super().load(key)

    async def _burst(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("burst")


@virtual_time
async def test_a_call_that_fails_while_it_is_given_up_costs_its_entries_only() -> None:
    store = Bursting()
    mirror = Mirror(store, append_timeout=5.0, projects=KNOWN)
    mirror.start()
    mirror.take([frame("1")])
    await store.reached.wait()
    await anyio.sleep(10)  # of the clock that jumps
    mirror.take([frame("2")])
    await mirror.drain()
    await mirror.close()
    assert (await uuids(store), mirror.lost) == (["2"], 1)


@virtual_time
async def test_a_question_that_fails_while_it_is_given_up_is_a_typed_error() -> None:
    with pytest.raises(errors.CLIConnectionError):
        await find_session(Bursting(), resume=SID, cwd=None, timeout=5.0)


class Claims(sessions.InMemorySessionStore):
    """A store whose claims are timed by the clock of the event loop, and whose `append` waits for `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.held: tuple[str, float] = ("", 0.0)
        self.gate = anyio.Event()
        self.reached = anyio.Event()
        self.refusing = False

    async def append(self, key: Any, entries: Any) -> None:
        """Store once the gate is open."""
        self.reached.set()
        await self.gate.wait()
        await super().append(key, entries)

    async def claim(self, key: Any, *, owner: str, seconds: float) -> str | None:
        """Take the session, unless another one has it."""
        await anyio.lowlevel.checkpoint()
        if self.refusing and owner != "another":
            raise ConnectionResetError("away")
        now = anyio.current_time()
        if self.held[0] not in ("", owner) and self.held[1] > now:
            return self.held[0]
        self.held = (owner, now + seconds)
        return owner

    async def release(self, key: Any, *, owner: str) -> None:
        """Give it back."""
        await anyio.lowlevel.checkpoint()
        if self.held[0] == owner:
            self.held = ("", 0.0)


@virtual_time
async def test_a_session_is_held_while_the_store_takes_long_for_one_call() -> None:
    store = Claims()
    mirror = Mirror(store, append_timeout=1000.0, projects=KNOWN)
    await mirror.claim(KEY)
    mirror.start()
    mirror.take([frame("1")])
    await store.reached.wait()
    for _ in range(5):
        await anyio.sleep(CLAIM_SECONDS * 0.9)
        assert await store.claim(KEY, owner="another", seconds=60) != "another"
    store.gate.set()
    await mirror.close()
    assert (await uuids(store), mirror.lost) == (["1"], 0)
    assert await store.claim(KEY, owner="another", seconds=60) == "another"


@virtual_time
async def test_a_store_that_does_not_answer_holds_up_the_end_no_longer_than_it_may_and_the_last_words_a_part_of_it() -> None:
    store = Claims()
    mirror = Mirror(store, append_timeout=1000.0, last_calls=10.0, projects=KNOWN)
    mirror.start()
    mirror.take([frame("1")])
    await store.reached.wait()
    began = anyio.current_time()
    await mirror.drain()
    assert anyio.current_time() - began == pytest.approx(3.0)
    await mirror.close()
    assert anyio.current_time() - began == pytest.approx(10.0)
    assert (await uuids(store), mirror.lost) == ([], 1)


@virtual_time
async def test_a_session_is_given_back_also_when_the_answer_to_the_claim_was_lost() -> None:
    class Silent(Claims):
        async def claim(self, key: Any, *, owner: str, seconds: float) -> str | None:
            """Take the session for its first host, without a word."""
            first = self.held[0] == ""
            holder = await super().claim(key, owner=owner, seconds=seconds)
            if first:
                await anyio.sleep_forever()
            return holder

    store = Silent()
    mirror = Mirror(store, append_timeout=5.0)
    with pytest.raises(errors.CLIConnectionError):
        await mirror.claim(KEY)
    assert store.held[0]
    await mirror.close()
    assert store.held[0] == ""


@virtual_time
async def test_a_host_whose_hold_has_ended_asks_again_before_it_stores() -> None:
    store = Claims()
    store.gate.set()
    mirror = Mirror(store, retry=AT_ONCE, projects=KNOWN)
    await mirror.claim(KEY)
    mirror.start()
    store.refusing = True  # the hold cannot be renewed
    await anyio.sleep(CLAIM_SECONDS + 1)
    assert await store.claim(KEY, owner="another", seconds=1000) == "another"
    store.refusing = False
    mirror.take([frame("1")])
    reports = await mirror.drain()
    await mirror.close()
    assert await uuids(store) == []
    assert mirror.lost == 1
    assert any("another host" in report for report in losses(reports))


@virtual_time
async def test_a_host_whose_session_another_one_has_taken_stores_no_more_and_is_told_so() -> None:
    store = Claims()
    store.gate.set()
    mirror = Mirror(store, retry=AT_ONCE, projects=KNOWN)
    await mirror.claim(KEY)
    mirror.start()
    await anyio.sleep(CLAIM_SECONDS + 1)
    assert mirror.take([]) == []  # it was renewed
    store.held = ("another", math.inf)
    await anyio.sleep(CLAIM_SECONDS / 3 + 1)
    told = losses(mirror.take([frame("1")]))
    assert [report for report in told if "another host has taken this session" in report]
    store.held = ("", 0.0)  # what it has stored meanwhile is not here, so the session is not taken back
    await mirror.drain()
    await mirror.close()
    assert (await uuids(store), mirror.lost, store.held[0]) == ([], 1, "")


async def test_frames_that_come_after_the_end_are_counted_and_not_kept() -> None:
    """As after a close that was cancelled, while the process is still ending."""
    store = sessions.InMemorySessionStore()
    mirror = Mirror(store, most_waiting_bytes=2 * len(frame("1")))
    mirror.start()
    await mirror.close()
    reports = [line for number in range(9) for line in mirror.take([frame(str(number))])]
    assert mirror.lost == 9
    assert losses(reports) == ["the session was closed before the store had taken everything"]
    assert await uuids(store) == []


HOSTILE = {
    "nested too deeply": b'{"type":"transcript_mirror","filePath":"' + PATH.encode() + b'","entries":[' + b"[" * 5000 + b"]" * 5000 + b"]}",
    "no entries": b'{"type":"transcript_mirror","filePath":"' + PATH.encode() + b'","entries":7}',
    "entries that are no objects": b'{"type":"transcript_mirror","filePath":"' + PATH.encode() + b'","entries":[1,"x",null,[],{}]}',
    "a path without an end": b'{"type":"transcript_mirror","filePath":"/projects/' + b"x" * 1_000_000 + b'.txt","entries":[{}]}',
    "a number without an end": b'{"type":"transcript_mirror","filePath":"' + PATH.encode() + b'","entries":[{"n":' + b"9" * 5000 + b"}]}",
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hostile_frame_does_not_end_the_mirror_and_its_report_is_short(kind: str) -> None:
    store = sessions.InMemorySessionStore()
    mirror = Mirror(store)
    mirror.start()
    reports = [*mirror.take([HOSTILE[kind]]), *mirror.take([frame("1")]), *await mirror.drain()]
    await mirror.close()
    assert "1" in [entry["uuid"] for entry in await store.load(KEY) or [] if isinstance(entry, dict) and "uuid" in entry]
    assert all(len(report) < 1000 for report in losses(reports))


async def test_half_of_a_surrogate_pair_in_a_transcript_is_stored(tmp_path: Path) -> None:
    for store in (sessions.InMemorySessionStore(), sessions.FileSessionStore(tmp_path / "f"), sessions.SQLiteSessionStore(tmp_path / "s")):
        mirror = Mirror(store)
        mirror.start()
        mirror.take([frame("1").replace(b'"type":"user"', b'"type":"user","message":{"content":"\\ud83d cut"}')])
        await mirror.close()
        assert mirror.lost == 0
        (entry,) = await store.load(KEY) or []
        assert entry["message"]["content"] == "\ud83d cut"  # type: ignore[typeddict-item]


# ------------------------------------------------------------------------------------- a session that was begun without the store


def history(folder: Path, count: int, *, text: str = "x") -> Path:
    """A transcript with so many messages, of which the CLI has sent the last one only."""
    path = folder / "projects" / "-work" / f"{SID}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps({"type": "user", "uuid": f"{number}", "text": text}) + "\n" for number in range(count)))
    return path


async def test_a_long_history_is_stored_in_batches(tmp_path: Path) -> None:
    path, store = history(tmp_path, 2000, text="x" * 2000), Failing()
    mirror = Mirror(store)
    mirror.start()
    mirror.take([frame("1999", path=str(path))])
    await mirror.close()
    assert await uuids(store) == [str(number) for number in range(2000)]
    assert max(store.sizes) <= 600


async def test_a_damaged_line_in_a_history_costs_that_line_only(tmp_path: Path) -> None:
    path, store = history(tmp_path, 3), sessions.InMemorySessionStore()
    path.write_bytes(b"\xff\x00garbage\n" + b"[" * 5000 + b"\n" + path.read_bytes())
    mirror = Mirror(store)
    mirror.start()
    mirror.take([frame("2", path=str(path))])
    await mirror.close()
    assert (await uuids(store), mirror.lost) == (["0", "1", "2"], 0)


async def test_a_pipe_in_the_place_of_a_transcript_holds_up_nothing(tmp_path: Path) -> None:
    path, store = tmp_path / "projects" / "-work" / f"{SID}.jsonl", sessions.InMemorySessionStore()
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    mirror = Mirror(store)
    mirror.start()
    mirror.take([frame("1", path=str(path))])
    with anyio.fail_after(30):
        while not await uuids(store):
            await anyio.lowlevel.checkpoint()
    reports = await mirror.drain()
    await mirror.close()
    assert len(losses(reports)) == 1
    assert "not a file" in losses(reports)[0]


class Forgetting(sessions.InMemorySessionStore):
    """A store whose first `append` fails, and whose `load` never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 1

    async def append(self, key: Any, entries: Any) -> None:
        """Fail once; then store."""
        await anyio.lowlevel.checkpoint()
        if self.failures:
            self.failures -= 1
            raise OSError("not now")
        await super().append(key, entries)

    async def load(self, key: Any) -> Any:
        """Wait."""
        await anyio.sleep_forever()


@virtual_time
async def test_a_store_that_does_not_say_what_it_has_is_not_asked_for_longer_than_a_call_may_take() -> None:
    store = Forgetting()
    mirror = Mirror(store, append_timeout=5.0, projects=KNOWN)
    mirror.start()
    mirror.take([json.dumps({"type": "transcript_mirror", "filePath": PATH, "entries": [{"no": "uuid"}]}, separators=(",", ":")).encode()])
    await anyio.sleep(3600)  # it is asked again some times
    assert mirror.lost == 1
    assert not mirror.is_behind
    await mirror.close()


class Slow(sessions.InMemorySessionStore):
    """A store that answers no second claim of the session `slow`, and counts those of others."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[str] = []

    async def claim(self, key: Any, *, owner: str, seconds: float) -> str | None:
        """Answer, or wait for ever."""
        self.claims.append(key["session_id"])
        if self.claims.count("slow") > 1 and key["session_id"] == "slow":
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        return owner


@virtual_time
async def test_a_claim_that_is_not_answered_keeps_no_other_one_from_being_renewed() -> None:
    store = Slow()
    mirror = Mirror(store)
    for session in ("slow", "other"):
        await mirror.claim({"project_key": "p", "session_id": session})
    mirror.start()
    await anyio.sleep(CLAIM_SECONDS * 2)
    assert store.claims.count("other") >= 3
    await mirror.close()


async def test_a_mirror_without_a_store_is_refused_by_the_name_of_the_option() -> None:
    with pytest.raises(errors.ConfigurationError, match="session_store is not set") as caught:
        await prepare_stored(ClaudeOptions())
    assert caught.value.option == "session_store"
