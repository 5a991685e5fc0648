"""The page of the contract is made of the clauses and of a run, and the documented transports keep, or break, what is said of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from loading import load_file, load_generator

from claude_transport.testing.conformance import BACKENDS, CLAUSES, WRAPPER_CLAUSES, Reason, media, run_conformance

DOCS = Path(__file__).parents[2] / "docs"


GENERATOR: Any = load_generator("contract")
RESULTS = msgspec.json.decode(GENERATOR.RESULTS.read_bytes(), type=GENERATOR.Results)
PAGE = GENERATOR.PAGE.read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")]


def test_the_page_lists_the_clauses_of_the_kit() -> None:
    for heading, clauses in (("The clauses", CLAUSES), ("The clauses of wrappers", WRAPPER_CLAUSES)):
        assert [(row[0].strip("`"), row[1]) for row in rows(heading)] == [(clause.id, clause.sentence) for clause in clauses]


def test_the_page_shows_a_run_of_all_clauses_on_every_event_loop() -> None:
    for heading, clauses in (("The last run", CLAUSES), ("The last run of wrappers", WRAPPER_CLAUSES)):
        assert [row[0].strip("`") for row in rows(heading)] == [clause.id for clause in clauses]
        assert {len(cell) for row in rows(heading) for cell in row[1:]} == {len(BACKENDS)}


def test_the_run_is_of_every_medium_there_is() -> None:
    assert list(RESULTS.media) == [medium.name for medium in media.shipped()]
    for medium in media.shipped():
        asked = [clause.id for clause in CLAUSES + WRAPPER_CLAUSES * medium.is_wrapper]
        assert [list(found) for found in RESULTS.media[medium.name].values()] == [asked] * len(BACKENDS)


def test_whatever_did_not_pass_says_why() -> None:
    for loops in RESULTS.media.values():
        for row in (row for found in loops.values() for row in found.values()):
            assert row["verdict"] == "passed" or row.get("detail") or row.get("reason") in Reason.__members__


def test_the_page_is_what_the_generator_makes_of_the_results() -> None:
    assert GENERATOR.render(RESULTS) == PAGE


@pytest.mark.parametrize("example", ["third_party_transport", "own_medium"])
def test_a_documented_transport_keeps_the_contract(example: str) -> None:
    module = load_file(DOCS / "examples" / f"{example}.py")
    (cls,) = (each for name, each in vars(module).items() if name.endswith("Transport") and each.__module__ == example)
    report = run_conformance(cls, backends=BACKENDS)
    assert report.ok, str(report)
    assert {row.reason for row in report.excluded} <= {Reason.NO_REFUSAL, Reason.NO_OWN_INFO}


def test_a_transport_over_a_byte_stream_is_documented_in_less_than_forty_lines() -> None:
    """The file is the transport, and a program that holds it to the contract."""
    assert len((DOCS / "examples" / "own_medium.py").read_text("utf-8").splitlines()) < 40


def test_the_documented_broken_transport_breaks_what_the_page_says_on_every_event_loop() -> None:
    module = load_file(DOCS / "examples" / "broken_transport.py")
    said = re.findall(r"^✗ ([\w.-]+) ", (DOCS / "examples" / "broken_transport.txt").read_text("utf-8"), re.MULTILINE)
    report = run_conformance(module.CarelessTransport, backends=BACKENDS)
    for backend in BACKENDS:
        assert [row.clause for row in report.failed if row.backend == backend] == said
