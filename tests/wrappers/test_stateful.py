"""State: where a transport is in its life is known, told, and what makes no sense there is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStreamConnectable

from claude_transport.client.query import Query
from claude_transport.errors import ConfigurationError, ConnectionLost, InputClosed, NotConnected, ProcessError, TransportClosed, UsageError
from claude_transport.streams.memory import memory_stream_pair
from claude_transport.testing import FakeClaude, Scenario, steps
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.base import ObservingWrapper
from claude_transport.wrappers.logging import LoggingTransport
from claude_transport.wrappers.stateful import ConnectionState, StatefulTransport, TransportState

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}
PATIENCE = 30.0
"""Seconds; only a failure takes that long."""


class Careless:
    """A transport as somebody else writes it: it answers everything at any time, and connects and closes when it is told to."""

    def __init__(self) -> None:
        self.ready = False
        self.calls: list[str] = []
        self.errors: list[Exception] = []
        self.may_connect = anyio.Event()
        self.may_close = anyio.Event()

    async def connect(self) -> None:
        self.calls.append("connect")
        await self.may_connect.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.ready = True

    async def write(self, data: str) -> None:
        self.calls.append("write")

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        self.calls.append("read")
        yield RESULT

    async def end_input(self) -> None:
        self.calls.append("end_input")

    async def close(self) -> None:
        self.calls.append("close")
        await self.may_close.wait()
        self.ready = False

    def is_ready(self) -> bool:
        return self.ready


class Changes:
    """What was told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __call__(self, old: TransportState, new: TransportState) -> None:
        self.seen.append((old, new))

    @property
    def states(self) -> list[str]:
        assert [old for old, _ in self.seen[1:]] == [new for _, new in self.seen[:-1]], "each change begins where the last one ended"
        return [new for _, new in self.seen]


async def step() -> None:
    await anyio.wait_all_tasks_blocked()


async def use(transport: StatefulTransport, how: str) -> None:
    """One of the ways to use a transport."""
    if how == "write":
        await transport.write("{}")
    elif how == "end_input":
        await transport.end_input()
    elif how == "read_lines":
        assert len([batch async for batch in transport.read_lines()]) == 1
    else:
        assert [message async for message in transport.read_messages()] == [RESULT]


USES = ("write", "end_input", "read_lines", "read_messages")


async def test_a_life_has_five_states_and_each_change_is_told_when_it_happens() -> None:
    inside, changes = Careless(), Changes()
    outside = StatefulTransport(inside, on_change=changes)
    assert outside.state is TransportState.DISCONNECTED
    assert changes.seen == []
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outside.connect)
            await step()
            assert (outside.state, changes.states) == (TransportState.CONNECTING, ["connecting"])
            inside.may_connect.set()
            await step()
            assert outside.state is TransportState.CONNECTED
            tasks.start_soon(outside.close)
            await step()
            assert outside.state is TransportState.CLOSING
            inside.may_close.set()
    assert outside.state is TransportState.CLOSED
    await outside.close()
    assert changes.states == ["connecting", "connected", "closing", "closed"]


@pytest.mark.parametrize("how", USES)
async def test_before_there_is_a_connection_it_cannot_be_used(how: str) -> None:
    inside = Careless()
    outside = StatefulTransport(inside)
    with pytest.raises(NotConnected, match="has not been connected"):
        await use(outside, how)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outside.connect)
            await step()
            with pytest.raises(NotConnected, match="is still connecting"):
                await use(outside, how)
            inside.may_connect.set()
    await use(outside, how)
    assert inside.calls == ["connect", how.partition("_")[0] if how.startswith("read") else how]


@pytest.mark.parametrize("how", [*USES, "connect"])
async def test_once_the_closing_has_begun_it_cannot_be_used(how: str) -> None:
    inside = Careless()
    inside.may_connect.set()
    outside = StatefulTransport(inside)
    await outside.connect()

    async def refused() -> None:
        await (outside.connect() if how == "connect" else use(outside, how))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outside.close)
            await step()
            with pytest.raises(TransportClosed, match="is being closed"):
                await refused()
            inside.may_close.set()
    with pytest.raises(TransportClosed, match="is closed"):
        await refused()
    assert inside.calls == ["connect", "close"]


async def test_after_the_end_of_the_input_nothing_is_written_and_reading_goes_on() -> None:
    inside = Careless()
    inside.may_connect.set()
    outside = StatefulTransport(inside)
    await outside.connect()
    await outside.end_input()
    await outside.end_input()
    with pytest.raises(InputClosed):
        await outside.write("{}")
    assert [message async for message in outside.read_messages()] == [RESULT]
    assert outside.state is TransportState.CONNECTED
    assert "write" not in inside.calls


async def test_a_failed_attempt_leads_back_and_another_one_may_succeed() -> None:
    inside, changes = Careless(), Changes()
    inside.may_connect.set()
    inside.errors = [ConnectionLost("not yet")]
    outside = StatefulTransport(inside, on_change=changes)
    with pytest.raises(ConnectionLost):
        await outside.connect()
    assert outside.state is TransportState.DISCONNECTED
    with pytest.raises(NotConnected):
        await outside.write("{}")
    await outside.connect()
    await outside.connect()
    assert changes.states == ["connecting", "disconnected", "connecting", "connected"]


async def test_two_attempts_at_once_are_one_as_far_as_the_state_goes() -> None:
    inside, changes = Careless(), Changes()
    inside.errors = [ConnectionLost("the first one fails")]
    outside = StatefulTransport(inside, on_change=changes)
    failed: list[Exception] = []

    async def connect() -> None:
        try:
            await outside.connect()
        except ConnectionLost as error:
            failed.append(error)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            tasks.start_soon(connect)
            await step()
            inside.may_connect.set()
    assert len(failed) == 1
    assert changes.states == ["connecting", "connected"]


async def test_a_cancelled_attempt_leads_back() -> None:
    outside = StatefulTransport(Careless())
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outside.connect)
            await step()
            tasks.cancel_scope.cancel()
    assert outside.state is TransportState.DISCONNECTED


async def test_a_close_that_comes_while_it_connects_wins() -> None:
    class Opener(ByteStreamConnectable):
        async def connect(self) -> Any:
            await anyio.sleep_forever()

    changes = Changes()
    outside = StatefulTransport(StreamTransport(Opener()), on_change=changes)
    errors: list[Exception] = []

    async def connect() -> None:
        try:
            await outside.connect()
        except TransportClosed as error:
            errors.append(error)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            await step()
            await outside.close()
    assert len(errors) == 1
    assert changes.states == ["connecting", "closing", "closed"]


async def test_a_close_that_fails_or_is_cancelled_is_one_all_the_same() -> None:
    inside = Careless()
    inside.may_connect.set()
    outside = StatefulTransport(inside)
    await outside.connect()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await outside.close()
    assert outside.state is TransportState.CLOSED
    inside.may_close.set()
    await outside.close()
    assert inside.calls == ["connect", "close", "close"]


async def connected_pair(changes: Changes | None) -> tuple[StatefulTransport, Any]:
    ours, theirs = memory_stream_pair()

    class Opener(ByteStreamConnectable):
        async def connect(self) -> Any:
            return ours

    outside = StatefulTransport(StreamTransport(Opener()), on_change=changes)
    await outside.connect()
    return outside, theirs


async def test_a_lost_connection_is_told_as_soon_as_a_reader_is() -> None:
    changes = Changes()
    outside, peer = await connected_pair(changes)
    await peer.send(b'{"type":"a"}\n{"half')
    await peer.aclose()
    with anyio.fail_after(PATIENCE):
        messages = outside.read_messages()
        assert await anext(messages) == {"type": "a"}
        assert changes.states == ["connecting", "connected"]
        with pytest.raises(Exception, match="ended inside a line"):
            await anext(messages)
        assert changes.states == ["connecting", "connected", "disconnected"]
        with pytest.raises(TransportClosed, match="the peer is gone"):  # as the one inside says it, who knows why
            await outside.write("{}")
        await outside.close()
    assert changes.states[3:] == ["closing", "closed"]


async def test_a_lost_connection_is_told_as_soon_as_a_writer_is() -> None:
    changes = Changes()
    outside, peer = await connected_pair(changes)
    await peer.aclose()
    with anyio.fail_after(PATIENCE):
        with pytest.raises(TransportClosed):
            await outside.write("{}")
        assert changes.states == ["connecting", "connected", "disconnected"]
        await outside.close()


async def test_without_anybody_to_tell_a_lost_connection_is_seen_by_whoever_looks() -> None:
    outside, peer = await connected_pair(None)
    assert outside.state is TransportState.CONNECTED
    await peer.aclose()
    assert [message async for message in outside.read_messages()] == []
    assert outside.state is TransportState.DISCONNECTED
    await outside.close()


@pytest.mark.parametrize(("end", "exit_code", "signal"), [(steps.Exit(3), 3, None), (steps.DieBySignal("SIGKILL"), None, 9)])
async def test_how_the_process_ended_is_said_by_what_is_refused_after_the_close(
    end: steps.Exit | steps.DieBySignal, exit_code: int | None, signal: int | None
) -> None:
    with FakeClaude(Scenario.turns([[steps.Stderr("it broke\n"), end]])) as fake:
        changes = Changes()
        outside = StatefulTransport(SubprocessTransport(command=fake.command), on_change=changes)
        with anyio.fail_after(PATIENCE), pytest.raises(ProcessError):
            async with Query(outside) as query:
                await (await query.send("Hi")).result()
    with pytest.raises(TransportClosed) as refused:
        await outside.write("{}")
    assert (refused.value.exit_code, refused.value.signal, refused.value.stderr_tail.strip()) == (exit_code, signal, "it broke")
    assert changes.states == ["connecting", "connected", "disconnected", "closing", "closed"]


async def test_what_is_connected_already_is_in_that_state_from_the_beginning() -> None:
    inside = MockTransport([RESULT])
    await inside.connect()
    changes = Changes()
    outside = StatefulTransport(LoggingTransport(inside), on_change=changes)
    assert outside.state is TransportState.CONNECTED
    assert await anext(outside.read_messages()) == RESULT
    await outside.close()
    assert changes.states == ["closing", "closed"]


async def test_what_is_told_may_fail_and_may_be_replaced(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_old: TransportState, _new: TransportState) -> None:
        raise RuntimeError("sk-ant-a-secret")

    outside = StatefulTransport(MockTransport(), on_change=fail)
    await outside.connect()
    assert outside.state is TransportState.CONNECTED
    outside.on_change = changes = Changes()
    await outside.close()
    assert changes.states == ["closing", "closed"]
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        f"StatefulTransport: RuntimeError raised in {__file__}",
    ]


@pytest.mark.parametrize("make", [lambda: StatefulTransport(MockTransport(), on_change="tell me")])  # type: ignore[arg-type]
def test_what_cannot_be_told_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert refused.value.option == "on_change"


def test_an_async_function_that_nobody_would_await_is_refused() -> None:
    async def on_change(_old: TransportState, _new: TransportState) -> None: ...

    with pytest.raises(ConfigurationError, match="ordinary function") as refused:
        StatefulTransport(MockTransport(), on_change=on_change)
    assert refused.value.option == "on_change"


@pytest.mark.parametrize("hook", sorted(name for name in vars(ObservingWrapper) if name.startswith("on_")))
def test_a_wrapper_with_an_async_hook_that_nobody_would_await_is_refused_when_its_class_is_made(hook: str) -> None:
    async def told(*_args: object) -> None: ...

    async def generated(*_args: object) -> AsyncIterator[None]:
        yield

    mixin = type("Mixin", (), {hook: told})
    for bases, given in [((ObservingWrapper,), {hook: told}), ((StatefulTransport,), {hook: generated}), ((mixin, ObservingWrapper), {})]:
        with pytest.raises(UsageError, match=rf"Watcher\.{hook} must be an ordinary method"):
            type("Watcher", bases, given)


def test_the_states_are_their_names() -> None:
    assert [*TransportState] == ["disconnected", "connecting", "connected", "closing", "closed"]


def test_either_a_function_or_a_connection_state_hears_of_changes_and_not_both() -> None:
    with pytest.raises(ConfigurationError, match="not both") as refused:
        StatefulTransport(MockTransport(), on_change=print, connection=ConnectionState())
    assert refused.value.option == "connection"
