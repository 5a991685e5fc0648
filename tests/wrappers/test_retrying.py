"""What certainly has not happened is tried again, what may have happened is uncertain, and everything else stays as it is."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import pickle
import warnings
import weakref
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
import trio
import trio.testing

from claude_transport import errors
from claude_transport.backoff import Backoff
from claude_transport.client.query import Query
from claude_transport.launch.options import ClaudeOptions
from claude_transport.streams.memory import MemoryConnectable
from claude_transport.testing.conformance import run_conformance
from claude_transport.testing.conformance.media import lockstep, memory, wrapped
from claude_transport.transport import Client, SessionTerms, Transport, TransportInfo
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.base import TransportWrapper
from claude_transport.wrappers.faults import FailConnect, FailWrite, Fault
from claude_transport.wrappers.faulty import FaultyTransport
from claude_transport.wrappers.retrying import RetryAttempt, RetryingTransport, WriteUncertain

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}
EXACT = Backoff(jitter=0)
LONG = Backoff(first=1e6, maximum=1e6, jitter=0)
"""Twelve days: a wait that only ends when it is ended."""


class Sleeper:
    """Waits without time passing, and remembers for how long."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        await anyio.lowlevel.checkpoint()


class Refusing(MockTransport):
    """A mock whose `connect()` raises these errors, one after the other, before it succeeds."""

    def __init__(self, *refusals: Exception) -> None:
        super().__init__([RESULT])
        self.refusals = list(refusals)
        self.connects = 0

    async def connect(self) -> None:
        self.connects += 1
        await anyio.lowlevel.checkpoint()
        if self.refusals:
            raise self.refusals.pop(0)
        await super().connect()


def retrying(transport: Any, **options: Any) -> tuple[RetryingTransport, Sleeper, list[RetryAttempt]]:
    """The wrapper, waiting without time passing; its sleeps; its attempts."""
    sleeper, attempts = Sleeper(), list[RetryAttempt]()
    settings: dict[str, Any] = {"backoff": EXACT, "sleep": sleeper, "on_attempt": attempts.append, **options}
    return RetryingTransport(transport, **settings), sleeper, attempts


def immediate(transport: Transport) -> RetryingTransport:
    return RetryingTransport(transport, backoff=Backoff(first=0))


@pytest.mark.parametrize("medium", [memory, lockstep], ids=lambda medium: medium.__name__)
def test_it_keeps_every_clause_that_what_it_wraps_keeps(medium: Any) -> None:
    report = run_conformance(wrapped(medium(), immediate))
    report.raise_for_failures()
    assert len(report.passed) >= 30


async def test_a_conversation_through_it_is_the_same() -> None:
    claude = Refusing(errors.CLIConnectionError())
    wrapper, *_ = retrying(claude)
    async with Query(wrapper) as query:
        assert (await (await query.send("Do it")).result()).result == "done"
    assert claude.connects == 2


# ----------------------------------------------------------------------------------------------------------------- connecting


class Watched(Refusing):
    """A mock that notes whether it was closed, and what the layer above was told."""

    def __init__(self, *refusals: Exception, terms: SessionTerms | None = None) -> None:
        super().__init__(*refusals)
        self.terms = terms or SessionTerms()
        self.was_closed = False
        self.clients: list[Client] = []

    def attach(self, client: Client) -> SessionTerms:
        self.clients.append(client)
        return self.terms

    async def close(self) -> None:
        self.was_closed = True
        await super().close()


async def test_each_attempt_to_connect_makes_a_new_transport_where_one_can_be_made() -> None:
    """What has failed is closed first, and the new one is told what the layer above has told the first."""
    said: list[str] = []
    first = Watched(errors.CLIConnectionError("no"), terms=SessionTerms(on_prompt=lambda uuid: said.append("first")))
    second = Watched(errors.SpawnError("still no"))
    third = Watched(terms=SessionTerms(on_prompt=lambda uuid: said.append("third")))
    made = [second, third]
    closed_then: list[list[bool]] = []

    async def make() -> Transport:
        closed_then.append([first.was_closed, second.was_closed])
        return made.pop(0)

    wrapper, sleeper, attempts = retrying(first, make_transport=make, attempts=4)
    async with Query(wrapper) as query:
        assert wrapper.transport is third
        assert (await (await query.send("Do it")).result()).result == "done"
    assert closed_then == [[True, False], [True, True]]
    assert [each.connects for each in (first, second, third)] == [1, 1, 1]
    assert first.clients == second.clients == third.clients
    assert said == ["third"]
    assert sleeper.slept == [1, 2]
    assert [(each.action, each.number, each.attempts) for each in attempts] == [("connect", number, 4) for number in (1, 2, 3)]
    assert wrapper.info.connect_retries == 2


async def test_a_new_transport_that_asks_for_something_else_ends_the_attempts_and_is_closed() -> None:
    other = Watched(terms=SessionTerms(strict=True))
    wrapper, sleeper, _ = retrying(Watched(errors.CLIConnectionError("no")), make_transport=lambda: other, attempts=4)
    with pytest.raises(errors.ConfigurationError, match="ask for different things: strict") as caught:
        async with Query(wrapper):
            pass
    assert caught.value.option == "make_transport"
    assert sleeper.slept == [1]
    assert other.connects == 0
    assert other.was_closed


async def test_a_close_while_a_transport_is_made_closes_what_is_made() -> None:
    is_made, made = anyio.Event(), Watched()

    async def make() -> Transport:
        await is_made.wait()
        return made

    wrapper, *_ = retrying(Watched(errors.CLIConnectionError("no")), make_transport=make)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:

            async def connect() -> None:
                with pytest.raises(errors.TransportClosed, match="closed while it was connecting"):
                    await wrapper.connect()

            tasks.start_soon(connect)
            await anyio.wait_all_tasks_blocked()
            await wrapper.close()
            is_made.set()
    assert made.was_closed
    assert made.connects == 0


async def test_a_transport_that_was_connected_is_replaced_by_no_later_connect() -> None:
    """Its reader keeps it. `reconnect()` is there for that."""

    class Dying(Watched):
        is_dead = False

        def is_ready(self) -> bool:
            return super().is_ready() and not self.is_dead

    second = Dying()
    made = [second]
    wrapper, *_ = retrying(Watched(errors.CLIConnectionError("no")), make_transport=made.pop)
    async with wrapper:
        assert wrapper.transport is second
        second.is_dead = True
        await wrapper.connect()
        assert wrapper.transport is second
        assert not second.was_closed


async def test_a_transport_that_was_closed_makes_no_other_one() -> None:
    made: list[Watched] = []

    def make() -> Transport:
        made.append(Watched())
        return made[-1]

    wrapper, *_ = retrying(Watched(errors.CLIConnectionError("no")), make_transport=make, attempts=1)
    with pytest.raises(errors.CLIConnectionError, match="no"):
        await wrapper.connect()
    await wrapper.close()
    with pytest.raises(errors.TransportClosed):
        await wrapper.connect()
    assert made == []


async def test_what_make_transport_raises_is_the_error_of_its_attempt() -> None:
    def make() -> Transport:
        raise errors.SpawnError("there is no room")

    wrapper, sleeper, _ = retrying(Watched(errors.CLIConnectionError("no")), make_transport=make)
    with pytest.raises(errors.SpawnError, match="there is no room"):
        await wrapper.connect()
    assert sleeper.slept == [1, 2]
    await wrapper.close()


async def test_connecting_is_tried_again_after_the_delays_of_the_backoff_until_it_succeeds() -> None:
    refusals = [errors.CLIConnectionError("no"), errors.SpawnError("still no")]
    wrapper, sleeper, attempts = retrying(Refusing(*refusals))
    async with wrapper:
        assert wrapper.is_ready()
    assert sleeper.slept == [1, 2]
    assert attempts == [
        RetryAttempt(action="connect", number=1, attempts=3, error=refusals[0], delay=1),
        RetryAttempt(action="connect", number=2, attempts=3, error=refusals[1], delay=2),
        RetryAttempt(action="connect", number=3, attempts=3),
    ]


async def test_nothing_is_kept_of_a_write_that_has_succeeded() -> None:
    def kept() -> int:
        gc.collect()
        return sum(type(each).__module__ == RetryingTransport.__module__ for each in gc.get_objects())

    wrapper, *_ = retrying(MockTransport([RESULT]))
    async with wrapper:
        await wrapper.write('{"type":"user"}')
        before = kept()
        for _ in range(20):
            await wrapper.write('{"type":"user"}')
        assert kept() == before


async def test_after_the_last_attempt_its_error_comes_as_it_is_with_a_note_about_the_others() -> None:
    refusals = [errors.CLIConnectionError("1"), errors.ConnectTimeout("2"), errors.SpawnError("3", path="/x"), errors.SpawnError("4")]
    claude = Refusing(*refusals)
    wrapper, sleeper, attempts = retrying(claude)
    with pytest.raises(errors.SpawnError) as caught:
        await wrapper.connect()
    assert caught.value is refusals[2]
    assert caught.value.__notes__ == ["attempt 3 of 3 to connect; before it: CLIConnectionError, ConnectTimeout"]
    assert (claude.connects, sleeper.slept, attempts[-1].delay) == (3, [1, 2], None)
    assert not wrapper.is_ready()
    await wrapper.connect()  # a failure is clean: it may be asked again, and has all its attempts again
    assert wrapper.is_ready()
    await wrapper.close()


@pytest.mark.parametrize(
    "refusal",
    [
        errors.CLINotFoundError("none"),
        errors.ConfigurationError("nonsense"),
        errors.WorkingDirectoryError("none"),
        errors.AuthenticationError("no"),
        errors.TransportClosed("closed"),
        errors.UsageError("nonsense", retryable=True),
        errors.ConnectionLost("gone"),
        ValueError("a mistake"),
        OSError("somebody else's"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_trying_again_cannot_help_is_raised_at_once(refusal: Exception) -> None:
    claude = Refusing(refusal)
    wrapper, sleeper, attempts = retrying(claude)
    with pytest.raises(type(refusal)) as caught:
        await wrapper.connect()
    assert caught.value is refusal
    assert not hasattr(refusal, "__notes__")
    assert (claude.connects, sleeper.slept) == (1, [])
    assert attempts == [RetryAttempt(action="connect", number=1, attempts=3, error=refusal)]


@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_the_number_of_attempts_is_the_number_of_attempts(attempts: int) -> None:
    claude = Refusing(*[errors.CLIConnectionError() for _ in range(10)])
    wrapper, sleeper, _ = retrying(claude, attempts=attempts)
    with pytest.raises(errors.CLIConnectionError):
        await wrapper.connect()
    assert (claude.connects, len(sleeper.slept)) == (attempts, attempts - 1)


@pytest.mark.parametrize(
    ("on", "refusal", "tried_again"),
    [
        (errors.SpawnError, errors.SpawnError(), True),
        (errors.SpawnError, errors.ConnectTimeout(), False),
        ((errors.SpawnError, errors.ConnectTimeout), errors.ConnectTimeout(), True),
        (errors.CLIConnectionError, errors.AuthenticationError(), False),  # it says that it is no use
        (OSError, ConnectionRefusedError(), True),
        ((), errors.CLIConnectionError(), False),
        (lambda _error: True, errors.CLINotFoundError(), True),
        (lambda _error: True, ValueError(), True),
        (lambda error: "later" in str(error), errors.CLINotFoundError("come later"), True),
        (lambda _error: False, errors.CLIConnectionError(), False),
        (lambda _error: True, errors.TransportClosed(), False),
    ],
)
async def test_which_errors_are_worth_another_attempt_can_be_said_by_type_or_by_function(
    on: Any, refusal: Exception, tried_again: bool
) -> None:
    wrapper, sleeper, _ = retrying(Refusing(refusal), on=on)
    if tried_again:
        await wrapper.connect()
    else:
        with pytest.raises(type(refusal)):
            await wrapper.connect()
    assert len(sleeper.slept) == tried_again
    await wrapper.close()


async def test_a_function_that_cannot_decide_hides_no_error(caplog: pytest.LogCaptureFixture) -> None:
    refusal = errors.CLIConnectionError("the one that matters")
    wrapper, sleeper, _ = retrying(Refusing(refusal), on=lambda error: error.no_such_attribute)
    with pytest.raises(errors.CLIConnectionError) as caught:
        await wrapper.connect()
    assert (caught.value, sleeper.slept) == (refusal, [])
    assert "on failed" in caplog.text


async def test_somebody_who_watches_the_attempts_and_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_attempt: RetryAttempt) -> None:
        raise ValueError("broken watcher")

    claude = Refusing(errors.CLIConnectionError())
    wrapper, *_ = retrying(claude, on_attempt=fail)
    async with wrapper:
        assert claude.connects == 2
    assert "broken watcher" in caplog.text


async def test_each_retry_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    wrapper, *_ = retrying(Refusing(errors.SpawnError()), on_attempt=None)
    with caplog.at_level(logging.INFO, logger="claude_transport"):
        async with wrapper:
            pass
    assert [record.getMessage() for record in caplog.records] == ["connect failed (SpawnError), attempt 1 of 3; trying again in 1.00 s"]


@pytest.mark.parametrize(
    ("nonsense", "option"),
    [
        ({"attempts": 0}, "attempts"),
        ({"attempts": True}, "attempts"),
        ({"attempts": 2.5}, "attempts"),
        ({"backoff": 1.0}, "backoff"),
        ({"on": "CLIConnectionError"}, "on"),
        ({"on": (OSError, 7)}, "on"),
        ({"on": int}, "on"),
        ({"on": KeyboardInterrupt}, "on"),
        ({"on_attempt": 7}, "on_attempt"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(nonsense: dict[str, Any], option: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        RetryingTransport(MockTransport(), **nonsense)
    assert caught.value.option == option


@pytest.mark.parametrize("option", ["on", "on_attempt"])
def test_an_async_function_that_nobody_would_await_is_refused(option: str) -> None:
    async def decide(_: object) -> bool:
        return True

    given: dict[str, Any] = {option: decide}
    with pytest.raises(errors.ConfigurationError) as caught:
        RetryingTransport(MockTransport(), **given)
    assert caught.value.option == option


async def test_a_cancellation_during_the_delay_is_taken_at_once_and_leaves_nothing_open() -> None:
    claude = Refusing(errors.CLIConnectionError())
    scope = anyio.CancelScope()
    wrapper = RetryingTransport(claude, backoff=LONG, on_attempt=lambda _attempt: scope.cancel())
    with scope:
        await wrapper.connect()
    assert scope.cancelled_caught
    assert (claude.connects, wrapper.is_ready()) == (1, False)
    await wrapper.connect()
    assert wrapper.is_ready()
    await wrapper.close()


def test_so_is_a_cancellation_by_asyncio_itself() -> None:
    async def main() -> None:
        told = asyncio.Event()
        wrapper = RetryingTransport(Refusing(errors.CLIConnectionError()), backoff=LONG, on_attempt=lambda _attempt: told.set())
        task = asyncio.create_task(wrapper.connect())
        await told.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wrapper.close()

    asyncio.run(main())


async def test_a_close_during_the_delay_wins_at_once() -> None:
    refusal = errors.CLIConnectionError()
    claude = Refusing(refusal)
    waiting = anyio.Event()
    wrapper = RetryingTransport(claude, backoff=LONG, on_attempt=lambda _attempt: waiting.set())
    raised: list[BaseException] = []

    async def connect() -> None:
        try:
            await wrapper.connect()
        except errors.TransportClosed as error:
            raised.append(error)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            await waiting.wait()
            await anyio.lowlevel.checkpoint()
            await wrapper.close()
    assert [error.__cause__ for error in raised] == [refusal]
    assert (claude.connects, claude.is_ready()) == (1, False)


async def test_a_close_before_the_delay_leaves_no_wait_either() -> None:
    claude = Refusing(errors.CLIConnectionError())
    wrapper, sleeper, _ = retrying(claude)
    await wrapper.close()
    with pytest.raises(errors.CLIConnectionError):
        await wrapper.connect()
    assert sleeper.slept == []


async def test_several_who_connect_at_once_share_the_attempts() -> None:
    claude = Refusing(errors.CLIConnectionError(), errors.CLIConnectionError())
    wrapper, sleeper, _ = retrying(claude)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(wrapper.connect)
    assert wrapper.is_ready()
    assert sleeper.slept == [1, 2]  # and not two who wait for one second each
    await wrapper.close()


async def test_connecting_what_is_connected_is_no_attempt() -> None:
    wrapper, _, attempts = retrying(MockTransport())
    async with wrapper:
        await wrapper.connect()
    assert len(attempts) == 1


def test_the_default_delays_are_about_one_and_two_seconds() -> None:
    times: list[float] = []

    async def main() -> None:
        wrapper = RetryingTransport(
            Refusing(errors.CLIConnectionError(), errors.CLIConnectionError()), on_attempt=lambda _: times.append(trio.current_time())
        )
        async with wrapper:
            pass

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    first, second, third = times
    assert 0.75 <= second - first <= 1.25
    assert 1.5 <= third - second <= 2.5


async def test_reconnecting_is_tried_again_too() -> None:
    class Opener(MemoryConnectable):
        refuse = 0

        async def connect(self) -> Any:
            if self.refuse:
                self.refuse -= 1
                raise ConnectionRefusedError("not now")
            return await super().connect()

    opener = Opener()
    wrapper, sleeper, attempts = reconnecting(opener)
    await wrapper.connect()
    opener.refuse = 2
    with anyio.fail_after(30):
        another = await wrapper.reconnect()
    assert another.is_ready()
    assert not wrapper.is_ready()
    assert sleeper.slept == [1, 2]
    assert [(attempt.action, attempt.number) for attempt in attempts if attempt.action == "reconnect"] == [
        ("reconnect", n) for n in (1, 2, 3)
    ]
    await another.close()


def reconnecting(opener: Any, **options: Any) -> tuple[RetryingTransport, Sleeper, list[RetryAttempt]]:
    """A `retrying()` whose transports are streams of `opener`."""
    return retrying(StreamTransport(opener), make_transport=lambda: StreamTransport(opener), **options)


class Breaking(MemoryConnectable):
    """An opener that fails from the second time on."""

    opened = 0

    async def connect(self) -> Any:
        self.opened += 1
        if self.opened > 1:
            raise ConnectionRefusedError("not now")
        return await super().connect()


@pytest.mark.parametrize("wrap", [lambda inside: inside, TransportWrapper, lambda inside: TransportWrapper(TransportWrapper(inside))])
async def test_a_close_of_the_old_transport_ends_the_waiting_of_its_reconnecting_at_once(wrap: Any) -> None:
    opener = Breaking()
    waiting = anyio.Event()

    def told(attempt: RetryAttempt) -> None:
        if attempt.delay is not None:
            waiting.set()

    def make() -> Transport:
        return StreamTransport(opener)

    retrier = RetryingTransport(make(), make_transport=make, backoff=LONG, on_attempt=told)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.ClaudeTransportWarning)  # that the wrapper is not around the next transport
        wrapper = wrap(retrier)
    await wrapper.connect()
    raised: list[Exception] = []

    async def reconnect() -> None:
        try:
            await retrier.reconnect()
        except errors.TransportClosed as error:
            raised.append(error)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reconnect)
            await waiting.wait()
            await anyio.wait_all_tasks_blocked()
            await wrapper.close()
    assert [isinstance(error.__cause__, errors.CLIConnectionError) for error in raised] == [True]
    assert opener.opened == 2


async def test_a_close_in_the_middle_of_an_attempt_to_reconnect_makes_it_the_last() -> None:
    class Slow(Breaking):
        async def connect(self) -> Any:
            if self.opened:
                trying.set()
                await anyio.sleep_forever()
            return await super().connect()

    trying = anyio.Event()
    opener = Slow()
    wrapper, sleeper, _ = reconnecting(opener)
    await wrapper.connect()

    async def reconnect() -> None:
        with pytest.raises(errors.TransportClosed):
            await wrapper.reconnect()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reconnect)
            await trying.wait()
            await wrapper.close()
    assert (sleeper.slept, opener.opened) == ([], 1)


async def test_what_was_closed_before_or_is_reconnected_twice_at_once_is_still_tried_again() -> None:
    opener = Breaking()
    wrapper, sleeper, _ = reconnecting(opener)
    await wrapper.connect()
    await wrapper.close()

    async def reconnect() -> None:
        with pytest.raises(errors.CLIConnectionError):
            await wrapper.reconnect()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reconnect)
            tasks.start_soon(reconnect)
    assert (sorted(sleeper.slept), opener.opened) == ([1, 1, 2, 2], 7)


async def test_every_reconnect_is_attached_as_the_first_transport_was_and_the_next_one_can_reconnect_too() -> None:
    made: list[MockTransport] = []

    async def make() -> MockTransport:
        await anyio.lowlevel.checkpoint()
        made.append(MockTransport())
        return made[-1]

    first = RetryingTransport(MockTransport(), make_transport=make)
    client = Client(answers=frozenset({"hooks"}), trace={"traceparent": "00-1-2-01"})
    first.attach(client)
    await first.connect()
    second = await first.reconnect()
    third = await second.reconnect()
    assert [claude.client for claude in made] == [client, client]
    assert (first.is_ready(), second.is_ready(), third.is_ready()) == (False, False, True)
    await third.close()


async def test_a_close_while_the_next_transport_is_made_ends_the_reconnect() -> None:
    making, go_on, claude = anyio.Event(), anyio.Event(), MockTransport()

    async def make() -> MockTransport:
        making.set()
        await go_on.wait()
        return claude

    wrapper = RetryingTransport(MockTransport(), make_transport=make)
    await wrapper.connect()

    async def reconnect() -> None:
        with pytest.raises(errors.TransportClosed):
            await wrapper.reconnect()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reconnect)
            await making.wait()
            await wrapper.close()
            go_on.set()
    assert not claude.is_ready()


async def test_a_reconnect_that_fails_leaves_nothing_open() -> None:
    made = [Watched(errors.CLIConnectionError("no")) for _ in range(3)]
    waiting = iter(made)
    wrapper, *_ = retrying(Watched(), make_transport=lambda: next(waiting))
    await wrapper.connect()
    with pytest.raises(errors.CLIConnectionError, match="no"):
        await wrapper.reconnect()
    assert [(each.connects, each.was_closed) for each in made] == [(1, True)] * 3


async def test_what_is_written_to_the_old_transport_after_a_reconnect_was_certainly_not_sent() -> None:
    wrapper, *_ = retrying(Watched(), make_transport=Watched)
    await wrapper.connect()
    async with await wrapper.reconnect():
        with pytest.raises(errors.TransportClosed) as caught:
            await wrapper.write(b'{"type":"user"}\n')
    assert not isinstance(caught.value, errors.OutcomeUncertain)


@pytest.mark.parametrize("made", [None, "ssh://host", MockTransport])
async def test_what_is_made_for_a_reconnect_must_be_a_transport(made: Any) -> None:
    wrapper, sleeper, _ = retrying(MockTransport(), make_transport=lambda: made)
    with pytest.raises(errors.UsageError, match="make_transport returned"):
        await wrapper.reconnect()
    assert sleeper.slept == []
    with pytest.raises(errors.ConfigurationError, match="make_transport") as caught:
        RetryingTransport(MockTransport(), make_transport=7)  # type: ignore[arg-type]
    assert caught.value.option == "make_transport"


# --------------------------------------------------------------------------------------------------------------------- writing


def line(number: int) -> bytes:
    return b'{"type":"user","n":%d}' % number


def numbers(claude: MockTransport) -> list[int]:
    return [message["n"] for message in claude.written]


async def test_a_write_of_which_provably_nothing_went_out_is_made_again_and_arrives_once() -> None:
    claude = MockTransport()
    wrapper, sleeper, attempts = retrying(FaultyTransport(claude, [FailWrite(write=2, lasting=False), FailWrite(write=3, lasting=False)]))
    async with wrapper:
        for number in range(1, 4):
            await wrapper.write(line(number))
    assert numbers(claude) == [1, 2, 3]
    assert wrapper.info.connect_retries == 0
    assert sleeper.slept == [1, 2]
    assert [(each.action, each.number, type(each.error)) for each in attempts[1:]] == [
        ("write", 1, errors.TransportClosed),
        ("write", 2, errors.TransportClosed),
        ("write", 3, type(None)),
    ]


async def test_when_it_never_goes_well_the_last_error_comes_as_it_is() -> None:
    claude = MockTransport()
    wrapper, sleeper, _ = retrying(FaultyTransport(claude, [FailWrite(write=number, lasting=False) for number in (2, 3, 4)]))
    async with wrapper:
        await wrapper.write(line(1))
        with pytest.raises(errors.TransportClosed, match="write 4 fails") as caught:
            await wrapper.write(line(2))
        await wrapper.write(line(3))
    assert not isinstance(caught.value, errors.OutcomeUncertain)
    assert numbers(claude) == [1, 3]
    assert len(sleeper.slept) == 2


async def test_lines_and_the_end_of_the_input_do_not_overtake_one_that_waits_for_its_next_attempt() -> None:
    claude = MockTransport()
    release, waiting = anyio.Event(), anyio.Event()

    async def sleep(_seconds: float) -> None:
        waiting.set()
        await release.wait()

    wrapper = RetryingTransport(FaultyTransport(claude, [FailWrite(write=2, lasting=False)]), sleep=sleep)
    with anyio.fail_after(30):
        async with wrapper, anyio.create_task_group() as tasks:
            await wrapper.write(line(1))
            tasks.start_soon(wrapper.write, line(2))
            await waiting.wait()
            tasks.start_soon(wrapper.write, line(3))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(wrapper.end_input)
            await anyio.wait_all_tasks_blocked()
            assert numbers(claude) == [1]
            release.set()
    assert numbers(claude) == [1, 2, 3]


@pytest.mark.parametrize(
    ("faults", "before", "arrived"),
    [
        ([FailWrite(write=2, after=True, lasting=False)], 1, [1, 2]),  # it counted: all of it went out
        ([FailWrite(write=2, after=True)], 1, [1, 2]),
        ([FailWrite(write=2)], 1, [1]),  # nothing went out, but how should anybody know
        ([FailWrite(write=1, lasting=False)], 0, []),  # a count that has never moved proves nothing
    ],
)
async def test_a_write_that_may_have_arrived_is_uncertain_and_never_made_again(
    faults: list[Fault], before: int, arrived: list[int]
) -> None:
    claude = MockTransport()
    wrapper, sleeper, _ = retrying(FaultyTransport(claude, faults))
    async with wrapper:
        for number in range(1, before + 1):
            await wrapper.write(line(number))
        with pytest.raises(errors.OutcomeUncertain) as caught:
            await wrapper.write(line(2))
    assert numbers(claude) == arrived
    assert sleeper.slept == []
    assert isinstance(caught.value, errors.TransportClosed)
    assert isinstance(caught.value.__cause__, errors.TransportClosed)
    assert (caught.value.code, caught.value.category, caught.value.retryable) == ("outcome.uncertain", "transport", False)


async def test_a_transport_that_does_not_count_proves_nothing() -> None:
    class Silent(MockTransport):
        @property
        def info(self) -> TransportInfo:
            return msgspec.structs.replace(super().info, bytes_written=0)

    claude = Silent()
    wrapper, *_ = retrying(FaultyTransport(claude, [FailWrite(write=2, lasting=False)]))
    async with wrapper:
        await wrapper.write(line(1))
        with pytest.raises(errors.OutcomeUncertain):
            await wrapper.write(line(2))
    assert numbers(claude) == [1]


@pytest.mark.parametrize(
    ("error", "written_before", "written_again"),
    [(RuntimeError("odd"), 0, False), (RuntimeError("odd"), 1, False), (OSError("pipe"), 0, False), (OSError("pipe"), 1, True)],
)
async def test_of_somebody_elses_errors_only_those_of_a_connection_are_tried_again(
    error: Exception, written_before: int, written_again: bool
) -> None:
    class Foreign(MockTransport):
        failures = 0

        async def write(self, data: str | bytes) -> None:
            if len(self.written) == written_before and not self.failures:
                self.failures = 1
                raise error
            await super().write(data)

    claude = Foreign()
    wrapper, *_ = retrying(claude)
    async with wrapper:
        for number in range(written_before):
            await wrapper.write(line(number))
        if written_again:
            await wrapper.write(line(9))
        else:
            with pytest.raises(errors.OutcomeUncertain) as caught:
                await wrapper.write(line(9))
            assert caught.value.__cause__ is error
            assert not isinstance(caught.value, errors.TransportClosed)  # it is not known to be
    assert numbers(claude) == [*range(written_before), *([9] if written_again else [])]


@pytest.mark.parametrize(
    "error", [None, RuntimeError("odd"), OSError("pipe"), errors.ConnectionLost("gone")], ids=lambda error: type(error).__name__
)
async def test_the_session_to_look_at_is_named_when_the_options_name_it(error: Exception | None) -> None:
    """In an `OutcomeUncertain` of every kind: one that is a `TransportClosed`, too (None here), and one that is not."""

    class WithTerms(MockTransport):
        def __init__(self, terms: SessionTerms) -> None:
            super().__init__()
            self.terms = terms

        def attach(self, client: Client) -> SessionTerms:
            return self.terms

    session = "12345678-1234-4234-8234-123456789abc"
    for options, named in [
        (ClaudeOptions(session_id=session), session),
        (ClaudeOptions(resume=session), session),
        (ClaudeOptions(resume=session, fork_session=True), None),
        (ClaudeOptions(resume="its title"), None),
        (ClaudeOptions(), None),
    ]:
        terms = msgspec.structs.replace(SubprocessTransport(options).attach(Client()), at_once=None)  # which wrappers withhold
        wrapper, *_ = retrying(TransportWrapper(failing_write(WithTerms(terms), error)))
        assert wrapper.attach(Client()) == terms

        def make(terms: SessionTerms = terms) -> Transport:
            return failing_write(WithTerms(terms), error)

        first, *_ = retrying(make(), make_transport=make)
        # the callbacks are those of the transport that is in use, whichever that will be
        called = ("on_prompt", "on_failure", "find_cli_version", "hurry")
        told = msgspec.structs.replace(first.attach(Client()), **{name: getattr(terms, name) for name in called})
        assert told == terms
        for each in (wrapper, await first.reconnect()):
            async with each:
                with pytest.raises(errors.OutcomeUncertain) as caught:
                    await each.write(line(1))
            assert (caught.value.code, caught.value.session_id) == ("outcome.uncertain", named)
            assert isinstance(caught.value, errors.TransportClosed) is (error is None)


def failing_write(transport: Transport, error: Exception | None) -> Transport:
    """`transport`, whose first write raises `error`, or for None a `TransportClosed`."""
    if error is None:
        return FaultyTransport(transport, [FailWrite(write=1)])

    class Failing(TransportWrapper):
        async def write(self, data: str | bytes) -> None:
            raise error

    return Failing(transport)


async def test_errors_of_use_pass_as_they_are() -> None:
    wrapper, sleeper, _ = retrying(MockTransport())
    with pytest.raises(errors.NotConnected):
        await wrapper.write(line(1))
    async with wrapper:
        with pytest.raises(errors.UsageError, match="not a JSON object"):
            await wrapper.write(b"nonsense")
        await wrapper.end_input()
        with pytest.raises(errors.InputClosed):
            await wrapper.write(line(1))
    with pytest.raises(errors.TransportClosed) as caught:
        await wrapper.write(line(1))
    assert not isinstance(caught.value, errors.OutcomeUncertain)
    assert sleeper.slept == []


async def connected(capacity: int = 65536) -> tuple[RetryingTransport, Any, Sleeper]:
    """The wrapper around a real transport in memory, and the peer's end of it."""
    opener = MemoryConnectable(capacity=capacity)
    wrapper, sleeper, _ = retrying(StreamTransport(opener))
    await wrapper.connect()
    return wrapper, await opener.accept(), sleeper


async def test_a_connection_that_breaks_in_a_write_makes_that_write_uncertain_and_refuses_the_next() -> None:
    wrapper, peer, sleeper = await connected(capacity=4)

    async def leave() -> None:
        await anyio.wait_all_tasks_blocked()
        peer.break_connection()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)
            with pytest.raises(WriteUncertain, match="the peer is gone"):
                await wrapper.write(line(1))
        with pytest.raises(errors.TransportClosed) as refused:
            await wrapper.write(line(2))
        await wrapper.close()
    assert not isinstance(refused.value, errors.OutcomeUncertain)
    assert "nothing of it was sent" in refused.value.__notes__[0]
    assert sleeper.slept == []


async def test_a_write_cut_short_by_a_cancellation_poisons_as_ever_and_the_next_one_is_refused() -> None:
    wrapper, peer, sleeper = await connected(capacity=4)

    scope = anyio.CancelScope()

    async def cancel() -> None:
        await anyio.wait_all_tasks_blocked()
        scope.cancel()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            with scope:
                tasks.start_soon(cancel)
                await wrapper.write(line(1))
        assert scope.cancelled_caught
        with pytest.raises(errors.TransportClosed) as refused:
            await wrapper.write(line(2))
        await wrapper.close()
    assert not isinstance(refused.value, errors.OutcomeUncertain)
    assert sleeper.slept == []
    await peer.aclose()


async def test_a_close_wakes_a_writer_whose_line_may_have_gone_out_and_one_that_waits_for_its_next_attempt() -> None:
    wrapper, peer, _ = await connected(capacity=4)
    waiting = anyio.Event()
    mock = MockTransport()
    again = RetryingTransport(
        FaultyTransport(mock, [FailWrite(write=2, lasting=False)]),
        backoff=LONG,
        on_attempt=lambda attempt: waiting.set() if attempt.error else None,
    )
    raised: dict[str, Exception] = {}

    async def write(name: str, transport: Transport, number: int) -> None:
        try:
            await transport.write(line(number))
        except errors.TransportClosed as error:
            raised[name] = error

    with anyio.fail_after(30):
        await again.connect()
        await again.write(line(1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, "in the middle", wrapper, 1)
            tasks.start_soon(write, "between attempts", again, 2)
            await waiting.wait()
            await anyio.wait_all_tasks_blocked()
            await wrapper.close()
            await again.close()
    assert type(raised["in the middle"]) is WriteUncertain
    assert type(raised["between attempts"]) is errors.TransportClosed
    assert numbers(mock) == [1]
    await peer.aclose()


async def test_a_process_that_was_gone_before_the_write_cannot_have_got_it() -> None:
    wrapper, sleeper, _ = retrying(SubprocessTransport(command=["sh", "-c", "exit 3"]))
    with anyio.fail_after(30):
        async with wrapper:
            with pytest.raises(errors.ProcessError):
                await anext(wrapper.read_lines())
            with pytest.raises(errors.TransportClosed) as caught:
                await wrapper.write(line(1))
    assert not isinstance(caught.value, errors.OutcomeUncertain)
    assert caught.value.exit_code == 3
    assert sleeper.slept == []


@pytest.mark.parametrize("ended", [{"exit_code": 3}, {"signal": 9}], ids=str)
async def test_what_fails_after_the_end_of_the_process_was_not_sent(ended: dict[str, int]) -> None:
    class Gone(MockTransport):
        @property
        def info(self) -> TransportInfo:
            return msgspec.structs.replace(super().info, **ended)

        async def write(self, data: str | bytes) -> None:
            raise errors.CLIConnectionError("no pipe")

    wrapper, sleeper, _ = retrying(Gone())
    async with wrapper:
        with pytest.raises(errors.CLIConnectionError, match="no pipe") as caught:
            await wrapper.write(line(1))
    assert not isinstance(caught.value, errors.OutcomeUncertain)
    assert "nothing of it was sent" in caught.value.__notes__[0]
    assert sleeper.slept == []


async def test_a_reconnect_ends_a_write_that_waits_for_its_next_attempt() -> None:
    waiting = anyio.Event()

    async def sleep(_seconds: float) -> None:
        waiting.set()
        await anyio.sleep_forever()

    first, second = MockTransport(), MockTransport()
    failing = FaultyTransport(first, [FailWrite(write=2, lasting=False)])
    wrapper, *_ = retrying(failing, sleep=sleep, make_transport=lambda: second)
    with anyio.fail_after(30):
        await wrapper.connect()
        await wrapper.write(line(1))

        async def write() -> None:
            with pytest.raises(errors.TransportClosed) as caught:
                await wrapper.write(line(2))
            assert type(caught.value) is errors.TransportClosed

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await waiting.wait()
            await (await wrapper.reconnect()).close()
    assert (numbers(first), numbers(second)) == ([1], [])


async def test_the_error_of_a_write_is_not_kept_when_the_write_is_over() -> None:
    class PipeError(OSError):
        """One of the standard library cannot be referred to weakly."""

    class Broken(MockTransport):
        async def write(self, data: str | bytes) -> None:
            if self.written:
                raise PipeError("pipe")
            await super().write(data)

    wrapper, *_ = retrying(Broken(), on_attempt=None)
    async with wrapper:
        await wrapper.write(line(1))
        with pytest.raises(OSError, match="pipe") as caught:
            await wrapper.write(line(2))
        error = weakref.ref(caught.value)
        del caught
        gc.collect()
        assert error() is None


async def test_a_process_that_dies_in_a_write_says_so_in_the_uncertainty() -> None:
    wrapper, *_ = retrying(SubprocessTransport(command=["sh", "-c", "exec <&-; exec sleep 1000"], close_timeout=0.2))
    with anyio.fail_after(30):
        async with wrapper:
            with pytest.raises(WriteUncertain):
                while True:  # until the child has closed its end
                    await wrapper.write(line(1))


def test_an_uncertain_write_survives_copying_and_pickling() -> None:
    error = WriteUncertain("who knows", session_id="s", exit_code=3, signal=None, stderr_tail="last words")
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(again), str(again), again.session_id, again.exit_code, again.stderr_tail) == (
            WriteUncertain,
            "who knows: last words",
            "s",
            3,
            "last words",
        )


async def test_who_waits_for_a_connection_sees_its_failures_as_they_are_through_a_query() -> None:
    wrapper, sleeper, _ = retrying(FaultyTransport(MockTransport([RESULT]), [FailConnect(times=5)]))
    query = Query(wrapper)
    with pytest.raises(errors.CLIConnectionError, match="attempt 3 of 5") as caught:
        await query.start()
    assert "attempt 3 of 3 to connect" in caught.value.__notes__[0]
    assert sleeper.slept == [1, 2]
