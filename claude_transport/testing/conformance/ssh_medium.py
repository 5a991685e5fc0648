"""ssh as a medium of the kit: a child process at the other end of the system's own ssh, by way of a real sshd on loopback."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from claude_transport.testing.conformance.clauses import CLAUSES
from claude_transport.testing.conformance.medium import LiveMedium
from claude_transport.testing.conformance.reason import Reason
from claude_transport.testing.conformance.relay_peer import RelayPeer
from claude_transport.testing.conformance.sshd import missing_for_sshd, shared_sshd
from claude_transport.testing.conformance.subject import Subject
from claude_transport.transports.subprocess import SubprocessTransport

__all__ = ["SshMedium"]

_LINE_LIMIT: Final = 64 * 2**10
"""Bytes: as small as possible, so that lines far over it are cheap."""

_ABSORBS: Final = 16 * 2**20
"""Bytes: a window of ssh alone is 2 MiB, and there are sockets and pipes on both sides of it."""

_CLOSE_TIMEOUT: Final = 2.0
"""Seconds a process at the other end that does not want to leave gets in all."""

_FAILURE: Final = 3
"""The exit code that is its bad end."""

_RELAY = Path(__file__).with_name("relay.py")


class SshMedium(LiveMedium):
    """`SubprocessTransport(launcher=Launcher.ssh(…))`. Where there is no sshd, or no ssh, every clause is excluded for that reason."""

    name = "ssh"

    def __init__(self) -> None:
        if missing_for_sshd():
            self.excludes: Mapping[str, Reason] = {clause.id: Reason.no_sshd for clause in CLAUSES}

    def prepare(self) -> None:
        """Have the sshd of this process running."""
        shared_sshd()

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        """A transport to a new process, each by a login of its own."""
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            python = Path(folder, "python")  # a link of our own: without it, connect() fails

            def refuse(refusing: bool) -> None:
                with contextlib.suppress(FileNotFoundError):
                    python.unlink()
                if not refusing:
                    python.symlink_to(os.path.realpath(sys.executable))

            refuse(False)
            async with RelayPeer.listening(failure=_FAILURE) as peer:
                transport = SubprocessTransport(
                    command=[str(python), "-I", "-S", str(_RELAY), "127.0.0.1", str(peer.port)],
                    launcher=shared_sshd().launcher(),
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=_CLOSE_TIMEOUT,
                )
                yield Subject(
                    transport=transport,
                    peer=peer,
                    refuse=refuse,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=_CLOSE_TIMEOUT,
                    absorbs=_ABSORBS,
                )
