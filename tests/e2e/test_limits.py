"""Limits on the real CLI: turns, money and sizes end in an outcome of their own, and the session goes on."""

from __future__ import annotations

import pytest
from live_session import Live, bash

from claude_transport import errors
from claude_transport.testing import replies


async def test_too_many_turns_are_a_typed_failure_and_each_prompt_counts_anew(live: Live) -> None:
    async with live(max_turns=2, allowed_tools=["Bash"]) as session:
        session.api.replace([bash("echo one"), bash("echo two"), "Short.", "never"])
        result = await session.ask("Go on for ever")
        with pytest.raises(errors.MaxTurnsReached) as caught:
            result.raise_for_error()
        assert (caught.value.code, result.terminal_reason) == ("result.max_turns", "max_turns")
        assert (await session.ask("Only a word")).raise_for_error().result == "Short."
        report = await session.query.aclose()
    assert (report.ended_by_itself, report.exit_code) == (True, 0)


@pytest.mark.needs("terminal_reason of a limit")
async def test_too_much_money_is_a_typed_failure_and_stays_one(live: Live) -> None:
    dear = replies.text("A dear answer.", usage=replies.Usage(input_tokens=100_000, output_tokens=1000), times=None)
    async with live(dear, max_budget_usd=0.01) as session:
        for _ in range(2):
            result = await session.ask("Spend")
            with pytest.raises(errors.BudgetExceeded) as caught:
                result.raise_for_error()
            assert (caught.value.code, result.terminal_reason) == ("result.budget", "budget_exhausted")
            assert result.total_cost_usd > 0.01
        report = await session.query.aclose()
    assert (report.ended_by_itself, report.exit_code) == (True, 1)


async def test_within_its_limits_a_turn_is_fine(live: Live) -> None:
    async with live([bash("echo hi"), "Done."], max_turns=2, max_budget_usd=5.0, allowed_tools=["Bash"]) as session:
        assert (await session.ask("Say hi")).raise_for_error().result == "Done."
