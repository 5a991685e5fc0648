"""`CLAUSES`: every clause of the contract, in the order in which a transport is used."""

from __future__ import annotations

from collections.abc import Iterable

from claude_transport.errors import ConfigurationError
from claude_transport.testing.conformance.checks import closing, connecting, endings, reading, writing
from claude_transport.testing.conformance.clause import Clause, registered

_MODULES = (connecting, writing, reading, endings, closing)  # the imports have registered their clauses
_ORDER = ("connect", "ready", "write", "read", "lines", "end", "close", "block", "truth")


def _place(clause: Clause) -> tuple[int, int]:
    return _ORDER.index(clause.id.partition(".")[0]), [module.__name__ for module in _MODULES].index(clause.check.__module__)


CLAUSES: tuple[Clause, ...] = tuple(sorted(registered(), key=_place))
"""Every promise of a `Transport`, each with its test."""

_BY_ID = {clause.id: clause for clause in CLAUSES}


def select_clauses(clauses: Iterable[Clause | str] | None = None) -> tuple[Clause, ...]:
    """Return the named clauses, or all for None. Raises `ConfigurationError` for an id that is not in the contract."""
    if clauses is None:
        return CLAUSES
    named = tuple(clauses)
    check_ids(each for each in named if isinstance(each, str))
    return tuple(_BY_ID[each] if isinstance(each, str) else each for each in named)


def check_ids(ids: Iterable[str]) -> None:
    """Raise `ConfigurationError` when one of `ids` is not in the contract."""
    unknown = sorted(set(ids) - _BY_ID.keys())
    if unknown:
        raise ConfigurationError(f"the contract has no clause {', '.join(unknown)}: see CLAUSES", option="clauses")
