"""`Connection`: the transport of one conversation, with everything that is written, asked and waited for through it.

It owns the start and the end of a conversation, the lines on their way out, the prompts that `SessionTerms.before_prompt` holds back
(`HeldPrompts`), and the requests that wait for an answer. It knows nothing of
turns and callbacks: `query` performs what the lines mean, `storage` keeps the messages, `questions` answers the CLI.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import anyio

from claude_transport.client.reports import CloseReport, ended_before_answer
from claude_transport.errors import ClaudeTransportError, ConnectTimeout, ControlRequestFailed, NotConnected, TransportClosed, UsageError
from claude_transport.exchange.ending import TransportEnd
from claude_transport.exchange.failures import ConversationEnd, connect_guarded, guarded, raised_again, says_peer_is_gone, translating
from claude_transport.exchange.incoming import Batches
from claude_transport.exchange.outgoing import Delivery, LineWriter
from claude_transport.exchange.requests import PendingRequest, PendingRequests
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop, LightEvent, clock_here, is_stopped_here
from claude_transport.protocol.codec import REFUSED, decode_dict
from claude_transport.protocol.control import ControlResponse, encode_control_request
from claude_transport.protocol.conversation import Conversation
from claude_transport.transport import AtOnce, BeforePrompt, Client, SessionTerms, TransportInfo, TransportLike, attach_to, read_lines_of

logger: logging.Logger = logger_for(__name__)

DEFAULT_CLOSE_TIMEOUT = 5.0
"""Seconds that the conversation gets to end by itself when the query is closed without haste. Then the transport is closed."""

_LAST_WRITE = 1.0
"""Seconds for the last line, after the conversation has ended."""


class Connection:
    """The transport of one conversation, its lines, its requests, and the moments of its life.

    Args:
        transport: connected when it is not yet, and closed in the end.
        conversation: hands out the ids of requests.
        end: closes the transport in its time.
    """

    __slots__ = (
        "__weakref__",
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
        "_given_up",
        "_held",
        "_on_close_requested",
        "_on_unwritten",
        "_transport",
        "close_requested",
        "close_timeout",
        "ended",
        "fate",
        "is_open",
        "lines",
        "loop",
        "lost_turns",
        "ready",
        "requests",
        "start_error",
        "task",
        "terms",
        "wait_for_background",
        "was_cut_off",
    )

    def __init__(self, transport: TransportLike, conversation: Conversation, *, end: TransportEnd) -> None:
        self._transport = transport
        self._conversation = conversation
        self._end = end
        self._connecting: anyio.CancelScope | None = None
        self._connects_at_once = self._given_up = self._closed = False

        self.terms: SessionTerms = SessionTerms()
        """What the transport asks of the conversation, and what it wants to be told. Known after `attach()`."""
        self.loop: HostLoop | None = _loop_here()
        """The event loop that the conversation runs in; before it begins, the loop that it was made in."""
        self.task: LoopTask | None = None
        """The task that the conversation runs in."""
        self.ready: LightEvent = LightEvent()
        """Set when the start is over: it succeeded, or `start_error` says why not."""
        self.start_error: ClaudeTransportError | None = None
        self.is_open: bool = False
        """True while prompts can be sent: ready, not closing, not ended. A plain attribute, because each prompt looks at it."""
        self._early: list[LightEvent] = []
        self._held = HeldPrompts()
        self.close_requested: LightEvent = LightEvent()
        self._on_close_requested: Callable[[], object] | None = None
        self.close_timeout: float = DEFAULT_CLOSE_TIMEOUT
        self.wait_for_background: bool = False
        self.fate: ConversationEnd = ConversationEnd(transport)
        """How the conversation ends."""
        self.ended: LightEvent = self.fate.ended
        """Set when nothing more will come from the peer."""
        self.lost_turns: tuple[str, ...] = ()
        self.was_cut_off: bool = False
        """Whether the conversation ended while a turn or a background agent was at work."""
        self._dropped_tasks: dict[str, str] = {}
        self._ended_by_itself = True
        self.lines: LineWriter = LineWriter(transport, end=self.fate)
        """Writes prompts, requests and answers."""
        self.requests: PendingRequests[str] = PendingRequests(self.lines, end=self.fate, is_control=True)
        """The control requests of this program that wait for their answers."""
        self._on_unwritten: Callable[[ClaudeTransportError], object] = _ignore
        self._clock: Callable[[], float] = anyio.current_time
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
        return self.fate.info

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
        self.requests.end()
        self.fate.log_untold()
        try:
            await self._end.close(at_once=bool if self._at_once is None else self._at_once.close)
        except (Exception, anyio.get_cancelled_exc_class()) as exc:
            # a cancellation that comes through the shield is the end of the event loop, which is no error
            logger.log(logging.ERROR if isinstance(exc, Exception) else logging.DEBUG, "closing the transport failed", exc_info=True)

    # The start and the end

    def begin(self, live: Callable[[], Awaitable[object]], *, name: str) -> LoopTask:
        """Start the task of the conversation with `live`, unless it is running, and return it."""
        if self.task is None:
            self.loop = HostLoop()  # this one; `check_loop()` comes first, for a query that was made in another
            self._clock = clock_here()
            self._connects_at_once = not is_stopped_here()  # else the first wait ends it, and nothing is started
            self.task = LoopTask.spawn(live, name=name)
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
        self.fate.end(error)
        self._held.give_up()
        if not self.close_requested.is_set():
            self.fate.mark_told(error)
        self.lost_turns = self._conversation.open_turns
        self.was_cut_off = not self._conversation.quiet
        self._dropped_tasks = dict(self._conversation.background_agents)
        if len(self.requests):
            self.requests.fail_all(error or ended_before_answer(self.info, failure=self.fate.first_failure))
        self.lines.fail("the conversation has ended")

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
        """The phase of the conversation, in words for people: not started, starting, ready, closing, ended, closed, or failed to start."""
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
            raise self.fate.gone("the conversation has ended: make a new Query to go on") from self.fate.error
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
        done = LightEvent()
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

    def begin_writing(self, start: Callable[..., object], *, on_unwritten: Callable[[ClaudeTransportError], object]) -> None:
        """Write from now on. `start` starts the writing task, with the first line that cannot be written at once.

        `on_unwritten` is called with the error of a line for which nothing waits.
        """
        self._on_unwritten = on_unwritten
        self.lines.begin(start, at_once=self._at_once)

    def stop_writing(self) -> None:
        """Settle every line. From now on not even the end of the input is written."""
        self._on_unwritten = _ignore
        self.lines.stop()

    async def write_last(self, line: bytes) -> None:
        """Write one more line after everything has been settled, when the transport still takes it within `_LAST_WRITE` seconds.

        In haste it gets a quarter of the time that is left.
        """
        await self.lines.write_last(line, within=min(_LAST_WRITE, self._end.left / 4))

    def say(self, line: bytes) -> None:
        """Write a line for which nothing waits. When it cannot be written, and not because the peer is gone, `on_unwritten` is called."""
        self.lines.put(Delivery(line, self._not_said, is_control=True))

    def _not_said(self, error: ClaudeTransportError) -> None:
        if not (says_peer_is_gone(error) or self.is_over):
            self._on_unwritten(error)

    # Requests and their answers

    @property
    def pending_requests(self) -> dict[str, str]:
        """Every request without an answer that is remembered, here or in the conversation: id to subtype."""
        return {**self._conversation.pending_requests, **self.requests.names}

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

    def prepare(self, subtype: str, fields: Mapping[str, Any]) -> PendingRequest[str]:
        """Register a request, before its line is written. Raises `UsageError` when the fields are no JSON."""
        request_id, line = self.request_line(subtype, fields)
        return self.requests.add(request_id, subtype, line)

    async def answer_to(self, request: PendingRequest[str], *, timeout: float) -> ControlResponse:
        """Wait for the successful answer. Whatever happens, the request is forgotten then.

        Raises:
            ControlRequestFailed: the peer refused.
            ControlTimeout: it did not answer in `timeout` seconds.
            ClaudeTransportError: the reason why it never will.
        """
        try:
            # before the conversation is ready, there is one request at a time
            response: ControlResponse = await self.requests.answer_to(request, timeout=timeout, is_alone=not self.ready.is_set())
        finally:
            self._conversation.abandoned(request.key)
        if not response.ok:
            refused = ControlRequestFailed(
                response.error or f"{request.name} was refused",
                error_code=response.error_code,
                reason=response.error or "",
                subtype=request.name,
                request_id=request.key,
            )
            refused.add_note(f"claude refused the request {request.name}; correct its fields, or leave it out")
            raise refused
        return response


def _ignore(_error: ClaudeTransportError) -> None:
    """Do nothing, before anything is written."""


def _loop_here() -> HostLoop | None:
    """Return the running event loop, or None."""
    try:
        return HostLoop()
    except RuntimeError:
        return None


class HeldPrompts:
    """The prompts of one conversation that are not sent yet. They wait in the order of `hold()`."""

    __slots__ = ("_order", "_waiting")

    def __init__(self) -> None:
        self._order: anyio.Lock | None = None  # made for the first one: most conversations hold none back
        self._waiting: dict[anyio.CancelScope, LightEvent] = {}

    async def hold(self, line: bytes, before_prompt: BeforePrompt) -> bytes:
        """Return the line as `before_prompt` wants it; after `give_up()`, the line that was given.

        Raises what `before_prompt` raises, and `UsageError` when it returns no line, or that of another prompt.
        """
        if self._order is None:
            self._order = anyio.Lock(fast_acquire=True)  # a prompt that need not wait is sent in the same step
        over = LightEvent()
        with anyio.CancelScope() as scope:
            self._waiting[scope] = over
            try:
                async with self._order:
                    return _checked(await before_prompt(line), instead_of=line)
            finally:
                del self._waiting[scope]
                over.set()
        return line

    def give_up(self) -> None:
        """End all waits: nothing can be sent any more."""
        for scope in self._waiting:
            scope.cancel()

    async def wait_for_all(self) -> None:
        """Wait until each prompt that is held back now has been sent, refused or given up."""
        for over in tuple(self._waiting.values()):
            await over.wait()


def _checked(line: object, *, instead_of: bytes) -> bytes:
    if line is instead_of:
        return instead_of
    if not isinstance(line, bytes) or line.find(b"\n") != len(line) - 1:
        raise UsageError("before_prompt must return one line, as bytes with a newline at its end")
    before = decode_dict(instead_of)
    try:
        after = decode_dict(line)
    except REFUSED as exc:
        raise UsageError("before_prompt must return one line that holds a JSON object") from exc
    if (after.get("type"), after.get("uuid")) != (before.get("type"), before.get("uuid")):
        raise UsageError("before_prompt may change the content of a prompt, but neither its type nor its uuid")
    return line
