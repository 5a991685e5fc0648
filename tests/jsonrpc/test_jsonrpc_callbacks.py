"""`on_request` of a `JSONRPCPeer`: callbacks work at the same time up to a bound, and a failure tells the peer nothing but that."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from rpc_peers import PATIENCE, SixMethods, connected, in_time, settled, soon
from virtual_time import virtual_time

from claude_transport import JSONRPCError, JSONRPCPeer, ProtocolError, UsageError
from claude_transport.jsonrpc import ACP_CANCEL, MAX_WAITING_BYTES, MCP_CANCEL, Notification, Request


class Abort(BaseException):
    """Not an `Exception`, as the ones of test frameworks are not."""


class Rooms:
    """Callbacks that stay inside until the test lets them go."""

    def __init__(self) -> None:
        self.inside: list[Request] = []
        self.cancelled: list[Request] = []
        self.go = anyio.Event()

    async def __call__(self, request: Request) -> Any:
        self.inside.append(request)
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(request)
            raise
        return request.id


@pytest.fixture(autouse=True)
def _nothing_is_left_to_asyncio(caplog: pytest.LogCaptureFixture) -> Any:
    """What asyncio complains of when it throws a task away, it logs."""
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        yield
        gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_callbacks_work_at_the_same_time_and_answer_when_they_are_done() -> None:
    rooms = Rooms()
    async with connected(on_request=rooms) as (_, other):
        await other.say(*({"id": number, "method": "wait"} for number in ["a", 1, "1", 0]))
        await soon(lambda: len(rooms.inside) == 4)
        rooms.go.set()
        assert {(await other.hear())["id"] for _ in range(4)} == {"a", 1, "1", 0}


async def test_requests_are_taken_up_in_their_order_and_noted_before_what_follows_them() -> None:
    told: list[str] = []

    async def on_request(request: Request) -> Any:
        told.append(f"began {request.id}")
        await anyio.lowlevel.checkpoint()

    def on_notification(notification: Notification) -> None:
        told.append(notification.method)

    def on_arrival(request: Request) -> None:
        told.append(f"came {request.id}")

    async with connected(on_request=on_request, on_arrival=on_arrival, on_notification=on_notification) as (_, other):
        await other.say(*[{"id": number, "method": "open"} for number in range(20)], {"method": "after"})
        for _number in range(20):
            await other.hear()
    assert told == [*[f"came {number}" for number in range(20)], "after", *[f"began {number}" for number in range(20)]]


async def test_a_request_that_could_not_be_noted_is_answered_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    def on_arrival(_: Request) -> None:
        raise ValueError("broken")

    rooms = Rooms()
    rooms.go.set()
    async with connected(on_request=rooms, on_arrival=on_arrival) as (peer, other):
        await other.say({"id": 1, "method": "quick"})
        assert (await other.hear())["id"] == 1
        assert peer.failed_callbacks == 1
    assert "on_arrival, given 'quick', failed (ValueError)" in caplog.text


async def test_a_request_over_the_bound_is_refused_at_once_and_there_is_room_when_one_was_answered() -> None:
    rooms = Rooms()
    async with connected(on_request=rooms, max_requests=2) as (_, other):
        await other.say(*({"id": number, "method": "wait"} for number in range(3)))
        refusal = await other.hear()
        assert (refusal["id"], refusal["error"]["code"]) == (2, -32001)
        assert {request.id for request in rooms.inside} == {0, 1}
        rooms.go.set()
        assert {(await other.hear())["id"] for _ in range(2)} == {0, 1}
        await other.say({"id": 2, "method": "wait"})
        assert await other.hear() == {"jsonrpc": "2.0", "id": 2, "result": 2}


async def test_answers_and_withdrawals_are_read_while_every_callback_is_busy() -> None:
    rooms = Rooms()
    async with connected(on_request=rooms, max_requests=1, cancel=MCP_CANCEL) as (peer, other), anyio.create_task_group() as tasks:
        await other.say({"id": 0, "method": "wait"})
        await soon(lambda: rooms.inside)
        tasks.start_soon(other.answer, "read")
        assert await in_time(peer.request("ask")) == "read"
        await other.say({"method": "notifications/cancelled", "params": {"requestId": 0}})
        await soon(lambda: rooms.cancelled)


async def test_a_callback_may_ask_the_peer_before_it_answers() -> None:
    async def on_request(request: Request) -> Any:
        return await peer.request("and you?")

    async with connected(on_request=on_request, max_requests=1) as (peer, other):
        await other.say({"id": 1, "method": "how are you?"})
        await other.answer("well")
        assert await other.hear() == {"jsonrpc": "2.0", "id": 1, "result": "well"}


async def test_a_callback_refuses_with_a_code_a_text_and_data_of_its_own() -> None:
    async def on_request(request: Request) -> Any:
        raise JSONRPCError("no such file", rpc_code=-32002, data={"path": "x"})

    async with connected(on_request=on_request) as (peer, other):
        await other.say({"id": 1, "method": "read"})
        assert (await other.hear())["error"] == {"code": -32002, "message": "no such file", "data": {"path": "x"}}
        assert peer.failed_callbacks == 0


async def test_an_error_that_another_request_raised_is_no_refusal_and_is_not_passed_on() -> None:
    async def on_request(request: Request) -> Any:
        return await peer.request("and you?")

    async with connected(on_request=on_request) as (peer, other):
        await other.say({"id": "a", "method": "how are you?"})
        await other.answer_with({"error": {"code": -5, "message": "the secret", "data": "more of it"}})
        assert await other.hear() == {"jsonrpc": "2.0", "id": "a", "error": {"code": -32603, "message": "internal error"}}
        assert peer.failed_callbacks == 1


async def test_without_a_callback_no_method_is_found() -> None:
    async with connected() as (_, other):
        await other.say({"id": 1, "method": "read"})
        assert (await other.hear())["error"] == {"code": -32601, "message": "method not found"}


@pytest.mark.parametrize("error", [ValueError("the secret"), JSONRPCError("no", data=object()), None])
async def test_a_callback_that_fails_is_answered_without_a_word_of_what_it_said(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_request(request: Request) -> Any:
        if error is not None:
            raise error
        return object()  # nothing that JSON can express

    async with connected(on_request=on_request) as (peer, other):
        await other.say({"id": 1, "method": "read\nERROR forged"})
        assert (await other.hear())["error"] == {"code": -32603, "message": "internal error"}
        assert peer.failed_callbacks == 1
    assert "on_request, asked 'read\\nERROR forged', failed" in caplog.text


async def test_a_cancellation_that_a_callback_makes_up_is_a_failure_like_any_other(anyio_backend: str) -> None:
    if anyio_backend == "trio":
        make: Callable[[], BaseException] = lambda: ValueError("trio lets no code make one up")  # noqa: E731
    else:
        import asyncio

        make = asyncio.CancelledError

    async def on_request(request: Request) -> Any:
        raise make()

    async with connected(on_request=on_request) as (peer, other):
        for number in range(2):
            await other.say({"id": number, "method": "read"})
            assert (await other.hear())["error"]["code"] == -32603
        assert peer.failed_callbacks == 2


# What the peer withdraws


async def test_what_an_mcp_peer_withdraws_is_cancelled_and_not_answered() -> None:
    rooms = Rooms()
    async with connected(on_request=rooms, cancel=MCP_CANCEL) as (_, other):
        await other.say({"id": "a", "method": "wait"}, {"id": "b", "method": "wait"})
        await soon(lambda: len(rooms.inside) == 2)
        await other.say({"method": "notifications/cancelled", "params": {"requestId": "a"}})
        await soon(lambda: rooms.cancelled)
        rooms.go.set()
        assert (await other.hear())["id"] == "b"
        assert [request.id for request in rooms.cancelled] == ["a"]


async def test_what_is_withdrawn_in_the_moment_of_its_coming_is_cancelled_too() -> None:
    rooms = Rooms()
    async with connected(on_request=rooms, cancel=ACP_CANCEL) as (_, other):
        await other.say({"id": "a", "method": "wait"}, {"method": "$/cancel_request", "params": {"requestId": "a"}})
        answer = await other.hear()
        assert (answer["id"], answer["error"]["code"]) == ("a", -32800)


async def test_a_withdrawn_callback_that_finishes_all_the_same_is_answered_where_the_dialect_answers() -> None:
    async def stubborn(request: Request) -> Any:
        with anyio.CancelScope(shield=True):
            await release.wait()
        return "done"

    for cancel, heard in [(ACP_CANCEL, ["a", "last"]), (MCP_CANCEL, ["last"])]:
        release = anyio.Event()
        async with connected(on_request=stubborn, cancel=cancel) as (_, other):
            await other.say({"id": "a", "method": "wait"}, {"method": cancel.method, "params": {"requestId": "a"}})
            await settled()
            release.set()
            await settled()
            await other.say({"id": "last", "method": "wait"})
            assert [(await other.hear())["id"] for _ in heard] == heard


# A peer that floods


async def test_a_peer_that_asks_more_bytes_than_are_worked_on_is_refused() -> None:
    rooms = Rooms()
    async with connected(on_request=rooms, capacity=2**23, max_line_bytes=2**26) as (_, other):
        for number in range(4):
            await other.say({"id": number, "method": "wait", "params": ["x" * (MAX_WAITING_BYTES // 3 - 1000)]})
        refused = await other.hear()
        assert (refused["id"], refused["error"]["code"]) == (3, -32001)
        assert {request.id for request in rooms.inside} == {0, 1, 2}


async def test_a_peer_that_asks_and_never_reads_the_answers_is_bounded() -> None:
    inside = 0
    most = 0

    async def on_request(request: Request) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await anyio.lowlevel.checkpoint()
        inside -= 1
        return "x" * 2**16

    async with connected(on_request=on_request, max_requests=8) as (peer, other), anyio.create_task_group() as tasks:

        async def ask_on() -> None:  # the answer to each holds its id, and none is read
            for number in range(200):
                await other.say({"id": f"{number} {'i' * 2**19}", "method": "m"})

        tasks.start_soon(ask_on)
        with pytest.raises(ProtocolError, match="goes on asking and does not read the answers"):
            await in_time(anext(peer.notifications()))
        tasks.cancel_scope.cancel()
    assert most <= 8


# What is no Exception


@pytest.mark.parametrize("make", [Abort, GeneratorExit, lambda: BaseExceptionGroup("several", [ValueError(), Abort()])])
async def test_a_callback_that_crashes_is_answered_and_ends_the_conversation_with_the_cause(make: Callable[[], BaseException]) -> None:
    crash = make()

    async def on_request(request: Request) -> Any:
        raise crash

    async with connected(on_request=on_request) as (peer, other):
        errors: list[UsageError] = []

        async def ask() -> None:
            with pytest.raises(UsageError) as caught:
                await in_time(peer.request("ask"))
            errors.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await other.hear()
            await other.say({"id": 1, "method": "read"})
            assert (await other.hear())["error"] == {"code": -32603, "message": "internal error"}
        with pytest.raises(UsageError) as caught:
            await in_time(anext(peer.notifications()))
        for error in (*errors, caught.value):
            assert (error.code, error.__cause__) == ("usage.callback_failed", crash)
            assert type(crash).__name__ in str(error)


@virtual_time
async def test_a_crash_ends_the_conversation_with_a_peer_that_takes_no_answer_too() -> None:
    async def on_request(request: Request) -> Any:
        raise Abort

    async with connected(on_request=on_request, capacity=16) as (peer, other):
        await other.say({"id": 1, "method": "m"})
        with pytest.raises(UsageError, match="Abort"):
            await in_time(anext(peer.notifications()))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", ["on_request", "on_notification", "async on_notification"])
@pytest.mark.parametrize("crash", [KeyboardInterrupt(), SystemExit(3), BaseExceptionGroup("several", [SystemExit(3)])])
def test_what_is_meant_for_the_program_goes_to_the_program(
    backend: str, kind: str, crash: BaseException, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    transports: list[SixMethods] = []

    async def callback(_: object) -> Any:
        raise crash

    def plain_callback(_: object) -> Any:
        raise crash

    options = {"on_request": {"on_request": callback}, "on_notification": {"on_notification": plain_callback}}

    async def main() -> None:
        transports.append(SixMethods())
        async with JSONRPCPeer(transports[0], **options.get(kind, {"on_notification": callback})) as peer:
            transports[0].say({"method": "m", **({"id": 1} if kind == "on_request" else {})})
            with anyio.fail_after(PATIENCE):
                await peer.request("ask")

    wanted = KeyboardInterrupt if isinstance(crash, KeyboardInterrupt) else SystemExit
    with pytest.raises(wanted) as caught:
        anyio.run(main, backend=backend)
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 3
    assert transports[0].calls[-1] == "close"
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert "never retrieved" not in capfd.readouterr().err
