"""`claude-transport doctor`: what would run, who would pay, what the session would see, and whether it works.

`_Doctor` finds things out, in order; `Checkup` tries a claude; `ReportLines` makes text of it, part by part. `DoctorReport` is the JSON of
`--json`, field by field: names and paths, never a secret.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import anyio
import msgspec

from claude_transport.agents.agent import Agent
from claude_transport.agents.registry import LIBRARY_AGENTS, find_agent
from claude_transport.app.clean_world import isolated_options
from claude_transport.app.event_loop import run_interruptibly, run_on
from claude_transport.app.failures import describe_failure, hints_for, remedy_for, told
from claude_transport.app.terminal import Look, TerminalOutput, choose_look, json_for_terminals, visible
from claude_transport.client.query import Query
from claude_transport.completion.readiness import LoginStatus, find_config_dir, preflight, read_login_status, read_user_settings
from claude_transport.completion.resolution import CHOICES, MATRIX, NO_CLI, NO_KEY, NOTHING, TransportChoice
from claude_transport.errors import (
    ClaudeTransportError,
    CLINotFoundError,
    ConnectTimeout,
    MissingResult,
    NotExecutableError,
    ProcessError,
    ProtocolError,
)
from claude_transport.launch.credentials import CredentialReport, describe_credentials
from claude_transport.launch.discovery import find_cli, read_cli_version, remember_cli_version
from claude_transport.launch.environ import build_environment, describe_environment
from claude_transport.launch.features import CLAUDE_RANGE, NEWEST_CLI, SupportedRange, parse_version
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.diagnosis import error_for
from claude_transport.testing import FakeMessagesAPI, replies
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario
from claude_transport.text.printable import printable
from claude_transport.transports.subprocess import SubprocessTransport

TESTED_VERSION: Final = NEWEST_CLI
"""The newest CLI that this library was tested with."""
ANSWER: Final = "The checkup has been answered."


def run(args: SimpleNamespace) -> int:
    """Examine, report on stdout, and return the exit code: 0 the test worked, 1 something does not work, 2 there is no claude.

    With `--broker` it examines that instead: 0 a fleet can run on it, 1 it should not.

    Raises `ConfigurationError` if the home directory is unknown.
    """
    if args.broker is not None:
        from claude_transport.app.doctor_broker import examine

        return run_on(args.backend, lambda: examine(args.broker, as_json=args.json))
    find_config_dir(os.environ)  # raises before anything else is tried
    return run_on(args.backend, lambda: _Doctor(args).examine())


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
        """Describe an exception."""
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
    """The binary that would run, how it was found, and every place that was searched, in order.

    `version` is None if neither the files around the binary nor a test run had it. `version_note` compares it with `tested_version`, the
    version this library was tested with.
    """

    path: str | None = None
    source: str | None = None
    searched: tuple[str, ...] = ()
    version: str | None = None
    tested_version: str = ""
    version_note: str = ""
    error: Failure | None = None


class AgentFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The program of another agent that would run, and who would pay for it. It is not started. Without one, `problem` says so.

    `home` is the directory with its configuration and login. `credential` is what the program would use there.
    """

    path: str | None = None
    source: str | None = None
    searched: tuple[str, ...] = ()
    version: str | None = None
    version_note: str = ""
    home: str | None = None
    credential: CredentialReport | None = None
    problem: str = ""


class PathFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call would go. Most fields have the names of `PreflightReport`.

    `cells` says for each choice which path it takes (`cli`, `api`, None), and the code of its failure, or None.
    """

    ok: bool
    choice: TransportChoice
    kind: str | None
    layer: str | None
    reason: str
    api_key: bool
    cli: bool
    cells: dict[str, tuple[str | None, str | None]]
    credential: str | None
    payer: str
    api_credential: str | None
    logged_in: bool | None = None
    problem: str = ""
    warnings: tuple[str, ...] = ()


class EnvironmentFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a session: how many variables it inherits, which are removed and why, and which are added.

    `relevant` are the inherited names that claude itself reads. It holds no value of any variable.
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
    """A session from its spawn to its close. `against` is `claude` or `simulated`; `error` is None if all of it worked."""

    __test__ = False  # pytest: this is not a test class

    ok: bool
    against: str
    steps: tuple[Step, ...] = ()
    version: str | None = None
    error: Failure | None = None


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report. `exit_code`: 0 the test worked, 1 something does not work, 2 there is no claude.

    `ready` says more than `ok`: the real claude was tested, and a credential for real prompts was found. `others` are the other agents of
    this library. In the JSON each of them has a field of its own, with the name of the agent.
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
    others: dict[str, AgentFinding]
    paths: PathFinding | None
    environment: EnvironmentFinding
    test_run: TestRun | None


def exit_code_for(cli: CLIFinding, test_run: TestRun | None) -> int:
    """Return the doctor's exit code. A simulated run needs no claude, so a missing one does not count."""
    simulated = test_run is not None and test_run.against == "simulated"
    if cli.error is not None and not simulated:
        return 2
    return 0 if test_run is not None and test_run.ok else 1


def is_ready(credential: CredentialReport, test_run: TestRun | None) -> bool:
    """Return whether a real prompt has all it needs, as far as can be seen without sending one: a claude that works, and a credential."""
    return test_run is not None and test_run.ok and test_run.against == "claude" and credential.winner != "none"


class _Doctor:
    """One examination. It prints each finding at once, unless JSON was asked for."""

    def __init__(self, args: SimpleNamespace) -> None:
        self._args = args
        self._look = choose_look(sys.stdout, sys.stderr, env=os.environ, plain=args.plain, no_color=args.no_color)
        self._lines = ReportLines(self._look, verbose=args.verbose)
        self._output = TerminalOutput(sys.stdout)
        self._cli = _find(args.cli_path)
        environment = build_environment(ClaudeOptions(), os.environ)
        self._credential = describe_credentials(
            environment, settings=read_user_settings(environment), config_dir=find_config_dir(environment)
        )
        self._others = {name: _find_other(find_agent(name)) for name in LIBRARY_AGENTS if name != "claude-code"}
        self._paths: PathFinding | None = None
        self._environment = _environment()
        self._test_run: TestRun | None = None

    async def examine(self) -> int:
        """Examine everything, in order, and return the exit code."""
        await self._show(self._lines.header(version("claude-transport"), self._args.backend))
        await self._show(self._lines.cli(self._cli))
        await self._show(self._lines.credential(self._credential))
        for name, found in self._others.items():
            await self._show(self._lines.other(find_agent(name).program, found))
        self._paths = examine_paths(
            self._args.transport,
            cli_path=self._args.cli_path,
            cli_available=self._cli.path is not None,
            login_status=await self._ask_claude(),
        )
        await self._show(self._lines.paths(self._paths))
        await self._show(self._lines.environment(self._environment))
        if self._cli.path is not None or self._args.offline:
            interrupted = await self._try_it()
            if self._test_run is None:
                return interrupted
            await self._learn_version(self._test_run)
        code = exit_code_for(self._cli, self._test_run)
        ready = is_ready(self._credential, self._test_run)
        await self._show(self._lines.verdict(code, self._cli, simulated=self._args.offline, ready=ready))
        if self._args.json:
            parts = msgspec.to_builtins(self._report(code))
            parts |= parts.pop("others")
            await self._output.write_bytes(json_for_terminals(msgspec.json.format(msgspec.json.encode(parts))) + b"\n")
        return code

    async def _ask_claude(self) -> LoginStatus | None:
        if not self._args.login_status or self._cli.path is None:
            return None
        return await read_login_status(self._cli.path, env=build_environment(ClaudeOptions(), os.environ), timeout=self._args.timeout)

    async def _try_it(self) -> int:
        await self._show(self._lines.before_run(simulated=self._args.offline))
        cli_path = None if self._args.offline else self._cli.path
        checkup = Checkup(cli_path, timeout=self._args.timeout, on_step=lambda step: self._show(self._lines.step(step)))

        async def work() -> int:
            self._test_run = await checkup.run()
            return 0

        interrupted = await run_interruptibly(work, give_up=checkup.give_up)
        if self._test_run is not None and self._test_run.error is not None:
            await self._show(self._lines.failure(self._test_run.error))
        return interrupted

    async def _learn_version(self, run: TestRun) -> None:
        """Keep the version that the running CLI reported. No other process has to be started for it."""
        if run.version is None or self._cli.path is None or run.against == "simulated":
            return
        remember_cli_version(self._cli.path, run.version)
        if self._cli.version is None:
            self._cli = msgspec.structs.replace(self._cli, version=run.version, version_note=_version_note(run.version))
            await self._show(self._lines.version(self._cli))

    async def _show(self, lines: Iterable[str]) -> None:
        if not self._args.json:
            await self._output.write("".join(f"{line}\n" for line in lines))

    def _report(self, code: int) -> DoctorReport:
        return DoctorReport(
            ok=code == 0,
            ready=is_ready(self._credential, self._test_run),
            exit_code=code,
            version=version("claude-transport"),
            python=platform.python_version(),
            platform=platform.platform(terse=True),
            backend=self._args.backend,
            cli=self._cli,
            credential=self._credential,
            others=self._others,
            paths=self._paths,
            environment=self._environment,
            test_run=self._test_run,
        )


def _find(cli_path: str | None) -> CLIFinding:
    try:
        cli = find_cli(cli_path)
    except (CLINotFoundError, NotExecutableError) as error:
        searched = error.searched if isinstance(error, CLINotFoundError) else ()
        return CLIFinding(searched=searched, tested_version=TESTED_VERSION, error=Failure.of(error))
    known = read_cli_version(cli)
    return CLIFinding(
        path=cli.path,
        source=cli.source,
        searched=cli.searched,
        version=known,
        tested_version=TESTED_VERSION,
        version_note=_version_note(known),
    )


def _find_other(agent: Agent) -> AgentFinding:
    options = agent.options_type()
    try:
        cli = agent.find(options, os.environ)
    except (CLINotFoundError, NotExecutableError) as error:
        searched = error.searched if isinstance(error, CLINotFoundError) else ()
        return AgentFinding(searched=searched, problem=str(error).partition("\n")[0])
    found = read_cli_version(cli)
    return AgentFinding(
        path=cli.path,
        source=cli.source,
        searched=cli.searched,
        version=found,
        version_note=_note_in(agent.supported, found),
        home=agent.home(os.environ),
        credential=agent.credential(options, os.environ),
    )


def _version_note(found: str | None) -> str:
    if found is not None and parse_version(found) == parse_version(TESTED_VERSION):
        return "the newest one that this library was tested with"
    return _note_in(CLAUDE_RANGE, found)


def _note_in(supported: SupportedRange | None, found: str | None) -> str:
    if found is None or supported is None:
        return "not known before it runs"
    outside = supported.note(found)
    if outside is not None:
        return f"outside the supported range: {outside}"
    return f"in the supported range, {supported.oldest} to {supported.newest}"


def examine_paths(
    choice: TransportChoice | None, *, cli_path: str | None, cli_available: bool, login_status: LoginStatus | None = None
) -> PathFinding:
    """Return where a call with this choice would go. Raises `ConfigurationError` if `CLAUDE_TRANSPORT` is not a valid choice."""
    report = preflight(
        choice, env=os.environ, options=ClaudeOptions(cli_path=cli_path), cli_available=cli_available, login_status=login_status
    )
    resolution = report.resolution
    return PathFinding(
        ok=report.ok,
        choice=report.choice,
        kind=report.cell.kind,
        layer=resolution.layer if resolution is not None else None,
        reason=resolution.reason if resolution is not None else report.problem,
        api_key=report.row.api_key,
        cli=report.row.cli,
        cells={each: (MATRIX[report.row][each].kind, MATRIX[report.row][each].code) for each in CHOICES},
        credential=report.credential,
        payer=report.payer,
        api_credential=report.api_credential,
        logged_in=None if login_status is None else login_status.logged_in,
        problem=report.problem,
        warnings=report.warnings,
    )


def _environment() -> EnvironmentFinding:
    origins = describe_environment(ClaudeOptions(), os.environ)
    inherited = [name for name, origin in origins.items() if origin == "inherited"]
    relevant = ("ANTHROPIC_", "CLAUDE", "DISABLE_", "MCP_", "NODE_EXTRA_CA_CERTS")
    return EnvironmentFinding(
        inherited=len(inherited),
        relevant=tuple(name for name in inherited if name.startswith(relevant) or name.upper().endswith("_PROXY")),
        removed={name: origin.removeprefix("removed: ") for name, origin in origins.items() if origin.startswith("removed: ")},
        added={name: origin for name, origin in origins.items() if origin != "inherited" and not origin.startswith("removed: ")},
    )


class Checkup:
    """A test run: one session from spawn to close against a Messages API in this program, timed step by step.

    The CLI gets its own temporary home, configuration and project, a made-up key, and of the environment only what any program needs. So
    it cannot use a credential of the user, and nothing leaves the machine.

    Args:
        cli_path: The claude to run, or None for the simulated one.
        timeout: Seconds for the whole run.
        on_step: Called with each step when it is done.
    """

    def __init__(self, cli_path: str | None, *, timeout: float, on_step: Callable[[Step], Awaitable[object]]) -> None:
        self._cli_path = cli_path
        self._timeout = timeout
        self._on_step = on_step
        self._steps: list[Step] = []
        self._lap = 0.0  # when the present step began
        self._version: str | None = None
        self._transport: SubprocessTransport | None = None

    async def run(self) -> TestRun:
        """Spawn, initialise, ask, close, and return what happened. Raises only `BrokenPipeError`, if the reader of stdout has gone."""
        error: Exception | None = None
        try:
            with anyio.fail_after(self._timeout):
                await self._run()
        except TimeoutError:
            error = ConnectTimeout(f"the test run did not end in {self._timeout:g} s", waited=self._timeout, code="exec.cli.timeout")
        except BrokenPipeError:
            raise  # of our own output: a broken pipe of the child would be a typed error
        except Exception as caught:  # noqa: BLE001 - the doctor reports whatever goes wrong
            error = caught
        return TestRun(
            ok=error is None,
            against="simulated" if self._cli_path is None else "claude",
            steps=tuple(self._steps),
            version=self._version,
            error=None if error is None else Failure.of(error),
        )

    async def give_up(self) -> None:
        """End the child at once."""
        if self._transport is not None:
            await self._transport.close()

    async def _run(self) -> None:
        async with self._options() as (options, was_asked):
            self._transport = transport = SubprocessTransport(options)
            self._lap = time.perf_counter()
            try:
                await transport.connect()
                await self._done("spawn")
                await self._converse(transport, was_asked)
            finally:
                await transport.close()
            await self._done("close")

    async def _converse(self, transport: SubprocessTransport, was_asked: Callable[[], bool]) -> None:
        async with Query(transport, initialize_timeout=self._timeout) as query:
            self._version = query.initialization.claude_code_version
            await self._done("initialize")
            turn = await query.send("This is a checkup.")
            async for _ in turn:
                if self._steps[-1].name == "initialize":
                    await self._done("first message")
            result = await turn.result()
            await self._done("result")
        failure = error_for(result)
        if failure is not None:
            raise failure
        if not was_asked():
            raise ProtocolError(
                "claude answered, but did not ask the API of this checkup: managed settings of this machine send it to another API",
                category="configuration",
                code="doctor.other_api",
            )
        if not result.result:
            raise MissingResult("the answer of claude is empty")

    async def _done(self, name: str) -> None:
        step = Step(name=name, ms=round((time.perf_counter() - self._lap) * 1000, 1))
        self._steps.append(step)
        await self._on_step(step)
        self._lap = time.perf_counter()  # the time to show it does not count

    @asynccontextmanager
    async def _options(self) -> AsyncIterator[tuple[ClaudeOptions, Callable[[], bool]]]:
        """Yield what to run, isolated, and a function that says whether the API of this checkup was asked."""
        if self._cli_path is None:
            with FakeClaude(Scenario.simulated(pace=0.0)) as fake:
                yield ClaudeOptions(cli_path=fake.path, include_partial_messages=True), lambda: True
            return
        # a short name: the CLI puts a socket under TMPDIR, and the path of a socket holds about a hundred bytes
        with tempfile.TemporaryDirectory(prefix="ct-", ignore_cleanup_errors=True) as folder:
            async with FakeMessagesAPI(replies.text(ANSWER, times=None)) as api:
                options = isolated_options(
                    self._cli_path, Path(folder), api, max_retries=0, include_partial_messages=True, no_session_persistence=True
                )
                yield options, lambda: bool(api.conversation)


_LABEL: Final = 14
"""Columns of the first column."""
_MAX_TEXT: Final = 4000
"""The most characters of one entry: its text may come from a CLI."""
_PAID_BY: Final = {
    "nobody": "no credential was found: claude would ask to log in",
    "unknown": "who pays is not known",
    "subscription": "a subscription pays",
    "api account": "the API account pays",
    "cloud account": "the cloud account pays",
    "token owner": "the owner of the token pays",
}
_PATHS: Final = {"cli": "through claude", "api": "through the API", None: "nowhere"}
_GET_A_CREDENTIAL: Final = "To have one, set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN, or run `claude` to log in."


class ReportLines:
    """The report as lines of text, part by part. Paths are never broken, so that they can be copied."""

    def __init__(self, look: Look, *, verbose: bool) -> None:
        self._look = look
        self._verbose = verbose

    def header(self, version: str, backend: str) -> Iterator[str]:
        """Yield this program's version, Python's, and the event loop."""
        dot = self._look.symbol("dot")
        yield self._paint(f"claude-transport {version} {dot} Python {platform.python_version()} {dot} {backend}", "bold")
        yield ""

    def cli(self, cli: CLIFinding) -> Iterator[str]:
        """Yield the binary, its version, and where it was searched for."""
        if cli.error is not None:
            yield from self._entry("claude", cli.error.message)
        else:
            others = len(cli.searched) - 1
            after = f", after looking at {others} other place{'s' if others > 1 else ''}" if others else ""
            yield from self._entry("claude", visible(cli.path or ""), f"found by {cli.source}{after}")
            yield from self.version(cli)
        if self._verbose or cli.error is not None:
            yield from self._entry("looked at", *cli.searched)

    def version(self, cli: CLIFinding) -> Iterator[str]:
        """Yield the version, and how it compares with the supported ones."""
        yield from self._entry("version", f"{cli.version or 'unknown'}, {cli.version_note}")

    def credential(self, report: CredentialReport) -> Iterator[str]:
        """Yield the credential that would be used, and who would pay."""
        name = report.name or report.winner
        headers = f", sent as {' and '.join(report.headers)}" if report.headers else ""
        first = _PAID_BY[report.payer] if report.winner in {"none", "unknown"} else f"{name}{headers}; {_PAID_BY[report.payer]}"
        losing = [f"also there, not used: {', '.join(report.present)}"] if report.present and not report.ambiguous else []
        yield from self._entry("credential", first, *losing, *report.notes)

    def other(self, program: str, found: AgentFinding) -> Iterator[str]:
        """Yield the program of another agent, its version, and who would pay for it. Without one, that is one line."""
        if found.path is None:
            yield from self._entry(program, "none was found" if found.searched else found.problem)
            if self._verbose:
                yield from self._entry("looked at", *found.searched)
            return
        report = found.credential
        paid = []
        if report is not None:
            nobody = f"no credential was found that {program} would use"
            payer = nobody if report.payer == "nobody" else _PAID_BY[report.payer]
            paid = [payer if report.name is None else f"{report.name}; {_PAID_BY[report.payer]}", *report.notes]
        known = f"{found.version}, {found.version_note}" if found.version else found.version_note
        yield from self._entry(program, visible(found.path), f"found by {found.source}", f"version {known}", *paid)

    def paths(self, found: PathFinding) -> Iterator[str]:
        """Yield where a call would go, who would pay for it there, and where the other choices would go."""
        chosen = _PATHS[found.kind] if found.ok else "nowhere"
        reason = found.reason if found.ok else found.problem
        choices = [f"`--transport {choice}` {_cell(*cell)}" for choice, cell in found.cells.items()]
        paid = f"{found.credential or 'no credential known'}; {_PAID_BY[found.payer]}"
        said = () if found.logged_in is None else (f"claude says that it is {'' if found.logged_in else 'not '}logged in",)
        yield from self._entry("path", f"{chosen}: {reason}", paid, *said, *choices)

    def environment(self, found: EnvironmentFinding) -> Iterator[str]:
        """Yield the names of the variables that a session would inherit, lose and get."""
        counts = [f"{found.inherited} variables inherited", f"{len(found.removed)} kept back", f"{len(found.added)} added"]
        details = [
            _listed("claude looks at", found.relevant),
            _listed("kept back", found.removed),
            _listed("added", found.added),
        ]
        yield from self._entry("environment", ", ".join(counts), *filter(None, details))

    def before_run(self, *, simulated: bool) -> Iterator[str]:
        """Yield what is about to be tested."""
        yield ""
        what = "the simulated Claude" if simulated else "this claude, with a made-up key, against an API on this machine"
        yield from self._entry("test run", what)

    def step(self, step: Step) -> Iterator[str]:
        """Yield a step that worked, and its time."""
        yield " " * _LABEL + f"{self._mark(ok=True)} {step.name:<14}{step.ms:>9,.1f} ms"

    def failure(self, failure: Failure) -> Iterator[str]:
        """Yield what went wrong, and what to do."""
        indent = " " * _LABEL
        first, *more = self._wrapped(f"{failure.message} [{failure.code}]", narrower=_LABEL + 2)
        yield f"{indent}{self._mark(ok=False)} {first}"
        yield from (f"{indent}  {line}" for line in (*more, *map(printable, failure.details)))
        yield from (f"{indent}  {line}" for line in self._wrapped(failure.remedy, narrower=_LABEL + 2))

    def verdict(self, exit_code: int, cli: CLIFinding, *, simulated: bool, ready: bool) -> Iterator[str]:
        """Yield the conclusion."""
        yield ""
        if exit_code == 2 and cli.error is not None:
            yield self._paint("There is no claude to run.", "red")
            yield from self._wrapped(cli.error.remedy)
        elif exit_code:
            yield self._paint("Something does not work; see above.", "red")
        elif simulated:
            yield self._paint("The simulated run works.", "green")
        elif ready:
            yield self._paint("Everything works.", "green")
        else:
            yield self._paint("The program works, but a real prompt will fail without a credential.", "yellow")
            yield from self._wrapped(_GET_A_CREDENTIAL)

    def _entry(self, label: str, *texts: str) -> Iterator[str]:
        lines = [line for text in texts for line in self._wrapped(text, narrower=_LABEL)] or [""]
        yield self._paint(f"{label:<{_LABEL}}", "dim") + lines[0]
        yield from (" " * _LABEL + line for line in lines[1:])

    def _wrapped(self, text: str, *, narrower: int = 0) -> list[str]:
        width = max(self._look.width - narrower, 40)
        return textwrap.wrap(visible(text[:_MAX_TEXT]), width, break_long_words=False, break_on_hyphens=False)

    def _mark(self, *, ok: bool) -> str:
        return self._paint(self._look.symbol("good" if ok else "bad"), "green" if ok else "red")

    def _paint(self, text: str, style: str) -> str:
        return self._look.paint(text, style)


_WHY_NOT: Final = {NO_CLI: "no claude was found", NO_KEY: "there is no API key", NOTHING: "there is neither a claude nor an API key"}


def _cell(kind: str | None, code: str | None) -> str:
    """Say where one choice goes, or why it fails."""
    return f"goes {_PATHS[kind]}" if code is None else f"fails, because {_WHY_NOT[code]} [{code}]"


def _listed(what: str, names: Iterable[str]) -> str:
    text = ", ".join(visible(name) for name in names)
    return f"{what}: {text}" if text else ""
