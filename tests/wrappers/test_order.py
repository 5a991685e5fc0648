"""Wrappers in one stack: what doubles is refused, what is lost is said, and the order that the docs recommend keeps its promises."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import msgspec
import pytest
from span_recorder import SpanRecorder

from claude_transport.client.query import Query
from claude_transport.errors import ClaudeTransportWarning, CLIConnectionError, ConfigurationError
from claude_transport.transport import Transport
from claude_transport.transports.mock import MockTransport
from claude_transport.wrappers.base import TransportWrapper
from claude_transport.wrappers.faults import FailConnect
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.logging import LoggingTransport
from claude_transport.wrappers.metrics import Metrics, MetricsRegistry, MetricsTransport
from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot, Timing
from claude_transport.wrappers.recording import RecordingTransport, TapeSeries
from claude_transport.wrappers.retrying import RetryingTransport
from claude_transport.wrappers.stateful import ConnectionState, StatefulTransport
from claude_transport.wrappers.tracing import TracingTransport

Wrap: TypeAlias = Callable[[Any], TransportWrapper]
RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "done"}
METRICS, REGISTRY, PROVIDER, CONNECTION = Metrics(clock=lambda: 0.0), MetricsRegistry(), SpanRecorder(), ConnectionState()


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def no_time(_seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


def recorder(path: Any) -> Wrap:
    return lambda transport: RecordingTransport(transport, path)


def metered(**arguments: Any) -> Wrap:
    return lambda transport: MetricsTransport(transport, **arguments)


def traced(provider: SpanRecorder | None = None) -> Wrap:
    return lambda transport: TracingTransport(transport, tracer_provider=provider)


def stateful(**arguments: Any) -> Wrap:
    return lambda transport: StatefulTransport(transport, **arguments)


# ------------------------------------------------------------------------------------------------------------------ doubling

COUNTED = "so everything would be counted twice. Keep one MetricsTransport, or give each its own"
SAME_TAPE = "RecordingTransport: a RecordingTransport inside writes {path}, too, and nothing could read the tape. Give each its own path."
SAME_SPANS = "TracingTransport: a TracingTransport inside makes the same spans, so every turn would have two. Keep one of them."
REFUSED: dict[str, tuple[Wrap, Wrap, str | None, str]] = {
    "attempts": (
        RetryingTransport,
        RetryingTransport,
        "transport",
        "RetryingTransport: a RetryingTransport is inside, so the attempts of both would multiply. Give all attempts to one of them.",
    ),
    "registry": (
        metered(registry=REGISTRY),
        metered(registry=REGISTRY),
        "registry",
        f"MetricsTransport: a MetricsTransport inside has the same registry, {COUNTED} MetricsRegistry.",
    ),
    "metrics": (
        metered(metrics=METRICS),
        metered(metrics=METRICS),
        "metrics",
        f"MetricsTransport: a MetricsTransport inside counts into the same metrics, {COUNTED} Metrics.",
    ),
    "global spans": (traced(), traced(), "transport", SAME_SPANS),
    "own spans": (traced(PROVIDER), traced(PROVIDER), "transport", SAME_SPANS),
    "tape": (recorder("x.ndjson"), recorder("x.ndjson"), "path", SAME_TAPE.format(path="x.ndjson")),
    "spelling of a tape": (
        recorder("x.ndjson"),
        recorder(Path("y", "..", "x.ndjson")),
        "path",
        SAME_TAPE.format(path=Path("y", "..", "x.ndjson")),
    ),
    "tapes": (recorder("x.ndjson"), recorder(TapeSeries("x.ndjson")), "path", SAME_TAPE.format(path="x.ndjson")),
    "state": (
        stateful(connection=CONNECTION),
        stateful(connection=CONNECTION),
        "connection",
        "StatefulTransport: a StatefulTransport inside reports to the same connection, so each change would come twice. Keep one of them.",
    ),
}
ALLOWED: dict[str, tuple[Wrap, Wrap]] = {
    "metrics": (metered(), metered()),
    "registries": (metered(registry=MetricsRegistry()), metered(registry=MetricsRegistry())),
    "spans": (traced(PROVIDER), traced(SpanRecorder())),
    "tapes": (recorder("x.ndjson"), recorder("y.ndjson")),
    "states": (stateful(on_change=lambda _old, _new: None), stateful(on_change=lambda _old, _new: None)),
    "connections": (stateful(connection=ConnectionState()), stateful(connection=ConnectionState())),
    "logs": (LoggingTransport, LoggingTransport),
}


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize(("inner", "outer", "option", "message"), REFUSED.values(), ids=REFUSED)
def test_what_would_do_the_same_twice_is_refused_when_it_is_made(inner: Wrap, outer: Wrap, option: str, message: str, depth: int) -> None:
    inside: TransportWrapper = inner(MockTransport())
    for _ in range(depth):
        inside = TransportWrapper(inside)
    sessions = REGISTRY.snapshot().sessions
    with pytest.raises(ConfigurationError) as caught:
        outer(inside)
    assert (str(caught.value), caught.value.option, caught.value.code) == (message, option, "config.invalid")
    assert REGISTRY.snapshot().sessions == sessions, "the one that was refused counts nothing"
    outer(MockTransport())  # alone it is welcome


@pytest.mark.parametrize(("inner", "outer"), ALLOWED.values(), ids=ALLOWED)
async def test_what_differs_may_be_in_a_stack_twice(inner: Wrap, outer: Wrap) -> None:
    async with Query(outer(inner(MockTransport([RESULT])))) as query:
        assert (await (await query.send("Hi")).result()).result == "done"


async def test_a_stack_whose_next_transport_would_retry_in_a_retry_is_refused_once() -> None:
    made: list[Transport] = []

    def make() -> Transport:
        made.append(MockTransport())
        return RetryingTransport(made[-1])

    first = RetryingTransport(MockTransport(), make_transport=make, sleep=no_time)
    await first.connect()
    with pytest.raises(ConfigurationError, match="the attempts of both would multiply"):
        await first.reconnect()
    assert [transport.is_ready() for transport in made] == [False]


class Budget(TransportWrapper):
    """A wrapper of a program, of which a stack may have one for each account."""

    def __init__(self, transport: Any, *, account: str) -> None:
        super().__init__(transport)
        self.claim((Budget, account), taken=f"the budget of {account} is inside already. Keep one of them.", option="account")


def test_a_wrapper_of_your_own_can_claim_what_it_must_have_alone() -> None:
    inside = Budget(Budget(MockTransport(), account="a"), account="b")
    assert inside.claims == {(Budget, "a"), (Budget, "b")}
    with pytest.raises(ConfigurationError) as caught:
        Budget(LoggingTransport(inside), account="a")
    assert (str(caught.value), caught.value.option) == ("Budget: the budget of a is inside already. Keep one of them.", "account")


# --------------------------------------------------------------------------------------------------------------------- order


def test_a_wrapper_that_would_be_lost_at_a_reconnect_is_warned_of_where_it_is_made() -> None:
    retrying = RetryingTransport(MockTransport(), make_transport=MockTransport)
    with pytest.warns(ClaudeTransportWarning) as caught:
        TracingTransport(MetricsTransport(retrying))
    why = "it is not around the transport that reconnect() returns. Put it inside: into what make_transport returns."
    assert [str(each.message) for each in caught] == [f"MetricsTransport is around a RetryingTransport: {why}"]
    assert caught[0].filename == __file__
    MetricsTransport(RetryingTransport(MockTransport()))  # this one cannot reconnect


CONVERSATION = [
    {"type": "assistant", "message": {"id": "a", "model": "claude-x", "content": [{"type": "text", "text": "Hello"}]}},
    {**RESULT, "usage": {"input_tokens": 3, "output_tokens": 5}, "total_cost_usd": 0.5},
]


async def observed(order: tuple[str, ...]) -> tuple[MetricsSnapshot, list[tuple[str, str]], list[tuple[str, Any]]]:
    """The counts, the lines on the tape and the spans of a session in these wrappers, the last one outermost."""
    spans, metrics = SpanRecorder(), Metrics()
    tape = Path(f"{'-'.join(order)}.ndjson")
    wraps: dict[str, Wrap] = {
        "log": LoggingTransport,
        "metrics": metered(metrics=metrics),
        "spans": traced(spans),
        "tape": recorder(tape),
    }
    transport: Transport = FaultyTransport(MockTransport(CONVERSATION), [FailConnect()])
    for name in order:
        transport = wraps[name](transport)
    with pytest.raises(CLIConnectionError):
        await transport.connect()
    async with Query(transport) as query:
        await (await query.send("Hi", uuid="00000000-0000-4000-8000-000000000001")).result()
        await query.send("And now?", uuid="00000000-0000-4000-8000-000000000002")
    untimed = msgspec.structs.replace(metrics.snapshot(), connect=Timing(), first_message=Timing(), result=Timing())
    lines = [json.loads(line) for line in tape.read_text("utf-8").splitlines()]
    return untimed, [(each["dir"], each["line"]) for each in lines if "dir" in each], [(each.name, each.attributes) for each in spans.spans]


async def test_observers_see_the_same_in_every_order() -> None:
    orders = list(itertools.permutations(("log", "metrics", "spans", "tape")))
    first, *others = [await observed(order) for order in orders]
    assert len(first[1]) > 5
    assert (len(first[2]), first[0].prompts, first[0].lost_prompts) == (2, 2, {"session_ended": 1})
    assert others == [first] * 23
