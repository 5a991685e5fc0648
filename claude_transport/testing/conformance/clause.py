"""`Clause`: one promise of the contract, with the function that tests it; and the decorator that registers such functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from claude_transport.testing.conformance.bench import Bench

Check = Callable[[Bench], Awaitable[None]]

_registered: dict[str, Clause] = {}


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """One promise of the contract of `Transport`, and the function that tests it. `run_conformance` runs it.

    * `id`: its name in reports, which stays the same in later versions. `sentence`: the promise, as in the docstring of `Transport`.
      `source`: the method that promises it.
    * `check`: an async function that gets a `Bench`, and raises `Violation` when the transport breaks the promise.
    * `needs_peer`: False when the promise can also be tested without a peer at the other end.
    * `of_wrappers`: True for a promise that only wrappers make. It is tested with the wrapper alone, whatever its medium is.
    """

    id: str
    sentence: str
    source: str
    check: Check
    needs_peer: bool = True
    of_wrappers: bool = False


def clause(id: str, sentence: str, *, source: str, needs_peer: bool = True, of_wrappers: bool = False) -> Callable[[Check], Check]:  # noqa: A002 - it is one
    """Decorate the function that tests a clause, and register it."""

    def register(check: Check) -> Check:
        if id in _registered:
            msg = f"there are two checks of {id}"
            raise ValueError(msg)
        _registered[id] = Clause(
            id=id, sentence=sentence, source=source, check=check, needs_peer=needs_peer and not of_wrappers, of_wrappers=of_wrappers
        )
        return check

    return register


def registered() -> tuple[Clause, ...]:
    """Return all clauses of the imported modules, in the order of import."""
    return tuple(_registered.values())
