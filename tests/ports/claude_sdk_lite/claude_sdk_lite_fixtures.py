"""Lets what the tests of claude-sdk-lite put in place of a process answer the calls of the port."""

from __future__ import annotations

import asyncio
import sys
from unittest.mock import AsyncMock

import claude_sdk_lite  # noqa: F401 - its name `query` is a function, the module is below
import pytest
from canned_process import from_exec, from_popen

import claude_transport as ct


@pytest.fixture(autouse=True)
def plays_the_patched_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the patched function answer, whichever it is."""
    monkeypatch.setattr(sys.modules["claude_sdk_lite.query"], "SubprocessTransport", _canned)
    monkeypatch.setattr("claude_sdk_lite.utils.find_tool_in_system_sync", lambda _name: "/usr/bin/claude")  # no CLI is on PATH here


def _canned(options: ct.ClaudeOptions) -> ct.MockTransport:
    return from_exec(options) if isinstance(asyncio.create_subprocess_exec, AsyncMock) else from_popen(options)
