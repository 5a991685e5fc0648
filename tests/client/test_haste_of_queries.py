"""Haste: leaving by an error, a cancellation or a deadline ends the conversation within `close_timeout` seconds, or 1 by default.

The time here is virtual, and the peer is simulated: it ends neither by itself nor with its input. `tests/transports/test_haste.py` has the
processes.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import sniffio
import trio
from peers import ForeignTransport
from virtual_time import Backend, jumping_backends

from claude_transport import (
    ConfigurationError,
    ConnectTimeout,
    Gateway,
    JSONRPCPeer,
    LoggingTransport,
    MetricsTransport,
    MissingResult,
    Query,
    RecordingTransport,
    RetryingTransport,
    SessionPool,
    StatefulTransport,
    SubprocessTransport,
    Transport,
    complete,
    stream,
)
from claude_transport.client import SyncQuery
from claude_transport.codex import CodexPool, CodexSession, SyncCodexSession
from claude_transport.completion import complete_sync, stream_sync
from claude_transport.completion.one_shot import query as one_shot
from claude_transport.testing import assistant, result
from claude_transport.transport import Client, SessionTerms, TransportLike


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


class Slow(Transport):
    """A peer that never ends, behind a `close()` that takes all the time it gets: 100 seconds, or what `hurry()` leaves of them."""

    def __init__(self, *, answers: bool = True) -> None:
        self.peer = ForeignTransport(answers=answers, ends=False)
        self.told: list[float] = []
        self._wait = anyio.CancelScope()
        self._due = 100.0

    def attach(self, client: Client) -> SessionTerms:
        return SessionTerms(hurry=self.hurry)

    def hurry(self, seconds: float) -> None:
        self.told.append(round(seconds, 3))
        self._due = seconds
        self._wait.deadline = anyio.current_time() + seconds

    async def connect(self) -> None:
        await self.peer.connect()

    async def write(self, data: str | bytes) -> None:
        await self.peer.write(data if isinstance(data, str) else data.decode())

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        return self.peer.read_messages()

    async def end_input(self) -> None:
        await self.peer.end_input()

    async def close(self) -> None:
        await self.peer.close()
        with self._wait:
            self._wait.deadline = anyio.current_time() + self._due
            await anyio.sleep_forever()

    def is_ready(self) -> bool:
        return self.peer.is_ready()


async def seconds_of(leave: Callable[[], Awaitable[object]]) -> float:
    """The time that `leave()` takes, to the millisecond."""
    began = anyio.current_time()
    await leave()
    return round(anyio.current_time() - began, 3)


async def by_error(query: Query) -> None:
    with pytest.raises(KeyError):
        async with query:
            raise KeyError


async def by_cancellation(query: Query) -> None:
    with anyio.CancelScope() as scope:
        async with query:
            scope.cancel()
            await anyio.sleep_forever()


async def by_request(query: Query) -> None:
    await query.start()
    await query.aclose(hurry=True)


async def by_abandoning(query: Query) -> None:
    await query.start()
    query.abandon(hurry=True)
    await query.aclose()


async def by_abandoning_outside_of_a_task(query: Query) -> None:
    """As in the handler of a signal, or in a finaliser."""
    await query.start()
    abandon = functools.partial(query.abandon, hurry=True)
    if sniffio.current_async_library() == "trio":
        trio.lowlevel.current_trio_token().run_sync_soon(abandon)
    else:
        asyncio.get_running_loop().call_soon(abandon, context=contextvars.Context())
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    await query.aclose()


WAYS = [by_error, by_cancellation, by_request, by_abandoning, by_abandoning_outside_of_a_task]


@pytest.mark.parametrize(("close_timeout", "seconds"), [(None, 1.0), (0.2, 0.2), (4.0, 4.0), (0.0, 0.0)])
@pytest.mark.parametrize("way", WAYS)
async def test_a_leave_in_haste_takes_close_timeout_seconds_in_all(
    way: Callable[[Query], Awaitable[None]], close_timeout: float | None, seconds: float
) -> None:
    transport = Slow()
    assert await seconds_of(functools.partial(way, Query(transport, close_timeout=close_timeout))) == seconds
    assert transport.peer.calls[-1] == "close"
    assert transport.told[-1] == round(0.4 * seconds, 3)  # the peer had the rest, to end by itself


@pytest.mark.parametrize(("close_timeout", "seconds"), [(None, 1.0), (4.0, 4.0)])
@pytest.mark.parametrize("way", WAYS)
async def test_a_transport_that_was_told_to_hurry_and_does_not_is_left_behind(
    way: Callable[[Query], Awaitable[None]], close_timeout: float | None, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(Slow):
        def hurry(self, seconds: float) -> None:
            self.told.append(round(seconds, 3))

    caplog.set_level("INFO", logger="claude_transport")
    transport = Deaf()
    assert await seconds_of(functools.partial(way, Query(transport, close_timeout=close_timeout))) == seconds
    assert transport.told[-1] == round(0.4 * seconds, 3)
    assert "the transport was closed in haste" in caplog.text


@pytest.mark.parametrize(("close_timeout", "peer_ends", "all_ends"), [(None, 5.0, 60.0), (2.0, 1.2, 2.0), (50.0, 30.0, 50.0)])
async def test_a_leave_without_haste_takes_the_time_of_each_step_unless_close_timeout_says_otherwise(
    close_timeout: float | None, peer_ends: float, all_ends: float
) -> None:
    class Noting(Slow):
        async def close(self) -> None:
            closing.append(round(anyio.current_time() - began, 3))
            await super().close()

    closing: list[float] = []
    async with Query(Noting(), close_timeout=close_timeout, transport_close_timeout=55.0):
        began = anyio.current_time()
    assert [*closing, round(anyio.current_time() - began, 3)] == [peer_ends, all_ends]


async def test_a_close_that_is_cancelled_begins_to_hurry_wherever_it_is() -> None:
    async def leave(query: Query, patience: float) -> None:
        with anyio.move_on_after(patience):
            await query.aclose()

    for patience in (0.0, 2.0, 5.0, 40.0):  # the peer has 5 seconds, then its transport 100
        query = Query(Slow(), transport_close_timeout=200.0)
        await query.start()
        assert await seconds_of(functools.partial(leave, query, patience)) == patience + 1.0


async def test_a_start_that_is_cancelled_or_late_hurries() -> None:
    async def cancelled() -> None:
        with anyio.move_on_after(3):
            await Query(Slow(answers=False)).start()

    async def late() -> None:
        with pytest.raises(ConnectTimeout) as caught:
            await Query(Slow(answers=False), initialize_timeout=3).start()
        assert (caught.value.code, caught.value.waited) == ("connect.timeout", 3)

    assert await seconds_of(cancelled) == 4.0
    assert await seconds_of(late) == 4.0


async def test_haste_reaches_the_transport_through_every_wrapper(tmp_path: Path) -> None:
    inner = Slow()
    outer: TransportLike = inner
    for wrap in (
        RetryingTransport,
        LoggingTransport,
        MetricsTransport,
        StatefulTransport,
        functools.partial(RecordingTransport, path=tmp_path / "tape"),
    ):
        outer = wrap(outer)
    await by_error(Query(outer))
    assert inner.told == [0.4]


async def test_one_conversation_hurries_when_it_is_cancelled_and_not_when_it_is_done() -> None:
    transport = Slow()

    async def ask() -> None:
        with anyio.move_on_after(3):
            async for _ in one_shot("hello", transport=transport):
                pass

    assert await seconds_of(ask) == 4.0


async def test_a_foreign_transport_takes_its_own_time_to_close() -> None:
    """It was not made to be hurried, and a cancelled `close()` might leave its process."""

    class Patient(ForeignTransport):
        async def close(self) -> None:
            await anyio.sleep(20)
            await super().close()

    transport = Patient(ends=False)
    assert await seconds_of(functools.partial(by_error, Query(transport))) == 20.6
    assert transport.calls[-1] == "close"


async def late(transport: Slow, close_timeout: float | None) -> float:
    """A call whose time is over. Returns how long that was."""
    with pytest.raises(MissingResult) as caught:
        await complete("hello", make_transport=lambda _: transport, timeout=7.0, close_timeout=close_timeout)
    assert caught.value.code == "exec.cli.timeout"
    return 7.0


async def cancelled(transport: Slow, close_timeout: float | None) -> float:
    with anyio.CancelScope() as scope:
        transport.peer.on_write = lambda frame: scope.cancel() if frame["type"] == "user" else None
        await complete("hello", make_transport=lambda _: transport, close_timeout=close_timeout)
    assert scope.cancelled_caught
    return 0.0


async def left(transport: Slow, close_timeout: float | None) -> float:
    asked = anyio.Event()
    transport.peer.on_write = lambda frame: asked.set() if frame["type"] == "user" else None
    pieces = stream("hello", make_transport=lambda _: transport, close_timeout=close_timeout)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anext, pieces, None)
        await asked.wait()
        await pieces.aclose()
    return 0.0


async def by_a_pool(transport: Slow, close_timeout: float | None) -> float:
    with pytest.raises(KeyError):
        async with SessionPool(warm=0, make_transport=lambda _: transport, close_timeout=close_timeout) as pool, pool.acquire():
            raise KeyError
    return 0.0


@pytest.mark.parametrize(("close_timeout", "seconds"), [(None, 1.0), (0.2, 0.2), (4.0, 4.0)])
@pytest.mark.parametrize("way", [late, cancelled, left, by_a_pool])
async def test_a_call_and_a_pool_that_are_left_in_haste_take_close_timeout_seconds_in_all(
    way: Callable[[Slow, float | None], Awaitable[float]], close_timeout: float | None, seconds: float
) -> None:
    transport, began = Slow(), anyio.current_time()
    before = await way(transport, close_timeout)
    assert round(anyio.current_time() - began, 3) == before + seconds
    assert transport.peer.calls[-1] == "close"


@pytest.mark.parametrize(("close_timeout", "seconds"), [(None, 65.0), (4.0, 4.0)])
async def test_a_call_that_has_its_answer_gives_its_process_the_time_to_save_the_session(
    close_timeout: float | None, seconds: float
) -> None:
    """5 seconds to end by itself, and 60 for its transport, unless `close_timeout` says otherwise."""
    transport, began = Slow(), anyio.current_time()
    transport.peer.on_write = lambda frame: transport.peer.say(assistant("Hello."), result("Hello.")) if frame["type"] == "user" else None
    completion = await complete("hello", make_transport=lambda _: transport, close_timeout=close_timeout)
    assert (completion.text, round(anyio.current_time() - began, 3)) == ("Hello.", seconds)


ANYWHERE: list[Callable[..., object]] = [
    Query,
    SyncQuery,
    CodexSession,
    SyncCodexSession,
    JSONRPCPeer,
    one_shot,
    complete,
    complete_sync,
    stream,
    stream_sync,
    SessionPool,
    CodexPool,
    SubprocessTransport,
    Gateway,
]


@pytest.mark.parametrize("what", ANYWHERE)
@pytest.mark.parametrize("value", ["soon", True, -1, float("nan")])
async def test_close_timeout_is_the_same_word_everywhere(what: Callable[..., object], value: object) -> None:
    """An argument that is forgotten on its way is not refused."""
    arguments: dict[Any, dict[str, Any]] = {
        **{call: {"prompt": "hello"} for call in (complete, complete_sync, stream, stream_sync)},
        one_shot: {"prompt": "hello", "transport": Slow()},
        **{kind: {"transport": Slow()} for kind in (Query, SyncQuery, CodexSession, SyncCodexSession, JSONRPCPeer)},
        Gateway: {"listen": ["tcp://127.0.0.1:0"], "command": ["cat"]},
        SubprocessTransport: {"command": ["cat"]},
    }

    def make() -> list[object]:
        return [what(**arguments.get(what, {}), close_timeout=value)]

    with pytest.raises(ConfigurationError) as caught:
        (made,) = await anyio.to_thread.run_sync(make)  # the blocking ones are refused in an event loop
        if inspect.isawaitable(made):
            await made
        elif isinstance(made, AsyncIterator):
            await anext(made)
    assert (caught.value.code, caught.value.option) == ("config.invalid", "close_timeout")


@pytest.mark.parametrize("value", ["soon", True, -1, float("nan")])
async def test_a_close_timeout_that_is_no_number_of_seconds_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Query(Slow(), close_timeout=value)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.option) == ("config.invalid", "close_timeout")
