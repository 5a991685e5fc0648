"""A session that is over is freed at once: nothing of it waits for the garbage collector, in no ring of references."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import claude_transport as ct
from claude_transport.client.tools import create_sdk_mcp_server
from claude_transport.testing import FakeClaude, Scenario
from tests.small_peer import small_peer


async def left_by(use: Callable[[], Awaitable[object]]) -> Counter[str]:
    """Run `use` twice. Return the objects of this package, by class, that only the garbage collector could free after the second time."""
    await use()  # what is made once in a process is made now
    gc.collect()
    gc.disable()
    there = gc.get_objects()  # what other tests have left may become free in between: it is none of what `use` leaves
    try:
        await use()
        await anyio.wait_all_tasks_blocked()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("claude_transport"))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        there.clear()
        gc.enable()


@pytest.fixture
async def fake() -> AsyncIterator[FakeClaude]:
    with FakeClaude(Scenario.echo()) as fake, anyio.fail_after(60):
        yield fake


async def test_a_session_that_was_opened_and_closed(tmp_path: Path) -> None:
    peer = small_peer(tmp_path)

    async def use() -> None:
        async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=peer))):
            pass

    assert await left_by(use) == {}


async def test_a_session_whose_process_was_still_at_work() -> None:
    async def use() -> None:
        transport = ct.SubprocessTransport(command=["sleep", "1000"], close_timeout=0.1)
        await transport.connect()
        await transport.close()

    assert await left_by(use) == {}


async def test_a_turn(fake: FakeClaude) -> None:
    async def use() -> None:
        async with ct.Query(ct.SubprocessTransport(command=fake.command)) as query:
            turn = await query.send("hello")
            async for _ in turn:
                pass
            await turn.result()
            await query.set_permission_mode("plan")

    assert await left_by(use) == {}


async def test_a_turn_whose_prompt_was_passed_by_a_request(fake: FakeClaude) -> None:
    class Slow(ct.TransportWrapper):
        async def write(self, data: str | bytes) -> None:
            if b'"user"' in (data.encode() if isinstance(data, str) else data):
                await passed.wait()
            await super().write(data)
            passed.set()

    async def use() -> None:
        nonlocal passed
        async with ct.Query(Slow(ct.SubprocessTransport(command=fake.command))) as query:
            passed = anyio.Event()

            async def talk() -> None:
                await (await query.send("hello")).result()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk)
                await anyio.wait_all_tasks_blocked()
                await query.set_permission_mode("plan")

    passed = anyio.Event()
    assert await left_by(use) == {}


async def test_a_session_with_callbacks_hooks_and_tools(fake: FakeClaude) -> None:
    async def allow(*_: Any) -> ct.Allow:
        return ct.Allow()

    async def hook(*_: Any) -> dict[str, Any]:
        return {}

    async def use() -> None:
        server = create_sdk_mcp_server("calculator")
        transport = ct.SubprocessTransport(command=fake.command)
        hooks = {"PreToolUse": [ct.HookMatcher(hooks=[hook])]}
        async with ct.Query(transport, can_use_tool=allow, hooks=hooks, mcp_servers={"calculator": server}) as query:
            messages = query.messages()
            await query.send("hello")
            async for message in messages:
                if isinstance(message, ct.ResultMessage):
                    break

    # the package `mcp` keeps the end that it writes to in a ring of its own; this end has let go of the session
    assert await left_by(use) == {"_ToCli": 1}


async def test_the_one_call(fake: FakeClaude) -> None:
    async def use() -> None:
        async for _ in ct.query(prompt="hello", options=ct.ClaudeOptions(cli_path=fake.path)):
            pass

    assert await left_by(use) == {}


async def test_wrappers_and_a_mock() -> None:
    async def use() -> None:
        mock = ct.MockTransport(responses=[])
        async with ct.LoggingTransport(ct.MetricsTransport(mock)) as transport:
            await transport.write("{}")

    assert await left_by(use) == {}
