"""`http_get()`: one HTTP/1.1 request on an open stream, and its answer as it comes. Enough for a stream of events, also behind a proxy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import ProtocolError

_MAX_HEAD_BYTES: Final = 32 * 2**10
"""Bytes of the head of an answer."""

_MAX_CHUNK_LINE_BYTES: Final = 256
"""Bytes of the line that begins a chunk: its size and extensions."""

_CHUNK_BYTES: Final = 64 * 2**10
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)(?: |$)")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;|$)")


class HTTPStream:
    """The answer to a request: `status`, `headers` (names in lower case), and the body, which `receive()` returns as it comes."""

    def __init__(self, stream: ByteStream, *, status: int, headers: Mapping[str, str], unread: bytes) -> None:
        self.status = status
        self.headers = headers
        self._stream = stream
        self._unread = unread
        self._is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length", "")
        # without a length, the body ends with the connection
        self._left: int | None = int(length) if re.fullmatch(r"\d{1,15}", length) else None
        self._in_chunk = 0  # bytes left of the current chunk
        self._begun = False  # a chunk was read: its line break has to be skipped

    async def receive(self) -> bytes:
        """Wait for bytes of the body and return them.

        Raises:
            anyio.EndOfStream: the body is over.
            anyio.BrokenResourceError: the connection broke.
            ProtocolError: the body is malformed.
        """
        if self._is_chunked:
            return await self._receive_chunk()
        if self._left == 0:
            raise anyio.EndOfStream
        data = await self._some(_CHUNK_BYTES if self._left is None else min(self._left, _CHUNK_BYTES))
        if self._left is not None:
            self._left -= len(data)
        return data

    async def text(self, *, at_most: int) -> str:
        """Return the body as text, at most so many bytes of it."""
        body = b""
        try:
            while len(body) < at_most:
                body += await self.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass  # as far as it came
        return body[:at_most].decode("utf-8", "replace")

    async def aclose(self) -> None:
        """Close the connection."""
        await anyio.aclose_forcefully(self._stream)

    async def _receive_chunk(self) -> bytes:
        if not self._in_chunk:
            if self._begun:
                await self._line()
                self._begun = False  # a cancellation must not skip the next line, too
            found = _SIZE.match(await self._line())
            if found is None:
                raise ProtocolError("the chunks of an HTTP answer are malformed")
            self._begun = True
            self._in_chunk = int(found[1], 16)
            if not self._in_chunk:
                raise anyio.EndOfStream
        data = await self._some(min(self._in_chunk, _CHUNK_BYTES))
        self._in_chunk -= len(data)
        return data

    async def _line(self) -> bytes:
        while b"\n" not in self._unread:
            if len(self._unread) > _MAX_CHUNK_LINE_BYTES:
                raise ProtocolError("the chunks of an HTTP answer are malformed")
            self._unread += await self._stream.receive(_CHUNK_BYTES)
        line, _, self._unread = self._unread.partition(b"\n")
        return line.removesuffix(b"\r")

    async def _some(self, at_most: int) -> bytes:
        if not self._unread:
            return await self._stream.receive(at_most)
        data, self._unread = self._unread[:at_most], self._unread[at_most:]
        return data


async def http_get(stream: ByteStream, target: str, *, host: str, headers: Mapping[str, str]) -> HTTPStream:
    """Send a GET request on `stream` and return the answer. The caller bounds the wait, and has checked the headers.

    Raises:
        anyio.EndOfStream: the server hung up before it answered.
        ProtocolError: the answer is not HTTP, or its head is too large.
    """
    lines = [f"GET {target} HTTP/1.1", f"host: {host}", "connection: close", *(f"{name}: {value}" for name, value in headers.items())]
    await stream.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
    head = b""
    while (end := head.find(b"\r\n\r\n")) < 0:
        if len(head) > _MAX_HEAD_BYTES:
            raise ProtocolError(f"the head of an HTTP answer has more than {_MAX_HEAD_BYTES} bytes")
        head += await stream.receive(_CHUNK_BYTES)
    first, *rest = head[:end].split(b"\r\n")
    found = _STATUS.match(first)
    if found is None:
        raise ProtocolError("the server did not answer in HTTP")
    told = (line.decode("latin-1").partition(":") for line in rest)
    return HTTPStream(
        stream, status=int(found[1]), headers={name.strip().lower(): value.strip() for name, _, value in told}, unread=head[end + 4 :]
    )
