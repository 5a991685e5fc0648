"""`SettingsTexts`: the settings files that a session reads, as texts, for redactors that have to know the secrets in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, overload

from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.settings import ReadSettings, is_inline_json

_MAX_FILE_BYTES: Final = 2**20
"""Bytes of a settings file that are read: real ones have some kilobytes."""


class SettingsTexts(Sequence[str]):
    """A sequence of the texts of the settings files that a session with these options reads on this machine.

    These are the files that the options `settings` and `mcp_servers` name, the user's settings, and those of the project. Nothing is read
    before the first look. A file that is missing or unreadable is left out. `inherited` is the environment below `options.env`.
    """

    def __init__(self, options: ClaudeOptions, inherited: Mapping[str, str] | None = None) -> None:
        self._options = options
        self._inherited = inherited
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
        """Return the number of files only: their texts hold secrets."""
        return f"SettingsTexts({'unread' if self._texts is None else len(self._texts)})"

    def _read(self) -> tuple[str, ...]:
        if self._texts is None:
            settings = self._options.settings
            read = [settings.text[:_MAX_FILE_BYTES]] if isinstance(settings, ReadSettings) else []
            self._texts = (*read, *(text for path in self._paths() if (text := _text_of(path)) is not None))
        return self._texts

    def _paths(self) -> Iterator[Path]:
        options = self._options
        project = Path(options.cwd or "")
        for given in (options.settings, options.mcp_servers):
            if isinstance(given, ReadSettings):
                continue
            if isinstance(given, os.PathLike) or (isinstance(given, str) and given and not is_inline_json(given)):
                yield project / given
        sources = ("user", "project", "local") if options.setting_sources is None else tuple(options.setting_sources)
        if "user" in sources and not options.isolated_config:
            yield from self._user_settings()
        if "project" in sources:
            yield project / ".claude" / "settings.json"
        if "local" in sources:
            yield project / ".claude" / "settings.local.json"

    def _user_settings(self) -> Iterator[Path]:
        env = {**(os.environ if self._inherited is None else self._inherited), **self._options.env}
        folder = self._options.config_dir or env.get("CLAUDE_CONFIG_DIR")
        home = env.get("HOME") or env.get("USERPROFILE")
        if folder:
            yield Path(folder) / "settings.json"
        elif home:
            yield Path(home) / ".claude" / "settings.json"


def _text_of(path: Path) -> str | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would wait for its other end
            return None
        with path.open("rb") as file:
            return file.read(_MAX_FILE_BYTES).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return None
