"""`FailoverTransport` connects the first transport that can be connected, sends nothing twice, and leaves nothing of the others."""

from __future__ import annotations

import contextlib
import copy
import gc
import logging
import pickle
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from virtual_time import virtual_time

from claude_transport import errors
from claude_transport.backoff import Backoff
from claude_transport.client.query import Query
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.envelope import DecodeFailure
from claude_transport.testing.conformance import CLAUSES, run_conformance
from claude_transport.testing.conformance.media import lockstep, memory, wrapped
from claude_transport.transport import AtOnce, Client, PermissionSetting, SessionTerms, Storage, TransportInfo
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.network import NetworkTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.failover import AllTransportsFailed, FailoverTransport
from claude_transport.wrappers.retrying import RetryingTransport

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}
REFUSED = errors.CLIConnectionError("nobody listens", code="connect.refused", retryable=True)
NOT_FOUND = errors.CLINotFoundError("there is no claude")


class Site(MockTransport):
    """A mock with a name, whose `connect()` raises `error`, or waits until it is closed."""

    def __init__(self, name: str, error: Exception | None = None, *, waits: bool = False, terms: SessionTerms | None = None) -> None:
        super().__init__([RESULT])
        self.name = name
        self.error = error
        self.waits = waits
        self.terms = terms
        self.calls: list[str] = []
        self.clients: list[Client] = []
        self.connecting = anyio.Event()
        self.closing = anyio.Event()
        self.close_error: Exception | None = None
        self.may_close: anyio.Event | None = None

    async def connect(self) -> None:
        self.calls.append("connect")
        self.connecting.set()
        await anyio.lowlevel.checkpoint()
        if self.waits:
            await self.closing.wait()
        if self.error is not None:
            raise self.error
        await super().connect()

    async def close(self) -> None:
        self.calls.append("close")
        self.closing.set()
        if self.may_close is not None:
            await self.may_close.wait()
            self.calls.append("closed")
        await super().close()
        if self.close_error is not None:
            raise self.close_error

    def attach(self, client: Client) -> SessionTerms:
        self.clients.append(client)
        return super().attach(client) if self.terms is None else self.terms

    @property
    def info(self) -> TransportInfo:
        return TransportInfo(kind="Site", address=self.name)


class Sites:
    """Factories that hand out these sites, one list for each factory, and note the session ids that they were given."""

    def __init__(self, *sites: Site | list[Site]) -> None:
        self.left = [[site] if isinstance(site, Site) else list(site) for site in sites]
        self.ids: list[tuple[int, str | None]] = []

    @property
    def factories(self) -> list[Any]:
        def factory(number: int) -> Any:
            def make(session_id: str | None) -> Site:
                self.ids.append((number, session_id))
                return self.left[number].pop(0)

            return make

        return [factory(number) for number in range(len(self.left))]


def failover(*sites: Site | list[Site], **options: Any) -> FailoverTransport:
    return FailoverTransport(Sites(*sites).factories, **options)


@pytest.mark.parametrize("medium", [memory, lockstep], ids=lambda medium: medium.__name__)
def test_behind_a_transport_that_fails_it_keeps_every_clause_that_the_next_one_keeps(medium: Any) -> None:
    def behind_one_that_fails(transport: Any) -> FailoverTransport:
        return FailoverTransport([lambda _session_id: Site("a", REFUSED), lambda _session_id: transport])

    # a transport that has failed is closed, so another attempt needs another one, which this factory has not
    needs_another = {"connect.failure-is-clean", "connect.cancel-is-clean"}
    # terms are those of the first one, so the clauses of wrappers are asked where it has one transport alone
    report = run_conformance(wrapped(medium(), behind_one_that_fails), clauses=CLAUSES)
    assert {failure.clause for failure in report.failed} <= needs_another
    assert len(report.passed) >= 28


# ----------------------------------------------------------------------------------------------------------------- connecting


async def test_the_next_one_is_connected_when_one_fails_and_info_says_which_answered() -> None:
    sites = [Site("a", REFUSED), Site("b", NOT_FOUND), Site("c"), Site("d")]
    handed = Sites(*sites)
    transport = FailoverTransport(handed.factories)
    assert handed.ids == [(0, None)]
    async with Query(transport) as query:
        assert (await (await query.send("Do it")).result()).result == "done"
        assert (transport.info.address, transport.transport) == ("c", sites[2])
    assert handed.ids == [(0, None), (1, None), (2, None)]
    assert [site.calls for site in sites] == [["connect", "close"], ["connect", "close"], ["connect", "close"], []]
    assert [len(site.written) for site in sites] == [0, 0, 2, 0], "the initialize and the prompt, once"
    assert [len(site.clients) for site in sites] == [1, 1, 1, 0]
    assert sites[0].clients == sites[2].clients


async def test_the_first_one_is_enough() -> None:
    first = Site("a")
    handed = Sites(first, Site("b"))
    async with FailoverTransport(handed.factories) as transport:
        await transport.connect()
        assert transport.is_ready()
    assert (first.calls, handed.ids) == (["connect", "connect", "close"], [(0, None)])


async def test_when_all_fail_one_error_names_the_failure_of_each() -> None:
    failures = [REFUSED, NOT_FOUND, ValueError("sk-ant-a-secret")]
    sites = [Site(name, error) for name, error in zip("abc", failures, strict=True)]
    transport = failover(*sites)
    with pytest.raises(AllTransportsFailed) as caught:
        await transport.connect()
    for error in (caught.value, copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert isinstance(error, AllTransportsFailed)
        assert (error.code, error.category, error.retryable) == ("connect.all_failed", "transport", True)
        assert error.codes == ("connect.refused", "exec.cli.binary_not_found", "transport.failed")
        assert [str(failure) for failure in error.failures] == [str(failure) for failure in failures]
        assert str(error).startswith(
            "none of 3 transports could be connected: connect.refused (nobody listens); "
            "exec.cli.binary_not_found (there is no claude); transport.failed (ValueError)"
        )
    assert caught.value.failures == tuple(failures)
    assert caught.value.__cause__ is failures[2]
    assert [site.calls for site in sites] == [["connect", "close"]] * 3
    assert not transport.is_ready()
    await transport.close()


def test_the_error_is_caught_as_a_failure_to_connect() -> None:
    assert issubclass(AllTransportsFailed, errors.CLIConnectionError)


async def test_an_error_that_was_handled_leaves_nothing_for_the_collector() -> None:
    class Failing(Site):
        async def connect(self) -> None:
            raise errors.CLIConnectionError("no")  # a new one: `self.error` would be in a circle with its own traceback

    def left() -> int:
        return sum(isinstance(each, errors.CLIConnectionError) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = left()
        with contextlib.suppress(AllTransportsFailed):
            await failover(Failing("a"), Failing("b")).connect()
        assert left() == before
    finally:
        gc.enable()


async def test_when_nothing_can_help_another_round_is_not_said_to_be_worth_it() -> None:
    with pytest.raises(AllTransportsFailed) as caught:
        await failover(Site("a", NOT_FOUND), Site("b", NOT_FOUND)).connect()
    assert caught.value.retryable is False


async def test_the_error_of_a_single_one_comes_as_it_is_and_it_may_be_connected_again() -> None:
    site = Site("a", REFUSED)
    transport = failover(site)
    with pytest.raises(errors.CLIConnectionError) as caught:
        await transport.connect()
    assert caught.value is REFUSED
    site.error = None
    async with transport:
        assert site.calls == ["connect", "connect"]


async def test_another_round_begins_with_the_first_one_and_makes_all_of_them_again() -> None:
    handed = Sites([Site("a", REFUSED), Site("a2")], [Site("b", NOT_FOUND)])
    retrying = RetryingTransport(FailoverTransport(handed.factories), backoff=Backoff(first=0))
    async with retrying:
        assert retrying.info.address == "a2"
    assert handed.ids == [(0, None), (1, None), (0, None)]


async def test_an_error_of_use_is_raised_at_once() -> None:
    mistake = errors.SessionInUse("another process has the session")
    handed = Sites(Site("a", mistake), Site("b"))
    transport = FailoverTransport(handed.factories)
    with pytest.raises(errors.SessionInUse) as caught:
        await transport.connect()
    assert (caught.value, handed.ids) == (mistake, [(0, None)])
    await transport.close()


async def test_a_function_that_fails_later_on_is_one_failure_among_the_others() -> None:
    def fail(_session_id: str | None) -> Site:
        raise NOT_FOUND

    async with FailoverTransport([lambda _: Site("a", REFUSED), fail, lambda _: None, lambda _: Site("d")]) as transport:  # type: ignore[arg-type, return-value]
        assert transport.info.address == "d"
    with pytest.raises(AllTransportsFailed) as caught:
        await FailoverTransport([lambda _: Site("a", REFUSED), fail, lambda _: None]).connect()  # type: ignore[arg-type, return-value]
    assert caught.value.codes == ("connect.refused", "exec.cli.binary_not_found", "config.invalid")
    with pytest.raises(errors.CLINotFoundError):
        FailoverTransport([fail])


async def test_each_failure_is_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    failing = Site("a", ValueError("sk-ant-a-secret"))
    failing.close_error = ValueError("sk-ant-a-secret")
    with caplog.at_level(logging.INFO, logger="claude_transport"):
        async with failover(failing, Site("b")):
            pass
    assert [record.getMessage() for record in caplog.records] == [
        "transport 1 of 2 could not be connected (transport.failed)",
        "closing a transport that could not be connected failed (transport.failed)",
    ]
    assert "sk-ant" not in caplog.text


@pytest.mark.parametrize(
    ("factories", "options", "option"),
    [
        ([], {}, "factories"),
        (None, {}, "factories"),
        (lambda _: Site("a"), {}, "factories"),
        ([Site("a")], {}, "factories"),
        ([lambda _: Site], {}, "a function in factories"),
        ([lambda _: Site("a")], {"attempt_timeout": 0}, "attempt_timeout"),
        ([lambda _: Site("a")], {"attempt_timeout": True}, "attempt_timeout"),
        ([lambda _: Site("a")], {"attempt_timeout": "5"}, "attempt_timeout"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_name(factories: Any, options: dict[str, Any], option: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        FailoverTransport(factories, **options)
    assert caught.value.option == option


def test_an_async_function_is_refused_before_it_is_called() -> None:
    async def make(_session_id: str | None) -> Site:
        raise AssertionError

    with pytest.raises(errors.ConfigurationError, match="not an async function"):
        FailoverTransport([lambda _: Site("a"), make])  # type: ignore[list-item]


# -------------------------------------------------------------------------------------------- time, cancellation and closing


@virtual_time
@pytest.mark.parametrize(("options", "seconds"), [({}, 15), ({"attempt_timeout": 2}, 2)])
async def test_one_that_does_not_answer_leaves_time_for_the_next(options: dict[str, Any], seconds: float) -> None:
    silent, answering = Site("a", waits=True), Site("b")
    before = anyio.current_time()
    async with failover(silent, answering, **options) as transport:
        assert transport.info.address == "b"
        assert round(anyio.current_time() - before, 6) == seconds
        assert silent.calls == ["connect", "close"]


@virtual_time
async def test_one_that_cannot_be_closed_holds_the_next_one_up_for_half_a_minute() -> None:
    stuck, answering = Site("a", REFUSED), Site("b")
    stuck.may_close = anyio.Event()
    before = anyio.current_time()
    async with failover(stuck, answering) as transport:
        assert transport.info.address == "b"
        assert round(anyio.current_time() - before, 6) == 30


@virtual_time
async def test_when_none_answers_the_error_says_how_long_each_was_waited_for() -> None:
    sites = [Site("a", waits=True), Site("b", waits=True)]
    with pytest.raises(AllTransportsFailed) as caught:
        await failover(*sites, attempt_timeout=3).connect()
    assert [(type(error), getattr(error, "waited", None)) for error in caught.value.failures] == [(errors.ConnectTimeout, 3)] * 2
    assert [site.calls for site in sites] == [["connect", "close"]] * 2


@virtual_time
async def test_a_single_one_that_does_not_answer_is_closed_and_made_again() -> None:
    silent = Site("a", waits=True)
    handed = Sites([silent, Site("a2")])
    transport = FailoverTransport(handed.factories)
    with pytest.raises(errors.ConnectTimeout, match="not connected within 15 s"):
        await transport.connect()
    assert silent.calls == ["connect", "close"]
    async with transport:
        assert transport.info.address == "a2"


@virtual_time
async def test_the_next_place_of_a_lost_session_has_the_same_time() -> None:
    silent = Site("b", waits=True)
    lost = failover([Site("a"), Site("a2")], silent, attempt_timeout=4)
    await lost.connect()
    before = anyio.current_time()
    async with await lost.reconnect() as going_on:
        assert (going_on.info.address, round(anyio.current_time() - before, 6)) == ("a2", 4)


@virtual_time
async def test_without_a_limit_the_wait_is_that_of_the_caller() -> None:
    silent = Site("a", waits=True)
    transport = failover(silent, Site("b"), attempt_timeout=None)
    with anyio.move_on_after(86400) as limit:
        await transport.connect()
    assert (limit.cancelled_caught, silent.calls) == (True, ["connect"])
    await transport.close()
    assert silent.calls == ["connect", "close"]


async def test_a_cancellation_ends_the_attempts_and_the_next_connect_begins_with_the_first() -> None:
    silent = Site("b", waits=True)
    handed = Sites([Site("a", REFUSED), Site("a2")], silent)
    transport = FailoverTransport(handed.factories)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.connect)
            await silent.connecting.wait()
            tasks.cancel_scope.cancel()
        assert not transport.is_ready()
        async with transport:
            assert transport.info.address == "a2"
            assert silent.calls == ["connect", "close"]


async def test_a_close_ends_the_attempts() -> None:
    refusing = Site("a", REFUSED)
    handed = Sites(refusing, Site("b"))
    transport = FailoverTransport(handed.factories)
    raised: list[Exception] = []

    async def connect() -> None:
        try:
            await transport.connect()
        except errors.ClaudeTransportError as error:
            raised.append(error)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            await refusing.connecting.wait()
            await transport.close()
    assert [(type(error), error.__cause__) for error in raised] == [(errors.TransportClosed, REFUSED)]
    with pytest.raises(errors.TransportClosed):
        await transport.connect()
    assert handed.ids == [(0, None)]


async def test_a_close_while_a_failed_one_is_closed_ends_the_attempts() -> None:
    refusing = Site("a", REFUSED)
    refusing.may_close = may_close = anyio.Event()
    handed = Sites(refusing, Site("b"))
    transport = FailoverTransport(handed.factories)
    raised: list[Exception] = []

    async def connect() -> None:
        try:
            await transport.connect()
        except errors.ClaudeTransportError as error:
            raised.append(error)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(transport.close)
            await anyio.wait_all_tasks_blocked()
            may_close.set()
    assert [type(error) for error in raised] == [errors.TransportClosed]
    assert handed.ids == [(0, None)]


async def test_after_a_close_no_other_one_is_made() -> None:
    handed = Sites(Site("a", REFUSED), Site("b", REFUSED))
    transport = FailoverTransport(handed.factories)
    with pytest.raises(AllTransportsFailed):
        await transport.connect()
    await transport.close()
    with pytest.raises(errors.TransportClosed):
        await transport.connect()
    assert handed.ids == [(0, None), (1, None)]


async def test_a_cancellation_waits_until_a_failed_one_is_closed() -> None:
    refusing = Site("a", REFUSED)
    refusing.may_close = may_close = anyio.Event()
    transport = failover(refusing, Site("b"))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.connect)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
                may_close.set()
    assert refusing.calls == ["connect", "close", "closed"]
    await transport.close()


async def test_several_that_connect_at_once_share_the_attempts() -> None:
    handed = Sites(Site("a", REFUSED), Site("b"))
    transport = FailoverTransport(handed.factories)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(transport.connect)
    assert handed.ids == [(0, None), (1, None)]
    await transport.close()


async def test_a_process_that_does_not_get_ready_is_gone_before_the_next_one_is_made(tmp_path: Path) -> None:
    class Unready(SubprocessTransport):
        async def connect(self) -> None:
            await super().connect()
            await anyio.sleep_forever()

    unready = Unready(ClaudeOptions(), command=[sys.executable, "-c", "input()"])
    seen: list[TransportInfo] = []

    def make(_session_id: str | None) -> Site:
        seen.append(unready.info)
        return Site("b")

    with anyio.fail_after(30):
        async with FailoverTransport([lambda _: unready, make], attempt_timeout=0.01):
            pass
    (info,) = seen
    assert info.pid is not None
    assert (info.exit_code, info.signal) != (None, None)


class SixMethods:
    """A transport as the official SDK knows it: it takes only text."""

    def __init__(self) -> None:
        self.written: list[object] = []
        self.ready = False

    async def connect(self) -> None:
        self.ready = True

    async def write(self, data: str) -> None:
        self.written.append(data)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        yield RESULT

    async def end_input(self) -> None: ...

    async def close(self) -> None:
        self.ready = False

    def is_ready(self) -> bool:
        return self.ready


async def test_the_next_one_may_be_of_another_kind() -> None:
    foreign = SixMethods()
    async with FailoverTransport([lambda _: Site("a", REFUSED), lambda _: foreign]) as transport:
        await transport.write(b'{"type":"user"}')
        assert [message async for message in transport.read_messages()] == [RESULT]
        assert transport.info == TransportInfo(kind="SixMethods")
    assert foreign.written == ['{"type":"user"}']


# ---------------------------------------------------------------------------------------------------- what the layer above sees


async def test_the_callbacks_of_the_terms_are_those_of_the_one_that_answered() -> None:
    told: list[Any] = []

    def terms(name: str) -> SessionTerms:
        async def find(*, said: str | None) -> str | None:
            return f"{name} {said}"

        async def wait_stored() -> None:
            told.append((name, "stored"))

        async def before_prompt(line: bytes) -> bytes:
            return line + name.encode()

        return SessionTerms(
            before_prompt=before_prompt,
            on_prompt=lambda uuid: told.append((name, uuid)),
            on_failure=lambda failure: told.append((name, failure)),
            hurry=lambda seconds: told.append((name, seconds)),
            find_cli_version=find,
            storage=Storage(lambda: name == "b", wait_stored),
            at_once=AtOnce(bool, bool, bool, bool),  # type: ignore[arg-type]
            session_id=name,
        )

    noise = DecodeFailure(kind="noise")
    transport = failover(Site("a", REFUSED, terms=terms("a")), Site("b", terms=terms("b")))
    got = transport.attach(Client())
    assert (got.at_once, got.session_id) == (None, "a")
    assert got.on_prompt is not None and got.on_failure is not None and got.hurry is not None  # noqa: PT018
    assert got.storage is not None and got.find_cli_version is not None  # noqa: PT018
    assert got.storage.is_storing() is False
    async with transport:
        got.on_prompt("u1")
        got.on_failure(noise)
        got.hurry(0.5)
        await got.storage.wait_stored()
        assert (got.storage.is_storing(), await got.find_cli_version(said="2.1")) == (True, "b 2.1")
        assert got.before_prompt is not None
        assert await got.before_prompt(b"line ") == b"line b"
    assert told == [("b", "u1"), ("b", noise), ("b", 0.5), ("b", "stored")]


async def test_transports_that_know_none_of_the_callbacks_are_not_asked() -> None:
    transport = failover(Site("a", terms=SessionTerms()), Site("b"))
    got = transport.attach(Client())
    assert got.on_prompt is not None and got.on_failure is not None and got.hurry is not None  # noqa: PT018
    got.on_prompt("u1")
    got.on_failure(DecodeFailure(kind="noise"))
    got.hurry(1)
    assert got.find_cli_version is not None
    assert (await got.find_cli_version(said="2.1"), got.storage, got.before_prompt) == ("2.1", None, None)


async def as_it_is(line: bytes) -> bytes:
    return line


@pytest.mark.parametrize(
    ("differing", "name"),
    [
        (SessionTerms(initialize={"systemPrompt": "x"}), "initialize"),
        (SessionTerms(verbatim_prompts=True), "verbatim_prompts"),
        (SessionTerms(permissions=[PermissionSetting("mode", "plan", "permission_mode")]), "permissions"),
        (SessionTerms(structured_output=True), "structured_output"),
        (SessionTerms(billing="subscription"), "billing"),
        (SessionTerms(agent="codex"), "agent"),
        (SessionTerms(thread={"model": "x"}), "thread"),
        (SessionTerms(strict=True), "strict"),
        (SessionTerms().with_before_prompt(as_it_is), "before_prompt"),
        (SessionTerms(storage=Storage(bool, anyio.lowlevel.checkpoint)), "storage"),
    ],
)
async def test_one_that_asks_for_something_else_has_failed(differing: SessionTerms, name: str) -> None:
    other = Site("b", terms=differing)
    transport = failover(Site("a", REFUSED, terms=SessionTerms(session_id="s")), other, Site("c", terms=SessionTerms()))
    transport.attach(Client())
    async with transport:
        assert transport.info.address == "c"
    assert other.calls == ["close"]
    transport = failover(Site("a", REFUSED, terms=SessionTerms()), Site("b", terms=differing))
    transport.attach(Client())
    with pytest.raises(AllTransportsFailed, match=f"the transports ask for different things: {name}"):
        await transport.connect()


# --------------------------------------------------------------------------------------------------------- a session that is lost


async def test_a_lost_session_goes_on_at_the_next_one_with_its_id_and_nothing_is_sent_twice() -> None:
    first, second = Site("a"), Site("b")
    handed = Sites(first, [Site("b0", REFUSED), second], Site("c", NOT_FOUND))
    lost = FailoverTransport(handed.factories)
    client = Client(answers=frozenset({"hooks"}), trace={"traceparent": "00-1-2-01"})
    lost.attach(client)
    await lost.connect()
    await lost.write('{"type":"user"}')
    with pytest.raises(AllTransportsFailed) as caught:
        handed.left[0].append(Site("a2", REFUSED))
        await lost.reconnect(session_id="s1")
    assert caught.value.codes == ("connect.refused", "exec.cli.binary_not_found", "connect.refused")
    assert not lost.is_ready()
    handed.left[2].append(Site("c", NOT_FOUND))
    async with await lost.reconnect(session_id="s1") as going_on:
        assert going_on.info.address == "b"
        assert second.clients == [client]
        assert (first.written, second.written) == ([{"type": "user"}], [])
    assert handed.ids == [(0, None), (1, "s1"), (2, "s1"), (0, "s1"), (1, "s1")]
    assert first.calls == ["connect", "close"]


@pytest.mark.parametrize(
    ("terms", "given", "asked", "expected"),
    [
        (SessionTerms(), None, None, None),
        (SessionTerms(session_id="named"), None, None, "named"),
        (SessionTerms(session_id="named"), "given", None, "named"),
        (SessionTerms(session_id="original", forks_session=True), None, None, None),
        (SessionTerms(), "given", None, "given"),
        (SessionTerms(session_id="named"), "given", "asked", "asked"),
    ],
)
async def test_the_id_of_the_session_is_the_best_that_is_known(
    terms: SessionTerms, given: str | None, asked: str | None, expected: str | None
) -> None:
    handed = Sites(Site("a", terms=terms), Site("b", terms=terms))
    lost = FailoverTransport(handed.factories, session_id=given)
    lost.attach(Client())
    await lost.connect()
    async with await lost.reconnect(session_id=asked):
        assert handed.ids == [(0, given), (1, expected)]


async def test_a_session_that_is_lost_twice_comes_back_to_the_first_one() -> None:
    handed = Sites([Site("a"), Site("a2")], Site("b"))
    first = FailoverTransport(handed.factories, attempt_timeout=7)
    await first.connect()
    second = await first.reconnect(session_id="s")
    async with await second.reconnect() as third:
        assert [each.info.address for each in (first, second, third)] == ["a", "b", "a2"]
        assert [each.is_ready() for each in (first, second, third)] == [False, False, True]
    assert handed.ids == [(0, None), (1, "s"), (0, "s")]


async def test_a_later_close_of_the_old_transport_leaves_the_new_one_open() -> None:
    first = failover(Site("a"), Site("b"))
    await first.connect()
    async with await first.reconnect() as second:
        await first.close()
        assert (first.is_ready(), second.is_ready()) == (False, True)


@pytest.mark.parametrize("ending", ["close", "cancel"])
async def test_the_end_of_a_reconnect_leaves_nothing_open(ending: str) -> None:
    silent = Site("b", waits=True)
    transport = failover(Site("a"), silent)
    await transport.connect()
    raised: list[type[Exception]] = []

    async def reconnect() -> None:
        try:
            await transport.reconnect()
        except errors.ClaudeTransportError as error:
            raised.append(type(error))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reconnect)
            await silent.connecting.wait()
            with pytest.raises(errors.Busy):
                await transport.reconnect()
            if ending == "close":
                await transport.close()
            else:
                tasks.cancel_scope.cancel()
    assert raised == ([errors.TransportClosed] if ending == "close" else [])
    assert (silent.calls, silent.is_ready()) == (["connect", "close"], False)


async def test_gateways_that_do_not_answer_give_way_to_a_process_of_our_own() -> None:
    command = [sys.executable, "-c", "print('{}', flush=True); input()"]
    transport = FailoverTransport(
        [
            lambda _: NetworkTransport("tcp://127.0.0.1:9"),
            lambda _: SubprocessTransport(ClaudeOptions(), command=command),
        ]
    )
    with anyio.fail_after(30):
        async with transport:
            assert (transport.info.kind, transport.info.address) == ("SubprocessTransport", None)
            lines: AsyncIterator[Any] = transport.read_lines()
            assert await anext(lines) == [b"{}"]
