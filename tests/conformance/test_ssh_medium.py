"""Every clause over a real ssh, on every event loop, with the kit's relay at the other end."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import claude_transport as ct
from claude_transport.testing.conformance import Subject
from claude_transport.testing.conformance.media import RELAY
from claude_transport.testing.conformance.medium import LiveMedium
from claude_transport.testing.conformance.pytest_adapter import Case, parametrize
from claude_transport.testing.conformance.relay_peer import RelayPeer

sys.path.insert(0, str(Path(__file__).parents[1]))
from sshd import Sshd, running_sshd, why_no_sshd

LINE_LIMIT = 64 * 2**10
CLOSE_TIMEOUT = 2.0
ABSORBS = 16 * 2**20  # a window of ssh alone is 2 MiB, and there are sockets and pipes on both sides of it


class SshMedium(LiveMedium):
    """A relay behind ssh; its bad end is the exit code 3."""

    name = "ssh"
    server: Sshd

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            python = Path(folder, "python")  # a link of our own: without it, connect() fails

            def refuse(refusing: bool) -> None:
                with contextlib.suppress(FileNotFoundError):
                    python.unlink()
                if not refusing:
                    python.symlink_to(os.path.realpath(sys.executable))

            refuse(False)
            async with RelayPeer.listening(failure=3) as peer:
                transport = ct.SubprocessTransport(
                    command=[str(python), "-I", "-S", str(RELAY), "127.0.0.1", str(peer.port)],
                    launcher=self.server.launcher(),
                    max_line_bytes=LINE_LIMIT,
                    close_timeout=CLOSE_TIMEOUT,
                )
                yield Subject(
                    transport=transport,
                    peer=peer,
                    refuse=refuse,
                    max_line_bytes=LINE_LIMIT,
                    close_timeout=CLOSE_TIMEOUT,
                    absorbs=ABSORBS,
                )


MEDIUM = SshMedium()


@pytest.fixture(scope="module", autouse=True)
def sshd() -> Iterator[None]:
    """A real sshd for all of them."""
    if (reason := why_no_sshd()) is not None:
        pytest.skip(reason)
    with running_sshd() as MEDIUM.server:
        yield


@parametrize(MEDIUM, timeout=30.0)
def test_a_transport_over_ssh_keeps_the_clause(case: Case) -> None:
    assert case.check().verdict == "passed"
