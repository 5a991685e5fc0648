"""The list of a store's sessions: the pages of the official SDK, and no more of the store read than a page needs."""

from __future__ import annotations

import errno
import json
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import claude_agent_sdk
import pytest
from shelf import CWD, session, talk, user

from claude_transport import errors, sessions
from claude_transport.sessions.importing import EntryBatches
from claude_transport.sessions.store_keys import shown_place

PROJECT = sessions.project_key_for_directory(CWD)


class Counting(sessions.InMemorySessionStore):
    """A store that counts what is loaded, all in all and at once."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.at_once = self.most_at_once = 0

    async def load(self, key: Any) -> Any:
        """Return all entries of a transcript, after a pause in which others are loaded."""
        self.loaded.append(key["session_id"])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await anyio.lowlevel.checkpoint()
        self.at_once -= 1
        return await super().load(key)


class WithoutSummaries(Counting):
    """A store that keeps no summaries, and says so only when it is asked, as one around another store does."""

    async def list_session_summaries(self, project_key: str) -> Any:
        """Refuse."""
        raise NotImplementedError


class Behind(Counting):
    """A store with summaries of some sessions only: each fourth has none, and each fifth is older than its session."""

    async def list_session_summaries(self, project_key: str) -> Any:
        """Return some of them."""
        found = sorted(await super().list_session_summaries(project_key), key=lambda each: each["mtime"])
        for number, each in enumerate(found):
            each["mtime"] -= number % 5 == 0
        return [each for number, each in enumerate(found) if number % 4]


class OnlySummaries:
    """A store that cannot list its sessions, but their summaries."""

    def __init__(self, inner: Counting) -> None:
        self.append, self.load, self.list_session_summaries = inner.append, inner.load, inner.list_session_summaries


async def filled(store: Counting, count: int = 30) -> Counting:
    """The store, with so many sessions; the later ones are later. Each seventh is that of a subagent."""
    for number in range(count):
        entries: Any = talk(number) if number % 7 else [user(number, f"Question {number}", isSidechain=True)]
        await store.append({"project_key": PROJECT, "session_id": session(number)}, entries)
    return store


def numbers(listed: Any) -> list[int]:
    """The numbers of the sessions in a list."""
    return [int(each.session_id[:8], 16) for each in listed]


@pytest.mark.parametrize("store", [Counting, WithoutSummaries, Behind])
@pytest.mark.parametrize(("limit", "offset"), [(None, 0), (0, 3), (5, 0), (7, 6), (3, 24), (10, 100), (-1, -1), (1, 0), (None, 20)])
async def test_a_page_is_that_of_the_official_sdk(store: type[Counting], limit: int | None, offset: int) -> None:
    made: Any = await filled(store())
    ours = await sessions.list_sessions_from_store(made, CWD, limit, offset)
    official = await claude_agent_sdk.list_sessions_from_store(made, CWD, limit, offset)
    assert [vars(each) for each in ours] == [{**vars(each), "file_size": None} for each in official]


async def test_a_store_with_summaries_loads_nothing() -> None:
    store = await filled(Counting())
    assert numbers(await sessions.list_sessions_from_store(store, CWD, limit=3, offset=1)) == [27, 26, 25]
    assert store.loaded == []


async def test_only_the_sessions_of_the_page_are_loaded_where_summaries_are_missing_or_too_old() -> None:
    store: Any = await filled(Behind())
    await sessions.list_sessions_from_store(store, CWD, limit=10, offset=5)
    ours, store.loaded = store.loaded, []
    await claude_agent_sdk.list_sessions_from_store(store, CWD, limit=10, offset=5)
    assert sorted(ours) == sorted(store.loaded)
    assert 0 < len(ours) < 10


async def test_without_summaries_sessions_are_loaded_until_the_page_is_full() -> None:
    store = await filled(WithoutSummaries())
    assert numbers(await sessions.list_sessions_from_store(store, CWD, limit=3, offset=1)) == [27, 26, 25]
    assert [int(name[:8], 16) for name in store.loaded] == [29, 28, 27, 26, 25]  # 28 is of a subagent, so another one is needed


async def test_no_more_than_sixteen_sessions_are_loaded_at_once() -> None:
    store = await filled(WithoutSummaries(), 100)
    assert len(await sessions.list_sessions_from_store(store, CWD)) == 85
    assert len(store.loaded) == len(set(store.loaded)) == 100
    assert store.most_at_once == 16


async def test_a_store_that_can_list_only_summaries_is_asked_for_nothing_else() -> None:
    store = await filled(Counting())
    only: Any = OnlySummaries(store)
    assert numbers(await sessions.list_sessions_from_store(only, CWD, limit=2)) == [29, 27]
    assert store.loaded == []


async def test_a_session_that_cannot_be_loaded_is_shown_without_a_summary_as_by_the_official_sdk() -> None:
    class Damaged(WithoutSummaries):
        async def load(self, key: Any) -> Any:
            """Fail for one session."""
            if key["session_id"] == session(3):
                raise OSError("a bad block")
            return await super().load(key)

    store: Any = await filled(Damaged(), 5)
    ours = await sessions.list_sessions_from_store(store, CWD)
    assert numbers(ours) == [4, 3, 2, 1]
    assert [each.summary for each in ours] == ["Question 4", "", "Question 2", "Question 1"]
    official = await claude_agent_sdk.list_sessions_from_store(store, CWD)
    assert [vars(each) for each in ours] == [{**vars(each), "file_size": None} for each in official]


async def test_a_list_that_is_cancelled_loads_no_more() -> None:
    class Stuck(WithoutSummaries):
        async def load(self, key: Any) -> Any:
            """Note it, and wait."""
            self.loaded.append(key["session_id"])
            began.set()
            await anyio.sleep_forever()

    began = anyio.Event()
    store = await filled(Stuck(), 40)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sessions.list_sessions_from_store, store, CWD)
        await began.wait()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert len(store.loaded) == 16


@pytest.mark.parametrize(("said", "shown"), [(["custom-title", "ai-title"], "Chosen"), (["ai-title"], "Made up"), ([], "Hello")])
async def test_a_chosen_title_is_shown_before_a_made_up_one_and_this_before_the_prompt(said: list[str], shown: str) -> None:
    titles: dict[str, Any] = {
        "custom-title": {"type": "custom-title", "customTitle": "Chosen", "sessionId": session(1)},
        "ai-title": {"type": "ai-title", "aiTitle": "Made up", "sessionId": session(1)},
    }
    prompt: Any = {"type": "user", "uuid": "u", "sessionId": session(1), "message": {"role": "user", "content": "Hello"}}
    store = sessions.InMemorySessionStore()
    await store.append(
        {"project_key": sessions.project_key_for_directory(CWD), "session_id": session(1)}, [prompt, *(titles[each] for each in said)]
    )
    info = await sessions.get_session_info_from_store(store, session(1), CWD)
    assert info is not None
    assert (info.summary, info.session_id) == (shown, session(1))


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("one\ntwo ", "one two"),
        ([{"type": "text", "text": " "}, {"type": "text", "text": "a block"}, "no block"], "a block"),
        ([{"type": "tool_result", "content": "7"}, {"type": "text", "text": "said by a tool"}], None),
        ([{"type": "text", "text": None}], None),
        ("x" * 200, "x" * 200),
        ("x" * 199 + " yz", "x" * 199 + "…"),
        ("[Request interrupted by user]", None),
        ("<ide_opened_file>a.py</ide_opened_file>", None),
        ("<command-name>/init</command-name>", None),
    ],
)
def test_a_summary_has_the_first_words_that_a_user_typed(content: Any, shown: str | None) -> None:
    key: Any = {"project_key": "p", "session_id": session(1)}
    entry: Any = {"type": "user", "uuid": "u", "sessionId": session(1), "message": {"role": "user", "content": content}}
    summary = sessions.fold_session_summary(None, key, [entry])
    assert summary["data"].get("first_prompt") == shown
    assert summary["data"] == claude_agent_sdk.fold_session_summary(None, key, [entry])["data"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file whose reading fails")
async def test_a_transcript_that_cannot_be_read_is_left_out_of_the_list_and_the_others_are_there(tmp_path: Path) -> None:
    store = sessions.FileSessionStore(tmp_path)
    for number in (1, 2):
        key: Any = {"project_key": "project", "session_id": f"session-{number}"}
        prompt: Any = {"type": "user", "uuid": "u", "message": {"role": "user", "content": f"Prompt {number}"}}
        await store.append(key, [prompt])
    (folder,) = [path.parent for path in tmp_path.rglob("*.jsonl") if "session-1" in path.name]
    for path in [*folder.glob("*session-1*")]:
        path.unlink()
    (folder / "session-1.jsonl").symlink_to("/proc/self/mem")  # reading it is an error of the disk
    assert [each["session_id"] for each in await store.list_session_summaries("project")] == ["session-2"]


def test_a_session_of_a_strange_name_is_named_on_one_short_line() -> None:
    assert shown_place("a\nb\x1b[31m", "s" * 10_000).startswith("session sssss")
    assert "\n" not in shown_place("a\nb\x1b[31m", "s" * 10_000)
    assert "\x1b" not in shown_place("a\nb\x1b[31m", None)
    assert len(shown_place("p" * 10_000, "s" * 10_000)) < 1000


def test_what_is_no_file_is_no_transcript(tmp_path: Path) -> None:
    with pytest.raises(errors.SessionFilesError) as caught:
        EntryBatches(tmp_path)
    assert caught.value.args == (f"{tmp_path} is not a file; remove it",)


def test_a_transcript_that_is_gone_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(errors.SessionFilesError) as caught:
        EntryBatches(tmp_path / "gone")
    assert caught.value.args == (f"{tmp_path / 'gone'} cannot be read: {os.strerror(errno.ENOENT)}",)
    assert (caught.value.errno, type(caught.value.__cause__)) == (errno.ENOENT, FileNotFoundError)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file whose reading fails")
def test_a_transcript_whose_reading_fails_is_a_typed_error() -> None:
    with closing(EntryBatches(Path("/proc/self/mem"))) as batches, pytest.raises(errors.SessionFilesError) as caught:
        batches.next()
    assert caught.value.args == (f"/proc/self/mem cannot be read: {os.strerror(errno.EIO)}",)


def test_large_entries_of_a_transcript_come_a_few_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "transcript"
    path.write_text("".join(json.dumps({"n": number, "text": "x" * 400_000}) + "\n" for number in range(4)))
    with closing(EntryBatches(path)) as batches:
        assert [[each["n"] for each in batches.next()] for _ in range(3)] == [[0, 1, 2], [3], []]
