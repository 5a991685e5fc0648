"""`RecentMessages`: the last messages for an error, bounded in number and in memory however they come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claude_transport.client.storage import RecentMessages
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import ResultMessage
from claude_transport.testing import assistant, result

LARGE = 64 * 1024  # characters of a message


def message_of(row: dict[str, Any]) -> Message:
    return decode_message(json.dumps(row).encode())


def large(number: int) -> str:
    return f"{number} {'x' * LARGE}"


@pytest.mark.parametrize("at_once", [1, 3, 40])
def test_the_newest_mebibyte_is_kept_in_whatever_batches_it_comes(at_once: int) -> None:
    recent = RecentMessages()
    messages = [message_of(assistant(large(number))) for number in range(40)]
    for first in range(0, len(messages), at_once):
        recent.add(messages[first : first + at_once])
    kept = recent.messages()
    assert 12 <= len(kept) <= 16
    assert kept == tuple(messages[-len(kept) :])
    recent.add([message_of(assistant("small"))])
    assert len(recent.messages()) == len(kept) + 1


def test_results_count_and_stay_what_they_were() -> None:
    recent = RecentMessages()
    results = [message_of(result(large(number))) for number in range(40)]
    for each in results:
        recent.add([each])
    kept = recent.messages()
    assert 1 <= len(kept) <= 16
    assert all(mine is theirs for mine, theirs in zip(kept, results[-len(kept) :], strict=True))
    assert isinstance(kept[-1], ResultMessage)


def test_at_most_so_many_are_kept_and_none_after_clearing() -> None:
    recent = RecentMessages(at_most=2)
    messages = [message_of(assistant(str(number))) for number in range(5)]
    for message in messages:
        recent.add([message])
    assert recent.messages() == tuple(messages[-2:])
    recent.clear()
    assert recent.messages() == ()
    recent.add(messages)
    assert recent.messages() == tuple(messages[-2:])
