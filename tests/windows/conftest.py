"""Tests for Windows. They run on Windows, and under wine with `nox -s wine`; elsewhere nothing here is collected."""

from __future__ import annotations

import sys

import pytest
from windows_processes import is_wine

collect_ignore_glob = [] if sys.platform == "win32" else ["test_*.py"]


@pytest.fixture(params=["asyncio"] if is_wine() else ["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of the test: both on Windows; under wine, where trio does not start, asyncio."""
    return str(request.param)
