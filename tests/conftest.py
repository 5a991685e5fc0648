"""Shared fixtures. Every async test runs on asyncio and on trio: `anyio_mode = "auto"` plus the parametrised backend below."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of the test: each async test runs once per backend."""
    return str(request.param)
