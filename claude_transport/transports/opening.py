"""`open_transport`: the transport that fits what it is given."""

from __future__ import annotations

import ssl

from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.framing import DEFAULT_MAX_LINE_BYTES
from claude_transport.transports.network import NetworkTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport


def open_transport(
    target: str | ClaudeOptions | None = None,
    *,
    token: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    resume: bool = True,
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    strict: bool = False,
) -> StreamTransport:
    """A transport, not connected yet: a `NetworkTransport` for a URL, a `SubprocessTransport` for options or for nothing.

    So a program can leave it to its configuration where its Claude runs. `token`, `ssl_context` and `resume` are for URLs.

    Raises:
        ConfigurationError: the URL is none, or `token` or `ssl_context` came without one.
    """
    if isinstance(target, str):
        return NetworkTransport(target, token=token, ssl_context=ssl_context, resume=resume, max_line_bytes=max_line_bytes, strict=strict)
    for name, value in (("token", token), ("ssl_context", ssl_context)):
        if value is not None:
            raise ConfigurationError(f"{name} is for a URL; a claude of our own is not asked who it is", option=name)
    return SubprocessTransport(target, max_line_bytes=max_line_bytes, strict=strict)
