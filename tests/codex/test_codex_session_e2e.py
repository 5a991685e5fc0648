"""`CodexSession` with the real binary, in empty homes, on a Responses API that a test plays."""

from __future__ import annotations

import anyio
import pytest

from claude_transport import SubprocessTransport
from claude_transport.codex import CodexOptions, CodexSession
from claude_transport.testing import FakeResponsesAPI, replies

pytestmark = pytest.mark.e2e


async def test_a_prompt_is_answered(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.text("Hello, world")])
    with anyio.fail_after(30):
        async with CodexSession(SubprocessTransport(codex_options)) as session:
            turn = await session.send("Say hello")
            kinds = [message.type async for message in turn]
            result = await turn.result()
    assert result.status == "completed"
    assert result.text == turn.text == "Hello, world"
    assert kinds[-1] == "turn/completed"
    print(kinds, result)
