"""`serve()` takes the arguments of a `Gateway`, and runs until the call ends."""

from __future__ import annotations

import signal
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from rehearsal import ALICE, TOKENS, Processes, Talker

import claude_transport as ct
from claude_transport.gateway.arrival import Arrival
from claude_transport.streams.memory import memory_stream_pair


def test_gateway_settings_are_the_arguments_of_a_gateway() -> None:
    ours = typing.get_type_hints(ct.gateway.GatewaySettings)
    theirs = typing.get_type_hints(ct.Gateway.__init__)
    assert ours == {name: kind for name, kind in theirs.items() if name not in ("options", "return")}


async def test_a_call_that_is_cancelled_closes_the_gateway_and_its_sessions() -> None:
    served: list[ct.Gateway] = []

    async def visit(scope: anyio.CancelScope) -> None:
        async with ct.NetworkTransport(served[0].urls[0], token=ALICE) as transport:
            await transport.write('{"n":1}')
            assert await anext(aiter(transport.read_messages())) == {"n": 1}
            scope.cancel()
            with anyio.fail_after(20, shield=True):
                await served[0].wait_closed()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:

            def started(gateway: ct.Gateway) -> None:
                served.append(gateway)
                tasks.start_soon(visit, tasks.cancel_scope)

            await ct.serve(command=["cat"], listen=["tcp://127.0.0.1:0"], tokens=TOKENS, handle_signals=False, on_started=started)
    assert served[0].sessions == ()
    assert served[0].metrics.ended == {"closed": 1}


@pytest.mark.parametrize("handle_signals", [True, False])
async def test_a_gateway_that_is_closed_by_somebody_else_ends_the_call(handle_signals: bool) -> None:
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:

            def started(gateway: ct.Gateway) -> None:
                tasks.start_soon(gateway.aclose)

            await ct.serve(command=["cat"], listen=["tcp://127.0.0.1:0"], handle_signals=handle_signals, on_started=started)


async def test_a_setting_that_makes_no_sense_is_told_before_anything_is_opened() -> None:
    with pytest.raises(ct.ConfigurationError, match="modes"):
        await ct.serve(listen=["tcp://127.0.0.1:0"], modes=["telnet"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


async def test_the_first_signal_lets_a_turn_finish_and_the_second_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    send, receive = anyio.create_memory_object_stream[signal.Signals](2)

    @contextmanager
    def receiver(*expected: signal.Signals) -> Iterator[Any]:
        assert set(expected) == {signal.SIGTERM, signal.SIGINT}
        yield receive

    monkeypatch.setattr(anyio, "open_signal_receiver", receiver)
    processes = Processes()
    served: list[ct.Gateway] = []

    async def interrupt() -> None:
        ours, theirs = memory_stream_pair()
        tasks.start_soon(served[0].attend, Arrival(theirs, medium="memory", token=ALICE))
        client = Talker(ours)
        await client.say({"type": "authenticate"}, {"type": "user", "message": {"role": "user", "content": "work"}})
        await (await processes.next()).hear()
        await send.send(signal.SIGTERM)
        await anyio.wait_all_tasks_blocked()
        assert [session.busy for session in served[0].sessions] == [True]
        await send.send(signal.SIGINT)

    with anyio.fail_after(30), send, receive:
        async with anyio.create_task_group() as tasks:

            def started(gateway: ct.Gateway) -> None:
                served.append(gateway)
                tasks.start_soon(interrupt)

            await ct.serve(launch=processes.launch, tokens=TOKENS, drain_timeout=3600.0, on_started=started)
    assert served[0].metrics.ended == {"closed": 1}
