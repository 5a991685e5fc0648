"""A plug-in of pytest: skips the tests of a ported package that do not apply to the port, each with its reason from `ports.toml`."""

from __future__ import annotations

import inspect
import os
import tomllib
from pathlib import Path

import pytest

PORT = tomllib.loads((Path(__file__).parent / "ports.toml").read_text("utf-8"))[os.environ["PORT"]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip each test whose source, name or fixtures contain one of the marks."""
    for item in items:
        if isinstance(item, pytest.Function):
            words = "\n".join([item.name, inspect.getsource(item.function), *item.fixturenames])
            reason = next((reason for mark, reason in PORT["marks"].items() if mark in words), None)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
