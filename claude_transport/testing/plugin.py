"""The pytest plugin: fixtures for people who test programs that talk to Claude (entry point `pytest11`).

It is loaded at every pytest start where this package is installed, so a fixture imports what it needs when it is used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI

__all__ = ["fake_messages_api"]


@pytest.fixture
async def fake_messages_api(anyio_backend: object) -> AsyncIterator[FakeMessagesAPI]:
    """A running `FakeMessagesAPI` for an async test under anyio's pytest plugin; `fake_messages_api.replace(script)` scripts it."""
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI

    async with FakeMessagesAPI() as api:
        yield api
