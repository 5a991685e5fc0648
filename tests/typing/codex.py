"""What type checkers know of a conversation with Codex: read by mypy and pyright, run by nobody."""

from __future__ import annotations

from typing import Any, assert_type

import claude_transport as ct
from claude_transport import codex


async def decide(request: codex.ApprovalRequest) -> codex.ApprovalDecision:
    if isinstance(request, codex.CommandApproval):
        assert_type(request.command, str | None)
    return "accept_for_session"


async def word(_: codex.ApprovalRequest) -> str:
    return "yes"


async def turns() -> None:
    async with codex.CodexSession(ct.SubprocessTransport(codex.CodexOptions()), on_approval=decide, resume="id") as session:
        assert_type(session, codex.CodexSession)
        assert_type(session.thread_id, str)
        turn = await session.send("Hello", effort="low")
        assert_type(turn, codex.CodexTurn)
        async for message in turn:
            assert_type(message, codex.CodexNotification)
            if isinstance(message, codex.AgentMessageDelta):
                assert_type(message.delta, str)
        async for piece in turn.new_text():
            assert_type(piece, str)
        result = await turn.result()
        assert_type(result, codex.CodexTurnResult)
        assert_type(result.error, ct.ResultError | None)
        assert_type(result.usage.cached_input_tokens, int)
        assert_type(result.text, str)
        assert_type(await session.interrupt(), ct.InterruptOutcome)
        assert_type(await session.fork(), codex.CodexThread)
        assert_type(await session.start_thread(), codex.CodexThread)
        assert_type(await session.request("model/list"), Any)
        async for message in session.messages():
            assert_type(message, codex.CodexNotification)
        assert_type(await session.aclose(), codex.CodexCloseReport)


def wrong(transport: ct.Transport) -> None:
    codex.CodexSession(transport, on_approval=word)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    codex.CodexSession(transport, on_aproval=decide)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(codex.decode_message(b"{}").to_dict(), dict[str, Any])
