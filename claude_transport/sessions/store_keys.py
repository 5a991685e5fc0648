"""Keys of transcripts in stores: from the path of a transcript file, and back to a path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath, PurePosixPath
from typing import Any, Final

from claude_transport.errors import UsageError
from claude_transport.launch.session_store import SessionKey
from claude_transport.text.printable import is_encodable, printable

_SUFFIX: Final = ".jsonl"
_SHOWN: Final = 60
"""Characters of a name in an error."""


def key_of_transcript(path: str | os.PathLike[str]) -> SessionKey | None:
    """Return the key of the transcript that the CLI keeps in the file `path`; None for a file that is no transcript.

    The path is `…/projects/<project>/<session>.jsonl`, and `…/projects/<project>/<session>/<subpath>.jsonl` for a subagent.
    """
    parts = PurePath(path).parts
    places = [index for index, part in enumerate(parts) if part == "projects"]
    if not places or not parts[-1].endswith(_SUFFIX):
        return None
    below = list(parts[places[-1] + 1 :])
    below[-1:] = [below[-1][: -len(_SUFFIX)]] if below else []
    if len(below) < 2 or not all(below):
        return None
    key: SessionKey = {"project_key": below[0], "session_id": below[1]}
    if len(below) > 2:
        key["subpath"] = "/".join(below[2:])
    return key


def relative_transcript(session_id: str, subpath: str | None) -> PurePosixPath | None:
    """Return where a transcript belongs below the folder of its project; None for a name that would leave that folder."""
    names = [session_id, *(subpath.split("/") if subpath is not None else ())]
    for name in names:
        if name in ("", ".", "..") or any(character in name for character in "/\\:\0") or not is_encodable(name):
            return None
    return PurePosixPath(*names[:-1], names[-1] + _SUFFIX)


def checked_key(key: Mapping[str, Any]) -> tuple[str, str, str | None]:
    """Return the parts of a key.

    Raises:
        UsageError: a part is missing, empty or no text.
    """
    subpath = key.get("subpath")
    project, session = (checked_name(key.get(name), name) for name in ("project_key", "session_id"))
    return project, session, None if subpath is None else checked_name(subpath, "subpath")


def checked_name(value: Any, part: str) -> str:
    """Return a part of a key.

    Raises:
        UsageError: it is empty or no text.
    """
    if isinstance(value, str) and value and is_encodable(value):
        return value
    shown = printable(repr(value[:_SHOWN] if isinstance(value, str) else value), at_most=2 * _SHOWN)
    raise UsageError(f"the key of a transcript needs {part} as a text that is not empty, not {shown}")


def shown_place(project: str | None, session: str | None = None) -> str:
    """Return the words by which an error names a session, or a project without one."""
    names = [f"{what} {printable(name, at_most=_SHOWN)}" for what, name in (("session", session), ("project", project)) if name is not None]
    return " of ".join(names)
