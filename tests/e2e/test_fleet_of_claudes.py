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
from redis_server import redis_server

import claude_transport as ct
from claude_transport import errors, sessions
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.testing import FakeMessagesAPI, replies

WORKER = """
import sys, anyio, msgspec
import claude_transport as ct
from claude_transport import sessions
from claude_transport.fleet import FleetWorker

pytestmark = pytest.mark.both_loops
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
                                await anyio.lowlevel.checkpoint()
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
