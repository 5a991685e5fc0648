"""Each test has a configuration directory of its own: no session of the machine is read or changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """An empty one, which CLAUDE_CONFIG_DIR names."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "configuration"))
    return Shelf(tmp_path / "configuration")
