"""The map from the rows of the requirements to their proofs is complete, names tests that exist, and says of each what it shows."""

from __future__ import annotations

import re

import pytest
from proof_map import PAIN_ROWS, SYSTEM_ROWS, find_test
from proof_map import PROOFS as ALL_PROOFS

PROOFS = ALL_PROOFS
RIDDLES = re.compile(r"\b(nobody|somebody|whoever|who|one of us)\b", re.IGNORECASE)


def test_every_row_of_the_requirements_is_in_the_map_once_and_in_order() -> None:
    assert list(PROOFS) == [*PAIN_ROWS, *SYSTEM_ROWS]
    assert len(PROOFS) == 139
    assert [row for row, proofs in PROOFS.items() if not proofs] == []


@pytest.mark.parametrize("row", PROOFS)
def test_every_test_that_a_row_names_exists(row: str) -> None:
    assert [proof for proof in PROOFS[row] if find_test(proof) is None] == []


@pytest.mark.parametrize("row", PROOFS)
def test_every_proof_says_in_one_plain_sentence_what_it_shows(row: str) -> None:
    for proof, sentence in PROOFS[row].items():
        words = sentence.split()
        assert sentence.endswith("."), proof
        assert 3 <= len(words) <= 26, proof
        assert not RIDDLES.search(sentence), proof
    assert len({*PROOFS[row].values()}) == len(PROOFS[row])
