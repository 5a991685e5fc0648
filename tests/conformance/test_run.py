"""`run_conformance`: what it takes, what it reports, and that nothing stops it."""

from __future__ import annotations

import ast
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import ByteStream, ByteStreamConnectable
from mutants import LIMIT, Good

from claude_transport.errors import ConfigurationError
from claude_transport.streams.memory import MemoryConnectable, MemoryStream, memory_stream_pair
from claude_transport.testing import conformance
from claude_transport.testing.conformance import CLAUSES, WRAPPER_CLAUSES, Medium, Peer, Reason, Subject, Violation, media, run_conformance
from claude_transport.testing.conformance.declared import Declared
from claude_transport.testing.conformance.memory_peer import MemoryPeer
from claude_transport.testing.conformance.pytest_adapter import cases
from claude_transport.transport import Client, SessionTerms
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.wrappers.base import LineWrapper, TransportWrapper

PACKAGE = Path(conformance.__file__).parent


@asynccontextmanager
async def a_subject() -> AsyncIterator[Subject]:
    async with MemoryPeer.pair(capacity=65536) as (stream, peer):
        yield Subject(transport=Good(stream), peer=peer, absorbs=2**20)


class WithExcludes:
    """A factory with an attribute."""

    def __init__(self, excludes: dict[str, Any]) -> None:
        self.excludes = excludes

    def __call__(self, stream: ByteStream) -> Any:
        return Good(stream)


# --------------------------------------------------------------------------------------------------------------- what it takes


def test_a_function_of_a_byte_stream_is_asked_everything_but_a_failing_connect() -> None:
    report = run_conformance(lambda stream: StreamTransport(_Handed(stream)))
    assert report.ok, str(report)
    assert {(row.clause, row.reason) for row in report.excluded} == {
        ("connect.failure-is-clean", Reason.NO_REFUSAL),
        ("read.line-limit", Reason.NO_LINE_LIMIT),
    }


class _Handed(ByteStreamConnectable):
    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream

    async def connect(self) -> ByteStream:
        return self.stream


def test_a_context_manager_of_a_subject_is_asked_what_it_has_a_switch_for() -> None:
    report = run_conformance(a_subject)
    assert report.ok, str(report)
    assert {row.reason for row in report.excluded} == {Reason.NO_REFUSAL, Reason.NO_LINE_LIMIT, Reason.NO_OWN_INFO}


def bare_stream_transport() -> StreamTransport:
    return StreamTransport(MemoryConnectable())


@pytest.mark.parametrize("factory", [MockTransport, bare_stream_transport, lambda: Subject(transport=MockTransport())])
def test_a_bare_transport_is_asked_what_needs_no_peer(factory: Any) -> None:
    report = run_conformance(factory)
    assert report.ok, str(report)
    assert {row.clause for row in report.passed} == {clause.id for clause in CLAUSES if not clause.needs_peer}
    assert {row.reason for row in report.excluded} == {Reason.NO_PEER}


def test_every_clause_on_every_backend_is_one_row() -> None:
    report = run_conformance(media.memory(), backends=["trio", "asyncio+uvloop"])
    assert [(row.clause, row.backend) for row in report.rows] == [
        (clause.id, backend) for clause in CLAUSES for backend in ("trio", "asyncio+uvloop")
    ]


def test_what_a_factory_excludes_is_reported_with_its_reason() -> None:
    report = run_conformance(WithExcludes({"read.order": Reason.SCRIPTED}), clauses=["read.order", "write.order"], backends=["trio"])
    assert [(row.clause, row.verdict, row.reason) for row in report.rows] == [
        ("read.order", "excluded", Reason.SCRIPTED),
        ("write.order", "passed", None),
    ]


@pytest.mark.parametrize("factory", [Good, a_subject, media.memory(), WithExcludes({"read.order": Reason.NO_BYTES})])
def test_what_a_run_excludes_is_reported_with_its_reason(factory: Any) -> None:
    excludes = {"read.order": Reason.SCRIPTED}
    report = run_conformance(factory, clauses=["read.order", "write.order"], backends=["trio"], excludes=excludes)
    assert [(row.clause, row.verdict, row.reason) for row in report.rows] == [
        ("read.order", "excluded", Reason.SCRIPTED),
        ("write.order", "passed", None),
    ]
    found = cases(factory, clauses=["read.order", "write.order"], backends=["trio"], excludes=excludes)
    assert [case.check().verdict for case in found] == ["excluded", "passed"]


def test_a_run_that_excludes_something_still_excludes_what_its_factory_does() -> None:
    factory = WithExcludes({"read.order": Reason.SCRIPTED})
    report = run_conformance(factory, backends=["trio"], clauses=["read.order"], excludes={"write.order": Reason.NEVER_WAITS})
    assert [(row.clause, row.reason) for row in report.excluded] == [("read.order", Reason.SCRIPTED)]


@pytest.mark.parametrize("factory", [Good, media.memory(), media.mock(), WithExcludes({})])
def test_what_is_no_wrapper_is_not_asked_what_wrappers_promise_and_says_why_when_it_is(factory: Any) -> None:
    report = run_conformance(factory, clauses=["write.order", "terms.storage"], backends=["trio"])
    assert [(row.clause, row.reason) for row in report.rows] == [("write.order", None), ("terms.storage", Reason.NO_WRAPPER)]
    asked = {case.clause for case in cases(factory, backends=["trio"])}
    assert asked == set(CLAUSES)


WRAPPED = [
    media.wrapped(media.memory(), LineWrapper),
    media.wrapped(media.mock(), LineWrapper),
    media.wrapped(media.recorded(media.memory()), LineWrapper),
    media.wrapped(media.wrapped(media.memory(), TransportWrapper), LineWrapper),
]


@pytest.mark.parametrize("medium", WRAPPED, ids=lambda medium: medium.name)
def test_what_wrappers_promise_is_asked_of_every_wrapper_whatever_is_inside(medium: Medium) -> None:
    report = run_conformance(medium, clauses=WRAPPER_CLAUSES, excludes={"terms.storage": Reason.ON_PURPOSE})
    assert report.ok, str(report)
    assert {(row.clause, row.reason) for row in report.excluded} == {("terms.storage", Reason.ON_PURPOSE)}
    for excludes in (None, {"terms.storage": Reason.ON_PURPOSE}):
        found = cases(media.memory(), medium, excludes=excludes)
        assert {case.clause for case in found if case.medium.name == medium.name} == set(CLAUSES + WRAPPER_CLAUSES)
        assert {case.clause for case in found if case.medium.name == "memory"} == set(CLAUSES)


def test_wrappers_in_a_row_are_asked_as_one() -> None:
    class Drops(TransportWrapper):
        def attach(self, client: Client) -> SessionTerms:
            return msgspec.structs.replace(super().attach(client), storage=None)

    for stack in (media.wrapped(media.memory(), Drops), media.recorded(media.wrapped(media.memory(), Drops))):
        report = run_conformance(media.wrapped(stack, LineWrapper), clauses=["terms.storage", "terms.values"], backends=["trio"])
        assert [(row.clause, row.verdict) for row in report.rows] == [("terms.storage", "failed"), ("terms.values", "passed")]


class WorksInAThread(TransportWrapper):
    """Each of its writes takes some milliseconds of work, which hold back nothing for longer."""

    async def write(self, data: str | bytes) -> None:
        await anyio.to_thread.run_sync(sum, range(500_000))
        await super().write(data)


def test_a_wrapper_that_works_in_a_thread_holds_no_prompt_back() -> None:
    clauses = ["prompts.others-pass", "prompts.order", "prompts.cancelled-not-sent"]
    run_conformance(media.wrapped(media.memory(), WorksInAThread), clauses=clauses).raise_for_failures()


def test_what_wrappers_are_asked_about_is_every_field_of_the_terms() -> None:
    declared, defaults = Declared().attach(Client()), SessionTerms()
    assert [name for name in SessionTerms.__struct_fields__ if getattr(declared, name) == getattr(defaults, name)] == []


def test_excluding_what_is_no_clause_is_an_error() -> None:
    factory = WithExcludes({"read.minds": Reason.SCRIPTED})
    with pytest.raises(ConfigurationError, match=r"read\.minds"):
        run_conformance(factory)
    with pytest.raises(ConfigurationError, match=r"read\.minds"):
        cases(factory)
    with pytest.raises(ConfigurationError, match=r"read\.minds"):
        run_conformance(Good, excludes=factory.excludes)


class PlainPeer(Peer):
    """A peer that sends and receives, and can do nothing else."""

    def __init__(self, stream: MemoryStream) -> None:
        super().__init__()
        self.stream = stream

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def listen(self) -> None:
        with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                self.take(await self.stream.receive())
        self.input_over()


def plain(make: Any) -> Callable[[], AbstractAsyncContextManager[Subject]]:
    """Subjects with a plain peer."""

    @asynccontextmanager
    async def subjects() -> AsyncIterator[Subject]:
        ours, theirs = memory_stream_pair(capacity=65536)
        peer = PlainPeer(theirs)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.listen)
            yield Subject(transport=make(ours), peer=peer, absorbs=2**20)
            tasks.cancel_scope.cancel()

    return subjects


def test_what_a_peer_leaves_out_excludes_the_clauses_that_need_it() -> None:
    report = run_conformance(plain(Good))
    assert report.ok, str(report)
    assert {row.reason for row in report.excluded} == {
        Reason.CANNOT_FINISH,
        Reason.CANNOT_BREAK,
        Reason.ALWAYS_READS,
        Reason.NO_REFUSAL,
        Reason.NO_LINE_LIMIT,
        Reason.NO_OWN_INFO,
    }
    assert {"read.order", "write.order", "close.wakes-reader"} <= {row.clause for row in report.passed}
    assert "its peer cannot stop reading" in str(report)


def test_a_peer_that_leaves_something_out_excuses_no_transport() -> None:
    class Mute(Good):
        async def write(self, data: str | bytes) -> None:
            pass

    report = run_conformance(plain(Mute), backends=["trio"], clauses=["write.order", "read.order"], timeout=1)
    assert [(row.clause, row.verdict) for row in report.rows] == [("write.order", "failed"), ("read.order", "passed")]


@pytest.mark.parametrize("factory", [None, "memory", lambda a, b: None, lambda *, stream: None])
def test_what_is_no_factory_is_refused(factory: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        run_conformance(factory)
    assert caught.value.option == "factory"


@asynccontextmanager
async def of_nothing() -> AsyncIterator[None]:
    yield None


@pytest.mark.parametrize("factory", [lambda: None, of_nothing])
def test_a_factory_that_makes_no_transport_is_refused(factory: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        run_conformance(factory)
    assert caught.value.option == "factory"


@pytest.mark.parametrize("backend", ["twisted", "asyncio+", "uvloop", "trio+uvloop"])
def test_an_unknown_backend_is_refused(backend: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a backend"):
        run_conformance(media.memory(), backends=[backend])


# ------------------------------------------------------------------------------------------------------ that nothing stops it


RELEASE = threading.Event()
"""Lets go those that hang, once they have been left behind."""


class HangsForGood(Good):
    async def close(self) -> None:
        if self.state == "open":
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(RELEASE.wait)


class BlocksTheLoop(Good):
    async def connect(self) -> None:
        RELEASE.wait()


class Raises(Good):
    async def connect(self) -> None:
        raise RuntimeError("out of order")


class Exits(Good):
    async def connect(self) -> None:
        raise SystemExit(1)


@pytest.mark.parametrize("cls", [HangsForGood, BlocksTheLoop])
def test_a_transport_that_cannot_even_be_cancelled_is_left_behind(cls: Any) -> None:
    RELEASE.clear()
    report = run_conformance(cls, clauses=["close.idempotent", "connect.not-ready-before"], backends=["asyncio", "trio"], timeout=0.1)
    RELEASE.set()
    hung, fine = report.failed, report.passed
    assert [row.clause for row in hung] == ["close.idempotent"] * 2
    assert all("cancellation did not end it" in row.detail for row in hung)
    assert [row.clause for row in fine] == ["connect.not-ready-before"] * 2


@pytest.mark.parametrize(("cls", "said"), [(Raises, "unexpected RuntimeError: out of order"), (Exits, "unexpected SystemExit: 1")])
def test_an_error_of_any_kind_is_that_clauses_failure_and_the_run_goes_on(cls: Any, said: str) -> None:
    report = run_conformance(cls, clauses=["read.order", "connect.not-ready-before"])
    assert [(row.clause, row.detail) for row in report.failed] == [("read.order", said)] * 2
    assert len(report.passed) == 2


async def test_it_can_be_run_in_a_thread_beside_an_event_loop() -> None:
    report = await anyio.to_thread.run_sync(lambda: run_conformance(media.memory(), clauses=["read.order"]))
    assert len(report.passed) == 2


# ------------------------------------------------------------------------------------------------------------ what it reports


@pytest.fixture
def report() -> conformance.Report:
    class OffByOne(Good):
        async def connect(self) -> None:
            await super().connect()
            self.lines.append(b'{"n":-1}')

    return run_conformance(OffByOne, clauses=["read.order", "write.order", "read.left-out-is-counted"])


def test_a_report_counts_and_says_why(report: conformance.Report) -> None:
    assert not report.ok
    assert str(report).splitlines() == [
        "OffByOne: 2 passed, 2 failed, 2 excluded",
        "  ✗ read.order [asyncio]: the messages came in another order",
        "  ✗ read.order [trio]: the messages came in another order",
        f"  - read.left-out-is-counted [asyncio]: {Reason.NO_OWN_INFO.value}",
        f"  - read.left-out-is-counted [trio]: {Reason.NO_OWN_INFO.value}",
    ]


def test_a_report_is_a_table_in_markdown(report: conformance.Report) -> None:
    assert report.to_markdown().splitlines() == [
        "| clause | asyncio | trio |",
        "|---|---|---|",
        "| `read.order` | ✗ | ✗ |",
        "| `write.order` | ✓ | ✓ |",
        "| `read.left-out-is-counted` | - | - |",
        "",
        "Failed:",
        "",
        "* `read.order`: the messages came in another order",
        "",
        "Excluded:",
        "",
        f"* `read.left-out-is-counted`: {Reason.NO_OWN_INFO.value}",
    ]


def test_a_report_with_failures_raises_them_all(report: conformance.Report) -> None:
    with pytest.raises(Violation, match=r"read\.order \[asyncio\].*\n.*read\.order \[trio\]"):
        report.raise_for_failures()
    run_conformance(Good, clauses=["write.order"]).raise_for_failures()


def test_rows_can_be_kept_as_json(report: conformance.Report) -> None:
    kept = msgspec.json.decode(msgspec.json.encode(report.rows), type=tuple[conformance.Row, ...])
    assert kept == report.rows


def test_only_the_adapter_knows_pytest() -> None:
    importers = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None) or ""]
            if any(name.partition(".")[0] in {"pytest", "_pytest"} for name in names):
                importers.add(path.name)
    assert importers == {"pytest_adapter.py"}


def test_a_run_loads_no_pytest() -> None:
    code = (
        "import sys; from claude_transport.testing.conformance import media, run_conformance;"
        "assert run_conformance(media.memory(), clauses=['read.order'], backends=['asyncio']).ok;"
        "import claude_transport.testing.conformance.pytest_adapter;"
        "assert not {'pytest', '_pytest', 'trio', 'uvloop'} & set(sys.modules), sorted(sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_limit_of_the_example_is_what_the_kit_is_told() -> None:
    assert Good(None).framer.max_line_bytes == LIMIT
