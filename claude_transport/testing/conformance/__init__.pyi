# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.testing.conformance import media as media
from claude_transport.testing.conformance import pytest_adapter as pytest_adapter
from claude_transport.testing.conformance.bench import Bench as Bench
from claude_transport.testing.conformance.bench import Violation as Violation
from claude_transport.testing.conformance.clause import Clause as Clause
from claude_transport.testing.conformance.clauses import CLAUSES as CLAUSES
from claude_transport.testing.conformance.clauses import WRAPPER_CLAUSES as WRAPPER_CLAUSES
from claude_transport.testing.conformance.medium import ByteStreamMedium as ByteStreamMedium
from claude_transport.testing.conformance.medium import Medium as Medium
from claude_transport.testing.conformance.run import BACKENDS as BACKENDS
from claude_transport.testing.conformance.run import Report as Report
from claude_transport.testing.conformance.run import Row as Row
from claude_transport.testing.conformance.run import run_clause as run_clause
from claude_transport.testing.conformance.run import run_conformance as run_conformance
from claude_transport.testing.conformance.subject import Peer as Peer
from claude_transport.testing.conformance.subject import Play as Play
from claude_transport.testing.conformance.subject import Reason as Reason
from claude_transport.testing.conformance.subject import Subject as Subject

__all__ = [
    "BACKENDS",
    "CLAUSES",
    "WRAPPER_CLAUSES",
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
