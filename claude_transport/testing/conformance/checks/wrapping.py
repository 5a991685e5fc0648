"""Clauses of wrappers: the session terms that they hand on, prompts that are held back, and lines.

These are those that a reader loses when it is cancelled, and those that the wrapper says by itself."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel

from claude_transport.client.query import Query
from claude_transport.client.storage import Turn
from claude_transport.protocol.envelope import DecodeFailure, encode_line
from claude_transport.testing.conformance.bench import Bench, RunningCall, Stand, Violation, expect, message, messages, settle, wire
from claude_transport.testing.conformance.clause import clause
from claude_transport.testing.conformance.declared import MARK, Declared, HoldingClaude, prompt, text_of
from claude_transport.testing.conformance.subject import Inexpressible, Reason
from claude_transport.transport import AtOnce, Client, SessionTerms, Transport
from claude_transport.wrappers.base import LineWrapper

_ATTACH = "TransportWrapper.attach"
_AT_ONCE = "TransportWrapper.pass_at_once"

_OTHERS = frozenset({"before_prompt", "on_prompt", "on_failure", "find_cli_version", "hurry", "at_once", "storage"})
_VALUES = tuple(name for name in SessionTerms.__struct_fields__ if name not in _OTHERS)
_UUID = "00000000-0000-4000-8000-000000000002"

_HINT = (
    "Begin with `terms = super().attach(client)`, and return `msgspec.structs.replace(terms, …)`, not new SessionTerms. "
    "If that is on purpose, exclude the clause with Reason.ON_PURPOSE"
)


def _handed_on(terms: SessionTerms, name: str) -> Any:
    """Return a callback or another part of the terms. Raises `Violation` when it is missing."""
    found = getattr(terms, name)
    expect(found is not None, f"attach() drops `{name}` of the wrapped transport. {_HINT}")
    return found


def _keeps(found: object, declared: object) -> bool:
    """Return True when all of `declared` is in `found`: a wrapper may add to it."""
    if isinstance(declared, Mapping):
        return isinstance(found, Mapping) and declared.items() <= found.items()
    if isinstance(declared, tuple):
        return isinstance(found, list | tuple) and all(each in found for each in declared)
    return found == declared


@clause("terms.values", "What the wrapped transport asks of a session is handed on. More may be added.", source=_ATTACH, of_wrappers=True)
async def values(bench: Bench) -> None:
    inside = Declared()
    declared = inside.attach(Client())
    async with bench.around(inside) as outside:
        terms = outside.attach(Client())
        for name in _VALUES:
            found, said = getattr(terms, name), getattr(declared, name)
            expect(_keeps(found, said), f"attach() returned {name}={found!r}, and the wrapped transport said {said!r}. {_HINT}")


@clause("terms.callbacks", "Each of its callbacks is called, once for each call.", source=_ATTACH, of_wrappers=True)
async def callbacks(bench: Bench) -> None:
    inside = Declared()
    async with bench.around(inside) as outside:
        terms = outside.attach(Client())
        with bench.within("connect()"):
            await outside.connect()
        failure = DecodeFailure(raw=b"{half", error="incomplete")
        calls: dict[str, object] = {"on_prompt": _UUID, "on_failure": failure, "hurry": 1.5}
        for name, argument in calls.items():
            _handed_on(terms, name)(argument)
        find_cli_version = _handed_on(terms, "find_cli_version")
        with bench.within("find_cli_version()"):
            version = await find_cli_version(said="2.1.0")
        expect(version == "2.1.0", f"find_cli_version() gave {version!r}, and the one of the wrapped transport gives '2.1.0'")
        for name, argument in {**calls, "find_cli_version": "2.1.0"}.items():
            got = inside.called(name)
            expect(
                got == [argument],
                f"one call of `{name}` called that of the wrapped transport {len(got)} times, or with another argument: "
                f"a callback that replaces it must call it once",
            )


@clause(
    "terms.before-prompt",
    "So is its `before_prompt`, with the line that the one of the wrapper has returned.",
    source=_ATTACH,
    of_wrappers=True,
)
async def before_prompt(bench: Bench) -> None:
    inside = Declared()
    async with bench.around(inside) as outside:
        before = _handed_on(outside.attach(Client()), "before_prompt")
        with bench.within("connect()"):
            await outside.connect()
        with bench.within("before_prompt() of a wrapper: give it a short delay for the kit. It"):
            line = await before(prompt("a prompt", uuid=_UUID))
        count = len(inside.called("before_prompt"))
        expect(
            count == 1,
            f"before_prompt() of the wrapped transport was called {count} times for one prompt: "
            "return `super().attach(client).with_before_prompt(…)`, which calls it after yours",
        )
        expect(
            text_of(line).endswith(MARK),
            "the line that before_prompt() of the wrapped transport has returned is not the one that is sent: "
            "add yours with `with_before_prompt()`, so that it is called first",
        )


@clause("terms.storage", "So is its `storage`.", source=_ATTACH, of_wrappers=True)
async def storage(bench: Bench) -> None:
    inside = Declared()
    async with bench.around(inside) as outside:
        found = _handed_on(outside.attach(Client()), "storage")
        with bench.within("connect()"):
            await outside.connect()
        expect(found.is_storing(), f"storage.is_storing() is False while the wrapped transport is storing. {_HINT}")
        waiting = bench.start(found.wait_stored)
        await settle()
        expect(not waiting.over, f"storage.wait_stored() returned while the wrapped transport was storing. {_HINT}")
        inside.may_store.set()
        await waiting.result("storage.wait_stored() after everything was stored")
        expect(not found.is_storing(), f"storage.is_storing() is True although everything is stored. {_HINT}")


@clause(
    "terms.confidential",
    "What the wrapped transport declares as `confidential` is declared outside, too. More may be added.",
    source="TransportWrapper.confidential",
    of_wrappers=True,
)
async def confidential(bench: Bench) -> None:
    inside = Declared()
    declared = inside.confidential
    async with bench.around(inside) as outside:
        found = outside.confidential
        expect(
            found.options is declared.options and all(value in found.values for value in declared.values),
            "`confidential` hides what the wrapped transport declares, so a redactor outside leaves it in: begin with "
            "`declared = super().confidential`, and return `declared._replace(values=(*declared.values, …))`",
        )


def _now(at_once: AtOnce | None, name: str) -> Callable[..., bool]:
    """Return a function of `at_once`, as the layer above calls it."""
    return (lambda *_: False) if at_once is None else getattr(at_once, name)


async def _converse(bench: Bench, outside: Transport, lines: list[bytes], *, at_once: AtOnce | None) -> None:
    """Do with the wrapper what a `Query` does: at once what can be, and the rest with the methods."""
    with bench.within("connect(), write() or end_input()"):
        if not _now(at_once, "connect")():
            await outside.connect()
        for line in lines:
            if not _now(at_once, "write")(line):
                await outside.write(line)
        if not _now(at_once, "end_input")():
            await outside.end_input()
    await settle()


@clause(
    "terms.at-once",
    "What it hands on keeps the order of lines, and sends each once: where a function returns False, nothing was done.",
    source=_AT_ONCE,
    of_wrappers=True,
)
async def at_once(bench: Bench) -> None:
    sent = [wire(message(n)) for n in range(12)]
    inside = Declared()
    async with bench.around(inside) as outside:
        offered = outside.attach(Client()).at_once
        await _converse(bench, outside, sent, at_once=offered)
        missing, many = [line for line in sent if line not in inside.lines], len(inside.lines) - len(set(inside.lines))
        expect(not missing, f"{len(missing)} of 12 lines were lost: a function of AtOnce returns True only when the line was taken")
        expect(not many, f"{many} of 12 lines came twice: a function of AtOnce that returns False must have sent nothing")
        expect(inside.lines == sent, f"the lines came in another order: while your write() keeps a line, {_WITHHOLD}")
        with bench.within("close()"):
            if not _now(offered, "close")():
                await outside.close()
        for name in ("connect", "end_input", "close"):
            count = len(inside.called(name))
            expect(count == 1, f"{name} reached the wrapped transport {count} times: a function of AtOnce returns True when it was done")


@clause(
    "terms.at-once-changes-nothing",
    "And it sends what `write()` would send.",
    source=_AT_ONCE,
    of_wrappers=True,
)
async def at_once_changes_nothing(bench: Bench) -> None:
    answer = {"type": "control_response", "response": {"subtype": "success", "request_id": "a", "response": {"behavior": "allow"}}}
    asked = {"type": "control_request", "request_id": "b", "request": {"subtype": "set_model", "model": "conformance"}}
    lines = [prompt("a prompt", uuid=_UUID), encode_line(asked), encode_line(answer)]
    came: list[list[bytes]] = []
    for by_methods in (True, False):
        inside = Declared(takes_at_once=3)
        async with bench.around(inside) as outside:
            offered = outside.attach(Client()).at_once
            await _converse(bench, outside, lines, at_once=None if by_methods else offered)
            came.append(inside.lines)
    # a wrapper that withholds it may give each line an id of its own
    expect(
        offered is None or came[0] == came[1],
        f"write() sends something else than what is done at once: where write() changes, keeps or refuses a line, {_WITHHOLD}",
    )


_WITHHOLD = "`pass_at_once()` must return None, or a `write` that returns False then"


_SOURCE = "TransportWrapper.write"

_GRACE = 0.1
"""Seconds in which a prompt that nothing holds back is sent; they begin again with each prompt."""

_HOLDING_HINT = (
    "A write() that waits holds back everything. Wait in a before_prompt, an async function that gets the line of each prompt: "
    "attach() returns `super().attach(client).with_before_prompt(…)`"
)

Sender: TypeAlias = RunningCall[Turn]


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
                raise Violation(f"{len(waiting)} prompts wait, and a request waits behind them. {_HOLDING_HINT}") from None
            sent = claude.prompts_before("set_model")
            if sent is None:
                raise Violation("a request did not reach the wrapped transport: write() must hand on the lines that are no prompts")
            before = [text for text in waiting if text in sent]
            expect(not before, f"a request waited until {len(before)} of {len(waiting)} prompts were sent that wait. {_HOLDING_HINT}")


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
                not came,
                f"{', '.join(came)} came to the wrapped transport after its send() was cancelled. {_HOLDING_HINT}, and no shield in it",
            )


@clause(
    "lines.cancelled-reader-loses-nothing",
    "Cancelling a reader of lines loses none, also while the wrapper waits with lines that it has taken.",
    source="TransportWrapper.read_lines",
    of_wrappers=True,
)
async def cancelled_reader_loses_nothing(bench: Bench) -> None:
    async with bench.around_memory() as stand:
        got: list[dict[str, Any]] = []

        async def read() -> None:
            async for batch in stand.transport.read_lines():
                got.extend(json.loads(line) for line in batch)

        for n in range(12):  # cancel the reader later each time
            reader = bench.start(read)
            await settle()
            await stand.peer.send(wire(message(n)))
            for _ in range(n):
                await anyio.lowlevel.checkpoint()
            reader.cancel()
            await reader.end("a cancelled reader")
        await stand.peer.finish()
        await bench.start(read).result("the rest of the lines")
        lost = [n for n in range(12) if message(n) not in got]
        expect(
            not lost,
            f"readers were cancelled, and lines {lost} of 12 are lost: override read_batch() of a LineWrapper, which keeps what "
            "it has taken for the next call; with `keeps_taken_lines`, keep it yourself; and let a cancellation pass",
        )
        expect(got == messages(12), f"readers were cancelled, and 12 lines came as {[each['n'] for each in got]}: hand each on once")


def _speaker(stand: Stand) -> LineWrapper:
    wrapper = stand.transport
    if not isinstance(wrapper, LineWrapper) or not wrapper.speaks:
        raise Inexpressible(Reason.NEVER_SPEAKS)
    return wrapper


@clause(
    "own.injected-once",
    "It comes once, whole, and between the lines of the peer, whether or not a reader waits.",
    source="LineWrapper.inject",
    of_wrappers=True,
)
async def injected_once(bench: Bench) -> None:
    async with bench.around_memory() as stand:
        wrapper = _speaker(stand)
        got: list[dict[str, Any]] = []

        async def read() -> None:
            async for batch in stand.transport.read_lines():
                got.extend(json.loads(line) for line in batch)

        reader = bench.start(read)
        for n in range(0, 12, 2):
            line = wire(message(n))
            await settle()
            await stand.peer.send(line[:9])  # half of one, while the reader waits or has just been woken
            for _ in range(n):
                await anyio.lowlevel.checkpoint()
            wrapper.inject(wire(message(n + 1, own=True)))
            await settle()
            expect(
                message(n + 1, own=True) in got,
                "an injected line did not come while the peer said nothing: read_batch() must let pass whatever ends its wait for `source`",
            )
            await stand.peer.send(line[9:])
        await stand.peer.finish()
        await reader.result("the lines of the peer and the injected ones")
        own = [each["n"] for each in got if "own" in each]
        expect(own == [*range(1, 12, 2)], f"lines 1, 3, 5, 7, 9, 11 were injected, and came as {own}: hand each to inject() once")
        theirs = [each["n"] for each in got if "own" not in each]
        expect(theirs == [*range(0, 12, 2)], f"of the lines 0, 2, 4, 6, 8, 10 of the peer, these came beside injected ones: {theirs}")


@clause(
    "own.sent-later-once",
    "It is sent once, in the order of the calls, never in the middle of another line, and before the end of the input.",
    source="LineWrapper.send_later",
    of_wrappers=True,
)
async def sent_later_once(bench: Bench) -> None:
    async with bench.around_memory() as stand:
        wrapper = _speaker(stand)
        flood = message(0, pad="x" * stand.subject.absorbs)
        await stand.peer.stop_reading()
        writer = bench.start(partial(stand.transport.write, wire(flood)))  # it waits in the middle of its line
        await settle()
        for n in range(1, 6):
            wrapper.send_later(wire(message(n)))
        await settle()
        await stand.peer.resume_reading()
        await writer.result("a write() beside lines that are sent later")
        await stand.end_input()
        with bench.within("the end of the input"):
            await stand.peer.wait_input_end()
        lines = stand.peer.received.splitlines()
        whole = [*messages(5, first=1)]
        expect(
            lines[:1] == wire(flood).splitlines(),
            "a line that was sent later came in the middle of another one: hand each to send_later() whole, and leave the writing to it",
        )
        came = lines[1:]
        expect(
            came == wire(*whole).splitlines(),
            f"five lines were sent later, before end_input(), and these came: {came}. Hand each to send_later() once; "
            "an end_input() of yours calls super().end_input(), which waits for them",
        )
