"""`Connection`: the transport of one conversation, with everything that is written, asked and waited for through it.

It owns the start and the end of a conversation, the lines on their way out, and the requests that wait for an answer. It knows nothing of
turns and callbacks: `query` performs what the lines mean, `storage` keeps the messages, `questions` answers the CLI.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

import anyio
import anyio.lowlevel

from claude_transport.alarm import Alarm
from claude_transport.background import BackgroundTask, HostLoop, clock_here, is_being_cancelled_here, is_stopped_here
from claude_transport.client.ending import TransportEnd
from claude_transport.client.held_prompts import HeldPrompts
from claude_transport.client.outgoing import Delivery, PassingLines
from claude_transport.client.reports import (
    CloseReport,
    FirstFailure,
    connect_guarded,
    ended_before_answer,
    guarded,
    raised_again,
    refuse_stray,
    says_peer_is_gone,
    tells_of_the_end,
    translated,
    translating,
)
from claude_transport.errors import (
    ClaudeTransportError,
    ConnectTimeout,
    ControlRequestFailed,
    ControlTimeout,
    InputClosed,
    NotConnected,
    ProcessError,
    ProtocolError,
    TransportClosed,
    UsageError,
)
from claude_transport.loggers import logger_for
from claude_transport.protocol.control import ControlResponse, encode_control_request
from claude_transport.protocol.conversation import Conversation
from claude_transport.streams.inflow import Flag, Wakeup
from claude_transport.transport import (
    AtOnce,
    Client,
    PouredLines,
    SessionTerms,
    Transport,
    TransportInfo,
    TransportLike,
    attach_to,
    info_of,
    read_lines_of,
)

logger: logging.Logger = logger_for(__name__)

DEFAULT_CLOSE_TIMEOUT = 5.0
"""Seconds that the conversation gets to end by itself when the query is closed without haste. Then the transport is closed."""

MAX_WAITING_BYTES = 64 * 2**20
"""Bytes of answers that may wait to be written, when the peer goes on asking and does not read."""

_BATCH_BYTES = 1 << 20
"""Bytes joined into one write at most. Many small frames in one write cost a fraction of many writes."""

_LAST_WRITE = 1.0
"""Seconds for the last line, after the conversation has ended."""

VERDICT_GRACE = 1.0
"""Seconds that the reader gets to find out why a write failed. How the peer ended says more than a broken pipe."""

_FAIRNESS = 128
"""Messages read in a row before other tasks run. The first of these tasks is the reader of the messages, while they are in the cache."""

_BATCH_IS_WORTH = 8
"""Messages that a batch counts for, however small it is: a transport that never waits may give one at a time."""

_READER_CLOSE_TIMEOUT = 1.0
"""Seconds for closing the reading side of a transport."""


class PendingRequest:
    """A control request, from before its line is written until it is answered or given up. It is settled once."""

    __slots__ = ("_news", "_unwritten", "deadline", "error", "is_open", "line", "request_id", "response", "subtype")

    def __init__(self, request_id: str, subtype: str, line: bytes) -> None:
        self.request_id: str = request_id
        self.subtype: str = subtype
        self.line: bytes = line
        self.deadline: float = math.inf
        """When it is given up, by the clock of the event loop."""
        self.is_open: bool = True
        """False once there is an answer, or an error instead of it, or the time is over. (Plain, because each request looks at it.)"""
        self.response: ControlResponse | None = None
        self.error: ClaudeTransportError | None = None
        self._unwritten: ClaudeTransportError | None = None
        self._news = Wakeup()

    def settle(self, outcome: ControlResponse | ClaudeTransportError | None) -> None:
        """Settle it with the answer of the peer, with the reason why none will come, or with None when the time is over."""
        if not self.is_open:
            return
        self.is_open = False
        if isinstance(outcome, ControlResponse):
            self.response = outcome
        else:
            self.error = outcome
        self._news.fire()

    def limit(self, deadline: float) -> None:
        """Set when it is given up."""
        self.deadline = deadline

    def doubt(self, error: ClaudeTransportError) -> None:
        """Note that its line could not be written. The reader may yet find a better reason."""
        self._unwritten = error
        self._news.fire()

    async def settled(self) -> None:
        """Wait until it is settled: by an answer, an error, or the end of its time."""
        while self.is_open and self._unwritten is None:
            await self._news.wait()
        if self._unwritten is not None:
            with anyio.move_on_after(VERDICT_GRACE):
                while self.is_open:
                    await self._news.wait()
            self.settle(self._unwritten)


class TimeLimits:
    """Gives up the requests whose time is over. One alarm serves all of them, because most are answered long before.

    Args:
        pending: the requests that wait, by id.
    """

    __slots__ = ("_alarm", "_next_look", "_pending")

    def __init__(self, pending: Mapping[str, PendingRequest]) -> None:
        self._pending = pending
        self._alarm: Alarm | None = None
        self._next_look = math.inf

    def set(self, request: PendingRequest, deadline: float) -> None:
        """Give up `request` at `deadline`, unless it is settled before. Infinity is no limit."""
        request.limit(deadline)
        if deadline < self._next_look:
            if self._alarm is None:
                self._alarm = Alarm(self._look)
            self._look_at(deadline)

    def _look(self) -> None:
        now = clock_here()()
        for request in [request for request in self._pending.values() if request.deadline <= now]:
            request.settle(None)
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


class Connection:
    """The transport of one conversation, its lines, its requests, and the moments of its life.

    One task writes. It starts with the first line that cannot be written at once. While it waits with a prompt, a second task writes the
    control lines, where the transport lets several tasks write. A transport is broken for good when a write is cancelled in the middle of
    a line, so a cancelled caller of `send()` takes its line back when writing has not begun. Else the line is written to its end.

    Args:
        transport: connected when it is not yet, and closed in the end.
        conversation: hands out the ids of requests.
        end: closes the transport in its time.
    """

    __slots__ = (
        "__weakref__",
        "_arrival",
        "_at_once",
        "_clock",
        "_closed",
        "_connecting",
        "_connects_at_once",
        "_conversation",
        "_dropped_tasks",
        "_early",
        "_end",
        "_ended_by_itself",
        "_failure",
        "_given_up",
        "_held",
        "_in_flight",
        "_input_ended",
        "_is_ours",
        "_on_close_requested",
        "_on_unwritten",
        "_passing",
        "_pending",
        "_queue",
        "_queued_controls",
        "_start_writer",
        "_time_limits",
        "_transport",
        "_unwritable",
        "_waiting_bytes",
        "_write_now",
        "_writing_over",
        "close_requested",
        "close_timeout",
        "ended",
        "error",
        "is_open",
        "loop",
        "lost_turns",
        "ready",
        "start_error",
        "task",
        "terms",
        "wait_for_background",
        "writing",
    )

    def __init__(self, transport: TransportLike, conversation: Conversation, *, end: TransportEnd) -> None:
        self._transport = transport
        self._conversation = conversation
        self._end = end
        self._is_ours = isinstance(transport, Transport)
        self._connecting: anyio.CancelScope | None = None
        self._connects_at_once = self._given_up = self._closed = False

        self.terms: SessionTerms = SessionTerms()
        """What the transport asks of the conversation, and what it wants to be told. Known after `attach()`."""
        self.loop: HostLoop | None = _loop_here()
        """The event loop that the conversation runs in; before it begins, the loop that it was made in."""
        self.task: BackgroundTask | None = None
        """The task that the conversation runs in."""
        self.ready: Flag = Flag()
        """Set when the start is over: it succeeded, or `start_error` says why not."""
        self.start_error: ClaudeTransportError | None = None
        self.is_open: bool = False
        """True while prompts can be sent: ready, not closing, not ended. A plain attribute, because each prompt looks at it."""
        self._early: list[Flag] = []
        self._held = HeldPrompts()
        self.close_requested: Flag = Flag()
        self._on_close_requested: Callable[[], object] | None = None
        self.close_timeout: float = DEFAULT_CLOSE_TIMEOUT
        self.wait_for_background: bool = False
        self.ended: Flag = Flag()
        """Set when nothing more will come from the peer."""
        self.error: ClaudeTransportError | None = None
        self.lost_turns: tuple[str, ...] = ()
        self._dropped_tasks: dict[str, str] = {}
        self._ended_by_itself = True

        self._queue: deque[Delivery] | tuple[()] = ()  # made for lines that wait: most of the time there are none
        self._in_flight: list[Delivery] = []
        self._passing: PassingLines | None = None  # from `begin_writing()` to `stop_writing()`
        self._waiting_bytes = self._queued_controls = 0
        self.writing: Flag = Flag()
        """Set when the writing task is about to write its first line, with no checkpoint in between."""
        self._start_writer: Callable[..., object] | None = None
        self._arrival = Wakeup()
        self._input_ended = self._writing_over = False
        self._failure = FirstFailure()
        self._on_unwritten: Callable[[ClaudeTransportError], object] = _ignore
        self._unwritable: ClaudeTransportError | str = ""  # why no line can be written any more; a text becomes an error when it is needed
        self._pending: dict[str, PendingRequest] = {}
        self._time_limits = TimeLimits(self._pending)
        self._clock: Callable[[], float] = anyio.current_time
        # Only while the writing task has nothing to do and the input is open: a line must not overtake another one.
        self._write_now: Callable[[bytes], bool] | None = None
        self._at_once: AtOnce | None = None

    # The transport

    def attach(self, client: Client) -> None:
        """Tell the transport about the query, and learn its terms. Call it before `connect()`.

        Raises:
            ConfigurationError: it is too late for that.
        """
        self.terms = self._end.accept(attach_to(self._transport, client))
        self._at_once = self.terms.at_once

    async def find_cli_version(self, *, said: str | None) -> str | None:
        """Return the version of the CLI, which is `said` when the CLI told it. None when it cannot be found out."""
        if self.terms.find_cli_version is None:
            return said or self.info.cli_version
        with translating("the find_cli_version of the transport failed"):
            return await guarded(self.terms.find_cli_version(said=said))

    @property
    def info(self) -> TransportInfo:
        """What is known of the transport."""
        return info_of(self._transport)

    async def connect(self, *, timeout: float) -> None:
        """Connect the transport, unless it is connected already. Wait `timeout` seconds at most.

        Raises `CLIConnectionError` for whatever a transport raises that is no error of this library.
        """
        if self._transport.is_ready():
            return
        if self._connects_at_once and not self._given_up and self._at_once is not None and self._at_once.connect():
            return
        with anyio.CancelScope(deadline=self._clock() + timeout) as scope:
            self._connecting = scope
            if self._given_up:
                scope.cancel()
            await connect_guarded(self._transport)
        self._connecting = None  # cancelling a scope that has ended costs as much as a wait
        if scope.cancelled_caught:
            if self._given_up:
                raise TransportClosed("the query was closed while it was connecting")
            raise ConnectTimeout(
                f"not connected in {timeout:g} s. Allow more time with initialize_timeout, or try the address by hand.", waited=timeout
            )

    def batches(self) -> Batches:
        """Return the lines of the peer, in batches, to be read inside `async with`."""
        return Batches(read_lines_of(self._transport))

    async def close(self) -> None:
        """Close the transport, once, in bounded time. Never raises."""
        if self._closed:
            return
        self._closed = True
        self._time_limits.end()
        self._failure.log_untold()
        try:
            await self._end.close(at_once=bool if self._at_once is None else self._at_once.close)
        except (Exception, anyio.get_cancelled_exc_class()) as exc:
            # a cancellation that comes through the shield is the end of the event loop, which is no error
            logger.log(logging.ERROR if isinstance(exc, Exception) else logging.DEBUG, "closing the transport failed", exc_info=True)

    # The start and the end

    def begin(self, live: Callable[[], Awaitable[object]], *, name: str) -> BackgroundTask:
        """Start the task of the conversation with `live`, unless it is running, and return it."""
        if self.task is None:
            self.loop = HostLoop()  # this one; `check_loop()` comes first, for a query that was made in another
            self._clock = clock_here()
            self._connects_at_once = not is_stopped_here()  # else the first wait ends it, and nothing is started
            self.task = BackgroundTask.spawn(live, name=name)
        return self.task

    def become_ready(self) -> None:
        """Note that the start has succeeded."""
        self.is_open = not self.is_over
        self.ready.set()

    def fail_start(self, error: ClaudeTransportError) -> None:
        """Note that the start has failed. Changes nothing when it is over."""
        if not self.ready.is_set():
            self.start_error = error
            self.ready.set()
            self.ask_to_close(timeout=0.0, hurry=True)

    @property
    def patience(self) -> float:
        """The seconds that the peer gets to end by itself when the caller names none."""
        return self._end.patience(DEFAULT_CLOSE_TIMEOUT)

    def ask_to_close(self, *, timeout: float, wait_for_background: bool = False, hurry: bool = False) -> None:
        """Ask the conversation to end, in `timeout` seconds. Of several calls, the shortest time counts. Stops connecting.

        With `hurry`, everything ends within the time for closing, also what is under way.
        """
        is_first = not self.close_requested.is_set()
        patience = self._end.begin(timeout=timeout, hurry=hurry)
        self.close_timeout = patience if is_first else min(patience, self.close_timeout)
        self.wait_for_background = wait_for_background and (is_first or self.wait_for_background)
        self.is_open = False
        self.close_requested.set()
        self._given_up = True
        self._held.give_up()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._on_close_requested is not None:
            self._on_close_requested()

    def call_on_close(self, func: Callable[[], object] | None) -> None:
        """Have each `ask_to_close()` call `func` from now on; None for no function."""
        self._on_close_requested = func

    def cut_off(self) -> None:
        """Note that the peer does not get to end by itself."""
        if not self.ended.is_set():
            self._ended_by_itself = False

    def end(self, error: ClaudeTransportError | None) -> None:
        """Note that nothing more will come, because of `error` or after a good end. Fails the requests, and the lines in the queue."""
        self.is_open = False
        self.ended.set()
        self._held.give_up()
        self.error = error
        if not self.close_requested.is_set():
            self._failure.mark_told(error)
        self.lost_turns = self._conversation.open_turns
        self._dropped_tasks = dict(self._conversation.background_agents)
        if self._pending:
            cause = error or ended_before_answer(self.info, failure=self._failure.error)
            for request in self._pending.values():
                request.settle(cause)
        self._fail_writing("the conversation has ended")

    def report(self) -> CloseReport:
        """Return how the conversation ended."""
        info = self.info
        return CloseReport(
            ended_by_itself=self._ended_by_itself,
            lost_turns=self.lost_turns,
            dropped_tasks=self._dropped_tasks,
            exit_code=info.exit_code,
            signal=info.signal,
            killed=info.killed,
            unstored_entries=info.unstored_entries,
        )

    @property
    def is_over(self) -> bool:
        """True once the peer has ended, or closing was asked for."""
        return self.ended.is_set() or self.close_requested.is_set()

    @property
    def phase(self) -> str:
        """For people: not started, starting, ready, closing, ended, closed, or failed to start."""
        if self.start_error is not None:
            return "failed to start"
        if self.task is None:
            return "closed" if self.close_requested.is_set() else "not started"
        if self.task.finished:
            return "closed"
        if self.ended.is_set():
            return "ended"
        if self.close_requested.is_set():
            return "closing"
        return "ready" if self.ready.is_set() else "starting"

    def call(self, func: Callable[[], object]) -> None:
        """Call `func` in the event loop of the conversation, from any thread; at once when that loop runs the caller."""
        if self.loop is None or self.loop.is_current:
            func()
        else:
            self.loop.call_soon(func)  # a loop that is over has ended everything in it

    def check_loop(self) -> None:
        """Raise `UsageError` in another event loop than that of the conversation: a wait there could last for ever."""
        if self.loop is not None and not self.loop.is_current:
            raise UsageError(
                "this query runs in another event loop: from a thread, call it there, through an anyio.from_thread.BlockingPortal",
                code="usage.wrong_loop",
            )

    def check_open(self) -> None:
        """Raise when nothing can be asked: not started, closed, ended, or called in another event loop."""
        self.check_loop()
        if self.task is None and not self.close_requested.is_set():
            raise NotConnected("start() has not been called: use `async with`, or await start() first")
        if self.ended.is_set():
            raise self.gone("the conversation has ended: make a new Query to go on") from self.error
        if self.close_requested.is_set():
            raise TransportClosed("the query is closed")

    async def until_ready(self) -> None:
        """Wait for the start. Raises what it failed with, and as `check_open()` does."""
        self.check_open()
        if not self.ready.is_set():
            await self.ready.wait()
            if self.start_error is not None:
                raise raised_again(self.start_error)
            self.check_open()

    @contextlib.contextmanager
    def awaiting_ready(self) -> Iterator[None]:
        """Count the block as one that waits for the start, when the start is not over yet."""
        if self.ready.is_set():
            yield
            return
        done = Flag()
        self._early.append(done)
        try:
            yield
        finally:
            self._early.remove(done)
            done.set()

    async def nothing_waits_for_ready(self) -> None:
        """Wait until every block of `awaiting_ready()` that is entered now has been left."""
        for done in tuple(self._early):
            self.check_loop()
            await done.wait()

    def gone(self, message: str) -> TransportClosed:
        """Return `TransportClosed` with what is known of the end of the peer."""
        known = self.error if isinstance(self.error, ProcessError) else self.info
        gone = TransportClosed(message, exit_code=known.exit_code, signal=known.signal, stderr_tail=known.stderr_tail)
        gone.__cause__ = self.error
        return gone

    # Lines on their way out

    async def held_back(self, line: bytes) -> bytes:
        """Return the line of a prompt as `before_prompt` of the transport wants it, when that lets it pass.

        Raises what `before_prompt` raises, and as `check_open()` does when the conversation ended meanwhile.
        """
        if self.terms.before_prompt is None:
            return line
        line = await self._held.hold(line, self.terms.before_prompt)
        self.check_open()
        return line

    async def nothing_is_held_back(self) -> None:
        """Wait until no prompt of now waits for `before_prompt` any more."""
        await self._held.wait_for_all()

    async def send(self, delivery: Delivery) -> None:
        """Wait until the transport has taken the line. Raises what kept it from being taken."""
        if self._write_now is not None and delivery.line is not None and not is_being_cancelled_here():
            await anyio.lowlevel.checkpoint_if_cancelled()  # the line of a cancelled caller is not written
            # nothing has run since the caller's last step, unless it was cancelled
            if self._write_now(delivery.line):
                delivery.settle(None)
                await anyio.lowlevel.checkpoint()
                return
        self.put(delivery)
        try:
            await delivery.done.wait()
        except anyio.get_cancelled_exc_class():
            # the end of the input stays in the queue: later senders were already told of it
            if delivery.line is not None and self._queue and delivery in self._queue:
                self._queue.remove(delivery)
                self._queued_controls -= delivery.is_control
                self._waiting_bytes -= delivery.size
            raise
        if delivery.error is not None:
            raise self._failure.told(delivery.error)

    def is_void(self, delivery: Delivery) -> bool:
        """Return True when the peer can never get to see the line: it failed, was taken back, or was never sent."""
        if delivery.error is not None:
            return True
        return not (delivery.done.is_set() or delivery in self._unsettled)

    def put(self, delivery: Delivery) -> None:
        """Add the line to the queue, without waiting until it is written."""
        is_end = delivery.line is None
        if self._input_ended:
            delivery.settle(None if is_end else InputClosed("end_input() was called: nothing more can be sent"))
        elif self._unwritable and (not is_end or self._writing_over):
            delivery.settle(self._write_error())
        elif is_end and self._write_now is not None and self._at_once is not None and self._at_once.end_input():
            self._input_ended, self._write_now = True, None
            delivery.settle(None)
        elif delivery.is_control and self._is_prompt_in_flight:
            self._let_pass(delivery)
        else:
            self._input_ended = is_end
            self._write_now = None
            self._enqueue(delivery)
            self._waiting_bytes += delivery.size
            self._arrival.fire()
            if self._start_writer is not None:
                start, self._start_writer = self._start_writer, None
                start(self._write_all)

    def _enqueue(self, delivery: Delivery) -> None:
        if not self._queue:
            self._queue = deque()
        self._queue.append(delivery)
        self._queued_controls += delivery.is_control

    @property
    def _is_prompt_in_flight(self) -> bool:
        """Whether a prompt is being written to a transport that several tasks may write to at once."""
        first = self._in_flight[0] if self._in_flight else None
        return self._is_ours and first is not None and first.line is not None and not first.is_control

    def _let_pass(self, *deliveries: Delivery) -> None:
        """Write control lines beside a prompt that is being written."""
        passing = cast("PassingLines", self._passing)  # which is there while a line is being written
        for delivery in deliveries:
            passing.put(delivery)

    def _let_queued_pass(self) -> None:
        """Write the control lines that wait behind a prompt beside it."""
        controls = [delivery for delivery in self._queue if delivery.is_control]
        self._queue = deque(delivery for delivery in self._queue if not delivery.is_control) or ()
        self._queued_controls = 0
        self._waiting_bytes -= sum(delivery.size for delivery in controls)
        self._let_pass(*controls)

    def _next_line(self) -> Delivery:
        queue = cast("deque[Delivery]", self._queue)
        delivery = queue.popleft()
        self._queued_controls -= delivery.is_control
        if not queue:
            self._queue = ()
        return delivery

    def check_room(self) -> None:
        """Raise `ProtocolError` when more than `MAX_WAITING_BYTES` wait for a peer that asks and does not read the answers."""
        waiting = self._waiting_bytes + (0 if self._passing is None else self._passing.size)
        if waiting > MAX_WAITING_BYTES:
            raise ProtocolError(
                f"the CLI goes on asking and does not read the answers: {waiting} bytes wait for it, and at most {MAX_WAITING_BYTES} may"
            )

    def begin_writing(self, start: Callable[..., object], *, on_unwritten: Callable[[ClaudeTransportError], object]) -> None:
        """Write from now on. `start` starts the writing task, with the first line that cannot be written at once.

        `on_unwritten` is called with the error of a line for which nothing waits.
        """
        self._start_writer = start
        self._passing = PassingLines(start=start, write=self._transport.write, on_failure=self._note_failure)
        self._on_unwritten = on_unwritten
        self._write_now = None if self._at_once is None else self._at_once.write

    @property
    def is_writing(self) -> bool:
        """True while the transport is being written to."""
        return bool(self._unsettled)

    @property
    def _unsettled(self) -> list[Delivery]:
        """The lines that are being written, and those that wait."""
        return [*self._in_flight, *(self._passing or ()), *self._queue]

    async def _write_all(self) -> None:
        """Write what is put in the queue, in order, until `stop_writing()`."""
        try:
            self.writing.set()
            while True:
                while not self._queue:
                    if self._writing_over:
                        return
                    if not self._input_ended and not self._unwritable:
                        self._write_now = None if self._at_once is None else self._at_once.write
                    await self._arrival.wait()
                first = self._next_line()
                self._in_flight = [first]
                self._waiting_bytes -= first.size
                try:
                    try:
                        if first.line is None:
                            if self._passing is not None:
                                await self._passing.wait()
                            await self._transport.end_input()
                        elif self._is_ours:
                            await self._transport.write(self._with_more(first) if self._queue else first.line)  # type: ignore[arg-type]
                        else:
                            # one that was written for the official SDK expects text, and may frame what each call gives it
                            await self._transport.write(first.line.decode())
                    except anyio.get_cancelled_exc_class() as exc:
                        refuse_stray(exc)
                        raise
                except Exception as exc:  # noqa: BLE001 - a transport of another library may raise anything; it is translated here
                    self._note_failure(exc, first)
                else:
                    self._settle_written()
                self._in_flight = []
                del first  # it would be kept until the next line comes
        finally:
            self.stop_writing(TransportClosed("the conversation is closed"))

    def _note_failure(self, exc: Exception, first: Delivery) -> None:
        """Note what the transport raised for `first`, a line or the end of the input. The first failure counts, whatever ends next."""
        error = translated(exc, "the transport could not end its input" if first.line is None else "the transport could not write")
        self._failure.note(error)
        if first.line is None and not tells_of_the_end(error):
            first.settle(self._failure.error)  # else the end has done all it can: the peer is gone
        self._fail_writing(error)

    def first_error(self, end: ClaudeTransportError | None) -> ClaudeTransportError | None:
        """Return why the conversation ends whose reading ended with `end`, or well: what the transport raised first."""
        return self._failure.or_end(end)

    def _settle_written(self) -> None:
        for delivery in self._in_flight:
            delivery.settle(None)

    def _with_more(self, first: Delivery) -> bytes:
        """Return the line of `first` with the next lines of its kind behind it, up to `_BATCH_BYTES` and to the end of the input.

        Control lines that wait behind a prompt are written beside it.
        """
        if self._queued_controls and self._is_prompt_in_flight:
            self._let_queued_pass()
        line = cast("bytes", first.line)
        lines, size = [line], len(line)
        while self._queue and size < _BATCH_BYTES and (line_behind := self._queue[0].line) is not None:
            if self._queue[0].is_control is not first.is_control:
                break
            delivery = self._next_line()
            self._in_flight.append(delivery)
            self._waiting_bytes -= delivery.size
            lines.append(line_behind)
            size += len(line_behind)
        return b"".join(lines)

    def _fail_writing(self, why: ClaudeTransportError | str) -> None:
        """Settle every line that is in the queue or being written, and every later one, with an error that says `why`. The first counts.

        The input can still be ended: a peer that takes no line may yet understand that there will be no more.
        """
        self._write_now = None
        self._unwritable = self._unwritable or why
        in_flight, waiting = [*self._in_flight, *(() if self._passing is None else self._passing.take_all())], self._queue
        self._queue = ()
        self._waiting_bytes = self._queued_controls = 0
        for delivery in in_flight:
            # an end that the transport is already at has done all it can: nothing more is read
            delivery.settle(None if delivery.line is None else self._write_error())
        for delivery in waiting:
            if delivery.line is None and not self._writing_over:
                self._enqueue(delivery)  # later senders were told of it, so it will not be asked for again
            else:
                delivery.settle(self._write_error())

    def _write_error(self) -> ClaudeTransportError:
        """Return the error for lines that cannot be written any more."""
        if isinstance(self._unwritable, str):
            self._unwritable = self.gone(self._unwritable)
        return self._unwritable

    def stop_writing(self, error: ClaudeTransportError | None = None) -> None:
        """Settle everything, with `error` when nothing has failed before. From now on not even the end of the input is written."""
        self._writing_over = True
        self._start_writer, self._on_unwritten = None, _ignore
        self._fail_writing(error or "the conversation is closed")
        self._passing = None  # it holds methods of this object
        self._arrival.fire()

    async def flush(self) -> None:
        """Wait until everything that is in the queue now is settled."""
        for delivery in self._unsettled:
            await delivery.done.wait()

    async def write_last(self, line: bytes) -> None:
        """Write one more line after everything has been settled, when the transport still takes it within `_LAST_WRITE` seconds.

        In haste it gets a quarter of the time that is left.
        """
        with anyio.move_on_after(min(_LAST_WRITE, self._end.left / 4), shield=True):
            try:
                await guarded(self._transport.write(line if self._is_ours else line.decode()))  # type: ignore[arg-type]
            except Exception:
                # the transport is closed next, and nothing promised that it still takes a line
                logger.debug("the last line could not be written", exc_info=True)

    # Requests and their answers

    @property
    def pending_requests(self) -> dict[str, str]:
        """Every request without an answer that is remembered, here or in the conversation: id to subtype."""
        return {**self._conversation.pending_requests, **{request.request_id: request.subtype for request in self._pending.values()}}

    def request_line(self, subtype: str, fields: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return a new request id, and the line of a request under it. Raises `UsageError` when the fields are no JSON."""
        request_id = self._conversation.request(subtype)
        try:
            return request_id, encode_control_request(request_id, subtype, **fields)
        except BaseException:
            self._conversation.abandoned(request_id)
            raise

    def tell(self, subtype: str, **fields: Any) -> None:
        """Send a request without waiting for its answer."""
        self.say(self.request_line(subtype, fields)[1])

    def say(self, line: bytes) -> None:
        """Write a line for which nothing waits. When it cannot be written, and not because the peer is gone, `on_unwritten` is called."""
        self.put(Delivery(line, self._not_said))

    def _not_said(self, error: ClaudeTransportError) -> None:
        if not (says_peer_is_gone(error) or self.is_over):
            self._on_unwritten(error)

    def prepare(self, subtype: str, fields: Mapping[str, Any]) -> PendingRequest:
        """Register a request, before its line is written. Raises `UsageError` when the fields are no JSON."""
        request_id, line = self.request_line(subtype, fields)
        request = self._pending[request_id] = PendingRequest(request_id, subtype, line)
        return request

    def post(self, request: PendingRequest) -> None:
        """Write a prepared request. When that fails, the request fails with the reason that reading finds, if it finds one."""
        if self._write_now is not None and self._write_now(request.line):
            return  # usual: the writing task, and its wake-up, are left out

        def fail(error: ClaudeTransportError) -> None:
            if self.ended.is_set() or isinstance(error, InputClosed) or not tells_of_the_end(error):
                request.settle(error)
            else:
                request.doubt(error)

        self.put(Delivery(request.line, fail))

    async def answer_to(self, request: PendingRequest, *, timeout: float) -> ControlResponse:
        """Wait for the successful answer. Whatever happens, the request is forgotten then.

        Raises:
            ControlRequestFailed: the peer refused.
            ControlTimeout: it did not answer in `timeout` seconds.
            ClaudeTransportError: the reason why it never will.
        """
        try:
            if self.ready.is_set():
                self._time_limits.set(request, self._clock() + timeout)
                await request.settled()
            else:  # there is one request at a time, and a scope costs less than the task
                with anyio.move_on_after(timeout):
                    await request.settled()
        finally:
            self._pending.pop(request.request_id, None)
            self._conversation.abandoned(request.request_id)
        if request.error is not None:
            raise self._failure.told(request.error)
        names = {"subtype": request.subtype, "request_id": request.request_id}
        response = request.response
        if response is None:
            tail = self.info.stderr_tail
            raise ControlTimeout(f"no answer to {request.subtype} in {timeout:g} s", waited=timeout, stderr_tail=tail, **names)
        if not response.ok:
            refused = ControlRequestFailed(
                response.error or f"{request.subtype} was refused",
                error_code=response.error_code,
                reason=response.error or "",
                **names,
            )
            refused.add_note(f"claude refused the request {request.subtype}; correct its fields, or leave it out")
            raise refused
        return response

    def settle_request(self, request_id: str, outcome: ControlResponse | ClaudeTransportError) -> None:
        """Give a pending request its answer, or the reason why it has none. Needs no task."""
        request = self._pending.get(request_id)
        if request is not None:
            request.settle(outcome)

    @property
    def awaits_answer(self) -> bool:
        """True while a request waits for its answer, which only reading can bring."""
        return any(request.is_open for request in self._pending.values())


class Batches:
    """Batches of lines, read inside `async with`: its end closes the iterator of the transport, when that can be closed.

    A generator that is only dropped is closed by the garbage collector, at a time and in a thread that cannot be foreseen.
    """

    def __init__(self, lines: AsyncIterator[Sequence[bytes]]) -> None:
        self._lines = lines
        self._next: Callable[[], Awaitable[Sequence[bytes]]] = lines.__anext__
        self._read_in_a_row = 0

    async def pour(self, hand_on: Callable[[Sequence[bytes]], bool]) -> bool:
        """Call `hand_on` with each batch until it returns True. Return False when the transport has ended well.

        Where the transport can do it, `hand_on` is called where the bytes are noticed, and not in the caller's task.
        """
        try:
            if isinstance(self._lines, PouredLines):
                return await self._lines.pour(hand_on)
            while True:
                if self._read_in_a_row >= _FAIRNESS:
                    self._read_in_a_row = 0
                    await anyio.lowlevel.checkpoint()
                lines = await self._next()
                self._read_in_a_row += _BATCH_IS_WORTH + len(lines)
                if hand_on(lines):
                    return True
        except StopAsyncIteration:
            return False
        except anyio.get_cancelled_exc_class() as exc:
            refuse_stray(exc)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        aclose = getattr(self._lines, "aclose", None)
        if aclose is not None:
            try:
                with anyio.move_on_after(_READER_CLOSE_TIMEOUT, shield=True):
                    await aclose()
            except Exception:
                # nothing is read from it any more, so its bad end changes nothing
                logger.debug("closing the reading side of the transport failed", exc_info=True)


def _ignore(_error: ClaudeTransportError) -> None:
    """Do nothing, before anything is written."""


def _loop_here() -> HostLoop | None:
    """Return the running event loop, or None."""
    try:
        return HostLoop()
    except RuntimeError:
        return None
