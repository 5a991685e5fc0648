"""What prompts carry on the real CLI: images and documents beside text, and megabytes."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from live_session import Live, LiveSession

import claude_transport as ct
from claude_transport.testing import replies

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
MEGABYTE = 2**20


def blocks_of(session: LiveSession, kind: str) -> list[Any]:
    """The content blocks of this type that the API was given by its last request."""
    messages = session.api.conversation[-1].body["messages"]
    return [block for message in messages if isinstance(message["content"], list) for block in message["content"] if block["type"] == kind]


async def test_an_image_reaches_the_model_beside_the_text(live: Live) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    async with live(["A pixel."]) as session:
        result = await session.ask([{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}])
        (image,) = blocks_of(session, "image")
        assert "What is this?" in session.api.conversation[-1].prompt
    assert result.result == "A pixel."
    assert (image["source"]["type"], image["source"]["media_type"]) == ("base64", "image/png")
    assert base64.b64decode(image["source"]["data"])[:4] == b"\x89PNG"


async def test_a_document_reaches_the_model_beside_the_text(live: Live) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "The key is under the mat."}
    async with live(["Under the mat."]) as session:
        await session.ask([{"type": "document", "source": source}, {"type": "text", "text": "Where is the key?"}])
        (document,) = blocks_of(session, "document")
    assert document["source"]["data"] == "The key is under the mat."


async def test_an_image_that_a_tool_has_read_comes_back_typed(live: Live) -> None:
    target = live.home.project / "pixel.png"
    target.write_bytes(base64.b64decode(PIXEL))
    async with live([replies.tool_use("Read", {"file_path": str(target)}), "A pixel."]) as session:
        messages = await session.hear("Look at it")
    results = [block for message in messages if isinstance(message, ct.UserMessage) for block in message.tool_results]
    assert isinstance(results[0].content, tuple)
    assert [type(block) for block in results[0].content] == [ct.messages.ImageBlock]


@pytest.mark.needs("long prompts in one block")
async def test_two_megabytes_of_prompt_reach_the_model_whole(live: Live) -> None:
    async with live(["Read."]) as session:
        result = await session.ask("x" * (2 * MEGABYTE) + " and the end")
        (request,) = session.api.conversation
        assert request.prompt.endswith("x and the end")
    assert len(request.prompt) == 2 * MEGABYTE + len(" and the end")
    assert result.raise_for_error().result == "Read."


async def test_every_character_arrives_as_it_was(live: Live) -> None:
    strange = "begin \u2028 \u2029 \u0085 \U0001f600 é \t \\ \" ' </s> \u0000 end"
    async with live(lambda request: request.prompt) as session:
        messages = await session.hear(strange)
        assert session.api.conversation[0].prompt == strange
    assert [message.text for message in messages if isinstance(message, ct.AssistantMessage)] == [strange]
