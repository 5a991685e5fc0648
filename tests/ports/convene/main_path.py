"""The main path of convene's sessions on the real CLI: live ones, a pool, a refused key, a turn that takes too long."""

import asyncio
import os
from pathlib import Path

import pytest
from main_paths import world

from claude_transport.testing import replies

REFUSED = replies.error(401, headers={"x-should-retry": "false"}, times=1)


async def talk_in_a_pool(settings: dict[str, object]) -> None:
    async with SessionPool(2, **settings) as pool:
        async with pool.acquire() as one, pool.acquire() as two:
            assert (await one.ask("three")).text == "The third answer."
            assert (await two.ask("four")).text == "The fourth answer."
            assert one.session_id != two.session_id
        with pytest.raises(SessionError, match="turn failed"):
            async with pool.acquire() as one:
                await one.ask("five")
        async with pool.acquire() as one:
            one.turn_timeout_s = 2
            with pytest.raises(SessionError, match="exceeded 2s"):
                await one.ask("six")
            one.turn_timeout_s = 60
            assert (await one.ask("seven")).text == "The seventh answer."
        assert pool.total_cost_usd > 0


with world(
    *("The first answer.", "The second answer.", "The third answer.", "The fourth answer."),
    *(REFUSED, replies.gated("Too late."), "The seventh answer."),
) as claude:
    os.environ.update(PATH=f"{Path(claude).parent}{os.pathsep}{os.environ['PATH']}", CONVENE_HOME=os.environ["HOME"], IS_SANDBOX="1")
    from convene.auth import AuthMode
    from convene.errors import SessionError
    from convene.sessions import LiveSession, SessionPool

    api = {"auth_mode": AuthMode.API_KEY, "model": "claude-haiku-4-5"}
    with LiveSession(**api) as live:
        assert live.ask("one").text == "The first answer."
        assert live.ask("two").text == "The second answer."
        assert len(live.turns) == 2
        assert live.total_cost_usd == pytest.approx(sum(turn.cost_usd for turn in live.turns))
        assert live.session_id
    asyncio.run(talk_in_a_pool(api))
