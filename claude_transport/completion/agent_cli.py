"""Which agent's CLI the CLI path runs: a description, so that another one could be added beside it (S1.10)."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Final, Protocol

import msgspec

from claude_transport.launch.discovery import CLI, find_cli, read_cli_version

__all__ = ["CLAUDE_CODE", "AgentCLI"]


class _Find(Protocol):
    def __call__(self, explicit: str | PathLike[str] | None = None, /, *, env: Mapping[str, str]) -> CLI: ...


class _ReadVersion(Protocol):
    def __call__(self, cli: CLI, /) -> str | None: ...


class AgentCLI(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's program: its name, how it is found (raising `CLINotFoundError`), and how its version is read without starting it."""

    name: str
    find: _Find
    read_version: _ReadVersion


CLAUDE_CODE: Final = AgentCLI(name="claude-code", find=find_cli, read_version=read_cli_version)
"""Claude Code, whose protocol this library speaks."""
