"""`ReportLines`: the doctor's report as lines of text, part by part."""

from __future__ import annotations

import platform
import textwrap
from collections.abc import Iterable, Iterator

from claude_transport.app.path_choice import PathFinding
from claude_transport.app.report import CLIFinding, EnvironmentFinding, Failure, Step
from claude_transport.app.terminal import Look, visible
from claude_transport.launch.credentials import CredentialReport
from claude_transport.printable import printable

_LABEL = 14
"""Columns of the first column."""

_MAX_TEXT = 4000
"""Characters of one entry: a version is what a CLI says it is."""

_PAID_BY = {
    "nobody": "no credential was found: claude would ask to log in",
    "unknown": "who pays is not known",
    "subscription": "a subscription pays",
    "api account": "the API account pays",
    "cloud account": "the cloud account pays",
    "token owner": "whoever owns the token pays",
}

_PATHS = {"cli": "through claude", "api": "through the API", None: "nowhere"}

_GET_A_CREDENTIAL = "To have one, set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN, or run `claude` to log in."


class ReportLines:
    """Makes the lines, for one look. Paths are never broken, so that they can be copied."""

    def __init__(self, look: Look, *, verbose: bool) -> None:
        self._look = look
        self._verbose = verbose

    def header(self, version: str, backend: str) -> Iterator[str]:
        """What is looking."""
        dot = self._look.symbol("dot")
        yield self._paint(f"claude-transport {version} {dot} Python {platform.python_version()} {dot} {backend}", "bold")
        yield ""

    def cli(self, cli: CLIFinding) -> Iterator[str]:
        """The binary, its version, and where was looked."""
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
        """The version, and how it compares."""
        yield from self._entry("version", f"{cli.version or 'unknown'}, {cli.version_note}")

    def credential(self, report: CredentialReport) -> Iterator[str]:
        """Who would pay."""
        name = report.name or report.winner
        headers = f", sent as {' and '.join(report.headers)}" if report.headers else ""
        first = _PAID_BY[report.payer] if report.winner in {"none", "unknown"} else f"{name}{headers}; {_PAID_BY[report.payer]}"
        losing = [f"also there, not used: {', '.join(report.present)}"] if report.present and not report.ambiguous else []
        yield from self._entry("credential", first, *losing, *report.notes)

    def paths(self, found: PathFinding) -> Iterator[str]:
        """Where a call would go, who would pay for it there, and what the other choices come to."""
        chosen = _PATHS[found.kind] if found.ok else "nowhere"
        reason = found.problem or found.reason
        others = "; ".join(f"{choice}: {_cell(*cell)}" for choice, cell in found.cells.items())
        there = f"{'a' if found.api_key else 'no'} key, {'a' if found.cli else 'no'} claude"
        paid = f"{found.credential or 'no credential known'}; {_PAID_BY[found.payer]}"
        said = () if found.logged_in is None else (f"claude says that it is {'' if found.logged_in else 'not '}logged in",)
        yield from self._entry("path", f"{chosen}: {reason}", paid, *said, f"with {there}: {others}")

    def environment(self, found: EnvironmentFinding) -> Iterator[str]:
        """What the session would inherit, by name."""
        counts = [f"{found.inherited} variables inherited", f"{len(found.removed)} kept back", f"{len(found.added)} added"]
        details = [
            _listed("claude looks at", found.relevant),
            _listed("kept back", found.removed),
            _listed("added", found.added),
        ]
        yield from self._entry("environment", ", ".join(counts), *filter(None, details))

    def before_run(self, *, simulated: bool) -> Iterator[str]:
        """What is about to be tried."""
        yield ""
        what = "the simulated Claude" if simulated else "this claude, with a made-up key, against an API on this machine"
        yield from self._entry("test run", what)

    def step(self, step: Step) -> Iterator[str]:
        """A step that worked, and its time."""
        yield " " * _LABEL + f"{self._mark(ok=True)} {step.name:<14}{step.ms:>9,.1f} ms"

    def failure(self, failure: Failure) -> Iterator[str]:
        """What went wrong, and what to do."""
        indent = " " * _LABEL
        first, *more = self._wrapped(f"{failure.message} [{failure.code}]", narrower=_LABEL + 2)
        yield f"{indent}{self._mark(ok=False)} {first}"
        yield from (f"{indent}  {line}" for line in (*more, *map(printable, failure.details)))
        yield from (f"{indent}  {line}" for line in self._wrapped(failure.remedy, narrower=_LABEL + 2))

    def verdict(self, exit_code: int, cli: CLIFinding, *, simulated: bool, ready: bool) -> Iterator[str]:
        """The last word."""
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


def _cell(kind: str | None, code: str | None) -> str:
    where = {"cli": "claude", "api": "the API", None: "nothing"}[kind]
    return f"{where}, fails [{code}]" if code else where


def _listed(what: str, names: Iterable[str]) -> str:
    text = ", ".join(visible(name) for name in names)
    return f"{what}: {text}" if text else ""
