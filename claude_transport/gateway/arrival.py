"""From a new connection to a known client: handshakes, the first line, the owner of the token.

`Arrival` is a connection before admission, `Reception` does the handshakes and finds the owner, `AdmittedClient` is the client
after it. `door.py` decides whether a token is accepted. `gateway.py` calls all this and serves the client.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

import anyio
import msgspec
from anyio.abc import ByteStream
from anyio.streams.tls import TLSAttribute

from claude_transport.errors import ClaudeTransportError, ConfigurationError, ProtocolError
from claude_transport.gateway.observatory import Viewing
from claude_transport.gateway.session import GONE
from claude_transport.link.machine import LINK_VERSION, Hello, Refusal, decode_frame, encode_frame
from claude_transport.protocol.codec import is_torn
from claude_transport.serving.choices import check_answers
from claude_transport.serving.door import Door, GatewayLimits
from claude_transport.serving.listeners import local_address
from claude_transport.serving.pages import Page
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.streams.address import Address
from claude_transport.streams.compression import accept_compression
from claude_transport.streams.tls import TLSStream
from claude_transport.streams.websocket import USUAL_MESSAGE_BYTES, HandshakeRequest, HTTPAnswer, accept_websocket
from claude_transport.text.printable import printable

_CHUNK_BYTES: Final = 4096
"""Bytes read at a time before admission, so that a stranger costs no more memory."""

_MAX_PEER_CHARS: Final = 200
"""Characters of a peer's address. Behind a proxy it comes from a header."""

_LINGER: Final = 1.0
"""Seconds for a refused client to read the reason. Less when other connections need its place."""

_CLOSING: Final = 2.0
"""Seconds that closing a connection may take before it is dropped."""

MAX_FAREWELL: Final = _LINGER + _CLOSING
"""Seconds of both."""

Mode = Literal["link", "plain"]
_HELLO: Final = b"H "


class Authentication(msgspec.Struct, frozen=True, kw_only=True):
    """The `authenticate` line of a client in plain mode: its token, the options it chooses, and the callbacks it will answer."""

    token: str | None = None
    options: Mapping[str, Any] = {}
    answers: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"Authentication(options={sorted(self.options)}, answers={sorted(self.answers)})"


class AdmittedClient(msgspec.Struct, kw_only=True):
    """An admitted client: its owner, its mode, and its hello or its `authenticate` line. `unread` are the bytes that followed."""

    owner: str
    mode: Mode
    hello: Hello | None = None
    authentication: Authentication | None = None
    unread: bytes = b""

    @property
    def chosen(self) -> Mapping[str, Any]:
        """The options that the client chooses."""
        if self.hello is not None:
            return self.hello.options
        return {} if self.authentication is None else self.authentication.options


class Arrival:
    """A connection that is not admitted yet.

    Args:
        stream: the bytes of the connection.
        medium: how it came: `tcp`, `ws`, `asgi`, ….
        peer: the address of the client.
        token: the bearer token of the HTTP request.
        certified: the name in the client's certificate.
        trust: called when the client is admitted. A medium that bounds what a stranger may send lifts that bound.
    """

    def __init__(
        self,
        stream: ByteStream,
        *,
        medium: str,
        peer: str = "",
        token: str | None = None,
        certified: str | None = None,
        trust: Callable[[], object] | None = None,
    ) -> None:
        self.stream = stream
        self.medium = medium
        self.peer: str = printable(peer, at_most=_MAX_PEER_CHARS)
        self.token = token
        self.certified = certified
        self._trust = trust
        self.viewing: Viewing | None = None
        """What an observer has asked for. Such a connection has no first line."""
        self._speaks_link = False
        self._unread = bytearray()

    def admitted(self) -> None:
        """Note that the client is admitted."""
        if self._trust is not None:
            self._trust()

    async def first_line(self, *, max_bytes: int, whole: bool = True) -> bytes:
        """Read the first line that is not blank and return it without its end. It stays unread until `take_line()`.

        With `whole=False`, a line in plain mode may be longer than `max_bytes`: then its first `max_bytes` bytes are returned.

        Raises:
            TurnedAway: the line is longer than `max_bytes`, or begins neither a hello nor a JSON object.
            anyio.EndOfStream: the client left before the line was complete.
        """
        unread = self._unread
        searched = 0  # each byte is searched once, however small the pieces are
        while True:
            while unread.startswith((b"\r", b"\n")):
                del unread[0]
            # refuse an HTTP request, which any web page can send, as soon as it shows
            if not unread.startswith((b"{", _HELLO[: len(unread)])):
                raise TurnedAway("malformed", "the first line is neither a JSON object nor a hello")
            self._speaks_link = _mode_of(unread) == "link"
            end = unread.find(b"\n", searched)
            if 0 <= end <= max_bytes:
                return bytes(unread[:end]).removesuffix(b"\r")
            if len(unread) > max_bytes:
                if whole or self._speaks_link:
                    raise TurnedAway("malformed", f"the first line is longer than {max_bytes} bytes")
                return bytes(unread[:max_bytes])
            searched = len(unread)
            try:
                unread += await self.stream.receive(_CHUNK_BYTES)
            except anyio.EndOfStream:
                if not unread or unread.startswith(_HELLO[:1]) or is_torn(bytes(unread)):
                    raise  # the network cut a hello or an object: this is not the client's mistake
                unread += b"\n"  # the last line of a client may lack its newline

    def take_line(self) -> None:
        """Remove the line that `first_line()` has returned from the unread bytes."""
        del self._unread[: self._unread.index(b"\n") + 1]

    def take_unread(self) -> bytes:
        """Return the unread bytes, and remove them."""
        unread = bytes(self._unread)
        self._unread.clear()
        return unread

    async def explain(self, refused: TurnedAway) -> None:
        """Tell the client why it is refused, in the mode that it speaks, and wait a moment for it to close. Ignores a lost connection."""
        if not refused.audible:
            return
        if self._speaks_link:
            last_words = encode_frame(Refusal(code=refused.reason, text=str(refused), retryable=refused.retryable))
        else:
            last_words = refused.encode()
        with anyio.move_on_after(_LINGER):
            try:
                await self.stream.send(last_words)
                await self.stream.send_eof()
                while True:
                    await self.stream.receive()
            except (*GONE, ClaudeTransportError):
                pass  # the client has gone

    async def close(self) -> None:
        """Close the connection. Gives up after two seconds: `drop()` then closes it by force."""
        with anyio.move_on_after(_CLOSING):
            try:
                await self.stream.aclose()
            except (*GONE, ClaudeTransportError):
                pass  # it is closed already

    async def bid_farewell(self) -> None:
        """End the sending side and wait a second at most until the client has read everything."""
        with anyio.move_on_after(_LINGER):
            try:
                await self.stream.send_eof()
                await self.stream.receive(_CHUNK_BYTES)
            except (*GONE, ClaudeTransportError):
                pass  # it has gone without

    async def drop(self) -> None:
        """Close the connection without waiting for the client: a stranger could keep its place by not answering."""
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self.stream)


def _mode_of(line: bytes | bytearray) -> Mode:
    return "link" if line.startswith(_HELLO) else "plain"


class _FirstLine(msgspec.Struct, frozen=True):
    type: str = ""
    token: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    answers: list[str] = msgspec.field(default_factory=list)


def _read_authentication(line: bytes) -> Authentication | None:
    """Read an `authenticate` line. Return None for any other line, which is for the process; raise `TurnedAway` for a broken one."""
    if not re.search(rb'"authenticate"', line):
        return None
    try:
        said = msgspec.json.decode(line, type=_FirstLine)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as exc:
        raise TurnedAway("malformed", "the first line is not a valid authenticate line") from exc
    if said.type != "authenticate":
        return None
    return Authentication(token=said.token, options=said.options, answers=check_answers(said.answers))


_ROOM_FOR_FRAMES: Final = 64 * 2**10
"""Bytes that a WebSocket message may have beyond its lines, for the frames of the link protocol."""

_UNCOMPRESSED: Final = frozenset({"tcp", "tls", "unix"})
"""Media in which a client may begin with the magic bytes of zstd. WebSocket has its own compression."""


class Reception:
    """Does the handshakes of every medium, reads the first line, and finds the owner.

    Args:
        door: decides who is admitted.
        limits: sizes and times of a handshake.
        page: answers plain HTTP requests, as `Gateway.page()`.
        observe: answers the requests of observers, as `Gateway.observe()`.
        check_upgrade: raises `TurnedAway` for a refused WebSocket request, as `Gateway.check_upgrade()`.
        modes: the modes that this gateway speaks.
        ssl_context: for `tls://` and `wss://`.
        compression: agree to compression when the client asks for it.
    """

    def __init__(
        self,
        door: Door,
        *,
        limits: GatewayLimits,
        page: Callable[..., Page | None],
        observe: Callable[..., Page | Viewing | None],
        check_upgrade: Callable[..., None],
        modes: frozenset[Mode],
        ssl_context: ssl.SSLContext | None,
        compression: bool,
    ) -> None:
        self._door = door
        self._limits = limits
        self._page = page
        self._observe = observe
        self._check_upgrade = check_upgrade
        self._modes = modes
        self._ssl_context = ssl_context
        self._compression = compression

    async def shake_hands(self, stream: ByteStream, *, address: Address, peer: str) -> Arrival | None:
        """Do the handshakes of TLS and WebSocket that `address` asks for.

        Returns:
            The connection; None when it was a plain HTTP request, which is answered and closed. That of an observer has its `viewing`.
        """
        certified = None
        here = local_address(stream)
        if address.is_encrypted and self._ssl_context is not None:
            stream = await TLSStream.wrap(stream, ssl_context=self._ssl_context, server_side=True)
            certified = _certified_name(stream)
        token, trust = None, None
        if address.is_websocket:
            shown: list[HandshakeRequest | Viewing] = []
            accepted = await accept_websocket(
                stream,
                admit=lambda request: self._admit_request(request, address, certified, shown, here),
                allowed_origins=None,
                compression=self._compression,
                # a client may put several short lines into one message of the usual size, however small `line_bytes` is
                max_message_bytes=max(self._limits.line_bytes, USUAL_MESSAGE_BYTES) + _ROOM_FOR_FRAMES,
                max_first_bytes=self._limits.first_line_bytes + _CHUNK_BYTES,
                max_request_bytes=self._limits.first_line_bytes,
                handshake_timeout=self._limits.handshake_timeout,
            )
            if accepted is None:
                return _observer(stream, shown, medium=address.scheme, peer=peer)
            stream, trust = accepted, accepted.trust_peer
            token = next(each.bearer_token for each in shown if isinstance(each, HandshakeRequest))
        return Arrival(stream, medium=address.scheme, peer=peer, token=token, certified=certified, trust=trust)

    async def identify(self, arrival: Arrival) -> AdmittedClient | None:
        """Find the client before admission. Reads the first line only when the token can come from it.

        Returns:
            The client, or None when the first line was not read: then call `hear()` after admission.

        Raises:
            TurnedAway: the token is missing or not accepted, or the first line is not valid.
        """
        if not self._door.needs_token or arrival.token is not None:
            self._door.admit(arrival.token, certified=arrival.certified)  # refuse a wrong token before the first line
            return None
        return await self.hear(arrival)

    async def hear(self, arrival: Arrival) -> AdmittedClient:
        """Read the first line and return the client. Before admission the caller must bound the wait; afterwards it is not bounded."""
        known = not self._door.needs_token or arrival.token is not None
        if self._modes == {"plain"} and known:
            # the mode is clear: a client may listen before it says anything
            return AdmittedClient(
                owner=self._door.admit(arrival.token, certified=arrival.certified), mode="plain", unread=arrival.take_unread()
            )
        if self._compression and arrival.medium in _UNCOMPRESSED:
            try:
                arrival.stream = await accept_compression(arrival.stream)
            except ConfigurationError as exc:
                raise TurnedAway("malformed", "this gateway does not know zstd") from exc
        line = await arrival.first_line(max_bytes=self._limits.first_line_bytes, whole=not known)
        mode = _mode_of(line)
        if mode not in self._modes:
            raise TurnedAway("mode", f"this gateway does not speak {mode} mode")
        return self._hear_hello(arrival, line) if mode == "link" else self._hear_plain(arrival, line)

    def _hear_hello(self, arrival: Arrival, line: bytes) -> AdmittedClient:
        try:
            hello = cast("Hello", decode_frame(line))  # a frame that begins with H is no other one
        except ProtocolError as exc:
            raise TurnedAway("malformed", str(exc)) from exc
        if hello.version < LINK_VERSION:
            raise TurnedAway("malformed", f"the client speaks an older link protocol than version {LINK_VERSION} of this gateway")
        owner = self._owner(arrival, hello.token)
        arrival.take_line()
        return AdmittedClient(owner=owner, mode="link", hello=hello, unread=arrival.take_unread())

    def _hear_plain(self, arrival: Arrival, line: bytes) -> AdmittedClient:
        authentication = _read_authentication(line)
        owner = self._owner(arrival, None if authentication is None else authentication.token)
        if authentication is not None:
            arrival.take_line()
        return AdmittedClient(owner=owner, mode="plain", authentication=authentication, unread=arrival.take_unread())

    def _owner(self, arrival: Arrival, said: str | None) -> str:
        """Return the owner of the token in the first line and of the one in the HTTP header. They must have the same owner."""
        owner = self._door.admit(said if said is not None else arrival.token, certified=arrival.certified)
        if arrival.token is not None and self._door.admit(arrival.token, certified=arrival.certified) != owner:
            raise TurnedAway("auth", "the tokens of the first line and of the header have different owners")
        return owner

    def _admit_request(
        self, request: HandshakeRequest, address: Address, certified: str | None, shown: list[HandshakeRequest | Viewing], here: str | None
    ) -> HTTPAnswer | None:
        """Return the plain HTTP answer, or None to open the WebSocket. Its token may be absent: a hello can still bring one."""
        host = request.headers.get("host")
        page = self._page(request.path, token=request.bearer_token, host=host, here=here, method=request.method)
        if page is not None:
            return HTTPAnswer(status=page.status, text=page.text, headers=page.headers)
        seen = self._observe(request, below=address.target.partition("?")[0], certified=certified, here=here)
        if isinstance(seen, Viewing):
            if request.method == "GET":
                shown.append(seen)
            return HTTPAnswer(status=200, headers=seen.headers, stays_open=True)
        if seen is not None:
            return HTTPAnswer(status=seen.status, text=seen.text, headers=seen.headers)
        if request.path.partition("?")[0] != address.target.partition("?")[0]:
            return HTTPAnswer(status=404, text="There is nothing here.\n")
        try:
            self._check_upgrade(origin=request.origin, token=request.bearer_token, certified=certified)
        except TurnedAway as exc:
            return HTTPAnswer(status=exc.status, text=f"{exc}\n", headers=exc.headers)
        shown.append(request)
        return None


def _observer(stream: ByteStream, shown: list[HandshakeRequest | Viewing], *, medium: str, peer: str) -> Arrival | None:
    """Return the connection of an observer, whose answer has begun; None for every other answered request."""
    viewing = next((each for each in shown if isinstance(each, Viewing)), None)
    if viewing is None:
        return None
    arrival = Arrival(stream, medium=medium, peer=peer)
    arrival.viewing = viewing
    return arrival


def _certified_name(stream: TLSStream) -> str | None:
    """Return the common name in the client's certificate, or else its first alternative name; None without a certificate."""
    certificate: Any = stream.extra(TLSAttribute.peer_certificate, None)  # noqa: S610 - anyio's method, not Django's
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    names += [value for _, value in certificate.get("subjectAltName", ())]
    return str(names[0]) if names else str(certificate.get("serialNumber", "nameless"))
