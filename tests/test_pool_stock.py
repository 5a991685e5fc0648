"""`Stock`: where a session of a pool goes when its caller leaves at the same moment, and how fast it is ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from claude_transport.agents.warm_pool import PooledSession, PoolLimits, Stock


class Quiet(PooledSession):
    """A session that does nothing, and notes how it was ended."""

    def __init__(self) -> None:
        self.abandoned = 0
        self.hurried: list[bool] = []

    async def start(self) -> None:
        pass

    async def check(self, *, timeout: float) -> None:
        pass

    def abandon(self) -> None:
        self.abandoned += 1

    async def aclose(self, *, hurry: bool) -> None:
        self.hurried.append(hurry)

    @property
    def has_ended(self) -> bool:
        return self.abandoned > 0

    @property
    def pid(self) -> int | None:
        return None


class QuietRecipe:
    """Makes such sessions, and keeps them."""

    def __init__(self) -> None:
        self.made: list[Quiet] = []

    def make(self) -> PooledSession:
        self.made.append(Quiet())
        return self.made[-1]


@asynccontextmanager
async def stocked() -> AsyncIterator[tuple[Stock, QuietRecipe]]:
    """A pool of one session, which is ready."""
    recipe = QuietRecipe()
    stock = Stock(PoolLimits(warm=1, cap=1), recipe, read_rss=lambda _pid: None, clock=lambda: 0.0)
    tending = stock.open(anyio.sleep_forever)
    with anyio.fail_after(30):
        await stock.warmed()
        yield stock, recipe
        tending.cancel()
        await tending.join()
        await stock.drain(0)


async def test_a_session_whose_caller_leaves_goes_to_the_one_who_waits() -> None:
    async with stocked() as (stock, recipe):
        first, second = stock.ask(), stock.ask()
        assert (first.session, second.session) == (recipe.made[0], None)
        stock.withdraw(first)
        assert second.session is recipe.made[0]
        assert (stock.snapshot().handed_out, stock.snapshot().handed_out_warm) == (1, 0)
        stock.give_back(recipe.made[0], hurry=False)


async def test_a_caller_who_leaves_while_the_pool_closes_gives_its_session_back() -> None:
    async with stocked() as (stock, recipe):
        waiter = stock.ask()
        stock.refuse_all()
        stock.withdraw(waiter)
        assert (stock.snapshot().in_use, recipe.made[0].abandoned) == (0, 1)
        await stock.drain(float("inf"))
        assert stock.snapshot().retired == {"closing": 1}


async def test_a_caller_who_leaves_after_the_pool_has_ended_its_session_ends_nothing_twice() -> None:
    async with stocked() as (stock, recipe):
        waiter = stock.ask()
        await stock.drain(0)
        stock.withdraw(waiter)
        assert (stock.snapshot().retired, recipe.made[0].abandoned) == ({"closing": 1}, 1)


@pytest.mark.parametrize("hurry", [False, True])
async def test_a_session_is_ended_as_fast_as_its_user_or_the_close_of_the_pool_asks(hurry: bool) -> None:
    async with stocked() as (stock, recipe):
        waiter = stock.ask()
        assert waiter.session is not None
        stock.give_back(waiter.session, hurry=hurry)
        await stock.warmed()
        if hurry:
            stock.hurry()
        stock.refuse_all()
        await stock.drain(float("inf"))
        assert [session.hurried for session in recipe.made] == [[hurry]] * 2
