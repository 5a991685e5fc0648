"""A `write` that waits with a prompt does not hold back answers and interrupts, where several tasks may write. The clocks jump."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import pytest
from peers import ForeignTransport, permission, result, soon
from virtual_time import Backend, jumping_backends

import claude_transport as ct
from claude_transport import Allow, InterruptOutcome, Query
from claude_transport.errors import ConnectionLost, InputClosed, TransportClosed
from claude_transport.transport import AtOnce, Client, SessionTerms


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Run every test of this module on both event loops, with clocks that jump."""
    backend: Backend = request.param
    return backend


class Slow(ct.TransportWrapper):
    """Waits in `write()` with each prompt, as a program does that does not know `before_prompt`."""

    def __init__(self, transport: Any, wait: Callable[[], Awaitable[object]]) -> None:
        super().__init__(transport)
        self.wait = wait

    async def write(self, data: str | bytes) -> None:
        if b'"user"' in (data.encode() if isinstance(data, str) else data):
            await self.wait()
        await super().write(data)


async def four_seconds() -> None:
    await anyio.sleep(4)


def name_of(frame: dict[str, Any]) -> str:
    if frame["type"] == "user":
        return str(frame["message"]["content"])
    return str(frame.get("request", {}).get("subtype", frame["type"]))


async def allow(*_: Any) -> Allow:
    return Allow()


async def test_answers_and_interrupts_pass_a_prompt_for_which_a_write_waits() -> None:
    at: dict[str, float] = {}
    begin = anyio.current_time()
    transport = ForeignTransport(on_write=lambda frame: at.update({name_of(frame): anyio.current_time() - begin}))
    async with Query(Slow(transport, four_seconds), can_use_tool=allow) as query:
        begin = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.send, "p0")
            await anyio.sleep(0.5)
            tasks.start_soon(query.send, "p1")
            await anyio.sleep(0.5)
            transport.say(permission())
            await soon(lambda: "control_response" in at)
            assert await query.interrupt(timeout=1) is not InterruptOutcome.TIMED_OUT
        assert at["control_response"] == at["interrupt"] == 1.0
        assert at["p0"] == 4.0
        query.abandon(timeout=0.0)
    assert [name_of(frame) for frame in transport.written] == ["initialize", "control_response", "interrupt", "p0", "p1"]


async def test_what_passes_keeps_its_order() -> None:
    transport = ForeignTransport()
    async with Query(Slow(transport, four_seconds), can_use_tool=allow) as query:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.send, "p0")
            await anyio.sleep(1)
            transport.say(*(permission(f"q{number}") for number in range(20)))
        await soon(lambda: len(transport.responses()) == 20)
        assert [name_of(frame) for frame in transport.written] == ["initialize", *["control_response"] * 20, "p0"]
        assert list(transport.responses()) == [f"q{number}" for number in range(20)]
        query.abandon(timeout=0.0)


class SlowToAnswer(Slow):
    """Waits with the first answer for longer than with a prompt."""

    async def write(self, data: str | bytes) -> None:
        if b'"first"' in (data.encode() if isinstance(data, str) else data):
            await anyio.sleep(10)
        await super().write(data)


async def test_a_line_after_the_prompt_does_not_overtake_one_that_passed_it() -> None:
    transport = ForeignTransport()
    async with Query(SlowToAnswer(transport, four_seconds), can_use_tool=allow) as query:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.send, "p0")
            await anyio.sleep(1)
            transport.say(permission("first"))
        transport.say(permission("second"))
        await soon(lambda: len(transport.responses()) == 2)
        assert list(transport.responses()) == ["first", "second"]
        await query.send("p1")
    assert [name_of(frame) for frame in transport.written][:5] == ["initialize", "p0", "control_response", "control_response", "p1"]


class AlsoAtOnce(SlowToAnswer):
    """Can also send a line without waiting, and notes the order in which lines have gone out."""

    def __init__(self, transport: Any, wait: Callable[[], Awaitable[object]]) -> None:
        super().__init__(transport, wait)
        self.sent: list[str] = []
        self.by_now: list[str] = []

    def attach(self, client: Client) -> SessionTerms:
        at_once = AtOnce(connect=bool, write=self.write_now, end_input=bool, close=bool)
        return msgspec.structs.replace(super().attach(client), at_once=at_once)

    def write_now(self, line: bytes) -> bool:
        self.by_now.append(name_of(json.loads(line)))
        return False

    async def write(self, data: str | bytes) -> None:
        await super().write(data)
        self.sent.append(name_of(json.loads(data)))


async def test_nothing_is_sent_at_once_while_a_line_that_passed_the_prompt_is_on_its_way() -> None:
    inside = ForeignTransport()
    transport = AlsoAtOnce(inside, four_seconds)
    async with Query(transport, can_use_tool=allow) as query, anyio.create_task_group() as tasks:
        tasks.start_soon(query.send, "p0")
        await anyio.sleep(1)
        inside.say(permission("first"))
        await anyio.sleep(5)
        transport.by_now.clear()
        await query.request("get_session_cost")
        assert transport.by_now == []
        await query.request("get_settings")
        assert transport.by_now == ["get_settings"]
    assert transport.sent[:5] == ["initialize", "p0", "control_response", "get_session_cost", "get_settings"]


async def test_requests_that_wait_behind_a_prompt_pass_it_as_well() -> None:
    """Both are in the queue before the writing task has taken its first step."""
    transport = ForeignTransport()
    async with Query(Slow(transport, four_seconds)) as query:
        begin = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.send, "p0")
            tasks.start_soon(query.set_model, "haiku")
            tasks.start_soon(query.send, "p1")
            await soon(lambda: transport.requests("set_model"))
            assert anyio.current_time() == begin
        assert sorted(map(name_of, transport.written)) == ["initialize", "p0", "p1", "set_model"]
        query.abandon(timeout=0.0)


async def test_a_foreign_transport_gets_one_write_at_a_time() -> None:
    class OneByOne(ForeignTransport):
        is_writing = False

        async def write(self, data: str) -> None:
            assert not self.is_writing
            self.is_writing = True
            await anyio.sleep(4)
            self.is_writing = False
            await super().write(data)

    transport = OneByOne()
    async with Query(transport, can_use_tool=allow) as query:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.send, "p0")
            await anyio.sleep(1)
            transport.say(permission())
        await soon(transport.responses)
        assert [name_of(frame) for frame in transport.written] == ["initialize", "p0", "control_response"]
        query.abandon(timeout=0.0)


async def test_the_end_of_the_input_waits_for_what_passes() -> None:
    is_free = anyio.Event()

    class SlowAnswers(Slow):
        async def write(self, data: str | bytes) -> None:
            if b"control_response" in (data.encode() if isinstance(data, str) else data):
                await is_free.wait()
            await super().write(data)

    transport = ForeignTransport()
    async with Query(SlowAnswers(transport, four_seconds), can_use_tool=allow) as query:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.send, "p0")
            await anyio.sleep(1)
            transport.say(permission())
            await anyio.sleep(1)
            tasks.start_soon(query.end_input)
            await anyio.sleep(10)
            assert "end_input" not in transport.calls
            with pytest.raises(InputClosed):
                await query.send("too late")
            is_free.set()
        assert [name_of(frame) for frame in transport.written] == ["initialize", "p0", "control_response"]
        assert "end_input" in transport.calls


async def test_a_failure_of_what_passes_ends_the_conversation_and_the_prompt() -> None:
    class Broken(Slow):
        async def write(self, data: str | bytes) -> None:
            if b"interrupt" in (data.encode() if isinstance(data, str) else data):
                raise TransportClosed("the pipe broke", exit_code=7)
            await super().write(data)

    failures: list[BaseException] = []

    async def send() -> None:
        with pytest.raises(TransportClosed) as caught:
            await query.send("p0")
        failures.append(caught.value)

    transport = ForeignTransport()
    async with Query(Broken(transport, anyio.sleep_forever)) as query:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.sleep(1)
            assert await query.interrupt(timeout=5) is InterruptOutcome.DEAD
        (failure,) = failures
        assert isinstance(failure, TransportClosed)
        assert (failure.code, failure.exit_code) == ("usage.closed", 7)
        query.abandon(timeout=0.0)


async def test_after_a_failure_no_line_that_waits_to_pass_is_tried() -> None:
    class Breaks(Slow):
        async def write(self, data: str | bytes) -> None:
            frame = json.loads(data)
            if frame["type"] == "control_response":
                tried.append(frame["response"]["request_id"])
                await anyio.sleep(1)
                raise TransportClosed("the pipe broke", exit_code=7)
            await super().write(data)

    tried: list[str] = []
    transport = ForeignTransport()
    async with Query(Breaks(transport, anyio.sleep_forever), can_use_tool=allow) as query:
        async with anyio.create_task_group() as tasks:

            async def send() -> None:
                with pytest.raises(TransportClosed, match="the pipe broke"):
                    await query.send("p0")

            tasks.start_soon(send)
            await anyio.sleep(1)
            transport.say(*(permission(f"q{number}") for number in range(3)))
            await anyio.sleep(10)
        assert tried == ["q0"]
        query.abandon(timeout=0.0)


@pytest.mark.parametrize("anyio_backend", [backend for backend in jumping_backends() if "asyncio" in str(backend)])
async def test_a_cancellation_that_a_write_made_up_is_its_failure_also_when_it_passes_a_prompt() -> None:
    class MakesUp(Slow):
        async def write(self, data: str | bytes) -> None:
            if b"set_model" in (data.encode() if isinstance(data, str) else data):
                raise asyncio.CancelledError
            await super().write(data)

    async with Query(MakesUp(ForeignTransport(), anyio.sleep_forever)) as query:
        async with anyio.create_task_group() as tasks:

            async def send() -> None:
                with pytest.raises(ConnectionLost, match="the transport could not write"):
                    await query.send("p0")

            tasks.start_soon(send)
            await anyio.sleep(1)
            with pytest.raises(ConnectionLost, match="the transport could not write"):
                await query.set_model("haiku")
        query.abandon(timeout=0.0)


async def test_closing_ends_what_passes_and_what_is_passed() -> None:
    class Stuck(ct.TransportWrapper):
        async def write(self, data: str | bytes) -> None:
            if b"initialize" not in (data.encode() if isinstance(data, str) else data):
                await anyio.sleep_forever()
            await super().write(data)

    outcomes: list[object] = []

    async def send() -> None:
        with pytest.raises(TransportClosed):
            await query.send("p0")
        outcomes.append("prompt")

    async def interrupt() -> None:
        outcomes.append(await query.interrupt(timeout=100))

    query = Query(Stuck(ForeignTransport()), close_timeout=1.0)
    await query.start()
    begin = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await anyio.sleep(1)
        tasks.start_soon(interrupt)
        await anyio.sleep(1)
        await query.aclose()
    assert "prompt" in outcomes
    assert len(outcomes) == 2
    assert anyio.current_time() - begin <= 2 + 1.0 + 1.0


async def test_a_turn_goes_on_after_a_prompt_that_was_passed() -> None:
    transport = ForeignTransport(on_write=lambda frame: transport.say(result()) if frame["type"] == "user" else None)
    async with Query(Slow(transport, four_seconds)) as query:
        for _ in range(3):
            turn = await query.send("text")
            assert (await turn.result()).result == "done"
            await query.set_model("haiku")
    assert [name_of(frame) for frame in transport.written] == ["initialize", *["text", "set_model"] * 3]


async def test_a_request_before_a_prompt_does_not_wait_with_it() -> None:
    """Both are in the queue before the writing task has taken its first step, in either order on trio."""
    transport = ForeignTransport()
    async with Query(Slow(transport, four_seconds)) as query:
        begin = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.set_model, "haiku")
            tasks.start_soon(query.send, "p0")
            await soon(lambda: transport.requests("set_model"))
            assert anyio.current_time() == begin
        query.abandon(timeout=0.0)


async def test_a_flood_of_questions_beside_a_prompt_that_waits_ends_the_conversation() -> None:
    class Stuck(ct.TransportWrapper):
        async def write(self, data: str | bytes) -> None:
            if b"initialize" not in (data[:200].encode() if isinstance(data, str) else data[:200]):
                await anyio.sleep_forever()
            await super().write(data)

    async def allow_much(*_: Any) -> Allow:
        return Allow(updated_input={"command": "x" * (9 * 2**20)})

    transport = ForeignTransport()
    query = Query(Stuck(transport), can_use_tool=allow_much)
    await query.start()
    async with anyio.create_task_group() as tasks:

        async def send() -> None:
            with pytest.raises(TransportClosed, match="goes on asking and does not read the answers"):
                await (await query.send("p0")).result()

        tasks.start_soon(send)
        await anyio.sleep(1)
        for number in range(12):
            transport.say(permission(f"q{number}"))
            await anyio.sleep(1)
    await query.aclose(timeout=0)
