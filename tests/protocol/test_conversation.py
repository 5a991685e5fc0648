"""The state machine alone: stimulus in, actions out, without an event loop. Its facts are recorded ones, replayed line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from recorded_lines import recordings_folder

from claude_transport.errors import UsageError
from claude_transport.protocol.codec import LineDecoder, encode_line
from claude_transport.protocol.conversation import (
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
from claude_transport.protocol.messages import CommandLifecycle, Message, ResultMessage

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


D, F, X, L = TurnState.done, TurnState.folded, TurnState.dropped, TurnState.lost


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
        pytest.param("10h", [D, L], [0, None], id="folded without uuids: nothing says so, and nothing is made up"),
        pytest.param("10i", [D, D, F], [0, 1, 1], id="merged into one next turn"),
        pytest.param("10j", [D, D, L], [0, 1, None], id="merged without uuids"),
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
    assert follower.conversation.state_of(B) is TurnState.queued
    follower.hear(lifecycle(B, "started"), init(B), result(B))
    assert follower.ends == {A: D, B: D}


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
    assert follower.conversation.state_of(B) is TurnState.queued


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


def test_ends_are_final(follower: Follower) -> None:
    follower.send(A)
    follower.hear(result(A), lifecycle(A, "cancelled"), lifecycle(A, "started"), lifecycle(A, "completed"), result(A))
    follower.end()
    assert [action for action in follower.actions if isinstance(action, Settle)] == [Settle(A, D, follower.results[A])]


# ------------------------------------------------------------------------------------------------ every entry of the table

BEFORE = {TurnState.queued: [], TurnState.started: [lifecycle(A, "started")]}
CAUSES: dict[TurnEvent, list[Frame]] = {
    TurnEvent.taken: [lifecycle(A, "started")],
    TurnEvent.led: [result(A)],
    TurnEvent.joined: [result(B, A)],
    TurnEvent.cancelled: [lifecycle(A, "cancelled")],
    TurnEvent.ended: [],
}


@pytest.mark.parametrize(("before", "event"), TURN_TRANSITIONS)
def test_every_legal_step_is_taken(follower: Follower, before: TurnState, event: TurnEvent) -> None:
    if event is TurnEvent.joined:
        follower.send(B)
    follower.send(A)
    follower.hear(*BEFORE[before])
    assert follower.conversation.state_of(A) is before
    follower.hear(*CAUSES[event])
    if event is TurnEvent.ended:
        follower.end()
    after = TURN_TRANSITIONS[before, event]
    assert follower.conversation.state_of(A) is (after if after is TurnState.started else None)
    assert follower.ends.get(A) is (None if after is TurnState.started else after)


def test_the_table_knows_every_event_of_every_state_that_has_a_future() -> None:
    assert set(TURN_TRANSITIONS) == {(before, event) for before in (TurnState.queued, TurnState.started) for event in TurnEvent}


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


def test_after_a_reset_nothing_of_the_old_session_is_a_place_to_resume(follower: Follower) -> None:
    follower.hear(init(session="s1"), said(uuid="m1"))
    follower.hear({"type": "conversation_reset", "new_conversation_id": "c2", "session_id": "s1"}, init(session="s2"))
    assert (follower.conversation.session_id, follower.conversation.last_uuid) == ("s2", None)


def test_messages_with_the_same_owner_are_delivered_together(follower: Follower) -> None:
    follower.send(A)
    actions = follower.hear(init(A), said(), said(), said())
    assert [(type(action), len(action.messages)) for action in actions if isinstance(action, Deliver)] == [(Deliver, 4)]
