"""What a stream says at its end, under a transport and by itself: the cause, once, and typed; and that each call gives way to others."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream, ByteStreamConnectable

import claude_transport as ct
from claude_transport.errors import ConfigurationError
from claude_transport.link.carrier import LinkCarrier
from claude_transport.link.machine import LinkEnd
from claude_transport.streams.address import check_text
from claude_transport.streams.at_once import OpensAtOnce
from claude_transport.streams.compression import CompressedStream
from claude_transport.streams.guard import is_running, new_mark
from claude_transport.streams.http import http_get
from claude_transport.streams.memory import MemoryConnectable, memory_stream_pair
from claude_transport.streams.process import ProcessConnectable
from claude_transport.streams.reaping import Child, StderrTail, end_unowned
from claude_transport.streams.websocket import WebSocketConnectable, accept_websocket


class Ending(ByteStream):
    """A stream that reads `data` and then ends with `error`. Its closing waits for `patience`, or raises what it is."""

    def __init__(self, data: bytes = b"", *, error: Exception, patience: Exception | float = 0.0) -> None:
        self._data = data
        self._error = error
        self._patience = patience
        self.closings: list[str] = []

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        data, self._data = self._data, b""
        if not data:
            raise self._error
        return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.closings.append("begun")
        if isinstance(self._patience, Exception):
            raise self._patience
        await anyio.sleep(self._patience)
        self.closings.append("ended")


class Opening(ByteStreamConnectable):
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def connect(self) -> ByteStream:
        return self._stream


async def test_a_connection_that_breaks_says_why_and_keeps_the_torn_line_as_its_cause() -> None:
    reset = ConnectionResetError(104, "reset by peer")
    for torn in (b"", b'{"half":'):
        async with ct.StreamTransport(Opening(Ending(b'{"whole":1}\n' + torn, error=reset))) as transport:
            lines = transport.read_lines()
            assert await anext(lines) == [b'{"whole":1}']
            with pytest.raises(ct.ConnectionLost) as caught:
                await anext(lines)
            assert str(caught.value).startswith("the connection broke while reading: [Errno 104] reset by peer")
            assert ("the stream ended inside a line, after 8 bytes of it" in str(caught.value)) is bool(torn)
            cause = caught.value.__cause__
            if torn:
                assert isinstance(cause, ct.TruncatedStream)
                assert cause.bytes_tail == torn
            else:
                assert cause is reset
            with pytest.raises(ct.ConnectionLost) as again:
                await anext(lines)
            assert again.value is caught.value
            with pytest.raises(ct.TransportClosed, match="the peer is gone") as write:
                await transport.write("{}")
            assert write.value.__cause__ is caught.value
            assert not transport.is_ready()


@pytest.mark.parametrize(("patience", "closings"), [(0.0, ["begun", "ended"]), (3600.0, ["begun", "begun"])])
async def test_a_stream_is_closed_once_and_by_force_only_when_its_time_is_over(patience: float, closings: list[str]) -> None:
    stream = Ending(error=anyio.EndOfStream(), patience=patience)
    transport = ct.StreamTransport(Opening(stream), close_timeout=0.05 if patience else 30.0)
    await transport.connect()
    with anyio.fail_after(30):
        await transport.close()
        await transport.close()
    assert stream.closings == closings


@pytest.mark.parametrize("error", [OSError("broken"), anyio.BrokenResourceError()], ids=["system", "anyio"])
async def test_a_stream_that_breaks_while_it_is_closed_is_closed(error: Exception) -> None:
    stream = Ending(error=anyio.EndOfStream(), patience=error)
    transport = ct.StreamTransport(Opening(stream))
    await transport.connect()
    await transport.close()
    assert stream.closings == ["begun"]
    assert not transport.is_ready()


class AtOnce(OpensAtOnce):
    """Opens at once what it is given; raises it when it is an error."""

    def __init__(self, opened: ByteStream | OSError | None) -> None:
        self.opened = opened

    def connect_now(self) -> ByteStream | None:
        if isinstance(self.opened, OSError):
            raise self.opened
        return self.opened

    async def connect(self) -> ByteStream:
        raise AssertionError("not asked")


async def test_a_stream_that_cannot_be_opened_at_once_is_the_error_of_connect() -> None:
    opener = AtOnce(OSError(5, "no"))
    transport = ct.StreamTransport(opener)
    with pytest.raises(ct.CLIConnectionError, match=r"^cannot connect: \[Errno 5\] no") as caught:
        transport.connect_now()
    assert caught.value.__cause__ is opener.opened
    assert not transport.is_ready()
    opener.opened = None
    assert transport.connect_now() is False
    opener.opened = Ending(error=anyio.EndOfStream())
    assert transport.connect_now() is True
    assert transport.is_ready()
    assert transport.connect_now() is False
    await transport.close()
    assert ct.StreamTransport(Opening(opener.opened)).connect_now() is False


class Hesitating(Ending):
    """A stream whose input takes long to end, the first time."""

    def __init__(self) -> None:
        super().__init__(error=anyio.EndOfStream())
        self.ends = 0

    async def send_eof(self) -> None:
        self.ends += 1
        if self.ends == 1:
            await anyio.sleep_forever()


async def test_an_end_of_input_that_was_cancelled_may_be_tried_again() -> None:
    stream = Hesitating()
    async with ct.StreamTransport(Opening(stream)) as transport:
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + 0.01
            await transport.end_input()
        assert scope.cancelled_caught
        await transport.end_input()
        await transport.end_input()
        assert stream.ends == 2
        with pytest.raises(ct.InputClosed):
            await transport.write("{}")


def test_a_child_without_pipes_is_refused_and_a_process_that_nobody_owns_is_ended() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    popen = subprocess.Popen(command, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        with pytest.raises(ct.UsageError, match="a Child needs a pipe on each of its standard streams"):
            Child(popen, mark="m", tail=StderrTail())
    finally:
        end_unowned(popen, mark=new_mark())
    assert popen.returncode == -signal.SIGKILL
    assert popen.stdin is not None
    assert popen.stdout is not None
    assert popen.stdin.closed
    assert popen.stdout.closed


# ------------------------------------------------------------------------------------------------ each call gives way to others


async def of_memory() -> tuple[ByteStream, ByteStream]:
    return memory_stream_pair(capacity=65536)


async def of_compression() -> tuple[ByteStream, ByteStream]:
    here, there = memory_stream_pair(capacity=65536)
    return CompressedStream(here), CompressedStream(there)


async def of_websocket() -> tuple[ByteStream, ByteStream]:
    door, accepted = MemoryConnectable(capacity=65536), []

    async def serve() -> None:
        accepted.append(await accept_websocket(await door.accept()))

    opened: list[ByteStream] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        opened.append(await WebSocketConnectable("ws://localhost/", opener=door).connect())
    assert accepted[0] is not None
    return opened[0], accepted[0]


async def of_process() -> tuple[ByteStream, ByteStream]:
    here = await ProcessConnectable([sys.executable, "-c", "import shutil, sys; shutil.copyfileobj(sys.stdin, sys.stdout)"]).connect()
    return here, here


@pytest.mark.parametrize("kind", [of_memory, of_compression, of_websocket, of_process])
async def test_a_cancelled_call_takes_nothing_although_data_is_at_hand(kind: Callable[[], Awaitable[tuple[Any, Any]]]) -> None:
    here, there = await kind()
    with anyio.fail_after(30):
        await there.send(b"abc\n")
        if here is there:
            await there.send_eof()
        assert await here.receive(1) == b"a"
        with anyio.CancelScope() as scope:
            scope.cancel()
            await here.receive(1)
        assert scope.cancelled_caught
        rest = b""
        while len(rest) < 3:
            rest += await here.receive(1)
        assert rest == b"bc\n"
    with anyio.CancelScope(shield=True):
        await anyio.aclose_forcefully(there)
        await anyio.aclose_forcefully(here)


# ------------------------------------------------------------------------------------------------------------------ small parts


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (5, "token must be a text, not int"),
        (None, "token must be a text, not NoneType"),
        ("half \ud800", "token holds half of a surrogate pair, which cannot be sent: give other characters"),
    ],
)
def test_a_text_that_cannot_be_sent_is_refused_without_its_value(value: object, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_text(value, option="token")
    assert (str(caught.value), caught.value.option) == (said, "token")
    check_text("wörtlich", option="token")


@pytest.mark.parametrize(
    ("stat", "running"), [(b"1 (a) b) R 1 2", True), (b"1 (Z) S 1", True), (b"1 (a) Z 1", False), (b"1 (a) X 1", False), (b"", False)]
)
def test_a_process_that_is_a_zombie_or_gone_does_not_run(stat: bytes, running: bool, tmp_path: Path) -> None:
    (tmp_path / "stat").write_bytes(stat)
    assert is_running(str(tmp_path)) is running
    assert is_running(str(tmp_path / "nobody")) is False


@pytest.mark.parametrize("at_most", [0, 3, 5, 100])
@pytest.mark.parametrize("cut", [True, False])
async def test_the_text_of_an_answer_is_cut_and_as_much_as_came(at_most: int, cut: bool) -> None:
    ours, theirs = memory_stream_pair(capacity=2**20)
    await theirs.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nh\xffll")
    if not cut:
        await theirs.send(b"o and")
    await theirs.send_eof()
    stream = await http_get(ours, "/x", host="h:1", headers={})
    whole = "h�ll" if cut else "h�llo and"
    assert await stream.text(at_most=at_most) == whole[:at_most]
    await stream.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await ours.receive()


def test_what_was_consumed_is_never_more_than_what_has_come() -> None:
    here, there = LinkEnd(window=4096), LinkEnd(window=4096)
    for end, other in ((here, there), (there, here)):
        end.resume(received=other.received, replay_from=other.replay_from, window=other.window)
    here.consume(10**9)  # a caller that counts wrongly
    for _ in range(8):
        there.send(b"x" * 1024)
        while there.has_output:
            list(here.receive(there.data_to_send()))
        here.consume(here.received)
        while here.has_output:
            list(there.receive(here.data_to_send()))
    assert here.received == there.acknowledged == 8 * 1024


async def test_between_two_connections_a_link_has_nothing_to_say() -> None:
    end, other = LinkEnd(window=4096), LinkEnd(window=4096)
    end.resume(received=0, replay_from=0, window=4096)
    other.resume(received=0, replay_from=0, window=4096)
    here, there = memory_stream_pair(capacity=65536)
    carrier = LinkCarrier(end, on_event=lambda event: None)
    await there.send_eof()
    with anyio.fail_after(30):
        assert await carrier.carry(here) is None
    end.send(b"later")
    assert not end.has_output
    assert end.data_to_send() == b""
    end.resume(received=0, replay_from=0, window=4096)
    assert b"later" in end.data_to_send()
