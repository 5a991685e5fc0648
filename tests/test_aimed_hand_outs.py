"""`SessionPool.acquire(cwd=…, model=…)`: a ready session goes there, or a new process takes its place."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hostile_words import HOSTILE, assert_records_are_safe
from pool_peers import Frame, World
from virtual_time import virtual_time

import claude_transport as ct
from claude_transport import errors

PATIENCE = 120.0
KINDS = ["a line feed", "a terminal escape", "a bidi override", "a megabyte"]
THERE = "/there"
ARRIVED: Frame = {"status": "ok", "cwd": THERE, "changed": True}
OF_A_PROJECT: Frame = {"sources": [{"source": "projectSettings", "settings": {"env": {"A": "1"}}}]}


@asynccontextmanager
async def pool_of(world: World, **arguments: Any) -> AsyncIterator[ct.SessionPool]:
    """A pool with one ready session. No more than `cap` of its sessions may ever live, and none is left."""
    arguments = {"options": ct.ClaudeOptions(cwd="/here", model="haiku"), "warm": 1, "cap": 1, **arguments}
    arguments.setdefault("sleep", lambda _seconds: anyio.sleep(math.inf))
    with anyio.fail_after(PATIENCE):
        async with ct.SessionPool(make_transport=world, **arguments) as pool:
            await pool.warm_up()
            yield pool
    assert pool.snapshot().live == 0
    assert world.live == 0


def counts(pool: ct.SessionPool) -> tuple[int, int]:
    """The sessions that went where they were wanted, and the processes that were started in place of one that could not."""
    now = pool.snapshot()
    return now.aimed, now.restarted


async def number_of(query: ct.Query) -> str:
    return str((await (await query.send("Who are you?")).result()).result)


async def test_a_ready_session_goes_to_the_directory_and_the_model_of_its_user() -> None:
    world = World()
    world.replies["set_cwd"] = ARRIVED
    async with pool_of(world) as pool:
        async with pool.acquire(timeout=0, cwd=Path(THERE), model="opus") as query:
            assert await number_of(query) == "peer 10000"
        assert world.made[0].requests[1:4] == [
            {"subtype": "set_model", "model": "opus"},
            {"subtype": "get_settings"},
            {"subtype": "set_cwd", "path": THERE},
        ]
        assert counts(pool) == (1, 0)
        assert pool.snapshot().handed_out_warm == 1


async def test_a_process_that_cannot_be_made_for_a_directory_is_an_error_of_the_library() -> None:
    class Full(World):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            if self.made:
                raise OSError("no more containers")
            return super().__call__(*arguments, **options)

    world = Full()
    async with pool_of(world) as pool:
        with pytest.raises(errors.CLIConnectionError, match=r"could not be made: OSError.*no more containers") as caught:
            async with pool.acquire(timeout=0, cwd=THERE):
                pass
        assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("wanted", [{}, {"cwd": "/here/"}, {"model": "haiku"}, {"cwd": "/here", "model": "haiku"}], ids=str)
async def test_a_session_that_is_where_it_is_wanted_is_asked_nothing(wanted: dict[str, Any]) -> None:
    world = World()
    async with pool_of(world) as pool, pool.acquire(timeout=0, **wanted):
        assert world.made[0].asked == ["initialize"]
        assert counts(pool) == (0, 0)


@pytest.mark.parametrize(
    "replies",
    [
        {"set_cwd": {"status": "needs_trust", "directory": THERE}},
        {"set_cwd": {"status": "rejected", "reason": "not_found"}},
        {"set_cwd": {"error": "Unsupported control request subtype: set_cwd"}},
        {"set_cwd": ARRIVED, "get_settings": OF_A_PROJECT},
        {"set_cwd": ARRIVED, "get_settings": {"error": "no settings today"}},
        {"set_cwd": {}},
        {"set_cwd": ARRIVED, "initialize": {"claude_code_version": "2.1.286"}},
        {"set_cwd": ARRIVED, "initialize": {}},
    ],
    ids=[
        "not trusted",
        "not there",
        "not known",
        "settings of the first directory",
        "settings unknown",
        "no answer to speak of",
        "a claude that keeps the memory of the first directory",
        "a claude of unknown version",
    ],
)
async def test_a_new_process_in_the_directory_takes_the_place_of_a_session_that_cannot_go_there(replies: dict[str, Frame]) -> None:
    world = World(limit=1)
    world.replies = replies
    async with pool_of(world) as pool:
        async with pool.acquire(timeout=0, cwd=THERE, model="opus") as query:
            assert await number_of(query) == "peer 10001"
            assert world.made[0].is_closed
            assert (world.made[1].options.cwd, world.made[1].options.model) == (THERE, "opus")
            assert world.made[1].asked == ["initialize"]
            assert pool.snapshot().live == 1
        assert counts(pool) == (0, 1)
    assert world.most_live == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["the version", "the settings", "the answer", "the reason", "the status"])
async def test_what_keeps_a_session_from_going_there_is_harmless_in_the_log(what: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    words = HOSTILE[kind]
    world = World()
    world.replies = {
        "the version": {"initialize": {"claude_code_version": words}},
        "the settings": {"get_settings": OF_A_PROJECT},
        "the answer": {"set_cwd": {"error": words}},
        "the reason": {"set_cwd": {"status": "rejected", "reason": words}},
        "the status": {"set_cwd": {"status": words}},
    }[what]
    with caplog.at_level("INFO", "claude_transport.pool"):
        async with pool_of(world) as pool, pool.acquire(timeout=0, cwd=f"/{words}"):
            pass
    (record,) = [each for each in caplog.records if "does not go to" in each.getMessage()]
    assert_records_are_safe([record])


@virtual_time
@pytest.mark.parametrize("question", ["get_settings", "set_cwd"])
async def test_a_session_that_does_not_answer_is_replaced_after_ten_seconds(question: str) -> None:
    world = World()
    world.replies = {"set_cwd": ARRIVED, question: {"silent": True}}
    async with pool_of(world) as pool:
        began = anyio.current_time()
        async with pool.acquire(timeout=0, cwd=THERE) as query:
            assert anyio.current_time() - began == pytest.approx(10)
            assert await number_of(query) == "peer 10001"
            assert counts(pool) == (0, 1)


@virtual_time
async def test_a_model_that_is_not_confirmed_is_an_error_after_ten_seconds() -> None:
    world = World()
    world.replies["set_model"] = {"silent": True}
    async with pool_of(world) as pool:
        began = anyio.current_time()
        with pytest.raises(errors.ControlTimeout) as caught:
            async with pool.acquire(timeout=0, model="opus"):
                pass
        assert anyio.current_time() - began == pytest.approx(10)
        assert caught.value.code == "control.timeout"


async def test_a_settings_source_of_the_user_is_no_reason_for_a_new_process() -> None:
    world = World()
    world.replies = {"set_cwd": ARRIVED, "get_settings": {"sources": [{"source": "userSettings", "settings": {}}]}}
    async with pool_of(world) as pool, pool.acquire(timeout=0, cwd=THERE) as query:
        assert await number_of(query) == "peer 10000"


async def test_a_model_that_is_refused_is_an_error_and_not_got_by_another_way() -> None:
    world = World()
    world.replies["set_model"] = {"error": "a hook says no"}
    async with pool_of(world) as pool:
        with pytest.raises(ct.errors.ControlRequestFailed, match="a hook says no"):
            async with pool.acquire(timeout=0, model="opus"):
                pass
        assert len(world.made[0].prompts) == 0
        await pool.warm_up()
        world.replies.clear()
        async with pool.acquire(timeout=0) as query:  # its place is free again
            assert await number_of(query) == "peer 10001"


async def test_a_new_process_that_does_not_start_is_told_to_its_user_and_frees_its_place() -> None:
    world = World()
    async with pool_of(world) as pool:
        world.failures.append(errors.CLINotFoundError("no claude there"))
        with pytest.raises(ct.CLINotFoundError, match="no claude there"):
            async with pool.acquire(timeout=0, cwd=THERE):
                pass
        await pool.warm_up()
        assert pool.snapshot().idle == 1


@pytest.mark.parametrize("at", ["set_cwd", "initialize"])
async def test_a_user_that_is_cancelled_on_the_way_leaves_no_process(at: str) -> None:
    world = World(limit=1)
    async with pool_of(world) as pool:
        if at == "set_cwd":
            world.replies["set_cwd"] = {"silent": True}
        else:
            world.hold()

        async def take() -> None:
            async with pool.acquire(cwd=THERE):
                raise AssertionError("a cancelled caller got in")

        async with anyio.create_task_group() as users:
            users.start_soon(take)
            while not any(at in peer.asked for peer in world.made[-1:] if at == "set_cwd" or peer is not world.made[0]):
                await anyio.lowlevel.checkpoint()
            users.cancel_scope.cancel()
        world.gate.set()
        await pool.warm_up()
        assert (pool.snapshot().in_use, pool.snapshot().idle) == (0, 1)


@pytest.mark.parametrize("at", ["set_cwd", "initialize"])
async def test_a_pool_that_closes_on_the_way_leaves_no_process(at: str) -> None:
    world = World(limit=1)
    async with pool_of(world) as pool:
        if at == "set_cwd":
            world.replies["set_cwd"] = {"silent": True}
        else:
            world.hold()
        refused: list[BaseException] = []

        async def take() -> None:
            try:
                async with pool.acquire(cwd=THERE):
                    raise AssertionError("a pool that closes handed out a session")
            except ct.ClaudeTransportError as exc:
                refused.append(exc)

        async with anyio.create_task_group() as users:
            users.start_soon(take)
            while not any(at in peer.asked for peer in world.made[-1:] if at == "set_cwd" or peer is not world.made[0]):
                await anyio.lowlevel.checkpoint()
            await pool.aclose(drain_timeout=0)
        assert [type(exc) for exc in refused] == [ct.TransportClosed]


@pytest.mark.parametrize(
    ("wanted", "option"),
    [
        ({"cwd": "below"}, "cwd"),
        ({"cwd": ""}, "cwd"),
        ({"cwd": 7}, "cwd"),
        ({"cwd": "/a\0"}, "cwd"),
        ({"model": ""}, "model"),
        ({"model": 7}, "model"),
    ],
    ids=str,
)
async def test_what_is_no_directory_and_no_model_is_refused_before_a_session_is_taken(wanted: dict[str, Any], option: str) -> None:
    world = World()
    async with pool_of(world) as pool:
        with pytest.raises(ct.ConfigurationError) as caught:
            async with pool.acquire(**wanted):
                pass
        assert caught.value.option == option
        assert pool.snapshot().idle == 1
