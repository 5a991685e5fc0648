"""The real CLI on the workers of a fleet: a conversation that goes on elsewhere when its worker is killed in the middle of a turn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from live_session import PATIENCE
from polling import a_moment
from redis_server import redis_server

import claude_transport as ct
from claude_transport import errors, sessions
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.observing import observe
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.both_loops

WORKER = """
import sys, anyio, msgspec
import claude_transport as ct
from claude_transport import sessions
from claude_transport.fleet import FleetWorker
url, store, fields = sys.argv[1:]
async def main():
    options = ct.ClaudeOptions(session_store=sessions.SQLiteSessionStore(store), **msgspec.json.decode(fields))
    worker = FleetWorker(url, options=options, name="first", lease=3, capacity=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.serve)
        await worker.started.wait()
        print("ready", flush=True)
anyio.run(main)
"""


def fields_of(root: Path, cli: str, environment: dict[str, str]) -> dict[str, Any]:
    """The options of a worker on a machine of its own."""
    for name in ("home", "config", "work"):
        (root / name).mkdir(parents=True)
    env = {**environment, "HOME": str(root / "home"), "CLAUDE_CONFIG_DIR": str(root / "config")}
    return {"cli_path": cli, "cwd": str(root / "work"), "env": env, "env_mode": "exact"}


def start_worker(url: str, store: Path, fields: dict[str, Any]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, url, str(store), msgspec.json.encode(fields).decode()],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


async def test_the_real_cli_converses_over_a_fleet(claude_cli: str, cli_env: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    with redis_server(tmp_path / "broker") as url:
        async with FakeMessagesAPI(["The word is xyzzy.", "Still xyzzy."]) as api, anyio.create_task_group() as tasks:
            fields = fields_of(tmp_path / "one", claude_cli, cli_env(api, CLAUDE_CODE_MAX_RETRIES="0"))
            tasks.start_soon(FleetWorker(url, options=ct.ClaudeOptions(**fields)).serve)
            with anyio.fail_after(PATIENCE):
                async with ct.Query(FleetTransport(url)) as query:
                    first = await (await query.send("Tell me a word")).result()
                    second = await (await query.send("Which one?")).result()
            assert (first.result, second.result) == ("The word is xyzzy.", "Still xyzzy.")
            tasks.cancel_scope.cancel()


@pytest.mark.needs("--session-mirror")
async def test_a_conversation_goes_on_when_its_worker_is_killed_in_the_middle_of_a_turn(
    claude_cli: str, cli_env: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    store = tmp_path / "store.db"
    asked: list[str] = []

    def answer(request: Any) -> Any:
        said = str(request.body["messages"][-1])
        asked.append(said)
        if "Do it" in said:
            return replies.slow("Doing it", delay=PATIENCE) if sum("Do it" in each for each in asked) == 1 else "Done twice!"
        return "The word is xyzzy." if len(asked) == 1 else "It was xyzzy."

    with redis_server(tmp_path / "broker") as url:
        async with FakeMessagesAPI(answer) as api, anyio.create_task_group() as tasks:
            environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
            one, two = (fields_of(tmp_path / name, claude_cli, environment) for name in ("one", "two"))
            process = await anyio.to_thread.run_sync(start_worker, url, store, one)
            try:
                with anyio.fail_after(2 * PATIENCE):
                    async with ct.Query(FleetTransport(url)) as query:
                        first = await (await query.send("Tell me a word")).result()
                        async with FleetRegistry(url) as registry:
                            while not (await registry.sessions())[0].stored:
                                await a_moment()
                        turn = await query.send("Do it")
                        await api.wait_for_requests(2, timeout=PATIENCE)
                        process.kill()
                        options = ct.ClaudeOptions(session_store=sessions.SQLiteSessionStore(store), **two)
                        tasks.start_soon(FleetWorker(url, options=options, name="second", lease=3).serve)
                        lost = await turn.result()
                        with pytest.raises(errors.OutcomeUncertain):
                            lost.raise_for_error()
                        third = await (await query.send("Which one was it?")).result()
                        assert (third.result, third.session_id) == ("It was xyzzy.", first.session_id)
                assert sum("Do it" in each and "Which one" not in each for each in asked) == 1
                assert "xyzzy" in str(api.conversation[-1].body["messages"])
            finally:
                process.kill()
                process.communicate()
            tasks.cancel_scope.cancel()


@pytest.mark.needs("--session-mirror")
async def test_a_drained_worker_hands_the_conversation_on_when_its_turn_is_over(
    claude_cli: str, cli_env: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    script = ["The word is xyzzy.", replies.gated("I keep it."), "It was xyzzy."]
    prompts = ["Tell me a word", "Keep it", "Which one was it?"]
    with redis_server(tmp_path / "broker") as url:
        async with FakeMessagesAPI(script) as api, anyio.create_task_group() as tasks:
            environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
            workers = []
            for name in ("one", "two"):
                fields = fields_of(tmp_path / name, claude_cli, environment)
                options = ct.ClaudeOptions(session_store=sessions.SQLiteSessionStore(tmp_path / "store.db"), **fields)
                workers.append(FleetWorker(url, options=options, name=name))
            one, two = workers
            tasks.start_soon(one.serve)
            with anyio.fail_after(PATIENCE):
                transport = FleetTransport(url, keep=10_000)
                async with ct.Query(transport) as query:
                    results = [await (await query.send(prompts[0])).result()]
                    turn = await query.send(prompts[1])
                    await api.wait_for_requests(2, timeout=PATIENCE)
                    tasks.start_soon(two.serve)
                    await two.started.wait()
                    tasks.start_soon(one.drain)
                    assert one.sessions == (transport.session,)  # its turn runs
                    api.open_gate()
                    results.append(await turn.result())
                    while not two.sessions:
                        await a_moment()
                    results.append(await (await query.send(prompts[2])).result())
                    seen = await everything_said(url, str(transport.session), results=3)
            assert [each.result for each in results] == ["The word is xyzzy.", "I keep it.", "It was xyzzy."]
            assert not any(each.is_error for each in results)
            assert len({each.session_id for each in results}) == 1
            (notice,) = [each for each in seen if each.get("subtype") == "fleet_takeover"]
            assert {name: notice[name] for name in ("worker", "uncertain", "unstored", "resumed")} == {
                "worker": "two",
                "uncertain": 0,
                "unstored": 0,
                "resumed": True,
            }
            assert [each["result"] for each in seen if each["type"] == "result"] == [each.result for each in results]
            conversation = str(api.conversation[-1].body["messages"])
            assert [conversation.count(said) for said in (*prompts, "The word is xyzzy.", "I keep it.")] == [1] * 5
            assert len(api.conversation) == 3
            tasks.cancel_scope.cancel()


async def everything_said(url: str, session: str, *, results: int) -> list[dict[str, Any]]:
    """Every line that a session has said, up to its last result."""
    seen: list[dict[str, Any]] = []
    async with observe(url, session=session, since=None) as lines:
        async for line in lines:
            if line.direction == "out":
                seen.append(msgspec.json.decode(line))
            if sum(each["type"] == "result" for each in seen) == results:
                break
    return seen
