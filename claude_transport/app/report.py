"""What the doctor found out, as data: names and paths, never a secret. The JSON of `doctor --json` is this, field by field."""

from __future__ import annotations

import msgspec

from claude_transport.app.failures import describe_failure, hints_for, remedy_for, told
from claude_transport.app.path_choice import PathFinding
from claude_transport.errors import ClaudeTransportError, ProcessError
from claude_transport.launch.credentials import CredentialReport


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One error: its class, code and category, what happened, what to do. `exit_code` and `signal` are those of a dead child."""

    type: str
    code: str
    category: str
    message: str
    remedy: str
    retryable: bool = False
    exit_code: int | None = None
    signal: int | None = None
    details: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The description of an exception."""
        error = told(error)
        known = error if isinstance(error, ClaudeTransportError) else ClaudeTransportError(code="internal", category="internal")
        remedy = remedy_for(error)
        return cls(
            type=type(error).__name__,
            code=known.code,
            category=known.category,
            retryable=known.retryable,
            message=describe_failure(error),
            remedy=remedy,
            exit_code=error.exit_code if isinstance(error, ProcessError) else None,
            signal=error.signal if isinstance(error, ProcessError) else None,
            details=tuple(line for line in hints_for(error) if line != remedy),
        )


class CLIFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The binary that would run, how it was found, and every place that was looked at, in order.

    `version` is None when neither the files around the binary nor a test run told it. `version_note` compares it with the
    version this library was tested against, `tested_version`.
    """

    path: str | None = None
    source: str | None = None
    searched: tuple[str, ...] = ()
    version: str | None = None
    tested_version: str = ""
    version_note: str = ""
    error: Failure | None = None


class EnvironmentFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The environment a session would have: how many variables it inherits, which are taken away and why, which are added.

    `relevant` are the inherited names that claude itself looks at. No value of any variable is here.
    """

    inherited: int
    relevant: tuple[str, ...]
    removed: dict[str, str]
    added: dict[str, str]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the test run, and how many milliseconds it took."""

    name: str
    ms: float


class TestRun(msgspec.Struct, frozen=True, kw_only=True):
    """A session from its spawn to its close. `against` is `claude` or `simulated`; `error` is None when all of it worked."""

    __test__ = False  # pytest: this is no test class

    ok: bool
    against: str
    steps: tuple[Step, ...] = ()
    version: str | None = None
    error: Failure | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `exit_code`: 0 what was tried works, 1 something does not, 2 there is no claude.

    `ready` goes beyond `ok`: it was the real claude that was tried, and a credential for real prompts was found.
    """

    ok: bool
    ready: bool
    exit_code: int
    version: str
    python: str
    platform: str
    backend: str
    cli: CLIFinding
    credential: CredentialReport
    paths: PathFinding | None
    environment: EnvironmentFinding
    test_run: TestRun | None


def exit_code_for(cli: CLIFinding, test_run: TestRun | None) -> int:
    """The doctor's exit code. A simulated run needs no claude, so that its absence is only noted."""
    simulated = test_run is not None and test_run.against == "simulated"
    if cli.error is not None and not simulated:
        return 2
    return 0 if test_run is not None and test_run.ok else 1


def is_ready(credential: CredentialReport, test_run: TestRun | None) -> bool:
    """Whether a real prompt has all it needs, as far as can be seen without sending one: a claude that works, and a credential."""
    return test_run is not None and test_run.ok and test_run.against == "claude" and credential.winner != "none"
