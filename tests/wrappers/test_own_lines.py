"""What a wrapper says by itself: lines for the reader, lines for the peer, requests with answers that the reader does not see."""

from __future__ import annotations

import json
import sys
import tracemalloc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from virtual_time import virtual_time

from claude_transport.client.query import Query
from claude_transport.errors import Busy, ConnectionLost, ControlRequestFailed, ControlTimeout, NotConnected, TransportClosed, UsageError
from claude_transport.messages import synthetic_turn
from claude_transport.protocol.envelope import encode_line
from claude_transport.testing.conformance import run_conformance
from claude_transport.testing.conformance.media import lockstep, memory, wrapped
from claude_transport.transport import Transport
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers import FaultyTransport, LoggingTransport, ObservingWrapper, peek
from claude_transport.wrappers.base import LineWrapper
from claude_transport.wrappers.own_lines import MOST_WAITING_BYTES, OwnLines

LINE = b'{"type":"a"}'
MORE = b'{"type":"b"}'


class Peer(Transport):
    """A transport of this library whose lines the test says."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.on_write: Callable[[dict[str, Any]], Awaitable[None]] | None = None
        self.send, self._receive = anyio.create_memory_object_stream[bytes](100)
        self.calls: list[str] = []
        self._ready = False

    async def connect(self) -> None:
        self._ready = True

    async def write(self, data: str | bytes) -> None:
        for line in (data.encode() if isinstance(data, str) else data).splitlines():
            frame = json.loads(line)
            if self.on_write is not None:
                await self.on_write(frame)
            self.written.append(frame)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async for line in self._receive:
            yield json.loads(line)

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        return self

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        try:
            return [await self._receive.receive()]
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise StopAsyncIteration from None

    async def end_input(self) -> None:
        self.calls.append("end_input")

    async def close(self) -> None:
        self._ready = False
        self.send.close()
        self._receive.close()

    def is_ready(self) -> bool:
        return self._ready


class SixMethods:
    """The same peer as somebody else writes it: six methods, and a generator that a cancellation ends for good."""

    def __init__(self) -> None:
        self.inside = Peer()
        self.send, self.written = self.inside.send, self.inside.written
        self.most_writers = self.writers = 0

    async def connect(self) -> None:
        await self.inside.connect()

    async def write(self, data: str) -> None:
        self.writers += 1
        self.most_writers = max(self.most_writers, self.writers)
        await anyio.lowlevel.checkpoint()
        await self.inside.write(data)
        self.writers -= 1

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        return self.inside.read_messages()

    async def end_input(self) -> None:
        await self.inside.end_input()

    async def close(self) -> None:
        await self.inside.close()

    def is_ready(self) -> bool:
        return self.inside.is_ready()


PEERS = pytest.mark.parametrize("make", [Peer, SixMethods])


async def settled() -> None:
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


async def next_line(view: AsyncIterator[Sequence[bytes]]) -> bytes:
    with anyio.fail_after(10):
        (line,) = await anext(view)
    return line


# ------------------------------------------------------------------------------------------------------------ to the reader


@PEERS
async def test_an_injected_line_wakes_a_reader_that_waits_and_costs_no_line_of_the_peer(make: Any) -> None:
    peer = make()
    heard: list[bytes] = []
    async with LineWrapper(peer) as wrapper, anyio.create_task_group() as tasks:

        async def read() -> None:
            async for batch in wrapper.read_lines():
                heard.extend(batch)

        tasks.start_soon(read)
        for number in range(3):
            await settled()
            wrapper.inject(b'{"n":%d}' % number)
            await settled()
            assert heard[-1] == b'{"n":%d}' % number
            await peer.send.send(LINE)
            await settled()
        peer.send.close()
    assert heard == [b'{"n":0}', LINE, b'{"n":1}', LINE, b'{"n":2}', LINE]


@PEERS
@pytest.mark.parametrize("view", ["lines", "messages"])
async def test_injected_lines_go_before_what_the_peer_says_next_and_before_its_end(make: Any, view: str) -> None:
    peer = make()
    async with LineWrapper(peer) as wrapper:
        await peer.send.send(LINE)
        peer.send.close()
        wrapper.inject('{"type":"text"}\n')
        wrapper.inject(MORE)
        if view == "lines":
            heard = [peek(line).type async for batch in wrapper.read_lines() for line in batch]
        else:
            heard = [message["type"] async for message in wrapper.read_messages()]
        assert heard == ["text", "b", "a"]
        with pytest.raises(TransportClosed, match="has got the end of the stream"):
            wrapper.inject(LINE)


@PEERS
async def test_a_line_that_is_injected_with_the_end_comes_before_it(make: Any) -> None:
    class Farewell(LineWrapper):
        async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
            try:
                return await anext(source)
            except StopAsyncIteration:
                if not told:
                    told.append(True)
                    self.inject(MORE)
                raise

    told: list[bool] = []
    peer = make()
    async with Farewell(peer) as wrapper:
        await peer.send.send(LINE)
        peer.send.close()
        assert [line async for batch in wrapper.read_lines() for line in batch] == [LINE, MORE]


async def test_an_error_that_comes_with_an_injected_line_is_raised_after_it() -> None:
    class Failing(Peer):
        fails = True

        async def __anext__(self) -> Sequence[bytes]:
            if not self.fails:
                return await super().__anext__()
            self.fails = False
            wrapper.inject(LINE)
            raise ConnectionLost("cut")

    wrapper = LineWrapper(Failing())
    async with wrapper:
        view = wrapper.read_lines()
        assert await next_line(view) == LINE
        with pytest.raises(ConnectionLost, match="cut"), anyio.fail_after(10):
            await anext(view)
        with pytest.raises(TransportClosed):
            wrapper.inject(LINE)


async def test_a_peer_that_says_much_at_once_loses_nothing_to_the_task_that_reads_it() -> None:
    class Talkative(SixMethods):
        async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
            for number in range(100):
                yield {"n": number}

    async with LineWrapper(Talkative()) as wrapper:
        heard = [json.loads(line) async for batch in wrapper.read_lines() for line in batch]
    assert heard == [{"n": number} for number in range(100)]


async def test_a_close_ends_the_reading_of_a_peer_that_does_not_end_it_itself() -> None:
    class Stubborn(SixMethods):
        has_ended = False

        async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
            try:
                yield {"n": 1}
                await anyio.sleep_forever()
            finally:
                self.has_ended = True

    peer = Stubborn()
    wrapper = LineWrapper(peer)
    await wrapper.connect()
    view = wrapper.read_lines()
    assert await next_line(view) == b'{"n":1}'
    with anyio.fail_after(10):
        await wrapper.close()
    assert peer.has_ended
    with pytest.raises(ConnectionLost, match="reading was ended"):
        await anext(view)


async def test_a_wrapper_that_injects_from_its_own_read_batch_hands_its_batch_on_first() -> None:
    class Doubling(LineWrapper):
        async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
            batch = await anext(source)
            self.inject(MORE)
            return batch

    peer = Peer()
    async with Doubling(peer) as wrapper:
        view = wrapper.read_lines()
        await peer.send.send(LINE)
        assert [await next_line(view), await next_line(view)] == [LINE, MORE]


@PEERS
async def test_another_reader_goes_on_where_the_first_one_was_cancelled(make: Any) -> None:
    peer = make()
    async with LineWrapper(peer) as wrapper:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(next_line, wrapper.read_lines())
                await settled()
                scope.cancel()
        await peer.send.send(LINE)
        await peer.send.send(MORE)
        assert await next_line(wrapper.read_lines()) == LINE
        with anyio.fail_after(10):
            assert await anext(wrapper.read_messages()) == {"type": "b"}


@pytest.mark.parametrize("line", [b"", b"\n", b"a\nb", "a\nb\n", None, {"type": "a"}, "\ud800"])
async def test_what_is_no_line_is_refused(line: Any) -> None:
    async with LineWrapper(Peer()) as wrapper:
        for call in (wrapper.inject, wrapper.send_later):
            with pytest.raises(UsageError, match=r"takes (one line|text that is Unicode)"):
                call(line)


@pytest.mark.parametrize("kind", [ObservingWrapper, LoggingTransport, lambda inside: FaultyTransport(inside, ())])
async def test_a_class_that_only_watches_refuses_to_inject(kind: Any) -> None:
    async with kind(Peer()) as wrapper:
        with pytest.raises(UsageError, match="only watches: set `speaks = True`"):
            wrapper.inject(LINE)


async def test_lines_that_nobody_reads_are_bounded_in_both_directions() -> None:
    block = anyio.Event()

    async def wait(_frame: Any) -> None:
        await block.wait()

    peer = Peer()
    peer.on_write = wait
    megabyte = b'{"x":"%s"}' % (b"x" * 2**20)
    async with LineWrapper(peer) as wrapper:
        for call in (wrapper.inject, wrapper.send_later):
            for _ in range(15):
                call(megabyte)
            with pytest.raises(Busy, match="and at most 16777216 may"):
                call(megabyte)
        assert len(await anext(wrapper.read_lines())) == 15
        wrapper.inject(megabyte)


async def test_after_a_close_nothing_is_taken() -> None:
    async with LineWrapper(Peer()) as wrapper:
        wrapper.inject(LINE)
    with pytest.raises(TransportClosed):
        wrapper.inject(LINE)
    with pytest.raises(TransportClosed):
        wrapper.send_later(LINE)


# -------------------------------------------------------------------------------------------------------------- to the peer


@PEERS
async def test_lines_are_sent_later_in_their_order_and_before_the_end_of_the_input(make: Any) -> None:
    peer = make()
    async with LineWrapper(peer) as wrapper:
        for number in range(3):
            wrapper.send_later(b'{"n":%d}' % number)
        assert peer.written == []
        await wrapper.end_input()
        assert peer.written == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_a_peer_of_somebody_else_gets_one_write_at_a_time() -> None:
    peer = SixMethods()
    async with LineWrapper(peer) as wrapper:
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                wrapper.send_later(b'{"n":%d}' % number)
                tasks.start_soon(wrapper.write, b'{"n":9}\n')
        await wrapper.end_input()
    assert (peer.most_writers, len(peer.written)) == (1, 10)


async def test_a_write_from_read_batch_cannot_wait_for_the_reading_that_it_holds_up() -> None:
    """The peer takes nothing before its own lines are read."""
    peer = Peer()
    drained = anyio.Event()

    async def when_drained(_frame: Any) -> None:
        await drained.wait()

    class Answering(LineWrapper):
        async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
            batch = await anext(source)
            self.send_later(b'{"answer":"%s"}' % (b"x" * 400_000))
            return batch

    peer.on_write = when_drained
    async with Answering(peer) as wrapper:
        for _ in range(5):
            await peer.send.send(LINE)
        view = wrapper.read_lines()
        assert [await next_line(view) for _ in range(5)] == [LINE] * 5
        drained.set()
        await wrapper.end_input()
        assert len(peer.written) == 5


CHATTERBOX = """import sys
for number in range(20):
    print('{"n":%d,"pad":"%s"}' % (number, "x" * 100_000), flush=True)
print('{"read":%d}' % sum(map(len, sys.stdin)), flush=True)
"""


async def test_a_process_that_writes_before_it_reads_gets_what_was_sent_from_read_batch() -> None:
    """It writes 2 MB before it reads 400 KB. A `write()` in `read_batch` would wait for ever."""

    class Answering(LineWrapper):
        answered = 0

        async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
            batch = await anext(source)
            if not self.answered:
                self.answered = 1
                self.send_later(b'{"answer":"%s"}' % (b"x" * 400_000))
            return batch

    heard: list[bytes] = []
    with anyio.fail_after(60):
        async with Answering(SubprocessTransport(command=[sys.executable, "-c", CHATTERBOX])) as wrapper:
            async for batch in wrapper.read_lines():
                heard.extend(batch)
                if len(heard) == 20:
                    await wrapper.end_input()
    assert (len(heard), heard[-1]) == (21, b'{"read":400014}')


async def test_a_line_that_could_not_be_sent_is_told_by_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_frame: Any) -> None:
        raise TransportClosed("gone", exit_code=3)

    peer = Peer()
    peer.on_write = fail
    async with LineWrapper(peer) as wrapper:
        wrapper.send_later(LINE)
        wrapper.send_later(LINE)
        await settled()
        assert "2 lines of a wrapper could not be sent (usage.closed)" in caplog.text
        with pytest.raises(TransportClosed, match="gone") as caught:
            wrapper.send_later(LINE)
        assert caught.value.exit_code == 3
    with pytest.raises(TransportClosed, match="gone"):
        wrapper.send_later(LINE)  # the close is not the reason


async def test_a_close_waits_for_the_end_of_the_write_that_it_cancels() -> None:
    ended: list[bool] = []

    async def tidy_up(_frame: Any) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(10):
                    await anyio.lowlevel.checkpoint()
            ended.append(True)

    peer = Peer()
    peer.on_write = tidy_up
    with anyio.fail_after(30):
        async with LineWrapper(peer) as wrapper:
            wrapper.send_later(LINE)
            await settled()
    assert ended == [True]


async def test_a_close_drops_what_the_peer_does_not_take() -> None:
    async def never(_frame: Any) -> None:
        await anyio.sleep_forever()

    peer = Peer()
    peer.on_write = never
    wrapper = LineWrapper(peer)
    await wrapper.connect()
    wrapper.send_later(LINE)
    await settled()
    with anyio.fail_after(10):
        await wrapper.close()
    assert peer.written == []


# ------------------------------------------------------------------------------------------------------------ its own requests


def answering(peer: Any, **response: Any) -> Callable[[dict[str, Any]], Awaitable[None]]:
    async def answer(frame: dict[str, Any]) -> None:
        reply = {"request_id": frame["request_id"], **response}
        await peer.send.send(json.dumps({"type": "control_response", "response": reply}).encode())

    return answer


async def drain(wrapper: LineWrapper, heard: list[bytes]) -> None:
    async for batch in wrapper.read_lines():
        heard.extend(batch)


async def test_the_answer_to_a_request_of_the_wrapper_does_not_reach_the_reader() -> None:
    peer = Peer()
    peer.on_write = answering(peer, subtype="success", response={"model": "m"})
    heard: list[bytes] = []
    async with LineWrapper(peer) as wrapper, anyio.create_task_group() as tasks:
        tasks.start_soon(drain, wrapper, heard)
        assert await wrapper.request("get_settings", scope="all") == {"model": "m"}
        await peer.send.send(LINE)
        await settled()
        peer.send.close()
    assert heard == [LINE]
    (frame,) = peer.written
    assert frame["request"] == {"subtype": "get_settings", "scope": "all"}


async def test_a_request_that_is_refused_says_so() -> None:
    peer = Peer()
    peer.on_write = answering(peer, subtype="error", error="no such mode", error_code="invalid_mode")
    async with LineWrapper(peer) as wrapper, anyio.create_task_group() as tasks:
        tasks.start_soon(drain, wrapper, [])
        with pytest.raises(ControlRequestFailed) as caught:
            await wrapper.request("set_permission_mode", mode="x")
        error = caught.value
        assert str(error).startswith("set_permission_mode was refused: no such mode")
        assert (error.subtype, error.error_code, error.request_id) == (
            "set_permission_mode",
            "invalid_mode",
            peer.written[0]["request_id"],
        )
        tasks.cancel_scope.cancel()


async def test_the_answer_to_somebody_else_reaches_the_reader_also_when_it_quotes_a_request_of_the_wrapper() -> None:
    peer = Peer()
    heard: list[bytes] = []
    async with LineWrapper(peer) as wrapper, anyio.create_task_group() as tasks:
        tasks.start_soon(drain, wrapper, heard)
        tasks.start_soon(wrapper.request, "get_settings")
        await settled()
        quoted = peer.written[0]["request_id"]
        answer = {"subtype": "success", "request_id": "q1", "response": {"x": quoted}}
        foreign = json.dumps({"type": "control_response", "response": answer})
        text = json.dumps({"type": "assistant", "text": quoted})
        await peer.send.send(foreign.encode())
        await peer.send.send(text.encode())
        await settled()
        assert heard == [foreign.encode(), text.encode()]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("end", ["a failed write", "a close"])
async def test_a_request_does_not_wait_for_an_answer_that_cannot_come(end: str) -> None:
    async def fail(_frame: Any) -> None:
        raise LookupError("the transport of somebody else")

    peer = Peer()
    peer.on_write = fail if end == "a failed write" else None
    async with LineWrapper(peer) as wrapper, anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(ConnectionLost, match="before the answer to get_settings") as caught, anyio.fail_after(10):
                await wrapper.request("get_settings", timeout=3600)
            assert type(caught.value.__cause__) is (LookupError if end == "a failed write" else TransportClosed)

        tasks.start_soon(ask)
        await settled()
        if end == "a close":
            await wrapper.close()


@virtual_time
async def test_a_request_without_an_answer_ends_after_its_time_and_a_late_answer_is_kept_from_the_reader() -> None:
    peer = Peer()
    heard: list[bytes] = []
    async with LineWrapper(peer) as wrapper, anyio.create_task_group() as tasks:
        tasks.start_soon(drain, wrapper, heard)
        begin = anyio.current_time()
        with pytest.raises(ControlTimeout) as caught:
            await wrapper.request("get_settings", timeout=7)
        assert anyio.current_time() - begin == pytest.approx(7)
        assert (caught.value.waited, caught.value.subtype) == (7, "get_settings")
        assert caught.value.request_id == peer.written[0]["request_id"]
        await answering(peer, subtype="success")(peer.written[0])
        await peer.send.send(LINE)
        await settled()
        peer.send.close()
    assert heard == [LINE]


@pytest.mark.parametrize("end", ["end", "close"])
async def test_a_request_ends_with_the_stream(end: str) -> None:
    peer = Peer()
    failures: list[BaseException] = []

    async def ask() -> None:
        try:
            await wrapper.request("get_settings")
        except ConnectionLost as error:
            failures.append(error)

    async with LineWrapper(peer) as wrapper, anyio.create_task_group() as tasks:
        tasks.start_soon(drain, wrapper, [])
        tasks.start_soon(ask)
        await settled()
        if end == "end":
            peer.send.close()
        else:
            await wrapper.close()
    assert [(error.code, str(error)) for error in failures] == [  # type: ignore[attr-defined]
        ("transport.failed", "the stream ended before the answer to get_settings")
    ]


# ---------------------------------------------------------------------------------------------- a prompt that the wrapper answers


class Canned(LineWrapper):
    """Answers prompts that say "canned" itself; the CLI never sees them."""

    async def write(self, data: str | bytes) -> None:
        line = data.encode() if isinstance(data, str) else data
        found = peek(line)
        if found.type == "user" and b"canned" in line and found.uuid:
            for said in synthetic_turn(found.uuid, "Out of a can.", session_id="s"):
                self.inject(said)
        else:
            await super().write(line)


async def test_a_prompt_that_a_wrapper_has_answered_is_a_turn_like_any_other() -> None:
    result = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "From the CLI."}
    mock = MockTransport([result])
    async with Query(Canned(mock)) as query:
        with anyio.fail_after(10):
            turn = await query.send("canned, please")
            messages = [message async for message in turn]
            answer = await turn.result()
            assert (answer.result, answer.total_cost_usd, answer.session_id) == ("Out of a can.", 0, "s")
            assert [getattr(message, "text", None) for message in messages if message.type == "assistant"] == ["Out of a can."]
            assert (await (await query.send("a real one")).result()).result == "From the CLI."
    assert [frame["type"] for frame in mock.written].count("user") == 1


@PEERS
async def test_a_closed_wrapper_is_freed_without_the_collector(make: Any) -> None:
    peer = make()
    wrapper = LineWrapper(peer)
    await wrapper.connect()
    view = wrapper.read_lines()
    await peer.send.send(LINE)
    wrapper.send_later(LINE)
    assert await next_line(view) == LINE
    await wrapper.end_input()
    await wrapper.close()
    kept = weakref.ref(wrapper)
    del wrapper, view
    await settled()
    assert kept() is None


@pytest.mark.parametrize("medium", [memory(), lockstep()], ids=["memory", "lockstep"])
def test_a_wrapper_that_may_speak_keeps_the_contract(medium: Any) -> None:
    run_conformance(wrapped(medium, LineWrapper)).raise_for_failures()


def test_a_line_without_a_newline_is_what_a_turn_is_made_of() -> None:
    assert all(line.find(b"\n") == -1 and encode_line(json.loads(line))[:-1] == line for line in synthetic_turn("u", "text"))


async def test_lines_before_the_connection_are_lost_and_those_after_it_are_not(caplog: pytest.LogCaptureFixture) -> None:
    class Strict(Peer):
        async def write(self, data: str | bytes) -> None:
            if not self.is_ready():
                raise NotConnected("connect() has not been called")
            await super().write(data)

    peer = Strict()
    wrapper = LineWrapper(peer)
    wrapper.send_later(b'{"long":"%s"}' % (b"x" * (MOST_WAITING_BYTES - 20)))
    await anyio.wait_all_tasks_blocked()
    assert "1 lines of a wrapper could not be sent (usage.not_connected)" in caplog.text
    async with wrapper:
        wrapper.send_later(MORE)
        await wrapper.end_input()
    assert peer.written == [{"type": "b"}]


@pytest.mark.parametrize("timeout", ["5", None, True, float("nan")])
async def test_a_request_with_a_timeout_that_is_no_number_of_seconds_is_refused(timeout: Any) -> None:
    peer = Peer()
    async with LineWrapper(peer) as wrapper:
        with pytest.raises(UsageError, match="timeout must be a number of seconds"):
            await wrapper.request("mcp_status", timeout=timeout)
    assert peer.written == []


async def test_nothing_is_kept_of_a_request_that_was_answered() -> None:
    """Each answer has 100 kB."""

    async def write(line: bytes) -> None:
        response = {"subtype": "success", "request_id": json.loads(line)["request_id"], "response": {"text": "x" * 100_000}}
        assert own.without_answers([json.dumps({"type": "control_response", "response": response}).encode()]) == []

    own = OwnLines(write)
    tracemalloc.start()
    try:
        for _ in range(50):
            assert len((await own.request("ask", {}, timeout=30))["text"]) == 100_000
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()
    await own.aclose()
