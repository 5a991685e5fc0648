"""The settings that a session would load of itself, as far as they decide about credentials; read as the CLI reads them, never written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import SettingSource

__all__ = ["find_config_dir", "read_user_settings"]

_NAMES: Final[Mapping[SettingSource, str]] = {"project": "settings.json", "local": "settings.local.json"}


def find_config_dir(env: Mapping[str, str]) -> Path:
    """Where a CLI with this environment keeps its configuration and, on Linux, its login.

    Raises `ConfigurationError` when nobody knows: for a container's user that has no HOME and no entry among the system's users.
    """
    given = env.get("CLAUDE_CONFIG_DIR")
    if given:
        return Path(given)
    home = env.get("HOME") or env.get("USERPROFILE")
    try:
        return (Path(home) if home else Path.home()) / ".claude"
    except RuntimeError as error:
        raise ConfigurationError("this user has no home directory: set HOME, or CLAUDE_CONFIG_DIR", option="HOME") from error


def read_user_settings(
    env: Mapping[str, str], *, project: str | PathLike[str] = ".", sources: Collection[SettingSource] | None = None
) -> dict[str, Any]:
    """The user's settings with the project's laid over them: `env` and `apiKeyHelper`, and nothing else of them.

    `sources` are those that the session reads; None is all of them, as it is for the CLI. A file that is not there, or cannot be read, is
    left out, as the CLI leaves it out.
    """
    found: dict[str, Any] = {"env": {}}
    paths: dict[SettingSource, Path] = {"user": find_config_dir(env) / "settings.json"}
    paths |= {source: Path(project) / ".claude" / name for source, name in _NAMES.items()}
    for path in [path for source, path in paths.items() if sources is None or source in sources]:
        try:
            document = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(document, dict):
            block = document.get("env")
            found["env"] |= block if isinstance(block, dict) else {}
            found["apiKeyHelper"] = document.get("apiKeyHelper") or found.get("apiKeyHelper")
    return found
