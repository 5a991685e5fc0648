"""`JSONRPC`: the machine under `JSONRPCPeer`. Ids are kept apart, and every request gets exactly one outcome, whatever the peer says."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport.errors import CLIJSONDecodeError, JSONRPCError, LineTooLong, ProtocolError, UsageError
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.jsonrpc import (
    ACP_CANCEL,
    JSONRPC,
    MCP_CANCEL,
    CancelNotification,
    JSONRPCCounters,
    NoMessage,
    Notification,
    Request,
    RpcAnswer,
    RpcRefusal,
    Withdrawal,
)


def line(message: object) -> bytes:
    return json.dumps(message).encode()


def decoded(data: bytes | None) -> Any:
    assert data is not None
    assert data.endswith(b"\n")
    return json.loads(data)


def answered(machine: JSONRPC, answer: dict[str, Any]) -> RpcAnswer:
    event = machine.receive(line(answer))
    assert isinstance(event, RpcAnswer)
    return event


# What this end says


def test_a_request_has_the_next_id_and_only_the_members_that_it_needs() -> None:
    machine = JSONRPC()
    assert decoded(machine.request("a")[1]) == {"jsonrpc": "2.0", "id": 1, "method": "a"}
    assert decoded(machine.request("b", [1])[1]) == {"jsonrpc": "2.0", "id": 2, "method": "b", "params": [1]}
    assert decoded(machine.notification("c", {})) == {"jsonrpc": "2.0", "method": "c", "params": {}}
    assert machine.pending == {1: "a", 2: "b"}


def test_without_the_version_no_line_has_it() -> None:
    machine = JSONRPC(with_version=False)
    machine.receive(line({"id": 5, "method": "theirs"}))
    lines = [machine.request("a")[1], machine.notification("b"), machine.result(5, None)]
    assert [sorted(decoded(said)) for said in lines] == [["id", "method"], ["method"], ["id", "result"]]


@pytest.mark.parametrize("params", ["text", b"bytes", 5, {1, 2}])
def test_params_that_are_no_mapping_and_no_list_are_refused(params: Any) -> None:
    with pytest.raises(UsageError, match="params are a mapping or a list, not"):
        JSONRPC().request("a", params)


@pytest.mark.parametrize("method", ["", 5, None])
def test_a_method_that_is_no_text_is_refused(method: Any) -> None:
    with pytest.raises(UsageError, match="a method is a text that is not empty"):
        JSONRPC().notification(method)


def test_a_request_that_cannot_be_written_is_not_pending() -> None:
    machine = JSONRPC()
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        machine.request("a", {"when": object()})
    assert not machine.pending


# Answers to this end


def test_an_answer_settles_its_request_once() -> None:
    machine = JSONRPC()
    machine.request("a")
    assert answered(machine, {"id": 1, "result": {"x": 1}}) == RpcAnswer(1, {"x": 1})
    assert machine.receive(line({"id": 1, "result": 2})) is None
    assert machine.counters == JSONRPCCounters(late=1)
    assert not machine.pending


def test_an_answer_to_what_was_given_up_is_late_and_one_to_what_was_never_asked_is_unasked() -> None:
    machine = JSONRPC()
    machine.request("a")
    assert machine.give_up(1) is None  # this dialect has no notification for it
    for request_id in [1, 2, 0, -1, "1", 10**30]:
        assert machine.receive(line({"id": request_id, "result": None})) is None
    assert machine.counters == JSONRPCCounters(late=1, unasked=5)


def test_a_null_beside_the_member_that_counts_is_no_second_answer() -> None:
    machine = JSONRPC()
    machine.request("a")
    machine.request("b")
    assert answered(machine, {"id": 1, "result": 5, "error": None}).result == 5
    assert isinstance(answered(machine, {"id": 2, "result": None, "error": {"code": 1, "message": "no"}}).error, JSONRPCError)
    assert machine.counters == JSONRPCCounters()


@pytest.mark.parametrize(
    "rest",
    [
        {},
        {"error": None},
        {"result": 1, "error": {"code": 1, "message": "both"}},
        {"error": "a text"},
        {"error": {}},
        {"error": {"code": "1", "message": "a code that is a text"}},
        {"error": {"code": True, "message": "a code that is a bool"}},
        {"error": {"code": 1.5, "message": "a code that is no whole number"}},
        {"error": {"code": 1, "message": None}},
    ],
)
def test_an_answer_that_cannot_be_read_fails_its_request_and_is_counted(rest: dict[str, Any]) -> None:
    machine = JSONRPC()
    machine.request("thread/start")
    answer = answered(machine, {"id": 1, **rest})
    assert type(answer.error) is ProtocolError
    assert "thread/start" in str(answer.error)
    assert (machine.counters, dict(machine.pending)) == (JSONRPCCounters(malformed=1), {})


@pytest.mark.parametrize("request_id", [True, 1.0, None, [1], {"a": 1}])
def test_an_answer_under_an_id_of_another_type_settles_nothing(request_id: object) -> None:
    machine = JSONRPC()
    machine.request("a")
    assert machine.receive(line({"id": request_id, "result": 1})) is None
    assert (machine.counters, dict(machine.pending)) == (JSONRPCCounters(malformed=1), {1: "a"})


def test_an_error_without_an_id_is_counted_as_unasked() -> None:
    machine = JSONRPC()
    assert machine.receive(line({"id": None, "error": {"code": -32700, "message": "parse error"}})) is None
    assert machine.counters == JSONRPCCounters(unasked=1)


# Requests of the peer


@pytest.mark.parametrize("request_id", [0, 1, -5, 10**30, "", "7", "text\u2028\ud800", "x" * 100_000])
def test_a_text_or_a_whole_number_comes_back_as_the_id_of_the_answer(request_id: str | int) -> None:
    machine = JSONRPC()
    machine.request("ours")  # under the id 1
    said = line({"id": request_id, "method": "theirs", "params": {"a": 1}})
    assert machine.receive(said) == Request(request_id, "theirs", {"a": 1}, said)
    assert list(machine.open) == [request_id]
    assert decoded(machine.result(request_id, [1])) == {"jsonrpc": "2.0", "id": request_id, "result": [1]}
    assert not list(machine.open)
    assert dict(machine.pending) == {1: "ours"}


def test_a_text_and_a_number_that_look_alike_are_two_ids() -> None:
    machine = JSONRPC()
    machine.receive(line({"id": 1, "method": "a"}))
    machine.receive(line({"id": "1", "method": "b"}))
    assert decoded(machine.result("1", "b"))["id"] == "1"
    assert decoded(machine.result(1, "a"))["id"] == 1


@pytest.mark.parametrize("request_id", [True, False, 1.5, 1.0, None, [1], {"a": 1}])
def test_a_request_under_an_id_of_another_type_is_refused_without_an_id(request_id: object) -> None:
    machine = JSONRPC()
    refusal = machine.receive(line({"id": request_id, "method": "theirs"}))
    assert isinstance(refusal, RpcRefusal)
    said = decoded(refusal.reply)
    assert (said["id"], said["error"]["code"]) == (None, -32600)
    assert machine.counters == JSONRPCCounters(malformed=1)


def test_a_second_request_under_an_open_id_is_refused_without_an_id() -> None:
    machine = JSONRPC()
    assert isinstance(machine.receive(line({"id": 1, "method": "a"})), Request)
    refusal = machine.receive(line({"id": 1, "method": "b"}))
    assert isinstance(refusal, RpcRefusal)
    assert decoded(refusal.reply)["id"] is None
    assert decoded(machine.result(1, "of a")) == {"jsonrpc": "2.0", "id": 1, "result": "of a"}
    assert isinstance(machine.receive(line({"id": 1, "method": "b"})), Request), "an id that was answered may be used again"


@pytest.mark.parametrize("rest", [{"method": 5}, {"method": None}, {"method": "a", "params": "text"}, {"method": "a", "params": 5}])
def test_a_request_that_is_not_valid_is_refused_under_its_id(rest: dict[str, Any]) -> None:
    machine = JSONRPC()
    refusal = machine.receive(line({"id": 7, **rest}))
    assert isinstance(refusal, RpcRefusal)
    said = decoded(refusal.reply)
    assert (said["id"], said["error"]["code"]) == (7, -32600)
    assert machine.receive(line(rest)) is None, "a notification gets no answer"
    assert (machine.counters, list(machine.open)) == (JSONRPCCounters(malformed=2), [])


def test_an_answer_is_given_once() -> None:
    machine = JSONRPC()
    machine.receive(line({"id": 1, "method": "a"}))
    assert machine.result(1, None) is not None
    assert machine.result(1, None) is None
    assert machine.error(1, JSONRPCError("late", rpc_code=1)) is None
    assert machine.result("never asked", None) is None


def test_a_result_that_cannot_be_written_leaves_the_request_open_for_an_error() -> None:
    machine = JSONRPC()
    machine.receive(line({"id": 1, "method": "a"}))
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        machine.result(1, object())
    error = JSONRPCError("no", rpc_code=-32000, data={"a": 1})
    assert decoded(machine.error(1, error)) == {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "no", "data": {"a": 1}}}


# Lines that are no messages


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"Listening on port 5", "noise"),
        (b'{"id": 1, "result"', "malformed"),
        (b'[{"id": 1, "result": 2}]', "not_object"),
        (b"5", "not_object"),
        (b'{"id": 1, "result": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
        (b'{"id": 1' + b"0" * 10_000 + b', "result": 1}', "out_of_range"),
    ],
    ids=["noise", "half a line", "batch", "scalar", "deep", "huge number"],
)
def test_a_line_without_a_message_is_counted_and_costs_that_line_only(said: bytes, kind: str) -> None:
    machine = JSONRPC()
    machine.request("a")
    event = machine.receive(said)
    assert isinstance(event, NoMessage)
    assert event.failure.type == "decode_failure"
    assert getattr(event.failure, "kind") == kind  # noqa: B009 - an `OversizedMessage` has none
    assert machine.counters == JSONRPCCounters(malformed=1)
    assert answered(machine, {"id": 1, "result": 1}).result == 1


def test_a_line_over_the_limit_is_counted_too() -> None:
    machine = JSONRPC()
    event = machine.receive(OversizedLine(b'{"id":1,"result":2}', size=2**30, limit=2**20))
    assert isinstance(event, NoMessage)
    assert event.failure.type == "oversized_message"
    assert machine.counters == JSONRPCCounters(malformed=1)


def test_blank_lines_mean_nothing() -> None:
    machine = JSONRPC(strict=True)
    assert [machine.receive(said) for said in (b"", b" ", b"\r")] == [None, None, None]
    assert machine.counters == JSONRPCCounters()


def test_a_strict_machine_raises_for_a_line_without_an_object() -> None:
    machine = JSONRPC(strict=True)
    with pytest.raises(CLIJSONDecodeError):
        machine.receive(b"noise")
    with pytest.raises(LineTooLong):
        machine.receive(OversizedLine(b"{", size=2**30, limit=2**20))


def test_what_only_a_lenient_reader_can_read_is_read() -> None:
    event = JSONRPC().receive(b'{"method":"delta","params":{"text":"\\ud800 \xff"}}')
    assert isinstance(event, Notification)
    assert event.params == {"text": "\ud800 \ufffd"}


@pytest.mark.parametrize("message", [{}, {"result": 1}, {"error": {"code": 1, "message": "x"}, "id": [1]}, {"params": {}}])
def test_an_object_that_is_no_message_of_the_protocol_is_counted(message: dict[str, Any]) -> None:
    machine = JSONRPC()
    assert machine.receive(line(message)) is None
    assert machine.counters == JSONRPCCounters(malformed=1)


# Cancellation


def test_giving_up_a_request_tells_the_peer_in_the_words_of_the_dialect() -> None:
    for cancel, params in [(MCP_CANCEL, {"requestId": 1}), (CancelNotification("$/cancelRequest", "id"), {"id": 1})]:
        machine = JSONRPC(cancel=cancel)
        machine.request("a")
        assert decoded(machine.give_up(1)) == {"jsonrpc": "2.0", "method": cancel.method, "params": params}
        assert machine.give_up(1) is None
        machine.request("b")
        machine.receive(line({"id": 2, "result": 1}))
        assert machine.give_up(2) is None, "it has its outcome"


def test_a_request_that_an_mcp_peer_withdraws_gets_no_answer() -> None:
    machine = JSONRPC(cancel=MCP_CANCEL)
    machine.receive(line({"id": 1, "method": "a"}))
    withdrawal = line({"method": "notifications/cancelled", "params": {"requestId": 1, "reason": "late"}})
    assert machine.receive(withdrawal) == Withdrawal(1)
    assert machine.receive(withdrawal) is None, "it is withdrawn once"
    assert list(machine.open) == [1]
    assert machine.result(1, "done all the same") is None
    assert not list(machine.open)


def test_a_request_that_an_acp_peer_withdraws_is_answered_all_the_same() -> None:
    machine = JSONRPC(cancel=ACP_CANCEL)
    for request_id in ("x", "y"):
        machine.receive(line({"id": request_id, "method": "a"}))
        assert machine.receive(line({"method": "$/cancel_request", "params": {"requestId": request_id}})) == Withdrawal(request_id)
    assert decoded(machine.result("x", "done all the same"))["result"] == "done all the same"
    said = decoded(machine.withdrawn("y"))
    assert (said["id"], said["error"]["code"]) == ("y", -32800)


@pytest.mark.parametrize("request_id", [5, "1"])
def test_a_withdrawal_of_what_is_not_open_means_nothing(request_id: object) -> None:
    machine = JSONRPC(cancel=MCP_CANCEL)
    machine.request("ours")
    machine.receive(line({"id": 1, "method": "theirs"}))
    assert machine.receive(line({"method": "notifications/cancelled", "params": {"requestId": request_id}})) is None
    assert machine.counters == JSONRPCCounters()
    assert decoded(machine.result(1, "still wanted"))["result"] == "still wanted"


@pytest.mark.parametrize("params", [None, [], {}, {"requestId": None}, {"requestId": True}, {"requestId": [1]}])
def test_a_withdrawal_that_names_no_id_is_counted(params: object) -> None:
    machine = JSONRPC(cancel=MCP_CANCEL)
    machine.receive(line({"id": 1, "method": "theirs"}))
    assert machine.receive(line({"method": "notifications/cancelled", "params": params})) is None
    assert machine.counters == JSONRPCCounters(malformed=1)
    assert decoded(machine.result(1, "still wanted"))["id"] == 1


def test_without_a_notification_for_it_a_withdrawal_is_a_notification_like_any_other() -> None:
    event = JSONRPC().receive(line({"method": "notifications/cancelled", "params": {"requestId": 1}}))
    assert isinstance(event, Notification)


# Any interleaving

_IDS = st.sampled_from([0, 1, 2, 3, 5, "1", "2", "", 10**30])
_BAD_IDS = st.sampled_from([True, 1.5, None, [1]])
_ERRORS = st.sampled_from([{"code": 1, "message": "no"}, "text", None, {"code": True, "message": "x"}])
_RESULTS = st.fixed_dictionaries({}, optional={"result": st.sampled_from([None, 1, {"a": 1}]), "error": _ERRORS})
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("request")),
        st.tuples(st.just("give up"), st.integers(1, 6)),
        st.tuples(st.just("reply"), _IDS),
        st.tuples(st.just("refuse"), _IDS),
        st.tuples(st.just("receive"), st.builds(lambda rest, i: {"id": i, **rest}, _RESULTS, st.one_of(st.integers(1, 6), _IDS, _BAD_IDS))),
        st.tuples(st.just("receive"), st.builds(lambda i: {"id": i, "method": "theirs"}, st.one_of(_IDS, _BAD_IDS))),
        st.tuples(st.just("receive"), st.builds(lambda i: {"method": "cancel", "params": {"requestId": i}}, st.one_of(_IDS, _BAD_IDS))),
        st.tuples(st.just("receive"), st.sampled_from([{}, [], 5, "text", {"method": 5}, {"method": "note"}])),
    ),
    max_size=40,
)


class Ledger:
    """What a user of the machine sees: the requests that were made in each direction, and what became of each."""

    def __init__(self, *, answers_withdrawn: bool) -> None:
        self.machine = JSONRPC(cancel=CancelNotification("cancel", answer=-32800 if answers_withdrawn else None))
        self.answers_withdrawn = answers_withdrawn
        self.made: list[int] = []
        self.outcomes: Counter[int] = Counter()
        self.open: dict[str | int, bool] = {}  # of the peer: True once it was withdrawn

    def take(self, action: str, *rest: Any) -> None:
        if action == "request":
            self.made.append(self.machine.request("ours")[0])
        elif action == "give up":
            was_pending = rest[0] in self.machine.pending
            assert (self.machine.give_up(rest[0]) is not None) == was_pending
            self.outcomes[rest[0]] += was_pending
        elif action == "receive":
            self.receive(rest[0])
        else:
            self.reply(rest[0], with_error=action == "refuse")

    def receive(self, message: Any) -> None:
        event = self.machine.receive(line(message))
        match event:
            case RpcAnswer(id=request_id):
                assert type(message["id"]) is int
                assert message["id"] == request_id
                assert "method" not in message
                self.outcomes[request_id] += 1
            case Request(id=request_id):
                assert (type(request_id), request_id) == (type(message["id"]), message["id"])
                assert request_id not in self.open
                self.open[request_id] = False
            case Withdrawal(id=request_id):
                assert self.open[request_id] is False
                self.open[request_id] = True

    def reply(self, request_id: str | int, *, with_error: bool) -> None:
        said = self.machine.error(request_id, JSONRPCError("no")) if with_error else self.machine.result(request_id, 1)
        is_withdrawn = self.open.pop(request_id, None)
        assert (said is not None) == (is_withdrawn is False or (is_withdrawn is True and self.answers_withdrawn))
        if said is not None:
            answer = decoded(said)
            assert (type(answer["id"]), answer["id"]) == (type(request_id), request_id)
            assert ("error" in answer) == with_error


@given(steps=_STEPS, answers_withdrawn=st.booleans())
def test_any_interleaving_keeps_the_ids_apart_and_gives_every_request_one_outcome(
    steps: list[tuple[Any, ...]], answers_withdrawn: bool
) -> None:
    ledger = Ledger(answers_withdrawn=answers_withdrawn)
    for step in steps:
        ledger.take(*step)
        # what is not pending has its outcome, and what is pending has none
        assert {i for i in ledger.made if ledger.outcomes[i] == 0} == set(ledger.machine.pending)
        assert list(ledger.machine.open) == list(ledger.open)
    for request_id in list(ledger.machine.pending):
        ledger.take("give up", request_id)
    assert ledger.made == list(range(1, len(ledger.made) + 1))
    assert ledger.outcomes == Counter(ledger.made)


@given(
    said=st.one_of(
        st.binary(max_size=200), st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists).map(line)
    )
)
def test_no_line_whatsoever_makes_the_machine_raise(said: bytes) -> None:
    machine = JSONRPC(cancel=MCP_CANCEL)
    machine.request("a")
    machine.receive(said)
    assert dict(machine.pending) == {1: "a"}


def test_without_a_way_to_cancel_every_notification_is_one() -> None:
    heard = JSONRPC(cancel=None).receive(b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}')
    assert isinstance(heard, Notification)
    assert (heard.method, heard.params) == ("$/cancelRequest", {"id": 1})
