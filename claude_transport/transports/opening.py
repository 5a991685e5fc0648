"""`open_transport`: makes the transport that fits a URL or options."""

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
    reconnect_timeout: float | None = None,
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    strict: bool = False,
) -> StreamTransport:
    """Return a transport, not connected: a `NetworkTransport` for a URL, a `SubprocessTransport` for options or None.

    The URL of a broker, `redis://…` or `rediss://…`, makes a `FleetTransport`, to a session on a fleet.

    So the configuration of a program can say where its Claude runs, as one value.

    Args:
        target: the URL of a server or a broker, or the options for a local CLI; None is a local CLI with default options.
        token, ssl_context: see `NetworkTransport`. Only for a URL.
        resume: see `NetworkTransport`. A local CLI and a fleet ignore it.
        reconnect_timeout: see `NetworkTransport`. Only for the URL of a server.
        max_line_bytes, strict: as for both transports.

    Raises:
        ConfigurationError: the URL is not valid, the CLI would refuse an option, or an argument is given that needs another `target`.
    """
    if isinstance(target, str) and target.startswith(("redis:", "rediss:")):
        if reconnect_timeout is not None:
            message = "reconnect_timeout needs the URL of a server: the workers of a fleet set their own times"
            raise ConfigurationError(message, option="reconnect_timeout")
        from claude_transport.transports.fleet import FleetTransport  # a program without a fleet loads none of it

        return FleetTransport(target, token=token, ssl_context=ssl_context, max_line_bytes=max_line_bytes, strict=strict)
    if isinstance(target, str):
        return NetworkTransport(
            target,
            token=token,
            ssl_context=ssl_context,
            resume=resume,
            reconnect_timeout=reconnect_timeout,
            max_line_bytes=max_line_bytes,
            strict=strict,
        )
    for name, value in (("token", token), ("ssl_context", ssl_context), ("reconnect_timeout", reconnect_timeout)):
        if value is not None:
            raise ConfigurationError(f"{name} needs a URL: a local claude process does not use it", option=name)
    return SubprocessTransport(target, max_line_bytes=max_line_bytes, strict=strict)
