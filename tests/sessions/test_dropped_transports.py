"""A transport that is dropped without `close()`: its session is given back to the store, so another host need not wait for ever."""

from __future__ import annotations

import gc
import threading
import warnings
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from small_peer import small_peer
from test_mirror import KEY, frame, uuids
from test_mirror_troubles import KNOWN, Claims
from virtual_time import virtual_time

import claude_transport as ct
from claude_transport import sessions
from claude_transport.transports.mirroring import CLAIM_SECONDS, Mirror

SID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"


@pytest.fixture
async def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ct.ClaudeOptions:
    """Of a session that is resumed out of a store."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "cwd").mkdir()
    store: Any = sessions.InMemorySessionStore()
    project = sessions.project_key_for_directory(tmp_path / "cwd")
    await store.append({"project_key": project, "session_id": SID}, [{"type": "user", "uuid": "1"}])
    return ct.ClaudeOptions(cli_path=small_peer(tmp_path), cwd=tmp_path / "cwd", resume=SID, session_store=store)


def drop(held: list[Any]) -> None:
    """Let go of what a list alone has, and free it. A process that was never closed says so, rightly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        held.clear()
        gc.collect()


async def holder(options: ct.ClaudeOptions) -> str:
    """Which host has the session; `another` when none had it."""
    store: Any = options.session_store
    key = {"project_key": sessions.project_key_for_directory(options.cwd), "session_id": SID}
    return str(await store.claim(key, owner="another", seconds=0.0))


@pytest.mark.parametrize("where", ["here", "in a thread"])
async def test_a_session_is_given_back_when_its_transport_is_dropped(where: str, options: ct.ClaudeOptions, tmp_path: Path) -> None:
    held = [ct.SubprocessTransport(options)]
    await held[0].connect()
    assert await holder(options) != "another"
    assert len(list(tmp_path.glob("claude-transport-session-*"))) == 1
    if where == "here":
        drop(held)
    else:
        await anyio.to_thread.run_sync(drop, held)
    with anyio.fail_after(30):
        while await holder(options) != "another" or list(tmp_path.glob("claude-transport-session-*")):
            await anyio.lowlevel.checkpoint()


async def test_a_session_is_given_back_when_its_transport_is_closed(options: ct.ClaudeOptions, tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with ct.SubprocessTransport(options) as transport:
            await transport.connect()
            assert await holder(options) != "another"
            await transport.wait_stored()
            assert (transport.is_storing, transport.info.unstored_entries) == (False, 0)
    assert await holder(options) == "another"
    assert list(tmp_path.glob("claude-transport-session-*")) == []


async def test_a_session_is_given_back_when_its_program_does_not_start(options: ct.ClaudeOptions, tmp_path: Path) -> None:
    program = Path(str(options.cli_path))
    transport = ct.SubprocessTransport(options)
    hidden = program.rename(program.with_name("hidden"))
    with anyio.fail_after(30):
        with pytest.raises(ct.CLINotFoundError):
            await transport.connect()
        assert await holder(options) == "another"
        store: Any = options.session_store
        await store.release({"project_key": sessions.project_key_for_directory(options.cwd), "session_id": SID}, owner="another")
        hidden.rename(program)
        async with transport:
            await transport.connect()
            assert await holder(options) != "another"
    assert list(tmp_path.glob("claude-transport-session-*")) == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_session_is_given_back_when_its_loop_ends_and_dropping_it_then_does_no_harm(backend: str) -> None:
    store, held = Claims(), []

    async def run() -> None:
        held.append(Mirror(store, projects=KNOWN))
        await held[0].claim(KEY)
        held[0].start()
        await anyio.lowlevel.checkpoint()
        assert store.held[0]

    anyio.run(run, backend=backend)
    assert store.held == ("", 0.0)
    thread = threading.Thread(target=held[0].abandon)
    thread.start()
    thread.join()
    held[0].abandon()


@virtual_time
async def test_what_waits_is_stored_before_a_dropped_session_is_given_back() -> None:
    store = Claims()
    mirror = Mirror(store, projects=KNOWN)
    await mirror.claim(KEY)
    mirror.start()
    mirror.take([frame("1"), frame("2")])
    mirror.abandon()
    mirror.abandon()
    store.gate.set()
    while store.held[0]:
        await anyio.lowlevel.checkpoint()
    assert (await uuids(store), mirror.lost) == (["1", "2"], 0)


@virtual_time
async def test_a_store_that_hangs_holds_a_dropped_session_for_a_bounded_time() -> None:
    store = Claims()
    mirror = Mirror(store, projects=KNOWN, append_timeout=10_000.0)
    await mirror.claim(KEY)
    mirror.start()
    mirror.take([frame("1")])
    await store.reached.wait()
    began = anyio.current_time()
    mirror.abandon()
    while store.held[0]:
        await anyio.sleep(1)
    assert anyio.current_time() - began < 2 * CLAIM_SECONDS
    assert mirror.lost == 1
