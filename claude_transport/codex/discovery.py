"""Finds the `codex` to run, and lists every place that was looked at. Starts no process.

The order is that of `find_cli`: an explicit path, the variable `CODEX_CLI_PATH`, `PATH`, well-known places. npm's `codex` is a script for
Node that starts a native binary in the package of the platform. The binary is run directly, so that Node is not needed, signals
reach it, and its process id is that of the child. The working directory is not searched: anyone may have put a `node_modules` there.
`read_cli_version` and `ask_cli_version` tell the version of a binary of Codex, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Final

import msgspec

from claude_transport.launch import windows
from claude_transport.launch.discovery import CLI, find_chosen, find_first, home_of, path_directories

PATH_VARIABLE: Final = "CODEX_CLI_PATH"

ADVICE: Final = (
    "Install Codex (`npm install -g @openai/codex`); or point the option codex_path or the variable "
    f"{PATH_VARIABLE} at the binary, or at npm's `codex`."
)

_PACKAGES: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("linux", "x64"): ("codex-linux-x64", "x86_64-unknown-linux-musl"),
    ("linux", "arm64"): ("codex-linux-arm64", "aarch64-unknown-linux-musl"),
    ("darwin", "x64"): ("codex-darwin-x64", "x86_64-apple-darwin"),
    ("darwin", "arm64"): ("codex-darwin-arm64", "aarch64-apple-darwin"),
    ("win32", "x64"): ("codex-win32-x64", "x86_64-pc-windows-msvc"),
    ("win32", "arm64"): ("codex-win32-arm64", "aarch64-pc-windows-msvc"),
}
"""npm's package with the binary for each system, and the directory in it."""
_MACHINES: Final[Mapping[str, str]] = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_SCRIPT: Final = "codex.js"  # what npm's `codex` is a link to


def find_codex(
    explicit: str | PathLike[str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    home: str | PathLike[str] | None = None,
    platform: str = sys.platform,
    machine: str | None = None,
) -> CLI:
    """Find the `codex` binary to run, and return its path and every place that was looked at. Starts no process.

    The first hit counts: `explicit`, the variable `CODEX_CLI_PATH`, `PATH`, well-known places. When one of the first two is set and does
    not work, the search ends with an error. Where `codex` is npm's script, the native binary beside it is returned.

    Args:
        explicit: the path of the binary. A name without a directory is looked up on `PATH`.
        env: the environment with `CODEX_CLI_PATH` and `PATH`; by default that of this process.
        home: the home directory for the well-known places; by default `HOME` of `env`.
        platform: a value as in `sys.platform`; it decides about names and places.
        machine: the processor, as `platform.machine()` names it; by default that of this machine.

    Raises:
        CLINotFoundError: there is no binary. `searched` of the error lists every place.
        NotExecutableError: the explicitly chosen file exists, but cannot be executed.
        ConfigurationError: `explicit` is no path.
    """
    env = os.environ if env is None else env
    found = find_chosen(explicit, option="codex_path", env=env, variable=PATH_VARIABLE, platform=platform)
    if found is None:
        home = home_of(env, home, platform=platform)
        found = find_first("codex", _candidates(env, home, platform, machine), advice=ADVICE, platform=platform)
    native = _native_of(Path(found.path), platform, machine)
    return found if native is None else msgspec.structs.replace(found, path=str(native))


def _candidates(env: Mapping[str, str], home: Path | None, platform: str, machine: str | None) -> Iterator[tuple[str, Path]]:
    names = ("codex.exe", "codex.cmd") if windows.is_windows(platform) else ("codex",)
    for directory in path_directories(env, platform):
        for name in names:
            yield "PATH", directory / name
    for directory in _well_known(env, home, platform):
        for name in names:
            yield "well-known place", directory / name
    for modules in _modules(env, home, platform):
        for binary in _binaries(modules / "@openai" / "codex", platform, machine):
            yield "npm", binary


def _well_known(env: Mapping[str, str], home: Path | None, platform: str) -> list[Path]:
    places = [home / ".local/bin"] if home is not None else []
    if windows.is_windows(platform):
        return [*places, *_npm_of_windows(env)]
    if home is not None:
        places += [home / below for below in (".npm-global/bin", "node_modules/.bin", ".yarn/bin", ".bun/bin", ".volta/bin")]
    if env.get("NPM_CONFIG_PREFIX"):
        places.append(Path(env["NPM_CONFIG_PREFIX"]) / "bin")
    return [*places, Path("/usr/local/bin"), Path("/opt/homebrew/bin"), Path("/home/linuxbrew/.linuxbrew/bin")]


def _npm_of_windows(env: Mapping[str, str]) -> list[Path]:
    data = windows.variable(env, "APPDATA")
    return [Path(data) / "npm"] if data else []


def _modules(env: Mapping[str, str], home: Path | None, platform: str) -> list[Path]:
    """Return the directories with npm's packages, for an installation without links to its programs."""
    prefixes = [Path(env["NPM_CONFIG_PREFIX"])] if env.get("NPM_CONFIG_PREFIX") else []
    if windows.is_windows(platform):
        prefixes += _npm_of_windows(env)
        return [prefix / "node_modules" for prefix in prefixes]
    prefixes += [] if home is None else [home / ".npm-global"]
    prefixes += [Path("/usr/local"), Path("/usr"), Path("/opt/homebrew")]
    return [*([] if home is None else [home / "node_modules"]), *(prefix / "lib/node_modules" for prefix in prefixes)]


def _native_of(path: Path, platform: str, machine: str | None) -> Path | None:
    """Return the native binary that npm's script at `path` would start; None when `path` is no such script, or its binary is missing."""
    script = Path(os.path.realpath(path))
    if script.name != _SCRIPT:
        return None
    found = (binary for binary in _binaries(script.parent.parent, platform, machine) if os.access(binary, os.X_OK))
    return next(found, None)


def _binaries(package: Path, platform: str, machine: str | None) -> Iterator[Path]:
    """Yield where the native binary of npm's `package` may be: in the package of the platform below or beside it, or in itself."""
    known = _PACKAGES.get((platform, _MACHINES.get((machine or _this_machine()).lower(), "")))
    if known is None:
        return
    name, target = known
    program = "codex.exe" if windows.is_windows(platform) else "codex"
    for vendor in (package / "node_modules" / "@openai" / name / "vendor", package.parent / name / "vendor", package / "vendor"):
        for folder in ("bin", "codex"):  # "codex": older packages
            yield vendor / target / folder / program


def _this_machine() -> str:
    import platform  # most sessions name their binary, or find no npm

    return platform.machine()
