"""Errors that several tasks wait for: each of them gets a copy of its own."""

from __future__ import annotations

from claude_transport.client.reports import raised_again
from claude_transport.errors import ConnectionLost


def test_a_note_on_the_error_of_one_waiter_is_not_on_that_of_another() -> None:
    error = ConnectionLost("the peer is gone")
    error.add_note("seen at the end")
    first, second = raised_again(error), raised_again(error)
    first.add_note("added by the first")
    assert (first.__notes__, second.__notes__) == (["seen at the end", "added by the first"], ["seen at the end"])
