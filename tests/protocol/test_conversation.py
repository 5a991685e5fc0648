"""The state machine alone: stimulus in, actions out, without an event loop. Its facts are recorded ones, replayed line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_lines import recordings_folder

from claude_transport.errors import StructuredOutputMissing, UsageError
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.conversation import (
    MAX_AGENT_CHARS,
    MAX_AGENTS,
    TURN_TRANSITIONS,
    Action,
    Cancel,
    Conversation,
    Deliver,
    Reject,
    Resolve,
    Settle,
    Start,
    TurnEvent,
    TurnState,
)
from claude_transport.protocol.envelope import Message, encode_line
from claude_transport.protocol.messages import CommandLifecycle, ResultMessage, SessionForked

A, B, C = (f"{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}" for digit in "123")

Frame = dict[str, Any]


# ------------------------------------------------------------------------------------------------------------ frames by hand


def init(*uuids: str, session: str = "s1") -> Frame:
    return {"type": "system", "subtype": "init", "session_id": session, **({"user_message_uuids": list(uuids)} if uuids else {})}


def said(text: str = "word", *, uuid: str = "m1", **fields: Any) -> Frame:
    return {"type": "assistant", "uuid": uuid, "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}, **fields}


def result(*uuids: str, **fields: Any) -> Frame:
    named = {"user_message_uuids": list(uuids), "user_message_uuid": uuids[-1]} if uuids else {}
    return {"type": "result", "subtype": "success", "is_error": False, "terminal_reason": "completed", **named, **fields}


def lifecycle(uuid: str, state: str) -> Frame:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state}


def state(name: str) -> Frame:
    return {"type": "system", "subtype": "session_state_changed", "state": name}


def tasks(*named: str) -> Frame:
    return {
        "type": "system",
        "subtype": "background_tasks_changed",
        "tasks": [{"task_id": name, "task_type": "local_agent", "description": f"about {name}"} for name in named],
    }


def response(request_id: str, **fields: Any) -> Frame:
    return {"type": "control_response", "response": {"subtype": "success", "request_id": request_id, **fields}}


def asked(request_id: str, subtype: str = "can_use_tool") -> Frame:
    return {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, "tool_name": "Bash"}}


WOKEN = {"origin": {"kind": "task-notification", "producer": "session-task"}}


class Follower:
    """A conversation that is shown frames, and what it made of them."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.decoder = LineDecoder()
        self.actions: list[Action] = []

    def send(self, *uuids: str) -> None:
        for uuid in uuids:
            self.conversation.send(uuid)

    def hear(self, *frames: Frame) -> list[Action]:
        return self.take(self.decoder.messages([encode_line(frame) for frame in frames]))

    def take(self, messages: Sequence[Message]) -> list[Action]:
        actions = self.conversation.received(messages)
        self.actions += actions
        return actions

    def end(self) -> None:
        self.actions += self.conversation.ended()

    @property
    def ends(self) -> dict[str, TurnState]:
        return {action.uuid: action.state for action in self.actions if isinstance(action, Settle)}

    @property
    def results(self) -> dict[str, ResultMessage | None]:
        return {action.uuid: action.result for action in self.actions if isinstance(action, Settle)}

    def delivered_to(self, uuid: str) -> list[str]:
        return [
            what(message) for action in self.actions if isinstance(action, Deliver) and uuid in action.turns for message in action.messages
        ]

    @property
    def delivered(self) -> list[str]:
        return [what(message) for action in self.actions if isinstance(action, Deliver) for message in action.messages]


def what(message: Message) -> str:
    """A short name: `assistant`, `init`, `lifecycle queued`, …"""
    if isinstance(message, CommandLifecycle):
        return f"lifecycle {message.state}"
    return str(getattr(message, "subtype", "")) if message.type == "system" else message.type


@pytest.fixture
def follower() -> Follower:
    return Follower()


# ------------------------------------------------------------------------------------------------------- recordings, replayed


def recorded(name: str) -> Iterator[tuple[str, Frame]]:
    """The lines of a recording in their order, both directions; a line that was cut while recording keeps what it was about."""
    paths = sorted(recordings_folder().glob(f"{name}_*.ndjson"))
    for text in paths[0].read_text("utf-8").splitlines():
        entry = json.loads(text)
        if entry["dir"] not in ("in", "out"):
            continue
        if "trimmed_from_chars" not in entry:
            yield entry["dir"], json.loads(entry["line"])
        elif '"control_response"' in entry["line"][:40]:  # the answer to initialize, in all recordings that are replayed here
            yield "out", response("init-1")


def replay(name: str) -> tuple[Follower, list[str]]:
    """A recorded session as a host would have followed it, and the uuids of its prompts in the order of sending.

    Where some prompts were sent with a uuid, those without are somebody else's. Where none was, each gets one that the CLI, like
    an old one, says nothing of.
    """
    follower = Follower()
    sent: list[str] = []
    ids: dict[str, str] = {}
    uuids_are_sent = any(frame["type"] == "user" and "uuid" in frame for way, frame in recorded(name) if way == "in")
    for direction, frame in recorded(name):
        if direction == "out":
            if frame["type"] == "control_response":
                request_id = frame["response"]["request_id"]
                frame["response"]["request_id"] = ids.get(request_id, request_id)
            follower.hear(frame)
        elif frame["type"] == "user":
            uuid = frame.get("uuid") or ("" if uuids_are_sent else f"prompt-{len(sent)}")
            if uuid:
                sent.append(uuid)
                follower.send(uuid)
        elif frame["type"] == "control_request":
            ids[frame["request_id"]] = follower.conversation.request(frame["request"]["subtype"])
        elif frame["type"] == "control_response":
            follower.conversation.answered(frame["response"]["request_id"])
    follower.end()
    return follower, sent


D, F, X, L = TurnState.DONE, TurnState.FOLDED, TurnState.DROPPED, TurnState.LOST


@pytest.mark.parametrize(
    ("name", "states", "result_indices"),
    [
        pytest.param("01", [D], [0], id="one turn, without initialize"),
        pytest.param("10a", [D, D], [0, 1], id="turn after turn"),
        pytest.param("10b", [D, D], [0, 1], id="two prompts at once are two turns"),
        pytest.param("10c", [D, D], [0, 1], id="priority now ends the running turn"),
        pytest.param("10d", [D], [0], id="shouldQuery false has a result of its own"),
        pytest.param("10e", [D, X], [0, None], id="cancelled while it waited"),
        pytest.param("10f", [D, F], [0, 0], id="folded into the running turn"),
        pytest.param("10g", [D, D], [0, 1], id="priority later is not folded"),
        pytest.param("10h", [D, F], [0, 0], id="folded, and the CLI names no prompts"),
        pytest.param("10i", [D, D, F], [0, 1, 1], id="merged into one next turn"),
        pytest.param("10j", [D, D, F], [0, 1, 1], id="merged, and the CLI names no prompts"),
        pytest.param("07a", [D], [0], id="interrupted, and a turn of others after it"),
        pytest.param("07f", [D, X, X], [0, None, None], id="interrupted along with what was queued"),
        pytest.param("15a", [D], [0], id="a background agent starts a turn of its own"),
        pytest.param("15c", [D], [0], id="the same with session states"),
        pytest.param("24a", [D], [0], id="so does a background shell"),
        pytest.param("18x", [D, D], [0, 1], id="a slash command is a turn"),
        pytest.param("18za", [D, D, D, D, D], [0, 1, 2, 3, 4], id="so are compact and clear"),
        pytest.param("05e", [D], [0], id="a prompt that a hook blocks has a result"),
        pytest.param("20g", [L], [None], id="killed in the middle"),
    ],
)
def test_recorded_prompts_reach_their_recorded_ends(name: str, states: list[TurnState], result_indices: list[int | None]) -> None:
    follower, sent = replay(name)
    assert [follower.ends[uuid] for uuid in sent] == states
    results = [follower.results[uuid] for uuid in sent]
    assert [None if found is None else found.result_index for found in results] == result_indices
    assert follower.conversation.pending_requests == {}
    assert follower.conversation.open_turns == ()


@pytest.mark.parametrize("name", ["01", "10b", "10c", "10f", "10i", "15a", "15c", "24a", "18za", "07g", "05j"])
def test_every_recorded_conversation_message_is_delivered_once_and_in_order(name: str) -> None:
    control = {"control_request", "control_response", "control_cancel_request", "keep_alive"}
    expected = [
        frame.get("subtype", "") if frame["type"] == "system" else frame["type"]
        for way, frame in recorded(name)
        if way == "out" and frame["type"] not in control
    ]
    follower, _ = replay(name)
    assert [name.split(" ")[0].replace("lifecycle", "command_lifecycle") for name in follower.delivered] == expected


def test_the_messages_of_a_folded_prompt_begin_where_it_was_folded() -> None:
    follower, (first, second) = replay("10f")
    assert follower.delivered_to(first).count("assistant") == 2
    assert follower.delivered_to(second) == ["lifecycle queued", "lifecycle started", "assistant", "lifecycle completed", "result"]


def test_the_turn_that_a_background_task_starts_belongs_to_no_prompt() -> None:
    follower, (prompt,) = replay("24a")
    woken = [action for action in follower.actions if isinstance(action, Deliver) and not action.turns]
    assert [what(message) for action in woken for message in action.messages].count("result") == 1
    assert follower.delivered_to(prompt).count("result") == 1


def test_a_failed_start_rejects_what_waits_for_an_answer_with_its_result() -> None:
    follower, _ = replay("16g")
    (rejected,) = [action for action in follower.actions if isinstance(action, Reject)]
    assert rejected.request_id == "req_1"
    assert rejected.result.outcome.code == "result.startup_failed"


def test_a_late_answer_to_a_withdrawn_question_is_not_to_be_sent() -> None:
    follower = Follower()
    for direction, frame in recorded("07g"):
        if direction == "out":
            follower.hear(frame)
        elif frame["type"] == "control_response":
            assert not follower.conversation.answered(frame["response"]["request_id"])
    assert [type(action) for action in follower.actions if isinstance(action, Start | Cancel)] == [Start, Cancel]


# -------------------------------------------------------------------------------------------------------------- which prompt


def test_frames_after_a_result_belong_to_no_turn(follower: Follower) -> None:
    follower.send(A)
    follower.hear(lifecycle(A, "queued"), lifecycle(A, "started"), init(A), said(), result(A))
    follower.hear(state("idle"), lifecycle(A, "completed"), {"type": "transcript_mirror", "filePath": "/x", "entries": []})
    assert follower.delivered_to(A) == ["lifecycle queued", "lifecycle started", "init", "assistant", "result"]
    assert follower.delivered[-3:] == ["session_state_changed", "lifecycle completed", "transcript_mirror"]


def test_an_old_cli_is_followed_in_the_order_of_sending(follower: Follower) -> None:
    follower.send(A, B)
    follower.hear(init(), said("one"), result())
    assert (follower.ends, follower.conversation.open_turns) == ({A: D}, (B,))
    follower.hear(init(), said("two"), result())
    assert follower.ends == {A: D, B: D}
    assert follower.delivered_to(B) == ["init", "assistant", "result"]


def test_only_results_and_the_end_are_needed_to_finish_turns(follower: Follower) -> None:
    follower.send(A, B, C)
    follower.hear(result(), result())
    follower.end()
    assert follower.ends == {A: D, B: D, C: L}


def test_an_unnamed_result_of_an_unasked_turn_leaves_queued_prompts_alone(follower: Follower) -> None:
    follower.send(A)
    follower.hear(lifecycle(A, "queued"), lifecycle(A, "started"), result(A))
    follower.send(B)
    follower.hear(lifecycle(B, "queued"), init(), said("noticed"), result())  # no origin either
    assert follower.conversation.state_of(B) is TurnState.QUEUED
    follower.hear(lifecycle(B, "started"), init(B), result(B))
    assert follower.ends == {A: D, B: D}


def test_a_message_that_comes_between_turns_is_nobodys_where_prompts_have_names(follower: Follower) -> None:
    follower.send(A)
    follower.hear(lifecycle(A, "started"), init(A), result(A))
    follower.send(B)
    follower.hear(said("by the way"))
    assert (follower.delivered_to(B), follower.conversation.state_of(B)) == ([], TurnState.QUEUED)


def test_a_prompt_folded_into_an_unasked_turn_has_its_result(follower: Follower) -> None:
    follower.send(A)
    follower.hear(lifecycle(A, "queued"), init(), lifecycle(A, "started"), said(), result(**WOKEN))
    assert follower.ends == {A: D}


def test_a_prompt_that_no_result_named_is_finished_by_its_lifecycle(follower: Follower) -> None:
    follower.send(A, B)
    follower.hear(lifecycle(A, "queued"), lifecycle(B, "queued"), lifecycle(A, "started"), init(A), result(A))
    follower.hear(lifecycle(B, "completed"))
    assert follower.ends == {A: D, B: F}
    assert follower.results[B] is follower.results[A]


def named_turn_before_an_unnamed_prompt(follower: Follower) -> None:
    follower.send(A)
    follower.hear(lifecycle(A, "started"), init(A), result(A, uuid="r1"))
    follower.conversation.send(B, is_named=False)


def test_a_prompt_without_a_uuid_has_the_turn_that_names_no_prompt(follower: Follower) -> None:
    named_turn_before_an_unnamed_prompt(follower)
    follower.hear(init(), said("mine"), result())
    assert follower.ends == {A: D, B: D}
    assert follower.delivered_to(B) == ["init", "assistant", "result"]


def test_a_prompt_without_a_uuid_is_not_answered_by_a_turn_of_a_background_task(follower: Follower) -> None:
    named_turn_before_an_unnamed_prompt(follower)
    follower.hear(init(), said("noticed"), result(**WOKEN))
    assert follower.conversation.state_of(B) is TurnState.QUEUED
    follower.hear(init(), said("mine"), result())
    assert follower.ends == {A: D, B: D}


def test_a_prompt_without_a_uuid_is_not_answered_by_a_result_that_is_said_twice(follower: Follower) -> None:
    named_turn_before_an_unnamed_prompt(follower)
    follower.hear(result(A, uuid="r1"))
    assert follower.conversation.state_of(B) is TurnState.QUEUED


def test_a_result_that_is_said_twice_counts_once(follower: Follower) -> None:
    follower.send(A, B)
    follower.hear(init(), result(uuid="r1"), result(uuid="r1"))
    assert follower.ends == {A: D}
    follower.hear(result(uuid="r2"))
    assert follower.ends == {A: D, B: D}


def test_a_result_that_names_a_prompt_twice_settles_it_once(follower: Follower) -> None:
    follower.send(A)
    follower.hear(result(A, A))
    assert [action for action in follower.actions if isinstance(action, Settle)] == [Settle(A, D, follower.results[A])]


def test_a_result_that_names_only_settled_prompts_is_not_given_to_the_next(follower: Follower) -> None:
    follower.send(A, B)
    follower.hear(result(A), result(A))
    assert follower.conversation.state_of(B) is TurnState.QUEUED


def test_a_prompt_cancelled_while_it_ran_does_not_disturb_the_result_that_follows(follower: Follower) -> None:
    follower.send(A, B)
    follower.hear(lifecycle(A, "started"), lifecycle(B, "started"), lifecycle(A, "cancelled"), result(A, B))
    assert follower.ends == {A: X, B: D}


def test_a_withdrawn_prompt_is_as_if_it_had_never_been(follower: Follower) -> None:
    follower.send(A, B)
    follower.hear(init())
    follower.conversation.withdraw(A)
    follower.hear(result())
    assert follower.ends == {B: D}
    follower.send(A)  # the CLI has not seen this uuid


def test_a_repeated_uuid_is_refused_because_the_cli_would_drop_it(follower: Follower) -> None:
    follower.send(A)
    with pytest.raises(UsageError, match=A):
        follower.send(A)
    follower.hear(result(A))
    with pytest.raises(UsageError):
        follower.send(A)


def test_so_many_uuids_are_remembered_that_the_memory_of_a_long_conversation_is_bounded() -> None:
    conversation = Conversation()
    for number in range(100_000):
        conversation.send(str(number))
    with pytest.raises(UsageError, match="uuid 0 was sent before"):
        conversation.send("0")
    conversation.send("100000")
    conversation.send("0")  # it was the oldest
    with pytest.raises(UsageError, match="uuid 2 was sent before"):
        conversation.send("2")


def test_ends_are_final(follower: Follower) -> None:
    follower.send(A)
    follower.hear(result(A), lifecycle(A, "cancelled"), lifecycle(A, "started"), lifecycle(A, "completed"), result(A))
    follower.end()
    assert [action for action in follower.actions if isinstance(action, Settle)] == [Settle(A, D, follower.results[A])]


# ------------------------------------------------------------------------------------------------ every entry of the table

Q, S = TurnState.QUEUED, TurnState.STARTED
TAKEN, LED, JOINED, RETURNED, CANCELLED, ENDED = (
    TurnEvent.TAKEN,
    TurnEvent.LED,
    TurnEvent.JOINED,
    TurnEvent.RETURNED,
    TurnEvent.CANCELLED,
    TurnEvent.ENDED,
)
THE_END: list[Frame] = []
FOLDING = [lifecycle(B, "started"), lifecycle(A, "started")]  # A is taken into the turn of B

# state of A, event, how it came there, what happens, what is delivered (and to whom), what is settled, where A is then
STEPS: list[tuple[TurnState, TurnEvent, list[Frame], list[Frame], list[tuple[str, ...]], list[tuple[str, TurnState]], TurnState | None]] = [
    (Q, TAKEN, [], [lifecycle(A, "started")], [(A,)], [], S),
    (Q, TAKEN, [], [init(A)], [(A,)], [], S),
    (Q, TAKEN, [], [init()], [(A,)], [], S),
    (Q, TAKEN, [], [said()], [(A,)], [], S),
    (Q, LED, [], [result(A)], [(A,)], [(A, D)], None),
    (Q, LED, [], [result()], [(A,)], [(A, D)], None),
    (Q, JOINED, [], [result(B, A)], [(B, A)], [(B, D), (A, F)], None),
    (Q, JOINED, [result(B)], [lifecycle(A, "completed")], [(A,)], [(A, F)], None),
    (Q, CANCELLED, [], [lifecycle(A, "cancelled")], [(A,)], [(A, X)], None),
    (Q, ENDED, [], THE_END, [], [(A, L)], None),
    (S, TAKEN, [init(A)], [lifecycle(A, "started")], [(A,)], [], S),
    (S, LED, [init(A)], [result(A)], [(A,)], [(A, D)], None),
    (S, LED, [init()], [result()], [(A,)], [(A, D)], None),
    (S, JOINED, FOLDING, [result(B, A)], [(B, A)], [(B, D), (A, F)], None),
    (S, RETURNED, [init()], [result(**WOKEN)], [()], [], Q),
    (S, CANCELLED, FOLDING, [lifecycle(A, "cancelled")], [(A,)], [(A, X)], None),
    (S, ENDED, [init(A)], THE_END, [], [(A, L)], None),
]


@pytest.mark.parametrize(("before", "event", "way", "stimulus", "delivered", "settled", "after"), STEPS)
def test_each_step_of_a_prompt(
    follower: Follower,
    before: TurnState,
    event: TurnEvent,
    way: list[Frame],
    stimulus: list[Frame],
    delivered: list[tuple[str, ...]],
    settled: list[tuple[str, TurnState]],
    after: TurnState | None,
) -> None:
    follower.send(*([B, A] if B in str((way, stimulus)) else [A]))
    follower.hear(*way)
    assert follower.conversation.state_of(A) is before
    seen = len(follower.actions)
    follower.hear(*stimulus)
    if stimulus is THE_END:
        follower.end()
    actions = follower.actions[seen:]
    assert [action.turns for action in actions if isinstance(action, Deliver)] == delivered
    assert [(action.uuid, action.state) for action in actions if isinstance(action, Settle)] == settled
    assert follower.conversation.state_of(A) is after
    assert TURN_TRANSITIONS[before, event] is (after or follower.ends[A])


def test_every_row_of_the_table_is_one_of_the_steps_above() -> None:
    assert {(before, event) for before, event, *_ in STEPS} == set(TURN_TRANSITIONS)


def test_only_a_prompt_that_has_started_can_be_returned_and_ends_have_no_way_out() -> None:
    every = {(before, event) for before in (Q, S) for event in TurnEvent}
    assert every - set(TURN_TRANSITIONS) == {(Q, RETURNED)}
    assert {state for state in TurnState if not any(before is state for before, _ in TURN_TRANSITIONS)} == {D, F, X, L}


# --------------------------------------------------------------------------------------------- a CLI that names no prompts


def old_init(**fields: Any) -> Frame:
    """The init of a CLI from before prompts had names in it: `claude_code_version` is as old as stream-json."""
    return {**init(), "claude_code_version": "1.0.50", **fields}


def tool_result(**fields: Any) -> Frame:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": "done"}
    return {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": None, **fields}


def test_what_waits_behind_a_text_turn_of_an_old_cli_is_merged_into_the_next(follower: Follower) -> None:
    follower.send(A)
    follower.hear(old_init())
    follower.send(B, C)
    follower.hear(said("one"), result())
    follower.hear(old_init(), said("two"), result(result="two"))
    assert follower.ends == {A: D, B: D, C: F}
    assert follower.results[B] is follower.results[C]
    assert follower.delivered_to(C) == follower.delivered_to(B) == ["init", "assistant", "result"]


def test_two_prompts_that_an_old_cli_gets_at_once_are_two_turns(follower: Follower) -> None:
    follower.send(A, B)
    follower.hear(old_init(), said("one"), result(result="one"), old_init(), said("two"), result(result="two"))
    assert follower.ends == {A: D, B: D}
    assert follower.results[A] is not follower.results[B]


def test_after_a_merge_the_next_prompt_has_its_own_result(follower: Follower) -> None:
    follower.send(A)
    follower.hear(old_init())
    follower.send(B, C)
    follower.hear(result(), old_init(), result())
    follower.send("later")
    follower.hear(old_init(), said(), result())
    assert follower.ends == {A: D, B: D, C: F, "later": D}


def test_slash_commands_and_later_prompts_are_not_merged_with_others(follower: Follower) -> None:
    """The queue of the real 2.1.329: first, then B, /usage, E, and the two later ones together."""
    conversation = follower.conversation
    conversation.send("first")
    follower.hear(old_init())
    conversation.send("B")
    conversation.send("C", priority="later")
    conversation.send("/usage", is_command=True)
    conversation.send("E")
    conversation.send("F", priority="later")
    follower.hear(result())
    order: list[list[str]] = []
    while conversation.open_turns:
        follower.hear(old_init(), result())
        order.append([uuid for uuid in follower.ends if uuid not in str(order) and uuid != "first"])
    assert order == [["B"], ["/usage"], ["E"], ["C", "F"]]
    assert follower.ends["F"] is F


def test_a_prompt_sent_while_a_tool_of_an_old_cli_runs_is_folded_when_the_turn_goes_on(follower: Follower) -> None:
    follower.send(A)
    follower.hear(old_init(), said("let me see"))
    follower.send(B)
    follower.hear(tool_result())
    assert follower.conversation.state_of(B) is Q
    follower.hear(said("both"), result())
    assert follower.ends == {A: D, B: F}
    assert follower.delivered_to(B) == ["assistant", "result"]


def test_a_prompt_is_not_folded_into_a_turn_that_was_interrupted(follower: Follower) -> None:
    follower.send(A)
    follower.hear(old_init(), said("let me see"))
    follower.send(B)
    follower.hear(tool_result(is_error=True), result(is_error=True, terminal_reason="aborted_tools"))
    assert (follower.ends, follower.conversation.state_of(B)) == ({A: D}, Q)
    follower.hear(old_init(), said(), result())
    assert follower.ends == {A: D, B: D}


@pytest.mark.parametrize(
    ("send", "heard"),
    [
        pytest.param({"priority": "later"}, tool_result(), id="a later prompt"),
        pytest.param({"is_command": True}, tool_result(), id="a slash command"),
        pytest.param({}, tool_result(parent_tool_use_id="t0"), id="a tool of a subagent"),
    ],
)
def test_what_is_not_folded_waits_for_a_turn_of_its_own(follower: Follower, send: dict[str, Any], heard: Frame) -> None:
    follower.send(A)
    follower.hear(old_init(), said())
    follower.conversation.send(B, **send)
    follower.hear(heard, said("both"), result())
    assert (follower.ends, follower.conversation.open_turns) == ({A: D}, (B,))


def test_a_peer_that_does_not_say_it_is_a_cli_is_followed_in_the_order_of_sending_alone(follower: Follower) -> None:
    follower.send(A)
    follower.hear(init())
    follower.send(B, C)
    follower.hear(tool_result(), said(), result(), init(), result(), init(), result())
    assert follower.ends == {A: D, B: D, C: D}


def test_a_turn_that_an_old_cli_begins_for_nobody_leaves_the_prompt_alone_that_comes_meanwhile(follower: Follower) -> None:
    follower.hear(old_init(), said("a task is done"))
    follower.send(A)
    follower.hear(said("more about it"), result())
    assert follower.conversation.state_of(A) is Q
    follower.hear(old_init(), said(), result())
    assert follower.ends == {A: D}


def test_a_prompt_folded_into_an_unasked_turn_of_an_old_cli_has_its_result(follower: Follower) -> None:
    follower.hear(old_init())
    follower.send(A)
    follower.hear(tool_result(), said(), result(**WOKEN))
    assert follower.ends == {A: D}


def test_three_prompts_and_the_result_of_a_background_task_say_whose_they_are(follower: Follower) -> None:
    follower.send(A, B, C)
    follower.hear(lifecycle(A, "started"), init(A), said(), result(A, uuid="r0"))
    follower.hear(init(), said("a task is done"), result(uuid="r1", **WOKEN))
    follower.hear(lifecycle(B, "started"), lifecycle(C, "started"), init(B, C), said(), result(B, C, uuid="r2"))
    found = [message for action in follower.actions if isinstance(action, Deliver) for message in action.messages]
    results = [message for message in found if isinstance(message, ResultMessage)]
    assert [(message.prompt_uuids, message.is_unsolicited) for message in results] == [((A,), False), ((), True), ((B, C), False)]
    assert follower.ends == {A: D, B: D, C: F}


@pytest.mark.parametrize("named", [True, False])
def test_nothing_of_an_interrupted_turn_appears_in_the_next(follower: Follower, named: bool) -> None:
    follower.send(A)
    follower.hear(*([lifecycle(A, "started"), init(A)] if named else [old_init()]), said("begin", uuid="a1"))
    follower.send(B)
    aborted = said("cut", uuid="a2", aborted=True)
    note = {
        "type": "user",
        "uuid": "a3",
        "message": {"role": "user", "content": [{"type": "text", "text": "[Request interrupted by user]"}]},
    }
    end = result(*([A] if named else []), is_error=True, subtype="error_during_execution", terminal_reason="aborted_streaming", uuid="a4")
    stragglers: list[Frame] = [
        {"type": "system", "subtype": "status", "uuid": "a5", "status": None},
        {**note, "uuid": "a6"},
        said(uuid="a7", parent_tool_use_id="t1"),
        {"type": "stream_event", "uuid": "a8", "event": {"type": "message_start"}, "parent_tool_use_id": "t1"},
    ]
    follower.hear(aborted, note, end, *stragglers)
    follower.hear(*([lifecycle(B, "started"), init(B)] if named else [old_init()]), said("next", uuid="b1"))
    follower.hear(result(*([B] if named else []), uuid="b2"))
    given = [message for action in follower.actions if isinstance(action, Deliver) and B in action.turns for message in action.messages]
    assert [uuid for message in given if (uuid := getattr(message, "uuid", None))] == ["b1", "b2"]
    assert follower.ends == {A: D, B: D}


# ------------------------------------------------------------------------------------------------------------------ requests


def test_answers_find_their_requests_in_any_order(follower: Follower) -> None:
    first, second = follower.conversation.request("mcp_status"), follower.conversation.request("set_model")
    actions = follower.hear(response(second), response(first))
    assert [action.request_id for action in actions if isinstance(action, Resolve)] == [second, first]
    assert follower.conversation.pending_requests == {}


def test_answers_that_nobody_waits_for_are_counted_and_go_to_nobody(follower: Follower) -> None:
    request_id = follower.conversation.request("mcp_status")
    follower.conversation.abandoned(request_id)
    assert (
        follower.hear(response(request_id), response("never-asked"), {"type": "control_response", "response": {"subtype": "success"}}) == []
    )
    assert follower.conversation.late_responses == 3


def test_an_answer_that_comes_twice_resolves_once(follower: Follower) -> None:
    request_id = follower.conversation.request("mcp_status")
    actions = follower.hear(response(request_id), response(request_id))
    assert len(actions) == 1
    assert follower.conversation.late_responses == 1


def test_an_error_result_of_a_turn_rejects_nothing(follower: Follower) -> None:
    follower.conversation.request("initialize")
    follower.send(A)
    follower.hear(result(A, is_error=True, terminal_reason="api_error"))
    assert list(follower.conversation.pending_requests.values()) == ["initialize"]


def test_a_failed_start_rejects_every_request(follower: Follower) -> None:
    ids = [follower.conversation.request(subtype) for subtype in ("initialize", "mcp_status")]
    actions = follower.hear(result(is_error=True, subtype="error_during_execution", terminal_reason=None))
    assert [action.request_id for action in actions if isinstance(action, Reject)] == ids
    assert follower.conversation.pending_requests == {}


def test_a_question_is_answered_once(follower: Follower) -> None:
    assert [type(action) for action in follower.hear(asked("q1"))] == [Start]
    assert follower.conversation.open_questions == ("q1",)
    assert follower.conversation.answered("q1")
    assert not follower.conversation.answered("q1")


def test_a_question_asked_twice_is_started_once(follower: Follower) -> None:
    assert [type(action) for action in follower.hear(asked("q1"), asked("q1"))] == [Start]


def test_a_withdrawn_question_is_cancelled_and_needs_no_answer(follower: Follower) -> None:
    cancel = {"type": "control_cancel_request", "request_id": "q1"}
    actions = follower.hear(asked("q1"), cancel, cancel, {"type": "control_cancel_request", "request_id": "other"})
    assert actions[1:] == [Cancel("q1")]
    assert not follower.conversation.answered("q1")


def test_the_end_settles_everything_that_is_outstanding(follower: Follower) -> None:
    follower.conversation.request("mcp_status")
    follower.send(A, B)
    follower.hear(init(A), asked("q1"), tasks("t1"))
    follower.end()
    assert follower.ends == {A: L, B: L}
    assert Cancel("q1") in follower.actions
    assert (follower.conversation.pending_requests, follower.conversation.background_agents) == ({}, {})
    assert follower.conversation.quiet


def agent_started(task: str, **fields: Any) -> Frame:
    about = {"task_id": task, "task_type": "local_agent", "description": f"about {task}"}
    return {"type": "system", "subtype": "task_started", **about, **fields}


def agent_done(task: str) -> Frame:
    return {"type": "system", "subtype": "task_notification", "task_id": task, "status": "completed"}


@pytest.mark.parametrize(
    "frames",
    [
        [init(A), agent_started("t1")],
        [init(A), agent_started("t1"), result(A), agent_done("t1")],
        [init(A), tasks("t1"), result(A)],
        [init(A), tasks("t1"), result(A), tasks()],
        [state("running")],
        [asked("q1")],
    ],
    ids=["an agent", "the turn that an agent wakes", "a listed agent", "the turn that it wakes", "a running session", "a question"],
)
def test_after_the_end_nothing_holds_a_conversation_open(follower: Follower, frames: list[Frame]) -> None:
    follower.send(A)
    follower.hear(*frames)
    assert not follower.conversation.quiet
    follower.end()
    assert (follower.conversation.quiet, follower.conversation.background_agents) == (True, {})


def test_control_frames_and_keep_alives_are_not_for_the_user(follower: Follower) -> None:
    actions = follower.hear(said("before"), asked("q1"), {"type": "keep_alive"}, said("after"))
    assert [type(action) for action in actions] == [Deliver, Start, Deliver]


# -------------------------------------------------------------------------------------------------------- what it remembers


def test_input_may_end_only_when_nothing_can_ask_any_more(follower: Follower) -> None:
    assert follower.conversation.quiet
    steps: list[tuple[list[Frame], bool]] = [
        ([lifecycle(A, "queued")], False),
        ([state("running"), init(A), tasks("t1"), result(A)], False),
        ([asked("q1"), tasks(), state("idle")], False),
    ]
    follower.send(A)
    for frames, quiet in steps:
        follower.hear(*frames)
        assert follower.conversation.quiet is quiet
    follower.conversation.answered("q1")
    assert follower.conversation.quiet


def test_an_agent_of_a_cli_that_lists_no_tasks_holds_the_input_open_until_the_turn_that_it_wakes_is_over(follower: Follower) -> None:
    follower.send(A)
    follower.hear(init(A), agent_started("t1"), said("launched"), result(A))  # claude 2.1.92 and 2.1.191
    assert follower.conversation.background_agents == {"t1": "about t1"}
    assert not follower.conversation.quiet
    follower.hear(agent_done("t1"))
    assert follower.conversation.background_agents == {}
    assert not follower.conversation.quiet, "the turn that it wakes has not begun"
    follower.hear(init(), said("woken"), result(origin={"kind": "task-notification"}))
    assert follower.conversation.quiet


def test_only_so_much_is_remembered_of_agents_that_a_peer_reports_without_end(follower: Follower) -> None:
    long = "x" * MAX_AGENT_CHARS
    follower.hear(agent_started("first"), *(agent_started(f"t{n}", description=long + "y") for n in range(MAX_AGENTS - 1)))
    follower.hear(agent_started(long + "y"))
    agents = follower.conversation.background_agents
    assert (len(agents), "first" in agents, agents["t0"], long in agents) == (MAX_AGENTS, False, long, True)
    follower.hear(agent_done(long + "y"))
    assert long not in follower.conversation.background_agents


def test_a_foreground_agent_of_a_cli_that_lists_no_tasks_wakes_nothing(follower: Follower) -> None:
    follower.send(A)
    follower.hear(init(A), agent_started("t1"), agent_done("t1"), said("done"), result(A))
    assert follower.conversation.quiet


def test_where_the_cli_lists_its_tasks_only_the_list_counts(follower: Follower) -> None:
    follower.send(A)
    follower.hear(init(A), agent_started("t1", is_backgrounded=False), agent_started("t2"), tasks("t3"), agent_started("t4"))
    assert follower.conversation.background_agents == {"t3": "about t3"}


def test_a_background_shell_does_not_hold_the_input_open(follower: Follower) -> None:
    shell = {"task_id": "b1", "task_type": "local_bash", "description": "sleep"}
    follower.hear({"type": "system", "subtype": "background_tasks_changed", "tasks": [shell]})
    assert follower.conversation.quiet


def test_a_result_knows_what_its_last_message_reported_and_when_the_limit_lifts(follower: Follower) -> None:
    limit = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1_800_000_000}}
    follower.send(A, B)
    follower.hear(init(A), limit, said("no", error="rate_limit"), said("sub", error="unknown", parent_tool_use_id="t"))
    follower.hear(result(A, is_error=True, api_error_status=429, terminal_reason="api_error"))
    follower.hear(init(B), said("fine"), result(B))
    first, second = follower.results[A], follower.results[B]
    assert first is not None
    assert second is not None
    assert (first.assistant_error, first.resets_at and first.resets_at.timestamp()) == ("rate_limit", 1_800_000_000)
    assert first.outcome.resets_at == first.resets_at
    assert second.assistant_error is None


def test_where_to_resume_is_the_last_message_of_the_main_thread(follower: Follower) -> None:
    follower.hear(init(session="s1"), said(uuid="m1"), said(uuid="m2", parent_tool_use_id="tool"), said(uuid="m3"))
    assert (follower.conversation.session_id, follower.conversation.last_uuid) == ("s1", "m3")


SPOKEN = st.builds(
    lambda uuid, error, parent: said(uuid=uuid, error=error, parent_tool_use_id=parent),
    uuid=st.sampled_from(["m1", "m2", None]),
    error=st.sampled_from([None, "rate_limit", "overloaded"]),
    parent=st.sampled_from([None, "tool"]),
)
PARTIAL = st.just({"type": "stream_event", "event": {"type": "message_stop"}})


@given(frames=st.lists(SPOKEN | PARTIAL, min_size=1, max_size=6))
def test_a_batch_of_answers_changes_what_its_messages_change_one_by_one(frames: list[Frame]) -> None:
    whole, single = Follower(), Follower()
    for follower in (whole, single):
        follower.send(A)
        follower.hear(init(A))
    whole.hear(*frames)
    for frame in frames:
        single.hear(frame)
    assert whole.delivered_to(A) == single.delivered_to(A) == ["init", *(frame["type"] for frame in frames)]
    assert whole.conversation.last_uuid == single.conversation.last_uuid
    main = [frame for frame in frames if frame["type"] == "assistant" and not frame["parent_tool_use_id"]]
    assert whole.conversation.last_uuid == next((frame["uuid"] for frame in reversed(main) if frame["uuid"]), None)
    for follower in (whole, single):
        follower.hear(result(A, is_error=True))
        ended = follower.results[A]
        assert ended is not None
        assert ended.assistant_error == (main[-1]["error"] if main else None)


def test_after_a_reset_nothing_of_the_old_session_is_a_place_to_resume(follower: Follower) -> None:
    follower.hear(init(session="s1"), said(uuid="m1"))
    follower.hear({"type": "conversation_reset", "new_conversation_id": "c2", "session_id": "s1"})
    assert (follower.conversation.session_id, follower.conversation.last_uuid) == (None, None)
    follower.hear(init(session="s2"))
    assert (follower.conversation.session_id, follower.conversation.last_uuid) == ("s2", None)
    assert "session_forked" not in follower.delivered


def test_messages_with_the_same_owner_are_delivered_together(follower: Follower) -> None:
    follower.send(A)
    actions = follower.hear(init(A), said(), said(), said())
    assert [(type(action), len(action.messages)) for action in actions if isinstance(action, Deliver)] == [(Deliver, 4)]


# ------------------------------------------------------------------------------------------------------- what was asked for


def forks(follower: Follower) -> list[tuple[str, str, bool]]:
    messages = [message for action in follower.actions if isinstance(action, Deliver) for message in action.messages]
    return [(message.expected, message.actual, message.requested) for message in messages if isinstance(message, SessionForked)]


@pytest.mark.parametrize(
    ("expected", "fork", "heard"),
    [
        pytest.param("s1", False, [], id="the session that was named"),
        pytest.param(None, False, [], id="none was named"),
        pytest.param(None, True, [], id="a fork of a session known by its title"),
        pytest.param("s0", False, [("s0", "s1", False)], id="another one"),
        pytest.param("s0", True, [("s0", "s1", True)], id="a fork that was asked for"),
    ],
)
def test_a_session_that_is_not_the_expected_one_is_said_to_be_forked_once(
    follower: Follower, expected: str | None, fork: bool, heard: list[tuple[str, str, bool]]
) -> None:
    follower.conversation.expect(session_id=expected, fork=fork)
    follower.send(A)
    follower.hear(init(A), said(), result(A), init(), said())
    assert forks(follower) == heard
    assert follower.conversation.session_id == "s1"
    assert follower.delivered_to(A) == ["init", *["session_forked"] * len(heard), "assistant", "result"]


def test_a_session_that_changes_without_a_reset_is_forked_too(follower: Follower) -> None:
    follower.hear(init(session="s1"), init(session="s2"), init(session="s2"))
    assert forks(follower) == [("s1", "s2", False)]


def test_a_fork_is_asked_for_once(follower: Follower) -> None:
    follower.conversation.expect(session_id="s0", fork=True)
    follower.hear(init(session="s1"), init(session="s2"))
    assert forks(follower) == [("s0", "s1", True), ("s1", "s2", False)]


def test_a_reset_before_the_first_turn_makes_any_session_the_right_one(follower: Follower) -> None:
    follower.conversation.expect(session_id="s0")
    follower.hear({"type": "conversation_reset", "new_conversation_id": "c2", "session_id": "s0"}, init(session="s2"))
    assert forks(follower) == []


def test_only_an_init_says_which_session_it_is(follower: Follower) -> None:
    follower.hear(result(session_id="s0", is_error=True), said(session_id="s0"))
    assert follower.conversation.session_id is None


@pytest.mark.parametrize(
    ("asked", "fields", "code"),
    [
        pytest.param(True, {}, "result.structured_output_missing", id="nothing"),
        pytest.param(True, {"structured_output": None}, "result.structured_output_missing", id="null"),
        pytest.param(True, {"terminal_reason": "aborted_streaming"}, "result.structured_output_missing", id="pushed aside by a prompt"),
        pytest.param(True, {"structured_output": {}}, "ok", id="an empty object is an output"),
        pytest.param(True, {"local_command": "clear"}, "ok", id="a slash command owes none"),
        pytest.param(True, WOKEN, "ok", id="nor does a turn that nobody asked for"),
        pytest.param(True, {"is_error": True, "api_error_status": 429}, "result.rate_limited", id="a failure is what it was"),
        pytest.param(False, {}, "ok", id="no schema was given"),
    ],
)
def test_a_success_without_the_output_that_was_asked_for_is_none(
    follower: Follower, asked: bool, fields: dict[str, Any], code: str
) -> None:
    follower.conversation.expect(structured_output=asked)
    follower.send(A)
    (action,) = [action for action in follower.hear(init(A), said(), result(A, **fields)) if isinstance(action, Settle)]
    assert action.result is not None
    assert action.result.outcome.code == code
    if code == "result.structured_output_missing":
        with pytest.raises(StructuredOutputMissing) as caught:
            action.result.raise_for_error()
        assert caught.value.result is action.result


def test_the_recorded_model_that_ignored_the_schema_is_found_out() -> None:
    for name, code in (("13d", "result.structured_output_missing"), ("13a", "ok")):
        follower = Follower()
        follower.conversation.expect(structured_output=True)
        for way, frame in recorded(name):
            if way == "out":
                follower.hear(frame)
        assert follower.conversation.last_result is not None
        assert follower.conversation.last_result.outcome.code == code
