"""Observers of the real CLI behind a gateway, and of one that runs here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from live_session import Doorkeeper, bash

import claude_transport as ct
from claude_transport.observing import ObservableTransport, ObservedLine, observe
from claude_transport.testing import FakeMessagesAPI

PATIENCE = 90.0
TOKEN = "a-token-for-the-real-claude"
SECRET = "sk-ant-api03-" + "a" * 80

Serve = Callable[..., Any]


@pytest.fixture
def options(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Callable[[FakeMessagesAPI], ct.ClaudeOptions]:
    def made(api: FakeMessagesAPI) -> ct.ClaudeOptions:
        environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
        return ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=environment, env_mode="exact")

    return made


@asynccontextmanager
async def serving(options: ct.ClaudeOptions) -> AsyncIterator[ct.Gateway]:
    with anyio.fail_after(PATIENCE):
        async with ct.Gateway(options, listen=["ws://127.0.0.1:0"], tokens={"alice": TOKEN}, observable=True) as gateway:
            yield gateway


def types_of(lines: list[ObservedLine], direction: str) -> set[str]:
    return {json.loads(line)["type"] for line in lines if line.direction == direction}


async def test_an_observer_sees_prompts_questions_answers_and_results_of_the_real_cli(options: Any) -> None:
    doorkeeper = Doorkeeper()
    seen: list[ObservedLine] = []
    missed: list[ObservedLine] = []
    async with FakeMessagesAPI([bash(f"echo {SECRET} > proof.txt"), "All done.", "Again."]) as api, serving(options(api)) as gateway:
        transport = ct.NetworkTransport(gateway.urls[0], token=TOKEN)
        async with anyio.create_task_group() as tasks, ct.Query(transport, can_use_tool=doorkeeper) as query:
            session = gateway.sessions[0].id
            early = observe(gateway.urls[0], session=session, token=TOKEN)

            async def watch() -> None:
                async with early:
                    seen.extend([line async for line in early])

            tasks.start_soon(watch)
            assert (await (await query.send("Work")).result()).result == "All done."
            grant = gateway.grant_observer(session)
            async with observe(gateway.urls[0], session=session, token=grant.token) as late:
                missed = [await anext(late) for _ in range(5)]
                grant.revoke()
                with pytest.raises(ct.ConnectionLost):
                    while True:
                        await anext(late)
            assert (await (await query.send("More")).result()).result == "Again."
            async with observe(gateway.urls[0], session=session, token=TOKEN, since=late.position) as again:
                assert (await anext(again)).position == late.position + 1
            await query.aclose()
    assert {"control_request", "user", "control_response"} <= types_of(seen, "in")
    assert {"control_request", "control_response", "system", "assistant", "user", "result"} <= types_of(seen, "out")
    assert [line.position for line in seen] == list(range(1, len(seen) + 1))
    assert [bytes(line) for line in missed] == [bytes(line) for line in seen[:5]]
    assert SECRET in doorkeeper.commands[0]  # the owner was asked about the whole command
    assert not any(SECRET.encode() in line for line in seen)
    assert bytes(seen[-1]) == b"closed by host"


async def test_a_session_of_this_process_is_observed(options: Any) -> None:
    async with FakeMessagesAPI(["Hello."]) as api:
        transport = ObservableTransport(ct.SubprocessTransport(options(api)))
        with anyio.fail_after(PATIENCE):
            async with ct.Query(transport) as query:
                assert (await (await query.send("Hi")).result()).result == "Hello."
            seen = [line async for line in observe(transport, session=None)]
    assert "user" in types_of(seen, "in")
    assert {"system", "assistant", "result"} <= types_of(seen, "out")
