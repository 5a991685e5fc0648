"""The laws of wrapping, held against every wrapper there is and every ordered pair of them.

A wrapper is what it wraps; it owns it; it lets errors be what they are; what is known inside is seen outside; and it costs nothing
while it has nothing to do. A wrapper that is added to `claude_transport.wrappers` is held to them without being named here, unless it
needs arguments.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import itertools
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import msgspec
import pytest
from anyio.abc import ByteStreamConnectable
from loading import load_file

import claude_transport.wrappers
from claude_transport.client.query import Query
from claude_transport.errors import (
    ClaudeTransportError,
    InputClosed,
    NotExecutableError,
    OutcomeUncertain,
    ProcessError,
    TransportClosed,
    UsageError,
)
from claude_transport.protocol.envelope import DecodeFailure
from claude_transport.streams.memory import memory_stream_pair
from claude_transport.testing.conformance import media, run_conformance
from claude_transport.testing.conformance.medium import Medium
from claude_transport.transport import Client, SessionTerms, Transport, TransportInfo
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.wrappers.base import LineWrapper, ObservingWrapper, TransportWrapper
from claude_transport.wrappers.failover import FailoverTransport
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.logging import LoggingTransport
from claude_transport.wrappers.metrics import Metrics, MetricsRegistry, MetricsTransport
from claude_transport.wrappers.recording import RecordingTransport, TapeSeries
from claude_transport.wrappers.retrying import RetryingTransport
from claude_transport.wrappers.stateful import ConnectionState, StatefulTransport, TransportState

Wrap: TypeAlias = Callable[[Any], TransportWrapper]

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}
PATIENCE = 30.0
"""Seconds; only a failure takes that long."""

tapes = itertools.count()


def discovered() -> Iterator[type[TransportWrapper]]:
    """Yield every public class of wrapper that a module of the package defines."""
    package = claude_transport.wrappers
    for module in pkgutil.iter_modules(package.__path__):
        defining = importlib.import_module(f"{package.__name__}.{module.name}")
        for name, each in vars(defining).items():
            if isinstance(each, type) and issubclass(each, TransportWrapper) and each.__module__ == defining.__name__ and name[0] != "_":
                yield each


def record(transport: Any) -> TransportWrapper:
    """A recorder with a tape of its own, in the folder of the test."""
    return RecordingTransport(transport, Path(f"tape-{next(tapes)}.ndjson"))


async def no_time(_seconds: float) -> None:
    """What waits goes on in the next turn of the event loop."""
    await anyio.lowlevel.checkpoint()


# How each is made when it is at work; what is not listed takes nothing but a transport.
AT_WORK: dict[str, Any] = {
    "FailoverTransport": media.only_one,
    "FaultyTransport": media.without_faults,
    "LoggingTransport": media.logged,
    "RecordingTransport": record,
    "StatefulTransport": media.watched,
}
# What waits in real time by default, and is told not to.
WAITING: dict[str, dict[str, Any]] = {"RetryingTransport": {"sleep": no_time}}
# Wrappers whose `write()` may raise OutcomeUncertain instead of the error of the transport: that is their purpose.
MAY_BE_UNCERTAIN = {"RetryingTransport"}

WRAPPERS: dict[str, Wrap] = {
    each.__name__: functools.partial(AT_WORK.get(each.__name__, each), **WAITING.get(each.__name__, {})) for each in discovered()
}
# those that people compose; the bases do less, or the same
COMPOSED = [name for name in WRAPPERS if name.endswith("Transport")]
# those that refuse another one of their kind inside: see test_order.py
ONCE = {"RetryingTransport", "TracingTransport"}
REPEATED = [wrap for name, wrap in WRAPPERS.items() if name not in ONCE]


def pairs() -> Iterator[Any]:
    """Every wrapper around every one. In each run, those that are neighbours in the list; the others nightly."""
    for (place, outer), (other, inner) in itertools.product(enumerate(COMPOSED), repeat=2):
        if outer == inner and outer in ONCE:
            continue
        is_near = (place - other) % len(COMPOSED) in {1, len(COMPOSED) - 1}
        yield pytest.param(outer, inner, marks=() if is_near else pytest.mark.nightly)


EACH = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)

IDLE: dict[str, Wrap] = {
    "TransportWrapper": TransportWrapper,
    "FailoverTransport": lambda transport: FailoverTransport([lambda _session_id: transport]),
    "FaultyTransport": lambda transport: FaultyTransport(transport, ()),
    "LoggingTransport": LoggingTransport,
    "StatefulTransport": StatefulTransport,
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # for the tapes


def stack_of(transport: Any, *wraps: Wrap) -> TransportWrapper:
    """The transport in all of these, the last one outermost."""
    for wrap in wraps:
        transport = wrap(transport)
    assert isinstance(transport, TransportWrapper)
    return transport


def says_nothing(wrapper: TransportWrapper) -> set[str]:
    """The clauses about lines that a wrapper says by itself, unless this one may."""
    speaks = isinstance(wrapper, LineWrapper) and wrapper.speaks
    return set() if speaks else {"own.injected-once", "own.sent-later-once"}


class Inside(Transport):
    """A transport that counts its calls, and raises what it is given."""

    def __init__(self, *lines: bytes, errors: dict[str, Exception] | None = None) -> None:
        self.lines = [*lines]
        self.errors = errors or {}
        self.calls: list[str] = []
        self.written: list[str | bytes] = []
        self.failures: list[object] = []
        self.prompts: list[str] = []
        self.clients: list[Client] = []
        self.iterators: list[object] = []
        self.may_close = anyio.Event()
        self.may_close.set()

    async def _called(self, name: str) -> None:
        self.calls.append(name)
        await anyio.lowlevel.checkpoint()
        if name in self.errors:
            raise self.errors[name]

    async def connect(self) -> None:
        await self._called("connect")

    async def write(self, data: str | bytes) -> None:
        await self._called("write")
        self.written.append(data)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        self.iterators.append(iterator := iter_messages())
        return iterator

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        self.iterators.append(iterator := Batches(self))
        return iterator

    async def end_input(self) -> None:
        await self._called("end_input")

    async def close(self) -> None:
        self.calls.append("close")
        await self.may_close.wait()
        if "close" in self.errors:
            raise self.errors["close"]

    def is_ready(self) -> bool:
        return "connect" in self.calls and "connect" not in self.errors and "close" not in self.calls

    @property
    def info(self) -> TransportInfo:
        return TransportInfo(kind="Inside", pid=4711, stderr_tail="last words")

    def attach(self, client: Client) -> SessionTerms:
        self.clients.append(client)
        return SessionTerms(
            verbatim_prompts=True,
            strict=True,
            on_prompt=self.prompts.append,
            on_failure=self.failures.append,
            find_cli_version=self.find_cli_version,
        )

    async def find_cli_version(self, *, said: str | None) -> str | None:
        await anyio.lowlevel.checkpoint()
        return said or "2.1.329"


async def iter_messages() -> AsyncIterator[dict[str, Any]]:
    yield RESULT


class Batches:
    def __init__(self, inside: Inside) -> None:
        self.inside = inside

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        await anyio.lowlevel.checkpoint()
        if self.inside.lines:
            return [self.inside.lines.pop(0)]
        if "read" in self.inside.errors:
            raise self.inside.errors["read"]
        raise StopAsyncIteration


class SixMethods:
    """A transport as somebody else writes it."""

    def __init__(self) -> None:
        self.written: list[object] = []
        self.ready = False

    async def connect(self) -> None:
        self.ready = True

    async def write(self, data: str) -> None:
        self.written.append(data)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        yield {"type": "a", "text": "é\u2028"}
        yield RESULT

    async def end_input(self) -> None: ...

    async def close(self) -> None:
        self.ready = False

    def is_ready(self) -> bool:
        return self.ready


# ------------------------------------------------------------------------------------------------- a wrapper is what it wraps


@EACH
def test_it_keeps_every_clause_that_what_it_wraps_keeps(wrap: Wrap) -> None:
    report = run_conformance(media.wrapped(media.memory(), wrap))
    report.raise_for_failures()
    assert {row.clause for row in report.excluded} == says_nothing(wrap(Inside()))


@pytest.mark.parametrize(("outer", "inner"), [*pairs()])
def test_two_around_each_other_keep_every_clause_in_either_order(outer: str, inner: str) -> None:
    medium: Medium = media.wrapped(media.memory(), lambda transport: stack_of(transport, WRAPPERS[inner], WRAPPERS[outer]))
    report = run_conformance(medium)
    report.raise_for_failures()
    assert {row.clause for row in report.excluded} == says_nothing(stack_of(Inside(), WRAPPERS[inner], WRAPPERS[outer]))


@EACH
async def test_lines_pass_as_the_bytes_they_are_in_both_directions(wrap: Wrap) -> None:
    lines = (b'{"type":"a", "n":1.50,"n":2}', b"noise \xff", b'{"type":"\xed\xa0\x80"}', b" ", b'{"type":"result"}')
    inside = Inside(*lines)
    async with wrap(inside) as outside:
        await outside.write(b'{"type":"user", "x":1.50}\n{"type":"keep_alive"}')
        await outside.write('{"é":"\u2028"}\n')
        assert [line async for batch in outside.read_lines() for line in batch] == [*lines]
    sent = [data if isinstance(data, bytes) else data.encode() for data in inside.written]
    assert sent == [b'{"type":"user", "x":1.50}\n{"type":"keep_alive"}', '{"é":"\u2028"}\n'.encode()]


@EACH
async def test_whoever_wrote_what_is_inside_gets_text_and_is_heard(wrap: Wrap) -> None:
    inside = SixMethods()
    async with wrap(inside) as outside:
        await outside.write(b'{"type":"user"}\n')
        await outside.write("{}")
        await outside.end_input()
        assert outside.is_ready()
        assert [message["type"] async for message in outside.read_messages()] == ["a", "result"]
    assert inside.written == ['{"type":"user"}\n', "{}"]
    assert not inside.ready


async def test_bytes_that_are_no_text_are_refused_where_only_text_can_go() -> None:
    inside = SixMethods()
    async with TransportWrapper(inside) as outside:
        with pytest.raises(UsageError, match=r"not UTF-8"):
            await outside.write(b"\xff")
    assert inside.written == []


async def test_a_conversation_through_all_of_them_at_once_is_the_same() -> None:
    replies = [{"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "é"}]}}, RESULT]
    heard = []
    for wraps in ((), tuple(WRAPPERS.values()), tuple(reversed(WRAPPERS.values()))):
        claude = MockTransport(replies)
        with anyio.fail_after(PATIENCE):
            async with Query(stack_of(claude, *wraps) if wraps else claude) as query:
                turn = await query.send("Hello", uuid="00000000-0000-4000-8000-000000000001")
                messages = [message.raw async for message in turn]
                assert (await turn.result()).result == "done"
        heard.append((messages, [message["type"] for message in claude.written]))
    assert heard[0] == heard[1] == heard[2]
    assert len(heard[0][0]) == 2


@EACH
def test_it_is_true_has_no_length_and_shows_what_is_inside(wrap: Wrap) -> None:
    inside = Inside()
    outside = wrap(inside)
    assert bool(outside) is True
    assert not hasattr(outside, "__len__")
    assert isinstance(outside, Transport)
    assert repr(inside) in repr(outside)
    assert type(outside).__name__ in repr(outside)
    assert outside.transport is inside


# ------------------------------------------------------------------------------------------------------------------ ownership


@EACH
async def test_what_is_inside_is_closed_once_however_many_close_and_each_of_them_waits_for_it(wrap: Wrap) -> None:
    inside = Inside()
    outside = wrap(inside)
    await outside.connect()
    inside.may_close = anyio.Event()
    closed: list[int] = []

    async def close(number: int) -> None:
        await outside.close()
        closed.append(number)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(close, number)
            await anyio.wait_all_tasks_blocked()
            assert (inside.calls.count("close"), closed) == (1, [])
            assert not outside.is_ready()
            inside.may_close.set()
        await outside.close()
    assert (inside.calls.count("close"), sorted(closed)) == (1, [0, 1, 2])


@EACH
async def test_what_was_never_connected_is_closed_too(wrap: Wrap) -> None:
    inside = Inside()
    await wrap(inside).close()
    assert inside.calls == ["close"]


@EACH
async def test_a_cancelled_close_can_be_finished_by_another_one(wrap: Wrap) -> None:
    inside = Inside()
    outside = wrap(inside)
    await outside.connect()
    inside.may_close = anyio.Event()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outside.close)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        inside.may_close.set()
        await outside.close()
    assert inside.calls.count("close") == 2, "whoever was cancelled had not closed it: it is for the next one to do"


# ------------------------------------------------------------------------------------------- errors are what they were inside


FOREIGN = ValueError("from somebody else's transport")


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("connect", NotExecutableError("not executable", path="claude")),
        ("connect", FOREIGN),
        ("write", InputClosed("ended")),
        ("write", FOREIGN),
        ("read", ProcessError("gone", exit_code=3, stderr_tail="last words")),
        ("read", TransportClosed("closed meanwhile")),
        ("read", FOREIGN),
        ("end_input", TransportClosed("gone", exit_code=3)),
        ("end_input", FOREIGN),
        ("close", FOREIGN),
        ("close", ProcessError("it would not go", signal=9)),
    ],
)
@EACH
async def test_an_error_is_the_one_that_was_raised_inside(wrap: Wrap, where: str, error: Exception) -> None:
    inside = Inside(errors={where: error})
    outside = wrap(inside)
    allowed = (OutcomeUncertain,) if where == "write" and type(outside).__name__ in MAY_BE_UNCERTAIN else ()
    with pytest.raises((type(error), *allowed)) as raised:
        await outside.connect()
        await outside.write("{}")
        async for _ in outside.read_lines():
            pass
        await outside.end_input()
        await outside.close()
    if isinstance(raised.value, allowed):
        assert raised.value.__cause__ is error
    else:
        assert raised.value is error
    inside.errors = {}
    await outside.close()


async def test_an_error_passes_all_of_them_at_once() -> None:
    error = ProcessError("gone", exit_code=3)
    outside = stack_of(Inside(errors={"read": error}), *WRAPPERS.values())
    async with outside:
        with pytest.raises(ClaudeTransportError) as raised:
            await anext(outside.read_lines())
        assert raised.value is error


# --------------------------------------------------------------------------------------------- what is inside is seen outside


async def test_what_is_known_and_told_passes_through_any_depth() -> None:
    inside = Inside()
    outside = stack_of(inside, *REPEATED, *WRAPPERS.values())
    assert outside.info == inside.info
    terms = outside.attach(Client(answers=frozenset({"hooks"})))
    assert (terms.strict, terms.verbatim_prompts) == (True, True)
    assert inside.clients == [Client(answers=frozenset({"hooks"}))]
    assert terms.on_failure is not None
    terms.on_failure(DecodeFailure(kind="noise"))
    assert inside.failures == [DecodeFailure(kind="noise")]
    assert terms.on_prompt is not None
    terms.on_prompt("u1")
    assert inside.prompts == ["u1"]
    assert terms.find_cli_version is not None
    assert await terms.find_cli_version(said=None) == "2.1.329"
    assert not outside.is_ready()
    async with outside:
        assert outside.is_ready()
        assert inside.calls == ["connect"]
    layer: Any = outside
    for _ in range(len(REPEATED) + len(WRAPPERS)):
        layer = layer.transport
    assert layer is inside


def test_a_foreign_transport_has_the_name_of_its_class_for_info_and_no_terms() -> None:
    outside = stack_of(SixMethods(), *WRAPPERS.values())
    assert outside.info == TransportInfo(kind="SixMethods")
    terms = outside.attach(Client(answers=frozenset({"hooks"})))
    if terms.on_prompt is not None:
        terms.on_prompt("u1")
    assert msgspec.structs.replace(terms, on_prompt=None) == SessionTerms()


class Opener(ByteStreamConnectable):
    """A memory stream each time, whose other end is kept."""

    def __init__(self) -> None:
        self.peers: list[Any] = []

    async def connect(self) -> Any:
        ours, theirs = memory_stream_pair()
        self.peers.append(theirs)
        return ours


# what `reconnect()` makes is in a RetryingTransport already
MADE = {name: wrap for name, wrap in WRAPPERS.items() if name != "RetryingTransport"}


@pytest.mark.parametrize("wrap", MADE.values(), ids=MADE)
async def test_reconnecting_gives_a_new_one_of_the_same_kind_around_a_new_connection(wrap: Wrap) -> None:
    opener = Opener()

    def make() -> TransportWrapper:
        return stack_of(StreamTransport(opener), wrap)

    first = RetryingTransport(make(), make_transport=make)
    with anyio.fail_after(PATIENCE):
        await first.connect()
        await first.write("{}")
        second = await first.reconnect()
        assert type(second.transport) is type(first.transport)
        assert second is not first
        assert second.transport is not first.transport
        assert not first.is_ready()
        with pytest.raises(TransportClosed):
            await first.connect()
        assert second.is_ready()
        await second.write('{"n":2}')
        await opener.peers[1].send(b'{"type":"a"}\n')
        assert await anext(second.read_messages()) == {"type": "a"}
        assert await opener.peers[1].receive() == b'{"n":2}\n'
        await second.close()
        assert not second.is_ready()
    assert len(opener.peers) == 2


async def test_reconnecting_passes_through_all_of_them_at_once() -> None:
    opener = Opener()

    def make() -> TransportWrapper:
        return stack_of(StreamTransport(opener), *MADE.values())

    first = RetryingTransport(make(), make_transport=make)
    with anyio.fail_after(PATIENCE):
        await first.connect()
        async with await first.reconnect() as second:
            layer: Any = second.transport
            for wrap in reversed(MADE.values()):
                assert type(layer) is type(wrap(MockTransport()))
                layer = layer.transport
            assert isinstance(layer, StreamTransport)
            await second.write("{}")
            assert await opener.peers[1].receive() == b"{}\n"


async def test_what_cannot_reconnect_says_so_and_nothing_has_happened() -> None:
    outside = RetryingTransport(Inside())
    await outside.connect()
    with pytest.raises(UsageError, match="make_transport="):
        await outside.reconnect()
    assert outside.is_ready()
    await outside.close()


async def test_a_reconnect_that_is_cut_short_leaves_nothing_open() -> None:
    class Slow(TransportWrapper):
        async def connect(self) -> None:
            await super().connect()
            if len(opener.peers) > 1:
                await anyio.sleep_forever()

    opener = Opener()

    def make() -> TransportWrapper:
        return Slow(StreamTransport(opener))

    first = RetryingTransport(make(), make_transport=make)
    await first.connect()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.reconnect)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        for peer in opener.peers:
            with pytest.raises(anyio.EndOfStream):
                await peer.receive()


async def test_what_must_not_begin_anew_goes_on_in_what_the_factory_hands_to_each_transport() -> None:
    opener = Opener()
    changes: list[str] = []
    connection = ConnectionState(lambda _old, new: changes.append(new))
    metrics, registry, tapes = Metrics(), MetricsRegistry(), TapeSeries("tape.ndjson")

    def make() -> Transport:
        stateful = StatefulTransport(StreamTransport(opener), connection=connection)
        return RecordingTransport(MetricsTransport(stateful, metrics=metrics, registry=registry), tapes)

    first = RetryingTransport(make(), make_transport=make)
    await first.connect()
    await first.write("{}")
    second = await first.reconnect()
    assert connection.current is TransportState.CONNECTED
    assert (registry.running, registry.snapshot().sessions) == (1, 1)
    await second.write("{}")
    third = await second.reconnect()
    assert metrics.snapshot().lines_written == registry.snapshot().lines_written == 2
    await third.close()
    assert sorted(path.name for path in Path().iterdir()) == ["tape.2.ndjson", "tape.3.ndjson", "tape.ndjson"]
    assert tapes.paths == (Path("tape.ndjson"), Path("tape.2.ndjson"), Path("tape.3.ndjson"))
    assert changes == ["connecting", "connected", "closing", "closed"] * 3
    assert connection.current is TransportState.CLOSED
    assert (metrics.snapshot().connect.count, registry.running) == (3, 0)
    assert registry.snapshot() == metrics.snapshot()


# --------------------------------------------------------------------------------------------------------- free when idle


@pytest.mark.parametrize("wrap", IDLE.values(), ids=IDLE)
async def test_while_it_has_nothing_to_do_its_iterators_are_those_of_what_it_wraps(wrap: Wrap) -> None:
    inside = Inside()
    outside = stack_of(inside, wrap, wrap)
    await outside.connect()
    assert outside.read_lines() is inside.iterators[-1]
    messages = outside.read_messages()
    assert messages is inside.iterators[-1]
    await messages.aclose()  # type: ignore[attr-defined]


async def test_all_that_can_be_idle_at_once_are_free() -> None:
    inside = Inside()
    outside = stack_of(inside, *IDLE.values())
    await outside.connect()
    assert outside.read_lines() is inside.iterators[-1]


# -------------------------------------------------------------------------------------------------- onlookers break nothing


class Clumsy(ObservingWrapper):
    """Fails in everything it is told."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):

            def fail(*_: object) -> None:
                told.append(name)
                raise RuntimeError("sk-ant-a-secret")

            return fail
        return super().__getattribute__(name)


told: list[str] = []


async def test_an_onlooker_that_fails_in_everything_changes_nothing_and_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    told.clear()
    inside = Inside(b'{"n":1}', b'{"n":2}')
    async with Clumsy(inside) as outside:
        await outside.write("{}")
        assert [line async for batch in outside.read_lines() for line in batch] == [b'{"n":1}', b'{"n":2}']
        await outside.end_input()
    assert inside.calls == ["connect", "write", "end_input", "close"]
    assert told == [
        *("on_connecting", "on_connected", "on_writing", "on_written", "on_lines", "on_lines", "on_read_end", "on_input_ended"),
        *("on_closing", "on_closed"),
    ]
    (record_,) = [record for record in caplog.records if "Clumsy" in record.getMessage()]
    assert "RuntimeError raised in" in record_.getMessage()
    assert "sk-ant" not in caplog.text


async def test_an_onlooker_is_told_of_failures_and_of_each_end_once() -> None:
    seen: list[tuple[object, ...]] = []

    class Onlooker(ObservingWrapper):
        def on_connect_failed(self, error: BaseException) -> None:
            seen.append(("connect", error))

        def on_connected(self) -> None:
            seen.append(("connected",))

        def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
            seen.append(("write", data, error))

        def on_read_end(self, error: Exception | None) -> None:
            seen.append(("end", error))

        def on_closed(self, error: BaseException | None) -> None:
            seen.append(("closed", error))

    errors: dict[str, Exception] = {"connect": NotExecutableError("no"), "write": TransportClosed("gone"), "read": ProcessError("gone")}
    inside = Inside(errors=dict(errors))
    outside = Onlooker(inside)
    with pytest.raises(NotExecutableError):
        await outside.connect()
    del inside.errors["connect"]
    await outside.connect()
    await outside.connect()
    with pytest.raises(TransportClosed):
        await outside.write("{}")
    for _ in range(2):
        with pytest.raises(ProcessError):
            await anext(outside.read_lines())
    await outside.close()
    await outside.close()
    assert seen == [
        ("connect", errors["connect"]),
        ("connected",),
        ("write", "{}", errors["write"]),
        ("end", errors["read"]),
        ("closed", None),
    ]


async def test_an_onlooker_is_not_told_that_a_second_reader_was_refused() -> None:
    ends: list[object] = []

    class Onlooker(ObservingWrapper):
        def on_read_end(self, error: Exception | None) -> None:
            ends.append(error)

    async with Onlooker(Inside(errors={"read": UsageError("busy")})) as outside:
        with pytest.raises(UsageError):
            await anext(outside.read_lines())
        assert ends == []


# ------------------------------------------------------------------------------------------------------- wrappers of your own


PAGE_EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "own_wrapper.py"


def documented() -> Any:
    """The example of the page about wrapping."""
    return load_file(PAGE_EXAMPLE, "own_wrapper")


RECIPES: dict[str, dict[str, Any]] = {"ToolWatch": {"on_tool": str}, "WriteLimit": {"max_bytes": 2**40}}


@pytest.mark.parametrize(("name", "arguments"), RECIPES.items(), ids=RECIPES)
def test_a_wrapper_of_your_own_takes_less_than_25_lines_and_keeps_every_clause(name: str, arguments: dict[str, Any]) -> None:
    classes = {node.name: node for node in ast.parse(PAGE_EXAMPLE.read_text("utf-8")).body if isinstance(node, ast.ClassDef)}
    assert (classes[name].end_lineno or 0) - classes[name].lineno + 1 < 25
    recipe = getattr(documented(), name)
    run_conformance(media.wrapped(media.memory(), functools.partial(recipe, **arguments))).raise_for_failures()


async def test_a_wrapper_of_your_own_is_made_again_with_its_arguments_when_it_reconnects() -> None:
    def make() -> TransportWrapper:
        return stack_of(StreamTransport(Opener()), functools.partial(documented().WriteLimit, max_bytes=3))

    first = RetryingTransport(make(), make_transport=make)
    await first.connect()
    async with await first.reconnect() as second:
        await second.write("{}")
        with pytest.raises(UsageError, match="4 bytes are more than 3"):
            await second.write("{  }")
