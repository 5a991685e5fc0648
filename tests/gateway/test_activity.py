"""`Activity` finds out from the bytes of a session whether a turn runs: what begins it, and which line of a batch ends it."""

from __future__ import annotations

import anyio
import pytest

from claude_transport.gateway.session import Activity
from claude_transport.protocol.framing import LineBlock

PROMPT = b'{"type":"user","message":{"role":"user","content":"go"}}'
DELTA = b'{"type":"stream_event","event":{"type":"content_block_delta"}}'
RESULT = b'{"type": "result","subtype":"success"}'
RUNNING = b'{"type":"system","subtype":"session_state_changed","state":"running"}'
IDLE = b'{"type":"system","subtype":"session_state_changed","state":"idle"}'


@pytest.fixture
def turn() -> Activity:
    """An activity whose turn has begun."""
    activity = Activity()
    activity.said([PROMPT])
    return activity


def test_a_turn_begins_with_a_prompt_and_with_nothing_else() -> None:
    activity = Activity()
    activity.said([b'{"type":"control_request"}'])
    activity.heard(LineBlock.of([DELTA]))
    assert not activity.busy
    activity.said([b'{"type":"control_request"}', PROMPT])
    assert activity.busy


@pytest.mark.parametrize("before", [0, 1, 250])
async def test_a_result_ends_the_turn_of_a_cli_that_does_not_speak_of_its_state(turn: Activity, before: int) -> None:
    turn.heard(LineBlock.of([DELTA] * 10))
    assert turn.busy
    turn.heard(LineBlock.of([*[DELTA] * before, RESULT, DELTA]))
    assert not turn.busy
    await turn.idle()


@pytest.mark.parametrize("batches", [[[RUNNING], [DELTA], [RESULT]], [[RUNNING, DELTA, RESULT]], [[DELTA, RUNNING], [RESULT, DELTA]]])
async def test_once_the_cli_has_spoken_of_its_state_only_idle_ends_the_turn(turn: Activity, batches: list[list[bytes]]) -> None:
    for batch in batches:
        turn.heard(LineBlock.of(batch))
    assert turn.busy
    turn.heard(LineBlock.of([DELTA, IDLE, DELTA]))
    assert not turn.busy
    await turn.idle()


def test_what_a_message_says_about_results_and_states_ends_nothing(turn: Activity) -> None:
    turn.heard(
        LineBlock.of([rb'{"type":"assistant","text":"it says \"type\":\"result\" and \"session_state_changed\" with \"state\":\"idle\""}'])
    )
    assert turn.busy


BURST = [DELTA] * 2000


async def test_the_end_of_a_turn_is_found_at_the_end_of_a_burst(turn: Activity) -> None:
    turn.heard(LineBlock.of([RUNNING]))
    turn.heard(LineBlock.of(BURST))
    assert turn.busy
    turn.heard(LineBlock.of([*BURST, RESULT, IDLE, DELTA]))
    assert not turn.busy
    await turn.idle()


async def test_a_cli_that_does_not_speak_of_its_state_may_end_its_turn_with_a_long_line(turn: Activity) -> None:
    turn.heard(LineBlock.of([b'{"type":"result","result":"' + b"long " * 20_000 + b'"}']))
    assert not turn.busy


async def test_who_waits_for_the_end_of_a_turn_hears_of_it_in_the_middle_of_a_burst(turn: Activity) -> None:
    turn.heard(LineBlock.of([RUNNING]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn.idle)
        await anyio.wait_all_tasks_blocked()
        turn.heard(LineBlock.of([*BURST, IDLE, *BURST]))
    assert not turn.busy


async def test_who_has_given_up_waiting_makes_no_later_burst_slow(turn: Activity) -> None:
    turn.heard(LineBlock.of([RUNNING]))
    with anyio.move_on_after(0):
        await turn.idle()
    turn.heard(LineBlock.of([*BURST, IDLE, *BURST]))
    assert turn.busy  # only the end of the burst was searched


def prompt(uuid: str) -> bytes:
    return b'{"type":"user","uuid":"%s","message":{"role":"user","content":"go"}}' % uuid.encode()


def life(word: str, uuid: str) -> bytes:
    return b'{"type":"command_lifecycle","command_uuid":"%s","state":"%s"}' % (uuid.encode(), word.encode())


def test_a_prompt_that_comes_between_a_result_and_idle_keeps_the_session_busy(turn: Activity) -> None:
    turn.heard(LineBlock.of([RUNNING, RESULT]))
    turn.said([PROMPT])  # a client sends it as soon as it has the result
    turn.heard(LineBlock.of([IDLE]))
    assert turn.busy
    turn.heard(LineBlock.of([RUNNING, *BURST, RESULT, IDLE]))
    assert not turn.busy


def test_a_prompt_with_a_uuid_keeps_the_session_busy_until_the_cli_is_idle_after_it_has_named_it() -> None:
    activity = Activity()
    activity.said([prompt("one")])
    activity.heard(LineBlock.of([life("queued", "one"), RUNNING]))
    activity.said([prompt("two")])
    activity.heard(LineBlock.of([*BURST, RESULT, IDLE, life("completed", "one")]))
    assert activity.busy
    activity.heard(LineBlock.of([life("queued", "two"), RUNNING, *BURST, RESULT]))
    assert activity.busy
    activity.heard(LineBlock.of([IDLE]))
    assert not activity.busy


def test_a_prompt_that_joined_the_running_turn_ends_with_it() -> None:
    activity = Activity()
    for uuid in ("one", "two"):
        activity.said([prompt(uuid)])
        activity.heard(LineBlock.of([life("queued", uuid)]))
    activity.heard(LineBlock.of([RUNNING, RESULT, IDLE]))
    assert not activity.busy


def test_a_result_does_not_end_the_turn_of_a_prompt_that_was_not_read_where_the_cli_reports_no_states() -> None:
    activity = Activity()
    activity.said([prompt("one")])
    activity.heard(LineBlock.of([life("started", "one")]))
    activity.said([prompt("two")])
    activity.heard(LineBlock.of([RESULT]))
    assert activity.busy
    activity.heard(LineBlock.of([life("started", "two"), RESULT]))
    assert not activity.busy


def test_a_session_that_rests_forgets_the_prompts_that_were_not_read(turn: Activity) -> None:
    turn.heard(LineBlock.of([RUNNING]))
    turn.said([prompt("lost")])
    turn.rest()
    assert not turn.busy
    turn.said([PROMPT])
    turn.heard(LineBlock.of([RESULT, IDLE]))
    assert not turn.busy


def test_a_result_inside_of_another_message_reads_no_prompt(turn: Activity) -> None:
    turn.heard(LineBlock.of([RUNNING, RESULT]))
    turn.said([PROMPT])
    turn.heard(LineBlock.of([b'{"type":"assistant","message":{"content":[{"type":"result"}]}}', IDLE]))
    assert turn.busy


def test_a_prompt_that_the_cli_dropped_without_a_word_keeps_the_session_busy_until_a_later_one_is_read() -> None:
    activity = Activity()
    activity.said([prompt("one")])
    activity.heard(LineBlock.of([life("queued", "one"), RUNNING, RESULT, IDLE]))
    activity.said([prompt("one"), prompt("two")])  # a repeated uuid is no prompt
    activity.heard(LineBlock.of([life("queued", "two"), RUNNING, RESULT, IDLE]))
    assert not activity.busy
