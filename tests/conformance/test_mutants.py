"""The checks are sharp: a transport with one thing wrong fails the clauses about it, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import mutants_closing
import mutants_reading
import mutants_wrapping
import mutants_writing
import pytest
from mutants import LEAKS, LIMIT, MUTANTS, Good, all_broken

from claude_transport.testing.conformance import CLAUSES, WRAPPER_CLAUSES, run_conformance

# some of them leave to the garbage collector what they should have closed
pytestmark = [pytest.mark.filterwarnings(f"ignore::{name}") for name in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning")]

MODULES = (mutants_closing, mutants_reading, mutants_wrapping, mutants_writing)  # importing them has filled MUTANTS

SHORT = 0.3
"""Seconds for a single wait where it is expected to take for ever."""

LONG = 10.0
"""Seconds for a single wait where it is expected to be over at once: only a machine that stands still needs them."""


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    yield
    LEAKS.close()


def failures(name: str, *, backend: str, clauses: frozenset[str], broken: frozenset[str]) -> dict[str, str]:
    """What `clauses` say of a mutant that ought to break those in `broken`."""
    medium = MUTANTS[name].make()
    reports = [
        run_conformance(medium, backends=[backend], clauses=sorted(clauses & broken), timeout=SHORT),
        run_conformance(medium, backends=[backend], clauses=sorted(clauses - broken), timeout=LONG),
    ]
    return {row.clause: row.detail for report in reports for row in report.failed}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fails_exactly_the_clauses_it_breaks(name: str) -> None:
    broken = MUTANTS[name].broken
    asked = CLAUSES + WRAPPER_CLAUSES if MUTANTS[name].make().is_wrapper else CLAUSES
    failed = failures(name, backend="asyncio", clauses=frozenset(clause.id for clause in asked), broken=broken)
    assert set(failed) == broken, failed
    assert MUTANTS[name].says in failed.get(MUTANTS[name].first, ""), failed


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fails_them_on_trio_too(name: str) -> None:
    mutant = MUTANTS[name]
    broken = mutant.broken - mutant.asyncio_only
    failed = failures(name, backend="trio", clauses=mutant.broken, broken=broken)
    assert set(failed) == broken, failed
    assert mutant.says in failed.get(mutant.first, ""), failed


def test_every_clause_has_a_mutant_that_breaks_it() -> None:
    assert {clause.id for clause in CLAUSES + WRAPPER_CLAUSES} - set(all_broken()) == set()


def test_what_the_mutants_are_made_from_breaks_nothing() -> None:
    assert LIMIT == 65536
    report = run_conformance(Good, timeout=LONG)
    assert report.ok, str(report)


def test_a_late_close_is_found_however_patient_the_kit_is() -> None:
    report = run_conformance(MUTANTS["ClosesLate"].make(), clauses=["close.bounded"], timeout=LONG)
    assert ["and may take 1.1 s" in row.detail for row in report.failed] == [True, True]
