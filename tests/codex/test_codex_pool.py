"""A pool of Codex: each use has a process and a thread of its own, started ahead, and nothing of it is left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from claude_transport import ClaudeOptions
from claude_transport.codex import CodexOptions, CodexPool
from claude_transport.codex.testing.scenario import RunCommand, Say
from claude_transport.errors import CLIConnectionError, ConfigurationError, ConnectTimeout, NotConnected, TransportClosed
from claude_transport.testing import CodexScenario, FakeCodex
from claude_transport.transport import TransportLike
from claude_transport.transports.subprocess import SubprocessTransport

PATIENCE = 60.0  # seconds; a hang fails instead of hanging the suite


@asynccontextmanager
async def pooled(fake: FakeCodex, **settings: Any) -> AsyncIterator[CodexPool]:
    with anyio.fail_after(PATIENCE):
        async with CodexPool(CodexOptions(codex_path=fake.path), **settings) as pool:
            yield pool


async def test_a_session_is_ready_before_it_is_needed_and_serves_one_use() -> None:
    with FakeCodex() as fake:
        async with pooled(fake, warm=1, cap=2) as pool:
            await pool.warm_up()
            assert pool.snapshot().idle == 1
            threads = []
            for prompt in ("one", "two"):
                async with pool.acquire() as session:
                    result = await (await session.send(prompt)).result()
                    assert result.text == prompt
                    threads.append(session.thread_id)
                assert session.has_ended or pool.snapshot().ending
        assert len(set(threads)) == 2
        assert [call.prompts for call in fake.calls() if call.prompts] == [["one"], ["two"]]
        snapshot = pool.snapshot()
        assert (snapshot.live, snapshot.handed_out, snapshot.handed_out_warm) == (0, 2, snapshot.handed_out_warm)
        assert snapshot.retired["used"] == 2


async def test_one_use_may_decide_about_approvals_by_itself() -> None:
    asked: list[str] = []

    async def pool_decides(_: object) -> Any:
        asked.append("pool")
        return "decline"

    async def user_decides(_: object) -> Any:
        asked.append("user")
        return "accept"

    with FakeCodex(CodexScenario.turns([[RunCommand(command="touch made", ask=True), Say(text="done")]])) as fake:
        async with pooled(fake, on_approval=pool_decides) as pool:
            async with pool.acquire(on_approval=user_decides) as session:
                await (await session.send("go")).result()
            async with pool.acquire() as session:
                await (await session.send("go")).result()
    assert asked == ["user", "pool"]


async def test_a_full_pool_makes_its_callers_wait_and_says_so() -> None:
    with FakeCodex() as fake:
        async with pooled(fake, warm=0, cap=1) as pool, pool.acquire():
            with pytest.raises(ConnectTimeout) as caught:
                async with pool.acquire(timeout=0.01):
                    raise AssertionError
            assert caught.value.code == "pool.exhausted"


async def test_an_idle_session_that_died_is_replaced() -> None:
    naps = anyio.Event()

    async def nap(_: float) -> None:
        nonlocal naps
        await naps.wait()
        naps = anyio.Event()

    made: list[SubprocessTransport] = []

    def make(options: CodexOptions) -> TransportLike:
        made.append(SubprocessTransport(options))
        return made[-1]

    with FakeCodex() as fake:
        async with pooled(fake, make_transport=make, sleep=nap) as pool:
            await pool.warm_up()
            await made[0].close()
            naps.set()
            while pool.snapshot().retired.get("died", 0) + pool.snapshot().retired.get("silent", 0) == 0:
                await anyio.lowlevel.checkpoint()
            async with pool.acquire() as session:
                assert (await (await session.send("still")).result()).text == "still"


async def test_what_cannot_start_is_told_to_the_caller_and_to_who_makes_the_pool() -> None:
    def make(_: CodexOptions) -> TransportLike:
        raise CLIConnectionError("no road")

    async with CodexPool(warm=0, make_transport=make) as pool:
        with pytest.raises(CLIConnectionError, match="no road"):
            async with pool.acquire():
                raise AssertionError
    with pytest.raises(ConfigurationError, match="ClaudeOptions"):
        CodexPool(ClaudeOptions())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="make_transport must be a function"):
        CodexPool(make_transport="ssh")  # type: ignore[arg-type]
    with pytest.raises(NotConnected):
        async with CodexPool(CodexOptions(codex_path="/bin/true")).acquire():
            raise AssertionError
    pool = CodexPool(CodexOptions(codex_path="/bin/true"))
    await pool.aclose()
    with pytest.raises(TransportClosed):
        await pool.start()
