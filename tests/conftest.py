"""Shared fixtures. Every async test runs on asyncio and on trio: `anyio_mode = "auto"` plus the parametrised backend below."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of the test: each async test runs once per backend."""
    return str(request.param)


def pytest_configure() -> None:
    """Let children hear Ctrl-C, as in a terminal: a run that a shell has put into the background ignores SIGINT, and so would they."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
