"""`serve()` takes the arguments of a `Gateway`, and runs until the call ends."""

from __future__ import annotations

import typing

import anyio
import pytest
from rehearsal import ALICE, TOKENS

import claude_transport as ct


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
