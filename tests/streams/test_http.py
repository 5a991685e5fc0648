"""One HTTP request on a stream: bodies of every form, cut anywhere, and servers that do not keep to HTTP."""

from __future__ import annotations

import anyio
import pytest

from claude_transport.errors import ProtocolError
from claude_transport.streams.http import HTTPStream, http_get
from claude_transport.streams.memory import MemoryStream, memory_stream_pair


async def answered(answer: bytes, *, size: int = 10**6) -> tuple[HTTPStream, MemoryStream]:
    ours, theirs = memory_stream_pair(capacity=2**20)
    for start in range(0, len(answer), size):
        await theirs.send(answer[start : start + size])
    await theirs.send_eof()
    return await http_get(ours, "/x", host="h:1", headers={"accept": "y"}), theirs


async def body_of(stream: HTTPStream) -> bytes:
    found = b""
    try:
        while True:
            found += await stream.receive()
    except anyio.EndOfStream:
        return found


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\nhello world",
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world and more",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
    ],
    ids=["until the end", "length", "chunks"],
)
async def test_a_body_is_read_in_every_form(answer: bytes) -> None:
    stream, peer = await answered(answer)
    assert stream.status == 200
    assert await body_of(stream) == b"hello world"
    assert await peer.receive() == b"GET /x HTTP/1.1\r\nhost: h:1\r\nconnection: close\r\naccept: y\r\n\r\n"
    await stream.aclose()


async def test_chunks_count_also_when_the_server_tells_a_length() -> None:
    stream, _ = await answered(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    assert await body_of(stream) == b"hello"
    await stream.aclose()


@pytest.mark.parametrize(("at_most", "text"), [(0, ""), (4, "caf\N{REPLACEMENT CHARACTER}"), (5, "caf\xe9"), (100, "caf\xe9 noir")])
async def test_of_a_long_text_only_so_many_bytes_are_returned(at_most: int, text: str) -> None:
    stream, _ = await answered("HTTP/1.1 500 No\r\n\r\ncaf\xe9 noir".encode())
    assert await stream.text(at_most=at_most) == text
    await stream.aclose()


async def test_a_cancelled_wait_for_a_chunk_loses_nothing() -> None:
    ours, theirs = memory_stream_pair(capacity=2**20)
    await theirs.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
    stream = await http_get(ours, "/x", host="h:1", headers={})
    assert await stream.receive() == b"hello"
    found = b""
    for piece in (b"3", b"\r", b"\n", b"y", b"ou\r", b"\n0\r\n", b"\r\n"):
        with anyio.move_on_after(0):
            found += await stream.receive()
        await theirs.send(piece)
    assert found + await body_of(stream) == b"you"
    await stream.aclose()


@pytest.mark.parametrize("answer", [b"SSH-2.0\r\n\r\n", b"HTTP/1.1 999 x\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000])
async def test_what_is_not_http_is_refused(answer: bytes) -> None:
    with pytest.raises(ProtocolError):
        await answered(answer)


@pytest.mark.parametrize("chunks", [b"x\r\n", b"-1\r\n", b"f" * 300 + b"\r\n", b"\r\n", b"f" * 2**18])
async def test_malformed_chunks_are_refused(chunks: bytes) -> None:
    stream, _ = await answered(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
    with pytest.raises(ProtocolError, match="chunks"):
        await body_of(stream)
    await stream.aclose()
