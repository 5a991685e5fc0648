"""Zstandard around any byte stream. Small lines of JSON shrink to a fifth, and the peer can read each send at once.

Each direction is one zstd frame (RFC 8878), flushed after each send and ended by `send_eof()`. So the end of input is part of the
compressed data, and the medium needs no half-close. The connecting end decides; the accepting end looks at the first four bytes
(`accept_compression()`).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.errors import ConfigurationError, ConnectionLost, ProtocolError
from claude_transport.streams.layer import Layer

MAGIC = b"\x28\xb5\x2f\xfd"
"""The first bytes of every zstd frame (RFC 8878 3.1.1). No line of JSON, TLS record or HTTP request begins with them."""

_LEVEL = 3
"""zstd's default: 1.3 µs for a small stream event, 500 MB/s and more for large lines, on one core of 2026."""

_MAX_WINDOW_LOG = 23
"""A peer's frame may look back over 2**23 bytes (8 MiB), which bounds the memory of a connection. RFC 8878 asks every decoder for
that much, and level 3 uses 2 MiB. A frame that wants more is refused before memory is set aside."""

_CHUNK_BYTES = 64 * 2**10
"""Bytes received at a time, at most."""

_LEAST_CHUNK_BYTES = 4096
"""Bytes received at a time for a reader that asks for no more, as before a client is admitted."""

_PIECE_BYTES = 256 * 2**10
"""Bytes compressed at a time: it holds up the event loop for less than a millisecond."""


def load_zstd() -> Any:
    """Return the module `compression.zstd`, or `backports.zstd` before Python 3.14.

    Raises:
        ConfigurationError: neither is installed.
    """
    # Not the package `zstandard`: its incremental decompressor cannot limit its output, so a few bytes could fill the memory.
    for name in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    raise ConfigurationError(
        "compression needs Python 3.14, or backports.zstd: pip install 'claude-transport[zstd]'",
        option="compression",
        code="config.missing_extra",
    )


class CompressedConnectable(ByteStreamConnectable):
    """Opens the stream of `opener` and compresses it. Raises `ConfigurationError` where zstd is not installed."""

    def __init__(self, opener: ByteStreamConnectable) -> None:
        load_zstd()
        self._opener = opener

    async def connect(self) -> CompressedStream:
        """Return a compressed stream. Raises what `opener` raises."""
        return CompressedStream(await self._opener.connect())


class CompressedStream(Layer):
    """A byte stream inside zstd, for client or server. `received` are bytes of `stream` that were read already.

    When the peer leaves inside its frame, the stream was cut: `receive()` raises `ConnectionLost`. Whatever the peer sends, memory is
    bounded by 8 MiB and some chunks.
    """

    _PIECE = "block"

    def __init__(self, stream: ByteStream, *, received: bytes = b"") -> None:
        super().__init__(stream)
        zstd = load_zstd()
        self._flush_block = zstd.ZstdCompressor.FLUSH_BLOCK
        self._flush_frame = zstd.ZstdCompressor.FLUSH_FRAME
        self._compressor = zstd.ZstdCompressor(level=_LEVEL)
        self._decompressor = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG})
        self._zstd_error: type[Exception] = zstd.ZstdError
        self._received = received  # not decompressed yet
        self._end: Exception | None = None  # raised by `receive()` when nothing is left

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Wait for at least one byte, and return at most `max_bytes`.

        Raises:
            anyio.EndOfStream: the peer has ended its side.
            ConnectionLost: the peer left inside its frame.
            ProtocolError: the data is not zstd, needs too much memory, or goes on after the end of the frame.
            anyio.BrokenResourceError, anyio.ClosedResourceError: as the inner stream.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            if data := self._decompress(max_bytes):
                return data
            if self._end is not None:
                raise self._end
            try:
                self._received = await self._stream.receive(min(max(max_bytes, _LEAST_CHUNK_BYTES), _CHUNK_BYTES))
            except anyio.EndOfStream:
                self._end = ConnectionLost("the connection was cut: the peer's compressed stream has no end")

    def _decompress(self, max_bytes: int) -> bytes:
        """Return at most `max_bytes` without waiting; b"" when there are none. The limit is needed: a kilobyte may hold 30 megabytes."""
        data = b""
        while not data and self._end is None and (self._received or not self._decompressor.needs_input):
            received, self._received = self._received, b""
            try:
                data = self._decompressor.decompress(received, max_length=max_bytes)
            except self._zstd_error as exc:
                self._end = ProtocolError(f"the peer's data cannot be decompressed: {exc}", code="protocol.compression")
                self._end.__cause__ = exc
            else:
                if self._decompressor.eof:
                    self._end = anyio.EndOfStream()
                    if self._decompressor.unused_data:
                        self._end = ProtocolError("the peer went on after the end of its compressed stream", code="protocol.compression")
        return data

    async def _send_piece(self, rest: memoryview) -> int:
        await self._pass_on(self._compressor.compress(rest[:_PIECE_BYTES], self._flush_block))
        return _PIECE_BYTES

    async def _send_closing(self) -> None:
        await self._pass_on(self._compressor.flush(self._flush_frame))

    async def _end_sending(self) -> None:
        await self._send_closing()
        await self._stream.send_eof()  # for proxies on the way: the peer itself sees the end of the frame


async def accept_compression(stream: ByteStream) -> ByteStream:
    """Return a `CompressedStream` when the peer compresses, else a stream with the same bytes as `stream`. For the accepting end.

    Waits for the first byte; the caller sets a time limit.

    Raises:
        ConfigurationError: the peer compresses, and zstd is not installed here.
        Exception: what `stream.receive()` raises, but for `EndOfStream`: an empty stream is returned as a plain one.
    """
    first = b""
    while len(first) < len(MAGIC) and MAGIC.startswith(first):
        try:
            first += await stream.receive(_LEAST_CHUNK_BYTES)
        except anyio.EndOfStream:
            break
    if first.startswith(MAGIC):
        return CompressedStream(stream, received=first)
    return _BegunStream(stream, first)


class _BegunStream(ByteStream):
    """A stream whose first bytes were read already; they are received again."""

    def __init__(self, stream: ByteStream, first: bytes) -> None:
        self._stream = stream
        self._first = first

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._first:
            return await self._stream.receive(max_bytes)
        await anyio.lowlevel.checkpoint()
        data, self._first = self._first[:max_bytes], self._first[max_bytes:]
        return data

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        self._first = b""
        await self._stream.aclose()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return self._stream.extra_attributes
