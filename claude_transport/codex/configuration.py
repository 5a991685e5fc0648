"""What Codex reads beside its command line: `config.toml` of its home. It says who pays, and may hold secrets that redactors must know.

Files of a project and of the system, which Codex also reads, are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, overload

import msgspec

from claude_transport.codex.environ import build_codex_environment
from claude_transport.codex.options import CodexOptions
from claude_transport.errors import ConfigurationError
from claude_transport.launch.discovery import home_of
from claude_transport.launch.environ import environment_now

CONFIGURATION_FILE: Final = "config.toml"
_MAX_FILE_BYTES: Final = 2**20
"""Bytes of a file that are read. Real ones have a few kilobytes."""


def find_codex_home(env: Mapping[str, str]) -> Path | None:
    """Return the home of a Codex with this environment: `CODEX_HOME`, else `.codex` in the home directory; None when neither is known."""
    if env.get("CODEX_HOME"):
        return Path(env["CODEX_HOME"])
    home = home_of(env)
    return None if home is None else home / ".codex"


def read_configuration(codex_home: str | PathLike[str] | None) -> dict[str, Any]:
    """Return the settings in `config.toml` of this home; empty when there is no such file, or it cannot be read.

    Codex refuses to start with a file that is no TOML, and says so.
    """
    text = None if codex_home is None else read_file(Path(codex_home) / CONFIGURATION_FILE)
    if text is None:
        return {}
    import tomllib  # most sessions need no look at the file

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def read_file(path: Path) -> str | None:
    """Return the text of a regular file with at most 1 MiB; None when there is none, or it cannot be read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        return content.decode("utf-8-sig") if len(content) <= _MAX_FILE_BYTES else None
    except (OSError, ValueError):
        return None


class ConfigurationTexts(Sequence[str]):
    """The settings that a Codex with these options reads, as JSON, for redactors that must know their secrets.

    The file is read at the first access. A missing or unreadable file counts as empty.
    """

    def __init__(self, options: CodexOptions) -> None:
        self._options = options
        self._texts: tuple[str, ...] | None = None

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._read()[index]

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        """Show no text: it may hold secrets."""
        return "ConfigurationTexts(...)"

    def _read(self) -> tuple[str, ...]:
        if self._texts is None:
            try:
                home = find_codex_home(build_codex_environment(self._options, environment_now()))
            except ConfigurationError:  # nothing can be started with these options
                home = None
            found = read_configuration(home)
            self._texts = (msgspec.json.encode(found, enc_hook=str).decode(),) if found else ()
        return self._texts
