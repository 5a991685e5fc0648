"""The directories in which a test runs the real `codex`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CodexHome:
    """The directories of one Codex: a HOME, a CODEX_HOME, a project to work in."""

    home: Path
    codex: Path
    project: Path
