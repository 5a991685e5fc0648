"""The server side of one HTTP/1.1 connection: h11 over an anyio byte stream, bounded and strict.

Owns requests, responses and their limits; knows nothing of JSON. The caller is `fake_messages_api`, which imports this module only
when a server starts: `h11` comes with the extra `testing`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TypeVar

import anyio
import h11
import msgspec
from anyio.abc import ByteStream

from claude_transport.errors import ConnectionLost, ProtocolError

T = TypeVar("T")

MAX_HEAD_BYTES = 64 * 1024
MAX_CHUNK_LINE_BYTES = 1024  # bound of an unfinished chunk header, and of all trailers
MAX_PROBLEM_CHARACTERS = 200  # h11 quotes the invalid line, which may be long
LINGER = 1.0  # seconds to let the client read the last bytes before the socket closes
REASONS = {**{status.value: status.phrase for status in HTTPStatus}, 529: "Overloaded"}


class BadRequest(ProtocolError):
    """The client sent an invalid HTTP request. `status` is the status code to answer before the connection closes."""

    code = "testing.http.bad_request"

    def __init__(self, message: str = "", *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class PeerGone(ConnectionLost):
    """The client closed the connection before its answer was complete."""

    code = "testing.http.peer_gone"


class HTTPRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `target` is path and query. Header names are lower case; repeated headers are joined with a comma."""

    method: str
    target: str
    version: str
    headers: dict[str, str]
    body: bytes

    @property
    def keep_alive(self) -> bool:
        """True when the client wants to send another request on this connection."""
        options = {option.strip() for option in self.headers.get("connection", "").lower().split(",")}
        return "keep-alive" in options if self.version == "1.0" else "close" not in options


class HTTPConnection:
    """Read requests from `stream` and answer them, one after the other.

    `max_body_bytes` bounds a request body (status 413 beyond it). `request_timeout` bounds the seconds from the first byte of a
    request to its last (status 408). All methods that send raise `PeerGone` when the client is gone.
    """

    def __init__(self, stream: ByteStream, *, max_body_bytes: int, request_timeout: float) -> None:
        self._stream = stream
        self._max_body_bytes = max_body_bytes
        self._request_timeout = request_timeout
        self._pending = bytearray()  # received, and not given to h11 yet
        self._exchange = h11.Connection(h11.SERVER)
        self._request: HTTPRequest | None = None

    async def read_request(self) -> HTTPRequest | None:
        """Read the next request. Returns None when the client has closed the connection, even in the middle of a request.

        Waits without limit for the first byte; closing the connection ends that wait. Raises `BadRequest`.
        """
        self._request = None
        try:
            while not self._pending.lstrip(b"\r\n"):
                self._pending.clear()
                await self._receive()
            # A new h11 connection for each request: h11 refuses empty lines before a request, and never keeps HTTP/1.0 alive.
            self._exchange = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
            with anyio.fail_after(self._request_timeout):
                self._request = await self._read_whole()
        except TimeoutError:
            raise BadRequest("the request did not arrive in time", status=408) from None
        except PeerGone:
            return None
        return self._request

    async def respond(self, status: int, *, headers: Mapping[str, str], body: bytes, head_only: bool = False) -> None:
        """Send a complete response; with `head_only`, its head without the body."""
        head = self._encode(_response(status, {**headers, "content-length": str(len(body))}))
        if self._request is not None and self._request.version == "1.0" and self._request.keep_alive:
            head = head.replace(b"Connection: close\r\n", b"Connection: keep-alive\r\n")  # h11 never offers it to HTTP/1.0
        data = () if head_only else (h11.Data(data=body),)
        await self._send(head + self._encode(*data, h11.EndOfMessage()))

    async def start_stream(self, *, headers: Mapping[str, str]) -> None:
        """Start a response with status 200 and unknown length: chunked, or until the connection closes for HTTP/1.0."""
        await self._send(self._encode(_response(200, headers)))

    async def send_part(self, data: bytes) -> None:
        """Send a piece of the streamed body."""
        if data:
            await self._send(self._encode(h11.Data(data=data)))

    async def end_stream(self) -> None:
        """End the streamed body."""
        await self._send(self._encode(h11.EndOfMessage()))

    async def send_fragment(self, status: int, *, headers: Mapping[str, str], body: bytes, sent: int) -> None:
        """Announce the whole `body` but send only its first `sent` bytes. The connection must be closed after that."""
        response = _response(status, {**headers, "content-length": str(len(body))})
        await self._send(self._encode(response, h11.Data(data=body[:sent])))

    async def wait(self, wait: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `wait()`. Raises `PeerGone` as soon as the client closes the connection meanwhile."""
        outcome: list[T] = []

        async def watch() -> None:
            try:
                while len(self._pending) <= self._max_body_bytes:
                    await self._receive()
            except PeerGone:
                task_group.cancel_scope.cancel()

        async with anyio.create_task_group() as task_group:
            task_group.start_soon(watch)
            outcome.append(await wait())
            task_group.cancel_scope.cancel()
        if not outcome:
            raise PeerGone("the client hung up while its answer was being prepared")
        return outcome[0]

    async def hang_up(self) -> None:
        """End our side, then discard what the client sends for at most `LINGER` seconds, so that it can read our last bytes."""
        with anyio.move_on_after(LINGER):
            try:
                await self._stream.send_eof()
                while True:
                    await self._stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                pass  # the client has closed the connection already

    async def _read_whole(self) -> HTTPRequest:
        del self._pending[: len(self._pending) - len(self._pending.lstrip(b"\r\n"))]
        method, target, version, headers = await self._read_head()
        body = bytearray()
        if self._exchange.they_are_waiting_for_100_continue:
            await self._send(self._encode(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")))
        while isinstance(event := await self._next_event(in_body=True), h11.Data):
            body += event.data
            if len(body) > self._max_body_bytes:
                raise self._too_large()
        trailers = event.headers if isinstance(event, h11.EndOfMessage) else ()
        if sum(len(name) + len(value) for name, value in trailers) > MAX_CHUNK_LINE_BYTES:
            raise BadRequest(f"the trailers exceed {MAX_CHUNK_LINE_BYTES} bytes", status=431)
        self._pending += self._exchange.trailing_data[0]
        return HTTPRequest(method=method, target=target, version=version, headers=headers, body=bytes(body))

    async def _read_head(self) -> tuple[str, str, str, dict[str, str]]:
        """Return method, target, version ("1.1" or "1.0") and headers."""
        raw = bytearray()
        request = await self._next_event(raw=raw)
        assert isinstance(request, h11.Request)  # noqa: S101 - h11 gives nothing else before the body
        del raw[len(raw) - len(self._exchange.trailing_data[0]) :]
        if len(raw) > MAX_HEAD_BYTES:
            raise BadRequest(f"the request head exceeds {MAX_HEAD_BYTES} bytes", status=431)
        # h11 accepts both of these; a client should not come to rely on them
        if re.search(rb"(?<!\r)\n", raw):
            raise BadRequest("lines must end in CR LF")
        if re.search(rb"\n[ \t]", raw):
            raise BadRequest("a header must not continue on a second line")
        major, _, minor = request.http_version.decode("ascii").partition(".")
        if major != "1":
            raise BadRequest(f"HTTP/{major}.{minor} is not supported: use HTTP/1.1", status=505)
        version = "1.0" if minor == "0" else "1.1"
        headers: dict[str, str] = {}
        for name, value in request.headers:
            key, text = name.decode("ascii"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        self._check_body_headers(headers, version=version)
        return request.method.decode("ascii"), _origin_form(request.target.decode("ascii")), version, headers

    def _check_body_headers(self, headers: Mapping[str, str], *, version: str) -> None:
        if "transfer-encoding" in headers and "content-length" in headers:
            raise BadRequest("Content-Length and Transfer-Encoding must not be sent together")
        if "transfer-encoding" in headers and version == "1.0":
            raise BadRequest("HTTP/1.0 has no transfer codings", status=501)
        if int(headers.get("content-length", "0")) > self._max_body_bytes:
            raise self._too_large()
        if headers.get("expect", "100-continue").lower() != "100-continue":
            raise BadRequest("the only supported expectation is 100-continue", status=417)

    async def _next_event(self, *, in_body: bool = False, raw: bytearray | None = None) -> h11.Event:
        """Return h11's next event; receive more bytes while it needs them. Adds all bytes given to h11 to `raw`."""
        while True:
            if self._pending:  # to h11, an empty piece is the end of the connection
                self._exchange.receive_data(bytes(self._pending))
                if raw is not None:
                    raw += self._pending
                self._pending.clear()
            try:
                event = self._exchange.next_event()
            except h11.RemoteProtocolError as problem:
                raise BadRequest(str(problem)[:MAX_PROBLEM_CHARACTERS], status=problem.error_status_hint) from problem
            if not isinstance(event, type):  # NEED_DATA and PAUSED are classes, the events are instances
                return event
            unfinished = self._exchange.trailing_data[0] if in_body else b""
            if len(unfinished) > MAX_CHUNK_LINE_BYTES:
                # several lines are trailers, one is a chunk header
                raise BadRequest("a line of the chunked body is too long", status=431 if b"\n" in unfinished else 400)
            await self._receive()

    def _too_large(self) -> BadRequest:
        return BadRequest(f"the request body exceeds {self._max_body_bytes} bytes", status=413)

    async def _receive(self) -> None:
        try:
            self._pending += await self._stream.receive(65536)
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError) as cause:
            raise PeerGone("the client hung up") from cause

    def _encode(self, *events: h11.Event) -> bytes:
        return b"".join(self._exchange.send(event) or b"" for event in events)

    async def _send(self, data: bytes) -> None:
        if not data:
            return  # the end of a body that needs no mark
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, OSError) as cause:
            raise PeerGone("the client hung up") from cause


def _response(status: int, headers: Mapping[str, str]) -> h11.Response:
    reason = REASONS.get(status, "Scripted")
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return h11.Response(status_code=status, reason=reason.encode("ascii"), headers=encoded)


def _origin_form(target: str) -> str:
    absolute = re.match(r"https?://[^/?#]*", target, re.IGNORECASE)
    if absolute is not None:  # the form for a proxy; a server must accept it too (RFC 9112 3.2.2)
        target = target[absolute.end() :]
        return target if target.startswith("/") else f"/{target}"
    if not target.startswith("/"):
        raise BadRequest("the request target must be a path")
    return target
