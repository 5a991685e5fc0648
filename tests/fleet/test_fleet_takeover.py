"""What is said when another worker takes a session, and what an end of another version of the library says."""

from __future__ import annotations

import msgspec
import pytest

from claude_transport.errors import OutcomeUncertain, ResultError, TurnUncertain
from claude_transport.fleet.ends import Claimed, ClientEnd, WorkerEnd, decode_struct
from claude_transport.fleet.messages import Entry, Owner
from claude_transport.fleet.takeover import OpenRequests, find_setup, setup_lines, takeover_lines, without_setup_answers
from claude_transport.messages import ResultMessage, decode_message


def request(subtype: str, identifier: str) -> bytes:
    return msgspec.json.encode({"type": "control_request", "request_id": identifier, "request": {"subtype": subtype}}) + b"\n"


def test_an_uncertain_turn_ends_with_a_result_that_raises_both_kinds_of_error() -> None:
    notice, result = takeover_lines(Owner(node="two", uncertain=1, unstored=2), resumed=True, conversation="c")
    said = msgspec.json.decode(notice)
    assert {name: said[name] for name in ("subtype", "uncertain", "unstored", "resumed", "worker", "session_id")} == {
        "subtype": "fleet_takeover",
        "uncertain": 1,
        "unstored": 2,
        "resumed": True,
        "worker": "two",
        "session_id": "c",
    }
    message = decode_message(result)
    assert isinstance(message, ResultMessage)
    with pytest.raises(TurnUncertain) as caught:
        message.raise_for_error()
    error = caught.value
    assert isinstance(error, OutcomeUncertain)
    assert isinstance(error, ResultError)
    assert (error.session_id, error.result, error.retryable, error.code) == ("c", message, False, "outcome.turn_uncertain")


def test_a_takeover_between_two_turns_ends_no_turn() -> None:
    (notice,) = takeover_lines(Owner(node="two"), resumed=False, conversation=None)
    assert (msgspec.json.decode(notice)["resumed"], msgspec.json.decode(notice)["session_id"]) == (False, "")


def test_as_many_uncertain_turns_as_a_client_can_have_are_told_and_no_more() -> None:
    lines = takeover_lines(Owner(node="two", uncertain=5000), resumed=False, conversation=None)
    assert len(lines) == 1001
    assert {msgspec.json.decode(line)["session_id"] for line in lines} == {""}
    assert msgspec.json.decode(lines[0])["uncertain"] == 5000


def test_requests_that_set_a_session_up_are_said_again_in_order_with_ids_of_their_own() -> None:
    kept = find_setup(request("set_model", "a") + b'{"type":"user"}\n' + request("initialize", "b") + request("interrupt", "c"))
    assert set(kept) == {"set_model", "initialize"}
    lines = [msgspec.json.decode(line) for line in setup_lines(kept)]
    assert [(line["request"]["subtype"], line["request_id"]) for line in lines] == [
        ("initialize", "fleet-setup-0"),
        ("set_model", "fleet-setup-1"),
    ]


def test_requests_that_cannot_be_read_are_not_kept() -> None:
    deep = b"[" * 5000 + b'"control_request"\n'
    hostile = b'{"type":"control_request","request_id":1}\n{"control_request"\n\xff"control_request"\n' + deep
    assert find_setup(hostile) == {}
    for left_out in ({"request_id": ""}, {"type": "other"}):
        kept = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}, "of": "control_request"}
        assert find_setup(msgspec.json.encode(kept)) != {}
        assert find_setup(msgspec.json.encode({**kept, **left_out})) == {}
    assert setup_lines({"initialize": b"{", "set_model": b"\xff"}) == []


def test_a_request_that_is_too_large_to_keep_is_not_kept_and_not_said_again() -> None:
    for size, count in ((2**20, 1), (2**20 + 1, 0)):
        line = request("initialize", "x").removesuffix(b"\n")
        line = line[:-1] + b" " * (size - len(line)) + b"}"
        assert len(find_setup(line + b"\n")) == count
        assert len(setup_lines({"initialize": line})) == count


def test_the_answers_to_such_requests_do_not_reach_the_client() -> None:
    ours = b'{"type":"control_response","response":{"subtype":"success","request_id":"fleet-setup-0"}}\n'
    theirs = b'{"type":"control_response","response":{"subtype":"success","request_id":"r1"}}\n'
    assert without_setup_answers(theirs + ours + b"{}\n") == theirs + b"{}\n"
    assert without_setup_answers(b"{}\n") == b"{}\n"
    other = b'{"type":"other","request_id":"fleet-setup-0"}\n'
    assert without_setup_answers(other) == other


def test_open_requests_of_a_process_that_is_gone_are_answered_with_an_error() -> None:
    requests = OpenRequests()
    for number, identifier in enumerate(("answered", "taken", "waiting"), 1):
        requests.said(request("interrupt", identifier), number=number)
    requests.heard(b'{"type":"control_response","response":{"subtype":"success","request_id":"answered"}}\n"control_response"\n')
    (answer,) = requests.answers_after(2)
    response = msgspec.json.decode(answer)["response"]
    assert (response["request_id"], response["subtype"]) == ("taken", "error")
    assert list(requests.answers_after(2)) == []
    assert len(list(requests.answers_after(3))) == 1


def test_the_newest_thousand_requests_without_an_answer_are_remembered() -> None:
    requests = OpenRequests()
    for number in range(1003):
        requests.said(request("interrupt", str(number)), number=number)
    answers = [msgspec.json.decode(line)["response"]["request_id"] for line in requests.answers_after(2000)]
    assert answers == [str(number) for number in range(3, 1003)]


def test_entries_of_a_newer_library_are_passed_over() -> None:
    newer = [Entry(1, "1.a", "future", b"?"), Entry(2, "1.a", "d", b"{}\n")]
    client, worker = ClientEnd("1.c"), WorkerEnd(Claimed(token="1.w"), asked_at=0)
    assert [each.kind for each in client.arrived(newer)] == ["future", "d"]
    assert [each.kind for each in worker.arrived(newer)] == ["future", "d"]
    assert decode_struct(b'{"node":"n","a field of the future":1}', Owner) == Owner(node="n")
