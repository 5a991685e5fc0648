"""Hostile text in place of a name or a reason forges no log record and does not fill the log: each becomes one printable line."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import anyio
import anyio.abc
import pytest
from hostile_words import HOSTILE, SHORTER, assert_lines_are_safe, assert_records_are_safe
from rehearsal import ALICE, Talker, rehearsal

from claude_transport.agents.claude_fields import ClaudeFields
from claude_transport.app.serve import log_to_stderr
from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.asgi import GatewayApplication
from claude_transport.gateway.gateway import Gateway
from claude_transport.gateway.metrics import GatewayMetrics
from claude_transport.gateway.session import PlainSession, Surroundings
from claude_transport.link.machine import Bye, Hello, Refusal, Welcome
from claude_transport.serving.door import Allowance, GatewayLimits
from claude_transport.serving.hosted import close_quietly
from claude_transport.serving.turned_away import RefusalLog, TurnedAway
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.memory import memory_stream_pair
from claude_transport.transports.mock import MockTransport

hostile = pytest.mark.parametrize("words", SHORTER.values(), ids=SHORTER)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "claude_transport")
    return caplog


OPTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "the name of an option": lambda words: {words: 1},
    "many names of options": lambda words: {f"{number}{words[:300]}": 1 for number in range(20)},
    "a model": lambda words: {"model": [words]},
    "an effort": lambda words: {"effort": words},
    "a title": lambda words: {"title": {"text": words}},
    "a tool": lambda words: {"disallowed_tools": [words, 7]},
    "an output format": lambda words: {"output_format": {words: words}},
    "a thinking": lambda words: {"thinking": {"type": words}},
    "the answers": lambda words: {"answers": words},
}


@hostile
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_what_a_client_chooses_is_refused_and_logged_on_one_line(
    options: Callable[[str], dict[str, Any]], words: str, log: pytest.LogCaptureFixture
) -> None:
    async with rehearsal(tokens={}) as stage:
        link = stage.connect()
        await link.frame(Hello(version=1, options=options(words)))
        refusal = await link.hear_frame(Refusal)
        assert refusal.code == "options"
        plain = stage.connect()
        await plain.say({"type": "authenticate", "options": options(words)})
        error = json.loads(await plain.hear())["error"]
        assert error["code"] == "options"
        assert stage.gateway.metrics.refused == {"options": 2}
        assert stage.processes.options == []
    assert_lines_are_safe([refusal.text, error["message"]], longest=600)
    assert_records_are_safe(log.records)
    assert sum("refused a client" in record.getMessage() for record in log.records) == 2


FIRST_LINES: dict[str, Callable[[str], bytes]] = {
    "raw": lambda words: words.encode("utf-8", "surrogatepass") + b"\n",
    "a hello": lambda words: b"H " + words.encode() + b"\n",
    "a hello with a field": lambda words: b"H " + json.dumps({"version": 1, "window": words}).encode() + b"\n",
    "a field of a hello": lambda words: b"H " + json.dumps({"version": 1, words: {}}).encode() + b"\n",
    "a token": lambda words: b"H " + json.dumps({"version": 1, "token": words}).encode() + b"\n",
    "a session": lambda words: b"H " + json.dumps({"version": 1, "token": ALICE, "session": words}).encode() + b"\n",
    "an authentication": lambda words: json.dumps({"type": "authenticate", "token": words}).encode() + b"\n",
    "a field of an authentication": lambda words: json.dumps({"type": "authenticate", "options": words}).encode() + b"\n",
}


@hostile
@pytest.mark.parametrize("first_line", FIRST_LINES.values(), ids=FIRST_LINES)
async def test_whatever_the_first_line_is_the_log_has_one_line_for_it(
    first_line: Callable[[str], bytes], words: str, log: pytest.LogCaptureFixture
) -> None:
    async with rehearsal() as stage:
        client = stage.connect()
        await client.stream.send(first_line(words))
        await client.stream.send_eof()
        await client.rest()
        assert "internal" not in stage.gateway.metrics.refused
    assert_records_are_safe(log.records)


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_an_admitted_client_forges_nothing_either(words: str, log: pytest.LogCaptureFixture) -> None:
    async with rehearsal(limits=GatewayLimits(lease=0.01)) as stage:
        refusal, farewell = json.dumps({"code": words[:9000], "text": ""}), json.dumps({"reason": words[:9000]})
        for last_words in (b"R " + refusal.encode(), b"B " + farewell.encode()):
            client = await stage.link(trace={"traceparent": words[:900], words[:900]: "x"})
            process = await stage.processes.next()
            await client.stream.send(last_words + b"\n")
            await process.rest()
            client.stream.break_connection()
        await stage.until(sessions=0)
    assert_records_are_safe(log.records)


class Quoting(anyio.abc.ByteStream):
    """A connection of an adapter whose error at the end quotes the other side."""

    def __init__(self, stream: anyio.abc.ByteStream, words: str) -> None:
        self._stream = stream
        self._words = words

    async def receive(self, max_bytes: int = 65536) -> bytes:
        try:
            return await self._stream.receive(max_bytes)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            raise anyio.BrokenResourceError(self._words) from None

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_why_a_connection_has_ended_is_logged_on_one_line(words: str, log: pytest.LogCaptureFixture) -> None:
    async with rehearsal(tokens={}, limits=GatewayLimits(lease=0.01)) as stage, anyio.create_task_group() as tasks:
        ours, theirs = memory_stream_pair()
        tasks.start_soon(stage.gateway.attend, Arrival(Quoting(ours, words), medium="memory", peer="the test"))
        client = Talker(theirs)
        await client.frame(Hello(version=1))
        await client.hear_frame(Welcome)
        theirs.break_connection()
        await stage.until(sessions=0)
    assert sum("its connection has ended" in record.getMessage() for record in log.records) == 1
    assert_records_are_safe(log.records)


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_what_a_proxy_calls_a_client_is_logged_on_one_line(words: str, log: pytest.LogCaptureFixture) -> None:
    async with rehearsal(tokens={}) as stage:
        ours, theirs = memory_stream_pair()
        client = Talker(theirs)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.gateway.attend, Arrival(ours, medium="memory", peer=words))
            await client.frame(Hello(version=1))
            process = await stage.processes.next()
            await client.frame(Bye())
            await process.rest()
            client.stream.break_connection()
    assert_records_are_safe(log.records)


@pytest.mark.parametrize("words", SHORTER.values(), ids=SHORTER)
async def test_what_a_certificate_calls_a_client_is_logged_on_one_line(words: str, log: pytest.LogCaptureFixture) -> None:
    async with rehearsal(tokens={}) as stage:
        ours, theirs = memory_stream_pair()
        client = Talker(theirs)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.gateway.attend, Arrival(ours, medium="memory", certified=words))
            await client.frame(Hello(version=1))
            process = await stage.processes.next()
            assert [session.owner for session in stage.gateway.sessions] in (
                [],
                [f"cert:{words}"],
            )  # unchanged: two owners stay two
            await client.frame(Bye())
            await process.rest()
            client.stream.break_connection()
    assert_records_are_safe(log.records)


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
def test_a_refusal_and_the_address_of_a_client_are_one_short_line(words: str) -> None:
    assert_lines_are_safe([str(TurnedAway("options", words))], longest=540)  # with how many are left out
    assert_lines_are_safe([Arrival(memory_stream_pair()[0], medium="memory", peer=words).peer], longest=240)


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_what_a_session_logs_is_one_line(words: str, log: pytest.LogCaptureFixture) -> None:
    limits = GatewayLimits()
    surroundings = Surroundings(owner=words, limits=limits, allowance=Allowance(limits), metrics=GatewayMetrics(), fields=ClaudeFields({}))
    session = PlainSession(MockTransport(), surroundings=surroundings, on_end=print)
    session.log(logging.INFO, "event", words, peer=words)
    assert len(log.records) == 1
    assert_records_are_safe(log.records)


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_the_address_that_a_server_names_is_one_short_line(words: str) -> None:
    arrived: list[Arrival] = []

    class Reception(Gateway):
        async def attend(self, arrival: Arrival) -> None:
            arrived.append(arrival)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(_event: Any) -> None: ...

    application = GatewayApplication(Reception(tokens={"alice": ALICE}))
    await application({"type": "websocket", "path": "/", "headers": [], "client": (words, 1)}, receive, send)
    assert_lines_are_safe([arrived[0].stream.extra(StreamAttribute.address)], longest=240)


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_each_part_of_a_refusal_is_logged_on_one_line(words: str, log: pytest.LogCaptureFixture) -> None:
    RefusalLog(logging.getLogger("claude_transport.gateway")).note(logging.INFO, "refused", "refused %s", words, peer=words)
    assert_records_are_safe(log.records)
    assert [record.msg for record in log.records] == ["refused %s"]


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_a_process_that_does_not_start_is_logged_on_one_line(words: str, log: pytest.LogCaptureFixture) -> None:
    def launch(_options: object) -> Any:
        raise LookupError(words)

    async with rehearsal(tokens={}, launch=launch) as stage, anyio.create_task_group() as tasks:
        ours, theirs = memory_stream_pair()
        client = Talker(theirs)
        tasks.start_soon(stage.gateway.attend, Arrival(ours, medium="memory", certified=words))
        await client.frame(Hello(version=1))
        assert (await client.hear_frame(Refusal)).text == "claude could not be started (transport.failed)"
        client.stream.break_connection()
    assert_records_are_safe(log.records)
    assert [vars(record)["gateway_event"] for record in log.records if record.levelno == logging.ERROR] == ["start_failed"]


@pytest.mark.parametrize("words", SHORTER.values(), ids=SHORTER)
@pytest.mark.parametrize("header", [b"origin", b"host", b"authorization", b"x-forwarded-for"])
async def test_what_a_server_hands_on_is_logged_on_one_line(words: str, header: bytes, log: pytest.LogCaptureFixture) -> None:
    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(event: Any) -> None:
        assert_lines_are_safe([event.get("body", b"").decode("utf-8", "replace").rstrip("\n")])

    async with Gateway(command=["true"], tokens={"alice": ALICE}) as gateway:
        application = GatewayApplication(gateway)
        value = words.encode("utf-8", "surrogatepass")
        for kind, path in (("http", "/metrics"), ("http", f"/{words}"), ("websocket", f"/{words}")):
            extensions = {"websocket.http.response": {}}
            headers = [(header, value), *([] if header == b"origin" else [(b"origin", b"https://evil.example")])]
            scope = {"type": kind, "path": path, "headers": headers, "client": (words, 1), "extensions": extensions}
            await application(scope, receive, send)
    assert_records_are_safe(log.records)


@pytest.mark.parametrize("words", SHORTER.values(), ids=SHORTER)
async def test_a_request_over_a_socket_is_logged_on_one_line(words: str, log: pytest.LogCaptureFixture) -> None:
    async with Gateway(command=["true"], listen=["ws://127.0.0.1:0"]) as gateway:
        port = int(gateway.urls[0].rpartition(":")[2].rstrip("/"))
        raw = words.encode("utf-8", "surrogatepass")
        for request in (
            b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: %s\r\n\r\n" % (raw, raw),
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n%s: x\r\n\r\n" % raw,
            b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % raw,
            raw,
        ):
            async with await anyio.connect_tcp("127.0.0.1", port) as client:
                with anyio.fail_after(30):
                    try:
                        await client.send(request)
                        await client.send_eof()
                        while await client.receive():
                            pass
                    except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
                        pass
        assert "internal" not in gateway.metrics.refused
    assert_records_are_safe(log.records)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
def test_the_program_writes_one_line_for_each_record_whatever_is_in_it(words: str, as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    logger = logging.getLogger("claude_transport.gateway")
    with log_to_stderr(as_json=as_json, verbose=True):
        logger.warning("a careless record: %s", words, extra={"gateway_peer": words})
        logger.error("a mistake, with its traceback", exc_info=RuntimeError(words))
    lines = stderr.getvalue().rstrip("\n").split("\n")
    assert_lines_are_safe(lines, longest=60_000 if as_json else 5000)  # a traceback in JSON, with an escape for every letter
    if as_json:
        assert [json.loads(line)["level"] for line in lines] == ["warning", "error"]
    else:
        assert len([line for line in lines if not line.startswith("  ")]) == 2


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_why_a_transport_could_not_be_closed_is_logged_on_one_line(words: str, log: pytest.LogCaptureFixture) -> None:
    class Stuck(MockTransport):
        async def close(self) -> None:
            raise LookupError(words)

    await close_quietly(Stuck())
    assert [record.msg for record in log.records] == ["the transport of a session could not be closed: %s"]
    assert_records_are_safe(log.records)
