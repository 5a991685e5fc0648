"""The page that maps each area to the test that shows it on the real CLI names tests that are there, and leaves no module out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PROJECT = Path(__file__).parent.parent
E2E = PROJECT / "tests" / "e2e"
NAMED = re.findall(r"`(test_\w+\.py)::(test_\w+)`", (PROJECT / "docs" / "reference" / "proven-on-the-real-cli.md").read_text("utf-8"))

AREAS = (
    "agents_and_shells",
    "content",
    "deferred_tools",
    "hook_events",
    "hook_failures",
    "interrupts",
    "limits",
    "mcp_control",
    "models_and_modes",
    "permissions",
    "sessions",
    "structured_output",
)


def names_in(module: str) -> set[str]:
    path = E2E / module
    tree = ast.parse(path.read_text("utf-8")) if path.exists() else ast.Module([], [])
    return {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith("test_")}


def test_every_test_that_is_named_is_there() -> None:
    assert NAMED
    assert [f"{module}::{name}" for module, name in NAMED if name not in names_in(module)] == []


def test_every_area_is_named() -> None:
    named = {module for module, _name in NAMED}
    assert {f"test_{area}.py" for area in AREAS} <= named
