"""The rows of the requirements, the tests that prove them, and what each test shows: `proofs.toml`, read."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
PROOFS: dict[str, dict[str, str]] = tomllib.loads((TESTS / "proofs.toml").read_text("utf-8"))
"""By row: the tests (file and name) that prove it, and for each the sentence that says what it shows."""

PAINS = {"L": 16, "F": 10, "C": 15, "B": 7, "E": 8, "S": 10, "P": 5, "R": 9, "T": 4, "O": 5, "W": 7, "A": 6}
SYSTEMS = {1: 10, 2: 8, 3: 6, 4: 6, 5: 7}
PAIN_ROWS = [f"{kind}{number}" for kind, count in PAINS.items() for number in range(1, count + 1)]
SYSTEM_ROWS = [f"S{section}.{number}" for section, count in SYSTEMS.items() for number in range(1, count + 1)]

Test = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tests_in(path: str) -> dict[str, Test]:
    """Read the test functions of a file below `tests`, by name."""
    return {node.name: node for node in ast.parse((TESTS / path).read_text("utf-8")).body if isinstance(node, Test)}


def find_test(proof: str) -> Test | None:
    """Find the function that a proof names; None when there is none."""
    path, _, name = proof.partition("::")
    return tests_in(path).get(name) if (TESTS / path).is_file() else None
