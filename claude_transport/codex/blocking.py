"""`SyncCodexSession`, `SyncCodexThread` and `SyncCodexTurn`: a conversation with Codex for programs without an event loop.

Written by docs/generate_blocking.py from the asynchronous classes: do not edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from claude_transport.codex.callbacks import CodexTool, OnApproval
from claude_transport.codex.conversation import CodexTurnResult, TurnStatus
from claude_transport.codex.messages import ApprovalRequest, CodexNotification, ThreadData
from claude_transport.codex.session import (
    DEFAULT_CLOSE_TIMEOUT,
    DEFAULT_TIMEOUT,
    CodexCloseReport,
    CodexSession,
    CodexThread,
    CodexTurn,
    Content,
)
from claude_transport.exchange.outcomes import InterruptOutcome
from claude_transport.loops.threads import Backend, SyncConversation, SyncIterator, SyncPart, SyncTurnBase, loop_for, refuse_in_a_loop
from claude_transport.transport import TransportInfo, TransportLike


class SyncCodexTurn(SyncTurnBase[CodexNotification]):
    """Does what `CodexTurn` does, and blocks until it is done. `CodexTurn` says the rest."""

    _inner: CodexTurn

    @property
    def thread_id(self) -> str:
        """The id of the thread in which the turn runs."""
        return self._inner.thread_id

    @property
    def turn_id(self) -> str:
        """The id that Codex gave the turn."""
        return self._inner.turn_id

    @property
    def status(self) -> TurnStatus:
        """`inProgress`, `completed`, `interrupted` or `failed`."""
        return self._inner.status

    @property
    def text(self) -> str:
        """The answer so far: the last message of the model, as far as it came. Text that Codex says again is here once."""
        return self._inner.text

    def result(self, *, timeout: float | None = None) -> CodexTurnResult:
        """Wait until the turn ends. Its messages need not be read for that. A failed turn is returned, not raised.

        When the line in which Codex says that the turn ended cannot be read, or
        is too long, the wait ends when the session is closed or its process ends.

        Raises:
            ProcessError: the process ended before the turn did. `exit_code`, `signal` and `stderr_tail` say how.
            ConnectionLost, ProtocolError: the connection broke, or was cut in the middle of a line.
            MissingResult: the session was closed, and Codex did not say how the turn ended.
            TimeoutError: `timeout` seconds have passed. The turn goes on: wait again, or call `interrupt()`.
        """
        return self._loop.call(self._inner.result, timeout=timeout)

    def new_text(self) -> SyncIterator[str]:
        """Return an iterator over the text of the model, piece by piece. It takes the messages of the turn: do not iterate both.

        What Codex says again after a cut stream does not come again; when it takes another course, the new text comes whole. The iteration
        ends with the turn, whether that failed or not: see `result()`. It raises as the iteration of the turn does.
        """
        return self._iterate(lambda: aiter(self._inner.new_text()))


class SyncCodexThread(SyncPart):
    """Does what `CodexThread` does, and blocks until it is done. `CodexThread` says the rest."""

    _inner: CodexThread

    @property
    def thread_id(self) -> str:
        """The id of the thread; `CodexSession(transport, resume=thread_id)` continues it in a new process."""
        return self._inner.thread_id

    @property
    def data(self) -> ThreadData:
        """What Codex said of the thread when it was started, resumed or forked."""
        return self._inner.data

    @property
    def is_busy(self) -> bool:
        """True while a turn of this thread runs."""
        return self._inner.is_busy

    def send(self, content: Content, **fields: Any) -> SyncCodexTurn:
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
        return SyncCodexTurn(self._loop, self._loop.call(lambda: self._inner.send(content, **fields)), owner=self)

    def steer(self, content: Content) -> None:
        """Add to the running turn. The model is asked again with the new text, and what it was saying is cut short.

        Raises:
            ControlRequestFailed: no turn of this thread is running.
            JSONRPCError: Codex refused it, for example because the turn has just ended, or cannot be steered.
            PromptTooLong, ControlTimeout, ProcessError, ConnectionLost, TransportClosed, UsageError: as for `send()`.
        """
        self._loop.call(lambda: self._inner.steer(content))

    def interrupt(self, *, timeout: float = DEFAULT_TIMEOUT) -> InterruptOutcome:
        """Interrupt the running turn. Returns whether Codex stops it; the turn then ends with the status `interrupted`.

        A command that the turn has started runs on, unless it had only just begun: it ends with the process. The method never raises for
        these outcomes, and never hangs.

        Raises:
            UsageError: `timeout` is no number of seconds.
        """
        return self._loop.call(lambda: self._inner.interrupt(timeout=timeout))

    def fork(self, **fields: Any) -> SyncCodexThread:
        """Start a new thread in the same process that continues from the history of this one. Returns it; this one stays as it is.

        Args:
            fields: further fields of `thread/fork`, in wire spelling (`lastTurnId`, `model`, …).

        Raises:
            JSONRPCError: Codex refused it, for example because there is no history yet.
            ControlTimeout, ProcessError, ConnectionLost, TransportClosed: as for `send()`.
        """
        return SyncCodexThread(self._loop, self._loop.call(lambda: self._inner.fork(**fields)), owner=self)


class SyncCodexSession(SyncConversation[CodexNotification]):
    """Holds a conversation as `CodexSession` does, for programs without an event loop: every method blocks until it is done.
    Use it as `with SyncCodexSession(transport) as it`, or call `start()` and `close()`.

    The conversation runs in an event loop of its own, in a thread that ends with it. Callbacks are called in that thread. Every method may
    be called from any thread without a running event loop. A Ctrl-C during a call cancels the call.

    Args:
        backend: `asyncio` or `trio`, on which the conversation runs. The other arguments are those of `CodexSession`.

    Raises `UsageError` with the code `usage.running_loop` where an event loop runs: use `CodexSession` there. After `close()`, methods
    raise `TransportClosed`.
    """

    _inner: CodexSession

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
        backend: Backend = "asyncio",
    ) -> None:
        refuse_in_a_loop("SyncCodexSession", "use CodexSession there")
        inner = CodexSession(
            transport,
            on_approval=on_approval,
            tools=tools,
            resume=resume,
            thread=thread,
            initialize_timeout=initialize_timeout,
            timeout=timeout,
            close_timeout=close_timeout,
            max_buffered_bytes=max_buffered_bytes,
        )
        super().__init__(inner, loop_for("SyncCodexSession", inner, instead="use CodexSession there", backend=backend))

    def start(self) -> None:
        """Connect, shake hands, and open the thread. `async with` calls it. When it fails, everything is closed.

        Raises:
            ConfigurationError: the thread to resume does not exist.
            CLIConnectionError: the transport could not connect; `ConnectTimeout`: it, or Codex, did not answer in time.
            CLIVersionMismatch: this Codex is older than the oldest one that this library talks to.
            ProcessError, ConnectionLost: Codex ended before it was ready.
            JSONRPCError: Codex refused the handshake or the thread.
            UsageError: the session was started or closed before.
        """
        self._loop.call(self._inner.start)

    @property
    def thread(self) -> SyncCodexThread:
        """The thread that the session was started with. Raises `NotConnected` before that."""
        return SyncCodexThread(self._loop, self._inner.thread, owner=self)

    @property
    def thread_id(self) -> str:
        """The id of that thread; `CodexSession(transport, resume=thread_id)` continues it in a new process."""
        return self._inner.thread_id

    def start_thread(self, **fields: Any) -> SyncCodexThread:
        """Start another thread in the same process. `fields` are those of `thread/start`; others are as in the argument `thread`.

        Raises:
            JSONRPCError: Codex refused it.
            ControlTimeout, ProcessError, ConnectionLost, TransportClosed: as for `send()`.
        """
        return SyncCodexThread(self._loop, self._loop.call(lambda: self._inner.start_thread(**fields)), owner=self)

    def resume_thread(self, thread_id: str, **fields: Any) -> SyncCodexThread:
        """Continue an earlier thread beside the others. `fields` are those of `thread/resume`.

        Raises:
            ConfigurationError: there is no such thread.
            JSONRPCError: Codex refused it.
            ControlTimeout, ProcessError, ConnectionLost, TransportClosed: as for `send()`.
        """
        return SyncCodexThread(self._loop, self._loop.call(lambda: self._inner.resume_thread(thread_id, **fields)), owner=self)

    def fork(self, **fields: Any) -> SyncCodexThread:
        """Start a thread that continues from the history of the first one; see `CodexThread.fork()`."""
        return SyncCodexThread(self._loop, self._loop.call(lambda: self._inner.fork(**fields)), owner=self)

    def send(self, content: Content, **fields: Any) -> SyncCodexTurn:
        """Send a prompt in the first thread; see `CodexThread.send()`."""
        return SyncCodexTurn(self._loop, self._loop.call(lambda: self._inner.send(content, **fields)), owner=self)

    def steer(self, content: Content) -> None:
        """Add to the running turn of the first thread; see `CodexThread.steer()`."""
        self._loop.call(lambda: self._inner.steer(content))

    def interrupt(self, *, timeout: float = DEFAULT_TIMEOUT) -> InterruptOutcome:
        """Interrupt the running turn of the first thread; see `CodexThread.interrupt()`."""
        return self._loop.call(lambda: self._inner.interrupt(timeout=timeout))

    def request(self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None) -> Any:
        """Send any request of the app server, such as `model/list`. Returns its result.

        Raises:
            CLIVersionMismatch: this version of Codex does not know the method; `flag` of the error names it.
            JSONRPCError: Codex answered with an error.
            ControlTimeout: it did not answer in time.
            ProcessError, ConnectionLost, TransportClosed, NotConnected: Codex has ended, or the session is not open.
        """
        return self._loop.call(lambda: self._inner.request(method, params, timeout=timeout))

    def messages(self) -> SyncIterator[CodexNotification]:
        """Return an iterator over the messages of all threads, and those of none, in order. Several may read, each gets them all.

        The first reader also gets the last of those that came before, up to 1 MiB. It ends when the session is closed or Codex ends well,
        and raises why otherwise, after the last message.
        """
        return self._iterate(lambda: aiter(self._inner.messages()))

    @property
    def initialization(self) -> dict[str, Any]:
        """The answer to `initialize`: `userAgent`, `codexHome`, `platformFamily`, `platformOs`. Empty before."""
        return self._inner.initialization

    @property
    def info(self) -> TransportInfo:
        """What is known of the transport and the process."""
        return self._inner.info

    @property
    def has_ended(self) -> bool:
        """True once Codex has ended, or closing of the session has begun: nothing more can be sent."""
        return self._inner.has_ended

    @property
    def running_turns(self) -> tuple[str, ...]:
        """The ids of the turns that run, in all threads."""
        return self._inner.running_turns

    @property
    def pending_approvals(self) -> tuple[ApprovalRequest, ...]:
        """The questions for approval that wait for `on_approval`."""
        return self._inner.pending_approvals

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory that the messages take which your program has not taken yet; an estimate."""
        return self._inner.buffered_bytes

    @property
    def dropped_messages(self) -> int:
        """Messages that were dropped because your program did not take them, and waited for something else."""
        return self._inner.dropped_messages

    @property
    def failed_callbacks(self) -> int:
        """How often `on_approval` or a tool has raised, or returned what it may not. Each is logged."""
        return self._inner.failed_callbacks

    def close(self, *, timeout: float = DEFAULT_CLOSE_TIMEOUT, hurry: bool = False) -> CodexCloseReport:
        """End the conversation and close the transport, from any task. Returns how it ended. A second call waits for the first.

        Running turns are interrupted and get `timeout` seconds to end, so that their handles have a result. Then the input ends, and the
        process gets as long again. Called from a callback it only begins to close.

        With `hurry`, all of it takes `close_timeout` seconds, or 1 by default. `async with` hurries when its block ends by an error or a
        cancellation, and so does a cancelled close.
        """
        return self._close(lambda: self._inner.aclose(timeout=timeout, hurry=hurry))
