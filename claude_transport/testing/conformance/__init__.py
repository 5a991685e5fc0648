"""The contract of `Transport` as a test: `run_conformance(factory)` checks a transport of yours against every clause.

Run it: `run_conformance` checks all `CLAUSES` on all `BACKENDS` and returns a `Report` of one `Row` per clause and backend; for a wrapper
    also the `WRAPPER_CLAUSES`. `run_clause` checks one `Clause`; a broken one raises `Violation`.
Your transport: the factory is, at its shortest, a function that takes a byte stream and returns your transport; `ByteStreamMedium` then
    plays the peer at the other end. A `Medium` of your own makes a `Subject`: your transport and its `Peer`, in which a `Play` runs. A
    `Reason` says why a clause does not apply. `Bench` is what a clause works with.

`claude_transport.testing.conformance.media` has the media of this library, and `claude_transport.testing.conformance.pytest_adapter`
makes a pytest test of each clause.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "testing.conformance.bench": "Bench Violation",
        "testing.conformance.clause": "Clause",
        "testing.conformance.clauses": "CLAUSES WRAPPER_CLAUSES",
        "testing.conformance.medium": "ByteStreamMedium Medium",
        "testing.conformance.run": "BACKENDS Report Row run_clause run_conformance",
        "testing.conformance.subject": "Peer Play Reason Subject",
    },
    modules=("media", "pytest_adapter"),
)
