"""`Query`: a conversation with Claude over any transport.

What it does all day is in one place below, under "the loop": a batch of lines is decoded, the `Conversation` says what it means, its
messages are stored where the bytes were noticed, and what else it asks for is done by the task that reads; one task writes beside it,
another waits until closing is asked for. It does not matter which task calls what, because only that loop touches the transport.
Callbacks run beside it, so that reading never waits for them.

How it begins is in `starting`, how it is closed in `closing`, what it says in `talking`, what can be seen of it in `facts`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

import anyio
from anyio.abc import TaskGroup

from claude_transport.errors import ClaudeTransportError, ResultError, TransportClosed, UsageError
from claude_transport.printable import printable
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.conversation import Action, Cancel, Conversation, Deliver, Reject, Resolve, Settle, Start
from claude_transport.protocol.diagnosis import error_for
from claude_transport.protocol.messages import Message
from claude_transport.query.arguments import check_fields, check_number, check_transport
from claude_transport.query.cancellation import meant_for_the_program
from claude_transport.query.closing import Closing
from claude_transport.query.connection import Connection
from claude_transport.query.controls.asking import said
from claude_transport.query.endings import cause_of_end, translated
from claude_transport.query.facts import Facts
from claude_transport.query.handlers import CanUseToolCallback, HookMatcher, OnCallbackError
from claude_transport.query.life import DEFAULT_CLOSE_TIMEOUT, Life
from claude_transport.query.outbox import Outbox
from claude_transport.query.questions import OnRequest, Questions
from claude_transport.query.reports import CloseReport
from claude_transport.query.requests import Requests
from claude_transport.query.starting import Starting
from claude_transport.query.storage import Storage
from claude_transport.query.talking import Talking
from claude_transport.query.watchdog import DEFAULT_WATCHDOG, Watchdog
from claude_transport.query.watching import Watch
from claude_transport.transport import TransportLike
from claude_transport.wrappers.redactor import redactor_for

__all__ = ["Query"]

logger: logging.Logger = logging.getLogger(__name__)

_LAST_WORDS = 1.0
"""Seconds for what is still to be written when a callback has ended the conversation: its answer above all."""

_READER_GRACE = 1.0
"""Seconds that a cancelled read gets to end before the transport is closed under it."""


class Query(Facts, Talking):
    """A conversation over `transport`: initialised, with turns, control requests and callbacks.

    Args:
        transport: anything with the six methods of `Transport`; connected if it is not yet, closed with the query.
        can_use_tool: asked before a tool runs that needs permission. Options that would keep it from ever being called are refused by
            `start()`; what they keep from it in part is logged as a warning.
        hooks: event name to matchers with callbacks.
        mcp_servers: MCP servers by name, whose tools are called `mcp__<name>__<tool>`: `mcp.server.Server` or `MCPServer` objects,
            which run in this process wherever the CLI is, and configurations (stdio, http, sse) of what the CLI runs or reaches itself.
        agents: subagent definitions by name, as for `initialize`.
        initialize: further fields for the `initialize` request; they win over all others.
        on_request: claims requests of the CLI that have no handler here: `await on_request(subtype, fields)` gives the
            response fields, or None for an honest "unsupported".
        on_callback_error: what a callback that raises means: "deny" (default) or "allow".
        initialize_timeout: seconds for connecting, again for the answer to `initialize`, and again for MCP servers to be connected.
        transport_close_timeout: seconds for the transport's own `close()`, before it is given up.
        max_buffered_bytes: bytes of memory for messages that were read and not yet taken (see `buffered_bytes`). Over it, reading
            pauses; while something waits for what only reading can bring, unread messages are given up instead.
        watchdog: after how long a turn that stands still is called stalled; None for never.

    Raises `ConfigurationError` for arguments that would fail, or do nothing, later.
    """

    _due: Sequence[Action] = ()  # what the last batch asks for, when it was more than messages
    _failure: ClaudeTransportError | None = None  # of a strict transport's bad line

    def __init__(
        self,
        transport: TransportLike,
        *,
        can_use_tool: CanUseToolCallback | None = None,
        hooks: Mapping[str, Sequence[HookMatcher]] | None = None,
        mcp_servers: Mapping[str, Any] | None = None,
        agents: Mapping[str, Any] | None = None,
        initialize: Mapping[str, Any] | None = None,
        on_request: OnRequest | None = None,
        on_callback_error: OnCallbackError = "deny",
        initialize_timeout: float = 60.0,
        transport_close_timeout: float = 60.0,
        max_buffered_bytes: int = 64 * 2**20,
        watchdog: Watchdog | None = DEFAULT_WATCHDOG,
    ) -> None:
        check_transport(transport)
        check_number("initialize_timeout", initialize_timeout, positive=True)
        check_number("transport_close_timeout", transport_close_timeout, positive=False)
        check_number("max_buffered_bytes", max_buffered_bytes, positive=True)
        redactor = functools.partial(redactor_for, transport, confidential=mcp_servers)
        self._questions = Questions(
            can_use_tool, hooks, on_request, on_error=on_callback_error, mcp_servers=mcp_servers, make_redactor=redactor
        )
        self._questions.mcp.tell = self._tell_for_mcp
        self._conversation = Conversation()
        self._connection = Connection(transport, close_timeout=transport_close_timeout)
        self._decoder = LineDecoder(strict=self._connection.is_strict)
        self._storage = Storage(max_buffered_bytes=max_buffered_bytes)
        self._outbox = Outbox(transport)
        self._requests = Requests(self._conversation, self._outbox, self._connection)
        self._life = Life(self._connection)
        self._storage.check_reader, self._storage.call_in_loop = self._life.refuse_elsewhere, self._life.call
        self._watch = Watch(watchdog, self._conversation, self._connection, self._storage)
        own = {"agents": agents, "hooks": self._questions.hook_config, "sdkMcpServers": list(self._questions.mcp.names) or None}
        fields = check_fields({**said(own), **(initialize or {})})
        parts = (self._life, self._connection, self._conversation, self._requests, self._storage, self._questions)
        self._start = Starting(*parts, fields=fields, timeout=initialize_timeout)
        self._compatibility = self._start.compatibility
        self._close = Closing(
            self._life,
            self._connection,
            self._conversation,
            self._storage,
            requests=self._requests,
            outbox=self._outbox,
            questions=self._questions,
        )
        self._tasks: TaskGroup | None = None
        self._reading_over = anyio.Event()

    # ------------------------------------------------------------------------------------------------- starting and closing

    async def start(self) -> None:
        """Connect if needed and initialise; does nothing when that has been done. A cancelled start closes the query.

        Raises:
            ConfigurationError, CLIConnectionError: there is nothing to talk to, or `can_use_tool` would never be called (see `shadowing`).
            CLIVersionMismatch: the CLI is too old, or too old for an option, a hook event or a field of `initialize`.
            ConnectTimeout: no connection, or no answer to `initialize`, in `initialize_timeout` seconds.
            ProcessError, ConnectionLost: the peer ended before it answered.
            CLIJSONDecodeError: the peer ended, and nothing that it said was JSON.
            ResultError: the CLI reported a failed start (recording 16g).
            ControlRequestFailed: the CLI refused the `initialize` fields, or an MCP server could not be connected (`mcp_server_failed`).
            TransportClosed: the query is closed, or was closed meanwhile.
        """
        await self._start.start(self._live)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
            return self
        except BaseException:
            self.abandon()  # a Ctrl-C may come between the two lines above
            raise

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self, *, wait_for_background: bool = False, timeout: float = DEFAULT_CLOSE_TIMEOUT) -> CloseReport:
        """End the conversation and close the transport, from any task; a cancelled close still closes, in 5 s at most of the peer's time.

        A turn that is running is interrupted, input ends, and the peer gets `timeout` seconds to end by itself. With
        `wait_for_background`, that time begins with waiting for running turns and background agents instead.
        The transport is closed in any case; after that, callbacks that resist their cancellation are waited for. Of several who close
        at once, the least patient decides.
        Called from one of the query's own callbacks it only begins to close, since closing waits for callbacks.
        """
        return await self._close.finish(timeout=timeout, wait_for_background=wait_for_background)

    def abandon(self, *, timeout: float = DEFAULT_CLOSE_TIMEOUT) -> None:
        """Begin to close without waiting for it, with the `timeout` of `aclose()`: for places that cannot await, in any thread."""
        self._close.abandon(timeout=timeout)

    # ------------------------------------------------------------------------------------------------------------ the loop

    async def _converse(self) -> None:
        """The reader, the writer and the one who waits to close, side by side."""
        initialize = self._start.prepare()
        async with anyio.create_task_group() as self._tasks:
            self._requests.post(initialize)
            self._tasks.start_soon(self._read)
            self._tasks.start_soon(self._start.finish, initialize)
            self._tasks.start_soon(self._close_when_asked)
            self._tasks.start_soon(self._report_stalls)
            await self._write()

    async def _read(self) -> None:
        error: ClaudeTransportError | None = None
        try:
            async with self._connection.batches() as batches:
                while await batches.pour(self._take):
                    self._perform_due()
                    if await self._storage.make_room(closing=self._life.close_requested):
                        self._watch.restart()
        except Exception as exc:  # noqa: BLE001 - somebody else's transport may raise anything; it is translated here
            error = translated(exc, "the transport could not read")
        finally:
            self._reading_over.set()
        self._end(error)

    def _take(self, lines: Sequence[bytes]) -> bool:
        """Read a batch, and deliver it if it is nothing but messages; True when there is more to do, which takes the reader's task.

        It may be called in no task at all, where bytes were noticed: nothing can be waited for, or started, in here.
        """
        try:
            messages = self._decoder.messages(lines)
        except ClaudeTransportError as exc:
            # a strict transport's first bad line ends the conversation, after what came before it
            messages, self._failure = cast("list[Message]", self._decoder.before_failure), exc
        kinds = self._decoder.kinds
        self._watch.saw(messages, kinds)
        self._connection.count_failures(messages, kinds)
        actions = self._conversation.received(messages, kinds)
        deliveries = [action for action in actions if isinstance(action, Deliver)]
        if len(deliveries) < len(actions):
            self._due = actions
            return True
        for delivery in deliveries:
            self._storage.put(delivery.messages, delivery.turns)
        return self._failure is not None or self._storage.is_overfull

    def _perform_due(self) -> None:
        actions, self._due = self._due, ()
        for action in actions:
            self._perform(action)
        if self._failure is not None:
            raise self._failure

    def _perform(self, action: Action) -> None:
        match action:
            case Deliver():
                self._storage.put(action.messages, action.turns)
            case Settle():
                self._storage.settle(action, self._life.error)
            case Resolve(request_id, response):
                self._requests.resolve(request_id, response)
            case Reject(request_id, result):
                self._requests.fail(request_id, error_for(result) or ResultError("the run failed", result=result))
            case Start(request):
                self._outbox.check_room()
                question = self._questions.take(request)
                if question is not None and self._tasks is not None:
                    self._tasks.start_soon(self._questions.answer, question, self._reply, self._end_by_crash)
            case Cancel(request_id):
                self._questions.cancel(request_id)

    # -------------------------------------------------------------------------------------------------- around and after it

    async def _live(self) -> None:
        """The whole life, in one task. However it ends, nobody is left waiting."""
        try:
            self._start.announce()
            self._start.brief(self._conversation)
            await self._connection.connect(timeout=self._start.timeout)
            await self._converse()
        except Exception as exc:  # noqa: BLE001 - as above
            self._life.fail_start(translated(exc, "the transport failed"))
        finally:
            self._end(None)
            self._outbox.close(self._life.gone("the conversation is closed"))
            self._life.fail_start(TransportClosed("the query was closed before it was ready"))
            await self._connection.close()
            with anyio.CancelScope(shield=True):
                await self._questions.mcp.aclose()

    async def _write(self) -> None:
        try:
            await self._outbox.run()
        finally:
            # before the callbacks are waited for: one that does not want to be cancelled must not keep a process alive
            self._end(None)
            with anyio.move_on_after(_READER_GRACE, shield=True):
                await self._reading_over.wait()
            await self._stop_what_was_guarded()
            await self._connection.close()
            if still := self._questions.open:
                logger.info("closing waits for callbacks that are still at work: %s", printable(", ".join(still)))

    async def _stop_what_was_guarded(self) -> None:
        """Interrupt a turn that was cut off: without its input, a CLI that does not block on failure would go on unasked."""
        if self._life.lost_turns and self._questions.guards and not self._start.blocks_on_failure:
            await self._outbox.write_last(self._requests.line("interrupt"))

    async def _close_when_asked(self) -> None:
        await self._close.ending_when_asked()
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _report_stalls(self) -> None:
        stall = await self._watch.next_stall()
        while not stall.killed:
            self._perform(self._watch.delivery_of(stall))
            stall = await self._watch.next_stall()
        self._perform(self._watch.delivery_of(stall))
        self._life.ended_by_itself = False
        self._end(self._watch.error_for(stall))
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _end_by_crash(self, name: str, crash: BaseException) -> None:
        """End the conversation, because the callback `name` raised what is no `Exception`; the peer has its answer before."""
        error = UsageError(
            f"{name} raised {type(crash).__name__}, which is no Exception and so ends the conversation. Catch it in the callback",
            code="usage.callback_failed",
        )
        error.__cause__ = crash
        with anyio.move_on_after(_LAST_WORDS, shield=True):
            await self._outbox.flush()
        if not self._life.ended.is_set():
            self._life.ended_by_itself = False
            self._end(error)
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        if (exit_of_program := meant_for_the_program(crash)) is not None:
            raise exit_of_program

    def _end(self, error: ClaudeTransportError | None) -> None:
        """The stream has ended: settle everything that is outstanding, at once, with the cause."""
        if self._life.ended.is_set():
            return
        for action in self._due:  # read, but the task that would have done it was cancelled in the same moment
            if not isinstance(action, Start):
                self._perform(action)
        self._due = ()
        error = cause_of_end(error, last=self._conversation.last_result, counters=self._decoder.counters)
        self._life.end(error, lost_turns=self._conversation.open_turns, dropped_tasks=self._conversation.background_agents)
        self._requests.fail_all(error)
        self._outbox.fail(self._life.gone("the conversation has ended"))
        for action in self._conversation.ended():
            self._perform(action)
        self._storage.end(error)

    def _reply(self, request_id: str, line: bytes) -> bool:
        is_wanted = self._conversation.answered(request_id)
        if is_wanted:
            self._outbox.post(line)
            self._watch.restart()
        self._storage.note_change()
        return is_wanted

    def _tell_for_mcp(self, name: str, message: dict[str, Any]) -> None:
        """What an in-process MCP server says on its own; the CLI's acknowledgement is of no interest."""
        self._requests.tell("mcp_message", server_name=name, message=message)
