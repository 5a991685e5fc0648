"""What type checkers know of a conversation: read by mypy and pyright, run by nobody."""

from __future__ import annotations

from typing import Any, assert_type

import claude_transport as ct
from claude_transport.codex import CodexOptions


async def decide(tool_name: str, tool_input: dict[str, Any], context: ct.client.CallbackContext) -> ct.Allow | ct.Deny:
    return ct.Allow() if context.tool_use_id and tool_name in tool_input else ct.Deny()


async def turns() -> None:
    async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(model="haiku")), can_use_tool=decide) as query:
        assert_type(query, ct.Query)
        turn = await query.send("Hello")
        assert_type(turn, ct.Turn)
        assert_type(turn.state, ct.TurnState)
        assert_type(turn.uuid, str)
        async for message in turn:
            assert_type(message, ct.Message)
            if isinstance(message, ct.AssistantMessage):
                assert_type(message.text, str)
                assert_type(message.raw, bytes)
                assert_type(message.to_dict(), dict[str, Any])
        result = await turn.result()
        assert_type(result, ct.ResultMessage)
        assert_type(result.outcome, ct.Outcome)
        assert_type(await query.interrupt(), ct.InterruptOutcome)
        assert_type(await query.request("anything"), dict[str, Any])
        assert_type(query.resume_point, ct.client.ResumePoint | None)
        assert_type(query.initialization, ct.control.InitializationInfo)
        assert_type(query.info, ct.TransportInfo)
        async for message in query:
            assert_type(message, ct.Message)
        assert_type(await query.aclose(), ct.CloseReport)


async def one_shot() -> None:
    assert_type(ct.query("Hello"), ct.completion.OneShot)
    async for message in ct.query("Hello", can_use_tool=decide, max_buffered_bytes=10, watchdog=None):
        assert_type(message, ct.Message)
    ct.query("Hello", can_use_tol=decide)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ct.query("Hello", max_buffered_bytes="many")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def one_call() -> None:
    assert_type(await ct.complete("Hello"), ct.Completion)
    by_codex = await ct.complete("Hello", agent="codex", codex=CodexOptions(sandbox="read-only"), declared={"agent": "auto"})
    assert_type(by_codex.agent, str)
    assert_type(ct.resolve_agent("auto", env={}).kind, str)
    async for delta in ct.stream("Hello"):
        assert_type(delta, str)


async def other_agents(transport: ct.Transport) -> None:
    async def answer(request: ct.jsonrpc.Request) -> object:
        return {"asked": request.method}

    async with ct.JSONRPCPeer(transport, on_request=answer, cancel=ct.jsonrpc.ACP_CANCEL) as peer:
        assert_type(peer, ct.JSONRPCPeer)
        assert_type(await peer.request("initialize", {"protocolVersion": 1}, timeout=5), Any)
        async for notification in peer.notifications():
            assert_type(notification, ct.jsonrpc.Notification)
            assert_type(notification.method, str)
        assert_type(peer.counters, ct.jsonrpc.JSONRPCCounters)
        assert_type(await peer.ended(), ct.ClaudeTransportError | None)
    ct.JSONRPCPeer(transport, on_request=print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def options_handed_on() -> ct.Query:
    known: ct.client.QueryOptions = {"can_use_tool": decide, "initialize_timeout": 1.0}
    known["initialise_timeout"] = 1.0  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportGeneralTypeIssues]
    return ct.Query(ct.MockTransport(), **known)
