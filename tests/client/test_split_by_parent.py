"""Whose each message is: the main thread stays clean, and every subagent has a lane of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from peers import ForeignTransport, in_time, result, said

from claude_transport import AssistantMessage, Message, MockTransport, Query, StreamEvent, ToolProgress, UserMessage, decode_message, query
from claude_transport.client import Lane, Lanes, split_by_parent
from claude_transport.client.lanes import MAIN

RECORDINGS = Path(__file__).parent.parent / "recordings"
Frame = dict[str, Any]


def recorded(name: str) -> list[Message]:
    """What the CLI said in a recording."""
    (path,) = RECORDINGS.glob(f"{name}_*.ndjson")
    entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [decode_message(entry["line"].encode()) for entry in entries if entry["dir"] == "out" and "trimmed_from_chars" not in entry]


def decoded(frame: Frame) -> Message:
    return decode_message(json.dumps(frame).encode())


def calls(tool: str, tool_use_id: str, parent: str | None = None, **fields: Any) -> Frame:
    block = {"type": "tool_use", "id": tool_use_id, "name": tool, "input": fields}
    return {"type": "assistant", "message": {"role": "assistant", "content": [block]}, "parent_tool_use_id": parent}


def test_a_recorded_subagent_is_a_lane_and_the_main_thread_has_none_of_it() -> None:
    lanes = Lanes()
    placed = [(lanes.place(message), message) for message in recorded("15a")]
    (subagent,) = lanes.subagents
    main = [message for lane, message in placed if lane is MAIN]
    (call,) = [block.id for message in main if isinstance(message, AssistantMessage) for block in message.tool_uses]
    own = [message for lane, message in placed if lane is subagent]
    assert (subagent.tool_use_id, subagent.parent, subagent.depth) == (call, MAIN, 1)
    assert subagent.agent_id
    assert subagent.description
    assert subagent.subagent_type
    assert own
    assert all(isinstance(message, AssistantMessage | UserMessage) and message.parent_tool_use_id == call for message in own)
    assert not [message for message in main if isinstance(message, AssistantMessage | UserMessage) and message.parent_tool_use_id]
    assert [message.type for message in main].count("result") == 2


def test_the_heartbeat_of_a_tool_is_of_the_thread_that_called_it() -> None:
    """Its `parent_tool_use_id` is the tool use itself, also on the main thread."""
    lanes = Lanes()
    placed = [(lanes.place(message), message) for message in recorded("17c")]
    beats = [(lane, message) for lane, message in placed if isinstance(message, ToolProgress)]
    assert beats
    assert all(lane is MAIN and message.parent_tool_use_id for lane, message in beats)
    assert lanes.subagents == ()


def test_a_subagent_of_a_subagent_knows_who_called_it() -> None:
    lanes = Lanes()
    lanes.place(decoded(calls("Agent", "t1", description="outer")))
    lanes.place(decoded(calls("Agent", "t2", "t1", description="inner", subagent_type="digger")))
    inner = lanes.place(decoded(said("deep", parent_tool_use_id="t2")))
    assert inner.parent is not None
    assert (inner.depth, inner.description, inner.subagent_type) == (2, "inner", "digger")
    assert (inner.parent.tool_use_id, inner.parent.parent) == ("t1", MAIN)


def test_a_subagent_whose_call_nobody_heard_is_a_lane_too() -> None:
    lanes = Lanes()
    lane = lanes.place(decoded(said("x", parent_tool_use_id="t9", agent_id="a1", subagent_type="digger", task_description="dig")))
    assert (lane.tool_use_id, lane.parent) == ("t9", MAIN)
    assert (lane.agent_id, lane.subagent_type, lane.description) == ("a1", "digger", "dig")


def test_a_lane_stays_the_same_object_when_more_is_known_of_it() -> None:
    lanes = Lanes()
    partial = {"type": "stream_event", "event": {"type": "message_start"}, "parent_tool_use_id": "t1"}
    first = lanes.place(decoded(partial))
    second = lanes.place(decoded(said("x", parent_tool_use_id="t1", agent_id="a1")))
    assert first is second
    assert {first: "found"}[second] == "found"
    assert second.agent_id == "a1"


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "tool_progress", "tool_use_id": "t2-heartbeat-0", "tool_name": "Bash", "parent_tool_use_id": "t2"},
        {"type": "system", "subtype": "permission_denied", "tool_name": "Bash", "tool_use_id": "t2"},
        {"type": "system", "subtype": "task_started", "task_id": "b1", "task_type": "local_bash", "tool_use_id": "t2"},
        {"type": "system", "subtype": "task_progress", "task_id": "b1", "tool_use_id": "t2"},
        {"type": "system", "subtype": "task_notification", "task_id": "b1", "tool_use_id": "t2"},
    ],
    ids=lambda frame: frame.get("subtype", frame["type"]),
)
def test_what_is_said_about_a_call_is_in_the_lane_that_made_it(frame: Frame) -> None:
    lanes = Lanes()
    lanes.place(decoded(calls("Agent", "t1")))
    lanes.place(decoded(calls("Bash", "t2", "t1")))
    assert lanes.place(decoded(frame)).tool_use_id == "t1"
    assert Lanes().place(decoded(frame)) is MAIN


@pytest.mark.parametrize(
    "frame",
    [
        said("x"),
        {"type": "user", "message": {"role": "user", "content": "x"}},
        {"type": "stream_event", "event": {"type": "message_start"}},
        {"type": "from_the_future", "told": "x"},
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "from_the_future", "x": 1}]}},
    ],
    ids=["assistant", "user", "stream_event", "unknown", "unknown block"],
)
def test_every_message_that_can_name_its_parent_says_it(frame: Frame) -> None:
    message = decoded({**frame, "parent_tool_use_id": "t1"})
    assert message.to_dict()["parent_tool_use_id"] == "t1"
    assert Lanes().place(message).tool_use_id == "t1"
    assert Lanes().place(decoded({**frame, "parent_tool_use_id": None})) is MAIN
    assert Lanes().place(decoded(frame)) is MAIN
    if isinstance(message, AssistantMessage | UserMessage | StreamEvent):
        assert message.parent_tool_use_id == "t1"


def test_a_call_of_long_ago_is_forgotten_and_its_lane_is_not() -> None:
    lanes = Lanes()
    lanes.place(decoded(calls("Agent", "t1", description="early")))
    early = lanes.place(decoded(said("x", parent_tool_use_id="t1")))
    for number in range(10_001):
        lanes.place(AssistantMessage())
        lanes.place(decoded(calls("Bash", f"b{number}", "t1")))
    assert lanes.place(decoded(said("x", parent_tool_use_id="t1"))) is early
    beat = {"type": "tool_progress", "tool_use_id": "h", "tool_name": "Bash"}
    assert lanes.place(decoded({**beat, "parent_tool_use_id": "b0"})) is MAIN
    assert lanes.place(decoded({**beat, "parent_tool_use_id": "b10000"})) is early


# ------------------------------------------------------------------------------------------------------------------ iterations

INTERLEAVED = [
    calls("Agent", "t1", description="dig"),
    said("main one"),
    said("sub one", parent_tool_use_id="t1"),
    said("main two"),
    said("sub two", parent_tool_use_id="t1"),
    result(),
]


def texts(pairs: list[tuple[Lane, Message]], *, main: bool) -> list[str]:
    return [message.text for lane, message in pairs if isinstance(message, AssistantMessage) and message.text and lane.is_main is main]


async def test_a_turn_splits_into_a_main_thread_and_a_lane() -> None:
    async with Query(MockTransport(INTERLEAVED)) as talk:
        split = split_by_parent(await talk.send("go"))
        pairs = await in_time(everything(split))
    assert texts(pairs, main=True) == ["main one", "main two"]
    assert texts(pairs, main=False) == ["sub one", "sub two"]
    assert [lane.description for lane in split.lanes.subagents] == ["dig"]


async def everything(split: AsyncIterator[tuple[Lane, Message]]) -> list[tuple[Lane, Message]]:
    return [pair async for pair in split]


async def test_all_messages_and_a_one_shot_split_too() -> None:
    async with Query(MockTransport(INTERLEAVED)) as talk:
        split = split_by_parent(talk.messages())
        await (await talk.send("go")).result()
        await talk.end_input()
        assert texts(await in_time(everything(split)), main=False) == ["sub one", "sub two"]
    pairs = await in_time(everything(split_by_parent(query("go", transport=MockTransport(INTERLEAVED)))))
    assert texts(pairs, main=False) == ["sub one", "sub two"]


async def test_leaving_the_loop_loses_nothing_of_the_turn() -> None:
    async with Query(MockTransport(INTERLEAVED)) as talk:
        turn = await talk.send("go")
        async for lane, _message in split_by_parent(turn):
            if not lane.is_main:
                break
        rest = [message async for message in turn]
    assert [message.text for message in rest if isinstance(message, AssistantMessage)] == ["main two", "sub two"]


async def test_closing_a_split_one_shot_ends_its_conversation() -> None:
    transport = ForeignTransport(on_write=lambda frame: transport.say(*INTERLEAVED) if frame["type"] == "user" else None)
    split = split_by_parent(query("go", transport=transport))
    await in_time(anext(split))
    await in_time(split.aclose())
    assert transport.calls.count("close") == 1


async def test_closing_the_split_of_a_turn_leaves_the_turn_alone() -> None:
    async with Query(MockTransport(INTERLEAVED)) as talk:
        turn = await talk.send("go")
        await split_by_parent(turn).aclose()
        assert (await in_time(turn.result())).result == "done"
