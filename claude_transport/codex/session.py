"""`CodexSession`: a conversation with `codex app-server` over any transport: threads, turns, approvals, tools, and how it is closed.

What a message means is decided in `codex.conversation`, what Codex asks is answered in `codex.callbacks`. Here are the requests, the
messages on their way to their readers, and the order of closing: Codex drops a running turn when its input ends, so a turn is interrupted
first.
"""

from __future__ import annotations

import contextlib
import logging
import math
import weakref
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from importlib.metadata import version
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from msgspec.structs import replace

from claude_transport.codex.callbacks import Callbacks, CodexTool, OnApproval
from claude_transport.codex.conversation import CodexConversation, CodexTurnResult, NewText, ThreadRecord, TurnRecord, TurnStatus
from claude_transport.codex.errors import MAX_INPUT_CHARS, check_sendable, error_of, refusal_of, too_large
from claude_transport.codex.features import CODEX_RANGE, codex_supports, require_method, version_of
from claude_transport.codex.messages import (
    ApprovalRequest,
    CodexMessage,
    CodexNotification,
    CodexTurnError,
    FileChangeApproval,
    RequestId,
    RequestResolved,
    ThreadData,
    decode_message,
)
from claude_transport.codex.post import CodexMailbox, MessageRouter
from claude_transport.errors import (
    ClaudeTransportError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    ControlError,
    ControlRequestFailed,
    ControlTimeout,
    JSONRPCError,
    MissingResult,
    NotConnected,
    ProcessError,
    ProtocolError,
    TransportClosed,
    UsageError,
)
from claude_transport.exchange.arguments import check_number, check_seconds
from claude_transport.exchange.failures import guarded, raised_again, tells_of_the_end
from claude_transport.exchange.outcomes import InterruptOutcome
from claude_transport.jsonrpc import JSONRPCPeer
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import LightEvent, Wakeup
from claude_transport.protocol.jsonrpc import Notification, Request
from claude_transport.transport import TransportInfo, TransportLike, check_transport

logger: logging.Logger = logger_for(__name__)

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds for the answer to a request."""

DEFAULT_CLOSE_TIMEOUT: Final = 5.0
"""Seconds that a running turn gets to end after its interrupt, and then the process after the end of its input."""

_MOST_BEYOND: Final = 256
"""Messages that are still taken when too much waits for its readers, before Codex is not read any more."""

_LAST_WORDS: Final = 1.0
"""Seconds for the reader to find out how the peer ended, when a request failed because of it."""

Content: TypeAlias = str | Sequence[Mapping[str, Any]]
"""A prompt: a text, or inputs of Codex such as `{"type": "text", "text": …}` and `{"type": "localImage", "path": …}`."""

_answering: ContextVar[object] = ContextVar("codex_session_that_is_answered", default=None)


class CodexCloseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `CodexSession.aclose()` returns: how the conversation was closed, and what was cut off.

    `interrupted_turns` are the ids of turns that were running and were interrupted by the close; `lost_turns` those of which Codex never
    said how they ended, also because it had died before. `ended_by_itself` is False when Codex did not end in time after the end of its
    input. `exit_code` and `signal` say how the process ended, if there is one; the exit code says nothing about the last turn. `killed` is
    True when it had to be ended by a signal.
    """

    interrupted_turns: tuple[str, ...] = ()
    lost_turns: tuple[str, ...] = ()
    ended_by_itself: bool = True
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False


class CodexTurn:
    """One prompt and its turn, which `send()` returns: iterate it for the messages of the turn, await `result()` for how it ended.

    A prompt that is sent while a turn runs becomes a part of that turn. Both handles then have the same `turn_id`, text and result, and
    this one has the messages from there on. Messages are kept for as long as the handle is held.
    """

    def __init__(self, record: TurnRecord, box: CodexMailbox, post: MessageRouter) -> None:
        self._record = record
        self._box = box
        self._post = post
        self._settled = LightEvent()
        self._error: ClaudeTransportError | None = None

    @property
    def thread_id(self) -> str:
        """The id of the thread in which the turn runs."""
        return self._record.thread_id

    @property
    def turn_id(self) -> str:
        """The id that Codex gave the turn."""
        return self._record.turn_id

    @property
    def status(self) -> TurnStatus:
        """`inProgress`, `completed`, `interrupted` or `failed`."""
        return self._record.status

    @property
    def text(self) -> str:
        """The answer so far: the last message of the model, as far as it came. Text that Codex says again is here once."""
        return self._record.text

    def __repr__(self) -> str:
        return f"<CodexTurn {self.turn_id} {self.status}>"

    async def result(self) -> CodexTurnResult:
        """Wait until the turn ends. Its messages need not be read for that. A failed turn is returned, not raised.

        The wait has no limit of its own: use `anyio.fail_after()`. When the line in which Codex says that the turn ended cannot be read, or
        is too long, the wait ends when the session is closed or its process ends.

        Raises:
            ProcessError: the process ended before the turn did. `exit_code`, `signal` and `stderr_tail` say how.
            ConnectionLost, ProtocolError: the connection broke, or was cut in the middle of a line.
            MissingResult: the session was closed, and Codex did not say how the turn ended.
        """
        if self._record.result is None:
            await self._post.needing(self._settled)
        else:
            await anyio.lowlevel.checkpoint()
        if self._record.result is None:
            raise self._failure()
        return self._record.result

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CodexNotification:
        message = await self._post.next(self._box)
        if message is not None:
            return message
        if self._record.result is None:
            raise self._failure()
        raise StopAsyncIteration

    def new_text(self) -> AsyncIterator[str]:
        """Return an iterator over the text of the model, piece by piece. It takes the messages of the turn: do not iterate both.

        What Codex says again after a cut stream does not come again; when it takes another course, the new text comes whole. The iteration
        ends with the turn, whether that failed or not: see `result()`. It raises as the iteration of the turn does.
        """
        return _Pieces(self)

    def deliver(self) -> CodexMailbox:
        """Return the mailbox of this handle. The session calls it; programs do not."""
        return self._box

    def settle(self, error: ClaudeTransportError | None = None) -> None:
        """Note that the turn has ended, or, with an error, that its end will not come. The session calls it; programs do not."""
        self._error = error
        self._box.end(error)
        self._settled.set()

    def _failure(self) -> BaseException:
        if self._error is None:
            return MissingResult("the session was closed before the turn had a result")
        return raised_again(self._error)


class _Pieces:
    """An iteration over the new text of a turn. Unlike a generator, it leaves nothing behind when it is left in the middle."""

    def __init__(self, turn: CodexTurn) -> None:
        self._turn = turn
        self._found = NewText()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while True:
            piece = self._found.of(await anext(self._turn))
            if piece:
                return piece


class CodexThread:
    """One thread of a Codex process: a conversation with a history of its own. `CodexSession` is its first thread and makes others.

    Threads of one process run at the same time. A thread has at most one running turn.
    """

    def __init__(self, connection: _Connection, data: ThreadData) -> None:
        self._connection = connection
        self._data = data

    @property
    def thread_id(self) -> str:
        """The id of the thread; `CodexSession(transport, resume=thread_id)` continues it in a new process."""
        return self._data.id

    @property
    def data(self) -> ThreadData:
        """What Codex said of the thread when it was started, resumed or forked."""
        return self._data

    @property
    def is_busy(self) -> bool:
        """True while a turn of this thread runs."""
        return self._record.running is not None

    @property
    def _record(self) -> ThreadRecord:
        return self._connection.conversation.thread(self._data.id)

    def __repr__(self) -> str:
        return f"<CodexThread {self.thread_id}>"

    async def send(self, content: Content, **fields: Any) -> CodexTurn:
        """Send a prompt. Returns a handle on its turn as soon as Codex has taken it, before the answer.

        While a turn runs, the prompt becomes a part of it, and the handle is one on that turn.

        Args:
            content: a text, or a list of inputs of Codex.
            fields: further fields of `turn/start`, in wire spelling (`model`, `effort`, `outputSchema`, …).

        Raises:
            PromptTooLong: the text has more than 1,048,576 characters.
            JSONRPCError: Codex refused the prompt.
            ControlTimeout: Codex did not answer in time. It may have taken the prompt.
            ProcessError, ConnectionLost, TransportClosed, NotConnected: Codex has ended, or the session is not open.
            UsageError: the content is neither text nor inputs.
        """
        inputs = _inputs(content)
        return await self._connection.send(self._data.id, {"threadId": self._data.id, "input": inputs, **fields})

    async def steer(self, content: Content) -> None:
        """Add to the running turn. The model is asked again with the new text, and what it was saying is cut short.

        Raises:
            ControlRequestFailed: no turn of this thread is running.
            JSONRPCError: Codex refused it, for example because the turn has just ended, or cannot be steered.
            PromptTooLong, ControlTimeout, ProcessError, ConnectionLost, TransportClosed, UsageError: as for `send()`.
        """
        inputs = _inputs(content)
        running = self._record.running
        if running is None:
            raise ControlRequestFailed("no turn is running that could be steered: send() starts one", subtype="turn/steer")
        fields = {"threadId": self._data.id, "expectedTurnId": running.turn_id, "input": inputs}
        await self._connection.request("turn/steer", fields)

    async def interrupt(self, *, timeout: float = DEFAULT_TIMEOUT) -> InterruptOutcome:
        """Interrupt the running turn. Returns whether Codex stops it; the turn then ends with the status `interrupted`.

        A command that the turn has started runs on, unless it had only just begun: it ends with the process. The method never raises for
        these outcomes, and never hangs.

        Raises:
            UsageError: `timeout` is no number of seconds.
        """
        check_seconds("timeout", timeout)
        running = self._record.running
        if running is None:
            await anyio.lowlevel.checkpoint()
            return InterruptOutcome.DEAD if self._connection.is_over else InterruptOutcome.NOT_RUNNING
        return await self._connection.interrupt(running, timeout=timeout)

    async def fork(self, **fields: Any) -> CodexThread:
        """Start a new thread in the same process that continues from the history of this one. Returns it; this one stays as it is.

        Args:
            fields: further fields of `thread/fork`, in wire spelling (`lastTurnId`, `model`, …).

        Raises:
            JSONRPCError: Codex refused it, for example because there is no history yet.
            ControlTimeout, ProcessError, ConnectionLost, TransportClosed: as for `send()`.
        """
        return await self._connection.fork_thread(self._data.id, fields)


class CodexSession:
    """A conversation with `codex app-server` over `transport`. Use it as `async with CodexSession(transport) as session`, or call
    `start()` and `aclose()`.

    It has one thread from the start, which `send()`, `steer()`, `interrupt()` and `fork()` are about. `start_thread()`, `resume_thread()`
    and `fork()` make others, which run at the same time in the same process.

    Args:
        transport: any object with the six methods of `Transport`. It is connected if it is not yet, and closed with the session.
        on_approval: `await on_approval(request)` decides whether a command runs (`CommandApproval`) or files change
            (`FileChangeApproval`): "accept", "accept_for_session", "decline" or "cancel". Without it, when it fails, and for any other
            value, the answer is "decline".
        tools: `HostTool` objects (`claude_transport.bridge`), functions of this program that the model may call.
        resume: the id of a thread to continue, instead of a new one. It keeps the tools that it was started with.
        thread: further fields of `thread/start` or `thread/resume`, in wire spelling (`cwd`, `model`, `approvalPolicy`, `sandbox`, …).
        initialize_timeout: seconds for connecting, and again for each answer until the thread is open.
        timeout: seconds for the answer to any other request.
        close_timeout: seconds for closing in all: interrupts, end of input, signal, kill. None is 1 second in haste: after an error, a
            cancellation or a deadline. Without haste Codex gets 5 seconds for each step, and its transport the time that it has itself.
        max_buffered_bytes: bytes of memory for messages that your program has not taken. Above it, reading pauses; while your program waits
            for something that only reading can bring, unread messages are dropped instead.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    def __init__(
        self,
        transport: TransportLike,
        *,
        on_approval: OnApproval | None = None,
        tools: Iterable[CodexTool] | None = None,
        resume: str | None = None,
        thread: Mapping[str, Any] | None = None,
        initialize_timeout: float = DEFAULT_TIMEOUT,
        timeout: float = DEFAULT_TIMEOUT,
        close_timeout: float | None = None,
        max_buffered_bytes: int = 64 * 2**20,
    ) -> None:
        check_transport(transport, of="CodexSession")
        check_number("initialize_timeout", initialize_timeout, positive=True)
        check_number("timeout", timeout, positive=True)
        check_number("max_buffered_bytes", max_buffered_bytes, positive=True)
        if resume is not None and (not isinstance(resume, str) or not resume):
            raise ConfigurationError(f"resume must be the id of a thread, not {resume!r}", option="resume")
        if not isinstance(thread, Mapping | None):
            raise ConfigurationError(f"thread must be a mapping, not {type(thread).__name__}", option="thread")
        check_sendable("resume", resume)
        check_sendable("thread", thread)
        self._resume = resume
        self._fields = dict(thread or {})
        self._initialize_timeout = initialize_timeout
        callbacks = Callbacks(on_approval=on_approval, tools=tools)
        check_sendable("tools", callbacks.dynamic_tools)
        limits = {"timeout": timeout, "connect_timeout": initialize_timeout, "close_timeout": close_timeout}
        self._connection = _Connection(transport, callbacks, limits=limits, post=MessageRouter(max_buffered_bytes))
        self._thread: CodexThread | None = None

    # The start and the end

    async def start(self) -> None:
        """Connect, shake hands, and open the thread. `async with` calls it. When it fails, everything is closed.

        Raises:
            ConfigurationError: the thread to resume does not exist.
            CLIConnectionError: the transport could not connect; `ConnectTimeout`: it, or Codex, did not answer in time.
            CLIVersionMismatch: this Codex is older than the oldest one that this library talks to.
            ProcessError, ConnectionLost: Codex ended before it was ready.
            JSONRPCError: Codex refused the handshake or the thread.
            UsageError: the session was started or closed before.
        """
        connection = self._connection
        await connection.start()
        try:
            await self._shake_hands()
        except BaseException:
            await connection.close(timeout=0.0, hurry=True)
            raise

    async def _shake_hands(self) -> None:
        connection, seconds = self._connection, self._initialize_timeout
        try:
            await connection.initialize(timeout=seconds)
            if self._resume is None:
                self._thread = await connection.start_thread(self._fields, timeout=seconds)
            else:
                self._thread = await connection.resume_thread(self._resume, self._fields, timeout=seconds)
        except ControlTimeout as exc:
            text = f"codex did not answer {exc.subtype} in {seconds:g} s"
            raise ConnectTimeout(text, waited=seconds, stderr_tail=exc.stderr_tail) from exc

    async def aclose(self, *, timeout: float = DEFAULT_CLOSE_TIMEOUT, hurry: bool = False) -> CodexCloseReport:
        """End the conversation and close the transport, from any task. Returns how it ended. A second call waits for the first.

        Running turns are interrupted and get `timeout` seconds to end, so that their handles have a result. Then the input ends, and the
        process gets as long again. Called from a callback it only begins to close.

        With `hurry`, all of it takes `close_timeout` seconds, or 1 by default. `async with` hurries when its block ends by an error or a
        cancellation, and so does a cancelled close.
        """
        check_seconds("timeout", timeout)
        return await self._connection.close(timeout=timeout, hurry=hurry)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose(timeout=self._connection.patience, hurry=exc is not None)

    # Threads

    @property
    def thread(self) -> CodexThread:
        """The thread that the session was started with. Raises `NotConnected` before that."""
        if self._thread is None:
            raise NotConnected("the session is not started: use `async with`, or start()")
        return self._thread

    @property
    def thread_id(self) -> str:
        """The id of that thread; `CodexSession(transport, resume=thread_id)` continues it in a new process."""
        return self.thread.thread_id

    async def start_thread(self, **fields: Any) -> CodexThread:
        """Start another thread in the same process. `fields` are those of `thread/start`; others are as in the argument `thread`.

        Raises:
            JSONRPCError: Codex refused it.
            ControlTimeout, ProcessError, ConnectionLost, TransportClosed: as for `send()`.
        """
        return await self._connection.start_thread({**self._fields, **fields})

    async def resume_thread(self, thread_id: str, **fields: Any) -> CodexThread:
        """Continue an earlier thread beside the others. `fields` are those of `thread/resume`.

        Raises:
            ConfigurationError: there is no such thread.
            JSONRPCError: Codex refused it.
            ControlTimeout, ProcessError, ConnectionLost, TransportClosed: as for `send()`.
        """
        return await self._connection.resume_thread(thread_id, {**self._fields, **fields})

    async def fork(self, **fields: Any) -> CodexThread:
        """Start a thread that continues from the history of the first one; see `CodexThread.fork()`."""
        return await self.thread.fork(**fields)

    # Talk

    async def send(self, content: Content, **fields: Any) -> CodexTurn:
        """Send a prompt in the first thread; see `CodexThread.send()`."""
        return await self.thread.send(content, **fields)

    async def steer(self, content: Content) -> None:
        """Add to the running turn of the first thread; see `CodexThread.steer()`."""
        await self.thread.steer(content)

    async def interrupt(self, *, timeout: float = DEFAULT_TIMEOUT) -> InterruptOutcome:
        """Interrupt the running turn of the first thread; see `CodexThread.interrupt()`."""
        return await self.thread.interrupt(timeout=timeout)

    async def request(self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None) -> Any:
        """Send any request of the app server, such as `model/list`. Returns its result.

        Raises:
            CLIVersionMismatch: this version of Codex does not know the method; `flag` of the error names it.
            JSONRPCError: Codex answered with an error.
            ControlTimeout: it did not answer in time.
            ProcessError, ConnectionLost, TransportClosed, NotConnected: Codex has ended, or the session is not open.
        """
        return await self._connection.request(method, dict(params or {}), timeout=timeout)

    def messages(self) -> AsyncIterator[CodexNotification]:
        """Return an iterator over the messages of all threads, and those of none, in order. Several may read, each gets them all.

        The first reader also gets the last of those that came before, up to 1 MiB. It ends when the session is closed or Codex ends well,
        and raises why otherwise, after the last message.
        """
        return _AllMessages(self._connection.post)

    def __aiter__(self) -> AsyncIterator[CodexNotification]:
        return self.messages()

    # What is known

    @property
    def initialization(self) -> dict[str, Any]:
        """The answer to `initialize`: `userAgent`, `codexHome`, `platformFamily`, `platformOs`. Empty before."""
        return dict(self._connection.initialization)

    @property
    def info(self) -> TransportInfo:
        """What is known of the transport and the process."""
        return self._connection.info

    @property
    def has_ended(self) -> bool:
        """True once Codex has ended, or closing of the session has begun: nothing more can be sent."""
        return self._connection.is_over

    @property
    def running_turns(self) -> tuple[str, ...]:
        """The ids of the turns that run, in all threads."""
        return tuple(turn.turn_id for turn in self._connection.conversation.running)

    @property
    def pending_approvals(self) -> tuple[ApprovalRequest, ...]:
        """The questions for approval that wait for `on_approval`."""
        return self._connection.conversation.pending_approvals

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory that the messages take which your program has not taken yet; an estimate."""
        return self._connection.post.waiting_bytes

    @property
    def dropped_messages(self) -> int:
        """Messages that were dropped because your program did not take them, and waited for something else."""
        return self._connection.post.dropped

    @property
    def failed_callbacks(self) -> int:
        """How often `on_approval` or a tool has raised, or returned what it may not. Each is logged."""
        return self._connection.callbacks.failures.failed


class _AllMessages:
    """An iteration over all messages. Dropping it ends it."""

    def __init__(self, post: MessageRouter) -> None:
        self._post = post
        self._box = post.listen()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CodexNotification:
        message = await self._post.next(self._box)
        if message is not None:
            return message
        if self._box.error is not None:
            raise raised_again(self._box.error)
        raise StopAsyncIteration


class _Connection:
    """The connection that the threads of one process share: requests, messages, the end."""

    def __init__(self, transport: TransportLike, callbacks: Callbacks, *, limits: Mapping[str, Any], post: MessageRouter) -> None:
        self.conversation: CodexConversation = CodexConversation()
        self.callbacks: Callbacks = callbacks
        self.post: MessageRouter = post
        self.initialization: dict[str, Any] = {}
        self.version: str | None = None  # of Codex, as it says
        self._transport = transport
        self._peer = JSONRPCPeer(
            transport,
            on_request=self._asked,
            on_arrival=self._note_request,
            on_notification=self._hear,
            with_version=False,
            **limits,
            max_notifications=_MOST_BEYOND,
        )
        self._turns: dict[tuple[str, str], weakref.WeakSet[CodexTurn]] = {}
        self._given_up: weakref.WeakSet[TurnRecord] = weakref.WeakSet()  # turns whose API cannot be reached
        self._expecting: dict[str, list[CodexMailbox]] = {}  # of prompts whose turn is not known yet, by thread
        self._arrived: dict[RequestId, CodexMessage] = {}  # requests of Codex that are not worked on yet
        self._watch: LoopTask | None = None
        self._closing: LoopTask | None = None
        self._close_timeout: float  # of each step, once closing has begun
        self._interrupt_by = self._end_by = math.inf
        self._patience: anyio.CancelScope | None = None  # of the step of closing that is under way
        self._report = CodexCloseReport()
        self._over = LightEvent()
        self._heard = Wakeup()

    @property
    def is_over(self) -> bool:
        """True once nothing more can come from Codex."""
        return self._over.is_set()

    @property
    def info(self) -> TransportInfo:
        return self._peer.info

    async def start(self) -> None:
        await self._peer.start()
        self._watch = LoopTask.spawn(self._wait_for_the_end, name="watch for the end of codex")

    # Requests

    async def initialize(self, *, timeout: float) -> None:
        client = {"name": "claude_transport", "title": "claude-transport", "version": version("claude-transport")}
        params: dict[str, Any] = {"clientInfo": client}
        if self.callbacks.dynamic_tools:
            params["capabilities"] = {"experimentalApi": True}
        answer = await self.request("initialize", params, timeout=timeout)
        self.initialization = answer if isinstance(answer, dict) else {}
        self.version = version_of(self.initialization.get("userAgent"))
        CODEX_RANGE.check(self.version)
        await self._peer.notify("initialized")

    async def start_thread(self, fields: Mapping[str, Any], *, timeout: float | None = None) -> CodexThread:
        tools = self.callbacks.dynamic_tools
        params = {**self._peer.terms.thread, **({"dynamicTools": tools} if tools else {}), **fields}
        return await self.open_thread("thread/start", params, timeout=timeout)

    async def resume_thread(self, thread_id: str, fields: Mapping[str, Any], *, timeout: float | None = None) -> CodexThread:
        params = {"threadId": thread_id, **self._without_history, **self._peer.terms.thread, **fields}
        try:
            return await self.open_thread("thread/resume", params, timeout=timeout)
        except JSONRPCError as exc:
            if "no rollout found" not in exc.message:
                raise
            text = f"there is no thread {thread_id!r} in this CODEX_HOME: resume one that was started with the same CODEX_HOME"
            raise ConfigurationError(text, option="resume") from exc

    async def fork_thread(self, thread_id: str, fields: Mapping[str, Any]) -> CodexThread:
        params = {"threadId": thread_id, **self._without_history, **self._peer.terms.thread, **fields}
        return await self.open_thread("thread/fork", params)

    @property
    def _without_history(self) -> dict[str, Any]:
        """The field with which a thread is opened without its whole history in the answer, where Codex has it."""
        return {} if codex_supports("excludeTurns", version=self.version) is False else {"excludeTurns": True}

    async def open_thread(self, method: str, params: Mapping[str, Any], *, timeout: float | None = None) -> CodexThread:
        answer = await self.request(method, params, timeout=timeout)
        _id_in(answer, "thread")
        told = {"model": answer.get("model"), **answer["thread"]}
        data = decode_message(msgspec.json.encode({"method": "thread/started", "params": {"thread": told}}))
        thread = getattr(data, "thread", None)
        if not isinstance(thread, ThreadData):
            raise ProtocolError(f"codex answered {method} without the id of a thread")
        self.conversation.thread(thread.id)
        return CodexThread(self, thread)

    async def request(self, method: str, params: Mapping[str, Any], *, timeout: float | None = None) -> Any:
        for name, value in params.items():
            check_sendable("content" if name == "input" else name, value)
        require_method(method, version=self.version)
        try:
            return await self._peer.request(method, params, timeout=timeout)
        except ControlError as exc:
            refused = refusal_of(exc)
            if refused is exc:
                raise
            raise refused from exc
        except (ConnectionLost, TransportClosed) as exc:
            if not tells_of_the_end(exc):
                raise
            raise await self._why(exc) from exc

    async def _why(self, error: ClaudeTransportError) -> ClaudeTransportError:
        """Return a better error than `error`, which only says that the process has ended: one that says how, if that is known."""
        if self._closing is not None:
            return TransportClosed("the session is closed")
        with anyio.move_on_after(_LAST_WORDS):
            await self._over.wait()
        return self._cause(error)

    def _cause(self, error: ClaudeTransportError | None) -> ClaudeTransportError:
        """Return the error for what Codex left unfinished when it ended."""
        if isinstance(error, ProcessError) or (error is not None and error.code == "transport.failed" and not tells_of_the_end(error)):
            return error
        info = self.info
        if info.exit_code is None and info.signal is None:
            return error if error is not None else ConnectionLost("codex ended the connection during the conversation")
        how = f"exit code {info.exit_code}" if info.exit_code is not None else f"signal {info.signal}"
        found = ProcessError(
            f"codex ended during the conversation ({how})", exit_code=info.exit_code, signal=info.signal, stderr_tail=info.stderr_tail
        )
        found.__cause__ = error
        return found

    async def interrupt(self, turn: TurnRecord, *, timeout: float) -> InterruptOutcome:
        """Ask Codex to interrupt a turn. Never raises for what Codex answers, or when it has ended.

        Codex refuses it between the answer that names the turn and the turn's first message. Then it is asked again after that message.
        """
        too_early = not turn.has_begun
        params = {"threadId": turn.thread_id, "turnId": turn.turn_id}
        with anyio.move_on_after(timeout):
            for is_last in (not too_early, True):
                try:
                    await self._peer.request("turn/interrupt", params, timeout=math.inf)
                except JSONRPCError:
                    if is_last or turn.result is not None:
                        return InterruptOutcome.NOT_RUNNING  # it has just ended
                    await self._begin_of(turn)
                except ClaudeTransportError as exc:
                    if exc.code == "transport.failed":
                        logger.exception("the turn cannot be interrupted")
                    return InterruptOutcome.DEAD
                else:
                    return InterruptOutcome.ACKNOWLEDGED
        return InterruptOutcome.TIMED_OUT

    async def _begin_of(self, turn: TurnRecord) -> None:
        """Wait for the first message of a turn, or for the end of the conversation. The caller limits the time."""
        while not (turn.has_begun or self.is_over):
            await self._heard.wait()

    # Messages

    async def send(self, thread_id: str, params: Mapping[str, Any]) -> CodexTurn:
        """Send a prompt. Its messages are kept from now on: they may come before the answer that names their turn is taken."""
        box = self.post.open()
        boxes = self._expecting.setdefault(thread_id, [])
        boxes.append(box)
        self.conversation.expect(thread_id)
        record: TurnRecord | None = None
        try:
            answer = await self.request("turn/start", params)
            record = self.conversation.claim(thread_id, _id_in(answer, "turn"))
            box.keep_turn(record.turn_id)
            return self._open_turn(record, box)
        finally:
            boxes.remove(box)
            if record is None:
                self.conversation.give_up(thread_id)

    def _open_turn(self, record: TurnRecord, box: CodexMailbox) -> CodexTurn:
        """Return a handle on a turn, which gets its messages from now on."""
        turn = CodexTurn(record, box, self.post)
        if record.result is not None:
            turn.settle()
        elif self.is_over:
            turn.settle(self._cause(None))
        else:
            self._turns.setdefault((record.thread_id, record.turn_id), weakref.WeakSet()).add(turn)
        return turn

    def _hear(self, notification: Notification) -> Awaitable[None] | None:
        """Take a notification, in the order in which Codex sent it. Must not wait."""
        message: CodexMessage = decode_message(notification.raw)
        if not isinstance(message, CodexNotification):
            return None
        record = self.conversation.take(message)
        self._heard.fire()
        if record is not None and record.unreachable is not None and record not in self._given_up:
            self._given_up.add(record)
            LoopTask.spawn(partial(self._give_up, record), name="end a turn of codex that cannot reach its API")
        if isinstance(message, RequestResolved):
            self.callbacks.withdraw(message.request_id)
        key = (record.thread_id, record.turn_id) if record is not None else ("", "")
        turns = list(self._turns.get(key, ()))
        expecting = self._expecting.get(record.thread_id, ()) if record is not None else ()
        room = self.post.put(message, [*(turn.deliver() for turn in turns), *expecting])
        if record is not None and record.result is not None:
            self._turns.pop(key, None)
            for turn in turns:
                turn.settle()
        return room

    async def _give_up(self, record: TurnRecord) -> None:
        """End a turn whose API cannot be reached: Codex would ask again without an end."""
        await self.interrupt(record, timeout=DEFAULT_CLOSE_TIMEOUT)
        with anyio.move_on_after(DEFAULT_CLOSE_TIMEOUT):
            while record.result is None and not self.is_over:
                await self._heard.wait()
        if record.result is None:
            for turn in list(self._turns.pop((record.thread_id, record.turn_id), ())):
                turn.settle(error_of(record.unreachable or CodexTurnError()))

    def _note_request(self, request: Request) -> None:
        """Take note of a request, in the order in which Codex sent it: what Codex says next may settle it, or end its turn."""
        message: CodexMessage = decode_message(request.raw)
        if isinstance(message, FileChangeApproval):
            message = replace(message, changes=self.conversation.changes_of(message))
        if isinstance(message, ApprovalRequest):
            self.conversation.ask(message)
        self.callbacks.expect(request.id)
        self._arrived[request.id] = message

    async def _asked(self, request: Request) -> Any:
        message = self._arrived.pop(request.id)
        try:
            _answering.set(self)
            return await self.callbacks.answer(message)
        finally:
            self.callbacks.forget(request.id)
            self.conversation.answer(request.id)

    # The end

    async def _wait_for_the_end(self) -> None:
        error = await self._peer.ended()
        self._note_end(error)

    def _note_end(self, error: ClaudeTransportError | None) -> None:
        """Settle everything that waits: nothing more can come."""
        if self._over.is_set():
            return
        self._over.set()
        self._heard.fire()
        if self._closing is not None:
            left: ClaudeTransportError = MissingResult("the session was closed before the turn had a result")
            self.post.end(None)
        else:
            left = self._cause(error)
            self.post.end(left if error is not None else None)
        self.conversation.forget_questions()
        turns, self._turns = self._turns, {}
        for handles in turns.values():
            for turn in list(handles):
                turn.settle(left)

    @property
    def patience(self) -> float:
        """The seconds that Codex gets to end by itself when the caller names none."""
        return self._peer.patience(DEFAULT_CLOSE_TIMEOUT)

    async def close(self, *, timeout: float, hurry: bool = False) -> CodexCloseReport:
        """Close, and wait for it, from any task. Returns how the conversation ended."""
        if self._closing is None:
            self._close_timeout = max(timeout, 0.0)
            self._closing = LoopTask.spawn(self._close, name="close codex session")
        self._begin_closing(hurry=hurry)
        if _answering.get() is not self:
            try:
                await self._closing.wait()
            finally:
                if not self._closing.finished:
                    self._begin_closing(hurry=True)
                await self._closing.join()
        return self._report

    def _begin_closing(self, *, hurry: bool) -> None:
        """Let the time for closing begin, or become shorter. In haste, the interrupts get half of what Codex has to end by itself."""
        patience = self._peer.begin_closing(timeout=self._close_timeout, hurry=hurry)
        in_all = patience if hurry else self._peer.patience(math.inf)
        if in_all < math.inf:
            now = anyio.current_time()
            self._interrupt_by = now + in_all / 2
            self._end_by = min(self._end_by, now + in_all)
            if self._patience is not None:
                self._patience.deadline = min(self._patience.deadline, self._end_by)

    @contextlib.contextmanager
    def _step(self, by: float) -> Iterator[None]:
        """Bound one step of closing: by the time that each may take, and by the time of the clock at which it has to be over."""
        with anyio.CancelScope(deadline=min(by, anyio.current_time() + self._close_timeout)) as self._patience:
            yield

    async def _close(self) -> None:
        running = self.conversation.running
        interrupted = () if self.is_over else tuple(turn.turn_id for turn in running)
        ended_by_itself = True
        try:
            if running and not self.is_over:
                await self._interrupt_all(running)
            if not self.is_over:
                ended_by_itself = await self._end_input()
        finally:
            await self._peer.aclose()
            self._note_end(None)
            if self._watch is not None:
                self._watch.cancel()
            info = self.info
            lost = tuple(turn.turn_id for turn in running if turn.result is None)
            if interrupted:
                logger.warning("the codex session was closed while a turn was running: %s", ", ".join(interrupted))
            self._report = CodexCloseReport(
                interrupted_turns=interrupted,
                lost_turns=lost,
                ended_by_itself=ended_by_itself,
                exit_code=info.exit_code,
                signal=info.signal,
                killed=info.killed,
            )

    async def _interrupt_all(self, running: Sequence[TurnRecord]) -> None:
        """Interrupt the running turns, and wait until they have ended, for a bounded time."""
        handles = [self._open_turn(record, CodexMailbox()) for record in running]
        with self._step(self._interrupt_by):
            async with anyio.create_task_group() as tasks:
                for turn in handles:
                    tasks.start_soon(self._interrupt_and_wait, turn)

    async def _interrupt_and_wait(self, turn: CodexTurn) -> None:
        record = self.conversation.thread(turn.thread_id).running
        if record is not None and record.turn_id == turn.turn_id:
            await self.interrupt(record, timeout=math.inf)  # as long as the step
        with contextlib.suppress(ClaudeTransportError):  # its end will not come, which the report says
            await turn.result()

    async def _end_input(self) -> bool:
        """End the input, and wait for Codex to end. Returns True when it has ended in time."""
        with self._step(self._end_by):
            try:
                await guarded(self._transport.end_input())
            except Exception as exc:  # the transport is closed in any case, which ends the input, too
                level = logging.DEBUG if isinstance(exc, ClaudeTransportError) else logging.ERROR
                logger.log(level, "the input of codex could not be ended", exc_info=exc)
                return False
            await self.post.needing(self._over)
        return self.is_over


def _inputs(content: Content) -> list[dict[str, Any]]:
    """Return a prompt as a list of inputs. Raises for what Codex could not take."""
    if isinstance(content, str):
        found: list[dict[str, Any]] = [{"type": "text", "text": content, "text_elements": []}]
    elif isinstance(content, list | tuple) and all(isinstance(each, Mapping) for each in content):
        found = [dict(each) for each in content]
    else:
        raise UsageError(f"a prompt is a text or a list of inputs, not {type(content).__name__}")
    characters = sum(len(each["text"]) for each in found if isinstance(each.get("text"), str))
    if characters > MAX_INPUT_CHARS:
        raise too_large(characters)
    return found


def _id_in(answer: Any, name: str) -> str:
    """Return the id of the thread or turn in an answer. Raises `ProtocolError` when there is none."""
    inner = answer.get(name) if isinstance(answer, dict) else None
    found = inner.get("id") if isinstance(inner, dict) else None
    if not isinstance(found, str) or not found:
        raise ProtocolError(f"codex answered without the id of a {name}")
    return found
