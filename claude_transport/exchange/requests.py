"""Requests of this end: each waits for its answer, for the reason why none comes, or for the end of its time."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import anyio

from claude_transport.errors import ClaudeTransportError, ControlTimeout, InputClosed
from claude_transport.exchange.failures import ConversationEnd, tells_of_the_end
from claude_transport.exchange.outgoing import Delivery, LineWriter
from claude_transport.loops.alarm import Alarm
from claude_transport.loops.current import Wakeup, clock_here

VERDICT_GRACE = 1.0
"""Seconds in which the reader may find out why a write failed: the end of the peer explains more than a broken pipe."""

K = TypeVar("K", str, int)


class PendingRequest(Generic[K]):
    """A request, from before its line is written until it is answered or given up. It is settled once."""

    __slots__ = ("_unwritten", "answer", "deadline", "delivery", "error", "is_late", "is_open", "key", "line", "name", "news")

    def __init__(self, key: K, name: str, line: bytes, *, beside: Wakeup | None = None) -> None:
        """`beside` is the `news` of an earlier one of the same event loop."""
        self.key: K = key
        self.name: str = name
        """What is asked: the subtype or the method."""
        self.line: bytes = line
        self.delivery: Delivery | None = None
        """The line on its way to the writing task; None while there is none, as when it was written at once."""
        self.deadline: float = math.inf
        """When it is given up, by the clock of the event loop."""
        self.is_open: bool = True
        """False once there is an answer, or an error instead of it, or the time is over. (Plain, because each request looks at it.)"""
        self.is_late: bool = False
        """True when its time was over first."""
        self.answer: Any = None
        self.error: ClaudeTransportError | None = None
        self._unwritten: ClaudeTransportError | None = None
        self.news: Wakeup = Wakeup(beside=beside)
        """Fires when it is settled, or its line could not be written."""

    def settle(self, answer: Any) -> None:
        """Settle it with the answer of the peer."""
        if self.is_open:
            self.is_open, self.answer = False, answer
            self.news.fire()

    def fail(self, error: ClaudeTransportError) -> None:
        """Settle it with the reason why no answer comes."""
        if self.is_open:
            self.is_open, self.error = False, error
            self.news.fire()

    def give_up(self) -> None:
        """Settle it, because its time is over."""
        if self.is_open:
            self.is_open, self.is_late = False, True
            self.news.fire()

    def limit(self, deadline: float) -> None:
        """Set when it is given up."""
        self.deadline = deadline

    def doubt(self, error: ClaudeTransportError) -> None:
        """Note that its line could not be written. The reader may yet find a better reason."""
        self._unwritten = error
        self.news.fire()

    async def settled(self) -> None:
        """Wait until it is settled: by an answer, an error, or the end of its time."""
        while self.is_open and self._unwritten is None:
            await self.news.wait()
        if self._unwritten is not None:
            with anyio.move_on_after(VERDICT_GRACE):
                while self.is_open:
                    await self.news.wait()
            self.fail(self._unwritten)


class PendingRequests(Generic[K]):
    """The requests of one conversation that wait, by the id that their answers repeat.

    Args:
        lines: writes their lines.
        end: tells how the conversation ends.
        is_control: their lines may pass a prompt that waits.
    """

    __slots__ = ("_clock", "_end", "_is_control", "_last_news", "_lines", "_requests", "_time_limits")

    def __init__(self, lines: LineWriter, *, end: ConversationEnd, is_control: bool) -> None:
        self._lines = lines
        self._end = end
        self._is_control = is_control
        self._requests: dict[K, PendingRequest[K]] = {}
        self._last_news: Wakeup | None = None
        self._clock: Callable[[], float] | None = None  # of the event loop, after the first wait
        self._time_limits: TimeLimits[K] = TimeLimits(self._requests)

    @property
    def names(self) -> dict[K, str]:
        """What is asked, by id."""
        return {request.key: request.name for request in list(self._requests.values())}  # a copy: this may be read in any thread

    def add(self, key: K, name: str, line: bytes) -> PendingRequest[K]:
        """Register a request, before its line is written."""
        request = self._requests[key] = PendingRequest(key, name, line, beside=self._last_news)
        self._last_news = request.news
        return request

    def post(self, request: PendingRequest[K]) -> None:
        """Write a registered request. When that fails, the request fails with the reason that reading finds, if it finds one."""
        lines, failure = self._lines, None
        try:
            if lines.write_now is not None and lines.write_now(request.line):
                return  # usual: the writing task, and its wake-up, are left out
        except Exception as exc:  # noqa: BLE001 - it raises what `write()` may raise
            failure = exc
        delivery = request.delivery = Delivery(request.line, is_control=self._is_control)
        if failure is not None:
            lines.note_failure(failure, delivery)

        def fail(error: ClaudeTransportError) -> None:
            if self._end.ended.is_set() or isinstance(error, InputClosed) or not tells_of_the_end(error):
                request.fail(error)
            else:
                request.doubt(error)

        delivery.call_on_error(fail)
        lines.put(delivery)

    async def answer_to(self, request: PendingRequest[K], *, timeout: float, is_alone: bool = False) -> Any:
        """Wait for the answer, and return it. Whatever happens, the request is forgotten then.

        `is_alone` says that no other request waits; then a cancel scope bounds the wait, which costs less than an alarm.

        Raises:
            ControlTimeout: the peer did not answer in `timeout` seconds.
            ClaudeTransportError: the reason why it never will.
        """
        try:
            if is_alone:
                with anyio.move_on_after(timeout):
                    await request.settled()
            else:
                clock = self._clock = self._clock or clock_here()
                self._time_limits.set(request, clock() + timeout)
                await request.settled()
        finally:
            self._requests.pop(request.key, None)
        if request.error is not None:
            raise self._end.told(request.error)
        if request.is_open or request.is_late:
            text, tail = f"no answer to {request.name} in {timeout:g} s", self._end.info.stderr_tail
            raise ControlTimeout(text, waited=timeout, stderr_tail=tail, subtype=request.name, request_id=str(request.key))
        return request.answer

    def settle(self, key: K, answer: Any) -> None:
        """Give a request its answer, if it still waits. Needs no task."""
        if (request := self._requests.get(key)) is not None:
            request.settle(answer)

    def fail(self, key: K, error: ClaudeTransportError) -> None:
        """Give a request the reason why it has no answer, if it still waits. Needs no task."""
        if (request := self._requests.get(key)) is not None:
            request.fail(error)

    def fail_all(self, error: ClaudeTransportError) -> None:
        """Give every request that waits the reason why it has no answer."""
        for request in self._requests.values():
            request.fail(error)

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def awaits_answer(self) -> bool:
        """True while a request waits for its answer, which only reading can bring."""
        return any(request.is_open for request in self._requests.values())

    def end(self) -> None:
        """Give up nothing for its time any more."""
        self._time_limits.end()


class TimeLimits(Generic[K]):
    """Gives up the requests whose time is over. One alarm serves all of them, because most are answered long before.

    Args:
        pending: the requests that wait, by id.
    """

    __slots__ = ("_alarm", "_next_look", "_pending")

    def __init__(self, pending: Mapping[K, PendingRequest[K]]) -> None:
        self._pending: Mapping[K, PendingRequest[K]] = pending
        self._alarm: Alarm | None = None
        self._next_look = math.inf

    def set(self, request: PendingRequest[K], deadline: float) -> None:
        """Give up `request` at `deadline`, unless it is settled before. Infinity is no limit."""
        request.limit(deadline)
        if deadline < self._next_look:
            if self._alarm is None:
                self._alarm = Alarm(self._look)
            self._look_at(deadline)

    def _look(self) -> None:
        now = clock_here()()
        for request in [request for request in self._pending.values() if request.deadline <= now]:
            request.give_up()
        self._look_at(min([request.deadline for request in self._pending.values() if request.is_open], default=math.inf))

    def _look_at(self, when: float) -> None:
        self._next_look = when
        if self._alarm is not None:
            with contextlib.suppress(RuntimeError):  # a loop that is ending cancels the waiting task
                self._alarm.set(when)

    def end(self) -> None:
        """Give up nothing any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
