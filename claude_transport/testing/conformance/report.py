"""`Report`: what came of every clause on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from claude_transport.testing.conformance.bench import Violation
from claude_transport.testing.conformance.reason import Reason

__all__ = ["Report", "Row", "Verdict"]

Verdict = Literal["passed", "failed", "excluded"]

_MARKS: dict[Verdict, str] = {"passed": "✓", "failed": "✗", "excluded": "-"}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One clause on one backend. `detail` says how it was broken; `reason` is set when it was excluded, and only then."""

    clause: str
    backend: str
    verdict: Verdict
    detail: str = ""
    reason: Reason | None = None

    def raise_for_failure(self) -> None:
        """Raise `Violation` when the clause failed."""
        if self.verdict == "failed":
            raise Violation(str(self))

    def __str__(self) -> str:
        why = self.reason.value if self.reason is not None else self.detail
        return f"{_MARKS[self.verdict]} {self.clause} [{self.backend}]" + (f": {why}" if why else "")


class Report:
    """The rows of one run, one for each clause and backend that was asked for; never one less."""

    def __init__(self, rows: Sequence[Row], *, name: str = "") -> None:
        self.rows: tuple[Row, ...] = tuple(rows)
        self.name = name

    @property
    def ok(self) -> bool:
        """True when no clause failed; exclusions are no failures, look at `excluded`."""
        return not self.failed

    @property
    def passed(self) -> tuple[Row, ...]:
        """The rows of the clauses that were kept."""
        return self._with("passed")

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows of the clauses that were broken."""
        return self._with("failed")

    @property
    def excluded(self) -> tuple[Row, ...]:
        """The rows of the clauses that were not asked, each with its `reason`."""
        return self._with("excluded")

    def _with(self, verdict: Verdict) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict == verdict)

    def raise_for_failures(self) -> None:
        """Raise `Violation` with everything that failed, when something did."""
        if self.failed:
            raise Violation(str(self))

    def to_markdown(self) -> str:
        """A table, clause by backend, and below it what failed and why clauses were excluded."""
        backends = list(dict.fromkeys(row.backend for row in self.rows))
        marks = {(row.clause, row.backend): _MARKS[row.verdict] for row in self.rows}
        lines = ["| clause | " + " | ".join(backends) + " |", "|---" * (len(backends) + 1) + "|"]
        lines += [
            f"| `{clause}` | " + " | ".join(marks.get((clause, backend), "") for backend in backends) + " |"
            for clause in dict.fromkeys(row.clause for row in self.rows)
        ]
        for title, rows in (("Failed", self.failed), ("Excluded", self.excluded)):
            if rows:
                lines += ["", f"{title}:", ""]
                # one item for all backends that say the same
                said = dict.fromkeys((row.clause, row.reason.value if row.reason is not None else row.detail) for row in rows)
                lines += [f"* `{clause}`: {why}" for clause, why in said]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        counts = f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.excluded)} excluded"
        return "\n".join([f"{self.name + ': ' if self.name else ''}{counts}", *(f"  {row}" for row in (*self.failed, *self.excluded))])
