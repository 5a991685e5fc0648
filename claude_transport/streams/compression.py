"""Zstandard around any byte stream: small lines of JSON shrink to a fifth, large ones to less, and each send arrives at once.

Each direction is one zstd frame (RFC 8878), flushed after each send and ended by `send_eof()`; so the end of input is inside the stream,
and needs nothing of the medium. The one who connects decides; the one who accepts sees it by the first four bytes (`accept_compression`).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.errors import ConfigurationError, ConnectionLost, ProtocolError
from claude_transport.streams.layer import Layer, Opener

MAGIC = b"\x28\xb5\x2f\xfd"
"""What every zstd frame begins with (RFC 8878 3.1.1); no line of JSON does, nor a TLS record or an HTTP request."""

_LEVEL = 3
"""zstd's own default: 1.3 µs for a small stream event, 500 MB/s and more for large lines, on one core of 2026."""

_MAX_WINDOW_LOG = 23
"""The peer's frame may look back over 2**23 bytes (8 MiB), which is what a connection costs in memory at most: RFC 8878 asks every decoder
for that much, and level 3 uses 2 MiB. A frame that wants more is refused before anything is set aside for it."""

_CHUNK_BYTES = 64 * 2**10
"""Bytes received at a time, and bytes that one of them may unfold to before the rest waits: a kilobyte may stand for 30 megabytes."""

_PIECE_BYTES = 256 * 2**10
"""Bytes compressed at a time: under a millisecond of the event loop's time."""


def load_zstd() -> Any:
    """The module `compression.zstd`, or its twin for Pythons before 3.14.

    Raises:
        ConfigurationError: there is neither; says what to install.
    """
    # Not the package `zstandard`: its incremental decompressor has no bound for what it returns, so a bomb would be memory.
    for name in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    raise ConfigurationError(
        "compression needs Python 3.14, or backports.zstd: pip install 'claude-transport[zstd]'",
        option="compression",
        code="config.missing_extra",
    )


class CompressedConnectable:
    """Opens `opener`'s stream and compresses what goes through it. Raises `ConfigurationError` where there is no zstd."""

    def __init__(self, opener: Opener) -> None:
        load_zstd()
        self._opener = opener

    async def connect(self) -> CompressedStream:
        """A compressed stream; fails as `opener` does."""
        return CompressedStream(await self._opener.connect())


class CompressedStream(Layer):
    """A byte stream inside zstd, for either end; `received` are bytes of it that were read already.

    A peer that leaves inside its frame was cut off: that is `ConnectionLost`, not the end. Memory is bounded by 8 MiB and some chunks,
    whatever the peer sends.
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
        self._folded = received  # received, and not decompressed yet
        self._end: Exception | None = None

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """The next bytes, at most `max_bytes`.

        Raises:
            anyio.EndOfStream: the peer has ended its side.
            ConnectionLost: it left in the middle.
            ProtocolError: what came is no zstd, wants more memory than it may have, or goes on after its end.
            anyio.BrokenResourceError, anyio.ClosedResourceError: as the stream inside.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            if data := self._unfold(max_bytes):
                return data
            if self._end is not None:
                raise self._end
            try:
                self._folded = await self._stream.receive(_CHUNK_BYTES)
            except anyio.EndOfStream:
                self._end = ConnectionLost("the peer was cut off: its compressed stream has no end")

    def _unfold(self, max_bytes: int) -> bytes:
        """What there is, at most `max_bytes`; b"" when there is nothing, or nothing more."""
        data = b""
        while not data and self._end is None and (self._folded or not self._decompressor.needs_input):
            folded, self._folded = self._folded, b""
            try:
                data = self._decompressor.decompress(folded, max_length=max_bytes)
            except self._zstd_error as exc:
                self._end = ProtocolError(f"what the peer sends cannot be decompressed: {exc}", code="protocol.compression")
                self._end.__cause__ = exc
            else:
                if self._decompressor.eof:
                    self._end = self._good_end()
        return data

    def _good_end(self) -> Exception:
        if self._decompressor.unused_data:
            return ProtocolError("the peer went on after the end of its compressed stream", code="protocol.compression")
        return anyio.EndOfStream()

    async def _send_piece(self, rest: memoryview) -> int:
        await self._pass_on(self._compressor.compress(rest[:_PIECE_BYTES], self._flush_block))
        return _PIECE_BYTES

    async def _say_farewell(self) -> None:
        await self._pass_on(self._compressor.flush(self._flush_frame))

    async def _end_sending(self) -> None:
        await self._say_farewell()
        await self._stream.send_eof()  # for the sake of what stands between: to the peer, the end of the frame is the end


async def accept_compression(stream: ByteStream) -> ByteStream:
    """The stream as its first bytes say: a `CompressedStream`, or one that gives what `stream` gives. For the accepting end.

    Waits for the first byte, which the caller bounds. Raises what `stream.receive()` raises, the end excepted: an empty stream is a plain
    one; and `ConfigurationError` when the peer compresses and there is no zstd here.
    """
    first = b""
    while len(first) < len(MAGIC) and MAGIC.startswith(first):
        try:
            first += await stream.receive()
        except anyio.EndOfStream:
            break
    if first.startswith(MAGIC):
        return CompressedStream(stream, received=first)
    return _Begun(stream, first)


class _Begun(ByteStream):
    """A stream of which something was read already."""

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
