"""`ClaudeTurns` follows the turns of `claude` from the bytes: what is running, what is over, and whether more may come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claude_transport.protocol.claude_turns import ClaudeTurns
from claude_transport.protocol.framing import LineBlock

RESULT = {"type": "result", "subtype": "success"}
INIT = {"type": "system", "subtype": "init"}
ONE, TWO, THREE = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333"

UNREADABLE = {
    "torn": b'{"text":',
    "not UTF-8": b'{"uuid":"\xff",',
    "too deep": b'{"text":' + b"[" * 100_000 + b",",
    "of another form": b'{"uuid":5,',
}
"""The beginnings of lines that cannot be read."""


def state(name: str) -> dict[str, Any]:
    return {"type": "system", "subtype": "session_state_changed", "state": name}


def life(uuid: str, name: str) -> dict[str, Any]:
    return {"type": "system", "subtype": "command_lifecycle", "command_uuid": uuid, "state": name}


def prompt(uuid: str | None = None) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": "Hi"}, **({} if uuid is None else {"uuid": uuid})}


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()


def say(turns: ClaudeTurns, *messages: dict[str, Any]) -> None:
    turns.said([line(message) for message in messages])


def hear(turns: ClaudeTurns, *messages: dict[str, Any], exactly: bool = False) -> None:
    turns.heard(LineBlock.of([line(message) for message in messages]), exactly=exactly)


def facts_of(turns: ClaudeTurns) -> tuple[bool, bool, int, int]:
    """Whether it is busy, whether a turn may follow, and how many prompts have begun and are over."""
    return turns.busy, turns.turn_may_follow, turns.begun, turns.over


@pytest.mark.parametrize("beginning", UNREADABLE.values(), ids=UNREADABLE)
def test_a_prompt_that_cannot_be_read_is_a_prompt_without_a_name(beginning: bytes) -> None:
    turns = ClaudeTurns()
    turns.said([beginning + b'"type":"user"}'])
    assert facts_of(turns) == (True, False, 1, 0)
    hear(turns, RESULT)
    assert facts_of(turns) == (False, False, 1, 1)


@pytest.mark.parametrize("beginning", UNREADABLE.values(), ids=UNREADABLE)
def test_a_result_that_cannot_be_read_is_none(beginning: bytes) -> None:
    turns = ClaudeTurns()
    say(turns, prompt())
    turns.heard(LineBlock.of([beginning + b'"type":"result"}']))
    assert facts_of(turns) == (True, False, 1, 0)


def test_a_line_of_another_type_that_holds_a_result_is_none() -> None:
    turns = ClaudeTurns()
    say(turns, prompt())
    hear(turns, {"type": "assistant", "inner": {"type": "result"}}, {"type": "system", "subtype": "result", "about": "init"})
    assert facts_of(turns) == (True, False, 1, 0)


@pytest.mark.parametrize("first", [prompt(), prompt(ONE)])
def test_after_a_rest_it_counts_as_from_the_beginning(first: dict[str, Any]) -> None:
    turns = ClaudeTurns()
    say(turns, first, prompt(TWO))
    hear(turns, life(TWO, "started"))
    turns.rest()
    assert facts_of(turns) == (False, False, 2, 2)
    say(turns, prompt(THREE))
    assert facts_of(turns) == (True, False, 3, 2)
    hear(turns, life(THREE, "started"), RESULT, life(THREE, "completed"))
    assert facts_of(turns) == (False, False, 3, 3)


def test_after_a_rest_the_result_of_a_prompt_is_its_own() -> None:
    turns = ClaudeTurns()
    say(turns, prompt())
    turns.rest()
    say(turns, prompt(TWO))
    hear(turns, RESULT)
    assert facts_of(turns) == (False, False, 2, 2)


def test_a_turn_of_two_prompts_may_be_followed_by_another() -> None:
    turns = ClaudeTurns()
    say(turns, prompt(), prompt())
    hear(turns, RESULT)
    assert facts_of(turns) == (False, True, 2, 1)
    hear(turns, RESULT)
    assert facts_of(turns) == (False, False, 2, 2)
    hear(turns, RESULT)
    assert facts_of(turns) == (False, False, 2, 2)


def test_a_result_of_a_prompt_with_a_name_stands_for_no_later_prompt() -> None:
    turns = ClaudeTurns()
    say(turns, prompt(ONE))
    hear(turns, life(ONE, "started"), RESULT, life(ONE, "completed"))
    assert facts_of(turns) == (False, False, 1, 1)
    say(turns, prompt(), prompt())
    hear(turns, RESULT)
    assert facts_of(turns) == (False, True, 3, 2)


def test_where_prompts_are_named_one_without_a_name_is_read_with_the_next_result() -> None:
    turns = ClaudeTurns()
    say(turns, prompt(ONE), prompt())
    hear(turns, life(ONE, "started"), RESULT)
    assert facts_of(turns) == (False, True, 2, 1)


def test_a_result_that_was_not_looked_at_is_over_with_the_state_idle() -> None:
    turns = ClaudeTurns()
    hear(turns, state("idle"))
    say(turns, prompt())
    hear(turns, state("running"), state("idle"))
    say(turns, prompt(TWO), prompt())
    hear(turns, RESULT, RESULT, state("idle"))
    assert facts_of(turns) == (False, False, 3, 3)


def test_a_result_that_names_its_prompts_stands_for_no_other() -> None:
    turns = ClaudeTurns()
    say(turns, prompt(), prompt())
    hear(turns, {**RESULT, "user_message_uuids": [ONE]})
    assert facts_of(turns) == (False, True, 2, 1)
    hear(turns, {**RESULT, "user_message_uuid": ONE})
    assert facts_of(turns) == (False, True, 2, 2)
    hear(turns, RESULT, RESULT)
    assert facts_of(turns) == (False, True, 2, 2)


def test_where_prompts_are_named_a_turn_may_follow_until_each_is_completed_or_cancelled() -> None:
    turns = ClaudeTurns()
    say(turns, prompt(ONE), prompt(TWO), prompt(THREE))
    hear(turns, life(ONE, "started"), RESULT)
    assert facts_of(turns) == (True, False, 3, 1)
    hear(turns, life(THREE, "started"), {**RESULT, "user_message_uuids": [THREE]})
    assert facts_of(turns) == (False, True, 3, 2)
    hear(turns, life(ONE, "completed"))
    assert facts_of(turns) == (False, True, 3, 2)
    hear(turns, life(THREE, "cancelled"))
    assert facts_of(turns) == (False, False, 3, 2)


def test_a_turn_without_a_prompt_begins_with_its_init_and_ends_with_its_result() -> None:
    turns = ClaudeTurns(begun=2, over=2)
    hear(turns, INIT)
    assert not turns.busy
    turns = ClaudeTurns(begun=2, over=1)
    assert facts_of(turns) == (True, False, 2, 1)
    hear(turns, RESULT)
    assert facts_of(turns) == (False, False, 2, 2)


def test_where_a_turn_may_follow_its_init_makes_it_busy() -> None:
    turns = ClaudeTurns()
    say(turns, prompt(), prompt())
    hear(turns, RESULT)
    hear(turns, {"type": "system", "subtype": "status", "about": "init"})
    assert not turns.busy
    hear(turns, INIT)
    assert facts_of(turns) == (True, False, 2, 1)
    hear(turns, RESULT)
    assert facts_of(turns) == (False, False, 2, 2)


def test_where_states_are_reported_idle_ends_what_was_read_and_a_result_does_not() -> None:
    turns = ClaudeTurns()
    hear(turns, state("running"))
    assert facts_of(turns) == (True, False, 0, 0)
    hear(turns, state("idle"), INIT)
    assert facts_of(turns) == (False, False, 0, 0)
    say(turns, prompt(ONE))
    hear(turns, life(ONE, "started"), RESULT)
    assert facts_of(turns) == (True, False, 1, 0)
    say(turns, prompt(TWO))
    hear(turns, state("idle"))
    assert facts_of(turns) == (True, False, 2, 1)
    hear(turns, life(TWO, "started"), RESULT, state("requires_action"))
    assert facts_of(turns) == (True, False, 2, 1)
    hear(turns, state("idle"))
    assert facts_of(turns) == (False, False, 2, 2)


def test_a_prompt_that_was_not_read_before_idle_keeps_it_busy() -> None:
    turns = ClaudeTurns()
    hear(turns, state("idle"))
    say(turns, prompt(ONE))
    hear(turns, state("idle"))
    assert facts_of(turns) == (True, False, 1, 0)


def test_only_the_end_of_a_burst_is_searched_for_the_end_of_a_turn_unless_all_of_it_is_asked_for() -> None:
    burst = [state("idle"), {"type": "stream_event", "text": "x" * 17_000}]
    for exactly in (False, True):
        turns = ClaudeTurns()
        hear(turns, state("running"))
        hear(turns, *burst, exactly=exactly)
        assert turns.busy is not exactly


def test_while_it_is_idle_the_beginning_of_a_burst_tells_too() -> None:
    turns = ClaudeTurns()
    hear(turns, state("idle"))
    hear(turns, state("running"), {"type": "stream_event", "text": "x" * 17_000})
    assert facts_of(turns) == (True, False, 0, 0)


def test_while_it_is_busy_a_result_is_counted_that_comes_without_a_state() -> None:
    turns = ClaudeTurns()
    hear(turns, state("idle"))
    say(turns, prompt(), prompt(), prompt())
    hear(turns, RESULT)
    assert facts_of(turns) == (True, False, 3, 0)
    hear(turns, RESULT)
    hear(turns, RESULT)
    hear(turns, state("idle"))
    assert facts_of(turns) == (False, False, 3, 3)


def test_what_is_read_and_completed_is_noted_also_when_it_comes_alone() -> None:
    turns = ClaudeTurns()
    say(turns, prompt(ONE))
    hear(turns, life(ONE, "started"))
    hear(turns, RESULT)
    assert facts_of(turns) == (False, True, 1, 1)
    hear(turns, INIT)
    assert facts_of(turns) == (True, False, 1, 1)
    hear(turns, RESULT)
    assert facts_of(turns) == (False, True, 1, 1)
    hear(turns, life(ONE, "completed"))
    assert facts_of(turns) == (False, False, 1, 1)


def test_after_two_prompts_with_one_result_an_init_begins_another_turn() -> None:
    turns = ClaudeTurns()
    say(turns, prompt(ONE), prompt(TWO))
    hear(turns, life(ONE, "started"), life(TWO, "started"), RESULT, life(ONE, "completed"), life(TWO, "completed"))
    assert facts_of(turns) == (False, False, 2, 1)
    hear(turns, INIT)
    assert facts_of(turns) == (True, False, 2, 1)


def test_ten_thousand_prompts_are_remembered_and_more_count_as_read() -> None:
    turns = ClaudeTurns()
    say(turns, prompt(), *[prompt()] * 10_050)
    hear(turns, state("idle"))
    assert facts_of(turns) == (True, False, 10_051, 51)
