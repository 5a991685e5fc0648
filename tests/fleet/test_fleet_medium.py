"""Every clause of the contract, over a worker and a real broker."""

from __future__ import annotations

import atexit
import functools
import tempfile
from pathlib import Path

import pytest
from broker_server import BrokerServer

from claude_transport.testing.conformance import media
from claude_transport.testing.conformance.pytest_adapter import Case, parametrize

WAITING = ("write.backpressure", "write.cancel-poisons", "close.wakes-writer", "ready.not-when-broken")
"""The clauses in which a writer waits until the process has read: only a fleet has a broker between the two."""


@functools.cache
def shared_broker() -> BrokerServer:
    """One server for all clauses; each subject has its own keys."""
    folder = tempfile.TemporaryDirectory(prefix="fleet-")
    server = BrokerServer(Path(folder.name, "broker"), "--appendonly", "no")
    server.start()
    atexit.register(folder.cleanup)
    atexit.register(server.kill)
    return server


@parametrize(media.fleet(lambda: shared_broker().url), clauses=WAITING, timeout=30.0)
def test_a_writer_waits_for_the_process_and_not_for_the_worker(case: Case) -> None:
    assert case.check().verdict == "passed"


@pytest.mark.nightly  # the same clauses as over a gateway, once more
@parametrize(media.fleet(lambda: shared_broker().url), timeout=30.0)
def test_a_session_on_a_fleet_keeps_the_clause(case: Case) -> None:
    assert case.check().verdict == "passed"
