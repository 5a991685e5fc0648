"""The server's side of one HTTP/1.1 connection, over any anyio byte stream: strict in what it takes, small, bounded.

Written for the fake Messages API. It knows requests and responses (RFC 9112: keep-alive, Content-Length and chunked bodies,
`Expect: 100-continue`), nothing of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn, TypeVar

import anyio
import msgspec
from anyio.abc import ByteStream

from claude_transport.errors import ConnectionLost, ProtocolError

T = TypeVar("T")

MAX_HEAD_BYTES = 64 * 1024
MAX_CHUNK_LINE_BYTES = 1024  # a size and perhaps an extension; nobody needs more
LINGER = 1.0  # seconds for the peer to read our last words before the socket is closed
TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
REASONS: Mapping[int, str] = {
    100: "Continue",
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    417: "Expectation Failed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    505: "HTTP Version Not Supported",
    529: "Overloaded",
}


class BadRequest(ProtocolError):
    """The peer sent no acceptable HTTP request; `status` is the answer it gets before the connection is closed."""

    code = "testing.http.bad_request"

    def __init__(self, message: str = "", *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class PeerGone(ConnectionLost):
    """The client hung up before its answer was whole."""

    code = "testing.http.peer_gone"


class HTTPRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request: `target` is path and query, header names are lower case, repeated headers are joined by a comma."""

    method: str
    target: str
    version: str
    headers: dict[str, str]
    body: bytes

    @property
    def keep_alive(self) -> bool:
        """Whether the client wants the connection kept for another request."""
        options = {option.strip() for option in self.headers.get("connection", "").lower().split(",")}
        return "keep-alive" in options if self.version == "1.0" else "close" not in options


class HTTPConnection:
    """Reads requests from `stream` and answers them, one after the other.

    `max_body_bytes` bounds a request body (413 beyond), `request_timeout` the seconds from a request's first byte to its last (408).
    """

    def __init__(self, stream: ByteStream, *, max_body_bytes: int, request_timeout: float) -> None:
        self._stream = stream
        self._max_body_bytes = max_body_bytes
        self._request_timeout = request_timeout
        self._buffer = bytearray()
        self._chunked = False

    async def read_request(self) -> HTTPRequest | None:
        """The next request, or None when the client has hung up (even in the middle of one: nobody is left to be told).

        Waits without limit for the first byte: that wait ends with the connection. Raises `BadRequest`.
        """
        try:
            while not self._buffer.lstrip(b"\r\n"):
                self._buffer.clear()  # empty lines before a request are allowed (RFC 9112 2.2)
                await self._receive()
            with anyio.fail_after(self._request_timeout):
                return await self._read_whole()
        except TimeoutError:
            raise BadRequest("the request did not arrive in time", status=408) from None
        except PeerGone:
            return None

    async def respond(self, status: int, *, headers: Mapping[str, str], body: bytes, head_only: bool = False) -> None:
        """Send a whole response. Raises `PeerGone`."""
        head = _encode_head(status, {**headers, "content-length": str(len(body))})
        await self._send(head if head_only else head + body)

    async def start_stream(self, *, headers: Mapping[str, str], chunked: bool) -> None:
        """Begin a 200 response of unknown length; without `chunked` (HTTP/1.0) it ends with the connection. Raises `PeerGone`."""
        self._chunked = chunked
        await self._send(_encode_head(200, {**headers, "transfer-encoding": "chunked"} if chunked else {**headers, "connection": "close"}))

    async def send_part(self, data: bytes) -> None:
        """Send a piece of the streamed body. Raises `PeerGone`."""
        if data:
            await self._send(b"%x\r\n%s\r\n" % (len(data), data) if self._chunked else data)

    async def end_stream(self) -> None:
        """End the streamed body. Raises `PeerGone`."""
        if self._chunked:
            await self._send(b"0\r\n\r\n")

    async def send_fragment(self, status: int, *, headers: Mapping[str, str], body: bytes, sent: int) -> None:
        """Send a response whose body is `sent` bytes of the promised `body`; only hanging up can follow. Raises `PeerGone`."""
        await self._send(_encode_head(status, {**headers, "content-length": str(len(body))}) + body[:sent])

    async def wait(self, wait: Callable[[], Awaitable[T]]) -> T:
        """The outcome of `wait()`. Raises `PeerGone` as soon as the client hangs up meanwhile."""
        outcome: list[T] = []

        async def watch() -> None:
            try:
                while len(self._buffer) <= self._max_body_bytes:
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
        """Say goodbye so that the client can still read what was sent: half-close, then drop what it says for at most a second."""
        with anyio.move_on_after(LINGER):
            try:
                await self._stream.send_eof()
                while True:
                    await self._stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                pass  # gone already, which is where we are going

    async def _read_whole(self) -> HTTPRequest:
        method, target, version, headers = _parse_head(await self._read_head())
        body = await self._read_body(headers, version=version)
        return HTTPRequest(method=method, target=target, version=version, headers=headers, body=body)

    async def _read_head(self) -> bytes:
        while self._buffer[:2] == b"\r\n" or self._buffer[:1] == b"\n":
            del self._buffer[: 2 if self._buffer[:1] == b"\r" else 1]
        searched = 0
        while (end := self._buffer.find(b"\r\n\r\n", searched)) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                break
            searched = max(0, len(self._buffer) - 3)
            if b"\n\n" in self._buffer:
                raise BadRequest("lines end in CR LF")
            await self._receive()
        if not 0 <= end <= MAX_HEAD_BYTES:
            raise BadRequest(f"the request head exceeds {MAX_HEAD_BYTES} bytes", status=431)
        return self._take(end + 4)[:end]

    async def _read_body(self, headers: Mapping[str, str], *, version: str) -> bytes:
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        size = 0
        if coding is not None:
            if length is not None:
                raise BadRequest("Content-Length together with Transfer-Encoding")
            if coding.lower() != "chunked" or version == "1.0":
                raise BadRequest(f"transfer coding {coding[:40]!r} is not understood", status=501)
        elif length is not None:
            size = self._parse_length(length)
        if size > self._max_body_bytes:
            self._too_large()
        if headers.get("expect"):
            if headers["expect"].lower() != "100-continue":
                raise BadRequest("only 100-continue can be expected", status=417)
            await self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return await self._read_chunks() if coding is not None else await self._read_exactly(size)

    async def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            digits = (await self._read_line()).partition(b";")[0].strip(b" \t")
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", digits):
                raise BadRequest("a chunk size is a hexadecimal number")
            size = int(digits, 16)
            if size == 0:
                break
            if len(body) + size > self._max_body_bytes:
                self._too_large()
            body += await self._read_exactly(size)
            if await self._read_exactly(2) != b"\r\n":
                raise BadRequest("a chunk ends in CR LF")
        for _ in range(100):  # trailers: allowed, bounded, ignored
            if not await self._read_line():
                return bytes(body)
        raise BadRequest("too many trailers", status=431)

    async def _read_line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0 and len(self._buffer) <= MAX_CHUNK_LINE_BYTES:
            await self._receive()
        if not 0 <= end <= MAX_CHUNK_LINE_BYTES:
            raise BadRequest("a line of the chunked body is too long")
        return self._take(end + 2)[:end]

    async def _read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._receive()
        return self._take(size)

    def _take(self, size: int) -> bytes:
        taken = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return taken

    def _parse_length(self, value: str) -> int:
        lengths = {part.strip() for part in value.split(",")}
        if len(lengths) != 1 or not re.fullmatch(r"[0-9]{1,18}", lengths.pop(), re.ASCII):
            raise BadRequest("Content-Length is one decimal number")
        return int(value.partition(",")[0])

    def _too_large(self) -> NoReturn:
        raise BadRequest(f"the request body exceeds {self._max_body_bytes} bytes", status=413)

    async def _receive(self) -> None:
        try:
            self._buffer += await self._stream.receive(65536)
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError) as cause:
            raise PeerGone("the client hung up") from cause

    async def _send(self, data: bytes) -> None:
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, OSError) as cause:
            raise PeerGone("the client hung up") from cause


def _parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    """Method, target, version ("1.1" or "1.0") and headers of a request head without its empty line."""
    request_line, *lines = head.split(b"\r\n")
    parts = request_line.split(b" ")
    if len(parts) != 3 or not TOKEN.fullmatch(parts[0]) or not re.fullmatch(rb"[!-~]+", parts[1]):
        raise BadRequest("a request line is: method, target, HTTP version")
    protocol = re.fullmatch(rb"HTTP/([0-9])\.([0-9])", parts[2])
    if protocol is None:
        raise BadRequest("a request line ends in the HTTP version")
    if protocol[1] != b"1":
        raise BadRequest("only HTTP/1.1 is spoken here", status=505)
    version = "1.0" if protocol[2] == b"0" else "1.1"
    headers: dict[str, str] = {}
    hosts = 0
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not TOKEN.fullmatch(name) or re.search(rb"[\x00\r\n]", value):
            raise BadRequest("a header is: name, colon, value, on one line")
        key, text = name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")
        hosts += key == "host"
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    if hosts > 1 or (version == "1.1" and not hosts):
        raise BadRequest("HTTP/1.1 needs exactly one Host header")
    return parts[0].decode("ascii"), _origin_form(parts[1].decode("ascii")), version, headers


def _origin_form(target: str) -> str:
    absolute = re.match(r"https?://[^/?#]*", target, re.IGNORECASE)
    if absolute is not None:  # how a client speaks to a proxy; servers must accept it too (RFC 9112 3.2.2)
        target = target[absolute.end() :]
        return target if target.startswith("/") else f"/{target}"
    if not target.startswith("/"):
        raise BadRequest("the request target is a path")
    return target


def _encode_head(status: int, headers: Mapping[str, str]) -> bytes:
    for name, value in headers.items():
        if not TOKEN.fullmatch(name.encode("latin-1", "replace")) or re.search(r"[\r\n\x00]", value):
            raise ValueError(f"not a header: {name!r}")
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Scripted')}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
