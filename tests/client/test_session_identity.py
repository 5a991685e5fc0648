"""Which session a conversation is in: what the options name, what the CLI says, and what is told when the two differ."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from peers import in_time, result, said

from claude_transport import ClaudeOptions, MockTransport, Query, StructuredOutputMissing, SubprocessTransport, TransportWrapper
from claude_transport.client import ResumePoint
from claude_transport.protocol.messages import SessionForked
from claude_transport.transports import Client, SessionTerms

OURS = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
THEIRS = "12345678-1234-4234-8234-123456789abc"
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("options", "session_id", "forks"),
    [
        pytest.param({}, None, False, id="a new session has any id"),
        pytest.param({"session_id": OURS}, OURS, False, id="an id of the caller's own"),
        pytest.param({"resume": OURS}, OURS, False, id="a resume keeps the id"),
        pytest.param({"resume": "some title"}, None, False, id="a title is no id"),
        pytest.param({"continue_conversation": True}, None, False, id="the last session, whichever that is"),
        pytest.param({"resume": OURS, "fork_session": True}, OURS, True, id="a fork of a session"),
        pytest.param({"resume": OURS, "fork_session": True, "session_id": THEIRS}, THEIRS, False, id="a fork under an id of one's own"),
    ],
)
def test_the_transport_says_which_session_its_options_name(options: dict[str, Any], session_id: str | None, forks: bool) -> None:
    terms = SubprocessTransport(ClaudeOptions(**options)).attach(Client())
    assert (terms.session_id, terms.forks_session) == (session_id, forks)


def test_the_transport_says_whether_its_options_ask_for_structured_output() -> None:
    assert not SubprocessTransport().attach(Client()).structured_output
    assert SubprocessTransport(ClaudeOptions(output_format=SCHEMA)).attach(Client()).structured_output


def without_callbacks(terms: SessionTerms) -> SessionTerms:
    return msgspec.structs.replace(terms, on_prompt=None, on_failure=None, find_cli_version=None, hurry=None, at_once=None)


def test_a_command_of_the_callers_own_gets_no_flags_and_so_has_no_such_terms() -> None:
    options = ClaudeOptions(session_id=OURS, output_format=SCHEMA)
    assert without_callbacks(SubprocessTransport(options, command=["claude"]).attach(Client())) == SessionTerms()


# --------------------------------------------------------------------------------------------------------- in a conversation


class OnTerms(MockTransport):
    """A mock whose options ask for something."""

    def __init__(self, *replies: dict[str, Any], **terms: Any) -> None:
        super().__init__(replies)
        self.terms = SessionTerms(**terms)

    def attach(self, client: Client) -> SessionTerms:
        super().attach(client)
        return self.terms


def init(session_id: str) -> dict[str, Any]:
    return {"type": "system", "subtype": "init", "session_id": session_id}


@pytest.mark.parametrize("requested", [False, True])
async def test_a_resume_that_yields_another_session_says_so_behind_the_init(requested: bool) -> None:
    transport = OnTerms(init(THEIRS), said(uuid="m1"), result(), session_id=OURS, forks_session=requested)
    async with Query(TransportWrapper(transport)) as query:
        assert query.resume_point is None
        everything = query.messages()
        turn = await query.send("again")
        kinds = [message.type async for message in turn]
        assert kinds == ["system", "session_forked", "assistant", "result"]
        found = [await in_time(anext(everything)) for _ in kinds]
        (forked,) = [message for message in found if isinstance(message, SessionForked)]
        assert (forked.expected, forked.actual, forked.requested, forked.raw) == (OURS, THEIRS, requested, b"")
        assert forked.to_dict() == {"type": "session_forked", "expected": OURS, "actual": THEIRS, "requested": requested}
        assert query.resume_point == ResumePoint(THEIRS, "m1")


async def test_a_session_that_is_the_one_that_was_asked_for_is_nothing_to_speak_of() -> None:
    async with Query(OnTerms(init(OURS), said(), result(), session_id=OURS)) as query:
        turn = await query.send("again")
        assert [message.type async for message in turn] == ["system", "assistant", "result"]


@pytest.mark.parametrize(
    ("terms", "initialize", "missing"),
    [
        pytest.param({"structured_output": True}, {}, True, id="by an option"),
        pytest.param({"initialize": {"jsonSchema": {"type": "object"}}}, {}, True, id="by an option too long for the command line"),
        pytest.param({}, {"jsonSchema": {"type": "object"}}, True, id="by a field of initialize"),
        pytest.param({}, {}, False, id="not at all"),
    ],
)
async def test_a_schema_that_was_asked_for_and_not_kept_to_is_a_failure(
    terms: dict[str, Any], initialize: dict[str, Any], missing: bool
) -> None:
    async with Query(OnTerms(said(), result(), **terms), initialize=initialize) as query:
        found = await (await query.send("x")).result()
        assert found.outcome.ok is not missing
        if missing:
            with pytest.raises(StructuredOutputMissing):
                found.raise_for_error()


async def test_a_structured_output_that_is_there_is_no_failure() -> None:
    async with Query(OnTerms(said(), result(structured_output={"answer": 4}), structured_output=True)) as query:
        found = await (await query.send("x")).result()
        assert found.raise_for_error().structured_output == {"answer": 4}
