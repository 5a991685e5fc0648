"""`run_conformance`: run every clause on every backend, each in its own event loop and thread; and the `Report` of a run."""

from __future__ import annotations

import importlib.util
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import anyio
import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.testing.conformance.bench import Bench, Violation
from claude_transport.testing.conformance.clause import Clause
from claude_transport.testing.conformance.clauses import check_ids, select_clauses
from claude_transport.testing.conformance.medium import Factory, Medium, as_medium
from claude_transport.testing.conformance.subject import Inexpressible, Reason

Verdict = Literal["passed", "failed", "excluded"]

_MARKS: dict[Verdict, str] = {"passed": "✓", "failed": "✗", "excluded": "-"}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one clause on one backend.

    `clause` is the id of the clause, `backend` the event loop. `verdict` is `passed`, `failed` or `excluded`. `detail` says how it failed;
    `reason` says why it was excluded, and is None otherwise.
    """

    clause: str
    backend: str
    verdict: Verdict
    detail: str = ""
    reason: Reason | None = None

    def raise_for_failure(self) -> None:
        """Raise `Violation` with the text of this row when the clause failed. Does nothing when it passed or was excluded."""
        if self.verdict == "failed":
            raise Violation(str(self))

    def __str__(self) -> str:
        why = self.reason.value if self.reason is not None else self.detail
        return f"{_MARKS[self.verdict]} {self.clause} [{self.backend}]" + (f": {why}" if why else "")


class Report:
    """The results of one conformance run. `run_conformance` returns it.

    `rows` has one `Row` for each requested clause and backend, `name` is the name of what was tested. `str(report)` lists the failures and
    exclusions.
    """

    def __init__(self, rows: Sequence[Row], *, name: str = "") -> None:
        self.rows: tuple[Row, ...] = tuple(rows)
        self.name = name

    @property
    def ok(self) -> bool:
        """True when no clause failed. Clauses that were excluded, so not tested, do not make it False; see `excluded`."""
        return not self.failed

    @property
    def passed(self) -> tuple[Row, ...]:
        """The rows of the clauses that the transport keeps, one for each clause and backend."""
        return self._with("passed")

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows of the clauses that the transport breaks, each with the reason in `detail`."""
        return self._with("failed")

    @property
    def excluded(self) -> tuple[Row, ...]:
        """The rows of the clauses that were not tested, each with the `reason` why that was not possible."""
        return self._with("excluded")

    def _with(self, verdict: Verdict) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict == verdict)

    def raise_for_failures(self) -> None:
        """Raise `Violation` with the text of all failures when a clause failed; else do nothing. For a test that must fail then."""
        if self.failed:
            raise Violation(str(self))

    def to_markdown(self) -> str:
        """Return the report as Markdown: a table of clauses and backends, then the failures and the reasons of the exclusions."""
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
                # one item for all backends with the same text
                said = dict.fromkeys((row.clause, row.reason.value if row.reason is not None else row.detail) for row in rows)
                lines += [f"* `{clause}`: {why}" for clause, why in said]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        counts = f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.excluded)} excluded"
        return "\n".join([f"{self.name + ': ' if self.name else ''}{counts}", *(f"  {row}" for row in (*self.failed, *self.excluded))])


BACKENDS = ("asyncio", "asyncio+uvloop", "trio")
"""The event loops on which a clause can run."""

DEFAULT_TIMEOUT = 5.0
"""Seconds that a single wait may take: a thousand times the usual time on an idle machine."""

_WAITS_PER_CLAUSE = 8
"""A clause is ended after this number of waits of full length."""


def run_conformance(
    factory: Factory,
    *,
    backends: Iterable[str] = ("asyncio", "trio"),
    clauses: Iterable[Clause | str] | None = None,
    excludes: Mapping[str, Reason] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """Test the transports that `factory` makes against every clause of the contract, on every backend. Returns a report, also of failures.

    `media.wrapped(medium, wrapper)` is tested against `WRAPPER_CLAUSES`, too.

    Do not call it inside an event loop, which it would block; call it in a thread there.

    Args:
        factory: a `Medium`; a function that takes a byte stream and returns a transport; or a function without arguments that returns a
            transport, a `Subject`, or an async context manager of a `Subject`. Its attribute `excludes` is used like the argument.
        backends: the event loops: `asyncio`, `trio`, `asyncio+uvloop`.
        clauses: the clauses to test, or their ids; by default all that apply.
        excludes: maps the ids of clauses that cannot be tested with it to a `Reason`. The report counts them as excluded.
        timeout: seconds that a single wait may take.

    Raises:
        ConfigurationError: the factory, a backend or a clause is not valid. What a transport does never raises.
    """
    medium = as_medium(factory, excludes=excludes)
    check_ids(medium.excludes)
    chosen = select_clauses(clauses, is_wrapper=medium.is_wrapper)
    names = tuple(backends)
    for backend in names:
        check_backend(backend)
    return Report(
        [run_clause(clause, medium, backend=backend, timeout=timeout) for clause in chosen for backend in names], name=medium.name
    )


def run_clause(clause: Clause, medium: Medium, *, backend: str, timeout: float = DEFAULT_TIMEOUT) -> Row:
    """Test one clause on one backend, with a transport of `medium`, and return the result: passed, failed or excluded.

    It runs an event loop in a thread of its own, and returns in bounded time, whatever the transport does. `timeout` bounds every single
    wait, in seconds. Raises `ConfigurationError` when the medium cannot make a transport at all.
    """
    if (reason := medium.excludes.get(clause.id)) is not None:
        return Row(clause=clause.id, backend=backend, verdict="excluded", reason=reason)
    if not clause.of_wrappers:  # those need nothing that the medium shares
        medium.prepare()
    bound = timeout * _WAITS_PER_CLAUSE
    outcome: list[BaseException | None] = []
    # In a thread, because nothing ends some bad transports: the thread is then left behind, and the run goes on.
    thread = threading.Thread(
        target=_run_in_loop, args=(clause, medium, backend, timeout, bound, outcome), name=f"conformance {clause.id}", daemon=True
    )
    with warnings.catch_warnings():
        # clauses leave loops without closing the iterator; trio warns about that when it is a generator
        warnings.filterwarnings("ignore", "Async generator .* was garbage collected", ResourceWarning)
        thread.start()
        thread.join(bound + 2 * timeout)
    if not outcome:
        detail = f"it hangs: cancellation did not end it within {bound + 2 * timeout:g} s"
        return Row(clause=clause.id, backend=backend, verdict="failed", detail=detail)
    return _row(clause, backend, outcome[0])


def _run_in_loop(clause: Clause, medium: Medium, backend: str, timeout: float, bound: float, outcome: list[BaseException | None]) -> None:
    async def check() -> None:
        with anyio.move_on_after(bound) as scope:
            async with anyio.create_task_group() as tasks:
                try:
                    await clause.check(Bench(medium, tasks, patience=timeout, needs_peer=clause.needs_peer))
                finally:
                    tasks.cancel_scope.cancel()
        if scope.cancelled_caught:
            raise Violation(f"it took more than {bound:g} s in all")

    name, _, variant = backend.partition("+")
    options: dict[str, Any] = {"use_uvloop": True} if variant == "uvloop" else {}
    try:
        anyio.run(check, backend=name, backend_options=options)
    except BaseException as exc:  # noqa: BLE001 - any exception is the result of this clause and must not end the run
        outcome.append(exc)
    else:
        outcome.append(None)


def _row(clause: Clause, backend: str, error: BaseException | None) -> Row:
    if error is None:
        return Row(clause=clause.id, backend=backend, verdict="passed")
    leaves = list(_leaves(error))
    for leaf in leaves:
        if isinstance(leaf, Violation):
            return Row(clause=clause.id, backend=backend, verdict="failed", detail=str(leaf))
    for leaf in leaves:
        if isinstance(leaf, Inexpressible):
            return Row(clause=clause.id, backend=backend, verdict="excluded", reason=leaf.reason)
    first = leaves[0]
    if isinstance(first, ConfigurationError) and first.option == "factory":
        raise first
    return Row(clause=clause.id, backend=backend, verdict="failed", detail=f"unexpected {type(first).__name__}: {first}")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def check_backend(backend: str) -> None:
    """Raise `ConfigurationError` when `backend` is unknown, or its package is not installed."""
    if backend not in BACKENDS:
        raise ConfigurationError(f"{backend!r} is not a backend; use one of {', '.join(BACKENDS)}", option="backends")
    needed = {"trio": "trio", "asyncio+uvloop": "uvloop"}.get(backend)
    if needed is not None and importlib.util.find_spec(needed) is None:
        raise ConfigurationError(f"the backend {backend!r} needs {needed}, which is not installed", option="backends")
