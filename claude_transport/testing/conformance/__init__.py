"""The contract of `Transport`, shipped as a test: `run_conformance(factory)` asks a transport of yours for every clause of it.

The factory is, at its shortest, a function that makes your transport of a byte stream; the kit plays the peer at the other end.
`claude_transport.testing.conformance.media` has the library's own media, `…pytest_adapter` the cases for pytest.
"""

from __future__ import annotations

from claude_transport.testing.conformance.bench import Bench, Violation
from claude_transport.testing.conformance.clause import Clause
from claude_transport.testing.conformance.clauses import CLAUSES
from claude_transport.testing.conformance.medium import ByteStreamMedium, Medium
from claude_transport.testing.conformance.run import BACKENDS, Report, Row, run_clause, run_conformance
from claude_transport.testing.conformance.subject import Peer, Play, Reason, Subject

__all__ = [
    "BACKENDS",
    "CLAUSES",
    "Bench",
    "ByteStreamMedium",
    "Clause",
    "Medium",
    "Peer",
    "Play",
    "Reason",
    "Report",
    "Row",
    "Subject",
    "Violation",
    "run_clause",
    "run_conformance",
]
