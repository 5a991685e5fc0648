"""`RemoteObservation`: a session of a gateway, read as server-sent events."""

from __future__ import annotations

import base64
import ssl
from collections import deque
from typing import Final

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    ProtocolError,
    ReplayGap,
    without_secrets,
)
from claude_transport.protocol.observation import SCRUBBED_HEADER, ObservedLine, check_since
from claude_transport.protocol.server_sent_events import EventReader, ServerSentEvent
from claude_transport.protocol.tape import Direction
from claude_transport.serving.following import Observation
from claude_transport.streams.address import Address
from claude_transport.streams.http import HTTPStream, http_get
from claude_transport.streams.sockets import DEFAULT_CONNECT_TIMEOUT, SocketConnectable
from claude_transport.streams.tls import TLSConnectable
from claude_transport.text.printable import printable, redacted_head
from claude_transport.text.secret_forms import SECRET

_SILENCE: Final = 60.0
"""Seconds without a byte until the connection counts as lost. A gateway sends a heartbeat every 20 seconds."""

_MAX_SAID: Final = 500
"""Characters of a server's refusal that are shown."""
_READ_BYTES: Final = 2**14
"""Bytes of it that are read: a token on the cut is then seen whole."""

_RETRYABLE: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_KINDS: Final[dict[str, Direction]] = {"in": "in", "out": "out", "note": "note", "err": "err"}


class _Row(msgspec.Struct):
    """A record of a tape, as far as an observer needs it."""

    t: float = 0.0
    dir: str = "note"
    line: str = ""
    base64: str | None = None


class RemoteObservation(Observation):
    """Reads the events of one session of a gateway over one connection, which the first step of the iteration opens."""

    def __init__(self, address: Address, *, session: str, since: int | None, token: str | None, ssl_context: ssl.SSLContext | None) -> None:
        if ssl_context is not None and not address.is_encrypted:
            raise ConfigurationError("ssl_context needs an encrypted connection: use wss://", option="ssl_context")
        if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable() and " " not in token and token):
            raise ConfigurationError("a token is printable ASCII without blanks", option="token")
        self._address = address
        self._session = session
        self._since = since
        self._token = token
        self._ssl_context = ssl_context
        self._stream: HTTPStream | None = None
        self._reader = EventReader()
        self._lines: deque[ObservedLine] = deque()
        self._over = False

    async def __anext__(self) -> ObservedLine:
        try:
            while not self._lines:
                if self._over:
                    break
                await self._read()
        except ClaudeTransportError:
            await self.aclose()
            raise
        if not self._lines:
            await self.aclose()
            raise StopAsyncIteration
        line = self._lines.popleft()
        self.position: int = line.position
        return line

    async def aclose(self) -> None:
        """Close the connection. A later step of the iteration ends it."""
        self._over = True
        stream, self._stream = self._stream, None
        if stream is not None:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
        else:
            await anyio.lowlevel.checkpoint()

    async def _read(self) -> None:
        if self._stream is None:
            self._stream = await self._open()
            self.scrubbed: bool | None = {"true": True, "false": False}.get(self._stream.headers.get(SCRUBBED_HEADER, ""))
        try:
            with anyio.fail_after(_SILENCE):
                chunk = await self._stream.receive()
        except TimeoutError:
            raise ConnectionLost(f"{self._address}: the gateway has been silent for {_SILENCE:g} s") from None
        except anyio.EndOfStream:
            raise ConnectionLost(f"{self._address}: the connection has ended before the session") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as exc:
            raise ConnectionLost(f"{self._address}: the connection broke") from exc
        for event in self._reader.feed(chunk):
            self._take(event)

    def _take(self, event: ServerSentEvent) -> None:
        if event.kind == "end":
            self._over = True
        elif event.kind == "message":
            self._lines.append(_line_of(event))

    async def _open(self) -> HTTPStream:
        where = f"{self._address.target.partition('?')[0].rstrip('/')}/observe/{self._session}/events"
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        if self._since is not None:
            headers["last-event-id"] = str(self._since)
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        stream = await _opener(self._address, self._ssl_context).connect()
        try:
            with anyio.fail_after(DEFAULT_CONNECT_TIMEOUT):
                answer = await http_get(stream, where, host=f"{self._address.sent_host}:{self._address.port}", headers=headers)
                refusal = None if answer.status == 200 else await self._refusal(answer)
        except BaseException as exc:
            await _drop(stream)
            if isinstance(exc, TimeoutError):
                raise ConnectTimeout(f"{self._address}: the gateway has not answered", waited=DEFAULT_CONNECT_TIMEOUT) from None
            if isinstance(exc, anyio.EndOfStream | anyio.BrokenResourceError):
                raise CLIConnectionError(f"{self._address}: the gateway hung up before it answered") from exc
            raise
        if refusal is not None:
            await _drop(stream)
            raise refusal
        return answer

    async def _refusal(self, answer: HTTPStream) -> ClaudeTransportError:
        whole = (await answer.text(at_most=_READ_BYTES)).strip()
        said = printable(redacted_head(whole, self._without_token, at_most=_MAX_SAID), at_most=_MAX_SAID)
        message = f"{self._address}: refused with HTTP {answer.status}: {said}"
        if answer.status == 409:
            return ReplayGap(message)
        if answer.status in {401, 403}:
            return AuthenticationError(message, code="connect.auth_failed" if answer.status == 401 else "connect.forbidden")
        return CLIConnectionError(message, code=f"connect.http_{answer.status}", retryable=answer.status in _RETRYABLE)

    def _without_token(self, text: str) -> str:
        """Return `text` without secrets: a gateway may repeat the token that it refuses."""
        return without_secrets(text if self._token is None else text.replace(self._token, SECRET))


async def _drop(stream: ByteStream) -> None:
    with anyio.CancelScope(shield=True):
        await anyio.aclose_forcefully(stream)


def _line_of(event: ServerSentEvent) -> ObservedLine:
    try:
        row = msgspec.json.decode(event.data, type=_Row)
        line = row.line.encode() if row.base64 is None else base64.b64decode(row.base64, validate=True)
        position = check_since(int(event.id) if event.id.isascii() and event.id.isdecimal() else -1)
    except (msgspec.DecodeError, ConfigurationError, ValueError) as exc:
        raise ProtocolError("the gateway sent an event that is not the record of a line") from exc
    return ObservedLine(line, position=position or 0, t=row.t, direction=_KINDS.get(row.dir, "note"))


def _opener(address: Address, ssl_context: ssl.SSLContext | None) -> ByteStreamConnectable:
    opener: ByteStreamConnectable = SocketConnectable(address)
    if address.is_encrypted:
        opener = TLSConnectable(opener, hostname=address.host, address=str(address), ssl_context=ssl_context)
    return opener
