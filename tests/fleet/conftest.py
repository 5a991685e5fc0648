"""Each test of a fleet has a redis-server of its own, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_server import BrokerServer, broker_server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerServer]:
    """A server without a file."""
    with broker_server(tmp_path / "broker", "--appendonly", "no") as server:
        yield server
