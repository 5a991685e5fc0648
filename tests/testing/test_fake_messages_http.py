"""The fake Messages API speaks HTTP/1.1 strictly: what is malformed is refused in the API's error shape, and the server lives on."""

from __future__ import annotations

import re

import anyio
import msgspec
import pytest

from claude_transport.testing import FakeMessagesAPI, replies

PROMPT = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}'
STREAMED = PROMPT[:-1] + b',"stream":true}'
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def post(body: bytes, *headers: str, version: str = "1.1") -> bytes:
    lines = [f"POST /v1/messages HTTP/{version}", "Host: x", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def sized(body: bytes, *headers: str, version: str = "1.1") -> bytes:
    return post(body, f"Content-Length: {len(body)}", *headers, version=version)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return post(b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end, "Transfer-Encoding: chunked")


async def send(api: FakeMessagesAPI, *pieces: bytes) -> bytes:
    """All that the server says to these bytes until it closes; our side is half-closed after them."""
    with anyio.fail_after(30):
        async with await anyio.connect_tcp("127.0.0.1", int(api.url.rpartition(":")[2])) as stream:
            said = b""
            try:
                for piece in pieces:
                    await stream.send(piece)
                await stream.send_eof()
            except anyio.BrokenResourceError:
                pass  # refused before we were done: what it said is still there to be read
            try:
                while True:
                    said += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return said


def statuses(said: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", said)]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, id="a TLS hello"),
        pytest.param(b"hello\r\n\r\n", 400, id="no request line"),
        pytest.param(b"GET /\r\nHost: x\r\n\r\n", 400, id="HTTP 0.9"),
        pytest.param(b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="two spaces"),
        pytest.param(b"G@T / HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="a method that is no token"),
        pytest.param(b"GET / HTTP/1.x\r\nHost: x\r\n\r\n", 400, id="a version that is no number"),
        pytest.param(b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505, id="HTTP 2"),
        pytest.param(b"GET example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="a target that is no path"),
        pytest.param(b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="a target that is not ASCII"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no Host"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, id="two Hosts"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nNoColon\r\n\r\n", 400, id="a header without colon"),
        pytest.param(b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400, id="a space before the colon"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400, id="a folded header"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", 400, id="NUL in a header"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", 400, id="a bare CR in a header"),
        pytest.param(b"GET / HTTP/1.1\nHost: x\n\n", 400, id="bare LF"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", 431, id="a header of 70 kB"),
        pytest.param(b"GET /" + b"a" * 70_000, 431, id="an endless request line"),
        pytest.param(post(PROMPT, "Content-Length: many"), 400, id="a length that is no number"),
        pytest.param(post(PROMPT, "Content-Length: -1"), 400, id="a negative length"),
        pytest.param(post(PROMPT, "Content-Length: " + "9" * 5000), 400, id="a length of 5000 digits"),
        pytest.param(post(PROMPT, "Content-Length: +9"), 400, id="a signed length"),
        pytest.param(post(PROMPT, "Content-Length: 9", "Content-Length: 10"), 400, id="two lengths"),
        pytest.param(post(PROMPT, "Content-Length: 9", "Transfer-Encoding: chunked"), 400, id="length and chunks"),
        pytest.param(post(PROMPT, "Transfer-Encoding: gzip, chunked"), 501, id="a coding nobody asked for"),
        pytest.param(post(PROMPT, "Transfer-Encoding: chunked", version="1.0"), 501, id="chunks in HTTP 1.0"),
        pytest.param(post(b"", "Content-Length: 2000"), 413, id="a body over the limit, announced"),
        pytest.param(chunked(b"x" * 800, b"x" * 800), 413, id="a body over the limit, in chunks"),
        pytest.param(post(b"xyz\r\nabc", "Transfer-Encoding: chunked"), 400, id="a chunk size that is no number"),
        pytest.param(post(b"-3\r\nabc\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), 400, id="a negative chunk size"),
        pytest.param(post(b"3\r\nabcdef\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), 400, id="a chunk longer than it says"),
        pytest.param(post(b"3;" + b"a" * 2000, "Transfer-Encoding: chunked"), 400, id="an endless chunk extension"),
        pytest.param(chunked(b"{}", end=b"0\r\n" + b"A: b\r\n" * 200), 431, id="endless trailers"),
        pytest.param(chunked(b"{}", end=b"0\r\n" + b"A: b\r\n" * 600 + b"\r\n"), 431, id="many trailers, with an end"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nA: b\n\tc\r\n\r\n", 400, id="a header folded after a bare LF"),
        pytest.param(sized(PROMPT, "Expect: miracles"), 417, id="an expectation nobody can meet"),
    ],
)
async def test_malformed_http_is_refused_in_the_error_shape_of_the_api_and_the_server_lives_on(sent: bytes, status: int) -> None:
    async with FakeMessagesAPI(max_body_bytes=1024) as api:
        said = await send(api, sent)
        assert statuses(said) == [status]
        head, _, body = said.partition(b"\r\n\r\n")
        assert b"connection: close" in head.lower()
        problem = msgspec.json.decode(body)
        assert problem["type"] == "error"
        assert problem["error"]["message"] in api.rejected
        assert api.requests == []
        assert statuses(await send(api, GET)) == [200]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param([GET], [200], id="the plainest"),
        pytest.param([b"\r\n\r\n" + GET], [200], id="empty lines before the request"),
        pytest.param([GET + GET + GET], [200, 200, 200], id="pipelined"),
        pytest.param([sized(PROMPT) + sized(STREAMED) + GET], [200, 200, 200], id="pipelined with bodies"),
        pytest.param([chunked(PROMPT[:9], PROMPT[9:]) + GET], [200, 200], id="a chunked body"),
        pytest.param([chunked(PROMPT, end=b"0\r\nTrailer: x\r\n\r\n") + GET], [200, 200], id="a chunked body with a trailer"),
        pytest.param([chunked(PROMPT).replace(b"\r\n{", b";name=value\r\n{", 1)], [200], id="a chunk extension"),
        pytest.param([sized(PROMPT, "Expect: 100-continue")], [100, 200], id="100-continue"),
        pytest.param([post(PROMPT, f"Content-Length: {len(PROMPT)}", f"content-length: {len(PROMPT)}")], [200], id="one length twice"),
        pytest.param([b"GET http://proxy.example/ HTTP/1.1\r\nHost: x\r\n\r\n"], [200], id="absolute form"),
        pytest.param([b"GET http://proxy.example HTTP/1.1\r\nHost: x\r\n\r\n"], [200], id="absolute form without path"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + GET], [200], id="connection close"),
        pytest.param([b"GET / HTTP/1.0\r\n\r\n" + GET], [200], id="HTTP 1.0 closes"),
        pytest.param([b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + GET], [200, 200], id="HTTP 1.0 that wants to stay"),
        pytest.param([sized(STREAMED, version="1.0") + GET], [200], id="a stream to HTTP 1.0 ends with the connection"),
        pytest.param([b"DELETE /v1/files HTTP/1.1\r\nHost: x\r\n\r\n" + GET], [404, 200], id="an unknown path keeps the connection"),
        pytest.param([sized(b"\xff\xfe") + GET], [400, 200], id="a body that is no JSON keeps the connection"),
        pytest.param([sized(b"[" * 1000) + GET], [400, 200], id="a body that is no object keeps the connection"),
        pytest.param([sized(b"") + GET], [400, 200], id="an empty body keeps the connection"),
        pytest.param([b""], [], id="nothing at all"),
        pytest.param([b"POST /v1/messages HT"], [], id="half a request line"),
        pytest.param([post(PROMPT[:20], f"Content-Length: {len(PROMPT)}")], [], id="half a body"),
        pytest.param([chunked(PROMPT)[:-9]], [], id="half a chunked body"),
    ],
)
async def test_well_formed_http_is_served_whatever_its_chunks(sent: list[bytes], expected: list[int]) -> None:
    async with FakeMessagesAPI() as api:
        assert statuses(await send(api, *sent)) == expected
        byte_by_byte = [bytes([byte]) for piece in sent for byte in piece]
        assert statuses(await send(api, *byte_by_byte)) == expected
        assert api.rejected == []


async def test_a_client_of_http_1_0_that_asks_to_stay_is_told_that_it_may() -> None:
    async with FakeMessagesAPI() as api:
        stays = await send(api, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        leaves = await send(api, b"GET / HTTP/1.0\r\n\r\n")
    assert b"connection: keep-alive\r\n" in stays.lower()
    assert b"connection: close\r\n" in leaves.lower()


async def test_a_head_response_promises_a_body_and_sends_none() -> None:
    async with FakeMessagesAPI() as api:
        said = await send(api, b"HEAD /api/hello HTTP/1.1\r\nHost: x\r\n\r\nHEAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
    assert statuses(said) == [200, 404]
    assert b"content-length: 2\r\n" in said
    assert b"{" not in said


async def test_a_streamed_reply_is_chunked_and_ends_with_the_empty_chunk() -> None:
    async with FakeMessagesAPI() as api:
        said = await send(api, sized(STREAMED))
        plain = await send(api, sized(STREAMED, version="1.0"))
    assert b"transfer-encoding: chunked\r\n" in said.lower()
    assert said.endswith(b"0\r\n\r\n")
    assert b"transfer-encoding" not in plain.lower()
    assert plain.endswith(b'{"type":"message_stop"}\n\n')


async def test_a_request_that_does_not_arrive_in_time_is_told_so() -> None:
    async with FakeMessagesAPI(request_timeout=0.5) as api, await anyio.connect_tcp("127.0.0.1", int(api.url.rpartition(":")[2])) as slow:
        await slow.send(b"POST /v1/messages HTTP/1.1\r\n")
        with anyio.fail_after(30):
            assert statuses(await slow.receive()) == [408]


async def test_repeated_headers_are_joined_and_names_are_lower_case() -> None:
    async with FakeMessagesAPI() as api:
        await send(api, b"GET / HTTP/1.1\r\nHOST: x\r\nAnthropic-Beta: a\r\nanthropic-beta:b \r\n\r\n")
    assert api.requests[0].headers == {"host": "x", "anthropic-beta": "a, b"}


@pytest.mark.parametrize(
    ("reply", "request_body", "ends_with"),
    [
        (replies.cut(after_events=0), STREAMED, b""),
        (replies.cut(after_events=0), PROMPT, b""),
        (replies.cut(after_events=1), STREAMED, b"}}\n\n\r\n"),
        (replies.cut(after_events=1), PROMPT, b""),
    ],
)
async def test_a_cut_reply_breaks_its_promise_and_only_its_own_connection(
    reply: replies.Reply, request_body: bytes, ends_with: bytes
) -> None:
    async with FakeMessagesAPI([reply]) as api:
        said = await send(api, sized(request_body) + GET)
        assert len(statuses(said)) == (1 if reply != replies.cut(after_events=0) else 0)
        assert said.endswith(ends_with)
        assert not said.endswith(b"0\r\n\r\n")
        assert api.requests[0].outcome == "cut"
        assert statuses(await send(api, GET)) == [200]


async def test_raw_events_are_sent_as_they_are() -> None:
    script = replies.raw([{"type": "novelty", "x": 1}, "data: broken\n", b"\xff\n\n"], body={"whole": True})
    async with FakeMessagesAPI(script) as api:
        streamed = await send(api, sized(STREAMED, version="1.0"))
        whole = await send(api, sized(PROMPT, version="1.0"))
    assert streamed.endswith(b'event: novelty\ndata: {"type":"novelty","x":1}\n\ndata: broken\n\xff\n\n')
    assert whole.endswith(b'{"whole":true}')
