"""Wrappers with one thing wrong, of which the clauses of a transport know nothing, or that they find in another place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from mutants import breaks_wrapping

import claude_transport as ct
from claude_transport.loops.background import LoopTask
from claude_transport.transports import AtOnce, Client, Confidential, SessionTerms, Storage
from claude_transport.wrappers import LineWrapper, peek

Replace = msgspec.structs.replace

# ------------------------------------------------------------------------------------------------------------- session terms


@breaks_wrapping(
    "terms.values",
    "terms.callbacks",
    "terms.before-prompt",
    "terms.storage",
    says="Begin with `terms = super().attach(client)`, and return `msgspec.structs.replace(terms, …)`",
)
class MakesItsOwnTerms(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        super().attach(client)
        return SessionTerms(verbatim_prompts=True)


@breaks_wrapping("terms.values", says="session_id=None, and the wrapped transport said '00000000-")
class HidesTheSession(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        return Replace(super().attach(client), session_id=None)


@breaks_wrapping("terms.values", says="attach() returned initialize={'hooks': None}")
class ReplacesWhatIsInitialized(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        return Replace(super().attach(client), initialize={"hooks": None})


@breaks_wrapping("terms.values", says="attach() returned permissions=()")
class ForgetsPermissions(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        return Replace(super().attach(client), permissions=())


@breaks_wrapping("terms.callbacks", says="attach() drops `hurry` of the wrapped transport")
class IsInNoHurry(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        return Replace(super().attach(client), hurry=None)


@breaks_wrapping("terms.callbacks", says="one call of `on_prompt` called that of the wrapped transport 0 times")
class KeepsPromptsToItself(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        return Replace(super().attach(client), on_prompt=lambda uuid: None)


@breaks_wrapping("terms.callbacks", says="one call of `on_failure` called that of the wrapped transport 2 times")
class CountsFailuresTwice(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        terms = super().attach(client)
        on_failure = terms.on_failure
        return Replace(terms, on_failure=lambda failure: [on_failure(failure), on_failure(failure)] if on_failure else None)


@breaks_wrapping("terms.callbacks", says="find_cli_version() gave None")
class KnowsNoVersion(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        return Replace(super().attach(client), find_cli_version=self.find_version)

    async def find_version(self, *, said: str | None) -> str | None:
        await anyio.lowlevel.checkpoint()
        return None


async def at_once(line: bytes) -> bytes:
    return line


@breaks_wrapping("terms.before-prompt", says="return `super().attach(client).with_before_prompt(…)`, which calls it after yours")
class ReplacesBeforePrompt(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        return Replace(super().attach(client), before_prompt=at_once)


@breaks_wrapping("terms.before-prompt", says="add yours with `with_before_prompt()`, so that it is called first")
class AsksAndForgetsTheAnswer(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        terms = super().attach(client)
        inner = terms.before_prompt

        async def before(line: bytes) -> bytes:
            if inner is not None:
                await inner(line)
            return line

        return Replace(terms, before_prompt=before)


@breaks_wrapping("terms.storage", says="attach() drops `storage` of the wrapped transport")
class ForgetsTheStore(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        return Replace(super().attach(client), storage=None)


@breaks_wrapping("terms.storage", says="storage.wait_stored() returned while the wrapped transport was storing")
class DoesNotWaitForTheStore(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        terms = super().attach(client)
        return Replace(terms, storage=terms.storage and Storage(terms.storage.is_storing, anyio.lowlevel.checkpoint))


@breaks_wrapping("terms.storage", says="storage.is_storing() is False while the wrapped transport is storing")
class NeverStores(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        terms = super().attach(client)
        return Replace(terms, storage=terms.storage and Storage(bool, terms.storage.wait_stored))


@breaks_wrapping("terms.storage", says="storage.is_storing() is True although everything is stored")
class AlwaysStores(ct.TransportWrapper):
    def attach(self, client: Client) -> SessionTerms:
        terms = super().attach(client)
        return Replace(terms, storage=terms.storage and Storage(lambda: True, terms.storage.wait_stored))


@breaks_wrapping("terms.confidential", says="begin with `declared = super().confidential`")
class DeclaresOnlyItsOwnSecrets(ct.TransportWrapper):
    @property
    def confidential(self) -> Confidential:
        return Confidential(values=("mine",))


# ------------------------------------------------------------------------------------------------------------------- at once


@breaks_wrapping("terms.at-once", says="lines were lost: a function of AtOnce returns True only when the line was taken")
class SaysYesInAnyCase(ct.TransportWrapper):
    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        def write(line: bytes) -> bool:
            inner.write(line)
            return True

        return AtOnce(bool, write, bool, bool)


@breaks_wrapping("terms.at-once", "terms.at-once-changes-nothing", says="lines came twice: a function of AtOnce that returns False")
class SaysNoInAnyCase(ct.TransportWrapper):
    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        def write(line: bytes) -> bool:
            inner.write(line)
            return False

        return AtOnce(bool, write, bool, bool)


@breaks_wrapping("terms.at-once", says="end_input reached the wrapped transport 0 times")
class EndsNothing(ct.TransportWrapper):
    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        return inner._replace(end_input=lambda: True)


@breaks_wrapping("terms.at-once", says="close reached the wrapped transport 0 times")
class ClosesNothing(ct.TransportWrapper):
    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        return inner._replace(close=lambda: True)


@breaks_wrapping(
    "terms.at-once", says="the lines came in another order: while your write() keeps a line, `pass_at_once()` must return None"
)
class CollectsLines(ct.TransportWrapper):
    """Sends lines in pairs, to save calls, and the last one with the end of the input."""

    def __init__(self, transport: ct.TransportLike) -> None:
        super().__init__(transport)
        self.kept = b""

    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        return AtOnce(bool, inner.write, bool, bool)

    async def write(self, data: str | bytes) -> None:
        line = data.encode() if isinstance(data, str) else data
        if b'"n":' in line and not self.kept and self.info.kind == "Declared":
            self.kept = line
            return
        kept, self.kept = self.kept, b""
        await super().write(kept + line)

    async def end_input(self) -> None:
        if self.kept:
            await super().write(self.kept)
        await super().end_input()


@breaks_wrapping("terms.at-once-changes-nothing", says="where write() changes, keeps or refuses a line, `pass_at_once()` must return None")
class PassesItselfBy(ct.TransportWrapper):
    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        return AtOnce(bool, inner.write, bool, bool)

    async def write(self, data: str | bytes) -> None:
        line = data.encode() if isinstance(data, str) else data
        await super().write(line.replace(b"a prompt", b"a *** prompt"))


# ---------------------------------------------------------------------------------------------------------- held prompts


def is_prompt(data: str | bytes) -> bool:
    return peek(data.encode() if isinstance(data, str) else data).type == "user"


@breaks_wrapping(
    "prompts.others-pass",
    "prompts.cancelled-not-sent",
    says="Wait in a before_prompt, an async function that gets the line of each prompt: attach() returns `super().attach(client).",
)
class WaitsInWrite(ct.TransportWrapper):
    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self.lock = anyio.Lock()

    async def write(self, data: str | bytes) -> None:
        async with self.lock:  # without it, a Query writes requests beside the prompt
            if is_prompt(data):
                await anyio.sleep(0.2)
            await super().write(data)


@breaks_wrapping("prompts.others-pass", "terms.before-prompt", "prompts.cancelled-not-sent", says="and a request waits behind them")
class AsksInWrite(ct.TransportWrapper):
    inner: Any = None

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self.lock = anyio.Lock()

    def attach(self, client: Client) -> SessionTerms:
        terms = super().attach(client)
        self.inner = terms.before_prompt
        return Replace(terms, before_prompt=None)

    async def write(self, data: str | bytes) -> None:
        line = data.encode() if isinstance(data, str) else data
        async with self.lock:
            await super().write(await self.inner(line) if self.inner is not None and is_prompt(line) else line)


@breaks_wrapping("prompts.others-pass", says="a request did not reach the wrapped transport")
class AnswersRequestsItself(LineWrapper):
    async def write(self, data: str | bytes) -> None:
        line = data.encode() if isinstance(data, str) else data
        if peek(line).subtype == "set_model":
            answer = {"subtype": "success", "request_id": peek(line).request_id, "response": {}}
            self.inject(msgspec.json.encode({"type": "control_response", "response": answer}))
            return
        await super().write(line)


@breaks_wrapping("prompts.order", says="a write() sends each line once, and returns after that")
class RepeatsPrompts(ct.TransportWrapper):
    async def write(self, data: str | bytes) -> None:
        await super().write(data)
        if is_prompt(data):
            await super().write(data)


@breaks_wrapping("prompts.order", says="what may wait, waits in before_prompt")
class SendsPromptsInTheBackground(ct.TransportWrapper):
    """So as to hold nothing back, it waits elsewhere, and the shorter wait wins."""

    wait = 0.25

    async def write(self, data: str | bytes) -> None:
        if not is_prompt(data):
            await super().write(data)
            return
        self.wait /= 5
        wait, write = self.wait, super().write

        async def later() -> None:
            await anyio.sleep(wait)
            await write(data)

        LoopTask.spawn(later, name="a prompt, later")


@breaks_wrapping("prompts.cancelled-not-sent", says="was cancelled")
class SendsWhatItHolds(ct.TransportWrapper):
    """It queues what waits, so that nothing is lost, also what nobody wants any more."""

    def __init__(self, transport: ct.TransportLike) -> None:
        super().__init__(transport)
        self.queue: list[bytes] = []

    def attach(self, client: Client) -> SessionTerms:
        terms = super().attach(client)
        inner = terms.before_prompt
        if inner is None:
            return terms

        async def before(line: bytes) -> bytes:
            try:
                return await inner(line)
            except anyio.get_cancelled_exc_class():
                self.queue.append(line)
                raise

        return Replace(terms, before_prompt=before)

    async def write(self, data: str | bytes) -> None:
        queue, self.queue = self.queue, []
        await super().write(b"".join(queue) + (data.encode() if isinstance(data, str) else data))


# ------------------------------------------------------------------------------------------------------------------- lines


@breaks_wrapping("lines.cancelled-reader-loses-nothing", "read.cancel-loses-nothing", says="with `keeps_taken_lines`, keep it yourself")
class SaysThatItKeeps(LineWrapper):
    keeps_taken_lines = True
    speaks = False

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        batch = await anext(source)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        return batch


@breaks_wrapping("lines.cancelled-reader-loses-nothing", says="override read_batch() of a LineWrapper")
class ReadsInAGenerator(ct.TransportWrapper):
    async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:  # type: ignore[override]
        async for batch in super().read_lines():
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            yield batch


@breaks_wrapping("lines.cancelled-reader-loses-nothing", "read.cancel-loses-nothing", says="hand each on once")
class HandsOnWhatItKeeps(LineWrapper):
    """It gives the base what it has taken, and keeps it, too."""

    def __init__(self, transport: ct.TransportLike) -> None:
        super().__init__(transport)
        self.kept: list[bytes] = []

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        batch = [*self.kept, *await anext(source)]
        self.kept = [line for line in batch if b'"pad"' not in line]
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        self.kept = []
        return batch


@breaks_wrapping("own.injected-once", says="hand each to inject() once")
class InjectsTwice(LineWrapper):
    def inject(self, line: bytes | str) -> None:
        super().inject(line)
        super().inject(line)


@breaks_wrapping("own.injected-once", says="an injected line did not come while the peer said nothing")
class InjectsWithTheNextLine(LineWrapper):
    def __init__(self, transport: ct.TransportLike) -> None:
        super().__init__(transport)
        self.mine: list[bytes] = []

    def inject(self, line: bytes | str) -> None:
        self.mine.append((line.encode() if isinstance(line, str) else line).rstrip(b"\n"))

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        batch = await super().read_batch(source)
        mine, self.mine = self.mine, []
        return [*mine, *batch]


@breaks_wrapping("own.injected-once", says="of the lines 0, 2, 4, 6, 8, 10 of the peer, these came beside injected ones")
class InjectsInsteadOfTheNextLine(LineWrapper):
    injected = 0

    def inject(self, line: bytes | str) -> None:
        super().inject(line)
        self.injected += 1

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        batch = await super().read_batch(source)
        if self.injected:
            self.injected = 0
            return []
        return batch


@breaks_wrapping("own.sent-later-once", says="Hand each to send_later() once")
class SendsLaterTwice(LineWrapper):
    def send_later(self, line: bytes | str) -> None:
        super().send_later(line)
        super().send_later(line)


@breaks_wrapping("own.sent-later-once", says="an end_input() of yours calls super().end_input(), which waits for them")
class EndsBeforeWhatIsLater(LineWrapper):
    async def end_input(self) -> None:
        await self.transport.end_input()


@breaks_wrapping("own.sent-later-once", says="and these came: [")
class SendsLaterInPieces(LineWrapper):
    def send_later(self, line: bytes | str) -> None:
        whole = (line.encode() if isinstance(line, str) else line).rstrip(b"\n")
        super().send_later(whole[:9])
        super().send_later(whole[9:])


@breaks_wrapping("own.sent-later-once", "write.no-interleaving", "write.backpressure", says="came in the middle of another one")
class CutsLongLines(LineWrapper):
    async def write(self, data: str | bytes) -> None:
        line = data.encode() if isinstance(data, str) else data
        for start in range(0, len(line), 100_000):
            await super().write(line[start : start + 100_000])
