"""One call: `complete()` and `stream()`, and the attempts behind them.

`Call` makes one call: it chooses the path, makes attempts, waits between them, and builds the `Completion`. `CLIPath` is one attempt
through a `claude` process; `APIPath` in `api_path` is one through the Messages API. `request` checks the arguments, `classification` turns
failures into errors, and `assembly` turns messages into text and counts.
"""

from __future__ import annotations

import inspect
import logging
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import anyio
import anyio.to_thread
import msgspec

from claude_transport.agents.agent import NO_EXIT_CODE, Attempt, CallPlan
from claude_transport.agents.registry import find_agent
from claude_transport.backoff import RetryPolicy
from claude_transport.client.query import Query
from claude_transport.client.shadowing import check_session_billing
from claude_transport.client.storage import AllMessages, Turn
from claude_transport.completion.api_path import APIPath
from claude_transport.completion.assembly import Assembly, TextFlow, advise, assemble, may_have_side_effects
from claude_transport.completion.classification import (
    classify_cli_exception,
    classify_exception_of,
    classify_reported,
    classify_result,
    retry_after_of,
    with_address,
)
from claude_transport.completion.classification import timed_out as error_of_timeout
from claude_transport.completion.completion import Completion, attach_completion
from claude_transport.completion.models import check_model, cost_of
from claude_transport.completion.readiness import check_billing, preflight
from claude_transport.completion.request import (
    CompletionRequest,
    MakeTransport,
    OnStderr,
    Prompt,
    api_environment,
    build_request,
    check_for_claude,
    find_credential,
)
from claude_transport.completion.resolution import (
    AGENT_VARIABLE,
    TRANSPORT_VARIABLE,
    AgentChoice,
    AgentResolution,
    Resolution,
    TransportChoice,
    TransportKind,
    can_run_other,
    check_has_path,
    choose_agent,
    resolve_transport,
)
from claude_transport.errors import (
    ClaudeTransportError,
    CLINotFoundError,
    ConfigurationError,
    MissingResult,
    NotExecutableError,
    SpawnError,
    UsageError,
    reason_without,
)
from claude_transport.launch.credentials import Payer
from claude_transport.launch.discovery import find_cli
from claude_transport.launch.options import AgentOptions, BillingPolicy, ClaudeOptions
from claude_transport.launch.settings import with_settings_read
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop
from claude_transport.protocol.diagnosis import ReportedFailure
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import APIRetryMessage, AssistantMessage, InitMessage, ResultMessage, StreamEvent
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.transport import TransportLike

if TYPE_CHECKING:
    from claude_transport.codex.options import CodexOptions

T = TypeVar("T")

logger: logging.Logger = logger_for(__name__)

Sleep = Callable[[float], Awaitable[object]]
OnEvent = Callable[[Message], object]


async def complete(
    prompt: Prompt,
    *,
    model: str | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
    transport: TransportChoice | None = None,
    declared: str | Mapping[str, Any] | None = None,
    timeout: float = 300.0,
    attempt_timeout: float | None = None,
    close_timeout: float | None = None,
    billing: BillingPolicy = "inherit",
    retry: RetryPolicy | None = None,
    heuristics: bool = True,
    subject: str | None = None,
    options: AgentOptions | None = None,
    fallback: bool = False,
    agent: AgentChoice | None = None,
    codex: CodexOptions | None = None,
    on_event: OnEvent | None = None,
    on_stderr: OnStderr | None = None,
    make_transport: MakeTransport | None = None,
    sleep: Sleep = anyio.sleep,
) -> Completion:
    """Ask for one answer to `prompt`: through the CLI, the Messages API, or Codex. Results, errors and retries are the same everywhere.

    Args:
        prompt: text, or content blocks as the Messages API has them.
        model: a full name, or an alias of the CLI (`haiku`). None takes the default of the path.
        system: the system prompt. Without `options` there is none on either path; Codex keeps its own.
        max_tokens: limit for each API request. The CLI continues a cut answer up to three times before it gives up.
        transport: `cli`, `api` or `auto`. None reads the variable `CLAUDE_TRANSPORT`, then `declared`, then takes `auto`.
        declared: the choice of a project: the value, or a mapping that holds it under `transport` (and that of the agent under `agent`).
        timeout: seconds for the whole call, with all attempts and waits; `math.inf` for no limit. Ending the process comes on top.
        attempt_timeout: seconds for each attempt. An attempt that takes longer is made again like one whose connection broke. None leaves
            an attempt all the time of the call.
        close_timeout: seconds for ending the process in all. None is 1 second when the time is over, or the call was cancelled or left
            early, and else as much as the process needs to save its session, up to 10.
        billing: which account may pay, as in `ClaudeOptions.billing`. `inherit` leaves it to `options`.
        retry: how often to try again, and after which failures. None is `RetryPolicy()`. A call is never repeated after a tool was called,
            or after the prompt may have reached a named session.
        heuristics: look for runs that report success but did not finish. They get a warning and a category, never an error.
        subject: a label for this call. It is added to log lines and to errors, so that you can tell many calls apart.
        options: how to run the CLI. None runs it without tools, MCP servers and system prompt. The API path raises `ConfigurationError` for
            options that it cannot honour.
        fallback: allow the API to be asked, and paid, when the CLI failed before it received the prompt. `Completion.warnings`
            then says so.
        agent: which agent answers: `claude-code`, `codex`, or `auto`, which is Claude Code when it is there, else Codex. None reads the
            variable `CLAUDE_TRANSPORT_AGENT`, then `declared` (a mapping that holds it under `agent`), then takes `claude-code`.
        codex: how to run Codex, when it answers. None runs it in a sandbox that can only read, and it asks for no approval. Codex raises
            `ConfigurationError` for arguments and `options` that it cannot honour.
        on_event: a plain function that is called with each message of each attempt, as it arrives. When it raises, the exception is logged
            and the function is not called again.
        on_stderr: a plain function that is called with each line that the process writes on its standard error. With `make_transport`, give
            it to your transport instead.
        make_transport: makes the transport of the CLI path, for other media, launchers, wrappers and mocks. It is a plain function that is
            called with the options of each attempt, `ClaudeOptions` or those of the agent that answers, and returns a new transport. No
            CLI is then looked for. The API path does not call it.
        sleep: waits between attempts, in seconds. Pass your own to test without waiting.

    Raises `ClaudeTransportError`. `partial_completion(error)` gives what the call had until then:

        ResultError: the run failed: `RateLimited`, `Overloaded`, `AuthFailed`, `BillingFailed`, `ModelNotFound`, `APIFailed`, ….
        MissingResult: there was no answer. With code `exec.cli.timeout`: there was none within `timeout` seconds.
        CLINotFoundError, CLIConnectionError, ProcessError: the CLI path failed. The API path never raises these.
        ProtocolError: the CLI or the API broke its protocol.
        ConfigurationError, UsageError: the call cannot be made as asked.
    """
    request = build_request(
        prompt,
        model=model,
        system=system,
        max_tokens=max_tokens,
        billing=billing,
        options=options,
        transport=transport,
        declared=declared,
        timeout=timeout,
        attempt_timeout=attempt_timeout,
        close_timeout=close_timeout,
        retry=RetryPolicy() if retry is None else retry,
        heuristics=heuristics,
        subject=subject,
        fallback=fallback,
        agent=agent,
        others={"codex": codex},
        on_stderr=on_stderr,
        make_transport=make_transport,
    )
    return await Call(request, on_event=on_event, sleep=sleep).run()


def stream(
    prompt: Prompt,
    *,
    model: str | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
    transport: TransportChoice | None = None,
    declared: str | Mapping[str, Any] | None = None,
    timeout: float = 300.0,
    attempt_timeout: float | None = None,
    close_timeout: float | None = None,
    billing: BillingPolicy = "inherit",
    retry: RetryPolicy | None = None,
    heuristics: bool = True,
    subject: str | None = None,
    options: AgentOptions | None = None,
    fallback: bool = False,
    agent: AgentChoice | None = None,
    codex: CodexOptions | None = None,
    on_event: OnEvent | None = None,
    on_stderr: OnStderr | None = None,
    make_transport: MakeTransport | None = None,
    sleep: Sleep = anyio.sleep,
) -> CompletionStream:
    """Ask for one answer to `prompt`, and iterate over its text as it is written: `async for piece in stream("Hello"): ...`.

    The arguments and the errors are those of `complete()`; errors of the run are raised by the iteration. The pieces add up to the text.
    After the last piece, `.completion` of the returned object is the whole `Completion`. Once you have received a piece, a failure is
    final, because another attempt would write another answer. So an error says that all pieces so far belong to a failed attempt. You can
    leave the loop at any time; the call ends when the stream is closed or no longer referenced.

    Pieces are kept until you read them. `timeout` counts the time of the model, not the time that you take to read.
    """
    request = build_request(
        prompt,
        model=model,
        system=system,
        max_tokens=max_tokens,
        billing=billing,
        options=options,
        transport=transport,
        declared=declared,
        timeout=timeout,
        attempt_timeout=attempt_timeout,
        close_timeout=close_timeout,
        retry=RetryPolicy() if retry is None else retry,
        heuristics=heuristics,
        subject=subject,
        fallback=fallback,
        agent=agent,
        others={"codex": codex},
        on_stderr=on_stderr,
        make_transport=make_transport,
    )
    return CompletionStream(request, on_event=on_event, sleep=sleep)


class CompletionStream:
    """The text of one answer, piece by piece: iterate over it with `async for`. `stream()` makes it; the call starts with the first piece
    that you ask for.

    After the last piece, `completion` is the whole answer. `aclose()`, leaving its `async with`, and an error
    that the iteration raises end the call early.
    """

    def __init__(self, request: CompletionRequest, *, on_event: OnEvent | None = None, sleep: Sleep = anyio.sleep) -> None:
        self._flow = _Flow(request, on_event, sleep)
        # a task of its own and not a generator: a generator must be finished in the task that began it
        weakref.finalize(self, self._flow.abandon).atexit = False

    @property
    def completion(self) -> Completion:
        """The whole answer as a `Completion`. Raises `UsageError` before the iteration has ended, and when it failed or was left early."""
        if self._flow.completion is None:
            raise UsageError("there is no whole answer yet: iterate over the stream to its end first")
        return self._flow.completion

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        try:
            piece = await self._flow.next()
        except BaseException:
            await self.aclose()
            raise
        if piece is None:
            await self.aclose()
            raise StopAsyncIteration
        return piece

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the call now, and wait until its process and task are gone. Safe from any task and more than once. Iterating then ends."""
        await self._flow.aclose()


class _Flow:
    """State that a stream shares with the task that fills it. It does not refer to the stream, so that a dropped stream can be
    collected.
    """

    def __init__(self, request: CompletionRequest, on_event: OnEvent | None, sleep: Sleep) -> None:
        self._call = Call(request, on_text=self._put, on_event=on_event, sleep=sleep)
        # not bounded: the model limits the length, and holding the model up would use up its time
        self._pieces: deque[str] = deque()
        self._news = anyio.Event()
        self._task: LoopTask | None = None
        self._loop: HostLoop | None = None
        self._error: Exception | None = None
        self._over = False
        self.completion: Completion | None = None

    async def next(self) -> str | None:
        """Return the next piece, or None after the last one. Raises the error of the call once, after the last piece."""
        if self._task is None and not self._over:
            self._loop = HostLoop()
            self._task = LoopTask.spawn(self._run, name="claude stream", at_end=self._end)
        while not self._pieces:
            if self._over:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                return None
            if self._news.is_set():  # replaced before the wait: after it, another reader may already wait for the new event
                self._news = anyio.Event()
            await self._news.wait()
        return self._pieces.popleft()

    async def aclose(self) -> None:
        self._over = True
        self._pieces.clear()
        if self._task is not None:
            self._task.cancel()
            await self._task.join()

    def abandon(self) -> None:
        """Cancel the task without waiting for it. Safe from any thread."""
        task, loop = self._task, self._loop
        if task is not None and loop is not None and not task.finished:
            loop.call_soon(_canceller(task))

    async def _run(self) -> None:
        try:
            self.completion = await self._call.run()
        except Exception as exc:  # noqa: BLE001 - the reader gets it, whatever it is
            self._error = exc

    def _put(self, piece: str) -> None:
        if not self._over:  # the task may still receive something until it has ended
            self._pieces.append(piece)
            self._news.set()

    def _end(self) -> None:
        self._over = True
        self._news.set()


def _canceller(task: LoopTask) -> Callable[[], object]:
    return task.cancel


# One attempt through a `claude` process.


_SETTLE: Final = 2.0
"""Seconds that a CLI gets to report what follows a result: that it is idle, or a turn of its own. It takes milliseconds; an older CLI never
reports that it is idle.
"""


class CLIPath(Attempt):
    """One attempt through a `claude` process. Call `run()` once: it starts the process, and ends it in every case."""

    words: Sequence[tuple[str, str]] | None = ()

    def __init__(self, request: CompletionRequest, *, payer: Payer = "unknown") -> None:
        self._request = request
        self.payer: Payer = payer

    async def run(self, hear: Callable[[Message], object]) -> None:
        """Send the prompt, and pass every message to `hear` until there is a result and no background agent will add to it.

        Also returns when the CLI ends well without a result. Raises `ClaudeTransportError`. A result that reports a failure is not raised
        here. Whether a tool was called is seen in the messages.
        """
        transport: TransportLike | None = None
        try:
            transport = self._request.transport_with(self._request.cli_options())
            async with Query(transport, close_timeout=self._request.close_timeout) as query:
                if self._request.make_transport is not None:  # such a transport need not know the policy; ours tells it to the query
                    settings = partial(query.request, "get_settings")
                    await check_session_billing(self._request.options.billing, query.initialization, ask_settings=settings)
                everything = query.messages()
                self.dispatched = True
                turn = await query.send(self._request.prompt)
                while (message := await _next(everything, query=query, turn=turn)) is not None:
                    self._note(message)
                    hear(message)
        finally:
            self.note_end(transport)

    def _note(self, message: Message) -> None:
        if isinstance(message, InitMessage) and message.api_key_source not in ("", "none") and self.payer != "cloud account":
            self.payer = "api account"  # the CLI reports which credential it found


async def _next(everything: AllMessages, *, query: Query, turn: Turn) -> Message | None:
    """Return the next message of the run. None when the prompt has its result, and no background agent and no turn of one still runs."""
    message = everything.take()
    if message is not None:
        return message
    if turn.is_open() or everything.has_ended:
        return await anext(everything, None)  # raises the cause of a bad end
    if query.is_quiet:
        return None
    with anyio.move_on_after(math.inf if query.background_tasks or query.is_running else _SETTLE):
        return await anext(everything, None)
    return None


def find_payer(options: ClaudeOptions) -> Payer:
    """Find the account that would pay for a call through the CLI, as far as can be told before it runs. Reads the settings files."""
    found = preflight("cli", options=options, agent="claude-code").cli_credential
    return "unknown" if found is None else found.payer


# The notes that `auto` chose the CLI, or the agent: each is logged once per process.


_logger = logger_for("claude_transport.completion")

_WHO: Final[dict[Payer, str]] = {
    "subscription": "the subscription pays",
    "api account": "an API account pays, because its key wins over the login",
    "cloud account": "a cloud account pays",
    "token owner": "the owner of ANTHROPIC_AUTH_TOKEN pays",
    "nobody": "no credential was found for it",
    "unknown": "its login pays",
}


def announcement_of(resolution: Resolution | AgentResolution, *, payer: Payer = "unknown") -> str | None:
    """Make the line to log for this resolution; None unless `auto` chose the CLI, or the agent."""
    if isinstance(resolution, AgentResolution):
        return _announcement_of_agent(resolution, payer)
    if resolution.kind != "cli" or resolution.choice != "auto":
        return None
    return f'using the Claude CLI ({_WHO[payer]}); transport="api" or {TRANSPORT_VARIABLE}=api chooses the API instead'


def _announcement_of_agent(resolution: AgentResolution, payer: Payer) -> str | None:
    if resolution.choice != "auto":
        return None
    other = "codex" if resolution.kind == "claude-code" else "claude-code"
    paid = "" if resolution.kind == "claude-code" else f" (paid by: {payer})"
    return f'using the agent {find_agent(resolution.kind).title}{paid}; agent="{other}" or {AGENT_VARIABLE}={other} chooses the other one'


class Announcer:
    """Logs a line the first time, from any thread, and never again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_spoken = False

    def announce(
        self, resolution: Resolution | AgentResolution, *, payer: Payer = "unknown", say: Callable[[str], object] | None = None
    ) -> bool:
        """Log the line if it is due, and return whether it was logged. `say` receives the line in place of the log; its errors
        propagate.
        """
        text = announcement_of(resolution, payer=payer)
        if text is None:
            return False
        with self._lock:
            if self._has_spoken:
                return False
            self._has_spoken = True
        if say is None:
            _logger.warning("%s", text)
        else:
            say(text)
        return True


_of_this_process: Final[dict[type, Announcer]] = {Resolution: Announcer(), AgentResolution: Announcer()}


def announce(resolution: Resolution | AgentResolution, *, payer: Payer = "unknown", say: Callable[[str], object] | None = None) -> bool:
    """Log the line once in this process, that of the path and that of the agent; see `Announcer.announce`."""
    return _of_this_process[type(resolution)].announce(resolution, payer=payer, say=say)


class Call:
    """One call. Call `run()` once.

    Args:
        request: the checked arguments.
        on_text: called with each piece of text. After the first piece there is no other attempt.
        on_event: called with each message of each attempt. When it raises, that is logged, and it is not called again.
        sleep: waits between attempts, in seconds.
    """

    def __init__(
        self,
        request: CompletionRequest,
        *,
        on_text: Callable[[str], object] | None = None,
        on_event: OnEvent | None = None,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        _check_observer(on_event)
        self._request = request
        self._on_text = on_text
        self._on_event = on_event
        self._sleep = sleep
        self._errors: list[ClaudeTransportError] = []
        self._earlier_attempts = 0
        self._started = 0.0

    async def run(self) -> Completion:
        """Make attempts until one succeeds, and return its completion. Raises the error of the last attempt."""
        self._started = anyio.current_time()
        request = self._request
        try:
            plan = await _in_thread(_plan, request)
        except ClaudeTransportError as exc:
            self._note_unplanned(exc)
            raise
        notes: tuple[str, ...] = ()
        while True:
            attempt = _Attempt(plan.request, plan, notes=notes, on_text=self._on_text, on_event=self._tell)
            error = await attempt.run(timeout=self._time_left)
            if error is None:
                return self._finished(attempt)
            delay = self._delay_after(error, attempt)
            if delay is not None:
                logger.info("attempt %d failed (%s); again in %.1f s%s", self._attempts + 1, error.code, delay, self._subject)
                self._errors.append(error)
                await self._sleep(delay)
            elif self._time_left > 0 and attempt.may_fall_back(error) and await _in_thread(_has_key, request):
                logger.warning("the CLI cannot be used (%s); this call goes to the API instead%s", error.code, self._subject)
                self._earlier_attempts += len(self._errors) + 1
                self._errors = []
                notes = (f"fallback: the API was asked, because the CLI failed before it was given the prompt ({error.code})",)
                plan = _Plan(_fallen_back(plan.resolution, error), plan.request, agent=plan.agent)
            else:
                raise self._failed(error, attempt)

    def _tell(self, event: Message) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            # an observer must not decide how the call ends
            self._on_event = None
            logger.exception("on_event failed; it is not called again in this call")

    @property
    def _attempts(self) -> int:
        """Number of attempts that have failed."""
        return self._earlier_attempts + len(self._errors)

    @property
    def _time_left(self) -> float:
        return self._started + self._request.timeout - anyio.current_time()

    @property
    def _subject(self) -> str:
        return f" ({self._request.subject})" if self._request.subject else ""

    def _delay_after(self, error: ClaudeTransportError, attempt: _Attempt) -> float | None:
        """Return the seconds until the next attempt; None when there is none."""
        delay = self._request.retry.next_delay(
            error, earlier=self._errors, retry_after=retry_after_of(error), side_effects=attempt.has_left_traces
        )
        # after such a wait there is no time for an attempt
        return None if delay is None or delay >= self._time_left else delay

    def _finished(self, attempt: _Attempt) -> Completion:
        completion = attempt.completion(attempts=self._attempts + 1, duration=anyio.current_time() - self._started)
        logger.info("apiKeySource=%s, paid by %s%s", completion.api_key_source, completion.billing_source, self._subject)
        return completion

    def _note_unplanned(self, error: ClaudeTransportError) -> None:
        """Attach the elapsed time to `error`, which came before a path was chosen."""
        kind: TransportKind = "api" if self._request.transport == "api" else "cli"
        completion = Completion(
            text="",
            transport=kind,
            resolution=Resolution(kind=kind, layer="argument" if self._request.transport else "default", reason=str(error)),
            agent_resolution=AgentResolution()
            if self._request.agent in (None, "auto", "claude-code")
            else AgentResolution(kind=self._request.agent, layer="argument", choice=self._request.agent, reason=str(error)),
            exit_code=NO_EXIT_CODE if kind == "cli" else None,
            duration=anyio.current_time() - self._started,
            attempts=0,
            category=error.category,
        )
        attach_completion(error, completion)

    def _failed(self, error: ClaudeTransportError, attempt: _Attempt) -> ClaudeTransportError:
        """Attach what the call had so far to `error`, and return it."""
        attempts = self._attempts + 1
        if error.code == "exec.cli.timeout" and error.__cause__ is None and self._errors and self._errors[-1].code != error.code:
            error.__cause__ = self._errors[-1]
        # the agent may repeat what it was given
        redact = redactor_knowing([], confidential=[self._request.options, self._request.agent_options]).text
        told: BaseException | None = error
        while isinstance(told, ClaudeTransportError):  # a traceback shows the causes, too
            told.reason = reason_without(told, redact)
            told = told.__cause__
        attach_completion(error, attempt.completion(attempts=attempts, duration=anyio.current_time() - self._started))
        if attempts > 1:
            error.add_note(f"{attempts} attempts were made")
        if self._request.subject:
            error.add_note(f"subject: {self._request.subject}")
        return error


class _Attempt:
    """One attempt and the messages that it received."""

    def __init__(
        self, request: CompletionRequest, plan: _Plan, *, notes: tuple[str, ...], on_text: Callable[[str], object] | None, on_event: OnEvent
    ) -> None:
        self._request = request
        self._on_event = on_event
        self._resolution = plan.resolution
        self._notes = notes
        self._on_text = on_text
        self._agent = plan.agent
        self._path: Attempt = plan.open_path()
        self._messages: list[Message] = []
        self._flow = TextFlow()
        self._retries: list[APIRetryMessage] = []  # those since the API last answered
        self._calls_tools = False
        self._is_cut_short = False
        self._error: ClaudeTransportError | None = None

    async def run(self, *, timeout: float) -> ClaudeTransportError | None:
        """Run the attempt. Returns its error, or None when there is an answer."""
        raised = None
        limit = self._request.attempt_timeout
        self._is_cut_short = limit is not None and limit < timeout
        with anyio.move_on_after(min(timeout, math.inf if limit is None else limit)) as scope:
            try:
                await self._path.run(self._hear)
            except ClaudeTransportError as exc:
                raised = exc if self._path.words is None else classify_exception_of(exc, self._path.words)
        self._error = self._error_of(raised, timed_out=scope.cancel_called)
        return self._error

    def _error_of(self, raised: ClaudeTransportError | None, *, timed_out: bool) -> ClaudeTransportError | None:
        """Choose the error of the attempt: the one in its result, the timeout, what was `raised`, or that there is no result."""
        assembly = assemble(self._messages)
        if assembly.failure is not None and raised is None:
            return self._failed_result(assembly.failure)
        if timed_out and assembly.result is None:
            late = self._late()
            late.__cause__ = late.__cause__ or raised
            return late
        if raised is None and assembly.result is None and not assembly.text:
            return classify_cli_exception(MissingResult("the conversation ended without a result", messages=self._messages))
        return raised

    def _late(self) -> MissingResult:
        """Make the error for a timeout. When only this attempt was late, another one may follow."""
        request, short = self._request, self._is_cut_short
        seconds = request.attempt_timeout if short else request.timeout
        option = "attempt_timeout" if short else "timeout"
        late = error_of_timeout(self._path.kind, seconds=seconds, option=option, messages=self._messages, retries=self._retries)
        late.retryable = late.retryable or (short and not self._retries and not self.has_left_traces)
        return late

    def _failed_result(self, result: ResultMessage) -> ClaudeTransportError | None:
        error = classify_result(result)
        is_claude = self._agent.kind == "claude-code"
        url = api_environment(self._request.options).get("ANTHROPIC_BASE_URL") if is_claude else None
        return None if error is None else with_address(error, url)

    def _hear(self, message: Message) -> None:
        self._calls_tools = self._calls_tools or may_have_side_effects((message,))
        if isinstance(message, APIRetryMessage):
            self._retries.append(message)
        elif isinstance(message, StreamEvent | AssistantMessage):
            self._retries.clear()
        if not isinstance(message, StreamEvent) or self._request.options.include_partial_messages:
            self._messages.append(message)
            self._on_event(message)
        piece = self._flow.hear(message)
        if piece and self._on_text is not None:
            if self._flow.was_taken_back:
                raise _begun_again(refused=self._flow.was_refused)
            self._on_text(piece)

    @property
    def has_left_traces(self) -> bool:
        """Whether the attempt may have changed something, so that another attempt is not safe."""
        if self._on_text is not None and (self._flow or self._flow.was_taken_back):
            return True  # the reader has the beginning of this answer, and another attempt would begin another one
        said = self._path.dispatched and self._path.kind == "cli" and self._request.names_a_session
        return self._calls_tools or self._path.may_have_acted or said

    def may_fall_back(self, error: ClaudeTransportError) -> bool:
        """Whether the API may be asked after this `error`: the prompt was not sent, and the caller made no mistake."""
        if not self._request.fallback or self._path.kind != "cli" or self._path.dispatched or isinstance(error, UsageError):
            return False
        return not isinstance(error, ConfigurationError) or isinstance(error, CLINotFoundError)

    def completion(self, *, attempts: int, duration: float) -> Completion:
        """Build the completion of this attempt, also of one that failed."""
        assembly = assemble(self._messages)
        api = self._path.kind == "api"
        timed_out = self._error is not None and self._error.code == "exec.cli.timeout"
        advice = advise(self._messages) if self._request.heuristics and self._error is None else None
        # only a `claude` reports what a run has cost
        unpriced = (api or self._agent.kind != "claude-code") and assembly.result is not None
        cost = cost_of(assembly.model or "", usage=assembly.usage) if unpriced else assembly.cost_usd
        text, blocks = self._words(assembly, timed_out=timed_out)
        return Completion(
            text=text,
            text_blocks=blocks,
            usage=assembly.usage,
            cost_usd=cost,
            model=assembly.model,
            stop_reason=assembly.stop_reason,
            structured_output=None if assembly.result is None else assembly.result.structured_output,
            transport=self._path.kind,
            resolution=self._resolution,
            agent_resolution=self._agent,
            api_key_source=self._path.api_key_source or assembly.api_key_source,
            billing_source=self._path.payer,
            session_id=assembly.session_id,
            exit_code=NO_EXIT_CODE if timed_out and not api else self._path.exit_code,
            duration=duration,
            attempts=attempts,
            warnings=(*self._notes, *assembly.warnings, *(() if advice is None else (advice.warning,))),
            category=self._error.category if self._error is not None else None if advice is None else advice.category,
            events=assembly.events,
            stderr_tail=self._path.stderr_tail,
        )

    def _words(self, assembly: Assembly, *, timed_out: bool) -> tuple[str, tuple[str, ...]]:
        """Return the text and its blocks. A failed attempt has none: its text is no answer. A timeout keeps what was written until then."""
        if self._error is not None and not timed_out:
            return "", ()
        if assembly.result is None:  # what was cut off is not complete in whole messages
            return self._flow.text, self._flow.blocks
        return assembly.text, assembly.text_blocks


def _check_observer(on_event: object) -> None:
    if on_event is not None and (not callable(on_event) or inspect.iscoroutinefunction(on_event)):
        raise ConfigurationError(f"on_event must be a plain function (not async), not {on_event!r}", option="on_event")


def _begun_again(*, refused: bool) -> ClaudeTransportError:
    """Make the error for a stream whose answer the CLI begins again: the reader already has another beginning."""
    cause = ReportedFailure(stop_reason="refusal", terminal_reason=None) if refused else ReportedFailure(api_error="connection_failed")
    return classify_reported(cause, "cli")


def _fallen_back(resolution: Resolution, error: ClaudeTransportError) -> Resolution:
    reason = f"{resolution.reason}; the CLI failed before it was given the prompt ({error.code}), and a fallback was allowed"
    return msgspec.structs.replace(resolution, kind="api", reason=reason)


class _Plan(msgspec.Struct, frozen=True):
    """The path that is tried first, its request, the account that pays, the agent, and what another agent than Claude has planned."""

    resolution: Resolution
    request: CompletionRequest
    payer: Payer = "unknown"
    agent: AgentResolution = AgentResolution()
    planned: CallPlan | None = None

    def open_path(self) -> Attempt:
        """Make the path for one attempt."""
        if self.planned is not None:
            return find_agent(self.agent.kind).attempt(self.request, self.planned)
        return CLIPath(self.request, payer=self.payer) if self.resolution.kind == "cli" else APIPath(self.request)


def _plan(request: CompletionRequest) -> _Plan:
    """Choose the agent and the path. Looks for programs and a key only for `auto`. Raises `ConfigurationError` when there is nothing, and
    when the agent cannot do what the call asks for.
    """
    decide = partial(resolve_transport, request.transport, env=os.environ, declared=request.declared)
    resolution = decide(cli_available=True, api_key_available=True)
    agent = choose_agent(
        request.agent,
        env=os.environ,
        declared=request.declared,
        transport=resolution.choice,
        has_cli=partial(_has_cli, request),
        has_other=partial(_has_other, request),
        has_key=partial(_has_key, request),
    )
    if agent.kind != "claude-code":
        return _plan_other(request, resolution, agent)
    check_for_claude(request, agent)
    announce(agent)
    if resolution.choice == "auto":
        resolution = decide(cli_available=_has_cli(request), api_key_available=_has_key(request))
    if resolution.kind == "api":
        return _Plan(resolution, request, agent=agent)
    if request.make_transport is not None:
        return _Plan(_of_the_caller(resolution), request, agent=agent)  # what is on this machine says nothing about the other end
    request = msgspec.structs.replace(request, options=with_settings_read(request.options))  # once, for all that looks at them
    payer = find_payer(request.options)
    announce(resolution, payer=payer)
    return _Plan(resolution, request, payer, agent)


def _plan_other(request: CompletionRequest, resolution: Resolution, chosen: AgentResolution) -> _Plan:
    """Plan a call that another agent than Claude answers. Raises `ConfigurationError` when the agent cannot do what the call asks for."""
    agent = find_agent(chosen.kind)
    if request.fallback:
        raise ConfigurationError(f"fallback: a call to {agent.title} cannot fall back to the Messages API. Remove it", option="fallback")
    check_has_path(resolution, chosen, title=agent.title)
    request = msgspec.structs.replace(request, chosen=chosen)
    planned = agent.plan_call(request, os.environ)
    check_model(planned.model, chosen)
    if request.make_transport is not None:
        return _Plan(_of_the_caller(resolution), request, agent=chosen, planned=planned)
    payer: Payer = "unknown" if planned.credential is None else planned.credential.payer
    announce(chosen, payer=payer)
    found = msgspec.structs.replace(resolution, kind="cli", reason=f"{chosen.reason}, and {agent.title} has no other path than its CLI")
    return _Plan(found, request, payer, chosen, planned=planned)


def _of_the_caller(resolution: Resolution) -> Resolution:
    """Return the resolution of a call whose caller makes the transport: no CLI was looked for."""
    says = resolution.reason.partition(",")[0]
    return msgspec.structs.replace(resolution, kind="cli", reason=f"{says}, and make_transport makes the way to the CLI")


def _has_other(request: CompletionRequest) -> bool:
    return can_run_other(request.agent_options, env=os.environ)


def _has_key(request: CompletionRequest) -> bool:
    """Whether the API path has a credential, and the billing policy allows it."""
    try:
        check_billing("api", request.options.billing)
    except ConfigurationError:
        return False
    return find_credential(request.options) is not None


def _has_cli(request: CompletionRequest) -> bool:
    if request.make_transport is not None:
        return True
    try:
        find_cli(request.options.cli_path, env=os.environ)
    except (CLINotFoundError, NotExecutableError):
        return False
    return True


async def _in_thread(func: Callable[[CompletionRequest], T], request: CompletionRequest) -> T:
    try:
        return await anyio.to_thread.run_sync(func, request)
    except RuntimeError as exc:  # "can't start new thread"
        raise SpawnError(f"a call needs a thread to look for claude and for a key: {exc}", path="claude") from exc
