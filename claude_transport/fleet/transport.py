"""`FleetTransport`: a transport to a session on a fleet of workers, through a Redis or Valkey server."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.fleet.broker import BrokerAddress
from claude_transport.fleet.messages import DEFAULT_WINDOW_BYTES
from claude_transport.fleet.placement import MAX_WORKSPACE_BYTES, Wanted
from claude_transport.fleet.secrets import check_no_secrets
from claude_transport.fleet.stream import DEFAULT_START_TIMEOUT, FleetConnectable, FleetStream, SessionRequest
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.framing import DEFAULT_MAX_LINE_BYTES
from claude_transport.streams.address import check_text
from claude_transport.text.printable import is_encodable
from claude_transport.transport import Client, SessionTerms, TransportInfo
from claude_transport.transports.network import chosen_options
from claude_transport.transports.stream import DEFAULT_STREAM_CLOSE_TIMEOUT, StreamTransport, check_bounds

_FORCE_AFTER = 1.0
"""Seconds after its own timeout until the stream is closed by force."""

_MOST_KEPT = 100_000

_BOOKMARK: Final = re.compile(r"(\d{1,15})@((?:\d{1,15}\.[\w-]{0,64})?)", re.ASCII)


class FleetTransport(StreamTransport, at_once=True):
    """A transport to a session on a fleet, through the broker at `url`: `redis://user:password@host:port/database`, or `rediss://…`.

    Without `session`, a new one begins: the broker keeps it until a worker takes it. With the id of a running one, this client takes
    the place of the one that began it, and reads on behind what that one has read, or behind `since`. Each line arrives exactly once,
    whatever dies. There is one exception: a client that was replaced while it lives may read on until it is told. The new client waits
    up to 0.3 seconds for it, and lines that the older one reads later than that reach both. When a worker dies in the middle of a turn,
    the turn is told as uncertain, and is not repeated.

    Args:
        url: the broker. `?prefix=NAME` is the beginning of all its keys, `claude-fleet` by default. With `?owner=NAME`, the id of a new
            session begins with `NAME.`: a user of the broker may then have rights on its own sessions only.
        session: the id of a running session (`transport.session`).
        options: the options that the worker should start its CLI with, as for a `NetworkTransport`. They are kept in the broker, so a
            secret in `env` or `mcp_servers` is written as `secret:NAME`, and the worker knows it under that name.
        token: what the workers of the fleet ask for. It is not sent, and not kept in the broker: a proof is.
        since: the position behind which to read (`transport.position`), or a `transport.bookmark`, with which output that the broker has
            lost and replaced is a `ReplayGap`. Only with `session`.
        labels: labels that the worker must have.
        workspace: a name for what the session works on, up to 1024 bytes. Its sessions go to the same worker, as long
            as that one lives and has room.
        keep: entries of the output that stay in the broker after this client has read them, for observers and for clients that go back.
        ssl_context: the client's side of `rediss://`. By default it trusts the system's certificates and checks the name.
        window: bytes of input that may wait for the process.
        start_timeout: seconds for a worker to take the session and start the process, waiting in the queue included.
        max_line_bytes, close_timeout, strict: as for a `NetworkTransport`.

    Raises:
        ConfigurationError: the arguments contradict each other.
    """

    def __init__(
        self,
        url: str,
        *,
        session: str | None = None,
        options: ClaudeOptions | Mapping[str, Any] | None = None,
        token: str | None = None,
        since: int | str | None = None,
        labels: Sequence[str] = (),
        workspace: str | None = None,
        keep: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        window: int = DEFAULT_WINDOW_BYTES,
        start_timeout: float = DEFAULT_START_TIMEOUT,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
        close_timeout: float = DEFAULT_STREAM_CLOSE_TIMEOUT,
        strict: bool = False,
    ) -> None:
        _check_texts(session=session, token=token, workspace=workspace, labels=labels)
        position, said_by = _read_since(since, session=session)
        if isinstance(keep, bool) or not isinstance(keep, int) or not 0 <= keep <= _MOST_KEPT:
            raise ConfigurationError(f"keep must be a whole number from 0 to {_MOST_KEPT}, not {keep!r}", option="keep")
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ConfigurationError(f"window must be a whole number of at least 1 byte, not {window!r}", option="window")
        check_bounds(start_timeout=start_timeout, close_timeout=close_timeout)
        address = BrokerAddress(url, ssl_context=ssl_context)
        chosen = chosen_options(options)
        check_no_secrets(chosen)
        if session is not None and (chosen or labels or workspace):
            raise ConfigurationError(
                "options, labels and workspace are for a new session, and session names a running one", option="session"
            )
        wanted = Wanted(labels=tuple(labels), workspace=workspace or "", options=chosen)
        request = SessionRequest(session=session, since=position, said_by=said_by, token=token, wanted=wanted, keep=keep)
        self._fleet = FleetConnectable(address, request, window=window, start_timeout=start_timeout, close_timeout=close_timeout)
        super().__init__(self._fleet, max_line_bytes=max_line_bytes, close_timeout=close_timeout + _FORCE_AFTER, strict=strict)
        self._structured_output = bool(chosen.get("output_format"))
        self._address = str(address)

    def attach(self, client: Client) -> SessionTerms:
        """Note which questions of the CLI `client`, the layer above, answers, and its trace. Returns `SessionTerms`."""
        request = self._fleet.request
        wanted = msgspec.structs.replace(request.wanted, answers=sorted(client.answers), trace=_sendable(client.trace))
        self._fleet.request = msgspec.structs.replace(request, wanted=wanted)
        return msgspec.structs.replace(super().attach(client), structured_output=self._structured_output)

    @property
    def session(self) -> str | None:
        """The id of the session; None before a new one is connected. With it, another client can take its place."""
        return self._stream.session if isinstance(self._stream, FleetStream) else self._fleet.request.session

    @property
    def position(self) -> int:
        """The position of the last output that was read: `since` for a client elsewhere that goes on."""
        return self._stream.position if isinstance(self._stream, FleetStream) else self._fleet.request.since or 0

    @property
    def bookmark(self) -> str:
        """The position with the worker that said it, such as `"12@1.9f3a"`: a safer `since` than `position`.

        After a power cut of the broker another worker may say other lines under the same positions. A position does not show that.
        """
        said_by = self._stream.said_by if isinstance(self._stream, FleetStream) else ""
        if self.position == self._fleet.request.since:  # nothing was read
            said_by = self._fleet.request.said_by
        return f"{self.position}@{said_by}"

    async def detach(self) -> None:
        """Leave the session without ending it. Another client can come back to it within a minute."""
        if isinstance(self._stream, FleetStream):
            await self._stream.detach()
        await self.close()

    @property
    def info(self) -> TransportInfo:
        """What is known about the connection and the remote process now; `address` is the broker, without its password."""
        return msgspec.structs.replace(super().info, address=self._address)


def _sendable(trace: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of a trace context that UTF-8 can hold. Workers take no others."""
    return {name: value for name, value in trace.items() if is_encodable(name) and is_encodable(value)}


def _check_texts(*, session: object, token: object, workspace: object, labels: object) -> None:
    """Raise `ConfigurationError` for an argument that cannot be sent."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise ConfigurationError("labels is not a list of texts", option="labels")
    for label in labels:
        check_text(label, option="labels")
    for option, value in (("session", session), ("token", token), ("workspace", workspace)):
        if value is not None:
            check_text(value, option=option)
    if isinstance(token, str) and not token.strip():
        raise ConfigurationError("token must be a string that is not blank, or None", option="token")
    if isinstance(workspace, str) and len(workspace.encode()) > MAX_WORKSPACE_BYTES:
        raise ConfigurationError(f"workspace may have up to {MAX_WORKSPACE_BYTES} bytes", option="workspace")


def _read_since(since: object, *, session: str | None) -> tuple[int | None, str]:
    """Return the position, and the worker that said it. Raises `ConfigurationError` for anything else than a position of a session."""
    if since is None:
        return None, ""
    found = _BOOKMARK.fullmatch(since) if isinstance(since, str) else None
    position = int(found[1]) if found else since
    if session is None or not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise ConfigurationError("since is a position or a bookmark of a running session, so it needs session", option="since")
    return position, found[2] if found else ""
