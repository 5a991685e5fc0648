"""Observers of a session in this process: every line, from any position that is kept, and never at the cost of the session."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import claude_transport
from claude_transport import Query, ReplayGap
from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.observing import ObservableTransport, Observation, ObservedLine, observe
from claude_transport.protocol.observation import LineLog
from claude_transport.protocol.redaction import Redactor
from claude_transport.serving.following import Follower, LocalObservation, change_of
from claude_transport.streams.memory import MemoryConnectable, MemoryStream
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.stream import StreamTransport
from claude_transport.wrappers import LoggingTransport

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "All is well."}
SECRET = "sk-ant-api03-" + "a" * 80


class CountingLog(LineLog):
    """Counts the calls that it owes to those that wait for a line."""

    owed = 0

    def call_at_change(self, wake: Callable[[], object]) -> None:
        super().call_at_change(wake)
        self.owed += 1

    def forget_call(self, wake: Callable[[], object]) -> None:
        super().forget_call(wake)
        self.owed -= 1


class Stage:
    """A transport whose other end the test plays."""

    def __init__(self, **settings: Any) -> None:
        self.opener = MemoryConnectable()
        self.transport = ObservableTransport(StreamTransport(self.opener), **settings)
        self.lines = self.transport.read_lines

    async def connect(self) -> MemoryStream:
        await self.transport.connect()
        return await self.opener.accept()

    async def read(self, count: int) -> list[bytes]:
        """Read as the owner does."""
        found: list[bytes] = []
        async for batch in self.transport.read_lines():
            found += batch
            if len(found) >= count:
                break
        return found


async def some(observation: Observation, count: int) -> list[ObservedLine]:
    with anyio.fail_after(30):
        return [await anext(observation) for _ in range(count)]


async def all_of(observation: Observation) -> list[ObservedLine]:
    with anyio.fail_after(30):
        return [line async for line in observation]


async def test_an_observer_sees_both_directions_and_ends_with_the_session() -> None:
    stage = Stage()
    peer = await stage.connect()
    await stage.transport.write(b'{"type":"user","n":1}\n')
    await peer.send(b'{"n":2}\n{"n":3}\n')
    await stage.read(2)
    watching = observe(stage.transport, session=None)
    seen = await some(watching, 3)
    assert [(line.direction, bytes(line)) for line in seen] == [("in", b'{"type":"user","n":1}'), ("out", b'{"n":2}'), ("out", b'{"n":3}')]
    assert [line.position for line in seen] == [1, 2, 3]
    assert watching.position == 3
    await stage.transport.close()
    assert {line.direction for line in await all_of(watching)} == {"note"}


async def test_a_late_observer_begins_where_it_says() -> None:
    stage = Stage()
    peer = await stage.connect()
    await peer.send(b"".join(b'{"n":%d}\n' % number for number in range(1, 101)))
    await stage.read(100)
    assert bytes((await some(observe(stage.transport, session=None), 1))[0]) == b'{"n":1}'
    assert bytes((await some(observe(stage.transport, session=None, since=41), 1))[0]) == b'{"n":42}'
    watching = observe(stage.transport, session=None, since=100)
    await peer.send(b'{"n":101}\n')
    await stage.read(1)
    assert (await some(watching, 1))[0].position == 101
    await stage.transport.close()


async def test_a_position_that_is_not_kept_is_a_replay_gap_and_none_begins_with_the_oldest() -> None:
    stage = Stage(max_bytes=20_000)
    peer = await stage.connect()
    for number in range(50):
        await peer.send(b'{"n":%d,"text":"%s"}\n' % (number, b"x" * 1000))
        await stage.read(1)
    for since in (0, 5, 51, 10**9):
        with pytest.raises(ReplayGap):
            await some(observe(stage.transport, session=None, since=since), 1)
    oldest = (await some(observe(stage.transport, session=None, since=None), 1))[0]
    assert 30 < oldest.position < 50
    assert (await some(observe(stage.transport, session=None, since=oldest.position), 1))[0].position == oldest.position + 1
    await stage.transport.close()


async def test_an_observer_that_is_overtaken_is_told_how_much_it_has_missed_and_costs_no_memory() -> None:
    stage = Stage(max_bytes=50_000)
    peer = await stage.connect()
    stuck = observe(stage.transport, session=None)
    await peer.send(b'{"n":0}\n')
    await stage.read(1)
    assert bytes((await some(stuck, 1))[0]) == b'{"n":0}'
    for number in range(1, 301):
        await peer.send(b'{"n":%d,"text":"%s"}\n' % (number, b"x" * 1000))
        await stage.read(1)
        assert stage.transport.log.kept_bytes <= 50_000
    note, line = await some(stuck, 2)
    assert (note.direction, note.skipped) == ("note", line.position - 2)
    assert note.position == line.position - 1
    assert line.skipped == 0
    rest = await some(stuck, 300 - json.loads(line)["n"])
    assert json.loads(rest[-1])["n"] == 300
    await stage.transport.close()


async def test_fifty_observers_see_every_line_while_one_of_them_is_stuck() -> None:
    stage = Stage()
    peer = await stage.connect()
    seen: list[list[ObservedLine]] = [[] for _ in range(49)]
    stuck = observe(stage.transport, session=None)

    async def watch(place: int) -> None:
        async for line in observe(stage.transport, session=None):
            seen[place].append(line)

    async def speak() -> None:
        for number in range(300):
            await peer.send(b'{"n":%d}\n' % number)
        await peer.aclose()

    owner: list[bytes] = []
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for place in range(49):
                tasks.start_soon(watch, place)
            tasks.start_soon(speak)
            async for batch in stage.transport.read_lines():
                owner += batch
            await stage.transport.close()
    assert owner == [b'{"n":%d}' % number for number in range(300)]
    for lines in seen:
        assert [bytes(line) for line in lines if line.direction == "out"] == owner
    assert len(await all_of(stuck)) > 300


@pytest.mark.parametrize("scrub", [True, False])
async def test_the_owner_chooses_whether_secrets_are_seen(scrub: bool) -> None:
    stage = Stage(scrub=scrub)
    peer = await stage.connect()
    prompt = {"type": "user", "message": {"role": "user", "content": f"use {SECRET} of alice@corp.io"}}
    asked = {"type": "control_request", "request_id": "r", "request": {"subtype": "can_use_tool", "input": {"command": f"echo {SECRET}"}}}
    await stage.transport.write(json.dumps(prompt))
    await peer.send(json.dumps(asked).encode() + b"\n")
    assert SECRET.encode() in (await stage.read(1))[0]  # the owner's line is as it was
    seen = b"\n".join(await some(observe(stage.transport, session=None), 2))
    assert (SECRET.encode() in seen, b"alice@" in seen) == (not scrub, not scrub)
    await stage.transport.close()


def delta(text: str) -> bytes:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return json.dumps({"type": "stream_event", "event": event}).encode() + b"\n"


def said(lines: list[ObservedLine]) -> str:
    rows = [json.loads(line) for line in lines if line.direction == "out"]
    return "".join(row["event"]["delta"]["text"] for row in rows if "delta" in row["event"])


BEGIN = b'{"type":"stream_event","event":{"type":"content_block_start","index":0}}\n'
FRAGMENTS = ["The key is ", "sk-ant-", "api03-0123456789", "abcdef0123456789", " now", "adays"]


@pytest.mark.parametrize("scrub", [True, False])
async def test_a_secret_in_several_fragments_is_removed_for_each_observer(scrub: bool) -> None:
    stage = Stage(scrub=scrub)
    peer = await stage.connect()
    early = observe(stage.transport, session=None)
    seen: list[list[ObservedLine]] = [[], []]

    async def watch(place: int, watching: Observation) -> None:
        async for line in watching:
            seen[place].append(line)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, 0, early)
            for line in (BEGIN, *map(delta, FRAGMENTS)):
                await peer.send(line)
                await stage.read(1)
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(watch, 1, observe(stage.transport, session=None))
            await stage.transport.close()
    for lines in seen:
        assert [line.position for line in lines] == list(range(1, len(lines) + 1))
        assert said(lines) == ("The key is [secret] nowadays" if scrub else "".join(FRAGMENTS))


async def test_a_fragment_reaches_an_observer_with_the_end_of_its_word() -> None:
    stage = Stage()
    peer = await stage.connect()
    watching = observe(stage.transport, session=None)
    await peer.send(BEGIN + delta("one ") + delta("tw"))
    await stage.read(3)
    assert said(await some(watching, 2)) == "one "
    await peer.send(delta("o "))
    await stage.read(1)
    assert said(await some(watching, 2)) == "two "
    await stage.transport.close()


async def test_an_observer_that_comes_in_the_middle_of_a_secret_sees_no_half_of_it() -> None:
    stage = Stage()
    peer = await stage.connect()
    await peer.send(BEGIN + b"".join(map(delta, FRAGMENTS)))
    await stage.read(7)
    await stage.transport.close()
    whole = await all_of(observe(stage.transport, session=None))
    assert said(whole) == "The key is [secret] nowadays"
    for since in range(1, 7):
        seen = await all_of(observe(stage.transport, session=None, since=since))
        assert [(line.position, bytes(line)) for line in seen] == [(line.position, bytes(line)) for line in whole[since:]]


async def test_a_log_that_begins_in_the_middle_of_a_secret_shows_no_half_of_it() -> None:
    stage = Stage(max_bytes=20_000)
    peer = await stage.connect()
    await peer.send(BEGIN + b"".join(map(delta, FRAGMENTS[:3])))
    await stage.read(4)
    await stage.transport.write("x" * 18_000)
    await peer.send(b"".join(map(delta, FRAGMENTS[3:])) + BEGIN + delta("more "))
    await stage.read(5)
    await stage.transport.close()
    seen = await all_of(observe(stage.transport, session=None, since=None))
    assert seen[0].position > 4
    assert said(seen) == "[secret]more "


class Slow(Redactor):
    """Waits in its first line until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.at_once = self.most_at_once = 0

    def line(self, line: bytes, **how: Any) -> bytes:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.begun.set()
        self.go_on.wait(30)
        self.at_once -= 1
        return super().line(line, **how)


async def test_an_observer_that_is_cancelled_while_a_thread_redacts_loses_nothing(anyio_backend_name: str) -> None:
    slow = Slow()
    log = LineLog(clock=anyio.current_time, redactor=lambda: slow)
    log.append_lines("out", [BEGIN[:-1], *(delta(part)[:-1] for part in FRAGMENTS), b'{"event":{},"text":"%s"}' % (b"x" * 10_000)])
    log.end()
    watching = LocalObservation(log, since=0, scrub=True)
    with anyio.fail_after(30):
        if anyio_backend_name == "asyncio":  # no scope of anyio shields from this one
            task = asyncio.ensure_future(anext(watching))
            await anyio.to_thread.run_sync(slow.begun.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anext, watching)
                await anyio.to_thread.run_sync(slow.begun.wait)
                tasks.cancel_scope.cancel()
                slow.go_on.set()
        seen: list[ObservedLine] = []
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                seen.extend([line async for line in watching])

            tasks.start_soon(read)
            for _ in range(20):  # a second thread would begin meanwhile
                await anyio.to_thread.run_sync(slow.begun.is_set)
            slow.go_on.set()
    assert slow.most_at_once == 1
    assert [line.position for line in seen] == list(range(1, log.last + 1))
    assert said(seen) == "The key is [secret] nowadays"


async def test_a_long_line_is_redacted_too() -> None:
    stage = Stage()
    peer = await stage.connect()
    line = json.dumps({"text": "x " * 150_000 + SECRET}).encode()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.send, line + b"\n")
        assert await stage.read(1) == [line]
    seen = (await some(observe(stage.transport, session=None), 1))[0]
    assert SECRET.encode() not in seen
    assert len(seen) > 300_000
    await stage.transport.close()


class Counting(Redactor):
    """Counts the lines that it redacts."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = 0

    def line(self, line: bytes, **how: Any) -> bytes:
        self.lines += 1
        return super().line(line, **how)


async def test_a_long_line_is_redacted_once_however_many_wait_for_it() -> None:
    counting = Counting()
    log = LineLog(clock=anyio.current_time, redactor=lambda: counting)
    seen: list[ObservedLine] = []

    async def watch() -> None:
        seen.append(await anext(LocalObservation(log, since=0, scrub=True)))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(watch)
            await anyio.lowlevel.checkpoint()
            log.append_lines("out", [json.dumps({"text": f"{SECRET} " * 2000}).encode()])
    assert len(seen) == 50
    assert not any(SECRET.encode() in line for line in seen)
    assert counting.lines == 1


async def test_an_observer_that_is_cancelled_loses_nothing() -> None:
    stage = Stage()
    peer = await stage.connect()
    watching = observe(stage.transport, session=None)
    for _ in range(3):
        with anyio.move_on_after(0) as scope:
            await anext(watching)
        assert scope.cancelled_caught
    await peer.send(b'{"n":1}\n{"n":2}\n')
    await stage.read(2)
    with anyio.move_on_after(0):
        await anext(watching)
    assert [bytes(line) for line in await some(watching, 2)] == [b'{"n":1}', b'{"n":2}']
    await stage.transport.close()


async def test_a_closed_observation_is_over() -> None:
    stage = Stage()
    peer = await stage.connect()
    await peer.send(b'{"n":1}\n{"n":2}\n')
    await stage.read(2)
    async with observe(stage.transport, session=None) as watching:
        await some(watching, 1)
    assert await all_of(watching) == []
    await stage.transport.close()


async def test_the_transport_of_a_query_is_found_below_other_wrappers() -> None:
    transport = LoggingTransport(ObservableTransport(MockTransport([RESULT])))
    async with Query(transport) as query:
        watching = observe(transport, session=None)
        await (await query.send("Hello")).result()
    seen = await all_of(watching)
    assert any(line.direction == "in" and b"Hello" in line for line in seen)
    assert any(line.direction == "out" and b'"result"' in line for line in seen)


async def test_what_cannot_be_observed_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="ObservableTransport"):
        observe(MockTransport(), session=None)
    with pytest.raises(ConfigurationError, match="ws://"):
        observe("tcp://127.0.0.1:1", session="a")
    for session in (None, "", "../metrics", "a b", "x" * 65, "ä"):
        with pytest.raises(ConfigurationError, match="session"):
            observe("ws://127.0.0.1:1", session=session)
    for since in (-1, True, "1", 1.5, 2**60):
        with pytest.raises(ConfigurationError, match="since"):
            observe("ws://127.0.0.1:1", session="a", since=since)  # type: ignore[arg-type]
    for token in ("", "a b", "ä", "a\r\nx: y"):
        with pytest.raises(ConfigurationError, match="token"):
            observe("ws://127.0.0.1:1", session="a", token=token)
    with pytest.raises(ConfigurationError, match="ssl_context needs an encrypted connection: use wss://"):
        observe("ws://127.0.0.1:1", session="a", ssl_context=ssl.create_default_context())
    with pytest.raises(ConfigurationError, match="max_bytes"):
        ObservableTransport(MockTransport(), max_bytes=0)


def test_it_has_its_name_at_the_top_too() -> None:
    assert claude_transport.observe is observe


async def test_a_silent_session_remembers_no_observer_that_has_left() -> None:
    log = CountingLog(clock=anyio.current_time, redactor=Redactor)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(change_of, log)
        await anyio.wait_all_tasks_blocked()
        assert log.owed == 3
        tasks.cancel_scope.cancel()
    assert log.owed == 0


@pytest.mark.parametrize("scrub", [False, True])
async def test_an_observer_takes_64_kibibytes_at_a_time(scrub: bool) -> None:
    log = LineLog(clock=anyio.current_time, redactor=Redactor)
    log.append_lines("in", [b"x" * 1000] * 200)
    log.end()
    follower, taken = Follower(log, since=None, scrub=scrub), [0]
    while (excerpt := await follower.next()) is not None:
        taken.append(excerpt.last - sum(taken))
    assert sum(taken) == log.last
    assert max(taken) <= 2**16 // 1000 + 1
