"""A clean world for one claude: temporary directories, a made-up key, and an environment that holds nothing of the user."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from claude_transport.launch.options import ClaudeOptions
from claude_transport.testing import FakeMessagesAPI

HARMLESS: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT")
"""The inherited variables that a program needs to run. They hold no secret."""


def isolated_options(cli_path: str, folder: Path, api: FakeMessagesAPI, **more: Any) -> ClaudeOptions:
    """Return the options of a claude that lives below `folder`, which is empty, and asks `api` alone. `more` are further options."""
    places = {name: folder / name for name in ("home", "config", "project", "t")}
    for place in places.values():
        place.mkdir(exist_ok=True)
    home, temporary = str(places["home"]), str(places["t"])
    inherited = {name: os.environ[name] for name in HARMLESS if os.environ.get(name)}
    homes = {"HOME": home, "USERPROFILE": home, "APPDATA": home, "LOCALAPPDATA": home}
    temporaries = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), temporary)
    return ClaudeOptions(
        cli_path=cli_path,
        cwd=places["project"],
        config_dir=places["config"],
        env_mode="exact",
        env={**inherited, **(homes if sys.platform == "win32" else {"HOME": home}), **temporaries, **api.environment()},
        setting_sources=(),
        **more,
    )
