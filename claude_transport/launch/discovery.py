"""Finds the `claude` to run, and lists every place that was looked at. Also tells its version, and notices when it is replaced.

The order, and the reasons:

1. `explicit` (the option `cli_path`), then the variable `CLAUDE_CLI_PATH`: an explicit choice. A path that does not work is an error, and
the search ends, because a service must not quietly run another version.
2. `PATH`: the `claude` that typing `claude` starts. Its user logged in with it, updates it and configures it.
3. The binary inside an installed `claude_agent_sdk`: complete, matching and found without importing that package. It comes after `PATH`,
because a dependency may have installed it, and the user did not choose it.
4. Well-known places, last: a program started from a desktop has a short `PATH`, and older installers left binaries there.

`find_cli` only looks at files. `ask_cli_version` may run `claude --version`. `CLIPin` remembers what was started.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from claude_transport.errors import CLINotFoundError, ConfigurationError, NotExecutableError, warn_caller
from claude_transport.launch import windows
from claude_transport.loggers import logger_for
from claude_transport.text.printable import printable

if TYPE_CHECKING:
    from subprocess import Popen

    from claude_transport.platform.jobs import Job

PATH_VARIABLE: Final = "CLAUDE_CLI_PATH"

ADVICE: Final = (
    "Install Claude Code (https://code.claude.com/docs/en/setup), or `pip install claude-agent-sdk`, whose wheels carry the CLI; "
    f"or point the option cli_path or the variable {PATH_VARIABLE} at the binary."
)

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+[^\s)]*")
_PLATFORM: Final = re.compile(r"-(?:linux|darwin|win32)-(?:x64|arm64)")  # in the versions of npm packages that hold one binary


class CLI(msgspec.Struct, frozen=True):
    """Names a `claude` binary that `find_cli` found.

    `path` is the path of the binary. `source` says how it was found: `explicit path`, `CLAUDE_CLI_PATH`, `PATH`, `claude_agent_sdk` or
    `well-known place`. `searched` lists every place that was looked at, in order, each as a text with the outcome.
    """

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
    """Find the `claude` binary to run, and return its path and every place that was looked at. Starts no process.

    The first hit counts: `explicit`, the variable `CLAUDE_CLI_PATH`, `PATH`, an installed `claude_agent_sdk`, well-known places. When one
    of the first two is set and does not work, the search ends with an error.

    Args:
        explicit: the path of the binary. A name without a directory is looked up on `PATH`.
        env: the environment with `CLAUDE_CLI_PATH` and `PATH`; by default that of this process.
        home: the home directory for the well-known places; by default `HOME` of `env`.
        bundled: the directory to look in for the binary of `claude_agent_sdk`; by default that of the installed package.
        platform: a value as in `sys.platform`; it decides about names and places.

    Raises:
        CLINotFoundError: there is no binary. `searched` of the error lists every place.
        NotExecutableError: the explicitly chosen file exists, but cannot be executed.
        ConfigurationError: `explicit` is no path.
    """
    env = os.environ if env is None else env
    chosen = find_chosen(explicit, option="cli_path", env=env, variable=PATH_VARIABLE, platform=platform)
    if chosen is not None:
        return chosen
    bundled = find_bundled_directory() if bundled is None else Path(bundled)
    home = home_of(env, home, platform=platform)
    return find_first("claude", _candidates(env, home, bundled, platform), advice=ADVICE, platform=platform)


def find_chosen(
    explicit: str | PathLike[str] | None, *, option: str, env: Mapping[str, str], variable: str, platform: str = sys.platform
) -> CLI | None:
    """Return the binary that `explicit`, or else `variable` of `env`, names; None when neither is set.

    A path that does not work raises `CLINotFoundError` or `NotExecutableError`: nothing else is tried. What is no path raises a
    `ConfigurationError` that names `option`.
    """
    if not (explicit is None or isinstance(explicit, str | PathLike)):
        raise ConfigurationError(f"{option} is a path, not {type(explicit).__name__}; give the path of the binary as a str", option=option)
    for chosen, source in ((explicit, "explicit path"), (env.get(variable) or None, variable)):
        if chosen is not None:
            return _chosen(os.fspath(chosen), source, option if source == "explicit path" else variable, env, platform)
    return None


def find_first(name: str, candidates: Iterable[tuple[str, Path]], *, advice: str, platform: str = sys.platform) -> CLI:
    """Return the first of the `candidates`, each a source and a path, that can be run. A path that comes twice is looked at once.

    `name` is that of the program, and `advice` says how to get it; both are for the message of the `CLINotFoundError` that is raised when
    none can be run. Its `searched` and a note list all places.
    """
    searched: list[str] = []
    known: set[Path] = set()
    for source, path in candidates:
        if path in known:
            continue
        known.add(path)
        outcome = _outcome(path, platform)
        searched.append(f"{source}: {path} ({outcome})")
        if outcome == "found":
            return CLI(str(path), source, tuple(searched))
    missing = CLINotFoundError(f"no {name} was found in {len(searched)} places. {advice}", searched=searched, advice=advice)
    missing.add_note("looked at:\n  " + "\n  ".join(map(printable, searched)))
    raise missing


def find_bundled_directory() -> Path | None:
    """Find the directory where an installed `claude_agent_sdk` keeps its binary, or None. The package is not imported."""
    try:
        spec = importlib.util.find_spec("claude_agent_sdk")
    except (ImportError, ValueError):  # a broken or half-removed installation counts as none
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "_bundled"


def _chosen(chosen: str, source: str, chooser: str, env: Mapping[str, str], platform: str) -> CLI:
    """Return the binary that `chooser`, an option or a variable, names, or raise. Nothing else is tried."""
    # usual, and without a Path, which costs as much as a call of the system
    if chosen == os.path.normpath(chosen) and os.path.isabs(chosen) and os.path.isfile(chosen) and os.access(chosen, os.X_OK):  # noqa: PTH113, PTH117
        return CLI(chosen, source, (f"{source}: {chosen} (found)",))
    if chosen and Path(chosen).name == chosen:
        paths = [directory / chosen for directory in path_directories(env, platform)]
    else:
        paths = [Path(chosen).absolute()]  # a relative one would be looked for in the child's working directory when it is spawned
    searched = []
    for path in paths:
        outcome = _outcome(path, platform)
        searched.append(f"{source}: {path} ({outcome})")
        if outcome == "found":
            return CLI(str(path), source, tuple(searched))
        if outcome == "not executable":
            raise NotExecutableError(
                f"{path}, chosen by {chooser}, is not executable. Make it executable (chmod +x), or name another program.", path=str(path)
            )
    advice = f"Correct {chooser}, or leave it out, so that the program is searched for."
    what = f"is in none of the {len(paths)} directories on PATH" if paths else "cannot be found: there is no absolute directory on PATH"
    if len(paths) == 1:
        outcome = _outcome(paths[0], platform)
        what = {"not there": "does not exist", "a directory": "is a directory"}.get(outcome, outcome)
    raise CLINotFoundError(f"{chooser} names {chosen!r}, which {what}. {advice}", searched=searched, advice=advice)


def _candidates(env: Mapping[str, str], home: Path | None, bundled: Path | None, platform: str) -> Iterator[tuple[str, Path]]:
    names = windows.program_names(platform)
    for directory in path_directories(env, platform):
        for name in names:
            yield "PATH", directory / name
    if bundled is not None:
        yield "claude_agent_sdk", bundled / names[0]
    for directory in _well_known(env, home, platform):
        for name in names:
            yield "well-known place", directory / name


def path_directories(env: Mapping[str, str], platform: str) -> list[Path]:
    """Return the directories of `PATH`. Relative and empty entries mean the working directory, where anyone may write, and are left out."""
    if windows.is_windows(platform):
        entries = [entry.strip('"') for entry in windows.variable(env, "PATH").split(";")]
    else:
        entries = env.get("PATH", "").split(":")
    return [Path(entry) for entry in entries if Path(entry).is_absolute()]


def _well_known(env: Mapping[str, str], home: Path | None, platform: str) -> list[Path]:
    places: list[Path] = []
    if home is not None:
        places += [home / ".local/bin", home / ".claude/local"]
    if windows.is_windows(platform):
        for variable, below in (("LOCALAPPDATA", "Programs/claude"), ("APPDATA", "npm")):
            if found := windows.variable(env, variable):
                places.append(Path(found) / below)
        return places
    if home is not None:
        places += [home / below for below in (".npm-global/bin", "node_modules/.bin", ".yarn/bin", ".bun/bin", ".volta/bin")]
    if env.get("NPM_CONFIG_PREFIX"):
        places.append(Path(env["NPM_CONFIG_PREFIX"]) / "bin")
    return [*places, Path("/usr/local/bin"), Path("/opt/homebrew/bin"), Path("/home/linuxbrew/.linuxbrew/bin")]


def home_of(env: Mapping[str, str], home: str | PathLike[str] | None = None, *, platform: str = sys.platform) -> Path | None:
    """Return the home directory for the well-known places: `home`, or else that of `env`; None when it is not known."""
    if home is not None:
        return Path(home)
    found = windows.home_folder(env, platform=platform)
    return Path(found) if found else None


def _outcome(path: Path, platform: str) -> str:
    """Return `found`, or why not. Never raises: an unreadable directory counts as a place without the file."""
    try:
        if not path.is_file():
            return "a directory" if path.is_dir() else "not there"
        return "found" if windows.is_windows(platform) or os.access(path, os.X_OK) else "not executable"
    except (OSError, ValueError) as error:
        return f"cannot be looked at: {type(error).__name__}"


# The version.

CLIState: TypeAlias = tuple[str, int, int]
"""One state of a binary: its path, the time of its modification (in nanoseconds), and its size in bytes."""

_known_versions: dict[CLIState, str | None] = {}


def read_cli_version(cli: CLI | str | PathLike[str]) -> str | None:
    """Return the version of a binary (`"2.1.329"`) from the files around it, or None. Starts nothing.

    It looks at a `claude.version` beside it or a `_cli_version.py` around it, which wheels of the official SDK have. It also looks at the
    version in its resolved name (native installer), and at the `package.json` of npm. The answer is kept until the file changes.
    `remember_cli_version` adds what a running CLI reported.
    """
    return version_in_state(read_cli_state(cli))


def version_in_state(state: CLIState | None) -> str | None:
    """Return the version of the binary in this state, as `read_cli_version` does, without another look at the binary."""
    if state is None:
        return None
    if state not in _known_versions:
        _known_versions[state] = _version_from_files(Path(state[0]))
    return _known_versions[state]


def is_cli_known(path: object) -> bool:
    """Return True when `path` is the absolute path of a binary that was looked at in its present state: another look only asks for that."""
    return isinstance(path, (str, PathLike)) and os.path.isabs(path) and read_cli_state(path) in _known_versions  # noqa: PTH117 - as above


def remember_cli_version(cli: CLI | str | PathLike[str], version: str) -> None:
    """Keep the version that a running CLI reported (`system/init`, `initialize`) for as long as its file does not change."""
    key = read_cli_state(cli)
    if key is not None:
        _known_versions[key] = version


def read_cli_state(cli: CLI | str | PathLike[str]) -> CLIState | None:
    """Read the state of the binary, which changes when it is replaced; None when it cannot be read."""
    path = cli.path if isinstance(cli, CLI) else os.fspath(cli)
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path costs as much as the call, and each session asks
    except (OSError, ValueError):
        return None
    return (path, status.st_mtime_ns, status.st_size)


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
    if "version" in (package := _read_package(real.parent.with_name(f"{real.stem}-package.json"))):  # beside a native binary of npm
        return str(package["version"])
    for directory in list(real.parents)[:4]:
        if _is_of((package := _read_package(directory / "package.json")), {path.stem, real.stem}, str(real.relative_to(directory))):
            return _PLATFORM.sub("", str(package["version"])) if "version" in package else None
    return None


def _is_of(package: Mapping[str, Any], programs: Iterable[str], file: str) -> bool:
    """Whether this is the package of npm that brings the program: it names the file as its program, or is named like it.

    A package is not that of a project in whose folder the program happens to be.
    """
    programs_of_it = package.get("bin")
    files = programs_of_it.values() if isinstance(programs_of_it, Mapping) else (programs_of_it,)
    if file in (name.removeprefix("./") for name in files if isinstance(name, str)):
        return True
    scope, _, name = str(package.get("name")).partition("/")
    return scope.startswith("@") and any(name.startswith(program) for program in programs)


def _read_package(path: Path) -> dict[str, Any]:
    """Return the JSON object in this file; empty when there is none."""
    try:
        package = json.loads(_read(path) or "null")
    except ValueError:
        return {}
    return package if isinstance(package, dict) else {}


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        return None


# The version that no file tells: the binary is asked once for each of its states.


PROBE_TIMEOUT: Final = 5.0
"""Seconds that `claude --version` gets. It takes 10 ms (docs/reference/protocol.md#timing), and 300 ms from a slow disk."""

_KILL_TIMEOUT: Final = 1.0  # seconds for a killed process to be gone
_LONGEST_ANSWER: Final = 200  # bytes; "2.1.330 (Claude Code)" has 21
_NUMBER: Final = rb"(\d{1,9}\.\d{1,9}\.\d{1,9}(?:-[\w.]{1,40})?)"
_ANSWER: Final = re.compile(_NUMBER + rb"\s+\(Claude Code\)|^[a-z]{1,20}-cli " + _NUMBER, re.MULTILINE)

_asked: Final[set[CLIState]] = set()
_lock: Final = threading.Lock()


def ask_cli_version(cli: CLI | str | PathLike[str], *, env: Mapping[str, str] | None = None) -> str | None:
    """Return the version of a binary: from `read_cli_version`, else from `claude --version`; None when neither tells.

    It blocks for at most `PROBE_TIMEOUT` seconds, so call it in a worker thread. Each state of a binary (path, time of modification, size)
    is asked once in this process, whatever it answers. `env` is the environment of that process.
    """
    known = read_cli_version(cli)
    state = read_cli_state(cli)
    if known is not None or state is None:
        return known
    with _lock:  # of two threads, the second waits for the answer of the first
        if state not in _asked:
            _asked.add(state)
            version = _run(state[0], env)
            if version is not None and read_cli_state(cli) == state:
                remember_cli_version(cli, version)
    return read_cli_version(cli)


def _run(path: str, env: Mapping[str, str] | None) -> str | None:
    """Run the command. The answer goes through a file, because a grandchild that holds a pipe open could keep its reader waiting."""
    import subprocess  # most processes need neither
    import tempfile

    with tempfile.TemporaryFile() as output, contextlib.ExitStack() as at_end:
        try:
            job = _job(at_end)
            child = subprocess.Popen(
                [path, "--version"],
                env=None if env is None else dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                creationflags=0 if job is None else windows.creation_flags("win32") | windows.CREATE_SUSPENDED,
            )
        except (OSError, ValueError):
            return None  # the connect will report what is wrong with it
        try:
            if job is not None:
                job.adopt(child.pid)
            child.wait(PROBE_TIMEOUT)
        except (OSError, subprocess.TimeoutExpired):
            _kill_tree(child, job)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_KILL_TIMEOUT)
            return None
        output.seek(0)
        match = _ANSWER.search(output.read(_LONGEST_ANSWER))
    return None if match is None else (match[1] or match[2]).decode()


def _job(at_end: contextlib.ExitStack) -> Job | None:
    """Make the job of a child on Windows, whose end ends what the child has started. None on other systems, which have groups."""
    if not windows.needs_job_object(sys.platform):
        return None
    from claude_transport.platform.jobs import Job

    job = Job()
    at_end.callback(job.close)
    return job


def _kill_tree(child: Popen[bytes], job: Job | None) -> None:
    """Kill the child and everything that it started. The child was not collected yet, so its process id is still its own."""
    with contextlib.suppress(OSError):
        if job is not None:
            job.terminate()
        else:
            os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):  # where that failed, or the child is in no job yet
        child.kill()


# A CLI that stays the same: what each session was started with, and a report when that changes.


logger: logging.Logger = logger_for(__name__)


class PinnedCLI(msgspec.Struct, frozen=True, kw_only=True):
    """The binary of a session: its path, its version when the files around it tell, and the time and size of the file."""

    path: str
    version: str | None
    modified_ns: int
    size: int


class CLIChange(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a start with the option `pin_cli` found another CLI than the last start with the same `cli_path`.

    `before` is the binary at the last start, `now` the one at this start. `str(change)` is a sentence for a log. Listeners of
    `on_cli_change` receive it.
    """

    before: PinnedCLI
    now: PinnedCLI

    def __str__(self) -> str:
        if self.before.path != self.now.path:
            return f"claude was {_shown(self.before)} at {self.before.path} and is {_shown(self.now)} at {self.now.path}"
        if None in (self.before.version, self.now.version):
            return f"claude at {self.now.path} was replaced by another file"
        return f"claude at {self.now.path} was {_shown(self.before)} and is {_shown(self.now)}"


class CLIPin:
    """Remembers what was started last for each `cli_path`. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pinned: dict[str | None, PinnedCLI] = {}

    def note(self, cli: CLI, *, asked: str | PathLike[str] | None = None) -> CLIChange | None:
        """Record the binary that is about to start. Returns the change since the last one; None for the first one and for the same one.

        `asked` is the option `cli_path`: two different paths are two CLIs, not one that changed. A file that was only touched is the same
        CLI, if its version is known. A file that no longer exists is left to the spawn, which reports it.
        """
        try:
            status = os.stat(cli.path)  # noqa: PTH116 - of what is started, whatever made the path
        except OSError:
            return None
        now = PinnedCLI(path=cli.path, version=read_cli_version(cli), modified_ns=status.st_mtime_ns, size=status.st_size)
        with self._lock:
            before = self._pinned.get(key := None if asked is None else os.fspath(asked))
            self._pinned[key] = now
        return None if before is None or _is_same(before, now) else CLIChange(before=before, now=now)


_of_this_process: Final = CLIPin()
_listeners: Final[list[Callable[[CLIChange], object]]] = []


def pin_cli(cli: CLI, *, asked: str | PathLike[str] | None = None) -> CLIChange | None:
    """Record a start in this process. A change is reported to every listener, and a `ClaudeTransportWarning` tells it."""
    change = _of_this_process.note(cli, asked=asked)
    if change is not None:
        for listener in tuple(_listeners):
            try:
                listener(change)
            except Exception:
                logger.exception("a listener for changes of the CLI failed; the session starts anyway")
        warn_caller(f"{change}, although the option pin_cli expects the same one")
    return change


def on_cli_change(listener: Callable[[CLIChange], object]) -> Callable[[], None]:
    """Register `listener`, which is called when a start with the option `pin_cli` finds another CLI than the last such start.

    Only starts in this process with the same `cli_path` are compared. The session starts anyway. `listener(change)` gets a `CLIChange`. It
    runs on the event loop that starts the process, and must not block; what it raises is logged. Returns a function that removes the
    listener.
    """
    _listeners.append(listener)

    def stop() -> None:
        if listener in _listeners:
            _listeners.remove(listener)

    return stop


def _is_same(before: PinnedCLI, now: PinnedCLI) -> bool:
    if before.path != now.path:
        return False
    if before.version is not None and now.version is not None:
        return before.version == now.version
    return before == now


def _shown(cli: PinnedCLI) -> str:
    return cli.version or "of unknown version"
