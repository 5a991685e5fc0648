"""The media of `NetworkTransport` in plain mode: TCP, Unix sockets, TLS (also mutual), zstd; each against a listener on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from claude_transport.testing.conformance.certificates import certificates
from claude_transport.testing.conformance.medium import LiveMedium, Medium
from claude_transport.testing.conformance.reason import Reason
from claude_transport.testing.conformance.socket_peer import SocketPeer
from claude_transport.testing.conformance.subject import Subject
from claude_transport.transports.network import NetworkTransport

__all__ = ["mutual_tls", "tcp", "tls", "unix"]

_LINE_LIMIT = 64 * 2**10
"""Bytes: as small as possible, so that lines far over it are cheap."""

_ABSORBS = 12 * 2**20
"""Bytes: a TCP connection on loopback holds up to 4 MiB that were sent and up to 6 MiB that were not received (Linux's defaults)."""

_CLOSE_TIMEOUT = 1.0
"""Seconds that closing a stream may take."""

_NO_RESET: Mapping[str, Reason] = {
    "read.failure-after-last-message": Reason.cannot_break,
    "ready.not-when-broken": Reason.cannot_break,
}
_NEVER_FULL: Mapping[str, Reason] = {
    "write.backpressure": Reason.never_waits,
    "write.cancel-poisons": Reason.never_waits,
    "close.wakes-writer": Reason.never_waits,
}


def tcp(*, compression: bool = False) -> Medium:
    """`NetworkTransport` over `tcp://`, on request with zstd, where the kit cannot make a writer wait: its flood shrinks to nothing."""
    if not compression:
        return _SocketMedium("tcp", scheme="tcp")
    return _SocketMedium("tcp with zstd", scheme="tcp", compression=True, excludes=_NEVER_FULL)


def unix() -> Medium:
    """`NetworkTransport` over `unix://`, whose peer cannot break off: it has no reset, and its end is the end."""
    return _SocketMedium(
        "unix",
        scheme="unix",
        excludes={"read.failure-after-last-message": Reason.cannot_break, "ready.not-when-broken": Reason.cannot_break},
    )


def tls() -> Medium:
    """`NetworkTransport` over `tls://`, the server's certificate checked. Its subjects need `trustme`."""
    return _SocketMedium("tls", scheme="tls")


def mutual_tls() -> Medium:
    """The same, and the client shows a certificate, too."""
    return _SocketMedium("mutual tls", scheme="tls", mutual=True)


class _SocketMedium(LiveMedium):
    def __init__(
        self, name: str, *, scheme: str, compression: bool = False, mutual: bool = False, excludes: Mapping[str, Reason] | None = None
    ) -> None:
        self.name = name
        self.excludes = excludes or {}
        self._scheme = scheme
        self._compression = compression
        self._mutual = mutual

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        is_tls = self._scheme == "tls"
        server = certificates().server_context(asks_for_certificate=self._mutual) if is_tls else None
        client = certificates().client_context(shows_certificate=self._mutual) if is_tls else None
        with ExitStack() as stack:
            path = None
            if self._scheme == "unix":
                path = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-")), "peer"))
            async with SocketPeer(path=path, ssl_context=server, compressed=self._compression).listening() as peer:
                transport = NetworkTransport(
                    f"unix://{path}" if path is not None else f"{self._scheme}://127.0.0.1:{peer.port}",
                    ssl_context=client,
                    resume=False,
                    compression="zstd" if self._compression else None,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=_CLOSE_TIMEOUT,
                )
                yield Subject(
                    transport=transport,
                    peer=peer,
                    refuse=peer.refuse,
                    max_line_bytes=_LINE_LIMIT,
                    close_timeout=_CLOSE_TIMEOUT,
                    absorbs=_ABSORBS,
                )
