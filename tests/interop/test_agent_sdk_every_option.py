"""Walks the fields of the installed `ClaudeAgentOptions`: each one changes something here, or is refused by name, or is said to do nothing.

A field that a newer official SDK brings fails here until it has a value in `official_values` and a row in the table.
"""

from __future__ import annotations

import dataclasses

import claude_agent_sdk as sdk
import msgspec
import pytest
from official_values import SET

from claude_transport import errors
from claude_transport.interop.agent_sdk import options_from
from claude_transport.interop.agent_sdk.translation import OPTION_ROWS

FIELDS = {field.name: field for field in dataclasses.fields(sdk.ClaudeAgentOptions)}
ROWS = {row.option: row for row in OPTION_ROWS}


NO_EFFECT = {"debug_stderr", "session_store_flush", "load_timeout_ms"}
"""What the official SDK has, and what can change nothing here."""


def consequence(option: str) -> str:
    """Where a program that sets this option finds it again: a field of `ClaudeOptions`, of the transport, of the Query; or nowhere."""
    bare = options_from(sdk.ClaudeAgentOptions())
    try:
        moved = options_from(sdk.ClaudeAgentOptions(**{option: SET[option]}))
    except errors.ConfigurationError as refusal:
        return f"refused as {refusal.option}"
    wanted = msgspec.structs.asdict(moved.options).items()
    changed = {f"ClaudeOptions.{name}" for name, value in wanted if value != getattr(bare.options, name)}
    changed |= {f"SubprocessTransport({name}=" for name in moved.transport_options}
    changed |= {f"Query({name}=" for name in moved.query_options}
    return " ".join(sorted(changed)) or "nothing"


def test_every_field_of_the_official_options_is_tried_here() -> None:
    assert sorted(SET) == sorted(FIELDS)


@pytest.mark.parametrize("option", FIELDS)
def test_an_official_option_arrives_where_its_row_says_or_is_refused_or_is_said_to_do_nothing(option: str) -> None:
    field, row = FIELDS[option], ROWS[option]
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    assert SET[option] != default or option == "debug_stderr"  # whose default is a stream
    found = consequence(option)
    if row.here == "nothing":
        assert found == ("nothing" if option in NO_EFFECT else f"refused as {option}")
        assert row.note
    else:
        place = row.here.split("`")[1].removesuffix("…)")
        assert place in found.split()


def test_only_what_is_listed_here_has_no_effect() -> None:
    assert {option for option in FIELDS if consequence(option) == "nothing"} == NO_EFFECT
