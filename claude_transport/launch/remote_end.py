"""What the end of a launched client means: exit codes that are ambiguous, the supervisor's words, what clients say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    CLINotFoundError,
    ConfigurationError,
    ConnectionLost,
    ProcessError,
    WorkingDirectoryError,
)
from claude_transport.launch.launcher import Launcher

_FATAL_SIGNALS: Final = frozenset({4, 6, 7, 8, 9, 11})
"""ILL, ABRT, BUS, FPE, KILL, SEGV. A shell says 128 + signal, and so does a program that catches SIGTERM; of these, none does."""

_LAST_WORDS: Final = 300
"""Characters of standard error that a message repeats."""

_REFUSED_FOR_GOOD: Final[Mapping[str, re.Pattern[str]]] = {
    "docker": re.compile(r"No such container|is not running|executable file not found|permission denied", re.IGNORECASE),
    "podman": re.compile(r"no such container|container state improper|executable file .* not found|permission denied", re.IGNORECASE),
    "kubectl": re.compile(r"\(NotFound\)|\(Forbidden\)|not found in pod|executable file not found|completed pod", re.IGNORECASE),
    "srun": re.compile(r"Invalid (account|partition|job id)|Requested node configuration is not available", re.IGNORECASE),
}
"""What the same command will say again."""

_NOT_LET_IN: Final[Mapping[str, re.Pattern[str]]] = {
    "ssh": re.compile(
        r"Permission denied \(|Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|Too many authentication failures"
    ),
    "kubectl": re.compile(r"Unauthorized|must be logged in to the server"),
}
"""What they say to somebody they do not know, or do not let in."""


def why_not_started(launcher: Launcher, *, exit_code: int | None, signal: int | None, stderr: str) -> ClaudeTransportError:
    """The error for a client that ended before the program was started: nothing was said to it, so trying again is safe."""
    how = _how(exit_code, signal)
    message = f"{_place(launcher)}: {launcher.program} ended with {how} before the program was started there{_last_words(stderr)}"
    if (known := _NOT_LET_IN.get(launcher.name)) is not None and known.search(stderr):
        return AuthenticationError(message)
    permanent = _REFUSED_FOR_GOOD.get(launcher.name)
    hopeless = exit_code in {126, 127} or (permanent is not None and permanent.search(stderr) is not None)
    return CLIConnectionError(message, retryable=not hopeless)


def why_refused(launcher: Launcher, why: str, *, program: str, cwd: str | None) -> ClaudeTransportError:
    """The error for what the supervisor did not want to start."""
    place = _place(launcher)
    kind, _, detail = why.partition(" ")
    if kind == "not-found":
        advice = "Install it there, or give its path there as cli_path."
        return CLINotFoundError(f"{place}: there is no program {program!r}. {advice}", searched=[f"{place}: {program}"], advice=advice)
    if kind == "cwd":
        return WorkingDirectoryError(f"{place}: the working directory {cwd!r} does not exist or cannot be entered", path=program)
    if kind == "environment":
        return ConfigurationError(f'{place}: billing="subscription_strict" refuses to start while {detail} is set there', option="billing")
    return CLIConnectionError(f"{place}: the launch was refused: {why}")


def why_ended(
    launcher: Launcher, *, code: int | None, exit_code: int | None, signal: int | None, stderr: str
) -> ClaudeTransportError | None:
    """The error for how it ended, None when it ended well. `code` is what the supervisor said; `exit_code` and `signal` the client's."""
    if code == 0:
        return None
    if code is None:
        how = f"{launcher.program} ended with {_how(exit_code, signal)}, and nobody said how the program did"
        return ConnectionLost(f"{_place(launcher)}: the connection was lost: {how}{_last_words(stderr)}")
    exit_code, signal = exit_status(code)
    how = _how(exit_code, signal)
    return ProcessError(f"{_place(launcher)}: the program ended with {how}", exit_code=exit_code, signal=signal, stderr_tail=stderr)


def exit_status(code: int) -> tuple[int | None, int | None]:
    """Exit code and signal behind what a shell says of a program; one of the two is None."""
    return (None, code - 128) if code - 128 in _FATAL_SIGNALS else (code, None)


def _place(launcher: Launcher) -> str:
    return launcher.address or launcher.name


def _how(exit_code: int | None, signal: int | None) -> str:
    if signal is not None:
        return f"signal {signal}"
    return "an unknown exit" if exit_code is None else f"exit code {exit_code}"


def _last_words(stderr: str) -> str:
    words = stderr.strip()[-_LAST_WORDS:]
    return f": {words}" if words else ""
