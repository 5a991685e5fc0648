"""`open_transport`: makes the transport that fits a URL or options."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from claude_transport.errors import ClaudeTransportError, ConfigurationError
from claude_transport.launch.options import AgentOptions
from claude_transport.launch.plugins import distribution_of, failed_plugin, load_late, load_plugin
from claude_transport.protocol.framing import DEFAULT_MAX_LINE_BYTES
from claude_transport.transport import Transport
from claude_transport.transports.network import NetworkTransport
from claude_transport.transports.subprocess import SubprocessTransport

_BUILT_IN: Final = frozenset(("redis", "rediss", "tcp", "tls", "unix", "ws", "wss"))
"""Schemes of this library, which no plug-in replaces."""


def open_transport(
    target: str | AgentOptions | None = None,
    *,
    token: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    resume: bool = True,
    reconnect_timeout: float | None = None,
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    strict: bool = False,
) -> Transport:
    """Return a transport, not connected: a `NetworkTransport` for a URL, a `SubprocessTransport` for options or None.

    The URL of a broker, `redis://…` or `rediss://…`, makes a `FleetTransport`, to a session on a fleet. Another scheme is that of a plug-in
    in the entry point group `claude_transport.schemes`, which is called with the URL, and with those of the arguments that are given.

    So the configuration of a program can say where its Claude runs, as one value.

    Args:
        target: the URL of a server or a broker, or the options for a local agent; None is a local CLI with default options.
        token, ssl_context: see `NetworkTransport`. Only for a URL.
        resume: see `NetworkTransport`. A local CLI and a fleet ignore it.
        reconnect_timeout: see `NetworkTransport`. Only for the URL of a server.
        max_line_bytes, strict: as for both transports.

    Raises:
        ConfigurationError: the URL is not valid, the CLI would refuse an option, or an argument is given that needs another `target`. Code
            `config.plugin_failed`: the plug-in with this scheme cannot be used; the message names the distribution.
    """
    if (
        isinstance(target, str)
        and (scheme := target.partition(":")[0].lower()) not in _BUILT_IN
        and (make := load_plugin("schemes", scheme))
    ):
        given = {
            "token": token,
            "ssl_context": ssl_context,
            "resume": None if resume else False,
            "reconnect_timeout": reconnect_timeout,
            "max_line_bytes": None if max_line_bytes == DEFAULT_MAX_LINE_BYTES else max_line_bytes,
            "strict": strict or None,
        }
        return _made(scheme, make, target, {name: value for name, value in given.items() if value is not None})
    if isinstance(target, str) and target.startswith(("redis:", "rediss:")):
        if reconnect_timeout is not None:
            message = "reconnect_timeout needs the URL of a server: the workers of a fleet set their own times"
            raise ConfigurationError(message, option="reconnect_timeout")
        make_fleet = load_late("claude_transport.fleet.transport", "FleetTransport")  # a program without a fleet loads none of it
        fleet: Transport = make_fleet(target, token=token, ssl_context=ssl_context, max_line_bytes=max_line_bytes, strict=strict)
        return fleet
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


def _made(scheme: str, make: Any, url: str, options: Mapping[str, Any]) -> Transport:
    """Return the transport that a plug-in makes. An error of this library is that of the URL; another one is the plug-in's."""
    try:
        transport = make(url, **options)
    except ClaudeTransportError:
        raise
    except Exception as exc:
        raise _failed(scheme, f"cannot make a transport ({type(exc).__name__}: {exc})") from exc
    if not isinstance(transport, Transport):
        raise _failed(scheme, f"makes a {type(transport).__name__} and no Transport")
    return transport


def _failed(scheme: str, what: str) -> ConfigurationError:
    return failed_plugin("schemes", f"the scheme {scheme}:// of {distribution_of('schemes', scheme)} {what}. Correct or remove it.")
