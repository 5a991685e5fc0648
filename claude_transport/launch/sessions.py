"""What a process in place of another one is to be started with: a session that was saved is resumed, not begun a second time."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from claude_transport.launch.options import ClaudeOptions

__all__ = ["find_transcript", "options_to_continue"]

_WHOLE_NAME: Final = 200
"""Characters up to which the CLI names a project's folder by the whole path; of a longer one the name begins with as many of them."""


def options_to_continue(options: ClaudeOptions) -> ClaudeOptions:
    """The options with which a second process goes on in the session that `session_id` names, and that a first one has saved.

    It is resumed, since the CLI begins no second session under an id that is there. What the first process has forked it from plays no
    part any more. Without a `session_id` they are the options themselves; so they are with `isolated_config`, whose sessions go with
    their process.
    """
    if options.session_id is None or options.isolated_config:
        return options
    return msgspec.structs.replace(
        options,
        resume=options.session_id,
        session_id=None,
        fork_session=False,
        continue_conversation=False,
        resume_session_at=None,
        resume_drops_turn=None,
    )


def find_transcript(session_id: str, *, env: Mapping[str, str], cwd: str | os.PathLike[str] | None = None) -> Path | None:
    """The file in which the CLI keeps this session; None when there is none yet, or none that can be seen from here.

    A CLI with the environment `env` that works in `cwd` (None: this process's) makes it with the first prompt, be it a slash command,
    and refuses to begin a session whose file is there: `Session ID … is already in use.` It looks at the sessions of that working
    directory only. (CLI 2.1.329, real.)
    """
    home = env.get("HOME")
    configuration = env.get("CLAUDE_CONFIG_DIR") or (home and Path(home, ".claude"))
    if not configuration:
        return None
    name = re.sub(r"[^A-Za-z0-9]", "-", os.path.realpath(cwd or "."))
    try:
        for folder in Path(configuration, "projects").iterdir():
            is_it = folder.name == name or (len(name) > _WHOLE_NAME and folder.name.startswith(name[:_WHOLE_NAME]))
            if is_it and (transcript := folder / f"{session_id}.jsonl").exists():
                return transcript
    except OSError:
        return None  # nothing was ever saved, or somebody else's home
    return None
