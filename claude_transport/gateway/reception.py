"""`Reception`: from a connection to a client who is known, and has said what it wants."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSAttribute

from claude_transport.errors import ConfigurationError, ProtocolError
from claude_transport.gateway.arrival import Arrival, Authentication, Mode, mode_of, read_authentication
from claude_transport.gateway.door import Door, GatewayLimits
from claude_transport.gateway.health import Health
from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.protocol.link import LINK_VERSION, Hello, decode_frame
from claude_transport.streams.address import Address
from claude_transport.streams.compression import accept_compression
from claude_transport.streams.tls import TLSStream
from claude_transport.streams.websocket import USUAL_MESSAGE_BYTES, HandshakeRequest, HTTPAnswer, accept_websocket

_ROOM_FOR_FRAMES: Final = 64 * 2**10
"""Bytes that a message may have beyond its lines, for what the frames of a link add to them."""

_UNCOMPRESSED: Final = frozenset({"tcp", "tls", "unix"})
"""Media in which a client may begin with the magic bytes of zstd; a WebSocket has a compression of its own."""


class Guest(msgspec.Struct, kw_only=True):
    """A client that was admitted: its `owner`, its language, and its first words in it. `unread` is what it has said beyond them."""

    owner: str
    mode: Mode
    hello: Hello | None = None
    authentication: Authentication | None = None
    unread: bytes = b""

    @property
    def chosen(self) -> Mapping[str, Any]:
        """The options it would like."""
        if self.hello is not None:
            return self.hello.options
        return {} if self.authentication is None else self.authentication.options


class Reception:
    """Shakes hands in every medium, and asks who is there. `modes` are the languages that are spoken here."""

    def __init__(
        self,
        door: Door,
        *,
        limits: GatewayLimits,
        health: Health,
        modes: frozenset[Mode],
        ssl_context: ssl.SSLContext | None,
        compression: bool,
        on_refusal: Callable[[TurnedAway], object],
    ) -> None:
        self._door = door
        self._limits = limits
        self._health = health
        self._modes = modes
        self._ssl_context = ssl_context
        self._compression = compression
        self._on_refusal = on_refusal

    async def shake_hands(self, stream: ByteStream, *, address: Address, peer: str) -> Arrival | None:
        """The connection inside TLS and WebSocket, as the address asks for; None when it was answered by plain HTTP and is closed."""
        certified = None
        here = _local_address(stream)
        if address.is_encrypted and self._ssl_context is not None:
            stream = await TLSStream.wrap(stream, ssl_context=self._ssl_context, server_side=True)
            certified = _certified_name(stream)
        token = None
        if address.is_websocket:
            shown: list[HandshakeRequest] = []
            accepted = await accept_websocket(
                stream,
                admit=lambda request: self._admit_request(request, address, certified, shown, here),
                allowed_origins=None,
                compression=self._compression,
                # clients join short lines to messages of the usual size, however short a line has to be
                max_message_bytes=max(self._limits.line_bytes, USUAL_MESSAGE_BYTES) + _ROOM_FOR_FRAMES,
                max_request_bytes=self._limits.first_line_bytes,
                handshake_timeout=self._limits.handshake_timeout,
            )
            if accepted is None:
                return None
            stream, token = accepted, shown[0].bearer_token
        return Arrival(stream, medium=address.scheme, peer=peer, token=token, certified=certified)

    async def identify(self, arrival: Arrival) -> Guest | None:
        """Who it is, as far as that can be known without waiting for a client that is admitted already: for those, None.

        Raises:
            TurnedAway: it is nobody, or speaks no language that is spoken here.
        """
        if not self._door.needs_token or arrival.token is not None:
            self._door.admit(arrival.token, certified=arrival.certified)  # a token that is nobody's needs no first line
            return None
        return await self.hear(arrival)

    async def hear(self, arrival: Arrival) -> Guest:
        """The client and its first words. Waits for them: before admission the caller bounds it, afterwards the client's leaving."""
        known = not self._door.needs_token or arrival.token is not None
        if self._modes == {"plain"} and known:
            # nothing has to be told apart: a client may listen before it says anything
            return Guest(owner=self._door.admit(arrival.token, certified=arrival.certified), mode="plain", unread=arrival.take_unread())
        if self._compression and arrival.medium in _UNCOMPRESSED:
            arrival.stream = await _uncompressed(arrival.stream)
        line = await arrival.first_line(max_bytes=self._limits.first_line_bytes, whole=not known)
        mode = mode_of(line)
        if mode not in self._modes:
            raise TurnedAway("mode", f"this gateway does not speak {mode} mode")
        return self._hear_hello(arrival, line) if mode == "link" else self._hear_plain(arrival, line)

    def _hear_hello(self, arrival: Arrival, line: bytes) -> Guest:
        try:
            hello = decode_frame(line)
        except ProtocolError as exc:
            raise TurnedAway("malformed", str(exc)) from exc
        if not isinstance(hello, Hello):  # pragma: no cover - what begins like a hello is one
            raise TurnedAway("malformed", "the first frame is no hello")
        if hello.version < LINK_VERSION:
            raise TurnedAway("malformed", f"this gateway speaks version {LINK_VERSION} of the link protocol")
        owner = self._owner(arrival, hello.token)
        arrival.take_line()
        return Guest(owner=owner, mode="link", hello=hello, unread=arrival.take_unread())

    def _hear_plain(self, arrival: Arrival, line: bytes) -> Guest:
        authentication = read_authentication(line)
        owner = self._owner(arrival, None if authentication is None else authentication.token)
        if authentication is not None:
            arrival.take_line()
        return Guest(owner=owner, mode="plain", authentication=authentication, unread=arrival.take_unread())

    def _owner(self, arrival: Arrival, said: str | None) -> str:
        """The owner by the token of the first line and by that of the header, which have to agree when there are both."""
        owner = self._door.admit(said if said is not None else arrival.token, certified=arrival.certified)
        if arrival.token is not None and self._door.admit(arrival.token, certified=arrival.certified) != owner:
            raise TurnedAway("auth", "there are two tokens, of different owners")
        return owner

    def _admit_request(
        self, request: HandshakeRequest, address: Address, certified: str | None, shown: list[HandshakeRequest], here: str | None
    ) -> HTTPAnswer | None:
        """The answer in plain HTTP, or None for a WebSocket that may be opened; a token in a hello may still come."""
        page = self._health.answer(request.path, token=request.bearer_token, host=request.headers.get("host"), here=here)
        if page is not None:
            return HTTPAnswer(status=page.status, text=page.text, headers=page.headers)
        if request.path.partition("?")[0] != address.target.partition("?")[0]:
            return HTTPAnswer(status=404, text="There is nothing here.\n")
        try:
            self._door.check_origin(request.origin)
            if request.bearer_token is not None:
                self._door.admit(request.bearer_token, certified=certified)
        except TurnedAway as exc:
            self._on_refusal(exc)
            headers = {"www-authenticate": "Bearer"} if exc.status == 401 else {}
            return HTTPAnswer(status=exc.status, text=f"{exc}\n", headers=headers)
        shown.append(request)
        return None


async def _uncompressed(stream: ByteStream) -> ByteStream:
    try:
        return await accept_compression(stream)
    except ConfigurationError as exc:
        raise TurnedAway("malformed", "this gateway does not know zstd") from exc


def _local_address(stream: ByteStream) -> str | None:
    """The address of this machine that the client has connected to; None when that is no socket."""
    raw: socket.socket | None = stream.extra(SocketAttribute.raw_socket, None)  # noqa: S610 - anyio's method, not Django's
    try:
        name = None if raw is None else raw.getsockname()
    except OSError:
        return None  # it is gone
    return str(name[0]) if isinstance(name, tuple) else None


def _certified_name(stream: TLSStream) -> str | None:
    """Whom the client's certificate names, when it had to show one: its common name, or the first of the alternative ones."""
    certificate: Any = stream.extra(TLSAttribute.peer_certificate, None)  # noqa: S610 - anyio's method, not Django's
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    names += [value for _, value in certificate.get("subjectAltName", ())]
    return str(names[0]) if names else str(certificate.get("serialNumber", "nameless"))
