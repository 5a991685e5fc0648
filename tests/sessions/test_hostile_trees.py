"""Transcripts whose shape would make reading take for ever: the steps grow with the number of entries, and not with its square."""

from __future__ import annotations

from typing import Any

import pytest
from shelf import entry

from claude_transport.sessions.changing import Fork
from claude_transport.sessions.reading import EntryPlace, conversation, lineage

COUNT = 3000


class Steps:
    """Counts what is asked of entries."""

    taken = 0


class Counted(EntryPlace):
    """An entry that counts each look at it."""

    def __getattribute__(self, name: str) -> Any:
        Steps.taken += 1
        return super().__getattribute__(name)


def comb(kind: str, *, spoken: str = "user") -> list[dict[str, Any]]:
    """One message, a long chain of entries of a kind below it, and as many messages or others at the end of the chain."""
    begin: dict[str, Any] = {"type": "user", "uuid": entry(0), "parentUuid": None, "message": {"content": "Begin"}}
    chain = [{"type": kind, "uuid": entry(number), "parentUuid": entry(number - 1)} for number in range(1, COUNT)]
    ends = [
        {"type": spoken, "uuid": entry(COUNT + number), "parentUuid": entry(COUNT - 1), "message": {"content": "End"}}
        for number in range(COUNT)
    ]
    return [begin, *chain, *ends]


def counted(raw: dict[str, Any]) -> Counted:
    made = Counted.of(raw, raw)
    assert isinstance(made, Counted)
    return made


@pytest.mark.parametrize("kind", ["system", "progress", "attachment"])
@pytest.mark.parametrize("choose", [conversation, lineage])
def test_the_steps_of_reading_a_conversation_grow_with_its_entries(kind: str, choose: Any) -> None:
    entries = [counted(raw) for raw in comb(kind, spoken="system")]
    Steps.taken = 0
    assert [each.uuid for each in choose(entries)] == [entry(0)]
    assert Steps.taken < 100 * len(entries)


def test_the_steps_of_a_fork_grow_with_its_entries() -> None:
    Steps.taken = 0
    fork = Fork("session")
    for raw in comb("progress"):
        fork.add(raw, raw)
    asked = 0

    def read(one: EntryPlace) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        found: dict[str, Any] = one.where
        return found

    copied = list(fork.entries(read, "Title"))
    assert len({each["parentUuid"] for each in copied[1:-1]}) == 1
    assert asked == COUNT + 1
