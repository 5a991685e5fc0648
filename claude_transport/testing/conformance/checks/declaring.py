"""Clauses of wrappers about the session terms: what `attach()` hands on, and what is done at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from claude_transport.protocol.envelope import DecodeFailure, encode_line
from claude_transport.testing.conformance.bench import Bench, expect, message, settle, wire
from claude_transport.testing.conformance.clause import clause
from claude_transport.testing.conformance.declared import MARK, Declared, prompt, text_of
from claude_transport.transport import AtOnce, Client, SessionTerms, Transport

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
