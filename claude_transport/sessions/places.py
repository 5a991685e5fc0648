"""Where the CLI keeps its sessions: the projects of its configuration directory, and the worktrees of one repository.

A session is the file `projects/<project key>/<session id>.jsonl`; its subagents are below the directory of the same name without `.jsonl`.
`docs/reference/sessions.md` shows the tree. This module finds files and reads none, except those that name the worktrees of git.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from claude_transport.errors import ConfigurationError, SessionArgumentError, SessionNotFound

Directory = str | os.PathLike[str] | None

AT_ONCE: Final[int] = sum(vars(os).get(name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags with which a file is opened: a pipe is not waited for, and Windows, which has only the last one, changes no byte."""

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NO_LETTER_OR_DIGIT: Final = re.compile(r"[^a-zA-Z0-9]")
_WHOLE_NAME: Final = 200  # characters of a path that its project key holds; a hash stands for the rest
_BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_MAX_GIT_FILE: Final = 64 * 2**10


def is_session_id(text: object) -> bool:
    """Tell whether `text` is the id of a session: a UUID with its four hyphens."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def check_id(text: str, *, argument: str = "session_id") -> None:
    """Refuse what is no UUID. An id becomes part of a path, so nothing else may pass."""
    if not is_session_id(text):
        raise SessionArgumentError(
            f"{argument} is {text!r}, and not a UUID such as 550e8400-e29b-41d4-a716-446655440000", argument=argument
        )


def project_key_for_directory(directory: Directory = None) -> str:
    """Return the name under which the CLI files the sessions of a directory; without one, of the current working directory.

    It is the real path of the directory, with a hyphen for all that is no ASCII letter or digit. It is cut after 200 characters, and a cut
    one ends in a hash of the whole path.
    """
    return _key(real_path(directory if directory is not None else "."))


def configuration_directory() -> Path:
    """Return the configuration directory of the CLI: `CLAUDE_CONFIG_DIR`, or `.claude` in the home directory."""
    chosen = os.environ.get("CLAUDE_CONFIG_DIR")
    try:
        return Path(unicodedata.normalize("NFC", chosen or str(Path.home() / ".claude")))
    except RuntimeError as error:
        what = "there is no home directory to look for sessions in; set CLAUDE_CONFIG_DIR to the configuration directory of the CLI"
        raise ConfigurationError(what, option="CLAUDE_CONFIG_DIR") from error


def all_projects() -> list[Path]:
    """Return the directories of all projects, in the order of the file system. Without a readable directory of projects there is none."""
    try:
        with os.scandir(configuration_directory() / "projects") as entries:
            return [Path(entry.path) for entry in entries if is_directory(entry.path)]
    except OSError:
        return []  # the CLI has never run here, or its files belong to another user


def read_at(descriptor: int, count: int, position: int) -> bytes:
    """Read bytes of a file at a position, as `os.pread()` does where there is one."""
    os.lseek(descriptor, position, os.SEEK_SET)
    return os.read(descriptor, count)


def is_directory(path: str | os.PathLike[str]) -> bool:
    """Tell whether there is a directory at `path`. There is none where a name is too long, or where a link leads to itself."""
    return os.path.isdir(path)  # noqa: PTH112 - `Path.is_dir()` raises what the system says


def real_path(directory: str | os.PathLike[str]) -> str:
    """Return the path by which the CLI knows a directory: without links, and in one form of Unicode (NFC)."""
    try:
        return unicodedata.normalize("NFC", os.path.realpath(os.fspath(directory)))
    except OSError:
        return unicodedata.normalize("NFC", os.fspath(directory))
    except (TypeError, ValueError) as error:  # no path, or a null character in it
        raise SessionArgumentError(f"directory is {directory!r}, which cannot be a path: {error}", argument="directory") from error


def worktrees_of(path: str) -> list[str]:
    """Return the paths of all worktrees of the repository around `path`, the main one first, as `git worktree list` would.

    Git's own files say it, so no process is started for it.
    """
    common = _git_directory(Path(path))
    if common is None:
        return []
    main = str(common.parent if common.name == ".git" else common)
    try:
        with os.scandir(common / "worktrees") as entries:
            links = [(Path(entry.path), _first_line(Path(entry.path, "gitdir"))) for entry in entries]
    except OSError:
        links = []
    linked = sorted(os.path.normpath(home / link).removesuffix("/.git") for home, link in links if link)
    return [unicodedata.normalize("NFC", worktree) for worktree in (main, *linked)]


def existing_projects(paths: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Yield the directory of the project of each real path, and the path, where there is such a project."""
    for path in paths:
        project = _project(path)
        if project is not None:
            yield project, path


def candidates(name: str, directory: Directory) -> Iterator[tuple[Path, str | None]]:
    """Yield where a session's file `name` may be, each with the path of its project if `directory` was given. Most are not there."""
    if directory:
        own = real_path(directory)
        for project, path in existing_projects([own]):
            yield project / name, path
        for project, path in existing_projects(worktree for worktree in worktrees_of(own) if worktree != own):
            yield project / name, path
    else:
        for project in all_projects():
            yield project / name, None


def find_session(session_id: str, directory: Directory) -> Path:
    """Return the file of a session.

    Raises:
        SessionArgumentError: the id is no UUID, or the directory no path.
        SessionNotFound: no project has a file for it with anything in it.
    """
    path = seek_session(session_id, directory)
    if path is None:
        where = f"among the sessions of {os.fspath(directory)}" if directory else f"in {configuration_directory() / 'projects'}"
        raise SessionNotFound(f"there is no session {session_id} {where}; `list_sessions()` returns what there is", session_id=session_id)
    return path


def seek_session(session_id: str, directory: Directory) -> Path | None:
    """Return the file of a session, or None. An empty file counts as none, and so does whatever is no file."""
    check_id(session_id)
    for path, _ in candidates(f"{session_id}.jsonl", directory):
        try:
            found = path.stat()
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_size:
            return path
    return None


def _key(path: str) -> str:
    name = _NO_LETTER_OR_DIGIT.sub("-", path)
    return name if len(name) <= _WHOLE_NAME else f"{name[:_WHOLE_NAME]}-{_hash(path)}"


def _hash(text: str) -> str:
    """Return the hash that ends a cut project key: h = 31·h + letter in 32 bits with a sign, its absolute value to base 36."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    value = min(value, 2**32 - value)
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = _BASE_36[digit] + digits
    return digits or "0"


def _project(path: str) -> Path | None:
    """Return the directory of the project with this real path, if there is one.

    The CLI hashes a long path otherwise than its SDKs do, so a cut name is also found by its beginning.
    """
    key = _key(path)
    exact = configuration_directory() / "projects" / key
    if is_directory(exact):
        return exact
    if len(key) <= _WHOLE_NAME:
        return None
    return next((project for project in all_projects() if project.name.startswith(key[: _WHOLE_NAME + 1])), None)


def _git_directory(path: Path) -> Path | None:
    """Return the directory that all worktrees of the repository around `path` share."""
    for folder in (path, *path.parents):
        git = folder / ".git"
        if is_directory(git):
            return git
        link = _first_line(git)
        if link.startswith("gitdir: "):
            own = Path(os.path.normpath(folder / link.removeprefix("gitdir: ")))
            shared = _first_line(own / "commondir")
            return Path(os.path.normpath(own / shared)) if shared else own
    return None


def _first_line(path: Path) -> str:
    """Return the first line of a small file of git, or nothing when it cannot be read."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return os.fsdecode(file.read(_MAX_GIT_FILE).partition(b"\n")[0]).strip()
    except OSError:
        return ""
