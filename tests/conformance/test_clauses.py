"""The clauses and the docstrings of `Transport`, and those of wrappers and the docstrings of their bases, are one list."""

from __future__ import annotations

import inspect
import re

import pytest

from claude_transport.errors import ConfigurationError
from claude_transport.testing.conformance import CLAUSES, WRAPPER_CLAUSES
from claude_transport.testing.conformance.clauses import select_clauses
from claude_transport.transport import Transport
from claude_transport.wrappers import LineWrapper, TransportWrapper

PROMISE = re.compile(r"^\* `(?P<id>[a-z]+\.[a-z-]+)`: (?P<sentence>.*?)(?=^\* |^$|\Z)", re.MULTILINE | re.DOTALL)


def promises_of(documented: object) -> dict[str, str]:
    """Clause id → sentence, from a docstring."""
    return {match["id"]: " ".join(match["sentence"].split()) for match in PROMISE.finditer(inspect.getdoc(documented) or "")}


def promises(*classes: type) -> dict[str, tuple[str, str]]:
    """Clause id → (where it is promised, sentence), of the classes and all their own methods."""
    found: dict[str, tuple[str, str]] = {}
    for cls in classes:
        found |= {id_: (cls.__name__, sentence) for id_, sentence in promises_of(cls).items()}
        for name, member in vars(cls).items():
            found |= {id_: (f"{cls.__name__}.{name}", sentence) for id_, sentence in promises_of(member).items()}
    return found


def test_the_docstrings_and_the_clauses_have_the_same_ids() -> None:
    assert sorted(promises(Transport)) == sorted(clause.id for clause in CLAUSES)
    assert sorted(promises(TransportWrapper, LineWrapper)) == sorted(clause.id for clause in WRAPPER_CLAUSES)


@pytest.mark.parametrize("clause", CLAUSES + WRAPPER_CLAUSES, ids=lambda clause: clause.id)
def test_a_clause_says_what_the_docstring_says_and_where(clause: object) -> None:
    assert isinstance(clause, type(CLAUSES[0]))
    where, sentence = promises(Transport, TransportWrapper, LineWrapper)[clause.id]
    assert clause.sentence.lower() == sentence.lower()
    assert clause.source == where


def test_clauses_are_picked_by_their_ids() -> None:
    assert [clause.id for clause in select_clauses(["read.order", CLAUSES[0]])] == ["read.order", CLAUSES[0].id]


def test_a_wrapper_is_asked_more_than_another_transport() -> None:
    assert select_clauses() == CLAUSES
    assert select_clauses(is_wrapper=True) == CLAUSES + WRAPPER_CLAUSES
    assert select_clauses(["terms.storage"]) == tuple(clause for clause in WRAPPER_CLAUSES if clause.id == "terms.storage")


def test_an_id_that_is_not_in_the_contract_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"no clause read\.minds"):
        select_clauses(["read.order", "read.minds"])
