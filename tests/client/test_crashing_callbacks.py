"""A callback that raises what is no `Exception` denies, and ends the conversation with that as the cause. Ctrl-C goes to the program."""

from __future__ import annotations

import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from peers import ForeignTransport, Frame, in_time, permission, soon
from virtual_time import virtual_time

from claude_transport import HookMatcher, Query
from claude_transport.errors import UsageError

KINDS = ["permission", "hook", "request"]
Callback = Callable[..., Awaitable[Any]]


class Abort(BaseException):
    """Not an `Exception`, as the ones of test frameworks and of `gevent` are not."""


def arguments(kind: str, callback: Callback) -> dict[str, Any]:
    return {
        "permission": {"can_use_tool": callback},
        "hook": {"hooks": {"PreToolUse": [HookMatcher(hooks=[callback])]}},
        "request": {"on_request": callback},
    }[kind]


def question(kind: str) -> Frame:
    if kind == "permission":
        return permission("q1")
    body: Frame = {"subtype": "from_the_future"}
    if kind == "hook":
        body = {"subtype": "hook_callback", "callback_id": "hook_0", "input": {"hook_event_name": "PreToolUse"}, "tool_use_id": "t"}
    return {"type": "control_request", "request_id": "q1", "request": body}


def denied(kind: str, transport: ForeignTransport) -> bool:
    """Whether the peer was told no."""
    reply = transport.responses()["q1"]
    if kind == "permission":
        return bool(reply["response"]["behavior"] == "deny")
    if kind == "hook":
        return bool(reply["response"]["hookSpecificOutput"]["permissionDecision"] == "deny")
    return bool(reply["subtype"] == "error")


@pytest.fixture(autouse=True)
def _nothing_is_left_to_asyncio(caplog: pytest.LogCaptureFixture) -> Any:
    """What asyncio complains of when it throws a task away, it logs."""
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        yield
        gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [Abort, GeneratorExit, lambda: BaseExceptionGroup("several", [ValueError(), Abort()])])
async def test_the_peer_is_told_no_and_the_conversation_ends_with_the_cause(kind: str, make: Callable[[], BaseException]) -> None:
    crash = make()

    async def callback(*_: object) -> Any:
        raise crash

    transport = ForeignTransport()
    query = Query(transport, **arguments(kind, callback))
    await query.start()
    everything = query.messages()
    turn = await query.send("Hello")
    transport.say(question(kind))
    with pytest.raises(UsageError) as caught:
        await in_time(turn.result())
    assert (caught.value.code, caught.value.__cause__) == ("usage.callback_failed", crash)
    assert type(crash).__name__ in str(caught.value)
    with pytest.raises(UsageError) as again:
        await in_time(anext(everything))
    assert (again.value.code, again.value.__cause__) == ("usage.callback_failed", crash)
    report = await in_time(query.aclose())
    assert (report.ended_by_itself, report.lost_turns, query.failed_callbacks, query.pending_questions) == (False, (turn.uuid,), 1, ())
    assert denied(kind, transport)
    said = [frame["type"] for frame in transport.written[2:]]
    assert said == ["control_response", "control_request"] if kind == "hook" else ["control_response"], "no, and a guarded turn stops"
    assert transport.calls[-1] == "close"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_of_ordinary_errors_and_a_cancellation_is_an_ordinary_failure(kind: str) -> None:
    async def callback(*_: object) -> Any:
        cancelled: list[BaseException] = []
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await anyio.lowlevel.checkpoint()
            except BaseException as exc:
                cancelled.append(exc)
                raise
        raise BaseExceptionGroup("several", [ValueError(), *cancelled])

    transport = ForeignTransport()
    async with Query(transport, **arguments(kind, callback)) as query:
        transport.say(question(kind))
        await soon(lambda: "q1" in transport.responses())
        assert (denied(kind, transport), query.failed_callbacks) == (True, 1)
        assert await query.request("still_there") == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_callback_that_raises_a_group_when_it_is_withdrawn_ends_nothing(kind: str) -> None:
    asked = anyio.Event()

    async def fails() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("instead")

    async def callback(*_: object) -> Any:
        asked.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fails)
            tasks.start_soon(anyio.sleep_forever)

    transport = ForeignTransport()
    async with Query(transport, **arguments(kind, callback)) as query:
        transport.say(question(kind))
        await in_time(asked.wait())
        transport.say({"type": "control_cancel_request", "request_id": "q1"})
        await soon(lambda: not query.pending_questions)
        assert await query.request("still_there") == {}
        assert transport.responses() == {}


async def test_a_crash_while_the_query_is_being_closed_does_not_hinder_it() -> None:
    asked = anyio.Event()

    async def callback(*_: object) -> Any:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise Abort

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=callback):
        transport.say(permission("q1"))
        await in_time(asked.wait())
    assert transport.calls[-1] == "close"


@virtual_time
async def test_a_peer_that_takes_no_answer_any_more_does_not_hinder_the_end() -> None:
    stuck = anyio.Event()

    class Stuck(ForeignTransport):
        async def write(self, data: str) -> None:
            if '"control_response"' in data:
                await stuck.wait()
            await super().write(data)

    async def callback(*_: object) -> Any:
        raise Abort

    transport = Stuck()
    query = Query(transport, can_use_tool=callback)
    await query.start()
    turn = await query.send("Hello")
    transport.say(permission("q1"))
    with pytest.raises(UsageError, match="Abort"):
        await in_time(turn.result())
    stuck.set()
    await in_time(query.aclose())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("crash", [KeyboardInterrupt(), SystemExit(3), BaseExceptionGroup("several", [SystemExit(3)])])
def test_what_is_meant_for_the_program_goes_to_the_program(
    backend: str, kind: str, crash: BaseException, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    transports: list[ForeignTransport] = []

    async def callback(*_: object) -> Any:
        raise crash

    async def main() -> None:
        transport = ForeignTransport()
        transports.append(transport)
        async with Query(transport, **arguments(kind, callback)) as query:
            turn = await query.send("Hello")
            transport.say(question(kind))
            await turn.result()

    wanted = KeyboardInterrupt if isinstance(crash, KeyboardInterrupt) else SystemExit
    with pytest.raises(wanted) as caught:
        anyio.run(main, backend=backend)
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 3
    (transport,) = transports
    assert denied(kind, transport)
    assert transport.calls[-1] == "close"
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert "never retrieved" not in capfd.readouterr().err


async def test_a_tool_of_this_program_that_crashes_costs_its_server_and_not_the_conversation() -> None:
    pytest.importorskip("mcp")
    from mcp.server import MCPServer
    from mcp_peers import HELLO

    server = MCPServer("box")

    @server.tool()
    async def tool() -> str:
        raise Abort

    def mcp(message: Frame, request_id: str) -> Frame:
        body = {"subtype": "mcp_message", "server_name": "box", "message": {"jsonrpc": "2.0", **message}}
        return {"type": "control_request", "request_id": request_id, "request": body}

    transport = ForeignTransport()
    async with Query(transport, mcp_servers={"box": server}) as query:
        transport.say(mcp({"id": 0, "method": "initialize", "params": HELLO}, "hello"))
        await soon(lambda: "hello" in transport.responses())
        transport.say(mcp({"id": 2, "method": "tools/call", "params": {"name": "tool", "arguments": {}}}, "q1"))
        await soon(lambda: "q1" in transport.responses())
        assert transport.responses()["q1"]["response"]["mcp_response"]["error"]["message"] == "the server 'box' has ended"
        assert await query.request("still_there") == {}
        assert query.failed_callbacks == 1


LEAVES: list[tuple[str, type[BaseException]]] = [
    ("asyncio", SystemExit),
    ("asyncio", KeyboardInterrupt),
    ("trio", KeyboardInterrupt),  # of an exit, trio has a log alone: its background tasks cannot end the program
]


@pytest.mark.parametrize(("backend", "kind"), LEAVES)
def test_a_tool_of_this_program_that_ends_the_program_ends_it(backend: str, kind: type[BaseException]) -> None:
    pytest.importorskip("mcp")
    from mcp.server import MCPServer
    from mcp_peers import HELLO

    server = MCPServer("box")

    @server.tool()
    async def tool() -> str:
        raise kind

    def mcp(message: Frame, request_id: str) -> Frame:
        body = {"subtype": "mcp_message", "server_name": "box", "message": {"jsonrpc": "2.0", **message}}
        return {"type": "control_request", "request_id": request_id, "request": body}

    async def main() -> None:
        transport = ForeignTransport()
        async with Query(transport, mcp_servers={"box": server}):
            transport.say(mcp({"id": 0, "method": "initialize", "params": HELLO}, "hello"))
            await soon(lambda: "hello" in transport.responses())
            transport.say(mcp({"id": 2, "method": "tools/call", "params": {"name": "tool", "arguments": {}}}, "q1"))
            await in_time(anyio.sleep_forever())

    with pytest.raises(kind):
        anyio.run(main, backend=backend)
