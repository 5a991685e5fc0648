"""`observe()`: the lines of a running session, wherever it runs. It finds out what is given, and returns the `Observation` for it."""

from __future__ import annotations

import re
import ssl
from typing import Final

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.launch.plugins import load_late
from claude_transport.protocol.observation import check_since
from claude_transport.serving.following import LocalObservation, Observation
from claude_transport.streams.address import parse_address
from claude_transport.transport import TransportLike, check_transport
from claude_transport.wrappers.base import TransportWrapper
from claude_transport.wrappers.observable import ObservableTransport

_SESSION: Final = re.compile(r"[\w-]{1,64}", re.ASCII)


def observe(
    url_or_transport: str | TransportLike,
    *,
    session: str | None,
    since: int | None = 0,
    token: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> Observation:
    """Watch a running session. Returns an async iterator over its lines in both directions, which ends when the session has ended.

    Any number of observers may watch one session. They can write nothing, and the session never waits for one. An observer that is too slow
    misses lines; a note among the lines says how many. Secrets and personal data are redacted, unless the owner of the session allows more.

    Args:
        url_or_transport: the `ws://` or `wss://` address of a gateway; the `redis://` or `rediss://` URL of the broker of a fleet; or a
            transport of this process that is an `ObservableTransport`, or has one inside. Its loop must be the one that runs.
        session: the id of the session of the gateway. A transport has only one, so None will do.
        since: the position of the last line that is known. 0 begins with the first line, None with the oldest one that is kept.
        token: the token of the observer, or of the session's owner.
        ssl_context: the client's side of `wss://`. By default it trusts the system's certificates and checks the name.

    Raises:
        ConfigurationError: an argument is not valid.
        UsageError: there is no `ObservableTransport` in the transport.

    The iteration raises `ReplayGap` when lines behind `since` are not kept any more, and `AuthenticationError` for a token that is not
    accepted. It raises `CLIConnectionError` when the gateway cannot be reached or has no such session, and `ConnectionLost` when the
    connection ends before the session does. Observe again with `since=observation.position` to go on.
    """
    since = check_since(since)
    if not isinstance(url_or_transport, str):
        kept = _kept_in(url_or_transport)
        return LocalObservation(kept.log, since=since, scrub=kept.scrub)
    if url_or_transport.startswith(("redis:", "rediss:")):
        if session is None or not _SESSION.fullmatch(session):
            raise ConfigurationError("session must be the id of a session: letters, digits, - and _", option="session")
        make = load_late("claude_transport.fleet.observing", "FleetObservation")
        observation: Observation = make(url_or_transport, session=session, since=since, ssl_context=ssl_context)
        return observation
    address = parse_address(url_or_transport)
    if not address.is_websocket:
        raise ConfigurationError(f"observers connect over HTTP, and {address.scheme}:// has none: use ws:// or wss://", option="url")
    if session is None or not _SESSION.fullmatch(session):
        raise ConfigurationError("session must be the id of a session: letters, digits, - and _", option="session")
    from claude_transport.observing.remote import RemoteObservation  # an observer of this process needs no network

    return RemoteObservation(address, session=session, since=since, token=token, ssl_context=ssl_context)


def _kept_in(transport: TransportLike) -> ObservableTransport:
    check_transport(transport, of="observe")
    kept = transport.find(ObservableTransport) if isinstance(transport, TransportWrapper) else None
    if kept is not None:
        return kept
    raise UsageError("this transport keeps no lines: wrap it in an ObservableTransport before it connects")
