"""What the main paths of the ports share: a clean world for the real `claude`, and a Messages API on loopback."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import claude_agent_sdk
from anyio.from_thread import start_blocking_portal

from claude_transport.testing import FakeMessagesAPI
from claude_transport.testing.replies import Reply


@contextmanager
def world(*answers: Reply) -> Iterator[str]:
    """Yield the path of the real CLI, in an environment in which it can reach only a `FakeMessagesAPI` with these answers."""
    with (
        tempfile.TemporaryDirectory() as home,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(FakeMessagesAPI(list(answers))) as api,
    ):
        os.environ.update(
            HOME=home,
            CLAUDE_CONFIG_DIR=str(Path(home) / "config"),
            ANTHROPIC_BASE_URL=api.url,
            ANTHROPIC_API_KEY="sk-ant-fake",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_TELEMETRY="1",
            DISABLE_AUTOUPDATER="1",
            DISABLE_ERROR_REPORTING="1",
        )
        yield str(Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude")
