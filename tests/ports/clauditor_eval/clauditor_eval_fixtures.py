"""Lets what the tests of clauditor put in place of a process answer the calls of the port."""

from __future__ import annotations

import functools
import subprocess

import clauditor._harnesses._claude_code as harness
import pytest
from canned_process import from_popen


@pytest.fixture(autouse=True)
def plays_the_patched_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the patched Popen answer. The tests reach it through the module of the harness, which has no other use for `subprocess`."""
    monkeypatch.setattr(harness, "subprocess", subprocess, raising=False)
    monkeypatch.setattr(harness, "complete_sync", functools.partial(harness.complete_sync, make_transport=from_popen))
