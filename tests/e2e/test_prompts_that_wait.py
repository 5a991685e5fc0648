"""A wrapper that holds prompts back, above the real CLI: the permission of the running turn and an interrupt pass the prompt that waits."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from live_session import Live, bash

import claude_transport as ct
from claude_transport.testing import replies
from claude_transport.transports import Client, SessionTerms

pytestmark = pytest.mark.both_loops


class Gate(ct.TransportWrapper):
    """Holds each prompt that says "later" back until it is opened."""

    def __init__(self, transport: ct.TransportLike) -> None:
        super().__init__(transport)
        self.held, self.open = anyio.Event(), anyio.Event()

    def attach(self, client: Client) -> SessionTerms:
        return super().attach(client).with_before_prompt(self._wait)

    async def _wait(self, line: bytes) -> bytes:
        if b"later" in line:
            self.held.set()
            await self.open.wait()
        return line


class WritingGate(Gate):
    """Waits in its `write()`, as a program does that does not know `before_prompt`."""

    def attach(self, client: Client) -> SessionTerms:
        return ct.TransportWrapper.attach(self, client)

    async def write(self, data: str | bytes) -> None:
        line = data.encode() if isinstance(data, str) else data
        if b'"type":"user"' in line:
            await self._wait(line)
        await super().write(data)


@pytest.mark.parametrize("gate", [Gate, WritingGate])
async def test_a_permission_and_an_interrupt_pass_a_prompt_that_waits(live: Live, gate: type[Gate]) -> None:
    gates: list[Gate] = []
    later: list[ct.Turn] = []

    def wrap(transport: ct.Transport) -> ct.Transport:
        gates.append(gate(transport))
        return gates[0]

    async def decide(_tool: str, _given: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow:
        await gates[0].held.wait()
        return ct.Allow()

    script = [bash("echo ran"), replies.gated("uno due", chunks=["uno ", "due"]), "Later."]
    async with live(script, wrap=wrap, can_use_tool=decide, include_partial_messages=True) as session, anyio.create_task_group() as tasks:
        turn = await session.query.send("Now")

        async def send() -> None:
            later.append(await session.query.send("later"))

        tasks.start_soon(send)
        await session.api.wait_at_gate()  # the permission has reached the CLI, and the tool has run
        async for message in turn:
            if isinstance(message, ct.StreamEvent) and message.text:
                break
        assert await session.query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
        assert (await turn.result()).terminal_reason == "aborted_streaming"
        assert later == []
        assert len(session.query.open_turns) == (gate is WritingGate)  # its prompt is being sent
        gates[0].open.set()
        while not later:
            await session.query.changed()
        assert (await later[0].result()).result == "Later."
