"""`CodexTurns` follows the turns of Codex from the bytes, and the first line of a conversation tells its dialect."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Sequence

import pytest
from codex_recordings import NAMES, entries_of, object_on
from hypothesis import given, settings
from hypothesis import strategies as st

from claude_transport.agents.registry import agent_of
from claude_transport.codex.turns import CodexTurns
from claude_transport.protocol.claude_turns import ClaudeTurns
from claude_transport.protocol.framing import LineBlock
from claude_transport.protocol.line_shape import LineShape, shape_of
from claude_transport.protocol.turn_tracker import TurnTracker

SPOKEN = tuple(name for name in NAMES if name.startswith("app_") and any(entry["dir"] == "in" for entry in entries_of(name)))
"""The recordings in which a host speaks with the app server."""

Way = tuple[str, bytes]


def ways_of(name: str) -> list[Way]:
    return [(entry["dir"], entry["line"].encode()) for entry in entries_of(name) if entry["dir"] in ("in", "out")]


def feed(turns: TurnTracker, way: str, lines: Sequence[bytes]) -> None:
    if way == "in":
        turns.said(lines)
    else:
        turns.heard(LineBlock.of(lines))


def story_of(ways: Sequence[Way], turns: TurnTracker) -> list[bool]:
    """Whether it is busy after each line, when every line comes alone."""
    story = []
    for way, line in ways:
        feed(turns, way, [line])
        story.append(turns.busy)
    return story


def told(ways: Sequence[Way]) -> Iterator[bool]:
    """The same story, found by decoding every line: the oracle."""
    asked: set[object] = set()
    running: set[object] = set()
    for way, line in ways:
        message = object_on(line) or {}
        params = message.get("params") or {}
        if way == "in" and message.get("method") == "turn/start":
            asked.add(message["id"])
        elif way == "out" and "method" not in message and message.get("id") in asked:
            asked.discard(message["id"])
            if "result" in message:
                running.add(message["result"]["turn"]["id"])
        elif way == "out" and message.get("method") == "turn/started":
            running.add(params["turn"]["id"])
        elif way == "out" and message.get("method") == "turn/completed":
            running.discard(params["turn"]["id"])
        yield bool(asked or running)


@pytest.mark.parametrize("name", SPOKEN)
def test_a_recording_is_busy_exactly_while_a_prompt_or_a_turn_has_no_end(name: str) -> None:
    ways = ways_of(name)
    assert story_of(ways, CodexTurns()) == list(told(ways))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_however_the_lines_are_cut_into_batches_the_story_is_the_same(data: st.DataObject) -> None:
    ways = ways_of(data.draw(st.sampled_from(SPOKEN)))
    alone, batched = story_of(ways, CodexTurns()), CodexTurns()
    at = 0
    while at < len(ways):
        run = next((end for end in range(at, len(ways)) if ways[end][0] != ways[at][0]), len(ways))
        size = data.draw(st.integers(1, run - at))
        feed(batched, ways[at][0], [line for _, line in ways[at : at + size]])
        at += size
        assert batched.busy == alone[at - 1]


@pytest.mark.parametrize(
    "words", [b"", b"{", b"[]", b"null", b'"turn/completed"', b'{"method":"turn/completed"}', b'{"method":"turn/completed","params":7}']
)
def test_a_line_that_names_no_turn_ends_none(words: bytes) -> None:
    turns = CodexTurns()
    feed(turns, "in", [b'{"id":1,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"id":1,"result":{"turn":{"id":"one"}}}', words])
    assert turns.busy


def test_what_a_message_says_about_turns_begins_and_ends_nothing() -> None:
    turns = CodexTurns()
    feed(turns, "in", [b'{"id":1,"method":"thread/start","params":{"x":["turn/start"]}}'])
    assert not turns.busy
    feed(turns, "in", [b'{"id":2,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"id":2,"result":{"turn":{"id":"one"}}}'])
    says = {"method": "item/agentMessage/delta", "params": {"delta": '"turn/completed","params":{"turn":{"id":"one"}}'}}
    feed(turns, "out", [json.dumps(says).encode(), b'{"method":"x","params":{"method":"turn/completed","turn":{"id":"one"}}}'])
    assert turns.busy


def test_a_prompt_that_is_refused_begins_no_turn() -> None:
    turns = CodexTurns()
    feed(turns, "in", [b'{"id":"a","method":"turn/start","params":{"threadId":"t"}}'])
    assert turns.busy
    feed(turns, "out", [b'{"error":{"code":-32600,"message":"thread not found"},"id":"a"}'])
    assert not turns.busy


def test_an_answer_that_comes_after_the_end_of_its_turn_does_not_begin_it_again() -> None:
    turns = CodexTurns()
    feed(turns, "in", [b'{"id":1,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"method":"turn/completed","params":{"turn":{"id":"one"}}}', b'{"id":1,"result":{"turn":{"id":"one"}}}'])
    assert not turns.busy


def test_the_request_of_codex_with_the_same_id_answers_nothing() -> None:
    turns = CodexTurns()
    feed(turns, "in", [b'{"id":0,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"method":"item/tool/call","id":0,"params":{}}'])
    assert turns.busy
    feed(turns, "out", [b'{"id":0,"error":{"code":1,"message":"no"}}'])
    assert not turns.busy


@pytest.mark.parametrize(
    "words", [b'{"id":1,"method":"turn/start"', b'{"method":"turn/start","params":{}}', b'{"id":1,"method":"turn/start","params":7}']
)
def test_a_prompt_that_codex_cannot_answer_begins_no_turn(words: bytes) -> None:
    turns = CodexTurns()
    feed(turns, "in", [words])
    assert not turns.busy


@pytest.mark.parametrize(
    "words",
    [
        b'{"id":2,"result":{"turn":{"id":"one"}}}',
        b'{"result":{"id":1,"turn":{"id":"one"}}}',
        b'{"id":1',
    ],
)
def test_an_answer_to_nothing_that_was_asked_begins_no_turn(words: bytes) -> None:
    turns = CodexTurns()
    feed(turns, "in", [b'{"id":1,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [words])
    feed(turns, "out", [b'{"id":1,"error":{"code":1,"message":"no"}}'])
    assert not turns.busy


def test_an_answer_that_names_no_turn_begins_none() -> None:
    turns = CodexTurns()
    feed(turns, "in", [b'{"id":1,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"id":1,"result":{}}'])
    assert not turns.busy


def greeting(*unwanted: str) -> bytes:
    wish = {"capabilities": {"optOutNotificationMethods": unwanted}}
    return json.dumps({"id": 0, "method": "initialize", "params": wish}).encode()


def test_a_greeting_counts_once_and_one_that_cannot_be_read_does_not_count() -> None:
    turns = CodexTurns()
    feed(turns, "in", [b'{"id":0,"method":"initialize"', greeting("turn/started"), greeting()])
    feed(turns, "in", [b'{"id":1,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"id":1,"result":{"turn":{"id":"one"}}}'])
    assert len(turns.interrupts()) == 1


def test_a_client_that_does_not_want_the_end_of_turns_is_followed_by_the_status_of_its_threads() -> None:
    turns = CodexTurns()
    wish = {"capabilities": {"optOutNotificationMethods": ["turn/completed"]}}
    feed(turns, "in", [json.dumps({"id": 0, "method": "initialize", "params": wish}).encode()])
    feed(turns, "in", [b'{"id":1,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"id":1,"result":{"turn":{"id":"one"}}}'])
    feed(turns, "out", [b'{"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"active"}}}'])
    assert turns.busy
    feed(turns, "out", [b'{"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}'])
    assert not turns.busy


def test_a_client_that_wants_to_be_told_about_no_end_at_all_counts_as_idle() -> None:
    turns = CodexTurns()
    wish = {"capabilities": {"optOutNotificationMethods": ["turn/completed", "thread/status/changed", 7]}}
    feed(turns, "in", [json.dumps({"id": 0, "method": "initialize", "params": wish}).encode()])
    feed(turns, "in", [b'{"id":1,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"id":1,"result":{"turn":{"id":"one"}}}'])
    assert not turns.busy


def test_the_turns_of_a_thread_that_is_closed_are_over() -> None:
    turns = CodexTurns()
    feed(
        turns,
        "out",
        [b'{"method":"turn/started","params":{"threadId":"%s","turn":{"id":"%s"}}}' % pair for pair in ((b"t", b"1"), (b"u", b"2"))],
    )
    feed(turns, "out", [b'{"method":"thread/closed","params":{"threadId":"t"}}'])
    assert turns.busy
    feed(turns, "out", [b'{"method":"thread/closed","params":{"threadId":"u"}}'])
    assert not turns.busy


def test_every_running_turn_is_interrupted_once() -> None:
    turns = CodexTurns()
    assert turns.interrupts() == []
    feed(turns, "out", [b'{"method":"turn/started","params":{"threadId":"t","turn":{"id":"one"}}}'])
    (line,) = turns.interrupts()
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "id": "claude-transport-end-1",
        "method": "turn/interrupt",
        "params": {"threadId": "t", "turnId": "one"},
    }
    assert turns.interrupts() == []
    feed(turns, "out", [b'{"method":"turn/started","params":{"threadId":"u","turn":{"id":"two"}}}'])
    assert [json.loads(line)["params"]["turnId"] for line in turns.interrupts()] == ["two"]
    assert turns.drops_turns


def test_a_turn_is_not_interrupted_before_codex_would_take_it() -> None:
    turns = CodexTurns()
    feed(turns, "in", [b'{"id":1,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"id":1,"result":{"turn":{"id":"one"}}}'])
    assert turns.drops_turns
    assert turns.interrupts() == []
    feed(turns, "out", [b'{"method":"turn/started","params":{"threadId":"t","turn":{"id":"one"}}}'])
    assert len(turns.interrupts()) == 1


def test_a_client_that_does_not_want_to_know_of_starts_is_interrupted_all_the_same() -> None:
    turns = CodexTurns()
    wish = {"capabilities": {"optOutNotificationMethods": ["turn/started"]}}
    feed(turns, "in", [json.dumps({"id": 0, "method": "initialize", "params": wish}).encode()])
    feed(turns, "in", [b'{"id":1,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"id":1,"result":{"turn":{"id":"one"}}}'])
    assert len(turns.interrupts()) == 1


def test_claude_needs_no_interrupt_before_its_input_ends() -> None:
    turns = ClaudeTurns()
    turns.said([b'{"type":"user","message":{"role":"user","content":"go"}}'])
    assert turns.busy
    assert not turns.drops_turns
    assert turns.interrupts() == []


def test_a_client_that_floods_it_with_prompts_costs_bounded_memory() -> None:
    turns = CodexTurns()
    for number in range(3000):
        feed(turns, "in", [b'{"id":%d,"method":"turn/start","params":{"threadId":"t"}}' % number])
    for number in range(3000):
        feed(turns, "out", [b'{"method":"turn/started","params":{"threadId":"t","turn":{"id":"%d"}}}' % number])
    assert turns.busy
    assert len(turns.interrupts()) == 1000
    turns.rest()
    assert not turns.busy


def test_no_more_than_a_thousand_prompts_are_waited_for() -> None:
    turns = CodexTurns()
    for number in range(1001):
        feed(turns, "in", [b'{"id":%d,"method":"turn/start","params":{"threadId":"t"}}' % number])
    for number in range(1000):
        assert turns.busy
        feed(turns, "out", [b'{"id":%d,"error":{"code":1,"message":"no"}}' % number])
    assert not turns.busy


def test_turns_that_are_over_cost_bounded_memory() -> None:
    """Each has an id of 10 kB. The last 64 are remembered: an answer that names one of them could come late."""
    turns = CodexTurns()
    tracemalloc.start()
    try:
        for number in range(300):
            turn = b'"params":{"threadId":"t","turn":{"id":"%d-%b"}}' % (number, b"x" * 10_000)
            feed(turns, "out", [b'{"method":"turn/started",%b}' % turn])
            assert len(turns.interrupts()) == 1
            feed(turns, "out", [b'{"method":"turn/completed",%b}' % turn])
        assert tracemalloc.get_traced_memory()[0] < 1_500_000
    finally:
        tracemalloc.stop()


def test_what_was_forgotten_is_interrupted_again_once_codex_would_take_it() -> None:
    turns = CodexTurns()
    started = b'{"method":"turn/started","params":{"threadId":"t","turn":{"id":"one"}}}'
    feed(turns, "out", [started])
    assert len(turns.interrupts()) == 1
    turns.rest()
    feed(turns, "in", [b'{"id":1,"method":"turn/start","params":{"threadId":"t"}}'])
    feed(turns, "out", [b'{"id":1,"result":{"turn":{"id":"one"}}}'])
    assert turns.interrupts() == []
    feed(turns, "out", [started])
    assert len(turns.interrupts()) == 1


@pytest.mark.parametrize("name", SPOKEN)
def test_every_line_of_a_recorded_app_server_tells_that_it_is_codex(name: str) -> None:
    assert agent_of([line for _, line in ways_of(name)]).name == "codex"
    told_by = {shape_of(line) for _, line in ways_of(name)}
    assert told_by & {LineShape.RPC, LineShape.EVENT}
    assert LineShape.TYPED not in told_by


def test_lines_without_a_message_do_not_decide_and_many_of_them_mean_claude() -> None:
    codex = b'{"method":"initialized"}'
    assert agent_of([b"", b"noise", codex]).name == "codex"
    assert agent_of([*[b"noise"] * 16, codex]).name == "claude-code"
    assert agent_of([]).name == "claude-code"
