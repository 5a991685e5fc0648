"""The requests of a `JSONRPCPeer`: each has one outcome, also when the peer is late, silent, gone or lying, and leaves no waiter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from rpc_peers import Other, SixMethods, connected, in_time, settled, soon
from virtual_time import virtual_time

from claude_transport import (
    ConnectionLost,
    ControlTimeout,
    JSONRPCError,
    JSONRPCPeer,
    ProcessError,
    ProtocolError,
    SubprocessTransport,
    TransportClosed,
    TruncatedStream,
    UsageError,
)
from claude_transport.jsonrpc import MCP_CANCEL, JSONRPCCounters

MANY = 300


async def outcome_of(peer: JSONRPCPeer, method: str = "ask", **options: Any) -> object:
    """What a request returns, or the error that it raises."""
    try:
        return await in_time(peer.request(method, **options))
    except Exception as error:  # noqa: BLE001 - it is what the test looks at
        return error


async def outcomes_of(peer: JSONRPCPeer, count: int, then: Any) -> list[object]:
    """The outcomes of requests that wait at the same time, after `then` was called."""
    outcomes: list[object] = []

    async def ask() -> None:
        outcomes.append(await outcome_of(peer))

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(ask)
        await soon(lambda: len(peer.pending_requests) == count)
        await then()
    return outcomes


async def test_answers_in_another_order_find_their_requests() -> None:
    got: dict[int, object] = {}

    async with connected() as (peer, other):

        async def ask(number: int) -> None:
            got[number] = await peer.request("double", [number])

        async with anyio.create_task_group() as tasks:
            for number in range(MANY):
                tasks.start_soon(ask, number)
            requests = [await other.hear() for _ in range(MANY)]
            for request in reversed(requests):
                await other.answer(2 * request["params"][0], request=request)
        assert (peer.pending_requests, peer.counters) == ({}, JSONRPCCounters())
    assert got == {number: 2 * number for number in range(MANY)}


async def test_two_peers_may_ask_each_other_at_the_same_time() -> None:
    async def add(request: Any) -> int:
        return int(sum(request.params))

    async with connected(on_request=add, max_requests=MANY) as (here, other):
        there = JSONRPCPeer(StreamOf(other), on_request=add, max_requests=MANY)
        async with there, anyio.create_task_group() as tasks:

            async def ask(peer: JSONRPCPeer, number: int) -> None:
                assert await in_time(peer.request("add", [number, 1])) == number + 1

            for number in range(MANY):
                tasks.start_soon(ask, here, number)
                tasks.start_soon(ask, there, number)


class StreamOf(SixMethods):
    """The other end of a connection as a transport of another library."""

    def __init__(self, other: Other) -> None:
        super().__init__()
        self._other = other

    async def write(self, data: str) -> None:
        await self._other.stream.send(data.encode())

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            yield await self._other.hear()


@virtual_time
async def test_a_request_without_an_answer_ends_with_its_time_and_the_answer_is_late() -> None:
    async with connected(timeout=5) as (peer, other):
        began = anyio.current_time()
        with pytest.raises(ControlTimeout, match=r"no answer to ask in 5 s") as caught:
            await peer.request("ask")
        assert anyio.current_time() - began == pytest.approx(5)
        assert (caught.value.waited, caught.value.subtype, caught.value.request_id) == (5, "ask", "1")
        assert peer.pending_requests == {}
        await other.answer("late")
        await soon(lambda: peer.counters == JSONRPCCounters(late=1))
        with pytest.raises(ControlTimeout, match=r"in 60 s"):
            await peer.request("ask", timeout=60)


@virtual_time
async def test_a_late_request_is_withdrawn_in_the_words_of_the_dialect() -> None:
    async with connected(cancel=MCP_CANCEL) as (peer, other):
        with pytest.raises(ControlTimeout):
            await peer.request("ask", timeout=1)
        assert (await other.hear())["method"] == "ask"
        assert await other.hear() == {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}


async def test_a_cancelled_request_leaves_no_waiter_and_is_withdrawn() -> None:
    async with connected(cancel=MCP_CANCEL) as (peer, other):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.request, "ask")
            assert (await other.hear())["method"] == "ask"
            assert peer.pending_requests == {1: "ask"}
            tasks.cancel_scope.cancel()
        assert peer.pending_requests == {}
        assert (await other.hear())["params"] == {"requestId": 1}


async def test_a_request_that_was_cancelled_before_it_was_written_is_never_written() -> None:
    async with connected(capacity=64, cancel=MCP_CANCEL) as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(peer.notify, "x" * 1000)  # the peer does not read it
        await settled()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await peer.request("never")
        with anyio.move_on_after(0):
            await peer.notify("never")
        assert (await other.hear())["method"] == "x" * 1000
        await in_time(peer.notify("last"))
        assert (await other.hear())["method"] == "last"


async def test_a_line_that_is_being_written_is_written_to_its_end_whatever_happens_to_its_sender() -> None:
    async with connected(capacity=64) as (peer, other):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.request, "long", ["x" * 1000])
            await settled()
            tasks.cancel_scope.cancel()
        assert (await other.hear())["params"] == ["x" * 1000]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.answer, "still there")
            assert await in_time(peer.request("ask")) == "still there"


@pytest.mark.parametrize("answer", [{}, {"result": 1, "error": {"code": 1, "message": "both"}}, {"error": 5}])
async def test_an_answer_that_cannot_be_read_fails_the_request_at_once(answer: dict[str, Any]) -> None:
    async with connected() as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(other.answer_with, answer)
        with pytest.raises(ProtocolError, match="the answer to ask holds neither a result nor an error"):
            await in_time(peer.request("ask"))
    assert peer.counters.malformed == 1


async def test_answers_that_are_given_twice_or_to_nothing_are_counted_and_change_nothing() -> None:
    async with connected() as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(other.answer, "first")
        assert await in_time(peer.request("ask")) == "first"
        await other.say({"id": 1, "result": "second"}, {"id": 99, "result": 1}, {"id": "1", "result": 1}, {"id": 10**30, "result": 1})
        await other.say({"id": True, "result": 1}, {"id": 1.0, "result": 1}, {"id": [2], "result": 1}, [{"id": 2, "result": "in a batch"}])
        tasks.start_soon(other.answer, "still there")
        assert await in_time(peer.request("ask")) == "still there"
        assert peer.counters == JSONRPCCounters(late=1, unasked=3, malformed=4)


async def test_lines_that_are_no_messages_are_counted_here_and_by_the_transport() -> None:
    async with connected(max_line_bytes=1000) as (peer, other):
        await other.say(b"Listening\n", b"{half\n", b"\n", b"[" * 500 + b"\n", b'{"method":"' + b"x" * 2000 + b'"}\n', {"method": "ok"})
        assert (await in_time(anext(peer.notifications()))).method == "ok"
        assert peer.counters == JSONRPCCounters(malformed=4)
        assert (peer.info.noise_lines, peer.info.oversized_lines) == (3, 1)


# A peer that ends


async def test_a_peer_that_ends_well_fails_every_waiter_with_a_typed_error() -> None:
    async with connected() as (peer, other):
        outcomes = await outcomes_of(peer, 3, other.hang_up)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3
        assert len({id(outcome) for outcome in outcomes}) == 3, "each waiter has an error of its own"
        assert peer.pending_requests == {}
        for call in (peer.request, peer.notify):
            with pytest.raises(TransportClosed, match="the peer has ended"):
                await call("later")


async def test_a_peer_that_ends_within_a_line_fails_every_waiter_with_that() -> None:
    async with connected() as (peer, other):

        async def half_a_line() -> None:
            await other.say(b'{"id":1,"res')
            await other.hang_up()

        assert [type(outcome) for outcome in await outcomes_of(peer, 2, half_a_line)] == [TruncatedStream] * 2


async def test_a_last_answer_without_its_newline_counts() -> None:
    async with connected() as (peer, other):

        async def lone_line() -> None:
            await other.say(b'{"id":1,"result":"alone"}')
            await other.hang_up()

        assert await outcomes_of(peer, 1, lone_line) == ["alone"]


async def test_a_killed_process_fails_every_waiter_with_its_signal() -> None:
    code = "import os, signal, sys; sys.stdin.readline(); sys.stderr.write('the last words'); sys.stderr.flush(); os.kill(os.getpid(), 9)"
    async with JSONRPCPeer(SubprocessTransport(command=[sys.executable, "-c", code])) as peer:
        outcome = await outcome_of(peer)
        assert isinstance(outcome, ProcessError)
        assert (outcome.signal, "last words" in outcome.stderr_tail) == (9, True)
        with pytest.raises(TransportClosed) as caught:
            await peer.request("later")
        assert (caught.value.signal, "last words" in caught.value.stderr_tail) == (9, True)
        with pytest.raises(ProcessError):
            await in_time(anext(peer.notifications()))


async def test_a_process_that_ends_while_its_pipe_is_full_fails_the_writers_too() -> None:
    code = "import sys; sys.stdin.readline(); sys.exit(3)"
    async with JSONRPCPeer(SubprocessTransport(command=[sys.executable, "-c", code])) as peer, anyio.create_task_group() as tasks:
        errors: list[object] = []

        async def send() -> None:
            try:
                await in_time(peer.notify("long", ["x" * 2**22]))
            except Exception as error:  # noqa: BLE001 - looked at below
                errors.append(error)

        for _ in range(3):
            tasks.start_soon(send)
        outcome = await outcome_of(peer)
        assert isinstance(outcome, ProcessError)
        assert outcome.exit_code == 3
        await soon(lambda: len(errors) == 3)
        assert all(isinstance(error, ConnectionLost | TransportClosed) for error in errors)


@virtual_time
async def test_a_peer_that_takes_no_lines_fails_what_waits_when_reading_finds_no_better_reason() -> None:
    transport = SixMethods()
    async with JSONRPCPeer(transport) as peer:
        transport.write_error = OSError("no room")
        for _ in range(2):
            outcome = await outcome_of(peer, timeout=1000)
            assert isinstance(outcome, ConnectionLost)
            assert "the transport could not write: OSError('no room')" in str(outcome)
        transport.say({"method": "still"})
        assert (await in_time(anext(peer.notifications()))).method == "still", "what it says is read all the same"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio lets no code make up a cancellation
async def test_a_write_that_ends_in_a_cancellation_of_its_own_is_a_failed_one() -> None:
    class CancelsItself(SixMethods):
        async def write(self, data: str) -> None:
            raise asyncio.CancelledError

    transport = CancelsItself()
    async with JSONRPCPeer(transport) as peer:
        with pytest.raises(ConnectionLost, match="the transport could not write: StrayCancellation"):
            await in_time(peer.notify("said to nobody"))
        transport.say({"method": "still"})
        assert (await in_time(anext(peer.notifications()))).method == "still"


async def test_a_strict_transport_ends_the_conversation_at_the_first_line_that_is_no_message() -> None:
    from claude_transport import CLIJSONDecodeError, StreamTransport
    from claude_transport.streams.memory import MemoryConnectable

    connectable = MemoryConnectable()
    async with JSONRPCPeer(StreamTransport(connectable, strict=True)) as peer:
        other = Other(await connectable.accept())
        outcomes = await outcomes_of(peer, 1, lambda: other.say(b"noise\n"))
    assert [type(outcome) for outcome in outcomes] == [CLIJSONDecodeError]


async def test_a_transport_of_another_library_gets_one_text_for_each_line_and_its_errors_are_translated() -> None:
    transport = SixMethods()
    async with JSONRPCPeer(transport) as peer:

        async def fail() -> None:
            await soon(lambda: len(transport.written) == 2)
            transport.read_error = RuntimeError("theirs")
            transport.finish()

        outcomes = await outcomes_of(peer, 2, fail)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 2
        assert "RuntimeError('theirs')" in str(outcomes[0])
    assert [data.count("\n") for data in transport.written] == [1, 1]
    assert transport.calls == ["connect", "close"]


# Arguments


@pytest.mark.parametrize("timeout", ["5", True, float("nan")])
async def test_a_time_limit_that_is_no_number_is_refused(timeout: Any) -> None:
    async with connected() as (peer, _):
        with pytest.raises(UsageError, match="timeout must be a number of seconds"):
            await peer.request("ask", timeout=timeout)
        assert peer.pending_requests == {}


async def test_params_that_json_cannot_express_are_refused_and_nothing_waits() -> None:
    async with connected() as (peer, _):
        for call in (peer.request, peer.notify):
            with pytest.raises(UsageError, match="cannot be written as JSON"):
                await call("ask", {"when": object()})
        assert peer.pending_requests == {}


async def test_a_message_of_the_peer_is_shown_on_one_line_and_kept_whole() -> None:
    async with connected() as (peer, other), anyio.create_task_group() as tasks:
        tasks.start_soon(other.answer_with, {"error": {"code": 1, "message": "\x1b[2J\n" + "x" * 10_000}})
        error = await outcome_of(peer)
        assert isinstance(error, JSONRPCError)
        assert (len(error.message), "\n" in str(error), "\x1b" in str(error), len(str(error)) < 4000) == (10_005, False, False, True)
