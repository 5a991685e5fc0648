"""The anthropic SDK takes the fake Messages API for the real one, on asyncio and on trio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, TextBlock, ThinkingBlock, ToolUseBlock

from claude_transport.testing import FakeMessagesAPI, replies

ASK: dict[str, Any] = {"model": "claude-haiku-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
async def sdk(fake_messages_api: FakeMessagesAPI) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=fake_messages_api.url, api_key="sk-ant-fake", max_retries=0) as client:
        yield client


async def ask(sdk: anthropic.AsyncAnthropic, *, streamed: bool) -> Message:
    if not streamed:
        message: Message = await sdk.messages.create(**ASK)
        return message
    async with sdk.messages.stream(**ASK) as stream:
        return await stream.get_final_message()


EVERYTHING = replies.message(
    replies.thinking_block("Let me think about this for more than one delta."),
    replies.text_block("I look it up.\nÄ 😀"),
    replies.tool_use_block("Bash", input={"command": "ls", "deep": [1, {"x": None}]}),
    replies.tool_use_block("Read", id="toolu_mine"),
    usage=replies.Usage(input_tokens=7, output_tokens=5, cache_read_input_tokens=3, cache_creation_input_tokens=2),
)


@pytest.mark.parametrize("streamed", [True, False])
async def test_every_kind_of_block_arrives_streamed_as_whole(
    fake_messages_api: FakeMessagesAPI, sdk: anthropic.AsyncAnthropic, streamed: bool
) -> None:
    fake_messages_api.replace([EVERYTHING])
    message = await ask(sdk, streamed=streamed)
    thinking, text, bash, read = message.content
    assert isinstance(thinking, ThinkingBlock)
    assert thinking.thinking == "Let me think about this for more than one delta."
    assert thinking.signature
    assert isinstance(text, TextBlock)
    assert text.text == "I look it up.\nÄ 😀"
    assert isinstance(bash, ToolUseBlock)
    assert bash.input == {"command": "ls", "deep": [1, {"x": None}]}
    assert isinstance(read, ToolUseBlock)
    assert (read.id, read.input) == ("toolu_mine", {})
    assert message.stop_reason == "tool_use"
    assert message.model == "claude-haiku-5-5"
    usage = message.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (7, 5, 3, 2)
    assert fake_messages_api.requests[0].credential != "none"  # x-api-key, or a bearer token in newer versions
    assert fake_messages_api.requests[0].stream is streamed


async def test_text_is_streamed_in_the_deltas_asked_for(fake_messages_api: FakeMessagesAPI, sdk: anthropic.AsyncAnthropic) -> None:
    fake_messages_api.replace(
        [replies.text("one two three", chunks=["one ", "two ", "three"]), replies.text("x" * 10, chunks=3), "y" * 100]
    )
    deltas = []
    for _ in range(3):
        async with sdk.messages.stream(**ASK) as stream:
            deltas.append([delta async for delta in stream.text_stream])
    assert deltas == [["one ", "two ", "three"], ["xxxx", "xxxx", "xx"], ["y" * 25] * 4]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (400, anthropic.BadRequestError),
        (401, anthropic.AuthenticationError),
        (403, anthropic.PermissionDeniedError),
        (404, anthropic.NotFoundError),
        (429, anthropic.RateLimitError),
        (500, anthropic.InternalServerError),
        (529, anthropic.OverloadedError),  # an InternalServerError only in newer releases
    ],
)
async def test_errors_become_the_exceptions_of_the_sdk(
    fake_messages_api: FakeMessagesAPI, sdk: anthropic.AsyncAnthropic, status: int, raised: type[anthropic.APIStatusError], streamed: bool
) -> None:
    fake_messages_api.replace(replies.error(status, message="as scripted", headers={"retry-after": "1"}))
    with pytest.raises(raised, match="as scripted") as caught:
        await ask(sdk, streamed=streamed)
    assert caught.value.status_code == status
    assert caught.value.response.headers["retry-after"] == "1"
    assert caught.value.request_id


# On trio the SDK (2.11) and its HTTP client leave async generators to the garbage collector when a stream fails; not our business.
@pytest.mark.filterwarnings("ignore:Async generator '(anthropic|httpx|httpcore):ResourceWarning")
async def test_an_error_in_the_middle_of_a_stream_is_raised_there(
    fake_messages_api: FakeMessagesAPI, sdk: anthropic.AsyncAnthropic
) -> None:
    fake_messages_api.replace(replies.sse_error(after_events=4))
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        await ask(sdk, streamed=True)
    with pytest.raises(anthropic.APIStatusError, match="Overloaded") as caught:
        await ask(sdk, streamed=False)
    assert caught.value.status_code == 529


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("after_events", [0, 4])
async def test_a_cut_connection_is_a_connection_error(
    fake_messages_api: FakeMessagesAPI, sdk: anthropic.AsyncAnthropic, streamed: bool, after_events: int
) -> None:
    fake_messages_api.replace([replies.cut(after_events=after_events), "whole"])
    with pytest.raises(Exception, match=r"(?i)connection|peer closed|disconnected"):
        await ask(sdk, streamed=streamed)
    assert fake_messages_api.requests[0].outcome == "cut"
    assert (await ask(sdk, streamed=streamed)).stop_reason == "end_turn"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("reply", "stop_reason", "blocks"),
    [(replies.empty(), "end_turn", 0), (replies.refusal(category="cyber"), "refusal", 0), (replies.max_tokens("cut"), "max_tokens", 1)],
)
async def test_messages_may_stop_for_other_reasons(
    fake_messages_api: FakeMessagesAPI,
    sdk: anthropic.AsyncAnthropic,
    reply: replies.MessageReply,
    stop_reason: str,
    blocks: int,
    streamed: bool,
) -> None:
    fake_messages_api.replace(reply)
    message = await ask(sdk, streamed=streamed)
    assert (message.stop_reason, len(message.content)) == (stop_reason, blocks)


async def test_two_megabytes_arrive_whole(fake_messages_api: FakeMessagesAPI, sdk: anthropic.AsyncAnthropic) -> None:
    fake_messages_api.replace(replies.huge(2_000_000))
    (block,) = (await sdk.messages.create(**ASK)).content
    assert isinstance(block, TextBlock)
    assert len(block.text) == 2_000_000


async def test_tokens_are_counted_and_models_listed(sdk: anthropic.AsyncAnthropic) -> None:
    assert (await sdk.messages.count_tokens(model="claude-haiku-5-5", messages=ASK["messages"])).input_tokens > 0
    assert [model.id async for model in sdk.models.list()][-1] == "claude-haiku-5-5"
