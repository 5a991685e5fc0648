"""Which session a conversation is in: what the options name, what the CLI says, and what is told when the two differ."""

from __future__ import annotations

from typing import Any

import pytest

from claude_transport import ClaudeOptions, SessionTerms, SubprocessTransport

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
    terms = SubprocessTransport(ClaudeOptions(**options)).announce(answers=frozenset())
    assert (terms.session_id, terms.forks_session) == (session_id, forks)


def test_the_transport_says_whether_its_options_ask_for_structured_output() -> None:
    assert not SubprocessTransport().announce(answers=frozenset()).structured_output
    assert SubprocessTransport(ClaudeOptions(output_format=SCHEMA)).announce(answers=frozenset()).structured_output


def test_a_command_of_the_callers_own_gets_no_flags_and_so_has_no_such_terms() -> None:
    options = ClaudeOptions(session_id=OURS, output_format=SCHEMA)
    assert SubprocessTransport(options, command=["claude"]).announce(answers=frozenset()) == SessionTerms()
