"""The pool: which caller gets which session, when, and the bound of their number; with peers that count themselves and a manual clock."""

from __future__ import annotations

import contextvars
import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hostile_words import HOSTILE, assert_records_are_safe
from pool_peers import HandClock, Peer, World
from virtual_time import virtual_time

import claude_transport as ct
from claude_transport import errors
from claude_transport.agents.warm_pool import PoolLimits, read_rss_bytes

PATIENCE = 120.0  # seconds; a hang fails instead of hanging the suite (a thousand users take about 3)


@asynccontextmanager
async def pool_of(world: World, **arguments: Any) -> AsyncIterator[ct.SessionPool]:
    """A pool whose sessions live in `world`. Without a clock, its checks never run: sessions only start and end."""
    arguments.setdefault("sleep", lambda _seconds: anyio.sleep(math.inf))
    with anyio.fail_after(PATIENCE):
        async with ct.SessionPool(make_transport=world, **arguments) as pool:
            yield pool
    assert pool.snapshot().live == 0
    assert world.live == 0


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition()` is true; checks in every round of the event loop."""
    while not condition():
        await anyio.lowlevel.checkpoint()


async def number_of(query: ct.Query) -> str:
    """Return the number of the peer behind a query."""
    return str((await (await query.send("Who are you?")).result()).result)


# Warm and cold


async def test_a_warm_session_is_handed_out_without_waiting_for_anything() -> None:
    world = World()
    async with pool_of(world, warm=1) as pool:
        await pool.warm_up()
        world.hold()  # sessions that are started from here on do not get ready
        async with pool.acquire(timeout=0) as query:
            assert await number_of(query) == "peer 10000"
            assert world.made[0].asked == ["initialize"]
        now = pool.snapshot()
        assert (now.handed_out, now.handed_out_warm) == (1, 1)
        world.gate.set()


async def test_a_cold_pool_waits_for_the_answer_to_initialize() -> None:
    world = World()
    world.hold()
    async with pool_of(world, warm=0) as pool:
        with pytest.raises(ct.ConnectTimeout) as caught:
            async with pool.acquire(timeout=0):
                pass
        assert (caught.value.code, caught.value.waited, caught.value.retryable) == ("pool.exhausted", 0, True)
        world.gate.set()
        async with pool.acquire() as query:
            assert await number_of(query)
        assert pool.snapshot().handed_out_warm == 0


async def test_what_was_handed_out_is_replaced_while_it_is_used() -> None:
    world = World()
    async with pool_of(world, warm=2, cap=5) as pool:
        await pool.warm_up()
        async with pool.acquire():
            await until(lambda: pool.snapshot().idle == 2)
            assert len(world.made) == 3


async def test_a_session_serves_one_use_and_one_caller() -> None:
    world = World(limit=4)
    seen: list[str] = []
    busy: set[int] = set()

    async def use(pool: ct.SessionPool) -> None:
        async with pool.acquire() as query:
            assert id(query) not in busy
            busy.add(id(query))
            seen.append(await number_of(query))
            busy.discard(id(query))

    async with pool_of(world, warm=2, cap=4) as pool, anyio.create_task_group() as users:
        for _ in range(30):
            users.start_soon(use, pool)
    assert len(seen) == len(set(seen)) == 30
    assert all(len(peer.prompts) <= 1 for peer in world.made)


async def test_no_more_than_cap_are_alive_while_a_thousand_ask_at_once() -> None:
    world = World(limit=8)  # every connect and every close is a sample
    served = 0
    most = 0

    async def use(pool: ct.SessionPool) -> None:
        nonlocal served, most
        async with pool.acquire(timeout=math.inf):
            most = max(most, pool.snapshot().live)
            served += 1

    async with pool_of(world, warm=2, cap=8) as pool, anyio.create_task_group() as users:
        for _ in range(1000):
            users.start_soon(use, pool)
    assert served == 1000
    assert world.most_live == most == 8


async def test_those_who_wait_are_served_in_the_order_of_asking() -> None:
    world = World()
    order: list[int] = []

    async def use(pool: ct.SessionPool, number: int) -> None:
        async with pool.acquire():
            order.append(number)

    async with pool_of(world, warm=0, cap=1) as pool, anyio.create_task_group() as users:
        for number in range(10):
            users.start_soon(use, pool, number)
            await until(lambda: pool.snapshot().waiting + pool.snapshot().in_use + len(order) > number)  # noqa: B023 - used at once
    assert order == list(range(10))


# Cancellation


@pytest.mark.parametrize("steps", range(25))
@pytest.mark.parametrize("warm", [0, 1])
async def test_a_caller_who_is_cancelled_anywhere_costs_the_pool_nothing(steps: int, warm: int) -> None:
    world = World(limit=2)

    async def use(pool: ct.SessionPool) -> None:
        async with pool.acquire() as query:
            await number_of(query)

    async with pool_of(world, warm=warm, cap=2) as pool:
        async with anyio.create_task_group() as users:
            users.start_soon(use, pool)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            users.cancel_scope.cancel()
        assert (pool.snapshot().in_use, pool.snapshot().waiting) == (0, 0)
        for _ in range(3):
            async with pool.acquire() as query:
                assert await number_of(query)


async def test_a_pool_that_does_not_get_warm_in_time_says_so_with_its_numbers() -> None:
    world = World()
    world.hold()
    async with pool_of(world, warm=1) as pool:
        with pytest.raises(ct.ConnectTimeout, match=r"the pool was not warm after 0\.01 s") as caught:
            await pool.warm_up(timeout=0.01)
        assert (caught.value.code, caught.value.waited) == ("pool.not_warm", 0.01)
        world.gate.set()
        await pool.warm_up()


async def test_a_session_that_was_given_to_somebody_who_left_goes_to_the_next() -> None:
    world = World()
    async with pool_of(world, warm=1, cap=1) as pool:
        await pool.warm_up()
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with pool.acquire():
                raise AssertionError("a cancelled caller got in")
        assert (pool.snapshot().idle, pool.snapshot().handed_out, pool.snapshot().handed_out_warm) == (1, 0, 0)
        async with pool.acquire(timeout=0) as query:
            assert await number_of(query) == "peer 10000"


async def test_a_task_that_ends_leaves_nothing_of_its_context_to_the_sessions_it_caused() -> None:
    mine = contextvars.ContextVar("mine", default="nobody's")
    seen: list[str] = []

    class Curious(World):
        def __call__(self, options: ct.ClaudeOptions) -> Peer:
            seen.append(mine.get())
            return super().__call__(options)

    async with pool_of(Curious(), warm=0) as pool:
        mine.set("a user's")
        async with pool.acquire():
            pass
    assert seen == ["nobody's"]


# What waits too long, or grows


async def test_surplus_is_let_go_when_nobody_wanted_it_for_long_and_the_longest_wait_goes_first() -> None:
    world, clock = World(), HandClock()
    async with pool_of(world, warm=1, idle_ttl=60, check_interval=10, clock=clock, sleep=clock.sleep) as pool:
        await pool.warm_up()
        first = world.hold()
        async with pool.acquire():  # peer 0; peer 1 is started in its place
            await until(lambda: len(world.made) == 2 and world.made[1].asked)
            second = world.hold()
            with pytest.raises(ct.ConnectTimeout):
                async with pool.acquire(timeout=0):  # peer 2 is started for a caller that does not wait for it
                    pass
            await until(lambda: len(world.made) == 3 and world.made[2].asked)
            first.set()
            await until(lambda: pool.snapshot().idle == 1)
            await clock.advance(30)
            second.set()
            await until(lambda: pool.snapshot().idle == 2)
            await clock.advance(20)
            assert pool.snapshot().retired == {}
            await clock.advance(10)
            assert pool.snapshot().retired == {"surplus": 1}
            await until(lambda: world.made[1].is_closed)
            await clock.advance(1000)
            assert [peer.is_closed for peer in world.made] == [False, True, False]


async def test_a_session_that_waits_for_too_long_is_replaced_and_one_in_use_is_not() -> None:
    world, clock = World(), HandClock()
    async with pool_of(world, warm=1, max_age=100, check_interval=10, clock=clock, sleep=clock.sleep) as pool:
        await pool.warm_up()
        async with pool.acquire() as query:
            await pool.warm_up()
            await clock.advance(90)
            assert pool.snapshot().retired == {}
            await clock.advance(10)
            assert pool.snapshot().retired == {"age": 1}
            await pool.warm_up()
            assert await number_of(query) == "peer 10000"
        assert len(world.made) == 3


async def test_a_session_that_is_too_old_is_not_handed_out_before_anybody_looked() -> None:
    world, clock = World(), HandClock()
    async with pool_of(world, max_age=100, check_interval=1000, clock=clock, sleep=clock.sleep) as pool:
        await pool.warm_up()
        await clock.advance(100)
        async with pool.acquire() as query:
            assert await number_of(query) != "peer 10000"
        assert pool.snapshot().retired["age"] == 1


async def test_a_process_that_has_grown_too_large_is_replaced() -> None:
    world, clock = World(), HandClock()
    sizes = {10_000: 100, 10_001: 100, 10_002: 100}
    async with pool_of(world, warm=2, max_rss_bytes=200, read_rss=sizes.get, check_interval=10, clock=clock, sleep=clock.sleep) as pool:
        await pool.warm_up()
        sizes[10_000] = 201
        await clock.advance(10)
        assert pool.snapshot().retired == {"memory": 1}
        await until(lambda: pool.snapshot().idle == 2)
        sizes[10_001] = 201  # no check has run since
        async with pool.acquire() as query:
            assert await number_of(query) == "peer 10002"


@pytest.mark.parametrize("reader", [lambda _pid: None, lambda _pid: 1 / 0], ids=["unknown", "failing"])
async def test_a_size_that_is_not_known_ends_no_session(
    reader: Callable[[int], int | None], request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    async with pool_of(World(), max_rss_bytes=1, read_rss=reader) as pool:
        await pool.warm_up()
        async with pool.acquire(timeout=0) as query:
            assert await number_of(query)
    told = {record.getMessage() for record in caplog.records if record.levelname == "ERROR"}
    known = {f"the resident memory of process {pid} could not be read" for pid in (10_000, 10_001)}  # the second one takes its place
    assert told <= known
    assert (f"the resident memory of process {10_000} could not be read" in told) == ("failing" in request.node.callspec.id)


async def test_a_limit_that_no_session_can_keep_is_an_error_instead_of_starts_without_end() -> None:
    world = World()
    async with pool_of(world, warm=0, max_rss_bytes=1, read_rss=lambda _pid: 2) as pool:
        with pytest.raises(ct.ConfigurationError, match="max_rss_bytes"):
            async with pool.acquire():
                pass
        assert len(world.made) == 1


async def test_a_session_that_died_while_it_waited_is_handed_to_nobody() -> None:
    world = World()
    async with pool_of(world, warm=2) as pool:
        await pool.warm_up()
        for peer in world.made:
            peer.die()
        await anyio.wait_all_tasks_blocked()
        async with pool.acquire() as query:
            assert await number_of(query) in ("peer 10002", "peer 10003", "peer 10004")
        assert pool.snapshot().retired["died"] == 2


@virtual_time
async def test_a_session_that_does_not_answer_any_more_is_replaced() -> None:
    world = World()
    async with pool_of(world, warm=1, check_interval=1, sleep=anyio.sleep) as pool:
        await pool.warm_up()
        world.made[0].is_deaf = True
        await anyio.sleep(8)
        assert pool.snapshot().retired == {"silent": 1}
        assert pool.snapshot().idle == 1


@virtual_time
async def test_a_session_that_dies_while_it_is_asked_is_replaced_at_once() -> None:
    world = World()
    async with pool_of(world, warm=1, check_interval=1, sleep=anyio.sleep) as pool:
        await pool.warm_up()
        world.made[0].is_deaf = True
        await anyio.sleep(1.5)  # it was asked after 1 s
        world.made[0].die()
        await anyio.sleep(0.1)
        assert pool.snapshot().retired == {"died": 1}
        assert pool.snapshot().idle == 1


async def test_a_pool_that_keeps_none_ready_is_warm_also_after_a_start_that_failed() -> None:
    world = World()
    world.failures.append(ct.ConnectionLost("no start"))
    async with pool_of(world, warm=0) as pool:
        with pytest.raises(ct.ConnectionLost, match="no start"):
            async with pool.acquire():
                pass
        await pool.warm_up()
        assert (pool.snapshot().failed_starts, pool.snapshot().idle) == (1, 0)


async def test_sessions_that_wait_are_asked_for_a_sign_of_life() -> None:
    world, clock = World(), HandClock()
    async with pool_of(world, warm=2, clock=clock, sleep=clock.sleep) as pool:
        await pool.warm_up()
        await clock.advance(20)
        assert [len(peer.asked) for peer in world.made] == [3, 3]
        assert pool.snapshot().retired == {}


# Failed starts


async def test_a_start_that_fails_is_told_to_the_one_who_waits_for_it_and_to_nobody_else() -> None:
    world = World()
    world.failures.append(errors.CLINotFoundError("no claude here"))
    async with pool_of(world, warm=0) as pool:
        with pytest.raises(ct.CLINotFoundError, match="no claude here"):
            async with pool.acquire():
                pass
        async with pool.acquire() as query:
            assert await number_of(query)
        assert pool.snapshot().failed_starts == 1


async def test_what_a_factory_raises_is_a_connection_error_with_its_cause() -> None:
    def make(_options: ct.ClaudeOptions) -> Peer:
        raise RuntimeError("no transport today")

    with anyio.fail_after(PATIENCE):
        async with ct.SessionPool(make_transport=make, warm=0) as pool:
            with pytest.raises(ct.CLIConnectionError, match="no transport today") as caught:
                async with pool.acquire():
                    pass
    assert isinstance(caught.value.__cause__, RuntimeError)


async def test_a_start_on_spare_that_fails_is_tried_again_later_and_not_at_once(caplog: pytest.LogCaptureFixture) -> None:
    world, clock = World(), HandClock()
    world.failures.extend(errors.CLIConnectionError("not yet") for _ in range(3))
    async with pool_of(world, warm=1, check_interval=1, clock=clock, sleep=clock.sleep) as pool:
        with pytest.raises(ct.CLIConnectionError, match="not yet"):
            await pool.warm_up()
        assert len(world.made) == 1
        for seconds, made in ((1, 2), (1, 2), (1, 3), (3, 3), (1, 4)):
            await clock.advance(seconds)
            await until(lambda: pool.snapshot().starting == 0)
            assert len(world.made) == made
        await pool.warm_up()
    assert caplog.text.count("a warm session could not be started") == 3


@pytest.mark.parametrize("kind", HOSTILE)
async def test_what_a_start_on_spare_failed_with_is_harmless_in_the_log(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    world, clock = World(), HandClock()
    world.failures.append(errors.CLIConnectionError(HOSTILE[kind]))
    async with pool_of(world, warm=1, check_interval=1, clock=clock, sleep=clock.sleep) as pool:
        with pytest.raises(ct.CLIConnectionError):
            await pool.warm_up()
    (record,) = [each for each in caplog.records if "could not be started" in each.getMessage()]
    assert_records_are_safe([record])


# Closing


async def test_closing_fails_those_who_wait_and_ends_those_who_do_not_give_back() -> None:
    world = World()
    told: list[str] = []

    async def wait(pool: ct.SessionPool) -> None:
        with pytest.raises(ct.TransportClosed) as caught:
            async with pool.acquire():
                pass
        told.append(str(caught.value))

    async with pool_of(world, warm=0, cap=1) as pool, pool.acquire() as query, anyio.create_task_group() as users:
        users.start_soon(wait, pool)
        await until(lambda: pool.snapshot().waiting == 1)
        await pool.aclose(drain_timeout=0)
        assert world.live == 0
        with pytest.raises(ct.TransportClosed):
            await query.send("Still there?")
    assert told == ["the pool was closed"]
    assert pool.snapshot().retired == {"closing": 1}


async def test_closing_waits_for_those_who_use_a_session() -> None:
    world = World()
    done: list[str] = []

    async def use(pool: ct.SessionPool, *, began: anyio.Event, go_on: anyio.Event) -> None:
        async with pool.acquire() as query:
            began.set()
            await go_on.wait()
            done.append(await number_of(query))

    began, go_on = anyio.Event(), anyio.Event()
    async with pool_of(world) as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: use(pool, began=began, go_on=go_on))
        await began.wait()
        tasks.start_soon(pool.aclose)
        await until(lambda: pool.snapshot().idle == 0)
        go_on.set()
    assert len(done) == 1  # it finished while the pool was being closed


async def test_a_close_that_is_cancelled_still_closes_and_waits_for_nobody() -> None:
    world = World()
    async with pool_of(world) as pool:
        await pool.warm_up()
        async with pool.acquire():
            with anyio.CancelScope() as scope:
                scope.cancel()
                await pool.aclose(drain_timeout=math.inf)
            assert scope.cancelled_caught
            assert world.live == 0


async def test_a_close_in_haste_waits_for_nobody() -> None:
    world = World()
    async with pool_of(world) as pool:
        await pool.warm_up()
        async with pool.acquire():
            with anyio.fail_after(10):
                await pool.aclose(drain_timeout=math.inf, hurry=True)
            assert world.live == 0


async def test_closing_ends_sessions_that_are_just_being_started() -> None:
    world = World()
    world.hold()
    async with pool_of(world, warm=3):
        await until(lambda: world.live == 3)
    assert [peer.is_closed for peer in world.made] == [True] * 3


class Stuck(Peer):
    """A peer whose process does not end before it is let go, whatever is cancelled."""

    async def close(self) -> None:
        self.let_go = anyio.Event()
        with anyio.CancelScope(shield=True):
            await self.let_go.wait()
        await super().close()


@virtual_time
async def test_the_place_of_a_session_that_does_not_end_is_given_to_another_one(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    peers = [stuck := Stuck(world, pid=1), Peer(world, pid=2)]
    waiting = iter(peers)
    async with ct.SessionPool(make_transport=lambda _options: next(waiting), warm=0, cap=1, check_interval=math.inf) as pool:
        async with pool.acquire():
            pass
        begun = anyio.current_time()
        try:
            async with pool.acquire(timeout=3600) as query:
                assert await number_of(query) == "peer 2"
            assert anyio.current_time() - begun <= 100
        finally:
            stuck.let_go.set()
    assert "a session did not end in 90 s" in caplog.text


async def test_a_pool_is_used_while_it_is_open_and_at_no_other_time() -> None:
    pool = ct.SessionPool(make_transport=World())
    with pytest.raises(ct.NotConnected):
        async with pool.acquire():
            pass
    await pool.aclose()
    for use in (pool.start, pool.warm_up, pool.acquire().__aenter__):
        with pytest.raises(ct.TransportClosed):
            await use()


def test_a_pool_belongs_to_one_event_loop() -> None:
    pool = ct.SessionPool(make_transport=World(), warm=0)

    async def elsewhere() -> None:
        with pytest.raises(ct.UsageError, match="another event loop") as caught:
            async with pool.acquire():
                pass
        assert caught.value.code == "usage.wrong_loop"

    async def here() -> None:
        async with pool:
            await anyio.to_thread.run_sync(anyio.run, elsewhere)

    anyio.run(here)


async def test_a_query_that_somebody_kept_is_of_no_use_after_its_block() -> None:
    async with pool_of(World()) as pool:
        async with pool.acquire() as query:
            await number_of(query)
        with pytest.raises(ct.TransportClosed):
            await query.send("One more thing")


# Callbacks


async def test_whoever_takes_a_session_may_bring_the_one_who_is_asked_for_permission() -> None:
    async def pools_own(_tool: str, _given: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow | ct.Deny:
        return ct.Deny("nobody is here")

    async def mine(_tool: str, _given: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow | ct.Deny:
        return ct.Allow()

    world = World()
    async with pool_of(world, warm=1, can_use_tool=pools_own) as pool:
        await pool.warm_up()
        async with pool.acquire(can_use_tool=mine):
            await pool.warm_up()
            async with pool.acquire():
                for peer, behavior in zip(world.made, ("allow", "deny"), strict=False):
                    peer.ask_permission()
                    await until(lambda: peer.answers)  # noqa: B023 - used at once
                    assert peer.answers[0]["behavior"] == behavior


async def test_a_pool_without_a_guard_takes_none_later() -> None:
    async def mine(_tool: str, _given: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow | ct.Deny:
        return ct.Allow()

    async with pool_of(World()) as pool:
        with pytest.raises(ct.ConfigurationError, match="not started to ask"):
            async with pool.acquire(can_use_tool=mine):
                pass


# Bad requests


@pytest.mark.parametrize(
    "arguments",
    [
        {"cap": 0},
        {"cap": True},
        {"warm": -1},
        {"warm": 9},
        {"warm": 1.5},
        {"idle_ttl": 0},
        {"max_age": math.nan},
        {"max_rss_bytes": 0},
        {"check_interval": 0},
        {"options": {}},
        {"options": ct.ClaudeOptions(session_id="11111111-1111-4111-8111-111111111111")},
        {"options": ct.ClaudeOptions(resume="11111111-1111-4111-8111-111111111111")},
        {"options": ct.ClaudeOptions(continue_conversation=True)},
        {"can_use_tool": "yes"},
        {"hooks": {"PreToolUze": []}},
        {"make_transport": "ssh"},
    ],
    ids=str,
)
def test_what_makes_no_pool_is_refused_when_it_is_made(arguments: dict[str, Any]) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        ct.SessionPool(**arguments)
    (name,) = arguments
    assert caught.value.option in (name, *(["session_id", "resume", "continue_conversation"] if name == "options" else []), name)


def test_forks_of_one_conversation_make_a_pool() -> None:
    ct.SessionPool(ct.ClaudeOptions(resume="11111111-1111-4111-8111-111111111111", fork_session=True))


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        ({"waiting": 0, "idle": 0, "starting": 0, "live": 0}, 2),
        ({"waiting": 3, "idle": 0, "starting": 0, "live": 0}, 4),
        ({"waiting": 1, "idle": 0, "starting": 1, "live": 2}, 2),
        ({"waiting": 0, "idle": 3, "starting": 0, "live": 3}, 0),
        ({"waiting": 5, "idle": 0, "starting": 0, "live": 4}, 0),
        ({"waiting": 1, "idle": 0, "starting": 0, "live": 0, "may_warm": False}, 1),
    ],
)
def test_what_is_missing_is_one_for_each_who_waits_and_the_spare_ones_under_the_cap(facts: dict[str, Any], missing: int) -> None:
    assert PoolLimits(warm=2, cap=4).sessions_to_start(**facts) == missing


def test_without_a_limit_no_size_is_a_reason_to_end_a_session() -> None:
    assert PoolLimits().retirement(has_ended=False, age=0.0, rss_bytes=10**15) is None
    assert PoolLimits(max_rss_bytes=100).retirement(has_ended=False, age=0.0, rss_bytes=None) is None


def test_the_memory_of_this_process_is_known_and_that_of_none_is_not() -> None:
    size = read_rss_bytes(os.getpid())
    assert size is not None
    assert size > 2**20
    assert read_rss_bytes(2**31 - 1) is None


def test_where_there_is_no_proc_the_memory_of_a_process_is_not_known() -> None:
    assert read_rss_bytes(os.getpid(), proc="/nowhere") is None


async def test_what_a_pool_does_can_be_read_off_it() -> None:
    async with pool_of(World()) as pool:
        await pool.warm_up()
        assert repr(pool) == "<SessionPool open: 1 idle, 0 starting, 0 in use, 0 ending, 0 waiting>"
    assert repr(pool).startswith("<SessionPool closed: 0 idle")
