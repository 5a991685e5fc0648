"""The clauses as pytest cases: one for each clause, medium and event loop. Only this part of the kit needs pytest.

```python
from claude_transport.testing.conformance.pytest_adapter import Case, parametrize


@parametrize(MyTransport)
def test_the_contract(case: Case) -> None:
    case.check()
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from claude_transport.testing.conformance.clause import Clause
from claude_transport.testing.conformance.clauses import check_ids, select_clauses
from claude_transport.testing.conformance.medium import Factory, Medium, as_medium
from claude_transport.testing.conformance.run import BACKENDS, DEFAULT_TIMEOUT, Row, check_backend, run_clause
from claude_transport.testing.conformance.subject import Reason

if TYPE_CHECKING:
    import pytest


class Case(msgspec.Struct, frozen=True):
    """One clause with one medium on one event loop."""

    clause: Clause
    medium: Medium
    backend: str
    timeout: float

    @property
    def name(self) -> str:
        """The id of the pytest case."""
        return f"{self.clause.id}-{self.medium.name}-{self.backend}"

    def check(self) -> Row:
        """Test the clause, and return its row, which has a `reason` when it was excluded. Raises `Violation` when the clause failed."""
        row = run_clause(self.clause, self.medium, backend=self.backend, timeout=self.timeout)
        row.raise_for_failure()
        return row


def cases(
    *factories: Factory,
    backends: Iterable[str] = BACKENDS,
    clauses: Iterable[Clause | str] | None = None,
    excludes: Mapping[str, Reason] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> list[Case]:
    """Return a case for every clause, factory and backend. The arguments and errors are those of `run_conformance`."""
    media = [as_medium(factory, excludes=excludes) for factory in factories]
    names = tuple(backends)
    for backend in names:
        check_backend(backend)
    for medium in media:
        check_ids(medium.excludes)
    chosen = tuple(clauses) if clauses is not None else None
    ordered = select_clauses(chosen, is_wrapper=any(medium.is_wrapper for medium in media))
    asked = [(clause, medium) for clause in ordered for medium in media if chosen or medium.is_wrapper or not clause.of_wrappers]
    return [Case(clause, medium, backend, timeout) for clause, medium in asked for backend in names]


def parametrize(
    *factories: Factory,
    backends: Iterable[str] = BACKENDS,
    clauses: Iterable[Clause | str] | None = None,
    excludes: Mapping[str, Reason] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> pytest.MarkDecorator:
    """Decorate a test function, so that it runs for each of `cases(…)`, as its argument `case`. It must not be async."""
    import pytest

    found = cases(*factories, backends=backends, clauses=clauses, excludes=excludes, timeout=timeout)
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in found])
