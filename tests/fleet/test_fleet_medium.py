"""Every clause of the contract, over a worker and a real broker."""

from __future__ import annotations

import atexit
import functools
import tempfile
from pathlib import Path

import pytest
from broker_server import BrokerServer

from claude_transport.testing.conformance import Reason, media
from claude_transport.testing.conformance.pytest_adapter import Case, parametrize

pytestmark = pytest.mark.nightly  # the same clauses as over a gateway, once more


@functools.cache
def shared_broker() -> BrokerServer:
    """One server for all clauses; each subject has its own keys."""
    folder = tempfile.TemporaryDirectory(prefix="fleet-")
    server = BrokerServer(Path(folder.name, "broker"), "--appendonly", "no")
    server.start()
    atexit.register(folder.cleanup)
    atexit.register(server.kill)
    return server


@parametrize(media.fleet(lambda: shared_broker().url), timeout=30.0)
def test_a_session_on_a_fleet_keeps_the_clause(case: Case) -> None:
    row = case.check()
    assert row.verdict == "passed" or row.reason is Reason.WHOLE_LINES
