"""Which `claude` to run, and everywhere that was looked: files are examined, nothing is started.

The order, and why:

1. `explicit` (the option `cli_path`), then the variable `CLAUDE_CLI_PATH`: somebody decided. A path that does not work is an error, never
   a reason to look further, or a service would quietly run another version than the one it was told to run.
2. `PATH`: the `claude` that typing `claude` starts. It is the one its user logged in with, updates and configures; the seeds' hosts rely on
   it for subscription billing.
3. The binary inside an installed `claude_agent_sdk`: complete and version-matched, and found without importing that package. Behind
   `PATH`, because its presence says that some dependency wanted an SDK, not that the user chose this CLI.
4. Well-known places, last: a program started from a desktop has a short `PATH` (W6), and leftovers of older installers live here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from claude_transport.errors import CLINotFoundError, NotExecutableError
from claude_transport.launch import windows

__all__ = [
    "CLI",
    "PATH_VARIABLE",
    "CLIState",
    "find_bundled_directory",
    "find_cli",
    "read_cli_state",
    "read_cli_version",
    "remember_cli_version",
]

PATH_VARIABLE: Final = "CLAUDE_CLI_PATH"

ADVICE: Final = (
    "Install Claude Code (https://code.claude.com/docs/en/setup), or `pip install claude-agent-sdk`, whose wheels carry the CLI; "
    f"or point the option cli_path or the variable {PATH_VARIABLE} at the binary."
)

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+[^\s)]*")
_NPM_NAME: Final = "@anthropic-ai/claude-code"


class CLI(msgspec.Struct, frozen=True):
    """A binary that was found: its `path`, the `source` that led to it, and every place that was looked at, in order, with the outcome."""

    path: str
    source: str
    searched: tuple[str, ...] = ()


def find_cli(
    explicit: str | PathLike[str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    home: str | PathLike[str] | None = None,
    bundled: str | PathLike[str] | None = None,
    platform: str = sys.platform,
) -> CLI:
    """The CLI to run, by the order in this module's docstring.

    `env` defaults to this process's environment, `home` to its `HOME`, `bundled` to the directory an installed `claude_agent_sdk` keeps its
    binary in. An `explicit` name without a directory is looked up on `PATH`. Raises `CLINotFoundError` with every place in `.searched`, and
    `NotExecutableError` when the chosen file may not be executed.
    """
    env = os.environ if env is None else env
    for chosen, source in ((explicit, "explicit path"), (env.get(PATH_VARIABLE) or None, PATH_VARIABLE)):
        if chosen is not None:
            return _chosen(os.fspath(chosen), source, env, platform)
    bundled = find_bundled_directory() if bundled is None else Path(bundled)
    searched: list[str] = []
    for source, path in _candidates(env, _home(env, home), bundled, platform):
        outcome = _outcome(path, platform)
        searched.append(f"{source}: {path} ({outcome})")
        if outcome == "found":
            return CLI(str(path), source, tuple(searched))
    raise CLINotFoundError(
        f"no claude binary was found in {len(searched)} places. {ADVICE}\nLooked at:\n  " + "\n  ".join(searched),
        searched=searched,
        advice=ADVICE,
    )


def find_bundled_directory() -> Path | None:
    """The directory where an installed `claude_agent_sdk` keeps its binary, or None. The package is not imported."""
    try:
        spec = importlib.util.find_spec("claude_agent_sdk")
    except (ImportError, ValueError):  # a broken or half-removed installation is the same as none
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "_bundled"


def _chosen(chosen: str, source: str, env: Mapping[str, str], platform: str) -> CLI:
    """The binary somebody named, or an error; nothing else is tried."""
    if chosen and Path(chosen).name == chosen:
        paths = [directory / chosen for directory in _path_directories(env, platform)]
    else:
        paths = [Path(chosen).absolute()]  # a relative one would be looked for in the child's working directory when it is spawned
    searched = []
    for path in paths:
        outcome = _outcome(path, platform)
        searched.append(f"{source}: {path} ({outcome})")
        if outcome == "found":
            return CLI(str(path), source, tuple(searched))
        if outcome == "not executable":
            raise NotExecutableError(f"{path}, chosen by {source}, may not be executed", path=str(path))
    advice = f"Correct the {source}, or drop it to let the CLI be looked for."
    places = "; ".join(searched) or "no absolute directory on PATH"
    raise CLINotFoundError(f"the {source} names {chosen!r}, which is not there ({places}). {advice}", searched=searched, advice=advice)


def _candidates(env: Mapping[str, str], home: Path | None, bundled: Path | None, platform: str) -> Iterator[tuple[str, Path]]:
    names = windows.program_names(platform)
    for directory in _path_directories(env, platform):
        for name in names:
            yield "PATH", directory / name
    if bundled is not None:
        yield "claude_agent_sdk", bundled / names[0]
    for directory in _well_known(env, home, platform):
        for name in names:
            yield "well-known place", directory / name


def _path_directories(env: Mapping[str, str], platform: str) -> list[Path]:
    """The directories of `PATH`. Relative and empty entries mean the working directory, which anybody may have written to: left out."""
    separator = ";" if windows.is_windows(platform) else ":"
    return [Path(entry) for entry in env.get("PATH", "").split(separator) if Path(entry).is_absolute()]


def _well_known(env: Mapping[str, str], home: Path | None, platform: str) -> list[Path]:
    places: list[Path] = []
    if home is not None:
        places += [home / ".local/bin", home / ".claude/local"]
    if windows.is_windows(platform):
        for variable, below in (("LOCALAPPDATA", "Programs/claude"), ("APPDATA", "npm")):
            if env.get(variable):
                places.append(Path(env[variable]) / below)
        return places
    if home is not None:
        places += [home / below for below in (".npm-global/bin", "node_modules/.bin", ".yarn/bin", ".bun/bin", ".volta/bin")]
    if env.get("NPM_CONFIG_PREFIX"):
        places.append(Path(env["NPM_CONFIG_PREFIX"]) / "bin")
    return [*places, Path("/usr/local/bin"), Path("/opt/homebrew/bin"), Path("/home/linuxbrew/.linuxbrew/bin")]


def _home(env: Mapping[str, str], home: str | PathLike[str] | None) -> Path | None:
    if home is not None:
        return Path(home)
    found = env.get("HOME") or env.get("USERPROFILE")
    return Path(found) if found else None


def _outcome(path: Path, platform: str) -> str:
    """`found`, or why not. Never raises: an unreadable directory is one more place where it is not."""
    try:
        if not path.is_file():
            return "a directory" if path.is_dir() else "not there"
        return "found" if windows.is_windows(platform) or os.access(path, os.X_OK) else "not executable"
    except (OSError, ValueError) as error:
        return f"cannot be looked at: {type(error).__name__}"


# ------------------------------------------------------------------------------------------------------------- the version

CLIState: TypeAlias = tuple[str, int, int]
"""One state of a binary: its path, when it was modified (in nanoseconds), and its size in bytes."""

_known_versions: dict[CLIState, str | None] = {}


def read_cli_version(cli: CLI | str | PathLike[str]) -> str | None:
    """The version of a binary (`"2.1.329"`) from the files around it, or None; nothing is started (P2).

    Looked at: a `claude.version` beside it, or a `_cli_version.py` in the package around it (the official SDK's wheels, newer and older),
    the version in its own resolved name (the native installer), the `package.json` of npm. The answer is kept until the file changes;
    `remember_cli_version` adds what a running CLI said of itself.
    """
    path = Path(cli.path if isinstance(cli, CLI) else cli)
    key = read_cli_state(path)
    if key is None:
        return None
    if key not in _known_versions:
        _known_versions[key] = _version_from_files(path)
    return _known_versions[key]


def remember_cli_version(cli: CLI | str | PathLike[str], version: str) -> None:
    """Keep the version that a running CLI reported (`system/init`, `initialize`) for as long as its file does not change."""
    key = read_cli_state(cli)
    if key is not None:
        _known_versions[key] = version


def read_cli_state(cli: CLI | str | PathLike[str]) -> CLIState | None:
    """Read the state of the binary, which changes when it is replaced; None when it cannot be looked at."""
    path = Path(cli.path if isinstance(cli, CLI) else cli)
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (str(path), status.st_mtime_ns, status.st_size)


def _version_from_files(path: Path) -> str | None:
    real = Path(os.path.realpath(path))
    for beside in (path.with_name("claude.version"), real.with_name("claude.version")):
        text = _read(beside)
        if text is not None and (match := _VERSION.search(text)):
            return match.group()
    if _VERSION.fullmatch(real.name):
        return real.name
    if path.parent.name == "_bundled" and (match := _VERSION.search(_read(path.parent.with_name("_cli_version.py")) or "")):
        return match.group().rstrip("\"'")
    for directory in list(real.parents)[:3]:
        try:
            package = json.loads(_read(directory / "package.json") or "null")
        except ValueError:
            continue
        if isinstance(package, dict) and package.get("name") == _NPM_NAME:
            return str(package["version"]) if "version" in package else None
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        return None
