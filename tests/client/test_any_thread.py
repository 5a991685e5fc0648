"""Control while somebody else iterates: from any task, from any thread through the loop, and never across loops unnoticed."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from peers import ForeignTransport, Frame, in_time, result, said, soon

from claude_transport import InterruptOutcome, Query, query
from claude_transport.errors import InputClosed, UsageError

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def streams_until_interrupted() -> ForeignTransport:
    """A turn that goes on until it is interrupted, and then has its result."""

    def react(frame: Frame) -> None:
        if frame["type"] == "user":
            transport.say(said("on and on"))
        elif frame["type"] == "control_request" and frame["request"]["subtype"] == "interrupt":
            transport.say(result("stopped"))

    transport = ForeignTransport(on_write=react)
    return transport


def in_a_thread(func: Callable[[], object]) -> Callable[[], Any]:
    """Start a thread that no event loop knows; the function that waits for it gives what it returned, or raises what it raised."""
    outcome: list[Any] = []
    done = threading.Event()

    def run() -> None:
        try:
            outcome.extend([True, func()])
        except BaseException as exc:  # noqa: BLE001 - raised again where it is looked at
            outcome.extend([False, exc])
        finally:
            done.set()

    threading.Thread(target=run, daemon=True).start()

    def join() -> Any:
        assert done.wait(20)
        good, value = outcome
        if not good:
            raise value
        return value

    return join


async def test_one_task_iterates_and_another_interrupts() -> None:
    async with Query(streams_until_interrupted()) as talk:
        turn = await talk.send("go")
        seen: list[str] = []

        async def iterate() -> None:
            seen.extend([message.type async for message in turn])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(iterate)
            await anyio.wait_all_tasks_blocked()
            assert await in_time(talk.interrupt()) is InterruptOutcome.ACKNOWLEDGED
    assert seen == ["assistant", "result"]


async def test_a_worker_thread_controls_while_a_task_iterates() -> None:
    async with Query(streams_until_interrupted()) as talk:
        turn = await talk.send("go")

        def work() -> tuple[InterruptOutcome, dict[str, Any]]:
            answer = anyio.from_thread.run(talk.request, "get_session_cost")
            return anyio.from_thread.run(talk.interrupt), answer

        outcomes: list[Any] = []

        async def control() -> None:
            outcomes.append(await anyio.to_thread.run_sync(work))

        types: list[str] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(control)
            types += await in_time(everything(turn))
    assert types == ["assistant", "result"]
    assert outcomes == [(InterruptOutcome.ACKNOWLEDGED, {})]


async def everything(turn: Any) -> list[str]:
    return [message.type async for message in turn]


async def test_a_thread_of_the_hosts_own_controls_through_a_portal() -> None:
    async with Query(streams_until_interrupted()) as talk, anyio.from_thread.BlockingPortal() as portal:
        turn = await talk.send("go")
        join = in_a_thread(lambda: portal.call(talk.interrupt))
        assert await in_time(everything(turn)) == ["assistant", "result"]
        assert await anyio.to_thread.run_sync(join) is InterruptOutcome.ACKNOWLEDGED


async def test_twenty_threads_send_through_a_portal_and_each_line_is_whole() -> None:
    transport = ForeignTransport()
    turns: list[Any] = []
    async with Query(transport) as talk, anyio.from_thread.BlockingPortal() as portal:
        joins = [in_a_thread(lambda text=str(n): portal.call(talk.send, text * 1000)) for n in range(20)]
        turns += [await anyio.to_thread.run_sync(join) for join in joins]
    assert len({turn.uuid for turn in turns}) == 20
    assert sorted(frame["message"]["content"] for frame in transport.prompts()) == sorted(str(n) * 1000 for n in range(20))


# ------------------------------------------------------------------------------------------------ across loops it is an error


CALLS: dict[str, Callable[[Query, Any], Awaitable[object]]] = {
    "send": lambda talk, _: talk.send("x"),
    "request": lambda talk, _: talk.request("get_session_cost"),
    "interrupt": lambda talk, _: talk.interrupt(),
    "a typed control": lambda talk, _: talk.set_model("haiku"),
    "end_input": lambda talk, _: talk.end_input(),
    "start": lambda talk, _: talk.start(),
    "aclose": lambda talk, _: talk.aclose(),
    "changed": lambda talk, _: talk.changed(),
    "result": lambda _, turn: turn.result(),
    "a message of a turn": lambda _, turn: anext(aiter(turn)),
    "the next message of a turn": lambda _, turn: anext(turn),
    "all messages": lambda talk, _: anext(talk.messages()),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("other", ["asyncio", "trio"])
async def test_a_call_in_another_loop_is_a_usage_error_and_harms_nothing(name: str, other: str) -> None:
    transport = ForeignTransport()
    async with Query(transport) as talk:
        turn = await talk.send("go")
        written = len(transport.written)

        async def call() -> None:
            with anyio.fail_after(30):
                await CALLS[name](talk, turn)

        with pytest.raises(UsageError, match="another event loop") as caught:
            await anyio.to_thread.run_sync(in_a_thread(lambda: anyio.run(call, backend=other)))
        assert caught.value.code == "usage.wrong_loop"
        assert len(transport.written) == written
        assert await in_time(talk.request("get_session_cost")) == {}
        transport.say(result("fine"))
        assert (await in_time(turn.result())).result == "fine"


async def test_what_waits_to_be_read_is_not_read_in_another_loop_either() -> None:
    transport = ForeignTransport()
    async with Query(transport) as talk:
        turn = await talk.send("go")
        transport.say(said("one"), result())
        await in_time(turn.result())

        async def read() -> None:
            async for _ in turn:
                pass

        with pytest.raises(UsageError, match="another event loop"):
            await anyio.to_thread.run_sync(in_a_thread(lambda: anyio.run(read)))
        assert await in_time(everything(turn)) == ["assistant", "result"]


async def test_an_interrupt_of_the_dead_is_dead_wherever_it_comes_from() -> None:
    talk = Query(ForeignTransport())
    await talk.start()
    await talk.aclose()

    async def interrupt() -> InterruptOutcome:
        return await talk.interrupt()

    assert await anyio.to_thread.run_sync(in_a_thread(lambda: anyio.run(interrupt))) is InterruptOutcome.DEAD


async def test_facts_may_be_looked_at_from_anywhere() -> None:
    async with Query(ForeignTransport()) as talk:
        turn = await talk.send("go")
        facts = await anyio.to_thread.run_sync(in_a_thread(lambda: (talk.is_running, talk.open_turns, turn.state.value, talk.is_quiet)))
    assert facts == (True, (turn.uuid,), "queued", False)


async def test_a_query_may_be_abandoned_from_any_thread() -> None:
    transport = ForeignTransport()
    talk = Query(transport)
    await talk.start()
    everything = talk.messages()
    await anyio.to_thread.run_sync(in_a_thread(talk.abandon))
    assert await in_time(anext(everything, None)) is None
    await in_time(talk.aclose())
    assert transport.calls.count("close") == 1


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": True}), "trio"])
async def test_a_handle_that_is_dropped_in_another_thread_makes_room_like_any_other() -> None:
    transport = ForeignTransport()
    async with Query(transport, max_buffered_bytes=1000) as talk:
        held = [await talk.send("go")]
        transport.say(*[said("x" * 400) for _ in range(10)])
        await anyio.wait_all_tasks_blocked()
        assert talk.buffered_bytes > 1000  # nobody reads, and so reading has paused
        await anyio.to_thread.run_sync(in_a_thread(held.clear))  # as the garbage collector may do it
        await soon(lambda: talk.buffered_bytes > 1000)  # what came next waits in the inbox
        everything = [talk.messages()]
        transport.say(result())
        await in_time(anext(everything[0]))
        await anyio.to_thread.run_sync(in_a_thread(everything.clear))
        await in_time(talk.aclose())
    assert transport.calls[-1] == "close"


def test_abandoning_after_the_loop_is_over_does_nothing() -> None:
    kept: list[Query] = []

    async def main() -> None:
        talk = Query(ForeignTransport())
        await talk.start()
        kept.append(talk)
        await talk.aclose()

    anyio.run(main)
    kept[0].abandon()
    assert kept[0].has_ended


@BACKENDS
def test_a_query_that_was_made_outside_of_any_loop_lives_where_it_is_started(backend: str) -> None:
    transport = ForeignTransport()
    talk = Query(transport)

    async def live() -> None:
        async with talk:
            await talk.request("get_session_cost")

    anyio.run(live, backend=backend)
    assert transport.calls.count("close") == 1


@BACKENDS
async def test_a_query_that_was_made_in_one_loop_is_not_started_in_another(backend: str) -> None:
    talk = Query(ForeignTransport())
    with pytest.raises(UsageError, match="another event loop"):
        await anyio.to_thread.run_sync(in_a_thread(lambda: anyio.run(talk.start, backend=backend)))
    await talk.start()
    await talk.aclose()


async def test_a_one_shot_is_read_in_the_loop_that_began_it() -> None:
    transport = ForeignTransport(on_write=lambda frame: transport.say(said("x")) if frame["type"] == "user" else None)
    conversation = query("go", transport=transport)
    await in_time(anext(conversation))

    async def read() -> None:
        await anext(conversation)

    with pytest.raises(UsageError, match="another event loop"):
        await anyio.to_thread.run_sync(in_a_thread(lambda: anyio.run(read)))
    await conversation.aclose()


# --------------------------------------------------------------------------------------- many writers, and one who ends the input


async def test_a_hundred_tasks_write_while_one_ends_the_input_and_each_line_is_whole_or_refused() -> None:
    transport = ForeignTransport(ends=False)
    sent: list[str] = []
    refused: list[str] = []

    async def write(number: int) -> None:
        text = f"{number}:" + "x" * 5000
        try:
            if number % 2:
                await talk.send(text)
            else:
                await talk.request("echo", text=text, timeout=20)
            sent.append(text)
        except InputClosed:
            refused.append(text)

    async def end() -> None:
        await soon(lambda: len(transport.written) > 20)
        await talk.end_input()

    async with Query(transport) as talk:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(write, number)
                tasks.start_soon(end)
                for number in range(50, 100):
                    tasks.start_soon(late, write, number)
        transport.finish()
    assert len(sent) + len(refused) == 100
    assert refused
    assert len(sent) >= 20
    texts = [frame["message"]["content"] if frame["type"] == "user" else frame["request"].get("text") for frame in transport.written]
    assert sorted(text for text in texts if text) == sorted(sent)
    assert all(json.loads(line) and line.endswith("\n") and line.count("\n") == 1 for line in transport.writes)


async def late(write: Callable[[int], Awaitable[None]], number: int) -> None:
    for _ in range(number):
        await anyio.lowlevel.checkpoint()
    await write(number)
