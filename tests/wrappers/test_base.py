"""A wrapper is what it wraps: it delegates everything, adds nothing, and closes once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claude_transport.client.query import Query
from claude_transport.errors import ProcessError, TransportClosed, UsageError
from claude_transport.protocol.envelope import DecodeFailure
from claude_transport.testing.conformance import run_conformance
from claude_transport.testing.conformance.media import lockstep, memory, subprocess, wrapped
from claude_transport.testing.conformance.medium import Medium
from claude_transport.transport import Client, SessionTerms, Transport, TransportInfo
from claude_transport.transports.mock import MockTransport
from claude_transport.wrappers.base import LineWrapper, TransportWrapper

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}


class SixMethods:
    """A transport as somebody else writes it: the six methods, text only, and nothing else."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.written: list[object] = []
        self.release_close = anyio.Event()
        self.release_close.set()

    async def connect(self) -> None:
        self.calls.append("connect")

    async def write(self, data: str) -> None:
        self.written.append(data)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        yield {"type": "a", "text": "é\u2028"}
        yield {"type": "b"}

    async def end_input(self) -> None:
        self.calls.append("end_input")

    async def close(self) -> None:
        self.calls.append("close")
        await self.release_close.wait()

    def is_ready(self) -> bool:
        return "connect" in self.calls and "close" not in self.calls


class Heard(MockTransport):
    """A mock that keeps what is written to it, as it is."""

    def __init__(self) -> None:
        super().__init__([RESULT])
        self.heard: list[str | bytes] = []

    async def write(self, data: str | bytes) -> None:
        self.heard.append(data)


class Told(MockTransport):
    """A mock that remembers what it was told, and has terms."""

    def __init__(self) -> None:
        super().__init__([RESULT])
        self.failures: list[object] = []

    def attach(self, client: Client) -> SessionTerms:
        super().attach(client)
        return SessionTerms(verbatim_prompts=True, on_failure=self.failures.append)


@pytest.mark.parametrize("medium", [memory, lockstep, subprocess], ids=lambda medium: medium.__name__)
@pytest.mark.parametrize("wrapper", [TransportWrapper, LineWrapper])
def test_it_keeps_every_clause_that_what_it_wraps_keeps(medium: Any, wrapper: Any) -> None:
    made: Medium = wrapped(medium(), wrapper)
    report = run_conformance(made, clauses=CLAUSES_OF_A_CHILD if medium is subprocess else None)
    report.raise_for_failures()
    assert len(report.passed) >= 30 if medium is not subprocess else len(report.passed) == 2 * len(CLAUSES_OF_A_CHILD)


CLAUSES_OF_A_CHILD = ("read.failure-after-last-message", "close.leaves-nothing", "close.wakes-reader", "connect.failure-is-clean")


async def test_anything_with_six_methods_can_be_wrapped_and_hears_text() -> None:
    inside = SixMethods()
    async with TransportWrapper(inside) as outside:
        assert outside.is_ready()
        await outside.write(b'{"type":"user"}\n')
        await outside.write("é")
        await outside.end_input()
        assert [message["type"] async for message in outside.read_messages()] == ["a", "b"]
        assert [list(batch) async for batch in outside.read_lines()] == [['{"type":"a","text":"é\\u2028"}'.encode()], [b'{"type":"b"}']]
        assert outside.info == TransportInfo(kind="SixMethods")
        assert outside.attach(Client(answers=frozenset({"hooks"}))) == SessionTerms()
    assert inside.written == ['{"type":"user"}\n', "é"]
    assert inside.calls == ["connect", "end_input", "close"]


async def test_a_transport_of_this_library_gets_what_was_written_as_it_is() -> None:
    inside = Heard()
    async with TransportWrapper(TransportWrapper(inside)) as outside:
        await outside.write(b'{"type":"user"}\n')
        await outside.write("\u00e9")
    assert inside.heard == [b'{"type":"user"}\n', "\u00e9"]


async def test_the_line_view_of_six_methods_is_that_of_their_messages() -> None:
    async with LineWrapper(SixMethods()) as outside:
        assert [message["text"] async for message in outside.read_messages() if "text" in message] == ["é\u2028"]
        view = outside.read_lines()
        (line,) = await anext(view)
        assert line.startswith(b'{"type":"a"')
        await view.aclose()  # type: ignore[attr-defined]


async def test_what_one_view_has_not_handed_out_is_there_once_for_the_next() -> None:
    class AtOnce(MockTransport):
        left = ([b'{"n":1}', b'{"n":2}', b'{"n":3}'], [b'{"n":4}'])

        def read_lines(self) -> Any:
            return self

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> list[bytes]:
            if not self.left:
                raise StopAsyncIteration
            batch, self.left = self.left[0], self.left[1:]
            return batch

    async with LineWrapper(AtOnce()) as outside:
        assert await anext(outside.read_messages()) == {"n": 1}
        assert [list(batch) async for batch in outside.read_lines()] == [[b'{"n":2}', b'{"n":3}'], [b'{"n":4}']]


async def test_it_costs_nothing_the_iterators_are_those_of_what_it_wraps() -> None:
    class Same(MockTransport):
        messages: AsyncIterator[dict[str, Any]] = aiter(SixMethods().read_messages())

        def read_messages(self) -> AsyncIterator[dict[str, Any]]:
            return self.messages

        def read_lines(self) -> Any:
            return self.messages

    inside = Same()
    outside = TransportWrapper(TransportWrapper(inside))
    assert outside.read_messages() is inside.messages
    assert outside.read_lines() is inside.messages
    await inside.messages.aclose()  # type: ignore[attr-defined]


async def test_what_is_told_reaches_the_innermost_and_what_it_knows_is_seen_outside() -> None:
    inside = Told()
    outside = TransportWrapper(LineWrapper(TransportWrapper(inside)))
    terms = outside.attach(Client(answers=frozenset({"can_use_tool"}), trace={"traceparent": "00-1-2-01"}))
    assert terms.verbatim_prompts
    assert terms.on_failure is not None
    terms.on_failure(DecodeFailure(kind="noise"))
    async with outside:
        await outside.write("{}")
        assert outside.info == inside.info
    assert inside.client == Client(answers=frozenset({"can_use_tool"}), trace={"traceparent": "00-1-2-01"})
    assert inside.failures == [DecodeFailure(kind="noise")]
    assert repr(outside).startswith("TransportWrapper(LineWrapper(TransportWrapper(")
    assert outside.transport.transport.transport is inside  # type: ignore[attr-defined]


async def test_it_closes_what_it_holds_exactly_once_and_every_caller_waits_for_it() -> None:
    inside = SixMethods()
    inside.release_close = anyio.Event()
    outside = TransportWrapper(inside)
    done: list[int] = []

    async def close(number: int) -> None:
        await outside.close()
        done.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(close, number)
        await anyio.wait_all_tasks_blocked()
        assert (inside.calls, done) == (["close"], [])
        inside.release_close.set()
    await outside.close()
    assert (inside.calls, sorted(done)) == (["close"], [0, 1, 2])


async def test_an_error_passes_as_the_very_object_that_was_raised() -> None:
    error = ProcessError("gone", exit_code=3)

    class Failing(SixMethods):
        async def write(self, data: str) -> None:
            raise error

        async def close(self) -> None:
            await super().close()
            raise error

    inside = Failing()
    outside = TransportWrapper(LineWrapper(inside))
    for call in (lambda: outside.write("x"), outside.close):
        with pytest.raises(ProcessError) as raised:
            await call()
        assert raised.value is error
    await outside.close()
    assert inside.calls == ["close"]


async def test_a_query_talks_through_wrappers_as_if_there_were_none() -> None:
    inside = Told()
    with anyio.fail_after(30):
        async with Query(TransportWrapper(LineWrapper(inside))) as query:
            assert (await (await query.send("/not a command")).result()).result == "done"
    assert inside.written[1]["client_composed"] is True
    with pytest.raises(TransportClosed):
        await inside.connect()


def test_a_wrapper_is_a_transport_and_true() -> None:
    assert isinstance(TransportWrapper(SixMethods()), Transport)
    assert TransportWrapper(SixMethods())


async def test_a_strict_transport_stays_strict_behind_a_line_wrapper() -> None:
    class Strict(MockTransport):
        def attach(self, client: Client) -> SessionTerms:
            return SessionTerms(strict=True)

    inside = Strict([b"no json", RESULT])
    async with LineWrapper(LineWrapper(inside)) as outside:
        with pytest.raises(Exception, match="line 1 is not a JSON object"):
            await anext(outside.read_messages())
        assert await anext(outside.read_messages()) == RESULT


async def test_a_close_that_was_cancelled_is_finished_by_the_next() -> None:
    class Slow(SixMethods):
        is_closed = False

        async def close(self) -> None:
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            self.is_closed = True

    inside = Slow()
    outside = TransportWrapper(inside)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await outside.close()
    assert not inside.is_closed
    await outside.close()
    assert inside.is_closed


class Slow(LineWrapper):
    """Takes two batches, waits, and hands them on as one. It counts them when it cannot lose them any more."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self.counted: list[bytes] = []
        self.waits = anyio.Event()
        self.go_on = anyio.Event()

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        lines = [*await anext(source), *await anext(source)]
        self.waits.set()
        await self.go_on.wait()
        self.counted += lines
        return lines


async def first_of(view: AsyncIterator[Any]) -> None:
    await anext(view)


@pytest.mark.parametrize("view", ["lines", "messages"])
async def test_a_reader_that_is_cancelled_while_a_wrapper_waits_loses_nothing(view: str) -> None:
    sent = [b'{"type":"a"}', b'{"type":"b"}', b'{"type":"c"}', b'{"type":"d"}']

    class OneByOne(MockTransport):
        def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
            return Batches()

    class Batches:
        def __aiter__(self) -> Batches:
            return self

        async def __anext__(self) -> Sequence[bytes]:
            if not sent:
                raise StopAsyncIteration
            return [sent.pop(0)]

    wrapper = Slow(OneByOne())
    await wrapper.connect()
    for _attempt in range(3):
        wrapper.waits = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first_of, wrapper.read_lines() if view == "lines" else wrapper.read_messages())
            await wrapper.waits.wait()
            tasks.cancel_scope.cancel()
        assert wrapper.counted == []
    wrapper.go_on.set()
    heard = [line async for batch in wrapper.read_lines() for line in batch]
    assert heard == wrapper.counted == [b'{"type":"a"}', b'{"type":"b"}', b'{"type":"c"}', b'{"type":"d"}']
    await wrapper.close()


async def test_what_a_cancelled_wrapper_had_taken_comes_also_when_it_is_idle_by_then() -> None:
    class Resting(Slow):
        rests = False

        @property
        def is_idle(self) -> bool:
            return self.rests

    wrapper = Resting(MockTransport([RESULT, RESULT]))
    wrapper.go_on.set()
    await wrapper.connect()
    with anyio.CancelScope() as scope:
        wrapper.go_on = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first_of, wrapper.read_lines())
            await wrapper.waits.wait()
            scope.cancel()
    wrapper.rests = True
    wrapper.go_on.set()
    assert len([line async for batch in wrapper.read_lines() for line in batch]) == 2
    await wrapper.close()


def test_the_transport_inside_is_not_replaced_by_assigning_to_it() -> None:
    inside = MockTransport()
    wrapper = TransportWrapper(inside)
    with pytest.raises(UsageError) as caught:
        wrapper.transport = MockTransport()
    assert str(caught.value) == (
        "TransportWrapper.transport cannot be replaced. To go on over another transport, use FailoverTransport([make_a, make_b]) "
        "or RetryingTransport(transport, make_transport=…)"
    )
    assert wrapper.transport is inside
