"""What may be sent, under which name; and what a query says of itself."""

from __future__ import annotations

import uuid
from typing import Any

import anyio
import pytest
from peers import ForeignTransport, Frame, permission, result, said, soon

from claude_transport import Allow, ConnectionLost, Query, TurnState, UsageError


def answering() -> ForeignTransport:
    """A peer that names the prompt of each result, as the CLI does."""

    def answer(frame: Frame) -> None:
        if frame["type"] == "user":
            transport.say(result(user_message_uuids=[frame["uuid"]]))

    transport = ForeignTransport(on_write=answer)
    return transport


@pytest.mark.parametrize("name", ["11111111-2222-4222-8222-333333333333", "not-a-uuid", " ", uuid.UUID(int=7)], ids=repr)
async def test_a_prompt_is_found_again_under_the_name_it_was_given(name: str | uuid.UUID) -> None:
    transport = answering()
    async with Query(transport) as query:
        turn = await query.send("a", uuid=name)
        assert (await turn.result()).result == "done"
        assert (turn.uuid, turn.state, transport.prompts()[0]["uuid"]) == (str(name), TurnState.DONE, str(name))
        with pytest.raises(UsageError, match="was sent before"):
            await query.send("b", uuid=str(name))


@pytest.mark.parametrize("name", ["", 7, b"x", ["x"]], ids=repr)
async def test_a_name_that_would_not_come_back_is_refused_and_nothing_is_sent(name: Any) -> None:
    transport = answering()
    async with Query(transport) as query:
        with pytest.raises(UsageError, match="uuid"):
            await query.send("a", uuid=name)
        assert (transport.prompts(), query.open_turns) == ([], ())


@pytest.mark.parametrize("content", ["", "  ", [], [{"type": "text", "text": ""}]], ids=repr)
async def test_empty_content_is_a_prompt_like_any_other(content: Any) -> None:
    transport = answering()
    async with Query(transport) as query:
        assert (await (await query.send(content)).result()).result == "done"
        assert transport.prompts()[0]["message"]["content"] == content


async def test_a_query_says_how_it_is() -> None:
    decide = anyio.Event()

    async def ask_a_human(*_: Any) -> Allow:
        await decide.wait()
        return Allow()

    transport = ForeignTransport(ends=False)
    query = Query(transport, can_use_tool=ask_a_human)
    assert repr(query) == "<Query over ForeignTransport: not started>"
    await query.start()
    assert repr(query) == "<Query over ForeignTransport: ready>"
    turn = await query.send("a secret")
    transport.say(said("secret"), permission())
    await soon(lambda: query.pending_questions)
    assert repr(query) == f"<Query over ForeignTransport: ready, 1 open turns, 1 pending questions, {query.buffered_bytes} buffered bytes>"
    assert query.buffered_bytes > 0
    query.abandon(timeout=0.01)
    assert repr(query).startswith("<Query over ForeignTransport: closing, 1 open turns")
    decide.set()
    await query.aclose()
    assert repr(query).startswith("<Query over ForeignTransport: closed")
    assert turn.state is TurnState.LOST


async def test_a_query_that_could_not_start_says_so() -> None:
    transport = ForeignTransport(answers=False)
    transport.finish()
    query = Query(transport)
    with pytest.raises(ConnectionLost):
        await query.start()
    assert repr(query) == "<Query over ForeignTransport: failed to start>"


async def test_a_query_whose_peer_is_gone_says_that_it_has_ended() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        transport.finish()
        await soon(lambda: query.has_ended)
        assert repr(query) == "<Query over ForeignTransport: ended>"
    assert repr(query) == "<Query over ForeignTransport: closed>"


async def test_a_query_that_was_closed_unused_says_so() -> None:
    query = Query(ForeignTransport())
    query.abandon()
    assert repr(query) == "<Query over ForeignTransport: closed>"
