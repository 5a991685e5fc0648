"""The conformance kit on Windows: every medium that needs no Unix socket and no package that is missing there."""

from __future__ import annotations

import socket
import struct
import sys

import pytest
from windows_processes import is_wine

from claude_transport.testing.conformance import CLAUSES, Medium, media, run_conformance

BACKENDS = ["asyncio"] if sys.platform != "win32" or is_wine() else ["asyncio", "trio"]
OF_A_RESET = {"connect.cancel-is-clean", "read.failure-after-last-message", "ready.not-when-broken"}
"""Clauses whose check has a peer reset a connection."""


def reads_a_reset_as_an_end() -> bool:
    """Return whether this system, as wine 8 does, reads the end of the stream from a socket whose peer has reset the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh", 1, 0))
        accepted.close()
        with client:
            client.settimeout(5)
            try:
                return client.recv(1) == b""
            except ConnectionResetError:
                return False


@pytest.mark.parametrize(
    "medium",
    [media.mock(), media.memory(), media.subprocess(), media.tcp(), media.ws(), media.link(), media.gateway(), media.gateway("plain")],
    ids=lambda medium: medium.name,
)
def test_every_clause_is_kept(medium: Medium) -> None:
    left_out = OF_A_RESET if medium.name == "tcp" and is_wine() and reads_a_reset_as_an_end() else set()
    report = run_conformance(medium, backends=BACKENDS, clauses=[clause for clause in CLAUSES if clause.id not in left_out])
    print(report, f"(left out: {', '.join(sorted(left_out)) or 'nothing'})")
    report.raise_for_failures()
