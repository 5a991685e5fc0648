"""`CLAUSES`: every clause of the contract, in the order in which a transport is used; `WRAPPER_CLAUSES`: what wrappers promise besides."""

from __future__ import annotations

from collections.abc import Iterable

from claude_transport.errors import ConfigurationError
from claude_transport.testing.conformance.checks import connecting, endings, reading, wrapping, writing
from claude_transport.testing.conformance.clause import Clause, registered

_MODULES = (connecting, writing, reading, endings, wrapping)  # the imports have registered their clauses
_ORDER = ("connect", "ready", "write", "read", "lines", "end", "close", "block", "truth", "terms", "prompts", "own")


def _place(clause: Clause) -> tuple[int, int]:
    return _ORDER.index(clause.id.partition(".")[0]), [module.__name__ for module in _MODULES].index(clause.check.__module__)


_ALL = sorted(registered(), key=_place)

CLAUSES: tuple[Clause, ...] = tuple(clause for clause in _ALL if not clause.of_wrappers)
"""Every promise of a `Transport`, each with its test."""

WRAPPER_CLAUSES: tuple[Clause, ...] = tuple(clause for clause in _ALL if clause.of_wrappers)
"""Every promise that a wrapper makes besides those in `CLAUSES`, each with its test. `media.wrapped()` tests both."""

_BY_ID = {clause.id: clause for clause in _ALL}


def select_clauses(clauses: Iterable[Clause | str] | None = None, *, is_wrapper: bool = False) -> tuple[Clause, ...]:
    """Return the named clauses; for None all, with those of wrappers for a wrapper.

    Raises `ConfigurationError` for an id that is not in the contract.
    """
    if clauses is None:
        return CLAUSES + WRAPPER_CLAUSES if is_wrapper else CLAUSES
    named = tuple(clauses)
    check_ids(each for each in named if isinstance(each, str))
    return tuple(_BY_ID[each] if isinstance(each, str) else each for each in named)


def check_ids(ids: Iterable[str]) -> None:
    """Raise `ConfigurationError` when one of `ids` is not in the contract."""
    unknown = sorted(set(ids) - _BY_ID.keys())
    if unknown:
        raise ConfigurationError(f"the contract has no clause {', '.join(unknown)}: see CLAUSES and WRAPPER_CLAUSES", option="clauses")
