"""Observers that are slow or stuck, in virtual time: what they cost the session, and what they get."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import pytest
from rehearsal import ALICE, Rehearsal, Talker, rehearsal
from virtual_time import jumping_backends

from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.observatory import Viewing
from claude_transport.inspection.page import LiveTimeline
from claude_transport.protocol.server_sent_events import HEARTBEAT
from claude_transport.serving.door import GatewayLimits
from claude_transport.serving.following import in_thread
from claude_transport.serving.pages import Page
from claude_transport.streams.websocket import HandshakeRequest

MEBIBYTE = 2**20


@pytest.fixture(params=jumping_backends(idle=0.1))
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class Play:
    """A session that can be watched. The test plays both of its ends."""

    def __init__(self, stage: Rehearsal, client: Talker, process: Talker) -> None:
        self.gateway = stage.gateway
        self.client = client
        self.process = process
        self.session = stage.gateway.sessions[0].id

    def request(self, what: str, *, token: str, since: int | None = None) -> HandshakeRequest:
        headers = {"host": "localhost", "authorization": f"Bearer {token}"} | ({} if since is None else {"last-event-id": str(since)})
        return HandshakeRequest(path=f"/observe/{self.session}/{what}", headers=headers)

    def view(self, what: str, *, token: str = ALICE, since: int | None = None) -> Viewing:
        seen = self.gateway.observe(self.request(what, token=token, since=since))
        assert isinstance(seen, Viewing)
        return seen

    async def exchange(self, line: bytes) -> None:
        """Say a line, and hear it at the owner's end."""
        await self.process.say(line)
        assert await self.client.hear() == line


@asynccontextmanager
async def play(**settings: Any) -> AsyncIterator[Play]:
    async with rehearsal(observable=True, **settings) as stage:
        client = await stage.plain()
        process = await stage.processes.next()
        await client.say(b'{"n":0}')
        await process.hear()
        yield Play(stage, client, process)


class Observer:
    """Takes what is sent to it: `takes(part)` may wait."""

    def __init__(self, play: Play, viewing: Viewing, *, takes: Callable[[bytes], Awaitable[object]] | None = None) -> None:
        self._play = play
        self._viewing = viewing
        self._takes = takes
        self._changed = anyio.Event()
        self.parts: list[bytes] = []
        self.told_all: bool | None = None

    async def watch(self) -> None:
        self.told_all = await self._play.gateway.show(self._viewing, self._take, anyio.sleep_forever)
        self._changed.set()

    async def _take(self, part: bytes) -> None:
        if self._takes is not None:
            await self._takes(part)
        self.parts.append(part)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(3600):
            while not condition():
                self._changed = anyio.Event()
                await self._changed.wait()

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)

    def numbers(self) -> list[int]:
        """Return the numbers of the lines of the process."""
        rows = [json.loads(row[6:]) for row in self.data.split(b"\n") if row.startswith(b"data: {")]
        return [json.loads(row["line"])["n"] for row in rows if row.get("dir") == "out"]


def said(text: str, *, padding: int = 0) -> bytes:
    message = {"id": "m1", "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "assistant", "message": message, "padding": "x" * padding}).encode()


async def stuck(_part: bytes) -> None:
    await anyio.sleep_forever()


async def test_fifty_observers_one_of_them_stuck_cost_the_owner_no_time_and_bounded_memory() -> None:
    room, count = 100_000, 2000
    limits = GatewayLimits(observed_bytes=room, observers=50)
    async with play(limits=limits) as scene, anyio.create_task_group() as tasks:
        observers = [Observer(scene, scene.view("events"), takes=stuck if place == 0 else None) for place in range(50)]
        for observer in observers:
            tasks.start_soon(observer.watch)
        await observers[1].until(lambda: bool(observers[1].parts))
        gc.collect()
        tracemalloc.start()
        before, began = tracemalloc.get_traced_memory()[0], anyio.current_time()
        for number in range(1, count + 1):
            await scene.exchange(b'{"n":%d,"text":"%s"}' % (number, b"y" * 1000))  # the owner has every line, in order
            if number % 100 == 0:
                waited = anyio.current_time() - began
                assert waited == 0  # the owner has never waited: the clock jumps when all tasks wait for it
                for observer in observers:
                    observer.parts.clear()
        most = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        # the lines, what was made of them, and what the observers hold: 20 times as much was said
        assert most < 3 * room + 2 * MEBIBYTE
        await observers[1].until(lambda: b"y" in observers[1].data and count in observers[1].numbers())
        await observers[0].until(lambda: observers[0].told_all is not None)
        assert observers[0].told_all is False  # disconnected, for it has taken nothing
        assert observers[0].parts == []
        tasks.cancel_scope.cancel()


async def test_an_observer_that_takes_little_at_a_time_gets_everything() -> None:
    async with play() as scene, anyio.create_task_group() as tasks:

        async def slowly(part: bytes) -> None:
            await anyio.sleep(len(part) / 2000)

        observer = Observer(scene, scene.view("events"), takes=slowly)
        tasks.start_soon(observer.watch)
        await scene.exchange(b'{"n":1,"text":"%s"}' % (b"y" * 200_000))  # takes minutes on its network
        await observer.until(lambda: b"id: 2\n" in observer.data and observer.data.endswith(b"\n\n"))
        assert observer.numbers() == [1]
        await scene.process.stream.aclose()
        await observer.until(lambda: observer.told_all is not None)
        assert observer.told_all


@pytest.mark.parametrize("what", ["events", "timeline"])
async def test_a_heartbeat_comes_before_an_observer_gives_up(what: str) -> None:
    async with play(limits=GatewayLimits(heartbeat=600.0)) as scene, anyio.create_task_group() as tasks:
        observer = Observer(scene, scene.view(what))
        tasks.start_soon(observer.watch)
        await anyio.sleep(125)  # clients count a connection as lost after 60 seconds of silence
        assert observer.parts.count(HEARTBEAT) >= 3
        tasks.cancel_scope.cancel()


async def test_fifty_live_pages_share_each_change() -> None:
    async with play(limits=GatewayLimits(observers=50)) as scene, anyio.create_task_group() as tasks:
        pages = [Observer(scene, scene.view("timeline")) for _ in range(50)]
        for page in pages:
            tasks.start_soon(page.watch)
        for number in range(1, 6):
            for page in pages:
                await page.until(lambda page=page, number=number: len(page.parts) >= number)  # type: ignore[misc]
            assert len({id(page.parts[number - 1]) for page in pages}) == 1  # one object
            await scene.exchange(b'{"type":"assistant","n":%d}' % number)
        await anyio.sleep(1)
        before = len(pages[0].parts)
        for number in range(40):
            await scene.exchange(b'{"type":"assistant","n":%d}' % number)
            await anyio.sleep(0.05)
        assert len(pages[0].parts) - before <= 10  # in two seconds
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("scrub", [True, False])
async def test_a_live_page_shows_no_secret_that_comes_in_several_fragments(scrub: bool) -> None:
    async with play() as scene, anyio.create_task_group() as tasks:
        page = Observer(scene, scene.view("timeline", token=scene.gateway.grant_observer(scene.session, scrub=scrub).token))
        tasks.start_soon(page.watch)
        begin = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        parts = ("The key is ", "sk-ant-", "api03-0123456789", "abcdef0123456789", " now", "adays ")
        deltas = [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}} for part in parts]
        for event in ({"type": "message_start", "message": {"id": "m1", "content": []}}, begin, *deltas):
            await scene.exchange(json.dumps({"type": "stream_event", "event": event}).encode())
            await anyio.sleep(1)  # the page reads each fragment by itself
        await scene.process.stream.aclose()
        await page.until(lambda: page.told_all is not None)
        shown = "The key is [secret] nowadays" if scrub else "".join(parts).strip()
        assert shown.encode() in page.data
        assert (b"0123456789" in page.data) == (not scrub)
        tasks.cancel_scope.cancel()


async def test_a_page_that_knows_another_timeline_gets_all_of_this_one() -> None:
    async with play() as scene, anyio.create_task_group() as tasks:
        await scene.exchange(b'{"type":"assistant","n":1}')
        page = Observer(scene, scene.view("timeline", since=50))
        tasks.start_soon(page.watch)
        await page.until(lambda: bool(page.parts))
        assert json.loads(page.data.partition(b"data: ")[2])["count"] >= 1
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("what", ["events", "timeline"])
@pytest.mark.parametrize("is_stuck", [True, False], ids=["stuck", "waiting"])
async def test_a_revoked_observer_gets_nothing_more_from_that_moment_on(what: str, is_stuck: bool) -> None:
    async with play() as scene, anyio.create_task_group() as tasks:
        grant = scene.gateway.grant_observer(scene.session)
        reached = anyio.Event()

        async def take(_part: bytes) -> None:
            reached.set()
            if is_stuck:
                await anyio.sleep_forever()

        observer = Observer(scene, scene.view(what, token=grant.token), takes=take)
        tasks.start_soon(observer.watch)
        await scene.exchange(b'{"type":"assistant","n":1}')
        await reached.wait()
        await anyio.sleep(1)
        parts, now = len(observer.parts), anyio.current_time()
        grant.revoke()
        await scene.exchange(b'{"type":"assistant","n":2}')
        await observer.until(lambda: observer.told_all is not None)
        assert observer.told_all is False
        assert anyio.current_time() == now
        assert len(observer.parts) == parts


@pytest.mark.parametrize("what", ["events", "timeline"])
async def test_a_token_that_is_revoked_while_its_request_is_admitted_watches_nothing(what: str) -> None:
    """The answer of a request is begun, and the observer waits for its turn."""
    async with play() as scene:
        revoked, other = (scene.gateway.grant_observer(scene.session) for _ in range(2))
        await scene.exchange(b'{"type":"assistant","n":1}')
        observer = Observer(scene, scene.view(what, token=revoked.token, since=0))
        going_on = Observer(scene, scene.view(what, token=other.token, since=0))
        revoked.revoke()
        with anyio.fail_after(3600):
            await observer.watch()
        assert (observer.told_all, observer.parts) == (False, [])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(going_on.watch)
            await going_on.until(lambda: bool(going_on.parts))
            tasks.cancel_scope.cancel()
        again = scene.gateway.observe(scene.request(what, token=revoked.token))
        assert isinstance(again, Page)
        assert again.status == 401


async def test_requests_that_are_admitted_together_are_no_more_observers_than_there_may_be() -> None:
    async with play(limits=GatewayLimits(observers=1)) as scene, anyio.create_task_group() as tasks:
        await scene.exchange(b'{"type":"assistant","n":1}')
        first, second = (Observer(scene, scene.view("events", since=0)) for _ in range(2))
        tasks.start_soon(first.watch)
        await first.until(lambda: bool(first.parts))
        with anyio.fail_after(3600):
            await second.watch()
        assert (second.told_all, second.parts) == (False, [])
        before = len(first.parts)
        await scene.exchange(b'{"type":"assistant","n":2}')
        await first.until(lambda: len(first.parts) > before)
        tasks.cancel_scope.cancel()


async def test_the_place_of_an_observer_that_has_left_is_free_again() -> None:
    async with play(limits=GatewayLimits(observers=1)) as scene:
        await scene.exchange(b'{"type":"assistant","n":1}')
        observers = [Observer(scene, scene.view("events", since=0))]
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(observers[-1].watch)
                await observers[-1].until(lambda: bool(observers[-1].parts))
                tasks.cancel_scope.cancel()
            observers.append(Observer(scene, scene.view("events", since=0)))


class Silent(anyio.abc.ByteStream):
    """A connection whose other end takes nothing and says nothing, also when it is closed."""

    def __init__(self) -> None:
        self.closed = False
        self.sends = anyio.Event()

    async def send(self, item: bytes) -> None:
        self.sends.set()
        await anyio.sleep_forever()

    async def send_eof(self) -> None:
        await anyio.sleep_forever()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        if not self.closed:
            self.closed = True
            await anyio.sleep_forever()


async def test_the_connection_of_an_observer_that_may_not_watch_any_more_is_dropped_without_a_wait() -> None:
    async with play() as scene, anyio.create_task_group() as tasks:
        grant = scene.gateway.grant_observer(scene.session)
        arrival = Arrival(Silent(), medium="memory", peer="the test")
        arrival.viewing = scene.view("events", token=grant.token, since=0)
        done = anyio.Event()

        async def attend() -> None:
            await scene.gateway.attend(arrival)
            done.set()

        tasks.start_soon(attend)
        await scene.exchange(b'{"type":"assistant","n":1}')
        assert isinstance(arrival.stream, Silent)
        await arrival.stream.sends.wait()
        now = anyio.current_time()
        grant.revoke()
        await done.wait()
        assert (anyio.current_time(), arrival.stream.closed) == (now, True)


async def test_of_the_sessions_that_are_over_the_last_eight_can_be_watched() -> None:
    async with rehearsal(observable=True) as stage:
        grants = []
        for _ in range(9):
            client = await stage.plain()
            await client.say(b'{"n":0}')
            process = await stage.processes.next()
            await process.hear()
            grants.append(stage.gateway.grant_observer(stage.gateway.sessions[0].id))
            client.stream.break_connection()
            await stage.until(sessions=0)

        def watch(session: str, token: str) -> Page | Viewing | None:
            headers = {"host": "localhost", "authorization": f"Bearer {token}"}
            return stage.gateway.observe(HandshakeRequest(path=f"/observe/{session}/events", headers=headers))

        assert [isinstance(watch(each.session, each.token), Viewing) for each in grants] == [False] + [True] * 8
        gone, kept = grants[0], grants[1]
        forgotten, other = watch(gone.session, gone.token), watch(gone.session, kept.token)
        assert isinstance(forgotten, Page)
        assert isinstance(other, Page)
        assert (forgotten.status, other.status) == (401, 404)  # nothing is kept of its token either


async def test_a_browser_is_told_to_frame_no_page_and_to_guess_no_type() -> None:
    async with play() as stage:
        page = stage.gateway.observe(HandshakeRequest(path=f"/observe/{stage.session}", headers={"host": "localhost"}))
        assert isinstance(page, Page)
        assert page.headers["x-frame-options"] == "DENY"
        for headers in (page.headers, stage.view("events").headers):
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"
            assert headers["cross-origin-resource-policy"] == "same-origin"


def shown(page: Observer) -> list[str]:
    """Return the texts of the agent on a live page."""
    changes = [json.loads(part.partition(b"data: ")[2]) for part in page.parts if b"data: {" in part]
    rows = {row[0]: row for change in changes for row in change["events"]}
    return [row[-1][0][1] for row in rows.values() if row[4] == "text"]


@pytest.mark.parametrize("padding", [0, 5000], ids=["before it is read", "before its lines are made"])
async def test_a_page_that_leaves_in_the_middle_of_reading_costs_the_others_no_line(padding: int) -> None:
    async with play() as scene, anyio.create_task_group() as tasks:
        leaving, staying = (scene.gateway.grant_observer(scene.session, scrub=False) for _ in range(2))
        free = threading.Event()
        tasks.start_soon(in_thread, partial(free.wait, 30))  # the one thread that works for observers is busy
        await scene.exchange(said("here", padding=padding))
        first = Observer(scene, scene.view("timeline", token=leaving.token))
        tasks.start_soon(first.watch)
        await anyio.wait_all_tasks_blocked()
        leaving.revoke()
        await first.until(lambda: first.told_all is not None)
        free.set()
        page = Observer(scene, scene.view("timeline", token=staying.token))
        tasks.start_soon(page.watch)
        await page.until(lambda: bool(page.parts))
        assert shown(page) == ["here"]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("step", ["read", "changes"])
@pytest.mark.parametrize("natively", [False, True], ids=["by its scope", "by asyncio"])
async def test_a_page_that_is_cancelled_while_a_thread_works_makes_the_others_miss_and_repeat_nothing(
    anyio_backend_name: str, natively: bool, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, begun, go_on = getattr(LiveTimeline, step), threading.Event(), threading.Event()
    at_once: list[int] = []

    def slowly(timeline: LiveTimeline, given: object) -> object:
        at_once.append(1)
        begun.set()
        go_on.wait(30)
        made = work(timeline, given)
        at_once.pop()
        return made

    async def watch_until(page: Observer, texts: list[str]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(page.watch)
            await page.until(lambda: shown(page) == texts)
            tasks.cancel_scope.cancel()

    async with play() as scene:
        await scene.exchange(said("first"))
        before, cancelled, after = (Observer(scene, scene.view("timeline", since=0)) for _ in range(3))
        await watch_until(before, ["first"])  # what has changed since the beginning is kept for other pages
        for text in ("second", "third"):
            await scene.exchange(said(text, padding=70_000))  # each is read by itself
        monkeypatch.setattr(LiveTimeline, step, slowly)
        if natively and anyio_backend_name == "asyncio":  # as servers do: no scope of anyio shields from this
            task = asyncio.ensure_future(cancelled.watch())
            await anyio.to_thread.run_sync(begun.wait)
            task.cancel()
            await asyncio.wait([task], timeout=0.05)
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancelled.watch)
                await anyio.to_thread.run_sync(begun.wait)
                tasks.cancel_scope.cancel()
                go_on.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch_until, after, ["first", "second", "third"])
            for _ in range(300):  # a second thread would begin meanwhile
                await anyio.to_thread.run_sync(begun.is_set)
            assert len(at_once) <= 1
            go_on.set()


async def test_a_page_that_comes_later_gets_all_that_was_read_at_once() -> None:
    async with play() as scene, anyio.create_task_group() as tasks:
        first, later = (Observer(scene, scene.view("timeline", since=0)) for _ in range(2))
        tasks.start_soon(first.watch)
        for texts in (["one"], ["one", "two"]):
            await scene.exchange(said(texts[-1]))
            await first.until(lambda texts=texts: shown(first) == texts)  # type: ignore[misc]
        tasks.start_soon(later.watch)
        await later.until(lambda: any(b"data: {" in part for part in later.parts))
        assert shown(later) == ["one", "two"]
        tasks.cancel_scope.cancel()


async def test_what_is_kept_for_live_pages_is_bounded() -> None:
    async with play() as scene, anyio.create_task_group() as tasks:
        pages = [Observer(scene, scene.view("timeline", since=0)) for _ in range(2)]
        tasks.start_soon(pages[0].watch)
        for number in range(1, 8):
            await scene.exchange(said(str(number)))
            await pages[0].until(lambda number=number: len(shown(pages[0])) == number)  # type: ignore[misc]
        tasks.start_soon(pages[1].watch)
        await pages[1].until(lambda: len(shown(pages[1])) == 7)
        assert pages[1].parts[0] != pages[0].parts[0]  # it was made anew: the first change of the first page is not kept
        tasks.cancel_scope.cancel()


async def test_without_observable_an_owner_is_told_nothing_of_a_session_that_others_watch() -> None:
    async with rehearsal() as stage:
        client = await stage.plain()
        await client.say(b'{"n":0}')
        await (await stage.processes.next()).hear()
        stage.gateway.grant_observer(stage.gateway.sessions[0].id)
        headers = {"host": "localhost", "authorization": f"Bearer {ALICE}"}
        answer = stage.gateway.observe(HandshakeRequest(path="/observe", headers=headers))
        assert isinstance(answer, Page)
        assert (answer.status, answer.text) == (404, "owners may not watch their sessions here: ask for an observer's token\n")
