"""Fixtures that the tests of llm-claude-cli name, and that its source distribution lacks."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Iterator
from unittest.mock import MagicMock, patch

import llm_claude_cli
import pytest
from canned_process import from_popen, play

import claude_transport as ct


@pytest.fixture(autouse=True)
def plays_the_patched_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what the tests put in place of a process answer the calls."""
    monkeypatch.setattr(llm_claude_cli, "stream_sync", functools.partial(llm_claude_cli.stream_sync, make_transport=_canned))


def _canned(options: ct.ClaudeOptions) -> ct.MockTransport:
    if options.output_format is None:
        return from_popen(options)
    answer = subprocess.run(ct.launch.build_argv(options, "claude"), check=False).stdout
    return play([json.dumps({"type": "result", **json.loads(answer)})])


@pytest.fixture
def mock_llm_response() -> MagicMock:
    """Return what takes the usage and the data of an answer."""
    return MagicMock()


@pytest.fixture
def mock_llm_prompt() -> MagicMock:
    """Return a prompt with the default options."""
    return MagicMock(prompt="Test prompt", system=None, schema=None, options=llm_claude_cli.ClaudeCodeOptions())


@pytest.fixture
def mock_subprocess_run() -> Iterator[MagicMock]:
    """Patch `subprocess.run`."""
    with patch("subprocess.run") as run:
        yield run
