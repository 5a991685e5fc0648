"""Stored sessions of the real CLI: what it writes is read as the official SDK reads it, and what is changed here the CLI goes on from."""

from __future__ import annotations

import dataclasses
from typing import Any

import claude_agent_sdk
import pytest
from live_session import Live, LiveSession, from_subagent

import claude_transport as ct
from claude_transport import errors, sessions
from claude_transport.testing import FakeMessagesAPI, replies

# The CLI writes what was said some time after it has said it. With this variable it writes first, so a test need not wait.
FLUSHED = {"CLAUDE_CODE_EAGER_FLUSH": "1"}
FOREGROUND = {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1", **FLUSHED}
TITLE = "The word «xyzzy»"


@pytest.fixture(autouse=True)
def _here(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions look into the configuration directory of the test's own CLI."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(live.home.config))


def session_id(session: LiveSession) -> str:
    point = session.query.resume_point
    assert point is not None
    return point.session_id


def both(name: str, *args: Any) -> Any:
    """What our function and the official one return, which must be the same."""
    official, ours = (plain(getattr(side, name)(*args)) for side in (claude_agent_sdk, sessions))
    assert ours == official
    return ours


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(one) for one in value]
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def known(session: LiveSession) -> str:
    """Everything the model was told by its last request."""
    return str(session.api.conversation[-1].body["messages"])


def delegating() -> Any:
    """A model that has a subagent work, and then says so."""

    def answer(request: Any) -> Any:
        if from_subagent(request):
            return replies.text("The subagent was here.")
        if request.tool_results:
            return replies.text("It is done.")
        return replies.tool_use("Agent", {"description": "work", "prompt": "SUB: work", "subagent_type": "general-purpose"})

    return answer


async def test_what_the_cli_stored_is_read_like_the_official_sdk_reads_it(live: Live) -> None:
    async with FakeMessagesAPI(delegating()) as api, live(api=api, env=FOREGROUND) as session:
        await session.ask("Have somebody work")
        first = session_id(session)
    async with live(["Four."]) as session:
        await session.ask("Two and two?")
        second = session_id(session)
    listed = both("list_sessions", str(live.home.project))
    assert [info["session_id"] for info in listed] == [second, first]
    assert [info["first_prompt"] for info in listed] == ["Two and two?", "Have somebody work"]
    assert both("list_sessions") == listed
    assert both("get_session_info", first) == listed[1]
    said = str(both("get_session_messages", first))
    assert "Have somebody work" in said
    assert "It is done." in said
    (agent,) = both("list_subagents", first)
    messages = both("get_subagent_messages", first, agent)
    assert "SUB: work" in str(messages[0]["message"])
    assert "The subagent was here." in str(messages[-1]["message"])
    assert both("list_subagents", second) == []


@pytest.mark.needs("a session is resumed by its title")
async def test_a_title_that_is_given_here_is_the_one_by_which_the_cli_resumes(live: Live) -> None:
    async with live(["The word is xyzzy."]) as session:
        await session.ask("Tell me a word")
        first = session_id(session)
    sessions.rename_session(first, TITLE)
    async with live(["It was xyzzy."], resume=TITLE) as session:
        assert (await session.ask("Which one?")).session_id == first
        assert "The word is xyzzy." in known(session)
    info = sessions.get_session_info(first)
    assert info is not None
    assert info.custom_title == info.summary == TITLE


@pytest.mark.needs("rename_session", "a session is resumed by its title")
async def test_a_title_and_a_tag_that_are_given_while_the_cli_runs_outlast_it(live: Live) -> None:
    async with live(["One.", "Two."], env=FLUSHED) as session:
        await session.ask("First")
        await session.query.rename_session("Its own title")
        first = session_id(session)
        sessions.rename_session(first, TITLE)
        sessions.tag_session(first, "green")
        await session.ask("Second")
    both("get_session_messages", first)
    (info,) = both("list_sessions")
    assert (info["custom_title"], info["tag"]) == (TITLE, "green")
    async with live(["Three."], resume=TITLE) as session:
        assert (await session.ask("Third")).session_id == first
        assert "Second" in known(session)


async def test_a_fork_that_is_made_here_is_resumed_and_leaves_the_original_alone(live: Live) -> None:
    async with FakeMessagesAPI(delegating()) as api, live(api=api, env=FOREGROUND) as session:
        await session.ask("Have somebody work")
        first = session_id(session)
        running = sessions.fork_session(first).session_id  # while the CLI runs
        await session.ask("Only the original knows this")
    for fork in (running, sessions.fork_session(first, str(live.home.project), title="A branch").session_id):
        before = sessions.get_session_messages(first)
        async with live(["Forked."], resume=fork) as session:
            result = await session.ask("A side branch")
            assert result.session_id == fork
            assert "Have somebody work" in known(session)
            assert ("Only the original knows this" in known(session)) == (fork != running)
        assert sessions.get_session_messages(first) == before
        assert len(both("get_session_messages", fork)) > 3
    info = sessions.get_session_info(fork)
    assert info is not None
    assert info.custom_title == "A branch"


async def test_a_fork_up_to_a_message_knows_nothing_of_what_came_after(live: Live) -> None:
    async with live(["Aye.", "Bee."]) as session:
        await session.ask("The earlier prompt")
        point = session.query.resume_point
        await session.ask("The later prompt")
    assert point is not None
    fork = sessions.fork_session(point.session_id, up_to_message_id=point.last_uuid).session_id
    async with live(["Other."], resume=fork) as session:
        await session.ask("Instead")
        assert "The earlier prompt" in known(session)
        assert "The later prompt" not in known(session)


async def test_a_session_is_deleted_when_its_cli_has_ended_and_not_before(live: Live) -> None:
    async with live(["One.", "Two."], env=FLUSHED) as session:
        await session.ask("First")
        first = session_id(session)
        with pytest.raises(errors.SessionInUse) as caught:
            sessions.delete_session(first)
        assert caught.value.session_id == first
        await session.ask("Second")
    assert len(both("get_session_messages", first)) == 4
    sessions.delete_session(first)
    assert sessions.list_sessions() == []
    with pytest.raises(errors.ClaudeTransportError, match="could not be started"):
        async with live(["Three."], resume=first) as session:
            await session.ask("Third")


async def test_a_cli_whose_session_is_deleted_would_go_on_without_its_beginning(live: Live) -> None:
    """Why `delete_session()` refuses: the next line makes the file anew."""
    async with live(["One.", "Two."], env=FLUSHED) as session:
        await session.ask("First")
        first = session_id(session)
        claude_agent_sdk.delete_session(first)
        await session.ask("Second")
    (transcript,) = live.home.config.glob(f"projects/*/{first}.jsonl")
    left = [message for message in sessions.get_session_messages(first) if message.type == "user"]
    assert [message.message["content"] for message in left] == ["Second"]
    assert '"First"' not in transcript.read_text().partition('"lastPrompt"')[0]


class Noting:
    """A store that notes what it is given."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Any]] = {}

    async def append(self, key: Any, entries: Any) -> None:
        self.entries.setdefault("/".join(key.values()), []).extend(entries)


@pytest.mark.needs("--session-mirror")
async def test_an_import_has_what_the_cli_would_have_mirrored(live: Live) -> None:
    mirrored: dict[str, list[Any]] = {}
    async with FakeMessagesAPI(delegating()) as api, live(api=api, env=FOREGROUND, session_mirror=True) as session:
        messages = await session.hear("Have somebody work")
        first = session_id(session)
        messages += await session.hear("And again")
    for message in messages:
        if isinstance(message, ct.messages.TranscriptMirror):
            mirrored.setdefault(message.file_path, []).extend(message.entries)
    store = Noting()
    await sessions.import_session_to_store(first, store)
    project = sessions.project_key_for_directory(live.home.project)
    assert {key.partition("/")[0] for key in store.entries} == {project}
    for path, entries in mirrored.items():
        key = path.partition("/projects/")[2].removesuffix(".jsonl")
        stored = {entry["uuid"] for entry in store.entries[key] if "uuid" in entry}
        assert {entry["uuid"] for entry in entries if "uuid" in entry} <= stored
    assert f"{project}/{first}" in store.entries
    subagents = [key for key in store.entries if "/subagents/agent-" in key]
    assert subagents
    assert all(store.entries[key][-1]["type"] == "agent_metadata" for key in subagents)
