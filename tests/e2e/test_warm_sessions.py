"""The pool with the real binary: cold against warm in starts and waits, why a session is not used twice, and who is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import PATIENCE, Doorkeeper, Live, bash, of_type

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI

Environment = Callable[..., dict[str, str]]


def options_for(cli: str, home: Any, environment: dict[str, str]) -> ct.ClaudeOptions:
    return ct.ClaudeOptions(cli_path=cli, cwd=home.project, env=environment, env_mode="exact")


async def test_a_warm_session_needs_neither_a_start_nor_a_wait_and_a_cold_one_needs_both(
    claude_cli: str, cli_home: Any, cli_env: Environment
) -> None:
    made: list[ct.SubprocessTransport] = []

    def make(options: ct.ClaudeOptions) -> ct.SubprocessTransport:
        made.append(ct.SubprocessTransport(options))
        return made[-1]

    async with FakeMessagesAPI(lambda request: f"Re: {request.prompt}") as api:
        options = options_for(claude_cli, cli_home, cli_env(api))
        with anyio.fail_after(PATIENCE):
            async with ct.SessionPool(options, warm=0, cap=1, make_transport=make) as pool:
                with pytest.raises(ct.ConnectTimeout):
                    async with pool.acquire(timeout=0):
                        pass
                assert (pool.snapshot().starting, pool.snapshot().handed_out) == (1, 0)
            made.clear()
            async with ct.SessionPool(options, warm=1, cap=2, make_transport=make) as pool:
                await pool.warm_up()
                for number in range(3):
                    await pool.warm_up()
                    started = len(made)
                    async with pool.acquire(timeout=0) as query:
                        assert query.info is not None
                        assert query.info.pid in [transport.info.pid for transport in made[:started]]
                        assert query.initialization.commands
                        assert (await (await query.send(f"Prompt {number}")).result()).result == f"Re: Prompt {number}"
                    assert pool.snapshot().live <= 2
                assert pool.snapshot().handed_out_warm == 3
            prompts = [request.prompt for request in api.conversation]
    assert prompts == ["Prompt 0", "Prompt 1", "Prompt 2"]
    assert len({transport.info.pid for transport in made}) == len(made)
    assert not any(Path(f"/proc/{transport.info.pid}").exists() for transport in made)


@pytest.mark.needs("conversation_reset")
async def test_what_its_last_user_set_survives_in_a_cleared_process_so_it_is_not_handed_out_again(live: Live) -> None:
    async with live(lambda _request: "Hello.") as session:
        first = await session.ask("Hello")
        await session.query.set_permission_mode("plan")
        await session.query.set_model("opus")
        messages = await session.hear("/clear")
        (reset,) = of_type(messages, ct.ConversationReset)
        assert reset.trigger == "clear"
        messages = await session.hear("Hello again")
        (init,) = of_type(messages, ct.messages.InitMessage)
        (result,) = of_type(messages, ct.ResultMessage)
        assert result.session_id != first.session_id
        assert (init.permission_mode, "opus" in (init.model or "")) == ("plan", True)
        assert (result.total_cost_usd or 0) > (first.total_cost_usd or 0) > 0


@pytest.mark.needs("user_message_uuids")
async def test_a_prompt_that_follows_initialize_at_once_is_one_turn_but_runs_before_anybody_knows_how_the_start_went(
    claude_cli: str, cli_home: Any, cli_env: Environment
) -> None:
    lines = [
        {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize", "hooks": {"Stop": [{"no": "shape"}]}}},
        {"type": "user", "message": {"role": "user", "content": "Hello"}},
    ]
    async with FakeMessagesAPI(["Hello."]) as api:
        with anyio.fail_after(PATIENCE):
            async with ct.SubprocessTransport(options_for(claude_cli, cli_home, cli_env(api))) as transport:
                await transport.write(b"".join(map(ct.messages.encode_line, lines)))
                seen: list[str] = []
                async for message in transport.read_messages():
                    seen.append(str(message.get("response", {}).get("subtype") or message["type"]))
                    if message["type"] == "result":
                        break
        assert seen.count("error") == seen.count("result") == 1  # the start was refused, and the model was asked
        assert len(api.conversation) == 1


async def test_the_memory_of_a_real_process_is_known_and_kept_in_bounds(claude_cli: str, cli_home: Any, cli_env: Environment) -> None:
    async with FakeMessagesAPI() as api:
        options = options_for(claude_cli, cli_home, cli_env(api))
        with anyio.fail_after(PATIENCE):
            async with ct.SessionPool(options, max_rss_bytes=2**40) as pool:
                await pool.warm_up()
                async with pool.acquire(timeout=0):
                    pass
            async with ct.SessionPool(options, warm=0, max_rss_bytes=2**20) as pool:
                with pytest.raises(ct.ConfigurationError, match="max_rss_bytes"):
                    async with pool.acquire():
                        pass


async def test_whoever_takes_a_warm_session_may_bring_the_one_who_is_asked(claude_cli: str, cli_home: Any, cli_env: Environment) -> None:
    nobody, mine = Doorkeeper([ct.Deny("nobody is here")]), Doorkeeper()
    async with FakeMessagesAPI([bash("touch made.txt"), "Done."]) as api:
        options = options_for(claude_cli, cli_home, cli_env(api))
        with anyio.fail_after(PATIENCE):
            async with ct.SessionPool(options, can_use_tool=nobody) as pool:
                await pool.warm_up()
                async with pool.acquire(timeout=0, can_use_tool=mine) as query:
                    assert (await (await query.send("Make a file")).result()).result == "Done."
    assert (mine.commands, nobody.commands) == (["touch made.txt"], [])
    assert (cli_home.project / "made.txt").exists()
