"""Sessions of the real CLI: named, resumed, forked, continued, cleared, compacted and rewound, each process with its own Query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest
from live_session import PATIENCE, Live, LiveSession, of_type

import claude_transport as ct
from claude_transport import errors
from claude_transport.testing import FakeMessagesAPI, replies
from claude_transport.transports import options_to_resume

OWN_ID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def session_id(session: LiveSession) -> str:
    point = session.query.resume_point
    assert point is not None
    return point.session_id


def known(session: LiveSession) -> str:
    """Everything the model was told by its last request."""
    return str(session.api.conversation[-1].body["messages"])


async def test_a_session_has_the_id_that_was_chosen_for_it(live: Live) -> None:
    async with live(["Hello."], session_id=OWN_ID) as session:
        assert (await session.ask("Hello")).session_id == OWN_ID
        assert session_id(session) == OWN_ID
    with pytest.raises(errors.ClaudeTransportError, match=r"already in use"):
        async with live(["Hello."], session_id=OWN_ID):
            pass


async def test_a_reconnected_transport_goes_on_in_the_session_that_was_chosen_once_there_is_one(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]
) -> None:
    async with FakeMessagesAPI(["The word is xyzzy.", "It was xyzzy.", "Still."]) as api:
        options = ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api), env_mode="exact", session_id=OWN_ID)
        transport = ct.RetryingTransport(
            ct.SubprocessTransport(options), make_transport=lambda: ct.SubprocessTransport(options_to_resume(options))
        )
        heard = []
        with anyio.fail_after(PATIENCE):
            async with ct.Query(transport):
                pass  # nothing is said, so nothing is saved
            for prompt in ("Tell me a word", "Which one?", "Really?"):
                transport = await transport.reconnect()
                async with ct.Query(transport) as query:
                    result = await (await query.send(prompt)).result()
                    heard.append((result.session_id, result.result))
                    assert query.resume_point is not None
                    assert query.resume_point.session_id == OWN_ID
        assert heard == [(OWN_ID, "The word is xyzzy."), (OWN_ID, "It was xyzzy."), (OWN_ID, "Still.")]
        assert "The word is xyzzy." in str(api.conversation[-1].body["messages"])


async def test_a_session_that_is_not_saved_begins_again_when_its_transport_is_reconnected(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]
) -> None:
    async with FakeMessagesAPI(["The word is xyzzy.", "Which word?"]) as api:
        options = ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=cli_env(api), env_mode="exact", session_id=OWN_ID)
        unsaved = msgspec.structs.replace(options, no_session_persistence=True)
        first = ct.RetryingTransport(
            ct.SubprocessTransport(unsaved), make_transport=lambda: ct.SubprocessTransport(options_to_resume(unsaved))
        )
        with anyio.fail_after(PATIENCE):
            async with ct.Query(first) as query:
                await (await query.send("Tell me a word")).result()
            async with ct.Query(await first.reconnect()) as query:
                assert (await (await query.send("Which one?")).result()).session_id == OWN_ID
        assert "xyzzy" not in str(api.conversation[-1].body["messages"])


@pytest.mark.version_sensitive
async def test_a_resumed_session_knows_what_was_said_and_keeps_its_id(live: Live) -> None:
    async with live(["The word is xyzzy."]) as session:
        await session.ask("Tell me a word")
        first = session_id(session)
    async with live(["It was xyzzy."], resume=first) as session:
        assert (await session.ask("Which one?")).session_id == first
        assert "The word is xyzzy." in known(session)


async def test_a_leave_without_haste_lets_the_cli_save_its_session(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]
) -> None:
    async with FakeMessagesAPI(["The word is xyzzy.", "It was xyzzy."]) as api:
        ended = cli_home.project / "ended"
        at_the_end = {"hooks": [{"type": "command", "command": f"sleep 1.2; cat > {ended}"}]}  # more than a leave in haste takes in all
        options = ct.ClaudeOptions(
            cli_path=claude_cli,
            cwd=cli_home.project,
            env={**cli_env(api), "CLAUDE_CODE_SESSIONEND_HOOKS_TIMEOUT_MS": "20000"},
            env_mode="exact",
            session_id=OWN_ID,
            settings={"hooks": {"SessionEnd": [at_the_end]}},
        )
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.SubprocessTransport(options)) as query:
                await (await query.send("Tell me a word")).result()
            assert (query.info.exit_code, query.info.signal, ended.exists()) == (0, None, True)
            async with ct.Query(ct.SubprocessTransport(options_to_resume(options))) as query:
                assert (await (await query.send("Which one?")).result()).session_id == OWN_ID
        assert "The word is xyzzy." in str(api.conversation[-1].body["messages"])


async def test_a_fork_knows_what_was_said_and_leaves_the_original_alone(live: Live) -> None:
    async with live(["The word is xyzzy."]) as session:
        await session.ask("Tell me a word")
        original = session_id(session)
    async with live(["Forked."], resume=original, fork_session=True) as session:
        messages = await session.hear("A side branch")
        assert "The word is xyzzy." in known(session)
        assert session_id(session) != original
        forks = [(fork.expected, fork.actual, fork.requested) for fork in of_type(messages, ct.messages.SessionForked)]
        assert forks == [(original, session_id(session), True)]
    async with live(["Resumed."], resume=original) as session:
        await session.ask("Back again")
        assert "The word is xyzzy." in known(session)
        assert "A side branch" not in known(session)


@pytest.mark.needs("a continued session keeps its id")
async def test_continuing_takes_up_the_latest_session_of_the_directory(live: Live) -> None:
    async with FakeMessagesAPI(["Older.", "Newer.", "Continued."]) as api:
        for prompt in ("The older one", "The newer one"):
            async with live(api=api) as session:
                await session.ask(prompt)
                latest = session_id(session)
        async with live(api=api, continue_conversation=True) as session:
            assert (await session.ask("Go on")).session_id == latest
            assert "The newer one" in known(session)
            assert "The older one" not in known(session)


async def test_two_sessions_at_once_in_one_world_do_not_mix(live: Live) -> None:
    async with FakeMessagesAPI(lambda request: f"Re: {request.prompt}") as api, live(api=api) as one, live(api=api) as other:
        first, second = await one.query.send("one"), await other.query.send("other")
        results = await first.result(), await second.result()
    assert [result.result for result in results] == ["Re: one", "Re: other"]
    assert results[0].session_id != results[1].session_id


# ---------------------------------------------------------------------------------------------------------- /clear, /compact


@pytest.mark.needs("conversation_reset")
async def test_clearing_begins_a_session_that_knows_nothing_and_can_be_resumed(live: Live) -> None:
    async with live(["The word is xyzzy.", "Which word?"]) as session:
        before = (await session.ask("Tell me a word")).session_id
        messages: list[ct.Message] = []
        places: set[str | None] = set()
        async for message in await session.query.send("/clear"):
            messages.append(message)
            point = session.query.resume_point
            places.add(point and point.session_id)
        (reset,) = of_type(messages, ct.ConversationReset)
        (result,) = of_type(messages, ct.ResultMessage)
        assert (reset.trigger, result.num_turns, result.is_error) == ("clear", 0, False)
        after = session_id(session)
        assert after == result.session_id != before
        assert places <= {before, None, after}  # at no moment a session that nobody could resume
        await session.ask("Which word was it?")
        assert "xyzzy" not in known(session)
    async with live(["I do not know it."], resume=after) as session:
        assert (await session.ask("Once more?")).session_id == after
        assert "Which word was it?" in known(session)
        assert "xyzzy" not in known(session)


@pytest.mark.needs("compaction by the command /compact")
async def test_a_compaction_puts_a_summary_in_the_place_of_what_was_said(live: Live) -> None:
    async with live(["The word is xyzzy.", "Next."]) as session:
        before = (await session.ask("Tell me a word")).session_id
        messages = await session.hear("/compact")
        (boundary,) = of_type(messages, ct.messages.CompactBoundary)
        statuses = [(status.status, status.compact_result) for status in of_type(messages, ct.messages.StatusMessage)]
        assert boundary.compact_metadata.trigger == "manual"
        assert statuses == [("compacting", None), (None, "success")]
        assert (await session.ask("Go on")).session_id == before
        assert "The user talked to a fake Messages API." in known(session)
        assert "The word is xyzzy." not in known(session)


@pytest.mark.needs("compaction by the command /compact")
@pytest.mark.needs("--autocompact")
async def test_a_full_context_is_compacted_by_itself_within_the_turn(live: Live) -> None:
    full = replies.text("Much.", usage=replies.Usage(input_tokens=190_000, output_tokens=10))
    async with live([full, "Next."], model="claude-haiku-4-5", autocompact=100_000) as session:
        await session.ask("First")
        messages = await session.hear("Second")
    assert [boundary.compact_metadata.trigger for boundary in of_type(messages, ct.messages.CompactBoundary)] == ["auto"]
    assert [result.result for result in of_type(messages, ct.ResultMessage)] == ["Next."]


# ---------------------------------------------------------------------------------------------------------------- going back


async def test_files_go_back_to_the_second_prompt_and_then_to_the_first(live: Live) -> None:
    target = live.home.project / "w.txt"
    target.write_text("original\n")
    edit = [replies.tool_use("Read", {"file_path": str(target)})]
    for old, new in (("original", "first"), ("first", "second")):
        edit += [replies.tool_use("Edit", {"file_path": str(target), "old_string": old, "new_string": new}), replies.text("Done.")]
    async with live(edit, enable_file_checkpointing=True, permission_mode="acceptEdits") as session:
        await session.ask("First edit", uuid=FIRST)
        await session.ask("Second edit", uuid=SECOND)
        assert target.read_text() == "second\n"
        assert (await session.query.rewind_files(SECOND)).can_rewind
        assert target.read_text() == "first\n"
        assert (await session.query.rewind_files(FIRST)).can_rewind
        assert target.read_text() == "original\n"


async def test_a_session_resumed_at_a_message_forgets_what_came_after(live: Live) -> None:
    async with live(["Aye.", "Bee."]) as session:
        await session.ask("The earlier prompt")
        point = session.query.resume_point
        await session.ask("The later prompt")
    assert point is not None
    async with live(["Other."], resume=point.session_id, resume_session_at=point.last_uuid) as session:
        await session.ask("Instead")
        assert "The earlier prompt" in known(session)
        assert "The later prompt" not in known(session)


async def test_the_context_that_is_used_grows_with_the_conversation(live: Live) -> None:
    async with live(["One.", "Two."]) as session:
        before = await session.query.context_usage()
        await session.ask("word " * 5000)
        after = await session.query.context_usage()
    assert after.total_tokens > before.total_tokens
    assert after.percentage >= before.percentage
    assert {category.name for category in after.categories} >= {"Messages"}
