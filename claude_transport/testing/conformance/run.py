"""`run_conformance`: every clause on every backend, each in an event loop and a thread of its own, none stopping the others."""

from __future__ import annotations

import importlib.util
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import anyio

from claude_transport.errors import ConfigurationError
from claude_transport.testing.conformance.bench import Bench, Violation
from claude_transport.testing.conformance.clause import Clause
from claude_transport.testing.conformance.clauses import check_ids, select_clauses
from claude_transport.testing.conformance.medium import Factory, Medium, as_medium
from claude_transport.testing.conformance.reason import Inexpressible
from claude_transport.testing.conformance.report import Report, Row

__all__ = ["BACKENDS", "DEFAULT_TIMEOUT", "check_backend", "run_clause", "run_conformance"]

BACKENDS = ("asyncio", "asyncio+uvloop", "trio")
"""The event loops a clause can be run on."""

DEFAULT_TIMEOUT = 5.0
"""Seconds a single wait may take: a thousand times what it takes on an idle machine."""

_WAITS_PER_CLAUSE = 8
"""How many waits of full length a clause may spend in all, before it is ended as a whole."""


def run_conformance(
    factory: Factory,
    *,
    backends: Iterable[str] = ("asyncio", "trio"),
    clauses: Iterable[Clause | str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """A report of every clause (or of the named `clauses`) on every backend, for the transports that `factory` makes.

    `factory` is a callable that makes a transport of the byte stream it is given, a callable without arguments that gives a
    transport, a `Subject` or an async context manager of a `Subject`, or a `Medium`. Its attribute `excludes` may name clauses
    it cannot express, with a `Reason` each. `timeout` bounds every single wait, in seconds.

    Not to be called from inside an event loop, which it would block; there, call it in a thread.

    Raises:
        ConfigurationError: the factory, a backend or a clause is not what it should be; never for what a transport does.
    """
    medium = as_medium(factory)
    check_ids(medium.excludes)
    chosen = select_clauses(clauses)
    names = tuple(backends)
    for backend in names:
        check_backend(backend)
    return Report(
        [run_clause(clause, medium, backend=backend, timeout=timeout) for clause in chosen for backend in names], name=medium.name
    )


def run_clause(clause: Clause, medium: Medium, *, backend: str, timeout: float = DEFAULT_TIMEOUT) -> Row:
    """What comes of one clause on one backend. Whatever the transport does, this returns in bounded time."""
    if (reason := medium.excludes.get(clause.id)) is not None:
        return Row(clause=clause.id, backend=backend, verdict="excluded", reason=reason)
    medium.prepare()
    bound = timeout * _WAITS_PER_CLAUSE
    outcome: list[BaseException | None] = []
    # A thread, because some bad transports can be ended by nothing: the thread is then left behind, and the run goes on.
    thread = threading.Thread(
        target=_run_in_loop, args=(clause, medium, backend, timeout, bound, outcome), name=f"conformance {clause.id}", daemon=True
    )
    with warnings.catch_warnings():
        # clauses leave loops as people do, without closing the iterator; trio remarks on that when it is a generator
        warnings.filterwarnings("ignore", "Async generator .* was garbage collected", ResourceWarning)
        thread.start()
        thread.join(bound + 2 * timeout)
    if not outcome:
        detail = f"it hangs: not even cancellation ended it within {bound + 2 * timeout:g} s"
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
    except BaseException as exc:  # noqa: BLE001 - whatever it is, it is this clause's outcome and must not end the run
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
    """Raise `ConfigurationError` when `backend` is unknown, or needs what is not installed."""
    if backend not in BACKENDS:
        raise ConfigurationError(f"{backend!r} is none of the backends {', '.join(BACKENDS)}", option="backends")
    needed = {"trio": "trio", "asyncio+uvloop": "uvloop"}.get(backend)
    if needed is not None and importlib.util.find_spec(needed) is None:
        raise ConfigurationError(f"the backend {backend!r} needs {needed}, which is not installed", option="backends")
