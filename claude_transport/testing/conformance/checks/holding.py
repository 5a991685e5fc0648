"""Clauses of wrappers about prompts that are held back: by the wrapper, or by what is inside of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

import anyio

from claude_transport.client.query import Query
from claude_transport.client.storage import Turn
from claude_transport.testing.conformance.bench import Attempt, Bench, Violation, expect, settle
from claude_transport.testing.conformance.clause import clause
from claude_transport.testing.conformance.declared import HoldingClaude

_SOURCE = "TransportWrapper.write"

_GRACE = 0.1
"""Seconds in which a prompt that nothing holds back is sent; they begin again with each prompt."""

_HINT = (
    "A write() that waits holds back everything. Wait in a before_prompt, an async function that gets the line of each prompt: "
    "attach() returns `super().attach(client).with_before_prompt(…)`"
)

Sender: TypeAlias = Attempt[Turn]


@asynccontextmanager
async def _conversation(bench: Bench, *, holds: bool) -> AsyncIterator[tuple[HoldingClaude, Query]]:
    """Give a `Query` over the wrapper around a mock, which holds prompts back or not."""
    claude = HoldingClaude(holds=holds, turns=10)
    async with bench.around(claude) as outside:
        query = Query(outside)
        try:
            with bench.within("the start of a Query"):
                await query.start()
            yield claude, query
        finally:
            with anyio.move_on_after(bench.patience, shield=True), contextlib.suppress(Exception):
                await query.aclose(timeout=0.0, hurry=True)


async def _send_three(bench: Bench, query: Query, *, holds: bool) -> list[Sender]:
    """Send three prompts, each from a task of its own. Unless the mock holds them, let those through that nothing holds back."""
    senders: list[Sender] = []
    for n in range(3):
        senders.append(bench.start(partial(query.send, f"prompt {n}")))
        await settle()
    through = len(senders) if holds else -1
    while through < (through := sum(sender.over for sender in senders)) < len(senders):
        with anyio.move_on_after(_GRACE):
            await senders[through].end("a prompt")
        await settle()
    return senders


@clause("prompts.others-pass", "Requests, answers and interrupts pass prompts that wait.", source=_SOURCE, of_wrappers=True)
async def others_pass(bench: Bench) -> None:
    for holds in (False, True):
        async with _conversation(bench, holds=holds) as (claude, query):
            senders = await _send_three(bench, query, holds=holds)
            waiting = [f"prompt {n}" for n, sender in enumerate(senders) if not sender.over]
            asked = bench.start(partial(query.set_model, "conformance"))
            try:
                await asked.end("a request")
            except Violation:
                raise Violation(f"{len(waiting)} prompts wait, and a request waits behind them. {_HINT}") from None
            sent = claude.prompts_before("set_model")
            if sent is None:
                raise Violation("a request did not reach the wrapped transport: write() must hand on the lines that are no prompts")
            before = [text for text in waiting if text in sent]
            expect(not before, f"a request waited until {len(before)} of {len(waiting)} prompts were sent that wait. {_HINT}")


@clause("prompts.order", "They are sent in the order in which they came, each once.", source=_SOURCE, of_wrappers=True)
async def order(bench: Bench) -> None:
    for holds in (False, True):
        async with _conversation(bench, holds=holds) as (claude, query):
            senders = await _send_three(bench, query, holds=holds)
            claude.gate.set()
            for sender in senders:
                await sender.result("a prompt: give a wrapper that delays them a short delay for the kit. It")
            await settle()
            expect(
                claude.prompts == ["prompt 0", "prompt 1", "prompt 2"],
                f"three prompts reached the wrapped transport as {claude.prompts}: a write() sends each line once, and returns after that; "
                "what may wait, waits in before_prompt, which is asked for one prompt after another",
            )


@clause(
    "prompts.cancelled-not-sent", "A sender that is cancelled while its prompt waits has sent nothing.", source=_SOURCE, of_wrappers=True
)
async def cancelled_not_sent(bench: Bench) -> None:
    for holds in (False, True):
        async with _conversation(bench, holds=holds) as (claude, query):
            cancelled = [(n, sender) for n, sender in enumerate(await _send_three(bench, query, holds=holds)) if not sender.over]
            for _, sender in cancelled:
                sender.cancel()
            claude.gate.set()
            for _, sender in cancelled:
                await sender.end("a send() that was cancelled")
            with bench.within("a prompt after those that were cancelled: give a wrapper that delays them a short delay for the kit. It"):
                await query.send("the last one")
            await settle()
            came = [f"prompt {n}" for n, _ in cancelled if f"prompt {n}" in claude.prompts]
            expect(
                not came, f"{', '.join(came)} came to the wrapped transport after its send() was cancelled. {_HINT}, and no shield in it"
            )
